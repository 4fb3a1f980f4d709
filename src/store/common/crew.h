/*
 * crew.h - a few threads take items in order; the caller's thread waits for them, tells about
 * progress and passes a cancel on. The first failure ends it.
 */
#ifndef CREW_H
#define CREW_H

#include "base/base.h"
#include "base/err.h"

#include <stdatomic.h>

#define CREW_THREADS_MAX 64
#define CREW_TICK_MS 100

struct crew_job {
	size_t n; /* items */
	unsigned threads;
	/* From any thread. `stop`: another one failed, or it was canceled. */
	int (*run)(void *arg, size_t i, const atomic_bool *stop, struct err *err);
	void (*tick)(void *arg); /* may be NULL; every CREW_TICK_MS and at the end, the caller's */
	void *arg;
	const atomic_bool *cancel; /* may be NULL */
};

/* One item's share of what all have done together. As `progress` of a transfer: `done` is what the
 * item has done so far, less than before when a range of it begins anew. */
struct crew_share {
	unsigned magic;
#define CREW_SHARE_MAGIC 0x53435257U
	_Atomic uint64_t *all;
	uint64_t told;
};
void crew_share_at(void *share, uint64_t done);

int crew_run(const struct crew_job *job, struct err *err) MUST_CHECK;

#endif
