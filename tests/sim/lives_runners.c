/* lives_runners.c - an engine that launches nothing, and the runners that it would have launched:
 * they speak to the server as real ones do, and any of them may die at any time. Their folders are
 * those of the local engine. */
#include "lives.h"
#include "server/data/ckpts.h"
#include "server/api/ctx.h"

#include "core/attempt.h"
#include "core/ckpt.h"

struct fake {
	struct engine base;
	struct world *w;
	struct app *app;
	struct engine *local; /* for the folders */
};

static struct runner *by_ref(struct world *w, const char *ref)
{
	unsigned n = 0;

	return sscanf(ref, "sim-%u", &n) == 1 && n < w->runners_max ? &w->runner[n] : NULL;
}

/* By its reference, or, where the server died before it stored one, by its folder. Calls back for
 * each that is alive: a server that died in between may have launched two. */
static void each_alive(struct world *w, const char *ref, const char *dir,
                       void (*fn)(struct runner *r, void *arg), void *arg)
{
	struct runner *r = by_ref(w, ref);

	if (r != NULL) {
		if (atomic_load(&r->life) != LIFE_GONE)
			fn(r, arg);
		return;
	}
	for (uint32_t i = w->first_alive; i < atomic_load(&w->n_runners); i++) {
		r = &w->runner[i];
		if (strcmp(r->dir, dir) == 0 && atomic_load(&r->life) != LIFE_GONE)
			fn(r, arg);
	}
}

static const char *path_of(const struct world *w, struct arena *a, const char *dir,
                           const char *name)
{
	return arena_printf(a, "%s/data/%s/%s", w->dir, dir, name);
}

static int put_file(const struct world *w, struct arena *a, const char *dir, const char *name,
                    struct str text, struct err *err)
{
	if (fs_mkdirs(AT_FDCWD, path_of(w, a, dir, ""), 0700, err) < 0)
		return -1;
	return fs_write_atomic(AT_FDCWD, path_of(w, a, dir, name), text, 0600, err);
}

static int fake_launch(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
                       struct err *err)
{
	struct world *w = ((struct fake *)e)->w;
	struct runner *r;
	uint32_t n;

	if (put_file(w, a, l->dir, ATTEMPT_START, l->start, err) < 0)
		return -1;
	n = atomic_fetch_add(&w->n_runners, 1);
	if (n >= w->runners_max)
		return err_set(err, ERR_IO, "the simulation has no room for another runner");
	r = &w->runner[n];
	FMT(r->dir, "%s", l->dir);
	FMT(r->attempt, "%s", l->attempt_id);
	FMT(r->nonce, "n%u", n);
	r->rank = l->node_rank;
	atomic_store(&r->life, LIFE_NEW);
	atomic_fetch_add(&w->launched, 1);
	*ref = arena_printf(a, "sim-%u", n);
	return 0;
}

static void is_alive(struct runner *r UNUSED, void *arg)
{
	*(enum engine_status *)arg = ENGINE_RUNS;
}

static int fake_probe(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
                      struct err *err UNUSED)
{
	*out = ENGINE_GONE;
	each_alive(((struct fake *)e)->w, ref, dir, is_alive, out);
	return 0;
}

static void be_gone(struct runner *r, void *arg UNUSED)
{
	atomic_store(&r->life, LIFE_GONE);
}

static bool read_file(const struct world *w, struct arena *a, const char *dir, const char *name,
                      struct buf *text)
{
	struct err err = {0};

	return fs_read(AT_FDCWD, path_of(w, a, dir, name), text, &err) == 0;
}

/* As the sweep does: with the dead one's token. Nobody may want to hear it any more. */
static APART int tell_record(struct fake *f, const char *dir, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20), record = BUF_INIT((size_t)1 << 20);
	AUTO_ARENA struct arena *a = arena_new();
	struct principal *who = NULL;
	struct wire_start s = {0};
	struct wire_exit x = {0};

	if (!read_file(f->w, a, dir, ATTEMPT_EXIT, &record))
		return 0;
	if (!read_file(f->w, a, dir, ATTEMPT_START, &text))
		return err_set(err, ERR_IO, "%s: a record without a start", dir);
	if (wire_start_parse(&s, a, buf_view(&text), err) < 0 ||
	    wire_exit_parse(&x, a, buf_view(&record), err) < 0)
		return -1;
	if (token_ops.authenticate(f->app, a, str_of(s.token), true, &who, err) == 0 &&
	    runner_ops.exit(&(struct ask){f->app, who, a}, &x, err) == 0) {
		f->w->told++;
		return 0;
	}
	if (err->id == ERR_TOKEN_INVALID || err->code == ERR_CONFLICT ||
	    err->code == ERR_NOT_FOUND) {
		err_clear(err);
		return 0;
	}
	err_clear(err);
	return err_set(err, ERR_BUSY, "%s: not all could be told", dir);
}

static int fake_kill(struct engine *e, const char *ref, const char *dir, struct engine_end *end,
                     struct err *err)
{
	struct fake *f = (struct fake *)e;

	each_alive(f->w, ref, dir, be_gone, NULL);
	return end->past ? 0 : tell_record(f, dir, err);
}

static int fake_address(struct engine *e, const char *dir, const char *url, struct err *err)
{
	return engine_address(((struct fake *)e)->local, dir, url, err);
}

static int fake_release(struct engine *e, const char *dir, struct err *err)
{
	return engine_release(((struct fake *)e)->local, dir, err);
}

static int fake_each(struct engine *e, void (*found)(void *arg, const char *dir), void *arg,
                     struct err *err)
{
	return engine_each(((struct fake *)e)->local, found, arg, err);
}

static void fake_close(struct engine *e)
{
	engine_close(((struct fake *)e)->local);
	free(e);
}

struct engine *fake_engine(struct world *w, struct app *app)
{
	static const struct engine_ops ops = {
		.name = "sim",
		.close = fake_close,
		.launch = fake_launch,
		.probe = fake_probe,
		.kill = fake_kill,
		.address = fake_address,
		.release = fake_release,
		.each = fake_each,
	};
	struct fake *f = xcalloc(1, sizeof(*f));

	f->base.ops = &ops;
	f->w = w;
	f->app = app;
	f->local = app->engine;
	return &f->base;
}

/* --- runners --- */

struct act {
	struct world *w;
	struct app *app;
	struct arena *a;
	struct runner *r;
	struct principal who;
};

#define AS_RUNNER(x) (&(struct ask){(x)->app, &(x)->who, (x)->a})

static void go(const struct act *x, enum life to)
{
	atomic_store(&x->r->life, to);
}

/* Without a word. */
static void die(const struct act *x)
{
	x->r->died = true;
	x->w->died++;
	go(x, LIFE_GONE);
}

/* False: nothing more can be done now, or ever. */
static APART bool start(struct act *x)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20);
	struct wire_start s = {0};
	struct err err = {0};

	if (!read_file(x->w, x->a, x->r->dir, ATTEMPT_START, &text) ||
	    wire_start_parse(&s, x->a, buf_view(&text), &err) < 0) {
		go(x, LIFE_GONE); /* its folder was taken away: its attempt is over */
		return false;
	}
	FMT(x->r->token, "%s", s.token);
	go(x, LIFE_STARTED);
	return true;
}

/* The token says who it is: asked anew in each life of the server. False: not now. */
static APART bool know(struct act *x)
{
	struct principal *who = NULL;
	struct err err = {0};

	if (token_ops.authenticate(x->app, x->a, str_of(x->r->token), true, &who, &err) < 0) {
		if (err.code == ERR_DENIED || err.id == ERR_TOKEN_INVALID ||
		    err.code == ERR_NOT_FOUND)
			go(x, LIFE_GONE); /* of an intent that another one replaced, or past */
		return false;
	}
	x->who = *who;
	return true;
}

static APART bool claim(struct act *x)
{
	struct world *w = x->w;
	struct wire_launch l = {0};
	struct err err = {0};
	unsigned job = 0;

	if (runner_ops.claim(AS_RUNNER(x), x->r->nonce, &l, &err) < 0) {
		if (err.code == ERR_CONFLICT || err.code == ERR_NOT_FOUND)
			go(x, LIFE_GONE);
		return false;
	}
	CHECK(sscanf(l.job_name, "s%u", &job) == 1 && job < w->n_jobs, "%s", l.job_name);
	CHECK(l.retry_count < ATTEMPTS_MAX, "attempt %u of %s", l.retry_count, l.job_name);
	x->r->job = job;
	x->r->number = l.retry_count;
	for (size_t i = 0; i < l.n_gpus; i++)
		x->r->gpus |= UINT64_C(1) << l.gpus[i].index;
	CHECK((uint32_t)__builtin_popcountll(x->r->gpus) == shapes[w->job[job].shape].gpus,
	      "GPUs of %s", l.job_name);
	go(x, LIFE_CLAIMED);
	return true;
}

/* The record on disk comes first, as with a real runner. */
static APART bool end(struct act *x, enum job_end how, int code)
{
	AUTO_BUF struct buf json = BUF_INIT(10000);
	struct world *w = x->w;
	struct sim_job *j = &w->job[x->r->job];
	struct wire_exit rec = {.end = how,
	                        .code = code,
	                        .synced = true,
	                        .user_code_ran = x->r->ran,
	                        .started_ms = x->r->started_ms,
	                        .ended_ms = x->r->ran ? w->now_ms : 0};
	struct err err = {0};

	x->r->end = how;
	x->r->code = code;
	if (how == JOB_END_EXIT && code == 0)
		j->well[x->r->number] |= (uint8_t)(1U << x->r->rank);
	else if (how == JOB_END_EXIT)
		j->bad |= (uint8_t)(1U << x->r->number);
	wire_exit_write(&rec, &json);
	if (fs_write_atomic(AT_FDCWD, path_of(w, x->a, x->r->dir, ATTEMPT_EXIT), buf_view(&json),
	                    0600, &err) < 0) {
		go(x, LIFE_GONE); /* no folder any more: it was over long ago */
		return false;
	}
	go(x, LIFE_ENDED);
	return true;
}

static APART bool tell_end(struct act *x)
{
	struct wire_exit rec = {.end = x->r->end,
	                        .code = x->r->code,
	                        .synced = true,
	                        .user_code_ran = x->r->ran,
	                        .started_ms = x->r->started_ms,
	                        .ended_ms = x->w->now_ms};
	struct err err = {0};

	if (runner_ops.exit(AS_RUNNER(x), &rec, &err) < 0 && err.code != ERR_NOT_FOUND)
		return false; /* again, until it is heard */
	go(x, LIFE_GONE);
	return false;
}

/* Where else does user code run with these GPUs, or in this attempt? */
static void begin(struct act *x)
{
	struct world *w = x->w;
	struct sim_job *j = &w->job[x->r->job];
	uint8_t bit = (uint8_t)(1U << x->r->number);

	CHECK(x->r->rank < RANKS_MAX, "rank %u", x->r->rank);
	CHECK((j->started[x->r->rank] & bit) == 0,
	      "user code of %s, attempt %u, rank %u starts a second time", j->id, x->r->number,
	      x->r->rank);
	for (uint32_t i = w->first_alive; x->r->gpus != 0 && i < atomic_load(&w->n_runners); i++) {
		const struct runner *o = &w->runner[i];

		CHECK(o == x->r || atomic_load(&o->life) != LIFE_RUNS ||
		              (o->gpus & x->r->gpus) == 0,
		      "two runners use one GPU: %s and %s", o->dir, x->r->dir);
	}
	j->started[x->r->rank] |= bit;
	x->r->ran = true;
	x->r->started_ms = w->now_ms;
	go(x, LIFE_RUNS);
}

/* One checkpoint of one file: the bytes, the manifest, the word. */
static APART int ship(struct act *x, struct err *err)
{
	static const char name[] = "checkpoint-1";
	AUTO_BUF struct buf json = BUF_INIT(10000);
	struct ckpt c = {.name = name, .state = CKPT_COMPLETE};
	struct digest d = hash_sha256("12345", 5);
	struct model_checkpoint row = {.name = name,
	                               .state = CKPT_COMPLETE,
	                               .kind = "full",
	                               .created_ms = x->w->now_ms,
	                               .bytes = 5,
	                               .files = 1};
	struct model_job job = {0};
	const char *prefix;

	if (runner_ops.job(AS_RUNNER(x), &job, err) < 0)
		return -1;
	c.job_id = job.id;
	prefix = ckpt_prefix(x->a, job.project_id, job.id);
	manifest_init(&c.files, x->a);
	if (manifest_add(&c.files, STR_LIT("checkpoint-1/w.bin"), 5, &d, err) < 0 ||
	    manifest_finish(&c.files, err) < 0)
		return -1;
	ckpt_write(&c, &json);
	if (objstore_put(x->app->objects, ckpt_object_key(x->a, prefix, 0, "checkpoint-1/w.bin"),
	                 STR_LIT("12345"), err) < 0 ||
	    objstore_put(x->app->objects, ckpt_manifest_key(x->a, prefix, 0, name), buf_view(&json),
	                 err) < 0)
		return -1;
	return runner_ops.checkpoint(AS_RUNNER(x), &row, err);
}

static bool keeps_checkpoints(const struct world *w, uint32_t job)
{
	return KEEPS_CHECKPOINTS(job) && shapes[w->job[job].shape].nodes == 1;
}

static APART void beat(struct act *x)
{
	struct wire_heartbeat hb = {.stage = STAGE_RUNNING, .note = "step"};
	int64_t since = real_us();
	struct err err = {0};

	if (runner_ops.heartbeat(AS_RUNNER(x), &hb, &err) == 0)
		world_sample(x->w, COST_BEAT, since);
}

/* What it is told; false: nothing, or that it is over, which it then is. */
static APART bool obey(struct act *x, struct wire_desired *o)
{
	struct err err = {0};

	*o = (struct wire_desired){0};
	if (runner_ops.desired(AS_RUNNER(x), o, &err) < 0)
		return false;
	if (!o->stop)
		return true;
	(void)end(x, JOB_END_STOPPED, 0);
	return false;
}

static APART bool run(struct act *x)
{
	struct world *w = x->w;
	struct wire_desired o;
	struct err err = {0};

	beat(x);
	if (!obey(x, &o))
		return false;
	if (keeps_checkpoints(w, x->r->job) && !x->r->shipped) {
		if (ship(x, &err) < 0)
			return false;
		x->r->shipped = true;
	}
	if (one_in(w, 3)) /* it takes longer */
		return false;
	return end(x, JOB_END_EXIT, one_in(w, 12) ? 3 : 0);
}

/* One thing; true: it may go on at once. */
static bool act(struct act *x)
{
	enum life life = (enum life)atomic_load(&x->r->life);
	struct wire_desired o;
	struct err err = {0};

	if (life == LIFE_NEW)
		return start(x);
	if (!know(x))
		return false;
	switch (life) {
	case LIFE_STARTED:
		return claim(x);
	case LIFE_CLAIMED:
		if (!obey(x, &o) || runner_ops.ready(AS_RUNNER(x), &err) < 0)
			return false;
		go(x, LIFE_READY);
		return true;
	case LIFE_READY:
		if (!obey(x, &o) || !o.go)
			return false;
		begin(x);
		return true;
	case LIFE_RUNS:
		return run(x);
	case LIFE_ENDED:
		return tell_end(x);
	case LIFE_NEW:
	case LIFE_GONE:
		break;
	}
	return false;
}

void runners_act(struct world *w, struct app *app, bool calm)
{
	AUTO_ARENA struct arena *a = arena_new();
	uint32_t n = atomic_load(&w->n_runners);

	while (w->first_alive < n && atomic_load(&w->runner[w->first_alive].life) == LIFE_GONE)
		w->first_alive++;
	for (uint32_t i = w->first_alive; i < n; i++) {
		struct act x = {.w = w, .app = app, .a = a, .r = &w->runner[i]};
		bool more = true;

		while (more && atomic_load(&x.r->life) != LIFE_GONE && !one_in(w, 6)) {
			if (!calm && one_in(w, 200))
				die(&x);
			else
				more = act(&x);
		}
		arena_reset(a);
	}
}
