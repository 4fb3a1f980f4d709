/* fuzz_zip.c - any bytes as an archive: torch.save, Keras, NumPy, others. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.pt", NULL, data, n);
}
