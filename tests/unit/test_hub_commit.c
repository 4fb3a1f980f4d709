/* test_hub_commit.c - what clients of a Hub commit: the same result for every way of cutting the
 * bytes, exact words for what is refused, bounds. */
#include "unit.h"

#include "core/hub_commit.h"

#define OUT_MAX ((size_t)1 << 20)
#define HEADER "{\"key\":\"header\",\"value\":{\"summary\":\"s\"}}\n"
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define COMMIT "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* ---- a sink that writes down what it is given ---------------------------------------------- */

struct record {
	struct buf out;
	struct hash *hash; /* of the content */
	uint64_t bytes;    /* of it */
	unsigned pieces, lines;
	bool open;   /* a content began, its line has not come */
	int fail_at; /* the call that fails, from 1 */
	int calls;
};

static int maybe_fail(struct record *r, struct err *err)
{
	return ++r->calls == r->fail_at ? err_set(err, ERR_NO_SPACE, "the disk is full") : 0;
}

static int on_content(void *arg, const void *p, size_t n, struct err *err)
{
	struct record *r = arg;

	if (p == NULL) {
		assert_false(r->open);
		assert_int_equal(n, 0);
		r->open = true;
		r->bytes = 0;
		r->pieces = 0;
	} else {
		assert_true(r->open);
		assert_true(n > 0);
		hash_add(r->hash, p, n);
		r->bytes += n;
		r->pieces++;
	}
	return maybe_fail(r, err);
}

static void write_file(struct record *r)
{
	uint8_t sum[HASH_SHA256_LEN];
	char hex[HASH_HEX_CAP];

	hex_encode(sum, hash_end(r->hash, sum), hex);
	buf_printf(&r->out, " %" PRIu64 " in %u %.8s", r->bytes, r->pieces, hex);
}

static int on_line(void *arg, const struct hub_line *l, bool had_content, struct err *err)
{
	static const char *const names[] = {"header", "file", "lfs", "del", "rmdir"};
	struct record *r = arg;
	char hex[HASH_HEX_CAP];

	assert_int_equal(had_content, r->open);
	r->open = false;
	r->lines++;
	buf_puts(&r->out, names[l->kind]);
	if (l->kind == HUB_LINE_HEADER)
		buf_printf(&r->out, " [%s] [%s] [%s]", l->summary, l->description, l->parent);
	else
		buf_printf(&r->out, " %s", l->path);
	if (l->kind == HUB_LINE_FILE)
		write_file(r);
	if (l->kind == HUB_LINE_LFS_FILE) {
		digest_hex(&l->oid, hex);
		buf_printf(&r->out, " %s", hex);
		if (l->has_size)
			buf_printf(&r->out, " %" PRIu64, l->size);
	}
	buf_puts(&r->out, "\n");
	return maybe_fail(r, err);
}

static void record_done(struct record *r)
{
	buf_done(&r->out);
	hash_free(r->hash);
}
#define AUTO_RECORD CLEANUP(record_done)
#define RECORD_NEW                                                                                 \
	{                                                                                          \
		.out = BUF_INIT(OUT_MAX), .hash = hash_new(HASH_SHA256)                            \
	}

static struct hub_commit_reader *reader_of(struct record *r)
{
	return hub_commit_reader_new(
		&(struct hub_commit_sink){.content = on_content, .line = on_line, .arg = r});
}

/* ---- feeding ------------------------------------------------------------------------------- */

static unsigned dice = 7;

static size_t roll(size_t sides)
{
	dice = dice * 1103515245 + 12345;
	return (dice >> 16) % sides;
}

/* In steps of `most` bytes, or of up to so many; an error is written down, too. */
static void feed(struct str text, size_t most, bool random, struct record *r)
{
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *c = reader_of(r);
	struct err err = {0};
	int rc = 0;

	while (rc == 0 && text.n > 0) {
		size_t step = random ? 1 + roll(most) : most;
		/* memory of its own: what is read behind a piece is seen */
		AUTO_FREE char *piece = str_dup(str_n(text.p, MIN(step, text.n)));

		rc = hub_commit_feed(c, piece, MIN(step, text.n), &err);
		text = str_skip(text, step);
	}
	if (rc == 0)
		rc = hub_commit_end(c, &err);
	if (rc < 0)
		buf_printf(&r->out, "%s: %s\n", err_id(&err), err.msg);
}

static void same_for_all_cuts(const char *name, struct str text, const char *want)
{
	for (size_t way = 0; way < 20; way++) {
		AUTO_RECORD struct record r = RECORD_NEW;

		if (way < 2)
			feed(text, way == 0 ? MAX(text.n, (size_t)1) : 1, false, &r);
		else
			feed(text, way * way, true, &r);
		if (!str_eq(buf_view(&r.out), want))
			fail_msg("%s, way %zu:\n%s", name, way, buf_cstr(&r.out));
	}
}

/* ---- what the Python client sends, as json.dumps() writes it ------------------------------- */

static const char as_ascii[] =
	"{\"key\": \"header\", "
	"\"value\": {\"summary\": \"Add \\\"it\\\" \\u2013 \\ud83d\\ude80\", "
	"\"description\": \"two\\nlines\\t/\", "
	"\"parentCommit\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"aGVsbG8K\", "
	"\"path\": \"a/hello.txt\", \"encoding\": \"base64\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"\", \"path\": \"empty\", "
	"\"encoding\": \"base64\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"8PHy8/T19vf4+fr7/P3+/34=\", "
	"\"path\": \"na\\u00efve/\\ud83d\\ude00 x.bin\", \"encoding\": \"base64\"}}\n"
	"{\"key\": \"lfsFile\", \"value\": {\"path\": \"big.safetensors\", "
	"\"algo\": \"sha256\", "
	"\"oid\": \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\", "
	"\"size\": 3}}\n"
	"{\"key\": \"deletedFile\", \"value\": {\"path\": \"old.txt\"}}\n"
	"{\"key\": \"deletedFolder\", \"value\": {\"path\": \"old/dir/\"}}\n"
	"{\"key\": \"deletedFolder\", \"value\": {\"path\": \"plain\"}}\n";

static const char as_utf8[] = /* ensure_ascii=False */
	"{\"key\": \"header\", "
	"\"value\": {\"summary\": \"Add \\\"it\\\" \342\200\223 \360\237\232\200\", "
	"\"description\": \"two\\nlines\\t/\", "
	"\"parentCommit\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"aGVsbG8K\", "
	"\"path\": \"a/hello.txt\", \"encoding\": \"base64\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"\", \"path\": \"empty\", "
	"\"encoding\": \"base64\"}}\n"
	"{\"key\": \"file\", \"value\": {\"content\": \"8PHy8/T19vf4+fr7/P3+/34=\", "
	"\"path\": \"na\303\257ve/\360\237\230\200 x.bin\", \"encoding\": \"base64\"}}\n"
	"{\"key\": \"lfsFile\", \"value\": {\"path\": \"big.safetensors\", "
	"\"algo\": \"sha256\", "
	"\"oid\": \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\", "
	"\"size\": 3}}\n"
	"{\"key\": \"deletedFile\", \"value\": {\"path\": \"old.txt\"}}\n"
	"{\"key\": \"deletedFolder\", \"value\": {\"path\": \"old/dir/\"}}\n"
	"{\"key\": \"deletedFolder\", \"value\": {\"path\": \"plain\"}}\n";

static const char as_read[] =
	"header [Add \"it\" \342\200\223 \360\237\232\200] [two\nlines\t/] [" COMMIT "]\n"
	"file a/hello.txt 6 in 1 5891b5b5\n"
	"file empty 0 in 0 e3b0c442\n"
	"file na\303\257ve/\360\237\230\200 x.bin 17 in 1 9879c47e\n"
	"lfs big.safetensors " ABC " 3\n"
	"del old.txt\n"
	"rmdir old/dir\n"
	"rmdir plain\n";

static void reads_what_clients_send(void **state UNUSED)
{
	same_for_all_cuts("ascii", STR_LIT(as_ascii), as_read);
	same_for_all_cuts("utf8", STR_LIT(as_utf8), as_read);
}

/* The newline of the last line may be missing, empty lines and \r mean nothing. */
static void lines_may_be_empty(void **state UNUSED)
{
	same_for_all_cuts("bare", str_n(as_ascii, sizeof(as_ascii) - 2), as_read);
	same_for_all_cuts("empty", STR_LIT("\n\r\n  \n" HEADER "\n\t\r\n\n"), "header [s] [] []\n");
	same_for_all_cuts("crlf",
	                  STR_LIT("{\"key\":\"header\",\"value\":{}}\r\n"
	                          "{\"key\":\"deletedFile\",\"value\":{\"path\":\"a\"}}\r\n"),
	                  "header [] [] []\ndel a\n");
}

static void keys_come_in_any_order(void **state UNUSED)
{
	static const struct {
		const char *line, *want;
	} rows[] = {
		{"{\"value\":{\"encoding\":\"base64\",\"path\":\"p\",\"content\":\"YWJj\"},"
	         "\"key\":\"file\"}",
	         "file p 3 in 1 ba7816bf\n"},
		{"{\"value\":{\"path\":\"p\",\"content\":\"YWJj\"},\"key\":\"file\"}",
	         "file p 3 in 1 ba7816bf\n"},
		{"{\"key\":\"file\",\"value\":{\"content\":\"YWJj\",\"encoding\":\"base64\","
	         "\"path\":\"p\"}}",
	         "file p 3 in 1 ba7816bf\n"},
		{"{\"k\\u0065y\":\"fi\\u006ce\",\"value\":{\"p\\u0061th\":\"\\u0070\","
	         "\"content\":\"Y\\u0057\\u004Aj\"}}",
	         "file p 3 in 1 ba7816bf\n"},
		{"{\"key\":\"file\",\"value\":{\"path\":\"p\",\"content\":\"\"}}",
	         "file p 0 in 0 e3b0c442\n"},
		{"{\"key\":\"file\",\"value\":{\"path\":\"p\","
	         "\"content\":\"\\r\\n\\/\\/\\/\\/\\nYW\\nJj\\n\"}}",
	         "file p 6 in 1 3e164f8b\n"},
		{"{\"value\":{\"size\":0,\"oid\":\"" ABC "\",\"path\":\"p\"},\"key\":\"lfsFile\"}",
	         "lfs p " ABC " 0\n"},
		{"{\"key\":\"lfsFile\",\"value\":{\"oid\":\"" ABC
	         "\",\"path\":\"p\",\"algo\":\"sha256\"}}",
	         "lfs p " ABC "\n"},
		{"{\"key\":\"lfsFile\",\"value\":{\"size\":9223372036854775807,\"oid\":\"" ABC
	         "\",\"path\":\"p\"}}",
	         "lfs p " ABC " 9223372036854775807\n"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_FREE char *text = xasprintf(HEADER "%s", rows[i].line);
		AUTO_FREE char *want = xasprintf("header [s] [] []\n%s", rows[i].want);

		same_for_all_cuts(rows[i].line, str_of(text), want);
	}
}

static void unknown_keys_are_skipped(void **state UNUSED)
{
	same_for_all_cuts(
		"unknown",
		STR_LIT("{\"v\":{\"path\":1,\"value\":{},\"key\":[]},\"key\":\"header\","
	                "\"value\":{\"x\":{\"summary\":7,\"content\":\"!\"},\"key\":3,"
	                "\"y\":[{\"path\":0,\"path\":1},[-1.5e3,true,false,null,\"\\\"\"]],"
	                "\"parentCommit\":null,\"summary\":\"s\",\"value\":{}},"
	                "\"path\":{},\"content\":null}"),
		"header [s] [] []\n");
	same_for_all_cuts("parent",
	                  STR_LIT("{\"key\":\"header\",\"value\":{\"parentCommit\":"
	                          "\"0123456789ABCDEFabcdef012345678901234567\"}}"),
	                  "header [] [] [0123456789abcdefabcdef012345678901234567]\n");
}

/* ---- what is refused ----------------------------------------------------------------------- */

#define FILE_OF(content) "{\"key\":\"file\",\"value\":{\"path\":\"p\",\"content\":\"" content "\"}}"
#define PATH_OF(path) "{\"key\":\"deletedFile\",\"value\":{\"path\":\"" path "\"}}"
#define FOLDER_OF(path) "{\"key\":\"deletedFolder\",\"value\":{\"path\":\"" path "\"}}"
#define LFS_OF(more) "{\"key\":\"lfsFile\",\"value\":{\"path\":\"p\"" more "}}"
#define SIZE_OF(size) LFS_OF(",\"oid\":\"" ABC "\",\"size\":" size)
#define NO_SIZE(size) "\"size\" is " size ", not a whole number from 0 to 9223372036854775807"

static void refuses_bad_headers(void **state UNUSED)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{"", "invalid: there is no header\n"},
		{" \r\n\n", "invalid: there is no header\n"},
		{"[]", "invalid: line 1: a line has to be an object, not a list\n"},
		{"\n7", "invalid: line 2: a line has to be an object, not a number\n"},
		{"\"a\"", "invalid: line 1: a line has to be an object, not a text\n"},
		{"null", "invalid: line 1: a line has to be an object, not null\n"},
		{"{}", "invalid: line 1: \"key\" is missing\n"},
		{"{\"key\":\"header\"}", "invalid: line 1: \"value\" is missing\n"},
		{"{\"key\":\"header\",\"value\":[]}",
	         "invalid: line 1: \"value\" has to be an object, not a list\n"},
		{"{\"key\":\"header\",\"value\":{\"summary\":null}}",
	         "invalid: line 1: \"summary\" has to be a text, not null\n"},
		{"{\"key\":\"header\",\"value\":{\"description\":true}}",
	         "invalid: line 1: \"description\" has to be a text, not a boolean\n"},
		{"{\"key\":\"header\",\"value\":{\"parentCommit\":{}}}",
	         "invalid: line 1: \"parentCommit\" has to be a text, not an object\n"},
		{"{\"key\":\"header\",\"value\":{\"parentCommit\":\"main\"}}",
	         "invalid: line 1: \"parentCommit\": 40 hex digits are expected, not 4\n"},
		{"{\"key\":\"header\",\"value\":{\"content\":\"YWJj\"}}",
	         "invalid: line 1: \"content\" belongs to a file, not to \"header\"\n"},
		{"{\"key\":null}", "invalid: line 1: \"key\" has to be a text, not null\n"},
		{"{\"key\":\"copyFile\",\"value\":{}}",
	         "invalid: line 1: \"key\" is \"copyFile\", which is not known\n"},
		{"{\"key\":\"a\\u202e\\n\"}",
	         "invalid: line 1: \"key\" is \"a\\u202e\\n\", which is not known\n"},
		{PATH_OF("a"), "invalid: line 1: the header has to come first\n"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		same_for_all_cuts(rows[i].text, str_of(rows[i].text), rows[i].want);
}

static void refuses_bad_lines(void **state UNUSED)
{
	static const struct {
		const char *line, *want;
	} rows[] = {
		{"{\"key\":\"header\",\"value\":{}}", "there is a second header"},
		{"{\"key\":\"file\",\"key\":\"file\"}", "\"key\" is there twice"},
		{"{\"value\":{},\"value\":{}}", "\"value\" is there twice"},
		{"{\"value\":{\"path\":\"a\",\"path\":\"b\"}}", "\"path\" is there twice"},
		{"{\"value\":{\"content\":\"YWJj\",\"content\":\"\"}}",
	         "\"content\" is there twice"},
		{"{\"key\":\"file\",\"value\":{\"path\":\"p\"}}", "\"content\" is missing"},
		{"{\"key\":\"file\",\"value\":{\"content\":\"\"}}", "\"path\" is missing"},
		{"{\"key\":\"deletedFile\",\"value\":{}}", "\"path\" is missing"},
		{"{\"key\":\"file\",\"value\":{\"content\":null}}",
	         "\"content\" has to be a text, not null"},
		{"{\"key\":\"file\",\"value\":{\"content\":{\"a\":1}}}",
	         "\"content\" has to be a text, not an object"},
		{"{\"value\":{\"encoding\":\"utf-8\"}}",
	         "\"encoding\" is \"utf-8\": only base64 is taken"},
		{"{\"value\":{\"path\":\"p\",\"content\":\"YWJj\",\"encoding\":\"\"}}",
	         "\"encoding\" is \"\": only base64 is taken"},
		{"{\"value\":{\"path\":\"p\",\"content\":\"YWJj\"},\"key\":\"lfsFile\"}",
	         "\"content\" belongs to a file, not to \"lfsFile\""},
		{"{\"key\":\"deletedFile\",\"value\":{\"content\":\"YWJj\"}}",
	         "\"content\" belongs to a file, not to \"deletedFile\""},
		{"{\"value\":{\"path\":\"p\",\"content\":\"YWJj\"}}", "\"key\" is missing"},
		{FILE_OF("YWJ"), "\"content\": not base64: it ends inside of a group of four"},
		{FILE_OF("YWJj YWJj"), "\"content\": not base64: byte 0x20"},
		{FILE_OF("YWJj-"), "\"content\": not base64: '-'"},
		{FILE_OF("YWI=YWI="), "\"content\": not base64: something follows the padding"},
		{FILE_OF("YWK="), "\"content\": not base64: bits are left over at its end"},
		{FILE_OF("\\u00e9"), "\"content\": not base64: byte 0xc3"},
		{FILE_OF("YW\tJj"), "not JSON: control character 0x09 in a text: it has to be "
	                            "escaped"},
		{LFS_OF(""), "\"oid\" is missing"},
		{LFS_OF(",\"oid\":\"abc\""), "\"oid\": 64 hex digits are expected, not 3"},
		{LFS_OF(",\"algo\":\"md5\""), "\"algo\" is \"md5\": only sha256 is taken"},
		{SIZE_OF("-1"), NO_SIZE("-1")},
		{SIZE_OF("-0"), NO_SIZE("-0")},
		{SIZE_OF("1.0"), NO_SIZE("1.0")},
		{SIZE_OF("1e3"), NO_SIZE("1e3")},
		{SIZE_OF("9223372036854775808"), NO_SIZE("9223372036854775808")},
		{SIZE_OF("18446744073709551617"), NO_SIZE("18446744073709551617")},
		{SIZE_OF("\"1\""), "\"size\" has to be a number, not a text"},
		{SIZE_OF("null"), "\"size\" has to be a number, not null"},
		{PATH_OF(""), "\"path\" is \"\", which is no plain path"},
		{PATH_OF("/a"), "\"path\" is \"/a\", which is no plain path"},
		{PATH_OF("a/"), "\"path\" is \"a/\", which is no plain path"},
		{PATH_OF("a/../b"), "\"path\" is \"a/../b\", which is no plain path"},
		{PATH_OF("a/..\\\\b"), "\"path\" is \"a/..\\b\", which is no plain path"},
		{PATH_OF("\\\\a"), "\"path\" is \"\\a\", which is no plain path"},
		{PATH_OF("a\\nb"), "\"path\" is \"a\\nb\", which is no plain path"},
		{FOLDER_OF("/"), "\"path\" is \"\", which is no plain path"},
		{FOLDER_OF("a//"), "\"path\" is \"a/\", which is no plain path"},
		{FOLDER_OF("./"), "\"path\" is \".\", which is no plain path"},
		{PATH_OF(".git/config"), "\"path\" is \".git/config\": .git belongs to git"},
		{PATH_OF("a/.Git"), "\"path\" is \"a/.Git\": .git belongs to git"},
		{FOLDER_OF(".git/"), "\"path\" is \".git\": .git belongs to git"},
		{PATH_OF("a") " {}", "not JSON: nothing more is expected, not '{'"},
		{PATH_OF("a") "}", "not JSON: nothing more is expected, not '}'"},
		{"{\"key\":\"file\",", "it ends inside of its JSON"},
		{"{\"key\":\"fi", "it ends inside of its JSON"},
		{"{\"key\":\"file\",\"value\":{\"size\":1", "it ends inside of its JSON"},
		{"{\"key\":\"file\",\"value\":{\"content\":\"YWJj", "it ends inside of its JSON"},
		{"{'key'}", "not JSON: a key or '}' is expected, not '''"},
		{"{\"a\":\"\\ud800\"}",
	         "not JSON: the second half of a pair is expected, not '\"'"},
		{"{\"a\":\"\xff\"}", "not JSON: a text is not UTF-8"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_FREE char *text = xasprintf(HEADER "\n%s", rows[i].line);
		AUTO_FREE char *more = xasprintf("%s\n" PATH_OF("b"), text);
		AUTO_FREE char *want =
			xasprintf("header [s] [] []\ninvalid: line 3: %s\n", rows[i].want);

		same_for_all_cuts(rows[i].line, str_of(text), want);
		same_for_all_cuts(rows[i].line, str_of(more), want);
	}
}

static void names_like_gits_are_fine(void **state UNUSED)
{
	same_for_all_cuts("ignore",
	                  STR_LIT(HEADER PATH_OF(".gitignore") "\n" PATH_OF(
				  "a/.gitattributes") "\n" PATH_OF("x.git/y")),
	                  "header [s] [] []\ndel .gitignore\ndel a/.gitattributes\n"
	                  "del x.git/y\n");
}

/* ---- bounds -------------------------------------------------------------------------------- */

/* A header with a member of n bytes. */
static void long_text(const char *before, const char *after, size_t n, struct buf *out)
{
	buf_clear(out);
	buf_puts(out, before);
	for (size_t i = 0; i < n; i++)
		buf_putc(out, '1');
	buf_puts(out, after);
}

static void texts_are_bounded(void **state UNUSED)
{
	static const struct {
		const char *before, *after;
	} rows[] = {
		{"{\"key\":\"header\",\"value\":{\"summary\":\"", "\"}}"},
		{"{\"key\":\"header\",\"value\":{\"unknown\":\"", "\"}}"},
		{"{\"key\":\"header\",\"value\":{\"", "\":1}}"},
		{"{\"key\":\"header\",\"value\":{\"unknown\":", "}}"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);

		for (size_t most = 100; most < 100000; most *= 10) {
			AUTO_RECORD struct record fits = RECORD_NEW, over = RECORD_NEW;

			long_text(rows[i].before, rows[i].after, HUB_COMMIT_TEXT_MAX, &text);
			feed(buf_view(&text), most, true, &fits);
			assert_row(fits.lines == 1, rows[i].before);
			long_text(rows[i].before, rows[i].after, HUB_COMMIT_TEXT_MAX + 1, &text);
			feed(buf_view(&text), most, true, &over);
			assert_int_equal(over.lines, 0);
			assert_string_equal(buf_cstr(&over.out),
			                    "too_big: line 1: a text is larger than 65536 bytes\n");
		}
	}
}

static void depth_is_bounded(void **state UNUSED)
{
	same_for_all_cuts("16",
	                  STR_LIT("{\"key\":\"header\",\"value\":{\"a\":[[[[[[[[[[[[[["
	                          "]]]]]]]]]]]]]]}}"),
	                  "header [] [] []\n");
	same_for_all_cuts("17",
	                  STR_LIT("{\"key\":\"header\",\"value\":{\"a\":[[[[[[[[[[[[[[["
	                          "]]]]]]]]]]]]]]]}}"),
	                  "too_big: line 1: JSON is nested deeper than 16\n");
}

static void lines_are_bounded(void **state UNUSED)
{
	AUTO_RECORD struct record r = {.out = BUF_INIT((size_t)16 << 20),
	                               .hash = hash_new(HASH_SHA256)};
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *c = reader_of(&r);
	struct err err = {0};

	assert_ok(hub_commit_feed(c, HEADER, strlen(HEADER), &err), &err);
	for (int i = 0; i < HUB_COMMIT_LINES_MAX; i++)
		assert_ok(hub_commit_feed(c, PATH_OF("a") "\n\n", strlen(PATH_OF("a")) + 2, &err),
		          &err);
	assert_int_equal(r.lines, 1 + HUB_COMMIT_LINES_MAX);
	assert_int_equal(hub_commit_feed(c, PATH_OF("a"), strlen(PATH_OF("a")), &err), -1);
	assert_int_equal(err.code, ERR_TOO_BIG);
	assert_string_equal(err.msg, "line 100002: a commit has at most 50000 lines behind its "
	                             "header, one for each file: send several commits");
}

/* ---- large contents ------------------------------------------------------------------------ */

/* A header and a file of n bytes; the start of its SHA-256 is printed into sum. */
static void large_file(size_t n, struct buf *out, char sum[9])
{
	AUTO_BUF struct buf bytes = BUF_INIT(OUT_MAX);
	struct digest d;
	char hex[HASH_HEX_CAP];

	for (size_t i = 0; i < n; i++)
		buf_putc(&bytes, (char)(uint8_t)(roll(256)));
	d = hash_sha256(buf_cstr(&bytes), n);
	digest_hex(&d, hex);
	fmt_fixed(sum, 9, "%.8s", hex);
	buf_puts(out, HEADER "{\"value\":{\"content\":\"");
	base64_encode(buf_cstr(&bytes), n, false, out);
	buf_puts(out, "\",\"path\":\"p\"},\"key\":\"file\"}");
}

/* Handed out in pieces of 48 KiB, whatever the bytes come in. */
static void large_contents_come_in_pieces(void **state UNUSED)
{
	static const size_t piece = (size_t)48 << 10;
	const size_t sizes[] = {piece - 1, piece, piece + 1, 2 * piece - 2, 3 * piece + 7};

	for (size_t i = 0; i < COUNT(sizes); i++) {
		AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);
		AUTO_FREE char *want = NULL;
		char sum[9];

		large_file(sizes[i], &text, sum);
		want = xasprintf("header [s] [] []\nfile p %zu in %zu %s\n", sizes[i],
		                 (sizes[i] + piece - 1) / piece, sum);
		same_for_all_cuts("large", buf_view(&text), want);
	}
}

/* Every call of the sink fails in turn; what it says is what is reported, and nothing follows. */
static void a_sink_may_fail(void **state UNUSED)
{
	int n = 1;

	for (bool failed = true; failed; n++) {
		AUTO_RECORD struct record r = RECORD_NEW;

		r.fail_at = n;
		feed(STR_LIT(as_ascii), 30, true, &r);
		failed = strstr(buf_cstr(&r.out), "no_space: line ") != NULL;
		assert_true(!failed || r.calls == n);
		assert_true(!failed || str_ends(buf_view(&r.out), ": the disk is full\n"));
	}
	assert_int_equal(n - 2, 8 + 3 + 2); /* lines, contents that begin, pieces */
}

static void feed_after_failure(void *arg)
{
	struct err err = {0};

	(void)!hub_commit_feed(arg, " ", 1, &err);
}

static void nothing_follows_a_failure(void **state UNUSED)
{
	AUTO_RECORD struct record r = RECORD_NEW;
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *c = reader_of(&r);
	struct err err = {0};

	assert_int_equal(hub_commit_feed(c, "]", 1, &err), -1);
	assert_true(asserts(feed_after_failure, c));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_what_clients_send),
	cmocka_unit_test(lines_may_be_empty),
	cmocka_unit_test(keys_come_in_any_order),
	cmocka_unit_test(unknown_keys_are_skipped),
	cmocka_unit_test(refuses_bad_headers),
	cmocka_unit_test(refuses_bad_lines),
	cmocka_unit_test(names_like_gits_are_fine),
	cmocka_unit_test(texts_are_bounded),
	cmocka_unit_test(depth_is_bounded),
	cmocka_unit_test(lines_are_bounded),
	cmocka_unit_test(large_contents_come_in_pieces),
	cmocka_unit_test(a_sink_may_fail),
	cmocka_unit_test(nothing_follows_a_failure),
};
UNIT_MAIN(tests)
