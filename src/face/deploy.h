/* deploy.h - the stock client's deployment: checkpoints as an inference server's configuration. */
#ifndef FACE_DEPLOY_H
#define FACE_DEPLOY_H

#include "face/face.h"
#include "face/show.h"

/* Answers create_model_version_from_inference_template into the open object of js. A dry run has
 * the configuration alone; else the checkpoints are deployed, too. */
int deploy_checkpoints(struct request *rq, const struct doc *variables, struct js *js,
                       struct err *err) MUST_CHECK;

/* Deploys a checkpoint with vLLM, as POST /v1/deployments does. Several are adapters of one base
 * model in one server; each is asked by the name of its checkpoint. */
struct deploy_adapter {
	const char *job_id, *project_name, *checkpoint;
	size_t n_parts; /* nodes that have one of it */
};
struct deploy_order {
	const char *job_id, *checkpoint;
	const char *name; /* any text: what it is served as is made of it */
	const char *image;
	const struct instance *size;
	const struct doc *env;             /* environment_variables of a job */
	const struct deploy_adapter *more; /* beside the checkpoint */
	size_t n_more;
	int64_t lora_rank; /* the most of several */
};
int deploy_order(struct request *rq, const struct deploy_order *o, struct deployment_view *out,
                 struct err *err) MUST_CHECK;

#endif
