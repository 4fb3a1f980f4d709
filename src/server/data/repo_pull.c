/*
 * repo_pull.c - pull requests of our own repositories: a ref of their own, refs/pr/N, that takes
 * commits as a branch does, and what was said about them. A merge is by path: a file that one side
 * left as it was is as the other side has it.
 */
#include "server/data/repos.h"

#include "core/hub_pull.h"
#include "server/api/ctx.h"

#define COMMITS_MAX 1000
#define CHANGES_MAX 1000
#define TITLE_MAX 1000
#define COMMENT_MAX ((size_t)64 << 10)
#define CONFLICTS_TOLD 5

/* ---- found --------------------------------------------------------------------------------- */

static int to_read(const struct ask *ask, const struct hub_name *at, struct model_repo *out,
                   struct err *err)
{
	enum repo_found how;
	bool moved;

	if (repo_look(ask, at->type, at->id, &how, out, &moved, err) < 0)
		return -1;
	if (how == REPO_NONE)
		return err_set(err, ERR_NOT_FOUND,
		               "this server has no discussions of %s: it is no repository of its "
		               "own",
		               at->id);
	return 0;
}

static int find(struct app *app, struct arena *a, const struct model_repo *r, int64_t num,
                struct model_repo_pull *out, struct err *err)
{
	if (meta_repo_pull(app->meta, a, r->id, num, out, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s/%s has no pull request %" PRId64,
	               r->owner, r->name, num);
}

int repo_pull_is_open(const struct model_repo_pull *p, struct err *err)
{
	if (p->status == PULL_DRAFT || p->status == PULL_OPEN)
		return 0;
	return err_set(err, ERR_HUB_PULL_ENDED, "pull request %" PRId64 " is %s", p->num,
	               hub_pull_word(p->status));
}

static int head_of(struct app *app, struct arena *a, const struct model_repo_pull *p,
                   const char **out, struct err *err)
{
	struct model_repo_ref ref;

	if (meta_repo_ref(app->meta, a, p->repo_id, REPO_PULL, arena_printf(a, "%" PRId64, p->num),
	                  &ref, err) < 0)
		return -1;
	*out = ref.commit;
	return 0;
}

/* ---- opened, listed ------------------------------------------------------------------------ */

static int check_text(const char *what, const char *text, size_t max, struct err *err)
{
	if (strlen(text) > max)
		return err_set(err, ERR_INVALID, "%s: more than %zu bytes", what, max);
	for (const char *c = text; *c != '\0'; c++)
		if (!strchr(" \t\r\n", *c))
			return 0;
	return err_set(err, ERR_INVALID, "%s: it is empty", what);
}

int repo_pull_open(const struct ask *ask, const struct hub_name *at, const char *title,
                   const char *text, int64_t *num, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo_pull p = {.status = PULL_DRAFT,
	                            .title = title,
	                            .author = ask->principal->name,
	                            .created_ms = clock_wall_ms()};
	struct model_repo_ref head;
	struct model_repo r;

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 ||
	    check_text("title", title, TITLE_MAX, err) < 0 ||
	    (text[0] != '\0' && check_text("description", text, COMMENT_MAX, err) < 0) ||
	    repo_branch_of(app, ask->a, &r, at->rev, true, &head, err) < 0)
		return -1;
	p.repo_id = r.id;
	p.target = head.name;
	p.base = head.commit;
	if (meta_repo_pull_add(app->meta, &p, head.commit, text, app->set.repo_quota, err) < 0)
		return -1;
	repo_changed(app);
	log_info("opened: repository=%s/%s/%s pull=%" PRId64 " by=%s", r.type, r.owner, r.name,
	         p.num, p.author);
	*num = p.num;
	return 0;
}

int repo_pull_list(const struct ask *ask, const struct hub_name *at,
                   const struct repo_pull_ask *want, struct model_repo *repo,
                   struct model_repo_pull **out, size_t *n, size_t *total, struct err *err)
{
	struct meta_pull_query q = {.author = want->author,
	                            .no_open = want->no_open,
	                            .no_ended = want->no_ended,
	                            .skip = want->skip,
	                            .limit = want->most};

	if (to_read(ask, at, repo, err) < 0)
		return -1;
	q.repo_id = repo->id;
	return meta_repo_pulls(ask->app->meta, ask->a, &q, out, n, total, err);
}

/* ---- what one is --------------------------------------------------------------------------- */

/* The commits behind the base, from the first one on. */
static int read_commits(const struct ask *ask, struct repo_pull *out, const char *head,
                        struct err *err)
{
	struct model_repo_commit *all = NULL;
	size_t n = 0, own = 0;

	if (meta_repo_log(ask->app->meta, ask->a, out->repo.id, head, 0, COMMITS_MAX, &all, &n,
	                  err) < 0)
		return -1;
	while (own < n && strcmp(all[own].commit, out->is.base) != 0)
		own++;
	out->commit = ARENA_ARRAY(ask->a, struct model_repo_commit, own + 1);
	for (size_t i = 0; i < own; i++)
		out->commit[i] = all[own - 1 - i];
	out->n_commits = own;
	return 0;
}

static const struct hub_file *copy_file(struct arena *a, const struct hub_file *f)
{
	struct hub_file *c;

	if (f == NULL)
		return NULL;
	c = ARENA_NEW(a, struct hub_file);
	*c = *f;
	c->path = arena_cstr(a, f->path);
	return c;
}

/* The three listings of a merge. */
struct sides {
	struct hub_repo *base, *ours, *theirs;
};

static void sides_close(struct app *app, struct sides *s)
{
	repo_close(app, s->base);
	repo_close(app, s->ours);
	repo_close(app, s->theirs);
}

static int sides_open(struct app *app, const struct model_repo *r, const struct model_repo_pull *p,
                      const char *ours, const char *theirs, struct sides *s, struct err *err)
{
	*s = (struct sides){0};
	if (repo_open(app, r, p->base, &s->base, err) < 0 ||
	    (ours != NULL && repo_open(app, r, ours, &s->ours, err) < 0) ||
	    repo_open(app, r, theirs, &s->theirs, err) < 0) {
		sides_close(app, s);
		return -1;
	}
	return 0;
}

static void read_sides(const struct ask *ask, struct repo_pull *out, const struct sides *s)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_change *change;
	struct hub_merge m;

	hub_changes(a, &s->base->l, &s->theirs->l, CHANGES_MAX, &change, &out->n_changes);
	out->change = ARENA_ARRAY(ask->a, struct hub_change, out->n_changes + 1);
	for (size_t i = 0; i < out->n_changes; i++)
		out->change[i] = (struct hub_change){copy_file(ask->a, change[i].before),
		                                     copy_file(ask->a, change[i].after)};
	if (s->ours == NULL)
		return;
	hub_merge(a, &s->base->l, &s->ours->l, &s->theirs->l, &m);
	out->n_conflicts = MIN(m.n_conflicts, (size_t)CHANGES_MAX);
	out->conflict = ARENA_ARRAY(ask->a, const char *, out->n_conflicts + 1);
	for (size_t i = 0; i < out->n_conflicts; i++)
		out->conflict[i] = arena_cstr(ask->a, m.conflict[i]);
}

static int read_it(const struct ask *ask, int64_t num, struct repo_pull *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo_ref target = {0};
	const char *head = NULL;
	struct sides s;

	if (find(app, ask->a, &out->repo, num, &out->is, err) < 0 ||
	    head_of(app, ask->a, &out->is, &head, err) < 0 ||
	    meta_repo_events(app->meta, ask->a, out->repo.id, num, &out->event, &out->n_events,
	                     err) < 0 ||
	    read_commits(ask, out, head, err) < 0)
		return -1;
	if (out->is.status <= PULL_OPEN &&
	    meta_repo_ref(app->meta, ask->a, out->repo.id, REPO_BRANCH, out->is.target, &target,
	                  err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* the branch is gone */
		target.commit = NULL;
	}
	if (sides_open(app, &out->repo, &out->is, target.commit, head, &s, err) < 0)
		return -1;
	read_sides(ask, out, &s);
	sides_close(app, &s);
	return 0;
}

int repo_pull_read(const struct ask *ask, const struct hub_name *at, int64_t num,
                   struct repo_pull *out, struct err *err)
{
	*out = (struct repo_pull){0};
	return to_read(ask, at, &out->repo, err) < 0 ? -1 : read_it(ask, num, out, err);
}

/* ---- changed ------------------------------------------------------------------------------- */

static int next_status(const struct model_repo_pull *p, const char *word,
                       enum model_pull_status *out, struct err *err)
{
	if (!hub_pull_status(word, out) || (*out != PULL_OPEN && *out != PULL_CLOSED))
		return err_set(err, ERR_INVALID, "status: \"%.40s\" is neither open nor closed",
		               word);
	return p->status == PULL_MERGED ? repo_pull_is_open(p, err) : 0;
}

int repo_pull_say(const struct ask *ask, const struct hub_name *at, int64_t num,
                  const struct repo_pull_said *said, struct model_repo_event *out, struct err *err)
{
	struct app *app = ask->app;
	struct model_repo_event comment = {.kind = EVENT_COMMENT,
	                                   .author = ask->principal->name,
	                                   .before = "",
	                                   .text = said->comment,
	                                   .ms = clock_wall_ms()};
	const struct model_repo_event *say[2];
	struct model_repo_pull p;
	struct meta_pull_change change = {.was = &p, .say = say, .quota = app->set.repo_quota};
	struct model_repo r;

	*out = (struct model_repo_event){.kind = said->kind,
	                                 .author = comment.author,
	                                 .before = "",
	                                 .text = said->text,
	                                 .ms = comment.ms};
	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 ||
	    find(app, ask->a, &r, num, &p, err) < 0)
		return -1;
	change.status = p.status;
	switch (said->kind) {
	case EVENT_COMMENT:
		if (check_text("comment", said->text, COMMENT_MAX, err) < 0)
			return -1;
		break;
	case EVENT_TITLE:
		if (check_text("title", said->text, TITLE_MAX, err) < 0)
			return -1;
		out->before = p.title;
		change.title = said->text;
		break;
	case EVENT_STATUS:
		if (next_status(&p, said->text, &change.status, err) < 0)
			return -1;
		break;
	}
	if (said->comment != NULL && said->comment[0] != '\0') {
		if (check_text("comment", said->comment, COMMENT_MAX, err) < 0)
			return -1;
		say[change.n++] = &comment;
	}
	say[change.n++] = out;
	return meta_repo_pull_change(app->meta, &change, &out->seq, err);
}

/* ---- merged -------------------------------------------------------------------------------- */

static int refuse(const struct model_repo_pull *p, const struct hub_merge *m, struct err *err)
{
	AUTO_BUF struct buf paths = BUF_INIT(ERR_MSG_MAX);

	for (size_t i = 0; i < m->n_conflicts && i < CONFLICTS_TOLD; i++)
		buf_printf(&paths, "%s%.200s", i > 0 ? ", " : "", m->conflict[i]);
	if (m->n_conflicts > CONFLICTS_TOLD)
		buf_printf(&paths, " and %zu more", m->n_conflicts - CONFLICTS_TOLD);
	return err_set(err, ERR_HUB_MERGE_CONFLICT,
	               "pull request %" PRId64 " and %s have both changed %s", p->num, p->target,
	               buf_cstr(&paths));
}

/* The commit whose files are those of both, as a child of the target. */
static int merge_files(const struct ask *ask, const struct model_repo *r,
                       const struct model_repo_pull *p, const struct sides *s,
                       struct blob_pins *pins, struct repo_made *made, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct hub_listing l = {.type = s->ours->l.type, .id = s->ours->l.id};
	const struct hub_commit git = {
		.parent = arena_cstr(ask->a, s->ours->l.commit),
		.author = ask->principal->name,
		.title = arena_printf(ask->a, "%s (#%" PRId64 ")", p->title, p->num),
		.message = "",
		.ms = clock_wall_ms()};
	struct digest *sha256;
	struct hub_merge m;

	hub_merge(a, &s->base->l, &s->ours->l, &s->theirs->l, &m);
	if (m.n_conflicts > 0)
		return refuse(p, &m, err);
	l.file = ARENA_ARRAY(a, struct hub_file, m.n + 1);
	sha256 = ARENA_ARRAY(a, struct digest, m.n + 1);
	for (size_t i = 0; i < m.n; i++) {
		const struct hub_repo *from = m.file[i].theirs ? s->theirs : s->ours;

		l.file[i] = *m.file[i].f;
		sha256[i] = from->sha256[m.file[i].f - from->l.file];
	}
	l.n = m.n;
	if (l.n > MANIFEST_FILES_MAX - 1)
		return err_set(err, ERR_TOO_BIG, "a repository has %d files at most",
		               MANIFEST_FILES_MAX - 1);
	return repo_make(ask->app,
	                 &(struct repo_making){
				 .a = ask->a, .repo = r, .l = &l, .sha256 = sha256, .git = &git},
	                 pins, made, err);
}

static int merge_once(const struct ask *ask, const struct model_repo *r, int64_t num,
                      const char *comment, const char **merged, struct err *err)
{
	struct app *app = ask->app;
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	const struct model_repo_event said = {.kind = EVENT_COMMENT,
	                                      .author = ask->principal->name,
	                                      .before = "",
	                                      .text = comment,
	                                      .ms = clock_wall_ms()},
				      done = {.kind = EVENT_STATUS,
	                                      .author = said.author,
	                                      .before = "",
	                                      .text = hub_pull_word(PULL_MERGED),
	                                      .ms = said.ms};
	const struct model_repo_event *say[] = {&done, &said};
	struct model_repo_pull p;
	struct meta_pull_change change = {.was = &p,
	                                  .status = PULL_MERGED,
	                                  .say = say,
	                                  .n = comment != NULL ? 2 : 1,
	                                  .quota = app->set.repo_quota};
	struct model_repo_ref target;
	struct repo_made made;
	const char *head = NULL;
	struct sides s;
	int64_t seq;

	if (find(app, ask->a, r, num, &p, err) < 0 || repo_pull_is_open(&p, err) < 0 ||
	    head_of(app, ask->a, &p, &head, err) < 0 ||
	    meta_repo_ref(app->meta, ask->a, r->id, REPO_BRANCH, p.target, &target, err) < 0)
		return -1;
	change.head = target.commit;
	change.merged = head;
	if (strcmp(head, p.base) == 0) { /* it has no commits */
		change.merged = target.commit;
	} else if (strcmp(target.commit, p.base) != 0) {
		int rc;

		if (sides_open(app, r, &p, target.commit, head, &s, err) < 0)
			return -1;
		rc = merge_files(ask, r, &p, &s, pins, &made, err);
		sides_close(app, &s);
		if (rc < 0)
			return -1;
		change.commit = &made.row;
		change.files = &made.files;
		change.bytes = made.list_bytes + strlen(made.row.title);
		change.merged = made.row.commit;
	}
	*merged = change.merged;
	return meta_repo_pull_change(app->meta, &change, &seq, err);
}

int repo_pull_merge(const struct ask *ask, const struct hub_name *at, int64_t num,
                    const char *comment, struct err *err)
{
	struct app *app = ask->app;
	const char *merged = NULL;
	struct model_repo r;
	struct lock *lock;
	int rc;

	if (repo_to_write(ask, at->type, at->id, &r, err) < 0 || app_has_room(app, err) < 0 ||
	    (comment != NULL && check_text("comment", comment, COMMENT_MAX, err) < 0))
		return -1;
	lock = app_stripe(app->hub->commits, r.id);
	lock_take(lock);
	rc = merge_once(ask, &r, num, comment, &merged, err);
	lock_give(lock);
	if (rc < 0)
		return -1;
	repo_changed(app);
	log_info("merged: repository=%s/%s/%s pull=%" PRId64 " commit=%s by=%s", r.type, r.owner,
	         r.name, num, merged, ask->principal->name);
	return 0;
}
