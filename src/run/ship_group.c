/* ship_group.c - checkpoints, one step each: what is ready to be sent, judged, published, told. */
#include "base/clock.h"
#include "base/map.h"
#include "run/ship_table.h"

#define TELL_MS 1000
#define JUDGE_MS 2000 /* between two verdicts on one whose files are still on their way */

/* A summary of one checkpoint's entries, taken under the lock. */
struct view {
	bool live;
	size_t n, n_sent, n_lost, n_gone;
	uint64_t bytes_sent;
};

/* Temporary files belong to it at the end only, and not to one that is whole without them. */
static bool is_wanted(const struct ship *s, const struct ship_group *g, const struct ship_entry *e)
{
	if (e->kind == FORMAT_NAME_TEMPORARY)
		return s->walked_final && !ship_is_complete(g);
	return ship_counts(e) || s->walked_final;
}

static struct view look(const struct ship *s, const struct ship_group *g)
{
	struct view v = {.live = ship_is_live(g)};
	const struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!is_wanted(s, g, e))
			continue;
		v.n++;
		v.n_gone += e->gone;
		v.n_lost += e->state == SHIP_LOST;
		v.n_sent += e->state == SHIP_SENT || e->quarantine;
		v.bytes_sent +=
			e->state == SHIP_SENT ? e->fact.size : MIN(e->progress, e->fact.size);
	}
	return v;
}

/* Drops entries that the trainer itself deleted from a checkpoint that stays. */
static void drop_gone(struct ship *s, struct ship_group *g)
{
	struct ship_entry *e = NULL, *next = NULL;
	bool all = true;

	for (e = TAILQ_FIRST(&g->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, peer);
		if (e->gone && ship_counts(e))
			all = ship_entry_drop(s, e) && all;
	}
	if (all)
		g->gone_walk = 0; /* what is left has not begun to go */
}

/* ---- what is ready to be sent ------------------------------------------------------------------
 */

static bool is_ready(const struct ship *s, const struct ship_group *g, const struct ship_entry *e,
                     int64_t rest_ms, int64_t now)
{
	bool forced = g->judged && g->verdict.state == CKPT_INCOMPLETE;

	if (s->walked_final)
		return now >= e->retry_ms;
	if (e->gone)
		return now >= e->retry_ms && !ship_is_live(g);
	if (now < e->retry_ms || e->relink)
		return false;
	if (e->kind == FORMAT_NAME_LOG)
		return !e->stored || now - e->sent_ms >= SHIP_LOG_MS;
	if (e->writer || (!e->closed && !s->remote))
		return false;
	if (!forced && e->check != NULL && ship_same(&e->checked, &e->fact) &&
	    e->check->r.verdict == FORMAT_TORN)
		return false; /* seen, and to be mended by its writer */
	return now - e->changed_ms >= rest_ms;
}

/* Sent by a shipper before us, and to be judged: its format is looked at once more. */
static bool wants_look(const struct ship_entry *e)
{
	return e->state == SHIP_SENT && e->check == NULL && e->kind == FORMAT_NAME_PLAIN &&
	       (e->id > 0 || !e->gone);
}

static int64_t rest_of(const struct ship_group *g)
{
	const struct ship_entry *e = NULL;
	size_t n = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	n += ship_counts(e) && !e->gone;
	return n == 1 ? SHIP_ALONE_MS : SHIP_REST_MS;
}

static bool queue_ready(struct ship *s, struct ship_group *g)
{
	struct ship_entry *e = NULL;
	int64_t now = clock_mono_ms(), rest_ms = rest_of(g);
	size_t n = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!is_wanted(s, g, e) && e->kind != FORMAT_NAME_LOG)
			continue;
		e->look_only = wants_look(e);
		if (!e->look_only && (e->state != SHIP_WAIT || !is_ready(s, g, e, rest_ms, now)))
			continue;
		ship_entry_to(s, e, SHIP_QUEUED);
		n++;
	}
	if (n > 0)
		cond_broadcast(&s->changed);
	return n > 0;
}

/* ---- when it is done ---------------------------------------------------------------------------
 */

/* Links of what is in the store are given back: the disk's space is the trainer's. What was rotated
 * away needs no entry any more either. */
static void free_spool(struct ship *s, struct ship_group *g, bool live)
{
	struct ship_entry *e = NULL, *next = NULL;

	for (e = TAILQ_FIRST(&g->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, peer);
		if (e->state != SHIP_SENT)
			continue;
		ship_spool_doom(s, e->id);
		e->id = 0;
		e->own = false;
		if (!live && e->gone) {
			s->dropped_files++;
			s->dropped_bytes += e->sent.size;
			(void)ship_entry_drop(s, e);
		}
	}
}

static void tell_progress(struct ship *s, struct ship_group *g, const struct view *v)
{
	int64_t now = clock_mono_ms();
	bool same = v->bytes_sent == g->told_bytes && strcmp(g->told, g->verdict.reason) == 0;

	if (g->reported && same)
		return;
	if (g->reported && now - g->told_ms < TELL_MS) {
		g->due_ms = MIN(g->due_ms, g->told_ms + TELL_MS);
		return;
	}
	ship_tell(s, g);
	g->told_bytes = v->bytes_sent;
}

/* A complete checkpoint stays complete until its content changes. */
static void settle_base(struct ship_group *g)
{
	g->verdict = (struct ckpt_verdict){.state = g->base.c.state, .row = g->base.c.rule};
	FMT(g->verdict.reason, "%.*s", CKPT_REASON_MAX - 1,
	    g->base.c.reason != NULL ? g->base.c.reason : "");
	g->judged = g->written = true;
}

static void finish(struct ship *s, struct ship_group *g, bool live)
{
	if (!g->reported)
		ship_tell(s, g);
	else if ((g->moving || g->litter.n > 0) && !ship_move(s, g))
		return;
	if (g->written && !g->moving)
		free_spool(s, g, live);
	if (g->moving || g->litter.n > 0)
		g->news = true;
}

/* ---- a step ------------------------------------------------------------------------------------
 */

/* A folder that is being removed goes file by file: nothing is decided meanwhile. */
static bool is_vanishing(const struct ship *s, const struct ship_group *g, const struct view *v,
                         int64_t now)
{
	return v->live && v->n_gone > 0 && !s->walked_final && now - g->changed_ms < SHIP_GONE_MS;
}

static void judge(struct ship *s, struct ship_group *g, const struct view *v, int64_t now)
{
	bool all = v->n_sent + v->n_lost == v->n;

	if (!all && g->judged && now - g->judged_ms < JUDGE_MS && !s->walked_final) {
		g->due_ms = MIN(g->due_ms, g->judged_ms + JUDGE_MS);
		return;
	}
	ship_judge(s, g);
	g->judged_ms = now;
	if (g->verdict.wait_ms > 0)
		g->due_ms = MIN(g->due_ms, now + g->verdict.wait_ms);
	if (g->verdict.state == CKPT_COMPLETE && !all) { /* by what there is; not by what is sent */
		g->verdict.state = CKPT_SYNCING;
		FMT(g->verdict.reason, "syncing: %zu of %zu files are in the store", v->n_sent,
		    v->n);
	}
}

static void step(struct ship *s, struct ship_group *g)
{
	int64_t now = clock_mono_ms();
	struct view v;

	if ((!g->news && now < g->due_ms) || now < g->retry_ms || (s->final && !s->walked_final))
		return;
	g->news = false;
	g->due_ms = INT64_MAX;
	if (TAILQ_EMPTY(&g->entries) && g->fault == NULL) {
		if (g->moving || g->litter.n > 0)
			(void)ship_move(s, g);
		return;
	}
	if (!g->base.known && !ship_load_base(s, g))
		return;
	v = look(s, g);
	if (is_vanishing(s, g, &v, now)) {
		g->due_ms = g->changed_ms + SHIP_GONE_MS;
	} else if (v.live && v.n_gone > 0 && !g->written) {
		drop_gone(s, g);
		v = look(s, g);
	}
	if (v.n == 0 && g->fault == NULL)
		return;
	if (v.n > 0 && g->fault == NULL && ship_is_as_base(g) && v.n_sent + v.n_lost == v.n &&
	    !ship_is_saved_anew(s, g)) {
		settle_base(g);
		finish(s, g, v.live);
		return;
	}
	g->written = g->written && v.n_sent + v.n_lost == v.n;
	if (g->base.there && !ship_is_complete(g) && !g->written && !ship_withdraw(s, g))
		return;
	if (queue_ready(s, g))
		v = look(s, g);
	if (v.n_sent + v.n_lost < v.n)
		g->due_ms = MIN(g->due_ms, now + SHIP_WALK_MS);
	if (g->due_ms == g->changed_ms + SHIP_GONE_MS && is_vanishing(s, g, &v, now))
		return;
	if (g->written) {
		finish(s, g, v.live);
		return;
	}
	judge(s, g, &v, now);
	if (g->verdict.state != CKPT_SYNCING && v.n_sent + v.n_lost == v.n) {
		if (ship_publish(s, g) && g->written)
			finish(s, g, v.live);
		g->news = true;
		return;
	}
	tell_progress(s, g, &v);
}

/* How many ranks there are, by who runs: once known, all that waited is judged again. */
static void learn_world(struct ship *s)
{
	struct ship_group *g = NULL;
	int64_t now = clock_mono_ms();
	uint32_t world;

	if (s->o.world == NULL || s->world != 0 || s->final || now - s->world_ms < SHIP_WORLD_MS ||
	    TAILQ_EMPTY(&s->list))
		return;
	s->world_ms = now + s->world_pause_ms;
	s->world_pause_ms = MIN(2 * s->world_pause_ms + SHIP_WORLD_MS, (int64_t)SHIP_WORLD_MAX_MS);
	lock_give(&s->lock);
	world = s->o.world(s->o.arg);
	lock_take(&s->lock);
	s->world = world;
	TAILQ_FOREACH(g, &s->list, link)
	if (world != 0)
		g->stale = g->news = true;
}

/* With the lock held at both ends. Groups are never removed while we run. */
void ship_groups_step(struct ship *s)
{
	struct ship_group *g = NULL;

	learn_world(s);
	TAILQ_FOREACH(g, &s->list, link)
	step(s, g);
}

bool ship_all_done(struct ship *s)
{
	struct ship_group *g = NULL;

	TAILQ_FOREACH(g, &s->list, link)
	{
		struct view v = look(s, g);

		if ((v.n > 0 || g->fault != NULL) &&
		    (!g->written || !g->reported || g->moving || g->litter.n > 0))
			return false;
		s->lost = s->lost || v.n_lost > 0 || g->fault != NULL;
	}
	return true;
}
