/* prjquota_keeper.c - see prjquota_keeper.h. */
#include "run/prjquota_keeper.h"

#include "base/fs.h"
#include "base/log.h"
#include "io/local.h"
#include "run/keeper.h"
#include "run/prjquota.h"
#include "run/sandbox_exec.h"
#include "run/seccomp.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define FORGET 'f'
#define DONE 'y'
#define NOT_DONE 'n'
#define ANSWER_MS 10000

struct prjquota_keeper {
	struct keeper_end end;
};

/* ---- the keeper ------------------------------------------------------------------------------ */

struct keeper {
	unsigned magic;
#define KEEPER_MAGIC 0x5250514bU
	uint32_t project;
	uid_t user;
	dev_t dev; /* of the folder */
	int sock, runner;
	atomic_bool over;
};

/* Whoever took it over should find nothing whose owner he could play. */
static int see_nothing(struct err *err)
{
	if (sandbox_exec_own_mounts(err) < 0 || fs_mkdirs(AT_FDCWD, IDS_STAGE, 0755, err) < 0)
		return -1;
	if (mount("tmpfs", IDS_STAGE, "tmpfs", MS_RDONLY | MS_NODEV | MS_NOSUID, "mode=0755") < 0 ||
	    chroot(IDS_STAGE) < 0 || chdir("/") < 0)
		return err_errno(err, errno, IDS_STAGE);
	return 0;
}

/* Of root's rights that of an owner over any file is left: without it, who is not the owner of a
 * file cannot change its project. */
static int give_up_root(uid_t user, struct err *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {
		{.effective = CAP_TO_MASK(CAP_FOWNER), .permitted = CAP_TO_MASK(CAP_FOWNER)}};

	static_assert(CAP_TO_INDEX(CAP_FOWNER) == 0, "it is of the first word");
	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0 ||
	    syscall(SYS_capset, &head, caps) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_errno(err, errno, "giving up root");
	return seccomp_apply(SECCOMP_JOB, err);
}

static int begin(struct keeper *k, pid_t runner, struct err *err)
{
	int *ours[] = {&k->sock};

	if (keeper_keep_fds(ours, COUNT(ours), runner, &k->runner, err) < 0 ||
	    see_nothing(err) < 0 || give_up_root(k->user, err) < 0)
		return -1;
	return keeper_watch(k->sock, k->runner, &k->over, err);
}

static bool forget(const struct keeper *k, char word, int fd)
{
	struct stat st;

	return word == FORGET && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_nlink == 1 && st.st_dev == k->dev && prjquota_forget(fd, k->project);
}

static int serve(const struct keeper *k, struct err *err)
{
	AUTO_FD int fd = -1;
	char word = 0;

	if (local_receive(k->sock, -1, &word, &fd, err) < 0)
		return -1;
	return local_send(k->sock, forget(k, word, fd) ? DONE : NOT_DONE, -1, err);
}

static void keep(void *arg, int sock, pid_t runner)
{
	struct keeper k = *FROM_VOID(struct keeper, arg, KEEPER_MAGIC);
	struct err err = {0};

	k.sock = sock;
	if (begin(&k, runner, &err) < 0) {
		log_error("the keeper of the checkpoint folder's limit: %s", err.msg);
		_exit(1);
	}
	while (serve(&k, &err) == 0)
		;
	_exit(0);
}

/* ---- the runner ------------------------------------------------------------------------------ */

int prjquota_keeper_start(struct prjquota_keeper **out, const char *dir, uint32_t project,
                          const struct ids *ids, struct err *err)
{
	struct keeper life = {.magic = KEEPER_MAGIC,
	                      .project = project,
	                      .user = id_range_runner(ids->job, ids->span),
	                      .sock = -1,
	                      .runner = -1};
	struct prjquota_keeper *k;
	struct stat st;

	if (lstat(dir, &st) < 0)
		return err_errno(err, errno, "%s", dir);
	life.dev = st.st_dev;
	k = xcalloc(1, sizeof(*k));
	if (keeper_start(&k->end, "the checkpoint folder's limit", keep, &life, err) < 0) {
		prjquota_keeper_close(k);
		return -1;
	}
	*out = k;
	return 0;
}

/* After a failure nothing more is asked: an answer that comes too late would be taken for the next.
 */
bool prjquota_keeper_forget(struct prjquota_keeper *k, int fd)
{
	struct err err = {0};
	char word = 0;
	int none = -1;

	if (k->end.sock < 0)
		return false;
	if (local_send(k->end.sock, FORGET, fd, &err) == 0 &&
	    local_receive(k->end.sock, ANSWER_MS, &word, &none, &err) == 0)
		return word == DONE;
	log_warn("files that wait for their upload count for the checkpoint folder from now on: %s",
	         err.msg);
	keeper_hang_up(&k->end);
	return false;
}

void prjquota_keeper_close(struct prjquota_keeper *k)
{
	if (k == NULL)
		return;
	keeper_close(&k->end);
	free(k);
}
