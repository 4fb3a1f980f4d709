/*
 * exec_session.h - a command in a job, followed from here over one connection, which may be cut and
 * made again (io/line.h): it prints what the command prints, and sends what is typed or piped in,
 * the size of the terminal, and word that somebody is there.
 */
#ifndef EXEC_SESSION_H
#define EXEC_SESSION_H

#include "cli/cli.h"
#include "cli/escape.h"
#include "io/line.h"

enum session_end {
	SESSION_RUNS,
	SESSION_OVER, /* the command has ended, with `code` */
	SESSION_LEFT, /* Ctrl-C: it goes on alone */
	SESSION_HUNG, /* ~., a signal, or nobody reads what it prints: it is hung up */
};

struct session {
	struct cli *c;
	const char *path; /* of the command in the API */
	bool input, tty;
	int signal_fd;
	struct line line;
	struct escape escape;
	struct buf typed; /* for which there was no room yet */
	bool eof, eof_sent;
	enum session_end end;
	int code;
	bool unread;        /* nobody reads what it prints */
	bool told;          /* the other end was told of an end by us, */
	int64_t end_ms;     /* which came then */
	int64_t reached_ms; /* when the server was last heard of */
	atomic_bool stop;   /* a signal has come while the connection is made */
	struct err refused; /* by the server, for good; code ERR_NONE: not */
};

/* To the end of the command, or one of ours. ERR_* when neither is known. */
int session_follow(struct session *s, struct err *err);
void session_leave(struct session *s, enum session_end how, int code);

#endif
