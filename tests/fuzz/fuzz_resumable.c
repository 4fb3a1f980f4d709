/* fuzz_resumable.c - bytes as they come: what is kept of them is whole frames, in order, and never
 * more than there may be. */
#include "io/resumable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct resumable r CLEANUP(resumable_done) = RESUMABLE_INIT;
	struct str rest = str_n((const char *)data, n), bytes;
	enum frame_kind kind;
	struct err err = {0};
	int rc = 0;

	resumable_put(&r, FRAME_IN, STR_LIT("abcdefgh"));
	resumable_begin(&r);
	while (rest.n > 0 && rc == 0) {
		size_t piece = MIN(rest.n, 1 + (size_t)(uint8_t)rest.p[0]);

		rc = resumable_feed(&r, str_n(rest.p, piece), &err);
		rest = str_skip(rest, piece);
		if (piece % 3 == 0 && resumable_next(&r, &kind, &bytes))
			resumable_use(&r, piece % 2 == 0 ? bytes.n : bytes.n / 2);
		if (piece % 7 == 0)
			resumable_begin(&r);
		(void)resumable_wire(&r);
	}
	assert((rc == 0) == (err.code == ERR_NONE));
	while (resumable_next(&r, &kind, &bytes)) {
		assert(kind >= FRAME_OUT && bytes.n <= RESUMABLE_FRAME_MAX);
		resumable_use(&r, bytes.n);
	}
	assert(r.got.n == 0);
	return 0;
}
