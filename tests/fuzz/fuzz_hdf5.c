/* fuzz_hdf5.c - any bytes as HDF5. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.h5", "hdf5", data, n);
}
