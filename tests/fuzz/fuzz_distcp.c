/* fuzz_distcp.c - any bytes as a chain of torch archives. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("__0_0.distcp", "distcp", data, n);
}
