/*
 * doc.h - the tree that both JSON (json.h) and YAML (yaml.h) become, so that one validator reads
 * either. Nodes live in an arena and are never changed. All getters accept NULL and wrong kinds and
 * return the default, so a path of optional members reads as one expression.
 */
#ifndef DOC_H
#define DOC_H

#include "base/arena.h"

enum doc_kind { DOC_NULL, DOC_BOOL, DOC_INT, DOC_REAL, DOC_TEXT, DOC_LIST, DOC_MAP };

struct doc {
	enum doc_kind kind;
	unsigned line, col; /* 1-based place in the file; 0 where the format has none (JSON) */
	struct str key;     /* name inside a map, else empty */
	unsigned key_line, key_col;
	struct str text; /* DOC_TEXT; of YAML also what a number was written as */
	int64_t num;     /* DOC_INT */
	double real;     /* DOC_REAL, and DOC_INT as a double */
	bool flag;       /* DOC_BOOL */
	size_t count;    /* children of a list or map */
	struct doc *first, *next;
};

#define DOC_EACH(child, parent)                                                                    \
	for (const struct doc *child = doc_first(parent); child != NULL; child = child->next)

const struct doc *doc_first(const struct doc *d);
const struct doc *doc_get(const struct doc *d, const char *key);
/* Several steps: doc_path(d, "a", "b", NULL). */
const struct doc *doc_path(const struct doc *d, ...) __attribute__((sentinel));
struct str doc_text(const struct doc *d);                    /* empty unless DOC_TEXT */
const char *doc_cstr(const struct doc *d, const char *dflt); /* NUL-terminated in its arena */
int64_t doc_int(const struct doc *d, int64_t dflt);
double doc_real(const struct doc *d, double dflt); /* also of DOC_INT */
bool doc_bool(const struct doc *d, bool dflt);
bool doc_is(const struct doc *d, enum doc_kind kind);
const char *doc_kind_name(enum doc_kind kind); /* "a number", "a list", ... for messages */

#endif
