/*
 * blake3_lanes.h - a function that hashes eight inputs at once, one in each lane of a vector.
 * blake3.c includes this once for each LANES_TARGET and names the function by LANES_NAME. A shared
 * inline function would not do: vectors are split for the target of the function that they are
 * written in, before anything is inlined.
 */
LANES_TARGET
static void LANES_NAME(const struct blake3_batch *b, size_t at, uint8_t *out)
{
	const size_t stride = b->blocks * BLAKE3_BLOCK, n = MIN(b->n - at, (size_t)BLAKE3_LANES);
	const uint8_t *in[BLAKE3_LANES];
	lanes h[8], m[16], low = {0}, high = {0};

	for (unsigned i = 0; i < BLAKE3_LANES; i++) { /* of a lane too many nothing is kept */
		uint64_t counter = b->counter + (b->counts ? at + i : 0);

		in[i] = b->in + (at + MIN((size_t)i, n - 1)) * stride;
		low[i] = (uint32_t)counter;
		high[i] = (uint32_t)(counter >> 32);
	}
	for (unsigned i = 0; i < 8; i++)
		h[i] = (lanes){0} + b->key[i];
	for (size_t k = 0; k < b->blocks; k++) {
		const uint32_t flags =
			b->flags | (k == 0 ? b->first : 0) | (k + 1 == b->blocks ? b->last : 0);
		const lanes zero = {0};
		/* clang-format off */
		lanes v[16] = {
			h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
			zero + IV0, zero + IV1, zero + IV2, zero + IV3,
			low, high, zero + BLAKE3_BLOCK, zero + flags,
		};
		/* clang-format on */

		for (unsigned i = 0; i < BLAKE3_LANES; i++) {
			memcpy(&m[i], in[i] + k * BLAKE3_BLOCK, sizeof(lanes));
			memcpy(&m[8 + i], in[i] + k * BLAKE3_BLOCK + sizeof(lanes), sizeof(lanes));
		}
		TRANSPOSE(m);
		TRANSPOSE(m + 8);
		ROUNDS(v, m);
		for (unsigned i = 0; i < 8; i++)
			h[i] = v[i] ^ v[8 + i];
	}
	TRANSPOSE(h);
	for (size_t i = 0; i < n; i++)
		memcpy(out + i * BLAKE3_LEN, &h[i], BLAKE3_LEN);
}
