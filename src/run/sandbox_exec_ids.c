/*
 * sandbox_exec_ids.c - what sandbox-exec does for a root runner before it gives up root.
 *
 * The public layer. In the job's user namespace, root has every right over files whose owner the
 * namespace knows. If the host's folders belonged to nobody there, pip and apt could change nothing
 * in their overlays; if they belonged to root, the job could read files that only root may read. So
 * there are two overlays. The lower one is read-only and shows each folder of the host with its
 * owners mapped to the job's. An id that owns nothing and has no capability over files mounts it:
 * the kernel checks the rights of the mounter as well as those of the reader, so the job reads only
 * what everybody may read. The upper one is the job's own, which it may change as it likes.
 */
#include "run/sandbox_exec_inner.h"

#include "base/fs.h"
#include "run/userns.h"

#include <dirent.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define PUBLIC_BASE SANDBOX_EXEC_SCRATCH "/host"
#define PUBLIC_EMPTY                                                                               \
	SANDBOX_EXEC_SCRATCH "/none" /* an overlay without an upper layer wants two others */

/* The namespaces of root, with what only it may open: the sources of mounts. */
static int open_all(struct sandbox_exec *b, struct err *err)
{
	AUTO_FD int scratch = -1;
	struct sandbox_exec_mount one = {
		.kind = MOUNT_RW, .from = b->scratch, .at = "/", .tree = -1};

	if (sandbox_exec_open_sources(b, err) < 0)
		return -1;
	if (b->scratch == NULL)
		return 0;
	if (sandbox_exec_open_source(b, &one, err) < 0)
		return -1;
	b->scratch_tree = one.tree;
	return 0;
}

static int public_dir(struct sandbox_exec *b, const char *host)
{
	AUTO_FD int tree = open_tree(AT_FDCWD, host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int r;

	if (tree < 0 || userns_map_mount(tree, b->job_ns, false) < 0 ||
	    move_mount(tree, "", AT_FDCWD, PUBLIC_BASE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -1;
	(void)setfsgid(b->nobody); /* capabilities over files go with it, and come back */
	(void)setfsuid(b->nobody);
	r = mount("overlay", host, "overlay", MS_RDONLY | MS_NODEV | MS_NOSUID,
	          "lowerdir=" PUBLIC_BASE ":" PUBLIC_EMPTY);
	(void)setfsuid(0);
	(void)setfsgid(0);
	(void)umount2(PUBLIC_BASE, MNT_DETACH); /* the overlay has a mount of its own */
	return r;
}

/* Folders as the view will carry them. One without a public layer is shown as nobody's. */
static void public_below(struct sandbox_exec *b, const char *host, int depth)
{
	DIR *d = depth < SANDBOX_EXEC_DEPTH_MAX ? opendir(host) : NULL;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char *path =
			arena_printf(b->a, "%s/%s", strcmp(host, "/") == 0 ? "" : host, e->d_name);
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    sandbox_exec_is_skipped(path) || lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		if ((st.st_mode & (S_IROTH | S_IXOTH)) != (S_IROTH | S_IXOTH))
			continue; /* nobody enters it */
		if (sandbox_exec_has_mounts_below(b, path))
			public_below(b, path, depth + 1);
		else if (b->publics < SANDBOX_EXEC_OVERLAYS_MAX && public_dir(b, path) == 0)
			b->publics++;
	}
	if (d != NULL)
		(void)closedir(d);
}

static void public_layer(struct sandbox_exec *b)
{
	if (mount("tmpfs", SANDBOX_EXEC_SCRATCH, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0 ||
	    mkdir(PUBLIC_BASE, 0755) < 0 || mkdir(PUBLIC_EMPTY, 0755) < 0)
		return; /* the host's folders are nobody's then, which is safe too */
	public_below(b, "/", 0);
	(void)umount2(SANDBOX_EXEC_SCRATCH, MNT_DETACH);
}

int sandbox_exec_own_mounts(struct err *err)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_errno(err, errno, "mount namespace");
	/* what we mount stays ours; what the host unmounts goes here too */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_errno(err, errno, "create a mount namespace");
	return 0;
}

/* Not the server's, with the keys in it. */
void sandbox_exec_new_keyring(void)
{
	(void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL); /* a kernel without keys */
}

int sandbox_exec_become_job(const struct sandbox_exec *b, struct err *err)
{
	uint32_t id = b->become ? b->job : 0;

	if (b->become && setgroups(0, NULL) < 0)
		return err_errno(err, errno, "giving up groups");
	if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
		return err_errno(err, errno, "switch to the job's user");
	if (b->become && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, errno, "set no_new_privs");
	return 0;
}

/* From root of the machine to root of the job's namespace, with all that was opened before. */
static int enter_job_ns(struct sandbox_exec *b, struct err *err)
{
	if (setgroups(0, NULL) < 0)
		return err_errno(err, errno, "giving up groups");
	if (setns(b->job_ns, CLONE_NEWUSER) < 0)
		return err_errno(err, errno, "enter the job's user namespace");
	if (sandbox_exec_become_job(b, err) < 0)
		return -1;
	/* nobody of this id is there yet; and a child whose maps we write must be ours to write */
	(void)prctl(PR_SET_DUMPABLE, 1);
	return sandbox_exec_own_mounts(err);
}

static int write_text(const char *path, const char *text, struct err *err)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return err_errno(err, errno, "%s", path);
	return 0;
}

/* An ordinary user may map one id: its own. */
static int unprivileged(struct sandbox_exec *b, struct err *err)
{
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER) < 0)
		return err_errno(err, errno, "user namespace");
	if (write_text("/proc/self/setgroups", "deny", err) < 0 ||
	    write_text("/proc/self/uid_map", arena_printf(b->a, "0 %u 1", uid), err) < 0 ||
	    write_text("/proc/self/gid_map", arena_printf(b->a, "0 %u 1", gid), err) < 0)
		return err_wrap(err, "user namespace");
	if (sandbox_exec_own_mounts(err) < 0 || sandbox_exec_read_mounts(b, err) < 0)
		return -1;
	return sandbox_exec_open_sources(b, err);
}

int sandbox_exec_stage(struct sandbox_exec *b, struct err *err)
{
	AUTO_FD int root = -1;

	if (fs_mkdirs(AT_FDCWD, b->stage, 0755, err) < 0 || sandbox_exec_own_mounts(err) < 0 ||
	    sandbox_exec_open_sources(b, err) < 0)
		return -1;
	if (mount("tmpfs", b->stage, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, "%s", b->stage);
	(void)umask(022);
	root = fs_open_dir("/", err);
	return root < 0 ? -1 : sandbox_exec_attach(b, root, err);
}

/* Mounts of our own, and the job's ids as a namespace. */
static int make_namespaces(struct sandbox_exec *b, struct err *err)
{
	if (sandbox_exec_own_mounts(err) < 0 || sandbox_exec_read_mounts(b, err) < 0)
		return -1;
	b->job_ns = sandbox_exec_map_of(b, 0, 0, err);
	return b->job_ns < 0 ? -1 : 0;
}

int sandbox_exec_become_root_of_job(struct sandbox_exec *b, struct err *err)
{
	if (b->span == 0)
		return unprivileged(b, err);
	if (make_namespaces(b, err) < 0 || open_all(b, err) < 0)
		return -1;
	if (b->nobody != 0)
		public_layer(b);
	return enter_job_ns(b, err);
}

int sandbox_exec_public(struct arena *a, uint32_t job, uint32_t span, uint32_t nobody,
                        struct err *err)
{
	struct sandbox_exec *b = arena_alloc(a, sizeof(*b));

	b->a = a;
	b->job = job;
	b->span = span;
	b->nobody = nobody;
	if (make_namespaces(b, err) < 0)
		return -1;
	public_layer(b);
	return close(b->job_ns);
}

/* The program gets a namespace below ours, in which its rights cannot undo a mount. */
int sandbox_exec_nested_userns(struct sandbox_exec *b, struct err *err)
{
	struct userns_map map = {.uid = 0, .gid = 0, .host = 0, .n = b->span};
	AUTO_FD int fd = userns_make(&map, err);

	if (fd < 0)
		return -1;
	if (fd != SANDBOX_EXEC_USERNS_FD)
		return dup2(fd, SANDBOX_EXEC_USERNS_FD) < 0
		               ? err_errno(err, errno, "user namespace")
		               : 0;
	return fcntl(TAKE_FD(fd), F_SETFD, 0) < 0 ? err_errno(err, errno, "user namespace") : 0;
}
