/* test_topology.c - how cores lie, read from trees as kernels show them, and which are chosen. */
#include "run/topology.h"

#include "base/fs.h"
#include "unit.h"

static char root[64];

static int setup(void **state UNUSED)
{
	FMT(root, "/tmp/test_topology.XXXXXX");
	return mkdtemp(root) == NULL ? -1 : 0;
}

static int teardown(void **state UNUSED)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, root, &err), &err);
	return 0;
}

static void put(const char *path, const char *text)
{
	AUTO_FREE char *whole = xasprintf("%s/%s", root, path);
	AUTO_FREE char *dir = xstrdup(whole);
	struct err err = {0};

	*strrchr(dir, '/') = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0700, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, whole, str_of(text), 0600, &err), &err);
}

/* Two sockets of four cores, two threads each, numbered as most servers do: 0-3 and 8-11 on node
 * 0, and node numbers with a gap. */
static void put_two_sockets(void)
{
	put("sys/devices/system/cpu/online", "0-15\n");
	put("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
	put("sys/devices/system/node/node2/cpulist", "4-7,12-15\n");
	for (unsigned i = 0; i < 16; i++) {
		AUTO_FREE char *path =
			xasprintf("sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", i);
		AUTO_FREE char *text = xasprintf("%u,%u\n", i % 8, i % 8 + 8);

		put(path, text);
	}
}

static void put_gpu(const char *bus, const char *uuid, const char *node)
{
	AUTO_FREE char *a = xasprintf("proc/driver/nvidia/gpus/%s/information", bus);
	AUTO_FREE char *b = xasprintf("sys/bus/pci/devices/%s/numa_node", bus);
	AUTO_FREE char *text = xasprintf("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 215\n"
	                                 "GPU UUID: \t %s\nVideo BIOS: \t 96.00.30\n",
	                                 uuid);

	put(a, text);
	put(b, node);
}

static void choose(const struct topology *t, unsigned n, const unsigned *taken, const char *wanted)
{
	cpu_set_t may, got;
	unsigned want[CPU_SETSIZE] = {0};

	CPU_ZERO(&may);
	for (unsigned i = 0; i < 16; i++)
		CPU_SET(i, &may);
	topology_choose(t, &may, n, taken, &got);
	topology_count(str_of(wanted), want);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &got) != (want[i] > 0))
			fail_msg("core %u: wanted %s", i, wanted);
	}
	assert_int_equal(CPU_COUNT(&got), n);
}

static void what_is_read(void **state UNUSED)
{
	static const char *const all[] = {"GPU-aaaa", "GPU-bbbb"}, *const one[] = {"GPU-aaa"};
	AUTO_FREE struct topology *t = xcalloc(1, sizeof(*t));

	topology_read(t, root, all, 2); /* nothing is there */
	assert_int_equal(t->n_gpus, 0);
	assert_int_equal(t->node[5], 0);
	assert_int_equal(t->first[5], 5);
	put_two_sockets();
	put_gpu("0000:17:00.0", "GPU-aaaa", "0\n");
	put_gpu("0000:ca:00.0", "GPU-bbbb", "2\n");
	put_gpu("0000:cb:00.0", "GPU-cccc", "2\n"); /* another job's */
	topology_read(t, root, all, 2);
	assert_int_equal(t->node[3], 0);
	assert_int_equal(t->node[12], 2);
	assert_int_equal(t->first[3], 3);
	assert_int_equal(t->first[12], 4);
	assert_int_equal(t->gpus[0], 1);
	assert_int_equal(t->gpus[2], 1);
	assert_int_equal(t->n_gpus, 2);
	topology_read(t, root, one, 1); /* the beginning of an id is not the id */
	assert_int_equal(t->n_gpus, 0);
	put_gpu("0000:17:00.0", "GPU-aaaa", "-1\n");
	topology_read(t, root, all, 1);
	assert_int_equal(t->n_gpus, 0);
}

static void near_the_gpus(void **state UNUSED)
{
	static const char *const far[] = {"GPU-far"}, *const both[] = {"GPU-far", "GPU-near"};
	AUTO_FREE struct topology *t = xcalloc(1, sizeof(*t));
	unsigned taken[CPU_SETSIZE] = {0};

	put_two_sockets();
	put_gpu("0000:ca:00.0", "GPU-far", "2\n");
	put_gpu("0000:17:00.0", "GPU-near", "0\n");
	topology_read(t, root, far, 1);
	choose(t, 2, taken, "4,5");
	choose(t, 8, taken, "4-7,12-15");
	choose(t, 10, taken, "0,1,4-7,12-15");
	taken[4] = taken[5] = 1; /* another job's: then the others, whose other thread is idle */
	choose(t, 2, taken, "6,7");
	choose(t, 4, taken, "6,7,12-13");
	topology_read(t, root, both, 2);
	taken[4] = taken[5] = 0;
	choose(t, 8, taken, "0-7"); /* half of them near each */
}

static void few_nodes_and_idle_cores(void **state UNUSED)
{
	AUTO_FREE struct topology *t = xcalloc(1, sizeof(*t));
	unsigned taken[CPU_SETSIZE] = {0};

	put_two_sockets();
	topology_read(t, root, NULL, 0);
	choose(t, 6, taken, "0-3,8-9");
	taken[0] = 1; /* node 2 has more room now */
	choose(t, 6, taken, "4-7,12-13");
	for (unsigned i = 0; i < 16; i++)
		taken[i] = i == 9 ? 0 : 1; /* idle comes before near */
	choose(t, 1, taken, "9");
	choose(t, 15, taken, "0-14");
}

static void lists(void **state UNUSED)
{
	unsigned n[CPU_SETSIZE] = {0};

	topology_count(str_of("0-2, 5,x,7-6,-1,,9999,3-99999\n"), n);
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		assert_int_equal(n[i], i <= 2 || i == 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(near_the_gpus, setup, teardown),
		cmocka_unit_test_setup_teardown(few_nodes_and_idle_cores, setup, teardown),
		cmocka_unit_test(lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
