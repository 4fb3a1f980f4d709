/* test_resumable.c - pieces of streams that are sent again, come too early or find no room; frames.
 */
#include "unit.h"

#include "core/resumable.h"

static void flow_takes_what_is_new_once(void **state UNUSED)
{
	struct resumable f CLEANUP(resumable_done) = RESUMABLE_INIT;
	struct err err = {0};
	uint64_t next = 0;
	struct str out;

	assert_err(resumable_put(&f, 1, STR_LIT("b"), &next, &err), &err, ERR_CONFLICT, "from 0");
	assert_ok(resumable_put(&f, 0, STR_LIT("abc"), &next, &err), &err);
	assert_int_equal(next, 3);
	assert_ok(resumable_put(&f, 0, STR_LIT("ab"), &next, &err), &err); /* sent again */
	assert_ok(resumable_put(&f, 1, STR_LIT("bcde"), &next, &err), &err);
	assert_int_equal(next, 5);
	assert_ok(resumable_read(&f, 0, &out, &err), &err);
	assert_true(str_eq(out, "abcde"));
	assert_ok(resumable_read(&f, 2, &out, &err), &err); /* the first two have arrived */
	assert_true(str_eq(out, "cde"));
	assert_err(resumable_read(&f, 1, &out, &err), &err, ERR_CONFLICT, "not among");
	assert_err(resumable_read(&f, 6, &out, &err), &err, ERR_CONFLICT, "not among");
	assert_ok(resumable_read(&f, 5, &out, &err), &err);
	assert_int_equal(out.n, 0);
	resumable_skip(&f, 9);
	assert_int_equal(resumable_end(&f), 9);
	resumable_skip(&f, 3); /* never back */
	assert_int_equal(resumable_end(&f), 9);
}

static void flow_without_room_takes_nothing(void **state UNUSED)
{
	struct resumable f CLEANUP(resumable_done) = RESUMABLE_INIT;
	AUTO_BUF struct buf chunk = BUF_INIT(RESUMABLE_CHUNK_MAX);
	struct err err = {0};
	uint64_t next = 0, sent = 0;
	struct str out;

	memset(buf_room(&chunk, RESUMABLE_CHUNK_MAX), 'x', RESUMABLE_CHUNK_MAX);
	chunk.n = RESUMABLE_CHUNK_MAX;
	for (; sent < RESUMABLE_MAX; sent += RESUMABLE_CHUNK_MAX) {
		assert_ok(resumable_put(&f, sent, buf_view(&chunk), &next, &err), &err);
		assert_int_equal(next, sent + RESUMABLE_CHUNK_MAX);
	}
	assert_ok(resumable_put(&f, sent, STR_LIT("y"), &next, &err), &err);
	assert_int_equal(next, sent);
	assert_ok(resumable_read(&f, 1, &out, &err), &err);
	assert_int_equal(out.n, RESUMABLE_MAX - 1);
	assert_ok(resumable_put(&f, sent, STR_LIT("y"), &next, &err), &err);
	assert_int_equal(next, sent + 1);
}

static const struct {
	const char *name, *bytes;
	size_t n;
} broken[] = {
	{"no head", "\2\0\0", 3},
	{"cut", "\2\0\0\3ab", 6},
	{"kind 0", "\0\0\0\0", 4},
	{"a kind that is none", "\7\0\0\0", 4},
};

static void frames_pass_over_what_is_torn(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(broken); i++) {
		struct str rest = str_n(broken[i].bytes, broken[i].n), bytes;
		enum frame_kind kind;

		assert_row(!frame_next(&rest, &kind, &bytes), broken[i].name);
		assert_row(rest.n == broken[i].n, broken[i].name);
	}
}

static void frames_come_back(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	AUTO_BUF struct buf big = BUF_INIT((size_t)1 << 20);
	uint16_t rows = 0, columns = 0;
	enum frame_kind kind;
	struct str rest, bytes;

	for (size_t i = 0; i < 70000; i++)
		buf_putc(&big, (char)(i * 7));
	frame_put(&out, FRAME_OUT, buf_view(&big));
	frame_put_size(&out, 65535, 258);
	frame_put(&out, FRAME_END, (struct str){0});
	rest = buf_view(&out);
	assert_true(frame_next(&rest, &kind, &bytes) && kind == FRAME_OUT);
	assert_true(str_same(bytes, buf_view(&big)));
	assert_false(frame_size(bytes, &rows, &columns));
	assert_true(frame_next(&rest, &kind, &bytes) && frame_size(bytes, &rows, &columns));
	assert_true(rows == 65535 && columns == 258);
	assert_true(frame_next(&rest, &kind, &bytes) && kind == FRAME_END && bytes.n == 0);
	assert_false(frame_next(&rest, &kind, &bytes));
	assert_int_equal(rest.n, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(flow_takes_what_is_new_once),
	cmocka_unit_test(flow_without_room_takes_nothing),
	cmocka_unit_test(frames_pass_over_what_is_torn),
	cmocka_unit_test(frames_come_back),
};

UNIT_MAIN(tests)
