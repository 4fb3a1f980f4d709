/* test_xfer.c - parallel fetching: ranges, failures, resuming after kill -9. */
#include "unit.h"

#include "base/fs.h"
#include "store/sources/xfer.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)
#define BIG (40 * MIB + 12345)

/* A source whose bytes follow from their offset, and what shall go wrong. Shared with a child. */
struct origin {
	uint64_t size;
	uint8_t twist; /* another content */
	_Atomic uint64_t sent, calls, ranges;
	uint64_t resolve_at; /* from so many sent bytes on it stands still */
	uint64_t cut_every;  /* each answer ends after so many bytes: ERR_UNAVAILABLE */
	uint64_t fail_after; /* bytes; then fail_code for ever */
	enum err_code fail_code;
	bool no_ranges, too_much, silent_short;
	_Atomic unsigned open, open_most; /* connections */
	int mib_ms;                       /* how long one of them takes for a MiB */
	size_t piped; /* after a first piece so many bytes at a time come through a pipe */
};

#define TABLE_SIZE 1048573 /* prime: no two parts are alike */
static uint8_t table[TABLE_SIZE + 8192];

static int setup(void **state UNUSED)
{
	for (size_t i = 0; i < sizeof(table); i++)
		table[i] = (uint8_t)((i % TABLE_SIZE * 2654435761U >> 15) + i % TABLE_SIZE / 7);
	return 0;
}

/* At most 8192 bytes of the content. */
static const uint8_t *bytes_at(const struct origin *o, uint64_t at)
{
	return table + (at + o->twist) % TABLE_SIZE;
}

static int send_piped(const struct origin *o, uint64_t at, size_t n, const struct http_sink *to,
                      struct err *err)
{
	AUTO_FD int in = -1;
	AUTO_FD int out = -1;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	in = fds[1];
	out = fds[0];
	for (size_t done = 0; done < n; done += MIN(n - done, (size_t)4096))
		assert_ok(
			fs_write_all(in, bytes_at(o, at + done), MIN(n - done, (size_t)4096), err),
			err);
	return to->drain(to->arg, out, n, err);
}

static int origin_send(struct origin *o, uint64_t first, uint64_t count, const struct http_sink *to,
                       const atomic_bool *cancel, struct err *err)
{
	for (uint64_t at = first, end = first + count; at < end;) {
		bool piped = o->piped > 0 && at > first;
		size_t n = (size_t)MIN(end - at, (uint64_t)(piped ? o->piped : 8192));

		while (o->resolve_at > 0 && atomic_load(&o->sent) >= o->resolve_at)
			pause();
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (o->cut_every > 0 && at - first >= o->cut_every)
			return err_set(err, ERR_UNAVAILABLE, "cut");
		if (o->fail_code != ERR_NONE && atomic_load(&o->sent) >= o->fail_after)
			return err_set(err, o->fail_code, "as you wished");
		if (o->mib_ms > 0 && (at - first) % MIB == 0)
			(void)poll(NULL, 0, o->mib_ms);
		atomic_fetch_add(&o->sent, n);
		if ((piped ? send_piped(o, at, n, to, err)
		           : to->put(to->arg, bytes_at(o, at), n, err)) < 0)
			return -1;
		at += n;
	}
	return 0;
}

static int origin_read(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
                       const atomic_bool *cancel, struct err *err)
{
	struct origin *o = of;
	bool whole = first == 0 && count == o->size;
	unsigned open, most = atomic_load(&o->open_most);
	int r;

	atomic_fetch_add(&o->calls, 1);
	atomic_fetch_add(&o->ranges, !whole);
	if (o->no_ranges && !whole)
		return err_set(err, ERR_UNSUPPORTED, "the server ignores Range");
	if (o->silent_short && count > 10)
		count -= 10;
	open = atomic_fetch_add(&o->open, 1) + 1;
	while (open > most && !atomic_compare_exchange_weak(&o->open_most, &most, open))
		;
	r = origin_send(o, first, count, to, cancel, err);
	atomic_fetch_sub(&o->open, 1);
	if (r < 0)
		return -1;
	return o->too_much ? to->put(to->arg, "more", 4, err) : 0;
}

/* --- where it goes --------------------------------------------------------------------------- */

struct place {
	char dir[64], file[80], journal[80];
	int fd;
};

static void place_open(struct place *p)
{
	FMT(p->dir, "/tmp/test-xfer-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	FMT(p->file, "%s/file", p->dir);
	FMT(p->journal, "%s/file.journal", p->dir);
	p->fd = open(p->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(p->fd >= 0);
}

static void place_done(struct place *p)
{
	struct err err = {0};

	(void)close(p->fd);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
}

static struct digest want_sha256(const struct origin *o)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	struct digest d;

	for (uint64_t at = 0; at < o->size;) {
		size_t n = (size_t)MIN(o->size - at, (uint64_t)8192);

		hash_add(h, bytes_at(o, at), n);
		at += n;
	}
	(void)hash_end(h, d.b);
	return d;
}

static void assert_content(struct place *p, const struct origin *o)
{
	struct digest want = want_sha256(o), have;
	struct err err = {0};
	uint64_t n;

	assert_int_equal(lseek(p->fd, 0, SEEK_SET), 0);
	assert_ok(hash_fd(p->fd, &have, &n, &err), &err);
	assert_int_equal(n, o->size);
	assert_true(digest_same(&want, &have));
}

static struct xfer_job job_of(struct origin *o, struct place *p)
{
	return (struct xfer_job){.read = origin_read,
	                         .of = o,
	                         .size = o->size,
	                         .identity = "etag-1",
	                         .fd = p->fd,
	                         .journal = p->journal};
}

/* --- one stream ------------------------------------------------------------------------------ */

static void xfer_failures_of_one_stream(void **state UNUSED)
{
	static const struct {
		const char *name;
		struct origin o;
		enum err_code code;
		const char *words;
		uint64_t calls;
	} rows[] = {
		{"too much", {.size = 1000, .too_much = true}, ERR_CORRUPT, "sent more", 1},
		{"not found",
	         {.size = 1000, .fail_code = ERR_NOT_FOUND},
	         ERR_NOT_FOUND,
	         "as you wished",
	         1},
		{"no ranges and never whole",
	         {.size = 1000, .fail_code = ERR_UNSUPPORTED},
	         ERR_UNSUPPORTED,
	         "wished",
	         1},
		{"always short",
	         {.size = 5, .cut_every = 0, .fail_code = ERR_UNAVAILABLE},
	         ERR_UNAVAILABLE,
	         "wished",
	         6},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct origin o = rows[i].o;
		struct place p;
		struct err err = {0};
		struct xfer_job job;
		struct xfer_result res;

		place_open(&p);
		job = job_of(&o, &p);
		assert_row(xfer_fetch(&job, &res, &err) < 0, rows[i].name);
		assert_row(err.code == rows[i].code, rows[i].name);
		assert_row(strstr(err.msg, rows[i].words) != NULL, rows[i].name);
		assert_row(o.calls == rows[i].calls, rows[i].name);
		place_done(&p);
	}
}

static void xfer_one_stream_goes_on_where_it_was_cut(void **state UNUSED)
{
	struct origin o = {.size = 5 * MIB + 77, .cut_every = 2 * MIB};
	struct err err = {0};
	struct xfer_result res;
	struct digest want = want_sha256(&o);
	struct xfer_job job;
	struct place p;

	place_open(&p);
	job = job_of(&o, &p);
	job.expect = want.b;
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	assert_true(digest_same(&res.sha256, &want));
	assert_int_equal(o.sent, o.size);
	assert_int_equal(o.calls, 3);
	assert_content(&p, &o);
	place_done(&p);
}

static void xfer_into_memory(void **state UNUSED)
{
	static const uint64_t sizes[] = {0, 1, 8191, 70000};
	struct err err = {0};

	for (size_t i = 0; i < COUNT(sizes); i++) {
		struct origin o = {.size = sizes[i]};
		AUTO_FREE uint8_t *mem = xmalloc((size_t)sizes[i] + 1);
		struct xfer_job job = {
			.read = origin_read, .of = &o, .size = o.size, .fd = -1, .mem = mem};
		struct digest want = want_sha256(&o);
		struct xfer_result res;

		assert_ok(xfer_fetch(&job, &res, &err), &err);
		assert_true(digest_same(&res.sha256, &want));
		for (uint64_t at = 0; at < o.size; at++)
			assert_int_equal(mem[at], *bytes_at(&o, at));
	}
}

static int read_hello(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
                      const atomic_bool *cancel UNUSED, struct err *err)
{
	return to->put(to->arg, (const char *)of + first, (size_t)count, err);
}

/* git hash-object says so: a promise of another kind, with a prefix before the content. */
static void xfer_checks_a_git_blob_id(void **state UNUSED)
{
	char text[] = "hello\n", wrong[] = "hellO\n";
	uint8_t id[20], mem[6];
	struct err err = {0};
	struct xfer_result res;
	struct xfer_job job = {.read = read_hello,
	                       .of = text,
	                       .size = 6,
	                       .fd = -1,
	                       .mem = mem,
	                       .kind = HASH_SHA1,
	                       .expect = id,
	                       .prefix = {"blob 6", 7}};

	assert_ok(hex_decode(STR_LIT("ce013625030ba8dba906f756967f9e9ca394464a"), id, 20, &err),
	          &err);
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	job.of = wrong;
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_CORRUPT,
	           "wrong digest: the source announced sha1 ce013625");
}

/* --- many streams ---------------------------------------------------------------------------- */

struct seen {
	uint64_t last, calls;
};

static void on_progress(void *arg, uint64_t done)
{
	struct seen *s = arg;

	s->last = done;
	s->calls++;
}

static void xfer_many_streams(void **state UNUSED)
{
	static const struct {
		const char *name;
		struct origin o;
		unsigned streams;
	} rows[] = {
		{"plain", {.size = BIG}, 0},
		{"one stream", {.size = BIG}, 1},
		{"most streams", {.size = BIG}, 16},
		{"whole parts", {.size = 32 * MIB}, 3},
		{"cut again and again", {.size = BIG, .cut_every = 3 * MIB + 5}, 2},
		{"through a pipe", {.size = BIG, .piped = 50000}, 2},
		{"through a pipe, and cut", {.size = BIG, .piped = 7777, .cut_every = 3 * MIB}, 4},
		{"no ranges", {.size = BIG, .no_ranges = true}, 4},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct origin o = rows[i].o;
		struct digest want = want_sha256(&o);
		struct seen seen = {0};
		struct err err = {0};
		struct xfer_result res;
		struct xfer_job job;
		struct place p;

		place_open(&p);
		job = job_of(&o, &p);
		job.streams = rows[i].streams;
		job.progress = on_progress;
		job.arg = &seen;
		job.expect = want.b;
		if (xfer_fetch(&job, &res, &err) < 0)
			fail_msg("%s: %s", rows[i].name, err.msg);
		assert_row(digest_same(&res.sha256, &want), rows[i].name);
		assert_row(seen.last == o.size, rows[i].name);
		assert_row(res.fetched == o.size, rows[i].name);
		assert_row(o.no_ranges || o.ranges >= 4, rows[i].name);
		assert_content(&p, &o);
		place_done(&p);
	}
}

/* A source that gives each connection little is asked over more of them while that helps. */
static void xfer_more_streams_where_they_help(void **state UNUSED)
{
	struct origin o = {.size = BIG, .mib_ms = 150};
	struct digest want = want_sha256(&o);
	struct err err = {0};
	struct xfer_result res;
	struct xfer_job job;
	struct place p;

	place_open(&p);
	job = job_of(&o, &p);
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	assert_true(digest_same(&res.sha256, &want));
	assert_true(atomic_load(&o.open_most) >= 4); /* it begins with two */
	place_done(&p);
	o = (struct origin){.size = BIG, .mib_ms = 20};
	place_open(&p);
	job = job_of(&o, &p);
	job.streams_max = 2;
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	assert_int_equal(atomic_load(&o.open_most), 2);
	place_done(&p);
}

static void xfer_failures_of_many_streams(void **state UNUSED)
{
	struct origin right = {.size = BIG}, other = {.size = BIG, .twist = 1};
	struct origin broken = {.size = BIG, .fail_code = ERR_NOT_FOUND, .fail_after = 20 * MIB};
	struct digest want = want_sha256(&right);
	atomic_bool cancel = true;
	struct err err = {0};
	struct xfer_result res;
	struct xfer_job job;
	struct place p;
	uint64_t sent;

	place_open(&p);
	job = job_of(&other, &p);
	job.expect = want.b;
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_CORRUPT, "wrong digest");
	assert_int_equal(access(p.journal, F_OK), -1); /* nothing of it is believed again */

	job.of = &right;
	job.cancel = &cancel;
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_CANCELED, "canceled");
	job.cancel = NULL;
	assert_int_equal(unlink(p.journal), 0);

	/* What came before a failure is kept; the next try fetches the rest. */
	job.of = &broken;
	job.streams = job.streams_max = 1;
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_NOT_FOUND, "as you wished");
	sent = right.sent;
	job.of = &right;
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	assert_int_equal(right.sent - sent, res.fetched);
	assert_true(res.fetched < BIG);
	assert_content(&p, &right);
	place_done(&p);
}

/* --- resuming -------------------------------------------------------------------------------- */

/* A child fetches until the origin freezes after `bytes`, and is killed there. */
static void fetch_and_kill(struct place *p, struct origin *shared, uint64_t bytes)
{
	pid_t pid;
	int status;

	shared->resolve_at = bytes;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct xfer_job job = job_of(shared, p);
		struct xfer_result res;
		struct err err = {0};

		_exit(xfer_fetch(&job, &res, &err) == 0 ? 0 : 1);
	}
	for (int i = 0; i < 12000 && atomic_load(&shared->sent) < bytes; i++)
		(void)usleep(10000);
	assert_true(atomic_load(&shared->sent) >= bytes);
	(void)usleep(50000); /* those that are still writing come to a stand */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	shared->resolve_at = 0;
}

static void resume(struct place *p, struct origin *o, const char *identity, uint64_t *fetched)
{
	struct xfer_job job = job_of(o, p);
	struct digest want = want_sha256(o);
	struct xfer_result res;
	struct err err = {0};

	job.identity = identity;
	job.expect = want.b;
	assert_ok(xfer_fetch(&job, &res, &err), &err);
	assert_true(digest_same(&res.sha256, &want));
	assert_content(p, o);
	*fetched = res.fetched;
}

static void edit_journal(const struct place *p, void (*edit)(char *text, size_t *n))
{
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	struct err err = {0};
	size_t n;

	assert_ok(fs_read(AT_FDCWD, p->journal, &b, &err), &err);
	assert_non_null(buf_room(&b, 100));
	n = b.n;
	edit(b.p, &n);
	assert_ok(fs_write_atomic(AT_FDCWD, p->journal, str_n(b.p, n), 0600, &err), &err);
}

static void add_torn_line(char *text, size_t *n)
{
	memcpy(text + *n, "p 0000", 6);
	*n += 6;
}

static void add_false_line(char *text, size_t *n)
{
	memcpy(text + *n, "p 00000004 00000000\n", 20);
	*n += 20;
}

static void change_boot(char *text, size_t *n UNUSED)
{
	char *boot = text;

	for (int i = 0; i < 4; i++)
		boot = strchr(boot, ' ') + 1;
	memcpy(boot, "00000000", 8);
}

static void spoil_head(char *text, size_t *n UNUSED)
{
	text[0] = 'X';
}

static void cut_head(char *text UNUSED, size_t *n)
{
	*n = 30;
}

static void xfer_resumes_after_kill(void **state UNUSED)
{
	static const struct {
		const char *name;
		void (*edit)(char *text, size_t *n);
		const char *identity;
		bool resumes;
	} rows[] = {
		{"kill -9", NULL, "etag-1", true},
		{"torn last line", add_torn_line, "etag-1", true},
		{"a line that is not ours", add_false_line, "etag-1", true},
		{"the machine was lost before a sync", change_boot, "etag-1", false},
		{"spoiled head", spoil_head, "etag-1", false},
		{"half a head", cut_head, "etag-1", false},
		{"the file has changed", NULL, "etag-2", false},
	};
	struct origin *o =
		mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(o, MAP_FAILED);
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint64_t fetched = 0, killed_at;
		struct place p;

		memset(o, 0, sizeof(*o));
		o->size = 96 * MIB + 5;
		place_open(&p);
		fetch_and_kill(&p, o, 70 * MIB);
		killed_at = o->sent;
		if (rows[i].edit != NULL)
			edit_journal(&p, rows[i].edit);
		resume(&p, o, rows[i].identity, &fetched);
		/* At most one part for each of the four streams is fetched again. */
		if (rows[i].resumes)
			assert_row(fetched <= o->size - killed_at + 4 * XFER_PART_MIN,
			           rows[i].name);
		else
			assert_row(fetched == o->size, rows[i].name);
		place_done(&p);
	}
	(void)munmap(o, sizeof(*o));
}

/* Bytes that the journal vouches for have rotted on the disk: fetched again, all of them. */
static void xfer_does_not_believe_a_spoiled_file(void **state UNUSED)
{
	struct origin broken = {.size = BIG, .fail_code = ERR_NOT_FOUND, .fail_after = 30 * MIB};
	struct origin o = {.size = BIG};
	struct xfer_result res;
	struct err err = {0};
	struct xfer_job job;
	struct place p;
	uint64_t fetched;

	place_open(&p);
	job = job_of(&broken, &p);
	job.streams = 1;
	job.streams_max = 1;
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_NOT_FOUND, "wished");
	assert_int_equal(pwrite(p.fd, "rotten", 6, 1000), 6);
	resume(&p, &o, "etag-1", &fetched);
	assert_int_equal(fetched, BIG);
	/* A file without its full length has no journal of its own. */
	broken.sent = 0;
	assert_int_equal(unlink(p.journal), 0);
	assert_err(xfer_fetch(&job, &res, &err), &err, ERR_NOT_FOUND, "wished");
	assert_int_equal(ftruncate(p.fd, 100), 0);
	resume(&p, &o, "etag-1", &fetched);
	assert_int_equal(fetched, BIG);
	place_done(&p);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(xfer_failures_of_one_stream),
	cmocka_unit_test(xfer_one_stream_goes_on_where_it_was_cut),
	cmocka_unit_test(xfer_into_memory),
	cmocka_unit_test(xfer_checks_a_git_blob_id),
	cmocka_unit_test(xfer_many_streams),
	cmocka_unit_test(xfer_more_streams_where_they_help),
	cmocka_unit_test(xfer_failures_of_many_streams),
	cmocka_unit_test(xfer_resumes_after_kill),
	cmocka_unit_test(xfer_does_not_believe_a_spoiled_file),
};

UNIT_MAIN_IN(tests, setup, NULL)
