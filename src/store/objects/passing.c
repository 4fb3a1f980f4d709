/*
 * passing.c - see passing.h. One thread waits, for those who connect and for the next question of
 * each; a question goes to a worker, which has its connection until it is answered.
 */
#include "store/objects/passing.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/thread.h"
#include "core/wire.h"
#include "io/local.h"
#include "io/workers.h"
#include "store/common/copy.h"
#include "store/objects/objstore_dir.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#define TICK_MS 1000
#define ANSWER_MAX ((size_t)12 << 10)
#define NAME_LEN_MAX 255
#define LARGE_MAX (PASSING_THREADS / 2)

/* IDLE: the thread waits for its next question. BUSY: a worker has it. OVER: the thread frees it.
 */
enum conn_state { CONN_IDLE, CONN_BUSY, CONN_OVER };

struct conn {
	unsigned magic;
#define CONN_MAGIC 0x53434f4eU
	struct passing *p;
	int fd;
	uid_t uid;
	enum conn_state state; /* under the lock; the rest is whose turn it is */
	int64_t since_ms;      /* since when it is idle */
	bool good; /* it has shown a token that may something; then this is its digest */
	bool counted;
	struct digest token;
	char blank[OBJSTORE_BLANK_CAP];
	int blank_fd; /* for reading; -1: there is none */
};

struct passing {
	unsigned magic;
#define PASSING_MAGIC 0x53504153U
	struct passing_options o;
	int listen_fd, wake_fd;
	struct workers *workers;
	pthread_t thread;
	atomic_bool stopping;
	atomic_uint large; /* commits of large files, which are on their way to the disk */
	int64_t full_ms;   /* no connection is accepted until then: the thread's own */
	struct lock lock;
	struct conn *conn[PASSING_CONNS_MAX]; /* the thread's own; their states under the lock */
	size_t n;
};

/* A question that is being answered. */
struct question {
	struct passing *p;
	struct conn *c;
	struct wire_pass m;
	int fd; /* came along; -1: none */
	struct objstore_info info;
	int answer_fd;
};

/* ---- the verbs --------------------------------------------------------------------------- */

static int may(const struct question *q, enum passing_right right, const char *key, struct err *err)
{
	struct conn *c = q->c;

	if (q->p->o.may(q->p->o.arg, str_of(q->m.token), right, key, err) < 0)
		return -1;
	if (!c->good)
		c->token = hash_sha256(q->m.token, strlen(q->m.token));
	c->good = true;
	return 0;
}

static bool by_content(const struct passing *p, const char *key)
{
	return p->o.blobs != NULL &&
	       (str_starts(str_of(key), "blobs/sha256/") || str_starts(str_of(key), "manifests/"));
}

static int open_blob(struct question *q, int *fd, struct err *err)
{
	struct stat st;

	if (!by_content(q->p, q->m.key))
		return err_set(err, ERR_NOT_FOUND, "no such object");
	*fd = fs_open_beneath(blobs_dirfd(q->p->o.blobs), q->m.key, O_RDONLY | O_NOFOLLOW, 0, err);
	if (*fd < 0)
		return -1;
	if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close_fd_p(fd);
		*fd = -1;
		return err_set(err, ERR_NOT_FOUND, "no such object");
	}
	q->info = (struct objstore_info){
		.size = (uint64_t)st.st_size,
		.modified_ms = clock_ns_of(st.st_mtim.tv_sec, st.st_mtim.tv_nsec) / 1000000};
	FMT(q->info.etag, "%.32s-1", strrchr(q->m.key, '/') + 1);
	return 0;
}

static int need_objects(const struct question *q, struct err *err)
{
	return q->p->o.objects != NULL ? 0
	                               : err_set(err, ERR_NOT_FOUND,
	                                         "%s: there are no such objects here", q->m.key);
}

/* What is kept by content may be in both, and is there to stay among the objects. */
static int do_open(struct question *q, struct err *err)
{
	if (may(q, PASSING_READ, q->m.key, err) < 0)
		return -1;
	if (q->p->o.objects != NULL) {
		if (objstore_fd(q->p->o.objects, q->m.key, &q->answer_fd, &q->info, err) == 0)
			return 0;
		if (err->code != ERR_NOT_FOUND || !by_content(q->p, q->m.key))
			return -1;
		err_clear(err);
	}
	return open_blob(q, &q->answer_fd, err);
}

static void drop_blank(struct conn *c)
{
	if (c->blank_fd < 0)
		return;
	objstore_discard(c->p->o.objects, c->blank);
	(void)close(c->blank_fd);
	c->blank_fd = -1;
}

/* We keep it for reading, so that whether anybody writes to it can be asked. */
static int make_blank(struct question *q, struct err *err)
{
	struct conn *c = q->c;
	AUTO_FD int fd = -1;
	char path[64];

	drop_blank(c);
	if (objstore_blank(q->p->o.objects, c->blank, &fd, err) < 0)
		return -1;
	FMT(path, "/proc/self/fd/%d", fd);
	c->blank_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (c->blank_fd < 0) {
		(void)err_errno(err, errno, "%s", path);
		objstore_discard(q->p->o.objects, c->blank);
		return -1;
	}
	q->answer_fd = TAKE_FD(fd);
	return 0;
}

static int do_create(struct question *q, struct err *err)
{
	if (may(q, PASSING_WRITE, q->m.key, err) < 0 || need_objects(q, err) < 0)
		return -1;
	return make_blank(q, err);
}

/* A lease for readers is given on a file that nobody has open for writing, nor mapped so. File
 * systems that know no leases (EINVAL) do not say. */
static int check_unwritten(int fd, struct err *err)
{
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
		(void)fcntl(fd, F_SETLEASE, F_UNLCK);
		return 0;
	}
	if (errno == EAGAIN)
		return err_set(err, ERR_BUSY, "the file is still open for writing");
	return errno == EINVAL ? 0 : err_errno(err, errno, "a lease on the file");
}

static bool is_etag(const char *s)
{
	size_t n = strlen(s);

	return n < sizeof(((struct objstore_info *)0)->etag) && strspn(s, "0123456789abcdef-") == n;
}

static int publish(struct question *q, const char *etag, struct err *err)
{
	struct conn *c = q->c;
	int r = objstore_publish(q->p->o.objects, c->blank, c->blank_fd, q->m.key, etag, &q->info,
	                         err);

	if (r == 0)
		copy_drop(c->blank_fd);
	if (r == 0 || err->code != ERR_BUSY)
		drop_blank(c); /* published, its old name means nothing any more */
	return r;
}

/* What is large may take its time on the way to the disk: some workers are left for the others. */
static int publish_in_turn(struct question *q, const char *etag, struct err *err)
{
	struct stat st;
	bool large;
	int r;

	if (fstat(q->c->blank_fd, &st) < 0)
		return err_errno(err, errno, "stat");
	large = st.st_size >= PASSING_LARGE;
	if (large && atomic_fetch_add(&q->p->large, 1) >= LARGE_MAX)
		r = err_set(err, ERR_BUSY, "too many large files are being stored");
	else
		r = publish(q, etag, err);
	if (large)
		atomic_fetch_sub(&q->p->large, 1);
	return r;
}

/* ERR_BUSY leaves the file as it is: it may be committed later. A writer need not be one who
 * writes: a child has all that its parent had open, until its exec. */
static int do_commit(struct question *q, struct err *err)
{
	const char *etag = q->m.etag != NULL ? q->m.etag : "";
	int r;

	if (may(q, PASSING_WRITE, q->m.key, err) < 0 || need_objects(q, err) < 0)
		return -1;
	if (q->c->blank_fd < 0)
		return err_set(err, ERR_CONFLICT, "no file was created on this connection");
	if (!is_etag(etag))
		return err_set(err, ERR_INVALID, "etag: hex digits are expected");
	if (check_unwritten(q->c->blank_fd, err) < 0)
		return -1;
	r = publish_in_turn(q, etag, err);
	if (r == 0 && q->m.to != NULL && strcmp(q->m.to, "next") == 0) {
		struct err later = {0};

		(void)(make_blank(q, &later) < 0); /* who needs it creates it, and hears why not */
	}
	return r;
}

static int need_to(const struct question *q, struct err *err)
{
	return q->m.to != NULL ? 0 : err_set(err, ERR_INVALID, "to: it is missing");
}

static int do_copy(struct question *q, struct err *err)
{
	if (need_to(q, err) < 0 || objstore_check_key(str_of(q->m.to), err) < 0 ||
	    may(q, PASSING_READ, q->m.key, err) < 0 || may(q, PASSING_WRITE, q->m.to, err) < 0 ||
	    need_objects(q, err) < 0)
		return -1;
	return objstore_copy(q->p->o.objects, q->m.key, q->m.to, err);
}

static int do_delete(struct question *q, struct err *err)
{
	if (may(q, PASSING_WRITE, q->m.key, err) < 0 || need_objects(q, err) < 0)
		return -1;
	return objstore_del(q->p->o.objects, q->m.key, err);
}

/* We may write where the caller may not: so it has to be the caller's own folder. */
static int check_folder(const struct question *q, struct err *err)
{
	struct statvfs by; /* the mount that it was opened through */
	struct stat st;

	if (q->fd < 0 || fstat(q->fd, &st) < 0 || !S_ISDIR(st.st_mode) || fstatvfs(q->fd, &by) < 0)
		return err_set(err, ERR_INVALID, "no folder came along");
	if (st.st_uid != q->c->uid && q->c->uid != 0)
		return err_set(err, ERR_DENIED, "the folder is not yours");
	if ((by.f_flag & ST_RDONLY) != 0) /* a mount may show what is ours as the caller's */
		return err_set(err, ERR_DENIED, "the folder is not yours to write to");
	return 0;
}

/* The same folder by our own mount of it: the kernel links nothing from one mount to another. */
static int shown_folder(const struct question *q)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = {.h = {.handle_bytes = MAX_HANDLE_SZ}};
	const char *top = q->p->o.shown;
	AUTO_FD int base = -1, fd = -1;
	char self[40], at[FS_PATH_MAX];
	int mount_id;
	ssize_t n;

	if (top == NULL || q->c->uid == geteuid())
		return -1;
	base = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (base < 0 || name_to_handle_at(q->fd, "", &u.h, &mount_id, AT_EMPTY_PATH) < 0)
		return -1;
	fd = open_by_handle_at(base, &u.h, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	FMT(self, "/proc/self/fd/%d", fd);
	n = readlink(self, at, sizeof(at) - 1);
	if (n < 0)
		return -1;
	at[n] = '\0';
	return str_starts(str_of(at), top) && at[strlen(top)] == '/' ? TAKE_FD(fd) : -1;
}

/* Read by all, changed by nobody who asks. */
static int give_away(const struct question *q, int fd)
{
	const uid_t to = q->p->o.owner;
	struct stat st, folder;

	if (fstat(fd, &st) < 0 || fstat(q->fd, &folder) < 0)
		return -1;
	if (st.st_dev != folder.st_dev) {
		errno = EXDEV;
		return -1;
	}
	if ((st.st_mode & 07777) != 0444 && fchmod(fd, 0444) < 0)
		return -1;
	return st.st_uid == to && st.st_gid == to ? 0 : fchown(fd, to, to);
}

/* Where it cannot be given away, or has no room for another name, it is copied. */
static int link_given(const struct question *q, int fd, struct err *err)
{
	static const int copied[] = {EXDEV, EMLINK, EPERM, EROFS, EINVAL, EOPNOTSUPP};

	if (give_away(q, fd) == 0 && linkat(fd, "", q->fd, q->m.to, AT_EMPTY_PATH) == 0)
		return 0;
	for (size_t i = 0; i < COUNT(copied); i++)
		if (errno == copied[i])
			return err_set(err, ERR_UNSUPPORTED, "it cannot have a name there: %s",
			               strerror(errno));
	return err_errno(err, errno, "%s", q->m.to);
}

static int link_blob(struct question *q, struct err *err)
{
	AUTO_FD int fd = -1;

	if (q->p->o.owner == 0)
		return dir_link_at(blobs_dirfd(q->p->o.blobs), q->m.key, q->fd, q->m.to, err);
	return open_blob(q, &fd, err) < 0 ? -1 : link_given(q, fd, err);
}

static int link_object(struct question *q, struct err *err)
{
	AUTO_FD int fd = -1;

	if (need_objects(q, err) < 0)
		return -1;
	if (q->p->o.owner == 0)
		return objstore_link(q->p->o.objects, q->m.key, q->fd, q->m.to, err);
	if (objstore_fd(q->p->o.objects, q->m.key, &fd, &q->info, err) < 0)
		return -1;
	return link_given(q, fd, err);
}

static int do_link(struct question *q, struct err *err)
{
	const char *name = q->m.to;
	int ours;

	if (need_to(q, err) < 0)
		return -1;
	if (strlen(name) > NAME_LEN_MAX || strchr(name, '/') != NULL ||
	    !fs_path_is_plain(str_of(name)))
		return err_set(err, ERR_INVALID, "to: it is no name of a file");
	if (may(q, PASSING_READ, q->m.key, err) < 0 || check_folder(q, err) < 0)
		return -1;
	ours = shown_folder(q);
	if (ours >= 0) {
		(void)close(q->fd);
		q->fd = ours;
	}
	if (by_content(q->p, q->m.key)) {
		if (link_blob(q, err) == 0)
			return 0;
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
	}
	return link_object(q, err);
}

static const struct {
	const char *verb;
	int (*run)(struct question *q, struct err *err);
} verbs[] = {
	{"open", do_open}, {"create", do_create}, {"commit", do_commit},
	{"copy", do_copy}, {"delete", do_delete}, {"link", do_link},
};

static int run_verb(struct question *q, struct err *err)
{
	if (objstore_check_key(str_of(q->m.key), err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(verbs); i++) {
		if (strcmp(verbs[i].verb, q->m.verb) == 0)
			return verbs[i].run(q, err);
	}
	return err_set(err, ERR_INVALID, "verb: \"%s\" is not known", q->m.verb);
}

/* ---- one question ------------------------------------------------------------------------ */

static int send_answer(const struct question *q, const struct err *failed, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(ANSWER_MAX);
	struct wire_passed m = {
		.size = q->info.size, .modified_ms = q->info.modified_ms, .etag = q->info.etag};

	if (failed->code != ERR_NONE) {
		m = (struct wire_passed){.status = err_info(failed)->http,
		                         .error = err_id(failed),
		                         .message = failed->msg};
	}
	wire_passed_write(&m, &out);
	return local_send_message(q->c->fd, buf_view(&out), q->answer_fd, err);
}

/* False: nobody is there any more, or what came is no question. */
static bool answer(struct conn *c)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf body = BUF_INIT(LOCAL_MESSAGE_MAX);
	struct question q = {.p = c->p, .c = c, .fd = -1, .answer_fd = -1};
	struct err err = {0}, failed = {0};
	bool well;

	if (local_receive_message(c->fd, 0, &body, &q.fd, &err) < 0)
		return false;
	if (wire_pass_parse(&q.m, a, buf_view(&body), &failed) == 0)
		(void)(run_verb(&q, &failed) < 0); /* the answer says so */
	well = send_answer(&q, &failed, &err) == 0;
	close_fd_p(&q.fd);
	close_fd_p(&q.answer_fd);
	return well;
}

static void wake(struct passing *p)
{
	event_set(p->wake_fd);
}

/* A connection that is busy is the worker's; the worker gives it back by this. */
static enum conn_state state_of(struct conn *c)
{
	enum conn_state s;

	lock_take(&c->p->lock);
	s = c->state;
	lock_give(&c->p->lock);
	return s;
}

static void set_state(struct conn *c, enum conn_state to)
{
	lock_take(&c->p->lock);
	/* into a worker's hands and out of them, and nowhere else */
	assert((c->state == CONN_IDLE) == (to == CONN_BUSY));
	assert(c->state != CONN_OVER);
	c->state = to;
	lock_give(&c->p->lock);
}

static void serve(void *arg)
{
	struct conn *c = FROM_VOID(struct conn, arg, CONN_MAGIC);
	struct passing *p = c->p;
	bool well;

	assert(state_of(c) == CONN_BUSY); /* this worker's alone */
	well = answer(c);
	c->since_ms = clock_mono_ms();
	set_state(c, well ? CONN_IDLE : CONN_OVER);
	wake(p);
}

/* ---- the thread that waits --------------------------------------------------------------- */

static void conn_free(struct conn *c)
{
	assert(c->magic == CONN_MAGIC && state_of(c) != CONN_BUSY); /* no worker has it */
	drop_blank(c);
	(void)close(c->fd);
	c->magic = 0;
	free(c);
}

/* With the same token. That of one that was counted does not change any more. */
static bool is_one_too_many(const struct passing *p, const struct conn *c)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += p->conn[i] != NULL && p->conn[i]->counted &&
		     digest_same(&p->conn[i]->token, &c->token);
	return n >= PASSING_CONNS_OF_ONE;
}

static void accept_one(struct passing *p)
{
	AUTO_FD int fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct err err = {0};
	struct conn *c;
	uid_t uid;

	if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		log_warn("no process of this machine can ask for files: %s", strerror(errno));
		p->full_ms = clock_mono_ms() + TICK_MS;
	}
	if (fd < 0 || p->n == PASSING_CONNS_MAX || local_peer(fd, &uid, &err) < 0)
		return; /* it finds itself hung up on */
	c = xcalloc(1, sizeof(*c));
	c->magic = CONN_MAGIC;
	c->p = p;
	c->fd = TAKE_FD(fd);
	c->uid = uid;
	c->blank_fd = -1;
	c->since_ms = clock_mono_ms();
	p->conn[p->n++] = c;
}

/* Is it over, or silent for too long? Whoever has a file may be writing to it for hours: that one
 * goes when the other end does. */
static bool is_over(const struct passing *p, struct conn *c, enum conn_state s)
{
	if (s != CONN_IDLE)
		return s == CONN_OVER;
	if (c->good && !c->counted) {
		if (is_one_too_many(p, c))
			return true;
		c->counted = true;
	}
	return c->blank_fd < 0 &&
	       clock_mono_ms() - c->since_ms > (c->good ? p->o.idle_ms : p->o.stranger_ms);
}

/* Frees who is over; lists those whose next question is waited for. */
static size_t look(struct passing *p, struct pollfd *at, struct conn **whose)
{
	size_t n = 0, kept = 0;

	assert(p->n <= PASSING_CONNS_MAX);
	for (size_t i = 0; i < p->n; i++) {
		struct conn *c = p->conn[i];
		enum conn_state s = state_of(c);

		assert(c->magic == CONN_MAGIC && c->p == p && c->fd >= 0);
		if (is_over(p, c, s)) {
			conn_free(c);
			p->conn[i] = NULL;
			continue;
		}
		p->conn[i] = NULL;
		p->conn[kept++] = c;
		if (s == CONN_IDLE) {
			whose[n] = c;
			at[n++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
		}
	}
	p->n = kept;
	return n;
}

static void hand_over(struct passing *p, struct conn *c)
{
	struct err err = {0};

	set_state(c, CONN_BUSY);
	if (workers_submit(p->workers, serve, c, &err) == 0)
		return;
	log_warn("a process that asked for a file is hung up on: %s", err.msg);
	set_state(c, CONN_OVER);
}

static void *wait_for_questions(void *arg)
{
	struct passing *p = FROM_VOID(struct passing, arg, PASSING_MAGIC);
	AUTO_FREE struct pollfd *at = xcalloc(PASSING_CONNS_MAX + 2, sizeof(*at));
	AUTO_FREE struct conn **whose = xcalloc(PASSING_CONNS_MAX, sizeof(struct conn *));

	while (!atomic_load(&p->stopping)) {
		size_t n = look(p, at + 2, whose);
		uint64_t seen;

		at[0] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
		at[1] = (struct pollfd){.fd = clock_mono_ms() < p->full_ms ? -1 : p->listen_fd,
		                        .events = POLLIN};
		if (poll(at, n + 2, TICK_MS) <= 0)
			continue;
		if (at[0].revents != 0)
			(void)!read(p->wake_fd, &seen, sizeof(seen));
		for (size_t i = 0; i < n; i++) {
			if (at[i + 2].revents != 0)
				hand_over(p, whose[i]);
		}
		if (at[1].revents != 0)
			accept_one(p);
	}
	return NULL;
}

int passing_start(struct passing **out, const struct passing_options *o, struct err *err)
{
	struct passing *p = xcalloc(1, sizeof(*p));
	int r;

	p->magic = PASSING_MAGIC;
	p->o = *o;
	p->o.idle_ms = o->idle_ms > 0 ? o->idle_ms : PASSING_IDLE_MS;
	p->o.stranger_ms = o->stranger_ms > 0 ? o->stranger_ms : PASSING_STRANGER_MS;
	lock_init(&p->lock, LOCK_PASSING);
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->listen_fd = -1;
	if (p->wake_fd < 0 || local_listen(o->path, SOCK_SEQPACKET, &p->listen_fd, err) < 0) {
		if (err->code == ERR_NONE)
			(void)err_errno(err, errno, "eventfd");
		close_fd_p(&p->wake_fd);
		lock_done(&p->lock);
		free(p);
		return -1;
	}
	if (o->objects != NULL)
		objstore_discard(o->objects, NULL);
	p->o.path = NULL; /* the caller's, and not needed any more */
	p->workers = workers_new(PASSING_THREADS, PASSING_CONNS_MAX, "passing");
	r = pthread_create(&p->thread, NULL, wait_for_questions, p);
	if (r != 0) {
		atomic_store(&p->stopping, true);
		workers_stop(p->workers);
		(void)close(p->listen_fd);
		(void)close(p->wake_fd);
		lock_done(&p->lock);
		free(p);
		return err_errno(err, r, "start a thread");
	}
	*out = p;
	return 0;
}

void passing_stop(struct passing *p)
{
	if (p == NULL)
		return;
	atomic_store(&p->stopping, true);
	wake(p);
	(void)pthread_join(p->thread, NULL);
	workers_stop(p->workers);
	for (size_t i = 0; i < p->n; i++)
		conn_free(p->conn[i]);
	(void)close(p->listen_fd);
	(void)close(p->wake_fd);
	lock_done(&p->lock);
	free(p);
}
