/*
 * objstore_passed.c - the objects of a folder that another process of this machine has: it opens
 * each file, we move the bytes. See passing.h, which is the other end.
 *
 * A connection is taken for one question, or for the few that write one object, and kept for the
 * next ones, with the empty file that came with the last answer: small files follow each other, and
 * each costs one question then. One that was idle may have lost its other end meanwhile (the server
 * was restarted): then the question is asked once more, on a new one.
 */
#include "store/objects/objstore_dir.h"

#include "base/arena.h"
#include "base/clock.h"
#include "core/wire.h"
#include "io/local.h"
#include "store/common/copy.h"
#include "store/objects/passing.h"

#include <sys/socket.h>

#define IDLE_MAX 24
#define QUESTION_MAX ((size_t)12 << 10)
#define ANSWER_MS (600 * 1000) /* the other end syncs, and its disk may be slow */
#define STEP_MS 200
#define AGAIN_MS 20 /* a commit that was not taken yet */

struct way {
	int sock;
	int blank; /* the other end's file for what is written next; -1: none */
};

struct passed {
	struct objstore base;
	char *path, *token;
	const atomic_bool *cancel; /* may be NULL */
	struct lock lock;
	struct way idle[IDLE_MAX];
	size_t n;
};

struct answer {
	struct objstore_info info;
	int fd; /* -1: none came */
};

static bool canceled(const struct passed *s)
{
	return s->cancel != NULL && atomic_load(s->cancel);
}

/* ---- connections ------------------------------------------------------------------------- */

static void way_close(struct way *w)
{
	close_fd_p(&w->blank);
	close_fd_p(&w->sock);
	*w = (struct way){-1, -1};
}

/* The last one that was used, or that has a file. sock -1: there is none. */
static struct way take_idle(struct passed *s, bool with_blank)
{
	struct way found = {-1, -1};

	lock_take(&s->lock);
	for (size_t i = s->n; i-- > 0 && found.sock < 0;) {
		if (with_blank && s->idle[i].blank < 0)
			continue;
		found = s->idle[i];
		s->idle[i] = s->idle[--s->n];
	}
	lock_give(&s->lock);
	return found;
}

static void keep(struct passed *s, struct way *w)
{
	bool kept;

	lock_take(&s->lock);
	kept = s->n < IDLE_MAX;
	if (kept)
		s->idle[s->n++] = *w;
	lock_give(&s->lock);
	if (!kept)
		way_close(w);
}

static int reach(struct passed *s, int *out, struct err *err)
{
	AUTO_FD int fd = -1;

	if (local_connect(s->path, SOCK_SEQPACKET, &fd, err) < 0) {
		if (err->code == ERR_NOT_FOUND)
			err_become(err, ERR_UNAVAILABLE);
		return err_wrap(err, "the server on this machine does not answer");
	}
	if (local_check_listener(fd, err) < 0)
		return -1;
	*out = TAKE_FD(fd);
	return 0;
}

/* ---- questions --------------------------------------------------------------------------- */

static int receive(struct passed *s, int sock, struct buf *body, int *fd, struct err *err)
{
	int64_t until = clock_mono_ms() + ANSWER_MS;

	while (local_receive_message(sock, STEP_MS, body, fd, err) < 0) {
		if (err->code != ERR_TIMEOUT || clock_mono_ms() > until)
			return -1;
		err_clear(err);
		if (canceled(s))
			return err_set(err, ERR_CANCELED, "canceled");
	}
	return 0;
}

/* What the answer says: an error of the other end is ours. */
static int read_answer(struct buf *body, struct answer *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_passed m = {0};

	if (wire_passed_parse(&m, a, buf_view(body), err) < 0)
		return -1;
	if (m.status != 0)
		return wire_told_error(m.status, m.error, m.message, err);
	out->info = (struct objstore_info){.size = m.size, .modified_ms = m.modified_ms};
	copy_cut(out->info.etag, sizeof(out->info.etag), m.etag != NULL ? m.etag : "");
	return 0;
}

/* *lost: there was no whole answer, and the connection is of no more use. */
static int ask(struct passed *s, int sock, struct wire_pass m, int fd, struct answer *out,
               bool *lost, struct err *err)
{
	AUTO_BUF struct buf question = BUF_INIT(QUESTION_MAX), body = BUF_INIT(LOCAL_MESSAGE_MAX);

	*lost = true;
	m.token = s->token;
	wire_pass_write(&m, &question);
	if (question.full)
		return err_set(err, ERR_TOO_BIG, "the key is too long");
	out->fd = -1;
	if (local_send_message(sock, buf_view(&question), fd, err) < 0 ||
	    receive(s, sock, &body, &out->fd, err) < 0)
		return -1;
	*lost = false;
	if (read_answer(&body, out, err) == 0)
		return 0;
	close_fd_p(&out->fd);
	out->fd = -1;
	return -1;
}

/* The first question of a connection, which stays the caller's. */
static int begin(struct passed *s, struct wire_pass m, int fd, struct way *out, struct answer *got,
                 struct err *err)
{
	bool lost = false, fresh;

	do {
		struct way w = take_idle(s, false);

		fresh = w.sock < 0;
		if (canceled(s)) {
			way_close(&w);
			return err_set(err, ERR_CANCELED, "canceled");
		}
		if (fresh && reach(s, &w.sock, err) < 0)
			return -1;
		if (ask(s, w.sock, m, fd, got, &lost, err) == 0) {
			*out = w;
			return 0;
		}
		if (!lost)
			keep(s, &w);
		else
			way_close(&w);
		if (!lost || fresh || err->code != ERR_UNAVAILABLE)
			return -1;
		err_clear(err);
	} while (!fresh);
	return -1;
}

static int call(struct passed *s, struct wire_pass m, int fd, struct answer *out, struct err *err)
{
	struct way w;

	if (begin(s, m, fd, &w, out, err) < 0)
		return -1;
	keep(s, &w);
	return 0;
}

/* ---- reading ----------------------------------------------------------------------------- */

static int passed_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
                     struct err *err)
{
	struct answer got = {0};

	if (call((struct passed *)os, (struct wire_pass){.verb = "open", .key = key}, -1, &got,
	         err) < 0)
		return -1;
	if (got.fd < 0)
		return err_set(err, ERR_INVALID, "the answer has no file");
	*fd = got.fd;
	*info = got.info;
	return 0;
}

static int passed_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	AUTO_FD int fd = -1;
	struct objstore_info info;

	return passed_fd(os, key, &fd, &info, err) < 0 ? -1 : dir_get_fd(fd, &info, out, err);
}

static int passed_stat(struct objstore *os, const char *key, struct objstore_info *out,
                       struct err *err)
{
	AUTO_FD int fd = -1;

	return passed_fd(os, key, &fd, out, err);
}

static int passed_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                       uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                       struct err *err)
{
	AUTO_FD int fd = -1;
	struct objstore_info info;

	if (passed_fd(os, key, &fd, &info, err) < 0 ||
	    objstore_check_etag(etag, info.etag, err) < 0)
		return -1;
	return dir_read_fd(fd, &info, first, count, sink, arg, cancel, err);
}

static int passed_link(struct objstore *os, const char *key, int dirfd, const char *name,
                       struct err *err)
{
	struct answer got = {0};

	return call((struct passed *)os, (struct wire_pass){.verb = "link", .key = key, .to = name},
	            dirfd, &got, err);
}

/* ---- writing ----------------------------------------------------------------------------- */

struct writing {
	struct passed *s;
	const char *key;
	struct way way;
};

/* Nothing is asked of it: has the other end gone? */
static bool is_gone(int sock)
{
	char byte;

	return recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static int write_begin(struct writing *w, struct objstore *os, const char *key, struct err *err)
{
	struct answer got = {0};

	*w = (struct writing){.s = (struct passed *)os, .key = key};
	w->way = take_idle(w->s, true);
	if (w->way.sock >= 0 && !is_gone(w->way.sock))
		return 0;
	way_close(&w->way);
	if (begin(w->s, (struct wire_pass){.verb = "create", .key = key}, -1, &w->way, &got, err) <
	    0)
		return -1;
	close_fd_p(&w->way.blank); /* another one takes its place */
	w->way.blank = got.fd;
	if (got.fd >= 0)
		return 0;
	way_close(&w->way);
	return err_set(err, ERR_INVALID, "the answer has no file");
}

/* The other end takes no file that somebody has open for writing: a child of ours may, between fork
 * and exec. And not too many large ones at once. */
static int commit(struct writing *w, struct wire_pass m, struct answer *got, bool *lost,
                  struct err *err)
{
	int64_t until = clock_mono_ms() + ANSWER_MS;

	while (ask(w->s, w->way.sock, m, -1, got, lost, err) < 0) {
		if (*lost || err->code != ERR_BUSY || clock_mono_ms() > until)
			return -1;
		if (canceled(w->s)) {
			err_clear(err);
			return err_set(err, ERR_CANCELED, "canceled");
		}
		err_clear(err);
		clock_sleep_ms(AGAIN_MS);
	}
	return 0;
}

/* rc: what writing came to. The other end takes the file away unless it is committed. */
static int write_end(struct writing *w, int rc, const char *etag, struct objstore_info *info,
                     struct err *err)
{
	struct wire_pass m = {.verb = "commit", .key = w->key, .etag = etag};
	struct answer got = {.fd = -1};
	struct stat st = {0};
	bool lost = true;
	int fd = w->way.blank;

	if (rc == 0 && (fstat(fd, &st) < 0 || (st.st_size >= PASSING_LARGE && fsync(fd) < 0)))
		rc = err_errno(err, errno, "sync the object");
	if (rc == 0 && st.st_size >= PASSING_LARGE)
		copy_drop(fd);
	m.to = st.st_size < PASSING_LARGE ? "next" : NULL;
	(void)close(fd); /* first: nothing is committed that somebody may still write to */
	w->way.blank = -1;
	if (rc == 0)
		rc = commit(w, m, &got, &lost, err);
	w->way.blank = got.fd;
	if (rc == 0 && info != NULL)
		*info = got.info;
	if (lost)
		way_close(&w->way);
	else
		keep(w->s, &w->way);
	return rc;
}

static int passed_put(struct objstore *os, const char *key, struct str body, struct err *err)
{
	struct writing w;
	uint8_t md5[16];
	char etag[33];

	hash_md5(body.p, body.n, md5);
	hex_encode(md5, sizeof(md5), etag);
	if (write_begin(&w, os, key, err) < 0)
		return -1;
	return write_end(&w, fs_write_all(w.way.blank, body.p, body.n, err), etag, NULL, err);
}

static int passed_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                           struct digest *sha256, struct err *err)
{
	struct writing w;
	char etag[80] = "";
	int rc;

	if (write_begin(&w, os, key, err) < 0)
		return -1;
	rc = dir_write_file(f, w.way.blank, sha256, etag, err);
	return write_end(&w, rc, etag, NULL, err);
}

static int passed_put_stream(struct objstore *os, const char *key, uint64_t size,
                             objstore_read_fn *read, void *arg, struct objstore_info *info,
                             struct err *err)
{
	struct writing w;
	char etag[80] = "";
	uint64_t got;
	int rc;

	if (write_begin(&w, os, key, err) < 0)
		return -1;
	rc = dir_receive(w.way.blank, 0, size, read, arg, &got, etag, err);
	return write_end(&w, rc, etag, info, err);
}

static int passed_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	struct answer got = {0};

	return call((struct passed *)os, (struct wire_pass){.verb = "copy", .key = from, .to = to},
	            -1, &got, err);
}

static int passed_del(struct objstore *os, const char *key, struct err *err)
{
	struct answer got = {0};

	return call((struct passed *)os, (struct wire_pass){.verb = "delete", .key = key}, -1, &got,
	            err);
}

/* ---- life -------------------------------------------------------------------------------- */

static void passed_close(struct objstore *os)
{
	struct passed *s = (struct passed *)os;

	for (size_t i = 0; i < s->n; i++)
		way_close(&s->idle[i]);
	lock_done(&s->lock);
	free(s->path);
	free(s->token);
	free(s);
}

/* Nobody is asked yet: who has the files may be away for now. */
static int passed_open(struct objstore **out, const char *rest, const struct objstore_env *env,
                       struct err *err)
{
	struct passed *s;

	if (rest[0] != '/')
		return err_set(err, ERR_INVALID, "the path of the socket must start with '/'");
	if (env->token == NULL)
		return err_set(err, ERR_INVALID, "it needs a token");
	s = xcalloc(1, sizeof(*s));
	s->path = xstrdup(rest);
	s->token = xstrdup(env->token);
	s->cancel = env->cancel;
	lock_init(&s->lock, LOCK_PASSED);
	*out = &s->base;
	return 0;
}

const struct objstore_ops objstore_passed = {
	.scheme = "passed",
	.open = passed_open,
	.close = passed_close,
	.get = passed_get,
	.put = passed_put,
	.put_file = passed_put_file,
	.put_stream = passed_put_stream,
	.copy = passed_copy,
	.stat = passed_stat,
	.read = passed_read,
	.fd = passed_fd,
	.link = passed_link,
	.del = passed_del,
};
