/* facts.c - see facts.h. Versions are those of the packages that lie beside the Python that a job
 * calls: of its own environment, or of the folders of programs that its commands and PATH name. */
#include "run/facts.h"

#include "base/fs.h"
#include "run/mounts.h"

#include <glob.h>

#define FACTS_MAX 80
#define INSTALLED_MAX ((size_t)4 << 20)
#define VALUE_MAX 1000

static const char *const packages[] = {
	"torch",      "triton",         "pytorch-triton", "jax",
	"jaxlib",     "vllm",           "sglang",         "libneuronxla",
	"neuronx-cc", "optimum-neuron", "flash-attn",     "transformers"};
/* Variables whose values are part of what compilers make their keys of. */
static const char *const variables[] = {"XLA_FLAGS",
                                        "JAX_PLATFORMS",
                                        "NEURON_CC_FLAGS",
                                        "TORCHINDUCTOR_*",
                                        "TORCH_COMPILE*",
                                        "TRITON_*",
                                        "CUDA_HOME",
                                        "CXX",
                                        "TORCH_CUDA_ARCH_LIST",
                                        "VLLM_*"};

struct facts {
	struct arena *a;
	const struct confined *confined;
	struct harvest_fact *item;
	size_t n;
};

static void add(struct facts *f, const char *name, const char *value)
{
	if (value == NULL || value[0] == '\0' || strlen(value) > VALUE_MAX || f->n == FACTS_MAX)
		return;
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->item[i].name, name) == 0)
			return; /* the first one that is found is the nearest */
	f->item[f->n++] = (struct harvest_fact){arena_cstr(f->a, name), arena_cstr(f->a, value)};
}

/* Job files should name secrets, and do not always: what may be one stays out of a repository that
 * others read. */
static bool may_be_secret(const struct wire_env *env)
{
	static const char *const words[] = {"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"};
	const char *host = strstr(env->value, "://");

	for (size_t i = 0; i < COUNT(words); i++)
		if (strstr(env->name, words[i]) != NULL)
			return true;
	/* https://user:password@host */
	return env->secret || (host != NULL && strchr(host, '@') != NULL);
}

static bool is_like(const char *name, const char *pattern)
{
	size_t n = strlen(pattern);

	return pattern[n - 1] == '*' ? strncmp(name, pattern, n - 1) == 0
	                             : strcmp(name, pattern) == 0;
}

static void add_variables(struct facts *f, const struct facts_of *of)
{
	for (size_t i = 0; i < of->n_env; i++)
		for (size_t k = 0; k < COUNT(variables); k++)
			if (!may_be_secret(&of->env[i]) && is_like(of->env[i].name, variables[k]) &&
			    !mounts_is_below(of->env[i].value, of->place)) /* set by us */
				add(f, arena_printf(f->a, "env.%s", of->env[i].name),
				    of->env[i].value);
}

static void add_package(struct facts *f, struct str name, struct str version)
{
	for (size_t i = 0; i < COUNT(packages); i++) {
		const char *p = packages[i];
		size_t k = 0;

		while (k < name.n && p[k] != '\0' &&
		       (name.p[k] == p[k] || (name.p[k] == '_' && p[k] == '-')))
			k++;
		if (k == name.n && p[k] == '\0')
			add(f, p, arena_strz(f->a, version));
	}
}

/* "# Python 3.11.2", then NAME==VERSION a line: what Stoker writes of an environment. */
static void add_installed(struct facts *f, const char *dir)
{
	AUTO_BUF struct buf body = BUF_INIT(INSTALLED_MAX);
	struct err no = {0};
	struct str rest, line, name;

	if (fs_read(AT_FDCWD, arena_printf(f->a, "%s/installed.txt", dir), &body, &no) < 0) {
		err_clear(&no);
		return;
	}
	rest = buf_view(&body);
	while (str_cut(&rest, '\n', &line)) {
		if (str_starts(line, "# Python "))
			add(f, "python", arena_strz(f->a, str_skip(line, strlen("# Python "))));
		else if (str_cut(&line, '=', &name) && str_starts(line, "="))
			add_package(f, name, str_skip(line, 1));
	}
}

/* .../lib/python3.11/site-packages/torch-2.9.0+cpu.dist-info */
static void add_found(struct facts *f, const char *path)
{
	const char *name = strrchr(path, '/') + 1, *python = strstr(path, "/python");
	struct str rest = str_of(name), head;

	if (str_ends(rest, ".dist-info"))
		rest.n -= strlen(".dist-info");
	if (str_cut(&rest, '-', &head))
		add_package(f, head, rest);
	if (python != NULL && strncmp(python, "/python3.", strlen("/python3.")) == 0)
		add(f, "python",
		    arena_printf(f->a, "%.*s", (int)strcspn(python + strlen("/python"), "/"),
		                 python + strlen("/python")));
}

/* The packages of the Python in this folder of programs. */
static void add_beside(struct facts *f, struct str bin)
{
	static const char *const below[] = {"lib/python3*/site-packages",
	                                    "lib/python3*/dist-packages",
	                                    "lib/python3/dist-packages"};
	const char *slash, *folder = confined_path(f->confined, f->a, arena_strz(f->a, bin));

	if (access(arena_printf(f->a, "%s/python3", folder), F_OK) < 0 ||
	    (slash = strrchr(folder, '/')) == NULL)
		return;
	for (size_t i = 0; i < COUNT(below); i++) {
		glob_t found = {0};

		if (glob(arena_printf(f->a, "%.*s/%s/*.dist-info", (int)(slash - folder), folder,
		                      below[i]),
		         GLOB_NOSORT, NULL, &found) == 0)
			for (size_t k = 0; k < found.gl_pathc; k++)
				add_found(f, found.gl_pathv[k]);
		globfree(&found);
	}
}

/* "/opt/venv/bin/python train.py": the folder before the name. */
static void add_commands(struct facts *f, const struct job_spec *spec)
{
	for (size_t i = 0; i < spec->n_commands; i++) {
		struct str rest = str_of(spec->commands[i]), word;

		while (str_cut(&rest, ' ', &word)) {
			size_t n = word.n;

			while (n > 0 && word.p[n - 1] != '/')
				n--;
			if (n > 1 && word.p[0] == '/')
				add_beside(f, str_n(word.p, n - 1));
		}
	}
}

static void add_path(struct facts *f, const struct facts_of *of)
{
	for (size_t i = 0; i < of->n_env; i++) {
		struct str rest = str_of(of->env[i].value), folder;

		if (strcmp(of->env[i].name, "PATH") != 0)
			continue;
		while (str_cut(&rest, ':', &folder))
			if (str_starts(folder, "/"))
				add_beside(f, folder);
	}
}

void facts_read(struct arena *a, const struct facts_of *of, struct harvest_fact **out, size_t *n)
{
	struct facts f = {.a = a,
	                  .confined = of->confined,
	                  .item = ARENA_ARRAY(a, struct harvest_fact, FACTS_MAX)};

	add(&f, "gpu", of->launch->compile.gpu);
	add(&f, "cpu", of->launch->compile.cpu);
	add(&f, "image", of->image);
	add(&f, "place", of->place);
	add_variables(&f, of);
	if (of->python != NULL)
		add_installed(&f, of->python);
	if (of->image == NULL) { /* of an image nothing is seen from here */
		add_commands(&f, of->spec);
		add_path(&f, of);
	}
	*out = f.item;
	*n = f.n;
}
