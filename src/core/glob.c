/* glob.c - one matcher for two dialects of file patterns: ours and the Hub's. */
#include "core/glob.h"

enum dialect {
	GLOB_OWN, /* `*` stops at '/', `**` crosses it */
	GLOB_HUB, /* `*` crosses '/' */
};

size_t glob_char_len(const char *p, const char *end)
{
	unsigned char c = (unsigned char)*p;
	size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

	if ((size_t)(end - p) < want)
		return 1;
	for (size_t i = 1; i < want; i++) {
		if (((unsigned char)p[i] & 0xc0) != 0x80)
			return 1;
	}
	return want;
}

uint32_t glob_char_at(const char *p, const char *end)
{
	uint32_t c = 0;

	for (size_t i = 0, n = glob_char_len(p, end); i < n; i++)
		c = c << 8 | (unsigned char)p[i];
	return c;
}

/* The ']' that closes the class whose '[' is at p; NULL when there is none. */
static const char *class_end(const char *p, const char *end)
{
	p++;
	if (p < end && *p == '!')
		p++;
	if (p < end && *p == ']') /* first of all: an ordinary member */
		p++;
	return p < end ? memchr(p, ']', (size_t)(end - p)) : NULL;
}

static bool class_has(const char *p, const char *close, uint32_t c)
{
	bool negated = *++p == '!', found = false;

	p += negated;
	while (p < close) {
		uint32_t lo = glob_char_at(p, close), hi = lo;

		p += glob_char_len(p, close);
		if (close - p >= 2 && *p == '-') {
			hi = glob_char_at(p + 1, close);
			p += 1 + glob_char_len(p + 1, close);
		}
		found = found || (lo <= c && c <= hi);
	}
	return found != negated;
}

/* Matches one character of the pattern; *pp and *sp move on only when it does. */
static bool match_one(const char **pp, const char *pe, const char **sp, const char *se,
                      enum dialect d)
{
	const char *p = *pp, *s = *sp;
	const char *close = *p == '[' ? class_end(p, pe) : NULL;
	size_t n = glob_char_len(s, se);
	bool same;

	if (close != NULL) {
		same = (*s != '/' || d == GLOB_HUB) && class_has(p, close, glob_char_at(s, se));
		p = close + 1;
	} else if (*p == '?') {
		same = *s != '/' || d == GLOB_HUB;
		p++;
	} else {
		same = *p == *s;
		p++;
		n = 1;
	}
	if (same) {
		*pp = p;
		*sp = s + n;
	}
	return same;
}

/* Where to go on when a later part does not match: the pattern after the star, and the text it is
 * to be tried on next. */
struct retry {
	const char *p, *s;
	bool folders; /* "**" and a slash: takes whole folders only */
};

/* The last `*` and the last `**` are enough to go back to: an earlier one would only leave the rest
 * of the pattern less of the text. */
static bool match(struct str pattern, struct str text, enum dialect d)
{
	const char *p = pattern.p, *pe = p + pattern.n;
	const char *s = text.n > 0 ? text.p : "", *se = s + text.n;
	struct retry star = {0}, deep = {0};

	for (unsigned steps = 0; steps < GLOB_STEPS_MAX; steps++) {
		if (p < pe && *p == '*') {
			bool at_start = p == pattern.p || p[-1] == '/';
			size_t n = 1;

			while (p + n < pe && p[n] == '*')
				n++;
			p += n;
			if (n == 1 && d != GLOB_HUB) {
				star = (struct retry){p, s, false};
				continue;
			}
			deep = (struct retry){p, s, false};
			star.p = NULL;
			if (d != GLOB_HUB && at_start && p < pe && *p == '/') {
				p++;
				deep = (struct retry){p, s, true};
			}
			continue;
		}
		if (p == pe && s == se)
			return true;
		if (p == pe && p > pattern.p && p[-1] == '/')
			return true; /* "data/" is all below data */
		if (p < pe && s < se && match_one(&p, pe, &s, se, d))
			continue;
		if (star.p != NULL && star.s < se && *star.s != '/') {
			star.s += glob_char_len(star.s, se);
			p = star.p;
			s = star.s;
			continue;
		}
		star.p = NULL;
		if (deep.p == NULL || deep.s >= se)
			return false;
		if (deep.folders) {
			const char *slash = memchr(deep.s, '/', (size_t)(se - deep.s));

			if (slash == NULL)
				return false;
			deep.s = slash + 1;
		} else {
			deep.s += glob_char_len(deep.s, se);
		}
		p = deep.p;
		s = deep.s;
	}
	return false;
}

int glob_check(struct str pattern, struct err *err)
{
	const char *p = pattern.p, *end = p + pattern.n;

	if (pattern.n == 0)
		return err_set(err, ERR_INVALID, "a pattern is empty");
	if (pattern.n > GLOB_MAX)
		return err_set(err, ERR_INVALID, "a pattern of %zu bytes; the limit is %d",
		               pattern.n, GLOB_MAX);
	if (memchr(p, '\0', pattern.n) != NULL)
		return err_set(err, ERR_INVALID, "a pattern contains a NUL byte");
	while (p < end) {
		if (*p == '[') {
			p = class_end(p, end);
			if (p == NULL)
				return err_set(
					err, ERR_INVALID,
					"pattern \"%.*s\": '[' is never closed (write [[] for "
					"a plain one)",
					STR_ARG(pattern));
		}
		p++;
	}
	return 0;
}

bool glob_match(struct str pattern, struct str path)
{
	return pattern.n > 0 && pattern.n <= GLOB_MAX && match(pattern, path, GLOB_OWN);
}

bool glob_match_hub(struct str pattern, struct str path)
{
	return pattern.n > 0 && pattern.n <= GLOB_MAX && match(pattern, path, GLOB_HUB);
}

bool glob_wanted(const struct glob_filter *f, struct str path)
{
	bool wanted = f->n_allow == 0;

	for (size_t i = 0; i < f->n_allow && !wanted; i++)
		wanted = glob_match(str_of(f->allow[i]), path);
	for (size_t i = 0; i < f->n_ignore && wanted; i++)
		wanted = !glob_match(str_of(f->ignore[i]), path);
	return wanted;
}
