/* deploy.h - the stock client's deployment: checkpoints as an inference server's configuration. */
#ifndef FACE_DEPLOY_H
#define FACE_DEPLOY_H

#include "face/face.h"
#include "face/show.h"

/* Answers create_model_version_from_inference_template into the open object of js. A dry run has
 * the configuration alone; else the checkpoints are deployed, too. */
int deploy_checkpoints(struct request *rq, const struct doc *variables, struct js *js,
                       struct err *err) MUST_CHECK;

/* A checkpoint that is to be served. */
struct deploy_part {
	struct model_job job;      /* that wrote it */
	struct model_checkpoint c; /* complete; of several nodes the first one's part */
	size_t n_parts;            /* nodes that have one of it */
	/* adapter_config.json, by deploy_look(); NULL: it is none, or that is too long to be read.
	 */
	const struct doc *adapter;
};
/* name NULL: the newest of the job. */
int deploy_find(struct request *rq, const char *job_id, const char *name, struct deploy_part *out,
                struct err *err) MUST_CHECK;
/* Can one server have all of these? Several are LoRA adapters of one base model, each of them asked
 * by the name of its checkpoint. base: the model that they have whatever they name; NULL: none. */
int deploy_check_together(const struct deploy_part *part, size_t n, const char *base,
                          struct err *err) MUST_CHECK;
/* Reads what they say of themselves. */
int deploy_look(struct request *rq, struct deploy_part *part, size_t n, struct err *err) MUST_CHECK;
/* Does vLLM take them? ERR_UNSUPPORTED says which one it does not, and what to do. */
int deploy_check_adapters(const struct deploy_part *part, size_t n, struct err *err) MUST_CHECK;
/* With what rank does vLLM take all of them? */
int64_t deploy_lora_rank(const struct deploy_part *part, size_t n);

/* Deploys checkpoints with vLLM, as POST /v1/deployments does. */
struct deploy_order {
	const struct deploy_part *part;
	size_t n;         /* at least 1 */
	const char *name; /* any text: what they are served as is made of it */
	const char *image;
	const struct instance *size;
	const struct doc *env; /* environment_variables of a job */
};
int deploy_order(struct request *rq, const struct deploy_order *o, struct deployment_view *out,
                 struct err *err) MUST_CHECK;

#endif
