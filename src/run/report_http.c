/* report_http.c - the exchange with the server, which may be away or come back on another port;
 * claim and exit. */
#include "run/report_inner.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/seal.h"

#define NONCE_LEN 24
#define CLAIM_MAX ((size_t)64 << 20)

void report_wait_locked(struct report *r, int64_t ms)
{
	(void)cond_wait_until(&r->changed, &r->lock, sync_deadline(ms));
}

static void pause_ms(struct report *r, int64_t ms)
{
	int64_t until = clock_mono_ms() + ms;

	lock_take(&r->lock);
	for (int64_t left = ms; left > 0 && !r->done; left = until - clock_mono_ms())
		report_wait_locked(r, left);
	lock_give(&r->lock);
}

void report_pause_after(struct report *r, int *tries)
{
	uint16_t dice = 0;
	int64_t ms = MIN(200LL << MIN(*tries, 6), REPORT_PAUSE_MS);

	seal_random(&dice, sizeof(dice));
	(*tries)++;
	pause_ms(r, ms / 2 + dice % (ms / 2 + 1));
}

static char *url_of(struct report *r, const char *path)
{
	char *url = NULL;

	lock_take(&r->lock);
	url = xasprintf("%s%s", r->server, path);
	lock_give(&r->lock);
	return url;
}

/* A server that was started again may be on another port: it writes that into our launch.json. */
static void look_for_server(struct report *r)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	struct wire_start start;
	struct err err = {0};

	if (r->by_socket)
		return; /* that stays where it is */
	if (fs_read(AT_FDCWD, arena_printf(a, "%s/launch.json", r->dir), &body, &err) == 0 &&
	    wire_start_parse(&start, a, buf_view(&body), &err) == 0) {
		lock_take(&r->lock);
		if (strcmp(start.server, r->server) != 0) {
			log_info("the server is now at %s", start.server);
			free(r->server);
			r->server = xstrdup(start.server);
		}
		lock_give(&r->lock);
	}
	seal_wipe_buf(&body);
}

int report_exchange(struct report *r, enum http_method method, const char *path, const char *type,
                    struct str body, int64_t total_ms, struct http_reply *reply, struct err *err)
{
	AUTO_FREE char *url = url_of(r, path);
	struct http_header headers[] = {{"Authorization", r->auth}, {"Content-Type", type}};
	struct http_call call = {.method = method,
	                         .url = url,
	                         .headers = headers,
	                         .n_headers = method == HTTP_GET ? 1 : 2,
	                         .body = body,
	                         .connect_ms = 5000,
	                         .total_ms = total_ms,
	                         .stall_ms = total_ms,
	                         .body_max = CLAIM_MAX,
	                         .cancel = &r->halt};

	if (http_do(r->http, &call, reply, err) < 0) {
		look_for_server(r);
		return -1;
	}
	return http_expect(&call, reply, err);
}

int report_post(struct report *r, const char *path, struct str body, struct http_reply *reply,
                struct err *err)
{
	return report_exchange(r, HTTP_POST, path, "application/json", body, REPORT_SMALL_MS, reply,
	                       err);
}

bool report_is_refusal(const struct http_reply *reply)
{
	int s = reply->status;

	return s == 401 || s == 403 || s == 404 || s == 409 || s == 410;
}

int report_claim(struct report *r, struct arena *a, struct wire_launch *out, struct err *err)
{
	char nonce[NONCE_LEN + 1];
	AUTO_FREE char *body = NULL;
	int tries = 0;

	seal_id(nonce, NONCE_LEN);
	body = xasprintf("{\"nonce\":\"%s\"}", nonce);
	for (;;) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err one = {0};
		int r2 = report_post(r, "/runner/v1/claim", str_of(body), &reply, &one);

		if (r2 == 0)
			return wire_launch_parse(out, a, buf_view(&reply.body), err);
		if (report_is_refusal(&reply) || reply.status == 400)
			return err_set(err, one.code, "%s", one.msg);
		if (report_is_orphan(r))
			return err_set(err, ERR_NOT_FOUND, "the attempt's folder was removed");
		log_warn("claim: %s", one.msg);
		report_pause_after(r, &tries);
	}
}

/* Staging gives up when it must; what ships checkpoints, only when nobody wants them. */
static bool gives_up(struct report *r)
{
	bool staging;

	lock_take(&r->lock);
	staging = r->stage < STAGE_READY;
	lock_give(&r->lock);
	return r->fenced || atomic_load(&r->halt) || (staging && atomic_load(&r->cancel));
}

int report_sign(void *report, struct arena *a, const struct objstore_request *rq,
                struct objstore_signed *out, struct err *err)
{
	struct report *r = report;
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	const struct wire_sign said = {http_method_name[rq->method], rq->key, rq->query,
	                               rq->copy_from};
	struct wire_signed got = {0};
	int tries = 0;

	wire_sign_write(&said, &body);
	while (!gives_up(r)) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err one = {0};

		if (report_post(r, "/runner/v1/sign", buf_view(&body), &reply, &one) == 0) {
			if (wire_signed_parse(&got, a, buf_view(&reply.body), err) < 0)
				return -1;
			*out = (struct objstore_signed){got.url, got.copy_source};
			return 0;
		}
		if (report_is_refusal(&reply) || reply.status == 400)
			return err_set(err, one.code, "%s", one.msg);
		log_warn("sign: %s", one.msg);
		report_pause_after(r, &tries);
	}
	return err_set(err, ERR_CANCELED, "stopped while the server was away");
}

int report_image(struct report *r, struct arena *a, const struct wire_image *mine,
                 struct wire_image *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	int tries = 0;

	wire_image_write(mine, &body);
	while (!atomic_load(&r->cancel)) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err one = {0};

		if (report_post(r, "/runner/v1/image", buf_view(&body), &reply, &one) == 0)
			return wire_image_parse(out, a, buf_view(&reply.body), err);
		if (report_is_refusal(&reply) || reply.status == 400)
			return err_set(err, one.code, "%s", one.msg);
		log_warn("image: %s", one.msg);
		report_pause_after(r, &tries);
	}
	return err_set(err, ERR_CANCELED, "stopped while staging");
}

void report_exit(struct report *r, const struct wire_exit *x)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX);
	int tries = 0;

	wire_exit_write(x, &body);
	while (!r->fenced) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err err = {0};

		if (report_post(r, "/runner/v1/exit", buf_view(&body), &reply, &err) == 0)
			return;
		log_warn("exit: %s", err.msg);
		if (report_is_refusal(
			    &reply)) /* it has ended otherwise: nobody waits for this record */
			return;
		report_pause_after(r, &tries);
	}
}
