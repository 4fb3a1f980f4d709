/* test_ship_cost.c - what a verdict costs: one walk over the folder, and of each file its headers;
 * counted, not timed. */
#include "ship_fixture.h"

#define SMALL 1000
#define SHARDS 200
#define HEADERS_BYTES 512 /* of a file, more than it has: measured 15 */
#define CALLS 4           /* reads of a file, its data among them: measured 2 */
#define SHARD_BYTES ((size_t)64 << 10)

/* What this process has read so far, in bytes and in calls. */
struct cost {
	uint64_t bytes, calls;
};

static struct cost cost_now(struct place *p)
{
	AUTO_BUF struct buf text = BUF_INIT(4096);
	struct cost c = {0};
	struct str rest, line;
	struct err err = {0};

	assert_ok(fs_read(AT_FDCWD, "/proc/self/io", &text, &err), &err);
	rest = buf_view(&text);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, "rchar: "))
			c.bytes = strtoull(arena_strz(p->a, line) + 7, NULL, 10);
		else if (str_starts(line, "syscr: "))
			c.calls = strtoull(arena_strz(p->a, line) + 7, NULL, 10);
	}
	assert_true(c.bytes > 0 && c.calls > 0);
	return c;
}

static uint64_t put_all(struct place *p)
{
	AUTO_BUF struct buf index = BUF_INIT((size_t)1 << 20);
	uint64_t bytes = 0;
	struct stat st;

	buf_puts(&index, "{\"weight_map\":{");
	for (int i = 1; i <= SHARDS; i++) {
		char *name = arena_printf(p->a, "model-%05d-of-%05d.safetensors", i, SHARDS);

		char *path = arena_printf(p->a, "checkpoint-1/%s", name);

		put_tensors(p, path, 'w', SHARD_BYTES, 0);
		assert_int_equal(stat(in(p, path), &st), 0);
		bytes += (uint64_t)st.st_size;
		buf_printf(&index, "%s\"t%d\":\"%s\"", i == 1 ? "" : ",", i, name);
	}
	buf_puts(&index, "}}\n");
	put_bytes(p, "checkpoint-1/model.safetensors.index.json", index.p, index.n);
	for (int i = 0; i < SMALL; i++)
		put(p, arena_printf(p->a, "checkpoint-2/%d/part-%d.json", i % 20, i), "{}\n");
	return bytes + index.n + (uint64_t)3 * SMALL;
}

static struct cost cost_since(struct place *p, const struct cost *before)
{
	struct cost now = cost_now(p);

	return (struct cost){now.bytes - before->bytes, now.calls - before->calls};
}

/* The data is read once, to be sent; a verdict on all of it takes a few reads of each file, and
 * looking on while nothing changes takes none. */
static void one_walk_and_the_headers(void **state)
{
	struct place *p = *state;
	uint64_t stored = put_all(p), files = SHARDS + 1 + SMALL;
	struct cost before = cost_now(p), cost;
	struct ckpt c;

	start(p);
	wait_said(p, "[checkpoint-1 COMPLETE 201]");
	wait_said(p, "[checkpoint-2 COMPLETE 1000]");
	cost = cost_since(p, &before);
	assert_true(cost.bytes >= stored);
	if (cost.bytes - stored > files * HEADERS_BYTES || cost.calls > files * CALLS)
		fail_msg("%" PRIu64 " bytes beside the %" PRIu64 " stored, %" PRIu64
		         " calls for %" PRIu64 " files",
		         cost.bytes - stored, stored, cost.calls, files);
	before = cost_now(p);
	wait_walks(p, 5);
	cost = cost_since(p, &before);
	if (cost.calls > files / 10)
		fail_msg("%" PRIu64 " calls while nothing changes", cost.calls);
	for (int i = 1; i <= 2; i++) {
		assert_true(manifest(p, arena_printf(p->a, "checkpoint-%d", i), &c));
		assert_int_equal(c.state, CKPT_COMPLETE);
	}
}

static const struct CMUnitTest tests[] = {
	T(one_walk_and_the_headers),
};
UNIT_MAIN(tests)
