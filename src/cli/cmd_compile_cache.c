/* cmd_compile_cache.c - repositories of compile caches: list, what takes space, choose, remove. */
#include "cli/caches.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/map.h"
#include "base/units.h"

#define ROWS_MAX ((size_t)16 << 20)
#define COMMIT_LINES_MAX 20000 /* of one that deletes */
#define CUSTOM "optimum_neuron_custom_cache"

/* ---- ls ------------------------------------------------------------------------------------- */

struct row {
	struct caches_group group;
	const struct hubrepo_item *folder;
	size_t files, entries;
	uint64_t bytes;
	const char *changed; /* when */
};

struct rows {
	struct row *row;
	size_t n, cap;
};

static struct row *row_of(struct cli *c, struct rows *r, const struct caches_group *g)
{
	if (r->n > 0 && strcmp(r->row[r->n - 1].group.folder, g->folder) == 0)
		return &r->row[r->n - 1]; /* paths are sorted */
	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->row[i].group.folder, g->folder) == 0)
			return &r->row[i];
	if (r->n == r->cap) {
		struct row *more;

		r->cap = MAX((size_t)16, r->cap * 2);
		more = ARENA_ARRAY(c->arena, struct row, r->cap);
		if (r->n > 0)
			memcpy(more, r->row, r->n * sizeof(*more));
		r->row = more;
	}
	r->row[r->n] = (struct row){.group = *g};
	return &r->row[r->n++];
}

static void count(struct cli *c, const struct hubrepo_tree *t, struct rows *out)
{
	AUTO_MAP struct map *seen = map_new();

	for (size_t i = 0; i < t->n; i++) {
		const struct hubrepo_item *f = &t->item[i];
		struct caches_group g;
		struct compile_place p;
		const char *entry;
		struct row *r;

		if (f->folder || !caches_group_of(c->arena, f->path, &g))
			continue;
		r = row_of(c, out, &g);
		r->files++;
		r->bytes += f->size;
		r->folder = hubrepo_find(t, g.folder);
		if (!compile_cache_place(c->arena, f->path, &p))
			continue;
		entry = compile_cache_entry(c->arena, p.kind, p.path);
		if (entry != NULL &&
		    map_set(seen, str_of(arena_printf(c->arena, "%s\n%s", g.folder, entry)), r) ==
		            NULL)
			r->entries++;
	}
}

/* What the folders of all rows were at a commit. */
static int folders_at(struct cli *c, const char *id, const char *commit, const struct rows *rows,
                      const struct doc **out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(ROWS_MAX);
	const char *slash = strchr(id, '/');
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_key(&js, "paths");
	js_list(&js);
	for (size_t i = 0; i < rows->n; i++)
		js_cstr(&js, rows->row[i].group.folder);
	js_end(&js);
	js_close(&js);
	return remote_call(
		c, HTTP_POST,
		arena_printf(c->arena, "/api/models/%s/%s/paths-info/%s",
	                     remote_part(c, arena_strz(c->arena, str_n(id, (size_t)(slash - id)))),
	                     remote_part(c, slash + 1), commit),
		&body, out, err);
}

static bool was_same(const struct doc *at, const struct row *r)
{
	char oid[2 * HUB_OID_LEN + 1];

	if (r->folder == NULL)
		return false;
	hex_encode(r->folder->oid, HUB_OID_LEN, oid);
	DOC_EACH (d, at)
		if (str_eq(doc_text(doc_get(d, "path")), r->group.folder))
			return str_eq(doc_text(doc_get(d, "oid")), oid);
	return false;
}

/* The oldest of the commits since which a folder is as it is: half of them at a time. What is asked
 * of one commit is asked once, for all rows. */
static int find_changes(struct cli *c, const char *id, struct rows *rows, struct err *err)
{
	struct hubrepo_commit_info *commit;
	const struct doc **at;
	size_t n;

	if (hubrepo_commits(c, id, &commit, &n, err) < 0)
		return -1;
	at = ARENA_ARRAY(c->arena, const struct doc *, n + 1);
	for (size_t i = 0; i < rows->n && n > 0; i++) {
		size_t low = 0, high = n;

		while (high - low > 1) {
			size_t mid = low + (high - low) / 2;

			if (at[mid] == NULL &&
			    folders_at(c, id, commit[mid].id, rows, &at[mid], err) < 0)
				return -1;
			if (was_same(at[mid], &rows->row[i]))
				low = mid;
			else
				high = mid;
		}
		rows->row[i].changed = commit[low].date;
	}
	return 0;
}

static int rows_doc(struct cli *c, const struct rows *rows, const struct doc **out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(ROWS_MAX);
	struct js js;

	js_init(&js, &text);
	js_list(&js);
	for (size_t i = 0; i < rows->n; i++) {
		const struct row *r = &rows->row[i];

		js_open(&js);
		js_kv(&js, "kind", compile_cache_kinds[r->group.kind].name);
		js_kv(&js, "device", r->group.device[0] != '\0' ? r->group.device : NULL);
		js_kv(&js, "folder", r->group.folder);
		js_kv_u64(&js, "entries", r->entries);
		js_kv_u64(&js, "files", r->files);
		js_kv_u64(&js, "bytes", r->bytes);
		js_kv(&js, "changed_at", r->changed);
		js_close(&js);
	}
	js_end(&js);
	if (buf_check(&text, "the list", err) < 0)
		return -1;
	return js_parse(c->arena, buf_view(&text), out, err);
}

int cmd_compile_cache_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"KIND", false, cell_text, "kind"},      {"DEVICE", false, cell_name, "device"},
		{"ENTRIES", true, cell_text, "entries"}, {"FILES", true, cell_text, "files"},
		{"SIZE", true, cell_bytes, "bytes"},     {"CHANGED", true, cell_age, "changed_at"}};
	const struct doc *list;
	struct hubrepo_tree t;
	struct rows rows = {0};
	const char *id;

	catch_interrupt();
	if (caches_repo(c, c->n_arg > 0 ? c->arg[0] : NULL, &id, err) < 0)
		return -1;
	if (hubrepo_tree(c, id, "main", true, &t, err) < 0)
		return caches_missing(c, id, err);
	count(c, &t, &rows);
	if (find_changes(c, id, &rows, err) < 0 || rows_doc(c, &rows, &list, err) < 0)
		return -1;
	if (c->n_arg == 0)
		out_message(c, "%s", id);
	return out_list(c, list, cols, COUNT(cols), "it holds no compile caches yet", err);
}

/* ---- du ------------------------------------------------------------------------------------- */

/* The kinds whose folders a repository has; "" and false: it is none of caches. */
static bool kinds_of(struct cli *c, const struct hubrepo_tree *root, const char **kinds)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)4096);
	bool has[COMPILE_KIND_COUNT] = {0}, is = false;

	for (size_t i = 0; i < root->n; i++) {
		struct compile_place p;
		const char *below = arena_printf(c->arena, "%s/x/x", root->item[i].path);

		if (!root->item[i].folder)
			continue;
		is = is || strcmp(root->item[i].path, ".stoker") == 0;
		if (compile_cache_place(c->arena, below, &p))
			has[p.kind] = true;
	}
	for (size_t i = 0; i < COMPILE_KIND_COUNT; i++)
		if (has[i])
			buf_printf(&text, "%s%s", text.n > 0 ? ", " : "",
			           compile_cache_kinds[i].name);
	*kinds = arena_cstr(c->arena, buf_cstr(&text));
	return is || text.n > 0;
}

static int add_repo(struct cli *c, const struct doc *r, struct js *js, struct err *err)
{
	const char *id = doc_cstr(doc_get(r, "id"), ""), *kinds;
	struct hubrepo_tree root;

	if (hubrepo_tree(c, id, "main", false, &root, err) < 0) {
		if (!hubrepo_is_missing(err))
			return -1;
		err_clear(err); /* it was removed, or has no main */
		return 0;
	}
	if (!kinds_of(c, &root, &kinds))
		return 0;
	js_open(js);
	js_kv(js, "repository", id);
	js_kv_int(js, "bytes", doc_int(doc_get(r, "bytes"), 0));
	js_kv(js, "kinds", kinds[0] != '\0' ? kinds : NULL);
	js_kv(js, "updated_at", doc_cstr(doc_get(r, "updated_at"), NULL));
	js_close(js);
	return 0;
}

int cmd_compile_cache_du(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"SIZE", true, cell_bytes, "bytes"},
	                                      {"REPOSITORY", false, cell_name, "repository"},
	                                      {"KINDS", false, cell_text, "kinds"},
	                                      {"UPDATED", true, cell_age, "updated_at"}};
	AUTO_BUF struct buf text = BUF_INIT(ROWS_MAX);
	const struct doc *reply, *list;
	struct js js;

	catch_interrupt();
	if (remote_get(c, &reply, err, "/v1/repositories?type=models") < 0)
		return -1;
	js_init(&js, &text);
	js_list(&js);
	DOC_EACH (r, doc_get(reply, "repositories"))
		if (add_repo(c, r, &js, err) < 0)
			return -1;
	js_end(&js);
	if (buf_check(&text, "the list", err) < 0 ||
	    js_parse(c->arena, buf_view(&text), &list, err) < 0)
		return -1;
	return out_list(c, out_sorted(c, list, "bytes", true), cols, COUNT(cols),
	                "no repository holds compile caches yet", err);
}

/* ---- set ------------------------------------------------------------------------------------ */

/* Where optimum-neuron looks for the name of its repository. */
static int custom_path(struct cli *c, const char **dir, struct err *err)
{
	const char *hf = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (hf != NULL && hf[0] != '\0')
		*dir = hf[0] == '~' && hf[1] == '/' && home != NULL
		               ? arena_printf(c->arena, "%s%s", home, hf + 1)
		               : hf;
	else if (xdg != NULL && xdg[0] == '/')
		*dir = arena_printf(c->arena, "%s/huggingface", xdg);
	else if (home != NULL && home[0] == '/')
		*dir = arena_printf(c->arena, "%s/.cache/huggingface", home);
	else
		return err_set(err, ERR_USAGE, "set HF_HOME: there is no home folder");
	return 0;
}

int cmd_compile_cache_set(struct cli *c, struct err *err)
{
	const char *id, *dir = NULL, *path;
	struct hubrepo_tree root;

	if (caches_repo(c, c->arg[0], &id, err) < 0 || custom_path(c, &dir, err) < 0)
		return -1;
	if (hubrepo_tree(c, id, "main", false, &root, err) < 0)
		return caches_missing(c, id, err);
	path = arena_printf(c->arena, "%s/%s", dir, CUSTOM);
	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0 ||
	    fs_write_atomic(AT_FDCWD, path, str_of(id), 0644, err) < 0 ||
	    caches_note(c, id, err) < 0)
		return -1;
	out_message(c, "ls, push and pull take %s from now on, and so does optimum-neuron (%s)", id,
	            path);
	if (getenv("CUSTOM_CACHE_REPO") != NULL)
		out_message(c, "CUSTOM_CACHE_REPO is set to %s, which optimum-neuron asks first",
		            getenv("CUSTOM_CACHE_REPO"));
	return 0;
}

/* ---- rm ------------------------------------------------------------------------------------- */

/* The newest commit that is as old; NULL: none is. */
static int commit_before(struct cli *c, const char *id, int64_t ms, const char **commit,
                         struct err *err)
{
	struct hubrepo_commit_info *all;
	size_t n;

	*commit = NULL;
	if (hubrepo_commits(c, id, &all, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && *commit == NULL; i++)
		if (all[i].ms <= ms)
			*commit = all[i].id;
	return 0;
}

/* What there was at that time, when --older-than asks for it. */
static int old_tree(struct cli *c, const char *id, bool *asked, struct hubrepo_tree *old,
                    struct err *err)
{
	const char *age = opt_text(c, "older-than", NULL), *commit;
	uint64_t s;

	*asked = age != NULL;
	*old = (struct hubrepo_tree){0};
	if (age == NULL)
		return 0;
	if (units_seconds(str_of(age), &s, err) < 0)
		return err_wrap(err, "--older-than");
	if (s > INT32_MAX)
		return err_set(err, ERR_USAGE, "--older-than %s: that is too long", age);
	if (commit_before(c, id, clock_wall_ms() - (int64_t)s * 1000, &commit, err) < 0)
		return -1;
	return commit != NULL ? hubrepo_tree(c, id, commit, true, old, err) : 0;
}

struct removal {
	const struct hubrepo_item **item;
	size_t n;
	uint64_t bytes;
};

static int choose(struct cli *c, const struct hubrepo_tree *t, const struct hubrepo_tree *old,
                  bool by_age, struct removal *out, struct err *err)
{
	out->item = ARENA_ARRAY(c->arena, const struct hubrepo_item *, t->n + 1);
	for (size_t i = 0; i < t->n; i++) {
		const struct hubrepo_item *f = &t->item[i];
		const struct hubrepo_item *was = by_age ? hubrepo_find(old, f->path) : f;
		struct caches_group g;
		bool is;

		if (f->folder || was == NULL || memcmp(was->oid, f->oid, sizeof(f->oid)) != 0 ||
		    !caches_group_of(c->arena, f->path, &g))
			continue;
		if (caches_wanted(c, &g, &is, err) < 0)
			return -1;
		if (!is)
			continue;
		out->item[out->n++] = f;
		out->bytes += f->size;
	}
	return 0;
}

static int remove_all(struct cli *c, const char *id, const struct removal *r, struct err *err)
{
	AUTO_HUBREPO_COMMIT struct hubrepo_commit k = HUBREPO_COMMIT_INIT;

	for (size_t at = 0; at < r->n;) {
		if (hubrepo_commit_begin(&k, c, "remove compile caches", "", false, err) < 0)
			return -1;
		for (size_t i = 0; i < COMMIT_LINES_MAX && at < r->n; i++)
			if (hubrepo_commit_delete(&k, r->item[at++]->path, false, err) < 0)
				return -1;
		if (hubrepo_commit_send(&k, id, err) < 0)
			return -1;
	}
	return 0;
}

int cmd_compile_cache_rm(struct cli *c, struct err *err)
{
	struct hubrepo_tree t, old;
	struct removal r = {0};
	char size[UNITS_CAP];
	const char *id;
	bool by_age;

	catch_interrupt();
	if (caches_repo(c, c->arg[0], &id, err) < 0)
		return -1;
	if (hubrepo_tree(c, id, "main", true, &t, err) < 0 ||
	    old_tree(c, id, &by_age, &old, err) < 0)
		return caches_missing(c, id, err);
	if (choose(c, &t, &old, by_age, &r, err) < 0)
		return -1;
	if (r.n == 0) {
		out_message(c, "there is nothing like that in %s", id);
		return 0;
	}
	(void)units_show_bytes(r.bytes, size);
	if (out_confirm(c,
	                arena_printf(c->arena,
	                             "Delete %s, %s, of compile caches from %s? Jobs compile them "
	                             "again.",
	                             out_count(c, r.n, "file"), size, id),
	                NULL, err) < 0 ||
	    remove_all(c, id, &r, err) < 0)
		return -1;
	out_message(
		c,
		"deleted %s, %s. They stay in the commits before, and count, until the history is "
		"squashed (HfApi().super_squash_history) or the repository is removed",
		out_count(c, r.n, "file"), size);
	return 0;
}

/* ---- artifacts ------------------------------------------------------------------------------ */

#define ARTIFACTS_PAGE ((size_t)1000) /* the most that one answer holds */

int cmd_compile_cache_artifacts(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"STORED", true, cell_age, "stored_at"},  {"BY", false, cell_text, "stored_by"},
		{"JOB", false, cell_text, "job_id"},      {"SIZE", true, cell_bytes, "bytes"},
		{"USED", true, cell_age, "last_used_at"}, {"ARTIFACT", false, cell_name, "name"}};
	static const char *const filters[] = {"by", "job"};
	AUTO_BUF struct buf path = BUF_INIT((size_t)64 << 10);
	size_t limit = (size_t)opt_int(c, "limit", 100);
	struct doc list = {.kind = DOC_LIST}, *last = NULL;
	const char *cursor = "";
	const struct doc *reply;

	if (c->n_arg > 0)
		buf_printf(&path, "&namespace=%s", remote_part(c, c->arg[0]));
	for (size_t i = 0; i < COUNT(filters); i++)
		if (opt_text(c, filters[i], NULL) != NULL)
			buf_printf(&path, "&%s=%s", filters[i],
			           remote_part(c, opt_text(c, filters[i], NULL)));
	if (buf_check(&path, "the request", err) < 0)
		return -1;
	do {
		if (remote_get(c, &reply, err, "/v1/artifacts?limit=%zu%s%s%s",
		               MIN(limit - list.count, ARTIFACTS_PAGE), buf_cstr(&path),
		               cursor[0] != '\0' ? "&cursor=" : "", cursor) < 0)
			return -1;
		list_append(c, &list, &last, doc_get(reply, "artifacts"));
		cursor = doc_cstr(doc_get(reply, "next_cursor"), NULL);
	} while (cursor != NULL && list.count < limit);
	if (cursor != NULL)
		out_message(c, "there are more: -n %zu shows more of them", 10 * limit);
	return out_list(c, &list, cols, COUNT(cols),
	                "no such artifacts; docs/compile-cache.md says how tools store them", err);
}
