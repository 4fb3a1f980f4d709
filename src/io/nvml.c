/* nvml.c - the handful of NVML calls that we make, each looked up by name. */
#include "io/nvml.h"

#include "base/buf.h"

#include <dlfcn.h>
#include <link.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"
#define NOT_SUPPORTED 3 /* NVML_ERROR_NOT_SUPPORTED */

typedef void *device; /* nvmlDevice_t */
struct memory {       /* nvmlMemory_t */
	unsigned long long total, free, used;
};
struct utilization { /* nvmlUtilization_t: percent */
	unsigned gpu, memory;
};

struct nvml {
	void *lib;
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *n);
	int (*by_index)(unsigned i, device *d);
	int (*by_uuid)(const char *uuid, device *d);
	int (*uuid)(device d, char *out, unsigned cap);
	int (*name)(device d, char *out, unsigned cap);
	int (*memory)(device d, struct memory *out);
	int (*load)(device d, struct utilization *out);
	const char *(*words)(int code);
};

/* clang-format off */
static const struct {
	const char *symbol;
	size_t at;
} symbols[] = {
	{"nvmlInit_v2",                   offsetof(struct nvml, init)},
	{"nvmlShutdown",                  offsetof(struct nvml, shutdown)},
	{"nvmlDeviceGetCount_v2",         offsetof(struct nvml, count)},
	{"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, by_index)},
	{"nvmlDeviceGetHandleByUUID",     offsetof(struct nvml, by_uuid)},
	{"nvmlDeviceGetUUID",             offsetof(struct nvml, uuid)},
	{"nvmlDeviceGetName",             offsetof(struct nvml, name)},
	{"nvmlDeviceGetMemoryInfo",       offsetof(struct nvml, memory)},
	{"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, load)},
	{"nvmlErrorString",               offsetof(struct nvml, words)},
};
/* clang-format on */

int nvml_open(struct nvml **out, struct err *err)
{
	struct nvml *n = xcalloc(1, sizeof(*n));
	int rc = 0;

	n->lib = dlopen(NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (n->lib == NULL) {
		free(n);
		return err_set(err, ERR_NOT_FOUND, "no NVIDIA driver found (%s)", NVML_LIBRARY);
	}
	for (size_t i = 0; i < COUNT(symbols); i++) {
		void *sym = dlsym(n->lib, symbols[i].symbol);

		if (sym == NULL) {
			(void)dlclose(n->lib);
			free(n);
			return err_set(err, ERR_UNSUPPORTED,
			               "%s has no %s: an NVIDIA driver of version 418 or newer is "
			               "required",
			               NVML_LIBRARY, symbols[i].symbol);
		}
		memcpy((char *)n + symbols[i].at, &sym, sizeof(sym));
	}
	rc = n->init();
	if (rc != 0) {
		(void)err_set(err, ERR_UNSUPPORTED, "nvmlInit: %s (code %d)", n->words(rc), rc);
		(void)dlclose(n->lib); /* the words were its own */
		free(n);
		return -1;
	}
	*out = n;
	return 0;
}

void nvml_close(struct nvml *n)
{
	if (n == NULL)
		return;
	(void)n->shutdown(); /* nothing to do about it */
	(void)dlclose(n->lib);
	free(n);
}

int nvml_path(const struct nvml *n, char **out, struct err *err)
{
	struct link_map *map = NULL;

	if (dlinfo(n->lib, RTLD_DI_LINKMAP, &map) < 0)
		return err_set(err, ERR_IO, "%s: where it is: %s", NVML_LIBRARY, dlerror());
	*out = xstrdup(map->l_name);
	return 0;
}

int nvml_list(struct nvml *n, struct nvml_gpu *gpu, size_t cap, size_t *count, struct err *err)
{
	unsigned found = 0;
	int rc = n->count(&found);

	if (rc != 0)
		return err_set(err, ERR_IO, "nvmlDeviceGetCount: %s (code %d)", n->words(rc), rc);
	*count = 0;
	for (unsigned i = 0; i < found && *count < cap; i++) {
		struct nvml_gpu *g = &gpu[*count];
		struct memory mem = {0};
		device d = NULL;

		memset(g, 0, sizeof(*g));
		rc = n->by_index(i, &d);
		if (rc == 0)
			rc = n->uuid(d, g->uuid, sizeof(g->uuid));
		if (rc == 0)
			rc = n->name(d, g->name, sizeof(g->name));
		if (rc == 0)
			rc = n->memory(d, &mem);
		if (rc != 0)
			return err_set(err, ERR_IO, "GPU %u: %s (NVML code %d)", i, n->words(rc),
			               rc);
		g->memory_bytes = mem.total;
		(*count)++;
	}
	return 0;
}

int nvml_read(struct nvml *n, const char *uuid, struct nvml_usage *out, struct err *err)
{
	struct utilization load = {0};
	struct memory mem = {0};
	device d = NULL;
	int rc = n->by_uuid(uuid, &d);

	if (rc == 0)
		rc = n->memory(d, &mem);
	if (rc == 0)
		rc = n->load(d, &load);
	/* A GPU that is cut into parts has memory, but no load of its own. */
	if (rc != 0 && rc != NOT_SUPPORTED)
		return err_set(err, ERR_IO, "GPU %s: %s (NVML code %d)", uuid, n->words(rc), rc);
	out->utilization = load.gpu / 100.0;
	out->has_utilization = rc == 0;
	out->memory_bytes = mem.used;
	return 0;
}
