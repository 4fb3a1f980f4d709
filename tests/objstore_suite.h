/*
 * objstore_suite.h - what every driver of an object store promises, and what that takes: readers
 * that misbehave, patterns, listings by the page.
 */
#ifndef OBJSTORE_SUITE_H
#define OBJSTORE_SUITE_H

#include "store/objects/objstore_fetch.h"
#include "store/objects/objstore_impl.h"
#include "unit.h"

#define KEYS_MAX 64

struct source { /* a reader over bytes that can be told to misbehave */
	struct str left;
	size_t step;
	bool fail_at_end;
};

static int pull(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	struct source *s = arg;

	*n = MIN(MIN(cap, s->step), s->left.n);
	if (*n == 0 && s->fail_at_end)
		return err_set(err, ERR_INVALID, "BadDigest: refused at the end");
	memcpy(p, s->left.p, *n);
	s->left = str_skip(s->left, *n);
	return 0;
}

static int gather(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	buf_add(arg, p, n);
	return 0;
}

static char *pattern(size_t n, unsigned seed)
{
	char *p = xmalloc(n + 1);

	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525U + 1013904223U;
		p[i] = (char)(seed >> 24);
	}
	p[n] = '\0';
	return p;
}

static int make_file(const void *p, size_t n)
{
	char path[] = "/tmp/stoker-objstore-file-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	struct err err = {0};

	assert_true(fd >= 0);
	(void)unlink(path);
	assert_ok(fs_write_all(fd, p, n, &err), &err);
	return fd;
}

static void same_object(struct objstore *os, const char *key, const char *want, size_t n)
{
	AUTO_BUF struct buf got = BUF_INIT((size_t)64 << 20);
	struct objstore_info info;
	struct err err = {0};

	assert_ok(objstore_get(os, key, &got, &err), &err);
	assert_int_equal(got.n, n);
	assert_memory_equal(got.p == NULL ? "" : got.p, want, n);
	assert_ok(objstore_stat(os, key, &info, &err), &err);
	assert_int_equal(info.size, n);
	assert_true(info.etag[0] != '\0' && info.modified_ms > 0);
}

/* ---- the suite --------------------------------------------------------------------------- */

static void suite_missing(struct objstore *os)
{
	AUTO_BUF struct buf b = BUF_INIT(100);
	struct objstore_info info;
	struct err err = {0};
	bool more = true;

	assert_err(objstore_get(os, "s/none", &b, &err), &err, ERR_NOT_FOUND, "get s/none in ");
	assert_err(objstore_stat(os, "s/none", &info, &err), &err, ERR_NOT_FOUND, "s/none");
	assert_err(objstore_read(os, "s/none", 0, 1, gather, &b, NULL, &err), &err, ERR_NOT_FOUND,
	           "");
	assert_err(objstore_copy(os, "s/none", "s/new", &err), &err, ERR_NOT_FOUND, "s/none");
	assert_ok(objstore_del(os, "s/none", &err), &err);
	assert_ok(objstore_del(os, "s/none/deeper", &err), &err);
	if (os->ops->list != NULL) {
		assert_ok(objstore_list(os, "s/", NULL, 10, NULL, NULL, &more, &err), &err);
		assert_false(more);
	}
	assert_int_equal(b.n, 0);
}

static void suite_put_get(struct objstore *os)
{
	AUTO_BUF struct buf b = BUF_INIT(100), small = BUF_INIT(2);
	struct objstore_info info;
	struct err err = {0};

	assert_ok(objstore_put(os, "s/a", STR_LIT("hello"), &err), &err);
	same_object(os, "s/a", "hello", 5);
	assert_ok(objstore_stat(os, "s/a", &info, &err), &err);
	assert_string_equal(info.etag, "5d41402abc4b2a76b9719d911017c592");
	assert_ok(objstore_put(os, "s/a", STR_LIT("other"), &err), &err);
	same_object(os, "s/a", "other", 5);
	assert_err(objstore_get(os, "s/a", &small, &err), &err, ERR_TOO_BIG, "");
	assert_ok(objstore_put(os, "s/empty", STR_LIT(""), &err), &err);
	same_object(os, "s/empty", "", 0);

	assert_ok(objstore_read(os, "s/a", 1, 3, gather, &b, NULL, &err), &err);
	assert_true(str_eq(buf_view(&b), "the"));
	assert_ok(objstore_read(os, "s/a", 5, 0, gather, &b, NULL, &err), &err);
	assert_err(objstore_read(os, "s/a", 4, 2, gather, &b, NULL, &err), &err, ERR_RANGE, "s/a");
	assert_err(objstore_read(os, "s/a", 6, 1, gather, &b, NULL, &err), &err, ERR_RANGE, "s/a");
	assert_ok(objstore_stat(os, "s/a", &info, &err), &err);
	buf_clear(&b);
	assert_ok(objstore_read_same(os, "s/a", info.etag, 1, 3, gather, &b, NULL, &err), &err);
	assert_int_equal(b.n, 3);
	assert_err(objstore_read_same(os, "s/a", "another", 1, 3, gather, &b, NULL, &err), &err,
	           ERR_CONFLICT, "s/a");
	assert_int_equal(b.n, 3);

	assert_ok(objstore_copy(os, "s/a", "s/deep/er/copy", &err), &err);
	assert_ok(objstore_copy(os, "s/a", "s/deep/er/copy", &err), &err);
	assert_ok(objstore_del(os, "s/a", &err), &err);
	same_object(os, "s/deep/er/copy", "other", 5);
	assert_ok(objstore_del(os, "s/deep/er/copy", &err), &err);
	assert_ok(objstore_del(os, "s/empty", &err), &err);
	assert_err(objstore_stat(os, "s/a", &info, &err), &err, ERR_NOT_FOUND, "");
}

/* Of a page of many each is one; a driver may do them together. */
static void suite_many(struct objstore *os)
{
	static const struct objstore_pair pairs[] = {{"s/a", "s/x/1"},
	                                             {"s/b", "s/x/2"},
	                                             {"s/a", "s/y/z/1"},
	                                             {"s/b", "s/x/1"},
	                                             {"s/x/2", "s/x/3"}};
	static const struct objstore_pair none[] = {{"s/a", "s/v/1"}, {"s/none", "s/v/2"}},
					  bad[] = {{"s/a", "s/w/1"}, {"s/b", "../w"}};
	AUTO_BUF struct buf b = BUF_INIT(100);
	struct objstore_info info;
	struct err err = {0};
	bool more = true;

	assert_ok(objstore_put(os, "s/a", STR_LIT("aa"), &err), &err);
	assert_ok(objstore_put(os, "s/b", STR_LIT("b"), &err), &err);
	assert_ok(objstore_copy_all(os, NULL, 0, &err), &err);
	for (int i = 0; i < 2; i++) { /* and once more onto itself */
		assert_ok(objstore_copy_all(os, pairs, COUNT(pairs), &err), &err);
		same_object(os, "s/x/1", "b", 1);
		same_object(os, "s/x/2", "b", 1);
		same_object(os, "s/x/3", "b", 1);
		same_object(os, "s/y/z/1", "aa", 2);
	}
	assert_err(objstore_copy_all(os, none, COUNT(none), &err), &err, ERR_NOT_FOUND, "s/none");
	assert_err(objstore_copy_all(os, bad, COUNT(bad), &err), &err, ERR_INVALID, "../w");
	assert_ok(objstore_del_below(os, "s/", "s/x/2", NULL, &err), &err);
	assert_err(objstore_stat(os, "s/x/1", &info, &err), &err, ERR_NOT_FOUND, "");
	same_object(os, "s/x/2", "b", 1);
	assert_ok(objstore_put(os, "s/y", STR_LIT("no folder"), &err), &err);
	assert_ok(objstore_del_below(os, "s/", NULL, NULL, &err), &err);
	assert_ok(objstore_list(os, "s/", NULL, 10, NULL, NULL, &more, &err), &err);
	assert_false(more);
	assert_ok(objstore_put(os, "s", STR_LIT("no folder"), &err), &err);
	assert_ok(objstore_del(os, "s", &err), &err);
}

struct keys {
	char key[KEYS_MAX][80];
	size_t n;
};

static void note(void *arg, const char *key, const struct objstore_info *info)
{
	struct keys *k = arg;

	assert_true(k->n < KEYS_MAX && info->size == 1 && info->etag[0] != '\0');
	FMT(k->key[k->n++], "%s", key);
}

static struct objstore *lister; /* the store behind one that cannot list */

static void list_all(struct objstore *os, const char *prefix, size_t page, struct keys *out)
{
	struct err err = {0};
	bool more = true;

	if (os->ops->list == NULL)
		os = lister;
	out->n = 0;
	while (more) {
		size_t before = out->n;
		char after[80];

		FMT(after, "%s", before == 0 ? "" : out->key[before - 1]);
		assert_ok(objstore_list(os, prefix, before == 0 ? NULL : after, page, note, out,
		                        &more, &err),
		          &err);
		assert_true(!more || out->n == before + page);
	}
}

/* More than one request takes, and keys that need care on their way. Who signs each request by
 * itself gets a few. */
static void suite_del_all(struct objstore *os)
{
	static const char *const odd[] = {
		"s/o/ a", "s/o/a ", "s/o/&amp;<Key>\"'", "s/o/+%2B?#", "s/o/\xc3\xa9\xe2\x80\xa8",
		"s/none"};
	AUTO_ARENA struct arena *a = arena_new();
	size_t n = os->ops->list != NULL ? 1005 : 12, at = 99;
	const char **key = ARENA_ARRAY(a, const char *, n);
	struct objstore_info info;
	struct err err = {0};
	struct keys got;

	for (size_t i = 0; i < n; i++) {
		key[i] = i < COUNT(odd) ? odd[i] : arena_printf(a, "s/m/%04zu", i);
		if (strcmp(key[i], "s/none") != 0)
			assert_ok(objstore_put(os, key[i], STR_LIT("1"), &err), &err);
	}
	assert_ok(objstore_put(os, "s/stays", STR_LIT("1"), &err), &err);
	list_all(os, "s/o/", 10, &got);
	assert_int_equal(got.n, COUNT(odd) - 1);
	assert_ok(objstore_del_all(os, key, n, &at, &err), &err);
	assert_ok(objstore_del_all(os, key, n, NULL, &err), &err); /* what is not there */
	assert_ok(objstore_del_all(os, NULL, 0, &at, &err), &err);
	list_all(os, "s/", 10, &got);
	assert_int_equal(got.n, 1);
	key[1] = "../w";
	assert_ok(objstore_put(os, key[0], STR_LIT("1"), &err), &err);
	assert_err(objstore_del_all(os, key, 3, &at, &err), &err, ERR_INVALID, "../w");
	assert_ok(objstore_del(os, key[0], &err), &err);
	assert_ok(objstore_del(os, "s/stays", &err), &err);
	assert_err(objstore_stat(os, key[0], &info, &err), &err, ERR_NOT_FOUND, "");
}

static void suite_keys(struct objstore *os)
{
	static const char *const bad[] = {"",   "/a",     "a/",   "a//b", ".",
	                                  "..", "a/../b", "a\nb", "a\x7f"};
	AUTO_FREE char *longest = pattern(OBJSTORE_KEY_MAX + 1, 1);
	struct err err = {0};

	for (size_t i = 0; i < COUNT(bad); i++) {
		if (objstore_put(os, bad[i], STR_LIT("x"), &err) == 0)
			fail_msg("key \"%s\" was taken", bad[i]);
		assert_int_equal(err.code, ERR_INVALID);
		err_clear(&err);
	}
	memset(longest, 'k', OBJSTORE_KEY_MAX + 1);
	for (size_t i = 100; i < OBJSTORE_KEY_MAX; i += 100)
		longest[i] = '/';
	assert_err(objstore_put(os, longest, STR_LIT("x"), &err), &err, ERR_INVALID, "1024");
	longest[OBJSTORE_KEY_MAX] = '\0';
	assert_ok(objstore_put(os, longest, STR_LIT("x"), &err), &err);
	same_object(os, longest, "x", 1);
	assert_ok(objstore_del(os, longest, &err), &err);
	assert_ok(objstore_put(os, "s/\xc3\xa9 +%&?#=\"<>", STR_LIT("odd"), &err), &err);
	same_object(os, "s/\xc3\xa9 +%&?#=\"<>", "odd", 3);
	assert_ok(objstore_del(os, "s/\xc3\xa9 +%&?#=\"<>", &err), &err);
}

struct progress {
	uint64_t last;
	unsigned calls;
};

static void on_progress(void *arg, uint64_t bytes)
{
	struct progress *p = arg;

	assert_true(bytes >= p->last);
	p->last = bytes;
	p->calls++;
}

static void suite_put_file(struct objstore *os, size_t n)
{
	AUTO_FREE char *body = pattern(n, 7);
	AUTO_FD int fd = make_file(body, n);
	struct digest want = hash_sha256(body, n), got = {0}, wrong = want;
	atomic_bool cancel = true;
	struct progress p = {0};
	struct objstore_info info;
	struct err err = {0};

	wrong.b[0] ^= 1;
	assert_err(objstore_put_file(os, "s/f", fd, n, &wrong, &got, NULL, NULL, NULL, &err), &err,
	           ERR_CORRUPT, "s/f");
	assert_err(objstore_put_file(os, "s/f", fd, n, NULL, NULL, NULL, NULL, &cancel, &err), &err,
	           ERR_CANCELED, "");
	if (objstore_put_file(os, "s/f", fd, n + 1, &want, NULL, NULL, NULL, NULL, &err) == 0)
		fail_msg("a file that is too short was stored");
	err_clear(&err);
	assert_err(objstore_stat(os, "s/f", &info, &err), &err, ERR_NOT_FOUND, "");

	assert_ok(objstore_put_file(os, "s/f", fd, n, &want, &got, on_progress, &p, NULL, &err),
	          &err);
	assert_true(digest_same(&want, &got));
	assert_true(n == 0 || (p.calls > 0 && p.last == n));
	same_object(os, "s/f", body, n);
	assert_ok(objstore_put_file(os, "s/f", fd, n, NULL, NULL, NULL, NULL, NULL, &err), &err);
	same_object(os, "s/f", body, n);
	assert_ok(objstore_del(os, "s/f", &err), &err);
}

static void suite_stream(struct objstore *os)
{
	AUTO_FREE char *body = pattern(3 << 20, 9);
	struct str whole = str_n(body, 3 << 20);
	struct objstore_info info;
	struct err err = {0};
	struct source s = {.left = whole, .step = 70001};
	char hex[33];
	uint8_t md5[16];

	assert_ok(objstore_put_stream(os, "s/st", whole.n, pull, &s, &info, &err), &err);
	hash_md5(whole.p, whole.n, md5);
	hex_encode(md5, 16, hex);
	assert_string_equal(info.etag, hex);
	same_object(os, "s/st", body, whole.n);

	s = (struct source){.left = whole, .step = 100000};
	assert_err(objstore_put_stream(os, "s/st2", whole.n + 1, pull, &s, NULL, &err), &err,
	           ERR_INVALID, "IncompleteBody");
	s = (struct source){.left = whole, .step = 100000};
	assert_err(objstore_put_stream(os, "s/st2", whole.n - 1, pull, &s, NULL, &err), &err,
	           ERR_INVALID, "IncompleteBody");
	s = (struct source){.left = whole, .step = 100000, .fail_at_end = true};
	assert_err(objstore_put_stream(os, "s/st2", whole.n, pull, &s, NULL, &err), &err,
	           ERR_INVALID, "BadDigest");
	assert_err(objstore_stat(os, "s/st2", &info, &err), &err, ERR_NOT_FOUND, "");
	assert_ok(objstore_del(os, "s/st", &err), &err);
}

static void suite_list(struct objstore *os)
{
	/* in the order of bytes: '-' '.' '/' '0' */
	static const char *const keys[] = {
		"l/a-b", "l/a.b",  "l/a/1", "l/a/b/c",    "l/a/b/d",
		"l/a0",  "l/ab/x", "l/b",   "l/\xc3\xa9", "l2/x",
	};
	struct err err = {0};
	struct keys got;
	bool more = true;

	for (size_t i = COUNT(keys); i-- > 0;)
		assert_ok(objstore_put(os, keys[i], STR_LIT("1"), &err), &err);
	for (size_t page = 1; page <= COUNT(keys) + 1; page++) {
		list_all(os, "l", page, &got);
		assert_int_equal(got.n, COUNT(keys));
		for (size_t i = 0; i < got.n; i++)
			assert_string_equal(got.key[i], keys[i]);
	}
	list_all(os, "l/a", 2, &got);
	assert_int_equal(got.n, 7);
	list_all(os, "l/a/", 2, &got);
	assert_int_equal(got.n, 3);
	list_all(os, "l/a/b/c", 2, &got);
	assert_int_equal(got.n, 1);
	list_all(os, "l/a/b/cc", 2, &got);
	assert_int_equal(got.n, 0);
	list_all(os, "l//", 2, &got);
	assert_int_equal(got.n, 0);
	got.n = 0; /* after: a name that is no key, and one inside a folder */
	assert_ok(objstore_list(os, "l/", "l/a/b", 1, note, &got, &more, &err), &err);
	assert_string_equal(got.key[0], "l/a/b/c");
	assert_true(more);
	got.n = 0;
	assert_ok(objstore_list(os, "l/", "l/a/zz", 1, note, &got, &more, &err), &err);
	assert_string_equal(got.key[0], "l/a0");
	for (size_t i = 0; i < COUNT(keys); i++)
		assert_ok(objstore_del(os, keys[i], &err), &err);
	list_all(os, "l", 5, &got);
	assert_int_equal(got.n, 0);
}

static void put_part(struct objstore *os, const char *key, const char *id, uint32_t number,
                     struct str body, bool sized, struct objstore_part *out)
{
	struct source s = {.left = body, .step = 1 << 20};
	struct err err = {0};

	out->number = number;
	assert_ok(objstore_parts_put(os, key, id, number, sized ? body.n : UINT64_MAX, pull, &s,
	                             out->etag, &err),
	          &err);
}

static void suite_parts(struct objstore *os, bool sized)
{
	enum { PART = 5 << 20, TAIL = 1234 };
	AUTO_FREE char *body = pattern(2 * PART + TAIL, 3);
	struct objstore_part part[3], wrong[3];
	struct objstore_info info;
	struct source bad = {.left = str_n(body, PART), .step = 1 << 20, .fail_at_end = true};
	char id[OBJSTORE_UPLOAD_CAP], etag[80];
	struct err err = {0};
	struct keys got;

	assert_ok(objstore_parts_begin(os, "p/x", id, &err), &err);
	/* out of order, the second twice, and once in vain */
	put_part(os, "p/x", id, 3, str_n(body + 2 * PART, TAIL), sized, &part[2]);
	put_part(os, "p/x", id, 2, str_n(body, PART), sized, &part[1]);
	put_part(os, "p/x", id, 1, str_n(body, PART), sized, &part[0]);
	put_part(os, "p/x", id, 2, str_n(body + PART, PART), sized, &part[1]);
	if (objstore_parts_put(os, "p/x", id, 1, PART, pull, &bad, etag, &err) == 0)
		fail_msg("a refused part was stored");
	err_clear(&err);
	list_all(os, "p", 10, &got);
	assert_int_equal(got.n, 0); /* invisible */
	memcpy(wrong, part, sizeof(part));
	memset(wrong[1].etag, '0', 32);
	assert_err(objstore_parts_end(os, "p/x", id, wrong, 3, &info, &err), &err, ERR_INVALID,
	           "InvalidPart");
	wrong[1] = part[0];
	assert_err(objstore_parts_end(os, "p/x", id, wrong, 3, &info, &err), &err, ERR_INVALID,
	           "InvalidPartOrder");
	assert_ok(objstore_parts_end(os, "p/x", id, part, 3, &info, &err), &err);
	assert_int_equal(info.size, 2 * PART + TAIL);
	assert_true(str_ends(str_of(info.etag), "-3"));
	same_object(os, "p/x", body, 2 * PART + TAIL);
	assert_ok(objstore_del(os, "p/x", &err), &err);

	assert_ok(objstore_parts_begin(os, "p/x", id, &err), &err);
	put_part(os, "p/x", id, 1, str_n(body, PART), sized, &part[0]);
	assert_ok(objstore_parts_abort(os, "p/x", id, &err), &err);
	assert_err(objstore_parts_end(os, "p/x", id, part, 1, &info, &err), &err, ERR_NOT_FOUND,
	           "");
	assert_err(objstore_stat(os, "p/x", &info, &err), &err, ERR_NOT_FOUND, "");
}

static void note_progress(void *arg, uint64_t done)
{
	*(uint64_t *)arg = done;
}

#define FETCHED (((size_t)17 << 20) + 3) /* some ranges, where they travel in ranges */

static int fetch_to(struct objstore *os, size_t size, const struct digest *sha256, uint8_t *out,
                    struct err *err)
{
	char path[] = "/tmp/stoker-fetch-XXXXXX";
	AUTO_FD int fd = mkostemp(path, O_CLOEXEC);
	uint64_t told = 0;
	const struct objstore_fetch f = {.key = "s/fetched",
	                                 .size = size,
	                                 .sha256 = sha256,
	                                 .fd = fd,
	                                 .progress = note_progress,
	                                 .arg = &told};

	assert_true(fd >= 0);
	(void)unlink(path);
	if (objstore_fetch(os, &f, err) < 0)
		return -1;
	assert_true(told == size);
	assert_int_equal(lseek(fd, 0, SEEK_END), (off_t)size);
	assert_int_equal(pread(fd, out, size, 0), (ssize_t)size);
	return 0;
}

/* Small ones and large ones; nothing that is not what was promised passes. */
static void suite_fetch(struct objstore *os)
{
	static const size_t sizes[] = {0, 5, (size_t)1 << 20, FETCHED};
	AUTO_FREE uint8_t *want = xmalloc(FETCHED), *got = xmalloc(FETCHED + 1);
	struct err err = {0};

	for (size_t i = 0; i < FETCHED; i++)
		want[i] = (uint8_t)((i * 2654435761U) >> 13);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		struct digest d = hash_sha256(want, sizes[i]), other = hash_sha256("x", 1);

		assert_ok(objstore_put(os, "s/fetched", str_n((const char *)want, sizes[i]), &err),
		          &err);
		assert_ok(fetch_to(os, sizes[i], &d, got, &err), &err);
		assert_memory_equal(got, want, sizes[i]);
		assert_err(fetch_to(os, sizes[i], &other, got, &err), &err, ERR_CORRUPT, "");
		assert_err(fetch_to(os, sizes[i] + 1, &d, got, &err), &err, ERR_CORRUPT, "");
		if (sizes[i] > 0)
			assert_err(fetch_to(os, sizes[i] - 1, &d, got, &err), &err, ERR_CORRUPT,
			           "");
	}
	assert_ok(objstore_del(os, "s/fetched", &err), &err);
}

static void suite(struct objstore *os)
{
	suite_missing(os);
	suite_fetch(os);
	suite_put_get(os);
	if (os->ops->list != NULL) /* it deletes by prefix */
		suite_many(os);
	suite_del_all(os);
	suite_keys(os);
	suite_put_file(os, 0);
	suite_put_file(os, 1000);
	suite_put_file(os, ((size_t)20 << 20) + 17);
	suite_stream(os);
	if (os->ops->list != NULL)
		suite_list(os);
	if (os->ops->parts_begin == NULL)
		return;
	suite_parts(os, true);
	suite_parts(os, false);
}

#endif
