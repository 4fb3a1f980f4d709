/*
 * hub.c - see hub.h: which commit a branch is, as far as it is known; asked by a few threads.
 *
 * A revision is looked up as anybody's first and as the caller's team's then; the one that is asked
 * for is the team's, and what it finds out may be anybody's.
 */
#include "server/data/hub_impl.h"

#include "server/api/ctx.h"
#include "server/data/repos.h"

#define ASKS 16 /* revisions that are asked for at once */
#define ASKS_QUEUE_MAX 10000
#define ASK_MAX_MS 300000 /* all that is asked for one: 100,000 files are a hundred pages */
#define FETCHES 24        /* files on their way at once ... */
#define SMALL_FETCHES 32  /* ... and small ones, beside them */
#define FETCHES_QUEUE_MAX 100000
#define REVS_MAX 50000
#define KEEPER_MS 1000
#define ANSWER_MS 10000 /* so long an answer counts for who waited for it */
#define REFUSED_MS 5000 /* and so long a refusal counts for everybody */
#define SLOW_MS 3000    /* who waits so long gets what it was: clients give up after ten seconds */
#define STALE_MS 10000  /* while the other Hub is away it is asked so often */
#define COLLECT_MS (INT64_C(3600) * 1000)
#define UNCHECKED_MS                                                                               \
	(INT64_C(7) * 24 * 3600 * 1000) /* what a branch was is kept at least so long */
#define CLOCK_BEGAN 1                   /* monotonic times begin here: 0 is never */

bool hub_is_on(const struct app *app)
{
	return !settings_is_off(app->set.hub_upstream);
}

uint64_t hub_owner(const char *team_id)
{
	return httpd_channel("team", str_of(team_id));
}

void hub_repo_name(enum hub_type type, const char *id, char out[HUB_REPO_CAP])
{
	fmt_fixed(out, HUB_REPO_CAP, "%s/%s", hub_type_word(type), id);
	str_lower(out);
}

static int64_t now_ms(void)
{
	return MAX((int64_t)CLOCK_BEGAN, clock_mono_ms());
}

/* ---- revisions in memory ------------------------------------------------------------------- */

static void rev_key(const char *team_id, const struct hub_name *n, char out[HUB_KEY_CAP])
{
	char repo[HUB_REPO_CAP];

	hub_repo_name(n->type, n->id, repo);
	fmt_fixed(out, HUB_KEY_CAP, "%s\n%s\n%s", team_id, repo, n->rev != NULL ? n->rev : "");
}

static void rev_free(struct hub_rev *v)
{
	arena_free(v->a);
	free(v);
}

static void drop_idle(struct str key, void *value, void *arg)
{
	struct hub_rev *v = FROM_VOID(struct hub_rev, value, HUB_REV_MAGIC);

	if (v->running)
		return;
	(void)map_del(FROM_VOID(struct hub, arg, HUB_MAGIC)->revs, key);
	rev_free(v);
}

/* With the lock. */
static struct hub_rev *rev_at(struct app *app, const char *team_id, const struct hub_name *n,
                              bool make)
{
	struct hub *h = app->hub;
	char key[HUB_KEY_CAP];
	struct hub_rev *v;

	rev_key(team_id, n, key);
	v = map_get(h->revs, str_of(key));
	if (v != NULL || !make)
		return v;
	if (map_count(h->revs) >= REVS_MAX) /* they are asked for again */
		map_each(h->revs, drop_idle, h);
	v = xcalloc(1, sizeof(*v));
	v->magic = HUB_REV_MAGIC;
	v->app = app;
	v->type = n->type;
	FMT(v->key, "%s", key);
	FMT(v->team_id, "%s", team_id);
	FMT(v->id, "%s", n->id);
	FMT(v->rev, "%s", n->rev != NULL ? n->rev : "");
	(void)map_set(h->revs, str_of(v->key), v);
	return v;
}

/* Is what is known still good? What anybody may read of a commit is so for ever. */
static bool is_fresh(const struct hub_rev *v, bool again)
{
	int64_t ttl = (int64_t)v->app->set.hub_ttl * 1000;

	if (v->checked_ms == 0)
		return false;
	if (v->owner[0] == '\0' && hub_is_commit(v->rev, v->commit))
		return true;
	return now_ms() - v->checked_ms < (again ? MAX(ttl, (int64_t)ANSWER_MS) : ttl);
}

/* Does the other Hub take its time to say what it is, while it is known what it was? */
static bool is_slow(const struct hub_rev *v)
{
	return v->running && v->commit[0] != '\0' && now_ms() - v->began_ms >= SLOW_MS;
}

static bool is_refused(const struct hub_rev *v, bool again)
{
	return v->failed_ms != 0 && now_ms() - v->failed_ms < (again ? ANSWER_MS : REFUSED_MS);
}

/* ---- in the background --------------------------------------------------------------------- */

static uint64_t channel_of(const struct hub_rev *v)
{
	const struct hub_name name = {v->type, v->id, v->rev[0] != '\0' ? v->rev : NULL};

	return hub_channel(&name);
}

/* With the lock: what was found, for this team, and for anybody if it is so. */
static void store(struct hub_rev *v, const struct hub_answer *x)
{
	int64_t now = now_ms(), ttl = (int64_t)v->app->set.hub_ttl * 1000;

	FMT(v->commit, "%s", x->commit);
	FMT(v->owner, "%s", x->owner);
	v->checked_ms = now;
	if (x->stale) /* it is asked again soon */
		v->checked_ms = MAX((int64_t)CLOCK_BEGAN, now - MAX((int64_t)0, ttl - STALE_MS));
	v->failed_ms = 0;
	v->refused = false;
	err_clear(&v->err);
}

/* From here on v is whose it is: one that does not run may be dropped. */
static void finish(struct hub_rev *v, const struct hub_answer *x, struct arena *refs_in,
                   const struct hub_refs *refs, const struct err *err)
{
	struct hub *h = v->app->hub;

	lock_take(&h->lock);
	if (err->code != ERR_NONE) {
		v->err = *err;
		v->failed_ms = now_ms();
		v->checked_ms = 0;
		if (hub_is_closed(err)) {
			v->refused = true;
			v->commit[0] = '\0';
		}
		arena_free(refs_in);
	} else if (refs_in != NULL) {
		arena_free(v->a);
		v->a = refs_in;
		v->refs = *refs;
		v->checked_ms = now_ms();
		v->failed_ms = 0;
		err_clear(&v->err);
	} else {
		store(v, x);
		if (x->owner[0] == '\0' && v->team_id[0] != '\0') {
			const struct hub_name name = {v->type, v->id, v->rev};
			struct hub_rev *all = rev_at(v->app, "", &name, true);

			if (!all->running)
				store(all, x);
		}
	}
	v->running = false;
	lock_give(&h->lock);
}

/* What it was, for who does not want to wait. */
static void recall(struct hub_rev *v)
{
	struct app *app = v->app;
	struct hub_answer x = {.owner = ""};
	bool known;

	lock_take(&app->hub->lock);
	known = v->commit[0] != '\0';
	lock_give(&app->hub->lock);
	if (known || !hub_find_stale(app, v, &x))
		return;
	lock_take(&app->hub->lock);
	FMT(v->commit, "%s", x.commit);
	FMT(v->owner, "%s", x.owner);
	lock_give(&app->hub->lock);
}

static void ask_run(void *arg)
{
	struct hub_rev *v = FROM_VOID(struct hub_rev, arg, HUB_REV_MAGIC);
	struct app *app = v->app;
	struct hub_answer x = {.owner = ""};
	struct hub_refs refs = {0};
	struct arena *a = NULL;
	uint64_t channel = channel_of(v);
	struct httpd *http;
	struct err err = {0};
	int rc;

	v->until_ms = now_ms() + ASK_MAX_MS;
	if (atomic_load(&app->hub->cancel)) {
		rc = err_set(&err, ERR_CANCELED, "the server is shutting down");
	} else if (v->rev[0] != '\0') {
		recall(v);
		rc = hub_find_out(app, v, &x, &err);
	} else {
		a = arena_new();
		rc = hub_find_refs(app, v, a, &refs, &err);
	}
	assert((rc == 0) == (err.code == ERR_NONE));
	if (rc < 0)
		hub_blame_upstream(&err);
	finish(v, &x, a, &refs, &err);
	http = atomic_load(&app->httpd);
	if (http != NULL)
		httpd_notify(http, channel);
}

/* With the lock. */
static int begin(struct hub_rev *v, struct err *err)
{
	struct hub *h = v->app->hub;

	if (v->running)
		return 0;
	if (atomic_load(&h->cancel))
		return err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
	v->running = true;
	v->began_ms = now_ms();
	v->told_slow = false;
	if (workers_submit_for(h->asks, (struct workers_owner){.id = hub_owner(v->team_id)},
	                       ask_run, v, err) == 0)
		return 0;
	v->running = false;
	return -1;
}

/* ---- operations ---------------------------------------------------------------------------- */

static int team_of(const struct ask *ask, const struct hub_name *name, const char **team_id,
                   struct err *err)
{
	if (!hub_is_on(ask->app))
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "there is no repository %s here, and this server mirrors no other "
		               "Hub (--hub-upstream off)",
		               name->id);
	return ctx_team(ask, NULL, team_id, err);
}

/* With the lock: what v is, held; false when it has left memory. */
static bool hand_out(struct hub *h, const struct hub_rev *v, const struct hub_listing **out)
{
	struct hub_repo *r = hub_repo_find(h, v->owner, v->type, v->id, v->commit);

	if (r == NULL)
		return false;
	hub_repo_hold(h, r);
	*out = &r->l;
	return true;
}

/* With the lock: *out when it is known, as anybody or as this team sees it. */
static bool find_open(struct app *app, const char *team_id, const struct hub_name *name, bool again,
                      const struct hub_listing **out)
{
	const char *const teams[] = {"", team_id};

	for (size_t i = 0; i < COUNT(teams); i++) {
		struct hub_rev *v = rev_at(app, teams[i], name, false);

		if (v == NULL || !is_fresh(v, again))
			continue;
		if (hand_out(app->hub, v, out))
			return true;
		v->checked_ms = 0;
	}
	return false;
}

/* With the lock: what it was, when the other Hub takes its time to say what it is. */
static bool find_slow(struct app *app, const struct hub_rev *v, const struct hub_listing **out)
{
	return is_slow(v) && hand_out(app->hub, v, out);
}

static int open_mirrored(const struct ask *ask, const struct hub_name *name, bool again,
                         const struct hub_listing **out, struct err *err)
{
	struct app *app = ask->app;
	const char *team_id;
	struct hub_rev *v;
	int rc = 0;

	if (team_of(ask, name, &team_id, err) < 0)
		return -1;
	lock_take(&app->hub->lock);
	if (!find_open(app, team_id, name, again, out)) {
		v = rev_at(app, team_id, name, true);
		if (!v->running && is_refused(v, again)) {
			*err = v->err;
			rc = -1;
		} else if (!find_slow(app, v, out)) {
			rc = begin(v, err);
		}
	}
	lock_give(&app->hub->lock);
	return rc;
}

/* Has the other Hub none of that name? Then the one that is found last is meant. */
static bool is_last(const struct app *app, enum repo_found how, const struct err *err)
{
	return how == REPO_LAST && (!hub_is_on(app) || err->id == ERR_HUB_REPO_NOT_FOUND);
}

static int open_repo(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_listing **out, const char **moved, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo own;
	enum repo_found how;
	bool old_name = false;
	int rc = -1;

	assert(hub_id_ok(str_of(name->id)) && hub_rev_ok(str_of(name->rev)));
	*out = NULL;
	*moved = NULL;
	if (repo_look(ask, name->type, name->id, &how, &own, &old_name, err) < 0)
		return -1;
	if (how != REPO_FIRST) {
		rc = open_mirrored(ask, name, again, out, err);
		if (rc == 0 || !is_last(app, how, err))
			return rc;
		err_clear(err);
	}
	if (old_name) {
		*moved = arena_printf(ask->a, "%s/%s", own.owner, own.name);
		return 0;
	}
	return repo_open_at(app, ask->a, &own, name->rev, out, err);
}

static void close_repo(struct app *app, const struct hub_listing *l)
{
	repo_close(app, l != NULL ? hub_repo_of(l) : NULL);
}

static struct hub_branch *copy_branches(struct arena *a, const struct hub_branch *from, size_t n)
{
	struct hub_branch *to = ARENA_ARRAY(a, struct hub_branch, n + 1);

	for (size_t i = 0; i < n; i++)
		to[i] = (struct hub_branch){arena_cstr(a, from[i].name),
		                            arena_cstr(a, from[i].commit)};
	return to;
}

static int list_mirrored(const struct ask *ask, const struct hub_name *name, bool again,
                         const struct hub_refs **out, struct err *err)
{
	struct app *app = ask->app;
	const char *team_id;
	struct hub_refs *refs;
	struct hub_rev *v;
	int rc = 0;

	if (team_of(ask, name, &team_id, err) < 0)
		return -1;
	lock_take(&app->hub->lock);
	v = rev_at(app, team_id, &(struct hub_name){name->type, name->id, NULL}, true);
	if (is_fresh(v, again)) {
		refs = ARENA_NEW(ask->a, struct hub_refs);
		*refs = v->refs;
		refs->branch = copy_branches(ask->a, v->refs.branch, v->refs.n_branches);
		refs->tag = copy_branches(ask->a, v->refs.tag, v->refs.n_tags);
		*out = refs;
	} else if (!v->running && is_refused(v, again)) {
		*err = v->err;
		rc = -1;
	} else {
		rc = begin(v, err);
	}
	lock_give(&app->hub->lock);
	return rc;
}

static int list_refs(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_refs **out, struct err *err)
{
	struct model_repo own;
	struct hub_refs *refs;
	enum repo_found how;
	bool moved;
	int rc;

	*out = NULL;
	if (repo_look(ask, name->type, name->id, &how, &own, &moved, err) < 0)
		return -1;
	if (how != REPO_FIRST) {
		rc = list_mirrored(ask, name, again, out, err);
		if (rc == 0 || !is_last(ask->app, how, err))
			return rc;
		err_clear(err);
	}
	refs = ARENA_NEW(ask->a, struct hub_refs);
	if (repo_refs(ask->app, ask->a, &own, refs, err) < 0)
		return -1;
	*out = refs;
	return 0;
}

const struct hub_ops hub_ops = {
	.open = open_repo,
	.close = close_repo,
	.bytes = hub_bytes_of,
	.refs = list_refs,
};

static void ask_again(struct str key UNUSED, void *value, void *arg)
{
	struct hub_rev *v = FROM_VOID(struct hub_rev, value, HUB_REV_MAGIC);

	if (strcmp(v->team_id, arg) == 0)
		v->checked_ms = v->failed_ms = 0;
}

void hub_secret_changed(struct app *app, const char *team_id)
{
	char team[MODEL_ID_CAP];

	FMT(team, "%s", team_id);
	lock_take(&app->hub->lock);
	map_each(app->hub->revs, ask_again, team);
	lock_give(&app->hub->lock);
}

/* ---- its life ------------------------------------------------------------------------------ */

struct slow {
	unsigned magic;
#define SLOW_MAGIC 0x56534c4fU
	struct hub_name name[ASKS];
	size_t n;
	struct arena *a;
};

static void note_slow(struct str key UNUSED, void *value, void *arg)
{
	struct hub_rev *v = FROM_VOID(struct hub_rev, value, HUB_REV_MAGIC);
	struct slow *s = FROM_VOID(struct slow, arg, SLOW_MAGIC);

	if (v->told_slow || s->n == ASKS || !is_slow(v))
		return;
	v->told_slow = true;
	s->name[s->n++] =
		(struct hub_name){v->type, arena_cstr(s->a, v->id), arena_cstr(s->a, v->rev)};
}

/* Who waits for a Hub that takes its time looks again. */
static void wake_slow(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct httpd *http = atomic_load(&app->httpd);
	struct slow s = {.magic = SLOW_MAGIC, .a = a};

	lock_take(&app->hub->lock);
	map_each(app->hub->revs, note_slow, &s);
	lock_give(&app->hub->lock);
	for (size_t i = 0; i < s.n && http != NULL; i++)
		httpd_notify(http, hub_channel(&s.name[i]));
}

/* What branches were of which nothing is kept: it answers nobody. */
static void collect_revs(struct app *app)
{
	struct hub *h = app->hub;
	struct err err = {0};

	if (h->collected_ms != 0 && now_ms() - h->collected_ms < COLLECT_MS)
		return;
	h->collected_ms = now_ms();
	if (meta_hub_revs_collect(app->meta, clock_wall_ms() - UNCHECKED_MS, &err) < 0)
		log_warn("hub: %s", err.msg);
}

static void keeper_pass(struct app *app)
{
	collect_revs(app);
	wake_slow(app);
	hub_pulls_sweep(app);
	hub_repos_keep(app);
}

void hub_start(struct app *app)
{
	struct hub *h = xcalloc(1, sizeof(*h));

	h->magic = HUB_MAGIC;
	lock_init(&h->lock, LOCK_HUB);
	TAILQ_INIT(&h->repos);
	LIST_INIT(&h->followers);
	LIST_INIT(&h->shards);
	h->repo_by_name = map_new();
	h->revs = map_new();
	h->pulls = map_new();
	repos_start(h);
	app->hub = h;
	if (!hub_is_on(app))
		return;
	h->asks = workers_new(ASKS, ASKS_QUEUE_MAX, "hub");
	h->fetches = workers_new(FETCHES, FETCHES_QUEUE_MAX, "hub-fetch");
	h->small_fetches = workers_new(SMALL_FETCHES, FETCHES_QUEUE_MAX, "hub-small");
	h->keeper = loop_new(app, keeper_pass, KEEPER_MS);
}

void hub_run(struct app *app)
{
	if (hub_is_on(app))
		loop_run(app->hub->keeper);
}

void hub_stop(struct app *app)
{
	struct hub *h = app->hub;

	lock_take(&h->lock);
	atomic_store(&h->cancel, true);
	lock_give(&h->lock);
	workers_stop(h->asks);
	workers_stop(h->fetches);
	workers_stop(h->small_fetches);
	h->asks = h->fetches = h->small_fetches = NULL;
	loop_stop(h->keeper);
	hub_repos_keep(app); /* what came in the last second */
}

static void free_rev(struct str key UNUSED, void *value, void *arg UNUSED)
{
	rev_free(FROM_VOID(struct hub_rev, value, HUB_REV_MAGIC));
}

void hub_free(struct app *app)
{
	struct hub *h = app->hub;

	if (h == NULL)
		return;
	loop_free(h->keeper);
	hub_pulls_free(app);
	hub_repos_free(h);
	map_each(h->revs, free_rev, NULL);
	map_free(h->revs);
	map_free(h->repo_by_name);
	repos_free(h);
	lock_done(&h->lock);
	free(h);
	app->hub = NULL;
}
