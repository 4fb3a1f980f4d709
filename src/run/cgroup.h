/*
 * cgroup.h - limits on memory, CPU and number of processes, by whatever this machine lets us have:
 * version 2, version 1 (memory, cpu, cpuacct, pids), or nothing. Chosen when it is made; what is
 * not enforced is said, not pretended.
 *
 * A group is named stoker-<8 hex of the runs folder>-<attempt>-<rank>, below the group that the
 * runner itself is in, so that its own limits hold too; in version 2 the runner steps aside for
 * that (into "stoker-leaf"), but never in a systemd service's own group: the service could not be
 * started again while the job runs. Nothing here fails a job: a machine without writable cgroups
 * runs it without these limits.
 */
#ifndef CGROUP_H
#define CGROUP_H

#include "base/fs.h"

#define CGROUP_PATH_MAX 1024
#define CGROUP_PIDS_MAX 32768 /* processes and threads of one job and node */

enum cgroup_part {
	CGROUP_MEMORY,
	CGROUP_CPU,
	CGROUP_CPUACCT,
	CGROUP_PIDS,
	CGROUP_UNIFIED,
	CGROUP_PARTS
};

/* Where the groups of this process are: folder of each hierarchy, "" = there is none. */
struct cgroup_paths {
	char dir[CGROUP_PARTS][CGROUP_PATH_MAX];
	bool v2_memory; /* the unified hierarchy has the memory controller */
	bool service;   /* ... and we are in a systemd service's own group */
};
/* From the texts of /proc/self/cgroup, /proc/self/mountinfo: pure, for tests. Folders that do not
 * exist fall back to the mount itself (inside a container the path is the host's). Of the unified
 * one it is the group that was left by stepping aside. */
void cgroup_find(struct str self, struct str mountinfo, struct cgroup_paths *out);

struct cgroup {
	char dir[CGROUP_PARTS][CGROUP_PATH_MAX]; /* of this job's groups, "" = none */
	bool memory, cpu, pids, v2;              /* what is enforced */
	uint64_t memory_limit;
	uint64_t oom_before; /* counters that were there when it was made */
};

struct cgroup_limits {
	uint64_t memory_bytes; /* 0 = none */
	uint32_t cpu_milli;    /* 0 = none */
};

void cgroup_name(const char *runs_dir, const char *attempt_id, uint32_t rank, char out[128]);
void cgroup_make(struct cgroup *g, const char *name, const struct cgroup_limits *limits);
/* The same for a runner that is about to become `owner`, and will not be root any more: it may read
 * its groups, kill and freeze what is in them, and move its own processes into them (open their
 * cgroup.procs then), but no process of somebody else, and not their limits. For that there is one
 * more level in version 2: `top`, which is the owner's, with this group below it and one for the
 * runner itself, into which the caller is moved. */
int cgroup_make_for(struct cgroup *g, const char *top, const char *name,
                    const struct cgroup_limits *limits, uint32_t owner, struct err *err) MUST_CHECK;
/* Processes that the kernel killed for this group's memory limit, since it was made. */
uint64_t cgroup_oom_kills(const struct cgroup *g);
uint64_t cgroup_peak(const struct cgroup *g); /* bytes, 0 = not known */
bool cgroup_usage(const struct cgroup *g, uint64_t *memory_bytes, uint64_t *cpu_ns);
bool cgroup_tracks(const struct cgroup *g); /* there is at least one group */
/* Appends the pid_t of all its processes, as one of its hierarchies has them. */
void cgroup_pids(const struct cgroup *g, struct buf *out);
/* All its processes stand still until cgroup_thaw(), or are killed. Waits for that, for at most
 * limit_ms. Version 2, and the hierarchy without controllers beside version 1; else nothing
 * happens. */
void cgroup_freeze(const struct cgroup *g, int64_t limit_ms);
void cgroup_thaw(const struct cgroup *g);
/* Kills all that is in it until it is empty, for at most limit_ms. True: proven empty. */
bool cgroup_kill(const struct cgroup *g, int64_t limit_ms);
void cgroup_remove(struct cgroup *g);
/* Those that a process is in: a container's, made by somebody else. */
void cgroup_of(struct cgroup *g, pid_t pid);
/* Removes groups of jobs that are empty and older than max_age_s, whoever made them: their runner
 * and its server were killed together. A job that runs is never empty, and one that has ended has
 * read what it needs. */
void cgroup_sweep_old(int64_t max_age_s);
#define CGROUP_OLD_S 600
/* Where its groups are, in a file: the sweeper may be in another one (systemd gives each runner a
 * scope of its own). */
int cgroup_save(const struct cgroup *g, const char *path, struct err *err) MUST_CHECK;
/* Those of that name again, from that file; none when it is not there. */
void cgroup_adopt(struct cgroup *g, const char *name, const char *path);

#endif
