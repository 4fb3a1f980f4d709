/* test_mountinfo.c - the kernel's list of mounts, and the other names of a file. */
#include "run/mountinfo.h"

#include "unit.h"

#define TAIL " rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

static void reads_lines(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = STR_LIT("22 1 254:0 / /" TAIL "short line\n"
	                          "30 22 0:26 /a\\040b /mnt/with\\040space\\134and" TAIL
	                          "31 22 0:27 / /no/newline rw - tmpfs x rw");
	struct mountinfo m;

	assert_true(mountinfo_next(a, &text, &m));
	assert_true(str_eq(m.device, "254:0"));
	assert_string_equal(m.at, "/");
	assert_true(mountinfo_next(a, &text, &m));
	assert_string_equal(m.root, "/a b");
	assert_string_equal(m.at, "/mnt/with space\\and");
	assert_true(mountinfo_next(a, &text, &m));
	assert_string_equal(m.at, "/no/newline");
	assert_false(mountinfo_next(a, &text, &m));
}

static void names_of_a_file(void **state UNUSED)
{
	static const char mounts[] = "1 0 8:1 / /" TAIL               /* the root */
				     "2 1 8:1 / /mnt/root" TAIL       /* all of it again */
				     "3 1 8:1 /srv /export" TAIL      /* a folder above */
				     "4 1 8:1 /srv/data/runs /r" TAIL /* a part of it */
				     "5 1 8:1 /srv/database /db" TAIL /* a name that begins alike */
				     "6 1 8:2 / /big" TAIL            /* another file system */
				     "7 1 8:2 /data /big2" TAIL "8 1 8:3 / /old" TAIL
				     "9 1 8:1 /opt /old" TAIL; /* on top */
	static const struct {
		const char *path, *names;
	} rows[] = {
		{"/srv/data", "/mnt/root/srv/data /export/data /r"},
		{"/srv/data/runs", "/mnt/root/srv/data/runs /export/data/runs /r"},
		{"/srv/data/key", "/mnt/root/srv/data/key /export/data/key"},
		{"/export/data/key", "/srv/data/key /mnt/root/srv/data/key"},
		{"/big/data/x", "/big2/x"},
		{"/big2", "/big/data"},
		{"/old/f", "/opt/f /mnt/root/opt/f"},
		{"/etc", "/mnt/root/etc"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_BUF struct buf got = BUF_INIT(10000);
		const char *name[MOUNTINFO_NAMES_MAX];
		size_t n = mountinfo_names(a, str_of(mounts), rows[i].path, name);

		for (size_t k = 0; k < n; k++)
			buf_printf(&got, "%s%s", k > 0 ? " " : "", name[k]);
		assert_string_equal(buf_cstr(&got), rows[i].names);
	}
}

static void no_more_than_there_is_room_for(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf text = BUF_INIT(100000);
	const char *name[MOUNTINFO_NAMES_MAX];

	buf_puts(&text, "1 0 8:1 / /" TAIL);
	for (unsigned i = 0; i < 2 * MOUNTINFO_NAMES_MAX; i++)
		buf_printf(&text, "%u 1 8:1 / /m%u" TAIL, i + 2, i);
	assert_int_equal(mountinfo_names(a, buf_view(&text), "/data", name), MOUNTINFO_NAMES_MAX);
	assert_int_equal(mountinfo_names(a, (struct str){0}, "/data", name), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_lines),
	cmocka_unit_test(names_of_a_file),
	cmocka_unit_test(no_more_than_there_is_room_for),
};
UNIT_MAIN(tests)
