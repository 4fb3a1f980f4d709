/* test_schema.c - the notation of schemas. */
#include "face/schema.h"

#include "unit.h"

static void test_objects(void **state)
{
	static const struct {
		const char *members, *want;
	} rows[] = {
		{"", "{\"type\":\"object\",\"properties\":{}}"},
		{"a:text", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}"},
		{"a:bool! b:num?", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
	                           "\"boolean\"},\"b\":{\"type\":[\"number\","
	                           "\"null\"]}},\"required\":[\"a\"]}"},
		{"a:int!?", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\","
	                    "\"null\"],\"minimum\":0}},\"required\":"
	                    "[\"a\"]}"},
		{"a:int(-5,7)", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\","
	                        "\"minimum\":-5,\"maximum\":7}}}"},
		{"a:enum(x,y)?", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\","
	                         "\"null\"],\"enum\":[\"x\",\"y\",null]}}}"},
		{"a[text]!", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
	                     "\"items\":{\"type\":\"string\"}}},\"required\":"
	                     "[\"a\"]}"},
		{"a[text]+?", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"array\","
	                      "\"null\"],\"minItems\":1,\"items\":{\"type\":\"string\"}}}}"},
		{"a[{b:any!}]", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
	                        "\"items\":{\"type\":\"object\","
	                        "\"properties\":{\"b\":{}},\"required\":[\"b\"]}}}}"},
		{"a{b:@Job!? c[@Job]}!? d:any",
	         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"object\",\"null\"],"
	         "\"properties\":{\"b\":{\"anyOf\":[{\"$ref\":"
	         "\"#/components/schemas/"
	         "Job\"},{\"type\":\"null\"}]},\"c\":{\"type\":\"array\",\"items\":{\"$ref\":"
	         "\"#/components/schemas/"
	         "Job\"}}},\"required\":[\"b\"]},\"d\":{}},\"required\":[\"a\"]}"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf b = BUF_INIT(10000);
		struct js js;

		js_init(&js, &b);
		schema_object(&js, rows[i].members);
		if (strcmp(buf_cstr(&b), rows[i].want) != 0)
			fail_msg("%s: %s", rows[i].members, buf_cstr(&b));
	}
}

enum size { SMALL, MIDDLE, LARGE };
static const char *const size_words[] = {[MIDDLE] = "m", [LARGE] = "l"};
static const struct words sizes = WORDS("a size", size_words[0], size_words);

struct box {
	const char *name;
	unsigned size;
	int64_t at_ms, low;
	uint64_t bits;
	struct box *inner;
	size_t n_inner;
	bool old;
};
static SHOWN(lid, NULL, box, ROW_WORD(box, R_WORD, size, sizes), ROW(box, R_BOOL | R_SPARSE, old));
static SHOWN(box, "Box", box, ROW(box, R_TEXT, name), ROW_AS(box, R_TIME | R_NULL, "at", at_ms),
             ROW(box, R_I64 | R_SIGNED, low), ROW_AS(box, R_I64 | R_NEGATIVE, "left", low),
             ROW(box, R_BITS, bits), ROW_PART(R_NULL, "lid", lid),
             ROW_OF(box, R_LIST, inner, n_inner, lid));
static SHOWN(boxes, NULL, box, ROW_OF(box, R_LIST, inner, n_inner, box), ROW_PART(0, "one", box));

static void test_records(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(10000);

	schema_of_record(&box_record, true, &out);
	assert_string_equal(
		buf_cstr(&out),
		"name:text! at:time!? low:int(-9223372036854775808,9223372036854775807)! "
		"left:int!? bits[int]! lid{size:enum(m,l)! old:bool }!? "
		"inner[{size:enum(m,l)! old:bool }]! ");
	buf_clear(&out);
	schema_of_record(&boxes_record, false, &out);
	assert_string_equal(buf_cstr(&out), "inner[@Box] one:@Box ");
}

static void test_query(void **state)
{
	AUTO_BUF struct buf b = BUF_INIT(10000);
	struct js js;

	(void)state;
	js_init(&js, &b);
	js_list(&js);
	schema_query(&js, "n:int(1,2) path:text!");
	js_end(&js);
	assert_string_equal(buf_cstr(&b), "[{\"name\":\"n\",\"in\":\"query\",\"schema\":{\"type\":"
	                                  "\"integer\",\"minimum\":1,\"maximum\":2},"
	                                  "\"required\":false},{\"name\":\"path\",\"in\":\"query\","
	                                  "\"schema\":{\"type\":\"string\"},"
	                                  "\"required\":true}]");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_objects),
	cmocka_unit_test(test_records),
	cmocka_unit_test(test_query),
};

UNIT_MAIN(tests)
