/*
 * objstore_s3_delete.c - deleting objects: one, or up to a thousand with one request
 * (DeleteObjects), whose answer names those that stayed.
 */
#include "store/objects/objstore_s3.h"

#include "base/log.h"
#include "store/objects/s3xml.h"

#define S3_DELETE_KEYS 1000               /* S3's own limit of one request */
#define S3_DELETE_BYTES ((size_t)1 << 20) /* of its XML; AWS takes twice as much */
#define S3_DELETE_KEY 64                  /* of that, around a key */
#define S3_DELETE_MS (60 * 1000)          /* a folder behind the store deletes them in turn */

/* The errors, from their start, of stores that do not know the request. */
static const char *const unknown[] = {
	"NotImplemented:", "MethodNotAllowed:", "HTTP 405",
	"HTTP 501",        "InvalidArgument:", /* Google Cloud Storage, which took it for another
                                                  one */
};

/* What is said of one key; what is not listed is ERR_IO. */
static const struct {
	const char *code;
	enum err_code kind; /* ERR_NONE: it is as good as deleted */
} meanings[] = {
	{"NoSuchKey", ERR_NONE},
	{"NoSuchVersion", ERR_NONE},
	{"AccessDenied", ERR_DENIED},
	{"InternalError", ERR_UNAVAILABLE},
	{"OperationAborted", ERR_UNAVAILABLE},
	{"RequestTimeout", ERR_UNAVAILABLE},
	{"ServiceUnavailable", ERR_UNAVAILABLE},
	{"SlowDown", ERR_UNAVAILABLE},
	{"InvalidArgument", ERR_INVALID},
	{"KeyTooLongError", ERR_INVALID},
	{"MethodNotAllowed", ERR_UNSUPPORTED},
	{"NotImplemented", ERR_UNSUPPORTED},
	{S3_NO_BUCKET, ERR_UNAVAILABLE},
};

int s3_del(struct objstore *os, const char *key, struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.method = HTTP_DELETE, .key = key, .total_ms = S3_SHORT_MS};

	if (s3_call((struct s3store *)os, &c, &reply, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

/* ---- many ---------------------------------------------------------------------------- */

struct batch {
	struct s3store *s;
	const char *const *key;
	size_t left[S3_DELETE_KEYS]; /* the numbers of those that are not deleted yet, in order */
	size_t n;
	bool answered; /* the failure is that of a key */
};

static int write_request(const struct batch *b, struct buf *xml, struct err *err)
{
	buf_puts(xml, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
	              "<Quiet>true</Quiet>");
	for (size_t i = 0; i < b->n; i++) {
		buf_puts(xml, "<Object><Key>");
		s3xml_text(xml, str_of(b->s->prefix));
		s3xml_text(xml, str_of(b->key[b->left[i]]));
		buf_puts(xml, "</Key></Object>");
	}
	buf_puts(xml, "</Delete>");
	return buf_check(xml, "the list of keys", err);
}

static enum err_code meaning_of(const char *code)
{
	for (size_t i = 0; i < COUNT(meanings); i++)
		if (strcmp(code, meanings[i].code) == 0)
			return meanings[i].kind;
	return ERR_IO;
}

static const struct s3xml_failed *failure_of(const struct batch *b, size_t number,
                                             const struct s3xml_failed *failed, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *key = s3_own_key(b->s, failed[i].key);

		if (key != NULL && strcmp(key, b->key[number]) == 0)
			return &failed[i];
	}
	return NULL;
}

/* What the answer does not name is deleted. */
static int settle(struct batch *b, const struct s3xml_failed *failed, size_t n, struct err *err)
{
	const struct s3xml_failed *first = NULL;
	size_t named = 0, kept = 0;

	for (size_t i = 0; i < b->n; i++) {
		const struct s3xml_failed *x = failure_of(b, b->left[i], failed, n);

		named += x != NULL;
		if (x == NULL || meaning_of(x->code) == ERR_NONE)
			continue;
		first = first == NULL ? x : first;
		b->left[kept++] = b->left[i];
	}
	if (named < n && kept == 0)
		return err_set(err, ERR_IO,
		               "the store could not delete keys that were not asked for");
	b->n = kept;
	if (first == NULL)
		return 0;
	return err_set(err, meaning_of(first->code), "%s: %s", first->code, first->message);
}

static int ask(struct batch *b, struct err *err)
{
	AUTO_BUF struct buf xml = BUF_INIT(2 * S3_DELETE_BYTES), sum = BUF_INIT(64);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.method = HTTP_POST, .query = "delete=", .total_ms = S3_DELETE_MS};
	struct s3xml_failed *failed = NULL;
	uint8_t md5[16];
	size_t n = 0;

	b->answered = false;
	if (write_request(b, &xml, err) < 0)
		return -1;
	hash_md5(xml.p, xml.n, md5);
	base64_encode(md5, sizeof(md5), false, &sum);
	c.header[c.n_header++] = (struct http_header){"Content-MD5", buf_cstr(&sum)};
	c.body = buf_view(&xml);
	if (s3_call(b->s, &c, &reply, err) < 0 ||
	    s3xml_deleted(reply.arena, buf_view(&reply.body), &failed, &n, err) < 0)
		return -1;
	b->answered = true;
	return settle(b, failed, n, err);
}

/* Those that stayed for a moment's reason are asked for again; s3_call has its own tries. */
static int del_batch(struct batch *b, struct err *err)
{
	struct retry r = RETRY_INIT(S3_TRIES);

	r.cancel = b->s->cancel;
	while (ask(b, err) < 0)
		if (!b->answered || atomic_load(&b->s->base.away) || !retry_again(&r, err))
			return -1;
	return 0;
}

/* How many of them one request takes. What XML cannot say goes by its URL. */
static size_t fit(const struct s3store *s, const char *const *key, size_t n)
{
	size_t bytes = 0, i;

	if (!s3xml_can_say(str_of(s->prefix)))
		return 0;
	for (i = 0; i < MIN(n, (size_t)S3_DELETE_KEYS) && s3xml_can_say(str_of(key[i])); i++) {
		bytes += 6 * (strlen(s->prefix) + strlen(key[i])) + S3_DELETE_KEY; /* "&quot;" */
		if (bytes > S3_DELETE_BYTES)
			break;
	}
	return i;
}

static bool is_unknown(const struct err *err)
{
	for (size_t i = 0; i < COUNT(unknown); i++)
		if (str_starts(str_of(err->msg), unknown[i]))
			return true;
	return err->code == ERR_UNSUPPORTED;
}

/* Such a store is not asked again. */
static void go_one_by_one(struct s3store *s, struct err *err)
{
	if (!atomic_exchange(&s->one_by_one, true))
		log_info("the object store deletes objects one by one: %s: %s", s->base.url,
		         err->msg);
	err_clear(err);
}

int s3_del_all(struct objstore *os, const char *const *key, size_t n, size_t *at, struct err *err)
{
	struct s3store *s = (struct s3store *)os;
	AUTO_FREE struct batch *b = xcalloc(1, sizeof(*b));

	b->s = s;
	b->key = key;
	for (*at = 0; *at < n;) {
		size_t many = atomic_load(&s->one_by_one) ? 1 : fit(s, key + *at, n - *at);

		if (many <= 1) {
			if (s3_del(os, key[*at], err) < 0)
				return -1;
			(*at)++;
			continue;
		}
		for (b->n = 0; b->n < many; b->n++)
			b->left[b->n] = *at + b->n;
		if (del_batch(b, err) == 0) {
			*at += many;
		} else if (!b->answered && is_unknown(err)) {
			go_one_by_one(s, err);
		} else {
			*at = b->left[0];
			return -1;
		}
	}
	return 0;
}
