/* test_lru.c - who goes first: scans, pins, young entries, restarts. */
#include "unit.h"

#include "core/lru.h"

#define AUTO_LRU CLEANUP(lru_free_p)

struct seen {
	struct lru *l;
	char keys[400];
	const char *pin;
	bool remove;
};

static bool is_pinned(struct str key, void *arg)
{
	const struct seen *s = arg;

	return s->pin != NULL && str_eq(key, s->pin);
}

static void note(struct str key, uint64_t bytes UNUSED, void *arg)
{
	struct seen *s = arg;
	size_t at = strlen(s->keys);

	(void)snprintf(s->keys + at, sizeof(s->keys) - at, "%.*s ", STR_ARG(key));
	if (s->remove)
		lru_remove(s->l, key);
}

static void lru_oldest_first(void **state UNUSED)
{
	AUTO_LRU struct lru *l = lru_new(100);
	struct seen s = {.l = l};

	assert_int_equal(lru_victims(l, 1000, INT64_MAX, NULL, note, &s), 0);
	lru_add(l, STR_LIT("c"), 30, 3); /* as after a restart: in any order */
	lru_add(l, STR_LIT("a"), 30, 1);
	lru_add(l, STR_LIT("b"), 30, 2);
	lru_check(l);
	assert_int_equal(lru_bytes(l), 90);
	assert_int_equal(lru_victims(l, 10, INT64_MAX, NULL, note, &s), 0);
	assert_int_equal(lru_victims(l, 41, INT64_MAX, is_pinned, note, &s), 60);
	assert_string_equal(s.keys, "a b ");
	s = (struct seen){.l = l, .pin = "a"};
	assert_int_equal(lru_victims(l, 11, INT64_MAX, is_pinned, note, &s), 30);
	assert_string_equal(s.keys, "b ");
	s = (struct seen){.l = l, .pin = "a"};
	assert_int_equal(lru_victims(l, 100, 2, is_pinned, note, &s), 30);
	assert_string_equal(s.keys, "b ");
	s = (struct seen){.l = l, .remove = true};
	assert_int_equal(lru_victims(l, 100, INT64_MAX, NULL, note, &s), 90);
	assert_int_equal(lru_bytes(l), 0);
	lru_check(l);
}

/* What is used daily outlives a scan of things that are used once. */
static void lru_scan_passes_through(void **state UNUSED)
{
	AUTO_LRU struct lru *l = lru_new(100);
	struct seen s = {.l = l, .remove = true};

	lru_add(l, STR_LIT("daily"), 40, 1);
	lru_touch(l, STR_LIT("daily"), 2);
	lru_touch(l, STR_LIT("nobody"), 2);
	for (int i = 0; i < 20; i++) {
		char key[8];

		FMT(key, "s%d", i);
		(void)lru_victims(l, 20, INT64_MAX, NULL, note, &s);
		lru_add(l, str_of(key), 20, 10 + i);
		lru_check(l);
		assert_true(lru_bytes(l) <= 100);
	}
	assert_null(strstr(s.keys, "daily"));
}

/* The favoured may not take all: their oldest goes back, and then goes first. */
static void lru_favour_is_bounded(void **state UNUSED)
{
	AUTO_LRU struct lru *l = lru_new(100);
	struct seen s = {.l = l};

	lru_add(l, STR_LIT("a"), 45, 1);
	lru_add(l, STR_LIT("b"), 45, 2);
	lru_touch(l, STR_LIT("a"), 1); /* the same use, told twice */
	lru_touch(l, STR_LIT("a"), 3);
	lru_touch(l, STR_LIT("b"), 4);
	lru_check(l);
	assert_int_equal(lru_victims(l, 50, INT64_MAX, NULL, note, &s), 45);
	assert_string_equal(s.keys, "a ");
	lru_add(l, STR_LIT("b"), 5, 5); /* again: its size may have changed */
	assert_int_equal(lru_bytes(l), 50);
	lru_check(l);
}

static void lru_over_budget(void **state UNUSED)
{
	AUTO_LRU struct lru *l = lru_new(10);
	struct seen s = {.l = l};

	lru_add(l, STR_LIT("a"), 8, 1);
	lru_add(l, STR_LIT("b"), 8, 2);
	assert_int_equal(lru_victims(l, 1, INT64_MAX, NULL, note, &s), 8);
	assert_int_equal(lru_budget(l), 10);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(lru_oldest_first),
	cmocka_unit_test(lru_scan_passes_through),
	cmocka_unit_test(lru_favour_is_bounded),
	cmocka_unit_test(lru_over_budget),
};
UNIT_MAIN(tests)
