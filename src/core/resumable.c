/* resumable.c - bounded pieces of streams, and frames; see resumable.h. */
#include "core/resumable.h"

void resumable_done(struct resumable *f)
{
	buf_done(&f->b);
}

uint64_t resumable_end(const struct resumable *f)
{
	return f->at + f->b.n;
}

int resumable_put(struct resumable *f, uint64_t offset, struct str bytes, uint64_t *next,
                  struct err *err)
{
	uint64_t end = resumable_end(f);

	if (offset > end)
		return err_set(err, ERR_CONFLICT,
		               "offset: %" PRIu64 " is too far; continue from %" PRIu64, offset,
		               end);
	bytes = str_skip(bytes, (size_t)MIN(end - offset, (uint64_t)bytes.n));
	if (bytes.n <= RESUMABLE_MAX - f->b.n)
		buf_str(&f->b, bytes);
	*next = MAX(resumable_end(f), offset);
	return 0;
}

int resumable_read(struct resumable *f, uint64_t offset, struct str *out, struct err *err)
{
	if (offset < f->at || offset > resumable_end(f))
		return err_set(err, ERR_CONFLICT,
		               "offset: %" PRIu64 " is not among what is kept, %" PRIu64
		               " to %" PRIu64,
		               offset, f->at, resumable_end(f));
	buf_drop(&f->b, (size_t)(offset - f->at));
	f->at = offset;
	*out = buf_view(&f->b);
	return 0;
}

void resumable_skip(struct resumable *f, uint64_t to)
{
	f->at = MAX(resumable_end(f), to);
	buf_clear(&f->b);
}

void frame_put(struct buf *out, enum frame_kind kind, struct str bytes)
{
	assert(bytes.n <= FRAME_BYTES_MAX);
	buf_putc(out, (char)kind);
	buf_putc(out, (char)(bytes.n >> 16 & 255));
	buf_putc(out, (char)(bytes.n >> 8 & 255));
	buf_putc(out, (char)(bytes.n & 255));
	buf_str(out, bytes);
}

void frame_put_size(struct buf *out, uint32_t rows, uint32_t columns)
{
	char four[] = {(char)(rows >> 8 & 255), (char)(rows & 255), (char)(columns >> 8 & 255),
	               (char)(columns & 255)};

	frame_put(out, FRAME_SIZE, str_n(four, sizeof(four)));
}

static uint8_t at(struct str s, size_t i)
{
	return (uint8_t)s.p[i];
}

bool frame_next(struct str *rest, enum frame_kind *kind, struct str *bytes)
{
	size_t n;

	if (rest->n < FRAME_HEAD || at(*rest, 0) < FRAME_STATE || at(*rest, 0) > FRAME_SIZE)
		return false;
	n = (size_t)at(*rest, 1) << 16 | (size_t)at(*rest, 2) << 8 | at(*rest, 3);
	if (rest->n - FRAME_HEAD < n)
		return false;
	*kind = (enum frame_kind)at(*rest, 0);
	*bytes = str_n(rest->p + FRAME_HEAD, n);
	*rest = str_skip(*rest, FRAME_HEAD + n);
	return true;
}

bool frame_size(struct str bytes, uint16_t *rows, uint16_t *columns)
{
	if (bytes.n != 4)
		return false;
	*rows = (uint16_t)(at(bytes, 0) << 8 | at(bytes, 1));
	*columns = (uint16_t)(at(bytes, 2) << 8 | at(bytes, 3));
	return true;
}
