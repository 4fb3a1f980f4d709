/* image_keeper.c - see image_keeper.h. */
#include "run/image_keeper.h"

#include "base/clock.h"
#include "base/fs.h"
#include "io/local.h"
#include "io/proc.h"
#include "run/keeper.h"
#include "run/sandbox_exec.h"
#include "run/userns.h"

#include <sys/mount.h>
#include <sys/utsname.h>

#define OUT_MAX ((size_t)256 << 10)
#define PODMAN_MS 120000
#define LAYERS_MAX 480   /* the kernel takes 500 */
#define OPTIONS_MAX 4000 /* of a mount: a page */
#define SEND_MS 60000
#define LOOK_MS 50
#define NOTE_MS 500
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
	const struct image_keeper_options *o;
	int sock, runner;
	int64_t noted_ms;
	atomic_bool over;
};

static int podman(const char *const *argv, struct buf *out, struct err *err)
{
	int code = 0;

	if (proc_run(argv, (struct str){0}, PODMAN_MS, out, &code, err) < 0)
		return -1;
	if (code != 0)
		return err_set(err, ERR_IO, "podman %s: exit code %d: %.*s", argv[1], code,
		               (int)MIN(out->n, 300U), buf_cstr(out));
	return 0;
}

static int hold(const struct keeper *k, const char *id, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman",
	                      "create",
	                      "--replace",
	                      "--name",
	                      k->o->name,
	                      "--network=none",
	                      "--pull=never",
	                      "--entrypoint=",
	                      id,
	                      "true",
	                      NULL};

	return podman(argv, &out, err) < 0 ? err_wrap(err, "hold the image") : 0;
}

/* The folders of its layers, the uppermost first. */
static int layers_of(struct arena *a, const char *id, const char *layer[LAYERS_MAX], size_t *n,
                     struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman",
	                      "image",
	                      "inspect",
	                      "--format",
	                      "{{index .GraphDriver.Data \"UpperDir\"}}:"
	                      "{{index .GraphDriver.Data \"LowerDir\"}}",
	                      id,
	                      NULL};
	struct str rest, one;

	if (podman(argv, &out, err) < 0)
		return -1;
	rest = str_trim(buf_view(&out));
	for (*n = 0; str_cut(&rest, ':', &one);) {
		if (!str_starts(one, "/"))
			continue; /* "<no value>": it has one layer */
		if (*n == LAYERS_MAX)
			return err_set(err, ERR_TOO_BIG, "it has more than %d layers", LAYERS_MAX);
		layer[(*n)++] = arena_strz(a, one);
	}
	return *n > 0 ? 0
	              : err_set(err, ERR_UNSUPPORTED, "podman does not say where its layers are");
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
static int mount_layers(struct arena *a, const struct keeper *k, const char *id, struct err *err)
{
	const struct ids *ids = &k->o->ids;
	const struct userns_map own = {.uid = 0, .gid = 0, .host = ids->job, .n = ids->span - 1};
	const char **layer = ARENA_ARRAY(a, const char *, LAYERS_MAX);
	AUTO_BUF struct buf options = BUF_INIT(OPTIONS_MAX);
	AUTO_FD int map = -1;
	size_t n = 0;

	if (layers_of(a, id, layer, &n, err) < 0 || (map = userns_make(&own, err)) < 0)
		return -1;
	buf_puts(&options, "lowerdir=");
	for (size_t i = 0; i < n; i++) {
		if (attach_layer(layer[i], i, map, err) < 0)
			return -1;
		buf_printf(&options, "%zu:", i);
	}
	buf_puts(&options, "none");
	if (buf_check(&options, "its layers", err) < 0)
		return -1;
	if (mkdir("none", 0755) < 0 || mkdir("root", 0755) < 0 ||
	    mount("overlay", "root", "overlay", MS_RDONLY | MS_NODEV | MS_NOSUID,
	          buf_cstr(&options)) < 0)
		return err_errno(err, errno, "an overlay of its layers");
	return 0;
}

/* A mount that is nowhere: what it was made of goes. */
static int show(const struct keeper *k, const char *id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int fd = -1;

	if (fs_mkdirs(AT_FDCWD, IDS_STAGE, 0755, err) < 0)
		return -1;
	if (mount("tmpfs", IDS_STAGE, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, IDS_STAGE);
	if (chdir(IDS_STAGE) < 0)
		(void)err_errno(err, errno, IDS_STAGE);
	else if (mount_layers(a, k, id, err) == 0) {
		fd = open_tree(AT_FDCWD, "root", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		if (fd < 0)
			(void)err_errno(err, errno, "its files");
	}
	(void)!chdir("/");
	(void)umount2(IDS_STAGE, MNT_DETACH); /* else it goes with our mount namespace */
	return fd;
}

static void on_note(void *arg, const char *words)
{
	struct keeper *k = arg;
	int64_t now = clock_mono_ms();
	struct err err = {0};

	if (now - k->noted_ms < NOTE_MS)
		return;
	k->noted_ms = now;
	if (send_message(k->sock, &(struct wire_kept_image){.verb = "note", .text = words}, -1,
	                 &err) < 0)
		err_clear(&err); /* who hung up is not told */
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
	if (m->reference[0] == '-' || strchr(m->reference, '@') == NULL ||
	    !image_is_of(m->reference, k->o->spec->base_image))
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
	const struct wire_image *wanted;
	struct wire_kept_image answer = {.verb = "got"};
	struct wire_image room;
	struct image_got got;
	AUTO_FD int fd = -1;

	if (wanted_of(k, m, &room, &wanted, err) < 0 || image_bring(a, &im, wanted, &got, err) < 0)
		return -1;
	if (hold(k, got.is.id, err) < 0 || (fd = show(k, got.is.id, err)) < 0)
		return err_wrap(err, "image %s", im.spec->base_image);
	answer.id = got.is.id;
	answer.reference = got.is.reference;
	answer.workdir = got.workdir;
	answer.path = got.path;
	answer.env = got.env;
	answer.unasked = got.unasked;
	return send_message(k->sock, &answer, fd, err);
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
	struct keeper k = {.o = arg, .sock = sock, .runner = -1};
	struct err unable = {0}, err = {0};

	(void)!begin(&k, runner, &unable); /* it is told when somebody asks */
	while (serve(&k, &unable, &err) == 0)
		;
	_exit(0); /* the runner has what it wanted, or has ended */
}

/* ---- the runner ------------------------------------------------------------------------------ */

bool image_keeper_may(const char **why)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "info", "--format", "{{.Store.GraphDriverName}}", NULL};
	unsigned major = 0, minor = 0;
	struct utsname u;
	char found[4096];
	struct err no = {0};

	*why = NULL;
	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 ||
	    major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
		*why = "this kernel takes no idmapped mount as a layer of an image";
	else if (proc_find("podman", found) != NULL &&
	         (podman(argv, &out, &no) < 0 || !str_eq(str_trim(buf_view(&out)), "overlay")))
		*why = "podman does not keep its images as overlays";
	err_clear(&no);
	return *why == NULL;
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

/* It is no outage, which would be waited for. */
static int gone(struct err *err)
{
	if (err->code != ERR_UNAVAILABLE)
		return -1;
	err_clear(err);
	return err_set(err, ERR_IO, "the process that brings the image of this job has ended");
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

	if (strcmp(m->verb, "got") != 0)
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
                       const struct wire_image *wanted, struct image_got *out, int *root,
                       struct err *err)
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
	*root = TAKE_FD(fd);
	return 0;
}
