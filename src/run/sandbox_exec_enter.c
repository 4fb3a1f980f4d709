/* sandbox_exec_enter.c - into the namespaces of a job that runs; see sandbox_exec.h. */
#include "run/sandbox_exec_inner.h"

#include "base/fs.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define INFO_MAX ((size_t)4096)

/* No capability of the entered user namespace may come along: they could undo the mounts. */
static int drop_caps(struct err *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* older kernels know fewer */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0)
		return err_errno(err, errno, "drop capabilities");
	return 0;
}

/* The pid behind a pidfd, while it lives; 0 = it does not. */
static int pid_behind(int pidfd)
{
	AUTO_BUF struct buf info = BUF_INIT(INFO_MAX);
	struct err no = {0};
	char path[64];
	const char *at = NULL;
	int pid = 0;

	FMT(path, "/proc/self/fdinfo/%d", pidfd);
	if (fs_read(AT_FDCWD, path, &info, &no) == 0)
		at = strstr(buf_cstr(&info), "Pid:");
	if (at == NULL || sscanf(at, "Pid: %d", &pid) != 1 || pid < 0)
		pid = 0;
	return pid;
}

/* Which namespaces are not ours already. */
static int differing(int pid, int *flags, struct err *err)
{
	static const struct {
		const char *name;
		int flag;
	} spaces[] = {{"user", CLONE_NEWUSER},
	              {"ipc", CLONE_NEWIPC},
	              {"uts", CLONE_NEWUTS},
	              {"pid", CLONE_NEWPID},
	              {"mnt", CLONE_NEWNS}};

	for (size_t i = 0; i < COUNT(spaces); i++) {
		struct stat theirs, ours;
		char path[64], self[64];

		FMT(path, "/proc/%d/ns/%s", pid, spaces[i].name);
		FMT(self, "/proc/self/ns/%s", spaces[i].name);
		if (stat(path, &theirs) < 0 || stat(self, &ours) < 0)
			return err_errno(err, errno, "%s namespace of the job", spaces[i].name);
		if (theirs.st_ino != ours.st_ino || theirs.st_dev != ours.st_dev)
			*flags |= spaces[i].flag;
	}
	return 0;
}

/* All at once, of the process itself: its pid may be another's by now. */
static int enter_spaces(int *flags, struct err *err)
{
	int pid = pid_behind(SANDBOX_EXEC_ENTER_FD);

	*flags = 0;
	if (pid == 0 || differing(pid, flags, err) < 0 ||
	    pidfd_send_signal(SANDBOX_EXEC_ENTER_FD, 0, NULL, 0) < 0) {
		err_clear(err);
		return err_set(err, ERR_UNAVAILABLE, "the job has ended");
	}
	if (*flags != 0 && setns(SANDBOX_EXEC_ENTER_FD, *flags) < 0)
		return err_errno(err, errno, "enter the job's namespaces");
	return close(SANDBOX_EXEC_ENTER_FD) < 0 ? err_errno(err, errno, "close") : 0;
}

int sandbox_exec_enter(const struct sandbox_exec *b, struct err *err)
{
	pid_t child = 0;
	int status = 0, flags = 0;

	/* what we are run from is the host's: nobody in there may look into us or write to it */
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (b->span > 0 && setgroups(0, NULL) < 0)
		return err_errno(err, errno, "drop supplementary groups");
	if (enter_spaces(&flags, err) < 0)
		return -1;
	child = fork(); /* a pid namespace is entered by children */
	if (child < 0)
		return err_errno(err, errno, "fork");
	if (child > 0) {
		if (waitpid(child, &status, 0) < 0)
			_exit(SANDBOX_EXEC_EXIT);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if ((b->become || (flags & CLONE_NEWUSER) != 0) && sandbox_exec_become_job(b, err) < 0)
		return -1;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* taken back by the change of ids */
	(void)prctl(PR_SET_DUMPABLE, 0);
	return drop_caps(err);
}
