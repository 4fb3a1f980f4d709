/*
 * seal.h - random tokens and secrets at rest, over libsodium. A secret is sealed with a key of its
 * own (XChaCha20-Poly1305, the name as additional data) and that key is wrapped by the master key.
 */
#ifndef SEAL_H
#define SEAL_H

#include "base/hash.h"

#define SEAL_KEY_LEN 32
#define SEAL_VALUE_MAX ((size_t)1 << 20) /* a service-account file fits many times over */

struct seal_key {
	uint8_t b[SEAL_KEY_LEN];
};

/* Reads the master key, or makes it (0600, fsynced) when `create`. Refuses a file that group or
 * others can read: ERR_DENIED that says how to mend it. The pages that *out lies on are locked, and
 * left out of core dumps. */
int seal_load_key(const char *path, bool create, struct seal_key *out, struct err *err) MUST_CHECK;

/* Appends the sealed form (version, wrapped key, nonces, ciphertext) to out. `about` binds it to
 * its place (team/name/version): opening with another one fails. */
void seal_close(const struct seal_key *master, struct str about, struct str value, struct buf *out);
/* ERR_CORRUPT when it was changed, or sealed by another key or for another place. */
int seal_open(const struct seal_key *master, struct str about, struct str sealed, struct buf *out,
              struct err *err) MUST_CHECK;

void seal_random(void *p, size_t n);
void seal_wipe(void *p, size_t n);
void seal_wipe_buf(struct buf *b);                      /* wipes, then frees */
bool seal_same(const void *a, const void *b, size_t n); /* constant time */
/* n characters of [a-z0-9] without look-alikes; NUL-terminated, out holds n + 1. */
void seal_id(char *out, size_t n);
/* "<prefix>_<43 url-safe characters>": 256 random bits. */
void seal_token(const char *prefix, struct buf *out);

#endif
