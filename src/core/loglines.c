/* loglines.c - records of a job's output: written, read, and folded as a terminal would. */
#include "core/loglines.h"

#include "base/shown.h"

#define DIGITS 19
#define TAB_COLUMNS 8
#define ESC 0x1b
#define DEL 0x7f

/* How much of an over-long text goes into one record: a UTF-8 character is not cut in two. */
static size_t cut_at(struct str text)
{
	size_t n = LOGLINE_TEXT_MAX;

	for (size_t back = 0; back < 3 && ((unsigned char)text.p[n] & 0xc0) == 0x80; back++)
		n--;
	/* Not UTF-8 after all: any place is as good. */
	return ((unsigned char)text.p[n] & 0xc0) == 0x80 ? LOGLINE_TEXT_MAX : n;
}

static void write_record(struct buf *out, int64_t now_ns, int64_t *last_ns, char stream,
                         struct str text, bool continues)
{
	assert(*last_ns < INT64_MAX);
	*last_ns = MAX(MIN(MAX(now_ns, 0), LOGLINE_NS_MAX), *last_ns + 1);
	buf_printf(out, "%019" PRId64 " %c ", *last_ns,
	           continues ? (char)(stream - 'a' + 'A') : stream);
	buf_str(out, text);
	buf_putc(out, '\n');
}

/* A newline ends a record; what follows the last one is a record too, and the one that `continues`
 * speaks of. */
void logline_write(struct buf *out, int64_t now_ns, int64_t *last_ns, char stream, struct str text,
                   bool continues)
{
	assert(stream == 'o' || stream == 'e' || stream == 's');
	do {
		AUTO_BUF struct buf seen = BUF_INIT(SHOWN_GROWTH * text.n);
		const char *end = text.n > 0 ? memchr(text.p, '\n', text.n) : NULL;
		struct str line = end != NULL ? str_n(text.p, (size_t)(end - text.p)) : text;
		bool whole = end != NULL || !continues;

		text = str_skip(text, line.n + (end != NULL));
		if (stream == 's') { /* it quotes names that the job chose */
			shown_add(&seen, line);
			line = buf_view(&seen);
		}
		while (line.n > LOGLINE_TEXT_MAX) {
			size_t n = cut_at(line);

			write_record(out, now_ns, last_ns, stream, str_n(line.p, n), true);
			line = str_skip(line, n);
		}
		if (whole || line.n > 0)
			write_record(out, now_ns, last_ns, stream, line, !whole);
	} while (text.n > 0);
}

static bool parse_record(struct str line, struct logline *out)
{
	int64_t ns = 0;
	char stream;

	if (line.n < LOGLINE_HEAD || line.p[DIGITS] != ' ' || line.p[DIGITS + 2] != ' ')
		return false;
	for (size_t i = 0; i < DIGITS; i++) {
		char c = line.p[i];

		if (c < '0' || c > '9' || __builtin_mul_overflow(ns, 10, &ns) ||
		    __builtin_add_overflow(ns, c - '0', &ns))
			return false;
	}
	stream = line.p[DIGITS + 1];
	if (stream == '\0' || strchr("oesOES", stream) == NULL)
		return false;
	*out = (struct logline){
		.ns = MIN(ns, LOGLINE_NS_MAX),
		.stream = (char)(stream | 0x20),
		.continues = (stream & 0x20) == 0,
		.text = str_skip(line, LOGLINE_HEAD),
	};
	return true;
}

/* A line that is no record (a write torn by a crash) is passed over. */
bool logline_next(struct str *bytes, struct logline *out)
{
	while (bytes->n > 0) {
		const char *end = memchr(bytes->p, '\n', bytes->n);
		struct str line;

		if (end == NULL)
			return false;
		line = str_n(bytes->p, (size_t)(end - bytes->p));
		*bytes = str_skip(*bytes, line.n + 1);
		if (parse_record(line, out))
			return true;
	}
	return false;
}

/* The next piece of a text. */
enum piece { PIECE_CELL, PIECE_TAB, PIECE_COLOUR, PIECE_ERASE, PIECE_DROP };

/* An escape sequence: its length into *n. Only colours are kept; "erase to the end of the line" has
 * a meaning for what was there before. */
static enum piece escape(struct str s, size_t *n)
{
	size_t i = 2;

	*n = MIN(s.n, (size_t)2);
	if (s.n < 2)
		return PIECE_DROP;
	if (s.p[1] == ']') { /* a title or a link, until BEL or ESC \ */
		while (i < s.n && s.p[i] != '\a' && s.p[i] != ESC)
			i++;
		*n = MIN(s.n, i + 1 + (i + 1 < s.n && s.p[i] == ESC));
		return PIECE_DROP;
	}
	if (s.p[1] != '[')
		return PIECE_DROP;
	while (i < s.n && s.p[i] >= 0x20 && s.p[i] <= 0x3f)
		i++;
	if (i < s.n && s.p[i] == 'm') {
		*n = i + 1;
		return PIECE_COLOUR;
	}
	/* A byte that cannot end a sequence is text again. */
	*n = MIN(s.n, i + (i < s.n && s.p[i] >= 0x40 && s.p[i] <= 0x7e));
	return i < s.n && s.p[i] == 'K' ? PIECE_ERASE : PIECE_DROP;
}

static enum piece next_piece(struct str s, size_t *n)
{
	unsigned char c = (unsigned char)s.p[0];

	*n = 1;
	if (c == ESC)
		return escape(s, n);
	if (c == '\t')
		return PIECE_TAB;
	if (c < ' ' || c == DEL)
		return PIECE_DROP;
	if (c == 0xc2 && s.n > 1 && (unsigned char)s.p[1] >= 0x80 && (unsigned char)s.p[1] < 0xa0) {
		*n = 2; /* a control character in two bytes */
		return PIECE_DROP;
	}
	if (c >= 0xc0) {
		while (*n < s.n && *n < 4 && ((unsigned char)s.p[*n] & 0xc0) == 0x80)
			(*n)++;
	}
	return PIECE_CELL;
}

/* How far a stretch between carriage returns reaches, and whether it wiped what was there before.
 */
static size_t measure(struct str s, bool *erased)
{
	size_t column = 0, n;

	for (; s.n > 0; s = str_skip(s, n)) {
		enum piece piece = next_piece(s, &n);

		if (piece == PIECE_CELL)
			column++;
		else if (piece == PIECE_TAB)
			column += TAB_COLUMNS - column % TAB_COLUMNS;
		else if (piece == PIECE_ERASE)
			*erased = true;
	}
	return column;
}

/* Its cells from column `from` on, with all its colours. */
static void show(struct str s, size_t from, struct buf *out)
{
	size_t column = 0, n;

	for (; s.n > 0; s = str_skip(s, n)) {
		enum piece piece = next_piece(s, &n);
		bool cell = piece == PIECE_CELL || piece == PIECE_TAB;

		if (piece == PIECE_COLOUR || (cell && column >= from))
			buf_add(out, s.p, n);
		if (cell)
			column += piece == PIECE_TAB ? TAB_COLUMNS - column % TAB_COLUMNS : 1;
	}
}

/* From the last stretch back to the first: each shows only where the later ones did not reach. */
void logline_fold(struct str text, struct buf *out)
{
	size_t covered = 0;
	bool erased = false;

	for (bool more = true; more && !erased;) {
		const char *cr = text.n > 0 ? memrchr(text.p, '\r', text.n) : NULL;
		size_t head = cr != NULL ? (size_t)(cr - text.p) : 0;
		struct str stretch = cr != NULL ? str_skip(text, head + 1) : text;
		size_t reach = measure(stretch, &erased);

		more = cr != NULL;
		if (reach > covered || covered == 0) {
			show(stretch, covered, out);
			covered = reach;
		}
		text.n = head;
	}
}

size_t logline_width(struct str text)
{
	bool erased = false;

	return measure(text, &erased);
}
