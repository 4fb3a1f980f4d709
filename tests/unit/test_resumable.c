/* test_resumable.c - two ends of a connection that is cut anywhere: all arrives, once and in order;
 * frames that are none, and ends that are out of step. */
#include "unit.h"

#include "io/resumable.h"

#define TRIP ((size_t)3 << 20) /* bytes, each way */

static uint64_t dice_state;

static uint64_t dice(uint64_t below)
{
	dice_state = dice_state * 6364136223846793005U + 1442695040888963407U;
	return (dice_state >> 33) % below;
}

static char byte_at(uint64_t i, int which)
{
	return (char)(i * 7 + (i >> 8) * 13 + (uint64_t)which);
}

/* An end that sends so many bytes, and counts what it gets. */
struct talker {
	struct resumable r;
	int which;
	uint64_t sent, got;
	bool said_end, got_end;
};

static void put_some(struct talker *t)
{
	char bytes[3000];
	size_t n = 1 + (size_t)dice(sizeof(bytes));

	n = MIN(MIN(n, resumable_room(&t->r)), (size_t)(TRIP - t->sent));
	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(t->sent + i, t->which);
	if (n > 0)
		resumable_put(&t->r, t->which == 0 ? FRAME_IN : FRAME_OUT, str_n(bytes, n));
	t->sent += n;
	if (t->sent == TRIP && !t->said_end) {
		resumable_put(&t->r, FRAME_END, (struct str){0});
		t->said_end = true;
	}
}

static void use_some(struct talker *t)
{
	enum frame_kind kind;
	struct str bytes;
	size_t n;

	if (!resumable_next(&t->r, &kind, &bytes))
		return;
	if (kind == FRAME_END) {
		assert_false(t->got_end);
		t->got_end = true;
	}
	n = dice(3) == 0 ? (size_t)dice(bytes.n + 1) : bytes.n;
	for (size_t i = 0; i < n; i++)
		assert_int_equal(bytes.p[i], byte_at(t->got + i, 1 - t->which));
	t->got += n;
	resumable_use(&t->r, n);
}

/* As a socket would: any part of it, in any order of the two. */
static void carry(struct talker *from, struct talker *to)
{
	struct str wire = resumable_wire(&from->r);
	size_t n = (size_t)dice(wire.n + 1);
	struct err err = {0};

	assert_ok(resumable_feed(&to->r, str_n(wire.p, n), &err), &err);
	resumable_wrote(&from->r, n);
}

static void all_arrives_however_often_it_is_cut(void **state UNUSED)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct talker end[] = {{.r = RESUMABLE_INIT}, {.r = RESUMABLE_INIT, .which = 1}};
		unsigned cuts = 0;

		dice_state = seed;
		resumable_begin(&end[0].r);
		resumable_begin(&end[1].r);
		while (!end[0].got_end || !end[1].got_end || !resumable_all_used(&end[0].r) ||
		       !resumable_all_used(&end[1].r)) {
			struct talker *t = &end[dice(2)];

			put_some(t);
			if (dice(4) > 0) /* what it gets may wait */
				use_some(t);
			carry(t, &end[1 - t->which]);
			if (dice(seed * 40) == 0) { /* what is on the way is lost */
				resumable_begin(&end[0].r);
				resumable_begin(&end[1].r);
				cuts++;
			}
		}
		assert_true(end[0].got == TRIP && end[1].got == TRIP && cuts > 5);
		resumable_done(&end[0].r);
		resumable_done(&end[1].r);
	}
}

static void who_does_not_use_it_stops_the_other(void **state UNUSED)
{
	struct talker end[] = {{.r = RESUMABLE_INIT}, {.r = RESUMABLE_INIT, .which = 1}};

	dice_state = 5;
	resumable_begin(&end[0].r);
	resumable_begin(&end[1].r);
	for (int i = 0; i < 4000; i++) {
		put_some(&end[0]);
		carry(&end[0], &end[1]);
		carry(&end[1], &end[0]);
	}
	assert_int_equal(resumable_room(&end[0].r), 0);
	assert_true(end[0].sent < RESUMABLE_MAX);
	/* and what is about the moment overtakes it */
	resumable_say(&end[0].r, FRAME_HANG_UP, (struct str){0});
	resumable_say_size(&end[0].r, 65535, 258);
	for (int i = 0; i < 100; i++)
		carry(&end[0], &end[1]);
	assert_true(end[1].r.hang_up && !end[1].r.leave);
	assert_true(end[1].r.sized && end[1].r.rows == 65535 && end[1].r.columns == 258);
	while (end[1].got < end[0].sent)
		use_some(&end[1]);
	for (int i = 0; i < 100; i++)
		carry(&end[1], &end[0]);
	assert_true(resumable_all_used(&end[0].r) && resumable_room(&end[0].r) > 0);
	resumable_done(&end[0].r);
	resumable_done(&end[1].r);
}

static const struct {
	const char *name, *bytes;
	size_t n;
	const char *why; /* NULL: the rest has not come */
} rows[] = {
	{"no head", "\6\0\0", 3, NULL},
	{"cut", "\6\0\0\3ab", 6, NULL},
	{"kind 0", "\0\0\0\0", 4, "no frame"},
	{"a kind that is none", "\13\0\0\0", 4, "no frame"},
	{"larger than a frame may be", "\6\1\0\1", 4, "no frame"},
	{"an offset of 4 bytes", "\1\0\0\4\0\0\0\0", 8, "another size"},
	{"an offset that was not sent", "\1\0\0\10\0\0\0\0\0\0\0\1", 12, "was not sent"},
	{"an offset of all bits", "\1\0\0\10\377\377\377\377\377\377\377\377", 12, "was not sent"},
	{"a size of 3 bytes", "\3\0\0\3\0\1\0", 7, "another size"},
	{"an end with bytes", "\11\0\0\1x", 5, "an end with bytes"},
};

static void what_is_no_such_end_is_told(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct resumable r CLEANUP(resumable_done) = RESUMABLE_INIT;
		struct err err = {0};
		enum frame_kind kind;
		struct str bytes;

		resumable_begin(&r);
		if (rows[i].why != NULL)
			assert_err(resumable_feed(&r, str_n(rows[i].bytes, rows[i].n), &err), &err,
			           ERR_INVALID, rows[i].why);
		else
			assert_ok(resumable_feed(&r, str_n(rows[i].bytes, rows[i].n), &err), &err);
		assert_row(!resumable_next(&r, &kind, &bytes), rows[i].name);
	}
}

static void who_does_not_wait_for_room_is_told(void **state UNUSED)
{
	struct resumable r CLEANUP(resumable_done) = RESUMABLE_INIT;
	AUTO_BUF struct buf frame = BUF_INIT((size_t)1 << 20), bytes = BUF_INIT((size_t)1 << 20);
	struct err err = {0};
	int rc = 0;

	for (size_t i = 0; i < RESUMABLE_FRAME_MAX; i++)
		buf_putc(&bytes, 'x');
	frame_put(&frame, FRAME_OUT, buf_view(&bytes));
	resumable_begin(&r);
	for (int i = 0; i < 5 && rc == 0; i++)
		rc = resumable_feed(&r, buf_view(&frame), &err);
	assert_err(rc, &err, ERR_INVALID, "wait for room");
	assert_true(r.got.n <= RESUMABLE_MAX + RESUMABLE_FRAME_MAX);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(all_arrives_however_often_it_is_cut),
	cmocka_unit_test(who_does_not_use_it_stops_the_other),
	cmocka_unit_test(what_is_no_such_end_is_told),
	cmocka_unit_test(who_does_not_wait_for_room_is_told),
};

UNIT_MAIN(tests)
