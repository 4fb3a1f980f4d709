/* xet_shard.c - see xet_shard.h. Everything in a shard is a record of 48 bytes, most of them a hash
 * and four numbers, lowest byte first. */
#include "core/xet_shard.h"

#define RECORD 48
#define VERSION 2
#define FOOTER                                                                                     \
	200 /* bytes; older clients send it, with tables to look things up in front of it          \
	     */
#define FOOTER_VERSION 1
#define FOOTER_KEY 72 /* where it is in the footer */
#define FILE_HAS_PROOFS (1U << 31)
#define FILE_HAS_SHA256 (1U << 30)

/* clang-format off */
static const uint8_t tag[32] = {
	'H', 'F', 'R', 'e', 'p', 'o', 'M', 'e', 't', 'a', 'D', 'a', 't', 'a', 0,
	85, 105, 103, 69, 106, 123, 129, 87, 131, 165, 189, 217, 92, 205, 209, 74, 169,
};
/* clang-format on */

struct walk {
	const uint8_t *p;
	size_t n, at;
};

static uint32_t u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64(const uint8_t *p)
{
	return u32(p) | (uint64_t)u32(p + 4) << 32;
}

static struct xet_hash hash_at(const uint8_t *p)
{
	struct xet_hash h;

	memcpy(h.b, p, sizeof(h.b));
	return h;
}

static bool all(const uint8_t *p, size_t n, uint8_t c)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != c)
			return false;
	return true;
}

/* The next records, as many as said. */
static int take(struct walk *w, uint64_t records, const uint8_t **out, struct err *err)
{
	if (records > (w->n - w->at) / RECORD)
		return err_set(err, ERR_INVALID,
		               "the shard ends within %" PRIu64 " records that begin at byte %zu",
		               records, w->at);
	*out = w->p + w->at;
	w->at += (size_t)records * RECORD;
	return 0;
}

/* What is reserved is zero: in the record at p, the last n bytes. */
static int reserved(const struct walk *w, const uint8_t *p, size_t n, struct err *err)
{
	if (all(p + RECORD - n, n, 0))
		return 0;
	return err_set(err, ERR_INVALID, "reserved bytes of the shard's record at byte %zu are set",
	               (size_t)(p - w->p));
}

/* The head of a file or a xorb; *out NULL: there is no further one. */
static int take_head(struct walk *w, const uint8_t **out, struct err *err)
{
	if (take(w, 1, out, err) < 0)
		return -1;
	if (!all(*out, XET_HASH_LEN, 0xff))
		return 0;
	if (reserved(w, *out, RECORD - XET_HASH_LEN, err) < 0)
		return -1;
	*out = NULL;
	return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static uint64_t records_of_file(const uint8_t *head)
{
	const uint32_t flags = u32(head + 32);
	const uint64_t n = u32(head + 36);

	return ((flags & FILE_HAS_PROOFS) != 0 ? 2 * n : n) + ((flags & FILE_HAS_SHA256) != 0);
}

static int term_read(const struct walk *w, const uint8_t *p, struct xet_term *t, struct err *err)
{
	*t = (struct xet_term){.xorb = hash_at(p), /* its flags are for nobody */
	                       .bytes = u32(p + 36),
	                       .start = u32(p + 40),
	                       .end = u32(p + 44)};
	if (t->start >= t->end || t->end > XET_XORB_CHUNKS_MAX)
		return err_set(err, ERR_INVALID,
		               "the term at byte %zu of the shard has chunks %u to %u",
		               (size_t)(p - w->p), t->start, t->end);
	if (t->bytes < t->end - t->start || t->bytes > XET_XORB_UNPACKED_MAX ||
	    t->bytes > (t->end - t->start) * XET_CHUNK_MAX)
		return err_set(err, ERR_INVALID,
		               "the term at byte %zu of the shard has %u chunks and %u bytes",
		               (size_t)(p - w->p), t->end - t->start, t->bytes);
	return 0;
}

static int proofs_read(struct walk *w, struct arena *a, struct xet_file *f, struct err *err)
{
	struct xet_hash *proof = ARENA_ARRAY(a, struct xet_hash, f->n);
	const uint8_t *p = NULL;

	for (size_t i = 0; i < f->n; i++) {
		if (take(w, 1, &p, err) < 0 || reserved(w, p, 16, err) < 0)
			return -1;
		proof[i] = hash_at(p);
	}
	f->proof = proof;
	return 0;
}

static int sha256_read(struct walk *w, struct xet_file *f, struct err *err)
{
	const uint8_t *p = NULL;
	struct xet_hash h;

	if (take(w, 1, &p, err) < 0 || reserved(w, p, 16, err) < 0)
		return -1;
	h = hash_at(p);
	f->has_sha256 = f->n > 0; /* of an empty file, clients send zeros */
	if (f->has_sha256)
		f->sha256 = xet_hash_sha256(&h);
	return 0;
}

/* All its records are there: they were counted. */
static int file_read(struct walk *w, struct arena *a, const uint8_t *head, struct xet_file *f,
                     struct err *err)
{
	const uint32_t flags = u32(head + 32);
	const uint8_t *p = NULL;
	struct xet_term *term;

	if ((flags & ~(FILE_HAS_PROOFS | FILE_HAS_SHA256)) != 0)
		return err_set(err, ERR_INVALID,
		               "the file at byte %zu of the shard has unknown flags: %08x",
		               (size_t)(head - w->p), flags);
	if (reserved(w, head, 8, err) < 0)
		return -1;
	f->hash = hash_at(head);
	f->n = u32(head + 36);
	term = ARENA_ARRAY(a, struct xet_term, f->n);
	for (size_t i = 0; i < f->n; i++) {
		if (take(w, 1, &p, err) < 0 || term_read(w, p, &term[i], err) < 0)
			return -1;
		f->bytes += term[i].bytes;
	}
	f->term = term;
	if ((flags & FILE_HAS_PROOFS) != 0 && proofs_read(w, a, f, err) < 0)
		return -1;
	return (flags & FILE_HAS_SHA256) != 0 ? sha256_read(w, f, err) : 0;
}

static int files_read(struct walk *w, struct arena *a, struct xet_shard *s, struct err *err)
{
	struct walk counting = *w;
	const uint8_t *head = NULL, *p = NULL;
	struct xet_file *file;

	for (;; s->n_files++) {
		if (take_head(&counting, &head, err) < 0)
			return -1;
		if (head == NULL)
			break;
		if (take(&counting, records_of_file(head), &p, err) < 0)
			return -1;
	}
	file = ARENA_ARRAY(a, struct xet_file, s->n_files);
	for (size_t i = 0; i < s->n_files; i++)
		if (take_head(w, &head, err) < 0 || file_read(w, a, head, &file[i], err) < 0)
			return -1;
	s->file = file;
	return take_head(w, &head, err);
}

/* ---- xorbs --------------------------------------------------------------------------------- */

static int xorb_read(struct walk *w, struct arena *a, const uint8_t *head, struct xet_xorb *x,
                     struct err *err)
{
	const size_t n = u32(head + 36);
	struct xet_hash *hash = ARENA_ARRAY(a, struct xet_hash, n);
	uint32_t *bytes = ARENA_ARRAY(a, uint32_t, n);
	const uint8_t *p = NULL;

	for (size_t i = 0; i < n; i++) {
		if (take(w, 1, &p, err) < 0 || reserved(w, p, 4, err) < 0)
			return -1;
		hash[i] = hash_at(p);
		bytes[i] = u32(p + 36);
		if (u32(p + 32) != x->bytes || bytes[i] == 0 || bytes[i] > XET_CHUNK_MAX)
			return err_set(err, ERR_INVALID,
			               "the chunk at byte %zu of the shard begins at %u and has %u "
			               "bytes",
			               (size_t)(p - w->p), u32(p + 32), bytes[i]);
		x->bytes += bytes[i];
	}
	if (x->bytes != u32(head + 40) || x->bytes > XET_XORB_UNPACKED_MAX)
		return err_set(err, ERR_INVALID,
		               "the xorb at byte %zu of the shard has %" PRIu64 " bytes, not %u",
		               (size_t)(head - w->p), x->bytes, u32(head + 40));
	x->hash = hash_at(head);
	x->chunks = (struct xet_chunks){.hash = hash, .bytes = bytes, .n = n};
	return 0;
}

static int xorbs_read(struct walk *w, struct arena *a, struct xet_shard *s, struct err *err)
{
	struct walk counting = *w;
	const uint8_t *head = NULL, *p = NULL;
	struct xet_xorb *xorb;

	for (;; s->n_xorbs++) {
		if (take_head(&counting, &head, err) < 0)
			return -1;
		if (head == NULL)
			break;
		if (u32(head + 36) == 0 || u32(head + 36) > XET_XORB_CHUNKS_MAX)
			return err_set(err, ERR_INVALID,
			               "the xorb at byte %zu of the shard has %u chunks",
			               (size_t)(head - w->p), u32(head + 36));
		if (take(&counting, u32(head + 36), &p, err) < 0)
			return -1;
	}
	xorb = ARENA_ARRAY(a, struct xet_xorb, s->n_xorbs);
	for (size_t i = 0; i < s->n_xorbs; i++)
		if (take_head(w, &head, err) < 0 || xorb_read(w, a, head, &xorb[i], err) < 0)
			return -1;
	s->xorb = xorb;
	return take_head(w, &head, err);
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* What follows the xorbs: nothing, which some clients call a footer, too; or tables that we do not
 * need, and a footer. */
static int rest_read(const struct walk *w, uint64_t footer, struct err *err)
{
	const size_t left = w->n - w->at;
	const uint8_t *p = NULL;

	if (footer != 0 && footer != FOOTER)
		return err_set(err, ERR_INVALID,
		               "the shard has a footer of %" PRIu64 " bytes, not %d", footer,
		               FOOTER);
	if (left == 0)
		return 0;
	if (footer == 0 || left < FOOTER)
		return err_set(err, ERR_INVALID,
		               "%zu bytes follow the shard's last record at byte %zu", left, w->at);
	p = w->p + w->n - FOOTER;
	if (u64(p) != FOOTER_VERSION || u64(p + 8) != RECORD ||
	    u64(p + FOOTER - 8) != w->n - FOOTER)
		return err_set(err, ERR_INVALID, "the shard's footer is none");
	if (!all(p + FOOTER_KEY, XET_HASH_LEN, 0))
		return err_set(err, ERR_INVALID, "the hashes of the shard's chunks are disguised");
	return 0;
}

int xet_shard_read(struct arena *a, struct str bytes, struct xet_shard *out, struct err *err)
{
	struct walk w = {.p = (const uint8_t *)bytes.p, .n = bytes.n};
	struct xet_shard s = {0};
	const uint8_t *head = NULL;

	if (bytes.n > XET_SHARD_MAX)
		return err_set(err, ERR_TOO_BIG, "the shard has more than %zu bytes",
		               XET_SHARD_MAX);
	if (take(&w, 1, &head, err) < 0)
		return -1;
	if (memcmp(head, tag, sizeof(tag)) != 0)
		return err_set(err, ERR_INVALID, "this is no shard");
	if (u64(head + 32) != VERSION)
		return err_set(err, ERR_INVALID, "the shard is of the unknown version %" PRIu64,
		               u64(head + 32));
	if (files_read(&w, a, &s, err) < 0 || xorbs_read(&w, a, &s, err) < 0 ||
	    rest_read(&w, u64(head + 40), err) < 0)
		return -1;
	*out = s;
	return 0;
}
