/* fuzz_pickle.c - any bytes as a pickle, or as what torch.save wrote before it wrote archives. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.pkl", "pickle", data, n);
}
