/* test_map.c - maps of text to pointers. */
#include "base/map.h"

#include "unit.h"

static void drop_odd(struct str key, void *value, void *arg)
{
	uintptr_t n = (uintptr_t)value;

	if (n % 2 == 1)
		assert_ptr_equal(map_del(arg, key), value);
}

static void in_order(struct str key, void *value, void *arg)
{
	uintptr_t *last = arg;

	(void)key;
	assert_true((uintptr_t)value > *last);
	*last = (uintptr_t)value;
}

static void test_map(void **state)
{
	AUTO_MAP struct map *m = map_new();
	uintptr_t last = 0;
	int x, y;

	(void)state;
	map_free(NULL);
	assert_null(map_get(m, STR_LIT("a")));
	assert_null(map_del(m, STR_LIT("a")));
	assert_null(map_set(m, STR_LIT("a"), &x));
	assert_ptr_equal(map_set(m, STR_LIT("a"), &y), &x);
	assert_ptr_equal(map_get(m, STR_LIT("a")), &y);
	assert_null(map_set(m, STR_LIT(""), &x));
	assert_null(map_set(m, STR_LIT("a\0b"), &x));
	assert_ptr_equal(map_get(m, STR_LIT("a")), &y);
	assert_int_equal(map_count(m), 3);
	assert_ptr_equal(map_del(m, STR_LIT("a")), &y);
	assert_ptr_equal(map_get(m, STR_LIT("a\0b")), &x);
	assert_ptr_equal(map_del(m, STR_LIT("a\0b")), &x);
	assert_ptr_equal(map_del(m, STR_LIT("")), &x);
	for (uintptr_t i = 1; i <= 5000; i++) {
		char key[32];

		FMT(key, "key-%zu", (size_t)i);
		assert_null(map_set(m, str_of(key), (void *)i));
	}
	map_each(m, drop_odd, m);
	assert_int_equal(map_count(m), 2500);
	map_each(m, in_order, &last);
	assert_int_equal(last, 5000);
	assert_null(map_get(m, STR_LIT("key-4999")));
	assert_ptr_equal(map_get(m, STR_LIT("key-4998")), (void *)(uintptr_t)4998);
}

struct thing {
	unsigned magic;
#define THING_MAGIC 0x54484e47U
};

static void take_thing(void *arg)
{
	(void)FROM_VOID(struct thing, arg, THING_MAGIC);
}

/* What comes back through a void * is what was given there. */
static void from_void(void **state UNUSED)
{
	struct thing thing = {THING_MAGIC}, other = {0x54484e48U}, gone = {0};

	assert_false(asserts(take_thing, &thing));
	assert_true(asserts(take_thing, &other));
	assert_true(asserts(take_thing, &gone));
	assert_true(asserts(take_thing, NULL));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_map),
	cmocka_unit_test(from_void),
};

UNIT_MAIN(tests)
