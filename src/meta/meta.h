/*
 * meta.h - the rows that must survive: teams, tokens, secrets, projects, jobs, events, attempts,
 * checkpoints, mirrors. The meta_*.c files are the only ones with SQL; rows are core/model.h.
 *
 * Each function is one transaction, durable when it returns 0. Strings of a row live in the arena
 * given. "Not there" is ERR_NOT_FOUND, what is there already ERR_CONFLICT. A list that is empty is
 * n = 0. Thread-safe.
 *
 * A job's state changes only in meta_job_step: it reads the row, lets job_step() decide, stores
 * with UPDATE ... WHERE state = <the state it read>, and writes the event, all in one transaction.
 * Final states are never left: first writer wins.
 */
#ifndef META_H
#define META_H

#include "base/outage.h"
#include "core/model.h"
#include "meta/lead.h"

#define META_LIST_MAX 100000  /* rows of one list */
#define META_EVENTS_MAX 10000 /* events of one answer */

struct meta;

int meta_open(struct meta **out, const char *url, struct err *err) MUST_CHECK; /* migrates */
void meta_close(struct meta *m);                                               /* NULL is fine */
DEFINE_CLEANUP(struct meta, meta_close)
#define AUTO_META CLEANUP(meta_close_p)
/* Beside the server that leads: reads values (meta_kv_get), and the three below. ERR_INVALID for a
 * database that one machine has to itself. */
int meta_open_to_watch(struct meta **out, const char *url, struct err *err) MUST_CHECK;

/* ERR_DATABASE_NEWER: by a schema that this program does not know. */
int meta_lead(struct meta *m, struct lead *out, struct err *err) MUST_CHECK;
/* Ends the session of a leader that is dead or frozen, so that meta_open can lead. */
int meta_end_lead(struct meta *m, const struct lead *seen, struct err *err) MUST_CHECK;
/* For the leader: who waits, out of LEAD_WAITING_MAX. Nobody can where one machine has the
 * database to itself. */
bool meta_is_shared(const struct meta *m);
int meta_standbys(struct meta *m, struct lead_waiting *out, size_t *n, struct err *err) MUST_CHECK;
/* For the leader: where it answers. */
void meta_lead_url(struct meta *m, const char *url);
/* Called once, by a thread of its own, when another server has taken over: nothing can be written
 * any more. */
void meta_on_deposed(struct meta *m, void (*fn)(void *arg), void *arg);
/* ERR_DATABASE_IN_USE: another server has taken over. Asked of the database itself. */
int meta_leads(struct meta *m, struct err *err) MUST_CHECK;

/* SQLite's own integrity check, foreign keys, and job_check() of every row. */
int meta_check(struct meta *m, struct err *err) MUST_CHECK;

/* See db_unheard: who asks for the leader is not to be sent here. */
bool meta_unheard(const struct meta *m);
/* By what was last asked of the database. `ask`: where it did not answer, it is asked again. */
void meta_outage(struct meta *m, bool ask, struct outage *out);

/* The server's own small values. */
int meta_kv_get(struct meta *m, struct arena *a, const char *key, struct str *out,
                struct err *err) MUST_CHECK;
int meta_kv_put(struct meta *m, const char *key, struct str value, struct err *err) MUST_CHECK;
/* A number that no server had before: above those that this database gave, and at least `least`
 * (the time, for a database that was restored has forgotten some). */
int meta_epoch_next(struct meta *m, int64_t least, uint32_t *out, struct err *err) MUST_CHECK;

/* clusters, teams, tokens */
int meta_cluster_put(struct meta *m, const char *name, const char *engine, int64_t now_ms,
                     struct err *err) MUST_CHECK; /* there already is fine */
int meta_teams(struct meta *m, struct arena *a, struct model_team **out, size_t *n,
               struct err *err) MUST_CHECK;
/* id NULL: the default team. */
int meta_team(struct meta *m, struct arena *a, const char *id, struct model_team *out,
              struct err *err) MUST_CHECK;
int meta_team_add(struct meta *m, const struct model_team *t, struct err *err) MUST_CHECK;
/* ERR_CONFLICT for the default team and one that has projects. */
int meta_team_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;

/* team_id NULL: of all teams. */
int meta_tokens(struct meta *m, struct arena *a, const char *team_id, struct model_token **out,
                size_t *n, struct err *err) MUST_CHECK;
int meta_token(struct meta *m, struct arena *a, const char *id, struct model_token *out,
               struct err *err) MUST_CHECK;
/* The one whose hash begins with these hex digits. ERR_TOKEN_NOT_FOUND. */
int meta_token_by_prefix(struct meta *m, struct arena *a, const char *prefix,
                         struct model_token *out, struct err *err) MUST_CHECK;
int meta_token_by_hash(struct meta *m, struct arena *a, const char *hash, struct model_token *out,
                       struct err *err) MUST_CHECK;
int meta_token_add(struct meta *m, const struct model_token *t, struct err *err) MUST_CHECK;
int meta_token_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;
int meta_token_used(struct meta *m, const char *id, int64_t now_ms, struct err *err) MUST_CHECK;

/* Secrets: `key` is the name with every non-alphanumeric as '-'. The sealed bytes are bound to
 * (team, key, version); the value is never here in clear. */
struct meta_secret {
	struct model_secret row;
	const char *key, *version;
	struct str sealed;
};
int meta_secrets(struct meta *m, struct arena *a, const char *team_id, struct model_secret **out,
                 size_t *n, struct err *err) MUST_CHECK;
int meta_secret(struct meta *m, struct arena *a, const char *team_id, const char *key,
                struct meta_secret *out, struct err *err) MUST_CHECK;
/* Replaces the value of the same key; the id and the time of creation stay. */
int meta_secret_put(struct meta *m, struct arena *a, const struct meta_secret *s,
                    struct model_secret *out, struct err *err) MUST_CHECK;
int meta_secret_del(struct meta *m, const char *team_id, const char *key,
                    struct err *err) MUST_CHECK;
int meta_secret_used(struct meta *m, const char *id, int64_t now_ms, struct err *err) MUST_CHECK;

/* projects: last used first; team_id NULL: of all teams */
int meta_projects(struct meta *m, struct arena *a, const char *team_id, struct model_project **out,
                  size_t *n, struct err *err) MUST_CHECK;
int meta_project(struct meta *m, struct arena *a, const char *id, struct model_project *out,
                 struct err *err) MUST_CHECK;
int meta_project_by_name(struct meta *m, struct arena *a, const char *team_id, const char *name,
                         struct model_project *out, struct err *err) MUST_CHECK;
struct meta_project_query {
	const char *team_id;            /* only of this team; NULL: of any */
	const char *id, *name, *prefix; /* one of them; prefix: of the id */
	const char *team;               /* with name: id or name of its team; NULL: any */
	size_t limit;
};
int meta_projects_find(struct meta *m, struct arena *a, const struct meta_project_query *q,
                       struct model_project **out, size_t *n, struct err *err) MUST_CHECK;
/* Makes it with this id unless (team, name) is there. */
int meta_project_upsert(struct meta *m, struct arena *a, const struct model_project *p,
                        struct model_project *out, struct err *err) MUST_CHECK;
int meta_project_quota(struct meta *m, const char *id, uint64_t bytes, struct err *err) MUST_CHECK;
/* ERR_CONFLICT while a job is active. Its cache, objects and logs become trash. */
int meta_project_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;

/* jobs */
#define META_SAYS_MAX 100 /* of `says`: nothing is found by a longer one */
struct meta_query {
	const char *team_id, *project_id, *job_id; /* NULL: any */
	const char *user, *name;                   /* exactly; NULL: any */
	const char *prefix;                        /* of the id; NULL: any */
	/* a text of its specification, anywhere in it: perhaps of others, too; NULL: any */
	const char *says;
	bool has_checkpoint;         /* only those with a complete one */
	uint32_t states;             /* bit set of enum job_state; 0 = any */
	bool ascending;              /* by creation; newest first otherwise */
	int64_t after_ms, after_row; /* behind this job of a list; 0: from the start */
	size_t limit;                /* 0 = META_LIST_MAX */
};
/* resolved_json, spec_json and document_json are left out of lists. */
int meta_jobs(struct meta *m, struct arena *a, const struct meta_query *q, struct model_job **out,
              size_t *n, struct err *err) MUST_CHECK;
/* How many there are in all, whatever after_* and limit say. */
int meta_jobs_count(struct meta *m, const struct meta_query *q, uint64_t *n,
                    struct err *err) MUST_CHECK;
int meta_job(struct meta *m, struct arena *a, const char *id, struct model_job *out,
             struct err *err) MUST_CHECK;
/* Is the id taken? */
int meta_job_has(struct meta *m, const char *id, bool *has, struct err *err) MUST_CHECK;
/* The same as in a list: without its three documents. */
int meta_job_brief(struct meta *m, struct arena *a, const char *id, struct model_job *out,
                   struct err *err) MUST_CHECK;
int meta_job_spec(struct meta *m, struct arena *a, const char *id, const char **spec_json,
                  struct err *err) MUST_CHECK;
/* The fields of a waiting job that the queue needs; other columns are left empty. Ordered as the
 * queue is, except for fair share: highest priority first, then the oldest. */
struct meta_waiting {
	struct model_job job;
	const char *pinned_cluster; /* of the project; NULL: none */
};
int meta_waiting(struct meta *m, struct arena *a, struct meta_waiting **out, size_t *n,
                 struct err *err) MUST_CHECK;
/* How many jobs of the team are pending. */
int meta_waiting_of_team(struct meta *m, const char *team_id, int64_t *n,
                         struct err *err) MUST_CHECK;
/* The trees in the node cache of waiting and placed jobs: one row per tree. */
struct meta_tree {
	const char *job_id, *manifest;
	uint64_t bytes; /* 0: unknown */
	bool placed;    /* the job is */
};
int meta_trees(struct meta *m, struct arena *a, struct meta_tree **out, size_t *n,
               struct err *err) MUST_CHECK;
/* The resources that placed jobs hold: one row per node. */
struct meta_held {
	const char *job_id, *team_id, *user, *gpu_type, *node, *node_id;
	uint32_t cpu_milli, gpu_count;
	uint64_t memory_bytes;
	uint64_t gpus; /* bit set of indices */
	int64_t placed_ms;
	int64_t started_ms;      /* of user code; 0 = not yet */
	uint64_t max_duration_s; /* 0 = not declared */
};
int meta_held(struct meta *m, struct arena *a, struct meta_held **out, size_t *n,
              struct err *err) MUST_CHECK;
/* Fields kept in memory while they change (server/control/live.h) and stored from time to time, all
 * in one transaction. Rows of deleted or finished jobs stay as they are. */
struct meta_live_job {
	const char *id;
	const char *reason;        /* why it waits; NULL leaves the column */
	const char *stage, *words; /* stage NULL: leaves these columns */
	uint64_t done, total;
	double rate;
	int64_t updated_ms, heartbeat_ms;
};
struct meta_live_node {
	const char *attempt_id;
	uint32_t rank;
	int64_t heartbeat_ms;
	bool idle;
};
int meta_live_put(struct meta *m, const struct meta_live_job *jobs, size_t n_jobs,
                  const struct meta_live_node *nodes, size_t n_nodes, struct err *err) MUST_CHECK;
struct meta_new_job {
	const struct model_job *row;  /* name NULL: job-<n>, n counted by the project */
	const char *idempotency_key;  /* NULL: none */
	const char *const *code_keys; /* uploads that it names */
	size_t n_code_keys;
	const char *const *manifests; /* that row->resolved_json names */
	size_t n_manifests;
	const char *message; /* of its first event */
	/* The deployment that it is a job of, and its revision; NULL: of none. With `deploys` that
	 * revision begins with it, and the row is made or changed. */
	const char *deployment_id;
	uint32_t deployment_revision;
	const struct model_deployment *deploys;
};
/* Stores job and first event. ERR_CONFLICT: the deployment has another revision meanwhile, or is
 * not to run. *existing: the key was used before; *out is that job then. */
int meta_job_add(struct meta *m, struct arena *a, const struct meta_new_job *j,
                 struct model_job *out, bool *existing, struct err *err) MUST_CHECK;
/* The job that this key made, ERR_NOT_FOUND if none. */
int meta_job_by_key(struct meta *m, struct arena *a, const char *project_id, const char *key,
                    struct model_job *out, struct err *err) MUST_CHECK;

/* --- deployments --- */
/* By name; team_id NULL: of all teams. Without document_json, which may be long. */
int meta_deployments(struct meta *m, struct arena *a, const char *team_id, const char *name,
                     struct model_deployment **out, size_t *n, struct err *err) MUST_CHECK;
int meta_deployment_document(struct meta *m, struct arena *a, const char *id, const char **out,
                             struct err *err) MUST_CHECK;
int meta_deployments_count(struct meta *m, const char *team_id, int64_t *n,
                           struct err *err) MUST_CHECK;
/* deployment_id NULL: of all, those of one stand together. The newest revision first, and of that
 * the newest. */
int meta_replicas(struct meta *m, struct arena *a, const char *deployment_id,
                  struct model_replica **out, size_t *n, struct err *err) MUST_CHECK;
/* How many jobs of its revision have ended by themselves since it was started, and the last one. */
int meta_deployment_failed(struct meta *m, struct arena *a, const struct model_deployment *d,
                           int64_t *n, const char **job_id, struct err *err) MUST_CHECK;
/* The newest job of its revision, whatever became of it; NULL: all were deleted. */
int meta_deployment_job(struct meta *m, struct arena *a, const struct model_deployment *d,
                        const char **job_id, struct err *err) MUST_CHECK;
/* Only while it is `from` and of this revision: ERR_CONFLICT. To run is to start anew: what has
 * failed is forgotten, whatever a clock said that has been put back since. */
int meta_deployment_want(struct meta *m, const struct model_deployment *from,
                         enum deployment_wanted to, int64_t now_ms, struct err *err) MUST_CHECK;
int meta_deployment_scale(struct meta *m, const char *id, uint32_t replicas, uint32_t idle_s,
                          int64_t now_ms, struct err *err) MUST_CHECK;
int meta_deployment_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;

struct meta_step {
	const char *job_id;
	enum job_event event;
	int64_t now_ms;
	const char *attempt_id; /* NULL, or: only while this is its attempt, else ERR_CONFLICT */
	const char *actor, *message;
	/* columns set with it; NULL leaves them */
	const char *reason, *error_message, *resolved_json;
	const char *const *manifests; /* with resolved_json: those that it names */
	size_t n_manifests;
	const char *error_id; /* with error_message; NULL: it has none */
	enum job_end end;     /* JOB_END_NONE leaves it */
	int end_code;
	/* When user code ran. 0 leaves the start as it is; an end is stored only with a finished
	 * job, 0 = now_ms. Both are cleared when the job waits again. */
	int64_t started_ms, ended_ms;
	bool stop_now; /* of a stop: without grace */
	/* of a place: the new attempt's rows (id, node_rank, node, cluster, gpus, dir) */
	const struct model_attempt *attempts;
	size_t n_attempts;
	const struct model_delivery *deliveries; /* stored with the step; due at once */
	size_t n_deliveries;
	const char *pin_cluster; /* for the project, unless it is pinned; NULL: not cache-enabled */
};
/* Its weights are fetched: it may be placed. ERR_CONFLICT unless it waits for them. */
int meta_job_inputs(struct meta *m, const char *id, const char *resolved_json,
                    const char *const *manifests, size_t n, struct err *err) MUST_CHECK;
/* More of what it starts from, found by this attempt. ERR_CONFLICT unless it is the job's last. */
int meta_job_resolved(struct meta *m, const char *id, const char *attempt_id,
                      const char *resolved_json, struct err *err) MUST_CHECK;
/* ERR_CONFLICT where the event is not legal in the job's state. */
int meta_job_step(struct meta *m, const struct meta_step *s, enum job_state *from,
                  enum job_state *to, struct err *err) MUST_CHECK;
/* ERR_CONFLICT unless it is pending. */
int meta_job_change(struct meta *m, const char *id, const struct model_change *c, int64_t now_ms,
                    const char *actor, struct err *err) MUST_CHECK; /* PENDING only */
int meta_job_sync(struct meta *m, const char *id, const char *status, struct err *err) MUST_CHECK;
int meta_job_stop_now(struct meta *m, const char *id, bool *now, struct err *err) MUST_CHECK;
/* ERR_CONFLICT while it is active. Its objects and log become trash. */
int meta_job_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;

int meta_event_add(struct meta *m, const char *job_id, const struct model_event *e,
                   struct err *err) MUST_CHECK;
/* Those of a job, from this actor. */
int meta_events_count(struct meta *m, const char *job_id, const char *actor, uint64_t *n,
                      struct err *err) MUST_CHECK;
int meta_events(struct meta *m, struct arena *a, const char *job_id, int64_t after_seq,
                struct model_event **out, size_t *n, struct err *err) MUST_CHECK;

/* attempts: of one job (job_id) or all that are not done with (NULL); by number, rank */
int meta_attempts(struct meta *m, struct arena *a, const char *job_id, struct model_attempt **out,
                  size_t *n, struct err *err) MUST_CHECK;
/* Those ranks of one attempt that are not done with. */
int meta_attempt_left(struct meta *m, struct arena *a, const char *id, struct model_attempt **out,
                      size_t *n, struct err *err) MUST_CHECK;
/* All ranks of one attempt. */
int meta_attempt(struct meta *m, struct arena *a, const char *id, struct model_attempt **out,
                 size_t *n, struct err *err) MUST_CHECK;
/* prefix: of the hash, in hex. */
int meta_attempt_by_token_prefix(struct meta *m, struct arena *a, const char *prefix,
                                 struct model_attempt *out, struct err *err) MUST_CHECK;
int meta_attempt_by_token(struct meta *m, struct arena *a, const char *hash,
                          struct model_attempt *out, struct err *err) MUST_CHECK;
/* The intent, before the engine is asked: a new token, so that a runner started earlier can never
 * claim. ERR_CONFLICT once it is claimed or over. */
int meta_attempt_launching(struct meta *m, const char *id, uint32_t rank, const char *token_hash,
                           int64_t now_ms, struct err *err) MUST_CHECK;
int meta_attempt_launched(struct meta *m, const char *id, uint32_t rank, const char *engine_ref,
                          struct err *err) MUST_CHECK;
/* One guarded UPDATE: nobody claimed it, or the same nonce did; it is the job's current attempt;
 * the job is being deployed (or, for the same nonce, runs). ERR_CONFLICT otherwise. */
int meta_attempt_claim(struct meta *m, const char *id, uint32_t rank, const char *nonce,
                       int64_t now_ms, struct err *err) MUST_CHECK;
int meta_attempt_ready(struct meta *m, const char *id, uint32_t rank, bool *all,
                       struct err *err) MUST_CHECK;
/* First writer wins: *first is false when there was an exit already. exit_json NULL: it ended
 * without one (stopped before it was launched). */
int meta_attempt_exit(struct meta *m, const char *id, uint32_t rank, const char *exit_json,
                      int64_t now_ms, bool *first, struct err *err) MUST_CHECK;
/* Its folder is gone. The row goes too when its job was deleted. */
int meta_attempt_done(struct meta *m, const char *id, uint32_t rank, int64_t now_ms,
                      struct err *err) MUST_CHECK;

/* checkpoints: by creation */
int meta_checkpoint_put(struct meta *m, const struct model_checkpoint *c,
                        struct err *err) MUST_CHECK;
/* All or none. */
int meta_checkpoints_put(struct meta *m, const struct model_checkpoint *c, size_t n,
                         struct err *err) MUST_CHECK;
int meta_checkpoints(struct meta *m, struct arena *a, const char *job_id,
                     struct model_checkpoint **out, size_t *n, struct err *err) MUST_CHECK;
/* How many others the job has on this rank; 0 when this one is among them, and needs no place. */
int meta_checkpoints_beside(struct meta *m, const struct model_checkpoint *c, uint64_t *n,
                            struct err *err) MUST_CHECK;
/* The job has ended: what was still on its way never arrived. */
int meta_checkpoints_abandon(struct meta *m, const char *job_id, struct err *err) MUST_CHECK;
/* State, rule, reason, marked_by and synced_ms of c on all its ranks. ERR_NOT_FOUND. */
int meta_checkpoint_judge(struct meta *m, const struct model_checkpoint *c,
                          struct err *err) MUST_CHECK;
/* On all ranks. ERR_NOT_FOUND. */
int meta_checkpoint_pin(struct meta *m, const char *job_id, const char *name, bool pinned,
                        struct err *err) MUST_CHECK;
int meta_checkpoint_del(struct meta *m, const char *job_id, const char *name,
                        struct err *err) MUST_CHECK;

/* mirrors */
int meta_mirrors(struct meta *m, struct arena *a, const char *team_id, struct model_mirror **out,
                 size_t *n, struct err *err) MUST_CHECK;
int meta_mirror(struct meta *m, struct arena *a, const char *id, struct model_mirror *out,
                struct err *err) MUST_CHECK;
/* By (team, source, revision, filter): made with row->id, or found; state and counts as in row. */
int meta_mirror_put(struct meta *m, struct arena *a, const struct model_mirror *row,
                    struct model_mirror *out, struct err *err) MUST_CHECK;
/* ERR_CONFLICT while an active job has its manifest frozen. */
int meta_mirror_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;
/* After a restart nothing is being fetched. */
int meta_mirrors_interrupted(struct meta *m, int64_t now_ms, struct err *err) MUST_CHECK;
/* The placed jobs that have it frozen, at most `limit`. */
int meta_manifest_jobs(struct meta *m, struct arena *a, const char *manifest, size_t limit,
                       const char ***ids, size_t *n, struct err *err) MUST_CHECK;

/* refs: what is kept by content, of each kind. team_id "" is everybody's. */
#define META_REF_WEIGHTS "weights" /* the name is a mirror's id */
#define META_REF_HUB "hub"         /* the name is models/OWNER/NAME@COMMIT */
/* Made, or moved to another manifest. */
int meta_ref_put(struct meta *m, const struct model_ref *x, struct err *err) MUST_CHECK;
int meta_ref(struct meta *m, struct arena *a, const char *team_id, const char *kind,
             const char *name, struct model_ref *out, struct err *err) MUST_CHECK;
/* team_id NULL: of all teams. */
int meta_refs(struct meta *m, struct arena *a, const char *team_id, const char *kind,
              struct model_ref **out, size_t *n, struct err *err) MUST_CHECK;
int meta_ref_del(struct meta *m, const char *team_id, const char *kind, const char *name,
                 struct err *err) MUST_CHECK;
/* By a ref or an active job. */
int meta_manifest_used(struct meta *m, const char *manifest, bool *used,
                       struct err *err) MUST_CHECK;
/* All that lead to it are used again: the least recently used are evicted first. */
int meta_manifest_touch(struct meta *m, const char *manifest, int64_t now_ms,
                        struct err *err) MUST_CHECK;
struct meta_idle {
	const char *manifest, *source; /* one of those that lead to it */
	uint64_t bytes;
	int64_t used_ms;
};
/* All manifests that refs name, least recently used first. */
int meta_refs_held(struct meta *m, struct arena *a, struct meta_idle **out, size_t *n,
                   struct err *err) MUST_CHECK;
/* Those that no active job has resolved and no fetch is about to replace. */
int meta_refs_idle(struct meta *m, struct arena *a, struct meta_idle **out, size_t *n,
                   struct err *err) MUST_CHECK;
/* Deletes the rows of such a manifest; *evicted: it still was one. */
int meta_manifest_evict(struct meta *m, const char *manifest, bool *evicted,
                        struct err *err) MUST_CHECK;

/* Branches and tags of another Hub's repositories (models/OWNER/NAME), as they were last seen. */
int meta_hub_rev_put(struct meta *m, const struct model_hub_rev *x, struct err *err) MUST_CHECK;
int meta_hub_rev(struct meta *m, struct arena *a, const char *team_id, const char *repo,
                 const char *rev, struct model_hub_rev *out, struct err *err) MUST_CHECK;
int meta_hub_revs(struct meta *m, struct arena *a, const char *team_id, const char *repo,
                  struct model_hub_rev **out, size_t *n, struct err *err) MUST_CHECK;
int meta_hub_rev_del(struct meta *m, const char *team_id, const char *repo, const char *rev,
                     struct err *err) MUST_CHECK;
/* Those that were not checked since, of commits of which nothing is kept any more. */
int meta_hub_revs_collect(struct meta *m, int64_t before_ms, struct err *err) MUST_CHECK;

/* Repositories. Of every commit a ref of the kind "repo" names the files; of every large file that
 * was uploaded one of the kind "lfs". `key`: models/owner/name in lower case. */
#define META_REF_REPO "repo" /* the name is REPO_ID@COMMIT */
#define META_REF_LFS "lfs"   /* the name is REPO_ID/SHA256 */
#define META_REF_XORB "xorb" /* the name is REPO_ID/EPOCH/HASH */
/* With an empty commit on main. ERR_HUB_REPO_EXISTS; ERR_HUB_NAMESPACE_TAKEN: repositories of that
 * owner are another team's. */
int meta_repo_add(struct meta *m, const struct model_repo *r, const char *key,
                  const struct model_repo_commit *first, const struct model_ref *files,
                  struct err *err) MUST_CHECK;
/* By its key, or one that it had before it was moved: then *moved. ERR_HUB_REPO_NOT_FOUND. */
int meta_repo_by_key(struct meta *m, struct arena *a, const char *key, struct model_repo *out,
                     bool *moved, struct err *err) MUST_CHECK;
int meta_repo(struct meta *m, struct arena *a, const char *id, struct model_repo *out,
              struct err *err) MUST_CHECK;
struct meta_repo_query {
	const char *team_id;                   /* whose private ones, too; NULL: all of all teams */
	const char *type, *owner_key, *search; /* NULL: any; search: a part of owner/name */
	size_t limit;
};
/* The last changed first. */
int meta_repos(struct meta *m, struct arena *a, const struct meta_repo_query *q,
               struct model_repo **out, size_t *n, struct err *err) MUST_CHECK;
/* All of it: branches, commits, refs. */
int meta_repo_del(struct meta *m, const char *id, struct err *err) MUST_CHECK;
int meta_repo_set_private(struct meta *m, const char *id, bool is_private, int64_t now_ms,
                          struct err *err) MUST_CHECK;
/* To another name, from which the old one leads; `r`: its new owner, name, team and of_user.
 * ERR_HUB_REPO_EXISTS, ERR_HUB_NAMESPACE_TAKEN. */
int meta_repo_move(struct meta *m, const struct model_repo *r, const char *old_key, const char *key,
                   struct err *err) MUST_CHECK;
/* Another repository with all commits, branches and tags of one, and the large files that its
 * commits name; no pull requests. to->bytes is set to what it holds. ERR_HUB_REPO_EXISTS,
 * ERR_HUB_NAMESPACE_TAKEN, ERR_REPO_QUOTA_EXCEEDED; quota 0: none. */
int meta_repo_copy(struct meta *m, const struct model_repo *from, struct model_repo *to,
                   const char *key, uint64_t quota, struct err *err) MUST_CHECK;
/* One of which a commit, or an upload, is this manifest. ERR_HUB_REPO_NOT_FOUND. */
int meta_repo_of_manifest(struct meta *m, struct arena *a, const char *manifest,
                          struct model_repo *out, struct err *err) MUST_CHECK;
/* What all repositories of a team hold. */
int meta_repos_bytes(struct meta *m, const char *team_id, uint64_t *bytes,
                     struct err *err) MUST_CHECK;

/* ERR_HUB_REVISION_NOT_FOUND. */
int meta_repo_ref(struct meta *m, struct arena *a, const char *repo_id,
                  enum model_repo_ref_kind kind, const char *name, struct model_repo_ref *out,
                  struct err *err) MUST_CHECK;
int meta_repo_refs(struct meta *m, struct arena *a, const char *repo_id,
                   struct model_repo_ref **out, size_t *n, struct err *err) MUST_CHECK;
/* ERR_HUB_REF_EXISTS; ERR_HUB_REVISION_NOT_FOUND: it has no such commit. */
int meta_repo_ref_add(struct meta *m, const struct model_repo_ref *r, struct err *err) MUST_CHECK;
int meta_repo_ref_del(struct meta *m, const struct model_repo_ref *r, struct err *err) MUST_CHECK;

struct meta_repo_change {
	const struct model_repo_commit *commit;
	const struct model_ref *files;
	enum model_repo_ref_kind kind;
	const char *branch;           /* or the number of a pull request */
	const char *head;             /* what it must be now */
	struct model_repo_pull *pull; /* it moves no branch but opens this one; its number is set */
	uint64_t bytes, quota;        /* that are new; that the team may have, 0: any */
	const char *team_id;
	const char **uploads; /* names of the refs of large files that it names */
	size_t n_uploads;
};
/* ERR_HUB_STALE: the branch is another commit, or gone. ERR_REPO_QUOTA_EXCEEDED. */
int meta_repo_commit(struct meta *m, const struct meta_repo_change *c, struct err *err) MUST_CHECK;
/* Pull requests. ERR_HUB_REVISION_NOT_FOUND, ERR_REPO_QUOTA_EXCEEDED: what is said counts. */
int meta_repo_pull_add(struct meta *m, struct model_repo_pull *p, const char *commit,
                       const char *comment, uint64_t quota, struct err *err) MUST_CHECK;
int meta_repo_pull(struct meta *m, struct arena *a, const char *repo_id, int64_t num,
                   struct model_repo_pull *out, struct err *err) MUST_CHECK;
struct meta_pull_query {
	const char *repo_id, *author; /* NULL: any */
	bool no_open, no_ended;       /* open are drafts, too */
	size_t skip, limit;
};
/* The newest first; *total: how many there are. */
int meta_repo_pulls(struct meta *m, struct arena *a, const struct meta_pull_query *q,
                    struct model_repo_pull **out, size_t *n, size_t *total,
                    struct err *err) MUST_CHECK;
int meta_repo_events(struct meta *m, struct arena *a, const char *repo_id, int64_t num,
                     struct model_repo_event **out, size_t *n, struct err *err) MUST_CHECK;
struct meta_pull_change {
	const struct model_repo_pull *was; /* ERR_HUB_STALE: its status is another one */
	enum model_pull_status status;
	const char *title;                         /* NULL: as it was */
	const struct model_repo_event *const *say; /* seq is not read */
	size_t n;
	/* of a merge: the target, what it was, and what it is; the commit that is new, or NULL */
	const char *head, *merged;
	const struct model_repo_commit *commit;
	const struct model_ref *files;
	uint64_t bytes, quota; /* that the commit brings; that the team may have, 0: any */
};
/* ERR_REPO_QUOTA_EXCEEDED. *seq: of the last event. */
int meta_repo_pull_change(struct meta *m, const struct meta_pull_change *c, int64_t *seq,
                          struct err *err) MUST_CHECK;
/* `limit` of its commits, each behind its parent; without their texts, which may be long. */
int meta_repo_commits(struct meta *m, struct arena *a, const char *repo_id, size_t limit,
                      struct model_repo_commit **out, size_t *n, struct err *err) MUST_CHECK;
/* The refs of the large files that were uploaded to it, by name. */
int meta_repo_uploads(struct meta *m, struct arena *a, const struct model_repo *r, size_t skip,
                      size_t limit, struct model_ref **out, size_t *n, struct err *err) MUST_CHECK;
/* Is one of them of that size? */
int meta_repo_upload_sized(struct meta *m, const struct model_repo *r, uint64_t bytes, bool *is,
                           struct err *err) MUST_CHECK;
struct meta_repo_moved { /* a commit that another one stands for now */
	const char *from, *to;
};
struct meta_repo_rewrite { /* of a repository's history */
	const struct model_repo *repo;
	const struct model_repo_commit *commit; /* that are new, */
	const char *const *text_of;             /* the one whose texts each has; NULL: its own, */
	const struct model_ref *files;          /* and of each its files */
	size_t n_commits;
	const struct model_repo_ref *ref; /* that are another commit now; */
	const char *const *head;          /* what each was. ERR_HUB_STALE */
	size_t n_refs;
	const struct meta_repo_moved *moved; /* what pull requests began from */
	size_t n_moved;
	const char *const *drop; /* commits */
	size_t n_drop;
	const char *const *upload; /* names of refs of large files that go */
	size_t n_uploads;
	uint64_t bytes; /* of regular files and lists that are left; texts are counted here */
	int64_t now_ms;
};
int meta_repo_rewrite(struct meta *m, const struct meta_repo_rewrite *w,
                      struct err *err) MUST_CHECK;
/* ERR_REPO_QUOTA_EXCEEDED when repositories of a team that hold so much may not hold more. */
int meta_repos_fit(uint64_t held, uint64_t more, uint64_t quota, struct err *err) MUST_CHECK;
/* A file that was uploaded; known already is fine. ERR_REPO_QUOTA_EXCEEDED. */
int meta_repo_upload(struct meta *m, const char *repo_id, const struct model_ref *file,
                     uint64_t quota, struct err *err) MUST_CHECK;
/* The only one whose id begins so. */
int meta_repo_commit_begins(struct meta *m, struct arena *a, const char *repo_id,
                            const char *prefix, struct model_repo_commit *out,
                            struct err *err) MUST_CHECK;
#define META_REPO_REFS_MAX 10000  /* branches, tags and pull requests of one repository */
#define META_REPO_EVENTS_MAX 1000 /* comments and new titles of one pull request, */
#define META_REPO_TEXT_MAX                                                                         \
	((int)1 << 20) /* characters in all of them, and told of commits at once */
/* The commit, and those before it, the newest first: fewer than `limit` where their titles and
 * messages are long; the last one has a parent then. */
int meta_repo_log(struct meta *m, struct arena *a, const char *repo_id, const char *commit,
                  size_t skip, size_t limit, struct model_repo_commit **out, size_t *n,
                  struct err *err) MUST_CHECK;
/* How many that are, in all. */
int meta_repo_log_length(struct meta *m, const char *repo_id, const char *commit, uint64_t *n,
                         struct err *err) MUST_CHECK;
/* A xorb that was sent; known already is fine. All of a team may take as much as its quota. */
int meta_repo_xorb(struct meta *m, const char *repo_id, const struct model_ref *xorb,
                   uint64_t quota, struct err *err) MUST_CHECK;
/* Forgets xorbs of before. */
int meta_repo_xorbs_sweep(struct meta *m, int64_t before_ms, uint64_t *swept,
                          struct err *err) MUST_CHECK;
/* Forgets uploads of before that no commit has named. */
int meta_repo_uploads_sweep(struct meta *m, int64_t before_ms, uint64_t *swept,
                            struct err *err) MUST_CHECK;
int meta_repo_commit_find(struct meta *m, struct arena *a, const char *repo_id, const char *commit,
                          struct model_repo_commit *out, struct err *err) MUST_CHECK;

/* uploads: `sealed` holds secret key and session token; row's own two are ignored, left NULL */
int meta_upload_add(struct meta *m, const struct model_upload *u, struct str sealed,
                    struct err *err) MUST_CHECK;
int meta_upload(struct meta *m, struct arena *a, const char *access_key, struct model_upload *out,
                struct str *sealed, struct err *err) MUST_CHECK;
int meta_upload_by_key(struct meta *m, struct arena *a, const char *key, struct model_upload *out,
                       struct err *err) MUST_CHECK;
/* The object was written; what it hashes to, NULL: not known. No such upload is fine. */
int meta_upload_stored(struct meta *m, const char *key, const char *sha256,
                       struct err *err) MUST_CHECK;
/* One of this digest that a job of its team names and nobody can write to any more. Secrets are
 * left NULL. ERR_UPLOAD_NOT_FOUND. */
int meta_upload_same(struct meta *m, struct arena *a, const char *team_id, const char *sha256,
                     int64_t now_ms, struct model_upload *out, struct err *err) MUST_CHECK;
/* A push is about to name it again: until then it is as young as a new one, and is not swept. */
int meta_upload_reused(struct meta *m, const char *key, int64_t now_ms, struct err *err) MUST_CHECK;
/* The uploads that meta_uploads_sweep would remove; secrets are left NULL. */
int meta_uploads_unused(struct meta *m, struct arena *a, int64_t created_ms,
                        struct model_upload **out, size_t *n, struct err *err) MUST_CHECK;
/* Uploads made before created_ms that no job names: rows go, keys become trash. */
int meta_uploads_sweep(struct meta *m, int64_t created_ms, uint64_t *n, struct err *err) MUST_CHECK;
int meta_idempotency_sweep(struct meta *m, int64_t created_ms, struct err *err) MUST_CHECK;

int meta_snapshot_put(struct meta *m, const struct model_cache_snapshot *s,
                      struct err *err) MUST_CHECK;
int meta_snapshot(struct meta *m, struct arena *a, const char *scope, const char *id,
                  struct model_cache_snapshot *out, struct err *err) MUST_CHECK;

struct meta_capacity {
	const char *team_id, *team_name, *gpu_type;
	int64_t max_gpus;
};
int meta_capacity(struct meta *m, struct arena *a, struct meta_capacity **out, size_t *n,
                  struct err *err) MUST_CHECK;
/* max_gpus -1: no limit. */
int meta_capacity_put(struct meta *m, const char *team_id, const char *gpu_type, int64_t max_gpus,
                      struct err *err) MUST_CHECK;

/* meta_artifacts.c: what tools keep under keys of their own */
#define META_ARTIFACT_BODY_MAX 8192 /* larger ones are blobs: a row is read and written whole */
struct meta_artifact_at {
	const char *team_id, *owner; /* owner "": the team itself */
	const char *name;            /* core/artifact.h */
};
/* ERR_ARTIFACT_NOT_FOUND */
int meta_artifact(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                  struct model_artifact *out, struct err *err) MUST_CHECK;
/* Of n names, at most META_ARTIFACTS_MAX, those that are there; without bodies. */
#define META_ARTIFACTS_MAX 100
int meta_artifacts_of(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                      const char *const *name, size_t n_names, struct model_artifact **out,
                      size_t *n, struct err *err) MUST_CHECK;
/* *was: what had the name before; digest NULL: nothing had. */
int meta_artifact_put(struct meta *m, struct arena *a, const struct meta_artifact_at *at,
                      const struct model_artifact *x, struct model_artifact *was,
                      struct err *err) MUST_CHECK;
/* If it is still what it was. *gone: it was. */
int meta_artifact_del(struct meta *m, const struct model_artifact *x, bool *gone,
                      struct err *err) MUST_CHECK;
/* Together; those that are not there any more are fine. */
int meta_artifacts_del(struct meta *m, const struct model_artifact *x, size_t n,
                       struct err *err) MUST_CHECK;
struct meta_artifact_used {
	int64_t seq, ms;
};
int meta_artifacts_used(struct meta *m, const struct meta_artifact_used *u, size_t n,
                        struct err *err) MUST_CHECK;
struct meta_artifact_space {
	const char *team_id, *owner;
	uint64_t files, bytes;
};
/* All namespaces that have any. */
int meta_artifact_spaces(struct meta *m, struct arena *a, struct meta_artifact_space **out,
                         size_t *n, struct err *err) MUST_CHECK;
/* The least recently used of a namespace, first; without bodies. */
int meta_artifacts_oldest(struct meta *m, struct arena *a, const char *team_id, const char *owner,
                          size_t limit, struct model_artifact **out, size_t *n,
                          struct err *err) MUST_CHECK;
/* The last stored of a namespace, first; without bodies. */
struct meta_artifact_query {
	const char *team_id, *owner;
	const char *stored_by, *job_id; /* NULL: any */
	size_t limit;
	int64_t after_ms,
		after_seq; /* stored and seq of the last one of the page before; 0: none */
};
int meta_artifacts_stored(struct meta *m, struct arena *a, const struct meta_artifact_query *q,
                          struct model_artifact **out, size_t *n, struct err *err) MUST_CHECK;
/* The digests of blobs that rows name, each once, in order, behind `after` ("": from the first). */
int meta_artifact_blobs(struct meta *m, struct arena *a, const char *after, size_t limit,
                        const char ***out, size_t *n, struct err *err) MUST_CHECK;

/* notices: what webhooks are still to be told; meta_job_step adds them */
struct meta_webhook {
	const char *team_id, *name;
};
/* Those that have something due. */
int meta_webhooks_due(struct meta *m, struct arena *a, int64_t now_ms, size_t limit,
                      struct meta_webhook **out, size_t *n, struct err *err) MUST_CHECK;
/* The due deliveries of one webhook, oldest first. */
int meta_deliveries(struct meta *m, struct arena *a, const struct meta_webhook *w, int64_t now_ms,
                    size_t limit, struct model_delivery **out, size_t *n,
                    struct err *err) MUST_CHECK;
/* After a try: it is due again then, or over (due_ms 0). The event (NULL: none) is the job's, if
 * that is still there. */
int meta_delivery_tried(struct meta *m, const struct model_delivery *t, int64_t due_ms,
                        const struct model_event *e, struct err *err) MUST_CHECK;

/* Data of deleted rows that is still to be removed: kind "objects" (key prefix), "object", "log"
 * (job), "cache" ("projects/<id>"), "summary" (file). */
struct meta_trash {
	int64_t id;
	const char *kind, *what;
};
int meta_trash(struct meta *m, struct arena *a, struct meta_trash **out, size_t *n,
               struct err *err) MUST_CHECK;
int meta_trash_done(struct meta *m, int64_t id, struct err *err) MUST_CHECK;

struct meta_counts {
	uint64_t by_state[JOB_STATE_COUNT];
};
int meta_counts(struct meta *m, struct meta_counts *out, struct err *err) MUST_CHECK;

#endif
