/* joblog_fetch.c - what another server wrote of a job's logs, fetched before its first use. */
#include "store/logs/joblog_store.h"

#include "base/clock.h"

#define TRIES 3 /* a segment may be merged away between its listing and its reading */
#define TEXT_MAX 100
#define LOST "log lines lost: %s"

void joblog_file_name(char out[JOBLOG_NAME_CAP], enum joblog_kind kind, uint32_t rank)
{
	fmt_fixed(out, JOBLOG_NAME_CAP, kind == JOBLOG_LINES ? "node-%u.log" : "metrics-%u.jsonl",
	          rank);
}

bool joblog_file_parse(const char *file, enum joblog_kind *kind, uint32_t *rank)
{
	struct str name = str_of(file);
	bool lines = str_starts(name, "node-") && str_ends(name, ".log");
	bool samples = str_starts(name, "metrics-") && str_ends(name, ".jsonl");
	size_t head = lines ? strlen("node-") : strlen("metrics-");
	size_t tail = lines ? strlen(".log") : strlen(".jsonl");
	struct err no = {0};
	uint64_t n;

	if ((!lines && !samples) || name.n < head + tail ||
	    str_u64(str_n(name.p + head, name.n - head - tail), 0, JOBLOG_RANKS_MAX - 1, &n, &no) <
	            0)
		return false;
	*kind = lines ? JOBLOG_LINES : JOBLOG_SAMPLES;
	*rank = (uint32_t)n;
	return true;
}

/* ---- what is known of a job's files -------------------------------------------------- */

static int write_text(struct joblogs *l, const char *path, struct str text, struct err *err)
{
	AUTO_FD int fd = openat(l->dirfd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "log of %s", path);
	if (fs_pwrite_all(fd, text.p, text.n, 0, err) < 0)
		return err_wrap(err, "log of %s", path);
	return ftruncate(fd, (off_t)text.n) < 0 ? err_errno(err, errno, "log of %s", path) : 0;
}

int joblog_sent_load(struct joblogs *l, const char *job_id, const char *file,
                     struct joblog_sent *out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
	char path[JOBLOG_NAME_CAP];
	struct err no = {0};
	struct str rest, era, puts;
	uint64_t n[3];

	*out = (struct joblog_sent){0};
	FMT(path, "%s/%s.sent", job_id, file);
	if (fs_read(l->dirfd, path, &text, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	rest = str_trim(buf_view(&text));
	if (str_cut(&rest, ' ', &era) && str_cut(&rest, ' ', &puts) &&
	    str_u64(era, 0, UINT32_MAX, &n[0], &no) == 0 &&
	    str_u64(puts, 0, UINT32_MAX, &n[1], &no) == 0 &&
	    str_u64(rest, 0, INT64_MAX, &n[2], &no) == 0)
		*out = (struct joblog_sent){(uint32_t)n[0], (uint32_t)n[1], n[2]};
	return 0; /* else torn: all of it is put again */
}

int joblog_sent_save(struct joblogs *l, const char *job_id, const char *file,
                     const struct joblog_sent *s, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
	char path[JOBLOG_NAME_CAP];

	FMT(path, "%s/%s.sent", job_id, file);
	buf_printf(&text, "%010" PRIu32 " %010" PRIu32 " %020" PRIu64 "\n", s->era, s->puts,
	           s->bytes);
	return write_text(l, path, buf_view(&text), err);
}

int joblog_epoch(struct joblogs *l, const char *job_id, uint32_t *out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
	char path[JOBLOG_NAME_CAP];
	struct err no = {0};
	uint64_t n;

	*out = 0;
	FMT(path, "%s/epoch", job_id);
	if (fs_read(l->dirfd, path, &text, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return err_wrap(err, "log of %s", job_id);
		err_clear(err);
		return 0;
	}
	if (str_u64(str_trim(buf_view(&text)), 0, UINT32_MAX, &n, &no) == 0)
		*out = (uint32_t)n;
	return 0; /* else torn: as if there were none */
}

static int have(struct joblogs *l, const char *job_id, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
	char path[JOBLOG_NAME_CAP];

	if (mkdirat(l->dirfd, job_id, 0700) < 0 && errno != EEXIST)
		return err_errno(err, errno, "log of %s", job_id);
	FMT(path, "%s/epoch", job_id);
	buf_printf(&text, "%010" PRIu32 "\n", l->store->epoch);
	return write_text(l, path, buf_view(&text), err);
}

int joblogs_new_job(struct joblogs *l, const char *job_id, struct err *err)
{
	if (joblog_check_id(job_id, err) < 0)
		return -1;
	return l->store == NULL ? 0 : have(l, job_id, err);
}

/* ---- fetching ------------------------------------------------------------------------ */

struct fetching {
	struct joblogs *l;
	struct arena *a;
	const char *job_id;
	uint32_t before;     /* whose files lie here */
	struct segment *all; /* of this file */
	size_t n_all;
	struct segment_piece *piece;
	size_t n;
	enum joblog_kind kind;
	uint32_t rank;
};

static uint64_t stored(const struct fetching *f)
{
	return f->n > 0 ? f->piece[f->n - 1].to : 0;
}

static int size_here(const struct fetching *f, uint64_t *size, bool *there, struct err *err)
{
	char name[JOBLOG_NAME_CAP];
	int fd;

	*size = 0;
	if (f->kind == JOBLOG_LINES) {
		FMT(name, "%s/node-%u", f->job_id, f->rank);
		return joblog_left(f->l, f->job_id, name, size, there, err);
	}
	fd = joblog_samples_fd(f->l, f->job_id, f->rank, size, err);
	*there = fd >= 0;
	if (fd >= 0)
		(void)close(fd);
	return err->code != ERR_NONE ? -1 : 0;
}

/* The text is the job's own: whoever reads the log should know. */
static void say_lost(const struct fetching *f, const char *why)
{
	AUTO_FREE char *text = xasprintf(LOST, why);

	(void)joblog_hold(f->l, f->job_id, clock_wall_ns(), text);
}

static int fetch_pieces(const struct fetching *f, int fd, struct buf *state, uint64_t *size,
                        struct err *err)
{
	*size = 0;
	for (size_t i = 0; i < f->n; i++) {
		AUTO_BUF struct buf now = BUF_INIT(SEGMENT_STATE_MAX);
		const struct segment *s = &f->all[f->piece[i].i];
		const char *key = segment_key(f->a, f->job_id, s);

		if (segment_get(f->l->store->os, key, s, &f->piece[i], fd, &now, err) < 0) {
			if (err->code != ERR_CORRUPT)
				return -1;
			say_lost(f, err->msg);
			err_clear(err);
			return 0;
		}
		buf_clear(state);
		buf_str(state, buf_view(&now));
		*size = f->piece[i].to;
	}
	return 0;
}

static int fetch_new(const struct fetching *f, const char *path, struct buf *state, uint64_t *size,
                     struct err *err)
{
	AUTO_FD int fd = openat(f->l->dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "log of %s", path);
	if (fetch_pieces(f, fd, state, size, err) < 0)
		return -1;
	if (f->all[f->n_all - 1].from > stored(f))
		say_lost(f, "a segment is missing in the store");
	if (ftruncate(fd, (off_t)*size) < 0 || fsync(fd) < 0)
		return err_errno(err, errno, "log of %s", path);
	return 0;
}

/* The state goes first: until its log is there too, what lies here is shorter than the store's, or
 * older than a later server's, and is fetched again. The other way round a log would be whole and
 * have the state of another moment, which promises a runner bytes that are not in it. */
static int install(const struct fetching *f, const char *new, struct str state, struct err *err)
{
	char path[JOBLOG_NAME_CAP];

	FMT(path, "%s/node-%u.state", f->job_id, f->rank);
	if (f->kind == JOBLOG_LINES && fs_write_atomic(f->l->dirfd, path, state, 0600, err) < 0)
		return -1;
	FMT(path, "%s/%s", f->job_id, f->all[0].file);
	return fs_rename(f->l->dirfd, new, f->l->dirfd, path, err);
}

/* good: how much of what lies here is in the store as well, and can be read there. */
static int keep_file(const struct fetching *f, uint64_t good, struct err *err)
{
	const char *file = f->all[0].file;
	struct joblog_sent sent;

	if (joblog_sent_load(f->l, f->job_id, file, &sent, err) < 0)
		return -1;
	sent.bytes = MIN(sent.bytes, good);
	sent.puts = (uint32_t)f->n;
	return joblog_sent_save(f->l, f->job_id, file, &sent, err);
}

/* What lies here stays until all of the store's is here and synced, and for good where that is less
 * (`here`: so much of it counts): the store is damaged. */
static int fetch_file(const struct fetching *f, const char *new, uint64_t here, struct err *err)
{
	AUTO_BUF struct buf state = BUF_INIT(SEGMENT_STATE_MAX);
	struct joblog_sent sent = {.puts = (uint32_t)f->n};

	if (mkdirat(f->l->dirfd, f->job_id, 0700) < 0 && errno != EEXIST)
		return err_errno(err, errno, "log of %s", f->job_id);
	if (fetch_new(f, new, &state, &sent.bytes, err) < 0)
		return -1;
	if (sent.bytes < here)
		return keep_file(f, sent.bytes, err);
	if (install(f, new, buf_view(&state), err) < 0)
		return err_wrap(err, "log of %s", f->job_id);
	return joblog_sent_save(f->l, f->job_id, f->all[0].file, &sent, err);
}

/* What is open is appended to: its place is not another file's. That happens where the folder was
 * deleted between a look at "epoch" and the first line, or by somebody else. */
static bool in_use(const struct fetching *f)
{
	char name[JOBLOG_NAME_CAP];

	FMT(name, "%s/node-%u", f->job_id, f->rank);
	return f->kind == JOBLOG_LINES && joblog_is_open(f->l, name);
}

/* Samples that were thinned, and are not stored since: fewer bytes than are stored, and newer. */
static bool is_thinned(const struct joblog_sent *sent)
{
	return sent->era > 0 && sent->bytes == 0;
}

/* What lies here is as good as the store's when no later server stored anything and nothing of it
 * was lost; it may have more, which was not stored in time. "epoch" stays what it was until all
 * files are here: so the next try, and a crash at any point, decide the same for each of them. */
static int bring_file(const struct fetching *f, struct err *err)
{
	bool later = f->before < f->all[f->n_all - 1].epoch, there;
	const char *file = f->all[0].file;
	char new[JOBLOG_NAME_CAP];
	struct joblog_sent sent;
	uint64_t size;
	int r;

	if (in_use(f))
		return keep_file(f, stored(f), err);
	if (size_here(f, &size, &there, err) < 0 ||
	    joblog_sent_load(f->l, f->job_id, file, &sent, err) < 0)
		return -1;
	if (there && !later && (size >= stored(f) || is_thinned(&sent)))
		return keep_file(f, stored(f), err);
	FMT(new, "%s/%s.new", f->job_id, file);
	r = fetch_file(f, new, later ? 0 : size, err);
	(void)unlinkat(f->l->dirfd, new, 0); /* else the next one overwrites it */
	return r;
}

static int forget_sent(void *arg, int dirfd, const char *name, struct err *err)
{
	const char *job_id = arg;

	if (str_ends(str_of(name), ".sent") && unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "log of %s", job_id);
	return 0;
}

/* A store that has nothing of it is another one than the last time. */
static int begin_again(struct joblogs *l, const char *job_id, struct err *err)
{
	AUTO_FREE char *name = xstrdup(job_id);
	int fd = openat(l->dirfd, job_id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "log of %s", job_id);
	return fs_each_name(fd, job_id, forget_sent, name, err);
}

static int fetch_once(struct joblogs *l, const char *job_id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct fetching f = {.l = l, .a = a, .job_id = job_id};
	struct segment *s;
	size_t n;

	if (joblog_epoch(l, job_id, &f.before, err) < 0 ||
	    segment_list(l->store->os, a, job_id, NULL, &s, &n, err) < 0 ||
	    (n == 0 && begin_again(l, job_id, err) < 0))
		return -1;
	for (size_t run; n > 0; s += run, n -= run) {
		run = segment_run(s, n);
		if (!joblog_file_parse(s->file, &f.kind, &f.rank))
			continue; /* of a later version */
		f.all = s;
		f.n_all = run;
		f.piece = ARENA_ARRAY(a, struct segment_piece, run);
		f.n = segment_pieces(s, run, f.piece);
		if (bring_file(&f, err) < 0)
			return -1;
		if (run > 1) /* of a job that ended with its server, perhaps */
			joblog_mark_at(l, job_id, f.kind, f.rank, 0, JOBLOG_NEVER,
			               clock_mono_ms() + JOBLOG_SETTLE_MS);
	}
	return have(l, job_id, err);
}

int joblog_fetch(struct joblogs *l, const char *job_id, struct err *err)
{
	int r = -1;

	for (int i = 0; i < TRIES && r < 0; i++) {
		err_clear(err);
		r = fetch_once(l, job_id, err);
		if (r < 0 && err->code != ERR_NOT_FOUND)
			break;
	}
	return r < 0 ? err_wrap(err, "log of %s", job_id) : 0;
}

struct lock *joblog_stripe(struct joblogs *l, const char *job_id)
{
	return &l->store->stripe[hash_crc32(0, job_id, strlen(job_id)) % JOBLOG_STRIPES];
}

bool joblog_may_look(struct joblogs *l, const char *job_id, struct err *err)
{
	struct err no = {0};
	uint32_t before;

	if (l->store == NULL || !err_info(err)->retry ||
	    joblog_epoch(l, job_id, &before, &no) < 0 || before == 0)
		return false;
	err_clear(err);
	return true;
}

int joblog_attach(struct joblogs *l, const char *job_id, struct err *err)
{
	struct joblog_store *st = l->store;
	struct lock *stripe;
	uint32_t epoch;
	int r;

	if (st == NULL)
		return 0;
	if (joblog_epoch(l, job_id, &epoch, err) < 0)
		return -1;
	if (epoch == st->epoch)
		return 0;
	if (joblog_is_paused(st))
		return err_set(
			err, ERR_UNAVAILABLE,
			"log of %s: the object store does not answer; it is asked again soon",
			job_id);
	stripe = joblog_stripe(l, job_id);
	lock_take(stripe);
	r = joblog_epoch(l, job_id, &epoch, err);
	if (r == 0 && epoch != st->epoch) {
		r = joblog_fetch(l, job_id, err);
		if (r == 0 || err_info(err)->retry)
			joblog_note_answer(st, r == 0);
	}
	lock_give(stripe);
	return r;
}
