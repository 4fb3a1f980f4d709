/* fetch_own.c - see fetch_own.h. */
#include "server/data/fetch_own.h"

#include "server/data/repos.h"

/* Has this source the form of one of ours? A job that names an endpoint means that Hub alone. */
static bool may_be_own(struct arena *a, const struct spec_weights *w, struct source_hf_name *out)
{
	struct err no = {0};

	return w->endpoint == NULL && str_starts(str_of(w->source), "hf://") &&
	       source_hf_name(a, str_of(w->source), out, &no) == 0 && strchr(out->id, '/') != NULL;
}

/* The caller, as one of the team that the job is of. */
static struct ask *in_team(const struct ask *ask, const char *team_id)
{
	struct principal *who = ARENA_NEW(ask->a, struct principal);
	struct ask *as = ARENA_NEW(ask->a, struct ask);

	*who = *ask->principal;
	who->team_id = team_id;
	*as = (struct ask){ask->app, who, ask->a};
	return as;
}

int fetch_own_find(const struct ask *ask, const char *team_id, const struct spec_weights *w,
                   struct fetch_own *out, struct err *err)
{
	struct source_hf_name name = {0};
	struct model_repo r;
	enum repo_found how;
	const char *commit;
	bool moved;

	*out = (struct fetch_own){0};
	if (!may_be_own(ask->a, w, &name))
		return 0;
	if (repo_look(in_team(ask, team_id), name.type, name.id, &how, &r, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return 0;
	out->repo_id = r.id;
	out->last = how == REPO_LAST && hub_is_on(ask->app) &&
	            !settings_is_off(ask->app->set.hf_endpoint);
	return out->last ? 0 : repo_commit_of(ask->app, ask->a, &r, name.rev, &commit, err);
}

static int no_such(const char *source, struct err *err)
{
	return err_set(err, ERR_HUB_REPO_NOT_FOUND,
	               "%s: there is no such repository on this server's Hub any more; push a new "
	               "job to use what has this name now",
	               source);
}

int fetch_own_may(const struct ask *ask, const char *team_id, const char *source,
                  const char *repo_id, struct err *err)
{
	struct model_repo r = {0};

	if (meta_repo(ask->app->meta, ask->a, repo_id, &r, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return no_such(source, err);
	}
	return repo_may(in_team(ask, team_id), &r, REPO_READ) ? 0 : no_such(source, err);
}

/* The path below the folder that is wanted; NULL: it is not there. */
static const char *below(const char *folder, const char *path)
{
	size_t n = strlen(folder);

	if (n == 0)
		return path;
	return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static int list(const struct hub_repo *files, const char *folder, const struct fetch_own_want *want,
                struct manifest *out, struct err *err)
{
	size_t seen = 0;

	for (size_t i = 0; i < files->l.n; i++) {
		const struct hub_file *f = &files->l.file[i];
		const char *path = below(folder, f->path);

		if (path == NULL)
			continue;
		seen++;
		if (!glob_wanted(want->filter, str_of(path)))
			continue;
		if (!files->is_here[i])
			return err_set(err, ERR_CORRUPT,
			               "%s: the store has lost \"%s\": upload the file again",
			               want->source, f->path);
		if (manifest_add(out, str_of(path), f->size, &files->sha256[i], err) < 0)
			return err_wrap(err, "%s", want->source);
	}
	if (seen == 0)
		return err_set(err, ERR_SOURCE_NOT_FOUND,
		               "%s: the repository has no such folder at this revision",
		               want->source);
	if (out->n == 0)
		return err_set(err, ERR_SOURCE_EMPTY,
		               "%s: allow_patterns and ignore_patterns leave none of its %zu files",
		               want->source, seen);
	return manifest_finish(out, err) < 0 ? err_wrap(err, "%s", want->source) : 0;
}

/* What the Hub says of a revision, as a source. */
static int as_source(const char *source, struct err *err)
{
	if (err->id == ERR_HUB_REVISION_NOT_FOUND)
		err_become(err, ERR_SOURCE_NOT_FOUND);
	return err_wrap(err, "%s", source);
}

int fetch_own_list(struct app *app, struct arena *a, const struct fetch_own_want *want,
                   const char **commit, struct manifest *out, struct err *err)
{
	struct source_hf_name name = {0};
	struct hub_repo *files = NULL;
	struct model_repo r = {0};
	const char *rev;
	int rc;

	if (source_hf_name(a, str_of(want->source), &name, err) < 0)
		return -1;
	if (meta_repo(app->meta, a, want->repo_id, &r, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	if (r.id == NULL || (r.is_private && strcmp(r.team_id, want->team_id) != 0)) {
		(void)no_such(want->source, err);
		err_become(err, ERR_SOURCE_NOT_FOUND);
		return -1;
	}
	rev = want->revision != NULL ? want->revision : name.rev;
	if (repo_commit_of(app, a, &r, rev, commit, err) < 0 ||
	    repo_open(app, &r, *commit, &files, err) < 0)
		return as_source(want->source, err);
	manifest_init(out, a);
	rc = list(files, name.folder, want, out, err);
	repo_close(app, files);
	return rc;
}
