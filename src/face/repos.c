/* repos.c - this server's own repositories for people: listed, shown, made, deleted. What clients
 * of a Hub do with them is hub_write.c. */
#include "face/handlers.h"
#include "face/show.h"

#define COMMITS 5 /* the newest, of one that is shown */

/* "model" or "models". */
static int type_of(struct str word, enum hub_type *out, struct err *err)
{
	AUTO_BUF struct buf many = BUF_INIT(100);

	buf_printf(&many, "%.*ss", (int)MIN(word.n, (size_t)20), word.p);
	if (hub_type_parse(word, out) || hub_type_parse(buf_view(&many), out))
		return 0;
	return err_set(err, ERR_INVALID,
	               "type: \"%.*s\" is not a type of repositories: models, datasets, spaces",
	               (int)MIN(word.n, (size_t)40), word.n > 0 ? word.p : "");
}

int repositories_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct repo_query q = {.any_type = true};
	struct repo_space space = {0};
	struct model_repo *r = NULL;
	struct str word;
	size_t n = 0;

	if (request_query(rq, "type", &word)) {
		q.any_type = false;
		if (type_of(word, &q.type, err) < 0)
			return -1;
	}
	if (request_query(rq, "owner", &word))
		q.owner = arena_strz(rq->arena, word);
	if (request_query(rq, "search", &word))
		q.search = arena_strz(rq->arena, word);
	if (ctx->ops->repos->list(face_ask(rq), &q, &r, &n, err) < 0 ||
	    ctx->ops->repos->space(face_ask(rq), &space, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "repositories");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_repo(&an.js, rq->arena, &r[i]);
	js_end(&an.js);
	js_kv_u64(&an.js, "bytes", space.bytes);
	js_kv_u64(&an.js, "quota_bytes", space.quota);
	return answer_send(rq, &an, 200, err);
}

/* What the path names. */
static int named(struct request *rq, struct hub_name *out, struct err *err)
{
	const char *id = arena_printf(rq->arena, "%s/%s", arg_text(rq, 1), arg_text(rq, 2));

	*out = (struct hub_name){.id = id, .rev = "main"};
	if (type_of(rq->arg[0], &out->type, err) < 0)
		return -1;
	if (hub_id_ok(str_of(id)))
		return 0;
	return err_set(err, ERR_HUB_REPO_NOT_FOUND, "\"%.200s\" cannot be the name of a repository",
	               id);
}

static void js_refs(struct js *js, const char *key, const struct hub_branch *b, size_t n)
{
	js_key(js, key);
	js_list(js);
	for (size_t i = 0; i < n; i++)
		record_write_js(&repo_ref_record, &b[i], js);
	js_end(js);
}

int repository_show(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = face_ctx(rq)->ops->repos;
	AUTO_ANSWER struct answer an = {0};
	struct hub_name name;
	struct repo_page p;

	if (named(rq, &name, err) < 0 || ops->page(face_ask(rq), &name, COMMITS, &p, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "repository");
	show_repo(&an.js, rq->arena, &p.repo);
	js_kv_u64(&an.js, "files", p.files);
	js_kv_u64(&an.js, "files_bytes", p.bytes);
	js_refs(&an.js, "branches", p.refs.branch, p.refs.n_branches);
	js_refs(&an.js, "tags", p.refs.tag, p.refs.n_tags);
	js_key(&an.js, "commits");
	js_list(&an.js);
	for (size_t i = 0; i < p.n_commits; i++)
		record_write_js(&repo_commit_record, &p.commit[i], &an.js);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int repository_make(struct request *rq, struct err *err)
{
	const char *type = NULL, *owner = NULL, *name = NULL;
	AUTO_ANSWER struct answer an = {0};
	enum hub_type t = HUB_MODELS;
	bool is_private = false;
	struct model_repo r = {0};
	const struct doc *body;

	if (body_read(rq, false, &body, err) < 0 || body_text(body, "name", true, &name, err) < 0 ||
	    body_text(body, "owner", false, &owner, err) < 0 ||
	    body_text(body, "type", false, &type, err) < 0 ||
	    body_bool(body, "private", &is_private, err) < 0 ||
	    (type != NULL && type_of(str_of(type), &t, err) < 0))
		return -1;
	if (!hub_part_ok(str_of(name)) || str_ends(str_of(name), ".git"))
		return err_set(err, ERR_INVALID,
		               "name: \"%.100s\" cannot be the name of a repository: letters, "
		               "digits, - _ and . alone, at most %d of them, no .. and --, and "
		               "none of - . at an end",
		               name, HUB_PART_MAX);
	if (face_ctx(rq)->ops->repos->create(face_ask(rq), t, owner, name, is_private, &r, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "repository");
	show_repo(&an.js, rq->arena, &r);
	return answer_send(rq, &an, 200, err);
}

int repository_delete(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct hub_name name;

	if (named(rq, &name, err) < 0 ||
	    face_ctx(rq)->ops->repos->remove(face_ask(rq), name.type, name.id, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(&an.js, "id", name.id);
	js_kv_bool(&an.js, "deleted", true);
	return answer_send(rq, &an, 200, err);
}
