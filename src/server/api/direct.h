/*
 * direct.h - may clients put their code into the object store themselves?
 *
 * They get a request whose signature covers the digest of the body (objstore_sign_put). That holds
 * as long as the store compares them, and takes no copy of another object instead of a body; S3
 * says so, and not everything that speaks S3 does. So each server tries it once, with an object of
 * its own, before the first client is sent there.
 */
#ifndef SERVER_DIRECT_H
#define SERVER_DIRECT_H

#include "server/app.h"

/* For how long what is signed now may begin to be written: the store's clock may be behind. */
#define DIRECT_S (2LL * OBJSTORE_PUT_S)

/* ERR_UNSUPPORTED: clients send to this server. */
int direct_may(struct app *app, struct err *err) MUST_CHECK;

#endif
