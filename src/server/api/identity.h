/*
 * identity.h - web identity: this server as an issuer of OpenID Connect, whom AWS, Google Cloud and
 * stores trust instead of keys. It signs who a job is, for sources alone: a token goes from the
 * server to the service that it names as its audience, never to a runner, a job or a client.
 *
 * The key is made when it is first needed and lies in the database, sealed by the master key, so
 * whoever leads signs with the same one. Its name follows from it (RFC 7638).
 */
#ifndef SERVER_IDENTITY_H
#define SERVER_IDENTITY_H

#include "server/app.h"
#include "store/sources/credential.h"

#define IDENTITY_ORG "stoker"     /* what GraphQL calls the organization, too */
#define IDENTITY_LIFE_S (10 * 60) /* of a token, which is used at once */

void identity_start(struct app *app);
void identity_free(struct app *app);
/* Before anything is signed. Reads the key, or makes it: call it without locks. */
int identity_load(struct app *app, struct err *err) MUST_CHECK;
/* Who asks for weights of a team's project, in `a`; job_id began it, and is only told. */
struct identity_who {
	const char *team_id, *project_id, *job_id;
};
void identity_of(struct app *app, struct arena *a, const struct identity_who *who,
                 struct identity_token *out);
/* Can AWS and Google trust this issuer? ERR_ISSUER_NOT_PUBLIC. */
int identity_may(struct app *app, const struct spec_weights *w, struct err *err) MUST_CHECK;

#endif
