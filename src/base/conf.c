/* conf.c - settings from a table: default, file, environment, flags. */
#include "base/conf.h"

#include "base/fs.h"
#include "base/units.h"
#include "base/yaml.h"

#include <ctype.h>

#define CONF_ITEMS_MAX 1000 /* of one list */
#define CONF_NAME_MAX 64
#define CONF_FILE_MAX YML_TEXT_MAX

/* Optimal string alignment distance: insert, delete, replace, swap neighbours. Words are short. */
static unsigned distance(struct str a, struct str b)
{
	unsigned row[3][CONF_NAME_MAX + 1];

	if (a.n > CONF_NAME_MAX || b.n > CONF_NAME_MAX)
		return UINT_MAX;
	for (size_t j = 0; j <= b.n; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a.n; i++) {
		unsigned *cur = row[i % 3], *prev = row[(i + 2) % 3];
		const unsigned *before = row[(i + 1) % 3];

		cur[0] = (unsigned)i;
		for (size_t j = 1; j <= b.n; j++) {
			unsigned cost = a.p[i - 1] != b.p[j - 1];
			unsigned best = MIN(prev[j] + 1, cur[j - 1] + 1);

			best = MIN(best, prev[j - 1] + cost);
			if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
				best = MIN(best, before[j - 2] + 1);
			cur[j] = best;
		}
	}
	return row[a.n % 3][b.n];
}

const char *conf_nearest(struct str word, const char *const *words, size_t n)
{
	const char *best = NULL;
	unsigned least = UINT_MAX;

	for (size_t i = 0; i < n; i++) {
		unsigned d = distance(word, str_of(words[i]));

		if (d < least) {
			least = d;
			best = words[i];
		}
	}
	/* one slip in a short word, up to three in a long one */
	return best != NULL && least <= MIN(MAX(word.n / 3, (size_t)1), (size_t)3) ? best : NULL;
}

/* "some-name" -> "some_name" or "SOME_NAME". */
static void underscored(const char *name, bool upper, char out[CONF_NAME_MAX])
{
	size_t i;

	for (i = 0; name[i] != '\0' && i + 1 < CONF_NAME_MAX; i++)
		out[i] = name[i] == '-' ? '_'
		         : upper        ? (char)toupper((unsigned char)name[i])
		                        : name[i];
	out[i] = '\0';
}

static int choose(const struct conf_row *row, struct str text, struct err *err)
{
	struct str rest = str_of(row->arg), word;

	while (str_cut(&rest, '|', &word))
		if (str_same(word, text))
			return 0;
	return err_set(err, ERR_INVALID, "\"%.*s\" is not one of %s", STR_ARG(text), row->arg);
}

static int parse_bool(struct str text, bool *out, struct err *err)
{
	static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0",
	                                                                            "no", "off"};

	for (size_t i = 0; i < COUNT(yes); i++) {
		if (str_ieq(text, yes[i]) || str_ieq(text, no[i])) {
			*out = str_ieq(text, yes[i]);
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "\"%.*s\" is not true or false", STR_ARG(text));
}

static int list_add(struct arena *a, struct conf_list *l, struct str text, struct err *err)
{
	const char **grown;

	if (l->n >= CONF_ITEMS_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d items", CONF_ITEMS_MAX);
	grown = ARENA_ARRAY(a, const char *, l->n + 1);
	if (l->n > 0)
		memcpy(grown, l->item, l->n * sizeof(*grown));
	grown[l->n++] = arena_strz(a, text);
	l->item = grown;
	return 0;
}

static int set(struct arena *a, const struct conf_row *row, struct str text, void *out,
               struct err *err)
{
	char *at = (char *)out + row->at;

	switch (row->kind) {
	case CONF_CHOICE:
		if (choose(row, text, err) < 0)
			return -1;
		*(const char **)(void *)at = arena_strz(a, text);
		return 0;
	case CONF_TEXT:
		*(const char **)(void *)at = arena_strz(a, text);
		return 0;
	case CONF_BOOL:
		return parse_bool(text, (bool *)(void *)at, err);
	case CONF_INT:
		return str_i64(text, INT64_MIN + 1, INT64_MAX, (int64_t *)(void *)at, err);
	case CONF_BYTES:
		return units_bytes(text, (uint64_t *)(void *)at, err);
	case CONF_SECONDS:
		return units_seconds(text, (uint64_t *)(void *)at, err);
	case CONF_LIST:
	case CONF_PAIR:
		return list_add(a, (struct conf_list *)(void *)at, text, err);
	}
	abort(); /* eight kinds of settings */
	return -1;
}

static bool is_list(const struct conf_row *row)
{
	return row->kind == CONF_LIST || row->kind == CONF_PAIR;
}

/* A later source replaces a list of an earlier one; within a source items add up. */
static void clear_list(const struct conf_row *row, void *out)
{
	if (is_list(row))
		*(struct conf_list *)(void *)((char *)out + row->at) = (struct conf_list){0};
}

static int unknown(const struct conf_row *rows, size_t n, bool underscore, struct str given,
                   const char *where, struct err *err)
{
	const char **names = xcalloc(n, sizeof(*names));
	char(*texts)[CONF_NAME_MAX] = xcalloc(n, sizeof(*texts));
	const char *near;

	for (size_t i = 0; i < n; i++) {
		if (underscore)
			underscored(rows[i].name, false, texts[i]);
		else
			copy_cut(texts[i], sizeof(texts[i]), rows[i].name);
		names[i] = texts[i];
	}
	near = conf_nearest(given, names, n);
	(void)err_set(err, ERR_INVALID, "%sno setting named \"%.*s\"%s%s%s", where, STR_ARG(given),
	              near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
	              near != NULL ? "\"?" : "");
	free(names);
	free(texts);
	return -1;
}

/* A scalar of the file as the text that a flag would have. */
static int file_value(struct arena *a, const struct conf_row *row, const struct doc *d, void *out,
                      struct err *err)
{
	const char *text = NULL;

	switch (d->kind) {
	case DOC_TEXT:
		text = d->text.p;
		break;
	case DOC_BOOL:
		text = d->flag ? "true" : "false";
		break;
	case DOC_INT:
	case DOC_REAL:
		text = d->text.p; /* as it was written: 007 may be a name */
		break;
	case DOC_NULL:
	case DOC_LIST:
	case DOC_MAP:
		return err_set(err, ERR_INVALID, "a single value is expected, not %s",
		               doc_kind_name(d->kind));
	}
	return set(a, row, str_of(text), out, err);
}

static int from_file(struct arena *a, const struct conf_row *rows, size_t n, const char *path,
                     void *out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(CONF_FILE_MAX);
	const struct doc *root;

	if (fs_read(AT_FDCWD, path, &text, err) < 0)
		return err_wrap(err, "config file");
	if (yml_parse(a, buf_view(&text), &root, err) < 0)
		return err_wrap(err, "config file %s", path);
	if (root->kind != DOC_MAP && root->kind != DOC_NULL)
		return err_set(err, ERR_INVALID,
		               "config file %s: settings are written as `name: value`", path);
	DOC_EACH (d, root) {
		const struct conf_row *row = NULL;
		char key[CONF_NAME_MAX], where[600];
		int r = 0;

		(void)snprintf(where, sizeof(where), "config file %.400s:%u:%u: ", path,
		               d->key_line, d->key_col);
		for (size_t i = 0; i < n && row == NULL; i++) {
			underscored(rows[i].name, false, key);
			if (str_eq(d->key, key))
				row = &rows[i];
		}
		if (row == NULL)
			return unknown(rows, n, true, d->key, where, err);
		clear_list(row, out);
		if (is_list(row) && d->kind == DOC_LIST) {
			DOC_EACH (item, d) {
				if (r == 0)
					r = file_value(a, row, item, out, err);
			}
		} else if (d->kind != DOC_NULL) {
			r = file_value(a, row, d, out, err);
		}
		if (r < 0)
			return err_wrap(err, "%s%s", where, key);
	}
	return 0;
}

static int from_environment(struct arena *a, const struct conf_row *rows, size_t n, void *out,
                            struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		char upper[CONF_NAME_MAX], name[CONF_NAME_MAX + 8];
		const char *value;
		struct str rest, item;

		underscored(rows[i].name, true, upper);
		FMT(name, "STOKER_%s", upper);
		value = getenv(name);
		if (value == NULL || value[0] == '\0')
			continue;
		if (!is_list(&rows[i])) {
			if (set(a, &rows[i], str_of(value), out, err) < 0)
				return err_wrap(err, "%s", name);
			continue;
		}
		clear_list(&rows[i], out);
		rest = str_of(value);
		while (str_cut(&rest, ',', &item))
			if (str_trim(item).n > 0 && set(a, &rows[i], str_trim(item), out, err) < 0)
				return err_wrap(err, "%s", name);
	}
	return 0;
}

struct flag {
	const struct conf_row *row;
	struct str value, second; /* second: of a pair */
};

static int wants(const struct conf_row *row, struct err *err)
{
	return err_set(err, ERR_INVALID, "--%s wants %s: %s", row->name,
	               row->kind == CONF_PAIR ? "two values" : "a value",
	               row->arg != NULL ? row->arg : "VALUE");
}

/* Reads argv[*i] and, when its value stands apart, the next one; both of a pair. */
static int one_flag(const struct conf_row *rows, size_t n, int argc, char **argv, int *i,
                    struct flag *out, struct err *err)
{
	struct str word = str_of(argv[*i]), name;
	bool has_value = memchr(word.p, '=', word.n) != NULL;

	if (!str_starts(word, "--") || word.n == 2)
		return err_set(err, ERR_INVALID, "unexpected argument \"%s\"", argv[*i]);
	word = str_skip(word, 2);
	(void)str_cut(&word, '=', &name);
	for (size_t k = 0; k < n; k++) {
		bool boolean = rows[k].kind == CONF_BOOL;

		if (boolean && !has_value && str_starts(name, "no-") &&
		    str_eq(str_skip(name, 3), rows[k].name)) {
			*out = (struct flag){.row = &rows[k], .value = STR_LIT("false")};
			return 0;
		}
		if (!str_eq(name, rows[k].name))
			continue;
		*out = (struct flag){.row = &rows[k], .value = word};
		if (boolean && !has_value)
			out->value = STR_LIT("true");
		else if (!has_value && *i + 1 >= argc)
			return wants(&rows[k], err);
		else if (!has_value)
			out->value = str_of(argv[++*i]);
		if (rows[k].kind != CONF_PAIR)
			return 0;
		if (*i + 1 >= argc)
			return wants(&rows[k], err);
		out->second = str_of(argv[++*i]);
		return 0;
	}
	return unknown(rows, n, false, name, "", err);
}

/* Two passes: the first only looks for --config, so that flags win over the file. */
static int from_flags(struct arena *a, const struct conf_row *rows, size_t n, int argc, char **argv,
                      bool config_only, const char **config, void *out, struct err *err)
{
	bool *seen = ARENA_ARRAY(a, bool, n);

	for (int i = 0; i < argc; i++) {
		struct flag f = {0};

		if (one_flag(rows, n, argc, argv, &i, &f, err) < 0)
			return -1;
		if (config_only) {
			if (strcmp(f.row->name, "config") == 0)
				*config = arena_strz(a, f.value);
			continue;
		}
		if (!seen[f.row - rows])
			clear_list(f.row, out);
		seen[f.row - rows] = true;
		if (set(a, f.row, f.value, out, err) < 0 ||
		    (f.row->kind == CONF_PAIR && set(a, f.row, f.second, out, err) < 0))
			return err_wrap(err, "--%s", f.row->name);
	}
	return 0;
}

int conf_load(struct arena *a, const struct conf_row *rows, size_t n, int argc, char **argv,
              void *out, struct err *err)
{
	const char *config = getenv("STOKER_CONFIG");

	for (size_t i = 0; i < n; i++)
		if (rows[i].dflt != NULL && set(a, &rows[i], str_of(rows[i].dflt), out, err) < 0)
			return err_wrap(err, "default of %s", rows[i].name);
	if (from_flags(a, rows, n, argc, argv, true, &config, out, err) < 0)
		return -1;
	if (config != NULL && config[0] != '\0' && from_file(a, rows, n, config, out, err) < 0)
		return -1;
	if (from_environment(a, rows, n, out, err) < 0)
		return -1;
	return from_flags(a, rows, n, argc, argv, false, &config, out, err);
}

/* Words of `text` into out, wrapped at 96 columns behind `indent` spaces. */
static void wrapped(struct buf *out, const char *text, size_t indent)
{
	struct str rest = str_of(text), word;
	size_t col = indent;

	while (str_cut(&rest, ' ', &word)) {
		if (col > indent && col + 1 + word.n > 96) {
			buf_printf(out, "\n%*s", (int)indent, "");
			col = indent;
		} else if (col > indent) {
			buf_putc(out, ' ');
			col++;
		}
		buf_str(out, word);
		col += word.n;
	}
}

void conf_help(const struct conf_row *rows, size_t n, struct buf *out)
{
	const char *group = NULL;

	for (size_t i = 0; i < n; i++) {
		if (group == NULL || strcmp(group, rows[i].group) != 0) {
			group = rows[i].group;
			buf_printf(out, "%s%s:\n", i > 0 ? "\n" : "", group);
		}
		buf_printf(out, "  --%s%s%s\n        ", rows[i].name,
		           rows[i].kind == CONF_BOOL ? "" : " ",
		           rows[i].kind == CONF_BOOL ? ""
		           : rows[i].arg != NULL     ? rows[i].arg
		                                     : "VALUE");
		wrapped(out, rows[i].help, 8);
		if (rows[i].dflt != NULL)
			buf_printf(out, " [%s]", rows[i].dflt);
		if (rows[i].kind == CONF_LIST)
			buf_puts(out, " (repeat for several)");
		buf_putc(out, '\n');
	}
}

void conf_reference(const struct conf_row *rows, size_t n, struct buf *out)
{
	const char *group = NULL;

	for (size_t i = 0; i < n; i++) {
		char upper[CONF_NAME_MAX], lower[CONF_NAME_MAX];

		if (group == NULL || strcmp(group, rows[i].group) != 0) {
			group = rows[i].group;
			buf_printf(out,
			           "%s## %s\n\n| flag | variable | key | default | what it does |\n"
			           "|---|---|---|---|---|\n",
			           i > 0 ? "\n" : "", group);
		}
		underscored(rows[i].name, true, upper);
		underscored(rows[i].name, false, lower);
		buf_printf(out, "| `--%s%s", rows[i].name, rows[i].kind == CONF_BOOL ? "" : " ");
		for (const char *p = rows[i].kind == CONF_BOOL ? ""
		                     : rows[i].arg != NULL     ? rows[i].arg
		                                               : "VALUE";
		     *p != '\0'; p++)
			buf_printf(out, *p == '|' ? "\\%c" : "%c",
			           *p); /* a bar would end the cell */
		buf_printf(out, "` | `STOKER_%s` | `%s` | %s%s%s | %s%s |\n", upper, lower,
		           rows[i].dflt != NULL ? "`" : "",
		           rows[i].dflt != NULL ? rows[i].dflt : "",
		           rows[i].dflt != NULL ? "`" : "", rows[i].help,
		           rows[i].kind == CONF_LIST ? " (a list)" : "");
	}
}
