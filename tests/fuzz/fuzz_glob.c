/* fuzz_glob.c - first line: a path; the rest: patterns. A pattern without
 * special characters matches itself alone; the matcher is held to a slow one that tries everything.
 */
#include "core/glob.h"

#define SLOW_MAX 24 /* bytes of pattern and path that the slow one is given */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Only `*`, `**`, `?` and ordinary bytes; `deep`: `*` crosses '/'. */
static bool slow(const char *p, const char *s, const char *start, bool deep)
{
	if (*p == '\0')
		return *s == '\0' || (p > start && p[-1] == '/');
	if (*p == '*') {
		size_t stars = strspn(p, "*");
		bool at_start = p == start || p[-1] == '/';
		bool cross = deep || stars > 1;
		const char *rest = p + stars;

		if (!deep && stars > 1 && at_start && *rest == '/') {
			rest++;
			for (const char *t = s;;) {
				if (slow(rest, t, start, deep))
					return true;
				t = strchr(t, '/');
				if (t == NULL)
					return false;
				t++;
			}
		}
		for (;; s++) {
			if (slow(rest, s, start, deep))
				return true;
			if (*s == '\0' || (*s == '/' && !cross))
				return false;
		}
	}
	if (*s == '\0' || (*p == '?' ? *s == '/' && !deep : *p != *s))
		return false;
	return slow(p + 1, s + 1, start, deep);
}

static bool is_plain(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] <= ' ' || s.p[i] == 127 || s.p[i] == '[')
			return false;
	}
	return s.n > 0 && s.n <= SLOW_MAX;
}

static void compare(struct str pattern, struct str path)
{
	AUTO_FREE char *p = str_dup(pattern);
	AUTO_FREE char *s = str_dup(path);

	assert(glob_match(pattern, path) == slow(p, s, p, false));
	assert(glob_match_hub(pattern, path) == slow(p, s, p, true));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct str rest = str_n((const char *)data, n), path, pattern;
	struct err err = {0};

	if (!str_cut(&rest, '\n', &path))
		return 0;
	while (str_cut(&rest, '\n', &pattern)) {
		if (glob_check(pattern, &err) < 0)
			err_clear(&err);
		(void)glob_match(pattern, path);
		(void)glob_match_hub(pattern, path);
		if (is_plain(pattern) && is_plain(path))
			compare(pattern, path);
	}
	return 0;
}
