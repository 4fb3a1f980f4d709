/* blake3.c - see blake3.h; the tree is hashed eight chunks at a time. */
#include "base/blake3.h"

#include "base/blake3_impl.h"

/* ---- eight at once ------------------------------------------------------------------------- */

/* A lane's words are taken as they lie in memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HAS_LANES 1

typedef uint32_t lanes __attribute__((vector_size(4 * BLAKE3_LANES)));

#define ZIP32_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define ZIP32_HIGH(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define ZIP64_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define ZIP64_HIGH(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define HALVES_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HALVES_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

/* Eight vectors: rows become columns. */
#define TRANSPOSE(x)                                                                               \
	do {                                                                                       \
		lanes s_[8], t_[8];                                                                \
		for (unsigned i_ = 0; i_ < 8; i_ += 2) {                                           \
			s_[i_] = ZIP32_LOW((x)[i_], (x)[i_ + 1]);                                  \
			s_[i_ + 1] = ZIP32_HIGH((x)[i_], (x)[i_ + 1]);                             \
		}                                                                                  \
		for (unsigned i_ = 0; i_ < 8; i_ += 4) {                                           \
			t_[i_] = ZIP64_LOW(s_[i_], s_[i_ + 2]);                                    \
			t_[i_ + 1] = ZIP64_HIGH(s_[i_], s_[i_ + 2]);                               \
			t_[i_ + 2] = ZIP64_LOW(s_[i_ + 1], s_[i_ + 3]);                            \
			t_[i_ + 3] = ZIP64_HIGH(s_[i_ + 1], s_[i_ + 3]);                           \
		}                                                                                  \
		for (unsigned i_ = 0; i_ < 4; i_++) {                                              \
			(x)[i_] = HALVES_LOW(t_[i_], t_[i_ + 4]);                                  \
			(x)[i_ + 4] = HALVES_HIGH(t_[i_], t_[i_ + 4]);                             \
		}                                                                                  \
	} while (0)

#define LANES_NAME lanes_any
#define LANES_TARGET
#include "base/blake3_lanes.h"
#undef LANES_NAME
#undef LANES_TARGET

#ifdef __x86_64__
#define LANES_NAME lanes_avx2
#define LANES_TARGET __attribute__((target("avx2")))
#include "base/blake3_lanes.h"
#undef LANES_NAME
#undef LANES_TARGET

/* Vectors as wide, but twice as many of them, and they rotate. */
#define LANES_NAME lanes_avx512
#define LANES_TARGET __attribute__((target("avx2,avx512f,avx512vl")))
#include "base/blake3_lanes.h"
#undef LANES_NAME
#undef LANES_TARGET
#endif
#endif

/* ---- ways ---------------------------------------------------------------------------------- */

static bool can_always(void)
{
	return true;
}

#ifdef __x86_64__
static bool can_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool can_avx512(void)
{
	return can_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512vl");
}
#endif

static const struct way {
	const char *name;
	bool (*works)(void); /* NULL: not made for this machine */
	blake3_lanes *lanes; /* NULL: one input after the other */
	size_t lanes_min;    /* inputs that are worth it */
} ways[BLAKE3_WAYS] = {
	{"words", can_always, NULL, 0},
#ifdef HAS_LANES
	{"lanes", can_always, lanes_any, 5},
#else
	{"lanes", NULL, NULL, 0},
#endif
#if defined(HAS_LANES) && defined(__x86_64__)
	{"avx2", can_avx2, lanes_avx2, 3},
	{"avx512", can_avx512, lanes_avx512, 2},
#else
	{"avx2", NULL, NULL, 0},
	{"avx512", NULL, NULL, 0},
#endif
};

const char *blake3_way_name(unsigned way)
{
	assert(way < BLAKE3_WAYS);
	return ways[way].name;
}

bool blake3_way_works(unsigned way)
{
	assert(way < BLAKE3_WAYS);
	return ways[way].works != NULL && ways[way].works();
}

/* ---- one at a time ------------------------------------------------------------------------- */

static uint32_t load32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store(const uint32_t h[8], uint8_t out[BLAKE3_LEN])
{
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; k < 4; k++)
			out[4 * i + k] = (uint8_t)(h[i] >> 8 * k);
}

static void compress(uint32_t h[8], const uint8_t block[BLAKE3_BLOCK], size_t len, uint64_t counter,
                     uint32_t flags)
{
	/* clang-format off */
	uint32_t m[16], v[16] = {
		h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
		IV0, IV1, IV2, IV3,
		(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)len, flags,
	};
	/* clang-format on */

	for (unsigned i = 0; i < 16; i++)
		m[i] = load32(block + 4 * (size_t)i);
	ROUNDS(v, m);
	for (unsigned i = 0; i < 8; i++)
		h[i] = v[i] ^ v[8 + i];
}

struct run {
	const struct way *way;
	uint32_t key[8], flags;
};

/* A chunk of any length. `root`: it is all there is. */
static void chunk(const struct run *r, const uint8_t *p, size_t n, uint64_t counter, uint32_t root,
                  uint8_t out[BLAKE3_LEN])
{
	uint8_t last[BLAKE3_BLOCK] = {0};
	uint32_t h[8], flags = r->flags | CHUNK_START;

	assert(n <= BLAKE3_CHUNK);
	memcpy(h, r->key, sizeof(h));
	for (; n > BLAKE3_BLOCK; n -= BLAKE3_BLOCK, p += BLAKE3_BLOCK) {
		compress(h, p, BLAKE3_BLOCK, counter, flags);
		flags = r->flags;
	}
	if (n > 0)
		memcpy(last, p, n);
	compress(h, last, n, counter, flags | CHUNK_END | root);
	store(h, out);
}

static void batch_one(const struct blake3_batch *b, size_t at, uint8_t *out)
{
	const uint8_t *p = b->in + at * b->blocks * BLAKE3_BLOCK;
	uint32_t h[8];

	memcpy(h, b->key, sizeof(h));
	for (size_t k = 0; k < b->blocks; k++)
		compress(h, p + k * BLAKE3_BLOCK, BLAKE3_BLOCK, b->counter + (b->counts ? at : 0),
		         b->flags | (k == 0 ? b->first : 0) | (k + 1 == b->blocks ? b->last : 0));
	store(h, out);
}

static void batch_run(const struct way *way, const struct blake3_batch *b, uint8_t *out)
{
	size_t at = 0;

	for (; way->lanes != NULL && b->n - at >= way->lanes_min;
	     at += MIN(b->n - at, (size_t)BLAKE3_LANES))
		way->lanes(b, at, out + at * BLAKE3_LEN);
	for (; at < b->n; at++)
		batch_one(b, at, out + at * BLAKE3_LEN);
}

/* ---- the tree ------------------------------------------------------------------------------ */

/* The hashes of up to eight chunks; the last one may be short. Returns how many. */
static size_t chunks(const struct run *r, const uint8_t *p, size_t n, uint64_t counter,
                     uint8_t *out)
{
	const struct blake3_batch b = {.key = r->key,
	                               .in = p,
	                               .n = n / BLAKE3_CHUNK,
	                               .blocks = BLAKE3_CHUNK / BLAKE3_BLOCK,
	                               .counter = counter,
	                               .counts = true,
	                               .flags = r->flags,
	                               .first = CHUNK_START,
	                               .last = CHUNK_END};
	const size_t rest = n % BLAKE3_CHUNK;

	batch_run(r->way, &b, out);
	if (rest > 0)
		chunk(r, p + n - rest, rest, counter + b.n, 0, out + b.n * BLAKE3_LEN);
	return b.n + (rest > 0);
}

/* The parents of n hashes; one without a sibling moves up as it is. Returns how many. */
static size_t parents(const struct run *r, const uint8_t *cv, size_t n, uint8_t *out)
{
	const struct blake3_batch b = {
		.key = r->key, .in = cv, .n = n / 2, .blocks = 1, .flags = r->flags | PARENT};

	batch_run(r->way, &b, out);
	if (n % 2 > 0)
		memcpy(out + b.n * BLAKE3_LEN, cv + (n - 1) * BLAKE3_LEN, BLAKE3_LEN);
	return b.n + n % 2;
}

/* The up to eight hashes that stand for n bytes. A left half is a power of two of chunks, and as
 * large as leaves something for the right. */
static size_t subtree(const struct run *r, const uint8_t *p, size_t n, uint64_t counter,
                      uint8_t *out)
{
	uint8_t cv[2 * BLAKE3_LANES * BLAKE3_LEN];
	size_t left = BLAKE3_LANES * (size_t)BLAKE3_CHUNK, k;

	if (n <= left)
		return chunks(r, p, n, counter, out);
	while (left < n - left)
		left *= 2;
	k = subtree(r, p, left, counter, cv);
	assert(k == BLAKE3_LANES);
	k += subtree(r, p + left, n - left, counter + left / BLAKE3_CHUNK, cv + k * BLAKE3_LEN);
	return parents(r, cv, k, out);
}

void blake3_hash_by(unsigned way, const uint8_t *key, const void *p, size_t n,
                    uint8_t out[BLAKE3_LEN])
{
	struct run r = {
		.way = &ways[way],
		.key = {IV0, IV1, IV2, IV3, 0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U}};
	uint8_t cv[2][BLAKE3_LANES * BLAKE3_LEN];
	unsigned is = 0;
	size_t k;

	assert(blake3_way_works(way));
	for (unsigned i = 0; key != NULL && i < 8; i++) {
		r.key[i] = load32(key + 4 * (size_t)i);
		r.flags = KEYED;
	}
	if (n <= BLAKE3_CHUNK) {
		chunk(&r, p, n, 0, ROOT, out);
		return;
	}
	k = subtree(&r, p, n, 0, cv[is]);
	for (; k > 2; is = !is)
		k = parents(&r, cv[is], k, cv[!is]);
	compress(r.key, cv[is], BLAKE3_BLOCK, 0, r.flags | PARENT | ROOT);
	store(r.key, out);
}

void blake3_hash(const uint8_t *key, const void *p, size_t n, uint8_t out[BLAKE3_LEN])
{
	unsigned way = BLAKE3_WAYS - 1;

	while (!blake3_way_works(way))
		way--;
	blake3_hash_by(way, key, p, n, out);
}
