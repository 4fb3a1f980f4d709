/*
 * node.h - what the stages of a job ask of the node cache (store/blobs/tree.h, built.h).
 *
 * A runner that gives up root cannot write there: what one job's runner could change, the next job
 * would read. So before it gives root up it starts a keeper, a process of its own that sees the
 * node cache, the way to the server and what everybody may read, with an id of its own (confine.h).
 * The keeper makes trees of weights, which it verifies, and hands out leases. An environment is
 * filled by the runner, in the only folder of the cache that it can write to and no other runner
 * can, and moved from there by the keeper, who makes it its own; nobody but jobs of the same team
 * is given it.
 *
 * The keeper believes nothing of what it hears: it brings no weights but those of its launch, and
 * the key of an environment is one of its team, whatever the runner says. It ends when the runner
 * does, or hangs up.
 *
 * A runner that keeps its rights asks the cache itself.
 *
 * The protocol, over a socket of whole messages, is wire_node:
 *
 *   tree KEY     -> progress ..., then shown and leased, or failed
 *   built KEY    -> wait ..., damaged ..., make TEXT (a folder), then shown and leased, or failed;
 *                   to a make
 *     grow       -> grown: its error, or none
 *     say TEXT
 *     made, or failed
 *
 * A shown brings a mount of the tree, which is attached nowhere: read-only, without owners or
 * devices, and the kernel holds it to that. A leased has the tree's path, where the runner attaches
 * the mount, and a descriptor that holds the lease. So a runner, and who took it over, sees the
 * trees of its own job, and knows no way to another one by its name.
 */
#ifndef NODE_H
#define NODE_H

#include "core/wire.h"
#include "run/confine.h"
#include "store/blobs/built.h"

#include <stdatomic.h>

struct node;

/* The cache itself. */
int node_open(struct node **out, const char *dir, uint64_t budget_bytes,
              struct err *err) MUST_CHECK;
/* A keeper of it. The caller is root, has one thread, and is about to give root up; `c` is how it
 * will, with ids as ids_take() gave them: c->making is set. What the keeper cannot do is told when
 * it is asked. */
int node_start_keeper(struct node **out, struct confine *c, struct err *err) MUST_CHECK;
/* Nothing more is asked: the keeper ends, while its caller goes on. NULL is fine. */
void node_hang_up(struct node *n);
/* ... and has ended; leases stay. NULL is fine. */
void node_close(struct node *n);
bool node_has_keeper(const struct node *n);

/* node_cache_tree(). `from` is not looked at by a keeper, which has its own. */
int node_tree(struct node *n, const struct tree_from *from, const struct digest *manifest,
              void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
              const atomic_bool *cancel, struct node_lease *out, struct err *err) MUST_CHECK;

struct node_making; /* an environment that is being made */
struct node_maker { /* see struct built_maker */
	int (*make)(void *arg, struct node_making *m, const char *dir, struct err *err);
	void (*wait)(void *arg, const char *words);
	void (*damaged)(void *arg, const char *why);
	void *arg;
};
/* node_cache_built(), of this key and this team. */
int node_built(struct node *n, const char *team_id, const struct digest *key,
               const struct node_maker *maker, const atomic_bool *cancel, struct node_lease *out,
               struct err *err) MUST_CHECK;
int node_grow(struct node_making *m, struct err *err) MUST_CHECK;
void node_say(struct node_making *m, const char *words);

/* --- within node*.c --- */

struct digest node_key(const char *team_id, const struct digest *key);
/* Until the other end has read enough: ERR_UNAVAILABLE when it is gone. fd: -1 for none. */
int node_send(int sock, const struct wire_node *m, int fd, struct err *err) MUST_CHECK;
int node_send_error(int sock, const char *verb, const struct err *why, struct err *err) MUST_CHECK;
/* ERR_TIMEOUT after wait_ms, -1 = never. *fd: -1 = none came along. */
int node_receive(int sock, int64_t wait_ms, struct arena *a, struct wire_node *out, int *fd,
                 struct err *err) MUST_CHECK;
int node_told_error(const struct wire_node *m, struct err *err); /* always -1 */
/* node_keeper.c: the keeper's whole life; does not return. `runner` is a process that is alive or
 * our parent, and c how it will give root up. */
void node_keep(int sock, int making, pid_t runner, const struct confine *c) NORETURN;

#endif
