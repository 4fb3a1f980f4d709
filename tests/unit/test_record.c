/* test_record.c - what is written is read back the same; what is wrong is refused by name. */
#include "base/record.h"

#include "unit.h"

enum size { SMALL, LARGE };
static const char *const size_words[] = {[SMALL] = "small", [LARGE] = "large"};
static const struct words sizes = WORDS("a size", size_words[0], size_words);

struct box {
	const char *name;
	enum size size;
};
static RECORD(box, NULL, ROW(box, R_TEXT, name), ROW_WORD(box, R_WORD, size, sizes));

struct room {
	const char *note;
	uint32_t door;
	uint32_t *ranks;
	const char **tags;
	struct box *boxes, lid, shelf[2];
	size_t n_ranks, n_tags, n_boxes, n_shelf;
	bool has_lid, old;
};

static int check_room(const void *of, struct err *err)
{
	const struct room *r = of;

	return r->door < 10 ? 0 : err_set(err, ERR_INVALID, "door: too many");
}

static RECORD(room, check_room, ROW(room, R_TEXT | R_MAY, note), ROW(room, R_U32, door),
              ROW_N(room, R_NUMBERS, ranks, n_ranks), ROW_N(room, R_TEXTS | R_MAY, tags, n_tags),
              ROW_OF(room, R_LIST, boxes, n_boxes, box), ROW_OF(room, R_ONE, lid, has_lid, box),
              ROW_OF(room, R_FIXED | R_MAY, shelf, n_shelf, box), ROW(room, R_BOOL | R_MAY, old));

static void keeps_all(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000), again = BUF_INIT(10000);
	uint32_t ranks[] = {0, UINT32_MAX};
	const char *tags[] = {"a", ""};
	struct box boxes[] = {{"x", LARGE}, {"y", SMALL}};
	struct room back, m = {.door = 3,
	                       .ranks = ranks,
	                       .n_ranks = 2,
	                       .tags = tags,
	                       .n_tags = 2,
	                       .boxes = boxes,
	                       .n_boxes = 2,
	                       .has_lid = true,
	                       .lid = {"l", LARGE},
	                       .shelf = {{"s", LARGE}},
	                       .n_shelf = 1};
	struct err err = {0};

	record_write(&room_record, &m, &out);
	assert_string_equal(
		buf_cstr(&out),
		"{\"note\":null,\"door\":3,\"ranks\":[0,4294967295],\"tags\":[\"a\",\"\"],"
		"\"boxes\":[{\"name\":\"x\",\"size\":\"large\"},{\"name\":\"y\","
		"\"size\":\"small\"}],\"lid\":{\"name\":\"l\",\"size\":\"large\"},"
		"\"shelf\":[{\"name\":\"s\",\"size\":\"large\"}],\"old\":false}");
	memset(&back, 0xff, sizeof(back));
	assert_ok(record_read(&room_record, a, buf_view(&out), &back, &err), &err);
	record_write(&room_record, &back, &again);
	assert_string_equal(buf_cstr(&again), buf_cstr(&out));
	assert_null(back.note);
}

#define REST "\"ranks\":[],\"boxes\":[]"
static void refuses(void **state UNUSED)
{
	static const struct {
		const char *json, *words; /* NULL: it is read */
	} rows[] = {
		{"{\"door\":1," REST "}", NULL},
		{"{\"door\":1,\"tags\":null,\"old\":null,\"lid\":null,\"new\":{}," REST "}", NULL},
		{"{\"door\":10," REST "}", "too many"},
		{"{\"door\":null," REST "}", "room: door: a whole number, not"},
		{"{" REST "}", "room: door: missing"},
		{"{\"door\":1,\"old\":1," REST "}", "old: true or false, not"},
		{"{\"door\":1,\"ranks\":[-1],\"boxes\":[]}", "out of range"},
		{"{\"door\":1,\"ranks\":[1],\"boxes\":[{\"name\":\"a\",\"size\":\"huge\"}]}",
	         "\"huge\" is not a size"},
		{"{\"door\":1,\"shelf\":[1,2,3]," REST "}", "shelf: 3 entries, at most 2"},
		{"{\"door\":1,\"note\":\"a\\u0000b\"," REST "}", ""},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct room m;
		struct err err = {0};
		int r = record_read(&room_record, a, str_of(rows[i].json), &m, &err);

		assert_row((r < 0) == (rows[i].words != NULL), rows[i].json);
		assert_row(r == 0 || strstr(err.msg, rows[i].words) != NULL, rows[i].json);
	}
}

struct shown {
	int64_t when_ms, left;
	uint64_t bits;
	const struct doc *doc;
	const char *end;
	uint32_t code;
	bool sure, known;
};
static SHOWN(end, NULL, shown, ROW_AS(shown, R_TEXT, "kind", end), ROW(shown, R_U32, code));
static SHOWN(shown, "Shown", shown, ROW_AS(shown, R_TIME | R_NULL, "when", when_ms),
             ROW(shown, R_I64 | R_NEGATIVE, left), ROW(shown, R_BITS, bits),
             ROW_AS(shown, R_SUM, "sum", bits), ROW(shown, R_DOC | R_SPARSE, doc),
             ROW_PART(R_NULL, "end", end), ROW_IF(shown, R_BOOL, "sure", sure, known),
             ROW_AS(shown, R_U32 | R_SPARSE, "code", code));

/* What is not there is null, or left out; what is there is not, whatever it is. */
static void shows_nothing_as_nothing(void **state UNUSED)
{
	static const struct doc yes = {.kind = DOC_BOOL, .flag = true};
	static const struct {
		struct shown m;
		const char *json;
	} rows[] = {
		{{.left = -1},
	         "{\"when\":null,\"left\":null,\"bits\":[],\"sum\":0,\"end\":null,\"sure\":null}"},
		{{1500, 0, UINT64_C(1) << 63 | 5, &yes, "x", 7, false, true},
	         "{\"when\":\"1970-01-01T00:00:01.500Z\",\"left\":0,\"bits\":[0,2,63],\"sum\":3,"
	         "\"doc\":true,\"end\":{\"kind\":\"x\",\"code\":7},\"sure\":false,\"code\":7}"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf out = BUF_INIT(10000);

		record_write(&shown_record, &rows[i].m, &out);
		assert_string_equal(buf_cstr(&out), rows[i].json);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(keeps_all),
	cmocka_unit_test(refuses),
	cmocka_unit_test(shows_nothing_as_nothing),
};
UNIT_MAIN(tests)
