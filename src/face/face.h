/*
 * face.h - what a protocol face may ask of the product. A face has no database, no engine and no
 * queue: bytes come as handles, everything with a row behind it through the functions here, which
 * server/ fills and a test may fake. One table of operations, so that this page is the whole list
 * of what the network can make Stoker do.
 *
 * Conventions: `who` is the caller; what belongs to another team is ERR_NOT_FOUND; a missing right
 * is ERR_DENIED. Rows and strings live in the arena given. Ids are given as ids only; what people
 * type is resolved by the three *_resolve.
 */
#ifndef FACE_H
#define FACE_H

#include "core/model.h"
#include "core/sched.h"
#include "core/spec.h"
#include "core/wire.h"
#include "io/httpd.h"
#include "io/url.h"
#include "store/blobs/blob.h"
#include "store/logs/joblog.h"
#include "store/objects/objstore.h"

/* The caller: set by the server's authorize hook as request->who. */
struct principal {
	unsigned magic;
#define PRINCIPAL_MAGIC 0x3405eU
	const char *token_id, *name;
	enum model_role role;
	const char *team_id;    /* NULL: all teams */
	const char *attempt_id; /* SCOPE_RUNNER: the only attempt, */
	uint32_t node_rank;     /* and node, that it may speak of */
};

/* What became of one request to the object store that a runner wanted signed. */
struct sign_answer {
	struct wire_signed signed_;
	const struct err *err; /* NULL: it is signed */
};

struct job_query {
	const char *project_id, *job_id; /* NULL: any */
	const char *user;                /* who pushed; NULL: anybody */
	uint32_t states;                 /* bit set of enum job_state; 0 = any */
	bool ascending;                  /* by creation; newest first otherwise */
	int64_t after_ms, after_row;     /* of the last job of the page before; 0: the first page */
	size_t limit;                    /* 0 = 1000 */
};

#define RESOLVE_MAX 20 /* things that one word could mean, at most shown */

struct capacity_row {
	const char *gpu_type, *team_id, *team_name; /* team NULL: of the whole server */
	int64_t baseline, limit;                    /* -1 = no limit */
	int64_t used;
};

struct node_row {
	const char *name, *cluster;
	const char *gpu_type; /* words: "H100", "H100, L4"; NULL: none */
	struct sched_gpus kinds[SCHED_KINDS_MAX];
	size_t n_kinds;
	uint32_t cpu_milli, cpu_milli_used, gpus;
	uint64_t memory_bytes, memory_used, gpus_used;
	bool declared; /* the GPUs are a declared inventory, not found by NVML */
};

struct standby_row { /* a server that waits to lead */
	const char *host;
	int64_t seen_ms; /* so long ago; -1: not known */
};

struct server_status {
	const char *version, *data_dir, *base_url, *sandbox,
		*python; /* what probing found, in words; python NULL: nothing */
	int64_t started_ms;
	uint64_t disk_free, disk_total, mirror_bytes, node_cache_bytes, node_cache_budget;
	uint64_t mirror_budget, mirror_reserved, mirror_evicted, mirror_evicted_bytes;
	uint64_t jobs_active, jobs_pending; /* not known while the database is away */
	struct outage database;
	struct standby_row *standbys;
	size_t n_standbys;
	const char *standby_gone; /* none waits, and this one did; NULL: none ever, or long ago */
	int64_t standby_gone_ms;  /* when it was seen last */
	struct node_row *nodes;
	size_t n_nodes;
};

#define EXEC_PARK_MS 5000 /* the longest that a runner waits for news of a command */

struct exec_state { /* a command run inside a job's sandbox */
	bool done;
	int exit_code;
	struct str frames; /* core/resumable.h: what it printed from the offset on; in the arena */
	uint64_t next_offset;
};

/* A maintenance task: collect unused data, or verify stored data. */
struct maintenance_want {
	bool verify;       /* else: collect */
	bool dry_run;      /* of collecting: only look */
	int64_t min_age_s; /* of collecting: what is left of fetches and uploads, and caches without
	                    * an owner, only when they were not touched for so long */
};

struct maintenance_item {
	const char *kind;  /* "weights", "upload", ... */
	const char *name;  /* of a source, checkpoint, blob, folder */
	const char *path;  /* of the file in it; NULL: all of it */
	const char *words; /* what is wrong, or why it may go; NULL: nothing to say */
	uint64_t bytes;
	int64_t used_ms; /* when it was last written or asked for; 0: not known */
};

struct maintenance_view {
	const char *id, *by;
	struct maintenance_want want;
	enum {
		MAINTENANCE_RUNNING,
		MAINTENANCE_DONE,
		MAINTENANCE_STOPPED,
		MAINTENANCE_FAILED
	} state;
	int64_t started_ms, ended_ms;
	const char *doing;                /* while it runs */
	uint64_t bytes_done, bytes_total; /* read, and to be read */
	double rate_bytes_s;
	uint64_t found, found_bytes;   /* all of them */
	struct maintenance_item *item; /* the first ones, once it is over */
	size_t n_items;
	const char *note;  /* what was left out, and why; NULL: nothing */
	const char *error; /* MAINTENANCE_FAILED */
};

struct exec_input { /* what such a command is given */
	uint64_t offset;
	struct str bytes;
	bool end;               /* of its stdin, after these bytes */
	uint32_t rows, columns; /* of its terminal, 0 = as they are */
};

struct face_ops {
	/* teams, tokens, secrets */
	int (*teams)(void *of, const struct principal *principal, struct arena *a,
	             struct model_team **out, size_t *n, struct err *err);
	int (*team_create)(void *of, const struct principal *principal, struct arena *a,
	                   const char *name, struct model_team *out, struct err *err);
	int (*team_delete)(void *of, const struct principal *principal, const char *id,
	                   struct err *err);
	int (*tokens)(void *of, const struct principal *principal, struct arena *a,
	              struct model_token **out, size_t *n, struct err *err);
	/* *plain is shown once. team_id NULL = all teams (admin only). */
	int (*token_create)(void *of, const struct principal *principal, struct arena *a,
	                    const char *name, const char *team_id, enum model_role role,
	                    int64_t expires_ms, struct model_token *out, char **plain,
	                    struct err *err);
	int (*token_delete)(void *of, const struct principal *principal, const char *id,
	                    struct err *err);
	/* team_id NULL: the caller's team, else the default one. */
	int (*secrets)(void *of, const struct principal *principal, struct arena *a,
	               const char *team_id, struct model_secret **out, size_t *n, struct err *err);
	int (*secret_set)(void *of, const struct principal *principal, struct arena *a,
	                  const char *team_id, const char *name, struct str value,
	                  struct model_secret *out, struct err *err);
	int (*secret_delete)(void *of, const struct principal *principal, const char *team_id,
	                     const char *name, struct err *err);
	/* Bearer or Api-Key token to who, for faces that check the caller themselves. `local`: the
	 * request came by the Unix socket, where alone the tokens of this machine's runners are
	 * good. ERR_AUTH. */
	int (*authenticate)(void *of, struct arena *a, struct str token, bool local,
	                    struct principal **out, struct err *err);

	/* The proof of io/proof.h for the token whose hash begins with `id`. ERR_TOKEN_INVALID. */
	int (*token_prove)(void *of, const char *id, struct str challenge, struct str address,
	                   char proof[HASH_HEX_CAP], struct err *err);

	/* Resolves what people type: an exact id, else an exact name, else an id prefix; a project
	 * also as TEAM/PROJECT. "@" is the caller's newest job, or its project. *n > 1: the word is
	 * ambiguous; these are the candidates, newest first, RESOLVE_MAX at most. No match:
	 * ERR_..._NOT_FOUND. */
	int (*job_resolve)(void *of, const struct principal *principal, struct arena *a,
	                   const char *word, struct model_job **out, size_t *n, struct err *err);
	/* Of several jobs of this name the only active one, else the newest if *newest allows
	 * that, which then tells whether it was; *out NULL: neither. *n: how many there are. */
	int (*job_pick)(void *of, const struct principal *principal, struct arena *a,
	                const char *name, bool *newest, struct model_job **out, uint64_t *n,
	                struct err *err);
	int (*project_resolve)(void *of, const struct principal *principal, struct arena *a,
	                       const char *word, struct model_project **out, size_t *n,
	                       struct err *err);
	int (*team_resolve)(void *of, const struct principal *principal, struct arena *a,
	                    const char *word, struct model_team **out, size_t *n, struct err *err);

	/* projects */
	int (*projects)(void *of, const struct principal *principal, struct arena *a,
	                struct model_project **out, size_t *n,
	                struct err *err); /* last used first */
	int (*project_get)(void *of, const struct principal *principal, struct arena *a,
	                   const char *id, struct model_project *out, struct err *err);
	int (*project_upsert)(void *of, const struct principal *principal, struct arena *a,
	                      const char *team_id, const char *name, struct model_project *out,
	                      struct err *err);
	/* Stops nothing: ERR_CONFLICT while a job is active. Takes jobs, undeployed checkpoints,
	 * cache. */
	int (*project_delete)(void *of, const struct principal *principal, const char *id,
	                      struct err *err);

	/* jobs. push: doc is the training_job object; validated whole, checked against machine,
	 * secrets, project; stored with its first event and log line before it returns.
	 * idempotency_key (may be NULL): the same key and project give the same job. */
	int (*job_push)(void *of, const struct principal *principal, struct arena *a,
	                const char *project_id, const struct doc *doc, const char *idempotency_key,
	                struct model_job *out, struct err *err);
	/* The same checks for a project by name, and nothing is stored: *out has no id, and no
	 * project's either when there is none of that name yet. team_id NULL: as for secrets.
	 * forecast: out->reason is what it would wait for. */
	int (*job_check)(void *of, const struct principal *principal, struct arena *a,
	                 const char *team_id, const char *project, const struct doc *doc,
	                 bool forecast, struct model_job *out, struct err *err);
	int (*job_search)(void *of, const struct principal *principal, struct arena *a,
	                  const struct job_query *q, struct model_job **out, size_t *n,
	                  uint64_t *total, struct err *err); /* total: of all pages */
	int (*job_get)(void *of, const struct principal *principal, struct arena *a,
	               const char *project_id, const char *job_id, struct model_job *out,
	               struct err *err); /* project_id NULL: any */
	int (*job_stop)(void *of, const struct principal *principal, struct arena *a,
	                const char *job_id, bool now, struct model_job *out, struct err *err);
	int (*job_recreate)(void *of, const struct principal *principal, struct arena *a,
	                    const char *job_id, bool resume, struct model_job *out,
	                    struct err *err);
	int (*job_change)(void *of, const struct principal *principal, struct arena *a,
	                  const char *job_id, const struct model_change *c, struct model_job *out,
	                  struct err *err);
	int (*job_delete)(void *of, const struct principal *principal, const char *job_id,
	                  struct err *err);
	int (*job_events)(void *of, const struct principal *principal, struct arena *a,
	                  const char *job_id, int64_t after_seq, struct model_event **out,
	                  size_t *n, struct err *err);
	int (*job_attempts)(void *of, const struct principal *principal, struct arena *a,
	                    const char *job_id, struct model_attempt **out, size_t *n,
	                    struct err *err);
	/* `what` has no id yet. Who started it must be heard of, by the next three, or it is hung
	 * up: EXEC_AWAY_MS. */
	int (*exec_start)(void *of, const struct principal *principal, struct arena *a,
	                  const char *job_id, uint32_t rank, const struct wire_exec *what,
	                  char **exec_id, struct err *err);
	/* Output before `offset` is dropped. */
	int (*exec_poll)(void *of, const struct principal *principal, struct arena *a,
	                 const char *job_id, const char *exec_id, uint64_t offset,
	                 struct exec_state *out, struct err *err);
	/* *next: where to go on; in->offset while there is no room. */
	int (*exec_input)(void *of, const struct principal *principal, struct arena *a,
	                  const char *job_id, const char *exec_id, const struct exec_input *in,
	                  uint64_t *next, struct err *err);
	/* EXEC_HUNG or EXEC_LEFT; nothing when it is over. */
	int (*exec_leave)(void *of, const struct principal *principal, struct arena *a,
	                  const char *job_id, const char *exec_id, enum wire_exec_state how,
	                  struct err *err);

	/* checkpoints: rows; files come from the manifest in the object store */
	int (*checkpoints)(void *of, const struct principal *principal, struct arena *a,
	                   const char *job_id, bool all, struct model_checkpoint **out, size_t *n,
	                   struct err *err);
	/* A pinned one is not deleted, by nobody; unpin first. */
	int (*checkpoint_pin)(void *of, const struct principal *principal, const char *job_id,
	                      const char *name, bool pinned, struct err *err);
	/* By hand, of a job that has ended: recorded as marked by the caller. */
	int (*checkpoint_complete)(void *of, const struct principal *principal, const char *job_id,
	                           const char *name, struct err *err);
	int (*checkpoint_delete)(void *of, const struct principal *principal, const char *job_id,
	                         const char *name, struct err *err);

	/* training cache. scope "project" or "team". ERR_NOT_FOUND when never summarized. */
	int (*cache_snapshot)(void *of, const struct principal *principal, struct arena *a,
	                      const char *scope, const char *id, struct model_cache_snapshot *out,
	                      struct err *err);
	int (*cache_summarize)(void *of, const struct principal *principal, struct arena *a,
	                       const char *scope, const char *id, struct model_cache_snapshot *out,
	                       struct err *err);
	int (*cache_remove)(void *of, const struct principal *principal, const char *scope,
	                    const char *id, struct str path, uint64_t *bytes, struct err *err);
	int (*cache_quota)(void *of, const struct principal *principal, const char *project_id,
	                   uint64_t bytes, struct err *err);

	/* weights */
	int (*mirrors)(void *of, const struct principal *principal, struct arena *a,
	               struct model_mirror **out, size_t *n, struct err *err);
	int (*mirror_prefetch)(void *of, const struct principal *principal, struct arena *a,
	                       const char *team_id, const struct spec_weights *w,
	                       struct model_mirror *out, struct err *err);
	int (*mirror_delete)(void *of, const struct principal *principal, const char *id,
	                     uint64_t *freed_bytes, struct err *err);

	/* uploads: credentials for one new object key, or (out->there) a key that holds the bytes
	 * of this digest already. team_id NULL: as for secrets; sha256 NULL: not known. */
	int (*upload_create)(void *of, const struct principal *principal, struct arena *a,
	                     const char *team_id, const char *sha256, struct model_upload *out,
	                     struct err *err);
	/* The object of an upload was written: verified to be of this digest, NULL: of any. */
	int (*upload_stored)(void *of, const char *key, const char *sha256, struct err *err);
	int (*upload_find)(void *of, struct arena *a, struct str access_key,
	                   struct model_upload *out, struct err *err);
	/* The key pair that signs download URLs of this server; it is never handed out. */
	int (*url_key)(void *of, struct arena *a, const char **access_key, const char **secret_key,
	               struct err *err);

	int (*capacity)(void *of, const struct principal *principal, struct arena *a,
	                struct capacity_row **out, size_t *n, struct err *err);
	int (*capacity_set)(void *of, const struct principal *principal, struct arena *a,
	                    const char *team_id, const char *gpu_type, int64_t max_gpus,
	                    struct capacity_row *out, struct err *err);
	int (*status)(void *of, const struct principal *principal, struct arena *a,
	              struct server_status *out, struct err *err);
	bool (*database_away)(void *of);

	/* One at a time: ERR_CONFLICT while another runs. For administrators of all teams. */
	int (*maintenance_begin)(void *of, const struct principal *principal, struct arena *a,
	                         const struct maintenance_want *want, struct maintenance_view *out,
	                         struct err *err);
	/* The one that runs, or the last one. ERR_NOT_FOUND when there was none since the start. */
	int (*maintenance_show)(void *of, const struct principal *principal, struct arena *a,
	                        struct maintenance_view *out, struct err *err);
	/* Asks it to stop; what it did stays done. ERR_NOT_FOUND when another one runs by now. */
	int (*maintenance_stop)(void *of, const struct principal *principal, struct arena *a,
	                        const char *id, struct maintenance_view *out, struct err *err);

	/* runners: `who` names attempt and node */
	/* Before the claim. Of another WIRE_VERSION: its job ends, and says why. */
	int (*runner_speaks)(void *of, const struct principal *principal, struct arena *a,
	                     int64_t version, struct err *err);
	int (*runner_claim)(void *of, const struct principal *principal, struct arena *a,
	                    const char *nonce, struct wire_launch *out, struct err *err);
	int (*runner_heartbeat)(void *of, const struct principal *principal,
	                        const struct wire_heartbeat *hb, struct err *err);
	int (*runner_desired)(void *of, const struct principal *principal, struct arena *a,
	                      struct wire_desired *out, struct err *err);
	/* *out: what stays with the job, which another node may have said before */
	int (*runner_image)(void *of, const struct principal *principal, struct arena *a,
	                    const struct wire_image *said, struct wire_image *out, struct err *err);
	/* Each of n on its own: out[i].err says why that one is not signed. */
	int (*runner_sign)(void *of, const struct principal *principal, struct arena *a,
	                   const struct wire_sign *said, size_t n, struct sign_answer *out,
	                   struct err *err);
	int (*runner_ready)(void *of, const struct principal *principal, struct err *err);
	int (*runner_event)(void *of, const struct principal *principal, const char *kind,
	                    const char *message, struct err *err);
	int (*runner_checkpoint)(void *of, const struct principal *principal,
	                         const struct model_checkpoint *row, struct err *err);
	int (*runner_exit)(void *of, const struct principal *principal, const struct wire_exit *x,
	                   struct err *err); /* twice is fine */
	/* Frames of output, from `offset` of all of them on. exit_code -1: it goes on. *next is as
	 * of resumable_put. */
	int (*runner_exec_output)(void *of, const struct principal *principal, const char *exec_id,
	                          uint64_t offset, struct str frames, int exit_code, uint64_t *next,
	                          enum wire_exec_state *state, struct err *err);
	/* Frames of input, from `offset` of all of them on; in the arena. */
	int (*runner_exec_input)(void *of, const struct principal *principal, struct arena *a,
	                         const char *exec_id, uint64_t offset, struct str *frames,
	                         enum wire_exec_state *state, struct err *err);
	/* The job of the runner's attempt, for its log. */
	int (*runner_job)(void *of, const struct principal *principal, struct arena *a,
	                  struct model_job *out, struct err *err);
};

struct face_ctx {
	unsigned magic;
#define FACE_CTX_MAGIC 0x57a1c0deU
	const struct face_ops *ops;
	void *of; /* passed back to every operation */
	struct objstore *objects;
	struct blobs *blobs;
	struct joblogs *logs;
	const char *bucket;   /* the one bucket of the S3 face: "stoker" */
	const char *base_url; /* of the server, no trailing slash; clients are told face_url() */
	bool base_url_is_set; /* by the administrator: it wins over what clients used */
	bool tls;             /* this server speaks TLS itself */
	const struct url_net *proxies; /* whose X-Forwarded-* headers are believed */
	size_t n_proxies;
};

static inline const struct face_ctx *face_ctx(const struct request *rq)
{
	const struct face_ctx *ctx = rq->ctx;

	assert(ctx != NULL && ctx->magic == FACE_CTX_MAGIC);
	return ctx;
}

static inline const struct principal *face_principal(const struct request *rq)
{
	const struct principal *w = rq->principal;

	assert(w != NULL && w->magic == PRINCIPAL_MAGIC);
	return w;
}

/* address.c. What this client is told to come back to, no trailing slash: the address that it used,
 * as Host or a trusted proxy says, unless the administrator has set one. In the request's arena. */
const char *face_url(const struct request *rq);
/* The host that the client used, which is the one that it signed. */
struct str face_host(const struct request *rq);

/* Channels for reply_wait: what changed. */
#define CHANNEL_JOB "job"             /* + job id: state, progress, log */
#define CHANNEL_DESIRED "orders"      /* + attempt id: go, stop, exec */
#define CHANNEL_EXEC "exec"           /* + exec id: it printed, it ended */
#define CHANNEL_EXEC_IN "exec-in"     /* + exec id: there is input for it, its state changed */
#define CHANNEL_EXEC_ROOM "exec-room" /* + exec id: what waited for room may try again */

extern const struct face
	face_training; /* projects, jobs, logs, metrics, checkpoints, weights, cache */
extern const struct face face_admin;   /* teams, tokens, secrets, capacity, status */
extern const struct face face_graphql; /* the documents that the stock client sends */
extern const struct face face_runner;  /* what runners speak */
extern const struct face face_s3;      /* S3 subset */
extern const struct face face_meta;    /* /healthz, /openapi.json, /metrics */

/* The OpenAPI 3.1 document of these faces, printed from their route tables. */
void face_openapi(const struct face *const *faces, size_t n, struct buf *out);

#endif
