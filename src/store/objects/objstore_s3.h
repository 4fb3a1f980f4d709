/*
 * objstore_s3.h - what the files of the S3 driver share: objstore_s3.c (objects),
 * objstore_s3_call.c (one signed request, S3's errors), objstore_s3_upload.c (uploads in parts),
 * objstore_s3_stream.c (what comes from a reader), objstore_s3_delete.c.
 *
 * Bodies are sent with their SHA-256 when they are in memory, else as UNSIGNED-PAYLOAD. Errors of
 * S3 start with its code ("NoSuchUpload: ...").
 */
#ifndef OBJSTORE_S3_H
#define OBJSTORE_S3_H

#include "store/objects/objstore_impl.h"

#define S3_TRIES 6
#define S3_NO_BUCKET "NoSuchBucket"
#define S3_SMALL ((size_t)16 << 20) /* up to here in one request, from memory */
#define S3_PART ((uint64_t)16 << 20)
#define S3_PART_STEP ((uint64_t)1 << 20)
#define S3_STREAMS 4
#define S3_SKEW_MS (5 * 60000) /* S3 takes 15 minutes; clocks that are right differ by less */
#define S3_SIGNED_S 3600       /* a signature that somebody else gives is good for this long */
#define S3_PREFIX_MAX 200
#define S3_REPLY_MAX ((size_t)8 << 20)
#define S3_SHORT_MS (20 * 1000)       /* requests without a body to speak of */
#define S3_AWAY_MS 5000               /* for the first byte from a store that was away last */
#define S3_PATIENCE_MS 30000          /* a large body's answer, of a store not known as slow */
#define S3_LARGE ((size_t)64 << 10)   /* from here on a body is */
#define S3_FINISH_MS (10 * 60 * 1000) /* completing and copying: the store moves the bytes */
#define S3_PASSED_MS (5 * 60 * 1000)  /* a body that somebody else sends, who may be slow */

struct s3store {
	struct objstore base;
	struct http_client *client; /* the caller's */
	struct sigv4_key key;       /* copies; access_key NULL: unsigned */
	char *endpoint, *bucket;    /* "https://host:port", "name"; NULL with a signer */
	char *prefix;               /* of every key in the bucket: "" or "a/b/" */
	bool aws;                   /* it takes no x-amz- header that was not signed */
	/* Large bodies wait in the buffers of sockets and proxies when libcurl has sent them: how
	 * long a silence is none of the store's. Each time that it was too short it is doubled. */
	atomic_llong patience_ms;
	atomic_bool one_by_one; /* it cannot delete many objects with one request */
	int (*signer)(void *arg, struct arena *a, const struct objstore_request *rq,
	              struct objstore_signed *out, struct err *err);
	void *signer_arg;
	const atomic_bool *cancel; /* of every call that has none of its own; NULL: never */
};

struct s3_call {
	enum http_method method;
	const char *key;       /* NULL: the bucket itself */
	const char *query;     /* encoded, or NULL */
	const char *copy_from; /* the key that is copied, or NULL */
	struct http_header header[4];
	size_t n_header;
	struct str body;
	bool unsigned_body;     /* do not hash it: it is hashed as part of something larger */
	objstore_read_fn *read; /* the body instead: body_len bytes that come only once */
	uint64_t body_len;
	int64_t total_ms, stall_ms; /* 0: the client's */
	size_t reply_max;
	objstore_sink_fn *sink;
	int (*head)(void *arg, const struct http_reply *reply, struct err *err);
	void *arg; /* of read, sink and head */
	const atomic_bool *cancel;
	bool *again; /* s3_call: set when an earlier try may have worked; NULL: not told */
};

/* One try. Anything but a 2xx is an error, also a 200 that holds one. */
int s3_call_once(struct s3store *s, const struct s3_call *c, struct http_reply *reply,
                 struct err *err) MUST_CHECK;
/* Up to S3_TRIES, while the error is of a kind that passes. Not for calls with a sink. */
int s3_call(struct s3store *s, const struct s3_call *c, struct http_reply *reply,
            struct err *err) MUST_CHECK;
int s3_presign(struct objstore *os, struct arena *a, const struct objstore_request *rq,
               struct objstore_signed *out, struct err *err) MUST_CHECK;
int s3_sign_put(struct objstore *os, struct arena *a, const char *key, const char *sha256,
                struct objstore_put *out, struct err *err) MUST_CHECK;
/* The ETag header without quotes; "" when there is none. */
void s3_etag(const struct http_reply *reply, char out[80]);
/* "name=value" with what a query needs, encoded. */
void s3_query(struct buf *out, const char *name, const char *value);

int s3_put_stream(struct objstore *os, const char *key, uint64_t size, objstore_read_fn *read,
                  void *arg, struct objstore_info *info, struct err *err) MUST_CHECK;
int s3_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                struct digest *sha256, struct err *err) MUST_CHECK;
int s3_put_body(struct s3store *s, const char *key, struct str body, char etag[80],
                const atomic_bool *cancel, struct err *err) MUST_CHECK;
int s3_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                   struct err *err) MUST_CHECK;
/* One part as `c` has it. */
int s3_put_part(struct s3store *s, const char *key, const char *id, uint32_t number,
                struct s3_call *c, char etag[80], struct err *err) MUST_CHECK;
int s3_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                 uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
                 struct err *err) MUST_CHECK;
int s3_parts_end(struct objstore *os, const char *key, const char *id,
                 const struct objstore_part *parts, size_t n, struct objstore_info *info,
                 struct err *err) MUST_CHECK;
int s3_parts_abort(struct objstore *os, const char *key, const char *id,
                   struct err *err) MUST_CHECK;
int s3_del(struct objstore *os, const char *key, struct err *err) MUST_CHECK;
int s3_del_all(struct objstore *os, const char *const *key, size_t n, size_t *at,
               struct err *err) MUST_CHECK;
int s3_sweep(struct objstore *os, int64_t max_age_s, bool dry_run, struct objstore_swept *out,
             struct err *err) MUST_CHECK;
const char *s3_own_key(const struct s3store *s, const char *key);
int s3_stat(struct objstore *os, const char *key, struct objstore_info *out,
            struct err *err) MUST_CHECK;

#endif
