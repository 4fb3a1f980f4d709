/*
 * set.h - is a set of files a whole checkpoint? Which trainer wrote it, what it must have and
 * lacks, and whether it proves its own completeness.
 *
 * The caller brings the files of one checkpoint (a folder, or one file), each with the verdict of
 * format_check(), of one node or of several as a union. It also knows what no file tells: writers,
 * quiet time, the order in which files came, how the trainer ended; the decision is its own.
 *
 * Pure, as format.h.
 */
#ifndef SET_H
#define SET_H

#include "format/format.h"

#define SET_WORDS_MAX 320
#define SET_SHOWN_MAX 32 /* problems and leftovers that are kept; all are counted */

struct set_file {
	const char *path; /* in the checkpoint: "model.safetensors"; of a single file, its name */
	uint64_t size;
	const struct format_result *check; /* NULL = not looked at: not known */
	const struct digest *sha256;       /* of its content; NULL = not known */
	uint32_t node;                     /* which has it */
};

struct set_query {
	const char *name; /* of the checkpoint: "checkpoint-500"; "" = has none */
	const struct set_file *file;
	size_t n;
	/* Files beside the checkpoint, in the folder above: markers and pointers. */
	const struct set_file *beside;
	size_t n_beside;
	uint32_t world;      /* ranks of the job, 0 = not known */
	bool part;           /* not all nodes' files are here: what others may have is not missed */
	const char *sibling; /* the last COMPLETE one of the same job, NULL = none, and its files */
	const char *const *sibling_file;
	size_t n_sibling;
};

/* From bad to good: the first that is true. */
enum set_state {
	SET_UNFINISHED, /* it says itself that it is being written, or has a temporary name */
	SET_TORN,       /* a file is torn */
	SET_HOLE,       /* a file that must be there is missing, or is not the one it should be */
	SET_WAITING,    /* nothing is wrong, but the trainer's last file is not there */
	SET_PLAUSIBLE,  /* nothing is missing as far as can be known */
	SET_PROVEN,     /* an index, .metadata, hashes, or the sibling's names say that it is all */
};
const char *set_state_word(enum set_state s); /* "unfinished", "torn", "hole", ... */

/* How a trainer writes. One row each in set_layout.c; a file that fits no row is of "unknown". */
struct set_layout {
	const char *id;    /* stable: "hf_trainer", "dcp", "accelerate", ..., "unknown" */
	const char *title; /* "transformers Trainer" */
	const char *last;  /* pattern of the file that is written last; NULL = it has none */
	bool published;    /* its name is given by a rename, when it is whole */
	bool one_file;     /* the checkpoint is a single file */
};

enum set_fault {
	SET_FAULT_TORN,    /* why: format_check's reason */
	SET_FAULT_MISSING, /* not there */
	SET_FAULT_SIZE, /* not the length that is promised, or fewer tensors than the index says */
	SET_FAULT_CONTENT, /* not the hash that is promised, or another content on another node */
};

const char *set_fault_word(enum set_fault f); /* "torn", "missing", "size", "content" */

struct set_problem {
	enum set_fault fault;
	const char *path;
	const char *why; /* without the path: "is missing", "has 1.2 of 3.1 GB" */
};

struct set_result {
	enum set_state state;
	const struct set_layout *layout; /* never NULL */
	const char *unfinished;          /* the sign: a path, or a name beside; NULL = none */
	const char *last;                /* the layout's last file: its path, there or expected */
	bool last_there;
	bool same_names;   /* as the sibling has, step numbers apart */
	bool fewer_names;  /* the sibling has names that are not here */
	const char *lacks; /* the first of those names, as the sibling has it; NULL = none */
	bool only_model;   /* weights, but no optimizer: on purpose, or half a copy */
	const char *hole;  /* the first file with a hole, see format.h; NULL = none */
	size_t files;      /* that take part in the verdict */
	size_t checked;    /* of them whole by their format */
	uint32_t ranks;    /* told by names that hold the number of ranks; 0 = not told */
	size_t n_problems, n_leftovers;
	struct set_problem problem[SET_SHOWN_MAX];
	const char *leftover[SET_SHOWN_MAX]; /* .distcp files that .metadata does not name */
	/* The proof of completeness: ".metadata lists 64 shards of 64, all sizes right"; "" = none.
	 */
	char proof[SET_WORDS_MAX];
	/* One line for people, of any state: the first problem, what is waited for, or what was
	 * checked. To stand behind "incomplete: ", "syncing: ", "complete: ". */
	char words[SET_WORDS_MAX];
};

/* Everything in `out` lives in `a` or in the query. */
void set_check(struct arena *a, const struct set_query *q, struct set_result *out);

/* May this file of a checkpoint be written after the layout's last one, by another rank or by a
 * callback? Else a file that is newer than the last one means that it is being saved over. */
bool set_may_follow(const struct set_layout *layout, const char *path);

/* The row of an id, NULL = none; all rows by number, NULL behind the last one. */
const struct set_layout *set_layout_by_id(const char *id);
const struct set_layout *set_layout_row(size_t i);

#endif
