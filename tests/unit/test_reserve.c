/* test_reserve.c - pieces are given in order, some are left, and it is made whole again. */
#include "unit.h"

#include "base/fs.h"
#include "base/reserve.h"

#include <sys/stat.h>

static uint64_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= (uint64_t)st.st_size);
	return (uint64_t)st.st_size;
}

static void none(void **state)
{
	(void)state;
	assert_false(reserve_take(RESERVE_ROWS));
	assert_true(reserve_whole()); /* nothing is missing of nothing */
	reserve_close();
}

static void pieces(void **state)
{
	char dir[] = "/tmp/reserve-XXXXXX", path[64];
	struct err err = {0};
	unsigned n = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	FMT(path, "%s/none/reserve", dir);
	assert_err(reserve_open(path, &err), &err, ERR_NOT_FOUND, "none/reserve");
	FMT(path, "%s/reserve", dir);
	assert_ok(reserve_open(path, &err), &err);
	assert_int_equal(size_of(path), RESERVE_BYTES);
	while (reserve_take(RESERVE_WORDS))
		n++;
	assert_int_equal(n, (RESERVE_BYTES - RESERVE_WORDS) / RESERVE_PIECE);
	assert_int_equal(size_of(path), RESERVE_WORDS); /* the rest is for rows */
	while (reserve_take(RESERVE_ROWS))
		n++;
	assert_int_equal(n, RESERVE_BYTES / RESERVE_PIECE);
	assert_int_equal(size_of(path), 0);
	assert_true(reserve_whole());
	assert_int_equal(size_of(path), RESERVE_BYTES);
	/* what is left is found again, holes are not taken for it, and both are filled */
	reserve_close();
	assert_int_equal(truncate(path, (off_t)RESERVE_PIECE), 0);
	assert_ok(reserve_open(path, &err), &err);
	assert_int_equal(size_of(path), RESERVE_BYTES);
	reserve_close();
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(truncate(path, (off_t)RESERVE_BYTES), 0);
	assert_ok(reserve_open(path, &err), &err);
	assert_int_equal(size_of(path), RESERVE_BYTES);
	reserve_close();
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(none),
		cmocka_unit_test(pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
