/* arena.h - bump allocator: everything a request or a step allocates goes away with it. */
#ifndef ARENA_H
#define ARENA_H

#include "base/buf.h"

struct arena; /* not thread-safe: one owner at a time */

struct arena *arena_new(void) MUST_CHECK;
void arena_free(struct arena *a); /* NULL is fine */
void arena_reset(struct arena *a);
size_t arena_bytes(const struct arena *a); /* of memory that it holds */
DEFINE_CLEANUP(struct arena, arena_free)
#define AUTO_ARENA CLEANUP(arena_free_p)

/* Zeroed, aligned for anything. Aborts when memory is gone. */
void *arena_alloc(struct arena *a, size_t n) MUST_CHECK;
#define ARENA_NEW(a, type) ((type *)arena_alloc(a, sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_array(a, n, sizeof(type)))
void *arena_array(struct arena *a, size_t n, size_t each) MUST_CHECK; /* overflow aborts */
char *arena_cstr(struct arena *a, const char *s);                     /* NULL stays NULL */
char *arena_strz(struct arena *a, struct str s);                      /* copy with NUL */
struct str arena_str(struct arena *a, struct str s);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);

#endif
