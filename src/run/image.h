/*
 * image.h - brings the image of a job, with the credentials that the job names for its registry.
 *
 * A job's first start asks the registry what the tag names now, and that stays with the job: its
 * retries and recreations get the same image, by its id where it is still on this machine, else
 * pulled by digest. Images of this machine (localhost/...) have an id alone, and one that is named
 * by digest is pulled only when it is not there. A registry that cannot be asked is no reason not
 * to start a job whose image is here: this one is taken, and the log says so.
 *
 * The credentials are in no argument list: podman reads them from a file in the attempt's folder,
 * 0600, which is removed when the pull ends, however it ends.
 */
#ifndef IMAGE_H
#define IMAGE_H

#include "core/spec.h"
#include "core/wire.h"

#include <stdatomic.h>

#define IMAGE_PULL_MS (60 * 60 * 1000)
#define IMAGE_ASK_MS 10000 /* for a registry to answer when its image is here already */
#define IMAGE_AUTH "registry-auth.json" /* in the attempt's folder, while an image is pulled */

struct image {
	const char *dir; /* where credentials are put: the attempt's folder, or a keeper's own */
	const struct job_spec *spec;
	const struct wire_launch *launch;
	const atomic_bool *cancel;
	/* Reports the current step as text, at least twice a second. */
	void (*note)(void *arg, const char *words);
	void *arg;
};

struct image_got {
	struct wire_image is;       /* what it was resolved to: the image runs by is.id */
	const char *workdir, *path; /* its working directory and its PATH; path NULL: it has none */
	const char *env;            /* its variables, NAME=VALUE, a line each */
	const char *unasked; /* why the registry could not say what the tag names; NULL: it did */
};

/* Makes spec->base_image ready: `wanted`, or with NULL what its name stands for now. Texts are put
 * into `a`. Errors name the image and say how to mend it: ERR_PODMAN_MISSING, ERR_IMAGE_DENIED,
 * ERR_IMAGE_NOT_FOUND, ERR_IMAGE_PULL_FAILED, ERR_REGISTRY_UNREACHABLE, ERR_CERTIFICATE_UNTRUSTED,
 * ERR_NO_SPACE, ERR_TIMEOUT, ERR_CANCELED. */
int image_bring(struct arena *a, const struct image *im, const struct wire_image *wanted,
                struct image_got *out, struct err *err) MUST_CHECK;
/* Which of an image's names by digest is of the repository of `name` (any name that podman takes):
 * one with `digest` if there is, else the first. NULL: none, or they are of this machine alone. */
const char *image_reference(struct arena *a, const char *name, struct str references,
                            const char *digest);

#endif
