/* cmd_cache.c - the training cache: what is in it, what takes the space, delete. */
#include "cli/cli.h"

#include "base/map.h"
#include "base/units.h"

struct cache_of {
	const char *path;  /* "/v1/training_projects/ID", "/v1/teams/ID" */
	const char *title; /* "project TEAM/NAME", "team NAME" */
};

/* That of -p, --team or the argument. `dflt`: what is meant when none is named; NULL: one has to
 * be, as what changes a cache names it. */
static int cache_of(struct cli *c, const char *word, const char *dflt, struct cache_of *out,
                    struct err *err)
{
	const char *team = opt_text(c, "team", NULL), *project = opt_text(c, "project", word);
	const struct doc *d;

	if (team != NULL && project != NULL)
		return err_set(err, ERR_USAGE, "name a project or --team, not both");
	if (team != NULL) {
		if (resolve_team(c, team, &d, err) < 0)
			return -1;
		out->path = arena_printf(c->arena, "/v1/teams/%s", doc_cstr(doc_get(d, "id"), ""));
		out->title = arena_printf(c->arena, "team %s", doc_cstr(doc_get(d, "name"), "?"));
		return 0;
	}
	if (project == NULL && dflt == NULL)
		return err_set(err, ERR_USAGE, "name the project: stoker %s %s --project PROJECT",
		               c->command->words, c->arg[0]);
	if (resolve_project(c, project != NULL ? project : dflt, &d, err) < 0)
		return -1;
	out->path =
		arena_printf(c->arena, "/v1/training_projects/%s", doc_cstr(doc_get(d, "id"), ""));
	out->title = arena_printf(c->arena, "project %s", project_title(c, d));
	return 0;
}

static void cf_modified(const struct doc *d, struct buf *b)
{
	struct buf full = BUF_INIT(100);

	cell_text(doc_get(d, "modified"), &full);
	buf_str(b, str_n(full.p, MIN(full.n, (size_t)19)));
	buf_done(&full);
}

static const struct out_col cf_cols[] = {{"PATH", false, cell_name, "path"},
                                         {"SIZE", true, cell_bytes, "size_bytes"},
                                         {"MODIFIED", false, cf_modified, NULL},
                                         {"TYPE", false, cell_text, "file_type"},
                                         {"PERMISSIONS", false, cell_text, "permissions"}};

/* A list that was too long to be whole must not pass for one. */
static void say_truncated(struct cli *c, const struct doc *reply)
{
	char text[UNITS_CAP];

	if (!doc_bool(doc_get(reply, "truncated"), false))
		return;
	out_message(
		c,
		"warning: incomplete list: the cache holds %" PRId64
		" files, %s; this list has %zu",
		doc_int(doc_get(reply, "total_files"), 0),
		units_show_bytes((uint64_t)doc_int(doc_get(reply, "total_size_bytes"), 0), text),
		doc_get(reply, "file_summaries")->count);
}

int cmd_cache_summarize(struct cli *c, struct err *err)
{
	static const struct {
		const char *word, *key;
	} sorts[] = {{"filepath", "path"},
	             {"size", "size_bytes"},
	             {"modified", "modified"},
	             {"type", "file_type"},
	             {"permissions", "permissions"}};
	const char *by = opt_text(c, "sort", "filepath"), *order = opt_text(c, "order", "asc"),
		   *key = NULL;
	struct cache_of cache;
	const struct doc *reply, *files;
	enum out_form form;
	uint64_t total = 0;
	char text[UNITS_CAP];

	for (size_t i = 0; i < COUNT(sorts); i++)
		if (strcmp(sorts[i].word, by) == 0)
			key = sorts[i].key;
	if (key == NULL)
		return err_set(err, ERR_INVALID,
		               "--sort must be filepath, size, modified, type or permissions");
	if (strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
		return err_set(err, ERR_INVALID, "--order must be asc or desc");
	if (out_form(c, &form, err) < 0 ||
	    cache_of(c, c->n_arg > 0 ? c->arg[0] : NULL, "@", &cache, err) < 0)
		return -1;
	if (opt_flag(c, "last")) {
		if (remote_get(c, &reply, err, "%s/cache/summary", cache.path) < 0)
			return -1;
	} else if (remote_call(c, HTTP_POST,
	                       arena_printf(c->arena, "%s/cache/summarize", cache.path),
	                       &(struct buf)BUF_INIT(1), &reply, err) < 0) {
		return -1;
	}
	files = doc_get(reply, "file_summaries");
	if (files == NULL) {
		out_message(c, "No cache summary found for this project.");
		if (form == OUT_JSON)
			(void)puts("[]");
		return 0;
	}
	DOC_EACH (f, files) {
		total += (uint64_t)MAX(doc_int(doc_get(f, "size_bytes"), 0), (int64_t)0);
	}
	out_message(c, "captured %s, %zu %s, %s", doc_cstr(doc_get(reply, "timestamp"), "?"),
	            files->count, files->count == 1 ? "entry" : "entries",
	            units_show_bytes(total, text));
	say_truncated(c, reply);
	if (form == OUT_JSON) {
		out_json(reply);
		return 0;
	}
	return out_list(c, out_sorted(c, files, key, strcmp(order, "desc") == 0), cf_cols,
	                COUNT(cf_cols), "the cache is empty", err);
}

struct du_row {
	const char *path;
	uint64_t bytes, files;
};

static int by_bytes(const void *a, const void *b)
{
	const struct du_row *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Sums files by their first `depth` folders; 0 = all of them in one. */
static size_t sum_up(struct cli *c, const struct doc *files, int64_t depth, struct du_row **out)
{
	AUTO_MAP struct map *by_path = map_new();
	struct du_row *rows = ARENA_ARRAY(c->arena, struct du_row, files->count + 1);
	size_t n = 0;

	DOC_EACH (f, files) {
		struct str path = doc_text(doc_get(f, "path"));
		struct du_row *row;
		size_t cut = 0;

		if (str_eq(doc_text(doc_get(f, "file_type")), "directory"))
			continue;
		for (int64_t left = depth; cut < path.n; cut++)
			if (path.p[cut] == '/' && --left == 0)
				break;
		path = depth == 0 ? STR_LIT(".") : str_n(path.p, cut);
		row = map_get(by_path, path);
		if (row == NULL) {
			row = &rows[n++];
			row->path = arena_strz(c->arena, path);
			(void)map_set(by_path, path, row);
		}
		row->bytes += (uint64_t)MAX(doc_int(doc_get(f, "size_bytes"), 0), (int64_t)0);
		row->files++;
	}
	*out = rows;
	return n;
}

int cmd_cache_du(struct cli *c, struct err *err)
{
	struct cache_of cache;
	const struct doc *reply, *list, *files;
	AUTO_BUF struct buf json = BUF_INIT((size_t)64 << 20);
	struct du_row *rows;
	struct js js;
	size_t n;
	int64_t depth = opt_int(c, "depth", 1);
	static const struct out_col cols[] = {{"SIZE", true, cell_bytes, "size_bytes"},
	                                      {"FILES", true, cell_text, "files"},
	                                      {"PATH", false, cell_name, "path"}};

	if (depth < 0)
		return err_set(err, ERR_INVALID,
		               "--depth %" PRId64 ": must be 0 (only the total) or more", depth);
	if (cache_of(c, c->n_arg > 0 ? c->arg[0] : NULL, "@", &cache, err) < 0 ||
	    remote_call(c, HTTP_POST, arena_printf(c->arena, "%s/cache/summarize", cache.path),
	                &(struct buf)BUF_INIT(1), &reply, err) < 0)
		return -1;
	files = doc_get(reply, "file_summaries");
	say_truncated(c, reply);
	n = files == NULL ? 0 : sum_up(c, files, depth, &rows);
	if (n > 0)
		qsort(rows, n, sizeof(*rows), by_bytes);
	js_init(&js, &json);
	js_list(&js);
	for (size_t i = 0; i < n; i++) {
		js_open(&js);
		js_kv(&js, "path", rows[i].path);
		js_kv_u64(&js, "size_bytes", rows[i].bytes);
		js_kv_u64(&js, "files", rows[i].files);
		js_close(&js);
	}
	js_end(&js);
	if (js_parse(c->arena, buf_view(&json), &list, err) < 0)
		return -1;
	return out_list(c, list, cols, COUNT(cols), "the cache is empty", err);
}

#define QUOTA_BARE_MAX ((uint64_t)1 << 20) /* a number of bytes below it wants its unit */

static bool is_bare(struct str text)
{
	for (size_t i = 0; i < text.n; i++)
		if (text.p[i] < '0' || text.p[i] > '9')
			return false;
	return true;
}

int cmd_cache_quota(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(200);
	struct cache_of cache;
	const struct doc *reply;
	uint64_t bytes;
	char text[UNITS_CAP];
	struct js js;

	if (units_bytes(str_of(c->arg[0]), &bytes, err) < 0)
		return err_wrap(err, "quota");
	if (is_bare(str_of(c->arg[0])) && bytes < QUOTA_BARE_MAX)
		return err_set(err, ERR_UNIT_MISSING,
		               "quota %s is a number of bytes: write the unit, as in %sGB",
		               c->arg[0], c->arg[0]);
	if (cache_of(c, NULL, NULL, &cache, err) < 0)
		return -1;
	js_init(&js, &body);
	js_open(&js);
	js_kv_u64(&js, "quota_bytes", bytes);
	js_close(&js);
	if (remote_call(c, HTTP_PATCH, arena_printf(c->arena, "%s/cache", cache.path), &body,
	                &reply, err) < 0)
		return -1;
	out_message(c, "the cache quota of %s is now %s; jobs that start from now on get it",
	            cache.title,
	            units_show_bytes((uint64_t)doc_int(doc_get(reply, "quota_bytes"), 0), text));
	return 0;
}

int cmd_cache_rm(struct cli *c, struct err *err)
{
	struct cache_of cache;
	const struct doc *reply;
	char text[UNITS_CAP];

	if (cache_of(c, NULL, NULL, &cache, err) < 0)
		return -1;
	if (out_confirm(c,
	                arena_printf(c->arena, "Delete %s from the cache of %s for good?",
	                             out_name(c->arena, str_of(c->arg[0])), cache.title),
	                NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE,
	                arena_printf(c->arena, "%s/cache/files?path=%s", cache.path,
	                             remote_part(c, c->arg[0])),
	                NULL, &reply, err) < 0)
		return -1;
	out_message(c, "deleted %s from the cache of %s: %s freed",
	            out_name(c->arena, str_of(c->arg[0])), cache.title,
	            units_show_bytes((uint64_t)doc_int(doc_get(reply, "bytes_freed"), 0), text));
	return 0;
}
