/* joblog.c - the logs of jobs: opened, recovered, appended to and deleted; joblog_read.c reads. */
#include "store/logs/joblog_impl.h"

#include "base/log.h"
#include "base/reserve.h"

#include <dirent.h>

#define STATE_HEAD "stoker-joblog 1"

int joblogs_open(struct joblogs **out, const char *dir, struct err *err)
{
	struct joblogs *l;
	int fd;

	if (fs_mkdirs(AT_FDCWD, dir, 0700, err) < 0)
		return err_wrap(err, "open the folder of logs");
	fd = fs_open_dir(dir, err);
	if (fd < 0)
		return err_wrap(err, "open the folder of logs");
	l = xcalloc(1, sizeof(*l));
	l->dirfd = fd;
	l->files = map_new();
	lock_init(&l->lock, LOCK_JOBLOGS);            /* cannot fail with default attributes */
	lock_init(&l->samples, LOCK_JOBLOGS_SAMPLES); /* the same */
	*out = l;
	return 0;
}

static void logfile_free(struct logfile *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	if (f->state_fd >= 0)
		(void)close(f->state_fd);
	lock_done(&f->lock);
	free(f);
}

static void free_each(struct str key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	logfile_free(FROM_VOID(struct logfile, value, LOGFILE_MAGIC));
}

void joblogs_close(struct joblogs *l)
{
	if (l == NULL)
		return;
	map_each(l->files, free_each, NULL);
	map_free(l->files);
	joblog_store_free(l);
	(void)close(l->dirfd);
	lock_done(&l->lock);
	lock_done(&l->samples);
	free(l);
}

/* What is true of one whenever its lock is free. */
static void logfile_check(const struct logfile *f)
{
	assert(f->magic == LOGFILE_MAGIC && lock_is_mine(&f->lock));
	assert(f->fd >= 0 && f->state_fd >= 0 && f->n_attempts <= JOBLOG_ATTEMPTS_MAX);
}

int joblog_check_id(const char *job_id, struct err *err)
{
	struct str id = str_of(job_id);

	if (!fs_path_is_plain(id) || memchr(id.p, '/', id.n) != NULL || id.n > 100)
		return err_set(err, ERR_INVALID, "\"%.100s\" is not a job id", job_id);
	return 0;
}

/* Reads the state file; a missing or broken one leaves everything at zero. */
static bool state_parse(struct logfile *f, struct str text)
{
	struct err bad = {0};
	struct str line, size, full;

	if (!str_cut(&text, '\n', &line) || !str_starts(line, STATE_HEAD " "))
		return false;
	line = str_skip(line, strlen(STATE_HEAD) + 1);
	if (!str_cut(&line, ' ', &size) || !str_cut(&line, ' ', &full) ||
	    str_u64(size, 0, UINT64_MAX, &f->size, &bad) < 0)
		return false;
	f->full = str_eq(full, "full");
	while (f->n_attempts < JOBLOG_ATTEMPTS_MAX && str_cut(&text, '\n', &line)) {
		struct joblog_attempt *at = &f->attempt[f->n_attempts];
		struct str id;

		err_clear(&bad);
		if (!str_cut(&line, ' ', &id) ||
		    str_copy(id, at->id, sizeof(at->id), "attempt", &bad) < 0 ||
		    str_u64(line, 0, UINT64_MAX, &at->next, &bad) < 0)
			break; /* the rest was torn: those runners are asked to send again */
		f->n_attempts++;
	}
	return true;
}

/* Numbers have fixed widths: the text only grows, and one pwrite replaces it whole. */
void joblog_state_text(const struct logfile *f, struct buf *out)
{
	buf_printf(out, STATE_HEAD " %020" PRIu64 " %s\n", f->size, f->full ? "full" : "open");
	for (size_t i = 0; i < f->n_attempts; i++)
		buf_printf(out, "%s %020" PRIu64 "\n", f->attempt[i].id, f->attempt[i].next);
}

static int state_save(const struct logfile *f, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(JOBLOG_STATE_MAX);

	joblog_state_text(f, &text);
	assert(!text.full);
	if (fs_pwrite_all(f->state_fd, text.p, text.n, 0, err) < 0 ||
	    ftruncate(f->state_fd, (off_t)text.n) < 0) {
		if (err->code == ERR_NONE)
			(void)err_errno(err, errno, "writing");
		return err_wrap(err, "log of %s", f->name);
	}
	return 0;
}

/* The end of the last whole record at or before `size`, and that record's time. */
static int find_end(struct logfile *f, uint64_t size, struct err *err)
{
	AUTO_FREE char *tail = xmalloc(2 * LOGLINE_MAX);
	size_t n = (size_t)MIN(size, (uint64_t)2 * LOGLINE_MAX);
	const char *end;
	struct logline rec;
	struct str rest;

	f->size = 0;
	f->last_ns = 0;
	if (n == 0)
		return 0;
	if (fs_pread_all(f->fd, tail, n, size - n, err) < 0)
		return err_wrap(err, "log of %s", f->name);
	end = memrchr(tail, '\n', n);
	if (end == NULL)
		return 0;
	rest = str_n(tail, (size_t)(end + 1 - tail));
	f->size = size - n + rest.n;
	while (logline_next(&rest, &rec)) /* the first one may be cut: it is passed over */
		f->last_ns = MAX(f->last_ns, rec.ns);
	return 0;
}

/* cut: what was not acknowledged goes; else it is only not read. */
static int recover(struct logfile *f, bool cut, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(JOBLOG_STATE_MAX);
	struct stat st;
	uint64_t real;
	char *to = buf_room(&text, JOBLOG_STATE_MAX);
	ssize_t n = pread(f->state_fd, to, JOBLOG_STATE_MAX, 0);

	if (n < 0 || fstat(f->fd, &st) < 0)
		return err_errno(err, errno, "log of %s", f->name);
	text.n = (size_t)n;
	real = (uint64_t)st.st_size;
	if (!state_parse(f, buf_view(&text))) {
		f->size = real;
		f->n_attempts = 0;
	}
	if (find_end(f, MIN(f->size, real), err) < 0)
		return -1;
	if (cut && real > f->size && ftruncate(f->fd, (off_t)f->size) < 0)
		return err_errno(err, errno, "log of %s", f->name);
	return 0;
}

static int logfile_open(struct joblogs *l, const char *job_id, const char *name, bool create,
                        struct logfile **out, struct err *err)
{
	int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0);
	char path[sizeof((*out)->name) + 8];
	struct logfile *f = xcalloc(1, sizeof(*f));

	f->magic = LOGFILE_MAGIC;
	copy_cut(f->name, sizeof(f->name), name);
	f->fd = f->state_fd = -1;
	lock_init(&f->lock, LOCK_JOBLOG); /* cannot fail with default attributes */
	if (create && mkdirat(l->dirfd, job_id, 0700) < 0 && errno != EEXIST) {
		(void)err_errno(err, errno, "log of %s", name);
		goto out;
	}
	FMT(path, "%s.log", name);
	f->fd = openat(l->dirfd, path, flags, 0600);
	if (f->fd < 0 && errno == ENOENT && !create) {
		logfile_free(f);
		*out = NULL;
		return 0;
	}
	FMT(path, "%s.state", name);
	if (f->fd >= 0)
		f->state_fd = openat(l->dirfd, path, flags | O_CREAT, 0600);
	if (f->state_fd < 0) {
		(void)err_errno(err, errno, "log of %s", name);
		goto out;
	}
	if (recover(f, true, err) < 0)
		goto out;
	*out = f;
	return 0;
out:
	logfile_free(f);
	return -1;
}

int joblog_left(struct joblogs *l, const char *job_id, const char *name, uint64_t *size,
                bool *there, struct err *err)
{
	struct logfile *f;

	if (logfile_open(l, job_id, name, false, &f, err) < 0)
		return -1;
	*there = f != NULL;
	*size = f != NULL ? f->size : 0;
	if (f != NULL)
		logfile_free(f);
	return 0;
}

static void find_oldest(struct str key, void *value, void *arg)
{
	struct logfile *f = FROM_VOID(struct logfile, value, LOGFILE_MAGIC);
	struct logfile **oldest = arg;

	(void)key;
	if (f->users == 0 && (*oldest == NULL || f->used < (*oldest)->used))
		*oldest = f;
}

static void evict(struct joblogs *l)
{
	struct logfile *oldest = NULL;

	map_each(l->files, find_oldest, &oldest);
	if (oldest == NULL)
		return; /* every one is in use just now: workers bound how many that can be */
	assert(!oldest->dead);
	(void)map_del(l->files, str_of(oldest->name));
	logfile_free(oldest);
}

bool joblog_is_open(struct joblogs *l, const char *name)
{
	bool is;

	lock_take(&l->lock);
	is = map_get(l->files, str_of(name)) != NULL;
	lock_give(&l->lock);
	return is;
}

int joblog_take_here(struct joblogs *l, const char *job_id, uint32_t rank, bool create,
                     struct logfile **out, struct err *err)
{
	char name[sizeof((*out)->name)];
	struct logfile *f;
	int r = 0;

	FMT(name, "%s/node-%u", job_id, rank);
	lock_take(&l->lock);
	f = map_get(l->files, str_of(name));
	if (f == NULL) {
		if (map_count(l->files) >= JOBLOG_OPEN_MAX)
			evict(l);
		r = logfile_open(l, job_id, name, create, &f, err);
		if (r == 0 && f != NULL)
			(void)map_set(l->files, str_of(name), f); /* there was none */
	}
	if (r == 0 && f != NULL) {
		f->users++;
		f->used = ++l->clock;
	}
	lock_give(&l->lock);
	if (r == 0)
		*out = f;
	return r;
}

int joblog_take(struct joblogs *l, const char *job_id, uint32_t rank, bool create,
                struct logfile **out, struct err *err)
{
	char name[sizeof((*out)->name)];

	if (joblog_check_id(job_id, err) < 0)
		return -1;
	if (rank >= JOBLOG_RANKS_MAX)
		return err_set(err, ERR_INVALID, "node %u: a job has at most %d", rank,
		               JOBLOG_RANKS_MAX);
	FMT(name, "%s/node-%u", job_id, rank);
	if (l->store != NULL && !joblog_is_open(l, name) && joblog_attach(l, job_id, err) < 0)
		return -1;
	return joblog_take_here(l, job_id, rank, create, out, err);
}

void joblog_give(struct joblogs *l, struct logfile *f)
{
	bool last;

	if (f == NULL)
		return;
	lock_take(&l->lock);
	assert(f->users > 0);
	last = --f->users == 0 && f->dead;
	lock_give(&l->lock);
	if (last)
		logfile_free(f);
}

/* Of nobody else, and never written to: the store may know of more. */
static int look_at_left(struct joblogs *l, const char *job_id, uint32_t rank, struct logfile **out,
                        struct err *err)
{
	struct logfile *f = xcalloc(1, sizeof(*f));
	char path[JOBLOG_NAME_CAP];

	f->magic = LOGFILE_MAGIC;
	FMT(f->name, "%s/node-%u", job_id, rank);
	f->users = 1;
	f->dead = true;
	lock_init(&f->lock, LOCK_JOBLOG); /* cannot fail with default attributes */
	FMT(path, "%s/node-%u.log", job_id, rank);
	f->fd = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
	FMT(path, "%s/node-%u.state", job_id, rank);
	f->state_fd = openat(l->dirfd, path, O_RDONLY | O_CLOEXEC);
	if (f->fd >= 0 && f->state_fd >= 0 && recover(f, false, err) == 0) {
		*out = f;
		return 0;
	}
	if (err->code == ERR_NONE && errno != ENOENT)
		(void)err_errno(err, errno, "log of %s", f->name);
	logfile_free(f);
	*out = NULL; /* there is none */
	return err->code == ERR_NONE ? 0 : -1;
}

int joblog_look(struct joblogs *l, const char *job_id, uint32_t rank, struct logfile **out,
                struct err *err)
{
	if (joblog_take(l, job_id, rank, false, out, err) == 0)
		return 0;
	return joblog_may_look(l, job_id, err) ? look_at_left(l, job_id, rank, out, err) : -1;
}

uint64_t joblog_size(struct logfile *f)
{
	uint64_t size;

	lock_take(&f->lock);
	logfile_check(f);
	size = f->size;
	lock_give(&f->lock);
	return size;
}

static struct joblog_attempt *attempt_of(struct logfile *f, const char *id)
{
	struct joblog_attempt *at;

	for (size_t i = 0; i < f->n_attempts; i++)
		if (strcmp(f->attempt[i].id, id) == 0)
			return &f->attempt[i];
	if (f->n_attempts == JOBLOG_ATTEMPTS_MAX) {
		memmove(&f->attempt[0], &f->attempt[1],
		        sizeof(f->attempt[0]) * (JOBLOG_ATTEMPTS_MAX - 1));
		f->n_attempts--;
	}
	assert(f->n_attempts < JOBLOG_ATTEMPTS_MAX);
	at = &f->attempt[f->n_attempts++];
	memset(at, 0, sizeof(*at));
	copy_cut(at->id, sizeof(at->id), id);
	f->full = f->full && f->size + LOGLINE_MAX > JOBLOG_BYTES_MAX; /* the disk may have room */
	return at;
}

/* Puts `text` behind the log and the state behind that; nothing has happened when it fails. */
static int commit(struct logfile *f, const struct buf *text, int64_t last_ns, struct err *err)
{
	uint64_t size = f->size;

	logfile_check(f);
	assert(last_ns >= f->last_ns); /* the order of a log is that of its times */
	f->size += text->n;
	if (fs_pwrite_all(f->fd, text->p, text->n, size, err) < 0) {
		(void)err_wrap(err, "log of %s", f->name);
	} else if (state_save(f, err) == 0) {
		f->last_ns = last_ns;
		logfile_check(f);
		return 0;
	}
	f->size = size;
	if (ftruncate(f->fd, (off_t)size) < 0)
		log_debug("log=%s cannot be truncated: the next append overwrites it", f->name);
	return -1;
}

/* Every record with its time raised where the order needs it, as far as the log has room. */
static int gather(struct logfile *f, struct str records, struct buf *out, int64_t *last_ns,
                  struct err *err)
{
	struct logline rec;
	bool full = f->full;

	while (logline_next(&records, &rec)) {
		char stream = rec.continues ? (char)(rec.stream - 'a' + 'A') : rec.stream;

		if (rec.text.n > LOGLINE_TEXT_MAX)
			return err_set(err, ERR_INVALID, "a log record of %zu bytes: at most %zu",
			               rec.text.n, LOGLINE_TEXT_MAX);
		if (!full && f->size + out->n + LOGLINE_MAX > JOBLOG_BYTES_MAX) {
			full = true;
			logline_write(out, rec.ns, last_ns, 's',
			              str_of("log truncated: it has reached its size limit"),
			              false);
		}
		if (full)
			continue;
		*last_ns = MAX(rec.ns, *last_ns + 1);
		buf_printf(out, "%019" PRId64 " %c ", *last_ns, stream);
		buf_str(out, rec.text);
		buf_putc(out, '\n');
	}
	f->full = full;
	return buf_check(out, "log records", err);
}

static int append_locked(struct logfile *f, const char *attempt_id, uint64_t seq,
                         struct str records, uint64_t *next, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(records.n + LOGLINE_MAX);
	struct joblog_attempt *at = attempt_of(f, attempt_id);
	uint64_t before = at->next;
	int64_t last_ns = f->last_ns;
	bool full = f->full;
	size_t skip;

	logfile_check(f);
	if (seq > at->next) {
		*next = at->next;
		return err_set(err, ERR_CONFLICT,
		               "log of %s: bytes from %" PRIu64 " on are expected, not %" PRIu64,
		               f->name, at->next, seq);
	}
	skip = (size_t)MIN(at->next - seq, (uint64_t)records.n);
	if (skip > 0 && skip < records.n && records.p[skip - 1] != '\n')
		return err_set(err, ERR_INVALID, "log of %s: byte %" PRIu64 " is inside a record",
		               f->name, at->next);
	records = str_skip(records, skip);
	if (records.n > 0) {
		if (gather(f, records, &out, &last_ns, err) < 0)
			return -1;
		at->next += records.n;
		if (commit(f, &out, last_ns, err) < 0) {
			at->next = before;
			f->full = full;
			return -1;
		}
	}
	*next = at->next;
	return 0;
}

static int say_locked(struct logfile *f, int64_t now_ns, const char *text, uint64_t keep,
                      struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	int64_t last_ns = f->last_ns;
	int r;

	logline_write(&out, now_ns, &last_ns, 's', str_of(text), false);
	if (buf_check(&out, "a log line", err) < 0)
		return -1;
	while ((r = commit(f, &out, last_ns, err)) < 0 && err->code == ERR_NO_SPACE &&
	       reserve_take(keep))
		err_clear(err);
	return r;
}

/* When the reserve has no more for logs, the state and one line are still stored. */
static int append_last(struct logfile *f, const char *attempt_id, uint64_t seq, struct str records,
                       uint64_t *next, struct err *err)
{
	struct err ignored = {0};
	bool cut = false;
	int r;

	while ((r = append_locked(f, attempt_id, seq, records, next, err)) < 0 &&
	       err->code == ERR_NO_SPACE) {
		if (!reserve_take(RESERVE_WORDS)) {
			if (f->full && !reserve_take(RESERVE_WORDS / 2))
				break;
			cut = cut || !f->full;
			f->full = true; /* what comes is taken, and not kept */
		}
		err_clear(err);
	}
	if (r == 0 && cut)
		(void)say_locked(f, f->last_ns,
		                 "log lines lost: the disk is full, and the job is ending",
		                 RESERVE_WORDS / 2, &ignored); /* the log ends here, said or not */
	return r;
}

int joblogs_append(struct joblogs *l, const char *job_id, const char *attempt_id, uint32_t rank,
                   uint64_t seq, struct str records, bool last, uint64_t *next, struct err *err)
{
	struct logfile *f;
	int r;

	if (records.n > 0 && records.p[records.n - 1] != '\n')
		return err_set(err, ERR_INVALID, "log records end with a newline");
	if (attempt_id[0] == '\0' || strlen(attempt_id) >= JOBLOG_ATTEMPT_CAP ||
	    strpbrk(attempt_id, " \n") != NULL)
		return err_set(err, ERR_INVALID, "\"%.64s\" is not an attempt id", attempt_id);
	if (joblog_take(l, job_id, rank, true, &f, err) < 0)
		return -1;
	lock_take(&f->lock);
	r = last ? append_last(f, attempt_id, seq, records, next, err)
	         : append_locked(f, attempt_id, seq, records, next, err);
	lock_give(&f->lock);
	joblog_give(l, f);
	if (r == 0 && records.n > 0)
		joblog_mark(l, job_id, JOBLOG_LINES, rank, records.n, JOBLOG_SEGMENT_MS);
	return r;
}

int joblog_say(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text,
               struct err *err)
{
	struct logfile *f;
	int r;

	if (joblog_take(l, job_id, 0, true, &f, err) < 0)
		return -1;
	lock_take(&f->lock);
	r = say_locked(f, now_ns, text, RESERVE_WORDS / 2, err);
	lock_give(&f->lock);
	joblog_give(l, f);
	if (r == 0)
		joblog_mark(l, job_id, JOBLOG_LINES, 0, strlen(text), JOBLOG_MESSAGE_MS);
	return r;
}

/* Lines that wait keep their order: none overtakes them. */
int joblogs_message(struct joblogs *l, const char *job_id, int64_t now_ns, const char *text,
                    struct err *err)
{
	if (joblog_holds(l) && joblog_hold(l, job_id, now_ns, text))
		return 0;
	if (joblog_say(l, job_id, now_ns, text, err) == 0)
		return 0;
	if (!err_info(err)->retry || !joblog_hold(l, job_id, now_ns, text))
		return -1;
	err_clear(err);
	return 0;
}

static int ranks_here(struct joblogs *l, const char *job_id, uint32_t *n, struct err *err)
{
	uint32_t count = 0;
	struct dirent *e;
	DIR *d;
	int fd;

	if (joblog_check_id(job_id, err) < 0)
		return -1;
	fd = openat(l->dirfd, job_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return err_errno(err, errno, "log of %s", job_id);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	for (e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
		struct str name = str_of(e->d_name);
		struct err bad = {0};
		uint64_t rank;

		if (!str_starts(name, "node-") || !str_ends(name, ".log"))
			continue;
		name = str_n(name.p + 5, name.n - 9);
		if (str_u64(name, 0, JOBLOG_RANKS_MAX - 1, &rank, &bad) == 0)
			count = MAX(count, (uint32_t)rank + 1);
	}
	if (d != NULL)
		(void)closedir(d);
	else if (fd >= 0)
		(void)close(fd);
	*n = count;
	return 0;
}

int joblogs_ranks(struct joblogs *l, const char *job_id, uint32_t *n, struct err *err)
{
	if (joblog_check_id(job_id, err) < 0 ||
	    (joblog_attach(l, job_id, err) < 0 && !joblog_may_look(l, job_id, err)))
		return -1;
	return ranks_here(l, job_id, n, err);
}

int joblog_remove(struct joblogs *l, const char *job_id, struct err *err)
{
	uint32_t n;

	if (ranks_here(l, job_id, &n, err) < 0)
		return -1;
	lock_take(&l->lock);
	for (uint32_t rank = 0; rank < n; rank++) {
		char name[sizeof(((struct logfile *)0)->name)];
		struct logfile *f;

		FMT(name, "%s/node-%u", job_id, rank);
		f = map_del(l->files, str_of(name));
		if (f == NULL)
			continue;
		f->dead = true;
		if (f->users == 0)
			logfile_free(f);
	}
	lock_give(&l->lock);
	if (fs_remove_tree(l->dirfd, job_id, err) < 0)
		return err_wrap(err, "log of %s", job_id);
	return 0;
}

int joblogs_delete(struct joblogs *l, const char *job_id, struct err *err)
{
	if (joblog_check_id(job_id, err) < 0)
		return -1;
	return l->store != NULL ? joblog_forget(l, job_id, err) : joblog_remove(l, job_id, err);
}
