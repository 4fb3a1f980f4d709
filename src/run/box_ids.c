/*
 * box_ids.c - what a box of a root runner does before it gives up being root, and how it does that.
 *
 * The veil. In the job's user namespace its root has every right over files whose owner the
 * namespace knows, so the host's folders could be shown either as nobody's, and then pip and apt
 * can change nothing in their overlays, or as root's, and then the job reads what only root may. So
 * there are two layers: an overlay over each folder of the host, read-only, below which the folder
 * is mounted with its owners translated to the job's, and which was mounted by an id that owns
 * nothing and has no capability over files: an overlay asks both the one who looks and the one who
 * mounted it, so through it nobody reads what not everybody may read. Above it the job's own
 * overlay, which the job may change as it likes.
 */
#include "run/box_inner.h"

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

#define VEIL_BASE BOX_PLACE "/host"
#define VEIL_EMPTY BOX_PLACE "/none" /* an overlay without an upper layer wants two others */

/* The namespaces of root, with what only it may open: the sources of mounts. */
static int open_all(struct box *b, struct err *err)
{
	AUTO_FD int scratch = -1;
	struct box_mount one = {.kind = MOUNT_RW, .from = b->scratch, .at = "/", .tree = -1};

	if (box_open_sources(b, err) < 0)
		return -1;
	if (b->scratch == NULL)
		return 0;
	if (box_open_source(b, &one, err) < 0)
		return -1;
	b->scratch_tree = one.tree;
	return 0;
}

static int veil_dir(struct box *b, const char *host)
{
	AUTO_FD int tree = open_tree(AT_FDCWD, host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int r;

	if (tree < 0 || userns_map_mount(tree, b->job_ns, false) < 0 ||
	    move_mount(tree, "", AT_FDCWD, VEIL_BASE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -1;
	(void)setfsgid(b->nobody); /* capabilities over files go with it, and come back */
	(void)setfsuid(b->nobody);
	r = mount("overlay", host, "overlay", MS_RDONLY | MS_NODEV | MS_NOSUID,
	          "lowerdir=" VEIL_BASE ":" VEIL_EMPTY);
	(void)setfsuid(0);
	(void)setfsgid(0);
	(void)umount2(VEIL_BASE, MNT_DETACH); /* the overlay has a mount of its own */
	return r;
}

/* Folders as the view will carry them. One that cannot be veiled is shown as nobody's. */
static void veil_below(struct box *b, const char *host, int depth)
{
	DIR *d = depth < BOX_DEPTH_MAX ? opendir(host) : NULL;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL; e = readdir(d)) {
		char *path =
			arena_printf(b->a, "%s/%s", strcmp(host, "/") == 0 ? "" : host, e->d_name);
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    box_is_skipped(path) || lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		if ((st.st_mode & (S_IROTH | S_IXOTH)) != (S_IROTH | S_IXOTH))
			continue; /* nobody enters it */
		if (box_has_mounts_below(b, path))
			veil_below(b, path, depth + 1);
		else if (b->veils < BOX_OVERLAYS_MAX && veil_dir(b, path) == 0)
			b->veils++;
	}
	if (d != NULL)
		(void)closedir(d);
}

static void veil(struct box *b)
{
	if (mount("tmpfs", BOX_PLACE, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0 ||
	    mkdir(VEIL_BASE, 0755) < 0 || mkdir(VEIL_EMPTY, 0755) < 0)
		return; /* the host's folders are nobody's then, which is safe too */
	veil_below(b, "/", 0);
	(void)umount2(BOX_PLACE, MNT_DETACH);
}

static int own_mounts(struct err *err)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_errno(err, errno, "mount namespace");
	/* what we mount stays ours; what the host unmounts goes here too */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_errno(err, errno, "create a mount namespace");
	return 0;
}

/* Its processes get a new session keyring, not the server's with the keys in it. */
void box_new_keyring(void)
{
	(void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL); /* a kernel without keys */
}

int box_become_job(const struct box *b, struct err *err)
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
static int enter_job_ns(struct box *b, struct err *err)
{
	if (setgroups(0, NULL) < 0)
		return err_errno(err, errno, "giving up groups");
	if (setns(b->job_ns, CLONE_NEWUSER) < 0)
		return err_errno(err, errno, "enter the job's user namespace");
	if (box_become_job(b, err) < 0)
		return -1;
	/* nobody of this id is there yet; and a child whose maps we write must be ours to write */
	(void)prctl(PR_SET_DUMPABLE, 1);
	return own_mounts(err);
}

static int write_text(const char *path, const char *text, struct err *err)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return err_errno(err, errno, "%s", path);
	return 0;
}

/* An ordinary user may map one id: its own. */
static int unprivileged(struct box *b, struct err *err)
{
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER) < 0)
		return err_errno(err, errno, "user namespace");
	if (write_text("/proc/self/setgroups", "deny", err) < 0 ||
	    write_text("/proc/self/uid_map", arena_printf(b->a, "0 %u 1", uid), err) < 0 ||
	    write_text("/proc/self/gid_map", arena_printf(b->a, "0 %u 1", gid), err) < 0)
		return err_wrap(err, "user namespace");
	if (own_mounts(err) < 0 || box_read_mounts(b, err) < 0)
		return -1;
	return box_open_sources(b, err);
}

int box_stage(struct box *b, struct err *err)
{
	AUTO_FD int root = -1;

	if (fs_mkdirs(AT_FDCWD, b->stage, 0755, err) < 0 || own_mounts(err) < 0 ||
	    box_open_sources(b, err) < 0)
		return -1;
	if (mount("tmpfs", b->stage, "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, "%s", b->stage);
	(void)umask(022);
	root = fs_open_dir("/", err);
	return root < 0 ? -1 : box_attach(b, root, err);
}

int box_become_root_of_job(struct box *b, struct err *err)
{
	if (b->span == 0)
		return unprivileged(b, err);
	if (own_mounts(err) < 0 || box_read_mounts(b, err) < 0)
		return -1;
	b->job_ns = box_map_of(b, 0, 0, err);
	if (b->job_ns < 0 || open_all(b, err) < 0)
		return -1;
	veil(b);
	return enter_job_ns(b, err);
}

/* The program gets a namespace below ours, in which its rights cannot undo a mount. */
int box_nested_userns(struct box *b, struct err *err)
{
	struct userns_map map = {.uid = 0, .gid = 0, .host = 0, .n = b->span};
	AUTO_FD int fd = userns_make(&map, err);

	if (fd < 0)
		return -1;
	if (fd != BOX_USERNS_FD)
		return dup2(fd, BOX_USERNS_FD) < 0 ? err_errno(err, errno, "user namespace") : 0;
	return fcntl(TAKE_FD(fd), F_SETFD, 0) < 0 ? err_errno(err, errno, "user namespace") : 0;
}
