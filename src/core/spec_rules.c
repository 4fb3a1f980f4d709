/* spec_rules.c - what no single field of a specification can say: places that clash, fields that
 * exclude or imply each other. */
#include "core/spec_table.h"

#define RETRY_ATTEMPTS 3 /* of a retry rule that names no number */

/* Places that belong to the system: nothing is mounted at or below them. */
static const char *const system_places[] = {"/proc", "/sys", "/dev", "/etc", "/run"};

/* Places of our own. */
#define WORKSPACE "/b10/workspace"
#define SCRATCH "/mnt/bt-scratch"
#define LEGACY_HF "/root/.cache/huggingface"

#define PLACES_MAX (SPEC_WEIGHTS_MAX + 9)

struct place {
	const char *path;
	const struct doc *at;     /* NULL: not in the document */
	char name[SPEC_PATH_CAP]; /* path of its field, or what it is */
	bool weights;
	bool alone; /* read-only too, and not in the document */
};

struct places {
	struct place *item;
	size_t n;
};

static bool is_below(const char *path, const char *root)
{
	size_t n = strlen(root);

	return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static void add_place(struct places *all, const char *path, const struct doc *at, const char *name)
{
	struct place *p = &all->item[all->n];

	if (path == NULL)
		return; /* reported already */
	assert(all->n < PLACES_MAX);
	*p = (struct place){.path = path, .at = at};
	copy_cut(p->name, sizeof(p->name), name);
	all->n++;
}

static void check_system(struct spec_reader *r, const struct place *p)
{
	if (strcmp(p->path, "/") == 0) {
		spec_problem_add(r->problems, p->at, p->name, "may not be the root folder");
		return;
	}
	for (size_t i = 0; i < COUNT(system_places); i++) {
		if (is_below(p->path, system_places[i]))
			spec_problem_add(r->problems, p->at, p->name,
			                 "\"%.100s\" is in %s, which belongs to the system",
			                 p->path, system_places[i]);
	}
}

/* Weights are read-only and stand alone: not in another place, nor another place in them. Of the
 * rest no two may be the same; a checkpoint folder inside the workspace is fine. */
static void check_pair(struct spec_reader *r, const struct place *a, const struct place *b)
{
	bool same = strcmp(a->path, b->path) == 0;
	bool nested = is_below(a->path, b->path) || is_below(b->path, a->path);

	if (b->weights && !a->weights) { /* the complaint goes to the mount */
		const struct place *swap = a;

		a = b;
		b = swap;
	}
	if (same)
		spec_problem_add(r->problems, a->at, a->name, "\"%.100s\" is also %s", a->path,
		                 b->name);
	else if (nested && (a->weights || b->alone))
		spec_problem_add(r->problems, a->at, a->name,
		                 "\"%.80s\" clashes with %s, \"%.80s\"", a->path, b->name, b->path);
}

static void check_places(struct spec_reader *r, const struct doc *job, const struct job_spec *s)
{
	const struct doc *runtime = doc_get(job, "runtime");
	struct places all = {.item = ARENA_ARRAY(r->a, struct place, PLACES_MAX)};
	const struct doc *item = doc_first(doc_get(job, "weights"));
	size_t given;
	char name[SPEC_PATH_CAP];

	if (s->ckpt.enabled) {
		FMT(name, "%s.runtime.checkpointing_config.checkpoint_path", r->path);
		add_place(&all, s->ckpt.path,
		          doc_path(runtime, "checkpointing_config", "checkpoint_path", NULL), name);
	}
	if (s->load.enabled) {
		FMT(name, "%s.runtime.load_checkpoint_config.download_folder", r->path);
		add_place(&all, s->load.folder,
		          doc_path(runtime, "load_checkpoint_config", "download_folder", NULL),
		          name);
	}
	if (s->cache.enabled) {
		FMT(name, "%s.runtime.cache_config.mount_base_path", r->path);
		add_place(&all, s->cache.base_path,
		          doc_path(runtime, "cache_config", "mount_base_path", NULL), name);
	}
	if (s->cache.enabled && s->cache.legacy_hf_mount) {
		FMT(name, "%s.runtime.cache_config.enable_legacy_hf_mount", r->path);
		add_place(&all, LEGACY_HF,
		          doc_path(runtime, "cache_config", "enable_legacy_hf_mount", NULL), name);
	}
	for (size_t i = 0; i < s->n_weights && item != NULL; i++, item = item->next) {
		FMT(name, "%s.weights[%zu].mount_location", r->path, i);
		add_place(&all, s->weights[i].mount_location, doc_get(item, "mount_location"),
		          name);
		if (s->weights[i].mount_location != NULL)
			all.item[all.n - 1].weights = true;
	}
	given = all.n;
	add_place(&all, WORKSPACE, NULL, "the place of the code");
	add_place(&all, SCRATCH, NULL, "the place of the scratch folder");
	if (s->python.wanted) {
		add_place(&all, SPEC_PYTHON_PLACE, NULL, "the place of the Python environment");
		all.item[all.n - 1].alone = true;
	}
	for (size_t i = 0; i < given; i++) {
		check_system(r, &all.item[i]);
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
		              "is deprecated, and cache_config is there too: leave it out");
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

		spec_fault_at(r, list, "checkpoints", "is empty, and enabled is true");
		spec_pop(r, mark);
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
		              "is there, but no base_image to fetch with it");
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

		spec_fault_at(r, commands, "start_commands", "is empty: there is nothing to run");
		spec_pop(r, mark);
	}
	if (spec_judges(r))
		check_places(r, job, s);
}
