/*
 * maintenance.h - what an administrator asks for by hand: collecting what nothing uses any more,
 * and reading again what is stored. One task at a time, on one thread whose reads and writes wait
 * behind everybody else's (idle I/O class); it is remembered until the next one begins. Killed in
 * the middle, nothing is lost: each thing is removed or set aside by itself, and the next task
 * finds the rest.
 */
#ifndef MAINTENANCE_H
#define MAINTENANCE_H

#include "server/app.h"

#define MAINTENANCE_ITEMS_MAX 10000 /* that are named; further ones are counted */
#define MAINTENANCE_AGE_MAX_S (10LL * 365 * 24 * 3600)

struct maintenance_task;

void maintenance_start(struct app *app);
void maintenance_stop(struct app *app); /* ends what runs, joins */
void maintenance_free(struct app *app);

/* For the two below: how far a task is, and what it found. */
const struct maintenance_want *maintenance_want_of(const struct maintenance_task *t);
/* Somebody asked it to stop, or the server is being stopped. */
bool maintenance_is_over(struct maintenance_task *t);
int maintenance_go_on(struct maintenance_task *t,
                      struct err *err) MUST_CHECK; /* ERR_CANCELED when it is */
/* After an error: a moment's wait, and *err is clear, if it is one that passes (a store that is
 * away). -1: it is not, or it is over, or *stop (may be NULL). */
int maintenance_wait(struct maintenance_task *t, const atomic_bool *stop,
                     struct err *err) MUST_CHECK;
/* A step of readers (blobs_verify, ...): counts, and fails as maintenance_go_on. arg: the task. */
int maintenance_step(void *arg, size_t bytes, struct err *err) MUST_CHECK;
void maintenance_add_total(struct maintenance_task *t, uint64_t bytes);
void maintenance_doing(struct maintenance_task *t, const char *fmt, ...) PRINTF(2, 3);
void maintenance_note(struct maintenance_task *t, const char *fmt, ...) PRINTF(2, 3);
void maintenance_found(struct maintenance_task *t,
                       const struct maintenance_item *x); /* is copied */

/* maintenance_gc.c: never what a running or waiting job needs, nor what lies in a project's cache.
 */
int maintenance_gc(struct app *app, struct maintenance_task *t, struct err *err) MUST_CHECK;
void maintenance_gc_due(struct app *app); /* what it is time for: the janitor's */
/* maintenance_verify.c: mirrored weights, copies of them on the node, complete checkpoints. */
int maintenance_verify(struct app *app, struct maintenance_task *t, struct err *err) MUST_CHECK;
/* The rows that name the manifest (hex) are no longer ready: the next job that asks fetches again.
 * why NULL: they are, for the object store has what the folder has lost. *source: of one of them.
 */
int maintenance_fail_mirrors(struct app *app, struct arena *a, const char *hex, const char *why,
                             const char **source, struct err *err) MUST_CHECK;

/* maintenance_objects.c: weights in the object store. */
struct maintenance_objects;
/* Counts what is there. *out NULL: weights are not kept there. */
int maintenance_list_objects(struct app *app, struct maintenance_task *t,
                             struct maintenance_objects **out, struct err *err) MUST_CHECK;
/* Is all there that these weights need? */
int maintenance_check_kept(struct maintenance_objects *o, const struct model_mirror *x,
                           struct err *err) MUST_CHECK;
int maintenance_verify_objects(struct maintenance_objects *o, struct err *err) MUST_CHECK;
void maintenance_objects_free(struct maintenance_objects *o);

/* *has: an object of the size of this file is there; *mended: it was not, and was put there again
 * from the folder. */
int maintenance_has_object(struct maintenance_objects *o, const struct manifest_file *f, bool *has,
                           bool *mended, struct err *err) MUST_CHECK;

/* maintenance_repos.c: files of repositories. */
enum maintenance_loss {
	LOSS_DAMAGED,   /* it was in the folder, and nowhere else */
	LOSS_IN_FOLDER, /* the object store has it */
	LOSS_REMOVED,   /* from the object store; the folder does not have it */
	LOSS_LEFT,      /* there: somebody relies on it just now */
	LOSS_UNREAD,
	LOSS_MENDED,   /* there; the folder had it */
	LOSS_RESTORED, /* there: it was missing; the folder had it */
	LOSS_MISSING,
	LOSS_LIST, /* it is what names all others */
};
/* In words, for weights as well. */
#define MAINTENANCE_UNREADABLE "it cannot be read in the object store: left there"
#define MAINTENANCE_MENDED "damaged in the object store: put there again from the folder"
/* Is this manifest (hex) of a commit, or of an upload to a repository? Of which one. */
int maintenance_repo_of(struct app *app, struct arena *a, const char *hex, struct model_repo *out,
                        bool *is_one, struct err *err) MUST_CHECK;
/* Tells of a file of this manifest (hex), once under each name (`told`). !*is_one: the manifest is
 * no commit, and no upload to a repository. */
int maintenance_tell_repo(struct app *app, struct maintenance_task *t, struct map *told,
                          const char *hex, const struct manifest_file *f,
                          enum maintenance_loss loss, bool *is_one, struct err *err) MUST_CHECK;
/* Is all there that commits name? objects NULL: in the folder. */
int maintenance_check_repos(struct app *app, struct maintenance_task *t,
                            struct maintenance_objects *objects, struct err *err) MUST_CHECK;

/* maintenance_read.c: what an object hashes to, as its disk or its store has it. An outage is
 * waited out. *n: its length; *got only counts when that is `size`. seen: which version that was;
 * may be NULL. ERR_IO: it cannot be read. */
struct maintenance_read {
	struct app *app;
	struct maintenance_task *t;
	const char *key;
	uint64_t size;
	const atomic_bool *stop; /* may be NULL */
};
int maintenance_read_object(const struct maintenance_read *rd, struct digest *got, uint64_t *n,
                            struct objstore_info *seen, struct err *err) MUST_CHECK;

/* maintenance_ckpt.c: its share of the above. */
int maintenance_count_checkpoints(struct app *app, struct maintenance_task *t,
                                  struct err *err) MUST_CHECK;
int maintenance_verify_checkpoints(struct app *app, struct maintenance_task *t,
                                   struct err *err) MUST_CHECK;

#endif
