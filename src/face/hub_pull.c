/* hub_pull.c - pull requests, which clients call discussions. Others than these are not here. */
#include "base/clock.h"
#include "base/hash.h"
#include "face/answer.h"
#include "face/hub_impl.h"

#define REPLY_MAX ((size_t)64 << 20)
#define HTML_MAX ((size_t)1 << 20)
#define PAGE 50
#define PAGES_MAX 1000000

static int asked(struct request *rq, struct hub_name *name, int64_t *num, struct err *err)
{
	struct str text = hub_arg(rq, "num");

	if (hub_name_of(rq, name, err) < 0)
		return -1;
	*num = 0;
	for (size_t i = 0; i < text.n && text.n < 10; i++) {
		if (text.p[i] < '0' || text.p[i] > '9')
			break;
		*num = *num * 10 + (text.p[i] - '0');
		if (i + 1 == text.n)
			return 0;
	}
	return err_set(err, ERR_HUB_REVISION_NOT_FOUND, "%s has no pull request \"%.*s\"", name->id,
	               (int)MIN(text.n, 40), text.p);
}

/* ---- written ------------------------------------------------------------------------------- */

static void js_author(struct js *js, const char *name)
{
	js_key(js, "author");
	js_open(js);
	js_kv(js, "name", name);
	js_close(js);
}

static void js_date(struct js *js, const char *key, int64_t ms)
{
	char text[CLOCK_ISO_CAP];

	clock_iso(ms, text);
	js_kv(js, key, text);
}

/* The members of an open object. */
static void js_pull(struct js *js, const struct model_repo *r, const struct model_repo_pull *p)
{
	js_kv_int(js, "num", p->num);
	js_kv(js, "title", p->title);
	js_author(js, p->author);
	js_date(js, "createdAt", p->created_ms);
	js_kv(js, "status", hub_pull_word(p->status));
	js_kv_bool(js, "isPullRequest", true);
	js_kv_bool(js, "pinned", false);
	js_kv_int(js, "numComments", p->comments);
	js_key(js, "repo");
	js_open(js);
	js_kv_str(js, "type", str_n(r->type, strlen(r->type) - 1)); /* "models": a model */
	js_key(js, "name");
	js_fmt(js, "%s/%s", r->owner, r->name);
	js_close(js);
}

static void html(struct js *js, const char *text)
{
	AUTO_BUF struct buf out = BUF_INIT(HTML_MAX);

	buf_puts(&out, "<p>");
	for (const char *c = text; *c != '\0'; c++) {
		const char *as = *c == '<'   ? "&lt;"
		                 : *c == '>' ? "&gt;"
		                 : *c == '&' ? "&amp;"
		                             : NULL;

		if (as != NULL)
			buf_puts(&out, as);
		else
			buf_add(&out, c, 1);
	}
	buf_puts(&out, "</p>");
	js_kv_str(js, "html", buf_view(&out));
}

static void js_comment(struct js *js, const struct model_repo_event *e)
{
	js_kv_bool(js, "edited", false);
	js_kv_bool(js, "hidden", false);
	js_kv_int(js, "numEdits", 0);
	js_key(js, "latest");
	js_open(js);
	js_kv(js, "raw", e->text);
	html(js, e->text);
	js_date(js, "updatedAt", e->ms);
	js_author(js, e->author);
	js_close(js);
	js_key(js, "history");
	js_list(js);
	js_end(js);
}

static void js_event(struct js *js, const struct model_repo_event *e)
{
	static const char *const words[] = {[EVENT_COMMENT] = "comment",
	                                    [EVENT_STATUS] = "status-change",
	                                    [EVENT_TITLE] = "title-change"};

	js_open(js);
	js_key(js, "id"); /* clients take it for hexadecimal */
	js_fmt(js, "%024" PRIx64, (uint64_t)e->seq);
	js_kv(js, "type", words[e->kind]);
	js_author(js, e->author);
	js_date(js, "createdAt", e->ms);
	js_key(js, "data");
	js_open(js);
	switch (e->kind) {
	case EVENT_COMMENT:
		js_comment(js, e);
		break;
	case EVENT_STATUS:
		js_kv(js, "status", e->text);
		break;
	case EVENT_TITLE:
		js_kv(js, "from", e->before);
		js_kv(js, "to", e->text);
		break;
	}
	js_close(js);
	js_close(js);
}

static void js_commit(struct js *js, const struct model_repo_commit *c)
{
	js_open(js);
	js_kv_str(js, "id", str_n(c->commit, 24));
	js_kv(js, "type", "commit");
	js_author(js, c->author);
	js_date(js, "createdAt", c->ms);
	js_key(js, "data");
	js_open(js);
	js_kv(js, "subject", c->title);
	js_kv(js, "oid", c->commit);
	js_close(js);
	js_close(js);
}

/* What was said and what was committed, in the order of time. */
static void js_events(struct js *js, const struct repo_pull *p)
{
	size_t e = 0, c = 0;

	js_key(js, "events");
	js_list(js);
	while (e < p->n_events || c < p->n_commits) {
		if (c == p->n_commits || (e < p->n_events && p->event[e].ms <= p->commit[c].ms))
			js_event(js, &p->event[e++]);
		else
			js_commit(js, &p->commit[c++]);
	}
	js_end(js);
}

/* As git names what has changed, without the lines. */
static void js_diff(struct js *js, const struct repo_pull *p)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX / 4);
	static const uint8_t none[HUB_OID_LEN];

	for (size_t i = 0; i < p->n_changes; i++) {
		const struct hub_change *c = &p->change[i];
		const char *path = (c->before != NULL ? c->before : c->after)->path;
		char was[2 * HUB_OID_LEN + 1], is[2 * HUB_OID_LEN + 1];

		hex_encode(c->before != NULL ? c->before->oid : none, HUB_OID_LEN, was);
		hex_encode(c->after != NULL ? c->after->oid : none, HUB_OID_LEN, is);
		buf_printf(&out, "diff --git a/%s b/%s\n", path, path);
		if (c->before == NULL)
			buf_puts(&out, "new file mode 100644\n");
		if (c->after == NULL)
			buf_puts(&out, "deleted file mode 100644\n");
		buf_printf(&out, "index %s..%s\n", was, is);
	}
	js_kv_str(js, "diff", buf_view(&out));
}

static void js_details(struct js *js, const struct repo_pull *p)
{
	js_open(js);
	js_pull(js, &p->repo, &p->is);
	js_events(js, p);
	js_key(js, "changes");
	js_open(js);
	js_key(js, "base");
	js_fmt(js, "refs/heads/%s", p->is.target);
	if (p->is.merged != NULL)
		js_kv(js, "mergeCommitId", p->is.merged);
	js_close(js);
	js_key(js, "filesWithConflicts");
	js_list(js);
	for (size_t i = 0; i < p->n_conflicts; i++)
		js_cstr(js, p->conflict[i]);
	js_end(js);
	js_diff(js, p);
	js_close(js);
}

/* ---- routes -------------------------------------------------------------------------------- */

int hub_post_pull(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	const char *title = NULL, *text = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct hub_name name = {0};
	bool pull = false;
	int64_t num = 0;
	struct js js;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "title", true, &title, err) < 0 ||
	    body_text(body, "description", false, &text, err) < 0 ||
	    body_bool(body, "pullRequest", &pull, err) < 0)
		return -1;
	if (!pull)
		return err_set(err, ERR_UNSUPPORTED,
		               "this server has pull requests, and no other discussions");
	if (ops->pull_open(face_ask(rq), &name, title, text != NULL ? text : "", &num, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv_int(&js, "num", num);
	js_kv_bool(&js, "pullRequest", true);
	js_key(&js, "url");
	js_fmt(&js, "%s/discussions/%" PRId64, hub_repo_url(rq, name.type, name.id), num);
	js_close(&js);
	return hub_send_json(rq, &out, err);
}

int hub_get_pulls(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct repo_pull_ask want = {.most = PAGE};
	const struct repo_ops *ops = NULL;
	struct model_repo_pull *p = NULL;
	struct hub_name name = {0};
	int64_t page = request_query_int(rq, "p", 0, err);
	size_t n = 0, total = 0;
	struct model_repo r;
	struct str word;
	struct js js;

	if (err->code != ERR_NONE || hub_repos_of(rq, &ops, err) < 0 ||
	    hub_name_of(rq, &name, err) < 0)
		return -1;
	if (page < 0 || page > PAGES_MAX)
		return err_set(err, ERR_INVALID, "p: there is no such page");
	want.skip = (size_t)page * PAGE;
	if (request_query(rq, "author", &word))
		want.author = arena_strz(rq->arena, word);
	if (request_query(rq, "status", &word)) {
		want.no_open = str_eq(word, "closed");
		want.no_ended = str_eq(word, "open");
	}
	if (request_query(rq, "type", &word) && str_eq(word, "discussion"))
		want.no_open = want.no_ended = true; /* there are none */
	if (ops->pull_list(face_ask(rq), &name, &want, &r, &p, &n, &total, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv_u64(&js, "count", total);
	js_kv_u64(&js, "start", want.skip);
	js_key(&js, "discussions");
	js_list(&js);
	for (size_t i = 0; i < n; i++) {
		js_open(&js);
		js_pull(&js, &r, &p[i]);
		js_close(&js);
	}
	js_end(&js);
	js_close(&js);
	return hub_send_json(rq, &out, err);
}

int hub_get_pull(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	const struct repo_ops *ops = NULL;
	struct hub_name name = {0};
	struct repo_pull p;
	int64_t num = 0;
	struct js js;

	if (hub_repos_of(rq, &ops, err) < 0 || asked(rq, &name, &num, err) < 0 ||
	    ops->pull_read(face_ask(rq), &name, num, &p, err) < 0)
		return -1;
	js_init(&js, &out);
	js_details(&js, &p);
	return hub_send_json(rq, &out, err);
}

static int say(struct request *rq, enum model_repo_event_kind kind, const char *key,
               const char *answer, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct repo_pull_said said = {.kind = kind};
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct model_repo_event done;
	struct hub_name name = {0};
	int64_t num = 0;
	struct js js;

	if (hub_repos_of(rq, &ops, err) < 0 || asked(rq, &name, &num, err) < 0 ||
	    body_read(rq, false, &body, err) < 0 ||
	    body_text(body, key, true, &said.text, err) < 0 ||
	    (kind == EVENT_STATUS && body_text(body, "comment", false, &said.comment, err) < 0) ||
	    ops->pull_say(face_ask(rq), &name, num, &said, &done, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_key(&js, answer);
	js_event(&js, &done);
	js_close(&js);
	return hub_send_json(rq, &out, err);
}

int hub_post_pull_comment(struct request *rq, struct err *err)
{
	return say(rq, EVENT_COMMENT, "comment", "newMessage", err);
}

int hub_post_pull_status(struct request *rq, struct err *err)
{
	return say(rq, EVENT_STATUS, "status", "newStatus", err);
}

int hub_post_pull_title(struct request *rq, struct err *err)
{
	return say(rq, EVENT_TITLE, "title", "newTitle", err);
}

int hub_post_pull_merge(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	const char *comment = NULL;
	struct hub_name name = {0};
	int64_t num = 0;

	if (hub_repos_of(rq, &ops, err) < 0 || asked(rq, &name, &num, err) < 0 ||
	    body_read(rq, true, &body, err) < 0 ||
	    body_text(body, "comment", false, &comment, err) < 0 ||
	    ops->pull_merge(face_ask(rq), &name, num, comment, err) < 0)
		return -1;
	return hub_done(rq);
}
