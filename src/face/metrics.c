/*
 * metrics.c - what a job used, as series: per node, per GPU, and the leader's once more on top.
 *
 * The stock client draws the last point of each series, wants the same GPUs in both GPU series, and
 * takes "no nodes" as "not yet".
 */
#include "face/handlers.h"
#include "face/show.h"

#define MS_MAX (INT64_MAX / 1000000 - 1)
#define POINTS_DEFAULT 240
#define POINTS_MAX 5000
#define STEP_MAX_S (30 * 86400)

struct series_query {
	int64_t start_ms, end_ms, step_s; /* 0 = not given */
};

struct node_samples {
	struct wire_sample *s;
	size_t n;
};

static int load(struct request *rq, const char *job_id, uint32_t rank, const struct series_query *q,
                struct node_samples *out, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	size_t points = q->step_s > 0 ? POINTS_MAX : POINTS_DEFAULT, n;
	int64_t end_ms = q->end_ms > 0 ? q->end_ms + 1 : 0, last_ms = INT64_MIN;
	struct str *line;

	if (joblogs_samples(ctx->logs, rq->arena, job_id, rank, q->start_ms, end_ms, points, &line,
	                    &n, err) < 0)
		return -1;
	out->s = ARENA_ARRAY(rq->arena, struct wire_sample, MAX(n, (size_t)1));
	out->n = 0;
	for (size_t i = 0; i < n; i++) {
		struct wire_sample *s = &out->s[out->n];
		const struct doc *d;
		struct err bad = {0};

		if (js_parse(rq->arena, line[i], &d, &bad) < 0 || wire_sample_parse(s, d, &bad) < 0)
			continue; /* torn by a crash */
		/* the newest one is always shown: it replaces the one that is too near to it */
		if (last_ms != INT64_MIN && s->wall_ms - last_ms < q->step_s * 1000) {
			if (i + 1 == n)
				out->s[out->n - 1] = *s;
			continue;
		}
		last_ms = s->wall_ms;
		out->n++;
	}
	return 0;
}

static void point(struct js *js, int64_t ms)
{
	char iso[CLOCK_ISO_CAP];

	clock_iso(ms, iso);
	js_kv(js, "timestamp", iso);
	js_close(js);
}

static void u64_point(struct js *js, int64_t ms, uint64_t value)
{
	js_open(js);
	js_kv_u64(js, "value", value);
	point(js, ms);
}

static void real_point(struct js *js, int64_t ms, double value)
{
	js_open(js);
	js_kv_real(js, "value", value);
	point(js, ms);
}

static void fraction_point(struct js *js, int64_t ms, uint64_t part, uint64_t whole)
{
	real_point(js, ms, whole > 0 ? (double)part / (double)whole : 0.0);
}

static void gpu_series(struct js *js, const struct node_samples *ns, bool memory)
{
	bool done[256] = {false}; /* by index: a node has at most 16 GPUs, numbered anyhow */

	js_open(js);
	for (size_t i = 0; i < ns->n; i++) {
		for (size_t g = 0; g < ns->s[i].n_gpus; g++) {
			uint32_t index = ns->s[i].gpu[g].index;
			char key[16];

			if (index >= COUNT(done) || done[index])
				continue;
			done[index] = true;
			FMT(key, "%u", index);
			js_key(js, key);
			js_list(js);
			for (size_t k = i; k < ns->n; k++)
				for (size_t m = 0; m < ns->s[k].n_gpus; m++) {
					const struct wire_gpu_sample *at = &ns->s[k].gpu[m];

					if (at->index != index)
						continue;
					if (memory)
						u64_point(js, ns->s[k].wall_ms, at->memory_bytes);
					else
						real_point(js, ns->s[k].wall_ms, at->utilization);
				}
			js_end(js);
		}
	}
	js_close(js);
}

/* The five series of a node, as members of the open object. */
static void node_series(struct js *js, const struct node_samples *ns)
{
	js_key(js, "cpu_usage");
	js_list(js);
	for (size_t i = 0; i < ns->n; i++)
		real_point(js, ns->s[i].wall_ms, ns->s[i].cpu_cores);
	js_end(js);
	js_key(js, "cpu_memory_usage_bytes");
	js_list(js);
	for (size_t i = 0; i < ns->n; i++)
		u64_point(js, ns->s[i].wall_ms, ns->s[i].memory_bytes);
	js_end(js);
	js_key(js, "gpu_utilization");
	gpu_series(js, ns, false);
	js_key(js, "gpu_memory_usage_bytes");
	gpu_series(js, ns, true);
	js_key(js, "ephemeral_storage");
	js_open(js);
	js_key(js, "usage_bytes");
	js_list(js);
	for (size_t i = 0; i < ns->n; i++)
		u64_point(js, ns->s[i].wall_ms, ns->s[i].scratch_bytes);
	js_end(js);
	js_key(js, "utilization");
	js_list(js);
	for (size_t i = 0; i < ns->n; i++)
		fraction_point(js, ns->s[i].wall_ms, ns->s[i].scratch_bytes,
		               ns->s[i].scratch_total);
	js_end(js);
	js_close(js);
}

/* The job's cache, as its leader measures it. null for a job without a cache. */
static void cache_series(struct js *js, const struct node_samples *leader)
{
	bool any = false;

	for (size_t i = 0; i < leader->n; i++)
		any = any || leader->s[i].cache_quota > 0 || leader->s[i].cache_bytes > 0;
	js_key(js, "cache");
	if (!any) {
		js_null(js);
		return;
	}
	js_open(js);
	js_key(js, "usage_bytes");
	js_list(js);
	for (size_t i = 0; i < leader->n; i++)
		u64_point(js, leader->s[i].wall_ms, leader->s[i].cache_bytes);
	js_end(js);
	js_key(js, "utilization");
	js_list(js);
	for (size_t i = 0; i < leader->n; i++)
		fraction_point(js, leader->s[i].wall_ms, leader->s[i].cache_bytes,
		               leader->s[i].cache_quota);
	js_end(js);
	js_close(js);
}

static int send_series(struct request *rq, const struct series_query *q, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct model_job j = {0};
	struct node_samples *node;
	uint32_t nodes;

	if (handler_job(rq, &j, err) < 0)
		return -1;
	nodes = MAX(j.node_count, 1U);
	node = ARENA_ARRAY(rq->arena, struct node_samples, nodes);
	for (uint32_t i = 0; i < nodes; i++)
		if (load(rq, j.id, i, q, &node[i], err) < 0)
			return -1;
	answer_open(&an);
	js_key(&an.js, "training_job");
	show_job(&an.js, rq->arena, &j, false);
	node_series(&an.js, &node[0]);
	cache_series(&an.js, &node[0]);
	js_key(&an.js, "per_node_metrics");
	js_list(&an.js);
	for (uint32_t i = 0; i < nodes; i++) {
		if (node[i].n == 0)
			continue; /* nothing was measured yet */
		js_open(&an.js);
		js_kv(&an.js, "node_id", arena_printf(rq->arena, "node-%u", i));
		js_key(&an.js, "metrics");
		js_open(&an.js);
		node_series(&an.js, &node[i]);
		js_close(&an.js);
		js_close(&an.js);
	}
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int metrics_post(struct request *rq, struct err *err)
{
	struct series_query q = {0};
	const struct doc *body;

	if (body_read(rq, true, &body, err) < 0 ||
	    body_int(body, "start_epoch_millis", 0, MS_MAX, &q.start_ms, err) < 0 ||
	    body_int(body, "end_epoch_millis", 0, MS_MAX, &q.end_ms, err) < 0 ||
	    body_int(body, "step_seconds", 1, STEP_MAX_S, &q.step_s, err) < 0)
		return -1;
	return send_series(rq, &q, err);
}

int metrics_get(struct request *rq, struct err *err)
{
	struct series_query q = {0};

	if (query_int(rq, "start_epoch_millis", 0, MS_MAX, &q.start_ms, err) < 0 ||
	    query_int(rq, "end_epoch_millis", 0, MS_MAX, &q.end_ms, err) < 0 ||
	    query_int(rq, "from", 0, MS_MAX, &q.start_ms, err) < 0 ||
	    query_int(rq, "to", 0, MS_MAX, &q.end_ms, err) < 0 ||
	    query_int(rq, "step_seconds", 1, STEP_MAX_S, &q.step_s, err) < 0)
		return -1;
	return send_series(rq, &q, err);
}
