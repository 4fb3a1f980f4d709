/*
 * ckpt.h - checkpoints from facts about files: which belong together, what kind it is, what it may
 * be called; and the manifest that makes one visible.
 * Pure: run/ship.c brings the facts and does the work.
 *
 * A file's checkpoint is the outermost folder or file on its path whose name looks like one
 * (checkpoint-12, step-3, global_step10, epoch=1-step=300.ckpt...), else its top folder, else "."
 * (the root). Whether it is whole is decided in ckpt_rule.h.
 *
 * Objects: <prefix>/rank-<n>/<path>, plain; the manifest, written last, is
 * <prefix>/rank-<n>/.stoker/<checkpoint, '/' as '%2F'>.json, prefix training_projects/<p>/jobs/<j>.
 * A name that is too long for a file of its own ends in a digest there.
 */
#ifndef CKPT_H
#define CKPT_H

#include "core/manifest.h"
#include "base/json.h"
#include "base/words.h"

#define CKPT_NAME_MAX 512
#define CKPT_FILES_MAX 200000  /* per rank */
#define CKPT_DETAILS_MAX 50000 /* files of one that are described one by one */

/* The name of the checkpoint that `path` (relative to the checkpoint folder) belongs to; into out.
 */
void ckpt_name_of(struct str path, char out[CKPT_NAME_MAX]);
/* The one order of checkpoints: by time, and of one time by their names, numbers in them as numbers
 * ("checkpoint-9" before "checkpoint-10"). Below, equal to or above 0. */
int ckpt_name_cmp(const char *a, const char *b);
int ckpt_order(int64_t a_ms, const char *a, int64_t b_ms, const char *b);
/* The name with its numbers taken out: checkpoints of one kind have the same. */
void ckpt_lineage(const char *name, char out[CKPT_NAME_MAX]);
/* The path of a file of checkpoint `name` within it: "model.safetensors". */
const char *ckpt_inner(const char *name, const char *path);
const char *ckpt_base_name(const char *path); /* what follows the last '/' */
/* Is this file of a checkpoint the one that its job writes last? marker: a path or a base name. */
bool ckpt_is_marker(const char *inner, const char *marker);
/* May a file or a folder of a checkpoint be stored under this path? One rule for all: a plain
 * relative path of at most CKPT_PATH_MAX bytes, UTF-8, without control characters, and not the
 * place of the manifests. NULL: yes; else what is wrong, in words. */
#define CKPT_PATH_MAX 900
const char *ckpt_path_fault(struct str path);

enum ckpt_state { CKPT_SYNCING, CKPT_COMPLETE, CKPT_INCOMPLETE };
extern const struct words ckpt_states;
const char *ckpt_state_word(enum ckpt_state s); /* "SYNCING", "COMPLETE", "INCOMPLETE" */
int ckpt_state_parse(struct str word, enum ckpt_state *out, struct err *err) MUST_CHECK;

enum ckpt_kind {
	CKPT_OTHER,
	CKPT_FULL,
	CKPT_LORA,
	CKPT_WHISPER,
	CKPT_GGUF,
	CKPT_DCP,
	CKPT_DEEPSPEED,
	CKPT_LOGS /* logs and pointers: no checkpoint */
};
const char *ckpt_kind_word(enum ckpt_kind k); /* "full", "lora", "whisper", ..., "other" */

/* Facts about one file besides its digest. */
struct ckpt_file {
	const char *format; /* "safetensors"; NULL = not known */
	bool whole;         /* its structure was followed, and all that it promises is there */
	const char *note;   /* what is wrong with it, or why it is not known; NULL = nothing */
	int64_t checked_ms; /* wall; 0 = it was not */
	const char *at; /* below the rank's folder: its object is there, not at its path; NULL */
};

/* When the files of a save were written, by their node's clock. All 0: not known. */
struct ckpt_times {
	int64_t began_ms, ended_ms; /* the first and the last change of this save */
	int64_t before_ms;          /* the last one of the save that it replaces; 0 = none known */
	int64_t written_ms; /* when the manifest was: the time that the store has for it tells how
	                     * the clocks differ */
};

/* One rank's part of one checkpoint. */
struct ckpt {
	const char *name, *job_id;
	uint32_t rank;
	enum ckpt_state state;
	int rule;              /* row of core/ckpt_rule.h that decided, 0 = none of them did */
	const char *reason;    /* in words; NULL = a runner of before wrote it */
	const char *trainer;   /* whose layout it has: "Hugging Face Trainer"; NULL = not known */
	const char *marked_by; /* the person who overruled the rules; NULL */
	uint32_t revision;     /* from 1; one more each time that it replaces a complete one */
	uint32_t since;        /* the newest revision that did more than add files; 0 = not said */
	uint32_t world;        /* ranks of the job, as its runner knows; 0 = it does not */
	bool doubt;            /* of several nodes: incomplete for lack of a proof alone */
	struct ckpt_times saved; /* of several nodes */
	enum ckpt_kind kind;
	const char *base_model;  /* from adapter_config.json or config.json, NULL = unknown */
	int64_t lora_r;          /* 0 = none */
	int64_t created_ms;      /* newest file's mtime */
	struct manifest files;   /* paths relative to the checkpoint folder of the job (not of this
	                          * checkpoint): "checkpoint-12/model.safetensors" */
	struct ckpt_file *about; /* one for each of files.file, in their order; NULL = nothing */
};

/* By the names of its files alone; config (adapter_config.json or config.json, may be NULL) fills
 * base_model and lora_r. Never opens a pickle. */
void ckpt_classify(struct ckpt *c, struct arena *a, const struct doc *config);
void ckpt_write(const struct ckpt *c, struct buf *out);
int ckpt_parse(struct ckpt *out, struct arena *a, struct str json, struct err *err) MUST_CHECK;
/* Object keys, in `a`. */
char *ckpt_prefix(struct arena *a, const char *project_id, const char *job_id);
char *ckpt_object_key(struct arena *a, const char *prefix, uint32_t rank, const char *path);
/* The object of c->files.file[i], wherever it is. */
char *ckpt_file_key(struct arena *a, const char *prefix, const struct ckpt *c, size_t i);
/* Where the files of a new revision wait, below the rank's folder, until it is whole: no object
 * that a complete manifest names is written over. They move to their paths when the new manifest
 * is there. Of one file; and the folder of all revisions of a checkpoint, with a '/'. */
char *ckpt_revision_path(struct arena *a, const char *name, uint32_t revision, const char *path);
char *ckpt_revision_folder(struct arena *a, const char *name);
/* Where the server keeps the part with which a checkpoint of several nodes is complete, below the
 * rank's folder, whatever its node saves meanwhile: each set of files has a folder of its own there
 * (set: ckpt_digest). Of one file, and of its manifest (path NULL); and the folder of all sets,
 * with a '/'. */
char *ckpt_kept_path(struct arena *a, const char *name, const struct digest *set, const char *path);
char *ckpt_kept_folder(struct arena *a, const char *name);
/* The name of the set of its files: their paths, sizes and contents, wherever they are stored. */
struct digest ckpt_digest(const struct ckpt *c);
/* <prefix>/.stoker/<name>.json: of a checkpoint of several nodes, see ckpt_whole.h. */
char *ckpt_whole_key(struct arena *a, const char *prefix, const char *name);
char *ckpt_manifest_key(struct arena *a, const char *prefix, uint32_t rank, const char *name);

#endif
