/*
 * confine.h - how the runner of a root server gives up root, once it knows its job and before it
 * touches anything of it.
 *
 * From then on it is root of a user namespace of its own, which knows two things: an id that no
 * other process of the machine has (its own), and the ids of its job. So it may do with its job's
 * processes and files what root may, and nothing else: it cannot read what only the machine's root
 * can, nor what belongs to another runner. In its mount namespace
 *
 *   - the host's folders are as its job may see them (sandbox_exec_public());
 *   - of the data folder, and of whatever lies above it and is not open to everybody, there is what
 *     the attempt needs and no more: its own folder, the training caches of its project and team,
 *     and the sockets of the server. Of the node cache there are two empty folders, in which the
 *     runner mounts each tree that its keeper gives it (node.h), and one that it can write to,
 *     where it fills environments for its keeper. On disk all that
 *     the runner writes there belongs to root, and all that its job writes to the owner that ids.h
 *     says: idmapped mounts translate;
 *   - below CONFINE_VIEW lies what an administrator shares, with the job as its owner.
 *
 * What only the machine's root can do is done before: the job's ids, cores, control groups and the
 * limit of its checkpoint folder are taken. What they leave behind is removed by the sweep
 * (run_end.c), which the server starts; for what it has to read and send of a dead runner's folder,
 * it gives up root in the same way.
 *
 * System calls that neither it nor a sandbox needs are refused (seccomp.h).
 *
 * Where it is not possible, runners stay root: file systems without idmapped mounts, a pool of too
 * few ids; for a job with an image, also where podman's storage has none, or the kernel is too old
 * (image_keeper.h). Which runner is confined is decided before it starts its job: by what the
 * server found when it tried (WIRE_IDS_OWN), and by confine_may().
 */
#ifndef CONFINE_H
#define CONFINE_H

#include "run/cgroup.h"
#include "run/ids.h"

#define CONFINE_VIEW IDS_RUN "/view"
/* Of a keeper: the trees of its cache, under their names there, as a runner and its job may see
 * them. */
#define CONFINE_NODE CONFINE_VIEW "/node"
#define CONFINE_GROUPS 2 /* of the job, and of what builds its Python */

struct confine_group {
	char name[160];
	struct cgroup group;
	int procs[CGROUP_PARTS]; /* its cgroup.procs, to join by */
	size_t n_procs;
};

#define CONFINE_SEEN_MAX 64
struct confined {
	bool on;
	struct confine_group group[CONFINE_GROUPS];
	size_t n_groups;
	struct {
		const char *from, *to;
	} seen[CONFINE_SEEN_MAX]; /* where a source of mounts is for a job */
	size_t n_seen;
	const char
		*share[CONFINE_SEEN_MAX]; /* of launch.share: where each really is; NULL: nowhere */
};

struct confine {
	struct arena *a; /* of *out too */
	const char *dir; /* attempt folder; NULL: not this one's */
	/* NULL, or the node cache, of whose keeper this is: it has the cache and the way to the
	 * server, and runs as ids_keeper(). */
	const char *keeps;
	/* Of it: how to reach the server. Its ca_file becomes the path where it really is. */
	struct wire_start *start;
	/* Of it: node_dir, the caches, what is shared. NULL: no job is started from here. */
	const struct wire_launch *launch;
	const char *making;  /* of a runner: the folder that its keeper lets it fill; NULL: none */
	const char *program; /* a file that is to be found in PATH afterwards, NULL: none */
	struct ids ids;      /* as ids_take() gave them */
};

/* Can this job's runner be confined? Else *why says what stands in the way. */
bool confine_may(const struct ids *ids, const char **why);
/* The group of a sandbox, made now, see cgroup_make_for(): sandbox_start() finds it by its name,
 * and the sweep by the file, whether a sandbox was ever started in it or not. */
int confine_group(struct confined *out, const char *top, const char *name, const char *file,
                  const struct cgroup_limits *limits, const struct ids *ids,
                  struct err *err) MUST_CHECK;
/* This process has one thread. *ids: what its job's are called from now on. After an error it may
 * be half done, and only good for saying so. */
int confine_enter(const struct confine *c, struct confined *out, struct ids *ids,
                  struct err *err) MUST_CHECK;
/* Where a source of mounts is. Without confinement: where it was. */
const char *confined_path(const struct confined *c, struct arena *a, const char *path);
/* NULL: not known. */
const char *confined_share(const struct confined *c, size_t i);
/* NULL: none of that name. */
const struct confine_group *confined_group(const struct confined *c, const char *name);

#endif
