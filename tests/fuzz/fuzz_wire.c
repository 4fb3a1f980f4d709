/* fuzz_wire.c - every message from any bytes; what is read must be written and read again. */
#include "core/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define TRY(type, name)                                                                            \
	do {                                                                                       \
		struct type m, again;                                                              \
		AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 20);                              \
		struct err err = {0};                                                              \
		if (name##_parse(&m, a, text, &err) == 0) {                                        \
			name##_write(&m, &out);                                                    \
			if (!out.full && name##_parse(&again, a, buf_view(&out), &err) < 0)        \
				abort();                                                           \
		}                                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = str_n((const char *)data, n);

	TRY(wire_start, wire_start);
	TRY(wire_launch, wire_launch);
	TRY(wire_heartbeat, wire_heartbeat);
	TRY(wire_desired, wire_desired);
	TRY(wire_exit, wire_exit);
	return 0;
}
