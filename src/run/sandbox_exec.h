/*
 * sandbox_exec.h - the step between the runner and the program that runs a job (bwrap, podman, a
 * shell): `sandbox-exec ... -- PROGRAM` (sandbox_exec_image.h), or `stoker runner --sandbox-exec
 * ... -- PROGRAM`.
 *
 * It is a process of its own, started by exec so that it holds nothing of the runner's memory
 * (secrets). It joins the job's cgroups, makes the namespaces, mounts, gives up every right that
 * the job must not have, and becomes the program. Three modes:
 *
 * --scratch: a view of the host's root for bwrap (sandbox_exec_view.c) with the job's mounts. For a
 * runner that is root, it first does what needs root (sandbox_exec_ids.c), then makes the view in
 * the job's user namespace, with the rights of the job.
 * --stage: the mounts alone, below that folder, in a mount namespace of its own.
 * --enter: joins the namespaces of a running job.
 *
 * Sources of mounts are opened without following links and mounted by descriptor; mount points are
 * made and entered without following links.
 *
 *   --cgroup DIR          join this group (repeats)
 *   --cgroup-fds N        join N groups by descriptors, from SANDBOX_EXEC_CGROUP_FD down
 *   --cores 0,1,4         CPU affinity
 *   --data-limit BYTES    RLIMIT_DATA of each process, where no cgroup limits memory
 *   --process-limit N     RLIMIT_NPROC, where no cgroup limits the number of processes
 *   --ids JOB:SPAN:NOBODY the job's range of ids on the host, and an id that owns nothing; 0: the
 *                         host's folders are as the job may see them (sandbox_exec_public)
 *   --idmap               id-mapped mounts: the owner of a source becomes the job's first id
 *   --scratch DIR         an existing folder; gets root/, u<n>/, w<n>/
 *   --ro-root             the host's folders read-only, no overlays
 *   --image               the view is not of the host, but of the mount at descriptor 9, which is
 *                         attached to nothing: the files of an image
 *   --env NAME=VALUE      of the program (repeats)
 *   --stage DIR           a new tmpfs there, with the mounts in it
 *   --become              take the ids directly, without a user namespace
 *   --ro FROM AT, --rw FROM AT, --share FROM AT (read-only, with the mounts below it),
 *   --empty AT (an empty folder), --null AT (an empty file)
 *                         mounts, in this order
 *   --enter               join the namespaces of the process whose pidfd is descriptor 6
 *   --tty 24x80           a new terminal of these rows and columns is stdin, stdout and stderr of
 *                         the program; its master end is sent over the socket at descriptor 4
 *   --filter              limit the program to the system calls of seccomp.h
 *   --filter-fd           pass that filter as descriptor 8, for the program to install
 *   --clear-env           keep only PATH, locale, time zone and proxies of the environment
 *   -- PROGRAM ARG...     with --scratch, a path
 */
#ifndef SANDBOX_EXEC_H
#define SANDBOX_EXEC_H

#include "base/arena.h"
#include "base/err.h"

/* Does not return on success. On failure it writes the error to stderr and returns
 * SANDBOX_EXEC_EXIT. */
int sandbox_exec_run(int argc, char **argv, struct err *err);
#define SANDBOX_EXEC_EXIT 120 /* the sandbox could not be made */

/* A line on stderr, and why: the scratch folder cannot be used. */
#define SANDBOX_EXEC_MEMORY "sandbox-exec: writes go to memory: "

#define SANDBOX_EXEC_ENTER_FD 6
/* Here and lower, one each, of groups that the caller opened: their cgroup.procs. */
#define SANDBOX_EXEC_CGROUP_FD 15
#define SANDBOX_EXEC_USERNS_FD 7 /* where --ids leaves the job's user namespace for bwrap */
#define SANDBOX_EXEC_FILTER_FD 8 /* where --filter-fd leaves the filter for bwrap */
#define SANDBOX_EXEC_IMAGE_FD 9  /* where --image finds the image's files */
#define SANDBOX_EXEC_FDS 16      /* lower descriptors have fixed meanings */
/* Where it mounts its scratch when its user cannot reach it by its path. */
#define SANDBOX_EXEC_SCRATCH "/tmp"
#define SANDBOX_EXEC_PODMAN "podman" /* --image: a folder in it, for podman's own files */

/* For a runner that gives up root before it starts jobs: in a mount namespace of its own from here
 * on, with the host's folders as such a job may see them. Of what --ids says. */
int sandbox_exec_public(struct arena *a, uint32_t job, uint32_t span, uint32_t nobody,
                        struct err *err) MUST_CHECK;

/* This process, and what it starts, has mounts of its own from here on. */
int sandbox_exec_own_mounts(struct err *err) MUST_CHECK;
/* ... and a session keyring. */
void sandbox_exec_new_keyring(void);
/* ... and may lock as much memory as its user can be allowed: drivers that pin memory for a network
 * card or a GPU need it; the cgroup counts it all the same. */
void sandbox_exec_raise_memlock(void);

/* sandbox_exec_tty.c. Makes the terminal, sends its master end to the socket `to` and closes that.
 * We lead a session of our own then. */
#define SANDBOX_EXEC_TTY_FD 4
int sandbox_exec_tty_open(const char *size, int to, struct err *err) MUST_CHECK;
/* The other side of it: *out is the master end. */
int sandbox_exec_tty_receive(int from, int64_t wait_ms, int *out, struct err *err) MUST_CHECK;

#endif
