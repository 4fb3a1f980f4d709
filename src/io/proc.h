/*
 * proc.h - child processes: exact descriptors, environment and limits; waiting with a deadline; the
 * identity of a process that survives us (pid alone is reused).
 */
#ifndef PROC_H
#define PROC_H

#include "base/buf.h"

#define PROC_FDS_MAX 16

struct proc_fd {
	int ours, theirs; /* our descriptor appears as `theirs` in the child */
};

struct proc_spec {
	const char *const *argv;   /* argv[0] is a path (as seen from cwd), or a name in our PATH */
	const char *const *envp;   /* NULL: ours */
	const char *cwd;           /* NULL: ours */
	const struct proc_fd *fds; /* all others are closed; 0, 1, 2 not named are /dev/null */
	size_t n_fds;
	bool new_session;     /* setsid: it outlives us and our terminal */
	bool die_with_parent; /* PR_SET_PDEATHSIG KILL: when the thread that spawned it ends */
	bool detach;          /* forked twice: not our child, no zombie; pidfd still given */
	int umask_bits;       /* -1: ours */
};

struct proc {
	pid_t pid;
	int pidfd; /* close it */
};

/* exec failures are reported here ("<argv0>: No such file..."), not as exit code 127. Any thread.
 * Signals start at their defaults, none blocked. */
int proc_spawn(const struct proc_spec *spec, struct proc *out, struct err *err) MUST_CHECK;
/* 0 = ended (*status as of waitpid; -1 = not our child, so not known), 1 = still runs at the
 * deadline. deadline_ms counts from now, -1 = for ever. */
int proc_wait(struct proc *p, int64_t deadline_ms, int *status, struct err *err) MUST_CHECK;
/* Runs a helper program to its end: stdin from `in`, stdout and stderr into out (cut at its limit,
 * `full` says so). ERR_TIMEOUT at the deadline (from now, -1 = for ever): it is killed, and in any
 * case so is what it left in its process group. *exit_code: 0-255, or 128 + signal. */
int proc_run(const char *const *argv, struct str in, int64_t deadline_ms, struct buf *out,
             int *exit_code, struct err *err) MUST_CHECK;
/* The same, with somebody who looks at the output so far whenever there is more and at least every
 * PROC_LOOK_MS; when it says false, the helper is killed: ERR_CANCELED. */
#define PROC_LOOK_MS 500
struct proc_look {
	bool (*more)(void *arg, const struct buf *out);
	void *arg;
};
int proc_run_look(const char *const *argv, int64_t deadline_ms, const struct proc_look *look,
                  struct buf *out, int *exit_code, struct err *err) MUST_CHECK;
/* This process holds secrets: no core dump of it, and no look into it by others of its user. What
 * it starts is free of that again, but for the limit of core dumps, which it may raise. */
void proc_guard(void);
const char *proc_find(const char *name, char out[4096]); /* in PATH; NULL = not there */

#define PROC_BOOT_CAP 40
struct proc_id {
	pid_t pid;
	uint64_t start_ticks; /* /proc/PID/stat, field 22 */
	char boot[PROC_BOOT_CAP];
};
int proc_identify(pid_t pid, struct proc_id *out, struct err *err) MUST_CHECK;
/* Is the same process still there (not a zombie, same start, same boot)? */
bool proc_alive(const struct proc_id *id);

#endif
