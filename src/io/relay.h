/*
 * relay.h - a request that another HTTP server on this machine answers: passed on whole, and its
 * reply passed back while it arrives, as server-sent events need it. One thread moves the bytes of
 * all of them, by libcurl's multi interface; a client that reads slowly holds RELAY_RING bytes, a
 * piece and one connection of the other server, and slows that one down; one that takes nothing for
 * idle_s of its listener is cut off. Who leaves in the middle ends the exchange there within a
 * second. So does who says that it sends no more, but would still read: that is the only word that
 * comes from a client which has left while nothing is sent to it, and a model's time costs more
 * than such a client's patience. nginx decides in the same way (499).
 *
 * Not passed on: the caller's credentials, cookies, and what is about one connection alone (RFC
 * 9110, 7.6.1). Nor is a cookie that the other server sets, or what else it may say about all of an
 * origin: its replies come from ours, and run no script there ("Content-Security-Policy: sandbox").
 * The head of a reply may have 16 KiB.
 */
#ifndef RELAY_H
#define RELAY_H

#include "io/httpd.h"

#define RELAY_RING ((size_t)256 << 10)

/* Told once for each reply_relay() that returned 0, by the relay's thread. */
struct relay_end {
	int status;      /* the reply's; 0: there was none, the client got an error of ours */
	bool left;       /* by the client, before the end */
	bool cut;        /* by the other server, in the middle of its reply */
	const char *why; /* words for status 0 and cut; NULL: nothing to say */
	uint64_t bytes;  /* of the reply's body */
	int64_t first_ms, all_ms; /* to the reply's head, -1 without one; to the end */
};

struct relay_call {
	const char *url;   /* http://127.0.0.1:PORT/path?query; kept as long as the request lives */
	const char *token; /* goes there as Bearer; NULL: none */
	struct str body;
	bool waited;        /* as others may have, for the same moment: see GENTLY_MS in relay.c */
	int64_t head_ms;    /* until the head of the reply; 0 = 10 minutes */
	int64_t silence_ms; /* between two pieces of its body; 0 = 10 minutes */
	void (*ended)(void *arg, const struct relay_end *end); /* may be NULL */
	void *arg;
};

struct relay;
struct relay *relay_new(void);
/* After httpd_stop() of all that relay with it. NULL is fine. */
void relay_free(struct relay *r);

/* The handler's reply: `rq` goes to `call` with its own method and headers. ERR_BUSY: RELAYS_MAX
 * are under way. Without an answer the client gets ERR_UPSTREAM or ERR_TIMEOUT. */
#define RELAYS_MAX 2048
int reply_relay(struct request *rq, struct relay *r, const struct relay_call *call,
                struct err *err) MUST_CHECK;

#endif
