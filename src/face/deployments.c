/* deployments.c - deployments as people see and change them: GET, PATCH, DELETE of /v1/deployments.
 * deploy_job.c makes one, serving.c passes requests on to its jobs. */
#include "face/answer.h"
#include "face/face.h"
#include "face/handlers.h"
#include "face/show.h"

struct shown_serving {
	struct deployment_view v;
	const char *state, *url;
};
#define OF(k, n, f) ROW_AS(shown_serving, k, n, v.f)
SHOWN(serving, "Deployment", shown_serving, OF(R_TEXT, "name", d.name),
      ROW(shown_serving, R_TEXT, state), OF(R_TEXT, "team_name", d.team_name),
      OF(R_TEXT | R_NULL, "project_name", d.project_name), ROW(shown_serving, R_TEXT, url),
      OF(R_TEXT | R_NULL, "checkpoint", d.checkpoint),
      OF(R_TEXT | R_NULL, "training_job_id", job_id), OF(R_U32, "revision", d.revision),
      OF(R_U32, "replicas", d.replicas), OF(R_U32, "replicas_ready", ready),
      OF(R_U32, "scale_to_zero_s", d.idle_s), OF(R_TEXT | R_NULL, "reason", reason),
      OF(R_TEXT | R_NULL, "deployed_by", d.user), OF(R_TIME | R_NULL, "created_at", d.created_ms),
      OF(R_TIME | R_NULL, "updated_at", d.updated_ms), OF(R_U32, "requests_in_flight", in_flight),
      OF(R_U64, "requests", requests), OF(R_U64, "failures", failures));

static void show(struct request *rq, const struct deployment_view *v, struct js *js)
{
	struct shown_serving s = {
		.v = *v,
		.state = deployment_state_word[v->state],
		.url = arena_printf(rq->arena, "%s/deployments/%s", face_url(rq), v->d.name)};

	record_write_js(&serving_record, &s, js);
}

struct shown_replica {
	const char *training_job_id, *status;
	uint32_t revision, requests_in_flight;
	bool ready;
	uint64_t requests, failures;
};
SHOWN(replica, "Replica", shown_replica, ROW(shown_replica, R_TEXT, training_job_id),
      ROW(shown_replica, R_U32, revision), ROW(shown_replica, R_TEXT, status),
      ROW(shown_replica, R_BOOL, ready), ROW(shown_replica, R_U32, requests_in_flight),
      ROW(shown_replica, R_U64, requests), ROW(shown_replica, R_U64, failures));

int deployment_send(struct request *rq, const struct deployment_view *v, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, "deployment");
	show(rq, v, &an.js);
	js_key(&an.js, "replicas");
	js_list(&an.js);
	for (size_t i = 0; i < v->n_jobs; i++) {
		const struct model_replica *j = &v->jobs[i];
		struct shown_replica s = {.training_job_id = j->job_id,
		                          .status = job_state_name(j->state),
		                          .revision = j->revision,
		                          .requests_in_flight = j->in_flight,
		                          .ready = j->serves,
		                          .requests = j->requests,
		                          .failures = j->failures};

		record_write_js(&replica_record, &s, &an.js);
	}
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int deployments_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct deployment_view *v;
	size_t n = 0;

	if (ctx->ops->deployments->list(face_ask(rq), &v, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "deployments");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		show(rq, &v[i], &an.js);
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

int deployment_show(struct request *rq, struct err *err)
{
	struct deployment_view v = {0};

	if (face_ctx(rq)->ops->deployments->get(face_ask(rq), arg_text(rq, 0), &v, err) < 0)
		return -1;
	return deployment_send(rq, &v, err);
}

static int want(struct request *rq, enum deployment_wanted wanted, struct err *err)
{
	struct deployment_view v = {0};

	if (face_ctx(rq)->ops->deployments->want(face_ask(rq), arg_text(rq, 0), wanted, &v, err) <
	    0)
		return -1;
	return deployment_send(rq, &v, err);
}

int deployment_stop(struct request *rq, struct err *err)
{
	return want(rq, DEPLOYMENT_STOP, err);
}

int deployment_start(struct request *rq, struct err *err)
{
	return want(rq, DEPLOYMENT_RUN, err);
}

int deployment_sizes(const struct doc *body, int64_t *replicas, int64_t *idle_s, struct err *err)
{
	*replicas = *idle_s = -1;
	if (body_int(body, "replicas", 1, DEPLOYMENT_REPLICAS_MAX, replicas, err) < 0)
		return -1;
	return body_int(body, "scale_to_zero_s", 0, DEPLOYMENT_IDLE_MAX_S, idle_s, err);
}

int deployment_change(struct request *rq, struct err *err)
{
	struct deployment_view v = {0};
	int64_t replicas, idle_s;
	const struct doc *body;

	if (body_read(rq, false, &body, err) < 0 ||
	    deployment_sizes(body, &replicas, &idle_s, err) < 0)
		return -1;
	if (replicas < 0 && idle_s < 0)
		return err_set(err, ERR_INVALID,
		               "replicas or scale_to_zero_s: one of them is needed");
	if (face_ctx(rq)->ops->deployments->scale(face_ask(rq), arg_text(rq, 0), replicas, idle_s,
	                                          &v, err) < 0)
		return -1;
	return deployment_send(rq, &v, err);
}

int deployment_remove(struct request *rq, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	if (face_ctx(rq)->ops->deployments->remove(face_ask(rq), arg_text(rq, 0), err) < 0)
		return -1;
	answer_open(&an);
	return answer_send(rq, &an, 200, err);
}
