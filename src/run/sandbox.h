/*
 * sandbox.h - where a job's commands run: probe, start, signal, wait, kill, enter. Three drivers:
 * bwrap (with an overlay of the host's root, else with the root read-only), podman for jobs that
 * name an image, plain where nothing works. What each one enforces, and what not, it says.
 *
 * Which one is chosen once, when the server starts, by really starting each (sandbox_probe). A job
 * runs in that one or not at all: whatever makes it fail for one job is no reason for a weaker one.
 *
 * Starting makes everything and leaves two small shells, so that a sandbox which does not work is
 * found out before the job is ready. The inner one waits for its script on stdin and runs the
 * commands; the script comes by pipe: secrets are in no argument list. The outer one, the init,
 * waits for the inner one, however that ends, and then to be let go: until then all that the
 * commands left behind lives. They report on descriptor 3: "ready", "run N", "code CODE" of the
 * commands, and the init "end CODE".
 *
 * A command that is entered beside the job's own is started the same way, but for its script, which
 * comes by descriptor 3: its stdin is its own. With a terminal, bwrap and plain make one inside and
 * hand it over; podman makes one inside too and passes on what ours, in front of it, is given.
 *
 * sandbox_start() must be called by a thread that lives as long as the sandbox: when it ends (or
 * the runner is killed), the kernel kills the tree.
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#include "io/proc.h"
#include "run/cgroup.h"
#include "run/confine.h"
#include "run/ids.h"
#include "run/mounts.h"

#define SANDBOX_SAYS_MAX 1000
#define SANDBOX_READY_MS 60000 /* from start to "ready" */
#define SANDBOX_HANGUP_MS 5000 /* from SIGHUP of an entered command to SIGKILL */
#define SANDBOX_SCRIPT_MAX ((size_t)64 << 20)

struct sandbox_spec {
	const char *dir;        /* attempt folder */
	const char *name;       /* unique on this machine, of groups and containers */
	const char *kind;       /* one of sandbox_kinds; of a job with an image always podman */
	const char *image;      /* its id; NULL: the host's root */
	const char *image_name; /* as the job names it */
	const char *image_path; /* its PATH; NULL: it has none */
	const char *image_workdir;
	int image_root;      /* its files, of image_keeper.h; 0: podman shows them */
	const char *program; /* this binary, where sandbox-exec cannot be run from memory */
	const struct mounts *mounts;
	const struct wire_gpu *gpus;
	size_t n_gpus;
	struct cgroup_limits limits;
	const char *cores; /* "0,1,4", "" or NULL: all */
	unsigned n_cores;
	struct ids ids;                  /* whose ids its processes have; off: the runner's own */
	const struct confined *confined; /* NULL: the runner is not */
	bool volume_limited;    /* the file system holds the checkpoint folder to its size */
	bool need_mount_points; /* there are mounts that plain cannot make */
};

struct sandbox;

struct sandbox_ops {
	const char *name;
	bool images, host;     /* what it can show as "/" */
	bool has_mount_points; /* mounts are where the job wants them */
	/* Spawns s->proc with the given ends as 0..3. `level` is of its row in sandbox_kinds. */
	int (*start)(struct sandbox *s, int level, int in, int out, int err_fd, int status,
	             struct err *err);
	/* After "ready": finds s->init, s->shell. May be NULL: both are s->proc. */
	int (*find)(struct sandbox *s, struct err *err);
	/* Arguments to put before "sh -c ..." to run it inside. In `a`, NULL-terminated. tty: NULL,
	 * or the size for `--tty` of sandbox-exec. */
	const char **(*enter)(struct sandbox *s, struct arena *a, const char *tty);
	bool remote; /* what `enter` starts is a client: the command is no descendant of it */
	/* Ends what killing processes does not. May be NULL. */
	void (*clean)(struct sandbox *s);
};

struct sandbox {
	const struct sandbox_ops *ops;
	const struct sandbox_spec *spec;
	struct arena *a;
	struct proc proc;   /* our child */
	const char *upper;  /* what a container writes over its image; NULL: none, or not known */
	pid_t init, shell;  /* on the host: whose death ends all; what waits for the commands */
	pid_t group;        /* process group of the commands */
	int raw;            /* how our child ended, once it did: 0-255, 128 + signal */
	int init_fd;        /* pidfd of init, -1 = none */
	int shell_fd;       /* pidfd of shell, -1 = none */
	int in_fd;          /* script, then open as long as the runner lives */
	int status_fd;      /* what the init reports */
	int out_fd, err_fd; /* the commands' output */
	int info_fd;        /* bwrap's, -1 = none */
	struct buf status;  /* of an unfinished line */
	int command;        /* index of the one that runs, -1 = none yet */
	int said;           /* the code of the commands, as their shell said it, -1 = it did not */
	bool ended;         /* the init said "end" */
	bool let_go;        /* the init was told to go */
	int64_t gone_ms;    /* when the shell was seen to be gone, 0 = it was not */
	int code;           /* how the commands ended */
	bool killed;
	bool clean_failed;        /* a driver could not remove what it made */
	uint64_t oom_kills, peak; /* of the cgroup, taken before it went */
	bool oom;                 /* podman said so; the cgroup's counter says it elsewhere */
	struct cgroup cgroup;
	const struct confine_group *made; /* where it comes from; NULL: made here */
	char says[SANDBOX_SAYS_MAX];      /* one line for the job's log */
	char notes[SANDBOX_SAYS_MAX];     /* what it does otherwise than it should; "" = nothing */
};

int sandbox_start(struct sandbox **out, const struct sandbox_spec *spec,
                  struct err *err) MUST_CHECK;
/* The script, once: its commands start. */
int sandbox_go(struct sandbox *s, struct str script, struct err *err) MUST_CHECK;
/* The script of an environment and commands: one shell, in order, stops at the first failure. */
struct sandbox_script {
	const struct wire_env *env;
	size_t n_env;
	const char *workdir; /* NULL: where the sandbox begins */
	const char *const *commands;
	size_t n_commands;
	struct sandbox_link {        /* made before the first command; at NULL: none */
		const char *at, *to; /* `to` is relative to the folder of `at`, and made too */
	} link;
};
void sandbox_script(struct sandbox *s, const struct sandbox_script *what, struct buf *out);
/* Reads what the init reported, without waiting. */
void sandbox_poll(struct sandbox *s);
/* After "end": the init goes, and with it what is left. A container stays until sandbox_kill(). */
void sandbox_let_go(struct sandbox *s);
/* Our child has ended: 0 = not yet. *code: 0-255, 128 + signal when it was killed. */
bool sandbox_ended(struct sandbox *s, int *code);
/* To the commands' process group, not to the init. */
void sandbox_signal(struct sandbox *s, int sig);
/* The whole tree; true when it is proven that nothing is left. */
bool sandbox_kill(struct sandbox *s);
void sandbox_close(struct sandbox *s); /* kills what is left, removes groups; NULL is fine */

/* sandbox_enter.c: a command inside, beside the job's own. */
struct sandbox_entry {
	const struct wire_env *env;
	size_t n_env;
	const char *workdir;
	const struct wire_exec *what;
};
struct sandbox_inside {
	struct proc proc; /* ends with it, with its exit code */
	int in_fd;        /* to its stdin or terminal, does not block; -1 = stdin is empty */
	int out_fd;       /* from its stdout or terminal */
	int err_fd;       /* from its stderr, -1 = a terminal */
	int kill_fd;      /* -1, or: what closes it without a word takes the command along */
	bool tty;
};
int sandbox_enter(struct sandbox *s, const struct sandbox_entry *e, struct sandbox_inside *out,
                  struct err *err) MUST_CHECK;
void sandbox_inside_size(struct sandbox_inside *in, uint32_t rows, uint32_t columns);
/* SIGHUP to all of its session. `now`: SIGKILL. */
void sandbox_inside_end(struct sandbox_inside *in, bool now);
void sandbox_inside_done(struct sandbox_inside *in); /* after proc has ended: closes */

/* Removes what a killed runner left behind: its group, its container. */
int sandbox_sweep(const char *name, const char *dir, struct err *err) MUST_CHECK;
/* Of it, the groups that cgroup_save() wrote to this file, and all processes in them. */
int sandbox_sweep_groups(const char *name, const char *file, struct err *err) MUST_CHECK;
/* Tries the kinds that the setting --sandbox allows ("auto", "bwrap", "podman", "plain"), best
 * first, in the data folder of a server; as JSON: "kind" (null: none works), its words, why better
 * ones do not; of a root runner "ids", how jobs get ids of the pool (--job-ids), or "ids_taken",
 * why they cannot. */
void sandbox_probe(const char *program, const char *data, const char *want, const char *pool,
                   struct buf *out);

/* A file of this name in the attempt's folder says that there is, or was, a container. */
#define SANDBOX_CONTAINER "container"
#define SANDBOX_CGROUPS "cgroups" /* where its groups are, see cgroup_save */

/* All that there are, best first; `want`: which value of --sandbox takes it, beside "auto". */
struct sandbox_kind {
	const char *name, *want;
	const struct sandbox_ops *ops;
	int level;
};
#define SANDBOX_KINDS 4
extern const struct sandbox_kind sandbox_kinds[SANDBOX_KINDS];

/* For drivers. */
#define SANDBOX_FABRIC "/dev/infiniband" /* of jobs without GPUs too: MPI and gloo use it */
/* How much memory a process may pin here: "unlimited", or a size. */
const char *sandbox_memlock(const struct sandbox *s, struct arena *a);
/* Half of the machine's memory, as the kernel gives a tmpfs. */
uint64_t sandbox_shm_bytes(void);
/* A podman that ends soon: what it prints. Its words, when it fails. */
int sandbox_podman_ask(const char *const *argv, struct buf *out, struct err *err) MUST_CHECK;
/* ms: the longest that one call of podman may take. */
int sandbox_sweep_podman(const char *name, int64_t ms, struct err *err) MUST_CHECK;
extern const struct sandbox_ops sandbox_bwrap, sandbox_podman, sandbox_plain;
extern const struct sandbox_ops sandbox_container; /* podman's, of a runner that gave up root */

const char **sandbox_init_argv(struct arena *a, const char **front, size_t n_front);
/* The same with another first line than the init's. */
const char **sandbox_shell_argv(struct arena *a, const char **front, size_t n_front,
                                const char *body);
/* The arguments of sandbox-exec (sandbox_exec.h) in front of a program's: its groups and ids, then
 * what a driver puts there. */
struct sandbox_args {
	const char **v;
	size_t n, cap;
};
/* Bytes of data that a process of the job may have where no cgroup limits the memory of all, 0 =
 * no such limit. More than the job asked for: memory that is reserved and not used counts too. */
uint64_t sandbox_data_limit(const struct sandbox *s);
/* Processes that the job's user may have where no cgroup limits them, 0 = no such limit. */
uint64_t sandbox_process_limit(const struct sandbox *s);
/* How the disk is limited, for `says`. */
const char *sandbox_disk_words(const struct sandbox *s);
/* Words about memory, CPU and processes for `says`: what is limited and how, and what is not. */
void sandbox_say_limits(const struct sandbox *s, struct buf *has, struct buf *lacks);
void sandbox_args_more(struct arena *arena, struct sandbox_args *a,
                       size_t more); /* room for that many */
/* The line of a sandbox whose limits are ours: what it is, then what is enforced and what is not.
 */
void sandbox_say(struct sandbox *s, const char *what);
void sandbox_args_begin(const struct sandbox *s, struct arena *a, struct sandbox_args *out);
void sandbox_args_put(struct sandbox_args *a, const char *word);
void sandbox_args_put2(struct sandbox_args *a, const char *x, const char *y);
void sandbox_args_put3(struct sandbox_args *a, const char *x, const char *y, const char *z);
/* The flag of sandbox-exec for what is shown of the host. */
const char *sandbox_args_kind(const struct mount *m);
void sandbox_args_mounts(struct sandbox_args *a, const struct mounts *m);
const char **sandbox_args_end(struct sandbox_args *a,
                              size_t *n); /* NULL-terminated; n may be NULL */
const char **sandbox_args_enter(struct sandbox *s, struct arena *a, const char *tty);
/* Arguments of `podman` and of `podman run` that are the same in both of its drivers. */
void sandbox_podman_runtime(struct sandbox_args *a);
void sandbox_podman_fixed(struct sandbox_args *a);
void sandbox_podman_devices(struct sandbox *s, struct sandbox_args *a);
int sandbox_own(const struct sandbox *s, int fd, struct err *err) MUST_CHECK; /* a pipe's end */
/* These, and those by which sandbox-exec joins groups that root opened. */
size_t sandbox_fds(const struct sandbox *s, const struct proc_fd *fds, size_t n,
                   struct proc_fd out[PROC_FDS_MAX]);
int sandbox_spawn(struct sandbox *s, const char *const *argv, const struct proc_fd *fds, size_t n,
                  struct err *err) MUST_CHECK;

#endif
