/* caches.c - see caches.h. */
#include "cli/caches.h"

#include "base/cpu.h"
#include "base/fs.h"
#include "io/nvml.h"

#define NOTE "compile-cache.json" /* beside login.json */

/* ---- which repository ----------------------------------------------------------------------- */

static const char *note_path(struct cli *c)
{
	const char *login = remote_login_path(c->arena), *slash = strrchr(login, '/');

	return arena_printf(c->arena, "%.*s/%s", (int)(slash - login), login, NOTE);
}

int caches_note(struct cli *c, const char *id, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)65536);
	const char *path = note_path(c), *slash = strrchr(path, '/');
	struct js js;

	js_init(&js, &text);
	js_open(&js);
	js_kv(&js, "url", c->url);
	js_kv(&js, "repo", id);
	js_close(&js);
	buf_putc(&text, '\n');
	if (fs_mkdirs(AT_FDCWD, arena_strz(c->arena, str_n(path, (size_t)(slash - path))), 0700,
	              err) < 0)
		return -1;
	return fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err);
}

/* A note is for the server that it was made at. */
static const char *noted(struct cli *c)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)65536);
	struct err ignored = {0};
	const struct doc *d;

	if (fs_read(AT_FDCWD, note_path(c), &text, &ignored) < 0)
		return NULL;
	if (js_parse(c->arena, buf_view(&text), &d, &ignored) < 0 ||
	    !str_eq(doc_text(doc_get(d, "url")), c->url))
		return NULL;
	return doc_cstr(doc_get(d, "repo"), NULL);
}

/* The team of the token; of an administrator's the first one, which is older than all others. */
static int team_of(struct cli *c, const char **team, struct err *err)
{
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/api/whoami-v2") < 0)
		return -1;
	*team = doc_cstr(doc_get(doc_first(doc_get(reply, "orgs")), "name"), NULL);
	DOC_EACH (org, doc_get(reply, "orgs"))
		if (str_eq(doc_text(doc_get(org, "name")), "Default"))
			*team = "Default";
	if (*team == NULL)
		return err_set(err, ERR_USAGE, "your token is of no team: name a repository");
	return 0;
}

int caches_repo(struct cli *c, const char *word, const char **id, struct err *err)
{
	const char *team;

	if (remote_login(c, err) < 0)
		return -1;
	if (word == NULL)
		word = noted(c);
	if (word != NULL)
		return hubrepo_id(word, id, err);
	if (team_of(c, &team, err) < 0)
		return -1;
	*id = arena_printf(c->arena, "%s/%s", team, CACHES_NAME);
	return hub_id_ok(str_of(*id))
	               ? 0
	               : err_set(err, ERR_USAGE,
	                         "the name of team %s is none for a Hub: name a repository", team);
}

int caches_missing(struct cli *c, const char *id, struct err *err)
{
	const char *words =
		arena_printf(c->arena,
	                     "there is no repository %s; `stoker compile-cache push %s` "
	                     "makes it",
	                     id, id);

	if (!hubrepo_is_missing(err))
		return -1;
	err_clear(err);
	return err_set(err, ERR_HUB_REPO_NOT_FOUND, "%s", words);
}

/* ---- which kind and device ------------------------------------------------------------------ */

int caches_kind(const char *word, enum compile_kind *kind, struct err *err)
{
	AUTO_BUF struct buf names = BUF_INIT((size_t)1000);

	for (size_t i = 0; i < COMPILE_KIND_COUNT; i++) {
		if (strcmp(compile_cache_kinds[i].name, word) == 0) {
			*kind = (enum compile_kind)i;
			return 0;
		}
		buf_printf(&names, "%s%s", i > 0 ? ", " : "", compile_cache_kinds[i].name);
	}
	return err_set(err, ERR_USAGE, "--kind \"%.100s\": expected one of %s", word,
	               buf_cstr(&names));
}

/* As the server calls it in jobs of this machine. */
static void own_device(char out[COMPILE_DEVICE_CAP])
{
	struct nvml_gpu gpu[NVML_GPUS_MAX];
	AUTO_NVML struct nvml *n = NULL;
	char cpu[CPU_KIND_CAP], name[COMPILE_DEVICE_CAP * 2];
	struct err ignored = {0};
	size_t count = 0;

	if (nvml_open(&n, &ignored) < 0 || nvml_list(n, gpu, COUNT(gpu), &count, &ignored) < 0)
		count = 0;
	cpu_kind(cpu);
	FMT(name, "%s %s", count > 0 ? gpu[0].name : "cpu", cpu);
	compile_cache_device(str_of(name), out);
}

int caches_device(struct cli *c, const char **device, struct err *err)
{
	const char *word = opt_text(c, "device", NULL);
	char name[COMPILE_DEVICE_CAP];

	if (word != NULL)
		compile_cache_device(str_of(word), name);
	else
		own_device(name);
	if (name[0] == '\0')
		return err_set(err, ERR_USAGE, "--device \"%s\" has no letter or digit", word);
	*device = arena_cstr(c->arena, name);
	return 0;
}

bool caches_group_of(struct arena *a, const char *path, struct caches_group *out)
{
	struct compile_place p;
	struct str rest = str_of(path), folder;

	if (!compile_cache_place(a, path, &p))
		return false;
	(void)str_cut(&rest, '/', &folder);
	if (compile_cache_kinds[p.kind].by_device)
		*out = (struct caches_group){
			p.kind, arena_printf(a, "%.*s/%s", STR_ARG(folder), p.device), p.device};
	else
		*out = (struct caches_group){p.kind, arena_strz(a, folder),
		                             p.kind == COMPILE_NEURON ? arena_strz(a, folder) : ""};
	return true;
}

int caches_wanted(struct cli *c, const struct caches_group *g, bool *is, struct err *err)
{
	const char *word[COMPILE_KIND_COUNT * 2], *device = opt_text(c, "device", NULL);
	size_t n = opt_list(c, "kind", word, COUNT(word));
	enum compile_kind kind;

	*is = n == 0;
	for (size_t i = 0; i < n; i++) {
		if (caches_kind(word[i], &kind, err) < 0)
			return -1;
		*is = *is || kind == g->kind;
	}
	*is = *is && (device == NULL || strcmp(device, g->device) == 0);
	return 0;
}

/* ---- where on this machine ------------------------------------------------------------------ */

static const char *home(struct cli *c, const char *below)
{
	const char *dir = getenv("HOME");

	return dir != NULL && dir[0] == '/' ? arena_printf(c->arena, "%s/%s", dir, below) : NULL;
}

static const char *cache_home(struct cli *c, const char *below)
{
	const char *dir = getenv("XDG_CACHE_HOME");

	if (dir != NULL && dir[0] == '/')
		return arena_printf(c->arena, "%s/%s", dir, below);
	return home(c, arena_printf(c->arena, ".cache/%s", below));
}

/* NEURON_CC_FLAGS="... --cache_dir=DIR ..." goes before the variable. */
static const char *neuron_dir(struct cli *c)
{
	const char *flags = getenv("NEURON_CC_FLAGS"), *dir;

	dir = flags != NULL ? strstr(flags, "--cache_dir=") : NULL;
	if (dir == NULL)
		return "/var/tmp/neuron-compile-cache";
	dir += strlen("--cache_dir=");
	return arena_strz(c->arena, str_n(dir, strcspn(dir, " \t\"")));
}

static const char *inductor_dir(struct cli *c)
{
	const char *user = getenv("USER");

	return user != NULL ? arena_printf(c->arena, "/tmp/torchinductor_%s", user) : NULL;
}

static const char *triton_dir(struct cli *c)
{
	const char *dir = getenv("TRITON_HOME");

	return dir != NULL && dir[0] == '/' ? arena_printf(c->arena, "%s/.triton/cache", dir)
	                                    : home(c, ".triton/cache");
}

static const char *ccache_dir(struct cli *c)
{
	const char *old = home(c, ".ccache");

	return old != NULL && access(old, F_OK) == 0 ? old : cache_home(c, "ccache");
}

static const char *own_place(struct cli *c, enum compile_kind kind)
{
	const char *said = getenv(compile_cache_kinds[kind].variable);
	const char *flags = getenv("NEURON_CC_FLAGS");

	if (said != NULL && said[0] != '\0' &&
	    !(kind == COMPILE_NEURON && flags != NULL && strstr(flags, "--cache_dir=") != NULL))
		return said;
	switch (kind) {
	case COMPILE_NEURON:
		return neuron_dir(c);
	case COMPILE_INDUCTOR:
		return inductor_dir(c);
	case COMPILE_TRITON:
		return triton_dir(c);
	case COMPILE_VLLM:
		return cache_home(c, "vllm");
	case COMPILE_TORCH_EXTENSIONS:
		return cache_home(c, "torch_extensions");
	case COMPILE_CUDA:
		return home(c, ".nv/ComputeCache");
	case COMPILE_CCACHE:
		return ccache_dir(c);
	case COMPILE_JAX: /* keeps nothing unless it is told where */
	case COMPILE_KIND_COUNT:
		break;
	}
	return NULL;
}

/* KIND=DIR, or KIND alone for where the compiler itself keeps it. */
static int named_place(struct cli *c, const char *word, struct caches_place *out, struct err *err)
{
	const char *is = strchr(word, '=');
	const char *kind =
		is != NULL ? arena_strz(c->arena, str_n(word, (size_t)(is - word))) : word;

	out->named = true;
	if (caches_kind(kind, &out->kind, err) < 0)
		return -1;
	out->dir = is != NULL ? is + 1 : own_place(c, out->kind);
	if (out->dir == NULL || out->dir[0] == '\0')
		return err_set(err, ERR_USAGE, "--kind %s: where? --kind %s=DIR", word, kind);
	return 0;
}

int caches_places(struct cli *c, const char *option, struct caches_place out[COMPILE_KIND_COUNT],
                  size_t *n, struct err *err)
{
	const char *word[COMPILE_KIND_COUNT], *root = opt_text(c, option, NULL);
	size_t given = opt_list(c, "kind", word, COUNT(word));

	if (given > 0 && root != NULL)
		return err_set(err, ERR_USAGE, "--%s DIR or --kind KIND=DIR, not both", option);
	if (given > COUNT(word))
		return err_set(err, ERR_USAGE, "--kind: one of each");
	*n = 0;
	for (size_t i = 0; i < given; i++)
		if (named_place(c, word[i], &out[(*n)++], err) < 0)
			return -1;
	for (size_t i = 0; given == 0 && i < COMPILE_KIND_COUNT; i++) {
		enum compile_kind kind = (enum compile_kind)i;

		out[(*n)++] = (struct caches_place){
			.kind = kind,
			.dir = root != NULL ? arena_printf(c->arena, "%s/%s", root,
		                                           compile_cache_kinds[i].name)
		                            : own_place(c, kind),
			.named = root != NULL};
	}
	return 0;
}
