/* sandbox_exec_inner.h - shared by the files of sandbox-exec; see sandbox_exec.h. */
#ifndef SANDBOX_EXEC_INNER_H
#define SANDBOX_EXEC_INNER_H

#include "base/arena.h"
#include "run/sandbox_exec.h"
#include "run/mounts.h"

#define SANDBOX_EXEC_LIST_MAX 512
#define SANDBOX_EXEC_OVERLAYS_MAX                                                                  \
	256 /* of a view; the host's folders beyond it are shown read-only */
#define SANDBOX_EXEC_DEPTH_MAX 12

struct sandbox_exec_list {
	const char *item[SANDBOX_EXEC_LIST_MAX];
	size_t n;
};

struct sandbox_exec_mount {
	enum mount_kind kind;
	bool is_file;
	bool share;
	bool late; /* its flags are set once it is attached: a kernel before 5.12 */
	const char *from, *at;
	int tree; /* detached mount, -1 = none yet */
};

struct sandbox_exec {
	struct arena *a;
	struct sandbox_exec_list cgroups;
	struct sandbox_exec_list env;
	struct sandbox_exec_list host; /* places of the host's mounts */
	struct sandbox_exec_mount *mount;
	size_t n_mounts;
	const char *scratch, *stage;
	const char *cores;                  /* NULL: all */
	uint64_t data_limit, process_limit; /* 0 = none */
	uint64_t cgroup_fds;                /* groups that are open already */
	bool idmap, ro_root, become, clear_env, filter, filter_fd, image;
	uint32_t job, span, nobody; /* span 0: no ids; nobody 0: the public layer is there */
	bool enter;
	const char *tty;            /* size of the terminal, NULL = none */
	unsigned overlays, publics; /* mounted so far */
	struct err first;           /* why the first overlay, or the folder, failed */
	bool on_tmpfs;              /* scratch cannot be an upper layer: writes go to memory */
	int scratch_tree;           /* --ids: it as a detached mount, -1 = none */
	int program;                /* --scratch: what to become, a path's descriptor */
	int job_ns;                 /* --ids: the job's user namespace, -1 = none */
	struct {
		uint32_t uid, gid;
		int fd;
	} map[16]; /* namespaces that translate these owners to the job */
	size_t n_maps;
};

/* sandbox_exec_view.c */
int sandbox_exec_read_mounts(struct sandbox_exec *b, struct err *err) MUST_CHECK;
bool sandbox_exec_has_mounts_below(const struct sandbox_exec *b, const char *path);
bool sandbox_exec_is_skipped(const char *path); /* a folder that each view has anew */
int sandbox_exec_build_view(struct sandbox_exec *b, struct err *err) MUST_CHECK;
/* In the scratch folder: an overlay at `at`, its upper layer u<n>, which is there. */
int sandbox_exec_overlay(struct sandbox_exec *b, const char *what, const char *at, int lower_fd,
                         struct err *err) MUST_CHECK;

/* sandbox_exec_container.c: the same of an image, and what podman wants to have to itself. */
int sandbox_exec_build_container(struct sandbox_exec *b, struct err *err) MUST_CHECK;

/* sandbox_exec_mount.c */
int sandbox_exec_open_source(struct sandbox_exec *b, struct sandbox_exec_mount *m,
                             struct err *err) MUST_CHECK;
int sandbox_exec_open_sources(struct sandbox_exec *b, struct err *err) MUST_CHECK;
/* Beneath the folder `root`, which stands for "/". */
int sandbox_exec_attach(struct sandbox_exec *b, int root, struct err *err) MUST_CHECK;
/* An owner on disk to the job's first id; of owner 0 all of the first `span` ids. Borrowed. */
int sandbox_exec_map_of(struct sandbox_exec *b, uint32_t uid, uint32_t gid,
                        struct err *err) MUST_CHECK;

/* sandbox_exec_ids.c */
/* Into mount and user namespaces in which we are root and which know the job's ids alone, the
 * sources of the mounts being open. Without ids: our own id alone. */
int sandbox_exec_become_root_of_job(struct sandbox_exec *b, struct err *err) MUST_CHECK;
/* --become: the job's id itself. Without: root of the namespace that we are in. */
int sandbox_exec_become_job(const struct sandbox_exec *b, struct err *err) MUST_CHECK;
int sandbox_exec_nested_userns(struct sandbox_exec *b, struct err *err) MUST_CHECK;
int sandbox_exec_stage(struct sandbox_exec *b, struct err *err) MUST_CHECK;

/* sandbox_exec_enter.c */
int sandbox_exec_enter(const struct sandbox_exec *b, struct err *err) MUST_CHECK;

#endif
