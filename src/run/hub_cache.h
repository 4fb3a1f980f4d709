/*
 * hub_cache.h - weights as a cache of huggingface_hub, so that programs find them by the name of
 * their repository, any number of them at once and without a lock:
 *
 *     models--OWNER--NAME/weights/N             the files of weights N, mounted read-only
 *     models--OWNER--NAME/snapshots/COMMIT/...  a link to each, relative
 *     models--OWNER--NAME/refs/REVISION         the commit; written last
 *
 * (https://huggingface.co/docs/huggingface_hub/guides/manage-cache, but for "weights", which
 * clients pass over.) All but the files is the job's own folder on local disk: what else a program
 * asks for is downloaded beside them.
 */
#ifndef HUB_CACHE_H
#define HUB_CACHE_H

#include "core/wire.h"
#include "run/ids.h"

/* Where the files of the launch's weights `i` are in that folder. ERR_INVALID: its source is no
 * repository, or the revision no path. */
int hub_cache_place(struct arena *a, const struct wire_launch *l, size_t i, const char **out,
                    struct err *err) MUST_CHECK;
/* Makes links and ref for them in the folder `root`; `tree` is where the files are now. May be
 * called again. */
int hub_cache_add(int root, const struct ids *ids, const struct wire_launch *l, size_t i,
                  const char *tree, struct err *err) MUST_CHECK;
/* The folder, as the job file calls it; NULL: there is none. */
const char *hub_cache_of(const struct wire_launch *l);

#endif
