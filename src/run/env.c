/* env.c - one table of the variables that a job receives; docs/environment.md is printed from it.
 */
#include "run/env.h"

#include "core/compile_cache.h"
#include "io/url.h"
#include "run/gpu.h"
#include "run/mounts.h"

extern char **environ;

#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct env_list {
	struct arena *a;
	struct wire_env *item;
	size_t n, cap;
};

/* NULL: it is not set. Each name is there once. */
static struct wire_env *item_of(const struct env_list *e, const char *name)
{
	for (size_t i = 0; i < e->n; i++)
		if (strcmp(e->item[i].name, name) == 0)
			return &e->item[i];
	return NULL;
}

static void put(struct env_list *e, const char *name, const char *value, bool secret)
{
	struct wire_env *is = item_of(e, name);

	if (value == NULL)
		return;
	if (is == NULL) {
		assert(e->n < e->cap);
		is = &e->item[e->n++];
	}
	*is = (struct wire_env){name, value, secret};
}

/* The environment's programs come first, whatever PATH is otherwise. */
static void put_first(struct env_list *e, const struct env_paths *at)
{
	const struct wire_env *is = item_of(e, "PATH");
	const char *path = is != NULL ? is->value : at->image ? at->image_path : NULL;

	put(e, "PATH",
	    arena_printf(e->a, "%s/bin:%s", at->python, path != NULL ? path : PATH_DEFAULT),
	    is != NULL && is->secret);
}

/* As the image sets it; NULL: it does not. */
static const char *of_image(struct arena *a, const struct env_paths *at, const char *wanted)
{
	struct str rest = at->image_env != NULL ? str_of(at->image_env) : (struct str){0}, line,
		   name;
	const char *value = NULL;

	while (str_cut(&rest, '\n', &line)) {
		if (str_cut(&line, '=', &name) && line.p != NULL && str_eq(name, wanted))
			value = arena_strz(a, line);
	}
	return value;
}

/* What the image or the job has there stays, behind it. */
static void put_driver(struct env_list *e, const struct env_paths *at)
{
	const struct wire_env *is = item_of(e, "LD_LIBRARY_PATH");
	const char *rest = is != NULL ? is->value : of_image(e->a, at, "LD_LIBRARY_PATH");

	put(e, "LD_LIBRARY_PATH",
	    rest == NULL || rest[0] == '\0' ? at->driver
	                                    : arena_printf(e->a, "%s:%s", at->driver, rest),
	    is != NULL && is->secret);
}

static const char *value_of(const struct env_list *e, const char *name)
{
	const struct wire_env *is = item_of(e, name);

	return is != NULL ? is->value : getenv(name); /* the proxies' are handed on */
}

static bool is_listed(const char *list, const char *host)
{
	struct str rest = str_of(list), one;

	while (str_cut(&rest, ',', &one))
		/* "*", which programs know only as the whole of the list, is for all hosts */
		if (str_eq(str_trim(one), host) || str_eq(str_trim(one), "*"))
			return true;
	return false;
}

/* Where a proxy is set it would be asked for the server, too, which it may not reach. */
static void put_no_proxy(struct env_list *e, const char *hub_url)
{
	static const char *const proxies[] = {"http_proxy",  "https_proxy", "HTTP_PROXY",
	                                      "HTTPS_PROXY", "all_proxy",   "ALL_PROXY"};
	static const char *const names[] = {"no_proxy", "NO_PROXY"};
	struct err no_url = {0};
	struct url u;
	bool any = false;

	for (size_t i = 0; i < COUNT(proxies); i++)
		any = any || value_of(e, proxies[i]) != NULL;
	if (!any || url_parse(e->a, str_of(hub_url), &u, &no_url) < 0)
		return;
	for (size_t i = 0; i < COUNT(names); i++) {
		const char *is = value_of(e, names[i]);

		if (is == NULL && value_of(e, names[1 - i]) != NULL)
			continue; /* programs that read one spelling read the other */
		if (is == NULL || is[0] == '\0')
			put(e, names[i], u.host, false);
		else if (!is_listed(is, u.host))
			put(e, names[i], arena_printf(e->a, "%s,%s", is, u.host), false);
	}
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
                               const struct env_paths *at)
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
                              const struct job_spec *spec, const struct env_paths *at)
{
	size_t cores = at->cores > 0 ? at->cores : (size_t)(spec->cpu_count + 0.999);
	size_t n = cores / MAX(l->n_gpus, (size_t)1);

	return arena_printf(a, "%zu", MAX(n, (size_t)1));
}

/* --- the table ------------------------------------------------------------------------------- */

/* The inputs of a variable's value. */
struct env_of {
	struct arena *a;
	const struct wire_launch *l;
	const struct job_spec *spec;
	const struct env_paths *at;
};

static const char *compile_at(const struct env_of *o, enum compile_kind kind)
{
	return o->at->compile == NULL ? NULL
	                              : arena_printf(o->a, "%s/%s", o->at->compile,
	                                             compile_cache_kinds[kind].name);
}

#define VALUE(name, expression)                                                                    \
	static const char *name(const struct env_of *o UNUSED)                                     \
	{                                                                                          \
		return (expression);                                                               \
	}

VALUE(host_path, PATH_DEFAULT)
VALUE(venv, o->at->python)
VALUE(utf8, "C.UTF-8")
VALUE(home, o->at->home)
VALUE(root, "root")
VALUE(one, "1")
VALUE(threads, threads_of(o->a, o->l, o->spec, o->at))
VALUE(job_id, o->l->job_id)
VALUE(job_name, o->l->job_name)
VALUE(project_id, o->l->project_id)
VALUE(project_name, o->l->project_name)
VALUE(n_gpus, arena_printf(o->a, "%zu", o->l->n_gpus))
VALUE(retry_count, arena_printf(o->a, "%" PRIu32, o->l->retry_count))
VALUE(workspace, o->at->workspace)
VALUE(scratch, o->at->scratch)
VALUE(ckpt, o->at->ckpt)
VALUE(load, o->at->load)
VALUE(resume, resume_from(o->a, o->l, o->at))
VALUE(project_cache, o->at->project_cache)
VALUE(hub_url, o->l->hub_url)
VALUE(hub_token, o->l->hub_token)
VALUE(hub_cache, o->at->hub)
VALUE(serve_port, o->at->serve_port)
VALUE(serve_key, o->l->serve_key)
VALUE(cache_repo, o->l->has_compile ? o->l->compile.repo : NULL)
VALUE(neuron, compile_at(o, COMPILE_NEURON))
VALUE(inductor, compile_at(o, COMPILE_INDUCTOR))
VALUE(triton, compile_at(o, COMPILE_TRITON))
VALUE(jax, compile_at(o, COMPILE_JAX))
VALUE(vllm, compile_at(o, COMPILE_VLLM))
VALUE(torch_extensions, compile_at(o, COMPILE_TORCH_EXTENSIONS))
VALUE(cuda_jit, compile_at(o, COMPILE_CUDA))
VALUE(ccache, compile_at(o, COMPILE_CCACHE))
VALUE(ca, o->at->ca)
VALUE(hf_home, arena_printf(o->a, "%s/huggingface", o->at->project_cache))
VALUE(xdg_cache, arena_printf(o->a, "%s/xdg", o->at->project_cache))
VALUE(team_cache, o->at->team_cache)
VALUE(group_size, arena_printf(o->a, "%" PRIu32, o->l->node_count))
VALUE(leader, o->l->leader_addr)
VALUE(node_rank, arena_printf(o->a, "%" PRIu32, o->l->node_rank))
VALUE(cuda, visible_gpus(o->a, o->l)) /* empty: none of the host's */
VALUE(nvidia, o->l->n_gpus > 0 ? visible_gpus(o->a, o->l) : "void")

/* When a variable is set. */
enum env_when {
	ENV_ALWAYS,
	ENV_HOST,   /* no image: the job runs on the machine's root */
	ENV_PYTHON, /* runtime.python */
	ENV_WORKDIR,
	ENV_CKPT,
	ENV_LOAD,
	ENV_RESUME,
	ENV_CACHE,
	ENV_HUB,       /* the job does not say itself which Hub it talks to */
	ENV_HUB_CACHE, /* weights with layout: hub */
	ENV_COMPILE,   /* runtime.compile_cache */
	ENV_SERVE,     /* runtime.serve */
	ENV_CA,        /* the server has a certificate of its own */
	ENV_DRIVER,    /* an image, with GPUs */
	ENV_LIBRARY,   /* not where an image may have baked in what a library downloads */
	ENV_INHERITED, /* what is set where the server runs; not by us */
	ENV_PROXY,     /* the same, also in an image: podman hands these on */
	ENV_SHELL,     /* by the shell that runs the commands */
};

static const char *const when_words[] = {
	[ENV_ALWAYS] = "always",
	[ENV_HOST] = "no `image`",
	[ENV_PYTHON] = "`runtime.python`",
	[ENV_WORKDIR] = "`enable_baseten_workdir`",
	[ENV_CKPT] = "`checkpointing_config.enabled`",
	[ENV_LOAD] = "`load_checkpoint_config.enabled`",
	[ENV_RESUME] = "a checkpoint to resume from",
	[ENV_CACHE] = "`cache_config.enabled`",
	[ENV_HUB] = "the job sets none of HF_ENDPOINT, HF_TOKEN, HUGGING_FACE_HUB_TOKEN",
	[ENV_HUB_CACHE] = "weights with `layout: hub`",
	[ENV_COMPILE] = "`compile_cache.enabled`",
	[ENV_SERVE] = "`runtime.serve`",
	[ENV_CA] = "HF_ENDPOINT is `https://`",
	[ENV_DRIVER] = "an `image`, and GPUs",
	[ENV_LIBRARY] = "`cache_config.enabled`, no `image`",
	[ENV_INHERITED] = "no `image`, and set for the server",
	[ENV_PROXY] = "set for the server",
	[ENV_SHELL] = "set by the shell",
};

/* clang-format off */
static const struct env_row {
	const char *name;
	enum env_when when;
	const char *(*value)(const struct env_of *o); /* NULL: not set by us */
	const char *holds, *example;
} rows[] = {
	{"BT_TRAINING_JOB_ID",       ENV_ALWAYS,  job_id,        "id of the job", "gvpql31"},
	{"BT_TRAINING_JOB_NAME",     ENV_ALWAYS,  job_name,      "name of the job", "lora"},
	{"BT_TRAINING_PROJECT_ID",   ENV_ALWAYS,  project_id,    "id of its project", "aghi527"},
	{"BT_TRAINING_PROJECT_NAME", ENV_ALWAYS,  project_name,  "name of its project", "finetunes"},
	{"BT_RETRY_COUNT",           ENV_ALWAYS,  retry_count,   "number of earlier attempts of the job; 0 in the first", "0"},
	{"BT_WORKING_DIR",           ENV_WORKDIR, workspace,     "folder with the job's code; commands start there", "/b10/workspace"},
	{"BT_SCRATCH_DIR",           ENV_ALWAYS,  scratch,       "folder on local disk, deleted when the job ends", "/mnt/bt-scratch"},
	{"BT_CHECKPOINT_DIR",        ENV_CKPT,    ckpt,          "folder whose checkpoints are uploaded: `checkpoint_path`", "/mnt/ckpts"},
	{"BT_LOAD_CHECKPOINT_DIR",   ENV_LOAD,    load,          "folder that holds the loaded checkpoints: `download_folder`", "/tmp/loaded_checkpoints"},
	{"STOKER_RESUME_FROM",       ENV_RESUME,  resume,        "path of the checkpoint to resume from: the job's own newest complete one, or the latest that `load_checkpoint_config` selects", "/tmp/loaded_checkpoints/rank-0/checkpoint-500"},
	{"BT_PROJECT_CACHE_DIR",     ENV_CACHE,   project_cache, "the project's cache, kept between jobs", "/root/.cache/user_artifacts"},
	{"BT_TEAM_CACHE_DIR",        ENV_CACHE,   team_cache,    "the team's cache, shared by its projects", "/root/.cache/team_artifacts"},
	/* Scripts keep files right below it: the folder above both would lose them. */
	{"BT_RW_CACHE_DIR",          ENV_CACHE,   project_cache, "same as BT_PROJECT_CACHE_DIR", "/root/.cache/user_artifacts"},
	{"HF_HOME",                  ENV_LIBRARY, hf_home,      "where Hugging Face libraries keep what they download", "/root/.cache/user_artifacts/huggingface"},
	{"HF_HUB_CACHE",             ENV_HUB_CACHE, hub_cache,  "where Hugging Face libraries find these weights, and keep what else they download; deleted when the job ends", SPEC_HUB_PLACE},
	{"HF_ENDPOINT",              ENV_HUB,     hub_url,       "this server, as a Hub: see docs/hub.md", "http://127.0.0.1:8000"},
	{"HF_TOKEN",                 ENV_HUB,     hub_token,     "the job's own token for it, good until the job ends: reads what the team may, pushes to `runtime.hub.push`; also for artifacts: see docs/compile-cache.md", "stokerjob_..."},
	{"STOKER_SERVE_PORT",        ENV_SERVE,   serve_port,    "port of 127.0.0.1 where the job's server is to listen", "38211"},
	{"STOKER_SERVE_KEY",         ENV_SERVE,   serve_key,     "what requests from Stoker come with, as `Authorization: Bearer`: the server refuses others, as any user of the machine can reach its port", "9f86d081884c7d65..."},
	{"CUSTOM_CACHE_REPO",        ENV_COMPILE, cache_repo,    "the repository of the compile cache, for optimum-neuron", "research/compile-cache"},
	{"NEURON_COMPILE_CACHE_URL", ENV_COMPILE, neuron,        "what AWS Neuron has compiled", SPEC_COMPILE_PLACE "/neuron"},
	{"TORCHINDUCTOR_CACHE_DIR",  ENV_COMPILE, inductor,      "what torch.compile has compiled", SPEC_COMPILE_PLACE "/inductor"},
	{"TRITON_CACHE_DIR",         ENV_COMPILE, triton,        "kernels of Triton", SPEC_COMPILE_PLACE "/triton"},
	{"JAX_COMPILATION_CACHE_DIR", ENV_COMPILE, jax,          "what JAX has compiled", SPEC_COMPILE_PLACE "/jax"},
	{"VLLM_CACHE_ROOT",          ENV_COMPILE, vllm,          "what vLLM has compiled", SPEC_COMPILE_PLACE "/vllm"},
	{"TORCH_EXTENSIONS_DIR",     ENV_COMPILE, torch_extensions, "extensions of PyTorch", SPEC_COMPILE_PLACE "/torch_extensions"},
	{"CUDA_CACHE_PATH",          ENV_COMPILE, cuda_jit,      "kernels that the CUDA driver has compiled", SPEC_COMPILE_PLACE "/cuda"},
	{"CCACHE_DIR",               ENV_COMPILE, ccache,        "what ccache keeps", SPEC_COMPILE_PLACE "/ccache"},
	{"SSL_CERT_FILE",            ENV_CA,      ca,            "certificates that programs trust: the machine's, and the server's own", MOUNT_CA},
	{"REQUESTS_CA_BUNDLE",       ENV_CA,      ca,            "same as SSL_CERT_FILE, for Python's requests", MOUNT_CA},
	{"XDG_CACHE_HOME",           ENV_LIBRARY, xdg_cache,    "where other libraries keep what they download", "/root/.cache/user_artifacts/xdg"},
	{"BT_GROUP_SIZE",            ENV_ALWAYS,  group_size,    "number of nodes: `node_count`", "1"},
	{"BT_NODE_RANK",             ENV_ALWAYS,  node_rank,     "rank of this node, from 0", "0"},
	{"BT_LEADER_ADDR",           ENV_ALWAYS,  leader,        "address of node 0, for `torchrun --master-addr`", "127.0.0.1"},
	{"BT_NUM_GPUS",              ENV_ALWAYS,  n_gpus,        "number of GPUs on this node", "0"},
	{"CUDA_VISIBLE_DEVICES",     ENV_ALWAYS,  cuda,          "the job's GPUs on this node; empty without GPUs", "GPU-8f6e8a5c-3a0b-7f53-9a51-2f7d1f8f2f11"},
	{"NVIDIA_VISIBLE_DEVICES",   ENV_ALWAYS,  nvidia,        "the same for NVIDIA's container tools; `void` without GPUs", "void"},
	{"LD_LIBRARY_PATH",          ENV_DRIVER,  NULL,          "the machine's GPU driver; what the image or the job has there comes behind it", GPU_LIBRARIES},
	{"PYTHONUNBUFFERED",         ENV_ALWAYS,  one,           "Python prints without delay", "1"},
	/* OpenMP and nproc follow it; where cores were chosen (cores.h), it is their number */
	{"OMP_NUM_THREADS",          ENV_ALWAYS,  threads,       "the job's cores, rounded up, divided by its GPUs on this node, at least 1", "1"},
	{"VIRTUAL_ENV",              ENV_PYTHON,  venv,          "the Python environment; its bin folder is first in PATH", "/opt/stoker/python"},
	{"HOME",                     ENV_ALWAYS,  home,          "an empty folder, deleted when the job ends", "/root"},
	{"USER",                     ENV_ALWAYS,  root,          "name of the user inside the job", "root"},
	{"LOGNAME",                  ENV_ALWAYS,  root,          "same as USER", "root"},
	{"PATH",                     ENV_HOST,    host_path,     "where commands are found; in an image, the image's own", PATH_DEFAULT},
	{"LANG",                     ENV_HOST,    utf8,          "locale; in an image, the image's own", "C.UTF-8"},
	{"TZ",                       ENV_INHERITED, NULL,        "time zone", "Europe/Berlin"},
	{"HTTP_PROXY",               ENV_PROXY,     NULL,        "proxy for http://", "http://proxy.example.org:3128"},
	{"HTTPS_PROXY",              ENV_PROXY,     NULL,        "proxy for https://", "http://proxy.example.org:3128"},
	{"NO_PROXY",                 ENV_PROXY,     NULL,        "hosts that are reached without a proxy; that of HF_ENDPOINT is added", "localhost,127.0.0.1"},
	{"http_proxy",               ENV_PROXY,     NULL,        "same as HTTP_PROXY", "http://proxy.example.org:3128"},
	{"https_proxy",              ENV_PROXY,     NULL,        "same as HTTPS_PROXY", "http://proxy.example.org:3128"},
	{"no_proxy",                 ENV_PROXY,     NULL,        "same as NO_PROXY", "localhost,127.0.0.1"},
	{"PWD",                      ENV_SHELL,   NULL,          "current folder", "/b10/workspace"},
	{"OLDPWD",                   ENV_SHELL,   NULL,          "the folder before it", "/"},
	{"SHLVL",                    ENV_SHELL,   NULL,          "depth of nested shells", "1"},
	{"_",                        ENV_SHELL,   NULL,          "path of the program", "/usr/bin/env"},
};
/* clang-format on */

/* What podman would set, were it podman that knew the image. */
static void put_image(struct env_list *e, const struct env_paths *at)
{
	struct str rest = at->image_env != NULL ? str_of(at->image_env) : (struct str){0}, line,
		   name;

	if (at->podman_sets)
		return;
	if (at->image_env != NULL && at->image_path == NULL)
		put(e, "PATH", PATH_DEFAULT, false);
	while (str_cut(&rest, '\n', &line)) {
		if (str_cut(&line, '=', &name) && line.p != NULL && name.n > 0)
			put(e, arena_strz(e->a, name), arena_strz(e->a, line), false);
	}
}

static size_t lines_of(const char *text)
{
	size_t n = 1;

	for (; text != NULL && *text != '\0'; text++)
		n += *text == '\n';
	return n + 1;
}

static bool applies(const struct env_row *row, const struct env_of *o)
{
	switch (row->when) {
	case ENV_HOST:
		return !o->at->image;
	case ENV_WORKDIR:
		return o->spec->workdir;
	case ENV_CKPT:
		return o->spec->ckpt.enabled;
	case ENV_LOAD:
		return o->spec->load.enabled;
	case ENV_CACHE:
		return o->spec->cache.enabled;
	case ENV_LIBRARY:
		return o->spec->cache.enabled && !o->at->image;
	case ENV_ALWAYS:
	case ENV_HUB:
	case ENV_HUB_CACHE:
	case ENV_COMPILE:
	case ENV_SERVE:
	case ENV_CA:
	case ENV_DRIVER:
	case ENV_PYTHON: /* their values are NULL otherwise */
	case ENV_RESUME:
	case ENV_INHERITED:
	case ENV_PROXY:
	case ENV_SHELL:
		break;
	}
	return true;
}

void env_make(struct arena *a, const struct wire_launch *l, const struct job_spec *spec,
              const struct env_paths *at, struct wire_env **out, size_t *n)
{
	struct env_list e = {.a = a, .cap = COUNT(rows) + l->n_env + lines_of(at->image_env)};
	const struct env_of of = {.a = a, .l = l, .spec = spec, .at = at};

	e.item = ARENA_ARRAY(a, struct wire_env, e.cap);
	put_image(&e, at);
	for (size_t i = 0; i < COUNT(rows); i++) {
		if (rows[i].value != NULL && applies(&rows[i], &of))
			put(&e, rows[i].name, rows[i].value(&of),
			    rows[i].value == hub_token || rows[i].value == serve_key);
	}
	for (size_t i = 0; i < l->n_env; i++)
		put(&e, l->env[i].name, l->env[i].value, l->env[i].secret);
	if (at->python != NULL)
		put_first(&e, at);
	if (at->driver != NULL)
		put_driver(&e, at);
	if (l->hub_url != NULL)
		put_no_proxy(&e, l->hub_url);
	*out = e.item;
	*n = e.n;
}

void env_reference(struct buf *out)
{
	buf_puts(out,
	         "# Environment variables of a job\n\nPrinted by `make docs` from the table that "
	         "sets them. A job's commands get these variables, then its "
	         "`environment_variables`, which may replace any of them. Nothing else of the "
	         "server's environment reaches a job. A job in an `image` also gets the image's "
	         "own variables, and `TERM`, `HOSTNAME` and `container` from podman.\n\n"
	         "| variable | set | holds | example |\n|---|---|---|---|\n");
	for (size_t i = 0; i < COUNT(rows); i++)
		buf_printf(out, "| `%s` | %s | %s | `%s` |\n", rows[i].name,
		           when_words[rows[i].when], rows[i].holds, rows[i].example);
	buf_puts(out, "\nUnder the `plain` sandbox, which cannot mount, folders are at other paths "
	              "than in the examples: use the variables.\n");
}

/* A shell can only export valid names; spec.c refuses others. */
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

static bool is_proxy(const char *entry)
{
	struct str name = {0}, text = str_of(entry);

	if (!str_cut(&text, '=', &name) || name.n < strlen("_proxy"))
		return false;
	return str_ieq(str_skip(name, name.n - strlen("_proxy")), "_proxy") &&
	       !str_ieq(name, "no_proxy");
}

/* A password may contain any character: cut at the last @. */
static const char *without_login(struct arena *a, const char *entry)
{
	const char *at = strrchr(entry, '@'), *value = strchr(entry, '=') + 1;
	const char *scheme = value;

	if (at == NULL || at < value)
		return entry;
	while ((*scheme >= 'a' && *scheme <= 'z') || (*scheme >= 'A' && *scheme <= 'Z') ||
	       (*scheme >= '0' && *scheme <= '9'))
		scheme++;
	if (strncmp(scheme, "://", 3) == 0)
		value = scheme + 3;
	return arena_printf(a, "%.*s%s", (int)(value - entry), entry, at + 1);
}

const char *const *env_of_sandbox(struct arena *a)
{
	const char **out;
	size_t n = 0;

	while (environ[n] != NULL)
		n++;
	out = ARENA_ARRAY(a, const char *, n + 1);
	for (size_t i = 0; i < n; i++)
		out[i] = is_proxy(environ[i]) ? without_login(a, environ[i]) : environ[i];
	return out;
}

void env_script(const struct wire_env *env, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_name(env[i].name))
			continue;
		buf_printf(out, "export %s=", env[i].name);
		buf_shell(out, env[i].value);
		buf_putc(out, '\n');
	}
}
