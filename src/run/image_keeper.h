/*
 * image_keeper.h - the image of a job whose runner gives up root (confine.h).
 *
 * podman keeps the machine's images as root. So before the runner gives root up it starts a keeper
 * (keeper.h), a process that stays root and does three things when it is asked:
 *
 *   - it brings the image (image.h), with the credentials that the job names, into podman's
 * storage;
 *   - it holds it there, by a container of the attempt's name that is never started: while there is
 *     one, `podman rmi` and `podman image prune` leave the image alone. The sweep removes it. Who
 * removes all containers that do not run removes it, too: docs/operating.md warns of it;
 *   - it hands out the image's files, read-only: an overlay of its layers (of one, where podman
 *     keeps images whole), each of which shows files of id N as those of the job's id N. The runner
 * starts the container from them (sandbox_container.c), so no byte of an image is copied, and
 * nothing of it belongs to root.
 *
 * It believes nothing of what it hears: the image is the one that the launch or the job names, or
 * one by digest of the repository that this name stood for. What it hands out was copied in the
 * job's user namespace, so the kernel holds the mounts to be read-only and without devices.
 *
 * The protocol is wire_kept_image:
 *
 *   bring [ID REFERENCE]  -> note TEXT ..., then got or failed; where two roots are wanted, more
 *                            and got. Both bring a descriptor of the image's files along.
 */
#ifndef IMAGE_KEEPER_H
#define IMAGE_KEEPER_H

#include "run/ids.h"
#include "run/image.h"

struct image_keeper;

/* Can it be done here? *why says what stands in the way, NULL: nothing. podman keeps layers where
 * mounts translate no ids, or the kernel takes no idmapped mount as a layer (before 5.19). An error
 * is no answer: podman could not be asked. */
int image_keeper_may(struct arena *a, const char **why, struct err *err) MUST_CHECK;
/* ... by the kernel alone, whose release this is (uname(2)). NULL: nothing stands in the way. */
const char *image_keeper_kernel(const char *release);

struct image_keeper_options {
	struct arena *a;
	const char *name; /* of the attempt's groups and containers */
	const struct job_spec *spec;
	const struct wire_launch *launch;
	struct ids ids; /* as ids_take() gave them */
};

/* The caller is root, has one thread, and is about to give root up. */
int image_keeper_start(struct image_keeper **out, const struct image_keeper_options *o,
                       struct err *err) MUST_CHECK;
/* image_bring(). root: detached mounts, the caller's to close, one for each container, for a mount
 * is attached once: the job's, and, where the job wants a Python environment, that of its build;
 * else it is left alone. After an error some may be there. */
#define IMAGE_ROOTS 2
int image_keeper_bring(struct image_keeper *k, struct arena *a, const struct image *im,
                       const struct wire_image *wanted, struct image_got *out,
                       int root[IMAGE_ROOTS], struct err *err) MUST_CHECK;
void image_keeper_close(struct image_keeper *k); /* NULL is fine */

#endif
