/* move.h - `stoker server --move-database FROM TO`. */
#ifndef SERVER_MOVE_H
#define SERVER_MOVE_H

#include "server/settings.h"

/* Both by the locks of their servers; prints how far it is, and what to start next. */
int server_move(struct arena *a, const struct settings *set, struct err *err) MUST_CHECK;

#endif
