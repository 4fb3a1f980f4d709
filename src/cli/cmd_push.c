/* cmd_push.c - push: read the job file, check it, upload the code, create the job, follow it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/seal.h"
#include "base/units.h"
#include "base/yaml.h"
#include "cli/push_python.h"
#include "core/glob.h"
#include "core/spec.h"
#include "io/sigv4.h"
#include "io/tar.h"

#define SETS_MAX 256
#define UPLOAD_BIG ((uint64_t)1 << 30)
#define PROBLEM_LINE_MAX ((size_t)8 << 10)
#define CREATE_TRIES 10 /* half a minute: a server that is being restarted */

struct push {
	const char *file, *root; /* the job file and its folder */
	struct job_spec spec;
	const char *team;    /* its name; NULL = the token's */
	const char *project; /* its id; NULL until it is made, and in a dry run */
};

static int read_file(struct cli *c, struct push *p, const struct doc **d, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(YML_TEXT_MAX);
	const char *slash;

	if (fs_read(AT_FDCWD, p->file, &text, err) < 0) {
		if (err->code == ERR_NOT_FOUND)
			return err_set(
				(err_clear(err), err), ERR_NOT_FOUND,
				"there is no %s here: `stoker init` makes one, or name the file",
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

/* All of them, however many: a message of an error is shorter. */
static void print_problems(const struct spec_problems *problems, const char *file, struct err *err)
{
	for (size_t i = 0; i < problems->n; i++) {
		AUTO_BUF struct buf line = BUF_INIT(PROBLEM_LINE_MAX);

		spec_problem_text(&problems->item[i], file, &line);
		(void)fprintf(stderr, "%s\n", buf_cstr(&line));
	}
	(void)err_set(err, ERR_INVALID, "%s has %zu mistakes", file,
	              problems->n + problems->dropped);
}

static int check_spec(struct cli *c, struct push *p, const struct doc *d, struct err *err)
{
	struct spec_problems *problems = xcalloc(1, sizeof(*problems));
	int r = spec_read(c->arena, d, SPEC_FILE, &p->spec, problems);

	if (r < 0 && problems->n == 1)
		spec_problems_text(problems, p->file, err);
	else if (r < 0)
		print_problems(problems, p->file, err);
	free(problems);
	return r;
}

/* What a folder holds that a server keeps its data in. */
static const char *const server_files[] = {"master.key", "stoker.db"};

struct packing {
	struct cli *c;
	struct ignore *ignore;
	int root;
	bool said; /* each path is asked about twice */
};

/* A server's data folder holds the master key: it is never sent anywhere. */
static bool is_data_folder(int root, const char *path)
{
	char name[PATH_MAX];

	for (size_t i = 0; i < COUNT(server_files); i++) {
		if (snprintf(name, sizeof(name), "%s/%s", path, server_files[i]) >=
		            (int)sizeof(name) ||
		    faccessat(root, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return false;
	}
	return true;
}

static bool skip_file(const char *path, bool is_dir, void *arg)
{
	struct packing *p = arg;

	if (ignore_match(p->ignore, path, is_dir))
		return true;
	if (!is_dir || !is_data_folder(p->root, path))
		return false;
	if (!p->said)
		out_say(p->c, "left out: %s, the data folder of a Stoker server", path);
	p->said = true;
	return true;
}

static int load_ignore(struct cli *c, int root, struct ignore **out, struct err *err)
{
	static const char *const names[] = {".stokerignore", ".truss_ignore"};

	for (size_t i = 0; i < COUNT(names); i++) {
		AUTO_BUF struct buf text = BUF_INIT((size_t)1 << 20);

		if (faccessat(root, names[i], R_OK, 0) < 0)
			continue;
		if (fs_read(root, names[i], &text, err) < 0)
			return -1;
		*out = ignore_parse(c->arena, arena_str(c->arena, buf_view(&text)));
		return 0;
	}
	*out = ignore_parse(c->arena, str_of(ignore_builtin));
	return 0;
}

static void sent(void *arg, uint64_t bytes, uint64_t received UNUSED)
{
	char text[UNITS_CAP];

	out_progress(arg, "uploading %s", units_show_bytes(bytes, text));
}

/* One signed PUT of the packed file. */
static int put_archive(struct cli *c, const struct doc *creds, int fd, uint64_t bytes,
                       struct err *err)
{
	const struct doc *k = doc_get(creds, "creds");
	struct sigv4_key key = {
		.access_key = doc_cstr(doc_get(k, "aws_access_key_id"), ""),
		.secret_key = doc_cstr(doc_get(k, "aws_secret_access_key"), ""),
		.session_token = doc_cstr(doc_get(k, "aws_session_token"), NULL),
		.region = doc_cstr(doc_get(k, "region_name"), "us-east-1"),
		.service = "s3",
	};
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header headers[4];
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);
	struct http_call call = {.method = HTTP_PUT,
	                         .headers = headers,
	                         .has_body_fd = true,
	                         .body_fd = fd,
	                         .body_len = bytes,
	                         .arg = c,
	                         .progress = sent,
	                         .cancel = &interrupted};
	int r;

	url_encode(str_of(doc_cstr(doc_get(creds, "s3_key"), "")), true, &path);
	call.url = arena_printf(c->arena, "%s/%s/%s", doc_cstr(doc_get(k, "endpoint_url"), c->url),
	                        doc_cstr(doc_get(creds, "s3_bucket"), ""), buf_cstr(&path));
	if (sigv4_sign(c->arena, &key, HTTP_PUT, call.url, NULL, 0, SIGV4_UNSIGNED, clock_wall_ms(),
	               headers, &call.n_headers, err) < 0)
		return -1;
	r = http_do(c->http, &call, &reply, err);
	if (r == 0)
		r = http_expect(&call, &reply, err);
	out_progress_end(c);
	return r;
}

int upload_folder(struct cli *c, const char *root, const char **bucket, const char **key,
                  struct err *err)
{
	AUTO_FD int dir = fs_open_dir(root, err);
	AUTO_FD int fd = -1;
	struct tar_report report = {0};
	struct packing packing = {.c = c, .root = dir};
	const struct doc *creds;
	char text[UNITS_CAP];
	const char *tmp = getenv("TMPDIR");
	struct stat st;

	if (dir < 0 || load_ignore(c, dir, &packing.ignore, err) < 0)
		return -1;
	if (is_data_folder(dir, "."))
		return err_set(err, ERR_INVALID,
		               "%s is the data folder of a Stoker server: the code of a job lives "
		               "elsewhere",
		               root);
	fd = open(tmp != NULL ? tmp : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(err, errno, "temporary file in %s", tmp != NULL ? tmp : "/tmp");
	if (tar_pack(dir, skip_file, &packing, fd, TAR_BYTES_MAX, &report, err) < 0)
		return err_wrap(err, "packing %s", root);
	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "packed archive");
	out_say(c, "code: %" PRIu64 " file%s, %s%s", report.entries, report.entries == 1 ? "" : "s",
	        units_show_bytes(report.bytes, text),
	        report.skipped > 0
	                ? arena_printf(c->arena, " (%" PRIu64 " left out by ignore rules)",
	                               report.skipped)
	                : "");
	if (report.bytes > UPLOAD_BIG)
		out_say(c, "hint: more than 1 GB of code; data is better named under `weights:`, "
		           "where it is "
		           "fetched once and kept");
	if (remote_get(c, &creds, err, "/v1/blobs/credentials/train") < 0)
		return -1;
	if (put_archive(c, creds, fd, (uint64_t)st.st_size, err) < 0)
		return err_wrap(err, "uploading the code");
	*bucket = doc_cstr(doc_get(creds, "s3_bucket"), "");
	*key = doc_cstr(doc_get(creds, "s3_key"), "");
	return 0;
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
	call.url = p->project == NULL ? arena_printf(c->arena, "%s/v1/training_jobs/check", c->url)
	                              : arena_printf(c->arena, "%s/v1/training_projects/%s/jobs",
	                                             c->url, p->project);
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
		if (err_info(err)->retry)
			out_progress(c, "trying again: %s", err->msg);
		if (!retry_again(&r, err))
			return -1;
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

static int prepare(struct cli *c, struct push *p, struct err *err)
{
	const struct doc *d;

	p->file = c->n_arg > 0 ? c->arg[0] : "train.yaml";
	if (read_file(c, p, &d, err) < 0)
		return -1;
	if (opt_flag(c, "expand-env") && expand_env(c, &d, err) < 0)
		return err_wrap(err, "%s", p->file);
	if (apply_sets(c, &d, err) < 0 || check_spec(c, p, d, err) < 0 ||
	    push_python_check(&p->spec, p->root, err) < 0)
		return -1;
	if (remote_login(c, err) < 0)
		return -1;
	if (p->spec.team != NULL) {
		if (resolve_team(c, p->spec.team, &d, err) < 0)
			return -1;
		p->team = doc_cstr(doc_get(d, "name"), "");
	}
	return 0;
}

int cmd_push(struct cli *c, struct err *err)
{
	struct push p = {0};
	struct spec_artifact artifact;
	const struct doc *job = NULL, *last = NULL;
	enum out_form form;
	bool follow = opt_flag(c, "follow");
	int r;

	catch_interrupt();
	if (out_form_one(c, &form, err) < 0 || prepare(c, &p, err) < 0)
		return -1;
	/* What cannot run here is refused before its code is sent. */
	if (send_job(c, &p, &job, err) < 0)
		return -1;
	if (opt_flag(c, "dry-run")) {
		out_say(c, "%s is fine: project %s, %zu command%s; nothing was pushed", p.file,
		        p.spec.project, p.spec.n_commands, p.spec.n_commands == 1 ? "" : "s");
		if (form != OUT_TABLE)
			out_one(form, job);
		return 0;
	}
	if (upsert_project(c, &p, err) < 0 ||
	    upload_folder(c, p.root, &artifact.bucket, &artifact.key, err) < 0)
		return -1;
	p.spec.artifacts = &artifact;
	p.spec.n_artifacts = 1;
	if (send_job(c, &p, &job, err) < 0)
		return -1;
	out_say(c, "pushed job %s (%s) to project %s: %s", doc_cstr(doc_get(job, "id"), "?"),
	        doc_cstr(doc_get(job, "name"), "?"), p.spec.project,
	        out_status(c, doc_cstr(doc_get(job, "current_status"), "?")));
	if (form != OUT_TABLE)
		out_one(form, job);
	else if (!follow)
		(void)printf("%s\n", doc_cstr(doc_get(job, "id"), ""));
	if (!follow) {
		print_next(c, job);
		return 0;
	}
	r = follow_job(c, job, &last, err);
	if (r < 0 && err->code == ERR_CANCELED) {
		err_clear(err);
		out_say(c, "\ndetached: job %s goes on. `stoker stop %s` ends it",
		        doc_cstr(doc_get(job, "id"), ""), doc_cstr(doc_get(job, "id"), ""));
		return CLI_EXIT_DETACHED;
	}
	return r < 0 ? -1 : job_outcome(c, last);
}
