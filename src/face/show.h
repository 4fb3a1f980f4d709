/*
 * show.h - rows as the JSON objects that clients read. The stock client indexes what it expects and
 * crashes on what is absent or null where it must not be: never "user": null, no empty dates, ids
 * and types always text.
 */
#ifndef FACE_SHOW_H
#define FACE_SHOW_H

#include "base/clock.h"
#include "base/record.h"
#include "core/model.h"

/* The resources of a job or a node, as clients name them: "H100:8 4x64" and the like. */
struct instance {
	const char *gpu_type; /* NULL = none */
	uint32_t gpu_count, cpu_milli;
	uint64_t memory_bytes;
};

extern const struct words show_roles;
const char *show_instance_name(struct arena *a, const struct instance *in);
const char *show_instance_id(struct arena *a, const struct instance *in);
int64_t show_gpu_memory_mib(const char *gpu_type); /* 0 = unknown */

/* "key": ISO 8601, or null for 0 (never). */
void show_time(struct js *js, const char *key, int64_t ms);
struct shown_secret {
	struct model_secret s;
	const char *team_name;
};
extern const struct record team_record, token_record, secret_record, event_record, attempt_record,
	instance_record, job_record, job_inputs_record, project_record, checkpoint_record,
	mirror_record, repo_record, repo_ref_record, repo_commit_record, artifact_record;
/* In the files of their handlers: admin.c, maintenance.c, checkpoints.c. */
extern const struct record user_record, new_token_record, capacity_record, node_record,
	status_record, maintenance_record, file_record, serving_record, replica_record;
/* latest: its newest job, NULL = none. */
void show_project(struct js *js, struct arena *a, const struct model_project *p,
                  const struct model_job *latest);
/* whole: with its normalized specification, as one job is shown and lists are not. */
void show_job(struct js *js, struct arena *a, const struct model_job *j, bool whole);
void show_checkpoint(struct js *js, struct arena *a, const struct model_checkpoint *c);
void show_mirror(struct js *js, struct arena *a, const struct model_mirror *m);
void show_repo(struct js *js, struct arena *a, const struct model_repo *r);

#endif
