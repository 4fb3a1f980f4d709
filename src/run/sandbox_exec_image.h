/*
 * sandbox_exec_image.h - the program sandbox-exec (sandbox_exec.h), which the runner carries as
 * bytes.
 *
 * It is run from a copy in memory that is sealed: a job that gets at /proc/PID/exe of a command
 * that enters it (CVE-2019-5736) reaches no file of the host, and cannot change what it reaches. It
 * links no library but libc: a start costs a twentieth of one of this program.
 */
#ifndef SANDBOX_EXEC_IMAGE_H
#define SANDBOX_EXEC_IMAGE_H

#include "base/base.h"

/* A path for execve() by this process and its children, made once. NULL: this kernel runs nothing
 * from memory (vm.memfd_noexec=2), use `stoker runner --sandbox-exec`. Static. */
const char *sandbox_exec_path(void);

#endif
