/*
 * ctx.h - the operations behind face_ops, by group of nouns: one ctx_*.c (or the module that owns
 * the noun) each; ctx.c holds the table. `of` is the app.
 */
#ifndef CTX_H
#define CTX_H

#include "server/app.h"

/* ERR_DENIED unless the caller's role is at least this. */
int ctx_need(const struct principal *principal, enum model_role role, struct err *err) MUST_CHECK;
/* The same for an administrator of everything, not of one team. */
int ctx_need_all(const struct principal *principal, struct err *err) MUST_CHECK;
/* The team that is meant: the one asked for, else the caller's, else the default. What belongs to
 * another team is ERR_NOT_FOUND. */
int ctx_team(struct app *app, const struct principal *principal, struct arena *a, const char *asked,
             const char **team_id, struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND when the row's team is not the caller's. */
int ctx_sees(const struct principal *principal, const char *team_id, enum err_code what,
             struct err *err) MUST_CHECK;
int ctx_project(struct app *app, const struct principal *principal, struct arena *a, const char *id,
                struct model_project *out, struct err *err) MUST_CHECK;
/* May a project be made under this name, or is there one? */
int ctx_project_name(struct app *app, struct arena *a, const char *team_id, const char *name,
                     struct err *err) MUST_CHECK;
int ctx_job(struct app *app, const struct principal *principal, struct arena *a, const char *id,
            struct model_job *out, struct err *err) MUST_CHECK;

#define OF void *of, const struct principal *principal
/* ctx_admin.c */
int ctx_teams(OF, struct arena *a, struct model_team **out, size_t *n, struct err *err);
int ctx_team_create(OF, struct arena *a, const char *name, struct model_team *out, struct err *err);
int ctx_team_delete(OF, const char *id, struct err *err);
int ctx_tokens(OF, struct arena *a, struct model_token **out, size_t *n, struct err *err);
int ctx_token_create(OF, struct arena *a, const char *name, const char *team_id,
                     enum model_role role, int64_t expires_ms, struct model_token *out,
                     char **plain, struct err *err);
int ctx_token_delete(OF, const char *id, struct err *err);
int ctx_capacity(OF, struct arena *a, struct capacity_row **out, size_t *n, struct err *err);
int ctx_capacity_set(OF, struct arena *a, const char *team_id, const char *gpu_type,
                     int64_t max_gpus, struct capacity_row *out, struct err *err);
int ctx_status(OF, struct arena *a, struct server_status *out, struct err *err);
bool ctx_database_away(void *of);
/* secrets.c */
int ctx_secrets(OF, struct arena *a, const char *team_id, struct model_secret **out, size_t *n,
                struct err *err);
int ctx_secret_set(OF, struct arena *a, const char *team_id, const char *name, struct str value,
                   struct model_secret *out, struct err *err);
int ctx_secret_delete(OF, const char *team_id, const char *name, struct err *err);
/* auth.c */
int ctx_authenticate(void *of, struct arena *a, struct str token, bool local,
                     struct principal **out, struct err *err);
int ctx_token_prove(void *of, const char *id, struct str challenge, struct str address,
                    char proof[HASH_HEX_CAP], struct err *err);
/* ctx_resolve.c */
int ctx_job_resolve(OF, struct arena *a, const char *word, struct model_job **out, size_t *n,
                    struct err *err);
int ctx_job_pick(OF, struct arena *a, const char *name, bool *newest, struct model_job **out,
                 uint64_t *n, struct err *err);
int ctx_project_resolve(OF, struct arena *a, const char *word, struct model_project **out,
                        size_t *n, struct err *err);
int ctx_team_resolve(OF, struct arena *a, const char *word, struct model_team **out, size_t *n,
                     struct err *err);
/* ctx_project.c */
int ctx_projects(OF, struct arena *a, struct model_project **out, size_t *n, struct err *err);
int ctx_project_get(OF, struct arena *a, const char *id, struct model_project *out,
                    struct err *err);
int ctx_project_upsert(OF, struct arena *a, const char *team_id, const char *name,
                       struct model_project *out, struct err *err);
int ctx_project_delete(OF, const char *id, struct err *err);
/* ckpts.c */
int ctx_checkpoints(OF, struct arena *a, const char *job_id, bool all,
                    struct model_checkpoint **out, size_t *n, struct err *err);
int ctx_checkpoint_pin(OF, const char *job_id, const char *name, bool pinned, struct err *err);
int ctx_checkpoint_delete(OF, const char *job_id, const char *name, struct err *err);
/* ckpt_mark.c */
int ctx_checkpoint_complete(OF, const char *job_id, const char *name, struct err *err);
/* ctx_project.c */
int ctx_upload_create(OF, struct arena *a, const char *team_id, const char *sha256,
                      struct model_upload *out, struct err *err);
int ctx_upload_stored(void *of, const char *key, const char *sha256, struct err *err);
int ctx_upload_find(void *of, struct arena *a, struct str access_key, struct model_upload *out,
                    struct err *err);
int ctx_url_key(void *of, struct arena *a, const char **access_key, const char **secret_key,
                struct err *err);
/* push.c, ctx_job.c */
int ctx_job_push(OF, struct arena *a, const char *project_id, const struct doc *doc,
                 const char *idempotency_key, struct model_job *out, struct err *err);
int ctx_job_check(OF, struct arena *a, const char *team_id, const char *project,
                  const struct doc *doc, bool forecast, struct model_job *out, struct err *err);
int ctx_job_recreate(OF, struct arena *a, const char *job_id, bool resume, struct model_job *out,
                     struct err *err);
int ctx_job_search(OF, struct arena *a, const struct job_query *q, struct model_job **out,
                   size_t *n, uint64_t *total, struct err *err);
int ctx_job_get(OF, struct arena *a, const char *project_id, const char *job_id,
                struct model_job *out, struct err *err);
int ctx_job_stop(OF, struct arena *a, const char *job_id, bool now, struct model_job *out,
                 struct err *err);
int ctx_job_change(OF, struct arena *a, const char *job_id, const struct model_change *c,
                   struct model_job *out, struct err *err);
int ctx_job_delete(OF, const char *job_id, struct err *err);
int ctx_job_events(OF, struct arena *a, const char *job_id, int64_t after_seq,
                   struct model_event **out, size_t *n, struct err *err);
int ctx_job_attempts(OF, struct arena *a, const char *job_id, struct model_attempt **out, size_t *n,
                     struct err *err);
/* exec.c */
int ctx_exec_start(OF, struct arena *a, const char *job_id, uint32_t rank,
                   const struct wire_exec *what, char **exec_id, struct err *err);
int ctx_exec_poll(OF, struct arena *a, const char *job_id, const char *exec_id, uint64_t offset,
                  struct exec_state *out, struct err *err);
int ctx_exec_input(OF, struct arena *a, const char *job_id, const char *exec_id,
                   const struct exec_input *in, uint64_t *next, struct err *err);
int ctx_exec_leave(OF, struct arena *a, const char *job_id, const char *exec_id,
                   enum wire_exec_state how, struct err *err);
int ctx_runner_exec_output(OF, const char *exec_id, uint64_t offset, struct str frames,
                           int exit_code, uint64_t *next, enum wire_exec_state *state,
                           struct err *err);
int ctx_runner_exec_input(OF, struct arena *a, const char *exec_id, uint64_t offset,
                          struct str *frames, enum wire_exec_state *state, struct err *err);
/* cache.c */
int ctx_cache_snapshot(OF, struct arena *a, const char *scope, const char *id,
                       struct model_cache_snapshot *out, struct err *err);
int ctx_cache_summarize(OF, struct arena *a, const char *scope, const char *id,
                        struct model_cache_snapshot *out, struct err *err);
int ctx_cache_remove(OF, const char *scope, const char *id, struct str path, uint64_t *bytes,
                     struct err *err);
int ctx_cache_quota(OF, const char *project_id, uint64_t bytes, struct err *err);
/* fetch.c */
int ctx_mirrors(OF, struct arena *a, struct model_mirror **out, size_t *n, struct err *err);
int ctx_mirror_prefetch(OF, struct arena *a, const char *team_id, const struct spec_weights *w,
                        struct model_mirror *out, struct err *err);
int ctx_mirror_delete(OF, const char *id, uint64_t *freed_bytes, struct err *err);
/* maintenance.c */
int ctx_maintenance_begin(OF, struct arena *a, const struct maintenance_want *want,
                          struct maintenance_view *out, struct err *err);
int ctx_maintenance_show(OF, struct arena *a, struct maintenance_view *out, struct err *err);
int ctx_maintenance_stop(OF, struct arena *a, const char *id, struct maintenance_view *out,
                         struct err *err);
/* ctx_runner.c, claim.c */
int ctx_runner_speaks(OF, struct arena *a, int64_t version, struct err *err);
int ctx_runner_claim(OF, struct arena *a, const char *nonce, struct wire_launch *out,
                     struct err *err);
int ctx_runner_heartbeat(OF, const struct wire_heartbeat *hb, struct err *err);
int ctx_runner_desired(OF, struct arena *a, struct wire_desired *out, struct err *err);
int ctx_runner_image(OF, struct arena *a, const struct wire_image *said, struct wire_image *out,
                     struct err *err);
int ctx_runner_ready(OF, struct err *err);
/* object_rights.c */
int ctx_runner_sign(OF, struct arena *a, const struct wire_sign *said, size_t n,
                    struct sign_answer *out, struct err *err);
/* ctx_runner.c */
int ctx_runner_event(OF, const char *kind, const char *message, struct err *err);
int ctx_runner_checkpoint(OF, const struct model_checkpoint *row, struct err *err);
int ctx_runner_exit(OF, const struct wire_exit *x, struct err *err);
int ctx_runner_job(OF, struct arena *a, struct model_job *out, struct err *err);
#undef OF

#endif
