/*
 * joblog.h - the logs and metrics of jobs at rest, as they survive the job and the server:
 *
 *   <dir>/<job>/node-<rank>.log       records of core/loglines.h
 *   <dir>/<job>/metrics-<rank>.jsonl  one wire_sample a line
 *
 * Appends carry the offset they belong at, so a runner that sends again after a lost answer doubles
 * nothing. System lines of the server itself go to node-0's log. Reading by time bisects the file.
 *
 * With a store (joblogs_keep) the folder is a buffer and a cache: what is appended is stored soon
 * after, as segments (joblog_segment.h), and a job that another server wrote is fetched before its
 * first use; while the store is away, what lies here is shown as it is. What a server had not
 * stored when it went, runners send again: their offsets are stored together with the bytes.
 */
#ifndef JOBLOG_H
#define JOBLOG_H

#include "core/loglines.h"
#include "base/fs.h"
#include "store/objects/objstore.h"

#define JOBLOG_BYTES_MAX                                                                           \
	((uint64_t)4 << 30) /* per node; then one line says so and no more is kept */

struct joblogs;

int joblogs_open(struct joblogs **out, const char *dir, struct err *err) MUST_CHECK;
void joblogs_close(struct joblogs *l);
DEFINE_CLEANUP(struct joblogs, joblogs_close)
/* Makes the files of one node, so that a disk which runs out of inodes later stops neither its log
 * nor its metrics. Once is enough; again is fine. */
int joblogs_create(struct joblogs *l, const char *job_id, uint32_t rank,
                   struct err *err) MUST_CHECK;
/* Whole records from a runner. `seq` counts the runner's own bytes sent so far for (attempt, rank):
 * bytes below what was already taken are skipped; a gap is ERR_CONFLICT with the expected value.
 * `last`: the attempt is ending and waits for nothing else; on a full disk its words take of the
 * reserve, and those that still find no space are taken and not kept, which the log says. The next
 * attempt's are kept again.
 * *next is what the runner must send from. Record times are raised where needed so that the file's
 * order holds. */
int joblogs_append(struct joblogs *l, const char *job_id, const char *attempt_id, uint32_t rank,
                   uint64_t seq, struct str records, bool last, uint64_t *next,
                   struct err *err) MUST_CHECK;
/* A line of the platform itself ('s'), at now; to node 0's file. On a full disk it takes of the
 * reserve. */
int joblogs_message(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text,
                    struct err *err) MUST_CHECK;

struct joblog_line {
	int64_t ns;
	uint32_t rank;
	char stream;
	const char *text; /* raw record text (CR kept), continuing records joined up to 64 KiB */
};
/* Lines of all nodes with from_ns <= time < to_ns (0 = open), merged by time; first `limit` from
 * the start or, when `newest`, the last ones (still in rising order); 0 = as many as memory allows,
 * hundreds of thousands. A page never splits one
 * millisecond: it may exceed limit for that. rank -1 = all. */
int joblogs_range(struct joblogs *l, struct arena *a, const char *job_id, int rank, int64_t from_ns,
                  int64_t to_ns, size_t limit, bool newest, struct joblog_line **out, size_t *n,
                  struct err *err) MUST_CHECK;
/* Raw records of one node's file from a byte offset (inside of a record: from the next one on), at
 * most max bytes, whole records; *next = offset after them; *size = file size now. Offset past the
 * end gives none. */
int joblogs_read(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t offset, size_t max,
                 struct buf *out, uint64_t *next, uint64_t *size, struct err *err) MUST_CHECK;
/* Offset at which the last `lines` lines of the file begin. */
int joblogs_tail_offset(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t lines,
                        uint64_t *offset, struct err *err) MUST_CHECK;
/* Ranks that have a log, as a count (ranks are 0..n-1). */
int joblogs_ranks(struct joblogs *l, const char *job_id, uint32_t *n, struct err *err) MUST_CHECK;

/* ERR_NO_SPACE, ERR_UNAVAILABLE (see joblog_store.h): this sample is lost; the next one may be
 * stored. */
int joblogs_add_sample(struct joblogs *l, const char *job_id, uint32_t rank, struct str json_line,
                       struct err *err) MUST_CHECK;
/* Samples (JSON lines) between from_ms and to_ms (0 = open), thinned to at most `points`. */
int joblogs_samples(struct joblogs *l, struct arena *a, const char *job_id, uint32_t rank,
                    int64_t from_ms, int64_t to_ms, size_t points, struct str **lines, size_t *n,
                    struct err *err) MUST_CHECK;
int joblogs_delete(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;

#define JOBLOG_SEGMENT_MS 2000                   /* so long a line of a job waits to be stored */
#define JOBLOG_SEGMENT_BYTES ((uint64_t)1 << 20) /* ... and no longer once there are so many */
#define JOBLOG_MESSAGE_MS 100                    /* the same of a line of the platform */
#define JOBLOG_SAMPLE_MS 30000                   /* and of samples */
#define JOBLOG_SETTLE_MS 10000 /* after a job's end, when what is left of its log has come */
#define JOBLOG_HELD_MAX 4096   /* lines of the platform that wait for their log */
#define JOBLOG_PAUSE_MS 30000  /* between two tries, at the most */
/* Called before anything else. epoch: above those of all servers before. pause_ms: between two
 * tries while the store does not answer, at first. */
void joblogs_keep(struct joblogs *l, struct objstore *os, uint32_t epoch, int64_t pause_ms);
/* A job that no server knew before: nothing of it can be in the store. */
int joblogs_new_job(struct joblogs *l, const char *job_id, struct err *err) MUST_CHECK;
/* Nothing but stragglers will come: its segments become few. */
void joblogs_ended(struct joblogs *l, const char *job_id);
/* Stores what is due next, or waits for that, at most max_ms; any number of threads. *did:
 * something was due. What fails is tried again, later. */
int joblogs_store_next(struct joblogs *l, int64_t max_ms, bool *did, struct err *err) MUST_CHECK;
/* Waits until the lines that a job has now are stored, at most max_ms, and not at all while the
 * store does not answer, or somebody has just waited in vain. True: they are; also without a store.
 */
bool joblogs_flush(struct joblogs *l, const char *job_id, int64_t max_ms);
/* Everything is due at once: what an earlier server left in the folder too, if `left`. */
int joblogs_store_all(struct joblogs *l, bool left, struct err *err) MUST_CHECK;
/* Files that wait to be stored, lines that wait for their log. */
size_t joblogs_waiting(struct joblogs *l);

#endif
