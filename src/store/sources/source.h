/*
 * source.h - where weights come from: resolve the revision, list the files, read a range.
 *
 *   hf://[datasets/]owner/repo[@rev][/folder]   any Hub endpoint (spec of the Hub protocol)
 *   s3://bucket/prefix                          any endpoint
 *   https://host/path                           one file (http:// too; job specs do not take it)
 *   gs://bucket/prefix                          Google Cloud Storage
 *   azure://account/container/prefix            Azure Blob Storage
 *   r2://account.bucket/prefix, cw://bucket/prefix    stores of Cloudflare and CoreWeave
 *   file:///path                                only below folders that the administrator allows
 *   bt://...                                    objects of a store of ours, see source_objects()
 *
 * A driver is one .c file with one const struct source_ops in the table of source.c.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "base/doc.h"
#include "base/hash.h"
#include "core/glob.h"
#include "core/hub.h"
#include "core/spec.h"
#include "io/client.h"
#include "store/objects/objstore.h"
#include "store/sources/credential.h"

#define SOURCE_FILES_MAX 1000000

struct source_options {
	struct http_client *client;    /* guarded: see client.h */
	const char *endpoint;          /* of this source; NULL: its scheme's */
	const char *hf_endpoint;       /* of hf://; NULL: https://huggingface.co */
	const char *s3_endpoint;       /* of s3://; NULL: https://s3.<region>.amazonaws.com */
	const char *const *file_roots; /* folders that file:// may read */
	size_t n_file_roots;
	struct str secret; /* token (hf, https) or JSON of keys (s3); empty = anonymous */
	enum spec_weights_auth auth;
	const char *role, *role_at; /* as in struct spec_weights */
	/* Of a source that wants web identity; outlives it. */
	const struct identity_token *identity;
	int64_t stall_ms; /* a body that stands still this long is given up; 0 = 30 s */
	/* Ends source_list(), which may wait for minutes when it is asked to; may be NULL, else it
	 * lives as long as the source. */
	const atomic_bool *cancel;
	/* When source_list(), and what else asks a Hub, is given up; on the monotonic clock, 0:
	 * never. A server that drips would hold a thread for ever. */
	int64_t ask_until_ms;
	bool about;            /* listings say what a Hub says of the revision */
	bool may_be_empty;     /* a source without files is listed, not refused */
	int retry_after_max_s; /* who asks to be left alone for longer is given up; 0: 600 */
};

/* Why a Hub refused what was asked last; the error's class is coarser. */
enum source_refusal {
	SOURCE_NOT_REFUSED, /* or for another reason */
	SOURCE_NO_REPOSITORY,
	SOURCE_GATED,
	SOURCE_NO_REVISION,
	SOURCE_NO_ENTRY,
};

struct source_file {
	const char *path; /* plain, relative */
	uint64_t size;
	/* The digest that the source promises. HASH_SHA1 is git's blob id, that is over
	 * "blob <size>\0" and the content. */
	enum hash_kind kind;
	uint8_t id[32];
	bool has_id;
	const char *etag; /* pins the ranges of one file; NULL = none */
};

struct source_listing {
	const char *revision;     /* commit SHA, or a digest over paths, sizes and etags */
	const char *about;        /* a JSON object, as its Hub sent it; NULL: nobody asked */
	struct source_file *file; /* after the filter, sorted by path */
	size_t n;
	uint64_t bytes;
};

struct source_hf_name { /* what an hf:// source names */
	enum hub_type type;
	const char *id, *rev; /* rev: decoded; "main" when none is said */
	const char *folder;   /* "": all of it */
};
/* url: with "hf://" or without. ERR_INVALID. */
int source_hf_name(struct arena *a, struct str url, struct source_hf_name *out,
                   struct err *err) MUST_CHECK;

struct source; /* opaque; drivers see source_impl.h */

int source_open(struct source **out, const char *url, const struct source_options *o,
                struct err *err) MUST_CHECK;
/* Files in an object store of ours; what is given is copied, but for the store. ERR_CORRUPT: two of
 * them have one path. */
struct source_object {
	const char *path, *key;
	uint64_t size;
	struct digest sha256;
};
struct source_objects {
	struct objstore *store;
	const struct source_object *object;
	size_t n;
	const char *revision;
};
int source_open_objects(struct source **out, const char *url, const struct source_objects *from,
                        const struct source_options *o, struct err *err) MUST_CHECK;
void source_close(struct source *s);
DEFINE_CLEANUP(struct source, source_close)
#define AUTO_SOURCE CLEANUP(source_close_p)
const char *source_name(const struct source *s); /* its URL without query, for messages */
/* Is it there, as far as that can be told at once: without the network, without a walk? Errors are
 * those of source_list(). */
int source_check(struct source *s, struct err *err) MUST_CHECK;
/* Resolves and lists; `revision` (may be NULL) asks for one that was frozen before. Errors name the
 * source and say what to do: ERR_AUTH "401 ... set auth_secret_name", ERR_NOT_FOUND, ERR_INVALID
 * when the filter leaves nothing. */
int source_list(struct source *s, struct arena *a, const struct glob_filter *filter,
                const char *revision, struct source_listing *out, struct err *err) MUST_CHECK;
/* What the revision in the URL is now, without a listing; a listing of it may follow.
 * ERR_UNSUPPORTED: the source has no revisions of its own. */
struct source_head {
	const char *revision;
	const char *about; /* as of a listing */
};
int source_resolve(struct source *s, struct arena *a, struct source_head *out,
                   struct err *err) MUST_CHECK;
/* Does a Hub admit the token to what is gated in the repository? Where it cannot be asked that, to
 * this file of the revision in the URL, a commit or one that was resolved. Refused as a read would
 * be, but no byte travels. */
int source_admits(struct source *s, const char *path, struct err *err) MUST_CHECK;
enum source_refusal source_refusal(const struct source *s);
/* A Hub's branches and tags, as it sent them. ERR_UNSUPPORTED: the source is no Hub. */
int source_refs(struct source *s, struct arena *a, const struct doc **out,
                struct err *err) MUST_CHECK;
/* One try: exactly `count` bytes from `first` (xfer.h does the trying again). Needs a listing
 * before, or a Hub's commit in the URL. ERR_UNSUPPORTED: the server has no ranges, ask for the
 * whole file. ERR_CONFLICT: it is not the file that was listed. ERR_RANGE, ERR_AUTH... as the
 * server said. */
int source_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                const struct http_sink *to, const atomic_bool *cancel, struct err *err) MUST_CHECK;
/* The whole file gets one more name, in the folder of that descriptor, and no byte is read: it is
 * nobody's to write any more. ERR_UNSUPPORTED: it has to be read. */
bool source_links(const struct source *s); /* else it never has such a file */
int source_link(struct source *s, const struct source_file *f, int dirfd, const char *name,
                struct err *err) MUST_CHECK;

#endif
