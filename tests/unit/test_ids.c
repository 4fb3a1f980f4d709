/* test_ids.c - the pool of ids for jobs: which ranges it may have, and who gets which. */
#include "run/ids.h"

#include "base/fs.h"
#include "unit.h"

static const struct ids_texts nobody = {.uid_map = {"0 0 4294967295\n", 15}};

static void the_default_pool(void **state UNUSED)
{
	struct ids_texts small = {.uid_map = STR_LIT("         0     100000      65536\n")};
	struct ids_pool p;
	struct err err = {0};

	assert_ok(ids_pool_check(NULL, &nobody, &p, &err), &err);
	assert_int_equal(p.first, IDS_FIRST);
	assert_int_equal(p.last, IDS_LAST);
	assert_int_equal(p.span, IDS_SPAN);
	assert_ok(ids_pool_check("", &small, &p, &err), &err);
	assert_true(p.last < 65536 && p.span == 1); /* a container has no more */
}

static void a_pool_that_is_named(void **state UNUSED)
{
	static const char *const bad[] = {"1", "5-4",   "0-100", "a-b",
	                                  "-", "10-11", "1-2-3", "5-4294967295"};
	struct ids_pool p;
	struct err err = {0};

	assert_ok(ids_pool_check("3000000-3999999", &nobody, &p, &err), &err);
	assert_true(p.first == 3000000 && p.last == 3999999 && p.span == IDS_SPAN);
	assert_ok(ids_pool_check("61000-61050", &nobody, &p, &err), &err);
	assert_int_equal(p.span, 1);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_err(ids_pool_check(bad[i], &nobody, &p, &err), &err, ERR_INVALID, "");
}

static void ids_of_somebody(void **state UNUSED)
{
	const struct {
		struct ids_texts t;
	} taken[] = {
		{{.passwd = STR_LIT("root:x:0:0::/root:/bin/sh\nann:x:3000500:100::/h:/bin/sh\n")}},
		{{.group = STR_LIT("users:x:100:\nsome:x:3999999:ann\n")}},
		{{.subuid = STR_LIT("ann:100000:65536\nbob:2999990:11\n")}},
		{{.subgid = STR_LIT("ann:0:4294967295\n")}},
	};
	struct ids_texts beside = {.passwd = STR_LIT("ann:x:2999999:1::/:\nbob:x:4000000:1::/:\n"),
	                           .subuid = STR_LIT("ann:2999990:10\n# a note\nbob:3000000:0\n"),
	                           .uid_map = nobody.uid_map};
	struct ids_texts only_root = {.uid_map = STR_LIT("0 0 1\n")};
	struct ids_texts container = {.uid_map = STR_LIT("0 100000 65536\n")};
	struct ids_pool p;
	struct err err = {0};

	for (size_t i = 0; i < COUNT(taken); i++) {
		struct ids_texts t = taken[i].t;

		t.uid_map = nobody.uid_map;
		assert_err(ids_pool_check("3000000-3999999", &t, &p, &err), &err, ERR_JOB_IDS_TAKEN,
		           "");
	}
	assert_ok(ids_pool_check("3000000-3999999", &beside, &p, &err), &err);
	assert_err(ids_pool_check("3000000-3999999", &container, &p, &err), &err, ERR_JOB_IDS_TAKEN,
	           "");
	assert_ok(ids_pool_check("", &container, &p, &err), &err);
	assert_int_equal(p.span, 1);
	assert_ok(ids_pool_check("", &only_root, &p, &err), &err);
	assert_int_equal(p.span, 0);
}

/* One range each; what was given back may be had again; a pool has an end. */
static void who_gets_which(void **state UNUSED)
{
	struct ids_pool pool = {.first = 60578, .last = 60578 + 4, .span = 1};
	char dir[3][40] = {"/tmp/test_ids.XXXXXX", "/tmp/test_ids.XXXXXX", "/tmp/test_ids.XXXXXX"};
	struct ids got[3];
	struct err err = {0};

	if (geteuid() != 0)
		return;
	for (size_t i = 0; i < COUNT(dir); i++)
		assert_non_null(mkdtemp(dir[i]));
	pool.first = 3000000000U; /* nobody runs with these */
	pool.last = pool.first + 3;
	assert_ok(ids_take(&got[0], &pool, true, dir[0], NULL, &err), &err);
	assert_ok(ids_take(&got[1], &pool, true, dir[1], NULL, &err), &err);
	assert_true(got[0].job != got[1].job && got[0].disk == got[1].disk);
	assert_true(got[0].job > got[0].nobody && got[0].nobody > got[0].disk);
	assert_err(ids_take(&got[2], &pool, true, dir[2], NULL, &err), &err, ERR_JOB_IDS_TAKEN, "");
	ids_release(dir[0]);
	assert_ok(ids_take(&got[2], &pool, true, dir[2], NULL, &err), &err);
	assert_int_equal(got[2].job, got[0].job);
	ids_release(dir[0]); /* it has none any more: this is another's */
	assert_err(ids_take(&got[0], &pool, true, dir[0], NULL, &err), &err, ERR_JOB_IDS_TAKEN, "");
	assert_ok(fs_remove_tree(AT_FDCWD, dir[1], &err), &err); /* its attempt is gone */
	assert_ok(ids_take(&got[0], &pool, true, dir[0], NULL, &err), &err);
	assert_int_equal(got[0].job, got[1].job);
	ids_release(dir[0]);
	ids_release(dir[2]);
	for (size_t i = 0; i < COUNT(dir); i += 2)
		assert_ok(fs_remove_tree(AT_FDCWD, dir[i], &err), &err);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_default_pool),
	cmocka_unit_test(a_pool_that_is_named),
	cmocka_unit_test(ids_of_somebody),
	cmocka_unit_test(who_gets_which),
};
UNIT_MAIN(tests)
