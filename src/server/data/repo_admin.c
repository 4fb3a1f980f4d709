/* repo_admin.c - repositories as a whole: made, moved, listed, deleted; their branches and tags. */
#include "server/data/repos.h"

#include "base/json.h"
#include "server/api/ctx.h"
#include "store/blobs/blob_git.h"

#define LIST_MAX 1000
#define MAIN "main"
#define FIRST_TITLE "initial commit"

/* What clients of git LFS expect to find, and a Hub makes: which names are large files. */
static const char attributes[] = "*.7z filter=lfs diff=lfs merge=lfs -text\n"
				 "*.arrow filter=lfs diff=lfs merge=lfs -text\n"
				 "*.bin filter=lfs diff=lfs merge=lfs -text\n"
				 "*.ckpt filter=lfs diff=lfs merge=lfs -text\n"
				 "*.gz filter=lfs diff=lfs merge=lfs -text\n"
				 "*.h5 filter=lfs diff=lfs merge=lfs -text\n"
				 "*.msgpack filter=lfs diff=lfs merge=lfs -text\n"
				 "*.neff filter=lfs diff=lfs merge=lfs -text\n"
				 "*.npy filter=lfs diff=lfs merge=lfs -text\n"
				 "*.npz filter=lfs diff=lfs merge=lfs -text\n"
				 "*.onnx filter=lfs diff=lfs merge=lfs -text\n"
				 "*.parquet filter=lfs diff=lfs merge=lfs -text\n"
				 "*.pickle filter=lfs diff=lfs merge=lfs -text\n"
				 "*.pkl filter=lfs diff=lfs merge=lfs -text\n"
				 "*.pt filter=lfs diff=lfs merge=lfs -text\n"
				 "*.pth filter=lfs diff=lfs merge=lfs -text\n"
				 "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
				 "*.tar filter=lfs diff=lfs merge=lfs -text\n"
				 "*.tgz filter=lfs diff=lfs merge=lfs -text\n"
				 "*.zip filter=lfs diff=lfs merge=lfs -text\n"
				 "*.zst filter=lfs diff=lfs merge=lfs -text\n";

/* ---- created ---------------------------------------------------------------------------- */

/* Whose namespace it is, and may the caller make repositories there? NULL: the token's own. */
static int namespace_of(const struct ask *ask, const char *asked, struct model_repo *r,
                        struct err *err)
{
	const struct principal *who = ask->principal;
	const char *owner = asked != NULL ? asked : who->name;
	struct model_team *team = NULL;
	size_t n = 0;

	if (hub_owner_is_type(str_of(owner)))
		return err_set(
			err, ERR_INVALID,
			"\"%s\" cannot be a namespace, as addresses of repositories of a type "
			"begin so: name another team, or use a token of another name",
			owner);
	if (meta_teams(ask->app->meta, ask->a, &team, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) { /* a token may have the name of a team */
		if (strcasecmp(team[i].name, owner) != 0)
			continue;
		if (who->team_id != NULL && strcmp(who->team_id, team[i].id) != 0)
			return err_set(err, ERR_ROLE_REQUIRED,
			               "%s is another team, and token \"%s\" may not create "
			               "repositories there",
			               owner, who->name);
		r->owner = team[i].name;
		r->team_id = team[i].id;
		return 0;
	}
	if (strcasecmp(owner, who->name) != 0)
		return err_set(err, ERR_ROLE_REQUIRED,
		               "token \"%s\" may create repositories in its own namespace, and in "
		               "that of its team, not in %s",
		               who->name, owner);
	if (!hub_part_ok(str_of(who->name)))
		return err_set(err, ERR_INVALID,
		               "\"%s\", the name of the token, cannot be a namespace: name a team, "
		               "or use a token whose name has letters, digits, - _ and . alone",
		               who->name);
	r->owner = who->name;
	r->of_user = true;
	return ctx_team(ask, NULL, &r->team_id, err);
}

int repo_may_give(const struct ask *ask, const char *team_id, const char *typed, struct err *err)
{
	struct principal in_team = *ask->principal;
	const struct ask as = {ask->app, &in_team, ask->a};
	struct model_repo r, fresh = {0};
	struct str name, owner;
	enum hub_type type;
	const char *id = repo_typed(ask->a, typed, ask->principal->name, &type);
	bool moved;

	in_team.team_id = team_id;
	if (id == NULL)
		return err_set(err, ERR_INVALID, "\"%s\" is no name of a repository%s", typed,
		               hub_typed_id(str_of(typed), &type, &name)
		                       ? " in a namespace that is called as your token: write "
		                         "OWNER/NAME"
		                       : "");
	id = hub_lower(ask->a, id);
	if (repo_find(ask->app, ask->a, type, id, &r, &moved, err) < 0)
		return -1;
	if (r.id != NULL && moved)
		return err_set(err, ERR_INVALID, "the repository is now %s%s/%s",
		               hub_type_prefix(type), r.owner, r.name);
	if (r.id != NULL && repo_may(&as, &r, REPO_WRITE))
		return 0;
	if (r.id != NULL && repo_may(&as, &r, REPO_READ)) /* else it is not there for the caller */
		return err_set(err, ERR_ROLE_REQUIRED, "token \"%s\" may not write to %s",
		               ask->principal->name, id);
	name = str_of(id);
	(void)str_cut(&name, '/', &owner);
	return namespace_of(&as, arena_strz(ask->a, owner), &fresh, err);
}

/* With what says which files are large. */
static int first_commit(const struct ask *ask, const struct model_repo *r, enum hub_type type,
                        struct blob_pins *pins, struct repo_made *out, struct err *err)
{
	struct app *app = ask->app;
	const struct hub_commit git = {.author = ask->principal->name,
	                               .title = FIRST_TITLE,
	                               .message = "",
	                               .ms = r->created_ms};
	struct hub_file *f = ARENA_NEW(ask->a, struct hub_file);
	struct hub_listing l = {.type = type,
	                        .id = arena_printf(ask->a, "%s/%s", r->owner, r->name),
	                        .file = f,
	                        .n = 1};
	struct digest sha256 = hash_sha256(attributes, sizeof(attributes) - 1);
	struct manifest fresh;

	*f = (struct hub_file){.path = ".gitattributes", .size = sizeof(attributes) - 1};
	hub_blob_id(STR_LIT(attributes), f->oid);
	manifest_init(&fresh, ask->a);
	blob_pins_add(pins, &sha256);
	if (blobs_put(app->blobs, STR_LIT(attributes), &sha256, err) < 0 ||
	    manifest_add(&fresh, STR_LIT(HUB_FILES ".gitattributes"), f->size, &sha256, err) < 0)
		return -1;
	blob_git_note(app->blobs, f->oid, &sha256);
	return repo_make(app,
	                 &(struct repo_making){.a = ask->a,
	                                       .repo = r,
	                                       .l = &l,
	                                       .sha256 = &sha256,
	                                       .fresh = &fresh,
	                                       .git = &git},
	                 pins, out, err);
}

/* ERR_HUB_REPO_EXISTS: *old is what has the name. */
static int may_take(const struct ask *ask, enum hub_type type, const struct model_repo *r,
                    const char *key, struct model_repo *old, struct err *err)
{
	bool moved;

	if (repo_find(ask->app, ask->a, type, strchr(key, '/') + 1, old, &moved, err) < 0)
		return -1;
	if (old->id != NULL && !moved)
		return err_set(err, ERR_HUB_REPO_EXISTS,
		               "You already created this %.*s repo: %s/%s",
		               (int)strlen(r->type) - 1, r->type, old->owner, old->name);
	if (ask->principal->job != NULL && !repo_names(ask->principal->job, key))
		return repo_not_named(ask, type, r->owner, r->name, err);
	return app_has_room(ask->app, err);
}

static int create_repo(const struct ask *ask, enum hub_type type, const char *owner,
                       const char *name, bool is_private, struct model_repo *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r = {.type = hub_type_word(type),
	                       .name = name,
	                       .is_private = is_private,
	                       .bytes = sizeof(attributes) - 1,
	                       .created_ms = clock_wall_ms()};
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	struct repo_made first;
	char key[HUB_REPO_CAP];

	if (repo_writer(ask, err) < 0 || namespace_of(ask, owner, &r, err) < 0)
		return -1;
	hub_repo_name(type, arena_printf(ask->a, "%s/%s", r.owner, name), key);
	if (may_take(ask, type, &r, key, out, err) < 0)
		return -1;
	r.id = app_id(ask->a, MODEL_ID_LEN);
	r.updated_ms = r.created_ms;
	if (first_commit(ask, &r, type, pins, &first, err) < 0)
		return -1;
	r.bytes += first.list_bytes;
	app_crash_at("repo:created");
	if (meta_repo_add(app->meta, &r, key, &first.row, &first.files, err) < 0)
		return -1;
	repo_changed(app);
	log_info("created: repository=%s id=%s by=%s", key, r.id, ask->principal->name);
	*out = r;
	return 0;
}

/* Nothing is read or written but rows: the commits of both name the same manifests. */
static int copy_repo(const struct ask *ask, const struct hub_name *from, const char *owner,
                     const char *name, const bool *is_private, struct model_repo *out,
                     struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r = {.type = hub_type_word(from->type), .name = name}, source;
	char key[HUB_REPO_CAP];
	enum repo_found how;
	bool moved;

	if (repo_writer(ask, err) < 0 ||
	    repo_look(ask, from->type, from->id, &how, &source, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "this server has no repository %s%s of its own, and duplicates no "
		               "other: download it, and upload it",
		               hub_type_prefix(from->type), from->id);
	if (namespace_of(ask, owner, &r, err) < 0)
		return -1;
	hub_repo_name(from->type, arena_printf(ask->a, "%s/%s", r.owner, name), key);
	if (may_take(ask, from->type, &r, key, out, err) < 0)
		return -1;
	r.id = app_id(ask->a, MODEL_ID_LEN);
	r.is_private = is_private != NULL ? *is_private : source.is_private;
	r.created_ms = r.updated_ms = clock_wall_ms();
	if (meta_repo_copy(app->meta, &source, &r, key, app->set.repo_quota, err) < 0)
		return -1;
	repo_changed(app);
	log_info("duplicated: repository=%s id=%s from=%s/%s by=%s", key, r.id, source.owner,
	         source.name, ask->principal->name);
	*out = r;
	return 0;
}

/* ---- changed, deleted ---------------------------------------------------------------------- */

static int remove_repo(const struct ask *ask, enum hub_type type, const char *id, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;

	if (repo_to_write(ask, type, id, &r, err) < 0 || meta_repo_del(app->meta, r.id, err) < 0)
		return -1;
	repo_changed(app);
	hub_own_forget(app, r.id, NULL);
	log_info("deleted: repository=%s/%s/%s id=%s by=%s", r.type, r.owner, r.name, r.id,
	         ask->principal->name);
	loop_kick(app->janitor);
	return 0;
}

static int set_private(const struct ask *ask, enum hub_type type, const char *id, bool is_private,
                       struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;

	if (repo_to_write(ask, type, id, &r, err) < 0 ||
	    meta_repo_set_private(app->meta, r.id, is_private, clock_wall_ms(), err) < 0)
		return -1;
	repo_changed(app);
	log_info("changed: repository=%s/%s/%s private=%d by=%s", r.type, r.owner, r.name,
	         is_private, ask->principal->name);
	return 0;
}

static int move_repo(const struct ask *ask, enum hub_type type, const char *from, const char *owner,
                     const char *name, struct err *err)
{
	struct app *app = ask->app;
	char old_key[HUB_REPO_CAP], key[HUB_REPO_CAP];
	struct model_repo r, to = {0}, there;
	bool moved;

	if (repo_to_write(ask, type, from, &r, err) < 0 || namespace_of(ask, owner, &to, err) < 0)
		return -1;
	if (strcmp(to.team_id, r.team_id) != 0)
		return err_set(err, ERR_INVALID, "%s/%s is of another team than %s", r.owner,
		               r.name, to.owner);
	hub_repo_name(type, arena_printf(ask->a, "%s/%s", r.owner, r.name), old_key);
	hub_repo_name(type, arena_printf(ask->a, "%s/%s", to.owner, name), key);
	if (repo_find(app, ask->a, type, strchr(key, '/') + 1, &there, &moved, err) < 0)
		return -1;
	if (there.id != NULL && !moved && strcmp(there.id, r.id) != 0)
		return err_set(err, ERR_HUB_REPO_EXISTS,
		               "A %.*s repository called %s/%s already exists",
		               (int)strlen(r.type) - 1, r.type, there.owner, there.name);
	r.owner = to.owner;
	r.of_user = to.of_user;
	r.name = name;
	r.updated_ms = clock_wall_ms();
	if (meta_repo_move(app->meta, &r, old_key, key, err) < 0)
		return -1;
	repo_changed(app);
	log_info("moved: repository=%s to=%s by=%s", old_key, key, ask->principal->name);
	return 0;
}

static int list_repos(const struct ask *ask, const struct repo_query *q, struct model_repo **out,
                      size_t *n, struct err *err)
{
	struct meta_repo_query mq = {.team_id = ask->principal->team_id,
	                             .type = q->any_type ? NULL : hub_type_word(q->type),
	                             .limit = LIST_MAX};
	struct model_repo *all = NULL;
	size_t got = 0, kept = 0;

	if (q->owner != NULL)
		mq.owner_key = hub_lower(ask->a, q->owner);
	if (q->search != NULL && q->search[0] != '\0')
		mq.search = hub_lower(ask->a, q->search);
	if (meta_repos(ask->app->meta, ask->a, &mq, &all, &got, err) < 0)
		return -1;
	for (size_t i = 0; i < got; i++)
		if (repo_may(ask, &all[i], REPO_READ))
			all[kept++] = all[i];
	*out = all;
	*n = kept;
	return 0;
}

static int measure_space(const struct ask *ask, struct repo_space *out, struct err *err)
{
	const char *team_id;

	out->quota = ask->app->set.repo_quota;
	if (ctx_team(ask, NULL, &team_id, err) < 0)
		return -1;
	return meta_repos_bytes(ask->app->meta, team_id, &out->bytes, err);
}

static int show_page(const struct ask *ask, const struct hub_name *at, size_t commits,
                     struct repo_page *out, struct err *err)
{
	struct app *app = ask->app;
	struct hub_repo *files = NULL;
	const char *commit;
	enum repo_found how;
	bool moved;

	*out = (struct repo_page){0};
	if (repo_look(ask, at->type, at->id, &how, &out->repo, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "this server has no repository %s%s of its own",
		               hub_type_prefix(at->type), at->id);
	if (repo_commit_of(app, ask->a, &out->repo, at->rev, &commit, err) < 0 ||
	    repo_refs(app, ask->a, &out->repo, &out->refs, err) < 0 ||
	    meta_repo_log(app->meta, ask->a, out->repo.id, commit, 0, commits, &out->commit,
	                  &out->n_commits, err) < 0 ||
	    repo_open(app, &out->repo, commit, &files, err) < 0)
		return -1;
	out->files = files->l.n;
	out->bytes = files->l.bytes;
	repo_close(app, files);
	return 0;
}

/* ---- branches and tags --------------------------------------------------------------------- */

/* The name of one without its folder; a commit's id, or what leads out of it, is none. */
static int ref_name(const char *name, struct err *err)
{
	bool plain = hub_rev_ok(str_of(name)) && !hub_commit_ok(str_of(name)) &&
	             strncmp(name, "refs/", 5) != 0 && name[0] != '/' && name[0] != '-' &&
	             strstr(name, "..") == NULL && strstr(name, "//") == NULL &&
	             !str_ends(str_of(name), "/") && !str_ends(str_of(name), ".lock") &&
	             strpbrk(name, " ~^:?*[\\") == NULL;

	if (plain)
		return 0;
	return err_set(
		err, ERR_INVALID,
		"\"%s\" cannot be the name of a branch or a tag: that has 1 to %d bytes, no "
		"blank, control character or any of ~^:?*[\\, no \"..\" or \"//\", does not "
		"begin with \"/\", \"-\" or \"refs/\" or end with \"/\" or \".lock\", and is "
		"no commit's id",
		name, HUB_REV_MAX);
}

static int add_ref(const struct ask *ask, const struct hub_name *at,
                   const struct repo_new_ref *want, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;
	struct model_repo_ref ref = {.kind = want->tag ? REPO_TAG : REPO_BRANCH,
	                             .name = want->name};

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 || ref_name(want->name, err) < 0 ||
	    repo_commit_of(app, ask->a, &r, at->rev, &ref.commit, err) < 0)
		return -1;
	ref.repo_id = r.id;
	if (meta_repo_ref_add(app->meta, &ref, err) < 0)
		return -1;
	repo_changed(app);
	return 0;
}

static int remove_ref(const struct ask *ask, const struct hub_name *at, bool tag, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;
	struct model_repo_ref ref = {.kind = tag ? REPO_TAG : REPO_BRANCH, .name = at->rev};

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0)
		return -1;
	if (!tag && strcmp(at->rev, MAIN) == 0)
		return err_set(err, ERR_INVALID, "Cannot delete refs/heads/" MAIN);
	ref.repo_id = r.id;
	if (meta_repo_ref_del(app->meta, &ref, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "Invalid rev id: %s", at->rev);
	}
	repo_changed(app);
	return 0;
}

int repo_refs(struct app *app, struct arena *a, const struct model_repo *r, struct hub_refs *out,
              struct err *err)
{
	struct model_repo_ref *all = NULL;
	size_t n = 0;

	if (meta_repo_refs(app->meta, a, r->id, &all, &n, err) < 0)
		return -1;
	*out = (struct hub_refs){.branch = ARENA_ARRAY(a, struct hub_branch, n + 1),
	                         .tag = ARENA_ARRAY(a, struct hub_branch, n + 1),
	                         .pull = ARENA_ARRAY(a, struct hub_branch, n + 1)};
	for (size_t i = 0; i < n; i++) {
		const struct hub_branch b = {all[i].name, all[i].commit};

		if (all[i].kind == REPO_TAG)
			out->tag[out->n_tags++] = b;
		else if (all[i].kind == REPO_PULL)
			out->pull[out->n_pulls++] = b;
		else
			out->branch[out->n_branches++] = b;
	}
	return 0;
}

/* The page, and whether there is another one. */
static int list_commits(const struct ask *ask, const struct hub_name *at, size_t skip, size_t most,
                        struct model_repo_commit **out, size_t *n, bool *more, uint64_t *total,
                        struct err *err)
{
	enum repo_found how;
	struct model_repo r;
	const char *commit;
	bool moved;

	*n = 0;
	*more = false;
	if (repo_look(ask, at->type, at->id, &how, &r, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return err_missing(err, ERR_HUB_REPO_NOT_FOUND);
	if (repo_commit_of(ask->app, ask->a, &r, at->rev, &commit, err) < 0 ||
	    meta_repo_log(ask->app->meta, ask->a, r.id, commit, skip, most, out, n, err) < 0 ||
	    (total != NULL && meta_repo_log_length(ask->app->meta, r.id, commit, total, err) < 0))
		return -1;
	*more = *n > 0 && (*out)[*n - 1].parent != NULL;
	return 0;
}

const struct repo_ops repo_ops = {
	.create = create_repo,
	.copy = copy_repo,
	.remove = remove_repo,
	.set_private = set_private,
	.move = move_repo,
	.list = list_repos,
	.space = measure_space,
	.page = show_page,
	.add_ref = add_ref,
	.remove_ref = remove_ref,
	.commits = list_commits,
	.open_to_write = repo_open_to_write,
	.has = repo_has,
	.read_file = repo_read_file,
	.commit_begin = repo_commit_begin,
	.commit_sink = repo_commit_sink,
	.commit_end = repo_commit_end,
	.commit_free = repo_commit_free,
	.squash = repo_squash,
	.large_files = repo_large_files,
	.large_delete = repo_large_delete,
	.pull_open = repo_pull_open,
	.pull_list = repo_pull_list,
	.pull_read = repo_pull_read,
	.pull_say = repo_pull_say,
	.pull_merge = repo_pull_merge,
	.upload_want = repo_upload_want,
	.upload_fits = repo_upload_fits,
	.upload_put = repo_upload_put,
	.upload_part = repo_upload_part,
	.upload_join = repo_upload_join,
	.to_write = repo_to_write,
	.xet_epoch = repo_xet_epoch,
	.xorb_put = repo_xorb_put,
	.shard_put = repo_shard_put,
};
