/*
 * hub.c - see hub.h: which commit a branch is, asked of the other Hub by a few threads.
 *
 * A revision is looked up as anybody's first and as the caller's team's then; the one that is asked
 * for is the team's, and what it finds out may be anybody's.
 */
#include "server/data/hub_impl.h"

#include "base/json.h"
#include "server/api/ctx.h"
#include "server/api/secrets.h"
#include "store/sources/source.h"

#include <ctype.h>

#define ASKS 16 /* revisions that are asked for at once */
#define ASKS_QUEUE_MAX 10000
#define FETCHES 24 /* files on their way at once */
#define FETCHES_QUEUE_MAX 100000
#define REVS_MAX 50000
#define KEEPER_MS 1000
#define ANSWER_MS 10000 /* so long an answer counts for who waited for it */
#define REFUSED_MS 5000 /* and so long a refusal counts for everybody */
#define SLOW_MS 3000    /* who waits so long gets what it was: clients give up after ten seconds */
#define STALE_MS 10000  /* while the other Hub is away it is asked so often */
#define PATIENCE_S 5    /* no thread sits longer out what a Hub that is busy asks for */
#define CLOCK_BEGAN 1   /* monotonic times begin here: 0 is never */
#define REFS_MAX 10000  /* branches, or tags, that are shown */

bool hub_is_on(const struct app *app)
{
	return strcmp(app->set.hub_upstream, "off") != 0;
}

void hub_repo_name(enum hub_type type, const char *id, char out[HUB_REPO_CAP])
{
	fmt_fixed(out, HUB_REPO_CAP, "%s/%s", hub_type_word(type), id);
	for (char *c = out; *c != '\0'; c++)
		*c = (char)tolower((unsigned char)*c);
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
	(void)map_del(((struct hub *)arg)->revs, key);
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

/* A branch may look like a commit: it is none when the other Hub says another one. */
static bool is_commit(const char *rev, const char *commit)
{
	return hub_commit_ok(str_of(rev)) && strcasecmp(rev, commit) == 0;
}

/* Is what is known still good? What anybody may read of a commit is so for ever. */
static bool is_fresh(const struct hub_rev *v, bool again)
{
	int64_t ttl = (int64_t)v->app->set.hub_ttl * 1000;

	if (v->checked_ms == 0)
		return false;
	if (v->owner[0] == '\0' && is_commit(v->rev, v->commit))
		return true;
	return now_ms() - v->checked_ms < (again ? MAX(ttl, (int64_t)ANSWER_MS) : ttl);
}

static bool is_refused(const struct hub_rev *v, bool again)
{
	return v->failed_ms != 0 && now_ms() - v->failed_ms < (again ? ANSWER_MS : REFUSED_MS);
}

/* ---- asking -------------------------------------------------------------------------------- */

int hub_source(struct app *app, const char *team_id, enum hub_type type, const char *id,
               const char *rev, struct source **out, struct err *err)
{
	AUTO_BUF struct buf url = BUF_INIT(HUB_SOURCE_CAP);
	struct buf secret = BUF_INIT(SEAL_VALUE_MAX);
	struct source_options o = {.client = app->upstream,
	                           .hf_endpoint = app->set.hub_upstream,
	                           .cancel = &app->hub->cancel,
	                           .retry_after_max_s = PATIENCE_S,
	                           .about = true};
	int rc = 0;

	buf_printf(&url, "hf://%s/%s@", hub_type_word(type), id);
	url_encode(str_of(rev), false, &url);
	if (buf_check(&url, "the name of a repository", err) < 0)
		return -1;
	if (team_id[0] != '\0')
		rc = secret_open(app, team_id, HUB_SECRET, &secret, err);
	o.secret = buf_view(&secret);
	if (rc == 0)
		rc = source_open(out, buf_cstr(&url), &o, err);
	seal_wipe_buf(&secret);
	return rc;
}

static int gated(const struct hub_name *n, struct err *err)
{
	return err_set(err, ERR_HUB_GATED,
	               "%s/%s is gated: accept its terms at the Hub, then set the team's "
	               "secret " HUB_SECRET " to a token of that account",
	               hub_type_word(n->type), n->id);
}

/* Of one that says no more than its status. */
static enum source_refusal refusal_of(const struct err *err)
{
	if (err->code == ERR_NOT_FOUND || err->code == ERR_AUTH ||
	    err->id == ERR_SOURCE_UNAUTHORIZED)
		return SOURCE_NO_REPOSITORY;
	return SOURCE_NOT_REFUSED;
}

int hub_refused(const struct source *s, const struct hub_name *n, struct err *err)
{
	enum source_refusal why = source_refusal(s);
	bool denied = err->id == ERR_SOURCE_DENIED;

	if (why == SOURCE_NOT_REFUSED)
		why = refusal_of(err);
	if (why == SOURCE_NOT_REFUSED && !denied)
		return -1;
	err_clear(err);
	switch (why) {
	case SOURCE_NO_REPOSITORY:
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "the Hub has no repository %s/%s, or does not show it to this team. "
		               "If it is private, set the team's secret " HUB_SECRET
		               " to a token that may read it",
		               hub_type_word(n->type), n->id);
	case SOURCE_GATED:
		return gated(n, err);
	case SOURCE_NO_REVISION:
	case SOURCE_NO_ENTRY:
		return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s/%s has no revision %s",
		               hub_type_word(n->type), n->id, n->rev);
	case SOURCE_NOT_REFUSED:
		break;
	}
	return err_set(err, ERR_SOURCE_DENIED, "the Hub refuses %s/%s without a reason",
	               hub_type_word(n->type), n->id);
}

static bool is_gated(const char *about)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *doc;
	struct err ignored = {0};
	bool says;

	if (about == NULL || js_parse(a, str_of(about), &doc, &ignored) < 0)
		return false;
	doc = doc_get(doc, "gated"); /* false, or a word: how it is opened */
	says = doc != NULL && !doc_is(doc, DOC_NULL) && !doc_is(doc, DOC_BOOL);
	return says || doc_bool(doc, false);
}

/* What the other Hub says makes no sense, leads nowhere, or is too much: that is no fault of the
 * request, which these classes would put it on. */
static void blame_upstream(struct err *err)
{
	static const enum err_code classes[] = {ERR_INVALID, ERR_TOO_BIG, ERR_CORRUPT,
	                                        ERR_CONFLICT};
	bool is = err->id == ERR_ADDRESS_DENIED || err->id == ERR_SOURCE_REDIRECT_DENIED;

	for (size_t i = 0; i < COUNT(classes); i++)
		is |= err->code == classes[i];
	if (is)
		err_become(err, ERR_SOURCE_BROKEN);
}

/* Might the team's own token help? */
static bool is_closed(const struct err *err)
{
	return err->id == ERR_HUB_REPO_NOT_FOUND || err->id == ERR_HUB_GATED ||
	       err->id == ERR_SOURCE_DENIED;
}

static int listing_of(const struct hub_rev *v, const struct source_listing *from, const char *about,
                      struct arena *a, struct hub_listing *out, struct err *err)
{
	*out = (struct hub_listing){.type = v->type,
	                            .id = v->id,
	                            .commit = from->revision,
	                            .about = about,
	                            .file = ARENA_ARRAY(a, struct hub_file, from->n + 1),
	                            .n = from->n};
	for (size_t i = 0; i < from->n; i++) {
		const struct source_file *f = &from->file[i];
		struct hub_file *to = &out->file[i];

		if (!f->has_id || f->kind == HASH_MD5)
			return err_set(err, ERR_SOURCE_BROKEN, "%s is listed without an id",
			               f->path);
		*to = (struct hub_file){
			.path = f->path, .size = f->size, .lfs = f->kind == HASH_SHA256};
		if (to->lfs)
			memcpy(to->sha256.b, f->id, HASH_SHA256_LEN);
		else
			memcpy(to->oid, f->id, HUB_OID_LEN);
	}
	return hub_listing_finish(out, a, err);
}

static bool in_memory(struct app *app, const char *team_id, const struct hub_rev *v,
                      const char *commit)
{
	bool is;

	lock_take(&app->hub->lock);
	is = hub_repo_find(app->hub, team_id, v->type, v->id, commit) != NULL;
	lock_give(&app->hub->lock);
	return is;
}

/* In memory, or brought there from what is kept. Fails with a reason that is not that it is not. */
static int find_kept(struct app *app, const char *team_id, const struct hub_rev *v,
                     const char *commit, bool *found, struct err *err)
{
	*found = in_memory(app, team_id, v, commit);
	if (*found)
		return 0;
	if (hub_repo_load(app, team_id, v->type, v->id, commit, err) == 0) {
		*found = true;
		return 0;
	}
	if (err_is_away(err))
		return -1;
	if (err->code != ERR_NOT_FOUND) /* damaged: it is asked for again */
		log_warn("hub: repository=%s@%s %s", v->id, commit, err->msg);
	err_clear(err);
	return 0;
}

/* May it still read what is kept? */
static int admits(struct app *app, const char *team_id, const struct hub_rev *v, const char *commit,
                  struct source *s, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *path = NULL;
	struct hub_repo *r;

	lock_take(&app->hub->lock);
	r = hub_repo_find(app->hub, team_id, v->type, v->id, commit);
	if (r != NULL && r->l.n > 0)
		path = arena_cstr(a, r->l.file[r->l.n - 1].path);
	lock_give(&app->hub->lock);
	return path == NULL ? 0 : source_admits(s, path, err);
}

/* Of the other Hub, as this team sees it ("": as anybody does). */
static int ask_upstream(struct app *app, const char *team_id, const struct hub_rev *v,
                        char commit[HUB_COMMIT_HEX + 1], struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	struct glob_filter all = {0};
	struct source_listing listing;
	struct hub_listing l;
	const struct hub_name name = {v->type, v->id, v->rev};
	struct source_head head;
	const char *is;
	bool kept = false, is_closed_to_some;

	if (hub_source(app, team_id, v->type, v->id, v->rev, &s, err) < 0)
		return -1;
	if (source_resolve(s, a, &head, err) < 0)
		return hub_refused(s, &name, err);
	is = head.revision;
	/* A Hub shows to everybody what a gated repository lists. Its files are for who has
	 * accepted its terms, and here so is all of it. */
	is_closed_to_some = is_gated(head.about);
	if (is_closed_to_some && team_id[0] == '\0')
		return gated(&name, err);
	fmt_fixed(commit, HUB_COMMIT_HEX + 1, "%s", is);
	if (find_kept(app, team_id, v, is, &kept, err) < 0)
		return -1;
	if (is_closed_to_some && admits(app, team_id, v, is, s, err) < 0)
		return hub_refused(s, &name, err);
	if (kept)
		return 0;
	if (source_list(s, a, &all, is, &listing, err) < 0)
		return hub_refused(s, &name, err);
	if (is_closed_to_some && source_admits(s, listing.file[listing.n - 1].path, err) < 0)
		return hub_refused(s, &name, err);
	return listing_of(v, &listing, head.about != NULL ? head.about : "{}", a, &l, err) < 0
	               ? -1
	               : hub_repo_add(app, team_id, &l, err);
}

static int note_rev(struct app *app, const char *team_id, const struct hub_rev *v,
                    const char *commit, struct err *err)
{
	char repo[HUB_REPO_CAP];
	struct model_hub_rev row = {.team_id = team_id,
	                            .repo = repo,
	                            .rev = v->rev,
	                            .commit = commit,
	                            .checked_ms = clock_wall_ms()};

	hub_repo_name(v->type, v->id, repo);
	return meta_hub_rev_put(app->meta, &row, err);
}

/* What it was is not the team's any more. */
static void forget_rev(struct app *app, const struct hub_rev *v)
{
	char repo[HUB_REPO_CAP];
	struct err err = {0};

	hub_repo_name(v->type, v->id, repo);
	if (v->team_id[0] != '\0' &&
	    meta_hub_rev_del(app->meta, v->team_id, repo, v->rev, &err) < 0)
		log_warn("hub: repository=%s %s", repo, err.msg);
}

/* What it was when the other Hub was asked last. */
static int find_stale(struct app *app, const char *team_id, const struct hub_rev *v,
                      char commit[HUB_COMMIT_HEX + 1], bool *found, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_hub_rev row = {.commit = v->rev};
	char repo[HUB_REPO_CAP];

	*found = false;
	hub_repo_name(v->type, v->id, repo);
	if (!hub_commit_ok(str_of(v->rev)) &&
	    meta_hub_rev(app->meta, a, team_id, repo, v->rev, &row, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	fmt_fixed(commit, HUB_COMMIT_HEX + 1, "%s", row.commit);
	return find_kept(app, team_id, v, commit, found, err);
}

struct answer_of {
	char commit[HUB_COMMIT_HEX + 1];
	const char *owner;
	bool stale;
};

static bool has_secret(struct app *app, const char *team_id)
{
	struct buf secret = BUF_INIT(SEAL_VALUE_MAX);
	struct err ignored = {0};
	bool has =
		team_id[0] != '\0' && secret_open(app, team_id, HUB_SECRET, &secret, &ignored) == 0;

	seal_wipe_buf(&secret);
	return has;
}

/* The other Hub cannot say: is anything kept? */
static bool fall_back(struct app *app, const struct hub_rev *v, struct answer_of *out)
{
	const char *const teams[] = {"", v->team_id};

	for (size_t i = 0; i < COUNT(teams); i++) {
		struct err err = {0};
		bool found = false;

		/* a right that was taken away does not come back when the other Hub is away */
		if (teams[i][0] != '\0' && (v->refused || !has_secret(app, teams[i])))
			continue;
		if (find_stale(app, teams[i], v, out->commit, &found, &err) < 0)
			log_warn("hub: repository=%s %s", v->id, err.msg);
		if (!found)
			continue;
		out->owner = teams[i];
		out->stale = true;
		return true;
	}
	return false;
}

static int find_out(struct app *app, const struct hub_rev *v, struct answer_of *out,
                    struct err *err)
{
	bool kept = false;
	int rc;

	/* What anybody may read of a commit does not change. */
	if (hub_commit_ok(str_of(v->rev))) {
		out->owner = "";
		FMT(out->commit, "%s", v->rev);
		if (find_kept(app, "", v, v->rev, &kept, err) < 0)
			return -1;
		if (kept)
			return 0;
	}
	out->owner = "";
	rc = ask_upstream(app, "", v, out->commit, err);
	if (rc < 0 && is_closed(err) && has_secret(app, v->team_id)) {
		err_clear(err);
		out->owner = v->team_id;
		rc = ask_upstream(app, v->team_id, v, out->commit, err);
	}
	if (rc == 0)
		return is_commit(v->rev, out->commit) && out->owner[0] == '\0'
		               ? 0
		               : note_rev(app, out->owner, v, out->commit, err);
	/* A refusal is one; anything else says nothing of the repository. */
	if (is_closed(err))
		forget_rev(app, v);
	if (is_closed(err) || err->code == ERR_NOT_FOUND || !fall_back(app, v, out))
		return -1;
	log_info("hub: repository=%s rev=%s as it was: %s", v->id, v->rev, err->msg);
	err_clear(err);
	return 0;
}

/* ---- branches ------------------------------------------------------------------------------ */

static struct hub_branch *branches(struct arena *a, const struct doc *list, size_t *n)
{
	struct hub_branch *out;
	size_t most = 0;

	DOC_EACH (x, list)
		most += x != NULL;
	most = MIN(most, (size_t)REFS_MAX);
	out = ARENA_ARRAY(a, struct hub_branch, most + 1);
	*n = 0;
	DOC_EACH (x, list) {
		struct str name = doc_text(doc_get(x, "name"));
		struct str commit = doc_text(doc_get(x, "targetCommit"));

		if (*n < most && hub_rev_ok(name) && hub_commit_ok(commit))
			out[(*n)++] =
				(struct hub_branch){arena_strz(a, name), arena_strz(a, commit)};
	}
	return out;
}

static int refs_upstream(struct app *app, const char *team_id, const struct hub_rev *v,
                         struct arena *a, struct hub_refs *out, struct err *err)
{
	AUTO_ARENA struct arena *tmp = arena_new();
	AUTO_SOURCE struct source *s = NULL;
	const struct doc *doc;

	if (hub_source(app, team_id, v->type, v->id, "main", &s, err) < 0)
		return -1;
	if (source_refs(s, tmp, &doc, err) < 0)
		return hub_refused(s, &(struct hub_name){v->type, v->id, "main"}, err);
	out->branch = branches(a, doc_get(doc, "branches"), &out->n_branches);
	out->tag = branches(a, doc_get(doc, "tags"), &out->n_tags);
	return 0;
}

/* Those that somebody has asked for. */
static bool refs_kept(struct app *app, const struct hub_rev *v, struct arena *a,
                      struct hub_refs *out)
{
	const char *const teams[] = {"", v->team_id};
	char repo[HUB_REPO_CAP];

	hub_repo_name(v->type, v->id, repo);
	for (size_t i = 0; i < COUNT(teams); i++) {
		struct model_hub_rev *rows = NULL;
		struct err err = {0};
		size_t n = 0;

		if (meta_hub_revs(app->meta, a, teams[i], repo, &rows, &n, &err) < 0 || n == 0)
			continue;
		out->branch = ARENA_ARRAY(a, struct hub_branch, n + 1);
		for (size_t k = 0; k < n; k++)
			if (!hub_commit_ok(str_of(rows[k].rev)))
				out->branch[out->n_branches++] =
					(struct hub_branch){rows[k].rev, rows[k].commit};
		return true;
	}
	return false;
}

static int find_refs(struct app *app, const struct hub_rev *v, struct arena *a,
                     struct hub_refs *out, struct err *err)
{
	int rc = refs_upstream(app, "", v, a, out, err);

	if (rc < 0 && is_closed(err) && has_secret(app, v->team_id)) {
		err_clear(err);
		rc = refs_upstream(app, v->team_id, v, a, out, err);
	}
	if (rc == 0 || is_closed(err) || err->code == ERR_NOT_FOUND || !refs_kept(app, v, a, out))
		return rc;
	err_clear(err);
	return 0;
}

/* ---- in the background --------------------------------------------------------------------- */

static uint64_t channel_of(const struct hub_rev *v)
{
	const struct hub_name name = {v->type, v->id, v->rev[0] != '\0' ? v->rev : NULL};

	return hub_channel(&name);
}

/* With the lock: what was found, for this team, and for anybody if it is so. */
static void store(struct hub_rev *v, const struct answer_of *x, bool stale)
{
	int64_t now = now_ms(), ttl = (int64_t)v->app->set.hub_ttl * 1000;

	FMT(v->commit, "%s", x->commit);
	FMT(v->owner, "%s", x->owner);
	v->checked_ms = now;
	if (stale) /* it is asked again soon */
		v->checked_ms = MAX((int64_t)CLOCK_BEGAN, now - MAX((int64_t)0, ttl - STALE_MS));
	v->failed_ms = 0;
	v->refused = false;
	err_clear(&v->err);
}

/* From here on v is whose it is: one that does not run may be dropped. */
static void finish(struct hub_rev *v, const struct answer_of *x, struct arena *refs_in,
                   const struct hub_refs *refs, const struct err *err)
{
	struct hub *h = v->app->hub;

	lock_take(&h->lock);
	if (err->code != ERR_NONE) {
		v->err = *err;
		v->failed_ms = now_ms();
		v->checked_ms = 0;
		if (is_closed(err)) {
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
		store(v, x, x->stale);
		if (x->owner[0] == '\0' && v->team_id[0] != '\0') {
			const struct hub_name name = {v->type, v->id, v->rev};
			struct hub_rev *all = rev_at(v->app, "", &name, true);

			if (!all->running)
				store(all, x, x->stale);
		}
	}
	v->running = false;
	lock_give(&h->lock);
}

/* What it was, for who does not want to wait. */
static void recall(struct hub_rev *v)
{
	struct app *app = v->app;
	struct answer_of x = {.owner = ""};
	bool known;

	lock_take(&app->hub->lock);
	known = v->commit[0] != '\0';
	lock_give(&app->hub->lock);
	if (known || !fall_back(app, v, &x))
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
	struct answer_of x = {.owner = ""};
	struct hub_refs refs = {0};
	struct arena *a = NULL;
	uint64_t channel = channel_of(v);
	struct httpd *http;
	struct err err = {0};
	int rc;

	if (atomic_load(&app->hub->cancel)) {
		rc = err_set(&err, ERR_CANCELED, "the server is shutting down");
	} else if (v->rev[0] != '\0') {
		recall(v);
		rc = find_out(app, v, &x, &err);
	} else {
		a = arena_new();
		rc = find_refs(app, v, a, &refs, &err);
	}
	assert((rc == 0) == (err.code == ERR_NONE));
	if (rc < 0)
		blame_upstream(&err);
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
	if (workers_submit(h->asks, ask_run, v, err) == 0)
		return 0;
	v->running = false;
	return -1;
}

/* ---- operations ---------------------------------------------------------------------------- */

static int team_of(const struct ask *ask, const char **team_id, struct err *err)
{
	if (!hub_is_on(ask->app))
		return err_set(err, ERR_UNSUPPORTED,
		               "this server mirrors no Hub: it was started with --hub-upstream "
		               "off");
	return ctx_team(ask, NULL, team_id, err);
}

/* With the lock: *out when it is known, as anybody or as this team sees it. */
static bool find_open(struct app *app, const char *team_id, const struct hub_name *name, bool again,
                      const struct hub_listing **out)
{
	const char *const teams[] = {"", team_id};
	struct hub *h = app->hub;

	for (size_t i = 0; i < COUNT(teams); i++) {
		struct hub_rev *v = rev_at(app, teams[i], name, false);
		struct hub_repo *r;

		if (v == NULL || !is_fresh(v, again))
			continue;
		r = hub_repo_find(h, v->owner, name->type, name->id, v->commit);
		if (r == NULL) {
			v->checked_ms = 0; /* it has left memory */
			continue;
		}
		hub_repo_hold(h, r);
		*out = &r->l;
		return true;
	}
	return false;
}

/* With the lock: what it was, when the other Hub takes its time to say what it is. */
static bool find_slow(struct app *app, struct hub_rev *v, const struct hub_listing **out)
{
	struct hub *h = app->hub;
	struct hub_repo *r;

	if (!v->running || v->commit[0] == '\0' || now_ms() - v->began_ms < SLOW_MS)
		return false;
	r = hub_repo_find(h, v->owner, v->type, v->id, v->commit);
	if (r == NULL)
		return false;
	hub_repo_hold(h, r);
	*out = &r->l;
	return true;
}

static int open_repo(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_listing **out, struct err *err)
{
	struct app *app = ask->app;
	const char *team_id;
	struct hub_rev *v;
	int rc = 0;

	assert(hub_id_ok(str_of(name->id)) && hub_rev_ok(str_of(name->rev)));
	*out = NULL;
	if (team_of(ask, &team_id, err) < 0)
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

static void close_repo(struct app *app, const struct hub_listing *l)
{
	if (l == NULL)
		return;
	lock_take(&app->hub->lock);
	hub_repo_drop(app->hub, hub_repo_of(l));
	lock_give(&app->hub->lock);
}

static struct hub_branch *copy_branches(struct arena *a, const struct hub_branch *from, size_t n)
{
	struct hub_branch *to = ARENA_ARRAY(a, struct hub_branch, n + 1);

	for (size_t i = 0; i < n; i++)
		to[i] = (struct hub_branch){arena_cstr(a, from[i].name),
		                            arena_cstr(a, from[i].commit)};
	return to;
}

static int list_refs(const struct ask *ask, const struct hub_name *name, bool again,
                     const struct hub_refs **out, struct err *err)
{
	struct app *app = ask->app;
	const char *team_id;
	struct hub_refs *refs;
	struct hub_rev *v;
	int rc = 0;

	*out = NULL;
	if (team_of(ask, &team_id, err) < 0)
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

/* ---- what is kept, for people -------------------------------------------------------------- */

/* Short, and the same as long as the repository is kept. */
static const char *id_of(struct arena *a, const struct model_ref *ref)
{
	const char *text = arena_printf(a, "%s\n%s", ref->team_id, ref->name);
	struct digest d = hash_sha256(text, strlen(text));
	char hex[HASH_HEX_CAP];

	digest_hex(&d, hex);
	return arena_printf(a, "%.10s", hex);
}

static struct model_mirror row_of(struct arena *a, const struct model_ref *ref)
{
	const char *at = strrchr(ref->name, '@'), *models = hub_type_word(HUB_MODELS);
	struct str repo = str_n(ref->name, at != NULL ? (size_t)(at - ref->name) : 0);

	if (str_starts(repo, models)) /* hf:// takes it for granted */
		repo = str_skip(repo, strlen(models) + 1);
	return (struct model_mirror){.id = id_of(a, ref),
	                             .team_id = ref->team_id[0] != '\0' ? ref->team_id : NULL,
	                             .source = arena_printf(a, "hf://%.*s", STR_ARG(repo)),
	                             .revision = at != NULL ? at + 1 : NULL,
	                             .filter_json = "{}",
	                             .manifest = ref->manifest,
	                             .state = MIRROR_READY,
	                             .bytes_total = ref->bytes,
	                             .bytes_done = ref->bytes,
	                             .files_total = ref->files,
	                             .files_done = ref->files,
	                             .created_ms = ref->created_ms,
	                             .used_ms = ref->used_ms};
}

int hub_list(struct app *app, struct arena *a, const char *team_id, struct model_mirror **out,
             size_t *n, struct err *err)
{
	struct model_ref *all = NULL;
	size_t n_all = 0;

	if (meta_refs(app->meta, a, NULL, META_REF_HUB, &all, &n_all, err) < 0)
		return -1;
	*out = ARENA_ARRAY(a, struct model_mirror, n_all + 1);
	*n = 0;
	for (size_t i = 0; i < n_all; i++)
		if (team_id == NULL || all[i].team_id[0] == '\0' ||
		    strcmp(all[i].team_id, team_id) == 0)
			(*out)[(*n)++] = row_of(a, &all[i]);
	return 0;
}

int hub_remove(const struct ask *ask, const char *id, struct model_mirror *out, struct err *err)
{
	const char *team_id = ask->principal->team_id;
	struct app *app = ask->app;
	struct model_ref *all = NULL;
	size_t n = 0;

	if (meta_refs(app->meta, ask->a, NULL, META_REF_HUB, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		const char *owner = all[i].team_id;
		bool is_all = owner[0] == '\0';

		if (strcmp(id_of(ask->a, &all[i]), id) != 0 ||
		    (!is_all && team_id != NULL && strcmp(owner, team_id) != 0))
			continue;
		if ((is_all && ctx_need_all(ask, err) < 0) ||
		    meta_ref_del(app->meta, owner, META_REF_HUB, all[i].name, err) < 0)
			return -1;
		hub_repo_forget(app, owner, all[i].name);
		*out = row_of(ask->a, &all[i]);
		return 0;
	}
	return err_missing(err, ERR_WEIGHTS_NOT_FOUND);
}

/* ---- its life ------------------------------------------------------------------------------ */

struct slow {
	struct hub_name name[ASKS];
	size_t n;
	struct arena *a;
};

static void note_slow(struct str key UNUSED, void *value, void *arg)
{
	struct hub_rev *v = FROM_VOID(struct hub_rev, value, HUB_REV_MAGIC);
	struct slow *s = arg;

	if (!v->running || v->told_slow || v->commit[0] == '\0' || s->n == ASKS ||
	    now_ms() - v->began_ms < SLOW_MS)
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
	struct slow s = {.a = a};

	lock_take(&app->hub->lock);
	map_each(app->hub->revs, note_slow, &s);
	lock_give(&app->hub->lock);
	for (size_t i = 0; i < s.n && http != NULL; i++)
		httpd_notify(http, hub_channel(&s.name[i]));
}

static void keeper_pass(struct app *app)
{
	wake_slow(app);
	hub_pulls_sweep(app);
	hub_repos_keep(app);
}

void hub_start(struct app *app)
{
	struct hub *h = xcalloc(1, sizeof(*h));

	lock_init(&h->lock, LOCK_HUB);
	TAILQ_INIT(&h->repos);
	h->repo_by_name = map_new();
	h->revs = map_new();
	h->pulls = map_new();
	app->hub = h;
	if (!hub_is_on(app))
		return;
	h->asks = workers_new(ASKS, ASKS_QUEUE_MAX, "hub");
	h->fetches = workers_new(FETCHES, FETCHES_QUEUE_MAX, "hub-fetch");
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
	h->asks = h->fetches = NULL;
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
	lock_done(&h->lock);
	free(h);
	app->hub = NULL;
}
