/*
 * spec.h - a job's specification: read from a doc tree (YAML file or JSON body), validated whole,
 * every mistake with its place and path. Field names are those of truss; the fields that are ours
 * alone are marked. One table of fields a block; help and docs are printed from it.
 */
#ifndef SPEC_H
#define SPEC_H

#include "base/json.h"

#define SPEC_PROBLEMS_MAX 100
#define SPEC_COMMANDS_MAX 256
#define SPEC_ENV_MAX 1000
#define SPEC_WEIGHTS_MAX 64
#define SPEC_PATTERNS_MAX 256
#define SPEC_NODES_MAX 1024
#define SPEC_NOTIFY_MAX 8
#define SPEC_REQUIREMENTS_MAX 2000
#define SPEC_REQUIREMENT_MAX 4000 /* bytes of one */
#define SPEC_NAME_MAX 200
#define SPEC_PYTHON_PLACE "/opt/stoker/python" /* where a job finds its environment */
#define SPEC_HUB_PLACE "/opt/stoker/hub"       /* of weights with the layout hub, by default */
#define SPEC_HUB_PUSH_MAX 64
#define SPEC_COMPILE_PLACE "/opt/stoker/compile" /* where compilers keep their work */
#define SPEC_SERVE_NAME_MAX 63
#define SPEC_COMPILE_REPO "compile-cache" /* of a team, where the file names none */
/* The rule for names, for messages; see spec_name_ok(). */
#define SPEC_NAME_RULE "one line of 1 to 200 bytes, no control characters, no blanks at either end"

struct spec_env {
	const char *name;
	const char *value;  /* NULL when it is a secret */
	const char *secret; /* the secret's name, or NULL */
};

/* What is shown to a source. */
enum spec_weights_auth {
	SPEC_WEIGHTS_SECRET,      /* the secret, if there is one */
	SPEC_WEIGHTS_ASSUME_ROLE, /* keys of a role, had for those in the secret */
	SPEC_WEIGHTS_AWS_OIDC,    /* keys of a role, had for a token of this server */
	SPEC_WEIGHTS_GCP_OIDC,    /* a token of a service account, had for one of this server */
	SPEC_WEIGHTS_AUTHS
};

struct spec_weights {
	const char *source;   /* hf://owner/repo@rev, s3://bucket/path, https://..., file:///... */
	const char *endpoint; /* ours: URL of the store or Hub, NULL = the server's setting */
	const char *mount_location; /* absolute, unique, not below /proc /sys /dev /etc /run */
	bool hub;                   /* ours: layout hub: the place is a cache of huggingface_hub */
	const char *secret;         /* auth_secret_name of either place, or NULL */
	enum spec_weights_auth auth;
	/* As whom it is read: the ARN of a role, in whose region (NULL: that of the keys) it is
	 * assumed; or the address of a service account, and the workload identity provider that is
	 * shown who we are. NULL: as the secret's owner. */
	const char *role, *role_at;
	const char **allow, **ignore;
	size_t n_allow, n_ignore;
};

struct spec_load {
	bool latest;         /* else named */
	const char *project; /* name, or NULL = this project (or what job says) */
	const char *job;     /* id, or NULL */
	const char *name;    /* checkpoint name, when named */
};

struct spec_artifact {
	const char *bucket, *key;
};

enum spec_registry_auth {
	SPEC_AUTH_NONE,
	SPEC_AUTH_REGISTRY_SECRET,
	SPEC_AUTH_AWS_IAM,
	SPEC_AUTH_GCP_JSON
};
#define SPEC_AUTH_COUNT (SPEC_AUTH_GCP_JSON + 1)

struct spec_retry {
	bool wanted;     /* one of these: */
	bool on_lost;    /* node_fail */
	bool on_failure; /* any bad end of the job's own commands */
	int exit_codes[16];
	size_t n_exit_codes;
	uint32_t max_attempts; /* 1 = never again */
};

struct spec_notify {
	const char *webhook; /* name of the secret that holds its URL */
	uint32_t on;         /* bit set of enum notify_on */
};

struct job_spec {
	const char *project, *team; /* of the file form; NULL in the API form */
	const char *name;           /* NULL: the server makes job-N */
	const char *base_image;     /* NULL: the host's root (ours; truss always names one) */
	enum spec_registry_auth registry_auth;
	const char *registry, *registry_secret, *registry_secret2;
	uint32_t node_count;
	double cpu_count;
	uint64_t memory_bytes; /* per node */
	const char *gpu_type;  /* NULL: none */
	uint32_t gpu_count;    /* per node */
	bool spot;
	int64_t priority;
	const char **commands;
	size_t n_commands;
	struct spec_env *env;
	size_t n_env;
	struct {
		bool enabled, legacy_hf_mount, require_affinity;
		const char *base_path;
	} cache;
	struct {
		bool enabled;
		const char *path;      /* /mnt/ckpts unless set */
		uint64_t volume_bytes; /* 0 = not limited but by the disk */
		uint32_t keep_last;    /* ours: synced checkpoints kept in the store, 0 = all */
		uint32_t settle_s;     /* ours; 0 = as core/ckpt_rule.h says */
		const char *marker;    /* ours: the last file of a checkpoint; NULL */
	} ckpt;
	struct {
		bool enabled;
		struct spec_load *refs;
		size_t n_refs;
		const char *folder;
		bool required; /* ours: without a checkpoint the job does not start */
	} load;
	struct { /* ours */
		bool wanted, system_site;
		const char *file; /* below the job's folder; NULL: the lines */
		const char **line;
		size_t n_lines;
		const char *version; /* "3.11"; NULL: the machine's python3 */
	} python;
	struct { /* ours */
		bool enabled;
		const char *repo; /* of models; hub_typed_id(). NULL: the team's "compile-cache" */
	} compile;
	struct {                    /* ours */
		const char *name;   /* NULL: the job serves nothing */
		const char *health; /* path */
	} serve;
	const char **hub_push; /* ours: repositories that it may push to, hub_typed_id() */
	size_t n_hub_push;
	struct spec_artifact *artifacts;
	size_t n_artifacts;
	struct spec_weights *weights;
	size_t n_weights;
	bool workdir;               /* enable_baseten_workdir: code in /b10/workspace */
	uint64_t max_duration_s;    /* ours: limits.max_duration, 0 = none */
	uint64_t idle_gpu_s;        /* ours: limits.idle_gpu, 0 = none */
	uint64_t grace_s;           /* ours: limits.stop_grace, 30 */
	struct spec_retry retry;    /* ours */
	struct spec_notify *notify; /* ours */
	size_t n_notify;
	struct {
		const char *commit, *branch, *remote; /* NULL: not known */
		bool dirty;
	} git;                  /* the code's, as the client found it */
	bool session_on_demand; /* interactive_session: `stoker exec`, and nothing by itself */
};

struct spec_problem {
	enum err_code id;   /* ERR_SPEC_INVALID, or one that says which rule it breaks */
	unsigned line, col; /* 0 when the source has no places */
	char path[160];
	char text[300];
};

struct spec_problems {
	struct spec_problem item[SPEC_PROBLEMS_MAX];
	size_t n, dropped;
};

enum spec_form {
	SPEC_FILE, /* train.yaml: project, team, job; stray keys refused with "did you mean" */
	SPEC_API,  /* the value of training_job; the same rules, plus what only clients send */
	/* The output of spec_write() when the job was pushed: data. It was validated then, maybe by
	 * an older version, and is not validated again: unknown keys are ignored, values are
	 * accepted as they are. Only an unreadable value is a problem: another type, or a missing
	 * field. */
	SPEC_STORED,
};

/* Reads and validates. Fills *out as far as it goes; 0 only when there is no problem. The strings
 * live in `a` (or the doc's arena). `problems` may be large: not for the stack of a deep call. */
int spec_read(struct arena *a, const struct doc *d, enum spec_form form, struct job_spec *out,
              struct spec_problems *problems);
/* One that is stored, from its text. ERR_STORED_SPEC when it cannot be read. */
int spec_read_stored(struct arena *a, const char *json, struct job_spec *out,
                     struct err *err) MUST_CHECK;
/* "train.yaml:3:9: job.compute.memory: ..." a line each (file NULL: no place), at most 1.9 KB. The
 * error's id is the one that all of them share, else ERR_SPEC_INVALID. */
void spec_problems_text(const struct spec_problems *p, const char *file, struct err *err);
/* The line of one of them. */
void spec_problem_text(const struct spec_problem *one, const char *file, struct buf *out);
void spec_problems_json(const struct spec_problems *p, struct js *js); /* list of objects */
void spec_problem_add(struct spec_problems *p, const struct doc *at, const char *path,
                      const char *fmt, ...) PRINTF(4, 5);
void spec_problem_add_id(struct spec_problems *p, enum err_code id, const struct doc *at,
                         const char *path, const char *fmt, ...) PRINTF(5, 6);
/* The folder of the system that a mount at `path` would cover or lie in; NULL: none. */
const char *spec_place_system(const char *path);
/* Is `path` the folder `root`, or below it? Both absolute and plain, root not "/". */
bool spec_place_below(const char *path, const char *root);

/* The training_job object as the API takes and stores it (no project, no team). */
void spec_write(const struct job_spec *s, struct js *js);
/* `--set job.compute.node_count=2`: a copy of the tree with one value replaced or added; the value
 * is typed like a YAML scalar. */
int spec_set(struct arena *a, const struct doc **root, struct str path, struct str value,
             struct err *err) MUST_CHECK;

/* The variable by which the job says itself which Hub it talks to, or as whom; NULL: it does not.
 * Then it talks to this server's. */
const char *spec_own_hub(const struct job_spec *s);
extern const char *const spec_gpu_types[]; /* NULL-terminated, sorted */
/* "H200:2" -> type and count. */
int spec_accelerator(struct arena *a, struct str text, const char **type, uint32_t *count,
                     struct err *err) MUST_CHECK;
/* Of a source without a secret: this server says who asks. */
bool spec_weights_by_identity(const struct spec_weights *w);
bool spec_name_ok(struct str name); /* project, job, team, secret names: see spec.c */
/* The source of a weight: scheme is supported, form is right. ERR_INVALID says what is expected. */
int spec_source_check(struct str source, struct err *err) MUST_CHECK;
/* What a bt:// source refers to, in `a`: bt://project[@job][/checkpoint]. */
int spec_ckpt_source(struct arena *a, struct str source, struct spec_load *out,
                     struct err *err) MUST_CHECK;
#define SPEC_HELD_MIN 12
/* Is it bt://sha256:<digits>? They are the digest of a manifest, lower case, or its begin. */
bool spec_held_source(struct str source, struct str *digits);
bool spec_bucket_ok(struct str name); /* of an s3:// source */
bool spec_gs_bucket_ok(struct str name);
#define SPEC_REGION_MAX 40
bool spec_region_ok(struct str name); /* of AWS: it becomes part of a host's name */
bool spec_azure_ok(struct str account, struct str container);
/* Where the bucket or Hub of a source is: an http or https URL, for s3:// and hf:// only. */
int spec_endpoint_check(struct str source, struct str endpoint, struct err *err) MUST_CHECK;
void spec_reference(struct buf *out); /* Markdown, printed from the tables of fields */

#endif
