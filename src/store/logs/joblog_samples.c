/*
 * joblog_samples.c - the metrics of a job's nodes: one JSON line a sample, read thinned.
 *
 * A file that has grown to its limit loses every second sample: it covers the whole job, coarser
 * and coarser. Lines are about equally long, so evenly spread samples are found by evenly spread
 * offsets, without reading the file.
 */
#include "store/logs/joblog_impl.h"

#include "base/json.h"

#define SAMPLES_BYTES_MAX ((size_t)32 << 20) /* of one node */
#define SAMPLE_MAX ((size_t)8 << 10)         /* one line */
#define SAMPLE_POINTS_MAX 5000               /* in one answer */

static void file_name(char out[JOBLOG_NAME_CAP], const char *job_id, uint32_t rank)
{
	fmt_fixed(out, JOBLOG_NAME_CAP, "%s/metrics-%u.jsonl", job_id, rank);
}

static int check(const char *job_id, uint32_t rank, struct err *err)
{
	if (rank >= JOBLOG_RANKS_MAX)
		return err_set(err, ERR_INVALID, "node %u: a job has at most %d", rank,
		               JOBLOG_RANKS_MAX);
	return joblog_check_id(job_id, err);
}

/* What is stored stays whole: a new era begins, before the file is another one. */
static int begin_era(struct joblogs *l, const char *job_id, const char *name, struct err *err)
{
	const char *file = name + strlen(job_id) + 1;
	struct joblog_sent sent;

	if (l->store == NULL)
		return 0;
	if (joblog_sent_load(l, job_id, file, &sent, err) < 0)
		return -1;
	sent = (struct joblog_sent){.era = sent.era + 1};
	return joblog_sent_save(l, job_id, file, &sent, err);
}

static int thin(struct joblogs *l, const char *job_id, const char *name, struct err *err)
{
	AUTO_BUF struct buf all = BUF_INIT(SAMPLES_BYTES_MAX + 2 * SAMPLE_MAX);
	AUTO_BUF struct buf half = BUF_INIT(SAMPLES_BYTES_MAX + 2 * SAMPLE_MAX);
	struct str rest, line;
	size_t i = 0;

	if (fs_read(l->dirfd, name, &all, err) < 0)
		return -1;
	rest = buf_view(&all);
	while (str_cut(&rest, '\n', &line)) {
		if (i++ % 2 == 0) {
			buf_str(&half, line);
			buf_putc(&half, '\n');
		}
	}
	if (begin_era(l, job_id, name, err) < 0)
		return -1;
	return fs_write_atomic(l->dirfd, name, buf_view(&half), 0600, err);
}

static int open_locked(struct joblogs *l, const char *job_id, const char *name, struct err *err)
{
	int fd;

	if (mkdirat(l->dirfd, job_id, 0700) < 0 && errno != EEXIST)
		return err_errno(err, errno, "metrics of %s", job_id);
	fd = openat(l->dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? err_errno(err, errno, "metrics of %s", job_id) : fd;
}

int joblogs_create(struct joblogs *l, const char *job_id, uint32_t rank, struct err *err)
{
	AUTO_FD int fd = -1;
	struct logfile *f;
	char name[JOBLOG_NAME_CAP];

	if (joblog_take(l, job_id, rank, true, &f, err) < 0)
		return -1;
	joblog_give(l, f);
	file_name(name, job_id, rank);
	lock_take(&l->samples);
	fd = open_locked(l, job_id, name, err);
	lock_give(&l->samples);
	return fd < 0 ? -1 : 0;
}

static int add_locked(struct joblogs *l, const char *job_id, const char *name, struct str line,
                      struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SAMPLE_MAX + 2);
	AUTO_FD int fd = open_locked(l, job_id, name, err);
	struct stat st;
	char last = '\n';

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "metrics of %s", job_id);
	if (st.st_size > 0 && fs_pread_all(fd, &last, 1, (uint64_t)st.st_size - 1, err) < 0)
		return err_wrap(err, "metrics of %s", job_id);
	if (last != '\n') /* the disk was full, or the power went, inside a line */
		buf_putc(&text, '\n');
	buf_str(&text, line);
	buf_putc(&text, '\n');
	if (fs_pwrite_all(fd, text.p, text.n, (uint64_t)st.st_size, err) < 0)
		return err_wrap(err, "metrics of %s", job_id);
	if ((uint64_t)st.st_size + text.n < SAMPLES_BYTES_MAX)
		return 0;
	if (thin(l, job_id, name, err) < 0)
		return err_wrap(err, "metrics of %s", job_id);
	return 0;
}

int joblogs_add_sample(struct joblogs *l, const char *job_id, uint32_t rank, struct str json_line,
                       struct err *err)
{
	char name[JOBLOG_NAME_CAP];
	int r;

	if (check(job_id, rank, err) < 0)
		return -1;
	json_line = str_trim(json_line);
	if (json_line.n > SAMPLE_MAX || memchr(json_line.p, '\n', json_line.n) != NULL)
		return err_set(err, ERR_INVALID, "a sample is one line of at most %zu bytes",
		               SAMPLE_MAX);
	if (joblog_attach(l, job_id, err) < 0)
		return -1;
	file_name(name, job_id, rank);
	lock_take(&l->samples);
	r = add_locked(l, job_id, name, json_line, err);
	lock_give(&l->samples);
	if (r == 0)
		joblog_mark(l, job_id, JOBLOG_SAMPLES, rank, json_line.n, JOBLOG_SAMPLE_MS);
	return r;
}

/* The whole line that begins at or after `at`; its start into *start. False at the end. */
static bool line_at(int fd, uint64_t size, uint64_t at, struct buf *chunk, struct str *line,
                    uint64_t *start)
{
	struct err bad = {0};
	uint64_t from = at > 0 ? at - 1 : 0; /* is `at` a start? the byte before it says */
	size_t n = (size_t)MIN(size - from, (uint64_t)(2 * SAMPLE_MAX + 4));
	const char *head, *end;

	if (at >= size)
		return false;
	buf_clear(chunk);
	if (fs_pread_all(fd, buf_room(chunk, n), n, from, &bad) < 0)
		return false;
	chunk->n = n;
	head = chunk->p;
	if (at > 0) {
		head = memchr(chunk->p, '\n', n);
		if (head++ == NULL)
			return false;
	}
	end = memchr(head, '\n', n - (size_t)(head - chunk->p));
	if (end == NULL)
		return false;
	*line = str_n(head, (size_t)(end - head));
	*start = from + (uint64_t)(head - chunk->p);
	return true;
}

/* A line's time, or -1 for one that is no sample. */
static int64_t time_of(struct arena *scratch, struct str line)
{
	struct err bad = {0};
	const struct doc *d;

	arena_reset(scratch);
	if (js_parse(scratch, line, &d, &bad) < 0)
		return -1;
	return doc_int(doc_get(d, "wall_ms"), -1);
}

struct sampled {
	int fd;
	uint64_t size;
	struct buf chunk;
	struct arena *scratch;
};

/* Start of the first sample at or after `ms`. Times rise but for a clock that was set back: there a
 * few samples too many or too few are no harm. */
static uint64_t find(struct sampled *s, int64_t ms)
{
	uint64_t lo = 0, hi = s->size;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2, start;
		struct str line;

		if (line_at(s->fd, s->size, mid, &s->chunk, &line, &start) && start < hi &&
		    time_of(s->scratch, line) < ms)
			lo = start + line.n + 1;
		else
			hi = mid;
	}
	return lo;
}

static size_t pick(struct sampled *s, struct arena *a, uint64_t first, uint64_t end, size_t points,
                   struct str *out)
{
	uint64_t at = first;
	size_t n = 0;

	while (n < points) {
		uint64_t left = end - at, start, step;
		struct str line;

		if (at >= end || !line_at(s->fd, s->size, at, &s->chunk, &line, &start) ||
		    start >= end)
			break;
		if (time_of(s->scratch, line) >= 0)
			out[n++] = arena_str(a, line);
		step = left / MAX(points - n, (size_t)1);
		at = MAX(at + step, start + line.n + 1);
		if (n + 1 == points && end > start + line.n + 1) {
			/* the newest one is always there: the line in which the last byte lies */
			uint64_t back = MIN(end - start - line.n - 1, (uint64_t)SAMPLE_MAX + 2);
			uint64_t look = end - back;

			while (line_at(s->fd, s->size, look, &s->chunk, &line, &start) &&
			       start < end) {
				at = start;
				look = start + line.n + 1;
			}
		}
	}
	return n;
}

int joblogs_samples(struct joblogs *l, struct arena *a, const char *job_id, uint32_t rank,
                    int64_t from_ms, int64_t to_ms, size_t points, struct str **lines, size_t *n,
                    struct err *err)
{
	AUTO_ARENA struct arena *scratch = arena_new();
	struct sampled s = {.chunk = BUF_INIT(2 * SAMPLE_MAX + 8), .scratch = scratch};
	AUTO_FD int fd = -1;
	char name[JOBLOG_NAME_CAP];
	struct stat st;
	uint64_t first, end;

	if (check(job_id, rank, err) < 0 ||
	    (joblog_attach(l, job_id, err) < 0 && !joblog_may_look(l, job_id, err)))
		return -1;
	file_name(name, job_id, rank);
	fd = openat(l->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		*lines = NULL;
		*n = 0;
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "metrics of %s", job_id);
	s.fd = fd;
	s.size = (uint64_t)st.st_size;
	points = MIN(MAX(points, (size_t)1), (size_t)SAMPLE_POINTS_MAX);
	first = from_ms > 0 ? find(&s, from_ms) : 0;
	end = to_ms > 0 ? find(&s, to_ms) : s.size;
	*lines = ARENA_ARRAY(a, struct str, points);
	*n = pick(&s, a, first, end, points, *lines);
	buf_done(&s.chunk);
	return 0;
}

int joblog_samples_fd(struct joblogs *l, const char *job_id, uint32_t rank, uint64_t *size,
                      struct err *err)
{
	AUTO_FD int fd = -1;
	char name[JOBLOG_NAME_CAP];
	struct stat st;

	file_name(name, job_id, rank);
	fd = openat(l->dirfd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "metrics of %s", job_id);
	*size = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}
