/* spec_rules.c - what no single field of a specification can say: places that clash, fields that
 * exclude or imply each other. */
#include "core/ckpt.h"
#include "core/hub.h"
#include "core/spec_table.h"

#define RETRY_ATTEMPTS 3 /* of a retry rule that names no number */

/* Places that belong to the system: nothing is mounted there, and below most of them neither. A
 * mount of a job would hide what programs need from it, and a sandbox could not be made. */
/* clang-format off */
static const struct {
	const char *path;
	bool below; /* nor below it */
} system_places[] = {
	{"/",           false}, {"/bin",         true}, {"/boot",           true},
	{"/dev",         true}, {"/etc",         true}, {"/home",          false},
	{"/lib",         true}, {"/lib32",       true}, {"/lib64",          true},
	{"/libx32",      true}, {"/lost+found",  true}, {"/proc",           true},
	{"/root",       false}, {"/run",         true}, {"/sbin",           true},
	{"/sys",         true}, {"/tmp",        false}, {"/usr",           false},
	{"/usr/bin",     true}, {"/usr/include", true}, {"/usr/lib",        true},
	{"/usr/lib32",   true}, {"/usr/lib64",   true}, {"/usr/libexec",    true},
	{"/usr/libx32",  true}, {"/usr/local",  false}, {"/usr/local/bin",  true},
	{"/usr/local/lib", false}, {"/usr/local/sbin", true}, {"/usr/sbin", true},
	{"/usr/share",  false}, {"/var",        false}, {"/var/lib",       false},
	{"/var/run",     true}, {"/var/tmp",    false},
};
/* clang-format on */

/* Places of our own. */
#define WORKSPACE "/b10/workspace"
#define SCRATCH "/mnt/bt-scratch"
#define LEGACY_HF "/root/.cache/huggingface"

#define PLACES_MAX (SPEC_WEIGHTS_MAX + 10)

enum place_kind {
	PLACE_OWN,     /* of the job alone, read-write */
	PLACE_WEIGHTS, /* read-only */
	PLACE_OURS,    /* nothing else may lie in it; not in the document */
	PLACE_CACHE,
	PLACE_CACHES, /* the folder around them, which is no mount */
};

struct place {
	const char *path;
	const struct doc *at;     /* NULL: not in the document */
	char name[SPEC_PATH_CAP]; /* path of its field, or what it is */
	enum place_kind kind;
};

struct places {
	struct place *item;
	size_t n;
};

bool spec_place_below(const char *path, const char *root)
{
	size_t n = strlen(root);

	return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const char *spec_place_system(const char *path)
{
	for (size_t i = 0; i < COUNT(system_places); i++) {
		const char *one = system_places[i].path;

		if (system_places[i].below ? spec_place_below(path, one) : strcmp(path, one) == 0)
			return one;
	}
	return NULL;
}

static void add_place(struct places *all, enum place_kind kind, const char *path,
                      const struct doc *at, const char *name)
{
	struct place *p = &all->item[all->n];

	if (path == NULL)
		return; /* reported already */
	assert(all->n < PLACES_MAX);
	*p = (struct place){.path = path, .at = at, .kind = kind};
	copy_cut(p->name, sizeof(p->name), name);
	all->n++;
}

static void check_system(struct spec_reader *r, const struct place *p)
{
	bool root = strcmp(p->path, "/") == 0;
	const char *inside = arena_printf(r->a, "%s/x", root ? "" : p->path);
	const char *owner = spec_place_system(p->kind == PLACE_CACHES && !root ? inside : p->path);

	if (root)
		spec_problem_add_id(r->problems, ERR_PLACE_SYSTEM, p->at, p->name,
		                    "may not be the root folder");
	else if (owner != NULL && strcmp(owner, p->path) == 0)
		spec_problem_add_id(r->problems, ERR_PLACE_SYSTEM, p->at, p->name,
		                    "\"%.100s\" belongs to the system: choose another folder",
		                    p->path);
	else if (owner != NULL)
		spec_problem_add_id(r->problems, ERR_PLACE_SYSTEM, p->at, p->name,
		                    "\"%.100s\" is in %s, which belongs to the system", p->path,
		                    owner);
}

/* A cache outlives the job and others write to it: their files must not decide what is mounted, or
 * where. */
static void check_shared(struct spec_reader *r, const struct job_spec *s, const struct place *p)
{
	static const char *const caches[] = {"user_artifacts", "team_artifacts", "huggingface"};

	if (p->kind != PLACE_OWN || !s->cache.enabled || s->cache.base_path == NULL)
		return;
	for (size_t i = 0; i < COUNT(caches); i++) {
		char *cache = arena_printf(r->a, "%s/%s", s->cache.base_path, caches[i]);

		if (spec_place_below(p->path, cache))
			spec_problem_add_id(r->problems, ERR_PLACE_SHARED, p->at, p->name,
			                    "\"%.100s\" is in the cache, %.100s: name a folder "
			                    "outside of it",
			                    p->path, cache);
	}
}

/* Weights are read-only and stand alone: not in another place, nor another place in them. Of the
 * rest no two may be the same; a checkpoint folder inside the workspace is fine. */
static void check_pair(struct spec_reader *r, const struct place *a, const struct place *b)
{
	bool same = strcmp(a->path, b->path) == 0;
	bool nested = spec_place_below(a->path, b->path) || spec_place_below(b->path, a->path);

	if (b->kind == PLACE_WEIGHTS &&
	    a->kind != PLACE_WEIGHTS) { /* the complaint goes to the mount */
		const struct place *swap = a;

		a = b;
		b = swap;
	}
	if (same)
		spec_problem_add(r->problems, a->at, a->name, "\"%.100s\" is also %s", a->path,
		                 b->name);
	else if (nested && (a->kind == PLACE_WEIGHTS || b->kind == PLACE_OURS))
		spec_problem_add(r->problems, a->at, a->name,
		                 "\"%.80s\" clashes with %s, \"%.80s\"", a->path, b->name, b->path);
}

/* The first of the weights that lie in a hub cache; n_weights: there is none. */
static size_t first_hub(const struct job_spec *s)
{
	size_t i = 0;

	while (i < s->n_weights && !s->weights[i].hub)
		i++;
	return i;
}

/* They share one place, for a program has one cache. */
static void check_hubs(struct spec_reader *r, const struct doc *job, const struct job_spec *s)
{
	const struct doc *item = doc_first(doc_get(job, "weights"));
	size_t first = first_hub(s);
	char name[SPEC_PATH_CAP];

	for (size_t i = 0; i < s->n_weights && item != NULL; i++, item = item->next) {
		const struct spec_weights *w = &s->weights[i], *one = &s->weights[first];

		if (!w->hub || i == first || w->mount_location == NULL ||
		    one->mount_location == NULL)
			continue;
		FMT(name, "%s.weights[%zu].mount_location", r->path, i);
		if (strcmp(w->mount_location, one->mount_location) != 0)
			spec_problem_add(r->problems, item, name,
			                 "\"%.80s\" is not where weights[%zu] are, \"%.80s\": all "
			                 "weights with layout hub share one folder",
			                 w->mount_location, first, one->mount_location);
		FMT(name, "%s.weights[%zu].source", r->path, i);
		for (size_t k = first; k < i; k++)
			if (s->weights[k].hub && w->source != NULL &&
			    s->weights[k].source != NULL &&
			    strcmp(w->source, s->weights[k].source) == 0)
				spec_problem_add(r->problems, doc_get(item, "source"), name,
				                 "\"%.100s\" is also weights[%zu]", w->source, k);
	}
}

static void check_places(struct spec_reader *r, const struct doc *job, const struct job_spec *s)
{
	const struct doc *runtime = doc_get(job, "runtime");
	struct places all = {.item = ARENA_ARRAY(r->a, struct place, PLACES_MAX)};
	const struct doc *item = doc_first(doc_get(job, "weights"));
	size_t given;
	char name[SPEC_PATH_CAP];

	if (s->ckpt.marker != NULL && ckpt_path_fault(str_of(s->ckpt.marker)) != NULL) {
		FMT(name, "%s.runtime.checkpointing_config.marker", r->path);
		spec_problem_add(r->problems,
		                 doc_path(runtime, "checkpointing_config", "marker", NULL), name,
		                 "the name of a file, or its path in the checkpoint: %s",
		                 ckpt_path_fault(str_of(s->ckpt.marker)));
	}
	if (s->ckpt.enabled) {
		FMT(name, "%s.runtime.checkpointing_config.checkpoint_path", r->path);
		add_place(&all, PLACE_OWN, s->ckpt.path,
		          doc_path(runtime, "checkpointing_config", "checkpoint_path", NULL), name);
	}
	if (s->load.enabled) {
		FMT(name, "%s.runtime.load_checkpoint_config.download_folder", r->path);
		add_place(&all, PLACE_OWN, s->load.folder,
		          doc_path(runtime, "load_checkpoint_config", "download_folder", NULL),
		          name);
	}
	if (s->cache.enabled) {
		FMT(name, "%s.runtime.cache_config.mount_base_path", r->path);
		add_place(&all, PLACE_CACHES, s->cache.base_path,
		          doc_path(runtime, "cache_config", "mount_base_path", NULL), name);
	}
	if (s->cache.enabled && s->cache.legacy_hf_mount) {
		FMT(name, "%s.runtime.cache_config.enable_legacy_hf_mount", r->path);
		add_place(&all, PLACE_CACHE, LEGACY_HF,
		          doc_path(runtime, "cache_config", "enable_legacy_hf_mount", NULL), name);
	}
	check_hubs(r, job, s);
	for (size_t i = 0; i < s->n_weights && item != NULL; i++, item = item->next) {
		FMT(name, "%s.weights[%zu].mount_location", r->path, i);
		if (!s->weights[i].hub || first_hub(s) == i)
			add_place(&all, PLACE_WEIGHTS, s->weights[i].mount_location,
			          doc_get(item, "mount_location"), name);
	}
	given = all.n;
	add_place(&all, PLACE_OWN, WORKSPACE, NULL, "the folder of the code");
	add_place(&all, PLACE_OWN, SCRATCH, NULL, "the scratch folder");
	if (s->python.wanted)
		add_place(&all, PLACE_OURS, SPEC_PYTHON_PLACE, NULL,
		          "the folder of the Python environment");
	if (s->compile.enabled)
		add_place(&all, PLACE_OURS, SPEC_COMPILE_PLACE, NULL,
		          "the folder of the compile caches");
	for (size_t i = 0; i < given; i++) {
		check_system(r, &all.item[i]);
		check_shared(r, s, &all.item[i]);
		for (size_t k = i + 1; k < all.n; k++)
			check_pair(r, &all.item[i], &all.item[k]);
	}
}

static void rule_cache(struct spec_reader *r, const struct doc *runtime, struct job_spec *s)
{
	const struct doc *old = doc_get(runtime, "enable_cache");

	if (!spec_given(old))
		return;
	if (spec_given(doc_get(runtime, "cache_config"))) {
		size_t mark = spec_push(r, "runtime");

		spec_fault_at(r, old, "enable_cache",
		              "is deprecated, and cache_config is given too: remove it");
		spec_pop(r, mark);
		return;
	}
	s->cache.enabled = doc_bool(old, false);
	s->cache.legacy_hf_mount = s->cache.enabled;
}

static void rule_load(struct spec_reader *r, const struct doc *runtime, struct job_spec *s)
{
	const struct doc *load = doc_get(runtime, "load_checkpoint_config");
	const struct doc *list = doc_get(load, "checkpoints");

	if (!spec_given(doc_get(load, "required")))
		s->load.required = spec_given(list);
	if (spec_given(load) && !spec_given(list)) {
		s->load.refs = ARENA_NEW(r->a, struct spec_load);
		s->load.refs[0].latest = true;
		s->load.n_refs = 1;
	} else if (s->load.enabled && doc_is(list, DOC_LIST) && list->count == 0) {
		size_t mark = spec_push(r, "runtime.load_checkpoint_config");

		spec_fault_at(r, list, "checkpoints", "is empty, but enabled is true");
		spec_pop(r, mark);
	}
}

static void check_compile(struct spec_reader *r, const struct doc *runtime,
                          const struct job_spec *s)
{
	const struct doc *repo = doc_path(runtime, "compile_cache", "repo", NULL);
	char name[SPEC_PATH_CAP];
	enum hub_type type;
	struct str id;

	if (s->compile.repo == NULL ||
	    (hub_typed_id(str_of(s->compile.repo), &type, &id) && type == HUB_MODELS))
		return;
	FMT(name, "%s.runtime.compile_cache.repo", r->path);
	spec_problem_add(r->problems, repo, name,
	                 "\"%.100s\" is no repository of models: write OWNER/NAME, or NAME",
	                 s->compile.repo);
}

static void check_pushes(struct spec_reader *r, const struct doc *runtime, const struct job_spec *s)
{
	const struct doc *item = doc_first(doc_path(runtime, "hub", "push", NULL));
	char name[SPEC_PATH_CAP];
	enum hub_type type;
	struct str id;

	for (size_t i = 0; i < s->n_hub_push && item != NULL; i++, item = item->next) {
		if (hub_typed_id(str_of(s->hub_push[i]), &type, &id))
			continue;
		FMT(name, "%s.runtime.hub.push[%zu]", r->path, i);
		spec_problem_add(r->problems, item, name,
		                 "\"%.100s\" is no repository: write OWNER/NAME, "
		                 "datasets/OWNER/NAME, or NAME",
		                 s->hub_push[i]);
	}
}

static bool serve_name_ok(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= SPEC_SERVE_NAME_MAX && name[0] != '-' && name[n - 1] != '-' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static void check_serve(struct spec_reader *r, const struct doc *runtime, const struct job_spec *s)
{
	const struct doc *serve = doc_get(runtime, "serve");
	char name[SPEC_PATH_CAP];

	if (s->serve.name == NULL)
		return;
	if (!serve_name_ok(s->serve.name)) {
		FMT(name, "%s.runtime.serve.name", r->path);
		spec_problem_add(r->problems, doc_get(serve, "name"), name,
		                 "\"%.70s\" is no name: 1 to 63 lower-case letters, digits and "
		                 "hyphens, with no hyphen at either end",
		                 s->serve.name);
	}
	if (s->serve.health[0] != '/' || strpbrk(s->serve.health, " \t\r\n#") != NULL) {
		FMT(name, "%s.runtime.serve.health", r->path);
		spec_problem_add(r->problems, doc_get(serve, "health"), name,
		                 "\"%.100s\" is no path: it starts with a slash and has no blanks",
		                 s->serve.health);
	}
	if (s->node_count > 1) {
		FMT(name, "%s.runtime.serve", r->path);
		spec_problem_add(r->problems, serve, name,
		                 "a job of several nodes cannot serve: node_count must be 1");
	}
}

void spec_rules(struct spec_reader *r, const struct doc *job, struct job_spec *s)
{
	const struct doc *runtime = doc_get(job, "runtime"), *retry = doc_get(job, "retry");
	const struct doc *commands = doc_get(runtime, "start_commands");

	rule_cache(r, runtime, s);
	rule_load(r, runtime, s);
	if (!spec_given(doc_get(job, "enable_baseten_workdir")))
		s->workdir = r->form == SPEC_FILE;
	if (s->registry_auth != SPEC_AUTH_NONE && s->base_image == NULL) {
		size_t mark = spec_push(r, "image");

		spec_fault_at(r, doc_path(job, "image", "docker_auth", NULL), "docker_auth",
		              "is given, but base_image is not");
		spec_pop(r, mark);
	}
	if (s->idle_gpu_s > 0 && s->gpu_count == 0) {
		size_t mark = spec_push(r, "limits");

		spec_fault_at(r, doc_path(job, "limits", "idle_gpu", NULL), "idle_gpu",
		              "is there, but no GPU: ask for some in compute.accelerator, or use "
		              "limits.max_duration");
		spec_pop(r, mark);
	}
	if (s->retry.max_attempts == 0)
		s->retry.max_attempts = spec_given(retry) ? RETRY_ATTEMPTS : 1;
	if (r->form == SPEC_FILE && doc_is(commands, DOC_LIST) && commands->count == 0) {
		size_t mark = spec_push(r, "runtime");

		spec_fault_at(r, commands, "start_commands", "is empty: list at least one command");
		spec_pop(r, mark);
	}
	if (!spec_judges(r))
		return;
	check_compile(r, runtime, s);
	check_pushes(r, runtime, s);
	check_serve(r, runtime, s);
	check_places(r, job, s);
}
