/*
 * box.h - the step between the runner and bwrap: `stoker runner --box ... -- bwrap ...`.
 *
 * A process of its own, started by exec so that it holds nothing of the runner's memory (secrets),
 * joins the job's cgroups, makes a mount namespace (and a user namespace when it is not root),
 * builds in it a writable view of the host's root, and becomes bwrap. bubblewrap 0.8 cannot make
 * overlays.
 *
 * The view: a plain folder `root` below the scratch folder stands for "/". Each folder of the
 * host's root is an overlay in it: lower the host's, upper in scratch, so that writes vanish with
 * it. Whole "/" as one lower layer would be simpler, but the kernel refuses to clone a mount that
 * has locked mounts on it, which is what an ordinary user's namespace always sees below "/". A
 * folder with mounts inside is made anew and its entries are treated one by one.
 *
 *   --cgroup DIR    join (repeats)
 *   --userns        make a user namespace first (uid and gid become 0 in it)
 *   --scratch DIR   has to be there; gets root/, u<n>/, w<n>/
 *   --point PATH    a folder that must exist in the view (repeats); --point-file PATH: a file
 *   --skip PATH     left empty in the view (repeats)
 *   --enter PID     instead of all these but --cgroup: enter that process's namespaces
 *   --tty 24x80     a terminal of these rows and columns, made in there, is stdin, stdout and
 *                   stderr of the program; its other end goes out by the socket at descriptor 4
 *   -- PROGRAM ARG...
 */
#ifndef BOX_H
#define BOX_H

#include "base/err.h"

/* Does not return when all goes well. Mistakes are said on stderr; exit code 120. */
int box_main(int argc, char **argv, struct err *err);
#define BOX_EXIT 120 /* of a box that could not be made */

/* box_tty.c. Makes the terminal, sends its master end to the socket `to` and closes that. We lead a
 * session of our own then. */
#define BOX_TTY_FD 4
int box_tty_open(const char *size, int to, struct err *err) MUST_CHECK;
/* The other side of it: *out is the master end. */
int box_tty_receive(int from, int64_t wait_ms, int *out, struct err *err) MUST_CHECK;

#endif
