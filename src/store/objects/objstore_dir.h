/*
 * objstore_dir.h - what the two files of the directory driver share: objstore_dir.c (objects) and
 * objstore_dir_parts.c (uploads in parts).
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
#define DIR_TMP_CAP 96 /* "o-<id>", "u-<id>/<part>.<id>" */
#define DIR_ID_LEN 20

struct dirstore {
	struct objstore base;
	int root, tmp;
};

/* No key of the store's own. ERR_INVALID. */
int dir_check_key(const char *key, struct err *err) MUST_CHECK;
/* A new temporary file; its name is relative to d->tmp. fd or -1. */
int dir_tmp(struct dirstore *d, char name[DIR_TMP_CAP], struct err *err) MUST_CHECK;
/* The temporary file, written by now, becomes the object: durable, all or nothing. etag "" = none
 * known. On failure the temporary file is left to the caller. */
int dir_publish(struct dirstore *d, int fd, const char *name, const char *key, const char *etag,
                struct objstore_info *info, struct err *err) MUST_CHECK;
/* Reads to the end, writes from `at`, *size bytes of MD5 *etag. */
int dir_receive(int fd, uint64_t at, uint64_t expect, objstore_read_fn *read, void *arg,
                uint64_t *size, char etag[80], struct err *err) MUST_CHECK;

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
