/*
 * hub_lfs.c - large files, as clients of git LFS send them: they ask where to, and send them there
 * without a token, so the address says what it allows, and is signed. Source of the protocol:
 * https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md, and for parts lfs.py of
 * huggingface_hub.
 */
#include "base/clock.h"
#include "face/answer.h"
#include "face/hub_impl.h"

#define REPLY_MAX ((size_t)64 << 20)
#define OBJECTS_MAX 1000
#define VALID_MS ((int64_t)24 * 3600 * 1000)
#define PART_BYTES ((uint64_t)64 << 20) /* a larger file is sent in parts of this size; */
#define PARTS_MAX 1000                  /* in larger ones, when there would be more */
#define TYPE "application/vnd.git-lfs+json"
#define TEXT_CAP 512

/* ---- addresses ----------------------------------------------------------------------------- */

/* What an address allows. */
struct permit {
	struct repo_upload u;
	uint64_t part, part_bytes; /* from 1; 0: all of it, or the end of one in parts */
	int64_t until_ms;
};

static void sign(const struct request *rq, const struct permit *p, char out[HASH_HEX_CAP])
{
	char text[TEXT_CAP], oid[HASH_HEX_CAP];

	digest_hex(&p->u.oid, oid);
	FMT(text, "hub-lfs\n%s\n%s\n%" PRIu64 "\n%s\n%" PRIu64 "\n%" PRIu64 "\n%" PRId64,
	    p->u.repo_id, oid, p->u.size, p->u.id, p->part, p->part_bytes, p->until_ms);
	hub_sign(rq, text, out);
}

static const char *address(const struct request *rq, const char *what, const struct permit *p)
{
	char oid[HASH_HEX_CAP], signature[HASH_HEX_CAP];

	digest_hex(&p->u.oid, oid);
	sign(rq, p, signature);
	return arena_printf(rq->arena,
	                    "%s/api/lfs/%s/%s%s?size=%" PRIu64 "&upload=%s&part=%" PRIu64
	                    "&part_size=%" PRIu64 "&until=%" PRId64 "&signature=%s",
	                    face_url(rq), p->u.repo_id, oid, what, p->u.size, p->u.id, p->part,
	                    p->part_bytes, p->until_ms, signature);
}

static int not_ours(struct err *err)
{
	return err_set(err, ERR_DENIED,
	               "this address was not given out by this server, or was "
	               "changed: ask for a new one");
}

static int read_permit(struct request *rq, struct permit *p, struct err *err)
{
	struct str id = {0}, signature = {0};
	char want[HASH_HEX_CAP];

	*p = (struct permit){
		.u.size = (uint64_t)request_query_int(rq, "size", 0, err),
		.part = (uint64_t)request_query_int(rq, "part", 0, err),
		.part_bytes = (uint64_t)request_query_int(rq, "part_size", 0, err),
		.until_ms = request_query_int(rq, "until", 0, err),
	};
	if (err->code != ERR_NONE || digest_parse(hub_arg(rq, "oid"), &p->u.oid, err) < 0 ||
	    !request_query(rq, "upload", &id) || !request_query(rq, "signature", &signature) ||
	    id.n > 64 || hub_arg(rq, "repo").n > 64) {
		err_clear(err);
		return not_ours(err);
	}
	p->u.repo_id = arena_strz(rq->arena, hub_arg(rq, "repo"));
	p->u.id = arena_strz(rq->arena, id);
	sign(rq, p, want);
	if (!hub_signature_is(signature, want))
		return not_ours(err);
	rq->sender = p->u.repo_id; /* whoever it is: no token comes with it */
	if (p->until_ms < clock_wall_ms())
		return err_set(
			err, ERR_DENIED,
			"this address was valid for %lld hours, which are over: ask for a new "
			"one",
			(long long)(VALID_MS / 3600000));
	return 0;
}

/* ---- where to ------------------------------------------------------------------------------ */

static void js_parts(const struct request *rq, struct js *js, struct permit p)
{
	uint64_t most = (p.u.size + PARTS_MAX - 1) / PARTS_MAX;

	p.part_bytes = PART_BYTES * ((MAX(most, PART_BYTES) + PART_BYTES - 1) / PART_BYTES);
	js_kv(js, "href", address(rq, "/join", &p));
	js_key(js, "header");
	js_open(js);
	js_key(js, "chunk_size");
	js_fmt(js, "%" PRIu64, p.part_bytes);
	for (p.part = 1; (p.part - 1) * p.part_bytes < p.u.size; p.part++) {
		char number[24];

		FMT(number, "%" PRIu64, p.part);
		js_kv(js, number, address(rq, "/part", &p));
	}
	js_close(js);
}

static void js_object(const struct request *rq, struct js *js, const struct repo_upload *u,
                      bool parts)
{
	const struct permit p = {.u = *u, .until_ms = clock_wall_ms() + VALID_MS};
	char oid[HASH_HEX_CAP];

	digest_hex(&u->oid, oid);
	js_open(js);
	js_kv(js, "oid", oid);
	js_kv_u64(js, "size", u->size);
	if (!u->there) {
		js_key(js, "actions");
		js_open(js);
		js_key(js, "upload");
		js_open(js);
		if (parts && u->size > PART_BYTES)
			js_parts(rq, js, p);
		else
			js_kv(js, "href", address(rq, "", &p));
		js_close(js);
		js_close(js);
	}
	js_close(js);
}

static int read_objects(struct request *rq, const struct doc *body, struct repo_upload **out,
                        size_t *n, struct err *err)
{
	const struct doc *list = doc_get(body, "objects");
	const char *kind = NULL;

	*out = ARENA_ARRAY(rq->arena, struct repo_upload, OBJECTS_MAX);
	*n = 0;
	if (!doc_is(list, DOC_LIST))
		return err_set(err, ERR_INVALID, "objects: expected a list");
	if (body_text(body, "hash_algo", false, &kind, err) < 0)
		return -1;
	/* @huggingface/hub spells it with a _ */
	if (kind != NULL && strcmp(kind, "sha256") != 0 && strcmp(kind, "sha_256") != 0)
		return err_set(err, ERR_INVALID, "hash_algo: \"%.40s\" is not sha256", kind);
	DOC_EACH (item, list) {
		struct repo_upload *u = &(*out)[*n];
		const char *oid = NULL;
		int64_t size = 0;

		if (*n == OBJECTS_MAX)
			return err_set(err, ERR_TOO_BIG, "objects: at most %d at once",
			               OBJECTS_MAX);
		if (body_text(item, "oid", true, &oid, err) < 0 ||
		    body_int(item, "size", 0, INT64_MAX, &size, err) < 0 ||
		    digest_parse(str_of(oid), &u->oid, err) < 0)
			return err_wrap(err, "objects");
		u->size = (uint64_t)size;
		++*n;
	}
	return 0;
}

static bool takes_parts(const struct doc *body)
{
	DOC_EACH (item, doc_get(body, "transfers"))
		if (doc_is(item, DOC_TEXT) && str_eq(item->text, "multipart"))
			return true;
	return false;
}

/* The path has the name of a repository of git: name.git. */
static int name_of(struct request *rq, struct hub_name *out, struct err *err)
{
	struct str name = hub_arg(rq, "name"), owner = hub_arg(rq, "owner");
	struct str id;

	*out = (struct hub_name){.type = HUB_MODELS, .rev = "main"};
	if (str_starts(rq->path, "/datasets/"))
		out->type = HUB_DATASETS;
	else if (str_starts(rq->path, "/spaces/"))
		out->type = HUB_SPACES;
	if (str_ends(name, ".git"))
		name.n -= strlen(".git");
	id = str_of(arena_printf(rq->arena, "%.*s/%.*s", STR_ARG(owner), STR_ARG(name)));
	if (!hub_id_ok(id))
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "\"%.*s\" cannot be the name of a repository", STR_ARG(id));
	out->id = id.p;
	return 0;
}

int hub_post_lfs_batch(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	const char *operation = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct repo_upload *u = NULL;
	struct hub_name name;
	struct js js;
	size_t n = 0;

	if (hub_repos_of(rq, &ops, err) < 0 || name_of(rq, &name, err) < 0 ||
	    request_json(rq, &body, err) < 0 ||
	    body_text(body, "operation", true, &operation, err) < 0)
		return -1;
	if (strcmp(operation, "upload") != 0)
		return err_set(err, ERR_UNSUPPORTED,
		               "operation: files are downloaded by /resolve/, not by LFS");
	if (read_objects(rq, body, &u, &n, err) < 0 ||
	    ops->upload_want(face_ask(rq), &name, u, n, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "transfer", "basic");
	js_key(&js, "objects");
	js_list(&js);
	for (size_t i = 0; i < n; i++)
		js_object(rq, &js, &u[i], takes_parts(body));
	js_end(&js);
	js_close(&js);
	if (buf_check(&out, "the answer", err) < 0)
		return -1;
	return reply_bytes(rq, 200, TYPE, buf_view(&out));
}

/* ---- there --------------------------------------------------------------------------------- */

int hub_put_lfs(struct request *rq, struct err *err)
{
	const struct repo_bytes from = hub_body(rq);
	const struct repo_ops *ops = NULL;
	struct permit p;

	if (hub_repos_of(rq, &ops, err) < 0 || read_permit(rq, &p, err) < 0)
		return -1;
	if (p.part_bytes != 0)
		return not_ours(err);
	if (!request_place(rq))
		return 0;
	if (ops->upload_put(face_ctx(rq)->app, &p.u, &from, err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_put_lfs_part(struct request *rq, struct err *err)
{
	const struct repo_bytes from = hub_body(rq);
	const struct repo_ops *ops = NULL;
	struct permit p;
	uint64_t at;

	if (hub_repos_of(rq, &ops, err) < 0 || read_permit(rq, &p, err) < 0)
		return -1;
	if (p.part == 0 || p.part_bytes == 0 || (p.part - 1) * p.part_bytes >= p.u.size)
		return not_ours(err);
	if (!request_place(rq))
		return 0;
	at = (p.part - 1) * p.part_bytes;
	if (ops->upload_part(face_ctx(rq)->app, &p.u, at, MIN(p.part_bytes, p.u.size - at), &from,
	                     err) < 0)
		return -1;
	reply_header(rq, "ETag", arena_printf(rq->arena, "\"%" PRIu64 "\"", p.part));
	return hub_done(rq);
}

/* All parts have come. The list of them in the body says nothing that the digest does not. */
int hub_post_lfs_join(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	struct permit p;
	struct str ignored;

	if (hub_repos_of(rq, &ops, err) < 0 || read_permit(rq, &p, err) < 0 ||
	    request_body(rq, &ignored, err) < 0)
		return -1;
	if (p.part != 0 || p.part_bytes == 0)
		return not_ours(err);
	if (ops->upload_join(face_ctx(rq)->app, &p.u, err) < 0)
		return -1;
	return hub_done(rq);
}
