/*
 * sts.h - keys of a role, for an hour each, from AWS's Security Token Service
 * (docs.aws.amazon.com/STS/latest/APIReference), which MinIO has, too: AssumeRole in exchange for
 * keys that may do that, AssumeRoleWithWebIdentity in exchange for a token of an issuer that the
 * role trusts.
 */
#ifndef STS_H
#define STS_H

#include "io/sigv4.h"
#include "store/sources/credential.h"

struct sts; /* safe to use from several threads */

struct sts_role {
	const char *arn;
	const char *endpoint; /* of the service, without '/' at its end */
	struct sigv4_key by;  /* who asks; its region is the service's. Or, when not NULL, */
	const struct identity_token *identity; /* who asks without keys, */
	const char *audience;                  /* and what the service calls itself */
};

/* Copies the role, but for the identity. That and the client outlive it. */
struct sts *sts_new(struct http_client *client, const struct sts_role *role) MUST_CHECK;
void sts_free(struct sts *s); /* wipes the keys; NULL is fine */
/* The role's keys, in `a`, without region and service. ERR_SOURCE_DENIED: the role may not be
 * assumed by who asks. */
int sts_key(struct sts *s, struct arena *a, const atomic_bool *cancel, struct sigv4_key *out,
            struct err *err) MUST_CHECK;

#endif
