/*
 * engine.h - how a runner is launched on a node, found again and proven gone. A driver is one .c
 * file with one const struct engine_ops in the table of engine.c. Engines start runners; they know
 * nothing of databases or stores.
 *
 * A runner has a folder, which is its engine's: the engine makes it with the runner's start record
 * in it, and removes it when it is told to. Callers know its name, engine_dir(), and nothing that
 * is in it: what a runner knows it says to the server, and what a dead one had not said is said by
 * the sweep that engine_kill runs.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "io/proc.h"
#include "base/arena.h"
#include "base/cpu.h"

#include <stdatomic.h>

struct engine;

struct engine_launch {
	const char *attempt_id;
	uint32_t node_rank;
	const char *node;    /* placement */
	const char *dir;     /* engine_dir of it */
	const char *program; /* this binary */
	struct str start;    /* the start record, with the runner's token */
	int lock_fd; /* what the runner is to inherit as WIRE_LOCK_FD, where it is a child of
	              * ours; 0: nothing */
};

enum engine_status {
	ENGINE_RUNS,    /* the process is there */
	ENGINE_GONE,    /* proven: it ended, or the machine was restarted */
	ENGINE_UNKNOWN, /* cannot tell now: never a reason to end an attempt */
};

/* How a runner is ended, and what is known of its end. */
#define ENGINE_WORDS_MAX 400
struct engine_end {
	const char *program; /* this binary: it sweeps */
	const atomic_bool *cancel;
	bool past; /* its attempt is over: what it had to say of log and end is no news any more */
	bool told; /* it ended by itself and has said all: only what it held goes */
	bool last; /* what cannot be said is given up, all but its end; it is an error still */
	/* out: it left a record of its end, and the server refused it, in these words; "" = not so
	 */
	char refused[ENGINE_WORDS_MAX + 1];
	char words[ENGINE_WORDS_MAX + 1]; /* out, of a runner that is gone, whatever is returned:
	                                   * the last ones that it printed, "" = none */
};

/* `dir` is relative to the engine's home, `ref` may be "" where the server died before it could
 * store one. All are called by several threads at once, for a folder by one. */
struct engine_ops {
	const char *name;
	/* `home`: folder on this machine below which all that the engine keeps lies. */
	int (*open)(struct engine **out, const char *home, struct err *err);
	void (*close)(struct engine *e);
	/* Makes the folder, unless it is there, puts the start record into it in place of an older
	 * one, and starts the runner; *ref (in `a`) is what the other calls need after a restart of
	 * the server. */
	int (*launch)(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
	              struct err *err);
	/* Is it there? */
	int (*probe)(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
	             struct err *err);
	/* Kills the runner and all it started, and has the server told what the runner had not said
	 * yet, by the runner's own token: log, checkpoints, then its end if it left a record of it.
	 * Not there is success. It may take as long as there is something to send: ERR_CANCELED
	 * soon after *cancel; ERR_BUSY when not all could be brought yet: ask again. */
	int (*kill)(struct engine *e, const char *ref, const char *dir, struct engine_end *end,
	            struct err *err);
	/* Tells a runner that outlived its server where the next one is. It may be gone: success.
	 */
	int (*address)(struct engine *e, const char *dir, const char *url, struct err *err);
	/* Removes the folder of a runner that is gone. Not there is success. */
	int (*release)(struct engine *e, const char *dir, struct err *err);
	/* Calls back for each folder there is, by its `dir`, at most ENGINE_EACH_MAX. */
	int (*each)(struct engine *e, void (*found)(void *arg, const char *dir), void *arg,
	            struct err *err);
};
#define ENGINE_EACH_MAX 100000
#define ENGINE_DIRS "runs" /* below its home; one level: "runs/<attempt>-<rank>" */

struct engine {
	const struct engine_ops *ops;
};

/* The folder of an attempt's node, and the attempt of a folder. */
char *engine_dir(struct arena *a, const char *attempt_id, uint32_t node_rank) MUST_CHECK;
const char *engine_dir_attempt(struct arena *a, const char *dir) MUST_CHECK;

int engine_open(struct engine **out, const char *name, const char *home,
                struct err *err) MUST_CHECK;
void engine_close(struct engine *e);
int engine_launch(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
                  struct err *err) MUST_CHECK;
int engine_probe(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
                 struct err *err) MUST_CHECK;
int engine_kill(struct engine *e, const char *ref, const char *dir, struct engine_end *end,
                struct err *err) MUST_CHECK;
int engine_address(struct engine *e, const char *dir, const char *url, struct err *err) MUST_CHECK;
int engine_release(struct engine *e, const char *dir, struct err *err) MUST_CHECK;
int engine_each(struct engine *e, void (*found)(void *arg, const char *dir), void *arg,
                struct err *err) MUST_CHECK;

/* The machine's resources: CPUs and memory that this process may use (including cgroup and affinity
 * limits), GPUs by NVML through dlopen. */
#define INVENTORY_GPUS_MAX 64
struct inventory {
	uint32_t cpu_milli;
	uint64_t memory_bytes;
	struct inventory_gpu {
		char uuid[64], name[96], type[24]; /* type: H100, L4... as in spec_gpu_types */
		uint64_t memory_bytes;
	} gpu[INVENTORY_GPUS_MAX];
	size_t n_gpus;
	bool declared;
	char cpu[CPU_KIND_CAP]; /* "x86-64-v4-3fa9": code that was made for one is good for all of
	                           the same */
};
/* declared: "H100:2" replaces what NVML finds; NULL or "" = look. No driver, or one that does not
 * work: no GPUs, and a warning in the log. */
int inventory_read(struct inventory *out, const char *declared, struct err *err) MUST_CHECK;

#endif
