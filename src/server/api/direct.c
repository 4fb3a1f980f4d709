/* direct.c - tries whether the object store takes what was signed, and nothing else. */
#include "server/api/direct.h"
#include "server/start/objects.h"

#define TRIED "uploads/tried" /* an object that is there for a moment */
#define OURS STR_LIT("signed")
#define OTHERS STR_LIT("forged")
#define TRY_MS 10000

enum { DIRECT_UNTRIED, DIRECT_YES, DIRECT_NO };

/* As it was signed; but with `more`, whose name may be that of a header which was. */
static int put(struct app *app, const struct objstore_put *how, struct str body,
               const struct http_header *more, int *status, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header header[COUNT(how->header) + 1];
	struct http_call call = {.method = HTTP_PUT,
	                         .url = how->url,
	                         .headers = header,
	                         .body = body,
	                         .connect_ms = TRY_MS,
	                         .total_ms = TRY_MS,
	                         .cancel = &app->stopping};

	for (size_t i = 0; i < how->n_header; i++)
		if (more == NULL || !str_ieq(str_of(how->header[i].name), more->name))
			header[call.n_headers++] = how->header[i];
	if (more != NULL)
		header[call.n_headers++] = *more;
	if (http_do(app->stores, &call, &reply, err) < 0)
		return -1;
	*status = reply.status;
	return 0;
}

/* Its path in the store, as the source of a copy. */
static int path_of(struct app *app, struct arena *a, const char *key, const char *sha256,
                   const char **out, struct err *err)
{
	struct objstore_put how = {0};
	struct url url;

	if (objstore_sign_put(app->objects, a, key, sha256, &how, err) < 0 ||
	    url_parse(a, str_of(how.url), &url, err) < 0)
		return -1;
	*out = url.path;
	return 0;
}

/* What is signed is taken, and then neither other bytes nor a copy, nor to be unpacked. -1: nothing
 * is known. */
static int try_store(struct app *app, bool *yes, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf there = BUF_INIT(4096);
	struct digest digest = hash_sha256(OURS.p, OURS.n);
	int ours = 0, others = 0, copy = 0, both = 0, unpack = 0;
	struct http_header from = {.name = "x-amz-copy-source"};
	const struct http_header archive = {OBJSTORE_UNPACK, "true"};
	struct objstore_put how = {0};
	char hex[HASH_HEX_CAP];

	digest_hex(&digest, hex);
	if (path_of(app, a, OBJECTS_MARK, hex, &from.value, err) < 0 ||
	    objstore_sign_put(app->objects, a, TRIED, hex, &how, err) < 0 ||
	    put(app, &how, OURS, NULL, &ours, err) < 0)
		return -1;
	if (ours / 100 != 2)
		return err_set(err, ERR_UNAVAILABLE, "HTTP %d", ours);
	if (put(app, &how, OTHERS, NULL, &others, err) < 0 ||
	    put(app, &how, (struct str){0}, &from, &copy, err) < 0 ||
	    put(app, &how, OURS, &from, &both, err) < 0 ||
	    put(app, &how, OURS, &archive, &unpack, err) < 0 ||
	    objstore_get(app->objects, TRIED, &there, err) < 0 ||
	    objstore_del(app->objects, TRIED, err) < 0)
		return -1;
	*yes = others / 100 == 4 && copy / 100 == 4 && both / 100 == 4 && unpack / 100 == 4 &&
	       str_eq(buf_view(&there), OURS.p);
	return 0;
}

int direct_may(struct app *app, struct err *err)
{
	char why[OBJSTORE_WHY_MAX];
	struct err said = {0};
	struct outage outage;
	bool yes = false;
	int known = atomic_load(&app->direct);

	if (!objects_elsewhere(app))
		return err_set(err, ERR_UNSUPPORTED, "the objects are this server's");
	objstore_outage(app->objects, &outage, why);
	if (outage.since_ms == 0 && known == DIRECT_UNTRIED) {
		if (try_store(app, &yes, &said) < 0) {
			log_warn("code is sent through this server for now: %s", said.msg);
		} else {
			known = yes ? DIRECT_YES : DIRECT_NO;
			atomic_store(&app->direct, known);
			if (!yes)
				log_warn("code is sent through this server: the object store does "
				         "not compare what it is sent with what was signed");
		}
	}
	return outage.since_ms == 0 && known == DIRECT_YES
	               ? 0
	               : err_set(err, ERR_UNSUPPORTED, "clients are not sent to the store");
}
