/* gpu.c - the device nodes and libraries of the NVIDIA driver; see gpu.h. */
#include "run/gpu.h"

#include "base/fs.h"
#include "base/log.h"
#include "io/nvml.h"
#include "io/proc.h"

#include <dirent.h>

#define WAKE_MS 20000
#define WAKE_OUT ((size_t)4096)
#define GPU_TOOL "/usr/bin/nvidia-smi"
#define GPUS_MAX 64 /* of the machine */
#define INFORMATION_MAX 4096

void gpu_wake(void)
{
	static const char *const argv[] = {"nvidia-modprobe", "-u", "-c=0", NULL};
	AUTO_BUF struct buf said = BUF_INIT(WAKE_OUT);
	struct err err = {0};
	char found[4096];
	int code = 0;

	if (access("/dev/nvidiactl", F_OK) < 0 || access("/dev/nvidia-uvm", F_OK) == 0 ||
	    proc_find(argv[0], found) == NULL)
		return;
	if (proc_run(argv, (struct str){0}, WAKE_MS, &said, &code, &err) < 0)
		log_warn("/dev/nvidia-uvm is missing, and %s does not run: %s", argv[0], err.msg);
	else if (code != 0)
		log_warn("/dev/nvidia-uvm is missing, and %s ended with exit code %d: %.*s",
		         argv[0], code, (int)MIN(said.n, 300U), buf_cstr(&said));
	err_clear(&err);
}

/* Has this text the line "GPU UUID: " of this one? */
static bool is_of(const char *text, const char *uuid)
{
	const char *at = strstr(text, "GPU UUID:");
	size_t length = strlen(uuid);

	if (at == NULL || length == 0)
		return false;
	at += strlen("GPU UUID:");
	at += strspn(at, " \t");
	return strncmp(at, uuid, length) == 0 && strspn(at + length, " \t\r\n") > 0;
}

bool gpu_find(const char *root, const char *uuid, struct gpu_place *out)
{
	AUTO_FREE char *folder = xasprintf("%s/proc/driver/nvidia/gpus", root);
	DIR *d = opendir(folder);
	size_t left = GPUS_MAX;
	bool found = false;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL && left > 0 && !found;
	     e = readdir(d)) {
		AUTO_FREE char *path = xasprintf("%s/%s/information", folder, e->d_name);
		AUTO_BUF struct buf text = BUF_INIT(INFORMATION_MAX);
		static const char label[] = "Device Minor:";
		struct err no = {0};
		const char *at;

		if (e->d_name[0] == '.')
			continue;
		left--;
		found = strlen(e->d_name) < sizeof(out->bus) &&
		        fs_read(AT_FDCWD, path, &text, &no) == 0 && is_of(buf_cstr(&text), uuid);
		if (!found)
			continue;
		copy_cut(out->bus, sizeof(out->bus), e->d_name);
		at = strstr(buf_cstr(&text), label);
		out->minor = at != NULL ? (int)strtol(at + strlen(label), NULL, 10) : -1;
	}
	if (d != NULL)
		(void)closedir(d);
	return found;
}

static int minor_of(const char *root, const struct wire_gpu *gpu)
{
	struct gpu_place place;

	return gpu_find(root, gpu->uuid, &place) && place.minor >= 0 ? place.minor
	                                                             : (int)gpu->index;
}

size_t gpu_nodes(struct arena *a, const char *root, const struct wire_gpu *gpus, size_t n,
                 const char *out[GPU_NODES_MAX])
{
	static const char *const shared[] = {
		"/dev/nvidiactl",      "/dev/nvidia-uvm",  "/dev/nvidia-uvm-tools",
		"/dev/nvidia-modeset", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels"};
	size_t count = 0;

	for (size_t i = 0; i < n + COUNT(shared) && n > 0 && count < GPU_NODES_MAX; i++) {
		/* of declared ones too: NVML may be all that is missing here */
		const char *path =
			i < n ? arena_printf(a, "/dev/nvidia%d", minor_of(root, &gpus[i]))
			      : shared[i - n];

		if (access(arena_printf(a, "%s%s", root, path), F_OK) == 0)
			out[count++] = path;
	}
	return count;
}

const char *gpu_closed(struct arena *a, const char *root, const struct wire_gpu *gpus, size_t n,
                       bool own_ids)
{
	const char *node[GPU_NODES_MAX];
	size_t count = gpu_nodes(a, root, gpus, n, node);

	for (size_t i = 0; i < count; i++) {
		const char *path = arena_printf(a, "%s%s", root, node[i]);
		struct stat st;

		if (stat(path, &st) < 0 || S_ISDIR(st.st_mode))
			continue;
		if (own_ids ? (st.st_mode & 06) != 06 : access(path, R_OK | W_OK) < 0)
			return node[i];
	}
	return NULL;
}

/* libcuda.so, libcuda.so.1, libcuda.so.580.82: links are how programs ask for it. */
static bool is_driver(const char *name)
{
	static const char *const libraries[] = {
		"libcuda",
		"libcudadebugger",
		"libnvcuvid",
		"libnvidia-allocator",
		"libnvidia-cfg",
		"libnvidia-encode",
		"libnvidia-gpucomp",
		"libnvidia-ml",
		"libnvidia-nvvm",
		"libnvidia-nvvm70",
		"libnvidia-opencl",
		"libnvidia-opticalflow",
		"libnvidia-pkcs11",
		"libnvidia-pkcs11-openssl3",
		"libnvidia-ptxjitcompiler",
		"libnvidia-sandboxutils",
		"libnvidia-tileiras",
	};

	for (size_t i = 0; i < COUNT(libraries); i++) {
		size_t n = strlen(libraries[i]);

		if (strncmp(name, libraries[i], n) == 0 && strncmp(name + n, ".so", 3) == 0 &&
		    (name[n + 3] == '\0' || name[n + 3] == '.'))
			return true;
	}
	return false;
}

/* from: a file, or a link to one. What leads nowhere is left out. */
static int add_file(struct mounts *m, size_t first, const char *from, const char *at,
                    struct err *err)
{
	char real[PATH_MAX];
	struct stat st;

	for (size_t i = first; i < m->n; i++) {
		if (strcmp(m->item[i].at, at) == 0)
			return 0;
	}
	if (realpath(from, real) == NULL || stat(real, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (mounts_add(m, MOUNT_RO, arena_cstr(m->a, real), at, err) < 0)
		return -1;
	m->item[m->n - 1].share = true; /* its file system may have no idmapped mounts */
	return 0;
}

static int add_libraries(struct mounts *m, size_t first, const char *folder, struct err *err)
{
	DIR *d = opendir(folder);
	int rc = 0;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL && rc == 0;
	     e = readdir(d)) {
		if (is_driver(e->d_name))
			rc = add_file(m, first, arena_printf(m->a, "%s/%s", folder, e->d_name),
			              arena_printf(m->a, GPU_LIBRARIES "/%s", e->d_name), err);
	}
	if (d != NULL)
		(void)closedir(d);
	return rc;
}

static const char *folder_of(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? arena_printf(a, "%.*s", (int)(slash - path), path) : ".";
}

int gpu_driver_mounts(struct mounts *m, const char *library, const char *tool, struct err *err)
{
	size_t first = m->n;
	char real[PATH_MAX];

	if (add_libraries(m, first, folder_of(m->a, library), err) < 0)
		return -1;
	if (realpath(library, real) != NULL &&
	    add_libraries(m, first, folder_of(m->a, real), err) < 0)
		return -1;
	if (m->n == first)
		return err_set(err, ERR_NOT_FOUND, "there is nothing of it beside %s", library);
	return tool == NULL ? 0 : add_file(m, first, tool, GPU_TOOL, err);
}

int gpu_driver(struct mounts *m, struct err *err)
{
	AUTO_NVML struct nvml *nvml = NULL;
	AUTO_FREE char *library = NULL;
	char tool[4096];

	if (nvml_open(&nvml, err) < 0 || nvml_path(nvml, &library, err) < 0) {
		err->code = ERR_NOT_FOUND; /* or one that does not work */
		return -1;
	}
	return gpu_driver_mounts(m, library, proc_find("nvidia-smi", tool), err);
}
