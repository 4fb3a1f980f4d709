/* fuzz_xet_shard.c - a shard that is read keeps every promise of its structs, all of it can be
 * touched, and it has no more records than what it was read from. */
#include "core/xet_shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void look(const struct xet_shard *s, size_t n)
{
	const size_t record = 48;
	size_t records = 3; /* the head, two ends */
	struct err err = {0};

	for (size_t i = 0; i < s->n_files; i++) {
		const struct xet_file *f = &s->file[i];
		uint64_t bytes = 0;

		for (size_t k = 0; k < f->n; k++) {
			const struct xet_term *t = &f->term[k];

			assert(t->start < t->end && t->end <= XET_XORB_CHUNKS_MAX);
			assert(t->bytes > 0 && t->bytes <= XET_XORB_UNPACKED_MAX);
			bytes += t->bytes;
			for (size_t x = 0; k < 16 && x < MIN(s->n_xorbs, (size_t)16); x++)
				if (xet_term_check(t, f->proof == NULL ? NULL : &f->proof[k],
				                   &s->xorb[x].chunks, &err) < 0)
					err_clear(&err);
		}
		assert(bytes == f->bytes);
		records += 1 + f->n + (f->proof != NULL ? f->n : 0) + f->has_sha256;
	}
	for (size_t i = 0; i < s->n_xorbs; i++) {
		const struct xet_xorb *x = &s->xorb[i];
		uint64_t bytes = 0;

		assert(x->chunks.n > 0 && x->chunks.n <= XET_XORB_CHUNKS_MAX);
		for (size_t k = 0; k < x->chunks.n; k++)
			bytes += x->chunks.bytes[k];
		assert(bytes == x->bytes && bytes <= XET_XORB_UNPACKED_MAX);
		(void)xet_xorb_hash(&x->chunks);
		records += 1 + x->chunks.n;
	}
	assert(records <= n / record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *copy = xmalloc(n + 1);
	struct xet_shard s;
	struct err err = {0};

	if (n > 0)
		memcpy(copy, data, n);
	if (xet_shard_read(a, str_n(copy, n), &s, &err) < 0)
		return 0;
	memset(copy, 0xa5, n); /* nothing of it is borrowed */
	look(&s, n);
	return 0;
}
