/*
 * node_room.h - weights of a job are mounted from the node cache, which holds what running jobs
 * have mounted and evicts the rest. A job whose weights do not fit beside those of placed jobs
 * waits in the queue, so that it holds no CPU and no GPU meanwhile. Python environments count as
 * long as somebody uses or builds them. One that a job is going to want does not, its size being
 * unknown until it is built: a runner that finds no room for it waits itself.
 */
#ifndef NODE_ROOM_H
#define NODE_ROOM_H

#include "core/sched.h"
#include "server/app.h"

struct node_room;

/* The trees that jobs have in the cache now; allocated in the arena. */
int node_room_read(struct app *app, struct arena *a, struct node_room **out,
                   struct err *err) MUST_CHECK;
/* Asked in the order of the line. True: the weights fit, and count from now on. False: `reason`
 * says what is missing, and jobs behind it get only what it leaves, or has no use for. A job that
 * needs more than there can be is let through: its runner says so. */
bool node_room_let(struct node_room *r, const char *job_id, char reason[SCHED_REASON]);

#endif
