/*
 * credential.h - what gives access for a while: fetched when it is first needed, and again before
 * it ends. One thread fetches, the others wait for it. The drivers are sts.c and gcp_token.c.
 */
#ifndef CREDENTIAL_H
#define CREDENTIAL_H

#include "base/arena.h"
#include "base/sync.h"
#include "io/client.h"

#define CREDENTIAL_MAX ((size_t)16 << 10)
#define CREDENTIAL_LIFE_S 3600 /* what is asked for, and the longest that is believed */
#define CREDENTIAL_CALL_MS 30000
#define CREDENTIAL_REPLY_MAX ((size_t)64 << 10)

/* One try: appends the text of a new one, and says how long it is good for. `of` is the driver's.
 * Errors that the table of errors calls passing are tried again. */
typedef int credential_ask(void *of, const atomic_bool *cancel, struct buf *text, int64_t *life_ms,
                           struct err *err);

struct credential {
	struct lock lock; /* what follows */
	struct buf text;  /* empty: none yet */
	int64_t renew_mono_ms;
};

void credential_init(struct credential *c);
void credential_done(struct credential *c); /* wipes it */
/* Its text, in `a`; renewed five minutes before its end, or halfway where it is shorter. */
int credential_text(struct credential *c, credential_ask *ask, void *of, struct arena *a,
                    const atomic_bool *cancel, const char **out, struct err *err) MUST_CHECK;

/* Is it printable and without blanks? Then it can be a header, or a part of one. */
bool credential_is_word(struct str s);

/*
 * Web identity: who the job is that wants a source, in words that the issuer has signed. Audience
 * is who shall believe them, so nobody else can use them. The issuer outlives the source.
 */
struct identity_token {
	const char *issuer, *subject;
	const char *session; /* what a role's log calls whoever uses it */
	/* Appends a token that is good for some minutes. */
	int (*mint)(const struct identity_token *t, const char *audience, struct buf *out,
	            struct err *err);
	void *of; /* the issuer's */
};

/* A refusal of a token that was shown to `audience`: ERR_SOURCE_DENIED that ends with what the
 * token says, for whoever mends what is trusted there. */
int identity_refused(const struct identity_token *t, const char *audience, const char *who,
                     struct str words, struct err *err);
/* Whoever was shown the token may have said it back: the message goes further, the token does not.
 */
void identity_scrub(struct str token, struct err *err);

#endif
