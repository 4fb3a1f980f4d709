/*
 * ckpt.h - checkpoints from facts about files: which files are ready to be shipped, which belong
 * together, which checkpoint is complete, what kind it is; and the manifest that makes one visible.
 * Pure: run/ship.c brings the facts and does the work.
 *
 * A file's checkpoint is the outermost folder on its path whose name looks like one
 * (checkpoint-12, step-3, epoch_2, global_step10...), else its top folder, else "." (the root).
 * A checkpoint is complete when every file of it is shipped and nothing in it has changed for the
 * settle time, or the trainer ended with exit code 0; what was still changing when it died is kept
 * but marked incomplete.
 *
 * Objects: <prefix>/rank-<n>/<path>, plain; the manifest, written last, is
 * <prefix>/rank-<n>/.stoker/<checkpoint, '/' as '%2F'>.json, prefix training_projects/<p>/jobs/<j>.
 */
#ifndef CKPT_H
#define CKPT_H

#include "core/manifest.h"
#include "base/json.h"

#define CKPT_NAME_MAX 512
#define CKPT_FILES_MAX 200000 /* per rank */

/* The name of the checkpoint that `path` (relative to the checkpoint folder) belongs to; into out.
 */
void ckpt_name_of(struct str path, char out[CKPT_NAME_MAX]);
/* Frameworks' temporary names: tmp-checkpoint-*, *.tmp, *.incomplete, *.partial, .nfs*. */
bool ckpt_is_temporary(struct str path);

struct ckpt_fact {
	uint64_t size;
	int64_t mtime_ns;
	uint64_t ino;
	int64_t changed_mono_ms; /* when size, mtime or inode were last seen to differ */
	bool closed;             /* inotify said CLOSE_WRITE or MOVED_TO after the last change */
};
/* Is this file ready to be linked and sent? now_mono_ms: same clock as changed_mono_ms. */
bool ckpt_file_ready(const struct ckpt_fact *f, int64_t now_mono_ms, int64_t settle_ms);

enum ckpt_state { CKPT_SYNCING, CKPT_COMPLETE, CKPT_INCOMPLETE };
const char *ckpt_state_word(enum ckpt_state s); /* "SYNCING", "COMPLETE", "INCOMPLETE" */
int ckpt_state_parse(struct str word, enum ckpt_state *out, struct err *err) MUST_CHECK;

enum ckpt_kind {
	CKPT_OTHER,
	CKPT_FULL,
	CKPT_LORA,
	CKPT_WHISPER,
	CKPT_GGUF,
	CKPT_DCP,
	CKPT_DEEPSPEED
};
const char *ckpt_kind_word(enum ckpt_kind k); /* "full", "lora", "whisper", ..., "other" */

/* One rank's part of one checkpoint. */
struct ckpt {
	const char *name, *job_id;
	uint32_t rank;
	enum ckpt_state state;
	enum ckpt_kind kind;
	const char *base_model; /* from adapter_config.json or config.json, NULL = unknown */
	int64_t lora_r;         /* 0 = none */
	int64_t created_ms;     /* newest file's mtime */
	struct manifest files;  /* paths relative to the checkpoint folder of the job (not of this
	                         * checkpoint): "checkpoint-12/model.safetensors" */
};

/* By the names of its files alone; config (adapter_config.json or config.json, may be NULL) fills
 * base_model and lora_r. Never opens a pickle. */
void ckpt_classify(struct ckpt *c, struct arena *a, const struct doc *config);
void ckpt_write(const struct ckpt *c, struct buf *out);
int ckpt_parse(struct ckpt *out, struct arena *a, struct str json, struct err *err) MUST_CHECK;
/* Object keys, in `a`. */
char *ckpt_prefix(struct arena *a, const char *project_id, const char *job_id);
char *ckpt_object_key(struct arena *a, const char *prefix, uint32_t rank, const char *path);
char *ckpt_manifest_key(struct arena *a, const char *prefix, uint32_t rank, const char *name);

#endif
