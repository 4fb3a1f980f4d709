/* test_tar_pack.c - packing, and trees there and back. */
#include "tar_place.h"

#include "base/hash.h"

/* ---- packing ---- */

static int packed_fd(const struct place *p)
{
	int fd = openat(p->dir, "in/..", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : memfd_create("packed", MFD_CLOEXEC);
}

static void write_in(const struct place *p, const char *path, const char *text)
{
	AUTO_FD int fd = openat(p->in, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct err err = {0};

	assert_true(fd >= 0);
	assert_ok(fs_write_all(fd, text, strlen(text), &err), &err);
}

static bool skip_logs(const char *path, bool is_dir, void *arg)
{
	(*(int *)arg)++;
	return is_dir ? strcmp(path, "venv") == 0 : str_ends(str_of(path), ".log");
}

static void tar_pack_skips(void **state)
{
	const struct place *p = *state;
	AUTO_FD int fd = packed_fd(p);
	struct tar_report report = {0}, back = {0};
	struct err err = {0};
	int asked = 0;
	struct stat st;

	assert_int_equal(mkdirat(p->in, "venv", 0755), 0);
	assert_int_equal(mkdirat(p->in, "sub", 0755), 0);
	write_in(p, "venv/big", "not entered");
	write_in(p, "sub/a.log", "not packed");
	write_in(p, "sub/a.txt", "packed");
	write_in(p, "b", "packed");
	assert_int_equal(mkfifoat(p->in, "pipe", 0600), 0);
	assert_ok(tar_pack(p->in, &(struct tar_pick){.skip = skip_logs, .arg = &asked}, fd, 0,
	                   &report, &err),
	          &err);
	assert_int_equal(report.entries, 3); /* sub, sub/a.txt, b */
	assert_int_equal(report.bytes, 12);
	assert_int_equal(report.skipped, 2);
	assert_int_equal(asked, 2 * 5);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_ok(tar_unpack(fd, p->out, NULL, &back, &err), &err);
	assert_int_equal(back.entries, 3);
	assert_text(p, "sub/a.txt", "packed");
	assert_int_equal(fstatat(p->out, "venv", &st, 0), -1);
	assert_int_equal(fstatat(p->out, "pipe", &st, 0), -1);
}

static void tar_pack_names_the_largest(void **state)
{
	const struct place *p = *state;
	AUTO_FD int fd = packed_fd(p);
	struct tar_report report = {.entries = 7, .bytes = 7};
	struct err err = {0};
	const char *at;

	for (int i = 1; i <= 8; i++) {
		char name[20];

		FMT(name, "file%d", i);
		write_in(p, name, "");
		{
			AUTO_FD int f = openat(p->in, name, O_WRONLY | O_CLOEXEC);

			assert_int_equal(ftruncate(f, (i % 4 + 1) * 1000 + i), 0);
		}
	}
	assert_err(tar_pack(p->in, NULL, fd, 20035, &report, &err), &err, ERR_TOO_BIG,
	           "largest files: file7 (");
	assert_int_equal(lseek(fd, 0, SEEK_END), 0); /* nothing was written */
	assert_int_equal(report.entries, 7);
	assert_ok(tar_pack(p->in, NULL, fd, 20036, &report, &err), &err);
	assert_true(tar_pack(p->in, NULL, fd, 5000, NULL, &err) < 0);
	at = strstr(err.msg, "file7");
	for (size_t i = 0; i < 4; i++) {
		static const char *const next[] = {"file3", "file6", "file2", "file5"};

		at = strstr(at, next[i]);
		assert_non_null(at);
	}
	assert_null(strstr(err.msg, "file1"));
}

static void tar_pack_is_sorted_and_repeatable(void **state)
{
	const struct place *p = *state;
	AUTO_FD int a = packed_fd(p), b = packed_fd(p);
	struct digest da, db;
	struct err err = {0};
	uint64_t na, nb;

	write_in(p, "b", "1");
	write_in(p, "a", "2");
	assert_int_equal(mkdirat(p->in, "A", 0755), 0);
	write_in(p, "A/z", "3");
	assert_ok(tar_pack(p->in, NULL, a, 0, NULL, &err), &err);
	assert_ok(tar_pack(p->in, NULL, b, 0, NULL, &err), &err);
	assert_int_equal(lseek(a, 0, SEEK_SET), 0);
	assert_int_equal(lseek(b, 0, SEEK_SET), 0);
	assert_ok(hash_fd(a, &da, &na, &err), &err);
	assert_ok(hash_fd(b, &db, &nb, &err), &err);
	assert_true(na > 0 && digest_same(&da, &db));
}

static void tar_pack_says_what_it_cannot_write(void **state)
{
	const struct place *p = *state;
	AUTO_FD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	AUTO_FD int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct err err = {0};

	write_in(p, "a", "text");
	assert_err(tar_pack(p->in, NULL, full, 0, NULL, &err), &err, ERR_NO_SPACE, "");
	assert_true(tar_pack(p->in, NULL, closed, 0, NULL, &err) < 0);
}

static void tar_pack_an_empty_folder(void **state)
{
	const struct place *p = *state;
	AUTO_FD int fd = packed_fd(p);
	struct tar_report report = {.entries = 7, .bytes = 7};
	struct err err = {0};

	assert_ok(tar_pack(p->in, NULL, fd, 0, &report, &err), &err);
	assert_int_equal(report.entries, 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_ok(tar_unpack(fd, p->out, NULL, &report, &err), &err);
	assert_int_equal(report.entries, 0);
}

/* ---- there and back ---- */

/* Names, kinds, modes, times of files, targets and content of a tree, as text. */
static void describe(const struct place *p, const char *which, struct buf *out)
{
	AUTO_FREE char *script =
		xasprintf("cd %s/%s && LC_ALL=C find . -mindepth 1 ! -type d -printf '%%P %%y %%m "
	                  "%%s %%T@ %%l\\0' "
	                  "| LC_ALL=C sort -z && find . -mindepth 1 -type d -printf '%%P %%m\\0' | "
	                  "LC_ALL=C sort -z"
	                  " && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum -z",
	                  p->path, which);
	const char *argv[] = {"sh", "-c", script, NULL};

	filter(argv, str_of(NULL), out);
}

static void round_trip(const struct place *p)
{
	AUTO_BUF struct buf before = BUF_INIT(TEXT_MAX), after = BUF_INIT(TEXT_MAX);
	AUTO_FD int fd = packed_fd(p);
	struct tar_report packed = {0}, back = {0};
	struct err err = {0};

	assert_ok(tar_pack(p->in, NULL, fd, 0, &packed, &err), &err);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_ok(tar_unpack(fd, p->out, NULL, &back, &err), &err);
	describe(p, "in", &before);
	describe(p, "out", &after);
	assert_true(before.n > 0 && str_same(buf_view(&before), buf_view(&after)));
	assert_int_equal(packed.entries, back.entries);
	assert_int_equal(packed.bytes, back.bytes);
}

static void tar_round_trip_of_odd_names(void **state)
{
	const struct place *p = *state;
	static const char *const names[] = {
		" ",
		"-rf",
		"a b",
		"new\nline",
		"tab\t",
		"quote'\"`$",
		"back\\slash",
		"star*?[x]",
		".hidden",
		"...",
		"..x",
		"trailing.",
		"n\xc3\xa4me",
		"ne\xcc\x81", /* decomposed */
		"\xe6\x97\xa5\xe6\x9c\xac",
		"\xf0\x9f\x98\x80",
		"latin\xe9",        /* no UTF-8 */
		"\xff\xfe\x01\x7f", /* nor this */
		"hdrcharset=BINARY",
		"@LongLink",
		"PaxHeaders",
	};
	char longest[256];

	for (size_t i = 0; i < COUNT(names); i++)
		write_in(p, names[i], names[i]);
	memset(longest, 'l', 255);
	longest[255] = '\0';
	write_in(p, longest, "long");
	memset(longest, '\xe9', 250);
	longest[250] = '\0';
	write_in(p, longest, "long and no UTF-8");
	round_trip(p);
}

static void tar_round_trip_of_deep_folders(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf path = BUF_INIT(4096);
	struct err err = {0};

	while (path.n + 110 < 3900) {
		buf_printf(&path, "%s%0100d", path.n > 0 ? "/" : "", (int)path.n);
		assert_ok(fs_mkdirs(p->in, buf_cstr(&path), 0755, &err), &err);
	}
	buf_puts(&path, "/file");
	write_in(p, buf_cstr(&path), "deep");
	round_trip(p);
}

static void tar_round_trip_of_modes_links_and_times(void **state)
{
	const struct place *p = *state;
	static const mode_t modes[] = {0644, 0600, 0755, 0777, 0444, 0400, 0666, 0711};
	struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 981173106, .tv_nsec = 123456789}};

	for (size_t i = 0; i < COUNT(modes); i++) {
		char name[20];

		FMT(name, "f%03o", (unsigned)modes[i]);
		write_in(p, name, name);
		assert_int_equal(utimensat(p->in, name, times, 0), 0);
		assert_int_equal(fchmodat(p->in, name, modes[i], 0), 0);
		times[1].tv_sec += 1000000000; /* past 2038, past ustar's field in the end */
	}
	assert_int_equal(mkdirat(p->in, "empty", 0700), 0);
	assert_int_equal(mkdirat(p->in, "empty/inner", 0755), 0);
	assert_int_equal(symlinkat("f644", p->in, "l"), 0);
	assert_int_equal(symlinkat("../f600", p->in, "empty/l"), 0);
	assert_int_equal(symlinkat("no/such n\xc3\xa4me", p->in, "dangling"), 0);
	assert_int_equal(symlinkat("latin\xe9", p->in, "raw"), 0);
	times[1] = (struct timespec){.tv_sec = 1, .tv_nsec = 1};
	assert_int_equal(utimensat(p->in, "l", times, AT_SYMLINK_NOFOLLOW), 0);
	write_in(p, "nothing", "");
	round_trip(p);
}

static void note_link(const char *path, const char *target, void *arg)
{
	struct buf *out = arg;

	buf_printf(out, "%s>%s ", path, target);
}

/* What the other side would refuse is left out, and told. */
static void tar_pack_leaves_out_links_that_lead_out(void **state)
{
	const struct place *p = *state;
	AUTO_FD int fd = packed_fd(p);
	AUTO_BUF struct buf told = BUF_INIT(1000);
	struct tar_pick pick = {.link = note_link, .arg = &told};
	struct tar_report report = {0}, back = {0};
	struct err err = {0};
	struct stat st;

	assert_int_equal(mkdirat(p->in, "sub", 0755), 0);
	write_in(p, "file", "x");
	assert_int_equal(symlinkat("../sub", p->in, "sub/fine"), 0);
	assert_int_equal(symlinkat("nowhere", p->in, "sub/dangling"), 0);
	assert_int_equal(symlinkat("../../up", p->in, "sub/up"), 0);
	assert_int_equal(symlinkat("/etc/passwd", p->in, "abs"), 0);
	assert_ok(tar_pack(p->in, &pick, fd, 0, &report, &err), &err);
	assert_string_equal(buf_cstr(&told), "abs>/etc/passwd sub/up>../../up ");
	assert_int_equal(report.links, 2);
	assert_int_equal(report.entries, 4);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_ok(tar_unpack(fd, p->out, NULL, &back, &err), &err);
	assert_int_equal(back.entries, 4);
	assert_int_equal(fstatat(p->out, "sub/dangling", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(fstatat(p->out, "abs", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(fstatat(p->out, "sub/up", &st, AT_SYMLINK_NOFOLLOW), -1);
}

static void tar_look_tells_how_much(void **state)
{
	const struct place *p = *state;
	struct tar_report report = {0};
	AUTO_FREE struct tar_large *large = xcalloc(TAR_LARGEST, sizeof(*large));
	struct err err = {0};

	assert_int_equal(mkdirat(p->in, "sub", 0755), 0);
	write_in(p, "sub/five", "12345");
	write_in(p, "one", "1");
	write_in(p, "empty", "");
	assert_ok(tar_look(p->in, NULL, 0, &report, large, &err), &err);
	assert_int_equal(report.entries, 4);
	assert_int_equal(report.bytes, 6);
	assert_string_equal(large[0].path, "sub/five");
	assert_int_equal(large[0].bytes, 5);
	assert_string_equal(large[1].path, "one");
	assert_string_equal(large[2].path, "");
	assert_err(tar_look(p->in, NULL, 5, &report, NULL, &err), &err, ERR_TOO_BIG, "");
}

/* What a file may not keep is counted where it is unpacked. */
static void tar_pack_lowered_modes_are_counted(void **state)
{
	const struct place *p = *state;
	AUTO_FD int fd = packed_fd(p);
	struct tar_report back = {0};
	struct err err = {0};
	static const mode_t modes[] = {04755, 02755, 01644, 0755};
	char name[8];

	for (size_t i = 0; i < COUNT(modes); i++) {
		FMT(name, "f%zu", i);
		write_in(p, name, "x");
		assert_int_equal(fchmodat(p->in, name, modes[i], 0), 0);
	}
	assert_int_equal(mkdirat(p->in, "d", 0755), 0);
	assert_int_equal(fchmodat(p->in, "d", 02755, 0), 0);
	assert_ok(tar_pack(p->in, NULL, fd, 0, NULL, &err), &err);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_ok(tar_unpack(fd, p->out, NULL, &back, &err), &err);
	assert_int_equal(back.lowered, 3);
	for (size_t i = 0; i < COUNT(modes); i++) {
		struct stat st;

		FMT(name, "f%zu", i);
		assert_int_equal(fstatat(p->out, name, &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, modes[i] & 0777);
	}
}

static void punch(const struct place *p, const char *name, off_t size, const off_t *data, size_t n)
{
	AUTO_FD int fd = openat(p->in, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pwrite(fd, "data", 4, data[i]), 4);
	assert_int_equal(ftruncate(fd, size), 0);
}

static void tar_round_trip_of_sparse_files(void **state)
{
	const struct place *p = *state;
	static const off_t at[] = {0, 5000000, 29999990};
	struct stat st;

	punch(p, "all_hole", 80 << 20, at, 0); /* would be a bomb, were it dense */
	punch(p, "start", 30000000, at, 1);
	punch(p, "middle", 30000000, at + 1, 1);
	punch(p, "end", 29999994, at + 2, 1);
	punch(p, "three", 30000000, at, 3);
	punch(p, "tiny_hole", 1, at, 0);
	write_in(p, "dense", "no hole here");
	round_trip(p);
	st = stat_of(p, "all_hole");
	assert_int_equal(st.st_size, 80 << 20);
	assert_true(st.st_blocks * 512 < (1 << 20));
	st = stat_of(p, "three");
	assert_true(st.st_blocks * 512 < (10 << 20));
}

static const struct CMUnitTest tests[] = {
	TEST(tar_pack_skips),
	TEST(tar_pack_names_the_largest),
	TEST(tar_pack_is_sorted_and_repeatable),
	TEST(tar_pack_says_what_it_cannot_write),
	TEST(tar_pack_an_empty_folder),
	TEST(tar_pack_leaves_out_links_that_lead_out),
	TEST(tar_look_tells_how_much),
	TEST(tar_pack_lowered_modes_are_counted),
	TEST(tar_round_trip_of_odd_names),
	TEST(tar_round_trip_of_deep_folders),
	TEST(tar_round_trip_of_modes_links_and_times),
	TEST(tar_round_trip_of_sparse_files),
};
UNIT_MAIN(tests)
