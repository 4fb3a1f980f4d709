/* run.h - one attempt on one node, as the runner's own files see it. */
#ifndef RUN_H
#define RUN_H

#include "core/idle.h"
#include "run/confine.h"
#include "run/cores.h"
#include "run/exec.h"
#include "run/harvest.h"
#include "run/quota.h"
#include "run/sampler.h"
#include "run/serve.h"
#include "run/ship.h"
#include "run/stage.h"

struct run {
	unsigned magic;
#define RUN_MAGIC 0x52554e5fU
	struct arena *a;
	const char *dir, *program;
	char name[128]; /* of groups and containers */
	struct wire_start start;
	struct wire_launch launch;
	struct job_spec spec;
	struct redact *redact;
	struct report *report;
	struct logs *logs;
	struct stage stage;
	struct ids ids; /* of the job's processes */
	struct confined confined;
	struct image_keeper *images; /* until the stages have it */
	struct node *node;           /* a keeper of the node cache, for the stages; NULL: none */
	struct err early;            /* of what is done before the threads are there */
	const char *stays_root;      /* why it does not give root up; NULL: it does, or never may */
	struct cores cores;
	struct mounts *mounts;
	struct sandbox_spec sandbox_spec;
	struct sandbox *sandbox;
	struct sampler *sampler;
	bool driver; /* that of the GPUs is mounted, see gpu.h */
	struct ship *ship;
	struct quota *quota;
	uint32_t project; /* of the checkpoint folder, whose size is limited; 0: it has none */
	struct prjquota_keeper *limit; /* of that, for a runner that gave up root; else NULL */
	/* NULL: nothing is kept of what compilers make. The ship's threads read it, too. */
	struct harvest *_Atomic harvest;
	struct execs *execs;
	struct serve *serve; /* NULL: the job has no server, or does not run yet */
	uint32_t serve_port;
	struct wire_env *env;
	size_t n_env;
	const char *workdir;
	int signal_fd;
	uint64_t sync_done; /* of the last sync, as far as it was ... */
	int64_t sync_ms;    /* ... when that grew last; monotonic */
	int64_t low_ms;     /* since when it lacks inodes, 0 = it does not */

	/* the end */
	bool left; /* processes that could not be killed */
	bool ran, served, stopping, timed_out, idled, terminated;
	bool told_full, near_full; /* the volume; by the file system's limit */
	struct err over;           /* the limit of the disk that the job crossed */
	struct idle idle;
	int64_t idle_look_ms;                      /* when to look next */
	bool idle_unknown;                         /* and said so */
	int64_t kill_at_ms;                        /* monotonic, 0 = not yet asked to stop */
	int64_t started_ms, ended_ms, deadline_ms; /* wall, wall, monotonic */
	int code;
	struct wire_exit end;
};

void run_crash_at(const char *label);
/* run_job.c: from staged to ended; fills r->end. */
void run_job(struct run *r);
void run_take_cores(struct run *r);
/* run_end.c */
void run_verdict(struct run *r);
/* On a disk that has no inode left and no block, too: into a file that the first stage made. */
int run_write_exit(struct run *r, struct err *err) MUST_CHECK;
void run_deploy_failed(struct run *r, enum wire_stage stage, const struct err *why);
void run_told_to_end(struct run *r); /* SIGTERM before user code */
/* After a runner that is dead: what it started goes, and the server hears what it had not: the rest
 * of the log, checkpoints, the exit record, in this order. `how`: "", WIRE_SWEEP_PAST,
 * WIRE_SWEEP_LAST. The exit code. */
int run_sweep(const char *dir, const char *how, struct err *err);
int run_ship_file(struct run *r, struct err *err) MUST_CHECK; /* ship.json, for the sweeper */

#endif
