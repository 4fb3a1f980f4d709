/* lru.c - two lists, oldest first: what was used once, and what was used again. What was used once
 * goes first, so a scan pushes out only itself; what was used again may fill four fifths. */
#include "core/lru.h"

#define KEPT_PERCENT 80 /* of the budget, for what was used again */

struct entry {
	struct entry *older, *newer;
	char *key;
	uint64_t bytes;
	int64_t used_ms;
	bool again;
};

struct list {
	struct entry *oldest, *newest;
	uint64_t bytes;
	size_t n;
};

struct lru {
	struct map *by_key;
	struct list once, again;
	uint64_t budget;
};

struct lru *lru_new(uint64_t budget_bytes)
{
	struct lru *l = xcalloc(1, sizeof(*l));

	l->by_key = map_new();
	l->budget = budget_bytes;
	return l;
}

static struct list *list_of(struct lru *l, const struct entry *e)
{
	return e->again ? &l->again : &l->once;
}

static void unlink_entry(struct list *list, struct entry *e)
{
	if (e->older != NULL)
		e->older->newer = e->newer;
	else
		list->oldest = e->newer;
	if (e->newer != NULL)
		e->newer->older = e->older;
	else
		list->newest = e->older;
	e->older = e->newer = NULL;
	list->bytes -= e->bytes;
	list->n--;
}

/* In order of use: after a restart entries come in any order; in life they are the newest. */
static void link_entry(struct list *list, struct entry *e)
{
	struct entry *before = list->newest;

	while (before != NULL && before->used_ms > e->used_ms)
		before = before->older;
	e->older = before;
	e->newer = before != NULL ? before->newer : list->oldest;
	if (e->newer != NULL)
		e->newer->older = e;
	else
		list->newest = e;
	if (before != NULL)
		before->newer = e;
	else
		list->oldest = e;
	list->bytes += e->bytes;
	list->n++;
}

/* The least recently used favoured entries become ordinary ones. */
static void demote(struct lru *l)
{
	while (l->again.n > 1 && l->again.bytes > l->budget / 100 * KEPT_PERCENT) {
		struct entry *e = l->again.oldest;

		unlink_entry(&l->again, e);
		e->again = false;
		link_entry(&l->once, e);
	}
}

static void entry_free(struct entry *e)
{
	free(e->key);
	free(e);
}

void lru_free(struct lru *l)
{
	if (l == NULL)
		return;
	for (struct entry *e = l->once.oldest, *next; e != NULL; e = next) {
		next = e->newer;
		entry_free(e);
	}
	for (struct entry *e = l->again.oldest, *next; e != NULL; e = next) {
		next = e->newer;
		entry_free(e);
	}
	map_free(l->by_key);
	free(l);
}

void lru_add(struct lru *l, struct str key, uint64_t bytes, int64_t used_ms)
{
	struct entry *e = map_get(l->by_key, key);

	if (e != NULL) {
		struct list *list = list_of(l, e);

		list->bytes = list->bytes - e->bytes + bytes;
		e->bytes = bytes;
		lru_touch(l, key, used_ms);
		return;
	}
	e = xcalloc(1, sizeof(*e));
	e->key = str_dup(key);
	e->bytes = bytes;
	e->used_ms = used_ms;
	(void)map_set(l->by_key, key, e);
	link_entry(&l->once, e);
}

/* A use that is not later than the one known is the same use, told twice. */
void lru_touch(struct lru *l, struct str key, int64_t now_ms)
{
	struct entry *e = map_get(l->by_key, key);

	if (e == NULL || now_ms <= e->used_ms)
		return;
	unlink_entry(list_of(l, e), e);
	e->used_ms = now_ms;
	e->again = true;
	link_entry(&l->again, e);
	demote(l);
}

void lru_remove(struct lru *l, struct str key)
{
	struct entry *e = map_del(l->by_key, key);

	if (e == NULL)
		return;
	unlink_entry(list_of(l, e), e);
	entry_free(e);
}

uint64_t lru_bytes(const struct lru *l)
{
	return l->once.bytes + l->again.bytes;
}

uint64_t lru_budget(const struct lru *l)
{
	return l->budget;
}

uint64_t lru_victims(struct lru *l, uint64_t need, int64_t newest_ms,
                     bool (*pinned)(struct str key, void *arg),
                     void (*victim)(struct str key, uint64_t bytes, void *arg), void *arg)
{
	uint64_t bytes = lru_bytes(l), room = l->budget - MIN(l->budget, bytes);
	uint64_t over = bytes - MIN(l->budget, bytes), named = 0;
	uint64_t want = need > room ? over + (need - room) : 0;
	struct entry *lists[] = {l->once.oldest, l->again.oldest};

	for (size_t i = 0; i < COUNT(lists); i++) {
		struct entry *next;

		for (struct entry *e = lists[i]; e != NULL && named < want; e = next) {
			next = e->newer; /* e may be removed */
			if (e->used_ms > newest_ms ||
			    (pinned != NULL && pinned(str_of(e->key), arg)))
				continue;
			named += e->bytes;
			victim(str_of(e->key), e->bytes, arg);
		}
	}
	return named;
}

static void check_list(const struct lru *l, const struct list *list, bool again)
{
	const struct entry *older = NULL;
	uint64_t bytes = 0;
	size_t n = 0;

	for (const struct entry *e = list->oldest; e != NULL; older = e, e = e->newer) {
		assert(e->older == older);
		assert(e->again == again);
		assert(older == NULL || older->used_ms <= e->used_ms);
		assert(map_get(l->by_key, str_of(e->key)) == e);
		bytes += e->bytes;
		n++;
	}
	assert(list->newest == older);
	assert(list->bytes == bytes);
	assert(list->n == n);
}

void lru_check(const struct lru *l)
{
	check_list(l, &l->once, false);
	check_list(l, &l->again, true);
	assert(map_count(l->by_key) == l->once.n + l->again.n);
}
