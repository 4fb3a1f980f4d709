/* logs.c - the pump, its two streams, and the file; see logs.h. */
#include "run/logs.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/sync.h"
#include "base/thread.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#define CHUNK ((size_t)64 << 10)
#define BATCH_MAX ((size_t)64 << 20) /* records of one turn: a limit, not a size */
#define READS_MAX 8                  /* of one stream before the other has its turn */
#define SAY_MAX 2000

struct stream {
	int fd;
	char kind; /* 'o', 'e' */
	struct redact_stream redact;
	struct buf text;  /* redacted, of a line without its end */
	int64_t since_ms; /* when its first byte came; 0 = it is empty */
	bool open;        /* an earlier part of the line is in the file already */
	bool at_line_end; /* the last byte read was a newline */
};

struct logs {
	unsigned magic;
#define LOGS_MAGIC 0x524c4f47U
	const struct redact *redact;
	struct lock lock; /* of what follows, down to `lost` */
	int fd;
	uint64_t size;
	int64_t last_ns;
	uint64_t lost; /* records that a full disk took */
	bool full;     /* LOGS_BYTES_MAX was reached, and said */
	struct buf tail;
	void (*on_write)(void *arg);
	void *arg;
	struct stream stream[2];
	pthread_t thread;
	bool pumping;
	int wake_fd; /* eventfd: finish */
	atomic_bool finish;
	_Atomic int64_t until_ms, heard_ms;
};

/* What is true whenever the lock is free. */
static void logs_check(const struct logs *l)
{
	assert(l->magic == LOGS_MAGIC && lock_is_mine(&l->lock) && l->fd >= 0);
	assert(l->tail.n <= l->tail.max);
}

int logs_open(struct logs **out, const char *path, const struct redact *r, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct logs *l = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		(void)err_errno(err, errno, "%s", path);
		close_fd_p(&fd);
		return -1;
	}
	l = xcalloc(1, sizeof(*l));
	l->magic = LOGS_MAGIC;
	l->fd = fd;
	l->size = (uint64_t)st.st_size;
	l->redact = r;
	l->wake_fd = -1;
	l->tail = (struct buf)BUF_INIT(2 * LOGS_TAIL_MAX);
	lock_init(&l->lock, LOCK_RUN_LOGS);
	*out = l;
	return 0;
}

void logs_on_write(struct logs *l, void (*fn)(void *arg), void *arg)
{
	lock_take(&l->lock);
	logs_check(l);
	l->on_write = fn;
	l->arg = arg;
	lock_give(&l->lock);
}

static uint64_t count_lines(const struct buf *b)
{
	uint64_t n = 0;

	for (size_t i = 0; i < b->n; i++)
		n += b->p[i] == '\n';
	return n;
}

/* All or nothing: a reader of the file never sees half a record. */
static bool write_records(struct logs *l, const struct buf *b)
{
	struct err err = {0};

	if (fs_write_all(l->fd, b->p, b->n, &err) == 0) {
		l->size += b->n;
		return true;
	}
	(void)!ftruncate(l->fd, (off_t)l->size); /* shrinking needs no space */
	return false;
}

static void say_locked(struct logs *l, const char *text)
{
	AUTO_BUF struct buf b = BUF_INIT(BATCH_MAX);

	logline_write(&b, clock_wall_ns(), &l->last_ns, 's', str_of(text), false);
	if (!write_records(l, &b))
		l->lost += count_lines(&b);
}

static void put_locked(struct logs *l, const struct buf *b)
{
	char text[200];

	if (b->n == 0 || l->full)
		return;
	if (l->size + b->n > LOGS_BYTES_MAX) {
		FMT(text, "log truncated at %" PRIu64 " bytes", (uint64_t)LOGS_BYTES_MAX);
		say_locked(l, text);
		l->full = true;
		return;
	}
	if (l->lost > 0) {
		uint64_t lost = l->lost;

		FMT(text, "%" PRIu64 " log lines lost: the disk is full", lost);
		l->lost = 0;
		say_locked(l, text);
		if (l->lost > 0) { /* still none */
			l->lost = lost + count_lines(b);
			return;
		}
	}
	if (!write_records(l, b))
		l->lost += count_lines(b);
}

static void put(struct logs *l, const struct buf *b)
{
	void (*fn)(void *) = NULL;
	void *arg = NULL;

	lock_take(&l->lock);
	logs_check(l);
	put_locked(l, b);
	logs_check(l);
	fn = l->on_write;
	arg = l->arg;
	lock_give(&l->lock);
	if (fn != NULL && b->n > 0)
		fn(arg);
}

void logs_message(struct logs *l, const char *fmt, ...)
{
	AUTO_BUF struct buf plain = BUF_INIT(SAY_MAX), clean = BUF_INIT(4 * SAY_MAX);
	void (*fn)(void *) = NULL;
	void *arg = NULL;
	va_list ap;

	va_start(ap, fmt);
	{
		char text[SAY_MAX];

		(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut, if it must be */
		buf_puts(&plain, text);
	}
	va_end(ap);
	redact_text(l->redact, buf_view(&plain), &clean);
	lock_take(&l->lock);
	logs_check(l);
	if (!l->full)
		say_locked(l, buf_cstr(&clean));
	fn = l->on_write;
	arg = l->arg;
	lock_give(&l->lock);
	if (fn != NULL)
		fn(arg);
}

static void keep_tail(struct logs *l, struct str text)
{
	lock_take(&l->lock);
	logs_check(l);
	text = str_skip(text, text.n > LOGS_TAIL_MAX ? text.n - LOGS_TAIL_MAX : 0);
	if (l->tail.n + text.n > l->tail.max)
		buf_drop(&l->tail, l->tail.n + text.n - LOGS_TAIL_MAX);
	buf_str(&l->tail, text);
	logs_check(l);
	lock_give(&l->lock);
}

/* Whole lines go out; a piece of one when it is due (`partial`) or too long to wait. */
static void cut_lines(struct logs *l, struct stream *s, bool partial, struct buf *out)
{
	int64_t now = clock_wall_ns();
	const char *nl = NULL;
	size_t used = 0;

	lock_take(&l->lock);
	while (s->text.n > used &&
	       (nl = memchr(s->text.p + used, '\n', s->text.n - used)) != NULL) {
		size_t n = (size_t)(nl - s->text.p) - used;

		logline_write(out, now, &l->last_ns, s->kind, str_n(s->text.p + used, n), false);
		used += n + 1;
		s->open = false;
	}
	if (s->text.n > used && (partial || s->text.n - used > LOGLINE_TEXT_MAX)) {
		logline_write(out, now, &l->last_ns, s->kind,
		              str_n(s->text.p + used, s->text.n - used), true);
		used = s->text.n;
		s->open = true;
	}
	lock_give(&l->lock);
	assert(used <= s->text.n);
	if (used > 0)
		buf_drop(&s->text, used);
	if (s->text.n == 0)
		s->since_ms = 0;
}

static void end_stream(struct logs *l, struct stream *s, struct buf *out)
{
	assert(s->fd >= 0);
	redact_flush(&s->redact, &s->text);
	if (s->text.n > 0 ? s->text.p[s->text.n - 1] != '\n' : s->open)
		buf_putc(&s->text, '\n'); /* an open line ends with its stream */
	cut_lines(l, s, true, out);
	assert(s->text.n == 0); /* all of it is cut */
	(void)close(s->fd);
	s->fd = -1;
}

/* True: there may be more. */
static bool read_stream(struct logs *l, struct stream *s, struct buf *out)
{
	char chunk[8192];
	bool more = false;

	assert(s->fd >= 0);
	for (size_t got = 0; got < CHUNK;) {
		ssize_t n = read(s->fd, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			end_stream(l, s, out);
			return false;
		}
		got += (size_t)n;
		more = true;
		l->heard_ms = clock_mono_ms();
		s->at_line_end = chunk[n - 1] == '\n';
		if (s->since_ms == 0)
			s->since_ms = clock_mono_ms();
		redact_feed(&s->redact, str_n(chunk, (size_t)n), &s->text);
		/* a line's end ends every secret too: those of several lines are taken line by line
		 */
		if (s->at_line_end)
			redact_flush(&s->redact, &s->text);
		keep_tail(l, buf_view(&s->text));
		cut_lines(l, s, false, out);
	}
	return more;
}

/* How long may poll sleep before a partial line is due? */
static int next_due(struct logs *l, bool finishing)
{
	int64_t now = clock_mono_ms(), due = -1;

	for (size_t i = 0; i < COUNT(l->stream); i++) {
		if (l->stream[i].since_ms > 0 && l->stream[i].text.n > 0)
			due = due < 0 ? l->stream[i].since_ms + LOGS_PARTIAL_MS
			              : MIN(due, l->stream[i].since_ms + LOGS_PARTIAL_MS);
	}
	if (finishing)
		due = due < 0 ? l->until_ms : MIN(due, l->until_ms);
	return due < 0 ? -1 : (int)MIN(MAX(due - now, 0), 1000);
}

static void *pump(void *arg)
{
	struct logs *l = FROM_VOID(struct logs, arg, LOGS_MAGIC);

	while (l->stream[0].fd >= 0 || l->stream[1].fd >= 0) {
		AUTO_BUF struct buf out = BUF_INIT(BATCH_MAX);
		struct pollfd p[3] = {{.fd = l->stream[0].fd, .events = POLLIN},
		                      {.fd = l->stream[1].fd, .events = POLLIN},
		                      {.fd = l->finish ? -1 : l->wake_fd, .events = POLLIN}};
		bool finishing = l->finish;
		int n = poll(p, COUNT(p), next_due(l, finishing));
		int64_t now = clock_mono_ms();

		for (size_t i = 0; n > 0 && i < COUNT(l->stream); i++) {
			for (int turn = 0; p[i].revents != 0 && turn < READS_MAX; turn++) {
				if (!read_stream(l, &l->stream[i], &out))
					break;
			}
		}
		for (size_t i = 0; i < COUNT(l->stream); i++) {
			struct stream *s = &l->stream[i];

			if (s->since_ms > 0 && now - s->since_ms >= LOGS_PARTIAL_MS)
				cut_lines(l, s, true, &out);
			if (finishing && s->fd >= 0 && now >= l->until_ms)
				end_stream(l, s, &out);
		}
		put(l, &out);
	}
	return NULL;
}

int logs_pump(struct logs *l, int out_fd, int err_fd, struct err *err)
{
	const int fd[] = {out_fd, err_fd};
	int rc = 0;

	assert(!l->pumping);
	l->wake_fd = eventfd(0, EFD_CLOEXEC);
	for (size_t i = 0; i < COUNT(l->stream); i++) {
		struct stream *s = &l->stream[i];

		(void)fcntl(fd[i], F_SETFL, O_NONBLOCK);
		s->fd = fd[i];
		s->kind = i == 0 ? 'o' : 'e';
		s->text = (struct buf)BUF_INIT(8 * CHUNK);
		redact_stream_init(&s->redact, l->redact);
	}
	rc = pthread_create(&l->thread, NULL, pump, l);
	if (rc != 0)
		return err_errno(err, rc, "start the log thread");
	l->pumping = true;
	return 0;
}

void logs_finish(struct logs *l, int64_t drain_ms)
{

	if (!l->pumping)
		return;
	l->until_ms = clock_mono_ms() + drain_ms;
	l->finish = true;
	event_set(l->wake_fd);
	(void)pthread_join(l->thread, NULL);
	assert(l->stream[0].fd < 0 && l->stream[1].fd < 0);
	l->pumping = false;
	for (size_t i = 0; i < COUNT(l->stream); i++) {
		redact_stream_done(&l->stream[i].redact);
		buf_done(&l->stream[i].text);
	}
}

int64_t logs_heard_ms(struct logs *l)
{
	return l->heard_ms;
}

uint64_t logs_size(struct logs *l)
{
	uint64_t n = 0;

	lock_take(&l->lock);
	n = l->size;
	lock_give(&l->lock);
	return n;
}

bool logs_tail_has(struct logs *l, const char *words)
{
	bool found = false;

	lock_take(&l->lock);
	found = l->tail.n > 0 && memmem(l->tail.p, l->tail.n, words, strlen(words)) != NULL;
	lock_give(&l->lock);
	return found;
}

void logs_close(struct logs *l)
{
	if (l == NULL)
		return;
	logs_finish(l, 0);
	if (l->wake_fd >= 0)
		(void)close(l->wake_fd);
	(void)close(l->fd);
	buf_done(&l->tail);
	lock_done(&l->lock);
	free(l);
}
