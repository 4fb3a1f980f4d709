/*
 * hub_commit_write.h - the other side of hub_commit.h: a commit as lines of JSON, piece by piece
 * into a buffer that its owner empties as it likes.
 */
#ifndef HUB_COMMIT_WRITE_H
#define HUB_COMMIT_WRITE_H

#include "base/buf.h"

struct hub_commit_writer {
	struct buf *out;
	unsigned char rest[3]; /* of a content, until three bytes are there */
	size_t n_rest;
};

/* The first line. add_only: a path that is there stays as it is (an extension of this server's). */
void hub_commit_write_header(struct hub_commit_writer *w, const char *summary,
                             const char *description, bool add_only);
/* A file: begun, its content in any pieces, ended. */
void hub_commit_write_file(struct hub_commit_writer *w, const char *path);
void hub_commit_write_content(struct hub_commit_writer *w, const void *p, size_t n);
void hub_commit_write_end(struct hub_commit_writer *w);
/* What goes: a file, or a folder with all that is in it. */
void hub_commit_write_deleted(struct hub_commit_writer *w, const char *path, bool folder);

#endif
