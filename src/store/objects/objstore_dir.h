/*
 * objstore_dir.h - what the files of the directory driver share: objstore_dir.c (objects),
 * objstore_dir_names.c (copies, links, files of others) and objstore_dir_parts.c (uploads in
 * parts).
 *
 *   <root>/<key>                 an object; xattr user.stoker.etag is "<etag> <size> <mtime ns>"
 *   <root>/.tmp/o-<id>           being written
 *   <root>/.tmp/u-<id>/          an upload in parts, see objstore_dir_parts.c
 *
 * An object is written under a temporary name, synced, renamed, and its folder synced. No key
 * starts with ".tmp". Folders are made when needed and removed when empty. Links are not followed.
 * A file and a folder cannot have one name, so keys "a" and "a/b" exclude each other: ERR_CONFLICT.
 */
#ifndef OBJSTORE_DIR_H
#define OBJSTORE_DIR_H

#include "store/objects/objstore_impl.h"

#define DIR_TMP ".tmp"
#define DIR_TMP_CAP OBJSTORE_BLANK_CAP /* "o-<id>", "u-<id>/<part>.<id>" */
#define DIR_ID_LEN 20
#define DIR_OBJECT "o-"
#define DIR_BLANK "b-" /* <root>/.tmp/b-<id>: being written by another process */

struct dirstore {
	struct objstore base;
	int root, tmp;
};

/* No key of the store's own. ERR_INVALID. */
int dir_check_key(const char *key, struct err *err) MUST_CHECK;
/* A new temporary file, DIR_OBJECT or DIR_BLANK; its name is relative to d->tmp. fd or -1. */
int dir_tmp(struct dirstore *d, const char *prefix, char name[DIR_TMP_CAP],
            struct err *err) MUST_CHECK;
void dir_tmp_name(const char *prefix, char name[DIR_TMP_CAP]); /* nobody else has it */
/* The temporary file, written by now, becomes the object: durable, all or nothing. etag "" = none
 * known. On failure the temporary file is left to the caller. */
int dir_publish(struct dirstore *d, int fd, const char *name, const char *key, const char *etag,
                struct objstore_info *info, struct err *err) MUST_CHECK;
/* Reads to the end, writes from `at`, *size bytes of MD5 *etag. */
int dir_receive(int fd, uint64_t at, uint64_t expect, objstore_read_fn *read, void *arg,
                uint64_t *size, char etag[80], struct err *err) MUST_CHECK;

/* The folder that holds `key`, part by part and through no link; made when `make`. *leaf is the
 * key's last part. fd or -1: ERR_NOT_FOUND, ERR_CONFLICT when a part of it is an object. */
int dir_open_parent(struct dirstore *d, const char *key, bool make, const char **leaf,
                    struct err *err) MUST_CHECK;
/* The temporary file gets its name; not durable before *folder, which holds it, is synced. */
int dir_move_in(struct dirstore *d, const char *name, const char *key, int *folder,
                struct err *err) MUST_CHECK;
int dir_sync_folder(int fd, struct err *err) MUST_CHECK;
bool dir_is_one(int a, int b); /* one folder; one that is not open is none */
/* Publishes what rc says was written well; takes the temporary file away when it was not. */
int dir_end_tmp(struct dirstore *d, int fd, const char *name, const char *key, const char *etag,
                int rc, struct objstore_info *info, struct err *err) MUST_CHECK;
int dir_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
           struct err *err) MUST_CHECK;

/* objstore_dir_names.c */
/* One more name for a file: see objstore_link. */
int dir_link_at(int from, const char *path, int dirfd, const char *name,
                struct err *err) MUST_CHECK;
int dir_link(struct objstore *os, const char *key, int dirfd, const char *name,
             struct err *err) MUST_CHECK;
int dir_adopt(struct objstore *os, const char *key, int dirfd, const char *path,
              struct err *err) MUST_CHECK;
int dir_blank(struct objstore *os, char name[OBJSTORE_BLANK_CAP], int *fd,
              struct err *err) MUST_CHECK;
int dir_publish_blank(struct objstore *os, const char *name, int fd, const char *key,
                      const char *etag, struct objstore_info *info, struct err *err) MUST_CHECK;
void dir_discard(struct objstore *os, const char *name);
int dir_copy(struct objstore *os, const char *from, const char *to, struct err *err) MUST_CHECK;
int dir_copy_all(struct objstore *os, const struct objstore_pair *pair, size_t n, size_t *at,
                 struct err *err) MUST_CHECK;

/* For who has the file of an object, or one that becomes an object, from elsewhere
 * (objstore_passed.c). */
/* The bytes of f, hashed and compared as f says, to `to`, which is empty. */
int dir_write_file(const struct objstore_file *f, int to, struct digest *sha256, char etag[80],
                   struct err *err) MUST_CHECK;
int dir_get_fd(int fd, const struct objstore_info *info, struct buf *out,
               struct err *err) MUST_CHECK;
int dir_read_fd(int fd, const struct objstore_info *info, uint64_t first, uint64_t count,
                objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                struct err *err) MUST_CHECK;

int dir_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                    struct err *err) MUST_CHECK;
int dir_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                  uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
                  struct err *err) MUST_CHECK;
int dir_parts_end(struct objstore *os, const char *key, const char *id,
                  const struct objstore_part *parts, size_t n, struct objstore_info *info,
                  struct err *err) MUST_CHECK;
int dir_parts_abort(struct objstore *os, const char *key, const char *id,
                    struct err *err) MUST_CHECK;

#endif
