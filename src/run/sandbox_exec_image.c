/* sandbox_exec_image.c - the copy in memory; see sandbox_exec_image.h. */
#include "run/sandbox_exec_image.h"

#include "base/fs.h"
#include "base/log.h"
#include "run/sandbox_exec.h"

#include <linux/memfd.h>
#include <pthread.h>
#include <sys/mman.h>

#ifndef MFD_EXEC /* Linux 6.3 */
#define MFD_EXEC 0x0010U
#endif

#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

extern const unsigned char sandbox_exec_image[],
	sandbox_exec_image_end[]; /* tools/embed_program.py */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char path[40]; /* "" = none */

static int make(struct err *err)
{
	/* cppcheck-suppress comparePointers ; the linker puts both around one object */
	size_t n = (size_t)(sandbox_exec_image_end - sandbox_exec_image);
	AUTO_FD int fd = memfd_create("sandbox-exec", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	int high;

	if (fd < 0 && errno == EINVAL) /* a kernel that knows no other kind */
		fd = memfd_create("sandbox-exec", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_errno(err, errno, "memfd_create");
	if (fs_write_all(fd, sandbox_exec_image, n, err) < 0)
		return -1;
	if (fchmod(fd, 0500) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return err_errno(err, errno, "sealing");
	high = fcntl(fd, F_DUPFD_CLOEXEC,
	             SANDBOX_EXEC_FDS); /* out of the way of what a child is given */
	if (high < 0)
		return err_errno(err, errno, "dup");
	FMT(path, "/proc/self/fd/%d", high); /* stays open as long as the process lives */
	return 0;
}

static void make_once(void)
{
	struct err err = {0};

	if (make(&err) < 0)
		log_warn("cannot run sandbox-exec from memory, using this program instead: %s",
		         err.msg);
}

const char *sandbox_exec_path(void)
{
	(void)pthread_once(&once, make_once);
	return path[0] != '\0' ? path : NULL;
}
