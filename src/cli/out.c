/* out.c - data to stdout as table, JSON, JSON lines or CSV; everything else to stderr. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/shown.h"
#include "base/units.h"

#include <locale.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <wchar.h>

#define OUT_MAX ((size_t)64 << 20)
#define COLOUR '\002' /* in a text of ours: the next digit is a colour */
#define OUT_COLS_MAX 16
#define CELL_MIN 5       /* a column is not cut narrower than this */
#define WRAP_MIN 32      /* text at the end of a row: beside the rest where this is left, */
#define WRAP_LINES_MAX 8 /* and then cut */
#define WRAP_INDENT 4    /* else on lines of its own */

int out_form(const struct cli *c, enum out_form *form, struct err *err)
{
	static const char *const words[] = {"table", "json", "jsonl", "csv"};
	const char *want = opt_text(c, "output", "table");

	for (size_t i = 0; i < COUNT(words); i++) {
		if (strcmp(words[i], want) == 0) {
			*form = (enum out_form)i;
			return 0;
		}
	}
	return err_set(err, ERR_USAGE, "--output must be table, json, jsonl or csv, not \"%s\"",
	               want);
}

static void print_buf(const struct buf *b)
{
	(void)fwrite(buf_cstr(b), 1, b->n, stdout); /* cli_main checks at the end */
}

void out_json(const struct doc *d)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	struct js js;

	js_init(&js, &out);
	js.shown = true;
	js.indent = true;
	js_doc(&js, d);
	buf_putc(&out, '\n');
	print_buf(&out);
}

static void print_line(const struct doc *d)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	struct js js;

	js_init(&js, &out);
	js.shown = true;
	js_doc(&js, d);
	buf_putc(&out, '\n');
	print_buf(&out);
}

static void print_lines(const struct doc *list)
{
	DOC_EACH (row, list) {
		print_line(row);
	}
}

int out_form_one(const struct cli *c, enum out_form *form, struct err *err)
{
	if (out_form(c, form, err) < 0)
		return -1;
	if (*form == OUT_CSV)
		return err_set(err, ERR_USAGE, "this is not a list: use -o json, jsonl or table");
	return 0;
}

void out_one(enum out_form form, const struct doc *d)
{
	if (form == OUT_JSONL)
		print_line(d);
	else
		out_json(d);
}

void out_cell(const struct out_col *col, const struct doc *row, struct buf *out)
{
	col->cell(col->key != NULL ? doc_get(row, col->key) : row, out);
}

/* RFC 4180. */
static void csv_cell(struct buf *out, struct str s)
{
	bool quote = false;

	for (size_t i = 0; i < s.n; i++)
		quote = quote || strchr(",\"\r\n", s.p[i]) != NULL;
	if (!quote) {
		buf_str(out, s);
		return;
	}
	buf_putc(out, '"');
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] == '"')
			buf_putc(out, '"');
		buf_putc(out, s.p[i]);
	}
	buf_putc(out, '"');
}

static void csv_column(const struct out_col *col, const struct doc *row, struct buf *out)
{
	AUTO_BUF struct buf cell = BUF_INIT(OUT_MAX);
	AUTO_BUF struct buf seen = BUF_INIT(SHOWN_GROWTH * OUT_MAX);

	if (col->cell == cell_age || col->cell == cell_name)
		cell_text(doc_get(row, col->key), &cell);
	else
		out_cell(col, row, &cell);
	if (isatty(1) == 1) /* people; programs get the name itself */
		shown_add(&seen, buf_view(&cell));
	else
		buf_str(&seen, buf_view(&cell));
	csv_cell(out, str_eq(buf_view(&seen), "-") ? str_of("") : buf_view(&seen));
}

/* For programs: a size has its number in a column more, an age is the time that it began. */
static void print_csv(const struct doc *list, const struct out_col *cols, size_t n)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);

	for (size_t i = 0; i < n; i++) {
		csv_cell(&out, str_of(cols[i].title));
		if (cols[i].cell == cell_bytes)
			buf_printf(&out, ",%s_BYTES", cols[i].title);
		buf_putc(&out, i + 1 < n ? ',' : '\n');
	}
	DOC_EACH (row, list) {
		for (size_t i = 0; i < n; i++) {
			csv_column(&cols[i], row, &out);
			if (cols[i].cell == cell_bytes)
				buf_printf(&out, ",%" PRId64,
				           doc_int(doc_get(row, cols[i].key), 0));
			buf_putc(&out, i + 1 < n ? ',' : '\n');
		}
	}
	print_buf(&out);
}

int out_flush(bool *unread, struct err *err)
{
	struct pollfd out = {.fd = 1};
	bool failed;

	errno = 0;
	failed = fflush(stdout) == EOF || ferror(stdout) != 0;
	/* a pipe without a reader is in error, also while there is nothing to write */
	*unread = (failed && errno == EPIPE) || (poll(&out, 1, 0) == 1 && (out.revents & POLLERR));
	if (failed && !*unread)
		return err_errno(err, errno != 0 ? errno : EIO, "writing the output");
	return 0;
}

int columns_of_terminal(void)
{
	const char *env = getenv("COLUMNS");
	struct winsize w;
	struct err ignored = {0};
	uint64_t n;

	if (env != NULL && str_u64(str_of(env), 20, 10000, &n, &ignored) == 0)
		return (int)n;
	if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
		return w.ws_col;
	return 0; /* not a terminal: do not cut */
}

const char *out_name(struct arena *a, struct str s)
{
	AUTO_BUF struct buf b = BUF_INIT(OUT_MAX);

	shown_add(&b, s);
	return arena_strz(a, buf_view(&b));
}

const char *out_plain(struct arena *a, struct str s)
{
	char *line = arena_strz(a, s);

	for (size_t i = 0; i < s.n; i++)
		if (line[i] == '\n' || line[i] == '\r' || line[i] == '\t')
			line[i] = ' ';
	return out_name(a, str_n(line, s.n));
}

/* Bytes of the character that `s` begins with; *width: the columns that it takes, two for many of
 * East Asia's, none for what stands on top of the one before. */
static size_t character(struct str s, size_t *width)
{
	wchar_t c;
	mbstate_t state = {0};
	size_t n = mbrtowc(&c, s.p, s.n, &state);
	int columns;

	if (n == 0 || n > s.n) { /* not text */
		*width = 1;
		return 1;
	}
	columns = wcwidth(c);
	*width = columns < 0 ? 1 : (size_t)columns; /* too new for this libc */
	return n;
}

/* Bytes of the longest beginning of `s` that fits; *seen: the columns that it takes. */
static size_t fitting(struct str s, size_t width, size_t *seen)
{
	size_t i = 0, w = 0;

	*seen = 0;
	while (i < s.n) {
		size_t n = character(str_skip(s, i), &w);

		if (*seen + w > width)
			break;
		*seen += w;
		i += n;
	}
	return i;
}

static size_t width_of(struct str s)
{
	size_t seen;

	(void)fitting(s, SIZE_MAX, &seen);
	return seen;
}

/* Takes from the widest column until the table fits. The first one names the row: it stays whole.
 */
static void fit(size_t *width, size_t n, size_t have)
{
	for (;;) {
		size_t sum = 2 * (n - 1), widest = n - 1;

		for (size_t i = 0; i < n; i++) {
			sum += width[i];
			if (i > 0 && width[i] > width[widest])
				widest = i;
		}
		if (sum <= have || width[widest] <= CELL_MIN)
			return;
		width[widest]--;
	}
}

static void print_cell(struct str s, size_t width, bool right, bool last)
{
	size_t w = width_of(s);
	size_t pad = w < width ? width - w : 0;

	if (right)
		(void)printf("%*s", (int)pad, "");
	if (w <= width) {
		(void)fwrite(s.p, 1, s.n, stdout);
	} else { /* cut at a character's border, with an ellipsis */
		(void)fwrite(s.p, 1, fitting(s, width - 1, &w), stdout);
		(void)fputs("\xe2\x80\xa6", stdout);
		pad = width - 1 - w;
	}
	if (!right && !last)
		(void)printf("%*s", (int)pad, "");
	(void)fputs(last ? "\n" : "  ", stdout);
}

/* Bytes of the first line of `s`: as many words as fit, or what fits of one that is too long. */
static size_t first_line(struct str s, size_t width)
{
	size_t seen, n = fitting(s, width, &seen), space = n;

	while (n < s.n && space > 0 && s.p[space] != ' ')
		space--;
	return space > 0 ? space : n;
}

/* Text whose end matters, such as why a job failed: in several lines rather than cut. */
static void print_wrapped(struct str s, size_t indent, size_t width)
{
	for (int line = 1; line < WRAP_LINES_MAX && width_of(s) > width; line++) {
		size_t n = first_line(s, width);

		print_cell(str_trim(str_n(s.p, n)), width, false, true);
		(void)printf("%*s", (int)indent, "");
		s = str_trim(str_skip(s, n));
	}
	print_cell(s, width, false, true);
}

/* How the last column is printed. */
struct tail {
	bool wrap, apart; /* apart: on lines of its own, below the row */
	size_t indent;
};

static struct tail layout(size_t *width, const struct out_col *cols, size_t n, size_t have)
{
	struct tail t = {0};
	size_t rest = 2 * (n - 1);

	for (size_t i = 0; i + 1 < n; i++)
		rest += width[i];
	t.wrap = n > 1 && !cols[n - 1].right && width[n - 1] > WRAP_MIN &&
	         rest + width[n - 1] > have;
	if (!t.wrap) {
		fit(width, n, have);
		return t;
	}
	t.apart = rest + WRAP_MIN > have;
	t.indent = t.apart ? WRAP_INDENT : rest;
	if (t.apart)
		fit(width, n - 1, have);
	width[n - 1] = MAX(have, t.indent + CELL_MIN) - t.indent;
	return t;
}

static size_t sum_of(const size_t *width, size_t n)
{
	size_t sum = 2 * (n - 1);

	for (size_t i = 0; i < n; i++)
		sum += width[i];
	return sum;
}

/* Where there is not enough room, columns without a value in any row go first. How many stay. */
static size_t drop_empty(struct str *cell, struct out_col *cols, size_t n, size_t rows)
{
	bool empty[OUT_COLS_MAX] = {false};
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		empty[i] = i > 0;
		for (size_t k = 1; k < rows; k++)
			empty[i] = empty[i] && str_eq(cell[k * n + i], "-");
		kept += !empty[i];
	}
	for (size_t k = 0, at = 0; k < rows * n; k++)
		if (!empty[k % n])
			cell[at++] = cell[k];
	for (size_t i = 0, at = 0; i < n; i++)
		if (!empty[i])
			cols[at++] = cols[i];
	return kept;
}

static void measure(const struct str *cell, size_t rows, size_t *width, size_t n)
{
	memset(width, 0, n * sizeof(*width));
	for (size_t k = 0; k < rows * n; k++)
		width[k % n] = MAX(width[k % n], width_of(cell[k]));
}

static void print_row(const struct str *cell, const struct out_col *cols, size_t n,
                      const size_t *width, struct tail t)
{
	for (size_t i = 0; i + 1 < n; i++)
		print_cell(cell[i], width[i], cols[i].right, t.apart && i + 2 == n);
	if (t.apart && str_eq(cell[n - 1], "-"))
		return;
	if (t.apart)
		(void)printf("%*s", WRAP_INDENT, "");
	if (t.wrap)
		print_wrapped(cell[n - 1], t.indent, width[n - 1]);
	else
		print_cell(cell[n - 1], width[n - 1], cols[n - 1].right, true);
}

static void print_table(const struct doc *list, const struct out_col *all, size_t n)
{
	/* what width a character has is asked of libc, and the text is UTF-8 in every locale */
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = uselocale(utf8);
	struct out_col cols[OUT_COLS_MAX];
	struct arena *a = arena_new();
	struct str *cell = ARENA_ARRAY(a, struct str, (list->count + 1) * n);
	size_t width[OUT_COLS_MAX] = {0};
	size_t r = 1;
	int have = columns_of_terminal();
	struct tail t = {0};

	assert(n <= OUT_COLS_MAX);
	memcpy(cols, all, n * sizeof(*cols));
	for (size_t i = 0; i < n; i++)
		cell[i] = str_of(cols[i].title);
	DOC_EACH (row, list) {
		for (size_t i = 0; i < n; i++) {
			AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);

			out_cell(&cols[i], row, &text);
			cell[r * n + i] = str_of(out_plain(a, buf_view(&text)));
		}
		r++;
	}
	measure(cell, r, width, n);
	if (have > 0 && sum_of(width, n) > (size_t)have) {
		n = drop_empty(cell, cols, n, r);
		measure(cell, r, width, n);
	}
	if (have > 0)
		t = layout(width, cols, n, (size_t)have);
	for (size_t k = 0; k < r; k++)
		print_row(cell + k * n, cols, n, width, t);
	arena_free(a);
	(void)uselocale(before);
	if (utf8 != (locale_t)0)
		freelocale(utf8);
}

int out_list(const struct cli *c, const struct doc *list, const struct out_col *cols, size_t n,
             const char *empty, struct err *err)
{
	enum out_form form;

	if (out_form(c, &form, err) < 0)
		return -1;
	if (!doc_is(list, DOC_LIST))
		return err_set(err, ERR_CORRUPT,
		               "the server's reply has no list; is it a different version?");
	switch (form) {
	case OUT_JSON:
		out_json(list);
		break;
	case OUT_JSONL:
		print_lines(list);
		break;
	case OUT_CSV:
		print_csv(list, cols, n);
		break;
	case OUT_TABLE:
		if (list->count == 0)
			out_message(c, "%s", empty);
		else
			print_table(list, cols, n);
		break;
	}
	return 0;
}

/* Names, reasons and messages come from jobs and servers: nothing in them commands the reader's
 * terminal, or hides. Colours are ours, and stand as COLOUR and the last digit of their number. */
static void emit(FILE *to, const char *fmt, va_list ap) PRINTF(2, 0);

static bool colours_used; /* else COLOUR is somebody else's */

static void put_colour(FILE *to, char digit)
{
	if (digit == '0')
		(void)fputs("\033[0m", to);
	else
		(void)fprintf(to, "\033[3%cm", digit);
}

static bool is_colour(struct str s)
{
	return colours_used && s.n > 1 && s.p[0] == COLOUR && s.p[1] >= '0' && s.p[1] <= '7';
}

static void emit(FILE *to, const char *fmt, va_list ap)
{
	AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);
	size_t from = 0;

	buf_vprintf(&text, fmt, ap);
	for (size_t i = 0; i <= text.n; i++) {
		AUTO_BUF struct buf seen = BUF_INIT(SHOWN_GROWTH * OUT_MAX);
		bool colour = is_colour(str_skip(buf_view(&text), i));

		if (i < text.n && text.p[i] != '\n' && !colour)
			continue;
		shown_add(&seen, str_n(text.p + from, i - from));
		(void)fputs(buf_cstr(&seen), to);
		if (colour)
			put_colour(to, text.p[++i]);
		else if (i < text.n)
			(void)fputc('\n', to);
		from = i + 1;
	}
}

void out_put(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(stdout, fmt, ap);
	va_end(ap);
}

void out_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
}

void out_message(const struct cli *c, const char *fmt, ...)
{
	va_list ap;

	if (c->quiet)
		return;
	va_start(ap, fmt);
	emit(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
}

void out_next(const struct cli *c, const char *const *lines, size_t n)
{
	if (c->quiet)
		return;
	(void)fputs("next:\n", stderr);
	for (size_t i = 0; i < n; i++)
		out_error("  %s", lines[i]);
}

static int64_t progress_last_ms;
static bool progress_open;

static void progress(const struct cli *c, const char *fmt, va_list ap) PRINTF(2, 0);

static void progress(const struct cli *c, const char *fmt, va_list ap)
{
	int64_t now = clock_mono_ms();

	/* on a terminal the line is replaced; in a file, one every ten seconds is enough */
	if (c->quiet || now - progress_last_ms < (c->tty_err ? 100 : 10000))
		return;
	progress_last_ms = now;
	if (c->tty_err)
		(void)fputs("\r\033[K", stderr);
	emit(stderr, fmt, ap);
	if (!c->tty_err)
		(void)fputc('\n', stderr);
	progress_open = c->tty_err;
	(void)fflush(stderr);
}

void out_progress(const struct cli *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	progress(c, fmt, ap);
	va_end(ap);
}

void out_waiting(const struct cli *c, const char *fmt, ...)
{
	va_list ap;

	progress_last_ms = 0; /* it is not to be missed */
	va_start(ap, fmt);
	progress(c, fmt, ap);
	va_end(ap);
}

void out_progress_end(const struct cli *c)
{
	if (progress_open && c->tty_err)
		(void)fputs("\r\033[K", stderr);
	progress_open = false;
	progress_last_ms = 0;
}

int out_confirm(const struct cli *c, const char *question, const char *must_type, struct err *err)
{
	char line[512];
	struct str got;

	if (opt_flag(c, "yes") && must_type == NULL)
		return 0;
	if (isatty(0) != 1)
		return err_set(
			err, ERR_CONFIRMATION_REQUIRED, "%s stdin is not a terminal; %s", question,
			must_type != NULL ? "name it with --confirm" : "pass --yes to confirm");
	(void)fprintf(stderr, "%s %s ", out_plain(c->arena, str_of(question)),
	              must_type != NULL ? "Type its name to go on:" : "[y/N]");
	(void)fflush(stderr);
	if (fgets(line, sizeof(line), stdin) == NULL)
		return err_set(err, ERR_CANCELED, "nothing done");
	got = str_trim(str_of(line));
	if (must_type != NULL ? !str_eq(got, must_type)
	                      : !(str_ieq(got, "y") || str_ieq(got, "yes")))
		return err_set(err, ERR_CANCELED, "nothing done");
	return 0;
}

const char *out_status(const struct cli *c, const char *status)
{
	static const struct {
		const char *word;
		char colour;
	} colours[] = {{"RUNNING", '2'},       {"COMPLETED", '2'}, {"FAILED", '1'},
	               {"DEPLOY_FAILED", '1'}, {"STOPPED", '3'},   {"PENDING", '3'},
	               {"CREATED", '6'},       {"DEPLOYING", '6'}};
	const char *word = strncmp(status, "TRAINING_JOB_", 13) == 0 ? status + 13 : status;

	for (size_t i = 0; i < COUNT(colours); i++)
		if (c->colour && strcmp(colours[i].word, word) == 0) {
			colours_used = true;
			return arena_printf(c->arena, "%c%c%s%c0", COLOUR, colours[i].colour, word,
			                    COLOUR);
		}
	return word;
}

const char *out_job_status(const struct cli *c, const struct doc *job)
{
	const char *status = out_status(c, doc_cstr(doc_get(job, "current_status"), "?"));
	const char *why =
		doc_cstr(doc_get(job, "error_message"), doc_cstr(doc_get(job, "reason"), NULL));

	return why == NULL
	               ? status
	               : arena_printf(c->arena, "%s: %s", status, out_plain(c->arena, str_of(why)));
}

void cell_text(const struct doc *d, struct buf *out)
{
	if (d == NULL || d->kind == DOC_NULL)
		buf_putc(out, '-');
	else if (d->kind == DOC_TEXT)
		buf_str(out, d->text.n > 0 ? d->text : str_of("-"));
	else if (d->kind == DOC_INT)
		buf_printf(out, "%" PRId64, d->num);
	else if (d->kind == DOC_REAL)
		buf_printf(out, "%.6g", d->real);
	else if (d->kind == DOC_BOOL)
		buf_puts(out, d->flag ? "yes" : "no");
}

void cell_name(const struct doc *d, struct buf *out)
{
	AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);

	cell_text(d, &text);
	shown_add(out, buf_view(&text));
}

void cell_bytes(const struct doc *d, struct buf *out)
{
	char text[UNITS_CAP];

	if (!doc_is(d, DOC_INT))
		buf_putc(out, '-');
	else
		buf_puts(out, units_show_bytes((uint64_t)MAX(d->num, (int64_t)0), text));
}

void cell_age(const struct doc *iso, struct buf *out)
{
	struct err ignored = {0};
	char text[UNITS_CAP];
	int64_t ms;
	char *space;

	if (!doc_is(iso, DOC_TEXT) || clock_parse(iso->text, &ms, &ignored) < 0) {
		buf_putc(out, '-');
		return;
	}
	(void)units_show_seconds((uint64_t)MAX((clock_wall_ms() - ms) / 1000, (int64_t)0), text);
	space = strchr(text, ' '); /* "2h 13m" -> "2h": an age need not be exact */
	if (space != NULL)
		*space = '\0';
	buf_puts(out, text);
}

void cell_in(const struct doc *iso, struct buf *out)
{
	struct err ignored = {0};
	char text[UNITS_CAP];
	int64_t ms;

	if (!doc_is(iso, DOC_TEXT) || clock_parse(iso->text, &ms, &ignored) < 0) {
		buf_puts(out, "never");
		return;
	}
	ms -= clock_wall_ms();
	if (ms <= 0) {
		buf_puts(out, "expired");
		return;
	}
	(void)units_show_seconds((uint64_t)ms / 1000, text);
	text[strcspn(text, " ")] = '\0';
	buf_puts(out, text);
}

void out_line(const char *label, const char *fmt, ...)
{
	va_list ap;

	(void)printf("%-12s ", label);
	va_start(ap, fmt);
	emit(stdout, fmt, ap);
	va_end(ap);
	(void)putchar('\n');
}

const char *out_cell_of(struct cli *c, void (*cell)(const struct doc *, struct buf *),
                        const struct doc *d)
{
	AUTO_BUF struct buf b = BUF_INIT(65536);

	cell(d, &b);
	return arena_strz(c->arena, buf_view(&b));
}

void cell_run(const struct doc *d, struct buf *b)
{
	struct err ignored = {0};
	int64_t from, to = clock_wall_ms();
	char text[UNITS_CAP];

	if (!doc_is(doc_get(d, "started_at"), DOC_TEXT) ||
	    clock_parse(doc_text(doc_get(d, "started_at")), &from, &ignored) < 0) {
		buf_putc(b, '-');
		return;
	}
	if (doc_is(doc_get(d, "ended_at"), DOC_TEXT) &&
	    clock_parse(doc_text(doc_get(d, "ended_at")), &to, &ignored) < 0)
		to = clock_wall_ms();
	buf_puts(b, units_show_seconds((uint64_t)MAX((to - from) / 1000, (int64_t)0), text));
}

void cell_sync(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(doc_get(d, "checkpoint_sync_status"));

	buf_puts(b, str_eq(s, "COMPLETED") ? "synced" : str_eq(s, "SYNCING") ? "syncing" : "-");
}
const char *out_number(struct cli *c, uint64_t n)
{
	char text[UNITS_CAP];

	return arena_cstr(c->arena, units_show_count(n, text));
}

const char *out_count(struct cli *c, uint64_t n, const char *thing)
{
	return arena_printf(c->arena, "%s %s%s", out_number(c, n), thing, n == 1 ? "" : "s");
}

/* ---- sorted ------------------------------------------------------------------------------- */

static const char *sort_key;
static bool sort_down;

static int by_key(const void *a, const void *b)
{
	const struct doc *x = doc_get(*(const struct doc *const *)a, sort_key);
	const struct doc *y = doc_get(*(const struct doc *const *)b, sort_key);
	int r;

	if (doc_is(x, DOC_INT) && doc_is(y, DOC_INT))
		r = (x->num > y->num) - (x->num < y->num);
	else
		r = strcmp(doc_cstr(x, ""), doc_cstr(y, ""));
	return sort_down ? -r : r;
}

const struct doc *out_sorted(struct cli *c, const struct doc *list, const char *key, bool down)
{
	struct doc *out = ARENA_NEW(c->arena, struct doc);
	const struct doc **row = ARENA_ARRAY(c->arena, const struct doc *, list->count);
	struct doc *last = NULL;
	size_t n = 0;

	DOC_EACH (d, list) {
		row[n++] = d;
	}
	sort_key = key;
	sort_down = down;
	qsort(row, n, sizeof(const struct doc *), by_key);
	*out = (struct doc){.kind = DOC_LIST, .count = n};
	for (size_t i = 0; i < n; i++) {
		struct doc *copy = ARENA_NEW(c->arena, struct doc);

		*copy = *row[i];
		copy->next = NULL;
		if (last == NULL)
			out->first = copy;
		else
			last->next = copy;
		last = copy;
	}
	return out;
}
