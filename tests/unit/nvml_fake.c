/*
 * nvml_fake.c - a libnvidia-ml.so.1 of two GPUs, for tests: the entry points that io/nvml.c looks
 * up, with their documented prototypes. Built twice: NVML_FAKE_OLD lacks one of them. End to end
 * tests build one of their own with another NVML_FAKE_LOAD.
 *
 * NVML_FAKE_NAME is the name of both. What goes wrong is read from the environment at each call:
 * NVML_FAKE_INIT is nvmlInit's code, NVML_FAKE_LOST the index of a GPU that has fallen off the bus,
 * NVML_FAKE_PARTS says that they are cut into parts.
 */
#include <stdlib.h>
#include <string.h>

#ifndef NVML_FAKE_LOAD
#define NVML_FAKE_LOAD 37 /* of the first one, percent */
#endif
#define API __attribute__((visibility("default")))
#define GIB (1ULL << 30)

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

typedef struct gpu {
	const char *uuid, *name;
	unsigned long long total, used;
	unsigned load;
} * nvmlDevice_t;

static struct gpu gpus[] = {
	{"GPU-11111111-aaaa", "NVIDIA H100 80GB HBM3", 80 * GIB, 3 * GIB, NVML_FAKE_LOAD},
	{"GPU-22222222-bbbb", "NVIDIA A100-SXM4-40GB", 40 * GIB, 0, 0},
};

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
	unsigned gpu, memory;
} nvmlUtilization_t;

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetCount_v2(unsigned *n);
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d);
API int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d);
API int nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned cap);
API int nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned cap);
API int nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *out);
API int nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *out);
API const char *nvmlErrorString(int code);

int nvmlInit_v2(void)
{
	const char *code = getenv("NVML_FAKE_INIT");

	return code != NULL ? atoi(code) : OK;
}

int nvmlShutdown(void)
{
	return OK;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = sizeof(gpus) / sizeof(gpus[0]);
	return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d)
{
	const char *lost = getenv("NVML_FAKE_LOST");

	if (lost != NULL && atoi(lost) == (int)i)
		return GPU_IS_LOST;
	*d = &gpus[i];
	return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *d)
{
	for (unsigned i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++) {
		if (strcmp(gpus[i].uuid, uuid) == 0)
			return nvmlDeviceGetHandleByIndex_v2(i, d);
	}
	return NOT_FOUND;
}

static int give(const char *text, char *out, unsigned cap)
{
	if (strlen(text) >= cap)
		return INSUFFICIENT_SIZE;
	memcpy(out, text, strlen(text) + 1);
	return OK;
}

int nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned cap)
{
	return give(d->uuid, out, cap);
}

int nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned cap)
{
	const char *other = getenv("NVML_FAKE_NAME");

	return give(other != NULL ? other : d->name, out, cap);
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *out)
{
	out->total = d->total;
	out->used = d->used;
	out->free = d->total - d->used;
	return OK;
}

#ifndef NVML_FAKE_OLD
int nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *out)
{
	if (getenv("NVML_FAKE_PARTS") != NULL)
		return NOT_SUPPORTED;
	out->gpu = d->load;
	out->memory = 0;
	return OK;
}
#endif

const char *nvmlErrorString(int code)
{
	return code == GPU_IS_LOST ? "GPU is lost"
	       : code == 9         ? "Driver Not Loaded"
	                           : "Unknown Error";
}
