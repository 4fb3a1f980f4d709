/*
 * wire.h - what the runner and the server say to each other, and the files of an attempt's folder:
 * structs and their JSON, written and read by the same code on both sides.
 *
 * All strings of a parsed message live in its arena. Secrets travel only in wire_launch, over
 * loopback or TLS, and are never written to a file (but a registry's, by the runner, 0600, as long
 * as podman pulls).
 */
#ifndef WIRE_H
#define WIRE_H

#include "core/ckpt.h"
#include "core/job.h"

/* Exit code of `stoker runner --sweep DIR`: not all has arrived yet, ask again. */
#define WIRE_SWEEP_AGAIN 75
/* ... all is swept, but the server refused the record of the runner's end: why is the last line of
 * the output. It may be asked again. */
#define WIRE_SWEEP_REFUSED 76
/* A word after DIR: the attempt is over, and its log and its end are no news; or: what fails is
 * given up, and the end of the attempt is told all the same; or: the runner ended by itself and has
 * told all, but gave up root before, and cannot give back what it had taken as root. */
#define WIRE_SWEEP_PAST "past"
#define WIRE_SWEEP_LAST "last"
#define WIRE_SWEEP_TOLD "told"

/* What both say by the rest of this file. It is raised when a runner that knows only the last one
 * could not run what a claim is answered with; fields that may be absent do not raise it. */
#define WIRE_VERSION 3

#define WIRE_LOCK_FD 3
/* <attempt folder>/launch.json, mode 0600: all that a runner gets when it is started. */
struct wire_start {
	const char *server;  /* base URL */
	const char *ca_file; /* NULL: the system's */
	const char
		*socket; /* of the server on this machine, used in place of the URL; NULL: none */
	bool inherits_lock; /* WIRE_LOCK_FD says that a runner lives, by being open */
	const char *token;  /* of this attempt and node */
	const char *attempt_id;
	uint32_t node_rank;
	const char **others; /* base URLs of servers that may lead one day, in order */
	size_t n_others;
	/* Runners give up root, so a sweep does, with a range of this pool; NULL: it does not. */
	const char *ids_pool;
};

struct wire_env {
	const char *name, *value;
	bool secret; /* redacted, and given to nothing but the user's process */
};

struct wire_weights {
	const char *source, *revision, *mount_location, *manifest; /* manifest: 64 hex */
	uint64_t bytes, files;
	bool hub; /* mount_location is a cache of huggingface_hub: run/hub_cache.h */
};

/* The caches of compilers: see core/compile_cache.h, server/control/compile.h. */
struct wire_compile {
	const char *repo;     /* OWNER/NAME */
	const char *device;   /* what the job runs on */
	bool push;            /* what is new may be added */
	const char *commit;   /* what it is filled from: the same on all nodes; NULL: nothing */
	const char *manifest; /* KIND/PATH of all files that are of use here, 64 hex; NULL: none */
	uint64_t bytes, files;
	const char *gpu, *cpu; /* for people; gpu NULL: none */
};

#define WIRE_NO_PART "-" /* of several nodes, and their manifest does not name this part */
struct wire_load {
	const char *name, *job_id, *prefix; /* object prefix of that job's checkpoints */
	uint32_t rank_from;                 /* the rank whose files these are */
	const char *files_sha256; /* ckpt_digest of them; NULL = of one node; WIRE_NO_PART */
	const char *dir;          /* below the download folder: "rank-0" */
	bool resume;              /* the job goes on from this one: STOKER_RESUME_FROM */
};

struct wire_code {
	const char *key; /* object key of the archive */
	uint64_t bytes;
	const char *sha256; /* NULL: it came in parts, or an older server has stored it */
};

struct wire_gpu {
	uint32_t index;
	const char *uuid; /* "GPU-..." or a declared one, "declared-0" */
};

/* Whose ids jobs of a root runner have, as a probe finds it and a launch says it: see run/ids.h. */
#define WIRE_IDS_NONE "none"
#define WIRE_IDS_IDMAP "idmap"
#define WIRE_IDS_TEAM "team"
#define WIRE_IDS_OWN "own" /* as WIRE_IDS_IDMAP, and so have runners: run/confine.h */

/* The answer to a claim. */
#define WIRE_REFERENCE_MAX 1000
struct wire_image {
	const char *id;        /* of its configuration, 64 hex */
	const char *reference; /* REPOSITORY@sha256:DIGEST; NULL: it came from no registry */
};

/* Also parts of what the server keeps of a job, see server/control/resolved.h. */
struct record;
extern const struct record wire_weights_record, wire_code_record, wire_image_record,
	wire_compile_record;

struct wire_launch {
	const char *attempt_id, *job_id, *job_name, *project_id, *project_name, *team_id;
	uint32_t node_rank, node_count, retry_count;
	const char *leader_addr;
	const char *spec_json; /* as stored: the runner reads it with spec_read_stored */
	struct wire_code *code;
	size_t n_code;
	struct wire_weights *weights;
	size_t n_weights;
	struct wire_load *load;
	size_t n_load;
	struct wire_env *env; /* the user's, secrets resolved; in order */
	size_t n_env;
	const char *registry_secret, *registry_secret2; /* values of the spec's; NULL: none */
	const char *hub_url, *hub_token; /* HF_ENDPOINT and HF_TOKEN; NULL: the job has its own */
	bool has_compile;
	struct wire_compile compile;
	const char *hub_ca;    /* PEM, to trust hub_url by; NULL: it needs none */
	const char *serve_key; /* what requests to the job's server come with; NULL: it has none */
	struct wire_gpu *gpus;
	size_t n_gpus;
	bool has_image; /* it was resolved by an earlier attempt, or the job that this one repeats
	                 */
	struct wire_image image;
	/* What the machine itself has of the mirror, to be linked ("passed:SOCKET", see
	 * objstore.h); NULL: all of it comes from the object store. */
	const char *mirror;
	const char *node_dir; /* node cache: trees and leases */
	uint64_t node_budget_bytes;
	/* "signed:", then the server signs each request; "passed:SOCKET", then it opens each file
	 */
	const char *objstore;
	const char *cache_project_dir, *cache_team_dir; /* NULL: no cache */
	uint64_t cache_quota_bytes;
	uint64_t scratch_bytes, scratch_files; /* limits of what a job writes; 0 = none */
	const char *ckpt_prefix; /* NULL: no checkpointing; training_projects/<p>/jobs/<j> */
	const char *images;      /* "auto", "podman", "host" */
	const char *sandbox;     /* the kind that was chosen at start, see sandbox_kinds */
	const char *ids_mode;    /* WIRE_IDS_...; NULL: the runner's own */
	const char *ids_pool;    /* "FIRST-LAST", NULL: the default */
	const char *ids_dir;     /* which range a team has, where mounts cannot translate */
	const char **share;      /* host folders shown read-only at their own place */
	size_t n_share;
	const char **hide; /* host paths that must not be seen: data folder, ... */
	size_t n_hide;
};

/* A request to the object store that a runner wants signed, and the answer: see objstore.h. */
struct wire_sign {
	const char *method, *key;
	const char *query;     /* encoded; NULL: none */
	const char *copy_from; /* NULL: it copies nothing */
};
struct wire_signed {
	const char *url;
	const char *copy_source; /* value of the header x-amz-copy-source; NULL: none */
	const char *no_copy;     /* of x-amz-copy-source-if-match; NULL: none */
	/* in an answer to several, of one that is refused: url is NULL then */
	int status; /* HTTP's; 0: it is signed */
	const char *error, *message;
};
/* Several at once, and their answers in the same order. */
#define WIRE_SIGN_MAX 32
struct wire_sign_all {
	const struct wire_sign *request;
	size_t n_request;
};
struct wire_signed_all {
	const struct wire_signed *answer;
	size_t n_answer;
};

/* What a process of this machine asks of the server's folders, and the answer: see
 * store/objects/passing.h. Descriptors travel beside them. */
struct wire_pass {
	const char *token, *verb, *key;
	const char *to; /* copy: the new key; link: the new name, in the folder that comes along */
	const char *etag; /* commit: what the object is known by; "" = nothing */
};
struct wire_passed {
	int status; /* HTTP's; 0: done */
	const char *error, *message;
	uint64_t size;
	int64_t modified_ms;
	const char *etag;
};

/* What a runner that gave up root says to the keeper of the node cache, and hears from it: see
 * run/node.h. One struct, for it is one talk; each verb uses what it needs. */
struct wire_node {
	const char *verb, *key; /* 64 hex */
	const char *text;       /* a path, or words; of an error: its message */
	const char *error;      /* err_id() of it; NULL: none */
	uint64_t done, total;
	uint64_t bytes, files, fetched;
	bool hit;
};

/* What a runner and the keeper of its image say to each other, see run/image_keeper.h. */
struct wire_kept_image {
	const char *verb;
	const char *id, *reference;                 /* see wire_image */
	const char *workdir, *path, *env, *unasked; /* see struct image_got */
	const char *text, *error; /* words, of an error its message; err_id() of it */
};

/* Stages of a runner, in order; shown to people. */
enum wire_stage {
	STAGE_CLAIM,
	STAGE_CODE,
	STAGE_PYTHON,
	STAGE_WEIGHTS,
	STAGE_CHECKPOINTS,
	STAGE_SANDBOX,
	STAGE_READY,
	STAGE_RUNNING,
	STAGE_SYNC,
	STAGE_DONE,
	STAGE_COUNT
};
const char *wire_stage_word(enum wire_stage s);
/* The error that a peer's answer tells: `status` as of HTTP, `id` (may be NULL) as err_id() gave it
 * there. Always -1. */
int wire_told_error(int status, const char *id, const char *message, struct err *err);
/* May a runner at `from` go on with `to`? One whose attempt has failed goes to STAGE_DONE. */
bool wire_stage_follows(enum wire_stage from, enum wire_stage to);

struct wire_sample { /* one moment of a node */
	int64_t wall_ms;
	double cpu_cores;
	uint64_t memory_bytes, memory_limit;
	uint64_t scratch_bytes, scratch_total; /* what the job wrote; that and what is free */
	uint64_t cache_bytes, cache_quota;     /* 0, 0 = no cache */
	uint64_t ckpt_bytes;
	struct wire_gpu_sample {
		uint32_t index;
		double utilization; /* 0..1 */
		uint64_t memory_bytes;
	} gpu[16];
	size_t n_gpus;
};

struct wire_heartbeat {
	uint64_t seq;
	enum wire_stage stage;
	const char *note; /* progress in words, NULL = none: "weights 1.1/1.5 GB, 412 MB/s" */
	uint64_t done_bytes, total_bytes; /* of the stage */
	double rate_bytes_s;
	bool idle; /* limits.idle_gpu is over on this node; absent in what older runners say */
	uint32_t serve_port; /* of the job's server, on loopback; 0: it has none */
	bool serves;         /* and it can take requests */
	bool has_sample;
	struct wire_sample sample;
};

/* The desired state: the answer to a heartbeat, and to the long poll for commands. */
struct wire_desired {
	bool go;      /* all runners of the gang are ready: start user code */
	bool stop;    /* SIGTERM, grace, then the whole tree */
	bool now;     /* ... without grace */
	bool idle;    /* limits.idle_gpu is over on all nodes: stop, and say why */
	uint64_t seq; /* of the command channel: pass it back */
	struct wire_exec {
		const char *id;
		const char **argv;
		size_t n_argv; /* 0 = a shell, with input */
		bool input;    /* its stdin is sent after it; else it is empty */
		bool tty;      /* it runs on a terminal of this size */
		uint32_t rows, columns;
		const char *term; /* TERM there, NULL = as the job has it */
	} * exec;                 /* commands to run inside the sandbox */
	size_t n_exec;
};

/* All of it in `a`. */
void wire_exec_copy(struct wire_exec *to, struct arena *a, const struct wire_exec *from);
/* What both connections of such a command are switched to: io/resumable.h says how it is spoken. */
#define EXEC_PROTOCOL "stoker-exec"

/* The answer to a piece of the log. */
struct wire_logged {
	uint64_t next;       /* the number of bytes that are there: go on from it */
	const char *message; /* why not from what was sent; NULL: it was taken */
};

struct wire_event {
	const char *kind, *message;
};

/* The state of a checkpoint, as far as its runner knows it. */
struct model_checkpoint;
void wire_checkpoint_write(const struct model_checkpoint *from, struct buf *out);
int wire_checkpoint_parse(struct model_checkpoint *to, struct arena *a, struct str json,
                          struct err *err) MUST_CHECK;

/* <attempt folder>/runner.json, and what the engine finds a runner by. */
struct wire_process {
	int pid;
	uint64_t start;
	const char *boot;
	const char *program; /* NULL: not known */
};

/* <attempt folder>/ship.json: all that shipping needs, and no secret. */
struct wire_ship {
	const char *objstore, *prefix, *job_id;
	uint32_t rank, nodes; /* nodes: 0 = not said */
	uint32_t settle_s;
	const char *marker; /* NULL: none */
	uint64_t volume_bytes;
};

/* <attempt folder>/exit.json, written before it is sent. */
struct wire_exit {
	enum job_end end;
	int code;
	const char *detail;   /* words: "start_commands[1] \"python train.py\" ..." */
	const char *stage;    /* of a DEPLOY_FAILED */
	const char *error_id; /* of `detail`, when it is an error of ours; else NULL */
	bool user_code_ran;
	bool synced;                  /* every checkpoint byte is verified in the store */
	bool served;                  /* the job's server took requests, at some time */
	int64_t started_ms, ended_ms; /* of user code, 0 = it never ran */
	uint64_t peak_memory_bytes;
};

/* wire_start_write and wire_start_parse, and so on. */
#define WIRE_MESSAGES(X)                                                                           \
	X(start)                                                                                   \
	X(launch)                                                                                  \
	X(image)                                                                                   \
	X(sign)                                                                                    \
	X(signed)                                                                                  \
	X(sign_all)                                                                                \
	X(signed_all)                                                                              \
	X(pass)                                                                                    \
	X(passed)                                                                                  \
	X(node)                                                                                    \
	X(kept_image)                                                                              \
	X(heartbeat)                                                                               \
	X(desired)                                                                                 \
	X(logged)                                                                                  \
	X(event)                                                                                   \
	X(process)                                                                                 \
	X(ship)                                                                                    \
	X(exit)
#define WIRE_DECLARE(m)                                                                            \
	void wire_##m##_write(const struct wire_##m *from, struct buf *out);                       \
	int wire_##m##_parse(struct wire_##m *to, struct arena *a, struct str json,                \
	                     struct err *err) MUST_CHECK;
WIRE_MESSAGES(WIRE_DECLARE)

void wire_sample_write(const struct wire_sample *m, struct js *js);
int wire_sample_parse(struct wire_sample *m, const struct doc *d, struct err *err) MUST_CHECK;

#endif
