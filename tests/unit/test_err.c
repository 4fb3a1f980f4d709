/* test_err.c - errors: first cause, wrapping, classes of errno and HTTP. */
#include "base/err.h"

#include "unit.h"

static void test_set_and_wrap(void **state)
{
	struct err err = {0};

	(void)state;
	assert_int_equal(err_set(&err, ERR_NOT_FOUND, "no job %d", 7), -1);
	assert_int_equal(err_wrap(&err, "stop %s", "it"), -1);
	assert_string_equal(err.msg, "stop it: no job 7");
	assert_int_equal(err.code, ERR_NOT_FOUND);
	assert_int_equal(err_info(&err)->http, 404);
	err.retry_after_s = 3;
	err_clear(&err);
	assert_int_equal(err.code, ERR_NONE);
	assert_int_equal(err.retry_after_s, 0);
	assert_int_equal(err_info(&err)->http, 200);
}

static void test_ids(void **state)
{
	struct err err = {0};
	struct err_row row;
	size_t n = 0;

	(void)state;
	(void)err_set(&err, ERR_CACHE_QUOTA_EXCEEDED, "full");
	assert_int_equal(err.code, ERR_QUOTA); /* the class decides, the id names */
	assert_string_equal(err_id(&err), "cache_quota_exceeded");
	(void)err_wrap(&err, "push");
	assert_string_equal(err_id(&err), "cache_quota_exceeded");
	err_clear(&err);
	(void)err_set(&err, ERR_NOT_FOUND, "nothing");
	assert_string_equal(err_id(&err), "not_found");
	err_id_from(&err, "cache_quota_exceeded"); /* of another class */
	err_id_from(&err, "an_id_of_next_year");
	assert_string_equal(err_id(&err), "not_found");
	err_id_from(&err, "job_not_found");
	assert_string_equal(err_id(&err), "job_not_found");
	err.code = ERR_UNAVAILABLE; /* as a caller does who knows better */
	assert_string_equal(err_id(&err), "unavailable");
	err_clear(&err);
	assert_int_equal(err_missing(&err, ERR_SECRET_NOT_FOUND), -1);
	assert_string_equal(err.msg, "no such secret");
	err_clear(&err);
	assert_int_equal(err_missing(&err, ERR_NOT_FOUND), -1);
	assert_string_equal(err.msg, "not found");
	for (; err_row(n, &row); n++) { /* names that scripts can lean on */
		assert_true(row.id[0] != '\0' &&
		            strspn(row.id, "abcdefghijklmnopqrstuvwxyz_0123456789") ==
		                    strlen(row.id));
		for (size_t i = 0; i < n; i++) {
			struct err_row other;

			assert_true(err_row(i, &other));
			assert_string_not_equal(row.id, other.id);
		}
		err_clear(&err);
		(void)err_set(&err, err_of_id(row.id), "from its word");
		assert_string_equal(err_id(&err), row.id);
		assert_ptr_equal(err_info(&err), row.info);
	}
	assert_int_equal(err_of_id("an_id_of_next_year"), ERR_NONE);
	assert_true(n > ERR_COUNT);
}

static void test_long_texts_are_cut(void **state)
{
	struct err err = {0};
	char text[3 * ERR_MSG_MAX];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&err, ERR_IO, "%s", text);
	assert_int_equal(strlen(err.msg), ERR_MSG_MAX - 1);
	(void)err_wrap(&err, "front");
	assert_int_equal(strncmp(err.msg, "front: xxx", 10), 0);
	assert_int_equal(strlen(err.msg), ERR_MSG_MAX - 1);
	(void)err_wrap(&err, "%s", text);
	assert_int_equal(strlen(err.msg), ERR_MSG_MAX - 1);
	err_clear(&err);
	(void)err_errno(&err, ENOENT, "%s", text);
	assert_int_equal(strlen(err.msg), ERR_MSG_MAX - 1);
}

static void test_classes(void **state)
{
	static const struct {
		int errnum;
		enum err_code code;
	} nums[] = {{ENOENT, ERR_NOT_FOUND}, {EACCES, ERR_DENIED},   {ENOSPC, ERR_NO_SPACE},
	            {EEXIST, ERR_CONFLICT},  {EDQUOT, ERR_NO_SPACE}, {EIO, ERR_IO}};
	static const struct {
		int status;
		enum err_code code;
	} statuses[] = {{400, ERR_INVALID},     {401, ERR_AUTH},        {404, ERR_NOT_FOUND},
	                {410, ERR_NOT_FOUND},   {412, ERR_CONFLICT},    {418, ERR_INVALID},
	                {429, ERR_BUSY},        {500, ERR_UNAVAILABLE}, {502, ERR_UNAVAILABLE},
	                {503, ERR_UNAVAILABLE}, {504, ERR_TIMEOUT},     {599, ERR_UNAVAILABLE}};

	(void)state;
	for (size_t i = 0; i < COUNT(nums); i++) {
		struct err err = {0};

		(void)err_errno(&err, nums[i].errnum, "file x");
		assert_int_equal(err.code, nums[i].code);
		assert_non_null(strstr(err.msg, "file x: "));
	}
	for (size_t i = 0; i < COUNT(statuses); i++)
		assert_int_equal(err_from_http(statuses[i].status), statuses[i].code);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_set_and_wrap),
	cmocka_unit_test(test_ids),
	cmocka_unit_test(test_long_texts_are_cut),
	cmocka_unit_test(test_classes),
};

UNIT_MAIN(tests)
