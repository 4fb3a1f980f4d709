/*
 * repo_upload.c - large files that clients upload before the commit that names them. Each is a blob
 * once it is verified, named by a ref of the kind "lfs" of its repository; so it is there also if
 * the server is another one when the commit comes.
 *
 * One in parts waits in a temporary file, under a name that its first address has settled; each
 * part is at its place, so that it may be sent again.
 */
#include "server/data/repos.h"

#include "base/units.h"
#include "server/data/repo_room.h"
#include "server/data/weights.h"
#include "store/common/dirlist.h"

#define PIECE ((size_t)1 << 20)
#define TMP_CAP 80
#define WAITING "lfs-%s-" /* what a file in parts is called, behind it its id; by team */
#define WAITING_MAX 100000
#define STAT_BLOCK 512
#define ID_LEN 21

const char *repo_upload_name(struct arena *a, const char *repo_id, const struct digest *oid)
{
	char hex[HASH_HEX_CAP];

	digest_hex(oid, hex);
	return arena_printf(a, "%s/%s", repo_id, hex);
}

int repo_uploaded(struct app *app, struct arena *a, const struct model_repo *r,
                  const struct digest *oid, uint64_t *size, struct err *err)
{
	struct model_ref ref;
	char hex[HASH_HEX_CAP];

	if (meta_ref(app->meta, a, r->team_id, META_REF_LFS, repo_upload_name(a, r->id, oid), &ref,
	             err) == 0) {
		*size = ref.bytes;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	digest_hex(oid, hex);
	return err_set(err, ERR_HUB_OBJECT_NOT_FOUND, "no file %s was uploaded to %s/%s", hex,
	               r->owner, r->name);
}

int repo_upload_there(struct app *app, struct arena *a, const struct model_repo *r,
                      const struct digest *oid, bool *there, struct err *err)
{
	uint64_t size = 0;

	*there = false;
	if (repo_uploaded(app, a, r, oid, &size, err) == 0)
		*there = repo_bytes_kept(app, oid, size);
	else if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

int repo_upload_want(const struct ask *ask, const struct hub_name *name, struct repo_upload *u,
                     size_t n, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;
	uint64_t held = 0, more = 0;

	if (repo_to_write(ask, name->type, name->id, &r, err) < 0 || app_has_room(app, err) < 0 ||
	    meta_repos_bytes(app->meta, r.team_id, &held, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		uint64_t size = 0;

		u[i].repo_id = r.id;
		u[i].id = app_id(ask->a, ID_LEN);
		if (repo_uploaded(app, ask->a, &r, &u[i].oid, &size, err) == 0) {
			u[i].there = size == u[i].size && repo_bytes_kept(app, &u[i].oid, size);
			continue;
		}
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		more = u[i].size > UINT64_MAX - more ? UINT64_MAX : more + u[i].size;
	}
	return meta_repos_fit(held, more, app->set.repo_quota, err);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* At least so much will come: two of one size may be the same. */
static int least_of(struct app *app, const struct model_repo *r, const uint64_t *size, size_t n,
                    bool look, uint64_t *least, struct err *err)
{
	*least = 0;
	for (size_t i = 0; i < n; i++) {
		bool there = false;

		if (i > 0 && size[i] == size[i - 1])
			continue;
		if (look && meta_repo_upload_sized(app->meta, r, size[i], &there, err) < 0)
			return -1;
		if (!there)
			*least = size[i] > UINT64_MAX - *least ? UINT64_MAX : *least + size[i];
	}
	return 0;
}

/* Those that are there are only looked for when all would be too much. */
int repo_upload_fits(const struct ask *ask, const struct hub_name *name, uint64_t *size, size_t n,
                     struct err *err)
{
	struct app *app = ask->app;
	struct model_repo r;
	uint64_t held = 0, least = 0;

	if (n == 0)
		return 0;
	qsort(size, n, sizeof(*size), by_size);
	if (repo_to_write(ask, name->type, name->id, &r, err) < 0 ||
	    meta_repos_bytes(app->meta, r.team_id, &held, err) < 0 ||
	    least_of(app, &r, size, n, false, &least, err) < 0)
		return -1;
	if (meta_repos_fit(held, least, app->set.repo_quota, err) == 0)
		return 0;
	err_clear(err);
	if (least_of(app, &r, size, n, true, &least, err) < 0)
		return -1;
	return meta_repos_fit(held, least, app->set.repo_quota, err);
}

/* ---- bytes that come ----------------------------------------------------------------------- */

/* A file that parts of are being written to: they may come at once, and not while they are joined:
 * what was verified stays what it is. */
struct upload {
	unsigned magic;
#define UPLOAD_MAGIC 0x55504c44U
	char name[TMP_CAP];
	unsigned users, writing; /* of them, some in this moment */
	bool joined;
	int fd;
	struct blob_pins *pins;
};

/* What is true of one whenever the lock is free. */
static void upload_check(const struct hub *h, const struct upload *x)
{
	assert(x->magic == UPLOAD_MAGIC && lock_is_mine(&h->upload_lock));
	assert(x->users > 0 && x->writing <= x->users && x->fd >= 0);
}

static int write_begin(struct app *app, struct upload *x, struct err *err)
{
	struct hub *h = app->hub;
	bool joined;

	lock_take(&h->upload_lock);
	upload_check(h, x);
	joined = x->joined;
	x->writing += !joined;
	upload_check(h, x);
	lock_give(&h->upload_lock);
	return joined ? err_set(err, ERR_CONFLICT, "the parts of this file are put together") : 0;
}

static void write_end(struct app *app, struct upload *x)
{
	struct hub *h = app->hub;

	lock_take(&h->upload_lock);
	upload_check(h, x);
	assert(x->writing > 0);
	if (--x->writing == 0)
		cond_broadcast(&h->written);
	lock_give(&h->upload_lock);
}

struct target { /* of bytes that come */
	int fd;
	struct hash *hash;     /* NULL, or what they are added to */
	struct upload *upload; /* NULL, or what they are a part of */
	struct repo_room *room;
};

static int write_piece(struct app *app, const struct target *to, const char *p, size_t n,
                       uint64_t at, struct err *err)
{
	int rc;

	if (repo_room_need(to->room, n, err) < 0)
		return -1;
	if (to->hash != NULL)
		hash_add(to->hash, p, n);
	if (to->upload == NULL)
		return app_pwrite(to->fd, p, n, at, err);
	if (write_begin(app, to->upload, err) < 0)
		return -1;
	rc = app_pwrite(to->fd, p, n, at, err);
	write_end(app, to->upload);
	return rc;
}

/* Exactly n bytes, to where they belong. */
static int store(struct app *app, const struct target *to, uint64_t at, uint64_t n,
                 const struct repo_bytes *from, struct err *err)
{
	AUTO_FREE char *piece = xmalloc(PIECE);
	uint64_t got = 0;
	size_t some;

	for (;;) {
		if (from->read(from->arg, piece, PIECE, &some, err) < 0)
			return -1;
		if (some == 0)
			break;
		if (some > n - got)
			return err_set(err, ERR_INVALID, "more than %" PRIu64 " bytes came", n);
		if (write_piece(app, to, piece, some, at + got, err) < 0)
			return -1;
		got += some;
	}
	if (got < n)
		return err_set(err, ERR_INVALID, "%" PRIu64 " of %" PRIu64 " bytes came", got, n);
	return 0;
}

int repo_given_out(struct app *app, struct arena *a, const char *repo_id, struct model_repo *out,
                   struct err *err)
{
	if (meta_repo(app->meta, a, repo_id, out, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(err, ERR_HUB_REPO_NOT_FOUND,
	               "the repository that this upload is for has been deleted");
}

int repo_upload_publish(struct app *app, const struct repo_upload *u, const char *tmp, int fd,
                        const struct digest *is, struct blob_pins *pins, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int64_t now_ms = clock_wall_ms();
	struct model_ref ref = {.kind = META_REF_LFS,
	                        .name = repo_upload_name(a, u->repo_id, &u->oid),
	                        .bytes = u->size,
	                        .files = 1,
	                        .created_ms = now_ms,
	                        .used_ms = now_ms};
	struct model_repo r;
	struct manifest m;
	struct digest name;
	char hex[HASH_HEX_CAP], want[HASH_HEX_CAP];

	digest_hex(is, hex);
	digest_hex(&u->oid, want);
	if (!digest_same(is, &u->oid))
		return err_set(err, ERR_INVALID, "the digest of the bytes that came is %s, not %s",
		               hex, want);
	blob_pins_add(pins, is);
	manifest_init(&m, a);
	if (repo_given_out(app, a, u->repo_id, &r, err) < 0 ||
	    blobs_commit(app->blobs, tmp, fd, is, err) < 0 ||
	    manifest_add(&m, str_of(want), u->size, is, err) < 0 || manifest_finish(&m, err) < 0 ||
	    hub_put_manifest(app, pins, &m, NULL, NULL, &name, err) < 0)
		return -1;
	digest_hex(&name, hex);
	ref.team_id = r.team_id;
	ref.manifest = hex;
	app_crash_at("repo:uploaded");
	return meta_repo_upload(app->meta, r.id, &ref, app->set.repo_quota, err);
}

int repo_upload_drop(struct app *app, const char *tmp, int rc, struct err *err)
{
	struct err ignored = {0};

	if (rc < 0 && blobs_drop_tmp(app->blobs, tmp, &ignored) < 0)
		log_warn("hub: %s: %s (%s)", tmp, ignored.msg, err->msg);
	return rc;
}

int repo_store_failed(struct app *app, const char *repo_id, const struct digest *oid, int rc,
                      struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_repo r;
	struct err ignored = {0};
	char hex[HASH_HEX_CAP] = "";

	if (rc == 0 || err->code != ERR_NO_SPACE)
		return rc;
	if (meta_repo(app->meta, a, repo_id, &r, &ignored) < 0)
		return -1;
	if (oid != NULL)
		digest_hex(oid, hex);
	return err_wrap(err, "a file of %s/%s%s%s", r.owner, r.name, oid != NULL ? ", " : "", hex);
}

int repo_upload_put(struct app *app, const struct repo_upload *u, const struct repo_bytes *from,
                    struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	AUTO_ARENA struct arena *a = arena_new();
	struct repo_room room;
	char tmp[TMP_CAP], journal[FS_PATH_MAX];
	struct digest is;
	AUTO_FD int fd = -1;
	int rc;

	/* two clients may send the same file at once */
	FMT(tmp, "lfs-%s-%s", u->id, app_id(a, MODEL_ID_LEN));
	if (app_has_room(app, err) < 0 || repo_room_open(app, u->size, &room, err) < 0)
		return -1;
	blob_pins_add_tmp(pins, tmp);
	rc = blobs_tmp(app->blobs, tmp, &fd, journal, err);
	if (rc == 0)
		rc = store(app, &(struct target){.fd = fd, .hash = h, .room = &room}, 0, u->size,
		           from, err);
	if (rc == 0) {
		(void)hash_end(h, is.b);
		rc = repo_upload_publish(app, u, tmp, fd, &is, pins, err);
	}
	repo_room_close(&room);
	rc = repo_upload_drop(app, tmp, rc, err);
	return repo_store_failed(app, u->repo_id, &u->oid, rc, err);
}

/* ---- in parts ------------------------------------------------------------------------------ */

static int upload_open(struct app *app, const struct model_repo *r, const struct repo_upload *u,
                       struct upload **out, struct err *err)
{
	char name[TMP_CAP], journal[FS_PATH_MAX];
	struct hub *h = app->hub;
	struct upload *x;
	int rc = 0;

	FMT(name, WAITING "%s", r->team_id, u->id);
	lock_take(&h->upload_lock);
	x = map_get(h->uploads, str_of(name));
	if (x == NULL) {
		x = xcalloc(1, sizeof(*x));
		x->magic = UPLOAD_MAGIC;
		FMT(x->name, "%s", name);
		x->pins = blob_pins_new(app->blobs);
		blob_pins_add_tmp(x->pins, x->name);
		rc = blobs_tmp(app->blobs, x->name, &x->fd, journal, err);
		if (rc < 0) {
			blob_pins_free(x->pins);
			free(x);
		} else {
			(void)map_set(h->uploads, str_of(name), x);
		}
	}
	if (rc == 0) {
		x->users++;
		upload_check(h, x);
		*out = x;
	}
	lock_give(&h->upload_lock);
	return rc;
}

static void upload_close(struct app *app, struct upload *x)
{
	struct hub *h = app->hub;

	lock_take(&h->upload_lock);
	upload_check(h, x);
	if (--x->users == 0) {
		(void)map_del(h->uploads, str_of(x->name));
		assert(x->writing == 0);
		(void)close(x->fd);
		blob_pins_free(x->pins);
		x->magic = 0;
		free(x);
	}
	lock_give(&h->upload_lock);
}

struct waiting {
	unsigned magic;
#define WAITING_MAGIC 0x56574149U
	int dir;
	uint64_t bytes;
};

static void add_waiting(void *arg, const char *path)
{
	struct waiting *w = FROM_VOID(struct waiting, arg, WAITING_MAGIC);
	struct stat st;

	if (fstatat(w->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		w->bytes += (uint64_t)st.st_blocks * STAT_BLOCK;
}

/* Parts of files that were never put together count as the team's, until they are swept. */
static int may_wait(struct app *app, struct arena *a, const struct model_repo *r, uint64_t more,
                    struct err *err)
{
	const char *prefix = arena_printf(a, "tmp/" WAITING, r->team_id);
	struct waiting w = {.magic = WAITING_MAGIC, .dir = blobs_dirfd(app->blobs)};
	uint64_t held = 0, quota = app->set.repo_quota;
	char parts[UNITS_CAP], have[UNITS_CAP], most[UNITS_CAP];
	bool left = false;

	if (dirlist(w.dir, prefix, NULL, WAITING_MAX, NULL, add_waiting, &w, &left, err) < 0 ||
	    meta_repos_bytes(app->meta, r->team_id, &held, err) < 0)
		return -1;
	if (!left && w.bytes <= quota && held <= quota - w.bytes && more <= quota - w.bytes - held)
		return 0;
	return err_set(err, ERR_REPO_QUOTA_EXCEEDED,
	               "the repositories of the team hold %s, and parts of files that were not put "
	               "together another %s: more would be over its quota of %s",
	               units_show_bytes(held, have), units_show_bytes(w.bytes, parts),
	               units_show_bytes(quota, most));
}

int repo_upload_part(struct app *app, const struct repo_upload *u, uint64_t at, uint64_t n,
                     const struct repo_bytes *from, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct repo_room room;
	struct upload *x = NULL;
	struct model_repo r;
	int rc;

	assert(at <= u->size && n <= u->size - at);
	if (repo_given_out(app, a, u->repo_id, &r, err) < 0 || may_wait(app, a, &r, n, err) < 0 ||
	    app_has_room(app, err) < 0 || repo_room_open(app, n, &room, err) < 0)
		return -1;
	rc = upload_open(app, &r, u, &x, err);
	if (rc == 0) {
		rc = store(app, &(struct target){.fd = x->fd, .upload = x, .room = &room}, at, n,
		           from, err);
		upload_close(app, x);
	}
	repo_room_close(&room);
	return repo_store_failed(app, u->repo_id, &u->oid, rc, err);
}

/* No byte is written from now on. */
static int close_to_writers(struct app *app, struct upload *x, struct err *err)
{
	struct hub *h = app->hub;
	bool joined;

	lock_take(&h->upload_lock);
	upload_check(h, x);
	joined = x->joined;
	x->joined = true;
	while (!joined && x->writing > 0)
		cond_wait(&h->written, &h->upload_lock);
	upload_check(h, x);
	lock_give(&h->upload_lock);
	return joined ? err_set(err, ERR_UNAVAILABLE, "the parts of this file are put together")
	              : 0;
}

static void open_to_writers(struct app *app, struct upload *x)
{
	struct hub *h = app->hub;

	lock_take(&h->upload_lock);
	upload_check(h, x);
	assert(x->joined && x->writing == 0); /* by whoever opens it again */
	x->joined = false;
	lock_give(&h->upload_lock);
}

/* With all of it here. */
static int join(struct app *app, const struct repo_upload *u, struct upload *x, struct err *err)
{
	struct digest is;
	uint64_t size = 0;

	if (lseek(x->fd, 0, SEEK_SET) < 0)
		return err_errno(err, errno, "%s", x->name);
	if (hash_fd(x->fd, &is, &size, err) < 0)
		return -1;
	if (size != u->size) { /* it stays: the part may still come */
		open_to_writers(app, x);
		return err_set(err, ERR_INVALID,
		               "%" PRIu64 " of %" PRIu64 " bytes came: parts are missing", size,
		               u->size);
	}
	return repo_upload_drop(
		app, x->name, repo_upload_publish(app, u, x->name, x->fd, &is, x->pins, err), err);
}

int repo_upload_join(struct app *app, const struct repo_upload *u, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct upload *x = NULL;
	struct model_repo r;
	bool there;
	int rc;

	if (repo_given_out(app, a, u->repo_id, &r, err) < 0 ||
	    repo_upload_there(app, a, &r, &u->oid, &there, err) < 0)
		return -1;
	if (there) /* its answer was lost */
		return 0;
	if (upload_open(app, &r, u, &x, err) < 0)
		return -1;
	rc = close_to_writers(app, x, err);
	if (rc == 0)
		rc = join(app, u, x, err);
	upload_close(app, x);
	return rc;
}
