/*
 * mirror_room.c - see mirror_room.h. One fetch at a time looks for room (`busy`): it is no lock,
 * for it may take long, and only those who look for room wait for it. The lock guards the list of
 * what is reserved.
 */
#include "server/data/mirror_room.h"
#include "base/units.h"
#include "server/control/inputs.h"
#include "server/data/artifacts.h"
#include "server/data/fetch.h"
#include "server/data/weights.h"

#include <sys/queue.h>

#define PASSES_MAX 100                   /* of evictions, each of one source at least */
#define YIELDS_MAX 5                     /* of artifacts, the small ones of which free nothing */
#define ROOTS_PAGE 5000                  /* digests of artifacts at once */
#define DISK_MARGIN ((uint64_t)64 << 20) /* left free for the rest of the server */

struct mirror_hold {
	uint64_t left;
	LIST_ENTRY(mirror_hold) in;
};

struct mirror_room {
	struct lock lock;
	struct cond idle; /* not busy */
	bool busy;
	LIST_HEAD(, mirror_hold) holds;
	atomic_uint_least64_t changes, evicted, evicted_bytes;
};

void mirror_room_start(struct app *app)
{
	struct mirror_room *r = xcalloc(1, sizeof(*r));

	lock_init(&r->lock, LOCK_MIRROR_ROOM);
	cond_init(&r->idle);
	LIST_INIT(&r->holds);
	app->room = r;
}

void mirror_room_free(struct app *app)
{
	struct mirror_room *r = app->room;

	if (r == NULL)
		return;
	assert(LIST_EMPTY(&r->holds) && !r->busy);
	cond_done(&r->idle);
	lock_done(&r->lock);
	free(r);
	app->room = NULL;
}

uint64_t mirror_room_changes(struct app *app)
{
	return atomic_load(&app->room->changes);
}

void mirror_room_changed(struct app *app)
{
	atomic_fetch_add(&app->room->changes, 1);
	inputs_kick(app);
}

static uint64_t reserved(struct app *app)
{
	struct mirror_room *r = app->room;
	const struct mirror_hold *h;
	uint64_t sum = 0;

	lock_take(&r->lock);
	LIST_FOREACH(h, &r->holds, in)
	sum += h->left;
	lock_give(&r->lock);
	return sum;
}

static int limits(struct app *app, uint64_t *limit, uint64_t *avail, uint64_t *disk,
                  struct err *err)
{
	if (fs_free_bytes(app->data, avail, disk, err) < 0)
		return -1;
	*limit = app->set.mirror_bytes;
	if (*limit == 0)
		*limit = *disk / 100 * MIRROR_ROOM_PERCENT;
	return 0;
}

int mirror_room_view(struct app *app, struct mirror_room_view *out, struct err *err)
{
	uint64_t avail, disk;

	*out = (struct mirror_room_view){
		.reserved = reserved(app),
		.evicted = atomic_load(&app->room->evicted),
		.evicted_bytes = atomic_load(&app->room->evicted_bytes),
	};
	return limits(app, &out->limit, &avail, &disk, err);
}

/* ---- collecting ---------------------------------------------------------------------------- */

struct collect {
	unsigned magic;
#define COLLECT_MAGIC 0x56434f4cU
	struct app *app;
	const struct digest *only; /* NULL: any */
	const struct map *victims; /* manifests that count as unused; NULL: none */
	const struct digest *drop; /* see blobs_collect */
	size_t n_drop;
};

/* Row, tree, manifest, blobs: each goes only when nothing above names it any more. */
static int keep(void *arg, const struct digest *manifest, bool *keep, struct err *err)
{
	const struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	char hex[HASH_HEX_CAP];

	*keep = c->only != NULL && !digest_same(c->only, manifest);
	digest_hex(manifest, hex);
	if (*keep || (c->victims != NULL && map_get(c->victims, str_of(hex)) != NULL))
		return 0;
	return meta_manifest_used(c->app->meta, hex, keep, err);
}

/* Artifacts have no manifests (see artifacts.h). */
static int roots(void *arg, void (*add)(void *to, const struct digest *d), void *to,
                 struct err *err)
{
	const struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	char after[HASH_HEX_CAP] = "";
	size_t n = ROOTS_PAGE;

	while (n == ROOTS_PAGE) {
		AUTO_ARENA struct arena *a = arena_new();
		const char **hex = NULL;
		struct digest d;

		if (meta_artifact_blobs(c->app->meta, a, after, ROOTS_PAGE, &hex, &n, err) < 0)
			return -1;
		for (size_t i = 0; i < n; i++) {
			if (digest_parse(str_of(hex[i]), &d, err) < 0)
				return -1;
			add(to, &d);
			FMT(after, "%s", hex[i]);
		}
	}
	return 0;
}

static int drop_tree(void *arg, const struct digest *manifest, struct err *err)
{
	const struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);
	char hex[HASH_HEX_CAP];

	digest_hex(manifest, hex);
	log_info("unreferenced manifest: %s", hex);
	if (node_cache_drop(c->app->node, manifest, err) == 0) {
		app_crash_at("gc:manifest");
		return 0;
	}
	if (err->code != ERR_BUSY)
		return -1;
	err_clear(err); /* a tree in use keeps its bytes until it is evicted */
	return 0;
}

static int may(void *arg, struct err *err)
{
	const struct collect *c = FROM_VOID(struct collect, arg, COLLECT_MAGIC);

	return app_may_remove(c->app, err);
}

/* os NULL: in the folder, and what the node has made from it. */
static int collect(struct collect *c, struct objstore *os, const struct mirror_ages *age,
                   const struct blobs_way *way, struct blobs_collected *out, struct err *err)
{
	const struct blobs_choice by = {.keep = keep,
	                                .drop = os == NULL ? drop_tree : NULL,
	                                .roots = roots,
	                                .may = os != NULL ? may : NULL,
	                                .arg = c};
	const struct blobs_collect job = {
		.os = os,
		.min_age_s = age->manifest_s,
		.loose_age_s = age->loose_s,
		.by = &by,
		.drop = c->drop,
		.n_drop = c->n_drop,
		.way = way,
		.cancel = os != NULL ? &c->app->stopping : NULL,
	};

	return blobs_collect(c->app->blobs, &job, out, err);
}

int mirror_collect(struct app *app, const struct digest *only, const struct mirror_ages *age,
                   const struct blobs_way *way, struct blobs_collected *out, struct err *err)
{
	return collect(&(struct collect){.magic = COLLECT_MAGIC, .app = app, .only = only}, NULL,
	               age, way, out, err);
}

int mirror_collect_objects(struct app *app, const struct digest *only,
                           const struct mirror_ages *age, const struct blobs_way *way,
                           struct blobs_collected *out, struct err *err)
{
	*out = (struct blobs_collected){0};
	if (!weights_in_objects(app))
		return 0;
	return collect(&(struct collect){.magic = COLLECT_MAGIC, .app = app, .only = only},
	               app->objects, age, way, out, err);
}

int mirror_collect_dropped(struct app *app, const struct digest *d, size_t n,
                           struct blobs_collected *out, struct err *err)
{
	/* no manifest is old enough to go: they say what stays */
	const struct mirror_ages never = {INT64_MAX / 2000, MIRROR_NOT_LOOSE};
	struct collect c = {.magic = COLLECT_MAGIC, .app = app, .drop = d, .n_drop = n};
	const struct blobs_way way = {0};
	struct blobs_collected there;

	if (collect(&c, NULL, &never, &way, out, err) < 0)
		return -1;
	if (!weights_in_objects(app))
		return 0;
	return app_may_remove(app, err) < 0 ? -1
	                                    : collect(&c, app->objects, &never, &way, &there, err);
}

/* ---- evicting ------------------------------------------------------------------------------ */

struct eviction {
	struct app *app;
	const struct blobs_way *way; /* of the sources */
	struct arena *a;
	struct victim {
		const struct meta_idle *of;
		bool kept; /* in the object store: its rows stay */
	} * idle;          /* least recently used first */
	size_t n, next;
	struct blobs_collected *out;
};

/* Behind those of no job, for the folder is only a cache of them. */
static int add_used(struct eviction *e, struct meta_idle **all, size_t *n, struct err *err)
{
	AUTO_MAP struct map *seen = map_new();
	struct meta_idle *held = NULL, *both;
	size_t n_held = 0;

	if (!weights_in_objects(e->app))
		return 0;
	if (meta_refs_held(e->app->meta, e->a, &held, &n_held, err) < 0)
		return -1;
	both = ARENA_ARRAY(e->a, struct meta_idle, *n + n_held + 1);
	for (size_t i = 0; i < *n; i++) {
		both[i] = (*all)[i];
		(void)map_set(seen, str_of(both[i].manifest), e);
	}
	for (size_t i = 0; i < n_held; i++)
		if (map_set(seen, str_of(held[i].manifest), e) == NULL)
			both[(*n)++] = held[i];
	*all = both;
	return 0;
}

static int find_idle(struct eviction *e, struct err *err)
{
	struct meta_idle *all = NULL;
	size_t n = 0, n_idle;

	e->n = e->next = 0;
	if (meta_refs_idle(e->app->meta, e->a, &all, &n, err) < 0)
		return -1;
	n_idle = n;
	if (add_used(e, &all, &n, err) < 0)
		return -1;
	e->idle = ARENA_ARRAY(e->a, struct victim, n + 1);
	for (size_t i = 0; i < n; i++) {
		struct digest d;
		bool kept;

		if (digest_parse(str_of(all[i].manifest), &d, err) < 0)
			return -1;
		if (weights_are_kept(e->app, &d, &kept, err) < 0) {
			if (err_is_away(err))
				return -1; /* the next one would wait as long for no answer */
			err_clear(err);    /* nothing says that it may go */
			continue;
		}
		if (blobs_pinned(e->app->blobs, &d) || fetch_wants(e->app, all[i].source) ||
		    (i >= n_idle && !kept))
			continue; /* a job is about to name it, or has and needs the folder */
		e->idle[e->n++] = (struct victim){&all[i], kept};
	}
	return 0;
}

/* The bytes that removing the first n sources would free, and leftovers of that age. */
static int would_free(struct eviction *e, size_t n, int64_t loose_s, struct blobs_collected *out,
                      const struct blobs_way *each, struct err *err)
{
	AUTO_MAP struct map *victims = map_new();
	struct collect c = {.magic = COLLECT_MAGIC, .app = e->app, .victims = victims};
	struct blobs_way dry = {true, each != NULL ? each->each : NULL,
	                        each != NULL ? each->arg : NULL};

	for (size_t i = 0; i < n; i++)
		(void)map_set(victims, str_of(e->idle[i].of->manifest), e);
	return collect(&c, NULL, &(struct mirror_ages){0, loose_s}, &dry, out, err);
}

static void add(struct eviction *e, const struct blobs_collected *gone)
{
	e->out->manifests += gone->manifests;
	e->out->files += gone->files;
	e->out->bytes += gone->bytes;
}

/* Removes unreferenced, unused files: of interrupted evictions and of failed fetches. Only files
 * that a fetch may resume have an age. */
static int drop_leftovers(struct eviction *e, int64_t min_age_s, struct err *err)
{
	struct blobs_collected gone;
	int r = mirror_collect(e->app, NULL, &(struct mirror_ages){0, min_age_s},
	                       &(struct blobs_way){0}, &gone, err);

	add(e, &gone);
	return r;
}

/* As many of the least recently used as hold `bytes`, if nobody else had their files. */
static size_t victims(const struct eviction *e, uint64_t bytes)
{
	uint64_t sum = 0;
	size_t n = 0;

	while (e->next + n < e->n && (n == 0 || sum < bytes))
		sum += e->idle[e->next + n++].of->bytes;
	return n;
}

/* From where it may be had again: the object store, with its rows; else its source. */
static int drop_one(struct eviction *e, const struct victim *v, struct map *kept, struct err *err)
{
	const struct meta_idle *x = v->of;
	bool evicted = v->kept;
	char bytes[UNITS_CAP];

	if (v->kept)
		(void)map_set(kept, str_of(x->manifest), e);
	else if (meta_manifest_evict(e->app->meta, x->manifest, &evicted, err) < 0)
		return -1;
	if (!evicted)
		return 0; /* a job has resolved it just now */
	atomic_fetch_add(&e->app->room->evicted, 1);
	log_info("weights evicted: source=%s manifest=%s size=%s%s", x->source, x->manifest,
	         units_show_bytes(x->bytes, bytes), v->kept ? " kept=objects" : "");
	app_crash_at("evict:row");
	return 0;
}

static int drop_sources(struct eviction *e, size_t n, struct err *err)
{
	AUTO_MAP struct map *kept = map_new();
	struct collect c = {.magic = COLLECT_MAGIC, .app = e->app, .victims = kept};
	struct blobs_collected gone;

	for (size_t i = 0; i < n; i++)
		if (drop_one(e, &e->idle[e->next++], kept, err) < 0)
			return -1;
	if (collect(&c, NULL, &(struct mirror_ages){0, MIRROR_NOT_LOOSE}, e->way, &gone, err) < 0)
		return -1;
	atomic_fetch_add(&e->app->room->evicted_bytes, gone.bytes);
	add(e, &gone);
	return 0;
}

/* Until that much is free, or nothing is left that may go. */
static int evict(struct eviction *e, uint64_t bytes, struct err *err)
{
	if (drop_leftovers(e, MIRROR_LEFTOVER_S, err) < 0 || find_idle(e, err) < 0)
		return -1;
	for (int i = 0; i < PASSES_MAX && e->out->bytes < bytes && e->next < e->n; i++)
		if (drop_sources(e, victims(e, bytes - e->out->bytes), err) < 0)
			return -1;
	return e->out->bytes < bytes ? drop_leftovers(e, 0, err) : 0;
}

static int could_free(struct eviction *e, uint64_t *bytes, struct err *err)
{
	struct blobs_collected all;

	if (find_idle(e, err) < 0 || would_free(e, e->n, 0, &all, NULL, err) < 0)
		return -1;
	*bytes = all.bytes;
	return 0;
}

static uint64_t excess(uint64_t is, uint64_t limit)
{
	return is > limit ? is - limit : 0;
}

int mirror_room_trim(struct app *app, uint64_t spare, const struct blobs_way *way,
                     struct blobs_collected *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct eviction e = {.app = app, .way = way, .a = a, .out = out};
	uint64_t limit, avail, disk, over;
	struct blobs_held held;

	*out = (struct blobs_collected){0};
	if (limits(app, &limit, &avail, &disk, err) < 0 ||
	    blobs_held(app->blobs, BLOBS_HELD_NOW, &held, err) < 0)
		return -1;
	over = excess(held.bytes + held.partial + reserved(app), limit + spare);
	if (over == 0)
		return 0;
	if (!way->dry_run)
		return evict(&e, over, err);
	if (find_idle(&e, err) < 0)
		return -1;
	for (size_t n = victims(&e, over); n > 0; n = n < e.n ? n + 1 : 0) {
		if (would_free(&e, n, MIRROR_NOT_LOOSE, out, NULL, err) < 0)
			return -1;
		if (out->bytes >= over || n == e.n)
			return would_free(&e, n, MIRROR_NOT_LOOSE, out, way, err);
	}
	return 0;
}

/* ---- reservations -------------------------------------------------------------------------- */

struct looking {
	struct app *app;
	const char *source;
	uint64_t all;
	const struct mirror_want *want;
	struct err *err;
};

static int too_small(const struct looking *l, uint64_t limit)
{
	char size[UNITS_CAP], most[UNITS_CAP];

	return err_set(l->err, ERR_MIRROR_TOO_SMALL,
	               "%s: it has %s, and the whole mirror may hold %s. Give the server a larger "
	               "--mirror-bytes; a job may select fewer files with allow_patterns",
	               l->source, units_show_bytes(l->all, size), units_show_bytes(limit, most));
}

static int full(const struct looking *l, uint64_t used, uint64_t limit)
{
	char need[UNITS_CAP], have[UNITS_CAP], most[UNITS_CAP];

	return err_set(l->err, ERR_MIRROR_FULL,
	               "%s: the mirror has no room for %s: jobs and fetches under way use %s of "
	               "the %s that it may hold. There is room when some of them have ended, or "
	               "with a larger --mirror-bytes",
	               l->source, units_show_bytes(l->want->bytes, need),
	               units_show_bytes(used, have), units_show_bytes(limit, most));
}

/* How much too much there is: for the limit, for the disk. What a fetch has of its file counts
 * twice, as partial and as reserved; not in *used, which is for people. */
static int measure(const struct looking *l, int64_t age_ms, uint64_t limit, uint64_t avail,
                   uint64_t *used, uint64_t *over, uint64_t *lacks)
{
	uint64_t travels = l->want->bytes - MIN(l->want->held, l->want->bytes);
	uint64_t others = reserved(l->app); /* before what is stored: never counted too low */
	struct blobs_held held;

	if (blobs_held(l->app->blobs, age_ms, &held, l->err) < 0)
		return -1;
	*used = held.bytes + MAX(held.partial, others);
	*over = excess(held.bytes + held.partial + others + l->want->bytes, limit);
	*lacks = excess(travels + DISK_MARGIN, avail);
	return 0;
}

/* Only what can be made to fit is made to: nothing is evicted in vain. A disk that is too small, or
 * too full otherwise, is the fetch's own check. */
static int find_room(const struct looking *l)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct blobs_way way = {0};
	struct blobs_collected gone = {0};
	struct eviction e = {.app = l->app, .way = &way, .a = a, .out = &gone};
	uint64_t limit, avail, disk, used, over, lacks, could = 0;
	bool yields = true;

	if (limits(l->app, &limit, &avail, &disk, l->err) < 0)
		return -1;
	if (l->all > disk)
		return 0;
	if (l->all > limit)
		return too_small(l, limit);
	if (measure(l, BLOBS_HELD_ANY, limit, avail, &used, &over, &lacks) < 0)
		return -1;
	/* before anything goes or is refused, what was counted is looked at */
	if (over > 0 && measure(l, BLOBS_HELD_NOW, limit, avail, &used, &over, &lacks) < 0)
		return -1;
	if (over == 0 && lacks == 0)
		return 0;
	if (could_free(&e, &could, l->err) < 0)
		return -1;
	for (int i = 0; i < YIELDS_MAX && could < over && yields; i++)
		if (artifacts_yield(l->app, over - could, &yields, l->err) < 0 ||
		    measure(l, BLOBS_HELD_NOW, limit, avail, &used, &over, &lacks) < 0 ||
		    could_free(&e, &could, l->err) < 0)
			return -1;
	if (could < over)
		return full(l, excess(used, could), limit);
	if (over == 0 && (lacks == 0 || could < lacks))
		return 0;
	if (evict(&e, MAX(over, could < lacks ? 0 : lacks), l->err) < 0 ||
	    measure(l, BLOBS_HELD_NOW, limit, avail, &used, &over, &lacks) < 0)
		return -1;
	return over > 0 ? full(l, used, limit) : 0; /* a job has resolved one of them just now */
}

/* Takes the turn; false when canceled. */
static bool take_turn(struct mirror_room *r, const atomic_bool *cancel)
{
	bool got = false;

	lock_take(&r->lock);
	while (r->busy && !atomic_load(cancel))
		(void)cond_wait_until(&r->idle, &r->lock, sync_deadline(MIRROR_ROOM_TICK_MS));
	if (!r->busy)
		r->busy = got = true;
	lock_give(&r->lock);
	return got;
}

int mirror_room_take(struct app *app, const char *source, uint64_t all,
                     const struct mirror_want *want, const atomic_bool *cancel,
                     struct mirror_hold **out, struct err *err)
{
	struct looking l = {app, source, all, want, err};
	struct mirror_room *r = app->room;
	struct mirror_hold *h = NULL;
	int rc;

	if (!take_turn(r, cancel))
		return err_set(err, ERR_CANCELED, "%s: canceled", source);
	rc = find_room(&l);
	if (rc == 0) {
		h = xcalloc(1, sizeof(*h));
		h->left = want->bytes;
	}
	lock_take(&r->lock);
	if (h != NULL)
		LIST_INSERT_HEAD(&r->holds, h, in);
	assert(r->busy); /* it was our turn */
	r->busy = false;
	cond_signal(&r->idle);
	lock_give(&r->lock);
	*out = h;
	return rc;
}

void mirror_room_stored(struct app *app, struct mirror_hold *h, uint64_t bytes)
{
	lock_take(&app->room->lock);
	h->left -= MIN(h->left, bytes);
	lock_give(&app->room->lock);
}

void mirror_room_give(struct app *app, struct mirror_hold *h)
{
	if (h == NULL)
		return;
	lock_take(&app->room->lock);
	LIST_REMOVE(h, in);
	lock_give(&app->room->lock);
	free(h);
}
