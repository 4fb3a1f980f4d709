/* fuzz_gguf.c - any bytes as GGUF. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.gguf", NULL, data, n);
}
