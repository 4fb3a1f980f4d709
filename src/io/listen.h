/* listen.h - the listening socket, from HOST:PORT as people write it. */
#ifndef LISTEN_H
#define LISTEN_H

#include "base/err.h"

/* ERR_CONFLICT when the port is taken. *port is the one that was bound. The socket does not block.
 */
int listen_open(const char *address, int *fd, uint16_t *port, struct err *err) MUST_CHECK;
/* The port of a socket that was opened elsewhere. */
int listen_port(int fd, uint16_t *port, struct err *err) MUST_CHECK;

#endif
