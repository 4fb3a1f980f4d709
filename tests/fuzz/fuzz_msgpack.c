/* fuzz_msgpack.c - any bytes as msgpack. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("x.msgpack", "msgpack", data, n);
}
