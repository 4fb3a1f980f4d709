/*
 * artifact.h - names of what compilers and build tools keep by a key of their own, without I/O: the
 * paths that each tool asks for, and the one name that an artifact has in its namespace.
 *
 *   ccache    KEY, ab/REST, ac/KEY24 in three layouts: one key, one name
 *   Bazel     [INSTANCE/]ac/SHA256, [INSTANCE/]cas/SHA256: content has no instance
 *   files     any plain path: what sccache asks for, by WebDAV or S3
 */
#ifndef CORE_ARTIFACT_H
#define CORE_ARTIFACT_H

#include "base/hash.h"

#define ARTIFACT_PATH_MAX 512 /* bytes behind the namespace */
#define ARTIFACT_NAME_CAP (ARTIFACT_PATH_MAX + 16)

enum artifact_kind {
	ARTIFACT_CCACHE,
	ARTIFACT_ACTION,  /* Bazel: what an action has made, by the digest of the action */
	ARTIFACT_CONTENT, /* Bazel: bytes by their own digest */
	ARTIFACT_FILE,
	ARTIFACT_KINDS,
};
extern const char *const artifact_kind_word[ARTIFACT_KINDS]; /* for labels */

struct artifact_name {
	enum artifact_kind kind;
	char text[ARTIFACT_NAME_CAP]; /* unique in a namespace */
	struct digest sha256;         /* ARTIFACT_CONTENT: what the bytes must be */
};

/* Of a decoded path behind the namespace. ERR_ARTIFACT_KEY says what was expected. */
int artifact_ccache_name(struct str path, struct artifact_name *out, struct err *err) MUST_CHECK;
int artifact_bazel_name(struct str path, struct artifact_name *out, struct err *err) MUST_CHECK;
int artifact_file_name(struct str path, struct artifact_name *out, struct err *err) MUST_CHECK;
enum artifact_kind artifact_kind_of(const char *name); /* of a name that these have made */
/* Content that an action names. */
void artifact_content_name(const struct digest *sha256, struct artifact_name *out);

/* The most that each of n may have, so that they fit together and those that have less keep all of
 * it; UINT64_MAX: they fit as they are. Sorts them. */
uint64_t artifact_level(uint64_t *takes, size_t n, uint64_t fit);

#endif
