/*
 * deployments.h - jobs that serve a checkpoint under a name, as many as people want: started,
 * replaced by the next revision, put to sleep and woken. What people want is a row
 * (meta_deployment.c), what should be done is core/deployment.h's; one thread does it.
 */
#ifndef DEPLOYMENTS_H
#define DEPLOYMENTS_H

#include "server/app.h"

void deployments_start(struct app *app);
void deployments_run(struct app *app);
void deployments_stop(struct app *app);
void deployments_free(struct app *app);
void deployments_kick(struct app *app);
void deployments_pass(struct app *app);

/* A deployment and its jobs that are not over, the newest first. */
struct deployment_look {
	struct model_deployment *d;
	struct model_replica *r;
	size_t n;
	/* by deployments_judge */
	struct deployment_facts facts;
	const char *failed_job; /* the newest; NULL: none is missed */
};
/* Of all teams, or of this one. *strays: there are jobs of others, or of some that are gone. */
int deployments_look(struct app *app, struct arena *a, const char *team_id,
                     struct deployment_look **out, size_t *n, bool *strays,
                     struct err *err) MUST_CHECK;
/* What is so at this moment, by the rows that l has and by what runners have said. */
int deployments_judge(struct app *app, struct arena *a, struct deployment_look *l,
                      struct err *err) MUST_CHECK;

/* One whose d is set: reads the rest, and judges. */
int deployments_look_at(struct app *app, struct arena *a, struct deployment_look *l,
                        struct err *err) MUST_CHECK;

/* Why its next job could not be pushed; NULL: it could. *early: it is not yet time to try again. */
const char *deployments_trouble(struct app *app, struct arena *a, const char *id, bool *early);
void deployments_forgive(struct app *app, const char *id); /* the next try is at once */

#endif
