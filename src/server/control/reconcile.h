/*
 * reconcile.h - rows against evidence, both ways. Only evidence ends an attempt: an exit record, or
 * the engine's word that the runner is gone. A runner that is merely silent is left alone, unless
 * its job was stopped: then somebody must. What is over is cleaned; what is ours but belongs to
 * nothing is ended.
 *
 * A runner that is gone is swept by its engine, and its sweep says to us, with the runner's token,
 * what the runner had not: so the row is looked at again behind it, and an attempt that has no
 * record then has none. Nothing here opens a runner's folder: it may lie on another machine.
 *
 * What a server on another machine had started is known by its heartbeats alone: neither the engine
 * here nor a folder says anything about it. It is lost when it was not heard of for --node-lost,
 * counted by our clock from when we began to listen; the store goes on from its newest checkpoint
 * if the job's retry rule names node_fail. Its folder is its own server's to clean.
 *
 * The part of it that waits (a dead runner's processes and checkpoints are swept, a late runner is
 * ended, a folder is removed: seconds each, and tens of them while a store is away) is done by
 * app->sweeps, one task a folder (engine_dir), so that neither the next look at everybody nor the
 * end of the server waits for it. What is given up then is swept after the next start.
 */
#ifndef RECONCILE_H
#define RECONCILE_H

#include "server/app.h"

#define RECONCILE_PERIOD_MS 3000
#define RECONCILE_SILENT_MS 10000 /* no heartbeat for this long: look */
#define RECONCILE_YOUNG_MS 5000   /* a launch this fresh is not looked at */
#define RECONCILE_SWEEP_MS 60000  /* what cannot be swept after this is left */
/* What is still on its way after this is given up, too: a runner waits for its server as long. */
#define RECONCILE_GIVE_UP_MS 86400000
#define SWEEP_THREADS 8
#define SWEEP_QUEUE_MAX 1000
#define RECONCILE_ORPHAN_MS 60000 /* a runner whose attempt is over has this long to end */

#define RECONCILE_PAUSE_MS 20000 /* passes that are further apart have missed what runners said */

#define RECONCILE_GRACE_S 30    /* of a job whose specification cannot be read */
#define RECONCILE_DEAF_MS 60000 /* and one that was told to stop, beyond its job's grace time */

/* Once, before the loops: what an earlier life of the server left half done. */
void reconcile_start(struct app *app);
void reconcile_pass(struct app *app);

#endif
