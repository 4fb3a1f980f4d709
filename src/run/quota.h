/*
 * quota.h - what a job may take of the disk of its node: the size of its checkpoint volume, bytes
 * and files of its scratch, and the file system's inodes, which all jobs of the node share.
 *
 * A thread looks while the job runs. What seems to be over a limit is counted again with the job
 * frozen (where it has a cgroup), so that nothing grows meanwhile and no file is seen twice; what
 * is over then ends the job, still frozen. Looking takes at most a twentieth of the time.
 *
 * Where the file system itself limits the volume (`project`), a write that would cross the limit
 * fails, and the job goes on. The count is the second line then: it finds what the file system does
 * not know to be the volume's.
 *
 * What is in the scratch before the job begins (the folders of its view of the host) does not
 * count, but its code does: the job may delete that, and write as much instead. Files without a
 * name that its processes hold count where their last name was. Those that the job removed from its
 * checkpoint folder and no longer holds wait in the spool to be uploaded, and count for nothing.
 *
 * Inodes have no limit for each job, but when few are left the job that holds most of them ends:
 * as `kubelet` evicts pods from a node without inodes. What counts then is all that the job can
 * write to, its caches too.
 */
#ifndef QUOTA_H
#define QUOTA_H

#include "run/cgroup.h"

#define QUOTA_LOOK_MS 50       /* between two looks at the file system as a whole */
#define QUOTA_LOW_SHARE 20     /* few inodes are left: less than one of 20, */
#define QUOTA_LOW_FILES 50000  /* or less than so many and one of 4 */
#define QUOTA_HOLDS 8          /* a job that has so many times more than what is left ends */
#define QUOTA_SMALL_FILES 1000 /* never one with fewer than these */

struct quota_options {
	const char *dir;        /* attempt folder: all below it is the job's */
	const char *scratch[7]; /* what the limits of scratch count; NULL: fewer */
	const char *code;       /* that of `scratch` with the job's code; NULL: none */
	const char *root;       /* what a container changes of its image; NULL: none */
	const char *volume;     /* checkpoint folder; NULL: there is none */
	const char *spool;      /* links to its files (ship.h); NULL: there are none */
	const char *cache[2];   /* NULL: fewer */
	uint64_t scratch_bytes, scratch_files, volume_bytes; /* 0 = no limit */
	uint32_t project; /* by which the file system limits the volume (prjquota.h); 0: it does not
	                   */
	/* where the job finds them; NULL: where they are */
	const char *volume_at, *cache_at;
	const struct cgroup *group; /* lives until quota_stop() */
	pid_t init; /* whose descendants are the job, where there is no group; 0: none */
};

struct quota;

/* ERR_SCRATCH_QUOTA_EXCEEDED: the code alone is over a limit. */
int quota_start(struct quota **out, const struct quota_options *o, struct err *err) MUST_CHECK;
/* Readable once a limit is crossed. */
int quota_fd(const struct quota *q);
/* Has the job crossed one? Then *why says which: ERR_VOLUME_FULL, ERR_SCRATCH_QUOTA_EXCEEDED,
 * ERR_INODES_EXHAUSTED. Its processes are frozen, and wait to be killed. */
bool quota_crossed(const struct quota *q, struct err *why);
/* The commands have ended by themselves: the last look at the limits that are the job's own. One
 * that crosses a limit at its end has crossed it too, however fast it was. NULL is fine. */
void quota_finish(struct quota *q, struct err *why);
void quota_stop(struct quota *q); /* NULL is fine */
/* Of a volume that the file system limits: was it as good as full, or `most` of it in use? Nobody
 * hears of a write that failed but the job. NULL is fine. */
bool quota_volume_full(const struct quota *q);
bool quota_volume_near(const struct quota *q);

/* Has the file system of this folder few inodes left? False where they are not counted. */
bool quota_inodes_low(const char *dir);
/* The rule about inodes, for tests: does a job end that has `own` of `total`, `left` being free? */
bool quota_inodes_over(uint64_t total, uint64_t left, uint64_t own);

#endif
