/*
 * upload.c - archives on their way to the server's object store: straight to it where the server
 * signs a request for that and the store can be reached, else by the server.
 */
#include "cli/upload.h"

#include "base/clock.h"
#include "base/units.h"
#include "io/sigv4.h"

#define UPLOAD_TRIES 8
#define DIRECT_TRIES 4 /* then there is another way */
#define PUT_HEADERS_MAX 16
#define QUIET_MS 2000 /* without an answer, from here on a person is told */

/* Of a URL: without its path, and what signs it. */
static const char *host_of(struct cli *c, const char *url)
{
	struct err ignored = {0};
	struct url u;

	if (url_parse(c->arena, str_of(url), &u, &ignored) < 0)
		return "the object store"; /* whose answer says what is wrong */
	return url_origin(c->arena, u.scheme, u.host, u.port);
}

/* One PUT on its way. */
struct sending {
	unsigned magic;
#define SENDING_MAGIC 0x444e4553U
	struct cli *c;
	const char *url;
	uint64_t sent;
	int64_t moved_ms; /* when `sent` was another one */
	bool waits;       /* and a person knows it */
};

static void show_sent(void *arg, uint64_t bytes, uint64_t received UNUSED)
{
	struct sending *s = FROM_VOID(struct sending, arg, SENDING_MAGIC);
	int64_t now = clock_mono_ms(), quiet_ms = now - s->moved_ms;
	char text[UNITS_CAP], took[UNITS_CAP];

	if (bytes != s->sent) {
		s->sent = bytes;
		s->moved_ms = now;
		s->waits = false;
	} else if (quiet_ms >= QUIET_MS) {
		(s->waits ? out_progress
		          : out_waiting)(s->c, "waiting for %s: no answer for %s (sent %s)", s->url,
		                         units_show_seconds((uint64_t)quiet_ms / 1000, took),
		                         units_show_bytes(bytes, text));
		s->waits = true;
		return;
	}
	out_progress(s->c, "uploading %s", units_show_bytes(bytes, text));
}

/* One PUT of the file to where `call` says. */
static int put(struct cli *c, const struct http_call *where, const struct upload *u,
               struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct sending sending = {.magic = SENDING_MAGIC,
	                          .c = c,
	                          .url = host_of(c, where->url),
	                          .moved_ms = clock_mono_ms()};
	struct http_call call = *where;
	int r;

	call.method = HTTP_PUT;
	call.has_body_fd = true;
	call.body_fd = u->fd;
	call.body_len = u->bytes;
	call.arg = &sending;
	call.progress = show_sent;
	call.cancel = &interrupted;
	r = http_do(c->http, &call, &reply, err);
	if (r == 0)
		r = http_expect(&call, &reply, err);
	out_progress_end(c);
	return r;
}

/* By the server, which compares what arrives with the digest: that is signed, too. */
static int put_by_server(struct cli *c, const struct doc *where, const struct upload *u,
                         struct err *err)
{
	const struct doc *k = doc_get(where, "creds");
	struct sigv4_key key = {
		.access_key = doc_cstr(doc_get(k, "aws_access_key_id"), ""),
		.secret_key = doc_cstr(doc_get(k, "aws_secret_access_key"), ""),
		.session_token = doc_cstr(doc_get(k, "aws_session_token"), NULL),
		.region = doc_cstr(doc_get(k, "region_name"), "us-east-1"),
		.service = "s3",
	};
	struct http_header headers[4];
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);
	struct http_call call = {.headers = headers};

	url_encode(str_of(doc_cstr(doc_get(where, "s3_key"), "")), true, &path);
	call.url = arena_printf(c->arena, "%s/%s/%s", doc_cstr(doc_get(k, "endpoint_url"), c->url),
	                        doc_cstr(doc_get(where, "s3_bucket"), ""), buf_cstr(&path));
	if (sigv4_sign(c->arena, &key, HTTP_PUT, call.url, NULL, 0, u->sha256, clock_wall_ms(),
	               headers, &call.n_headers, err) < 0)
		return -1;
	return put(c, &call, u, err);
}

/* To the store, by a request that the server signed for these bytes. */
static int put_directly(struct cli *c, const struct doc *how, const struct upload *u,
                        struct err *err)
{
	struct http_header headers[PUT_HEADERS_MAX];
	struct http_call call = {.headers = headers,
	                         .url = doc_cstr(doc_get(how, "url"), ""),
	                         .connect_ms = REMOTE_CONNECT_MS};

	DOC_EACH (h, doc_get(how, "headers")) {
		if (call.n_headers < COUNT(headers))
			headers[call.n_headers++] =
				(struct http_header){doc_cstr(doc_get(h, "name"), ""),
			                             doc_cstr(doc_get(h, "value"), "")};
	}
	return put(c, &call, u, err);
}

static int send_by_server(struct cli *c, const struct doc *where, const struct upload *u,
                          struct err *err)
{
	struct retry r = RETRY_INIT(UPLOAD_TRIES);

	r.cancel = &interrupted;
	while (put_by_server(c, where, u, err) < 0) {
		if (!remote_again(c, &r, UPLOAD_TRIES, err)) {
			(void)remote_explain(c, err);
			return err_wrap(err, "uploading the code");
		}
	}
	return 0;
}

static int send_directly(struct cli *c, const struct doc *how, const struct upload *u,
                         struct err *err)
{
	struct retry r = RETRY_INIT(DIRECT_TRIES);

	r.cancel = &interrupted;
	while (put_directly(c, how, u, err) < 0)
		if (remote_is_unreachable(err) || !remote_again(c, &r, DIRECT_TRIES, err))
			return -1;
	return 0;
}

static int ask(struct cli *c, const struct upload *u, const struct doc **where, struct err *err)
{
	return remote_get(c, where, err, "/v1/blobs/credentials/train?%s%s%s%s%s%s",
	                  u->afresh ? "" : "sha256=", u->afresh ? "" : u->sha256,
	                  u->team_id == NULL ? "" : "&team_id=",
	                  u->team_id == NULL ? "" : remote_part(c, u->team_id),
	                  c->around ? "" : "&direct=", c->around ? "" : u->sha256);
}

int upload_file(struct cli *c, const struct upload *u, struct spec_artifact *out, bool *sent,
                struct err *err)
{
	const struct doc *where, *how;
	bool expired = false;

	for (;;) {
		if (ask(c, u, &where, err) < 0)
			return -1;
		*sent = !doc_bool(doc_get(where, "exists"), false);
		how = doc_get(where, "put");
		if (!*sent)
			break;
		if (!doc_is(how, DOC_MAP)) {
			if (send_by_server(c, where, u, err) < 0)
				return -1;
			break;
		}
		if (!remote_may_go(c, doc_cstr(doc_get(how, "url"), ""))) {
			c->around = true;
			continue;
		}
		if (send_directly(c, how, u, err) == 0)
			break;
		if (err->code == ERR_CANCELED)
			return -1;
		if (err->code == ERR_NO_SPACE) /* for the server, too */
			return err_wrap(err, "uploading the code: the object store is full: make "
			                     "room there, then try again");
		if (err->code != ERR_DENIED || expired)
			remote_go_around(c, err);
		expired = true; /* who slept for long gets another signature, once */
		err_clear(err);
	}
	out->bucket = doc_cstr(doc_get(where, "s3_bucket"), "");
	out->key = doc_cstr(doc_get(where, "s3_key"), "");
	return 0;
}
