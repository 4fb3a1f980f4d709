/*
 * seccomp.h - which calls of the kernel the code of a job may make: all that programs need, and
 * none of those by which kernels are attacked. The list is what container engines refuse by default
 * to containers without extra capabilities (containers/common, seccomp.json): namespaces and
 * mounts, modules, tracing of the kernel, keys, io_uring and the like. They fail with EPERM, or,
 * where a program tries something else then, with ENOSYS.
 */
#ifndef SECCOMP_H
#define SECCOMP_H

#include "base/err.h"

/* For this process and all that it starts, for ever. It has no_new_privs, or is root. */
int seccomp_apply(struct err *err) MUST_CHECK;
/* The same as a descriptor that bwrap reads (--seccomp), at its beginning; -1. */
int seccomp_file(struct err *err) MUST_CHECK;

#endif
