/* handlers.h - the handlers behind the table of training.c, by the file they are in. */
#ifndef FACE_HANDLERS_H
#define FACE_HANDLERS_H

#include "face/answer.h"
#include "face/face.h"

/* projects.c */
int projects_list(struct request *rq, struct err *err);
int project_put(struct request *rq, struct err *err);
int project_put_in_team(struct request *rq, struct err *err);
int project_show(struct request *rq, struct err *err);
int project_remove(struct request *rq, struct err *err);

/* resolve.c */
int resolve_word(struct request *rq, struct err *err);

/* jobs.c */
int jobs_of_project(struct request *rq, struct err *err);
int jobs_search(struct request *rq, struct err *err);
int job_push(struct request *rq, struct err *err);
int job_dry_run(struct request *rq, struct err *err);
int job_show(struct request *rq, struct err *err);
int job_change(struct request *rq, struct err *err);
int job_remove(struct request *rq, struct err *err);
int job_stop(struct request *rq, struct err *err);
int job_recreate(struct request *rq, struct err *err);
int job_events(struct request *rq, struct err *err);
int job_attempts(struct request *rq, struct err *err);
int job_auth_codes(struct request *rq, struct err *err);
int job_no_session(struct request *rq, struct err *err);

/* exec.c */
int job_exec(struct request *rq, struct err *err);
int job_exec_join(struct request *rq, struct err *err);

/* logs.c */
int logs_post(struct request *rq, struct err *err);
int logs_get(struct request *rq, struct err *err);
int logs_raw(struct request *rq, struct err *err);

/* metrics.c */
int metrics_post(struct request *rq, struct err *err);
int metrics_get(struct request *rq, struct err *err);

/* checkpoints.c */
/* The list of files of a checkpoint whose row names one. */
int handler_manifest(struct request *rq, const struct model_checkpoint *row, struct ckpt *out,
                     struct err *err) MUST_CHECK;
int checkpoints_list(struct request *rq, struct err *err);
int checkpoint_files(struct request *rq, struct err *err);
int checkpoint_change(struct request *rq, struct err *err);
int checkpoint_remove(struct request *rq, struct err *err);
int job_download(struct request *rq, struct err *err);
int upload_credentials(struct request *rq, struct err *err);

/* cache.c */
int cache_project_summary(struct request *rq, struct err *err);
int cache_project_summarize(struct request *rq, struct err *err);
int cache_project_remove(struct request *rq, struct err *err);
int cache_project_quota(struct request *rq, struct err *err);
int cache_team_summary(struct request *rq, struct err *err);
int cache_team_summarize(struct request *rq, struct err *err);
int cache_team_remove(struct request *rq, struct err *err);

/* maintenance.c */
int maintenance_post(struct request *rq, struct err *err);
int maintenance_get(struct request *rq, struct err *err);
int maintenance_delete(struct request *rq, struct err *err);

/* weights.c */
int weights_list(struct request *rq, struct err *err);
int weights_prefetch(struct request *rq, struct err *err);
int weights_remove(struct request *rq, struct err *err);

/* artifact.c */
int artifacts_list(struct request *rq, struct err *err);

/* deployments.c */
int deployments_list(struct request *rq, struct err *err);
int deployment_show(struct request *rq, struct err *err);
int deployment_stop(struct request *rq, struct err *err);
int deployment_start(struct request *rq, struct err *err);
int deployment_change(struct request *rq, struct err *err);
int deployment_remove(struct request *rq, struct err *err);
int deployment_send(struct request *rq, const struct deployment_view *v,
                    struct err *err) MUST_CHECK;
/* -1 where the body does not say. */
int deployment_sizes(const struct doc *body, int64_t *replicas, int64_t *idle_s,
                     struct err *err) MUST_CHECK;
/* deploy_job.c */
int deployments_create(struct request *rq, struct err *err);

/* repos.c */
int repositories_list(struct request *rq, struct err *err);
int repository_make(struct request *rq, struct err *err);
int repository_show(struct request *rq, struct err *err);
int repository_delete(struct request *rq, struct err *err);

/* The project that a body names in its "training_project": by name, in the team of *team_id, else
 * of its "team_name", else of the caller (*team_id stays NULL). */
int handler_project_named(struct request *rq, const struct doc *body, const char **name,
                          const char **team_id, struct err *err) MUST_CHECK;
/* The job that a path names by project and id, in that order; seen by this caller. */
int handler_job(struct request *rq, struct model_job *out, struct err *err) MUST_CHECK;

#endif
