/* resumable.c - frames, and where each end of their connection stands; see resumable.h. */
#include "io/resumable.h"

#define WIRE_MIN ((size_t)32 << 10)               /* of kept frames, for one write */
#define KEPT_MAX (RESUMABLE_MAX + 4 * FRAME_HEAD) /* the last ones need no room: END, EXIT */
#define LAST_MAX 1                                /* bytes of such a frame */

void frame_put(struct buf *out, enum frame_kind kind, struct str bytes)
{
	assert(bytes.n <= RESUMABLE_FRAME_MAX);
	buf_putc(out, (char)kind);
	buf_putc(out, (char)(bytes.n >> 16 & 255));
	buf_putc(out, (char)(bytes.n >> 8 & 255));
	buf_putc(out, (char)(bytes.n & 255));
	buf_str(out, bytes);
}

static uint8_t at(struct str s, size_t i)
{
	return (uint8_t)s.p[i];
}

bool frame_next(struct str *rest, enum frame_kind *kind, struct str *bytes, bool *bad)
{
	size_t n;

	*bad = rest->n > 0 && (at(*rest, 0) < FRAME_RECEIVED || at(*rest, 0) > FRAME_EXIT);
	if (*bad || rest->n < FRAME_HEAD)
		return false;
	n = (size_t)at(*rest, 1) << 16 | (size_t)at(*rest, 2) << 8 | at(*rest, 3);
	*bad = n > RESUMABLE_FRAME_MAX;
	if (*bad || rest->n - FRAME_HEAD < n)
		return false;
	*kind = (enum frame_kind)at(*rest, 0);
	*bytes = str_n(rest->p + FRAME_HEAD, n);
	*rest = str_skip(*rest, FRAME_HEAD + n);
	return true;
}

/* What is true of it between two calls. */
static void check(const struct resumable *r)
{
	assert(r->sent <= r->kept.n && (r->met || r->sent == 0));
	assert(r->told <= r->got_at && r->told <= r->seen && r->used <= r->got.n);
	assert(r->seen <= r->got_at + r->got.n);
	assert(r->got.n <= KEPT_MAX && r->kept.n <= KEPT_MAX);
	assert(!r->kept.full && !r->wire.full && !r->raw.full && !r->got.full);
}

void resumable_done(struct resumable *r)
{
	buf_done(&r->kept);
	buf_done(&r->wire);
	buf_done(&r->raw);
	buf_done(&r->got);
}

void resumable_begin(struct resumable *r)
{
	r->sent = 0;
	r->met = false;
	buf_clear(&r->wire);
	buf_clear(&r->raw);
	r->seen = r->got_at;
	resumable_say_received(r);
	check(r);
}

size_t resumable_room(const struct resumable *r)
{
	return MIN(RESUMABLE_MAX - MIN(r->kept.n, RESUMABLE_MAX), RESUMABLE_FRAME_MAX);
}

void resumable_put(struct resumable *r, enum frame_kind kind, struct str bytes)
{
	assert(kind >= FRAME_OUT && (bytes.n <= LAST_MAX || bytes.n <= resumable_room(r)));
	frame_put(&r->kept, kind, bytes);
}

void resumable_say(struct resumable *r, enum frame_kind kind, struct str bytes)
{
	assert(kind < FRAME_OUT);
	if (r->wire.n < RESUMABLE_MAX) /* else nothing goes out, and the moment is past */
		frame_put(&r->wire, kind, bytes);
}

void resumable_say_size(struct resumable *r, uint16_t rows, uint16_t columns)
{
	char four[] = {(char)(rows >> 8), (char)(rows & 255), (char)(columns >> 8),
	               (char)(columns & 255)};

	resumable_say(r, FRAME_SIZE, str_n(four, sizeof(four)));
}

/* What this connection has not repeated yet was used, but cannot be told: the other end counts from
 * what it has sent. */
static uint64_t to_tell(const struct resumable *r)
{
	return MIN(r->got_at, r->seen);
}

void resumable_say_received(struct resumable *r)
{
	char eight[8];

	r->told = to_tell(r);
	for (int i = 0; i < 8; i++)
		eight[i] = (char)(r->told >> (56 - 8 * i) & 255);
	resumable_say(r, FRAME_RECEIVED, str_n(eight, sizeof(eight)));
}

bool resumable_all_used(const struct resumable *r)
{
	return r->kept.n == 0;
}

/* More of what is kept: whole frames, so that others may come between. */
static void fill_wire(struct resumable *r)
{
	struct str rest = str_skip(buf_view(&r->kept), r->sent), bytes;
	struct str from = rest;
	enum frame_kind kind;
	bool bad;

	while (from.n - rest.n < WIRE_MIN && frame_next(&rest, &kind, &bytes, &bad))
		;
	buf_str(&r->wire, str_n(from.p, from.n - rest.n));
	r->sent += from.n - rest.n;
}

struct str resumable_wire(struct resumable *r)
{
	if (r->wire.n == 0 && r->told != to_tell(r))
		resumable_say_received(r);
	if (r->wire.n < WIRE_MIN && r->met && r->sent < r->kept.n)
		fill_wire(r);
	check(r);
	return buf_view(&r->wire);
}

void resumable_wrote(struct resumable *r, size_t n)
{
	buf_drop(&r->wire, n);
}

static int out_of_step(const char *what, struct err *err)
{
	return err_set(err, ERR_INVALID, "the other end is out of step: %s", what);
}

/* The other end has used so much of what is kept. */
static int on_received(struct resumable *r, struct str bytes, struct err *err)
{
	uint64_t to = 0;

	if (bytes.n != 8)
		return out_of_step("an offset of another size than 8 bytes", err);
	for (size_t i = 0; i < 8; i++)
		to = to << 8 | at(bytes, i);
	if (to < r->kept_at || to > r->kept_at + (r->met ? r->sent : r->kept.n))
		return out_of_step("it has received what was not sent", err);
	buf_drop(&r->kept, (size_t)(to - r->kept_at));
	r->sent = r->met ? r->sent - (size_t)(to - r->kept_at) : 0;
	r->kept_at = to;
	r->met = true;
	return 0;
}

static int on_kept(struct resumable *r, enum frame_kind kind, struct str bytes, struct err *err)
{
	uint64_t n = FRAME_HEAD + bytes.n, have = r->got_at + r->got.n - r->seen;

	if (have > 0 && have < n)
		return out_of_step("what it repeats is not what it said", err);
	if (have == 0 && r->got.n + n > KEPT_MAX)
		return out_of_step("it does not wait for room", err);
	if (have == 0)
		frame_put(&r->got, kind, bytes);
	r->seen += n;
	return 0;
}

static int on_frame(struct resumable *r, enum frame_kind kind, struct str bytes, struct err *err)
{
	switch (kind) {
	case FRAME_RECEIVED:
		return on_received(r, bytes, err);
	case FRAME_WAIT:
		return 0;
	case FRAME_SIZE:
		if (bytes.n != 4)
			return out_of_step("a size of another size than 4 bytes", err);
		r->rows = (uint16_t)(at(bytes, 0) << 8 | at(bytes, 1));
		r->columns = (uint16_t)(at(bytes, 2) << 8 | at(bytes, 3));
		r->sized = true;
		return 0;
	case FRAME_HANG_UP:
		r->hang_up = true;
		return 0;
	case FRAME_LEAVE:
		r->leave = true;
		return 0;
	case FRAME_END:
		if (bytes.n != 0)
			return out_of_step("an end with bytes", err);
		break;
	case FRAME_OUT:
	case FRAME_ERR:
	case FRAME_IN:
	case FRAME_EXIT:
		break;
	}
	return on_kept(r, kind, bytes, err);
}

int resumable_feed(struct resumable *r, struct str bytes, struct err *err)
{
	int rc = 0;

	while (bytes.n > 0 && rc == 0) {
		size_t n = MIN(bytes.n, RESUMABLE_FRAME_MAX);
		enum frame_kind kind;
		struct str rest, frame;
		bool bad = false;

		buf_str(&r->raw, str_n(bytes.p, n));
		bytes = str_skip(bytes, n);
		rest = buf_view(&r->raw);
		while (rc == 0 && frame_next(&rest, &kind, &frame, &bad))
			rc = on_frame(r, kind, frame, err);
		if (rc == 0 && bad)
			rc = out_of_step("no frame", err);
		buf_drop(&r->raw, r->raw.n - rest.n);
	}
	check(r);
	return rc;
}

bool resumable_next(const struct resumable *r, enum frame_kind *kind, struct str *bytes)
{
	struct str rest = buf_view(&r->got);
	bool bad;

	if (!frame_next(&rest, kind, bytes, &bad))
		return false;
	*bytes = str_skip(*bytes, r->used);
	return true;
}

void resumable_use(struct resumable *r, size_t n)
{
	enum frame_kind kind;
	struct str bytes;
	bool there = resumable_next(r, &kind, &bytes);

	assert(there && n <= bytes.n);
	r->used += n;
	if (n < bytes.n)
		return;
	r->got_at += FRAME_HEAD + r->used;
	buf_drop(&r->got, FRAME_HEAD + r->used);
	r->used = 0;
	check(r);
}
