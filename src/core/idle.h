/*
 * idle.h - limits.idle_gpu on one node: has nothing been done for so long? Nothing is: every GPU
 * below IDLE_SHARE at each look, and no byte of output. What is not known counts as work. Pure; the
 * runner looks, and the server ends the job once all of its nodes say so.
 */
#ifndef IDLE_H
#define IDLE_H

#include "base/base.h"

#define IDLE_SHARE 0.05   /* of a GPU's time: what a hung job's leftovers may take */
#define IDLE_PERCENT "5%" /* the same, for messages */
#define IDLE_LOOK_MS 1000 /* NVML's figure is of the last second at most: none is skipped */

struct idle {
	int64_t limit_ms; /* 0: nobody asks */
	int64_t since_ms; /* of the last work */
	bool half, whole; /* what was said since */
};

enum idle_news {
	IDLE_NOTHING, /* as before */
	IDLE_HALF,    /* half of the limit is over: to be said */
	IDLE_WHOLE,   /* all of it; never before half of it was said, however late a look is */
	IDLE_WORKS,   /* again, after IDLE_WHOLE */
};

void idle_begin(struct idle *i, int64_t limit_ms, int64_t now_ms);
/* worked_ms: when work was seen last, as far as that is known without this look; busy: seen now. */
enum idle_news idle_look(struct idle *i, bool busy, int64_t worked_ms, int64_t now_ms);

#endif
