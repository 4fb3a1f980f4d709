/* awschunked.c - see awschunked.h. */
#include "face/awschunked.h"

static int bad(const char *why, struct err *err)
{
	return err_set(err, ERR_INVALID, "IncompleteBody: the aws-chunked body is broken: %s", why);
}

/* One more character of a line; 1 when it is whole, without its end. A bare LF ends one too. */
static int line_add(struct awschunked *c, char ch, struct str *line, struct err *err)
{
	if (ch == '\n') {
		*line = str_n(c->line, c->line_n);
		if (line->n > 0 && line->p[line->n - 1] == '\r')
			line->n--;
		c->line_n = 0;
		return 1;
	}
	if (c->line_n == sizeof(c->line))
		return bad("an unterminated line", err);
	c->line[c->line_n++] = ch;
	return 0;
}

static int begin_chunk(struct awschunked *c, struct str line, struct err *err)
{
	struct str digits = {0}; /* an empty line leaves it alone */
	uint64_t size = 0;

	(void)str_cut(&line, ';', &digits);
	digits = str_trim(digits);
	if (digits.n == 0 || digits.n > 16)
		return bad("a chunk without a size", err);
	for (size_t i = 0; i < digits.n; i++) {
		char ch = digits.p[i];
		int v = ch >= '0' && ch <= '9'   ? ch - '0'
		        : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
		        : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
		                                 : -1;

		if (v < 0)
			return bad("a chunk's size is not hexadecimal", err);
		size = size << 4 | (unsigned)v;
	}
	if (size > AWSCHUNKED_CHUNK_MAX)
		return bad("a chunk is too large", err);
	if (c->chunk != NULL && c->chunk(c->arg, size, line, err) < 0)
		return -1;
	c->left = size;
	c->state = size > 0 ? AWSCHUNKED_DATA : AWSCHUNKED_TRAILER;
	return 0;
}

static int end_line(struct awschunked *c, struct str line, struct err *err)
{
	struct str name;

	if (line.n == 0) {
		c->state = AWSCHUNKED_END;
		return 0;
	}
	if (++c->n_trailers > AWSCHUNKED_TRAILERS_MAX)
		return bad("too many trailers", err);
	if (memchr(line.p, ':', line.n) == NULL || !str_cut(&line, ':', &name) || name.n == 0)
		return bad("a trailer without a name", err);
	if (c->trailer == NULL)
		return 0;
	return c->trailer(c->arg, str_trim(name), str_trim(line), err);
}

static int feed_line(struct awschunked *c, char ch, struct err *err)
{
	struct str line;
	int whole = line_add(c, ch, &line, err);

	if (whole <= 0)
		return whole;
	if (c->state == AWSCHUNKED_SIZE)
		return begin_chunk(c, line, err);
	return end_line(c, line, err);
}

int awschunked_feed(struct awschunked *c, struct str *in, char *out, size_t cap, size_t *n,
                    struct err *err)
{
	*n = 0;
	while (in->n > 0 && (*n < cap || c->state != AWSCHUNKED_DATA)) {
		size_t take = 1;

		switch (c->state) {
		case AWSCHUNKED_DATA:
			take = (size_t)MIN((uint64_t)MIN(in->n, cap - *n), c->left);
			memcpy(out + *n, in->p, take);
			if (c->data != NULL)
				c->data(c->arg, in->p, take);
			*n += take;
			c->left -= take;
			if (c->left == 0)
				c->state = AWSCHUNKED_DATA_CR;
			break;
		case AWSCHUNKED_DATA_CR:
			if (in->p[0] != '\r')
				return bad("a chunk is longer than its size", err);
			c->state = AWSCHUNKED_DATA_LF;
			break;
		case AWSCHUNKED_DATA_LF:
			if (in->p[0] != '\n')
				return bad("a chunk is longer than its size", err);
			c->state = AWSCHUNKED_SIZE;
			break;
		case AWSCHUNKED_SIZE:
		case AWSCHUNKED_TRAILER:
			if (feed_line(c, in->p[0], err) < 0)
				return -1;
			break;
		case AWSCHUNKED_END:
			return bad("data after its end", err);
		}
		*in = str_skip(*in, take);
	}
	return 0;
}

bool awschunked_done(const struct awschunked *c)
{
	return c->state == AWSCHUNKED_END;
}
