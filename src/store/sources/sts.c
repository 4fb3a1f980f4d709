/* sts.c - see sts.h. */
#include "store/sources/sts.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/seal.h"
#include "base/sync.h"
#include "store/objects/s3xml.h"

#define LIFE_S 3600
#define EARLY_MS (5 * 60 * 1000) /* keys are renewed so long before their end */
#define TRIES 4
#define CALL_MS 30000
#define REPLY_MAX ((size_t)64 << 10)
#define BODY_MAX ((size_t)8 << 10)
#define SESSION "stoker" /* what the role's log calls whoever uses it */

struct sts {
	struct http_client *client;
	char *arn, *url, *access, *secret, *token, *region; /* of who asks; token may be NULL */
	struct lock lock;                                   /* what follows */
	char *role_access, *role_secret, *role_token;       /* NULL: none yet */
	int64_t renew_mono_ms;
};

static void wipe(char **p)
{
	if (*p != NULL)
		seal_wipe(*p, strlen(*p));
	free(*p);
	*p = NULL;
}

struct sts *sts_new(struct http_client *client, const struct sts_role *role)
{
	struct sts *s = xcalloc(1, sizeof(*s));

	s->client = client;
	s->arn = xstrdup(role->arn);
	s->url = xasprintf("%s/", role->endpoint);
	s->access = xstrdup(role->by.access_key);
	s->secret = xstrdup(role->by.secret_key);
	s->token = role->by.session_token != NULL ? xstrdup(role->by.session_token) : NULL;
	s->region = xstrdup(role->by.region);
	lock_init(&s->lock, LOCK_STS);
	return s;
}

void sts_free(struct sts *s)
{
	if (s == NULL)
		return;
	wipe(&s->access);
	wipe(&s->secret);
	wipe(&s->token);
	wipe(&s->role_access);
	wipe(&s->role_secret);
	wipe(&s->role_token);
	lock_done(&s->lock);
	free(s->arn);
	free(s->url);
	free(s->region);
	free(s);
}

static int sign(const struct sts *s, struct arena *a, struct http_call *call, struct http_header *h,
                struct err *err)
{
	const struct sigv4_key key = {s->access, s->secret, s->token, s->region, "sts"};
	struct digest d = hash_sha256(call->body.p, call->body.n);
	char hex[HASH_HEX_CAP];
	size_t n = 0;

	digest_hex(&d, hex);
	h[0] = (struct http_header){"Content-Type", "application/x-www-form-urlencoded"};
	if (sigv4_sign(a, &key, call->method, call->url, h, 1, hex, clock_wall_ms(), h + 1, &n,
	               err) < 0)
		return -1;
	call->headers = h;
	call->n_headers = n + 1;
	return 0;
}

static int take_reply(struct sts *s, const struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_credentials c = {0};
	int64_t life_ms;

	if (s3xml_credentials(a, buf_view(&reply->body), &c, err) < 0) {
		err_become(err, ERR_SOURCE_BROKEN);
		return err_wrap(err, "the reply of %s to AssumeRole", s->url);
	}
	wipe(&s->role_access);
	wipe(&s->role_secret);
	wipe(&s->role_token);
	s->role_access = xstrdup(c.access_key);
	s->role_secret = xstrdup(c.secret_key);
	s->role_token = xstrdup(c.session_token);
	life_ms = MAX(0, MIN(c.expires_ms - clock_wall_ms(), (int64_t)LIFE_S * 1000));
	s->renew_mono_ms = clock_mono_ms() + MAX(life_ms - EARLY_MS, life_ms / 2);
	return 0;
}

static int ask(struct sts *s, const atomic_bool *cancel, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header h[1 + 4];
	struct http_call call = {.method = HTTP_POST,
	                         .url = s->url,
	                         .total_ms = CALL_MS,
	                         .body_max = REPLY_MAX,
	                         .cancel = cancel};
	struct err words = {0};
	int r;

	buf_printf(&body,
	           "Action=AssumeRole&Version=2011-06-15&DurationSeconds=%d&RoleArn=", LIFE_S);
	url_encode(str_of(s->arn), false, &body);
	buf_puts(&body, "&RoleSessionName=" SESSION);
	call.body = buf_view(&body);
	if (buf_check(&body, "the role", err) < 0 || sign(s, a, &call, h, err) < 0 ||
	    http_do(s->client, &call, &reply, err) < 0)
		return -1;
	if (reply.status >= 200 && reply.status < 300) {
		r = take_reply(s, &reply, err);
		seal_wipe_buf(&reply.body);
		return r;
	}
	if (reply.status >= 500 || reply.status == 429)
		return http_expect(&call, &reply, err);
	if (http_expect(&call, &reply, &words) == 0) /* a redirect */
		(void)err_set(&words, ERR_CORRUPT, "status %d", reply.status);
	return err_set(err, ERR_SOURCE_DENIED,
	               "the role %s cannot be assumed with the keys in auth_secret_name: %.400s",
	               s->arn, words.msg);
}

static int renew(struct sts *s, const atomic_bool *cancel, struct err *err)
{
	struct retry r = RETRY_INIT(TRIES);

	assert(lock_is_mine(&s->lock));
	r.cancel = cancel;
	while (ask(s, cancel, err) < 0) {
		if (!retry_again(&r, err))
			return -1;
	}
	return 0;
}

int sts_key(struct sts *s, struct arena *a, const atomic_bool *cancel, struct sigv4_key *out,
            struct err *err)
{
	int r = 0;

	lock_take(&s->lock);
	if (s->role_access == NULL || clock_mono_ms() >= s->renew_mono_ms)
		r = renew(s, cancel, err);
	if (r == 0)
		*out = (struct sigv4_key){.access_key = arena_cstr(a, s->role_access),
		                          .secret_key = arena_cstr(a, s->role_secret),
		                          .session_token = arena_cstr(a, s->role_token)};
	lock_give(&s->lock);
	return r;
}
