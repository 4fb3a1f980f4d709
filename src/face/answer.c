/* answer.c - bodies and queries in, one JSON object out. */
#include "face/answer.h"

void answer_open(struct answer *an)
{
	an->b.max = ANSWER_MAX;
	js_init(&an->js, &an->b);
	js_open(&an->js);
}

void answer_done(struct answer *an)
{
	buf_done(&an->b);
}

int answer_send(struct request *rq, struct answer *an, int status, struct err *err)
{
	js_close(&an->js);
	if (buf_check(&an->b, "the answer", err) < 0)
		return -1;
	return reply_json(rq, status, &an->b);
}

int answer_members(struct request *rq, const struct record *r, const void *m, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	record_write_members(r, m, &an.js);
	return answer_send(rq, &an, 200, err);
}

int answer_one(struct request *rq, const char *key, const struct record *r, const void *m,
               struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, key);
	record_write_js(r, m, &an.js);
	return answer_send(rq, &an, 200, err);
}

int answer_list(struct request *rq, const char *key, const struct record *r, const void *items,
                size_t n, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, key);
	record_write_list(r, items, n, &an.js);
	return answer_send(rq, &an, 200, err);
}

int answer_deleted(struct request *rq, const char *key, const char *what, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_kv(&an.js, key, what);
	js_kv_bool(&an.js, "deleted", true);
	return answer_send(rq, &an, 200, err);
}

const char *arg_text(struct request *rq, size_t i)
{
	assert(i < rq->n_arg);
	return arena_strz(rq->arena, rq->arg[i]);
}

int body_read(struct request *rq, bool optional, const struct doc **out, struct err *err)
{
	const struct doc *d;
	struct str text;

	if (request_body(rq, &text, err) < 0)
		return -1;
	if (optional && str_trim(text).n == 0) {
		*out = NULL;
		return 0;
	}
	if (request_json(rq, &d, err) < 0)
		return -1;
	if (!doc_is(d, DOC_MAP))
		return err_set(err, ERR_INVALID, "body: expected an object, not %s",
		               doc_kind_name(d->kind));
	*out = d;
	return 0;
}

/* The member when it is there and not null. */
static const struct doc *member(const struct doc *body, const char *key)
{
	const struct doc *d = doc_get(body, key);

	return d == NULL || d->kind == DOC_NULL ? NULL : d;
}

static int wrong(const struct doc *d, const char *key, const char *want, struct err *err)
{
	return err_set(err, ERR_INVALID, "%s: expected %s, not %s", key, want,
	               doc_kind_name(d->kind));
}

int body_text(const struct doc *body, const char *key, bool required, const char **out,
              struct err *err)
{
	const struct doc *d = member(body, key);

	if (d == NULL && required)
		return err_set(err, ERR_INVALID, "%s: missing", key);
	if (d != NULL && d->kind != DOC_TEXT)
		return wrong(d, key, "text", err);
	*out = d != NULL ? d->text.p : NULL;
	return 0;
}

/* 5.0 is a whole number too: JSON knows one kind. */
static bool whole(const struct doc *d, int64_t *out)
{
	if (d->kind == DOC_REAL && d->real >= -9e15 && d->real <= 9e15)
		*out = (int64_t)d->real;
	else if (d->kind == DOC_INT)
		*out = d->num;
	else
		return false;
	return d->kind == DOC_INT || ((double)*out >= d->real && (double)*out <= d->real);
}

int body_int(const struct doc *body, const char *key, int64_t min, int64_t max, int64_t *out,
             struct err *err)
{
	const struct doc *d = member(body, key);
	int64_t n;

	if (d == NULL)
		return 0;
	if (!whole(d, &n))
		return wrong(d, key, "a whole number", err);
	if (n < min || n > max)
		return err_set(err, ERR_INVALID,
		               "%s: %" PRId64 " is not between %" PRId64 " and %" PRId64, key, n,
		               min, max);
	*out = n;
	return 0;
}

int body_bool(const struct doc *body, const char *key, bool *out, struct err *err)
{
	const struct doc *d = member(body, key);

	if (d == NULL)
		return 0;
	if (d->kind != DOC_BOOL)
		return wrong(d, key, "true or false", err);
	*out = d->flag;
	return 0;
}

int body_texts(struct arena *a, const struct doc *body, const char *key, size_t max,
               const char ***out, size_t *n, struct err *err)
{
	const struct doc *d = member(body, key);
	const char **list;
	size_t i = 0;

	if (d != NULL && d->kind != DOC_LIST)
		return wrong(d, key, "a list of texts", err);
	if (d != NULL && d->count > max)
		return err_set(err, ERR_INVALID, "%s: at most %zu, not %zu", key, max, d->count);
	list = ARENA_ARRAY(a, const char *, d != NULL ? d->count + 1 : 1);
	DOC_EACH (item, d) {
		if (item->kind != DOC_TEXT)
			return wrong(item, key, "a list of texts", err);
		list[i++] = item->text.p;
	}
	*out = list;
	*n = i;
	return 0;
}

const char *query_text(struct request *rq, const char *name)
{
	struct str s;

	if (!request_query(rq, name, &s))
		return NULL;
	return arena_strz(rq->arena, s);
}

int query_int(struct request *rq, const char *name, int64_t min, int64_t max, int64_t *out,
              struct err *err)
{
	const char *text = query_text(rq, name);

	if (text == NULL)
		return 0;
	if (str_i64(str_of(text), min, max, out, err) < 0)
		return err_wrap(err, "parameter %s", name);
	return 0;
}

int query_bool(struct request *rq, const char *name, bool *out, struct err *err)
{
	const char *text = query_text(rq, name);

	if (text == NULL)
		return 0;
	if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
		return err_set(err, ERR_INVALID, "parameter %s: \"%s\" is not true or false", name,
		               text);
	*out = strcmp(text, "true") == 0;
	return 0;
}
