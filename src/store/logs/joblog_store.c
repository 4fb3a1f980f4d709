/* joblog_store.c - one file of a job's logs to the store: what was appended, as one more segment;
 * now and then small segments as a large one. */
#include "store/logs/joblog_store.h"

#define MERGE_EVERY 16 /* segments of a file: then they are listed, and small ones merged */

struct storing {
	struct joblogs *l;
	const char *job_id;
	enum joblog_kind kind;
	uint32_t rank;
	char file[JOBLOG_NAME_CAP];
	struct logfile *log; /* of lines */
	int fd;              /* borrowed, or of samples */
	uint64_t size;
	struct buf state;
	struct joblog_sent sent;
	bool all;
};

/* What is there now, all of one moment. False without an error: it is gone. */
static bool look(struct storing *s, struct err *err)
{
	struct joblogs *l = s->l;
	bool ok = false;

	if (s->kind == JOBLOG_LINES) {
		if (joblog_take_here(l, s->job_id, s->rank, false, &s->log, err) < 0 ||
		    s->log == NULL)
			return false;
		lock_take(&s->log->lock);
		s->size = s->log->size;
		joblog_state_text(s->log, &s->state);
		lock_give(&s->log->lock);
		s->fd = s->log->fd;
		return joblog_sent_load(l, s->job_id, s->file, &s->sent, err) == 0;
	}
	lock_take(&l->samples);
	s->fd = joblog_samples_fd(l, s->job_id, s->rank, &s->size, err);
	ok = s->fd >= 0 && joblog_sent_load(l, s->job_id, s->file, &s->sent, err) == 0;
	lock_give(&l->samples);
	return ok;
}

static void look_done(struct storing *s)
{
	if (s->kind == JOBLOG_SAMPLES && s->fd >= 0)
		(void)close(s->fd);
	joblog_give(s->l, s->log);
	buf_done(&s->state);
}

/* Samples that were thinned meanwhile have begun another era: that is what counts then. */
static int note_sent(struct storing *s, uint32_t puts, struct err *err)
{
	struct joblog_sent now, sent = {s->sent.era, puts, s->size};
	int r;

	lock_take(&s->l->samples);
	r = joblog_sent_load(s->l, s->job_id, s->file, &now, err);
	if (r == 0 && now.era == sent.era)
		r = joblog_sent_save(s->l, s->job_id, s->file, &sent, err);
	lock_give(&s->l->samples);
	return r;
}

static int put(struct storing *s, struct arena *a, uint64_t from, struct err *err)
{
	struct segment seg = {
		.epoch = s->l->store->epoch, .era = s->sent.era, .from = from, .to = s->size};

	copy_cut(seg.file, sizeof(seg.file), s->file);
	return segment_put(s->l->store->os, segment_key(a, s->job_id, &seg), s->fd, from, s->size,
	                   buf_view(&s->state), err);
}

/* Deletes the segments that another one has replaced, and those that were never a part; never
 * those of a later server. *left: how many make up the file. */
static int sweep(struct storing *s, struct arena *a, const struct segment *seg, size_t n,
                 const struct segment_piece *p, size_t n_p, uint64_t from, uint32_t *left,
                 struct err *err)
{
	const char **key = ARENA_ARRAY(a, const char *, n + 1);
	bool *keep = ARENA_ARRAY(a, bool, n + 1);
	size_t n_key = 0;

	*left = from < s->size ? 1 : 0;
	for (size_t i = 0; i < n_p; i++) {
		keep[p[i].i] = p[i].from < from;
		*left += p[i].from < from;
	}
	for (size_t i = 0; i < n; i++) {
		if (keep[i] || seg[i].epoch > s->l->store->epoch ||
		    (seg[i].epoch == s->l->store->epoch && seg[i].era > s->sent.era))
			continue;
		key[n_key++] = segment_key(a, s->job_id, &seg[i]);
	}
	return objstore_del_all(s->l->store->os, key, n_key, NULL, err);
}

static int merge(struct storing *s, struct arena *a, struct err *err)
{
	struct segment *seg;
	struct segment_piece *p;
	uint64_t from;
	uint32_t left;
	size_t n, n_p, replaced = 0;

	if (segment_list(s->l->store->os, a, s->job_id, s->file, &seg, &n, err) < 0)
		return -1;
	p = ARENA_ARRAY(a, struct segment_piece, n + 1);
	n_p = segment_pieces(seg, n, p);
	from = segment_reach(p, n_p, s->sent.bytes, s->size, s->all);
	for (size_t i = 0; i < n_p; i++)
		replaced += p[i].from >= from;
	if (s->size == s->sent.bytes && replaced <= 1)
		from = s->size; /* they are as few as they get */
	else if (put(s, a, from, err) < 0)
		return -1;
	if (sweep(s, a, seg, n, p, n_p, from, &left, err) < 0)
		return -1;
	return note_sent(s, left, err);
}

static int store_locked(struct storing *s, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct joblogs *l = s->l;
	char path[JOBLOG_NAME_CAP];
	uint32_t epoch;

	FMT(path, "%s/%s", s->job_id, s->file);
	if (faccessat(l->dirfd, path, F_OK, 0) < 0) /* deleted? */
		return errno == ENOENT ? 0 : err_errno(err, errno, "log of %s", path);
	if (joblog_epoch(l, s->job_id, &epoch, err) < 0 ||
	    (epoch != l->store->epoch && joblog_fetch(l, s->job_id, err) < 0))
		return -1;
	if (!look(s, err))
		return err->code != ERR_NONE ? -1 : 0;
	if (s->size < s->sent.bytes)
		return 0; /* somebody cut it: what is stored stays */
	if (s->sent.puts + 1 >= MERGE_EVERY ||
	    (s->all && s->sent.puts + (s->size > s->sent.bytes) > 1))
		return merge(s, a, err);
	if (s->size == s->sent.bytes)
		return 0;
	return put(s, a, s->sent.bytes, err) < 0 ? -1 : note_sent(s, s->sent.puts + 1, err);
}

int joblog_store_file(struct joblogs *l, const char *job_id, enum joblog_kind kind, uint32_t rank,
                      bool all, struct err *err)
{
	struct storing s = {
		.l = l, .job_id = job_id, .kind = kind, .rank = rank, .fd = -1, .all = all};
	struct lock *stripe = joblog_stripe(l, job_id);
	int r;

	s.state = (struct buf)BUF_INIT(JOBLOG_STATE_MAX);
	joblog_file_name(s.file, kind, rank);
	lock_take(stripe);
	r = store_locked(&s, err);
	lock_give(stripe);
	look_done(&s);
	return r;
}
