/* cmd_exec.c - `stoker exec`: a command, or a shell on a terminal, inside a running job. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "cli/exec_session.h"
#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#define REPLY_MAX ((size_t)4 << 20)
#define CALL_MS 30000
#define LAST_CALL_MS 5000 /* of one that nothing may hold up */
#define AGAIN_MS 300      /* after an exchange that failed */
#define PIECE 4096        /* a pipe that is ready takes so much without waiting */
#define LOOK_MS 500
#define EXIT_UNREAD (128 + SIGPIPE) /* as of any program in front of `| head` */

int session_call(struct session *s, enum http_method method, const char *tail,
                 const struct buf *body, struct arena *a, const struct doc **out, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header headers[] = {
		{"Authorization", arena_printf(a, "Bearer %s", s->c->token)},
		{"Content-Type", "application/json"}};
	bool last = method == HTTP_DELETE;
	struct http_call call = {.method = method,
	                         .url = arena_printf(a, "%s%s%s", s->c->url, s->path, tail),
	                         .headers = headers,
	                         .n_headers = body != NULL ? 2 : 1,
	                         .body_max = REPLY_MAX,
	                         .connect_ms = LAST_CALL_MS,
	                         .total_ms = last ? LAST_CALL_MS : CALL_MS,
	                         .cancel = last ? NULL : &s->left};

	if (body != NULL)
		call.body = buf_view(body);
	if (http_do(s->c->http, &call, &reply, err) < 0 || remote_expect(&call, &reply, err) < 0)
		return -1;
	if (js_parse(a, buf_view(&reply.body), out, err) < 0)
		return err_wrap(err, "the reply of %s is not from Stoker", s->c->url);
	return 0;
}

bool session_may_try(const struct err *err)
{
	return err_info(err)->retry;
}

void session_leave(struct session *s, enum session_end how, int code)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *reply = NULL;
	struct err err = {0};

	(void)!session_call(s, HTTP_DELETE, how == SESSION_LEFT ? "?leave_running=true" : "", NULL,
	                    a, &reply, &err); /* else it finds out: we are not heard of any more */
	s->end = how;
	s->code = code;
	s->left = true;
}

/* In pieces: who reads it may have stopped, and Ctrl-C must work still. */
static int print(struct session *s, int fd, struct str bytes, struct err *err)
{
	while (bytes.n > 0 && !s->left) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		ssize_t n;

		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		n = write(fd, bytes.p, MIN(bytes.n, PIECE));
		s->unread = n < 0 && errno == EPIPE;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return err_errno(err, errno, "writing what the command printed");
		bytes = str_skip(bytes, n > 0 ? (size_t)n : 0);
	}
	return 0;
}

static int print_output(struct session *s, const struct doc *list, struct err *err)
{
	DOC_EACH (item, list) {
		AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
		bool is_err = str_eq(doc_text(doc_get(item, "stream")), "stderr");

		if (base64_decode(doc_text(doc_get(item, "base64")), false, &out, err) < 0)
			return err_wrap(err, "read the reply of %s", s->c->url);
		if (print(s, is_err ? 2 : 1, buf_view(&out), err) < 0)
			return -1;
	}
	return 0;
}

/* Prints to the end of the command: its exit code. */
static int follow(struct session *s, struct err *err)
{
	int64_t offset = 0, heard_ms = clock_mono_ms();

	while (!s->left) {
		AUTO_ARENA struct arena *a = arena_new();
		const struct doc *reply = NULL;
		struct err one = {0};
		char tail[100];

		FMT(tail, "?offset=%" PRId64 "&wait_ms=%d", offset, SESSION_WORD_MS);
		if (session_call(s, HTTP_GET, tail, NULL, a, &reply, &one) < 0) {
			if (!session_may_try(&one) || clock_mono_ms() - heard_ms > SESSION_AWAY_MS)
				return err_set(err, one.code, "%s", one.msg);
			clock_sleep_ms(AGAIN_MS);
			continue;
		}
		heard_ms = clock_mono_ms();
		if (print_output(s, doc_get(reply, "output"), err) < 0)
			return -1;
		offset = doc_int(doc_get(reply, "next_offset"), offset);
		if (doc_bool(doc_get(reply, "done"), false))
			return (int)doc_int(doc_get(reply, "exit_code"), 1);
	}
	return err_set(err, ERR_CANCELED, "left");
}

static int start(struct session *s, const struct doc *job, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	struct terminal_size size = terminal_size();
	struct cli *c = s->c;
	const char *term = getenv("TERM");
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv_int(&js, "node_rank", opt_int(c, "node", 0));
	js_kv_bool(&js, "input", s->input);
	if (s->tty) {
		js_key(&js, "tty");
		js_open(&js);
		js_kv_int(&js, "rows", size.rows);
		js_kv_int(&js, "columns", size.columns);
		if (term != NULL && term[0] != '\0')
			js_kv(&js, "term", term);
		js_close(&js);
	}
	js_key(&js, "command");
	js_list(&js);
	for (size_t i = 0; i < c->n_rest; i++)
		js_cstr(&js, c->rest[i]);
	js_end(&js);
	js_close(&js);
	if (remote_call(c, HTTP_POST, job_path(c, job, "/exec"), &body, &reply, err) < 0)
		return -1;
	s->path = arena_printf(c->arena, "%s/exec/%s", job_path(c, job, ""),
	                       remote_part(c, doc_cstr(doc_get(reply, "exec_id"), "")));
	return 0;
}

/* From here on signals are read, by the thread that sends. */
static int open_signals(struct session *s, struct err *err)
{
	static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT};
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < COUNT(all); i++)
		(void)sigaddset(&set, all[i]);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->signal_fd < 0 || s->wake_fd < 0)
		return err_errno(err, errno, "signals");
	return 0;
}

static int run(struct session *s, const struct doc *job, struct err *err)
{
	int code = -1;

	if (start(s, job, err) < 0 || open_signals(s, err) < 0)
		return -1;
	if (interrupted) {
		session_leave(s, SESSION_HUNG, CLI_EXIT_DETACHED);
		return s->code;
	}
	if (s->tty) {
		out_message(s->c, "job %s, node %" PRId64 ": ~. hangs up",
		            doc_cstr(doc_get(job, "id"), "?"), opt_int(s->c, "node", 0));
		if (terminal_raw(err) < 0)
			return -1;
	}
	session_feed_start(s);
	code = follow(s, err);
	session_feed_stop(s);
	terminal_restore();
	if (s->end == SESSION_RUNS) {
		if (code < 0) /* nobody reads what it prints, or nothing is heard of it */
			session_leave(s, SESSION_HUNG, EXIT_UNREAD);
		if (!s->unread)
			return code;
		err_clear(err);
		return EXIT_UNREAD;
	}
	err_clear(err);
	if (s->end == SESSION_LEFT)
		out_message(s->c, "\ndetached: the command keeps running in the job");
	else
		out_message(s->c, "\nhung up: the command was ended");
	return s->code;
}

int cmd_exec(struct cli *c, struct err *err)
{
	bool typed = isatty(0) == 1;
	struct session s = {.magic = SESSION_MAGIC, .c = c, .signal_fd = -1, .wake_fd = -1};
	const struct doc *job;
	int r = -1;

	s.tty = opt_flag(c, "tty") || (c->n_rest == 0 && typed && isatty(1) == 1);
	s.input = s.tty || !typed || opt_flag(c, "stdin");
	if (s.tty && !typed)
		return err_set(err, ERR_INVALID, "-t requires a terminal on stdin; remove it");
	if (c->n_rest == 0 && !s.input)
		return err_set(err, ERR_INVALID, "name the command: stoker exec %s -- nvidia-smi",
		               c->arg[0]);
	catch_interrupt();
	if (resolve_job(c, c->arg[0], SEVERAL_ACTIVE, &job, err) == 0)
		r = run(&s, job, err);
	close_fd_p(&s.signal_fd);
	close_fd_p(&s.wake_fd);
	if (r < 0 && err->code == ERR_CANCELED && interrupted) {
		err_clear(err);
		return CLI_EXIT_DETACHED;
	}
	return r;
}
