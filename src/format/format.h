/*
 * format.h - is this file whole? Decided from its content, never by unpickling, never by its name
 * alone.
 *
 * format_check() finds the format by the first bytes (by the name only where a format has no magic
 * number) and follows its structure: headers, directories, opcodes; never the data. It reads
 * through the caller's function and keeps nothing open. What it cannot prove to be torn or whole is
 * FORMAT_UNKNOWN: it refuses rather than guesses. What each format proves is in README.md.
 *
 * Pure: no I/O of its own, no clock, no globals; any number of threads may check at once.
 */
#ifndef FORMAT_H
#define FORMAT_H

#include "base/arena.h"
#include "base/hash.h"

#define FORMAT_REASON_MAX 128
#define FORMAT_READ_MAX ((uint64_t)512 << 20) /* bytes read of one file; more is "not known" */
#define FORMAT_READS_MAX ((uint64_t)4 << 20)  /* calls of the reader for one file */
#define FORMAT_NEEDS_MAX 200000               /* files that one index may name */
#define FORMAT_PATH_MAX 1024                  /* of a file that an index names */

enum format_verdict {
	FORMAT_UNKNOWN, /* not a format that can be checked, or beyond a limit */
	FORMAT_WHOLE,   /* everything that its structure promises is there */
	FORMAT_TORN,    /* something that its structure promises is not */
};
const char *format_verdict_word(enum format_verdict v); /* "unknown", "whole", "torn" */

struct format_source {
	const char *name; /* path in the checkpoint: some formats are told by it */
	uint64_t size;    /* of the file when it was opened */
	/* Exactly n bytes from `at` (at + n <= size, n <= 64 KiB); fs_pread_all fits. A file that
	 * has become shorter is an error. */
	int (*read)(void *arg, uint64_t at, void *p, size_t n, struct err *err);
	void *arg;
	uint64_t hole_at; /* where its first hole begins (SEEK_HOLE); 0 = not known, none */
};

/* A file that another one names: a shard of an index, a .distcp of a .metadata. */
struct format_need {
	const char *path;     /* relative to the folder of the naming file; "x/" = a folder */
	bool sized, hashed;   /* which of the next are known */
	uint64_t size;        /* exact */
	uint64_t tensors;     /* that it must hold at least; 0 = not said */
	struct digest sha256; /* of its content */
};

/* A file's role in the rest of the checkpoint. */
enum format_role {
	FORMAT_PLAIN,
	FORMAT_INDEX,     /* *.index.json: need = shards */
	FORMAT_DCP,       /* .metadata: need = .distcp files with their exact sizes */
	FORMAT_INTEGRITY, /* integrity.json: need = files with their digests */
	FORMAT_PIPELINE,  /* model_index.json: need = folders of components */
	FORMAT_STATE,     /* trainer_state.json: step */
	FORMAT_POINTER,   /* latest, latest_*.txt: text, step when it is or ends in a number */
	FORMAT_COMMIT,    /* _CHECKPOINT_METADATA: committed */
};

struct format_facts {
	struct arena *own;
	enum format_role role;
	const struct format_need *need; /* sorted by path, each once */
	size_t n_need;
	int64_t step;     /* -1 = none */
	const char *text; /* NULL = none */
	bool committed;
};

struct format_result {
	enum format_verdict verdict;
	const char *format;             /* "safetensors", "torch zip"...; "" = not known; static */
	char reason[FORMAT_REASON_MAX]; /* without the file's name: "lacks 28 of 60 tensors" */
	uint64_t bytes_read;
	/* It has a hole: bytes that were never written, or zeros on a file system that packs them.
	 * A hint, no verdict: a preallocated file has its whole structure and no content. */
	bool hole;
	uint64_t tensors;           /* tensors, storages or arrays found; 0 = not counted */
	uint32_t split_no, splits;  /* GGUF: from 0, and how many; splits 0 = not split */
	struct format_facts *facts; /* NULL = none; freed by format_result_done */
};

/* Checks one file. -1: it could not be read (err is the reader's), nothing is known. */
int format_check(const struct format_source *src, struct format_result *out,
                 struct err *err) MUST_CHECK;
void format_result_done(struct format_result *r);
#define AUTO_FORMAT CLEANUP(format_result_done)

/* The rows of the table of formats, for docs and tests; false behind the last one. */
struct format_row {
	const char *name, *magic, *proves, *does_not;
};
bool format_row(size_t i, struct format_row *out);

/* The role of a file by its name (path relative to the checkpoint, or base name). */
enum format_name {
	FORMAT_NAME_PLAIN,
	FORMAT_NAME_TEMPORARY, /* never part of a checkpoint: *.tmp, .tmpXXXXXX, *.incomplete... */
	FORMAT_NAME_LOG,       /* appended to all the time: takes no part in any verdict */
	FORMAT_NAME_POINTER,   /* latest, latest_checkpointed_iteration.txt: names a checkpoint */
};
enum format_name format_name(struct str path);

/* Settings and words, which a saver writes before the weights: JSON, text, a tokenizer. format: of
 * a result. */
bool format_is_settings(const char *format);
/* The settings of a model or an adapter, by its name: there are weights beside it, or to come. */
bool format_is_config(struct str path);
/* It says something of other files, by its name: an index, .metadata, hashes, a commit. Those may
 * be another node's, so the node that has it cannot judge it alone. */
bool format_is_list(struct str path);

#endif
