/*
 * object_rights.c - what a runner may do in the object store: it has no keys, and on this machine
 * no folder, so each of its requests is signed here, or its file opened (passing.h), after a look
 * at what its attempt is and gets.
 *
 *   read    its job's code, its weights, its checkpoints, and those that it loads
 *   write   the checkpoints of its own rank
 */
#include "server/api/object_rights.h"
#include "io/url.h"
#include "server/api/ctx.h"
#include "server/start/objects.h"
#include "server/control/resolved.h"
#include "server/data/weights.h"
#include "store/objects/passing.h"

struct right {
	struct ask ask;
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
	if (meta_job(r->ask.app->meta, r->ask.a, r->job.id, &r->job, err) < 0 ||
	    resolved_read(r->ask.a, r->job.resolved_json, &r->frozen, err) < 0)
		return -1;
	r->has_frozen = true;
	return 0;
}

static int may_read(struct right *r, const char *key, bool *yes, struct err *err)
{
	const struct resolved *f = &r->frozen;

	*yes = is_below(r->ask.a, key, r->prefix);
	if (*yes)
		return 0;
	if (read_frozen(r, err) < 0)
		return -1;
	for (size_t i = 0; i < f->n_code; i++)
		*yes = *yes || strcmp(f->code[i].key, key) == 0;
	for (size_t i = 0; i < f->n_load + 1; i++) {
		const struct resolved_load *l = resolved_load(f, i);

		if (l != NULL)
			*yes = *yes || is_below(r->ask.a, key,
			                        ckpt_prefix(r->ask.a, l->project_id, l->job_id));
	}
	return *yes ? 0 : weights_may_read(r->ask.app, f, key, yes, err);
}

static const char *own_prefix(const struct right *r)
{
	return arena_printf(r->ask.a, "%s/rank-%" PRIu32, r->prefix, r->ask.principal->node_rank);
}

static bool may_write(const struct right *r, const char *key)
{
	return is_below(r->ask.a, key, own_prefix(r));
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
	struct objstore_request rq = {
		.key = said->key, .query = said->query, .copy_from = said->copy_from};
	struct objstore_signed signed_ = {0};

	if (method_of(said->method, &rq.method, err) < 0)
		return -1;
	rq.expires_s =
		rq.method == HTTP_GET || rq.method == HTTP_HEAD ? OBJECTS_READ_S : OBJECTS_WRITE_S;
	if (objstore_check_key(str_of(said->key), err) < 0 || check(r, said, rq.method, err) < 0 ||
	    objstore_presign(r->ask.app->objects, r->ask.a, &rq, &signed_, err) < 0)
		return -1;
	*out = (struct wire_signed){
		.url = signed_.url, .copy_source = signed_.copy_source, .no_copy = signed_.no_copy};
	return 0;
}

static int sign_requests(const struct ask *ask, const struct wire_sign *said, size_t n,
                         struct sign_answer *out, struct err *err)
{
	struct right r = {.ask = *ask};

	if (runner_ops.job(ask, &r.job, err) < 0)
		return -1;
	r.prefix = ckpt_prefix(ask->a, r.job.project_id, r.job.id);
	for (size_t i = 0; i < n; i++) {
		struct err one = {0};

		if (sign_one(&r, &said[i], &out[i].signed_, &one) < 0) {
			struct err *kept = ARENA_NEW(ask->a, struct err);

			*kept = one;
			out[i].err = kept;
		}
	}
	return 0;
}

/* ---- files that are passed ----------------------------------------------------------- */

/* What a token gives, for as long as nobody would notice that it does not any more: a checkpoint of
 * many small files, or a tree of them, asks several times for each. */
#define PASSES_MAX 128
#define PASS_MS 2000

struct pass {
	struct digest token;
	struct arena *a; /* of the right */
	struct right right;
	int64_t until_ms;
	unsigned refs; /* under the lock: the table's and those who look into it */
};

struct passes {
	struct lock lock;
	struct pass *pass[PASSES_MAX]; /* NULL: free */
	size_t next;
};

static void pass_drop(struct passes *p, struct pass *x)
{
	bool last;

	lock_take(&p->lock);
	assert(x->refs > 0);
	last = --x->refs == 0;
	lock_give(&p->lock);
	if (!last)
		return;
	arena_free(x->a);
	free(x);
}

/* One that is still good, held; NULL: it has to be looked up. */
static struct pass *pass_find(struct passes *p, const struct digest *token)
{
	int64_t now = clock_mono_ms();
	struct pass *found = NULL;

	lock_take(&p->lock);
	for (size_t i = 0; i < PASSES_MAX && found == NULL; i++) {
		struct pass *x = p->pass[i];

		if (x != NULL && x->until_ms > now && digest_same(&x->token, token))
			found = x;
	}
	if (found != NULL)
		found->refs++;
	lock_give(&p->lock);
	return found;
}

/* In the place of the token's last one, else of the one that is there the longest. */
static void pass_keep(struct passes *p, struct pass *x)
{
	struct pass *old;
	size_t at = PASSES_MAX;

	lock_take(&p->lock);
	for (size_t i = 0; i < PASSES_MAX && at == PASSES_MAX; i++) {
		if (p->pass[i] != NULL && digest_same(&p->pass[i]->token, &x->token))
			at = i;
	}
	if (at == PASSES_MAX)
		at = p->next++ % PASSES_MAX;
	old = p->pass[at];
	p->pass[at] = x;
	x->refs++;
	lock_give(&p->lock);
	if (old != NULL)
		pass_drop(p, old);
}

static int pass_fill(struct app *app, struct pass *x, struct str token, struct err *err)
{
	struct right *r = &x->right;
	struct principal *principal = NULL;

	if (token_ops.authenticate(app, x->a, token, true, &principal, err) < 0)
		return -1;
	if (principal->attempt_id == NULL)
		return err_set(err, ERR_DENIED, "only runners are passed files");
	r->ask = (struct ask){app, principal, x->a};
	if (runner_ops.job(&r->ask, &r->job, err) < 0)
		return -1;
	r->prefix = ckpt_prefix(x->a, r->job.project_id, r->job.id);
	return read_frozen(r, err);
}

static struct pass *pass_look_up(struct app *app, const struct digest *d, struct str token,
                                 struct err *err)
{
	struct pass *x = xcalloc(1, sizeof(*x));

	x->token = *d;
	x->a = arena_new();
	x->until_ms = clock_mono_ms() + PASS_MS;
	x->refs = 1;
	if (pass_fill(app, x, token, err) == 0) {
		pass_keep(app->passes, x);
		return x;
	}
	pass_drop(app->passes, x);
	return NULL;
}

/* A question of passing.h: the token is the caller's, and good on this machine alone. */
static int may_pass(void *arg, struct str token, enum passing_right right, const char *key,
                    struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct app *app = FROM_VOID(struct app, arg, APP_MAGIC);
	struct digest d = hash_sha256(token.p, token.n);
	struct pass *x = pass_find(app->passes, &d);
	struct right r;
	bool yes = false;
	int rc = 0;

	if (x == NULL)
		x = pass_look_up(app, &d, token, err);
	if (x == NULL)
		return -1;
	r = x->right;
	r.ask.a = a; /* the pass is shared, and stays as it is */
	if (right == PASSING_WRITE)
		yes = may_write(&r, key);
	else
		rc = may_read(&r, key, &yes, err);
	pass_drop(app->passes, x);
	if (rc == 0 && !yes)
		rc = err_set(err, ERR_DENIED, "%s: not an object of this attempt", key);
	return rc;
}

int object_passing_start(struct app *app, struct err *err)
{
	const struct passing_options o = {
		.path = app_path(app, app->arena, OBJECTS_SOCKET),
		.objects = objects_elsewhere(app) ? NULL : app->objects,
		.blobs = app->blobs,
		.may = may_pass,
		.shown = app->ids_span > 1 ? app_path(app, app->arena, "node") : NULL,
		.owner = app_store_owner(app),
		.arg = app,
	};

	app->passes = xcalloc(1, sizeof(*app->passes));
	lock_init(&app->passes->lock, LOCK_PASSES);
	if (passing_start(&app->passing, &o, err) == 0 &&
	    app_show_socket(app, OBJECTS_SOCKET, err) == 0)
		return 0;
	object_passing_stop(app);
	return -1;
}

void object_passing_stop(struct app *app)
{
	passing_stop(app->passing);
	app->passing = NULL;
	for (size_t i = 0; app->passes != NULL && i < PASSES_MAX; i++) {
		if (app->passes->pass[i] != NULL)
			pass_drop(app->passes, app->passes->pass[i]);
	}
	if (app->passes != NULL)
		lock_done(&app->passes->lock);
	free(app->passes);
	app->passes = NULL;
}

const struct object_ops object_ops = {
	.sign = sign_requests,
};
