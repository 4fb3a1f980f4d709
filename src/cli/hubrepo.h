/*
 * hubrepo.h - a repository of the server's Hub, as a client of the Hub sees it: what is in it, its
 * files, verified, and commits. The token goes to the server only: where a file is elsewhere, the
 * redirect there is followed without it.
 */
#ifndef HUBREPO_H
#define HUBREPO_H

#include "cli/cli.h"
#include "core/hub.h"
#include "core/hub_commit_write.h"

#define HUBREPO_TEXT_MAX ((size_t)1 << 20)

struct hubrepo_item {
	const char *path;
	bool folder, lfs;
	uint64_t size;
	uint8_t oid[HUB_OID_LEN]; /* git's; of an LFS file that of its pointer */
	struct digest sha256;     /* of an LFS file */
};
struct hubrepo_tree {
	struct hubrepo_item *item; /* sorted by path; in the arena, as all here */
	size_t n;
};
struct hubrepo_commit_info {
	const char *id, *title, *date;
	int64_t ms;
};

/* "OWNER/NAME", also behind "models/": what has caches is a repository of models. */
int hubrepo_id(const char *word, const char **out, struct err *err) MUST_CHECK;
/* With all folders, or those of the root only. */
int hubrepo_tree(struct cli *c, const char *id, const char *rev, bool recursive,
                 struct hubrepo_tree *out, struct err *err) MUST_CHECK;
const struct hubrepo_item *hubrepo_find(const struct hubrepo_tree *t, const char *path);
/* Those of main, the newest first. */
int hubrepo_commits(struct cli *c, const char *id, struct hubrepo_commit_info **out, size_t *n,
                    struct err *err) MUST_CHECK;
/* A small file, up to HUBREPO_TEXT_MAX. */
int hubrepo_text(struct cli *c, const char *id, const char *rev, const char *path, struct str *out,
                 struct err *err) MUST_CHECK;
/* A file of a tree into fd, compared with its digest. `moved`: told of each piece. */
int hubrepo_fetch(struct cli *c, const char *id, const char *rev, const struct hubrepo_item *f,
                  int fd, void (*moved)(void *arg, size_t bytes), void *arg,
                  struct err *err) MUST_CHECK;
/* Private, of a team or the user. */
int hubrepo_create(struct cli *c, const char *id, struct err *err) MUST_CHECK;
bool hubrepo_is_missing(const struct err *err);

/* A commit: begun, filled, sent or dropped. What it has is kept in a file until then. */
struct hubrepo_commit {
	unsigned magic;
#define HUBREPO_COMMIT_MAGIC 0x4c485542U
	struct cli *c;
	int fd;
	struct buf out;
	struct hub_commit_writer w;
	uint64_t bytes;
	size_t files;
};
#define HUBREPO_COMMIT_INIT                                                                        \
	{                                                                                          \
		.magic = HUBREPO_COMMIT_MAGIC, .fd = -1, .out = BUF_INIT((size_t)1 << 20)          \
	}
int hubrepo_commit_begin(struct hubrepo_commit *k, struct cli *c, const char *title,
                         const char *message, bool add_only, struct err *err) MUST_CHECK;
int hubrepo_commit_add(struct hubrepo_commit *k, const char *path, struct str content,
                       struct err *err) MUST_CHECK;
int hubrepo_commit_delete(struct hubrepo_commit *k, const char *path, bool folder,
                          struct err *err) MUST_CHECK;
int hubrepo_commit_send(struct hubrepo_commit *k, const char *id, struct err *err) MUST_CHECK;
void hubrepo_commit_done(struct hubrepo_commit *k);
#define AUTO_HUBREPO_COMMIT CLEANUP(hubrepo_commit_done)

#endif
