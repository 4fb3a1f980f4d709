/* exec.h - commands that people run inside a job's sandbox: `stoker exec`. */
#ifndef EXEC_H
#define EXEC_H

#include "run/report.h"
#include "run/sandbox.h"

#define EXECS_AT_ONCE 8
#define EXEC_OUTPUT_MAX ((uint64_t)16 << 20) /* of one command; then it is ended */

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
void execs_free(struct execs *x); /* after the sandbox was killed: waits for all; NULL is fine */

#endif
