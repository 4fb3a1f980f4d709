/* test_hub_repo.c - what is kept of another Hub's repositories, beside those who remove it. */
#include "server_fixture.h"

#include "server/data/repos.h"
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

static const struct hub_name own = {HUB_MODELS, "admin/own", "main"};

/* One file, committed to our own repository. */
static const char *commit_file(struct fixture *f, const char *path, const char *text)
{
	const struct hub_line head = {.kind = HUB_LINE_HEADER,
	                              .summary = path,
	                              .description = "and why",
	                              .parent = ""},
			      line = {.kind = HUB_LINE_FILE, .path = path};
	const struct ask ask = *ADMIN(f);
	struct repo_committed made;
	struct repo_change *c = NULL;
	struct hub_commit_sink to;

	assert_ok(repo_ops.commit_begin(&ask, &own, false, 1000, &c, &f->err), &f->err);
	to = repo_ops.commit_sink(c);
	assert_ok(to.line(to.arg, &head, false, &f->err), &f->err);
	assert_ok(to.content(to.arg, NULL, 0, &f->err), &f->err);
	assert_ok(to.content(to.arg, text, strlen(text), &f->err), &f->err);
	assert_ok(to.line(to.arg, &line, true, &f->err), &f->err);
	assert_ok(repo_ops.commit_end(c, &made, &f->err), &f->err);
	repo_ops.commit_free(c);
	return made.commit;
}

static struct hub_repo *in_memory(struct fixture *f, const struct model_repo *r, const char *commit)
{
	struct hub_repo *x;

	lock_take(&f->app->hub->lock);
	x = hub_own_find(f->app->hub, r, commit);
	lock_give(&f->app->hub->lock);
	return x;
}

/* What a commit has made is in memory, as it would be read; so the next one begins at once, and
 * looks only for what it brings. */
static void a_commit_begins_where_the_last_has_ended(void **state)
{
	struct fixture *f = *state;
	AUTO_BUF struct buf made = BUF_INIT(HUB_LISTING_MAX), read = BUF_INIT(HUB_LISTING_MAX);
	struct hub_repo *x, *y = NULL;
	struct digest first, listing, manifest;
	struct model_repo r, now;
	const char *commit;

	assert_ok(repo_ops.create(ADMIN(f), HUB_MODELS, NULL, "own", true, &r, &f->err), &f->err);
	(void)commit_file(f, "dir/one", "1");
	first = hash_sha256("1", 1);
	commit = commit_file(f, "dir/two", "2");
	x = in_memory(f, &r, commit);
	assert_non_null(x);
	hub_listing_write(&x->l, &made);
	listing = x->listing;
	manifest = x->manifest;
	hub_own_forget(f->app, r.id, NULL);
	assert_null(in_memory(f, &r, commit));
	assert_ok(repo_open(f->app, &r, commit, &y, &f->err), &f->err);
	hub_listing_write(&y->l, &read);
	assert_string_equal(buf_cstr(&made), buf_cstr(&read));
	assert_true(digest_same(&listing, &y->listing) && digest_same(&manifest, &y->manifest));
	assert_int_equal(y->l.n, 3);
	assert_non_null(hub_listing_folder(&y->l, STR_LIT("dir")));
	for (size_t i = 0; i < y->l.n; i++)
		assert_true(y->is_here[i] && repo_has(f->app, &y->l, &y->l.file[i]));
	repo_close(f->app, y);
	/* one file that the disk has lost does not end all work on the repository */
	assert_int_equal(unlink(blobs_path(f->app->blobs, &first, f->a)), 0);
	assert_ok(meta_repo(f->app->meta, f->a, r.id, &r, &f->err), &f->err);
	commit = commit_file(f, "three", "3");
	assert_ok(meta_repo(f->app->meta, f->a, r.id, &now, &f->err), &f->err);
	x = in_memory(f, &r, commit);
	assert_non_null(x);
	/* the team pays for what it brings: files, lists and texts */
	assert_int_equal(now.bytes - r.bytes, strlen("3") + HUB_LIST_COUNTS * x->listing_bytes +
	                                              strlen("three") + strlen("and why"));
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(a_commit_begins_where_the_last_has_ended),
	FIXTURE_TEST(a_removed_ref_does_not_come_back),
};
UNIT_MAIN(tests)
