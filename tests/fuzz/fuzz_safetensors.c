/* fuzz_safetensors.c - any bytes as safetensors. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.safetensors", "safetensors", data, n);
}
