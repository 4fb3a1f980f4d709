/*
 * repo_room.h - room in the store for what a client sends. It is taken as the bytes come, not when
 * they are announced: to say a length costs nothing, and what others have would go for it.
 */
#ifndef SERVER_REPO_ROOM_H
#define SERVER_REPO_ROOM_H

#include "server/app.h"

struct mirror_hold;

struct repo_room {
	struct app *app;
	struct mirror_hold *hold;
	uint64_t held; /* and not used yet */
	uint64_t rest; /* that may still come beyond what is held */
};

/* For at most `bytes`; more are refused. Now, what does not fit into the disk or the quota. */
int repo_room_open(struct app *app, uint64_t bytes, struct repo_room *out,
                   struct err *err) MUST_CHECK;
/* Before each write. */
int repo_room_need(struct repo_room *r, uint64_t bytes, struct err *err) MUST_CHECK;
void repo_room_close(struct repo_room *r);

#endif
