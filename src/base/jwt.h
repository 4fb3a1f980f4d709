/*
 * jwt.h - signs JSON Web Tokens (RFC 7519) with RS256 (RFC 7518 section 3.3), over OpenSSL, makes
 * keys for that, and says what others need to verify (RFC 7517). Nothing is verified here.
 */
#ifndef JWT_H
#define JWT_H

#include "base/arena.h"
#include "base/buf.h"

/* Appends "<header>.<claims>.<signature>" to out. `key_id` becomes "kid", NULL leaves it out;
 * `claims` is a JSON object; `pem` is an RSA private key, PKCS #8 or PKCS #1, without a password.
 * ERR_INVALID "not an RSA private key in PEM"; the key's text is never part of a message. */
int jwt_sign_rs256(struct str pem, const char *key_id, struct str claims, struct buf *out,
                   struct err *err) MUST_CHECK;

/* Appends a new key of 2048 bits, PKCS #8 in PEM, which is the caller's to wipe. */
void jwt_new_key(struct buf *pem);

/* The public half, as a JSON Web Key has it: base64url, in `a`. `id` is the key's thumbprint
 * (RFC 7638), so it follows from the key and changes with it. ERR_INVALID as above. */
struct jwt_public {
	const char *id, *n, *e;
};
int jwt_public_key(struct arena *a, struct str pem, struct jwt_public *out,
                   struct err *err) MUST_CHECK;

#endif
