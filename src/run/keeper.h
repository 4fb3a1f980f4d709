/*
 * keeper.h - processes beside a runner that gives up root, which keep what it may not have: the
 * node cache (node.h), the machine's images (image_keeper.h), the right to take a file out of its
 * project (prjquota_keeper.h). Forked before root is given up, each answers questions on a socket
 * of whole messages, and ends when the runner does or hangs up.
 */
#ifndef KEEPER_H
#define KEEPER_H

#include "base/err.h"

#include <stdatomic.h>
#include <sys/types.h>

struct keeper_end { /* the runner's; {-1, 0}: none */
	int sock;
	pid_t pid;
};

/* The keeper runs life(), which does not return, with its end of the socket and the runner's id.
 * The caller has one thread. `what` is for errors: "the node cache". */
int keeper_start(struct keeper_end *out, const char *what,
                 void (*life)(void *arg, int sock, pid_t runner), void *arg,
                 struct err *err) MUST_CHECK;
/* Nothing more is asked: it ends by itself. */
void keeper_hang_up(struct keeper_end *k);
/* ... and has ended, or is left to itself. */
void keeper_close(struct keeper_end *k);
/* Of an error that the socket gave: when the other end is gone it becomes ERR_KEEPER_LOST, for it
 * is no outage, which would be waited for. `does`: "keeps the node cache for this job". Always -1.
 */
int keeper_lost(const char *does, struct err *err);

/* --- of the keeper's own --- */

/* The first word of a life: of all that the runner has open, only stdin to stderr and the fds[] are
 * kept, with new numbers. *runner: a pidfd of it. ERR_CANCELED: it has ended. */
int keeper_keep_fds(int *fds[], size_t n, pid_t runner, int *pidfd, struct err *err) MUST_CHECK;
/* Once it has the ids that it will have: a thread that sets *over when the runner has hung up or
 * ended, and ends the process soon after. */
int keeper_watch(int sock, int pidfd, atomic_bool *over, struct err *err) MUST_CHECK;

#endif
