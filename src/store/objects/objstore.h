/*
 * objstore.h - named blobs of bytes behind one small interface.
 *
 * A driver is one .c file that defines one `const struct objstore_ops`, listed in the table of
 * objstore.c; it has no header. Callers use the objstore_*() functions, never ops: they check
 * arguments, count, and put the store and key in front of every error. Thread-safe.
 *
 *   dir:/path                      a directory; keys are paths below it
 *   s3:https://host[:port]/bucket[/prefix]
 *                                  any S3-compatible store, path style; keys from objstore_env
 *   signed:                        the same for one who has no keys: somebody else signs each
 *                                  request (objstore_env.signer); it cannot list
 *   passed:/path/of.sock           a folder of another process of this machine, which opens its
 *                                  files for us (passing.h); it cannot list, and has no parts
 *   mem:                           for tests
 *   fault:<n>:<url>                fails the n-th call of <url>'s store
 */
#ifndef OBJSTORE_H
#define OBJSTORE_H

#include "base/fs.h"
#include "base/hash.h"
#include "base/outage.h"
#include "io/client.h"
#include "io/sigv4.h"

#define OBJSTORE_KEY_MAX 1024
#define OBJSTORE_BODY_MAX ((size_t)64 << 20) /* larger objects travel from a file, or as parts */
#define OBJSTORE_PARTS_MAX 10000
#define OBJSTORE_PART_MIN ((uint64_t)5 << 20)

struct objstore; /* opaque to callers; drivers see objstore_impl.h */

/* One request to an S3 store, to be signed for somebody who has no keys. */
struct objstore_request {
	enum http_method method;
	const char *key;
	const char *query;     /* encoded, without '?'; NULL: none */
	const char *copy_from; /* the key that a PUT copies; NULL: it does not */
	int64_t expires_s;
};
struct objstore_signed {
	const char *url;         /* the whole request but for its body and headers of ranges */
	const char *copy_source; /* value of the header x-amz-copy-source; NULL: none */
	/* Of OBJSTORE_NO_COPY, which is signed too, so that nobody makes a copy of a request that
	 * is none: some stores (MinIO) take a source that was not signed. NULL: none. */
	const char *no_copy;
};
#define OBJSTORE_NO_COPY "x-amz-copy-source-if-match"
/* Of a put that is signed by headers: MinIO unpacks a tar archive that comes with "true" here,
 * under the keys of the whole bucket that the archive names, whether this was signed or not. */
#define OBJSTORE_UNPACK "x-amz-meta-snowball-auto-extract"

struct objstore_env { /* what s3, signed and passed need; zeroed for the others */
	struct http_client *client;
	struct sigv4_key key; /* access_key NULL: unsigned requests */
	/* of signed: called for every try of every request, from any thread */
	int (*signer)(void *arg, struct arena *a, const struct objstore_request *rq,
	              struct objstore_signed *out, struct err *err);
	void *signer_arg;
	const char *token; /* of passed: who we are */
	/* Set by another thread: every call ends, ERR_CANCELED, within a second. May be NULL. */
	const atomic_bool *cancel;
};

struct objstore_info {
	uint64_t size;
	int64_t modified_ms;
	char etag[80]; /* without quotes; "" = none */
};

int objstore_open(struct objstore **out, const char *url, const struct objstore_env *env,
                  struct err *err) MUST_CHECK;
void objstore_close(struct objstore *os); /* NULL is fine */
#define OBJSTORE_WHY_MAX 500
/* By what calls have shown, each after its own tries: is it away, full, or does it refuse our keys,
 * and why. One that is a folder never is. */
void objstore_outage(struct objstore *os, struct outage *out, char why[OBJSTORE_WHY_MAX]);
/* The same in a few words, behind "the object store": "is full". NULL: it is not away. */
const char *objstore_state(struct objstore *os);
DEFINE_CLEANUP(struct objstore, objstore_close)
#define AUTO_OBJSTORE CLEANUP(objstore_close_p)

/* A key: 1 to 1024 bytes, plain parts between '/', no control characters. */
int objstore_check_key(struct str key, struct err *err) MUST_CHECK;

/* Append the object to out. ERR_NOT_FOUND if there is none. */
int objstore_get(struct objstore *os, const char *key, struct buf *out, struct err *err) MUST_CHECK;
/* All or nothing and durable: a reader sees the old object or the new one. */
int objstore_put(struct objstore *os, const char *key, struct str body, struct err *err) MUST_CHECK;
/* `size` bytes of fd from its start; sha256 (may be NULL) is what they must hash to, ERR_CORRUPT
 * otherwise and nothing is stored. *sha256_out (may be NULL) is what was stored. Large files go in
 * parallel parts. progress (may be NULL) gets bytes stored so far. */
int objstore_put_file(struct objstore *os, const char *key, int fd, uint64_t size,
                      const struct digest *sha256, struct digest *sha256_out,
                      void (*progress)(void *arg, uint64_t bytes), void *arg,
                      const atomic_bool *cancel, struct err *err) MUST_CHECK;
/* The same from a reader (as http_call.read), which is read to its end and must give `size` bytes
 * (UINT64_MAX = until its end): what it refuses, even with its last call, is not stored. *info
 * (may be NULL) is the new object; its etag is the MD5, unless a store had to take it in parts. */
int objstore_put_stream(struct objstore *os, const char *key, uint64_t size,
                        int (*read)(void *arg, void *p, size_t cap, size_t *n, struct err *err),
                        void *arg, struct objstore_info *info, struct err *err) MUST_CHECK;
/* Same content, new key, without moving bytes where the store can (hard link, server-side copy). */
int objstore_copy(struct objstore *os, const char *from, const char *to,
                  struct err *err) MUST_CHECK;
/* The same of n objects, for less than one by one: all are durable when it returns. When one fails,
 * some of the others have been copied. */
struct objstore_pair {
	const char *from, *to;
};
int objstore_copy_all(struct objstore *os, const struct objstore_pair *pair, size_t n,
                      struct err *err) MUST_CHECK;
int objstore_stat(struct objstore *os, const char *key, struct objstore_info *out,
                  struct err *err) MUST_CHECK;
/* `count` bytes from `first` to the sink. */
int objstore_read(struct objstore *os, const char *key, uint64_t first, uint64_t count,
                  int (*sink)(void *arg, const void *p, size_t n, struct err *err), void *arg,
                  const atomic_bool *cancel, struct err *err) MUST_CHECK;
/* The same of the version with this ETag (of objstore_info): ERR_CONFLICT once it is replaced. */
int objstore_read_same(struct objstore *os, const char *key, const char *etag, uint64_t first,
                       uint64_t count,
                       int (*sink)(void *arg, const void *p, size_t n, struct err *err), void *arg,
                       const atomic_bool *cancel, struct err *err) MUST_CHECK;
/* A descriptor to read the object from, for sendfile. ERR_UNSUPPORTED where there is none. */
int objstore_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
                struct err *err) MUST_CHECK;
/* The object becomes a file `name` in this folder, too, without moving bytes: it is read-only, and
 * one with the object. ERR_UNSUPPORTED where that cannot be (another file system, or a store
 * without files): then it has to be copied. ERR_CONFLICT: there is a file of that name. */
int objstore_link(struct objstore *os, const char *key, int dirfd, const char *name,
                  struct err *err) MUST_CHECK;
/* The other way round: the file `path` below the folder becomes the object, too. It must never be
 * written again. ERR_UNSUPPORTED as above. */
int objstore_adopt(struct objstore *os, const char *key, int dirfd, const char *path,
                   struct err *err) MUST_CHECK;
/* For passing.h: a file of the store's own that is no object yet, open for writing; its name is for
 * the next two calls alone. ERR_UNSUPPORTED where there are no files. */
#define OBJSTORE_BLANK_CAP 96
int objstore_blank(struct objstore *os, char name[OBJSTORE_BLANK_CAP], int *fd,
                   struct err *err) MUST_CHECK;
/* It becomes this object, as by objstore_put; fd is open on it. A failure leaves it. etag: hex of
 * an MD5 that the caller knows, or "". */
int objstore_publish(struct objstore *os, const char *name, int fd, const char *key,
                     const char *etag, struct objstore_info *info, struct err *err) MUST_CHECK;
/* NULL: all that there are, which a process that was killed had made. */
void objstore_discard(struct objstore *os, const char *name);
/* Lets somebody else do this request until it expires (1 s to SIGV4_PRESIGN_MAX_S).
 * ERR_UNSUPPORTED where the store is not spoken to by HTTP. */
int objstore_presign(struct objstore *os, struct arena *a, const struct objstore_request *rq,
                     struct objstore_signed *out, struct err *err) MUST_CHECK;
/* Lets somebody else put the bytes of this SHA-256 (hex) there, as often as he likes: the store
 * takes no others, and no copy of another object. It has to begin within OBJSTORE_PUT_S by the
 * store's clock. ERR_UNSUPPORTED as above. */
#define OBJSTORE_PUT_S (15 * 60) /* S3's own rule */
struct objstore_put {
	const char *url;
	struct http_header header[6]; /* all of them are to be sent */
	size_t n_header;
};
int objstore_sign_put(struct objstore *os, struct arena *a, const char *key, const char *sha256,
                      struct objstore_put *out, struct err *err) MUST_CHECK;
/* Keys that start with prefix, after `after` (may be NULL), in order, at most max (<= 1000).
 * *more: there are further ones. */
int objstore_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                  void (*each)(void *arg, const char *key, const struct objstore_info *info),
                  void *arg, bool *more, struct err *err) MUST_CHECK;
/* Deleting what is not there succeeds. */
int objstore_del(struct objstore *os, const char *key, struct err *err) MUST_CHECK;
/* The same of n objects, for less than one by one. When one fails, *at (may be NULL) is its number:
 * those before it are deleted, of those behind it some may be. */
int objstore_del_all(struct objstore *os, const char *const *key, size_t n, size_t *at,
                     struct err *err) MUST_CHECK;

/* Deletes all objects whose key starts with prefix, but for those that start with `but` (NULL: none
 * stays). cancel: stops between two pages, ERR_CANCELED if more is left; NULL: never. */
int objstore_del_below(struct objstore *os, const char *prefix, const char *but,
                       const atomic_bool *cancel, struct err *err) MUST_CHECK;

/* Parts: for what arrives in pieces, in any order. An upload that is neither completed nor aborted
 * is invisible; objstore_sweep removes those older than max_age_s, or only counts them. */
#define OBJSTORE_UPLOAD_CAP 512 /* AWS gives ids of 130 and more characters */
int objstore_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                         struct err *err) MUST_CHECK;
/* Bytes come from `read` as in objstore_put_stream. Putting a number again replaces it; what fails
 * leaves the one before, or, where it is large and the store keeps what was cut, one that
 * objstore_parts_end refuses. etag: MD5 hex of the part. */
int objstore_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                       uint64_t size,
                       int (*read)(void *arg, void *p, size_t cap, size_t *n, struct err *err),
                       void *arg, char etag[80], struct err *err) MUST_CHECK;
struct objstore_part {
	uint32_t number;
	char etag[80];
};
/* Parts in ascending order. ERR_INVALID "InvalidPart: ..." / "InvalidPartOrder: ..." */
int objstore_parts_end(struct objstore *os, const char *key, const char *id,
                       const struct objstore_part *parts, size_t n, struct objstore_info *info,
                       struct err *err) MUST_CHECK;
int objstore_parts_abort(struct objstore *os, const char *key, const char *id,
                         struct err *err) MUST_CHECK;
struct objstore_swept {
	uint64_t uploads, bytes; /* bytes: 0 where the store does not say */
};
int objstore_sweep(struct objstore *os, int64_t max_age_s, bool dry_run, struct objstore_swept *out,
                   struct err *err) MUST_CHECK;

#endif
