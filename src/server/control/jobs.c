/* jobs.c - steps of jobs: said, stored, told. */
#include "server/control/jobs.h"
#include "base/units.h"
#include "server/data/ckpts.h"
#include "server/control/inputs.h"
#include "server/control/live.h"
#include "server/data/log_store.h"
#include "server/data/mirror_room.h"
#include "server/control/notify.h"
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/control/specs.h"
#include "server/control/serving.h"
#include "server/control/unserved.h"

static int step_locked(struct app *app, const struct meta_step *asked, const char *line,
                       enum job_state *from, enum job_state *to, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_step step = *asked, *s = &step;
	struct model_job job = {0};
	struct job_core guess;
	bool final;

	if (meta_job_brief(app->meta, a, s->job_id, &job, err) < 0)
		return -1;
	if (s->attempt_id != NULL && !app_same(s->attempt_id, job.attempt_id))
		return err_set(err, ERR_CONFLICT, "attempt %s is not the current one",
		               s->attempt_id);
	guess = job.core;
	if (job_step(&guess, s->event, s->now_ms, err) < 0)
		return -1;
	final = job_state_is_final(guess.state);
	notify_of(app, a, &job, &guess, s);
	if (final) {
		app_log(app, s->job_id, "%s", line);
		(void)joblogs_flush(app->logs, s->job_id, LOG_STORE_END_MS); /* else soon */
	}
	if (meta_job_step(app->meta, s, from, to, err) < 0)
		return -1;
	assert(*to == guess.state); /* steps of one job are taken under its lock */
	if (!final)
		app_log(app, s->job_id, "%s", line);
	if (s->n_deliveries > 0)
		loop_kick(app->notify);
	return 0;
}

int jobs_stop(struct app *app, struct arena *a, const struct model_job *job, const char *actor,
              const char *why, bool now, struct err *err)
{
	struct meta_step s = {.job_id = job->id,
	                      .event = JOB_EV_STOP,
	                      .now_ms = clock_wall_ms(),
	                      .actor = actor,
	                      .message = why,
	                      .reason = why,
	                      .stop_now = now};
	unsigned in_flight;
	int64_t retired_ms;

	s.end = job_state_is_placed(job->core.state) && job->core.state != JOB_CREATED
	                ? JOB_END_NONE /* the runners say */
	                : JOB_END_STOPPED;
	if (jobs_step(app, &s,
	              s.end == JOB_END_STOPPED ? arena_printf(a, "job stopped: %s", why) : NULL,
	              NULL, err) < 0)
		return -1;
	(void)serving_retire(app, job->id, false);
	in_flight = now ? 0 : serving_in_flight(app, job->id, &retired_ms);
	if (in_flight > 0)
		app_log(app, job->id, "it answers the requests that it has first: %u", in_flight);
	if (job->attempt_id != NULL)
		app_notify(app, CHANNEL_DESIRED, job->attempt_id);
	loop_kick(app->reconcile);
	return 0;
}

int jobs_step(struct app *app, const struct meta_step *s, const char *line, enum job_state *to,
              struct err *err)
{
	struct lock *lock = app_stripe(app->steps, s->job_id);
	enum job_state from = JOB_PENDING, next = JOB_PENDING;
	int r;

	lock_take(lock);
	r = step_locked(app, s, line != NULL ? line : s->message, &from, &next, err);
	lock_give(lock);
	if (r < 0)
		return -1;
	log_info("job %s: job=%s %s -> %s: %s", job_event_name(s->event), s->job_id,
	         job_state_word(from), job_state_word(next), s->message);
	app_notify(app, CHANNEL_JOB, s->job_id);
	if (s->attempt_id != NULL)
		app_notify(app, CHANNEL_DESIRED, s->attempt_id);
	if (job_state_is_final(next)) {
		mirror_room_changed(app); /* nobody else may need its weights */
		joblogs_ended(app->logs, s->job_id);
	}
	if (from == JOB_PENDING)
		inputs_forget(app, s->job_id);
	if (from == JOB_RUNNING)
		serving_left(app, s->job_id);
	live_moved(app, s->job_id, !job_state_is_placed(next) || s->event == JOB_EV_PLACE);
	if (!job_state_is_placed(next)) {
		queue_kick(app); /* something is free, or waits */
		loop_kick(app->reconcile);
	}
	if (to != NULL)
		*to = next;
	return 0;
}

void jobs_deploy_failed(struct app *app, const struct model_job *job, const char *stage,
                        const struct err *cause)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *words = arena_printf(a, "%s: %s", stage, cause->msg);
	struct meta_step s = {
		.job_id = job->id,
		.event = JOB_EV_EXIT_BAD,
		.now_ms = clock_wall_ms(),
		.attempt_id = job->attempt_id,
		.actor = "server",
		.message = words,
		.reason = words,
		.error_message = words,
		.error_id = err_id(cause),
		.end = JOB_END_DEPLOY_FAILED,
	};
	struct err err = {0};

	if (jobs_step(app, &s, arena_printf(a, "job could not be deployed: %s", words), NULL,
	              &err) < 0)
		log_info("cannot fail the job: job=%s %s (%s)", job->id, err.msg, words);
}

bool jobs_database_failed(const struct err *err)
{
	return err->id == ERR_DATABASE_UNAVAILABLE || err->id == ERR_DATABASE_CONFLICT ||
	       err->id == ERR_DATABASE_UNCERTAIN;
}

bool jobs_may_pass(const struct err *err)
{
	static const enum err_code codes[] = {ERR_BUSY,    ERR_IO,       ERR_UNAVAILABLE,
	                                      ERR_TIMEOUT, ERR_NO_SPACE, ERR_CANCELED};

	for (size_t i = 0; i < COUNT(codes); i++)
		if (err->code == codes[i])
			return true;
	return false;
}

void jobs_held_up(struct app *app, const struct model_job *job, const char *stage,
                  const struct err *cause)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct live_progress p = {
		.stage = stage,
		.words = arena_printf(a, "waiting: %s: %s", stage, cause->msg),
		.now_ms = clock_wall_ms(),
	};

	log_warn("job=%s %s", job->id, p.words);
	if (live_progress(app, job->id, &p))
		app_log(app, job->id, "%s", p.words);
}

bool jobs_bad_end(const char *exit_json)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_exit x = {0};
	struct err err = {0};

	if (exit_json == NULL)
		return false;
	if (wire_exit_parse(&x, a, str_of(exit_json), &err) < 0)
		return true;
	return x.end != JOB_END_EXIT || x.code != 0;
}

/* The combined end of all parts: the first failure that is a cause and not a consequence (parts
 * that were stopped because another one failed), else success. */
static void combine(struct arena *a, const struct model_attempt *t, size_t n, struct wire_exit *out,
                    uint32_t *rank)
{
	int64_t first = INT64_MAX;
	bool cause = false;

	*out = (struct wire_exit){.end = JOB_END_EXIT, .synced = true};
	*rank = 0;
	for (size_t i = 0; i < n; i++) {
		struct wire_exit x = {0};
		struct err err = {0};
		bool bad, better;

		if (t[i].exit_json == NULL ||
		    wire_exit_parse(&x, a, str_of(t[i].exit_json), &err) < 0)
			x = (struct wire_exit){.end = JOB_END_LOST, .synced = true};
		bad = x.end != JOB_END_EXIT || x.code != 0;
		better = bad && ((x.end != JOB_END_STOPPED && !cause) ||
		                 ((x.end != JOB_END_STOPPED) == cause && t[i].ended_ms < first));
		if (better) {
			int64_t started = out->started_ms, ended = out->ended_ms;
			bool synced = out->synced;

			*out = x;
			out->synced = x.synced && synced;
			out->started_ms = started;
			out->ended_ms = ended;
			first = t[i].ended_ms;
			cause = x.end != JOB_END_STOPPED;
			*rank = t[i].node_rank;
		}
		out->synced = out->synced && x.synced;
		out->user_code_ran = out->user_code_ran || x.user_code_ran;
		if (x.started_ms != 0 && (out->started_ms == 0 || x.started_ms < out->started_ms))
			out->started_ms = x.started_ms;
		out->ended_ms = MAX(out->ended_ms, x.ended_ms);
	}
}

/* A runner's clock may be another one. By ours the job did not start before it was let go, nor end
 * after its end was heard of; times that say neither are not touched. */
static void by_our_clock(const struct model_job *job, const struct model_attempt *t, size_t n,
                         struct wire_exit *x)
{
	int64_t heard_ms = 0, early_ms, late_ms, shift_ms;

	if (x->started_ms == 0 || job->started_ms == 0)
		return;
	for (size_t i = 0; i < n; i++)
		heard_ms = MAX(heard_ms, t[i].ended_ms);
	early_ms = job->started_ms - x->started_ms;
	late_ms = x->ended_ms - heard_ms;
	shift_ms = early_ms > 0 ? early_ms : late_ms > 0 ? -late_ms : 0;
	x->started_ms += shift_ms;
	x->ended_ms += shift_ms;
}

static bool retry_names(const struct job_spec *spec, int code)
{
	for (size_t i = 0; i < spec->retry.n_exit_codes; i++) {
		if (spec->retry.exit_codes[i] == code)
			return true;
	}
	return false;
}

/* As a shell says it: 126, the command cannot be run; 127, there is none. The next attempt finds no
 * more. */
static bool is_not_there(const struct wire_exit *x)
{
	return x->end == JOB_END_EXIT && (x->code == 126 || x->code == 127);
}

/* The job's own doing: not a limit of its time, a stop, or the platform's fault. */
static bool is_failure(const struct wire_exit *x)
{
	return x->user_code_ran && !is_not_there(x) &&
	       (x->end == JOB_END_EXIT || x->end == JOB_END_SIGNAL || x->end == JOB_END_OOM ||
	        x->end == JOB_END_OOM_CUDA || x->end == JOB_END_DISK);
}

/* Engines end in peace when what computes for them has died: the deployment wants one that runs. */
static bool is_early(const struct job_spec *spec, const struct model_job *job)
{
	return job->deployment_id != NULL && spec->retry.on_failure;
}

static enum job_event event_of(const struct job_spec *spec, const struct model_job *job,
                               const struct wire_exit *x)
{
	if (x->end == JOB_END_EXIT && x->code == 0 && !is_early(spec, job))
		return x->synced || !spec->ckpt.enabled ? JOB_EV_EXIT_OK : JOB_EV_EXIT_BAD;
	if (x->end == JOB_END_LOST && spec->retry.on_lost)
		return JOB_EV_LOST;
	if ((x->end == JOB_END_EXIT && retry_names(spec, x->code)) ||
	    (spec->retry.on_failure && is_failure(x)))
		return JOB_EV_RETRY;
	return JOB_EV_EXIT_BAD;
}

/* "completed in 12s", "failed: exit code 3: python train.py" */
static char *outcome(struct arena *a, const struct model_job *job, const struct wire_exit *x,
                     enum job_event ev, uint32_t rank)
{
	char what[600], span[UNITS_CAP];
	bool stopping = job_state_is_stopping(job->core.state);

	job_end_describe(x->end, x->code, x->detail, what, sizeof(what));
	if (stopping && !x->user_code_ran)
		return arena_printf(a, "job stopped before its first command");
	if (stopping && x->end == JOB_END_STOPPED)
		return arena_printf(a, "job stopped%s%s", x->detail != NULL ? " in " : "",
		                    x->detail != NULL ? x->detail : "");
	if (stopping)
		return arena_printf(a, "job stopped (%s)", what);
	if (ev == JOB_EV_EXIT_OK && x->ended_ms > x->started_ms && x->started_ms > 0)
		return arena_printf(
			a, "job completed in %s",
			units_show_seconds((uint64_t)(x->ended_ms - x->started_ms) / 1000, span));
	if (ev == JOB_EV_EXIT_OK)
		return arena_printf(a, "job completed");
	if (x->end == JOB_END_EXIT && x->code == 0)
		return arena_printf(a, "job failed: %s",
		                    ev == JOB_EV_RETRY ? "its server has ended (exit code 0)"
		                                       : "its last checkpoint was not uploaded");
	if (job->core.state == JOB_DEPLOYING)
		return arena_printf(a, "job could not be deployed: %s%s%s",
		                    x->stage ? x->stage : "", x->stage ? ": " : "",
		                    x->detail ? x->detail : what);
	if (job->node_count > 1)
		return arena_printf(a, "job failed: node %u: %s", rank, what);
	return arena_printf(a, "job failed: %s", what);
}

/* By all nodes, now that they have ended. While the store is away that is tried again, but it holds
 * the end of the job up no longer than a sweep may. */
static int judge_checkpoints(struct app *app, const struct model_job *job,
                             const struct model_attempt *t, size_t n, struct err *err)
{
	int64_t ended_ms = 0;

	for (size_t i = 0; i < n; i++)
		ended_ms = MAX(ended_ms, t[i].ended_ms);
	if (ckpts_settle(app, job, err) == 0)
		return 0;
	if (clock_wall_ms() - ended_ms < RECONCILE_SWEEP_MS)
		return -1;
	log_error("checkpoints not judged: job=%s %s", job->id, err->msg);
	err_clear(err);
	return 0;
}

static int settle(struct app *app, struct arena *a, const struct model_job *job,
                  const struct model_attempt *t, size_t n, struct err *err)
{
	struct meta_step s = {.job_id = job->id,
	                      .now_ms = clock_wall_ms(),
	                      .actor = "runner",
	                      .attempt_id = t[0].id};
	const struct job_spec unread = {.ckpt.enabled = true}, *spec = &unread;
	struct specs_hold hold AUTO_SPEC = {0};
	struct wire_exit x;
	uint32_t rank = 0;
	const char *gives_up;
	char *words;
	bool again;

	if (specs_get(app, job->id, &hold, err) == 0) {
		spec = hold.spec;
	} else {
		log_error("cannot end the job: job=%s %s", job->id, err->msg);
		err_clear(err); /* it ends all the same, and is not tried again */
	}
	combine(a, t, n, &x, &rank);
	by_our_clock(job, t, n, &x);
	s.event = event_of(spec, job, &x);
	if (x.end == JOB_END_LOST) /* it said nothing: that is what the server found */
		s.actor = "server";
	words = outcome(a, job, &x, s.event, rank);
	gives_up = s.event == JOB_EV_RETRY ? unserved_gives_up(app, a, job, &x) : NULL;
	if (gives_up != NULL) {
		s.event = JOB_EV_EXIT_BAD;
		words = arena_printf(a, "%s; %s", words, gives_up);
	}
	s.end = x.end;
	s.end_code = x.code;
	s.started_ms = x.started_ms;
	s.ended_ms = x.ended_ms;
	again = (s.event == JOB_EV_LOST || s.event == JOB_EV_RETRY) &&
	        job->core.attempt < job->core.attempt_max;
	if (again)
		words = arena_printf(a, "attempt %u of %u ended (%s); retrying", job->core.attempt,
		                     job->core.attempt_max, words);
	s.message = words;
	if (job_state_is_stopping(job->core.state)) {
		s.reason = job->reason != NULL ? job->reason : words; /* who asked; no error */
	} else if (again) {
		s.reason = words; /* of now; no error of the job, which may yet complete */
	} else if (s.event != JOB_EV_EXIT_OK) {
		s.reason = words;
		s.error_id = x.error_id;
		s.error_message = strncmp(words, "job ", 4) == 0 && strchr(words, ':') != NULL
		                          ? strchr(words, ':') + 2
		                          : words;
	}
	if (judge_checkpoints(app, job, t, n, err) < 0 ||
	    meta_checkpoints_abandon(app->meta, job->id, err) < 0)
		return -1;
	app_crash_at("exit:before-step");
	if (jobs_step(app, &s, NULL, NULL, err) < 0) {
		if (err->code != ERR_CONFLICT) /* somebody else was first: that is the outcome */
			return -1;
		err_clear(err);
	}
	app_crash_at("exit:after-step");
	return 0;
}

/* An attempt and its job, as they are once a part of it has ended. */
struct ended {
	struct model_attempt *part;
	struct model_job job;
	size_t n;
};

static int read_ended(struct app *app, struct arena *a, const char *attempt_id, struct ended *out,
                      struct err *err)
{
	if (meta_attempt(app->meta, a, attempt_id, &out->part, &out->n, err) < 0)
		return -1;
	return out->n == 0 ? 0 : meta_job_brief(app->meta, a, out->part[0].job_id, &out->job, err);
}

static int settle_if_all_ended(struct app *app, struct arena *a, const char *attempt_id,
                               const struct ended *e, struct err *err)
{
	for (size_t i = 0; i < e->n; i++) {
		if (e->part[i].ended_ms == 0)
			return 0;
	}
	if (e->n == 0 || !job_state_is_placed(e->job.core.state) ||
	    !app_same(e->job.attempt_id, attempt_id))
		return 0;
	return settle(app, a, &e->job, e->part, e->n, err);
}

int jobs_settle(struct app *app, const char *attempt_id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct ended e = {0};

	if (read_ended(app, a, attempt_id, &e, err) < 0)
		return -1;
	return settle_if_all_ended(app, a, attempt_id, &e, err);
}

/* Checkpoints that wait for the node that has ended need not wait for the others too. */
static int judge_parts(struct app *app, const char *attempt_id, const struct ended *e,
                       struct err *err)
{
	if (e->n < 2 || !app_same(e->job.attempt_id, attempt_id))
		return 0;
	return ckpts_settle(app, &e->job, err);
}

int jobs_node_ended(struct app *app, const char *attempt_id, uint32_t rank,
                    const struct wire_exit *x, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct ended e = {0};
	bool first = false;

	wire_exit_write(x, &json);
	app_crash_at("exit:before-record");
	if (meta_attempt_exit(app->meta, attempt_id, rank, buf_cstr(&json), clock_wall_ms(), &first,
	                      err) < 0)
		return -1;
	app_crash_at("exit:after-record");
	live_ended(app, attempt_id, rank);
	serving_ended(app, attempt_id);
	if (first)
		app_notify(app, CHANNEL_DESIRED, attempt_id); /* a bad end stops the other parts */
	if (read_ended(app, a, attempt_id, &e, err) < 0 ||
	    (first && judge_parts(app, attempt_id, &e, err) < 0))
		return -1;
	return settle_if_all_ended(app, a, attempt_id, &e, err);
}
