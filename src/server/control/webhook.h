/*
 * webhook.h - whom a job's `notify` tells: a secret of the team whose first line is a URL and whose
 * second one, if there is one, is the key that signs; one signed POST to it.
 *
 * Signatures are those of https://www.standardwebhooks.com: webhook-id, webhook-timestamp (seconds)
 * and webhook-signature, "v1," and the base64 of HMAC-SHA256 over "id.timestamp.body". A key that
 * starts with whsec_ is base64, any other is its own bytes.
 */
#ifndef WEBHOOK_H
#define WEBHOOK_H

#include "core/redact.h"
#include "server/app.h"

#define WEBHOOK_CALL_MS 10000 /* one call, from the connect to the last byte of the answer */
#define WEBHOOK_KEY_MIN 16    /* bytes: a shorter one can be guessed */
#define WEBHOOK_KEY_MAX 1024

struct webhook {
	const char *url;
	uint8_t key[WEBHOOK_KEY_MAX];
	size_t key_n; /* 0: not signed */
};

/* From the value of a secret; errors do not repeat it. plain_http: whether http:// may be. */
int webhook_parse(struct arena *a, struct str value, bool plain_http, struct webhook *out,
                  struct err *err) MUST_CHECK;
/* Opens and parses. ERR_NOT_FOUND when the secret is not set, ERR_INVALID when it is no webhook. */
int webhook_open(struct app *app, struct arena *a, const char *team_id, const char *name,
                 struct webhook *out, struct err *err) MUST_CHECK;
void webhook_done(struct webhook *w); /* wipes */
/* "v1,<base64>" of a message; nothing where there is no key. */
void webhook_sign(const struct webhook *w, const char *id, int64_t seconds, struct str body,
                  struct buf *out);
/* One try. Any 2xx is success; *status is 0 when there was no answer, *pause_s what the answer asks
 * for (0 = nothing). Errors hold neither the URL nor the key. */
int webhook_post(struct app *app, const struct webhook *w, const struct model_delivery *t,
                 int *status, int *pause_s, struct err *err) MUST_CHECK;

#endif
