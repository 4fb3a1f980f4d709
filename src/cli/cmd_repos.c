/* cmd_repos.c - repositories that people write to: list, show, create, remove, what takes space. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/units.h"

#define SHORT_COMMIT 10

static void re_visibility(const struct doc *d, struct buf *b)
{
	buf_puts(b, doc_bool(doc_get(d, "private"), false) ? "private" : "public");
}

static void re_commit(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(d);

	buf_str(b, str_n(s.p, MIN(s.n, (size_t)SHORT_COMMIT)));
}

static const struct out_col repo_cols[] = {{"REPOSITORY", false, cell_name, "path"},
                                           {"VISIBILITY", false, re_visibility, NULL},
                                           {"SIZE", true, cell_bytes, "bytes"},
                                           {"UPDATED", true, cell_age, "updated_at"}};

static int get_list(struct cli *c, const struct doc **reply, struct err *err)
{
	static const char *const filters[] = {"type", "owner", "search"};
	AUTO_BUF struct buf path = BUF_INIT((size_t)64 << 10);
	char sep = '?';

	buf_puts(&path, "/v1/repositories");
	for (size_t i = 0; i < COUNT(filters); i++) {
		const char *value = opt_text(c, filters[i], NULL);

		if (value == NULL)
			continue;
		buf_printf(&path, "%c%s=%s", sep, filters[i], remote_part(c, value));
		sep = '&';
	}
	return remote_get(c, reply, err, "%s", buf_cstr(&path));
}

int cmd_repos_ls(struct cli *c, struct err *err)
{
	const struct doc *reply;

	if (get_list(c, &reply, err) < 0)
		return -1;
	return out_list(c, doc_get(reply, "repositories"), repo_cols, COUNT(repo_cols),
	                "no repositories; `stoker repos create NAME` makes one", err);
}

int cmd_repos_du(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"SIZE", true, cell_bytes, "bytes"},
	                                      {"REPOSITORY", false, cell_name, "path"}};
	char held[UNITS_CAP], most[UNITS_CAP];
	const struct doc *reply;

	if (get_list(c, &reply, err) < 0 ||
	    out_list(c, out_sorted(c, doc_get(reply, "repositories"), "bytes", true), cols,
	             COUNT(cols), "no repositories", err) < 0)
		return -1;
	out_message(c, "your team: %s of %s",
	            units_show_bytes((uint64_t)doc_int(doc_get(reply, "bytes"), 0), held),
	            units_show_bytes((uint64_t)doc_int(doc_get(reply, "quota_bytes"), 0), most));
	return 0;
}

/* "[models/|datasets/|spaces/]OWNER/NAME", as tools have it. */
static int repo_path(struct cli *c, const char *word, const char **out, struct err *err)
{
	static const char *const types[] = {"models/", "datasets/", "spaces/"};
	const char *type = types[0], *slash;

	for (size_t i = 0; i < COUNT(types); i++) {
		if (strncmp(word, types[i], strlen(types[i])) != 0)
			continue;
		type = types[i];
		word += strlen(types[i]);
		break;
	}
	slash = strchr(word, '/');
	if (slash == NULL || slash == word || slash[1] == '\0' || strchr(slash + 1, '/') != NULL)
		return err_set(err, ERR_USAGE,
		               "\"%.200s\" is not the name of a repository: OWNER/NAME, "
		               "datasets/OWNER/NAME or spaces/OWNER/NAME",
		               c->arg[0]);
	*out = arena_printf(
		c->arena, "/v1/repositories/%s%s/%s", type,
		remote_part(c, arena_strz(c->arena, str_n(word, (size_t)(slash - word)))),
		remote_part(c, slash + 1));
	return 0;
}

static void show_refs(struct cli *c, const char *label, const struct doc *list)
{
	DOC_EACH (r, list) {
		out_line(label, "%s  %s", out_cell_of(c, re_commit, doc_get(r, "commit")),
		         out_name(c->arena, doc_text(doc_get(r, "name"))));
		label = "";
	}
}

static void show_commits(struct cli *c, const struct doc *list)
{
	const char *label = "commits";

	DOC_EACH (m, list) {
		out_line(label, "%s  %s  %s  %s", out_cell_of(c, re_commit, doc_get(m, "commit")),
		         out_cell_of(c, cell_age, doc_get(m, "created_at")),
		         out_name(c->arena, doc_text(doc_get(m, "author"))),
		         out_plain(c->arena, doc_text(doc_get(m, "title"))));
		label = "";
	}
}

static void next_steps(const struct cli *c, const char *type, const char *id)
{
	const char *kind = strcmp(type, "datasets") == 0 ? " --repo-type dataset"
	                   : strcmp(type, "spaces") == 0 ? " --repo-type space"
	                                                 : "";
	const char *lines[] = {
		arena_printf(
			c->arena,
			"hf upload %s .%s     # with HF_ENDPOINT and HF_TOKEN set, see docs/hub.md",
			id, kind),
		arena_printf(c->arena, "hf download %s%s", id, kind),
	};

	out_next(c, lines, COUNT(lines));
}

int cmd_repos_show(struct cli *c, struct err *err)
{
	const struct doc *reply, *r;
	char size[UNITS_CAP], all[UNITS_CAP];
	enum out_form form;
	const char *path;

	if (out_form_one(c, &form, err) < 0 || repo_path(c, c->arg[0], &path, err) < 0 ||
	    remote_get(c, &reply, err, "%s", path) < 0)
		return -1;
	if (form != OUT_TABLE) {
		out_one(form, reply);
		return 0;
	}
	r = doc_get(reply, "repository");
	out_line("repository", "%s", out_name(c->arena, doc_text(doc_get(r, "path"))));
	out_line("visibility", "%s", doc_bool(doc_get(r, "private"), false) ? "private" : "public");
	out_line("owner", "%s (%s)", out_name(c->arena, doc_text(doc_get(r, "owner"))),
	         doc_bool(doc_get(r, "of_user"), false) ? "user" : "team");
	out_line("created", "%s ago", out_cell_of(c, cell_age, doc_get(r, "created_at")));
	out_line("files", "%s in main, %s",
	         out_count(c, (uint64_t)doc_int(doc_get(reply, "files"), 0), "file"),
	         units_show_bytes((uint64_t)doc_int(doc_get(reply, "files_bytes"), 0), size));
	out_line("stored", "%s, with all commits",
	         units_show_bytes((uint64_t)doc_int(doc_get(r, "bytes"), 0), all));
	show_refs(c, "branches", doc_get(reply, "branches"));
	show_refs(c, "tags", doc_get(reply, "tags"));
	show_commits(c, doc_get(reply, "commits"));
	next_steps(c, doc_cstr(doc_get(r, "type"), ""), doc_cstr(doc_get(r, "id"), ""));
	return 0;
}

int cmd_repos_create(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)64 << 10);
	const char *slash = strchr(c->arg[0], '/');
	const struct doc *reply, *r;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	if (slash != NULL)
		js_kv(&js, "owner",
		      arena_strz(c->arena, str_n(c->arg[0], (size_t)(slash - c->arg[0]))));
	js_kv(&js, "name", slash != NULL ? slash + 1 : c->arg[0]);
	js_kv(&js, "type", opt_text(c, "type", "models"));
	js_kv_bool(&js, "private", opt_flag(c, "private"));
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/repositories", &body, &reply, err) < 0)
		return -1;
	r = doc_get(reply, "repository");
	out_message(c, "created %s (%s)", doc_cstr(doc_get(r, "path"), ""),
	            doc_bool(doc_get(r, "private"), false) ? "private" : "public");
	next_steps(c, doc_cstr(doc_get(r, "type"), ""), doc_cstr(doc_get(r, "id"), ""));
	return 0;
}

int cmd_repos_rm(struct cli *c, struct err *err)
{
	const struct doc *reply;
	char question[400];
	const char *path;

	if (repo_path(c, c->arg[0], &path, err) < 0)
		return -1;
	(void)snprintf(question, sizeof(question),
	               "Delete repository %.200s with all of its commits? It cannot be undone.",
	               c->arg[0]);
	if (out_confirm(c, question, NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE, path, NULL, &reply, err) < 0)
		return -1;
	out_message(c, "deleted %s", c->arg[0]);
	return 0;
}
