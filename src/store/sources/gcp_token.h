/*
 * gcp_token.h - access tokens of Google Cloud. For the key of a service account: a JWT that it
 * signs is exchanged for one (RFC 7523; developers.google.com/identity/protocols/oauth2/
 * service-account). For web identity: a token of an issuer that a workload identity pool trusts is
 * exchanged for one of the pool (RFC 8693), and that for one of a service account
 * (cloud.google.com/iam/docs/workload-identity-federation-with-other-providers).
 */
#ifndef GCP_TOKEN_H
#define GCP_TOKEN_H

#include "base/doc.h"
#include "store/sources/credential.h"

struct gcp_token; /* safe to use from several threads */

/* From the JSON file that Google Cloud gives out for a key. `plain`: its token_uri may be http.
 * ERR_SOURCE_SECRET_INVALID names the field that is missing. The client outlives the token. */
int gcp_token_new(struct http_client *client, const struct doc *account, bool plain,
                  struct gcp_token **out, struct err *err) MUST_CHECK;
/* Copies both names; the identity and the client outlive the token. */
struct gcp_web {
	const char *account;  /* the service account's address */
	const char *provider; /* projects/N/locations/global/workloadIdentityPools/POOL/providers/P
	                       */
	const char *endpoint; /* of both services, without '/' at its end; NULL: Google's */
	const struct identity_token *identity;
};
struct gcp_token *gcp_token_new_web(struct http_client *client,
                                    const struct gcp_web *web) MUST_CHECK;
void gcp_token_free(struct gcp_token *t); /* wipes the key */
/* The value of an Authorization header, in `a`. */
int gcp_token_bearer(struct gcp_token *t, struct arena *a, const atomic_bool *cancel,
                     const char **out, struct err *err) MUST_CHECK;

#endif
