/* test_xet_shard.c - shards that real clients sent, and such as none sends. */
#include "core/xet_shard.h"

#include "xet_recorded.h"

static const struct xet_file *file_of(const struct xet_shard *s, const char *hash)
{
	char text[XET_HASH_CAP];

	for (size_t i = 0; i < s->n_files; i++) {
		xet_hash_text(&s->file[i].hash, text);
		if (strcmp(text, hash) == 0)
			return &s->file[i];
	}
	fail_msg("no file %s", hash);
	return NULL;
}

static void read_ok(struct arena *a, struct str bytes, struct xet_shard *out)
{
	struct err err = {0};

	assert_ok(xet_shard_read(a, bytes, out, &err), &err);
	for (size_t i = 0; i < out->n_xorbs; i++) {
		struct xet_hash h = xet_xorb_hash(&out->xorb[i].chunks);

		assert_true(xet_hash_same(&h, &out->xorb[i].hash));
	}
}

static void reads_what_clients_sent(void **state UNUSED)
{
	static const struct {
		const char *name;
		size_t files, terms, xorbs, chunks;
		uint64_t bytes;
	} rows[] = {
		{"four", 4, 4, 1, 4, 5263},
		{"footer", 4, 4, 1, 4, 5263},
		{"footer-promised", 4, 4, 1, 4, 5263},
		{"again", 3, 3, 0, 0, 4763},
		{"zeros", 1, 22, 1, 2, 3000000},
		{"tree", 1, 1, 1, 58, 4000015},
		{"empty", 1, 0, 0, 0, 0},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf b = BUF_INIT(0);
		AUTO_ARENA struct arena *a = arena_new();
		struct xet_shard s;
		size_t terms = 0, chunks = 0;
		uint64_t bytes = 0;

		recorded("shard", rows[i].name, &b);
		read_ok(a, buf_view(&b), &s);
		for (size_t k = 0; k < s.n_files; k++) {
			terms += s.file[k].n;
			bytes += s.file[k].bytes;
			assert_row(s.file[k].has_sha256 == (rows[i].bytes > 0), rows[i].name);
			assert_row(s.file[k].proof != NULL, rows[i].name);
		}
		for (size_t k = 0; k < s.n_xorbs; k++)
			chunks += s.xorb[k].chunks.n;
		assert_row(s.n_files == rows[i].files && terms == rows[i].terms, rows[i].name);
		assert_row(s.n_xorbs == rows[i].xorbs && chunks == rows[i].chunks, rows[i].name);
		assert_row(bytes == rows[i].bytes, rows[i].name);
	}
}

/* Its files follow from its xorbs: terms, their proofs and their names; and SHA-256 reads right. */
static void files_follow_from_xorbs(void **state UNUSED)
{
	static const char *const names[] = {"four", "footer", "zeros", "tree"};
	const struct digest x = hash_sha256("x", 1);

	for (size_t i = 0; i < COUNT(names); i++) {
		AUTO_BUF struct buf b = BUF_INIT(0);
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		struct xet_shard s;

		recorded("shard", names[i], &b);
		read_ok(a, buf_view(&b), &s);
		for (size_t k = 0; k < s.n_files; k++) {
			const struct xet_file *f = &s.file[k];
			AUTO_XET_TREE struct xet_tree *t = xet_tree_new();
			struct xet_hash h;

			for (size_t m = 0; m < f->n; m++) {
				assert_true(xet_hash_same(&f->term[m].xorb, &s.xorb[0].hash));
				assert_ok(xet_term_check(&f->term[m], &f->proof[m],
				                         &s.xorb[0].chunks, &err),
				          &err);
				xet_term_add(&f->term[m], &s.xorb[0].chunks, t);
			}
			h = xet_tree_end_file(t);
			assert_true(xet_hash_same(&h, &f->hash));
		}
		if (i > 1)
			continue;
		assert_true(digest_same(&file_of(&s, FILE_ONE)->sha256, &x));
		assert_int_equal(file_of(&s, FILE_TEXT)->bytes, 1960);
		hash_is(s.xorb[0].hash, i == 0 ? XORB_FOUR : XORB_FOOTER);
	}
}

static void refuses_every_cut(void **state UNUSED)
{
	static const char *const names[] = {"four", "footer"};

	for (size_t i = 0; i < COUNT(names); i++) {
		AUTO_BUF struct buf b = BUF_INIT(0);
		size_t passed = 0;

		recorded("shard", names[i], &b);
		buf_putc(&b, 0);
		for (size_t n = 0; n <= b.n; n++) {
			/* at its exact size, so that a read behind it is seen */
			AUTO_FREE char *copy = xmalloc(n + 1);
			AUTO_ARENA struct arena *a = arena_new();
			struct xet_shard s;
			struct err err = {0};

			memcpy(copy + 1, b.p, n);
			if (xet_shard_read(a, str_n(copy + 1, n), &s, &err) == 0)
				passed++;
		}
		/* whole; and with a footer that is promised and never comes */
		assert_int_equal(passed, i == 0 ? 1 : 2);
	}
}

/* Of "four": the head, four files of four records each, an end, a xorb of four chunks, an end. */
#define AT(record, byte) ((record)*48 + (byte))
#define XORB 18

static void refuses_what_no_client_sends(void **state UNUSED)
{
	static const struct {
		const char *name;
		size_t at;
		unsigned char byte;
		enum err_code code;
		const char *words;
	} rows[] = {
		{"another tag", AT(0, 31), 1, ERR_INVALID, "no shard"},
		{"another version", AT(0, 32), 3, ERR_INVALID, "version 3"},
		{"another footer", AT(0, 40), 100, ERR_INVALID, "100"},
		{"unknown flags", AT(1, 32), 1, ERR_INVALID, "c0000001"},
		{"more terms", AT(1, 36), 2, ERR_INVALID, ""},
		{"terms behind the end", AT(1, 39), 0xff, ERR_INVALID, "the shard ends within"},
		{"a reserved byte of a file", AT(1, 47), 1, ERR_INVALID, "reserved"},
		{"a term of no chunk", AT(2, 44), 0, ERR_INVALID, "chunks"},
		{"a term with too many chunks", AT(2, 47), 1, ERR_INVALID, "chunks"},
		{"a term with too many bytes", AT(2, 39), 1, ERR_INVALID, "bytes"},
		{"a reserved byte of a proof", AT(3, 32), 1, ERR_INVALID, "reserved"},
		{"a reserved byte of a SHA-256", AT(4, 47), 1, ERR_INVALID, "reserved"},
		{"an end that says something", AT(XORB - 1, 40), 1, ERR_INVALID, "reserved"},
		{"a xorb of no chunk", AT(XORB, 36), 0, ERR_INVALID, "0 chunks"},
		{"a xorb of too many chunks", AT(XORB, 38), 1, ERR_INVALID, "65540 chunks"},
		{"a xorb of more chunks", AT(XORB, 36), 5, ERR_INVALID, ""},
		{"a xorb of other bytes", AT(XORB, 40), 1, ERR_INVALID, "5263 bytes"},
		{"a chunk elsewhere", AT(XORB + 1, 32), 1, ERR_INVALID, "begins at 1"},
		{"a chunk of too many bytes", AT(XORB + 1, 39), 1, ERR_INVALID, "bytes"},
		{"a reserved byte of a chunk", AT(XORB + 1, 47), 1, ERR_INVALID, "reserved"},
		{"no end", AT(XORB + 5, 0), 0, ERR_INVALID, ""},
	};
	AUTO_BUF struct buf b = BUF_INIT(0);
	struct xet_shard s;

	recorded("shard", "four", &b);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct err err = {0};
		const char was = b.p[rows[i].at];

		b.p[rows[i].at] = (char)rows[i].byte;
		assert_row(b.p[rows[i].at] != was, rows[i].name);
		assert_row(xet_shard_read(a, buf_view(&b), &s, &err) == -1, rows[i].name);
		if (err.code != rows[i].code || strstr(err.msg, rows[i].words) == NULL)
			fail_msg("row \"%s\": %s", rows[i].name, err.msg);
		b.p[rows[i].at] = was;
	}
	/* what no one needs may be anything: flags of terms and chunks, the size on disk */
	b.p[AT(2, 32)] = 1;
	b.p[AT(XORB, 44)] = 1;
	b.p[AT(XORB + 1, 43)] = (char)0x80;
	{
		AUTO_ARENA struct arena *a = arena_new();

		read_ok(a, buf_view(&b), &s);
	}
}

static void refuses_other_footers(void **state UNUSED)
{
	static const struct {
		size_t back; /* from the end */
		const char *words;
	} rows[] = {{200, "footer"}, {192, "footer"}, {8, "footer"}, {200 - 72, "disguised"}};
	AUTO_BUF struct buf b = BUF_INIT(0);

	recorded("shard", "footer", &b);
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct xet_shard s;
		struct err err = {0};

		b.p[b.n - rows[i].back] ^= 1;
		assert_err(xet_shard_read(a, buf_view(&b), &s, &err), &err, ERR_INVALID,
		           rows[i].words);
		b.p[b.n - rows[i].back] ^= 1;
	}
	b.p[40] = 0; /* not promised, and there */
	{
		AUTO_ARENA struct arena *a = arena_new();
		struct xet_shard s;
		struct err err = {0};

		assert_err(xet_shard_read(a, buf_view(&b), &s, &err), &err, ERR_INVALID, "follow");
	}
}

static void is_bounded(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *large = xcalloc(1, XET_SHARD_MAX + 1);
	struct xet_shard s;
	struct err err = {0};

	assert_err(xet_shard_read(a, str_n(large, XET_SHARD_MAX + 1), &s, &err), &err, ERR_TOO_BIG,
	           "");
	assert_err(xet_shard_read(a, str_n(large, XET_SHARD_MAX), &s, &err), &err, ERR_INVALID,
	           "no shard");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(reads_what_clients_sent), cmocka_unit_test(files_follow_from_xorbs),
	cmocka_unit_test(refuses_every_cut),       cmocka_unit_test(refuses_what_no_client_sends),
	cmocka_unit_test(refuses_other_footers),   cmocka_unit_test(is_bounded),
};
UNIT_MAIN(tests)
