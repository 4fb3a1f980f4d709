/* test_source.c - Hub, S3, web and local sources against a server that misbehaves as it is told. */
#include "faulty.h"

#include "base/clock.h"
#include "store/sources/source.h"

#include <pthread.h>

#define SMALL_SIZE 3000
#define LARGE_SIZE ((size_t)700000) /* the server keeps it by Git-LFS */
#define S3_SECRET "{\"aws_access_key_id\":\"AKID\",\"aws_secret_access_key\":\"shh\"}"

static struct faulty server;

static int setup(void **state UNUSED)
{
	faulty_folder(&server);
	faulty_fill(&server, "config.json", SMALL_SIZE, 1);
	faulty_fill(&server, "model.safetensors", LARGE_SIZE, 2);
	faulty_fill(&server, "sub/deep/a b+c%.txt", 17, 3);
	faulty_fill(&server, "sub/empty", 0, 0);
	faulty_start(&server);
	return 0;
}

static int teardown(void **state UNUSED)
{
	faulty_stop(&server);
	return 0;
}

/* --- a source with a fault ------------------------------------------------------------------- */

struct probe {
	const char *url;    /* %s stands for the server's address */
	const char *faults; /* of hf and s3 endpoints */
	const char *secret;
	struct glob_filter filter;
	const char *revision;
};

/* Options and URL; `base` and `url` are the caller's memory. */
static int probe_open(const struct probe *p, struct arena *a, struct source **s, struct err *err)
{
	const char *roots[] = {server.root};
	const char *faults = p->faults != NULL ? p->faults : "";
	char *endpoint =
		arena_printf(a, "%s%s%s", server.base, *faults != '\0' ? "/f/" : "", faults);
	struct source_options o = {.client = server.client,
	                           .endpoint = strstr(p->url, "://") != NULL ? endpoint : NULL,
	                           .file_roots = roots,
	                           .n_file_roots = 1,
	                           .secret = str_of(p->secret),
	                           .stall_ms = 1000};
	const char *mark = strchr(p->url, '@') != NULL && p->url[0] == '@' ? p->url + 1 : p->url;
	char *url = p->url[0] == '@'   ? arena_printf(a, "%s%s%s/plain/%s", server.base,
                                                    *faults != '\0' ? "/f/" : "", faults, mark)
	            : p->url[0] == '/' ? arena_printf(a, "file://%s%s", server.root, p->url)
	                               : arena_cstr(a, p->url);

	return source_open(s, url, &o, err);
}

struct got {
	uint8_t *p;
	size_t n, cap;
};

static int keep(void *arg, const void *p, size_t n, struct err *err)
{
	struct got *g = arg;

	if (n > g->cap - g->n)
		return err_set(err, ERR_TOO_BIG, "test buffer");
	memcpy(g->p + g->n, p, n);
	g->n += n;
	return 0;
}

static const struct source_file *file_of(const struct source_listing *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->file[i].path, path) == 0)
			return &l->file[i];
	}
	return NULL;
}

/* Reads a range and compares it with what the server has. */
static int read_range(struct source *s, const struct source_file *f, uint8_t seed, uint64_t first,
                      uint64_t count, struct err *err)
{
	AUTO_FREE uint8_t *p = xmalloc((size_t)count + 1);
	struct got g = {p, 0, (size_t)count};
	const struct http_sink to = {.put = keep, .arg = &g};

	if (source_read(s, f, first, count, &to, NULL, err) < 0)
		return -1;
	assert_int_equal(g.n, count);
	for (size_t i = 0; i < g.n; i++)
		assert_int_equal(p[i], faulty_byte(first + i, seed));
	return 0;
}

/* --- URLs ------------------------------------------------------------------------------------ */

static void source_bad_urls(void **state UNUSED)
{
	static const struct {
		const char *url, *secret;
		enum err_code code;
	} rows[] = {
		{"model", NULL, ERR_SOURCE_INVALID},
		{"ftp://host/x", NULL, ERR_SOURCE_INVALID},
		{"hf://", NULL, ERR_SOURCE_INVALID},
		{"hf:///x/y", NULL, ERR_SOURCE_INVALID},
		{"hf://gpt2", NULL, ERR_SOURCE_INVALID},
		{"hf://a..b/c", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b--c", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b.git", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b c", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b@", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b@main/../x", NULL, ERR_SOURCE_INVALID},
		{"hf://a/b@%zz", NULL, ERR_SOURCE_INVALID},
		{"https://", NULL, ERR_SOURCE_INVALID},
		{"https://host", NULL, ERR_SOURCE_INVALID},
		{"https://host/folder/", NULL, ERR_SOURCE_INVALID},
		{"https://host/a%2Fb", NULL, ERR_SOURCE_INVALID},
		{"https://u:pass@host/..", NULL, ERR_SOURCE_INVALID},
		{"file://relative", NULL, ERR_SOURCE_INVALID},
		{"file:///etc/../etc/passwd", NULL, ERR_SOURCE_INVALID},
		{"file:///etc/passwd", NULL, ERR_SOURCE_ROOT_DENIED},
		{"file:///tmp", NULL, ERR_SOURCE_ROOT_DENIED},
		{"s3://", S3_SECRET, ERR_SOURCE_INVALID},
		{"s3:///path", S3_SECRET, ERR_SOURCE_INVALID},
		{"s3://a..b/path", S3_SECRET, ERR_SOURCE_INVALID},
		{"hf://owner/repo", S3_SECRET, ERR_SOURCE_SECRET_INVALID},
		{"hf://owner/repo", "hf_a hf_b", ERR_SOURCE_SECRET_INVALID},
		{"https://host/path", "one\ntwo", ERR_SOURCE_SECRET_INVALID},
		{"s3://bucket/path", "hf_token", ERR_SOURCE_SECRET_INVALID},
		{"s3://bucket/path", "{\"access_key_id\":\"x\",\"secret_access_key\":\"y\"}",
	         ERR_SOURCE_SECRET_INVALID},
		{"s3://bucket/path", "{\"aws_access_key_id\":\"x\"}", ERR_SOURCE_SECRET_INVALID},
		{"s3://bucket/path",
	         "{\"aws_access_key_id\":\"x\\r\\nHost: y\",\"aws_secret_access_key\":\"y\"}",
	         ERR_SOURCE_SECRET_INVALID},
		{"s3://bucket/path",
	         "{\"aws_access_key_id\":\"x\",\"aws_secret_access_key\":\"y\","
	         "\"aws_region\":\"example.org/\"}",
	         ERR_SOURCE_SECRET_INVALID},
		{"r2://bucket/path", S3_SECRET, ERR_SOURCE_INVALID},
		{"r2://account.bucket/path", "token", ERR_SOURCE_SECRET_INVALID},
		{"cw://b/path", S3_SECRET, ERR_SOURCE_INVALID},
		{"cw://bucket/path", "{}", ERR_SOURCE_SECRET_INVALID},
		{"gs://b/path", NULL, ERR_SOURCE_INVALID},
		{"gs://bucket/path", "token", ERR_SOURCE_SECRET_INVALID},
		{"gs://bucket/path", "{\"client_email\":\"a@b\"}", ERR_SOURCE_SECRET_INVALID},
		{"gs://bucket/path", "{\"aws_access_key_id\":\"x\"}", ERR_SOURCE_SECRET_INVALID},
		{"azure://account", NULL, ERR_SOURCE_INVALID},
		{"azure://account/data", "key", ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data", "{", ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data", "sv=1&sig=a b", ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data", "sv=1&sig=a#b", ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data", "AccountKey=AAAA", ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data", "AccountName=other;AccountKey=AAAA",
	         ERR_SOURCE_SECRET_INVALID},
		{"azure://account/data",
	         "EndpointSuffix=x/y;AccountKey=AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	         ERR_SOURCE_SECRET_INVALID},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_SOURCE struct source *s = NULL;
		struct probe p = {.url = rows[i].url, .secret = rows[i].secret};
		struct err err = {0};

		assert_row(probe_open(&p, a, &s, &err) < 0, rows[i].url);
		if (err.id != rows[i].code)
			fail_msg("%s: %s: %s", rows[i].url, err_id(&err), err.msg);
		assert_row(strstr(err.msg, "pass@") == NULL, rows[i].url);
	}
}

/* --- what goes well -------------------------------------------------------------------------- */

static void source_lists_and_reads(void **state UNUSED)
{
	static const char *const no_sub[] = {"sub/**"};
	static const char *const json[] = {"*.json"};
	static const struct {
		struct probe p;
		size_t n;
		const char *path; /* of a file to read */
		uint64_t size;
		uint8_t seed;
		bool has_id;
		uint64_t leaks;
	} rows[] = {
		{{.url = "hf://me/repo"}, 4, "model.safetensors", LARGE_SIZE, 2, true, 0},
		{{.url = "hf://me/repo@main"}, 4, "config.json", SMALL_SIZE, 1, true, 0},
		{{.url = "hf://me/repo@refs/pr/1"}, 4, "sub/deep/a b+c%.txt", 17, 3, true, 0},
		{{.url = "hf://datasets/me/repo@v1/sub"}, 2, "deep/a b+c%.txt", 17, 3, true, 0},
		{{.url = "hf://me/repo/sub/deep/"}, 1, "a b+c%.txt", 17, 3, true, 0},
		{{.url = "hf://me/repo", .faults = "page=1"}, 4, "sub/empty", 0, 0, true, 0},
		{{.url = "hf://me/repo", .faults = "auth=hf_1", .secret = "hf_1\n"},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         true,
	         0},
		{{.url = "hf://me/repo", .filter = {.ignore = no_sub, .n_ignore = 1}},
	         2,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         true,
	         0},
		{{.url = "hf://me/repo", .filter = {.allow = json, .n_allow = 1}},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         true,
	         0},
		{{.url = "hf://me/repo", .faults = "list.status=503:2,status=502:0"},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         true,
	         0},
		{{.url = "@model.safetensors"}, 1, "model.safetensors", LARGE_SIZE, 2, false, 0},
		{{.url = "@model.safetensors?X-Signature=s#part"},
	         1,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "@sub/deep/a%20b+c%25.txt"}, 1, "a b+c%.txt", 17, 3, false, 0},
		{{.url = "@config.json", .faults = "digest"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         true,
	         0},
		{{.url = "@config.json", .faults = "linked"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         true,
	         0},
		{{.url = "@config.json", .faults = "nohead"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "@config.json", .faults = "head.nohead,norange"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "@config.json", .faults = "head.status=403"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "@config.json", .faults = "auth=tok", .secret = "tok"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "/"}, 4, "sub/deep/a b+c%.txt", 17, 3, false, 0},
		{{.url = "/sub"}, 2, "deep/a b+c%.txt", 17, 3, false, 0},
		{{.url = "/model.safetensors"}, 1, "model.safetensors", LARGE_SIZE, 2, false, 0},
		{{.url = "/sub/deep/a%20b+c%25.txt"}, 1, "a b+c%.txt", 17, 3, false, 0},
		{{.url = "s3://bucket", .secret = S3_SECRET},
	         4,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "s3://bucket/", .secret = S3_SECRET, .faults = "page=1"},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "s3://bucket/sub", .secret = S3_SECRET, .faults = "auth=AKID"},
	         2,
	         "deep/a b+c%.txt",
	         17,
	         3,
	         false,
	         0},
		{{.url = "s3://bucket"}, 4, "model.safetensors", LARGE_SIZE, 2, false, 0},
		{{.url = "s3://bucket/config.json", .faults = "list.status=403"},
	         1,
	         "config.json",
	         SMALL_SIZE,
	         1,
	         false,
	         0},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "part200"},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "hf://me/repo", .faults = "part200"},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         true,
	         0},
		{{.url = "@model.safetensors", .faults = "head.nohead,part200"},
	         1,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "r2://account.bucket", .secret = S3_SECRET},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "cw://bucket", .secret = S3_SECRET},
	         4,
	         "model.safetensors",
	         LARGE_SIZE,
	         2,
	         false,
	         0},
		{{.url = "gs://bucket/sub", .secret = S3_SECRET},
	         2,
	         "deep/a b+c%.txt",
	         17,
	         3,
	         false,
	         0},
		{{.url = "s3://bucket/sub/deep/a b+c%.txt", .secret = S3_SECRET},
	         1,
	         "a b+c%.txt",
	         17,
	         3,
	         false,
	         0},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_SOURCE struct source *s = NULL;
		struct source_listing l = {0}, again = {0};
		const struct source_file *f;
		struct err err = {0};
		uint64_t half;

		if (probe_open(&rows[i].p, a, &s, &err) < 0 ||
		    source_list(s, a, &rows[i].p.filter, NULL, &l, &err) < 0)
			fail_msg("row %zu: %s", i, err.msg);
		f = file_of(&l, rows[i].path);
		if (l.n != rows[i].n || f == NULL || f->size != rows[i].size ||
		    f->has_id != rows[i].has_id)
			fail_msg("row %zu, %s: %zu files", i, rows[i].p.url, l.n);
		assert_true(strlen(l.revision) >= 40);
		for (size_t j = 1; j < l.n; j++)
			assert_true(strcmp(l.file[j - 1].path, l.file[j].path) < 0);
		/* the whole, the halves, and the whole again by the frozen revision */
		half = f->size / 2;
		if (read_range(s, f, rows[i].seed, 0, f->size, &err) < 0 ||
		    (strstr(rows[i].p.url, "@config") == NULL &&
		     (read_range(s, f, rows[i].seed, 0, half, &err) < 0 ||
		      read_range(s, f, rows[i].seed, half, f->size - half, &err) < 0)) ||
		    source_list(s, a, &rows[i].p.filter, l.revision, &again, &err) < 0)
			fail_msg("row %zu: %s", i, err.msg);
		assert_string_equal(again.revision, l.revision);
		assert_int_equal(faulty_stat(&server, "leaks"), rows[i].leaks);
	}
}

/* --- what goes wrong ------------------------------------------------------------------------- */

struct fault_row {
	struct probe p;
	enum err_code id;
};

static void run_rows(const struct fault_row *rows, size_t n, bool in_read, uint64_t count)
{
	for (size_t i = 0; i < n; i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_SOURCE struct source *s = NULL;
		const struct probe *p = &rows[i].p;
		struct source_listing l = {0};
		struct err err = {0};
		int r;

		if (probe_open(p, a, &s, &err) < 0)
			fail_msg("row %zu: %s", i, err.msg);
		r = source_list(s, a, &p->filter, p->revision, &l, &err);
		if (in_read) {
			const struct source_file *f =
				r == 0 ? file_of(&l, "model.safetensors") : NULL;

			if (f == NULL)
				fail_msg("row %zu: %s", i, err.msg);
			r = read_range(s, f, 2, 0, count != 0 ? count : f->size, &err);
		}
		if (r == 0 || err.id != rows[i].id)
			fail_msg("row %zu, %s with %s: %s: %s", i, p->url, p->faults, err_id(&err),
			         err.msg);
		assert_true(str_starts(str_of(err.msg), source_name(s)));
		assert_null(strstr(err.msg, "ignature=s"));
		/* who has named a secret is not told to name one */
		assert_true(p->secret == NULL || strstr(err.msg, "set auth_secret_name") == NULL);
	}
}

static void source_listing_failures(void **state UNUSED)
{
	static const char *const none[] = {"*.bin"};
	static const struct fault_row rows[] = {
		{{.url = "hf://me/missing"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "hf://me/missing", .secret = "tok"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo@nope"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo@my/branch"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo", .revision = "0123456789012345678901234567890123456789"},
	         ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo", .revision = "main"}, ERR_SOURCE_INVALID},
		{{.url = "hf://me/repo/nowhere"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo", .faults = "auth=tok"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "hf://me/repo", .faults = "auth=tok", .secret = "bad"},
	         ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo", .faults = "gated"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "hf://me/repo", .faults = "gated", .secret = "x"}, ERR_SOURCE_DENIED},
		{{.url = "hf://me/repo", .faults = "list.garbage"}, ERR_SOURCE_BROKEN},
		{{.url = "hf://me/repo", .faults = "list.loop"}, ERR_SOURCE_REDIRECT_DENIED},
		{{.url = "hf://me/repo", .faults = "list.status=429,list.retry-after=3600"},
	         ERR_SOURCE_BUSY},
		{{.url = "hf://me/repo", .faults = "list.status=418"}, ERR_SOURCE_INVALID},
		{{.url = "hf://me/repo", .filter = {.allow = none, .n_allow = 1}},
	         ERR_SOURCE_EMPTY},
		{{.url = "@nothing"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "@config.json", .faults = "head.status=503"}, ERR_SOURCE_UNREACHABLE},
		{{.url = "@config.json", .faults = "auth=t"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "@config.json", .faults = "head.gzip"}, ERR_SOURCE_BROKEN},
		{{.url = "@config.json", .faults = "head.loop"}, ERR_SOURCE_REDIRECT_DENIED},
		{{.url = "@config.json", .faults = "head.nolength,nolength,norange"},
	         ERR_SOURCE_UNSUPPORTED},
		{{.url = "@config.json?signature=s", .revision = "0000"}, ERR_SOURCE_CHANGED},
		{{.url = "/nothing"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "/config.json/nothing"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "/", .revision = "0000"}, ERR_SOURCE_CHANGED},
		{{.url = "s3://missing-bucket", .secret = S3_SECRET}, ERR_SOURCE_NOT_FOUND},
		{{.url = "s3://bucket/nowhere", .secret = S3_SECRET}, ERR_SOURCE_NOT_FOUND},
		{{.url = "s3://bucket/sub", .secret = S3_SECRET, .faults = "auth=OTHER"},
	         ERR_SOURCE_DENIED},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "list.garbage"},
	         ERR_SOURCE_BROKEN},
		{{.url = "s3://bucket", .faults = "list.auth=AKID"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "s3://bucket/config.json", .faults = "auth=AKID"},
	         ERR_SOURCE_UNAUTHORIZED},
	};

	run_rows(rows, COUNT(rows), false, 0);
}

static void source_reading_failures(void **state UNUSED)
{
	static const struct fault_row rows[] = {
		{{.url = "hf://me/repo", .faults = "status=404"}, ERR_SOURCE_NOT_FOUND},
		{{.url = "hf://me/repo", .faults = "status=403"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "hf://me/repo", .faults = "status=403", .secret = "tok"},
	         ERR_SOURCE_DENIED},
		{{.url = "@model.safetensors", .faults = "status=403", .secret = "tok"},
	         ERR_SOURCE_DENIED},
		{{.url = "hf://me/repo", .faults = "status=503"}, ERR_SOURCE_UNREACHABLE},
		{{.url = "hf://me/repo", .faults = "status=500"}, ERR_SOURCE_UNREACHABLE},
		{{.url = "hf://me/repo", .faults = "status=429,retry-after=7"}, ERR_SOURCE_BUSY},
		{{.url = "hf://me/repo", .faults = "status=416"}, ERR_RANGE},
		{{.url = "hf://me/repo", .faults = "reset"}, ERR_SOURCE_UNREACHABLE},
		{{.url = "hf://me/repo", .faults = "cut=100000"}, ERR_SOURCE_UNREACHABLE},
		{{.url = "hf://me/repo", .faults = "stall=1000"}, ERR_SOURCE_TIMEOUT},
		{{.url = "hf://me/repo", .faults = "loop"}, ERR_SOURCE_REDIRECT_DENIED},
		{{.url = "hf://me/repo", .faults = "gzip"}, ERR_SOURCE_BROKEN},
		{{.url = "hf://me/repo", .faults = "length=+5"}, ERR_SOURCE_CHANGED},
		{{.url = "hf://me/repo", .faults = "length=-5"}, ERR_SOURCE_CHANGED},
		{{.url = "hf://me/repo", .faults = "expire=0"}, ERR_SOURCE_UNAUTHORIZED},
		{{.url = "@model.safetensors?Signature=s", .faults = "etag=1"}, ERR_SOURCE_CHANGED},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "status=503"},
	         ERR_SOURCE_UNREACHABLE},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "status=403"},
	         ERR_SOURCE_DENIED},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "etag=0"},
	         ERR_SOURCE_CHANGED},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "gzip"}, ERR_SOURCE_BROKEN},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "loop"},
	         ERR_SOURCE_REDIRECT_DENIED},
	};

	run_rows(rows, COUNT(rows), true, 0);
}

static void source_range_failures(void **state UNUSED)
{
	static const struct fault_row rows[] = {
		{{.url = "hf://me/repo", .faults = "norange"}, ERR_SOURCE_UNSUPPORTED},
		{{.url = "@model.safetensors", .faults = "norange"}, ERR_SOURCE_UNSUPPORTED},
		{{.url = "hf://me/repo", .faults = "length=+5"}, ERR_SOURCE_CHANGED},
		{{.url = "hf://me/repo", .faults = "gzip"}, ERR_SOURCE_BROKEN},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "norange"},
	         ERR_SOURCE_UNSUPPORTED},
		/* a part with status 200 that is another one than was asked for */
		{{.url = "hf://me/repo", .faults = "part200=1"}, ERR_SOURCE_BROKEN},
		{{.url = "s3://bucket", .secret = S3_SECRET, .faults = "part200=1"},
	         ERR_SOURCE_BROKEN},
	};

	run_rows(rows, COUNT(rows), true, 1000);
}

static void *cancel_soon(void *arg)
{
	(void)usleep(200000);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

/* A list that was told to wait for minutes ends when nobody wants it any more. */
static void source_lists_can_be_canceled(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	atomic_bool cancel = false;
	struct source_options o = {
		.client = server.client,
		.hf_endpoint =
			arena_printf(a, "%s/f/list.status=429,list.retry-after=300", server.base),
		.cancel = &cancel};
	struct source_listing l;
	struct err err = {0};
	pthread_t t;

	assert_ok(source_open(&s, "hf://me/repo", &o, &err), &err);
	assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_CANCELED, "hf://me/repo");
	(void)pthread_join(t, NULL);
}

/* Pages that drip, so that none stands still: all of them together have a deadline. */
static void source_lists_have_a_deadline(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	int64_t began = clock_mono_ms();
	struct source_options o = {
		.client = server.client,
		.hf_endpoint = arena_printf(a, "%s/f/list.slow=400,list.page=1", server.base),
		.stall_ms = 20000,
		.ask_until_ms = began + 700};
	struct source_listing l;
	struct err err = {0};

	assert_ok(source_open(&s, "hf://me/repo", &o, &err), &err);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_TIMEOUT, "too long");
	assert_true(clock_mono_ms() - began >= 700);
	err_clear(&err);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_TIMEOUT, "too long");
}

/* A signed URL is used again for the ranges of a file, and asked for anew when it has expired. */
static void source_signed_urls_expire(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	struct probe p = {.url = "hf://me/repo", .faults = "expire=2,auth=t", .secret = "t"};
	struct source_listing l;
	const struct source_file *f;
	struct err err = {0};

	assert_ok(probe_open(&p, a, &s, &err), &err);
	assert_ok(source_list(s, a, NULL, NULL, &l, &err), &err);
	f = file_of(&l, "model.safetensors");
	(void)faulty_stat(&server, "requests");
	for (uint64_t i = 0; i < 5; i++)
		assert_ok(read_range(s, f, 2, i * 1000, 1000, &err), &err);
	/* resolve + signed, signed, refused + resolve + signed, signed, refused + ... = 2+1+3+1+3
	 */
	assert_int_equal(faulty_stat(&server, "requests"), 10);
	assert_int_equal(faulty_stat(&server, "leaks"), 0);
}

/* A signature of another time is refused: whose clock is wrong is said. */
static void source_clocks_that_differ(void **state UNUSED)
{
	static const struct {
		int64_t off_ms;
		const char *says;
	} rows[] = {
		{20 * 60000, "this server's clock is 20 minutes ahead of the source's"},
		{-7 * 60000, "this server's clock is 7 minutes behind the source's"},
		{60000, NULL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_SOURCE struct source *s = NULL;
		struct probe p = {
			.url = "s3://bucket", .faults = "auth=another", .secret = S3_SECRET};
		struct source_listing l;
		struct err err = {0};

		assert_ok(probe_open(&p, a, &s, &err), &err);
		/* the Date has whole seconds */
		clock_fake(clock_wall_ms() + rows[i].off_ms + (rows[i].off_ms > 0 ? 1000 : -1000),
		           clock_mono_ms());
		assert_int_equal(source_list(s, a, NULL, NULL, &l, &err), -1);
		clock_fake(-1, -1);
		assert_int_equal(err.id, ERR_SOURCE_DENIED);
		if (rows[i].says != NULL ? strstr(err.msg, rows[i].says) == NULL
		                         : strstr(err.msg, "clock") != NULL)
			fail_msg("row %zu: %s", i, err.msg);
	}
}

/* The guard of the client refuses before a byte is sent, and the message names the setting. */
static void source_on_internal_addresses(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_CLIENT struct http_client *guarded =
		http_client_new(&(struct http_policy){.guard = true});
	AUTO_SOURCE struct source *s = NULL;
	struct source_options o = {.client = guarded, .hf_endpoint = server.base};
	struct source_listing l;
	struct err err = {0};

	assert_ok(source_open(&s, "hf://me/repo", &o, &err), &err);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_ADDRESS_DENIED,
	           "--allow-source-network");
}

static void source_folders_with_links(void **state UNUSED)
{
	static const char *const bad[] = {"bad/**"};
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	struct probe p = {.url = "/links"};
	struct glob_filter filter = {.ignore = bad, .n_ignore = 1};
	struct source_listing l;
	struct err err = {0};
	char path[128];

	faulty_fill(&server, "links/file", 100, 9);
	FMT(path, "%s/links/inside", server.root);
	assert_int_equal(symlink("../config.json", path), 0);
	assert_ok(probe_open(&p, a, &s, &err), &err);
	assert_ok(source_list(s, a, NULL, NULL, &l, &err), &err);
	assert_int_equal(l.n, 2);
	assert_ok(read_range(s, file_of(&l, "inside"), 1, 0, SMALL_SIZE, &err), &err);
	/* changed since it was listed */
	faulty_fill(&server, "config.json", SMALL_SIZE, 1);
	assert_err(read_range(s, file_of(&l, "inside"), 1, 0, SMALL_SIZE, &err), &err,
	           ERR_SOURCE_CHANGED, "");

	faulty_fill(&server, "links/bad/file", 100, 9);
	FMT(path, "%s/links/bad/outside", server.root);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_DENIED, "bad/outside");
	assert_ok(source_list(s, a, &filter, NULL, &l, &err), &err);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("..", path), 0);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_INVALID, "");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_err(source_list(s, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_INVALID, "");
	assert_int_equal(unlink(path), 0);
	FMT(path, "%s/links", server.root);
	assert_ok(fs_remove_tree(AT_FDCWD, path, &err), &err);
}

/* Whose machine it is about is not the reader's guess; what is neither file nor folder is named. */
static void source_files_that_cannot_be_read(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *shut = NULL, *pipe = NULL, *lost = NULL;
	struct probe p = {.url = "/shut"}, q = {.url = "/pipe"};
	const char *roots[] = {"/nowhere/models"};
	struct source_options o = {.file_roots = roots, .n_file_roots = 1};
	struct source_listing l;
	struct err err = {0};
	char path[128], fifo[128];
	bool root = geteuid() == 0;
	int r;

	faulty_fill(&server, "shut/file", 100, 9);
	FMT(path, "%s/shut", server.root);
	assert_int_equal(chmod(path, 0), 0);
	assert_ok(probe_open(&p, a, &shut, &err), &err);
	assert_int_equal(root ? seteuid(65534) : 0, 0); /* root may read what is shut */
	r = source_list(shut, a, NULL, NULL, &l, &err);
	assert_int_equal(root ? seteuid(0) : 0, 0);
	assert_int_equal(r, -1);
	assert_err(r, &err, ERR_SOURCE_DENIED, "");
	assert_int_equal(chmod(path, 0700), 0);
	assert_ok(fs_remove_tree(AT_FDCWD, path, &err), &err);

	FMT(fifo, "%s/pipe", server.root);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_ok(probe_open(&q, a, &pipe, &err), &err);
	assert_err(source_list(pipe, a, NULL, NULL, &l, &err), &err, ERR_SOURCE_INVALID, "");
	assert_int_equal(unlink(fifo), 0);

	assert_err(source_open(&lost, "file:///nowhere/models/m", &o, &err), &err,
	           ERR_SOURCE_NOT_FOUND, "file:///nowhere/models/m");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(source_bad_urls),
	cmocka_unit_test(source_lists_and_reads),
	cmocka_unit_test(source_listing_failures),
	cmocka_unit_test(source_reading_failures),
	cmocka_unit_test(source_range_failures),
	cmocka_unit_test(source_lists_can_be_canceled),
	cmocka_unit_test(source_lists_have_a_deadline),
	cmocka_unit_test(source_signed_urls_expire),
	cmocka_unit_test(source_clocks_that_differ),
	cmocka_unit_test(source_on_internal_addresses),
	cmocka_unit_test(source_folders_with_links),
	cmocka_unit_test(source_files_that_cannot_be_read),
};

UNIT_MAIN_IN(tests, setup, teardown)
