/*
 * meta_repo_pull.c - pull requests: each is a row, a ref of its own, and what was said about it.
 * None is ever removed, so that the next number is one more than the last.
 */
#include "meta/meta_impl.h"

#include "core/hub_pull.h"

static const char *const event_words[] = {
	[EVENT_COMMENT] = "comment", [EVENT_STATUS] = "status", [EVENT_TITLE] = "title"};

#define PULL                                                                                       \
	"SELECT p.repo_id, p.num, p.status, p.title, p.author, p.target, p.base, p.merged,"        \
	" p.created_ms, (SELECT count(*) FROM repo_events e WHERE e.repo_id = p.repo_id"           \
	" AND e.num = p.num AND e.kind = 'comment') FROM repo_pulls p "

static void pull_row(struct db_rows *r, void *item)
{
	struct model_repo_pull *x = item;

	x->repo_id = db_get_text(r);
	x->num = db_get_int(r);
	(void)hub_pull_status(db_get_text(r), &x->status);
	x->title = db_get_text(r);
	x->author = db_get_text(r);
	x->target = db_get_text(r);
	x->base = db_get_text(r);
	x->merged = db_get_text(r);
	x->created_ms = db_get_int(r);
	x->comments = db_get_int(r);
}

int meta_repo_pull(struct meta *m, struct arena *a, const char *repo_id, int64_t num,
                   struct model_repo_pull *out, struct err *err)
{
	return meta_one(m, a, PULL "WHERE p.repo_id = ? AND p.num = ?",
	                DB_ARGS(db_text(repo_id), db_int(num)), pull_row, out,
	                ERR_HUB_REVISION_NOT_FOUND, err);
}

#define ASKED                                                                                      \
	"WHERE p.repo_id = ?1 AND (?2 IS NULL OR p.author = ?2)"                                   \
	" AND (?3 = 0 OR p.status IN ('closed', 'merged'))"                                        \
	" AND (?4 = 0 OR p.status IN ('open', 'draft'))"

int meta_repo_pulls(struct meta *m, struct arena *a, const struct meta_pull_query *q,
                    struct model_repo_pull **out, size_t *n, size_t *total, struct err *err)
{
	int64_t all = 0;

	if (meta_number(m, "SELECT count(*) FROM repo_pulls p " ASKED,
	                DB_ARGS(db_text(q->repo_id), db_text(q->author), db_int(q->no_open),
	                        db_int(q->no_ended)),
	                &all, err) < 0)
		return -1;
	*total = (size_t)all;
	return meta_list(m, a, PULL ASKED " ORDER BY p.num DESC LIMIT ?5 OFFSET ?6",
	                 DB_ARGS(db_text(q->repo_id), db_text(q->author), db_int(q->no_open),
	                         db_int(q->no_ended), db_u64(q->limit), db_u64(q->skip)),
	                 sizeof(**out), pull_row, out, n, err);
}

static void event_row(struct db_rows *r, void *item)
{
	struct model_repo_event *x = item;
	const char *kind;

	x->seq = db_get_int(r);
	kind = db_get_text(r);
	x->kind = EVENT_COMMENT;
	for (unsigned k = 0; k < COUNT(event_words); k++)
		if (strcmp(kind, event_words[k]) == 0)
			x->kind = (enum model_repo_event_kind)k;
	x->author = db_get_text(r);
	x->before = db_get_text(r);
	x->text = db_get_text(r);
	x->ms = db_get_int(r);
}

int meta_repo_events(struct meta *m, struct arena *a, const char *repo_id, int64_t num,
                     struct model_repo_event **out, size_t *n, struct err *err)
{
	return meta_list(m, a,
	                 "SELECT seq, kind, author, earlier, body, ms FROM repo_events"
	                 " WHERE repo_id = ? AND num = ? ORDER BY seq",
	                 DB_ARGS(db_text(repo_id), db_int(num)), sizeof(**out), event_row, out, n,
	                 err);
}

/* Whoever reads a pull request reads all that was said about it. Its status can always change. */
static int may_say(struct db_tx *tx, const struct model_repo_pull *p,
                   const struct model_repo_event *e, struct err *err)
{
	int64_t n = 0, text = 0;

	if (db_number(tx, "SELECT count(*) FROM repo_events WHERE repo_id = ? AND num = ?",
	              DB_ARGS(db_text(p->repo_id), db_int(p->num)), 0, &n, err) < 0 ||
	    db_number(tx,
	              "SELECT coalesce(sum(length(body) + length(earlier)), 0) FROM repo_events"
	              " WHERE repo_id = ? AND num = ?",
	              DB_ARGS(db_text(p->repo_id), db_int(p->num)), 0, &text, err) < 0)
		return -1;
	if (e->kind == EVENT_STATUS ? n < 2 * META_REPO_EVENTS_MAX
	                            : n < META_REPO_EVENTS_MAX &&
	                                      text + (int64_t)strlen(e->text) <= META_REPO_TEXT_MAX)
		return 0;
	return err_set(err, ERR_TOO_BIG,
	               "pull request %" PRId64 " is full: it takes %d comments and new titles, of "
	               "%d characters in all",
	               p->num, META_REPO_EVENTS_MAX, META_REPO_TEXT_MAX);
}

/* What is said counts as what the repository holds; that its status changes does not. */
static int event_add(struct db_tx *tx, const struct model_repo_pull *p,
                     const struct model_repo_event *e, uint64_t quota, struct err *err)
{
	uint64_t bytes = e->kind == EVENT_STATUS ? 0 : strlen(e->text) + strlen(e->before);

	if (may_say(tx, p, e, err) < 0 ||
	    (bytes > 0 && meta_repo_grow_in(tx, p->repo_id, bytes, quota, 0, err) < 0))
		return -1;
	return db_exec(tx,
	               "INSERT INTO repo_events (repo_id, num, kind, author, earlier, body, ms)"
	               " VALUES (?, ?, ?, ?, ?, ?, ?)",
	               DB_ARGS(db_text(p->repo_id), db_int(p->num), db_text(event_words[e->kind]),
	                       db_text(e->author), db_text(e->before), db_text(e->text),
	                       db_int(e->ms)),
	               NULL, err);
}

int meta_repo_pull_add_in(struct db_tx *tx, struct model_repo_pull *p, const char *commit,
                          const char *comment, uint64_t quota, struct err *err)
{
	const struct model_repo_event first = {.kind = EVENT_COMMENT,
	                                       .author = p->author,
	                                       .before = "",
	                                       .text = comment,
	                                       .ms = p->created_ms};
	struct model_repo_ref ref = {p->repo_id, REPO_PULL, NULL, commit};
	int64_t last = 0, commits = 0;
	char name[24];

	if (db_number(tx, "SELECT count(*) FROM repo_commits WHERE repo_id = ? AND \"commit\" = ?",
	              DB_ARGS(db_text(p->repo_id), db_text(commit)), 0, &commits, err) < 0 ||
	    db_number(tx, "SELECT coalesce(max(num), 0) FROM repo_pulls WHERE repo_id = ?",
	              DB_ARGS(db_text(p->repo_id)), 0, &last, err) < 0)
		return -1;
	if (commits == 0)
		return err_missing(err, ERR_HUB_REVISION_NOT_FOUND);
	p->num = last + 1;
	FMT(name, "%" PRId64, p->num);
	ref.name = name;
	if (db_exec(tx,
	            "INSERT INTO repo_pulls (repo_id, num, status, title, author, target, base,"
	            " merged, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
	            DB_ARGS(db_text(p->repo_id), db_int(p->num), db_text(hub_pull_word(p->status)),
	                    db_text(p->title), db_text(p->author), db_text(p->target),
	                    db_text(p->base), db_int(p->created_ms)),
	            NULL, err) < 0 ||
	    meta_repo_ref_add_in(tx, &ref, err) < 0)
		return -1;
	return comment[0] != '\0' ? event_add(tx, p, &first, quota, err) : 0;
}

static int pull_add_once(struct meta *m, struct model_repo_pull *p, const char *commit,
                         const char *comment, uint64_t quota, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    meta_repo_pull_add_in(&tx, p, commit, comment, quota, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_pull_add(struct meta *m, struct model_repo_pull *p, const char *commit,
                       const char *comment, uint64_t quota, struct err *err)
{
	return DB_AGAIN(pull_add_once(m, p, commit, comment, quota, err), err);
}

/* The branch that it goes to moves, to a commit that may be new. */
static int merge_in(struct db_tx *tx, const struct meta_pull_change *c, struct err *err)
{
	const struct model_repo_ref ref = {c->was->repo_id, REPO_BRANCH, c->was->target, c->merged};

	if (c->commit != NULL && (meta_repo_grow_in(tx, c->commit->repo_id, c->bytes, c->quota,
	                                            c->commit->ms, err) < 0 ||
	                          meta_ref_put_in(tx, c->files, err) < 0 ||
	                          meta_repo_commit_add_in(tx, c->commit, err) < 0))
		return -1;
	return meta_repo_ref_move_in(tx, &ref, c->head, err);
}

static int pull_change_once(struct meta *m, const struct meta_pull_change *c, int64_t *seq,
                            struct err *err)
{
	const struct model_repo_pull *p = c->was;
	AUTO_DB_TX struct db_tx tx = {0};
	uint64_t changed = 0;

	if (db_begin(m->db, DB_WRITE, &tx, err) < 0 ||
	    db_exec(&tx,
	            "UPDATE repo_pulls SET status = ?, title = ?, merged = ?"
	            " WHERE repo_id = ? AND num = ? AND status = ?",
	            DB_ARGS(db_text(hub_pull_word(c->status)),
	                    db_text(c->title != NULL ? c->title : p->title),
	                    db_text(c->merged != NULL ? c->merged : p->merged), db_text(p->repo_id),
	                    db_int(p->num), db_text(hub_pull_word(p->status))),
	            &changed, err) < 0)
		return -1;
	if (changed == 0)
		return err_set(err, ERR_HUB_STALE,
		               "pull request %" PRId64 " was changed at the same time", p->num);
	if (c->merged != NULL && merge_in(&tx, c, err) < 0)
		return -1;
	for (size_t i = 0; i < c->n; i++)
		if (event_add(&tx, p, c->say[i], c->quota, err) < 0)
			return -1;
	if (db_number(&tx,
	              "SELECT coalesce(max(seq), 0) FROM repo_events WHERE repo_id = ?"
	              " AND num = ?",
	              DB_ARGS(db_text(p->repo_id), db_int(p->num)), 0, seq, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int meta_repo_pull_change(struct meta *m, const struct meta_pull_change *c, int64_t *seq,
                          struct err *err)
{
	return DB_AGAIN(pull_change_once(m, c, seq, err), err);
}
