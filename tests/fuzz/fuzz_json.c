/* fuzz_json.c - any bytes as JSON: what is read and written reads back as itself. */
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf one = BUF_INIT((size_t)16 << 20), two = BUF_INIT((size_t)16 << 20);
	const struct doc *d = NULL;
	struct err err = {0};
	struct js js;

	if (js_parse(a, str_n((const char *)data, n), &d, &err) < 0) {
		if (err.code == ERR_NONE || d != NULL)
			abort();
		js_init(&js, &one); /* the bytes as a string must be JSON all the same */
		js_text(&js, str_n((const char *)data, n));
		err_clear(&err);
		if (!one.full && js_parse(a, buf_view(&one), &d, &err) < 0 &&
		    memchr(data, '\0', n) == NULL)
			abort();
		return 0;
	}
	js_init(&js, &one);
	js_doc(&js, d);
	if (js_parse(a, buf_view(&one), &d, &err) < 0)
		abort();
	js_init(&js, &two);
	js_doc(&js, d);
	if (!str_same(buf_view(&one), buf_view(&two)))
		abort();
	return 0;
}
