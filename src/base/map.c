/* map.c - text keys to pointers, over uthash. */
#include "base/map.h"

#define HASH_NONFATAL_OOM 0
#define HASH_FUNCTION(keyptr, keylen, hashv) HASH_SAX(keyptr, keylen, hashv)
#define uthash_fatal(msg) abort()
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-qual"
#include <uthash.h>

struct entry {
	char *key;
	size_t key_n;
	void *value;
	UT_hash_handle hh;
};

struct map {
	struct entry *head;
};

struct map *map_new(void)
{
	return xcalloc(1, sizeof(struct map));
}

static void drop(struct map *m, struct entry *e)
{
	HASH_DELETE(hh, m->head, e);
	free(e->key);
	free(e);
}

void map_free(struct map *m)
{
	struct entry *e, *next;

	if (m == NULL)
		return;
	HASH_ITER(hh, m->head, e, next)
	{
		drop(m, e);
	}
	free(m);
}

static struct entry *find(const struct map *m, struct str key)
{
	struct entry *e = NULL;

	HASH_FIND(hh, m->head, key.p, key.n, e);
	return e;
}

void *map_get(const struct map *m, struct str key)
{
	const struct entry *e = find(m, key);

	return e != NULL ? e->value : NULL;
}

void *map_set(struct map *m, struct str key, void *value)
{
	struct entry *e = find(m, key);
	void *old = NULL;

	if (e != NULL) {
		old = e->value;
		e->value = value;
		return old;
	}
	e = xcalloc(1, sizeof(*e));
	e->key = str_dup(key);
	e->key_n = key.n;
	e->value = value;
	HASH_ADD_KEYPTR(hh, m->head, e->key, e->key_n, e);
	return NULL;
}

void *map_del(struct map *m, struct str key)
{
	struct entry *e = find(m, key);
	void *old;

	if (e == NULL)
		return NULL;
	old = e->value;
	drop(m, e);
	return old;
}

size_t map_count(const struct map *m)
{
	return HASH_COUNT(m->head);
}

void map_each(struct map *m, void (*fn)(struct str key, void *value, void *arg), void *arg)
{
	struct entry *e, *next;

	HASH_ITER(hh, m->head, e, next)
	{
		fn(str_n(e->key, e->key_n), e->value, arg);
	}
}
#pragma GCC diagnostic pop
