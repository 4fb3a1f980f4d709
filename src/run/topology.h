/*
 * topology.h - how a machine's cores lie: which node of memory (NUMA) each belongs to, which are
 * threads of one physical core, and near which nodes a job's GPUs are. Read from sysfs and from the
 * NVIDIA driver's /proc/driver/nvidia; what is not there is not known, and nothing fails.
 */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include "base/buf.h"

#include <sched.h>

#define TOPOLOGY_NODES_MAX 64
#define TOPOLOGY_LIST_MAX 8192 /* bytes of a list of cores: "0-3,8-11" */

struct topology {
	uint8_t node[CPU_SETSIZE];         /* of each core */
	uint16_t first[CPU_SETSIZE];       /* the lowest thread of its physical core */
	unsigned gpus[TOPOLOGY_NODES_MAX]; /* of the job, near each node */
	unsigned n_gpus;                   /* of them all, whose node is known */
};

/* "0-3,8": adds one to each of these. What is no list of cores is skipped. */
void topology_count(struct str list, unsigned count[CPU_SETSIZE]);

/* root: "" for this machine, or a folder that holds sys/ and proc/. uuid: of the job's GPUs. */
void topology_read(struct topology *out, const char *root, const char *const *uuid, size_t n);

/*
 * n cores of `may`, which has more: those that the fewest jobs have (taken). Among equals the nodes
 * of the job's GPUs come first, by their share of the GPUs; a job without GPUs stays on as few
 * nodes as it can, the emptiest first. Then cores whose other thread is idle.
 */
void topology_choose(const struct topology *t, const cpu_set_t *may, unsigned n,
                     const unsigned taken[CPU_SETSIZE], cpu_set_t *out);

#endif
