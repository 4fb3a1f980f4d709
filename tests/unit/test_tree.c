/* test_tree.c - the node cache: whole trees or none, leases that crashes release, a budget that
 * holds. */
#define UNIT_FOLDER "/tmp/stoker-tree"
#include "unit_folder.h"

#include "base/clock.h"
#include "store/blobs/lease.h"
#include "store/blobs/tree.h"
#include "store/common/usage.h"

#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MAKERS 6

static struct blobs *open_blobs(void)
{
	AUTO_FREE char *dir = xasprintf("%s/mirror", folder);
	struct blobs *b = NULL;
	struct err err = {0};

	assert_ok(blobs_open(&b, dir, &err), &err);
	return b;
}

static struct node_cache *open_at(const char *dir, uint64_t budget)
{
	struct node_cache *c = NULL;
	struct err err = {0};

	assert_ok(node_cache_open(&c, dir, budget, &err), &err);
	return c;
}

static struct node_cache *open_cache(const char *name, uint64_t budget)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);

	return open_at(dir, budget);
}

/* A manifest of `n` files of `size` bytes that are like no other seed's; some in folders. */
static struct digest make_manifest(struct blobs *b, unsigned seed, unsigned n, size_t size)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *body = xmalloc(size);
	struct manifest m;
	struct digest d;
	struct err err = {0};

	manifest_init(&m, a);
	for (unsigned i = 0; i < n; i++) {
		char path[64];

		memset(body, (int)(seed * 31 + i), size);
		assert_ok(blobs_put(b, str_n(body, size), &d, &err), &err);
		FMT(path, i % 3 == 0 ? "f%u" : i % 3 == 1 ? "one/f%u" : "one/two/f%u", i);
		assert_ok(manifest_add(&m, str_of(path), size, &d, &err), &err);
	}
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &d, &err), &err);
	return d;
}

/* Leases are large: tests that hold two keep them here. */
static struct node_lease lease_a, lease_b;

static void take(struct node_cache *c, struct blobs *b, const struct digest *m,
                 struct node_lease *out)
{
	struct err err = {0};

	assert_ok(
		node_cache_tree(c, &(struct tree_from){.blobs = b}, m, NULL, NULL, NULL, out, &err),
		&err);
	assert_true(out->fd >= 0);
}

static void take_and_give(struct node_cache *c, struct blobs *b, const struct digest *m)
{
	struct node_lease lease;

	take(c, b, m, &lease);
	(void)close(lease.fd);
}

static bool has_tree(const char *cache, const struct digest *m)
{
	char hex[HASH_HEX_CAP], path[256];
	struct stat st;

	digest_hex(m, hex);
	FMT(path, "%s/%s/trees/%s", folder, cache, hex);
	return stat(path, &st) == 0;
}

struct told {
	uint64_t done, total;
	unsigned calls;
};

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct told *t = arg;

	assert_true(done >= t->done && done <= total);
	*t = (struct told){done, total, t->calls + 1};
}

static void tree_is_made_once_and_read_only(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("once", 1 << 20);
	struct digest m = make_manifest(b, 1, 7, 1000), none = {{7}};
	struct told told = {0};
	struct err err = {0};
	uint64_t trees, bytes, leased;
	char path[FS_PATH_MAX + 16];
	struct stat st;

	assert_err(node_cache_tree(c, &(struct tree_from){.blobs = b}, &none, NULL, NULL, NULL,
	                           &lease_a, &err),
	           &err, ERR_NOT_FOUND, "tree 07");
	assert_ok(node_cache_tree(c, &(struct tree_from){.blobs = b}, &m, on_progress, &told, NULL,
	                          &lease_a, &err),
	          &err);
	assert_false(lease_a.hit);
	assert_int_equal(lease_a.bytes, 7000);
	assert_int_equal(lease_a.files, 7);
	assert_true(told.calls > 0 && told.done == 7000 && told.total == 7000);
	take(c, b, &m, &lease_b);
	assert_true(lease_b.hit && lease_b.bytes == 7000 && lease_b.files == 7);
	assert_string_equal(lease_a.path, lease_b.path);

	FMT(path, "%s/one/two/f2", lease_a.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_int_equal(st.st_nlink, 2); /* linked to its blob, not copied */
	FMT(path, "%s/one/two", lease_a.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(stat(lease_a.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);

	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_true(trees == 1 && bytes == 7000 && leased == 1);
	assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err);
	assert_err(node_cache_drop(c, &m, &err), &err, ERR_BUSY, "in use");
	(void)close(lease_a.fd);
	assert_err(node_cache_drop(c, &m, &err), &err, ERR_BUSY, "in use");
	(void)close(lease_b.fd);
	assert_ok(node_cache_drop(c, &m, &err), &err);
	assert_ok(node_cache_drop(c, &m, &err), &err);
	assert_false(has_tree("once", &m));
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_true(trees == 0 && bytes == 0 && leased == 0);
}

static void tree_budget_holds(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("budget", 10000);
	struct digest m[4], large = make_manifest(b, 9, 11, 1000);
	uint64_t trees, bytes, leased;
	struct err err = {0};

	for (unsigned i = 0; i < 4; i++)
		m[i] = make_manifest(b, 10 + i, 4, 1000);
	assert_err(node_cache_tree(c, &(struct tree_from){.blobs = b}, &large, NULL, NULL, NULL,
	                           &lease_a, &err),
	           &err, ERR_NO_SPACE, "11.00 kB");
	take(c, b, &m[0], &lease_b); /* leased all the time */
	clock_sleep_ms(15);
	take_and_give(c, b, &m[1]);
	clock_sleep_ms(15);
	take_and_give(c, b, &m[2]); /* takes the place of 1: 0 is in use */
	assert_true(has_tree("budget", &m[0]) && !has_tree("budget", &m[1]) &&
	            has_tree("budget", &m[2]));
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_true(trees == 2 && bytes == 8000 && leased == 1);
	take(c, b, &m[2], &lease_a);
	assert_true(lease_a.hit);
	assert_err(node_cache_tree(c, &(struct tree_from){.blobs = b}, &m[3], NULL, NULL, NULL,
	                           &lease_a, &err),
	           &err, ERR_NODE_CACHE_FULL, "");
	(void)close(lease_b.fd); /* the job has ended, or was killed */
	take(c, b, &m[3], &lease_b);
	assert_false(has_tree("budget", &m[0]));
	assert_true(has_tree("budget", &m[2]));
	(void)close(lease_b.fd);
	(void)close(lease_a.fd);
}

static void tree_of_a_dead_holder_is_free(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("dead", 10000);
	struct digest m = make_manifest(b, 30, 4, 1000);
	struct err err = {0};
	int ready[2], status;
	char word;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct node_lease lease;

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail */
		take(c, b, &m, &lease);
		(void)!write(ready[1], "x", 1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]); /* its end is heard of, too */
	assert_int_equal(read(ready[0], &word, 1), 1);
	assert_err(node_cache_drop(c, &m, &err), &err, ERR_BUSY, "in use");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_ok(node_cache_drop(c, &m, &err), &err);
	(void)close(ready[0]);
}

/* What a killed maker left is not a tree, costs no budget, and goes. */
static void tree_half_made_is_swept(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	struct digest m = make_manifest(b, 40, 4, 1000), other = make_manifest(b, 41, 9, 1000);
	char hex[HASH_HEX_CAP], path[256];
	struct stat st;

	digest_hex(&m, hex);
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("half", 10000);
		struct err err = {0};

		FMT(path, "%s/half/tmp/%s", folder, hex);
		assert_ok(fs_mkdirs(AT_FDCWD, path, 0755, &err), &err);
		FMT(path, "%s/half/leases/%s.lease", folder, hex);
		assert_ok(fs_write_atomic(AT_FDCWD, path,
		                          STR_LIT("00000000000000004000 00000000000000000004 "
		                                  "00000000000000000001\n"),
		                          0644, &err),
		          &err);
		take_and_give(c, b, &other); /* needs 9000 of 10000 */
		assert_int_not_equal(stat(path, &st), 0);
		FMT(path, "%s/half/tmp/%s", folder, hex);
		assert_int_not_equal(stat(path, &st), 0);
		assert_ok(fs_mkdirs(AT_FDCWD, path, 0755, &err), &err);
	}
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("half", 10000);

		assert_int_not_equal(stat(path, &st), 0); /* opening sweeps */
		take_and_give(c, b, &m);
	}
}

static void tree_faults_are_found(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("faults", 100000);
	struct digest m = make_manifest(b, 50, 4, 1000);
	struct node_lease lease;
	struct err err = {0};
	char path[FS_PATH_MAX + 16];

	take(c, b, &m, &lease);
	FMT(path, "%s/f0", lease.path);
	assert_int_equal(chmod(path, 0644), 0);
	{
		AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

		assert_ok(fs_pwrite_all(fd, "!", 1, 10, &err), &err);
	}
	assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, false, &err), &err);
	assert_err(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err,
	           ERR_CORRUPT, "f0");
	assert_int_equal(truncate(path, 10), 0);
	assert_err(node_cache_check(c, &(struct tree_from){.blobs = b}, false, &err), &err,
	           ERR_CORRUPT, "f0");
	(void)close(lease.fd);
	assert_ok(node_cache_drop(c, &m, &err), &err);
}

struct maker {
	struct blobs *blobs;
	struct node_cache *cache;
	const struct digest *m;
	bool hit, ok;
};

static void *maker(void *arg)
{
	struct maker *k = arg;
	struct node_lease lease;
	struct err err = {0};

	k->ok = node_cache_tree(k->cache, &(struct tree_from){.blobs = k->blobs}, k->m, NULL, NULL,
	                        NULL, &lease, &err) == 0;
	if (k->ok) {
		k->hit = lease.hit;
		(void)close(lease.fd);
	}
	return NULL;
}

static void tree_asked_for_at_once_is_made_once(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("many", 1 << 20);
	struct digest m = make_manifest(b, 60, 60, 100);
	struct maker all[MAKERS];
	pthread_t thread[MAKERS];
	unsigned misses = 0;

	for (size_t i = 0; i < MAKERS; i++) {
		all[i] = (struct maker){.blobs = b, .cache = c, .m = &m};
		assert_int_equal(pthread_create(&thread[i], NULL, maker, &all[i]), 0);
	}
	for (size_t i = 0; i < MAKERS; i++) {
		(void)pthread_join(thread[i], NULL);
		assert_true(all[i].ok);
		misses += !all[i].hit;
	}
	assert_int_equal(misses, 1);
}

struct user {
	struct maker maker;
	struct node_lease lease;
	atomic_bool *cancel;
};

static void *use(void *arg)
{
	struct user *u = arg;
	struct err err = {0};

	u->maker.ok = node_cache_tree(u->maker.cache, &(struct tree_from){.blobs = u->maker.blobs},
	                              u->maker.m, NULL, NULL, u->cancel, &u->lease, &err) == 0;
	return NULL;
}

#define LOOKED_MS 200 /* by then all have looked, and want to make it */
#define STUCK_S 20

/* Two that found no tree both want to make it. The one that does then uses it, for as long as a job
 * runs: the other one is given it meanwhile. */
static void tree_is_given_while_its_maker_uses_it(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("used", 1 << 20);
	AUTO_FREE char *dir = xasprintf("%s/used", folder);
	AUTO_FREE struct user *all = xcalloc(MAKERS, sizeof(*all));
	struct digest m = make_manifest(b, 80, 4, 100);
	atomic_bool cancel = false;
	struct timespec until;
	pthread_t thread[MAKERS];
	char hex[HASH_HEX_CAP];
	struct err err = {0};
	AUTO_FD int top = fs_open_dir(dir, &err);
	int looks = -1;

	digest_hex(&m, hex);
	looks = lease_try(top, hex, LOCK_SH, &err); /* nobody makes it until we have looked */
	assert_true(looks >= 0);
	for (size_t i = 0; i < MAKERS; i++) {
		all[i] = (struct user){.maker = {.blobs = b, .cache = c, .m = &m},
		                       .cancel = &cancel};
		assert_int_equal(pthread_create(&thread[i], NULL, use, &all[i]), 0);
	}
	clock_sleep_ms(LOOKED_MS);
	(void)close(looks);
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
	until.tv_sec += STUCK_S;
	for (size_t i = 0; i < MAKERS; i++) {
		if (pthread_timedjoin_np(thread[i], NULL, &until) == 0)
			continue;
		atomic_store(&cancel, true);
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	}
	for (size_t i = 0; i < MAKERS; i++) {
		assert_true(all[i].maker.ok);
		(void)close(all[i].lease.fd);
	}
}

/* More trees than the budget holds, asked for by all: nothing is lost or counted twice. */
static void tree_eviction_under_load(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("load", 100000);
	struct digest m[5];
	uint64_t trees, bytes, leased;
	struct err err = {0};

	for (unsigned i = 0; i < COUNT(m); i++)
		m[i] = make_manifest(b, 70 + i, 4, 4000); /* 16000 each; six may be in flight */
	for (unsigned round = 0; round < 10; round++) {
		struct maker all[MAKERS];
		pthread_t thread[MAKERS];

		for (size_t i = 0; i < MAKERS; i++) {
			all[i] = (struct maker){
				.blobs = b, .cache = c, .m = &m[(round + i) % COUNT(m)]};
			assert_int_equal(pthread_create(&thread[i], NULL, maker, &all[i]), 0);
		}
		for (size_t i = 0; i < MAKERS; i++) {
			(void)pthread_join(thread[i], NULL);
			assert_true(all[i].ok);
		}
		assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
		assert_true(bytes <= 100000 && bytes == trees * 16000 && leased == 0);
		if (round % 2 == 0)
			assert_ok(node_cache_drop(c, &m[round % COUNT(m)], &err), &err);
	}
	assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err);
}

static void rot(const char *dir, const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
	struct err err = {0};
	AUTO_FD int fd = -1;

	assert_int_equal(chmod(path, 0644), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_ok(fs_write_all(fd, "?", 1, &err), &err);
}

static int add_step(void *arg, size_t bytes, struct err *err UNUSED)
{
	*(uint64_t *)arg += bytes;
	return 0;
}

struct evict {
	struct node_cache *c;
	const struct digest *m;
};

static int evict_step(void *arg, size_t bytes UNUSED, struct err *err)
{
	struct evict *e = arg;

	return node_cache_drop(e->c, e->m, err);
}

struct wanted_tree {
	struct digest manifest;
	struct node_tree found;
	unsigned n;
};

static int note_tree(void *arg, const struct node_tree *t, struct err *err UNUSED)
{
	struct wanted_tree *w = arg;

	w->n++;
	if (digest_same(&t->manifest, &w->manifest))
		w->found = *t;
	return 0;
}

static struct wanted_tree look_for(struct node_cache *c, struct blobs *b, const struct digest *m)
{
	struct wanted_tree w = {.manifest = *m};
	struct err err = {0};

	assert_ok(node_cache_each(c, &(struct tree_from){.blobs = b}, note_tree, &w, &err), &err);
	return w;
}

static uint64_t copied_bytes(struct node_cache *c, struct blobs *b, const struct digest *m)
{
	return look_for(c, b, m).found.copied;
}

static bool is_file(const char *dir, const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
	struct stat st;

	return stat(path, &st) == 0;
}

/* What is in damaged/: 2 a tree (it and its lease). */
static unsigned damaged_entries(const char *cache)
{
	AUTO_FREE char *dir = xasprintf("%s/%s/damaged", folder, cache);
	struct usage_total total = {0};
	struct err err = {0};
	unsigned n = 0;

	assert_ok(usage_walk(dir, 1, NULL, NULL, NULL, &total, &err), &err);
	n = (unsigned)(total.files + total.folders);
	return n;
}

static void tree_with_a_damaged_file_is_given_to_nobody(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("aside", 1 << 20);
	struct digest m = make_manifest(b, 50, 1, 1000), idle = make_manifest(b, 51, 1, 1000);
	struct wanted_tree w;
	struct err err = {0};
	bool held = true;
	uint64_t read = 0;

	take_and_give(c, b, &idle);
	take(c, b, &m, &lease_a);
	w = look_for(c, b, &m);
	assert_int_equal(w.n, 2);
	assert_true(w.found.held && w.found.copied == 0 && w.found.alone == 0);
	assert_false(look_for(c, b, &idle).found.held);
	assert_ok(node_cache_verify(c, &(struct tree_from){.blobs = b}, &m, add_step, &read, &err),
	          &err);
	assert_int_equal(read, 0); /* its files are the blobs */

	assert_ok(node_cache_quarantine(c, &idle, &held, &err), &err);
	assert_false(held || has_tree("aside", &idle));
	assert_ok(node_cache_quarantine(c, &idle, &held, &err), &err); /* there is none */
	assert_false(held);

	assert_ok(node_cache_renew(c, &m, clock_wall_ms() - 60000, &held, &err), &err);
	assert_true(!held && has_tree("aside", &m)); /* made since: it is renewed already */
	assert_ok(node_cache_renew(c, &m, clock_wall_ms() + 60000, &held, &err), &err);
	assert_true(held && !has_tree("aside", &m));
	take(c, b, &m, &lease_b); /* made anew, while the old one is in use */
	assert_true(!lease_b.hit && is_file(lease_b.path, "f0"));
	assert_int_equal(damaged_entries("aside"), 3); /* folder, file, lease */
	node_cache_close(open_cache("aside", 1 << 20));
	assert_int_equal(damaged_entries("aside"), 3); /* held */
	(void)close(lease_a.fd);
	node_cache_close(open_cache("aside", 1 << 20));
	assert_int_equal(damaged_entries("aside"), 0);
	assert_true(has_tree("aside", &m));
	(void)close(lease_b.fd);
}

/* Killed after the tree was moved and before its lease lost its name: the next one who opens the
 * cache ends it, else a new tree would wait for the old one's holders. */
static void tree_half_set_aside_is_ended(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("half", 1 << 20);
	struct digest m = make_manifest(b, 52, 1, 1000);
	char hex[HASH_HEX_CAP], from[512], to[512];

	take(c, b, &m, &lease_a);
	digest_hex(&m, hex);
	FMT(from, "%s/half/leases/%s.lease", folder, hex);
	FMT(to, "%s/half/damaged/%s-abcd1234.lease", folder, hex);
	assert_int_equal(link(from, to), 0);
	FMT(to, "%s/half/damaged/%s-abcd1234", folder, hex);
	assert_int_equal(chmod(lease_a.path, 0755), 0);
	assert_int_equal(rename(lease_a.path, to), 0);
	node_cache_close(open_cache("half", 1 << 20));
	take(c, b, &m, &lease_b); /* waits for nobody */
	assert_false(lease_b.hit);
	(void)close(lease_a.fd);
	(void)close(lease_b.fd);
	node_cache_close(open_cache("half", 1 << 20));
	assert_int_equal(damaged_entries("half"), 0);
}

/* Another file system: copied and verified, and a blob that lies is not published. */
static void tree_is_copied_where_links_cannot_go(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_ARENA struct arena *a = arena_new();
	char dir[] = "/dev/shm/stoker-tree-XXXXXX";
	struct digest m = make_manifest(b, 80, 4, 3 << 20), bad, blob = {{0}};
	struct manifest list;
	struct err err = {0};
	struct node_lease lease;
	struct stat here, there;

	if (mkdtemp(dir) == NULL || stat(dir, &there) < 0 || stat(folder, &here) < 0 ||
	    here.st_dev == there.st_dev) {
		print_message("# no second file system here\n");
		(void)rmdir(dir);
		return;
	}
	{
		AUTO_NODE_CACHE struct node_cache *c = open_at(dir, 100 << 20);
		atomic_bool cancel = true;
		struct told told = {0};
		uint64_t read = 0;

		assert_err(node_cache_tree(c, &(struct tree_from){.blobs = b}, &m, NULL, NULL,
		                           &cancel, &lease, &err),
		           &err, ERR_CANCELED, "");
		assert_ok(node_cache_tree(c, &(struct tree_from){.blobs = b}, &m, on_progress,
		                          &told, NULL, &lease, &err),
		          &err);
		assert_int_equal(told.done, told.total);
		assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err);
		/* a copy can rot by itself: it is read, and stays with those who have it */
		assert_int_equal(copied_bytes(c, b, &m), told.total);
		assert_ok(node_cache_verify(c, &(struct tree_from){.blobs = b}, &m, add_step, &read,
		                            &err),
		          &err);
		assert_int_equal(read, told.total);
		rot(lease.path, "f0");
		assert_err(
			node_cache_verify(c, &(struct tree_from){.blobs = b}, &m, NULL, NULL, &err),
			&err, ERR_CORRUPT, "f0");
		(void)close(lease.fd);
		/* who reads does not hold it: evicted meanwhile, it is nobody's fault */
		assert_ok(node_cache_verify(c, &(struct tree_from){.blobs = b}, &m, evict_step,
		                            &(struct evict){c, &m}, &err),
		          &err);
		assert_int_equal(look_for(c, b, &m).n, 0);

		bad = make_manifest(b, 90, 2, 5000);
		assert_ok(blobs_get_manifest(b, a, &bad, &list, &err), &err);
		blob = list.file[1].sha256;
		assert_int_equal(chmod(blobs_path(b, &blob, a), 0644), 0);
		{
			AUTO_FD int fd = open(blobs_path(b, &blob, a), O_WRONLY | O_CLOEXEC);

			assert_ok(fs_write_all(fd, "?", 1, &err), &err);
		}
		assert_err(node_cache_tree(c, &(struct tree_from){.blobs = b}, &bad, NULL, NULL,
		                           NULL, &lease, &err),
		           &err, ERR_CORRUPT, "does not match its digest");
	}
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

/* A runner that was taken over leads who keeps house elsewhere. */
static void tree_of_strangers_leads_nowhere(void **state UNUSED)
{
	AUTO_FREE char *dir = xasprintf("%s/strange", folder);
	AUTO_FREE char *tmp = xasprintf("%s/tmp", dir), *victim = xasprintf("%s/victim", folder);
	AUTO_BLOBS struct blobs *b = open_blobs();
	const struct digest m = make_manifest(b, 77, 3, 100);
	struct node_cache *c = open_at(dir, 1 << 20), *house = NULL;
	const struct tree_from from = {.blobs = b};
	AUTO_FREE char *theirs = NULL, *file = NULL, *pipe = NULL;
	char hex[HASH_HEX_CAP];
	struct err err = {0};

	take(c, b, &m, &lease_a);
	(void)close(lease_a.fd);
	digest_hex(&m, hex);
	theirs = xasprintf("%s/%s", victim, hex);
	file = xasprintf("%s/precious", theirs);
	assert_ok(fs_mkdirs(AT_FDCWD, theirs, 0755, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, file, str_of("x"), 0644, &err), &err);
	assert_int_equal(rmdir(tmp), 0);
	assert_int_equal(symlink("../victim", tmp), 0);

	assert_ok(node_cache_open_strange(&house, dir, 1 << 20, &err), &err);
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(rmdir(tmp), 0); /* a folder again */
	assert_int_equal(symlink("../victim", tmp), 0);
	if (geteuid() == 0) { /* a mount takes its rights */
		assert_err(node_cache_drop(house, &m, &err), &err, ERR_DENIED, hex);
		assert_int_equal(access(file, F_OK), 0);
	}
	assert_int_equal(unlink(tmp), 0);
	assert_int_equal(mkdir(tmp, 0755), 0);

	/* a pipe in place of a file makes nobody wait */
	pipe = xasprintf("%s/f0", lease_a.path);
	assert_int_equal(chmod(lease_a.path, 0755), 0);
	assert_int_equal(unlink(pipe), 0);
	assert_int_equal(mkfifo(pipe, 0644), 0);
	assert_err(node_cache_verify(house, &from, &m, NULL, NULL, &err), &err, ERR_CORRUPT, "f0");
	assert_ok(node_cache_drop(house, &m, &err), &err);
	node_cache_close(house);
	node_cache_close(c);
}

/* A process that may only hold a tree cannot write to its lease. */
static void tree_is_held_without_a_pen(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs();
	AUTO_NODE_CACHE struct node_cache *c = open_cache("pen", 1 << 20);
	const struct digest m = make_manifest(b, 78, 3, 100);
	struct err err = {0};
	int held;

	take(c, b, &m, &lease_a);
	held = lease_to_hold(lease_a.fd, &err);
	assert_true(held >= 0);
	(void)close(lease_a.fd);
	assert_int_equal(write(held, "x", 1), -1);
	assert_int_equal(errno, EBADF);
	assert_err(node_cache_drop(c, &m, &err), &err, ERR_BUSY, "in use");
	(void)close(held);
	assert_ok(node_cache_drop(c, &m, &err), &err);
}

static bool is_not_one(void *arg, const char *name)
{
	(*(unsigned *)arg)++;
	return strcmp(name, "one") != 0;
}

/* What a dead process left where it filled a tree goes; a living one keeps it. */
static void tree_making_is_swept(void **state UNUSED)
{
	AUTO_FREE char *dir = xasprintf("%s/making", folder);
	AUTO_FREE char *top = xasprintf("%s/making", dir), *deep = xasprintf("%s/two/x/y", top);
	AUTO_FREE char *link = xasprintf("%s/three", top), *one = xasprintf("%s/one", top);
	AUTO_NODE_CACHE struct node_cache *c = open_at(dir, 1 << 20);
	struct err err = {0};
	AUTO_FD int first = node_cache_making(dir, "one", &err);
	AUTO_FD int second = node_cache_making(dir, "two", &err);
	unsigned asked = 0;

	assert_true(first >= 0 && second >= 0);
	assert_ok(fs_mkdirs(AT_FDCWD, deep, 0755, &err), &err);
	assert_int_equal(symlink("one", link), 0);
	assert_int_equal(node_cache_making(dir, "three", &err), -1); /* through no link */
	err_clear(&err);
	assert_ok(node_cache_sweep_making(c, is_not_one, &asked, &err), &err);
	assert_int_equal(asked, 3);
	assert_int_equal(dir_names(top), 1);
	assert_int_equal(rmdir(one), 0);
	assert_int_equal(rmdir(top), 0);
	assert_int_equal(symlink("trees", top), 0);
	assert_int_equal(node_cache_making(dir, "one", &err), -1);
	err_clear(&err);
	assert_int_equal(unlink(top), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(tree_is_made_once_and_read_only),
	cmocka_unit_test(tree_budget_holds),
	cmocka_unit_test(tree_of_a_dead_holder_is_free),
	cmocka_unit_test(tree_half_made_is_swept),
	cmocka_unit_test(tree_faults_are_found),
	cmocka_unit_test(tree_asked_for_at_once_is_made_once),
	cmocka_unit_test(tree_is_given_while_its_maker_uses_it),
	cmocka_unit_test(tree_eviction_under_load),
	cmocka_unit_test(tree_with_a_damaged_file_is_given_to_nobody),
	cmocka_unit_test(tree_half_set_aside_is_ended),
	cmocka_unit_test(tree_is_copied_where_links_cannot_go),
	cmocka_unit_test(tree_of_strangers_leads_nowhere),
	cmocka_unit_test(tree_is_held_without_a_pen),
	cmocka_unit_test(tree_making_is_swept),
};

UNIT_MAIN_IN(tests, set_up, tear_down)
