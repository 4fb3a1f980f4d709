/* pairs.c - a hash table of numbers, open addressing; see pairs.h. */
#include "format/pairs.h"

#define FIRST 64
#define PROBES_MAX 512 /* only keys that were made to collide need as many */

void pairs_done(struct pairs *t)
{
	free(t->at);
	memset(t, 0, sizeof(*t));
}

/* Where the key is, or would be; NULL: nowhere. */
static struct pair *place(const struct pairs *t, uint64_t key)
{
	uint64_t h = key * 0x9e3779b97f4a7c15u;
	size_t i = (size_t)(h ^ h >> 32) & (t->cap - 1);

	for (int probes = 0; probes < PROBES_MAX; probes++) {
		if (t->at[i].value == PAIRS_NONE || t->at[i].key == key)
			return &t->at[i];
		i = (i + 1) & (t->cap - 1);
	}
	return NULL;
}

static bool grow(struct pairs *t)
{
	bool all = true;
	struct pairs old = *t;

	t->cap = old.cap == 0 ? FIRST : old.cap * 2;
	t->at = xmalloc(t->cap * sizeof(*t->at));
	for (size_t i = 0; i < t->cap; i++)
		t->at[i] = (struct pair){0, PAIRS_NONE};
	for (size_t i = 0; i < old.cap; i++) {
		struct pair *p = NULL;

		if (old.at[i].value == PAIRS_NONE)
			continue;
		p = place(t, old.at[i].key);
		if (p != NULL)
			*p = old.at[i];
		else
			all = false;
	}
	free(old.at);
	return all;
}

uint64_t pairs_get(const struct pairs *t, uint64_t key)
{
	const struct pair *p = t->cap == 0 ? NULL : place(t, key);

	return p == NULL ? PAIRS_NONE : p->value;
}

bool pairs_set(struct pairs *t, uint64_t key, uint64_t value)
{
	struct pair *p = NULL;

	assert(value != PAIRS_NONE);
	if (t->n * 2 >= t->cap && (t->n >= PAIRS_MAX || !grow(t)))
		return false;
	p = place(t, key);
	if (p == NULL)
		return false;
	t->n += p->value == PAIRS_NONE;
	*p = (struct pair){key, value};
	return true;
}

uint64_t pairs_key(struct str text)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < text.n; i++)
		h = (h ^ (uint8_t)text.p[i]) * 0x100000001b3u;
	return h;
}
