/* meta.c - what the server says of itself: health, metrics, its API, and two plain pages. */
#include "base/clock.h"
#include "base/json.h"
#include "base/shown.h"
#include "face/answer.h"
#include "face/face.h"
#include "io/proof.h"

#define TEXT_MAX ((size_t)4 << 20)
#define OPENAPI_MAX ((size_t)4 << 20)
#define PROOF_BODY_MAX ((size_t)1 << 10)
#define SHOWN_MAX 300                     /* bytes of an id or an address on a page */
#define TRUSS_URL "http://localhost:8000" /* the stock client knows its own server only there */

/* It says nothing but this to somebody without a token, and it says it without the database: who
 * asks whether this process lives must not end it because another one does not. */
static int health(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	char why[OBJSTORE_WHY_MAX];
	struct outage objects;

	answer_open(&an);
	js_kv(&an.js, "status", "ok");
	js_kv(&an.js, "role", "leader");
	js_kv(&an.js, "database", ctx->ops->server->is_database_away(ctx->app) ? "away" : "ok");
	objstore_outage(ctx->objects, &objects, why);
	js_kv(&an.js, "objects", objects.since_ms != 0 ? "away" : "ok");
	return answer_send(rq, &an, 200, err);
}

/* The API that people program against; the protocols of runners and S3 clients have their own
 * documents. */
static int openapi(struct request *rq, struct err *err)
{
	static const struct face *const faces[] = {&face_training, &face_admin, &face_graphql,
	                                           &face_meta, &face_identity};
	AUTO_BUF struct buf out = BUF_INIT(OPENAPI_MAX);

	face_openapi(faces, COUNT(faces), &out);
	if (buf_check(&out, "the description of the API", err) < 0)
		return -1;
	return reply_json(rq, 200, &out);
}

static void gauge(struct buf *out, const char *name, const char *help)
{
	buf_printf(out, "# HELP stoker_%s %s\n# TYPE stoker_%s gauge\n", name, help, name);
}

static void one(struct buf *out, const char *name, const char *help, double value)
{
	gauge(out, name, help);
	buf_printf(out, "stoker_%s %.17g\n", name, value);
}

static void total(struct buf *out, const char *name, const char *help, uint64_t value)
{
	buf_printf(out, "# HELP stoker_%s %s\n# TYPE stoker_%s counter\nstoker_%s %" PRIu64 "\n",
	           name, help, name, name, value);
}

/* A label's value: backslash, quote and line break have escapes. */
static void label(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "%s=\"", name);
	for (; value != NULL && *value != '\0'; value++) {
		if (*value == '\\' || *value == '"')
			buf_putc(out, '\\');
		if (*value == '\n')
			buf_puts(out, "\\n");
		else
			buf_putc(out, *value);
	}
	buf_putc(out, '"');
}

static double node_value(const struct node_row *n, size_t which)
{
	switch (which) {
	case 0:
		return n->gpus;
	case 1:
		return __builtin_popcountll(n->gpus_used);
	case 2:
		return n->cpu_milli / 1000.0;
	case 3:
		return n->cpu_milli_used / 1000.0;
	case 4:
		return (double)n->memory_bytes;
	default:
		return (double)n->memory_used;
	}
}

static void node_gauges(struct buf *out, const struct server_status *s)
{
	static const struct {
		const char *name, *help;
	} rows[] = {
		{"node_gpus", "GPUs of a node."},
		{"node_gpus_used", "GPUs of a node that jobs hold."},
		{"node_cpu_cores", "Cores of a node."},
		{"node_cpu_cores_used", "Cores of a node that jobs hold."},
		{"node_memory_bytes", "Memory of a node."},
		{"node_memory_used_bytes", "Memory of a node that jobs hold."},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		gauge(out, rows[i].name, rows[i].help);
		for (size_t k = 0; k < s->n_nodes; k++) {
			buf_printf(out, "stoker_%s{", rows[i].name);
			label(out, "node", s->nodes[k].name);
			buf_putc(out, ',');
			label(out, "gpu_type", s->nodes[k].gpu_type);
			buf_printf(out, "} %.17g\n", node_value(&s->nodes[k], i));
		}
	}
}

/* Of the database, or the object store. */
static void outage_metrics(struct buf *out, const char *what, const struct outage *o)
{
	char name[60];

	FMT(name, "%s_up", what);
	one(out, name, "1 while it answers.", o->since_ms == 0);
	FMT(name, "%s_away_seconds", what);
	one(out, name, "How long it has not answered.",
	    (double)outage_away_ms(o, clock_wall_ms()) / 1000.0);
	FMT(name, "%s_outages_total", what);
	total(out, name, "Outages that are over.", o->n);
	FMT(name, "%s_outage_milliseconds_total", what);
	total(out, name, "How long they were together.", o->total_ms);
}

static void artifact_metrics(struct buf *out, const struct artifact_counts *c)
{
	const struct {
		const char *name, *help;
		const uint64_t *value;
	} rows[] = {
		{"artifact_hits_total", "Artifacts that tools asked for and got.", c->hits},
		{"artifact_misses_total", "Artifacts that they asked for in vain.", c->misses},
		{"artifact_stored_total", "Artifacts that they stored.", c->stored},
		{"artifact_sent_bytes_total", "Bytes of those that they got.", c->bytes_out},
		{"artifact_stored_bytes_total", "Bytes of those that they stored.", c->bytes_in},
		{"artifact_evicted_total", "Artifacts evicted.", c->evicted},
		{"artifact_evicted_bytes_total", "Bytes that this freed.", c->evicted_bytes},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		buf_printf(out, "# HELP stoker_%s %s\n# TYPE stoker_%s counter\n", rows[i].name,
		           rows[i].help, rows[i].name);
		for (size_t k = 0; k < ARTIFACT_KINDS; k++)
			buf_printf(out, "stoker_%s{kind=\"%s\"} %" PRIu64 "\n", rows[i].name,
			           artifact_kind_word[k], rows[i].value[k]);
	}
	one(out, "artifact_bytes", "What all artifacts take.", (double)c->bytes);
	one(out, "artifact_budget_bytes", "Their limit.", (double)c->budget);
}

static uint64_t deployment_value(const struct deployment_view *v, size_t row)
{
	switch (row) {
	case 0:
		return v->d.replicas;
	case 1:
		return v->ready;
	case 2:
		return v->in_flight;
	case 3:
		return v->requests;
	default:
		return v->failures;
	}
}

static void deployment_metrics(struct request *rq, struct buf *out)
{
	static const struct {
		const char *name, *type, *help;
	} rows[] = {
		{"deployment_replicas", "gauge", "Jobs that a deployment should have."},
		{"deployment_replicas_ready", "gauge", "Those that take requests."},
		{"deployment_requests_in_flight", "gauge", "Requests on their way."},
		{"deployment_requests_total", "counter", "Requests since the server started."},
		{"deployment_failures_total", "counter", "Those of them that failed."},
	};
	struct deployment_view *v = NULL;
	struct err err = {0};
	size_t n = 0;

	if (face_ctx(rq)->ops->deployments->list(face_ask(rq), &v, &n, &err) < 0)
		return; /* the database is away, which other rows say */
	for (size_t i = 0; i < COUNT(rows) && n > 0; i++) {
		buf_printf(out, "# HELP stoker_%s %s\n# TYPE stoker_%s %s\n", rows[i].name,
		           rows[i].help, rows[i].name, rows[i].type);
		for (size_t k = 0; k < n; k++) {
			if (v[k].d.id == NULL)
				continue;
			buf_printf(out, "stoker_%s{", rows[i].name);
			label(out, "team", v[k].d.team_name);
			buf_putc(out, ',');
			label(out, "name", v[k].d.name);
			buf_printf(out, "} %" PRIu64 "\n", deployment_value(&v[k], i));
		}
	}
}

static int metrics(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);
	struct server_status s = {0};
	char why[OBJSTORE_WHY_MAX];
	struct outage objects;

	if (ctx->ops->server->status(face_ask(rq), &s, err) < 0)
		return -1;
	objstore_outage(ctx->objects, &objects, why);
	gauge(&out, "info", "The server's version.");
	buf_puts(&out, "stoker_info{");
	label(&out, "version", s.version);
	buf_puts(&out, "} 1\n");
	one(&out, "start_time_seconds", "When the server started.", (double)s.started_ms / 1000.0);
	outage_metrics(&out, "database", &s.database);
	outage_metrics(&out, "objects", &objects);
	one(&out, "standbys", "Servers that wait to lead.", (double)s.n_standbys);
	if (s.database.since_ms == 0) {
		gauge(&out, "jobs", "Jobs that have not ended.");
		buf_printf(&out,
		           "stoker_jobs{state=\"active\"} %" PRIu64
		           "\nstoker_jobs{state=\"pending\"} %" PRIu64 "\n",
		           s.jobs_active, s.jobs_pending);
	}
	one(&out, "disk_free_bytes", "Free space of the data folder.", (double)s.disk_free);
	one(&out, "disk_total_bytes", "Size of its file system.", (double)s.disk_total);
	one(&out, "mirror_bytes", "Weights that are mirrored.", (double)s.mirror_bytes);
	one(&out, "mirror_budget_bytes", "Their limit.", (double)s.mirror_budget);
	one(&out, "mirror_reserved_bytes", "What running fetches have yet to bring.",
	    (double)s.mirror_reserved);
	total(&out, "mirror_evicted_sources_total", "Sources evicted from the mirror.",
	      s.mirror_evicted);
	total(&out, "mirror_evicted_bytes_total", "Bytes that this freed.", s.mirror_evicted_bytes);
	one(&out, "node_cache_bytes", "Weights on the node.", (double)s.node_cache_bytes);
	one(&out, "node_cache_budget_bytes", "Their limit.", (double)s.node_cache_budget);
	artifact_metrics(&out, &s.artifacts);
	node_gauges(&out, &s);
	deployment_metrics(rq, &out);
	if (buf_check(&out, "metrics", err) < 0)
		return -1;
	return reply_bytes(rq, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&out));
}

/* Text for a page; ids come from the path, so from anybody. */
static void escaped(struct buf *out, struct str s)
{
	char text[SHOWN_MAX + 1];

	s = str_of(shown_cut(s, text, sizeof(text)));
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
			buf_printf(out, "&#%d;", c);
		else
			buf_putc(out, c);
	}
}

static void page_head(struct buf *out, const char *title)
{
	buf_printf(
		out,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<meta name=\"viewport\" content=\"width=device-width\">"
		"<title>%s</title>"
		"<style>body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;"
		"padding:0 1rem;color:#222}pre{background:#f3f3f3;padding:1rem;overflow:auto}"
		"</style></head><body><h1>%s</h1>\n",
		title, title);
}

static int send_page(struct request *rq, struct buf *out, struct err *err)
{
	buf_puts(out, "</body></html>\n");
	if (buf_check(out, "the page", err) < 0)
		return -1;
	reply_header(rq, "Content-Security-Policy",
	             "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");
	reply_header(rq, "X-Content-Type-Options", "nosniff");
	return reply_bytes(rq, 200, "text/html; charset=utf-8", buf_view(out));
}

static int front_page(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);
	const char *url = face_url(rq);

	page_head(&out, "Stoker");
	buf_puts(
		&out,
		"<p>Training jobs on your own machines. Use it with these commands:</p><pre>stoker "
		"init\nstoker push train.yaml\nstoker logs -f JOB</pre><p>The truss client works "
		"too, with this in <code>~/.trussrc</code>:</p><pre>[baseten]\nremote_provider = "
		"baseten\nremote_url = " TRUSS_URL "\n"
		"api_key = (a token of this server)</pre>");
	if (strcmp(url, TRUSS_URL) != 0) {
		buf_puts(&out, "<p>and with this variable, because truss accepts no other "
		               "address:</p><pre>http_proxy=");
		escaped(&out, str_of(url));
		buf_puts(&out, "</pre>");
	}
	buf_puts(&out, "<p>This server is ");
	escaped(&out, str_of(url));
	buf_puts(&out, ". Its API is described in <a href=\"/openapi.json\">openapi.json</a>, its "
	               "health is at <a href=\"/healthz\">/healthz</a>.</p>");
	return send_page(rq, &out, err);
}

/* The stock client prints links to these two, after a deployment and after a push. */
static int model_page(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);

	page_head(&out, "Deployment");
	buf_puts(&out, "<p>Deployment <b>");
	escaped(&out, rq->arg[0]);
	buf_puts(&out, "</b>. Its state, its logs, and where to ask it:</p><pre>stoker deployments "
	               "view ");
	escaped(&out, rq->arg[0]);
	buf_puts(&out, "\nstoker logs -f ");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, "</pre>");
	return send_page(rq, &out, err);
}

static int job_page(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);

	page_head(&out, "Training job");
	buf_puts(&out, "<p>Job <b>");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, "</b> of project <b>");
	escaped(&out, rq->arg[0]);
	buf_puts(&out, "</b>. Its logs and its state:</p><pre>stoker logs -f ");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, "\nstoker view ");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, "</pre><p>or with truss:</p><pre>truss train logs --job-id ");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, " --tail\ntruss train metrics --job-id ");
	escaped(&out, rq->arg[1]);
	buf_puts(&out, "</pre>");
	return send_page(rq, &out, err);
}

static bool is_hex(struct str s, size_t n)
{
	for (size_t i = 0; i < s.n; i++) {
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	}
	return s.n == n;
}

/* See io/proof.h: asked before a token is sent, so it wants none. */
static int prove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf out = BUF_INIT(PROOF_BODY_MAX);
	char address[REQUEST_ADDRESS_CAP], proof[HASH_HEX_CAP];
	struct str id, challenge;
	const struct doc *body;
	struct js js;

	if (request_json(rq, &body, err) < 0)
		return -1;
	id = doc_text(doc_get(body, "token"));
	challenge = doc_text(doc_get(body, "challenge"));
	if (!is_hex(id, PROOF_ID_LEN) || !is_hex(challenge, PROOF_CHALLENGE_LEN))
		return err_set(err, ERR_INVALID,
		               "token should be %d lower-case hex digits, challenge %d",
		               PROOF_ID_LEN, PROOF_CHALLENGE_LEN);
	request_address(rq, address);
	if (ctx->ops->tokens->prove(ctx->app, arena_strz(rq->arena, id), challenge, str_of(address),
	                            proof, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "address", address);
	js_kv(&js, "proof", proof);
	js_close(&js);
	return reply_json(rq, 200, &out);
}

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET, SCOPE_OPEN,   0, "/",                                    front_page, "Name and version of the server" },
	{ HTTP_GET, SCOPE_OPEN,   0, "/training/{project_id}/logs/{job_id}", job_page,   "Page of a pushed job" },
	{ HTTP_GET, SCOPE_OPEN,   0, "/models/{name}/logs/{job_id}",         model_page, "Page of a deployment" },
	{ HTTP_GET, SCOPE_OPEN,   0, "/healthz",                             health,     "Health check" },
	{ HTTP_POST, SCOPE_OPEN, PROOF_BODY_MAX, PROOF_PATH,                 prove,      "Prove that the server knows a token, before the token is sent" },
	{ HTTP_GET, SCOPE_OPEN,   0, "/openapi.json",                        openapi,    "This API as OpenAPI" },
	{ HTTP_GET, SCOPE_VIEWER, 0, "/metrics",                             metrics,    "Metrics for Prometheus" },
};
/* clang-format on */

const struct face face_meta = {"meta", routes, COUNT(routes), NULL};
