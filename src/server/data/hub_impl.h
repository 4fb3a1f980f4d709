/*
 * hub_impl.h - what hub.c (revisions), hub_ask.c (the other Hub), hub_repo.c (what is kept) and
 * hub_pull.c (files on their way) share. One lock guards all of it, and is never held across I/O.
 */
#ifndef SERVER_HUB_IMPL_H
#define SERVER_HUB_IMPL_H

#include "server/data/hub.h"
#include "store/blobs/blob_pins.h"
#include "store/sources/source.h"

#include <sys/queue.h>

#define HUB_LISTING_NAME "listing" /* in a manifest; */
#define HUB_LIST_COUNTS 2          /* times that a list is stored: by itself, and as a manifest */
#define HUB_FILES "files/"         /* and what files are below */
#define HUB_REPO_CAP (HUB_ID_MAX + 16)                /* models/owner/name */
#define HUB_KEY_CAP (HUB_REPO_CAP + HUB_REV_MAX + 96) /* team, repository and revision */
#define HUB_SOURCE_CAP (HUB_KEY_CAP * 3)

/* A repository at a commit. */
struct hub_repo {
	unsigned magic;
#define HUB_REPO_MAGIC 0x48525045U
	struct app *app;
	struct arena *a;       /* of all that is listed */
	struct hub_listing l;  /* what the operations hand out */
	const char *team_id;   /* "": anybody's */
	const char *kind;      /* of its ref: META_REF_HUB, or META_REF_REPO for one of our own */
	const char *name;      /* of its ref: models/owner/name@commit, or ID@commit */
	const char *key;       /* in memory */
	struct digest *sha256; /* of each file that is known to be here */
	bool *is_here;         /* which these are */
	struct digest listing; /* the blob of it */
	uint64_t listing_bytes;
	struct digest manifest; /* of one of our own: what its ref names */
	uint64_t memory;        /* that it takes, as counted when it came */
	struct blob_pins *pins; /* of what no ref names yet */
	bool dirty;             /* more is here than its ref says */
	unsigned forgotten;     /* how often it was removed */
	unsigned users, pulls;  /* who holds it; files on their way */
	int64_t kept_ms;        /* when its ref was last written; monotonic */
	int64_t touched_ms;     /* the same: when its use was last noted */
	int64_t used_ms;        /* when it was last opened; monotonic */
	TAILQ_ENTRY(hub_repo) in;
};

/* A branch, tag or commit as one team sees it ("": as anybody does), or a list of them. */
struct hub_rev {
	unsigned magic;
#define HUB_REV_MAGIC 0x48524556U
	struct app *app;
	char key[HUB_KEY_CAP];
	char team_id[MODEL_ID_CAP];
	enum hub_type type;
	char id[HUB_ID_MAX + 1], rev[HUB_REV_MAX + 1]; /* rev "": the list of them */
	char commit[HUB_COMMIT_HEX + 1];               /* "": not known */
	char owner[MODEL_ID_CAP];                      /* team of the repository at that commit */
	struct arena *a;                               /* of refs */
	struct hub_refs refs;
	int64_t checked_ms; /* monotonic; 0: never */
	int64_t failed_ms;
	struct err err;
	bool running, told_slow;
	bool refused;     /* to the team itself, when it was last asked for */
	int64_t began_ms; /* to ask; monotonic */
	int64_t until_ms; /* when it is given up */
};

struct hub_pull;
struct hub_lump;
struct hub_follower;

struct hub_shard { /* whose files are being put together; see repo_xet.c */
	LIST_ENTRY(hub_shard) in;
	const char *repo_id;
	uint64_t owner;
};

struct hub {
	unsigned magic;
#define HUB_MAGIC 0x56485542U
	struct lock lock;
	TAILQ_HEAD(hub_repos, hub_repo) repos; /* the last used first */
	struct map *repo_by_name;              /* "team\nmodels/owner/name@commit" */
	uint64_t bytes;                        /* that all repos take, about */
	struct map *revs;                      /* hub_rev by key */
	struct map *pulls;                     /* hub_pull by content */
	LIST_HEAD(, hub_follower) followers;   /* replies that follow pulls, or read through */
	LIST_HEAD(, hub_shard) shards;
	/* Tasks are of teams, so that none has all threads. Small files do not wait for large ones.
	 */
	struct workers *asks, *fetches, *small_fetches;
	atomic_bool cancel;
	struct hub_lump *lump;    /* of room that small files share; see hub_pull.c */
	struct loop *keeper;      /* writes refs */
	int64_t collected_ms;     /* by it; 0: never */
	struct repo_names *names; /* see repos.c */
	struct map *lost;         /* see repo_lost.c */
	struct lock upload_lock;  /* outside of `lock` */
	struct map *uploads;      /* see repo_upload.c */
	struct cond written;      /* a piece of one, that was waited for */
	/* one commit of a repository at a time; outside of `lock` */
	struct lock commits[APP_STRIPES];
};

/* Of `most` places `all` are taken, `own` of them by the team that wants one. A team has at most as
 * many as are left: the next team always finds one. */
static inline bool hub_has_place(unsigned all, unsigned own, unsigned most)
{
	return all < most && own < most - all;
}

bool hub_is_on(const struct app *app);
uint64_t hub_owner(const char *team_id); /* of its tasks; see workers.h */
/* "models/owner/name", lower case: names differ in case only for the eye. */
void hub_repo_name(enum hub_type type, const char *id, char out[HUB_REPO_CAP]);
/* The source of a repository at a revision, with the team's secret unless it is "". ask_until_ms as
 * of source.h. */
int hub_source(struct app *app, const char *team_id, enum hub_type type, const char *id,
               const char *rev, int64_t ask_until_ms, struct source **out,
               struct err *err) MUST_CHECK;

/* A branch may look like a commit: it is none when the other Hub says another one. */
bool hub_is_commit(const char *rev, const char *commit);

/* --- hub_ask.c: without the lock, on a thread that may wait --- */
struct hub_answer {
	char commit[HUB_COMMIT_HEX + 1];
	const char *owner; /* team of the repository; "": it is anybody's */
	bool stale;        /* it is what it was when the other Hub was asked last */
};
/* Which commit v is. The repository at that commit is in memory then. */
int hub_find_out(struct app *app, const struct hub_rev *v, struct hub_answer *out,
                 struct err *err) MUST_CHECK;
/* What it was, without asking; false: nothing is kept of it. */
bool hub_find_stale(struct app *app, const struct hub_rev *v, struct hub_answer *out);
int hub_find_refs(struct app *app, const struct hub_rev *v, struct arena *a, struct hub_refs *out,
                  struct err *err) MUST_CHECK;
/* Might the team's own token help? */
bool hub_is_closed(const struct err *err);
void hub_blame_upstream(struct err *err);
/* What the other Hub refused, as ours and in our words: its own are for jobs that name a source.
 * Always returns -1; *err has it. */
int hub_refused(const struct source *s, const struct hub_name *n, struct err *err);

/* --- hub_repo.c: all with the lock, unless they say otherwise --- */
struct hub_repo *hub_repo_find(struct hub *h, const char *team_id, enum hub_type type,
                               const char *id, const char *commit);
void hub_repo_hold(struct hub *h, struct hub_repo *r);
void hub_repo_drop(struct hub *h, struct hub_repo *r);
struct hub_repo *hub_repo_of(const struct hub_listing *l); /* whose listing it is */
/* Without the lock. Of a listing that was just asked for; it becomes dirty. Or of the ref:
 * ERR_NOT_FOUND when nothing is kept of it. Both leave it in memory. */
int hub_repo_add(struct app *app, const char *team_id, const struct hub_listing *l,
                 struct err *err) MUST_CHECK;
int hub_repo_load(struct app *app, const char *team_id, enum hub_type type, const char *id,
                  const char *commit, struct err *err) MUST_CHECK;
/* A file of it is here, and pinned by the caller. */
void hub_repo_note(struct hub_repo *r, const struct hub_file *f, const struct digest *d);
/* It is not, any more. */
void hub_repo_lost(struct hub_repo *r, const struct hub_file *f);
/* Without the lock: its ref is about to be removed, and comes back with what is fetched from now
 * on. */
void hub_repo_forget(struct app *app, const char *team_id, const char *name);
/* The same of our own repositories (repos.h), whose commits are stored whole before anybody hears
 * of them; found by what the row says, too. ERR_HUB_REVISION_NOT_FOUND. */
struct hub_repo *hub_own_find(struct hub *h, const struct model_repo *m, const char *commit);
int hub_own_load(struct app *app, const struct model_repo *m, const char *commit,
                 struct err *err) MUST_CHECK;
/* Without the lock: what is in memory of these commits, NULL: of all of a repository, holds no
 * bytes any more. The keys of the map are commits. */
void hub_own_forget(struct app *app, const char *repo_id, const struct map *commits);
struct hub_own_files {
	struct arena *a; /* of what is made of them */
	const struct hub_listing *l;
	const struct digest *sha256; /* of each file */
	struct manifest *fresh;      /* those that the commit before did not have; the list joins */
	const struct digest *base;   /* a manifest that has all others; NULL: they are looked for */
	/* out: its list, and what names it */
	uint64_t list_bytes;
	struct digest listing, manifest;
};
/* Without the lock: its list and the manifest of a commit are on the disk, and with --objects in
 * the bucket. *ref: what is to name it. The files are there, and pinned, as all of it is then. */
int hub_own_store(struct app *app, const struct model_repo *m, struct hub_own_files *x,
                  struct blob_pins *pins, struct model_ref *ref, struct err *err) MUST_CHECK;
/* Without the lock. What was stored, into memory, as if it had been loaded: the next commit begins
 * with it. */
void hub_own_add(struct app *app, const struct model_repo *m, const struct hub_own_files *x);
/* Without the lock: a small blob, from the folder or else from the object store. */
int hub_read_blob(struct app *app, const struct digest *sha256, uint64_t size, struct buf *out,
                  struct err *err) MUST_CHECK;
/* Without the lock. All blobs that it names are in the folder, or with --objects those of them that
 * are not in the bucket: `fresh` names these, and `base` is a manifest that has all others. NULL:
 * they are asked for one by one. */
int hub_put_manifest(struct app *app, struct blob_pins *pins, const struct manifest *m,
                     const struct manifest *fresh, const struct digest *base, struct digest *name,
                     struct err *err) MUST_CHECK;
void hub_repos_keep(struct app *app); /* of the keeper; without the lock */
void hub_repos_free(struct hub *h);

/* --- hub_pull.c --- */
int hub_bytes_of(const struct ask *ask, const struct hub_listing *l, const struct hub_file *f,
                 uint64_t first, uint64_t count, bool again, struct hub_bytes *out,
                 struct err *err) MUST_CHECK;
void hub_pulls_sweep(struct app *app); /* failures that nobody waits for any more */
void hub_pulls_free(struct app *app);

#endif
