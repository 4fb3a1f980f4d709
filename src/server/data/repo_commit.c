/*
 * repo_commit.c - commits to our own repositories. What a client sends becomes blobs while it
 * comes, pinned until the ref of the commit names them; the lines are applied to what the branch is
 * when all of it is here, and the branch moves in the transaction that writes the ref.
 */
#include "server/data/repos.h"

#include "server/api/ctx.h"
#include "server/data/repo_room.h"
#include "server/data/weights.h"
#include "store/blobs/blob_batch.h"
#include "store/blobs/blob_git.h"
#include "store/blobs/blob_objects.h"

#define SMALL_MAX ((size_t)1 << 20)     /* of a file that is kept in memory until it ends */
#define CHUNKED_MAX ((int64_t)64 << 20) /* of a body that does not say how long it is */
#define PIECE ((size_t)64 << 10)
#define TMP_CAP 40

struct change_line {
	enum hub_line_kind kind;
	const char *path;
	uint64_t size;
	bool has_size;
	struct digest sha256;
	uint8_t oid[HUB_OID_LEN]; /* of a regular file */
};

struct repo_change {
	unsigned magic;
#define REPO_CHANGE_MAGIC 0x52434847U
	const struct ask *ask;
	struct app *app;
	struct arena *a;
	struct model_repo repo;
	enum model_repo_ref_kind kind;
	const char *branch; /* or the number of a pull request */
	bool opens;         /* the branch stays: a pull request is opened with the commit */
	struct blob_pins *pins;
	struct blob_batch *batch;
	struct repo_room room;
	const char *summary, *description, *parent;
	bool add_only;                     /* what is there stays as it is, */
	uint64_t files_there, bytes_there; /* as these have */
	struct change_line *line;
	size_t n, cap;
	/* the file that is coming */
	struct buf small;
	struct hash *sha256;
	uint64_t size;
	int fd; /* of one that is not small; -1 */
	char tmp[TMP_CAP];
};

/* ---- files as they come -------------------------------------------------------------------- */

static int spill(struct repo_change *c, struct err *err)
{
	char journal[FS_PATH_MAX], *id = app_id(c->a, MODEL_ID_LEN * 2);

	FMT(c->tmp, "repo-%s", id);
	if (blobs_tmp(c->app->blobs, c->tmp, &c->fd, journal, err) < 0)
		return -1;
	blob_pins_add_tmp(c->pins, c->tmp);
	return app_pwrite(c->fd, c->small.p, c->small.n, 0, err);
}

static int take_content(void *arg, const void *p, size_t n, struct err *err)
{
	struct repo_change *c = FROM_VOID(struct repo_change, arg, REPO_CHANGE_MAGIC);
	int rc = 0;

	if (p == NULL) { /* it begins */
		assert(c->fd < 0);
		c->small.n = 0;
		c->size = 0;
		return 0;
	}
	if (repo_room_need(&c->room, n, err) < 0)
		return -1;
	hash_add(c->sha256, p, n);
	if (c->fd < 0 && c->size + n <= SMALL_MAX) {
		buf_add(&c->small, p, n);
	} else {
		if (c->fd < 0)
			rc = spill(c, err);
		if (rc == 0)
			rc = app_pwrite(c->fd, p, n, c->size, err);
	}
	c->size += n;
	return repo_store_failed(c->app, c->repo.id, NULL, rc, err);
}

/* Git's id of what was spilled; its size comes first, and is known only now. */
static int id_of_spilled(struct repo_change *c, uint8_t oid[HUB_OID_LEN], struct err *err)
{
	AUTO_FREE char *piece = xmalloc(PIECE);
	AUTO_HASH struct hash *b = hub_blob_begin(c->size);

	for (uint64_t at = 0; at < c->size;) {
		size_t n = (size_t)MIN(PIECE, c->size - at);

		if (fs_pread_all(c->fd, piece, n, at, err) < 0)
			return -1;
		hash_add(b, piece, n);
		at += n;
	}
	hub_blob_end(b, oid);
	return 0;
}

static int end_content(struct repo_change *c, struct change_line *l, struct err *err)
{
	int rc;

	(void)hash_end(c->sha256, l->sha256.b);
	l->size = c->size;
	blob_pins_add(c->pins, &l->sha256);
	if (c->fd < 0) {
		hub_blob_id(buf_view(&c->small), l->oid);
		return blob_batch_add(c->batch, c->small.p, c->small.n, &l->sha256, err);
	}
	rc = id_of_spilled(c, l->oid, err);
	if (rc == 0)
		rc = blobs_commit(c->app->blobs, c->tmp, c->fd, &l->sha256, err);
	(void)close(c->fd);
	c->fd = -1;
	return rc;
}

static int take_line(void *arg, const struct hub_line *said, bool had_content, struct err *err)
{
	struct repo_change *c = FROM_VOID(struct repo_change, arg, REPO_CHANGE_MAGIC);
	struct change_line *l;

	if (said->kind == HUB_LINE_HEADER) {
		c->summary = arena_cstr(c->a, said->summary);
		c->description = arena_cstr(c->a, said->description);
		c->parent = said->parent[0] != '\0' ? arena_cstr(c->a, said->parent) : NULL;
		c->add_only = said->add_only;
		return 0;
	}
	if (c->n == c->cap) {
		struct change_line *more;

		c->cap = MAX((size_t)64, c->cap * 2);
		more = ARENA_ARRAY(c->a, struct change_line, c->cap);
		if (c->n > 0)
			memcpy(more, c->line, c->n * sizeof(*more));
		c->line = more;
	}
	l = &c->line[c->n++];
	*l = (struct change_line){.kind = said->kind,
	                          .path = arena_cstr(c->a, said->path),
	                          .sha256 = said->oid,
	                          .has_size = said->has_size,
	                          .size = said->size};
	return had_content ? end_content(c, l, err) : 0;
}

/* ---- applied ------------------------------------------------------------------------------- */

struct added {
	struct hub_file f;
	struct digest sha256;
	bool gone;
};

/* What the branch will be: the files of before that stay, and those that were added. */
struct sum {
	struct repo_change *c;
	struct arena *a;
	const struct hub_repo *base;
	bool *gone; /* of the files of before */
	struct added *add;
	size_t n_add;
	struct map *at;     /* of what was added, by path */
	struct map *lfs_at; /* file of before, by digest; NULL: not looked for yet */
};

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(path, folder, n) == 0 && path[n] == '/';
}

static size_t first_below(const struct hub_listing *l, const char *folder)
{
	size_t low = 0, high = l->n;

	while (low < high) { /* '/' is what all of them have behind the folder's name */
		size_t mid = low + (high - low) / 2;
		size_t n = strlen(folder);
		int order = strncmp(l->file[mid].path, folder, n);

		if (order < 0 || (order == 0 && (unsigned char)l->file[mid].path[n] < '/'))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool remove_file(struct sum *s, const char *path)
{
	const struct hub_listing *l = &s->base->l;
	const struct hub_file *f = hub_listing_file(l, str_of(path));
	struct added *x = map_del(s->at, str_of(path));
	bool found = x != NULL;

	if (x != NULL)
		x->gone = true;
	if (f != NULL && !s->gone[f - l->file]) {
		s->gone[f - l->file] = true;
		found = true;
	}
	return found;
}

static bool remove_folder(struct sum *s, const char *path)
{
	const struct hub_listing *l = &s->base->l;
	bool found = false;

	for (size_t i = first_below(l, path); i < l->n && is_below(l->file[i].path, path); i++) {
		found = found || !s->gone[i];
		s->gone[i] = true;
	}
	for (size_t i = 0; i < s->n_add; i++) {
		if (s->add[i].gone || !is_below(s->add[i].f.path, path))
			continue;
		s->add[i].gone = true;
		(void)map_del(s->at, str_of(s->add[i].f.path));
		found = true;
	}
	return found;
}

static void add_file(struct sum *s, const struct added *x)
{
	struct added *to = &s->add[s->n_add++];

	(void)remove_file(s, x->f.path);
	*to = *x;
	(void)map_set(s->at, str_of(to->f.path), to);
}

static void index_lfs(struct sum *s)
{
	const struct hub_listing *l = &s->base->l;

	s->lfs_at = map_new();
	for (size_t i = 0; i < l->n; i++)
		if (l->file[i].lfs)
			(void)map_set(s->lfs_at, digest_key(&l->file[i].sha256), &l->file[i]);
}

/* A large file: of this repository, or it was uploaded to it. To know a digest is no right to the
 * bytes. */
static int add_lfs(struct sum *s, const struct change_line *l, struct err *err)
{
	struct repo_change *c = s->c;
	struct added x = {.f = {.path = l->path, .lfs = true, .sha256 = l->sha256},
	                  .sha256 = l->sha256};
	const struct hub_file *before;

	if (s->lfs_at == NULL)
		index_lfs(s);
	before = map_get(s->lfs_at, digest_key(&l->sha256));
	if (before != NULL)
		x.f.size = before->size;
	else if (repo_uploaded(c->app, c->a, &c->repo, &l->sha256, &x.f.size, err) < 0)
		return err_wrap(err, "%s", l->path);
	if (!repo_bytes_kept(c->app, &l->sha256, x.f.size))
		return err_set(err, ERR_HUB_OBJECT_NOT_FOUND,
		               "the bytes of %s are gone from the store: upload it again", l->path);
	if (l->has_size && l->size != x.f.size)
		return err_set(err, ERR_INVALID, "%s: it has %" PRIu64 " bytes, not %" PRIu64,
		               l->path, x.f.size, l->size);
	add_file(s, &x);
	return 0;
}

/* The file, or what it cannot be beside: a folder of its name, a file of its folder's. Of a commit
 * that deletes nothing. */
static bool is_there(const struct sum *s, const char *path)
{
	const struct hub_listing *l = &s->base->l;

	for (size_t i = 0; path[i] != '\0'; i++)
		if (path[i] == '/' && hub_listing_file(l, str_n(path, i)) != NULL)
			return true;
	return hub_listing_file(l, str_of(path)) != NULL ||
	       hub_listing_folder(l, str_of(path)) != NULL || map_get(s->at, str_of(path)) != NULL;
}

/* Then it is not there for who brings it. */
static bool is_lost(const struct sum *s, const char *path)
{
	const struct hub_repo *b = s->base;
	const struct hub_file *f = hub_listing_file(&b->l, str_of(path));

	return f != NULL && f->size > 0 &&
	       !repo_bytes_kept(s->c->app, &b->sha256[f - b->l.file], f->size);
}

static int apply_line(struct sum *s, const struct change_line *l, struct err *err)
{
	struct added x = {.f = {.path = l->path, .size = l->size}, .sha256 = l->sha256};
	bool adds = l->kind == HUB_LINE_FILE || l->kind == HUB_LINE_LFS_FILE;
	bool file, folder;

	if (s->c->add_only && !adds)
		return err_set(err, ERR_INVALID, "%s: a commit with addOnly deletes nothing",
		               l->path);
	if (s->c->add_only && is_there(s, l->path) && !is_lost(s, l->path)) {
		s->c->files_there++;
		s->c->bytes_there += l->size;
		return 0;
	}
	switch (l->kind) {
	case HUB_LINE_FILE:
		memcpy(x.f.oid, l->oid, HUB_OID_LEN);
		add_file(s, &x);
		return 0;
	case HUB_LINE_LFS_FILE:
		return add_lfs(s, l, err);
	case HUB_LINE_DELETED_FILE:
	case HUB_LINE_DELETED_FOLDER:
		file = remove_file(s, l->path);
		folder = remove_folder(s, l->path);
		if (file || folder)
			return 0;
		return err_set(err, ERR_HUB_ENTRY_NOT_FOUND,
		               "%s is to be deleted, and not in the repository", l->path);
	case HUB_LINE_HEADER:
		break;
	}
	assert(false);
	return -1;
}

static const struct digest *digest_at(const struct sum *s, const char *path)
{
	const struct hub_listing *b = &s->base->l;
	const struct added *x = map_get(s->at, str_of(path));

	return x != NULL ? &x->sha256
	                 : &s->base->sha256[hub_listing_file(b, str_of(path)) - b->file];
}

/* The files of both, with their digests; *fresh: what the commit before did not have. */
static int gather(const struct sum *s, struct hub_listing *l, struct digest **sha256,
                  struct manifest *fresh, uint64_t *bytes, struct err *err)
{
	const struct hub_listing *b = &s->base->l;
	size_t n = 0;

	l->file = ARENA_ARRAY(s->a, struct hub_file, b->n + s->n_add + 1);
	for (size_t i = 0; i < b->n; i++)
		if (!s->gone[i])
			l->file[n++] = b->file[i];
	for (size_t i = 0; i < s->n_add; i++) {
		const struct added *x = &s->add[i];

		if (x->gone)
			continue;
		if (!x->f.lfs) /* what was uploaded was counted then */
			*bytes += x->f.size;
		if (manifest_add(fresh, str_of(arena_printf(s->a, HUB_FILES "%s", x->f.path)),
		                 x->f.size, &x->sha256, err) < 0)
			return -1;
		l->file[n++] = x->f;
	}
	l->n = n;
	if (n > MANIFEST_FILES_MAX - 1)
		return err_set(err, ERR_TOO_BIG, "a repository has %d files at most",
		               MANIFEST_FILES_MAX - 1);
	if (hub_listing_finish(l, s->a, err) < 0)
		return -1;
	*sha256 = ARENA_ARRAY(s->a, struct digest, n + 1);
	for (size_t i = 0; i < n; i++)
		(*sha256)[i] = *digest_at(s, l->file[i].path);
	return 0;
}

static int apply(struct sum *s, struct err *err)
{
	struct repo_change *c = s->c;

	s->gone = ARENA_ARRAY(s->a, bool, s->base->l.n + 1);
	s->add = ARENA_ARRAY(s->a, struct added, c->n + 1);
	for (size_t i = 0; i < c->n; i++)
		if (apply_line(s, &c->line[i], err) < 0)
			return -1;
	return 0;
}

/* ---- made ---------------------------------------------------------------------------------- */

static int stale(const struct repo_change *c, struct err *err)
{
	return err_set(err, ERR_HUB_STALE,
	               "The branch was updated since you opened this page. Please refresh and try "
	               "again. (%s of %s/%s is no longer %s)",
	               c->branch, c->repo.owner, c->repo.name, c->parent);
}

static void name_uploads(const struct sum *s, struct meta_repo_change *change)
{
	const struct repo_change *c = s->c;

	change->uploads = ARENA_ARRAY(s->a, const char *, c->n + 1);
	for (size_t i = 0; i < c->n; i++)
		if (c->line[i].kind == HUB_LINE_LFS_FILE)
			change->uploads[change->n_uploads++] =
				repo_upload_name(s->a, c->repo.id, &c->line[i].sha256);
}

/* The pull request that is opened: its first comment is the commit's description. */
static struct model_repo_pull pull_of(const struct repo_change *c, const char *base)
{
	return (struct model_repo_pull){.repo_id = c->repo.id,
	                                .status = PULL_OPEN,
	                                .title = c->summary,
	                                .author = c->ask->principal->name,
	                                .target = c->branch,
	                                .base = base,
	                                .created_ms = clock_wall_ms()};
}

static int open_without(struct repo_change *c, const char *base, struct repo_committed *out,
                        struct err *err)
{
	struct model_repo_pull pull = pull_of(c, base);

	if (meta_repo_pull_add(c->app->meta, &pull, base, c->description, c->app->set.repo_quota,
	                       err) < 0)
		return -1;
	*out = (struct repo_committed){.commit = base, .pull = pull.num};
	return 0;
}

/* A small file that the object store has lost comes again with a commit that changes nothing. */
static int mend(struct repo_change *c, const struct manifest *fresh, struct err *err)
{
	struct app *app = c->app;

	for (size_t i = 0; weights_in_objects(app) && i < fresh->n; i++) {
		const struct manifest_file *f = &fresh->file[i];

		if (!repo_bytes_kept(app, &f->sha256, f->size) &&
		    blob_objects_put_blob(app->objects, app->blobs, c->pins, &f->sha256, f->size,
		                          &app->hub->cancel, err) < 0)
			return -1;
	}
	repo_bytes_stored(app, fresh);
	return 0;
}

static int make(struct sum *s, const char *head, struct repo_committed *out, struct err *err)
{
	struct repo_change *c = s->c;
	const struct hub_listing *b = &s->base->l;
	struct hub_listing l = {.type = b->type, .id = b->id};
	const struct hub_commit git = {.parent = head,
	                               .author = c->ask->principal->name,
	                               .title = c->summary,
	                               .message = c->description,
	                               .ms = clock_wall_ms()};
	struct repo_made made;
	struct meta_repo_change change = {.commit = &made.row,
	                                  .files = &made.files,
	                                  .kind = c->kind,
	                                  .branch = c->branch,
	                                  .head = head,
	                                  .quota = c->app->set.repo_quota,
	                                  .team_id = c->repo.team_id};
	struct model_repo_pull pull = pull_of(c, head);
	struct digest *sha256 = NULL;
	struct manifest fresh;

	manifest_init(&fresh, s->a);
	name_uploads(s, &change);
	if (gather(s, &l, &sha256, &fresh, &change.bytes, err) < 0)
		return -1;
	if (memcmp(l.root, b->root, HUB_OID_LEN) == 0) { /* nothing would change */
		if (mend(c, &fresh, err) < 0)
			return -1;
		out->commit = head;
		return c->opens ? open_without(c, head, out, err) : 0;
	}
	change.pull = c->opens ? &pull : NULL;
	if (repo_make(c->app,
	              &(struct repo_making){.a = c->a,
	                                    .repo = &c->repo,
	                                    .l = &l,
	                                    .finished = true,
	                                    .sha256 = sha256,
	                                    .fresh = &fresh,
	                                    .base = &s->base->manifest,
	                                    .git = &git},
	              c->pins, &made, err) < 0)
		return -1;
	change.bytes += made.list_bytes + strlen(git.title) + strlen(git.message);
	app_crash_at("repo:manifest");
	if (meta_repo_commit(c->app->meta, &change, err) < 0)
		return -1;
	app_crash_at("repo:committed");
	hub_own_add(c->app, &c->repo, &made.own);
	*out = (struct repo_committed){.commit = made.row.commit, .pull = pull.num};
	return 0;
}

/* A client that did not hear that its commit was made sends it again: its parent is that of the
 * newest commit then, and its lines lead from the one to the other. */
static int sent_again(struct sum *s, const char *head, struct repo_committed *out, struct err *err)
{
	struct repo_change *c = s->c;
	struct hub_listing l = {.type = s->base->l.type, .id = s->base->l.id};
	struct hub_repo *newest = NULL;
	struct digest *sha256 = NULL;
	struct manifest fresh;
	uint64_t bytes = 0;
	bool same;

	manifest_init(&fresh, s->a);
	if (apply(s, err) < 0 || gather(s, &l, &sha256, &fresh, &bytes, err) < 0 ||
	    repo_open(c->app, &c->repo, head, &newest, err) < 0)
		return -1;
	same = memcmp(l.root, newest->l.root, HUB_OID_LEN) == 0;
	repo_close(c->app, newest);
	out->commit = head;
	return same ? 0 : stale(c, err);
}

static int commit_on(struct repo_change *c, const char *base, const char *head,
                     struct repo_committed *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_repo *r = NULL;
	struct sum s = {.c = c, .a = a};
	int rc;

	if (repo_open(c->app, &c->repo, base, &r, err) < 0)
		return -1;
	s.base = r;
	s.at = map_new();
	if (strcmp(base, head) != 0)
		rc = sent_again(&s, head, out, err);
	else
		rc = apply(&s, err) < 0 ? -1 : make(&s, head, out, err);
	map_free(s.at);
	map_free(s.lfs_at);
	repo_close(c->app, r);
	return rc;
}

/* A pull request may begin from any commit that is there. */
static int open_from(struct repo_change *c, const char *head, struct repo_committed *out,
                     struct err *err)
{
	struct model_repo_commit parent;

	if (c->parent == NULL)
		return commit_on(c, head, head, out, err);
	if (meta_repo_commit_find(c->app->meta, c->a, c->repo.id, c->parent, &parent, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s/%s has no revision %s",
		               c->repo.owner, c->repo.name, c->parent);
	}
	return commit_on(c, parent.commit, parent.commit, out, err);
}

static int commit_once(struct repo_change *c, struct repo_committed *out, struct err *err)
{
	struct meta *m = c->app->meta;
	struct model_repo_commit last;
	struct model_repo_pull pull;
	struct model_repo_ref head;

	if (c->kind == REPO_PULL &&
	    (meta_repo_pull(m, c->a, c->repo.id, repo_pull_number(c->branch), &pull, err) < 0 ||
	     repo_pull_is_open(&pull, err) < 0))
		return -1;
	if (meta_repo_ref(m, c->a, c->repo.id, c->kind, c->branch, &head, err) < 0)
		return -1;
	if (c->opens)
		return open_from(c, head.commit, out, err);
	if (c->parent == NULL || strcmp(c->parent, head.commit) == 0)
		return commit_on(c, head.commit, head.commit, out, err);
	if (meta_repo_commit_find(m, c->a, c->repo.id, head.commit, &last, err) < 0)
		return -1;
	if (last.parent == NULL || strcmp(last.parent, c->parent) != 0 ||
	    strcmp(last.title, c->summary) != 0)
		return stale(c, err);
	return commit_on(c, last.parent, head.commit, out, err);
}

int repo_commit_end(struct repo_change *c, struct repo_committed *out, struct err *err)
{
	struct lock *lock = app_stripe(c->app->hub->commits, c->repo.id);
	int rc;

	if (blob_batch_publish(c->batch, err) < 0)
		return -1;
	for (size_t i = 0; i < c->n; i++)
		if (c->line[i].kind == HUB_LINE_FILE)
			blob_git_note(c->app->blobs, c->line[i].oid, &c->line[i].sha256);
	app_crash_at("repo:blobs");
	lock_take(lock);
	*out = (struct repo_committed){0};
	c->files_there = c->bytes_there = 0;
	rc = commit_once(c, out, err);
	lock_give(lock);
	if (rc < 0)
		return -1;
	out->files_there = c->files_there;
	out->bytes_there = c->bytes_there;
	repo_changed(c->app);
	log_info("committed: repository=%s/%s/%s branch=%s%s commit=%s pull=%" PRId64 " by=%s",
	         c->repo.type, c->repo.owner, c->repo.name, c->kind == REPO_PULL ? "refs/pr/" : "",
	         c->branch, out->commit, out->pull, c->ask->principal->name);
	return 0;
}

/* ---- begun --------------------------------------------------------------------------------- */

int64_t repo_pull_number(const char *text)
{
	int64_t n = 0;

	if (text[0] < '1' || text[0] > '9' || strlen(text) > 9)
		return 0;
	for (const char *c = text; *c != '\0'; c++) {
		if (*c < '0' || *c > '9')
			return 0;
		n = n * 10 + (*c - '0');
	}
	return n;
}

/* A commit, or a tag, is none. */
int repo_branch_of(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                   bool opens, struct model_repo_ref *out, struct err *err)
{
	bool pull = strncmp(rev, "refs/pr/", 8) == 0;
	const char *name = pull ? rev + 8 : strncmp(rev, "refs/heads/", 11) == 0 ? rev + 11 : rev;

	if (hub_commit_ok(str_of(rev)) && !opens)
		return err_set(err, ERR_INVALID, "commits go to a branch, not to a commit (%s)",
		               rev);
	if (!(pull && opens) &&
	    meta_repo_ref(app->meta, a, r->id, pull ? REPO_PULL : REPO_BRANCH, name, out, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND && err->code != ERR_NONE)
		return -1;
	err_clear(err);
	return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "Invalid rev id: %s", rev);
}

int repo_open_to_write(const struct ask *ask, const struct hub_name *name, bool opens,
                       const struct hub_listing **out, struct err *err)
{
	struct model_repo repo;
	struct model_repo_ref ref;

	if (repo_to_write(ask, name->type, name->id, &repo, err) < 0 ||
	    (opens && repo_branch_of(ask->app, ask->a, &repo, name->rev, true, &ref, err) < 0))
		return -1;
	return repo_open_at(ask->app, ask->a, &repo, name->rev, out, err);
}

bool repo_has(struct app *app, const struct hub_listing *l, const struct hub_file *f)
{
	const struct hub_repo *r = hub_repo_of(l);

	return repo_bytes_kept(app, &r->sha256[f - l->file], f->size);
}

int repo_read_file(struct app *app, const struct hub_listing *l, const struct hub_file *f,
                   struct buf *out, struct err *err)
{
	const struct hub_repo *r = hub_repo_of(l);

	return hub_read_blob(app, &r->sha256[f - l->file], f->size, out, err);
}

int repo_commit_begin(const struct ask *ask, const struct hub_name *name, bool opens,
                      int64_t body_bytes, struct repo_change **out, struct err *err)
{
	struct app *app = ask->app;
	uint64_t bytes = (uint64_t)(body_bytes >= 0 ? body_bytes : CHUNKED_MAX);
	struct repo_change *c;
	struct model_repo repo;
	struct model_repo_ref ref;

	if (repo_to_write(ask, name->type, name->id, &repo, err) < 0 ||
	    repo_branch_of(app, ask->a, &repo, name->rev, opens, &ref, err) < 0 ||
	    app_has_room(app, err) < 0)
		return -1;
	c = xcalloc(1, sizeof(*c));
	c->magic = REPO_CHANGE_MAGIC;
	c->ask = ask;
	c->app = app;
	c->a = ask->a;
	c->repo = repo;
	c->kind = ref.kind;
	c->branch = ref.name;
	c->opens = opens;
	c->summary = c->description = "";
	c->fd = -1;
	c->small = (struct buf)BUF_INIT(SMALL_MAX);
	c->sha256 = hash_new(HASH_SHA256);
	c->pins = blob_pins_new(app->blobs);
	c->batch = blob_batch_new(app->blobs);
	if (repo_room_open(app, bytes / 4 * 3, &c->room, err) < 0) { /* of base64 */
		repo_commit_free(c);
		return -1;
	}
	*out = c;
	return 0;
}

struct hub_commit_sink repo_commit_sink(struct repo_change *c)
{
	return (struct hub_commit_sink){.content = take_content, .line = take_line, .arg = c};
}

void repo_commit_free(struct repo_change *c)
{
	struct err ignored = {0};

	if (c == NULL)
		return;
	if (c->fd >= 0) {
		(void)close(c->fd);
		if (blobs_drop_tmp(c->app->blobs, c->tmp, &ignored) < 0)
			log_warn("hub: %s", ignored.msg);
	}
	repo_room_close(&c->room);
	blob_batch_free(c->batch);
	blob_pins_free(c->pins);
	hash_free(c->sha256);
	buf_done(&c->small);
	free(c);
}
