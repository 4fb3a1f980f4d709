/* fuzz_tarball.c - any bytes as tar. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.tar", NULL, data, n);
}
