/* fuzz_xet_xorb.c - a xorb is read to the same chunks, or refused, however it is cut; what a chunk
 * is unpacked to does not depend on what was unpacked before. */
#include "core/xet_xorb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct result {
	int ret;
	enum err_code code;
	struct xet_hash name; /* of what could be unpacked */
	size_t chunks, unpacked;
	uint64_t at;
};

static struct result read_all(struct str in, size_t step, bool anew)
{
	AUTO_XET_READER struct xet_reader r = XET_READER_INIT;
	AUTO_XET_TREE struct xet_tree *tree = xet_tree_new();
	AUTO_XET_UNPACKER struct xet_unpacker *u = xet_unpacker_new();
	AUTO_FREE uint8_t *out = xmalloc(XET_CHUNK_MAX);
	struct result x = {0};
	struct err err = {0}, unpack = {0};

	while (in.n > 0 && x.ret == 0) {
		struct str piece = str_n(in.p, MIN(step, in.n));
		const struct xet_packed *c = NULL;

		in = str_skip(in, piece.n);
		while ((x.ret = xet_reader_take(&r, &piece, &c, &err)) == 0 && c != NULL) {
			if (anew) {
				xet_unpacker_free(u);
				u = xet_unpacker_new();
			}
			if (xet_unpack(u, c, out, &unpack) == 0) {
				struct xet_hash h = xet_chunk_hash(out, c->unpacked);

				xet_tree_add(tree, &h, c->unpacked);
				x.unpacked++;
			}
			err_clear(&unpack);
		}
		assert(x.ret < 0 || piece.n == 0);
	}
	if (x.ret == 0)
		x.ret = xet_reader_end(&r, &err);
	assert((x.ret == 0) == (err.code == ERR_NONE) && r.at <= XET_XORB_MAX);
	x.code = err.code;
	x.name = xet_tree_end(tree);
	x.chunks = r.chunks;
	x.at = r.at;
	return x;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str in = str_n((const char *)data, n);
	struct result a = read_all(in, MAX(n, (size_t)1), false), b = read_all(in, 3, true);

	assert(a.ret == b.ret && a.code == b.code && a.chunks == b.chunks && a.at == b.at);
	assert(a.unpacked == b.unpacked && xet_hash_same(&a.name, &b.name));
	return 0;
}
