/* cmd_admin.c - secrets, projects, teams, tokens, login, version. */
#include "cli/cli.h"

#include "base/fs.h"
#include "base/seal.h"

#include <termios.h>

#define EXPIRES_DAYS_MAX 3650 /* what the server takes */

static void latest_cell(const struct doc *d, struct buf *b)
{
	cell_text(doc_path(d, "latest_job", "id", NULL), b);
}
static void latest_status_cell(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(doc_path(d, "latest_job", "current_status", NULL));

	buf_str(b, s.n == 0 ? str_of("-") : str_starts(s, "TRAINING_JOB_") ? str_skip(s, 13) : s);
}

/* "/v1/secrets", or that of --team. */
static int secrets_path(struct cli *c, const char **path, struct err *err)
{
	const struct doc *team;

	*path = "/v1/secrets";
	if (!opt_flag(c, "team"))
		return 0;
	if (resolve_team(c, opt_text(c, "team", ""), &team, err) < 0)
		return -1;
	*path = arena_printf(c->arena, "/v1/teams/%s/secrets", doc_cstr(doc_get(team, "id"), ""));
	return 0;
}

int cmd_secrets_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"NAME", false, cell_text, "name"},
	                                      {"TEAM", false, cell_text, "team_name"},
	                                      {"CREATED", true, cell_age, "created_at"},
	                                      {"CHANGED", true, cell_age, "updated_at"}};
	const struct doc *reply;
	const char *path;

	if (secrets_path(c, &path, err) < 0 || remote_get(c, &reply, err, "%s", path) < 0)
		return -1;
	return out_list(c, doc_get(reply, "secrets"), cols, COUNT(cols),
	                "no secrets: stoker secrets set NAME", err);
}

/* From a terminal without echo, else all of stdin without its last newline. */
static int read_value(const char *prompt, const char *command, struct buf *out, struct err *err)
{
	struct termios old, quiet;
	bool tty = isatty(0) == 1 && tcgetattr(0, &old) == 0;
	int r = 0;

	if (tty) {
		quiet = old;
		quiet.c_lflag &= ~(tcflag_t)ECHO;
		(void)fputs(prompt, stderr);
		(void)fflush(stderr);
		(void)tcsetattr(0, TCSAFLUSH, &quiet); /* an echo is a nuisance, not a failure */
	}
	for (;;) {
		char chunk[4096];
		ssize_t n = read(0, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			r = err_errno(err, errno, "reading the value");
		if (n <= 0)
			break;
		buf_add(out, chunk, (size_t)n);
		seal_wipe(chunk, sizeof(chunk));
		if (tty && out->n > 0 && out->p[out->n - 1] == '\n')
			break;
	}
	if (tty) {
		(void)tcsetattr(0, TCSAFLUSH, &old); /* see above */
		(void)fputc('\n', stderr);
	}
	if (r == 0 && out->n > 0 && out->p[out->n - 1] == '\n')
		out->n--;
	if (r == 0 && out->n > 0 && out->p[out->n - 1] == '\r')
		out->n--;
	if (r == 0 && buf_check(out, "the value", err) < 0)
		return -1;
	if (r == 0 && out->n == 0)
		return err_set(err, ERR_INVALID,
		               "the value is empty: type it, or pipe it in: %s < FILE", command);
	return r;
}

/* Before the value is asked for. A value that was typed behind the name is not repeated. */
static int check_secret_name(struct cli *c, struct err *err)
{
	const char *name = c->arg[0];
	size_t len = strcspn(name, "= \t");

	if (name[len] == '=')
		return err_set(err, ERR_SECRET_NAME_INVALID,
		               "a value on the command line can be read by other users. Type it "
		               "when asked, or pipe it in: stoker secrets set %.*s < FILE",
		               (int)len, name);
	if (name[len] != '\0' || len == 0)
		return err_set(err, ERR_SECRET_NAME_INVALID,
		               "\"%.200s\" is not a secret name: it has no blanks and is not empty",
		               name);
	return 0;
}

int cmd_secrets_set(struct cli *c, struct err *err)
{
	struct buf value = BUF_INIT(SEAL_VALUE_MAX), body = BUF_INIT(SEAL_VALUE_MAX * 6 + 4096);
	const struct doc *reply;
	const char *path;
	struct js js;
	int r = -1;

	if (check_secret_name(c, err) < 0 || secrets_path(c, &path, err) < 0)
		return -1;
	if (read_value(arena_printf(c->arena, "Value of %s (not shown): ", c->arg[0]),
	               arena_printf(c->arena, "stoker secrets set %s", c->arg[0]), &value,
	               err) == 0) {
		js_init(&js, &body);
		js_open(&js);
		js_kv(&js, "name", c->arg[0]);
		js_kv_str(&js, "value", buf_view(&value));
		js_close(&js);
		r = remote_call(c, HTTP_POST, path, &body, &reply, err);
	}
	seal_wipe_buf(&value);
	seal_wipe_buf(&body);
	if (r == 0)
		out_message(c, "secret %s is set; jobs that start from now on use it", c->arg[0]);
	return r;
}

static int delete_at(struct cli *c, const char *path, const char *question, const char *must_type,
                     struct err *err)
{
	const struct doc *reply;

	if (out_confirm(c, question, must_type, err) < 0)
		return -1;
	if (remote_call(c, HTTP_DELETE, path, NULL, &reply, err) < 0)
		return err_wrap(err, "%s", c->arg[0]);
	out_message(c, "deleted");
	return 0;
}

int cmd_secrets_rm(struct cli *c, struct err *err)
{
	const char *path;

	if (secrets_path(c, &path, err) < 0)
		return -1;
	return delete_at(c, arena_printf(c->arena, "%s/%s", path, remote_part(c, c->arg[0])),
	                 arena_printf(c->arena, "Delete secret %s?", c->arg[0]), NULL, err);
}

int cmd_projects_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"ID", false, cell_text, "id"},
	                                      {"NAME", false, cell_text, "name"},
	                                      {"TEAM", false, cell_text, "team_name"},
	                                      {"LATEST JOB", false, latest_cell, NULL},
	                                      {"LATEST STATUS", false, latest_status_cell, NULL},
	                                      {"CREATED", true, cell_age, "created_at"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/training_projects") < 0)
		return -1;
	return out_list(c, doc_get(reply, "training_projects"), cols, COUNT(cols),
	                "no projects yet: stoker push", err);
}

int cmd_projects_rm(struct cli *c, struct err *err)
{
	const struct doc *project, *reply;
	const char *name, *typed = opt_text(c, "confirm", NULL);
	const char *path;

	if (resolve_project(c, c->arg[0], &project, err) < 0)
		return -1;
	name = doc_cstr(doc_get(project, "name"), "");
	path = arena_printf(c->arena, "/v1/training_projects/%s",
	                    doc_cstr(doc_get(project, "id"), ""));
	if (typed != NULL) {
		if (strcmp(typed, name) != 0)
			return err_set(err, ERR_INVALID, "--confirm %s: the project's name is %s",
			               typed, name);
		if (remote_call(c, HTTP_DELETE, path, NULL, &reply, err) < 0)
			return -1;
		out_message(c, "deleted");
		return 0;
	}
	return delete_at(
		c, path,
		arena_printf(c->arena,
	                     "Project %s, its jobs, checkpoints and cache are deleted for good.",
	                     name),
		name, err);
}

int cmd_teams_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"ID", false, cell_text, "id"},
	                                      {"NAME", false, cell_text, "name"},
	                                      {"DEFAULT", false, cell_text, "default"},
	                                      {"CREATED", true, cell_age, "created_at"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/teams") < 0)
		return -1;
	return out_list(c, doc_get(reply, "teams"), cols, COUNT(cols), "no teams", err);
}

int cmd_teams_create(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "name", c->arg[0]);
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/teams", &body, &reply, err) < 0)
		return -1;
	out_message(
		c,
		"created team %s (%s); `stoker tokens create NAME --team %s` creates a token for "
		"it",
		c->arg[0], doc_cstr(doc_path(reply, "team", "id", NULL), "?"), c->arg[0]);
	return 0;
}

int cmd_teams_rm(struct cli *c, struct err *err)
{
	const struct doc *team;

	if (resolve_team(c, c->arg[0], &team, err) < 0)
		return -1;
	return delete_at(
		c, arena_printf(c->arena, "/v1/teams/%s", doc_cstr(doc_get(team, "id"), "")),
		arena_printf(c->arena, "Delete team %s?", doc_cstr(doc_get(team, "name"), "?")),
		NULL, err);
}

int cmd_tokens_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"ID", false, cell_text, "id"},
	                                      {"NAME", false, cell_text, "name"},
	                                      {"ROLE", false, cell_text, "role"},
	                                      {"TEAM", false, cell_text, "team_name"},
	                                      {"CREATED", true, cell_age, "created_at"},
	                                      {"USED", true, cell_age, "last_used_at"},
	                                      {"EXPIRES", true, cell_in, "expires_at"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/api_keys") < 0)
		return -1;
	return out_list(c, doc_get(reply, "api_keys"), cols, COUNT(cols), "no tokens", err);
}

int cmd_tokens_create(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	const struct doc *reply, *team;
	int64_t days = opt_int(c, "expires-days", 0);
	enum out_form form;
	struct js js;

	if (out_form_one(c, &form, err) < 0)
		return -1;
	if (opt_flag(c, "expires-days") && (days < 1 || days > EXPIRES_DAYS_MAX))
		return err_set(err, ERR_USAGE, "--expires-days must be from 1 to %d",
		               EXPIRES_DAYS_MAX);
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "name", c->arg[0]);
	js_kv(&js, "role", opt_text(c, "role", "member"));
	if (opt_flag(c, "expires-days"))
		js_kv_int(&js, "expires_in_days", days);
	if (opt_flag(c, "team")) {
		if (resolve_team(c, opt_text(c, "team", ""), &team, err) < 0)
			return -1;
		js_kv(&js, "team_id", doc_cstr(doc_get(team, "id"), ""));
	}
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/api_keys", &body, &reply, err) < 0)
		return -1;
	if (form != OUT_TABLE)
		out_one(form, reply);
	else
		(void)printf("%s\n", doc_cstr(doc_get(reply, "api_key"), ""));
	out_message(c,
	            "This token is shown only once. Send it to its user with this line:\n"
	            "  stoker login --url %s    # asks for the token",
	            c->url);
	return 0;
}

int cmd_tokens_rm(struct cli *c, struct err *err)
{
	return delete_at(c, arena_printf(c->arena, "/v1/api_keys/%s", remote_part(c, c->arg[0])),
	                 arena_printf(c->arena, "Revoke token %s?", c->arg[0]), NULL, err);
}

/* The truss client's file, if it has a section of the name already: the client reads no file with
 * two. */
static const char *taken_trussrc(struct arena *a)
{
	const char *path = getenv("USER_TRUSSRC_PATH"), *home = getenv("HOME"), *text;
	AUTO_BUF struct buf b = BUF_INIT(65536);
	struct err none = {0};

	if (path == NULL || path[0] == '\0')
		path = arena_printf(a, "%s/.trussrc", home != NULL ? home : "/root");
	if (fs_read(AT_FDCWD, path, &b, &none) < 0)
		return NULL; /* not there, or not for us to read */
	text = arena_strz(a, buf_view(&b));
	return strncmp(text, "[baseten]", 9) == 0 || strstr(text, "\n[baseten]") != NULL ? path
	                                                                                 : NULL;
}

/* The section that the truss client reads; see the trap in the docs about other remote URLs. */
static int print_trussrc(struct cli *c, struct err *err)
{
	const char *taken;
	struct url u;

	if (remote_login(c, err) < 0 || url_parse(c->arena, str_of(c->url), &u, err) < 0)
		return -1;
	taken = taken_trussrc(c->arena);
	(void)printf("[baseten]\nremote_provider = baseten\nremote_url = "
	             "http://localhost:8000\napi_key = %s\n",
	             c->token);
	if (u.port != 8000 ||
	    (strcmp(u.host, "127.0.0.1") != 0 && strcmp(u.host, "localhost") != 0))
		out_message(
			c,
			"note: truss uses a server of your own only at http://localhost:8000. "
			"Yours is %s: set http_proxy=%s for truss. Do not change remote_url: the "
			"key would be sent elsewhere",
			c->url, c->url);
	if (taken != NULL)
		out_message(
			c,
			"note: %s already has a [baseten] section, and truss rejects a file with "
			"two. Replace that section, or save this one in another file and name it "
			"with USER_TRUSSRC_PATH",
			taken);
	return 0;
}

/* Before the token is asked for. */
static int check_url(struct cli *c, const char *url, struct err *err)
{
	struct err why = {0};
	struct url u;

	if (strstr(url, "://") == NULL)
		return err_set(err, ERR_URL_INVALID,
		               "\"%.200s\" is not a URL: did you mean http://%.200s?", url, url);
	if (url_parse(c->arena, str_of(url), &u, &why) < 0)
		return err_set(err, ERR_URL_INVALID, "--url %.200s: %s", url, why.msg);
	return 0;
}

int cmd_login(struct cli *c, struct err *err)
{
	struct buf token = BUF_INIT(4096);
	const struct doc *me;
	const char *url = opt_text(c, "url", getenv("STOKER_URL"));
	int r;

	if (opt_flag(c, "print-trussrc"))
		return print_trussrc(c, err);
	if (url == NULL)
		return err_set(err, ERR_INVALID,
		               "name the server: stoker login --url http://127.0.0.1:8000");
	if (check_url(c, url, err) < 0)
		return -1;
	r = read_value("Token (not shown): ", "stoker login --url URL", &token, err);
	if (r == 0) {
		c->url = arena_cstr(c->arena, url);
		c->token = arena_strz(c->arena, str_trim(buf_view(&token)));
		(void)unsetenv(
			"STOKER_URL"); /* what was typed wins over the environment, here only */
		(void)unsetenv("STOKER_TOKEN");
		r = remote_get(c, &me, err, "/v1/users/me");
	}
	seal_wipe_buf(&token);
	if (r < 0 || remote_save_login(c, c->url, c->token, err) < 0)
		return -1;
	out_message(c, "logged in to %s as %s (%s); saved in %s", c->url,
	            doc_cstr(doc_get(me, "name"), "?"), doc_cstr(doc_get(me, "role"), "?"),
	            remote_login_path(c->arena));
	return 0;
}

int cmd_version(struct cli *c UNUSED, struct err *err UNUSED)
{
	(void)printf("stoker %s\n", STOKER_VERSION);
	return 0;
}
