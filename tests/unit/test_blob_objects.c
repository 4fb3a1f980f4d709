/* test_blob_objects.c - blobs into an object store, and trees of a node cache out of it. */
#include "unit.h"

#include "base/clock.h"
#include "store/blobs/blob_impl.h"
#include "store/blobs/blob_objects.h"
#include "store/objects/objstore_impl.h"
#include "store/blobs/tree.h"
#include "store/common/usage.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define FILES 9
#define LARGE ((size_t)3 << 20) /* above what is fetched in memory */
#define BUDGET ((uint64_t)64 << 20)

static char folder[64];

static struct blobs *open_blobs(const char *name)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct blobs *b = NULL;
	struct err err = {0};

	assert_ok(blobs_open(&b, dir, &err), &err);
	return b;
}

static struct node_cache *open_cache(const char *name, uint64_t budget)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct node_cache *c = NULL;
	struct err err = {0};

	assert_ok(node_cache_open(&c, dir, budget, &err), &err);
	return c;
}

static struct objstore *open_store(const char *url)
{
	struct objstore *os = NULL;
	struct err err = {0};

	assert_ok(objstore_open(&os, url, &(struct objstore_env){0}, &err), &err);
	return os;
}

/* FILES files in folders, two of them the same, one empty, one large. */
static struct digest make_manifest(struct blobs *b, unsigned seed)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *body = xmalloc(LARGE);
	struct manifest m;
	struct digest d;
	struct err err = {0};

	manifest_init(&m, a);
	for (unsigned i = 0; i < FILES; i++) {
		size_t size = i == 0 ? LARGE : i == 1 ? 0 : 1000 + i / 2 * 2;
		char path[64];

		memset(body, (int)(seed * 16 + i / 2), size);
		assert_ok(blobs_put(b, str_n(body, size), &d, &err), &err);
		FMT(path, i % 3 == 0 ? "f%u" : i % 3 == 1 ? "one/f%u" : "one/two/f%u", i);
		assert_ok(manifest_add(&m, str_of(path), size, &d, &err), &err);
	}
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &d, &err), &err);
	return d;
}

struct shown {
	uint64_t done, total, sent;
};

static void on_put(void *arg, uint64_t done, uint64_t total, uint64_t sent)
{
	*(struct shown *)arg = (struct shown){done, total, sent};
}

static int put(struct blobs *b, struct objstore *os, const struct digest *m, struct shown *shown,
               struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct blob_objects_put job = {
		.from = b, .to = os, .pins = pins, .manifest = m, .progress = on_put, .arg = shown};

	return blob_objects_put(&job, err);
}

/* A store with the manifests of seeds 1 to n; their names in m. */
static void fill(struct objstore *os, const char *name, unsigned n, struct digest *m)
{
	AUTO_BLOBS struct blobs *b = open_blobs(name);
	struct shown shown = {0};
	struct err err = {0};

	for (unsigned i = 0; i < n; i++) {
		m[i] = make_manifest(b, i + 1);
		assert_ok(put(b, os, &m[i], &shown, &err), &err);
	}
}

static int tree_of(struct node_cache *c, struct objstore *os, const struct digest *m,
                   struct node_lease *out, struct err *err)
{
	const struct tree_from from = {.objects = os};

	return node_cache_tree(c, &from, m, NULL, NULL, NULL, out, err);
}

static void take(struct node_cache *c, struct objstore *os, const struct digest *m,
                 uint64_t fetched)
{
	struct node_lease lease;
	struct err err = {0};

	assert_ok(tree_of(c, os, m, &lease, &err), &err);
	assert_int_equal(lease.fetched, fetched);
	(void)close(lease.fd);
}

static void count_file(void *arg, unsigned slot UNUSED, const struct usage_entry *e)
{
	*(unsigned *)arg += S_ISREG(e->mode);
}

/* Files below a folder of the test's, each name. */
static unsigned count_files(const char *what)
{
	AUTO_FREE char *path = xasprintf("%s/%s", folder, what);
	struct usage_total total;
	struct err err = {0};
	unsigned n = 0;

	assert_ok(usage_walk(path, 1, count_file, &n, NULL, &total, &err), &err);
	return n;
}

static uint64_t bytes_of(struct objstore *os, const struct digest *m)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest list;
	struct err err = {0};

	assert_ok(blob_objects_manifest(os, a, m, &list, &err), &err);
	return list.bytes;
}

static char *key_of(struct objstore *os, struct arena *a, const struct digest *m, const char *path)
{
	struct manifest list;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	assert_ok(blob_objects_manifest(os, a, m, &list, &err), &err);
	blob_object_key(&manifest_find(&list, str_of(path))->sha256, key);
	return arena_cstr(a, key);
}

static void put_sends_what_is_missing_and_the_manifest_last(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("put");
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_ARENA struct arena *a = arena_new();
	struct digest m = make_manifest(b, 1), other = make_manifest(b, 1);
	struct shown shown = {0};
	struct manifest list, got;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	assert_ok(blobs_get_manifest(b, a, &m, &list, &err), &err);
	assert_true(digest_same(&m, &other));
	assert_err(blob_objects_manifest(os, a, &m, &got, &err), &err, ERR_NOT_FOUND, "");
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_true(shown.total > LARGE && shown.total < list.bytes); /* doubles count once */
	assert_int_equal(shown.done, shown.total);
	assert_int_equal(shown.sent, shown.total);
	assert_ok(blob_objects_manifest(os, a, &m, &got, &err), &err);
	assert_int_equal(got.n, FILES);

	shown = (struct shown){0};
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.done, shown.total);
	assert_int_equal(shown.sent, 0);
	/* one that is not whole is sent again */
	blob_object_key(&manifest_find(&list, STR_LIT("f3"))->sha256, key);
	assert_ok(objstore_put(os, key, STR_LIT("half"), &err), &err);
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.sent, manifest_find(&list, STR_LIT("f3"))->size);
}

/* Whichever call fails: no manifest is there that names what is not, and the next try ends it. */
static void put_that_fails_anywhere_goes_on(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("fails");
	struct digest m = make_manifest(b, 1);
	bool whole = false;

	for (unsigned n = 1; n < 100 && !whole; n++) {
		AUTO_FREE char *dir = xasprintf("dir:%s/fails-%u", folder, n);
		AUTO_FREE char *url = xasprintf("fault:%u:%s", n, dir);
		AUTO_OBJSTORE struct objstore *fault = open_store(url), *os = open_store(dir);
		AUTO_ARENA struct arena *a = arena_new();
		struct shown shown = {0};
		struct manifest list;
		struct err err = {0};

		whole = put(b, fault, &m, &shown, &err) == 0;
		err_clear(&err);
		if (whole)
			break;
		assert_err(blob_objects_manifest(os, a, &m, &list, &err), &err, ERR_NOT_FOUND, "");
		assert_ok(put(b, os, &m, &shown, &err), &err);
		assert_ok(blob_objects_manifest(os, a, &m, &list, &err), &err);
	}
	assert_true(whole);
}

/* The object is pinned, then looked for: a collector that was faster has ended what it does. */
static void *settler(void *arg)
{
	struct blobs *b = arg;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct digest d = {{5}};

	blob_pins_add(pins, &d);
	blob_pins_settle(b, &d);
	return NULL;
}

static void pins_wait_for_a_removal_that_has_begun(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("settle");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct digest d = {{5}};
	pthread_t thread;

	assert_true(blob_going_begin(b, &d));
	assert_int_equal(pthread_create(&thread, NULL, settler, b), 0);
	clock_sleep_ms(50);
	assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
	blob_going_end(b, &d);
	assert_int_equal(pthread_join(thread, NULL), 0);
	blob_pins_add(pins, &d);
	assert_false(blob_going_begin(b, &d));
}

static void tree_comes_from_the_object_store(void **state)
{
	AUTO_FREE char *url =
		xasprintf("%s%s%s", (const char *)*state, strcmp(*state, "dir:") == 0 ? folder : "",
	                  strcmp(*state, "dir:") == 0 ? "/objects" : "");
	AUTO_OBJSTORE struct objstore *os = open_store(url);
	AUTO_NODE_CACHE struct node_cache *c = open_cache("tree", BUDGET);
	AUTO_BLOBS struct blobs *empty = open_blobs("empty");
	AUTO_ARENA struct arena *a = arena_new();
	const struct tree_from from = {.blobs = empty, .objects = os};
	struct digest m[2], none = {{7}};
	struct node_lease lease;
	struct err err = {0};
	struct stat st;

	fill(os, "tree-from", 2, m);
	assert_err(tree_of(c, os, &none, &lease, &err), &err, ERR_NOT_FOUND, "tree 07");
	/* a folder that lacks all of it is asked first */
	assert_ok(node_cache_tree(c, &from, &m[0], NULL, NULL, NULL, &lease, &err), &err);
	assert_false(lease.hit);
	assert_int_equal(lease.files, FILES);
	assert_int_equal(lease.fetched, bytes_of(os, &m[0]));
	assert_int_equal(stat(arena_printf(a, "%s/one/two/f2", lease.path), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	(void)close(lease.fd);
	take(c, os, &m[0], 0); /* a hit */
	take(c, os, &m[1], bytes_of(os, &m[1]));
	assert_ok(node_cache_drop(c, &m[0], &err), &err);
	assert_ok(node_cache_drop(c, &m[1], &err), &err);
	assert_int_equal(count_files("tree/blobs"), 0);
	assert_int_equal(count_files("tree/trees"), 0);
	assert_ok(fs_remove_tree(AT_FDCWD, arena_printf(a, "%s/tree", folder), &err), &err);
	assert_ok(fs_remove_tree(AT_FDCWD, arena_printf(a, "%s/tree-from", folder), &err), &err);
	assert_ok(fs_remove_tree(AT_FDCWD, arena_printf(a, "%s/objects", folder), &err), &err);
}

/* A manifest with one file more than another: only that one travels. */
static void tree_shares_blobs_with_other_trees(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("shares");
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("shares-node", BUDGET);
	AUTO_ARENA struct arena *a = arena_new();
	struct digest m[2], more;
	struct manifest list;
	struct shown shown = {0};
	struct node_lease lease;
	struct err err = {0};
	struct stat st;

	m[0] = make_manifest(b, 1);
	assert_ok(blobs_get_manifest(b, a, &m[0], &list, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("more"), &more, &err), &err);
	assert_ok(manifest_add(&list, STR_LIT("more"), 4, &more, &err), &err);
	assert_ok(manifest_finish(&list, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &list, &m[1], &err), &err);
	assert_ok(put(b, os, &m[0], &shown, &err), &err);
	assert_ok(put(b, os, &m[1], &shown, &err), &err);
	assert_int_equal(shown.sent, 4);

	take(c, os, &m[0], bytes_of(os, &m[0]));
	assert_ok(tree_of(c, os, &m[1], &lease, &err), &err);
	assert_int_equal(lease.fetched, 4);
	assert_int_equal(stat(arena_printf(a, "%s/f0", lease.path), &st), 0);
	assert_int_equal(st.st_nlink, 3); /* two trees and the cache's own */
	(void)close(lease.fd);
	/* one tree goes: what the other has stays */
	assert_ok(node_cache_drop(c, &m[0], &err), &err);
	assert_int_equal(count_files("shares-node/trees"), FILES + 1);
	take(c, os, &m[0], 0);
	/* a damaged file is nobody's source any more */
	{
		bool held;

		assert_ok(node_cache_quarantine(c, &m[0], &held, &err), &err);
		assert_false(held);
		assert_int_equal(count_files("shares-node/blobs"), 0);
	}
	take(c, os, &m[0], bytes_of(os, &m[0]));
}

/* What the object store says a tree should hold, when no folder does. */
static void tree_that_rots_is_found(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("rots", BUDGET);
	AUTO_ARENA struct arena *a = arena_new();
	const struct tree_from from = {.objects = os};
	struct node_lease lease;
	struct digest m[1];
	struct err err = {0};
	const char *file;
	int fd;

	fill(os, "rots-from", 1, m);
	assert_ok(tree_of(c, os, m, &lease, &err), &err);
	(void)close(lease.fd);
	assert_ok(node_cache_verify(c, &from, m, NULL, NULL, &err), &err);
	file = arena_printf(a, "%s/f3", lease.path);
	assert_int_equal(chmod(file, 0644), 0);
	fd = open(file, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_ok(fs_write_all(fd, "?", 1, &err), &err);
	(void)close(fd);
	assert_err(node_cache_verify(c, &from, m, NULL, NULL, &err), &err, ERR_CORRUPT, "f3");
}

static void tree_refuses_what_differs(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("differs", BUDGET);
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *body = xcalloc(1, LARGE);
	struct digest m[1];
	struct node_lease lease;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	fill(os, "differs-from", 1, m);
	for (unsigned i = 0; i < 2; i++) {
		const char *path = i == 0 ? "f0" : "f3";
		size_t size = i == 0 ? LARGE : 1002;
		char *blob = key_of(os, a, m, path);
		AUTO_BUF struct buf was = BUF_INIT(LARGE);

		assert_ok(objstore_get(os, blob, &was, &err), &err);
		assert_int_equal(was.n, size);
		assert_ok(objstore_put(os, blob, str_n(body, size), &err), &err);
		assert_err(tree_of(c, os, m, &lease, &err), &err, ERR_CORRUPT, path);
		assert_ok(objstore_put(os, blob, str_n(body, size - 1), &err), &err);
		assert_err(tree_of(c, os, m, &lease, &err), &err, ERR_CORRUPT, path);
		assert_ok(objstore_del(os, blob, &err), &err);
		assert_err(tree_of(c, os, m, &lease, &err), &err, ERR_NOT_FOUND,
		           "is not in the object store");
		assert_ok(objstore_put(os, blob, buf_view(&was), &err), &err);
		assert_int_equal(count_files("differs/blobs"), 0);
		assert_int_equal(count_files("differs/tmp"), 0);
	}
	blob_objects_manifest_key(m, key);
	assert_ok(objstore_put(os, key, STR_LIT("stoker-manifest 1\n"), &err), &err);
	assert_err(tree_of(c, os, m, &lease, &err), &err, ERR_CORRUPT, "does not match its digest");
}

/* Each call may fail, and the next try ends it. */
static void tree_that_fails_anywhere_is_made_later(void **state UNUSED)
{
	AUTO_FREE char *dir = xasprintf("dir:%s/anywhere", folder);
	AUTO_OBJSTORE struct objstore *os = open_store(dir);
	AUTO_NODE_CACHE struct node_cache *c = open_cache("anywhere-node", BUDGET);
	AUTO_BLOBS struct blobs *b = open_blobs("anywhere-from");
	struct node_lease lease;
	struct digest m[1];
	bool whole = false;

	fill(os, "anywhere-from", 1, m);
	for (unsigned n = 1; n < 100 && !whole; n++) {
		AUTO_FREE char *url = xasprintf("fault:%u:%s", n, dir);
		AUTO_OBJSTORE struct objstore *fault = open_store(url);
		struct err err = {0};

		whole = tree_of(c, fault, m, &lease, &err) == 0;
		if (!whole) {
			err_clear(&err);
			assert_ok(tree_of(c, os, m, &lease, &err), &err);
			assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err),
			          &err);
		}
		(void)close(lease.fd);
		assert_ok(node_cache_drop(c, m, &err), &err);
	}
	assert_true(whole);
	assert_int_equal(count_files("anywhere-node/blobs"), 0);
}

static void tree_keeps_to_the_budget(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("budget", LARGE + LARGE / 2);
	uint64_t trees, bytes, leased;
	struct digest m[2];
	struct node_lease a, b;
	struct err err = {0};

	fill(os, "budget-from", 2, m);
	assert_ok(tree_of(c, os, &m[0], &a, &err), &err);
	assert_err(tree_of(c, os, &m[1], &b, &err), &err, ERR_NODE_CACHE_FULL, "");
	assert_int_equal(count_files("budget/tmp"), 0);
	(void)close(a.fd);
	assert_ok(tree_of(c, os, &m[1], &b, &err), &err);
	(void)close(b.fd);
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_int_equal(trees, 1);
	assert_int_equal(count_files("budget/trees"), FILES);
	/* what the evicted tree had is gone from the cache's blobs, too */
	assert_int_equal(count_files("budget/blobs"), 6);
}

/* A store that is elsewhere: it has no files to link or copy, counts what is read, and never ends
 * to give one object. */
struct remote {
	struct objstore base;
	struct objstore *under;
	const char *stuck; /* a key; NULL: none */
	_Atomic uint64_t bytes;
};

static int remote_stat(struct objstore *os, const char *key, struct objstore_info *out,
                       struct err *err)
{
	return objstore_stat(((struct remote *)os)->under, key, out, err);
}

static int remote_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                       uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                       struct err *err)
{
	struct remote *r = (struct remote *)os;

	while (r->stuck != NULL && strcmp(key, r->stuck) == 0) {
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		clock_sleep_ms(5);
	}
	atomic_fetch_add(&r->bytes, str_starts(str_of(key), "blobs/") ? count : 0);
	return etag != NULL ? objstore_read_same(r->under, key, etag, first, count, sink, arg,
	                                         cancel, err)
	                    : objstore_read(r->under, key, first, count, sink, arg, cancel, err);
}

static int remote_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                       objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	return objstore_list(((struct remote *)os)->under, prefix, after, max, each, arg, more,
	                     err);
}

static int remote_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                           struct digest *sha256, struct err *err)
{
	return objstore_put_file(((struct remote *)os)->under, key, f->fd, f->size, f->expect,
	                         sha256, f->progress, f->arg, f->cancel, err);
}

/* As a request that travels. */
static int remote_del(struct objstore *os, const char *key, struct err *err)
{
	clock_sleep_ms(3);
	return objstore_del(((struct remote *)os)->under, key, err);
}

static const struct objstore_ops remote_ops = {
	.scheme = "remote",
	.stat = remote_stat,
	.read = remote_read,
	.list = remote_list,
	.put_file = remote_put_file,
	.del = remote_del,
};

static struct remote remote_of(struct objstore *under)
{
	static char url[] = "remote:";

	return (struct remote){.base = {.ops = &remote_ops, .url = url}, .under = under};
}

/* A maker that is killed with some of the files: the next one goes on with them. */
static void tree_of_a_killed_maker_is_gone_on_with(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	struct remote r = remote_of(os);
	AUTO_ARENA struct arena *a = arena_new();
	struct node_lease lease;
	struct digest m[1];
	struct err err = {0};
	struct stat st;
	const char *large;
	pid_t pid;
	int status;

	fill(os, "killed-from", 1, m);
	large = arena_printf(a, "%s/killed-node/blobs/%s", folder,
	                     key_of(os, a, m, "f0") + strlen("blobs/sha256/"));
	r.stuck = key_of(os, a, m, "f3");
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct node_cache *c = open_cache("killed-node", BUDGET);

		_exit(tree_of(c, &r.base, m, &lease, &err) == 0 ? 0 : 1);
	}
	while (stat(large, &st) < 0) {
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		clock_sleep_ms(5);
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	r.stuck = NULL;
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("killed-node", BUDGET);
		AUTO_BLOBS struct blobs *b = open_blobs("killed-from");

		assert_ok(tree_of(c, &r.base, m, &lease, &err), &err);
		assert_true(lease.fetched > 0 && lease.fetched < LARGE);
		assert_true(atomic_load(&r.bytes) < LARGE);
		assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err);
		(void)close(lease.fd);
	}
}

struct runner {
	struct node_cache *cache;
	struct objstore *objects;
	const struct digest *m;
	bool hit;
};

static void *run_one(void *arg)
{
	struct runner *r = arg;
	struct node_lease lease;
	struct err err = {0};

	assert_ok(tree_of(r->cache, r->objects, r->m, &lease, &err), &err);
	r->hit = lease.hit;
	(void)close(lease.fd);
	return NULL;
}

/* Two runners, each with the cache opened for itself, as two processes have it. */
static void tree_asked_for_twice_is_fetched_once(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *one = open_cache("twice", BUDGET);
	AUTO_NODE_CACHE struct node_cache *two = open_cache("twice", BUDGET);
	AUTO_BLOBS struct blobs *b = NULL;
	struct remote r = remote_of(os);
	struct runner runner[2];
	struct digest m[1];
	pthread_t thread[2];
	struct shown shown = {0};
	struct err err = {0};

	fill(os, "twice-from", 1, m);
	b = open_blobs("twice-from");
	for (unsigned i = 0; i < 2; i++) {
		runner[i] = (struct runner){i == 0 ? one : two, &r.base, m, false};
		assert_int_equal(pthread_create(&thread[i], NULL, run_one, &runner[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_true(runner[0].hit != runner[1].hit);
	assert_ok(put(b, os, m, &shown, &err), &err);
	assert_int_equal(atomic_load(&r.bytes), shown.total); /* each content once */
}

/* What is kept is not hidden by a copy that a disk has spoiled; spoiled and nowhere else is not the
 * same as deleted. */
static void tree_of_a_damaged_manifest(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:"), *none = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("damaged", BUDGET);
	AUTO_BLOBS struct blobs *b = NULL;
	AUTO_ARENA struct arena *a = arena_new();
	struct tree_from from = {.objects = os};
	char path[BLOB_PATH_CAP];
	struct node_lease lease;
	struct manifest list;
	struct digest m[1];
	struct err err = {0};

	fill(os, "damaged-from", 1, m);
	b = open_blobs("damaged-from");
	from.blobs = b;
	blob_manifest_path(m, path);
	assert_ok(fs_write_atomic(b->fd, path, STR_LIT("{"), 0644, &err), &err);
	assert_ok(tree_manifest(&from, a, m, &list, &err), &err);
	assert_int_equal(list.n, FILES);
	assert_ok(node_cache_tree(c, &from, m, NULL, NULL, NULL, &lease, &err), &err);
	assert_int_equal(lease.files, FILES);
	(void)close(lease.fd);
	from.objects = none;
	assert_err(tree_manifest(&from, a, m, &list, &err), &err, ERR_CORRUPT, path);
	from.objects = NULL;
	assert_err(tree_manifest(&from, a, m, &list, &err), &err, ERR_CORRUPT, path);
}

static void tree_is_given_up_when_canceled(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_NODE_CACHE struct node_cache *c = open_cache("canceled", BUDGET);
	AUTO_ARENA struct arena *a = arena_new();
	struct remote r = remote_of(os);
	const struct tree_from from = {.objects = &r.base};
	atomic_bool cancel = true;
	struct node_lease lease;
	struct digest m[1];
	struct err err = {0};

	fill(os, "canceled-from", 1, m);
	r.stuck = key_of(os, a, m, "f3");
	assert_err(node_cache_tree(c, &from, m, NULL, NULL, &cancel, &lease, &err), &err,
	           ERR_CANCELED, "");
	assert_int_equal(count_files("canceled/tmp"), 0);
	assert_int_equal(count_files("canceled/blobs"), 0);
}

/* ---- collecting ---------------------------------------------------------------------------- */

#define ANY 1000

struct rows { /* manifests that are named */
	const struct digest *d;
	size_t n;
	unsigned told;
	_Atomic int left; /* how often it may remove objects yet */
};

static int may(void *arg, struct err *err)
{
	struct rows *r = arg;

	return atomic_fetch_sub(&r->left, 1) > 0 ? 0 : err_set(err, ERR_UNAVAILABLE, "cut off");
}

static int keep(void *arg, const struct digest *manifest, bool *keep, struct err *err UNUSED)
{
	const struct rows *r = arg;

	*keep = false;
	for (size_t i = 0; i < r->n; i++)
		*keep = *keep || digest_same(&r->d[i], manifest);
	return 0;
}

static void count_told(void *arg, const struct blobs_item *x UNUSED)
{
	((struct rows *)arg)->told++;
}

static int collect(struct objstore *os, struct blobs *b, struct rows *rows, int64_t loose_age_s,
                   bool dry_run, struct blobs_collected *out, struct err *err)
{
	const struct blobs_choice by = {keep, NULL, rows, may};
	const struct blobs_way way = {dry_run, count_told, rows};
	const struct blobs_collect job = {
		.os = os, .loose_age_s = loose_age_s, .by = &by, .way = &way};

	return blobs_collect(b, &job, out, err);
}

/* All that is named is there, and is as it should be. */
static void whole(struct objstore *os, const struct digest *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct manifest list;
		struct err err = {0};
		char key[BLOB_KEY_CAP];

		assert_ok(blob_objects_manifest(os, a, &m[i], &list, &err), &err);
		for (size_t k = 0; k < list.n; k++) {
			bool has = false;

			blob_object_key(&list.file[k].sha256, key);
			assert_ok(blob_objects_has(os, key, list.file[k].size, &has, &err), &err);
			assert_true(has);
		}
	}
}

static int count_object(void *arg, const struct blob_entry *x UNUSED, struct err *err UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static unsigned count_objects(struct objstore *os, enum blobs_kind kind)
{
	struct err err = {0};
	unsigned n = 0;

	assert_ok(blob_objects_each(os, kind, count_object, &n, &err), &err);
	return n;
}

#define OWN 5 /* of the contents of a manifest, those that no other seed has */
#define DISTINCT 6
#define LOOSE 250 /* more than one request removes */

static struct digest put_loose(struct objstore *os, unsigned i)
{
	struct digest d = hash_sha256(&i, sizeof(i));
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	blob_object_key(&d, key);
	assert_ok(objstore_put(os, key, str_n((const char *)&i, sizeof(i)), &err), &err);
	return d;
}

static void what_no_row_names_goes(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("collect-here");
	struct digest m[3];
	struct rows rows = {m, 1, 0, ANY};
	struct blobs_collected out;
	struct err err = {0};

	fill(os, "collect-from", 3, m);
	assert_int_equal(count_objects(os, BLOBS_BLOB), 3 * OWN + 1);
	assert_ok(objstore_put(os, "blobs/sha256/ab/nonsense", STR_LIT("x"), &err), &err);
	assert_ok(collect(os, here, &rows, 0, true, &out, &err), &err);
	assert_int_equal(out.manifests, 2);
	assert_int_equal(out.files, 2 * OWN);
	assert_true(out.bytes > 2 * LARGE);
	assert_int_equal(rows.told, 2);
	whole(os, m, 3);
	{
		/* a put relies on one: it stays, with all that it names */
		AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);

		blob_pins_add(pins, &m[1]);
		assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
		assert_int_equal(out.manifests, 1);
		assert_int_equal(out.files, OWN);
		whole(os, m, 2);
	}
	assert_int_equal(count_objects(os, BLOBS_MANIFEST), 2);
	rows.n = 0;
	assert_ok(collect(os, here, &rows, -1, false, &out, &err), &err);
	assert_int_equal(out.manifests, 2);
	assert_int_equal(count_objects(os, BLOBS_MANIFEST) + count_objects(os, BLOBS_BLOB), 0);
}

/* Cut off in the middle: it removes no more, of whatever kind. */
static void who_may_not_removes_nothing(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("may-here");
	struct digest m[2];
	struct rows rows = {.d = m, .n = 1};
	struct blobs_collected out;
	struct err err = {0};
	unsigned blobs;

	fill(os, "may-from", 2, m);
	for (unsigned i = 0; i < LOOSE; i++)
		put_loose(os, i);
	blobs = count_objects(os, BLOBS_BLOB);
	for (int left = 0; left <= 1; left++) { /* nothing; the manifest */
		rows.left = left;
		assert_err(collect(os, here, &rows, 0, false, &out, &err), &err, ERR_UNAVAILABLE,
		           "cut off");
		assert_int_equal(count_objects(os, BLOBS_MANIFEST), 2 - left);
		assert_int_equal(count_objects(os, BLOBS_BLOB), blobs);
		whole(os, m, left == 0 ? 2 : 1);
	}
	rows.left = 2; /* its blobs are loose by now: some of all of those */
	assert_err(collect(os, here, &rows, 0, false, &out, &err), &err, ERR_UNAVAILABLE,
	           "cut off");
	assert_true(count_objects(os, BLOBS_BLOB) < blobs);
	assert_true(count_objects(os, BLOBS_BLOB) > DISTINCT);
	whole(os, m, 1);
	rows.left = ANY;
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT);
	whole(os, m, 1);
}

/* Of many that go together those stay that somebody relies on. */
static void some_of_many_are_pinned(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("many-here");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);
	struct rows rows = {.left = ANY};
	struct blobs_collected out;
	struct err err = {0};

	for (unsigned i = 0; i < LOOSE; i++) {
		struct digest d = put_loose(os, i);

		if (i % 7 == 0)
			blob_pins_add(pins, &d);
	}
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(count_objects(os, BLOBS_BLOB), (LOOSE + 6) / 7);
	assert_int_equal(out.files, LOOSE - (LOOSE + 6) / 7);
	assert_int_equal(rows.told, out.files);
}

static void blobs_without_a_manifest_go_by_age(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("loose-here");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);
	struct digest m[1], loose = hash_sha256("loose", 5), pinned = hash_sha256("pinned", 6);
	struct rows rows = {m, 1, 0, ANY};
	struct blobs_collected out;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	fill(os, "loose-from", 1, m);
	blob_object_key(&loose, key);
	assert_ok(objstore_put(os, key, STR_LIT("loose"), &err), &err);
	blob_object_key(&pinned, key);
	assert_ok(objstore_put(os, key, STR_LIT("pinned"), &err), &err);
	blob_pins_add(pins, &pinned);
	assert_ok(collect(os, here, &rows, 3600, false, &out, &err), &err);
	assert_int_equal(out.files, 0);
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(out.files, 1);
	assert_int_equal(out.bytes, 5);
	assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT + 1);
	whole(os, m, 1);
}

/* Whichever call fails, what a row names is whole, and so is what a manifest names. */
static void collection_that_fails_anywhere_is_ended_later(void **state UNUSED)
{
	bool done = false;

	for (unsigned n = 1; n < 100 && !done; n++) {
		AUTO_FREE char *dir = xasprintf("dir:%s/ends-%u", folder, n);
		AUTO_FREE char *url = xasprintf("fault:%u:%s", n, dir);
		AUTO_OBJSTORE struct objstore *os = open_store(dir), *fault = open_store(url);
		AUTO_BLOBS struct blobs *here = open_blobs("ends-here");
		struct digest m[2];
		struct rows rows = {m, 1, 0, ANY};
		struct blobs_collected out;
		struct err err = {0};

		fill(os, "ends-from", 2, m);
		done = collect(fault, here, &rows, 0, false, &out, &err) == 0;
		err_clear(&err);
		whole(os, m, count_objects(os, BLOBS_MANIFEST));
		assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
		whole(os, m, 1);
		assert_int_equal(count_objects(os, BLOBS_MANIFEST), 1);
		assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT);
	}
	assert_true(done);
}

struct racer {
	struct objstore *os;
	struct blobs *b;
	struct digest m;
	atomic_bool stop, named; /* named: there is a row */
};

static int keep_named(void *arg, const struct digest *manifest UNUSED, bool *keep,
                      struct err *err UNUSED)
{
	*keep = atomic_load(&((struct racer *)arg)->named);
	return 0;
}

static void *collector(void *arg)
{
	struct racer *r = arg;
	const struct blobs_choice by = {keep_named, NULL, r, NULL};
	const struct blobs_way way = {0};
	const struct blobs_collect job = {.os = r->os, .by = &by, .way = &way};

	while (!atomic_load(&r->stop)) {
		struct blobs_collected out;
		struct err err = {0};

		assert_ok(blobs_collect(r->b, &job, &out, &err), &err);
	}
	return NULL;
}

/* A collector that never rests, and puts that rely on what it is about to remove. */
static void puts_race_with_a_collector(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *under = open_store("mem:");
	AUTO_BLOBS struct blobs *b = open_blobs("race");
	struct remote remote = remote_of(under);
	struct objstore *os = &remote.base;
	struct racer r = {.os = os, .b = b, .m = make_manifest(b, 1)};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, collector, &r), 0);
	for (unsigned i = 0; i < 60; i++) {
		AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
		struct err err = {0};
		const struct blob_objects_put job = {
			.from = b, .to = os, .pins = pins, .manifest = &r.m};

		assert_ok(blob_objects_put(&job, &err), &err);
		atomic_store(&r.named, true);
		blob_pins_free(pins);
		pins = NULL;
		whole(os, &r.m, 1);
		clock_sleep_ms(i % 3);
		whole(os, &r.m, 1);
		atomic_store(&r.named, false); /* the row goes, and the collector sees it */
	}
	atomic_store(&r.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* One disk has them once, whatever they are called; another one gets its own. */
static void put_links_into_a_folder_beside(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("linked-from");
	AUTO_FREE char *url = xasprintf("dir:%s/linked-to", folder);
	AUTO_OBJSTORE struct objstore *os = open_store(url);
	AUTO_FREE char *far = NULL;
	char shm[] = "/dev/shm/stoker-linked-XXXXXX", key[BLOB_KEY_CAP];
	struct digest m = make_manifest(b, 1), empty = hash_sha256("", 0);
	struct shown shown = {0};
	struct stat st, to;
	struct err err = {0};

	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.sent, 0);
	assert_int_equal(shown.done, shown.total);
	blob_object_key(&empty, key);
	assert_int_equal(fstatat(blobs_dirfd(b), key, &st, 0), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_ok(put(b, os, &m, &shown, &err), &err); /* again: all is there */
	assert_int_equal(count_files("linked-to/.tmp"), 0);
	if (mkdtemp(shm) == NULL || stat(shm, &to) < 0 || to.st_dev == st.st_dev) {
		print_message("# /dev/shm is no other file system\n");
		return;
	}
	far = xasprintf("dir:%s", shm);
	{
		AUTO_OBJSTORE struct objstore *there = open_store(far);

		assert_ok(put(b, there, &m, &shown, &err), &err);
		assert_true(shown.sent > 0);
	}
	assert_ok(fs_remove_tree(AT_FDCWD, shm, &err), &err);
}

static char of_mem[] = "mem:", of_dir[] = "dir:";

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(put_sends_what_is_missing_and_the_manifest_last),
	cmocka_unit_test(put_that_fails_anywhere_goes_on),
	cmocka_unit_test(put_links_into_a_folder_beside),
	cmocka_unit_test(pins_wait_for_a_removal_that_has_begun),
	{"tree_comes_from_the_object_store (mem)", tree_comes_from_the_object_store, NULL, NULL,
         of_mem},
	{"tree_comes_from_the_object_store (dir)", tree_comes_from_the_object_store, NULL, NULL,
         of_dir},
	cmocka_unit_test(tree_shares_blobs_with_other_trees),
	cmocka_unit_test(tree_that_rots_is_found),
	cmocka_unit_test(tree_refuses_what_differs),
	cmocka_unit_test(tree_that_fails_anywhere_is_made_later),
	cmocka_unit_test(tree_keeps_to_the_budget),
	cmocka_unit_test(tree_of_a_killed_maker_is_gone_on_with),
	cmocka_unit_test(tree_asked_for_twice_is_fetched_once),
	cmocka_unit_test(tree_of_a_damaged_manifest),
	cmocka_unit_test(tree_is_given_up_when_canceled),
	cmocka_unit_test(what_no_row_names_goes),
	cmocka_unit_test(who_may_not_removes_nothing),
	cmocka_unit_test(some_of_many_are_pinned),
	cmocka_unit_test(blobs_without_a_manifest_go_by_age),
	cmocka_unit_test(collection_that_fails_anywhere_is_ended_later),
	cmocka_unit_test(puts_race_with_a_collector),
};

static int set_up(void **state UNUSED)
{
	FMT(folder, "/tmp/stoker-blob-objects-XXXXXX");
	return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	return fs_remove_tree(AT_FDCWD, folder, &err);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
