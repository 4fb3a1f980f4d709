/* words.c - see words.h. */
#include "base/words.h"

const char *words_at(const struct words *w, unsigned i)
{
	assert(i < w->n);
	return *(const char *const *)(const void *)((const char *)w->first + i * w->each);
}

int words_parse(const struct words *w, struct str word, enum err_code code, struct err *err)
{
	for (unsigned i = 0; i < w->n; i++) {
		const char *one = words_at(w, i);

		if (one != NULL && str_eq(word, one))
			return (int)i;
	}
	return err_set(err, code, "\"%.*s\" is not %s", (int)MIN(word.n, (size_t)40),
	               word.p == NULL ? "" : word.p, w->what);
}
