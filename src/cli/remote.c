/* remote.c - the server behind the command line: login, one JSON exchange, Ctrl-C. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/fs.h"
#include "io/proof.h"

#include <ctype.h>
#include <signal.h>

#define REPLY_MAX ((size_t)256 << 20)
#define TRIES 4
#define TOTAL_MS 120000
#define WATCH_TENTHS 20    /* of a second between two looks */
#define WAIT_SHOWN_MS 1000 /* from here on a person is told what is waited for */

atomic_bool interrupted;

static void on_interrupt(int sig UNUSED)
{
	if (atomic_exchange(&interrupted, true))
		_exit(130); /* a second Ctrl-C does not wait */
}

void catch_interrupt(void)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	(void)sigaction(SIGINT, &sa, NULL);
	(void)sigaction(SIGTERM, &sa, NULL);
}

const char *remote_login_path(struct arena *a)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (xdg != NULL && xdg[0] == '/')
		return arena_printf(a, "%s/stoker/login.json", xdg);
	return arena_printf(a, "%s/.config/stoker/login.json", home != NULL ? home : "/root");
}

static int read_login(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(65536);
	const char *path = remote_login_path(c->arena);
	const struct doc *d;
	struct stat st;

	if (stat(path, &st) < 0)
		return err_set(
			err, ERR_NOT_LOGGED_IN,
			"not logged in: set STOKER_URL and STOKER_TOKEN, or run `stoker login "
			"--url URL`; the first start of a server logs its own user in");
	if ((st.st_mode & 077) != 0)
		return err_set(err, ERR_DENIED,
		               "other users can read %s (mode %03o): run chmod 600 on it", path,
		               st.st_mode & 0777U);
	if (fs_read(AT_FDCWD, path, &text, err) < 0)
		return -1;
	if (js_parse(c->arena, buf_view(&text), &d, err) < 0)
		return err_wrap(err, "%s: run `stoker login` again", path);
	if (c->url == NULL) {
		c->url = doc_cstr(doc_get(d, "url"), NULL);
		atomic_store(&c->port,
		             (unsigned)MIN(MAX(doc_int(doc_get(d, "port"), 0), 0), UINT16_MAX));
	}
	if (c->token == NULL)
		c->token = doc_cstr(doc_get(d, "token"), NULL);
	if (c->url == NULL || c->token == NULL)
		return err_set(err, ERR_INVALID, "%s lacks url or token: run `stoker login` again",
		               path);
	return 0;
}

/* Over plain HTTP the server proves that it knows our token before it is sent. */
static int greet(void *arg, int fd, struct err *err)
{
	struct cli *c = FROM_VOID(struct cli, arg, CLI_MAGIC);
	struct proof p = {.host = c->host,
	                  .target = c->proof,
	                  .token = str_of(c->token),
	                  .cancel = &interrupted,
	                  .port = atomic_load(&c->port)};

	if (proof_ask(&p, fd, err) < 0)
		return -1;
	atomic_store(&c->port, p.found);
	return 0;
}

int remote_login(struct cli *c, struct err *err)
{
	struct http_policy policy = {.ca_file = getenv("STOKER_CA_FILE")};
	const char *url = getenv("STOKER_URL"), *token = getenv("STOKER_TOKEN");
	struct url parsed;

	if (c->http != NULL)
		return 0;
	if (url != NULL && url[0] != '\0')
		c->url = url;
	if (token != NULL && token[0] != '\0')
		c->token = token;
	if ((c->url == NULL || c->token == NULL) && read_login(c, err) < 0)
		return -1;
	if (strstr(c->url, "://") == NULL)
		return err_set(
			err, ERR_URL_INVALID,
			"the server's URL \"%.200s\" is not one: did you mean http://%.200s?",
			c->url, c->url);
	if (url_parse(c->arena, str_of(c->url), &parsed, err) < 0)
		return err_wrap(err, "the server's URL");
	while (str_ends(str_of(c->url), "/"))
		c->url = arena_strz(c->arena, str_n(c->url, strlen(c->url) - 1));
	if (strcmp(parsed.scheme, "http") == 0) {
		struct str path = str_of(parsed.path);

		while (str_ends(path, "/"))
			path.n--;
		c->host = arena_printf(c->arena, "%s:%u", parsed.host, parsed.port);
		c->proof = arena_printf(c->arena, "%.*s" PROOF_PATH, STR_ARG(path));
		policy.greet = greet;
		policy.greet_origin = c->url;
		policy.greet_arg = c;
	}
	c->http = http_client_new(&policy);
	return 0;
}

int remote_save_login(struct cli *c, const char *url, const char *token, struct err *err)
{
	const char *path = remote_login_path(c->arena);
	AUTO_BUF struct buf text = BUF_INIT(65536);
	char *folder = arena_cstr(c->arena, path);
	struct js js;

	*strrchr(folder, '/') = '\0';
	if (fs_mkdirs(AT_FDCWD, folder, 0700, err) < 0)
		return -1;
	js_init(&js, &text);
	js_open(&js);
	js_kv(&js, "url", url);
	js_kv(&js, "token", token);
	if (atomic_load(&c->port) != 0)
		js_kv_int(&js, "port", atomic_load(&c->port));
	js_close(&js);
	buf_putc(&text, '\n');
	return fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err);
}

const char *remote_part(struct cli *c, const char *text)
{
	AUTO_BUF struct buf out = BUF_INIT(URL_MAX);

	url_encode(str_of(text), false, &out);
	return arena_strz(c->arena, buf_view(&out));
}

int remote_expect(const struct http_call *call, const struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err ignored = {0};
	const struct doc *d = NULL;

	if (http_expect(call, reply, err) == 0)
		return 0;
	if (js_parse(a, str_trim(buf_view(&reply->body)), &d, &ignored) < 0)
		return -1;
	err_id_from(err, doc_cstr(doc_path(d, "error", "id", NULL), ""));
	if (doc_is(doc_get(d, "message"), DOC_TEXT))
		copy_cut(err->msg, sizeof(err->msg), doc_cstr(doc_get(d, "message"), ""));
	return -1;
}

/* GETs are tried again while the server restarts; what changes something only when it never got
 * there is not known here, so it is tried once. */
static int exchange(struct cli *c, const struct http_call *call, struct http_reply *reply,
                    struct err *err)
{
	struct retry r = RETRY_INIT(call->method == HTTP_GET ? TRIES : 1);

	r.cancel = &interrupted;
	for (;;) {
		if (http_do(c->http, call, reply, err) == 0 && remote_expect(call, reply, err) == 0)
			return 0;
		if (err->code == ERR_CANCELED || !retry_again(&r, err))
			return -1;
		http_reply_done(reply);
		memset(reply, 0, sizeof(*reply));
	}
}

/* Why there was no exchange, by the error's id and a part of its words; the first row that fits
 * counts. */
static const struct {
	enum err_code id;
	const char *words;  /* NULL: any */
	const char *reason; /* NULL: the words of the error */
	const char *advice;
} away[] = {
	{ERR_HOST_UNREACHABLE, NULL, NULL,
         "Is the server running? `stoker server` starts one; STOKER_URL or `stoker login` name "
         "another"},
	{ERR_HOST_UNKNOWN, NULL, "the host name cannot be resolved",
         "Is the name right? STOKER_URL or `stoker login` name another"},
	{ERR_CA_FILE_UNREADABLE, NULL, "STOKER_CA_FILE does not name a readable PEM file", NULL},
	{ERR_CERTIFICATE_UNTRUSTED, "subject name", "its certificate is for another name",
         "Use the name in the certificate, or give the server a certificate for this name"},
	{ERR_CERTIFICATE_UNTRUSTED, "has expired", "its certificate has expired",
         "Renew it on the server"},
	{ERR_CERTIFICATE_UNTRUSTED, "not yet valid", "its certificate is not valid yet",
         "Is the clock of this machine right?"},
	{ERR_CERTIFICATE_UNTRUSTED, NULL, "its certificate is not trusted",
         "STOKER_CA_FILE=FILE names the certificate to trust, or that of its authority"},
	{ERR_TLS_EXPECTED, "wrong version number", "it does not speak TLS",
         "Use http:// in the URL"},
	{ERR_TLS_EXPECTED, NULL, NULL, NULL},
	{ERR_STANDBY, NULL, NULL, "STOKER_URL or `stoker login` name another"},
	{ERR_TIMEOUT, NULL, "no answer", "Is the address right? Is there a firewall in between?"},
	{ERR_UNAVAILABLE, NULL, NULL,
         "Is it a Stoker server, and is it running? With TLS its URL begins with https://"},
};

/* The text after the URL in "POST http://host/path: text". */
static const char *words_of(const struct cli *c, const struct err *err)
{
	const char *url = strstr(err->msg, c->url), *words = url ? strstr(url, ": ") : NULL;

	return words != NULL ? words + 2 : NULL;
}

static bool fits(size_t i, const struct err *err)
{
	bool is = away[i].id < ERR_COUNT ? err->code == away[i].id : err->id == away[i].id;

	return is && (away[i].words == NULL || strstr(err->msg, away[i].words) != NULL);
}

/* The server answered, what it keeps its state in did not: by an id, or as its S3 interface says
 * it. */
static const struct {
	enum err_code id;
	const char *word, *part, *state, *advice;
} parts[] = {
	{ERR_OBJECTS_UNAVAILABLE, "503 ServiceUnavailable: ", "object store", "fails",
         "Nothing is lost; `stoker doctor` tells when it answers, then try again"},
	{ERR_NO_SPACE, "507 StorageFull: ", "object store", "is full",
         "Make room there, then try again"},
	{ERR_DATABASE_UNAVAILABLE, NULL, "database", "does not answer",
         "Jobs go on running; `stoker doctor` tells when it answers, then try again"},
};

static bool explain_part(const struct cli *c, const char *words, struct err *err)
{
	char said[ERR_MSG_MAX / 2];

	for (size_t i = 0; i < COUNT(parts); i++) {
		bool begins = parts[i].word != NULL && str_starts(str_of(words), parts[i].word);

		if (!begins && (err->id != parts[i].id || err->id < ERR_COUNT))
			continue;
		copy_cut(said, sizeof(said), words + (begins ? strlen(parts[i].word) : 0));
		err_clear(err);
		(void)err_set(err, parts[i].id, "the %s of %s %s: %s. %s", parts[i].part, c->url,
		              parts[i].state, said, parts[i].advice);
		return true;
	}
	return false;
}

int remote_explain(const struct cli *c, struct err *err)
{
	const char *words = words_of(c, err);
	enum err_code id = err->id;
	char reason[300];
	size_t n;

	if (err->code == ERR_AUTH) {
		n = strlen(err->msg);
		(void)snprintf(err->msg + n, sizeof(err->msg) - n,
		               ". `stoker login --url %s` saves another", c->url);
		return -1;
	}
	if ((words != NULL || err->id == ERR_OBJECTS_UNAVAILABLE) &&
	    explain_part(c, words != NULL ? words : err->msg, err))
		return -1;
	for (size_t i = 0; words != NULL && i < COUNT(away); i++) {
		if (!fits(i, err))
			continue;
		copy_cut(reason, sizeof(reason), away[i].reason != NULL ? away[i].reason : words);
		if (isupper((unsigned char)reason[0]) && islower((unsigned char)reason[1]))
			reason[0] = (char)tolower((unsigned char)reason[0]);
		err_clear(err);
		return err_set(err, id, "cannot reach %s: %s%s%s", c->url, reason,
		               away[i].advice != NULL ? ". " : "",
		               away[i].advice != NULL ? away[i].advice : "");
	}
	return -1; /* the server's own words */
}

bool remote_again(struct cli *c, struct retry *r, int tries, struct err *err)
{
	struct err said = *err;

	if (err->code == ERR_CANCELED || !err_info(err)->retry || r->left <= 1)
		return false;
	(void)remote_explain(c, &said);
	if (r->left == tries) /* the cause once, then only that it goes on */
		out_waiting(c, "%s. Trying again (2/%d)", said.msg, tries);
	else
		out_waiting(c, "trying again (%d/%d)", tries - r->left + 2, tries);
	return retry_again(r, err);
}

bool remote_may_go(const struct cli *c, const char *url)
{
	const char *tls = "https://";

	return !c->around && (!str_starts(str_of(c->url), tls) || str_starts(str_of(url), tls));
}

bool remote_is_unreachable(const struct err *err)
{
	static const enum err_code such[] = {ERR_HOST_UNREACHABLE, ERR_HOST_UNKNOWN,
	                                     ERR_CERTIFICATE_UNTRUSTED, ERR_TLS_EXPECTED};

	for (size_t i = 0; i < COUNT(such); i++)
		if (err->id == such[i])
			return true;
	return err->code == ERR_TIMEOUT;
}

void remote_go_around(struct cli *c, struct err *err)
{
	if (!c->around)
		out_message(
			c,
			"the object store is out of reach, so the server passes the bytes on: %s",
			err->msg);
	c->around = true;
	err_clear(err);
}

struct waiting {
	unsigned magic;
#define WAITING_MAGIC 0x4c574149U
	struct cli *c;
	int64_t since_ms;
	bool shown;
};

static void show_waiting(void *arg, uint64_t sent UNUSED, uint64_t received UNUSED)
{
	struct waiting *w = FROM_VOID(struct waiting, arg, WAITING_MAGIC);
	int64_t ms = clock_mono_ms() - w->since_ms;

	if (ms < WAIT_SHOWN_MS)
		return;
	w->shown = true;
	out_progress(w->c, "waiting for the server, %" PRId64 " s", ms / 1000);
}

int remote_call(struct cli *c, enum http_method method, const char *path, const struct buf *body,
                const struct doc **out, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct waiting waiting = {.magic = WAITING_MAGIC, .c = c, .since_ms = clock_mono_ms()};
	char *auth;
	int r;
	struct http_header headers[2];
	struct http_call call = {
		.method = method,
		.headers = headers,
		.body_max = REPLY_MAX,
		.total_ms = TOTAL_MS,
		.stall_ms = method == HTTP_GET ? 0 : TOTAL_MS, /* it may have much to do */
		.connect_ms = 5000,
		.cancel = &interrupted};

	if (remote_login(c, err) < 0)
		return -1;
	auth = arena_printf(c->arena, "Bearer %s", c->token);
	headers[call.n_headers++] = (struct http_header){"Authorization", auth};
	if (body != NULL) {
		headers[call.n_headers++] =
			(struct http_header){"Content-Type", "application/json"};
		call.body = buf_view(body);
	}
	call.url = arena_printf(c->arena, "%s%s", c->url, path);
	if (c->tty_err && strstr(path, "wait_ms=") == NULL) /* else it is meant to park */
		call.progress = show_waiting;
	call.arg = &waiting;
	r = exchange(c, &call, &reply, err);
	if (waiting.shown)
		out_progress_end(c);
	if (r < 0)
		return remote_explain(c, err);
	if (js_parse(c->arena, buf_view(&reply.body), out, err) < 0)
		return err_wrap(err, "the reply of %s is not from Stoker", c->url);
	return 0;
}

int remote_get(struct cli *c, const struct doc **out, struct err *err, const char *fmt, ...)
{
	va_list ap;
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);

	va_start(ap, fmt);
	buf_vprintf(&path, fmt, ap);
	va_end(ap);
	if (buf_check(&path, "the request's path", err) < 0)
		return -1;
	return remote_call(c, HTTP_GET, buf_cstr(&path), NULL, out, err);
}

int watch(struct cli *c, int (*once)(struct cli *c, struct err *err), struct err *err)
{
	struct arena *whole = c->arena;
	bool unread = false;

	catch_interrupt();
	if (remote_login(c, err) < 0) /* so that it is kept in the arena that stays */
		return -1;
	while (!interrupted && !unread) {
		int r;

		c->arena = arena_new();
		if (c->tty_out)
			(void)fputs("\033[H\033[J", stdout);
		r = once(c, err);
		if (r >= 0)
			r = out_flush(&unread, err);
		arena_free(c->arena);
		c->arena = whole;
		if (r < 0 && err->code != ERR_CANCELED)
			return -1;
		for (int i = 0; i < WATCH_TENTHS && !interrupted && !unread; i++)
			clock_sleep_ms(100);
	}
	err_clear(err);
	return 0;
}
