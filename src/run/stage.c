/* stage.c - the stages before user code, in order; see stage.h. */
#include "run/load.h"
#include "run/stage.h"

#include "base/clock.h"
#include "base/units.h"
#include "core/attempt.h"
#include "io/tar.h"
#include "run/compile.h"
#include "run/hub_cache.h"
#include "run/image_keeper.h"
#include "run/mounts.h"
#include "run/sandbox.h"

#define SPARE_BYTES ((off_t)16 << 10) /* a record is a few hundred bytes: its detail is bounded */
#define START_BYTES ((uint64_t)1 << 20)
#define STAGE_ROOM_STEP_MS 1000 /* between two looks at a full node cache */
#define STAGE_ROOM_WAIT_MS ((int64_t)24 * 3600 * 1000)
#define STAGE_CANCEL_STEP_MS 50
#define CA_MAX ((size_t)8 << 20)
#define BLOCK_BYTES 4096 /* what the smallest file takes on disk */

static bool canceled(struct stage *st, struct err *err)
{
	if (!*report_cancel(st->report))
		return false;
	(void)err_set(err, ERR_CANCELED, "stopped while staging");
	return true;
}

/* For the record of the end, which needs no room then; and a retry waits until there is some for
 * all the small files that a start takes. */
static int first_room(struct stage *st, struct err *err)
{
	char *path = arena_printf(st->a, "%s/" ATTEMPT_SPARE, st->dir), free_words[UNITS_CAP];
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* not synced: a machine that goes down takes the job along */
	int rc = fd < 0 ? errno : posix_fallocate(fd, 0, SPARE_BYTES);
	uint64_t left;

	if (rc != 0)
		return err_errno(err, rc, "%s", path);
	if (st->launch->retry_count == 0)
		return 0;
	if (fs_free_bytes(st->dir, &left, NULL, err) < 0)
		return -1;
	if (left >= START_BYTES)
		return 0;
	return err_set(err, ERR_NO_SPACE, "%s are free on the disk of the data folder",
	               units_show_bytes(left, free_words));
}

static int folders(struct stage *st, struct err *err)
{
	static const char *const names[] = {ATTEMPT_CODE,  ATTEMPT_SCRATCH, ATTEMPT_CKPT,
	                                    ATTEMPT_LOAD,  ATTEMPT_UPPER,   ATTEMPT_VARTMP,
	                                    ATTEMPT_SPOOL, ATTEMPT_HUB};

	for (size_t i = 0; i < COUNT(names); i++) {
		char *path = arena_printf(st->a, "%s/%s", st->dir, names[i]);
		AUTO_FD int fd = -1;

		if (fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
			return -1;
		fd = fs_open_dir(path, err);
		if (fd < 0)
			return -1;
		if (strcmp(names[i], ATTEMPT_VARTMP) == 0 && fchmod(fd, 01777) < 0)
			return err_errno(err, errno, "%s", path);
		if (strcmp(names[i], ATTEMPT_SPOOL) != 0 && ids_own(st->ids, fd, path, err) < 0)
			return -1;
	}
	return 0;
}

/* Programs know one file of authorities: the machine's and the server's own together. Without the
 * machine's they would trust nobody else. */
static int write_ca(struct stage *st, struct err *err)
{
	static const char *const bundles[] = {"/etc/ssl/certs/ca-certificates.crt",
	                                      "/etc/pki/tls/certs/ca-bundle.crt",
	                                      "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
	AUTO_BUF struct buf all = BUF_INIT(CA_MAX);
	struct err none = {0};
	size_t i = 0;

	if (st->launch->hub_ca == NULL)
		return 0;
	while (i < COUNT(bundles) && fs_read(AT_FDCWD, bundles[i], &all, &none) < 0) {
		err_clear(&none);
		i++;
	}
	if (i == COUNT(bundles)) {
		logs_message(st->logs, "no certificates of authorities are on this machine "
		                       "(ca-certificates): programs may refuse HF_ENDPOINT");
		return 0;
	}
	buf_printf(&all, "\n%s", st->launch->hub_ca);
	if (buf_check(&all, "certificates", err) < 0)
		return -1;
	return fs_write_atomic(AT_FDCWD, arena_printf(st->a, "%s/" ATTEMPT_CA, st->dir),
	                       buf_view(&all), 0644, err);
}

static int to_fd(void *arg, const void *p, size_t n, struct err *err)
{
	return fs_write_all(*(int *)arg, p, n, err);
}

/* The archive as a descriptor: the store's own file where it has one, else a copy that has no name.
 */
static int open_object(struct stage *st, const char *key, int *fd, struct err *err)
{
	struct objstore_info info;

	if (objstore_fd(st->objects, key, fd, &info, err) == 0)
		return 0;
	if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	if (objstore_stat(st->objects, key, &info, err) < 0)
		return -1;
	*fd = open(st->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*fd < 0)
		return err_errno(err, errno, "%s", st->dir);
	if (objstore_read(st->objects, key, 0, info.size, to_fd, fd, report_cancel(st->report),
	                  err) < 0 ||
	    lseek(*fd, 0, SEEK_SET) < 0) {
		(void)close(*fd);
		*fd = -1;
		return -1;
	}
	return 0;
}

/* Is it what was uploaded? */
static int check_archive(const struct wire_code *code, int fd, struct err *err)
{
	struct digest want, is;
	uint64_t bytes;

	if (code->sha256 == NULL)
		return 0;
	if (digest_parse(str_of(code->sha256), &want, err) < 0 || hash_fd(fd, &is, &bytes, err) < 0)
		return -1;
	if (memcmp(&want, &is, sizeof(want)) != 0)
		return err_set(err, ERR_CORRUPT,
		               "%s in the object store is not the code that was pushed (%" PRIu64
		               " bytes, its SHA-256 is another one): push again",
		               code->key, bytes);
	return lseek(fd, 0, SEEK_SET) == 0 ? 0 : err_errno(err, errno, "%s", code->key);
}

static int stage_code(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	AUTO_FD int root = fs_open_dir(arena_printf(st->a, "%s/" ATTEMPT_CODE, st->dir), err);

	if (root < 0)
		return -1;
	for (size_t i = 0; i < l->n_code; i++) {
		struct tar_report report = {0};
		AUTO_FD int fd = -1;
		char size[UNITS_CAP];
		int r;

		if (canceled(st, err))
			return -1;
		if (open_object(st, l->code[i].key, &fd, err) < 0 ||
		    check_archive(&l->code[i], fd, err) < 0)
			return -1;
		ids_begin(st->ids); /* what is in it is the job's, and so are the rights */
		r = tar_unpack(fd, root, NULL, &report, err);
		ids_end(st->ids);
		if (r < 0)
			return -1;
		logs_message(st->logs, "code: %" PRIu64 " %s, %s", report.entries,
		             report.entries == 1 ? "entry" : "entries",
		             units_show_bytes(report.bytes, size));
		if (report.lowered > 0)
			logs_message(st->logs,
			             "code: %" PRIu64
			             " files had a setuid, setgid or sticky bit, which "
			             "was cleared",
			             report.lowered);
	}
	return 0;
}

struct weights_progress {
	unsigned magic;
#define WEIGHTS_PROGRESS_MAGIC 0x52574549U
	struct stage *st;
	const struct wire_weights *w;
};

static void on_weights(void *arg, uint64_t done, uint64_t total)
{
	struct weights_progress *p =
		FROM_VOID(struct weights_progress, arg, WEIGHTS_PROGRESS_MAGIC);
	char note[300], have[UNITS_CAP], all[UNITS_CAP];

	(void)snprintf(note, sizeof(note), "weights %s: %s of %s", p->w->source,
	               units_show_bytes(done, have), units_show_bytes(total, all));
	report_progress(p->st->report, note, done, total);
}

static int one_weight(struct stage *st, size_t i, struct err *err)
{
	const struct wire_weights *w = &st->launch->weights[i];
	struct weights_progress progress = {WEIGHTS_PROGRESS_MAGIC, st, w};
	const struct tree_from from = {.objects = st->objects, .mirror = st->mirror};
	struct node_lease *lease = &st->lease[st->n_leases];
	int64_t begun = clock_mono_ms();
	char size[UNITS_CAP];
	struct digest d;

	lease->fd = -1;
	if (digest_parse(str_of(w->manifest), &d, err) < 0 ||
	    node_tree(st->node, &from, &d, on_weights, &progress, report_cancel(st->report), lease,
	              err) < 0)
		return err_wrap(err, "weights %s", w->source);
	st->tree[i] = lease->path;
	st->n_leases++;
	logs_message(st->logs, "weights %s at %s: %s, %" PRIu64 " file%s, %s", w->source,
	             w->mount_location, units_show_bytes(lease->bytes, size), lease->files,
	             lease->files == 1 ? "" : "s",
	             lease->hit           ? "already on this node"
	             : lease->fetched > 0 ? "fetched from the object store"
	                                  : "from this machine's mirror");
	if (!lease->hit)
		logs_message(st->logs, "fetching weights %s took %" PRId64 " ms", w->source,
		             clock_mono_ms() - begun);
	return 0;
}

/* Trees that are held while another is waited for are what somebody else may wait for. */
static void give_back(struct stage *st)
{
	for (size_t i = 0; i < st->n_leases; i++)
		(void)close(st->lease[i].fd);
	st->n_leases = 0;
}

/* More than the cache may hold is not waited for. */
static int check_budget(const struct wire_launch *l, struct err *err)
{
	uint64_t need = 0;

	for (size_t i = 0; i < l->n_weights; i++) {
		bool again = false;

		for (size_t k = 0; k < i; k++)
			again = again ||
			        strcmp(l->weights[i].manifest, l->weights[k].manifest) == 0;
		if (!again)
			need += l->weights[i].bytes;
	}
	if (need <= l->node_budget_bytes)
		return 0;
	return err_set(err, ERR_NO_SPACE,
	               "this job's weights need %" PRIu64
	               " bytes, and the node cache may hold %" PRIu64
	               ": give the server a larger --node-cache-bytes",
	               need, l->node_budget_bytes);
}

static int all_weights(struct stage *st, struct err *err)
{
	for (size_t i = 0; i < st->launch->n_weights; i++) {
		if (canceled(st, err) || one_weight(st, i, err) < 0)
			return -1;
	}
	return 0;
}

/* What a stage waits for, in words for the log, and for whom looks at the job. */
enum waits_for { FOR_NODE_CACHE, FOR_DISK, FOR_STORE };
static const struct {
	const char *log, *note;
} waits[] = {
	[FOR_NODE_CACHE] = {"space in the node cache",
                            "space in the node cache, which running jobs are using"},
	[FOR_DISK] = {"space on the disk", "space on the disk"},
	[FOR_STORE] = {"the object store", "the object store, which does not answer"},
};

struct room_wait {
	unsigned magic;
#define ROOM_WAIT_MAGIC 0x52524f4fU
	struct stage *st;
	int64_t since_ms;
	enum waits_for what;
	bool said;
};

/* False: it is stopped, or has waited for long enough. */
static bool wait_for_room(void *arg, const struct err *full)
{
	struct room_wait *w = FROM_VOID(struct room_wait, arg, ROOM_WAIT_MAGIC);
	struct stage *st = w->st;
	int64_t until = clock_mono_ms() + STAGE_ROOM_STEP_MS;
	char note[100];

	if (clock_mono_ms() - w->since_ms > STAGE_ROOM_WAIT_MS)
		return false;
	if (!w->said)
		logs_message(st->logs, "waiting for %s: %s", waits[w->what].log, full->msg);
	w->said = true;
	FMT(note, "waiting for %s", waits[w->what].note);
	report_progress(st->report, note, 0, 0);
	while (clock_mono_ms() < until) {
		if (*report_cancel(st->report))
			return false;
		clock_sleep_ms(STAGE_CANCEL_STEP_MS);
	}
	return true;
}

/* Stopped while it waited: that is why it ends. */
static int waited_in_vain(struct stage *st, struct err *err)
{
	if (*report_cancel(st->report)) {
		err_clear(err);
		(void)canceled(st, err);
	}
	return -1;
}

static int open_node(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;

	return st->node != NULL ? 0 : node_open(&st->node, l->node_dir, l->node_budget_bytes, err);
}

static int stage_python(struct stage *st, struct err *err)
{
	struct room_wait wait = {.magic = ROOM_WAIT_MAGIC, .st = st, .since_ms = clock_mono_ms()};
	struct python_job j = {.a = st->a,
	                       .dir = st->dir,
	                       .name = st->name,
	                       .program = st->program,
	                       .image = st->image,
	                       .image_path = st->image_path,
	                       .image_root = st->image_root[1],
	                       .ids = st->ids,
	                       .confined = st->confined,
	                       .launch = st->launch,
	                       .spec = st->spec,
	                       .report = st->report,
	                       .logs = st->logs,
	                       .wait_for_room = wait_for_room,
	                       .arg = &wait};

	if (!st->spec->python.wanted)
		return 0;
	if (open_node(st, err) < 0)
		return -1;
	j.node = st->node;
	if (python_bring(&j, &st->python, err) == 0)
		return 0;
	return err->id == ERR_NODE_CACHE_FULL ? waited_in_vain(st, err) : -1;
}

/* With the store of objects as a folder here, both are one. */
int stage_mirror(struct objstore **out, struct objstore *objects, const struct wire_launch *l,
                 struct report *report, struct err *err)
{
	if (l->mirror == NULL || *out != NULL)
		return 0;
	if (strcmp(l->mirror, l->objstore) != 0)
		return stage_objects(out, NULL, l->mirror, report, err);
	*out = objects;
	return 0;
}

static int hub_cache(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	AUTO_FD int root = -1;

	if (hub_cache_of(l) == NULL)
		return 0;
	root = fs_open_dir(arena_printf(st->a, "%s/" ATTEMPT_HUB, st->dir), err);
	if (root < 0)
		return -1;
	for (size_t i = 0; i < l->n_weights; i++)
		if (l->weights[i].hub &&
		    hub_cache_add(root, st->ids, l, i,
		                  confined_path(st->confined, st->a, st->tree[i]), err) < 0)
			return -1;
	return 0;
}

static int bring_weights(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	struct room_wait wait = {.magic = ROOM_WAIT_MAGIC, .st = st, .since_ms = clock_mono_ms()};

	if (l->n_weights == 0)
		return 0;
	if (l->n_weights > SPEC_WEIGHTS_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d weights", SPEC_WEIGHTS_MAX);
	give_back(st); /* of a try that an outage ended */
	if (open_node(st, err) < 0 || check_budget(l, err) < 0)
		return -1;
	if (!node_has_keeper(st->node) &&
	    stage_mirror(&st->mirror, st->objects, l, st->report, err) < 0)
		return -1;
	while (all_weights(st, err) < 0) {
		if (err->id != ERR_NODE_CACHE_FULL)
			return -1;
		give_back(st);
		if (!wait_for_room(&wait, err))
			return waited_in_vain(st, err);
		err_clear(err);
	}
	return hub_cache(st, err);
}

/* What cannot be had is compiled again: no job waits for it, or fails. */
static const char *compile_tree(struct stage *st, struct node_lease *lease)
{
	const struct wire_launch *l = st->launch;
	char is[UNITS_CAP], most[UNITS_CAP];
	struct err err = {0};
	struct digest d;
	uint64_t takes;

	if (l->compile.manifest == NULL)
		return NULL;
	takes = l->compile.bytes + l->compile.files * BLOCK_BYTES;
	if (l->scratch_bytes > 0 && takes > l->scratch_bytes / 2) {
		logs_message(st->logs,
		             "compile cache %s: not filled: it takes %s, and a job's scratch may "
		             "have %s",
		             l->compile.repo, units_show_bytes(takes, is),
		             units_show_bytes(l->scratch_bytes, most));
		return NULL;
	}
	if (l->scratch_files > 0 && l->compile.files > l->scratch_files / 2) {
		logs_message(st->logs,
		             "compile cache %s: not filled: it has %" PRIu64
		             " file%s, and a job's scratch may have %" PRIu64,
		             l->compile.repo, l->compile.files, l->compile.files == 1 ? "" : "s",
		             l->scratch_files);
		return NULL;
	}
	if (open_node(st, &err) == 0 &&
	    (node_has_keeper(st->node) ||
	     stage_mirror(&st->mirror, st->objects, l, st->report, &err) == 0) &&
	    digest_parse(str_of(l->compile.manifest), &d, &err) == 0 &&
	    node_tree(st->node, &(struct tree_from){.objects = st->objects, .mirror = st->mirror},
	              &d, NULL, NULL, report_cancel(st->report), lease, &err) == 0)
		return confined_path(st->confined, st->a, lease->path);
	logs_message(st->logs, "compile cache %s: not filled: %s", l->compile.repo, err.msg);
	err_clear(&err);
	return NULL;
}

static int make_compile(struct stage *st, const char *tree, uint64_t *files, uint64_t *bytes,
                        struct err *err)
{
	const char *path = arena_printf(st->a, "%s/" ATTEMPT_COMPILE, st->dir);
	AUTO_FD int root = -1;

	if (fs_mkdirs(AT_FDCWD, path, 0755, err) < 0)
		return -1;
	root = fs_open_dir(path, err);
	if (root < 0 || ids_own(st->ids, root, path, err) < 0)
		return -1;
	return compile_fill(root, st->ids, tree, report_cancel(st->report), files, bytes, err);
}

/* All of it, or nothing. */
static int fill_compile(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	struct node_lease lease = {.fd = -1};
	int64_t begun = clock_mono_ms();
	uint64_t files = 0, bytes = 0;
	const char *tree;
	char size[UNITS_CAP];
	int rc;

	if (!l->has_compile)
		return 0;
	tree = compile_tree(st, &lease);
	rc = make_compile(st, tree, &files, &bytes, err);
	if (rc < 0 && tree != NULL && err->code != ERR_CANCELED) {
		logs_message(st->logs, "compile cache %s: not filled: %s", l->compile.repo,
		             err->msg);
		err_clear(err);
		tree = NULL;
		rc = fs_remove_tree(AT_FDCWD, arena_printf(st->a, "%s/" ATTEMPT_COMPILE, st->dir),
		                    err);
		rc = rc < 0 ? -1 : make_compile(st, NULL, &files, &bytes, err);
	}
	if (lease.fd >= 0)
		(void)close(lease.fd);
	if (rc < 0)
		return err_wrap(err, "compile cache %s", l->compile.repo);
	if (tree != NULL)
		logs_message(st->logs,
		             "compile cache %s: %" PRIu64 " file%s, %s, in %" PRId64 " ms",
		             l->compile.repo, files, files == 1 ? "" : "s",
		             units_show_bytes(bytes, size), clock_mono_ms() - begun);
	return 0;
}

static int stage_weights(struct stage *st, struct err *err)
{
	return bring_weights(st, err) < 0 ? -1 : fill_compile(st, err);
}

struct load_progress {
	unsigned magic;
#define LOAD_PROGRESS_MAGIC 0x524c4f44U
	struct stage *st;
	const struct ckpt *ckpt;
};

static void on_load(void *arg, uint64_t done)
{
	struct load_progress *p = FROM_VOID(struct load_progress, arg, LOAD_PROGRESS_MAGIC);
	char note[300];

	(void)snprintf(note, sizeof(note), "checkpoint %s", p->ckpt->name);
	report_progress(p->st->report, note, done, p->ckpt->files.bytes);
}

static int parse_part(struct stage *st, const char *key, struct ckpt *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(OBJSTORE_BODY_MAX);

	if (objstore_get(st->objects, key, &body, err) < 0)
		return -1;
	return ckpt_parse(out, st->a, arena_str(st->a, buf_view(&body)), err);
}

/* The part that its checkpoint is complete with: a node that saves it over makes another one. */
static int read_part(struct stage *st, const struct wire_load *load, struct ckpt *out,
                     struct err *err)
{
	const char *own = ckpt_manifest_key(st->a, load->prefix, load->rank_from, load->name);
	struct digest want, is;

	if (load->files_sha256 == NULL)
		return parse_part(st, own, out, err);
	if (strcmp(load->files_sha256, WIRE_NO_PART) == 0)
		return err_set(err, ERR_CORRUPT,
		               "the manifest of all nodes is damaged, or not in the store");
	if (digest_parse(str_of(load->files_sha256), &want, err) < 0)
		return -1;
	if (parse_part(st,
	               ckpt_object_key(st->a, load->prefix, load->rank_from,
	                               ckpt_kept_path(st->a, load->name, &want, NULL)),
	               out, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* gone: the checkpoint has been saved over since */
		if (parse_part(st, own, out, err) < 0)
			return -1;
	}
	is = ckpt_digest(out);
	return digest_same(&is, &want)
	               ? 0
	               : err_set(err, ERR_CONFLICT,
	                         "node %" PRIu32 " has saved its part again since it was complete",
	                         load->rank_from);
}

static int load_checkpoint(struct stage *st, const struct wire_load *load, int root,
                           struct err *err)
{
	struct ckpt c;
	struct load_progress progress = {LOAD_PROGRESS_MAGIC, st, &c};
	struct load_job job = {.objects = st->objects,
	                       .ids = st->ids,
	                       .root = root,
	                       .dir = load->dir,
	                       .prefix = load->prefix,
	                       .ckpt = &c,
	                       .progress = on_load,
	                       .arg = &progress,
	                       .cancel = report_cancel(st->report)};
	char size[UNITS_CAP];

	if (read_part(st, load, &c, err) < 0)
		return -1;
	if (c.state == CKPT_INCOMPLETE && load->files_sha256 == NULL)
		return err_set(err, ERR_CONFLICT,
		               "it is incomplete: its trainer died while writing it");
	if (canceled(st, err) || load_files(&job, err) < 0)
		return -1;
	logs_message(st->logs,
	             "checkpoint %s of job %s (rank %" PRIu32 "): %s, %zu file%s, verified",
	             load->name, load->job_id, load->rank_from,
	             units_show_bytes(c.files.bytes, size), c.files.n, c.files.n == 1 ? "" : "s");
	return 0;
}

static int stage_checkpoints(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	AUTO_FD int root = fs_open_dir(arena_printf(st->a, "%s/" ATTEMPT_LOAD, st->dir), err);

	if (root < 0)
		return -1;
	for (size_t i = 0; i < l->n_load; i++) {
		const struct wire_load *load = &l->load[i];

		if (!fs_path_is_plain(str_of(load->dir)))
			return err_set(err, ERR_INVALID, "checkpoint %s: bad folder", load->name);
		if (load_checkpoint(st, load, root, err) < 0)
			return err_wrap(err, "checkpoint %s of job %s", load->name, load->job_id);
	}
	return 0;
}

static void on_image(void *arg, const char *words)
{
	struct stage *st = FROM_VOID(struct stage, arg, STAGE_MAGIC);

	report_progress(st->report, words, 0, 0);
}

static void close_roots(struct stage *st)
{
	for (size_t i = 0; i < COUNT(st->image_root); i++) {
		if (st->image_root[i] > 0)
			(void)close(st->image_root[i]);
		st->image_root[i] = 0;
	}
}

static int bring_image(struct stage *st, const struct image *im, const struct wire_image *wanted,
                       struct image_got *out, struct err *err)
{
	if (st->images == NULL)
		return image_bring(st->a, im, wanted, out, err);
	close_roots(st); /* of another image */
	return image_keeper_bring(st->images, st->a, im, wanted, out, st->image_root, err);
}

static int stage_image(struct stage *st, struct err *err)
{
	const struct image im = {.dir = st->dir,
	                         .spec = st->spec,
	                         .launch = st->launch,
	                         .cancel = report_cancel(st->report),
	                         .note = on_image,
	                         .arg = st};

	const struct wire_launch *l = st->launch;
	struct image_got got;
	struct wire_image kept;

	if (bring_image(st, &im, l->has_image ? &l->image : NULL, &got, err) < 0)
		return -1;
	if (!l->has_image) {
		if (got.unasked != NULL)
			logs_message(st->logs, "using the image that is on this machine: %s",
			             got.unasked);
		if (report_image(st->report, st->a, &got.is, &kept, err) < 0)
			return -1;
		/* Another node was first, and the tag has moved since. */
		if (strcmp(kept.id, got.is.id) != 0 && bring_image(st, &im, &kept, &got, err) < 0)
			return -1;
	}
	st->image = got.is.id;
	st->image_workdir = got.workdir;
	st->image_path = got.path;
	st->image_env = got.env;
	st->podman_sets = st->images == NULL;
	image_keeper_close(TAKE(st->images));
	return 0;
}

/* Others may have written there before, with ids of their own. */
static int share_cache(struct stage *st, const char *dir, struct err *err)
{
	if (dir == NULL)
		return 0;
	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0)
		return -1;
	return ids_own_tree(st->ids, dir, report_cancel(st->report), err);
}

static int stage_sandbox(struct stage *st, struct err *err)
{
	const struct wire_launch *l = st->launch;
	const struct job_spec *s = st->spec;

	if (s->cache.enabled && (share_cache(st, l->cache_project_dir, err) < 0 ||
	                         share_cache(st, l->cache_team_dir, err) < 0))
		return -1;
	st->image_workdir = "/";
	if (s->base_image == NULL)
		return 0;
	if (strcmp(l->images, "host") == 0) {
		logs_message(
			st->logs,
			"image %s is ignored: this server runs every job on the host's root file "
			"system (--images host)",
			s->base_image);
		return 0;
	}
	return stage_image(st, err);
}

struct step {
	enum wire_stage stage;
	int (*run)(struct stage *st, struct err *err); /* again: what was written is written over */
	bool takes_room, from_store;
};

/* A full disk may be why the attempt before this one failed. It would end the job now, which has
 * been deployed before and would go on once there is room. An object store that is away ends no
 * job: what is there stays there, and the rest comes when it is back. */
static int take_step(struct stage *st, const struct step *s, struct err *err)
{
	struct room_wait disk = {
		.magic = ROOM_WAIT_MAGIC, .st = st, .since_ms = clock_mono_ms(), .what = FOR_DISK};
	struct room_wait store = {
		.magic = ROOM_WAIT_MAGIC, .st = st, .since_ms = disk.since_ms, .what = FOR_STORE};

	while (s->run(st, err) < 0) {
		bool full = s->takes_room && err->id == ERR_NO_SPACE && st->launch->retry_count > 0;

		if (!full && !(s->from_store && err_is_away(err)))
			return -1;
		if (!wait_for_room(full ? &disk : &store, err))
			return waited_in_vain(st, err);
		err_clear(err);
	}
	return 0;
}

static int begin(struct stage *st, struct err *err)
{
	if (first_room(st, err) < 0 || folders(st, err) < 0)
		return -1;
	return write_ca(st, err);
}

int stage_objects(struct objstore **out, struct http_client **http, const char *url,
                  struct report *report, struct err *err)
{
	struct objstore_env env = {.signer = report_sign,
	                           .signer_arg = report,
	                           .token = report == NULL ? NULL : report_token(report),
	                           .cancel = report == NULL ? NULL : report_given_up(report)};

	if (str_starts(str_of(url), "signed:") && report != NULL)
		env.client = *http = http_client_new(&(struct http_policy){0});
	return objstore_open(out, url, &env, err);
}

int stage_run(struct stage *st, struct err *err)
{
	static const struct step steps[] = {
		{STAGE_CODE, begin, true, false},
		{STAGE_CODE, stage_code, true, true},
		{STAGE_SANDBOX, stage_sandbox, false, false},
		{STAGE_PYTHON, stage_python, false, false},
		{STAGE_WEIGHTS, stage_weights, false, true},
		{STAGE_CHECKPOINTS, stage_checkpoints, true, true},
	};

	st->at = STAGE_CODE;
	if (stage_objects(&st->objects, &st->http, st->launch->objstore, st->report, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(steps); i++) {
		st->at = steps[i].stage;
		report_stage(st->report, st->at);
		if (canceled(st, err) || take_step(st, &steps[i], err) < 0)
			return -1;
	}
	node_hang_up(st->node);
	return 0;
}

void stage_done(struct stage *st)
{
	give_back(st);
	if (st->python.at != NULL)
		(void)close(st->python.lease.fd);
	st->python.at = NULL;
	node_close(st->node);
	image_keeper_close(TAKE(st->images));
	close_roots(st);
	if (st->mirror != st->objects)
		objstore_close(st->mirror);
	objstore_close(st->objects);
	http_client_free(st->http);
	st->node = NULL;
	st->mirror = NULL;
	st->objects = NULL;
	st->http = NULL;
}
