/*
 * test_objstore.c - the suite over the drivers that need nobody else: mem, dir (on disk and without
 * xattrs in tmpfs where it is there), passed before one, fault around both; and what each does
 * beside it: files and folders, links, ETags, leftovers, calls that fail, a deletion that is
 * stopped.
 */
#define UNIT_FOLDER "/tmp/stoker-objstore"
#include "objstore_suite.h"
#include "unit_folder.h"

#include "store/objects/passing.h"

#include <sys/xattr.h>

static struct objstore *open_url(const char *url)
{
	struct objstore *os = NULL;
	struct err err = {0};

	assert_ok(objstore_open(&os, url, NULL, &err), &err);
	return os;
}

static void objstore_mem_conforms(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_url("mem:");

	suite(os);
}

static void dir_url(const char *prefix, const char *name, char url[256])
{
	fmt_fixed(url, 256, "%sdir:%s/%s", prefix, folder, name);
}

static void objstore_dir_conforms(void **state UNUSED)
{
	char url[256];

	dir_url("", "conforms", url);
	{
		AUTO_OBJSTORE struct objstore *os = open_url(url);

		suite(os);
	}
	{ /* nothing was left: neither folders nor temporary files */
		char path[256];

		FMT(path, "%s/conforms", folder);
		assert_int_equal(dir_names(path), 0);
		FMT(path, "%s/conforms/.tmp", folder);
		assert_int_equal(rmdir(path), 0);
	}
}

static int may_all(void *arg UNUSED, struct str token, enum passing_right right UNUSED,
                   const char *key UNUSED, struct err *err)
{
	return str_eq(token, "mine") ? 0 : err_set(err, ERR_AUTH, "another token");
}

/* A folder that we do not open: its files come by descriptor. */
static void objstore_passed_conforms(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *behind = NULL, *os = NULL;
	AUTO_FREE char *path = xasprintf("%s/passing.sock", folder);
	AUTO_FREE char *at = xasprintf("passed:%s", path);
	struct passing_options o = {.path = path, .may = may_all};
	struct objstore_env env = {.token = "mine"};
	struct passing *p = NULL;
	char url[256], id[OBJSTORE_UPLOAD_CAP];
	struct err err = {0};

	dir_url("", "passed", url);
	behind = open_url(url);
	o.objects = behind;
	assert_err(objstore_open(&os, at, NULL, &err), &err, ERR_INVALID, "token");
	assert_ok(objstore_open(&os, at, &env, &err), &err);
	assert_ok(passing_start(&p, &o, &err), &err);
	lister = behind;
	suite(os);
	assert_err(objstore_parts_begin(os, "p/x", id, &err), &err, ERR_UNSUPPORTED, "");
	passing_stop(p);
}

static void objstore_fault_conforms(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_url("fault:0:mem:");

	suite(os);
}

static void objstore_dir_excludes_file_and_folder(void **state UNUSED)
{
	char url[256];
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct err err = {0};
	struct objstore_info info;

	dir_url("", "both", url);
	os = open_url(url);
	assert_ok(objstore_put(os, "a/b", STR_LIT("1"), &err), &err);
	assert_err(objstore_put(os, "a", STR_LIT("1"), &err), &err, ERR_CONFLICT, "below \"a/\"");
	assert_err(objstore_put(os, "a/b/c", STR_LIT("1"), &err), &err, ERR_CONFLICT, "\"b\"");
	assert_err(objstore_stat(os, "a", &info, &err), &err, ERR_NOT_FOUND, "");
	assert_err(objstore_stat(os, "a/b/c", &info, &err), &err, ERR_NOT_FOUND, "");
	assert_ok(objstore_del(os, "a", &err), &err);
	assert_ok(objstore_del(os, "a/b/c", &err), &err);
	assert_ok(objstore_del(os, "a/b", &err), &err);
	assert_ok(objstore_put(os, "a", STR_LIT("1"), &err),
	          &err); /* the folder went with its last key */
	assert_err(objstore_put(os, ".tmp/x", STR_LIT("1"), &err), &err, ERR_INVALID, ".tmp");
	assert_err(objstore_put(os, ".tmp", STR_LIT("1"), &err), &err, ERR_INVALID, ".tmp");
	assert_ok(objstore_put(os, ".tmpx", STR_LIT("1"), &err), &err);
}

static void objstore_dir_follows_no_link(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT(100);
	char url[256], path[256];
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct err err = {0};
	struct keys got;

	dir_url("", "links", url);
	os = open_url(url);
	FMT(path, "%s/links/out", folder);
	assert_int_equal(symlink("/etc", path), 0);
	FMT(path, "%s/links/file", folder);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	if (objstore_get(os, "out/passwd", &b, &err) == 0 ||
	    objstore_get(os, "file", &b, &(struct err){0}) == 0)
		fail_msg("a link was followed");
	err_clear(&err);
	assert_err(objstore_put(os, "out/x", STR_LIT("1"), &err), &err, ERR_CONFLICT, "out");
	list_all(os, "", 10, &got);
	assert_int_equal(got.n, 0);
}

/* An ETag lives as long as the content that it was made for. */
static void objstore_dir_etag_of_changed_file(void **state UNUSED)
{
	char url[256], path[256];
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct objstore_info before, after;
	struct err err = {0};

	dir_url("", "etag", url);
	os = open_url(url);
	assert_ok(objstore_put(os, "k", STR_LIT("hello"), &err), &err);
	assert_ok(objstore_stat(os, "k", &before, &err), &err);
	FMT(path, "%s/etag/k", folder);
	{
		AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
		struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};

		assert_ok(fs_write_all(fd, "jello", 5, &err), &err);
		assert_int_equal(futimens(fd, t), 0);
	}
	assert_ok(objstore_stat(os, "k", &after, &err), &err);
	assert_string_not_equal(before.etag, after.etag);
	(void)setxattr(path, "user.stoker.etag", "\"><script> 5 1000000000000", 25, 0);
	assert_ok(objstore_stat(os, "k", &after, &err), &err);
	assert_null(strchr(after.etag, '<'));
}

static void objstore_dir_sweeps(void **state UNUSED)
{
	char url[256], id[OBJSTORE_UPLOAD_CAP];
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct objstore_part part;
	struct objstore_info info;
	struct err err = {0};
	struct objstore_swept swept = {9, 9};

	dir_url("", "sweep", url);
	os = open_url(url);
	assert_ok(objstore_parts_begin(os, "k", id, &err), &err);
	put_part(os, "k", id, 1, STR_LIT("x"), true, &part);
	assert_ok(objstore_sweep(os, 3600, false, &swept, &err), &err);
	assert_int_equal(swept.uploads, 0);
	assert_ok(objstore_sweep(os, 0, true, &swept, &err), &err);
	assert_int_equal(swept.uploads, 1);
	assert_true(swept.bytes > 0); /* the part, and what is known of it */
	assert_ok(objstore_sweep(os, 0, false, &swept, &err), &err);
	assert_int_equal(swept.uploads, 1);
	assert_err(objstore_parts_end(os, "k", id, &part, 1, &info, &err), &err, ERR_NOT_FOUND,
	           "NoSuchUpload");
	assert_err(objstore_parts_abort(os, "k", "../../x", &err), &err, ERR_NOT_FOUND,
	           "NoSuchUpload");
	assert_err(objstore_parts_abort(os, "k", "", &err), &err, ERR_NOT_FOUND, "upload");
}

/* Clients that cut a file as all do: no byte is written twice. Others: copied together. */
static void objstore_dir_parts_of_other_sizes(void **state UNUSED)
{
	enum { A = 6 << 20, B = 5 << 20 };
	AUTO_FREE char *body = pattern(A + B + A, 5);
	char url[256], id[OBJSTORE_UPLOAD_CAP];
	AUTO_OBJSTORE struct objstore *os = NULL;
	struct objstore_part part[3];
	struct objstore_info info;
	struct err err = {0};

	dir_url("", "sizes", url);
	os = open_url(url);
	assert_ok(objstore_parts_begin(os, "k", id, &err), &err);
	put_part(os, "k", id, 10, str_n(body, A), true, &part[0]);
	put_part(os, "k", id, 20, str_n(body + A, B), true, &part[1]);
	put_part(os, "k", id, 21, str_n(body + A + B, A), true, &part[2]);
	assert_ok(objstore_parts_end(os, "k", id, part, 3, &info, &err), &err);
	same_object(os, "k", body, A + B + A);
	/* more parts than are wanted */
	assert_ok(objstore_parts_begin(os, "k2", id, &err), &err);
	put_part(os, "k2", id, 1, str_n(body, A), true, &part[0]);
	put_part(os, "k2", id, 2, str_n(body, A), true, &part[1]);
	assert_ok(objstore_parts_end(os, "k2", id, part, 1, &info, &err), &err);
	same_object(os, "k2", body, A);
}

static void objstore_bad_urls(void **state UNUSED)
{
	static const char *const bad[] = {
		"",       "dir",    "dir:",         "dir:relative", "mem:x",
		"ftp:/x", "fault:", "fault:x:mem:", "fault:1:no:",  "s3:http://x/b",
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct objstore *os = NULL;
		struct err err = {0};

		assert_row(objstore_open(&os, bad[i], NULL, &err) < 0, bad[i]);
		assert_row(err.code == ERR_INVALID && os == NULL, bad[i]);
	}
}

static int some_calls(struct objstore *os, struct err *err)
{
	AUTO_BUF struct buf b = BUF_INIT(100);
	struct source s = {.left = STR_LIT("abc"), .step = 2};
	struct objstore_part part = {.number = 1};
	char id[OBJSTORE_UPLOAD_CAP];
	struct objstore_info info;

	if (objstore_put(os, "from", STR_LIT("x"), err) < 0 ||
	    objstore_get(os, "from", &b, err) < 0 || objstore_copy(os, "from", "to", err) < 0 ||
	    objstore_del(os, "from", err) < 0 || objstore_stat(os, "to", &info, err) < 0 ||
	    objstore_read(os, "to", 0, 1, gather, &b, NULL, err) < 0 ||
	    objstore_parts_begin(os, "up", id, err) < 0 ||
	    objstore_parts_put(os, "up", id, 1, 3, pull, &s, part.etag, err) < 0)
		return -1;
	return objstore_parts_end(os, "up", id, &part, 1, &info, err);
}

static void objstore_every_call_can_fail(void **state UNUSED)
{
	for (int n = 1;; n++) {
		AUTO_OBJSTORE struct objstore *os = NULL;
		struct err err = {0};
		char url[256], front[32];

		FMT(front, "fault:%d:", n);
		dir_url(front, "fails", url);
		os = open_url(url);
		if (some_calls(os, &err) == 0) {
			assert_int_equal(n, 10); /* nine calls, nine failures, then success */
			return;
		}
		assert_true(err_info(&err)->retry);
		assert_non_null(strstr(err.msg, "fault:")); /* the message says where */
	}
}

#define MORE_THAN_A_PAGE 1001

static atomic_bool stopping;

static int list_and_stop(struct objstore *os, const char *prefix, const char *after, size_t max,
                         objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	atomic_store(&stopping, true);
	return objstore_mem.list(os, prefix, after, max, each, arg, more, err);
}

/* Who deletes learns that something stayed. */
static int read_late(void *arg UNUSED, void *p UNUSED, size_t cap UNUSED, size_t *n UNUSED,
                     struct err *err)
{
	return err_set(err, ERR_TIMEOUT, "nothing came");
}

static int sink_full(void *arg UNUSED, const void *p UNUSED, size_t n UNUSED, struct err *err)
{
	return err_set(err, ERR_NO_SPACE, "no room here");
}

/* Who sends slowly, or has no room for what is read, does not make the store one that is away. */
static void objstore_is_not_away_for_what_others_do(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_url("mem:");
	char id[OBJSTORE_UPLOAD_CAP], etag[80], why[OBJSTORE_WHY_MAX];
	struct outage outage;
	struct err err = {0};

	assert_ok(objstore_put(os, "a", STR_LIT("1"), &err), &err);
	assert_ok(objstore_parts_begin(os, "p", id, &err), &err);
	assert_err(objstore_put_stream(os, "a", 9, read_late, NULL, NULL, &err), &err, ERR_TIMEOUT,
	           "nothing came");
	assert_err(objstore_parts_put(os, "p", id, 1, 9, read_late, NULL, etag, &err), &err,
	           ERR_TIMEOUT, "nothing came");
	assert_err(objstore_read(os, "a", 0, 1, sink_full, NULL, NULL, &err), &err, ERR_NO_SPACE,
	           "no room here");
	objstore_outage(os, &outage, why);
	assert_int_equal(outage.since_ms, 0);
}

static void objstore_del_below_is_canceled(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_url("mem:");
	struct objstore_ops ops = *os->ops;
	struct objstore_info info;
	struct err err = {0};
	bool more = true;
	char key[16];

	ops.list = list_and_stop;
	os->ops = &ops;
	for (unsigned i = 0; i < MORE_THAN_A_PAGE; i++) {
		FMT(key, "s/%04u", i);
		assert_ok(objstore_put(os, key, STR_LIT("x"), &err), &err);
	}
	atomic_store(&stopping, false);
	assert_err(objstore_del_below(os, "s/", NULL, &stopping, &err), &err, ERR_CANCELED, "");
	assert_err(objstore_stat(os, "s/0999", &info, &err), &err, ERR_NOT_FOUND, "");
	same_object(os, "s/1000", "x", 1);
	/* too late: the last page was the one it stopped at */
	atomic_store(&stopping, false);
	assert_ok(objstore_del_below(os, "s/", NULL, &stopping, &err), &err);
	assert_ok(objstore_list(os, "s/", NULL, 10, NULL, NULL, &more, &err), &err);
	assert_false(more);
	os->ops = &objstore_mem;
}

static int read_nothing(void *arg, void *p UNUSED, size_t cap UNUSED, size_t *n, struct err *err)
{
	*n = 0;
	return err_set(err, *(const enum err_code *)arg, "who sends is at fault");
}

/* A client that stalls, or that has lost the right to write: the store is not away for it. */
static void objstore_reader_at_fault(void **state UNUSED)
{
	static const enum err_code codes[] = {ERR_TIMEOUT, ERR_DENIED, ERR_UNAVAILABLE};
	AUTO_OBJSTORE struct objstore *os = open_url("mem:");
	char why[OBJSTORE_WHY_MAX], id[OBJSTORE_UPLOAD_CAP], etag[80];
	struct err err = {0};
	struct outage outage;

	assert_ok(objstore_parts_begin(os, "k", id, &err), &err);
	for (size_t i = 0; i < COUNT(codes); i++) {
		enum err_code code = codes[i];

		assert_err(objstore_put_stream(os, "k", 1, read_nothing, &code, NULL, &err), &err,
		           code, "who sends");
		assert_err(objstore_parts_put(os, "k", id, 1, 1, read_nothing, &code, etag, &err),
		           &err, code, "who sends");
	}
	objstore_outage(os, &outage, why);
	assert_int_equal(outage.since_ms, 0);
}

static struct err stat_error;

static int stat_fails(struct objstore *os UNUSED, const char *key UNUSED,
                      struct objstore_info *info UNUSED, struct err *err)
{
	*err = stat_error;
	return -1;
}

/* What people are told of one that is away says whether it is full, refuses, or is not there. */
static void objstore_says_its_state(void **state UNUSED)
{
	static const struct {
		enum err_code id;
		const char *said, *state;
	} rows[] = {
		{ERR_NO_SPACE, "XMinioStorageFull", "is full"},
		{ERR_HOST_UNREACHABLE, "Connection refused", "cannot be reached"},
		{ERR_TIMEOUT, "too slow", "does not answer"},
		{ERR_DENIED, "AccessDenied", "refuses the server's keys"},
		{ERR_CLOCK_DIFFERS, "RequestTimeTooSkewed",
	         "says that the server's clock is wrong"},
		{ERR_UNAVAILABLE, "NoSuchBucket: it is not there", "has no such bucket"},
		{ERR_UNAVAILABLE, "SlowDown", "fails"},
	};
	AUTO_OBJSTORE struct objstore *os = open_url("mem:");
	struct objstore_ops ops = *os->ops;
	struct objstore_info info;
	struct err err = {0};

	ops.stat = stat_fails;
	for (size_t i = 0; i < COUNT(rows); i++) {
		os->ops = &ops;
		err_clear(&stat_error);
		err_set(&stat_error, rows[i].id, "%s", rows[i].said);
		assert_int_equal(objstore_stat(os, "a", &info, &err), -1);
		err_clear(&err);
		assert_string_equal(objstore_state(os), rows[i].state);
		os->ops = &objstore_mem;
		assert_err(objstore_stat(os, "a", &info, &err), &err, ERR_NOT_FOUND, "");
		assert_null(objstore_state(os));
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(objstore_reader_at_fault),
	cmocka_unit_test(objstore_says_its_state),
	cmocka_unit_test(objstore_bad_urls),
	cmocka_unit_test(objstore_mem_conforms),
	cmocka_unit_test(objstore_dir_conforms),
	cmocka_unit_test(objstore_passed_conforms),
	cmocka_unit_test(objstore_fault_conforms),
	cmocka_unit_test(objstore_dir_excludes_file_and_folder),
	cmocka_unit_test(objstore_dir_follows_no_link),
	cmocka_unit_test(objstore_dir_etag_of_changed_file),
	cmocka_unit_test(objstore_dir_sweeps),
	cmocka_unit_test(objstore_dir_parts_of_other_sizes),
	cmocka_unit_test(objstore_every_call_can_fail),
	cmocka_unit_test(objstore_del_below_is_canceled),
	cmocka_unit_test(objstore_is_not_away_for_what_others_do),
};

UNIT_MAIN_IN(tests, set_up, tear_down)
