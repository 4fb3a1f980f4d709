/* ship_judge.c - the facts about one checkpoint, gathered for the table of core/ckpt_rule.h. */
#include "base/clock.h"
#include "base/map.h"
#include "base/units.h"
#include "run/ship_table.h"

#define WRITER_RECENT_MS SHIP_PROBE_MS /* before the end: a kill closes descriptors too */
#define PUBLISHED_QUIET_MS 2000

/* The verdict on a set of files, kept until one of them changes. */
struct ship_set {
	struct arena *a;
	struct set_result r;
};

void ship_set_free(struct ship_set *x)
{
	if (x == NULL)
		return;
	arena_free(x->a);
	free(x);
}

static const struct format_result *check_of(const struct ship_entry *e)
{
	const struct ship_fact *is = e->quarantine ? &e->sent : &e->fact;

	return e->check != NULL && ship_same(&e->checked, is) ? &e->check->r : NULL;
}

/* Files that stand beside a checkpoint and tell of it: its own sign, its trainer's pointers. */
static size_t add_beside(struct ship *s, struct arena *a, const struct ship_group *g,
                         struct set_file *out)
{
	static const char *const names[] = {"%s-unfinished", "dlrover_latest.txt", "latest",
	                                    "latest_checkpointed_iteration.txt"};
	const char *base = ckpt_base_name(g->name);
	size_t n = 0;

	for (size_t i = 0; i < COUNT(names); i++) {
		char *name =
			i == 0 ? arena_printf(a, "%s-unfinished", base) : arena_cstr(a, names[i]);
		char *path = arena_printf(a, "%.*s%s", (int)(base - g->name), g->name, name);
		const struct ship_entry *e = map_get(s->entries, str_of(path));

		if (e == NULL || e->gone)
			continue;
		out[n++] =
			(struct set_file){.path = name, .size = e->fact.size, .check = check_of(e)};
	}
	return n;
}

static const struct ship_sibling *sibling_of(struct ship *s, const struct ship_group *g)
{
	const struct ship_sibling *b = map_get(s->siblings, str_of(g->lineage));

	return b == NULL || strcmp(b->name, g->name) == 0 ? NULL : b;
}

static void look_at_set(struct ship *s, struct ship_group *g)
{
	struct ship_set *x = xcalloc(1, sizeof(*x));
	struct arena *a = arena_new();
	const struct ship_sibling *b = sibling_of(s, g);
	struct set_file beside[4], *file = NULL;
	struct set_query q = {
		.name = strcmp(g->name, ".") == 0 ? "" : arena_cstr(a, ckpt_base_name(g->name)),
		.beside = beside,
		.world = s->world,
		.part = s->o.nodes > 1};
	struct ship_entry *e = NULL;
	size_t n = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	n++;
	file = ARENA_ARRAY(a, struct set_file, n + 1);
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (e->kind == FORMAT_NAME_TEMPORARY && e->gone)
			continue;
		file[q.n++] = (struct set_file){
			.path = arena_cstr(a, ship_inner(g, e->path)),
			.size = e->quarantine ? e->sent.size : e->fact.size,
			.check = check_of(e),
			.sha256 = e->state == SHIP_SENT || e->quarantine ? &e->sha256 : NULL,
		};
	}
	q.file = file;
	q.n_beside = add_beside(s, a, g, beside);
	if (b != NULL) {
		q.sibling = b->base;
		q.sibling_file = b->file;
		q.n_sibling = b->n;
	}
	x->a = a;
	set_check(a, &q, &x->r);
	ship_set_free(g->set);
	g->set = x;
	g->stale = false;
	g->layout = x->r.layout;
}

bool ship_is_live(const struct ship_group *g)
{
	const struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	if (ship_counts(e) && !e->gone)
		return true;
	return false;
}

/* ---- the manifest that counts ------------------------------------------------------------------
 */

bool ship_is_complete(const struct ship_group *g)
{
	return g->base.there && g->base.c.state == CKPT_COMPLETE;
}

const struct manifest_file *ship_in_base(const struct ship_group *g, const char *path)
{
	return ship_is_complete(g) ? manifest_find(&g->base.c.files, str_of(path)) : NULL;
}

/* Sent, and what that manifest says. */
static bool is_as_base(const struct ship_group *g, const struct ship_entry *e)
{
	const struct manifest_file *old =
		g->base.there ? manifest_find(&g->base.c.files, str_of(e->path)) : NULL;

	return old != NULL && e->state == SHIP_SENT && digest_same(&old->sha256, &e->sha256);
}

bool ship_is_as_base(const struct ship_group *g)
{
	const struct ship_entry *e = NULL;

	if (!g->base.there)
		return false;
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (e->kind == FORMAT_NAME_TEMPORARY ||
		    (e->kind == FORMAT_NAME_LOG && e->state != SHIP_SENT))
			continue;
		if (!is_as_base(g, e) && !(e->gone && e->state == SHIP_LOST))
			return false;
	}
	return true;
}

/* ---- the last file -----------------------------------------------------------------------------
 */

/* The file that comes last: the one that the job names, else its trainer's. */
static const struct ship_entry *find_last(struct ship *s, const struct ship_group *g,
                                          const char *name)
{
	struct ship_entry *e = NULL;
	bool live = ship_is_live(g); /* else the spool has all of it */

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		const char *inner = ship_inner(g, e->path);

		if ((!e->gone || !live) &&
		    (s->o.marker != NULL ? ckpt_is_marker(inner, name) : strcmp(inner, name) == 0))
			return e;
	}
	return NULL;
}

/* By the looks that saw them change; within one look by ctime, which nobody can set. */
static bool came_later(const struct ship_entry *a, const struct ship_entry *b)
{
	if (a->changed_walk != b->changed_walk)
		return a->changed_walk > b->changed_walk;
	return a->fact.ctime_ns > b->fact.ctime_ns;
}

static enum ckpt_last judge_last(const struct ship_group *g, const struct ship_entry *last)
{
	enum ckpt_last is = CKPT_LAST_NEWEST;
	bool same = is_as_base(g, last), live = ship_is_live(g);
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (e == last || !ship_counts(e) || (e->gone && live) ||
		    e->kind == FORMAT_NAME_POINTER || !came_later(e, last) ||
		    set_may_follow(g->set->r.layout, ship_inner(g, e->path)))
			continue;
		if (ship_in_base(g, e->path) != NULL && same && !is_as_base(g, e))
			return CKPT_LAST_OLD; /* saved over */
		if (e->first_walk <= last->changed_walk && e->again_walk > last->changed_walk &&
		    ship_in_base(g, e->path) == NULL)
			return CKPT_LAST_OLD; /* the same, before the first was whole */
		is = CKPT_LAST_COPIED;
	}
	return is;
}

static void add_last(struct ship *s, const struct ship_group *g, struct ckpt_facts *f)
{
	const struct set_result *r = &g->set->r;
	const struct ship_entry *e = NULL;

	f->last_name = s->o.marker != NULL ? s->o.marker : r->last;
	if (f->last_name == NULL)
		return;
	if (strncmp(f->last_name, "../", 3) == 0) { /* a pointer beside it */
		f->last = r->last_there ? CKPT_LAST_NEWEST : CKPT_LAST_ABSENT;
		return;
	}
	e = find_last(s, g, f->last_name);
	if (e == NULL || (s->o.marker == NULL && !r->last_there)) {
		/* another node may have it */
		f->last = s->o.nodes > 1 ? CKPT_LAST_NONE : CKPT_LAST_ABSENT;
		f->known = f->known || s->o.marker != NULL;
		return;
	}
	f->last = judge_last(g, e);
	/* weights and nothing else: on purpose, as the one before, or half a copy */
	f->model_only = f->last == CKPT_LAST_NEWEST && r->only_model && !r->same_names &&
	                s->o.marker == NULL;
	if (f->model_only)
		f->last = CKPT_LAST_COPIED;
}

/* ---- files -------------------------------------------------------------------------------------
 */

static bool is_whole(const struct ship_entry *e, const char *const *formats, size_t n)
{
	for (size_t i = 0; e->check != NULL && i < n; i++)
		if (strcmp(e->check->r.format, formats[i]) == 0)
			return e->check->r.verdict == FORMAT_WHOLE;
	return false;
}

/* A whole file of these was closed, or as good as, because savers write it from its first byte to
 * its last. Some end with a trailer, which proves nothing where a complete file is written over in
 * place: it may be the old one. Some say their length at their beginning: they may have their size
 * before their content, and a writer that was seen then may have been in the middle of it. Any
 * other format always may. */
static bool is_ended_by_format(const struct ship_entry *e, bool recent)
{
	static const char *const trailer[] = {"torch zip", "torch legacy", "pickle",
	                                      "json",      "keras",        "npz",
	                                      "tar",       "dcp metadata"};
	static const char *const length[] = {"gguf", "npy", "msgpack"};

	if (recent && ship_in_base(e->group, e->path) != NULL)
		return false;
	if (is_whole(e, trailer, COUNT(trailer)))
		return true;
	return !e->hole && !(recent && e->writer_size == e->fact.size) &&
	       is_whole(e, length, COUNT(length));
}

/* A row of archives may end early between two of them: .metadata knows, on another node. */
static bool is_ended_by_metadata(const struct ship *s, const struct ship_entry *e)
{
	return s->o.nodes > 1 && e->check != NULL && e->check->r.verdict == FORMAT_WHOLE &&
	       strcmp(e->check->r.format, "distcp") == 0 &&
	       strcmp(e->group->layout->id, "dcp_ranks") != 0;
}

/* Closed by its writer, not by the kernel: we hear of a violent end after the descriptors are
 * closed, and a sample in between finds no writer. */
static bool was_closed(const struct ship *s, const struct ship_entry *e)
{
	return e->closed && (e->probe_ms == 0 || s->died_ms - e->probe_ms >= WRITER_RECENT_MS);
}

/* Was it being written when the end came? Without a sample after its last change: perhaps. When the
 * commands end normally, the last look finds the files that their processes still have open. */
static bool was_cut(const struct ship *s, const struct ship_entry *e)
{
	bool recent =
		e->writer || (e->writer_ms > 0 && s->died_ms - e->writer_ms < WRITER_RECENT_MS);

	if (!s->final || e->gone)
		return false;
	if (s->ok)
		return e->left_open;
	if (is_ended_by_format(e, recent || e->left_open) || is_ended_by_metadata(s, e))
		return false;
	return recent || e->left_open || (!was_closed(s, e) && !s->remote) ||
	       (e->hole && e->check != NULL && e->check->r.verdict == FORMAT_WHOLE);
}

static void add_files(struct ship *s, const struct ship_group *g, struct ckpt_facts *f)
{
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		const char *inner = ship_inner(g, e->path);

		if (!ship_counts(e))
			continue;
		if (e->fault != NULL && f->torn == NULL) {
			f->torn = inner;
			f->torn_why = e->fault;
		}
		if (e->writer && !e->gone && !e->quarantine && f->writer == NULL && !s->final)
			f->writer = inner;
		if (f->cut == NULL && was_cut(s, e))
			f->cut = inner;
	}
	if (g->fault != NULL && f->torn == NULL) {
		f->torn = ship_inner(g, g->fault_path);
		f->torn_why = g->fault;
	}
}

/* A model's settings without anything that could be its weights. */
static bool lacks_weights(const struct ship_group *g, bool *small)
{
	const struct ship_entry *e = NULL;
	bool config = false;

	*small = true;
	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!ship_counts(e))
			continue;
		*small = *small && e->check != NULL && format_is_settings(e->check->r.format);
		config = config || format_is_config(str_of(e->path));
	}
	return *small && config;
}

static void add_set(const struct ship *s, const struct ship_group *g, struct ckpt_facts *f)
{
	const struct set_result *r = &g->set->r;
	bool small = false, weightless = lacks_weights(g, &small);
	bool layout = strcmp(r->layout->id, "unknown") != 0 &&
	              (!r->layout->one_file || (r->checked > 0 && !small));

	f->unfinished = r->unfinished;
	for (size_t i = 0; i < MIN(r->n_problems, (size_t)SET_SHOWN_MAX); i++) {
		const struct set_problem *p = &r->problem[i];

		if (p->fault == SET_FAULT_MISSING && f->missing == NULL) {
			f->missing = p->path;
		} else if (p->fault != SET_FAULT_MISSING && f->torn == NULL) {
			f->torn = p->path;
			f->torn_why = p->why;
		}
	}
	f->n_missing = f->missing != NULL ? r->n_problems : 0;
	if (weightless && f->missing == NULL && s->o.nodes <= 1) { /* else another node has them */
		f->missing = "model.safetensors";
		f->n_missing = 1;
	}
	f->known = layout || (r->files > 0 && r->checked == r->files && !small);
	f->single = r->layout->one_file && r->checked > 0 && !small;
	f->proven = r->state == SET_PROVEN;
	f->proof = r->proof[0] != '\0' ? r->proof : NULL;
	f->n_files = r->files;
	f->n_checked = r->checked;
}

/* ---- siblings, time ----------------------------------------------------------------------------
 */

static void add_siblings(struct ship *s, const struct ship_group *g, struct ckpt_facts *f)
{
	const struct ship_sibling *b = sibling_of(s, g);
	const struct ship_group *o = NULL;

	if (b != NULL) {
		f->sibling = b->base;
		f->names = g->set->r.same_names    ? CKPT_NAMES_SAME
		           : g->set->r.fewer_names ? CKPT_NAMES_FEWER
		                                   : CKPT_NAMES_OTHER;
	}
	TAILQ_FOREACH(o, &s->list, link)
	{
		if (o == g || strcmp(o->lineage, g->lineage) != 0 ||
		    ckpt_name_cmp(o->name, g->name) <= 0 || o->grown_walk == 0)
			continue;
		f->newer_begun = true;
		f->newer_complete = f->newer_complete || ship_is_complete(o);
	}
}

/* All its files were first seen in one look, and have not changed since. */
static bool came_at_once(const struct ship_group *g)
{
	const struct ship_entry *e = NULL;
	uint64_t walk = 0;

	TAILQ_FOREACH(e, &g->entries, peer)
	{
		if (!ship_counts(e))
			continue;
		if (e->changed_walk != e->first_walk || (walk != 0 && e->first_walk != walk))
			return false;
		walk = e->first_walk;
	}
	return walk != 0;
}

static void add_time(struct ship *s, struct ship_group *g, struct ckpt_facts *f, int64_t now)
{
	bool quarantine = false;
	struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	quarantine = quarantine || e->quarantine;
	f->quiet_ms = MAX(now - g->changed_ms, 0);
	if (quarantine) /* it was quiet when it was copied */
		f->quiet_ms = MAX(f->quiet_ms, (int64_t)SHIP_ALONE_MS);
	f->pause_ms = s->pause_ms;
	f->remote = s->remote;
	f->settle_ms = s->o.settle_ms;
	f->end = !s->walked_final ? CKPT_RUNNING : s->ok ? CKPT_ENDED_OK : CKPT_ENDED_BADLY;
	if (!ship_is_live(g))
		f->gone = g->gone_walk == 0 || g->gone_walk >= g->grown_walk + 2 ? CKPT_GONE_AT_REST
		                                                                 : CKPT_GONE_EARLY;
	f->published = g->moved_walk != 0 || (g->set->r.layout->published && came_at_once(g) &&
	                                      (s->final || f->quiet_ms >= PUBLISHED_QUIET_MS));
}

/* ---- the verdict -------------------------------------------------------------------------------
 */

bool ship_is_logs(const struct ship_group *g)
{
	const struct ship_entry *e = NULL;

	TAILQ_FOREACH(e, &g->entries, peer)
	if (e->kind == FORMAT_NAME_PLAIN || e->kind == FORMAT_NAME_TEMPORARY)
		return false;
	return !TAILQ_EMPTY(&g->entries);
}

const char *ship_trainer(const struct ship_group *g)
{
	return g->set == NULL || strcmp(g->set->r.layout->id, "unknown") == 0
	               ? NULL
	               : g->set->r.layout->title;
}

/* Logs and pointers are no checkpoint: kept as they were at the end. */
static void judge_logs(const struct ship *s, struct ckpt_verdict *v)
{
	*v = (struct ckpt_verdict){.state = s->walked_final ? CKPT_COMPLETE : CKPT_SYNCING};
	FMT(v->reason, "%s",
	    s->walked_final ? "complete: logs and pointers, as they were at the end"
	                    : "syncing: logs and pointers grow while the job runs");
}

void ship_judge(struct ship *s, struct ship_group *g)
{
	struct ckpt_facts f = {0};
	char shown[CLOCK_ISO_CAP];

	g->judged = true;
	if (ship_is_logs(g)) {
		judge_logs(s, &g->verdict);
		return;
	}
	if (g->stale || g->set == NULL)
		look_at_set(s, g);
	add_files(s, g, &f);
	add_set(s, g, &f);
	add_last(s, g, &f);
	add_siblings(s, g, &f);
	add_time(s, g, &f, clock_mono_ms());
	if (ship_is_complete(g)) {
		clock_iso(g->base.c.created_ms, shown);
		shown[16] = '\0'; /* 2026-11-21T14:02 */
		f.shown = shown + 11;
	}
	ckpt_judge(&f, &g->verdict);
}

/* The next checkpoints of its lineage are compared with this one. */
void ship_sibling_set(struct ship *s, const struct ship_group *g, const struct ckpt *c)
{
	struct ship_sibling *b = map_get(s->siblings, str_of(g->lineage));
	struct ship_group *o = NULL;

	if (strcmp(g->name, ".") == 0 || (b != NULL && ckpt_name_cmp(b->name, g->name) > 0))
		return;
	if (b == NULL) {
		b = xcalloc(1, sizeof(*b));
		b->magic = SHIP_SIBLING_MAGIC;
		(void)map_set(s->siblings, str_of(g->lineage), b);
	}
	arena_free(b->a);
	b->a = arena_new();
	b->name = arena_cstr(b->a, g->name);
	b->base = ckpt_base_name(b->name);
	b->n = c->files.n;
	b->file = ARENA_ARRAY(b->a, const char *, b->n + 1);
	for (size_t i = 0; i < b->n; i++)
		b->file[i] = arena_cstr(b->a, ship_inner(g, c->files.file[i].path));
	TAILQ_FOREACH(o, &s->list, link)
	{
		if (o != g && strcmp(o->lineage, g->lineage) == 0)
			o->stale = o->news = true;
	}
}
