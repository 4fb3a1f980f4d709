/* fuzz_redact.c - first line: how to split; then secrets, an empty line, a text. The stream gives
 * what the whole text gives, and no secret is left in it. */
#include "core/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool holds(struct str text, struct str value)
{
	return value.n >= REDACT_MIN && text.n >= value.n &&
	       memmem(text.p, text.n, value.p, value.n) != NULL;
}

/* The replacement itself may complete a secret that is made of its letters. */
static bool is_odd(struct str value)
{
	return memmem(REDACT_REPLACEMENT, sizeof(REDACT_REPLACEMENT) - 1, value.p, 1) != NULL ||
	       memmem(REDACT_REPLACEMENT, sizeof(REDACT_REPLACEMENT) - 1, value.p + value.n - 1,
	              1) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_REDACT struct redact *r = redact_new();
	AUTO_BUF struct buf whole = BUF_INIT((size_t)64 << 20);
	AUTO_BUF struct buf parts = BUF_INIT((size_t)64 << 20);
	struct str rest = str_n((const char *)data, n), split, values, value, text;
	struct redact_stream s;
	struct err err = {0};
	size_t at = 0;

	if (!str_cut(&rest, '\n', &split))
		return 0;
	values = rest;
	while (str_cut(&rest, '\n', &value) && value.n > 0) {
		if (redact_add(r, value, &err) < 0)
			return 0;
	}
	text = rest;
	values.n -= text.n;
	redact_build(r);
	redact_text(r, text, &whole);
	redact_stream_init(&s, r);
	for (size_t i = 0; at < text.n; i++) {
		size_t step = split.n > 0 ? (uint8_t)split.p[i % split.n] % 16U : 1;

		step = MIN(step + (i % 64 == 63), text.n - at);
		redact_feed(&s, str_n(text.p + at, step), &parts);
		assert(s.held.n <= redact_longest(r));
		at += step;
	}
	redact_flush(&s, &parts);
	redact_stream_done(&s);
	assert(str_same(buf_view(&whole), buf_view(&parts)));
	while (str_cut(&values, '\n', &value) && value.n > 0)
		assert(value.n < REDACT_MIN || is_odd(value) || !holds(buf_view(&whole), value));
	return 0;
}
