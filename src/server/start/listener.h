/*
 * listener.h - where the listening socket comes from, so that its port is never free while a job
 * runs: whoever took it would be sent the tokens of clients.
 *
 * - systemd may hand it over (LISTEN_FDS of sd_listen_fds(3)) and keeps it itself.
 * - Otherwise a process of its own, the keeper (`stoker keep-port DATA`), has a copy of it. The
 * kernel queues connections while the server restarts, and the next server gets the socket from
 * there. Without a server for KEEPER_QUIET_MS the keeper answers 503. It ends when neither a server
 * nor a runner lives: a runner holds a shared lock on the file APP_RUNNERS as long as it runs.
 *
 * The keeper is reached at DATA/keeper.sock (SOCK_SEQPACKET), which only this user's processes can
 * open. Messages are one byte: T take (answer: F with the socket, or N), K or S keep this socket
 * (S: it speaks TLS; answer: O), D the server drains, Q end. A connection that is open is a server
 * that lives.
 */
#ifndef LISTENER_H
#define LISTENER_H

#include "server/app.h"

#define KEEPER_QUIET_MS 10000 /* a restart takes less: its callers only wait */
#define KEEPER_WAIT_MS 5000   /* for an answer of the keeper */

/* The socket, from systemd, from the keeper, or new. Sets app->set.listen to its address when
 * systemd chose it. */
int listener_open(struct app *app, int *fd, struct err *err) MUST_CHECK;
/* Gives the keeper a copy, and starts it when there is none. It is a safeguard: without it the
 * server works, and says so in its log. Called again by the janitor, in case the keeper was killed.
 */
void listener_keep(struct app *app);
/* No new requests: with runners alive the keeper goes on, else the port is let go. */
void listener_drain(struct app *app);
void listener_close(struct app *app);
/* For a server that ends at once and is not to come back here: the port is free. Any thread. */
void listener_abandon(struct app *app);

/* For a new runner to inherit: the lock of APP_RUNNERS, held as long as a copy of it is open. */
int listener_runner_lock(struct app *app, int *fd, struct err *err) MUST_CHECK;
/* Does a runner of this data folder live? */
bool listener_runners(const char *lock_path);

/* The keeper itself; fd 3 is the first server's connection. */
int keeper_main(int argc, char **argv, struct err *err);

#endif
