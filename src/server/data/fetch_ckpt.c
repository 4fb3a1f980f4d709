/* fetch_ckpt.c - see fetch_ckpt.h. */
#include "server/data/fetch_ckpt.h"

#include "core/spec.h"
#include "server/control/loads.h"

#define SET_DIGITS 12

bool fetch_is_ckpt(const char *source)
{
	return str_starts(str_of(source), "bt://");
}

/* What its revision says: "job/name@digits"; the name may have slashes and '@'. */
static bool read_frozen(struct arena *a, const char *revision, struct spec_load *out)
{
	const char *slash = strchr(revision, '/'), *at = strrchr(revision, '@');

	if (slash == NULL || at == NULL || at < slash)
		return false;
	*out = (struct spec_load){
		.job = arena_printf(a, "%.*s", (int)(slash - revision), revision),
		.name = arena_printf(a, "%.*s", (int)(at - slash - 1), slash + 1)};
	return true;
}

static int find(struct app *app, struct arena *a, const char *team_id, const char *source,
                const char *revision, struct resolved_load *out, struct err *err)
{
	struct spec_load ref;

	if (revision == NULL || !read_frozen(a, revision, &ref)) {
		if (spec_ckpt_source(a, str_of(source), &ref, err) < 0)
			return -1;
	}
	return loads_find(app, a, team_id, &ref, out, err);
}

int fetch_ckpt_check(struct app *app, const char *team_id, const char *source, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct spec_load ref;

	if (spec_ckpt_source(a, str_of(source), &ref, err) == 0 &&
	    loads_may_find(app, a, team_id, &ref, err) == 0)
		return 0;
	return err_wrap(err, "%s", source);
}

/* The rows of one checkpoint's parts say where their manifests are. */
static int read_part(struct app *app, struct arena *a, const struct resolved_load *l,
                     const struct model_checkpoint *row, struct ckpt *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(a, l->project_id, l->job_id);
	const char *key = row->manifest_key != NULL
	                          ? row->manifest_key
	                          : ckpt_manifest_key(a, prefix, row->rank, row->name);

	if (objstore_get(app->objects, key, &body, err) == 0)
		return ckpt_parse(out, a, buf_view(&body), err);
	if (err->code == ERR_NOT_FOUND)
		err_become(err, ERR_CHECKPOINT_NOT_FOUND);
	return -1;
}

struct parts {
	struct source_object *object;
	size_t n, cap;
	struct hash *set;
};

static void add_part(struct arena *a, const struct resolved_load *l, const struct ckpt *c,
                     struct parts *out)
{
	const char *prefix = ckpt_prefix(a, l->project_id, l->job_id);
	struct digest set = ckpt_digest(c);

	hash_add(out->set, set.b, sizeof(set.b));
	if (out->cap < out->n + c->files.n) {
		size_t cap = 2 * (out->n + c->files.n);
		struct source_object *more = ARENA_ARRAY(a, struct source_object, cap);

		if (out->n > 0)
			memcpy(more, out->object, out->n * sizeof(*more));
		out->object = more;
		out->cap = cap;
	}
	for (size_t i = 0; i < c->files.n; i++) {
		const struct manifest_file *f = &c->files.file[i];
		const char *inner = ckpt_inner(l->name, f->path);

		out->object[out->n++] = (struct source_object){
			.path = l->n_ranks > 1 ? arena_printf(a, "rank-%u/%s", c->rank, inner)
		                               : inner,
			.key = ckpt_file_key(a, prefix, c, i),
			.size = f->size,
			.sha256 = f->sha256,
		};
	}
}

static int read_parts(struct app *app, struct arena *a, const struct resolved_load *l,
                      struct parts *out, struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	if (meta_checkpoints(app->meta, a, l->job_id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		struct ckpt part = {0};

		if (strcmp(rows[i].name, l->name) != 0)
			continue;
		if (read_part(app, a, l, &rows[i], &part, err) < 0)
			return -1;
		part.rank = rows[i].rank;
		add_part(a, l, &part, out);
	}
	return 0;
}

int fetch_ckpt_open(struct app *app, const char *team_id, const char *source, const char *revision,
                    const struct source_options *o, struct source **out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HASH struct hash *set = hash_new(HASH_SHA256);
	struct source_objects from = {.store = app->objects};
	struct parts parts = {.set = set};
	struct resolved_load load = {0};
	struct digest d;
	char hex[HASH_HEX_CAP];

	if (find(app, a, team_id, source, revision, &load, err) < 0 ||
	    read_parts(app, a, &load, &parts, err) < 0)
		return err_wrap(err, "%s", source);
	(void)hash_end(set, d.b);
	digest_hex(&d, hex);
	from.object = parts.object;
	from.n = parts.n;
	from.revision = arena_printf(a, "%s/%s@%.*s", load.job_id, load.name, SET_DIGITS, hex);
	return source_open_objects(out, source, &from, o, err);
}
