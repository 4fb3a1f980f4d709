/* fetch.c - single flight over store/sources/mirror.c, its row, and the operations on mirrors. */
#include "server/data/fetch.h"
#include "base/units.h"
#include "core/redact.h"
#include "server/api/ctx.h"
#include "server/api/identity.h"
#include "server/control/inputs.h"
#include "server/data/fetch_ckpt.h"
#include "server/data/fetch_held.h"
#include "server/data/hub.h"
#include "server/data/mirror_room.h"
#include "server/api/secrets.h"
#include "server/data/weights.h"
#include "store/blobs/blob_objects.h"

#include <sys/queue.h>

#define TICK_MS 20 /* of the kernel's clock for files, and more */
#define ROW_EVERY_MS 500
#define STORE_RATE_MS 1000 /* over which a rate is measured */

struct fetch {
	unsigned magic;
#define FETCH_MAGIC 0x53464554U
	struct app *app;
	struct arena
		*a; /* of everything below; filled before the fetch is shared, or by its thread */
	const char *key, *team_id, *source, *endpoint, *secret, *role, *role_at, *asked_revision,
		*asked_manifest, *filter_json;
	enum spec_weights_auth auth;
	bool by_identity;
	struct identity_token identity; /* what it says when it is asked who it is */
	struct fetch_own own;
	struct glob_filter filter;
	struct blob_pins *pins;   /* until the last one has left: rows name what is used by then */
	struct mirror_hold *hold; /* while it runs */
	unsigned refs;            /* waiters, and one for its thread */
	bool keep;
	bool needs_room; /* under the lock of the list: it has asked for some */
	atomic_bool cancel;
	struct fetch_view view; /* under the lock of the list */
	struct model_mirror row;
	int64_t row_mono_ms;
	LIST_ENTRY(fetch) in;
};

struct fetches {
	struct lock lock;
	struct cond changed;
	LIST_HEAD(, fetch) all;
	struct workers *pool;
};

/* What is true of one whenever the lock of the list is free. */
static void state_check(const struct fetch *f)
{
	assert(f->magic == FETCH_MAGIC && lock_is_mine(&f->app->fetches->lock));
	assert(f->refs > 0 && f->key != NULL);
	assert(f->view.result == 0 || (f->view.done && f->view.err.code != ERR_NONE));
}

void fetch_words(const struct mirror_progress *p, char *out, size_t cap)
{
	char done[UNITS_CAP], total[UNITS_CAP], rate[UNITS_CAP], left[UNITS_CAP];
	uint64_t rest = p->bytes_total > p->bytes_done ? p->bytes_total - p->bytes_done : 0;
	const char *what = p->storing ? "to the object store: " : "";

	units_show_bytes(p->bytes_done, done);
	units_show_bytes(p->bytes_total, total);
	if (p->rate_bytes_s < 1) {
		(void)snprintf(out, cap, "%s%s of %s", what, done, total);
		return;
	}
	units_show_rate(p->rate_bytes_s, rate);
	units_show_seconds((uint64_t)((double)rest / p->rate_bytes_s), left);
	(void)snprintf(out, cap, "%s%s of %s, %s, %s left", what, done, total, rate, left);
}

static void put_row(struct fetch *f, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_mirror back = {0};

	f->row.updated_ms = clock_wall_ms();
	if (meta_mirror_put(f->app->meta, a, &f->row, &back, err) < 0)
		return;
	lock_take(&f->app->fetches->lock);
	copy_cut(f->view.mirror_id, sizeof(f->view.mirror_id), back.id);
	lock_give(&f->app->fetches->lock);
}

static void on_progress(void *arg, const struct mirror_progress *p)
{
	struct fetch *f = FROM_VOID(struct fetch, arg, FETCH_MAGIC);
	struct fetches *all = f->app->fetches;
	int64_t now = clock_mono_ms();
	struct err err = {0};

	lock_take(&all->lock);
	state_check(f);
	assert(!f->view.done);
	f->view.progress = *p;
	lock_give(&all->lock);
	if (f->row.id == NULL || now - f->row_mono_ms < ROW_EVERY_MS)
		return; /* NULL: it was fetched before, and is only put */
	f->row_mono_ms = now;
	f->row.bytes_total = p->bytes_total;
	f->row.bytes_done = p->bytes_done;
	f->row.files_total = p->files_total;
	f->row.files_done = p->files_done;
	f->row.rate_bytes_s = p->rate_bytes_s;
	put_row(f, &err);
	if (err.code != ERR_NONE)
		log_warn("mirror row: %s", err.msg); /* the next one, or the end, writes it again */
}

bool fetch_has(struct app *app, const char *manifest)
{
	struct mirror_progress ignored;
	enum weights_at at;
	struct err err = {0};

	/* A store that cannot be asked refuses nothing: the job waits for it. */
	return weights_find(app, NULL, manifest, &ignored, &at, &err) < 0 || at != WEIGHTS_NOWHERE;
}

bool fetch_wants(struct app *app, const char *source)
{
	struct fetches *all = app->fetches;
	const struct fetch *f;

	lock_take(&all->lock);
	LIST_FOREACH(f, &all->all, in)
	if (!f->needs_room && strcmp(f->source, source) == 0)
		break;
	lock_give(&all->lock);
	return f != NULL;
}

static void listed(struct fetch *f, const struct source_listing *l)
{
	struct fetches *all = f->app->fetches;
	int64_t now = clock_wall_ms();

	f->row = (struct model_mirror){
		.id = app_id(f->a, MODEL_ID_LEN),
		.team_id = f->team_id,
		.source = f->source,
		.revision = l->revision,
		.filter_json = f->filter_json,
		.state = MIRROR_FETCHING,
		.bytes_total = l->bytes,
		.files_total = l->n,
		.created_ms = now,
		.used_ms = now,
	};
	lock_take(&all->lock);
	f->view.revision = l->revision;
	f->view.progress.bytes_total = l->bytes;
	f->view.progress.files_total = l->n;
	lock_give(&all->lock);
}

/* While the object store is away nothing says what may go: that is waited out, in nobody's way. */
static int find_room(void *arg, const struct mirror_want *want, struct err *err)
{
	struct retry r = RETRY_INIT(INT_MAX);
	struct fetch *f = FROM_VOID(struct fetch, arg, FETCH_MAGIC);

	lock_take(&f->app->fetches->lock);
	f->needs_room = true;
	lock_give(&f->app->fetches->lock);
	r.cancel = &f->cancel;
	while (mirror_room_take(f->app, f->source, f->row.bytes_total, want, &f->cancel, &f->hold,
	                        err) < 0) {
		if (!err_is_away(err))
			return -1;
		log_info("room for weights: source=%s %s", f->source, err->msg);
		if (!retry_again(&r, err))
			return -1;
	}
	return 0;
}

static void on_stored(void *arg, uint64_t bytes)
{
	struct fetch *f = FROM_VOID(struct fetch, arg, FETCH_MAGIC);

	mirror_room_stored(f->app, f->hold, bytes);
}

static void announce(struct fetch *f)
{
	struct fetches *all = f->app->fetches;

	lock_take(&all->lock);
	state_check(f);
	f->view.listed = true;
	cond_broadcast(&all->changed);
	lock_give(&all->lock);
}

struct storing {
	unsigned magic;
#define STORING_MAGIC 0x5653544fU
	struct fetch *f;
	int64_t since_ms;
	uint64_t since_sent;
	double rate;
};

static void on_put(void *arg, uint64_t done, uint64_t total, uint64_t sent)
{
	struct storing *s = FROM_VOID(struct storing, arg, STORING_MAGIC);
	struct mirror_progress p = s->f->view.progress; /* written by this thread alone */
	int64_t took = clock_mono_ms() - s->since_ms;

	if (took >= STORE_RATE_MS) {
		s->rate = (double)(sent - s->since_sent) * 1000 / (double)took;
		s->since_ms += took;
		s->since_sent = sent;
	}
	p.bytes_done = done;
	p.bytes_total = total;
	p.rate_bytes_s = s->rate;
	p.storing = true;
	on_progress(s->f, &p);
}

/* An outage of the object store is waited out: what is fetched stays fetched. */
static int put_objects(struct fetch *f, const struct digest *manifest, struct err *err)
{
	struct storing s = {.magic = STORING_MAGIC, .f = f, .since_ms = clock_mono_ms()};
	const struct blob_objects_put put = {.from = f->app->blobs,
	                                     .to = f->app->objects,
	                                     .pins = f->pins,
	                                     .manifest = manifest,
	                                     .progress = on_put,
	                                     .arg = &s,
	                                     .cancel = &f->cancel};
	struct retry r = RETRY_INIT(INT_MAX);

	if (!weights_in_objects(f->app))
		return 0;
	app_crash_at("weights:fetched");
	r.cancel = &f->cancel;
	while (blob_objects_put(&put, err) < 0) {
		log_info("weights to the object store: source=%s %s", f->source, err->msg);
		if (!retry_again(&r, err))
			return -1;
	}
	app_crash_at("weights:put");
	return 0;
}

/* Has it been fetched before? Then its source is not asked; one that is only in the folder is put
 * into the object store now. */
static int find_kept(struct fetch *f, const char *hex, struct mirror_progress *total, bool *kept,
                     struct err *err)
{
	struct retry r = RETRY_INIT(INT_MAX);
	enum weights_at at = WEIGHTS_NOWHERE;
	struct digest name;

	r.cancel = &f->cancel;
	while (weights_find(f->app, f->pins, hex, total, &at, err) < 0) {
		log_info("weights in the object store: source=%s %s", f->source, err->msg);
		if (!retry_again(&r, err))
			return -1;
	}
	*kept = at != WEIGHTS_NOWHERE;
	if (at != WEIGHTS_FOLDER)
		return 0;
	return digest_parse(str_of(hex), &name, err) < 0 ? -1 : put_objects(f, &name, err);
}

/* What this revision was found to be before, whoever of the team asked. */
static int find_revision(struct fetch *f, const struct source_listing *l,
                         struct mirror_progress *done, struct digest *manifest, bool *kept,
                         struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_mirror *all = NULL;
	size_t n = 0;

	*kept = false;
	if (!weights_in_objects(f->app))
		return 0; /* the folder is asked for each file */
	if (meta_mirrors(f->app->meta, a, f->team_id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && !*kept; i++) {
		if (strcmp(all[i].source, f->source) != 0 ||
		    strcmp(all[i].revision, l->revision) != 0 ||
		    strcmp(all[i].filter_json, f->filter_json) != 0 || all[i].manifest == NULL)
			continue;
		if (find_kept(f, all[i].manifest, done, kept, err) < 0 ||
		    digest_parse(str_of(all[i].manifest), manifest, err) < 0)
			return -1;
	}
	return 0;
}

/* Nobody but who has uploaded it can bring it back. */
static int say_lost(const struct fetch *f, const struct manifest *m, struct err *err)
{
	for (size_t i = 0; i < m->n; i++) {
		if (blobs_has(f->app->blobs, &m->file[i].sha256, m->file[i].size))
			continue;
		err_clear(err);
		return err_set(err, ERR_CORRUPT,
		               "%s: the store has lost \"%s\", which is damaged or was deleted: "
		               "upload the file again",
		               f->source, m->file[i].path);
	}
	return -1;
}

/* What is here already, under another manifest perhaps. */
static int take(struct fetch *f, const struct manifest *m, struct mirror_progress *done,
                struct digest *manifest, struct err *err)
{
	struct app *app = f->app;
	int r = weights_in_objects(app) ? blobs_put_list(app->blobs, f->pins, m, manifest, err)
	                                : blobs_put_manifest(app->blobs, f->pins, m, manifest, err);

	if (r < 0 && err->code == ERR_CONFLICT)
		return say_lost(f, m, err);
	if (r < 0 || put_objects(f, manifest, err) < 0)
		return err_wrap(err, "%s", f->source);
	*done = (struct mirror_progress){.bytes_total = m->bytes,
	                                 .bytes_done = m->bytes,
	                                 .files_total = m->n,
	                                 .files_done = m->n};
	return 0;
}

/* Fetched before: named by its manifest, its source is not asked. */
static int take_held(struct fetch *f, struct mirror_progress *done, struct digest *manifest,
                     struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_mirror of = {0};
	struct app *app = f->app;
	const char *revision;
	struct manifest m;

	if (fetch_held_find(app, a, f->team_id, f->source, &of, err) < 0 ||
	    fetch_held_list(app, a, &of, f->source, &f->filter, f->pins, &m, err) < 0 ||
	    take(f, &m, done, manifest, err) < 0 ||
	    meta_manifest_touch(app->meta, of.manifest, clock_wall_ms(), err) < 0)
		return -1;
	revision = arena_cstr(f->a, of.revision);
	lock_take(&app->fetches->lock);
	f->view.revision = revision;
	copy_cut(f->view.mirror_id, sizeof(f->view.mirror_id), of.id);
	lock_give(&app->fetches->lock);
	return 0;
}

/* A repository of ours: what its commit names is here, and is named once more. */
static int take_own(struct fetch *f, struct mirror_progress *done, struct digest *manifest,
                    struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct fetch_own_want want = {.team_id = f->team_id,
	                                    .repo_id = f->own.repo_id,
	                                    .source = f->source,
	                                    .revision = f->asked_revision,
	                                    .filter = &f->filter};
	struct app *app = f->app;
	const char *commit;
	struct manifest m;

	if (fetch_own_list(app, a, &want, &commit, &m, err) < 0 ||
	    take(f, &m, done, manifest, err) < 0)
		return -1;
	commit = arena_cstr(f->a, commit);
	lock_take(&app->fetches->lock);
	f->view.revision = commit;
	f->view.own = true;
	lock_give(&app->fetches->lock);
	return 0;
}

/* *absent: a Hub has no such repository. */
static int fetch_once(struct fetch *f, struct str secret, struct mirror_progress *done,
                      struct digest *manifest, bool *absent, struct err *err)
{
	struct app *app = f->app;
	struct source_options o = {
		.client = app->upstream,
		.endpoint = f->endpoint,
		.auth = f->auth,
		.role = f->role,
		.role_at = f->role_at,
		.identity = &f->identity,
		.hf_endpoint = app->set.hf_endpoint,
		.s3_endpoint = app->set.s3_endpoint,
		.file_roots = (const char *const *)app->set.allow_file_root.item,
		.n_file_roots = app->set.allow_file_root.n,
		.secret = secret,
		.cancel = &f->cancel,
	};
	AUTO_SOURCE struct source *s = NULL;
	struct source_listing listing = {0};
	bool kept = false;
	struct mirror_job job = {.blobs = app->blobs,
	                         .pins = f->pins,
	                         .listing = &listing,
	                         .objects = weights_in_objects(app) ? app->objects : NULL,
	                         .room = find_room,
	                         .stored = on_stored,
	                         .progress = on_progress,
	                         .arg = f,
	                         .cancel = &f->cancel};
	int r;

	r = fetch_is_ckpt(f->source)
	            ? fetch_ckpt_open(app, f->team_id, f->source, f->asked_revision, &o, &s, err)
	            : source_open(&s, f->source, &o, err);
	if (r < 0)
		return -1;
	if (source_list(s, f->a, &f->filter, f->asked_revision, &listing, err) < 0) {
		*absent = source_refusal(s) == SOURCE_NO_REPOSITORY;
		return -1;
	}
	if (find_revision(f, &listing, done, manifest, &kept, err) < 0)
		return -1;
	listed(f, &listing);
	put_row(f, err);
	if (err->code != ERR_NONE)
		return -1;
	announce(f);
	if (kept)
		return 0;
	job.source = s;
	r = mirror_fetch(&job, manifest, done, err);
	mirror_room_give(app, f->hold);
	f->hold = NULL;
	return r == 0 ? put_objects(f, manifest, err) : -1;
}

static int fetch_any(struct fetch *f, struct str secret, struct mirror_progress *done,
                     struct digest *manifest, struct err *err)
{
	bool own = f->own.repo_id != NULL, absent = false;

	if (own && (!f->own.last || settings_is_off(f->app->set.hf_endpoint)))
		return take_own(f, done, manifest, err);
	if (fetch_is_held(f->source))
		return take_held(f, done, manifest, err);
	if (fetch_may_ask(f->app, f->source, f->endpoint, err) < 0)
		return -1;
	if (fetch_once(f, secret, done, manifest, &absent, err) == 0)
		return 0;
	if (!own || !absent)
		return -1;
	err_clear(err);
	return take_own(f, done, manifest, err);
}

/* A source may say our secret back to us; it goes no further. */
static void redact_err(struct str secret, struct err *err)
{
	AUTO_REDACT struct redact *r = redact_new();
	AUTO_BUF struct buf clean = BUF_INIT(ERR_MSG_MAX * 2);
	struct err ignored = {0};

	if (secret.n == 0 || redact_add(r, secret, &ignored) < 0)
		return;
	redact_build(r);
	redact_text(r, str_of(err->msg), &clean);
	copy_cut(err->msg, sizeof(err->msg), buf_cstr(&clean));
}

/* *secret as it is now, when it is another one than before. */
static bool secret_changed(struct fetch *f, struct buf *secret)
{
	struct buf now = BUF_INIT(SEAL_VALUE_MAX), before = *secret;
	struct err ignored = {0}; /* then it is the one before */
	bool changed = f->secret != NULL &&
	               secret_open(f->app, f->team_id, f->secret, &now, &ignored) == 0 &&
	               !str_same(buf_view(&now), buf_view(secret));

	if (changed) {
		*secret = now;
		now = before;
	}
	seal_wipe_buf(&now);
	return changed;
}

/* A key that is revoked while a fetch runs is no end of it, when its successor is known: what was
 * fetched is kept, and what is missing is asked for with that. */
static int fetch_retried(struct fetch *f, struct buf *secret, struct mirror_progress *done,
                         struct digest *manifest, struct err *err)
{
	struct retry r = RETRY_INIT(FETCH_TRIES);

	r.cancel = &f->cancel;
	for (;;) {
		if (fetch_any(f, buf_view(secret), done, manifest, err) == 0)
			return 0;
		redact_err(buf_view(secret), err);
		log_info("fetch: source=%s %s", f->source, err->msg);
		if ((err->id == ERR_SOURCE_DENIED || err->id == ERR_SOURCE_UNAUTHORIZED) &&
		    secret_changed(f, secret))
			err_clear(err);
		else if (!retry_again(&r, err))
			return -1;
	}
}

/* Files had to travel though the node has a tree of them: the store had lost them, damaged perhaps,
 * and the tree may still link to what it lost. Not one that was made meanwhile: another fetch of
 * the same files was faster, and a job is about to mount it. A time of a file may be a tick too
 * early. */
static void renew_tree(struct fetch *f, const struct digest *manifest, int64_t began_ms)
{
	struct err err = {0};
	bool held;

	if (node_cache_renew(f->app->node, manifest, began_ms - TICK_MS, &held, &err) < 0)
		log_warn("fetch: %s", err.msg);
}

static int fetch_all(struct fetch *f, struct err *err)
{
	struct buf secret = BUF_INIT(SEAL_VALUE_MAX);
	struct mirror_progress done = {0};
	struct digest manifest = {0};
	struct fetches *all = f->app->fetches;
	int64_t began_ms = clock_wall_ms();
	char hex[HASH_HEX_CAP] = "";
	bool warm = false;
	int r = find_kept(f, f->asked_manifest, &done, &warm, err);

	if (r < 0)
		return -1;
	if (!warm) {
		if (f->secret != NULL)
			r = secret_open(f->app, f->team_id, f->secret, &secret, err);
		if (r == 0 && f->by_identity)
			r = identity_load(f->app, err);
		if (r == 0)
			r = fetch_retried(f, &secret, &done, &manifest, err);
		seal_wipe_buf(&secret);
		if (r == 0 && done.fetched > 0)
			renew_tree(f, &manifest, began_ms);
		digest_hex(&manifest, hex);
	} else {
		copy_cut(hex, sizeof(hex), f->asked_manifest);
		if (meta_manifest_touch(f->app->meta, hex, clock_wall_ms(), err) < 0)
			return -1;
	}
	if (f->row.id != NULL) {
		struct err ignored = {0};

		f->row.state = r == 0 ? MIRROR_READY : MIRROR_FAILED;
		f->row.error = r == 0 ? NULL : err->msg;
		f->row.manifest = r == 0 ? hex : NULL;
		f->row.bytes_done = r == 0 ? f->row.bytes_total : done.bytes_done;
		f->row.files_done = r == 0 ? f->row.files_total : done.files_done;
		f->row.rate_bytes_s = 0;
		put_row(f, r == 0 ? err : &ignored);
		if (err->code != ERR_NONE)
			r = -1;
	}
	if (r < 0)
		return -1;
	lock_take(&all->lock);
	f->view.progress = done;
	f->view.warm = warm || done.fetched == 0;
	if (f->view.revision == NULL)
		f->view.revision = f->asked_revision;
	copy_cut(f->view.manifest, sizeof(f->view.manifest), hex);
	lock_give(&all->lock);
	return 0;
}

static void fetch_free_one(struct fetch *f)
{
	assert(f->hold == NULL);
	blob_pins_free(f->pins);
	arena_free(f->a);
	f->magic = 0;
	free(f);
}

/* Under the lock. The last one frees. */
static void drop(struct fetch *f)
{
	state_check(f);
	if (--f->refs > 0) {
		if (f->refs == 1 && !f->view.done && !f->keep)
			atomic_store(&f->cancel, true); /* only its thread is left */
		return;
	}
	fetch_free_one(f);
}

static void fetch_run(void *arg)
{
	struct fetch *f = FROM_VOID(struct fetch, arg, FETCH_MAGIC);
	struct app *app = f->app;
	struct fetches *all = app->fetches;
	struct err err = {0};
	int r = fetch_all(f, &err);

	lock_take(&all->lock);
	state_check(f);
	assert(!f->view.done);
	f->view.result = r;
	f->view.err = err;
	f->view.done = true;
	LIST_REMOVE(f, in); /* who comes later begins anew: it is quick when all is here */
	cond_broadcast(&all->changed);
	drop(f);
	lock_give(&all->lock);
	inputs_kick(app);
}

static const char **copy_patterns(struct arena *a, const char **from, size_t n)
{
	const char **to = ARENA_ARRAY(a, const char *, n + 1);

	for (size_t i = 0; i < n; i++)
		to[i] = arena_cstr(a, from[i]);
	return to;
}

static char *filter_text(struct arena *a, const struct spec_weights *w)
{
	AUTO_BUF struct buf b = BUF_INIT(APP_JSON_MAX);
	struct js js;

	js_init(&js, &b);
	js_open(&js);
	if (w->endpoint != NULL)
		js_kv(&js, "endpoint", w->endpoint);
	if (w->role != NULL)
		js_kv(&js, "role", w->role);
	js_key(&js, "allow");
	js_list(&js);
	for (size_t i = 0; i < w->n_allow; i++)
		js_cstr(&js, w->allow[i]);
	js_end(&js);
	js_key(&js, "ignore");
	js_list(&js);
	for (size_t i = 0; i < w->n_ignore; i++)
		js_cstr(&js, w->ignore[i]);
	js_end(&js);
	js_close(&js);
	return arena_strz(a, buf_view(&b));
}

static struct fetch *make(struct app *app, const struct fetch_want *want)
{
	const struct spec_weights *w = want->weights;
	struct fetch *f = xcalloc(1, sizeof(*f));

	f->magic = FETCH_MAGIC;
	f->app = app;
	f->a = arena_new();
	f->pins = blob_pins_new(app->blobs);
	f->team_id = arena_cstr(f->a, want->team_id);
	f->source = arena_cstr(f->a, w->source);
	f->endpoint = arena_cstr(f->a, w->endpoint);
	f->secret = arena_cstr(f->a, w->secret);
	f->auth = w->auth;
	f->by_identity = spec_weights_by_identity(w);
	f->role = arena_cstr(f->a, w->role);
	f->role_at = arena_cstr(f->a, w->role_at);
	identity_of(app, f->a,
	            &(struct identity_who){want->team_id, want->project_id, want->job_id},
	            &f->identity);
	f->asked_revision = arena_cstr(f->a, want->revision);
	f->asked_manifest = arena_cstr(f->a, want->manifest);
	f->filter_json = filter_text(f->a, w);
	f->filter = (struct glob_filter){
		.allow = copy_patterns(f->a, w->allow, w->n_allow),
		.ignore = copy_patterns(f->a, w->ignore, w->n_ignore),
		.n_allow = w->n_allow,
		.n_ignore = w->n_ignore,
	};
	f->own = (struct fetch_own){arena_cstr(f->a, want->own.repo_id), want->own.last};
	f->key = arena_printf(
		f->a, "%s\n%s\n%s %d\n%s\n%s\n%s\n%s\n%d %s\n%s", f->team_id, f->source,
		want->own.repo_id ? want->own.repo_id : "", want->own.last,
		want->revision ? want->revision : "", want->manifest ? want->manifest : "",
		f->filter_json, w->secret ? secret_key(f->a, w->secret) : "", w->auth,
		w->role_at ? w->role_at : "", f->by_identity ? f->identity.subject : "");
	f->refs = 2; /* the caller and the thread */
	return f;
}

int fetch_may(struct app *app, const struct spec_weights *w, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct conf_list *allowed = &app->set.allow_endpoint;
	struct str source = str_of(w->source);
	const char *ours = str_starts(source, "hf://")   ? app->set.hf_endpoint
	                   : str_starts(source, "s3://") ? app->set.s3_endpoint
	                                                 : NULL;
	struct url asked, u;

	if (w->endpoint == NULL || app_same(w->endpoint, ours))
		return 0;
	if (url_parse(a, str_of(w->endpoint), &asked, err) < 0 || asked.user != NULL ||
	    asked.query != NULL) {
		err_clear(err);
		return err_set(err, ERR_SOURCE_INVALID, "endpoint %s: not a store's URL",
		               w->endpoint);
	}
	for (size_t i = 0; i < allowed->n; i++) {
		if (settings_endpoint(a, allowed->item[i], &u, err) < 0)
			return -1;
		if (url_same_origin(&u, &asked))
			return 0;
	}
	return err_set(err, ERR_SOURCE_ENDPOINT_DENIED,
	               "%s: this server does not allow the endpoint %s; an administrator can allow "
	               "it with --allow-endpoint",
	               w->source, w->endpoint);
}

int fetch_may_ask(struct app *app, const char *source, const char *endpoint, struct err *err)
{
	if (endpoint != NULL || !str_starts(str_of(source), "hf://") ||
	    !settings_is_off(app->set.hf_endpoint))
		return 0;
	return err_set(
		err, ERR_SOURCE_ENDPOINT_DENIED,
		"%s: no repository of this server that you may read has this name, and it "
		"asks no other Hub for weights (--hub-upstream off, or --hf-endpoint off); an "
		"administrator can name one with --hf-endpoint",
		source);
}

int fetch_check(struct app *app, const char *team_id, const struct spec_weights *w, struct err *err)
{
	struct source_options o = {
		.file_roots = (const char *const *)app->set.allow_file_root.item,
		.n_file_roots = app->set.allow_file_root.n,
		.client = app->upstream,
	};
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	struct model_mirror held;

	if (spec_source_check(str_of(w->source), err) < 0 || identity_may(app, w, err) < 0)
		return -1;
	if (fetch_is_held(w->source))
		return fetch_held_find(app, a, team_id, w->source, &held, err);
	if (fetch_is_ckpt(w->source))
		return fetch_ckpt_check(app, team_id, w->source, err);
	if (!str_starts(str_of(w->source), "file://") && !str_starts(str_of(w->source), "https://"))
		return 0;
	return source_open(&s, w->source, &o, err) < 0 ? -1 : source_check(s, err);
}

int fetch_begin(struct app *app, const struct fetch_want *want, struct fetch **out, struct err *err)
{
	struct fetches *all = app->fetches;
	struct fetch *f, *same;
	int r = 0;

	if (fetch_may(app, want->weights, err) < 0)
		return -1;
	f = make(app, want);

	lock_take(&all->lock);
	LIST_FOREACH(same, &all->all, in)
	{
		if (strcmp(same->key, f->key) == 0 && !atomic_load(&same->cancel))
			break;
	}
	if (same != NULL) {
		same->refs++;
		fetch_free_one(f);
		f = same;
	} else if (atomic_load(&app->stopping)) {
		r = err_set(err, ERR_CANCELED, "the server is shutting down");
	} else {
		r = workers_submit(all->pool, fetch_run, f, err);
		if (r == 0)
			LIST_INSERT_HEAD(&all->all, f, in);
	}
	if (r == 0)
		state_check(f);
	if (r < 0)
		fetch_free_one(f);
	else
		*out = f;
	lock_give(&all->lock);
	return r;
}

void fetch_look(struct app *app, struct fetch *f, int64_t wait_ms, bool listing,
                struct fetch_view *out)
{
	struct fetches *all = app->fetches;
	int64_t until = sync_deadline(wait_ms);

	lock_take(&all->lock);
	state_check(f);
	while (!f->view.done && !(listing && f->view.listed)) {
		if (!cond_wait_until(&all->changed, &all->lock, until))
			break;
	}
	*out = f->view;
	lock_give(&all->lock);
}

void fetch_keep(struct app *app, struct fetch *f)
{
	lock_take(&app->fetches->lock);
	f->keep = true;
	lock_give(&app->fetches->lock);
}

void fetch_leave(struct app *app, struct fetch *f)
{
	lock_take(&app->fetches->lock);
	drop(f);
	lock_give(&app->fetches->lock);
}

void fetch_start(struct app *app)
{
	struct fetches *all = xcalloc(1, sizeof(*all));

	lock_init(&all->lock, LOCK_FETCHES);
	cond_init(&all->changed);
	LIST_INIT(&all->all);
	all->pool = workers_new(FETCH_THREADS, FETCH_QUEUE_MAX, "fetch");
	app->fetches = all;
}

void fetch_stop(struct app *app)
{
	struct fetches *all = app->fetches;
	struct fetch *f;

	assert(atomic_load(&app->stopping)); /* nobody begins another one */
	lock_take(&all->lock);
	LIST_FOREACH(f, &all->all, in)
	atomic_store(&f->cancel, true);
	lock_give(&all->lock);
	workers_stop(all->pool);
	all->pool = NULL;
}

void fetch_free(struct app *app)
{
	struct fetches *all = app->fetches;

	if (all == NULL)
		return;
	workers_stop(all->pool);
	lock_done(&all->lock);
	cond_done(&all->changed);
	free(all);
	app->fetches = NULL;
}

static int list_mirrors(const struct ask *ask, struct model_mirror **out, size_t *n,
                        struct err *err)
{
	const char *team_id = ask->principal->team_id;
	struct model_mirror *named, *kept;
	size_t n_named = 0, n_kept = 0;

	if (meta_mirrors(ask->app->meta, ask->a, team_id, &named, &n_named, err) < 0 ||
	    hub_list(ask->app, ask->a, team_id, &kept, &n_kept, err) < 0)
		return -1;
	*out = ARENA_ARRAY(ask->a, struct model_mirror, n_named + n_kept + 1);
	*n = n_named + n_kept;
	for (size_t i = 0; i < *n; i++)
		(*out)[i] = i < n_named ? named[i] : kept[i - n_named];
	return 0;
}

/* As a row would be. There is none: it is here as long as its repository is. */
static void show_own(const struct ask *ask, const struct fetch_want *want, const struct fetch *f,
                     const struct fetch_view *v, struct model_mirror *out)
{
	int64_t now = clock_wall_ms();

	*out = (struct model_mirror){
		.id = want->own.repo_id,
		.team_id = want->team_id,
		.source = want->weights->source,
		.revision = arena_cstr(ask->a, v->revision),
		.filter_json = arena_cstr(ask->a, f->filter_json),
		.state = MIRROR_READY,
		.bytes_total = v->progress.bytes_total,
		.bytes_done = v->progress.bytes_done,
		.files_total = v->progress.files_total,
		.files_done = v->progress.files_done,
		.created_ms = now,
		.updated_ms = now,
		.used_ms = now,
	};
}

static int prefetch_mirror(const struct ask *ask, const char *team_id, const struct spec_weights *w,
                           struct model_mirror *out, struct err *err)
{
	struct app *app = ask->app;
	struct fetch_want want = {.weights = w};
	struct fetch *f = NULL;
	struct fetch_view v;
	int r;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_team(ask, team_id, &want.team_id, err) < 0 ||
	    fetch_check(app, want.team_id, w, err) < 0 ||
	    fetch_own_find(ask, want.team_id, w, &want.own, err) < 0 ||
	    fetch_begin(app, &want, &f, err) < 0)
		return -1;
	fetch_keep(app, f);
	fetch_look(app, f, FETCH_LIST_MS, true, &v);
	if (v.done && v.result < 0) {
		*err = v.err;
		r = -1;
	} else if (!v.listed && !v.done) {
		r = err_set(err, ERR_SOURCE_TIMEOUT, "%s: not listed yet; try again", w->source);
	} else if (v.own) {
		show_own(ask, &want, f, &v, out);
		r = 0;
	} else {
		r = meta_mirror(app->meta, ask->a, v.mirror_id, out, err);
	}
	fetch_leave(app, f);
	return r;
}

/* Nothing of what was removed waits for the next collection. */
static int collect_freed(struct app *app, const char *manifest, uint64_t *freed_bytes,
                         struct err *err)
{
	const struct mirror_ages age = {0, MIRROR_NOT_LOOSE};
	struct blobs_collected gone = {0};
	struct digest name;
	int r;

	if (digest_parse(str_of(manifest), &name, err) < 0)
		return -1;
	r = mirror_collect(app, &name, &age, &(struct blobs_way){0}, &gone, err);
	*freed_bytes = gone.bytes;
	if (r == 0 && weights_in_objects(app)) {
		r = mirror_collect_objects(app, &name, &age, &(struct blobs_way){0}, &gone, err);
		*freed_bytes = gone.bytes;
	}
	mirror_room_changed(app);
	return r;
}

static int remove_mirror(const struct ask *ask, const char *id, uint64_t *freed_bytes,
                         struct err *err)
{
	struct app *app = ask->app;
	struct model_mirror x = {0};

	*freed_bytes = 0;
	if (ctx_need(ask, ROLE_MEMBER, err) < 0)
		return -1;
	if (meta_mirror(app->meta, ask->a, id, &x, err) == 0) {
		if (ctx_sees(ask, x.team_id, ERR_WEIGHTS_NOT_FOUND, err) < 0 ||
		    meta_mirror_del(app->meta, id, err) < 0)
			return -1;
	} else {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		if (hub_remove(ask, id, &x, err) < 0)
			return -1;
	}
	log_info("weights deleted: id=%s source=%s by=%s", id, x.source, ask->principal->name);
	return x.manifest == NULL ? 0 : collect_freed(app, x.manifest, freed_bytes, err);
}

const struct mirror_ops mirror_ops = {
	.list = list_mirrors,
	.prefetch = prefetch_mirror,
	.remove = remove_mirror,
};
