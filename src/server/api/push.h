/* push.h - jobs that the server pushes for a deployment, by the rules of every push. */
#ifndef PUSH_H
#define PUSH_H

#include "face/face.h"

/* A job of the deployment's revision: with the inputs that `like`, one of its jobs, found; like
 * NULL: by d->document_json. begins: the revision begins with it, and the row is stored too.
 * ERR_CONFLICT: the deployment has changed meanwhile. */
int push_replica(const struct ask *ask, const struct model_deployment *d, const char *like,
                 bool begins, struct model_job *out, struct err *err) MUST_CHECK;

#endif
