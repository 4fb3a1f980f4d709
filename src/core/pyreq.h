/*
 * pyreq.h - Python requirements: the lines of a requirements file as pip reads them, with the files
 * that it names, made into texts that say all there is to install. Pure: a callback reads files.
 *
 * The format is that of pip's "Requirements File Format" and of PEP 508. An environment is shared
 * by everybody whose texts are the same, so a line may not name what these texts do not hold: a
 * local path, an editable install. A password is never written out: ${NAME} stands for a variable
 * of the job.
 */
#ifndef PYREQ_H
#define PYREQ_H

#include "base/arena.h"
#include "base/buf.h"

#define PYREQ_FILE_MAX ((size_t)1 << 20)
#define PYREQ_TEXT_MAX ((size_t)4 << 20) /* of all files together */
#define PYREQ_LINES_MAX 20000
#define PYREQ_FILES_MAX 64 /* read in all: a file may be named more than once */
#define PYREQ_DEPTH_MAX 10
#define PYREQ_VARS_MAX 64
#define PYREQ_LINE_MAX ((size_t)16 << 10)
#define PYREQ_VERSION_WORDS "a version like \"3.11\" or \"3.11.4\""

struct pyreq_from {
	const char *file;        /* a plain path below the job's folder; NULL: the lines */
	const char *const *line; /* each as a line of a file */
	size_t n;
	/* Reads a plain path below the job's folder, up to out's limit. */
	int (*read)(void *arg, const char *path, struct buf *out, struct err *err);
	void *arg;
};

/* One file, as the user has it: its lines that count are at their lines, and all others are empty.
 * So what pip and uv say of one names what the user wrote. */
struct pyreq_part {
	const char *name; /* its path, or nearly so; a plain one that no other part has */
	struct str text;
	bool constraint; /* named by -c */
};
#define PYREQ_LIST_NAME "runtime.python.requirements" /* of the lines of a job file */

struct pyreq {
	struct pyreq_part part[PYREQ_FILES_MAX + 1]; /* those that have any line */
	size_t n_parts;
	/* All of them together: */
	struct str packages;    /* what to install, a line each */
	struct str constraints; /* lines that only limit versions */
	struct str options; /* indexes and the like: lines of options that pip and uv both take */
	size_t n_packages;
	bool pre, binary;                /* --pre, --prefer-binary: pip's, not uv's */
	bool hashes;                     /* --require-hashes, or a hash of any requirement */
	const char *var[PYREQ_VARS_MAX]; /* names in ${NAME}, each once */
	size_t n_vars;
};

/* Everything in `a`. ERR_PYTHON_REQUIREMENTS_INVALID names file, line and the cure; of a file that
 * is not there too. */
int pyreq_resolve(struct arena *a, const struct pyreq_from *from, struct pyreq *out,
                  struct err *err) MUST_CHECK;
/* One line on its own: is it one that pyreq_resolve takes? Files that it names are not read. */
int pyreq_check(struct str line, struct err *err) MUST_CHECK;
/* "3.11" or "3.11.4" */
bool pyreq_version_ok(struct str version);
/* The path of a requirements file, plain and below the job's folder: "./a/b.txt" is "a/b.txt".
 * NULL after an error that says what a file has to be. */
const char *pyreq_file(struct arena *a, struct str path, struct err *err);
/* Does a variable of the job reach the program that builds the environment? Indexes and their
 * credentials, proxies, certificates, compiler flags. */
bool pyreq_env_wanted(const char *name);

#endif
