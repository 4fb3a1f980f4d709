/*
 * graphql.c - the documents that the stock client sends to /graphql/. There is no GraphQL here:
 * each document is known by a text that only it contains. The client shows an error well only as
 * status 200 with an "errors" member, so that is what all refusals are, a bad key's too.
 */
#include "face/answer.h"
#include "face/deploy.h"
#include "face/face.h"
#include "face/instances.h"
#include "face/show.h"

#define BODY_MAX ((size_t)256 << 10)

struct document {
	const char *mark; /* in the query's text, blanks folded */
	int (*answer)(struct request *rq, const struct doc *variables, struct js *js,
	              struct err *err);
};

static int teams(struct request *rq, const struct doc *variables UNUSED, struct js *js,
                 struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_team *t;
	size_t n;

	if (ctx->ops->teams->list(face_ask(rq), &t, &n, err) < 0)
		return -1;
	js_key(js, "teams");
	js_list(js);
	for (size_t i = 0; i < n; i++) {
		js_open(js);
		js_kv(js, "id", t[i].id);
		js_kv(js, "name", t[i].name);
		js_kv_bool(js, "default", t[i].is_default);
		js_close(js);
	}
	js_end(js);
	return 0;
}

static int whoami(struct request *rq, const struct doc *variables UNUSED, struct js *js,
                  struct err *err UNUSED)
{
	js_key(js, "organization");
	js_open(js);
	js_kv(js, "workspace_name", "stoker");
	js_close(js);
	js_key(js, "user");
	js_open(js);
	js_kv(js, "email", face_principal(rq)->name);
	js_close(js);
	return 0;
}

static int organization(struct request *rq UNUSED, const struct doc *variables UNUSED,
                        struct js *js, struct err *err UNUSED)
{
	js_key(js, "organization");
	js_open(js);
	js_kv(js, "id", "stoker");
	js_close(js);
	return 0;
}

/* null: "not enabled", as the client says it. */
static int assume_role(struct request *rq UNUSED, const struct doc *variables UNUSED, struct js *js,
                       struct err *err UNUSED)
{
	js_key(js, "organization");
	js_open(js);
	js_kv_null(js, "aws_customer_access_role_arn");
	js_kv_null(js, "aws_external_id");
	js_close(js);
	return 0;
}

static void show_listed(struct js *js, struct arena *a, const struct instance *in)
{
	int64_t gpu_mib = show_gpu_memory_mib(in->gpu_type);

	js_open(js);
	js_kv(js, "id", show_instance_id(a, in));
	js_kv(js, "name", show_instance_name(a, in));
	js_kv(js, "displayName", show_instance_name(a, in));
	js_kv_u64(js, "millicpuLimit", in->cpu_milli);
	js_kv_u64(js, "memoryLimit", in->memory_bytes); /* the client compares it with bytes */
	js_kv_u64(js, "gpuCount", in->gpu_count);
	js_kv(js, "gpuType", in->gpu_type);
	js_key(js, "gpuMemory");
	if (gpu_mib > 0)
		js_int(js, gpu_mib);
	else
		js_null(js);
	js_kv_bool(js, "default", false);
	js_kv_int(js, "nodeCount", 1);
	js_kv_null(js, "price");
	js_kv_null(js, "limitedCapacity");
	js_close(js);
}

static int instances(struct request *rq, const struct doc *variables UNUSED, struct js *js,
                     struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct instance list[INSTANCES_MAX];
	struct server_status st = {0};
	size_t n;

	if (ctx->ops->server->status(face_ask(rq), &st, err) < 0)
		return -1;
	n = instances_of(st.nodes, st.n_nodes, list);
	js_key(js, "listedInstances");
	js_list(js);
	for (size_t i = 0; i < n; i++)
		show_listed(js, rq->arena, &list[i]);
	js_end(js);
	return 0;
}

/* clang-format off */
static const struct document documents[] = { /* tried in this order */
	{ "create_model_version_from_inference_template", deploy_checkpoints },
	{ "listed_instances",                             instances },
	{ "aws_customer_access_role_arn",                 assume_role },
	{ "workspace_name",                               whoami },
	{ "teams {",                                      teams },
	{ "organization { id",                            organization },
};
/* clang-format on */

/* Runs of blanks become one, and one stands before every brace. */
static char *folded(struct arena *a, const char *text)
{
	AUTO_BUF struct buf b = BUF_INIT(2 * BODY_MAX + 2);

	for (; *text != '\0'; text++) {
		bool blank = strchr(" \t\r\n", *text) != NULL;
		bool after = b.n > 0 && b.p[b.n - 1] == ' ';

		if ((blank || *text == '{') && !after)
			buf_putc(&b, ' ');
		if (!blank)
			buf_putc(&b, *text);
		if (*text == '{')
			buf_putc(&b, ' ');
	}
	return arena_strz(a, buf_view(&b));
}

static int identify(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str header = str_trim(request_header(rq, "Authorization")), scheme;
	struct principal *principal = NULL;

	if (!str_cut(&header, ' ', &scheme) ||
	    !(str_ieq(scheme, "Bearer") || str_ieq(scheme, "Api-Key")))
		return err_set(err, ERR_AUTH,
		               "an API key is required: Authorization: Api-Key <key>");
	if (ctx->ops->tokens->authenticate(ctx->app, rq->arena, str_trim(header), rq->local,
	                                   &principal, err) < 0)
		return -1;
	if (principal->attempt_id != NULL)
		return err_set(err, ERR_DENIED, "runners may not use this route");
	rq->principal = principal;
	return 0;
}

static int run(struct request *rq, struct js *js, struct err *err)
{
	const struct doc *body;
	const char *query = NULL, *text;

	if (identify(rq, err) < 0 || body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "query", true, &query, err) < 0)
		return -1;
	text = folded(rq->arena, query);
	for (size_t i = 0; i < COUNT(documents); i++)
		if (strstr(text, documents[i].mark) != NULL)
			return documents[i].answer(rq, doc_get(body, "variables"), js, err);
	return err_set(err, ERR_UNSUPPORTED,
	               "this GraphQL document is not supported: Stoker answers only those of the "
	               "training commands");
}

static void send_errors(struct request *rq, const struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct err big = {0};
	int sent;

	answer_open(&an);
	js_key(&an.js, "errors");
	js_list(&an.js);
	js_open(&an.js);
	js_kv(&an.js, "message", err->msg);
	js_key(&an.js, "extensions");
	js_open(&an.js);
	js_kv(&an.js, "code", err_id(err));
	js_kv(&an.js, "description", err->msg);
	js_close(&an.js);
	js_close(&an.js);
	js_end(&an.js);
	sent = answer_send(rq, &an, 200, &big);
	assert(sent == 0); /* an error's words are short */
}

static int graphql(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, "data");
	js_open(&an.js);
	if (run(rq, &an.js, err) < 0)
		return -1; /* said by send_errors */
	js_close(&an.js);
	return answer_send(rq, &an, 200, err);
}

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_POST, SCOPE_OPEN, BODY_MAX, "/graphql/", graphql, "GraphQL queries of the truss client" },
};
/* clang-format on */

const struct face face_graphql = {"graphql", routes, COUNT(routes), send_errors};
