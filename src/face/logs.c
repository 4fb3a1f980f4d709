/*
 * logs.c - the lines of a job: pages by time, as the stock client asks for them, and the raw
 * records with a long poll, for followers.
 *
 * The stock client's habits decide what a page is. Without a direction it wants the newest lines,
 * newest first; a missing start means the beginning, a missing limit as much as a page holds, and
 * an end near now means now, for the client's clock may be behind; it never asks for the rest.
 * Going upwards it stops at the first empty window, so a window with nothing in it is answered with
 * the lines that come after it.
 */
#include "base/clock.h"
#include "face/handlers.h"

#define NS_PER_MS ((int64_t)1000000)
#define MS_MAX (INT64_MAX / NS_PER_MS - 1)
#define LINES_MAX 20000
#define PAGE_MAX ((size_t)256 << 20) /* of what a follower asks for without a limit, escaped */
#define NEAR_NOW_MS (5 * 60 * 1000)
#define RAW_MAX ((size_t)4 << 20)
#define RAW_DEFAULT ((size_t)256 << 10)
#define WAIT_MS_MAX 30000
#define FOLDED_MAX ((size_t)1 << 20)

struct page_query {
	int64_t start_ms, end_ms, limit; /* 0 = not given */
	const char *direction, *min_level;
};

static int check_words(const struct page_query *q, struct err *err)
{
	static const char *const levels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

	if (q->direction != NULL && strcmp(q->direction, "asc") != 0 &&
	    strcmp(q->direction, "desc") != 0)
		return err_set(err, ERR_INVALID, "direction: \"%s\" is neither asc nor desc",
		               q->direction);
	for (size_t i = 0; q->min_level != NULL && i < COUNT(levels); i++)
		if (strcmp(q->min_level, levels[i]) == 0)
			return 0;
	if (q->min_level != NULL)
		return err_set(err, ERR_INVALID,
		               "min_level: \"%s\" is not DEBUG, INFO, WARNING or ERROR",
		               q->min_level);
	return 0;
}

static int find_lines(struct request *rq, const char *job_id, const struct page_query *q,
                      struct joblog_line **line, size_t *n, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	bool asc = q->direction != NULL && strcmp(q->direction, "asc") == 0;
	int64_t from = q->start_ms * NS_PER_MS, to = q->end_ms * NS_PER_MS;

	if (q->direction == NULL && q->end_ms > clock_wall_ms() - NEAR_NOW_MS)
		to = 0;
	if (joblogs_range(ctx->logs, rq->arena, job_id, -1, from, to, (size_t)q->limit, !asc, line,
	                  n, err) < 0)
		return -1;
	if (*n > 0 || !asc || to == 0)
		return 0;
	return joblogs_range(ctx->logs, rq->arena, job_id, -1, MAX(from, to), 0, (size_t)q->limit,
	                     false, line, n, err);
}

static void show_line(struct js *js, const struct joblog_line *l, struct buf *folded)
{
	buf_clear(folded);
	logline_fold(str_of(l->text), folded);
	js_open(js);
	js_key(js, "timestamp");
	js_fmt(js, "%" PRId64, l->ns); /* text: the client's numbers end at 2^53 */
	js_kv_str(js, "message", buf_view(folded));
	js_key(js, "replica");
	js_fmt(js, "%u", l->rank);
	js_kv_null(js, "level");
	js_kv_null(js, "request_id");
	js_close(js);
}

static int send_page(struct request *rq, const struct page_query *q, struct err *err)
{
	AUTO_BUF struct buf folded = BUF_INIT(FOLDED_MAX);
	AUTO_ANSWER struct answer an = {0};
	struct model_job j = {0};
	struct joblog_line *line = NULL;
	bool asc = q->direction != NULL && strcmp(q->direction, "asc") == 0;
	size_t n = 0;

	if (check_words(q, err) < 0 || handler_job(rq, &j, err) < 0)
		return -1;
	/* A job's output has no level, so a minimum level excludes it. */
	if (q->min_level == NULL && find_lines(rq, j.id, q, &line, &n, err) < 0)
		return -1;
	answer_open(&an);
	an.b.max = PAGE_MAX;
	js_key(&an.js, "logs");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show_line(&an.js, &line[asc ? i : n - 1 - i], &folded);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int logs_post(struct request *rq, struct err *err)
{
	struct page_query q = {0};
	const struct doc *body;

	if (body_read(rq, true, &body, err) < 0 ||
	    body_int(body, "start_epoch_millis", 0, MS_MAX, &q.start_ms, err) < 0 ||
	    body_int(body, "end_epoch_millis", 0, MS_MAX, &q.end_ms, err) < 0 ||
	    body_int(body, "limit", 1, LINES_MAX, &q.limit, err) < 0 ||
	    body_text(body, "direction", false, &q.direction, err) < 0 ||
	    body_text(body, "min_level", false, &q.min_level, err) < 0)
		return -1;
	return send_page(rq, &q, err);
}

int logs_get(struct request *rq, struct err *err)
{
	struct page_query q = {
		.direction = query_text(rq, "direction"),
		.min_level = query_text(rq, "min_level"),
	};

	if (query_int(rq, "start_epoch_millis", 0, MS_MAX, &q.start_ms, err) < 0 ||
	    query_int(rq, "end_epoch_millis", 0, MS_MAX, &q.end_ms, err) < 0 ||
	    query_int(rq, "limit", 1, LINES_MAX, &q.limit, err) < 0)
		return -1;
	return send_page(rq, &q, err);
}

struct raw_query {
	int64_t rank, offset, tail, max, wait_ms;
};

static int read_raw_query(struct request *rq, struct raw_query *q, struct err *err)
{
	*q = (struct raw_query){.offset = -1, .tail = -1, .max = RAW_DEFAULT};
	if (query_int(rq, "rank", 0, SPEC_NODES_MAX - 1, &q->rank, err) < 0 ||
	    query_int(rq, "offset", 0, INT64_MAX, &q->offset, err) < 0 ||
	    query_int(rq, "tail", 0, INT32_MAX, &q->tail, err) < 0 ||
	    query_int(rq, "max", 1, RAW_MAX, &q->max, err) < 0 ||
	    query_int(rq, "wait_ms", 0, WAIT_MS_MAX, &q->wait_ms, err) < 0)
		return -1;
	return 0;
}

/* The job's state is read before its log: what is there after a final state is all there is. */
int logs_raw(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct httpd *h = request_httpd(rq);
	uint64_t channel = httpd_channel(CHANNEL_JOB, rq->arg[1]);
	uint64_t seq = httpd_channel_seq(h, channel); /* before the look: no wake-up is lost */
	AUTO_BUF struct buf out = BUF_INIT(RAW_MAX + LOGLINE_MAX);
	struct model_job j = {0};
	struct raw_query q;
	uint64_t offset, next = 0, size = 0;
	uint32_t ranks = 0;
	bool final;

	if (read_raw_query(rq, &q, err) < 0 || handler_job(rq, &j, err) < 0)
		return -1;
	offset = q.offset >= 0 ? (uint64_t)q.offset : 0;
	if (q.offset < 0 && q.tail >= 0 &&
	    joblogs_tail_offset(ctx->logs, j.id, (uint32_t)q.rank, (uint64_t)q.tail, &offset, err) <
	            0)
		return -1;
	if (joblogs_read(ctx->logs, j.id, (uint32_t)q.rank, offset, (size_t)q.max, &out, &next,
	                 &size, err) < 0 ||
	    joblogs_ranks(ctx->logs, j.id, &ranks, err) < 0)
		return -1;
	final = job_state_is_final(j.core.state) && next >= size;
	/* A tail is answered at once: asked again it would begin elsewhere. */
	if (out.n == 0 && !final && q.wait_ms > 0 && q.tail < 0 && !rq->timed_out)
		return reply_wait(rq, channel, seq,
		                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + q.wait_ms);
	reply_header(rq, "X-Stoker-Offset", arena_printf(rq->arena, "%" PRIu64, offset));
	reply_header(rq, "X-Stoker-Next-Offset", arena_printf(rq->arena, "%" PRIu64, next));
	reply_header(rq, "X-Stoker-Job-Status", job_state_name(j.core.state));
	reply_header(rq, "X-Stoker-Final", final ? "true" : "false");
	reply_header(rq, "X-Stoker-Ranks", arena_printf(rq->arena, "%u", MAX(ranks, j.node_count)));
	reply_header(rq, "Cache-Control", "no-store");
	return reply_bytes(rq, 200, "text/plain; charset=utf-8", buf_view(&out));
}
