/* fuzz_npy.c - any bytes as an array of NumPy. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.npy", "npy", data, n);
}
