/* fuzz_hub_commit.c - first line: how to cut; then a commit. Whole or in pieces, it is the same. */
#include "core/hub_commit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int on_content(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	struct buf *out = arg;

	assert((p == NULL) == (n == 0));
	buf_printf(out, "content %zu\n", n);
	buf_add(out, p, n);
	return 0;
}

static int on_line(void *arg, const struct hub_line *l, bool had_content, struct err *err UNUSED)
{
	struct buf *out = arg;
	char hex[HASH_HEX_CAP];

	assert(had_content == (l->kind == HUB_LINE_FILE));
	buf_printf(out, "\nline %d ", (int)l->kind);
	if (l->kind == HUB_LINE_HEADER) {
		assert(l->parent[0] == '\0' || hub_commit_ok(str_of(l->parent)));
		buf_printf(out, "%s\n%s\n%s", l->summary, l->description, l->parent);
	} else {
		assert(l->path[0] != '\0' && !str_ends(str_of(l->path), "/"));
		buf_puts(out, l->path);
	}
	if (l->kind == HUB_LINE_LFS_FILE) {
		digest_hex(&l->oid, hex);
		buf_printf(out, "\n%s %d %" PRIu64, hex, l->has_size, l->size);
	}
	return 0;
}

static int read_all(struct str split, struct str text, struct buf *out, struct err *err)
{
	AUTO_HUB_COMMIT_READER struct hub_commit_reader *r = hub_commit_reader_new(
		&(struct hub_commit_sink){.content = on_content, .line = on_line, .arg = out});

	for (size_t i = 0; text.n > 0; i++) {
		size_t step = split.n > 0 ? (uint8_t)split.p[i % split.n] % 16U : text.n;
		struct str in = str_n(text.p, MIN(step + (i % 64 == 63), text.n));

		if (hub_commit_feed(r, in.p, in.n, err) < 0)
			return -1;
		text = str_skip(text, in.n);
	}
	return hub_commit_end(r, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_BUF struct buf whole = BUF_INIT((size_t)64 << 20);
	AUTO_BUF struct buf parts = BUF_INIT((size_t)64 << 20);
	struct str text = str_n((const char *)data, n), split;
	struct err one = {0}, two = {0};
	int rc;

	if (!str_cut(&text, '\n', &split))
		return 0;
	rc = read_all(str_n(NULL, 0), text, &whole, &one);
	assert(read_all(split, text, &parts, &two) == rc);
	assert(one.code == two.code && strcmp(one.msg, two.msg) == 0);
	assert(rc == 0 || one.code == ERR_INVALID || one.code == ERR_TOO_BIG);
	assert(str_same(buf_view(&whole), buf_view(&parts)));
	return 0;
}
