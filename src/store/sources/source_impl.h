/*
 * source_impl.h - what the drivers of source.h share: their table, a list that grows, and one HTTP
 * exchange with the manners of a fetcher.
 */
#ifndef SOURCE_IMPL_H
#define SOURCE_IMPL_H

#include "store/sources/source.h"

#define SOURCE_TRIES 6
#define SOURCE_RETRY_AFTER_MAX 600         /* seconds; who asks for a longer pause is given up */
#define SOURCE_PAGES_MAX 2000              /* of one listing */
#define SOURCE_PAGE_MAX ((size_t)16 << 20) /* bytes of one page */

struct source_found; /* grows while a driver lists */

struct source_ops {
	const char *scheme; /* "hf" */
	const char *form;   /* what a URL looks like, for messages */
	/* Advice for a 401 or 403; follows "the source's URL: ". */
	const char *auth_advice;
	/* `rest` is what follows "://". Allocates *out with source_new(), and sets its ops. */
	int (*open)(struct source **out, struct str rest, const struct source_options *o,
	            struct err *err);
	/* See source_check(); NULL: only a listing can tell. */
	int (*check)(struct source *s, struct err *err);
	/* Hands every file to source_found(). May set *revision (in `a`); otherwise a digest over
	 * what was found is the revision. `frozen` is NULL, or the revision that is asked for. */
	int (*list)(struct source *s, struct arena *a, const char *resolved,
	            struct source_found *to, const char **revision, struct err *err);
	int (*read)(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
	            const struct http_sink *to, const atomic_bool *cancel, struct err *err);
	/* See source_link(); may be NULL. */
	int (*link)(struct source *s, const struct source_file *f, int dirfd, const char *name,
	            struct err *err);
	/* See source_resolve(); may be NULL. */
	int (*resolve)(struct source *s, struct arena *a, const char **revision, struct err *err);
	/* See source_admits(); may be NULL. */
	int (*admits)(struct source *s, const char *path, struct err *err);
	int (*refs)(struct source *s, struct arena *a, const struct doc **out,
	            struct err *err);   /* see source_refs(); may be NULL */
	void (*done)(struct source *s); /* what source_free() does not know; may be NULL */
};

extern const struct source_ops source_azure_ops, source_cw_ops, source_file_ops, source_gs_ops,
	source_hf_ops, source_http_ops, source_https_ops, source_objects_ops, source_r2_ops,
	source_s3_ops;
/* A gs:// source whose secret has interoperability keys: Google's store speaks S3, too. */
int source_bucket_gs_open(struct source **out, struct str rest, const struct source_options *o,
                          struct err *err) MUST_CHECK;

/* About a 401 or 403 when there is a token: it is sent to no other host. */
#define SOURCE_TOKEN_ADVICE                                                                        \
	"the token in auth_secret_name does not allow that, or the request was led to another "    \
	"host, which is not given it"

struct source;
/* "Bearer" and the token in the secret, for the caller to wipe and free; NULL without a secret.
 * ERR_SOURCE_SECRET_INVALID for what is none, such as the keys of a store: they go nowhere. */
int source_bearer(struct source *s, char **out, struct err *err) MUST_CHECK;

/* First member of every driver's own struct. */
struct source {
	const struct source_ops *ops;
	char *name; /* the URL without query and password, for messages */
	struct http_client *client;
	struct arena *arena; /* lives as long as the source; filled by open and list only */
	char *secret;        /* "" = anonymous; wiped at the end */
	const char
		*auth_advice; /* what to do about a 401 or 403, if not what ops say; may be NULL */
	int64_t stall_ms;
	const atomic_bool *cancel; /* of lists */
	int retry_after_max_s;     /* of lists, too */
	int64_t ask_until_ms;      /* the same */
	bool wants_about, may_be_empty;
	const char *about;                    /* of the last listing, in its arena */
	_Atomic(enum source_refusal) refusal; /* reads run beside each other */
};

/* A driver's struct of `size` bytes, zeroed, with its base filled from o. */
void *source_new(const struct source_options *o, size_t size) MUST_CHECK;

/* One file. Those that the filter leaves out are counted and dropped. `id` and `etag` may be NULL.
 */
int source_found(struct source_found *to, struct str path, uint64_t size, enum hash_kind kind,
                 const uint8_t *id, struct str etag, struct err *err) MUST_CHECK;

/* The error of a source that holds nothing. */
int source_no_files(const struct source *s, struct err *err);

/* Does the filter let this path through? For drivers that would fail on what nobody wants. */
bool source_wanted(const struct source_found *to, struct str path);

/* A URL without '/' at its end, in `a`. */
const char *source_endpoint(struct arena *a, const char *url);

/* --- stores of keys -------------------------------------------------------------------------- */

struct source_key {
	const char *key;
	uint64_t size;
	const char *etag; /* NULL: none */
	const char
		*encoded; /* NULL, or the coding that the store undoes when it sends the object */
	uint8_t md5[16];
	bool has_md5;
	bool folder; /* an entry that stands for one */
};

struct source_page {
	struct source_key *key;
	size_t n;
	const char *next; /* token of the page that follows, NULL: none does */
};

/* What a driver knows to do, of the prefix in its URL: without '/' at its end, "" is all. */
struct source_keys {
	const char *prefix;
	/* The keys that begin with `prefix`, from the token `next` on (NULL: the first ones). */
	int (*page)(struct source *s, struct arena *a, const char *prefix, const char *next,
	            struct source_page *out, struct err *err);
	/* The object whose key is the prefix above; who may read it may not be allowed to list. */
	int (*find)(struct source *s, struct arena *a, struct source_key *out, struct err *err);
	/* See struct source_rq. */
	int (*sign)(struct source *s, struct arena *a, const struct http_call *call,
	            struct http_header *h, size_t *n, struct err *err);
	const char *pin_header;
	bool single; /* the prefix is the key of one object, known after listing */
};

/* The prefix that the rest of a URL is. ERR_INVALID: it is too long. */
int source_keys_prefix(struct source_keys *k, struct arena *a, struct str rest,
                       struct err *err) MUST_CHECK;
/* Hands over what is below the prefix, or the one object that it names. */
int source_keys_list(struct source *s, struct arena *a, struct source_keys *k,
                     struct source_found *to, struct err *err) MUST_CHECK;
/* Appends the key of a listed file, encoded for a URL. */
void source_keys_url(const struct source_keys *k, const struct source_file *f, bool keep_slash,
                     struct buf *url);
/* A range of a file at this URL, pinned to what was listed. */
int source_keys_read(struct source *s, const struct source_keys *k, const struct buf *url,
                     const struct source_file *f, uint64_t first, uint64_t count,
                     const struct http_sink *to, const atomic_bool *cancel,
                     struct err *err) MUST_CHECK;
/* From base64; what is none leaves the key without. */
void source_key_md5(struct source_key *k, struct str base64);

/* --- over HTTP ------------------------------------------------------------------------------- */

#define SOURCE_RQ_HEADERS 12
#define SOURCE_SIGN_HEADERS 4

struct source_rq {
	unsigned magic;
#define SOURCE_RQ_MAGIC 0x53534f55U
	enum http_method method;
	const char *url;
	const char *auth; /* value of Authorization, for the origin of `url` only; NULL = none */
	struct http_header header[SOURCE_RQ_HEADERS];
	size_t n_headers;
	bool no_redirect; /* a 3xx is an error: the request is signed for its host */
	/* Adds to the headers h, all but these being there, what proves who asks; NULL: nothing
	 * does. Called for each try; at most SOURCE_SIGN_HEADERS. With no_redirect only. */
	int (*sign)(struct source *s, struct arena *a, const struct http_call *call,
	            struct http_header *h, size_t *n, struct err *err);
	/* A range of a file into the sink; without a file the body stays in the reply. */
	const struct source_file *file;
	uint64_t first, count;
	bool pin_etag; /* the ranges of this file must keep file->etag */
	/* Whose value file->etag is, if it is not ETag's: no If-Match is sent then. */
	const char *pin_header;
	const struct http_sink *to;
	void *arg; /* of head */
	/* Without a file: looks at a 2xx answer before its body is read. */
	int (*head)(void *arg, const struct http_reply *reply, struct err *err);
	const atomic_bool *cancel;
	int64_t until_ms; /* on the monotonic clock; 0: no limit but of a stall */
	/* Filled: headers that only some hop of a redirect carries. */
	char linked_etag[160], linked_size[24];
};

/* One exchange, redirects followed by hand: Authorization stays at home, https never becomes http.
 * Any end but 2xx is an error with the code, the server's words and advice. On failure
 * reply->status and its headers are still those of the last answer. `reply` is the caller's to
 * finish. */
int source_http(struct source *s, struct source_rq *rq, struct http_reply *reply,
                struct err *err) MUST_CHECK;
/* The same, tried again while the kind of failure allows, until s->cancel or s->ask_until_ms; for
 * small bodies. */
int source_http_retry(struct source *s, struct source_rq *rq, struct http_reply *reply,
                      struct err *err) MUST_CHECK;
/* `location` as seen from `base`, in `a`. ERR_INVALID when it is not http or https. */
int source_url_join(struct arena *a, const char *base, struct str location, char **out,
                    struct err *err) MUST_CHECK;
/* ETag without W/ and quotes; *weak (may be NULL). Drivers keep "W/" in front of weak ones. */
struct str source_etag(struct str header, bool *weak);

#endif
