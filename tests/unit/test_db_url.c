/* test_db_url.c - URLs of a PostgreSQL: what is refused says nothing of its password. */
#include "meta/db_url.h"
#include "unit.h"

static void db_url_refused(void **state UNUSED)
{
	static const char *const urls[] = {
		"postgresql://u:SECR%ET@h/d",   "postgresql://u:SECRET%@h/d",
		"postgresql://u:SECR%00@h/d",   "postgresql://u:SECR/ET@h/d",
		"postgresql://u:123/SECRET@h",  "postgresql://u:SECR@ET@h/d",
		"postgresql://u:SECRET@[::1/d", "postgresql://u:SECRET@[::1]x/d",
		"postgresql://u@h:SECRET/d",    "postgresql://u@h,h:SECRET/d",
		"postgresql://u@h/d?x=SECR%ET", "postgresql://u@h/d?passwordSECRET",
		"postgres://u:SECR/ET@h/d",
	};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct err err = {0};

		if (db_url_check(urls[i], &err) == 0)
			fail_msg("%s", urls[i]);
		assert_int_equal(err.id, ERR_INVALID);
		assert_null(strstr(err.msg, "SECR"));
	}
}

static void db_url_taken(void **state UNUSED)
{
	static const struct {
		const char *url, *place;
		bool password;
	} rows[] = {
		{"postgresql://", "postgresql://", false},
		{"postgresql://?service=mine", "postgresql://", false},
		{"postgresql:///d?host=/run/postgresql", "postgresql:///d", false},
		{"postgresql://%2Frun%2Fpostgresql:5433/d",
	         "postgresql://%2Frun%2Fpostgresql:5433/d", false},
		{"postgresql://u@h:5432/d?sslmode=verify-full&target_session_attrs=any",
	         "postgresql://h:5432/d", false},
		{"postgresql://u@[::1]:5432,[fe80::1%25eth0],h:/d",
	         "postgresql://[::1]:5432,[fe80::1%25eth0],h:/d", false},
		{"postgresql://h:5432/?user=a@b", "postgresql://h:5432", false},
		{"postgres://u:p%25%2F@h/d", "postgres://h/d", true},
		{"postgresql://u:a?b#c:d@h/d", "postgresql://h/d", true},
		{"postgresql://u@h/d?password=x", "postgresql://h/d", true},
		{"postgresql://u@h/d?sslpassword=x", "postgresql://h/d", true},
		{"sqlite:/a/b%.db", "sqlite:/a/b%.db", false},
		{"sqlite:/a://u:p@h/b?password=", "sqlite:/a://u:p@h/b?password=", false},
	};
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct err err = {0};

		if (db_url_check(rows[i].url, &err) < 0)
			fail_msg("%s: %s", rows[i].url, err.msg);
		assert_string_equal(db_url_place(a, rows[i].url), rows[i].place);
		if (db_url_has_password(rows[i].url) != rows[i].password)
			fail_msg("%s", rows[i].url);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(db_url_refused),
	cmocka_unit_test(db_url_taken),
};
UNIT_MAIN(tests)
