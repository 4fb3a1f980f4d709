/* test_blob.c - blobs are whole and verified or not there; manifests never name a hole. */
#define UNIT_FOLDER "/tmp/stoker-blob"
#include "unit_folder.h"

#include "store/blobs/blob_batch.h"
#include "store/blobs/blob_git.h"
#include "store/blobs/blob_pins.h"

#include <pthread.h>
#include <stdatomic.h>

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

	assert_err(blobs_tmp(b, "../x", &fd, journal, &err), &err, ERR_INVALID, "not a valid name");
	assert_err(blobs_tmp(b, "", &fd, journal, &err), &err, ERR_INVALID, "not a valid name");
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

static int link_it(void *arg, int dirfd, const char *name, struct err *err)
{
	if (linkat(AT_FDCWD, arg, dirfd, name, 0) == 0)
		return 0;
	return err_errno(err, errno, "%s", name);
}

static int stop_at_once(void *arg UNUSED, size_t bytes UNUSED, struct err *err)
{
	return err_set(err, ERR_CANCELED, "stopped");
}

static void blob_that_was_somebody_elses(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("adopt");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	AUTO_ARENA struct arena *a = arena_new();
	char *from = arena_printf(a, "%s/theirs", blobs_path(b, &(struct digest){{0}}, a));
	struct blob_adopt x = {
		.d = hash_sha256("content", 7), .size = 7, .link = link_it, .arg = from};
	struct stat theirs, ours;
	struct err err = {0};

	*strstr(from, "/blobs/") = '\0';
	from = x.arg = arena_printf(a, "%s/theirs", from);
	assert_ok(fs_write_atomic(AT_FDCWD, from, STR_LIT("content"), 0600, &err), &err);
	x.step = stop_at_once;
	assert_err(blobs_adopt(b, pins, &x, &err), &err, ERR_CANCELED, "stopped");
	x.step = NULL;
	x.size = 8;
	assert_err(blobs_adopt(b, pins, &x, &err), &err, ERR_CORRUPT, "not what it should be");
	x.size = 7;
	assert_false(blobs_has(b, &x.d, 7));
	assert_ok(blobs_adopt(b, pins, &x, &err), &err);
	assert_ok(blobs_adopt(b, pins, &x, &err), &err); /* it is there */
	assert_true(blobs_has(b, &x.d, 7));
	assert_int_equal(stat(from, &theirs), 0);
	assert_int_equal(stat(blobs_path(b, &x.d, a), &ours), 0);
	assert_int_equal(theirs.st_ino, ours.st_ino);
	assert_int_equal(ours.st_nlink, 2); /* nothing is left in tmp/ */
	x.d = hash_sha256("another", 7);
	assert_err(blobs_adopt(b, pins, &x, &err), &err, ERR_CORRUPT, "not what it should be");
	assert_int_equal(unlink(from), 0);
	assert_err(blobs_adopt(b, pins, &x, &err), &err, ERR_NOT_FOUND, "link-");
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

static int keep_none(void *arg UNUSED, const struct digest *manifest UNUSED, bool *keep,
                     struct err *err UNUSED)
{
	*keep = false;
	return 0;
}

static unsigned dropped;

static int count_drop(void *arg UNUSED, const struct digest *manifest UNUSED,
                      struct err *err UNUSED)
{
	dropped++;
	return 0;
}

/* age_s: of manifests; loose_s: of what none names, -1: it is not looked for */
static int collect(struct blobs *b, int64_t age_s, int64_t loose_s, const struct blobs_choice *by,
                   const struct blobs_way *way, struct blobs_collected *out, struct err *err)
{
	const struct blobs_collect job = {
		.min_age_s = age_s, .loose_age_s = loose_s, .by = by, .way = way};

	return blobs_collect(b, &job, out, err);
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
	assert_err(blobs_put_manifest(b, NULL, &m, &name, &err), &err, ERR_CONFLICT,
	           "the bytes of b");
	assert_ok(blobs_put(b, STR_LIT("two"), &other, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &name, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &name, &err), &err);
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
	assert_err(collect(b, 0, -1, &(struct blobs_choice){.keep = keep_one, .arg = &other},
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
	struct blobs_held held;
	struct err err = {0};
	int busy = -1, left = -1;

	manifest_init(&m, a);
	add(&m, "a", b, "one");
	add(&m, "b", b, "two!");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &name, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("nobody's"), &orphan, &err), &err);
	assert_ok(blobs_tmp(b, "busy", &busy, journal, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, journal, STR_LIT("j"), 0600, &err), &err);
	assert_ok(blobs_tmp(b, "left", &left, journal, &err), &err);
	(void)close(left);

	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &held, &err), &err);
	assert_int_equal(held.files, 3);
	assert_int_equal(held.bytes, 3 + 4 + 8);
	assert_ok(collect(b, 0, 3600, NULL, &real, &out, &err), &err);
	assert_int_equal(out.files, 0); /* all young */
	assert_ok(collect(b, 0, 0, NULL, &dry, &out, &err), &err);
	assert_int_equal(out.files, 2);
	assert_int_equal(out.bytes, 8);
	assert_int_equal(told[BLOBS_BLOB], 1);
	assert_int_equal(told[BLOBS_PARTIAL], 1);
	assert_true(blobs_has(b, &orphan, 8));
	assert_ok(collect(b, 0, 0, NULL, &real, &out, &err), &err);
	assert_int_equal(out.files, 2);
	assert_false(blobs_has(b, &orphan, 8));
	assert_false(there("gc", "tmp/left"));
	assert_true(there("gc", "tmp/busy") && there("gc", "tmp/busy.journal"));
	(void)close(busy);
	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &held, &err), &err);
	assert_int_equal(held.files, 2);
	assert_ok(collect(b, 0, -1, &(struct blobs_choice){.keep = keep_one, .arg = &orphan}, &real,
	                  &out, &err),
	          &err);
	assert_int_equal(out.files, 2);
}

/* What is counted is what is there. */
static struct blobs_held counted_right(struct blobs *b)
{
	struct blobs_held counted, is;
	struct err err = {0};

	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &counted, &err), &err);
	assert_ok(blobs_held(b, BLOBS_HELD_NOW, &is, &err), &err);
	assert_int_equal(counted.files, is.files);
	assert_int_equal(counted.bytes, is.bytes);
	return is;
}

/* By each way in and out, without a look at what is there; but for what another program does. */
static void blob_counts_what_comes_and_goes(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("held");
	AUTO_BLOB_BATCH struct blob_batch *batch = blob_batch_new(b);
	AUTO_ARENA struct arena *a = arena_new();
	struct blobs_way real = {0};
	struct blobs_collected out;
	struct blobs_held held;
	char journal[FS_PATH_MAX];
	struct err err = {0};
	struct digest d;
	AUTO_FD int fd = -1;

	assert_ok(blobs_put(b, STR_LIT("first"), &d, &err), &err); /* before it is measured */
	assert_int_equal(counted_right(b).files, 1);
	assert_ok(blobs_put(b, STR_LIT("second"), &d, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("second"), &d, &err), &err);
	assert_int_equal(counted_right(b).bytes, 5 + 6);
	assert_ok(blobs_tmp(b, "large", &fd, journal, &err), &err);
	assert_ok(fs_write_all(fd, "content", 7, &err), &err);
	d = hash_sha256("content", 7);
	assert_ok(blobs_commit(b, "large", fd, &d, &err), &err);
	assert_int_equal(counted_right(b).bytes, 5 + 6 + 7);
	for (unsigned i = 0; i < 40; i++) { /* some of them twice, or there already */
		char *text = i == 0 ? arena_cstr(a, "content") : arena_printf(a, "%06u", i / 2);
		struct digest small = hash_sha256(text, strlen(text));

		assert_ok(blob_batch_add(batch, text, strlen(text), &small, &err), &err);
	}
	assert_ok(blob_batch_publish(batch, &err), &err);
	assert_int_equal(counted_right(b).files, 3 + 20);
	assert_ok(blobs_quarantine(b, &d, &err), &err);
	assert_ok(blobs_quarantine(b, &d, &err), &err);
	assert_int_equal(counted_right(b).files, 2 + 20);

	assert_ok(blobs_put(b, STR_LIT("content"), &d, &err), &err);
	assert_int_equal(unlink(blobs_path(b, &d, a)), 0);
	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &held, &err), &err);
	assert_int_equal(held.files, 3 + 20);
	assert_ok(blobs_held(b, BLOBS_HELD_NOW, &held, &err), &err);
	assert_int_equal(held.files, 2 + 20);
	assert_ok(collect(b, 0, 0, NULL, &real, &out, &err), &err);
	assert_int_equal(counted_right(b).files, 0);
}

/* A small one that a disk has cut is whole again when somebody brings it. */
static void blob_batch_mends(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("mends");
	AUTO_BLOB_BATCH struct blob_batch *batch = blob_batch_new(b);
	AUTO_ARENA struct arena *a = arena_new();
	struct blobs_held held;
	struct err err = {0};
	struct digest d;

	assert_ok(blobs_put(b, STR_LIT("content"), &d, &err), &err);
	assert_int_equal(chmod(blobs_path(b, &d, a), 0600), 0);
	assert_int_equal(truncate(blobs_path(b, &d, a), 3), 0);
	assert_ok(blobs_held(b, BLOBS_HELD_NOW, &held, &err), &err);
	assert_int_equal(held.bytes, 3);
	assert_ok(blob_batch_add(batch, "content", 7, &d, &err), &err);
	assert_ok(blob_batch_publish(batch, &err), &err);
	assert_true(blobs_has(b, &d, 7));
	assert_int_equal(counted_right(b).bytes, 7);
}

/* What comes counts from its first byte; what room is reserved for counts as that. */
static void blob_counts_temporary_files(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("partial");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	char journal[FS_PATH_MAX];
	struct blobs_held held;
	struct err err = {0};
	AUTO_FD int comes = -1, reserved = -1;

	blob_pins_add_tmp(pins, "comes");
	blob_pins_add_reserved(pins, "reserved");
	assert_ok(blobs_tmp(b, "comes", &comes, journal, &err), &err);
	assert_ok(blobs_tmp(b, "reserved", &reserved, journal, &err), &err);
	assert_ok(fs_write_all(comes, "four", 4, &err), &err);
	assert_ok(fs_write_all(reserved, "five5", 5, &err), &err);
	assert_true(fsync(comes) == 0 && fsync(reserved) == 0);
	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &held, &err), &err);
	assert_int_equal(held.partial, 4);
	blob_pins_free(TAKE(pins));
	assert_ok(blobs_held(b, BLOBS_HELD_ANY, &held, &err), &err);
	assert_int_equal(held.partial, 4 + 5);
}

/* What is pinned with the manifest that it stands on need not be looked for again. */
static void blob_manifest_stands_on_another(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("base");
	AUTO_ARENA struct arena *a = arena_new();
	struct blob_pins *pins = blob_pins_new(b);
	struct blobs_choice none = {.keep = keep_none, .drop = count_drop};
	struct blobs_way real = {0};
	struct digest base, name, gone = hash_sha256("gone", 4), other = {{1}};
	struct blobs_collected out;
	struct manifest m, fresh;
	struct err err = {0};

	manifest_init(&m, a);
	manifest_init(&fresh, a);
	add(&m, "a", b, "one");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &base, &err), &err);
	add(&m, "b", b, "two");
	add(&fresh, "b", b, "two");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest_on(b, pins, &base, &fresh, &m, &name, &err), &err);
	assert_ok(collect(b, 0, 0, &none, &real, &out, &err), &err);
	assert_int_equal(out.files + out.manifests,
	                 0); /* all of it is held, by the two manifests */
	assert_ok(manifest_add(&m, STR_LIT("c"), 4, &gone, &err), &err);
	assert_ok(manifest_finish(&m, &err), &err);
	/* one that stands on nothing is looked at, all of it; and so is what is fresh */
	assert_err(blobs_put_manifest_on(b, pins, &other, &fresh, &m, &name, &err), &err,
	           ERR_CONFLICT, "the bytes of c");
	assert_ok(manifest_add(&fresh, STR_LIT("c"), 4, &gone, &err), &err);
	assert_err(blobs_put_manifest_on(b, pins, &base, &fresh, &m, &name, &err), &err,
	           ERR_CONFLICT, "the bytes of c");
	blob_pins_free(pins);
	assert_ok(collect(b, 0, 0, &none, &real, &out, &err), &err);
	assert_int_equal(out.manifests, 2);
	assert_int_equal(out.files, 2);
}

static void blob_git_links(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("git");
	const uint8_t one[BLOB_GIT_LEN] = {0xab, 1}, two[BLOB_GIT_LEN] = {0xab, 2};
	AUTO_FREE char *path = xasprintf("%s/git/git/ab/ab02%036d", folder, 0);
	struct err err = {0};
	struct digest d, is = {0};
	char text[HASH_HEX_CAP];

	assert_ok(blobs_put(b, STR_LIT("text"), &d, &err), &err);
	assert_false(blob_git_look(b, one, &is));
	blob_git_note(b, one, &d);
	assert_true(blob_git_find(b, one, 4, &is) && digest_same(&is, &d));
	assert_false(blob_git_find(b, one, 5, &is));
	digest_hex(&d, text); /* as older servers wrote it */
	assert_int_equal(symlink(text, path), 0);
	assert_true(blob_git_find(b, two, 4, &is) && digest_same(&is, &d));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("of nobody", path), 0);
	assert_false(blob_git_look(b, two, &is));
	blob_git_note(b, two, &d); /* mended */
	blob_git_note(b, two, &d);
	assert_true(blob_git_find(b, two, 4, &is) && digest_same(&is, &d));
	assert_in_range(readlink(path, text, sizeof(text)), 1, 59); /* ext4 keeps it in the inode */
}

static void blob_collects_manifests(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("manifests-gc");
	AUTO_ARENA struct arena *a = arena_new();
	struct digest keep, go, again;
	struct blobs_choice by = {.keep = keep_one, .drop = count_drop, .arg = &keep};
	unsigned told[4] = {0};
	struct blobs_way dry = {true, count_item, told}, real = {0};
	struct blobs_collected out;
	struct manifest m, back;
	struct err err = {0};

	manifest_init(&m, a);
	add(&m, "a", b, "mine");
	add(&m, "b", b, "shared");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &keep, &err), &err);
	manifest_init(&m, a);
	add(&m, "b", b, "shared");
	add(&m, "c", b, "alone");
	add(&m, "d", b, "alone");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &go, &err), &err);
	assert_ok(collect(b, 3600, -1, &by, &real, &out, &err), &err);
	assert_int_equal(out.manifests, 0); /* its row may still be on its way */
	dropped = 0;
	assert_ok(collect(b, 0, -1, &by, &dry, &out, &err), &err);
	assert_int_equal(out.manifests, 1);
	assert_int_equal(out.bytes, strlen("alone"));
	assert_int_equal(told[BLOBS_MANIFEST], 1);
	assert_int_equal(dropped, 0);
	assert_ok(blobs_get_manifest(b, a, &go, &back, &err), &err);
	assert_ok(collect(b, 0, -1, &by, &real, &out, &err), &err);
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
	assert_ok(blobs_put_manifest(b, NULL, &m, &again, &err), &err);
	assert_true(digest_same(&again, &go));
}

/* What is pinned stays, of any age: loose blobs, manifests with what they name, temporary files. */
static void blob_pins_hold(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("pins");
	AUTO_ARENA struct arena *a = arena_new();
	struct blobs_choice none = {.keep = keep_none, .drop = count_drop};
	struct blobs_way real = {0};
	struct blob_pins *pins = blob_pins_new(b), *twice = blob_pins_new(b);
	struct blobs_collected out;
	struct digest name, loose, other;
	char journal[FS_PATH_MAX];
	struct err err = {0};
	struct manifest m;
	int tmp = -1;

	manifest_init(&m, a);
	add(&m, "a", b, "named");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, pins, &m, &name, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("loose"), &loose, &err), &err);
	assert_ok(blobs_put(b, STR_LIT("other"), &other, &err), &err);
	blob_pins_add(pins, &loose);
	blob_pins_add(twice, &loose);
	assert_ok(blobs_tmp(b, "between-tries", &tmp, journal, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, journal, STR_LIT("j"), 0600, &err), &err);
	(void)close(tmp);
	blob_pins_add_tmp(pins, "between-tries");

	dropped = 0;
	assert_ok(collect(b, 0, -1, &none, &real, &out, &err), &err);
	assert_int_equal(out.manifests, 0);
	assert_int_equal(dropped, 0);
	assert_ok(collect(b, 0, 0, NULL, &real, &out, &err), &err);
	assert_int_equal(out.files, 1); /* other */
	assert_true(blobs_has(b, &loose, 5) && there("pins", "tmp/between-tries.journal"));
	blob_pins_free(pins);
	assert_ok(collect(b, 0, -1, &none, &real, &out, &err), &err);
	assert_int_equal(out.manifests, 1);
	assert_ok(collect(b, 0, 0, NULL, &real, &out, &err), &err);
	assert_int_equal(out.files, 2); /* the temporary file and its journal */
	assert_true(blobs_has(b, &loose, 5));
	blob_pins_free(twice);
	assert_ok(collect(b, 0, 0, NULL, &real, &out, &err), &err);
	assert_false(blobs_has(b, &loose, 5));
	assert_false(blobs_pinned(b, &loose));
}

struct published { /* during a collection that has seen all manifests */
	struct blobs *b;
	struct digest blob, name;
};

static int publish_meanwhile(void *arg, const struct digest *manifest UNUSED, bool *keep,
                             struct err *err)
{
	struct published *p = arg;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(p->b);
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest m;

	*keep = false;
	blob_pins_add(pins, &p->blob);
	assert_true(blobs_has(p->b, &p->blob, 6)); /* so it is not fetched */
	manifest_init(&m, a);
	assert_ok(manifest_add(&m, STR_LIT("again"), 6, &p->blob, err), err);
	assert_ok(manifest_finish(&m, err), err);
	return blobs_put_manifest(p->b, pins, &m, &p->name, err);
}

/* A fetch that is over before the collector acts on its older list of names. */
static void blob_pins_outlive_their_owner_in_a_collection(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("pins-scan");
	AUTO_ARENA struct arena *a = arena_new();
	struct published p = {.b = b};
	struct blobs_choice by = {.keep = publish_meanwhile, .arg = &p};
	struct blobs_way real = {0};
	struct blobs_collected out;
	struct manifest m, back;
	struct digest old;
	struct err err = {0};

	assert_ok(blobs_put(b, STR_LIT("shared"), &p.blob, &err), &err);
	manifest_init(&m, a);
	add(&m, "old", b, "shared");
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &old, &err), &err);
	assert_ok(collect(b, 0, -1, &by, &real, &out, &err), &err);
	assert_true(blobs_has(b, &p.blob, 6));
	assert_ok(blobs_get_manifest(b, a, &p.name, &back, &err), &err);
	assert_false(blobs_pinned(b, &p.blob)); /* the collection is over */
}

#define RACE_ROUNDS 400
#define RACE_BLOBS 8

struct race {
	struct blobs *b;
	atomic_bool over;
	_Atomic uint64_t taken;
	_Atomic uint64_t row[RACE_BLOBS]; /* fetches that rely on such manifests */
};

static int keep_rows(void *arg, const struct digest *manifest, bool *keep, struct err *err UNUSED)
{
	const struct race *r = arg;

	*keep = atomic_load(&r->row[manifest->b[0] % RACE_BLOBS]) > 0;
	return 0;
}

static void *collect_always(void *arg)
{
	struct race *r = arg;
	struct blobs_choice by = {.keep = keep_rows, .arg = r};
	struct blobs_way real = {0};
	struct blobs_collected out;
	struct blobs_held held;

	while (!atomic_load(&r->over)) {
		struct err err = {0};

		assert_ok(collect(r->b, 0, -1, &by, &real, &out, &err), &err);
		atomic_fetch_add(&r->taken, out.files);
		assert_ok(collect(r->b, 0, 0, NULL, &real, &out, &err),
		          &err); /* this second's, too */
		atomic_fetch_add(&r->taken, out.files);
		assert_ok(blobs_held(r->b, BLOBS_HELD_NOW, &held, &err), &err);
	}
	return NULL;
}

/* One after another, blobs that others fetch too: pinned, looked for, written, published, named by
 * a row, and then they must be there. */
static void *fetch_always(void *arg)
{
	struct race *r = arg;

	for (unsigned i = 0; i < RACE_ROUNDS; i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct blob_pins *pins = blob_pins_new(r->b);
		struct manifest m;
		struct digest d, name;
		struct err err = {0};

		manifest_init(&m, a);
		for (unsigned k = 0; k < 3; k++) {
			char *text = arena_printf(a, "blob %u", (i + k) % RACE_BLOBS);

			d = hash_sha256(text, strlen(text));
			blob_pins_add(pins, &d);
			if (!blobs_has(r->b, &d, strlen(text)))
				assert_ok(blobs_put(r->b, str_of(text), &d, &err), &err);
			assert_ok(manifest_add(&m, str_of(text), strlen(text), &d, &err), &err);
		}
		assert_ok(manifest_finish(&m, &err), &err);
		assert_ok(blobs_put_manifest(r->b, pins, &m, &name, &err), &err);
		atomic_fetch_add(&r->row[name.b[0] % RACE_BLOBS], 1);
		blob_pins_free(pins); /* the row holds it from here */
		for (unsigned look = 0; look < 3; look++) {
			assert_ok(blobs_get_manifest(r->b, a, &name, &m, &err), &err);
			for (size_t k = 0; k < m.n; k++)
				assert_true(blobs_has(r->b, &m.file[k].sha256, m.file[k].size));
			(void)sched_yield();
		}
		atomic_fetch_sub(&r->row[name.b[0] % RACE_BLOBS], 1);
	}
	return NULL;
}

static void blob_collectors_race_with_fetches(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_store("race");
	static struct race r;
	pthread_t fetcher[3], collector[2];

	r.b = b;
	for (size_t i = 0; i < COUNT(collector); i++)
		assert_int_equal(pthread_create(&collector[i], NULL, collect_always, &r), 0);
	for (size_t i = 0; i < COUNT(fetcher); i++)
		assert_int_equal(pthread_create(&fetcher[i], NULL, fetch_always, &r), 0);
	for (size_t i = 0; i < COUNT(fetcher); i++)
		assert_int_equal(pthread_join(fetcher[i], NULL), 0);
	atomic_store(&r.over, true);
	for (size_t i = 0; i < COUNT(collector); i++)
		assert_int_equal(pthread_join(collector[i], NULL), 0);
	assert_true(atomic_load(&r.taken) > 0); /* there was something to race for */
	counted_right(b);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(blob_put_and_read),
	cmocka_unit_test(blob_tmp_survives_and_is_locked),
	cmocka_unit_test(blob_that_was_somebody_elses),
	cmocka_unit_test(blob_that_rotted_is_moved_aside),
	cmocka_unit_test(blob_manifests),
	cmocka_unit_test(blob_collects_what_nobody_names),
	cmocka_unit_test(blob_counts_what_comes_and_goes),
	cmocka_unit_test(blob_batch_mends),
	cmocka_unit_test(blob_counts_temporary_files),
	cmocka_unit_test(blob_manifest_stands_on_another),
	cmocka_unit_test(blob_git_links),
	cmocka_unit_test(blob_collects_manifests),
	cmocka_unit_test(blob_pins_hold),
	cmocka_unit_test(blob_pins_outlive_their_owner_in_a_collection),
	cmocka_unit_test(blob_collectors_race_with_fetches),
};

UNIT_MAIN_IN(tests, set_up, tear_down)
