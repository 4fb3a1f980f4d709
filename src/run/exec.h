/*
 * exec.h - commands that people run inside a job's sandbox: `stoker exec`. Each has a thread, and a
 * connection by the server to who started it (io/line.h), which may be cut and made again: what it
 * prints waits while nobody reads it, and what it is given while it does not read that. So nothing
 * is lost and nothing piles up.
 *
 * Secrets of the job are taken out of what it prints, by value. What may still become one is held
 * back, but not for long: a prompt must be seen, and on a terminal what a person types.
 *
 * A command whose person is gone, or whose server does not know it any more, gets SIGHUP with all
 * of its session, and SIGKILL SANDBOX_HANGUP_MS later.
 */
#ifndef EXEC_H
#define EXEC_H

#include "run/report.h"
#include "run/sandbox.h"

#define EXECS_AT_ONCE 16
#define EXEC_HOLD_MS 250
#define EXEC_HOLD_TTY_MS 20 /* two writes of one line are not so far apart, two keys are */

struct execs;

struct exec_options {
	struct sandbox *sandbox;
	struct report *report;
	const struct redact *redact;
	const struct wire_env *env;
	size_t n_env;
	const char *workdir;
};

struct execs *execs_new(const struct exec_options *o) MUST_CHECK;
/* Runs it in a thread of its own; more than EXECS_AT_ONCE are refused with a line of output. */
void execs_run(struct execs *x, const struct wire_exec *command);
/* After the sandbox was killed: ends what is left and waits for all. NULL is fine. */
void execs_free(struct execs *x);

#endif
