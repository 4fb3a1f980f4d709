/*
 * maintenance_repos.c - `stoker cache verify` of repositories: nobody else has their files. So
 * nothing of a repository is dropped for a file that is lost: its commits keep all others, and the
 * commit that brings the file again makes them whole.
 */
#include "server/data/hub_impl.h"
#include "server/data/repos.h"
#include "server/data/weights.h"
#include "server/maintenance/maintenance.h"

#define AGAIN "nobody else has it: upload it again"

int maintenance_repo_of(struct app *app, struct arena *a, const char *hex, struct model_repo *out,
                        bool *is_one, struct err *err)
{
	*is_one = meta_repo_of_manifest(app->meta, a, hex, out, err) == 0;
	if (!*is_one && err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

int maintenance_tell_repo(struct app *app, struct maintenance_task *t, struct map *told,
                          const char *hex, const struct manifest_file *f,
                          enum maintenance_loss loss, bool *is_one, struct err *err)
{
	static const char *const words[] = {
		[LOSS_DAMAGED] = "damaged: quarantined; " AGAIN,
		[LOSS_IN_FOLDER] = "damaged: quarantined; the object store has it",
		[LOSS_REMOVED] = "damaged in the object store: removed; " AGAIN,
		[LOSS_LEFT] = "damaged in the object store: left there; verify again later",
		[LOSS_UNREAD] = MAINTENANCE_UNREADABLE,
		[LOSS_MENDED] = MAINTENANCE_MENDED,
		[LOSS_RESTORED] = "missing in the object store: put there again from the folder",
		[LOSS_MISSING] = "missing; " AGAIN,
		[LOSS_LIST] = "the list of a commit's files is damaged; nobody else has it",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct maintenance_item x = {.kind = "repository", .bytes = f->size, .words = words[loss]};
	char is[HASH_HEX_CAP];
	struct model_repo r;

	if (maintenance_repo_of(app, a, hex, &r, is_one, err) < 0)
		return -1;
	if (!*is_one)
		return 0;
	if (loss == LOSS_REMOVED || loss == LOSS_MISSING)
		repo_bytes_lost(app, &f->sha256);
	x.name = arena_printf(a, "%s/%s/%s", r.type, r.owner, r.name);
	x.path = f->path;
	digest_hex(&f->sha256, is);
	/* an upload is told of by the commit that names it, under the name that it has there */
	if (strncmp(f->path, HUB_FILES, strlen(HUB_FILES)) == 0)
		x.path += strlen(HUB_FILES);
	else if (strcmp(f->path, is) == 0)
		return 0;
	if (map_set(told, str_of(arena_printf(a, "%s %s", r.id, x.path)), t) == NULL)
		maintenance_found(t, &x);
	return 0;
}

/* ---- what is missing ----------------------------------------------------------------------- */

struct checked {
	struct app *app;
	struct maintenance_task *t;
	struct maintenance_objects *objects;
	struct map *seen; /* files by their digests: commits share most of theirs */
	struct map *told;
};

static int check_file(struct checked *c, const char *hex, struct manifest_file *f, struct err *err)
{
	enum maintenance_loss loss = LOSS_MISSING;
	bool has, mended = false, is_one;

	if (f->size == 0 || map_get(c->seen, digest_key(&f->sha256)) != NULL)
		return 0;
	if (c->objects == NULL)
		has = blobs_has(c->app->blobs, &f->sha256, f->size);
	else if (maintenance_has_object(c->objects, f, &has, &mended, err) < 0)
		return -1;
	if (mended)
		loss = LOSS_RESTORED;
	if ((!has || mended) &&
	    maintenance_tell_repo(c->app, c->t, c->told, hex, f, loss, &is_one, err) < 0)
		return -1;
	/* one that is lost may have another name elsewhere, which is told of, too */
	if (!has)
		return 0;
	(void)map_set(c->seen, digest_key(&f->sha256), c);
	repo_bytes_stored(c->app, &(struct manifest){.file = f, .n = 1}); /* somebody put it back */
	return 0;
}

static int check_files(struct checked *c, const struct model_ref *ref, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;
	struct digest d;

	if (digest_parse(str_of(ref->manifest), &d, err) < 0)
		return -1;
	if (weights_manifest(c->app, a, &d, &m, err) < 0) {
		static const struct manifest_file list = {.path = "its list of files"};
		bool is_one, gone = err->code == ERR_NOT_FOUND || err->code == ERR_CORRUPT;

		if (!gone)
			return -1;
		err_clear(err); /* of a repository that was deleted meanwhile, or it is lost */
		return maintenance_tell_repo(c->app, c->t, c->told, ref->manifest, &list, LOSS_LIST,
		                             &is_one, err);
	}
	for (size_t i = 0; i < m.n; i++)
		if (check_file(c, ref->manifest, &m.file[i], err) < 0)
			return -1;
	return 0;
}

int maintenance_check_repos(struct app *app, struct maintenance_task *t,
                            struct maintenance_objects *objects, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_MAP struct map *seen = map_new(), *told = map_new();
	struct checked c = {app, t, objects, seen, told};
	struct model_ref *ref = NULL;
	size_t n = 0;

	if (meta_refs(app->meta, a, NULL, META_REF_REPO, &ref, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		maintenance_doing(t, "repositories: commit %zu of %zu", i + 1, n);
		if (maintenance_go_on(t, err) < 0)
			return -1;
		while (check_files(&c, &ref[i], err) < 0)
			if (maintenance_wait(t, NULL, err) < 0)
				return -1;
	}
	return 0;
}
