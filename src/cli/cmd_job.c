/* cmd_job.c - ps, view, stop, recreate, update, events, exec, metrics. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/units.h"

#define JOBS_MAX 256
#define WATCH_TENTHS 20 /* of a second between two looks */

/* One page of text about a job is built here, then printed. */
static const char *short_status(const struct doc *job)
{
	const char *s = doc_cstr(doc_get(job, "current_status"), "?");

	return strncmp(s, "TRAINING_JOB_", 13) == 0 ? s + 13 : s;
}

static void ps_project(const struct doc *d, struct buf *b)
{
	cell_text(doc_path(d, "training_project", "name", NULL), b);
}
static void ps_status(const struct doc *d, struct buf *b)
{
	const struct doc *end = doc_get(d, "end");

	buf_puts(b, short_status(d));
	if (str_eq(doc_text(doc_get(end, "kind")), "exit") && doc_int(doc_get(end, "code"), 0) != 0)
		buf_printf(b, "(%" PRId64 ")", doc_int(doc_get(end, "code"), 0));
}
static void ps_gpu(const struct doc *d, struct buf *b)
{
	const struct doc *it = doc_get(d, "instance_type");

	if (doc_int(doc_get(it, "gpu_count"), 0) > 0)
		buf_printf(b, "%" PRId64 "x%s",
		           doc_int(doc_get(it, "gpu_count"), 0) *
		                   doc_int(doc_get(d, "node_count"), 1),
		           doc_cstr(doc_get(it, "gpu_type"), "?"));
	else
		buf_putc(b, '-');
}
static void ps_run(const struct doc *d, struct buf *b)
{
	struct err ignored = {0};
	int64_t from, to = clock_wall_ms();
	char text[UNITS_CAP];

	if (!doc_is(doc_get(d, "started_at"), DOC_TEXT) ||
	    clock_parse(doc_text(doc_get(d, "started_at")), &from, &ignored) < 0) {
		buf_putc(b, '-');
		return;
	}
	if (doc_is(doc_get(d, "ended_at"), DOC_TEXT) &&
	    clock_parse(doc_text(doc_get(d, "ended_at")), &to, &ignored) < 0)
		to = clock_wall_ms();
	buf_puts(b, units_show_seconds((uint64_t)MAX((to - from) / 1000, (int64_t)0), text));
}
static void ps_sync(const struct doc *d, struct buf *b)
{
	struct str s = doc_text(doc_get(d, "checkpoint_sync_status"));

	buf_puts(b, str_eq(s, "COMPLETED") ? "synced" : str_eq(s, "SYNCING") ? "syncing" : "-");
}
static void ps_reason(const struct doc *d, struct buf *b)
{
	const struct doc *why = doc_get(d, "error_message");

	cell_text(doc_is(why, DOC_TEXT) ? why : doc_get(d, "reason"), b);
}

static const struct out_col ps_cols[] = {
	{"JOB", false, cell_text, "id"},      {"NAME", false, cell_text, "name"},
	{"PROJECT", false, ps_project, NULL}, {"STATUS", false, ps_status, NULL},
	{"GPU", false, ps_gpu, NULL},         {"AGE", true, cell_age, "created_at"},
	{"RUN", true, ps_run, NULL},          {"CKPT", false, ps_sync, NULL},
	{"REASON", false, ps_reason, NULL},
};

static const char *const active[] = {"TRAINING_JOB_PENDING", "TRAINING_JOB_CREATED",
                                     "TRAINING_JOB_DEPLOYING", "TRAINING_JOB_RUNNING"};

static int search(struct cli *c, const char *project_id, bool all, const struct doc **list,
                  struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	const struct doc *reply;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "project_id", project_id);
	js_key(&js, "statuses");
	if (all) {
		js_null(&js);
	} else {
		js_list(&js);
		for (size_t i = 0; i < COUNT(active); i++)
			js_cstr(&js, active[i]);
		js_end(&js);
	}
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/training_jobs/search", &body, &reply, err) < 0)
		return -1;
	*list = doc_get(reply, "training_jobs");
	return 0;
}

/* Again and again until Ctrl-C. */
static int watch(struct cli *c, int (*once)(struct cli *c, struct err *err), struct err *err)
{
	struct arena *whole = c->arena;

	catch_interrupt();
	if (remote_login(c, err) < 0) /* so that it is kept in the arena that stays */
		return -1;
	while (!interrupted) {
		int r;

		c->arena = arena_new();
		if (c->tty_out)
			(void)fputs("\033[H\033[J", stdout);
		r = once(c, err);
		(void)fflush(stdout);
		arena_free(c->arena);
		c->arena = whole;
		if (r < 0 && err->code != ERR_CANCELED)
			return -1;
		for (int i = 0; i < WATCH_TENTHS && !interrupted; i++)
			clock_sleep_ms(100);
	}
	err_clear(err);
	return 0;
}

static int ps_once(struct cli *c, struct err *err)
{
	const struct doc *list, *project = NULL;
	const char *name = opt_text(c, "project", NULL);

	if (name != NULL && resolve_project(c, name, &project, err) < 0)
		return -1;
	if (search(c, doc_cstr(doc_get(project, "id"), NULL), opt_flag(c, "all"), &list, err) < 0)
		return -1;
	return out_list(c, list, ps_cols, COUNT(ps_cols),
	                opt_flag(c, "all") ? "no jobs yet: stoker push"
	                                   : "no job is active (stoker ps -a shows all)",
	                err);
}

int cmd_ps(struct cli *c, struct err *err)
{
	return opt_flag(c, "watch") ? watch(c, ps_once, err) : ps_once(c, err);
}

static void line(const char *label, const char *fmt, ...) PRINTF(2, 3);
static void line(const char *label, const char *fmt, ...)
{
	va_list ap;

	(void)printf("%-12s ", label);
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	(void)putchar('\n');
}

static const char *cell_of(struct cli *c, void (*cell)(const struct doc *, struct buf *),
                           const struct doc *d)
{
	AUTO_BUF struct buf b = BUF_INIT(65536);

	cell(d, &b);
	return arena_strz(c->arena, buf_view(&b));
}

static void view_weights(struct cli *c, const struct doc *job)
{
	DOC_EACH (w, doc_get(job, "weights")) {
		const char *rev = doc_cstr(doc_get(w, "revision"), "");

		line("weights", "%s%s%.12s -> %s (%s)", doc_cstr(doc_get(w, "source"), "?"),
		     rev[0] != '\0' ? " @ " : "", rev, doc_cstr(doc_get(w, "mount_location"), "?"),
		     cell_of(c, cell_bytes, doc_get(w, "bytes")));
	}
}

/* "2 nodes, each 8 x H200, 16 CPUs, 64Gi" */
static void view_asks(const struct doc *job, const struct doc *it)
{
	int64_t nodes = doc_int(doc_get(job, "node_count"), 1);
	int64_t gpus = doc_int(doc_get(it, "gpu_count"), 0);
	double cpus = (double)doc_int(doc_get(it, "millicpu_limit"), 0) / 1000.0;
	AUTO_BUF struct buf b = BUF_INIT(1000);
	char memory[UNITS_CAP];

	if (nodes > 1)
		buf_printf(&b, "%" PRId64 " nodes, each ", nodes);
	if (gpus > 0)
		buf_printf(&b, "%" PRId64 " x %s, ", gpus, doc_cstr(doc_get(it, "gpu_type"), "?"));
	buf_printf(&b, "%g CPU%s, %s", cpus, cpus > 1 ? "s" : "",
	           units_show_memory((uint64_t)doc_int(doc_get(it, "memory_limit_mib"), 0) << 20,
	                             memory));
	line("asks for", "%s", buf_cstr(&b));
}

static void view_progress(const struct doc *job)
{
	const struct doc *p = doc_get(job, "progress");
	char done[UNITS_CAP], total[UNITS_CAP], rate[UNITS_CAP];

	if (!doc_is(p, DOC_MAP))
		return;
	if (doc_is(doc_get(p, "note"), DOC_TEXT) && doc_text(doc_get(p, "note")).n > 0) {
		line("progress", "%s", doc_cstr(doc_get(p, "note"), ""));
		return;
	}
	line("progress", "%s of %s, %s",
	     units_show_bytes((uint64_t)doc_int(doc_get(p, "done_bytes"), 0), done),
	     units_show_bytes((uint64_t)doc_int(doc_get(p, "total_bytes"), 0), total),
	     units_show_rate(doc_real(doc_get(p, "rate_bytes_per_second"), 0), rate));
}

static int view_more(struct cli *c, const struct doc *job, struct err *err)
{
	const struct doc *events, *ckpts;

	if (remote_get(c, &ckpts, err, "%s", job_path(c, job, "/checkpoints?all=true")) < 0 ||
	    remote_get(c, &events, err, "%s", job_path(c, job, "/events")) < 0)
		return -1;
	(void)printf("\ncheckpoints\n");
	DOC_EACH (k, doc_get(ckpts, "checkpoints")) {
		(void)printf("  %-28s rank %" PRId64 "  %-10s %10s  %s\n",
		             doc_cstr(doc_get(k, "checkpoint_id"), "?"),
		             doc_int(doc_get(k, "node_rank"), 0),
		             doc_cstr(doc_get(k, "state"), "?"),
		             cell_of(c, cell_bytes, doc_get(k, "size_bytes")),
		             doc_cstr(doc_get(k, "created_at"), ""));
	}
	if (doc_get(ckpts, "checkpoints") == NULL || doc_get(ckpts, "checkpoints")->count == 0)
		(void)printf("  none\n");
	(void)printf("\nevents\n");
	DOC_EACH (e, doc_get(events, "events")) {
		(void)printf("  %.19s  %-10s %s\n", doc_cstr(doc_get(e, "timestamp"), ""),
		             doc_cstr(doc_get(e, "kind"), ""),
		             out_plain(c->arena, doc_text(doc_get(e, "message"))));
	}
	return 0;
}

int cmd_view(struct cli *c, struct err *err)
{
	const struct doc *job, *reply;
	enum out_form form;

	if (out_form_one(c, &form, err) < 0 ||
	    resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", &job, err) < 0 ||
	    remote_get(c, &reply, err, "%s", job_path(c, job, "")) < 0)
		return -1;
	job = doc_get(reply, "training_job");
	if (form != OUT_TABLE) {
		out_one(form, job);
		return 0;
	}
	line("job", "%s  %s", doc_cstr(doc_get(job, "id"), "?"),
	     doc_cstr(doc_get(job, "name"), ""));
	line("project", "%s", doc_cstr(doc_path(job, "training_project", "name", NULL), "?"));
	line("status", "%s%s%s", out_status(c, doc_cstr(doc_get(job, "current_status"), "?")),
	     doc_is(doc_get(job, "stage"), DOC_TEXT) ? ", stage " : "",
	     doc_cstr(doc_get(job, "stage"), ""));
	if (doc_is(doc_get(job, "error_message"), DOC_TEXT) &&
	    !str_eq(doc_text(doc_get(job, "current_status")), "TRAINING_JOB_PENDING"))
		line("error", "%s", out_plain(c->arena, doc_text(doc_get(job, "error_message"))));
	else if (doc_is(doc_get(job, "reason"), DOC_TEXT))
		line("reason", "%s", out_plain(c->arena, doc_text(doc_get(job, "reason"))));
	view_progress(job);
	view_asks(job, doc_get(job, "instance_type"));
	line("priority", "%" PRId64, doc_int(doc_get(job, "priority"), 0));
	line("created", "%s", doc_cstr(doc_get(job, "created_at"), "?"));
	line("run time", "%s", cell_of(c, ps_run, job));
	line("attempts", "%" PRId64, doc_int(doc_get(job, "attempt"), 0));
	line("ckpt sync", "%s", cell_of(c, ps_sync, job));
	view_weights(c, job);
	return view_more(c, job, err);
}

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

static int stop_one(struct cli *c, const struct doc *job, struct err *err)
{
	const struct doc *after;

	if (post(c, job, "/stop", opt_flag(c, "now") ? "{\"now\":true}" : "{}", &after, err) < 0)
		return -1;
	if (strcmp(short_status(after), "STOPPED") == 0) /* it had not begun */
		out_say(c, "job %s is stopped", doc_cstr(doc_get(job, "id"), "?"));
	else
		out_say(c, "job %s: stop asked for%s", doc_cstr(doc_get(job, "id"), "?"),
		        opt_flag(c, "now") ? "" : "; it has its grace time to end by itself");
	return 0;
}

int cmd_stop(struct cli *c, struct err *err)
{
	const struct doc *jobs[JOBS_MAX], *list;
	size_t n = 0;

	if (opt_flag(c, "all")) {
		char question[80];

		if (search(c, NULL, false, &list, err) < 0)
			return -1;
		DOC_EACH (job, list) {
			if (n < COUNT(jobs))
				jobs[n++] = job;
		}
		if (n == 0) {
			out_say(c, "no job is active");
			return 0;
		}
		FMT(question, "Stop %zu job%s?", n, n == 1 ? "" : "s");
		if (out_confirm(c, question, NULL, err) < 0)
			return -1;
	} else {
		if (c->n_arg == 0)
			return err_set(err, ERR_INVALID,
			               "name the job to stop (@ is the newest), or --all");
		for (unsigned i = 0; i < c->n_arg; i++)
			if (resolve_job(c, c->arg[i], &jobs[n++], err) < 0)
				return -1;
	}
	for (size_t i = 0; i < n; i++)
		if (stop_one(c, jobs[i], err) < 0)
			return -1;
	return 0;
}

int cmd_recreate(struct cli *c, struct err *err)
{
	const struct doc *job, *made, *last;
	bool resume = opt_flag(c, "resume");
	enum out_form form;

	catch_interrupt();
	if (out_form_one(c, &form, err) < 0 || resolve_job(c, c->arg[0], &job, err) < 0 ||
	    post(c, job, "/recreate", resume ? "{\"resume\":true}" : "{}", &made, err) < 0)
		return -1;
	out_say(c, "job %s is job %s again: same code, same revisions%s",
	        doc_cstr(doc_get(made, "id"), "?"), doc_cstr(doc_get(job, "id"), "?"),
	        resume ? ", from its newest complete checkpoint" : "");
	if (form != OUT_TABLE)
		out_one(form, made);
	else if (!opt_flag(c, "follow"))
		(void)printf("%s\n", doc_cstr(doc_get(made, "id"), ""));
	if (!opt_flag(c, "follow"))
		return 0;
	return follow_job(c, made, &last, err) < 0 ? -1 : job_outcome(c, last);
}

int cmd_update(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(1000);
	const struct doc *job, *reply;

	if (!opt_flag(c, "priority"))
		return err_set(err, ERR_INVALID, "say what to change: --priority N");
	if (resolve_job(c, c->arg[0], &job, err) < 0)
		return -1;
	buf_printf(&body, "{\"priority\":%" PRId64 "}", opt_int(c, "priority", 0));
	if (remote_call(c, HTTP_PATCH, job_path(c, job, ""), &body, &reply, err) < 0)
		return -1;
	out_say(c, "job %s: priority %" PRId64, doc_cstr(doc_get(job, "id"), "?"),
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

	if (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", &job, err) < 0 ||
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
		line(label, "%-12s %s", cell_of(c, cell_bytes, last), buf_cstr(&bars));
	else
		line(label, "%-12.2f %s", doc_real(last, 0), buf_cstr(&bars));
}

static int metrics_once(struct cli *c, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(10);
	const struct doc *job, *reply;
	enum out_form form;

	if (out_form_one(c, &form, err) < 0 ||
	    resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", &job, err) < 0)
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

		(void)printf("node %s\n", doc_cstr(doc_get(node, "node_id"), "?"));
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
		out_say(c, doc_is(doc_get(job, "ended_at"), DOC_TEXT)
		                   ? "no samples: the job ended before it ran a command"
		                   : "no samples yet: they begin a second after the job's commands "
		                     "do");
	return 0;
}

int cmd_metrics(struct cli *c, struct err *err)
{
	return opt_flag(c, "watch") ? watch(c, metrics_once, err) : metrics_once(c, err);
}
