/*
 * model.h - the nouns as rows: plain data that meta/ stores, server/ decides on and face/ shows.
 * Strings are NUL-terminated and live in the arena that was given to the call which filled the row;
 * times are wall milliseconds, 0 = never.
 */
#ifndef MODEL_H
#define MODEL_H

#include "core/job.h"
#include "core/ckpt.h"
#include "core/deployment.h"

#define MODEL_ID_LEN 7 /* of projects, jobs, teams...: short opaque ids, [a-z0-9] */
#define MODEL_ID_CAP (MODEL_ID_LEN + 1)

enum model_role { ROLE_VIEWER = 1, ROLE_MEMBER, ROLE_ADMIN }; /* of a team, or of everything */

struct model_team {
	const char *id, *name;
	bool is_default;
	int64_t created_ms;
};

struct model_token {
	const char *id, *name, *team_id, *team_name; /* both NULL: all teams */
	const char *hash;                            /* 64 hex of SHA-256; never shown */
	enum model_role role;
	int64_t created_ms, expires_ms, used_ms;
};

struct model_project {
	const char *id, *name, *team_id, *team_name;
	const char *pinned_cluster; /* of its first cache-enabled job, NULL = none */
	uint64_t cache_quota_bytes;
	int64_t created_ms, updated_ms;
	const char *latest_job_id; /* NULL = none */
};

struct model_job {
	int64_t row; /* orders jobs of one millisecond */
	const char *id, *name, *project_id, *project_name, *team_id, *team_name;
	struct job_core core;
	int64_t priority;
	const char *spec_json;     /* normalized training_job object */
	const char *document_json; /* as received */
	const char *resolved_json; /* resolved revisions, manifests, digests; NULL before FREEZE */
	const char *reason;        /* why it waits or ended, in words; NULL = nothing to say */
	const char *error_message; /* of DEPLOY_FAILED and FAILED; NULL = none */
	const char *error_id;      /* its stable id (base/err_ids.h); NULL: none */
	enum job_end end;
	int end_code;
	const char *attempt_id;     /* current or last; NULL = none yet */
	const char *user;           /* who pushed: the token's name */
	const char *recreated_from; /* job id or NULL */
	const char *deployment_id;  /* that it was started for, and that may be gone; NULL: none */
	const char *kept_by;     /* deployment that starts another one in its place; NULL: none */
	const char *sync_status; /* "SYNCING", "COMPLETED" or NULL: checkpoints */
	int64_t created_ms, updated_ms, started_ms, ended_ms; /* started, ended: of user code */
	/* what it asks for, per node: kept as columns for the scheduler and lists */
	uint32_t node_count, cpu_milli, gpu_count;
	uint64_t memory_bytes;
	const char *gpu_type;       /* NULL = none */
	bool spot;                  /* availability_model */
	bool cache, cache_affinity; /* cache_config: enabled, and required where it is */
	uint64_t max_duration_s;    /* limits.max_duration; 0 = none */
	/* what its runner last said */
	const char *stage;    /* wire_stage_word */
	const char *progress; /* words; NULL = none */
	uint64_t progress_done, progress_total;
	double progress_rate;
	int64_t heartbeat_ms;
	bool inputs_missing; /* it waits for its weights; see server/control/inputs.h */
	/* while it waits: known to the server that runs, not stored */
	size_t place;        /* in line, from 1; 0 = not in line */
	int64_t start_by_ms; /* it starts not later than this; 0 = unknown */
};

/* Jobs that serve one checkpoint under one name; see core/deployment.h. */
struct model_deployment {
	const char *id, *name, *team_id, *team_name, *project_id, *project_name;
	enum deployment_wanted wanted;
	uint32_t revision; /* counts from 1; each `deploy` makes one */
	uint32_t replicas;
	uint32_t idle_s;           /* without a request, until it goes to sleep; 0 = never */
	bool replaces;             /* the revision before goes first */
	const char *checkpoint;    /* "JOB/NAME" */
	const char *document_json; /* a training_job object, as its jobs are pushed */
	const char *user;          /* who deployed the revision */
	int64_t created_ms, updated_ms, started_ms;
};

/* A job of a deployment that is not over. */
struct model_replica {
	const char *job_id, *deployment_id;
	uint32_t revision;
	enum job_state state;
	int64_t created_ms;
	const char *node_id, *node; /* of its last attempt; NULL: none, or not known */
	/* of its present attempt: known to the server that runs, not stored */
	bool here;           /* it runs beside the server, or its node is not known */
	bool heard;          /* its runner was, since the server started, and it goes on */
	bool serves, served; /* it takes requests; it does, or did */
	unsigned in_flight;
	uint64_t requests, failures;
	int64_t idle_ms; /* since it last had a request on its way, or began to serve */
};

/* The fields of a pending job that can be changed. */
struct model_change {
	const int64_t *priority; /* NULL: as it is */
	const bool *spot;
};

struct model_event {
	int64_t seq, ms;
	const char *kind;      /* "state", "stage", "warning", "checkpoint", "cache", "stop"... */
	const char *from, *to; /* of a change of state, else NULL */
	const char *actor;     /* "server", "runner", or a token's name */
	const char *message;
};

/* One (attempt, node). */
struct model_attempt {
	const char *id, *job_id;
	uint32_t number, node_rank; /* number counts from 0 */
	const char *node, *cluster;
	const char *node_id; /* whose server started it; NULL: of before these were kept */
	uint64_t gpus;       /* bit set of indices */
	const char *token_hash;
	const char *claim;      /* nonce of the runner that owns it; NULL = unclaimed */
	const char *dir;        /* attempt folder */
	const char *engine_ref; /* what the engine needs to find it: JSON of its own */
	bool ready;             /* staged, waits for go */
	bool idle;              /* limits.idle_gpu is over here, by its last heartbeat */
	const char *exit_json;  /* wire_exit; NULL = none yet */
	int64_t launched_ms, claimed_ms, ended_ms, heartbeat_ms;
};

/* One thing that one webhook is still to be told. */
struct model_delivery {
	int64_t seq;
	const char *id;                                 /* of the delivery: the same in every try */
	const char *job_id, *team_id, *webhook, *event; /* webhook: name of its secret */
	const char *body;                               /* JSON, without secrets */
	int64_t created_ms, due_ms;
	uint32_t tries;
};

struct model_checkpoint {
	const char *job_id, *project_id, *name;
	uint32_t rank;
	enum ckpt_state state;
	const char *kind, *base_model; /* ckpt_kind_word */
	int64_t lora_r, created_ms, synced_ms;
	uint64_t bytes, bytes_sent, files;
	const char *manifest_key; /* object key; NULL until the manifest is written */
	int rule;                 /* row of core/ckpt_rule.h, 0 = none of them */
	const char *reason;       /* why it has its state, in words; NULL = not said */
	const char *trainer;      /* whose layout it has; NULL = not known */
	const char *updating;     /* what is still to come of its next revision; NULL = none */
	const char *marked_by;    /* the person who overruled; NULL */
	uint32_t revision;        /* of its manifest; 0 = none yet */
	/* A part of a checkpoint of several nodes: `state` to `rule` above are the checkpoint's,
	 * these are this node's. */
	bool is_part;
	enum ckpt_state part_state;
	int part_rule;
	const char *part_reason;
	bool pinned;       /* kept until a person says otherwise; not set by a put */
	const char *shown; /* the name without secrets, for messages; from runners only, not kept */
};

struct model_secret {
	const char *id, *name, *team_id;
	int64_t created_ms, updated_ms, used_ms;
};

enum mirror_state { MIRROR_FETCHING, MIRROR_READY, MIRROR_FAILED };
struct model_mirror { /* one source at one revision with one filter */
	const char *id, *team_id;
	const char *source, *revision; /* revision: commit, or a digest of the listing */
	const char *filter_json;       /* allow, ignore */
	const char *manifest;          /* 64 hex; NULL until ready */
	enum mirror_state state;
	const char *error;
	uint64_t bytes_total, bytes_done, files_total, files_done;
	double rate_bytes_s;
	int64_t created_ms, updated_ms, used_ms;
};

struct model_ref { /* what is kept by content is named by one of these */
	const char *team_id, *kind, *name;
	const char *manifest; /* 64 hex */
	uint64_t bytes, files;
	int64_t created_ms, used_ms;
};

struct model_artifact { /* see core/artifact.h */
	int64_t seq;
	const char *name;
	const char *digest; /* 64 hex */
	uint64_t bytes;
	int64_t created_ms, used_ms;
	const char *stored_by; /* name of the token, of a job: of who pushed it; "": not known */
	const char *job_id;    /* NULL: it was no job */
	bool has_body;         /* else it is a blob */
	struct str body;
};

struct model_hub_rev {
	const char *team_id, *repo; /* models/OWNER/NAME */
	const char *rev, *commit;
	int64_t checked_ms;
};

struct model_repo { /* a repository that people write to, see server/data/repos.h */
	const char *id, *team_id;
	const char *type;         /* "models", "datasets", "spaces" */
	const char *owner, *name; /* as they were written when it was made */
	bool of_user;             /* the owner is the name of a token, else of a team */
	bool is_private;
	uint64_t bytes; /* all that was ever committed or uploaded, each content once */
	int64_t created_ms, updated_ms;
};

enum model_repo_ref_kind { REPO_BRANCH, REPO_TAG, REPO_PULL /* refs/pr/N: the name is N */ };

struct model_repo_ref { /* a branch or a tag of one */
	const char *repo_id;
	enum model_repo_ref_kind kind;
	const char *name, *commit;
};

struct model_repo_commit {
	const char *repo_id, *commit;
	const char *parent; /* NULL: it is the first */
	const char *title, *message, *author;
	int64_t ms;
};

struct model_repo_pull { /* a pull request of one */
	const char *repo_id;
	int64_t num; /* from 1; never used again */
	enum model_pull_status { PULL_DRAFT, PULL_OPEN, PULL_CLOSED, PULL_MERGED } status;
	const char *title, *author;
	const char *target; /* a branch, and */
	const char *base;   /* which commit it was */
	const char *merged; /* what the branch became; NULL: it is not merged */
	int64_t created_ms;
	int64_t comments;
};

struct model_repo_event { /* of a pull request, beside its commits */
	int64_t seq;
	enum model_repo_event_kind { EVENT_COMMENT, EVENT_STATUS, EVENT_TITLE } kind;
	const char *author;
	const char *before; /* a title; "" */
	const char *text;   /* a comment, a status, a title */
	int64_t ms;
};

struct model_upload { /* credentials handed out for one object */
	const char *access_key, *secret_key, *session_token, *key;
	const char *team_id;
	int64_t created_ms, expires_ms;
	bool there;         /* no credentials: the key holds what was to be uploaded */
	const char *sha256; /* of what is there; NULL: not known */
};

struct model_cache_snapshot {
	const char *scope; /* "project" or "team" */
	const char *scope_id;
	int64_t ms;
	uint64_t bytes, files;
	const char *summary_file; /* path below the data folder of the file list */
};

#endif
