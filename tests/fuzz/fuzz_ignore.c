/* fuzz_ignore.c - first line: a path; the rest: an ignore file. Small lines without classes are
 * held to a matcher that tries everything, as git's does. */
#include "core/ignore.h"

#define SLOW_MAX 20 /* bytes of line and path that the slow one is given */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool slow(const char *p, const char *s, const char *start)
{
	if (*p == '\0')
		return *s == '\0';
	if (*p == '*') {
		const char *rest = p + strspn(p, "*");
		bool deep = rest - p > 1 && (p == start || p[-1] == '/') &&
		            (*rest == '\0' || *rest == '/');

		if (deep && *rest == '/' && slow(rest + 1, s, start))
			return true;
		for (;; s++) {
			if (slow(rest, s, start))
				return true;
			if (*s == '\0' || (*s == '/' && !deep))
				return false;
		}
	}
	if (*s == '\0' || (*p == '?' ? *s == '/' : *p != *s))
		return false;
	return slow(p + 1, s + 1, start);
}

static bool is_plain(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] <= ' ' || s.p[i] == 127 || strchr("[\\#!", s.p[i]) != NULL)
			return false;
	return s.n > 0 && s.n <= SLOW_MAX && s.p[0] != '/' && s.p[s.n - 1] != '/';
}

static void compare(struct arena *a, struct str line, const char *path)
{
	const char *pattern = arena_strz(a, line), *name = strrchr(path, '/');
	bool out = strchr(pattern, '/') != NULL || name == NULL ? slow(pattern, path, pattern)
	                                                        : slow(pattern, name + 1, pattern);

	assert((ignore_says(ignore_parse(a, line), path, false) == IGNORE_OUT) == out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str rest = str_n((const char *)data, n), path, line;
	uint64_t work = n % 7 == 0 ? n : 100000000;

	if (!str_cut(&rest, '\n', &path))
		return 0;
	(void)ignore_match(ignore_parse(a, rest), arena_strz(a, path), n % 2 == 0, &work);
	while (str_cut(&rest, '\n', &line))
		if (is_plain(line) && is_plain(path))
			compare(a, line, arena_strz(a, path));
	return 0;
}
