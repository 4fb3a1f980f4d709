/* confine.c - see confine.h. */
#include "run/confine.h"

#include "base/clock.h"
#include "base/fs.h"
#include "io/local.h"
#include "run/mounts.h"
#include "run/sandbox_exec.h"
#include "run/seccomp.h"
#include "run/userns.h"
#include "store/blobs/tree.h"

#include <dirent.h>
#include <grp.h>
#include <libgen.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#define TREES_MAX (CONFINE_SEEN_MAX + 16)
#define ALONE_MS 2000 /* a thread of a library is about to end */
#define VIEW_BIN CONFINE_VIEW "/bin"
#define NODE_POINTS_MAX 4096            /* folders that trees are mounted on */
#define NODE_POINTS_BYTES (1024 * 1024) /* nothing is kept there */

/* A detached mount, and where it is to be. */
struct tree {
	const char *at;
	int fd;
	bool is_file;
};

struct entering {
	const struct confine *c;
	struct confined *out;
	struct arena *a;
	uint32_t runner; /* our id on the machine, from now on: the last of the job's range, or
	                  * the keepers' */
	int keep_map;    /* user namespaces by which mounts translate: what the runner keeps */
	int made_map;    /* ... and what the job makes, as the job's, and nothing else */
	struct tree tree[TREES_MAX];
	size_t n;
	const char *cover[TREES_MAX]; /* folders that are made anew, see cover_of() */
	size_t n_covers;
};

bool confine_may(const struct ids *ids, const char **why)
{
	*why = NULL;
	if (!ids->on || !ids->idmap || ids->span < 2)
		*why = "its job has no range of ids";
	return *why == NULL;
}

/* ---- groups ------------------------------------------------------------------------------ */

static uint32_t runner_id(const struct ids *ids)
{
	return id_range_runner(ids->job, ids->span);
}

int confine_group(struct confined *out, const char *top, const char *name, const char *file,
                  const struct cgroup_limits *limits, const struct ids *ids, struct err *err)
{
	struct confine_group *g = &out->group[out->n_groups];

	assert(out->n_groups < CONFINE_GROUPS);
	FMT(g->name, "%s", name);
	if (cgroup_make_for(&g->group, top, name, limits, runner_id(ids), err) < 0)
		return -1;
	out->n_groups++;
	return cgroup_save(&g->group, file, err);
}

/* By who it is now: what root had opened would let it move any process of the machine. */
static int open_groups(struct confined *out, struct err *err)
{
	for (size_t i = 0; i < out->n_groups; i++) {
		struct confine_group *g = &out->group[i];

		for (int k = 0; k < CGROUP_PARTS; k++) {
			AUTO_FREE char *path = xasprintf("%s/cgroup.procs", g->group.dir[k]);
			int fd;

			if (g->group.dir[k][0] == '\0')
				continue;
			fd = open(path, O_WRONLY | O_CLOEXEC);
			if (fd < 0)
				return err_errno(err, errno, "%s", path);
			g->procs[g->n_procs++] = fd;
		}
	}
	return 0;
}

const struct confine_group *confined_group(const struct confined *c, const char *name)
{
	for (size_t i = 0; c != NULL && i < c->n_groups; i++) {
		if (strcmp(c->group[i].name, name) == 0)
			return &c->group[i];
	}
	return NULL;
}

/* ---- mounts ------------------------------------------------------------------------------ */

const char *confined_path(const struct confined *c, struct arena *a, const char *path)
{
	for (size_t i = 0; c != NULL && i < c->n_seen; i++) {
		if (mounts_is_below(path, c->seen[i].from))
			return arena_printf(a, "%s%s", c->seen[i].to,
			                    path + strlen(c->seen[i].from));
	}
	return path;
}

const char *confined_share(const struct confined *c, size_t i)
{
	return c != NULL && i < CONFINE_SEEN_MAX ? c->share[i] : NULL;
}

/* As a mount of its own whose owners are translated, to be attached at `at`. map -1: they are not.
 */
static int take(struct entering *e, const char *path, const char *at, int map, uint64_t more,
                struct err *err)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | more};
	struct tree *t = &e->tree[e->n];
	struct stat st;

	if (e->n == TREES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d folders", TREES_MAX);
	*t = (struct tree){.at = at,
	                   .fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)};
	if (t->fd < 0)
		return err_errno(err, errno, "%s", path);
	e->n++;
	if (fstat(t->fd, &st) < 0)
		return err_errno(err, errno, "%s", path);
	t->is_file = !S_ISDIR(st.st_mode);
	if (map >= 0) {
		attr.attr_set |= MOUNT_ATTR_IDMAP;
		attr.userns_fd = (unsigned)map;
	}
	if (mount_setattr(t->fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_errno(err, errno, "%s: its owners", path);
	return 0;
}

static int take_made(struct entering *e, const char *dir, struct err *err)
{
	if (dir == NULL)
		return 0;
	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0)
		return -1;
	return take(e, dir, dir, e->keep_map, 0, err);
}

static void see(struct entering *e, const char *from, const char *to)
{
	assert(e->out->n_seen < CONFINE_SEEN_MAX);
	e->out->seen[e->out->n_seen].from = from;
	e->out->seen[e->out->n_seen].to = to;
	e->out->n_seen++;
}

/* What of the node cache holds trees. */
static const char *const node_folders[] = {NODE_CACHE_TREES, NODE_CACHE_BUILT};

/* Trees that are nobody's: what everybody may read of them. A keeper hands them out, one by one. */
static int take_kept(struct entering *e, struct err *err)
{
	const char *dir = e->c->keeps;

	if (take_made(e, dir, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(node_folders) && dir != NULL; i++) {
		const char *from = arena_printf(e->a, "%s/%s", dir, node_folders[i]);

		if (fs_mkdirs(AT_FDCWD, from, 0711, err) < 0 ||
		    take(e, from, arena_printf(e->a, CONFINE_NODE "/%s", node_folders[i]),
		         e->made_map, MOUNT_ATTR_RDONLY, err) < 0)
			return -1;
	}
	return 0;
}

/* Over the trees of the node cache, which may be in a folder that everybody may pass. It belongs to
 * the runner, which makes there the folder that a tree is mounted on. */
static int hide_node(const struct entering *e, struct err *err)
{
	const char *dir = e->c->launch != NULL ? e->c->launch->node_dir : NULL;
	char options[160];

	FMT(options, "mode=0755,size=%d,nr_inodes=%d,uid=%u,gid=%u", NODE_POINTS_BYTES,
	    NODE_POINTS_MAX, e->runner, e->runner);
	for (size_t i = 0; i < COUNT(node_folders) && dir != NULL; i++) {
		const char *at = arena_printf(e->a, "%s/%s", dir, node_folders[i]);

		if (fs_mkdirs(AT_FDCWD, at, 0711, err) < 0)
			return -1;
		if (mount("tmpfs", at, "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC, options) < 0)
			return err_errno(err, errno, "%s", at);
	}
	return 0;
}

/* Where we fill environments for the keeper: what is there is the job's. What the keeper has taken
 * is root's, and nobody's by this mount, whatever of it we have open. */
static int take_making(struct entering *e, struct err *err)
{
	const char *making = e->c->making;

	return making == NULL ? 0 : take(e, making, making, e->made_map, 0, err);
}

/* Its owner becomes the job, as sandbox_exec_mount.c does it; where its file system cannot, the
 * rights of others apply. */
static int take_share(struct entering *e, size_t i, struct err *err)
{
	const char *path = e->c->launch->share[i];
	const char *to = arena_printf(e->a, CONFINE_VIEW "/share-%zu", i);
	AUTO_FREE char *real = realpath(path, NULL);
	AUTO_FD int map = -1;
	struct stat st;
	struct userns_map line = {.host = e->c->ids.job, .n = 1};

	if (real == NULL || stat(real, &st) < 0)
		return 0; /* the sandbox says it */
	line.uid = st.st_uid;
	line.gid = st.st_gid;
	if (st.st_uid == 0 && st.st_gid == 0)
		line.n = e->c->ids.span - 1;
	map = userns_make(&line, err);
	if (map < 0)
		return -1;
	e->out->share[i] = arena_cstr(e->a, real);
	see(e, e->out->share[i], to);
	if (take(e, real, to, map, MOUNT_ATTR_RDONLY, err) == 0)
		return 0;
	err_clear(err);
	close_fd_p(&e->tree[--e->n].fd);
	return take(e, real, to, -1, MOUNT_ATTR_RDONLY, err);
}

/* The way to the server. */
static int take_server(struct entering *e, struct err *err)
{
	struct wire_start *s = e->c->start;
	AUTO_FREE char *real = s->ca_file != NULL ? realpath(s->ca_file, NULL) : NULL;
	const char *sockets = s->socket != NULL ? dirname(arena_cstr(e->a, s->socket)) : NULL;

	if (sockets != NULL && take(e, sockets, sockets, e->keep_map, MOUNT_ATTR_RDONLY, err) < 0)
		return -1;
	if (s->ca_file == NULL)
		return 0;
	if (real != NULL)
		s->ca_file = arena_cstr(e->a, real); /* nothing is mounted upon a link */
	return take(e, s->ca_file, s->ca_file, e->keep_map, MOUNT_ATTR_RDONLY, err);
}

static int take_for_job(struct entering *e, struct err *err)
{
	const struct wire_launch *l = e->c->launch;

	if (take_making(e, err) < 0 || take_made(e, l->cache_project_dir, err) < 0 ||
	    take_made(e, l->cache_team_dir, err) < 0)
		return -1;
	for (size_t i = 0; i < l->n_share && i + 3 < CONFINE_SEEN_MAX; i++) {
		if (take_share(e, i, err) < 0)
			return -1;
	}
	if (e->c->program == NULL)
		return 0;
	return take(e, e->c->program,
	            arena_printf(e->a, VIEW_BIN "%s", strrchr(e->c->program, '/')), -1,
	            MOUNT_ATTR_RDONLY, err);
}

/* The first folder on the way that not everybody may pass: we could not either. It is made anew,
 * with what is attached below it and nothing else. NULL: there is none. */
static const char *cover_of(struct arena *a, const char *path)
{
	char *copy = arena_cstr(a, path);
	struct stat st;

	for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (lstat(copy, &st) < 0 || (st.st_mode & S_IXOTH) == 0)
			return copy;
		*slash = '/';
	}
	return NULL;
}

static void add_cover(struct entering *e, const char *path)
{
	const char *top = cover_of(e->a, path);

	for (size_t i = 0; top != NULL && i < e->n_covers; i++) {
		if (strcmp(e->cover[i], top) == 0)
			return;
	}
	if (top != NULL)
		e->cover[e->n_covers++] = top;
}

static int make_covers(struct entering *e, struct err *err)
{
	for (size_t i = 0; i < e->n; i++) {
		if (!mounts_is_below(e->tree[i].at, CONFINE_VIEW))
			add_cover(e, e->tree[i].at);
	}
	if (fs_mkdirs(AT_FDCWD, CONFINE_VIEW, 0755, err) < 0)
		return -1;
	e->cover[e->n_covers++] = CONFINE_VIEW;
	for (size_t i = 0; i < e->n_covers; i++) {
		if (mount("tmpfs", e->cover[i], "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
			return err_errno(err, errno, "%s", e->cover[i]);
	}
	return 0;
}

static int make_point(const struct tree *t, struct arena *a, struct err *err)
{
	char *folder = arena_cstr(a, t->at), *slash = strrchr(folder, '/');
	int fd;

	if (!t->is_file)
		return fs_mkdirs(AT_FDCWD, t->at, 0755, err);
	if (access(t->at, F_OK) == 0)
		return 0;
	*slash = '\0';
	if (fs_mkdirs(AT_FDCWD, folder, 0755, err) < 0)
		return -1;
	fd = open(t->at, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return err_errno(err, errno, "%s", t->at);
	close_fd_p(&fd);
	return 0;
}

static int attach_all(struct entering *e, struct err *err)
{
	if (make_covers(e, err) < 0)
		return -1;
	for (size_t i = 0; i < e->n; i++) {
		const struct tree *t = &e->tree[i];

		if (make_point(t, e->a, err) < 0)
			return -1;
		if (move_mount(t->fd, "", AT_FDCWD, t->at, MOVE_MOUNT_F_EMPTY_PATH) < 0)
			return err_errno(err, errno, "mounting %s", t->at);
	}
	return 0;
}

static void trees_done(struct entering *e)
{
	for (size_t i = 0; i < e->n; i++)
		close_fd_p(&e->tree[i].fd);
	close_fd_p(&e->keep_map);
	close_fd_p(&e->made_map);
}

/* ---- ids --------------------------------------------------------------------------------- */

static int make_maps(struct entering *e, struct err *err)
{
	const struct ids *ids = &e->c->ids;
	const uint32_t store = ids_store(ids); /* there to be unlinked, and nobody's here */
	const struct userns_map keep[] = {
		{.uid = 0, .gid = 0, .host = e->runner, .n = 1},
		{.uid = ids->disk, .gid = ids->disk, .host = ids->job, .n = ids->span - 1},
		{.uid = store, .gid = store, .host = store, .n = 1}};

	e->keep_map = userns_make_of(keep, COUNT(keep), err);
	if (e->keep_map < 0)
		return -1;
	if (e->c->launch == NULL && e->c->keeps == NULL)
		return 0;
	e->made_map = userns_make(&keep[1], err);
	return e->made_map < 0 ? -1 : 0;
}

/* A user namespace is entered by a process of one thread. One that a library started to look up a
 * name may still be ending. */
static bool is_alone(void)
{
	DIR *d = opendir("/proc/self/task");
	size_t n = 0;

	for (struct dirent *t = d == NULL ? NULL : readdir(d); t != NULL; t = readdir(d))
		n += t->d_name[0] != '.';
	if (d != NULL)
		(void)closedir(d);
	return n == 1;
}

static int become(struct entering *e, struct err *err)
{
	const struct ids *ids = &e->c->ids;
	const struct userns_map map[] = {
		{.uid = 0, .gid = 0, .host = e->runner, .n = 1},
		{.uid = 1, .gid = 1, .host = ids->job, .n = ids->span - 1}};
	AUTO_FD int ns = userns_make_of(map, COUNT(map), err);
	int64_t until = clock_mono_ms() + ALONE_MS;
	const pid_t parent = getppid();
	int death = 0;

	if (ns < 0)
		return -1;
	(void)prctl(PR_GET_PDEATHSIG, &death);
	while (!is_alone() && clock_mono_ms() < until)
		clock_sleep_ms(1);
	sandbox_exec_new_keyring();
	if (setgroups(0, NULL) < 0)
		return err_errno(err, errno, "giving up groups");
	if (setns(ns, CLONE_NEWUSER) < 0)
		return err_errno(err, errno, "enter a user namespace");
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_errno(err, errno, "giving up root");
	/* of this user namespace, so that trees can be given and taken here: all that is mounted
	 * now is locked, with its flags */
	if (unshare(CLONE_NEWNS) < 0)
		return err_errno(err, errno, "a mount namespace of its own");
	/* another user's process forgets that it is to end with its parent */
	if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, death) < 0)
		return err_errno(err, errno, "giving up root");
	return death == 0 || getppid() == parent
	               ? 0
	               : err_set(err, ERR_CANCELED, "who started this process has ended");
}

/* In front of the rest: what is there under this name may not be ours to read. */
static void put_in_path(struct arena *a)
{
	const char *path = getenv("PATH");

	(void)setenv("PATH", arena_printf(a, VIEW_BIN ":%s", path != NULL ? path : "/usr/bin:/bin"),
	             1);
}

/* What a job will find of the machine. */
static int make_host(struct entering *e, struct err *err)
{
	const struct ids *ids = &e->c->ids;

	if (e->c->launch == NULL)
		return sandbox_exec_own_mounts(err);
	if (fs_mkdirs(AT_FDCWD, IDS_STAGE, 0755, err) < 0)
		return -1;
	sandbox_exec_raise_memlock();
	return sandbox_exec_public(e->a, ids->job, ids->span - 1, ids->nobody, err);
}

static int enter(struct entering *e, struct err *err)
{
	const struct confine *c = e->c;

	if (make_maps(e, err) < 0 ||
	    (c->dir != NULL && take(e, c->dir, c->dir, e->keep_map, 0, err) < 0) ||
	    take_kept(e, err) < 0 || take_server(e, err) < 0 ||
	    (c->launch != NULL && take_for_job(e, err) < 0))
		return -1;
	if (make_host(e, err) < 0 || attach_all(e, err) < 0 || hide_node(e, err) < 0 ||
	    become(e, err) < 0 || seccomp_apply(SECCOMP_RUNNER, err) < 0)
		return -1;
	return open_groups(e->out, err);
}

int confine_enter(const struct confine *c, struct confined *out, struct ids *ids, struct err *err)
{
	struct entering e = {.c = c,
	                     .out = out,
	                     .a = c->a,
	                     .runner = c->keeps != NULL ? ids_keeper(&c->ids) : runner_id(&c->ids),
	                     .keep_map = -1,
	                     .made_map = -1};
	mode_t mask = umask(022); /* folders that are made on the way are for everybody to pass */
	int r;

	assert(c->ids.on && c->ids.idmap && c->ids.span >= 2);
	r = enter(&e, err);
	(void)umask(mask);
	trees_done(&e);
	if (r < 0)
		return err_wrap(err, "the runner cannot give up root");
	if (c->program != NULL)
		put_in_path(c->a);
	local_root_is_unmapped();
	*ids = (struct ids){.on = true, .span = c->ids.span - 1, .job = 1, .disk = 1};
	out->on = true;
	return 0;
}
