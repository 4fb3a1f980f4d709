/* exec_inner.h - a command inside, as its two threads share it. */
#ifndef EXEC_INNER_H
#define EXEC_INNER_H

#include "core/resumable.h"
#include "run/exec.h"

#include <pthread.h>

struct command {
	unsigned magic;
#define COMMAND_MAGIC 0x52434f4dU
	const struct exec_options *o;
	struct arena *a; /* of what */
	struct wire_exec what;
	bool used, refused;
	pthread_t thread; /* sends what it prints, waits for its end */
	pthread_t feed;   /* fetches what it is given */
	struct sandbox_inside in;
	int wake_fd;         /* readable when `over` is set */
	atomic_int state;    /* the last word of the server, an enum wire_exec_state */
	atomic_bool over;    /* it has ended: no more input */
	atomic_bool closing; /* the job is over */
	atomic_bool ended;   /* the threads have nothing more to do */
};

/* The server's view of the command: one that is hung up stays hung up. */
void command_heard(struct command *c, enum wire_exec_state state);
void command_feed_start(struct command *c);
void command_feed_stop(struct command *c);

#endif
