/*
 * sts.h - keys of a role, for an hour each, in exchange for keys that may assume it: AssumeRole of
 * AWS's Security Token Service (docs.aws.amazon.com/STS/latest/APIReference), which MinIO has, too.
 */
#ifndef STS_H
#define STS_H

#include "io/sigv4.h"

struct sts; /* safe to use from several threads */

struct sts_role {
	const char *arn;
	const char *endpoint; /* of the service, without '/' at its end */
	struct sigv4_key by;  /* who asks; its region is the service's */
};

/* Copies the role. The client outlives it. */
struct sts *sts_new(struct http_client *client, const struct sts_role *role) MUST_CHECK;
void sts_free(struct sts *s); /* wipes the keys; NULL is fine */
/* The role's keys, in `a`, without region and service; fetched when there are none, or when the
 * last ones end within five minutes. One thread fetches, the others wait. ERR_SOURCE_DENIED: the
 * role may not be assumed with these keys. */
int sts_key(struct sts *s, struct arena *a, const atomic_bool *cancel, struct sigv4_key *out,
            struct err *err) MUST_CHECK;

#endif
