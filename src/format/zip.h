/*
 * zip.h - the structure of a zip archive: end record, directory, local headers. Nothing is
 * unpacked. (PKWARE APPNOTE.TXT 4.3; zip64 too.) Internal to the layer.
 */
#ifndef ZIP_H
#define ZIP_H

#include "format/look.h"

#define ZIP_NAME_MAX 512
#define ZIP_ENTRIES_MAX ((uint64_t)2 << 20)
#define ZIP_COMMENT_MAX 65535 /* bytes that may follow the end record */

enum zip_says {
	ZIP_OK,
	ZIP_END,    /* no more entries */
	ZIP_NO_END, /* no end record: cut, or not finished */
	ZIP_TORN,   /* a part that the directory names is not there */
	ZIP_BAD,    /* not an archive as we know it, or too large a one */
	ZIP_GONE,   /* the reader failed, or a limit */
};

struct zip {
	uint64_t start;           /* of the archive: offsets count from here */
	uint64_t dir_at, dir_end; /* of the directory, in what is seen */
	uint64_t entries;
	uint64_t at, seen; /* of the next entry */
};

struct zip_entry {
	char name[ZIP_NAME_MAX + 1];
	size_t name_n; /* cut at ZIP_NAME_MAX */
	unsigned flags, method;
	uint32_t crc;
	uint64_t packed, size; /* in the file; unpacked */
	uint64_t local_at, data_at;
};

/* Finds the archive that ends at `end`; with a comment behind it only if `comment`. */
enum zip_says zip_open(struct look *l, uint64_t end, bool comment, struct zip *z);
/* The next entry of the directory. */
enum zip_says zip_next(struct look *l, struct zip *z, struct zip_entry *e);
/* Its local header and whether its bytes lie before the directory; fills data_at. */
enum zip_says zip_locate(struct look *l, const struct zip *z, struct zip_entry *e);
/* Torn, not known or nothing, as it says. */
void zip_verdict(struct look *l, enum zip_says says);

#endif
