/* harvest.c - see harvest.h. */
#include "run/harvest.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/shown.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/units.h"
#include "core/compile_cache.h"
#include "core/hub_commit.h"
#include "core/hub_commit_write.h"
#include "run/tree_list.h"

#define PIECE ((size_t)256 << 10)
#define WHOLE_MAX ((size_t)512 << 20) /* of a file that is judged by its content */
#define RETRY_MS 3000
#define HARVEST_LEAST_MS 5000 /* of one try */
#define LOOK_MS 100           /* between two looks whether somebody waits for the end */
#define RECORD_MAX ((size_t)8 << 20)
#define TEXT_MAX (HUB_COMMIT_TEXT_MAX - 1)
#define LEFT_MAX 20   /* names in the log, of what is left out */
#define LEFT_CAP 1000 /* bytes of one */

struct known { /* a file as it was when it was sent, or when the job began */
	uint64_t size, inode;
	int64_t changed_ms;
};

struct harvest {
	unsigned magic;
#define HARVEST_MAGIC 0x48525653U
	struct harvest_options o;
	const struct wire_compile *cache;
	int root;              /* the folders of all kinds */
	struct arena *a;       /* of what is known */
	struct map *known;     /* KIND/PATH -> struct known */
	struct map *left;      /* KIND/PATH: said to be left out */
	uint64_t files, bytes; /* that were added */
	uint64_t there;        /* files that others had brought meanwhile */
	unsigned n_sent;
	bool refused;
	int64_t until_ms; /* of this one */
	bool last;        /* there is no other one after it */
	atomic_bool over; /* the commands are over: what goes on leaves the rest to the last one */
	atomic_bool cut;  /* there is no more time, also for the request that is under way */
	struct lock lock; /* of the rest */
	struct cond changed;
	bool soon, clean, done;
	pthread_t thread;
};

/* One commit that is being written. */
struct batch {
	struct harvest *h;
	struct arena *a;
	int fd; /* of a file without a name */
	uint64_t at, bytes;
	struct buf out;
	struct hub_commit_writer writer;
	const char **key; /* KIND/PATH */
	struct known *known;
	const char **entry; /* in the repository */
	size_t n;
};

/* What is true whenever the lock is free. */
static void harvest_check(const struct harvest *h)
{
	assert(h->magic == HARVEST_MAGIC && lock_is_mine(&h->lock));
	assert(!h->done || (h->over && h->last)); /* the last one is made after the end */
	assert(!h->clean || h->over);
}

/* ---- what there is ------------------------------------------------------------------------- */

static const char *key_of(struct arena *a, enum compile_kind kind, const char *path)
{
	return arena_printf(a, "%s/%s", compile_cache_kinds[kind].name, path);
}

/* ccache sets the times of an entry that it uses, JAX writes them to a file: of those that the
 * repository has, that is not worth telling. */
static bool is_touched(enum compile_kind kind, const char *path)
{
	return kind == COMPILE_CCACHE || (kind == COMPILE_JAX && str_ends(str_of(path), "-atime"));
}

static bool is_known(const struct harvest *h, enum compile_kind kind, const char *key,
                     const struct tree_entry *e)
{
	const struct known *k = map_get(h->known, str_of(key));

	return k != NULL && k->size == e->size && k->inode == e->inode &&
	       (k->changed_ms == e->changed_ms || is_touched(kind, e->path));
}

static void note_known(struct harvest *h, const char *key, const struct known *is)
{
	struct known *k = map_get(h->known, str_of(key));

	if (k == NULL) {
		k = ARENA_NEW(h->a, struct known);
		(void)map_set(h->known, str_of(key), k);
	}
	*k = *is;
}

static struct known known_of(const struct tree_entry *e)
{
	return (struct known){e->size, e->inode, e->changed_ms};
}

static int list_kind(const struct harvest *h, struct arena *a, enum compile_kind kind,
                     struct tree_list *out, struct err *err)
{
	const char *name = compile_cache_kinds[kind].name;
	int dir = openat(h->root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	*out = (struct tree_list){.a = a};
	if (dir < 0) /* the job has made something else of it */
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
		               ? 0
		               : err_errno(err, errno, "%s/%s", h->o.dir, name);
	return tree_list_some(out, a, dir, err);
}

/* Said once of each, while there are few. */
static void PRINTF(3, 4) leave_out(struct harvest *h, const char *key, const char *fmt, ...)
{
	char name[LEFT_CAP], why[200];
	va_list ap;

	if (map_count(h->left) > LEFT_MAX || map_get(h->left, str_of(key)) != NULL)
		return;
	(void)map_set(h->left, str_of(key), h);
	if (map_count(h->left) > LEFT_MAX) {
		logs_message(h->o.logs, "compile cache %s: more is left out", h->cache->repo);
		return;
	}
	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	logs_message(h->o.logs, "compile cache %s: left out: %s, with what belongs to it: %s",
	             h->cache->repo, shown_cut(str_of(key), name, sizeof(name)), why);
}

/* A part of what it belongs to will be missing. */
static bool is_left_out(struct harvest *h, const char *key, const struct tree_entry *e)
{
	if (e->closed != NULL)
		leave_out(h, key, "%s", e->closed);
	else if (e->size > HARVEST_FILE_MAX)
		leave_out(h, key, "it has %" PRIu64 " bytes, and a file may have %" PRIu64, e->size,
		          HARVEST_FILE_MAX);
	else
		return false;
	return true;
}

static int note_all(struct harvest *h, struct err *err)
{
	for (enum compile_kind k = 0; k < COMPILE_KIND_COUNT; k++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct tree_list all;

		if (list_kind(h, a, k, &all, err) < 0)
			return -1;
		for (size_t i = 0; i < all.n; i++) {
			struct known is = known_of(&all.entry[i]);

			if (!all.entry[i].is_folder)
				note_known(h, key_of(a, k, all.entry[i].path), &is);
		}
	}
	return 0;
}

/* ---- a commit ------------------------------------------------------------------------------ */

static int flush(struct batch *b, struct err *err)
{
	if (buf_check(&b->out, "a commit", err) < 0)
		return -1;
	if (fs_pwrite_all(b->fd, b->out.p, b->out.n, b->at, err) < 0)
		return err_wrap(err, "the file in %s that it is sent from", b->h->o.spool);
	b->at += b->out.n;
	buf_clear(&b->out);
	return 0;
}

static const char *facts_text(const struct harvest *h, struct arena *a)
{
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);

	for (size_t i = 0; i < h->o.n_facts; i++)
		buf_printf(&out, "%s=%s\n", h->o.fact[i].name, h->o.fact[i].value);
	return out.full ? "" : arena_strz(a, buf_view(&out));
}

static int batch_begin(struct batch *b, struct harvest *h, struct arena *a, struct err *err)
{
	*b = (struct batch){.h = h, .a = a, .out = BUF_INIT(2 * PIECE + TEXT_MAX)};
	b->fd = open(h->o.spool, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (b->fd < 0)
		return err_errno(err, errno, "%s", h->o.spool);
	b->writer.out = &b->out;
	b->key = ARENA_ARRAY(a, const char *, HARVEST_FILES_MAX);
	b->known = ARENA_ARRAY(a, struct known, HARVEST_FILES_MAX);
	b->entry = ARENA_ARRAY(a, const char *, HARVEST_FILES_MAX);
	hub_commit_write_header(&b->writer,
	                        arena_printf(a, "compile cache of job %s", h->o.launch->job_id),
	                        facts_text(h, a), true);
	return flush(b, err);
}

static void batch_done(struct batch *b)
{
	if (b->fd >= 0)
		(void)close(b->fd);
	buf_done(&b->out);
}

/* The file that was listed, and as it was then. */
static bool is_same(int fd, const struct tree_entry *e)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size &&
	       st.st_ino == e->inode && tree_changed_ms(&st) == e->changed_ms;
}

/* -1: it is another one by now. */
static int open_file(const struct harvest *h, const char *key, const struct tree_entry *e)
{
	struct err gone = {0};
	AUTO_FD int fd = fs_open_beneath(h->root, key,
	                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0, &gone);

	return fd >= 0 && is_same(fd, e) ? TAKE_FD(fd) : -1;
}

static int no_time(struct err *err)
{
	return err_set(err, ERR_TIMEOUT, "there was no time for the rest");
}

/* Asked between two files. Only the last harvest has an end: the job's waits for it. */
static int may_go_on(const struct harvest *h, struct err *err)
{
	if (atomic_load(&h->cut) ||
	    (h->last ? clock_mono_ms() >= h->until_ms : atomic_load(&h->over)))
		return no_time(err);
	return 0;
}

/* 1: it is shorter by now. */
static int put_pieces(struct batch *b, int fd, uint64_t size, struct err *err)
{
	AUTO_FREE char *piece = xmalloc(PIECE);

	for (uint64_t at = 0; at < size;) {
		size_t n = (size_t)MIN(PIECE, size - at);

		if (fs_pread_all(fd, piece, n, at, err) < 0) {
			err_clear(err);
			return 1;
		}
		hub_commit_write_content(&b->writer, piece, n);
		if (flush(b, err) < 0)
			return -1;
		at += n;
	}
	return 0;
}

/* Of a file that is too large to be read twice nothing is known but its name. */
static bool is_whole(const struct harvest *h, struct arena *a, enum compile_kind kind,
                     const struct tree_entry *e)
{
	AUTO_FD int fd = open_file(h, key_of(a, kind, e->path), e);
	AUTO_FREE char *all = NULL;
	struct err no = {0};

	if (fd < 0)
		return false;
	if (e->size > WHOLE_MAX)
		return true;
	all = xmalloc((size_t)e->size + 1);
	return fs_pread_all(fd, all, (size_t)e->size, 0, &no) == 0 &&
	       compile_cache_is_whole(kind, e->path, str_n(all, (size_t)e->size));
}

/* 1: it was changed meanwhile. */
static int put_file(struct batch *b, enum compile_kind kind, const struct tree_entry *e,
                    struct err *err)
{
	const struct harvest *h = b->h;
	const char *key = key_of(b->a, kind, e->path);
	const char *entry = compile_cache_repo_path(b->a, kind, h->cache->device, e->path);
	AUTO_FD int fd = open_file(h, key, e);
	int rc;

	if (fd < 0)
		return 1;
	hub_commit_write_file(&b->writer, entry);
	rc = put_pieces(b, fd, e->size, err);
	hub_commit_write_end(&b->writer);
	if (rc < 0 || flush(b, err) < 0)
		return -1;
	if (rc > 0 || !is_same(fd, e))
		return 1;
	b->key[b->n] = key;
	b->known[b->n] = known_of(e);
	b->entry[b->n++] = entry;
	b->bytes += e->size;
	return 0;
}

/* .stoker/harvests/JOB-RANK-N.json */
static int put_record(struct batch *b, struct err *err)
{
	const struct harvest *h = b->h;
	const struct wire_launch *l = h->o.launch;
	AUTO_BUF struct buf json = BUF_INIT(RECORD_MAX);
	struct js js;

	js_init(&js, &json);
	js_open(&js);
	js_kv(&js, "job", l->job_id);
	js_kv_u64(&js, "rank", l->node_rank);
	js_kv(&js, "device", h->cache->device);
	js_key(&js, "facts");
	js_open(&js);
	for (size_t i = 0; i < h->o.n_facts; i++)
		js_kv(&js, h->o.fact[i].name, h->o.fact[i].value);
	js_close(&js);
	js_kv(&js, "before", h->cache->commit);
	js_key(&js, "entries");
	js_list(&js);
	for (size_t i = 0; i < b->n; i++)
		js_cstr(&js, b->entry[i]);
	js_end(&js);
	js_close(&js);
	if (buf_check(&json, "the record of a harvest", err) < 0)
		return -1;
	hub_commit_write_file(&b->writer,
	                      arena_printf(b->a,
	                                   ".stoker/harvests/%s-%" PRIu32 "-%" PRIu32 "-%u.json",
	                                   l->job_id, l->node_rank, l->retry_count, h->n_sent));
	for (size_t at = 0; at < json.n; at += PIECE) {
		hub_commit_write_content(&b->writer, json.p + at, MIN(PIECE, json.n - at));
		if (flush(b, err) < 0)
			return -1;
	}
	hub_commit_write_end(&b->writer);
	return flush(b, err);
}

/* ---- sent ---------------------------------------------------------------------------------- */

static int create_repo(struct harvest *h, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(4096);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct str name = str_of(h->cache->repo), owner;
	AUTO_ARENA struct arena *a = arena_new();
	struct js js;
	int rc;

	(void)str_cut(&name, '/', &owner);
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "type", "model");
	js_kv_str(&js, "name", name);
	js_kv_str(&js, "organization", owner);
	js_kv_bool(&js, "private", true);
	js_close(&js);
	rc = report_hub(h->o.report,
	                &(struct report_hub){.token = h->o.launch->hub_token,
	                                     .path = "/api/repos/create",
	                                     .type = "application/json",
	                                     .body = buf_view(&body),
	                                     .total_ms = HARVEST_LEAST_MS,
	                                     .cancel = &h->cut},
	                &reply, err);
	if (rc < 0 && reply.status == 409) { /* another job was first */
		err_clear(err);
		rc = 0;
	}
	return rc;
}

/* What the repository had by then stayed as it was. */
static void count_there(struct batch *b, const struct http_reply *reply)
{
	const struct doc *d;
	struct err no = {0};
	uint64_t files, bytes;

	if (js_parse(b->a, buf_view(&reply->body), &d, &no) < 0)
		return;
	files = (uint64_t)doc_int(doc_get(d, "filesThere"), 0);
	bytes = (uint64_t)doc_int(doc_get(d, "bytesThere"), 0);
	b->h->there += MIN(files, b->n);
	b->h->files += b->n - MIN(files, b->n);
	b->h->bytes += b->bytes - MIN(bytes, b->bytes);
}

static int send_once(struct batch *b, int *status, struct err *err)
{
	struct harvest *h = b->h;
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	const struct report_hub post = {
		.token = h->o.launch->hub_token,
		.path = arena_printf(b->a, "/api/models/%s/commit/main", h->cache->repo),
		.type = "application/x-ndjson",
		.has_fd = true,
		.fd = b->fd,
		.length = b->at,
		.total_ms = MAX(h->until_ms - clock_mono_ms(), (int64_t)HARVEST_LEAST_MS),
		.cancel = &h->cut,
	};
	int rc = report_hub(h->o.report, &post, &reply, err);

	*status = reply.status;
	if (rc == 0)
		count_there(b, &reply);
	return rc;
}

static int send_batch(struct batch *b, struct err *err)
{
	struct harvest *h = b->h;
	bool created = false;
	struct err late = {0};
	int status = 0;

	while (send_once(b, &status, err) < 0) {
		if (err->code == ERR_CANCELED) {
			err_clear(err);
			return no_time(err);
		}
		if (status == 404 && !created) {
			created = true;
			err_clear(err);
			if (create_repo(h, err) < 0)
				return -1;
			continue;
		}
		h->refused = status == 401 || status == 403 || status == 404;
		if (status != 0 && status < 500 && status != 408 && status != 429)
			return -1;
		if (may_go_on(h, &late) < 0 || clock_mono_ms() + RETRY_MS >= h->until_ms)
			return -1; /* by what kept us */
		err_clear(err);
		clock_sleep_ms(RETRY_MS);
	}
	for (size_t i = 0; i < b->n; i++)
		note_known(h, b->key[i], &b->known[i]);
	h->n_sent++;
	return 0;
}

static int send_it(struct batch *b, struct err *err)
{
	return b->n == 0 ? 0 : put_record(b, err) < 0 ? -1 : send_batch(b, err);
}

/* ... and the next one begins. */
static int send_some(struct batch *b, struct err *err)
{
	struct harvest *h = b->h;
	struct arena *a = b->a;
	int rc = send_it(b, err);

	batch_done(b);
	b->fd = -1;
	return rc < 0 ? -1 : batch_begin(b, h, a, err);
}

/* What lies beside says what belongs together. */
static struct str text_of(const struct harvest *h, struct arena *a, enum compile_kind kind,
                          const struct tree_entry *e, size_t *room)
{
	AUTO_FD int fd = -1;
	struct err no = {0};
	char *text;

	if (!compile_cache_takes_text(kind, e->path, e->size, room))
		return (struct str){0};
	fd = open_file(h, key_of(a, kind, e->path), e);
	if (fd < 0)
		return (struct str){0};
	text = arena_alloc(a, (size_t)e->size + 1);
	if (fs_pread_all(fd, text, (size_t)e->size, 0, &no) < 0)
		return (struct str){0};
	return str_n(text, (size_t)e->size);
}

static bool has_room(const struct batch *b, size_t files, uint64_t bytes)
{
	return b->n + files < HARVEST_FILES_MAX && b->bytes + bytes <= HARVEST_BYTES_MAX;
}

/* The files of one compilation go together, in one commit if that can hold them; when one of them
 * has changed meanwhile, none goes. */
static int put_unit(struct batch *b, enum compile_kind kind, const struct tree_list *all,
                    const size_t *at, size_t n, struct err *err)
{
	uint64_t begun, bytes = 0, bytes_before;
	size_t n_before;
	int rc;

	for (size_t i = 0; i < n; i++)
		bytes += all->entry[at[i]].size;
	if (b->n > 0 && !has_room(b, n, bytes) && send_some(b, err) < 0)
		return -1;
	begun = b->at;
	bytes_before = b->bytes;
	n_before = b->n;
	for (size_t i = 0; i < n; i++) {
		const struct tree_entry *e = &all->entry[at[i]];

		if (may_go_on(b->h, err) < 0)
			return -1;
		if (b->n > 0 && !has_room(b, 1, e->size)) {
			if (send_some(b, err) < 0)
				return -1;
			begun = b->at;
			bytes_before = n_before = 0;
		}
		rc = put_file(b, kind, e, err);
		if (rc < 0)
			return -1;
		if (rc > 0) { /* none of them goes, until the next time */
			b->at = begun;
			b->bytes = bytes_before;
			b->n = n_before;
			return 0;
		}
	}
	return 0;
}

/* *unlisted: why it cannot be looked at. */
static int add_kind(struct batch *b, enum compile_kind kind, int64_t now_ms, struct err *unlisted,
                    struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_file *file;
	bool *torn, *fresh;
	struct tree_list all;
	struct err why = {0};
	size_t *at, *unit, *end, n = 0, room = COMPILE_TEXTS_MAX;

	if (list_kind(b->h, a, kind, &all, &why) < 0) {
		if (unlisted->code == ERR_NONE)
			*unlisted = why;
		return 0; /* the others are kept */
	}
	file = ARENA_ARRAY(a, struct compile_file, all.n + 1);
	at = ARENA_ARRAY(a, size_t, all.n + 1);
	fresh = ARENA_ARRAY(a, bool, all.n + 1);
	for (size_t i = 0; i < all.n; i++) {
		const struct tree_entry *e = &all.entry[i];

		if (e->is_folder && e->closed == NULL)
			continue;
		at[n] = i;
		file[n++] = (struct compile_file){
			/* a closed folder counts for any of its files */
			.path = e->is_folder ? arena_printf(a, "%s/closed", e->path) : e->path,
			.size = e->size,
			.changed_ms = e->changed_ms,
			.text = text_of(b->h, a, kind, e, &room),
		};
	}
	compile_cache_sift(kind, file, n, now_ms);
	torn = ARENA_ARRAY(a, bool, n + 1); /* by unit: its files go together, or not at all */
	for (size_t i = 0; i < n; i++) {
		const struct tree_entry *e = &all.entry[at[i]];
		const char *key = key_of(a, kind, e->path);

		assert(file[i].unit <= n);
		/* No compiler writes a name that no repository can have. */
		fresh[i] = file[i].take && (e->closed != NULL ||
		                            (hub_commit_path_ok(str_of(compile_cache_repo_path(
						     a, kind, b->h->cache->device, e->path))) &&
		                             !is_known(b->h, kind, key, e)));
		if (fresh[i] && may_go_on(b->h, err) < 0)
			return -1;
		if (fresh[i] && (is_left_out(b->h, key, e) || !is_whole(b->h, a, kind, e)))
			torn[file[i].unit] = true;
	}
	unit = ARENA_ARRAY(a, size_t, n + 1); /* their places, one unit behind the other */
	end = ARENA_ARRAY(a, size_t, n + 2);  /* of the unit before, first; then of each */
	for (size_t i = 0; i < n; i++)
		end[file[i].unit + 1] += fresh[i] && !torn[file[i].unit];
	for (size_t k = 1; k <= n; k++)
		end[k] += end[k - 1];
	for (size_t i = 0; i < n; i++)
		if (fresh[i] && !torn[file[i].unit])
			unit[end[file[i].unit]++] = at[i];
	for (size_t k = 0, from = 0; k < n; from = end[k], k++)
		if (end[k] > from && put_unit(b, kind, &all, unit + from, end[k] - from, err) < 0)
			return -1;
	return 0;
}

/* now_ms 0: nobody writes any more. */
static void harvest_now(struct harvest *h, int64_t now_ms, int64_t until_ms)
{
	AUTO_ARENA struct arena *a = arena_new();
	uint64_t files = h->files, bytes = h->bytes, there = h->there;
	struct batch b = {.fd = -1};
	char size[UNITS_CAP], others[64] = "";
	struct err err = {0}, unlisted = {0};
	int rc;

	if (h->refused)
		return;
	h->until_ms = until_ms;
	rc = batch_begin(&b, h, a, &err);
	for (enum compile_kind k = 0; rc == 0 && k < COMPILE_KIND_COUNT; k++)
		rc = add_kind(&b, k, now_ms, &unlisted, &err);
	if (rc == 0)
		rc = send_it(&b, &err);
	batch_done(&b);
	if (h->there > there)
		FMT(others, "; %" PRIu64 " more had come from elsewhere", h->there - there);
	if (h->files + h->there > files + there)
		logs_message(h->o.logs, "compile cache %s: %" PRIu64 " file%s added, %s%s",
		             h->cache->repo, h->files - files, h->files - files == 1 ? "" : "s",
		             units_show_bytes(h->bytes - bytes, size), others);
	if (rc < 0 && h->refused)
		logs_message(h->o.logs, "compile cache %s: nothing is kept: %s", h->cache->repo,
		             err.msg);
	else if (rc < 0 && (h->last || !h->over))
		logs_message(h->o.logs, "compile cache %s: not all is kept: %s", h->cache->repo,
		             err.msg);
	if (rc == 0 && unlisted.code != ERR_NONE)
		logs_message(h->o.logs, "compile cache %s: not all is kept: %s", h->cache->repo,
		             unlisted.msg);
	err_clear(&unlisted);
	err_clear(&err);
}

/* ---- when ---------------------------------------------------------------------------------- */

static void *harvest_thread(void *arg)
{
	struct harvest *h = FROM_VOID(struct harvest, arg, HARVEST_MAGIC);
	int64_t next_ms = 0;

	lock_take(&h->lock);
	while (!h->over) {
		harvest_check(h);
		int64_t wait = next_ms - clock_mono_ms();

		if (!h->soon || wait > 0) {
			if (h->soon)
				(void)cond_wait_until(&h->changed, &h->lock, sync_deadline(wait));
			else
				cond_wait(&h->changed, &h->lock);
			continue;
		}
		h->soon = false;
		lock_give(&h->lock);
		harvest_now(h, clock_wall_ms(), clock_mono_ms() + HARVEST_PAUSE_MS);
		next_ms = clock_mono_ms() + HARVEST_PAUSE_MS;
		lock_take(&h->lock);
	}
	lock_give(&h->lock);
	h->last = true;
	if (!*report_given_up(h->o.report))
		harvest_now(h, h->clean ? 0 : clock_wall_ms(), clock_mono_ms() + HARVEST_LAST_MS);
	lock_take(&h->lock);
	harvest_check(h);
	assert(!h->done);
	h->done = true;
	cond_signal(&h->changed);
	lock_give(&h->lock);
	return NULL;
}

static void harvest_free(struct harvest *h)
{
	h->magic = 0;
	if (h->root >= 0)
		(void)close(h->root);
	cond_done(&h->changed);
	lock_done(&h->lock);
	map_free(h->known);
	map_free(h->left);
	arena_free(h->a);
	free(h);
}

int harvest_start(struct harvest **out, const struct harvest_options *o, struct err *err)
{
	struct harvest *h = xcalloc(1, sizeof(*h));

	h->magic = HARVEST_MAGIC;
	h->o = *o;
	h->cache = &o->launch->compile;
	h->a = arena_new();
	h->known = map_new();
	h->left = map_new();
	lock_init(&h->lock, LOCK_HARVEST);
	cond_init(&h->changed);
	h->root = fs_open_dir(o->dir, err);
	if (h->root >= 0 && note_all(h, err) == 0 &&
	    thread_start(&h->thread, "harvest", harvest_thread, h) == 0) {
		*out = h;
		return 0;
	}
	if (err->code == ERR_NONE)
		(void)err_set(err, ERR_UNAVAILABLE, "no thread for the compile cache");
	harvest_free(h);
	return -1;
}

void harvest_soon(struct harvest *h)
{
	if (h == NULL)
		return;
	lock_take(&h->lock);
	harvest_check(h);
	h->soon = true;
	cond_signal(&h->changed);
	lock_give(&h->lock);
}

/* The thread does it, while we look whether there is time. */
void harvest_finish(struct harvest *h, bool clean)
{
	int64_t cut_ms = INT64_MAX;

	if (h == NULL)
		return;
	lock_take(&h->lock);
	harvest_check(h);
	assert(!h->over); /* asked once */
	h->clean = clean;
	h->over = true;
	cond_signal(&h->changed);
	while (!h->done) {
		(void)cond_wait_until(&h->changed, &h->lock, sync_deadline(LOOK_MS));
		lock_give(&h->lock);
		if (cut_ms == INT64_MAX && h->o.hurries(h->o.arg))
			cut_ms = clock_mono_ms() + HARVEST_HURRY_MS;
		if (clock_mono_ms() >= cut_ms || *report_given_up(h->o.report))
			atomic_store(&h->cut, true);
		lock_take(&h->lock);
	}
	lock_give(&h->lock);
	(void)pthread_join(h->thread, NULL);
}

void harvest_close(struct harvest *h)
{
	if (h == NULL)
		return;
	assert(h->done);
	harvest_free(h);
}
