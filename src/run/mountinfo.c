/* mountinfo.c - see mountinfo.h; the format is of proc(5). */
#include "run/mountinfo.h"

#define FIELDS 5 /* id, parent, major:minor, root, mount point */

/* "\040" and its like. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s != '\0'; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)(((s[1] - '0') << 6) | ((s[2] - '0') << 3) | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

bool mountinfo_next(struct arena *a, struct str *text, struct mountinfo *out)
{
	struct str line;

	while (str_cut(text, '\n', &line)) {
		struct str field[FIELDS] = {{0}};
		char *root, *at;
		size_t n = 0;

		while (n < FIELDS && str_cut(&line, ' ', &field[n]))
			n++;
		if (n < FIELDS)
			continue;
		root = arena_strz(a, field[3]);
		at = arena_strz(a, field[4]);
		unescape(root);
		unescape(at);
		*out = (struct mountinfo){field[2], root, at};
		return true;
	}
	return false;
}

/* The rest of a path that is `top` or lies below it: "" or "/rest"; else NULL. */
static const char *rest_of(const char *path, const char *top)
{
	size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);

	if (strncmp(path, top, n) != 0 || (path[n] != '/' && path[n] != '\0'))
		return NULL;
	return strcmp(path + n, "/") == 0 ? "" : path + n;
}

static const char *join(struct arena *a, const char *top, const char *rest)
{
	if (rest[0] == '\0')
		return top;
	return arena_printf(a, "%s%s", strcmp(top, "/") == 0 ? "" : top, rest);
}

size_t mountinfo_names(struct arena *a, struct str text, const char *path,
                       const char *out[MOUNTINFO_NAMES_MAX])
{
	struct mountinfo own = {.at = NULL}, one;
	struct str rest = text;
	const char *inner;
	size_t n = 0;

	while (mountinfo_next(a, &rest, &one)) { /* the innermost; of several the uppermost */
		if (rest_of(path, one.at) != NULL &&
		    (own.at == NULL || strlen(one.at) >= strlen(own.at)))
			own = one;
	}
	if (own.at == NULL)
		return 0;
	inner = join(a, own.root, rest_of(path, own.at));
	rest = text;
	while (n < MOUNTINFO_NAMES_MAX && mountinfo_next(a, &rest, &one)) {
		const char *below = rest_of(inner, one.root);
		const char *name = below != NULL                      ? join(a, one.at, below)
		                   : rest_of(one.root, inner) != NULL ? one.at
		                                                      : NULL;

		if (name != NULL && str_same(one.device, own.device) && strcmp(name, "/") != 0 &&
		    strcmp(name, path) != 0)
			out[n++] = name;
	}
	return n;
}
