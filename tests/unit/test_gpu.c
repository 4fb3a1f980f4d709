/* test_gpu.c - which device nodes and which of a driver's files a job gets, on machines of files.
 */
#include "run/gpu.h"

#include "base/fs.h"
#include "unit.h"

static char root[64];

static int setup(void **state UNUSED)
{
	FMT(root, "/tmp/test_gpu.XXXXXX");
	return mkdtemp(root) == NULL ? -1 : 0;
}

static int teardown(void **state UNUSED)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, root, &err), &err);
	return 0;
}

static void folder_for(const char *whole)
{
	AUTO_FREE char *dir = xstrdup(whole);
	struct err err = {0};

	*strrchr(dir, '/') = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0700, &err), &err);
}

static void put(const char *path, const char *text)
{
	AUTO_FREE char *whole = xasprintf("%s/%s", root, path);
	struct err err = {0};

	folder_for(whole);
	assert_ok(fs_write_atomic(AT_FDCWD, whole, str_of(text), 0600, &err), &err);
}

static void put_link(const char *path, const char *to)
{
	AUTO_FREE char *whole = xasprintf("%s/%s", root, path);
	AUTO_FREE char *target = xasprintf("%s/%s", root, to);

	folder_for(whole);
	assert_int_equal(symlink(target, whole), 0);
}

static void put_gpu(const char *bus, const char *uuid, unsigned minor)
{
	AUTO_FREE char *path = xasprintf("proc/driver/nvidia/gpus/%s/information", bus);
	AUTO_FREE char *text = xasprintf("Model: \t\t NVIDIA H200\nGPU UUID: \t %s\n"
	                                 "Device Minor: \t %u\nGPU Excluded:\t No\n",
	                                 uuid, minor);

	put(path, text);
}

static void nodes_are_its_own_and_the_shared(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	static const struct wire_gpu second = {.index = 1, .uuid = "GPU-b"};
	static const struct wire_gpu declared = {.index = 1, .uuid = "declared-1"};
	const char *node[GPU_NODES_MAX];

	put_gpu("0000:17:00.0", "GPU-a", 1); /* the index follows the bus, the minor need not */
	put_gpu("0000:65:00.0", "GPU-b", 0);
	put("dev/nvidia0", "");
	put("dev/nvidia1", "");
	put("dev/nvidiactl", "");
	put("dev/nvidia-uvm", "");
	assert_int_equal(gpu_nodes(a, root, &second, 1, node), 3);
	assert_string_equal(node[0], "/dev/nvidia0");
	assert_string_equal(node[1], "/dev/nvidiactl");
	assert_string_equal(node[2], "/dev/nvidia-uvm");
	assert_int_equal(gpu_nodes(a, root, &declared, 1, node), 3);
	assert_string_equal(node[0], "/dev/nvidia1");
	assert_int_equal(gpu_nodes(a, root, NULL, 0, node), 0); /* none of the shared either */
}

static void a_node_for_a_group_alone(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *its_own = xasprintf("%s/dev/nvidia0", root);
	AUTO_FREE char *shared = xasprintf("%s/dev/nvidiactl", root);
	static const struct wire_gpu gpu = {.index = 0, .uuid = "GPU-a"};

	put("dev/nvidia0", "");
	put("dev/nvidiactl", "");
	put("dev/nvidia-caps/nvidia-cap1", ""); /* it has modes of its own */
	assert_string_equal(gpu_closed(a, root, &gpu, 1, true), "/dev/nvidia0");
	assert_null(gpu_closed(a, root, &gpu, 1, false)); /* it is ours */
	assert_int_equal(chmod(its_own, 0666), 0);
	assert_int_equal(chmod(shared, 0660), 0);
	assert_string_equal(gpu_closed(a, root, &gpu, 1, true), "/dev/nvidiactl");
	assert_null(gpu_closed(a, root, NULL, 0, true));
}

static const char *from_of(const struct mounts *m, const char *at)
{
	for (size_t i = 0; i < m->n; i++) {
		if (strcmp(m->item[i].at, at) == 0)
			return m->item[i].from + strlen(root);
	}
	return NULL;
}

/* Debian's: what the loader finds are links, by way of /etc/alternatives, into a folder of the
 * driver's own. */
static void links_are_followed(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct mounts *m = ARENA_NEW(a, struct mounts);
	AUTO_FREE char *library = xasprintf("%s/usr/lib/libnvidia-ml.so.1", root);
	AUTO_FREE char *tool = xasprintf("%s/usr/bin/nvidia-smi", root);
	struct err err = {0};

	m->a = a;
	put("usr/lib/nvidia/current/libnvidia-ml.so.535.1", "");
	put_link("usr/lib/nvidia/current/libnvidia-ml.so.1",
	         "usr/lib/nvidia/current/libnvidia-ml.so.535.1");
	put("usr/lib/nvidia/current/libcuda.so.535.1", "");
	put("usr/lib/nvidia/current/nvidia-smi", "");
	put_link("etc/alternatives/ml", "usr/lib/nvidia/current/libnvidia-ml.so.1");
	put_link("etc/alternatives/cuda", "usr/lib/nvidia/current/libcuda.so.535.1");
	put_link("usr/lib/libnvidia-ml.so.1", "etc/alternatives/ml");
	put_link("usr/lib/libcuda.so.1", "etc/alternatives/cuda");
	put_link("usr/lib/libnvidia-cfg.so.1", "nowhere");
	put_link("usr/bin/nvidia-smi", "usr/lib/nvidia/current/nvidia-smi");
	put("usr/lib/libc.so.6", "");
	put("usr/lib/libcudart.so.12", "");
	put("usr/lib/libnvidia-glcore.so.535.1", "");
	assert_ok(gpu_driver_mounts(m, library, tool, &err), &err);
	assert_string_equal(from_of(m, GPU_LIBRARIES "/libcuda.so.1"),
	                    "/usr/lib/nvidia/current/libcuda.so.535.1");
	assert_string_equal(from_of(m, GPU_LIBRARIES "/libcuda.so.535.1"),
	                    "/usr/lib/nvidia/current/libcuda.so.535.1");
	assert_string_equal(from_of(m, GPU_LIBRARIES "/libnvidia-ml.so.1"),
	                    "/usr/lib/nvidia/current/libnvidia-ml.so.535.1");
	assert_string_equal(from_of(m, GPU_LIBRARIES "/libnvidia-ml.so.535.1"),
	                    "/usr/lib/nvidia/current/libnvidia-ml.so.535.1");
	assert_string_equal(from_of(m, "/usr/bin/nvidia-smi"),
	                    "/usr/lib/nvidia/current/nvidia-smi");
	assert_int_equal(m->n, 5); /* each once, and nothing else of the folder */
	for (size_t i = 0; i < m->n; i++)
		assert_int_equal(m->item[i].kind, MOUNT_RO);
}

static void a_folder_without_a_driver(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct mounts *m = ARENA_NEW(a, struct mounts);
	AUTO_FREE char *library = xasprintf("%s/lib/libnvidia-ml.so.1", root);
	struct err err = {0};

	m->a = a;
	put("lib/libc.so.6", "");
	assert_err(gpu_driver_mounts(m, library, NULL, &err), &err, ERR_NOT_FOUND, library);
	assert_int_equal(m->n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nodes_are_its_own_and_the_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(a_node_for_a_group_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(links_are_followed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_folder_without_a_driver, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
