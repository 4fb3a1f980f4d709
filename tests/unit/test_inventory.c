/* test_inventory.c - declared GPUs, and what this machine says of itself. */
#include "engine/engine.h"
#include "unit.h"

#include <sched.h>

static const struct {
	const char *declared, *words;
} bad[] = {
	{"H1000:2", "H1000"},
	{"H100:0", "H100"},
	{"H100:x", "H100"},
	{"H100:8,H100:8,H100:8,H100:8,H100:8,H100:8,H100:8,H100:8,H100:1", "more than 64"},
	{"H100:1,,L4:1", ""},
};

static void refuses(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct inventory inv;
		struct err err = {0};

		assert_row(inventory_read(&inv, bad[i].declared, &err) < 0, bad[i].declared);
		assert_row(strstr(err.msg, bad[i].words) != NULL, bad[i].declared);
	}
}

static void declares(void **state UNUSED)
{
	struct inventory inv;
	struct err err = {0};

	assert_ok(inventory_read(&inv, "H100:2, L4:1", &err), &err);
	assert_true(inv.declared);
	assert_int_equal(inv.n_gpus, 3);
	assert_string_equal(inv.gpu[1].type, "H100");
	assert_string_equal(inv.gpu[1].uuid, "declared-1");
	assert_string_equal(inv.gpu[2].type, "L4");
	assert_true(inv.gpu[2].memory_bytes == (uint64_t)24 << 30);
}

static void reads_this_machine(void **state UNUSED)
{
	struct inventory inv;
	struct err err = {0};
	cpu_set_t set;

	assert_ok(inventory_read(&inv, NULL, &err), &err);
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_true(inv.cpu_milli > 0 && inv.cpu_milli <= (uint32_t)CPU_COUNT(&set) * 1000);
	assert_true(inv.memory_bytes > ((uint64_t)16 << 20));
	assert_false(inv.declared);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(refuses),
	cmocka_unit_test(declares),
	cmocka_unit_test(reads_this_machine),
};
UNIT_MAIN(tests)
