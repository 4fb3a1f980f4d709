/*
 * hub_write.c - repositories as a whole, as clients of a Hub create, change, move and delete them;
 * their branches and tags.
 */
#include "base/seal.h"
#include "base/yaml.h"
#include "face/answer.h"
#include "face/hub_impl.h"

#define REPLY_MAX ((size_t)16 << 20)
#define MAIN "main"

int hub_body_type(const char *word, enum hub_type *out, struct err *err)
{
	*out = HUB_MODELS;
	if (word == NULL)
		return 0;
	for (unsigned t = HUB_MODELS; t <= HUB_SPACES; t++) {
		const char *many = hub_type_word((enum hub_type)t);

		/* "model" is the singular of "models" */
		if (strncmp(word, many, strlen(many) - 1) != 0 || word[strlen(many) - 1] != '\0')
			continue;
		*out = (enum hub_type)t;
		return 0;
	}
	return err_set(err, ERR_INVALID,
	               "type: this server has repositories of the types model, dataset and space, "
	               "not \"%.40s\"",
	               word);
}

const char *hub_repo_url(const struct request *rq, enum hub_type type, const char *id)
{
	return arena_printf(rq->arena, "%s/%s%s", face_url(rq), hub_type_prefix(type), id);
}

static int read_body(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	return request_read(arg, p, cap, n, err);
}

struct repo_bytes hub_body(struct request *rq)
{
	return (struct repo_bytes){read_body, rq};
}

void hub_sign(const struct request *rq, const char *text, char out[HASH_HEX_CAP])
{
	const char *key = face_ctx(rq)->url_secret_key;
	uint8_t mac[HASH_SHA256_LEN];

	hash_hmac_sha256(key, strlen(key), text, strlen(text), mac);
	hex_encode(mac, sizeof(mac), out);
}

bool hub_signature_is(struct str signature, const char want[HASH_HEX_CAP])
{
	return signature.n == HASH_HEX_CAP - 1 && seal_same(signature.p, want, signature.n);
}

int hub_done(struct request *rq)
{
	return reply_bytes(rq, 200, "application/json", STR_LIT("{}"));
}

/* ---- moved --------------------------------------------------------------------------------- */

int hub_moved(struct request *rq, const struct hub_name *old, const char *id, struct err *err)
{
	size_t before = str_starts(rq->path, "/api/") ? 2 : old->type == HUB_MODELS ? 0 : 1;
	size_t ids = strchr(old->id, '/') != NULL ? 2 : 1;
	struct str rest = str_skip(rq->path, 1), part;
	AUTO_BUF struct buf to = BUF_INIT(REPLY_MAX);

	for (size_t i = 0; i < before && str_cut(&rest, '/', &part); i++)
		buf_printf(&to, "/%.*s", STR_ARG(part));
	for (size_t i = 0; i < ids; i++)
		(void)str_cut(&rest, '/', &part);
	buf_printf(&to, "/%s", id);
	if (rest.n > 0)
		buf_printf(&to, "/%.*s", STR_ARG(rest));
	if (rq->query.n > 0)
		buf_printf(&to, "?%.*s", STR_ARG(rq->query));
	if (buf_check(&to, "the address of the repository", err) < 0)
		return -1;
	reply_header(rq, "Location", buf_cstr(&to));
	return reply_bytes(rq, 307, NULL, (struct str){0});
}

/* ---- created, deleted, moved, changed ------------------------------------------------------ */

struct named { /* what a body says */
	enum hub_type type;
	const char *owner, *name; /* owner NULL: the caller's own */
};

static int split_id(struct request *rq, const char *id, const char **owner, const char **name,
                    struct err *err)
{
	struct str rest = str_of(id), first;

	if (!hub_id_ok(rest))
		return err_set(
			err, ERR_INVALID,
			"\"%.200s\" cannot be the name of a repository: letters, digits, - _ "
			"and . alone, at most %d of them, no .. and --, and none of - . at an end",
			id, HUB_PART_MAX);
	if (strchr(id, '/') == NULL) {
		*name = id;
		return 0;
	}
	(void)str_cut(&rest, '/', &first);
	*owner = arena_strz(rq->arena, first);
	*name = arena_strz(rq->arena, rest);
	return 0;
}

static int read_named(struct request *rq, const struct doc *body, struct named *out,
                      struct err *err)
{
	const char *name = NULL, *type = NULL;

	*out = (struct named){0};
	if (body_text(body, "name", true, &name, err) < 0 ||
	    body_text(body, "organization", false, &out->owner, err) < 0 ||
	    body_text(body, "type", false, &type, err) < 0 ||
	    hub_body_type(type, &out->type, err) < 0)
		return -1;
	if (out->owner != NULL && !hub_part_ok(str_of(out->owner)))
		return err_set(err, ERR_INVALID, "\"%.100s\" cannot be a namespace", out->owner);
	return split_id(rq, name, &out->owner, &out->name, err);
}

/* visibility of new clients, private of old ones. */
static int read_private(const struct doc *body, bool *out, bool *said, struct err *err)
{
	const char *word = NULL;
	bool flag = false;

	if (body_text(body, "visibility", false, &word, err) < 0 ||
	    body_bool(body, "private", &flag, err) < 0)
		return -1;
	*said = word != NULL || doc_is(doc_get(body, "private"), DOC_BOOL);
	*out = flag;
	if (word == NULL)
		return 0;
	if (strcmp(word, "private") != 0 && strcmp(word, "public") != 0)
		return err_set(err, ERR_INVALID,
		               "visibility: \"%.40s\" is neither private nor public", word);
	*out = strcmp(word, "private") == 0;
	return 0;
}

static void js_created(const struct request *rq, struct js *js, enum hub_type type,
                       const struct model_repo *r)
{
	const char *id = arena_printf(rq->arena, "%s/%s", r->owner, r->name);

	js_kv(js, "url", hub_repo_url(rq, type, id));
	js_kv(js, "name", id);
	js_kv(js, "id", r->id);
}

/* `rc`, *err: of making it. A client that does not mind that it exists reads where from the reply.
 */
static int reply_created(struct request *rq, enum hub_type type, const struct model_repo *r, int rc,
                         struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct js js;

	if (rc < 0 && err->id != ERR_HUB_REPO_EXISTS)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	if (rc < 0) {
		js_kv(&js, "error", err->msg);
		reply_header(rq, "X-Error-Message", err->msg);
	}
	js_created(rq, &js, type, r);
	js_close(&js);
	if (buf_check(&out, "the answer", err) < 0)
		return -1;
	err_clear(err);
	return reply_json(rq, rc < 0 ? 409 : 200, &out);
}

int hub_post_create(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	bool is_private = false, said;
	struct model_repo r = {0};
	struct named want;
	int rc;

	if (hub_repos_of(rq, &ops, err) < 0 || body_read(rq, false, &body, err) < 0 ||
	    read_named(rq, body, &want, err) < 0 || read_private(body, &is_private, &said, err) < 0)
		return -1;
	rc = ops->create(face_ask(rq), want.type, want.owner, want.name, is_private, &r, err);
	return reply_created(rq, want.type, &r, rc, err);
}

int hub_post_duplicate(struct request *rq, struct err *err)
{
	const char *to = NULL, *owner = NULL, *name = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	bool is_private = false, said;
	struct hub_name from = {0};
	struct model_repo r = {0};
	int rc;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &from, err) < 0 ||
	    body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "repository", true, &to, err) < 0 ||
	    split_id(rq, to, &owner, &name, err) < 0 ||
	    read_private(body, &is_private, &said, err) < 0)
		return -1;
	rc = ops->copy(face_ask(rq), &from, owner, name, said ? &is_private : NULL, &r, err);
	return reply_created(rq, from.type, &r, rc, err);
}

int hub_delete_repo(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct named want;

	if (hub_repos_of(rq, &ops, err) < 0 || body_read(rq, false, &body, err) < 0 ||
	    read_named(rq, body, &want, err) < 0)
		return -1;
	if (want.owner == NULL)
		want.owner = face_principal(rq)->name;
	if (ops->remove(face_ask(rq), want.type,
	                arena_printf(rq->arena, "%s/%s", want.owner, want.name), err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_post_move(struct request *rq, struct err *err)
{
	const char *from = NULL, *to = NULL, *word = NULL, *owner = NULL, *name = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	enum hub_type type;

	if (hub_repos_of(rq, &ops, err) < 0 || body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "fromRepo", true, &from, err) < 0 ||
	    body_text(body, "toRepo", true, &to, err) < 0 ||
	    body_text(body, "type", false, &word, err) < 0 || hub_body_type(word, &type, err) < 0 ||
	    split_id(rq, from, &owner, &name, err) < 0)
		return -1;
	owner = NULL;
	if (split_id(rq, to, &owner, &name, err) < 0)
		return -1;
	if (owner == NULL)
		return err_set(err, ERR_INVALID, "toRepo: \"%s\" lacks its owner: OWNER/NAME", to);
	if (ops->move(face_ask(rq), type, from, owner, name, err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_put_settings(struct request *rq, struct err *err)
{
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL, *gated;
	bool is_private = false, said = false;
	struct hub_name name = {0};

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    body_read(rq, false, &body, err) < 0 || read_private(body, &is_private, &said, err) < 0)
		return -1;
	gated = doc_get(body, "gated");
	if (gated != NULL && !doc_is(gated, DOC_NULL) && doc_bool(gated, true))
		return err_set(err, ERR_UNSUPPORTED,
		               "gated: this server has no gated repositories, only private ones");
	if (said && ops->set_private(face_ask(rq), name.type, name.id, is_private, err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_write_check(struct request *rq, struct err *err)
{
	const struct hub_listing *l = NULL;
	const struct repo_ops *ops = NULL;
	struct hub_name name = {0};

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0)
		return -1;
	name.rev = MAIN;
	if (ops->open_to_write(face_ask(rq), &name, false, &l, err) < 0)
		return -1;
	face_ctx(rq)->ops->hub->close(face_ctx(rq)->app, l);
	return hub_done(rq);
}

static void js_words(struct js *js, const char *key, const struct err *err)
{
	js_key(js, key);
	js_list(js);
	if (err->code != ERR_NONE) {
		js_open(js);
		js_kv(js, "message", err->msg);
		js_close(js);
	}
	js_end(js);
}

/* What stands between two lines of "---" at the beginning of a card is YAML. Our own reader is
 * strict, so what it says is a warning: the card is taken all the same. */
int hub_post_yaml(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	const struct doc *body = NULL, *card = NULL;
	const char *content = NULL, *end;
	struct err why = {0}, none = {0};
	struct js js;

	if (body_read(rq, false, &body, err) < 0 ||
	    body_text(body, "content", true, &content, err) < 0)
		return -1;
	end = strncmp(content, "---\n", 4) == 0 ? strstr(content + 3, "\n---") : NULL;
	if (end != NULL && end > content + 3 &&
	    yml_parse(rq->arena, str_n(content + 4, (size_t)(end - content - 4)), &card, &why) == 0)
		err_clear(&why);
	js_init(&js, &out);
	js_open(&js);
	js_words(&js, "errors", &none);
	js_words(&js, "warnings", &why);
	js_close(&js);
	return hub_send_json(rq, &out, err);
}

/* ---- lists --------------------------------------------------------------------------------- */

int hub_get_list(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct repo_query q = {0};
	struct model_repo *r = NULL;
	struct str word;
	int64_t limit = request_query_int(rq, "limit", INT64_MAX, err);
	struct js js;
	size_t n = 0;

	if (err->code != ERR_NONE)
		return -1;
	if (face_ctx(rq)->ops->repos == NULL || !hub_type_parse(hub_arg(rq, "type"), &q.type))
		return err_set(err, ERR_NOT_FOUND, "this server has no %.*s", STR_ARG(rq->path));
	if (request_query(rq, "filter", &word) && word.n > 0)
		return err_set(err, ERR_UNSUPPORTED,
		               "filter: this server lists its repositories by author and search "
		               "alone");
	if (request_query(rq, "author", &word))
		q.owner = arena_strz(rq->arena, word);
	if (request_query(rq, "search", &word))
		q.search = arena_strz(rq->arena, word);
	if (face_ctx(rq)->ops->repos->list(face_ask(rq), &q, &r, &n, err) < 0)
		return -1;
	js_init(&js, &out);
	js_list(&js);
	for (size_t i = 0; i < n && (int64_t)i < limit; i++)
		hub_js_repo(&js, &r[i]);
	js_end(&js);
	return hub_send_json(rq, &out, err);
}

/* `hf repos ls`: all that an owner has here, and what each takes. */
int hub_get_space(struct request *rq, struct err *err)
{
	struct repo_query q = {.any_type = true, .owner = face_principal(rq)->name};
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	struct model_repo *r = NULL;
	struct str owner = hub_arg(rq, "owner");
	uint64_t all = 0;
	struct js js;
	size_t n = 0;

	if (owner.n > 0)
		q.owner = arena_strz(rq->arena, owner);
	if (face_ctx(rq)->ops->repos == NULL)
		return err_set(err, ERR_NOT_FOUND, "this server has no repositories of its own");
	if (face_ctx(rq)->ops->repos->list(face_ask(rq), &q, &r, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		all += r[i].bytes;
	js_init(&js, &out);
	js_list(&js);
	for (size_t i = 0; i < n; i++)
		hub_js_repo_space(&js, &r[i], all);
	js_end(&js);
	return hub_send_json(rq, &out, err);
}

/* ---- branches and tags --------------------------------------------------------------------- */

static int add_ref(struct request *rq, bool tag, struct err *err)
{
	const char *from = NULL, *name = NULL;
	const struct repo_ops *ops = NULL;
	const struct doc *body = NULL;
	struct hub_name at = {0};

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &at, err) < 0 ||
	    body_read(rq, true, &body, err) < 0)
		return -1;
	name = at.rev;
	if (tag) { /* the path has the revision, the body the tag */
		if (body_text(body, "tag", true, &name, err) < 0)
			return -1;
	} else {
		if (body_text(body, "startingPoint", false, &from, err) < 0)
			return -1;
		at.rev = from != NULL ? from : MAIN;
		if (!hub_rev_ok(str_of(at.rev)))
			return err_set(err, ERR_HUB_REVISION_NOT_FOUND,
			               "startingPoint: no revision has this name");
	}
	if (ops->add_ref(face_ask(rq), &at, &(struct repo_new_ref){tag, name}, err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_post_branch(struct request *rq, struct err *err)
{
	return add_ref(rq, false, err);
}

int hub_post_tag(struct request *rq, struct err *err)
{
	return add_ref(rq, true, err);
}

static int remove_ref(struct request *rq, bool tag, struct err *err)
{
	const struct repo_ops *ops = NULL;
	struct hub_name at = {0};

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &at, err) < 0 ||
	    ops->remove_ref(face_ask(rq), &at, tag, err) < 0)
		return -1;
	return hub_done(rq);
}

int hub_delete_branch(struct request *rq, struct err *err)
{
	return remove_ref(rq, false, err);
}

int hub_delete_tag(struct request *rq, struct err *err)
{
	return remove_ref(rq, true, err);
}
