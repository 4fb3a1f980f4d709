/* cmd_checkpoints.c - checkpoints: list, show, pull with verification, mark, delete. */
#include "cli/joblist.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/shown.h"
#include "base/units.h"
#include "core/ckpt.h"
#include "core/glob.h"

#define PAGES_MAX 1000
#define PULL_TRIES 6
#define NAME_SHOWN 200                /* bytes of a name that is refused */
#define PULL_DIR "checkpoints"        /* what a push leaves out by default */
#define SHOWN_MAX ((size_t)256 << 20) /* of JSON about one checkpoint, or a project's */

static void ck_state(const struct doc *d, struct buf *b)
{
	cell_text(doc_get(d, "state"), b);
	if (doc_bool(doc_get(d, "pinned"), false))
		buf_puts(b, " pinned");
}

/* Why it is not complete; what is still to come of one that is being saved over. */
static void ck_why(const struct doc *d, struct buf *b)
{
	if (!doc_bool(doc_get(d, "complete"), false))
		cell_text(doc_get(d, "reason"), b);
	else if (doc_is(doc_get(d, "updating"), DOC_TEXT))
		cell_text(doc_get(d, "updating"), b);
}

static const struct out_col ck_cols[] = {
	{"CHECKPOINT", false, cell_name, "checkpoint_id"},
	{"JOB", false, cell_text, "training_job_id"},
	{"RANK", true, cell_text, "node_rank"},
	{"TYPE", false, cell_text, "checkpoint_type"},
	{"STATE", false, ck_state, NULL},
	{"SIZE", true, cell_bytes, "size_bytes"},
	{"FILES", true, cell_text, "files"},
	{"AGE", true, cell_age, "created_at"},
	{"WHY", false, ck_why, NULL},
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

/* Checkpoints of all jobs of a project, newest job first. */
static int list_of_project(struct cli *c, const char *name, const struct doc **list,
                           struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SHOWN_MAX);
	const struct doc *project, *of_job;
	struct joblist found;
	struct joblist_want want = {0};
	struct js js;

	if (resolve_project(c, name, &project, err) < 0)
		return -1;
	want.project_id = doc_cstr(doc_get(project, "id"), "");
	if (joblist(c, &want, &found, err) < 0)
		return -1;
	js_init(&js, &text);
	js_list(&js);
	DOC_EACH (job, found.list) {
		if (list_checkpoints(c, job, opt_flag(c, "all"), &of_job, err) < 0)
			return -1;
		DOC_EACH (ck, of_job) {
			js_doc(&js, ck);
		}
	}
	js_end(&js);
	return buf_check(&text, "list of checkpoints", err) < 0 ||
	                       js_parse(c->arena, buf_view(&text), list, err) < 0
	               ? -1
	               : 0;
}

int cmd_checkpoints_ls(struct cli *c, struct err *err)
{
	const struct doc *job, *list;
	const char *project = opt_text(c, "project", NULL);

	if (project != NULL && c->n_arg > 0)
		return err_set(err, ERR_USAGE, "name a job or --project, not both");
	if (project != NULL && list_of_project(c, project, &list, err) < 0)
		return -1;
	if (project == NULL &&
	    (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0 ||
	     list_checkpoints(c, job, opt_flag(c, "all"), &list, err) < 0))
		return -1;
	return out_list(c, list, ck_cols, COUNT(ck_cols),
	                opt_flag(c, "all") ? "no checkpoints"
	                                   : "no checkpoints (--all shows incomplete ones)",
	                err);
}

static int find_checkpoint(struct cli *c, const char *word, enum several several,
                           const struct doc **job, const struct doc **ck, struct err *err)
{
	return resolve_checkpoint(c, word, opt_text(c, "job", NULL), several, job, ck, err);
}

static int each_file(struct cli *c, const struct doc *job, const char *name,
                     int (*fn)(struct cli *c, const struct doc *file, void *arg, struct err *err),
                     void *arg, struct err *err)
{
	int64_t token = 0;

	for (int page = 0; page < PAGES_MAX; page++) {
		const struct doc *reply;

		if (remote_get(c, &reply, err,
		               "%s?page_size=1000&page_token=%" PRId64 "&checkpoint=%s%s",
		               job_path(c, job, "/checkpoint_files"), token, remote_part(c, name),
		               c->around ? "&by_server=true" : "") < 0)
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

/* "safetensors, whole", "torch zip: lacks 28 of 60 tensors", "-" */
static const char *checked_as(struct cli *c, const struct doc *file)
{
	const char *format = doc_cstr(doc_get(file, "format"), "-");
	const char *note = doc_cstr(doc_get(file, "note"), NULL);

	if (note != NULL)
		return arena_printf(c->arena, "%s: %s", format, note);
	if (doc_bool(doc_get(file, "whole"), false))
		return arena_printf(c->arena, "%s, whole", format);
	return format;
}

static int show_file(struct cli *c, const struct doc *file, void *arg UNUSED,
                     struct err *err UNUSED)
{
	char size[UNITS_CAP];

	out_put("  rank-%" PRId64 "/%-50s %10s  %s\n", doc_int(doc_get(file, "node_rank"), 0),
	        out_name(c->arena, doc_text(doc_get(file, "relative_file_name"))),
	        units_show_bytes((uint64_t)doc_int(doc_get(file, "size_bytes"), 0), size),
	        out_plain(c->arena, str_of(checked_as(c, file))));
	return 0;
}

static int file_json(struct cli *c UNUSED, const struct doc *file, void *arg,
                     struct err *err UNUSED)
{
	static const char *const keys[] = {"relative_file_name",
	                                   "node_rank",
	                                   "size_bytes",
	                                   "last_modified",
	                                   "sha256",
	                                   "format",
	                                   "whole",
	                                   "note",
	                                   "checked_at"};
	struct js *js = arg;

	js_open(js);
	for (size_t i = 0; i < COUNT(keys); i++) {
		if (doc_get(file, keys[i]) == NULL)
			continue;
		js_key(js, keys[i]);
		js_doc(js, doc_get(file, keys[i]));
	}
	js_close(js);
	return 0;
}

/* The checkpoint as the API shows it, with its files as one member more. */
static int show_json(struct cli *c, const struct doc *job, const struct doc *ck, enum out_form form,
                     struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SHOWN_MAX);
	const struct doc *whole;
	struct js js;

	js_init(&js, &text);
	js_open(&js);
	DOC_EACH (member, ck) {
		js_key(&js, arena_strz(c->arena, member->key));
		js_doc(&js, member);
	}
	js_key(&js, "checkpoint_files");
	js_list(&js);
	if (each_file(c, job, doc_cstr(doc_get(ck, "checkpoint_id"), ""), file_json, &js, err) < 0)
		return -1;
	js_end(&js);
	js_close(&js);
	if (buf_check(&text, "list of files", err) < 0 ||
	    js_parse(c->arena, buf_view(&text), &whole, err) < 0)
		return -1;
	out_one(form, whole);
	return 0;
}

/* Which rule decided the state; core/ckpt_rule.h lists the rules. */
static const struct out_col decision_cols[] = {
	{"REASON", false, cell_text, "reason"},     {"RULE", false, cell_text, "rule"},
	{"TRAINER", false, cell_text, "trainer"},   {"REVISION", false, cell_text, "revision"},
	{"UPDATING", false, cell_text, "updating"}, {"MARKED BY", false, cell_text, "marked_by"},
};

static void show_cells(const struct doc *ck, const struct out_col *cols, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		AUTO_BUF struct buf b = BUF_INIT(65536);

		out_cell(&cols[i], ck, &b);
		out_put("%-12s %s\n", cols[i].title, buf_cstr(&b));
	}
}

/* The rules doubt what they cannot prove; a person can look. */
static void show_way_out(struct cli *c, const struct doc *job, const struct doc *ck)
{
	const char *id = arena_printf(c->arena, "%s/%s", doc_cstr(doc_get(job, "id"), "?"),
	                              out_name(c->arena, doc_text(doc_get(ck, "checkpoint_id"))));

	const char *lines[] = {
		arena_printf(c->arena,
	                     "stoker checkpoints pull --incomplete %s  # look at its files", id),
		arena_printf(c->arena,
	                     "stoker checkpoints complete %s           # they are whole: jobs may "
	                     "resume from it",
	                     id),
	};

	if (strcmp(doc_cstr(doc_get(ck, "state"), ""), ckpt_state_word(CKPT_INCOMPLETE)) == 0)
		out_next(c, lines, COUNT(lines));
}

int cmd_checkpoints_show(struct cli *c, struct err *err)
{
	const struct doc *job, *ck;
	enum out_form form;

	if (out_form_one(c, &form, err) < 0 ||
	    find_checkpoint(c, c->arg[0], SEVERAL_NEWEST, &job, &ck, err) < 0)
		return -1;
	if (form != OUT_TABLE)
		return show_json(c, job, ck, form, err);
	show_cells(ck, ck_cols, COUNT(ck_cols) - 1); /* WHY: the reason, whatever the state */
	show_cells(ck, decision_cols, COUNT(decision_cols));
	(void)printf("files\n");
	if (each_file(c, job, doc_cstr(doc_get(ck, "checkpoint_id"), ""), show_file, NULL, err) < 0)
		return -1;
	show_way_out(c, job, ck);
	return 0;
}

struct pull {
	unsigned magic;
#define PULL_MAGIC 0x4c50554cU
	int root;
	const char
		*part; /* a file until it is whole; what the server names is in folders beside it */
	struct map *names;
	const char *checkpoint, *include;
	const char *url; /* of the first file; NULL: there is none */
	uint64_t files, bytes, total;
	uint64_t left; /* files whose names deceive: they are not written */
};

struct sink {
	unsigned magic;
#define SINK_MAGIC 0x4c53494eU
	int fd;
	struct hash *hash;
	struct pull *pull;
	struct cli *c;
};

static int sink_file(void *arg, const void *p, size_t n, struct err *err)
{
	struct sink *s = FROM_VOID(struct sink, arg, SINK_MAGIC);
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
	struct sink s = {.magic = SINK_MAGIC, .fd = fd, .hash = h, .pull = p, .c = c};
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
			               "the checksum of %s differs from the stored one",
			               doc_cstr(doc_get(file, "relative_file_name"), "?"));
	}
	return 0;
}

/* By its path in the checkpoint, in the job's folder, or as `show` prints it. */
static bool is_included(const struct pull *p, const char *name, const char *shown)
{
	size_t n = strlen(p->checkpoint);
	struct str glob;

	if (p->include == NULL)
		return true;
	glob = str_of(p->include);
	if (strncmp(name, p->checkpoint, n) == 0 && name[n] == '/' &&
	    glob_match(glob, str_of(name + n + 1)))
		return true;
	return glob_match(glob, str_of(name)) || glob_match(glob, str_of(shown));
}

static char *path_of(struct cli *c, const struct doc *file)
{
	return arena_printf(c->arena, "rank-%" PRId64 "/%s", doc_int(doc_get(file, "node_rank"), 0),
	                    doc_cstr(doc_get(file, "relative_file_name"), ""));
}

/* The server may be a stranger's: a name leads nowhere else. */
static int check_name(struct str name, struct err *err)
{
	const char *why = ckpt_path_fault(name);
	char seen[NAME_SHOWN];

	if (why == NULL)
		return 0;
	return err_set(err, ERR_FILE_NAME_REFUSED,
	               "the server lists the file \"%s\": %s; --include GLOB can leave it out",
	               shown_cut(name, seen, sizeof(seen)), why);
}

/* A job may have made such a file, but here it would look like another one. */
static bool looks_like_another(struct str name)
{
	return ckpt_path_fault(name) == NULL && shown_deceives(name);
}

static void leave_out(struct cli *c, struct pull *p, struct str name)
{
	p->left++;
	out_message(c, "left out: \"%s\": its name turns the text around",
	            out_name(c->arena, name));
}

static int list_name(struct cli *c, const struct doc *file, void *arg, struct err *err)
{
	struct pull *p = FROM_VOID(struct pull, arg, PULL_MAGIC);
	const char *name = doc_cstr(doc_get(file, "relative_file_name"), "");
	const char *path = path_of(c, file);

	if (!is_included(p, name, path))
		return 0;
	if (looks_like_another(str_of(name))) {
		leave_out(c, p, str_of(name));
		return 0;
	}
	if (check_name(doc_text(doc_get(file, "relative_file_name")), err) < 0)
		return -1;
	if (p->url == NULL)
		p->url = doc_cstr(doc_get(file, "url"), NULL);
	if (map_set(p->names, str_of(path), p) != NULL)
		return err_set(err, ERR_FILE_NAME_REFUSED, "the server lists the file \"%s\" twice",
		               name);
	return 0;
}

struct parents {
	unsigned magic;
#define PARENTS_MAGIC 0x4c504152U
	struct map *names;
	const char *file; /* found to be a folder too */
	struct arena *arena;
};

static void check_parents(struct str path, void *value UNUSED, void *arg)
{
	struct parents *p = FROM_VOID(struct parents, arg, PARENTS_MAGIC);

	for (size_t i = 0; i < path.n; i++)
		if (path.p[i] == '/' && map_get(p->names, str_n(path.p, i)) != NULL)
			p->file = arena_strz(p->arena, str_n(path.p, i));
}

/* All names, before the first file is written. */
static int check_names(struct cli *c, const struct doc *job, struct pull *p, struct err *err)
{
	AUTO_MAP struct map *names = map_new();
	struct parents parents = {.magic = PARENTS_MAGIC, .names = names, .arena = c->arena};

	p->names = names;
	if (each_file(c, job, p->checkpoint, list_name, p, err) < 0)
		return -1;
	map_each(names, check_parents, &parents);
	if (parents.file != NULL)
		return err_set(err, ERR_FILE_NAME_REFUSED,
		               "the server lists \"%s\" as a file and as a folder", parents.file);
	return 0;
}

static int pull_file(struct cli *c, const struct doc *file, void *arg, struct err *err)
{
	struct pull *p = FROM_VOID(struct pull, arg, PULL_MAGIC);
	const char *name = doc_cstr(doc_get(file, "relative_file_name"), "");
	struct retry r = RETRY_INIT(PULL_TRIES);
	char *path = path_of(c, file), *slash;
	uint64_t before = p->bytes;

	if (!is_included(p, name, path) || looks_like_another(str_of(name)))
		return 0;
	if (check_name(doc_text(doc_get(file, "relative_file_name")), err) < 0)
		return -1;
	slash = strrchr(path, '/');
	*slash = '\0';
	if (fs_mkdirs(p->root, path, 0755, err) < 0)
		return -1;
	*slash = '/';
	r.cancel = &interrupted;
	while (fetch_file(c, file, p, p->part, err) < 0) {
		p->bytes = before;
		if (!retry_again(&r, err))
			return err_wrap(err, "%s", name);
	}
	if (renameat(p->root, p->part, p->root, path) < 0)
		return err_errno(err, errno, "renaming %s to %s", p->part, path);
	p->files++;
	return 0;
}

static int drop(void *arg UNUSED, const void *p UNUSED, size_t n UNUSED, struct err *err UNUSED)
{
	return 0;
}

/* Files come from the object store, which may be where this machine cannot go. */
static int find_way(struct cli *c, const char *url, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	const struct http_header first_byte = {"Range", "bytes=0-0"};
	const struct http_call call = {.method = HTTP_GET,
	                               .url = url,
	                               .headers = &first_byte,
	                               .n_headers = 1,
	                               .sink = drop,
	                               .connect_ms = REMOTE_CONNECT_MS,
	                               .cancel = &interrupted};

	if (str_starts(str_of(url), arena_printf(c->arena, "%s/", c->url)))
		return 0; /* they are the server's */
	if (!remote_may_go(c, url)) {
		c->around = true;
		return 0;
	}
	if (http_do(c->http, &call, &reply, err) == 0)
		return 0;
	if (err->code == ERR_CANCELED)
		return -1;
	if (remote_is_unreachable(err))
		remote_go_around(c, err);
	err_clear(err); /* what may pass is tried again for each file */
	return 0;
}

/* So that git does not take it for code either. */
static int hide_from_git(int dir, struct err *err)
{
	if (faccessat(dir, ".gitignore", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return fs_write_atomic(dir, ".gitignore", STR_LIT("*\n"), 0644, err);
}

int cmd_checkpoints_pull(struct cli *c, struct err *err)
{
	const struct doc *job, *ck;
	const char *dir = c->n_arg > 1 ? c->arg[1] : PULL_DIR;
	struct pull p = {.magic = PULL_MAGIC, .include = opt_text(c, "include", NULL)};
	AUTO_FD int root = -1;
	char text[UNITS_CAP];

	catch_interrupt();
	if (find_checkpoint(c, c->arg[0], SEVERAL_NEWEST, &job, &ck, err) < 0)
		return -1;
	if (!str_eq(doc_text(doc_get(ck, "state")), "COMPLETE") && !opt_flag(c, "incomplete"))
		return err_set(err, ERR_CONFLICT,
		               "checkpoint %s is %s; --incomplete pulls it anyway",
		               doc_cstr(doc_get(ck, "checkpoint_id"), "?"),
		               doc_cstr(doc_get(ck, "state"), "?"));
	p.checkpoint = doc_cstr(doc_get(ck, "checkpoint_id"), "");
	if (check_names(c, job, &p, err) < 0)
		return -1;
	if (p.url == NULL && p.left > 0)
		return err_set(err, ERR_FILE_NAME_REFUSED,
		               "checkpoint %s has no other file that was to be pulled",
		               p.checkpoint);
	if ((p.url != NULL && find_way(c, p.url, err) < 0) ||
	    fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0 || (root = fs_open_dir(dir, err)) < 0 ||
	    (c->n_arg < 2 && hide_from_git(root, err) < 0))
		return -1;
	p.root = root;
	p.part = arena_printf(c->arena, ".pull-%d.part", (int)getpid());
	p.total = (uint64_t)doc_int(doc_get(ck, "size_bytes"), 0);
	if (each_file(c, job, p.checkpoint, pull_file, &p, err) < 0) {
		(void)unlinkat(root, p.part, 0);
		out_progress_end(c);
		if (err->code != ERR_CANCELED)
			return -1;
		err_clear(err);
		return err_set(err, ERR_CANCELED, "canceled: %s of checkpoint %s in %s",
		               out_count(c, p.files, "file"), p.checkpoint, dir);
	}
	out_progress_end(c);
	/* Once for all: two calls for each of ten thousand files take a minute. */
	if (syncfs(root) < 0)
		return err_errno(err, errno, "writing %s", dir);
	if (p.files == 0 && p.include != NULL)
		return err_set(err, ERR_NOT_FOUND,
		               "no file of checkpoint %s matches \"%s\"; `stoker checkpoints show` "
		               "lists them",
		               p.checkpoint, p.include);
	out_message(c, "pulled %s, %s, verified, into %s%s", out_count(c, p.files, "file"),
	            units_show_bytes(p.bytes, text), dir,
	            p.left == 0 ? ""
	                        : arena_printf(c->arena, "; %s left out",
	                                       out_count(c, p.left, "file")));
	return 0;
}

static const char *checkpoint_path(struct cli *c, const struct doc *job, const struct doc *ck)
{
	return arena_printf(c->arena, "%s?checkpoint=%s", job_path(c, job, "/checkpoints"),
	                    remote_part(c, doc_cstr(doc_get(ck, "checkpoint_id"), "")));
}

static int set_pinned(struct cli *c, bool pinned, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(100);
	const struct doc *job, *ck, *reply;

	if (find_checkpoint(c, c->arg[0], SEVERAL_REFUSE, &job, &ck, err) < 0)
		return -1;
	buf_puts(&body, pinned ? "{\"pinned\":true}" : "{\"pinned\":false}");
	if (remote_call(c, HTTP_PATCH, checkpoint_path(c, job, ck), &body, &reply, err) < 0)
		return -1;
	out_message(c, pinned ? "pinned: kept until you unpin it, regardless of keep_last"
	                      : "unpinned");
	return 0;
}

int cmd_checkpoints_pin(struct cli *c, struct err *err)
{
	return set_pinned(c, true, err);
}

int cmd_checkpoints_unpin(struct cli *c, struct err *err)
{
	return set_pinned(c, false, err);
}

/* Whatever the rules say: what a person has looked at. */
int cmd_checkpoints_complete(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(100);
	const struct doc *job, *ck, *reply;
	enum out_form form;
	const char *id;

	if (out_form_one(c, &form, err) < 0 ||
	    find_checkpoint(c, c->arg[0], SEVERAL_REFUSE, &job, &ck, err) < 0)
		return -1;
	id = arena_printf(c->arena, "%s/%s", doc_cstr(doc_get(job, "id"), "?"),
	                  doc_cstr(doc_get(ck, "checkpoint_id"), "?"));
	if (!doc_bool(doc_get(ck, "complete"), false) &&
	    out_confirm(c,
	                arena_printf(c->arena, "%s is %s (%s). Mark it as complete?", id,
	                             doc_cstr(doc_get(ck, "state"), "?"),
	                             doc_cstr(doc_get(ck, "reason"), "no reason is known")),
	                NULL, err) < 0)
		return -1;
	buf_puts(&body, "{\"complete\":true}");
	if (remote_call(c, HTTP_PATCH, checkpoint_path(c, job, ck), &body, &reply, err) < 0 ||
	    resolve_checkpoint(c, id, NULL, SEVERAL_REFUSE, &job, &ck, err) < 0)
		return -1;
	if (form != OUT_TABLE)
		out_one(form, ck);
	else
		out_message(c, "%s is complete: %s", id,
		            doc_cstr(doc_get(ck, "reason"), "its files prove it"));
	return 0;
}

int cmd_checkpoints_rm(struct cli *c, struct err *err)
{
	const struct doc *job, *ck, *reply;

	if (find_checkpoint(c, c->arg[0], SEVERAL_REFUSE, &job, &ck, err) < 0)
		return -1;
	if (out_confirm(c,
	                arena_printf(c->arena, "Delete checkpoint %s of job %s for good?",
	                             out_name(c->arena, doc_text(doc_get(ck, "checkpoint_id"))),
	                             doc_cstr(doc_get(job, "id"), "?")),
	                NULL, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE, checkpoint_path(c, job, ck), NULL, &reply, err) < 0)
		return -1;
	out_message(c, "deleted");
	return 0;
}
