/* base.c - allocation that cannot fail, and text into fixed arrays. */
#include "base/base.h"

static void *must(void *p)
{
	if (p == NULL) {
		static const char msg[] = "stoker: out of memory\n";

		(void)!write(2, msg, sizeof(msg) - 1);
		abort();
	}
	return p;
}

void *xmalloc(size_t n)
{
	return must(malloc(n > 0 ? n : 1));
}

void *xcalloc(size_t count, size_t n)
{
	return must(calloc(count > 0 ? count : 1, n > 0 ? n : 1));
}

void *xrealloc(void *p, size_t n)
{
	return must(realloc(p, n > 0 ? n : 1));
}

char *xstrdup(const char *s)
{
	return must(strdup(s));
}

char *xstrndup(const char *s, size_t n)
{
	return must(strndup(s, n));
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *out = NULL;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&out, fmt, ap);
	va_end(ap);
	return must(n < 0 ? NULL : out);
}

void fmt_fixed(char *out, size_t cap, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(out, cap, fmt, ap);
	va_end(ap);
	assert(n >= 0 && (size_t)n < cap);
}

void copy_cut(char *out, size_t cap, const char *text)
{
	size_t n = strlen(text);

	assert(cap > 0);
	if (n >= cap)
		n = cap - 1;
	memcpy(out, text, n);
	out[n] = '\0';
}
