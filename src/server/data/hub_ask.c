/*
 * hub_ask.c - what the other Hub says of a revision and of branches: as it shows them to anybody,
 * else to the team's token; and what it said, where it cannot be asked.
 */
#include "server/data/hub_impl.h"

#include "base/json.h"
#include "server/api/secrets.h"

#define PATIENCE_S 5   /* no thread sits longer out what a Hub that is busy asks for */
#define REFS_MAX 10000 /* branches, or tags, that are shown */

/* A branch may look like a commit: it is none when the other Hub says another one. */
bool hub_is_commit(const char *rev, const char *commit)
{
	return hub_commit_ok(str_of(rev)) && strcasecmp(rev, commit) == 0;
}

int hub_source(struct app *app, const char *team_id, enum hub_type type, const char *id,
               const char *rev, int64_t ask_until_ms, struct source **out, struct err *err)
{
	AUTO_BUF struct buf url = BUF_INIT(HUB_SOURCE_CAP);
	struct buf secret = BUF_INIT(SEAL_VALUE_MAX);
	struct source_options o = {.client = app->upstream,
	                           .hf_endpoint = app->set.hub_upstream,
	                           .cancel = &app->hub->cancel,
	                           .retry_after_max_s = PATIENCE_S,
	                           .ask_until_ms = ask_until_ms,
	                           .about = true,
	                           .may_be_empty = true};
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
void hub_blame_upstream(struct err *err)
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
bool hub_is_closed(const struct err *err)
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

	if (hub_source(app, team_id, v->type, v->id, v->rev, v->until_ms, &s, err) < 0)
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
	if (is_closed_to_some && listing.n > 0 &&
	    source_admits(s, listing.file[listing.n - 1].path, err) < 0)
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
bool hub_find_stale(struct app *app, const struct hub_rev *v, struct hub_answer *out)
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

int hub_find_out(struct app *app, const struct hub_rev *v, struct hub_answer *out, struct err *err)
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
	if (rc < 0 && hub_is_closed(err) && has_secret(app, v->team_id)) {
		err_clear(err);
		out->owner = v->team_id;
		rc = ask_upstream(app, v->team_id, v, out->commit, err);
	}
	if (rc == 0)
		return hub_is_commit(v->rev, out->commit) && out->owner[0] == '\0'
		               ? 0
		               : note_rev(app, out->owner, v, out->commit, err);
	/* A refusal is one; anything else says nothing of the repository. */
	if (hub_is_closed(err))
		forget_rev(app, v);
	if (hub_is_closed(err) || err->code == ERR_NOT_FOUND || !hub_find_stale(app, v, out))
		return -1;
	log_info("hub: repository=%s rev=%s as it was: %s", v->id, v->rev, err->msg);
	err_clear(err);
	return 0;
}

/* ---- branches ------------------------------------------------------------------------------ */

static struct hub_branch *branches(struct arena *a, const struct doc *list, size_t *n)
{
	size_t most = MIN(doc_is(list, DOC_LIST) ? list->count : 0, (size_t)REFS_MAX);
	struct hub_branch *out = ARENA_ARRAY(a, struct hub_branch, most + 1);

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

	if (hub_source(app, team_id, v->type, v->id, "main", v->until_ms, &s, err) < 0)
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

int hub_find_refs(struct app *app, const struct hub_rev *v, struct arena *a, struct hub_refs *out,
                  struct err *err)
{
	int rc = refs_upstream(app, "", v, a, out, err);

	if (rc < 0 && hub_is_closed(err) && has_secret(app, v->team_id)) {
		err_clear(err);
		rc = refs_upstream(app, v->team_id, v, a, out, err);
	}
	if (rc == 0 || hub_is_closed(err) || err->code == ERR_NOT_FOUND ||
	    !refs_kept(app, v, a, out))
		return rc;
	err_clear(err);
	return 0;
}
