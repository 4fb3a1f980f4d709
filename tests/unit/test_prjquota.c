/* test_prjquota.c - the limits of project quotas, on file systems that have them: in a virtual
 * machine (tests/vm.py), where PRJQUOTA_EXT4 and PRJQUOTA_XFS are mounted with them. */
#include "run/prjquota.h"

#include "run/prjquota_keeper.h"

#include "base/clock.h"
#include "base/fs.h"
#include "run/ship.h"
#include "unit.h"

#include <dirent.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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

/* Of a folder with LIMIT. */
static uint64_t used_in(const char *dir)
{
	uint64_t bytes = 0;

	assert_true(prjquota_used(dir, LIMIT, &bytes));
	return bytes;
}

static uint64_t used(const struct place *p)
{
	return used_in(p->dir);
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
	AUTO_FREE char *path = xasprintf("%s/a", p->dir), *deep = xasprintf("%s/b", p->dir),
		       *below = xasprintf("%s/b/c", p->dir);

	(void)take(p, LIMIT);
	assert_int_equal(fill(path, LIMIT / 2), 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	assert_int_equal(fill(below, LIMIT), p->full);
	sync();
	print_message("# %s: %" PRIu64 " of %" PRIu64 " bytes in use\n", p->fs, used(p), LIMIT);
	assert_true(used(p) <= LIMIT);
	assert_true(used(p) + MIB >= LIMIT);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fill(below, LIMIT / 4), 0);
}

static void blocks_are_not_reserved_beyond_it(void **state)
{
	const struct place *p = *state;
	AUTO_FREE char *path = xasprintf("%s/a", p->dir);
	AUTO_FD int fd = -1;

	(void)take(p, LIMIT);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)(3 * LIMIT)), -1);
	assert_int_equal(errno, p->full);
	assert_true(used(p) <= LIMIT);
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
	before = used(p);
	assert_true(before >= LIMIT - 2 * MIB);
	fd = open(kept, O_RDONLY | O_CLOEXEC);
	assert_false(prjquota_forget(fd, id + 1));
	assert_true(prjquota_forget(fd, id));
	(void)close(fd);
	assert_true(used(p) <= before - (LIMIT - 2 * MIB));
	assert_int_equal(fill(path, LIMIT - 2 * MIB), 0);
	assert_int_equal(link(kept, path), -1); /* there is one of the name */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(link(kept, path), -1);
	assert_int_equal(errno, EXDEV);
}

static bool is_below(const struct place *p, uint64_t bytes)
{
	for (int i = 0; i < WAIT_MS / 20 && used(p) >= bytes; i++)
		clock_sleep_ms(20);
	return used(p) < bytes;
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

static bool forget(void *arg, int fd)
{
	return prjquota_forget(fd, *(const uint32_t *)arg);
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
	                         .forget = forget,
	                         .checkpoint = no_checkpoint,
	                         .event = no_event,
	                         .arg = &id};
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
	assert_true(used(p) >= 2 * size);
	assert_int_equal(unlink(closed), 0);
	assert_true(is_below(p, 2 * size));
	assert_int_equal(unlink(held), 0);
	clock_sleep_ms(1000); /* for looks at the folder that would take it out */
	assert_true(used(p) >= size);
	(void)close(fd);
	assert_true(is_below(p, size));
	assert_int_equal(fill(moved, size), 0);
	wait_for(p, 3);
	assert_int_equal(rename(moved, other), 0); /* its old name is gone, the file is not */
	clock_sleep_ms(1000);
	assert_true(used(p) >= size);
	ship_close(ship);
	objstore_close(o.objects);
}

struct taker {
	pthread_t thread;
	pthread_barrier_t *all;
	const struct place *p;
	unsigned n;
	uint32_t id;
	char *dir;
	bool failed;
};

static void *taking(void *arg)
{
	struct taker *t = arg;
	struct err err = {0};

	t->dir = xasprintf("%s/%u", t->p->spool, t->n);
	if (mkdir(t->dir, 0700) < 0)
		t->failed = true;
	(void)pthread_barrier_wait(t->all);
	/* so few ids that they meet all the time */
	if (prjquota_take_of(t->dir, LIMIT, TEST_IDS, TAKERS + 1, &t->id, &err) < 0)
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
			if (!t[i].failed && used_in(t[i].dir) > MIB)
				fail_msg("%u counts somebody else's", t[i].id);
			free(t[i].dir);
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
	AUTO_FREE char *path = xasprintf("%s/a", p->dir), *link_to = xasprintf("%s/link", p->spool);
	uint64_t unknown = 0;

	(void)take(p, LIMIT);
	prjquota_lift(p->spool); /* has none: nothing happens */
	assert_int_equal(symlink(p->dir, link_to), 0);
	prjquota_lift(link_to); /* leads nowhere */
	assert_int_equal(fill(path, LIMIT + MIB), p->full);
	prjquota_lift(p->dir);
	assert_int_equal(fill(path, LIMIT), 0);
	assert_false(prjquota_used(p->dir, LIMIT, &unknown));
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

/* ---- of a runner that gave up root ------------------------------------------------------------
 */

#define RUNNER_OF (&(struct ids){.on = true, .idmap = true, .span = IDS_SPAN, .job = IDS_FIRST})
#define RUNNER (IDS_FIRST + IDS_SPAN - 1)

static uint32_t project_of(const char *path)
{
	AUTO_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct fsxattr x = {0};

	assert_int_equal(ioctl(fd, FS_IOC_FSGETXATTR, &x), 0);
	return x.fsx_projid;
}

static bool asks(struct prjquota_keeper *k, const char *path, int flags)
{
	AUTO_FD int fd = open(path, O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	return prjquota_keeper_forget(k, fd);
}

/* Of our only child. */
static void look_at_child(char status[4096], char root[64])
{
	DIR *d = opendir("/proc");
	AUTO_FREE char *parent = xasprintf("\nPPid:\t%d\n", (int)getpid());
	bool found = false;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL && !found; e = readdir(d)) {
		AUTO_FREE char *path = xasprintf("/proc/%s/status", e->d_name);
		AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, status, 4095);

		if (n <= 0)
			continue;
		status[n] = '\0';
		found = strstr(status, parent) != NULL;
		fmt_fixed(root, 64, "/proc/%.20s/root", e->d_name);
	}
	(void)closedir(d);
	assert_true(found);
}

static void check_rights(void)
{
	static char status[4096];
	AUTO_FREE char *user =
		xasprintf("\nUid:\t%u\t%u\t%u\t%u\n", RUNNER, RUNNER, RUNNER, RUNNER);
	char root[64];
	size_t names = 0;
	DIR *d;

	look_at_child(status, root);
	assert_non_null(strstr(status, user));
	assert_non_null(strstr(status, "\nGroups:\t \n"));
	assert_non_null(strstr(status, "\nCapEff:\t0000000000000008\n")); /* CAP_FOWNER */
	assert_non_null(strstr(status, "\nCapPrm:\t0000000000000008\n"));
	assert_non_null(strstr(status, "\nNoNewPrivs:\t1\n"));
	assert_non_null(strstr(status, "\nSeccomp:\t2\n"));
	d = opendir(root);
	assert_non_null(d);
	while (readdir(d) != NULL)
		names++;
	(void)closedir(d);
	assert_int_equal(names, 2); /* . and .. */
}

/* What a runner that was taken over could ask its keeper for, and what it is there for. */
static void a_keeper_changes_what_is_its_jobs_alone(void **state)
{
	const struct place *p = *state;
	uint32_t id = take(p, LIMIT), others = 0;
	AUTO_FREE char *file = xasprintf("%s/a", p->dir), *kept = xasprintf("%s/1", p->spool),
		       *deep = xasprintf("%s/deep", p->dir), *pipe = xasprintf("%s/pipe", p->dir),
		       *link_to = xasprintf("%s/link", p->dir),
		       *free_file = xasprintf("%s/2", p->spool),
		       *other = xasprintf("%s/other", p->spool),
		       *their = xasprintf("%s/other/w.bin", p->spool);
	struct prjquota_keeper *k = NULL;
	struct err err = {0};

	assert_int_equal(mkdir(other, 0700), 0);
	assert_ok(prjquota_take_of(other, LIMIT, TEST_IDS + 200, 100, &others, &err), &err);
	assert_int_equal(fill(their, MIB), 0);
	assert_int_equal(fill(free_file, MIB), 0);
	assert_int_equal(fill(file, LIMIT / 2), 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(symlink(their, link_to), 0);
	assert_int_equal(link(file, kept), 0);
	assert_ok(prjquota_keeper_start(&k, p->dir, id, RUNNER_OF, &err), &err);
	assert_false(asks(k, their, O_RDWR));
	assert_int_equal(project_of(their), others);
	assert_false(asks(k, link_to, O_RDONLY)); /* leads there */
	assert_false(asks(k, link_to, O_PATH | O_NOFOLLOW));
	assert_false(asks(k, free_file, O_RDWR));
	assert_false(asks(k, p->dir, O_RDONLY | O_DIRECTORY));
	assert_false(asks(k, deep, O_RDONLY | O_DIRECTORY));
	assert_false(asks(k, pipe, O_RDWR | O_NONBLOCK));
	assert_false(asks(k, "/dev/null", O_RDWR));
	assert_false(asks(k, "/dev/shm", O_TMPFILE | O_RDWR));
	assert_false(prjquota_keeper_forget(k, -1));
	assert_false(asks(k, kept, O_RDONLY)); /* has a name in the folder */
	check_rights();
	assert_int_equal(project_of(p->dir), id);
	assert_int_equal(project_of(deep), id);
	assert_int_equal(project_of(kept), id);
	assert_true(used(p) >= LIMIT / 2);
	assert_int_equal(unlink(file), 0);
	assert_true(asks(k, kept, O_RDONLY));
	assert_int_equal(project_of(kept), 0);
	assert_true(used(p) < LIMIT / 2);
	assert_int_equal(link(kept, file), -1); /* and cannot come back */
	assert_int_equal(errno, EXDEV);
	prjquota_keeper_close(k);
}

/* In a child: which of these failed; 0: none. */
static int no_more_than_reads(const struct place *p, const char *file, uint32_t id)
{
	AUTO_FD int fd = open(file, O_RDWR | O_CLOEXEC), dir = open(p->dir, O_RDONLY | O_CLOEXEC);
	uint64_t before = 0, after = 0;
	struct fsxattr x = {0};
	struct err err = {0};
	uint32_t taken = 1;

	if (!prjquota_used(p->dir, LIMIT, &before) || before < LIMIT / 2)
		return 1;
	if (prjquota_works(p->fs) || prjquota_take(p->spool, LIMIT, &taken, &err) < 0 || taken != 0)
		return 2;
	if (prjquota_forget(fd, id) || ioctl(dir, FS_IOC_FSGETXATTR, &x) < 0)
		return 3;
	x.fsx_projid = id + 1;
	if (ioctl(dir, FS_IOC_FSSETXATTR, &x) == 0)
		return 4;
	x.fsx_projid = id;
	x.fsx_xflags &= ~(uint32_t)FS_XFLAG_PROJINHERIT;
	if (ioctl(dir, FS_IOC_FSSETXATTR, &x) == 0)
		return 5;
	prjquota_lift(p->dir);
	if (!prjquota_used(p->dir, LIMIT, &after) || after != before)
		return 6;
	return fill(file, LIMIT) == p->full ? 0 : 7;
}

/* ... and by itself, be it the owner of all: it is root of a user namespace. */
static void nobody_else_changes_a_limit(void **state)
{
	const struct place *p = *state;
	uint32_t id = take(p, LIMIT);
	AUTO_FREE char *file = xasprintf("%s/a", p->dir);
	int status = 0;
	pid_t child;

	assert_int_equal(fill(file, LIMIT / 2), 0);
	child = fork();
	if (child == 0) {
		int map;

		if (unshare(CLONE_NEWUSER) < 0 ||
		    (map = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC)) < 0 ||
		    write(map, "0 0 1", 5) != 5)
			_exit(100);
		_exit(no_more_than_reads(p, file, id));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(project_of(p->dir), id);
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
	ON(a_keeper_changes_what_is_its_jobs_alone),
	ON(nobody_else_changes_a_limit),
};

UNIT_MAIN(tests)
