/* test_cgroup.c - where groups are, from real texts; and real ones where this machine has them. */
#include "run/cgroup.h"

#include "base/arena.h"
#include "base/clock.h"
#include "io/proc.h"
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>

#define V1_SELF "9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/\n0::/x\n"
#define V1_MOUNTS                                                                                  \
	"25 1 0:22 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755\n"                         \
	"26 25 0:23 / /proc rw,relatime shared:7 master:1 - cgroup cgroup rw,memory\n"             \
	"27 25 0:24 / /usr rw - cgroup cgroup rw,cpu,cpuacct\n"                                    \
	"28 25 0:25 / /dev rw - cgroup2 cgroup2 rw\n"

static const struct {
	const char *name, *self, *mounts;
	const char *dir[CGROUP_PARTS]; /* memory, cpu, cpuacct, pids, unified */
} places[] = {
	{"nothing", "", "", {"", "", "", "", ""}},
	{"junk", ":::\n\n4:memory\n", "a b c\n- -\n", {"", "", "", "", ""}},
	/* folders that do not exist below the mount fall back to it: inside of containers */
	{"version 1", V1_SELF, V1_MOUNTS, {"/proc", "/usr", "/usr", "", "/dev"}},
	{"exists",
         "4:memory:/lib\n",
         "27 25 0:24 / /usr rw - cgroup cgroup rw,memory\n",
         {"/usr/lib", "", "", "", ""}},
	{"version 2",
         "0::/lib\n",
         "30 24 0:26 / /usr rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
         {"", "", "", "", "/usr/lib"}},
};

static void finds_places(void **state UNUSED)
{
	AUTO_FREE struct cgroup_paths *out = xcalloc(1, sizeof(*out));

	for (size_t i = 0; i < COUNT(places); i++) {
		cgroup_find(str_of(places[i].self), str_of(places[i].mounts), out);
		for (int k = 0; k < CGROUP_PARTS; k++)
			assert_row(strcmp(out->dir[k], places[i].dir[k]) == 0, places[i].name);
	}
}

/* A runner that stepped aside, and those it starts, make groups beside where it stands. */
static void stepping_aside_is_no_new_place(void **state UNUSED)
{
	static const struct {
		const char *below, *at;
		bool service;
	} row[] = {
		{"a.scope/stoker-leaf", "a.scope", false},
		{"b.service/stoker-leaf", "b.service", true},
		{"b.service", "b.service", true},
		{"b.service/stoker-leaf/stoker-leaf", "b.service/stoker-leaf", false},
	};
	AUTO_FREE struct cgroup_paths *out = xcalloc(1, sizeof(*out));
	AUTO_ARENA struct arena *a = arena_new();
	char top[] = "/tmp/test_cgroup.XXXXXX";
	struct err err = {0};

	assert_non_null(mkdtemp(top));
	for (size_t i = 0; i < COUNT(row); i++) {
		char *self = arena_printf(a, "0::/%s\n", row[i].below);
		char *mounts = arena_printf(a, "30 24 0:26 / %s rw - cgroup2 cgroup2 rw\n", top);
		char *dir = arena_printf(a, "%s/%s", top, row[i].below);

		assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &err), &err);
		cgroup_find(str_of(self), str_of(mounts), out);
		assert_row(strcmp(out->dir[CGROUP_UNIFIED],
		                  arena_printf(a, "%s/%s", top, row[i].at)) == 0,
		           row[i].below);
		assert_row(out->service == row[i].service, row[i].below);
	}
	assert_ok(fs_remove_tree(AT_FDCWD, top, &err), &err);
}

static void names_are_unique(void **state UNUSED)
{
	char a[128], b[128];

	cgroup_name("/data/one/runs", "att", 0, a);
	cgroup_name("/data/two/runs", "att", 0, b);
	assert_string_not_equal(a, b);
	cgroup_name("/data/one/runs", "att", 1, b);
	assert_string_not_equal(a, b);
}

static struct proc start_in(const struct cgroup *g, const char *script)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	struct proc_spec spec = {.argv = argv, .new_session = true, .umask_bits = -1};
	struct proc p = {.pidfd = -1};
	struct err err = {0};

	for (int i = 0; i < CGROUP_PARTS; i++) {
		char path[CGROUP_PATH_MAX + 32];
		FILE *f = NULL;

		if (g->dir[i][0] == '\0')
			continue;
		FMT(path, "%s/cgroup.procs", g->dir[i]);
		f = fopen(path, "we");
		assert_non_null(f);
		(void)fprintf(f, "%d\n", (int)getpid()); /* its children are born in it */
		assert_int_equal(fclose(f), 0);
	}
	assert_ok(proc_spawn(&spec, &p, &err), &err);
	return p;
}

/* Back to where the test came from, or the group could not be removed. */
static void leave(const struct cgroup *g)
{
	for (int i = 0; i < CGROUP_PARTS; i++) {
		char path[CGROUP_PATH_MAX + 32];
		FILE *f = NULL;

		if (g->dir[i][0] == '\0')
			continue;
		FMT(path, "%s/../cgroup.procs", g->dir[i]);
		f = fopen(path, "we");
		assert_non_null(f);
		(void)fprintf(f, "%d\n", (int)getpid());
		assert_int_equal(fclose(f), 0);
	}
}

/* As a sweeper finds it: by what was saved, wherever the sweeper itself is. */
static void adopt(struct cgroup *again, const struct cgroup *g, const char *name)
{
	char path[64];
	struct err err = {0};

	FMT(path, "/tmp/test_cgroup.saved.%d", (int)getpid());
	assert_ok(cgroup_save(g, path, &err), &err);
	cgroup_adopt(again, name, path);
	assert_int_equal(unlink(path), 0);
}

static void adopts_only_its_own(void **state UNUSED)
{
	const struct cgroup_limits none = {0};
	struct cgroup g = {.dir = {[CGROUP_MEMORY] = "/usr/bin", [CGROUP_UNIFIED] = "/usr/lib"}};
	static struct cgroup again, real;
	char name[128];

	adopt(&again, &g, "lib"); /* a folder of that name is no group yet */
	assert_false(cgroup_tracks(&again));
	cgroup_name("/tmp/test_cgroup", "adopt", (uint32_t)getpid(), name);
	cgroup_make(&real, name, &none);
	if (cgroup_tracks(&real)) {
		adopt(&again, &real, name);
		assert_memory_equal(again.dir, real.dir, sizeof(real.dir));
		adopt(&again, &real, name + 1); /* the end of a name is not the name */
		assert_false(cgroup_tracks(&again));
		cgroup_remove(&real);
	}
	cgroup_adopt(&again, "lib", "/not/there");
	assert_false(cgroup_tracks(&again));
}

static void kills_what_is_in_it(void **state UNUSED)
{
	struct cgroup_limits limits = {.memory_bytes = (uint64_t)512 << 20, .cpu_milli = 1000};
	struct cgroup g, again;
	struct proc p;
	struct err err = {0};
	char name[128];
	int status = 0;

	cgroup_name("/tmp/test_cgroup", "kill", (uint32_t)getpid(), name);
	cgroup_make(&g, name, &limits);
	if (!cgroup_tracks(&g))
		return; /* none for us here */
	p = start_in(&g, "setsid sleep 991 & setsid sleep 991 & sleep 991");
	leave(&g);
	adopt(&again, &g, name);
	assert_true(cgroup_tracks(&again));
	assert_true(cgroup_kill(&again, 20000));
	assert_int_equal(proc_wait(&p, 20000, &status, &err), 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	(void)close(p.pidfd);
	cgroup_remove(&again);
	adopt(&again, &g, name);
	assert_false(cgroup_tracks(&again));
}

static void counts_out_of_memory(void **state UNUSED)
{
	struct cgroup_limits limits = {.memory_bytes = (uint64_t)32 << 20};
	struct cgroup g;
	struct proc p;
	struct err err = {0};
	uint64_t memory = 0, cpu = 0;
	char name[128];
	int status = 0;

	cgroup_name("/tmp/test_cgroup", "oom", (uint32_t)getpid(), name);
	cgroup_make(&g, name, &limits);
	if (!g.memory) {
		cgroup_remove(&g);
		return;
	}
	p = start_in(&g, "head -c 200M /dev/zero | tail -c 150M >/dev/null");
	leave(&g);
	assert_int_equal(proc_wait(&p, 60000, &status, &err), 0);
	(void)close(p.pidfd);
	assert_true(cgroup_oom_kills(&g) > 0);
	assert_true(g.v2 || cgroup_peak(&g) >= ((uint64_t)16 << 20));
	assert_true(cgroup_usage(&g, &memory, &cpu) && cpu > 0);
	cgroup_remove(&g);
}

static void sweeps_what_is_old_and_empty(void **state UNUSED)
{
	struct cgroup_limits limits = {0};
	struct cgroup g, again;
	char name[128];

	cgroup_name("/tmp/test_cgroup", "old", (uint32_t)getpid(), name);
	cgroup_make(&g, name, &limits);
	if (!cgroup_tracks(&g))
		return;
	cgroup_sweep_old(CGROUP_OLD_S);
	adopt(&again, &g, name);
	assert_true(cgroup_tracks(&again)); /* it may be just beginning */
	cgroup_remove(&again);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(finds_places),
	cmocka_unit_test(stepping_aside_is_no_new_place),
	cmocka_unit_test(names_are_unique),
	cmocka_unit_test(adopts_only_its_own),
	cmocka_unit_test(kills_what_is_in_it),
	cmocka_unit_test(counts_out_of_memory),
	cmocka_unit_test(sweeps_what_is_old_and_empty),
};
UNIT_MAIN(tests)
