/*
 * answer.h - what handlers of the JSON faces share: typed members of a body, parameters of a query,
 * and the one object that a reply is. A member that is null counts as absent; one of the wrong kind
 * is ERR_INVALID with its name. Members that nobody asks for are left alone: clients send more than
 * we know.
 */
#ifndef FACE_ANSWER_H
#define FACE_ANSWER_H

#include "base/record.h"
#include "io/httpd.h"

#define ANSWER_MAX ((size_t)64 << 20)

struct answer {
	struct buf b;
	struct js js; /* inside the reply's object */
};

void answer_open(struct answer *an); /* of a zeroed struct */
void answer_done(struct answer *an);
#define AUTO_ANSWER CLEANUP(answer_done)
/* Closes the object and replies with it. ERR_TOO_BIG when it is larger than ANSWER_MAX. */
int answer_send(struct request *rq, struct answer *an, int status, struct err *err) MUST_CHECK;
/* The members of one, or {"<key>": one, or a list of them}. */
int answer_members(struct request *rq, const struct record *r, const void *m,
                   struct err *err) MUST_CHECK;
int answer_one(struct request *rq, const char *key, const struct record *r, const void *m,
               struct err *err) MUST_CHECK;
int answer_list(struct request *rq, const char *key, const struct record *r, const void *items,
                size_t n, struct err *err) MUST_CHECK;
/* The answer to a removal: {"<key>": what, "deleted": true}. */
int answer_deleted(struct request *rq, const char *key, const char *what,
                   struct err *err) MUST_CHECK;

/* The i-th capture of the route's pattern. */
const char *arg_text(struct request *rq, size_t i);
/* The body as a map; an empty one is NULL where `optional`, else ERR_INVALID. */
int body_read(struct request *rq, bool optional, const struct doc **out,
              struct err *err) MUST_CHECK;
/* NULL when it is absent and not `required`. */
int body_text(const struct doc *body, const char *key, bool required, const char **out,
              struct err *err) MUST_CHECK;
/* *out keeps its value when the member is absent. */
int body_int(const struct doc *body, const char *key, int64_t min, int64_t max, int64_t *out,
             struct err *err) MUST_CHECK;
int body_bool(const struct doc *body, const char *key, bool *out, struct err *err) MUST_CHECK;
/* A list of at most `max` texts; absent = none. */
int body_texts(struct arena *a, const struct doc *body, const char *key, size_t max,
               const char ***out, size_t *n, struct err *err) MUST_CHECK;

/* NULL when there is none. */
const char *query_text(struct request *rq, const char *name);
int query_int(struct request *rq, const char *name, int64_t min, int64_t max, int64_t *out,
              struct err *err) MUST_CHECK;
int query_bool(struct request *rq, const char *name, bool *out, struct err *err) MUST_CHECK;

#endif
