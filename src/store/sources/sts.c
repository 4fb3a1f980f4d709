/* sts.c - see sts.h. */
#include "store/sources/sts.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/seal.h"
#include "store/objects/s3xml.h"

#define SESSION "stoker" /* what the role's log calls whoever has keys */

struct sts {
	unsigned magic;
#define STS_MAGIC 0x53535453U
	struct http_client *client;
	char *arn, *url, *access, *secret, *token, *region; /* of who asks; token may be NULL */
	const struct identity_token *identity;              /* or this; NULL: by keys */
	char *audience;
	struct credential keys; /* access key, secret key and token, a line each */
};

static char *copy(const char *text)
{
	return text != NULL ? xstrdup(text) : NULL;
}

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

	assert((role->identity != NULL) != (role->by.access_key != NULL));
	s->magic = STS_MAGIC;
	s->client = client;
	s->arn = xstrdup(role->arn);
	s->url = xasprintf("%s/", role->endpoint);
	s->access = copy(role->by.access_key);
	s->secret = copy(role->by.secret_key);
	s->token = copy(role->by.session_token);
	s->region = copy(role->by.region);
	s->identity = role->identity;
	s->audience = copy(role->audience);
	credential_init(&s->keys);
	return s;
}

void sts_free(struct sts *s)
{
	if (s == NULL)
		return;
	wipe(&s->access);
	wipe(&s->secret);
	wipe(&s->token);
	credential_done(&s->keys);
	free(s->arn);
	free(s->url);
	free(s->region);
	free(s->audience);
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
	if (sigv4_sign(a, &key, call->method, call->url, h, 1, hex, clock_wall_ms(), h + 1, &n,
	               err) < 0)
		return -1;
	call->n_headers = n + 1;
	return 0;
}

static int take_reply(const struct sts *s, const struct http_reply *reply, struct buf *text,
                      int64_t *life_ms, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_credentials c = {0};

	if (s3xml_credentials(a, buf_view(&reply->body), &c, err) < 0) {
		err_become(err, ERR_SOURCE_BROKEN);
		return err_wrap(err, "the reply of %s about the role %s", s->url, s->arn);
	}
	buf_printf(text, "%s\n%s\n%s", c.access_key, c.secret_key, c.session_token);
	*life_ms = c.expires_ms - clock_wall_ms();
	return 0;
}

static int refused(const struct sts *s, const struct http_call *call,
                   const struct http_reply *reply, struct err *err)
{
	AUTO_FREE char *who = NULL;
	struct err words = {0};

	if (reply->status >= 500 || reply->status == 429)
		return http_expect(call, reply, err);
	if (http_expect(call, reply, &words) == 0) /* a redirect */
		(void)err_set(&words, ERR_CORRUPT, "status %d", reply->status);
	if (s->identity == NULL)
		return err_set(
			err, ERR_SOURCE_DENIED,
			"the role %s cannot be assumed with the keys in auth_secret_name: %.400s",
			s->arn, words.msg);
	who = xasprintf("the role %s cannot be assumed by web identity", s->arn);
	return identity_refused(s->identity, s->audience, who, str_of(words.msg), err);
}

/* What is asked, and for whom. *token: the one that was minted, if any. */
static int write_request(const struct sts *s, struct buf *token, struct buf *body, struct err *err)
{
	bool web = s->identity != NULL;

	if (web && s->identity->mint(s->identity, s->audience, token, err) < 0)
		return -1;
	buf_printf(body, "Action=AssumeRole%s&Version=2011-06-15&DurationSeconds=%d&RoleArn=",
	           web ? "WithWebIdentity" : "", CREDENTIAL_LIFE_S);
	url_encode(str_of(s->arn), false, body);
	buf_printf(body, "&RoleSessionName=%s", web ? s->identity->session : SESSION);
	if (web) {
		buf_puts(body, "&WebIdentityToken=");
		url_encode(buf_view(token), false, body);
	}
	return buf_check(body, "the role", err);
}

static int exchange(const struct sts *s, const struct buf *body, const atomic_bool *cancel,
                    struct buf *text, int64_t *life_ms, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header h[1 + 4] = {{"Content-Type", "application/x-www-form-urlencoded"}};
	struct http_call call = {.method = HTTP_POST,
	                         .url = s->url,
	                         .headers = h,
	                         .n_headers = 1,
	                         .body = buf_view(body),
	                         .total_ms = CREDENTIAL_CALL_MS,
	                         .body_max = CREDENTIAL_REPLY_MAX,
	                         .cancel = cancel};
	int r;

	if ((s->identity == NULL && sign(s, a, &call, h, err) < 0) ||
	    http_do(s->client, &call, &reply, err) < 0)
		return -1;
	if (reply.status < 200 || reply.status > 299)
		return refused(s, &call, &reply, err);
	r = take_reply(s, &reply, text, life_ms, err);
	seal_wipe_buf(&reply.body);
	return r;
}

static int ask(void *of, const atomic_bool *cancel, struct buf *text, int64_t *life_ms,
               struct err *err)
{
	struct buf body = BUF_INIT(CREDENTIAL_MAX * 2), token = BUF_INIT(CREDENTIAL_MAX);
	const struct sts *s = FROM_VOID(const struct sts, of, STS_MAGIC);
	int r = write_request(s, &token, &body, err);

	if (r == 0)
		r = exchange(s, &body, cancel, text, life_ms, err);
	if (r < 0 && token.n > 0)
		identity_scrub(buf_view(&token), err);
	seal_wipe_buf(&token);
	seal_wipe_buf(&body);
	return r;
}

int sts_key(struct sts *s, struct arena *a, const atomic_bool *cancel, struct sigv4_key *out,
            struct err *err)
{
	const char *text = NULL;
	struct str rest, access, secret;

	if (credential_text(&s->keys, ask, s, a, cancel, &text, err) < 0)
		return -1;
	rest = str_of(text);
	(void)str_cut(&rest, '\n', &access);
	(void)str_cut(&rest, '\n', &secret);
	*out = (struct sigv4_key){.access_key = arena_strz(a, access),
	                          .secret_key = arena_strz(a, secret),
	                          .session_token = arena_strz(a, rest)};
	return 0;
}
