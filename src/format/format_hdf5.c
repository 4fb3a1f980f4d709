/*
 * format_hdf5.c - HDF5: the superblock says where the file ends, and from version 3 on whether it
 * is open for writing. (HDF5 File Format Specification, II.A) The library writes the end of file
 * when it flushes: a larger file was never closed, a smaller one is cut.
 */
#include "format/parsers.h"

#define OPEN_FOR_WRITING 1

void check_hdf5(struct look *l)
{
	/* by version: where the sizes of offsets, the end of the file and the flags are */
	static const struct {
		uint8_t offset_bytes, end, flags;
	} at[] = {{13, 40, 0}, {13, 44, 0}, {9, 28, 0}, {9, 28, 11}};
	size_t n = (size_t)MIN(l->size, (uint64_t)52);
	const uint8_t *p = look_at(l, 0, n);
	unsigned version;
	uint64_t end;

	if (p == NULL)
		return;
	if (n < 48) {
		look_torn(l, "ends in its superblock");
		return;
	}
	version = p[8];
	if (version >= COUNT(at) || p[at[version].offset_bytes] != 8 || n < at[version].end + 8u) {
		look_unknown(l, "has a superblock that is not known");
		return;
	}
	end = le64(p + at[version].end);
	if (at[version].flags > 0 && (p[at[version].flags] & OPEN_FOR_WRITING) != 0)
		look_torn(l, "was not closed: it is marked open for writing");
	else if (end > l->size)
		look_short(l, l->size, end);
	else if (end < l->size)
		look_torn(l,
		          "was not closed: its superblock knows of %" PRIu64 " of %" PRIu64
		          " bytes",
		          end, l->size);
	else
		look_whole(l);
}
