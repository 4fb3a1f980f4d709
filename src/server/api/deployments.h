/* deployments.h - what a request to a deployment does to it. */
#ifndef API_DEPLOYMENTS_H
#define API_DEPLOYMENTS_H

#include "face/face.h"

/* A request came for a name under which no job takes any. *waits: one will; else there is no
 * deployment of this name, or -1 says why it takes none. A sleeping one is woken. */
int deployments_asked(const struct ask *ask, const char *name, bool *waits,
                      struct err *err) MUST_CHECK;

#endif
