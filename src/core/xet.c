/* xet.c - see xet.h. */
#include "core/xet.h"

#include "base/blake3.h"

#define GROUP_MIN 3 /* but for the last one */
#define GROUP_MAX 9
#define LEVELS 28 /* each has a third of the nodes below it: 3^28 chunks */
#define NODE_TEXT (XET_HASH_TEXT + sizeof(" : 18446744073709551615\n"))

/* clang-format off */
static const uint8_t chunk_key[BLAKE3_KEY_LEN] = {
	102, 151, 245, 119, 91, 149, 80, 222, 49, 53, 203, 172, 165, 151, 24, 28,
	157, 228, 33, 16, 155, 235, 43, 88, 180, 208, 176, 75, 147, 173, 242, 41,
};
static const uint8_t node_key[BLAKE3_KEY_LEN] = {
	1, 126, 197, 199, 165, 71, 41, 150, 253, 148, 102, 102, 180, 138, 2, 230,
	93, 221, 83, 111, 55, 199, 109, 210, 248, 99, 82, 230, 74, 83, 113, 63,
};
static const uint8_t term_key[BLAKE3_KEY_LEN] = {
	127, 24, 87, 214, 206, 86, 237, 102, 18, 127, 249, 19, 231, 165, 195, 243,
	164, 205, 38, 213, 181, 219, 73, 230, 65, 36, 152, 127, 40, 251, 148, 195,
};
static const uint8_t file_key[BLAKE3_KEY_LEN] = {0};
/* clang-format on */

static struct xet_hash keyed(const uint8_t key[BLAKE3_KEY_LEN], const void *p, size_t n)
{
	struct xet_hash h = {0};

	blake3_hash(key, p, n, h.b);
	return h;
}

/* ---- text ---------------------------------------------------------------------------------- */

/* Each group of eight bytes turned around; twice is the same again. */
static void turn(const uint8_t in[XET_HASH_LEN], uint8_t out[XET_HASH_LEN])
{
	for (size_t i = 0; i < XET_HASH_LEN; i++)
		out[i] = in[(i & ~(size_t)7) | (7 - (i & 7))];
}

void xet_hash_text(const struct xet_hash *h, char out[XET_HASH_CAP])
{
	uint8_t turned[XET_HASH_LEN];

	turn(h->b, turned);
	hex_encode(turned, sizeof(turned), out);
}

int xet_hash_parse(struct str text, struct xet_hash *out, struct err *err)
{
	uint8_t turned[XET_HASH_LEN];

	for (size_t i = 0; i < text.n; i++)
		if (text.p[i] >= 'A' && text.p[i] <= 'F')
			return err_set(err, ERR_INVALID,
			               "the hash has a digit in upper case at position %zu", i + 1);
	if (hex_decode(text, turned, sizeof(turned), err) < 0)
		return err_wrap(err, "the hash");
	turn(turned, out->b);
	return 0;
}

bool xet_hash_same(const struct xet_hash *a, const struct xet_hash *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

struct digest xet_hash_sha256(const struct xet_hash *h)
{
	struct digest d = {0};

	turn(h->b, d.b);
	return d;
}

/* ---- chunks and the tree over them --------------------------------------------------------- */

struct xet_hash xet_chunk_hash(const void *p, size_t n)
{
	return keyed(chunk_key, p, n);
}

struct xet_tree {
	struct {
		struct {
			struct xet_hash hash;
			uint64_t bytes;
		} node[GROUP_MAX];
		unsigned n;
		bool merged; /* nodes of this level are part of the level above */
	} level[LEVELS];
};

struct xet_tree *xet_tree_new(void)
{
	return xcalloc(1, sizeof(struct xet_tree));
}

void xet_tree_free(struct xet_tree *t)
{
	free(t);
}

static void tree_add(struct xet_tree *t, unsigned level, const struct xet_hash *h, uint64_t bytes);

/* What waits at a level becomes a node of the next one. */
static void tree_merge(struct xet_tree *t, unsigned level)
{
	char text[GROUP_MAX * NODE_TEXT], hex[XET_HASH_CAP];
	struct xet_hash h;
	uint64_t bytes = 0;
	size_t n = 0;

	for (unsigned i = 0; i < t->level[level].n; i++) {
		xet_hash_text(&t->level[level].node[i].hash, hex);
		fmt_fixed(text + n, NODE_TEXT, "%s : %" PRIu64 "\n", hex,
		          t->level[level].node[i].bytes);
		n += strlen(text + n);
		bytes += t->level[level].node[i].bytes;
	}
	h = keyed(node_key, text, n);
	t->level[level].n = 0;
	t->level[level].merged = true;
	tree_add(t, level + 1, &h, bytes);
}

static void tree_add(struct xet_tree *t, unsigned level, const struct xet_hash *h, uint64_t bytes)
{
	unsigned n;

	assert(level < LEVELS && t->level[level].n < GROUP_MAX);
	n = t->level[level].n++;
	t->level[level].node[n].hash = *h;
	t->level[level].node[n].bytes = bytes;
	/* The third to ninth node ends its group if its last number can be divided by four. */
	if (n + 1 == GROUP_MAX || (n + 1 >= GROUP_MIN && h->b[XET_HASH_LEN - 8] % 4 == 0))
		tree_merge(t, level);
}

void xet_tree_add(struct xet_tree *t, const struct xet_hash *chunk, uint64_t bytes)
{
	tree_add(t, 0, chunk, bytes);
}

struct xet_hash xet_tree_end(struct xet_tree *t)
{
	struct xet_hash root = {0};
	unsigned level = 0;

	/* A level that is one node is the root; a node alone behind others is a group as well. */
	while (t->level[level].merged || t->level[level].n > 1) {
		if (t->level[level].n > 0)
			tree_merge(t, level);
		level++;
	}
	if (t->level[level].n > 0)
		root = t->level[level].node[0].hash;
	memset(t, 0, sizeof(*t));
	return root;
}

struct xet_hash xet_tree_end_file(struct xet_tree *t)
{
	bool some = t->level[0].n > 0 || t->level[0].merged;
	struct xet_hash root = xet_tree_end(t);

	return some ? keyed(file_key, root.b, sizeof(root.b)) : root;
}

struct xet_hash xet_xorb_hash(const struct xet_chunks *c)
{
	AUTO_XET_TREE struct xet_tree *t = xet_tree_new();

	for (size_t i = 0; i < c->n; i++)
		xet_tree_add(t, &c->hash[i], c->bytes[i]);
	return xet_tree_end(t);
}

/* ---- terms --------------------------------------------------------------------------------- */

struct xet_hash xet_term_hash(const struct xet_hash *chunk, size_t n)
{
	return keyed(term_key, chunk, n * sizeof(*chunk));
}

int xet_term_check(const struct xet_term *t, const struct xet_hash *proof,
                   const struct xet_chunks *of, struct err *err)
{
	char hex[XET_HASH_CAP];
	uint64_t bytes = 0;

	xet_hash_text(&t->xorb, hex);
	if (t->start >= t->end || t->end > of->n)
		return err_set(err, ERR_INVALID, "xorb %s has %zu chunks, not %u to %u", hex, of->n,
		               t->start, t->end);
	for (size_t i = t->start; i < t->end; i++)
		bytes += of->bytes[i];
	if (bytes != t->bytes)
		return err_set(err, ERR_INVALID,
		               "chunks %u to %u of xorb %s have %" PRIu64 " bytes, not %u",
		               t->start, t->end, hex, bytes, t->bytes);
	if (proof != NULL) {
		struct xet_hash h = xet_term_hash(of->hash + t->start, t->end - t->start);

		if (!xet_hash_same(&h, proof))
			return err_set(err, ERR_INVALID,
			               "chunks %u to %u of xorb %s have another hash", t->start,
			               t->end, hex);
	}
	return 0;
}

void xet_term_add(const struct xet_term *t, const struct xet_chunks *of, struct xet_tree *file)
{
	assert(t->start < t->end && t->end <= of->n);
	for (size_t i = t->start; i < t->end; i++)
		xet_tree_add(file, &of->hash[i], of->bytes[i]);
}
