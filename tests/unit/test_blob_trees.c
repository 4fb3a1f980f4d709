/* test_blob_trees.c - trees of a node cache out of an object store: shared, damaged, killed, asked
 * for twice, canceled. */
#include "blob_objects_fixture.h"

#include "store/blobs/blob_impl.h"
#include "store/blobs/tree.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define BUDGET ((uint64_t)64 << 20)

static struct node_cache *open_cache(const char *name, uint64_t budget)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct node_cache *c = NULL;
	struct err err = {0};

	assert_ok(node_cache_open(&c, dir, budget, &err), &err);
	return c;
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

static char of_mem[] = "mem:", of_dir[] = "dir:";

static const struct CMUnitTest tests[] = {
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
};
UNIT_MAIN_IN(tests, set_up, tear_down)
