/*
 * fetch_own.h - hf:// sources of jobs that are repositories of this server (repos.h). What a name
 * means is decided when the job is pushed, in the order that the Hub has, and with the rights of
 * who pushes it. From then on the repository is known by its id: under a new name it is found, and
 * one that is deleted is not looked for at the other Hub, where its name may be a stranger's.
 *
 * Nothing travels, and no row of weights is made: a commit's files are blobs already, its own ref
 * names them, and the job's row names the manifest of those that it wants. So what is deleted
 * goes when the last job that has it is over.
 */
#ifndef FETCH_OWN_H
#define FETCH_OWN_H

#include "core/glob.h"
#include "core/manifest.h"
#include "server/app.h"

struct fetch_own {
	const char *repo_id; /* NULL: it is none of ours */
	bool last;           /* it is meant if the other Hub has none of that name */
};

/* What this source is to the caller, in that team. ERR_HUB_REVISION_NOT_FOUND. */
int fetch_own_find(const struct ask *ask, const char *team_id, const struct spec_weights *w,
                   struct fetch_own *out, struct err *err) MUST_CHECK;
/* May the caller still read what was found before? ERR_HUB_REPO_NOT_FOUND. */
int fetch_own_may(const struct ask *ask, const char *team_id, const char *source,
                  const char *repo_id, struct err *err) MUST_CHECK;

struct fetch_own_want {
	const char *team_id, *repo_id, *source;
	const char *revision; /* frozen before; NULL: the source's */
	const struct glob_filter *filter;
};
/* The commit, and those of its files that are wanted. ERR_SOURCE_NOT_FOUND, ERR_SOURCE_EMPTY. */
int fetch_own_list(struct app *app, struct arena *a, const struct fetch_own_want *want,
                   const char **commit, struct manifest *out, struct err *err) MUST_CHECK;

#endif
