/* cmd_view.c - view: one page about a job. */
#include "cli/joblist.h"

#include "base/units.h"

static void view_weights(struct cli *c, const struct doc *job)
{
	DOC_EACH (w, doc_get(job, "weights")) {
		const char *rev = doc_cstr(doc_get(w, "revision"), "");

		out_line("weights", "%s%s%.12s -> %s (%s)", doc_cstr(doc_get(w, "source"), "?"),
		         rev[0] != '\0' ? " @ " : "", rev,
		         doc_cstr(doc_get(w, "mount_location"), "?"),
		         out_cell_of(c, cell_bytes, doc_get(w, "bytes")));
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
	out_line("asks for", "%s", buf_cstr(&b));
}

static void view_progress(const struct doc *job)
{
	const struct doc *p = doc_get(job, "progress");
	char done[UNITS_CAP], total[UNITS_CAP], rate[UNITS_CAP];

	if (!doc_is(p, DOC_MAP))
		return;
	if (doc_is(doc_get(p, "note"), DOC_TEXT) && doc_text(doc_get(p, "note")).n > 0) {
		out_line("progress", "%s", doc_cstr(doc_get(p, "note"), ""));
		return;
	}
	out_line("progress", "%s of %s, %s",
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
		             out_cell_of(c, cell_bytes, doc_get(k, "size_bytes")),
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
	out_line("job", "%s  %s", doc_cstr(doc_get(job, "id"), "?"),
	         doc_cstr(doc_get(job, "name"), ""));
	out_line("project", "%s", doc_cstr(doc_path(job, "training_project", "name", NULL), "?"));
	out_line("status", "%s%s%s", out_status(c, doc_cstr(doc_get(job, "current_status"), "?")),
	         doc_is(doc_get(job, "stage"), DOC_TEXT) ? ", stage " : "",
	         doc_cstr(doc_get(job, "stage"), ""));
	if (doc_is(doc_get(job, "error_message"), DOC_TEXT) &&
	    !str_eq(doc_text(doc_get(job, "current_status")), "TRAINING_JOB_PENDING"))
		out_line("error", "%s",
		         out_plain(c->arena, doc_text(doc_get(job, "error_message"))));
	else if (doc_is(doc_get(job, "reason"), DOC_TEXT))
		out_line("reason", "%s", out_plain(c->arena, doc_text(doc_get(job, "reason"))));
	view_progress(job);
	view_asks(job, doc_get(job, "instance_type"));
	out_line("priority", "%" PRId64, doc_int(doc_get(job, "priority"), 0));
	out_line("created", "%s", doc_cstr(doc_get(job, "created_at"), "?"));
	out_line("run time", "%s", out_cell_of(c, cell_run, job));
	out_line("attempts", "%" PRId64, doc_int(doc_get(job, "attempt"), 0));
	out_line("ckpt sync", "%s", out_cell_of(c, cell_sync, job));
	view_weights(c, job);
	return view_more(c, job, err);
}
