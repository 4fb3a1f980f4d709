/*
 * stage.h - everything a job needs on this node before its first command: code, weights,
 * checkpoints to load, cache folders, its image. In that order; a failure names its stage, and user
 * code has not run.
 */
#ifndef STAGE_H
#define STAGE_H

#include "core/spec.h"
#include "core/wire.h"
#include "run/confine.h"
#include "run/image_keeper.h"
#include "run/python.h"
#include "run/report.h"
#include "store/objects/objstore.h"

struct stage {
	unsigned magic;
#define STAGE_MAGIC 0x52535447U
	struct arena *a;
	const char *dir;
	const char *name, *program; /* of groups and containers; this binary */
	const struct wire_launch *launch;
	const struct job_spec *spec;
	struct report *report;
	struct logs *logs;
	const struct ids *ids; /* who owns what the job may write */
	const struct confined *confined;
	enum wire_stage at;       /* where it is, or failed */
	struct http_client *http; /* to a store that is elsewhere; NULL: it is a folder */
	struct objstore *objects;
	struct objstore *mirror;     /* what the machine has of the weights; NULL: nothing */
	struct image_keeper *images; /* taken as the next; NULL: podman is asked here */
	struct node *node; /* the node cache; taken from the caller, who may have started it */
	struct node_lease lease[SPEC_WEIGHTS_MAX]; /* held until stage_done: a mounted tree stays */
	const char *tree[SPEC_WEIGHTS_MAX];
	size_t n_leases;
	struct python python;                   /* held until stage_done too */
	const char *image;                      /* to run in, NULL: the host's root */
	const char *image_workdir, *image_path; /* its working directory, its PATH */
	const char *image_env;                  /* its variables, see image.h */
	bool podman_sets;                       /* them */
	int image_root[IMAGE_ROOTS];            /* its files, see image_keeper.h; 0: none */
};

/* The pointers above down to logs are set by the caller. Gives up with ERR_CANCELED when the report
 * says so. */
int stage_run(struct stage *st, struct err *err) MUST_CHECK;
void stage_done(struct stage *st);
/* A launch's object store. *http (freed behind the store; NULL is fine) and report, which has our
 * token, are used by one that is elsewhere or another process's. */
int stage_objects(struct objstore **out, struct http_client **http, const char *url,
                  struct report *report, struct err *err) MUST_CHECK;

/* What the machine itself has of the weights. NULL: nothing. *out is `objects`, where that is a
 * folder here; what is there already stays. */
int stage_mirror(struct objstore **out, struct objstore *objects, const struct wire_launch *l,
                 struct report *report, struct err *err) MUST_CHECK;

#endif
