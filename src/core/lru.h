/*
 * lru.h - byte-budgeted order of cache entries with a probation segment, so that one scan of big
 * models does not wash out what is used daily. Pure: it only says who goes.
 */
#ifndef LRU_H
#define LRU_H

#include "base/map.h"

struct lru;

struct lru *lru_new(uint64_t budget_bytes) MUST_CHECK;
void lru_free(struct lru *l);
DEFINE_CLEANUP(struct lru, lru_free)
void lru_add(struct lru *l, struct str key, uint64_t bytes, int64_t used_ms); /* again = touch */
void lru_touch(struct lru *l, struct str key, int64_t now_ms);
void lru_remove(struct lru *l, struct str key);
uint64_t lru_bytes(const struct lru *l);
uint64_t lru_budget(const struct lru *l);
/* Names entries to give up so that `need` more bytes fit, oldest first, skipping those for which
 * pinned() says true or that were used after `newest_ms`. Returns how many bytes it could name;
 * calls victim() for each, which may call lru_remove on it. */
uint64_t lru_victims(struct lru *l, uint64_t need, int64_t newest_ms,
                     bool (*pinned)(struct str key, void *arg),
                     void (*victim)(struct str key, uint64_t bytes, void *arg), void *arg);
void lru_check(const struct lru *l);

#endif
