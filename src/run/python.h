/*
 * python.h - the Python environment of a job (runtime.python): its requirements are read from the
 * job's code, a key is made of all that it depends on, and the node cache is asked for the tree of
 * that key (node.h). When it is missing it is built here, in a sandbox like the job's
 * own, with the job's limits and without its other secrets.
 *
 * Where the sandbox makes places, the environment is built and mounted at SPEC_PYTHON_PLACE; in the
 * plain sandbox of a root runner below IDS_STAGE; of another it is used where it lies.
 */
#ifndef PYTHON_H
#define PYTHON_H

#include "core/pyreq.h"
#include "core/spec.h"
#include "core/wire.h"
#include "run/confine.h"
#include "run/logs.h"
#include "run/node.h"
#include "run/report.h"

#define PYTHON_DIR "python" /* in the attempt's folder: that of the build's sandbox */
/* There, of a runner that gives up root: where the build's groups are. Its folder goes before them.
 */
#define PYTHON_CGROUPS "python-cgroups"
#define PYTHON_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#define PYTHON_GROUP "-py" /* behind the attempt's name: of the groups of a build */

/* The job that an environment is for, set by the caller. */
struct python_job {
	struct arena *a;
	const char *dir;        /* attempt folder: code is in its ATTEMPT_CODE */
	const char *name;       /* of the attempt's groups and containers */
	const char *program;    /* this binary */
	const char *image;      /* to run in; NULL: the host's root */
	const char *image_path; /* see struct sandbox_spec */
	int image_root;
	const struct ids *ids; /* whose ids the build has */
	const struct confined *confined;
	const struct wire_launch *launch;
	const struct job_spec *spec;
	struct report *report;
	struct logs *logs;
	struct node *node;
	/* Running jobs use the cache. False: gives up. */
	bool (*wait_for_room)(void *arg, const struct err *full);
	void *arg;
};

/* A job's environment, leased. */
struct python {
	struct node_lease lease; /* close its fd to give it back */
	const char *at;          /* where the job finds it; NULL: there is none */
	bool place;              /* it has to be mounted there */
};

/* ERR_PYTHON_...; ERR_NO_SPACE; ERR_CANCELED when the report says so. */
int python_bring(const struct python_job *j, struct python *out, struct err *err) MUST_CHECK;
/* Removes what the build of a killed runner left behind: its group, its container. */
int python_sweep(const char *name, const char *dir, struct err *err) MUST_CHECK;

/* The tools that build environments on this machine: "Python 3.11.2, uv 0.13.9"; NULL: none. */
const char *python_words(struct arena *a, const char *sandbox_kind);

/* --- within python*.c --- */

/* python_find.c: what there is to build with. */
struct python_tools {
	const char *python;   /* of the host; NULL: the image's own, or one that uv brings */
	const char *version;  /* of `python`: "3.11.2" */
	const char *identity; /* version, build, C library and place, in one text */
	const char *found;    /* without one: the interpreters that are there, in words */
	const char *sites;    /* its own packages, for system_site_packages */
	const char *uv;       /* NULL: none, or not for this one */
	const char *uv_version;
};
int python_find(const struct python_job *j, struct python_tools *out, struct err *err) MUST_CHECK;

/* The input of the build, from which the key is computed. */
struct python_want {
	struct pyreq req;
	struct python_tools tools;
	struct wire_env *env; /* of the job: those that matter */
	size_t n_env;
	const char *const *unset; /* of our own: those that may not matter */
	size_t n_unset;
	bool place;
	const char
		*below; /* what is in front of each place: "", or the folder that stands for "/" */
	const char *at; /* where it will be used; NULL: where it is built */
};
/* python_build.c */
int python_build(const struct python_job *j, const struct python_want *w, struct node_making *m,
                 const char *dir, struct err *err) MUST_CHECK;

#endif
