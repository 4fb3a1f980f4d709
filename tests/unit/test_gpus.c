/*
 * test_gpus.c - NVML by the real dlopen: a library that names itself libnvidia-ml.so.1 is loaded by
 * its path first, so that the loader takes it when io/nvml.c asks by that name.
 */
#include "engine/engine.h"
#include "io/nvml.h"
#include "run/sampler.h"
#include "unit.h"

#include <dlfcn.h>

#define GIB ((uint64_t)1 << 30)

static void *library;

static void load(const char *variable)
{
	const char *path = getenv(variable);

	assert_non_null(path);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		fail_msg("%s", dlerror());
}

static int tear_down(void **state UNUSED)
{
	if (library != NULL)
		(void)dlclose(library);
	library = NULL;
	(void)unsetenv("NVML_FAKE_INIT");
	(void)unsetenv("NVML_FAKE_NAME");
	(void)unsetenv("NVML_FAKE_LOST");
	(void)unsetenv("NVML_FAKE_PARTS");
	return 0;
}

static void no_library_is_no_gpu(void **state UNUSED)
{
	void *real = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	struct nvml *n = NULL;
	struct inventory inv;
	struct err err = {0};

	if (real != NULL) {
		(void)dlclose(real);
		return; /* a machine with a driver of its own */
	}
	assert_err(nvml_open(&n, &err), &err, ERR_NOT_FOUND, "libnvidia-ml.so.1");
	assert_ok(inventory_read(&inv, NULL, &err), &err);
	assert_int_equal(inv.n_gpus, 0);
}

static void finds_two(void **state UNUSED)
{
	struct inventory inv;
	struct err err = {0};

	load("NVML_FAKE");
	assert_ok(inventory_read(&inv, NULL, &err), &err);
	assert_false(inv.declared);
	assert_int_equal(inv.n_gpus, 2);
	assert_string_equal(inv.gpu[0].uuid, "GPU-11111111-aaaa");
	assert_string_equal(inv.gpu[0].type, "H100");
	assert_true(inv.gpu[0].memory_bytes == 80 * GIB);
	assert_string_equal(inv.gpu[1].name, "NVIDIA A100-SXM4-40GB");
	assert_string_equal(inv.gpu[1].type, "A100_40GB");
	assert_ok(inventory_read(&inv, "L4:1", &err), &err);
	assert_string_equal(inv.gpu[0].uuid, "declared-0");
}

static void knows_types_by_their_names(void **state UNUSED)
{
	static const struct {
		const char *name, *type;
	} rows[] = {
		{"NVIDIA GeForce RTX 4090", "RTX_4090"},
		{"NVIDIA GeForce RTX 3080 Ti", "RTX_3080"},
		{"NVIDIA RTX A6000", "RTX_A6000"},
		{"NVIDIA RTX 6000 Ada Generation", "RTX_6000"},
		{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX_PRO_6000"},
		{"NVIDIA L40", "L40"},
		{"NVIDIA L40S", "L40S"},
		{"NVIDIA A10", "A10"},
		{"NVIDIA A10G", "A10G"},
		{"Tesla P100-PCIE-16GB", "P100"},
		{"NVIDIA GH200 480GB", "GH200"},
		{"NVIDIA TITAN V", ""},
	};

	load("NVML_FAKE");
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct inventory inv;
		struct err err = {0};

		assert_int_equal(setenv("NVML_FAKE_NAME", rows[i].name, 1), 0);
		assert_ok(inventory_read(&inv, NULL, &err), &err);
		assert_row(strcmp(inv.gpu[1].type, rows[i].type) == 0, rows[i].name);
	}
}

static void tells_their_load(void **state UNUSED)
{
	AUTO_NVML struct nvml *n = NULL;
	struct nvml_usage u;
	struct err err = {0};

	load("NVML_FAKE");
	assert_ok(nvml_open(&n, &err), &err);
	assert_ok(nvml_read(n, "GPU-11111111-aaaa", &u, &err), &err);
	assert_true(u.memory_bytes == 3 * GIB && u.utilization > 0.36 && u.utilization < 0.38);
	assert_ok(nvml_read(n, "GPU-22222222-bbbb", &u, &err), &err);
	assert_true(u.memory_bytes == 0 && u.utilization < 0.01);
	assert_int_equal(setenv("NVML_FAKE_PARTS", "1", 1), 0);
	assert_ok(nvml_read(n, "GPU-11111111-aaaa", &u, &err), &err);
	assert_true(u.memory_bytes == 3 * GIB && u.utilization < 0.01);
	assert_err(nvml_read(n, "GPU-0", &u, &err), &err, ERR_IO, "GPU GPU-0");
}

static void a_broken_driver_is_no_gpu(void **state UNUSED)
{
	struct nvml *n = NULL;
	struct inventory inv;
	struct err err = {0};

	load("NVML_FAKE");
	assert_int_equal(setenv("NVML_FAKE_INIT", "9", 1), 0);
	assert_err(nvml_open(&n, &err), &err, ERR_UNSUPPORTED,
	           "nvmlInit: Driver Not Loaded (code 9)");
	assert_ok(inventory_read(&inv, NULL, &err), &err);
	assert_int_equal(inv.n_gpus, 0);
}

static void an_old_driver_is_no_gpu(void **state UNUSED)
{
	struct nvml *n = NULL;
	struct inventory inv;
	struct err err = {0};

	load("NVML_FAKE_OLD");
	assert_err(nvml_open(&n, &err), &err, ERR_UNSUPPORTED, "nvmlDeviceGetUtilizationRates");
	assert_ok(inventory_read(&inv, NULL, &err), &err);
	assert_int_equal(inv.n_gpus, 0);
}

static void a_lost_gpu_is_an_error(void **state UNUSED)
{
	struct inventory inv;
	struct err err = {0};

	load("NVML_FAKE");
	assert_int_equal(setenv("NVML_FAKE_LOST", "1", 1), 0);
	assert_err(inventory_read(&inv, NULL, &err), &err, ERR_IO, "GPU 1: GPU is lost");
	assert_ok(inventory_read(&inv, "H100:1", &err), &err);
}

/* The most used one speaks for all; one that cannot be asked leaves nothing known. */
static void tells_whether_a_job_uses_its_gpus(void **state UNUSED)
{
	struct wire_gpu gpus[] = {{1, "GPU-22222222-bbbb"}, {0, "GPU-11111111-aaaa"}};
	struct sampler_options o = {.written = {"/proc/self/fdinfo"}, .gpus = gpus, .n_gpus = 1};
	struct sampler *one = NULL, *both = NULL, *none = NULL;
	struct err err = {0};
	double most = -1;

	load("NVML_FAKE");
	assert_ok(sampler_start(&one, &o, &err), &err);
	o.n_gpus = 2;
	assert_ok(sampler_start(&both, &o, &err), &err);
	o.n_gpus = 0;
	assert_ok(sampler_start(&none, &o, &err), &err);
	assert_true(sampler_gpu_use(one, &most) && most < 0.01);
	assert_true(sampler_gpu_use(both, &most) && most > 0.36 && most < 0.38);
	assert_false(sampler_gpu_use(none, &most));
	assert_int_equal(setenv("NVML_FAKE_LOST", "0", 1), 0);
	assert_true(sampler_gpu_use(one, &most));
	assert_false(sampler_gpu_use(both, &most));
	(void)unsetenv("NVML_FAKE_LOST");
	assert_int_equal(setenv("NVML_FAKE_PARTS", "1", 1), 0);
	assert_false(sampler_gpu_use(one, &most));
	sampler_stop(one);
	sampler_stop(both);
	sampler_stop(none);
}

/* What a job's metrics say of its GPUs: those of its own, by uuid. */
static void samples_a_jobs_gpus(void **state UNUSED)
{
	struct wire_gpu gpus[] = {{1, "GPU-22222222-bbbb"}, {0, "GPU-11111111-aaaa"}};
	struct sampler_options o = {
		.written = {"/proc/self/fdinfo"}, .gpus = gpus, .n_gpus = COUNT(gpus)};
	struct wire_sample sample = {0};
	struct sampler *s = NULL;
	struct err err = {0};

	load("NVML_FAKE");
	assert_ok(sampler_start(&s, &o, &err), &err);
	assert_false(sampler_last(s, &sample)); /* nothing is watched yet */
	sampler_watch(s, NULL, getpid(), NULL);
	assert_false(sampler_read(s, &sample)); /* nor due */
	assert_true(sampler_last(s, &sample));
	assert_int_equal(sample.n_gpus, 2);
	assert_int_equal(sample.gpu[0].index, 1);
	assert_int_equal(sample.gpu[1].index, 0);
	assert_true(sample.gpu[1].memory_bytes == 3 * GIB && sample.gpu[1].utilization > 0.36);
	sampler_stop(s);
	assert_int_equal(setenv("NVML_FAKE_LOST", "0", 1), 0);
	assert_ok(sampler_start(&s, &o, &err), &err);
	sampler_watch(s, NULL, getpid(), NULL);
	assert_true(sampler_last(s, &sample));
	assert_int_equal(sample.n_gpus, 1); /* the other one goes on */
	sampler_stop(s);
}

#define T(f) cmocka_unit_test_teardown(f, tear_down)
static const struct CMUnitTest tests[] = {
	T(no_library_is_no_gpu),
	T(finds_two),
	T(knows_types_by_their_names),
	T(tells_their_load),
	T(a_broken_driver_is_no_gpu),
	T(an_old_driver_is_no_gpu),
	T(a_lost_gpu_is_an_error),
	T(samples_a_jobs_gpus),
	T(tells_whether_a_job_uses_its_gpus),
};
UNIT_MAIN(tests)
