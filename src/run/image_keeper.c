/* image_keeper.c - see image_keeper.h. */
#include "run/image_keeper.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/local.h"
#include "io/proc.h"
#include "run/keeper.h"
#include "run/sandbox.h"
#include "run/sandbox_exec.h"
#include "run/userns.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define OUT_MAX ((size_t)256 << 10)
#define LAYERS_MAX 480   /* the kernel takes 500 */
#define OPTIONS_MAX 4000 /* of a mount: a page */
#define SEND_MS 60000
#define LOOK_MS 50
#define NOTE_MS 500
#define CLONE_MS 10000
#define BRING_MAX 4                           /* twice is what a runner needs */
#define CREDENTIALS_AT IDS_RUN "/credentials" /* a tmpfs of our own */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 19

struct image_keeper {
	struct keeper_end end;
};

/* ---- messages -------------------------------------------------------------------------------- */

static int send_message(int sock, const struct wire_kept_image *m, int fd, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(LOCAL_MESSAGE_MAX);

	wire_kept_image_write(m, &out);
	if (buf_check(&out, "a description of the image", err) < 0)
		return -1;
	return local_send_within(sock, SEND_MS, buf_view(&out), fd, err);
}

static int receive_message(int sock, int64_t wait_ms, struct arena *a, struct wire_kept_image *out,
                           int *fd, struct err *err)
{
	AUTO_BUF struct buf in = BUF_INIT(LOCAL_MESSAGE_MAX);

	*fd = -1;
	if (local_receive_message(sock, wait_ms, &in, fd, err) == 0 &&
	    wire_kept_image_parse(out, a, arena_str(a, buf_view(&in)), err) == 0)
		return 0;
	close_fd_p(fd);
	*fd = -1;
	return -1;
}

/* ---- the keeper ------------------------------------------------------------------------------ */

struct keeper {
	unsigned magic;
#define KEEPER_MAGIC 0x524b4545U
	const struct image_keeper_options *o;
	int sock, runner;
	int64_t noted_ms;
	unsigned brought;
	char *repository; /* of what the name stood for when it was brought first; NULL: of none */
	atomic_bool over;
};

static int hold(const struct keeper *k, const char *id, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman",        "create",
	                      "--replace",     "--name",
	                      k->o->name,      "--network=none",
	                      "--pull=never",  "--image-volume=ignore",
	                      "--entrypoint=", id,
	                      "true",          NULL};

	return sandbox_podman_ask(argv, &out, err) < 0 ? err_wrap(err, "hold the image") : 0;
}

/* The folders of its layers, the uppermost first. */
static int layers_of(struct arena *a, const char *id, const char *layer[LAYERS_MAX], size_t *n,
                     struct err *err)
{
	static const char folders[] = "{{index .GraphDriver.Data \"UpperDir\"}}:"
				      "{{index .GraphDriver.Data \"LowerDir\"}}";
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "image", "inspect", "--format", folders, id, NULL};
	struct str rest, one;

	if (sandbox_podman_ask(argv, &out, err) < 0)
		return -1;
	rest = str_trim(buf_view(&out));
	for (*n = 0; str_cut(&rest, ':', &one);) {
		if (!str_starts(one, "/"))
			continue; /* "<no value>": it has one layer */
		if (*n == LAYERS_MAX)
			return err_set(err, ERR_TOO_BIG, "it has more than %d layers", LAYERS_MAX);
		layer[(*n)++] = arena_strz(a, one);
	}
	return 0;
}

/* Where podman keeps each image whole (vfs, btrfs): as one layer. It counts who has it mounted. */
static int mount_whole(struct arena *a, const char *id, const char *layer[LAYERS_MAX], size_t *n,
                       struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "image", "mount", id, NULL}, *last;

	if (sandbox_podman_ask(argv, &out, err) < 0)
		return -1;
	layer[0] = arena_strz(a, str_trim(buf_view(&out)));
	last = strrchr(layer[0], '\n'); /* behind warnings */
	layer[0] = last != NULL ? last + 1 : layer[0];
	*n = 1;
	return layer[0][0] == '/'
	               ? 0
	               : err_set(err, ERR_UNSUPPORTED, "podman does not say where its files are");
}

static void unmount_whole(const char *id)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "image", "unmount", id, NULL};
	struct err err = {0};

	if (sandbox_podman_ask(argv, &out, &err) < 0)
		log_warn("image %.12s: %s", id, err.msg);
}

/* At "0", "1", ... below the folder that we are in. */
static int attach_layer(const char *from, size_t i, int map, struct err *err)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
	                                      MOUNT_ATTR_NODEV | MOUNT_ATTR_IDMAP,
	                          .userns_fd = (unsigned)map};
	AUTO_FD int tree = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	char at[24];

	FMT(at, "%zu", i);
	if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_errno(err, errno, "%s", from);
	if (mkdir(at, 0755) < 0 || move_mount(tree, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(err, errno, "a layer");
	return 0;
}

/* One more, which is empty: an overlay without an upper layer wants two. */
static int mount_layers(struct arena *a, const struct keeper *k, const char *id, int *map,
                        struct err *err)
{
	const struct ids *ids = &k->o->ids;
	const struct userns_map own = {.uid = 0, .gid = 0, .host = ids->job, .n = ids->span - 1};
	const char **layer = ARENA_ARRAY(a, const char *, LAYERS_MAX);
	AUTO_BUF struct buf options = BUF_INIT(OPTIONS_MAX);
	size_t n = 0;
	bool whole;
	int r = 0;

	if (layers_of(a, id, layer, &n, err) < 0 || (*map = userns_make(&own, err)) < 0)
		return -1;
	whole = n == 0;
	if (whole && mount_whole(a, id, layer, &n, err) < 0)
		return -1;
	buf_puts(&options, "lowerdir=");
	for (size_t i = 0; i < n && r == 0; i++) {
		r = attach_layer(layer[i], i, *map, err);
		buf_printf(&options, "%zu:", i);
	}
	if (whole)
		unmount_whole(id);
	if (r < 0)
		return -1;
	buf_puts(&options, "none");
	if (buf_check(&options, "its layers", err) < 0)
		return -1;
	if (mkdir("none", 0755) < 0 || mkdir("root", 0755) < 0 ||
	    mount("overlay", "root", "overlay", MS_RDONLY | MS_NODEV | MS_NOSUID,
	          buf_cstr(&options)) < 0)
		return err_errno(err, errno, "an overlay of its layers");
	return 0;
}

/* In a process of the job's user namespace: in mounts that it copies, what root has set (read-only,
 * no devices) is locked, and nobody with rights over a namespace of his own can undo it. */
static void clone_as_job(int map, int to, unsigned n) NORETURN;
static void clone_as_job(int map, int to, unsigned n)
{
	struct err err = {0};

	if (setns(map, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNS) < 0)
		_exit(1);
	for (unsigned i = 0; i < n; i++) {
		int fd = open_tree(AT_FDCWD, "root", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

		if (fd < 0 || local_send(to, 'f', fd, &err) < 0)
			_exit(1);
		(void)close(fd);
	}
	_exit(0);
}

static int clone_all(int map, int *root, unsigned n, struct err *err)
{
	int pair[2], status = 0;
	AUTO_FD int from = -1;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, errno, "a socket");
	from = pair[0];
	child = fork();
	if (child == 0)
		clone_as_job(map, pair[1], n);
	(void)close(pair[1]);
	if (child < 0)
		return err_errno(err, errno, "start a process");
	for (unsigned i = 0; i < n && err->code == ERR_NONE; i++) {
		char word;

		(void)!local_receive(from, CLONE_MS, &word, &root[i], err);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (err->code != ERR_NONE || status != 0 || root[n - 1] < 0) {
		err_clear(err);
		return err_set(err, ERR_IO, "its files cannot be shown to the job");
	}
	return 0;
}

/* Mounts that are nowhere: what they were made of goes. */
static int show(const struct keeper *k, const char *id, int *root, unsigned n, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int map = -1;
	int r = -1;

	if (fs_mkdirs(AT_FDCWD, IDS_STAGE, 0755, err) < 0)
		return -1;
	if (mount("tmpfs", IDS_STAGE, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, IDS_STAGE);
	if (chdir(IDS_STAGE) < 0)
		(void)err_errno(err, errno, IDS_STAGE);
	else if (mount_layers(a, k, id, &map, err) == 0)
		r = clone_all(map, root, n, err);
	(void)!chdir("/");
	(void)umount2(IDS_STAGE, MNT_DETACH); /* else it goes with our mount namespace */
	return r;
}

static void on_note(void *arg, const char *words)
{
	struct keeper *k = FROM_VOID(struct keeper, arg, KEEPER_MAGIC);
	int64_t now = clock_mono_ms();
	struct err err = {0};

	if (now - k->noted_ms < NOTE_MS)
		return;
	k->noted_ms = now;
	if (send_message(k->sock, &(struct wire_kept_image){.verb = "note", .text = words}, -1,
	                 &err) < 0)
		err_clear(&err); /* who hung up is not told */
}

/* By digest, of the repository that the name stood for when it was asked first. */
static bool is_of_first(const struct keeper *k, const char *reference)
{
	static const char by[] = "@sha256:";
	size_t n = k->repository != NULL ? strlen(k->repository) : 0;
	const char *digest;

	if (n == 0 || strncmp(reference, k->repository, n) != 0 ||
	    strncmp(reference + n, by, strlen(by)) != 0)
		return false;
	digest = reference + n + strlen(by);
	return strlen(digest) == 64 && strspn(digest, "0123456789abcdef") == 64;
}

static void note_first(struct keeper *k, const char *reference)
{
	if (k->repository == NULL && reference != NULL)
		k->repository = xasprintf("%.*s", (int)strcspn(reference, "@"), reference);
}

/* What the runner may ask for. NULL: what the name stands for now. */
static int wanted_of(const struct keeper *k, const struct wire_kept_image *m,
                     struct wire_image *room, const struct wire_image **out, struct err *err)
{
	const struct wire_launch *l = k->o->launch;

	*out = NULL;
	if (l->has_image) {
		*out = &l->image;
		return 0;
	}
	if (m->reference == NULL) /* an image of this machine alone is known by its name */
		return 0;
	if (!is_of_first(k, m->reference))
		return err_set(err, ERR_DENIED, "%s is not the image of this job", m->reference);
	*room = (struct wire_image){.id = m->reference, .reference = m->reference};
	*out = room;
	return 0;
}

static int bring(struct arena *a, struct keeper *k, const struct wire_kept_image *m,
                 struct err *err)
{
	const struct image im = {.dir = CREDENTIALS_AT,
	                         .spec = k->o->spec,
	                         .launch = k->o->launch,
	                         .cancel = &k->over,
	                         .note = on_note,
	                         .arg = k};
	const unsigned n = k->o->spec->python.wanted ? 2 : 1;
	const struct wire_image *wanted;
	struct wire_kept_image answer = {.verb = n > 1 ? "more" : "got"};
	struct wire_image room;
	struct image_got got;
	int root[IMAGE_ROOTS] = {-1, -1}, r;

	if (k->brought++ == BRING_MAX)
		return err_set(err, ERR_TOO_BIG, "the image was asked for %d times", BRING_MAX);
	if (wanted_of(k, m, &room, &wanted, err) < 0 || image_bring(a, &im, wanted, &got, err) < 0)
		return -1;
	if (wanted == NULL && m->id != NULL && strcmp(m->id, got.is.id) != 0)
		return err_set(err, ERR_IMAGE_NOT_FOUND,
		               "image %s: this job runs with image %.12s, which is not on this "
		               "machine and came from no registry",
		               im.spec->base_image, m->id);
	note_first(k, got.is.reference);
	if (hold(k, got.is.id, err) < 0 || show(k, got.is.id, root, n, err) < 0)
		return err_wrap(err, "image %s", im.spec->base_image);
	answer.id = got.is.id;
	answer.reference = got.is.reference;
	answer.workdir = got.workdir;
	answer.path = got.path;
	answer.env = got.env;
	answer.unasked = got.unasked;
	r = send_message(k->sock, &answer, root[0], err);
	if (r == 0 && n > 1)
		r = send_message(k->sock, &(struct wire_kept_image){.verb = "got"}, root[1], err);
	close_fd_p(&root[0]);
	close_fd_p(&root[1]);
	return r;
}

/* Credentials are written where nobody else sees them, and that is gone with us. */
static int begin(struct keeper *k, pid_t runner, struct err *err)
{
	int *ours[] = {&k->sock};

	if (keeper_keep_fds(ours, COUNT(ours), runner, &k->runner, err) < 0 ||
	    keeper_watch(k->sock, k->runner, &k->over, err) < 0 ||
	    sandbox_exec_own_mounts(err) < 0 || fs_mkdirs(AT_FDCWD, CREDENTIALS_AT, 0700, err) < 0)
		return -1;
	if (mount("tmpfs", CREDENTIALS_AT, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0700") < 0)
		return err_errno(err, errno, CREDENTIALS_AT);
	return 0;
}

/* One question; an error of it is the answer. */
static int serve(struct keeper *k, const struct err *unable, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_kept_image m = {0};
	struct err why = *unable;
	AUTO_FD int fd = -1;

	if (receive_message(k->sock, -1, a, &m, &fd, err) < 0)
		return -1;
	if (why.code == ERR_NONE && strcmp(m.verb, "bring") != 0)
		(void)err_set(&why, ERR_INVALID, "no question: %s", m.verb);
	if (why.code == ERR_NONE && bring(a, k, &m, &why) == 0)
		return 0;
	return send_message(
		k->sock,
		&(struct wire_kept_image){.verb = "failed", .error = err_id(&why), .text = why.msg},
		-1, err);
}

static void keep(void *arg, int sock, pid_t runner)
{
	struct keeper k = {.magic = KEEPER_MAGIC, .o = arg, .sock = sock, .runner = -1};
	struct err unable = {0}, err = {0};

	(void)!begin(&k, runner, &unable); /* it is told when somebody asks */
	while (serve(&k, &unable, &err) == 0)
		;
	_exit(0); /* the runner has what it wanted, or has ended */
}

/* ---- the runner ------------------------------------------------------------------------------ */

const char *image_keeper_kernel(const char *release)
{
	unsigned major = 0, minor = 0;

	if (sscanf(release, "%u.%u", &major, &minor) == 2 &&
	    (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR)))
		return NULL;
	return "this kernel takes no idmapped mount as a layer of an image (from 5.19 on)";
}

int image_keeper_may(struct arena *a, const char **why, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "info", "--format", "{{.Store.GraphRoot}}", NULL};
	struct utsname u;
	char found[4096];

	*why = NULL;
	if (proc_find("podman", found) == NULL)
		return 0; /* what brings the image says it */
	if (sandbox_podman_ask(argv, &out, err) < 0)
		return -1;
	if (uname(&u) < 0)
		return err_errno(err, errno, "uname");
	*why = image_keeper_kernel(u.release);
	if (*why == NULL && !ids_can_map(arena_strz(a, str_trim(buf_view(&out)))))
		*why = "the file system of podman's storage has no idmapped mounts";
	return 0;
}

int image_keeper_start(struct image_keeper **out, const struct image_keeper_options *o,
                       struct err *err)
{
	struct image_keeper_options *kept = ARENA_NEW(o->a, struct image_keeper_options);
	struct image_keeper *k = xcalloc(1, sizeof(*k));

	*kept = *o;
	if (keeper_start(&k->end, "the machine's images", keep, kept, err) < 0) {
		image_keeper_close(k);
		return -1;
	}
	*out = k;
	return 0;
}

void image_keeper_close(struct image_keeper *k)
{
	if (k == NULL)
		return;
	keeper_close(&k->end);
	free(k);
}

static int gone(struct err *err)
{
	return keeper_lost("brings the image of this job", err);
}

static int hear(struct image_keeper *k, struct arena *a, const struct image *im,
                struct wire_kept_image *out, int *fd, struct err *err)
{
	while (receive_message(k->end.sock, LOOK_MS, a, out, fd, err) < 0) {
		if (err->code != ERR_TIMEOUT)
			return gone(err);
		err_clear(err);
		if (atomic_load(im->cancel)) {
			keeper_hang_up(&k->end);
			return err_set(err, ERR_CANCELED, "canceled");
		}
	}
	return 0;
}

static int take_answer(const struct wire_kept_image *m, struct image_got *out, struct err *err)
{
	enum err_code code = m->error != NULL ? err_of_id(m->error) : ERR_NONE;

	if (strcmp(m->verb, "got") != 0 && strcmp(m->verb, "more") != 0)
		return err_set(err, code != ERR_NONE ? code : ERR_IO, "%s",
		               m->text != NULL ? m->text : m->verb);
	*out = (struct image_got){.is = {.id = m->id, .reference = m->reference},
	                          .workdir = m->workdir,
	                          .path = m->path,
	                          .env = m->env,
	                          .unasked = m->unasked};
	return 0;
}

int image_keeper_bring(struct image_keeper *k, struct arena *a, const struct image *im,
                       const struct wire_image *wanted, struct image_got *out,
                       int root[IMAGE_ROOTS], struct err *err)
{
	const struct wire_kept_image question = {.verb = "bring",
	                                         .id = wanted != NULL ? wanted->id : NULL,
	                                         .reference =
	                                                 wanted != NULL ? wanted->reference : NULL};
	struct wire_kept_image m = {.verb = "note"};
	AUTO_FD int fd = -1;

	if (k->end.sock < 0)
		return err_set(err, ERR_CANCELED, "canceled");
	if (send_message(k->end.sock, &question, -1, err) < 0)
		return gone(err);
	while (strcmp(m.verb, "note") == 0) {
		if (hear(k, a, im, &m, &fd, err) < 0)
			return -1;
		if (strcmp(m.verb, "note") == 0 && m.text != NULL)
			im->note(im->arg, m.text);
	}
	if (take_answer(&m, out, err) < 0)
		return -1;
	if (out->is.id == NULL || out->workdir == NULL || fd < 0)
		return err_set(err, ERR_IO, "the keeper of images gave no image");
	root[0] = TAKE_FD(fd);
	fd = -1;
	return strcmp(m.verb, "more") == 0 ? hear(k, a, im, &m, &root[1], err) : 0;
}
