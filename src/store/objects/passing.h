/*
 * passing.h - lets processes of this machine read, write and link files of a folder that they
 * cannot open: its owner opens each for them, after a look at who asks, and passes the descriptor
 * (unix(7)). The bytes are theirs to move: the owner copies none, and one machine keeps one copy.
 * The other end is the driver "passed" of objstore.h.
 *
 * The protocol: a socket of whole messages (SOCK_SEQPACKET), one question and one answer at a time.
 * A question is wire_pass, an answer wire_passed. The verbs:
 *
 *   open KEY           -> size, modified_ms, etag, and a descriptor to read it by
 *   create KEY         -> a descriptor of an empty file to write to; it becomes the object by
 *   commit KEY etag       on the same connection, once nobody has it open for writing any more
 *                         (ERR_BUSY until then, and while too many others are committed: again); a
 *                         connection has one such file, and with it goes what was not committed.
 *                         With to "next" the answer brings the next empty file along
 *   copy KEY to
 *   delete KEY
 *   link KEY to +fd    one more name for the object's file, in the folder whose descriptor comes
 *                      along: only in one that belongs to the user who asks, or to root's caller
 */
#ifndef PASSING_H
#define PASSING_H

#include "store/blobs/blob.h"
#include "store/objects/objstore.h"

struct passing;

enum passing_right { PASSING_READ, PASSING_WRITE };

struct passing_options {
	const char *path;         /* of the socket; its folder is there */
	struct objstore *objects; /* NULL: none; one that has files, else all fails, UNSUPPORTED */
	/* What is kept by content is looked for here first, under the keys of blob_objects.h; NULL:
	 * none. It is read and linked, never written. */
	struct blobs *blobs;
	/* From any thread: may who has this token do so? An error is the answer. */
	int (*may)(void *arg, struct str token, enum passing_right right, const char *key,
	           struct err *err);
	void *arg;
	/* NULL, or a folder whose files and folders callers may know by mounts of their own, as
	 * another user has them: what is linked is linked into it. Ours is a root process then. */
	const char *shown;
	/* 0, or who owns what is linked, from then on: nobody who asks, so that they can read it
	 * and take their name for it away, but not change it. */
	uid_t owner;
	/* How long one that asks nothing is kept; 0: PASSING_IDLE_MS, PASSING_STRANGER_MS. */
	int64_t idle_ms, stranger_ms;
};

#define PASSING_CONNS_MAX 1024  /* more are hung up on, and try again */
#define PASSING_CONNS_OF_ONE 64 /* with one token */
#define PASSING_IDLE_MS (600 * 1000)
#define PASSING_STRANGER_MS (10 * 1000) /* of one that has not shown a token that may something */
#define PASSING_THREADS 8
/* Whoever writes a file this large syncs it before it is committed. */
#define PASSING_LARGE ((off_t)8 << 20)

/* Removes what an earlier one left in the folder that was killed: there is one at a time. */
int passing_start(struct passing **out, const struct passing_options *o,
                  struct err *err) MUST_CHECK;
/* Ends when the questions that are being answered are; NULL is fine. */
void passing_stop(struct passing *p);

#endif
