/* node_room.c - see node_room.h. */
#include "server/control/node_room.h"
#include "base/log.h"
#include "base/units.h"

struct weights {
	uint64_t bytes;
	bool held;    /* by a placed job, or one that was let through */
	bool claimed; /* held, or by one ahead that waits for room */
};

struct node_room {
	struct node_cache *node;
	uint64_t budget, held, claimed; /* bytes; held is part of claimed */
	uint64_t environments;          /* that are in use */
	bool looked;                    /* ... which is known */
	const struct meta_tree *row;    /* ordered by job */
	size_t n;
	struct weights **of; /* by row; rows of one manifest share theirs */
};

static void hold(struct node_room *r, struct weights *w)
{
	if (!w->held)
		r->held += w->bytes;
	if (!w->claimed)
		r->claimed += w->bytes;
	w->held = w->claimed = true;
}

int node_room_read(struct app *app, struct arena *a, struct node_room **out, struct err *err)
{
	AUTO_MAP struct map *by_manifest = map_new();
	struct node_room *r = ARENA_NEW(a, struct node_room);
	struct meta_tree *row = NULL;

	if (meta_trees(app->meta, a, &row, &r->n, err) < 0)
		return -1;
	r->node = app->node;
	r->budget = app->set.node_cache_bytes;
	r->row = row;
	r->of = ARENA_ARRAY(a, struct weights *, r->n + 1);
	for (size_t i = 0; i < r->n; i++) {
		r->of[i] = map_get(by_manifest, str_of(row[i].manifest));
		if (r->of[i] == NULL) {
			r->of[i] = ARENA_NEW(a, struct weights);
			r->of[i]->bytes = row[i].bytes;
			(void)map_set(by_manifest, str_of(row[i].manifest), r->of[i]);
		}
		if (row[i].placed)
			hold(r, r->of[i]);
	}
	*out = r;
	return 0;
}

/* The first row of a job, or of the next one. */
static size_t first_row(const struct node_room *r, const char *job_id)
{
	size_t low = 0, high = r->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(r->row[mid].job_id, job_id) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Asked when it matters: most jobs have no weights, or those that others hold. */
static uint64_t environments(struct node_room *r)
{
	struct err err = {0};

	if (!r->looked && node_cache_built_held(r->node, &r->environments, &err) < 0)
		log_warn("node cache: %s", err.msg);
	r->looked = true;
	return r->environments;
}

bool node_room_let(struct node_room *r, const char *job_id, char reason[SCHED_REASON])
{
	uint64_t all = 0, more = 0, unclaimed = 0, others = r->claimed;
	size_t from = first_row(r, job_id), to = from;
	char held[UNITS_CAP], budget[UNITS_CAP], need[UNITS_CAP];
	bool fits;

	for (; to < r->n && strcmp(r->row[to].job_id, job_id) == 0; to++) {
		const struct weights *w = r->of[to];

		all += w->bytes;
		more += w->held ? 0 : w->bytes;
		unclaimed += w->claimed ? 0 : w->bytes;
	}
	if (more > 0 && all <= r->budget)
		others += environments(r);
	fits = more == 0 || all > r->budget || others + unclaimed <= r->budget;
	for (size_t i = from; i < to && all <= r->budget; i++) {
		if (fits)
			hold(r, r->of[i]);
		else if (!r->of[i]->claimed)
			r->claimed += r->of[i]->bytes;
		r->of[i]->claimed = true;
	}
	if (!fits)
		(void)snprintf(reason, SCHED_REASON,
		               "waits for space in the node cache: its weights need %s more, and "
		               "jobs that run or are ahead of it hold %s of %s",
		               units_show_bytes(more, need), units_show_bytes(others, held),
		               units_show_bytes(r->budget, budget));
	return fits;
}
