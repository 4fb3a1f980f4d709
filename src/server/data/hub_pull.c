/*
 * hub_pull.c - files of the other Hub on their way: one pull for all who want the same content,
 * whichever repository they ask of; and what a request for a file gets. Who is sent bytes while
 * they come: hub_follow.c.
 */
#include "server/data/hub_pull.h"

#include "server/api/ctx.h"
#include "server/data/mirror_room.h"
#include "server/data/repos.h"
#include "server/data/weights.h"
#include "store/blobs/blob_git.h"
#include "store/blobs/blob_objects.h"
#include "store/sources/bring.h"

#define THROUGH_MAX ((uint64_t)16 << 20) /* a piece of that size ... */
#define THROUGH_OF ((uint64_t)64 << 20)  /* ... of a file at least so large is read through */
#define LUMP_BYTES ((uint64_t)64 << 20)  /* of room, which small files share */
#define FAILED_MS 5000                   /* so long a failure is the answer */
#define SIGNED_S 3600

/* Room that was reserved at once, for files that come one by one. */
struct hub_lump {
	struct mirror_hold *hold;
	uint64_t left; /* that no file was promised */
	unsigned files;
};

static void content_of(const struct hub_file *f, char out[CONTENT_CAP])
{
	char hex[HASH_HEX_CAP];

	if (f->lfs)
		digest_hex(&f->sha256, hex);
	else
		hex_encode(f->oid, HUB_OID_LEN, hex);
	fmt_fixed(out, CONTENT_CAP, "%s:%s", f->lfs ? "sha256" : "git", hex);
}

/* ---- room ---------------------------------------------------------------------------------- */

/* What is true of a pull whenever the lock is free. */
static void pull_check(const struct hub *h, const struct hub_pull *p)
{
	assert(p->magic == HUB_PULL_MAGIC && lock_is_mine(&h->lock) && p->refs > 0);
	assert(p->repo->magic == HUB_REPO_MAGIC && p->repo->users > 0);
	assert(p->done || (p->failed_ms == 0 && p->repo->pulls > 0));
	assert(p->failed_ms == 0 || p->err.code != ERR_NONE);
	assert(p->lump == NULL || p->hold == NULL); /* its room is of one kind */
}

/* With the lock. */
static void lump_drop(struct app *app, struct hub_lump *l)
{
	assert(l->files > 0 && l->left <= LUMP_BYTES);
	if (--l->files > 0)
		return;
	mirror_room_give(app, l->hold);
	free(l);
}

static int take_room(struct hub_pull *p, uint64_t bytes, struct mirror_hold **out, struct err *err)
{
	const struct mirror_want want = {.bytes = bytes};
	const struct hub_listing *l = &p->repo->l;
	struct app *app = p->repo->app;
	AUTO_FREE char *name = xasprintf("%s of %s%s", p->f->path, hub_type_prefix(l->type), l->id);

	return mirror_room_take(app, name, bytes, &want, &app->hub->cancel, out, err);
}

/* Of a lump that there is, or of a new one; where none fits, just for this file. */
static int find_room(struct hub_pull *p, struct err *err)
{
	struct app *app = p->repo->app;
	struct hub *h = app->hub;
	struct mirror_hold *hold = NULL;
	struct hub_lump *l;

	lock_take(&h->lock);
	l = h->lump;
	if (l != NULL && l->left >= p->f->size) {
		l->left -= p->f->size;
		l->files++;
		p->lump = l;
	}
	lock_give(&h->lock);
	if (p->lump != NULL)
		return 0;
	if (p->f->size >= LUMP_BYTES || take_room(p, LUMP_BYTES, &hold, err) < 0) {
		err_clear(err);
		return take_room(p, p->f->size, &p->hold, err);
	}
	l = xcalloc(1, sizeof(*l));
	l->hold = hold;
	l->left = LUMP_BYTES - p->f->size;
	l->files = 2; /* this one, and being the current lump */
	p->lump = l;
	lock_take(&h->lock);
	if (h->lump != NULL)
		lump_drop(app, h->lump);
	h->lump = l;
	lock_give(&h->lock);
	return 0;
}

static void give_room(struct hub_pull *p, bool stored)
{
	struct app *app = p->repo->app;

	if (p->lump != NULL) {
		if (stored)
			mirror_room_stored(app, p->lump->hold, p->f->size);
		lock_take(&app->hub->lock);
		lump_drop(app, p->lump);
		lock_give(&app->hub->lock);
		p->lump = NULL;
	}
	mirror_room_give(app, p->hold);
	p->hold = NULL;
}

/* ---- a pull -------------------------------------------------------------------------------- */

void hub_pull_drop(struct hub *h, struct hub_pull *p)
{
	assert(p->magic == HUB_PULL_MAGIC && p->refs > 0 && lock_is_mine(&h->lock));
	if (--p->refs > 0)
		return;
	assert(p->lump == NULL && p->hold == NULL);
	if (p->fd >= 0)
		(void)close(p->fd);
	cond_done(&p->moved);
	hub_repo_drop(h, p->repo);
	p->magic = 0;
	free(p);
}

static void pull_out(struct hub *h, struct hub_pull *p)
{
	if (map_get(h->pulls, str_of(p->content)) != p)
		return;
	(void)map_del(h->pulls, str_of(p->content));
	hub_pull_drop(h, p);
}

static void notify(const struct hub_pull *p)
{
	struct httpd *http = atomic_load(&p->repo->app->httpd);

	if (http != NULL)
		httpd_notify(http, hub_bytes_channel(p->f));
}

void hub_notify_places(struct app *app)
{
	struct httpd *http = atomic_load(&app->httpd);

	if (http != NULL)
		httpd_notify(http, hub_places_channel());
}

uint64_t hub_pull_readable(const struct hub_pull *p)
{
	if (p->done)
		return p->failed_ms == 0 ? p->f->size : 0;
	return MIN(p->front, p->f->size - HELD_BACK);
}

static void on_opened(void *arg, int fd)
{
	struct hub_pull *p = FROM_VOID(struct hub_pull, arg, HUB_PULL_MAGIC);
	struct hub *h = p->repo->app->hub;

	lock_take(&h->lock);
	pull_check(h, p);
	assert(!p->done);
	if (p->fd >= 0) /* another file of the same content: who reads it is told of that */
		(void)dup3(fd, p->fd, O_CLOEXEC);
	else
		p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* -1: who wants it waits for the end */
	lock_give(&h->lock);
}

static void on_front(void *arg, uint64_t bytes)
{
	struct hub_pull *p = FROM_VOID(struct hub_pull, arg, HUB_PULL_MAGIC);
	struct hub *h = p->repo->app->hub;
	bool wanted;

	lock_take(&h->lock);
	pull_check(h, p);
	assert(!p->done);
	if (bytes <= p->front) /* only what is read now will be verified */
		p->began++;
	p->front = bytes;
	wanted = hub_pull_readable(p) >= p->wanted;
	if (wanted)
		p->wanted = UINT64_MAX;
	cond_broadcast(&p->moved);
	lock_give(&h->lock);
	if (wanted)
		notify(p);
}

struct source_file hub_source_file(const struct hub_file *f)
{
	struct source_file s = {.path = f->path,
	                        .size = f->size,
	                        .kind = f->lfs ? HASH_SHA256 : HASH_SHA1,
	                        .has_id = true};

	memcpy(s.id, f->lfs ? f->sha256.b : f->oid, f->lfs ? HASH_SHA256_LEN : HUB_OID_LEN);
	return s;
}

int hub_source_of(const struct hub_repo *r, struct source **out, struct err *err)
{
	return hub_source(r->app, r->team_id, r->l.type, r->l.id, r->l.commit, 0, out, err);
}

/* What lists a file and does not give it has failed, unless it says that the right has ended. */
static int failed(const struct hub_pull *p, const struct source *s, struct err *err)
{
	const struct hub_listing *l = &p->repo->l;
	enum source_refusal why = source_refusal(s);

	if (why == SOURCE_GATED || why == SOURCE_NO_REPOSITORY)
		return hub_refused(s, &(struct hub_name){l->type, l->id, l->commit}, err);
	if (err->code != ERR_DENIED && err->code != ERR_NOT_FOUND && err->code != ERR_AUTH)
		return -1;
	err_clear(err);
	return err_set(err, ERR_SOURCE_BROKEN,
	               "the Hub lists %s of %s/%s, and does not give it now", p->f->path,
	               hub_type_word(l->type), l->id);
}

static int bring(struct hub_pull *p, struct digest *sha256, struct err *err)
{
	struct app *app = p->repo->app;
	AUTO_SOURCE struct source *s = NULL;
	struct source_file f = hub_source_file(p->f);
	struct bring_job job = {.blobs = app->blobs,
	                        .file = &f,
	                        .opened = on_opened,
	                        .front = on_front,
	                        .arg = p,
	                        .cancel = &app->hub->cancel};
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	int rc;

	job.pins = pins; /* the repository's may be given back meanwhile */
	if (hub_source_of(p->repo, &s, err) < 0 || find_room(p, err) < 0)
		return -1;
	job.source = s;
	rc = bring_file(&job, sha256, err);
	give_room(p, rc == 0);
	if (rc < 0)
		return failed(p, s, err);
	lock_take(&app->hub->lock);
	hub_repo_note(p->repo, p->f, sha256);
	lock_give(&app->hub->lock);
	return 0;
}

static void pull_run(void *arg)
{
	struct hub_pull *p = FROM_VOID(struct hub_pull, arg, HUB_PULL_MAGIC);
	struct hub *h = p->repo->app->hub;
	struct digest sha256;
	struct err err = {0};
	int rc;

	if (atomic_load(&h->cancel))
		rc = err_set(&err, ERR_UNAVAILABLE, "the server is shutting down");
	else
		rc = bring(p, &sha256, &err);
	if (rc < 0)
		log_warn("hub: %s: %s", p->f->path, err.msg);
	lock_take(&h->lock);
	pull_check(h, p);
	assert(!p->done);
	p->done = true;
	p->err = err;
	p->failed_ms = rc < 0 ? MAX((int64_t)1, clock_mono_ms()) : 0;
	p->repo->pulls--;
	pull_check(h, p);
	cond_broadcast(&p->moved);
	lock_give(&h->lock);
	notify(p);
	hub_notify_places(p->repo->app); /* who waits for one needs none now */
	lock_take(&h->lock);
	if (rc == 0)
		pull_out(h, p); /* a failure stays, for who waits to hear of it */
	hub_pull_drop(h, p);
	lock_give(&h->lock);
}

/* With the lock. */
static int pull_begin(struct hub *h, uint64_t owner, struct hub_repo *r, const struct hub_file *f,
                      struct hub_pull **out, struct err *err)
{
	struct workers *w = f->size <= BRING_SMALL_MAX ? h->small_fetches : h->fetches;
	struct hub_pull *p = xcalloc(1, sizeof(*p));

	p->magic = HUB_PULL_MAGIC;
	p->repo = r;
	p->f = f;
	p->fd = -1;
	p->wanted = UINT64_MAX;
	p->refs = 2; /* the map's, and its thread's */
	content_of(f, p->content);
	cond_init(&p->moved);
	hub_repo_hold(h, r);
	r->pulls++;
	(void)map_set(h->pulls, str_of(p->content), p);
	if (atomic_load(&h->cancel))
		(void)err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
	else if (workers_submit_for(w, (struct workers_owner){.id = owner}, pull_run, p, err) ==
	         0) {
		pull_check(h, p);
		*out = p;
		return 0;
	}
	r->pulls--;
	p->refs--;
	pull_out(h, p);
	return -1;
}

static void free_pull(struct str key UNUSED, void *value, void *arg)
{
	struct hub_pull *p = FROM_VOID(struct hub_pull, value, HUB_PULL_MAGIC);
	struct hub *h = FROM_VOID(struct hub, arg, HUB_MAGIC);

	lock_take(&h->lock);
	pull_out(h, p);
	lock_give(&h->lock);
}

static void sweep_pull(struct str key UNUSED, void *value, void *arg)
{
	struct hub_pull *p = FROM_VOID(struct hub_pull, value, HUB_PULL_MAGIC);

	if (p->failed_ms != 0 && clock_mono_ms() - p->failed_ms >= FAILED_MS)
		pull_out(FROM_VOID(struct hub, arg, HUB_MAGIC), p);
}

void hub_pulls_sweep(struct app *app)
{
	struct hub *h = app->hub;

	lock_take(&h->lock);
	map_each(h->pulls, sweep_pull, h);
	lock_give(&h->lock);
}

void hub_pulls_free(struct app *app)
{
	struct hub *h = app->hub;

	map_each(h->pulls, free_pull, h);
	map_free(h->pulls);
	if (h->lump != NULL)
		lump_drop(app, h->lump);
}

/* ---- what a request gets ------------------------------------------------------------------- */

/* In the object store, from which whoever wants them gets them; from a store of files we give them.
 * A ref names them: they are there. ERR_NOT_FOUND: they are not. */
static int find_elsewhere(const struct ask *ask, const struct digest *d, uint64_t size,
                          struct hub_bytes *out, struct err *err)
{
	struct app *app = ask->app;
	char key[BLOB_KEY_CAP];
	struct objstore_request rq = {.method = HTTP_GET, .key = key, .expires_s = SIGNED_S};
	struct objstore_info info;
	struct objstore_signed s;
	AUTO_FD int fd = -1;

	blob_object_key(d, key);
	if (!weights_in_objects(app))
		return err_set(err, ERR_NOT_FOUND, "%s: this server has no object store", key);
	if (objstore_presign(app->objects, ask->a, &rq, &s, err) == 0) {
		out->how = HUB_ELSEWHERE;
		out->location = s.url;
		return 0;
	}
	err_clear(err);
	if (objstore_fd(app->objects, key, &fd, &info, err) < 0)
		return -1;
	if (info.size != size)
		return err_set(err, ERR_NOT_FOUND, "%s has another size", key);
	out->how = HUB_FILE;
	out->fd = TAKE_FD(fd);
	return 0;
}

/* All of its bytes are here, or in the object store. */
static bool find_here(const struct ask *ask, struct hub_repo *r, const struct hub_file *f,
                      struct hub_bytes *out)
{
	struct app *app = ask->app;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	struct hub *h = app->hub;
	size_t i = (size_t)(f - r->l.file);
	struct digest d = f->sha256;
	struct err err = {0};
	AUTO_FD int fd = -1;
	uint64_t size = 0;
	bool kept;

	lock_take(&h->lock);
	kept = r->is_here[i];
	if (kept)
		d = r->sha256[i];
	lock_give(&h->lock);
	if (!kept && !f->lfs && !blob_git_look(app->blobs, f->oid, &d))
		return false;
	blob_pins_add(pins, &d);
	if (blobs_fd(app->blobs, &d, &fd, &size, &err) == 0 && size == f->size) {
		lock_take(&h->lock);
		hub_repo_note(r, f, &d);
		lock_give(&h->lock);
		out->how = HUB_FILE;
		out->fd = TAKE_FD(fd);
		return true;
	}
	err_clear(&err);
	if (kept && find_elsewhere(ask, &d, f->size, out, &err) == 0)
		return true;
	if (!kept) /* it may have come meanwhile */
		return false;
	lock_take(&h->lock);
	hub_repo_lost(r, f); /* evicted since: its ref went with it, and comes back with it */
	lock_give(&h->lock);
	return false;
}

/* With the lock: has it failed while somebody waited? Then that is the answer; else it begins anew,
 * also when it was fetched of another repository: this one may have it, and its name is not for
 * everybody. */
static bool has_failed(struct hub *h, struct hub_repo *r, struct hub_pull *p, bool again,
                       struct err *err)
{
	if (p->failed_ms == 0)
		return false;
	if (again && p->repo == r && clock_mono_ms() - p->failed_ms < FAILED_MS) {
		*err = p->err;
		return true;
	}
	pull_out(h, p);
	return false;
}

static int pull(const struct ask *ask, struct hub_repo *r, const struct hub_file *f, uint64_t first,
                uint64_t count, bool again, struct hub_bytes *out, struct err *err)
{
	char content[CONTENT_CAP];
	struct app *app = ask->app;
	struct hub *h = app->hub;
	const char *team_id;
	struct hub_pull *p;
	uint64_t owner;
	bool through;
	int rc = 0;

	if (ctx_team(ask, NULL, &team_id, err) < 0)
		return -1;
	owner = hub_owner(team_id);
	content_of(f, content);
	lock_take(&h->lock);
	p = map_get(h->pulls, str_of(content));
	if (p != NULL && has_failed(h, r, p, again, err)) {
		lock_give(&h->lock);
		return -1;
	}
	p = map_get(h->pulls, str_of(content));
	through = count <= THROUGH_MAX && count < f->size && f->size >= THROUGH_OF &&
	          (p == NULL || hub_pull_readable(p) < first + count);
	if (!through) {
		if (p == NULL)
			rc = pull_begin(h, owner, r, f, &p, err);
		if (rc == 0)
			hub_follow(app, owner, p, first, count, out);
	}
	lock_give(&h->lock);
	return through ? hub_read_through(app, owner, r, f, out, err) : rc;
}

/* One of our own, which nobody else has. With --objects it is only not in the folder. */
static int not_here(const struct ask *ask, struct hub_repo *r, const struct hub_file *f,
                    struct hub_bytes *out, struct err *err)
{
	const struct digest *d = &r->sha256[f - r->l.file];

	if (find_elsewhere(ask, d, f->size, out, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND) /* the store is away */
		return -1;
	err_clear(err);
	repo_bytes_lost(ask->app, d);
	return err_set(err, ERR_CORRUPT,
	               "the bytes of %s in %s are gone from the store: upload it again", f->path,
	               r->l.id);
}

int hub_bytes_of(const struct ask *ask, const struct hub_listing *l, const struct hub_file *f,
                 uint64_t first, uint64_t count, bool again, struct hub_bytes *out, struct err *err)
{
	struct hub_repo *r = hub_repo_of(l);

	assert(first <= f->size && count <= f->size - first);
	*out = (struct hub_bytes){.how = HUB_NOT_YET, .fd = -1};
	if (find_here(ask, r, f, out))
		return 0;
	if (strcmp(r->kind, META_REF_HUB) != 0)
		return not_here(ask, r, f, out, err);
	if (pull(ask, r, f, first, count, again, out, err) < 0)
		return -1;
	/* It may have come between the two looks. */
	if (out->how != HUB_STREAM)
		(void)find_here(ask, r, f, out);
	return 0;
}
