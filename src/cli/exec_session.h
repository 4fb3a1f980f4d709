/*
 * exec_session.h - a command in a job, followed from here: one thread prints what it prints, one
 * sends what is typed or piped in, the size of the terminal, and word that somebody is there. Both
 * go on by offset where a connection was cut, for SESSION_AWAY_MS.
 */
#ifndef EXEC_SESSION_H
#define EXEC_SESSION_H

#include "cli/cli.h"

#include <pthread.h>

#define SESSION_AWAY_MS 20000 /* the server knows no longer, either, who started it */
#define SESSION_WORD_MS 5000  /* how often it hears of us at least */

enum session_end {
	SESSION_RUNS,
	SESSION_LEFT, /* Ctrl-C: it goes on alone */
	SESSION_HUNG, /* ~. or a signal: it was hung up */
};

struct session {
	unsigned magic;
#define SESSION_MAGIC 0x4c534553U
	struct cli *c;
	const char *path; /* of the command in the API */
	bool input, tty;
	int signal_fd, wake_fd; /* wake: there is nothing more to send */
	atomic_bool left;       /* set with `end`: exchanges are canceled */
	enum session_end end;
	int code;    /* of an end by us */
	bool unread; /* nobody reads what it prints any more */
	pthread_t feed;
};

/* One exchange, tried once; the answer is in `a`. */
int session_call(struct session *s, enum http_method method, const char *tail,
                 const struct buf *body, struct arena *a, const struct doc **out,
                 struct err *err) MUST_CHECK;
bool session_may_try(const struct err *err);
/* Tells the server. It may be away: then it finds out by itself. */
void session_leave(struct session *s, enum session_end how, int code);
/* exec_feed.c: the second thread. */
void session_feed_start(struct session *s);
void session_feed_stop(struct session *s);

#endif
