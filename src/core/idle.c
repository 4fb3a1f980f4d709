/* idle.c - since when a node does nothing; see idle.h. */
#include "core/idle.h"

void idle_begin(struct idle *i, int64_t limit_ms, int64_t now_ms)
{
	*i = (struct idle){.limit_ms = limit_ms, .since_ms = now_ms};
}

enum idle_news idle_look(struct idle *i, bool busy, int64_t worked_ms, int64_t now_ms)
{
	int64_t since = busy ? now_ms : MAX(worked_ms, i->since_ms);
	bool was_whole = i->whole;

	if (i->limit_ms == 0)
		return IDLE_NOTHING;
	if (since != i->since_ms) {
		i->since_ms = since;
		i->half = i->whole = false;
	}
	if (i->half && !i->whole && now_ms - since >= i->limit_ms) {
		i->whole = true;
		return IDLE_WHOLE;
	}
	if (was_whole && !i->whole)
		return IDLE_WORKS;
	if (!i->half && now_ms - since >= i->limit_ms / 2) {
		i->half = true;
		return IDLE_HALF;
	}
	return IDLE_NOTHING;
}
