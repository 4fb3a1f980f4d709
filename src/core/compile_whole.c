/* compile_whole.c - is a file of a compiler's cache what its name promises, as far as its content
 * can tell? What was torn when it was written is found here, before it is kept for ever. */
#include <zlib.h>

#include "base/hash.h"
#include "base/json.h"
#include "core/compile_cache.h"

#define CONTENT_NAME 51 /* characters of base 32, of a SHA-256 */
#define INFLATE_PIECE 65536
#define ZSTD_BLOCK_HEAD 3
#define ELF_HEAD 64
/* What no compiler makes, and what would keep us busy. */
#define JSON_MAX ((size_t)16 << 20)
#define INFLATED_LEAST ((uint64_t)64 << 20) /* that a file may have, however short it is */
#define INFLATED_MAX 100                    /* times its size */

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* ---- Inductor ------------------------------------------------------------------------------- */

/* The first characters of RFC 4648's base 32 in lower case: codecache.py, sha256_hash(). */
static void content_name(struct str content, char out[CONTENT_NAME + 1])
{
	struct digest d = hash_sha256(content.p, content.n);

	for (size_t i = 0; i < CONTENT_NAME; i++) {
		size_t bit = i * 5, byte = bit / 8;
		unsigned pair =
			(unsigned)d.b[byte] << 8 | (byte + 1 < sizeof(d.b) ? d.b[byte + 1] : 0);

		out[i] = "abcdefghijklmnopqrstuvwxyz234567"[pair >> (11 - bit % 8) & 31];
	}
	out[CONTENT_NAME] = '\0';
}

/* A graph's file has the hash of its content for a name, or of old is called "entry": a pickle of
 * protocol 2 or later, which ends with a full stop. */
static bool graph_is_whole(const char *name, struct str content)
{
	char want[CONTENT_NAME + 1];

	if (strlen(name) != CONTENT_NAME)
		return strcmp(name, "entry") != 0 ||
		       (content.n > 2 && content.p[0] == '\x80' && content.p[content.n - 1] == '.');
	content_name(content, want);
	return strcmp(name, want) == 0;
}

static bool is_graph(const char *path)
{
	static const char *const folders[] = {"fxgraph/", "aotautograd/"};

	for (size_t i = 0; i < COUNT(folders); i++) {
		const char *at = strstr(path, folders[i]);

		if (at != NULL && (at == path || at[-1] == '/'))
			return true;
	}
	return false;
}

/* ---- frames of JAX -------------------------------------------------------------------------- */

static uint64_t little(struct str s, size_t at, size_t n)
{
	uint64_t v = 0;

	assert(at + n <= s.n && n <= 8);
	while (n-- > 0)
		v = v << 8 | (uint8_t)s.p[at + n];
	return v;
}

/* Takes one frame of RFC 8878 off *s, by the lengths of its blocks. */
static bool zstd_frame(struct str *s)
{
	static const size_t id_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
	bool last = false;
	unsigned flags;
	size_t head;

	if (s->n >= 8 && (little(*s, 0, 4) & ~(uint64_t)15) == 0x184d2a50) { /* to be skipped */
		uint64_t n = little(*s, 4, 4);

		if (n > s->n - 8)
			return false;
		*s = str_skip(*s, 8 + (size_t)n);
		return true;
	}
	if (s->n < 6 || little(*s, 0, 4) != 0xfd2fb528)
		return false;
	flags = (uint8_t)s->p[4];
	head = 5U + (flags >> 5 & 1 ? 0U : 1U) + id_bytes[flags & 3] + size_bytes[flags >> 6];
	if (flags >> 6 == 0 && (flags >> 5 & 1) != 0)
		head++; /* one segment always says its size */
	if (head > s->n)
		return false;
	*s = str_skip(*s, head);
	while (!last) {
		uint64_t block, n;

		if (s->n < ZSTD_BLOCK_HEAD)
			return false;
		block = little(*s, 0, ZSTD_BLOCK_HEAD);
		last = (block & 1) != 0;
		n = (block >> 1 & 3) == 1 ? 1 : block >> 3; /* one byte, repeated */
		if ((block >> 1 & 3) == 3 || n > s->n - ZSTD_BLOCK_HEAD)
			return false;
		*s = str_skip(*s, ZSTD_BLOCK_HEAD + (size_t)n);
	}
	if ((flags >> 2 & 1) == 0)
		return true;
	if (s->n < 4)
		return false;
	*s = str_skip(*s, 4);
	return true;
}

static bool zstd_is_whole(struct str s)
{
	do {
		if (!zstd_frame(&s))
			return false;
	} while (s.n > 0);
	return true;
}

/* Its own checksum is compared on the way. */
static bool zlib_is_whole(struct str s)
{
	const uint64_t most = INFLATED_LEAST + INFLATED_MAX * (uint64_t)s.n;
	unsigned char out[8192];
	z_stream z = {0};
	int rc = Z_OK;

	if (inflateInit(&z) != Z_OK)
		return true; /* no memory: nothing is known */
	while (rc == Z_OK && s.n > 0) {
		size_t n = MIN(s.n, (size_t)INFLATE_PIECE);

		z.next_in = (Bytef *)(uintptr_t)s.p; /* zlib does not write there */
		z.avail_in = (uInt)n;
		do {
			z.next_out = out;
			z.avail_out = sizeof(out);
			rc = inflate(&z, Z_NO_FLUSH);
			if (z.total_out > most)
				rc = Z_DATA_ERROR;
		} while (rc == Z_OK && z.avail_out == 0);
		s = str_skip(s, n - z.avail_in);
		if (rc == Z_BUF_ERROR)
			rc = Z_OK; /* it wants more */
	}
	(void)inflateEnd(&z);
	return rc == Z_STREAM_END && s.n == 0;
}

/* What it is packed by depends on what is installed. */
static bool jax_is_whole(struct str content)
{
	if (content.n >= 4 && little(content, 0, 4) == 0xfd2fb528)
		return zstd_is_whole(content);
	return zlib_is_whole(content);
}

/* ---- the others ----------------------------------------------------------------------------- */

/* A library of 64 bits has the table of its sections at its end. */
static bool elf_is_whole(struct str s)
{
	uint64_t at, each, n;

	if (s.n < ELF_HEAD)
		return false;
	if (memcmp(s.p, "\177ELF", 4) != 0)
		return false;
	if (s.p[4] != 2 || s.p[5] != 1)
		return true; /* of another machine */
	at = little(s, 40, 8);
	each = little(s, 58, 2);
	n = little(s, 60, 2);
	return at <= s.n && each * n <= s.n - at;
}

static bool json_is_whole(struct str s)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct err ignored = {0};
	const struct doc *d;

	return s.n <= JSON_MAX && js_parse(a, s, &d, &ignored) == 0;
}

bool compile_cache_is_whole(enum compile_kind kind, const char *path, struct str content)
{
	const char *name = name_of(path);

	if (str_ends(str_of(name), ".so"))
		return elf_is_whole(content);
	switch (kind) {
	case COMPILE_NEURON:
		return strcmp(name, "model.neff") != 0 || content.n > 0;
	case COMPILE_INDUCTOR:
	case COMPILE_VLLM:
		if (is_graph(path))
			return graph_is_whole(name, content);
		/* a kernel's */
		return !str_starts(str_of(name), "__grp__") || json_is_whole(content);
	case COMPILE_TRITON:
		return !str_ends(str_of(name), ".json") || json_is_whole(content);
	case COMPILE_JAX:
		return !str_ends(str_of(name), "-cache") || jax_is_whole(content);
	case COMPILE_CCACHE: /* cacheentry.hpp */
		return content.n > 2 && memcmp(content.p, "\xcc\xac", 2) == 0;
	case COMPILE_TORCH_EXTENSIONS:
	case COMPILE_CUDA:
	case COMPILE_KIND_COUNT:
		break;
	}
	return true;
}
