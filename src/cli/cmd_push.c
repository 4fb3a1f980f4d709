/* cmd_push.c - push: read the job file, check it, upload the code, create the job, follow it. */
#include "cli/cli.h"

#include "base/fs.h"
#include "base/seal.h"
#include "base/units.h"
#include "base/yaml.h"
#include "cli/pack.h"
#include "cli/push_python.h"
#include "cli/upload.h"
#include "core/spec.h"

#define SETS_MAX 256
#define PROBLEM_LINE_MAX ((size_t)8 << 10)
#define CREATE_TRIES 8 /* some twenty seconds: a server that is being restarted */

struct push {
	const char *file, *root; /* the job file and its folder */
	struct job_spec spec;
	const char *team, *team_id; /* NULL = the token's */
	const char *project;        /* its id; NULL until it is made, and in a dry run */
};

static int read_file(struct cli *c, struct push *p, const struct doc **d, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(YML_TEXT_MAX);
	const char *slash;

	if (fs_read(AT_FDCWD, p->file, &text, err) < 0) {
		if (err->code == ERR_NOT_FOUND)
			return err_set((err_clear(err), err), ERR_NOT_FOUND,
			               c->n_arg > 0 ? "%s not found"
			                            : "%s not found: `stoker init` creates one, or "
			                              "name the job file",
			               p->file);
		return -1;
	}
	slash = strrchr(p->file, '/');
	p->root = slash == NULL
	                  ? "."
	                  : arena_strz(c->arena, str_n(p->file, (size_t)MAX(slash - p->file, 1)));
	if (yml_parse(c->arena, buf_view(&text), d, err) < 0)
		return err_wrap(err, "%s", p->file);
	return 0;
}

/* A variable, a name is text whatever it looks like, lines and all: as JSON, which YAML can read.
 */
static struct str quoted(struct cli *c, struct str value)
{
	AUTO_BUF struct buf out = BUF_INIT(YML_TEXT_MAX);
	struct js js;

	js_init(&js, &out);
	js_text(&js, value);
	return arena_str(c->arena, buf_view(&out));
}

/* --set, -e, --name, --priority: each is an assignment to the tree. */
static int apply_sets(struct cli *c, const struct doc **d, struct err *err)
{
	const char *item[SETS_MAX];
	size_t n = opt_list(c, "set", item, COUNT(item));
	const char *name = opt_text(c, "name", NULL), *priority = opt_text(c, "priority", NULL);

	for (size_t i = 0; i < n; i++) {
		struct str rest = str_of(item[i]), path;

		if (strchr(item[i], '=') == NULL)
			return err_set(err, ERR_INVALID, "--set %s: write it as path=value",
			               item[i]);
		(void)str_cut(&rest, '=', &path);
		if (spec_set(c->arena, d, path, rest, err) < 0)
			return err_wrap(err, "--set %s", item[i]);
	}
	n = opt_list(c, "env", item, COUNT(item));
	for (size_t i = 0; i < n; i++) {
		struct str rest = str_of(item[i]), key;
		char *path;

		if (strchr(item[i], '=') == NULL)
			return err_set(err, ERR_INVALID, "--env %s: write it as NAME=VALUE",
			               item[i]);
		(void)str_cut(&rest, '=', &key);
		path = arena_printf(c->arena, "job.runtime.environment_variables.%.*s",
		                    STR_ARG(key));
		if (spec_set(c->arena, d, str_of(path), quoted(c, rest), err) < 0)
			return err_wrap(err, "--env %s", item[i]);
	}
	if (name != NULL &&
	    spec_set(c->arena, d, STR_LIT("job.name"), quoted(c, str_of(name)), err) < 0)
		return err_wrap(err, "--name");
	if (priority != NULL &&
	    spec_set(c->arena, d, STR_LIT("job.priority"), str_of(priority), err) < 0)
		return err_wrap(err, "--priority");
	return 0;
}

/* Where the field of a problem comes from: an option, or the file. */
static const char *source_of(struct cli *c, const struct spec_problem *one, const char *file)
{
	const char *item[SETS_MAX], *prefix = "job.runtime.environment_variables.";
	size_t n = opt_list(c, "set", item, COUNT(item));

	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(item[i], "=");

		if (strncmp(one->path, item[i], len) == 0 &&
		    (one->path[len] == '\0' || one->path[len] == '.' || one->path[len] == '['))
			return arena_printf(c->arena, "--set %s", item[i]);
		len = strlen(one->path); /* a map that the option made */
		if (one->line == 0 && strncmp(one->path, item[i], len) == 0 && item[i][len] == '.')
			return arena_printf(c->arena, "--set %s", item[i]);
	}
	n = opt_list(c, "env", item, COUNT(item));
	for (size_t i = 0; i < n && str_starts(str_of(one->path), prefix); i++) {
		size_t len = strcspn(item[i], "=");

		if (strncmp(one->path + strlen(prefix), item[i], len) == 0 &&
		    one->path[strlen(prefix) + len] == '\0')
			return arena_printf(c->arena, "--env %.*s", (int)len, item[i]);
	}
	if (strcmp(one->path, "job.name") == 0 && opt_flag(c, "name"))
		return "--name";
	return file;
}

/* All of them, however many: a message of an error is shorter. */
static void print_problems(struct cli *c, const struct spec_problems *problems, const char *file,
                           struct err *err)
{
	for (size_t i = 0; i < problems->n && !cli_wants_json(c); i++) {
		AUTO_BUF struct buf line = BUF_INIT(PROBLEM_LINE_MAX);

		spec_problem_text(&problems->item[i], source_of(c, &problems->item[i], file),
		                  &line);
		out_error("%s", buf_cstr(&line));
	}
	(void)err_set(err, ERR_SPEC_INVALID, "%s has %zu mistakes", file,
	              problems->n + problems->dropped);
}

static const char *problems_json(struct arena *a, const struct spec_problems *problems)
{
	AUTO_BUF struct buf out = BUF_INIT(CLI_PROBLEMS_MAX);
	struct js js;

	js_init(&js, &out);
	js.shown = true;
	spec_problems_json(problems, &js);
	return arena_strz(a, buf_view(&out));
}

static int check_spec(struct cli *c, struct push *p, const struct doc *d, struct err *err)
{
	struct spec_problems *problems = xcalloc(1, sizeof(*problems));
	int r = spec_read(c->arena, d, SPEC_FILE, &p->spec, problems);

	if (r < 0 && problems->n == 1)
		spec_problems_text(problems, source_of(c, &problems->item[0], p->file), err);
	else if (r < 0)
		print_problems(c, problems, p->file, err);
	if (r < 0)
		c->problems = problems_json(c->arena, problems);
	free(problems);
	return r;
}

/* The project by its name, as an object of the body. */
static void write_project(struct js *js, const struct push *p)
{
	js_key(js, "training_project");
	js_open(js);
	js_kv(js, "name", p->spec.project);
	if (p->team != NULL)
		js_kv(js, "team_name", p->team);
	js_close(js);
}

static int upsert_project(struct cli *c, struct push *p, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	write_project(&js, p);
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/training_projects", &body, &reply, err) < 0)
		return -1;
	p->project = doc_cstr(doc_path(reply, "training_project", "id", NULL), "");
	return 0;
}

/* Both calls may be sent again when the answer was lost: the create call carries a key, and what
 * checks (p->project is NULL then) stores nothing. */
static int send_job(struct cli *c, const struct push *p, const struct doc **job, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)8 << 20);
	char id[25], *auth;
	struct http_header headers[3];
	struct http_call call = {.method = HTTP_POST,
	                         .headers = headers,
	                         .n_headers = 3,
	                         .total_ms = 120000,
	                         .cancel = &interrupted};
	struct retry r = RETRY_INIT(CREATE_TRIES);
	const struct doc *reply_doc;
	struct js js;

	seal_id(id, sizeof(id) - 1);
	js_init(&js, &body);
	js_open(&js);
	if (p->project == NULL)
		write_project(&js, p);
	js_key(&js, "training_job");
	spec_write(&p->spec, &js);
	js_close(&js);
	if (buf_check(&body, "the job", err) < 0)
		return -1;
	auth = arena_printf(c->arena, "Bearer %s", c->token);
	headers[0] = (struct http_header){"Authorization", auth};
	headers[1] = (struct http_header){"Content-Type", "application/json"};
	headers[2] = (struct http_header){"Idempotency-Key", opt_text(c, "idempotency-key", id)};
	call.body = buf_view(&body);
	call.url = p->project == NULL
	                   ? arena_printf(c->arena, "%s/v1/training_jobs/check%s", c->url,
	                                  opt_flag(c, "dry-run") ? "?forecast=true" : "")
	                   : arena_printf(c->arena, "%s/v1/training_projects/%s/jobs", c->url,
	                                  p->project);
	r.cancel = &interrupted;
	for (;;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};

		if (http_do(c->http, &call, &reply, err) == 0 &&
		    remote_expect(&call, &reply, err) == 0) {
			if (js_parse(c->arena, buf_view(&reply.body), &reply_doc, err) < 0)
				return -1;
			*job = doc_get(reply_doc, "training_job");
			out_progress_end(c);
			return 0;
		}
		if (!remote_again(c, &r, CREATE_TRIES, err))
			return remote_explain(c, err);
	}
}

static void print_next(struct cli *c, const struct doc *job)
{
	const char *id = doc_cstr(doc_get(job, "id"), "");
	const char *lines[] = {
		arena_printf(c->arena, "stoker logs %s -f      # follow its output", id),
		arena_printf(c->arena, "stoker view %s         # state, events, checkpoints", id),
		arena_printf(c->arena, "stoker stop %s         # end it", id),
	};

	out_next(c, lines, COUNT(lines));
}

/* A folder stands for its train.yaml. */
static const char *job_file(struct cli *c, const char *named)
{
	struct stat st;

	if (stat(named, &st) < 0 || !S_ISDIR(st.st_mode))
		return named;
	return arena_printf(c->arena, "%s%strain.yaml", named,
	                    str_ends(str_of(named), "/") ? "" : "/");
}

/* "TEAM/PROJECT" as -p takes it: a project that there is, also one that has a slash in its name
 * since it was allowed, or else a new one of that team. */
static int split_project(struct cli *c, struct push *p, struct err *err)
{
	struct str name = str_of(p->spec.project), team;
	const struct doc *found;

	if (p->spec.team != NULL || strchr(p->spec.project, '/') == NULL)
		return 0;
	if (resolve_project(c, p->spec.project, &found, err) == 0) {
		p->spec.project = doc_cstr(doc_get(found, "name"), "");
		p->spec.team = doc_cstr(doc_get(found, "team_name"), NULL);
		return 0;
	}
	if (err->id != ERR_PROJECT_NOT_FOUND)
		return -1;
	err_clear(err);
	(void)str_cut(&name, '/', &team);
	p->spec.project = arena_strz(c->arena, name);
	p->spec.team = arena_strz(c->arena, team);
	return 0;
}

static int prepare(struct cli *c, struct push *p, struct err *err)
{
	const struct doc *d;

	p->file = job_file(c, c->n_arg > 0 ? c->arg[0] : "train.yaml");
	if (read_file(c, p, &d, err) < 0)
		return -1;
	if (opt_flag(c, "expand-env") && expand_env(c, &d, err) < 0)
		return err_wrap(err, "%s", p->file);
	if (apply_sets(c, &d, err) < 0 || check_spec(c, p, d, err) < 0 ||
	    push_python_check(&p->spec, p->root, NULL, err) < 0)
		return -1;
	if (remote_login(c, err) < 0)
		return -1;
	if (split_project(c, p, err) < 0)
		return err_wrap(err, "project");
	if (p->spec.team != NULL) {
		if (resolve_team(c, p->spec.team, &d, err) < 0)
			return -1;
		p->team = doc_cstr(doc_get(d, "name"), "");
		p->team_id = doc_cstr(doc_get(d, "id"), NULL);
	}
	return 0;
}

/* Sends what the server does not hold; the job names all of it. *reused: some was there. */
static int send_code(struct cli *c, struct push *p, const struct pack *code, bool afresh,
                     bool *reused, struct err *err)
{
	struct spec_artifact *list = ARENA_ARRAY(c->arena, struct spec_artifact, code->n_archives);
	uint64_t sent = 0, kept = 0;
	char text[UNITS_CAP];

	for (size_t i = 0; i < code->n_archives; i++) {
		const struct pack_archive *one = &code->archive[i];
		struct upload u = {.fd = one->fd,
		                   .bytes = one->bytes,
		                   .sha256 = one->sha256,
		                   .team_id = p->team_id,
		                   .afresh = afresh};
		bool new = true;

		if (upload_file(c, &u, &list[i], &new, err) < 0) {
			if (err->code != ERR_CANCELED)
				return -1;
			err_clear(err);
			return err_set(err, ERR_CANCELED, "canceled: no job was created");
		}
		*(new ? &sent : &kept) += one->bytes;
	}
	*reused = kept > 0;
	if (sent == 0)
		out_message(c, "the server already has this code; nothing to send");
	else if (kept > 0)
		out_message(c, "sent %s; the rest has not changed", units_show_bytes(sent, text));
	p->spec.artifacts = list;
	p->spec.n_artifacts = code->n_archives;
	return 0;
}

static int create(struct cli *c, struct push *p, const struct pack *code, const struct doc **job,
                  struct err *err)
{
	bool reused = false;

	if (upsert_project(c, p, err) < 0 || send_code(c, p, code, false, &reused, err) < 0)
		return -1;
	if (send_job(c, p, job, err) == 0)
		return 0;
	if (err->id != ERR_UPLOAD_NOT_FOUND || !reused)
		return -1;
	err_clear(err); /* the last job with that code was deleted meanwhile */
	return send_code(c, p, code, true, &reused, err) < 0 ? -1 : send_job(c, p, job, err);
}

static void say_dry(struct cli *c, const struct push *p, const struct pack *code,
                    const struct doc *job)
{
	const char *reason = doc_cstr(doc_get(job, "reason"), NULL);
	char size[UNITS_CAP];

	for (size_t i = 0; i < TAR_LARGEST && code->largest[i].path[0] != '\0'; i++)
		out_message(c, "  %-10s %s", units_show_bytes(code->largest[i].bytes, size),
		            out_name(c->arena, str_of(code->largest[i].path)));
	out_message(c, "%s is valid: project %s, %s, %s to upload at most", p->file,
	            p->spec.project, out_count(c, p->spec.n_commands, "command"),
	            units_show_bytes(code->packed, size));
	if (reason != NULL)
		out_message(c, "the job would wait: %s", reason);
	else
		out_message(c, "the job would start at once");
	out_message(c, "dry run: nothing was pushed");
}

/* The folder as it is now, and the commit it comes from. */
static int pack(struct cli *c, struct push *p, struct pack *code, struct err *err)
{
	struct git git;
	int r;

	git_look(c->arena, p->root, &git);
	if (git.commit != NULL) {
		p->spec.git.commit = git.commit;
		p->spec.git.branch = git.branch;
		p->spec.git.remote = git.remote;
		p->spec.git.dirty = git.dirty;
	}
	r = pack_folder(c, p->root, &git, !opt_flag(c, "no-gitignore"), code, err);
	git_done(&git);
	if (r == 0)
		pack_say(c, code);
	return r;
}

int cmd_push(struct cli *c, struct err *err)
{
	CLEANUP(pack_done) struct pack code = {0};
	struct push p = {0};
	const struct doc *job = NULL;
	enum out_form form;
	bool follows = opt_flag(c, "follow");

	catch_interrupt();
	if (out_form_one(c, &form, err) < 0 || prepare(c, &p, err) < 0)
		return -1;
	/* A job that can never run here is refused before its code is packed and sent. */
	if (send_job(c, &p, &job, err) < 0 || pack(c, &p, &code, err) < 0 ||
	    push_python_check(&p.spec, p.root, &code, err) < 0)
		return -1;
	if (opt_flag(c, "dry-run")) {
		say_dry(c, &p, &code, job);
		if (form != OUT_TABLE)
			out_one(form, job);
		return 0;
	}
	if (create(c, &p, &code, &job, err) < 0)
		return -1;
	out_message(c, "pushed job %s (%s) to project %s: %s", doc_cstr(doc_get(job, "id"), "?"),
	            doc_cstr(doc_get(job, "name"), "?"), p.spec.project, out_job_status(c, job));
	if (form != OUT_TABLE)
		out_one(form, job);
	else if (!follows)
		(void)printf("%s\n", doc_cstr(doc_get(job, "id"), ""));
	if (follows)
		return follow_job(c, job, err);
	print_next(c, job);
	return 0;
}
