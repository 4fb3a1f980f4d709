/* compile.c - see compile.h. */
#include "server/control/compile.h"

#include "base/units.h"
#include "core/compile_cache.h"
#include "server/api/auth.h"
#include "server/api/ctx.h"
#include "server/control/jobs.h"
#include "server/data/repos.h"

const char *compile_repo(struct arena *a, const struct job_spec *spec, const char *user,
                         const char *team)
{
	const char *id;
	enum hub_type type;

	if (spec->compile.repo == NULL)
		return arena_printf(a, "%s/" SPEC_COMPILE_REPO, team);
	id = repo_typed(a, spec->compile.repo, user, &type);
	return id != NULL ? id : ""; /* none that there is */
}

bool compile_is_own(const char *repo, const char *user, const char *team)
{
	struct str rest = str_of(repo), owner;

	return str_cut(&rest, '/', &owner) && rest.n > 0 &&
	       (str_ieq(owner, user) || str_ieq(owner, team));
}

int compile_check(const struct ask *ask, const struct model_project *p, const struct job_spec *spec,
                  struct err *err)
{
	const char *user = ask->principal->name;
	struct principal in_team = *ask->principal;
	const struct ask as = {ask->app, &in_team, ask->a};
	enum repo_found how;
	struct model_repo r;
	const char *id;
	bool moved;

	if (!spec->compile.enabled)
		return 0;
	id = compile_repo(ask->a, spec, user, p->team_name);
	in_team.team_id = p->team_id;
	if (spec_own_hub(spec) != NULL)
		return err_set(err, ERR_INVALID,
		               "runtime.compile_cache: the job sets %s itself, so it does not talk "
		               "to this server's Hub, which has the cache: leave one of them out",
		               spec_own_hub(spec));
	if (!hub_id_ok(str_of(id)))
		return err_set(err, ERR_INVALID,
		               "runtime.compile_cache.repo: the team's name is none for a "
		               "repository: name one of your own");
	if (repo_look(&as, HUB_MODELS, id, &how, &r, &moved, err) < 0)
		return -1;
	if (how != REPO_NONE && moved) /* a job's token is good for the name in its file */
		return err_set(err, ERR_INVALID,
		               "runtime.compile_cache.repo: the repository %s is now %s/%s", id,
		               r.owner, r.name);
	if (how != REPO_NONE)
		return 0;
	if (!compile_is_own(id, user, p->team_name))
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "runtime.compile_cache.repo: there is no repository %s", id);
	return 0;
}

static void device_of(struct app *app, struct arena *a, const struct model_job *job,
                      struct wire_compile *out)
{
	char device[COMPILE_DEVICE_CAP];
	const char *gpu = NULL;

	out->cpu = app->inv.cpu;
	for (size_t i = 0; job->gpu_count > 0 && gpu == NULL && i < app->inv.n_gpus; i++)
		if (job->gpu_type == NULL || strcmp(app->inv.gpu[i].type, job->gpu_type) == 0)
			gpu = app->inv.gpu[i].name[0] != '\0' ? app->inv.gpu[i].name
			                                      : app->inv.gpu[i].type;
	out->gpu = gpu;
	compile_cache_device(
		str_of(arena_printf(a, "%s %s", gpu != NULL ? gpu : "cpu", app->inv.cpu)), device);
	out->device = arena_cstr(a, device);
}

/* The files of one kind that are of use on the device. */
struct some {
	size_t *at; /* in the listing */
	struct compile_file *file;
	size_t n;
};

/* What lies beside says what belongs together. A text that cannot be read says nothing. */
static struct str text_of(const struct hub_repo *files, struct arena *a, enum compile_kind kind,
                          size_t i, const char *path, size_t *room)
{
	const struct hub_file *f = &files->l.file[i];
	AUTO_BUF struct buf text = BUF_INIT(COMPILE_TEXT_MAX);
	struct err no = {0};

	if (!compile_cache_takes_text(kind, path, f->size, room) ||
	    hub_read_blob(files->app, &files->sha256[i], f->size, &text, &no) < 0) {
		err_clear(&no);
		return (struct str){0};
	}
	return arena_str(a, buf_view(&text));
}

/* Whether the file at `i` is of use on the device, and where it lies then. One whose bytes are lost
 * is compiled again. */
static bool is_of_use(const struct hub_repo *files, struct arena *a, const char *device, size_t i,
                      struct compile_place *at)
{
	const struct hub_file *f = &files->l.file[i];

	return files->is_here[i] && compile_cache_place(a, f->path, at) &&
	       (at->device[0] == '\0' || strcmp(at->device, device) == 0) &&
	       (f->size == 0 || repo_bytes_kept(files->app, &files->sha256[i], f->size));
}

static void sort_out(const struct hub_repo *files, struct arena *a, const char *device,
                     struct some some[COMPILE_KIND_COUNT])
{
	struct compile_place *at = ARENA_ARRAY(a, struct compile_place, files->l.n + 1);
	bool *used = ARENA_ARRAY(a, bool, files->l.n + 1);
	size_t room = COMPILE_TEXTS_MAX;

	for (size_t i = 0; i < files->l.n; i++) {
		used[i] = is_of_use(files, a, device, i, &at[i]);
		if (used[i])
			some[at[i].kind].n++;
	}
	for (size_t k = 0; k < COMPILE_KIND_COUNT; k++) {
		some[k].at = ARENA_ARRAY(a, size_t, some[k].n + 1);
		some[k].file = ARENA_ARRAY(a, struct compile_file, some[k].n + 1);
		some[k].n = 0;
	}
	for (size_t i = 0; i < files->l.n; i++) {
		struct some *to = &some[at[i].kind];

		if (!used[i])
			continue;
		to->at[to->n] = i;
		to->file[to->n++] = (struct compile_file){
			.path = at[i].path,
			.size = files->l.file[i].size,
			.text = text_of(files, a, at[i].kind, i, at[i].path, &room)};
	}
}

/* KIND/PATH of what is whole: somebody may have deleted half of an entry, or pushed it. */
static int list(const struct hub_repo *files, struct arena *a, const char *device,
                struct manifest *m, struct err *err)
{
	struct some some[COMPILE_KIND_COUNT] = {0};

	sort_out(files, a, device, some);
	for (size_t k = 0; k < COMPILE_KIND_COUNT; k++) {
		compile_cache_sift((enum compile_kind)k, some[k].file, some[k].n, 0);
		for (size_t i = 0; i < some[k].n; i++) {
			const struct compile_file *f = &some[k].file[i];
			const char *path =
				arena_printf(a, "%s/%s", compile_cache_kinds[k].name, f->path);

			if (f->take && manifest_add(m, str_of(path), f->size,
			                            &files->sha256[some[k].at[i]], err) < 0)
				return -1;
		}
	}
	return manifest_finish(m, err);
}

static int fill(struct app *app, struct arena *a, const struct model_repo *r,
                struct blob_pins *pins, struct wire_compile *out, struct err *err)
{
	char hex[HASH_HEX_CAP], is[UNITS_CAP], most[UNITS_CAP];
	struct hub_repo *files = NULL;
	struct manifest m;
	struct digest name;
	int rc;

	if (repo_commit_of(app, a, r, "main", &out->commit, err) < 0 ||
	    repo_open(app, r, out->commit, &files, err) < 0)
		return -1;
	manifest_init(&m, a);
	rc = list(files, a, out->device, &m, err);
	repo_close(app, files);
	if (rc < 0)
		return -1;
	if (m.bytes > COMPILE_FILL_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "it has %s of use on this machine, and at most %s are copied into a "
		               "job: `stoker compile-cache rm` deletes what is old",
		               units_show_bytes(m.bytes, is),
		               units_show_bytes(COMPILE_FILL_MAX, most));
	if (m.n == 0)
		return 0;
	if (hub_put_manifest(app, pins, &m, NULL, NULL, &name, err) < 0)
		return -1;
	digest_hex(&name, hex);
	out->manifest = arena_cstr(a, hex);
	out->bytes = m.bytes;
	out->files = m.n;
	return 0;
}

static int choose(struct app *app, struct arena *a, const struct model_job *job,
                  struct blob_pins *pins, struct wire_compile *out, struct err *err)
{
	struct principal who = {.magic = PRINCIPAL_MAGIC,
	                        .name = job->user,
	                        .team_id = job->team_id,
	                        .role = ROLE_VIEWER};
	const struct ask as = {app, &who, a};
	enum repo_found how;
	struct model_repo r;
	bool moved;

	if (auth_job_rights(app, a, job, &who.job, err) < 0 ||
	    repo_look(&as, HUB_MODELS, out->repo, &how, &r, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return out->push ? 0
		                 : err_set(err, ERR_HUB_REPO_NOT_FOUND,
		                           "there is no such repository");
	return fill(app, a, &r, pins, out, err);
}

int compile_choose(struct app *app, struct arena *a, const struct model_job *job,
                   const struct job_spec *spec, struct blob_pins *pins, struct resolved *out,
                   struct err *err)
{
	struct wire_compile c = {0};
	char bytes[UNITS_CAP];

	if (!spec->compile.enabled)
		return 0;
	c.repo = compile_repo(a, spec, job->user, job->team_name);
	c.push = compile_is_own(c.repo, job->user, job->team_name);
	device_of(app, a, job, &c);
	if (choose(app, a, job, pins, &c, err) < 0) {
		if (jobs_may_pass(err))
			return -1;
		app_log(app, job->id, "compile cache %s: not filled: %s", c.repo, err->msg);
		err_clear(err);
		c.manifest = NULL;
	} else if (c.manifest == NULL) {
		app_log(app, job->id, "compile cache %s: nothing for %s yet", c.repo, c.device);
	} else {
		app_log(app, job->id, "compile cache %s at %.12s: %" PRIu64 " file%s, %s, for %s",
		        c.repo, c.commit, c.files, c.files == 1 ? "" : "s",
		        units_show_bytes(c.bytes, bytes), c.device);
	}
	if (!c.push)
		app_log(app, job->id,
		        "compile cache %s is read only for this job, so what it compiles is not "
		        "kept",
		        c.repo);
	out->has_compile = true;
	out->compile = c;
	return 0;
}
