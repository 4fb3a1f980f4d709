/* test_tar.c - what is unpacked, and archives that want out or want to be huge. */
#include "tar_place.h"

/* ---- refusals ---- */

struct entry {
	char type; /* '0' file, '1' hard link, '2' symbolic link, '5' folder, others as in ustar */
	const char *name, *link;
};

static const struct {
	const char *name;
	struct entry e[5];
	const char *entry, *why;
} hostile[] = {
	{"absolute", {{'0', "/tmp/x", ""}}, "/tmp/x", "an absolute path"},
	{"absolute folder", {{'5', "/", ""}}, "/", "an absolute path"},
	{"..", {{'0', "../x", ""}}, "../x", "\"..\" in the path"},
	{".. only", {{'5', "..", ""}}, "..", "\"..\" in the path"},
	{".. inside", {{'0', "a/../../x", ""}}, "a/../../x", "\"..\" in the path"},
	{".. that stays inside", {{'0', "a/b/../x", ""}}, "a/b/../x", "\"..\" in the path"},
	{".. at the end", {{'5', "a/..", ""}}, "a/..", "\"..\" in the path"},
	{"dots and slashes", {{'0', ".//./../x", ""}}, ".//./../x", "\"..\" in the path"},
	{"empty name", {{'0', "./.", ""}}, "./.", "an empty name"},
	{"empty link", {{'2', ".", "x"}}, ".", "an empty name"},
	{"character device", {{'3', "null", ""}}, "null", "a device, fifo or socket"},
	{"block device", {{'4', "sda", ""}}, "sda", "a device, fifo or socket"},
	{"fifo", {{'6', "pipe", ""}}, "pipe", "a device, fifo or socket"},
	{"link to an absolute path", {{'2', "l", "/etc/passwd"}}, "l", "an absolute path"},
	{"link out", {{'2', "l", "../secret"}}, "l", "leads out of the folder"},
	{"link out of a folder", {{'2', "a/l", "../../secret"}}, "a/l", "leads out of the folder"},
	{"link out, with dots",
         {{'2', "a/l", ".././/../secret"}},
         "a/l",
         "leads out of the folder"},
	{"link to the folder above", {{'2', "l", ".."}}, "l", "leads out of the folder"},
	{"link down, then up", {{'2', "l", "a/../../secret"}}, "l", "\"..\" after a name"},
	{"link up by way of another link",
         {{'5', "a/b", ""}, {'2', "up", "a/b"}, {'2', "l", "up/../../../secret"}},
         "l",
         "\"..\" after a name"},
	{"link to nothing", {{'2', "l", ""}}, "l", "an unusable target"},
	{"file through a link",
         {{'2', "l", "."}, {'0', "l/x", ""}},
         "l/x",
         "goes through a symbolic link"},
	{"file through a link to a folder",
         {{'5', "a", ""}, {'2', "l", "a"}, {'0', "l/b/x", ""}},
         "l/b/x",
         "goes through a symbolic link"},
	{"folder through a link",
         {{'5', "a", ""}, {'2', "l", "a"}, {'5', "l/b", ""}},
         "l/b",
         "goes through a symbolic link"},
	{"link through a link",
         {{'5', "a", ""}, {'2', "l", "a"}, {'2', "l/m", "x"}},
         "l/m",
         "goes through a symbolic link"},
	{"a folder that became a link",
         {{'5', "a", ""}, {'2', "a", "."}, {'0', "a/x", ""}},
         "a/x",
         "goes through a symbolic link"},
	{"a kept folder that became a link",
         {{'0', "a/b/x", ""}, {'5', "a/c", ""}, {'2', "a/c", "b"}, {'0', "a/c/y", ""}},
         "a/c/y",
         "goes through a symbolic link"},
	{"file below a file", {{'0', "a", ""}, {'0', "a/x", ""}}, "a/x", "not a folder"},
	{"file over a full folder", {{'0', "a/x", ""}, {'0', "a", ""}}, "a", "not empty"},
	{"link over a full folder", {{'0', "a/x", ""}, {'2', "a", "b"}}, "a", "not empty"},
	{"hard link to nothing", {{'1', "h", "gone"}}, "h", "not an earlier file"},
	{"hard link to a later file",
         {{'1', "h", "x"}, {'0', "x", ""}},
         "h",
         "not an earlier file"},
	{"hard link to itself", {{'1', "h", "h"}}, "h", "not an earlier file"},
	{"hard link out", {{'1', "h", "../secret"}}, "h", "a hard link to ../secret: \"..\""},
	{"hard link to an absolute path",
         {{'1', "h", "/etc/passwd"}},
         "h",
         "a hard link to /etc/passwd: an absolute path"},
	{"hard link to a folder", {{'5', "a", ""}, {'1', "h", "a"}}, "h", "not an earlier file"},
	{"hard link to the root", {{'1', "h", "."}}, "h", "not an earlier file"},
	/* a link's target was judged from where the link stands */
	{"hard link to a link",
         {{'2', "a/l", "../x"}, {'1', "h", "a/l"}},
         "h",
         "not an earlier file"},
	{"hard link through a link",
         {{'0', "a/x", ""}, {'2', "l", "a"}, {'1', "h", "l/x"}},
         "h",
         "goes through a symbolic link"},
	{"hard link in a link's place",
         {{'0', "x", ""}, {'2', "l", "."}, {'1', "l/h", "x"}},
         "l/h",
         "goes through a symbolic link"},
	{"hard link to what was there before", {{'1', "h", "before"}}, "h", "not an earlier file"},
};

static void tar_refuses(void **state)
{
	const struct place *p = *state;

	for (size_t i = 0; i < COUNT(hostile); i++) {
		AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
		AUTO_FREE char *want = xasprintf("archive entry %s: ", hostile[i].entry);
		struct tar_report report = {.entries = 77, .bytes = 77};
		struct err err = {0};

		assert_ok(fs_write_atomic(p->out, "before", STR_LIT("x"), 0644, &err), &err);
		for (const struct entry *e = hostile[i].e; e->type != '\0'; e++)
			add_header(&b, e->name, e->type, e->link, 0, 0755);
		add_end(&b);
		assert_row(unpack(p, buf_view(&b), NULL, &report, &err) < 0, hostile[i].name);
		if (err.code != ERR_INVALID || strncmp(err.msg, want, strlen(want)) != 0 ||
		    strstr(err.msg, hostile[i].why) == NULL)
			fail_msg("row \"%s\": %s", hostile[i].name, err.msg);
		assert_row(report.entries == 77, hostile[i].name);
		err_clear(&err);
		assert_ok(fs_remove_tree(p->dir, "out", &err), &err);
		assert_int_equal(mkdirat(p->dir, "out", 0755), 0);
		(void)dup3(openat(p->dir, "out", O_RDONLY | O_DIRECTORY), p->out, O_CLOEXEC);
	}
}

static void tar_refuses_long_names(void **state)
{
	const struct place *p = *state;
	static const struct {
		size_t part, total;
		const char *why; /* NULL: fits */
	} rows[] = {
		{255, 4000, NULL},
		{256, 256, "a part of the path over 255 bytes"},
		{200, 4097, "a name over 4096 bytes"},
		{200, 60000, "a name over 4096 bytes"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), name = BUF_INIT(TEXT_MAX);
		struct err err = {0};

		for (size_t k = 0; k < rows[i].total; k++)
			buf_putc(&name, k % (rows[i].part + 1) == rows[i].part ? '/' : 'n');
		add_pax(&b, "path", buf_view(&name));
		add_file(&b, "short", "text");
		add_end(&b);
		if (rows[i].why == NULL)
			assert_ok(unpack(p, buf_view(&b), NULL, NULL, &err), &err);
		else
			assert_err(unpack(p, buf_view(&b), NULL, NULL, &err), &err, ERR_INVALID,
			           rows[i].why);
	}
}

/* A name is shown without what could break a log line or a terminal. */
static void tar_errors_show_names_safely(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	add_file(&b, "../a\nb\x1b[31m\xff\xc3\xa9\xed\xa0\x80z", "");
	add_end(&b);
	assert_err(unpack(p, buf_view(&b), NULL, NULL, &err), &err, ERR_INVALID,
	           "archive entry ../a\\nb\\u001b[31m\\xff\xc3\xa9\\xed\\xa0\\x80z: ");
}

static void tar_a_nul_ends_a_name(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);

	add_pax(&b, "path", str_n("plain\0/../../x", 14));
	add_file(&b, "x", "1");
	unpack_ok(p, &b);
	assert_text(p, "plain", "1");
}

static void tar_refuses_what_is_no_archive(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf good = BUF_INIT(TEXT_MAX), bad = BUF_INIT(TEXT_MAX);
	static char noise[10000];
	struct err err = {0};

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (char)(i * 7919 >> 3);
	assert_err(unpack(p, str_of(NULL), NULL, NULL, &err), &err, ERR_INVALID, "archive: ");
	assert_err(unpack(p, STR_LIT("hello"), NULL, NULL, &err), &err, ERR_INVALID, "archive: ");
	assert_err(unpack(p, str_n(noise, sizeof(noise)), NULL, NULL, &err), &err, ERR_INVALID,
	           "archive: ");
	add_bytes(&good, "f", str_n(noise, sizeof(noise)));
	add_end(&good);
	assert_err(unpack(p, str_n(good.p, 3000), NULL, NULL, &err), &err, ERR_INVALID,
	           "archive entry f: archive: ");
	buf_str(&bad, buf_view(&good));
	bad.p[3] ^= 1; /* the sum of the header no longer fits */
	assert_err(unpack(p, buf_view(&bad), NULL, NULL, &err), &err, ERR_INVALID, "archive: ");
}

/* ---- bombs ---- */

static void tar_limits(void **state)
{
	const struct place *p = *state;
	static const struct {
		const char *name;
		struct tar_limits limits;
		const char *why; /* NULL: fits */
	} rows[] = {
		{"exactly", {3, 10}, NULL},
		{"an entry too many", {2, 10}, "more than 2 entries"},
		{"a byte too many", {3, 9}, "unpacks to more than 9 bytes"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
		struct tar_report report = {0};
		struct err err = {0};

		add_file(&b, "a", "12345");
		add_link(&b, "l", '2', "a");
		add_file(&b, "b", "67890");
		add_end(&b);
		if (rows[i].why != NULL) {
			assert_err(unpack(p, buf_view(&b), &rows[i].limits, NULL, &err), &err,
			           ERR_TOO_BIG, rows[i].why);
			continue;
		}
		assert_ok(unpack(p, buf_view(&b), &rows[i].limits, &report, &err), &err);
		assert_int_equal(report.entries, 3);
		assert_int_equal(report.bytes, 10);
	}
}

/* A header that claims more than there is, or may be, is refused before a byte is written. */
static void tar_huge_claims(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	add_header(&b, "f", '0', "", (uint64_t)4 << 30, 0644);
	for (int i = 0; i < 7; i++) {
		struct tar_limits limits = {0, ((uint64_t)1 << 30) << i};

		if (limits.bytes_max < (uint64_t)4 << 30)
			assert_err(unpack(p, buf_view(&b), &limits, NULL, &err), &err, ERR_TOO_BIG,
			           "unpacks to more than");
		else
			assert_err(unpack(p, buf_view(&b), &limits, NULL, &err), &err, ERR_INVALID,
			           "archive entry f: ");
	}
}

static void zstd(struct str in, struct buf *out)
{
	const char *argv[] = {"zstd", "-q", "-3", "-c", NULL};

	filter(argv, in, out);
}

/* `head`, then n zero bytes, as a zstd stream; far smaller than a thousandth. */
static void zstd_zeros(struct str head, const char *n, struct buf *out)
{
	AUTO_FREE char *script = xasprintf("(cat; head -c %s /dev/zero) | zstd -q -3 -c", n);
	const char *argv[] = {"sh", "-c", script, NULL};

	filter(argv, head, out);
}

static void tar_zstd_bombs(void **state)
{
	const struct place *p = *state;
	static const struct {
		const char *name;
		char type;
		bool pax;
	} rows[] = {
		{"a file", '0', false},
		{"a hard link with a body, which is only skipped", '1', true},
	};

	if (proc_find("zstd", (char[4096]){0}) == NULL)
		skip();
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf head = BUF_INIT(TEXT_MAX), packed = BUF_INIT(TEXT_MAX);
		struct err err = {0};

		add_file(&head, "x", "");
		if (rows[i].pax)
			add_pax(&head, "comment", STR_LIT("bodies of links count in pax only"));
		add_header(&head, "f", rows[i].type, "x", (uint64_t)400 << 20, 0644);
		zstd_zeros(buf_view(&head), "400M", &packed);
		assert_true(packed.n < (100 << 10));
		assert_err(unpack(p, buf_view(&packed), NULL, NULL, &err), &err, ERR_TOO_BIG,
		           "decompression bomb");
		assert_true(stat_of(p, "f").st_size < (300 << 20));
	}
}

/* A little compresses well and is no bomb. */
static void tar_small_zeros_are_no_bomb(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf head = BUF_INIT(TEXT_MAX), packed = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	if (proc_find("zstd", (char[4096]){0}) == NULL)
		skip();
	add_header(&head, "f", '0', "", 60 << 20, 0644);
	zstd_zeros(buf_view(&head), "61M", &packed);
	assert_ok(unpack(p, buf_view(&packed), NULL, NULL, &err), &err);
	assert_int_equal(stat_of(p, "f").st_size, 60 << 20);
}

/* A sparse map of many millions of entries would be kept in memory by libarchive: it is stopped by
 * the bytes of the header. */
static void tar_sparse_map_bomb(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), r = BUF_INIT(TEXT_MAX),
			    packed = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	if (proc_find("zstd", (char[4096]){0}) == NULL)
		skip();
	add_record(&r, "GNU.sparse.major", STR_LIT("1"));
	add_record(&r, "GNU.sparse.minor", STR_LIT("0"));
	add_record(&r, "GNU.sparse.name", STR_LIT("f"));
	add_record(&r, "GNU.sparse.realsize", STR_LIT("1000"));
	add_header(&b, "PaxHeaders/x", 'x', "", r.n, 0644);
	buf_str(&b, buf_view(&r));
	pad(&b);
	add_header(&b, "f", '0', "", 16 << 20, 0644);
	buf_puts(&b, "4000000\n");
	while (b.n < (16 << 20))
		buf_puts(&b, "0\n0\n");
	pad(&b);
	add_end(&b);
	zstd(buf_view(&b), &packed);
	assert_err(unpack(p, buf_view(&packed), NULL, NULL, &err), &err, ERR_TOO_BIG,
	           "headers of one entry are over");
}

static void tar_refuses_layers_of_compression(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), one = BUF_INIT(TEXT_MAX),
			    two = BUF_INIT(TEXT_MAX);
	const char *gzip[] = {"gzip", "-c", NULL};
	struct err err = {0};

	add_file(&b, "f", "text");
	add_end(&b);
	filter(gzip, buf_view(&b), &one);
	filter(gzip, buf_view(&one), &two);
	assert_ok(unpack(p, buf_view(&one), NULL, NULL, &err), &err);
	assert_err(unpack(p, buf_view(&two), NULL, NULL, &err), &err, ERR_INVALID,
	           "compressed more than once");
}

/* libarchive reads the digest that gzip ends with, and does not look at it. */
static void tar_refuses_damaged_gzip(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), noise = BUF_INIT(TEXT_MAX),
			    packed = BUF_INIT(TEXT_MAX), twice = BUF_INIT(TEXT_MAX);
	const char *gzip[] = {"gzip", "-c", NULL};
	struct err err = {0};
	uint32_t x = 1;

	for (int i = 0; i < 200000; i++) { /* nothing to compress: stored as it is */
		x = x * 1664525 + 1013904223;
		buf_putc(&noise, (char)(x >> 24));
	}
	add_bytes(&b, "noise", buf_view(&noise));
	add_end(&b);
	filter(gzip, buf_view(&b), &packed);
	assert_ok(unpack(p, buf_view(&packed), NULL, NULL, &err), &err);
	packed.p[packed.n / 2] ^= 1;
	assert_err(unpack(p, buf_view(&packed), NULL, NULL, &err), &err, ERR_INVALID,
	           "gzip data is damaged: incorrect data check");
	packed.p[packed.n / 2] ^= 1;
	packed.p[packed.n - 1] ^= 1;
	assert_err(unpack(p, buf_view(&packed), NULL, NULL, &err), &err, ERR_INVALID,
	           "gzip data is damaged: incorrect length check");
	packed.p[packed.n - 1] ^= 1;
	assert_err(unpack(p, str_n(packed.p, packed.n - 4), NULL, NULL, &err), &err, ERR_INVALID,
	           "gzip data is truncated");
	assert_err(unpack(p, str_n(packed.p, packed.n / 2), NULL, NULL, &err), &err, ERR_INVALID,
	           "gzip data is truncated");
	buf_add(&twice, packed.p, packed.n);
	buf_puts(&twice, "more");
	assert_err(unpack(p, buf_view(&twice), NULL, NULL, &err), &err, ERR_INVALID,
	           "followed by other data");
}

/* Members one after the other, as pigz and cat make them, and zeros at the end, as tapes had. */
static void tar_unpacks_gzip_in_members(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), one = BUF_INIT(TEXT_MAX),
			    two = BUF_INIT(TEXT_MAX);
	const char *gzip[] = {"gzip", "-c", NULL};
	struct err err = {0};

	add_file(&b, "f", "text");
	add_end(&b);
	filter(gzip, str_n(b.p, 700), &one);
	filter(gzip, str_n(b.p + 700, b.n - 700), &two);
	buf_add(&one, two.p, two.n);
	for (int i = 0; i < 1000; i++)
		buf_putc(&one, '\0');
	assert_ok(unpack(p, buf_view(&one), NULL, NULL, &err), &err);
	assert_text(p, "f", "text");
}

/* ---- what is unpacked ---- */

static void tar_unpacks_every_kind(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
	char to[100] = {0};
	struct stat st;

	add_header(&b, "./", '5', "", 0, 0); /* the root keeps its mode */
	add_file(&b, "./z.txt", "one");
	add_link(&b, "a_hard", '1',
	         "./z.txt"); /* before its target by name, after it in the archive */
	add_link(&b, "sub/deep/up", '2', "../../z.txt");
	add_link(&b, "dangling", '2', "not/there");
	add_link(&b, "here", '2', ".");
	add_header(&b, "run.sh", '0', "", 0, 06751);
	add_header(&b, "locked", '5', "", 0, 01000);
	add_file(&b, "locked/x", "in");
	add_header(&b, "old", '\0', "", 0, 0600); /* a file, before ustar */
	unpack_ok(p, &b);

	assert_text(p, "z.txt", "one");
	assert_text(p, "sub/deep/up", "one");
	assert_text(p, "locked/x", "in");
	assert_true(stat_of(p, "z.txt").st_ino == stat_of(p, "a_hard").st_ino);
	assert_int_equal(stat_of(p, "z.txt").st_mtim.tv_sec, 981173106);
	assert_int_equal(stat_of(p, "z.txt").st_uid, getuid());
	st = stat_of(p, "run.sh");
	assert_int_equal(st.st_mode, S_IFREG | 0751); /* no set-id bits */
	assert_int_equal(stat_of(p, "locked").st_mode, S_IFDIR | 0700);
	assert_int_equal(stat_of(p, "old").st_mode, S_IFREG | 0600);
	assert_int_equal(stat_of(p, ".").st_mode, S_IFDIR | 0755);
	assert_true(readlinkat(p->out, "dangling", to, sizeof(to) - 1) > 0);
	assert_string_equal(to, "not/there");
}

/* Modes do not depend on who runs us with which umask. */
static void tar_ignores_the_umask(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
	mode_t before = umask(0077);

	add_header(&b, "d", '5', "", 0, 0755);
	add_header(&b, "d/f", '0', "", 0, 0666);
	unpack_ok(p, &b);
	(void)umask(before);
	assert_int_equal(stat_of(p, "d").st_mode, S_IFDIR | 0755);
	assert_int_equal(stat_of(p, "d/f").st_mode, S_IFREG | 0666);
}

static void tar_later_entries_replace(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);

	add_file(&b, "target", "kept");
	add_link(&b, "l", '2', "target");
	add_file(&b, "l", "new"); /* not through the link */
	add_link(&b, "h", '1', "target");
	add_file(&b, "h", "own"); /* not into the other name's file */
	add_file(&b, "f", "a long first text");
	add_file(&b, "f", "short");
	add_file(&b, "was_file", "x");
	add_header(&b, "was_file", '5', "", 0, 0755);
	add_file(&b, "was_file/inside", "y");
	add_link(&b, "was_link", '2', "target");
	add_header(&b, "was_link", '5', "", 0, 0755);
	add_header(&b, "was_dir", '5', "", 0, 0755);
	add_link(&b, "was_dir", '2', "target");
	add_header(&b, "again", '5', "", 0, 0700);
	add_file(&b, "again/x", "z");
	add_header(&b, "again", '5', "", 0, 0755);
	add_link(&b, "h2", '1', "target");
	add_link(&b, "h2", '1', "./target"); /* twice the same */
	add_link(&b, "target", '1', "target");
	unpack_ok(p, &b);

	assert_text(p, "target", "kept");
	assert_text(p, "l", "new");
	assert_text(p, "h", "own");
	assert_text(p, "f", "short");
	assert_text(p, "was_file/inside", "y");
	assert_true(S_ISDIR(stat_of(p, "was_link").st_mode));
	assert_true(S_ISLNK(stat_of(p, "was_dir").st_mode));
	assert_text(p, "again/x", "z");
	assert_int_equal(stat_of(p, "again").st_mode, S_IFDIR | 0755);
	assert_true(stat_of(p, "h2").st_ino == stat_of(p, "target").st_ino);
}

/* What lay there before, even a link out, is replaced and never followed. */
static void tar_replaces_what_was_there(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), c = BUF_INIT(TEXT_MAX);
	struct err err = {0};

	assert_int_equal(symlinkat("../secret", p->out, "x"), 0);
	assert_int_equal(symlinkat("..", p->out, "d"), 0);
	add_file(&b, "x", "mine");
	unpack_ok(p, &b);
	assert_text(p, "x", "mine");
	add_file(&c, "d/secret", "changed");
	add_end(&c);
	assert_err(unpack(p, buf_view(&c), NULL, NULL, &err), &err, ERR_INVALID,
	           "goes through a symbolic link");
}

static void tar_pax_names_and_times(void **state)
{
	const struct place *p = *state;
	AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX);
	struct stat st;

	add_pax(&b, "path",
	        STR_LIT("n\xc3\xa4me e\xcc\x81 \xe6\x97\xa5.txt")); /* as it is: no NFC */
	add_file(&b, "x", "1");
	add_pax(&b, "mtime", STR_LIT("1700000000.123456789"));
	add_file(&b, "time", "2");
	add_file(&b, "raw\xff\xfename", "3"); /* no UTF-8, in ustar */
	add_pax(&b, "linkpath", STR_LIT("n\xc3\xa4me e\xcc\x81 \xe6\x97\xa5.txt"));
	add_link(&b, "h", '1', "x");
	add_header(&b, "././@LongLink", 'L', "", 131, 0644); /* GNU's long names */
	for (int i = 0; i < 130; i++)
		buf_putc(&b, 'g');
	buf_putc(&b, '\0');
	pad(&b);
	add_file(&b, "cut", "4");
	unpack_ok(p, &b);

	assert_text(p, "n\xc3\xa4me e\xcc\x81 \xe6\x97\xa5.txt", "1");
	assert_text(p, "h", "1");
	assert_text(p, "raw\xff\xfename", "3");
	st = stat_of(p, "time");
	assert_int_equal(st.st_mtim.tv_sec, 1700000000);
	assert_int_equal(st.st_mtim.tv_nsec, 123456789);
	{
		char name[131];

		memset(name, 'g', 130);
		name[130] = '\0';
		assert_text(p, name, "4");
	}
}

static void tar_unpacks_every_compression(void **state)
{
	const struct place *p = *state;
	static const char *const programs[] = {"gzip", "bzip2", "xz", "zstd", "cat"};

	for (size_t i = 0; i < COUNT(programs); i++) {
		const char *argv[] = {programs[i], strcmp(programs[i], "cat") == 0 ? "-" : "-c",
		                      NULL};
		AUTO_BUF struct buf b = BUF_INIT(TEXT_MAX), packed = BUF_INIT(TEXT_MAX);
		AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX), back = BUF_INIT(TEXT_MAX);
		struct err err = {0};
		char path[4096];

		if (proc_find(programs[i], path) == NULL)
			continue;
		for (int k = 0; k < 60000; k++)
			buf_printf(&body, "%d %d\n", k, k % 317 * 7919);
		add_bytes(&b, "f", buf_view(&body));
		add_end(&b);
		filter(argv, buf_view(&b), &packed);
		assert_ok(unpack(p, buf_view(&packed), NULL, NULL, &err), &err);
		assert_ok(fs_read(p->out, "f", &back, &err), &err);
		assert_row(str_same(buf_view(&back), buf_view(&body)), programs[i]);
	}
}

/* What the truss client's Python writes: names in any order, hard links, sub-second times. */
static void tar_unpacks_pythons_archives(void **state)
{
	const struct place *p = *state;
	AUTO_FREE char *script = xasprintf(
		"import os, sys, tarfile\n"
		"os.chdir('%s/in')\n"
		"open('z.txt', 'w').write('zed')\n"
		"os.makedirs('sub'); os.link('z.txt', 'sub/hard'); os.link('z.txt', 'a_hard')\n"
		"os.symlink('../z.txt', 'sub/soft')\n"
		"open('sub/' + 'n' * 180, 'w').write('long')\n"
		"os.utime('z.txt', ns=(0, 1700000000123456789))\n"
		"t = tarfile.open('../out/a.tar', 'w:')\n"
		"[t.add(n, arcname=n, recursive=False) for n in\n"
		" ['z.txt', 'sub/soft', 'sub/hard', 'a_hard', 'sub/' + 'n' * 180]]\n"
		"t.close()\n",
		p->path);
	const char *argv[] = {"python3", "-c", script, NULL};
	AUTO_BUF struct buf out = BUF_INIT(10000), tar = BUF_INIT(TEXT_MAX);
	struct tar_report report = {0};
	struct err err = {0};
	char path[4096];
	int code = -1;

	if (proc_find("python3", path) == NULL)
		skip();
	assert_ok(proc_run(argv, str_of(NULL), 60000, &out, &code, &err), &err);
	if (code != 0)
		fail_msg("%s", buf_cstr(&out));
	assert_ok(fs_read(p->out, "a.tar", &tar, &err), &err);
	assert_ok(unpack(p, buf_view(&tar), NULL, &report, &err), &err);
	assert_int_equal(report.entries, 5);
	assert_text(p, "a_hard", "zed");
	assert_text(p, "sub/soft", "zed");
	assert_true(stat_of(p, "a_hard").st_ino == stat_of(p, "sub/hard").st_ino);
	/* Python has the time as a double */
	assert_int_equal(stat_of(p, "z.txt").st_mtim.tv_nsec / 1000, 123456);
}

static void tar_unpacks_gnu_sparse_files(void **state)
{
	const struct place *p = *state;
	static const char *const formats[] = {"gnu", "posix"};

	for (size_t i = 0; i < COUNT(formats); i++) {
		AUTO_FREE char *script = xasprintf(
			"cd %s/in && rm -f s && truncate -s 40M s && "
			"printf end | dd of=s bs=1 seek=20000000 conv=notrunc 2>/dev/null && "
			"tar -S --format=%s -cf - s",
			p->path, formats[i]);
		const char *argv[] = {"sh", "-c", script, NULL};
		AUTO_BUF struct buf tar = BUF_INIT(TEXT_MAX);
		struct err err = {0};
		struct stat st;
		char text[4] = {0};
		int fd;

		filter(argv, str_of(NULL), &tar);
		assert_true(tar.n < (1 << 20));
		assert_ok(unpack(p, buf_view(&tar), NULL, NULL, &err), &err);
		st = stat_of(p, "s");
		assert_int_equal(st.st_size, 40 << 20);
		assert_true(st.st_blocks * 512 < (10 << 20)); /* the holes are holes */
		fd = openat(p->out, "s", O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, text, 3, 20000000), 3);
		(void)close(fd);
		assert_string_equal(text, "end");
	}
}

static const struct CMUnitTest tests[] = {
	TEST(tar_refuses),
	TEST(tar_refuses_long_names),
	TEST(tar_errors_show_names_safely),
	TEST(tar_a_nul_ends_a_name),
	TEST(tar_refuses_what_is_no_archive),
	TEST(tar_limits),
	TEST(tar_huge_claims),
	TEST(tar_zstd_bombs),
	TEST(tar_small_zeros_are_no_bomb),
	TEST(tar_sparse_map_bomb),
	TEST(tar_refuses_layers_of_compression),
	TEST(tar_refuses_damaged_gzip),
	TEST(tar_unpacks_gzip_in_members),
	TEST(tar_unpacks_every_kind),
	TEST(tar_ignores_the_umask),
	TEST(tar_later_entries_replace),
	TEST(tar_replaces_what_was_there),
	TEST(tar_pax_names_and_times),
	TEST(tar_unpacks_every_compression),
	TEST(tar_unpacks_pythons_archives),
	TEST(tar_unpacks_gnu_sparse_files),
};
UNIT_MAIN(tests)
