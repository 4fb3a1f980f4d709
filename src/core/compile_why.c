/* compile_why.c - see compile_why.h. */
#include "core/compile_why.h"

#include "base/json.h"
#include "base/map.h"

#define NEAR_MAX 32 /* others that are looked into */
#define DETAIL_MAX ((size_t)2000)
#define KIND(k) (1U << (k))
#define OF_TORCH (KIND(COMPILE_INDUCTOR) | KIND(COMPILE_VLLM) | KIND(COMPILE_TORCH_EXTENSIONS))
#define OF_TRITON (KIND(COMPILE_INDUCTOR) | KIND(COMPILE_VLLM) | KIND(COMPILE_TRITON))

const char *const compile_reason_word[COMPILE_REASON_COUNT] = {
	[COMPILE_FIRST] = "first",
	[COMPILE_DEVICE] = "device",
	[COMPILE_COMPILER] = "compiler version",
	[COMPILE_FLAGS] = "flags",
	[COMPILE_PATH] = "path",
	[COMPILE_CODE] = "shapes or code",
};

/* What of the facts is in the keys of which compiler. A name that ends with a dot or an underscore
 * stands for all that begin so. The first row that differs is the reason. */
static const struct {
	const char *name;
	enum compile_reason reason;
	unsigned kinds;
} facts[] = {
	{"gpu", COMPILE_DEVICE,
         OF_TORCH | KIND(COMPILE_TRITON) | KIND(COMPILE_JAX) | KIND(COMPILE_CUDA)},
	{"driver", COMPILE_DEVICE, KIND(COMPILE_CUDA)},
	{"neuronxcc", COMPILE_COMPILER, KIND(COMPILE_NEURON)},
	{"neuronx-cc", COMPILE_COMPILER, KIND(COMPILE_NEURON)},
	{"torch", COMPILE_COMPILER, OF_TORCH},
	{"triton", COMPILE_COMPILER, OF_TRITON},
	{"pytorch-triton", COMPILE_COMPILER, OF_TRITON},
	{"vllm", COMPILE_COMPILER, KIND(COMPILE_VLLM)},
	{"jaxlib", COMPILE_COMPILER, KIND(COMPILE_JAX)},
	{"jax", COMPILE_COMPILER, KIND(COMPILE_JAX)},
	{"python", COMPILE_COMPILER, KIND(COMPILE_JAX) | KIND(COMPILE_TORCH_EXTENSIONS)},
	{"env.XLA_FLAGS", COMPILE_FLAGS, KIND(COMPILE_JAX)},
	{"env.JAX_", COMPILE_FLAGS, KIND(COMPILE_JAX)},
	{"env.TORCHINDUCTOR_", COMPILE_FLAGS, KIND(COMPILE_INDUCTOR) | KIND(COMPILE_VLLM)},
	{"env.TORCH_COMPILE_", COMPILE_FLAGS, KIND(COMPILE_INDUCTOR) | KIND(COMPILE_VLLM)},
	{"env.TRITON_", COMPILE_FLAGS, OF_TRITON},
	{"env.CXX", COMPILE_FLAGS, KIND(COMPILE_INDUCTOR) | KIND(COMPILE_TORCH_EXTENSIONS)},
	{"env.CUDA_HOME", COMPILE_FLAGS, KIND(COMPILE_TORCH_EXTENSIONS)},
	{"env.TORCH_CUDA_ARCH_LIST", COMPILE_FLAGS, KIND(COMPILE_TORCH_EXTENSIONS)},
	{"env.VLLM_", COMPILE_FLAGS, KIND(COMPILE_VLLM)},
	{"env.NEURON_CC_FLAGS", COMPILE_FLAGS, KIND(COMPILE_NEURON)},
	{"place", COMPILE_PATH, KIND(COMPILE_JAX) | OF_TRITON},
	{"cpu", COMPILE_DEVICE, KIND(COMPILE_INDUCTOR) | KIND(COMPILE_JAX) | KIND(COMPILE_CCACHE)},
};

/* What Triton writes of a kernel beside it, KERNEL.json: fields that it compiles by. */
static const struct {
	const char *name;
	enum compile_reason reason;
} fields[] = {
	{"target", COMPILE_DEVICE},
	{"arch", COMPILE_DEVICE},
	{"triton_version", COMPILE_COMPILER},
	{"num_warps", COMPILE_FLAGS},
	{"num_stages", COMPILE_FLAGS},
	{"num_ctas", COMPILE_FLAGS},
	{"cluster_dims", COMPILE_FLAGS},
	{"maxnreg", COMPILE_FLAGS},
	{"num_buffers_warp_spec", COMPILE_FLAGS},
	{"num_consumer_groups", COMPILE_FLAGS},
	{"enable_fp_fusion", COMPILE_FLAGS},
	{"launch_cooperative_grid", COMPILE_FLAGS},
	{"launch_pdl", COMPILE_FLAGS},
	{"default_dot_input_precision", COMPILE_FLAGS},
	{"supported_fp8_dtypes", COMPILE_FLAGS},
	{"sanitize_overflow", COMPILE_FLAGS},
	{"instrumentation_mode", COMPILE_FLAGS},
	{"debug", COMPILE_FLAGS},
	{"extern_libs", COMPILE_FLAGS},
	{"ptx_options", COMPILE_FLAGS},
	{"ir_override", COMPILE_FLAGS},
};

struct entry { /* of a repository */
	enum compile_kind kind;
	const char *device, *name;
	const char *prefix; /* of its paths, without its name */
	const char **path;
	size_t n, cap;
};

struct entries {
	struct map *by_key;
	struct entry **list;
	size_t n, cap;
};

static void entries_done(struct entries *e)
{
	map_free(e->by_key);
}

static void entry_add(struct arena *a, struct entry *e, const char *path)
{
	if (e->n == e->cap) {
		const char **more;

		e->cap = MAX((size_t)4, e->cap * 2);
		more = ARENA_ARRAY(a, const char *, e->cap);
		if (e->n > 0)
			memcpy(more, e->path, e->n * sizeof(*more));
		e->path = more;
	}
	e->path[e->n++] = path;
}

static void entries_add(struct arena *a, struct entries *all, struct entry *e)
{
	if (all->n == all->cap) {
		struct entry **more;

		all->cap = MAX((size_t)64, all->cap * 2);
		more = ARENA_ARRAY(a, struct entry *, all->cap);
		if (all->n > 0)
			memcpy(more, all->list, all->n * sizeof(struct entry *));
		all->list = more;
	}
	all->list[all->n++] = e;
}

static void gather(struct arena *a, const char *const *path, size_t n, struct entries *out)
{
	out->by_key = map_new();
	for (size_t i = 0; i < n; i++) {
		struct compile_place p;
		const char *name, *key;
		struct entry *e;

		if (!compile_cache_place(a, path[i], &p))
			continue;
		name = compile_cache_entry(a, p.kind, p.path);
		if (name == NULL)
			continue;
		key = compile_cache_repo_path(a, p.kind, p.device, name);
		e = map_get(out->by_key, str_of(key));
		if (e == NULL) {
			e = ARENA_NEW(a, struct entry);
			*e = (struct entry){
				.kind = p.kind,
				.device = p.device,
				.name = name,
				.prefix = compile_cache_repo_path(a, p.kind, p.device, "")};
			(void)map_set(out->by_key, str_of(key), e);
			entries_add(a, out, e);
		}
		entry_add(a, e, path[i]);
	}
}

/* ---- facts ---------------------------------------------------------------------------------- */

struct verdict {
	enum compile_reason reason;
	const char *detail;
};

static bool fact_row_fits(size_t i, struct str key)
{
	struct str row = str_of(facts[i].name);
	bool open = str_ends(row, "_");

	return open ? str_starts(key, facts[i].name) : str_same(key, row);
}

static bool same(const struct doc *a, const struct doc *b)
{
	return doc_is(a, DOC_TEXT) && doc_is(b, DOC_TEXT) && str_same(a->text, b->text);
}

static void say(struct buf *out, struct str name, const struct doc *then, const struct doc *now)
{
	if (out->n > 0)
		buf_puts(out, ", ");
	if (str_starts(name, "env."))
		name = str_skip(name, strlen("env."));
	buf_printf(out, "%.*s ", STR_ARG(name));
	if (!doc_is(then, DOC_TEXT))
		buf_printf(out, "is %s, was not set", doc_cstr(now, ""));
	else if (!doc_is(now, DOC_TEXT))
		buf_printf(out, "is not set, was %s", doc_cstr(then, ""));
	else
		buf_printf(out, "is %s, was %s", doc_cstr(now, ""), doc_cstr(then, ""));
}

static const struct doc *named(const struct doc *map, struct str key)
{
	DOC_EACH (d, map)
		if (str_same(d->key, key))
			return d;
	return NULL;
}

/* One row of the table, for each name that fits it. A variable that one side has not set differs;
 * of anything else that only means that nobody knew. */
static size_t compare_row(size_t i, const struct doc *then, const struct doc *now, struct buf *out)
{
	bool variable = str_starts(str_of(facts[i].name), "env.");
	size_t n = 0;

	DOC_EACH (f, now) {
		const struct doc *was = named(then, f->key);

		if (!fact_row_fits(i, f->key) || same(f, was) || (was == NULL && !variable))
			continue;
		say(out, f->key, was, f);
		n++;
	}
	DOC_EACH (f, then) {
		if (!variable || !fact_row_fits(i, f->key) || named(now, f->key) != NULL)
			continue;
		say(out, f->key, f, NULL);
		n++;
	}
	return n;
}

/* How many facts differ that matter to the kind; *v is of the first. */
static size_t compare(struct arena *a, enum compile_kind kind, const struct doc *then,
                      const struct doc *now, struct verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < COUNT(facts); i++) {
		AUTO_BUF struct buf text = BUF_INIT(DETAIL_MAX);
		size_t found;

		if ((facts[i].kinds & KIND(kind)) == 0)
			continue;
		found = compare_row(i, then, now, &text);
		if (found > 0 && n == 0)
			*v = (struct verdict){facts[i].reason, arena_cstr(a, buf_cstr(&text))};
		n += found;
	}
	return n;
}

static bool has_sent(const struct doc *harvest, const char *prefix)
{
	DOC_EACH (e, doc_get(harvest, "entries"))
		if (doc_is(e, DOC_TEXT) && str_starts(e->text, prefix))
			return true;
	return false;
}

/* By the harvest of the fewest differences among those that have sent something that begins so.
 * False: there is none with facts. */
static bool by_facts(const struct compile_why *w, enum compile_kind kind, const char *prefix,
                     struct verdict *v)
{
	size_t least = SIZE_MAX;

	for (size_t i = 0; i < w->n_earlier; i++) {
		const struct doc *then = doc_get(w->earlier[i], "facts");
		struct verdict one = {COMPILE_CODE, "versions, flags and device are the same"};
		size_t n;

		if (!doc_is(then, DOC_MAP) || w->facts == NULL || !has_sent(w->earlier[i], prefix))
			continue;
		n = compare(w->arena, kind, then, w->facts, &one);
		if (n >= least)
			continue;
		least = n;
		*v = one;
	}
	return least != SIZE_MAX;
}

/* ---- Neuron --------------------------------------------------------------------------------- */

/* neuronxcc-VERSION/MODULE_HASH+FLAGS */
struct module {
	struct str version, hash, flags;
};

static struct module module_of(const char *entry)
{
	struct str rest = str_of(entry);
	struct module m = {0};

	(void)str_cut(&rest, '/', &m.version);
	if (str_cut(&rest, '+', &m.hash))
		m.flags = rest;
	return m;
}

static const struct doc *read_json(const struct compile_why *w, const char *path, bool stored)
{
	struct err ignored = {0};
	const struct doc *d = NULL;

	if (js_parse(w->arena, w->read(w->arg, path, stored), &d, &ignored) < 0)
		return NULL;
	return d;
}

static bool has_item(const struct doc *list, struct str text)
{
	DOC_EACH (item, list)
		if (doc_is(item, DOC_TEXT) && str_same(item->text, text))
			return true;
	return false;
}

static void only_in(const struct doc *list, const struct doc *other, const char *word,
                    struct buf *out)
{
	size_t before = out->n;

	DOC_EACH (item, list) {
		if (!doc_is(item, DOC_TEXT) || has_item(other, item->text))
			continue;
		buf_printf(out, "%s%s%.*s", out->n == before && before > 0 ? "; " : "",
		           out->n == before ? word : " ", STR_ARG(item->text));
	}
}

static const char *flags_differ(const struct compile_why *w, const struct entry *mine,
                                const struct entry *other)
{
	AUTO_BUF struct buf text = BUF_INIT(DETAIL_MAX);
	const char *file = "compile_flags.json";
	const struct doc *now = read_json(
		w, arena_printf(w->arena, "%s%s/%s", mine->prefix, mine->name, file), false);
	const struct doc *then = read_json(
		w, arena_printf(w->arena, "%s%s/%s", other->prefix, other->name, file), true);

	if (doc_is(now, DOC_LIST) && doc_is(then, DOC_LIST)) {
		only_in(now, then, "only now: ", &text);
		only_in(then, now, "only then: ", &text);
	}
	if (text.n == 0)
		return arena_printf(w->arena, "the same graph is stored as %s", other->name);
	return arena_cstr(w->arena, buf_cstr(&text));
}

static struct verdict why_neuron(const struct compile_why *w, const struct entries *stored,
                                 const struct entry *e)
{
	struct module mine = module_of(e->name);
	const struct entry *flags = NULL, *version = NULL;

	for (size_t i = 0; i < stored->n; i++) {
		const struct entry *o = stored->list[i];
		struct module m = module_of(o->name);

		if (o->kind != COMPILE_NEURON || !str_same(m.hash, mine.hash))
			continue;
		if (str_same(m.version, mine.version))
			flags = o;
		else if (version == NULL || str_same(m.flags, mine.flags))
			version = o;
	}
	if (flags != NULL)
		return (struct verdict){COMPILE_FLAGS, flags_differ(w, e, flags)};
	if (version != NULL)
		return (struct verdict){COMPILE_COMPILER,
		                        arena_printf(w->arena,
		                                     "is %.*s, the same graph is stored of %.*s",
		                                     STR_ARG(mine.version),
		                                     STR_ARG(module_of(version->name).version))};
	return (struct verdict){COMPILE_CODE, "no graph with this hash is stored"};
}

/* ---- Triton --------------------------------------------------------------------------------- */

/* KERNEL.json of an entry; NULL: it has none. */
static const char *kernel_file(const struct entry *e, struct str *kernel)
{
	for (size_t i = 0; i < e->n; i++) {
		const char *slash = strrchr(e->path[i], '/');
		struct str name = str_of(slash != NULL ? slash + 1 : e->path[i]);

		if (!str_ends(name, ".json") || str_starts(name, "__grp__") ||
		    str_ends(name, ".autotune.json"))
			continue;
		*kernel = str_n(name.p, name.n - strlen(".json"));
		return e->path[i];
	}
	return NULL;
}

static const char *shown(const struct compile_why *w, const struct doc *d)
{
	AUTO_BUF struct buf text = BUF_INIT(DETAIL_MAX);
	struct js js;

	if (doc_is(d, DOC_TEXT))
		return doc_cstr(d, "");
	js_init(&js, &text);
	js_doc(&js, d);
	return arena_cstr(w->arena, buf_cstr(&text));
}

static size_t compare_fields(const struct compile_why *w, const struct doc *then,
                             const struct doc *now, struct verdict *v)
{
	size_t n = 0;

	for (size_t i = 0; i < COUNT(fields); i++) {
		const struct doc *a = doc_get(then, fields[i].name);
		const struct doc *b = doc_get(now, fields[i].name);
		const char *was, *is;

		if (a == NULL || b == NULL)
			continue;
		was = shown(w, a);
		is = shown(w, b);
		if (strcmp(was, is) == 0)
			continue;
		if (n++ == 0)
			*v = (struct verdict){fields[i].reason,
			                      arena_printf(w->arena, "%s is %s, was %s",
			                                   fields[i].name, is, was)};
	}
	return n;
}

static bool is_beside(const struct entry *a, const struct entry *b)
{
	return a->kind == b->kind && strcmp(a->device, b->device) == 0;
}

static struct verdict why_triton(const struct compile_why *w, const struct entries *stored,
                                 const struct entry *e)
{
	struct verdict v = {COMPILE_CODE, "no kernel of this name is stored"};
	struct str kernel = {0}, other;
	const char *file = kernel_file(e, &kernel);
	const struct doc *now = file != NULL ? read_json(w, file, false) : NULL;
	size_t least = SIZE_MAX, near = 0;

	for (size_t i = 0; i < stored->n && file != NULL && near < NEAR_MAX; i++) {
		const char *theirs =
			is_beside(stored->list[i], e) ? kernel_file(stored->list[i], &other) : NULL;
		struct verdict one = {COMPILE_CODE,
		                      arena_printf(w->arena,
		                                   "%.*s with other code, arguments or constants",
		                                   STR_ARG(kernel))};
		size_t n;

		if (theirs == NULL || !str_same(other, kernel))
			continue;
		near++;
		n = compare_fields(w, read_json(w, theirs, true), now, &one);
		if (n < least)
			v = one;
		least = MIN(least, n);
	}
	return v;
}

/* ---- the others ----------------------------------------------------------------------------- */

/* MODULE-HASH-cache */
static struct str jax_module(const char *entry)
{
	struct str s = str_of(entry);

	if (str_ends(s, "-cache"))
		s.n -= strlen("-cache");
	while (s.n > 0 && s.p[s.n - 1] != '-')
		s.n--;
	return s;
}

static struct verdict why_jax(const struct compile_why *w, const struct entries *stored,
                              const struct entry *e)
{
	struct str module = jax_module(e->name);
	struct verdict v;
	bool named = false;

	for (size_t i = 0; i < stored->n; i++)
		named = named || (is_beside(stored->list[i], e) &&
		                  str_same(jax_module(stored->list[i]->name), module));
	if (!named)
		return (struct verdict){COMPILE_CODE, "no module of this name is stored"};
	if (!by_facts(w, COMPILE_JAX, arena_printf(w->arena, "%s%.*s", e->prefix, STR_ARG(module)),
	              &v))
		return (struct verdict){
			COMPILE_CODE,
			"the module is stored with another hash; what it was compiled with is not "
			"known"};
	return v;
}

static struct verdict why_other(const struct compile_why *w, const struct entry *e)
{
	struct verdict v;

	if (!by_facts(w, e->kind, e->prefix, &v))
		return (struct verdict){COMPILE_CODE, "no entry with this hash is stored"};
	return v;
}

/* Which devices something of this kind is stored for; "" if for none. */
static const char *devices_of(struct arena *a, const struct entries *stored, enum compile_kind kind)
{
	AUTO_MAP struct map *seen = map_new();
	AUTO_BUF struct buf text = BUF_INIT(DETAIL_MAX);

	for (size_t i = 0; i < stored->n; i++) {
		const struct entry *o = stored->list[i];

		if (o->kind != kind || map_set(seen, str_of(o->device), seen) != NULL)
			continue;
		buf_printf(&text, "%s%s", text.n > 0 ? ", " : "", o->device);
	}
	return arena_cstr(a, buf_cstr(&text));
}

static bool has_like(const struct entries *stored, const struct entry *e, bool any_device)
{
	for (size_t i = 0; i < stored->n; i++)
		if (any_device ? stored->list[i]->kind == e->kind : is_beside(stored->list[i], e))
			return true;
	return false;
}

static struct verdict why(const struct compile_why *w, const struct entries *stored,
                          const struct entry *e)
{
	const char *key = compile_cache_repo_path(w->arena, e->kind, e->device, e->name);

	if (map_get(stored->by_key, str_of(key)) != NULL)
		return (struct verdict){
			COMPILE_PATH,
			arena_printf(
				w->arena,
				"it was stored, so the compiler did not look there: did the job "
				"set %s?",
				compile_cache_kinds[e->kind].variable)};
	if (!has_like(stored, e, true))
		return (struct verdict){COMPILE_FIRST, "nothing of this kind was stored"};
	if (!has_like(stored, e, false))
		return (struct verdict){COMPILE_DEVICE,
		                        arena_printf(w->arena, "is %s, stored are %s", e->device,
		                                     devices_of(w->arena, stored, e->kind))};
	if (e->kind == COMPILE_NEURON)
		return why_neuron(w, stored, e);
	if (e->kind == COMPILE_TRITON || str_starts(str_of(e->name), "triton/"))
		return why_triton(w, stored, e);
	return e->kind == COMPILE_JAX ? why_jax(w, stored, e) : why_other(w, e);
}

size_t compile_cache_why(const struct compile_why *w, struct compile_miss **out)
{
	struct entries made CLEANUP(entries_done) = {0}, stored CLEANUP(entries_done) = {0};

	gather(w->arena, w->made, w->n_made, &made);
	gather(w->arena, w->stored, w->n_stored, &stored);
	*out = ARENA_ARRAY(w->arena, struct compile_miss, made.n + 1);
	for (size_t i = 0; i < made.n; i++) {
		const struct entry *e = made.list[i];
		struct verdict v = why(w, &stored, e);

		(*out)[i] = (struct compile_miss){e->kind, e->device, e->name,
		                                  e->n,    v.reason,  v.detail};
	}
	return made.n;
}
