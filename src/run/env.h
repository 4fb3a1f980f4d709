/* env.h - the environment of a job's commands: the platform's variables, then the user's own. */
#ifndef ENV_H
#define ENV_H

#include "core/spec.h"
#include "core/wire.h"

/* Where things are, as the job sees them (under the plain sandbox they are not at their places). */
struct env_paths {
	const char *workspace, *scratch, *ckpt, *load;
	const char *project_cache, *team_cache;
	const char *compile;    /* the caches of compilers, NULL: none */
	const char *ca;         /* see ATTEMPT_CA, NULL: none */
	const char *hub;        /* the cache of weights with the layout hub, NULL: none */
	const char *serve_port; /* of the job's server, NULL: it has none */
	const char *home;
	unsigned cores;         /* that the job runs on, 0 = all of the machine's */
	const char *python;     /* the Python environment, NULL: none */
	bool image;             /* PATH and locale are the image's own */
	const char *image_path; /* its PATH */
	const char *image_env;  /* its variables, NAME=VALUE, a line each */
	bool podman_sets;       /* them; else they are set here */
	const char *driver;     /* the GPU driver's libraries, NULL: none are mounted */
};

/* In order; a name that comes again replaces the earlier one. Values that are secrets stay marked.
 */
void env_make(struct arena *a, const struct wire_launch *l, const struct job_spec *spec,
              const struct env_paths *at, struct wire_env **out, size_t *n);
/* docs/environment.md: each variable, when it is set, what it holds, and an example. */
void env_reference(struct buf *out);
/* Lines for a POSIX shell that drop what a runner has for itself (its libraries' path, its
 * session's bus, its sanitizers' options) and a job on this machine's root would inherit. What an
 * image sets is its own: not for images. The proxies stay: without them nothing may be reachable.
 */
void env_forget(struct buf *out);
/* The environment of a sandbox's own processes: ours, but proxies without user and password, as
 * the job can read it. */
const char *const *env_of_sandbox(struct arena *a);
/* export NAME='value' lines for a POSIX shell. */
void env_script(const struct wire_env *env, size_t n, struct buf *out);

#endif
