/* test_hub_face.c - the Hub face over a repository in memory: names, files, listings, refusals. */
#include "face/hub_impl.h"
#include "fake_ops.h"

#include <sys/mman.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define DATE "2026-08-20T13:44:43.000Z"
#define HELLO "ce013625030ba8dba906f756967f9e9ca394464a" /* git's id of "hello\n" */
#define BIG_SIZE ((uint64_t)3000000)
#define BIG "a/deep/w+1 \xc3\xa9.bin"
#define BIG_PATH "a/deep/w%2B1%20%C3%A9.bin"
#define REPO "/api/models/Ada/Net"

/* A Hub that has one repository, and does what a test asks of it. */
static struct {
	struct hub_listing listing;
	struct hub_refs refs;
	char sha256[HASH_HEX_CAP];
	enum err_code refuses;
	bool away; /* it never answers: time passes with each look */
	int how;   /* enum of struct hub_bytes */
	/* what it was asked */
	enum hub_type type;
	char id[HUB_ID_MAX + 1], rev[HUB_REV_MAX + 1];
	uint64_t first, count;
	unsigned late; /* so many times it says "not yet" */
	unsigned looks, agains;
	atomic_int open; /* listings that are not closed */
	atomic_uint reads_done;
} hub;

static struct httpd *listener;

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)((at * 2654435761U) >> 13);
}

/* Says "not yet", with the news in between; the name is written otherwise than the client did. */
static bool not_yet(uint64_t channel, bool again)
{
	hub.looks++;
	hub.agains += again;
	if (hub.away) {
		clock_fake(clock_wall_ms(), clock_mono_ms() + HUB_WAIT_MS / 2 + 1);
		if (hub.looks < 3)
			httpd_notify(listener, channel);
		return true;
	}
	if (hub.late == 0)
		return false;
	hub.late--;
	httpd_notify(listener, channel);
	return true;
}

static uint64_t own_channel(const char *rev)
{
	return hub_channel(&(struct hub_name){hub.type, "ada/net", rev});
}

static int refuse(struct err *err)
{
	err->retry_after_s = hub.refuses == ERR_SOURCE_BUSY ? 7 : 0;
	return err_set(err, hub.refuses, "because");
}

static int fake_open(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_listing **out, const char **moved, struct err *err)
{
	*moved = NULL;
	hub.type = name->type;
	FMT(hub.id, "%s", name->id);
	FMT(hub.rev, "%s", name->rev);
	if (hub.refuses != ERR_NONE)
		return refuse(err);
	*out = NULL;
	if (hub.how != HUB_NO_PLACE && not_yet(own_channel(name->rev), again))
		return 0;
	atomic_fetch_add(&hub.open, 1);
	*out = &hub.listing;
	return 0;
}

static void fake_close(struct app *app, const struct hub_listing *l)
{
	assert_ptr_equal(l, &hub.listing);
	atomic_fetch_sub(&hub.open, 1);
}

static int read_bytes(void *arg, uint64_t at, void *to, size_t n, const atomic_bool *left,
                      struct err *err)
{
	uint8_t *p = to;

	if (at < hub.first || at + n > hub.first + hub.count)
		return err_set(err, ERR_IO, "not what was announced");
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(at + i);
	return 0;
}

static void bytes_done(void *arg)
{
	atomic_fetch_add(&hub.reads_done, 1);
}

static int file_of(const struct hub_file *f)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	assert_true(fd >= 0);
	for (uint64_t at = 0; at < f->size;) {
		uint8_t piece[4096];
		size_t n = MIN(f->size - at, sizeof(piece));

		for (size_t i = 0; i < n; i++)
			piece[i] = byte_at(at + i);
		assert_int_equal(write(fd, piece, n), (ssize_t)n);
		at += n;
	}
	return fd;
}

static int fake_bytes(const struct ask *ask, const struct hub_listing *l, const struct hub_file *f,
                      uint64_t first, uint64_t count, bool again, struct hub_bytes *out,
                      struct err *err)
{
	hub.first = first;
	hub.count = count;
	out->how = hub.how;
	if (hub.how == HUB_NOT_YET && not_yet(hub_bytes_channel(f), again))
		return 0;
	if (hub.how == HUB_NO_PLACE && not_yet(hub_places_channel(), again))
		return 0;
	if (hub.how == HUB_NOT_YET || hub.how == HUB_NO_PLACE || hub.how == HUB_FILE) {
		out->how = HUB_FILE;
		out->fd = file_of(f);
	}
	out->from = (struct reply_source){.read = read_bytes, .done = bytes_done};
	out->location = "http://store.example/x?signed=1";
	return 0;
}

static int fake_refs(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_refs **out, struct err *err)
{
	assert_null(name->rev);
	if (hub.refuses != ERR_NONE)
		return refuse(err);
	*out = not_yet(own_channel(NULL), again) ? NULL : &hub.refs;
	return 0;
}

static const struct hub_ops fake_hub_ops = {fake_open, fake_close, fake_bytes, fake_refs};

/* The repository is a mirrored one: nobody writes to it. */
static int fake_to_write(const struct ask *ask, enum hub_type type, const char *id,
                         struct model_repo *out, struct err *err)
{
	return err_set(err, ERR_HUB_REPO_NOT_FOUND, "there is no repository %s of ours", id);
}

static int fake_commits(const struct ask *ask, const struct hub_name *name, size_t skip,
                        size_t most, struct model_repo_commit **out, size_t *n, bool *more,
                        uint64_t *total, struct err *err)
{
	return err_set(err, ERR_HUB_REPO_NOT_FOUND, "there is no repository %s of ours", name->id);
}

static const struct repo_ops fake_repo_ops = {.to_write = fake_to_write, .commits = fake_commits};
static const struct face_ops ops = {FAKE_OPS, .hub = &fake_hub_ops, .repos = &fake_repo_ops};
static const struct face_ops without = {FAKE_OPS};

static void add(struct app *f, const char *path, uint64_t size, bool lfs)
{
	struct hub_listing *l = &hub.listing;
	struct hub_file *x = &l->file[l->n++];

	*x = (struct hub_file){.path = arena_cstr(f->a, path), .size = size, .lfs = lfs};
	if (lfs)
		x->sha256 = hash_sha256(path, strlen(path));
	else
		assert_ok(hex_decode(str_of(HELLO), x->oid, HUB_OID_LEN, &f->err), &f->err);
}

static void start(struct app *f, size_t many)
{
	fake_start(f, &ops);
	memset(&hub, 0, sizeof(hub));
	listener = f->httpd;
	hub.listing = (struct hub_listing){
		.type = HUB_MODELS,
		.id = "Ada/Net",
		.commit = COMMIT,
		.about = "{\"id\":\"other\",\"sha\":\"other\",\"private\":true,\"gated\":\"auto\","
			 "\"tags\":[\"a\",{\"xetHash\":\"x\",\"k\":1}],\"lastModified\":\"" DATE
			 "\",\"author\":\"ada\",\"likes\":3,\"xetEnabled\":true,\"XetHash\":\"x\","
			 "\"siblings\":[{\"rfilename\":\"other\",\"xetHash\":\"x\"}],"
			 "\"cardData\":{\"license\":\"mit\",\"xet\":{}}}",
		.file = ARENA_ARRAY(f->a, struct hub_file, many + 7)};
	add(f, "README.md", 6, false);
	add(f, "a.b/x", 6, false);
	add(f, "a/c", 6, false);
	add(f, BIG, BIG_SIZE, true);
	add(f, "a0", 6, false);
	add(f, "empty", 0, false);
	for (size_t i = 0; i < many; i++)
		add(f, arena_printf(f->a, "many/%zu", i), 6, false);
	assert_ok(hub_listing_finish(&hub.listing, f->a, &f->err), &f->err);
	digest_hex(&hub_listing_file(&hub.listing, STR_LIT(BIG))->sha256, hub.sha256);
}

static void stop(struct app *f)
{
	assert_int_equal(atomic_load(&hub.open), 0);
	fake_stop(f);
}

static struct got send(struct app *f, enum http_method m, const char *path, const char *name,
                       const char *value, const char *body)
{
	struct http_header headers[] = {
		{"Authorization", arena_printf(f->a, "Bearer %s", f->token)}, {name, value}};
	struct http_call call = {.method = m,
	                         .url = arena_printf(f->a, "%s%s", f->base, path),
	                         .headers = headers,
	                         .n_headers = name != NULL ? 2 : 1,
	                         .body = str_of(body)};

	return fake_send(f, &call);
}

static struct got get(struct app *f, const char *path)
{
	return send(f, HTTP_GET, path, NULL, NULL, NULL);
}

static const char *header(struct app *f, const struct got *g, const char *name)
{
	return arena_strz(f->a, http_header_of(&g->reply, name));
}

static void assert_refused(struct app *f, const struct got *g, int status, const char *code,
                           const char *what)
{
	if (g->status != status || strcmp(header(f, g, "X-Error-Code"), code) != 0)
		fail_msg("%s: %d %s: %.*s", what, g->status, header(f, g, "X-Error-Code"),
		         STR_ARG(g->text));
	if (http_header_of(&g->reply, "Content-Type").n == 0) /* of a HEAD, or none is there */
		return;
	assert_string_equal(doc_cstr(doc_get(g->d, "error"), "(none)"),
	                    header(f, g, "X-Error-Message"));
	assert_true(http_header_of(&g->reply, "X-Request-Id").n > 0);
}

static const struct doc *get_ok(struct app *f, const char *path)
{
	struct got g = get(f, path);

	if (g.status != 200 || g.d == NULL)
		fail_msg("%s: %d %.*s", path, g.status, STR_ARG(g.text));
	return g.d;
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void what_is_refused(void **state UNUSED)
{
	static const struct {
		const char *path;
		int status;
		const char *code;
	} rows[] = {
		{"/Ada/Net/resolve/main/none", 404, "EntryNotFound"},
		{"/Ada/Net/resolve/main/a", 404, "EntryNotFound"},
		{"/Ada/Net/resolve/main/README.md%2F", 404, "EntryNotFound"},
		{"/Ada/Net/resolve/main/%2e%2e/x", 400, ""},
		{"/Ada/-Net/resolve/main/README.md", 404, "RepoNotFound"},
		{"/Ada/Net.git/resolve/main/README.md", 404, "RepoNotFound"},
		{"/Ada/N%2Fet/resolve/main/README.md", 404, "RepoNotFound"},
		{"/Ada/Net/resolve/a%0Ab/README.md", 404, "RevisionNotFound"},
		{"/api/models/a..b", 404, "RepoNotFound"},
		{REPO "/revision/%7F", 404, "RevisionNotFound"},
		{REPO "/tree/main/none", 404, "EntryNotFound"},
		{REPO "/tree/main/README.md", 404, "EntryNotFound"},
		{REPO "/tree/main?limit=0", 400, ""},
		{REPO "/tree/main?limit=x", 400, ""},
		{REPO "/tree/main?cursor=%21", 400, ""},
		{REPO "/tree/main?cursor=YQBi", 400, ""},      /* "a\0b" */
		{REPO "/tree/main?cursor=Li4veA", 400, ""},    /* "../x" */
		{REPO "/tree/main/a?cursor=ZW1wdHk", 400, ""}, /* "empty" is not below a */
		{REPO "/commits/main?p=9223372036854775807", 400, ""},
		{REPO "/commits/main?p=x", 400, ""},
		{REPO "/xet-read-token/main", 404, ""},
		{REPO "/xet-write-token/main", 404, "RepoNotFound"},
		{"/api/models/net/xet-write-token/main", 404, ""},
		{"/api/kernels/Ada/Net", 404, ""},
		{"/api/models/Ada/Net/likers", 404, ""},
		{"/api/telemetry/x/y", 404, ""},
	};
	struct app f;
	struct got g;

	start(&f, 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		bool entry = strcmp(rows[i].code, "EntryNotFound") == 0;

		g = get(&f, rows[i].path);
		if (rows[i].status != 400 || strstr(rows[i].path, "%2e") == NULL)
			assert_refused(&f, &g, rows[i].status, rows[i].code, rows[i].path);
		assert_int_equal(g.status, rows[i].status);
		if (entry)
			assert_string_equal(header(&f, &g, "X-Repo-Commit"), COMMIT);
		g = send(&f, HTTP_HEAD, rows[i].path, NULL, NULL, NULL);
		assert_int_equal(g.status, rows[i].status);
		assert_string_equal(header(&f, &g, "X-Error-Code"), rows[i].code);
	}
	g = get(&f, REPO "/xet-read-token/main");
	assert_non_null(strstr(header(&f, &g, "X-Error-Message"), "HF_HUB_DISABLE_XET=1"));
	g = send(&f, HTTP_POST, REPO "/refs", NULL, NULL, "{}");
	assert_refused(&f, &g, 405, "", "POST");
	f.token = "wrong";
	g = get(&f, "/api/whoami-v2");
	assert_refused(&f, &g, 401, "", "whoami");
	assert_string_equal(header(&f, &g, "X-Error-Message"),
	                    "Invalid credentials in Authorization header");
	g = get(&f, "/Ada/Net/resolve/main/README.md");
	assert_refused(&f, &g, 401, "", "file");
	g = fake_send(&f, &(struct http_call){.url = arena_printf(f.a, "%s" REPO, f.base)});
	assert_refused(&f, &g, 401, "RepoNotFound", "no token");
	assert_string_equal(header(&f, &g, "X-Error-Message"), "unknown token");
	stop(&f);
}

static void hubs_that_fail(void **state UNUSED)
{
	static const struct {
		enum err_code why;
		int status;
		const char *code;
	} rows[] = {
		{ERR_HUB_REPO_NOT_FOUND, 404, "RepoNotFound"},
		{ERR_HUB_REVISION_NOT_FOUND, 404, "RevisionNotFound"},
		{ERR_HUB_GATED, 403, "GatedRepo"},
		{ERR_SOURCE_DENIED, 403, ""},
		{ERR_DENIED, 403, ""},
		{ERR_AUTH, 403, ""},
		{ERR_SOURCE_UNREACHABLE, 502, ""},
		{ERR_UNAVAILABLE, 502, ""},
		{ERR_HOST_UNKNOWN, 502, ""},
		{ERR_SOURCE_BUSY, 502, ""},
		{ERR_BUSY, 502, ""},
		{ERR_DIGEST_MISMATCH, 502, ""},
		{ERR_CORRUPT, 502, ""},
		{ERR_SOURCE_TIMEOUT, 504, ""},
		{ERR_TIMEOUT, 504, ""},
		{ERR_DATABASE_UNAVAILABLE, 503, ""},
		{ERR_MIRROR_FULL, 507, ""},
	};
	static const char *const paths[] = {
		"/Ada/Net/resolve/main/README.md",
		REPO,
		REPO "/tree/main",
		REPO "/refs",
		REPO "/commits/main",
		REPO "/auth-check",
	};
	struct app f;

	start(&f, 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		hub.refuses = rows[i].why;
		for (size_t k = 0; k < COUNT(paths); k++) {
			struct got g = get(&f, paths[k]);

			assert_refused(&f, &g, rows[i].status, rows[i].code, paths[k]);
			assert_string_equal(header(&f, &g, "X-Error-Message"), "because");
			if (rows[i].why == ERR_SOURCE_BUSY)
				assert_string_equal(header(&f, &g, "Retry-After"), "7");
		}
	}
	stop(&f);
	fake_start(&f, &without);
	for (size_t k = 0; k < COUNT(paths); k++) {
		struct got g = get(&f, paths[k]);

		assert_refused(&f, &g, 501, "", paths[k]);
	}
	(void)get_ok(&f, "/api/whoami-v2");
	fake_stop(&f);
}

static void kept_words_that_are_no_object(void **state UNUSED)
{
	static const char *const bad[] = {"", "{", "[1]", "null"};
	struct app f;

	start(&f, 0);
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct got g;

		hub.listing.about = bad[i];
		g = get(&f, REPO);
		assert_refused(&f, &g, 500, "", bad[i]);
		(void)get_ok(&f, REPO "/tree/main"); /* needs none of it */
	}
	stop(&f);
}

/* ---- names --------------------------------------------------------------------------------- */

static void what_paths_name(void **state UNUSED)
{
	static const struct {
		const char *path;
		enum hub_type type;
		const char *id, *rev;
	} rows[] = {
		{"/Ada/Net/resolve/main/README.md", HUB_MODELS, "Ada/Net", "main"},
		{"/gpt2/resolve/refs%2Fpr%2F1/README.md", HUB_MODELS, "gpt2", "refs/pr/1"},
		{"/datasets/Ada/Net/resolve/v+1/README.md", HUB_DATASETS, "Ada/Net", "v+1"},
		{"/datasets/squad/resolve/v%2B1/README.md", HUB_DATASETS, "squad", "v+1"},
		{"/spaces/Ada/Net/resolve/main/README.md", HUB_SPACES, "Ada/Net", "main"},
		{"/spaces/net/resolve/main/a/c", HUB_SPACES, "net", "main"},
		{"/Ada/resolve/resolve/main/a/c", HUB_MODELS, "Ada/resolve", "main"},
		{REPO, HUB_MODELS, "Ada/Net", "main"},
		{"/api/datasets/Ada/Net", HUB_DATASETS, "Ada/Net", "main"},
		{"/api/spaces/net", HUB_SPACES, "net", "main"},
		{REPO "/revision/" COMMIT, HUB_MODELS, "Ada/Net", COMMIT},
		{"/api/models/gpt2/revision/a%2Fb", HUB_MODELS, "gpt2", "a/b"},
		{REPO "/tree/main", HUB_MODELS, "Ada/Net", "main"},
		{REPO "/tree/main/", HUB_MODELS, "Ada/Net", "main"},
		{REPO "/tree/main/a", HUB_MODELS, "Ada/Net", "main"},
		{REPO "/tree/main/a%2F", HUB_MODELS, "Ada/Net", "main"},
		{REPO "/tree/main/a%2Fdeep%2F", HUB_MODELS, "Ada/Net", "main"},
		{REPO "/tree/main/a/deep", HUB_MODELS, "Ada/Net", "main"},
		{"/api/models/gpt2/tree/x/a/deep", HUB_MODELS, "gpt2", "x"},
		{"/api/datasets/squad/tree/x", HUB_DATASETS, "squad", "x"},
		{"/api/models/gpt2/commits/x", HUB_MODELS, "gpt2", "x"},
		{REPO "/auth-check", HUB_MODELS, "Ada/Net", "main"},
		{"/api/spaces/net/auth-check", HUB_SPACES, "net", "main"},
	};
	struct app f;

	start(&f, 0);
	f.token = "viewer";
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct got g = get(&f, rows[i].path);

		assert_row(g.status == 200, rows[i].path);
		assert_row(hub.type == rows[i].type, rows[i].path);
		assert_row(strcmp(hub.id, rows[i].id) == 0, rows[i].path);
		assert_row(strcmp(hub.rev, rows[i].rev) == 0, rows[i].path);
		assert_row(strcmp(header(&f, &g, "X-Repo-Commit"), COMMIT) == 0, rows[i].path);
	}
	stop(&f);
}

static void channels_of_a_repository(void **state UNUSED)
{
	struct hub_name a = {HUB_MODELS, "Ada/Net", "Main"}, b = {HUB_MODELS, "ada/net", "Main"};
	struct hub_name c = {HUB_MODELS, "ada/net", "main"}, d = {HUB_DATASETS, "ada/net", "Main"};
	struct hub_name e = {HUB_MODELS, "ada/net", NULL};

	assert_true(hub_channel(&a) == hub_channel(&b));
	assert_true(hub_channel(&b) != hub_channel(&c));
	assert_true(hub_channel(&b) != hub_channel(&d));
	assert_true(hub_channel(&b) != hub_channel(&e));
	assert_true(hub_channel(&e) == httpd_channel("hub", STR_LIT("models/ada/net")));
	assert_true(hub_channel(&b) == httpd_channel("hub", STR_LIT("models/ada/net@Main")));
}

/* ---- files --------------------------------------------------------------------------------- */

static void heads_describe(void **state UNUSED)
{
	struct app f;
	struct got g;

	start(&f, 0);
	g = send(&f, HTTP_HEAD, "/Ada/Net/resolve/main/README.md", "If-None-Match", "\"" HELLO "\"",
	         NULL);
	assert_int_equal(g.status, 200);
	assert_string_equal(header(&f, &g, "ETag"), "\"" HELLO "\"");
	assert_string_equal(header(&f, &g, "X-Repo-Commit"), COMMIT);
	assert_string_equal(header(&f, &g, "Content-Length"), "6");
	assert_string_equal(header(&f, &g, "Accept-Ranges"), "bytes");
	assert_string_equal(header(&f, &g, "X-Linked-Size"), "");
	g = send(&f, HTTP_HEAD, "/Ada/Net/resolve/main/" BIG_PATH, "Range", "bytes=5-", NULL);
	assert_int_equal(g.status, 200);
	assert_string_equal(header(&f, &g, "ETag"), arena_printf(f.a, "\"%s\"", hub.sha256));
	assert_string_equal(header(&f, &g, "X-Linked-Etag"),
	                    arena_printf(f.a, "\"%s\"", hub.sha256));
	assert_string_equal(header(&f, &g, "X-Linked-Size"), "3000000");
	assert_string_equal(header(&f, &g, "Content-Length"), "3000000");
	g = send(&f, HTTP_HEAD, "/Ada/Net/resolve/main/empty", NULL, NULL, NULL);
	assert_int_equal(g.status, 200);
	assert_string_equal(header(&f, &g, "Content-Length"), "0");
	assert_int_equal(hub.looks, 3); /* of the listing: bytes were not asked for */
	stop(&f);
}

static void a_file_as_git_has_it(void **state UNUSED)
{
	struct app f;
	struct got g;

	start(&f, 0);
	g = get(&f, "/Ada/Net/raw/HEAD/" BIG_PATH);
	assert_int_equal(g.status, 200);
	assert_string_equal(hub.rev, "main");
	assert_string_equal(
		arena_strz(f.a, g.text),
		arena_printf(f.a,
	                     "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize "
	                     "3000000\n",
	                     hub.sha256));
	g = send(&f, HTTP_HEAD, "/Ada/Net/raw/main/README.md", NULL, NULL, NULL);
	assert_int_equal(g.status, 200);
	assert_string_equal(header(&f, &g, "ETag"), "\"" HELLO "\"");
	g = get(&f, "/Ada/Net/raw/main/none");
	assert_refused(&f, &g, 404, "EntryNotFound", "raw");
	stop(&f);
}

static void assert_bytes(const struct got *g, uint64_t first, uint64_t count)
{
	assert_int_equal(g->text.n, count);
	for (size_t i = 0; i < count; i++)
		if ((uint8_t)g->text.p[i] != byte_at(first + i))
			fail_msg("byte %zu differs", i);
}

static void files_in_ranges(void **state UNUSED)
{
	static const struct {
		const char *name, *value;
		int status;
		uint64_t first, count;
		const char *range;
	} rows[] = {
		{"Accept-Encoding", "gzip, deflate", 200, 0, BIG_SIZE, ""},
		{"Range", "bytes=10-19", 206, 10, 10, "bytes 10-19/3000000"},
		{"Range", "bytes=2999998-", 206, 2999998, 2, "bytes 2999998-2999999/3000000"},
		{"Range", "bytes=-3", 206, 2999997, 3, "bytes 2999997-2999999/3000000"},
		{"Range", "bytes=1-2,4-5", 200, 0, BIG_SIZE, ""},
		{"Range", "bytes=3000000-", 416, 0, 0, "bytes */3000000"},
		{"If-None-Match", "(etag)", 304, 0, 0, ""},
	};
	static const int hows[] = {HUB_FILE, HUB_STREAM};
	struct app f;
	unsigned streams = 0;

	start(&f, 0);
	for (size_t k = 0; k < COUNT(hows); k++) {
		hub.how = hows[k];
		for (size_t i = 0; i < COUNT(rows); i++) {
			const char *etag = arena_printf(f.a, "\"%s\"", hub.sha256);
			struct got g;

			hub.first = hub.count = 0;
			g = send(&f, HTTP_GET, "/Ada/Net/resolve/main/" BIG_PATH, rows[i].name,
			         rows[i].value[0] == '(' ? etag : rows[i].value, NULL);
			assert_row(g.status == rows[i].status, rows[i].value);
			assert_int_equal(hub.first, rows[i].first);
			assert_int_equal(hub.count, rows[i].count); /* 0: never asked for */
			assert_string_equal(header(&f, &g, "Content-Range"), rows[i].range);
			assert_string_equal(header(&f, &g, "ETag"), etag);
			assert_string_equal(header(&f, &g, "X-Repo-Commit"), COMMIT);
			assert_string_equal(header(&f, &g, "Content-Encoding"), "");
			if (g.status == 416)
				assert_refused(&f, &g, 416, "", "range");
			else
				assert_bytes(&g, rows[i].first, rows[i].count);
			streams += hub.how == HUB_STREAM && rows[i].count > 0;
		}
	}
	for (int64_t until = clock_mono_ms() + 60000;
	     atomic_load(&hub.reads_done) < streams && clock_mono_ms() < until;)
		clock_sleep_ms(2);
	assert_int_equal(atomic_load(&hub.reads_done), streams);
	stop(&f);
}

static void empty_files_and_files_elsewhere(void **state UNUSED)
{
	struct app f;
	struct got g;

	start(&f, 0);
	hub.how = HUB_ELSEWHERE;
	g = get(&f, "/Ada/Net/resolve/main/empty");
	assert_int_equal(g.status, 200);
	assert_int_equal(g.text.n, 0);
	assert_string_equal(header(&f, &g, "ETag"), "\"" HELLO "\"");
	g = send(&f, HTTP_GET, "/Ada/Net/resolve/main/empty", "Range", "bytes=0-", NULL);
	assert_int_equal(g.status, 416);
	g = send(&f, HTTP_GET, "/Ada/Net/resolve/main/" BIG_PATH, "Range", "bytes=7-9", NULL);
	assert_int_equal(g.status, 302);
	assert_string_equal(header(&f, &g, "Location"), "http://store.example/x?signed=1");
	assert_string_equal(header(&f, &g, "X-Linked-Size"), "3000000");
	assert_string_equal(header(&f, &g, "ETag"), arena_printf(f.a, "\"%s\"", hub.sha256));
	assert_string_equal(header(&f, &g, "X-Repo-Commit"), COMMIT);
	assert_int_equal(hub.first, 7);
	assert_int_equal(hub.count, 3);
	g = get(&f, "/Ada/Net/resolve/main/README.md");
	assert_int_equal(g.status, 302);
	assert_string_equal(header(&f, &g, "X-Linked-Size"), "6");
	assert_string_equal(header(&f, &g, "X-Linked-Etag"), "\"" HELLO "\"");
	stop(&f);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void waits_until_it_is_known(void **state UNUSED)
{
	static const char *const paths[] = {
		"/ADA/Net/resolve/main/README.md",
		REPO,
		REPO "/refs",
	};
	struct app f;

	start(&f, 0);
	hub.how = HUB_FILE;
	for (size_t i = 0; i < COUNT(paths); i++) {
		hub.looks = hub.agains = 0;
		hub.late = 2;
		assert_int_equal(get(&f, paths[i]).status, 200);
		assert_int_equal(hub.looks, 3);
		assert_int_equal(hub.agains, 2);
	}
	hub.how = HUB_NOT_YET; /* a look at the listing, then one at the bytes */
	hub.looks = hub.agains = 0;
	hub.late = 1;
	assert_int_equal(get(&f, "/Ada/Net/resolve/main/README.md").status, 200);
	assert_int_equal(hub.looks, 3);
	assert_int_equal(hub.agains, 2);
	stop(&f);
}

/* A reply that finds no place waits for one, and is told that it may try again. */
static void waits_for_a_place(void **state UNUSED)
{
	struct app f;
	struct got g;

	start(&f, 0);
	hub.how = HUB_NO_PLACE;
	hub.looks = hub.agains = 0;
	hub.late = 2;
	assert_int_equal(get(&f, "/Ada/Net/resolve/main/README.md").status, 200);
	assert_int_equal(hub.looks, 3);
	assert_int_equal(hub.agains, 2);
	hub.away = true;
	hub.looks = 0;
	g = get(&f, "/Ada/Net/resolve/main/README.md");
	assert_refused(&f, &g, 503, "", "no place");
	assert_string_equal(header(&f, &g, "Retry-After"), "5");
	clock_fake(-1, -1);
	stop(&f);
}

/* The news are of something else, again and again: that does not prolong it. */
static void waits_no_longer_than_a_client(void **state UNUSED)
{
	static const char *const paths[] = {REPO, REPO "/refs"};
	struct app f;

	start(&f, 0);
	hub.away = true;
	for (size_t i = 0; i < COUNT(paths); i++) {
		struct got g;

		hub.looks = 0;
		g = get(&f, paths[i]);
		assert_refused(&f, &g, 504, "", paths[i]);
		assert_string_equal(header(&f, &g, "Retry-After"), "5");
		assert_int_equal(hub.looks, 4);
		clock_fake(-1, -1);
	}
	hub.away = false;
	stop(&f);
}

/* ---- descriptions -------------------------------------------------------------------------- */

static void descriptions(void **state UNUSED)
{
	struct app f;
	const struct doc *d;
	struct got g;

	start(&f, 0);
	g = get(&f, REPO "?expand=xetEnabled&expand=siblings");
	d = g.d;
	assert_text(d, "id", "Ada/Net");
	assert_text(d, "modelId", "Ada/Net");
	assert_text(d, "sha", COMMIT);
	assert_true(doc_is(at(d, "gated"), DOC_BOOL) && !doc_bool(at(d, "gated"), true));
	assert_false(doc_bool(at(d, "private"), true));
	assert_false(doc_bool(at(d, "disabled"), true));
	assert_text(d, "lastModified", DATE);
	assert_text(d, "cardData.license", "mit");
	assert_int_equal(doc_int(at(d, "likes"), 0), 3);
	assert_int_equal(doc_int(at(d, "tags.1.k"), 0), 1);
	assert_int_equal(at(d, "siblings")->count, hub.listing.n);
	assert_text(d, "siblings.0.rfilename", "README.md");
	assert_null(at(d, "siblings.0.size"));
	assert_null(strcasestr(arena_strz(f.a, g.text), "xet"));
	g = get(&f, REPO "/revision/main?blobs=True");
	assert_text(g.d, "siblings.0.blobId", HELLO);
	assert_int_equal(doc_int(at(g.d, "siblings.0.size"), 0), 6);
	assert_null(at(g.d, "siblings.0.lfs"));
	assert_text(g.d, "siblings.3.rfilename", BIG);
	assert_text(g.d, "siblings.3.lfs.sha256", hub.sha256);
	assert_int_equal(doc_int(at(g.d, "siblings.3.lfs.size"), 0), BIG_SIZE);
	assert_int_equal(doc_int(at(g.d, "siblings.3.lfs.pointerSize"), 0), 125 + 7);
	assert_null(strcasestr(arena_strz(f.a, g.text), "xet"));
	hub.listing.type = HUB_DATASETS;
	hub.listing.about = "{}";
	d = get_ok(&f, "/api/datasets/Ada/Net?blobs=1");
	assert_null(at(d, "modelId"));
	assert_text(d, "siblings.0.blobId", HELLO);
	assert_int_equal(doc_int(at(d, "downloads"), -1),
	                 0); /* huggingface_hub 0.20 fails without */
	assert_int_equal(doc_int(at(d, "likes"), -1), 0);
	assert_true(doc_is(at(d, "tags"), DOC_LIST));
	d = get_ok(&f, REPO "/commits/main");
	assert_text(d, "0.id", COMMIT);
	assert_int_equal(at(d, "0.authors")->count, 0);
	assert_text(d, "0.date", "1970-01-01T00:00:00.000Z");
	stop(&f);
}

static void nested_deeply(void **state UNUSED)
{
	AUTO_BUF struct buf about = BUF_INIT(1000);
	struct app f;

	start(&f, 0);
	buf_puts(&about, "{\"deep\":");
	for (int i = 0; i < JS_DEPTH_MAX; i++)
		buf_putc(&about, '[');
	for (int i = 0; i < JS_DEPTH_MAX; i++)
		buf_putc(&about, ']');
	buf_puts(&about, "}");
	hub.listing.about = buf_cstr(&about);
	assert_true(doc_is(at(get_ok(&f, REPO), "deep.0.0"), DOC_LIST));
	stop(&f);
}

static void branches_and_commits(void **state UNUSED)
{
	struct hub_branch branch[] = {{"main", COMMIT}, {"a/b", COMMIT}}, tag[] = {{"v1", COMMIT}};
	struct app f;
	const struct doc *d;

	start(&f, 0);
	hub.refs = (struct hub_refs){
		.branch = branch, .tag = tag, .n_branches = COUNT(branch), .n_tags = COUNT(tag)};
	d = get_ok(&f, REPO "/refs");
	assert_text(d, "branches.1.name", "a/b");
	assert_text(d, "branches.1.ref", "refs/heads/a/b");
	assert_text(d, "branches.1.targetCommit", COMMIT);
	assert_text(d, "tags.0.ref", "refs/tags/v1");
	assert_int_equal(at(d, "converts")->count, 0);
	assert_null(at(d, "pullRequests"));
	d = get_ok(&f, "/api/models/net/refs?include_prs=1");
	assert_int_equal(at(d, "pullRequests")->count, 0);
	assert_true(doc_is(at(d, "pullRequests"), DOC_LIST));
	d = get_ok(&f, REPO "/commits/main");
	assert_int_equal(d->count, 1);
	assert_text(d, "0.id", COMMIT);
	assert_text(d, "0.authors.0.user", "ada");
	assert_text(d, "0.date", DATE);
	assert_true(doc_is(at(d, "0.title"), DOC_TEXT));
	assert_true(doc_is(at(d, "0.message"), DOC_TEXT));
	stop(&f);
}

static void callers(void **state UNUSED)
{
	struct app f;
	const struct doc *d;

	start(&f, 0);
	d = get_ok(&f, "/api/whoami-v2");
	assert_text(d, "type", "user");
	assert_text(d, "name", "ada");
	assert_text(d, "orgs.0.name", "Default");
	assert_text(d, "auth.type", "access_token");
	assert_text(d, "auth.accessToken.displayName", "ada");
	assert_text(d, "auth.accessToken.role", "write");
	f.team[f.n_teams++] = (struct model_team){"team002", "Others", false, T0};
	assert_int_equal(at(get_ok(&f, "/api/whoami-v2"), "orgs")->count, 2);
	f.token = "viewer";
	d = get_ok(&f, "/api/whoami-v2");
	assert_int_equal(at(d, "orgs")->count, 1);
	assert_text(d, "auth.accessToken.role", "read");
	f.token = "nobody";
	d = get_ok(&f, "/api/agent-harnesses");
	assert_true(doc_is(at(d, "standardEnvVars"), DOC_LIST));
	assert_true(doc_is(at(d, "harnesses"), DOC_MAP));
	stop(&f);
}

/* ---- trees --------------------------------------------------------------------------------- */

static void assert_paths(const struct doc *d, const char *const *want, size_t n, const char *what)
{
	size_t i = 0;

	DOC_EACH (item, d) {
		const char *path = doc_cstr(doc_get(item, "path"), "(none)");

		if (i >= n || strcmp(path, want[i]) != 0)
			fail_msg("%s: entry %zu is %s", what, i, path);
		i++;
	}
	assert_row(i == n, what);
}

static void trees(void **state UNUSED)
{
	static const char *const root[] = {"README.md", "a", "a.b", "a0", "empty"};
	static const char *const all[] = {"README.md", "a", "a.b", "a.b/x", "a/c",
	                                  "a/deep",    BIG, "a0",  "empty"};
	static const char *const in_a[] = {"a/c", "a/deep"};
	static const char *const below_a[] = {"a/c", "a/deep", BIG};
	struct app f;
	const struct doc *d;
	struct got g;

	start(&f, 0);
	assert_paths(get_ok(&f, REPO "/tree/main"), root, COUNT(root), "root");
	assert_paths(get_ok(&f, REPO "/tree/main/a%2F"), in_a, COUNT(in_a), "a");
	assert_paths(get_ok(&f, REPO "/tree/main/a?recursive=1"), below_a, COUNT(below_a), "a/");
	g = get(&f, REPO "/tree/main?recursive=True&expand=False");
	d = g.d;
	assert_paths(d, all, COUNT(all), "all");
	assert_string_equal(header(&f, &g, "Link"), "");
	assert_text(d, "0.type", "file");
	assert_text(d, "0.oid", HELLO);
	assert_int_equal(doc_int(at(d, "0.size"), 0), 6);
	assert_null(at(d, "0.lfs"));
	assert_null(at(d, "0.lastCommit"));
	assert_text(d, "1.type", "directory");
	assert_int_equal(doc_cstr(at(d, "1.oid"), "")[39] != '\0', 1);
	assert_int_equal(doc_int(at(d, "1.size"), -1), 0);
	assert_text(d, "6.lfs.oid", hub.sha256);
	assert_int_equal(doc_int(at(d, "6.size"), 0), BIG_SIZE);
	assert_int_equal(doc_int(at(d, "6.lfs.pointerSize"), 0), 125 + 7);
	d = get_ok(&f, REPO "/tree/main?expand=true");
	assert_text(d, "0.lastCommit.id", COMMIT);
	assert_text(d, "1.lastCommit.date", DATE);
	stop(&f);
}

/* Follows the links from `path` on, and returns how many entries there were. */
static size_t follow(struct app *f, const char *path, const char *name, const char *host,
                     size_t page, const char *const *want)
{
	const char *base = arena_printf(f->a, "<http://%s", host != NULL ? host : f->base + 7);
	size_t n = 0;

	while (path != NULL) {
		struct got g = send(f, HTTP_GET, path, name, host, NULL);
		const char *link = header(f, &g, "Link");

		assert_int_equal(g.status, 200);
		DOC_EACH (item, g.d) {
			if (want != NULL)
				assert_string_equal(doc_cstr(doc_get(item, "path"), ""), want[n]);
			n++;
		}
		if (link[0] == '\0')
			return n;
		assert_int_equal(g.d->count, page);
		assert_int_equal(strncmp(link, base, strlen(base)), 0);
		link += strlen(base);
		assert_string_equal(link + strcspn(link, ">"), ">; rel=\"next\"");
		path = arena_strz(f->a, str_n(link, strcspn(link, ">")));
		assert_null(strstr(strstr(path, "cursor=") + 1, "cursor="));
	}
	return n;
}

static void trees_in_pages(void **state UNUSED)
{
	static const char *const root[] = {"README.md", "a", "a.b", "a0", "empty", "many"};
	struct app f;

	start(&f, 1200);
	for (size_t page = 1; page < COUNT(root) + 2; page++)
		assert_int_equal(follow(&f, arena_printf(f.a, REPO "/tree/main?limit=%zu", page),
		                        NULL, NULL, page, root),
		                 COUNT(root));
	assert_int_equal(follow(&f, REPO "/tree/main?recursive=true&x=%3E", NULL, NULL, 1000, NULL),
	                 1210);
	assert_int_equal(
		follow(&f, "/api/models/gpt2/tree/a%2Fb/many%2F?expand=true", NULL, NULL, 50, NULL),
		1200);
	assert_int_equal(follow(&f, REPO "/tree/main/many?limit=5000", NULL, NULL, 1000, NULL),
	                 1200);
	assert_int_equal(follow(&f, REPO "/tree/main/many", "Host", "hub.example:81", 1000, NULL),
	                 1200);
	stop(&f);
}

/* ---- single paths -------------------------------------------------------------------------- */

static void single_paths(void **state UNUSED)
{
	static const char *const want[] = {BIG, "a", "README.md"};
	static const char form[] = "application/x-www-form-urlencoded";
	AUTO_BUF struct buf many = BUF_INIT(1 << 20);
	struct app f;
	struct got g;

	start(&f, 0);
	f.token = "viewer";
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", form,
	         "paths=a%2Fdeep%2Fw%2B1+%C3%A9.bin&paths=none&paths=a%2F&paths=README.md&expand="
	         "False");
	assert_int_equal(g.status, 200);
	assert_paths(g.d, want, COUNT(want), "form");
	assert_text(g.d, "0.lfs.oid", hub.sha256);
	assert_text(g.d, "1.type", "directory");
	assert_null(at(g.d, "0.lastCommit"));
	g = send(&f, HTTP_POST, "/api/datasets/squad/paths-info/main", "Content-Type",
	         "application/json; charset=utf-8",
	         "{\"paths\":[\"a/deep/w+1 "
	         "\\u00e9.bin\",\"\",\"a\",\"README.md\"],\"expand\":true}");
	assert_int_equal(g.status, 200);
	assert_paths(g.d, want, COUNT(want), "JSON");
	assert_text(g.d, "2.lastCommit.id", COMMIT);
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", form, "");
	assert_int_equal(g.status, 200);
	assert_int_equal(g.d->count, 0);
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", form, "paths=%zz");
	assert_refused(&f, &g, 400, "", "escape");
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", "application/json",
	         "{\"paths\":[1]}");
	assert_refused(&f, &g, 400, "", "kind");
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", "application/json", "{}");
	assert_refused(&f, &g, 400, "", "none");
	for (int i = 0; i < 10001; i++)
		buf_puts(&many, "paths=x&");
	g = send(&f, HTTP_POST, REPO "/paths-info/main", "Content-Type", form, buf_cstr(&many));
	assert_refused(&f, &g, 413, "", "many");
	stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_refused),
	cmocka_unit_test(a_file_as_git_has_it),
	cmocka_unit_test(hubs_that_fail),
	cmocka_unit_test(kept_words_that_are_no_object),
	cmocka_unit_test(what_paths_name),
	cmocka_unit_test(channels_of_a_repository),
	cmocka_unit_test(heads_describe),
	cmocka_unit_test(files_in_ranges),
	cmocka_unit_test(empty_files_and_files_elsewhere),
	cmocka_unit_test(waits_until_it_is_known),
	cmocka_unit_test(waits_for_a_place),
	cmocka_unit_test(waits_no_longer_than_a_client),
	cmocka_unit_test(descriptions),
	cmocka_unit_test(nested_deeply),
	cmocka_unit_test(branches_and_commits),
	cmocka_unit_test(callers),
	cmocka_unit_test(trees),
	cmocka_unit_test(trees_in_pages),
	cmocka_unit_test(single_paths),
};

UNIT_MAIN(tests)
