/* unserved.c - see unserved.h. */
#include "server/control/unserved.h"

#include "server/control/specs.h"

#define LINES 50      /* of the log's end that are looked at */
#define WORDS_MAX 400 /* of its last one */

static bool serves(struct app *app, const char *job_id)
{
	struct specs_hold hold AUTO_SPEC = {0};
	struct err unread = {0};

	return specs_get(app, job_id, &hold, &unread) == 0 && hold.spec->serve.name != NULL;
}

/* Has it been so UNSERVED_MAX times in a row, and taken no request in any attempt? */
static bool is_vain(const struct model_attempt *t, size_t n, struct arena *a,
                    const struct wire_exit *now)
{
	unsigned alike = 0;

	for (size_t i = 0; i < n; i++) {
		struct wire_exit x = {0};
		struct err err = {0};

		if (t[i].exit_json == NULL ||
		    wire_exit_parse(&x, a, str_of(t[i].exit_json), &err) < 0)
			x.end = JOB_END_LOST;
		if (x.served)
			return false;
		alike = x.end == now->end && x.code == now->code ? alike + 1 : 0;
	}
	return alike >= UNSERVED_MAX;
}

/* Of the job's own output; "": none. */
static const char *last_line(struct app *app, struct arena *a, const char *job_id)
{
	struct joblog_line *line;
	struct err unread = {0};
	size_t n = 0;

	if (joblogs_range(app->logs, a, job_id, -1, 0, 0, LINES, true, &line, &n, &unread) < 0)
		return "";
	while (n > 0) {
		struct str text = str_trim(str_of(line[--n].text));

		if (line[n].stream != 's' && text.n > 0)
			return arena_strz(a, str_n(text.p, MIN(text.n, (size_t)WORDS_MAX)));
	}
	return "";
}

static const char *remedy(enum job_end end)
{
	if (end == JOB_END_OOM)
		return "; its model may need more memory: `stoker deploy --memory`, or memory of "
		       "the job's compute";
	if (end == JOB_END_OOM_CUDA)
		return "; its model may need more GPUs: `stoker deploy --accelerator TYPE:N`, or "
		       "a shorter context: `-- --max-model-len N` for vllm";
	return "";
}

const char *unserved_gives_up(struct app *app, struct arena *a, const struct model_job *job,
                              const struct wire_exit *x)
{
	struct model_attempt *t;
	struct err unread = {0};
	const char *last;
	size_t n = 0;

	if (job->core.attempt < UNSERVED_MAX || job->node_count > 1 || !serves(app, job->id) ||
	    meta_attempts(app->meta, a, job->id, &t, &n, &unread) < 0 || !is_vain(t, n, a, x))
		return NULL;
	last = last_line(app, a, job->id);
	return arena_printf(
		a,
		"its server has ended so %d times, never having taken a request, and is "
		"not started again%s%s%s",
		UNSERVED_MAX, remedy(x->end), last[0] != '\0' ? ": " : "", last);
}
