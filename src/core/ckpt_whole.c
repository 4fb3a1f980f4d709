/* ckpt_whole.c - the manifest of a checkpoint of several nodes, as JSON. */
#include "core/ckpt_whole.h"

#define WHOLE_FORMAT 1

void ckpt_whole_write(const struct ckpt_whole *w, struct buf *out)
{
	struct js js;

	js_init(&js, out);
	js_open(&js);
	js_kv_int(&js, "version", WHOLE_FORMAT);
	js_kv(&js, "name", w->name);
	js_kv(&js, "job_id", w->job_id);
	js_kv(&js, "state", ckpt_state_word(CKPT_COMPLETE));
	js_kv_int(&js, "rule", w->rule);
	js_kv(&js, "reason", w->reason);
	js_kv(&js, "marked_by", w->marked_by);
	js_kv_int(&js, "created_ms", w->created_ms);
	js_key(&js, "parts");
	js_list(&js);
	for (size_t i = 0; i < w->n_parts; i++) {
		const struct ckpt_whole_part *p = &w->part[i];
		char hex[HASH_HEX_CAP];

		digest_hex(&p->sha256, hex);
		js_open(&js);
		js_kv_u64(&js, "rank", p->rank);
		js_kv(&js, "manifest", p->manifest);
		js_kv(&js, "files_sha256", hex);
		js_kv_u64(&js, "revision", p->revision);
		js_kv_u64(&js, "since", p->since);
		if (p->ended_ms != 0)
			js_kv_int(&js, "ended_ms", p->ended_ms);
		js_kv_u64(&js, "files", p->files);
		js_kv_u64(&js, "bytes", p->bytes);
		js_close(&js);
	}
	js_end(&js);
	js_close(&js);
}

static int number(const struct doc *d, const char *key, uint64_t most, uint64_t *out,
                  struct err *err)
{
	const struct doc *n = doc_get(d, key);

	if (!doc_is(n, DOC_INT) || n->num < 0 || (uint64_t)n->num > most)
		return err_set(err, ERR_INVALID, "parts: %s: a number from 0 is expected", key);
	*out = (uint64_t)n->num;
	return 0;
}

static int parse_part(struct ckpt_whole_part *out, struct arena *a, const struct doc *d,
                      struct err *err)
{
	struct str key = doc_text(doc_get(d, "manifest"));
	uint64_t rank = 0, revision = 0, since = 0;

	if (number(d, "rank", UINT32_MAX, &rank, err) < 0 ||
	    number(d, "revision", UINT32_MAX, &revision, err) < 0 ||
	    number(d, "since", UINT32_MAX, &since, err) < 0 ||
	    number(d, "files", INT64_MAX, &out->files, err) < 0 ||
	    number(d, "bytes", INT64_MAX, &out->bytes, err) < 0)
		return -1;
	out->rank = (uint32_t)rank;
	out->revision = (uint32_t)revision;
	out->since = (uint32_t)since;
	out->ended_ms = doc_int(doc_get(d, "ended_ms"), 0);
	if (key.n == 0)
		return err_set(err, ERR_INVALID, "parts: manifest: a key is expected");
	out->manifest = arena_strz(a, key);
	if (digest_parse(doc_text(doc_get(d, "files_sha256")), &out->sha256, err) < 0)
		return err_wrap(err, "parts: files_sha256");
	return 0;
}

static int parse_parts(struct ckpt_whole *out, struct arena *a, const struct doc *d,
                       struct err *err)
{
	if (!doc_is(d, DOC_LIST) || d->count == 0 || d->count > CKPT_PARTS_MAX)
		return err_set(err, ERR_INVALID, "parts: a list of 1 to %d is expected",
		               CKPT_PARTS_MAX);
	out->part = ARENA_ARRAY(a, struct ckpt_whole_part, d->count);
	DOC_EACH (part, d) {
		struct ckpt_whole_part *p = &out->part[out->n_parts];

		if (parse_part(p, a, part, err) < 0)
			return -1;
		if (out->n_parts > 0 && p[-1].rank >= p->rank)
			return err_set(err, ERR_INVALID, "parts: they are not in order of ranks");
		out->n_parts++;
	}
	return 0;
}

static const char *text_of(struct arena *a, const struct doc *d, const char *key)
{
	struct str s = doc_text(doc_get(d, key));

	return s.n > 0 ? arena_strz(a, s) : NULL;
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
	out->name = text_of(a, d, "name");
	out->job_id = text_of(a, d, "job_id");
	if (out->name == NULL || out->job_id == NULL)
		return err_set(err, ERR_INVALID,
		               "manifest of all nodes: name or job_id is missing");
	out->rule = (int)doc_int(doc_get(d, "rule"), 0);
	out->reason = text_of(a, d, "reason");
	out->marked_by = text_of(a, d, "marked_by");
	out->created_ms = doc_int(doc_get(d, "created_ms"), 0);
	if (parse_parts(out, a, doc_get(d, "parts"), err) < 0)
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
