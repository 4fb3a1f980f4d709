/* notify.c - notices: made with the step, delivered by a pool, tried again, given up. */
#include "server/control/notify.h"
#include "core/notify.h"
#include "face/show.h"
#include "server/control/keyed_executor.h"
#include "server/api/secrets.h"
#include "server/control/specs.h"
#include "server/control/webhook.h"

#define ID_PREFIX "msg_"
#define ID_CHARS 20

/* The row as meta_job_step will store it. */
static struct model_job after(const struct model_job *job, const struct job_core *core,
                              const struct meta_step *s)
{
	bool waits = core->state == JOB_PENDING, over = job_state_is_final(core->state);
	struct model_job j = *job;

	j.core = *core;
	j.updated_ms = s->now_ms;
	j.reason = s->reason;
	if (s->error_message != NULL)
		j.error_message = s->error_message, j.error_id = s->error_id;
	if (s->end != JOB_END_NONE) {
		j.end = s->end;
		j.end_code = s->end_code;
	}
	j.started_ms = waits ? 0 : s->started_ms != 0 ? s->started_ms : job->started_ms;
	j.ended_ms = !over ? 0 : s->ended_ms != 0 ? s->ended_ms : s->now_ms;
	if (waits || over) {
		j.stage = j.progress = NULL;
		j.progress_done = j.progress_total = 0;
	}
	return j;
}

static const char *api_url(struct app *app, struct arena *a, const struct model_job *j)
{
	return arena_printf(a, "%s/v1/training_projects/%s/jobs/%s", app->base_url, j->project_id,
	                    j->id);
}

/* `text` is what chat services show; the rest is for programs. */
static const char *body_of(struct app *app, struct arena *a, const struct model_job *j,
                           const char *word, const char *message, const struct redact *r)
{
	AUTO_BUF struct buf plain = BUF_INIT(APP_JSON_MAX), clean = BUF_INIT(APP_JSON_MAX);
	struct js js;

	js_init(&js, &plain);
	js_open(&js);
	js_key(&js, "type");
	js_fmt(&js, "job.%s", word);
	show_time(&js, "timestamp", j->updated_ms);
	js_key(&js, "text");
	js_fmt(&js, "%s/%s (%s): %s", j->project_name, j->name, j->id, message);
	js_kv(&js, "url", api_url(app, a, j));
	js_key(&js, "data");
	show_job(&js, a, j, false);
	js_close(&js);
	redact_text(r, buf_view(&plain), &clean);
	return arena_strz(a, buf_view(&clean));
}

void notify_of(struct app *app, struct arena *a, const struct model_job *job,
               const struct job_core *core, struct meta_step *s)
{
	AUTO_REDACT struct redact *r = redact_new();
	enum notify_on event = notify_of_step(job->core.state, core->state);
	struct model_job j = after(job, core, s);
	const char *message = s->message, *word, *body;
	struct model_delivery *deliveries;
	struct specs_hold hold AUTO_SPEC = {0};
	const struct job_spec *spec;
	struct err err = {0};

	if (event == NOTIFY_COUNT)
		return;
	if (specs_get(app, job->id, &hold, &err) < 0) {
		log_error("notify: job=%s %s", job->id, err.msg);
		return;
	}
	spec = hold.spec;
	if (spec->n_notify == 0)
		return;
	word = notify_words[event];
	if (secrets_redact(app, job->team_id, spec, r, &err) < 0) { /* then without free text */
		log_error("notify: job=%s %s", job->id, err.msg);
		j.reason = j.error_message = j.error_id = NULL;
		message = word;
	}
	redact_build(r);
	body = body_of(app, a, &j, word, message, r);
	deliveries = ARENA_ARRAY(a, struct model_delivery, spec->n_notify);
	for (size_t i = 0; i < spec->n_notify; i++) {
		if (notify_asks(spec->notify[i].on, event))
			deliveries[s->n_deliveries++] = (struct model_delivery){
				.id = arena_printf(a, ID_PREFIX "%s", app_id(a, ID_CHARS)),
				.job_id = job->id,
				.team_id = job->team_id,
				.webhook = arena_cstr(a, spec->notify[i].webhook),
				.event = word,
				.body = body,
				.created_ms = s->now_ms,
			};
	}
	s->deliveries = deliveries;
}

/* From half of the pause to all of it, or what the answer asked for. */
static int64_t pause_ms(uint32_t tries, int asked_s)
{
	int64_t pause = NOTIFY_PAUSE_MS, asked = (int64_t)asked_s * 1000;
	uint32_t chance = 0;

	for (uint32_t i = 0; i < tries && pause < NOTIFY_PAUSE_MAX_MS; i++)
		pause *= 2;
	pause = MIN(pause, NOTIFY_PAUSE_MAX_MS);
	seal_random(&chance, sizeof(chance));
	pause = pause / 2 + (int64_t)chance % (pause / 2 + 1);
	return MAX(pause, MIN(asked, NOTIFY_PAUSE_MAX_MS));
}

/* Records the result of a delivery attempt as an event where people should see it: the first
 * failure and the end. */
static void note(struct app *app, struct arena *a, const struct model_delivery *t, int pause_s,
                 const struct err *why)
{
	struct model_event e = {.ms = clock_wall_ms(), .kind = "notify", .actor = "server"};
	bool told = why->code == ERR_NONE;
	bool over = told || t->tries + 1 >= NOTIFY_TRIES_MAX ||
	            e.ms - t->created_ms >= NOTIFY_AGE_MAX_MS;
	int64_t due = over ? 0 : e.ms + pause_ms(t->tries, pause_s);
	struct err err = {0};

	if (told && t->tries == 0)
		e.message = arena_printf(a, "delivered to webhook %s: %s", t->webhook, t->event);
	else if (told)
		e.message = arena_printf(a, "delivered to webhook %s: %s, attempt %u", t->webhook,
		                         t->event, t->tries + 1);
	else if (over)
		e.message = arena_printf(a, "gave up on webhook %s after %u attempts: %s: %s",
		                         t->webhook, t->tries + 1, t->event, why->msg);
	else
		e.message = arena_printf(a, "delivery to webhook %s failed: %s: %s; retrying",
		                         t->webhook, t->event, why->msg);
	log_info("notify: job=%s id=%s try=%u %s", t->job_id, t->id, t->tries + 1, e.message);
	if (meta_delivery_tried(app->meta, t, due, over || t->tries == 0 ? &e : NULL, &err) < 0)
		log_error("notify: job=%s %s", t->job_id, err.msg); /* it is told again */
	app_notify(app, CHANNEL_JOB, t->job_id);
}

static void tell(struct app *app, const struct model_delivery *t)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct webhook hook = {0};
	struct err err = {0};
	int status = 0, pause_s = 0;
	int r = webhook_open(app, a, t->team_id, t->webhook, &hook, &err);

	if (r == 0)
		r = webhook_post(app, &hook, t, &status, &pause_s, &err);
	webhook_done(&hook);
	if (r < 0 && err.code == ERR_CANCELED)
		return; /* the server stops: no try */
	app_crash_at("notify:told");
	note(app, a, t, pause_s, &err);
}

/* key: "<team>/<webhook>" */
static bool tell_all(struct app *app, const char *key)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str name = str_of(key), team = {0};
	struct model_delivery *t = NULL;
	struct meta_webhook w;
	struct err err = {0};
	size_t n = 0;

	(void)str_cut(&name, '/', &team);
	w = (struct meta_webhook){arena_strz(a, team), arena_strz(a, name)};
	if (meta_deliveries(app->meta, a, &w, clock_wall_ms(), NOTIFY_BATCH, &t, &n, &err) < 0)
		log_error("notify: webhook=%s %s", w.name, err.msg);
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++)
		tell(app, &t[i]);
	return false; /* nothing of it is for reconcile */
}

void notify_pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_webhook *w = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_webhooks_due(app->meta, a, clock_wall_ms(), NOTIFY_WEBHOOKS_MAX, &w, &n, &err) < 0)
		log_error("notify: %s", err.msg);
	for (size_t i = 0; i < n; i++)
		keyed_executor_submit(app->deliveries,
		                      arena_printf(a, "%s/%s", w[i].team_id, w[i].name), tell_all);
}
