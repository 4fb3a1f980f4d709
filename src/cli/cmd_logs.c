/* cmd_logs.c - logs: what a job printed, from any offset, followed to its end. */
#include "cli/lines.h"

#include "base/clock.h"
#include "base/units.h"

#define CHUNK ((size_t)4 << 20)
#define WAIT_MS 20000               /* one node: the server answers as soon as there is a line */
#define WAIT_MANY 250               /* several nodes take turns */
#define AGAIN ((uint64_t)256 << 10) /* read again after a connection was lost */
#define OUTAGE_S 600                /* how long a follower waits for a server that went away */

struct tail {
	struct cli *c;
	const struct doc *job;
	uint32_t rank, ranks;
	bool system_only, own_lines;
	struct lines_form form;
	struct lines *lines;
	int64_t since_ns, until_ns; /* 0 = no limit */
	uint64_t *offset;           /* per rank */
	int64_t *last_ns;           /* of the records that were read */
	bool *final;
	bool unread; /* whoever read stdout is gone: `| head` */
};

static int fetch(struct tail *t, uint32_t rank, const char *query, struct http_reply *reply,
                 struct err *err)
{
	struct cli *c = t->c;
	char *auth = arena_printf(c->arena, "Bearer %s", c->token);
	struct http_header header = {"Authorization", auth};
	struct http_call call = {.method = HTTP_GET,
	                         .headers = &header,
	                         .n_headers = 1,
	                         .body_max = 4 * CHUNK,
	                         .total_ms = WAIT_MS + 60000,
	                         .stall_ms = WAIT_MS + 40000,
	                         .connect_ms = 5000,
	                         .cancel = &interrupted};

	call.url = arena_printf(c->arena, "%s%s?rank=%u&max=%zu%s", c->url,
	                        job_path(c, t->job, "/logs/raw"), rank, CHUNK, query);
	if (http_do(c->http, &call, reply, err) < 0)
		return -1;
	return remote_expect(&call, reply, err);
}

static void print_record(struct tail *t, uint32_t rank, const struct logline *l)
{
	bool own = l->stream == 's';

	if (l->ns < t->since_ns || (t->until_ns > 0 && l->ns >= t->until_ns) ||
	    (t->system_only && !own) || (own && !t->own_lines))
		return;
	out_progress_end(t->c);
	lines_put(t->lines, rank, l);
}

static uint64_t header_u64(const struct http_reply *r, const char *name, uint64_t dflt)
{
	struct err ignored = {0};
	uint64_t v = dflt;

	(void)!str_u64(http_header_of(r, name), 0, UINT64_MAX, &v,
	               &ignored); /* absent: the default */
	return v;
}

/* The server that answers again may be another one, which knows the runner's lines and not all that
 * the first one added: then offsets have moved a little. Times rise strictly, so what was read
 * before is known by them. */
static void step_back(struct tail *t, uint32_t rank)
{
	if (t->last_ns[rank] > 0)
		t->offset[rank] -= MIN(t->offset[rank], AGAIN);
}

/* One page of one node. *moved: something came. */
static int page(struct tail *t, uint32_t rank, const char *more, bool *moved, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	char query[160];
	struct str bytes;
	struct logline line;

	FMT(query, "&offset=%" PRIu64 "%s", t->offset[rank], more);
	if (fetch(t, rank, query, &reply, err) < 0)
		return -1;
	bytes = buf_view(&reply.body);
	while (logline_next(&bytes, &line)) {
		if (line.ns <= t->last_ns[rank])
			continue;
		t->last_ns[rank] = line.ns;
		print_record(t, rank, &line);
	}
	*moved = reply.body.n > 0;
	t->offset[rank] = header_u64(&reply, "X-Stoker-Next-Offset", t->offset[rank]);
	t->final[rank] =
		str_eq(http_header_of(&reply, "X-Stoker-Final"), "true") && reply.body.n == 0;
	return 0;
}

/* Where each node's last `lines` lines begin. */
static int seek_tail(struct tail *t, int64_t lines, struct err *err)
{
	for (uint32_t r = 0; r < t->ranks; r++) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		char query[64];

		FMT(query, "&tail=%" PRId64, lines);
		if (fetch(t, r, query, &reply, err) < 0)
			return -1;
		t->offset[r] = header_u64(&reply, "X-Stoker-Offset", 0);
	}
	return 0;
}

static void show_waiting(struct tail *t)
{
	const struct doc *reply, *job;
	struct err ignored = {0};
	const char *status;

	if (t->c->quiet || lines_are_open(t->lines) ||
	    remote_get(t->c, &reply, &ignored, "%s", job_path(t->c, t->job, "")) < 0)
		return;
	job = doc_get(reply, "training_job");
	status = doc_cstr(doc_get(job, "current_status"), "?");
	if (doc_is(doc_get(job, "progress"), DOC_MAP))
		out_progress(t->c, "%s: %s", out_status(t->c, status),
		             doc_cstr(doc_path(job, "progress", "note", NULL), ""));
	else if (doc_is(doc_get(job, "reason"), DOC_TEXT))
		out_progress(t->c, "%s: %s", out_status(t->c, status),
		             doc_cstr(doc_get(job, "reason"), ""));
}

/* Until every node's log is final; an outage of the server is waited out. */
static int follow(struct tail *t, struct err *err)
{
	bool *lost = ARENA_ARRAY(t->c->arena, bool, t->ranks);
	int64_t lost_since = 0;

	while (!t->unread) {
		bool all = true;

		for (uint32_t r = 0; r < t->ranks && !t->unread; r++) {
			bool moved = false;
			bool one = t->ranks == 1 || t->rank != UINT32_MAX;
			char more[40];

			if ((t->rank != UINT32_MAX && r != t->rank) || t->final[r])
				continue;
			FMT(more, "&wait_ms=%d",
			    one ? (t->c->tty_err ? 1500 : WAIT_MS) : WAIT_MANY);
			if (page(t, r, more, &moved, err) < 0) {
				if (!err_info(err)->retry || err->code == ERR_CANCELED)
					return -1;
				if (!lost[r])
					step_back(t, r);
				lost[r] = true;
				if (lost_since == 0)
					lost_since = clock_mono_ms();
				if (clock_mono_ms() - lost_since > OUTAGE_S * 1000)
					return -1;
				lines_hide(t->lines);
				out_progress(t->c,
				             "lost the connection to the server, retrying: %s",
				             err->msg);
				err_clear(err);
				clock_sleep_ms(500);
				all = false;
				continue;
			}
			lost_since = 0;
			lost[r] = false;
			if (out_flush(&t->unread, err) < 0)
				return -1;
			if (!moved && t->c->tty_err)
				show_waiting(t);
			all = all && t->final[r];
		}
		if (all)
			break;
	}
	out_progress_end(t->c);
	return 0;
}

static int everything(struct tail *t, struct err *err)
{
	for (uint32_t r = 0; r < t->ranks; r++) {
		bool moved = true;

		while (moved && !t->unread && (t->rank == UINT32_MAX || t->rank == r))
			if (page(t, r, "", &moved, err) < 0 || out_flush(&t->unread, err) < 0)
				return -1;
	}
	return 0;
}

static void tail_init(struct tail *t, struct cli *c, const struct doc *job)
{
	uint32_t n = (uint32_t)MAX(doc_int(doc_get(job, "node_count"), 1), (int64_t)1);

	*t = (struct tail){.c = c, .job = job, .rank = UINT32_MAX, .ranks = n, .own_lines = true};
	t->offset = ARENA_ARRAY(c->arena, uint64_t, n);
	t->last_ns = ARENA_ARRAY(c->arena, int64_t, n);
	t->final = ARENA_ARRAY(c->arena, bool, n);
	t->form.nodes = n > 1;
}

/* Prints what there is, or all until the end; what is open then is shown as it stands. */
static int print_all(struct tail *t, bool to_the_end, struct err *err)
{
	int r;

	t->lines = lines_new(t->c, &t->form);
	r = to_the_end ? follow(t, err) : everything(t, err);
	lines_end(t->lines);
	return r;
}

static int job_outcome(struct cli *c, const struct doc *job)
{
	const char *status = doc_cstr(doc_get(job, "current_status"), "?");
	struct str end = doc_text(doc_path(job, "end", "kind", NULL));

	out_message(c, "job %s: %s", doc_cstr(doc_get(job, "id"), "?"), out_job_status(c, job));
	if (strcmp(status, "TRAINING_JOB_COMPLETED") == 0)
		return 0;
	if (strcmp(status, "TRAINING_JOB_STOPPED") == 0)
		return CLI_EXIT_STOPPED;
	return str_eq(end, "timeout") || str_eq(end, "idle") ? CLI_EXIT_TIMEOUT : CLI_EXIT_FAILED;
}

int follow_job(struct cli *c, const struct doc *job, struct err *err)
{
	const char *id = doc_cstr(doc_get(job, "id"), "");
	const struct doc *reply;
	struct tail t;

	tail_init(&t, c, job);
	if (print_all(&t, true, err) == 0 && !t.unread &&
	    remote_get(c, &reply, err, "%s", job_path(c, job, "")) == 0)
		return job_outcome(c, doc_get(reply, "training_job"));
	if (!t.unread && err->code != ERR_CANCELED)
		return -1;
	err_clear(err);
	out_message(c, "\ndetached: job %s keeps running. `stoker stop %s` stops it", id, id);
	return CLI_EXIT_DETACHED;
}

/* When attempt `number` was launched, on the first of its nodes, in ns; 0 = never. */
static int64_t launched_ns(const struct doc *attempts, int64_t number)
{
	struct err ignored = {0};
	int64_t first = 0, ms;

	DOC_EACH (at, attempts) {
		if (doc_int(doc_get(at, "number"), -1) == number &&
		    doc_is(doc_get(at, "launched_at"), DOC_TEXT) &&
		    clock_parse(doc_text(doc_get(at, "launched_at")), &ms, &ignored) == 0 &&
		    (first == 0 || ms < first))
			first = ms;
	}
	return first * 1000000;
}

/* Lines before the first launch belong to the first attempt. */
static int only_attempt(struct tail *t, int64_t number, struct err *err)
{
	const struct doc *reply, *attempts;
	int64_t from;

	if (remote_get(t->c, &reply, err, "%s", job_path(t->c, t->job, "/attempts")) < 0)
		return -1;
	attempts = doc_get(reply, "attempts");
	from = launched_ns(attempts, number);
	if (from == 0)
		return err_set(err, ERR_NOT_FOUND,
		               "the job has no attempt %" PRId64
		               ": `stoker view` shows the number of attempts; 0 is the first",
		               number);
	t->since_ns = MAX(t->since_ns, number == 0 ? 0 : from);
	t->until_ns = launched_ns(attempts, number + 1);
	return 0;
}

int cmd_logs(struct cli *c, struct err *err)
{
	const struct doc *job;
	const char *since = opt_text(c, "since", NULL);
	struct tail t;
	uint64_t seconds;

	if (opt_flag(c, "follow"))
		catch_interrupt();
	if (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0)
		return -1;
	tail_init(&t, c, job);
	t.form.raw = opt_flag(c, "raw");
	t.form.times = opt_flag(c, "timestamps");
	t.system_only = opt_flag(c, "system");
	if (opt_flag(c, "node")) {
		t.rank = (uint32_t)opt_int(c, "node", 0);
		if (t.rank >= t.ranks)
			return t.ranks == 1 ? err_set(err, ERR_NOT_FOUND, "the job has one node: 0")
			                    : err_set(err, ERR_NOT_FOUND,
			                              "the job has %u nodes: 0 to %u", t.ranks,
			                              t.ranks - 1);
	}
	if (since != NULL) {
		if (units_seconds(str_of(since), &seconds, err) < 0)
			return err_wrap(err, "--since");
		t.since_ns = clock_wall_ns() - (int64_t)seconds * 1000000000;
	}
	if (opt_flag(c, "attempt") && only_attempt(&t, opt_int(c, "attempt", 0), err) < 0)
		return -1;
	if (opt_flag(c, "tail") && seek_tail(&t, MAX(opt_int(c, "tail", 0), (int64_t)0), err) < 0)
		return -1;
	if (!opt_flag(c, "follow"))
		return print_all(&t, false, err);
	if (print_all(&t, true, err) < 0) {
		if (err->code != ERR_CANCELED)
			return -1;
		err_clear(err);
		out_message(c, "\ndetached: the job keeps running");
		return CLI_EXIT_DETACHED;
	}
	return 0;
}
