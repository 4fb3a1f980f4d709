/* arena.c - bump allocator in growing blocks. */
#include "base/arena.h"

#define BLOCK_FIRST ((size_t)4 << 10)
#define BLOCK_MOST ((size_t)1 << 20)

struct block {
	struct block *next;
	size_t cap, used;
	_Alignas(max_align_t) char bytes[];
};

struct arena {
	struct block *head; /* newest first */
};

struct arena *arena_new(void)
{
	return xcalloc(1, sizeof(struct arena));
}

static void drop(struct block *b)
{
	while (b != NULL) {
		struct block *next = b->next;

		free(b);
		b = next;
	}
}

void arena_free(struct arena *a)
{
	if (a == NULL)
		return;
	drop(a->head);
	free(a);
}

void arena_reset(struct arena *a)
{
	drop(a->head);
	a->head = NULL;
}

size_t arena_bytes(const struct arena *a)
{
	size_t n = 0;

	for (const struct block *b = a->head; b != NULL; b = b->next)
		n += sizeof(*b) + b->cap;
	return n;
}

void *arena_alloc(struct arena *a, size_t n)
{
	const size_t align = _Alignof(max_align_t);
	struct block *b = a->head;
	void *out;

	assert(n < SIZE_MAX / 2);
	n = (MAX(n, (size_t)1) + align - 1) & ~(align - 1);
	if (b == NULL || b->cap - b->used < n) {
		size_t cap = b == NULL ? BLOCK_FIRST : MIN(b->cap * 2, BLOCK_MOST);

		cap = MAX(cap, n);
		b = xmalloc(sizeof(*b) + cap);
		b->cap = cap;
		b->used = 0;
		b->next = a->head;
		a->head = b;
	}
	out = b->bytes + b->used;
	b->used += n;
	memset(out, 0, n);
	return out;
}

void *arena_array(struct arena *a, size_t n, size_t each)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, each, &bytes))
		abort();
	return arena_alloc(a, bytes);
}

char *arena_strz(struct arena *a, struct str s)
{
	char *out = arena_alloc(a, s.n + 1);

	if (s.n > 0)
		memcpy(out, s.p, s.n);
	return out;
}

char *arena_cstr(struct arena *a, const char *s)
{
	return s == NULL ? NULL : arena_strz(a, str_of(s));
}

struct str arena_str(struct arena *a, struct str s)
{
	return (struct str){arena_strz(a, s), s.n};
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap, again;
	char *out;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	assert(n >= 0);
	out = arena_alloc(a, (size_t)n + 1);
	(void)vsnprintf(out, (size_t)n + 1, fmt, again);
	va_end(again);
	return out;
}
