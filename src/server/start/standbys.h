/*
 * standbys.h - what the server that leads knows of those that wait to lead (standby.h).
 *
 * Who waits now the database says by its sessions. Who waited last is a row, so that also a standby
 * that has become the leader can say that none is left. It is forgotten after STANDBYS_KNOWN_MS:
 * somebody wants it so.
 */
#ifndef STANDBYS_H
#define STANDBYS_H

#include "server/app.h"

#define STANDBYS_KNOWN_MS (7LL * 24 * 3600 * 1000)

struct standbys {
	struct lead_waiting waiting[LEAD_WAITING_MAX];
	size_t n;
	const char *last; /* n is 0: the one that waited last; NULL: none did, or long ago */
	int64_t last_ms;  /* when it was seen */
};

int standbys_look(struct app *app, struct arena *a, struct standbys *out,
                  struct err *err) MUST_CHECK;
/* Writes down who waits. */
void standbys_note(struct app *app);

#endif
