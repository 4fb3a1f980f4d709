/*
 * joblog_read.c - reading logs: by byte offset, by line counted from the end, and by time over all
 * nodes of a job.
 *
 * A page of lines is cut by time alone: all records of [from, cut) and no others. So pages that
 * follow each other give every byte once. A line that is cut comes as two; its time is that of its
 * last record.
 */
#include "store/logs/joblog_impl.h"

#define SPAN (2 * LOGLINE_MAX)      /* holds a record's start and the record behind it */
#define JOIN_MAX ((size_t)64 << 10) /* a longer line comes in pieces */
#define PAGE_LINES_MAX 20000
#define PAGE_LINES_OPEN 400000              /* where no limit is named, and no page will follow */
#define PAGE_BYTES_MAX ((size_t)32 << 20)   /* of text; the millisecond is finished */
#define PAGE_BYTES_HARD ((size_t)256 << 20) /* ... up to here */
#define BACK_BYTES_MIN ((size_t)1 << 20)    /* how far back a page may reach, at the least */
#define NS_PER_MS ((int64_t)1000000)

static int64_t ms_of(int64_t ns)
{
	return ns / NS_PER_MS;
}

/* Offset of the first record in [0, size) whose time is `ns` or later; size when there is none. */
static int offset_at(struct logfile *f, uint64_t size, int64_t ns, uint64_t *out, struct err *err)
{
	AUTO_FREE char *chunk = xmalloc(SPAN);
	uint64_t lo = 0, hi = size; /* records before lo are earlier, those from hi on are not */
	struct logline rec;
	struct str rest;

	while (hi - lo > SPAN) {
		uint64_t mid = lo + (hi - lo) / 2, start;
		size_t n = (size_t)MIN(hi - mid, (uint64_t)SPAN);
		const char *nl;

		if (fs_pread_all(f->fd, chunk, n, mid, err) < 0)
			return err_wrap(err, "log of %s", f->name);
		nl = memchr(chunk, '\n', n);
		rest = nl != NULL ? str_n(nl + 1, n - (size_t)(nl + 1 - chunk)) : STR_LIT("");
		start = mid + n - rest.n;
		if (!logline_next(&rest, &rec))
			return err_set(err, ERR_CORRUPT, "log of %s: no record near byte %" PRIu64,
			               f->name, mid);
		if (rec.ns < ns)
			lo = start;
		else
			hi = start;
	}
	if (fs_pread_all(f->fd, chunk, (size_t)(hi - lo), lo, err) < 0)
		return err_wrap(err, "log of %s", f->name);
	rest = str_n(chunk, (size_t)(hi - lo));
	while (rest.n > 0) {
		uint64_t at = hi - rest.n;

		if (logline_next(&rest, &rec) && rec.ns >= ns) {
			*out = at;
			return 0;
		}
	}
	*out = hi;
	return 0;
}

/* Going back from `end`: where the last `lines` lines begin, but not before `lo` and not further
 * than about `bytes`. */
static int scan_back(struct logfile *f, uint64_t lo, uint64_t end, uint64_t lines, uint64_t bytes,
                     uint64_t *out, struct err *err)
{
	AUTO_FREE char *chunk = xmalloc(SPAN);
	uint64_t floor = end - lo > bytes ? end - bytes : lo, seen = 0;
	bool at_end = true; /* a last line without its end counts too */

	*out = end;
	while (*out > floor) {
		size_t n = (size_t)MIN(*out - lo, (uint64_t)SPAN), stop = n;
		uint64_t base = *out - n;

		if (fs_pread_all(f->fd, chunk, n, base, err) < 0)
			return err_wrap(err, "log of %s", f->name);
		while (stop > 0) {
			const char *nl = memrchr(chunk, '\n', stop - 1);
			size_t start = nl != NULL ? (size_t)(nl + 1 - chunk) : 0;
			struct str one = str_n(chunk + start, stop - start);
			struct logline rec;
			bool whole;

			if (nl == NULL && base > lo)
				break; /* its start is in the chunk before */
			whole = logline_next(&one, &rec) && !rec.continues;
			if ((whole || at_end) && ++seen > lines)
				return 0;
			at_end = false;
			*out = base + start;
			stop = start;
		}
		if (stop == n)
			return err_set(err, ERR_CORRUPT,
			               "log of %s: no record before byte %" PRIu64, f->name, *out);
	}
	return 0;
}

/* Moves an offset inside of a record to the next one: another server may have written the log. */
static int record_start(struct logfile *f, uint64_t end, uint64_t *offset, struct err *err)
{
	AUTO_FREE char *chunk = NULL;
	size_t n = (size_t)MIN(end - *offset + 1, (uint64_t)SPAN);
	const char *nl;

	if (*offset == 0)
		return 0;
	chunk = xmalloc(n);
	if (fs_pread_all(f->fd, chunk, n, *offset - 1, err) < 0)
		return err_wrap(err, "log of %s", f->name);
	nl = memchr(chunk, '\n', n);
	*offset = nl != NULL ? *offset + (uint64_t)(nl - chunk) : end;
	return 0;
}

int joblogs_read(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t offset, size_t max,
                 struct buf *out, uint64_t *next, uint64_t *size, struct err *err)
{
	struct logfile *f = NULL;
	uint64_t end;
	size_t n;
	char *to;
	int r = 0;

	if (joblog_look(l, job_id, rank, &f, err) < 0)
		return -1;
	end = f != NULL ? joblog_size(f) : 0;
	if (offset >= end) {
		*next = offset;
		*size = end;
		joblog_give(l, f);
		return 0;
	}
	r = record_start(f, end, &offset, err);
	n = (size_t)MIN(end - offset, (uint64_t)MAX(max, LOGLINE_MAX));
	to = r == 0 ? buf_room(out, n) : NULL;
	if (r == 0 && to == NULL && n > 0)
		r = err_set(err, ERR_TOO_BIG, "log of %s: no room for %zu bytes", f->name, n);
	else if (r == 0 && fs_pread_all(f->fd, to, n, offset, err) < 0)
		r = err_wrap(err, "log of %s", f->name);
	if (r == 0) {
		const char *nl = n > 0 ? memrchr(to, '\n', n) : NULL;

		n = nl != NULL ? (size_t)(nl + 1 - to) : 0;
		out->n += n;
		(void)buf_cstr(out); /* puts the NUL */
		*next = offset + n;
		*size = end;
	}
	joblog_give(l, f);
	return r;
}

int joblogs_tail_offset(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t lines,
                        uint64_t *offset, struct err *err)
{
	struct logfile *f = NULL;
	int r = 0;

	if (joblog_look(l, job_id, rank, &f, err) < 0)
		return -1;
	if (f == NULL)
		*offset = 0;
	else
		r = scan_back(f, 0, joblog_size(f), lines, JOBLOG_BYTES_MAX * 2, offset, err);
	joblog_give(l, f);
	return r;
}

/* One node's part of a page. */
struct cursor {
	struct logfile *f;
	uint32_t rank;
	uint64_t first, end; /* of the records asked for, then first moves on */
	struct buf chunk;
	size_t used; /* of chunk */
	bool more;
	struct logline rec; /* when more: the next record; its text is in chunk */
	struct pending {
		struct buf text;
		int64_t ns;
	} pending[3];
};

struct page {
	struct arena *a;
	struct joblog_line *line;
	size_t n, cap;
	size_t bytes;
	int64_t last_ms; /* of the last record taken; -1 = none */
};

static int cursor_next(struct cursor *c, struct err *err)
{
	for (;;) {
		struct str rest = str_skip(buf_view(&c->chunk), c->used);
		size_t n;
		char *to;

		c->more = logline_next(&rest, &c->rec);
		c->used = c->chunk.n - rest.n;
		if (c->more || c->first == c->end)
			return 0;
		buf_drop(&c->chunk, c->used);
		c->used = 0;
		n = (size_t)MIN(c->end - c->first, (uint64_t)(c->chunk.max - c->chunk.n));
		to = buf_room(&c->chunk, n);
		if (n == 0 || to == NULL)
			return err_set(err, ERR_CORRUPT, "log of %s: a record is too long",
			               c->f->name);
		if (fs_pread_all(c->f->fd, to, n, c->first, err) < 0)
			return err_wrap(err, "log of %s", c->f->name);
		c->chunk.n += n;
		c->first += n;
	}
}

static void emit(struct page *p, const struct cursor *c, char stream, int64_t ns, struct str text)
{
	char *copy = arena_alloc(p->a, text.n + 1);
	size_t n = 0;

	for (size_t i = 0; i < text.n; i++) /* a NUL would end the text */
		if (text.p[i] != '\0')
			copy[n++] = text.p[i];
	if (p->n == p->cap) {
		p->cap = MAX(p->cap * 2, (size_t)256);
		p->line = xrealloc(p->line, p->cap * sizeof(*p->line));
	}
	p->line[p->n++] = (struct joblog_line){
		.ns = ns,
		.rank = c->rank,
		.stream = stream,
		.text = copy,
	};
	p->bytes += text.n;
}

static void flush(struct page *p, struct cursor *c, size_t which)
{
	struct pending *at = &c->pending[which];

	if (at->text.n > 0)
		emit(p, c, "oes"[which], at -> ns, buf_view(&at->text));
	buf_clear(&at->text);
}

static void take(struct page *p, struct cursor *c)
{
	const struct logline *rec = &c->rec;
	size_t which = rec->stream == 'o' ? 0 : rec->stream == 'e' ? 1 : 2;
	struct pending *at = &c->pending[which];

	p->last_ms = ms_of(rec->ns);
	if (!rec->continues && at->text.n == 0) {
		emit(p, c, rec->stream, rec->ns, rec->text);
		return;
	}
	if (at->text.n + rec->text.n > JOIN_MAX)
		flush(p, c, which);
	at->text.max = JOIN_MAX;
	buf_str(&at->text, rec->text);
	at->ns = rec->ns;
	if (!rec->continues)
		flush(p, c, which);
}

static int by_time(const void *a, const void *b)
{
	const struct joblog_line *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Merges the nodes by time until `limit` lines (0 = no limit) or many bytes are there and their
 * last millisecond is over. */
static int merge(struct page *p, struct cursor *c, size_t n, size_t limit, struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (cursor_next(&c[i], err) < 0)
			return -1;
	for (;;) {
		struct cursor *first = NULL;
		bool full = limit > 0 && (p->n >= limit || p->bytes >= PAGE_BYTES_MAX);

		for (size_t i = 0; i < n; i++)
			if (c[i].more && (first == NULL || c[i].rec.ns < first->rec.ns))
				first = &c[i];
		if (first == NULL || p->bytes >= PAGE_BYTES_HARD ||
		    (full && ms_of(first->rec.ns) != p->last_ms))
			break;
		take(p, first);
		if (cursor_next(first, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < n; i++)
		for (size_t which = 0; which < COUNT(c[i].pending); which++)
			flush(p, &c[i], which);
	if (p->n > 0)
		qsort(p->line, p->n, sizeof(*p->line), by_time);
	return 0;
}

/* Moves the starts up so that about the last `limit` lines are left, cut at a millisecond. */
static int only_newest(struct cursor *c, size_t n, size_t limit, struct err *err)
{
	uint64_t bytes = MAX(PAGE_BYTES_MAX / MAX(n, (size_t)1), BACK_BYTES_MIN);
	int64_t from = 0;

	for (size_t i = 0; i < n; i++) {
		AUTO_BUF struct buf head = BUF_INIT(LOGLINE_MAX);
		struct logline rec;
		struct str rest;
		uint64_t at;
		size_t room;

		if (scan_back(c[i].f, c[i].first, c[i].end, limit, bytes, &at, err) < 0)
			return -1;
		room = (size_t)MIN(c[i].end - at, (uint64_t)LOGLINE_MAX);
		if (at == c[i].first || room == 0)
			continue;
		if (fs_pread_all(c[i].f->fd, buf_room(&head, room), room, at, err) < 0)
			return err_wrap(err, "log of %s", c[i].f->name);
		head.n = room;
		rest = buf_view(&head);
		if (logline_next(&rest, &rec))
			from = MAX(from, ms_of(rec.ns) * NS_PER_MS);
	}
	for (size_t i = 0; from > 0 && i < n; i++) {
		uint64_t at;

		if (offset_at(c[i].f, c[i].end, from, &at, err) < 0)
			return -1;
		c[i].first = MAX(c[i].first, at);
	}
	return 0;
}

static int cursors_open(struct joblogs *l, struct cursor *c, size_t n, const char *job_id, int rank,
                        int64_t from_ns, int64_t to_ns, struct err *err)
{
	size_t chunk = n <= 8 ? 8 * SPAN : SPAN;

	for (size_t i = 0; i < n; i++) {
		uint64_t size;

		c[i].rank = rank < 0 ? (uint32_t)i : (uint32_t)rank;
		c[i].chunk.max = chunk;
		if (joblog_look(l, job_id, c[i].rank, &c[i].f, err) < 0)
			return -1;
		if (c[i].f == NULL)
			continue; /* first == end: nothing */
		size = joblog_size(c[i].f);
		c[i].end = size;
		if (from_ns > 0 && offset_at(c[i].f, size, from_ns, &c[i].first, err) < 0)
			return -1;
		if (to_ns > 0 && offset_at(c[i].f, size, to_ns, &c[i].end, err) < 0)
			return -1;
		c[i].end = MAX(c[i].end, c[i].first);
	}
	return 0;
}

static void cursors_done(struct joblogs *l, struct cursor *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		joblog_give(l, c[i].f);
		buf_done(&c[i].chunk);
		for (size_t which = 0; which < COUNT(c[i].pending); which++)
			buf_done(&c[i].pending[which].text);
	}
}

int joblogs_range(struct joblogs *l, struct arena *a, const char *job_id, int rank, int64_t from_ns,
                  int64_t to_ns, size_t limit, bool newest, struct joblog_line **out, size_t *n,
                  struct err *err)
{
	struct page page = {.a = a, .last_ms = -1};
	struct cursor *c;
	uint32_t ranks;
	size_t n_c, skip = 0;
	int r;

	limit = limit == 0 ? PAGE_LINES_OPEN : MIN(limit, (size_t)PAGE_LINES_MAX);
	if (joblogs_ranks(l, job_id, &ranks, err) < 0)
		return -1;
	n_c = rank < 0 ? ranks : 1;
	c = ARENA_ARRAY(a, struct cursor, MAX(n_c, (size_t)1));
	r = cursors_open(l, c, n_c, job_id, rank, from_ns, to_ns, err);
	if (r == 0 && newest)
		r = only_newest(c, n_c, limit, err);
	if (r == 0)
		r = merge(&page, c, n_c, newest ? 0 : limit, err);
	cursors_done(l, c, n_c);
	if (r == 0) {
		if (newest && page.n > limit) {
			skip = page.n - limit;
			while (skip > 0 &&
			       ms_of(page.line[skip - 1].ns) == ms_of(page.line[skip].ns))
				skip--;
		}
		*n = page.n - skip;
		*out = ARENA_ARRAY(a, struct joblog_line, MAX(*n, (size_t)1));
		if (*n > 0)
			memcpy(*out, page.line + skip, *n * sizeof(**out));
	}
	free(page.line);
	return r;
}
