/* box_inner.h - what the files of the box share; see box.h. */
#ifndef BOX_INNER_H
#define BOX_INNER_H

#include "base/arena.h"
#include "run/box.h"
#include "run/mounts.h"

#define BOX_LIST_MAX 512
#define BOX_OVERLAYS_MAX 256 /* of a view; the host's folders beyond it are shown read-only */
#define BOX_DEPTH_MAX 12

struct box_list {
	const char *item[BOX_LIST_MAX];
	size_t n;
};

struct box_mount {
	enum mount_kind kind;
	bool is_file;
	bool share;
	bool late; /* its flags are set once it is attached: a kernel before 5.12 */
	const char *from, *at;
	int tree; /* detached mount, -1 = none yet */
};

struct box {
	struct arena *a;
	struct box_list cgroups;
	struct box_list host; /* places of the host's mounts */
	struct box_mount *mount;
	size_t n_mounts;
	const char *scratch, *stage;
	const char *cores;                  /* NULL: all */
	uint64_t data_limit, process_limit; /* 0 = none */
	bool idmap, ro_root, become, clear_env, filter, filter_fd;
	uint32_t job, span, nobody; /* span 0: no ids */
	bool enter;
	const char *tty; /* size of the terminal, NULL = none */
	unsigned overlays, veils;
	struct err first; /* why the first overlay, or the folder, failed */
	bool on_tmpfs;    /* scratch cannot be an upper layer: writes go to memory */
	int scratch_tree; /* --ids: it as a detached mount, -1 = none */
	int program;      /* --scratch: what to become, a path's descriptor */
	int job_ns;       /* --ids: the job's user namespace, -1 = none */
	struct {
		uint32_t uid, gid;
		int fd;
	} map[16]; /* namespaces that translate these owners to the job */
	size_t n_maps;
};

/* box_view.c */
int box_read_mounts(struct box *b, struct err *err) MUST_CHECK;
bool box_has_mounts_below(const struct box *b, const char *path);
bool box_is_skipped(const char *path); /* a folder that each view has anew */
int box_build_view(struct box *b, struct err *err) MUST_CHECK;

/* box_mount.c */
int box_open_source(struct box *b, struct box_mount *m, struct err *err) MUST_CHECK;
int box_open_sources(struct box *b, struct err *err) MUST_CHECK;
/* Beneath the folder `root`, which stands for "/". */
int box_attach(struct box *b, int root, struct err *err) MUST_CHECK;
/* An owner on disk to the job's first id; of owner 0 all of the first `span` ids. Borrowed. */
int box_map_of(struct box *b, uint32_t uid, uint32_t gid, struct err *err) MUST_CHECK;

/* box_ids.c */
/* Into mount and user namespaces in which we are root and which know the job's ids alone, the
 * sources of the mounts being open. Without ids: our own id alone. */
int box_become_root_of_job(struct box *b, struct err *err) MUST_CHECK;
/* --become: the job's id itself. Without: root of the namespace that we are in. */
int box_become_job(const struct box *b, struct err *err) MUST_CHECK;
void box_new_keyring(void);
int box_nested_userns(struct box *b, struct err *err) MUST_CHECK;
int box_stage(struct box *b, struct err *err) MUST_CHECK;

/* box_enter.c */
int box_enter(const struct box *b, struct err *err) MUST_CHECK;

#endif
