/*
 * box.h - the step between the runner and the program that runs a job (bwrap, podman, a shell):
 * `sandbox-exec ... -- PROGRAM` (sandbox_exec.h), or `stoker runner --box ... -- PROGRAM`.
 *
 * A process of its own, started by exec so that it holds nothing of the runner's memory (secrets).
 * It joins the job's cgroups, makes the namespaces, shows the job's mounts in them, gives up every
 * right that the job is not to have, and becomes the program. Three ways:
 *
 * --scratch: a view of the host's root for bwrap, see box_view.c, with the mounts at their places.
 * A runner that is root does first what only root can (box_ids.c), and makes the view in the user
 * namespace of the job, with the rights of the job.
 * --stage: the mounts alone, in a mount namespace of its own, at places below that folder.
 * --enter: into the namespaces of a job that runs.
 *
 * Sources of mounts are opened through no link and mounted by descriptor; places are made and
 * entered through no link.
 *
 *   --cgroup DIR         join (repeats)
 *   --cores 0,1,4        run on these
 *   --data-limit BYTES   RLIMIT_DATA of each process, where no cgroup limits memory
 *   --process-limit N    RLIMIT_NPROC, where no cgroup limits the number of processes
 *   --ids JOB:SPAN:NOBODY the job's range of ids on the host, and an id that owns nothing
 *   --idmap              mounts translate the owner that a source has to the job's first id
 *   --scratch DIR        has to be there; gets root/, u<n>/, w<n>/
 *   --ro-root            the host's folders read-only, no overlays
 *   --stage DIR          an empty file system there, and the mounts in it
 *   --become             the ids themselves, without a user namespace
 *   --ro FROM AT, --rw FROM AT, --share FROM AT (read-only, what is mounted below it too),
 *   --empty AT (a folder that hides what is there), --null AT (a file that does)
 *                        mounts, in this order
 *   --enter              into the namespaces of the process whose pidfd is descriptor 6
 *   --tty 24x80          a terminal of these rows and columns, made in there, is stdin, stdout and
 *                        stderr of the program; its other end goes out by the socket at
 *                        descriptor 4
 *   --filter             the program may make the system calls of seccomp.h only
 *   --filter-fd          the same as descriptor 8, for what the program starts
 *   --clear-env          of the environment only PATH, locale, time zone and proxies
 *   -- PROGRAM ARG...    with --scratch its path
 */
#ifndef BOX_H
#define BOX_H

#include "base/err.h"

/* Does not return when all goes well. Mistakes are said on stderr; exit code 120. */
int box_main(int argc, char **argv, struct err *err);
#define BOX_EXIT 120 /* of a box that could not be made */

/* A line on stderr, and why: the scratch folder cannot be used. */
#define BOX_MEMORY "box: writes go to memory: "

#define BOX_ENTER_FD 6
#define BOX_USERNS_FD 7  /* where a box with --ids leaves the job's user namespace for bwrap */
#define BOX_FILTER_FD 8  /* where --filter-fd leaves the filter of system calls for bwrap */
#define BOX_FDS 16       /* descriptors below it have their numbers */
#define BOX_PLACE "/tmp" /* where it mounts its scratch, as it cannot be reached by its path */

/* box_tty.c. Makes the terminal, sends its master end to the socket `to` and closes that. We lead a
 * session of our own then. */
#define BOX_TTY_FD 4
int box_tty_open(const char *size, int to, struct err *err) MUST_CHECK;
/* The other side of it: *out is the master end. */
int box_tty_receive(int from, int64_t wait_ms, int *out, struct err *err) MUST_CHECK;

#endif
