/*
 * mounts.h - what a job sees where: the list of mounts, from its specification and the launch. The
 * sandbox drivers execute it in order; a later one covers an earlier one.
 */
#ifndef MOUNTS_H
#define MOUNTS_H

#include "core/spec.h"
#include "core/wire.h"
#include "run/ids.h"

#define MOUNTS_MAX 2048 /* the entries of a job's code may each be one */

struct confined;

enum mount_kind {
	MOUNT_RO, /* `from` read-only at `at` */
	MOUNT_RW,
	MOUNT_EMPTY, /* an empty folder over what must not be seen */
	MOUNT_NULL,  /* the same for a file */
};

struct mount {
	enum mount_kind kind;
	bool is_file;
	bool share; /* an administrator's, with what is mounted below it */
	const char *from, *at;
};

struct mounts {
	struct mount item[MOUNTS_MAX];
	size_t n;
	struct arena *a;
	const struct ids *ids; /* whose the job's folders are; NULL: ours */
	const struct confined
		*confined; /* where sources are, of a runner that gave up root; or NULL */
};

/* Folders of an attempt, all below its folder. */
#define ATTEMPT_CODE "ws"
#define ATTEMPT_SCRATCH "scratch"
#define ATTEMPT_CKPT "ckpt"
#define ATTEMPT_LOAD "load"
#define ATTEMPT_UPPER "upper" /* the sandbox's view of "/" and what is written there */
#define ATTEMPT_VARTMP "vartmp"
#define ATTEMPT_SPOOL "spool"
#define ATTEMPT_HUB "hub" /* see hub_cache.h */

#define ATTEMPT_COMPILE "compile" /* see compile.h */
#define ATTEMPT_CA "ca.pem" /* whom the job trusts: the machine's authorities, and the server's */

#define MOUNT_CA "/opt/stoker/ca.pem"
#define MOUNT_WORKSPACE "/b10/workspace"
#define MOUNT_BT_SCRATCH "/mnt/bt-scratch"

/* Facts about this machine. */
struct mounts_machine {
	struct str passwd, mountinfo; /* the texts of /etc/passwd and /proc/self/mountinfo */
	const char *home;             /* of the server, as its environment says; NULL: none */
	uint32_t uid;                 /* its user */
};
void mounts_machine(struct arena *a, struct mounts_machine *out);

/* The host's paths that must be hidden, and those that the administrator shares: sorted, deeper
 * ones later. */
int mounts_host(struct mounts *m, const struct wire_launch *l, const struct mounts_machine *on,
                struct err *err) MUST_CHECK;
/* The job's own. trees: one path a weights entry of the launch. code_at: where code without a
 * workspace of its own goes ("/" on the host's root, the image's working directory). on_host:
 * places are on the host's root, whose symbolic links are resolved. */
int mounts_job(struct mounts *m, const struct wire_launch *l, const struct job_spec *spec,
               const char *dir, const char *const *trees, const char *code_at, bool on_host,
               struct err *err) MUST_CHECK;
/* Those from `first` on go below that folder. */
void mounts_move(struct mounts *m, size_t first, const char *below);
/* Within mounts*.c. By length of the place: what covers comes after what is covered. */
void mounts_sort(struct mounts *m, size_t first);
/* A path as the kernel sees it, with what does not exist yet kept as it is. */
const char *mounts_resolve(struct arena *a, const char *path);
/* Is `path` the folder `top`, or below it? */
bool mounts_is_below(const char *path, const char *top);

int mounts_add(struct mounts *m, enum mount_kind kind, const char *from, const char *at,
               struct err *err) MUST_CHECK;

#endif
