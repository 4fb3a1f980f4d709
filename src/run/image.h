/*
 * image.h - brings the image of a job: is it on this machine, else podman pulls it, with the
 * credentials that the job names for its registry.
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
#define IMAGE_AUTH "registry-auth.json" /* in the attempt's folder, while an image is pulled */

struct image {
	const char *dir; /* attempt folder */
	const struct job_spec *spec;
	const struct wire_launch *launch;
	const atomic_bool *cancel;
	/* What it does right now, in words, at least twice a second. */
	void (*note)(void *arg, const char *words);
	void *arg;
};

/* Makes spec->base_image ready. *workdir, *path: its working directory and its PATH, in `a`; *path
 * is left alone when it has none. Errors name the image and say how to mend it: ERR_UNSUPPORTED (no
 * podman), ERR_DENIED (credentials), ERR_NOT_FOUND, ERR_UNAVAILABLE, ERR_NO_SPACE, ERR_TIMEOUT,
 * ERR_CANCELED. */
int image_bring(struct arena *a, const struct image *im, const char **workdir, const char **path,
                struct err *err) MUST_CHECK;

#endif
