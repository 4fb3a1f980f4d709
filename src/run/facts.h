/*
 * facts.h - what a job's compilers work with and for, as far as it can be seen from outside: names
 * and values for people, who want to know why something was compiled again.
 */
#ifndef FACTS_H
#define FACTS_H

#include "core/spec.h"
#include "run/confine.h"
#include "run/harvest.h"

struct facts_of {
	const struct wire_launch *launch;
	const struct job_spec *spec;
	const struct wire_env *env; /* of the commands */
	size_t n_env;
	const char *place;               /* of the caches, as the job sees it */
	const struct confined *confined; /* where shared folders are for us */
	const char *image;               /* its id; NULL: the host's root */
	const char *python; /* the job's environment, where it lies for us; NULL: none */
};

/* In `a`. Facts that are not known are left out. */
void facts_read(struct arena *a, const struct facts_of *of, struct harvest_fact **out, size_t *n);

#endif
