/* test_blob_collect.c - what no row names goes from an object store, whoever puts, pins or fails
 * meanwhile; what one names stays whole. */
#include "blob_objects_fixture.h"

#include <pthread.h>

#define ANY 1000

struct rows { /* manifests that are named */
	const struct digest *d;
	size_t n;
	unsigned told;
	_Atomic int left;          /* how often it may remove objects yet */
	const struct digest *root; /* blobs that are named without a manifest */
	size_t n_roots;
};

static int roots(void *arg, void (*add)(void *to, const struct digest *d), void *to,
                 struct err *err UNUSED)
{
	const struct rows *r = arg;

	for (size_t i = 0; i < r->n_roots; i++)
		add(to, &r->root[i]);
	return 0;
}

static int may(void *arg, struct err *err)
{
	struct rows *r = arg;

	return atomic_fetch_sub(&r->left, 1) > 0 ? 0 : err_set(err, ERR_UNAVAILABLE, "cut off");
}

static int keep(void *arg, const struct digest *manifest, bool *keep, struct err *err UNUSED)
{
	const struct rows *r = arg;

	*keep = false;
	for (size_t i = 0; i < r->n; i++)
		*keep = *keep || digest_same(&r->d[i], manifest);
	return 0;
}

static void count_told(void *arg, const struct blobs_item *x UNUSED)
{
	((struct rows *)arg)->told++;
}

static int collect(struct objstore *os, struct blobs *b, struct rows *rows, int64_t loose_age_s,
                   bool dry_run, struct blobs_collected *out, struct err *err)
{
	const struct blobs_choice by = {.keep = keep, .roots = roots, .arg = rows, .may = may};
	const struct blobs_way way = {dry_run, count_told, rows};
	const struct blobs_collect job = {
		.os = os, .loose_age_s = loose_age_s, .by = &by, .way = &way};

	return blobs_collect(b, &job, out, err);
}

/* All that is named is there, and is as it should be. */
static void whole(struct objstore *os, const struct digest *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct manifest list;
		struct err err = {0};
		char key[BLOB_KEY_CAP];

		assert_ok(blob_objects_manifest(os, a, &m[i], &list, &err), &err);
		for (size_t k = 0; k < list.n; k++) {
			bool has = false;

			blob_object_key(&list.file[k].sha256, key);
			assert_ok(blob_objects_has(os, key, list.file[k].size, &has, &err), &err);
			assert_true(has);
		}
	}
}

static int count_object(void *arg, const struct blob_entry *x UNUSED, struct err *err UNUSED)
{
	++*(unsigned *)arg;
	return 0;
}

static unsigned count_objects(struct objstore *os, enum blobs_kind kind)
{
	struct err err = {0};
	unsigned n = 0;

	assert_ok(blob_objects_each(os, kind, count_object, &n, &err), &err);
	return n;
}

#define OWN 5 /* of the contents of a manifest, those that no other seed has */
#define DISTINCT 6
#define LOOSE 250 /* more than one request removes */

static struct digest put_loose(struct objstore *os, unsigned i)
{
	struct digest d = hash_sha256(&i, sizeof(i));
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	blob_object_key(&d, key);
	assert_ok(objstore_put(os, key, str_n((const char *)&i, sizeof(i)), &err), &err);
	return d;
}

static void what_no_row_names_goes(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("collect-here");
	struct digest m[3];
	struct rows rows = {.d = m, .n = 1, .left = ANY};
	struct blobs_collected out;
	struct err err = {0};

	fill(os, "collect-from", 3, m);
	assert_int_equal(count_objects(os, BLOBS_BLOB), 3 * OWN + 1);
	assert_ok(objstore_put(os, "blobs/sha256/ab/nonsense", STR_LIT("x"), &err), &err);
	assert_ok(collect(os, here, &rows, 0, true, &out, &err), &err);
	assert_int_equal(out.manifests, 2);
	assert_int_equal(out.files, 2 * OWN);
	assert_true(out.bytes > 2 * LARGE);
	assert_int_equal(rows.told, 2);
	whole(os, m, 3);
	{
		/* a put relies on one: it stays, with all that it names */
		AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);

		blob_pins_add(pins, &m[1]);
		assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
		assert_int_equal(out.manifests, 1);
		assert_int_equal(out.files, OWN);
		whole(os, m, 2);
	}
	assert_int_equal(count_objects(os, BLOBS_MANIFEST), 2);
	rows.n = 0;
	assert_ok(collect(os, here, &rows, -1, false, &out, &err), &err);
	assert_int_equal(out.manifests, 2);
	assert_int_equal(count_objects(os, BLOBS_MANIFEST) + count_objects(os, BLOBS_BLOB), 0);
}

/* Cut off in the middle: it removes no more, of whatever kind. */
static void who_may_not_removes_nothing(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("may-here");
	struct digest m[2];
	struct rows rows = {.d = m, .n = 1};
	struct blobs_collected out;
	struct err err = {0};
	unsigned blobs;

	fill(os, "may-from", 2, m);
	for (unsigned i = 0; i < LOOSE; i++)
		put_loose(os, i);
	blobs = count_objects(os, BLOBS_BLOB);
	for (int left = 0; left <= 1; left++) { /* nothing; the manifest */
		rows.left = left;
		assert_err(collect(os, here, &rows, 0, false, &out, &err), &err, ERR_UNAVAILABLE,
		           "cut off");
		assert_int_equal(count_objects(os, BLOBS_MANIFEST), 2 - left);
		assert_int_equal(count_objects(os, BLOBS_BLOB), blobs);
		whole(os, m, left == 0 ? 2 : 1);
	}
	rows.left = 2; /* its blobs are loose by now: some of all of those */
	assert_err(collect(os, here, &rows, 0, false, &out, &err), &err, ERR_UNAVAILABLE,
	           "cut off");
	assert_true(count_objects(os, BLOBS_BLOB) < blobs);
	assert_true(count_objects(os, BLOBS_BLOB) > DISTINCT);
	whole(os, m, 1);
	rows.left = ANY;
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT);
	whole(os, m, 1);
}

/* Of many that go together those stay that somebody relies on. */
static void some_of_many_are_pinned(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("many-here");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);
	struct rows rows = {.left = ANY};
	struct blobs_collected out;
	struct err err = {0};

	for (unsigned i = 0; i < LOOSE; i++) {
		struct digest d = put_loose(os, i);

		if (i % 7 == 0)
			blob_pins_add(pins, &d);
	}
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(count_objects(os, BLOBS_BLOB), (LOOSE + 6) / 7);
	assert_int_equal(out.files, LOOSE - (LOOSE + 6) / 7);
	assert_int_equal(rows.told, out.files);
}

static void blobs_without_a_manifest_go_by_age(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("loose-here");
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);
	struct digest m[1], loose = hash_sha256("loose", 5), pinned = hash_sha256("pinned", 6);
	struct rows rows = {.d = m, .n = 1, .left = ANY};
	struct blobs_collected out;
	struct err err = {0};
	char key[BLOB_KEY_CAP];

	fill(os, "loose-from", 1, m);
	blob_object_key(&loose, key);
	assert_ok(objstore_put(os, key, STR_LIT("loose"), &err), &err);
	blob_object_key(&pinned, key);
	assert_ok(objstore_put(os, key, STR_LIT("pinned"), &err), &err);
	blob_pins_add(pins, &pinned);
	assert_ok(collect(os, here, &rows, 3600, false, &out, &err), &err);
	assert_int_equal(out.files, 0);
	assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
	assert_int_equal(out.files, 1);
	assert_int_equal(out.bytes, 5);
	assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT + 1);
	whole(os, m, 1);
}

/* Whichever call fails, what a row names is whole, and so is what a manifest names. */
static void collection_that_fails_anywhere_is_ended_later(void **state UNUSED)
{
	bool done = false;

	for (unsigned n = 1; n < 100 && !done; n++) {
		AUTO_FREE char *dir = xasprintf("dir:%s/ends-%u", folder, n);
		AUTO_FREE char *url = xasprintf("fault:%u:%s", n, dir);
		AUTO_OBJSTORE struct objstore *os = open_store(dir), *fault = open_store(url);
		AUTO_BLOBS struct blobs *here = open_blobs("ends-here");
		struct digest m[2];
		struct rows rows = {.d = m, .n = 1, .left = ANY};
		struct blobs_collected out;
		struct err err = {0};

		fill(os, "ends-from", 2, m);
		done = collect(fault, here, &rows, 0, false, &out, &err) == 0;
		err_clear(&err);
		whole(os, m, count_objects(os, BLOBS_MANIFEST));
		assert_ok(collect(os, here, &rows, 0, false, &out, &err), &err);
		whole(os, m, 1);
		assert_int_equal(count_objects(os, BLOBS_MANIFEST), 1);
		assert_int_equal(count_objects(os, BLOBS_BLOB), DISTINCT);
	}
	assert_true(done);
}

struct racer {
	struct objstore *os;
	struct blobs *b;
	struct digest m;
	atomic_bool stop, named; /* named: there is a row */
};

static int keep_named(void *arg, const struct digest *manifest UNUSED, bool *keep,
                      struct err *err UNUSED)
{
	*keep = atomic_load(&((struct racer *)arg)->named);
	return 0;
}

static void *collector(void *arg)
{
	struct racer *r = arg;
	const struct blobs_choice by = {.keep = keep_named, .arg = r};
	const struct blobs_way way = {0};
	const struct blobs_collect job = {.os = r->os, .by = &by, .way = &way};

	while (!atomic_load(&r->stop)) {
		struct blobs_collected out;
		struct err err = {0};

		assert_ok(blobs_collect(r->b, &job, &out, &err), &err);
	}
	return NULL;
}

/* A collector that never rests, and puts that rely on what it is about to remove. */
static void puts_race_with_a_collector(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *under = open_store("mem:");
	AUTO_BLOBS struct blobs *b = open_blobs("race");
	struct remote remote = remote_of(under);
	struct objstore *os = &remote.base;
	struct racer r = {.os = os, .b = b, .m = make_manifest(b, 1)};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, collector, &r), 0);
	for (unsigned i = 0; i < 60; i++) {
		AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
		struct err err = {0};
		const struct blob_objects_put job = {
			.from = b, .to = os, .pins = pins, .manifest = &r.m};

		assert_ok(blob_objects_put(&job, &err), &err);
		atomic_store(&r.named, true);
		blob_pins_free(pins);
		pins = NULL;
		whole(os, &r.m, 1);
		clock_sleep_ms(i % 3);
		whole(os, &r.m, 1);
		atomic_store(&r.named, false); /* the row goes, and the collector sees it */
	}
	atomic_store(&r.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool is_there(struct objstore *os, struct blobs *b, const struct digest *d)
{
	struct err err = {0};
	char key[BLOB_KEY_CAP];
	bool has = false;

	if (os == NULL)
		return blobs_has(b, d, sizeof(unsigned));
	blob_object_key(d, key);
	assert_ok(blob_objects_has(os, key, sizeof(unsigned), &has, &err), &err);
	return has;
}

/* Roots are blobs that no manifest has to name. What was one, and is none any more, goes at once;
 * others of no name wait for their age. */
static void roots_stay_and_those_that_were_go(struct objstore *os, struct blobs *here)
{
	enum { ROOT, WAS, PINNED, LOOSE_ONE, BLOBS };
	struct rows rows = {.left = ANY};
	const struct blobs_choice by = {.keep = keep, .roots = roots, .arg = &rows, .may = may};
	const struct blobs_way way = {.each = count_told, .arg = &rows};
	struct digest d[BLOBS];
	struct blobs_collect job = {.os = os,
	                            .loose_age_s = -1,
	                            .by = &by,
	                            .drop = d,
	                            .n_drop = LOOSE_ONE,
	                            .way = &way};
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(here);
	struct blobs_collected out;
	struct err err = {0};

	for (unsigned i = 0; i < BLOBS; i++) {
		if (os != NULL)
			d[i] = put_loose(os, 1000 + i);
		else
			assert_ok(blobs_put(here, str_n((const char *)&i, sizeof(i)), &d[i], &err),
			          &err);
	}
	rows.root = &d[ROOT];
	rows.n_roots = 1;
	blob_pins_add(pins, &d[PINNED]);
	assert_ok(blobs_collect(here, &job, &out, &err), &err);
	assert_int_equal(out.files, 1);
	assert_int_equal(rows.told, 1);
	for (unsigned i = 0; i < BLOBS; i++)
		assert_true(is_there(os, here, &d[i]) == (i != WAS));
	job.n_drop = 0;
	job.loose_age_s = 0;
	assert_ok(blobs_collect(here, &job, &out, &err), &err);
	assert_true(is_there(os, here, &d[ROOT]) && is_there(os, here, &d[PINNED]));
	assert_false(is_there(os, here, &d[LOOSE_ONE]));
}

static void roots_in_an_object_store(void **state UNUSED)
{
	AUTO_OBJSTORE struct objstore *os = open_store("mem:");
	AUTO_BLOBS struct blobs *here = open_blobs("roots-here");

	roots_stay_and_those_that_were_go(os, here);
}

static void roots_in_a_folder(void **state UNUSED)
{
	AUTO_BLOBS struct blobs *here = open_blobs("roots-folder");

	roots_stay_and_those_that_were_go(NULL, here);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(roots_in_an_object_store),
	cmocka_unit_test(roots_in_a_folder),
	cmocka_unit_test(what_no_row_names_goes),
	cmocka_unit_test(who_may_not_removes_nothing),
	cmocka_unit_test(some_of_many_are_pinned),
	cmocka_unit_test(blobs_without_a_manifest_go_by_age),
	cmocka_unit_test(collection_that_fails_anywhere_is_ended_later),
	cmocka_unit_test(puts_race_with_a_collector),
};
UNIT_MAIN_IN(tests, set_up, tear_down)
