/* standby.h - what a server says while another one leads: its health, and to everybody who asks for
 * more, where the leader is. */
#ifndef FACE_STANDBY_H
#define FACE_STANDBY_H

#include "io/httpd.h"

#define STANDBY_URL_CAP 300
#define STANDBY_RETRY_S 2

struct standby_view {
	bool database_away;
	char leader[STANDBY_URL_CAP]; /* where it answers; empty: not known */
};

/* httpd_options.ctx of a server with this face alone. */
struct standby_ctx {
	unsigned magic;
#define STANDBY_CTX_MAGIC 0x57a4db1eU
	void (*view)(void *of, struct standby_view *out);
	void *of;
};

extern const struct face face_standby;

#endif
