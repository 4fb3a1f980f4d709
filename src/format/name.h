/*
 * name.h - names of files by patterns. Internal to the layer.
 *
 * In a pattern '#' stands for digits (at least one; its number is told), '*' for any text without a
 * '/', '?' for one character that is none, and everything else for itself.
 */
#ifndef NAME_H
#define NAME_H

#include "base/buf.h"

#define NAME_NUMBERS 8 /* of one pattern */

struct name_number {
	uint64_t v;   /* saturating */
	size_t at, n; /* its digits in the name */
};

/* num may be NULL; else it gets the numbers of the '#', in order. */
bool name_match(const char *pattern, struct str name, struct name_number num[NAME_NUMBERS]);
struct str name_base(struct str path);   /* what follows the last '/' */
struct str name_folder(struct str path); /* what is before it; empty = none */

#endif
