/* ckpt_whole.c - the manifest of a checkpoint of several nodes, as JSON. */
#include "core/ckpt_whole.h"

#include "base/record.h"

#define WHOLE_FORMAT 1

/* clang-format off */
static RECORD(ckpt_whole_part, NULL,
	ROW(ckpt_whole_part, R_U32, rank),
	ROW(ckpt_whole_part, R_TEXT, manifest),
	ROW_AS(ckpt_whole_part, R_DIGEST, "files_sha256", sha256),
	ROW(ckpt_whole_part, R_U32, revision),
	ROW(ckpt_whole_part, R_U32, since),
	ROW(ckpt_whole_part, R_I64 | R_MAY, ended_ms),
	ROW(ckpt_whole_part, R_U64, files),
	ROW(ckpt_whole_part, R_U64, bytes));

static RECORD(ckpt_whole, NULL,
	ROW(ckpt_whole, R_INT, version),
	ROW(ckpt_whole, R_TEXT, name),
	ROW(ckpt_whole, R_TEXT, job_id),
	ROW_WORD(ckpt_whole, R_WORD, state, ckpt_states),
	ROW(ckpt_whole, R_INT | R_MAY, rule),
	ROW(ckpt_whole, R_TEXT | R_MAY, reason),
	ROW(ckpt_whole, R_TEXT | R_MAY, marked_by),
	ROW(ckpt_whole, R_I64 | R_MAY, created_ms),
	ROW_OF_AS(ckpt_whole, R_LIST, "parts", part, n_parts, ckpt_whole_part));
/* clang-format on */

void ckpt_whole_write(const struct ckpt_whole *w, struct buf *out)
{
	struct ckpt_whole as = *w;

	as.version = WHOLE_FORMAT;
	as.state = CKPT_COMPLETE;
	record_write(&ckpt_whole_record, &as, out);
}

static int check(const struct ckpt_whole *w, struct err *err)
{
	if (w->name[0] == '\0' || w->job_id[0] == '\0')
		return err_set(err, ERR_INVALID, "name or job_id is missing");
	if (w->n_parts == 0 || w->n_parts > CKPT_PARTS_MAX)
		return err_set(err, ERR_INVALID, "parts: a list of 1 to %d is expected",
		               CKPT_PARTS_MAX);
	for (size_t i = 0; i < w->n_parts; i++) {
		const struct ckpt_whole_part *p = &w->part[i];

		if (p->manifest[0] == '\0')
			return err_set(err, ERR_INVALID, "parts: manifest: a key is expected");
		if (i > 0 && p[-1].rank >= p->rank)
			return err_set(err, ERR_INVALID, "parts: they are not in order of ranks");
	}
	return 0;
}

int ckpt_whole_parse(struct ckpt_whole *out, struct arena *a, struct str json, struct err *err)
{
	const struct doc *d = NULL;

	memset(out, 0, sizeof(*out));
	if (js_parse(a, json, &d, err) < 0)
		return err_wrap(err, "manifest of all nodes");
	if (doc_int(doc_get(d, "version"), 0) != WHOLE_FORMAT)
		return err_set(err, ERR_UNSUPPORTED,
		               "manifest of all nodes: version: %d is expected", WHOLE_FORMAT);
	if (record_read_doc(&ckpt_whole_record, a, d, out, err) < 0 || check(out, err) < 0)
		return err_wrap(err, "manifest of all nodes");
	return 0;
}

const struct ckpt_whole_part *ckpt_whole_part(const struct ckpt_whole *w, uint32_t rank)
{
	for (size_t i = 0; i < w->n_parts; i++)
		if (w->part[i].rank == rank)
			return &w->part[i];
	return NULL;
}
