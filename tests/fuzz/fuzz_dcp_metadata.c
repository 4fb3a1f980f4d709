/* fuzz_dcp_metadata.c - any bytes as the .metadata of torch.distributed.checkpoint. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format(".metadata", "dcp metadata", data, n);
}
