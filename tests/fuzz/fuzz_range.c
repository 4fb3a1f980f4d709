/* fuzz_range.c - a Range header against sizes: what comes out always lies inside. */
#include "io/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const uint64_t sizes[] = {0, 1, 10, 1000, UINT32_MAX, INT64_MAX, UINT64_MAX};

	for (size_t i = 0; i < COUNT(sizes); i++) {
		struct str header = str_n((const char *)data, n);
		uint64_t first, count;
		struct err err = {0};
		bool whole;

		if (url_range(header, sizes[i], &first, &count, &whole, &err) < 0) {
			assert(err.code == ERR_RANGE);
			continue;
		}
		assert(first <= sizes[i] && count <= sizes[i] - first);
		assert(whole ? first == 0 && count == sizes[i] : count > 0);
	}
	return 0;
}
