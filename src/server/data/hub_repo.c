/*
 * hub_repo.c - what is kept of a repository at a commit. Its manifest has the listing, and below
 * files/ those files that are here; the ref that names it is written behind them, by the keeper,
 * and moves as more arrive. Until then pins hold what has come.
 */
#include "server/data/hub_impl.h"

#include "server/data/repos.h"
#include "server/data/weights.h"
#include "store/blobs/blob_git.h"
#include "store/blobs/blob_objects.h"

#define REPOS_MAX                                                                                  \
	((uint64_t)256 << 20) /* of memory that the lists of files of all repositories take */
#define REPO_BYTES ((uint64_t)8 << 10) /* of one, beside its listing */
#define KEEP_MS 10000                  /* while files arrive the ref is so old at most */
#define TOUCH_MS 60000

/* ---- in memory ----------------------------------------------------------------------------- */

static void key_of(const char *team_id, const char *name, char out[HUB_KEY_CAP])
{
	fmt_fixed(out, HUB_KEY_CAP, "%s\n%s", team_id, name);
}

struct hub_repo *hub_repo_find(struct hub *h, const char *team_id, enum hub_type type,
                               const char *id, const char *commit)
{
	char repo[HUB_REPO_CAP], key[HUB_KEY_CAP];

	hub_repo_name(type, id, repo);
	fmt_fixed(key, sizeof(key), "%s\n%s@%s", team_id, repo, commit);
	return map_get(h->repo_by_name, str_of(key));
}

static uint64_t memory_of(const struct hub_repo *r)
{
	return REPO_BYTES + arena_bytes(r->a) +
	       (r->l.n + 1) * (sizeof(*r->sha256) + sizeof(*r->is_here));
}

static void repo_free(struct hub_repo *r)
{
	blob_pins_free(r->pins);
	free(r->sha256);
	free(r->is_here);
	arena_free(r->a);
	free(r);
}

static void repo_out(struct hub *h, struct hub_repo *r)
{
	assert(r->users == 0 && r->pulls == 0);
	(void)map_del(h->repo_by_name, str_of(r->key));
	TAILQ_REMOVE(&h->repos, r, in);
	h->bytes -= r->memory;
	repo_free(r);
}

/* The least recently used that nobody holds go first. */
static void make_room(struct hub *h)
{
	struct hub_repo *r, *before;

	for (r = TAILQ_LAST(&h->repos, hub_repos); r != NULL && h->bytes > REPOS_MAX; r = before) {
		before = TAILQ_PREV(r, hub_repos, in);
		if (r->users == 0 && r->pulls == 0 && !r->dirty)
			repo_out(h, r);
	}
}

void hub_repo_hold(struct hub *h, struct hub_repo *r)
{
	assert(r->magic == HUB_REPO_MAGIC && lock_is_mine(&h->lock));
	r->users++;
	r->used_ms = clock_mono_ms();
	TAILQ_REMOVE(&h->repos, r, in);
	TAILQ_INSERT_HEAD(&h->repos, r, in);
}

void hub_repo_drop(struct hub *h, struct hub_repo *r)
{
	assert(r->magic == HUB_REPO_MAGIC && r->users > 0 && lock_is_mine(&h->lock));
	r->users--;
}

struct hub_repo *hub_repo_of(const struct hub_listing *l)
{
	struct hub_repo *r = (struct hub_repo *)((uintptr_t)l - offsetof(struct hub_repo, l));

	assert(r->magic == HUB_REPO_MAGIC);
	return r;
}

void hub_repo_lost(struct hub_repo *r, const struct hub_file *f)
{
	size_t i = (size_t)(f - r->l.file);

	assert(i < r->l.n && lock_is_mine(&r->app->hub->lock));
	r->is_here[i] = false;
}

void hub_repo_note(struct hub_repo *r, const struct hub_file *f, const struct digest *d)
{
	size_t i = (size_t)(f - r->l.file);

	assert(i < r->l.n && lock_is_mine(&r->app->hub->lock));
	if (r->is_here[i] && digest_same(&r->sha256[i], d))
		return;
	r->sha256[i] = *d;
	r->is_here[i] = true;
	r->dirty = true;
	blob_pins_add(r->pins, d);
}

void hub_repo_forget(struct app *app, const char *team_id, const char *name)
{
	struct hub *h = app->hub;
	struct blob_pins *before = NULL, *pins = blob_pins_new(app->blobs);
	char key[HUB_KEY_CAP];
	struct hub_repo *r;

	key_of(team_id, name, key);
	lock_take(&h->lock);
	r = map_get(h->repo_by_name, str_of(key));
	if (r != NULL) {
		r->forgotten++;
		memset(r->is_here, 0, r->l.n * sizeof(*r->is_here));
		r->dirty = false;
		before = r->pins;
		r->pins = pins;
	} else {
		before = pins;
	}
	lock_give(&h->lock);
	blob_pins_free(before);
}

static struct hub_repo *repo_new(struct app *app, const char *team_id)
{
	struct hub_repo *r = xcalloc(1, sizeof(*r));

	r->magic = HUB_REPO_MAGIC;
	r->app = app;
	r->a = arena_new();
	r->team_id = arena_cstr(r->a, team_id);
	r->kind = META_REF_HUB;
	r->pins = blob_pins_new(app->blobs);
	return r;
}

static void name_it(struct hub_repo *r, enum hub_type type, const char *id, const char *commit)
{
	char repo[HUB_REPO_CAP], key[HUB_KEY_CAP];

	hub_repo_name(type, id, repo);
	r->name = arena_printf(r->a, "%s@%s", repo, commit);
	key_of(r->team_id, r->name, key);
	r->key = arena_cstr(r->a, key);
}

/* Its listing is there. */
static void make_room_for_files(struct hub_repo *r)
{
	r->sha256 = xcalloc(r->l.n + 1, sizeof(*r->sha256));
	r->is_here = xcalloc(r->l.n + 1, sizeof(*r->is_here));
}

/* Into memory, unless another request was faster. */
static void repo_in(struct hub *h, struct hub_repo *r)
{
	lock_take(&h->lock);
	if (map_get(h->repo_by_name, str_of(r->key)) != NULL) {
		lock_give(&h->lock);
		repo_free(r);
		return;
	}
	(void)map_set(h->repo_by_name, str_of(r->key), r);
	TAILQ_INSERT_HEAD(&h->repos, r, in);
	r->memory = memory_of(r);
	h->bytes += r->memory;
	make_room(h);
	lock_give(&h->lock);
}

void hub_repos_free(struct hub *h)
{
	struct hub_repo *r;

	while ((r = TAILQ_FIRST(&h->repos)) != NULL) {
		TAILQ_REMOVE(&h->repos, r, in);
		repo_free(r);
	}
}

/* ---- kept ---------------------------------------------------------------------------------- */

int hub_repo_add(struct app *app, const char *team_id, const struct hub_listing *l, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(HUB_LISTING_MAX);
	struct hub_repo *r = repo_new(app, team_id);
	struct digest d;

	hub_listing_write(l, &json);
	d = hash_sha256(json.p, json.n);
	blob_pins_add(r->pins, &d);
	if (buf_check(&json, "the list of a repository's files", err) < 0 ||
	    hub_listing_read(r->a, buf_view(&json), &r->l, err) < 0 ||
	    blobs_put(app->blobs, buf_view(&json), &r->listing, err) < 0) {
		repo_free(r);
		return -1;
	}
	r->listing_bytes = json.n;
	r->dirty = true;
	name_it(r, r->l.type, r->l.id, r->l.commit);
	make_room_for_files(r);
	repo_in(app->hub, r);
	return 0;
}

int hub_put_manifest(struct app *app, struct blob_pins *pins, const struct manifest *m,
                     const struct manifest *fresh, const struct digest *base, struct digest *name,
                     struct err *err)
{
	struct blob_objects_put put = {.from = app->blobs,
	                               .to = app->objects,
	                               .pins = pins,
	                               .manifest = name,
	                               .fresh = fresh,
	                               .cancel = &app->hub->cancel};

	if (!weights_in_objects(app) && base != NULL)
		return blobs_put_manifest_on(app->blobs, pins, base, fresh, m, name, err);
	if (!weights_in_objects(app))
		return blobs_put_manifest(app->blobs, pins, m, name, err);
	if (blobs_put_list(app->blobs, pins, m, name, err) < 0 || blob_objects_put(&put, err) < 0)
		return -1;
	repo_bytes_stored(app, fresh != NULL ? fresh : m);
	return 0;
}

int hub_read_blob(struct app *app, const struct digest *sha256, uint64_t size, struct buf *out,
                  struct err *err)
{
	char key[BLOB_KEY_CAP];
	struct digest is;
	uint64_t has = 0;
	AUTO_FD int fd = -1;

	if (size > HUB_LISTING_MAX)
		return err_set(err, ERR_CORRUPT, "a blob of a repository is too long");
	if (blobs_fd(app->blobs, sha256, &fd, &has, err) == 0) {
		AUTO_FREE char *all = xmalloc((size_t)size + 1);

		if (fs_pread_all(fd, all, (size_t)size, 0, err) < 0)
			return -1;
		buf_add(out, all, (size_t)size);
	} else if (err->code != ERR_NOT_FOUND || !weights_in_objects(app)) {
		return -1;
	} else {
		err_clear(err);
		blob_object_key(sha256, key);
		if (objstore_get(app->objects, key, out, err) < 0)
			return -1;
	}
	is = hash_sha256(out->p, out->n);
	return digest_same(&is, sha256)
	               ? 0
	               : err_set(err, ERR_CORRUPT, "a blob of a repository is damaged");
}

static int load(struct hub_repo *r, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(HUB_LISTING_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	const struct manifest_file *listing;
	struct model_ref ref;
	struct manifest m;
	struct digest d;

	if (meta_ref(r->app->meta, a, r->team_id, r->kind, r->name, &ref, err) < 0 ||
	    digest_parse(str_of(ref.manifest), &d, err) < 0)
		return -1;
	blob_pins_add(r->pins, &d); /* and so it stays until it is read */
	if (weights_manifest(r->app, a, &d, &m, err) < 0)
		return -1;
	listing = manifest_find(&m, STR_LIT(HUB_LISTING_NAME));
	if (listing == NULL)
		return err_set(err, ERR_CORRUPT, "%s has no list of files", r->name);
	if (hub_read_blob(r->app, &listing->sha256, listing->size, &json, err) < 0 ||
	    hub_listing_read(r->a, buf_view(&json), &r->l, err) < 0)
		return err_wrap(err, "%s", r->name);
	r->manifest = d;
	r->listing = listing->sha256;
	r->listing_bytes = json.n;
	make_room_for_files(r);
	for (size_t i = 0; i < r->l.n; i++) {
		const char *path = arena_printf(a, HUB_FILES "%s", r->l.file[i].path);
		const struct manifest_file *f = manifest_find(&m, str_of(path));

		if (f == NULL)
			continue;
		r->sha256[i] = f->sha256;
		r->is_here[i] = true;
	}
	return 0;
}

int hub_repo_load(struct app *app, const char *team_id, enum hub_type type, const char *id,
                  const char *commit, struct err *err)
{
	struct hub_repo *r = repo_new(app, team_id);

	name_it(r, type, id, commit);
	if (load(r, err) < 0) {
		repo_free(r);
		return -1;
	}
	repo_in(app->hub, r);
	return 0;
}

/* ---- our own ------------------------------------------------------------------------------- */

/* All that a listing says is part of the key: after a change it is another one. */
static void own_key(const struct model_repo *m, const char *commit, char out[HUB_KEY_CAP])
{
	fmt_fixed(out, HUB_KEY_CAP, "own %s@%s\n%s/%s\n%d", m->id, commit, m->owner, m->name,
	          m->is_private);
}

struct hub_repo *hub_own_find(struct hub *h, const struct model_repo *m, const char *commit)
{
	char key[HUB_KEY_CAP];

	own_key(m, commit, key);
	return map_get(h->repo_by_name, str_of(key));
}

static struct hub_repo *own_new(struct app *app, const struct model_repo *m, const char *commit)
{
	struct hub_repo *r = repo_new(app, m->team_id);
	char key[HUB_KEY_CAP];

	own_key(m, commit, key);
	r->kind = META_REF_REPO;
	r->name = arena_printf(r->a, "%s@%s", m->id, commit);
	r->key = arena_cstr(r->a, key);
	return r;
}

/* In memory it is found under its key, whatever it was called when it was stored. */
static void own_in(struct app *app, struct hub_repo *r, const struct model_repo *m)
{
	r->l.id = arena_printf(r->a, "%s/%s", m->owner, m->name);
	r->l.is_private = m->is_private;
	blob_pins_free(r->pins); /* while it is a repository, its ref holds all of it */
	r->pins = blob_pins_new(app->blobs);
	repo_in(app->hub, r);
}

int hub_own_load(struct app *app, const struct model_repo *m, const char *commit, struct err *err)
{
	struct hub_repo *r = own_new(app, m, commit);

	if (load(r, err) < 0) {
		if (err->code == ERR_NOT_FOUND) {
			err_clear(err);
			(void)err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s/%s has no commit %s",
			              m->owner, m->name, commit);
		}
		repo_free(r);
		return -1;
	}
	own_in(app, r, m);
	return 0;
}

static bool is_own(const struct hub_repo *r, const char *repo_id, const struct map *commits)
{
	size_t n = strlen(repo_id);

	return strcmp(r->kind, META_REF_REPO) == 0 && strncmp(r->name, repo_id, n) == 0 &&
	       r->name[n] == '@' &&
	       (commits == NULL || map_get(commits, str_of(r->name + n + 1)) != NULL);
}

void hub_own_forget(struct app *app, const char *repo_id, const struct map *commits)
{
	struct hub *h = app->hub;
	struct hub_repo *r, *next;

	lock_take(&h->lock);
	for (r = TAILQ_FIRST(&h->repos); r != NULL; r = next) {
		next = TAILQ_NEXT(r, in);
		if (!is_own(r, repo_id, commits))
			continue;
		if (r->users == 0 && r->pulls == 0) {
			repo_out(h, r);
			continue;
		}
		blob_pins_free(r->pins); /* who reads of it has what he has opened */
		r->pins = blob_pins_new(app->blobs);
	}
	lock_give(&h->lock);
}

int hub_own_store(struct app *app, const struct model_repo *m, struct hub_own_files *x,
                  struct blob_pins *pins, struct model_ref *ref, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(HUB_LISTING_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct manifest files;
	char hex[HASH_HEX_CAP];

	hub_listing_write(x->l, &json);
	if (buf_check(&json, "the list of the repository's files", err) < 0)
		return -1;
	x->listing = hash_sha256(json.p, json.n);
	x->list_bytes = json.n;
	blob_pins_add(pins, &x->listing);
	manifest_init(&files, a);
	if (blobs_put(app->blobs, buf_view(&json), &x->listing, err) < 0 ||
	    manifest_add(&files, STR_LIT(HUB_LISTING_NAME), json.n, &x->listing, err) < 0 ||
	    manifest_add(x->fresh, STR_LIT(HUB_LISTING_NAME), json.n, &x->listing, err) < 0)
		return -1;
	for (size_t i = 0; i < x->l->n; i++) {
		const char *path = arena_printf(a, HUB_FILES "%s", x->l->file[i].path);

		if (manifest_add(&files, str_of(path), x->l->file[i].size, &x->sha256[i], err) < 0)
			return -1;
	}
	if (manifest_finish(&files, err) < 0 ||
	    hub_put_manifest(app, pins, &files, x->fresh, x->base, &x->manifest, err) < 0)
		return -1;
	digest_hex(&x->manifest, hex);
	*ref = (struct model_ref){.team_id = m->team_id,
	                          .kind = META_REF_REPO,
	                          .name = arena_printf(x->a, "%s@%s", m->id, x->l->commit),
	                          .manifest = arena_cstr(x->a, hex),
	                          .bytes = files.bytes,
	                          .files = x->l->n,
	                          .created_ms = clock_wall_ms(),
	                          .used_ms = clock_wall_ms()};
	return 0;
}

void hub_own_add(struct app *app, const struct model_repo *m, const struct hub_own_files *x)
{
	struct hub_repo *r = own_new(app, m, x->l->commit);

	hub_listing_copy(x->l, r->a, &r->l);
	r->manifest = x->manifest;
	r->listing = x->listing;
	r->listing_bytes = x->list_bytes;
	make_room_for_files(r);
	for (size_t i = 0; i < r->l.n; i++) {
		r->sha256[i] = x->sha256[i];
		r->is_here[i] = true;
	}
	own_in(app, r, m);
}

/* What is noted after this makes it dirty again. */
static void copy_known(struct hub_repo *r, struct arena *a, struct digest **sha256, bool **is_here)
{
	struct hub *h = r->app->hub;

	*sha256 = ARENA_ARRAY(a, struct digest, r->l.n + 1);
	*is_here = ARENA_ARRAY(a, bool, r->l.n + 1);
	lock_take(&h->lock);
	r->dirty = false;
	memcpy(*sha256, r->sha256, r->l.n * sizeof(**sha256));
	memcpy(*is_here, r->is_here, r->l.n * sizeof(**is_here));
	lock_give(&h->lock);
}

/* What is here of it, as a manifest. Bytes that were evicted since are fetched again when somebody
 * wants them. */
static int list_here(struct hub_repo *r, struct arena *a, struct manifest *m, struct err *err)
{
	struct digest *sha256;
	bool *is_here;

	copy_known(r, a, &sha256, &is_here);
	manifest_init(m, a);
	if (manifest_add(m, STR_LIT(HUB_LISTING_NAME), r->listing_bytes, &r->listing, err) < 0)
		return -1;
	for (size_t i = 0; i < r->l.n; i++) {
		const struct hub_file *f = &r->l.file[i];

		if (!is_here[i] ||
		    (!weights_in_objects(r->app) && !blobs_has(r->app->blobs, &sha256[i], f->size)))
			continue;
		if (manifest_add(m, str_of(arena_printf(a, HUB_FILES "%s", f->path)), f->size,
		                 &sha256[i], err) < 0)
			return -1;
	}
	return manifest_finish(m, err);
}

/* The list itself may have been evicted: it is in memory. */
static int put_listing(struct hub_repo *r, struct err *err)
{
	AUTO_BUF struct buf json = BUF_INIT(HUB_LISTING_MAX);
	struct digest is;

	if (blobs_has(r->app->blobs, &r->listing, r->listing_bytes))
		return 0;
	hub_listing_write(&r->l, &json);
	if (buf_check(&json, "the list of a repository's files", err) < 0 ||
	    blobs_put(r->app->blobs, buf_view(&json), &is, err) < 0)
		return -1;
	assert(digest_same(&is, &r->listing));
	return 0;
}

/* Somebody has removed what keep() was about to name: his is the last word. */
static int take_back(struct hub_repo *r, struct err *err)
{
	if (meta_ref_del(r->app->meta, r->team_id, META_REF_HUB, r->name, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

static int keep(struct hub_repo *r, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	/* Those of before hold what is new until the ref names it. */
	struct blob_pins *before, *pins = blob_pins_new(r->app->blobs);
	struct hub *h = r->app->hub;
	struct manifest m;
	struct digest name;
	char hex[HASH_HEX_CAP];
	unsigned forgotten;
	bool removed;
	int rc;

	lock_take(&h->lock);
	before = r->pins;
	r->pins = pins;
	forgotten = r->forgotten;
	lock_give(&h->lock);
	blob_pins_add(before, &r->listing);
	rc = put_listing(r, err) < 0 ? -1 : list_here(r, a, &m, err);
	if (rc == 0)
		rc = hub_put_manifest(r->app, before, &m, NULL, NULL, &name, err);
	if (rc == 0) {
		struct model_ref ref = {.team_id = r->team_id,
		                        .kind = META_REF_HUB,
		                        .name = r->name,
		                        .bytes = m.bytes,
		                        .files = m.n - 1,
		                        .created_ms = clock_wall_ms(),
		                        .used_ms = clock_wall_ms()};

		digest_hex(&name, hex);
		ref.manifest = hex;
		app_crash_at("hub:manifest");
		rc = meta_ref_put(r->app->meta, &ref, err);
	}
	lock_take(&h->lock);
	removed = r->forgotten != forgotten;
	lock_give(&h->lock);
	if (rc == 0 && removed)
		rc = take_back(r, err);
	if (rc < 0) { /* all of it again, later: what the pins of before held, those of now do */
		lock_take(&h->lock);
		r->dirty = true;
		blob_pins_add(r->pins, &r->listing);
		for (size_t i = 0; i < r->l.n; i++)
			if (r->is_here[i])
				blob_pins_add(r->pins, &r->sha256[i]);
		lock_give(&h->lock);
	}
	blob_pins_free(before);
	return rc;
}

/* The next one whose ref is due, held; NULL: none. */
static struct hub_repo *due(struct hub *h, int64_t began_ms)
{
	struct hub_repo *r;

	lock_take(&h->lock);
	TAILQ_FOREACH(r, &h->repos, in)
	if (r->dirty && r->kept_ms < began_ms &&
	    (r->pulls == 0 || began_ms - r->kept_ms >= KEEP_MS)) {
		r->kept_ms = began_ms;
		r->users++;
		break;
	}
	lock_give(&h->lock);
	return r;
}

static void keep_due(struct app *app)
{
	int64_t began_ms = MAX((int64_t)1, clock_mono_ms());
	struct hub *h = app->hub;
	struct hub_repo *r;

	while ((r = due(h, began_ms)) != NULL) {
		struct err err = {0};

		if (keep(r, &err) < 0)
			log_warn("hub: repository=%s %s", r->name, err.msg);
		lock_take(&h->lock);
		hub_repo_drop(h, r);
		lock_give(&h->lock);
	}
}

/* What was used lately is evicted last. */
static void touch_used(struct app *app)
{
	struct hub *h = app->hub;
	int64_t now = clock_mono_ms();
	struct hub_repo *r;

	for (;;) {
		AUTO_ARENA struct arena *a = arena_new();
		struct model_ref ref;
		struct err err = {0};

		lock_take(&h->lock);
		TAILQ_FOREACH(r, &h->repos, in)
		if (r->used_ms > r->touched_ms && now - r->touched_ms >= TOUCH_MS && !r->dirty &&
		    strcmp(r->kind, META_REF_HUB) == 0) {
			r->touched_ms = now;
			r->users++;
			break;
		}
		lock_give(&h->lock);
		if (r == NULL)
			return;
		if (meta_ref(app->meta, a, r->team_id, META_REF_HUB, r->name, &ref, &err) == 0 &&
		    meta_manifest_touch(app->meta, ref.manifest, clock_wall_ms(), &err) == 0)
			err_clear(&err);
		if (err.code != ERR_NONE && err.code != ERR_NOT_FOUND)
			log_warn("hub: repository=%s %s", r->name, err.msg);
		lock_take(&h->lock);
		hub_repo_drop(h, r);
		lock_give(&h->lock);
	}
}

void hub_repos_keep(struct app *app)
{
	keep_due(app);
	touch_used(app);
}
