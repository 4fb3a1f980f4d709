/*
 * artifact_impl.h - what the files of the artifact faces share: artifact.c (ccache and Bazel),
 * artifact_webdav.c and artifact_s3.c (files by path, as sccache asks for them).
 */
#ifndef ARTIFACT_IMPL_H
#define ARTIFACT_IMPL_H

#include "face/face.h"

const char *artifact_namespace(const struct request *rq); /* the first argument of the path */
/* GET and HEAD: content with its digest as ETag, ranges. */
int artifact_send(struct request *rq, const struct artifact_name *name, struct err *err) MUST_CHECK;
/* The body of the request, of `size` bytes, from `from`. */
int artifact_store(struct request *rq, const struct artifact_name *name, uint64_t size,
                   const struct repo_bytes *from, bool *fresh, struct err *err) MUST_CHECK;
/* The same of a request whose Content-Length says the size. ERR_LENGTH_REQUIRED. */
int artifact_store_body(struct request *rq, const struct artifact_name *name, bool *fresh,
                        struct err *err) MUST_CHECK;
int artifact_delete(struct request *rq, const struct artifact_name *name,
                    struct err *err) MUST_CHECK;
int artifact_done(struct request *rq, int status); /* no body */

/* artifact_webdav.c */
int webdav_get(struct request *rq, struct err *err) MUST_CHECK;
int webdav_put(struct request *rq, struct err *err) MUST_CHECK;
int webdav_delete(struct request *rq, struct err *err) MUST_CHECK;
int webdav_propfind(struct request *rq, struct err *err) MUST_CHECK;
int webdav_mkcol(struct request *rq, struct err *err) MUST_CHECK;
int webdav_options(struct request *rq, struct err *err) MUST_CHECK;

#endif
