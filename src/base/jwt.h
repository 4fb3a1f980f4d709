/*
 * jwt.h - signs JSON Web Tokens (RFC 7519) with RS256 (RFC 7518 section 3.3), over OpenSSL. Nothing
 * is verified here.
 */
#ifndef JWT_H
#define JWT_H

#include "base/buf.h"

/* Appends "<header>.<claims>.<signature>" to out. `key_id` becomes "kid", NULL leaves it out;
 * `claims` is a JSON object; `pem` is an RSA private key, PKCS #8 or PKCS #1, without a password.
 * ERR_INVALID "not an RSA private key in PEM"; the key's text is never part of a message. */
int jwt_sign_rs256(struct str pem, const char *key_id, struct str claims, struct buf *out,
                   struct err *err) MUST_CHECK;

#endif
