/*
 * repo_history.c - histories of our own repositories that are written anew: one commit in the place
 * of all of a branch, commits without some large files. What nothing reaches afterwards is dropped
 * with its refs, so that its bytes are collected, and what the repository holds is counted again.
 */
#include "server/data/repos.h"

#include "server/api/ctx.h"

#define COMMITS_MAX 20000 /* of a history that is written anew, or looked through */
#define UPLOADS_MAX 1000000

struct past {                               /* a commit */
	const struct model_repo_commit *is; /* without its texts */
	bool kept;                          /* something reaches it */
	struct repo_made *to;               /* what stands in its place */
};

struct history {
	const struct ask *ask;
	struct app *app;
	struct arena *a;
	const struct model_repo *repo;
	struct past *past; /* each behind its parent */
	size_t n;
	struct map *at; /* past, by commit */
	struct model_repo_ref *ref;
	size_t n_refs;
	const char **head;   /* what each ref was */
	struct map *deleted; /* large files that are to go, by digest; NULL: none */
	struct map *seen;    /* content of what is kept, by digest */
	uint64_t bytes;      /* of regular files among it */
	struct repo_made *made;
	const char **text_of; /* of each of them, as of meta_repo_rewrite */
	size_t n_made;
	struct blob_pins *pins;
};

static void history_done(struct history *h)
{
	map_free(h->at);
	map_free(h->seen);
	map_free(h->deleted);
	blob_pins_free(h->pins);
}
#define AUTO_HISTORY CLEANUP(history_done)

static int history_read(const struct ask *ask, struct arena *a, const struct model_repo *r,
                        struct history *h, struct err *err)
{
	struct model_repo_commit *c = NULL;

	*h = (struct history){.ask = ask,
	                      .app = ask->app,
	                      .a = a,
	                      .repo = r,
	                      .at = map_new(),
	                      .seen = map_new(),
	                      .pins = blob_pins_new(ask->app->blobs)};
	if (meta_repo_commits(h->app->meta, a, r->id, COMMITS_MAX + 1, &c, &h->n, err) < 0 ||
	    meta_repo_refs(h->app->meta, a, r->id, &h->ref, &h->n_refs, err) < 0)
		return -1;
	if (h->n > COMMITS_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "%s/%s has more than %d commits, too many for this", r->owner,
		               r->name, COMMITS_MAX);
	h->past = ARENA_ARRAY(a, struct past, h->n + 1);
	for (size_t i = 0; i < h->n; i++) {
		h->past[i].is = &c[i];
		(void)map_set(h->at, str_of(c[i].commit), &h->past[i]);
	}
	h->head = ARENA_ARRAY(a, const char *, h->n_refs + 1);
	for (size_t i = 0; i < h->n_refs; i++)
		h->head[i] = h->ref[i].commit;
	return 0;
}

static struct past *past_of(const struct history *h, const char *commit)
{
	return commit != NULL ? map_get(h->at, str_of(commit)) : NULL;
}

/* What its refs reach. */
static void mark(struct history *h)
{
	for (size_t i = 0; i < h->n_refs; i++)
		for (struct past *p = past_of(h, h->ref[i].commit); p != NULL && !p->kept;
		     p = past_of(h, p->is->parent))
			p->kept = true;
}

static bool is_deleted(const struct history *h, const struct hub_file *f)
{
	return h->deleted != NULL && f->lfs && map_get(h->deleted, digest_key(&f->sha256)) != NULL;
}

/* What a commit has left is part of what is kept. */
static void count(struct history *h, const struct hub_repo *r)
{
	static char yes;

	h->bytes += HUB_LIST_COUNTS * r->listing_bytes;
	for (size_t i = 0; i < r->l.n; i++) {
		const struct hub_file *f = &r->l.file[i];

		if (is_deleted(h, f) || map_set(h->seen, digest_key(&r->sha256[i]), &yes) != NULL ||
		    f->lfs)
			continue;
		h->bytes += f->size;
	}
}

/* Uploads that go: those of before that no commit names, and what is deleted. A fresh one may be
 * part of the next commit. */
static int old_uploads(struct history *h, const char ***out, size_t *n, struct err *err)
{
	struct model_ref *all = NULL;
	struct digest d;
	size_t got = 0;

	*n = 0;
	if (meta_repo_uploads(h->app->meta, h->a, h->repo, 0, UPLOADS_MAX, &all, &got, err) < 0)
		return -1;
	*out = ARENA_ARRAY(h->a, const char *, got + 1);
	for (size_t i = 0; i < got; i++) {
		bool fresh = all[i].used_ms == all[i].created_ms;

		if (digest_parse(str_of(strchr(all[i].name, '/') + 1), &d, err) < 0)
			return -1;
		if (map_get(h->seen, digest_key(&d)) == NULL &&
		    (!fresh || (h->deleted != NULL && map_get(h->deleted, digest_key(&d)) != NULL)))
			(*out)[(*n)++] = all[i].name;
	}
	return 0;
}

/* A commit that was made anew may be one that was there, and that nothing reached. */
static bool is_made(const struct history *h, const char *commit)
{
	for (size_t i = 0; i < h->n_made; i++)
		if (strcmp(h->made[i].row.commit, commit) == 0)
			return true;
	return false;
}

static void forget(const struct history *h, const char *const *commit, size_t n)
{
	AUTO_MAP struct map *gone = map_new();

	for (size_t i = 0; i < n; i++)
		(void)map_set(gone, str_of(commit[i]), gone);
	hub_own_forget(h->app, h->repo->id, gone);
}

/* The refs are what they are to be: all of it is written. */
static int history_write(struct history *h, struct err *err)
{
	struct model_repo_commit *commit =
		ARENA_ARRAY(h->a, struct model_repo_commit, h->n_made + 1);
	struct model_ref *files = ARENA_ARRAY(h->a, struct model_ref, h->n_made + 1);
	struct meta_repo_moved *moved = ARENA_ARRAY(h->a, struct meta_repo_moved, h->n + 1);
	struct model_repo_ref *ref = ARENA_ARRAY(h->a, struct model_repo_ref, h->n_refs + 1);
	const char **head = ARENA_ARRAY(h->a, const char *, h->n_refs + 1);
	const char **drop = ARENA_ARRAY(h->a, const char *, h->n + 1);
	const char **upload = NULL;
	struct meta_repo_rewrite w = {.repo = h->repo,
	                              .commit = commit,
	                              .text_of = h->text_of,
	                              .files = files,
	                              .n_commits = h->n_made,
	                              .ref = ref,
	                              .head = head,
	                              .moved = moved,
	                              .drop = drop,
	                              .bytes = h->bytes,
	                              .now_ms = clock_wall_ms()};

	for (size_t i = 0; i < h->n_made; i++) {
		commit[i] = h->made[i].row;
		files[i] = h->made[i].files;
	}
	for (size_t i = 0; i < h->n_refs; i++) {
		if (strcmp(h->ref[i].commit, h->head[i]) == 0)
			continue;
		ref[w.n_refs] = h->ref[i];
		head[w.n_refs++] = h->head[i];
	}
	for (size_t i = 0; i < h->n; i++) {
		const struct past *p = &h->past[i];

		if (p->to != NULL)
			moved[w.n_moved++] =
				(struct meta_repo_moved){p->is->commit, p->to->row.commit};
		if (p->to != NULL || (!p->kept && !is_made(h, p->is->commit)))
			drop[w.n_drop++] = p->is->commit;
	}
	if (old_uploads(h, &upload, &w.n_uploads, err) < 0)
		return -1;
	w.upload = upload;
	app_crash_at("repo:rewrite");
	if (meta_repo_rewrite(h->app->meta, &w, err) < 0)
		return -1;
	forget(h, drop, w.n_drop);
	return 0;
}

static void rewritten(const struct history *h, const char *what)
{
	const struct model_repo *r = h->repo;

	repo_changed(h->app);
	log_info("%s: repository=%s/%s/%s commits=%zu by=%s", what, r->type, r->owner, r->name,
	         h->n_made, h->ask->principal->name);
	loop_kick(h->app->janitor);
}

/* A commit like `was`, of the files of r that stay. */
static int make_again(struct history *h, const struct hub_repo *r, const struct hub_commit *git,
                      struct repo_made *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_listing l = {.type = r->l.type, .id = r->l.id};
	struct digest *sha256 = ARENA_ARRAY(a, struct digest, r->l.n + 1);
	struct repo_made made;

	l.file = ARENA_ARRAY(a, struct hub_file, r->l.n + 1);
	for (size_t i = 0; i < r->l.n; i++) {
		if (is_deleted(h, &r->l.file[i]))
			continue;
		sha256[l.n] = r->sha256[i];
		l.file[l.n++] = r->l.file[i];
	}
	if (repo_make(h->app,
	              &(struct repo_making){.a = a,
	                                    .repo = h->repo,
	                                    .l = &l,
	                                    .sha256 = sha256,
	                                    .base = &r->manifest,
	                                    .git = git},
	              h->pins, &made, err) < 0)
		return -1;
	made.row.commit = arena_cstr(h->a, made.row.commit);
	made.own = (struct hub_own_files){0}; /* what it points to ends here */
	made.files.name = arena_cstr(h->a, made.files.name);
	made.files.manifest = arena_cstr(h->a, made.files.manifest);
	*out = made;
	return 0;
}

/* ---- squashed ------------------------------------------------------------------------------ */

static int squash(struct history *h, const struct model_repo_ref *branch, const char *message,
                  struct err *err)
{
	const char *line = strchrnul(message, '\n');
	const struct hub_commit git = {
		.author = h->ask->principal->name,
		.title = arena_strz(h->a, str_n(message, (size_t)(line - message))),
		.message = *line != '\0' ? line + 1 : "",
		.ms = clock_wall_ms()};
	struct hub_repo *r = NULL;
	struct repo_made *made = ARENA_NEW(h->a, struct repo_made);
	int rc;

	if (repo_open(h->app, h->repo, branch->commit, &r, err) < 0)
		return -1;
	rc = make_again(h, r, &git, made, err);
	if (rc == 0)
		count(h, r);
	repo_close(h->app, r);
	if (rc < 0)
		return -1;
	if (past_of(h, made->row.commit) == NULL) { /* else the same was asked for a moment ago */
		h->made = made;
		h->text_of = ARENA_ARRAY(h->a, const char *, 1); /* its own */
		h->n_made = 1;
	}
	for (size_t i = 0; i < h->n_refs; i++)
		if (h->ref[i].kind == REPO_BRANCH && strcmp(h->ref[i].name, branch->name) == 0)
			h->ref[i].commit = made->row.commit;
	mark(h);
	for (size_t i = 0; i < h->n; i++) {
		if (!h->past[i].kept)
			continue;
		if (repo_open(h->app, h->repo, h->past[i].is->commit, &r, err) < 0)
			return -1;
		count(h, r);
		repo_close(h->app, r);
	}
	return history_write(h, err);
}

static int squash_locked(const struct ask *ask, const struct model_repo *r, const char *rev,
                         const char *message, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HISTORY struct history h = {0};
	struct model_repo_ref branch;

	if (repo_branch_of(ask->app, a, r, rev, true, &branch, err) < 0 ||
	    history_read(ask, a, r, &h, err) < 0 || squash(&h, &branch, message, err) < 0)
		return -1;
	rewritten(&h, "squashed");
	return 0;
}

int repo_squash(const struct ask *ask, const struct hub_name *at, const char *message,
                struct err *err)
{
	struct model_repo r;
	struct lock *lock;
	int rc;

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 || app_has_room(ask->app, err) < 0)
		return -1;
	lock = app_stripe(ask->app->hub->commits, r.id);
	lock_take(lock);
	rc = squash_locked(ask, &r, at->rev, message, err);
	lock_give(lock);
	return rc;
}

/* ---- large files --------------------------------------------------------------------------- */

/* The name of a file in a listing that is one of those that are looked for. */
static void name_files(const struct hub_listing *l, const char *rev, struct map *looked_for,
                       size_t *left, struct arena *a)
{
	for (size_t i = 0; i<l->n && * left> 0; i++) {
		struct repo_large_file *f =
			l->file[i].lfs ? map_get(looked_for, digest_key(&l->file[i].sha256)) : NULL;

		if (f == NULL || f->path != NULL)
			continue;
		f->path = arena_cstr(a, l->file[i].path);
		f->rev = rev;
		--*left;
	}
}

static const char *rev_name(struct arena *a, const struct model_repo_ref *r)
{
	return arena_printf(a, "%s%s", r->kind == REPO_PULL ? "refs/pr/" : "", r->name);
}

/* Branches and tags first, then commits from the newest on, for as long as names are missing. */
static int find_names(struct history *h, struct repo_large_file *file, size_t n, struct err *err)
{
	AUTO_MAP struct map *looked_for = map_new();
	struct hub_repo *r = NULL;
	size_t left = n;

	for (size_t i = 0; i < n; i++)
		(void)map_set(looked_for, digest_key(&file[i].oid), &file[i]);
	for (size_t i = 0; i < h->n_refs + h->n && left > 0; i++) {
		const struct past *p = i < h->n_refs ? past_of(h, h->ref[i].commit)
		                                     : &h->past[h->n_refs + h->n - 1 - i];
		const char *rev = i < h->n_refs ? rev_name(h->ask->a, &h->ref[i]) : NULL;

		if (p == NULL || !p->kept)
			continue;
		if (repo_open(h->app, h->repo, p->is->commit, &r, err) < 0)
			return -1;
		name_files(&r->l, rev, looked_for, &left, h->ask->a);
		repo_close(h->app, r);
	}
	return 0;
}

int repo_large_files(const struct ask *ask, const struct hub_name *at, size_t skip, size_t most,
                     struct repo_large_file **out, size_t *n, bool *more, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HISTORY struct history h = {0};
	struct model_ref *all = NULL;
	struct model_repo r;

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 ||
	    history_read(ask, a, &r, &h, err) < 0 ||
	    meta_repo_uploads(ask->app->meta, a, &r, skip, most + 1, &all, n, err) < 0)
		return -1;
	*more = *n > most;
	*n = MIN(*n, most);
	*out = ARENA_ARRAY(ask->a, struct repo_large_file, *n + 1);
	for (size_t i = 0; i < *n; i++) {
		struct repo_large_file *f = &(*out)[i];

		f->size = all[i].bytes;
		f->ms = all[i].created_ms;
		if (digest_parse(str_of(strchr(all[i].name, '/') + 1), &f->oid, err) < 0)
			return -1;
	}
	mark(&h);
	return find_names(&h, *out, *n, err);
}

/* Has it one of the files that are to go? */
static const struct hub_file *names_deleted(const struct history *h, const struct hub_listing *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (is_deleted(h, &l->file[i]))
			return &l->file[i];
	return NULL;
}

/* The commit without the files, if it has some or its parent is another one. */
static int again(struct history *h, struct past *p, const struct hub_repo *r, bool rewrite,
                 struct err *err)
{
	const struct past *parent = past_of(h, p->is->parent);
	const struct hub_file *f = names_deleted(h, &r->l);
	AUTO_ARENA struct arena *a = arena_new();
	struct model_repo_commit was;
	struct hub_commit git;

	if (f != NULL && !rewrite)
		return err_set(err, ERR_HUB_FILE_IN_USE,
		               "commit %s names %s: it can only be deleted with the history "
		               "rewritten",
		               p->is->commit, f->path);
	count(h, r);
	if (f == NULL && (parent == NULL || parent->to == NULL))
		return 0;
	if (meta_repo_commit_find(h->app->meta, a, h->repo->id, p->is->commit, &was, err) < 0)
		return -1;
	git = (struct hub_commit){.parent = parent != NULL && parent->to != NULL
	                                            ? parent->to->row.commit
	                                            : was.parent,
	                          .author = was.author,
	                          .title = was.title,
	                          .message = was.message,
	                          .ms = was.ms};
	p->to = &h->made[h->n_made];
	if (make_again(h, r, &git, p->to, err) < 0)
		return -1;
	p->to->row.parent = arena_cstr(h->a, git.parent);
	p->to->row.title = p->to->row.message = p->to->row.author = NULL; /* as of text_of */
	h->text_of[h->n_made++] = p->is->commit;
	return 0;
}

static int delete_large(struct history *h, bool rewrite, struct err *err)
{
	struct hub_repo *r = NULL;

	h->made = ARENA_ARRAY(h->a, struct repo_made, h->n + 1);
	h->text_of = ARENA_ARRAY(h->a, const char *, h->n + 1);
	mark(h);
	for (size_t i = 0; i < h->n; i++) {
		int rc;

		if (!h->past[i].kept)
			continue;
		if (repo_open(h->app, h->repo, h->past[i].is->commit, &r, err) < 0)
			return -1;
		rc = again(h, &h->past[i], r, rewrite, err);
		repo_close(h->app, r);
		if (rc < 0)
			return -1;
	}
	for (size_t i = 0; i < h->n_refs; i++) {
		const struct past *p = past_of(h, h->ref[i].commit);

		if (p != NULL && p->to != NULL)
			h->ref[i].commit = p->to->row.commit;
	}
	return history_write(h, err);
}

static int delete_locked(const struct ask *ask, const struct model_repo *r,
                         const struct digest *oid, size_t n, bool rewrite, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HISTORY struct history h = {0};
	static char yes;

	if (history_read(ask, a, r, &h, err) < 0)
		return -1;
	h.deleted = map_new();
	for (size_t i = 0; i < n; i++)
		(void)map_set(h.deleted, digest_key(&oid[i]), &yes);
	if (delete_large(&h, rewrite, err) < 0)
		return -1;
	rewritten(&h, "large files deleted");
	return 0;
}

int repo_large_delete(const struct ask *ask, const struct hub_name *at, const struct digest *oid,
                      size_t n, bool rewrite, struct err *err)
{
	struct model_repo r;
	struct lock *lock;
	int rc;

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 || app_has_room(ask->app, err) < 0)
		return -1;
	lock = app_stripe(ask->app->hub->commits, r.id);
	lock_take(lock);
	rc = delete_locked(ask, &r, oid, n, rewrite, err);
	lock_give(lock);
	return rc;
}
