/* outage.h - since when something that others run does not answer, and how it was before. */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "base/base.h"

struct outage {
	int64_t since_ms;     /* wall; 0: it answers */
	uint64_t n, total_ms; /* outages that are over, and what they took together */
	int64_t last_ms;      /* what the last of them took */
};

/* What was just seen of it. True: an outage has begun (since_ms is now) or ended (last_ms). Under a
 * lock of the caller's. */
static inline bool outage_note(struct outage *o, bool away, int64_t now_ms)
{
	if (away == (o->since_ms != 0))
		return false;
	if (away) {
		o->since_ms = now_ms;
		return true;
	}
	o->n++;
	o->last_ms = MAX(now_ms - o->since_ms, INT64_C(1));
	o->total_ms += (uint64_t)o->last_ms;
	o->since_ms = 0;
	return true;
}

/* How long it has not answered; 0: it does. */
static inline int64_t outage_away_ms(const struct outage *o, int64_t now_ms)
{
	return o->since_ms != 0 ? MAX(now_ms - o->since_ms, INT64_C(1)) : 0;
}

#endif
