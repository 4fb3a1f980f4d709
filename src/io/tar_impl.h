/* tar_impl.h - what reading and writing archives share: names as their own bytes. */
#ifndef TAR_IMPL_H
#define TAR_IMPL_H

#include "io/tar.h"

#include <locale.h>

/* libarchive converts names to and from the charset of the thread's locale. "C" lets it give the
 * archive's own bytes; "C.UTF-8" lets it write names as the UTF-8 that pax asks for. */
struct charset {
	locale_t made, before;
};
struct charset charset_set(const char *name);
void charset_done(struct charset *c); /* the thread has what it had before */

#endif
