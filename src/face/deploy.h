/* deploy.h - checkpoints as an inference server's configuration (the stock client's deployment). */
#ifndef FACE_DEPLOY_H
#define FACE_DEPLOY_H

#include "face/face.h"

/* Answers create_model_version_from_inference_template into the open object of js. Only a dry run:
 * the configuration is printed, nothing is deployed. ERR_UNSUPPORTED otherwise. */
int deploy_checkpoints(struct request *rq, const struct doc *variables, struct js *js,
                       struct err *err) MUST_CHECK;

#endif
