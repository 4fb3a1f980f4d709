/* gunzip.c - see gunzip.h; the only user of zlib. */
#include "io/gunzip.h"

#define ZLIB_CONST /* its input is not written to */
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* gzip's head and end, and no other's */

struct gunzip {
	z_stream z;
	bool inside; /* of a member */
	bool padded; /* zeros have come: nothing but them may follow */
};

bool gunzip_begins(struct str head)
{
	return head.n >= 2 && memcmp(head.p, "\x1f\x8b", 2) == 0;
}

struct gunzip *gunzip_new(void)
{
	struct gunzip *g = xcalloc(1, sizeof(*g));
	int r = inflateInit2(&g->z, GZIP_WINDOW);

	assert(r == Z_OK); /* it fails for want of memory alone, or against another library */
	(void)r;
	g->inside = true;
	return g;
}

void gunzip_free(struct gunzip *g)
{
	if (g != NULL)
		(void)inflateEnd(&g->z);
	free(g);
}

/* Between members: true when the next one begins. */
static bool next_member(struct gunzip *g, struct str *in, struct err *err)
{
	while (in->n > 0 && in->p[0] == '\0') {
		*in = str_skip(*in, 1);
		g->padded = true;
	}
	if (in->n == 0)
		return false;
	if (g->padded || in->p[0] != '\x1f') {
		(void)err_set(err, ERR_INVALID, "its gzip data is followed by other data");
		return false;
	}
	g->inside = inflateReset(&g->z) == Z_OK;
	return true;
}

int gunzip_step(struct gunzip *g, struct str *in, void *out, size_t cap, size_t *got,
                struct err *err)
{
	int r = Z_OK;

	*got = 0;
	while (*got == 0 && in->n > 0) {
		if (!g->inside && !next_member(g, in, err))
			return err->code != ERR_NONE ? -1 : 0;
		g->z.next_in = (const Bytef *)in->p;
		g->z.avail_in = (uInt)MIN(in->n, (size_t)INT_MAX);
		g->z.next_out = out;
		g->z.avail_out = (uInt)MIN(cap, (size_t)INT_MAX);
		r = inflate(&g->z, Z_NO_FLUSH);
		*got = (size_t)(g->z.next_out - (Bytef *)out);
		*in = str_skip(*in, (size_t)((const char *)g->z.next_in - in->p));
		if (r == Z_STREAM_END)
			g->inside = false;
		else if (r != Z_OK && r != Z_BUF_ERROR)
			return err_set(err, ERR_INVALID, "its gzip data is damaged: %s",
			               g->z.msg != NULL ? g->z.msg : "zlib cannot decompress it");
	}
	return 0;
}

int gunzip_end(const struct gunzip *g, struct err *err)
{
	return g->inside ? err_set(err, ERR_INVALID, "its gzip data is truncated") : 0;
}
