/* fuzz_sentencepiece.c - any bytes as a SentencePiece model. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	return fuzz_format("tokenizer.model", "sentencepiece", data, n);
}
