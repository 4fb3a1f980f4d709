/*
 * tree.c - see tree.h. Everything is on disk, so that any number of runners share one cache: a
 * lease file's lock says who uses or makes a tree, its text how large the tree is and how often it
 * was asked for, its mtime when last. The file `lock` is held while room is reserved, never while a
 * tree is made. Order: a tree's lease, then `lock`; whoever evicts only tries other leases.
 */
#include "store/blobs/tree_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "core/lru.h"
#include "store/blobs/blob_objects.h"

#include <sys/file.h>
#include <sys/mount.h>

#define TREE_PATH_CAP 256 /* "leases/<64>.lease" and kin, with room for a file's folder marks */
#define TREE_WAIT_STEP_MS 20
#define TREE_LOCK_MS (120 * 1000) /* `lock` is held for one pass over the leases */
#define TREE_LEASES_MAX 100000
#define TREE_RACES_MAX 1000 /* lost to an evictor between two locks */

static void path_of(const char *folder, const char *hex, const char *end, char out[TREE_PATH_CAP])
{
	fmt_fixed(out, TREE_PATH_CAP, "%s/%s%s", folder, hex, end);
}

bool tree_exists(struct node_cache *c, const char *folder, const char *hex)
{
	char path[TREE_PATH_CAP];
	struct stat st;

	path_of(folder, hex, "", path);
	return fstatat(c->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* ---- open, remove ------------------------------------------------------------------------ */

/* The name goes first: what is half removed is not found. */
int tree_remove(struct node_cache *c, const char *hex, struct err *err)
{
	char tree[TREE_PATH_CAP], quarantine[TREE_PATH_CAP], lease[TREE_PATH_CAP];

	path_of("trees", hex, "", tree);
	path_of("tmp", hex, "", quarantine);
	path_of("leases", hex, ".lease", lease);
	if (tree_remove_folder(c, quarantine, err) < 0) /* what a killed maker left */
		return -1;
	if (tree_exists(c, "trees", hex)) {
		/* moving a folder rewrites its "..": it has to be writable */
		if (fchmodat(c->fd, tree, 0755, 0) < 0 ||
		    renameat(c->fd, tree, c->fd, quarantine) < 0)
			return err_errno(err, errno, "%s/%s", c->dir, tree);
		if (tree_remove_folder(c, quarantine, err) < 0)
			return -1;
	}
	if (unlinkat(c->fd, lease, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "%s/%s", c->dir, lease);
	return 0;
}

struct each {
	unsigned magic;
#define EACH_MAGIC 0x53454143U
	const char *end;
	int (*fn)(void *arg, const char *hex, struct err *err);
	void *arg;
};

static int each_digest(void *arg, int dirfd UNUSED, const char *file, struct err *err)
{
	const struct each *each = FROM_VOID(struct each, arg, EACH_MAGIC);
	struct str name = str_of(file);
	char hex[HASH_HEX_CAP];
	struct digest ignored;
	struct err bad = {0};

	if (name.n != 64 + strlen(each->end) || !str_ends(name, each->end))
		return 0;
	FMT(hex, "%.64s", file);
	return digest_parse(str_n(hex, 64), &ignored, &bad) == 0 ? each->fn(each->arg, hex, err)
	                                                         : 0;
}

int tree_each(struct node_cache *c, const char *folder, const char *end,
              int (*fn)(void *arg, const char *hex, struct err *err), void *arg, struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(c->fd, folder, O_RDONLY | O_DIRECTORY, 0, err);
	struct each each = {EACH_MAGIC, end, fn, arg};

	if (fd < 0)
		return err_wrap(err, "node cache %s", c->dir);
	return fs_each_name(TAKE_FD(fd), folder, each_digest, &each, err);
}

static int sweep_one(void *arg, const char *hex, struct err *err)
{
	struct node_cache *c = FROM_VOID(struct node_cache, arg, NODE_CACHE_MAGIC);
	char path[TREE_PATH_CAP];
	AUTO_FD int lease = lease_try(c->fd, hex, LOCK_EX, err);

	if (lease < 0) { /* being made right now */
		err_clear(err);
		return 0;
	}
	path_of("tmp", hex, "", path);
	return tree_remove_folder(c, path, err);
}

/* As a mount of its own, in which no path goes through a link. What it was where we may not mount,
 * or the kernel does not know how. */
static int without_links(int fd)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};
	AUTO_FD int own = open_tree(
		fd, "", AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (own < 0 ||
	    mount_setattr(own, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0) {
		if (geteuid() == 0)
			log_warn("node cache: links in it are followed: %s", strerror(errno));
		return fd;
	}
	(void)close(fd);
	return TAKE_FD(own);
}

/* What is something else makes way. */
static int make_way(struct node_cache *c, const char *name, mode_t type, struct err *err)
{
	struct stat st;

	if (fstatat(c->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & S_IFMT) == type)
		return 0;
	log_warn("node cache: removing %s/%s, which is not what it should be", c->dir, name);
	return fs_remove_tree(c->fd, name, err);
}

int node_cache_making(const char *dir, const char *name, struct err *err)
{
	AUTO_FREE char *folder = xasprintf("%s/" NODE_CACHE_MAKING, dir);
	AUTO_FD int top = -1, fd = -1;

	if (fs_mkdirs(AT_FDCWD, folder, 0755, err) < 0)
		return -1;
	top = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0 || (mkdirat(top, name, 0755) < 0 && errno != EEXIST))
		return err_errno(err, errno, "%s/%s", folder, name);
	fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_errno(err, errno, "%s/%s", folder, name) : TAKE_FD(fd);
}

struct making {
	unsigned magic;
#define MAKING_MAGIC 0x534d4149U
	bool (*is_over)(void *arg, const char *name);
	void *arg;
};

static int sweep_making(void *arg, int dirfd, const char *name, struct err *err)
{
	const struct making *m = FROM_VOID(struct making, arg, MAKING_MAGIC);

	return m->is_over(m->arg, name) ? fs_remove_tree(dirfd, name, err) : 0;
}

int node_cache_sweep_making(struct node_cache *c, bool (*is_over)(void *arg, const char *name),
                            void *arg, struct err *err)
{
	struct making m = {MAKING_MAGIC, is_over, arg};
	AUTO_FD int fd = fs_open_beneath(c->fd, NODE_CACHE_MAKING, O_RDONLY | O_DIRECTORY, 0, err);

	return fd < 0 ? -1 : fs_each_name(TAKE_FD(fd), NODE_CACHE_MAKING, sweep_making, &m, err);
}

static int sweep_all(struct node_cache *c, struct err *err)
{
	return tree_each(c, "tmp", "", sweep_one, c, err) < 0 ||
	                       tree_sweep_quarantine(c, err) < 0 || tree_sweep_built(c, err) < 0
	               ? -1
	               : 0;
}

/* What fails is only said: somebody may go on writing who was thought dead, and the next look finds
 * it. */
static void sweep_at_open(struct node_cache *c, bool links)
{
	struct err said = {0};

	if ((!links && make_way(c, "lock", S_IFREG, &said) < 0) || sweep_all(c, &said) < 0)
		log_warn("node cache: %s", said.msg);
}

/* Not to be listed by others: a runner that gave up root is given trees of its own job, and finds
 * no other by looking around (run/confine.h). */
static int unlist(struct node_cache *c, const char *name, struct err *err)
{
	static const char *const names[] = {NODE_CACHE_TREES, NODE_CACHE_BUILT};
	const mode_t mode = 0711;
	bool is_one = false;
	struct stat st;

	for (size_t i = 0; i < COUNT(names); i++)
		is_one = is_one || strcmp(name, names[i]) == 0;
	if (!is_one)
		return 0;
	if (fstatat(c->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    ((st.st_mode & 07777) != mode && fchmodat(c->fd, name, mode, 0) < 0))
		return err_errno(err, errno, "%s/%s", c->dir, name);
	return 0;
}

static int open_cache(struct node_cache **out, const char *dir, uint64_t budget_bytes, bool links,
                      struct err *err)
{
	static const char *const folders[] = {NODE_CACHE_TREES, "leases",    "tmp",
	                                      NODE_CACHE_BUILT, TREE_FAILED, TREE_SIZES,
	                                      TREE_DAMAGED,     TREE_BLOBS,  NODE_CACHE_MAKING};
	struct node_cache *c = NULL;
	int fd;

	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0)
		return err_wrap(err, "node cache %s", dir);
	fd = fs_open_dir(dir, err);
	if (fd < 0)
		return err_wrap(err, "node cache %s", dir);
	c = xcalloc(1, sizeof(*c));
	c->magic = NODE_CACHE_MAGIC;
	c->dir = xstrdup(dir);
	c->fd = links ? fd : without_links(fd);
	c->budget = budget_bytes;
	for (size_t i = 0; i < COUNT(folders); i++) {
		if ((!links && make_way(c, folders[i], S_IFDIR, err) < 0) ||
		    fs_mkdirs(c->fd, folders[i], 0755, err) < 0 || unlist(c, folders[i], err) < 0) {
			node_cache_close(c);
			return err_wrap(err, "node cache %s", dir);
		}
	}
	if (strlen(dir) + TREE_PATH_CAP > FS_PATH_MAX) {
		node_cache_close(c);
		return err_set(err, ERR_INVALID, "the node cache's path is too long: %s", dir);
	}
	sweep_at_open(c, links);
	*out = c;
	return 0;
}

int node_cache_open(struct node_cache **out, const char *dir, uint64_t budget_bytes,
                    struct err *err)
{
	return open_cache(out, dir, budget_bytes, true, err);
}

int node_cache_open_strange(struct node_cache **out, const char *dir, uint64_t budget_bytes,
                            struct err *err)
{
	return open_cache(out, dir, budget_bytes, false, err);
}

void node_cache_close(struct node_cache *c)
{
	if (c == NULL)
		return;
	(void)close(c->fd);
	free(c->dir);
	free(c);
}

/* ---- room -------------------------------------------------------------------------------- */

struct held { /* a lease as the one who looks for room sees it */
	char hex[HASH_HEX_CAP];
	struct lease_text text;
	int64_t used_ms;
	int fd; /* >= 0: ours, exclusively, until the pass ends */
};

struct room {
	unsigned magic;
#define ROOM_MAGIC 0x53524f4fU
	struct node_cache *c;
	const char *mine; /* the tree that room is wanted for */
	struct held *held;
	size_t n, cap;
	uint64_t leased;
	struct map *by_hex;
	struct lru *lru;
	struct err *err;
	bool failed;
	bool removed; /* a tree, or what its maker left: there may be blobs that none has any more
	               */
};

static int note_lease(void *arg, const char *hex, struct err *err)
{
	struct room *r = FROM_VOID(struct room, arg, ROOM_MAGIC);
	char path[TREE_PATH_CAP];
	AUTO_FD int fd = -1;
	struct held h = {.fd = -1};
	struct stat st;

	if (r->mine != NULL && strcmp(hex, r->mine) == 0)
		return 0;
	if (r->n >= TREE_LEASES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d leases in %s", TREE_LEASES_MAX,
		               r->c->dir);
	path_of("leases", hex, ".lease", path);
	fd = openat(r->c->fd, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return 0; /* evicted meanwhile */
	FMT(h.hex, "%s", hex);
	h.text = lease_read(fd);
	h.used_ms = st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		if (!lease_is_named(r->c->fd, fd, h.hex))
			return 0; /* made anew by one who has yet to ask for room */
		if (!tree_exists(r->c, "trees", hex)) { /* a maker was killed */
			struct err left = {0};

			r->removed = true;
			if (tree_remove(r->c, hex, &left) == 0)
				return 0;
			log_warn("node cache: %s", left.msg); /* it counts until it can be */
		}
		(void)flock(fd, LOCK_UN);
	} else {
		r->leased++;
	}
	if (r->n == r->cap) {
		r->cap = r->cap == 0 ? 64 : r->cap * 2;
		r->held = xrealloc(r->held, r->cap * sizeof(*r->held));
	}
	r->held[r->n++] = h;
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return x->used_ms < y->used_ms ? -1 : x->used_ms > y->used_ms;
}

static bool pinned(struct str key, void *arg)
{
	struct room *r = FROM_VOID(struct room, arg, ROOM_MAGIC);
	struct held *h = map_get(r->by_hex, key);
	struct err busy = {0};

	assert(h != NULL);
	if (h->fd < 0)
		h->fd = lease_try(r->c->fd, h->hex, LOCK_EX, &busy);
	return h->fd < 0;
}

static void victim(struct str key, uint64_t bytes UNUSED, void *arg)
{
	struct room *r = FROM_VOID(struct room, arg, ROOM_MAGIC);
	struct held *h = map_get(r->by_hex, key);

	assert(h != NULL && h->fd >= 0);
	if (r->failed)
		return;
	r->removed = true;
	if (tree_remove(r->c, h->hex, r->err) < 0)
		r->failed = true;
	else
		lru_remove(r->lru, str_of(h->hex));
}

static int room_lock(struct node_cache *c, struct err *err)
{
	AUTO_FD int fd = openat(c->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	int64_t until = clock_mono_ms() + TREE_LOCK_MS;

	if (fd < 0)
		return err_errno(err, errno, "%s/lock", c->dir);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_errno(err, errno, "lock %s/lock", c->dir);
		if (clock_mono_ms() > until)
			return err_set(err, ERR_BUSY, "%s/lock has been held for %d s", c->dir,
			               TREE_LOCK_MS / 1000);
		clock_sleep_ms(TREE_WAIT_STEP_MS);
	}
	return TAKE_FD(fd);
}

static int make_room(struct room *r, uint64_t need, struct err *err)
{
	uint64_t budget = r->c->budget;
	char needs[UNITS_CAP], used[UNITS_CAP], has[UNITS_CAP];

	if (r->n > 1)
		qsort(r->held, r->n, sizeof(*r->held), by_use);
	for (size_t i = 0; i < r->n; i++) {
		struct held *h = &r->held[i];

		(void)map_set(r->by_hex, str_of(h->hex), h);
		lru_add(r->lru, str_of(h->hex), h->text.bytes, h->used_ms);
		if (h->text.uses > 1) /* used again: past probation */
			lru_touch(r->lru, str_of(h->hex), h->used_ms);
	}
	if (lru_bytes(r->lru) + need > budget)
		(void)lru_victims(r->lru, need, INT64_MAX, pinned, victim, r);
	if (r->failed)
		return -1;
	if (lru_bytes(r->lru) + need > budget)
		return err_set(err, ERR_NODE_CACHE_FULL,
		               "%s are needed, and running jobs use %s of the %s that the node "
		               "cache may hold. Wait for them, or give it a larger budget "
		               "(--node-cache-bytes)",
		               units_show_bytes(need, needs),
		               units_show_bytes(lru_bytes(r->lru), used),
		               units_show_bytes(budget, has));
	return 0;
}

int tree_reserve(struct node_cache *c, const char *hex, int lease, const struct lease_text *text,
                 struct err *err)
{
	AUTO_FD int lock = -1;
	struct room r = {.magic = ROOM_MAGIC, .c = c, .mine = hex, .err = err};
	char needs[UNITS_CAP], has[UNITS_CAP];
	int rc;

	if (text->bytes > c->budget)
		return err_set(err, ERR_NO_SPACE,
		               "%s are needed, and the whole node cache may hold %s: give it a "
		               "larger budget (--node-cache-bytes)",
		               units_show_bytes(text->bytes, needs),
		               units_show_bytes(c->budget, has));
	lock = room_lock(c, err);
	if (lock < 0)
		return -1;
	r.by_hex = map_new();
	r.lru = lru_new(c->budget);
	rc = tree_each(c, "leases", ".lease", note_lease, &r, err);
	if (rc == 0)
		rc = make_room(&r, text->bytes, err);
	if (rc == 0 && r.removed)
		rc = tree_sweep_blobs(c, false, err);
	if (rc == 0)
		rc = lease_write(lease, text, err);
	for (size_t i = 0; i < r.n; i++)
		if (r.held[i].fd >= 0)
			(void)close(r.held[i].fd);
	free(r.held);
	lru_free(r.lru);
	map_free(r.by_hex);
	return rc;
}

/* ---- the calls --------------------------------------------------------------------------- */

/* With a shared lock on the lease of a tree that is there. */
static int hand_out(struct node_cache *c, const char *hex, int lease, bool hit,
                    struct node_lease *out, struct err *err)
{
	struct lease_text text = lease_read(lease);

	if (hit) {
		text.uses++;
		if (lease_write(lease, &text, err) < 0)
			return -1;
	}
	*out = (struct node_lease){.hit = hit, .bytes = text.bytes, .files = text.files};
	FMT(out->path, "%s/trees/%s", c->dir, hex);
	out->fd = lease;
	return 0;
}

/* The folder's, else the object store's: a damaged one hides no good one, and nor does one who is
 * away. */
int tree_manifest(const struct tree_from *from, struct arena *a, const struct digest *name,
                  struct manifest *list, struct err *err)
{
	struct objstore *const in[] = {from->mirror == from->objects ? NULL : from->mirror,
	                               from->objects};
	struct err first = {0};
	bool found = false, damaged = false;

	if (from->blobs != NULL) {
		found = blobs_get_manifest(from->blobs, a, name, list, err) == 0;
		if (!found && err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
			return -1;
	}
	for (size_t i = 0; i < COUNT(in) && !found; i++) {
		if (in[i] == NULL)
			continue;
		if (err->code == ERR_CORRUPT) {
			damaged = true;
			first = *err;
		}
		err_clear(err);
		found = blob_objects_manifest(in[i], a, name, list, err) == 0;
	}
	if (found && damaged)
		log_warn("%s: the one in the object store is used", first.msg);
	if (!found && damaged && err->code == ERR_NOT_FOUND)
		*err = first; /* it is damaged, not deleted */
	return found ? 0 : -1;
}

/* To make it. 1: somebody else has. Whoever uses it holds its lease for as long as a job runs: that
 * is not waited for. */
static int wait_to_make(struct node_cache *c, const char *hex, const atomic_bool *cancel,
                        int *lease, struct err *err)
{
	int64_t until = clock_mono_ms() + LEASE_WAIT_MS;

	for (;;) {
		*lease = lease_try(c->fd, hex, LOCK_EX, err);
		if (*lease < 0 && (err->code != ERR_BUSY || clock_mono_ms() > until))
			return -1;
		err_clear(err);
		if (tree_exists(c, "trees", hex))
			return 1;
		if (*lease >= 0)
			return 0;
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		clock_sleep_ms(TREE_WAIT_STEP_MS);
	}
}

/* 1: somebody else was faster. */
static int make_once(struct node_cache *c, const char *hex, const struct digest *manifest,
                     struct tree_want *want, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int lease = -1;
	struct manifest list;
	int rc = wait_to_make(c, hex, want->cancel, &lease, err);

	if (rc != 0)
		return rc;
	if (tree_manifest(want->from, a, manifest, &list, err) < 0)
		return -1;
	rc = tree_make(c, hex, lease, &list, want, err);
	/* What was fetched until an outage stays, counted by its lease, as after a kill: who comes
	 * next goes on with it, or makes room of it. */
	if (rc < 0 && !err_is_away(err)) {
		struct err later = {0};

		if (tree_remove(c, hex, &later) < 0 || tree_sweep_blobs(c, false, &later) < 0)
			err_clear(&later); /* the next one who looks for room does it */
	}
	return rc;
}

int node_cache_tree(struct node_cache *c, const struct tree_from *from,
                    const struct digest *manifest,
                    void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                    const atomic_bool *cancel, struct node_lease *out, struct err *err)
{
	struct tree_want want = {.from = from, .progress = progress, .arg = arg, .cancel = cancel};
	char hex[HASH_HEX_CAP];
	bool made = false;

	assert(from->blobs != NULL || from->objects != NULL || from->mirror != NULL);
	digest_hex(manifest, hex);
	for (int i = 0; i < TREE_RACES_MAX; i++) {
		AUTO_FD int lease = lease_wait(c->fd, hex, cancel, err);
		int rc;

		if (lease < 0)
			return err_wrap(err, "tree %s", hex);
		if (tree_exists(c, "trees", hex)) {
			if (hand_out(c, hex, lease, !made, out, err) < 0)
				return err_wrap(err, "tree %s", hex);
			lease = -1; /* the caller's */
			out->fetched = made ? want.fetched : 0;
			return 0;
		}
		/* flock cannot trade a lock for another in one step: let go, take, look again */
		(void)close(TAKE_FD(lease));
		rc = make_once(c, hex, manifest, &want, err);
		if (rc < 0)
			return err_wrap(err, "tree %s", hex);
		made = made || rc == 0;
	}
	return err_set(err, ERR_BUSY,
	               "tree %s is evicted as fast as it is built: the node cache is too small for "
	               "the running jobs",
	               hex);
}

int node_cache_drop(struct node_cache *c, const struct digest *manifest, struct err *err)
{
	char hex[HASH_HEX_CAP];
	AUTO_FD int lease = -1;

	digest_hex(manifest, hex);
	if (!tree_exists(c, "trees", hex))
		return 0;
	lease = lease_try(c->fd, hex, LOCK_EX, err);
	if (lease < 0 || tree_remove(c, hex, err) < 0 || tree_sweep_blobs(c, false, err) < 0)
		return err_wrap(err, "drop");
	return 0;
}

struct built_held {
	unsigned magic;
#define BUILT_HELD_MAGIC 0x53425549U
	struct node_cache *c;
	uint64_t bytes;
};

static int note_built(void *arg, const char *hex, struct err *err UNUSED)
{
	struct built_held *b = FROM_VOID(struct built_held, arg, BUILT_HELD_MAGIC);
	char path[TREE_PATH_CAP], making[TREE_PATH_CAP];
	AUTO_FD int fd = -1;

	path_of("trees", hex, "", path);
	path_of("tmp", hex, "", making);
	if (!tree_is_built(b->c, path) && !tree_is_built(b->c, making))
		return 0;
	path_of("leases", hex, ".lease", path);
	fd = openat(b->c->fd, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		b->bytes += lease_read(fd).bytes;
	return 0;
}

/* Without the lock of all: who makes room may hold that for long. */
int node_cache_built_held(struct node_cache *c, uint64_t *bytes, struct err *err)
{
	struct built_held b = {.magic = BUILT_HELD_MAGIC, .c = c};

	if (tree_each(c, "leases", ".lease", note_built, &b, err) < 0)
		return -1;
	*bytes = b.bytes;
	return 0;
}

int node_cache_usage(struct node_cache *c, uint64_t *trees, uint64_t *bytes, uint64_t *leased,
                     struct err *err)
{
	AUTO_FD int lock = room_lock(c, err);
	struct room r = {.magic = ROOM_MAGIC, .c = c};
	uint64_t sum = 0;

	if (lock < 0)
		return -1;
	if (tree_each(c, "leases", ".lease", note_lease, &r, err) < 0 ||
	    (r.removed && tree_sweep_blobs(c, false, err) < 0)) {
		free(r.held);
		return -1;
	}
	for (size_t i = 0; i < r.n; i++)
		sum += r.held[i].text.bytes;
	*trees = r.n;
	*bytes = sum;
	*leased = r.leased;
	free(r.held);
	return 0;
}
