/* doc.c - reading a doc tree without asking first. */
#include "base/doc.h"

#define DOC_STEPS_MAX 16 /* of doc_path */

bool doc_is(const struct doc *d, enum doc_kind kind)
{
	return d != NULL && d->kind == kind;
}

const struct doc *doc_first(const struct doc *d)
{
	return doc_is(d, DOC_LIST) || doc_is(d, DOC_MAP) ? d->first : NULL;
}

const struct doc *doc_get(const struct doc *d, const char *key)
{
	if (!doc_is(d, DOC_MAP))
		return NULL;
	DOC_EACH (child, d) {
		if (str_eq(child->key, key))
			return child;
	}
	return NULL;
}

const struct doc *doc_path(const struct doc *d, ...)
{
	va_list ap;
	const char *key;
	int steps = 0;

	va_start(ap, d);
	while ((key = va_arg(ap, const char *)) != NULL) {
		steps++;
		assert(steps <= DOC_STEPS_MAX);
		d = doc_get(d, key);
	}
	va_end(ap);
	return d;
}

struct str doc_text(const struct doc *d)
{
	return doc_is(d, DOC_TEXT) ? d->text : str_of(NULL);
}

const char *doc_cstr(const struct doc *d, const char *dflt)
{
	return doc_is(d, DOC_TEXT) ? d->text.p : dflt;
}

int64_t doc_int(const struct doc *d, int64_t dflt)
{
	return doc_is(d, DOC_INT) ? d->num : dflt;
}

double doc_real(const struct doc *d, double dflt)
{
	return doc_is(d, DOC_INT) || doc_is(d, DOC_REAL) ? d->real : dflt;
}

bool doc_bool(const struct doc *d, bool dflt)
{
	return doc_is(d, DOC_BOOL) ? d->flag : dflt;
}

const char *doc_kind_name(enum doc_kind kind)
{
	static const char *const names[] = {
		[DOC_NULL] = "nothing",  [DOC_BOOL] = "true or false", [DOC_INT] = "a whole number",
		[DOC_REAL] = "a number", [DOC_TEXT] = "text",          [DOC_LIST] = "a list",
		[DOC_MAP] = "a mapping",
	};

	assert((size_t)kind < COUNT(names));
	return names[kind];
}
