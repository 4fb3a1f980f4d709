/*
 * object_rights.c - what a runner may do in the object store: it has no keys, so each of its
 * requests is signed here, after a look at what its attempt is and gets.
 *
 *   read    its job's code, its weights, its checkpoints, and those that it loads
 *   write   the checkpoints of its own rank
 */
#include "io/url.h"
#include "server/api/ctx.h"
#include "server/start/objects.h"
#include "server/control/resolved.h"
#include "server/data/weights.h"

struct right {
	struct app *app;
	struct arena *a;
	const struct principal *principal;
	struct model_job job;
	const char *prefix; /* of its checkpoints */
	bool has_frozen;    /* the next one is read: most requests are for its own checkpoints */
	struct resolved frozen;
};

/* What a request may ask for besides the object: the steps of an upload in parts. */
static bool may_ask(const char *query)
{
	static const char *const names[] = {"uploads", "uploadId", "partNumber"};
	struct str rest = str_of(query != NULL ? query : ""), name, value;

	while (url_query_next(&rest, &name, &value)) {
		bool known = false;

		for (size_t i = 0; i < COUNT(names); i++)
			known = known || str_eq(name, names[i]);
		if (!known)
			return false;
	}
	return true;
}

static bool is_below(struct arena *a, const char *key, const char *folder)
{
	return str_starts(str_of(key), arena_printf(a, "%s/", folder));
}

static int read_frozen(struct right *r, struct err *err)
{
	if (r->has_frozen)
		return 0;
	if (meta_job(r->app->meta, r->a, r->job.id, &r->job, err) < 0 ||
	    resolved_read(r->a, r->job.resolved_json, &r->frozen, err) < 0)
		return -1;
	r->has_frozen = true;
	return 0;
}

static int may_read(struct right *r, const char *key, bool *yes, struct err *err)
{
	const struct resolved *f = &r->frozen;

	*yes = is_below(r->a, key, r->prefix);
	if (*yes)
		return 0;
	if (read_frozen(r, err) < 0)
		return -1;
	for (size_t i = 0; i < f->n_code; i++)
		*yes = *yes || strcmp(f->code[i].key, key) == 0;
	for (size_t i = 0; i < f->n_load + 1; i++) {
		const struct resolved_load *l = i == 0 ? f->resume : &f->load[i - 1];

		if (l != NULL)
			*yes = *yes ||
			       is_below(r->a, key, ckpt_prefix(r->a, l->project_id, l->job_id));
	}
	return *yes ? 0 : weights_may_read(r->app, f, key, yes, err);
}

static bool may_write(const struct right *r, const char *key)
{
	return is_below(r->a, key,
	                arena_printf(r->a, "%s/rank-%" PRIu32, r->prefix, r->principal->node_rank));
}

static int method_of(const char *word, enum http_method *out, struct err *err)
{
	static const enum http_method some[] = {HTTP_GET, HTTP_HEAD, HTTP_PUT, HTTP_POST,
	                                        HTTP_DELETE};

	for (size_t i = 0; i < COUNT(some); i++) {
		if (strcmp(http_method_name[some[i]], word) == 0) {
			*out = some[i];
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "method: GET, HEAD, PUT, POST or DELETE");
}

static int check(struct right *r, const struct wire_sign *said, enum http_method method,
                 struct err *err)
{
	bool reads = method == HTTP_GET || method == HTTP_HEAD, yes = false;

	if (!may_ask(said->query) || (reads && said->query != NULL))
		return err_set(err, ERR_INVALID, "query: only steps of an upload are signed");
	if (reads && may_read(r, said->key, &yes, err) < 0)
		return -1;
	if (!reads)
		yes = may_write(r, said->key);
	if (yes && said->copy_from != NULL && may_read(r, said->copy_from, &yes, err) < 0)
		return -1;
	return yes ? 0
	           : err_set(err, ERR_DENIED, "%s %s: not an object of this attempt", said->method,
	                     said->key);
}

static int sign_one(struct right *r, const struct wire_sign *said, struct wire_signed *out,
                    struct err *err)
{
	struct objstore_request rq = {.key = said->key,
	                              .query = said->query,
	                              .copy_from = said->copy_from,
	                              .expires_s = OBJECTS_SIGNED_S};
	struct objstore_signed signed_ = {0};

	if (method_of(said->method, &rq.method, err) < 0 ||
	    objstore_check_key(str_of(said->key), err) < 0 || check(r, said, rq.method, err) < 0 ||
	    objstore_presign(r->app->objects, r->a, &rq, &signed_, err) < 0)
		return -1;
	*out = (struct wire_signed){
		.url = signed_.url, .copy_source = signed_.copy_source, .no_copy = signed_.no_copy};
	return 0;
}

int ctx_runner_sign(void *of, const struct principal *principal, struct arena *a,
                    const struct wire_sign *said, size_t n, struct sign_answer *out,
                    struct err *err)
{
	struct right r = {.app = of, .a = a, .principal = principal};

	if (ctx_runner_job(of, principal, a, &r.job, err) < 0)
		return -1;
	r.prefix = ckpt_prefix(a, r.job.project_id, r.job.id);
	for (size_t i = 0; i < n; i++) {
		struct err one = {0};

		if (sign_one(&r, &said[i], &out[i].signed_, &one) < 0) {
			struct err *kept = ARENA_NEW(a, struct err);

			*kept = one;
			out[i].err = kept;
		}
	}
	return 0;
}
