/*
 * secrets.h - named values of a team: sealed at rest, opened only for a source that asks for them,
 * for the runner of a job that names them, for a webhook, and for keeping them out of its notices.
 * In names every non-alphanumeric is the same character: hf_access_token is hf-access-token.
 */
#ifndef SECRETS_H
#define SECRETS_H

#include "core/redact.h"
#include "server/app.h"

char *secret_key(struct arena *a, const char *name);
/* The value, appended to out (wipe it: seal_wipe_buf). ERR_NOT_FOUND says how to set it. */
int secret_open(struct app *app, const char *team_id, const char *name, struct buf *out,
                struct err *err) MUST_CHECK;
/* Every secret that the specification names and the team does not have: ERR_INVALID lists all. One
 * that is no webhook, and should be. */
int secrets_check(struct app *app, const char *team_id, const struct job_spec *spec,
                  struct err *err) MUST_CHECK;
/* The value of each that is there, to be redacted. */
int secrets_redact(struct app *app, const char *team_id, const struct job_spec *spec,
                   struct redact *r, struct err *err) MUST_CHECK;

#endif
