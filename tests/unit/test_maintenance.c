/* test_maintenance.c - collecting garbage: by hand, beside a fetch, and by the janitor. */
#include "server_fixture.h"

#include "store/blobs/blob_objects.h"
#include "store/objects/objstore_impl.h"

static struct maintenance_view maintenance(struct fixture *f, struct maintenance_want want)
{
	struct maintenance_view v = {0};

	assert_ok(maintenance_ops.begin(ADMIN(f), &want, &v, &f->err), &f->err);
	for (int waited = 0; v.state == MAINTENANCE_RUNNING && waited < FIXTURE_WAIT_MS;
	     waited += 5) {
		clock_sleep_ms(5);
		assert_ok(maintenance_ops.show(ADMIN(f), &v, &f->err), &f->err);
	}
	assert_int_equal(v.state, MAINTENANCE_DONE);
	return v;
}

static const struct maintenance_item *item_of(const struct maintenance_view *v, const char *kind)
{
	for (size_t i = 0; i < v->n_items; i++)
		if (strcmp(v->item[i].kind, kind) == 0)
			return &v->item[i];
	return NULL;
}

static void maintenance_collects_beside_a_fetch_and_what_was_deleted(void **state)
{
	const struct maintenance_want dry = {.dry_run = true}, real = {0};
	struct fixture *f = *state;
	struct model_mirror *x = NULL;
	struct model_upload u = {0};
	struct model_job j = {0};
	struct maintenance_view v;
	struct blob_pins *pins;
	struct digest name, other;
	const char *cache;
	size_t n = 0;

	assert_err(maintenance_ops.show(ADMIN(f), &v, &f->err), &f->err, ERR_NOT_FOUND,
	           "no such maintenance task");
	make_source(f);
	assert_ok(fixture_push(f, "", source_weights(f), &j), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	(void)fixture_claim(f, fixture_runner(f, j.id, 0), "a");
	fixture_exit(f, fixture_runner(f, j.id, 0), JOB_END_DEPLOY_FAILED, 0);
	assert_ok(mirror_ops.list(ADMIN(f), &x, &n, &f->err), &f->err);
	forget_mirror(f, x[0].id);
	assert_int_equal(maintenance(f, dry).found, 1);
	/* a fetch that runs relies on them; nothing else is spared for its sake */
	assert_ok(digest_parse(str_of(x[0].manifest), &name, &f->err), &f->err);
	pins = blob_pins_new(f->app->blobs);
	blob_pins_add(pins, &name);
	assert_ok(blobs_put(f->app->blobs, STR_LIT("nobody's"), &other, &f->err), &f->err);
	v = maintenance(f, real);
	assert_int_equal(v.found, 1);
	assert_int_equal(item_of(&v, "weights blob")->bytes, strlen("nobody's"));
	blob_pins_free(pins);

	/* uploads that can still be written to are nobody's to take */
	assert_ok(maintenance_ops.stop(ADMIN(f), v.id, &v, &f->err), &f->err);
	assert_err(maintenance_ops.stop(ADMIN(f), "other", &v, &f->err), &f->err, ERR_NOT_FOUND,
	           "no such maintenance task");
	assert_ok(upload_ops.create(ADMIN(f), NULL, NULL, &u, &f->err), &f->err);
	assert_ok(objstore_put(f->app->objects, u.key, STR_LIT("code"), &f->err), &f->err);
	assert_ok(project_ops.remove(ADMIN(f), f->project.id, &f->err), &f->err);
	cache = app_path(f->app, f->a, arena_printf(f->a, "cache/projects/%s", f->project.id));
	assert_ok(fs_mkdirs(AT_FDCWD, cache, 0755, &f->err), &f->err);
	v = maintenance(f, dry);
	assert_null(item_of(&v, "upload"));
	assert_null(item_of(&v, "orphaned cache")); /* it is in the trash already */
	assert_non_null(item_of(&v, "deleted cache"));
	assert_non_null(item_of(&v, "deleted log"));
	assert_int_equal(item_of(&v, "weights")->bytes, 12);
	n = v.found;
	assert_int_equal(maintenance(f, real).found, n);
	assert_int_equal(maintenance(f, dry).found, 0);
	assert_int_equal(access(cache, F_OK), -1);
	assert_int_equal(blobs_in_store(f), 0);
}

/* A source with a file of its own; its job is over, so nobody needs it. */
static void mirror_source(struct fixture *f, const char *name, const char *content)
{
	const char *dir = arena_printf(f->a, "%s/sources/%s", f->dir, name);
	struct model_job j = {0};

	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &f->err), &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/w", dir), str_of(content), 0644,
	                          &f->err),
	          &f->err);
	assert_ok(fixture_push(f, "",
	                       arena_printf(f->a,
	                                    "\"weights\":[{\"source\":\"file://%s\","
	                                    "\"mount_location\":\"/w\"}]",
	                                    dir),
	                       &j),
	          &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING);
	(void)fixture_claim(f, fixture_runner(f, j.id, 0), "a");
	fixture_exit(f, fixture_runner(f, j.id, 0), JOB_END_DEPLOY_FAILED, 0);
	clock_sleep_ms(2); /* the next one is used later */
}

/* A limit that was lowered: a dry run shows what goes then, the least recently used first, and what
 * other garbage frees counts before. */
static void maintenance_trims_the_mirror_to_its_limit(void **state)
{
	const struct maintenance_want dry = {.dry_run = true}, real = {0};
	struct fixture *f = *state;
	struct maintenance_view would, did;
	struct model_mirror *x = NULL;
	struct digest loose;
	size_t n = 0;

	mirror_source(f, "old", "12345678");
	mirror_source(f, "new", "abcdefgh");
	mirror_source(f, "newest", "ABCDEFGH");
	assert_int_equal(maintenance(f, dry).found, 0);
	assert_ok(blobs_put(f->app->blobs, STR_LIT("rest"), &loose, &f->err), &f->err);
	f->app->set.mirror_bytes = 24;
	would = maintenance(f, dry);
	assert_int_equal(would.found, 1); /* the loose one is enough */
	f->app->set.mirror_bytes = 9;
	would = maintenance(f, dry);
	assert_int_equal(would.found, 3);
	assert_int_equal(would.found_bytes, 4 + 8 + 8);
	assert_int_equal(item_of(&would, "weights over the limit")->bytes, 8);
	assert_int_equal(blobs_in_store(f), 4);
	did = maintenance(f, real);
	assert_int_equal(did.found, would.found);
	assert_int_equal(did.found_bytes, would.found_bytes);
	assert_int_equal(maintenance(f, dry).found, 0);
	assert_ok(mirror_ops.list(ADMIN(f), &x, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_true(str_ends(str_of(x[0].source), "/newest"));
	assert_int_equal(blobs_in_store(f), 1);
}

static int take(struct fixture *f, uint64_t bytes, struct mirror_hold **out)
{
	const struct mirror_want want = {.bytes = bytes};

	return mirror_room_take(f->app, "weights", bytes, &want, &f->app->stopping, out, &f->err);
}

/* Not at every blob for every file; but before it refuses. */
static void room_is_looked_for_only_where_it_is_short(void **state)
{
	struct fixture *f = *state;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(f->app->blobs);
	struct mirror_hold *one = NULL, *two = NULL;
	const char *path;
	struct digest d;

	f->app->set.mirror_bytes = 20;
	assert_ok(blobs_put(f->app->blobs, STR_LIT("0123456789"), &d, &f->err), &f->err);
	blob_pins_add(pins, &d);
	path = blobs_path(f->app->blobs, &d, f->a);
	assert_ok(take(f, 6, &one), &f->err);
	assert_err(take(f, 6, &two), &f->err, ERR_MIRROR_FULL, "16 B of the 20 B");
	assert_int_equal(unlink(path), 0); /* by another program */
	assert_ok(take(f, 6, &two), &f->err);
	mirror_room_give(f->app, two);
	/* nor is what that puts there seen while what is counted leaves room */
	assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT("0123456789"), 0444, &f->err), &f->err);
	assert_ok(take(f, 10, &two), &f->err);
	mirror_room_give(f->app, two);
	mirror_room_give(f->app, one);
}

static const struct objstore_ops *real;
static atomic_bool away;
static atomic_uint asked; /* for a manifest, in vain */

static int stat_or_away(struct objstore *os, const char *key, struct objstore_info *out,
                        struct err *err)
{
	if (!atomic_load(&away))
		return real->stat(os, key, out, err);
	if (str_starts(str_of(key), "manifests/"))
		atomic_fetch_add(&asked, 1);
	return err_set(err, ERR_UNAVAILABLE, "away");
}

/* Who looks for room asks once, not for each source, and a fetch waits until the store is back. */
static void room_is_not_looked_for_while_the_store_is_away(void **state)
{
	const struct blobs_way way = {0};
	struct fixture *f = *state;
	struct objstore_ops ops = *f->app->objects->ops;
	struct blobs_collected out;
	struct model_job j = {0};
	const char *dir = arena_printf(f->a, "%s/sources/late", f->dir);

	real = f->app->objects->ops;
	ops.stat = stat_or_away;
	f->app->objects->ops = &ops;
	f->app->set.objects = "dir:/objects"; /* weights are kept in what it has */
	mirror_source(f, "old", "12345678");
	mirror_source(f, "new", "abcdefgh");
	mirror_source(f, "newest", "ABCDEFGH");
	f->app->set.mirror_bytes = 9;
	atomic_store(&away, true);
	assert_err(mirror_room_trim(f->app, 0, &way, &out, &f->err), &f->err, ERR_UNAVAILABLE,
	           "away");
	assert_int_equal(atomic_load(&asked), 1);
	assert_int_equal(blobs_in_store(f), 3);

	f->app->set.mirror_bytes = 24;
	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &f->err), &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/w", dir), STR_LIT("87654321"),
	                          0644, &f->err),
	          &f->err);
	assert_ok(fixture_push(f, "",
	                       arena_printf(f->a,
	                                    "\"weights\":[{\"source\":\"file://%s\","
	                                    "\"mount_location\":\"/w\"}]",
	                                    dir),
	                       &j),
	          &f->err);
	for (int waited = 0; atomic_load(&asked) < 2 + FETCH_TRIES && waited < FIXTURE_WAIT_MS;
	     waited += 20) {
		inputs_pass(f->app);
		clock_sleep_ms(20);
	}
	assert_true(atomic_load(&asked) >= 2 + FETCH_TRIES);
	atomic_store(&away, false);
	fixture_await(f, j.id, JOB_DEPLOYING);
	assert_int_equal(blobs_in_store(f), 3); /* one went */
	fixture_kill_runners(f);
	fixture_down(f); /* before the drivers' functions go */
}

static bool is_stored(struct fixture *f, const char *key)
{
	struct objstore_info info;
	bool is = objstore_stat(f->app->objects, key, &info, &f->err) == 0;

	err_clear(&f->err);
	return is;
}

static unsigned stats, put_anew_at; /* at which look at the blob it is put anew; 0: never */

static int stat_of_another(struct objstore *os, const char *key, struct objstore_info *info,
                           struct err *err)
{
	if (str_starts(str_of(key), "blobs/") && ++stats == put_anew_at)
		assert_ok(real->put(os, key, STR_LIT("12345678"), err), err);
	return real->stat(os, key, info, err);
}

/* What is damaged goes, unless the folder mends it; what was put anew since it was read stays,
 * however late that was. */
static void verify_keeps_what_was_put_anew(void **state)
{
	static const char good[] = "12345678";
	static const struct {
		unsigned at;
		bool folder, told, there;
	} rows[] = {{0, false, true, false},
	            {0, true, true, true},
	            {1, false, false, true},
	            {2, false, true, true}};
	struct fixture *f = *state;
	struct objstore_ops ops = *f->app->objects->ops;
	struct digest d = hash_sha256(good, strlen(good));
	char key[BLOB_KEY_CAP];

	real = f->app->objects->ops;
	ops.stat = stat_of_another;
	f->app->set.objects = "dir:/objects"; /* weights are kept in what it has */
	blob_object_key(&d, key);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct maintenance_view v;

		mirror_source(f, arena_printf(f->a, "s%zu", i), good);
		assert_true(is_stored(f, key));
		assert_ok(objstore_del(f->app->objects, key, &f->err), &f->err);
		assert_ok(objstore_put(f->app->objects, key, STR_LIT("1234567x"), &f->err),
		          &f->err);
		if (!rows[i].folder)
			assert_int_equal(unlinkat(blobs_dirfd(f->app->blobs), key, 0), 0);
		stats = 0;
		put_anew_at = rows[i].at;
		f->app->objects->ops = &ops;
		v = maintenance(f, (struct maintenance_want){.verify = true});
		f->app->objects->ops = real;
		assert_int_equal(item_of(&v, "weights") != NULL, rows[i].told);
		if (rows[i].there != is_stored(f, key))
			fail_msg("put anew at look %u", rows[i].at);
	}
}

static void put_upload(struct fixture *f, const char *key, int64_t created_ms)
{
	const struct model_upload u = {.access_key = key,
	                               .key = key,
	                               .team_id = f->project.team_id,
	                               .created_ms = created_ms,
	                               .expires_ms = created_ms + 1};

	assert_ok(meta_upload_add(f->app->meta, &u, STR_LIT("sealed"), &f->err), &f->err);
	assert_ok(objstore_put(f->app->objects, key, STR_LIT("code"), &f->err), &f->err);
}

static char *make_cache(struct fixture *f, const char *id)
{
	char *dir = app_path(f->app, f->a, arena_printf(f->a, "cache/projects/%s", id));

	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &f->err), &f->err);
	return dir;
}

/* By its own ages and periods, and not what only an administrator may take. */
static void janitor_takes_what_is_due(void **state)
{
	struct fixture *f = *state;
	int64_t now = clock_wall_ms();
	const char *deleted = make_cache(f, f->project.id), *orphan = make_cache(f, "gone123");
	struct digest loose;

	put_upload(f, "uploads/old.tgz", now - 25LL * 3600 * 1000);
	put_upload(f, "uploads/young.tgz", now - 23LL * 3600 * 1000);
	assert_ok(blobs_put(f->app->blobs, STR_LIT("loose"), &loose, &f->err), &f->err);
	assert_ok(project_ops.remove(ADMIN(f), f->project.id, &f->err), &f->err);
	maintenance_gc_due(f->app);
	assert_int_equal(access(deleted, F_OK), -1);
	assert_int_equal(access(orphan, F_OK), 0);
	assert_false(is_stored(f, "uploads/old.tgz"));
	assert_true(is_stored(f, "uploads/young.tgz"));
	assert_true(blobs_has(f->app->blobs, &loose, 5));

	/* the trash is emptied each time, the rest waits for its turn */
	put_upload(f, "uploads/older.tgz", now - 26LL * 3600 * 1000);
	assert_ok(project_ops.upsert(ADMIN(f), NULL, "next", &f->project, &f->err), &f->err);
	deleted = make_cache(f, f->project.id);
	assert_ok(project_ops.remove(ADMIN(f), f->project.id, &f->err), &f->err);
	maintenance_gc_due(f->app);
	assert_int_equal(access(deleted, F_OK), -1);
	assert_true(is_stored(f, "uploads/older.tgz"));
}

static unsigned del_calls;

/* Not the object b. */
static int del_but_b(struct objstore *os, const char *const *key, size_t n, size_t *at,
                     struct err *err)
{
	size_t end, unused;

	del_calls++;
	for (end = 0; end < n && strcmp(key[end], "uploads/b.tgz") != 0; end++)
		;
	*at = end;
	if (end > 0 && objstore_dir.del_all(os, key, end, &unused, err) < 0)
		return -1;
	return end == n ? 0 : err_set(err, ERR_IO, "it will not");
}

/* Deleted objects go together; one that does not stays, and holds up no other. */
static void trash_that_cannot_be_removed_stays(void **state)
{
	static const char *const key[] = {"uploads/a.tgz", "uploads/b.tgz", "uploads/c.tgz",
	                                  "uploads/d.tgz"};
	struct fixture *f = *state;
	struct objstore *os = f->app->objects;
	struct objstore_ops ops = *os->ops;
	struct meta_trash *t;
	uint64_t swept;
	size_t n;

	real = os->ops;
	assert_ptr_equal(real, &objstore_dir);
	ops.del_all = del_but_b;
	for (size_t i = 0; i < COUNT(key); i++)
		put_upload(f, key[i], 1);
	assert_ok(meta_uploads_sweep(f->app->meta, 3, &swept, &f->err), &f->err);
	assert_int_equal(swept, COUNT(key));
	os->ops = &ops;
	maintenance_gc_due(f->app);
	os->ops = real;
	for (size_t i = 0; i < COUNT(key); i++)
		assert_true(is_stored(f, key[i]) == (i == 1));
	assert_ok(meta_trash(f->app->meta, f->a, &t, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_string_equal(t[0].what, key[1]);
	assert_int_equal(del_calls, 3); /* a, b; c, d; b once more, when nothing else was left */
	maintenance_gc_due(f->app);
	assert_false(is_stored(f, key[1]));
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(maintenance_collects_beside_a_fetch_and_what_was_deleted),
	FIXTURE_TEST(maintenance_trims_the_mirror_to_its_limit),
	FIXTURE_TEST(room_is_looked_for_only_where_it_is_short),
	FIXTURE_TEST(room_is_not_looked_for_while_the_store_is_away),
	FIXTURE_TEST(janitor_takes_what_is_due),
	FIXTURE_TEST(trash_that_cannot_be_removed_stays),
	FIXTURE_TEST(verify_keeps_what_was_put_anew),
};
UNIT_MAIN(tests)
