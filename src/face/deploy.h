/* deploy.h - the stock client's deployment: checkpoints as an inference server's configuration. */
#ifndef FACE_DEPLOY_H
#define FACE_DEPLOY_H

#include "face/face.h"
#include "face/show.h"

/* Answers create_model_version_from_inference_template into the open object of js. A dry run has
 * the configuration alone; else the one checkpoint is deployed, too. */
int deploy_checkpoints(struct request *rq, const struct doc *variables, struct js *js,
                       struct err *err) MUST_CHECK;

/* Deploys a checkpoint with vLLM, as POST /v1/deployments does. */
struct deploy_order {
	const char *job_id, *checkpoint;
	const char *name; /* any text: what it is served as is made of it */
	const char *image;
	const struct instance *size;
	const struct doc *env; /* environment_variables of a job */
};
int deploy_order(struct request *rq, const struct deploy_order *o, struct deployment_view *out,
                 struct err *err) MUST_CHECK;

#endif
