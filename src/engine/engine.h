/*
 * engine.h - how a runner is launched on a node, found again and proven gone. A driver is one .c
 * file with one const struct engine_ops in the table of engine.c. Engines start runners; they know
 * nothing of databases or stores.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "io/proc.h"
#include "base/arena.h"

#include <stdatomic.h>

struct engine;

struct engine_launch {
	const char *attempt_id;
	uint32_t node_rank;
	const char *node;    /* placement */
	const char *dir;     /* attempt folder: launch.json is there already */
	const char *program; /* this binary */
};

enum engine_status {
	ENGINE_RUNS,    /* the process is there */
	ENGINE_GONE,    /* proven: it ended, or the machine was restarted */
	ENGINE_UNKNOWN, /* cannot tell now: never a reason to end an attempt */
};

struct engine_ops {
	const char *name;
	int (*open)(struct engine **out, const char *options, struct err *err);
	void (*close)(struct engine *e);
	/* Starts the runner; *ref (in `a`) is what the other calls need after a restart of the
	 * server. */
	int (*launch)(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
	              struct err *err);
	int (*probe)(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
	             struct err *err);
	/* Kills the runner and all it started. Not there is success. It may take a minute:
	 * ERR_CANCELED soon after *cancel. */
	int (*kill)(struct engine *e, const char *ref, const char *dir, const atomic_bool *cancel,
	            struct err *err);
};

struct engine {
	const struct engine_ops *ops;
};

int engine_open(struct engine **out, const char *name, const char *options,
                struct err *err) MUST_CHECK;
void engine_close(struct engine *e);
int engine_launch(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
                  struct err *err) MUST_CHECK;
int engine_probe(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
                 struct err *err) MUST_CHECK;
int engine_kill(struct engine *e, const char *ref, const char *dir, const atomic_bool *cancel,
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
};
/* declared: "H100:2" replaces what NVML finds; NULL or "" = look. No driver, or one that does not
 * work: no GPUs, and a warning in the log. */
int inventory_read(struct inventory *out, const char *declared, struct err *err) MUST_CHECK;

#endif
