/*
 * face.h - what a protocol face may ask of the product. A face has no database, no engine and no
 * queue: bytes come as handles, everything with a row behind it through the functions here, which
 * server/ fills and a test may fake. A table of operations for each noun, so that this page is the
 * whole list of what the network can make Stoker do.
 *
 * Conventions: what belongs to another team is ERR_NOT_FOUND; a missing right is ERR_DENIED. Rows
 * and strings live in the arena given. Ids are given as ids only; what people type is resolved by
 * resolve_ops.
 */
#ifndef FACE_H
#define FACE_H

#include "base/jwt.h"
#include "core/artifact.h"
#include "core/hub_commit.h"
#include "core/hub_pull.h"
#include "core/model.h"
#include "core/sched.h"
#include "core/spec.h"
#include "core/wire.h"
#include "core/xet.h"
#include "io/httpd.h"
#include "io/url.h"
#include "store/blobs/blob.h"
#include "store/logs/joblog.h"
#include "store/objects/objstore.h"

/* What a job's own commands may do: read what its team may at the Hub, but for what is a user's
 * alone, and the team's artifacts; push to some repositories, and perhaps store artifacts. */
struct job_rights {
	const char *job_id;
	const char *const *push; /* their keys: "models/owner/name", in lower case */
	size_t n_push;
	bool keeps; /* its file says that what it compiles is kept: it may store artifacts */
};

/* The caller: set by the server's authorize hook as request->who. */
struct principal {
	unsigned magic;
#define PRINCIPAL_MAGIC 0x3405eU
	const char *token_id, *name;
	enum model_role role;
	int64_t expires_ms;     /* of the token; 0: never */
	const char *team_id;    /* NULL: all teams */
	const char *attempt_id; /* SCOPE_RUNNER: the only attempt, */
	uint32_t node_rank;     /* and node, that it may speak of */
	/* SCOPE_READ, SCOPE_PUSH: a job. name is that of who pushed it. NULL: it is none */
	const struct job_rights *job;
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

struct artifact_counts { /* since the server was started; by enum artifact_kind */
	uint64_t hits[ARTIFACT_KINDS], misses[ARTIFACT_KINDS], stored[ARTIFACT_KINDS];
	uint64_t bytes_out[ARTIFACT_KINDS], bytes_in[ARTIFACT_KINDS];
	uint64_t evicted[ARTIFACT_KINDS], evicted_bytes[ARTIFACT_KINDS];
	uint64_t bytes, budget; /* now */
};

struct server_status {
	const char *version, *data_dir, *base_url, *sandbox,
		*python; /* what probing found, in words; python NULL: nothing */
	int64_t started_ms;
	uint64_t disk_free, disk_total, mirror_bytes, node_cache_bytes, node_cache_budget;
	uint64_t mirror_budget, mirror_reserved, mirror_evicted, mirror_evicted_bytes;
	struct artifact_counts artifacts;
	uint64_t jobs_active, jobs_pending; /* not known while the database is away */
	struct outage database;
	struct standby_row *standbys;
	size_t n_standbys;
	const char *standby_gone; /* none waits, and this one did; NULL: none ever, or long ago */
	int64_t standby_gone_ms;  /* when it was seen last */
	struct node_row *nodes;
	size_t n_nodes;
};

enum exec_end { EXEC_CLIENT, EXEC_RUNNER };

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

struct app; /* the product: server/ has the struct, a test another one */

/* Who asks for an operation, and where its answer is to live. */
struct ask {
	struct app *app;
	const struct principal *principal;
	struct arena *a;
};

struct team_ops {
	int (*list)(const struct ask *ask, struct model_team **out, size_t *n, struct err *err);
	int (*create)(const struct ask *ask, const char *name, struct model_team *out,
	              struct err *err);
	int (*remove)(const struct ask *ask, const char *id, struct err *err);
};

struct token_ops {
	int (*list)(const struct ask *ask, struct model_token **out, size_t *n, struct err *err);
	/* *plain is shown once. team_id NULL = all teams (admin only). */
	int (*create)(const struct ask *ask, const char *name, const char *team_id,
	              enum model_role role, int64_t expires_ms, struct model_token *out,
	              char **plain, struct err *err);
	int (*remove)(const struct ask *ask, const char *id, struct err *err);
	/* Bearer or Api-Key token to who, for faces that check the caller themselves. `local`: the
	 * request came by the Unix socket, where alone the tokens of this machine's runners are
	 * good. ERR_AUTH. */
	int (*authenticate)(struct app *app, struct arena *a, struct str token, bool local,
	                    struct principal **out, struct err *err);
	/* The same, and of a job: for operations that look at what it may. */
	int (*authenticate_any)(struct app *app, struct arena *a, struct str token, bool local,
	                        struct principal **out, struct err *err);
	/* The proof of io/proof.h for the token whose hash begins with `id`. ERR_TOKEN_INVALID. */
	int (*prove)(struct app *app, const char *id, struct str challenge, struct str address,
	             char proof[HASH_HEX_CAP], struct err *err);
};

/* team_id NULL: the caller's team, else the default one. */
struct secret_ops {
	int (*list)(const struct ask *ask, const char *team_id, struct model_secret **out,
	            size_t *n, struct err *err);
	int (*set)(const struct ask *ask, const char *team_id, const char *name, struct str value,
	           struct model_secret *out, struct err *err);
	int (*remove)(const struct ask *ask, const char *team_id, const char *name,
	              struct err *err);
};

struct capacity_ops {
	int (*list)(const struct ask *ask, struct capacity_row **out, size_t *n, struct err *err);
	int (*set)(const struct ask *ask, const char *team_id, const char *gpu_type,
	           int64_t max_gpus, struct capacity_row *out, struct err *err);
};

struct server_ops {
	int (*status)(const struct ask *ask, struct server_status *out, struct err *err);
	bool (*is_database_away)(struct app *app);
};

/* One task at a time: ERR_CONFLICT while another runs. For administrators of all teams. */
struct maintenance_ops {
	int (*begin)(const struct ask *ask, const struct maintenance_want *want,
	             struct maintenance_view *out, struct err *err);
	/* The one that runs, or the last one. ERR_NOT_FOUND when there was none since the start. */
	int (*show)(const struct ask *ask, struct maintenance_view *out, struct err *err);
	/* Asks it to stop; what it did stays done. ERR_NOT_FOUND when another one runs by now. */
	int (*stop)(const struct ask *ask, const char *id, struct maintenance_view *out,
	            struct err *err);
};

struct project_ops {
	int (*list)(const struct ask *ask, struct model_project **out, size_t *n,
	            struct err *err); /* last used first */
	int (*get)(const struct ask *ask, const char *id, struct model_project *out,
	           struct err *err);
	int (*upsert)(const struct ask *ask, const char *team_id, const char *name,
	              struct model_project *out, struct err *err);
	/* Stops nothing: ERR_CONFLICT while a job is active. Takes jobs, undeployed checkpoints,
	 * cache. */
	int (*remove)(const struct ask *ask, const char *id, struct err *err);
};

/* What people type: an exact id, else an exact name, else an id prefix; a project also as
 * TEAM/PROJECT. "@" is the caller's newest job, or its project. *n > 1: the word is ambiguous;
 * these are the candidates, newest first, RESOLVE_MAX at most. No match: ERR_..._NOT_FOUND. */
struct resolve_ops {
	int (*job)(const struct ask *ask, const char *word, struct model_job **out, size_t *n,
	           struct err *err);
	/* Of several jobs of this name the only active one, else the newest if *newest allows
	 * that, which then tells whether it was; *out NULL: neither. *n: how many there are. */
	int (*pick)(const struct ask *ask, const char *name, bool *newest, struct model_job **out,
	            uint64_t *n, struct err *err);
	int (*project)(const struct ask *ask, const char *word, struct model_project **out,
	               size_t *n, struct err *err);
	int (*team)(const struct ask *ask, const char *word, struct model_team **out, size_t *n,
	            struct err *err);
};

/* New jobs. */
struct push_ops {
	/* doc is the training_job object; validated whole, checked against machine, secrets,
	 * project; stored with its first event and log line before it returns. idempotency_key (may
	 * be NULL): the same key and project give the same job. */
	int (*push)(const struct ask *ask, const char *project_id, const struct doc *doc,
	            const char *idempotency_key, struct model_job *out, struct err *err);
	/* The same checks for a project by name, and nothing is stored: *out has no id, and no
	 * project's either when there is none of that name yet. team_id NULL: as for secrets.
	 * forecast: out->reason is what it would wait for. */
	int (*check)(const struct ask *ask, const char *team_id, const char *project,
	             const struct doc *doc, bool forecast, struct model_job *out, struct err *err);
	int (*again)(const struct ask *ask, const char *job_id, bool resume, struct model_job *out,
	             struct err *err);
};

struct job_ops {
	int (*search)(const struct ask *ask, const struct job_query *q, struct model_job **out,
	              size_t *n, uint64_t *total, struct err *err); /* total: of all pages */
	int (*get)(const struct ask *ask, const char *project_id, const char *job_id,
	           struct model_job *out, struct err *err); /* project_id NULL: any */
	int (*stop)(const struct ask *ask, const char *job_id, bool now, struct model_job *out,
	            struct err *err);
	int (*change)(const struct ask *ask, const char *job_id, const struct model_change *c,
	              struct model_job *out, struct err *err);
	int (*remove)(const struct ask *ask, const char *job_id, struct err *err);
	int (*events)(const struct ask *ask, const char *job_id, int64_t after_seq,
	              struct model_event **out, size_t *n, struct err *err);
	int (*attempts)(const struct ask *ask, const char *job_id, struct model_attempt **out,
	                size_t *n, struct err *err);
};

/* Commands in a job's sandbox: of who started them, and of the runner. */
struct exec_ops {
	/* `what` has no id yet. Who started it must come by the next two, and come back when the
	 * connection is cut, or it is hung up: EXEC_AWAY_MS. */
	int (*start)(const struct ask *ask, const char *job_id, uint32_t rank,
	             const struct wire_exec *what, char **exec_id, struct err *err);
	/* job_id NULL: its runner. ERR_CONFLICT: it is over, and why. */
	int (*may_join)(const struct ask *ask, const char *job_id, const char *exec_id,
	                struct err *err);
	/* Takes the connection of who may. */
	void (*join)(struct app *app, const char *exec_id, enum exec_end which, struct upgraded *u);
	/* By the runner: it needs no connection any more. */
	int (*done)(const struct ask *ask, const char *exec_id, struct err *err);
};

/* Rows; files come from the manifest in the object store. */
struct checkpoint_ops {
	int (*list)(const struct ask *ask, const char *job_id, bool all,
	            struct model_checkpoint **out, size_t *n, struct err *err);
	/* A pinned one is not deleted, by nobody; unpin first. */
	int (*pin)(const struct ask *ask, const char *job_id, const char *name, bool pinned,
	           struct err *err);
	/* By hand, of a job that has ended: recorded as marked by the caller. */
	int (*complete)(const struct ask *ask, const char *job_id, const char *name,
	                struct err *err);
	int (*remove)(const struct ask *ask, const char *job_id, const char *name, struct err *err);
};

/* Training caches. scope "project" or "team". ERR_NOT_FOUND when never summarized. */
struct cache_ops {
	int (*snapshot)(const struct ask *ask, const char *scope, const char *id,
	                struct model_cache_snapshot *out, struct err *err);
	int (*summarize)(const struct ask *ask, const char *scope, const char *id,
	                 struct model_cache_snapshot *out, struct err *err);
	int (*remove)(const struct ask *ask, const char *scope, const char *id, struct str path,
	              uint64_t *bytes, struct err *err);
	int (*quota)(const struct ask *ask, const char *project_id, uint64_t bytes,
	             struct err *err);
};

/* Weights. */
struct mirror_ops {
	int (*list)(const struct ask *ask, struct model_mirror **out, size_t *n, struct err *err);
	int (*prefetch)(const struct ask *ask, const char *team_id, const struct spec_weights *w,
	                struct model_mirror *out, struct err *err);
	int (*remove)(const struct ask *ask, const char *id, uint64_t *freed_bytes,
	              struct err *err);
};

struct upload_ops {
	/* Credentials for one new object key, or (out->there) a key that holds the bytes
	 * of this digest already. team_id NULL: as for secrets; sha256 NULL: not known. */
	int (*create)(const struct ask *ask, const char *team_id, const char *sha256,
	              struct model_upload *out, struct err *err);
	/* The same, with a request to the object store itself instead of credentials: it puts the
	 * bytes of the digest `content` there, and no others. ERR_UNSUPPORTED where clients are not
	 * sent there. */
	int (*sign)(const struct ask *ask, const char *team_id, const char *sha256,
	            const char *content, struct model_upload *out, struct objstore_put *put,
	            struct err *err);
	/* The object of an upload was written: verified to be of this digest, NULL: of any. */
	int (*stored)(struct app *app, const char *key, const char *sha256, struct err *err);
	int (*find)(struct app *app, struct arena *a, struct str access_key,
	            struct model_upload *out, struct err *err);
};

/* Bytes of a file of a repository. */
struct hub_bytes {
	enum {
		HUB_NOT_YET,   /* on its way: ask again when hub_bytes_channel() is notified */
		HUB_NO_PLACE,  /* too many streams: the same with hub_places_channel() */
		HUB_FILE,      /* fd, all of it; the caller's to close */
		HUB_STREAM,    /* from, while they arrive; reply_stream() finishes it */
		HUB_ELSEWHERE, /* at the address `location`, signed for a while */
	} how;
	int fd;
	struct reply_source from;
	const char *location;
};

struct hub_branch { /* or a tag */
	const char *name, *commit;
};

struct hub_refs {
	struct hub_branch *branch, *tag, *pull; /* pull: the name is its number */
	size_t n_branches, n_tags, n_pulls;
};

/*
 * Repositories as a Hub serves them: a mirror of another Hub, asked when it is needed. Nobody waits
 * in here: what is not known yet is asked for in the background, and the caller asks again once the
 * channel was notified. `again` says that it does: then an answer that has come meanwhile counts,
 * a refusal too.
 *
 * ERR_HUB_REPO_NOT_FOUND, ERR_HUB_REVISION_NOT_FOUND, ERR_HUB_GATED; ERR_SOURCE_... when the other
 * Hub is away and nothing was kept of what is asked for; ERR_UNSUPPORTED: there is no mirror.
 */
uint64_t hub_channel(const struct hub_name *name); /* rev NULL: of refs */
uint64_t hub_bytes_channel(const struct hub_file *f);
uint64_t hub_places_channel(void);
struct hub_ops {
	/* *moved: it has another id now, owner/name, and that is all; NULL: it has not. *out NULL:
	 * not yet, see hub_channel(). Else it stays until it is closed. */
	int (*open)(const struct ask *ask, const struct hub_name *name, bool again,
	            const struct hub_listing **out, const char **moved, struct err *err);
	void (*close)(struct app *app, const struct hub_listing *l); /* NULL is fine */
	/* `count` bytes of a file from `first` on are to be sent. */
	int (*bytes)(const struct ask *ask, const struct hub_listing *l, const struct hub_file *f,
	             uint64_t first, uint64_t count, bool again, struct hub_bytes *out,
	             struct err *err);
	/* *out NULL: not yet, see hub_channel(); in the arena. */
	int (*refs)(const struct ask *ask, const struct hub_name *name, bool again,
	            const struct hub_refs **out, struct err *err);
};

struct repo_query {
	enum hub_type type;
	bool any_type;              /* then it counts for nothing */
	const char *owner, *search; /* NULL: any; search: a part of owner/name */
};

struct repo_space {
	uint64_t bytes, quota; /* of all repositories of the caller's team */
};

struct repo_page { /* what people want to see of one */
	struct model_repo repo;
	struct hub_refs refs;
	uint64_t files, bytes; /* at main */
	struct model_repo_commit *commit;
	size_t n_commits;
};

struct repo_new_ref {
	bool tag; /* else a branch */
	const char *name;
};

/* A large file that a client is about to send, or sends by an address that we have signed. */
struct repo_upload {
	const char *repo_id;
	struct digest oid;
	uint64_t size;
	bool there;     /* it need not be sent */
	const char *id; /* of one that is sent in parts: where they wait */
};

struct repo_bytes { /* where they come from: *n = 0 at their end */
	int (*read)(void *arg, void *p, size_t cap, size_t *n, struct err *err);
	void *arg;
};

struct repo_xet { /* where a client that speaks Xet sends to */
	const char *repo_id;
	uint64_t epoch; /* what it has sent to another one counts no more */
};

struct repo_change; /* a commit that is being sent */

struct repo_committed {
	const char *commit;
	int64_t pull; /* the pull request that it has opened; 0: none */
	/* of a commit that only adds: files that stayed as they were, and what was sent for them */
	uint64_t files_there, bytes_there;
};

/* What clients call a discussion. */
struct repo_pull {
	struct model_repo repo;
	struct model_repo_pull is;
	struct model_repo_event *event;   /* in the order of time */
	struct model_repo_commit *commit; /* from the first one on */
	struct hub_change *change;        /* its files against those it began from */
	const char **conflict;            /* paths; of one that has not ended */
	size_t n_events, n_commits, n_changes, n_conflicts;
};

struct repo_large_file { /* that was uploaded */
	struct digest oid;
	uint64_t size;
	int64_t ms;
	const char *path, *rev; /* one that it has, NULL: no commit names it; a revision that has
	                           it there, NULL: only an older commit does */
};

struct repo_pull_said {
	enum model_repo_event_kind kind;
	const char *text;
	const char *comment; /* with a status; NULL: none */
};

struct repo_pull_ask {
	const char *author;     /* NULL: any */
	bool no_open, no_ended; /* open are drafts, too */
	size_t skip, most;
};

/*
 * Repositories that people write to. Who may not see one hears ERR_HUB_REPO_NOT_FOUND, who may not
 * write to it ERR_ROLE_REQUIRED. Names are checked by the caller (hub_id_ok, hub_rev_ok).
 */
struct repo_ops {
	/* owner NULL: the caller's own namespace. ERR_HUB_REPO_EXISTS: *out is what there is. */
	int (*create)(const struct ask *ask, enum hub_type type, const char *owner,
	              const char *name, bool is_private, struct model_repo *out, struct err *err);
	/* The same of one that has the commits, branches and tags of another one. is_private NULL:
	 * as that is. */
	int (*copy)(const struct ask *ask, const struct hub_name *from, const char *owner,
	            const char *name, const bool *is_private, struct model_repo *out,
	            struct err *err);
	int (*remove)(const struct ask *ask, enum hub_type type, const char *id, struct err *err);
	int (*set_private)(const struct ask *ask, enum hub_type type, const char *id,
	                   bool is_private, struct err *err);
	int (*move)(const struct ask *ask, enum hub_type type, const char *from, const char *owner,
	            const char *name, struct err *err);
	/* Those that the caller may read, the last changed first. */
	int (*list)(const struct ask *ask, const struct repo_query *q, struct model_repo **out,
	            size_t *n, struct err *err);
	int (*space)(const struct ask *ask, struct repo_space *out, struct err *err);
	/* With so many of its newest commits. */
	int (*page)(const struct ask *ask, const struct hub_name *at, size_t commits,
	            struct repo_page *out, struct err *err);
	/* At the revision that `at` names. ERR_HUB_REF_EXISTS. */
	int (*add_ref)(const struct ask *ask, const struct hub_name *at,
	               const struct repo_new_ref *want, struct err *err);
	int (*remove_ref)(const struct ask *ask, const struct hub_name *at, bool tag,
	                  struct err *err);
	/* A revision's commit and those before it; *total (may be NULL): how many all are.
	 * ERR_HUB_REPO_NOT_FOUND, too, for what is mirrored. */
	int (*commits)(const struct ask *ask, const struct hub_name *at, size_t skip, size_t most,
	               struct model_repo_commit **out, size_t *n, bool *more, uint64_t *total,
	               struct err *err);
	/* Its listing, to be closed by hub_ops.close. `opens`: for a commit that opens a pull
	 * request. */
	int (*open_to_write)(const struct ask *ask, const struct hub_name *at, bool opens,
	                     const struct hub_listing **out, struct err *err);
	/* Are the bytes of a file of such a listing in the store? A disk may have lost them, and
	 * then a client may bring them again. */
	bool (*has)(struct app *app, const struct hub_listing *l, const struct hub_file *f);
	/* The content of a small file of such a listing. */
	int (*read_file)(struct app *app, const struct hub_listing *l, const struct hub_file *f,
	                 struct buf *out, struct err *err);
	/* A commit to the branch that `at` names: what its sink takes, applied in order to what the
	 * branch is in the end. ERR_HUB_STALE; ERR_HUB_PULL_ENDED; ERR_REPO_QUOTA_EXCEEDED.
	 * `opens`: the branch stays, and a pull request has the commit. */
	int (*commit_begin)(const struct ask *ask, const struct hub_name *at, bool opens,
	                    int64_t body_bytes, struct repo_change **out, struct err *err);
	struct hub_commit_sink (*commit_sink)(struct repo_change *c);
	int (*commit_end)(struct repo_change *c, struct repo_committed *out, struct err *err);
	void (*commit_free)(struct repo_change *c); /* NULL is fine */
	/* The branch's history becomes one commit. What no branch, tag or pull request reaches any
	 * more is gone. */
	int (*squash)(const struct ask *ask, const struct hub_name *at, const char *message,
	              struct err *err);
	/* Large files of the repository. To delete some, all commits that name them are written
	 * anew without them (`rewrite`), else it is ERR_HUB_FILE_IN_USE that one does. */
	int (*large_files)(const struct ask *ask, const struct hub_name *at, size_t skip,
	                   size_t most, struct repo_large_file **out, size_t *n, bool *more,
	                   struct err *err);
	int (*large_delete)(const struct ask *ask, const struct hub_name *at,
	                    const struct digest *oid, size_t n, bool rewrite, struct err *err);
	/* Pull requests; those who may write to the repository may change them. ERR_NOT_FOUND: the
	 * repository is another Hub's. */
	int (*pull_open)(const struct ask *ask, const struct hub_name *at, const char *title,
	                 const char *text, int64_t *num, struct err *err);
	int (*pull_list)(const struct ask *ask, const struct hub_name *at,
	                 const struct repo_pull_ask *want, struct model_repo *repo,
	                 struct model_repo_pull **out, size_t *n, size_t *total, struct err *err);
	int (*pull_read)(const struct ask *ask, const struct hub_name *at, int64_t num,
	                 struct repo_pull *out, struct err *err);
	/* *out is what was noted. ERR_HUB_PULL_ENDED: it is merged, and stays so. */
	int (*pull_say)(const struct ask *ask, const struct hub_name *at, int64_t num,
	                const struct repo_pull_said *said, struct model_repo_event *out,
	                struct err *err);
	/* ERR_HUB_MERGE_CONFLICT, ERR_HUB_PULL_ENDED. comment: NULL is none. */
	int (*pull_merge)(const struct ask *ask, const struct hub_name *at, int64_t num,
	                  const char *comment, struct err *err);
	/* Fills repo_id, there, id. */
	int (*upload_want)(const struct ask *ask, const struct hub_name *at, struct repo_upload *u,
	                   size_t n, struct err *err);
	/* May large files of these sizes be uploaded? ERR_REPO_QUOTA_EXCEEDED: surely not, whatever
	 * is in them. Those of a size that an uploaded file has may be that one. Sorts `size`. */
	int (*upload_fits)(const struct ask *ask, const struct hub_name *at, uint64_t *size,
	                   size_t n, struct err *err);
	/* These are right whoever sends the bytes: an address that we have signed brought them. */
	int (*upload_put)(struct app *app, const struct repo_upload *u,
	                  const struct repo_bytes *from, struct err *err);
	int (*upload_part)(struct app *app, const struct repo_upload *u, uint64_t at, uint64_t n,
	                   const struct repo_bytes *from, struct err *err);
	int (*upload_join)(struct app *app, const struct repo_upload *u, struct err *err);
	/* May the caller write to it? */
	int (*to_write)(const struct ask *ask, enum hub_type type, const char *id,
	                struct model_repo *out, struct err *err);
	/* What a client has sent to an address of another epoch it sends again. */
	int64_t (*xet_epoch)(const struct app *app, int64_t now_s);
	/* A xorb; *fresh: it was not there. Then the shard that makes files of them: with it each
	 * of its files is an upload. *no_place: nothing was done, others are being worked on; ask
	 * again when hub_places_channel() says so. The caller has seen to the right. */
	int (*xorb_put)(struct app *app, const struct repo_xet *x, const struct xet_hash *hash,
	                int64_t body_bytes, const struct repo_bytes *from, bool *fresh,
	                struct err *err);
	int (*shard_put)(struct app *app, const struct repo_xet *x, struct str body, bool *no_place,
	                 struct err *err);
};

struct artifact_found {
	uint64_t bytes;
	char sha256[HASH_HEX_CAP];
	int64_t created_ms;
	struct str body; /* all of it, in the arena, */
	int fd;          /* or where it is; -1 */
};

struct artifact_query {
	const char *namespace_;  /* NULL: the caller's team */
	const char *by, *job_id; /* who stored them; NULL: anybody */
	size_t limit;
	int64_t after_ms, after_seq; /* the last one of the page before; 0: there is none */
};

/*
 * What compilers and build tools keep under keys of their own. A namespace is the name of a team,
 * or that of the caller's token; who may not see it hears ERR_ARTIFACT_NOT_FOUND, who may not write
 * there ERR_ROLE_REQUIRED.
 */
struct artifact_ops {
	int (*may)(const struct ask *ask, const char *namespace_, bool write, struct err *err);
	/* `bytes`: with its content, verified; what is damaged is not found. Else body and fd stay
	 * empty. */
	int (*get)(const struct ask *ask, const char *namespace_, const struct artifact_name *name,
	           bool bytes, struct artifact_found *out, struct err *err);
	/* *fresh: there was none. */
	int (*put)(const struct ask *ask, const char *namespace_, const struct artifact_name *name,
	           uint64_t size, const struct repo_bytes *from, bool *fresh, struct err *err);
	int (*remove)(const struct ask *ask, const char *namespace_,
	              const struct artifact_name *name, struct err *err);
	/* The last stored first. */
	int (*list)(const struct ask *ask, const struct artifact_query *q,
	            struct model_artifact **out, size_t *n, struct err *err);
};

/* The caller names attempt and node. */
struct runner_ops {
	/* Before the claim. Of another WIRE_VERSION: its job ends, and says why. */
	int (*speaks)(const struct ask *ask, int64_t version, struct err *err);
	int (*claim)(const struct ask *ask, const char *nonce, struct wire_launch *out,
	             struct err *err);
	int (*heartbeat)(const struct ask *ask, const struct wire_heartbeat *hb, struct err *err);
	int (*desired)(const struct ask *ask, struct wire_desired *out, struct err *err);
	/* *out: what stays with the job, which another node may have said before */
	int (*image)(const struct ask *ask, const struct wire_image *said, struct wire_image *out,
	             struct err *err);
	int (*ready)(const struct ask *ask, struct err *err);
	int (*event)(const struct ask *ask, const char *kind, const char *message, struct err *err);
	int (*checkpoint)(const struct ask *ask, const struct model_checkpoint *row,
	                  struct err *err);
	int (*exit)(const struct ask *ask, const struct wire_exit *x,
	            struct err *err); /* twice is fine */
	/* The job of the runner's attempt, for its log. */
	int (*job)(const struct ask *ask, struct model_job *out, struct err *err);
};

/* What runners may do in the object store. */
struct object_ops {
	/* Each of n on its own: out[i].err says why that one is not signed. */
	int (*sign)(const struct ask *ask, const struct wire_sign *said, size_t n,
	            struct sign_answer *out, struct err *err);
};

/* A job that runs an HTTP server (runtime.serve). */
struct serving_target {
	const char *attempt_id;
	const char *key; /* what a request to it comes with */
	uint32_t port;   /* of 127.0.0.1 */
	bool waits;      /* there is none yet, but one comes: CHANNEL_SERVING tells of it */
};

struct serving_row {
	const char *name, *job_id, *team_name;
	bool deployed; /* the job is one of a deployment */
	bool serves;   /* it can take requests */
	unsigned in_flight;
	uint64_t requests, failures; /* since this server knows it */
};

struct serving_ops {
	/* The one of this name with the fewest requests on their way: it has one more, until it is
	 * given back. ERR_NOT_FOUND; ERR_UNAVAILABLE: none can take any; ERR_CONFLICT: the name is
	 * not clear. */
	int (*take)(const struct ask *ask, const char *name, struct serving_target *out,
	            struct err *err);
	void (*give)(struct app *app, const char *attempt_id, bool failed); /* any thread */
	int (*list)(const struct ask *ask, struct serving_row **out, size_t *n, struct err *err);
};

/* Jobs that serve under one name; see core/deployment.h. */
struct deployment_view {
	struct model_deployment d; /* id NULL: no deployment, but a job with runtime.serve */
	enum deployment_state state;
	uint32_t ready;
	unsigned in_flight;          /* of the jobs below */
	uint64_t requests, failures; /* of all that it has had since this server started */
	const char *job_id;          /* the newest of them; NULL: there is none */
	const char *reason;          /* NULL: nothing to say */
	struct model_replica *jobs;  /* that are not over, newest first */
	size_t n_jobs;
};

struct deployment_want {
	const char *name, *checkpoint, *project_id;
	const char *document_json; /* a training_job object */
	int64_t replicas, idle_s;  /* -1: as it was, else 1 and never */
	bool replaces;
};

struct deployment_ops {
	/* Makes it, or its next revision. Its first job is pushed: fails as that does. */
	int (*deploy)(const struct ask *ask, const struct deployment_want *want,
	              struct deployment_view *out, struct err *err);
	/* With the jobs that serve without one. */
	int (*list)(const struct ask *ask, struct deployment_view **out, size_t *n,
	            struct err *err);
	/* By name. ERR_DEPLOYMENT_NOT_FOUND; ERR_CONFLICT: several teams have it. */
	int (*get)(const struct ask *ask, const char *name, struct deployment_view *out,
	           struct err *err);
	int (*want)(const struct ask *ask, const char *name, enum deployment_wanted wanted,
	            struct deployment_view *out, struct err *err);
	/* -1: as it is */
	int (*scale)(const struct ask *ask, const char *name, int64_t replicas, int64_t idle_s,
	             struct deployment_view *out, struct err *err);
	int (*remove)(const struct ask *ask, const char *name, struct err *err);
};

/* Web identity, see server/api/identity.h: what everybody may know. */
struct identity_ops {
	const char *(*issuer)(struct app *app, struct arena *a); /* without '/' at its end */
	int (*key)(struct app *app, struct arena *a, struct jwt_public *out, struct err *err);
};

struct face_ops {
	const struct team_ops *teams;
	const struct token_ops *tokens;
	const struct secret_ops *secrets;
	const struct capacity_ops *capacity;
	const struct server_ops *server;
	const struct maintenance_ops *maintenance;
	const struct project_ops *projects;
	const struct resolve_ops *resolve;
	const struct push_ops *pushes;
	const struct job_ops *jobs;
	const struct exec_ops *execs;
	const struct checkpoint_ops *checkpoints;
	const struct cache_ops *caches;
	const struct mirror_ops *mirrors;
	const struct upload_ops *uploads;
	const struct runner_ops *runners;
	const struct object_ops *objects;
	const struct hub_ops *hub;
	const struct repo_ops *repos;
	const struct identity_ops *identity;
	const struct artifact_ops *artifacts;
	const struct serving_ops *serving;
	const struct deployment_ops *deployments;
};

struct face_ctx {
	unsigned magic;
#define FACE_CTX_MAGIC 0x57a1c0deU
	const struct face_ops *ops;
	struct app *app;                             /* passed back to every operation */
	const char *url_access_key, *url_secret_key; /* sign our download URLs; never handed out */
	struct objstore *objects;
	struct blobs *blobs;
	struct joblogs *logs;
	struct relay *relay;        /* to servers that jobs run */
	uint64_t hub_regular_bytes; /* files up to this size come inside of commits */
	const char *bucket;         /* the one bucket of the S3 face: "stoker" */
	const char *base_url; /* of the server, no trailing slash; clients are told face_url() */
	bool base_url_is_set; /* by the administrator: it wins over what clients used */
	bool tls;             /* this server speaks TLS itself */
	const struct url_net *proxies; /* whose X-Forwarded-* headers are believed */
	size_t n_proxies;
};

static inline const struct face_ctx *face_ctx(const struct request *rq)
{
	return FROM_VOID(struct face_ctx, rq->ctx, FACE_CTX_MAGIC);
}

/* Who sent it: a team has its share of the threads, and each of its tokens one of that. */
static inline void face_caller(struct request *rq, struct principal *w)
{
	rq->principal = w;
	rq->owner = w->team_id != NULL ? w->team_id : "all teams";
	rq->sender = w->token_id;
}

static inline const struct principal *face_principal(const struct request *rq)
{
	return FROM_VOID(struct principal, rq->principal, PRINCIPAL_MAGIC);
}

/* Of the request's caller; in its arena. */
static inline const struct ask *face_ask(const struct request *rq)
{
	struct ask *ask = ARENA_NEW(rq->arena, struct ask);

	*ask = (struct ask){face_ctx(rq)->app, face_principal(rq), rq->arena};
	return ask;
}

/* address.c. What this client is told to come back to, no trailing slash: the address that it used,
 * as Host or a trusted proxy says, unless the administrator has set one. In the request's arena. */
const char *face_url(const struct request *rq);
/* The host that the client used, which is the one that it signed. */
struct str face_host(const struct request *rq);

/* Channels for reply_wait: what changed. */
#define CHANNEL_JOB "job"         /* + job id: state, progress, log */
#define CHANNEL_SERVING "serving" /* + name: a job serves under it, or will not */
#define CHANNEL_DESIRED "orders"  /* + attempt id: go, stop, exec */

extern const struct face
	face_training; /* projects, jobs, logs, metrics, checkpoints, weights, cache */
extern const struct face face_admin;       /* teams, tokens, secrets, capacity, status */
extern const struct face face_graphql;     /* the documents that the stock client sends */
extern const struct face face_runner;      /* what runners speak */
extern const struct face face_s3;          /* S3 subset */
extern const struct face face_hub;         /* what clients of a Hub read */
extern const struct face face_artifact;    /* ccache, Bazel, WebDAV */
extern const struct face face_artifact_s3; /* the same artifacts by S3 */
extern const struct face face_serving;     /* the servers that jobs run */
extern const struct face face_identity;    /* /.well-known */
extern const struct face face_meta;        /* /healthz, /openapi.json, /metrics */

/* The OpenAPI 3.1 document of these faces, printed from their route tables. */
void face_openapi(const struct face *const *faces, size_t n, struct buf *out);

#endif
