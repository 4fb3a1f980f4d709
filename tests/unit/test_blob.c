/* test_blob.c - blobs are whole and verified or not there; manifests never name a hole. */
#include "unit.h"

#include "store/blob.h"

static char folder[64];

static struct blobs *open_store(const char *name)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct blobs *b = NULL;
	struct err err = {0};

	assert_ok(blobs_open(&b, dir, &err), &err);
	return b;
}

static bool there(const char *store, const char *path)
{
	AUTO_FREE char *full = xasprintf("%s/%s/%s", folder, store, path);
	struct stat st;

	return stat(full, &st) == 0;
}

static void blob_put_and_read(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("put");
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int fd = -1;
	struct digest d, again, none = {{1}};
	struct err err = {0};
	struct stat st;
	uint64_t size;
	char text[8] = "";

	assert_err(blobs_fd(b, &none, &fd, &size, &err), &err, ERR_NOT_FOUND, "blobs/sha256/01/01");
	assert_false(blobs_has(b, &none, 0));
	assert_ok(blobs_put(b, STR_LIT("hello"), &d, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("hello"), &again, &err), &err);
	assert_true(digest_same(&d, &again));
	assert_true(blobs_has(b, &d, 5));
	assert_false(blobs_has(b, &d, 6));
	assert_ok(blobs_fd(b, &d, &fd, &size, &err), &err);
	assert_int_equal(size, 5);
	assert_int_equal(read(fd, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(stat(blobs_path(b, &d, a), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_ok(blobs_verify(b, &d, NULL, NULL, &err), &err);
}

static void blob_tmp_survives_and_is_locked(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("tmp");
	struct digest d = hash_sha256("content", 7);
	char journal[FS_PATH_MAX];
	struct err err = {0};
	int fd = -1, other = -1;
	char text[8] = "";

	assert_err(blobs_tmp(b, "../x", &fd, journal, &err), &err, ERR_INVALID, "no name");
	assert_err(blobs_tmp(b, "", &fd, journal, &err), &err, ERR_INVALID, "no name");
	assert_ok(blobs_tmp(b, "fetch-1", &fd, journal, &err), &err);
	assert_err(blobs_tmp(b, "fetch-1", &other, journal, &err), &err, ERR_BUSY, "being fetched");
	assert_ok(fs_write_all(fd, "cont", 4, &err), &err);
	(void)close(fd); /* killed */
	assert_ok(blobs_tmp(b, "fetch-1", &fd, journal, &err), &err);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_ok(fs_write_all(fd, "ent", 3, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, journal, STR_LIT("j"), 0600, &err), &err);
	assert_ok(blobs_commit(b, "fetch-1", fd, &d, &err), &err);
	(void)close(fd);
	assert_true(blobs_has(b, &d, 7));
	assert_false(there("tmp", "tmp/fetch-1"));
	assert_false(there("tmp", "tmp/fetch-1.journal"));
	/* the next user of the name gets a file of his own, not the blob */
	assert_ok(blobs_tmp(b, "fetch-1", &fd, journal, &err), &err);
	assert_ok(fs_write_all(fd, "x", 1, &err), &err);
	assert_true(blobs_has(b, &d, 7));
	assert_ok(blobs_drop_tmp(b, "fetch-1", &err), &err);
	assert_ok(blobs_drop_tmp(b, "fetch-1", &err), &err);
	(void)close(fd);
	assert_false(there("tmp", "tmp/fetch-1"));
}

static int end_at(void *arg, size_t bytes, struct err *err)
{
	*(size_t *)arg += bytes;
	return err_set(err, ERR_CANCELED, "stopped");
}

static void blob_that_rotted_is_moved_aside(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("rot");
	AUTO_ARENA struct arena *a = arena_new();
	struct err err = {0};
	struct digest d;
	size_t read = 0;

	assert_ok(blobs_put(b, STR_LIT("hello"), &d, &err), &err);
	assert_err(blobs_verify(b, &d, end_at, &read, &err), &err, ERR_CANCELED, "stopped");
	assert_int_equal(read, 5);
	assert_int_equal(chmod(blobs_path(b, &d, a), 0644), 0);
	{
		AUTO_FD int fd = open(blobs_path(b, &d, a), O_WRONLY | O_CLOEXEC);

		assert_ok(fs_write_all(fd, "j", 1, &err), &err);
	}
	assert_err(blobs_verify(b, &d, NULL, NULL, &err), &err, ERR_CORRUPT, "fetched again");
	assert_true(blobs_has(b, &d, 5)); /* reading changes nothing */
	assert_ok(blobs_quarantine(b, &d, &err), &err);
	assert_ok(blobs_quarantine(b, &d, &err), &err); /* gone already */
	assert_false(blobs_has(b, &d, 5));
	assert_ok(blobs_put(b, STR_LIT("hello"), &d, &err), &err);
	assert_ok(blobs_verify(b, &d, NULL, NULL, &err), &err);
}

static void add(struct manifest *m, const char *path, struct blobs *b, const char *body)
{
	struct err err = {0};
	struct digest d = hash_sha256(body, strlen(body));

	if (b != NULL)
		assert_ok(blobs_put(b, str_of(body), &d, &err), &err);
	assert_ok(manifest_add(m, str_of(path), strlen(body), &d, &err), &err);
}

static int keep_one(void *arg, const struct digest *manifest, bool *keep, struct err *err UNUSED)
{
	*keep = digest_same(manifest, arg);
	return 0;
}

static void count_item(void *arg, const struct blobs_item *x)
{
	((unsigned *)arg)[x->kind]++;
}

static unsigned dropped;

static int count_drop(void *arg UNUSED, const struct digest *manifest UNUSED,
                      struct err *err UNUSED)
{
	dropped++;
	return 0;
}

static void blob_manifests(void **state UNUSED)
{
	struct blobs_collected out;
	AUTO_BLOBS struct blobs *b = open_store("manifests");
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m, back;
	struct digest name, other;
	struct err err = {0};
	char hex[HASH_HEX_CAP], path[FS_PATH_MAX];

	manifest_init(&m, a);
	add(&m, "a/x", b, "one");
	add(&m, "b", NULL, "two");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_err(blobs_put_manifest(b, &m, &name, &err), &err, ERR_CONFLICT, "the blob of b");
	assert_ok(blobs_put(b, STR_LIT("two"), &other, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &name, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &name, &err), &err);
	assert_ok(blobs_get_manifest(b, a, &name, &back, &err), &err);
	assert_int_equal(back.n, 2);
	assert_string_equal(back.file[0].path, "a/x");
	assert_err(blobs_get_manifest(b, a, &other, &back, &err), &err, ERR_NOT_FOUND,
	           "manifests/");

	digest_hex(&name, hex);
	FMT(path, "%s/manifests/manifests/%s", folder, hex);
	assert_int_equal(chmod(path, 0644), 0);
	{
		AUTO_FD int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

		assert_ok(fs_write_all(fd, "x", 1, &err), &err);
	}
	assert_err(blobs_get_manifest(b, a, &name, &back, &err), &err, ERR_CORRUPT, hex);
	/* nor is it known what may go while one is there that cannot be read */
	assert_err(blobs_collect(b, 0, &(struct blobs_choice){keep_one, NULL, &other},
	                         &(struct blobs_way){0}, &out, &err),
	           &err, ERR_CORRUPT, hex);
}

static void blob_collects_what_nobody_names(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("gc");
	AUTO_ARENA struct arena *a = arena_new();
	struct digest name, orphan;
	struct blobs_collected out;
	struct manifest m;
	unsigned told[4] = {0};
	struct blobs_way dry = {true, count_item, told}, real = {0};
	char journal[FS_PATH_MAX];
	uint64_t files = 9, bytes = 9;
	struct err err = {0};
	int busy = -1, left = -1;

	manifest_init(&m, a);
	add(&m, "a", b, "one");
	add(&m, "b", b, "two!");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &name, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("nobody's"), &orphan, &err), &err);
	assert_ok(blobs_tmp(b, "busy", &busy, journal, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, journal, STR_LIT("j"), 0600, &err), &err);
	assert_ok(blobs_tmp(b, "left", &left, journal, &err), &err);
	(void)close(left);

	assert_ok(blobs_usage(b, &files, &bytes, &err), &err);
	assert_int_equal(files, 3);
	assert_int_equal(bytes, 3 + 4 + 8);
	assert_ok(blobs_gc(b, 3600, &real, &out, &err), &err);
	assert_int_equal(out.files, 0); /* all young */
	assert_ok(blobs_gc(b, 0, &dry, &out, &err), &err);
	assert_int_equal(out.files, 2);
	assert_int_equal(out.bytes, 8);
	assert_int_equal(told[BLOBS_BLOB], 1);
	assert_int_equal(told[BLOBS_PARTIAL], 1);
	assert_true(blobs_has(b, &orphan, 8));
	assert_ok(blobs_gc(b, 0, &real, &out, &err), &err);
	assert_int_equal(out.files, 2);
	assert_false(blobs_has(b, &orphan, 8));
	assert_false(there("gc", "tmp/left"));
	assert_true(there("gc", "tmp/busy") && there("gc", "tmp/busy.journal"));
	(void)close(busy);
	assert_ok(blobs_usage(b, &files, &bytes, &err), &err);
	assert_int_equal(files, 2);
	assert_ok(blobs_collect(b, 0, &(struct blobs_choice){keep_one, NULL, &orphan}, &real, &out,
	                        &err),
	          &err);
	assert_int_equal(out.files, 2);
}

static void blob_collects_manifests(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("manifests-gc");
	AUTO_ARENA struct arena *a = arena_new();
	struct digest keep, go, again;
	struct blobs_choice by = {keep_one, count_drop, &keep};
	unsigned told[4] = {0};
	struct blobs_way dry = {true, count_item, told}, real = {0};
	struct blobs_collected out;
	struct manifest m, back;
	struct err err = {0};

	manifest_init(&m, a);
	add(&m, "a", b, "mine");
	add(&m, "b", b, "shared");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &keep, &err), &err);
	manifest_init(&m, a);
	add(&m, "b", b, "shared");
	add(&m, "c", b, "alone");
	add(&m, "d", b, "alone");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &go, &err), &err);
	assert_ok(blobs_collect(b, 3600, &by, &real, &out, &err), &err);
	assert_int_equal(out.manifests, 0); /* its row may still be on its way */
	dropped = 0;
	assert_ok(blobs_collect(b, 0, &by, &dry, &out, &err), &err);
	assert_int_equal(out.manifests, 1);
	assert_int_equal(out.bytes, strlen("alone"));
	assert_int_equal(told[BLOBS_MANIFEST], 1);
	assert_int_equal(dropped, 0);
	assert_ok(blobs_get_manifest(b, a, &go, &back, &err), &err);
	assert_ok(blobs_collect(b, 0, &by, &real, &out, &err), &err);
	assert_int_equal(dropped, 1);
	assert_int_equal(out.manifests, 1);
	assert_int_equal(out.files, 1);
	assert_int_equal(out.bytes, strlen("alone"));
	assert_err(blobs_get_manifest(b, a, &go, &back, &err), &err, ERR_NOT_FOUND, "manifests/");
	assert_ok(blobs_get_manifest(b, a, &keep, &back, &err), &err);
	for (size_t i = 0; i < back.n; i++)
		assert_true(blobs_has(b, &back.file[i].sha256, back.file[i].size));
	/* what is gone is fetched and published anew */
	manifest_init(&m, a);
	add(&m, "b", b, "shared");
	add(&m, "c", b, "alone");
	add(&m, "d", b, "alone");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, &m, &again, &err), &err);
	assert_true(digest_same(&again, &go));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(blob_put_and_read),
	cmocka_unit_test(blob_tmp_survives_and_is_locked),
	cmocka_unit_test(blob_that_rotted_is_moved_aside),
	cmocka_unit_test(blob_manifests),
	cmocka_unit_test(blob_collects_what_nobody_names),
	cmocka_unit_test(blob_collects_manifests),
};

static int set_up(void **state UNUSED)
{
	FMT(folder, "/tmp/stoker-blob-XXXXXX");
	return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	return fs_remove_tree(AT_FDCWD, folder, &err);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
