/*
 * logs.h - a job's output from its pipes to the attempt's log file: redacted by value, cut into
 * records (core/loglines.h), written in whole records, in a thread of its own so that a job never
 * waits for the network. A line that has no end yet is written after LOGS_PARTIAL_MS all the same.
 *
 * A full disk loses lines, never blocks the job; how many were lost is said when there is room.
 */
#ifndef LOGS_H
#define LOGS_H

#include "core/loglines.h"
#include "core/redact.h"

#define LOGS_PARTIAL_MS 200
#define LOGS_BYTES_MAX ((uint64_t)4 << 30) /* of one attempt; then one line says so */
#define LOGS_TAIL_MAX ((size_t)32 << 10)   /* kept in memory, to tell why a job ended */

struct logs;

/* Makes the file. The redactor is shared, built, and outlives us. */
int logs_open(struct logs **out, const char *path, const struct redact *r,
              struct err *err) MUST_CHECK;
/* Called after each write, from the writing thread. */
void logs_on_write(struct logs *l, void (*fn)(void *arg), void *arg);
/* A line of the platform itself; redacted too. Any thread. */
void logs_message(struct logs *l, const char *fmt, ...) PRINTF(2, 3);
/* Starts the pump. The descriptors become ours. */
int logs_pump(struct logs *l, int out_fd, int err_fd, struct err *err) MUST_CHECK;
/* The job has ended: what is in the pipes is still taken, for at most drain_ms, as a grandchild may
 * hold them open. Joins the pump. */
void logs_finish(struct logs *l, int64_t drain_ms);
int64_t logs_heard_ms(struct logs *l); /* when the job's last byte came, monotonic; 0 = none yet */
uint64_t logs_size(struct logs *l);    /* bytes of whole records in the file */
/* Do the last lines of the job hold one of these words? */
bool logs_tail_has(struct logs *l, const char *words);
void logs_close(struct logs *l); /* NULL is fine */

#endif
