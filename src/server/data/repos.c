/* repos.c - see repos.h: names, rights and revisions. */
#include "server/data/repos.h"

#include "server/api/ctx.h"

#define NAMES_MAX 50000
#define SHORT_MIN 4 /* digits of a commit's id, as git has it */

/* ---- what is known of names ---------------------------------------------------------------- */

struct known_name {
	struct model_repo repo; /* id NULL: there is none */
	bool moved;
	const char *commit; /* of a revision; NULL: there is none */
};

struct repo_names {
	struct arena *a;
	struct map *at;   /* "name KEY" and "rev ID REV": known_name */
	uint64_t changes; /* what was read before the last one is not noted */
};

static void names_clear(struct repo_names *n)
{
	arena_free(n->a);
	map_free(n->at);
	n->a = arena_new();
	n->at = map_new();
}

void repos_start(struct hub *h)
{
	h->names = xcalloc(1, sizeof(*h->names));
	names_clear(h->names);
	lock_init(&h->upload_lock, LOCK_REPO_UPLOAD);
	cond_init(&h->written);
	h->uploads = map_new();
	h->lost = map_new();
	for (size_t i = 0; i < COUNT(h->commits); i++)
		lock_init(&h->commits[i], LOCK_REPO_COMMIT);
}

void repos_free(struct hub *h)
{
	for (size_t i = 0; i < COUNT(h->commits); i++)
		lock_done(&h->commits[i]);
	assert(map_count(h->uploads) == 0);
	map_free(h->uploads);
	map_free(h->lost);
	cond_done(&h->written);
	lock_done(&h->upload_lock);
	arena_free(h->names->a);
	map_free(h->names->at);
	free(h->names);
}

void repo_changed(struct app *app)
{
	struct hub *h = app->hub;

	lock_take(&h->lock);
	h->names->changes++;
	names_clear(h->names);
	lock_give(&h->lock);
}

static struct model_repo copy_repo(struct arena *a, const struct model_repo *r)
{
	struct model_repo c = *r;

	if (r->id == NULL)
		return c;
	c.id = arena_cstr(a, r->id);
	c.team_id = arena_cstr(a, r->team_id);
	c.type = arena_cstr(a, r->type);
	c.owner = arena_cstr(a, r->owner);
	c.name = arena_cstr(a, r->name);
	return c;
}

/* False: it has to be looked up; *changes says as of when. */
static bool recall(struct app *app, struct arena *a, const char *key, struct known_name *out,
                   uint64_t *changes)
{
	struct hub *h = app->hub;
	const struct known_name *k;

	lock_take(&h->lock);
	k = map_get(h->names->at, str_of(key));
	*changes = h->names->changes;
	if (k != NULL) {
		*out = *k;
		out->repo = copy_repo(a, &k->repo);
		out->commit = k->commit != NULL ? arena_cstr(a, k->commit) : NULL;
	}
	lock_give(&h->lock);
	return k != NULL;
}

static void remember(struct app *app, const char *key, const struct known_name *is,
                     uint64_t changes)
{
	struct hub *h = app->hub;
	struct known_name *k;

	lock_take(&h->lock);
	if (h->names->changes == changes) {
		if (map_count(h->names->at) >= NAMES_MAX)
			names_clear(h->names);
		k = ARENA_NEW(h->names->a, struct known_name);
		*k = *is;
		k->repo = copy_repo(h->names->a, &is->repo);
		k->commit = is->commit != NULL ? arena_cstr(h->names->a, is->commit) : NULL;
		(void)map_set(h->names->at, str_of(key), k);
	}
	lock_give(&h->lock);
}

static int find_name(struct app *app, struct arena *a, enum hub_type type, const char *id,
                     struct known_name *out, struct err *err)
{
	char repo[HUB_REPO_CAP], key[HUB_KEY_CAP];
	uint64_t changes;

	*out = (struct known_name){0};
	hub_repo_name(type, id, repo);
	FMT(key, "name %s", repo);
	if (recall(app, a, key, out, &changes))
		return 0;
	if (meta_repo_by_key(app->meta, a, repo, &out->repo, &out->moved, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		out->repo = (struct model_repo){0};
	}
	remember(app, key, out, changes);
	return 0;
}

int repo_find(struct app *app, struct arena *a, enum hub_type type, const char *id,
              struct model_repo *out, bool *moved, struct err *err)
{
	struct known_name k;

	if (find_name(app, a, type, id, &k, err) < 0)
		return -1;
	*out = k.repo;
	*moved = k.moved;
	return 0;
}

/* ---- rights -------------------------------------------------------------------------------- */

static bool is_team(const struct ask *ask, const struct model_repo *r)
{
	const char *team_id = ask->principal->team_id;

	return team_id == NULL || strcmp(team_id, r->team_id) == 0;
}

const char *repo_typed(struct arena *a, const char *typed, const char *user, enum hub_type *type)
{
	const char *whole;
	struct str id;

	if (!hub_typed_id(str_of(typed), type, &id))
		return NULL;
	whole = memchr(id.p, '/', id.n) != NULL ? arena_strz(a, id)
	                                        : arena_printf(a, "%s/%.*s", user, STR_ARG(id));
	return hub_id_ok(str_of(whole)) ? whole : NULL;
}

const char *repo_push_key(struct arena *a, const char *typed, const char *user)
{
	char key[HUB_REPO_CAP];
	enum hub_type type;
	const char *id = repo_typed(a, typed, user, &type);

	if (id == NULL)
		return "";
	hub_repo_name(type, id, key);
	return arena_cstr(a, key);
}

bool repo_names(const struct job_rights *job, const char *key)
{
	for (size_t i = 0; i < job->n_push; i++)
		if (strcmp(job->push[i], key) == 0)
			return true;
	return false;
}

/* Does the file of the job that asks name it? */
static bool is_named(const struct ask *ask, const struct model_repo *r)
{
	const char *key = arena_printf(ask->a, "%s/%s/%s", r->type, r->owner, r->name);

	return repo_names(ask->principal->job, hub_lower(ask->a, key));
}

/* Its user, or an administrator, who could make a token of that name. Who pushed a job has given it
 * what its file names. */
static bool is_own(const struct ask *ask, const struct model_repo *r)
{
	if (ask->principal->job != NULL)
		return is_team(ask, r) && (!r->of_user || is_named(ask, r));
	return is_team(ask, r) && (!r->of_user || ask->principal->role >= ROLE_ADMIN ||
	                           strcasecmp(ask->principal->name, r->owner) == 0);
}

int repo_not_named(const struct ask *ask, enum hub_type type, const char *owner, const char *name,
                   struct err *err)
{
	return err_set(err, ERR_ROLE_REQUIRED,
	               "job %s may not push to %s%s/%s: runtime.hub.push in its file does not name "
	               "it",
	               ask->principal->job->job_id, hub_type_prefix(type), owner, name);
}

bool repo_may(const struct ask *ask, const struct model_repo *r, enum repo_right right)
{
	if (right == REPO_READ)
		return !r->is_private || is_own(ask, r);
	if (ask->principal->job != NULL)
		return is_team(ask, r) && is_named(ask, r);
	return is_own(ask, r) && ask->principal->role >= ROLE_MEMBER &&
	       ask->principal->attempt_id == NULL;
}

int repo_look(const struct ask *ask, enum hub_type type, const char *id, enum repo_found *how,
              struct model_repo *out, bool *moved, struct err *err)
{
	struct known_name k;

	*how = REPO_NONE;
	if (find_name(ask->app, ask->a, type, id, &k, err) < 0)
		return -1;
	if (k.repo.id == NULL || !repo_may(ask, &k.repo, REPO_READ))
		return 0;
	*how = k.repo.of_user && !is_team(ask, &k.repo) ? REPO_LAST : REPO_FIRST;
	*out = k.repo;
	*moved = k.moved;
	return 0;
}

int repo_writer(const struct ask *ask, struct err *err)
{
	return ask->principal->job != NULL ? 0 : ctx_need(ask, ROLE_MEMBER, err);
}

/* Was it renamed while the job ran, whose file names what it was called? It stays in the team, and
 * in a namespace that the job's user writes to. */
static bool is_named_before(const struct ask *ask, enum hub_type type, const char *id,
                            const struct known_name *k)
{
	const struct job_rights *job = ask->principal->job;
	char was[HUB_REPO_CAP];

	if (job == NULL || !k->moved || !is_team(ask, &k->repo))
		return false;
	hub_repo_name(type, id, was);
	return repo_names(job, was) &&
	       (!k->repo.of_user || strcasecmp(ask->principal->name, k->repo.owner) == 0);
}

int repo_to_write(const struct ask *ask, enum hub_type type, const char *id, struct model_repo *out,
                  struct err *err)
{
	struct known_name k;

	if (repo_writer(ask, err) < 0 || find_name(ask->app, ask->a, type, id, &k, err) < 0)
		return -1;
	if (k.repo.id != NULL && is_named_before(ask, type, id, &k)) {
		*out = k.repo;
		return 0;
	}
	if (k.repo.id == NULL || !repo_may(ask, &k.repo, REPO_READ))
		return err_set(err, ERR_HUB_REPO_NOT_FOUND, "there is no repository %s to write to",
		               id);
	if (!repo_may(ask, &k.repo, REPO_WRITE) && ask->principal->job != NULL)
		return repo_not_named(ask, type, k.repo.owner, k.repo.name, err);
	if (!repo_may(ask, &k.repo, REPO_WRITE))
		return err_set(err, ERR_ROLE_REQUIRED,
		               "token \"%s\" may read %s/%s, not write to it", ask->principal->name,
		               k.repo.owner, k.repo.name);
	*out = k.repo;
	return 0;
}

/* ---- revisions ----------------------------------------------------------------------------- */

static const struct {
	const char *prefix;
	enum model_repo_ref_kind kind;
} places[] = {
	{"refs/heads/", REPO_BRANCH},
	{"refs/tags/", REPO_TAG},
	{"refs/pr/", REPO_PULL},
	{"", REPO_BRANCH},
	{"", REPO_TAG},
};

/* The beginning of a commit's id, as people copy it. */
static bool is_short(const char *rev)
{
	size_t n = strlen(rev);

	return n >= SHORT_MIN && n < HUB_COMMIT_HEX && strspn(rev, "0123456789abcdef") == n;
}

static int look_rev(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                    const char **out, struct err *err)
{
	struct model_repo_commit c;
	struct model_repo_ref ref;

	if (hub_commit_ok(str_of(rev))) {
		if (meta_repo_commit_find(app->meta, a, r->id, rev, &c, err) < 0)
			return -1;
		*out = c.commit;
		return 0;
	}
	for (size_t i = 0; i < COUNT(places); i++) {
		size_t n = strlen(places[i].prefix);

		if (strncmp(rev, places[i].prefix, n) != 0)
			continue;
		err_clear(err);
		if (meta_repo_ref(app->meta, a, r->id, places[i].kind, rev + n, &ref, err) == 0) {
			*out = ref.commit;
			return 0;
		}
		if (err->code != ERR_NOT_FOUND)
			return -1;
	}
	if (!is_short(rev))
		return -1;
	err_clear(err);
	if (meta_repo_commit_begins(app->meta, a, r->id, rev, &c, err) < 0)
		return -1;
	*out = c.commit;
	return 0;
}

int repo_commit_of(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                   const char **out, struct err *err)
{
	struct known_name k = {0};
	char key[HUB_KEY_CAP];
	uint64_t changes;

	FMT(key, "rev %s %s", r->id, rev);
	if (!recall(app, a, key, &k, &changes)) {
		if (look_rev(app, a, r, rev, &k.commit, err) < 0) {
			if (err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err);
			k.commit = NULL;
		}
		remember(app, key, &k, changes);
	}
	*out = k.commit;
	if (k.commit != NULL)
		return 0;
	return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s/%s has no revision %s", r->owner,
	               r->name, rev);
}

int repo_open(struct app *app, const struct model_repo *r, const char *commit,
              struct hub_repo **out, struct err *err)
{
	struct hub *h = app->hub;

	for (unsigned tries = 0; tries < 3; tries++) {
		lock_take(&h->lock);
		*out = hub_own_find(h, r, commit);
		if (*out != NULL)
			hub_repo_hold(h, *out);
		lock_give(&h->lock);
		if (*out != NULL)
			return 0;
		if (hub_own_load(app, r, commit, err) < 0)
			return -1;
	}
	return err_set(err, ERR_UNAVAILABLE,
	               "there is too little memory for the list of files of "
	               "%s/%s just now",
	               r->owner, r->name);
}

int repo_open_at(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                 const struct hub_listing **out, struct err *err)
{
	struct hub_repo *files = NULL;
	const char *commit;

	if (repo_commit_of(app, a, r, rev, &commit, err) < 0 ||
	    repo_open(app, r, commit, &files, err) < 0)
		return -1;
	*out = &files->l;
	return 0;
}

void repo_close(struct app *app, struct hub_repo *r)
{
	struct hub *h = app->hub;

	if (r == NULL)
		return;
	lock_take(&h->lock);
	hub_repo_drop(h, r);
	lock_give(&h->lock);
}

int repo_make(struct app *app, const struct repo_making *m, struct blob_pins *pins,
              struct repo_made *out, struct err *err)
{
	const struct hub_commit *git = m->git;
	char *id = arena_alloc(m->a, HUB_COMMIT_HEX + 1);
	struct hub_own_files files = {
		.a = m->a, .l = m->l, .sha256 = m->sha256, .fresh = m->fresh, .base = m->base};
	struct manifest none;

	manifest_init(&none, m->a);
	if (files.fresh == NULL)
		files.fresh = &none;
	if (!m->finished && hub_listing_finish(m->l, m->a, err) < 0)
		return -1;
	hub_commit_id(m->l, git, id);
	m->l->commit = id;
	m->l->about = repo_about(app, m);
	out->row = (struct model_repo_commit){.repo_id = m->repo->id,
	                                      .commit = id,
	                                      .parent = git->parent,
	                                      .title = git->title,
	                                      .message = git->message,
	                                      .author = git->author,
	                                      .ms = git->ms};
	if (hub_own_store(app, m->repo, &files, pins, &out->files, err) < 0)
		return -1;
	out->list_bytes = HUB_LIST_COUNTS * files.list_bytes;
	out->own = files;
	return 0;
}
