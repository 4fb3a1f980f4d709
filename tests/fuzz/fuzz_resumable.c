/* fuzz_resumable.c - bytes as frames: what is read as frames is written as the same bytes. */
#include "core/resumable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_BUF struct buf back = BUF_INIT((size_t)64 << 20);
	struct str text = str_n((const char *)data, n), rest = text, bytes;
	enum frame_kind kind;
	uint16_t rows, columns;

	while (frame_next(&rest, &kind, &bytes)) {
		if (kind == FRAME_SIZE && frame_size(bytes, &rows, &columns))
			frame_put_size(&back, rows, columns);
		else
			frame_put(&back, kind, bytes);
	}
	assert(back.n + rest.n == n);
	assert(str_same(buf_view(&back), str_n(text.p, back.n)));
	return 0;
}
