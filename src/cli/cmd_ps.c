/* cmd_ps.c - ps: what runs, what waits and why, and what has ended. */
#include "cli/joblist.h"

#include "core/job.h"

#include <ctype.h>

#define STATUSES_MAX 32

static void ps_project(const struct doc *d, struct buf *b)
{
	buf_printf(b, "%s/%s", doc_cstr(doc_path(d, "team", "name", NULL), "?"),
	           doc_cstr(doc_path(d, "training_project", "name", NULL), "?"));
}
static void ps_user(const struct doc *d, struct buf *b)
{
	cell_text(doc_path(d, "user", "email", NULL), b);
}
static void ps_status(const struct doc *d, struct buf *b)
{
	const struct doc *end = doc_get(d, "end");

	buf_puts(b, job_status(d));
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
static void ps_reason(const struct doc *d, struct buf *b)
{
	const struct doc *why = doc_get(d, "error_message");

	if (!doc_is(why, DOC_TEXT))
		why = doc_get(d, "reason");
	/* one that has its place and does not run yet says what for */
	if (!doc_is(why, DOC_TEXT) && strcmp(job_status(d), "RUNNING") != 0)
		why = doc_path(d, "progress", "note", NULL);
	cell_text(why, b);
}

static const struct out_col ps_cols[] = {
	{"JOB", false, cell_text, "id"},       {"NAME", false, cell_text, "name"},
	{"PROJECT", false, ps_project, NULL},  {"USER", false, ps_user, NULL},
	{"STATUS", false, ps_status, NULL},    {"GPU", false, ps_gpu, NULL},
	{"AGE", true, cell_age, "created_at"}, {"RUN", true, cell_run, NULL},
	{"CKPT", false, cell_sync, NULL},      {"REASON", false, ps_reason, NULL},
};

/* "running", "TRAINING_JOB_RUNNING": as the API has it. */
static int read_status(struct cli *c, const char *word, const char **out, struct err *err)
{
	char *full = arena_printf(
		c->arena, "%s%s",
		strncasecmp(word, "training_job_", 13) == 0 ? "" : "TRAINING_JOB_", word);
	bool known;

	for (char *p = full; *p != '\0'; p++)
		*p = (char)toupper((unsigned char)*p);
	(void)job_states_of_status(str_of(full), &known);
	if (!known)
		return err_set(err, ERR_USAGE,
		               "--status %s: unknown status; use pending, created, deploying, "
		               "running, completed, failed, deploy_failed or stopped",
		               word);
	*out = full;
	return 0;
}

struct asked {
	struct joblist_want want;
	const char *status[2 * STATUSES_MAX];
	bool others; /* jobs of others were left out because nobody asked for them */
};

static int read_options(struct cli *c, struct asked *a, struct err *err)
{
	const char *word[STATUSES_MAX], *name = opt_text(c, "project", NULL);
	const struct doc *project;
	size_t n_words;
	int64_t limit = opt_int(c, "limit", JOBLIST_SHOWN);

	*a = (struct asked){.want.user = opt_text(c, "user", NULL)};
	if (a->want.user != NULL && opt_flag(c, "everyone"))
		return err_set(err, ERR_USAGE, "use --user or --everyone, not both");
	if (limit < 1 || limit > JOBLIST_MAX)
		return err_set(err, ERR_USAGE, "--limit must be from 1 to %d", JOBLIST_MAX);
	a->want.limit = (size_t)limit;
	a->others = a->want.mine = a->want.user == NULL && !opt_flag(c, "everyone");
	a->want.statuses = a->status;
	n_words = opt_list(c, "status", word, COUNT(word));
	for (size_t i = 0; i < n_words; i++) {
		const char **one = &a->status[a->want.n_statuses++];

		if (read_status(c, word[i], one, err) < 0)
			return -1;
		if (strcmp(*one, "TRAINING_JOB_FAILED") == 0) /* as in `notify` */
			a->status[a->want.n_statuses++] = "TRAINING_JOB_DEPLOY_FAILED";
	}
	if (a->want.n_statuses == 0 && !opt_flag(c, "all")) {
		a->want.statuses = joblist_active;
		a->want.n_statuses = n_joblist_active;
	}
	if (name == NULL)
		return 0;
	if (resolve_project(c, name, &project, err) < 0)
		return -1;
	a->want.project_id = doc_cstr(doc_get(project, "id"), "");
	return 0;
}

/* Say how many jobs the list leaves out, so that nobody thinks they are gone. */
static int say_rest(struct cli *c, const struct asked *a, const struct joblist *mine,
                    struct err *err)
{
	struct joblist_want want = a->want;
	struct joblist all;

	if (mine->list->count < mine->total)
		out_message(c, "%s of %s shown: --limit N shows more",
		            out_number(c, mine->list->count), out_number(c, mine->total));
	if (!a->others || c->quiet)
		return 0;
	want.mine = false;
	want.limit = 1;
	if (joblist(c, &want, &all, err) < 0)
		return -1;
	if (all.total > mine->total)
		out_message(c, "%s of other users: --everyone shows them",
		            out_count(c, all.total - mine->total, "job"));
	return 0;
}

static int ps_once(struct cli *c, struct err *err)
{
	struct joblist found;
	struct asked a;
	const char *none = opt_flag(c, "all") || opt_flag(c, "status")
	                           ? "no jobs"
	                           : "no active jobs (`stoker ps -a` includes finished ones)";

	if (read_options(c, &a, err) < 0 || joblist(c, &a.want, &found, err) < 0 ||
	    out_list(c, found.list, ps_cols, COUNT(ps_cols), none, err) < 0)
		return -1;
	return say_rest(c, &a, &found, err);
}

int cmd_ps(struct cli *c, struct err *err)
{
	return opt_flag(c, "watch") ? watch(c, ps_once, err) : ps_once(c, err);
}
