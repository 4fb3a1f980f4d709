/*
 * auth.h - tokens to callers. A token is "stoker_" (a person's or a script's) or "stokerrun_" (of
 * one attempt and node) and 256 random bits; only its SHA-256 is stored, so a lookup by hash leaks
 * no timing worth having. "stokerjob_" is that of a job's own commands, see auth_job_token().
 */
#ifndef AUTH_H
#define AUTH_H

#include "server/app.h"

#define AUTH_KNOWN_MAX 64

/* The hook of httpd: Authorization: Bearer or Api-Key. */
int auth_request(struct request *rq, enum scope scope, struct err *err);
/* Tokens of people that were good the last time, for an outage of the database: what it would say
 * of them cannot change meanwhile, as changes go through it. A few; the oldest goes. */
struct known_tokens {
	struct lock lock;
	struct known_token {
		char hash[HASH_HEX_CAP], id[MODEL_ID_CAP], team_id[MODEL_ID_CAP];
		char name[SPEC_NAME_MAX + 1];
		enum model_role role;
		int64_t expires_ms;
	} token[AUTH_KNOWN_MAX];
	size_t next;
};
/* A token or a team was deleted. */
void auth_forget(struct app *app);
/* A new token and the hex of its hash, in the arena. */
char *auth_new_token(struct arena *a, const char *prefix, char **hash);
/* What a job's commands may do at the Hub and with artifacts; in the arena. */
int auth_job_rights(struct app *app, struct arena *a, const struct model_job *job,
                    const struct job_rights **out, struct err *err) MUST_CHECK;
/* A MAC of the id of an attempt by a key of the server, in hex: for one `use`, good for no other.
 */
void auth_attempt_mac(const struct app *app, const char *use, struct str attempt_id,
                      char out[HASH_HEX_CAP]);
/* The token of an attempt's commands. It is stored nowhere: it is the attempt's id and a MAC of it
 * by a key of the server, so the same each time, at any server that leads. It is good as long as
 * the attempt is the one that its job runs. */
const char *auth_job_token(struct app *app, struct arena *a, const char *attempt_id);

#endif
