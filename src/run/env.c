/* env.c - one table of the platform's variables (spec of the platform, section 17). */
#include "run/env.h"

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct env_list {
	struct arena *a;
	struct wire_env *item;
	size_t n, cap;
};

static void put(struct env_list *e, const char *name, const char *value, bool secret)
{
	if (value == NULL)
		return;
	for (size_t i = 0; i < e->n; i++) {
		if (strcmp(e->item[i].name, name) == 0) {
			e->item[i].value = value;
			e->item[i].secret = secret;
			return;
		}
	}
	assert(e->n < e->cap);
	e->item[e->n++] = (struct wire_env){name, value, secret};
}

/* The environment's programs come first, whatever PATH is otherwise. */
static void put_first(struct env_list *e, const struct env_places *at)
{
	const char *path = at->image ? at->image_path : NULL;
	bool secret = false;

	for (size_t i = 0; i < e->n; i++) {
		if (strcmp(e->item[i].name, "PATH") != 0)
			continue;
		path = e->item[i].value;
		secret = e->item[i].secret;
	}
	put(e, "PATH",
	    arena_printf(e->a, "%s/bin:%s", at->python, path != NULL ? path : PATH_DEFAULT),
	    secret);
}

/* "GPU-a,GPU-b"; of a declared inventory, which has no ids, the places: "0,3". */
static const char *visible_gpus(struct arena *a, const struct wire_launch *l)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 10);

	for (size_t i = 0; i < l->n_gpus; i++) {
		buf_puts(&out, out.n > 0 ? "," : "");
		if (strncmp(l->gpus[i].uuid, "declared-", strlen("declared-")) == 0)
			buf_printf(&out, "%u", l->gpus[i].index);
		else
			buf_puts(&out, l->gpus[i].uuid);
	}
	return arena_cstr(a, buf_cstr(&out));
}

/* The checkpoint to go on from: a job that starts fresh has none. */
static const char *resume_from(struct arena *a, const struct wire_launch *l,
                               const struct env_places *at)
{
	for (size_t i = 0; i < l->n_load; i++) {
		const struct wire_load *load = &l->load[i];

		if (load->resume && strcmp(load->name, ".") == 0)
			return arena_printf(a, "%s/%s", at->load, load->dir);
		if (load->resume)
			return arena_printf(a, "%s/%s/%s", at->load, load->dir, load->name);
	}
	return NULL;
}

/* The job's cores, shared by its processes, one a GPU: what launchers start. */
static const char *threads_of(struct arena *a, const struct wire_launch *l,
                              const struct job_spec *spec)
{
	size_t n = (size_t)spec->cpu_count / MAX(l->n_gpus, (size_t)1);

	return arena_printf(a, "%zu", MAX(n, (size_t)1));
}

void env_make(struct arena *a, const struct wire_launch *l, const struct job_spec *spec,
              const struct env_places *at, struct wire_env **out, size_t *n)
{
	struct env_list e = {.a = a, .cap = 40 + l->n_env};
	const char *gpus = visible_gpus(a, l);
	bool cache = spec->cache.enabled;
	const char *threads = threads_of(a, l, spec);

	e.item = ARENA_ARRAY(a, struct wire_env, e.cap);
	/* clang-format off */
	const struct {
		const char *name, *value; /* NULL: not set */
	} rows[] = {
		{"PATH",                     at->image ? NULL : PATH_DEFAULT},
		{"VIRTUAL_ENV",              at->python},
		{"LANG",                     at->image ? NULL : "C.UTF-8"},
		{"HOME",                     at->home},
		{"USER",                     "root"},
		{"LOGNAME",                  "root"},
		{"PYTHONUNBUFFERED",         "1"},
		/* nproc and OpenMP follow it: else they count the host's cores */
		{"OMP_NUM_THREADS",          threads},
		{"BT_TRAINING_JOB_ID",       l->job_id},
		{"BT_TRAINING_JOB_NAME",     l->job_name},
		{"BT_TRAINING_PROJECT_ID",   l->project_id},
		{"BT_TRAINING_PROJECT_NAME", l->project_name},
		{"BT_NUM_GPUS",              arena_printf(a, "%zu", l->n_gpus)},
		{"BT_RETRY_COUNT",           arena_printf(a, "%" PRIu32, l->retry_count)},
		{"BT_WORKING_DIR",           spec->workdir ? at->workspace : NULL},
		{"BT_SCRATCH_DIR",           at->scratch},
		{"BT_CHECKPOINT_DIR",        spec->ckpt.enabled ? at->ckpt : NULL},
		{"BT_LOAD_CHECKPOINT_DIR",   spec->load.enabled ? at->load : NULL},
		{"STOKER_RESUME_FROM",       resume_from(a, l, at)},
		{"BT_PROJECT_CACHE_DIR",     cache ? at->project_cache : NULL},
		{"BT_TEAM_CACHE_DIR",        cache ? at->team_cache : NULL},
		/* Scripts keep files right below it: the folder above both would lose them. */
		{"BT_RW_CACHE_DIR",          cache ? at->project_cache : NULL},
		{"BT_GROUP_SIZE",            arena_printf(a, "%" PRIu32, l->node_count)},
		{"BT_LEADER_ADDR",           l->leader_addr},
		{"BT_NODE_RANK",             arena_printf(a, "%" PRIu32, l->node_rank)},
		{"CUDA_VISIBLE_DEVICES",     gpus}, /* empty: none of the host's */
		{"NVIDIA_VISIBLE_DEVICES",   gpus[0] == '\0' ? "void" : gpus},
	};
	/* clang-format on */
	for (size_t i = 0; i < COUNT(rows); i++)
		put(&e, rows[i].name, rows[i].value, false);
	for (size_t i = 0; i < l->n_env; i++)
		put(&e, l->env[i].name, l->env[i].value, l->env[i].secret);
	if (at->python != NULL)
		put_first(&e, at);
	*out = e.item;
	*n = e.n;
}

void env_quote(const char *text, struct buf *out)
{
	buf_putc(out, '\'');
	for (const char *p = text; *p != '\0'; p++) {
		if (*p == '\'')
			buf_puts(out, "'\\''");
		else
			buf_putc(out, *p);
	}
	buf_putc(out, '\'');
}

/* What is no name for a shell cannot be exported by one; spec.c refuses such names. */
static bool is_name(const char *name)
{
	for (const char *p = name; *p != '\0'; p++) {
		bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';

		if (!letter && (p == name || *p < '0' || *p > '9'))
			return false;
	}
	return name[0] != '\0';
}

void env_forget(struct buf *out)
{
	buf_puts(out, "unset LD_LIBRARY_PATH TMPDIR XDG_RUNTIME_DIR XDG_DATA_HOME XDG_CONFIG_HOME "
	              "DBUS_SESSION_BUS_ADDRESS LC_ALL ASAN_OPTIONS UBSAN_OPTIONS LSAN_OPTIONS "
	              "TSAN_OPTIONS STOKER_CRASH_AT CONTAINERS_CONF "
	              "CONTAINERS_REGISTRIES_CONF CONTAINERS_STORAGE_CONF AWS_ENDPOINT_URL_ECR\n");
}

void env_script(const struct wire_env *env, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_name(env[i].name))
			continue;
		buf_printf(out, "export %s=", env[i].name);
		env_quote(env[i].value, out);
		buf_putc(out, '\n');
	}
}
