/* test_hub_repo.c - what is kept of another Hub's repositories, beside those who remove it. */
#include "server_fixture.h"

#include "server/data/hub_impl.h"
#include "store/objects/objstore_impl.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define REF "models/ada/net@" COMMIT

static const char *const contents[] = {"one", "two"};

/* A repository of two files, which are in the mirror. */
static struct hub_repo *add_repo(struct fixture *f)
{
	struct hub_file file[COUNT(contents)];
	struct hub_listing l = {.type = HUB_MODELS,
	                        .id = "Ada/Net",
	                        .commit = COMMIT,
	                        .about = "{}",
	                        .file = file,
	                        .n = COUNT(file)};
	struct hub_repo *r;

	for (size_t i = 0; i < COUNT(file); i++) {
		file[i] = (struct hub_file){
			.path = contents[i], .size = strlen(contents[i]), .lfs = true};
		assert_ok(blobs_put(f->app->blobs, str_of(contents[i]), &file[i].sha256, &f->err),
		          &f->err);
	}
	assert_ok(hub_listing_finish(&l, f->a, &f->err), &f->err);
	assert_ok(hub_repo_add(f->app, "", &l, &f->err), &f->err);
	lock_take(&f->app->hub->lock);
	r = hub_repo_find(f->app->hub, "", HUB_MODELS, "Ada/Net", COMMIT);
	lock_give(&f->app->hub->lock);
	assert_non_null(r);
	return r;
}

/* It has come, and the keeper writes that. */
static void keep_file(struct fixture *f, struct hub_repo *r, size_t i)
{
	lock_take(&f->app->hub->lock);
	hub_repo_note(r, &r->l.file[i], &r->l.file[i].sha256);
	lock_give(&f->app->hub->lock);
	clock_sleep_ms(2); /* it looks at each once in a millisecond */
	hub_repos_keep(f->app);
}

static bool has_ref(struct fixture *f, struct model_ref *out)
{
	struct err err = {0};
	bool has = meta_ref(f->app->meta, f->a, "", META_REF_HUB, REF, out, &err) == 0;

	assert_true(has || err.code == ERR_NOT_FOUND);
	return has;
}

static void remove_it(struct fixture *f)
{
	struct model_mirror *x = NULL, was;
	size_t n = 0;

	assert_ok(hub_list(f->app, f->a, NULL, &x, &n, &f->err), &f->err);
	assert_int_equal(n, 1);
	assert_ok(hub_remove(ADMIN(f), x[0].id, &was, &f->err), &f->err);
}

static _Atomic(struct fixture *) removes; /* the first of several threads does it */
static const struct objstore_ops *real;

/* While the keeper stores the manifest that its ref is about to name. */
static int put_and_remove(struct objstore *os, const char *key, const struct objstore_file *file,
                          struct digest *sha256, struct err *err)
{
	struct fixture *f = atomic_exchange(&removes, NULL);

	if (f != NULL)
		remove_it(f);
	return real->put_file(os, key, file, sha256, err);
}

static void a_removed_ref_does_not_come_back(void **state)
{
	struct fixture *f = *state;
	struct app *app = f->app;
	struct objstore_ops ops = *app->objects->ops;
	struct hub_repo *r = add_repo(f);
	struct model_ref ref;

	real = app->objects->ops;
	ops.put_file = put_and_remove;
	ops.adopt = NULL;
	app->set.objects = "dir";
	app->objects->ops = &ops;
	keep_file(f, r, 0);
	assert_true(has_ref(f, &ref));
	assert_int_equal(ref.files, 1);
	atomic_store(&removes, f);
	keep_file(f, r, 1);
	assert_null(atomic_load(&removes));
	assert_false(has_ref(f, &ref));
	keep_file(f, r, 1); /* what comes from now on is kept */
	assert_true(has_ref(f, &ref));
	assert_int_equal(ref.files, 1);
	app->objects->ops = real;
	app->set.objects = NULL;
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(a_removed_ref_does_not_come_back),
};
UNIT_MAIN(tests)
