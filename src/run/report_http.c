/* report_http.c - the exchange with the server, which may be away or come back on another port;
 * claim and exit. */
#include "run/report_inner.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/seal.h"
#include "core/attempt.h"
#include "io/proof.h"
#include "io/url.h"

#define HUB_STALL_MS 120000
#define NONCE_LEN 24
#define TEXT_OF(x) TEXT_OF_(x)
#define TEXT_OF_(x) #x
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

/* Whoever got hold of an address is not to be sent the token: over plain HTTP the server proves
 * itself first. */
static int greet(void *arg, int fd, struct err *err)
{
	struct report_way *w = FROM_VOID(struct report_way, arg, REPORT_WAY_MAGIC);
	struct proof p = {.host = w->host,
	                  .target = w->target,
	                  .token = str_of(w->r->token),
	                  .cancel = &w->r->halt};

	return proof_ask(&p, fd, err);
}

static void add_way(struct report *r, const char *url, const struct http_policy *policy)
{
	struct report_way *w = &r->way[r->n_ways++];

	w->magic = REPORT_WAY_MAGIC;
	w->r = r;
	w->url = xstrdup(url);
	while (str_ends(str_of(w->url), "/"))
		w->url[strlen(w->url) - 1] = '\0';
	w->http = http_client_new(policy);
}

static int add_other(struct report *r, const char *ca_file, const char *url, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct report_way *w = &r->way[r->n_ways];
	struct http_policy policy = {
		.ca_file = ca_file, .greet = greet, .greet_origin = url, .greet_arg = w};
	struct url u;
	struct str path;

	if (url_parse(a, str_of(url), &u, err) < 0)
		return -1;
	path = str_of(u.path);
	while (str_ends(path, "/"))
		path.n--;
	w->host = xasprintf("%s:%u", u.host, u.port);
	w->target = xasprintf("%.*s" PROOF_PATH, STR_ARG(path));
	add_way(r, url, &policy);
	return 0;
}

int report_ways(struct report *r, const struct wire_start *start, struct err *err)
{
	struct http_policy policy = {.ca_file = start->ca_file, .unix_socket = start->socket};

	add_way(r, r->by_socket ? "http://local" : start->server, &policy);
	for (size_t i = 0; i < start->n_others && r->n_ways < REPORT_WAYS_MAX; i++) {
		if (add_other(r, start->ca_file, start->others[i], err) < 0)
			return -1;
	}
	return 0;
}

void report_ways_done(struct report *r)
{
	for (size_t i = 0; i < r->n_ways; i++) {
		http_client_free(r->way[i].http);
		free(r->way[i].url);
		free(r->way[i].host);
		free(r->way[i].target);
	}
}

static struct report_way *way_of(struct report *r, const char *path, char **url)
{
	struct report_way *w;

	lock_take(&r->lock);
	w = &r->way[r->at];
	*url = xasprintf("%s%s", w->url, path);
	lock_give(&r->lock);
	return w;
}

/* What this way led to does not lead: the next one is tried, unless another thread did so. */
static void turn_away(struct report *r, const struct report_way *w)
{
	lock_take(&r->lock);
	if (w == &r->way[r->at])
		r->at = (r->at + 1) % r->n_ways;
	lock_give(&r->lock);
}

static void note_reached(struct report *r, const struct report_way *w)
{
	size_t i = (size_t)(w - r->way);
	bool other;

	lock_take(&r->lock);
	other = r->reached != i;
	r->reached = i;
	if (other)
		log_info("the server that leads is now at %s", w->url);
	lock_give(&r->lock);
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
	if (fs_read(AT_FDCWD, arena_printf(a, "%s/" ATTEMPT_START, r->dir), &body, &err) == 0 &&
	    wire_start_parse(&start, a, buf_view(&body), &err) == 0) {
		lock_take(&r->lock);
		if (strcmp(start.server, r->way[0].url) != 0) {
			log_info("the server is now at %s", start.server);
			free(r->way[0].url);
			r->way[0].url = xstrdup(start.server);
		}
		lock_give(&r->lock);
	}
	seal_wipe_buf(&body);
}

/* What an exchange says of its way; status 0: nobody answered. Returns it, 401 where it was said
 * before the token was sent. */
static int judge_way(struct report *r, const struct report_way *way, int status,
                     const struct err *err)
{
	if (status == 0 && err->id == ERR_TOKEN_INVALID)
		return 401;
	if (status == 0)
		look_for_server(r);
	if (status == 0 || (status >= 502 && status <= 504))
		turn_away(r, way);
	else
		note_reached(r, way);
	return status;
}

int report_exchange(struct report *r, enum http_method method, const char *path, const char *type,
                    struct str body, int64_t total_ms, struct http_reply *reply, struct err *err)
{
	AUTO_FREE char *url = NULL;
	struct report_way *way = way_of(r, path, &url);
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

	if (http_do(way->http, &call, reply, err) < 0) {
		reply->status = judge_way(r, way, 0, err);
		return -1;
	}
	(void)judge_way(r, way, reply->status, err);
	return http_expect(&call, reply, err);
}

int report_exec_open(struct report *r, const char *id, const atomic_bool *stop,
                     struct upgrade **out, int *status, struct err *err)
{
	AUTO_FREE char *url = NULL, *path = xasprintf("/runner/v1/exec/%s", id);
	struct report_way *way = way_of(r, path, &url);
	struct http_header headers[] = {{"Authorization", r->auth}};
	struct http_call call = {.url = url,
	                         .headers = headers,
	                         .n_headers = 1,
	                         .connect_ms = 5000,
	                         .total_ms = REPORT_SMALL_MS,
	                         .cancel = stop};
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	int rc = upgrade_open(way->http, &call, EXEC_PROTOCOL, out, &reply, err);

	*status = judge_way(r, way, reply.status, err);
	return rc < 0 || *out != NULL ? rc : http_expect(&call, &reply, err);
}

void report_exec_done(struct report *r, const char *id)
{
	AUTO_FREE char *path = xasprintf("/runner/v1/exec/%s", id);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct err err = {0};

	/* else the server finds out: we do not come again */
	if (report_exchange(r, HTTP_DELETE, path, "", (struct str){0}, REPORT_SMALL_MS, &reply,
	                    &err) < 0)
		log_debug("command %s: %s", id, err.msg);
}

int report_hub(struct report *r, const struct report_hub *x, struct http_reply *reply,
               struct err *err)
{
	AUTO_FREE char *url = NULL, *auth = xasprintf("Bearer %s", x->token);
	struct report_way *way = way_of(r, x->path, &url);
	struct http_header headers[] = {{"Authorization", auth}, {"Content-Type", x->type}};
	struct http_call call = {.method = HTTP_POST,
	                         .url = url,
	                         .headers = headers,
	                         .n_headers = COUNT(headers),
	                         .body = x->body,
	                         .has_body_fd = x->has_fd,
	                         .body_fd = x->fd,
	                         .body_len = x->length,
	                         .connect_ms = 5000,
	                         .total_ms = x->total_ms,
	                         .stall_ms = MIN(x->total_ms, (int64_t)HUB_STALL_MS),
	                         .cancel = x->cancel};
	int rc = http_do(way->http, &call, reply, err);

	seal_wipe(auth, strlen(auth));
	return rc < 0 ? -1 : http_expect(&call, reply, err);
}

int report_post(struct report *r, const char *path, struct str body, struct http_reply *reply,
                struct err *err)
{
	return report_exchange(r, HTTP_POST, path, "application/json", body, REPORT_SMALL_MS, reply,
	                       err);
}

bool report_status_refuses(int status)
{
	return status == 401 || status == 403 || status == 404 || status == 409 || status == 410;
}

bool report_is_refusal(const struct http_reply *reply)
{
	return report_status_refuses(reply->status);
}

/* The server is there and will never take this: sending it again is of no use. */
bool report_is_rejected(const struct http_reply *reply)
{
	return reply->status >= 400 && reply->status < 500 && reply->status != 408 &&
	       reply->status != 429;
}

/* Until the server takes it, or says that it never will. ERR_CANCELED once *until is set; NULL:
 * never. */
static int post_until_taken(struct report *r, const char *what, struct str body,
                            const atomic_bool *until, struct buf *answer, struct err *err)
{
	AUTO_FREE char *path = xasprintf("/runner/v1/%s", what);
	int tries = 0;

	while (until == NULL || !atomic_load(until)) {
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct err one = {0};

		if (report_post(r, path, body, &reply, &one) == 0) {
			*answer = reply.body;
			reply.body = (struct buf){0};
			return 0;
		}
		log_warn("%s: %s", what, one.msg);
		if (report_is_rejected(&reply)) {
			*err = one;
			return -1;
		}
		if (report_is_orphan(r))
			return err_set(err, ERR_NOT_FOUND, "the attempt's folder was removed");
		report_pause_after(r, &tries);
	}
	return err_set(err, ERR_CANCELED, "stopped while the server was away");
}

int report_claim(struct report *r, struct arena *a, struct wire_launch *out, struct err *err)
{
	AUTO_BUF struct buf answer = BUF_INIT(0);
	char nonce[NONCE_LEN + 1];
	AUTO_FREE char *body = NULL;

	seal_id(nonce, NONCE_LEN);
	/* By hand: the one message that must be understood by all versions. */
	body = xasprintf("{\"nonce\":\"%s\",\"wire\":" TEXT_OF(WIRE_VERSION) "}", nonce);
	if (post_until_taken(r, "claim", str_of(body), NULL, &answer, err) < 0)
		return -1;
	return wire_launch_parse(out, a, buf_view(&answer), err);
}

int report_image(struct report *r, struct arena *a, const struct wire_image *mine,
                 struct wire_image *out, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX), answer = BUF_INIT(0);

	wire_image_write(mine, &body);
	if (post_until_taken(r, "image", buf_view(&body), &r->cancel, &answer, err) < 0)
		return -1;
	return wire_image_parse(out, a, buf_view(&answer), err);
}

int report_exit(struct report *r, const struct wire_exit *x, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(REPORT_BODY_MAX), answer = BUF_INIT(0);

	wire_exit_write(x, &body);
	return post_until_taken(r, "exit", buf_view(&body), &r->fenced, &answer, err);
}
