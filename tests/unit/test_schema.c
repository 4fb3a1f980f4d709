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
	cmocka_unit_test(test_query),
};

UNIT_MAIN(tests)
