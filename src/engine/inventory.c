/*
 * inventory.c - what this machine has to give: the CPUs and memory that this process may use (its
 * affinity and its cgroups counted, version 2 and 1), and GPUs by NVML or as declared.
 */
#include "engine/engine.h"

#include "base/fs.h"
#include "base/log.h"
#include "core/spec.h"
#include "io/nvml.h"

#include <sched.h>

#define FILE_MAX ((size_t)64 << 10)
#define CGROUP_DEPTH 64
#define GIB ((uint64_t)1 << 30)

/* First row whose words the device's name holds wins: the longer names stand first. */
static const struct gpu_type {
	const char *words, *type;
	uint64_t gib; /* of a declared one */
	bool big;     /* only when it has more than half of gib */
} gpu_types[] = {
	{"GB300", "GB300", 288, false}, {"B300", "B300", 288, false},
	{"B200", "B200", 192, false},   {"H200", "H200", 141, false},
	{"H100", "H100", 80, true},     {"H100", "H100_40GB", 40, false},
	{"A100", "A100", 80, true},     {"A100", "A100_40GB", 40, false},
	{"L40S", "L40S", 48, false},    {"RTX PRO 6000", "RTX_PRO_6000", 96, false},
	{"A10G", "A10G", 24, false},    {"V100", "V100", 16, false},
	{"L4", "L4", 24, false},        {"T4", "T4", 16, false},
	{"B10", "B10", 128, false},
};

/* A word of the name, not a part of one: "L4" is not in "L40". */
static bool holds_word(const char *name, const char *word)
{
	for (const char *p = strstr(name, word); p != NULL; p = strstr(p + 1, word)) {
		char before = p == name ? ' ' : p[-1];
		char after = p[strlen(word)];

		if (strchr(" -", before) != NULL && (after == '\0' || strchr(" -", after) != NULL))
			return true;
	}
	return false;
}

/* "NVIDIA GeForce RTX 4090" holds RTX_4090; the longest that fits. Mobile and Ti are taken as their
 * kin. */
static const char *type_in_name(const char *name)
{
	const char *best = "";

	for (size_t i = 0; spec_gpu_types[i] != NULL; i++) {
		char words[sizeof(((struct inventory_gpu *)NULL)->type)];

		copy_cut(words, sizeof(words), spec_gpu_types[i]);
		for (char *p = words; *p != '\0'; p++)
			*p = *p == '_' ? ' ' : *p;
		if (holds_word(name, words) && strlen(words) > strlen(best))
			best = spec_gpu_types[i];
	}
	return best;
}

static const char *type_of(const char *name, uint64_t bytes)
{
	for (size_t i = 0; i < COUNT(gpu_types); i++) {
		const struct gpu_type *t = &gpu_types[i];

		if (holds_word(name, t->words) && (!t->big || bytes > t->gib * GIB * 6 / 10))
			return t->type;
	}
	return type_in_name(name);
}

static bool read_text(const char *path, struct buf *out)
{
	struct err err = {0};

	buf_clear(out);
	return fs_read(AT_FDCWD, path, out, &err) == 0;
}

static bool read_number(const char *dir, const char *name, int64_t *out)
{
	AUTO_BUF struct buf body = BUF_INIT(FILE_MAX);
	char path[FS_PATH_MAX + 64];
	struct err err = {0};

	FMT(path, "%s/%s", dir, name);
	if (!read_text(path, &body))
		return false;
	return str_i64(str_trim(buf_view(&body)), INT64_MIN, INT64_MAX, out, &err) == 0;
}

/* "max 100000" or "200000 100000" -> thousandths of a core, 0 = no limit. */
static uint64_t quota_v2(const char *dir)
{
	AUTO_BUF struct buf body = BUF_INIT(FILE_MAX);
	char path[FS_PATH_MAX + 64];
	struct str rest, quota;
	uint64_t q = 0, period = 0;
	struct err err = {0};

	FMT(path, "%s/cpu.max", dir);
	if (!read_text(path, &body))
		return 0;
	rest = str_trim(buf_view(&body));
	if (!str_cut(&rest, ' ', &quota) || str_u64(quota, 1, INT64_MAX / 1000, &q, &err) < 0 ||
	    str_u64(rest, 1, INT64_MAX, &period, &err) < 0)
		return 0;
	return MAX(q * 1000 / period, 1U);
}

static uint64_t quota_v1(const char *dir)
{
	int64_t q = 0, period = 0;

	if (!read_number(dir, "cpu.cfs_quota_us", &q) || q <= 0 || q > INT64_MAX / 1000 ||
	    !read_number(dir, "cpu.cfs_period_us", &period) || period <= 0)
		return 0;
	return (uint64_t)MAX(q * 1000 / period, 1);
}

static void limit_here(const char *dir, struct inventory *out)
{
	int64_t bytes = 0;
	uint64_t milli = quota_v2(dir);

	if (milli == 0)
		milli = quota_v1(dir);
	if (milli > 0 && milli < out->cpu_milli)
		out->cpu_milli = (uint32_t)milli;
	if ((read_number(dir, "memory.max", &bytes) ||
	     read_number(dir, "memory.limit_in_bytes", &bytes)) &&
	    bytes > 0 && (uint64_t)bytes < out->memory_bytes)
		out->memory_bytes = (uint64_t)bytes;
}

/* The cgroup itself and every one above it: the smallest limit counts. */
static void limit_up(const char *mount, struct str below, struct inventory *out)
{
	char dir[FS_PATH_MAX];
	size_t keep = strlen(mount);

	if (keep + below.n >= sizeof(dir))
		return;
	FMT(dir, "%s%.*s", mount, STR_ARG(below));
	for (int i = 0; i < CGROUP_DEPTH && strlen(dir) >= keep; i++) {
		char *slash = NULL;

		limit_here(dir, out);
		slash = strrchr(dir, '/');
		if (slash == NULL || (size_t)(slash - dir) < keep)
			return;
		*slash = '\0';
	}
}

static void limit_by_cgroups(struct inventory *out)
{
	AUTO_BUF struct buf body = BUF_INIT(FILE_MAX);
	struct str rest, line;

	if (!read_text("/proc/self/cgroup", &body))
		return;
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		struct str id, names, name;
		char mount[128];

		if (!str_cut(&line, ':', &id) || !str_cut(&line, ':', &names))
			continue;
		if (names.n == 0) {
			limit_up("/sys/fs/cgroup", line, out);
			limit_up("/sys/fs/cgroup/unified", line, out);
			continue;
		}
		while (str_cut(&names, ',', &name)) {
			if (!str_eq(name, "memory") && !str_eq(name, "cpu"))
				continue;
			FMT(mount, "/sys/fs/cgroup/%.*s", STR_ARG(name));
			limit_up(mount, line, out);
		}
	}
}

static int read_memory(struct inventory *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(FILE_MAX);
	struct str rest, line;
	uint64_t kib = 0;

	if (fs_read(AT_FDCWD, "/proc/meminfo", &body, err) < 0)
		return -1;
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		struct str word;

		if (!str_starts(line, "MemTotal:"))
			continue;
		line = str_trim(str_skip(line, strlen("MemTotal:")));
		(void)str_cut(&line, ' ', &word);
		if (str_u64(word, 1, UINT64_MAX / 1024, &kib, err) < 0)
			return err_wrap(err, "/proc/meminfo: MemTotal");
		out->memory_bytes = kib * 1024;
		return 0;
	}
	return err_set(err, ERR_UNSUPPORTED, "/proc/meminfo has no MemTotal");
}

static int declare(struct inventory *out, const char *declared, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str rest = str_of(declared), one;

	out->declared = true;
	while (str_cut(&rest, ',', &one)) {
		const char *type = NULL;
		uint32_t count = 0;

		if (spec_accelerator(a, str_trim(one), &type, &count, err) < 0)
			return err_wrap(err, "declared GPUs");
		if (count > INVENTORY_GPUS_MAX - out->n_gpus)
			return err_set(err, ERR_TOO_BIG, "more than %d GPUs declared",
			               INVENTORY_GPUS_MAX);
		for (uint32_t i = 0; i < count; i++) {
			struct inventory_gpu *g = &out->gpu[out->n_gpus];

			FMT(g->uuid, "declared-%zu", out->n_gpus);
			FMT(g->name, "declared %s", type);
			copy_cut(g->type, sizeof(g->type), type);
			for (size_t t = 0; t < COUNT(gpu_types); t++) {
				if (strcmp(gpu_types[t].type, type) == 0)
					g->memory_bytes = gpu_types[t].gib * GIB;
			}
			out->n_gpus++;
		}
	}
	return 0;
}

static int find_gpus(struct inventory *out, struct err *err)
{
	AUTO_NVML struct nvml *n = NULL;
	struct nvml_gpu gpu[INVENTORY_GPUS_MAX];
	size_t count = 0;

	if (nvml_open(&n, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			log_warn("no GPUs, as NVML does not work: %s; `nvidia-smi` may tell more",
			         err->msg);
		err_clear(err);
		return 0;
	}
	if (nvml_list(n, gpu, COUNT(gpu), &count, err) < 0)
		return err_wrap(err, "detect GPUs (`nvidia-smi` may tell more; --gpus TYPE:COUNT "
		                     "declares those to use)");
	for (size_t i = 0; i < count; i++) {
		struct inventory_gpu *g = &out->gpu[i];

		copy_cut(g->uuid, sizeof(g->uuid), gpu[i].uuid);
		copy_cut(g->name, sizeof(g->name), gpu[i].name);
		copy_cut(g->type, sizeof(g->type), type_of(gpu[i].name, gpu[i].memory_bytes));
		g->memory_bytes = gpu[i].memory_bytes;
		if (g->type[0] == '\0')
			log_warn("GPU %zu, \"%s\", is of no type that a job can ask for: it is not "
			         "given to any (--gpus TYPE:COUNT declares what there is)",
			         i, g->name);
	}
	out->n_gpus = count;
	return 0;
}

int inventory_read(struct inventory *out, const char *declared, struct err *err)
{
	cpu_set_t set;
	int cpus = 0;

	memset(out, 0, sizeof(*out));
	CPU_ZERO(&set);
	cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
	                                                    : (int)sysconf(_SC_NPROCESSORS_ONLN);
	out->cpu_milli = (uint32_t)MAX(cpus, 1) * 1000;
	if (read_memory(out, err) < 0)
		return -1;
	limit_by_cgroups(out);
	cpu_kind(out->cpu);
	if (declared != NULL && declared[0] != '\0')
		return declare(out, declared, err);
	return find_gpus(out, err);
}
