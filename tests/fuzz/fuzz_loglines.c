/* fuzz_loglines.c - bytes as records, then as text that is written, read back and folded. */
#include "core/loglines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What was written comes back, but for where its lines were cut. */
static void round_trip(struct str text)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 20);
	AUTO_BUF struct buf back = BUF_INIT((size_t)64 << 20);
	struct logline line;
	int64_t last = 0, before = 0;
	struct str rest;

	logline_write(&out, 1700000000000000000, &last, 'o', text, true);
	rest = buf_view(&out);
	while (logline_next(&rest, &line)) {
		assert(line.ns > before && line.text.n <= LOGLINE_TEXT_MAX && line.stream == 'o');
		before = line.ns;
		buf_str(&back, line.text);
		if (!line.continues)
			buf_putc(&back, '\n');
	}
	assert(rest.n == 0);
	assert(str_same(buf_view(&back), text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_BUF struct buf shown = BUF_INIT((size_t)64 << 20);
	struct str text = str_n((const char *)data, n), rest = text;
	struct logline line;
	size_t left = rest.n + 1;

	while (logline_next(&rest, &line)) {
		assert(rest.n < left);
		left = rest.n;
		logline_fold(line.text, &shown);
	}
	round_trip(text);
	buf_clear(&shown);
	logline_fold(text, &shown);
	assert(shown.n <= n);
	assert(shown.n == 0 || memchr(shown.p, '\r', shown.n) == NULL);
	return 0;
}
