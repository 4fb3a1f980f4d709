/*
 * ctx.h - who may see what; and the operations behind face_ops, a table for each noun. It is at the
 * foot of the file that implements it, and ctx.c lists all of them.
 */
#ifndef CTX_H
#define CTX_H

#include "server/app.h"

/* ERR_DENIED unless the caller's role is at least this. */
int ctx_need(const struct ask *ask, enum model_role role, struct err *err) MUST_CHECK;
/* The same for an administrator of everything, not of one team. */
int ctx_need_all(const struct ask *ask, struct err *err) MUST_CHECK;
/* The team that is meant: the one asked for, else the caller's, else the default. What belongs to
 * another team is ERR_NOT_FOUND. */
int ctx_team(const struct ask *ask, const char *asked, const char **team_id,
             struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND when the row's team is not the caller's. */
int ctx_sees(const struct ask *ask, const char *team_id, enum err_code what,
             struct err *err) MUST_CHECK;
int ctx_project(const struct ask *ask, const char *id, struct model_project *out,
                struct err *err) MUST_CHECK;
/* May a project be made under this name, or is there one? */
int ctx_project_name(struct app *app, struct arena *a, const char *team_id, const char *name,
                     struct err *err) MUST_CHECK;
int ctx_job(const struct ask *ask, const char *id, struct model_job *out,
            struct err *err) MUST_CHECK;

/* The tables. */
extern const struct identity_ops identity_ops;
extern const struct team_ops team_ops;
extern const struct token_ops token_ops;
extern const struct secret_ops secret_ops;
extern const struct capacity_ops capacity_ops;
extern const struct server_ops server_ops;
extern const struct maintenance_ops maintenance_ops;
extern const struct project_ops project_ops;
extern const struct resolve_ops resolve_ops;
extern const struct push_ops push_ops;
extern const struct job_ops job_ops;
extern const struct exec_ops exec_ops;
extern const struct checkpoint_ops checkpoint_ops;
extern const struct cache_ops cache_ops;
extern const struct mirror_ops mirror_ops;
extern const struct upload_ops upload_ops;
extern const struct runner_ops runner_ops;
extern const struct object_ops object_ops;
extern const struct hub_ops hub_ops;
extern const struct repo_ops repo_ops;
extern const struct artifact_ops artifact_ops;
extern const struct serving_ops serving_ops;
extern const struct deployment_ops deployment_ops;

#endif
