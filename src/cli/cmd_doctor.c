/* cmd_doctor.c - `stoker doctor`: the set-up from here to the server's disk, a line a finding; what
 * is wrong says how to mend it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/units.h"

#define SKEW_WARN_S 120
#define DISK_LOW 0.10 /* free share below which doctor warns */
#define MEET_MS 15000 /* for a server to say who it is */
#define MEET_MAX ((size_t)8 << 20)

struct doctor {
	unsigned bad, warned;
};

static void verdict(struct doctor *d, char kind, const char *fmt, ...) PRINTF(3, 4);
static void verdict(struct doctor *d, char kind, const char *fmt, ...)
{
	va_list ap;

	d->bad += kind == 'x';
	d->warned += kind == '!';
	(void)fputs(kind == 'x' ? "fail  " : kind == '!' ? "warn  " : "ok    ", stdout);
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)putchar('\n');
}

static void check_nodes(struct doctor *d, const struct doc *status)
{
	DOC_EACH (n, doc_get(status, "nodes")) {
		char mem[UNITS_CAP];
		int64_t gpus = doc_int(doc_get(n, "gpus"), 0);
		bool declared = doc_bool(doc_get(n, "declared"), false);

		verdict(d, ' ', "node %s: %.1f CPUs, %s of memory, %" PRId64 " GPUs%s%s%s%s",
		        doc_cstr(doc_get(n, "name"), "?"),
		        (double)doc_int(doc_get(n, "millicpu"), 0) / 1000.0,
		        units_show_bytes((uint64_t)doc_int(doc_get(n, "memory_bytes"), 0), mem),
		        gpus, gpus > 0 ? " (" : "",
		        gpus > 0 ? doc_cstr(doc_get(n, "gpu_type"), "of no known type") : "",
		        gpus > 0 && declared ? "; declared" : "", gpus > 0 ? ")" : "");
	}
}

/* What a job without an image gets by runtime.python. */
static void check_python(struct doctor *d, const struct doc *python)
{
	if (python == NULL)
		return; /* an older server */
	if (python->kind == DOC_TEXT)
		verdict(d, ' ', "python: %s", doc_cstr(python, ""));
	else
		verdict(d, '!',
		        "python: the server's machine cannot build environments (runtime.python): "
		        "apt install python3-venv, or install uv, and start the server again");
}

static void check_disk(struct doctor *d, const struct doc *status)
{
	double left = doc_real(doc_path(status, "disk", "free", NULL), 0),
	       all = doc_real(doc_path(status, "disk", "total", NULL), 1);
	char text[UNITS_CAP];

	verdict(d, left < all * DISK_LOW ? '!' : ' ', "data folder: %s free%s",
	        units_show_bytes((uint64_t)left, text),
	        left < all * DISK_LOW
	                ? ": stoker weights rm, stoker cache rm and stoker checkpoints rm make room"
	                : "");
}

/* Who answers there? Asked without a token, so that what is no Stoker never sees it. */
static bool meet(struct cli *c, struct doctor *d)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_call call = {.method = HTTP_GET,
	                         .url = arena_printf(c->arena, "%s/openapi.json", c->url),
	                         .body_max = MEET_MAX,
	                         .total_ms = MEET_MS,
	                         .connect_ms = MEET_MS,
	                         .cancel = &interrupted};
	const struct doc *about = NULL;
	struct err e = {0}, ignored = {0};
	const char *version, *advice;

	if (http_do(c->http, &call, &reply, &e) < 0) {
		advice = remote_advice(c, &e);
		verdict(d, 'x', "server: %s%s%s", e.msg, advice != NULL ? "; " : "",
		        advice != NULL ? advice : "");
		return false;
	}
	if (reply.status != 200 ||
	    js_parse(c->arena, buf_view(&reply.body), &about, &ignored) < 0 ||
	    !str_eq(doc_text(doc_path(about, "info", "title", NULL)), "Stoker")) {
		verdict(d, 'x',
		        "server: %s answers, but it is not Stoker (GET /openapi.json: %d): "
		        "STOKER_URL or "
		        "`stoker login --url URL` name another; a proxy in between has to pass "
		        "every path",
		        c->url, reply.status);
		return false;
	}
	version = doc_cstr(doc_path(about, "info", "version", NULL), "?");
	if (strcmp(version, STOKER_VERSION) == 0)
		verdict(d, ' ', "server %s answers, version %s", c->url, version);
	else
		verdict(d, '!',
		        "server %s answers, version %s; this program is %s: take the server's, or "
		        "update it (operating.md, Upgrade)",
		        c->url, version, STOKER_VERSION);
	return true;
}

static void check_status(struct doctor *d, const struct doc *status)
{
	struct err ignored = {0};
	int64_t server_ms = 0;

	if (clock_parse(doc_text(doc_get(status, "now")), &server_ms, &ignored) == 0) {
		int64_t skew = (clock_wall_ms() - server_ms) / 1000;
		bool bad = skew > SKEW_WARN_S || skew < -SKEW_WARN_S;

		verdict(d, bad ? '!' : ' ', "clocks differ by %" PRId64 " s%s", skew,
		        bad ? ": signed uploads fail; `timedatectl set-ntp true` on both machines"
		            : "");
	}
	verdict(d, ' ', "sandbox: %s", doc_cstr(doc_get(status, "sandbox"), "unknown"));
	check_python(d, doc_get(status, "python"));
	check_nodes(d, status);
	check_disk(d, status);
}

static void look_inside(struct cli *c, struct doctor *d)
{
	const struct doc *reply = NULL;
	struct err e = {0};

	if (remote_get(c, &reply, &e, "/v1/users/me") < 0) {
		verdict(d, 'x', "login: %s", e.msg);
		return;
	}
	verdict(d, ' ', "logged in as %s, role %s", doc_cstr(doc_get(reply, "name"), "?"),
	        doc_cstr(doc_get(reply, "role"), "?"));
	if (remote_get(c, &reply, &e, "/v1/status") < 0)
		verdict(d, 'x', "server: %s", e.msg);
	else
		check_status(d, reply);
}

int cmd_doctor(struct cli *c, struct err *err UNUSED)
{
	struct doctor d = {0};
	struct err e = {0};

	verdict(&d, ' ', "stoker %s", STOKER_VERSION);
	if (remote_login(c, &e) < 0)
		verdict(&d, 'x', "login: %s", e.msg);
	else if (meet(c, &d))
		look_inside(c, &d);
	(void)printf("%u failed, %u warned\n", d.bad, d.warned);
	return d.bad > 0 ? 1 : 0;
}
