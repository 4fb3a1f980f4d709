/*
 * registry.h - credentials of a container registry as podman reads them: an auth file (containers-
 * auth.json(5)) of one entry, from what a job's docker_auth names.
 */
#ifndef REGISTRY_H
#define REGISTRY_H

#include "core/spec.h"

#include <stdatomic.h>

/* The registry as image names begin with it: without scheme, version and final slash; all of Docker
 * Hub's names are docker.io. */
char *registry_host(struct arena *a, const char *registry);
/* Is the image, by its name, of this registry? */
bool registry_has(const char *host, const char *image);
/* The auth file's text, appended to out (wipe it: seal_wipe_buf). The secrets are the values of
 * spec->registry_secret and registry_secret2. AWS_IAM asks the registry's region for a password
 * (ECR GetAuthorizationToken; AWS_ENDPOINT_URL_ECR names another endpoint). Errors name the secret,
 * not its value. */
int registry_auth(const struct job_spec *spec, const char *secret, const char *secret2,
                  const atomic_bool *cancel, struct buf *out, struct err *err) MUST_CHECK;

#endif
