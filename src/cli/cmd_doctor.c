/* cmd_doctor.c - `stoker doctor`: the set-up from here to the server's disk, a line a finding; what
 * is wrong says how to mend it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/upload.h"

#include <sys/mman.h>

#define SKEW_WARN_S 120
#define SLOW_MS 2000                /* an upload of a few bytes that takes longer is slow */
#define STANDBY_SILENT_MS 30000     /* it asks twice a second */
#define STANDBY_GONE_MS (5 * 60000) /* it may just be restarted */
#define DISK_LOW 0.10               /* free share below which doctor warns */
#define MEET_MS 15000               /* for a server to say who it is */
#define MEET_MAX ((size_t)8 << 20)
#define FINDINGS_MAX ((size_t)1 << 20)

enum verdict { OK, WARNING, FAILURE };

struct doctor {
	enum out_form form;
	unsigned failed, warned;
	struct buf json; /* the findings as a list */
	struct js js;
};

static const char *const words[] = {[OK] = "ok", [WARNING] = "warn", [FAILURE] = "fail"};

/* id: of the error behind a finding; NULL: none. */
static void add(struct doctor *d, enum verdict v, const char *check, const char *id,
                const char *message)
{
	d->failed += v == FAILURE;
	d->warned += v == WARNING;
	if (d->form == OUT_TABLE)
		out_put("%-5s %s\n", words[v], message);
	js_open(&d->js);
	js_kv(&d->js, "check", check);
	js_kv(&d->js, "verdict", words[v]);
	js_kv(&d->js, "id", id);
	js_kv(&d->js, "message", message);
	js_close(&d->js);
}

static void finding(struct doctor *d, enum verdict v, const char *check, const char *fmt, ...)
	PRINTF(4, 5);
static void finding(struct doctor *d, enum verdict v, const char *check, const char *fmt, ...)
{
	AUTO_BUF struct buf text = BUF_INIT(FINDINGS_MAX);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	add(d, v, check, NULL, buf_cstr(&text));
}

static void failure(struct doctor *d, const char *check, const struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(ERR_MSG_MAX + 100);

	buf_printf(&text, "%s: %s", check, err->msg);
	add(d, FAILURE, check, err_id(err), buf_cstr(&text));
}

static void check_nodes(struct doctor *d, const struct doc *status)
{
	DOC_EACH (n, doc_get(status, "nodes")) {
		char mem[UNITS_CAP];
		int64_t gpus = doc_int(doc_get(n, "gpus"), 0);
		bool declared = doc_bool(doc_get(n, "declared"), false);

		finding(d, OK, "node", "node %s: %g CPU%s, %s of memory, %" PRId64 " GPU%s%s%s%s%s",
		        doc_cstr(doc_get(n, "name"), "?"),
		        (double)doc_int(doc_get(n, "millicpu"), 0) / 1000.0,
		        doc_int(doc_get(n, "millicpu"), 0) == 1000 ? "" : "s",
		        units_show_bytes((uint64_t)doc_int(doc_get(n, "memory_bytes"), 0), mem),
		        gpus, gpus == 1 ? "" : "s", gpus > 0 ? " (" : "",
		        gpus > 0 ? doc_cstr(doc_get(n, "gpu_type"), "of an unknown type") : "",
		        gpus > 0 && declared ? ", declared" : "", gpus > 0 ? ")" : "");
	}
}

/* The Python that runtime.python gives a job without an image. */
static void check_python(struct doctor *d, const struct doc *python)
{
	if (python == NULL)
		return; /* an older server */
	if (python->kind == DOC_TEXT)
		finding(d, OK, "python", "python: %s", doc_cstr(python, ""));
	else
		finding(d, WARNING, "python",
		        "python: the server's machine cannot build environments (runtime.python). "
		        "Install python3-venv or uv there and restart the server");
}

static void check_standbys(struct doctor *d, const struct doc *status)
{
	char span[UNITS_CAP];

	DOC_EACH (s, doc_get(status, "standbys")) {
		const char *host = doc_cstr(doc_get(s, "host"), "?");
		int64_t seen_ms = doc_int(doc_get(s, "seen_ms"), -1);

		units_show_seconds((uint64_t)MAX(seen_ms, (int64_t)0) / 1000, span);
		if (seen_ms > STANDBY_SILENT_MS)
			finding(d, WARNING, "standby",
			        "standby: %s has asked nothing for %s. Look whether it runs, and "
			        "reaches the database",
			        host, span);
		else if (seen_ms >= 0)
			finding(d, OK, "standby", "standby: %s waits (seen %s ago)", host, span);
		else
			finding(d, OK, "standby", "standby: %s waits", host);
	}
}

/* One that waited before. */
static void check_standby_gone(struct doctor *d, const struct doc *status, struct err *ignored)
{
	const struct doc *gone = doc_get(status, "standby_gone");
	const char *host = doc_cstr(doc_get(gone, "host"), "?");
	int64_t now_ms = 0, seen_ms = 0;
	char span[UNITS_CAP];

	if (gone == NULL || clock_parse(doc_text(doc_get(status, "now")), &now_ms, ignored) < 0 ||
	    clock_parse(doc_text(doc_get(gone, "seen_at")), &seen_ms, ignored) < 0) {
		err_clear(ignored); /* none is, or a server that says it in another way */
		return;
	}
	units_show_seconds((uint64_t)MAX(now_ms - seen_ms, (int64_t)0) / 1000, span);
	if (now_ms - seen_ms > STANDBY_GONE_MS)
		finding(d, WARNING, "standby",
		        "standby: none waits; %s did %s ago. Start `stoker server --standby` there "
		        "or on another machine",
		        host, span);
	else
		finding(d, OK, "standby", "standby: none waits; %s did %s ago", host, span);
}

static void check_disk(struct doctor *d, const struct doc *status)
{
	double left = doc_real(doc_path(status, "disk", "free", NULL), 0),
	       all = doc_real(doc_path(status, "disk", "total", NULL), 1);
	bool low = left < all * DISK_LOW;
	char text[UNITS_CAP];

	finding(d, low ? WARNING : OK, "disk", "data folder: %s free%s",
	        units_show_bytes((uint64_t)left, text),
	        low ? ". Make room with `stoker cache gc`, `stoker weights rm` or `stoker "
	              "checkpoints rm`"
	            : "");
}

/* Without a token, so that what is no Stoker never sees it. */
static int ask(struct cli *c, const char *path, struct http_reply *reply, struct err *err)
{
	struct http_call call = {.method = HTTP_GET,
	                         .url = arena_printf(c->arena, "%s%s", c->url, path),
	                         .anonymous = true,
	                         .body_max = MEET_MAX,
	                         .total_ms = MEET_MS,
	                         .connect_ms = MEET_MS,
	                         .cancel = &interrupted};

	return http_do(c->http, &call, reply, err);
}

static int ask_who(struct cli *c, const struct doc **about, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct err ignored = {0};

	if (ask(c, "/openapi.json", &reply, err) < 0)
		return remote_explain(c, err);
	if (reply.status == 503 &&
	    js_parse(c->arena, buf_view(&reply.body), about, &ignored) == 0 &&
	    str_eq(doc_text(doc_path(*about, "error", "id", NULL)), "standby"))
		return err_set(err, ERR_STANDBY,
		               "%s: %.300s. STOKER_URL or `stoker login` name "
		               "another",
		               c->url, doc_cstr(doc_get(*about, "message"), "a standby"));
	if (reply.status != 200 || js_parse(c->arena, buf_view(&reply.body), about, &ignored) < 0 ||
	    !str_eq(doc_text(doc_path(*about, "info", "title", NULL)), "Stoker"))
		return err_set(
			err, ERR_NOT_STOKER,
			"%s answers, but it is not Stoker (GET /openapi.json: %d). "
			"STOKER_URL or `stoker login --url URL` name another server; a proxy "
			"in between must pass on every path",
			c->url, reply.status);
	return 0;
}

/* What the server needs: it says so itself, without any of it. */
static void check_parts(struct cli *c, struct doctor *d, struct err *ignored)
{
	static const struct {
		const char *key, *id, *ok, *bad;
	} rows[] = {
		{"database", "database_unavailable", "database: answers",
	         "database: does not answer the server, or takes no writes. Jobs go on running; "
	         "look whether PostgreSQL runs, leads, has room on its disk and can be reached "
	         "from "
	         "the server's machine"},
		{"objects", "unavailable", "object store: answers",
	         "object store: away, full, or it refuses the server's keys. Jobs go on running, "
	         "and their checkpoints wait; the server's log and GET /v1/status say why"},
	};
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	const struct doc *health = NULL;

	if (ask(c, "/healthz", &reply, ignored) < 0 || reply.status != 200 ||
	    js_parse(c->arena, buf_view(&reply.body), &health, ignored) < 0)
		return;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct str state = doc_text(doc_get(health, rows[i].key));

		if (str_eq(state, "ok"))
			finding(d, OK, rows[i].key, "%s", rows[i].ok);
		else if (state.n > 0) /* an older server says nothing */
			add(d, FAILURE, rows[i].key, rows[i].id, rows[i].bad);
	}
}

static bool check_server(struct cli *c, struct doctor *d)
{
	const struct doc *about = NULL;
	struct err e = {0};
	const char *version;

	if (ask_who(c, &about, &e) < 0) {
		failure(d, "server", &e);
		return false;
	}
	version = doc_cstr(doc_path(about, "info", "version", NULL), "?");
	if (strcmp(version, STOKER_VERSION) == 0)
		finding(d, OK, "server", "server %s answers, version %s", c->url, version);
	else
		finding(d, WARNING, "server",
		        "server %s answers, version %s; this program is %s. Install the server's "
		        "version, or update the server (docs/operating.md, Upgrade)",
		        c->url, version, STOKER_VERSION);
	check_parts(c, d, &e);
	return true;
}

static void check_clock(struct doctor *d, const struct doc *status)
{
	struct err ignored = {0};
	int64_t server_ms = 0, skew;
	bool bad;

	if (clock_parse(doc_text(doc_get(status, "now")), &server_ms, &ignored) < 0)
		return;
	skew = (clock_wall_ms() - server_ms) / 1000;
	bad = skew > SKEW_WARN_S || skew < -SKEW_WARN_S;
	finding(d, bad ? WARNING : OK, "clock", "clocks differ by %" PRId64 " s%s", skew,
	        bad ? ", so signed uploads fail. Run `timedatectl set-ntp true` on both machines"
	            : "");
}

/* Uploads a small file as a push would. The server removes it because no job refers to it. */
static int try_upload(struct cli *c, struct err *err)
{
	static const char text[] = "stoker doctor\n";
	AUTO_FD int fd = memfd_create("upload", MFD_CLOEXEC);
	struct spec_artifact where;
	struct digest sha256;
	char hex[HASH_HEX_CAP];
	struct upload u = {.fd = fd, .sha256 = hex, .afresh = true};
	bool sent = false;

	if (fd < 0)
		return err_errno(err, errno, "a file in memory");
	if (fs_write_all(fd, text, sizeof(text) - 1, err) < 0 ||
	    hash_fd(fd, &sha256, &u.bytes, err) < 0)
		return -1;
	digest_hex(&sha256, hex);
	return upload_file(c, &u, &where, &sent, err);
}

static void check_upload(struct cli *c, struct doctor *d, const char *role,
                         const struct doc *status)
{
	int64_t began_ms = clock_mono_ms();
	struct err e = {0};
	char took[UNITS_CAP];

	if (strcmp(role, "viewer") == 0)
		finding(d, OK, "upload", "upload: not tried: viewers cannot push");
	else if (doc_int(doc_get(status, "objects_away_ms"), 0) > 0)
		finding(d, WARNING, "upload", "upload: not tried: the object store is away: %s",
		        doc_cstr(doc_get(status, "objects_problem"), "it did not say why"));
	else if (try_upload(c, &e) < 0)
		failure(d, "upload", &e);
	else if (clock_mono_ms() - began_ms >= SLOW_MS)
		finding(d, WARNING, "upload",
		        "upload: works, but took %s: the object store is slow, or the way there",
		        units_show_seconds((uint64_t)(clock_mono_ms() - began_ms) / 1000, took));
	else
		finding(d, OK, "upload", "upload: works");
}

static void check_login(struct cli *c, struct doctor *d)
{
	const struct doc *me = NULL, *status = NULL;
	struct err e = {0};
	const char *role;

	if (remote_get(c, &me, &e, "/v1/users/me") < 0) {
		failure(d, "login", &e);
		return;
	}
	role = doc_cstr(doc_get(me, "role"), "?");
	finding(d, OK, "login", "logged in as %s, role %s", doc_cstr(doc_get(me, "name"), "?"),
	        role);
	if (remote_get(c, &status, &e, "/v1/status") < 0) {
		failure(d, "server", &e);
		return;
	}
	check_clock(d, status);
	finding(d, OK, "sandbox", "sandbox: %s", doc_cstr(doc_get(status, "sandbox"), "unknown"));
	check_python(d, doc_get(status, "python"));
	check_nodes(d, status);
	check_standbys(d, status);
	check_standby_gone(d, status, &e);
	check_disk(d, status);
	check_upload(c, d, role, status);
}

static int print_list(struct cli *c, struct doctor *d, struct err *err)
{
	static const struct out_col cols[] = {{"CHECK", false, cell_text, "check"},
	                                      {"VERDICT", false, cell_text, "verdict"},
	                                      {"ID", false, cell_text, "id"},
	                                      {"MESSAGE", false, cell_text, "message"}};
	const struct doc *list;

	js_end(&d->js);
	if (d->form == OUT_TABLE) {
		(void)printf("%u failed, %u warned\n", d->failed, d->warned);
		return 0;
	}
	if (buf_check(&d->json, "list of findings", err) < 0 ||
	    js_parse(c->arena, buf_view(&d->json), &list, err) < 0)
		return -1;
	return out_list(c, list, cols, COUNT(cols), "", err);
}

int cmd_doctor(struct cli *c, struct err *err)
{
	struct doctor d = {.json = BUF_INIT(FINDINGS_MAX)};
	struct err e = {0};
	int r;

	if (out_form(c, &d.form, err) < 0)
		return -1;
	js_init(&d.js, &d.json);
	js_list(&d.js);
	finding(&d, OK, "version", "stoker %s", STOKER_VERSION);
	if (remote_login(c, &e) < 0)
		failure(&d, "login", &e);
	else if (check_server(c, &d))
		check_login(c, &d);
	r = print_list(c, &d, err);
	buf_done(&d.json);
	return r < 0 ? -1 : d.failed > 0 ? 1 : 0;
}
