/* hub_history.c - histories that are written anew: squashed branches, large files that go. */
#include "base/clock.h"
#include "face/answer.h"
#include "face/hub_impl.h"

#define REPLY_MAX ((size_t)16 << 20)
#define PAGE 1000
#define DELETE_MAX 10000
#define MESSAGE_MAX ((size_t)64 << 10)

int hub_post_squash(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	const char *message = NULL;
	struct hub_name name = {0};

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    body_read(rq, true, &body, err) < 0 ||
	    body_text(body, "message", false, &message, err) < 0)
		return -1;
	if (message == NULL || message[0] == '\0')
		message = arena_printf(rq->arena, "Super-squash branch '%s'", name.rev);
	if (strlen(message) > MESSAGE_MAX)
		return err_set(err, ERR_INVALID, "message: more than %zu bytes", MESSAGE_MAX);
	if (ops->squash(face_ask(rq), &name, message, err) < 0)
		return -1;
	return hub_done(rq);
}

static void js_large(struct js *js, const struct repo_large_file *f)
{
	char hex[HASH_HEX_CAP], pushed[CLOCK_ISO_CAP];

	digest_hex(&f->oid, hex);
	clock_iso(f->ms, pushed);
	js_open(js);
	js_kv(js, "fileOid", hex);
	js_kv(js, "oid", hex);
	js_kv(js, "filename", f->path != NULL ? f->path : "");
	js_kv(js, "pushedAt", pushed);
	if (f->rev != NULL)
		js_kv(js, "ref", f->rev);
	js_kv_u64(js, "size", f->size);
	js_close(js);
}

int hub_get_large(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct repo_large_file *f = NULL;
	const struct repo_ops *ops = NULL;
	struct hub_name name = {0};
	bool more = false;
	size_t n = 0, skip = 0;
	struct js js;

	if (hub_skip(rq, &skip, err) < 0 || hub_repos_of(rq, &ops, err) < 0 ||
	    hub_name_of(rq, &name, err) < 0 ||
	    ops->large_files(face_ask(rq), &name, skip, PAGE, &f, &n, &more, err) < 0)
		return -1;
	js_init(&js, &out);
	js_list(&js);
	for (size_t i = 0; i < n; i++)
		js_large(&js, &f[i]);
	js_end(&js);
	if (more && hub_link_more(rq, skip + n, 0, err) < 0)
		return -1;
	return hub_send_json(rq, &out, err);
}

int hub_post_large(struct request *rq, struct err *err)
{
	const struct doc *body = NULL, *what;
	const struct repo_ops *ops = NULL;
	struct hub_name name = {0};
	const char **sha = NULL;
	struct digest *oid;
	bool rewrite = false;
	size_t n = 0;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    body_read(rq, false, &body, err) < 0)
		return -1;
	what = doc_get(body, "deletions");
	if (!doc_is(what, DOC_MAP))
		return err_set(err, ERR_INVALID, "deletions: expected an object");
	if (body_texts(rq->arena, what, "sha", DELETE_MAX, &sha, &n, err) < 0 ||
	    body_bool(what, "rewriteHistory", &rewrite, err) < 0)
		return err_wrap(err, "deletions");
	oid = ARENA_ARRAY(rq->arena, struct digest, n + 1);
	for (size_t i = 0; i < n; i++)
		if (digest_parse(str_of(sha[i]), &oid[i], err) < 0)
			return err_wrap(err, "sha");
	if (ops->large_delete(face_ask(rq), &name, oid, n, rewrite, err) < 0)
		return -1;
	return hub_done(rq);
}
