/*
 * repo_xet.c - large files as clients that speak Xet send them: xorbs first, then a shard that says
 * which of their chunks are a file. A file is put together when its shard comes, verified by its
 * SHA-256, and an upload like any other from then on (repo_upload.c): it is served as it is, and
 * nothing else here knows of Xet.
 *
 * Xorbs are kept for a while, in case another file of the same session names them, and in the
 * folder alone. A client remembers which ones it has sent to an address, so the address has an
 * epoch: what is remembered of an earlier one, or was sent to another server, counts no more.
 */
#include "server/data/repos.h"

#include "base/map.h"
#include "core/xet_shard.h"
#include "core/xet_xorb.h"
#include "server/data/hub_pull.h"
#include "server/data/mirror_room.h"
#include "server/data/repo_room.h"

#define PIECE ((size_t)1 << 20)
#define TMP_CAP 80
#define EPOCH_S 43200

static const char *xorb_name(struct arena *a, const struct repo_xet *x, const struct xet_hash *h)
{
	char text[XET_HASH_CAP];

	xet_hash_text(h, text);
	return arena_printf(a, "%s/%" PRIu64 "/%s", x->repo_id, x->epoch, text);
}

/* Of this server since it began, twice a day another one. */
int64_t repo_xet_epoch(const struct app *app, int64_t now_s)
{
	return MAX(now_s - now_s % EPOCH_S, app->started_ms / 1000);
}

/* ---- xorbs --------------------------------------------------------------------------------- */

struct arriving {
	int fd;
	uint64_t at;
	struct hash *sha256;
	struct xet_reader reader;
	struct xet_unpacker *unpacker;
	struct xet_tree *tree;
	uint8_t *chunk;
};

static int take_piece(struct arriving *x, struct str in, struct err *err)
{
	const struct xet_packed *c = NULL;

	hash_add(x->sha256, in.p, in.n);
	if (app_pwrite(x->fd, in.p, in.n, x->at, err) < 0)
		return -1;
	x->at += in.n;
	for (;;) {
		struct xet_hash h;

		if (xet_reader_take(&x->reader, &in, &c, err) < 0)
			return -1;
		if (c == NULL)
			return 0;
		if (xet_unpack(x->unpacker, c, x->chunk, err) < 0)
			return -1;
		h = xet_chunk_hash(x->chunk, c->unpacked);
		xet_tree_add(x->tree, &h, c->unpacked);
	}
}

static int take_all(struct arriving *x, const struct repo_bytes *from, struct err *err)
{
	AUTO_FREE char *piece = xmalloc(PIECE);
	size_t n;

	for (;;) {
		if (from->read(from->arg, piece, PIECE, &n, err) < 0)
			return -1;
		if (n == 0)
			return xet_reader_end(&x->reader, err);
		if (take_piece(x, str_n(piece, n), err) < 0)
			return -1;
	}
}

/* It is what it is called. What an older client sends behind the chunks is not kept. */
static int settle(struct arriving *x, const struct xet_hash *want, struct digest *sha256,
                  struct err *err)
{
	struct xet_hash is = xet_tree_end(x->tree);
	uint64_t bytes = 0;

	if (!xet_hash_same(&is, want))
		return err_set(err, ERR_INVALID,
		               "the chunks of the xorb are others than its name says");
	if (x->at == x->reader.at) {
		(void)hash_end(x->sha256, sha256->b);
		return 0;
	}
	if (ftruncate(x->fd, (off_t)x->reader.at) < 0 || lseek(x->fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "a xorb");
	x->at = x->reader.at;
	return hash_fd(x->fd, sha256, &bytes, err);
}

static int receive(struct app *app, const char *tmp, const struct xet_hash *hash,
                   const struct repo_bytes *from, struct blob_pins *pins, struct digest *sha256,
                   uint64_t *bytes, struct err *err)
{
	struct arriving x = {.sha256 = hash_new(HASH_SHA256),
	                     .reader = XET_READER_INIT,
	                     .unpacker = xet_unpacker_new(),
	                     .tree = xet_tree_new(),
	                     .chunk = xmalloc(XET_CHUNK_MAX)};
	char journal[FS_PATH_MAX];
	int rc;

	blob_pins_add_reserved(pins, tmp);
	rc = blobs_tmp(app->blobs, tmp, &x.fd, journal, err);
	if (rc == 0) {
		rc = take_all(&x, from, err);
		if (rc == 0)
			rc = settle(&x, hash, sha256, err);
		if (rc == 0) {
			blob_pins_add(pins, sha256);
			rc = blobs_commit(app->blobs, tmp, x.fd, sha256, err);
		}
		(void)close(x.fd);
		rc = repo_upload_drop(app, tmp, rc, err);
	}
	*bytes = x.at;
	free(x.chunk);
	xet_unpacker_free(x.unpacker);
	xet_tree_free(x.tree);
	xet_reader_done(&x.reader);
	hash_free(x.sha256);
	return rc;
}

/* Named by a ref, in the folder alone: it is not worth a place in a bucket. */
static int note_xorb(struct app *app, const struct model_repo *r, const char *name,
                     const struct digest *sha256, uint64_t bytes, struct blob_pins *pins,
                     struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int64_t now_ms = clock_wall_ms();
	struct model_ref ref = {.team_id = r->team_id,
	                        .kind = META_REF_XORB,
	                        .name = name,
	                        .bytes = bytes,
	                        .files = 1,
	                        .created_ms = now_ms,
	                        .used_ms = now_ms};
	struct digest manifest;
	char hex[HASH_HEX_CAP];
	struct manifest m;

	manifest_init(&m, a);
	if (manifest_add(&m, STR_LIT("xorb"), bytes, sha256, err) < 0 ||
	    manifest_finish(&m, err) < 0 ||
	    blobs_put_manifest(app->blobs, pins, &m, &manifest, err) < 0)
		return -1;
	digest_hex(&manifest, hex);
	ref.manifest = hex;
	return meta_repo_xorb(app->meta, r->id, &ref, app->set.repo_quota, err);
}

/* ERR_NOT_FOUND: it was not sent, or to another server, whose folder alone has it. */
static int xorb_fd(struct app *app, struct arena *a, const char *team_id, const char *name,
                   struct blob_pins *pins, int *fd, uint64_t *bytes, struct err *err)
{
	struct model_ref ref;
	struct manifest m;
	struct digest d;

	if (meta_ref(app->meta, a, team_id, META_REF_XORB, name, &ref, err) < 0 ||
	    digest_parse(str_of(ref.manifest), &d, err) < 0)
		return -1;
	blob_pins_add(pins, &d);
	if (blobs_get_manifest(app->blobs, a, &d, &m, err) < 0)
		return -1;
	assert(m.n == 1);
	blob_pins_add(pins, &m.file[0].sha256);
	return blobs_fd(app->blobs, &m.file[0].sha256, fd, bytes, err);
}

int repo_xorb_put(struct app *app, const struct repo_xet *x, const struct xet_hash *hash,
                  int64_t body_bytes, const struct repo_bytes *from, bool *fresh, struct err *err)
{
	uint64_t most = body_bytes >= 0 ? (uint64_t)body_bytes : XET_XORB_BODY_MAX, bytes = 0;
	const struct mirror_want want = {.bytes = MIN(most, XET_XORB_BODY_MAX)};
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	AUTO_ARENA struct arena *a = arena_new();
	const char *name = xorb_name(a, x, hash);
	struct mirror_hold *hold = NULL;
	struct digest sha256;
	struct model_repo r;
	char tmp[TMP_CAP];
	AUTO_FD int fd = -1;
	int rc;

	if (repo_given_out(app, a, x->repo_id, &r, err) < 0)
		return -1;
	*fresh = xorb_fd(app, a, r.team_id, name, pins, &fd, &bytes, err) < 0;
	if (!*fresh)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	FMT(tmp, "xorb-%s", app_id(a, 2 * MODEL_ID_LEN));
	if (app_has_room(app, err) < 0 ||
	    mirror_room_take(app, "the upload", want.bytes, &want, &app->stopping, &hold, err) < 0)
		return -1;
	rc = receive(app, tmp, hash, from, pins, &sha256, &bytes, err);
	if (rc == 0)
		rc = note_xorb(app, &r, name, &sha256, bytes, pins, err);
	mirror_room_give(app, hold);
	return repo_store_failed(app, x->repo_id, NULL, rc, err);
}

/* ---- files --------------------------------------------------------------------------------- */

/* The xorb that was read last: terms of a file name the same one again and again. */
struct opened {
	struct xet_hash hash;
	int fd; /* -1: none is */
	uint64_t bytes;
	uint64_t at[XET_XORB_CHUNKS_MAX + 1]; /* of each chunk's header; n + 1 of them */
	struct xet_packed chunk[XET_XORB_CHUNKS_MAX];
	size_t n;
};

struct building {
	struct app *app;
	const struct model_repo *repo;
	const struct repo_xet *x;
	struct arena *a;
	struct blob_pins *pins;
	struct opened *from;
	struct xet_unpacker *unpacker;
	uint8_t *packed, *chunk;
	struct hash *sha256;
	struct repo_room room;
	int fd;
	uint64_t at;
	struct map *built; /* by their terms: files that did not say their digest */
};

static int open_xorb(struct building *b, const struct xet_hash *hash, struct err *err)
{
	const char *name = xorb_name(b->a, b->x, hash);
	struct opened *o = b->from;

	if (o->fd >= 0 && xet_hash_same(&o->hash, hash))
		return 0;
	if (o->fd >= 0)
		(void)close(o->fd);
	o->fd = -1;
	o->n = 0;
	o->at[0] = 0;
	if (xorb_fd(b->app, b->a, b->repo->team_id, name, b->pins, &o->fd, &o->bytes, err) == 0) {
		o->hash = *hash;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(err, ERR_INVALID,
	               "the shard names a xorb that was not sent, or too long ago: send the file "
	               "again (%s)",
	               name);
}

/* Where chunk i ends: the headers are read one after the other, as far as they are needed. */
static int find_chunks(struct opened *o, size_t until, struct err *err)
{
	while (o->n < until) {
		uint8_t head[XET_CHUNK_HEAD];
		uint64_t at = o->at[o->n];
		uint32_t packed;

		if (o->n == XET_XORB_CHUNKS_MAX || at + XET_CHUNK_HEAD > o->bytes)
			return err_set(err, ERR_INVALID,
			               "the shard names chunk %zu of a xorb that has %zu", until,
			               o->n);
		if (fs_pread_all(o->fd, head, sizeof(head), at, err) < 0 ||
		    xet_head_read(head, &o->chunk[o->n], &packed, err) < 0)
			return -1;
		o->at[++o->n] = at + XET_CHUNK_HEAD + packed;
		if (o->at[o->n] > o->bytes)
			return err_set(err, ERR_CORRUPT, "a xorb ends inside of a chunk");
	}
	return 0;
}

static int add_chunk(struct building *b, size_t i, struct err *err)
{
	const struct opened *o = b->from;
	size_t n = (size_t)(o->at[i + 1] - o->at[i]) - XET_CHUNK_HEAD;
	struct xet_packed c = o->chunk[i];

	assert(n <= XET_PACKED_MAX);
	if (fs_pread_all(o->fd, b->packed, n, o->at[i] + XET_CHUNK_HEAD, err) < 0)
		return -1;
	c.data = str_n((const char *)b->packed, n);
	if (xet_unpack(b->unpacker, &c, b->chunk, err) < 0)
		return -1;
	hash_add(b->sha256, b->chunk, c.unpacked);
	if (repo_room_need(&b->room, c.unpacked, err) < 0 ||
	    app_pwrite(b->fd, b->chunk, c.unpacked, b->at, err) < 0)
		return -1;
	b->at += c.unpacked;
	return 0;
}

static int add_term(struct building *b, const struct xet_term *t, struct err *err)
{
	uint64_t until = b->at + t->bytes;

	if (open_xorb(b, &t->xorb, err) < 0 || find_chunks(b->from, t->end, err) < 0)
		return -1;
	for (size_t i = t->start; i < t->end; i++) {
		if (add_chunk(b, i, err) < 0)
			return -1;
		if (b->at > until)
			break;
	}
	if (b->at != until)
		return err_set(err, ERR_INVALID,
		               "a term of the shard has other bytes than it says");
	return 0;
}

static int build(struct building *b, const struct xet_file *f, struct err *err)
{
	struct repo_upload u = {.repo_id = b->repo->id, .oid = f->sha256, .size = f->bytes};
	char tmp[TMP_CAP], journal[FS_PATH_MAX];
	struct digest is = {0};
	int rc;

	FMT(tmp, "xet-%s", app_id(b->a, 2 * MODEL_ID_LEN));
	blob_pins_add_tmp(b->pins, tmp);
	b->at = 0;
	if (blobs_tmp(b->app->blobs, tmp, &b->fd, journal, err) < 0)
		return -1;
	rc = 0;
	for (size_t i = 0; i < f->n && rc == 0; i++)
		rc = add_term(b, &f->term[i], err);
	(void)hash_end(b->sha256, is.b);
	if (!f->has_sha256)
		u.oid = is;
	if (rc == 0)
		rc = repo_upload_publish(b->app, &u, tmp, b->fd, &is, b->pins, err);
	(void)close(b->fd);
	return repo_upload_drop(b->app, tmp, rc, err);
}

/* Of a file that does not say its digest, its terms say whether it is one that was built. */
static struct digest terms_of(const struct xet_file *f)
{
	_Static_assert(sizeof(struct xet_term) == sizeof(struct xet_hash) + 3 * sizeof(uint32_t),
	               "no byte of it is nobody's");

	return hash_sha256(f->n > 0 ? (const void *)f->term : "", f->n * sizeof(*f->term));
}

static int build_file(struct building *b, const struct xet_file *f, struct err *err)
{
	struct digest terms = {0};
	bool there;
	int rc;

	if (b->app->stopping)
		return err_set(err, ERR_UNAVAILABLE, "the server is being stopped");
	if (!f->has_sha256) {
		terms = terms_of(f);
		if (map_get(b->built, digest_key(&terms)) != NULL)
			return 0;
	} else {
		if (repo_upload_there(b->app, b->a, b->repo, &f->sha256, &there, err) < 0)
			return -1;
		if (there)
			return 0;
	}
	if (repo_room_open(b->app, f->bytes, &b->room, err) < 0)
		return -1;
	rc = build(b, f, err);
	repo_room_close(&b->room);
	if (rc == 0 && !f->has_sha256)
		(void)map_set(b->built, digest_key(&terms), b);
	return rc;
}

/* One of a repository at a time: a client that waits too long sends its shard again. Each holds a
 * thread that answers requests, for as long as its files take; a quarter of these threads never
 * does. With the lock. */
static bool has_place(struct app *app, const struct hub_shard *mine)
{
	const struct hub_shard *w;
	unsigned all = 0, own = 0;

	LIST_FOREACH(w, &app->hub->shards, in)
	{
		if (strcmp(w->repo_id, mine->repo_id) == 0)
			return false;
		all++;
		own += w->owner == mine->owner;
	}
	return hub_has_place(all, own, (unsigned)MAX(app->set.workers * 3 / 4, 1));
}

static bool take_place(struct app *app, struct hub_shard *mine)
{
	bool has;

	lock_take(&app->hub->lock);
	has = has_place(app, mine);
	if (has)
		LIST_INSERT_HEAD(&app->hub->shards, mine, in);
	lock_give(&app->hub->lock);
	return has;
}

static void give_place(struct app *app, struct hub_shard *mine)
{
	lock_take(&app->hub->lock);
	LIST_REMOVE(mine, in);
	lock_give(&app->hub->lock);
	hub_notify_places(app);
}

int repo_shard_put(struct app *app, const struct repo_xet *x, struct str body, bool *no_place,
                   struct err *err)
{
	struct hub_shard mine = {.repo_id = x->repo_id};
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	AUTO_ARENA struct arena *a = arena_new();
	struct building b = {.app = app, .x = x, .a = a, .pins = pins};
	struct model_repo r;
	struct xet_shard s;
	int rc = 0;

	*no_place = false;
	if (repo_given_out(app, a, x->repo_id, &r, err) < 0 || app_has_room(app, err) < 0)
		return -1;
	mine.owner = hub_owner(r.team_id);
	*no_place = !take_place(app, &mine);
	if (*no_place)
		return 0;
	b.repo = &r;
	b.from = xcalloc(1, sizeof(*b.from));
	b.from->fd = -1;
	b.unpacker = xet_unpacker_new();
	b.packed = xmalloc(XET_PACKED_MAX);
	b.chunk = xmalloc(XET_CHUNK_MAX);
	b.sha256 = hash_new(HASH_SHA256);
	b.built = map_new();
	rc = xet_shard_read(a, body, &s, err);
	for (size_t i = 0; rc == 0 && i < s.n_files; i++)
		rc = repo_store_failed(app, r.id, s.file[i].has_sha256 ? &s.file[i].sha256 : NULL,
		                       build_file(&b, &s.file[i], err), err);
	give_place(app, &mine);
	map_free(b.built);
	hash_free(b.sha256);
	free(b.chunk);
	free(b.packed);
	xet_unpacker_free(b.unpacker);
	if (b.from->fd >= 0)
		(void)close(b.from->fd);
	free(b.from);
	return rc;
}
