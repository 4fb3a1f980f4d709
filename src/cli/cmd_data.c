/* cmd_data.c - checkpoints, cache and weights. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/units.h"
#include "core/glob.h"

#define PAGES_MAX 1000
#define PULL_TRIES 6
#define DU_ROWS_MAX 100000

/* ---- checkpoints ---- */

static void ck_name(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "checkpoint_id"), b);
}
static void ck_job(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "training_job_id"), b);
}
static void ck_rank(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "node_rank"), b);
}
static void ck_type(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "checkpoint_type"), b);
}
static void ck_state(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "state"), b);
}
static void ck_size(const struct doc *d, struct buf *b)
{
	cell_bytes(doc_get(d, "size_bytes"), b);
}
static void ck_files(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "files"), b);
}
static void ck_age(const struct doc *d, struct buf *b)
{
	cell_age(doc_get(d, "created_at"), b);
}

static const struct out_col ck_cols[] = {
	{"CHECKPOINT", false, ck_name}, {"JOB", false, ck_job},     {"RANK", true, ck_rank},
	{"TYPE", false, ck_type},       {"STATE", false, ck_state}, {"SIZE", true, ck_size},
	{"FILES", true, ck_files},      {"AGE", true, ck_age},
};

static int list_checkpoints(struct cli *c, const struct doc *job, bool all, const struct doc **list,
                            struct err *err)
{
	const struct doc *reply;

	if (remote_get(c, &reply, err, "%s%s", job_path(c, job, "/checkpoints"),
	               all ? "?all=true" : "") < 0)
		return -1;
	*list = doc_get(reply, "checkpoints");
	return 0;
}

int cmd_checkpoints_ls(struct cli *c, struct err *err)
{
	const struct doc *job, *list;

	if (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", &job, err) < 0 ||
	    list_checkpoints(c, job, opt_flag(c, "all"), &list, err) < 0)
		return -1;
	return out_list(c, list, ck_cols, COUNT(ck_cols),
	                "no checkpoints (--all shows incomplete ones)", err);
}

/* "JOB/NAME", or NAME of --job, or of the newest job; NAME "latest" is the newest complete one. */
static int find_checkpoint(struct cli *c, const char *word, const struct doc **job,
                           const struct doc **ck, struct err *err)
{
	const char *slash = strchr(word, '/');
	const char *job_word = opt_text(c, "job", "@"), *name = word;
	const struct doc *list;

	if (slash != NULL && !opt_flag(c, "job")) {
		job_word = arena_strz(c->arena, str_n(word, (size_t)(slash - word)));
		name = slash + 1;
	}
	if (resolve_job(c, job_word, job, err) < 0 ||
	    list_checkpoints(c, *job, true, &list, err) < 0)
		return -1;
	*ck = NULL;
	DOC_EACH (d, list) {
		if (strcmp(name, "latest") == 0
		            ? str_eq(doc_text(doc_get(d, "state")), "COMPLETE") &&
		                      (*ck == NULL ||
		                       strcmp(doc_cstr(doc_get(d, "created_at"), ""),
		                              doc_cstr(doc_get(*ck, "created_at"), "")) > 0)
		            : str_eq(doc_text(doc_get(d, "checkpoint_id")), name))
			*ck = d;
	}
	if (*ck == NULL)
		return err_set(err, ERR_NOT_FOUND,
		               "job %s has no checkpoint \"%s\": stoker checkpoints ls %s --all",
		               doc_cstr(doc_get(*job, "id"), "?"), name,
		               doc_cstr(doc_get(*job, "id"), "?"));
	return 0;
}

static int each_file(struct cli *c, const struct doc *job, const char *name,
                     int (*fn)(struct cli *c, const struct doc *file, void *arg, struct err *err),
                     void *arg, struct err *err)
{
	int64_t token = 0;

	for (int page = 0; page < PAGES_MAX; page++) {
		const struct doc *reply;

		if (remote_get(c, &reply, err,
		               "%s?page_size=1000&page_token=%" PRId64 "&checkpoint=%s",
		               job_path(c, job, "/checkpoint_files"), token,
		               remote_part(c, name)) < 0)
			return -1;
		DOC_EACH (file, doc_get(reply, "presigned_urls")) {
			if (fn(c, file, arg, err) < 0)
				return -1;
		}
		token = doc_int(doc_get(reply, "next_page_token"), 0);
		if (token == 0)
			return 0;
	}
	return err_set(err, ERR_TOO_BIG, "the checkpoint has more than %d files", PAGES_MAX * 1000);
}

static int show_file(struct cli *c UNUSED, const struct doc *file, void *arg UNUSED,
                     struct err *err UNUSED)
{
	char size[UNITS_CAP];

	(void)printf("  rank-%" PRId64 "/%-50s %10s\n", doc_int(doc_get(file, "node_rank"), 0),
	             doc_cstr(doc_get(file, "relative_file_name"), "?"),
	             units_show_bytes((uint64_t)doc_int(doc_get(file, "size_bytes"), 0), size));
	return 0;
}

int cmd_checkpoints_show(struct cli *c, struct err *err)
{
	const struct doc *job, *ck;
	enum out_form form;

	if (out_form(c, &form, err) < 0 || find_checkpoint(c, c->arg[0], &job, &ck, err) < 0)
		return -1;
	if (form != OUT_TABLE) {
		out_json(ck);
		return 0;
	}
	for (size_t i = 0; i < COUNT(ck_cols); i++) {
		AUTO_BUF struct buf b = BUF_INIT(65536);

		ck_cols[i].cell(ck, &b);
		(void)printf("%-12s %s\n", ck_cols[i].title, buf_cstr(&b));
	}
	(void)printf("files\n");
	return each_file(c, job, doc_cstr(doc_get(ck, "checkpoint_id"), ""), show_file, NULL, err);
}

struct pull {
	int root;
	const char *include;
	uint64_t files, bytes, total;
};

struct sink {
	int fd;
	struct hash *hash;
	struct pull *pull;
	struct cli *c;
};

static int sink_file(void *arg, const void *p, size_t n, struct err *err)
{
	struct sink *s = arg;
	char done[UNITS_CAP], total[UNITS_CAP];

	hash_add(s->hash, p, n);
	s->pull->bytes += n;
	out_progress(s->c, "pulling %s of %s", units_show_bytes(s->pull->bytes, done),
	             units_show_bytes(s->pull->total, total));
	return fs_write_all(s->fd, p, n, err);
}

/* One file to a temporary name, hashed on the way. */
static int fetch_file(struct cli *c, const struct doc *file, struct pull *p, const char *temp,
                      struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(p->root, temp, O_WRONLY | O_CREAT | O_TRUNC, 0644, err);
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct sink s = {.fd = fd, .hash = h, .pull = p, .c = c};
	struct http_call call = {.method = HTTP_GET,
	                         .url = doc_cstr(doc_get(file, "url"), ""),
	                         .sink = sink_file,
	                         .arg = &s,
	                         .cancel = &interrupted};
	struct digest want, got;

	if (fd < 0 || http_do(c->http, &call, &reply, err) < 0 ||
	    http_expect(&call, &reply, err) < 0)
		return -1;
	(void)hash_end(h, got.b);
	if (doc_is(doc_get(file, "sha256"), DOC_TEXT)) {
		if (digest_parse(doc_text(doc_get(file, "sha256")), &want, err) < 0)
			return -1;
		if (!digest_same(&want, &got))
			return err_set(err, ERR_CORRUPT,
			               "%s arrived with another digest than it was stored with",
			               doc_cstr(doc_get(file, "relative_file_name"), "?"));
	}
	return fsync(fd) < 0 ? err_errno(err, errno, "writing %s", temp) : 0;
}

static int pull_file(struct cli *c, const struct doc *file, void *arg, struct err *err)
{
	struct pull *p = arg;
	const char *name = doc_cstr(doc_get(file, "relative_file_name"), "");
	struct retry r = RETRY_INIT(PULL_TRIES);
	char *path, *temp, *slash;
	uint64_t before = p->bytes;

	if (!fs_path_is_plain(str_of(name)))
		return err_set(err, ERR_CORRUPT, "the server names a file \"%s\"", name);
	if (p->include != NULL && !glob_match(str_of(p->include), str_of(name)))
		return 0;
	path = arena_printf(c->arena, "rank-%" PRId64 "/%s", doc_int(doc_get(file, "node_rank"), 0),
	                    name);
	temp = arena_printf(c->arena, "%s.part", path);
	slash = strrchr(path, '/');
	*slash = '\0';
	if (fs_mkdirs(p->root, path, 0755, err) < 0)
		return -1;
	*slash = '/';
	r.cancel = &interrupted;
	while (fetch_file(c, file, p, temp, err) < 0) {
		p->bytes = before;
		if (!retry_again(&r, err))
			return err_wrap(err, "%s", name);
	}
	p->files++;
	return fs_rename(p->root, temp, p->root, path, err);
}

int cmd_checkpoints_pull(struct cli *c, struct err *err)
{
	const struct doc *job, *ck;
	const char *dir = c->n_arg > 1 ? c->arg[1] : ".";
	struct pull p = {.include = opt_text(c, "include", NULL)};
	AUTO_FD int root = -1;
	char text[UNITS_CAP];

	catch_interrupt();
	if (find_checkpoint(c, c->arg[0], &job, &ck, err) < 0)
		return -1;
	if (!str_eq(doc_text(doc_get(ck, "state")), "COMPLETE") && !opt_flag(c, "incomplete"))
		return err_set(err, ERR_CONFLICT,
		               "checkpoint %s is %s: --incomplete pulls what there is",
		               doc_cstr(doc_get(ck, "checkpoint_id"), "?"),
		               doc_cstr(doc_get(ck, "state"), "?"));
	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0 || (root = fs_open_dir(dir, err)) < 0)
		return -1;
	p.root = root;
	p.total = (uint64_t)doc_int(doc_get(ck, "size_bytes"), 0);
	if (each_file(c, job, doc_cstr(doc_get(ck, "checkpoint_id"), ""), pull_file, &p, err) < 0) {
		out_progress_end(c);
		return -1;
	}
	out_progress_end(c);
	out_say(c, "pulled %" PRIu64 " files, %s, verified, into %s", p.files,
	        units_show_bytes(p.bytes, text), dir);
	return 0;
}

int cmd_checkpoints_rm(struct cli *c, struct err *err)
{
	const struct doc *job, *ck, *reply;
	char question[200];

	if (find_checkpoint(c, c->arg[0], &job, &ck, err) < 0)
		return -1;
	(void)snprintf(question, sizeof(question), "Delete checkpoint %.80s of job %.20s for good?",
	               doc_cstr(doc_get(ck, "checkpoint_id"), "?"),
	               doc_cstr(doc_get(job, "id"), "?"));
	if (out_confirm(c, question, NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE,
	                arena_printf(c->arena, "%s/%s", job_path(c, job, "/checkpoints"),
	                             remote_part(c, doc_cstr(doc_get(ck, "checkpoint_id"), ""))),
	                NULL, &reply, err) < 0)
		return -1;
	out_say(c, "deleted");
	return 0;
}

/* ---- training cache ---- */

/* "/v1/training_projects/ID" of -p or the argument, "/v1/teams/ID" of --team. */
static int cache_base(struct cli *c, const char *word, const char **base, struct err *err)
{
	const char *team = opt_text(c, "team", NULL), *project = opt_text(c, "project", word);
	const struct doc *d;

	if (team != NULL) {
		if (resolve_team(c, team, &d, err) < 0)
			return -1;
		*base = arena_printf(c->arena, "/v1/teams/%s", doc_cstr(doc_get(d, "id"), ""));
		return 0;
	}
	if (resolve_project(c, project != NULL ? project : "@", &d, err) < 0)
		return -1;
	*base = arena_printf(c->arena, "/v1/training_projects/%s", doc_cstr(doc_get(d, "id"), ""));
	return 0;
}

static void cf_path(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "path"), b);
}
static void cf_size(const struct doc *d, struct buf *b)
{
	cell_bytes(doc_get(d, "size_bytes"), b);
}
static void cf_modified(const struct doc *d, struct buf *b)
{
	struct buf full = BUF_INIT(100);

	cell_text(doc_get(d, "modified"), &full);
	buf_str(b, str_n(full.p, MIN(full.n, (size_t)19)));
	buf_done(&full);
}
static void cf_type(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "file_type"), b);
}
static void cf_mode(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "permissions"), b);
}

static const struct out_col cf_cols[] = {{"PATH", false, cf_path},
                                         {"SIZE", true, cf_size},
                                         {"MODIFIED", false, cf_modified},
                                         {"TYPE", false, cf_type},
                                         {"PERMISSIONS", false, cf_mode}};

static const char *sort_key;
static bool sort_down;

static int by_key(const void *a, const void *b)
{
	const struct doc *x = doc_get(*(const struct doc *const *)a, sort_key);
	const struct doc *y = doc_get(*(const struct doc *const *)b, sort_key);
	int r;

	if (doc_is(x, DOC_INT) && doc_is(y, DOC_INT))
		r = (x->num > y->num) - (x->num < y->num);
	else
		r = strcmp(doc_cstr(x, ""), doc_cstr(y, ""));
	return sort_down ? -r : r;
}

/* A list in another order: the same children, linked anew. */
static const struct doc *sorted(struct cli *c, const struct doc *list, const char *key, bool down)
{
	struct doc *out = ARENA_NEW(c->arena, struct doc);
	const struct doc **row = ARENA_ARRAY(c->arena, const struct doc *, list->count);
	struct doc *last = NULL;
	size_t n = 0;

	DOC_EACH (d, list) {
		row[n++] = d;
	}
	sort_key = key;
	sort_down = down;
	qsort(row, n, sizeof(const struct doc *), by_key);
	*out = (struct doc){.kind = DOC_LIST, .count = n};
	for (size_t i = 0; i < n; i++) {
		struct doc *copy = ARENA_NEW(c->arena, struct doc);

		*copy = *row[i];
		copy->next = NULL;
		if (last == NULL)
			out->first = copy;
		else
			last->next = copy;
		last = copy;
	}
	return out;
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
	const char *base;
	const struct doc *reply, *files;
	enum out_form form;
	uint64_t total = 0;
	char text[UNITS_CAP];

	for (size_t i = 0; i < COUNT(sorts); i++)
		if (strcmp(sorts[i].word, by) == 0)
			key = sorts[i].key;
	if (key == NULL)
		return err_set(err, ERR_INVALID,
		               "--sort is filepath, size, modified, type or permissions");
	if (strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
		return err_set(err, ERR_INVALID, "--order is asc or desc");
	if (out_form(c, &form, err) < 0 ||
	    cache_base(c, c->n_arg > 0 ? c->arg[0] : NULL, &base, err) < 0)
		return -1;
	if (opt_flag(c, "last")) {
		if (remote_get(c, &reply, err, "%s/cache/summary", base) < 0)
			return -1;
	} else if (remote_call(c, HTTP_POST, arena_printf(c->arena, "%s/cache/summarize", base),
	                       &(struct buf)BUF_INIT(1), &reply, err) < 0) {
		return -1;
	}
	files = doc_get(reply, "file_summaries");
	if (files == NULL) {
		out_say(c, "No cache summary found for this project.");
		if (form == OUT_JSON)
			(void)puts("[]");
		return 0;
	}
	DOC_EACH (f, files) {
		total += (uint64_t)MAX(doc_int(doc_get(f, "size_bytes"), 0), (int64_t)0);
	}
	out_say(c, "captured %s, %zu entries, %s", doc_cstr(doc_get(reply, "timestamp"), "?"),
	        files->count, units_show_bytes(total, text));
	if (form == OUT_JSON) {
		out_json(reply);
		return 0;
	}
	return out_list(c, sorted(c, files, key, strcmp(order, "desc") == 0), cf_cols,
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

/* Sums files by their first `depth` folders. */
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
		path.n = cut;
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
	const char *base;
	const struct doc *reply, *list, *files;
	AUTO_BUF struct buf json = BUF_INIT((size_t)64 << 20);
	struct du_row *rows;
	struct js js;
	size_t n;
	static const struct out_col cols[] = {
		{"SIZE", true, cf_size}, {"FILES", true, ck_files}, {"PATH", false, cf_path}};

	if (cache_base(c, c->n_arg > 0 ? c->arg[0] : NULL, &base, err) < 0 ||
	    remote_call(c, HTTP_POST, arena_printf(c->arena, "%s/cache/summarize", base),
	                &(struct buf)BUF_INIT(1), &reply, err) < 0)
		return -1;
	files = doc_get(reply, "file_summaries");
	n = files == NULL ? 0 : sum_up(c, files, MAX(opt_int(c, "depth", 1), (int64_t)1), &rows);
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

int cmd_cache_rm(struct cli *c, struct err *err)
{
	const char *base;
	const struct doc *reply;
	char question[300], text[UNITS_CAP];

	if (cache_base(c, NULL, &base, err) < 0)
		return -1;
	(void)snprintf(question, sizeof(question), "Delete %.200s from the cache for good?",
	               c->arg[0]);
	if (out_confirm(c, question, NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE,
	                arena_printf(c->arena, "%s/cache/files?path=%s", base,
	                             remote_part(c, c->arg[0])),
	                NULL, &reply, err) < 0)
		return -1;
	out_say(c, "freed %s",
	        units_show_bytes((uint64_t)doc_int(doc_get(reply, "bytes_freed"), 0), text));
	return 0;
}

/* ---- weights ---- */

static void we_source(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "source"), b);
}
static void we_revision(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(doc_get(d, "revision"));

	buf_str(b, s.n > 0 ? str_n(s.p, MIN(s.n, (size_t)12)) : str_of("-"));
}
static void we_id(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "id"), b);
}
static void we_bytes(const struct doc *d, struct buf *b)
{
	cell_bytes(doc_get(d, "bytes"), b);
}
static void we_used(const struct doc *d, struct buf *b)
{
	cell_age(doc_get(d, "last_used_at"), b);
}

int cmd_weights_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"ID", false, we_id},
	                                      {"SOURCE", false, we_source},
	                                      {"REVISION", false, we_revision},
	                                      {"STATE", false, ck_state},
	                                      {"SIZE", true, we_bytes},
	                                      {"FILES", true, ck_files},
	                                      {"USED", true, we_used}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/weights") < 0)
		return -1;
	return out_list(c, doc_get(reply, "weights"), cols, COUNT(cols),
	                "no weights are mirrored yet", err);
}

static void list_option(struct cli *c, struct js *js, const char *opt, const char *key)
{
	const char *item[CLI_ARGS_MAX];
	size_t n = opt_list(c, opt, item, COUNT(item));

	if (n == 0)
		return;
	js_key(js, key);
	js_list(js);
	for (size_t i = 0; i < n; i++)
		js_cstr(js, item[i]);
	js_end(js);
}

int cmd_weights_prefetch(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	const struct doc *reply, *w;
	const char *id;
	struct js js;

	catch_interrupt();
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "source", c->arg[0]);
	if (opt_flag(c, "secret"))
		js_kv(&js, "auth_secret_name", opt_text(c, "secret", NULL));
	list_option(c, &js, "allow", "allow_patterns");
	list_option(c, &js, "ignore", "ignore_patterns");
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/weights", &body, &reply, err) < 0)
		return -1;
	w = doc_get(reply, "weights");
	if (doc_is(w, DOC_LIST))
		w = doc_first(w);
	id = doc_cstr(doc_get(w, "id"), "");
	for (;;) {
		const struct doc *found = NULL;
		char done[UNITS_CAP], total[UNITS_CAP], rate[UNITS_CAP];

		if (remote_get(c, &reply, err, "/v1/weights") < 0)
			return -1;
		DOC_EACH (d, doc_get(reply, "weights")) {
			if (str_eq(doc_text(doc_get(d, "id")), id))
				found = d;
		}
		if (found == NULL || str_eq(doc_text(doc_get(found, "state")), "FAILED"))
			return err_set(
				err, ERR_UNAVAILABLE, "%s: %s", c->arg[0],
				doc_cstr(doc_get(found, "error"), "it was removed meanwhile"));
		if (str_eq(doc_text(doc_get(found, "state")), "READY")) {
			out_progress_end(c);
			out_say(c, "%s is mirrored: %s", c->arg[0],
			        units_show_bytes((uint64_t)doc_int(doc_get(found, "bytes"), 0),
			                         total));
			return 0;
		}
		out_progress(
			c, "%s of %s, %s",
			units_show_bytes((uint64_t)doc_int(doc_get(found, "bytes_done"), 0), done),
			units_show_bytes((uint64_t)doc_int(doc_get(found, "bytes"), 0), total),
			units_show_rate(doc_real(doc_get(found, "rate_bytes_per_second"), 0),
		                        rate));
		clock_sleep_ms(300);
	}
}

int cmd_weights_rm(struct cli *c, struct err *err)
{
	const struct doc *reply;
	char question[200], text[UNITS_CAP];

	(void)snprintf(question, sizeof(question),
	               "Remove mirror %.80s? It is fetched again when asked for.", c->arg[0]);
	if (out_confirm(c, question, NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE,
	                arena_printf(c->arena, "/v1/weights/%s", remote_part(c, c->arg[0])), NULL,
	                &reply, err) < 0)
		return -1;
	out_say(c, "freed %s",
	        units_show_bytes((uint64_t)doc_int(doc_get(reply, "bytes_freed"), 0), text));
	return 0;
}
