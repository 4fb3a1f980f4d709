/*
 * proof.h - a server proves that it knows a token, before the token is sent to it.
 *
 * Over plain HTTP nothing says who answers at an address: whoever gets hold of the port is sent the
 * tokens. So the first exchange on every plain connection of our client is
 *
 *   POST /v1/proof {"token": ID, "challenge": C}      ID: the first 16 hex digits of SHA-256(token)
 *   200 {"address": A, "proof": P}                    C: 64 random hex digits, of this connection
 *
 * with P = HMAC-SHA-256(SHA-256(token), "stoker proof 1\n" C "\n" A) in hex and A the address and
 * port at which the server took this connection. A server stores SHA-256(token), nobody else has
 * it, and the token cannot be computed from it. Who passes the challenge on to the real server, at
 * another port, passes on that port, too: a login remembers it (see proof_ask's `port`).
 */
#ifndef PROOF_H
#define PROOF_H

#include "base/hash.h"

#include <stdatomic.h>

#define PROOF_PATH "/v1/proof"
#define PROOF_ID_LEN 16 /* hex digits */
#define PROOF_CHALLENGE_LEN 64
#define PROOF_MS 30000 /* for the whole exchange */
#define PROOF_ADDRESS_MAX 100

void proof_id(struct str token, char out[PROOF_ID_LEN + 1]);
/* `key`: the SHA-256 of the token. */
void proof_make(const struct digest *key, struct str challenge, struct str address,
                char out[HASH_HEX_CAP]);

struct proof {
	const char *host;   /* value of the Host header */
	const char *target; /* path, PROOF_PATH behind what the server's URL has */
	struct str token;
	const atomic_bool *cancel; /* ERR_CANCELED once it is set; may be NULL */
	unsigned port;             /* the port that the server has to say; 0 = any */
	unsigned found;            /* filled: the one that it said */
};
/* The exchange over a connected socket, which is as before when it ends well.
 * ERR_TOKEN_INVALID: whoever answers does not know the token. ERR_SERVER_UNPROVEN: it is not the
 * server. ERR_UNAVAILABLE, ERR_TIMEOUT: worth another try. */
int proof_ask(struct proof *p, int fd, struct err *err) MUST_CHECK;

#endif
