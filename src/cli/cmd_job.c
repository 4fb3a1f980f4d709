/* cmd_job.c - stop, recreate, update, events, metrics. */
#include "cli/joblist.h"

#include "base/clock.h"

static int post(struct cli *c, const struct doc *job, const char *tail, const char *json,
                const struct doc **out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	const struct doc *reply;

	buf_puts(&body, json);
	if (remote_call(c, HTTP_POST, job_path(c, job, tail), &body, &reply, err) < 0)
		return -1;
	*out = doc_get(reply, "training_job");
	return 0;
}

/* "longone (dgiwbss)" */
static const char *job_title(struct cli *c, const struct doc *job)
{
	return arena_printf(c->arena, "%s (%s)",
	                    out_plain(c->arena, doc_text(doc_get(job, "name"))),
	                    doc_cstr(doc_get(job, "id"), "?"));
}

/* A deployment has as many jobs as people want: one that is stopped is not the end of it. */
static void say_kept(struct cli *c, const struct doc *job)
{
	const struct doc *by = doc_get(job, "kept_by_deployment");
	const char *name;

	if (!doc_is(by, DOC_TEXT))
		return;
	name = out_name(c->arena, doc_text(by));
	out_message(c,
	            "job %s belongs to deployment %s, which starts another in its place; `stoker "
	            "deployments stop %s` ends both",
	            doc_cstr(doc_get(job, "id"), "?"), name, name);
}

static int stop_one(struct cli *c, const struct doc *job, struct err *err)
{
	const struct doc *after;
	int64_t grace_s;

	if (post(c, job, "/stop", opt_flag(c, "now") ? "{\"now\":true}" : "{}", &after, err) < 0)
		return -1;
	grace_s = doc_int(doc_path(after, "spec", "limits", "stop_grace", NULL), 30);
	if (strcmp(job_status(after), "STOPPED") == 0) /* it had not begun */
		out_message(c, "stopped %s", job_title(c, job));
	else if (strcmp(job_status(after), "RUNNING") != 0)
		out_message(c, "stopping %s", job_title(c, job));
	else if (opt_flag(c, "now"))
		out_message(c, "stopping %s: SIGKILL sent", job_title(c, job));
	else
		out_message(c, "stopping %s: SIGTERM sent, SIGKILL in %" PRId64 " s",
		            job_title(c, job), grace_s);
	say_kept(c, after);
	return 0;
}

/* Those that end by themselves meanwhile are what was asked for. */
static int stop_all(struct cli *c, struct err *err)
{
	bool everyone = opt_flag(c, "everyone");
	struct joblist_want want = {
		.mine = !everyone, .statuses = joblist_active, .n_statuses = n_joblist_active};
	struct joblist found;
	size_t n = 0, ended = 0;

	if (joblist(c, &want, &found, err) < 0)
		return -1;
	if (found.list->count == 0) {
		out_message(
			c, everyone ? "no active jobs"
				    : "you have no active jobs (--everyone includes those of other "
				      "users)");
		return 0;
	}
	if (out_confirm(c,
	                arena_printf(c->arena, "Stop %s of %s?",
	                             out_count(c, found.list->count, "active job"),
	                             everyone ? "everyone" : "yours"),
	                NULL, err) < 0)
		return -1;
	DOC_EACH (job, found.list) {
		if (stop_one(c, job, err) == 0) {
			n++;
		} else if (err->code == ERR_CONFLICT || err->code == ERR_NOT_FOUND) {
			err_clear(err);
			ended++;
		} else {
			return err_wrap(err, "%s of %s stopped, then", out_number(c, n),
			                out_count(c, found.list->count, "job"));
		}
	}
	out_message(c, "%s told to stop%s", out_count(c, n, "job"),
	            ended > 0 ? arena_printf(c->arena, "; %s had ended", out_number(c, ended))
	                      : "");
	return 0;
}

int cmd_stop(struct cli *c, struct err *err)
{
	const struct doc *jobs[CLI_ARGS_MAX];

	if (opt_flag(c, "all") && c->n_arg > 0)
		return err_set(err, ERR_USAGE, "name jobs or give --all, not both");
	if (opt_flag(c, "everyone") && !opt_flag(c, "all"))
		return err_set(err, ERR_USAGE, "--everyone requires --all");
	if (opt_flag(c, "all"))
		return stop_all(c, err);
	if (c->n_arg == 0)
		return err_set(err, ERR_USAGE,
		               "name the job to stop (@ is your newest), or give --all");
	for (unsigned i = 0; i < c->n_arg; i++)
		if (resolve_job(c, c->arg[i], SEVERAL_REFUSE, &jobs[i], err) < 0)
			return -1;
	for (unsigned i = 0; i < c->n_arg; i++) {
		struct err one = {0};

		if (stop_one(c, jobs[i], &one) == 0)
			continue;
		if (i + 1 < c->n_arg) /* the others are stopped all the same */
			out_error("stoker: %s", one.msg);
		*err = one;
	}
	return err->code == ERR_NONE ? 0 : -1;
}

int cmd_recreate(struct cli *c, struct err *err)
{
	const struct doc *job, *made;
	bool resume = opt_flag(c, "resume");
	enum out_form form;

	catch_interrupt();
	if (out_form_one(c, &form, err) < 0 ||
	    resolve_job(c, c->arg[0], SEVERAL_REFUSE, &job, err) < 0 ||
	    post(c, job, "/recreate", resume ? "{\"resume\":true}" : "{}", &made, err) < 0)
		return -1;
	out_message(c, "created job %s from job %s: same code, same input revisions%s: %s",
	            doc_cstr(doc_get(made, "id"), "?"), doc_cstr(doc_get(job, "id"), "?"),
	            resume ? ", from its newest complete checkpoint" : "", out_job_status(c, made));
	if (form != OUT_TABLE)
		out_one(form, made);
	else if (!opt_flag(c, "follow"))
		(void)printf("%s\n", doc_cstr(doc_get(made, "id"), ""));
	if (!opt_flag(c, "follow"))
		return 0;
	return follow_job(c, made, err);
}

int cmd_update(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(1000);
	const struct doc *job, *reply;

	if (!opt_flag(c, "priority"))
		return err_set(err, ERR_USAGE, "nothing to change: give --priority N");
	if (resolve_job(c, c->arg[0], SEVERAL_REFUSE, &job, err) < 0)
		return -1;
	buf_printf(&body, "{\"priority\":%" PRId64 "}", opt_int(c, "priority", 0));
	if (remote_call(c, HTTP_PATCH, job_path(c, job, ""), &body, &reply, err) < 0)
		return -1;
	out_message(c, "job %s: priority %" PRId64, doc_cstr(doc_get(job, "id"), "?"),
	            opt_int(c, "priority", 0));
	return 0;
}

int cmd_events(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"TIME", false, cell_text, "timestamp"},
	                                      {"KIND", false, cell_text, "kind"},
	                                      {"BY", false, cell_text, "actor"},
	                                      {"WHAT", false, cell_text, "message"}};
	const struct doc *job, *reply;

	if (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0 ||
	    remote_get(c, &reply, err, "%s", job_path(c, job, "/events")) < 0)
		return -1;
	return out_list(c, doc_get(reply, "events"), cols, COUNT(cols), "no events", err);
}

/* The newest value of a series, or NULL. */
static const struct doc *last_of(const struct doc *series)
{
	const struct doc *last = NULL;

	DOC_EACH (p, series) {
		last = p;
	}
	return doc_get(last, "value");
}

static void sparkline(const struct doc *series, double top, struct buf *out)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	size_t skip = series != NULL && series->count > 40 ? series->count - 40 : 0;

	DOC_EACH (p, series) {
		double v = doc_real(doc_get(p, "value"), 0);

		if (skip > 0) {
			skip--;
			continue;
		}
		buf_puts(out, bars[top > 0 ? (size_t)(MIN(MAX(v / top, 0.0), 1.0) * 7) : 0]);
	}
}

static double top_of(const struct doc *series)
{
	double top = 0;

	DOC_EACH (p, series) {
		top = MAX(top, doc_real(doc_get(p, "value"), 0));
	}
	return top;
}

static void metric_line(struct cli *c, const char *label, const struct doc *series, bool bytes,
                        double top)
{
	AUTO_BUF struct buf bars = BUF_INIT(1000);
	const struct doc *last = last_of(series);

	if (last == NULL)
		return;
	sparkline(series, top > 0 ? top : top_of(series), &bars);
	if (bytes)
		out_line(label, "%-12s %s", out_cell_of(c, cell_bytes, last), buf_cstr(&bars));
	else
		out_line(label, "%-12.2f %s", doc_real(last, 0), buf_cstr(&bars));
}

static int metrics_once(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(10);
	const struct doc *job, *reply;
	enum out_form form;

	if (out_form_one(c, &form, err) < 0 ||
	    resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0)
		return -1;
	buf_puts(&body, "{}");
	if (remote_call(c, HTTP_POST, job_path(c, job, "/metrics"), &body, &reply, err) < 0)
		return -1;
	if (form != OUT_TABLE) {
		out_one(form, reply);
		return 0;
	}
	DOC_EACH (node, doc_get(reply, "per_node_metrics")) {
		const struct doc *m = doc_get(node, "metrics");

		out_put("node %s\n", doc_cstr(doc_get(node, "node_id"), "?"));
		metric_line(c, "  cpu cores", doc_get(m, "cpu_usage"), false, 0);
		metric_line(c, "  memory", doc_get(m, "cpu_memory_usage_bytes"), true, 0);
		metric_line(c, "  scratch", doc_path(m, "ephemeral_storage", "usage_bytes", NULL),
		            true, 0);
		DOC_EACH (gpu, doc_get(m, "gpu_utilization")) {
			char label[40];

			(void)snprintf(label, sizeof(label), "  gpu %.8s", gpu->key.p);
			metric_line(c, label, gpu, false, 1);
		}
		DOC_EACH (gpu, doc_get(m, "gpu_memory_usage_bytes")) {
			char label[40];

			(void)snprintf(label, sizeof(label), "  vram %.8s", gpu->key.p);
			metric_line(c, label, gpu, true, 0);
		}
	}
	metric_line(c, "cache", doc_path(reply, "cache", "usage_bytes", NULL), true, 0);
	if (doc_get(reply, "per_node_metrics") == NULL ||
	    doc_get(reply, "per_node_metrics")->count == 0)
		out_message(c,
		            doc_is(doc_get(job, "ended_at"), DOC_TEXT)
		                    ? "no samples: the job ended before it ran a command"
		                    : "no samples yet: the first comes a second after the commands "
		                      "start");
	return 0;
}

int cmd_metrics(struct cli *c, struct err *err)
{
	return opt_flag(c, "watch") ? watch(c, metrics_once, err) : metrics_once(c, err);
}
