/* glob.c - one matcher for three dialects of file patterns: ours, the Hub's, gitignore's. */
#include "core/glob.h"

enum dialect {
	GLOB_OWN,    /* `*` stops at '/', `**` crosses it */
	GLOB_HUB,    /* `*` crosses '/' */
	GLOB_IGNORE, /* as our own, and a backslash makes the next character ordinary */
};

/* The next character: one UTF-8 sequence, or one byte of what is none. */
static size_t char_len(const char *p, const char *end)
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

/* Orders characters as their code points: UTF-8 was made so. */
static uint32_t char_at(const char *p, const char *end)
{
	uint32_t c = 0;

	for (size_t i = 0, n = char_len(p, end); i < n; i++)
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
		uint32_t lo = char_at(p, close), hi = lo;

		p += char_len(p, close);
		if (close - p >= 2 && *p == '-') {
			hi = char_at(p + 1, close);
			p += 1 + char_len(p + 1, close);
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
	size_t n = char_len(s, se);
	bool same;

	if (close != NULL) {
		same = (*s != '/' || d == GLOB_HUB) && class_has(p, close, char_at(s, se));
		p = close + 1;
	} else if (*p == '?') {
		same = *s != '/' || d == GLOB_HUB;
		p++;
	} else {
		if (d == GLOB_IGNORE && *p == '\\' && p + 1 < pe)
			p++;
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
		if (p == pe && p > pattern.p && p[-1] == '/' && d != GLOB_IGNORE)
			return true; /* "data/" is all below data */
		if (p < pe && s < se && match_one(&p, pe, &s, se, d))
			continue;
		if (star.p != NULL && star.s < se && *star.s != '/') {
			star.s += char_len(star.s, se);
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
			deep.s += char_len(deep.s, se);
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

/* Blanks at the end go, unless the last one is quoted. */
static struct str trim_end(struct str line)
{
	while (line.n > 0 && strchr(" \t\r", line.p[line.n - 1]) != NULL &&
	       line.p[line.n - 1] != '\0' && !(line.n > 1 && line.p[line.n - 2] == '\\'))
		line.n--;
	return line;
}

static bool parse_rule(struct str line, struct rule *out)
{
	line = trim_end(line);
	*out = (struct rule){0};
	if (line.n == 0 || line.p[0] == '#')
		return false;
	if (line.p[0] == '!') {
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
	return line.n > 0 && line.n <= GLOB_MAX; /* a longer one could match nothing */
}

struct ignore *ignore_parse(struct arena *a, struct str text)
{
	struct ignore *ig = ARENA_NEW(a, struct ignore);
	struct str rest = arena_str(a, text), line;
	size_t lines = 1;

	for (size_t i = 0; i < text.n; i++)
		lines += text.p[i] == '\n';
	ig->rule = ARENA_ARRAY(a, struct rule, lines);
	while (str_cut(&rest, '\n', &line)) {
		if (parse_rule(line, &ig->rule[ig->n]))
			ig->n++;
	}
	return ig;
}

static enum ignore_word last_says(const struct ignore *ig, struct str path, bool is_dir)
{
	const char *slash = memrchr(path.p, '/', path.n);
	struct str name = slash != NULL ? str_skip(path, (size_t)(slash - path.p) + 1) : path;

	for (size_t i = ig->n; i-- > 0;) {
		const struct rule *r = &ig->rule[i];

		if (r->folders && !is_dir)
			continue;
		if (match(r->pattern, r->rooted ? path : name, GLOB_IGNORE))
			return r->back ? IGNORE_IN : IGNORE_OUT;
	}
	return IGNORE_SILENT;
}

enum ignore_word ignore_says(const struct ignore *ig, const char *path, bool is_dir)
{
	return path[0] != '\0' ? last_says(ig, str_of(path), is_dir) : IGNORE_SILENT;
}

/* Everything in an ignored folder is ignored; no pattern brings it back. */
bool ignore_match(const struct ignore *ig, const char *path, bool is_dir)
{
	for (const char *p = strchr(path, '/'); p != NULL; p = strchr(p + 1, '/')) {
		if (p > path && last_says(ig, str_n(path, (size_t)(p - path)), true) == IGNORE_OUT)
			return true;
	}
	return ignore_says(ig, path, is_dir) == IGNORE_OUT;
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
