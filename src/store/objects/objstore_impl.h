/*
 * objstore_impl.h - what a driver of objstore.h is made of, and the guard that every caller passes.
 * A driver's functions may rely on: a checked key, sizes within the limits of objstore.h, *err
 * clear, outputs not NULL unless said so. Optional are *fd, *link, *adopt, *blank and its two,
 * *presign, *sign_put, *list, *parts_begin and its three, and *sweep (NULL: ERR_UNSUPPORTED),
 * *copy_all and *del_all.
 */
#ifndef OBJSTORE_IMPL_H
#define OBJSTORE_IMPL_H

#include "base/sync.h"
#include "store/objects/objstore.h"

typedef int objstore_read_fn(void *arg, void *p, size_t cap, size_t *n, struct err *err);
typedef int objstore_sink_fn(void *arg, const void *p, size_t n, struct err *err);
typedef void objstore_each_fn(void *arg, const char *key, const struct objstore_info *info);

struct objstore_file { /* what objstore_put_file was asked */
	int fd;
	uint64_t size;
	bool want_sha256;            /* expected or asked for: it has to be computed */
	const struct digest *expect; /* NULL: unknown */
	void (*progress)(void *arg, uint64_t bytes);
	void *arg;
	const atomic_bool *cancel;
};

struct objstore_ops {
	const char *scheme;
	/* `rest` is what follows "scheme:"; it is NUL-terminated. */
	int (*open)(struct objstore **out, const char *rest, const struct objstore_env *env,
	            struct err *err);
	void (*close)(struct objstore *os);
	int (*get)(struct objstore *os, const char *key, struct buf *out, struct err *err);
	int (*put)(struct objstore *os, const char *key, struct str body, struct err *err);
	int (*put_file)(struct objstore *os, const char *key, const struct objstore_file *f,
	                struct digest *sha256, struct err *err);
	int (*put_stream)(struct objstore *os, const char *key, uint64_t size,
	                  objstore_read_fn *read, void *arg, struct objstore_info *info,
	                  struct err *err);
	int (*copy)(struct objstore *os, const char *from, const char *to, struct err *err);
	/* NULL: one by one. *at: the number of the one that failed. */
	int (*copy_all)(struct objstore *os, const struct objstore_pair *pair, size_t n, size_t *at,
	                struct err *err);
	int (*stat)(struct objstore *os, const char *key, struct objstore_info *out,
	            struct err *err);
	/* etag NULL: of whichever version is there; else ERR_CONFLICT when it is another one. */
	int (*read)(struct objstore *os, const char *key, const char *etag, uint64_t first,
	            uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
	            struct err *err);
	int (*fd)(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
	          struct err *err);
	int (*link)(struct objstore *os, const char *key, int dirfd, const char *name,
	            struct err *err);
	int (*adopt)(struct objstore *os, const char *key, int dirfd, const char *path,
	             struct err *err);
	int (*blank)(struct objstore *os, char name[OBJSTORE_BLANK_CAP], int *fd, struct err *err);
	int (*publish)(struct objstore *os, const char *name, int fd, const char *key,
	               const char *etag, struct objstore_info *info, struct err *err);
	void (*discard)(struct objstore *os, const char *name);
	int (*presign)(struct objstore *os, struct arena *a, const struct objstore_request *rq,
	               struct objstore_signed *out, struct err *err);
	int (*sign_put)(struct objstore *os, struct arena *a, const char *key, const char *sha256,
	                struct objstore_put *out, struct err *err);
	int (*list)(struct objstore *os, const char *prefix, const char *after, size_t max,
	            objstore_each_fn *each, void *arg, bool *more, struct err *err);
	int (*del)(struct objstore *os, const char *key, struct err *err);
	/* As copy_all; and those before *at are deleted. */
	int (*del_all)(struct objstore *os, const char *const *key, size_t n, size_t *at,
	               struct err *err);
	int (*parts_begin)(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
	                   struct err *err);
	int (*parts_put)(struct objstore *os, const char *key, const char *id, uint32_t number,
	                 uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
	                 struct err *err);
	int (*parts_end)(struct objstore *os, const char *key, const char *id,
	                 const struct objstore_part *parts, size_t n, struct objstore_info *info,
	                 struct err *err);
	int (*parts_abort)(struct objstore *os, const char *key, const char *id, struct err *err);
	int (*sweep)(struct objstore *os, int64_t max_age_s, bool dry_run,
	             struct objstore_swept *out, struct err *err);
};

/* First member of every driver's own struct; filled by objstore_open. */
struct objstore {
	const struct objstore_ops *ops;
	char *url; /* for messages */
	atomic_uint_fast64_t n_calls, n_errors;
	atomic_bool away;
	struct lock lock; /* of the next three */
	struct outage outage;
	const char *state;
	char why[OBJSTORE_WHY_MAX];
};

extern const struct objstore_ops objstore_dir, objstore_s3, objstore_signed, objstore_passed;
/* Of tests/drivers, which tests link and the product does not: it has none at these addresses. */
extern const struct objstore_ops objstore_mem __attribute__((weak)),
	objstore_fault __attribute__((weak));

/* S3's rule for the ETag of an object made of parts: MD5 over the parts' MD5s, a dash, their
 * number. */
struct objstore_etag {
	struct hash *md5;
	size_t n;
};
void objstore_etag_begin(struct objstore_etag *e);
/* `etag` is 32 hex digits; ERR_INVALID "InvalidPart: ..." when it is not. */
int objstore_etag_add(struct objstore_etag *e, const char *etag, struct err *err) MUST_CHECK;
void objstore_etag_end(struct objstore_etag *e, char out[80]); /* frees; also after a failed add */

/* A reader that promised `size` bytes, read to its end: passes on what it gives and refuses a byte
 * more or less. UINT64_MAX: any number. */
struct objstore_counted {
	objstore_read_fn *read;
	void *arg;
	uint64_t size, seen;
};
int objstore_counted_read(struct objstore_counted *c, void *p, size_t cap, size_t *n,
                          struct err *err) MUST_CHECK;

/* For drivers: is the object still the version that was asked for (NULL: any)? */
int objstore_check_etag(const char *wanted, const char *is, struct err *err) MUST_CHECK;

#endif
