/* compile_sift.c - which files of a compiler's cache are whole, by names, neighbours and age. Each
 * kind sorts its files into groups that only count together; see compile_cache.h. */
#include "base/json.h"
#include "base/map.h"
#include "core/compile_cache.h"

#define SETTLE_MS 5000 /* a file that was written to later may not be whole */
#define TRITON_GROUP "__grp__"
#define TRITON_CHILDREN "child_paths"

/* What a file is to its group. */
enum role {
	ROLE_DONE = 1,    /* the mark that is set last */
	ROLE_RESULT = 2,  /* what the compilation is for */
	ROLE_LIST = 4,    /* names the other files of the group */
	ROLE_META = 8,    /* says how it was compiled */
	ROLE_OBJECTS = 16 /* an intermediate: older than the result */
};

struct group {
	size_t number;
	unsigned has;
	bool torn;
	int64_t newest_ms, result_ms, object_ms;
};

struct part {
	const char *group; /* its name; in the arena */
	unsigned role, needs;
};

struct sift {
	struct arena *a;
	struct map *files, *groups;
};

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static const char *folder_of(struct arena *a, const char *path)
{
	return arena_strz(a, str_n(path, (size_t)(name_of(path) - path)));
}

/* What writers of all kinds have in common. */
static bool is_passing(const char *path)
{
	static const char *const ends[] = {".lock", ".tmp", ".incomplete", ".part", "~"};
	const char *name = name_of(path);

	for (size_t i = 0; i < COUNT(ends); i++)
		if (str_ends(str_of(name), ends[i]))
			return true;
	return strcmp(name, "lock") == 0 || str_starts(str_of(name), "tmp.") ||
	       strstr(path, "/tmp.pid_") != NULL || str_starts(str_of(path), "tmp.pid_");
}

/* neuronxcc-VERSION/MODULE_HASH+FLAGS/..., with model.done written last; 0_REGISTRY/... beside it.
 * The log of a compilation that failed would make it fail for everybody. */
static bool sort_neuron(struct sift *s, const char *path, struct part *p)
{
	const char *name = name_of(path), *module = strchr(path, '/');
	struct str rest;

	if (!str_starts(str_of(path), "neuronxcc-") || module == NULL)
		return false;
	rest = str_of(module + 1);
	if (str_starts(rest, "0_REGISTRY/") && str_ends(rest, ".json")) {
		p->group = path;
		return true;
	}
	if (!str_starts(rest, "MODULE_") || strchr(module + 1, '/') == NULL ||
	    strcmp(name, "model.log") == 0)
		return false;
	p->group = compile_cache_entry(s->a, COMPILE_NEURON, path);
	p->role = strcmp(name, "model.done") == 0   ? ROLE_DONE
	          : strcmp(name, "model.neff") == 0 ? ROLE_RESULT
	                                            : 0;
	p->needs = ROLE_DONE | ROLE_RESULT;
	return true;
}

/* KEY/KERNEL.cubin and the like, which count when KEY/__grp__KERNEL.json lists them. What the
 * launcher is built of, and what an autotuner found, are one file each. */
static bool sort_triton(struct sift *s, const char *path, struct part *p)
{
	static const char *const ends[] = {".json",   ".ttir",   ".ttgir", ".llir", ".ptx",
	                                   ".cubin",  ".amdgcn", ".hsaco", ".spv",  ".zebin",
	                                   ".source", ".tlir",   ".asm",   ".bc"};
	const char *name = name_of(path), *folder = folder_of(s->a, path);
	bool list = str_starts(str_of(name), TRITON_GROUP);
	struct str stem = str_of(list ? name + strlen(TRITON_GROUP) : name);

	if (folder[0] == '\0')
		return false;
	p->group = path;
	if (str_ends(stem, ".autotune.json"))
		return true;
	for (size_t i = 0; i < COUNT(ends); i++) {
		if (!str_ends(stem, ends[i]))
			continue;
		stem.n -= strlen(ends[i]);
		p->group = arena_printf(s->a, "%s%.*s", folder, STR_ARG(stem));
		p->role = list ? ROLE_LIST : i == 0 ? ROLE_META : ROLE_RESULT;
		p->needs = ROLE_LIST | ROLE_META | ROLE_RESULT;
		return true;
	}
	return true;
}

/* Locks, and the table of autotuning, which is rewritten in place, lie in folders of their own.
 * What else there is, is put by a rename, or is one compilation with one stem. */
static bool sort_inductor(struct sift *s, const char *path, const char *from, struct part *p)
{
	const char *name = name_of(path), *dot = strchr(name, '.');
	const char *kernels = strstr(from, "triton/");

	if (str_starts(str_of(from), "locks/") || str_starts(str_of(from), "cache/"))
		return false;
	if (kernels == from) {
		from = strchr(from + strlen("triton/"), '/'); /* behind the device's number */
		return from != NULL && strchr(from + 1, '/') != NULL && sort_triton(s, path, p);
	}
	p->group = dot != NULL && dot > name ? arena_strz(s->a, str_n(path, (size_t)(dot - path)))
	                                     : path;
	return true;
}

/* MODULE-HASH-cache at the root, with MODULE-HASH-atime where the cache has a limit; and what XLA
 * keeps of autotuning, which it writes elsewhere and renames. */
static bool sort_jax(struct sift *s, const char *path, struct part *p)
{
	static const char *const ends[] = {"-cache", "-atime"};
	static const char tuned[] = "xla_gpu_per_fusion_autotune_cache_dir/";
	struct str text = str_of(path);

	if (str_starts(text, tuned)) {
		p->group = path;
		return strchr(path + strlen(tuned), '/') == NULL;
	}
	if (strchr(path, '/') != NULL)
		return false;
	for (size_t i = 0; i < COUNT(ends); i++) {
		if (!str_ends(text, ends[i]))
			continue;
		p->group = arena_strz(s->a, str_n(path, text.n - strlen(ends[i])));
		p->role = i == 0 ? ROLE_RESULT : 0;
		p->needs = ROLE_RESULT;
		return true;
	}
	return false;
}

/* Of all that vLLM keeps only this; caches of Inductor and Triton are inside. */
static bool sort_vllm(struct sift *s, const char *path, struct part *p)
{
	static const char inductor[] = "/inductor_cache/", triton[] = "/triton_cache/";
	const char *inner;

	if (!str_starts(str_of(path), "torch_compile_cache/"))
		return false;
	inner = strstr(path, inductor);
	if (inner != NULL)
		return sort_inductor(s, path, inner + strlen(inductor), p);
	inner = strstr(path, triton);
	if (inner != NULL)
		return strchr(inner + strlen(triton), '/') != NULL && sort_triton(s, path, p);
	p->group = folder_of(s->a, path);
	return true;
}

/* A folder for each extension. PyTorch runs ninja whenever one is loaded, which builds it again
 * unless its own records and the objects are there; so all of it counts. A lock says little: of old
 * it was there while an extension was built, now it stays for ever. */
static bool sort_extension(struct sift *s, const char *path, struct part *p)
{
	p->group = folder_of(s->a, path);
	p->role = str_ends(str_of(path), ".so")  ? ROLE_RESULT
	          : str_ends(str_of(path), ".o") ? ROLE_OBJECTS
	                                         : 0;
	p->needs = ROLE_RESULT;
	return p->group[0] != '\0';
}

/* Its files are found by an index beside them. */
static bool sort_cuda(struct sift *s UNUSED, const char *path UNUSED, struct part *p)
{
	p->group = "";
	return true;
}

/* a/REST or a/b/REST, a hash in base 32 behind digits of base 16, and its kind: a result, a
 * manifest, or a raw file of a result. The rest is counters, settings and what is being written. */
static bool sort_ccache(struct sift *s UNUSED, const char *path, struct part *p)
{
	struct str rest = str_of(path), folder;
	size_t levels = 0, n;

	while (str_cut(&rest, '/', &folder) && rest.n > 0) {
		if (folder.n > 2 || folder.n == 0 ||
		    strspn(folder.p, "0123456789abcdef") < folder.n)
			return false;
		levels++;
	}
	rest = str_of(name_of(path));
	n = strspn(rest.p, "0123456789abcdefghijklmnopqrstuv");
	p->group = path;
	return levels > 0 && n >= 16 &&
	       (strcmp(rest.p + n, "R") == 0 || strcmp(rest.p + n, "M") == 0 ||
	        (rest.p[n] == '_' && str_ends(rest, "W")));
}

static bool sort(struct sift *s, enum compile_kind kind, const char *path, struct part *p)
{
	switch (kind) {
	case COMPILE_NEURON:
		return sort_neuron(s, path, p);
	case COMPILE_INDUCTOR:
		return sort_inductor(s, path, path, p);
	case COMPILE_TRITON:
		return sort_triton(s, path, p);
	case COMPILE_JAX:
		return sort_jax(s, path, p);
	case COMPILE_VLLM:
		return sort_vllm(s, path, p);
	case COMPILE_TORCH_EXTENSIONS:
		return sort_extension(s, path, p);
	case COMPILE_CUDA:
		return sort_cuda(s, path, p);
	case COMPILE_CCACHE:
		return sort_ccache(s, path, p);
	case COMPILE_KIND_COUNT:
		break;
	}
	return false;
}

bool compile_cache_wants_text(enum compile_kind kind, const char *path)
{
	return (kind == COMPILE_TRITON || kind == COMPILE_INDUCTOR || kind == COMPILE_VLLM) &&
	       str_starts(str_of(name_of(path)), TRITON_GROUP);
}

bool compile_cache_takes_text(enum compile_kind kind, const char *path, uint64_t size, size_t *room)
{
	if (!compile_cache_wants_text(kind, path) || size > MIN(*room, COMPILE_TEXT_MAX))
		return false;
	*room -= (size_t)size;
	return true;
}

bool compile_cache_is_sign(const char *path)
{
	const char *name = name_of(path);

	return strcmp(name, "model.done") == 0 || str_starts(str_of(name), TRITON_GROUP);
}

/* {"child_paths": {NAME: PATH}}; NULL: it is no such text. */
static const struct doc *children_of(struct arena *a, struct str text)
{
	const struct doc *d, *children;
	struct err ignored = {0};

	if (js_parse(a, text, &d, &ignored) < 0)
		return NULL;
	children = doc_get(d, TRITON_CHILDREN);
	return doc_is(children, DOC_MAP) ? children : NULL;
}

bool compile_cache_move(enum compile_kind kind, const char *path, struct str text, const char *root,
                        struct buf *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *children;
	struct js js;

	if (!compile_cache_wants_text(kind, path))
		return false;
	children = children_of(a, text);
	if (children == NULL)
		return false;
	js_init(&js, out);
	js_open(&js);
	js_key(&js, TRITON_CHILDREN);
	js_open(&js);
	DOC_EACH (child, children) {
		js_key_str(&js, child->key);
		js_fmt(&js, "%s/%s%.*s", root, folder_of(a, path), STR_ARG(child->key));
	}
	js_close(&js);
	js_close(&js);
	return true;
}

/* All of its children are beside it. */
static bool lists_what_is_there(struct sift *s, const struct compile_file *f)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *children = children_of(a, f->text);
	const char *folder = folder_of(a, f->path);

	if (children == NULL)
		return false;
	DOC_EACH (child, children) {
		const char *path = arena_printf(a, "%s%.*s", folder, STR_ARG(child->key));

		if (map_get(s->files, str_of(path)) == NULL)
			return false;
	}
	return true;
}

static struct group *group_of(struct sift *s, const struct part *p)
{
	struct group *g = map_get(s->groups, str_of(p->group));

	if (g == NULL) {
		g = ARENA_NEW(s->a, struct group);
		g->number = map_count(s->groups);
		(void)map_set(s->groups, str_of(p->group), g);
	}
	return g;
}

static void join(struct sift *s, const struct compile_file *f, const struct part *p)
{
	struct group *g = group_of(s, p);

	g->has |= p->role;
	g->newest_ms = MAX(g->newest_ms, f->changed_ms);
	if (p->role == ROLE_RESULT)
		g->result_ms = MAX(g->result_ms, f->changed_ms);
	if (p->role == ROLE_OBJECTS)
		g->object_ms = MAX(g->object_ms, f->changed_ms);
	if (p->role == ROLE_LIST && f->text.n > 0 && !lists_what_is_there(s, f))
		g->torn = true;
}

static enum compile_left judge(struct sift *s, const struct part *p, int64_t now_ms)
{
	const struct group *g = group_of(s, p);

	if (g->torn || (g->has & p->needs) != p->needs || g->object_ms > g->result_ms)
		return COMPILE_TORN;
	return now_ms == 0 || now_ms - g->newest_ms >= SETTLE_MS ? COMPILE_TAKEN : COMPILE_YOUNG;
}

void compile_cache_sift(enum compile_kind kind, struct compile_file *file, size_t n, int64_t now_ms)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_MAP struct map *files = map_new(), *groups = map_new();
	struct sift s = {.a = a, .files = files, .groups = groups};
	struct part *part = ARENA_ARRAY(a, struct part, n + 1);

	for (size_t i = 0; i < n; i++)
		(void)map_set(files, str_of(file[i].path), &file[i]);
	for (size_t i = 0; i < n; i++) {
		if (is_passing(file[i].path) || !sort(&s, kind, file[i].path, &part[i]))
			part[i].group = NULL;
		else
			join(&s, &file[i], &part[i]);
	}
	for (size_t i = 0; i < n; i++) {
		file[i].left =
			part[i].group != NULL ? judge(&s, &part[i], now_ms) : COMPILE_NO_ENTRY;
		file[i].take = file[i].left == COMPILE_TAKEN;
		file[i].unit = file[i].take ? group_of(&s, &part[i])->number : 0;
	}
}
