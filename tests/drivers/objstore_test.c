/*
 * objstore_test.c - drivers for tests: mem: keeps objects in memory, fault:<n>:<url> fails the n-th
 * call of the store that it wraps, fault:<n>-<last>:<url> all from one to another. Both are real
 * drivers: the conformance suite runs over them.
 */
#include "store/objects/objstore_impl.h"

#include "base/clock.h"
#include "base/map.h"
#include "base/seal.h"

#include "base/sync.h"

#define MEM_BODY_MAX ((size_t)1 << 30)
#define MEM_CHUNK ((size_t)64 << 10)
#define MEM_ID_LEN 20

struct object {
	struct buf body;
	struct objstore_info info;
};

struct mem_upload {
	char key[OBJSTORE_KEY_MAX + 1];
	int64_t begun_ms;
	struct map *parts; /* "<number>" -> struct object */
};

struct mem {
	struct objstore base;
	struct lock lock; /* of both maps */
	struct map *objects, *uploads;
};

static struct mem *mem_lock(struct objstore *os)
{
	struct mem *m = (struct mem *)os;

	lock_take(&m->lock);
	return m;
}

static int mem_unlock(struct mem *m, int rc)
{
	lock_give(&m->lock);
	return rc;
}

static void object_free(struct object *o)
{
	if (o == NULL)
		return;
	buf_done(&o->body);
	free(o);
}

static struct object *object_new(const void *p, size_t n)
{
	struct object *o = xcalloc(1, sizeof(*o));
	uint8_t md5[16];

	o->body = (struct buf)BUF_INIT(MEM_BODY_MAX);
	buf_add(&o->body, p, n);
	hash_md5(p, n, md5);
	hex_encode(md5, sizeof(md5), o->info.etag);
	o->info.size = n;
	o->info.modified_ms = clock_wall_ms();
	return o;
}

static struct object *find(struct mem *m, const char *key, struct err *err)
{
	struct object *o = map_get(m->objects, str_of(key));

	if (o == NULL)
		(void)err_set(err, ERR_NOT_FOUND, "no such object");
	return o;
}

/* Takes the object over. */
static int store(struct objstore *os, const char *key, struct object *o, struct objstore_info *info)
{
	struct mem *m = mem_lock(os);

	if (info != NULL)
		*info = o->info;
	object_free(map_set(m->objects, str_of(key), o));
	return mem_unlock(m, 0);
}

static int mem_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	struct mem *m = mem_lock(os);
	struct object *o = find(m, key, err);

	if (o == NULL)
		return mem_unlock(m, -1);
	if (o->body.n > out->max - out->n)
		return mem_unlock(m, err_set(err, ERR_TOO_BIG,
		                             "%zu bytes are more than the %zu expected", o->body.n,
		                             out->max - out->n));
	buf_str(out, buf_view(&o->body));
	return mem_unlock(m, 0);
}

static int mem_put(struct objstore *os, const char *key, struct str body, struct err *err UNUSED)
{
	return store(os, key, object_new(body.p, body.n), NULL);
}

static int mem_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                        struct digest *sha256, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MEM_BODY_MAX);
	char *to = buf_room(&body, (size_t)f->size);

	if (f->cancel != NULL && atomic_load(f->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	if (to == NULL && f->size > 0)
		return err_set(err, ERR_TOO_BIG, "%" PRIu64 " bytes do not fit in memory", f->size);
	if (fs_pread_all(f->fd, to, (size_t)f->size, 0, err) < 0)
		return -1;
	body.n = (size_t)f->size;
	*sha256 = hash_sha256(body.p, body.n);
	if (f->expect != NULL && !digest_same(f->expect, sha256))
		return err_set(err, ERR_CORRUPT, "the file has changed");
	if (f->progress != NULL)
		f->progress(f->arg, f->size);
	return store(os, key, object_new(body.p, body.n), NULL);
}

static int receive(uint64_t size, objstore_read_fn *read, void *arg, struct object **out,
                   struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MEM_BODY_MAX);
	struct objstore_counted in = {.read = read, .arg = arg, .size = size};

	for (size_t n = 1; n > 0; body.n += n) {
		char *to = buf_room(&body, MEM_CHUNK);

		if (to == NULL)
			return err_set(err, ERR_TOO_BIG, "the body does not fit in memory");
		if (objstore_counted_read(&in, to, MEM_CHUNK, &n, err) < 0)
			return -1;
	}
	*out = object_new(body.p, body.n);
	return 0;
}

static int mem_put_stream(struct objstore *os, const char *key, uint64_t size,
                          objstore_read_fn *read, void *arg, struct objstore_info *info,
                          struct err *err)
{
	struct object *o = NULL;

	if (receive(size, read, arg, &o, err) < 0)
		return -1;
	return store(os, key, o, info);
}

static int mem_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	struct mem *m = mem_lock(os);
	struct object *o = find(m, from, err), *copy;

	if (o == NULL)
		return mem_unlock(m, -1);
	copy = object_new(o->body.p, o->body.n);
	FMT(copy->info.etag, "%s", o->info.etag);
	object_free(map_set(m->objects, str_of(to), copy));
	return mem_unlock(m, 0);
}

static int mem_stat(struct objstore *os, const char *key, struct objstore_info *out,
                    struct err *err)
{
	struct mem *m = mem_lock(os);
	struct object *o = find(m, key, err);

	if (o != NULL)
		*out = o->info;
	return mem_unlock(m, o == NULL ? -1 : 0);
}

static int mem_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                    uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                    struct err *err)
{
	AUTO_BUF struct buf part = BUF_INIT(MEM_BODY_MAX);
	struct mem *m = mem_lock(os);
	struct object *o = find(m, key, err);

	if (o == NULL || objstore_check_etag(etag, o->info.etag, err) < 0)
		return mem_unlock(m, -1);
	if (first > o->body.n || count > o->body.n - first)
		return mem_unlock(m, err_set(err, ERR_RANGE,
		                             "bytes %" PRIu64 "+%" PRIu64 " of an object of %zu",
		                             first, count, o->body.n));
	if (count > 0)
		buf_add(&part, o->body.p + first, (size_t)count);
	(void)mem_unlock(m, 0); /* no lock while the sink works */
	for (size_t done = 0; done < part.n;) {
		size_t n = MIN(MEM_CHUNK, part.n - done);

		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (sink(arg, part.p + done, n, err) < 0)
			return -1;
		done += n;
	}
	return 0;
}

struct keys {
	const char *prefix, *after;
	struct str *key;
	size_t n;
};

static void note_key(struct str key, void *value UNUSED, void *arg)
{
	struct keys *k = arg;

	if (str_starts(key, k->prefix) &&
	    (k->after == NULL || strcmp(key.p, k->after) > 0)) /* the map's copy has its NUL */
		k->key[k->n++] = key;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(((const struct str *)a)->p, ((const struct str *)b)->p);
}

static int mem_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                    objstore_each_fn *each, void *arg, bool *more, struct err *err UNUSED)
{
	struct mem *m = mem_lock(os);
	struct keys k = {.prefix = prefix, .after = after};

	k.key = xcalloc(map_count(m->objects) + 1, sizeof(*k.key));
	map_each(m->objects, note_key, &k);
	if (k.n > 1)
		qsort(k.key, k.n, sizeof(*k.key), by_bytes);
	for (size_t i = 0; i < MIN(k.n, max); i++) {
		struct object *o = map_get(m->objects, k.key[i]);

		each(arg, k.key[i].p, &o->info);
	}
	*more = k.n > max;
	free(k.key);
	return mem_unlock(m, 0);
}

static int mem_del(struct objstore *os, const char *key, struct err *err UNUSED)
{
	struct mem *m = mem_lock(os);

	object_free(map_del(m->objects, str_of(key)));
	return mem_unlock(m, 0);
}

/* ---- parts ------------------------------------------------------------------------------- */

static void free_object(struct str key UNUSED, void *value, void *arg UNUSED)
{
	object_free(value);
}

static void free_upload(struct str key UNUSED, void *value, void *arg UNUSED)
{
	struct mem_upload *u = value;

	if (u == NULL)
		return;
	map_each(u->parts, free_object, NULL);
	map_free(u->parts);
	free(u);
}

static struct mem_upload *find_upload(struct mem *m, const char *key, const char *id,
                                      struct err *err)
{
	struct mem_upload *u = map_get(m->uploads, str_of(id));

	if (u != NULL && strcmp(u->key, key) == 0)
		return u;
	(void)err_set(err, ERR_NOT_FOUND, "NoSuchUpload: it was completed, aborted or never begun");
	return NULL;
}

static int mem_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                           struct err *err UNUSED)
{
	struct mem_upload *u = xcalloc(1, sizeof(*u));
	struct mem *m = mem_lock(os);

	FMT(u->key, "%s", key);
	u->begun_ms = clock_wall_ms();
	u->parts = map_new();
	seal_id(id, MEM_ID_LEN);
	(void)map_set(m->uploads, str_of(id), u);
	return mem_unlock(m, 0);
}

static int mem_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                         uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
                         struct err *err)
{
	struct object *o = NULL;
	struct mem_upload *u;
	struct mem *m;
	char name[16];

	if (receive(size, read, arg, &o, err) < 0)
		return -1;
	m = mem_lock(os);
	u = find_upload(m, key, id, err);
	if (u == NULL) {
		object_free(o);
		return mem_unlock(m, -1);
	}
	FMT(name, "%" PRIu32, number);
	fmt_fixed(etag, 80, "%s", o->info.etag);
	object_free(map_set(u->parts, str_of(name), o));
	return mem_unlock(m, 0);
}

static int join(struct mem_upload *u, const struct objstore_part *parts, size_t n, struct buf *body,
                char etag[80], struct err *err)
{
	struct objstore_etag e;
	int rc = 0;

	objstore_etag_begin(&e);
	for (size_t i = 0; i < n && rc == 0; i++) {
		char name[16];
		struct object *o;

		FMT(name, "%" PRIu32, parts[i].number);
		o = map_get(u->parts, str_of(name));
		if (o == NULL || strcmp(o->info.etag, parts[i].etag) != 0) {
			rc = err_set(err, ERR_INVALID,
			             "InvalidPart: part %s was not uploaded with ETag %.40s", name,
			             parts[i].etag);
		} else {
			buf_str(body, buf_view(&o->body));
			rc = objstore_etag_add(&e, o->info.etag, err);
		}
	}
	objstore_etag_end(&e, etag);
	return rc < 0 ? -1 : buf_check(body, "the object", err);
}

static int mem_parts_end(struct objstore *os, const char *key, const char *id,
                         const struct objstore_part *parts, size_t n, struct objstore_info *info,
                         struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MEM_BODY_MAX);
	struct mem *m = mem_lock(os);
	struct mem_upload *u = find_upload(m, key, id, err);
	struct object *o;
	char etag[80];

	if (u == NULL || join(u, parts, n, &body, etag, err) < 0)
		return mem_unlock(m, -1);
	o = object_new(body.p, body.n);
	FMT(o->info.etag, "%s", etag);
	*info = o->info;
	object_free(map_set(m->objects, str_of(key), o));
	free_upload(STR_LIT(""), map_del(m->uploads, str_of(id)), NULL);
	return mem_unlock(m, 0);
}

static int mem_parts_abort(struct objstore *os, const char *key, const char *id, struct err *err)
{
	struct mem *m = mem_lock(os);

	if (find_upload(m, key, id, err) == NULL)
		return mem_unlock(m, -1);
	free_upload(STR_LIT(""), map_del(m->uploads, str_of(id)), NULL);
	return mem_unlock(m, 0);
}

struct mem_sweep {
	struct mem *m;
	int64_t before_ms;
	bool dry_run;
	struct objstore_swept *out;
};

static void sweep_upload(struct str key, void *value, void *arg)
{
	struct mem_sweep *s = arg;
	struct mem_upload *u = value;

	if (u->begun_ms > s->before_ms)
		return;
	s->out->uploads++;
	if (s->dry_run)
		return;
	(void)map_del(s->m->uploads, key);
	free_upload(key, u, NULL);
}

static int mem_sweep(struct objstore *os, int64_t max_age_s, bool dry_run,
                     struct objstore_swept *out, struct err *err UNUSED)
{
	struct mem *m = mem_lock(os);
	struct mem_sweep s = {m, clock_wall_ms() - max_age_s * 1000, dry_run, out};

	map_each(m->uploads, sweep_upload, &s);
	return mem_unlock(m, 0);
}

static void mem_close(struct objstore *os)
{
	struct mem *m = (struct mem *)os;

	map_each(m->objects, free_object, NULL);
	map_each(m->uploads, free_upload, NULL);
	map_free(m->objects);
	map_free(m->uploads);
	lock_done(&m->lock);
	free(m);
}

static int mem_open(struct objstore **out, const char *rest, const struct objstore_env *env UNUSED,
                    struct err *err)
{
	struct mem *m;

	if (rest[0] != '\0')
		return err_set(err, ERR_INVALID, "nothing may follow \"mem:\"");
	m = xcalloc(1, sizeof(*m));
	lock_init(&m->lock, LOCK_OBJSTORE_MEM);
	m->objects = map_new();
	m->uploads = map_new();
	*out = &m->base;
	return 0;
}

const struct objstore_ops objstore_mem = {
	.scheme = "mem",
	.open = mem_open,
	.close = mem_close,
	.get = mem_get,
	.put = mem_put,
	.put_file = mem_put_file,
	.put_stream = mem_put_stream,
	.copy = mem_copy,
	.stat = mem_stat,
	.read = mem_read,
	.list = mem_list,
	.del = mem_del,
	.parts_begin = mem_parts_begin,
	.parts_put = mem_parts_put,
	.parts_end = mem_parts_end,
	.parts_abort = mem_parts_abort,
	.sweep = mem_sweep,
};

/* ---- fault ------------------------------------------------------------------------------- */

struct fault {
	struct objstore base;
	struct objstore *under;
	atomic_llong left; /* calls until the failing one */
	long long lasts;   /* how many fail then */
};

/* The store below, or NULL when it is this call's turn to fail. */
static struct objstore *pass(struct objstore *os, struct err *err)
{
	struct fault *f = (struct fault *)os;

	long long at = atomic_fetch_sub(&f->left, 1);

	if (at > 1 || at <= 1 - f->lasts)
		return f->under;
	(void)err_set(err, ERR_UNAVAILABLE, "injected fault");
	return NULL;
}

static int fault_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_get(u, key, out, err);
}

static int fault_put(struct objstore *os, const char *key, struct str body, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_put(u, key, body, err);
}

static int fault_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                          struct digest *sha256, struct err *err)
{
	struct objstore *u = pass(os, err);

	if (u == NULL)
		return -1;
	return objstore_put_file(u, key, f->fd, f->size, f->expect, f->want_sha256 ? sha256 : NULL,
	                         f->progress, f->arg, f->cancel, err);
}

static int fault_put_stream(struct objstore *os, const char *key, uint64_t size,
                            objstore_read_fn *read, void *arg, struct objstore_info *info,
                            struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_put_stream(u, key, size, read, arg, info, err);
}

static int fault_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_copy(u, from, to, err);
}

static int fault_stat(struct objstore *os, const char *key, struct objstore_info *out,
                      struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_stat(u, key, out, err);
}

static int fault_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                      uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                      struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1
	                 : objstore_read_same(u, key, etag, first, count, sink, arg, cancel, err);
}

static int fault_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
                    struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_fd(u, key, fd, info, err);
}

static int fault_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                      objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_list(u, prefix, after, max, each, arg, more, err);
}

static int fault_del(struct objstore *os, const char *key, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_del(u, key, err);
}

static int fault_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                             struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_parts_begin(u, key, id, err);
}

static int fault_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                           uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
                           struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_parts_put(u, key, id, number, size, read, arg, etag, err);
}

static int fault_parts_end(struct objstore *os, const char *key, const char *id,
                           const struct objstore_part *parts, size_t n, struct objstore_info *info,
                           struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_parts_end(u, key, id, parts, n, info, err);
}

static int fault_parts_abort(struct objstore *os, const char *key, const char *id, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_parts_abort(u, key, id, err);
}

static int fault_sweep(struct objstore *os, int64_t max_age_s, bool dry_run,
                       struct objstore_swept *out, struct err *err)
{
	struct objstore *u = pass(os, err);

	return u == NULL ? -1 : objstore_sweep(u, max_age_s, dry_run, out, err);
}

static void fault_close(struct objstore *os)
{
	struct fault *f = (struct fault *)os;

	objstore_close(f->under);
	free(f);
}

/* 0: no call fails. */
static int fault_open(struct objstore **out, const char *rest, const struct objstore_env *env,
                      struct err *err)
{
	struct str url = str_of(rest), last = {0}, first = {0};
	struct objstore *under = NULL;
	struct fault *f;
	uint64_t n, end;
	bool has = str_cut(&url, ':', &last);

	if (!str_cut(&last, '-', &first) || last.n == 0)
		last = first;
	if (!has || str_u64(first, 0, UINT32_MAX, &n, err) < 0 ||
	    str_u64(last, n, UINT32_MAX, &end, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_INVALID, "write fault:<number of the call>[-<last>]:<url>");
	}
	if (objstore_open(&under, url.p, env, err) < 0)
		return -1;
	f = xcalloc(1, sizeof(*f));
	f->under = under;
	atomic_init(&f->left, (long long)n);
	f->lasts = (long long)(end - n + 1);
	*out = &f->base;
	return 0;
}

const struct objstore_ops objstore_fault = {
	.scheme = "fault",
	.open = fault_open,
	.close = fault_close,
	.get = fault_get,
	.put = fault_put,
	.put_file = fault_put_file,
	.put_stream = fault_put_stream,
	.copy = fault_copy,
	.stat = fault_stat,
	.read = fault_read,
	.fd = fault_fd,
	.list = fault_list,
	.del = fault_del,
	.parts_begin = fault_parts_begin,
	.parts_put = fault_parts_put,
	.parts_end = fault_parts_end,
	.parts_abort = fault_parts_abort,
	.sweep = fault_sweep,
};
