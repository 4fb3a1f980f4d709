/* test_usage.c - the parallel walk: what it counts, what it leaves out, and how it ends. */
#define UNIT_FOLDER "/tmp/stoker-usage"
#include "unit_folder.h"

#include "store/common/usage.h"

static void make_file(const char *name, size_t n)
{
	AUTO_FREE char *path = xasprintf("%s/%s", folder, name);
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)n), 0);
}

/* What nanoseconds in 64 bits do not reach; ext4 and what is newer store it. */
#define FUTURE_S 13569465600 /* in the year 2400 */

static void set_time(const char *name, time_t s)
{
	AUTO_FREE char *path = xasprintf("%s/%s", folder, name);
	struct timespec both[] = {{.tv_sec = s}, {.tv_sec = s}};

	assert_int_equal(utimensat(AT_FDCWD, path, both, 0), 0);
}

static void make_folder(const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/%s", folder, name);

	assert_int_equal(mkdir(path, 0755), 0);
}

struct seen {
	uint64_t entries[USAGE_THREADS_MAX], again[USAGE_THREADS_MAX], bytes[USAGE_THREADS_MAX];
	bool deep[USAGE_THREADS_MAX];
};

static void see(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct seen *s = arg;

	s->entries[slot]++;
	s->again[slot] += e->again;
	s->bytes[slot] += S_ISREG(e->mode) && !e->again ? e->size : 0;
	if (strcmp(e->path, "d7/sub/f") == 0)
		s->deep[slot] = e->size == 7 && e->mtime_ns > 0;
}

static void usage_counts(void **state UNUSED)
{
	AUTO_FREE char *a = xasprintf("%s/d0/f0", folder);
	AUTO_FREE char *b = xasprintf("%s/d1/again", folder);
	AUTO_FREE char *link = xasprintf("%s/loop", folder);
	AUTO_FREE char *pipe = xasprintf("%s/pipe", folder);
	uint64_t want = 0;
	struct err err = {0};

	for (unsigned d = 0; d < 20; d++) {
		char name[32];

		FMT(name, "d%u", d);
		make_folder(name);
		for (unsigned f = 0; f < 30; f++) {
			FMT(name, "d%u/f%u", d, f);
			make_file(name, d * 100 + f);
			want += d * 100 + f;
		}
		FMT(name, "d%u/sub", d);
		make_folder(name);
		FMT(name, "d%u/sub/f", d);
		make_file(name, d);
		set_time(name, FUTURE_S);
		want += d;
	}
	assert_int_equal(linkat(AT_FDCWD, a, AT_FDCWD, b, 0), 0);
	assert_int_equal(symlink("..", link), 0);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	for (unsigned threads = 0; threads <= 5; threads++) {
		struct usage_total t = {0};
		struct seen s = {0};
		uint64_t entries = 0, again = 0, bytes = 0;
		bool deep = false;

		assert_ok(usage_walk(folder, threads, see, &s, NULL, &t, &err), &err);
		assert_int_equal(t.files, 20 * 31);
		assert_int_equal(t.folders, 40);
		assert_int_equal(t.links, 1);
		assert_int_equal(t.others, 1);
		assert_int_equal(t.bytes, want);
		assert_int_equal(t.unreadable, 0);
		for (unsigned i = 0; i < USAGE_THREADS_MAX; i++) {
			entries += s.entries[i];
			again += s.again[i];
			bytes += s.bytes[i];
			deep = deep || s.deep[i];
		}
		assert_int_equal(entries, 20 * 31 + 40 + 2 + 1); /* the second name is told too */
		assert_int_equal(again, 1);
		assert_int_equal(bytes, want);
		assert_true(deep);
	}
}

static void usage_disk_bytes_are_allocated_ones(void **state UNUSED)
{
	struct usage_total before = {0}, after = {0};
	AUTO_FREE char *path = xasprintf("%s/solid", folder);
	AUTO_FREE char *body = xcalloc(1, 1 << 20);
	struct err err = {0};

	assert_ok(usage_walk(folder, 1, NULL, NULL, NULL, &before, &err), &err);
	make_file("hole", 1 << 30);
	{
		AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		assert_ok(fs_write_all(fd, body, 1 << 20, &err), &err);
		assert_int_equal(fsync(fd), 0);
	}
	assert_ok(usage_walk(folder, 1, NULL, NULL, NULL, &after, &err), &err);
	assert_int_equal(after.bytes - before.bytes, ((uint64_t)1 << 30) + (1 << 20));
	assert_true(after.disk_bytes - before.disk_bytes >= 1 << 20);
	assert_true(after.disk_bytes - before.disk_bytes < 1 << 29);
}

static void usage_ends_when_told(void **state UNUSED)
{
	struct usage_total t = {.files = 77};
	atomic_bool cancel = true;
	struct err err = {0};

	assert_err(usage_walk(folder, 3, NULL, NULL, &cancel, &t, &err), &err, ERR_CANCELED,
	           folder);
	assert_err(usage_walk("/no/such/folder", 3, NULL, NULL, NULL, &t, &err), &err,
	           ERR_NOT_FOUND, "/no/such/folder");
	assert_int_equal(t.files, 77); /* on failure outputs are untouched */
}

static void usage_of_a_deep_tree(void **state UNUSED)
{
	AUTO_FD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct usage_total t = {0};
	struct err err = {0};

	assert_int_equal(mkdirat(fd, "deep", 0755), 0);
	for (int i = 0; i < 100; i++) {
		int next = openat(fd, i == 0 ? "deep" : "down", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		assert_true(next >= 0);
		(void)close(fd);
		fd = next;
		assert_int_equal(mkdirat(fd, "down", 0755), 0);
	}
	assert_ok(usage_walk(folder, 4, NULL, NULL, NULL, &t, &err), &err);
	assert_int_equal(t.folders, 40 + 101);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(usage_counts),
	cmocka_unit_test(usage_disk_bytes_are_allocated_ones),
	cmocka_unit_test(usage_ends_when_told),
	cmocka_unit_test(usage_of_a_deep_tree),
};

UNIT_MAIN_IN(tests, set_up, tear_down)
