/*
 * ignore.c - see ignore.h. A pattern is matched as git's wildmatch() does, but never goes back
 * further than to its last star: an earlier one would only leave the rest of the pattern less of
 * the text.
 */
#include "core/ignore.h"

#include "core/glob.h"

#include <ctype.h>

struct rule {
	struct str pattern;
	bool back;    /* `!`: wanted after all */
	bool folders; /* trailing slash */
	bool rooted;  /* a slash inside: the whole path, else the last part of it */
};

struct ignore {
	struct rule *rule;
	size_t n;
};

/* ---- one pattern --------------------------------------------------------------------------- */

static bool in_class(struct str name, uint32_t c, bool *known)
{
	static const struct {
		const char *name;
		int (*has)(int c);
	} classes[] = {
		{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank},   {"cntrl", iscntrl},
		{"digit", isdigit}, {"graph", isgraph}, {"lower", islower},   {"print", isprint},
		{"punct", ispunct}, {"space", isspace}, {"xdigit", isxdigit}, {"upper", isupper},
	};

	for (size_t i = 0; i < COUNT(classes); i++)
		if (str_eq(name, classes[i].name)) {
			*known = true;
			return c < 128 && classes[i].has((int)c) != 0;
		}
	*known = false;
	return false;
}

/* A character of a class, which a backslash may stand before. False: the pattern ends here. */
static bool member(const char **pp, const char *end, uint32_t *out)
{
	const char *p = *pp;

	if (p < end && *p == '\\')
		p++;
	if (p >= end)
		return false;
	*out = glob_char_at(p, end);
	*pp = p + glob_char_len(p, end);
	return true;
}

/* "[:name:]" at p; *found: it has c. Returns what is behind it, NULL: it is none, `end`: it is one
 * that nobody knows. */
static const char *named_class(const char *p, const char *end, uint32_t c, bool *found)
{
	const char *close;
	bool known;

	if (end - p < 2 || p[1] != ':')
		return NULL;
	close = memchr(p + 2, ']', (size_t)(end - p) - 2);
	if (close == NULL)
		return end;
	if (close == p + 2 || close[-1] != ':')
		return NULL;
	*found = in_class(str_n(p + 2, (size_t)(close - p) - 3), c, &known) || *found;
	return known ? close + 1 : end;
}

/* The class whose '[' is at *pp; false as well when it is never closed. *pp is behind it then. */
static bool match_class(const char **pp, const char *end, uint32_t c)
{
	const char *p = *pp + 1, *behind;
	bool negated = p < end && (*p == '!' || *p == '^'), found = false, first = true;
	uint32_t low = 0, high; /* low 0: no range begins with it */

	for (p += negated; p < end && (first || *p != ']'); first = false) {
		behind = *p == '[' ? named_class(p, end, c, &found) : NULL;
		if (behind != NULL) {
			p = behind;
			low = 0;
			continue;
		}
		if (*p == '-' && low != 0 && end - p > 1 && p[1] != ']') {
			p++;
			if (!member(&p, end, &high))
				return false;
			found = found || (low <= c && c <= high);
			low = 0;
			continue;
		}
		if (!member(&p, end, &low))
			return false;
		found = found || low == c;
	}
	if (p >= end)
		return false;
	*pp = p + 1;
	return found != negated;
}

/* One character of the pattern; *pp and *sp move on only when it matches. Only a slash matches a
 * slash. */
static bool match_one(const char **pp, const char *pe, const char **sp, const char *se)
{
	const char *p = *pp, *s = *sp;
	size_t n = glob_char_len(s, se);

	if (*p == '[') {
		if (*s == '/' || !match_class(&p, pe, glob_char_at(s, se)))
			return false;
	} else if (*p == '?') {
		if (*s == '/')
			return false;
		p++;
	} else {
		if (*p == '\\')
			p++;
		if (p == pe || *p != *s)
			return false;
		p++;
		n = 1;
	}
	*pp = p;
	*sp = s + n;
	return true;
}

/* Where to go on when a later part does not match: the pattern behind the star, and the text it is
 * to be tried on next. */
struct retry {
	const char *p, *s;
};

static bool match(struct str pattern, struct str text, uint64_t *work)
{
	const char *p = pattern.p, *pe = p + pattern.n;
	const char *s = text.p, *se = s + text.n, *slash;
	struct retry star = {0}, deep = {0}; /* deep: takes whole folders */

	for (; *work > 0; --*work) {
		if (p < pe && *p == '*') {
			bool alone = p == pattern.p || p[-1] == '/';
			size_t n = 1;

			while (p + n < pe && p[n] == '*')
				n++;
			p += n;
			if (n == 1 || !alone || (p < pe && *p != '/')) {
				star = (struct retry){p, s};
				continue;
			}
			if (p == pe)
				return true;
			deep = (struct retry){++p, s};
			star.p = NULL;
			continue;
		}
		if (p == pe && s == se)
			return true;
		if (p < pe && s < se && match_one(&p, pe, &s, se)) {
			if (s[-1] == '/') /* no star behind it takes more than it has */
				star.p = NULL;
			continue;
		}
		if (star.p != NULL && star.s < se && *star.s != '/') {
			star.s += glob_char_len(star.s, se);
			p = star.p;
			s = star.s;
			continue;
		}
		star.p = NULL;
		slash = deep.p != NULL ? memchr(deep.s, '/', (size_t)(se - deep.s)) : NULL;
		if (slash == NULL)
			return false;
		deep.s = slash + 1;
		p = deep.p;
		s = deep.s;
	}
	return false;
}

/* ---- a file of them ------------------------------------------------------------------------ */

/* Blanks at the end go, unless the last one is quoted. */
static struct str trim_end(struct str line)
{
	size_t keep = 0;

	if (line.n > 0 && line.p[line.n - 1] == '\r')
		line.n--;
	for (size_t i = 0; i < line.n; i++) {
		if (line.p[i] == '\\' && i + 1 < line.n)
			i++;
		else if (line.p[i] == ' ')
			continue;
		keep = i + 1;
	}
	line.n = keep;
	return line;
}

static bool parse_rule(struct str line, struct rule *out)
{
	*out = (struct rule){0};
	if (line.n == 0 || line.p[0] == '#')
		return false;
	line = trim_end(line);
	if (line.n > 0 && line.p[0] == '!') {
		out->back = true;
		line = str_skip(line, 1);
	}
	if (line.n > 0 && line.p[line.n - 1] == '/') {
		out->folders = true;
		line.n--;
	}
	out->rooted = line.n > 0 && memchr(line.p, '/', line.n) != NULL;
	if (line.n > 0 && line.p[0] == '/')
		line = str_skip(line, 1);
	out->pattern = line;
	return line.n > 0;
}

struct ignore *ignore_parse(struct arena *a, struct str text)
{
	struct ignore *ig = ARENA_NEW(a, struct ignore);
	struct str rest = arena_str(a, text), line;
	size_t lines = 1;

	if (str_starts(rest, "\xef\xbb\xbf")) /* what some editors begin a file with */
		rest = str_skip(rest, 3);
	for (size_t i = 0; i < text.n; i++)
		lines += text.p[i] == '\n';
	ig->rule = ARENA_ARRAY(a, struct rule, lines);
	while (str_cut(&rest, '\n', &line)) {
		if (parse_rule(line, &ig->rule[ig->n]))
			ig->n++;
	}
	return ig;
}

static enum ignore_word last_says(const struct ignore *ig, struct str path, bool is_dir,
                                  uint64_t *work)
{
	const char *slash = memrchr(path.p, '/', path.n);
	struct str name = slash != NULL ? str_skip(path, (size_t)(slash - path.p) + 1) : path;

	for (size_t i = ig->n; i-- > 0;) {
		const struct rule *r = &ig->rule[i];

		if (*work == 0)
			return IGNORE_SILENT;
		--*work;
		if (r->folders && !is_dir)
			continue;
		if (match(r->pattern, r->rooted ? path : name, work))
			return r->back ? IGNORE_IN : IGNORE_OUT;
	}
	return IGNORE_SILENT;
}

enum ignore_word ignore_says(const struct ignore *ig, const char *path, bool is_dir)
{
	uint64_t any = UINT64_MAX;

	return path[0] != '\0' ? last_says(ig, str_of(path), is_dir, &any) : IGNORE_SILENT;
}

/* Everything in an ignored folder is ignored; no pattern brings it back. */
bool ignore_match(const struct ignore *ig, const char *path, bool is_dir, uint64_t *work)
{
	uint64_t any = UINT64_MAX;

	work = work != NULL ? work : &any;
	for (const char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) {
		if (p > path &&
		    last_says(ig, str_n(path, (size_t)(p - path)), true, work) == IGNORE_OUT)
			return true;
	}
	return path[0] != '\0' && last_says(ig, str_of(path), is_dir, work) == IGNORE_OUT;
}

/* checkpoints/ is where `stoker checkpoints pull` puts them. The rest are keys and tokens, for a
 * job file in a home folder. */
const char ignore_always[] = ".git/\n"
			     "/checkpoints/\n"
			     ".ssh/\n"
			     ".aws/\n"
			     ".gnupg/\n"
			     ".netrc\n"
			     ".git-credentials\n"
			     "/.config/stoker/\n";
const char ignore_builtin[] = ".hg/\n"
			      ".svn/\n"
			      ".DS_Store\n"
			      "__pycache__/\n"
			      "*.pyc\n"
			      ".venv/\n"
			      "venv/\n"
			      ".tox/\n"
			      ".mypy_cache/\n"
			      ".pytest_cache/\n"
			      ".ruff_cache/\n"
			      ".ipynb_checkpoints/\n"
			      ".cache/\n"
			      "node_modules/\n"
			      "wandb/\n";
