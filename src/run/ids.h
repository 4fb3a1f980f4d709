/*
 * ids.h - whose ids the code of a job has on this machine, when the runner is root: a range of its
 * own, of a pool that a setting names. Inside, the first of them is root of a user namespace, as in
 * rootless containers; outside, they are nobody's.
 *
 * On disk everything that a job may write belongs to the first range of the pool, which no job
 * runs as: mounts translate it (idmapped mounts), so that a cache may be used by several jobs at
 * once, and an id that is used again finds nothing of the one before. Where the data folder's file
 * system cannot do that, files belong to the job's id itself, and all jobs of a team share one.
 *
 * A range is claimed by a file in IDS_CLAIMS, named after its first id, that says which attempt has
 * it: one place for all servers of the machine, and gone after a boot, as the processes are. It is
 * given back when the attempt's processes are proven gone; one whose attempt's folder is gone may
 * be taken over once no process has its ids any more.
 *
 * A runner that is no root has one user, whom its jobs run as: nothing here applies.
 */
#ifndef IDS_H
#define IDS_H

#include "core/id_range.h"
#include "core/wire.h"

#include <stdatomic.h>

#define IDS_RUN "/run/stoker"
#define IDS_CLAIMS IDS_RUN "/ids"
#define IDS_STAGE IDS_RUN "/stage" /* where sandbox-exec shows mounts in a namespace of its own */
#define IDS_SPAN 65536             /* ids of one range, where the pool has room for it */
#define IDS_FIRST 1879048192       /* the pool when no setting names one: 0x70000000.. */
#define IDS_LAST 2147418111        /* which systemd and container tools leave alone */

struct ids {
	bool on;         /* false: jobs run as the runner's user */
	bool idmap;      /* mounts translate; false: files belong to `job` */
	uint32_t span;   /* ids of a range */
	uint32_t job;    /* the first of the job's */
	uint32_t disk;   /* owner on disk */
	uint32_t nobody; /* an id that owns nothing, see sandbox_exec_ids.c */
};

/* Where runners give up root: whom the files of the store belong to that the node cache has a name
 * of. The last id of the first range: nothing runs as it, and the mounts of runners that gave up
 * root translate it to nobody of theirs. */
static inline uint32_t ids_store(const struct ids *ids)
{
	return id_range_store(ids->disk, ids->span);
}

/* ... and as whom the keepers of the node cache run (node.h), in place of root: an id of the first
 * range too. Each sees nothing but the node cache, where nothing belongs to it. */
static inline uint32_t ids_keeper(const struct ids *ids)
{
	return id_range_keeper(ids->disk, ids->span);
}

/* The pool: first-last, "" or NULL for the default, whose span is 0 where this user namespace has
 * too few ids for any: root there is one user outside, and so are its jobs. ERR_JOB_IDS_TAKEN when
 * somebody of this machine has one of them: a user, a group, or a range of subordinate ids. */
struct ids_pool {
	uint32_t first, last, span;
};
int ids_pool_read(const char *setting, struct ids_pool *out, struct err *err) MUST_CHECK;
/* The same from the texts of /etc/passwd, /etc/group, /etc/subuid and /etc/subgid, and of this
 * process's uid_map: for tests. */
struct ids_texts {
	struct str passwd, group, subuid, subgid, uid_map;
};
int ids_pool_check(const char *setting, const struct ids_texts *t, struct ids_pool *out,
                   struct err *err) MUST_CHECK;
/* Can mounts of this folder's file system translate ids? */
bool ids_can_map(const char *dir);

/* A range for the attempt in `dir`; of a pool without idmap the one of its team, which is kept in
 * `team_file`. Waits for others of this machine that choose. */
int ids_take(struct ids *out, const struct ids_pool *pool, bool idmap, const char *dir,
             const char *team_file, struct err *err) MUST_CHECK;
/* Gives back all that the attempt in `dir` has, its processes being gone. */
void ids_release(const char *dir);

/* From here to ids_end() what this thread makes belongs to the job, and it has no right that the
 * job has not. Folders above the job's own cannot be passed: open them before. */
void ids_begin(const struct ids *ids);
void ids_end(const struct ids *ids);
/* An open file or folder becomes the job's. */
int ids_own(const struct ids *ids, int fd, const char *what, struct err *err) MUST_CHECK;
/* A folder that jobs share becomes theirs: at once when it is empty, or when mounts translate
 * whoever owns it; else every file in it, through no link. What has names outside of it is left as
 * it is. Can be begun again after a crash: the folder itself comes last. */
int ids_own_tree(const struct ids *ids, const char *dir, const atomic_bool *cancel,
                 struct err *err) MUST_CHECK;

#endif
