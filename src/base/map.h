/* map.h - text keys to pointers, over uthash. Keys are copied; values belong to the caller. */
#ifndef MAP_H
#define MAP_H

#include "base/buf.h"

struct map;

struct map *map_new(void) MUST_CHECK;
void map_free(struct map *m); /* NULL is fine; values are left alone */
DEFINE_CLEANUP(struct map, map_free)
#define AUTO_MAP CLEANUP(map_free_p)

void *map_get(const struct map *m, struct str key);        /* NULL = not there */
void *map_set(struct map *m, struct str key, void *value); /* the old value, or NULL */
void *map_del(struct map *m, struct str key);              /* the old value, or NULL */
size_t map_count(const struct map *m);
/* Calls fn for each entry in the order of insertion; fn may delete the entry it is given. */
void map_each(struct map *m, void (*fn)(struct str key, void *value, void *arg), void *arg);

#endif
