/* test_seal.c - the master key's file, sealed values, tokens. */
#include "base/seal.h"
#include "base/fs.h"

#include "unit.h"

/* Is the page that p lies on left out of core dumps? As the kernel says: flag "dd". */
static bool is_undumped(const void *p)
{
	AUTO_BUF struct buf maps = BUF_INIT((size_t)16 << 20);
	struct err err = {0};
	struct str rest, line;
	bool in = false;

	assert_ok(fs_read(AT_FDCWD, "/proc/self/smaps", &maps, &err), &err);
	rest = buf_view(&maps);
	while (str_cut(&rest, '\n', &line)) {
		AUTO_FREE char *text = xasprintf("%.*s", STR_ARG(line));
		uintptr_t from = 0, to = 0;

		if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			in = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (in && str_starts(line, "VmFlags:"))
			return strstr(text, " dd") != NULL;
	}
	return false;
}

static void test_key_file(void **state)
{
	char dir[] = "/tmp/test-seal-XXXXXX", path[64];
	struct seal_key one, two;
	struct err err = {0};
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	FMT(path, "%s/master.key", dir);
	assert_err(seal_load_key(path, false, &one, &err), &err, ERR_NOT_FOUND, path);
	assert_ok(seal_load_key(path, true, &one, &err), &err);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_ok(seal_load_key(path, true, &two, &err), &err);
	assert_memory_equal(&one, &two, sizeof(one));
	assert_true(is_undumped(&one) && is_undumped(&two));
	assert_int_equal(chmod(path, 0640), 0);
	assert_err(seal_load_key(path, true, &two, &err), &err, ERR_DENIED, "chmod 600");
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 20), 0);
	assert_err(seal_load_key(path, true, &two, &err), &err, ERR_CORRUPT, "backup");
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

static void test_seal(void **state)
{
	struct seal_key key = {{1}}, other = {{2}};
	AUTO_BUF struct buf sealed = BUF_INIT(1000), out = BUF_INIT(1000);
	struct err err = {0};

	(void)state;
	seal_close(&key, STR_LIT("team/name/1"), STR_LIT("hf_secret"), &sealed);
	assert_null(memmem(sealed.p, sealed.n, "hf_secret", 9));
	assert_err(seal_open(&other, STR_LIT("team/name/1"), buf_view(&sealed), &out, &err), &err,
	           ERR_CORRUPT, "team/name/1");
	assert_err(seal_open(&key, STR_LIT("team/name/2"), buf_view(&sealed), &out, &err), &err,
	           ERR_CORRUPT, "");
	assert_err(seal_open(&key, STR_LIT("team/name/1"), STR_LIT(""), &out, &err), &err,
	           ERR_CORRUPT, "");
	for (size_t i = 0; i < sealed.n; i++) { /* any bit changed, any byte missing */
		sealed.p[i] ^= 4;
		assert_err(seal_open(&key, STR_LIT("team/name/1"), buf_view(&sealed), &out, &err),
		           &err, ERR_CORRUPT, "");
		sealed.p[i] ^= 4;
		assert_err(seal_open(&key, STR_LIT("team/name/1"), str_n(sealed.p, i), &out, &err),
		           &err, ERR_CORRUPT, "");
	}
	assert_int_equal(out.n, 0);
	assert_ok(seal_open(&key, STR_LIT("team/name/1"), buf_view(&sealed), &out, &err), &err);
	assert_string_equal(buf_cstr(&out), "hf_secret");
	buf_clear(&sealed);
	buf_clear(&out);
	seal_close(&key, STR_LIT("x"), STR_LIT(""), &sealed);
	assert_ok(seal_open(&key, STR_LIT("x"), buf_view(&sealed), &out, &err), &err);
	assert_int_equal(out.n, 0);
	{
		AUTO_BUF struct buf small = BUF_INIT(3);

		buf_clear(&sealed);
		seal_close(&key, STR_LIT("x"), STR_LIT("12345"), &sealed);
		assert_err(seal_open(&key, STR_LIT("x"), buf_view(&sealed), &small, &err), &err,
		           ERR_TOO_BIG, "");
	}
}

static void test_random(void **state)
{
	AUTO_BUF struct buf a = BUF_INIT(100), b = BUF_INIT(100);
	char id[8];

	(void)state;
	seal_token("stoker", &a);
	seal_token("stoker", &b);
	assert_int_equal(a.n, 7 + 43);
	assert_true(str_starts(buf_view(&a), "stoker_"));
	assert_false(str_same(buf_view(&a), buf_view(&b)));
	seal_id(id, 7);
	assert_int_equal(strlen(id), 7);
	assert_int_equal(strspn(id, "abcdefghijkmnpqrstuvwxyz23456789"), 7);
	assert_true(seal_same("abc", "abc", 3));
	assert_false(seal_same("abc", "abd", 3));
	seal_wipe_buf(&a);
	assert_null(a.p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_key_file),
	cmocka_unit_test(test_seal),
	cmocka_unit_test(test_random),
};

UNIT_MAIN(tests)
