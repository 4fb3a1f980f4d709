/* test_mounts.c - what covers what, and what is never seen. */
#include "run/mounts.h"

#include "base/fs.h"
#include "unit.h"

struct place {
	char dir[64];
	struct arena *a;
	struct mounts *m;
	struct wire_launch l;
	struct job_spec s;
	struct mounts_machine machine; /* a user without a home, one file system */
};

static char *below(struct place *p, const char *name)
{
	struct err err = {0};
	char *path = arena_printf(p->a, "%s/%s", p->dir, name);

	assert_ok(fs_mkdirs(AT_FDCWD, path, 0755, &err), &err);
	return path;
}

static int set_up(void **state)
{
	static const char *const folders[] = {ATTEMPT_CODE, ATTEMPT_SCRATCH, ATTEMPT_CKPT,
	                                      ATTEMPT_LOAD};
	struct place *p = xcalloc(1, sizeof(*p));

	FMT(p->dir, "/tmp/test_mounts.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->a = arena_new();
	p->m = arena_alloc(p->a, sizeof(*p->m));
	p->m->a = p->a;
	p->machine.uid = 65534;
	for (size_t i = 0; i < COUNT(folders); i++)
		(void)below(p, folders[i]);
	p->s = (struct job_spec){.workdir = true,
	                         .ckpt.path = "/mnt/ckpts",
	                         .load.folder = "/tmp/loaded_checkpoints",
	                         .cache.base_path = "/root/.cache"};
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	arena_free(p->a);
	free(p);
	return 0;
}

static size_t at(struct place *p, const char *path)
{
	for (size_t i = 0; i < p->m->n; i++) {
		if (strcmp(p->m->item[i].at, path) == 0)
			return i;
	}
	fail_msg("nothing is at %s", path);
	return 0;
}

static void refuses_what_is_not_there(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	assert_err(mounts_add(p->m, MOUNT_RO, "/not/there", "/x", &err), &err, ERR_NOT_FOUND, "/x");
	assert_int_equal(p->m->n, 0);
}

/* Shared below hidden is seen, hidden below shared is not. */
static void deeper_ones_come_later(void **state)
{
	struct place *p = *state;
	const char *share[] = {below(p, "data/venv"), below(p, "srv")};
	const char *hide[] = {below(p, "data"), below(p, "srv/secret"), "/not/there"};
	struct err err = {0};

	p->l.share = share;
	p->l.n_share = 2;
	p->l.hide = hide;
	p->l.n_hide = 3;
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_int_equal(p->m->n, 4);
	assert_true(at(p, hide[0]) < at(p, share[0]));
	assert_true(at(p, share[1]) < at(p, hide[1]));
	assert_int_equal(p->m->item[at(p, hide[1])].kind, MOUNT_EMPTY);
}

static void hides_through_links(void **state)
{
	struct place *p = *state;
	char *real = below(p, "disk/data"), *link = arena_printf(p->a, "%s/link", p->dir);
	const char *hide[] = {link};
	struct err err = {0};

	assert_int_equal(symlink(real, link), 0);
	p->l.hide = hide;
	p->l.n_hide = 1;
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	(void)at(p, real);
}

/* Below /tmp a job does not see the host's links: the share is at both of its names. */
static void shares_through_links(void **state)
{
	struct place *p = *state;
	char *real = below(p, "disk/venv"), *link = arena_printf(p->a, "%s/link", p->dir);
	const char *share[] = {link};
	struct err err = {0};

	assert_int_equal(symlink(real, link), 0);
	p->l.share = share;
	p->l.n_share = 1;
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_string_equal(p->m->item[at(p, real)].from, real);
	assert_int_equal(p->m->n, strncmp(link, "/tmp/", 5) == 0 ? 2 : 1);
	if (p->m->n == 2)
		assert_string_equal(p->m->item[at(p, link)].from, real);
}

static void hides_homes_elsewhere(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf passwd = BUF_INIT(10000);
	char *alice = below(p, "homes/alice"), *daemon = below(p, "homes/daemon");
	struct err err = {0};

	buf_printf(
		&passwd,
		"root:x:0:0::/root:/bin/sh\nalice:x:1001:1001::%s:/bin/sh\nd:x:99:99::%s:/bin/sh\n"
		"bob:x:1002:1002::/home/bob:/bin/sh\nweb:x:1003:1003::/var:/bin/"
		"sh\nbroken:x:1004\n",
		alice, daemon);
	p->machine.passwd = buf_view(&passwd);
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_int_equal(p->m->n, 1);
	assert_string_equal(p->m->item[0].at, alice);
}

/* Whoever the server runs as: its keys are in its home, wherever that is. */
static void hides_the_home_of_the_servers_user(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf passwd = BUF_INIT(10000);
	char *svc = below(p, "srv/svc"), *other = below(p, "srv/other");
	char *home = below(p, "srv/home");
	struct err err = {0};

	buf_printf(&passwd, "svc:x:998:998::%s:/bin/sh\nother:x:997:997::%s:/bin/sh\n", svc, other);
	p->machine = (struct mounts_machine){.passwd = buf_view(&passwd), .home = home, .uid = 998};
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_int_equal(p->m->n, 2);
	assert_int_equal(p->m->item[at(p, svc)].kind, MOUNT_EMPTY);
	assert_int_equal(p->m->item[at(p, home)].kind, MOUNT_EMPTY);
	p->m->n = 0;
	p->machine.home = "/usr"; /* a folder that jobs need */
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_int_equal(p->m->n, 1);
}

/* A folder that is mounted a second time. */
static void hides_every_name(void **state)
{
	struct place *p = *state;
	char *data = below(p, "data"), *again = below(p, "again"), *part = below(p, "part");
	const char *hidden[] = {data};
	struct err err = {0};

	p->machine.mountinfo = str_of(arena_printf(p->a,
	                                           "1 0 8:1 / / rw - ext4 x rw\n"
	                                           "2 1 8:1 %s %s rw - ext4 x rw\n"
	                                           "3 1 8:1 %s/runs %s rw - ext4 x rw\n",
	                                           data, again, data, part));
	p->l.hide = hidden;
	p->l.n_hide = 1;
	assert_ok(mounts_host(p->m, &p->l, &p->machine, &err), &err);
	assert_int_equal(p->m->n, 3);
	assert_int_equal(p->m->item[at(p, data)].kind, MOUNT_EMPTY);
	assert_int_equal(p->m->item[at(p, again)].kind, MOUNT_EMPTY);
	assert_int_equal(p->m->item[at(p, part)].kind, MOUNT_EMPTY);
}

static void places_of_a_job(void **state)
{
	struct place *p = *state;
	char *tree = below(p, "tree");
	const char *trees[] = {tree};
	struct wire_weights w = {.source = "hf://a/b", .mount_location = "/models/b"};
	struct err err = {0};

	p->l.weights = &w;
	p->l.n_weights = 1;
	p->l.cache_project_dir = below(p, "cache/p");
	p->l.cache_team_dir = below(p, "cache/t");
	(void)below(p, "cache/p/huggingface");
	p->s.ckpt.enabled = p->s.load.enabled = p->s.cache.enabled = true;
	p->s.cache.legacy_hf_mount = true;
	assert_ok(mounts_job(p->m, &p->l, &p->s, p->dir, trees, "/", true, &err), &err);
	assert_int_equal(p->m->item[at(p, "/models/b")].kind, MOUNT_RO);
	assert_int_equal(p->m->item[at(p, "/mnt/ckpts")].kind, MOUNT_RW);
	(void)at(p, "/mnt/bt-scratch");
	(void)at(p, "/tmp/loaded_checkpoints");
	(void)at(p, "/root/.cache/user_artifacts");
	(void)at(p, "/root/.cache/team_artifacts");
	(void)at(p, "/b10/workspace");
	/* what jobs may have put there is mounted nowhere */
	for (size_t i = 0; i < p->m->n; i++)
		assert_null(strstr(p->m->item[i].at, "huggingface"));
}

/* On the host a name may be a link: the folder that it leads to is judged. */
static void links_to_the_system_are_refused(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	assert_int_equal(symlink("/usr", arena_printf(p->a, "%s/link", p->dir)), 0);
	p->s.ckpt.enabled = true;
	p->s.ckpt.path = arena_printf(p->a, "%s/link/lib/x", p->dir);
	assert_err(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", true, &err), &err,
	           ERR_PLACE_SYSTEM, "");
	p->m->n = 0;
	err_clear(&err);
	/* an image has links of its own */
	assert_ok(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", false, &err), &err);
}

/* A job that was stored before there was a rule: it is judged when it is mounted, too. */
static void stored_places_are_judged(void **state)
{
	static const struct {
		const char *path;
		enum err_code id;
	} rows[] = {{"/usr", ERR_PLACE_SYSTEM},
	            {"/lib64/x", ERR_PLACE_SYSTEM},
	            {"/root/.cache/user_artifacts/f/x", ERR_PLACE_SHARED},
	            {"/root/.cache/team_artifacts/x", ERR_PLACE_SHARED}};
	struct place *p = *state;

	p->l.cache_project_dir = below(p, "cache/p");
	p->l.cache_team_dir = below(p, "cache/t");
	p->s.ckpt.enabled = p->s.cache.enabled = true;
	for (size_t i = 0; i < 2 * COUNT(rows); i++) {
		struct err err = {0};

		p->m->n = 0;
		p->s.ckpt.path = rows[i / 2].path;
		assert_err(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", i % 2 == 0, &err),
		           &err, rows[i / 2].id, "");
	}
}

/* Mount points inside the workspace are made there, and nowhere else. */
static void points_are_made_through_no_link(void **state)
{
	static const struct {
		const char *name, *target; /* NULL: a file */
	} rows[] = {{"out", "/usr"}, {"out", ".."}, {"out", "inner"}, {"out", NULL}};
	struct place *p = *state;
	struct err err = {0};

	(void)below(p, ATTEMPT_CODE "/inner");
	p->s.ckpt.enabled = true;
	p->s.ckpt.path = MOUNT_WORKSPACE "/out/deep/er";
	for (size_t i = 0; i < COUNT(rows); i++) {
		char *path = arena_printf(p->a, "%s/" ATTEMPT_CODE "/%s", p->dir, rows[i].name);

		if (rows[i].target != NULL)
			assert_int_equal(symlink(rows[i].target, path), 0);
		else
			assert_ok(fs_write_atomic(AT_FDCWD, path, STR_LIT(""), 0600, &err), &err);
		p->m->n = 0;
		assert_err(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", true, &err), &err,
		           ERR_MOUNT_REFUSED, "");
		err_clear(&err);
		assert_int_equal(unlink(path), 0);
	}
	p->m->n = 0;
	assert_ok(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", true, &err), &err);
	assert_int_equal(
		access(arena_printf(p->a, "%s/" ATTEMPT_CODE "/out/deep/er", p->dir), F_OK), 0);
}

static void code_may_not_cover_the_system(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	(void)below(p, ATTEMPT_CODE "/usr");
	p->s.workdir = false;
	p->l.n_code = 1;
	assert_err(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/", true, &err), &err, ERR_INVALID,
	           "enable_baseten_workdir");
}

static void code_lies_in_the_working_directory(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	(void)below(p, ATTEMPT_CODE "/mine");
	p->s.workdir = false;
	p->l.n_code = 1;
	assert_ok(mounts_job(p->m, &p->l, &p->s, p->dir, NULL, "/app", false, &err), &err);
	(void)at(p, "/app/mine");
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	T(refuses_what_is_not_there),
	T(deeper_ones_come_later),
	T(hides_through_links),
	T(shares_through_links),
	T(hides_homes_elsewhere),
	T(hides_the_home_of_the_servers_user),
	T(hides_every_name),
	T(places_of_a_job),
	T(stored_places_are_judged),
	T(links_to_the_system_are_refused),
	T(points_are_made_through_no_link),
	T(code_may_not_cover_the_system),
	T(code_lies_in_the_working_directory),
};
UNIT_MAIN(tests)
