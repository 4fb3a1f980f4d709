/* examples.h - the folders of examples/, embedded by tools/embed.py for `stoker init`. */
#ifndef EXAMPLES_H
#define EXAMPLES_H

#include "base/buf.h"

struct example_file {
	const char *example, *path; /* path inside the example's folder */
	struct str body;
	bool executable;
};

extern const struct example_file example_files[];
extern const size_t n_example_files;

#endif
