/* hub_json.c - a repository, its files and its commit as the objects that Hub clients parse. */
#include "base/clock.h"
#include "face/hub_impl.h"

#define OID_HEX_CAP (2 * HUB_OID_LEN + 1)
#define ABOUT_DEPTH_MAX 32 /* of what upstream says: cards are flat */

void hub_etag(const struct hub_file *f, char out[HUB_ETAG_CAP])
{
	if (f->lfs)
		digest_hex(&f->sha256, out);
	else
		hex_encode(f->oid, HUB_OID_LEN, out);
}

static void kv_oid(struct js *js, const char *key, const uint8_t oid[HUB_OID_LEN])
{
	char hex[OID_HEX_CAP];

	hex_encode(oid, HUB_OID_LEN, hex);
	js_kv(js, key, hex);
}

/* The digest has another name in each of the two places where this object is. */
static void kv_lfs(struct js *js, const struct hub_file *f, const char *digest_key)
{
	char hex[HASH_HEX_CAP], pointer[HUB_POINTER_CAP];

	if (!f->lfs)
		return;
	digest_hex(&f->sha256, hex);
	js_key(js, "lfs");
	js_open(js);
	js_kv(js, digest_key, hex);
	js_kv_u64(js, "size", f->size);
	js_kv_u64(js, "pointerSize", hub_pointer(f, pointer));
	js_close(js);
}

/* ---- what upstream says -------------------------------------------------------------------- */

int hub_about(struct request *rq, const struct hub_listing *l, const struct doc **out,
              struct err *err)
{
	struct err why = {0};

	if (js_parse(rq->arena, str_of(l->about), out, &why) == 0 && doc_is(*out, DOC_MAP))
		return 0;
	return err_set(err, ERR_CORRUPT, "what is kept of %s is no JSON object%s%s", l->id,
	               why.code != ERR_NONE ? ": " : "", why.msg);
}

const char *hub_date(const struct doc *about)
{
	const char *date = doc_cstr(doc_get(about, "lastModified"), NULL);

	return date != NULL ? date : doc_cstr(doc_get(about, "createdAt"), NULL);
}

static bool is_hint(struct str key)
{
	return key.n >= 3 && str_ieq(str_n(key.p, 3), "xet");
}

static void js_passed(struct js *js, const struct doc *d, unsigned depth)
{
	bool map = doc_is(d, DOC_MAP);

	if (!map && !doc_is(d, DOC_LIST)) {
		js_doc(js, d);
		return;
	}
	if (depth > ABOUT_DEPTH_MAX) {
		js_null(js);
		return;
	}
	map ? js_open(js) : js_list(js);
	DOC_EACH (item, d) {
		if (map && is_hint(item->key))
			continue;
		if (map)
			js_key_str(js, item->key);
		js_passed(js, item, depth + 1);
	}
	map ? js_close(js) : js_end(js);
}

/* ---- objects ------------------------------------------------------------------------------- */

static bool is_ours(struct str key)
{
	static const char *const ours[] = {
		"id",       "modelId",  "sha",   "private", "gated",
		"disabled", "siblings", "title", "message",
	};

	for (size_t i = 0; i < COUNT(ours); i++)
		if (str_eq(key, ours[i]))
			return true;
	return false;
}

static void siblings(struct js *js, const struct hub_listing *l, bool blobs)
{
	js_key(js, "siblings");
	js_list(js);
	for (size_t i = 0; i < l->n; i++) {
		const struct hub_file *f = &l->file[i];

		js_open(js);
		js_kv(js, "rfilename", f->path);
		if (blobs) {
			js_kv_u64(js, "size", f->size);
			kv_oid(js, "blobId", f->oid);
			kv_lfs(js, f, "sha256");
		}
		js_close(js);
	}
	js_end(js);
}

/* What clients of old fail without, and upstream may have left out. */
static void needed(struct js *js, const struct doc *about)
{
	if (doc_get(about, "downloads") == NULL)
		js_kv_int(js, "downloads", 0);
	if (doc_get(about, "likes") == NULL)
		js_kv_int(js, "likes", 0);
	if (doc_get(about, "tags") != NULL)
		return;
	js_key(js, "tags");
	js_list(js);
	js_end(js);
}

/* Who may read it here is decided here: what it is upstream would only make clients hesitate. */
void hub_js_info(struct js *js, const struct hub_listing *l, const struct doc *about, bool blobs)
{
	js_open(js);
	js_kv(js, "id", l->id);
	if (l->type == HUB_MODELS)
		js_kv(js, "modelId", l->id);
	js_kv(js, "sha", l->commit);
	js_kv_bool(js, "private", l->is_private);
	js_kv_bool(js, "gated", false);
	js_kv_bool(js, "disabled", false);
	DOC_EACH (item, about) {
		if (is_ours(item->key) || is_hint(item->key))
			continue;
		js_key_str(js, item->key);
		js_passed(js, item, 0);
	}
	needed(js, about);
	siblings(js, l, blobs);
	js_close(js);
}

/* Only the commit that is looked at is known: a file is at least as old. */
static void last_commit(struct js *js, const struct hub_listing *l, const char *date)
{
	if (date == NULL)
		return;
	js_key(js, "lastCommit");
	js_open(js);
	js_kv(js, "id", l->commit);
	js_kv(js, "title", "");
	js_kv(js, "date", date);
	js_close(js);
}

void hub_js_file(struct js *js, const struct hub_listing *l, const struct hub_file *f,
                 const char *date)
{
	js_open(js);
	js_kv(js, "type", "file");
	kv_oid(js, "oid", f->oid);
	js_kv_u64(js, "size", f->size);
	js_kv(js, "path", f->path);
	kv_lfs(js, f, "oid");
	last_commit(js, l, date);
	js_close(js);
}

void hub_js_folder(struct js *js, const struct hub_listing *l, const struct hub_folder *f,
                   const char *date)
{
	js_open(js);
	js_kv(js, "type", "directory");
	kv_oid(js, "oid", f->oid);
	js_kv_u64(js, "size", 0);
	js_kv(js, "path", f->path);
	last_commit(js, l, date);
	js_close(js);
}

void hub_js_commit(struct js *js, const struct hub_listing *l, const struct doc *about)
{
	const char *author = doc_cstr(doc_get(about, "author"), NULL), *date = hub_date(about);

	js_open(js);
	js_kv(js, "id", l->commit);
	js_kv(js, "title", doc_cstr(doc_get(about, "title"), ""));
	js_kv(js, "message", "");
	js_key(js, "authors");
	js_list(js);
	if (author != NULL) {
		js_open(js);
		js_kv(js, "user", author);
		js_close(js);
	}
	js_end(js);
	/* clients read a date of every commit */
	js_kv(js, "date", date != NULL ? date : "1970-01-01T00:00:00.000Z");
	js_close(js);
}

void hub_js_own_commit(struct js *js, const struct model_repo_commit *c)
{
	char date[CLOCK_ISO_CAP];

	clock_iso(c->ms, date);
	js_open(js);
	js_kv(js, "id", c->commit);
	js_kv(js, "title", c->title);
	js_kv(js, "message", c->message);
	js_key(js, "authors");
	js_list(js);
	js_open(js);
	js_kv(js, "user", c->author);
	js_close(js);
	js_end(js);
	js_kv(js, "date", date);
	js_close(js);
}

/* In a list of repositories. */
void hub_js_repo(struct js *js, const struct model_repo *r)
{
	char made[CLOCK_ISO_CAP], changed[CLOCK_ISO_CAP];

	clock_iso(r->created_ms, made);
	clock_iso(r->updated_ms, changed);
	js_open(js);
	js_key(js, "id");
	js_fmt(js, "%s/%s", r->owner, r->name);
	if (strcmp(r->type, hub_type_word(HUB_MODELS)) == 0) {
		js_key(js, "modelId");
		js_fmt(js, "%s/%s", r->owner, r->name);
	}
	js_kv(js, "author", r->owner);
	js_kv_bool(js, "private", r->is_private);
	js_kv_bool(js, "gated", false);
	js_kv_bool(js, "disabled", false);
	js_kv(js, "createdAt", made);
	js_kv(js, "lastModified", changed);
	js_kv_u64(js, "usedStorage", r->bytes);
	js_kv_int(js, "downloads", 0);
	js_kv_int(js, "likes", 0);
	js_key(js, "tags");
	js_list(js);
	js_end(js);
	js_close(js);
}

/* In the list of what takes an owner's space, which is `all` bytes. */
void hub_js_repo_space(struct js *js, const struct model_repo *r, uint64_t all)
{
	struct str type = str_of(r->type);
	char changed[CLOCK_ISO_CAP];

	clock_iso(r->updated_ms, changed);
	js_open(js);
	js_key(js, "id");
	js_fmt(js, "%s/%s", r->owner, r->name);
	js_kv_str(js, "type", str_n(type.p, type.n - 1)); /* "model": one of them */
	js_kv(js, "updatedAt", changed);
	js_kv(js, "visibility", r->is_private ? "private" : "public");
	js_kv_u64(js, "storage", r->bytes);
	js_key(js, "storagePercent");
	js_real(js, all > 0 ? 100.0 * (double)r->bytes / (double)all : 0);
	js_close(js);
}
