/* fetch_held.c - see fetch_held.h. */
#include "server/data/fetch_held.h"

#include "core/spec.h"
#include "server/data/weights.h"

bool fetch_is_held(const char *source)
{
	struct str ignored;

	return spec_held_source(str_of(source), &ignored);
}

int fetch_held_find(struct app *app, struct arena *a, const char *team_id, const char *source,
                    struct model_mirror *out, struct err *err)
{
	struct model_mirror *all = NULL;
	const struct model_mirror *found = NULL;
	struct str digits;
	size_t n = 0;

	if (!spec_held_source(str_of(source), &digits))
		return err_set(err, ERR_SOURCE_INVALID, "%s: not a manifest's digest", source);
	if (meta_mirrors(app->meta, a, team_id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (all[i].manifest == NULL || !str_starts(str_of(all[i].manifest), digits.p))
			continue;
		if (found != NULL && strcmp(found->manifest, all[i].manifest) != 0)
			return err_set(err, ERR_SOURCE_INVALID,
			               "%s: so begin %.20s... of %s and %.20s... of %s: give more "
			               "digits",
			               source, found->manifest, found->source, all[i].manifest,
			               all[i].source);
		found = &all[i];
	}
	if (found == NULL)
		return err_set(err, ERR_SOURCE_NOT_FOUND,
		               "%s: this team has no mirrored weights with this manifest; `stoker "
		               "weights ls` shows those that it has",
		               source);
	*out = *found;
	return 0;
}

/* They were evicted, or deleted by hand. */
static int gone(const struct model_mirror *of, const char *source, struct err *err)
{
	return err_set(err, ERR_SOURCE_NOT_FOUND,
	               "%s: its files are not here any more; `stoker weights prefetch` fetches "
	               "them again from %s, if that is still at revision %.40s",
	               source, of->source, of->revision);
}

int fetch_held_list(struct app *app, struct arena *a, const struct model_mirror *of,
                    const char *source, const struct glob_filter *filter, struct blob_pins *pins,
                    struct manifest *out, struct err *err)
{
	struct mirror_progress ignored;
	enum weights_at at;
	struct digest name;
	struct manifest m;

	if (weights_find(app, pins, of->manifest, &ignored, &at, err) < 0)
		return -1;
	if (at == WEIGHTS_NOWHERE)
		return gone(of, source, err);
	if (digest_parse(str_of(of->manifest), &name, err) < 0 ||
	    weights_manifest(app, a, &name, &m, err) < 0)
		return err_wrap(err, "%s", source);
	manifest_init(out, a);
	for (size_t i = 0; i < m.n; i++) {
		const struct manifest_file *f = &m.file[i];

		if (glob_wanted(filter, str_of(f->path)) &&
		    manifest_add(out, str_of(f->path), f->size, &f->sha256, err) < 0)
			return err_wrap(err, "%s", source);
	}
	if (out->n == 0)
		return err_set(err, ERR_SOURCE_EMPTY,
		               "%s: allow_patterns and ignore_patterns leave none of its %zu files",
		               source, m.n);
	return manifest_finish(out, err) < 0 ? err_wrap(err, "%s", source) : 0;
}
