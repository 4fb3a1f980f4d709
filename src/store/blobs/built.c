/*
 * built.c - see built.h. Order: the folder built/<key>-<id>, then tmp/<key> with the link to it,
 * then the maker's work, its list, and one rename of tmp/<key> to trees/<key>. Removing goes the
 * other way. A folder that no link leads to was left by a killed maker.
 */
#include "store/blobs/built.h"

#include "base/clock.h"
#include "base/seal.h"
#include "core/wire.h"
#include "store/blobs/built_list.h"
#include "store/blobs/lease.h"
#include "store/blobs/tree_inner.h"
#include "store/common/usage.h"

#include <sys/file.h>

#define PATH_CAP 256
#define ID_LEN 8
#define NAME_LEN (64 + 1 + ID_LEN)
#define RACES_MAX 1000 /* lost to an evictor between two locks */
#define WAIT_STEP_MS 50
#define FAILED_MAX ((size_t)4096)
#define FAILED_OLD_S 86400
#define SIZE_MAX_TEXT ((size_t)32)
#define SIZE_OLD_S (90 * 86400)
#define AHEAD_MAX ((uint64_t)256 << 20) /* counted before it is written */
#define AHEAD_PART 16                   /* ... and at most this part of the budget */

struct built {
	struct node_cache *c;
	const struct built_maker *m;
	const atomic_bool *cancel;
	char hex[HASH_HEX_CAP];
	char name[NAME_LEN + 1]; /* below built/ */
	int lease;
	struct lease_text text;
	const char *filling; /* where its maker fills it, below filling_at; NULL: in `dir` */
	int filling_at;
};

static void path_of(const char *folder, const char *hex, const char *end, char out[PATH_CAP])
{
	fmt_fixed(out, PATH_CAP, "%s/%s%s", folder, hex, end);
}

/* The name below built/ that a folder's link leads to; false: it is no built tree. */
static bool name_of(struct node_cache *c, const char *folder, char out[NAME_LEN + 1])
{
	static const char top[] = "../../built/";
	char link[PATH_CAP], target[PATH_CAP];
	ssize_t n;

	FMT(link, "%s/tree", folder);
	n = readlinkat(c->fd, link, target, sizeof(target));
	if (n != (ssize_t)(sizeof(top) - 1 + NAME_LEN) || memcmp(target, top, sizeof(top) - 1) != 0)
		return false;
	fmt_fixed(out, NAME_LEN + 1, "%.*s", NAME_LEN, target + sizeof(top) - 1);
	return strchr(out, '/') == NULL && out[0] != '.';
}

bool tree_is_built(struct node_cache *c, const char *folder)
{
	char name[NAME_LEN + 1];

	return name_of(c, folder, name);
}

int tree_remove_folder(struct node_cache *c, const char *folder, struct err *err)
{
	char name[NAME_LEN + 1], path[PATH_CAP];

	if (name_of(c, folder, name)) {
		FMT(path, "built/%s", name);
		if (fs_remove_tree(c->fd, path, err) < 0)
			return -1;
	}
	return fs_remove_tree(c->fd, folder, err);
}

/* ---- left by killed makers --------------------------------------------------------------- */

struct sweep {
	unsigned magic;
#define SWEEP_MAGIC 0x53535745U
	struct node_cache *c;
	const char *hex; /* NULL: of all keys */
};

struct owner {
	unsigned magic;
#define OWNER_MAGIC 0x534f574eU
	struct node_cache *c;
	const char *name; /* below built/ */
	bool found;
};

static int look_aside(void *arg, int dirfd UNUSED, const char *folder, struct err *err UNUSED)
{
	struct owner *o = FROM_VOID(struct owner, arg, OWNER_MAGIC);
	char path[PATH_CAP], name[NAME_LEN + 1];

	if (strlen(folder) > NAME_LEN)
		return 0; /* a lease */
	FMT(path, TREE_DAMAGED "/%s", folder);
	o->found = o->found || (name_of(o->c, path, name) && strcmp(name, o->name) == 0);
	return 0;
}

/* Does a folder lead to it, so that somebody may be given it, makes it or holds it? */
static bool is_owned(struct node_cache *c, const char *hex, const char *name)
{
	static const char *const folders[] = {"trees", "tmp"};
	struct owner o = {.magic = OWNER_MAGIC, .c = c, .name = name};
	char path[PATH_CAP], other[NAME_LEN + 1];
	struct err err = {0};
	int fd;

	for (size_t i = 0; i < COUNT(folders); i++) {
		path_of(folders[i], hex, "", path);
		if (name_of(c, path, other) && strcmp(other, name) == 0)
			return true;
	}
	fd = fs_open_beneath(c->fd, TREE_DAMAGED, O_RDONLY | O_DIRECTORY, 0, &err);
	if (fd < 0 || fs_each_name(fd, TREE_DAMAGED, look_aside, &o, &err) < 0)
		return true; /* not known: it stays */
	return o.found;
}

static int sweep_one(void *arg, int dirfd UNUSED, const char *name, struct err *err)
{
	struct sweep *s = FROM_VOID(struct sweep, arg, SWEEP_MAGIC);
	char hex[HASH_HEX_CAP], path[PATH_CAP];
	struct err ignored = {0};
	AUTO_FD int lease = -1;

	if (strlen(name) != NAME_LEN || (s->hex != NULL && strncmp(name, s->hex, 64) != 0))
		return 0;
	FMT(hex, "%.64s", name);
	if (is_owned(s->c, hex, name))
		return 0;
	if (s->hex == NULL) {
		lease = lease_try(s->c->fd, hex, LOCK_EX, &ignored);
		if (lease < 0)
			return 0; /* it is being made, or used */
		if (is_owned(s->c, hex, name))
			return 0;
	}
	FMT(path, "built/%s", name);
	if (fs_remove_tree(s->c->fd, path, err) < 0)
		return -1;
	if (lease >= 0 && !tree_exists(s->c, "trees", hex)) {
		FMT(path, "leases/%s.lease", hex);
		(void)unlinkat(s->c->fd, path, 0);
	}
	return 0;
}

static int sweep(struct node_cache *c, const char *hex, struct err *err)
{
	struct sweep s = {SWEEP_MAGIC, c, hex};
	AUTO_FD int fd = fs_open_beneath(c->fd, TREE_BUILT, O_RDONLY | O_DIRECTORY, 0, err);

	return fd < 0 ? -1 : fs_each_name(TAKE_FD(fd), TREE_BUILT, sweep_one, &s, err);
}

static int sweep_note(void *arg, int dirfd, const char *name, struct err *err UNUSED)
{
	const int64_t *old_s = arg;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_mtim.tv_sec < clock_wall_ms() / 1000 - *old_s)
		(void)unlinkat(dirfd, name, 0);
	return 0;
}

static int sweep_notes(struct node_cache *c, const char *folder, int64_t old_s, struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(c->fd, folder, O_RDONLY | O_DIRECTORY, 0, err);

	return fd < 0 ? -1 : fs_each_name(TAKE_FD(fd), folder, sweep_note, &old_s, err);
}

int tree_sweep_built(struct node_cache *c, struct err *err)
{
	if (sweep_notes(c, TREE_FAILED, FAILED_OLD_S, err) < 0 ||
	    sweep_notes(c, TREE_SIZES, SIZE_OLD_S, err) < 0)
		return -1;
	return sweep(c, NULL, err);
}

/* ---- failures that those who waited share ------------------------------------------------ */

static void tell_failed(struct built *b, const struct err *why)
{
	AUTO_BUF struct buf body = BUF_INIT(FAILED_MAX);
	char path[PATH_CAP];
	struct err ignored = {0};

	if (why->code == ERR_CANCELED)
		return;
	path_of(TREE_FAILED, b->hex, "", path);
	buf_printf(&body, "%" PRId64 "\n%d\n%s\n%s", clock_wall_ms(), err_info(why)->http,
	           err_id(why), why->msg);
	if (fs_write_atomic(b->c->fd, path, buf_view(&body), 0600, &ignored) < 0)
		err_clear(&ignored); /* who waits tries by himself then */
}

/* Did it fail since? Then *err says why, and -1. */
static int failed_since(struct built *b, int64_t since_ms, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(FAILED_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct str rest, when, status, id;
	char path[PATH_CAP];
	struct err no = {0};
	enum err_code code;
	int64_t at = 0;
	uint64_t http = 0;

	path_of(TREE_FAILED, b->hex, "", path);
	if (fs_read_strange(b->c->fd, path, &body, &no) < 0)
		return 0;
	rest = buf_view(&body);
	if (!str_cut(&rest, '\n', &when) || !str_cut(&rest, '\n', &status) ||
	    !str_cut(&rest, '\n', &id) || str_i64(when, 0, INT64_MAX, &at, &no) < 0 ||
	    str_u64(status, 0, 999, &http, &no) < 0 || at < since_ms)
		return 0;
	code = err_of_id(arena_strz(a, id));
	return code != ERR_NONE ? err_set(err, code, "%s", arena_strz(a, rest))
	                        : wire_told_error((int)http, NULL, arena_strz(a, rest), err);
}

/* ---- making ------------------------------------------------------------------------------ */

static int measure(struct built *b, struct usage_total *total, struct err *err)
{
	AUTO_FREE char *dir = xasprintf("%s/built/%s", b->c->dir, b->name);
	AUTO_FD int root = -1;

	if (b->filling != NULL) {
		root = fs_open_beneath(b->filling_at, b->filling,
		                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
		return root < 0 ? -1
		                : usage_walk_at(TAKE_FD(root), b->filling, 1, NULL, NULL, b->cancel,
		                                total, err);
	}
	return usage_walk(dir, 1, NULL, NULL, b->cancel, total, err);
}

/* For the next time that it is made. */
static void keep_size(struct built *b, uint64_t bytes)
{
	AUTO_BUF struct buf body = BUF_INIT(SIZE_MAX_TEXT);
	char path[PATH_CAP];
	struct err ignored = {0};

	path_of(TREE_SIZES, b->hex, "", path);
	buf_printf(&body, "%" PRIu64, bytes);
	if (fs_write_atomic(b->c->fd, path, buf_view(&body), 0600, &ignored) < 0)
		err_clear(&ignored); /* then it is found out again */
}

static uint64_t known_size(struct built *b)
{
	AUTO_BUF struct buf body = BUF_INIT(SIZE_MAX_TEXT);
	char path[PATH_CAP];
	struct err no = {0};
	uint64_t bytes = 0;

	path_of(TREE_SIZES, b->hex, "", path);
	if (fs_read_strange(b->c->fd, path, &body, &no) < 0 ||
	    str_u64(buf_view(&body), 1, UINT64_MAX, &bytes, &no) < 0)
		return 0;
	return bytes;
}

/* Room for all of it, if that is known: nothing is made that would have to go again. */
static int reserve_first(struct built *b, struct err *err)
{
	b->text.bytes = known_size(b);
	return b->text.bytes == 0 ? built_grow(b, err)
	                          : tree_reserve(b->c, b->hex, b->lease, &b->text, err);
}

int built_grow(struct built *b, struct err *err)
{
	uint64_t ahead = MIN(AHEAD_MAX, b->c->budget / AHEAD_PART);
	struct usage_total total = {0};
	struct err full = {0};
	int rc;

	if (measure(b, &total, err) < 0)
		return -1;
	if (total.bytes + ahead / 2 <= b->text.bytes)
		return 0; /* what is counted is enough for a while */
	b->text.bytes = total.bytes + ahead;
	b->text.files = total.files;
	rc = tree_reserve(b->c, b->hex, b->lease, &b->text, &full);
	if (rc == 0)
		return 0;
	if (full.code != ERR_NO_SPACE) {
		*err = full;
		return -1;
	}
	b->text.bytes = total.bytes; /* without what is yet to come */
	if (tree_reserve(b->c, b->hex, b->lease, &b->text, err) == 0)
		return 0;
	if (err->id == ERR_NODE_CACHE_FULL)
		keep_size(b, MIN(total.bytes + ahead, b->c->budget));
	return -1;
}

void built_fill_at(struct built *b, int dirfd, const char *name)
{
	b->filling = name;
	b->filling_at = dirfd;
}

void built_say(struct built *b, const char *words)
{
	char path[PATH_CAP], quarantine[PATH_CAP];
	AUTO_FD int fd = -1;
	size_t n = MIN(strlen(words), (size_t)BUILT_SAID_MAX);

	path_of("tmp", b->hex, "/said", path);
	path_of("tmp", b->hex, "/said.new", quarantine);
	fd = openat(b->c->fd, quarantine, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
	            0600);
	/* words for people: without them they wait as well */
	if (fd >= 0 && write(fd, words, n) == (ssize_t)n)
		(void)renameat(b->c->fd, quarantine, b->c->fd, path);
}

static void read_said(struct built *b, char out[BUILT_SAID_MAX + 1])
{
	AUTO_BUF struct buf body = BUF_INIT(BUILT_SAID_MAX);
	char path[PATH_CAP];
	struct err no = {0};

	path_of("tmp", b->hex, "/said", path);
	if (fs_read_strange(b->c->fd, path, &body, &no) < 0)
		buf_clear(&body);
	fmt_fixed(out, BUILT_SAID_MAX + 1, "%.*s", (int)body.n, body.n > 0 ? body.p : "");
}

/* built/<key>-<id> first: what tmp/<key> leads to is there. */
static int begin(struct built *b, struct err *err)
{
	char path[PATH_CAP], target[PATH_CAP], id[ID_LEN + 1];

	path_of("tmp", b->hex, "", path);
	if (tree_remove_folder(b->c, path, err) < 0 || sweep(b->c, b->hex, err) < 0)
		return -1;
	seal_id(id, ID_LEN);
	FMT(b->name, "%s-%s", b->hex, id);
	FMT(target, "built/%s", b->name);
	if (mkdirat(b->c->fd, target, 0755) < 0 || mkdirat(b->c->fd, path, 0755) < 0)
		return err_errno(err, errno, "%s/%s", b->c->dir, target);
	FMT(target, "../../built/%s", b->name);
	path_of("tmp", b->hex, "/tree", path);
	if (symlinkat(target, b->c->fd, path) < 0)
		return err_errno(err, errno, "%s/%s", b->c->dir, path);
	return 0;
}

/* Everything of the tree is on disk before its list is, and the list before its name. */
static int publish(struct built *b, struct err *err)
{
	AUTO_BUF struct buf list = BUF_INIT(BUILT_LIST_MAX);
	char path[PATH_CAP], to[PATH_CAP];
	struct built_sum sum = {0};
	AUTO_FD int root = -1;

	FMT(path, "built/%s", b->name);
	root = fs_open_beneath(b->c->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
	if (root < 0 || built_list_make(root, b->cancel, &list, &sum, err) < 0)
		return -1;
	b->text = (struct lease_text){.bytes = sum.bytes, .files = sum.files, .uses = 1};
	keep_size(b, sum.bytes);
	if (tree_reserve(b->c, b->hex, b->lease, &b->text, err) < 0)
		return -1;
	if (syncfs(root) < 0)
		return err_errno(err, errno, "sync %s", path);
	path_of("tmp", b->hex, "/said", path);
	(void)unlinkat(b->c->fd, path, 0);
	path_of("tmp", b->hex, "/list", path);
	if (fs_write_atomic(b->c->fd, path, buf_view(&list), 0444, err) < 0)
		return -1;
	path_of("tmp", b->hex, "", path);
	path_of("trees", b->hex, "", to);
	return fs_rename(b->c->fd, path, b->c->fd, to, err);
}

/* 1: somebody else was faster. With the lease held exclusively. */
static int make_once(struct built *b, struct err *err)
{
	AUTO_FREE char *dir = NULL;
	struct err later = {0};
	char path[PATH_CAP];
	int rc;

	if (tree_exists(b->c, "trees", b->hex))
		return 1;
	b->text = (struct lease_text){.uses = 1};
	rc = begin(b, err);
	if (rc == 0)
		rc = reserve_first(b, err);
	dir = xasprintf("%s/built/%s", b->c->dir, b->name);
	if (rc == 0)
		rc = b->m->make(b->m->arg, b, dir, err);
	if (rc == 0 && b->filling != NULL && renameat(b->filling_at, b->filling, AT_FDCWD, dir) < 0)
		rc = err_errno(err, errno, "move what was made to %s", dir);
	if (rc == 0)
		rc = publish(b, err);
	path_of(TREE_FAILED, b->hex, "", path);
	(void)unlinkat(b->c->fd, path, 0);
	if (rc == 0)
		return 0;
	tell_failed(b, err); /* before the lease goes: who waits reads it then */
	if (tree_remove(b->c, b->hex, &later) < 0)
		err_clear(&later); /* the next one who looks for room does it */
	return -1;
}

/* ---- the lease --------------------------------------------------------------------------- */

/* Waits for the lease. *waited: somebody had it. To make it (LOCK_EX) only while nobody has made
 * it: whoever uses it holds the lease for as long as a job runs. It is there then: 1. */
static int take_lease(struct built *b, int how, bool *waited, int *lease, struct err *err)
{
	int64_t until = clock_mono_ms() + LEASE_WAIT_MS;
	char words[BUILT_SAID_MAX + 1];

	for (;;) {
		*lease = lease_try(b->c->fd, b->hex, how, err);
		if (*lease >= 0)
			return 0;
		if (err->code != ERR_BUSY || clock_mono_ms() > until)
			return -1;
		err_clear(err);
		*waited = true;
		if (how == LOCK_EX && tree_exists(b->c, "trees", b->hex))
			return 1;
		if (b->cancel != NULL && atomic_load(b->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		read_said(b, words);
		if (b->m->wait != NULL)
			b->m->wait(b->m->arg, words);
		clock_sleep_ms(WAIT_STEP_MS);
	}
}

static int read_list(struct node_cache *c, const char *hex, struct buf *list, int *root,
                     struct err *err)
{
	char path[PATH_CAP], name[NAME_LEN + 1];

	path_of("trees", hex, "", path);
	if (!name_of(c, path, name))
		return err_set(err, ERR_CORRUPT, "%s/%s is not a built tree", c->dir, path);
	path_of("trees", hex, "/list", path);
	if (fs_read_strange(c->fd, path, list, err) < 0) {
		if (err->code == ERR_INVALID)
			err_become(err, ERR_CORRUPT);
		return -1;
	}
	FMT(path, "built/%s", name);
	*root = fs_open_beneath(c->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
	return *root < 0 ? -1 : 0;
}

/* With a shared lock on the lease. 1: it is damaged, and aside. */
static int hand_out(struct built *b, int lease, bool hit, struct node_lease *out, struct err *err)
{
	AUTO_BUF struct buf list = BUF_INIT(BUILT_LIST_MAX);
	struct lease_text text = lease_read(lease);
	struct built_sum sum = {0};
	char path[PATH_CAP], name[NAME_LEN + 1];
	AUTO_FD int root = -1;

	path_of("trees", b->hex, "", path);
	if (read_list(b->c, b->hex, &list, &root, err) < 0 ||
	    built_list_read(buf_view(&list), &sum, err) < 0 ||
	    built_list_look(root, buf_view(&list), err) < 0)
		return err->code == ERR_CORRUPT || err->code == ERR_NOT_FOUND ? 1 : -1;
	if (hit) {
		text.uses++;
		if (lease_write(lease, &text, err) < 0)
			return -1;
	}
	if (!name_of(b->c, path, name))
		return 1;
	*out = (struct node_lease){.fd = lease, .hit = hit, .bytes = sum.bytes, .files = sum.files};
	FMT(out->path, "%s/built/%s", b->c->dir, name);
	return 0;
}

static int quarantine_blob(struct built *b, const struct digest *key, const struct err *why,
                           struct err *err)
{
	bool held = false;

	if (b->m->damaged != NULL)
		b->m->damaged(b->m->arg, why->msg);
	if (node_cache_quarantine(b->c, key, &held, err) == 0)
		return 0;
	if (err->code != ERR_BUSY)
		return -1;
	err_clear(err); /* somebody else was faster, and makes it */
	return 0;
}

int node_cache_built(struct node_cache *c, const struct digest *key, const struct built_maker *m,
                     const atomic_bool *cancel, struct node_lease *out, struct err *err)
{
	struct built b = {.c = c, .m = m, .cancel = cancel, .lease = -1};
	int64_t since_ms = clock_wall_ms();
	bool made = false;

	digest_hex(key, b.hex);
	for (int i = 0; i < RACES_MAX; i++) {
		bool waited = false;
		AUTO_FD int lease = -1;
		struct err why = {0};
		int rc;

		if (take_lease(&b, LOCK_SH, &waited, &lease, err) < 0)
			return -1;
		if (tree_exists(c, "trees", b.hex)) {
			rc = hand_out(&b, lease, !made, out, &why);
			if (rc == 0)
				lease = -1; /* the caller's */
			if (rc <= 0) {
				*err = why;
				return rc;
			}
			(void)close(TAKE_FD(lease));
			if (quarantine_blob(&b, key, &why, err) < 0)
				return -1;
			continue;
		}
		/* flock cannot trade a lock for another in one step: let go, take, look again */
		(void)close(TAKE_FD(lease));
		rc = take_lease(&b, LOCK_EX, &waited, &lease, err);
		if (rc > 0)
			continue;
		if (rc < 0 || (waited && failed_since(&b, since_ms, err) < 0))
			return -1;
		b.lease = lease;
		rc = make_once(&b, err);
		if (rc < 0)
			return -1;
		made = made || rc == 0;
	}
	return err_set(err, ERR_BUSY,
	               "it is evicted as fast as it is built: the node cache is too small for the "
	               "running jobs");
}

/* ---- what the rest of the node cache asks ------------------------------------------------ */

int tree_built_sum(struct node_cache *c, const char *hex, uint64_t *bytes, struct err *err)
{
	AUTO_BUF struct buf list = BUF_INIT(BUILT_LIST_MAX);
	struct built_sum sum = {0};
	AUTO_FD int root = -1;

	if (read_list(c, hex, &list, &root, err) < 0 ||
	    built_list_read(buf_view(&list), &sum, err) < 0)
		return -1;
	*bytes = sum.bytes;
	return 0;
}

int tree_verify_built(struct node_cache *c, const char *hex, bool deep,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err)
{
	AUTO_BUF struct buf list = BUF_INIT(BUILT_LIST_MAX);
	AUTO_FD int root = -1;

	if (read_list(c, hex, &list, &root, err) < 0)
		return -1;
	return deep ? built_list_verify(root, buf_view(&list), step, arg, err)
	            : built_list_look(root, buf_view(&list), err);
}
