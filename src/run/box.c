/* box.c - makes the view of the host's root and becomes bwrap; see box.h. */
#include "run/box.h"

#include "base/arena.h"
#include "base/fs.h"

#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LIST_MAX 512
#define OVERLAYS_MAX 256
#define DEPTH_MAX 12
#define MOUNTS_TEXT ((size_t)4 << 20)

struct list {
	const char *item[LIST_MAX];
	size_t n;
};

struct box {
	struct list cgroups, points, files, skips, mounts; /* mounts: of the host */
	const char *scratch;
	bool userns;
	long enter;      /* pid, 0 = no */
	const char *tty; /* size of the terminal, NULL = none */
	unsigned overlays;
	struct err first; /* why the first overlay that failed did */
	bool on_tmpfs;    /* scratch cannot be an upper layer: writes go to memory */
	struct arena *a;
};

/* Top folders of a host that bwrap makes fresh, or that belong to people. */
static const char *const never[] = {"/proc", "/sys",  "/dev",        "/run",    "/tmp",
                                    "/home", "/root", "/lost+found", "/var/tmp"};

static int list_add(struct list *l, const char *item, struct err *err)
{
	if (l->n == LIST_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d of one kind", LIST_MAX);
	l->item[l->n++] = item;
	return 0;
}

static bool in_list(const struct list *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++) {
		if (strcmp(l->item[i], path) == 0)
			return true;
	}
	return false;
}

/* Is `path` strictly below `top`? */
static bool is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && path[n] == '/' && path[n + 1] != '\0';
}

static bool has_mounts_below(const struct box *b, const char *path)
{
	for (size_t i = 0; i < b->mounts.n; i++) {
		if (is_below(b->mounts.item[i], path))
			return true;
	}
	return false;
}

static bool is_skipped(const struct box *b, const char *path)
{
	for (size_t i = 0; i < COUNT(never); i++) {
		if (strcmp(never[i], path) == 0)
			return true;
	}
	return in_list(&b->skips, path);
}

/* "\040" and its like in mountinfo. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s != '\0'; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)(((s[1] - '0') << 6) | ((s[2] - '0') << 3) | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

static int read_mounts(struct box *b, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MOUNTS_TEXT);
	struct str rest, line, word;

	if (fs_read(AT_FDCWD, "/proc/self/mountinfo", &body, err) < 0)
		return -1;
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		struct str at = {0};
		char *path = NULL;

		for (int i = 0; i < 5 && str_cut(&line, ' ', &word); i++)
			at = word;
		path = arena_strz(b->a, at);
		unescape(path);
		if (!is_skipped(b, path) && b->mounts.n < LIST_MAX)
			b->mounts.item[b->mounts.n++] = path;
	}
	return 0;
}

static int write_text(const char *path, const char *text, struct err *err)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return err_errno(err, errno, "%s", path);
	return 0;
}

static int join_cgroups(const struct box *b, struct err *err)
{
	for (size_t i = 0; i < b->cgroups.n; i++) {
		if (write_text(arena_printf(b->a, "%s/cgroup.procs", b->cgroups.item[i]), "0",
		               err) < 0)
			return err_wrap(err, "joining the job's cgroup");
	}
	return 0;
}

static int make_namespaces(const struct box *b, struct err *err)
{
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWNS | (b->userns ? CLONE_NEWUSER : 0)) < 0)
		return err_errno(err, errno, "%s namespace", b->userns ? "user" : "mount");
	if (b->userns) {
		if (write_text("/proc/self/setgroups", "deny", err) < 0 ||
		    write_text("/proc/self/uid_map", arena_printf(b->a, "0 %u 1", uid), err) < 0 ||
		    write_text("/proc/self/gid_map", arena_printf(b->a, "0 %u 1", gid), err) < 0)
			return err_wrap(err, "user namespace");
	}
	/* what we mount stays ours; what the host unmounts goes here too */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_errno(err, errno, "mounts of its own");
	return 0;
}

static int make_dir(const char *path, mode_t mode, struct err *err)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_errno(err, errno, "%s", path);
	if (chmod(path, mode) < 0)
		return err_errno(err, errno, "%s", path);
	return 0;
}

/* The mount points inside this overlay are made in its upper layer, before it is mounted: an
 * ordinary user could not make them in the host's folders. */
static int make_points(const struct box *b, const char *host, const char *upper, struct err *err)
{
	for (int files = 0; files < 2; files++) {
		const struct list *l = files ? &b->files : &b->points;

		for (size_t i = 0; i < l->n; i++) {
			const char *p = l->item[i];
			char *at = NULL, *slash = NULL;
			AUTO_FD int fd = -1;

			if (!is_below(p, host) || access(p, F_OK) == 0)
				continue;
			at = arena_printf(b->a, "%s%s", upper, p + strlen(host));
			slash = strrchr(at, '/');
			if (files)
				*slash = '\0';
			if (fs_mkdirs(AT_FDCWD, at, 0755, err) < 0)
				return err_wrap(err, "mount point %s", p);
			if (!files)
				continue;
			*slash = '/';
			fd = open(at, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
			if (fd < 0)
				return err_errno(err, errno, "mount point %s", p);
		}
	}
	return 0;
}

static int mount_overlay(struct box *b, const char *host, const char *at, int lower_fd,
                         struct err *err)
{
	const char *more = b->userns ? ",userxattr" : "";
	char options[256];

	/* by handle and relative: no path has to be quoted for the mount options */
	FMT(options, "lowerdir=/proc/self/fd/%d,upperdir=u%u,workdir=w%u%s,volatile", lower_fd,
	    b->overlays, b->overlays, more);
	if (mount("overlay", at, "overlay", MS_NODEV | MS_NOSUID, options) == 0)
		return 0;
	FMT(options, "lowerdir=/proc/self/fd/%d,upperdir=u%u,workdir=w%u%s", lower_fd, b->overlays,
	    b->overlays, more); /* volatile is of 5.10 */
	if (mount("overlay", at, "overlay", MS_NODEV | MS_NOSUID, options) == 0)
		return 0;
	return err_errno(err, errno, "overlay on %s", host);
}

static int carry_dir(struct box *b, const char *host, const char *at, const struct stat *st,
                     struct err *err)
{
	char *upper = arena_printf(b->a, "u%u", b->overlays);
	char *work = arena_printf(b->a, "w%u", b->overlays);
	AUTO_FD int lower = open(host, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct err one = {0};

	if (lower < 0)
		return err_errno(err, errno, "%s", host);
	if (b->overlays >= OVERLAYS_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d overlays", OVERLAYS_MAX);
	if (make_dir(at, st->st_mode & 07777, err) < 0 ||
	    make_dir(upper, st->st_mode & 07777, err) < 0 || make_dir(work, 0755, err) < 0 ||
	    make_points(b, host, upper, err) < 0)
		return -1;
	if (mount_overlay(b, host, at, lower, &one) == 0) {
		b->overlays++;
		return 0;
	}
	if (b->first.code == ERR_NONE)
		b->first = one;
	/* not every file system can be a lower layer: it is shown as it is, read-only */
	if (mount(host, at, NULL, MS_BIND | MS_REC, NULL) == 0 &&
	    mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) ==
	            0)
		return 0;
	return err_set(err, one.code, "%s", one.msg);
}

static int carry(struct box *b, const char *host, const char *at, int depth, struct err *err);

static int carry_entries(struct box *b, const char *host, const char *at, int depth,
                         struct err *err)
{
	DIR *d = opendir(host);
	int r = 0;

	if (d == NULL) {
		if (errno == EACCES)
			return 0; /* not ours to read: the job sees it empty */
		return err_errno(err, errno, "%s", host);
	}
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
		const char *sep = strcmp(host, "/") == 0 ? "" : "/";

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = carry(b, arena_printf(b->a, "%s%s%s", host, sep, e->d_name),
		          arena_printf(b->a, "%s/%s", at, e->d_name), depth + 1, err);
	}
	(void)closedir(d);
	return r;
}

static int carry_link(struct box *b, const char *host, const char *at, struct err *err)
{
	char *target = arena_alloc(b->a, FS_PATH_MAX);
	ssize_t n = readlink(host, target, FS_PATH_MAX - 1);

	if (n < 0 || symlink(target, at) < 0)
		return err_errno(err, errno, "link %s", host);
	return 0;
}

static int carry_file(const char *host, const char *at, struct err *err)
{
	AUTO_FD int fd = open(at, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_errno(err, errno, "%s", at);
	if (mount(host, at, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) <
	            0)
		return 0; /* an empty file in its place */
	return 0;
}

static int carry(struct box *b, const char *host, const char *at, int depth, struct err *err)
{
	struct stat st;

	if (is_skipped(b, host) || lstat(host, &st) < 0)
		return 0; /* made elsewhere, or gone meanwhile */
	if (S_ISLNK(st.st_mode))
		return carry_link(b, host, at, err);
	if (S_ISREG(st.st_mode) && depth > 1) /* in "/" itself: swap files and the like */
		return carry_file(host, at, err);
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (depth >= DEPTH_MAX)
		return err_set(err, ERR_TOO_BIG, "%s: mounts nested too deep", host);
	if (!has_mounts_below(b, host))
		return carry_dir(b, host, at, &st, err);
	if (make_dir(at, 0755, err) < 0)
		return -1;
	return carry_entries(b, host, at, depth, err);
}

/* Where the scratch folder's file system cannot be an upper layer (it is an overlay itself, or a
 * network's), writes go to memory, still counted by the job's limit. */
static int scratch_on_tmpfs(struct box *b, struct err *err)
{
	if (mount("tmpfs", ".", "tmpfs", MS_NODEV | MS_NOSUID, "mode=0755") < 0)
		return err_errno(err, errno, "memory for the job's own files");
	if (chdir(b->scratch) < 0)
		return err_errno(err, errno, "%s", b->scratch);
	b->on_tmpfs = true;
	return 0;
}

static int build(struct box *b, struct err *err)
{
	static const struct {
		const char *path;
		mode_t mode;
	} fresh[] = {{"root/root", 0700}, {"root/home", 0755}, {"root/proc", 0755},
	             {"root/sys", 0755},  {"root/dev", 0755},  {"root/run", 0755},
	             {"root/tmp", 01777}};

	b->overlays = 0;
	b->first = (struct err){0};
	if (make_dir("root", 0755, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(fresh); i++) {
		if (make_dir(fresh[i].path, fresh[i].mode, err) < 0)
			return -1;
	}
	if (carry_entries(b, "/", "root", 0, err) < 0)
		return -1;
	if (b->overlays == 0) /* then it is not for the host's folders, but for our own */
		return err_set(err, ERR_UNSUPPORTED, "%s", b->first.msg);
	/* points outside of what the host has: in the plain folder that stands for "/" */
	for (size_t i = 0; i < b->points.n; i++) {
		char *at = arena_printf(b->a, "root%s", b->points.item[i]);

		if (access(at, F_OK) < 0 && fs_mkdirs(AT_FDCWD, at, 0755, err) < 0)
			return err_wrap(err, "mount point %s", b->points.item[i]);
	}
	return 0;
}

static int build_view(struct box *b, struct err *err)
{
	struct err first = {0};

	if (read_mounts(b, err) < 0)
		return -1;
	(void)umask(022);
	if (chdir(b->scratch) < 0)
		return err_errno(err, errno, "%s", b->scratch);
	if (build(b, &first) == 0)
		return 0;
	if (scratch_on_tmpfs(b, err) < 0)
		return -1;
	if (build(b, err) < 0)
		return err_wrap(err, "%s; in memory", first.msg);
	return 0;
}

/* No capability of the entered user namespace may come along: they could undo the mounts. */
static int drop_caps(struct err *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* older kernels know fewer */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0)
		return err_errno(err, errno, "giving up capabilities");
	return 0;
}

static int enter(const struct box *b, struct err *err)
{
	static const struct {
		const char *name;
		int flag;
	} spaces[] = {{"user", CLONE_NEWUSER},
	              {"ipc", CLONE_NEWIPC},
	              {"uts", CLONE_NEWUTS},
	              {"pid", CLONE_NEWPID},
	              {"mnt", CLONE_NEWNS}};
	int fd[COUNT(spaces)];
	pid_t child = 0;
	int status = 0;

	for (size_t i = 0; i < COUNT(spaces); i++) { /* all before the first: /proc changes */
		fd[i] = open(arena_printf(b->a, "/proc/%ld/ns/%s", b->enter, spaces[i].name),
		             O_RDONLY | O_CLOEXEC);
		if (fd[i] < 0)
			return err_errno(err, errno, "%s namespace of the job", spaces[i].name);
	}
	for (size_t i = 0; i < COUNT(spaces); i++) {
		if (setns(fd[i], spaces[i].flag) < 0)
			return err_errno(err, errno, "entering the job's %s namespace",
			                 spaces[i].name);
	}
	child = fork(); /* a pid namespace is entered by children */
	if (child < 0)
		return err_errno(err, errno, "fork");
	if (child > 0) {
		if (waitpid(child, &status, 0) < 0)
			_exit(BOX_EXIT);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setgid(0) < 0 || setuid(0) < 0)
		return err_errno(err, errno, "becoming the job's user");
	return drop_caps(err);
}

static int parse(struct box *b, int argc, char **argv, int *rest, struct err *err)
{
	const struct {
		const char *flag;
		struct list *list;
	} lists[] = {{"--cgroup", &b->cgroups},
	             {"--point", &b->points},
	             {"--point-file", &b->files},
	             {"--skip", &b->skips}};
	int i = 0;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *flag = argv[i];
		size_t l = 0;

		if (strcmp(flag, "--userns") == 0) {
			b->userns = true;
			continue;
		}
		if (i + 1 >= argc)
			return err_set(err, ERR_INVALID, "%s needs a value", flag);
		i++;
		if (strcmp(flag, "--scratch") == 0)
			b->scratch = argv[i];
		else if (strcmp(flag, "--enter") == 0)
			b->enter = strtol(argv[i], NULL, 10);
		else if (strcmp(flag, "--tty") == 0)
			b->tty = argv[i];
		for (; l < COUNT(lists); l++) {
			if (strcmp(flag, lists[l].flag) == 0 &&
			    list_add(lists[l].list, argv[i], err) < 0)
				return -1;
		}
	}
	*rest = i + 1;
	if (i + 1 >= argc)
		return err_set(err, ERR_INVALID, "no program after --");
	return 0;
}

int box_main(int argc, char **argv, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct box *b = arena_alloc(a, sizeof(*b));
	pid_t parent = getppid();
	int rest = 0;
	int r = 0;

	b->a = a;
	r = parse(b, argc, argv, &rest, err);
	if (r == 0)
		r = join_cgroups(b, err);
	if (r == 0 && b->enter > 0)
		r = enter(b, err);
	else if (r == 0 && b->scratch != NULL)
		r = make_namespaces(b, err) < 0 || build_view(b, err) < 0 ? -1 : 0;
	if (r == 0 && b->tty != NULL)
		r = box_tty_open(b->tty, BOX_TTY_FD, err);
	/* a new user namespace may have taken this back; our parent may be gone since */
	if (r == 0 && b->enter == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(BOX_EXIT);
	}
	if (r == 0) {
		if (b->on_tmpfs)
			(void)fputs("box: writes go to memory\n", stderr);
		(void)execvp(argv[rest], argv + rest);
		(void)err_errno(err, errno, "%s", argv[rest]);
	}
	(void)fprintf(stderr, "box: %s\n", err->msg);
	return BOX_EXIT;
}
