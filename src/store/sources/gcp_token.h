/*
 * gcp_token.h - access tokens of Google Cloud for the key of a service account: a JWT that it signs
 * is exchanged for one (RFC 7523; developers.google.com/identity/protocols/oauth2/service-account).
 */
#ifndef GCP_TOKEN_H
#define GCP_TOKEN_H

#include "base/doc.h"
#include "io/client.h"

struct gcp_token; /* safe to use from several threads */

/* From the JSON file that Google Cloud gives out for a key. `plain`: its token_uri may be http.
 * ERR_SOURCE_SECRET_INVALID names the field that is missing. The client outlives the token. */
int gcp_token_new(struct http_client *client, const struct doc *account, bool plain,
                  struct gcp_token **out, struct err *err) MUST_CHECK;
void gcp_token_free(struct gcp_token *t); /* wipes the key */
/* The value of an Authorization header, in `a`; fetched when there is none, or when the last one
 * ends within five minutes. One thread fetches, the others wait for it. */
int gcp_token_bearer(struct gcp_token *t, struct arena *a, const atomic_bool *cancel,
                     const char **out, struct err *err) MUST_CHECK;

#endif
