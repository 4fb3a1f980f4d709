/* test_prjquota.c - the limits of project quotas, on file systems that have them: in a virtual
 * machine (tests/vm.py), where PRJQUOTA_EXT4 and PRJQUOTA_XFS are mounted with them. */
#include "run/prjquota.h"

#include "base/clock.h"
#include "base/fs.h"
#include "run/ship.h"
#include "unit.h"

#include <dirent.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>

#define MIB ((uint64_t)1 << 20)
#define LIMIT (32 * MIB)
#define WAIT_MS 120000
#define TAKERS 8
#define ROUNDS 25
#define TEST_IDS 0x53550000U /* beside those that servers take */

struct place {
	char fs[64], dir[128], spool[128];
	int full; /* what a write beyond the limit fails with */
};

/* ext4 holds nobody to a limit who has this capability; no job does. */
static void give_up_resource(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	assert_int_equal(syscall(SYS_capget, &head, caps), 0);
	caps[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective &= ~CAP_TO_MASK(CAP_SYS_RESOURCE);
	assert_int_equal(syscall(SYS_capset, &head, caps), 0);
}

static int setup(void **state, const char *variable, int full)
{
	struct place *p = xcalloc(1, sizeof(*p));
	const char *fs = getenv(variable);

	if (fs == NULL)
		fail_msg("%s is not set: run this by tests/vm.py", variable);
	FMT(p->fs, "%s", fs);
	FMT(p->dir, "%s/folder.XXXXXX", fs);
	assert_non_null(mkdtemp(p->dir));
	FMT(p->spool, "%s/spool.XXXXXX", fs);
	assert_non_null(mkdtemp(p->spool));
	p->full = full;
	give_up_resource();
	*state = p;
	return 0;
}

static int setup_ext4(void **state)
{
	return setup(state, "PRJQUOTA_EXT4", EDQUOT);
}

static int setup_xfs(void **state)
{
	return setup(state, "PRJQUOTA_XFS", ENOSPC);
}

static int teardown(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	assert_ok(fs_remove_tree(AT_FDCWD, p->spool, &err), &err);
	free(p);
	return 0;
}

static uint32_t take(const struct place *p, uint64_t bytes)
{
	struct err err = {0};
	uint32_t id = 0;

	assert_ok(prjquota_take(p->dir, bytes, &id, &err), &err);
	assert_int_not_equal(id, 0);
	return id;
}

static uint64_t used(const struct place *p, uint32_t id)
{
	uint64_t bytes = 0;

	assert_true(prjquota_used(p->fs, id, &bytes));
	return bytes;
}

/* Until it fails, or that much is written; 0, or the error. */
static int fill(const char *path, uint64_t bytes)
{
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	static char block[1 << 20];

	assert_true(fd >= 0);
	memset(block, 'x', sizeof(block));
	for (uint64_t done = 0; done < bytes;) {
		ssize_t n = write(fd, block, sizeof(block));

		if (n < 0)
			return errno;
		done += (uint64_t)n;
	}
	return fsync(fd) < 0 ? errno : 0;
}

static void works_where_it_is_switched_on(void **state)
{
	const struct place *p = *state;
	struct err err = {0};
	uint32_t id = 1;

	assert_true(prjquota_works(p->fs));
	assert_false(prjquota_works("/dev"));
	assert_ok(prjquota_take("/dev", LIMIT, &id, &err), &err);
	assert_int_equal(id, 0);
}

static void a_write_stops_at_the_limit(void **state)
{
	const struct place *p = *state;
	uint32_t id = take(p, LIMIT);
	AUTO_FREE char *path = xasprintf("%s/a", p->dir), *deep = xasprintf("%s/b", p->dir),
		       *below = xasprintf("%s/b/c", p->dir);

	assert_int_equal(fill(path, LIMIT / 2), 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	assert_int_equal(fill(below, LIMIT), p->full);
	sync();
	print_message("# %s: %" PRIu64 " of %" PRIu64 " bytes in use\n", p->fs, used(p, id), LIMIT);
	assert_true(used(p, id) <= LIMIT);
	assert_true(used(p, id) + MIB >= LIMIT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fill(below, LIMIT / 4), 0);
}

static void blocks_are_not_reserved_beyond_it(void **state)
{
	const struct place *p = *state;
	uint32_t id = take(p, LIMIT);
	AUTO_FREE char *path = xasprintf("%s/a", p->dir);
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(fallocate(fd, 0, 0, (off_t)(3 * LIMIT)), -1);
	assert_int_equal(errno, p->full);
	assert_true(used(p, id) <= LIMIT);
}

/* What waits for its upload, when the job has removed it. */
static void a_forgotten_file_counts_for_nothing(void **state)
{
	const struct place *p = *state;
	uint32_t id = take(p, LIMIT);
	AUTO_FREE char *path = xasprintf("%s/a", p->dir), *kept = xasprintf("%s/1", p->spool);
	uint64_t before;
	int fd;

	assert_int_equal(fill(path, LIMIT - 2 * MIB), 0);
	assert_int_equal(link(path, kept), 0);
	assert_int_equal(unlink(path), 0);
	before = used(p, id);
	assert_true(before >= LIMIT - 2 * MIB);
	fd = open(kept, O_RDONLY | O_CLOEXEC);
	assert_true(prjquota_forget(fd));
	(void)close(fd);
	assert_true(used(p, id) <= before - (LIMIT - 2 * MIB));
	assert_int_equal(fill(path, LIMIT - 2 * MIB), 0);
	assert_int_equal(link(kept, path), -1); /* there is one of the name */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(link(kept, path), -1);
	assert_int_equal(errno, EXDEV);
}

static bool is_below(const struct place *p, uint32_t id, uint64_t bytes)
{
	for (int i = 0; i < WAIT_MS / 20 && used(p, id) >= bytes; i++)
		clock_sleep_ms(20);
	return used(p, id) < bytes;
}

/* The number of the last file in the spool; 0: there is none. */
static unsigned long newest(const struct place *p)
{
	DIR *d = opendir(p->spool);
	unsigned long last = 0;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		last = MAX(last, strtoul(e->d_name, NULL, 10));
	(void)closedir(d);
	return last;
}

static void wait_for(const struct place *p, unsigned long number)
{
	for (int i = 0; i < WAIT_MS / 20 && newest(p) < number; i++)
		clock_sleep_ms(20);
	assert_true(newest(p) >= number);
}

static void no_checkpoint(void *arg UNUSED, const struct model_checkpoint *row UNUSED)
{
}

static void no_event(void *arg UNUSED, const char *kind UNUSED, const char *text UNUSED)
{
}

/* The shipper itself, with a store that is full for ever: what the trainer removes leaves the
 * volume, but not while it can still be written. */
static void what_waits_in_the_spool_does_not_count(void **state)
{
	const struct place *p = *state;
	const uint64_t size = 8 * MIB;
	uint32_t id = take(p, LIMIT);
	AUTO_FREE char *url = xasprintf("dir:%s", getenv("FULL")),
		       *folder = xasprintf("%s/checkpoint-1", p->dir),
		       *closed = xasprintf("%s/closed.bin", folder),
		       *held = xasprintf("%s/held.bin", folder),
		       *moved = xasprintf("%s/moved.bin", folder),
		       *other = xasprintf("%s/renamed.bin", folder);
	struct ship_options o = {.dir = p->dir,
	                         .spool = p->spool,
	                         .prefix = "jobs/j",
	                         .job_id = "j",
	                         .limited = true,
	                         .checkpoint = no_checkpoint,
	                         .event = no_event};
	struct ship *ship = NULL;
	struct err err = {0};
	int fd;

	assert_ok(objstore_open(&o.objects, url, &(struct objstore_env){0}, &err), &err);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(fill(closed, size), 0);
	assert_int_equal(fill(held, size), 0);
	assert_ok(ship_start(&ship, &o, &err), &err);
	wait_for(p, 2);
	fd = open(held, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(used(p, id) >= 2 * size);
	assert_int_equal(unlink(closed), 0);
	assert_true(is_below(p, id, 2 * size));
	assert_int_equal(unlink(held), 0);
	clock_sleep_ms(1000); /* for looks at the folder that would take it out */
	assert_true(used(p, id) >= size);
	(void)close(fd);
	assert_true(is_below(p, id, size));
	assert_int_equal(fill(moved, size), 0);
	wait_for(p, 3);
	assert_int_equal(rename(moved, other), 0); /* its old name is gone, the file is not */
	clock_sleep_ms(1000);
	assert_true(used(p, id) >= size);
	ship_close(ship);
	objstore_close(o.objects);
}

struct taker {
	pthread_t thread;
	pthread_barrier_t *all;
	const struct place *p;
	unsigned n;
	uint32_t id;
	bool failed;
};

static void *taking(void *arg)
{
	struct taker *t = arg;
	AUTO_FREE char *dir = xasprintf("%s/%u", t->p->spool, t->n);
	struct err err = {0};

	if (mkdir(dir, 0700) < 0)
		t->failed = true;
	(void)pthread_barrier_wait(t->all);
	/* so few ids that they meet all the time */
	if (prjquota_take_of(dir, LIMIT, TEST_IDS, TAKERS + 1, &t->id, &err) < 0)
		t->failed = true;
	return NULL;
}

/* They may fail to find one; each that has one has it alone. */
static void nobody_shares_an_id(void **state)
{
	const struct place *p = *state;
	unsigned taken = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct taker t[TAKERS] = {0};
		pthread_barrier_t all;
		struct err err = {0};

		(void)pthread_barrier_init(&all, NULL, TAKERS);
		for (unsigned i = 0; i < TAKERS; i++) {
			t[i] = (struct taker){.all = &all, .p = p, .n = i};
			assert_int_equal(pthread_create(&t[i].thread, NULL, taking, &t[i]), 0);
		}
		for (unsigned i = 0; i < TAKERS; i++)
			(void)pthread_join(t[i].thread, NULL);
		(void)pthread_barrier_destroy(&all);
		for (unsigned i = 0; i < TAKERS; i++) {
			taken += !t[i].failed;
			for (unsigned k = 0; k < i && !t[i].failed; k++) {
				if (!t[k].failed && t[k].id == t[i].id)
					fail_msg("round %u: two have %u", round, t[i].id);
			}
			if (!t[i].failed && used(p, t[i].id) > MIB)
				fail_msg("%u counts somebody else's", t[i].id);
		}
		assert_ok(fs_remove_tree(AT_FDCWD, p->spool, &err), &err);
		assert_int_equal(mkdir(p->spool, 0700), 0);
	}
	print_message("# %s: %u of %u found one\n", p->fs, taken, TAKERS * ROUNDS);
	assert_true(taken > TAKERS * ROUNDS / 2);
}

static void a_lifted_limit_is_gone(void **state)
{
	const struct place *p = *state;
	AUTO_FREE char *path = xasprintf("%s/a", p->dir);

	(void)take(p, LIMIT);
	prjquota_lift(p->spool); /* has none: nothing happens */
	assert_int_equal(fill(path, LIMIT + MIB), p->full);
	prjquota_lift(p->dir);
	assert_int_equal(fill(path, LIMIT), 0);
}

/* As after a runner and its sweeper that never came to lift theirs. */
static void a_limit_that_was_left_holds_nobody_up(void **state)
{
	const struct place *p = *state;
	AUTO_FREE char *path = xasprintf("%s/a", p->dir);
	struct err err = {0};
	uint32_t id = 0, again = 0;

	assert_ok(prjquota_take_of(p->dir, MIB, TEST_IDS + 100, 1, &id, &err), &err);
	assert_int_equal(fill(path, 2 * MIB), p->full);
	assert_err(prjquota_take_of(p->spool, MIB, TEST_IDS + 100, 1, &again, &err), &err, ERR_BUSY,
	           p->spool);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	assert_int_equal(mkdir(p->dir, 0700), 0);
	for (int i = 0; i < 100 && again == 0; i++) { /* xfs frees inodes when it has time */
		sync();
		if (prjquota_take_of(p->dir, LIMIT, TEST_IDS + 100, 1, &again, &err) < 0)
			(void)usleep(20000);
		err_clear(&err);
	}
	assert_int_equal(again, id);
	assert_int_equal(fill(path, LIMIT / 2), 0);
}

#define ON(test)                                                                                   \
	cmocka_unit_test_setup_teardown(test, setup_ext4, teardown),                               \
	{                                                                                          \
#test "_xfs", test, setup_xfs, teardown, NULL                                      \
	}

static const struct CMUnitTest tests[] = {
	ON(works_where_it_is_switched_on),
	ON(a_write_stops_at_the_limit),
	ON(blocks_are_not_reserved_beyond_it),
	ON(a_forgotten_file_counts_for_nothing),
	ON(what_waits_in_the_spool_does_not_count),
	ON(nobody_shares_an_id),
	ON(a_lifted_limit_is_gone),
	ON(a_limit_that_was_left_holds_nobody_up),
};

UNIT_MAIN(tests)
