/* test_blob_objects.c - blobs into an object store: what is missing, the manifest last, links where
 * the disk is the same, and pins that hold a removal off. */
#include "blob_objects_fixture.h"
#include "store/common/crew.h"

#include "store/blobs/blob_impl.h"

#include <pthread.h>

static void put_sends_what_is_missing_and_the_manifest_last(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("put");
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_ARENA struct arena *a = arena_new();
	struct digest m = make_manifest(b, 1), other = make_manifest(b, 1);
	struct shown shown = {0};
	struct manifest list, got;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	assert_ok(blobs_get_manifest(b, a, &m, &list, &err), &err);
	assert_true(digest_same(&m, &other));
	assert_err(blob_objects_manifest(os, a, &m, &got, &err), &err, ERR_NOT_FOUND, "");
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_true(shown.total > LARGE && shown.total < list.bytes); /* doubles count once */
	assert_int_equal(shown.done, shown.total);
	assert_int_equal(shown.sent, shown.total);
	assert_ok(blob_objects_manifest(os, a, &m, &got, &err), &err);
	assert_int_equal(got.n, FILES);

	shown = (struct shown){0};
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.done, shown.total);
	assert_int_equal(shown.sent, 0);
	/* one that is not whole is sent again */
	blob_object_key(&manifest_find(&list, STR_LIT("f3"))->sha256, key);
	assert_ok(objstore_put(os, key, STR_LIT("half"), &err), &err);
	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.sent, manifest_find(&list, STR_LIT("f3"))->size);
}

/* Whichever call fails: no manifest is there that names what is not, and the next try ends it. */
static void put_that_fails_anywhere_goes_on(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("fails");
	struct digest m = make_manifest(b, 1);
	bool whole = false;

	for (unsigned n = 1; n < 100 && !whole; n++) {
		AUTO_FREE char *dir = xasprintf("dir:%s/fails-%u", folder, n);
		AUTO_FREE char *url = xasprintf("fault:%u:%s", n, dir);
		AUTO_OBJSTORE struct objstore *fault = open_store(url), *os = open_store(dir);
		AUTO_ARENA struct arena *a = arena_new();
		struct shown shown = {0};
		struct manifest list;
		struct err err = {0};

		whole = put(b, fault, &m, &shown, &err) == 0;
		err_clear(&err);
		if (whole)
			break;
		assert_err(blob_objects_manifest(os, a, &m, &list, &err), &err, ERR_NOT_FOUND, "");
		assert_ok(put(b, os, &m, &shown, &err), &err);
		assert_ok(blob_objects_manifest(os, a, &m, &list, &err), &err);
	}
	assert_true(whole);
}

/* One disk has them once, whatever they are called; another one gets its own. */
static void put_links_into_a_folder_beside(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("linked-from");
	AUTO_FREE char *url = xasprintf("dir:%s/linked-to", folder);
	AUTO_OBJSTORE struct objstore *os = open_store(url);
	AUTO_FREE char *far = NULL;
	char shm[] = "/dev/shm/stoker-linked-XXXXXX", key[BLOB_KEY_CAP];
	struct digest m = make_manifest(b, 1), empty = hash_sha256("", 0);
	struct shown shown = {0};
	struct stat st, to;
	struct err err = {0};

	assert_ok(put(b, os, &m, &shown, &err), &err);
	assert_int_equal(shown.sent, 0);
	assert_int_equal(shown.done, shown.total);
	blob_object_key(&empty, key);
	assert_int_equal(fstatat(blobs_dirfd(b), key, &st, 0), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_ok(put(b, os, &m, &shown, &err), &err); /* again: all is there */
	assert_int_equal(count_files("linked-to/.tmp"), 0);
	if (mkdtemp(shm) == NULL || stat(shm, &to) < 0 || to.st_dev == st.st_dev) {
		print_message("# /dev/shm is no other file system\n");
		return;
	}
	far = xasprintf("dir:%s", shm);
	{
		AUTO_OBJSTORE struct objstore *there = open_store(far);

		assert_ok(put(b, there, &m, &shown, &err), &err);
		assert_true(shown.sent > 0);
	}
	assert_ok(fs_remove_tree(AT_FDCWD, shm, &err), &err);
}

/* The object is pinned, then looked for: a collector that was faster has ended what it does. */
static void *settler(void *arg)
{
	struct blobs *b = arg;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct digest d = {{5}};

	blob_pins_add(pins, &d);
	blob_pins_settle(b, &d);
	return NULL;
}

static void pins_wait_for_a_removal_that_has_begun(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *b = open_blobs("settle");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct digest d = {{5}};
	pthread_t thread;

	assert_true(blob_going_begin(b, &d));
	assert_int_equal(pthread_create(&thread, NULL, settler, b), 0);
	clock_sleep_ms(50);
	assert_int_equal(pthread_tryjoin_np(thread, NULL), EBUSY);
	blob_going_end(b, &d);
	assert_int_equal(pthread_join(thread, NULL), 0);
	blob_pins_add(pins, &d);
	assert_false(blob_going_begin(b, &d));
}

static void count_tick(void *arg)
{
	++*(unsigned *)arg;
}

static int no_item(void *arg UNUSED, size_t i UNUSED, const atomic_bool *stop UNUSED,
                   struct err *err UNUSED)
{
	return 0;
}

/* However soon its threads are done, what they have done is told once more. */
static void crew_tells_at_the_end(void **state UNUSED)
{
	unsigned ticks = 0;
	struct crew_job job = {.threads = 2, .run = no_item, .tick = count_tick, .arg = &ticks};
	struct err err = {0};

	assert_ok(crew_run(&job, &err), &err);
	assert_int_equal(ticks, 1);
	job.n = 3;
	assert_ok(crew_run(&job, &err), &err);
	assert_true(ticks >= 2);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(crew_tells_at_the_end),
	cmocka_unit_test(put_sends_what_is_missing_and_the_manifest_last),
	cmocka_unit_test(put_that_fails_anywhere_goes_on),
	cmocka_unit_test(put_links_into_a_folder_beside),
	cmocka_unit_test(pins_wait_for_a_removal_that_has_begun),
};
UNIT_MAIN_IN(tests, set_up, tear_down)
