/* cmd_exec.c - `stoker exec`: a command, or a shell on a terminal, inside a running job. */
#include "cli/exec_session.h"
#include "cli/terminal.h"

#include <signal.h>
#include <sys/signalfd.h>

#define EXIT_LOST 255 /* as of ssh: how the command ended is not known */

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

/* From here on signals are read. */
static int open_signals(struct session *s, struct err *err)
{
	static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT};
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < COUNT(all); i++)
		(void)sigaddset(&set, all[i]);
	(void)pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal_fd < 0)
		return err_errno(err, errno, "signals");
	return 0;
}

/* What is said at the end of it; the exit code. */
static int conclude(struct session *s, int followed, struct err *err)
{
	if (followed < 0 && err->code == ERR_CONFLICT) { /* the server says why it has ended */
		out_message(s->c, "stoker: %s", err->msg);
		err_clear(err);
		return EXIT_LOST;
	}
	if (followed < 0)
		return -1;
	if (s->end == SESSION_LEFT)
		out_message(s->c, "\ndetached: the command keeps running in the job");
	else if (s->end == SESSION_HUNG && !s->unread)
		out_message(s->c, "\nhung up: the command was ended");
	return s->code;
}

static int run(struct session *s, const struct doc *job, struct err *err)
{
	int r;

	if (start(s, job, err) < 0 || open_signals(s, err) < 0)
		return -1;
	if (interrupted)
		session_leave(s, SESSION_HUNG, CLI_EXIT_DETACHED);
	if (s->tty) {
		out_message(s->c, "job %s, node %" PRId64 ": ~. hangs up",
		            doc_cstr(doc_get(job, "id"), "?"), opt_int(s->c, "node", 0));
		if (terminal_raw(err) < 0)
			return -1;
	}
	r = session_follow(s, err);
	terminal_restore();
	return conclude(s, r, err);
}

int cmd_exec(struct cli *c, struct err *err)
{
	bool typed = isatty(0) == 1;
	struct session s = {.c = c, .signal_fd = -1, .line = LINE_INIT};
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
	line_done(&s.line);
	buf_done(&s.typed);
	if (r < 0 && err->code == ERR_CANCELED && interrupted) {
		err_clear(err);
		return CLI_EXIT_DETACHED;
	}
	return r;
}
