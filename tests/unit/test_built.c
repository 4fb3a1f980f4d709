/* test_built.c - trees that a program makes: whole or not given, made once, made again when they
 * were changed, removed with all that belongs to them. */
#define UNIT_FOLDER "/var/tmp/stoker-built"
#include "unit_folder.h"

#include "base/clock.h"
#include "store/blobs/built.h"
#include "store/blobs/lease.h"
#include "store/common/usage.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#define ASKERS 6

static struct node_cache *open_cache(const char *name, uint64_t budget)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct node_cache *c = NULL;
	struct err err = {0};

	assert_ok(node_cache_open(&c, dir, budget, &err), &err);
	return c;
}

static struct digest key_of(const char *text)
{
	return hash_sha256(text, strlen(text));
}

static void write_file(const char *dir, const char *path, size_t size, mode_t mode)
{
	AUTO_FREE char *full = xasprintf("%s/%s", dir, path), *body = xmalloc(size + 1);
	AUTO_FD int fd = -1;
	struct err err = {0};

	*strrchr(full, '/') = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, full, 0755, &err), &err);
	full[strlen(full)] = '/';
	memset(body, 'x', size);
	(void)unlink(full);
	fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_ok(fs_write_all(fd, body, size, &err), &err);
	assert_int_equal(fchmod(fd, mode), 0);
}

struct maker {
	atomic_int made, waited, damaged;
	size_t size;
	const char *fail; /* make fails so */
	int hold_ms;      /* ... or takes so long */
	void (*more)(const char *dir);
	int grow_to;           /* files of `size`, growing after each */
	const char *elsewhere; /* where it is filled; NULL: in place */
	int top;               /* what that lies in */
};

static int make(void *arg, struct built *b, const char *dir, struct err *err)
{
	struct maker *m = arg;
	DIR *d = opendir(dir);
	char name[40];

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		assert_true(e->d_name[0] == '.'); /* it is empty */
	(void)closedir(d);
	atomic_fetch_add(&m->made, 1);
	built_say(b, "collecting");
	write_file(dir, "bin/tool", m->size, 0755);
	write_file(dir, "lib/.hidden/data", 10, 0600);
	if (m->more != NULL)
		m->more(dir);
	for (int i = 0; i < m->grow_to; i++) {
		FMT(name, "lib/f%d", i);
		write_file(dir, name, m->size, 0644);
		if (built_grow(b, err) < 0)
			return -1;
	}
	if (m->hold_ms > 0)
		clock_sleep_ms(m->hold_ms);
	return m->fail != NULL ? err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID, "%s", m->fail) : 0;
}

#define ELSEWHERE "filled"

/* By somebody who may not write to the cache's folder; then it is moved there. */
static int make_elsewhere(void *arg, struct built *b, const char *dir, struct err *err)
{
	struct maker *m = arg;

	assert_ok(fs_mkdirs(m->top, ELSEWHERE, 0755, err), err);
	built_fill_at(b, m->top, ELSEWHERE);
	assert_int_equal(dir_names(dir), 0);
	return make(arg, b, m->elsewhere, err);
}

static void on_wait(void *arg, const char *words UNUSED)
{
	atomic_fetch_add(&((struct maker *)arg)->waited, 1);
}

static void on_damaged(void *arg, const char *why)
{
	assert_true(why[0] != '\0');
	atomic_fetch_add(&((struct maker *)arg)->damaged, 1);
}

static int take(struct node_cache *c, const char *key, struct maker *m, struct node_lease *out,
                struct err *err)
{
	struct built_maker by = {m->elsewhere != NULL ? make_elsewhere : make, on_wait, on_damaged,
	                         m};
	struct digest d = key_of(key);

	return node_cache_built(c, &d, &by, NULL, out, err);
}

/* Leases are large. */
static struct node_lease lease, second;

static unsigned count(const char *cache, const char *what)
{
	AUTO_FREE char *dir = xasprintf("%s/%s/%s", folder, cache, what);

	return (unsigned)dir_names(dir);
}

static void assert_empty(const char *cache)
{
	static const char *const all[] = {"built", "trees", "tmp", "leases", "damaged"};

	for (size_t i = 0; i < COUNT(all); i++)
		assert_row(count(cache, all[i]) == 0, all[i]);
}

static void built_is_made_once_and_read_only(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("once", 1 << 20);
	struct maker m = {.size = 1000};
	char path[FS_PATH_MAX + 20];
	uint64_t trees, bytes, leased;
	struct err err = {0};
	struct stat st;

	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_false(lease.hit);
	assert_int_equal(lease.files, 2);
	assert_int_equal(lease.bytes, 1010);
	FMT(path, "%s/bin/tool", lease.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	FMT(path, "%s/lib/.hidden/data", lease.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_int_equal(stat(lease.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_ok(take(c, "a", &m, &second, &err), &err);
	assert_true(second.hit);
	assert_string_equal(second.path, lease.path);
	assert_int_equal(atomic_load(&m.made), 1);
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_int_equal(trees, 1);
	assert_int_equal(bytes, 1010);
	assert_int_equal(leased, 1);
	assert_ok(take(c, "b", &m, &second, &err), &err); /* another key, another tree */
	assert_false(second.hit);
	assert_string_not_equal(second.path, lease.path);
	(void)close(lease.fd);
	(void)close(second.fd);
}

static void built_fails_and_leaves_nothing(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("fails", 1 << 20);
	struct maker m = {.size = 1000, .fail = "no such package"};
	struct err err = {0};

	assert_err(take(c, "a", &m, &lease, &err), &err, ERR_PYTHON_REQUIREMENTS_INVALID,
	           "no such package");
	assert_empty("fails");
	m.fail = NULL;
	assert_ok(take(c, "a", &m, &lease, &err), &err); /* nobody waited: it is tried again */
	assert_int_equal(atomic_load(&m.made), 2);
	assert_int_equal(count("fails", "failed"), 0);
	(void)close(lease.fd);
}

struct asker {
	struct node_cache *c;
	struct maker *m;
	const atomic_bool *cancel;
	int rc;
	struct err err;
	struct node_lease lease;
};

static void *ask(void *arg)
{
	struct asker *a = arg;

	a->rc = take(a->c, "a", a->m, &a->lease, &a->err);
	return NULL;
}

static void ask_together(const char *name, struct maker *m, struct asker *all)
{
	pthread_t thread[ASKERS];

	for (size_t i = 0; i < ASKERS; i++) {
		all[i] = (struct asker){.c = open_cache(name, 1 << 20), .m = m};
		assert_int_equal(pthread_create(&thread[i], NULL, ask, &all[i]), 0);
	}
	for (size_t i = 0; i < ASKERS; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		node_cache_close(all[i].c);
	}
}

static void built_by_one_of_many(void **state UNUSED)
{
	AUTO_FREE struct asker *all = xcalloc(ASKERS, sizeof(*all));
	struct maker m = {.size = 1000, .hold_ms = 300};
	unsigned hits = 0;

	ask_together("many", &m, all);
	for (size_t i = 0; i < ASKERS; i++) {
		assert_ok(all[i].rc, &all[i].err);
		hits += all[i].lease.hit;
		(void)close(all[i].lease.fd);
	}
	assert_int_equal(atomic_load(&m.made), 1);
	assert_int_equal(hits, ASKERS - 1);
	assert_true(atomic_load(&m.waited) > 0);
}

/* Who waited for a try that failed does not try again. One who came later may. */
static void built_failure_is_shared(void **state UNUSED)
{
	AUTO_FREE struct asker *all = xcalloc(ASKERS, sizeof(*all));
	struct maker m = {.size = 1000, .hold_ms = 300, .fail = "no such package"};

	ask_together("shared", &m, all);
	for (size_t i = 0; i < ASKERS; i++)
		assert_err(all[i].rc, &all[i].err, ERR_PYTHON_REQUIREMENTS_INVALID,
		           "no such package");
	assert_true(atomic_load(&m.made) < ASKERS);
}

static void *ask_until(void *arg)
{
	struct asker *a = arg;
	struct built_maker by = {make, on_wait, on_damaged, a->m};
	struct digest d = key_of("a");

	a->rc = node_cache_built(a->c, &d, &by, a->cancel, &a->lease, &a->err);
	return NULL;
}

#define LOOKED_MS 200 /* by then all have looked, and want to make it */
#define STUCK_S 20

/* Those that found none all want to make it. The one that does then uses it, for as long as a job
 * runs: the others are given it meanwhile. */
static void built_is_given_while_its_maker_uses_it(void **state UNUSED)
{
	AUTO_FREE struct asker *all = xcalloc(ASKERS, sizeof(*all));
	AUTO_NODE_CACHE struct node_cache *c = open_cache("used", 1 << 20);
	AUTO_FREE char *dir = xasprintf("%s/used", folder);
	struct maker m = {.size = 1000};
	struct digest key = key_of("a");
	pthread_t thread[ASKERS];
	atomic_bool cancel = false;
	struct timespec until;
	char hex[HASH_HEX_CAP];
	struct err err = {0};
	AUTO_FD int top = fs_open_dir(dir, &err);
	int looks = -1;

	digest_hex(&key, hex);
	looks = lease_try(top, hex, LOCK_SH, &err); /* nobody makes it until we have looked */
	assert_true(looks >= 0);
	for (size_t i = 0; i < ASKERS; i++) {
		all[i] = (struct asker){.c = c, .m = &m, .cancel = &cancel};
		assert_int_equal(pthread_create(&thread[i], NULL, ask_until, &all[i]), 0);
	}
	clock_sleep_ms(LOOKED_MS);
	(void)close(looks);
	assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
	until.tv_sec += STUCK_S;
	for (size_t i = 0; i < ASKERS; i++) {
		if (pthread_timedjoin_np(thread[i], NULL, &until) == 0)
			continue;
		atomic_store(&cancel, true);
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	}
	for (size_t i = 0; i < ASKERS; i++) {
		assert_ok(all[i].rc, &all[i].err);
		(void)close(all[i].lease.fd);
	}
	assert_int_equal(atomic_load(&m.made), 1);
}

static int die(void *arg UNUSED, struct built *b UNUSED, const char *dir, struct err *err UNUSED)
{
	write_file(dir, "half", 100, 0644);
	(void)raise(SIGKILL);
	return 0;
}

static void built_again_after_a_kill(void **state UNUSED)
{
	struct digest key = key_of("a");
	struct maker m = {.size = 1000};
	struct err err = {0};
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct built_maker by = {.make = die};

		_exit(node_cache_built(open_cache("killed", 1 << 20), &key, &by, NULL, &lease,
		                       &err) < 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(count("killed", "built"), 1);
	assert_int_equal(count("killed", "trees"), 0);
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("killed", 1 << 20);

		assert_int_equal(count("killed", "built"), 0); /* swept when it was opened */
		assert_int_equal(count("killed", "tmp"), 0);
		assert_ok(take(c, "a", &m, &lease, &err), &err);
		assert_false(lease.hit);
		assert_int_equal(count("killed", "built"), 1);
		(void)close(lease.fd);
	}
}

static void overwrite(const char *dir)
{
	AUTO_FREE char *path = xasprintf("%s/bin/tool", dir);
	struct timespec old[2];
	struct stat st;
	AUTO_FD int fd = -1;

	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(chmod(path, 0755), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "y", 1, 0), 1);
	old[0] = st.st_atim;
	old[1] = st.st_mtim;
	assert_int_equal(futimens(fd, old), 0); /* as one who covers his tracks */
	assert_int_equal(fchmod(fd, 0555), 0);
}

static void add(const char *dir)
{
	assert_int_equal(chmod(dir, 0755), 0);
	write_file(dir, "new", 1, 0444);
	assert_int_equal(chmod(dir, 0555), 0);
}

static void drop(const char *dir)
{
	AUTO_FREE char *path = xasprintf("%s/bin/tool", dir), *bin = xasprintf("%s/bin", dir);

	assert_int_equal(chmod(bin, 0755), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(chmod(bin, 0555), 0);
}

static void loosen(const char *dir)
{
	AUTO_FREE char *path = xasprintf("%s/bin/tool", dir);

	assert_int_equal(chmod(path, 0755), 0);
}

static void tear_list(const char *dir)
{
	AUTO_FREE char *hex = xstrndup(strrchr(dir, '/') + 1, 64);
	AUTO_FREE char *list = xasprintf("%s/../../trees/%s/list", dir, hex);

	assert_int_equal(truncate(list, 100), 0);
}

static void lose_list(const char *dir)
{
	AUTO_FREE char *hex = xstrndup(strrchr(dir, '/') + 1, 64);
	AUTO_FREE char *list = xasprintf("%s/../../trees/%s/list", dir, hex);

	assert_int_equal(unlink(list), 0);
}

static void lose_all(const char *dir)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

static void built_is_never_given_when_changed(void **state UNUSED)
{
	static void (*const harm[])(const char *dir) = {overwrite, add,       drop,    loosen,
	                                                tear_list, lose_list, lose_all};

	for (size_t i = 0; i < COUNT(harm); i++) {
		AUTO_FREE char *name = xasprintf("harm%zu", i);
		AUTO_NODE_CACHE struct node_cache *c = open_cache(name, 1 << 20);
		struct maker m = {.size = 1000};
		struct err err = {0};

		assert_ok(take(c, "a", &m, &lease, &err), &err);
		(void)close(lease.fd);
		harm[i](lease.path);
		assert_ok(take(c, "a", &m, &second, &err), &err);
		assert_row(!second.hit, name);
		assert_int_equal(atomic_load(&m.damaged), 1);
		assert_int_equal(count(name, "built"), 1);
		(void)close(second.fd);
	}
}

/* Who holds a damaged tree keeps it; it goes when he does. */
static void built_aside_stays_for_its_holder(void **state UNUSED)
{
	struct maker m = {.size = 1000};
	struct err err = {0};
	struct stat st;
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("held", 1 << 20);

		assert_ok(take(c, "a", &m, &lease, &err), &err);
		add(lease.path);
		assert_ok(take(c, "a", &m, &second, &err), &err);
		assert_string_not_equal(lease.path, second.path);
		assert_int_equal(stat(lease.path, &st), 0);
		assert_int_equal(count("held", "built"), 2);
	}
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("held", 1 << 20);

		assert_int_equal(stat(lease.path, &st), 0); /* swept by nobody */
		(void)close(lease.fd);
	}
	{
		AUTO_NODE_CACHE struct node_cache *c = open_cache("held", 1 << 20);

		assert_int_equal(stat(lease.path, &st), -1);
		assert_int_equal(stat(second.path, &st), 0);
		(void)close(second.fd);
	}
}

static void built_counts_in_the_budget(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("budget", 100000);
	struct maker m = {.size = 30000}, large = {.size = 30000, .grow_to = 9};
	struct err err = {0};
	uint64_t trees, bytes, leased;

	assert_ok(take(c, "a", &m, &lease, &err), &err);
	(void)close(lease.fd);
	assert_ok(take(c, "b", &m, &lease, &err), &err);
	assert_ok(take(c, "c", &m, &second, &err), &err);
	(void)close(second.fd);
	assert_err(take(c, "d", &large, &second, &err), &err, ERR_NO_SPACE, "");
	assert_true(large.made == 1);
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_true(bytes <= 100000);
	assert_int_equal(leased, 1); /* what was held is there, whatever else had to go */
	assert_int_equal(count("budget", "built"), trees);
	large.grow_to = 1; /* 60010: only what is held stays */
	assert_ok(take(c, "e", &large, &second, &err), &err);
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_int_equal(trees, 2);
	assert_int_equal(bytes, 30010 + 60010);
	assert_int_equal(count("budget", "built"), 2);
	(void)close(lease.fd);
	(void)close(second.fd);
}

/* It counts where it is filled, too. */
static void built_is_moved_into_place(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("moved", 100000);
	AUTO_FREE char *elsewhere = xasprintf("%s/" ELSEWHERE, folder);
	struct maker m = {.size = 30000, .elsewhere = elsewhere, .grow_to = 1};
	uint64_t trees, bytes, leased;
	struct err err = {0};
	AUTO_FD int top = fs_open_dir(folder, &err);

	assert_true(top >= 0);
	m.top = top;
	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_int_equal(lease.bytes, 60010);
	(void)close(lease.fd);
	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_true(lease.hit);
	(void)close(lease.fd);
	m.grow_to = 9;
	assert_err(take(c, "b", &m, &lease, &err), &err, ERR_NO_SPACE, "");
	assert_int_equal(atomic_load(&m.made), 2); /* noticed while it was filled */
	assert_ok(node_cache_usage(c, &trees, &bytes, &leased, &err), &err);
	assert_true(bytes <= 100000);
	assert_ok(fs_remove_tree(AT_FDCWD, elsewhere, &err), &err);
}

/* What was made before, or found no room, is not begun before there is enough. */
static void built_reserves_what_it_had(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("sizes", 100000);
	struct maker m = {.size = 30000}, large = {.size = 30000, .grow_to = 1}, grows = large;
	struct err err = {0};

	assert_ok(take(c, "large", &large, &lease, &err), &err);
	(void)close(lease.fd);
	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_ok(take(c, "b", &m, &second, &err), &err); /* takes the place of the large one */
	assert_err(take(c, "large", &large, NULL, &err), &err, ERR_NODE_CACHE_FULL, "");
	assert_int_equal(large.made, 1);
	assert_err(take(c, "new", &grows, NULL, &err), &err, ERR_NODE_CACHE_FULL, "");
	assert_err(take(c, "new", &grows, NULL, &err), &err, ERR_NODE_CACHE_FULL, "");
	assert_int_equal(grows.made, 1);
	(void)close(second.fd);
	assert_ok(take(c, "large", &large, &second, &err), &err);
	assert_int_equal(large.made, 2);
	(void)close(lease.fd);
	(void)close(second.fd);
	assert_ok(take(c, "new", &grows, &second, &err), &err);
	(void)close(second.fd);
}

static void hostile_pipe(const char *dir)
{
	AUTO_FREE char *path = xasprintf("%s/pipe", dir);

	assert_int_equal(mkfifo(path, 0644), 0);
}

static void hostile_name(const char *dir)
{
	write_file(dir, "a\nf 444 1 0 0 - b", 1, 0644);
}

static void hostile_links(const char *dir)
{
	AUTO_FREE char *path = xasprintf("%s/out", dir), *secret = xasprintf("%s/secret", folder);
	AUTO_FREE char *up = xasprintf("%s/up", dir), *closed = xasprintf("%s/closed", dir);

	write_file(folder, "secret", 10, 0600);
	assert_int_equal(symlink(secret, path), 0);
	assert_int_equal(symlink("..", up), 0);
	write_file(dir, "setuid", 10, 06755);
	write_file(dir, "closed/file", 10, 0);
	assert_int_equal(chmod(closed, 0), 0);
}

static void built_of_hostile_content(void **state UNUSED)
{
	AUTO_NODE_CACHE struct node_cache *c = open_cache("hostile", 1 << 20);
	AUTO_FREE char *secret = xasprintf("%s/secret", folder);
	struct maker m = {.size = 1000, .more = hostile_pipe};
	char path[FS_PATH_MAX + 20];
	struct err err = {0};
	struct stat st;

	assert_err(take(c, "a", &m, &lease, &err), &err, ERR_INVALID, "pipe");
	m.more = hostile_name;
	assert_err(take(c, "a", &m, &lease, &err), &err, ERR_INVALID, "");
	assert_empty("hostile");
	m.more = hostile_links;
	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_int_equal(stat(secret, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600); /* what a link leads to is not touched */
	FMT(path, "%s/setuid", lease.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	FMT(path, "%s/closed/file", lease.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	(void)close(lease.fd);
}

static int note_tree(void *arg, const struct node_tree *t, struct err *err UNUSED)
{
	*(struct node_tree *)arg = *t;
	return 0;
}

static void built_is_known_to_the_collector(void **state UNUSED)
{
	AUTO_FREE char *mirror = xasprintf("%s/mirror", folder);
	AUTO_NODE_CACHE struct node_cache *c = open_cache("known", 1 << 20);
	AUTO_BLOBS struct blobs *b = NULL;
	struct maker m = {.size = 1000};
	struct digest key = key_of("a");
	struct node_tree t = {0};
	struct err err = {0};

	assert_ok(blobs_open(&b, mirror, &err), &err);
	assert_ok(take(c, "a", &m, &lease, &err), &err);
	assert_ok(node_cache_each(c, &(struct tree_from){.blobs = b}, note_tree, &t, &err), &err);
	assert_true(t.built && t.held && digest_same(&t.manifest, &key));
	assert_int_equal(t.alone, 1010);
	assert_ok(node_cache_check(c, &(struct tree_from){.blobs = b}, true, &err), &err);
	assert_ok(node_cache_verify(c, &(struct tree_from){.blobs = b}, &key, NULL, NULL, &err),
	          &err);
	assert_err(node_cache_drop(c, &key, &err), &err, ERR_BUSY, "");
	(void)close(lease.fd);
	overwrite(lease.path);
	assert_err(node_cache_verify(c, &(struct tree_from){.blobs = b}, &key, NULL, NULL, &err),
	           &err, ERR_CORRUPT, "bin/tool");
	assert_err(node_cache_check(c, &(struct tree_from){.blobs = b}, false, &err), &err,
	           ERR_CORRUPT, "bin/tool");
	assert_ok(node_cache_drop(c, &key, &err), &err);
	assert_empty("known");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(built_is_made_once_and_read_only),
	cmocka_unit_test(built_fails_and_leaves_nothing),
	cmocka_unit_test(built_by_one_of_many),
	cmocka_unit_test(built_failure_is_shared),
	cmocka_unit_test(built_is_given_while_its_maker_uses_it),
	cmocka_unit_test(built_again_after_a_kill),
	cmocka_unit_test(built_is_never_given_when_changed),
	cmocka_unit_test(built_aside_stays_for_its_holder),
	cmocka_unit_test(built_counts_in_the_budget),
	cmocka_unit_test(built_is_moved_into_place),
	cmocka_unit_test(built_reserves_what_it_had),
	cmocka_unit_test(built_of_hostile_content),
	cmocka_unit_test(built_is_known_to_the_collector),
};
UNIT_MAIN_IN(tests, set_up, tear_down)
