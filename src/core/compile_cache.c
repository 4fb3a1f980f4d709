/* compile_cache.c - see compile_cache.h. */
#include "core/compile_cache.h"

#define NEURON_FOLDER "neuronxcc-" /* how a folder of Neuron begins, at the repository's root */
#define NEURON_MODULE "MODULE_"    /* and one of a graph, below */

/* clang-format off */
const struct compile_cache_kind compile_cache_kinds[COMPILE_KIND_COUNT] = {
	[COMPILE_NEURON] =           {"neuron",           "NEURON_COMPILE_CACHE_URL",  false, "AWS Neuron"},
	[COMPILE_INDUCTOR] =         {"inductor",         "TORCHINDUCTOR_CACHE_DIR",   true,  "torch.compile"},
	[COMPILE_TRITON] =           {"triton",           "TRITON_CACHE_DIR",          true,  "Triton kernels"},
	[COMPILE_JAX] =              {"jax",              "JAX_COMPILATION_CACHE_DIR", true,  "JAX"},
	[COMPILE_VLLM] =             {"vllm",             "VLLM_CACHE_ROOT",           true,  "vLLM"},
	[COMPILE_TORCH_EXTENSIONS] = {"torch_extensions", "TORCH_EXTENSIONS_DIR",      true,  "extensions of PyTorch"},
	[COMPILE_CUDA] =             {"cuda",             "CUDA_CACHE_PATH",           true,  "kernels that the CUDA driver compiles"},
	[COMPILE_CCACHE] =           {"ccache",           "CCACHE_DIR",                false, "ccache"},
};
/* clang-format on */

void compile_cache_device(struct str name, char out[COMPILE_DEVICE_CAP])
{
	size_t n = 0;

	for (size_t i = 0; i < name.n && n + 1 < COMPILE_DEVICE_CAP; i++) {
		char c = name.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
			out[n++] = c;
		else if (n > 0 && out[n - 1] != '-')
			out[n++] = '-';
	}
	while (n > 0 && out[n - 1] == '-')
		n--;
	out[n] = '\0';
}

const char *compile_cache_repo_path(struct arena *a, enum compile_kind kind, const char *device,
                                    const char *path)
{
	const struct compile_cache_kind *k = &compile_cache_kinds[kind];

	if (kind == COMPILE_NEURON)
		return arena_cstr(a, path);
	return k->by_device ? arena_printf(a, "%s/%s/%s", k->name, device, path)
	                    : arena_printf(a, "%s/%s", k->name, path);
}

bool compile_cache_place(struct arena *a, const char *repo_path, struct compile_place *out)
{
	struct str rest = str_of(repo_path), folder, device = {0};

	if (!str_cut(&rest, '/', &folder) || rest.n == 0)
		return false;
	if (str_starts(folder, NEURON_FOLDER)) {
		*out = (struct compile_place){COMPILE_NEURON, "", arena_cstr(a, repo_path)};
		return true;
	}
	for (size_t i = 0; i < COMPILE_KIND_COUNT; i++) {
		const struct compile_cache_kind *k = &compile_cache_kinds[i];

		if (i == COMPILE_NEURON || !str_eq(folder, k->name))
			continue;
		if (k->by_device && (!str_cut(&rest, '/', &device) || device.n == 0 || rest.n == 0))
			return false;
		*out = (struct compile_place){(enum compile_kind)i, arena_strz(a, device),
		                              arena_strz(a, rest)};
		return true;
	}
	return false;
}

/* The first `n` parts of a path; NULL: it has no more than these. */
static const char *parts(struct arena *a, const char *path, size_t n)
{
	const char *at = path;

	for (size_t i = 0; i < n; i++) {
		at = strchr(at, '/');
		if (at == NULL)
			return NULL;
		at++;
	}
	return arena_strz(a, str_n(path, (size_t)(at - path) - 1));
}

static const char *inductor_entry(struct arena *a, const char *path)
{
	static const char *const graphs[] = {"fxgraph/", "aotautograd/", "triton/"};

	for (size_t i = 0; i < COUNT(graphs); i++)
		if (str_starts(str_of(path), graphs[i]))
			return parts(a, path, 3);
	return NULL;
}

const char *compile_cache_entry(struct arena *a, enum compile_kind kind, const char *path)
{
	switch (kind) {
	case COMPILE_NEURON:
		return strstr(path, "/" NEURON_MODULE) != NULL ? parts(a, path, 2) : NULL;
	case COMPILE_INDUCTOR:
		return inductor_entry(a, path);
	case COMPILE_JAX:
		return str_ends(str_of(path), "-cache") ? arena_cstr(a, path) : NULL;
	case COMPILE_VLLM:
		return parts(a, path, 2);
	case COMPILE_TRITON:
	case COMPILE_TORCH_EXTENSIONS:
		return parts(a, path, 1);
	case COMPILE_CCACHE: /* a manifest only leads to results */
		return str_ends(str_of(path), "R") ? arena_cstr(a, path) : NULL;
	case COMPILE_CUDA:
		return arena_cstr(a, path);
	case COMPILE_KIND_COUNT:
		break;
	}
	return NULL;
}
