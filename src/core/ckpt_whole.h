/*
 * ckpt_whole.h - a checkpoint of several nodes: each has its part with a manifest of its own
 * (ckpt.h); this one, written last, says that together they are whole, and names each part by its
 * content. Without it nothing is loaded. Pure.
 *
 * Its object is <prefix>/.stoker/<checkpoint>.json (ckpt_whole_key).
 */
#ifndef CKPT_WHOLE_H
#define CKPT_WHOLE_H

#include "core/ckpt.h"

#define CKPT_PARTS_MAX 4096

struct ckpt_whole_part {
	uint32_t rank, revision, since; /* of its manifest */
	int64_t ended_ms; /* ckpt_times of it: written anew with the same content; 0 = not known */
	const char *manifest; /* its object */
	struct digest sha256; /* ckpt_digest */
	uint64_t files, bytes;
};

struct ckpt_whole {
	int version;           /* set by ckpt_whole_write, and read */
	enum ckpt_state state; /* the same; COMPLETE */
	const char *name, *job_id;
	int rule;
	const char *reason, *marked_by; /* marked_by: the person who overruled the rules; NULL */
	int64_t created_ms;
	struct ckpt_whole_part *part; /* by rank */
	size_t n_parts;
};

void ckpt_whole_write(const struct ckpt_whole *w, struct buf *out);
int ckpt_whole_parse(struct ckpt_whole *out, struct arena *a, struct str json,
                     struct err *err) MUST_CHECK;
/* NULL: that node has no part of it. */
const struct ckpt_whole_part *ckpt_whole_part(const struct ckpt_whole *w, uint32_t rank);

#endif
