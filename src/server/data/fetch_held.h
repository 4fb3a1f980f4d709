/*
 * fetch_held.h - bt://sha256:<digits> as a source of jobs: what this server has fetched for the
 * team before, by the digest of its manifest. Where that came from is not asked, so it may be gone.
 *
 * All 64 digits, or the first 12 and more as long as they are of one manifest. Patterns choose
 * among its files. No row is made: that of the first fetch counts as used.
 */
#ifndef FETCH_HELD_H
#define FETCH_HELD_H

#include "core/glob.h"
#include "core/manifest.h"
#include "server/app.h"

bool fetch_is_held(const char *source);
/* Is there such a manifest? ERR_SOURCE_NOT_FOUND, ERR_SOURCE_INVALID. */
int fetch_held_find(struct app *app, struct arena *a, const char *team_id, const char *source,
                    struct model_mirror *out, struct err *err) MUST_CHECK;
/* Those of its files that are wanted; with pins, all of them stay. ERR_SOURCE_NOT_FOUND,
 * ERR_SOURCE_EMPTY. */
int fetch_held_list(struct app *app, struct arena *a, const struct model_mirror *of,
                    const char *source, const struct glob_filter *filter, struct blob_pins *pins,
                    struct manifest *out, struct err *err) MUST_CHECK;

#endif
