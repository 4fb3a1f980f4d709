/* test_hub_commit_write.c - what it writes, hub_commit.h reads: the same texts and bytes, in
 * whatever pieces they were given. */
#include "unit.h"

#include "core/hub_commit.h"
#include "core/hub_commit_write.h"

#define OUT_MAX ((size_t)8 << 20)
#define FILES 40
#define CONTENT_MAX 5000

static unsigned dice = 11;

static size_t roll(size_t sides)
{
	dice = dice * 1103515245 + 12345;
	return (dice >> 16) % sides;
}

/* A sink that writes down what it is given, as the test does what it gives. */
static int on_content(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	buf_add(arg, p, n);
	return 0;
}

static int on_line(void *arg, const struct hub_line *l, bool had_content, struct err *err UNUSED)
{
	if (l->kind == HUB_LINE_HEADER)
		buf_printf(arg, "header [%s] [%s] [%s]\n", l->summary, l->description, l->parent);
	else
		buf_printf(arg, "%s line %d %s\n", had_content ? "" : "bare", (int)l->kind,
		           l->path);
	return 0;
}

static void read_back(const struct buf *written, struct buf *out)
{
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *r = hub_commit_reader_new(
		&(struct hub_commit_sink){.content = on_content, .line = on_line, .arg = out});
	struct err err = {0};

	assert_ok(hub_commit_feed(r, written->p, written->n, &err), &err);
	assert_ok(hub_commit_end(r, &err), &err);
}

static void put_file(struct hub_commit_writer *w, const char *path, size_t n, struct buf *want)
{
	unsigned char content[CONTENT_MAX];
	size_t at = 0;

	for (size_t i = 0; i < n; i++)
		content[i] = (unsigned char)roll(256);
	hub_commit_write_file(w, path);
	while (at < n) {
		size_t most = roll(roll(2) == 0 ? 5 : 2000), piece = MIN(most, n - at);
		unsigned char *own = xmalloc(piece + 1);

		memcpy(own, content + at, piece); /* what is read behind a piece is seen */
		hub_commit_write_content(w, own, piece);
		free(own);
		at += piece;
	}
	hub_commit_write_end(w);
	buf_add(want, content, n);
	buf_printf(want, " line %d %s\n", HUB_LINE_FILE, path);
}

static void reads_as_written(void **state UNUSED)
{
	static const char *const paths[] = {"a", "neuronxcc-2.21+82/MODULE_1+ab/model.neff",
	                                    "sp ace/\"quote\"", "jax/\xc3\xa9\xf0\x9f\x9a\x80",
	                                    ".stoker/harvests/x-0-1.json"};

	for (unsigned seed = 1; seed < 30; seed++) {
		AUTO_BUF struct buf out = BUF_INIT(OUT_MAX), want = BUF_INIT(OUT_MAX),
				    got = BUF_INIT(OUT_MAX);
		struct hub_commit_writer w = {.out = &out};

		dice = seed;
		hub_commit_write_header(&w, "title \"x\"\n", "a=1\nb=\xc3\xa9", seed % 2 == 0);
		buf_puts(&want, "header [title \"x\"\n] [a=1\nb=\xc3\xa9] []\n");
		for (size_t i = 0; i < FILES; i++)
			put_file(&w, paths[i % COUNT(paths)], i < 5 ? i : roll(CONTENT_MAX), &want);
		read_back(&out, &got);
		assert_int_equal(got.n, want.n);
		assert_memory_equal(got.p, want.p, want.n);
	}
}

static void deletes(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX), got = BUF_INIT(OUT_MAX);
	struct hub_commit_writer w = {.out = &out};

	hub_commit_write_header(&w, "s", "", false);
	assert_null(strstr(buf_cstr(&out), "addOnly"));
	hub_commit_write_deleted(&w, "a/\"b\"", false);
	hub_commit_write_deleted(&w, "inductor/cpu", true);
	read_back(&out, &got);
	assert_string_equal(buf_cstr(&got), "header [s] [] []\nbare line 3 a/\"b\"\n"
	                                    "bare line 4 inductor/cpu\n");
}

/* The extension is a member of the header's value. */
static void says_that_it_only_adds(void **state UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	struct hub_commit_writer w = {.out = &out};

	hub_commit_write_header(&w, "s", "d", true);
	assert_string_equal(buf_cstr(&out), "{\"key\":\"header\",\"value\":{\"summary\":\"s\","
	                                    "\"description\":\"d\",\"addOnly\":true}}\n");
}

static void paths(void **state UNUSED)
{
	static const struct {
		const char *path;
		bool ok;
	} cases[] = {{"a", true},     {"a b/c\xc3\xa9", true}, {"back\\slash", true},
	             {"", false},     {"/a", false},           {"a//b", false},
	             {"../a", false}, {"..\\a", false},        {"a/.GIT/config", false},
	             {"a\nb", false}, {"\xff", false}};
	AUTO_BUF struct buf deep = BUF_INIT(OUT_MAX);

	for (size_t i = 0; i < COUNT(cases); i++)
		assert_row(hub_commit_path_ok(str_of(cases[i].path)) == cases[i].ok, cases[i].path);
	for (size_t i = 0; i < HUB_DEPTH_MAX; i++)
		buf_puts(&deep, "d/");
	buf_puts(&deep, "f");
	assert_true(hub_commit_path_ok(buf_view(&deep)));
	buf_puts(&deep, "/f");
	assert_false(hub_commit_path_ok(buf_view(&deep)));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_as_written),
	cmocka_unit_test(deletes),
	cmocka_unit_test(says_that_it_only_adds),
	cmocka_unit_test(paths),
};
UNIT_MAIN(tests)
