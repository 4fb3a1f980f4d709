/* cache.c - training caches of projects and teams: snapshots, what is removed, quotas. */
#include "face/handlers.h"
#include "base/fs.h"
#include "face/show.h"

#define LIST_MAX ((size_t)48 << 20) /* of the list of files in one answer */
#define QUOTA_MAX ((int64_t)1 << 60)

/* The list is kept as JSON lines, each a file summary; {"omitted": n} ends one that was too long.
 */
static int show_list(struct request *rq, struct js *js, const struct model_cache_snapshot *s,
                     struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_BUF struct buf text = BUF_INIT(LIST_MAX);
	struct server_status st = {0};
	struct str rest, line, omitted = {0};

	if (ctx->ops->server->status(face_ask(rq), &st, err) < 0)
		return -1;
	if (fs_read(AT_FDCWD, arena_printf(rq->arena, "%s/%s", st.data_dir, s->summary_file), &text,
	            err) < 0)
		return err_wrap(err, "cache summary");
	js_key(js, "file_summaries");
	js_list(js);
	rest = buf_view(&text);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, "{\"omitted\":"))
			omitted = line;
		else if (line.n > 0)
			js_raw(js, line);
	}
	js_end(js);
	js_kv_bool(js, "truncated", omitted.n > 0);
	return 0;
}

static int send_snapshot(struct request *rq, const struct model_cache_snapshot *s, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	show_time(&an.js, "timestamp", s->ms);
	js_kv(&an.js, strcmp(s->scope, "team") == 0 ? "team_id" : "project_id", s->scope_id);
	js_kv_u64(&an.js, "total_size_bytes", s->bytes);
	js_kv_u64(&an.js, "total_files", s->files);
	if (show_list(rq, &an.js, s, err) < 0)
		return -1;
	return answer_send(rq, &an, 200, err);
}

/* Never summarized is {}: the client says so in its own words. */
static int summary(struct request *rq, const char *scope, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_cache_snapshot s = {0};
	struct model_project p;

	if (strcmp(scope, "project") == 0 &&
	    ctx->ops->projects->get(face_ask(rq), arg_text(rq, 0), &p, err) < 0)
		return -1;
	if (ctx->ops->caches->snapshot(face_ask(rq), scope, arg_text(rq, 0), &s, err) == 0)
		return send_snapshot(rq, &s, err);
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return reply_bytes(rq, 200, "application/json", STR_LIT("{}"));
}

static int summarize(struct request *rq, const char *scope, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_cache_snapshot s = {0};

	if (ctx->ops->caches->summarize(face_ask(rq), scope, arg_text(rq, 0), &s, err) < 0)
		return -1;
	return send_snapshot(rq, &s, err);
}

static int remove_files(struct request *rq, const char *scope, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *path = query_text(rq, "path");
	AUTO_ANSWER struct answer an = {0};
	uint64_t bytes = 0;

	if (path == NULL)
		return err_set(err, ERR_INVALID, "parameter path: missing");
	if (!fs_path_is_plain(str_of(path)))
		return err_set(err, ERR_INVALID,
		               "parameter path: \"%.200s\" is not a path below the cache", path);
	if (ctx->ops->caches->remove(face_ask(rq), scope, arg_text(rq, 0), str_of(path), &bytes,
	                             err) < 0)
		return -1;
	answer_open(&an);
	js_kv_u64(&an.js, "bytes_freed", bytes);
	return answer_send(rq, &an, 200, err);
}

int cache_project_quota(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	const struct doc *body;
	struct model_project p;
	int64_t bytes = -1;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_int(body, "quota_bytes", 1, QUOTA_MAX, &bytes, err) < 0)
		return -1;
	if (bytes < 0)
		return err_set(err, ERR_INVALID, "quota_bytes: missing");
	if (ctx->ops->projects->get(face_ask(rq), arg_text(rq, 0), &p, err) < 0 ||
	    ctx->ops->caches->quota(face_ask(rq), p.id, (uint64_t)bytes, err) < 0)
		return -1;
	answer_open(&an);
	js_kv(&an.js, "project_id", p.id);
	js_kv_int(&an.js, "quota_bytes", bytes);
	return answer_send(rq, &an, 200, err);
}

int cache_project_summary(struct request *rq, struct err *err)
{
	return summary(rq, "project", err);
}

int cache_project_summarize(struct request *rq, struct err *err)
{
	return summarize(rq, "project", err);
}

int cache_project_remove(struct request *rq, struct err *err)
{
	return remove_files(rq, "project", err);
}

int cache_team_summary(struct request *rq, struct err *err)
{
	return summary(rq, "team", err);
}

int cache_team_summarize(struct request *rq, struct err *err)
{
	return summarize(rq, "team", err);
}

int cache_team_remove(struct request *rq, struct err *err)
{
	return remove_files(rq, "team", err);
}
