/*
 * hub_impl.h - what the files of the Hub face share: hub.c (routes, names, waiting), hub_bytes.c
 * (files), hub_repo.c (what is in a repository), hub_json.c (its objects), hub_error.c (errors).
 *
 * Clients read a repository at a commit: nearly every handler begins with its listing, which may
 * have to be asked for at another Hub first. hub_with() does that, so that a handler is a function
 * of a listing.
 */
#ifndef HUB_IMPL_H
#define HUB_IMPL_H

#include "base/json.h"
#include "face/face.h"

#define HUB_WAIT_MS 55000     /* for another Hub; before proxies give up on us */
#define HUB_WAIT_HEAD_MS 9000 /* a client waits ten seconds for a HEAD, and then asks again */
#define HUB_RETRY_S 5         /* after which a client may ask again */

/* The capture of this name in the route's pattern, decoded; empty if it has none. */
struct str hub_arg(const struct request *rq, const char *name);
bool hub_flag(struct request *rq, const char *name); /* of the query: true, True, 1 */
bool hub_is_true(struct str word);

/* ERR_UNSUPPORTED when there is no mirror. */
int hub_ops_of(const struct request *rq, const struct hub_ops **out, struct err *err) MUST_CHECK;
/* ERR_UNSUPPORTED when there are no repositories of our own. */
int hub_repos_of(const struct request *rq, const struct repo_ops **out, struct err *err) MUST_CHECK;
/* What the path names; without a revision it is "main". ERR_HUB_REPO_NOT_FOUND,
 * ERR_HUB_REVISION_NOT_FOUND for what cannot be a name. */
int hub_name_of(struct request *rq, struct hub_name *out, struct err *err) MUST_CHECK;
/* Parks until the channel is notified, but all waits of a request together at most so long:
 * then ERR_SOURCE_TIMEOUT. */
int hub_wait(struct request *rq, uint64_t channel, uint64_t seq, struct err *err) MUST_CHECK;
/* An error of the operations, in words that do not put another Hub's failure on the client: what
 * has no id is the source's. Always returns -1. */
int hub_failed(struct err *err);

/* Opens what the path names, says its commit in the reply, calls fn, and closes it. */
typedef int hub_handler(struct request *rq, const struct hub_listing *l, struct err *err);
int hub_with(struct request *rq, hub_handler *fn, struct err *err) MUST_CHECK;
/* Always returns -1. */
int hub_no_entry(const struct hub_listing *l, struct str path, struct err *err);

/* A redirect to the same path of a repository's new id; a path alone, for clients follow no other.
 */
int hub_moved(struct request *rq, const struct hub_name *old, const char *id,
              struct err *err) MUST_CHECK;
int hub_send_json(struct request *rq, const struct buf *out, struct err *err) MUST_CHECK;
int hub_done(struct request *rq) MUST_CHECK; /* "{}" */
/* How many entries a page leaves out, which the parameter p says. */
int hub_skip(struct request *rq, size_t *out, struct err *err) MUST_CHECK;
/* Says where the next page is: this path, with so many entries left out, and of `limit` (0: as many
 * as a page has). */
int hub_link_more(struct request *rq, size_t skip, size_t limit, struct err *err) MUST_CHECK;
/* What the client sends, as it comes. */
struct repo_bytes hub_body(struct request *rq);
/* What this server lets a client do later, without a token, is signed with the key of its
 * addresses. Texts begin with a line that says what they are for. */
void hub_sign(const struct request *rq, const char *text, char out[HASH_HEX_CAP]);
bool hub_signature_is(struct str signature, const char want[HASH_HEX_CAP]); /* constant time */
/* "http://host/datasets/owner/name": how clients are told of a repository. In the arena. */
const char *hub_repo_url(const struct request *rq, enum hub_type type, const char *id);
/* "model", "dataset", "space", as bodies have it; NULL is a model. ERR_INVALID. */
int hub_body_type(const char *word, enum hub_type *out, struct err *err) MUST_CHECK;

/* hub_write.c, hub_commit.c, hub_lfs.c: repositories that clients write to. */
int hub_post_create(struct request *rq, struct err *err);
int hub_post_duplicate(struct request *rq, struct err *err);
int hub_delete_repo(struct request *rq, struct err *err);
int hub_post_move(struct request *rq, struct err *err);
int hub_put_settings(struct request *rq, struct err *err);
int hub_post_yaml(struct request *rq, struct err *err);
int hub_post_branch(struct request *rq, struct err *err);
int hub_delete_branch(struct request *rq, struct err *err);
int hub_post_tag(struct request *rq, struct err *err);
int hub_delete_tag(struct request *rq, struct err *err);
int hub_get_list(struct request *rq, struct err *err);
int hub_get_space(struct request *rq, struct err *err);
int hub_write_check(struct request *rq, struct err *err);
int hub_post_preupload(struct request *rq, struct err *err);
int hub_post_commit(struct request *rq, struct err *err);
int hub_post_lfs_batch(struct request *rq, struct err *err);
int hub_put_lfs(struct request *rq, struct err *err);
int hub_put_lfs_part(struct request *rq, struct err *err);
int hub_post_lfs_join(struct request *rq, struct err *err);

/* hub_pull.c */
int hub_post_pull(struct request *rq, struct err *err);
int hub_get_pulls(struct request *rq, struct err *err);
int hub_get_pull(struct request *rq, struct err *err);
int hub_post_pull_comment(struct request *rq, struct err *err);
int hub_post_pull_status(struct request *rq, struct err *err);
int hub_post_pull_title(struct request *rq, struct err *err);
int hub_post_pull_merge(struct request *rq, struct err *err);

/* hub_history.c */
int hub_post_squash(struct request *rq, struct err *err);
int hub_get_large(struct request *rq, struct err *err);
int hub_post_large(struct request *rq, struct err *err);

/* hub_xet.c */
int hub_get_xet_token(struct request *rq, struct err *err);
int hub_post_xorb(struct request *rq, struct err *err);
int hub_post_shard(struct request *rq, struct err *err);
int hub_get_no_chunk(struct request *rq, struct err *err);

int hub_get_file(struct request *rq, struct err *err);
int hub_get_raw(struct request *rq, struct err *err);
int hub_get_info(struct request *rq, struct err *err);
int hub_get_tree(struct request *rq, struct err *err);
int hub_post_paths(struct request *rq, struct err *err);
int hub_get_refs(struct request *rq, struct err *err);
int hub_get_commits(struct request *rq, struct err *err);

/* hub_json.c. Nothing here ever speaks of Xet: a client that reads one hint goes there, and has no
 * way back. */
#define HUB_ETAG_CAP HASH_HEX_CAP
void hub_etag(const struct hub_file *f, char out[HUB_ETAG_CAP]); /* without quotes */
/* What upstream says of a repository, in the request's arena. */
int hub_about(struct request *rq, const struct hub_listing *l, const struct doc **out,
              struct err *err) MUST_CHECK;
void hub_js_info(struct js *js, const struct hub_listing *l, const struct doc *about, bool blobs);
/* `date`: of the commit, NULL leaves it out. */
void hub_js_file(struct js *js, const struct hub_listing *l, const struct hub_file *f,
                 const char *date);
void hub_js_folder(struct js *js, const struct hub_listing *l, const struct hub_folder *f,
                   const char *date);
void hub_js_commit(struct js *js, const struct hub_listing *l, const struct doc *about);
void hub_js_own_commit(struct js *js, const struct model_repo_commit *c);
void hub_js_repo(struct js *js, const struct model_repo *r);
void hub_js_repo_space(struct js *js, const struct model_repo *r, uint64_t all);
/* When upstream saw the last change; NULL: it does not say. */
const char *hub_date(const struct doc *about);

void hub_error_reply(struct request *rq, const struct err *err);

#endif
