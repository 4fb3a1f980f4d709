/*
 * ckpt_union_work.h - what the ckpt_union*.c files share: one judgement of one checkpoint. They
 * follow each other: ckpt_union.c gathers rows and gives the verdict, ckpt_union_files.c reads what
 * the parts consist of, ckpt_union_accept.c makes one checkpoint of them.
 */
#ifndef CKPT_UNION_WORK_H
#define CKPT_UNION_WORK_H

#include "format/set.h"
#include "server/data/ckpt_union.h"

struct union_node {
	const struct model_checkpoint *row; /* NULL: it has none of it */
	struct ckpt list;                   /* its manifest, ... */
	struct str bytes;                   /* ... as it is stored */
	bool read;
};

struct union_work {
	struct app *app;
	struct arena *a;
	const struct model_job *job;
	const char *name, *prefix;
	struct model_checkpoint *row; /* of the whole job */
	size_t n_rows;
	const struct model_checkpoint *any; /* a row of this checkpoint */
	struct union_node *node;            /* by rank */
	struct ckpt_part *part;
	struct ckpt_union u;
	struct set_result set;
	struct ckpt_verdict verdict;
	struct ckpt_whole was; /* what it was complete with before */
	size_t n_lists;        /* read, and ... */
	uint64_t list_bytes;   /* ... of so many bytes */
	const char *updating;  /* what its next one waits for or lacks; NULL = nothing */
	bool has_was, kept;    /* kept: it stays as it was */
	bool over, moved;      /* over: saved over; moved: a part has changed meanwhile */
	bool gone;             /* the store lacks files of a part */
};

/* ckpt_union.c */
uint32_t union_since(const struct ckpt *c); /* the revision, where its runner does not say it */
bool union_is_part_as_before(const struct union_work *w, size_t k);
/* ckpt_union_files.c: the manifests of all parts; then their files, as facts in w->u. */
int union_read_parts(struct union_work *w, struct err *err) MUST_CHECK;
int union_look_at_files(struct union_work *w, struct err *err) MUST_CHECK;
/* ckpt_union_accept.c: keeps the parts, stores the manifest of all of them, and lets the rows say
 * so. w->moved or w->gone: it is not done, and nothing has changed. */
int union_accept(struct union_work *w, const char *marked_by, struct err *err) MUST_CHECK;
void union_drop_was(struct union_work *w);

#endif
