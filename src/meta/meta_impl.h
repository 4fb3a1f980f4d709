/* meta_impl.h - what the meta_*.c files share: the handle, lists that grow, one-statement calls. */
#ifndef META_IMPL_H
#define META_IMPL_H

#include "meta/db.h"
#include "meta/meta.h"

struct meta {
	struct db *db;
};

/* Runs `row` for each row of the query and gathers what it fills, `each` bytes apiece. */
int meta_list(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
              size_t each, void (*row)(struct db_rows *r, void *item), void *out, size_t *count,
              struct err *err) MUST_CHECK;
/* The same inside a transaction. */
int meta_list_in(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v,
                 size_t n, size_t each, void (*row)(struct db_rows *r, void *item), void *out,
                 size_t *count, struct err *err) MUST_CHECK;
/* The first row, err_missing(none) when there is none. */
int meta_one(struct meta *m, struct arena *a, const char *sql, const struct db_val *v, size_t n,
             void (*row)(struct db_rows *r, void *item), void *item, enum err_code none,
             struct err *err) MUST_CHECK;
int meta_one_in(struct db_tx *tx, struct arena *a, const char *sql, const struct db_val *v,
                size_t n, void (*row)(struct db_rows *r, void *item), void *item,
                enum err_code none, struct err *err) MUST_CHECK;
/* The first column of the first row, a number; 0 when there is none. */
int meta_number(struct meta *m, const char *sql, const struct db_val *v, size_t n, int64_t *out,
                struct err *err) MUST_CHECK;
/* One statement in a transaction of its own. `none` (may be ERR_NONE): err_missing(none) when no
 * row changed. */
int meta_exec(struct meta *m, const char *sql, const struct db_val *v, size_t n, enum err_code none,
              struct err *err) MUST_CHECK;
int meta_ref_put_in(struct db_tx *tx, const struct model_ref *x, struct err *err) MUST_CHECK;
/* One that is not there is fine. */
int meta_ref_del_in(struct db_tx *tx, const char *team_id, const char *kind, const char *name,
                    struct err *err) MUST_CHECK;
/* meta_repo.c; a ref that is there already, and a commit that is not, are errors of the database.
 */
int meta_repo_ref_add_in(struct db_tx *tx, const struct model_repo_ref *r,
                         struct err *err) MUST_CHECK;
int meta_repo_commit_add_in(struct db_tx *tx, const struct model_repo_commit *c,
                            struct err *err) MUST_CHECK;
/* ERR_HUB_STALE: it is not `head` any more. */
/* It holds so much more: ERR_REPO_QUOTA_EXCEEDED. quota 0: its team may have any. */
int meta_repo_grow_in(struct db_tx *tx, const char *repo_id, uint64_t bytes, uint64_t quota,
                      int64_t now_ms, struct err *err) MUST_CHECK;
int meta_repo_ref_move_in(struct db_tx *tx, const struct model_repo_ref *r, const char *head,
                          struct err *err) MUST_CHECK;
void meta_repo_commit_row(struct db_rows *r, void *item);
/* meta_repo_pull.c; p->num is set. */
int meta_repo_pull_add_in(struct db_tx *tx, struct model_repo_pull *p, const char *commit,
                          const char *comment, uint64_t quota, struct err *err) MUST_CHECK;
int meta_deliveries_add(struct db_tx *tx, const struct model_delivery *t, size_t n,
                        struct err *err) MUST_CHECK;
int meta_trash_add(struct db_tx *tx, const char *kind, const char *what,
                   struct err *err) MUST_CHECK;
/* Trash of one job: objects, log. */
int meta_job_trash(struct db_tx *tx, const char *project_id, const char *job_id,
                   struct err *err) MUST_CHECK;

/* meta_deployment.c; of a job that has just been inserted. */
int meta_deployment_join(struct db_tx *tx, const struct meta_new_job *n,
                         struct err *err) MUST_CHECK;

/* The column jobs.cache. */
void meta_cache_flags(int64_t column, struct model_job *out);

/* A list of states in SQL, of the bit set: "'pending','created'". Asserts that the set is not
 * empty. */
#define META_STATES_CAP 200
void meta_states(uint32_t set, char out[META_STATES_CAP]);
uint32_t meta_active_states(void);
/* Ids that start with `prefix` are those from it up to this text. False: no id is so long. */
#define META_PREFIX_CAP 64
bool meta_prefix_end(const char *prefix, char out[META_PREFIX_CAP]);

#endif
