/*
 * hub.h - a mirror of another Hub (--hub-upstream): repositories are asked for when somebody wants
 * them, and kept. A commit never changes, so what is kept of one is served for ever; a branch is
 * asked for again when --hub-ttl has passed, and while the other Hub is away it is what it was.
 *
 * Each file is fetched once, for all who want it at the same time, and verified before it is kept:
 * who follows a large one gets its bytes while they arrive. What is kept of a repository at a
 * commit, its listing and the files that are here, is one manifest, named by a ref of kind "hub".
 * Blobs are those of the mirror: what a job has brought by hf:// is here, and the other way round.
 *
 * What anybody may read at the other Hub belongs to no team (""). What it shows only to the team's
 * secret hf_access_token belongs to that team, and is asked for again, with it, like a branch.
 *
 * Nothing here waits for the network on a thread that answers requests: see struct hub_ops.
 */
#ifndef SERVER_HUB_H
#define SERVER_HUB_H

#include "core/hub.h"
#include "server/app.h"

/* What is kept of repositories, as anybody's and as this team's (NULL: all teams'), each as a row
 * of weights. */
int hub_list(struct app *app, struct arena *a, const char *team_id, struct model_mirror **out,
             size_t *n, struct err *err) MUST_CHECK;
/* Forgets one by the id of its row; *out: what it was. ERR_WEIGHTS_NOT_FOUND. What is anybody's is
 * for administrators of all teams to remove. */
int hub_remove(const struct ask *ask, const char *id, struct model_mirror *out,
               struct err *err) MUST_CHECK;

/* Its secret has changed: what was found out with the one before, or without, counts no more. */
void hub_secret_changed(struct app *app, const char *team_id);

void hub_start(struct app *app);
void hub_run(struct app *app);
void hub_stop(struct app *app); /* after app->stopping: cancels what runs, joins */
void hub_free(struct app *app);

#endif
