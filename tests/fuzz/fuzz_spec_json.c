/* fuzz_spec_json.c - a specification from the body of a request. */
#include "fuzz/fuzz_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d;
	struct err err = {0};

	if (js_parse(a, str_n((const char *)data, n), &d, &err) == 0)
		fuzz_spec(a, d, SPEC_API);
	return 0;
}
