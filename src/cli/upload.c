/* upload.c - archives on their way to the server's object store. */
#include "cli/upload.h"

#include "base/clock.h"
#include "base/units.h"
#include "io/sigv4.h"

#define UPLOAD_TRIES 8

static void show_sent(void *arg, uint64_t bytes, uint64_t received UNUSED)
{
	char text[UNITS_CAP];

	out_progress(arg, "uploading %s", units_show_bytes(bytes, text));
}

/* One signed PUT. The digest is signed, too: the server compares it with what arrives. */
static int put_once(struct cli *c, const struct doc *where, const struct upload *u, struct err *err)
{
	const struct doc *k = doc_get(where, "creds");
	struct sigv4_key key = {
		.access_key = doc_cstr(doc_get(k, "aws_access_key_id"), ""),
		.secret_key = doc_cstr(doc_get(k, "aws_secret_access_key"), ""),
		.session_token = doc_cstr(doc_get(k, "aws_session_token"), NULL),
		.region = doc_cstr(doc_get(k, "region_name"), "us-east-1"),
		.service = "s3",
	};
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header headers[4];
	AUTO_BUF struct buf path = BUF_INIT(URL_MAX);
	struct http_call call = {.method = HTTP_PUT,
	                         .headers = headers,
	                         .has_body_fd = true,
	                         .body_fd = u->fd,
	                         .body_len = u->bytes,
	                         .arg = c,
	                         .progress = show_sent,
	                         .cancel = &interrupted};
	int r;

	url_encode(str_of(doc_cstr(doc_get(where, "s3_key"), "")), true, &path);
	call.url = arena_printf(c->arena, "%s/%s/%s", doc_cstr(doc_get(k, "endpoint_url"), c->url),
	                        doc_cstr(doc_get(where, "s3_bucket"), ""), buf_cstr(&path));
	if (sigv4_sign(c->arena, &key, HTTP_PUT, call.url, NULL, 0, u->sha256, clock_wall_ms(),
	               headers, &call.n_headers, err) < 0)
		return -1;
	r = http_do(c->http, &call, &reply, err);
	if (r == 0)
		r = http_expect(&call, &reply, err);
	out_progress_end(c);
	return r;
}

int upload_file(struct cli *c, const struct upload *u, struct spec_artifact *out, bool *sent,
                struct err *err)
{
	struct retry r = RETRY_INIT(UPLOAD_TRIES);
	const struct doc *where;

	r.cancel = &interrupted;
	if (remote_get(c, &where, err, "/v1/blobs/credentials/train%s%s%s%s",
	               u->afresh ? "" : "?sha256=", u->afresh ? "" : u->sha256,
	               u->team_id == NULL ? ""
	               : u->afresh        ? "?team_id="
	                                  : "&team_id=",
	               u->team_id == NULL ? "" : remote_part(c, u->team_id)) < 0)
		return -1;
	*sent = !doc_bool(doc_get(where, "exists"), false);
	while (*sent && put_once(c, where, u, err) < 0) {
		if (!remote_again(c, &r, UPLOAD_TRIES, err)) {
			(void)remote_explain(c, err);
			return err_wrap(err, "uploading the code");
		}
	}
	out->bucket = doc_cstr(doc_get(where, "s3_bucket"), "");
	out->key = doc_cstr(doc_get(where, "s3_key"), "");
	return 0;
}
