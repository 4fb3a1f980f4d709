/*
 * hub_kept.c - what is kept of another Hub's repositories, as people see it: rows beside those of
 * weights, which they list and remove.
 */
#include "server/data/hub_impl.h"

#include "server/api/ctx.h"

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
		if (is_all && ctx_need_all(ask, err) < 0)
			return -1;
		hub_repo_forget(app, owner, all[i].name); /* before: see keep() */
		if (meta_ref_del(app->meta, owner, META_REF_HUB, all[i].name, err) < 0)
			return -1;
		*out = row_of(ask->a, &all[i]);
		return 0;
	}
	return err_missing(err, ERR_WEIGHTS_NOT_FOUND);
}
