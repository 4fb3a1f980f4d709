/*
 * auth.h - tokens to callers. A token is "stoker_" (a person's or a script's) or "stokerrun_" (of
 * one attempt and node) and 256 random bits; only its SHA-256 is stored, so a lookup by hash leaks
 * no timing worth having.
 */
#ifndef AUTH_H
#define AUTH_H

#include "server/app.h"

/* The hook of httpd: Authorization: Bearer or Api-Key. */
int auth_request(struct request *rq, enum scope scope, struct err *err);
/* A new token and the hex of its hash, in the arena. */
char *auth_new_token(struct arena *a, const char *prefix, char **hash);

#endif
