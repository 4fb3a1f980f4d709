/* test_quota.c - who is ended for inodes, and a real folder that grows over its limits. */
#include "run/quota.h"

#include "base/clock.h"
#include "unit.h"

#include <poll.h>
#include <sys/mman.h>

#define WAIT_MS 60000

static const struct {
	const char *name;
	uint64_t total, left, own;
	bool over;
} rules[] = {
	{"plenty", 1000000, 500000, 500000, false},
	{"few, held by others", 1000000, 1000, 500, false},
	{"few, held by it", 1000000, 40000, 900000, true},
	{"few, shared by two alike", 1000000, 20000, 490000, true},
	{"few, held by many", 1000000, 40000, 200000, false},
	{"none left", 1000000, 0, 1000, true},
	{"none left, and it has next to none", 1000000, 0, 999, false},
	{"a small disk", 100000, 9000, 90000, true},
	{"a tiny disk", 2000, 400, 1500, false},
	{"a file system that counts none", 0, 0, 100000, false},
};

static void blames_who_holds_most(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rules); i++) {
		bool over = quota_inodes_over(rules[i].total, rules[i].left, rules[i].own);

		if (over != rules[i].over)
			fail_msg("%s: %d", rules[i].name, over);
	}
}

struct place {
	char dir[64];
	struct quota_options o;
	struct quota *q;
};

static int setup(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));

	FMT(p->dir, "/tmp/test_quota.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->o.dir = p->dir;
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	quota_stop(p->q);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	free(p);
	return 0;
}

static void put(struct place *p, const char *name, size_t bytes)
{
	AUTO_FREE char *path = xasprintf("%s/%s", p->dir, name), *body = xcalloc(1, bytes + 1);
	struct err err = {0};

	memset(body, 'x', bytes);
	assert_ok(fs_write_atomic(AT_FDCWD, path, str_n(body, bytes), 0600, &err), &err);
}

static void assert_crossed(struct place *p, enum err_code id)
{
	struct pollfd fd = {.fd = quota_fd(p->q), .events = POLLIN};
	struct err why = {0};

	assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
	assert_true(quota_crossed(p->q, &why));
	assert_int_equal(why.id, id);
}

static void a_volume_that_grows(void **state)
{
	struct place *p = *state;
	struct err err = {0}, why = {0};

	p->o.volume = p->dir;
	p->o.volume_bytes = 1 << 20;
	put(p, "a", 600 << 10);
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	assert_false(quota_crossed(p->q, &why));
	put(p, "b", 600 << 10);
	assert_crossed(p, ERR_VOLUME_FULL);
}

/* Faster than it is looked at: the last look finds it. */
static void a_volume_that_is_over_at_the_end(void **state)
{
	struct place *p = *state;
	struct err err = {0}, why = {0};

	p->o.volume = p->dir;
	p->o.volume_bytes = 1 << 20;
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	quota_finish(p->q, &why);
	assert_int_equal(why.code, ERR_NONE);
	put(p, "a", 1200 << 10);
	quota_finish(p->q, &why);
	assert_int_equal(why.id, ERR_VOLUME_FULL);
}

static void scratch_with_many_files(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	p->o.scratch[0] = p->dir;
	p->o.scratch_files = 10;
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	for (char name[2] = "a"; name[0] <= 'k'; name[0]++)
		put(p, name, 1);
	assert_crossed(p, ERR_SCRATCH_QUOTA_EXCEEDED);
}

/* One that nobody can find by name: `unlinked` once had one. */
static int put_nameless(struct place *p, size_t bytes, bool unlinked)
{
	AUTO_FREE char *path = xasprintf("%s/once", p->dir), *body = xcalloc(1, bytes);
	int fd = unlinked ? open(path, O_RDWR | O_CREAT, 0600)
	                  : open(p->dir, O_RDWR | O_TMPFILE, 0600);

	assert_true(fd >= 0);
	if (unlinked)
		assert_int_equal(unlink(path), 0);
	memset(body, 'x', bytes);
	assert_int_equal(write(fd, body, bytes), bytes);
	return fd;
}

static void nameless_files(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	p->o.init = getpid();
	for (int unlinked = 0; unlinked <= 1; unlinked++) {
		AUTO_FD int volume = -1, scratch = -1;

		p->o.volume = p->dir;
		p->o.volume_bytes = 1 << 20;
		assert_ok(quota_start(&p->q, &p->o, &err), &err);
		volume = put_nameless(p, 1200 << 10, unlinked);
		assert_crossed(p, ERR_VOLUME_FULL);
		quota_stop(TAKE(p->q));
		close_fd_p(&volume), volume = -1;
		p->o.volume = NULL;
		p->o.scratch[0] = p->dir;
		p->o.scratch_bytes = 1 << 20;
		assert_ok(quota_start(&p->q, &p->o, &err), &err);
		scratch = put_nameless(p, 1200 << 10, unlinked);
		assert_crossed(p, ERR_SCRATCH_QUOTA_EXCEEDED);
		quota_stop(TAKE(p->q));
		p->o.scratch_bytes = 0;
	}
}

/* Each once, however many descriptors it has; and one that is only mapped. */
static void nameless_files_count_once(void **state)
{
	struct place *p = *state;
	struct err err = {0}, why = {0};
	AUTO_FD int fd = -1, again = -1, more = -1;
	size_t bytes = 600 << 10;
	void *at;

	p->o.init = getpid();
	p->o.scratch[0] = p->dir;
	p->o.scratch_bytes = 1 << 20;
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	fd = put_nameless(p, bytes, false);
	again = dup(fd);
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	quota_finish(p->q, &why);
	assert_int_equal(why.code, ERR_NONE);
	if (geteuid() == 0) { /* others may not see what is mapped */
		close_fd_p(&fd), fd = -1;
		close_fd_p(&again), again = -1;
	}
	more = put_nameless(p, bytes, false);
	quota_finish(p->q, &why);
	assert_int_equal(why.id, ERR_SCRATCH_QUOTA_EXCEEDED);
	(void)munmap(at, bytes);
}

/* Held open, with a name in the volume if `named`, and one in the spool, as the shipper makes it.
 */
static int put_spooled(struct place *p, size_t bytes, bool named)
{
	AUTO_FREE char *path = xasprintf("%s/volume/x", p->dir);
	AUTO_FREE char *link_path = xasprintf("%s/spool/%zu", p->dir, bytes);
	AUTO_FREE char *body = xcalloc(1, bytes);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(link(path, link_path), 0);
	if (!named)
		assert_int_equal(unlink(path), 0);
	assert_int_equal(write(fd, body, bytes), bytes);
	return fd;
}

/* What the job removed and still writes: the spool's name of it is not the job's. */
static void what_the_spool_alone_names(void **state)
{
	struct place *p = *state;
	AUTO_FREE char *volume = xasprintf("%s/volume", p->dir);
	AUTO_FREE char *spool = xasprintf("%s/spool", p->dir);
	struct err err = {0}, why = {0};
	AUTO_FD int named = -1, removed = -1;

	assert_int_equal(mkdir(volume, 0700), 0);
	assert_int_equal(mkdir(spool, 0700), 0);
	p->o.init = getpid();
	p->o.volume = volume;
	p->o.spool = spool;
	p->o.volume_bytes = 1 << 20;
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	removed = put_spooled(p, 1100 << 10, false);
	quota_finish(p->q, &why);
	assert_int_equal(why.id, ERR_VOLUME_FULL);
	quota_stop(TAKE(p->q));

	/* nobody writes it any more: it waits for the store, which is not the job's fault */
	close_fd_p(&removed), removed = -1;
	err_clear(&why);
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	named = put_spooled(p, 600 << 10, true); /* once, by its name */
	quota_finish(p->q, &why);
	assert_int_equal(why.code, ERR_NONE);
}

/* What the job found there is furniture; its code is not. */
static void code_that_is_too_large(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	p->o.scratch[0] = p->dir;
	p->o.scratch_bytes = 1 << 20;
	put(p, "a", 1200 << 10);
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	quota_stop(TAKE(p->q));
	p->o.code = p->dir;
	assert_int_equal(quota_start(&p->q, &p->o, &err), -1);
	assert_int_equal(err.id, ERR_SCRATCH_QUOTA_EXCEEDED);
}

static void without_limits(void **state)
{
	struct place *p = *state;
	struct err err = {0}, why = {0};

	put(p, "a", 1200 << 10);
	assert_ok(quota_start(&p->q, &p->o, &err), &err);
	quota_finish(p->q, &why);
	assert_false(quota_crossed(p->q, &why));
	assert_int_equal(why.code, ERR_NONE);
	assert_false(quota_inodes_low("/proc"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blames_who_holds_most),
		cmocka_unit_test_setup_teardown(a_volume_that_grows, setup, teardown),
		cmocka_unit_test_setup_teardown(a_volume_that_is_over_at_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(scratch_with_many_files, setup, teardown),
		cmocka_unit_test_setup_teardown(nameless_files, setup, teardown),
		cmocka_unit_test_setup_teardown(nameless_files_count_once, setup, teardown),
		cmocka_unit_test_setup_teardown(what_the_spool_alone_names, setup, teardown),
		cmocka_unit_test_setup_teardown(code_that_is_too_large, setup, teardown),
		cmocka_unit_test_setup_teardown(without_limits, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
