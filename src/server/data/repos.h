/*
 * repos.h - repositories that people write to, beside those of the Hub that is mirrored. They are
 * a user's (the name of a token) or a team's; a private one is there for its user, or its team,
 * alone. Who may see it and may not write is told so; for all others it is not there.
 *
 * A name is looked up in this order: what is the caller's team's; what is public of another team
 * and has a team's name; the other Hub; what is public of users of other teams. So whoever may
 * name tokens in one team does not decide what another team gets under a name of the other Hub.
 *
 * Each commit is a manifest, named by a ref of the kind "repo" (hub_repo.c keeps it), and its id is
 * the one that git would give it. What is known of names and branches is kept in memory, for this
 * server is the only one that writes.
 */
#ifndef SERVER_REPOS_H
#define SERVER_REPOS_H

#include "server/data/hub_impl.h"

enum repo_right { REPO_READ, REPO_WRITE };

enum repo_found {
	REPO_NONE,  /* or not for the caller's eyes */
	REPO_FIRST, /* it is what the name means */
	REPO_LAST,  /* it is, if the other Hub has none of the name */
};

/* The repository that a job's file means, OWNER/NAME: "name" alone is its user's. NULL: none can be
 * called so; the name of a token may be long, and have spaces. */
const char *repo_typed(struct arena *a, const char *typed, const char *user, enum hub_type *type);
/* The same as the key of a row: "models/owner/name", in lower case. "": none. */
const char *repo_push_key(struct arena *a, const char *typed, const char *user);
/* May the caller give a job the right to push there? `typed` as a job's file has it. */
int repo_may_give(const struct ask *ask, const char *team_id, const char *typed,
                  struct err *err) MUST_CHECK;
/* Whoever may see it; out->id NULL: there is none. *moved: under a name that it had. */
int repo_find(struct app *app, struct arena *a, enum hub_type type, const char *id,
              struct model_repo *out, bool *moved, struct err *err) MUST_CHECK;
/* Is this key among those that a job may push to? */
bool repo_names(const struct job_rights *job, const char *key);
/* ERR_ROLE_REQUIRED, in words. */
int repo_not_named(const struct ask *ask, enum hub_type type, const char *owner, const char *name,
                   struct err *err) MUST_CHECK;
bool repo_may(const struct ask *ask, const struct model_repo *r, enum repo_right right);
int repo_look(const struct ask *ask, enum hub_type type, const char *id, enum repo_found *how,
              struct model_repo *out, bool *moved, struct err *err) MUST_CHECK;
/* May the caller write at all? Members, and jobs, whose file says where. */
int repo_writer(const struct ask *ask, struct err *err) MUST_CHECK;
/* To write to it: ERR_HUB_REPO_NOT_FOUND, ERR_ROLE_REQUIRED. */
int repo_to_write(const struct ask *ask, enum hub_type type, const char *id, struct model_repo *out,
                  struct err *err) MUST_CHECK;
/* The commit that a branch, a tag, refs/heads/..., or a commit is. ERR_HUB_REVISION_NOT_FOUND. */
int repo_commit_of(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                   const char **out, struct err *err) MUST_CHECK;
/* Its listing there, held: as of hub_ops.open. */
int repo_open(struct app *app, const struct model_repo *r, const char *commit,
              struct hub_repo **out, struct err *err) MUST_CHECK;
/* The same, at a revision. */
int repo_open_at(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                 const struct hub_listing **out, struct err *err) MUST_CHECK;
void repo_close(struct app *app, struct hub_repo *r); /* what was opened; NULL is fine */
int repo_refs(struct app *app, struct arena *a, const struct model_repo *r, struct hub_refs *out,
              struct err *err) MUST_CHECK;

/* repo_commit.c, repo_upload.c: see repo_ops of face.h. */
int repo_open_to_write(const struct ask *ask, const struct hub_name *name, bool opens,
                       const struct hub_listing **out, struct err *err) MUST_CHECK;
bool repo_has(struct app *app, const struct hub_listing *l, const struct hub_file *f);
int repo_read_file(struct app *app, const struct hub_listing *l, const struct hub_file *f,
                   struct buf *out, struct err *err) MUST_CHECK;
int repo_commit_begin(const struct ask *ask, const struct hub_name *name, bool opens,
                      int64_t body_bytes, struct repo_change **out, struct err *err) MUST_CHECK;
struct hub_commit_sink repo_commit_sink(struct repo_change *c);
int repo_commit_end(struct repo_change *c, struct repo_committed *out, struct err *err) MUST_CHECK;
void repo_commit_free(struct repo_change *c);
int repo_upload_want(const struct ask *ask, const struct hub_name *name, struct repo_upload *u,
                     size_t n, struct err *err) MUST_CHECK;
int repo_upload_fits(const struct ask *ask, const struct hub_name *name, uint64_t *size, size_t n,
                     struct err *err) MUST_CHECK;
int repo_upload_put(struct app *app, const struct repo_upload *u, const struct repo_bytes *from,
                    struct err *err) MUST_CHECK;
int repo_upload_part(struct app *app, const struct repo_upload *u, uint64_t at, uint64_t n,
                     const struct repo_bytes *from, struct err *err) MUST_CHECK;
int repo_upload_join(struct app *app, const struct repo_upload *u, struct err *err) MUST_CHECK;
/* The bytes of a temporary file, whose digest is `is`: verified, a blob, and named by a ref from
 * now on. */
int repo_upload_publish(struct app *app, const struct repo_upload *u, const char *tmp, int fd,
                        const struct digest *is, struct blob_pins *pins,
                        struct err *err) MUST_CHECK;
/* A full disk, in an error of this upload: says what of; oid may be NULL. Returns rc. */
int repo_store_failed(struct app *app, const char *repo_id, const struct digest *oid, int rc,
                      struct err *err);
/* The repository of an address or a token that this server has given out. */
int repo_given_out(struct app *app, struct arena *a, const char *repo_id, struct model_repo *out,
                   struct err *err) MUST_CHECK;
/* What has failed leaves nothing; returns rc. */
int repo_upload_drop(struct app *app, const char *tmp, int rc, struct err *err);
/* The branch, or the pull request, that commits to `rev` go to; `opens`: a branch alone, and
 * everything else is ERR_HUB_REVISION_NOT_FOUND. */
int repo_branch_of(struct app *app, struct arena *a, const struct model_repo *r, const char *rev,
                   bool opens, struct model_repo_ref *out, struct err *err) MUST_CHECK;
/* ERR_HUB_PULL_ENDED. */
int repo_pull_is_open(const struct model_repo_pull *p, struct err *err) MUST_CHECK;
/* The number of refs/pr/N; 0: it is none. */
int64_t repo_pull_number(const char *text);

/* A commit of files that are here already, on the disk; nobody has heard of it yet. */
struct repo_made {
	struct model_repo_commit row;
	struct model_ref files;
	uint64_t list_bytes;      /* what its list of files takes, twice over: it counts, too */
	struct hub_own_files own; /* of what was given; for hub_own_add */
};
struct repo_making {
	struct arena *a; /* of all that is made */
	const struct model_repo *repo;
	struct hub_listing *l;       /* its files */
	bool finished;               /* l is; else that is done here */
	const struct digest *sha256; /* of each */
	struct manifest *fresh;      /* those that no commit before had; NULL: there are none */
	const struct digest *base;   /* a manifest that has all others; NULL: they are looked for */
	const struct hub_commit *git;
};
int repo_make(struct app *app, const struct repo_making *m, struct blob_pins *pins,
              struct repo_made *out, struct err *err) MUST_CHECK;
/* repo_card.c. What its Hub says of it at a commit, as JSON: who made it, and what the metadata of
 * its README.md say. Those that cannot be read say nothing. */
const char *repo_about(struct app *app, const struct repo_making *m);
/* repo_pull.c */
int repo_pull_open(const struct ask *ask, const struct hub_name *at, const char *title,
                   const char *text, int64_t *num, struct err *err) MUST_CHECK;
int repo_pull_list(const struct ask *ask, const struct hub_name *at,
                   const struct repo_pull_ask *want, struct model_repo *repo,
                   struct model_repo_pull **out, size_t *n, size_t *total,
                   struct err *err) MUST_CHECK;
int repo_pull_read(const struct ask *ask, const struct hub_name *at, int64_t num,
                   struct repo_pull *out, struct err *err) MUST_CHECK;
int repo_pull_say(const struct ask *ask, const struct hub_name *at, int64_t num,
                  const struct repo_pull_said *said, struct model_repo_event *out,
                  struct err *err) MUST_CHECK;
int repo_pull_merge(const struct ask *ask, const struct hub_name *at, int64_t num,
                    const char *comment, struct err *err) MUST_CHECK;
/* repo_history.c */
int repo_squash(const struct ask *ask, const struct hub_name *at, const char *message,
                struct err *err) MUST_CHECK;
int repo_large_files(const struct ask *ask, const struct hub_name *at, size_t skip, size_t most,
                     struct repo_large_file **out, size_t *n, bool *more,
                     struct err *err) MUST_CHECK;
int repo_large_delete(const struct ask *ask, const struct hub_name *at, const struct digest *oid,
                      size_t n, bool rewrite, struct err *err) MUST_CHECK;
/* repo_xet.c */
int64_t repo_xet_epoch(const struct app *app, int64_t now_s);
int repo_xorb_put(struct app *app, const struct repo_xet *x, const struct xet_hash *hash,
                  int64_t body_bytes, const struct repo_bytes *from, bool *fresh,
                  struct err *err) MUST_CHECK;
int repo_shard_put(struct app *app, const struct repo_xet *x, struct str body, bool *no_place,
                   struct err *err) MUST_CHECK;
/* Of its ref. */
const char *repo_upload_name(struct arena *a, const char *repo_id, const struct digest *oid);
/* The size of a file that was uploaded to it. ERR_HUB_OBJECT_NOT_FOUND. */
int repo_uploaded(struct app *app, struct arena *a, const struct model_repo *r,
                  const struct digest *oid, uint64_t *size, struct err *err) MUST_CHECK;

/* repo_lost.c: bytes of repositories, which nobody else has. With --objects only what was found to
 * be missing is known, and as long as this server runs: whoever brings it again is asked for it. */
bool repo_bytes_kept(struct app *app, const struct digest *d, uint64_t size);
void repo_bytes_lost(struct app *app, const struct digest *d);
void repo_bytes_stored(struct app *app, const struct manifest *m); /* of all files of it */

/* Was it uploaded to the repository, and are its bytes kept? */
int repo_upload_there(struct app *app, struct arena *a, const struct model_repo *r,
                      const struct digest *oid, bool *there, struct err *err) MUST_CHECK;

/* Behind every change of a row: what is known of names is looked up again. */
void repo_changed(struct app *app);

void repos_start(struct hub *h);
void repos_free(struct hub *h);

#endif
