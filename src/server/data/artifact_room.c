/*
 * artifact_room.c - the size limit of artifacts, and when each was used last.
 *
 * Use is noted in memory, in stripes so that readers do not meet, and written by the keeper, or
 * before it matters: when something has to go. How much there is, is counted in memory too, and
 * compared with the rows by each eviction.
 *
 * Who goes: all namespaces are cut to one level, the highest at which they fit together. So one
 * that has less than that loses nothing, whatever the others do.
 */
#include "server/data/artifacts.h"

#include "base/units.h"
#include "server/data/mirror_room.h"

#define KEEPER_MS 5000
#define IDLE_MS 60000
#define USED_STRIPES 16
#define USED_MAX 65536   /* notes of a stripe that wait to be written; what is more is lost */
#define USED_BATCH 1000  /* rows of one transaction */
#define EVICT_BATCH 500  /* the same */
#define EVICT_SHARE 20   /* a full store makes room for so much of its limit, 1/n, at once */
#define COLLECT_SHARE 20 /* blobs are collected at most 1/n of the time */
#define LUMP                                                                                       \
	((uint64_t)256 << 20)   /* of the mirror's room: to look for it walks through the store */
#define UNKNOWN (INT64_MAX / 2) /* bytes: the rows have to be asked */

struct stripe {
	struct lock lock;
	struct meta_artifact_used *used; /* of USED_MAX; NULL: none since the last time */
	size_t n;
};

struct artifacts {
	struct lock evict, collect;
	struct lock lock; /* of what follows */
	struct mirror_hold *hold;
	uint64_t held;
	int64_t held_ms; /* when some of it was last taken; monotonic */
	struct digest *drop;
	size_t n_drop, cap_drop;

	atomic_int_least64_t bytes;
	struct stripe stripe[USED_STRIPES];
	struct loop *keeper;
	int64_t collect_ms; /* not before; of the keeper; monotonic */
	atomic_uint_least64_t hits[ARTIFACT_KINDS], misses[ARTIFACT_KINDS], stored[ARTIFACT_KINDS];
	atomic_uint_least64_t bytes_out[ARTIFACT_KINDS], bytes_in[ARTIFACT_KINDS];
	atomic_uint_least64_t evicted[ARTIFACT_KINDS], evicted_bytes[ARTIFACT_KINDS];
};

/* ---- use ----------------------------------------------------------------------------------- */

void artifact_used(struct app *app, int64_t seq)
{
	struct artifacts *all = app->artifacts;
	struct stripe *s = &all->stripe[(uint64_t)seq % USED_STRIPES];

	lock_take(&s->lock);
	if (s->used == NULL)
		s->used = xmalloc(USED_MAX * sizeof(*s->used));
	if (s->n < USED_MAX)
		s->used[s->n++] = (struct meta_artifact_used){seq, clock_wall_ms()};
	lock_give(&s->lock);
}

static int by_seq(const void *a, const void *b)
{
	const struct meta_artifact_used *x = a, *y = b;

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return (x->ms > y->ms) - (x->ms < y->ms);
}

/* The last of each. */
static size_t newest(struct meta_artifact_used *u, size_t n)
{
	size_t kept = 0;

	qsort(u, n, sizeof(*u), by_seq);
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || u[i + 1].seq != u[i].seq)
			u[kept++] = u[i];
	return kept;
}

static void write_stripe(struct app *app, struct stripe *s)
{
	struct err err = {0};
	AUTO_FREE struct meta_artifact_used *used = NULL;
	size_t n;

	lock_take(&s->lock);
	used = TAKE(s->used);
	n = s->n;
	s->n = 0;
	lock_give(&s->lock);
	if (n == 0)
		return;
	n = newest(used, n);
	for (size_t i = 0; i < n; i += USED_BATCH) {
		if (meta_artifacts_used(app->meta, used + i, MIN(n - i, (size_t)USED_BATCH),
		                        &err) == 0)
			continue;
		log_warn("artifacts: when they were used is not written: %s", err.msg);
		return;
	}
}

static void write_used(struct app *app)
{
	for (size_t i = 0; i < USED_STRIPES; i++)
		write_stripe(app, &app->artifacts->stripe[i]);
}

/* ---- evicting ------------------------------------------------------------------------------ */

void artifact_dropped(struct app *app, const char *sha256)
{
	struct artifacts *all = app->artifacts;
	struct err ignored = {0};
	struct digest d;

	if (digest_parse(str_of(sha256), &d, &ignored) < 0)
		return; /* a row that names no blob */
	lock_take(&all->lock);
	if (all->n_drop == all->cap_drop) {
		all->cap_drop = MAX(all->cap_drop * 2, (size_t)256);
		all->drop = xrealloc(all->drop, all->cap_drop * sizeof(*all->drop));
	}
	all->drop[all->n_drop++] = d;
	lock_give(&all->lock);
}

static uint64_t takes(const struct meta_artifact_space *s)
{
	return s->bytes + ARTIFACT_ROW * s->files;
}

struct cut {
	struct app *app;
	uint64_t files, bytes;
};

static void note_evicted(struct app *app, const struct model_artifact *x)
{
	enum artifact_kind kind = artifact_kind_of(x->name);

	atomic_fetch_add(&app->artifacts->evicted[kind], 1);
	atomic_fetch_add(&app->artifacts->evicted_bytes[kind], x->bytes);
	if (!x->has_body)
		artifact_dropped(app, x->digest);
}

/* A batch of the oldest; *left: how much is still too much. */
static int cut_some(struct cut *c, const struct meta_artifact_space *s, uint64_t *left,
                    struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_artifact *x = NULL;
	size_t n = 0, take = 0;
	uint64_t bytes = 0;

	if (meta_artifacts_oldest(c->app->meta, a, s->team_id, s->owner, EVICT_BATCH, &x, &n, err) <
	    0)
		return -1;
	while (take < n && bytes < *left)
		bytes += x[take++].bytes + ARTIFACT_ROW;
	if (take == 0) {
		*left = 0;
		return 0;
	}
	if (meta_artifacts_del(c->app->meta, x, take, err) < 0)
		return -1;
	for (size_t i = 0; i < take; i++)
		note_evicted(c->app, &x[i]);
	atomic_fetch_sub(&c->app->artifacts->bytes, (int64_t)bytes);
	c->files += take;
	c->bytes += bytes;
	*left -= MIN(*left, bytes);
	return 0;
}

/* Where there are more than `most`, until they `fit`. *some (may be NULL): at least one has gone.
 */
static int evict(struct app *app, uint64_t most, uint64_t fit, bool *some, struct err *err)
{
	uint64_t level, sum = 0, *took;
	AUTO_ARENA struct arena *a = arena_new();
	struct artifacts *all = app->artifacts;
	struct meta_artifact_space *s = NULL;
	int64_t counted = atomic_load(&all->bytes);
	struct cut c = {.app = app};
	char much[UNITS_CAP];
	size_t n = 0;

	if (meta_artifact_spaces(app->meta, a, &s, &n, err) < 0)
		return -1;
	took = ARENA_ARRAY(a, uint64_t, n + 1);
	for (size_t i = 0; i < n; i++) {
		took[i] = takes(&s[i]);
		sum += took[i];
	}
	atomic_fetch_add(&all->bytes, (int64_t)sum - counted);
	if (sum <= most)
		return 0;
	write_used(app);
	level = artifact_level(took, n, fit);
	for (size_t i = 0; i < n; i++) {
		uint64_t left = takes(&s[i]) > level ? takes(&s[i]) - level : 0;

		while (left > 0)
			if (cut_some(&c, &s[i], &left, err) < 0)
				return -1;
	}
	if (some != NULL && c.files > 0)
		*some = true;
	log_info("artifacts evicted: files=%" PRIu64 " size=%s", c.files,
	         units_show_bytes(c.bytes, much));
	loop_kick(all->keeper);
	return 0;
}

uint64_t artifact_bytes_most(const struct app *app)
{
	uint64_t budget = app->set.artifact_bytes;

	return budget - budget / EVICT_SHARE;
}

static bool is_over(struct app *app)
{
	return atomic_load(&app->artifacts->bytes) > (int64_t)app->set.artifact_bytes;
}

int artifact_added(struct app *app, int64_t bytes, struct err *err)
{
	struct artifacts *all = app->artifacts;
	int rc = 0;

	atomic_fetch_add(&all->bytes, bytes);
	if (!is_over(app))
		return 0;
	lock_take(&all->evict);
	if (is_over(app)) /* who had the lock has not made room for this one, too */
		rc = evict(app, app->set.artifact_bytes, artifact_bytes_most(app), NULL, err);
	lock_give(&all->evict);
	return rc;
}

/* ---- blobs that none names ----------------------------------------------------------------- */

/* One after the other: what somebody else has taken from the list is gone when this returns. */
static int collect_dropped(struct app *app, bool *freed, struct err *err)
{
	struct artifacts *all = app->artifacts;
	AUTO_FREE struct digest *drop = NULL;
	struct blobs_collected gone = {0};
	size_t n;
	int rc = 0;

	lock_take(&all->collect);
	lock_take(&all->lock);
	drop = TAKE(all->drop);
	n = all->n_drop;
	all->n_drop = all->cap_drop = 0;
	lock_give(&all->lock);
	if (n > 0)
		rc = mirror_collect_dropped(app, drop, n, &gone, err);
	lock_give(&all->collect);
	if (gone.files > 0)
		*freed = true;
	return rc;
}

int artifacts_yield(struct app *app, uint64_t bytes, bool *some, struct err *err)
{
	struct artifacts *all = app->artifacts;
	int64_t have;
	int rc;

	*some = false;
	lock_take(&all->evict);
	rc = evict(app, app->set.artifact_bytes, artifact_bytes_most(app), some, err);
	have = atomic_load(&all->bytes);
	if (rc == 0 && have > 0 && (uint64_t)have >= bytes)
		rc = evict(app, (uint64_t)have - bytes, (uint64_t)have - bytes, some, err);
	lock_give(&all->evict);
	return rc < 0 ? -1 : collect_dropped(app, some, err);
}

/* ---- room in the folder -------------------------------------------------------------------- */

/* Of what is held; what is used of it will be stored in a moment. */
static bool take_held(struct app *app, uint64_t bytes)
{
	struct artifacts *all = app->artifacts;
	bool enough;

	lock_take(&all->lock);
	enough = all->hold != NULL && all->held >= bytes;
	if (enough) {
		all->held -= bytes;
		all->held_ms = clock_mono_ms();
		mirror_room_stored(app, all->hold, bytes);
	}
	lock_give(&all->lock);
	return enough;
}

static int take_lump(struct app *app, uint64_t lump, struct err *err)
{
	const struct mirror_want want = {.bytes = lump};
	struct artifacts *all = app->artifacts;
	struct mirror_hold *hold = NULL, *old;

	if (mirror_room_take(app, "artifacts", lump, &want, &app->stopping, &hold, err) < 0)
		return -1;
	lock_take(&all->lock);
	old = all->hold;
	all->hold = hold;
	all->held = lump;
	lock_give(&all->lock);
	mirror_room_give(app, old);
	return 0;
}

/* What is held is kept from others as long as artifacts come: a small part of all, so. */
static int lump_of(struct app *app, uint64_t *lump, struct err *err)
{
	struct mirror_room_view room;

	if (mirror_room_view(app, &room, err) < 0)
		return -1;
	*lump = MIN(LUMP, MIN(app->set.artifact_bytes, room.limit) / EVICT_SHARE);
	return 0;
}

int artifact_room_take(struct app *app, uint64_t bytes, struct err *err)
{
	uint64_t lump;

	if (take_held(app, bytes))
		return 0;
	if (lump_of(app, &lump, err) < 0)
		return -1;
	lump = MAX(lump, bytes);
	do { /* another one may take what was just found */
		if (take_lump(app, lump, err) == 0)
			continue;
		if (err->code != ERR_NO_SPACE || lump == bytes)
			return -1;
		err_clear(err);
		lump = bytes;
	} while (!take_held(app, bytes));
	return 0;
}

/* Nobody else has what is held. */
static void give_idle(struct app *app)
{
	struct artifacts *all = app->artifacts;
	struct mirror_hold *idle = NULL;

	lock_take(&all->lock);
	if (clock_mono_ms() - all->held_ms > IDLE_MS)
		idle = TAKE(all->hold);
	lock_give(&all->lock);
	mirror_room_give(app, idle);
}

/* ---- the keeper ---------------------------------------------------------------------------- */

static void collect(struct app *app)
{
	struct artifacts *all = app->artifacts;
	int64_t began_ms = clock_mono_ms();
	struct err err = {0};
	bool freed = false;

	if (began_ms < all->collect_ms)
		return;
	if (collect_dropped(app, &freed, &err) < 0)
		log_warn("artifacts: %s", err.msg); /* they are swept by age then */
	if (freed)
		mirror_room_changed(app);
	all->collect_ms = clock_mono_ms() + COLLECT_SHARE * (clock_mono_ms() - began_ms);
}

static void keeper_pass(struct app *app)
{
	struct outage away;

	meta_outage(app->meta, false, &away);
	if (away.since_ms != 0)
		return;
	write_used(app);
	collect(app);
	give_idle(app);
}

void artifacts_start(struct app *app)
{
	struct artifacts *all = xcalloc(1, sizeof(*all));

	lock_init(&all->evict, LOCK_ARTIFACTS_EVICT);
	lock_init(&all->collect, LOCK_ARTIFACTS_COLLECT);
	lock_init(&all->lock, LOCK_ARTIFACTS);
	for (size_t i = 0; i < USED_STRIPES; i++)
		lock_init(&all->stripe[i].lock, LOCK_ARTIFACTS_USED);
	atomic_store(&all->bytes, UNKNOWN);
	app->artifacts = all;
	all->keeper = loop_new(app, keeper_pass, KEEPER_MS);
}

/* What there is, and what is too much since the limit was lowered. */
void artifacts_run(struct app *app)
{
	struct err err = {0};

	if (artifact_added(app, 0, &err) < 0)
		log_warn("artifacts: %s", err.msg); /* the next one that comes asks again */
	loop_run(app->artifacts->keeper);
}

void artifacts_stop(struct app *app)
{
	loop_stop(app->artifacts->keeper);
	write_used(app);
}

void artifacts_free(struct app *app)
{
	struct artifacts *all = app->artifacts;

	if (all == NULL)
		return;
	loop_free(all->keeper);
	mirror_room_give(app, all->hold);
	for (size_t i = 0; i < USED_STRIPES; i++) {
		lock_done(&all->stripe[i].lock);
		free(all->stripe[i].used);
	}
	free(all->drop);
	lock_done(&all->lock);
	lock_done(&all->collect);
	lock_done(&all->evict);
	free(all);
	app->artifacts = NULL;
}

/* ---- counted ------------------------------------------------------------------------------- */

void artifact_count(struct app *app, enum artifact_kind kind, bool hit, uint64_t bytes)
{
	struct artifacts *all = app->artifacts;

	atomic_fetch_add(hit ? &all->hits[kind] : &all->misses[kind], 1);
	atomic_fetch_add(&all->bytes_out[kind], bytes);
}

void artifact_count_stored(struct app *app, enum artifact_kind kind, uint64_t bytes)
{
	atomic_fetch_add(&app->artifacts->stored[kind], 1);
	atomic_fetch_add(&app->artifacts->bytes_in[kind], bytes);
}

void artifact_counts(struct app *app, struct artifact_counts *out)
{
	struct artifacts *all = app->artifacts;
	int64_t bytes = atomic_load(&all->bytes);

	*out = (struct artifact_counts){
		.bytes = bytes > 0 && bytes < UNKNOWN / 2 ? (uint64_t)bytes : 0,
		.budget = app->set.artifact_bytes,
	};
	for (size_t i = 0; i < ARTIFACT_KINDS; i++) {
		out->hits[i] = atomic_load(&all->hits[i]);
		out->misses[i] = atomic_load(&all->misses[i]);
		out->stored[i] = atomic_load(&all->stored[i]);
		out->bytes_out[i] = atomic_load(&all->bytes_out[i]);
		out->bytes_in[i] = atomic_load(&all->bytes_in[i]);
		out->evicted[i] = atomic_load(&all->evicted[i]);
		out->evicted_bytes[i] = atomic_load(&all->evicted_bytes[i]);
	}
}
