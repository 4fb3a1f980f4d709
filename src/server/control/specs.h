/*
 * specs.h - the specifications of jobs, read once: the last SPECS_MAX that were asked for. One that
 * is in use is never dropped.
 */
#ifndef SPECS_H
#define SPECS_H

#include "core/spec.h"
#include "server/app.h"

#define SPECS_MAX 256

struct specs_entry;
struct specs_hold {
	struct specs *from;
	struct specs_entry *entry; /* NULL: nothing is held */
	const struct job_spec *spec;
};

void specs_start(struct app *app);
void specs_free(struct app *app);
/* hold->spec stays until specs_drop. ERR_STORED_SPEC when it cannot be read, ERR_JOB_NOT_FOUND. */
int specs_get(struct app *app, const char *job_id, struct specs_hold *hold,
              struct err *err) MUST_CHECK;
void specs_drop(struct specs_hold *hold);
#define AUTO_SPEC CLEANUP(specs_drop)
/* It was changed in the database. */
void specs_forget(struct app *app, const char *job_id);

#endif
