/* fuzz_json_file.c - any bytes as JSON, as an index of shards. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.index.json", NULL, data, n);
}
