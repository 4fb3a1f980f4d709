/* load.h - the files of a checkpoint, from the object store into a folder of the attempt. */
#ifndef LOAD_H
#define LOAD_H

#include "run/ids.h"
#include "store/objects/objstore.h"

#define LOAD_FILES_AT_ONCE 4
#define LOAD_STREAMS 4 /* of each, from a store that is elsewhere */

struct load_job {
	struct objstore *objects;
	const struct ids *ids; /* who owns what is made */
	int root;              /* what `dir` is below */
	const char *dir;       /* plain */
	const char *prefix;    /* of the keys */
	const struct ckpt *ckpt;
	void (*progress)(void *arg, uint64_t done); /* from the caller's thread */
	void *arg;
	const atomic_bool *cancel;
};

/* Every file is verified. The first failure ends all of it. */
int load_files(const struct load_job *job, struct err *err) MUST_CHECK;

#endif
