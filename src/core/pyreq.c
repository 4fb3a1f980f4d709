/* pyreq.c - requirements, line by line; see pyreq.h. */
#include "core/pyreq.h"

#include "base/fs.h"

#define NOT_LOCAL                                                                                  \
	"an environment is shared between jobs, and your code is not. Put it into the job's "      \
	"folder and set PYTHONPATH; see \"Your own package\" in docs/python.md"
#define NO_PASSWORD                                                                                \
	"a password does not belong in this file: write ${NAME} and set NAME in "                  \
	"environment_variables to { secret: ... }"

struct part {
	const char *path; /* NULL: the list of the job file */
	const char *name;
	bool constraint;
	struct buf text;
	unsigned lines;
};

struct reading {
	struct arena *a;
	const struct pyreq_from *from; /* NULL: nested files are not read */
	struct pyreq *out;
	struct buf packages, constraints, options;
	const char *file; /* that is being read; NULL: the list of the job file */
	unsigned line;
	size_t files, lines;
	unsigned depth;
	bool constrain; /* the file was named by -c */
	struct part part[PYREQ_FILES_MAX + 1];
	size_t n_parts;
	struct part *into; /* NULL: none, or it has been read before */
};

PRINTF(3, 4)
static int wrong(const struct reading *r, struct err *err, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* shown only: cut to fit */
	va_end(ap);
	if (r->file != NULL)
		return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID, "%.300s:%u: %s", r->file,
		               r->line, text);
	return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID, "%s", text);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* --- what is kept of a file --- */

static struct part *add_part(struct reading *r)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct part *p = &r->part[i];

		if (p->path != NULL && r->file != NULL && strcmp(p->path, r->file) == 0 &&
		    p->constraint == r->constrain)
			return NULL;
	}
	assert(r->n_parts < COUNT(r->part));
	r->part[r->n_parts] = (struct part){
		.path = r->file, .constraint = r->constrain, .text = BUF_INIT(PYREQ_TEXT_MAX)};
	return &r->part[r->n_parts++];
}

PRINTF(2, 3) static void keep(struct reading *r, const char *fmt, ...)
{
	struct part *p = r->into;
	va_list ap;

	if (p == NULL)
		return;
	for (; p->lines + 1 < r->line; p->lines++)
		buf_putc(&p->text, '\n');
	va_start(ap, fmt);
	buf_vprintf(&p->text, fmt, ap);
	va_end(ap);
	buf_putc(&p->text, '\n');
	p->lines++;
}

/* By these, Python and uv take a file for something else. */
static bool means_more(struct str name)
{
	static const char *const ends[] = {".py", ".pyw", ".toml", ".cfg"};

	for (size_t i = 0; i < COUNT(ends); i++) {
		if (str_ends(name, ends[i]))
			return true;
	}
	return false;
}

/* Both as files, or one as a folder of the other. */
static bool is_in_the_way(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b), least = MIN(n, m);

	return strncmp(a, b, least) == 0 && (n == m || (n > m ? a : b)[least] == '/');
}

static bool is_taken(const struct reading *r, size_t i, const char *name)
{
	const char *own = r->part[i].path;

	for (size_t k = 0; k < r->n_parts; k++) {
		const char *path = r->part[k].path;

		if (k == i || (own != NULL && path != NULL && strcmp(own, path) == 0))
			continue;
		if ((path != NULL && is_in_the_way(path, name)) ||
		    (k < i && is_in_the_way(r->part[k].name, name)))
			return true;
	}
	return false;
}

static void name_parts(struct reading *r)
{
	for (size_t i = 0; i < r->n_parts; i++) {
		struct part *p = &r->part[i];

		p->name = p->path != NULL ? p->path : PYREQ_LIST_NAME;
		if (means_more(str_of(p->name)))
			p->name = arena_printf(r->a, "%s.txt", p->name);
		while (is_taken(r, i, p->name))
			p->name = arena_printf(r->a, "%s_", p->name);
	}
}

static int put_parts(struct reading *r, struct err *err)
{
	name_parts(r);
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct part *p = &r->part[i];

		if (p->text.n == 0)
			continue;
		if (buf_check(&p->text, p->name, err) < 0)
			return -1;
		r->out->part[r->out->n_parts++] =
			(struct pyreq_part){.name = p->name,
		                            .text = arena_str(r->a, buf_view(&p->text)),
		                            .constraint = p->constraint};
	}
	return 0;
}

/* --- variables and URLs --- */

/* pip's own pattern: ${NAME} of capital letters, digits, underscores. */
static int note_vars(struct reading *r, struct str line, struct err *err)
{
	for (size_t i = 0; i + 3 < line.n; i++) {
		size_t n = 0, k = 0;
		const char *name;

		if (line.p[i] != '$' || line.p[i + 1] != '{')
			continue;
		while (i + 2 + n < line.n &&
		       ((line.p[i + 2 + n] >= 'A' && line.p[i + 2 + n] <= 'Z') ||
		        (line.p[i + 2 + n] >= '0' && line.p[i + 2 + n] <= '9') ||
		        line.p[i + 2 + n] == '_'))
			n++;
		if (n == 0 || i + 2 + n >= line.n || line.p[i + 2 + n] != '}')
			continue;
		name = arena_strz(r->a, str_n(line.p + i + 2, n));
		while (k < r->out->n_vars && strcmp(r->out->var[k], name) != 0)
			k++;
		if (k == PYREQ_VARS_MAX)
			return wrong(r, err, "names more than %d variables", PYREQ_VARS_MAX);
		r->out->var[k] = name;
		r->out->n_vars = MAX(r->out->n_vars, k + 1);
	}
	return 0;
}

static struct str scheme_of(struct str url)
{
	size_t n = 0;

	while (n < url.n && (is_word(url.p[n]) || strchr("+.-", url.p[n]) != NULL))
		n++;
	return n > 0 && str_starts(str_skip(url, n), "://") ? str_n(url.p, n) : (struct str){0};
}

/* https://user:password@host */
static bool has_password(struct str url, struct str scheme)
{
	struct str rest = str_skip(url, scheme.n + 3);
	size_t n = 0, at = 0;

	while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#') {
		if (rest.p[n] == '@')
			at = n;
		n++;
	}
	if (at == 0 || memmem(rest.p, at, "${", 2) != NULL)
		return false;
	return memchr(rest.p, ':', at) != NULL || str_ends(scheme, "http") ||
	       str_ends(scheme, "https");
}

/* Accepts the URLs that packages and indexes may come from. */
static int check_url(const struct reading *r, struct str url, struct err *err)
{
	static const char *const schemes[] = {
		"https",    "http",    "git+https", "git+http", "git+ssh",   "git+git",  "git",
		"hg+https", "hg+http", "svn+https", "svn+http", "bzr+https", "bzr+http", NULL};
	struct str scheme = scheme_of(url);

	if (str_starts(url, "${"))
		return 0; /* a whole URL in a variable */
	for (size_t i = 0; schemes[i] != NULL; i++) {
		if (!str_ieq(scheme, schemes[i]))
			continue;
		return has_password(url, scheme) ? wrong(r, err, "%s", NO_PASSWORD) : 0;
	}
	if (scheme.n > 0 && !str_ieq(scheme, "file") && !str_ends(scheme, "+file"))
		return wrong(r, err, "\"%.*s\" URLs are not supported: use https or git+https",
		             (int)MIN(scheme.n, (size_t)40), scheme.p);
	return wrong(r, err, "\"%.*s\" is a local path: " NOT_LOCAL, (int)MIN(url.n, (size_t)100),
	             url.p);
}

/* --- options --- */

enum option_kind { OPT_URL, OPT_WORD, OPT_FLAG, OPT_FILE, OPT_CONSTRAINT, OPT_NO };

/* Each may be written "--name value" or "--name=value", the short ones "-n value". */
/* clang-format off */
static const struct option {
	const char *name, *brief; /* brief: NULL = none */
	enum option_kind kind;
	size_t flag;              /* of OPT_FLAG: a bool of struct pyreq; SIZE_MAX: a line */
	const char *cure;         /* of OPT_NO */
} options[] = {
	{"--requirement",     "-r", OPT_FILE,       0, NULL},
	{"--constraint",      "-c", OPT_CONSTRAINT, 0, NULL},
	{"--index-url",       "-i", OPT_URL,        0, NULL},
	{"--extra-index-url", NULL, OPT_URL,        0, NULL},
	{"--find-links",      "-f", OPT_URL,        0, NULL},
	{"--no-binary",       NULL, OPT_WORD,       0, NULL},
	{"--only-binary",     NULL, OPT_WORD,       0, NULL},
	{"--no-index",        NULL, OPT_FLAG, SIZE_MAX, NULL},
	{"--pre",             NULL, OPT_FLAG, offsetof(struct pyreq, pre), NULL},
	{"--require-hashes",  NULL, OPT_FLAG, offsetof(struct pyreq, hashes), NULL},
	{"--prefer-binary",   NULL, OPT_FLAG, offsetof(struct pyreq, binary), NULL},
	{"--editable",        "-e", OPT_NO, 0, NOT_LOCAL},
	{"--trusted-host",    NULL, OPT_NO, 0, "set PIP_TRUSTED_HOST or UV_INSECURE_HOST in "
	                                       "environment_variables instead"},
};
/* clang-format on */

/* "--name", its value into *value (trimmed, none: empty). NULL = not one of them. */
static const struct option *option_of(struct str line, struct str *value)
{
	size_t n = 0;

	while (n < line.n && line.p[n] != '=' && !is_blank(line.p[n]))
		n++;
	for (size_t i = 0; i < COUNT(options); i++) {
		const struct option *o = &options[i];
		struct str word = str_n(line.p, n);

		*value = str_trim(str_skip(line, n));
		if (value->n > 0 && value->p[0] == '=')
			*value = str_trim(str_skip(*value, 1));
		if (str_eq(word, o->name) || (o->brief != NULL && str_eq(word, o->brief)))
			return o;
		/* "-rdev.txt" */
		if (o->brief != NULL && line.n > 2 && line.p[1] != '-' &&
		    str_starts(line, o->brief)) {
			*value = str_trim(str_skip(line, 2));
			return o;
		}
	}
	return NULL;
}

static int read_file(struct reading *r, const char *path, bool constrain, struct err *err);

/* The path of a nested file, as seen from the one that names it; NULL: it leads out. */
static const char *nested(struct reading *r, struct str path)
{
	const char *slash = r->file != NULL ? strrchr(r->file, '/') : NULL;
	struct str part, rest = path;
	char *out = arena_alloc(r->a, FS_PATH_MAX);
	size_t n = slash != NULL ? (size_t)(slash - r->file) : 0;

	if (path.n == 0 || path.p[0] == '/' || n + path.n + 2 > FS_PATH_MAX)
		return NULL;
	if (n > 0)
		memcpy(out, r->file, n);
	while (str_cut(&rest, '/', &part)) {
		if (part.n == 0 || str_eq(part, "."))
			continue;
		if (str_eq(part, "..")) {
			if (n == 0)
				return NULL;
			while (n > 0 && out[n - 1] != '/')
				n--;
			n -= n > 0; /* the slash */
			continue;
		}
		if (n > 0)
			out[n++] = '/';
		memcpy(out + n, part.p, part.n);
		n += part.n;
	}
	out[n] = '\0';
	return fs_path_is_plain(str_n(out, n)) ? out : NULL;
}

static int take_file(struct reading *r, struct str value, bool constrain, struct err *err)
{
	const char *path;

	if (scheme_of(value).n > 0)
		return wrong(r, err, "\"%.*s\" is not in the job's folder: save it there",
		             (int)MIN(value.n, (size_t)100), value.p);
	path = nested(r, value);
	if (path == NULL)
		return wrong(r, err, "\"%.*s\" is not a path below the job's folder",
		             (int)MIN(value.n, (size_t)100), value.p);
	return r->from == NULL ? 0 : read_file(r, path, constrain || r->constrain, err);
}

static int take_option(struct reading *r, struct str line, struct err *err)
{
	struct str value = {0};
	const struct option *o = option_of(line, &value);
	size_t n = 0;

	if (o == NULL) {
		while (n < line.n && n < 60 && line.p[n] != '=' && !is_blank(line.p[n]))
			n++;
		return wrong(r, err, "%.*s is not supported here", (int)n, line.p);
	}
	if (o->kind != OPT_FLAG && o->kind != OPT_NO && value.n == 0)
		return wrong(r, err, "%s needs a value", o->name);
	if (o->kind == OPT_FLAG && value.n > 0)
		return wrong(r, err, "%s takes no value", o->name);
	switch (o->kind) {
	case OPT_FILE:
	case OPT_CONSTRAINT:
		return take_file(r, value, o->kind == OPT_CONSTRAINT, err);
	case OPT_URL:
		if (check_url(r, value, err) < 0)
			return -1;
		buf_printf(&r->options, "%s %.*s\n", o->name, STR_ARG(value));
		keep(r, "%s %.*s", o->name, STR_ARG(value));
		return note_vars(r, value, err);
	case OPT_WORD:
		buf_printf(&r->options, "%s %.*s\n", o->name, STR_ARG(value));
		keep(r, "%s %.*s", o->name, STR_ARG(value));
		return 0;
	case OPT_FLAG:
		if (o->flag == SIZE_MAX) {
			buf_printf(&r->options, "%s\n", o->name);
			keep(r, "%s", o->name);
		} else {
			*(bool *)((char *)r->out + o->flag) = true;
		}
		return 0;
	case OPT_NO:
		break;
	}
	return wrong(r, err, "%s cannot be used in a job's environment: %s", o->name, o->cure);
}

/* --- packages --- */

/* Checks the options after a requirement: only "--hash=sha256:..." is allowed. */
static int check_tail(const struct reading *r, struct str line, struct str *head, struct err *err)
{
	*head = line;
	for (size_t i = 0; i + 2 < line.n; i++) {
		size_t n = i + 1;

		if (!is_blank(line.p[i]) || line.p[i + 1] != '-' || line.p[i + 2] != '-')
			continue;
		if (head->n == line.n)
			*head = str_trim(str_n(line.p, i));
		while (n < line.n && line.p[n] != '=' && !is_blank(line.p[n]))
			n++;
		if (!str_eq(str_n(line.p + i + 1, n - i - 1), "--hash"))
			return wrong(r, err, "%.*s is not supported after a requirement",
			             (int)MIN(n - i - 1, (size_t)60), line.p + i + 1);
	}
	return 0;
}

static bool is_archive(struct str name)
{
	static const char *const ends[] = {".whl",    ".tar.gz", ".tar.bz2",
	                                   ".tar.xz", ".tgz",    ".zip"};

	for (size_t i = 0; i < COUNT(ends); i++) {
		if (str_ends(name, ends[i]))
			return true;
	}
	return false;
}

/* The text after the name and "[extra]": a version, a marker, "@ URL". */
static struct str behind_name(struct str line, struct str *name)
{
	struct str rest;
	size_t n = 0;

	while (n < line.n && (is_word(line.p[n]) || strchr("._-", line.p[n]) != NULL))
		n++;
	*name = str_n(line.p, n);
	rest = str_trim(str_skip(line, n));
	if (rest.n > 0 && rest.p[0] == '[') {
		const char *close = memchr(rest.p, ']', rest.n);

		if (close != NULL)
			return str_trim(str_skip(rest, (size_t)(close - rest.p) + 1));
	}
	return rest;
}

/* As PEP 508 has it, or a URL. */
static int check_package(const struct reading *r, struct str line, struct err *err)
{
	struct str name, rest;
	size_t n = 0;

	if (check_tail(r, line, &line, err) < 0)
		return -1;
	if (scheme_of(line).n > 0)
		return check_url(r, line, err);
	rest = behind_name(line, &name);
	if (name.n > 0 && rest.n > 0 && rest.p[0] == '@')
		return check_url(r, str_trim(str_skip(rest, 1)), err);
	while (n < line.n && !is_blank(line.p[n]) && line.p[n] != ';')
		n++;
	if (strchr("./~\\", line.p[0]) != NULL || is_archive(str_n(line.p, n)) ||
	    memchr(line.p, '/', n) != NULL)
		return check_url(r, str_n(line.p, n), err);
	if (name.n > 0 && rest.n > 1 && rest.p[0] == '=' && rest.p[1] != '=')
		return wrong(r, err,
		             "\"%.*s\" has no operator such as == or >=: write \"%.*s==1.0\"",
		             (int)MIN(line.n, (size_t)100), line.p, (int)MIN(name.n, (size_t)60),
		             name.p);
	if (name.n > 0 && is_word(name.p[0]) && is_word(name.p[name.n - 1]) &&
	    (rest.n == 0 || strchr("<>=!~;(", rest.p[0]) != NULL))
		return 0;
	return wrong(r, err, "\"%.*s\" is not a requirement such as \"numpy>=1.26\"",
	             (int)MIN(line.n, (size_t)100), line.p);
}

/* pip must see one line where we see one, and Python's splitlines knows more line ends. */
static bool is_several(struct str line)
{
	static const char *const ends[] = {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};

	for (size_t i = 0; i < line.n; i++) {
		if ((unsigned char)line.p[i] < ' ' && line.p[i] != '\t')
			return true;
		for (size_t k = 0; k < COUNT(ends); k++) {
			if (str_starts(str_skip(line, i), ends[k]))
				return true;
		}
	}
	return false;
}

/* A whole line: joined, without its comment, trimmed. */
static int take_line(struct reading *r, struct str line, struct err *err)
{
	struct str head;

	if (line.n == 0)
		return 0;
	if (is_several(line))
		return wrong(r, err, "contains a control character");
	if (str_ends(line, "\\")) /* pip would join the next line to it */
		return wrong(r, err, "ends with a backslash, but no line follows");
	if (++r->lines > PYREQ_LINES_MAX)
		return wrong(r, err, "there are more than %d lines", PYREQ_LINES_MAX);
	if (line.p[0] == '-')
		return take_option(r, line, err);
	if (check_package(r, line, err) < 0 || note_vars(r, line, err) < 0 ||
	    check_tail(r, line, &head, err) < 0)
		return -1;
	if (head.n < line.n) /* one hash calls for all of them: pip's rule, for uv too */
		r->out->hashes = true;
	r->out->n_packages += !r->constrain;
	buf_printf(r->constrain ? &r->constraints : &r->packages, "%.*s\n", STR_ARG(line));
	keep(r, "%.*s", STR_ARG(line));
	return 0;
}

/* From a '#' that is at the begin or behind a blank. */
static struct str without_comment(struct str line)
{
	for (size_t i = 0; i < line.n; i++) {
		if (line.p[i] == '#' && (i == 0 || is_blank(line.p[i - 1])))
			return str_trim(str_n(line.p, i));
	}
	return str_trim(line);
}

/* A backslash at a line's end joins it with the next; a line that is all comment ends that. */
static int read_text(struct reading *r, struct str text, struct err *err)
{
	AUTO_BUF struct buf joined = BUF_INIT(PYREQ_LINE_MAX);
	struct str line;
	unsigned at = 0;

	if (str_starts(text, "\xef\xbb\xbf"))
		text = str_skip(text, 3);
	r->line = 1;
	if (str_starts(text, "\xff\xfe") ||
	    str_starts(text, "\xfe\xff")) /* `pip freeze >` of PowerShell */
		return wrong(r, err, "the file is UTF-16: save it as UTF-8");
	while (str_cut(&text, '\n', &line)) {
		bool comment;

		at++;
		if (joined.n == 0)
			r->line = at;
		if (str_ends(line, "\r"))
			line.n--;
		comment = str_starts(str_trim(line), "#");
		if (str_ends(line, "\\") && !comment && text.n > 0) {
			buf_add(&joined, line.p, line.n - 1);
			continue;
		}
		if (str_ends(line, "\\") && !comment)
			line.n--;
		if (!comment)
			buf_str(&joined, line);
		if (joined.full)
			return wrong(r, err, "is longer than %zu bytes", PYREQ_LINE_MAX);
		if (take_line(r, without_comment(buf_view(&joined)), err) < 0)
			return -1;
		buf_clear(&joined);
	}
	return 0;
}

static int read_file(struct reading *r, const char *path, bool constrain, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(PYREQ_FILE_MAX);
	const struct {
		const char *file;
		unsigned line;
		bool constrain;
		struct part *into;
	} outer = {r->file, r->line, r->constrain, r->into};
	struct err why = {0};
	int rc;

	if (r->depth == PYREQ_DEPTH_MAX || r->files == PYREQ_FILES_MAX)
		return wrong(r, err, "more than %d files, or %d deep: do they name each other?",
		             PYREQ_FILES_MAX, PYREQ_DEPTH_MAX);
	if (r->from->read(r->from->arg, path, &body, &why) < 0) {
		if (r->depth > 0)
			return wrong(r, err, "%.400s", why.msg);
		return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID, "requirements: %.400s",
		               why.msg);
	}
	r->files++;
	r->depth++;
	r->file = path;
	r->constrain = constrain;
	r->into = add_part(r);
	rc = read_text(r, buf_view(&body), err);
	r->depth--;
	r->file = outer.file;
	r->line = outer.line;
	r->constrain = outer.constrain;
	r->into = outer.into;
	return rc;
}

static void reading_done(struct reading *r)
{
	buf_done(&r->packages);
	buf_done(&r->constraints);
	buf_done(&r->options);
	for (size_t i = 0; i < r->n_parts; i++)
		buf_done(&r->part[i].text);
}

#define READING(arena, where, result)                                                              \
	{                                                                                          \
		.a = (arena), .from = (where), .out = (result),                                    \
		.packages = BUF_INIT(PYREQ_TEXT_MAX), .constraints = BUF_INIT(PYREQ_TEXT_MAX),     \
		.options = BUF_INIT(PYREQ_TEXT_MAX),                                               \
	}

int pyreq_resolve(struct arena *a, const struct pyreq_from *from, struct pyreq *out,
                  struct err *err)
{
	struct reading r CLEANUP(reading_done) = READING(a, from, out);

	*out = (struct pyreq){0};
	if (from->file != NULL && read_file(&r, from->file, false, err) < 0)
		return -1;
	if (from->file == NULL)
		r.into = add_part(&r);
	for (size_t i = 0; from->file == NULL && i < from->n; i++) {
		r.line = (unsigned)i + 1;
		if (take_line(&r, without_comment(str_of(from->line[i])), err) < 0)
			return err_wrap(err, "requirements[%zu]", i);
	}
	if (r.packages.full || r.constraints.full || r.options.full)
		return err_set(err, ERR_PYTHON_REQUIREMENTS_INVALID,
		               "the requirements are more than %zu bytes", PYREQ_TEXT_MAX);
	if (put_parts(&r, err) < 0)
		return -1;
	out->packages = arena_str(a, buf_view(&r.packages));
	out->constraints = arena_str(a, buf_view(&r.constraints));
	out->options = arena_str(a, buf_view(&r.options));
	return 0;
}

int pyreq_check(struct str line, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct pyreq *out = arena_alloc(a, sizeof(*out));
	struct reading r CLEANUP(reading_done) = READING(a, NULL, out);

	return take_line(&r, without_comment(line), err);
}

/* --- the small words --- */

bool pyreq_version_ok(struct str version)
{
	struct str part;
	size_t parts = 0;

	while (str_cut(&version, '.', &part)) {
		uint64_t n = 0;
		struct err no = {0};

		if (part.n > 2 || str_u64(part, 0, 99, &n, &no) < 0 ||
		    (part.n > 1 && part.p[0] == '0'))
			return false;
		if (parts == 0 && n != 3)
			return false;
		parts++;
	}
	return parts == 2 || parts == 3;
}

const char *pyreq_file(struct arena *a, struct str path, struct err *err)
{
	static const char marks[] = "<>=!~[;@"; /* of a requirement, not of a file's name */
	static const char *const others[] = {".toml", ".lock", ".yml", ".yaml", ".cfg", ".py"};

	while (str_starts(path, "./"))
		path = str_skip(path, 2);
	if (pyreq_version_ok(path)) {
		(void)err_set(err, ERR_INVALID,
		              "\"%.*s\" is a version, not a file: write { version: \"%.*s\" }",
		              STR_ARG(path), STR_ARG(path));
		return NULL;
	}
	for (size_t i = 0; i < COUNT(others); i++) {
		if (!str_ends(path, others[i]))
			continue;
		(void)err_set(err, ERR_INVALID,
		              "should be a requirements file; make one by `uv export`, "
		              "`uv pip compile` or `pip freeze`");
		return NULL;
	}
	for (size_t i = 0; i < path.n; i++) {
		if (strchr(marks, path.p[i]) == NULL)
			continue;
		(void)err_set(
			err, ERR_INVALID,
			"should be the path of a requirements file; packages stand in a list: "
			"[\"%.*s\"]",
			(int)MIN(path.n, (size_t)100), path.p);
		return NULL;
	}
	if (fs_path_is_plain(path))
		return arena_strz(a, path);
	(void)err_set(err, ERR_INVALID, "should be the path of a file below the job's folder");
	return NULL;
}

bool pyreq_env_wanted(const char *name)
{
	/* Options that install elsewhere, or that Stoker itself sets. */
	static const char *const never[] = {
		"PIP_TARGET",
		"PIP_PREFIX",
		"PIP_ROOT",
		"PIP_USER",
		"PIP_PYTHON",
		"PIP_REQUIREMENT",
		"PIP_EDITABLE",
		"PIP_LOG",
		"PIP_CACHE_DIR",
		"PIP_CONFIG_FILE",
		"PIP_REQUIRE_VIRTUALENV",
		"PIP_SRC",
		"PIP_REPORT",
		"PIP_DRY_RUN",
		"PIP_QUIET",
		"PIP_NO_CACHE_DIR",
		"UV_CACHE_DIR",
		"UV_LINK_MODE",
		"UV_PYTHON",
		"UV_PROJECT_ENVIRONMENT",
		"UV_SYSTEM_PYTHON",
		"UV_TARGET",
		"UV_CONFIG_FILE",
		"UV_NO_CACHE",
		"UV_WORKING_DIRECTORY",
		"UV_PROJECT",
	};
	static const char *const names[] = {
		"HTTP_PROXY",
		"HTTPS_PROXY",
		"ALL_PROXY",
		"NO_PROXY",
		"http_proxy",
		"https_proxy",
		"all_proxy",
		"no_proxy",
		"SSL_CERT_FILE",
		"SSL_CERT_DIR",
		"REQUESTS_CA_BUNDLE",
		"CURL_CA_BUNDLE",
		"CC",
		"CXX",
		"CFLAGS",
		"CXXFLAGS",
		"CPPFLAGS",
		"LDFLAGS",
		"MAKEFLAGS",
		"CMAKE_ARGS",
		"MAX_JOBS",
		"CUDA_HOME",
		"TORCH_CUDA_ARCH_LIST",
	};

	for (size_t i = 0; i < COUNT(never); i++) {
		if (strcmp(name, never[i]) == 0)
			return false;
	}
	for (size_t i = 0; i < COUNT(names); i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return strncmp(name, "PIP_", 4) == 0 || strncmp(name, "UV_", 3) == 0;
}
