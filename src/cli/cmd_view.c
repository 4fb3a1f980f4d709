/* cmd_view.c - view: one page about a job. */
#include "cli/joblist.h"

#include "base/units.h"

#define NEWEST_SHOWN 5 /* of checkpoints, of events */
#define LINES_SHOWN 10 /* of commands, of variables */
#define TEXT_SHOWN 200 /* bytes of each */

/* Text of the job's own, on one line, and not longer than a person reads. */
static const char *shown(struct cli *c, struct str text)
{
	struct str plain = str_trim(str_of(out_plain(c->arena, text)));
	size_t n = MIN(plain.n, (size_t)TEXT_SHOWN);

	while (n < plain.n && n > 0 && ((unsigned char)plain.p[n] & 0xc0) == 0x80)
		n--; /* a character is not cut */
	return arena_printf(c->arena, "%.*s%s", (int)n, plain.p, n < plain.n ? "..." : "");
}

static void view_weights(struct cli *c, const struct doc *job)
{
	DOC_EACH (w, doc_get(job, "weights")) {
		const char *rev = doc_cstr(doc_get(w, "revision"), "");

		out_line("weights", "%s%s%.12s -> %s (%s)",
		         shown(c, doc_text(doc_get(w, "source"))), rev[0] != '\0' ? " @ " : "", rev,
		         shown(c, doc_text(doc_get(w, "mount_location"))),
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

/* Its name, and what the name stood for when the job was first started. */
static void view_image(struct cli *c, const struct doc *job)
{
	const struct doc *name = doc_path(job, "spec", "image", "base_image", NULL),
			 *is = doc_get(job, "image");

	if (!doc_is(name, DOC_TEXT))
		return;
	out_line("image", "%s", shown(c, doc_text(name)));
	if (doc_is(doc_get(is, "reference"), DOC_TEXT))
		out_line("", "%s", shown(c, doc_text(doc_get(is, "reference"))));
	else if (doc_is(doc_get(is, "id"), DOC_TEXT))
		out_line("", "id %s", shown(c, doc_text(doc_get(is, "id"))));
}

static void view_code(struct cli *c, const struct doc *spec)
{
	const struct doc *git = doc_get(spec, "git");
	size_t n = 0;

	if (doc_is(doc_get(git, "commit"), DOC_TEXT))
		out_line("git commit", "%.12s%s%s%s%s", shown(c, doc_text(doc_get(git, "commit"))),
		         doc_bool(doc_get(git, "dirty"), false) ? " with changes" : "",
		         doc_is(doc_get(git, "branch"), DOC_TEXT) ? ", branch " : "",
		         shown(c, doc_text(doc_get(git, "branch"))),
		         doc_is(doc_get(git, "remote"), DOC_TEXT)
		                 ? arena_printf(c->arena, ", %s",
		                                shown(c, doc_text(doc_get(git, "remote"))))
		                 : "");
	DOC_EACH (command, doc_path(spec, "runtime", "start_commands", NULL)) {
		if (n++ < LINES_SHOWN)
			out_line(n == 1 ? "commands" : "", "%s", shown(c, doc_text(command)));
	}
	if (n > LINES_SHOWN)
		out_line("", "... and %zu more", n - LINES_SHOWN);
}

/* The value of a secret is not known here, only its name. */
static void view_environment(struct cli *c, const struct doc *spec)
{
	size_t n = 0;

	DOC_EACH (v, doc_path(spec, "runtime", "environment_variables", NULL)) {
		const char *name = out_plain(c->arena, v->key);

		if (n++ >= LINES_SHOWN)
			continue;
		if (v->kind == DOC_MAP)
			out_line(n == 1 ? "environment" : "", "%s = secret %s", name,
			         shown(c, doc_text(doc_get(v, "name"))));
		else
			out_line(n == 1 ? "environment" : "", "%s=%s", name, shown(c, doc_text(v)));
	}
	if (n > LINES_SHOWN)
		out_line("", "... and %zu more", n - LINES_SHOWN);
}

static size_t count_of(const struct doc *list)
{
	return doc_is(list, DOC_LIST) ? list->count : 0;
}

/* The newest of a list that is in the order of time, the newest last. */
static void view_newest(struct cli *c, const char *title, const struct doc *list,
                        void (*row)(struct cli *c, const struct doc *d), const char *rest)
{
	size_t n = count_of(list), i = 0;

	(void)printf("\n%s\n", title);
	DOC_EACH (d, list) {
		if (i++ + NEWEST_SHOWN >= n)
			row(c, d);
	}
	if (n == 0)
		(void)printf("  none\n");
	if (n > NEWEST_SHOWN)
		out_put("  the newest %d of %s: %s\n", NEWEST_SHOWN, out_number(c, n), rest);
}

static void checkpoint_row(struct cli *c, const struct doc *k)
{
	out_put("  %-28s rank %" PRId64 "  %-10s %10s  %s\n",
	        shown(c, doc_text(doc_get(k, "checkpoint_id"))),
	        doc_int(doc_get(k, "node_rank"), 0), doc_cstr(doc_get(k, "state"), "?"),
	        out_cell_of(c, cell_bytes, doc_get(k, "size_bytes")),
	        doc_cstr(doc_get(k, "created_at"), ""));
}

static void event_row(struct cli *c, const struct doc *e)
{
	out_put("  %.19s  %-10s %s\n", doc_cstr(doc_get(e, "timestamp"), ""),
	        doc_cstr(doc_get(e, "kind"), ""),
	        out_plain(c->arena, doc_text(doc_get(e, "message"))));
}

static int view_more(struct cli *c, const struct doc *job, struct err *err)
{
	const char *id = doc_cstr(doc_get(job, "id"), "?");
	const struct doc *events, *ckpts;

	if (remote_get(c, &ckpts, err, "%s", job_path(c, job, "/checkpoints?all=true")) < 0 ||
	    remote_get(c, &events, err, "%s", job_path(c, job, "/events")) < 0)
		return -1;
	view_newest(c, "checkpoints", doc_get(ckpts, "checkpoints"), checkpoint_row,
	            arena_printf(c->arena, "stoker checkpoints ls %s --all", id));
	view_newest(c, "events", doc_get(events, "events"), event_row,
	            arena_printf(c->arena, "stoker events %s", id));
	return 0;
}

static void view_head(struct cli *c, const struct doc *job)
{
	const char *from = doc_cstr(doc_get(job, "recreated_from"), NULL);

	out_line("job", "%s  %s", doc_cstr(doc_get(job, "id"), "?"),
	         shown(c, doc_text(doc_get(job, "name"))));
	out_line("project", "%s/%s", shown(c, doc_text(doc_path(job, "team", "name", NULL))),
	         shown(c, doc_text(doc_path(job, "training_project", "name", NULL))));
	out_line("pushed by", "%s, %s%s%s",
	         shown(c, doc_text(doc_path(job, "user", "email", NULL))),
	         doc_cstr(doc_get(job, "created_at"), "?"), from != NULL ? ", recreated from " : "",
	         from != NULL ? from : "");
	out_line("status", "%s%s%s", out_status(c, doc_cstr(doc_get(job, "current_status"), "?")),
	         doc_is(doc_get(job, "stage"), DOC_TEXT) ? ", stage " : "",
	         doc_cstr(doc_get(job, "stage"), ""));
	if (doc_is(doc_get(job, "error_message"), DOC_TEXT) &&
	    !str_eq(doc_text(doc_get(job, "current_status")), "TRAINING_JOB_PENDING"))
		out_line("error", "%s",
		         out_plain(c->arena, doc_text(doc_get(job, "error_message"))));
	else if (doc_is(doc_get(job, "reason"), DOC_TEXT))
		out_line("reason", "%s", out_plain(c->arena, doc_text(doc_get(job, "reason"))));
	out_line("run time", "%s", out_cell_of(c, cell_run, job));
	out_line("attempts", "%" PRId64, doc_int(doc_get(job, "attempt"), 0));
	out_line("priority", "%" PRId64, doc_int(doc_get(job, "priority"), 0));
	out_line("checkpoints", "%s", out_cell_of(c, cell_sync, job));
}

int cmd_view(struct cli *c, struct err *err)
{
	const struct doc *job, *reply;
	enum out_form form;

	if (out_form_one(c, &form, err) < 0 ||
	    resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0 ||
	    remote_get(c, &reply, err, "%s", job_path(c, job, "")) < 0)
		return -1;
	job = doc_get(reply, "training_job");
	if (form != OUT_TABLE) {
		out_one(form, job);
		return 0;
	}
	view_head(c, job);
	view_progress(job);
	view_asks(job, doc_get(job, "instance_type"));
	view_image(c, job);
	view_code(c, doc_get(job, "spec"));
	view_environment(c, doc_get(job, "spec"));
	view_weights(c, job);
	return view_more(c, job, err);
}
