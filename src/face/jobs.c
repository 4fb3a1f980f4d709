/* jobs.c - jobs: pushed, found, shown, changed. */
#include "face/handlers.h"
#include "face/show.h"

#define SEARCH_MAX 1000
#define STATUSES_MAX 32
#define KEY_MAX 200

int handler_job(struct request *rq, struct model_job *out, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	return ctx->ops->jobs->get(face_ask(rq), arg_text(rq, 0), arg_text(rq, 1), out, err);
}

static int send_job(struct request *rq, const struct model_job *j, bool whole, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, "training_job");
	show_job(&an.js, rq->arena, j, whole);
	if (whole) { /* as the upstream API shows one job */
		js_key(&an.js, "training_project");
		js_open(&an.js);
		js_kv(&an.js, "id", j->project_id);
		js_kv(&an.js, "name", j->project_name);
		js_close(&an.js);
	}
	return answer_send(rq, &an, 200, err);
}

/* "<created_ms>.<row>" of the last job of the page before. */
static int read_cursor(struct str text, struct job_query *q, struct err *err)
{
	struct str rest = text, ms;
	struct err bad = {0};

	if (!str_cut(&rest, '.', &ms) || str_i64(ms, 0, INT64_MAX, &q->after_ms, &bad) < 0 ||
	    str_i64(rest, 1, INT64_MAX, &q->after_row, &bad) < 0)
		return err_set(err, ERR_INVALID,
		               "cursor: \"%.*s\" is not the next_cursor of a reply",
		               (int)MIN(text.n, (size_t)60), text.p);
	return 0;
}

static void show_page(struct request *rq, struct js *js, const struct job_query *q,
                      const struct model_job *j, size_t n, uint64_t total)
{
	js_key(js, "training_jobs");
	js_list(js);
	for (size_t i = 0; i < n; i++)
		show_job(js, rq->arena, &j[i], false);
	js_end(js);
	js_kv_u64(js, "total", total);
	js_key(js, "next_cursor");
	if (n > 0 && n == q->limit && (n < total || q->after_row != 0))
		js_fmt(js, "%" PRId64 ".%" PRId64, j[n - 1].created_ms, j[n - 1].row);
	else
		js_null(js);
}

static int send_jobs(struct request *rq, const struct job_query *q, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_job *j = NULL;
	uint64_t total = 0;
	size_t n = 0;

	if (ctx->ops->jobs->search(face_ask(rq), q, &j, &n, &total, err) < 0)
		return -1;
	answer_open(&an);
	show_page(rq, &an.js, q, j, n, total);
	return answer_send(rq, &an, 200, err);
}

int jobs_of_project(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct job_query q = {.project_id = arg_text(rq, 0)};
	const char *cursor = query_text(rq, "cursor");
	int64_t limit = SEARCH_MAX;
	struct model_project p;

	if (query_int(rq, "limit", 1, SEARCH_MAX, &limit, err) < 0 ||
	    (cursor != NULL && read_cursor(str_of(cursor), &q, err) < 0) ||
	    ctx->ops->projects->get(face_ask(rq), q.project_id, &p, err) < 0)
		return -1;
	q.limit = (size_t)limit;
	return send_jobs(rq, &q, err);
}

static int read_order(const struct doc *body, bool *ascending, struct err *err)
{
	const struct doc *by = doc_get(body, "order_by");
	const char *field = NULL, *order = NULL;

	if (by == NULL || by->kind == DOC_NULL)
		return 0;
	if (by->kind != DOC_LIST)
		return err_set(err, ERR_INVALID, "order_by: expected a list");
	DOC_EACH (one, by) {
		if (one->kind != DOC_MAP)
			return err_set(err, ERR_INVALID, "order_by: expected a list of objects");
		if (body_text(one, "field", false, &field, err) < 0 ||
		    body_text(one, "order", false, &order, err) < 0)
			return err_wrap(err, "order_by");
		if (field != NULL && strcmp(field, "created_at") != 0)
			return err_set(err, ERR_INVALID,
			               "order_by: only created_at is supported, not \"%s\"", field);
		if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
			return err_set(err, ERR_INVALID, "order_by: \"%s\" is neither asc nor desc",
			               order);
		*ascending = order != NULL && strcmp(order, "asc") == 0;
	}
	return 0;
}

int jobs_search(struct request *rq, struct err *err)
{
	struct job_query q = {0};
	const char **status, *cursor = NULL;
	const struct doc *body;
	bool unmatched, mine = false;
	int64_t limit = SEARCH_MAX;
	size_t n;

	if (body_read(rq, true, &body, err) < 0 ||
	    body_text(body, "project_id", false, &q.project_id, err) < 0 ||
	    body_text(body, "job_id", false, &q.job_id, err) < 0 ||
	    body_text(body, "user", false, &q.user, err) < 0 ||
	    body_bool(body, "mine", &mine, err) < 0 ||
	    body_int(body, "limit", 1, SEARCH_MAX, &limit, err) < 0 ||
	    body_text(body, "cursor", false, &cursor, err) < 0 ||
	    (cursor != NULL && read_cursor(str_of(cursor), &q, err) < 0) ||
	    body_texts(rq->arena, body, "statuses", STATUSES_MAX, &status, &n, err) < 0 ||
	    read_order(body, &q.ascending, err) < 0)
		return -1;
	if (mine)
		q.user = face_principal(rq)->name;
	q.limit = (size_t)limit;
	for (size_t i = 0; i < n; i++) {
		bool known;

		q.states |= job_states_of_status(str_of(status[i]), &known);
		if (!known)
			return err_set(err, ERR_INVALID, "statuses: unknown status \"%.100s\"",
			               status[i]);
	}
	unmatched = n > 0 && q.states == 0; /* only statuses that no job of ours can have */
	if (unmatched) {
		AUTO_ANSWER struct answer an = {0};

		answer_open(&an);
		show_page(rq, &an.js, &q, NULL, 0, 0);
		return answer_send(rq, &an, 200, err);
	}
	return send_jobs(rq, &q, err);
}

/* Every mistake at once, with its path: {"message", "problems": [...]}. */
static int send_problems(struct request *rq, const struct spec_problems *p, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct err words = {0};

	spec_problems_text(p, NULL, &words);
	answer_open(&an);
	js_kv(&an.js, "message", words.msg);
	js_kv_err(&an.js, "error", &words);
	js_key(&an.js, "problems");
	spec_problems_json(p, &an.js);
	return answer_send(rq, &an, 400, err);
}

/* The training_job of a body; *fine = false when its mistakes were the answer. */
static int read_job(struct request *rq, const struct doc *body, const struct doc **doc, bool *fine,
                    struct err *err)
{
	struct spec_problems *problems = ARENA_NEW(rq->arena, struct spec_problems);
	struct job_spec *spec = ARENA_NEW(rq->arena, struct job_spec);

	*doc = doc_get(body, "training_job");
	if (!doc_is(*doc, DOC_MAP))
		return err_set(err, ERR_INVALID, "training_job: expected an object");
	*fine = spec_read(rq->arena, *doc, SPEC_API, spec, problems) == 0;
	return *fine ? 0 : send_problems(rq, problems, err);
}

int job_push(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str key = request_header(rq, "Idempotency-Key");
	const struct doc *body, *doc;
	struct model_project p;
	struct model_job j = {0};
	bool dry = false, fine = false;
	int r;

	if (key.n > KEY_MAX)
		return err_set(err, ERR_INVALID, "Idempotency-Key: at most %d characters", KEY_MAX);
	if (query_bool(rq, "dry_run", &dry, err) < 0 || body_read(rq, false, &body, err) < 0 ||
	    ctx->ops->projects->get(face_ask(rq), arg_text(rq, 0), &p, err) < 0 ||
	    read_job(rq, body, &doc, &fine, err) < 0)
		return -1;
	if (!fine)
		return 0;
	if (dry)
		r = ctx->ops->pushes->check(face_ask(rq), p.team_id, p.name, doc, false, &j, err);
	else
		r = ctx->ops->pushes->push(face_ask(rq), p.id, doc,
		                           key.n > 0 ? arena_strz(rq->arena, key) : NULL, &j, err);
	return r < 0 ? -1 : send_job(rq, &j, false, err);
}

int job_dry_run(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *name = NULL, *team_id = NULL;
	const struct doc *body, *doc;
	struct model_job j = {0};
	bool fine = false, forecast = false;

	if (query_bool(rq, "forecast", &forecast, err) < 0 ||
	    body_read(rq, false, &body, err) < 0 ||
	    handler_project_named(rq, body, &name, &team_id, err) < 0 ||
	    read_job(rq, body, &doc, &fine, err) < 0)
		return -1;
	if (!fine)
		return 0;
	if (ctx->ops->pushes->check(face_ask(rq), team_id, name, doc, forecast, &j, err) < 0)
		return -1;
	return send_job(rq, &j, false, err);
}

int job_show(struct request *rq, struct err *err)
{
	struct model_job j = {0};

	if (handler_job(rq, &j, err) < 0)
		return -1;
	return send_job(rq, &j, true, err);
}

int job_change(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	int64_t priority = 0;
	const char *model = NULL;
	struct model_change c = {0};
	struct model_job j = {0};
	const struct doc *body;
	bool spot;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_int(body, "priority", INT64_MIN, INT64_MAX, &priority, err) < 0 ||
	    body_text(body, "availability_model", false, &model, err) < 0)
		return -1;
	if (doc_is(doc_get(body, "priority"), DOC_INT) ||
	    doc_is(doc_get(body, "priority"), DOC_REAL))
		c.priority = &priority;
	if (model != NULL) {
		spot = strcmp(model, "spot") == 0;
		if (!spot && strcmp(model, "dedicated") != 0)
			return err_set(
				err, ERR_INVALID,
				"availability_model: \"%.100s\" is neither dedicated nor spot",
				model);
		c.spot = &spot;
	}
	if (c.priority == NULL && c.spot == NULL)
		return err_set(err, ERR_INVALID,
		               "nothing to change: give priority, availability_model or both");
	if (handler_job(rq, &j, err) < 0 ||
	    ctx->ops->jobs->change(face_ask(rq), j.id, &c, &j, err) < 0)
		return -1;
	return send_job(rq, &j, false, err);
}

int job_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};

	if (handler_job(rq, &j, err) < 0 || ctx->ops->jobs->remove(face_ask(rq), j.id, err) < 0)
		return -1;
	return answer_deleted(rq, "id", j.id, err);
}

int job_stop(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};
	const struct doc *body;
	bool now = false;

	if (body_read(rq, true, &body, err) < 0 || body_bool(body, "now", &now, err) < 0)
		return -1;
	if (handler_job(rq, &j, err) < 0 ||
	    ctx->ops->jobs->stop(face_ask(rq), j.id, now, &j, err) < 0)
		return -1;
	return send_job(rq, &j, true, err); /* its specification says how much grace it has */
}

int job_recreate(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0}, again = {0};
	const struct doc *body;
	bool resume = false;

	if (body_read(rq, true, &body, err) < 0 || body_bool(body, "resume", &resume, err) < 0 ||
	    handler_job(rq, &j, err) < 0 ||
	    ctx->ops->pushes->again(face_ask(rq), j.id, resume, &again, err) < 0)
		return -1;
	return send_job(rq, &again, false, err);
}

int job_events(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};
	struct model_event *e;
	int64_t after = 0;
	size_t n;

	if (query_int(rq, "after", 0, INT64_MAX, &after, err) < 0 || handler_job(rq, &j, err) < 0 ||
	    ctx->ops->jobs->events(face_ask(rq), j.id, after, &e, &n, err) < 0)
		return -1;
	return answer_list(rq, "events", &event_record, e, n, err);
}

int job_attempts(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job j = {0};
	struct model_attempt *at;
	size_t n;

	if (handler_job(rq, &j, err) < 0 ||
	    ctx->ops->jobs->attempts(face_ask(rq), j.id, &at, &n, err) < 0)
		return -1;
	return answer_list(rq, "attempts", &attempt_record, at, n, err);
}

/* Interactive sessions are not offered: a job has none, and clients ask for the list. */
int job_auth_codes(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct model_job j = {0};

	if (handler_job(rq, &j, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "auth_codes");
	js_list(&an.js);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

/* The stock client asks this for sessions and for ssh, and shows the message. */
int job_no_session(struct request *rq, struct err *err)
{
	struct model_job j = {0};

	if (handler_job(rq, &j, err) < 0)
		return -1;
	return err_set(err, ERR_NOT_FOUND,
	               "this server has no interactive sessions and no ssh: "
	               "`stoker exec %s` opens a shell while the job runs",
	               j.id);
}
