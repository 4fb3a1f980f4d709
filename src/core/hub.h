/*
 * hub.h - repositories of a Hub, without I/O: how they are named, and what one holds at a commit.
 *
 * A repository is `owner/name`, or of old a `name` alone, of one of three types. At a commit its
 * files never change. Each has git's id: of a regular file SHA-1 over "blob <size>\0" and the
 * content; a large one (Git LFS) is known by its SHA-256, and its git id is that of the small text
 * that stands for it, the pointer (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md).
 * Folders are git trees: their ids follow from what is in them.
 */
#ifndef HUB_H
#define HUB_H

#include "base/arena.h"
#include "base/hash.h"

#define HUB_OID_LEN 20
#define HUB_COMMIT_HEX 40
#define HUB_ID_MAX 193      /* owner/name */
#define HUB_PART_MAX 96     /* of an id */
#define HUB_REV_MAX 256     /* bytes of a branch's or a tag's name */
#define HUB_POINTER_CAP 160 /* bytes of a pointer, and NUL */
#define HUB_DEPTH_MAX 100   /* folders in each other: each is a call */
#define HUB_LISTING_MAX ((size_t)256 << 20)
#define HUB_SECRET "hf_access_token" /* of a team: its token of the other Hub */

enum hub_type { HUB_MODELS, HUB_DATASETS, HUB_SPACES };
const char *hub_type_word(enum hub_type t);   /* "models": in paths of the API */
const char *hub_type_prefix(enum hub_type t); /* "", "datasets/", "spaces/": in other paths */
bool hub_type_parse(struct str word, enum hub_type *out);

bool hub_part_ok(struct str part); /* an owner, or a name */
/* Addresses, and what clients call a repository, begin with a type's name, and those of what jobs
 * serve with "deployments": who has it has no repository that could be asked for. */
bool hub_owner_is_type(struct str owner);
bool hub_id_ok(struct str id); /* owner/name or name */
/* As people type it: "owner/name" or "name", behind "datasets/", "spaces/" or nothing. *id lies in
 * `text`. False: it is no name. */
bool hub_typed_id(struct str text, enum hub_type *type, struct str *id);
bool hub_rev_ok(struct str rev); /* a branch, a tag or a commit: no control characters, bounded */
bool hub_commit_ok(struct str rev); /* 40 hex digits: what it names never changes */

/* Names of repositories differ in case for the eye only. */
const char *hub_lower(struct arena *a, const char *name);

struct hub_name { /* what a request asks for */
	enum hub_type type;
	const char *id, *rev;
};

struct hub_file {
	const char *path;
	uint64_t size; /* of the content */
	uint8_t oid[HUB_OID_LEN];
	bool lfs;
	struct digest sha256; /* of an LFS file */
};

struct hub_folder {
	const char *path;
	uint8_t oid[HUB_OID_LEN];
};

struct hub_listing { /* a repository at a commit */
	enum hub_type type;
	const char *id, *commit;
	const char *about;     /* a JSON object: what its Hub says of it beside the files; "{}" */
	struct hub_file *file; /* sorted by path */
	size_t n;
	struct hub_folder *folder; /* sorted by path; without the root */
	size_t n_folders;
	uint8_t root[HUB_OID_LEN]; /* of the folder that all is in */
	uint64_t bytes;
	bool is_private; /* what its owner says; never stored with it */
};

/* The text that stands for an LFS file in git; returns its length. */
size_t hub_pointer(const struct hub_file *f, char out[HUB_POINTER_CAP]);
/* Sorts the files, gives each LFS file the id of its pointer, and makes the folders. ERR_INVALID:
 * a path that is not plain or is there twice, a file where another one needs a folder. */
int hub_listing_finish(struct hub_listing *l, struct arena *a, struct err *err) MUST_CHECK;
/* Git's id of a regular file of these bytes; or of one that comes piece by piece. */
void hub_blob_id(struct str bytes, uint8_t oid[HUB_OID_LEN]);
struct hash *hub_blob_begin(uint64_t size) MUST_CHECK; /* then hash_add() */
void hub_blob_end(struct hash *h, uint8_t oid[HUB_OID_LEN]);

struct hub_commit {         /* what git says of a commit beside its files */
	const char *parent; /* 40 hex; NULL: it is the first */
	const char *author, *title, *message;
	int64_t ms;
};
/* The id that git gives it. What git's form has no room for in an author's name becomes '_'. */
void hub_commit_id(const struct hub_listing *l, const struct hub_commit *c,
                   char out[HUB_COMMIT_HEX + 1]);

const struct hub_file *hub_listing_file(const struct hub_listing *l, struct str path);
const struct hub_folder *hub_listing_folder(const struct hub_listing *l, struct str path);

/* A finished one, with all that it points to. */
void hub_listing_copy(const struct hub_listing *l, struct arena *a, struct hub_listing *out);

/* As JSON, the same bytes for the same listing; read again it is finished. */
void hub_listing_write(const struct hub_listing *l, struct buf *out);
int hub_listing_read(struct arena *a, struct str json, struct hub_listing *out,
                     struct err *err) MUST_CHECK;

#endif
