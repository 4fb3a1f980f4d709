/* runners.c - what runners say and ask: claim, heartbeat, orders, ready, events, exit. */
#include "base/log.h"
#include "base/units.h"
#include "io/url.h"
#include "server/data/cache.h"
#include "server/data/ckpt_union.h"
#include "server/data/ckpts.h"
#include "server/api/auth.h"
#include "server/api/ctx.h"
#include "server/api/exec.h"
#include "server/control/resolved.h"
#include "server/control/jobs.h"
#include "server/control/live.h"
#include "server/start/objects.h"
#include "server/api/secrets.h"
#include "server/control/serving.h"
#include "server/control/specs.h"

#define EVENTS_MAX 10000      /* of one runner's job, all attempts together */
#define CHECKPOINTS_MAX 10000 /* of a job, on each node */
#define HIDE_MAX 32
#define PEM_MAX ((size_t)1 << 20)

/* The runner's own row and its job. */
struct mine {
	struct model_attempt row;
	struct model_job job;
	struct model_attempt *all; /* every rank */
	size_t n;
};

static int find(const struct ask *ask, struct mine *m, struct err *err)
{
	struct app *app = ask->app;

	if (meta_attempt(app->meta, ask->a, ask->principal->attempt_id, &m->all, &m->n, err) < 0)
		return -1;
	for (size_t i = 0; i < m->n; i++) {
		if (m->all[i].node_rank == ask->principal->node_rank) {
			m->row = m->all[i];
			return meta_job_brief(app->meta, ask->a, m->row.job_id, &m->job, err);
		}
	}
	return err_missing(err, ERR_ATTEMPT_NOT_FOUND);
}

static int job_of_runner(const struct ask *ask, struct model_job *out, struct err *err)
{
	struct mine m = {0};

	if (find(ask, &m, err) < 0)
		return -1;
	*out = m.job;
	return 0;
}

static int open_secret(struct app *app, struct arena *a, const struct mine *m, const char *name,
                       const char **value, struct err *err)
{
	struct buf plain = BUF_INIT(SEAL_VALUE_MAX);
	int r = secret_open(app, m->job.team_id, name, &plain, err);

	if (r == 0)
		*value = arena_strz(a, buf_view(&plain));
	seal_wipe_buf(&plain);
	return r;
}

static int fill_secrets(struct app *app, struct arena *a, const struct mine *m,
                        const struct job_spec *spec, struct wire_launch *out, struct err *err)
{
	out->env = ARENA_ARRAY(a, struct wire_env, spec->n_env + 1);
	for (size_t i = 0; i < spec->n_env; i++) {
		const struct spec_env *e = &spec->env[i];

		out->env[i] = (struct wire_env){e->name, e->value, e->secret != NULL};
		if (e->secret != NULL &&
		    open_secret(app, a, m, e->secret, &out->env[i].value, err) < 0)
			return -1;
	}
	out->n_env = spec->n_env;
	if (spec->registry_secret != NULL &&
	    open_secret(app, a, m, spec->registry_secret, &out->registry_secret, err) < 0)
		return -1;
	if (spec->registry_secret2 != NULL &&
	    open_secret(app, a, m, spec->registry_secret2, &out->registry_secret2, err) < 0)
		return -1;
	return 0;
}

static void fill_gpus(struct app *app, struct arena *a, const struct mine *m,
                      struct wire_launch *out)
{
	out->gpus = ARENA_ARRAY(a, struct wire_gpu, INVENTORY_GPUS_MAX);
	for (uint32_t i = 0; i < app->inv.n_gpus; i++) {
		if ((m->row.gpus & (UINT64_C(1) << i)) == 0)
			continue;
		out->gpus[out->n_gpus++] = (struct wire_gpu){i, app->inv.gpu[i].uuid};
	}
}

/* The part of a checkpoint that this rank gets: its own, else the lowest there is. */
static uint32_t rank_for(const struct resolved_load *l, uint32_t rank)
{
	uint32_t best = l->n_ranks > 0 ? l->ranks[0] : 0;

	for (size_t i = 0; i < l->n_ranks; i++) {
		if (l->ranks[i] == rank)
			return rank;
		best = MIN(best, l->ranks[i]);
	}
	return best;
}

static int is_of_several(struct app *app, struct arena *a, const struct wire_load *load, bool *yes,
                         struct err *err)
{
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	*yes = false;
	if (meta_checkpoints(app->meta, a, load->job_id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && !*yes; i++)
		*yes = rows[i].is_part && strcmp(rows[i].name, load->name) == 0;
	return 0;
}

/* The part as its checkpoint was complete with it. Without a manifest of all nodes that names it,
 * the runner refuses to load it, by name. */
static int fill_part(struct app *app, struct arena *a, struct wire_load *load, struct err *err)
{
	const struct ckpt_whole_part *part;
	struct ckpt_whole whole = {0};
	char hex[HASH_HEX_CAP];
	bool found = false;

	if (is_of_several(app, a, load, &found, err) < 0)
		return -1;
	if (!found)
		return 0;
	load->files_sha256 = WIRE_NO_PART;
	if (ckpt_union_read(app, a, load->prefix, load->name, &whole, &found, err) < 0) {
		if (err->code != ERR_INVALID && err->code != ERR_UNSUPPORTED)
			return -1;
		log_error("checkpoint %s of job %s: %s", load->name, load->job_id, err->msg);
		err_clear(err);
		return 0;
	}
	part = ckpt_whole_part(&whole, load->rank_from);
	if (part == NULL)
		return 0;
	digest_hex(&part->sha256, hex);
	load->files_sha256 = arena_cstr(a, hex);
	return 0;
}

/* A retry goes on from the job's own checkpoint, which takes the place of the ones that were chosen
 * as the latest before; what the job names, it gets again. */
static int fill_loads(struct app *app, struct arena *a, const struct mine *m,
                      const struct resolved *f, struct wire_launch *out, struct err *err)
{
	out->load = ARENA_ARRAY(a, struct wire_load, f->n_load + 1);
	for (size_t i = 0; i < f->n_load + 1; i++) {
		const struct resolved_load *l = resolved_load(f, i);

		if (l == NULL || (i > 0 && f->has_resume && l->latest))
			continue;
		out->load[out->n_load] = (struct wire_load){
			.name = l->name,
			.job_id = l->job_id,
			.prefix = ckpt_prefix(a, l->project_id, l->job_id),
			.rank_from = rank_for(l, m->row.node_rank),
			.dir = arena_printf(a, "rank-%u", m->row.node_rank),
			.resume = out->n_load == 0,
		};
		if (fill_part(app, a, &out->load[out->n_load], err) < 0)
			return err_wrap(err, "checkpoint %s of job %s", l->name, l->job_id);
		out->n_load++;
	}
	return 0;
}

static int fill_resolved(struct app *app, struct arena *a, const struct mine *m,
                         struct wire_launch *out, struct err *err)
{
	struct resolved f = {0};

	if (resolved_read(a, m->job.resolved_json, &f, err) < 0)
		return -1;
	out->weights = f.weights;
	out->n_weights = f.n_weights;
	out->code = f.code;
	out->n_code = f.n_code;
	out->has_compile = f.has_compile;
	out->compile = f.compile;
	out->has_image = f.has_image;
	out->image = f.image;
	return fill_loads(app, a, m, &f, out, err);
}

static void hide(struct arena *a, struct wire_launch *out, const char *path)
{
	AUTO_FREE char *real = path == NULL ? NULL : realpath(path, NULL);

	if (real == NULL || out->n_hide == HIDE_MAX)
		return;
	out->hide[out->n_hide++] = arena_cstr(a, real);
}

/* The folder of --objects and the files of --database, which need not be in our data folder: all
 * jobs' own. */
static void hide_state(struct app *app, struct arena *a, struct wire_launch *out)
{
	static const char *const files[] = {"", "-wal", "-shm", "-journal"};
	const char *url = app->set.database != NULL ? app->set.database : "";
	const char *file = settings_sqlite_file(url);

	hide(a, out, objects_folder(app));
	for (size_t i = 0; file != NULL && i < COUNT(files); i++)
		hide(a, out, arena_printf(a, "%s%s", file, files[i]));
}

/* What libpq reads of the database's secrets, but for the files of the home. */
static void hide_database(struct app *app, struct arena *a, struct wire_launch *out)
{
	static const char *const by_env[] = {"PGPASSFILE", "PGSSLKEY", "PGSERVICEFILE"};
	const char *query = app->set.database == NULL ? NULL : strchr(app->set.database, '?');
	struct str rest = str_of(query == NULL ? "" : query + 1), name, value, path;
	struct err no = {0};

	for (size_t i = 0; i < COUNT(by_env); i++)
		hide(a, out, getenv(by_env[i]));
	while (url_query_next(&rest, &name, &value)) {
		if (!str_eq(name, "passfile") && !str_eq(name, "sslkey"))
			continue;
		if (url_decode(a, value, &path, &no) == 0)
			hide(a, out, arena_strz(a, path));
		err_clear(&no);
	}
}

/* Paths that jobs must not see, though they may be the user's who runs the server: our data, the
 * state that is elsewhere, that user's login, and the files that we read secrets from. */
static void fill_hide(struct app *app, struct arena *a, struct wire_launch *out)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	out->hide = ARENA_ARRAY(a, const char *, HIDE_MAX);
	out->hide[out->n_hide++] = app->data;
	if (config != NULL && config[0] == '/')
		out->hide[out->n_hide++] = arena_printf(a, "%s/stoker", config);
	else if (home != NULL && home[0] == '/')
		out->hide[out->n_hide++] = arena_printf(a, "%s/.config/stoker", home);
	hide(a, out, app->set.tls_key);
	hide(a, out, app->set.objects_credentials);
	hide(a, out, app->set.config);
	hide_state(app, a, out);
	hide_database(app, a, out);
}

static int fill_paths(struct app *app, struct arena *a, const struct mine *m,
                      const struct job_spec *spec, struct wire_launch *out, struct err *err)
{
	struct model_project p = {0};

	out->mirror = objects_passed(app, a);
	out->node_dir = app_path(app, a, "node");
	out->node_budget_bytes = app->set.node_cache_bytes;
	out->scratch_bytes = app->set.scratch_bytes;
	out->scratch_files = (uint64_t)app->set.scratch_files;
	out->objstore = objects_of_runners(app, a);
	if (spec->cache.enabled) {
		if (meta_project(app->meta, a, m->job.project_id, &p, err) < 0)
			return -1;
		out->cache_project_dir =
			app_path(app, a, arena_printf(a, "cache/projects/%s", p.id));
		out->cache_team_dir =
			app_path(app, a, arena_printf(a, "cache/teams/%s", m->job.team_id));
		out->cache_quota_bytes = p.cache_quota_bytes;
	}
	if (spec->ckpt.enabled)
		out->ckpt_prefix = ckpt_prefix(a, m->job.project_id, m->job.id);
	out->images = app->set.images;
	out->sandbox = app->sandbox_kind;
	out->ids_mode = app->ids_mode;
	out->ids_pool = app->set.job_ids;
	out->ids_dir = app_path(app, a, "ids");
	out->share = app->set.share.item;
	out->n_share = app->set.share.n;
	fill_hide(app, a, out);
	return 0;
}

/* The certificates of a file, which may have their private key, too: jobs get what this returns. */
static const char *certificates(struct arena *a, struct str pem)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----",
			  end[] = "-----END CERTIFICATE-----";
	AUTO_BUF struct buf out = BUF_INIT(PEM_MAX + 1);
	const char *from, *to;

	while ((from = memmem(pem.p, pem.n, begin, strlen(begin))) != NULL) {
		pem = str_skip(pem, (size_t)(from - pem.p));
		to = memmem(pem.p, pem.n, end, strlen(end));
		if (to == NULL)
			break;
		buf_add(&out, from, (size_t)(to - from) + strlen(end));
		buf_putc(&out, '\n');
		pem = str_skip(pem, (size_t)(to - from) + strlen(end));
	}
	return arena_strz(a, buf_view(&out));
}

static int fill_hub(struct app *app, struct arena *a, const struct mine *m, struct wire_launch *out,
                    struct err *err)
{
	struct buf pem = BUF_INIT(PEM_MAX);
	int rc;

	out->hub_url = app->local_url;
	out->hub_token = auth_job_token(app, a, m->row.id);
	if (app->set.tls_cert == NULL)
		return 0;
	rc = fs_read(AT_FDCWD, app->set.tls_cert, &pem, err);
	if (rc == 0)
		out->hub_ca = certificates(a, buf_view(&pem));
	seal_wipe_buf(&pem);
	return rc;
}

/* *stage is what an error's message begins with. */
static int fill_launch(struct app *app, struct arena *a, const struct mine *m,
                       struct wire_launch *out, const char **stage, struct err *err)
{
	struct job_spec spec = {0};

	*stage = "specification";
	if (spec_read_stored(a, m->job.spec_json, &spec, err) < 0)
		return -1;
	*stage = "secrets";
	if (fill_secrets(app, a, m, &spec, out, err) < 0)
		return -1;
	if (spec.serve.name != NULL)
		out->serve_key = serving_key(app, a, m->row.id);
	if (spec_own_hub(&spec) == NULL && fill_hub(app, a, m, out, err) < 0)
		return -1;
	*stage = "inputs";
	if (fill_resolved(app, a, m, out, err) < 0)
		return -1;
	*stage = "folders";
	if (fill_paths(app, a, m, &spec, out, err) < 0)
		return -1;
	fill_gpus(app, a, m, out);
	return 0;
}

/* Nothing has run yet, and no later claim can do better: the job ends, its other nodes with it.
 * The runner is told to ask again. It finds its attempt over, or, if the end could not be stored,
 * comes back here. */
static void claim_failed(struct app *app, const struct mine *m, const char *stage, struct err *err)
{
	if (m->job.core.state != JOB_DEPLOYING || !app_same(m->job.attempt_id, m->row.id))
		return; /* it moved on since the claim */
	log_warn("claim: job=%s attempt=%s rank=%u %s: %s", m->job.id, m->row.id, m->row.node_rank,
	         stage, err->msg);
	if (jobs_may_pass(err))
		return;
	jobs_deploy_failed(app, &m->job, stage, err);
	err_become(err, ERR_UNAVAILABLE);
}

/* The program was replaced under a server that runs on, or a node has one of its own. */
static int check_version(const struct ask *ask, int64_t version, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};

	if (version == WIRE_VERSION)
		return 0;
	if (find(ask, &m, err) < 0)
		return -1;
	err_set(err, ERR_RUNNER_VERSION,
	        "the program %s on %s is of %s Stoker (it speaks version %" PRId64
	        " of the runner's protocol, this server %d). Install version " STOKER_VERSION
	        " there, or restart the server with that program",
	        app->program, m.row.node, version < WIRE_VERSION ? "an older" : "a newer", version,
	        WIRE_VERSION);
	claim_failed(app, &m, "runner", err);
	return -1;
}

static int claim(const struct ask *ask, const char *nonce, struct wire_launch *out, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct wire_launch w = {0};
	const char *stage = NULL;

	if (nonce == NULL || nonce[0] == '\0' || strlen(nonce) > 100)
		return err_set(err, ERR_INVALID, "nonce: 1 to 100 characters");
	if (find(ask, &m, err) < 0)
		return -1;
	if (!app_is_here(app, m.row.node_id, m.row.node))
		return err_set(err, ERR_CONFLICT,
		               "it was launched by a server on another machine, which leads no "
		               "more: this one has nothing to start it with");
	app_crash_at("claim:before");
	if (meta_attempt_claim(app->meta, ask->principal->attempt_id, ask->principal->node_rank,
	                       nonce, clock_wall_ms(), err) < 0)
		return -1;
	app_crash_at("claim:after");
	/* Read for this answer, which goes on to name what is in it. */
	if (find(ask, &m, err) < 0 || meta_job(app->meta, ask->a, m.job.id, &m.job, err) < 0)
		return -1;
	if (fill_launch(app, ask->a, &m, &w, &stage, err) < 0) {
		claim_failed(app, &m, stage, err);
		return -1;
	}
	w.attempt_id = m.row.id;
	w.job_id = m.job.id;
	w.job_name = m.job.name;
	w.project_id = m.job.project_id;
	w.project_name = m.job.project_name;
	w.team_id = m.job.team_id;
	w.node_rank = m.row.node_rank;
	w.node_count = m.job.node_count;
	w.retry_count = m.row.number;
	w.leader_addr = "127.0.0.1"; /* the local cluster is this machine */
	w.spec_json = m.job.spec_json;
	*out = w;
	log_info("claimed: job=%s attempt=%s rank=%u", m.job.id, m.row.id, m.row.node_rank);
	return 0;
}

/* Is the attempt still the one whose user code may run? */
static bool is_over(const struct mine *m)
{
	return !job_state_is_placed(m->job.core.state) || !app_same(m->job.attempt_id, m->row.id) ||
	       m->row.ended_ms != 0;
}

/* A job that ends takes no requests, though its runner may not know yet. */
static int hear_serving(const struct ask *ask, const struct mine *m,
                        const struct wire_heartbeat *hb, struct err *err)
{
	struct app *app = ask->app;
	struct mine now = {0};

	if (!app_is_here(app, m->row.node_id, m->row.node)) /* the port is one of that machine */
		return 0;
	if (!serving_heard(app, &m->job, m->row.id, hb->serve_port,
	                   hb->serves && !job_state_is_stopping(m->job.core.state)))
		return 0;
	/* its end may have come since it was read: nobody would take it out of the list again */
	if (find(ask, &now, err) < 0) {
		serving_ended(app, m->row.id); /* its next heartbeat says it again */
		return -1;
	}
	if (is_over(&now))
		serving_ended(app, m->row.id);
	return 0;
}

static int take_heartbeat(const struct ask *ask, const struct wire_heartbeat *hb, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct live_progress p = {
		.stage = wire_stage_word(hb->stage),
		.words = hb->note,
		.done = hb->done_bytes,
		.total = hb->total_bytes,
		.rate = hb->rate_bytes_s,
		.now_ms = clock_wall_ms(),
		.heartbeat = true,
	};

	if (find(ask, &m, err) < 0)
		return -1;
	if (is_over(&m))
		return 0; /* its orders say so */
	if (live_beat(app, m.row.id, m.row.node_rank, hb->idle, p.now_ms))
		app_notify(app, CHANNEL_DESIRED, m.row.id);
	/* Rank 0 speaks for the job; the others' own view is in their log and metrics. */
	if (m.row.node_rank != 0)
		return 0;
	if (hear_serving(ask, &m, hb, err) < 0)
		return -1;
	if (hb->has_sample && hb->sample.cache_quota > 0)
		cache_watch(app, m.job.id, hb->sample.cache_bytes, hb->sample.cache_quota);
	if (live_progress(app, m.job.id, &p))
		app_notify(app, CHANNEL_JOB, m.job.id);
	return 0;
}

/* It was told to stop, and answers requests still: engines break these off when they get SIGTERM.
 */
static bool still_answers(struct app *app, const struct model_job *job)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err unread = {0};
	int64_t retired_ms;

	return serving_in_flight(app, job->id, &retired_ms) > 0 &&
	       specs_get(app, job->id, &hold, &unread) == 0 &&
	       retired_ms < (int64_t)hold.spec->grace_s * 1000;
}

static int show_desired(const struct ask *ask, struct wire_desired *out, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	uint64_t generation = 0;
	bool stopping, idle = true;

	*out = (struct wire_desired){0};
	if (find(ask, &m, err) < 0)
		return -1;
	stopping = job_state_is_stopping(m.job.core.state);
	out->go = m.job.core.state == JOB_RUNNING && !is_over(&m);
	out->stop = stopping || is_over(&m);
	out->now = is_over(&m) && m.row.ended_ms == 0;
	live_show_nodes(app, m.all, m.n);
	if (stopping && !out->now && meta_job_stop_now(app->meta, m.job.id, &out->now, err) < 0)
		return -1;
	if (stopping && !out->now && !is_over(&m))
		out->stop = !still_answers(app, &m.job);
	for (size_t i = 0; i < m.n; i++) {
		out->stop = out->stop || jobs_bad_end(m.all[i].exit_json);
		idle = idle && m.all[i].idle;
	}
	out->idle = idle && out->go;
	exec_desired(app, ask->a, m.row.id, m.row.node_rank, out, &generation);
	/* Changes exactly when an order does. */
	out->seq = generation * 16 + (out->go ? 1 : 0) + (out->stop ? 2 : 0) + (out->now ? 4 : 0) +
	           (out->idle ? 8 : 0);
	return 0;
}

static int take_ready(const struct ask *ask, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct meta_step s = {.event = JOB_EV_READY, .actor = "runner", .message = "running"};
	bool all = false;

	if (find(ask, &m, err) < 0 ||
	    meta_attempt_ready(app->meta, m.row.id, m.row.node_rank, &all, err) < 0)
		return -1;
	if (!all)
		return 0;
	s.job_id = m.job.id;
	s.attempt_id = m.row.id;
	s.now_ms = s.started_ms = clock_wall_ms(); /* the exit record will say it more exactly */
	app_crash_at("ready:before");
	if (jobs_step(app, &s, NULL, NULL, err) < 0) {
		if (err->code != ERR_CONFLICT) /* stopped, or it runs already: the orders say so */
			return -1;
		err_clear(err);
	}
	return 0;
}

/* The first node says what the job's image is; all get the same answer. */
static int keep_image(struct app *app, struct arena *a, const struct mine *m,
                      const struct wire_image *said, struct wire_image *out, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	const char *name = said->reference != NULL ? said->reference : said->id;
	struct model_job job = {0};
	struct resolved f = {0};

	if (meta_job(app->meta, a, m->job.id, &job, err) < 0 ||
	    resolved_read(a, job.resolved_json, &f, err) < 0)
		return -1;
	if (f.has_image) {
		*out = f.image;
		return 0;
	}
	f.has_image = true;
	f.image = *said;
	resolved_write(&f, &json);
	if (buf_check(&json, "frozen record", err) < 0 ||
	    meta_job_resolved(app->meta, job.id, m->row.id, buf_cstr(&json), err) < 0)
		return -1;
	*out = *said;
	app_log(app, job.id, "image: %s", name);
	app_event(app, job.id, "image", "runner", "%s", name);
	return 0;
}

static int take_image(const struct ask *ask, const struct wire_image *said, struct wire_image *out,
                      struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct lock *step;
	int r;

	if (find(ask, &m, err) < 0)
		return -1;
	if (is_over(&m))
		return err_set(err, ERR_CONFLICT, "attempt %s is over", m.row.id);
	step = app_stripe(app->steps, m.job.id); /* nodes say it at the same time */
	lock_take(step);
	r = keep_image(app, ask->a, &m, said, out, err);
	lock_give(step);
	return r;
}

static int take_event(const struct ask *ask, const char *kind, const char *message, struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct model_event e = {.ms = clock_wall_ms(), .kind = kind, .message = message};
	uint64_t told = 0;

	if (find(ask, &m, err) < 0)
		return -1;
	if (kind == NULL || kind[0] == '\0' || strlen(kind) > 40 || message == NULL ||
	    strlen(message) > APP_LINE_MAX)
		return err_set(err, ERR_INVALID,
		               "an event has a kind and a message of bounded length");
	e.actor = m.n > 1 ? arena_printf(ask->a, "runner %u", m.row.node_rank) : "runner";
	if (meta_events_count(app->meta, m.job.id, e.actor, &told, err) < 0)
		return -1;
	if (told >= EVENTS_MAX)
		return err_set(err, ERR_QUOTA, "a runner tells of %d events of a job at most",
		               EVENTS_MAX);
	if (meta_event_add(app->meta, m.job.id, &e, err) < 0)
		return -1;
	app_notify(app, CHANNEL_JOB, m.job.id);
	return 0;
}

/* The sum over all nodes. */
static uint64_t bytes_of(const struct model_checkpoint *rows, size_t n, const char *name)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += strcmp(rows[i].name, name) == 0 ? rows[i].bytes : 0;
	return bytes;
}

/* What it says is kept, and read, listed and deleted by later: so it names its own objects, and
 * nothing else. */
static int check_reported(const struct ask *ask, const struct model_checkpoint *c, struct err *err)
{
	const char *fault = strcmp(c->name, ".") == 0 ? NULL : ckpt_path_fault(str_of(c->name));
	const char *prefix = ckpt_prefix(ask->a, c->project_id, c->job_id);

	if (fault != NULL)
		return err_set(err, ERR_INVALID, "name: %s", fault);
	if (c->manifest_key != NULL &&
	    strcmp(c->manifest_key, ckpt_manifest_key(ask->a, prefix, c->rank, c->name)) != 0)
		return err_set(err, ERR_DENIED, "manifest_key: not that of this checkpoint");
	return 0;
}

/* A trainer keeps some checkpoints, and keep_last bounds them; a runner that was taken over makes
 * up names. */
static int check_number(const struct ask *ask, const struct model_checkpoint *c, struct err *err)
{
	uint64_t others = 0;

	if (meta_checkpoints_beside(ask->app->meta, c, &others, err) < 0)
		return -1;
	return others < CHECKPOINTS_MAX
	               ? 0
	               : err_set(err, ERR_QUOTA, "a job has %d checkpoints at most: delete some",
	                         CHECKPOINTS_MAX);
}

static int take_checkpoint(const struct ask *ask, const struct model_checkpoint *row,
                           struct err *err)
{
	struct app *app = ask->app;
	struct mine m = {0};
	struct model_checkpoint c = *row, *rows = NULL;
	struct specs_hold hold AUTO_SPEC = {0};
	char bytes[UNITS_CAP];
	size_t n = 0;
	bool all = true, news = false;

	if (find(ask, &m, err) < 0)
		return -1;
	c.job_id = m.job.id;
	c.project_id = m.job.project_id;
	c.rank = m.row.node_rank;
	if (check_reported(ask, &c, err) < 0 || check_number(ask, &c, err) < 0 ||
	    ckpts_put(app, ask->a, &m.job, &c, &news, err) < 0 ||
	    meta_checkpoints(app->meta, ask->a, m.job.id, &rows, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		all = all && rows[i].state != CKPT_SYNCING;
	if (meta_job_sync(app->meta, m.job.id, all ? "COMPLETED" : "SYNCING", err) < 0)
		return -1;
	if (news) {
		if (specs_get(app, m.job.id, &hold, err) < 0)
			err_clear(err); /* then all of them are kept */
		else if (ckpts_keep_last(app, ask->a, &m.job, hold.spec->ckpt.keep_last, err) < 0)
			return -1;
	}
	if (news)
		app_event(app, m.job.id, "checkpoint", "runner", "%s is in the store (%s)",
		          strcmp(c.name, ".") == 0 ? "the checkpoint folder itself" : c.shown,
		          units_show_bytes(bytes_of(rows, n, c.name), bytes));
	app_notify(app, CHANNEL_JOB, m.job.id);
	return 0;
}

static int take_exit(const struct ask *ask, const struct wire_exit *x, struct err *err)
{
	struct app *app = ask->app;

	if (jobs_node_ended(app, ask->principal->attempt_id, ask->principal->node_rank, x, err) < 0)
		return -1;
	exec_attempt_over(app, ask->principal->attempt_id);
	loop_kick(app->reconcile); /* its folder */
	return 0;
}

const struct runner_ops runner_ops = {
	.speaks = check_version,
	.claim = claim,
	.heartbeat = take_heartbeat,
	.desired = show_desired,
	.image = take_image,
	.ready = take_ready,
	.event = take_event,
	.checkpoint = take_checkpoint,
	.exit = take_exit,
	.job = job_of_runner,
};
