/* lines.c - joins, folds and draws a job's lines; see lines.h. */
#include "cli/lines.h"

#include "base/clock.h"

#define OPEN_TEXT_MAX ((size_t)256 << 10) /* of a line without an end; then it is cut in two */
#define OPEN_TEXT_MANY ((size_t)32 << 10) /* from here on what was overwritten is dropped */
#define DRAWN_ROWS_MAX 8                  /* a longer open line waits for its end */

struct open_line {
	uint32_t rank;
	char stream;
	int64_t ns;
	struct buf text;
};

struct lines {
	struct cli *c;
	struct lines_form form;
	struct open_line *open; /* two for each node at most; the newest last */
	size_t n, cap;
	size_t drawn_rows;
};

struct lines *lines_new(struct cli *c, const struct lines_form *form)
{
	struct lines *l = xcalloc(1, sizeof(*l));

	l->c = c;
	l->form = *form;
	return l;
}

void lines_hide(struct lines *l)
{
	if (l->drawn_rows > 1)
		(void)printf("\033[%zuA", l->drawn_rows - 1);
	if (l->drawn_rows > 0)
		(void)fputs("\r\033[J", stdout);
	l->drawn_rows = 0;
}

bool lines_are_open(const struct lines *l)
{
	return l->n > 0;
}

static void compose(const struct lines *l, uint32_t rank, char stream, int64_t ns, struct str text,
                    struct buf *out)
{
	if (l->form.times) {
		char when[CLOCK_ISO_CAP];

		clock_iso(ns / 1000000, when);
		buf_printf(out, "%s ", when);
	}
	if (l->form.nodes)
		buf_printf(out, "[%u] ", rank);
	if (stream == 's')
		buf_puts(out, l->c->colour ? "\033[2mstoker:\033[0m " : "stoker: ");
	if (l->form.raw)
		buf_str(out, text);
	else
		logline_fold(text, out);
}

static void write_line(struct lines *l, uint32_t rank, char stream, int64_t ns, struct str text)
{
	AUTO_BUF struct buf line = BUF_INIT(2 * OPEN_TEXT_MAX);

	lines_hide(l);
	compose(l, rank, stream, ns, text, &line);
	buf_putc(&line, '\n');
	(void)fwrite(line.p, 1, line.n, stdout);
}

/* The newest open line, without an end, where the cursor is. */
static void draw(struct lines *l)
{
	AUTO_BUF struct buf line = BUF_INIT(2 * OPEN_TEXT_MAX);
	const struct open_line *o;
	int columns;
	size_t rows;

	if (l->n == 0 || !l->c->tty_out || l->form.raw)
		return;
	o = &l->open[l->n - 1];
	compose(l, o->rank, o->stream, o->ns, buf_view(&o->text), &line);
	columns = columns_of_terminal();
	rows = columns > 0
	               ? (logline_width(buf_view(&line)) + (size_t)columns - 1) / (size_t)columns
	               : 1;
	if (rows == 0 || rows > DRAWN_ROWS_MAX)
		return;
	(void)fwrite(line.p, 1, line.n, stdout);
	l->drawn_rows = rows;
}

/* A bar that is redrawn for hours is one line: only what can be seen of it is kept. */
static void drop_overwritten(struct buf *text)
{
	const char *cr = memrchr(text->p, '\r', text->n);
	struct buf seen = BUF_INIT(2 * OPEN_TEXT_MAX);
	struct str last;

	if (cr == NULL)
		return;
	last = str_skip(buf_view(text), (size_t)(cr - text->p));
	logline_fold(str_n(text->p, (size_t)(cr - text->p)), &seen);
	buf_str(&seen, last);
	buf_done(text);
	*text = seen;
}

static void close_line(struct lines *l, size_t i)
{
	struct open_line o = l->open[i];

	l->n--;
	memmove(&l->open[i], &l->open[i + 1], (l->n - i) * sizeof(o));
	write_line(l, o.rank, o.stream, o.ns, buf_view(&o.text));
	buf_done(&o.text);
}

/* The open line that `rec` goes on with, moved to the end: it is the newest now. */
static struct open_line *find(struct lines *l, uint32_t rank, char stream)
{
	for (size_t i = 0; i < l->n; i++) {
		struct open_line o = l->open[i];

		if (o.rank != rank || o.stream != stream)
			continue;
		memmove(&l->open[i], &l->open[i + 1], (l->n - 1 - i) * sizeof(o));
		l->open[l->n - 1] = o;
		return &l->open[l->n - 1];
	}
	return NULL;
}

static struct open_line *add(struct lines *l, uint32_t rank, const struct logline *rec)
{
	if (l->n == l->cap) {
		l->cap = MAX(l->cap * 2, (size_t)4);
		l->open = xrealloc(l->open, l->cap * sizeof(*l->open));
	}
	l->open[l->n] = (struct open_line){.rank = rank,
	                                   .stream = rec->stream,
	                                   .ns = rec->ns,
	                                   .text = BUF_INIT(2 * OPEN_TEXT_MAX)};
	return &l->open[l->n++];
}

void lines_put(struct lines *l, uint32_t rank, const struct logline *rec)
{
	struct open_line *o = find(l, rank, rec->stream);

	if (o == NULL && !rec->continues) {
		write_line(l, rank, rec->stream, rec->ns, rec->text);
		draw(l);
		return;
	}
	if (o == NULL)
		o = add(l, rank, rec);
	buf_str(&o->text, rec->text);
	if (o->text.n > OPEN_TEXT_MANY && !l->form.raw)
		drop_overwritten(&o->text);
	if (!rec->continues || o->text.n > OPEN_TEXT_MAX)
		close_line(l, l->n - 1);
	lines_hide(l);
	draw(l);
}

void lines_end(struct lines *l)
{
	while (l->n > 0)
		close_line(l, 0);
	lines_hide(l);
	(void)fflush(stdout);
	free(l->open);
	free(l);
}
