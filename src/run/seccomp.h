/*
 * seccomp.h - which calls of the kernel the code of a job may make: all that programs need, and
 * none of those by which kernels are attacked. The list is what container engines refuse by default
 * to containers without extra capabilities (containers/common, seccomp.json): namespaces and
 * mounts, modules, tracing of the kernel, keys, io_uring and the like. They fail with EPERM, or,
 * where a program tries something else then, with ENOSYS.
 *
 * A runner that gave up root has the same list, less what makes the sandbox of its job.
 */
#ifndef SECCOMP_H
#define SECCOMP_H

#include "base/err.h"

enum seccomp_of { SECCOMP_JOB, SECCOMP_RUNNER };

/* For this thread and all that it starts, for ever, with no_new_privs. */
int seccomp_apply(enum seccomp_of of, struct err *err) MUST_CHECK;
/* A job's as a descriptor that bwrap reads (--seccomp), at its beginning; -1. */
int seccomp_file(struct err *err) MUST_CHECK;

#endif
