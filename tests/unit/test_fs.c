/* test_fs.c - files: atomic writes, names that may not lead out, trees removed. */
#include "base/fs.h"

#include "unit.h"

#include <sys/stat.h>

struct world {
	char dir[40];
	int fd;
	struct err err;
};

static void setup(struct world *w)
{
	memset(w, 0, sizeof(*w));
	FMT(w->dir, "/tmp/test-fs-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->fd = fs_open_dir(w->dir, &w->err);
	assert_true(w->fd >= 0);
}

static void done(struct world *w)
{
	(void)close(w->fd);
	assert_ok(fs_remove_tree(AT_FDCWD, w->dir, &w->err), &w->err);
	assert_int_equal(access(w->dir, F_OK), -1);
}

static void test_plain(void **state)
{
	static const char *const bad[] = {"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a"};
	static const char *const good[] = {"a", "a/b", ".a", "..a", "a..", "a b/c"};

	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_row(!fs_path_is_plain(str_of(bad[i])), bad[i]);
	for (size_t i = 0; i < COUNT(good); i++)
		assert_row(fs_path_is_plain(str_of(good[i])), good[i]);
	assert_false(fs_path_is_plain(STR_LIT("a\0b")));
}

static void test_write_read(void **state)
{
	struct world w;
	AUTO_BUF struct buf b = BUF_INIT(5);
	AUTO_BUF struct buf rest = BUF_INIT(100);
	uint64_t free_bytes = 0, total = 0;

	(void)state;
	setup(&w);
	assert_err(fs_read(w.fd, "none", &b, &w.err), &w.err, ERR_NOT_FOUND, "none");
	assert_err(fs_write_atomic(w.fd, "no/folder", STR_LIT("x"), 0600, &w.err), &w.err,
	           ERR_NOT_FOUND, "no/folder");
	assert_ok(fs_write_atomic(w.fd, "f", STR_LIT("12345"), 0640, &w.err), &w.err);
	assert_ok(fs_read(w.fd, "f", &b, &w.err), &w.err); /* just fits */
	assert_string_equal(buf_cstr(&b), "12345");
	assert_ok(fs_write_atomic(w.fd, "f", STR_LIT("123456"), 0640, &w.err), &w.err);
	buf_clear(&b);
	assert_err(fs_read(w.fd, "f", &b, &w.err), &w.err, ERR_TOO_BIG, "larger than 5");
	assert_ok(fs_read(w.fd, "f", &rest, &w.err), &w.err);
	assert_ok(fs_read(w.fd, "f", &rest, &w.err), &w.err); /* appends */
	assert_string_equal(buf_cstr(&rest), "123456123456");
	assert_err(fs_read(w.fd, ".", &rest, &w.err), &w.err, ERR_INVALID, "is a folder");
	assert_ok(fs_free_bytes(w.dir, &free_bytes, &total, &w.err), &w.err);
	assert_true(total >= free_bytes);
	done(&w);
}

static void test_inodes(void **state)
{
	struct world w;
	uint64_t total = 0, left = 0;

	(void)state;
	setup(&w);
	if (fs_inodes(w.dir, &total, &left)) /* btrfs has no such number */
		assert_true(total > 0 && left <= total);
	else
		assert_true(total == 0 || left == 0);
	assert_false(fs_inodes("/proc", &total, &left));
	assert_false(fs_inodes("/no/such/folder", &total, &left));
	done(&w);
}

static void test_mkdirs(void **state)
{
	struct world w;
	AUTO_FD int sub = -1;

	(void)state;
	setup(&w);
	assert_ok(fs_mkdirs(w.fd, "a/b//c", 0700, &w.err), &w.err);
	assert_ok(fs_mkdirs(w.fd, "a/b/c", 0700, &w.err), &w.err);
	assert_ok(fs_write_atomic(w.fd, "a/f", STR_LIT(""), 0600, &w.err), &w.err);
	assert_err(fs_mkdirs(w.fd, "a/f", 0700, &w.err), &w.err, ERR_CONFLICT, "a/f");
	assert_err(fs_mkdirs(w.fd, "a/f/g", 0700, &w.err), &w.err, ERR_CONFLICT, "a/f");
	assert_err(fs_mkdirs(w.fd, "", 0700, &w.err), &w.err, ERR_INVALID, "0 bytes");
	sub = fs_open_beneath(w.fd, "a/b", O_RDONLY | O_DIRECTORY, 0700, &w.err);
	assert_true(sub >= 0);
	done(&w);
}

static void test_beneath(void **state)
{
	struct world w;
	AUTO_FD int made = -1;
	AUTO_FD int inside = -1;

	(void)state;
	setup(&w);
	assert_ok(fs_mkdirs(w.fd, "in", 0700, &w.err), &w.err);
	assert_int_equal(symlinkat("/etc", w.fd, "out"), 0);
	assert_int_equal(symlinkat("../..", w.fd, "in/up"), 0);
	assert_int_equal(symlinkat("in", w.fd, "link"), 0);
	assert_err(fs_open_beneath(w.fd, "out/passwd", O_RDONLY, 0, &w.err), &w.err, ERR_DENIED,
	           "leads out");
	assert_err(fs_open_beneath(w.fd, "in/up/x", O_RDONLY, 0, &w.err), &w.err, ERR_DENIED,
	           "leads out");
	assert_err(fs_open_beneath(w.fd, "../x", O_RDONLY, 0, &w.err), &w.err, ERR_DENIED,
	           "leads out");
	assert_err(fs_open_beneath(w.fd, "/etc/passwd", O_RDONLY, 0, &w.err), &w.err, ERR_DENIED,
	           "leads out");
	assert_err(fs_open_beneath(w.fd, "none", O_RDONLY, 0, &w.err), &w.err, ERR_NOT_FOUND, "");
	made = fs_open_beneath(w.fd, "in/new", O_WRONLY | O_CREAT, 0600, &w.err);
	assert_true(made >= 0);
	inside = fs_open_beneath(w.fd, "link/new", O_RDONLY, 0, &w.err);
	assert_true(inside >= 0);
	done(&w);
}

/* A job may nest folders as deep as it likes, and leave names in the way of what is lifted. */
static void test_remove_deep_tree(void **state)
{
	enum { DEPTH = 1500 };
	struct world w;
	struct stat st;
	int fd;

	(void)state;
	setup(&w);
	assert_ok(fs_mkdirs(w.fd, "t/.lifted-0/x", 0700, &w.err), &w.err);
	fd = fs_open_beneath(w.fd, "t", O_RDONLY | O_DIRECTORY, 0, &w.err);
	assert_true(fd >= 0);
	for (int i = 0; i < DEPTH; i++) {
		int sub;

		assert_int_equal(mkdirat(fd, "d", 0700), 0);
		sub = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(sub >= 0);
		if (i % 100 == 99) {
			assert_ok(fs_write_atomic(fd, "f", STR_LIT("x"), 0600, &w.err), &w.err);
			assert_int_equal(fchmod(fd, 0), 0); /* may not be entered either */
		}
		(void)close(fd);
		fd = sub;
	}
	(void)close(fd);
	assert_ok(fs_remove_tree(w.fd, "t", &w.err), &w.err);
	assert_int_equal(fstatat(w.fd, "t", &st, 0), -1);
	done(&w);
}

static void test_remove_tree(void **state)
{
	struct world w;
	struct stat st;

	(void)state;
	setup(&w);
	assert_ok(fs_remove_tree(w.fd, "none", &w.err), &w.err);
	assert_ok(fs_mkdirs(w.fd, "keep", 0755, &w.err), &w.err);
	assert_ok(fs_write_atomic(w.fd, "keep/file", STR_LIT("x"), 0400, &w.err), &w.err);
	assert_ok(fs_mkdirs(w.fd, "t/a/b/c", 0700, &w.err), &w.err);
	assert_ok(fs_write_atomic(w.fd, "t/a/b/f", STR_LIT("x"), 0400, &w.err), &w.err);
	assert_int_equal(symlinkat("../keep", w.fd, "t/link"), 0);
	assert_int_equal(symlinkat("/nowhere", w.fd, "t/broken"), 0);
	assert_int_equal(fchmodat(w.fd, "t/a/b", 0, 0), 0); /* may not be entered */
	assert_int_equal(fchmodat(w.fd, "keep", 0500, 0), 0);
	assert_ok(fs_remove_tree(w.fd, "t", &w.err), &w.err);
	assert_int_equal(fstatat(w.fd, "t", &st, 0), -1);
	assert_int_equal(fstatat(w.fd, "keep/file", &st, 0), 0);
	assert_int_equal(fstatat(w.fd, "keep", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0500); /* not even made writable through the link */
	assert_int_equal(symlinkat("keep", w.fd, "l"), 0);
	assert_ok(fs_remove_tree(w.fd, "l", &w.err), &w.err);
	assert_int_equal(fstatat(w.fd, "keep/file", &st, 0), 0);
	done(&w);
}

static int count_name(void *arg, int dirfd, const char *name, struct err *err)
{
	size_t *n = arg;

	assert_int_equal(faccessat(dirfd, name, F_OK, 0), 0);
	return ++*n < 3 ? 0 : err_set(err, ERR_CANCELED, "enough");
}

static void test_each_name(void **state)
{
	struct world w;
	struct err err = {0};
	size_t n = 0;

	(void)state;
	setup(&w);
	for (const char *const *name = (const char *const[]){"a", "b", ".hidden", NULL};
	     *name != NULL; name++)
		assert_int_equal(fs_write_atomic(w.fd, *name, STR_LIT("x"), 0600, &err), 0);
	assert_int_equal(fs_each_name(fs_open_dir(w.dir, &err), "w", count_name, &n, &err), 0);
	assert_int_equal(n, 2);
	n = 1; /* fn's third name is one too many */
	assert_int_equal(fs_each_name(fs_open_dir(w.dir, &err), "w", count_name, &n, &err), -1);
	assert_int_equal(err.code, ERR_CANCELED);
	err_clear(&err);
	n = 0;
	assert_int_equal(fs_each_name(open("/dev/null", O_RDONLY | O_CLOEXEC), "no folder",
	                              count_name, &n, &err),
	                 -1);
	assert_non_null(strstr(err.msg, "listing no folder"));
	done(&w);
}

static void test_lock_and_pio(void **state)
{
	struct world w;
	char path[60], text[6] = {0};
	AUTO_FD int lock = -1;
	AUTO_FD int fd = -1;

	(void)state;
	setup(&w);
	FMT(path, "%s/lock", w.dir);
	lock = fs_lock(path, &w.err);
	assert_true(lock >= 0);
	assert_err(fs_lock(path, &w.err), &w.err, ERR_BUSY, "locked by another");
	fd = openat(w.fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_ok(fs_pwrite_all(fd, "hello", 5, 3, &w.err), &w.err);
	assert_ok(fs_pread_all(fd, text, 5, 3, &w.err), &w.err);
	assert_string_equal(text, "hello");
	assert_err(fs_pread_all(fd, text, 5, 4, &w.err), &w.err, ERR_IO, "ends at byte 8");
	assert_ok(fs_rename(w.fd, "f", w.fd, "g", &w.err), &w.err);
	assert_err(fs_rename(w.fd, "f", w.fd, "g", &w.err), &w.err, ERR_NOT_FOUND, "f to g");
	assert_false(fs_is_network("/none"));
	done(&w);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_plain),
	cmocka_unit_test(test_write_read),
	cmocka_unit_test(test_inodes),
	cmocka_unit_test(test_mkdirs),
	cmocka_unit_test(test_beneath),
	cmocka_unit_test(test_remove_tree),
	cmocka_unit_test(test_remove_deep_tree),
	cmocka_unit_test(test_lock_and_pio),
	cmocka_unit_test(test_each_name),
};

UNIT_MAIN(tests)
