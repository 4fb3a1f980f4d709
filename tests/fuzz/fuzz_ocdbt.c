/* fuzz_ocdbt.c - any bytes as OCDBT. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("manifest.ocdbt", "ocdbt", data, n);
}
