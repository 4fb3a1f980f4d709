/* fuzz_awschunked.c - a body decodes to the same bytes, or fails, however it is cut. */
#include "face/awschunked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int decode(struct str in, size_t step, struct buf *out, bool *done)
{
	struct awschunked c = {0};
	struct err err = {0};
	char chunk[13];

	while (in.n > 0) {
		struct str part = str_n(in.p, MIN(step, in.n));
		size_t before = part.n, got;

		while (part.n > 0) {
			if (awschunked_feed(&c, &part, chunk, sizeof(chunk), &got, &err) < 0)
				return -1;
			buf_add(out, chunk, got);
		}
		in = str_skip(in, before);
	}
	*done = awschunked_done(&c);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_BUF struct buf a = BUF_INIT((size_t)1 << 20), b = BUF_INIT((size_t)1 << 20);
	struct str in = str_n((const char *)data, n);
	bool done_a = false, done_b = false;
	int x = decode(in, 1, &a, &done_a), y = decode(in, 4096, &b, &done_b);

	if (x != y || done_a != done_b ||
	    (x == 0 && (a.n != b.n || memcmp(buf_cstr(&a), buf_cstr(&b), a.n) != 0)))
		abort();
	return 0;
}
