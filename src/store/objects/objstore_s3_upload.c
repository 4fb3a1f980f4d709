/*
 * objstore_s3_upload.c - uploads in parts to S3: those that callers drive, and files, which go in
 * parallel. A part of a file is read once; the very bytes that are sent are those that are hashed,
 * in order, by the calling thread, while others send. Memory: S3_STREAMS + 2 parts.
 */
#include "store/objects/objstore_s3.h"

#include "base/clock.h"
#include "store/objects/s3xml.h"

#include "base/sync.h"

#define S3_SLOTS (S3_STREAMS + 2)
#define S3_TICK_MS 200    /* how soon a cancelled upload is noticed */
#define S3_PAGES_MAX 1000 /* of unfinished uploads, when sweeping */
#define S3_XML_PART 200   /* bytes of one part in CompleteMultipartUpload */
#define S3_XML_MAX ((size_t)OBJSTORE_PARTS_MAX * S3_XML_PART)

/* ---- one step at a time -------------------------------------------------------------- */

int s3_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                   struct err *err)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {
		.method = HTTP_POST, .key = key, .query = "uploads=", .total_ms = S3_SHORT_MS};
	const char *got = NULL;

	if (s3_call((struct s3store *)os, &c, &reply, err) < 0 ||
	    s3xml_upload_id(reply.arena, buf_view(&reply.body), &got, err) < 0)
		return -1;
	return str_copy(str_of(got), id, OBJSTORE_UPLOAD_CAP, "read the upload's id", err);
}

static void part_query(struct buf *query, const char *id, uint32_t number)
{
	char text[16];

	if (number > 0) {
		FMT(text, "%" PRIu32, number);
		s3_query(query, "partNumber", text);
	}
	s3_query(query, "uploadId", id);
}

int s3_put_part(struct s3store *s, const char *key, const char *id, uint32_t number,
                struct s3_call *c, char etag[80], struct err *err)
{
	AUTO_BUF struct buf query = BUF_INIT(4 * OBJSTORE_UPLOAD_CAP);
	AUTO_HTTP_REPLY struct http_reply reply = {0};

	part_query(&query, id, number);
	c->method = HTTP_PUT;
	c->key = key;
	c->query = buf_cstr(&query);
	if (s3_call(s, c, &reply, err) < 0)
		return -1;
	s3_etag(&reply, etag);
	if (etag[0] == '\0')
		return err_set(err, ERR_IO, "the store sent no ETag for part %" PRIu32, number);
	return 0;
}

/* The upload is not there, and an earlier try may have completed it, whose answer was lost: then
 * what is there has the ETag of these parts. A store whose ETags say nothing gets no benefit of the
 * doubt: an object of that size may be an older one. */
static int was_completed(struct objstore *os, const char *key, const struct objstore_part *parts,
                         size_t n, struct err *err)
{
	const struct err no_upload = *err;
	struct objstore_info info = {0};
	struct objstore_etag e;
	char want[80];
	int rc = 0;

	err_clear(err);
	objstore_etag_begin(&e);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = objstore_etag_add(&e, parts[i].etag, err);
	objstore_etag_end(&e, want);
	if (rc == 0 && s3_stat(os, key, &info, err) == 0 && strcmp(info.etag, want) == 0)
		return 0;
	if (!err_is_away(err))
		*err = no_upload;
	return -1;
}

static int complete(struct objstore *os, const char *key, const char *id,
                    const struct objstore_part *parts, size_t n, struct err *err)
{
	AUTO_BUF struct buf query = BUF_INIT(4 * OBJSTORE_UPLOAD_CAP), xml = BUF_INIT(S3_XML_MAX);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	bool again = false;
	struct s3_call c = {
		.method = HTTP_POST, .key = key, .stall_ms = S3_FINISH_MS, .again = &again};

	part_query(&query, id, 0);
	buf_puts(&xml, "<CompleteMultipartUpload>");
	for (size_t i = 0; i < n; i++) {
		buf_printf(&xml, "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>&quot;",
		           parts[i].number);
		s3xml_text(&xml, str_of(parts[i].etag));
		buf_puts(&xml, "&quot;</ETag></Part>");
	}
	buf_puts(&xml, "</CompleteMultipartUpload>");
	if (buf_check(&xml, "the list of parts", err) < 0)
		return -1;
	c.query = buf_cstr(&query);
	c.body = buf_view(&xml);
	if (s3_call((struct s3store *)os, &c, &reply, err) == 0)
		return 0;
	return again && err->code == ERR_NOT_FOUND ? was_completed(os, key, parts, n, err) : -1;
}

int s3_parts_end(struct objstore *os, const char *key, const char *id,
                 const struct objstore_part *parts, size_t n, struct objstore_info *info,
                 struct err *err)
{
	if (complete(os, key, id, parts, n, err) < 0)
		return -1;
	return s3_stat(os, key, info, err);
}

int s3_parts_abort(struct objstore *os, const char *key, const char *id, struct err *err)
{
	AUTO_BUF struct buf query = BUF_INIT(4 * OBJSTORE_UPLOAD_CAP);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct s3_call c = {.method = HTTP_DELETE, .key = key, .total_ms = S3_SHORT_MS};

	part_query(&query, id, 0);
	c.query = buf_cstr(&query);
	return s3_call((struct s3store *)os, &c, &reply, err);
}

int s3_sweep(struct objstore *os, int64_t max_age_s, bool dry_run, struct objstore_swept *out,
             struct err *err)
{
	int64_t before_ms = clock_wall_ms() - max_age_s * 1000;
	AUTO_ARENA struct arena *a = arena_new();
	const char *next_key = NULL, *next_id = NULL;
	struct s3store *s = (struct s3store *)os;

	for (int page = 0; page < S3_PAGES_MAX; page++) {
		AUTO_BUF struct buf query = BUF_INIT(8 * OBJSTORE_KEY_MAX);
		AUTO_HTTP_REPLY struct http_reply reply = {0};
		struct s3_call c = {.total_ms = S3_SHORT_MS};
		struct s3xml_uploads l;

		s3_query(&query, "uploads", "");
		if (s->prefix[0] != '\0')
			s3_query(&query, "prefix", s->prefix);
		if (next_key != NULL)
			s3_query(&query, "key-marker", next_key);
		if (next_id != NULL)
			s3_query(&query, "upload-id-marker", next_id);
		c.query = buf_cstr(&query);
		if (s3_call(s, &c, &reply, err) < 0 ||
		    s3xml_uploads(a, buf_view(&reply.body), &l, err) < 0)
			return -1;
		for (size_t i = 0; i < l.n; i++) {
			const char *key = s3_own_key(s, l.upload[i].key);

			if (key == NULL || l.upload[i].begun_ms > before_ms)
				continue;
			if (dry_run || s3_parts_abort(os, key, l.upload[i].id, err) == 0)
				out->uploads++;
			else if (err->code != ERR_NOT_FOUND)
				return -1;
			err_clear(err); /* it was completed meanwhile */
		}
		if (!l.truncated || l.next_key == NULL)
			return 0;
		next_key = l.next_key;
		next_id = l.next_id;
	}
	return 0;
}

/* ---- a whole file -------------------------------------------------------------------- */

struct slot {
	bool busy, read, sent;
	size_t part; /* its index */
	size_t n;
	char *p;
};

struct sending {
	unsigned magic;
#define SENDING_MAGIC 0x5353454eU
	struct s3store *s;
	const char *key, *id;
	const struct objstore_file *f;
	uint64_t part_bytes;
	struct objstore_part *part;
	size_t n_parts;
	atomic_bool stop; /* also what the requests are cancelled by */

	struct lock lock; /* of all below */
	struct cond moved;
	size_t next; /* the next part to be read: parts are read in order */
	size_t hashed;
	uint64_t sent_bytes;
	size_t n_sent;
	struct slot slot[S3_SLOTS];
	struct err err; /* first cause */
};

/* What is true whenever the lock is free. */
static void sending_check(const struct sending *u)
{
	assert(u->magic == SENDING_MAGIC && lock_is_mine(&u->lock));
	assert(u->n_sent <= u->next && u->next <= u->n_parts && u->hashed <= u->n_parts);
	assert(u->sent_bytes <= u->f->size);
	for (size_t i = 0; i < S3_SLOTS; i++) {
		const struct slot *x = &u->slot[i];

		assert(x->busy ? x->part < u->next : !x->read && !x->sent);
		assert(!x->sent || x->read);
	}
}

static void fail(struct sending *u, const struct err *err)
{
	lock_take(&u->lock);
	sending_check(u);
	if (u->err.code == ERR_NONE)
		u->err = *err;
	assert(u->err.code != ERR_NONE);
	atomic_store(&u->stop, true);
	cond_broadcast(&u->moved);
	lock_give(&u->lock);
}

/* With the lock. A part stays until it was both sent and hashed. */
static void settle(struct sending *u, struct slot *slot)
{
	if (slot->sent && slot->part < u->hashed)
		slot->busy = slot->read = slot->sent = false;
	cond_broadcast(&u->moved);
}

static struct slot *take_slot(struct sending *u)
{
	struct slot *free_one = NULL;

	lock_take(&u->lock);
	while (free_one == NULL && !atomic_load(&u->stop) && u->next < u->n_parts) {
		for (size_t i = 0; i < S3_SLOTS && free_one == NULL; i++)
			if (!u->slot[i].busy)
				free_one = &u->slot[i];
		if (free_one == NULL)
			cond_wait(&u->moved, &u->lock);
	}
	if (atomic_load(&u->stop) || u->next == u->n_parts)
		free_one = NULL;
	if (free_one != NULL) {
		free_one->busy = true;
		free_one->part = u->next++;
	}
	sending_check(u);
	lock_give(&u->lock);
	return free_one;
}

static int send_slot(struct sending *u, struct slot *slot, struct err *err)
{
	uint64_t at = slot->part * u->part_bytes;
	struct objstore_part *part = &u->part[slot->part];
	struct s3_call c = {.cancel = &u->stop};

	slot->n = (size_t)MIN(u->part_bytes, u->f->size - at);
	if (slot->p == NULL)
		slot->p = xmalloc((size_t)u->part_bytes);
	if (fs_pread_all(u->f->fd, slot->p, slot->n, at, err) < 0)
		return err_wrap(err, "the file");
	/* it is not needed again: training's page cache is left alone; a hint */
	(void)posix_fadvise(u->f->fd, (off_t)at, (off_t)slot->n, POSIX_FADV_DONTNEED);
	lock_take(&u->lock);
	assert(slot->busy && !slot->read);
	slot->read = true;
	sending_check(u);
	cond_broadcast(&u->moved);
	lock_give(&u->lock);
	c.body = str_n(slot->p, slot->n);
	c.unsigned_body = true; /* hashed once, as a whole */
	part->number = (uint32_t)slot->part + 1;
	if (s3_put_part(u->s, u->key, u->id, part->number, &c, part->etag, err) < 0)
		return -1;
	lock_take(&u->lock);
	assert(slot->busy && !slot->sent);
	slot->sent = true;
	u->sent_bytes += slot->n;
	u->n_sent++;
	settle(u, slot);
	sending_check(u);
	lock_give(&u->lock);
	return 0;
}

static void *sender(void *arg)
{
	struct sending *u = FROM_VOID(struct sending, arg, SENDING_MAGIC);

	for (struct slot *slot = take_slot(u); slot != NULL; slot = take_slot(u)) {
		struct err err = {0};

		if (send_slot(u, slot, &err) < 0)
			fail(u, &err);
	}
	return NULL;
}

/* The slot of the next part to be hashed, or NULL: it is not read yet. With the lock. */
static struct slot *next_to_hash(struct sending *u)
{
	for (size_t i = 0; i < S3_SLOTS; i++)
		if (u->slot[i].busy && u->slot[i].read && u->slot[i].part == u->hashed)
			return &u->slot[i];
	return NULL;
}

/* The caller's own thread: hashes in order, tells the progress, watches for a cancel. */
static void attend(struct sending *u, struct hash *h)
{
	uint64_t told = 0;

	lock_take(&u->lock);
	while (!atomic_load(&u->stop) && (u->n_sent < u->n_parts || u->hashed < u->n_parts)) {
		struct slot *slot = h == NULL ? NULL : next_to_hash(u);
		uint64_t sent = u->sent_bytes;

		if (u->f->cancel != NULL && atomic_load(u->f->cancel)) {
			(void)err_set(&u->err, ERR_CANCELED, "canceled");
			atomic_store(&u->stop, true);
			break;
		}
		if (slot != NULL || (sent != told && u->f->progress != NULL)) {
			lock_give(&u->lock);
			if (sent != told && u->f->progress != NULL)
				u->f->progress(u->f->arg, sent);
			told = sent;
			if (slot != NULL)
				hash_add(h, slot->p, slot->n);
			lock_take(&u->lock);
			if (slot != NULL) {
				assert(slot->part == u->hashed);
				u->hashed++;
				settle(u, slot);
				sending_check(u);
			}
			continue;
		}
		(void)cond_wait_until(&u->moved, &u->lock, sync_deadline(S3_TICK_MS));
	}
	cond_broadcast(&u->moved);
	lock_give(&u->lock);
	if (u->f->progress != NULL && told != u->f->size && u->n_sent == u->n_parts)
		u->f->progress(u->f->arg, u->f->size);
}

static int send_all(struct sending *u, struct digest *sha256, struct err *err)
{
	AUTO_HASH struct hash *h = u->f->want_sha256 ? hash_new(HASH_SHA256) : NULL;
	pthread_t thread[S3_STREAMS];
	size_t started = 0;

	if (h == NULL)
		u->hashed = u->n_parts; /* nothing waits for it */
	while (started < MIN((size_t)S3_STREAMS, u->n_parts) &&
	       pthread_create(&thread[started], NULL, sender, u) == 0)
		started++;
	if (started == 0)
		(void)err_set(&u->err, ERR_BUSY, "cannot start a thread");
	else
		attend(u, h);
	for (size_t i = 0; i < started; i++)
		(void)pthread_join(thread[i], NULL);
	for (size_t i = 0; i < S3_SLOTS; i++)
		free(u->slot[i].p);
	if (u->err.code != ERR_NONE) {
		*err = u->err;
		return -1;
	}
	if (h != NULL)
		(void)hash_end(h, sha256->b);
	return 0;
}

static int check_sha256(const struct objstore_file *f, const struct digest *got, struct err *err)
{
	char hex[HASH_HEX_CAP];

	if (f->expect == NULL || digest_same(f->expect, got))
		return 0;
	digest_hex(got, hex);
	return err_set(err, ERR_CORRUPT, "the file has changed: its SHA-256 is now %s", hex);
}

static int put_small_file(struct s3store *s, const char *key, const struct objstore_file *f,
                          struct digest *sha256, struct err *err)
{
	AUTO_FREE char *p = xmalloc((size_t)f->size + 1);
	char etag[80];

	if (fs_pread_all(f->fd, p, (size_t)f->size, 0, err) < 0)
		return err_wrap(err, "the file");
	*sha256 = hash_sha256(p, (size_t)f->size);
	if (check_sha256(f, sha256, err) < 0 ||
	    s3_put_body(s, key, str_n(p, (size_t)f->size), etag, f->cancel, err) < 0)
		return -1;
	if (f->progress != NULL)
		f->progress(f->arg, f->size);
	return 0;
}

int s3_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                struct digest *sha256, struct err *err)
{
	AUTO_FREE struct objstore_part *parts = NULL;
	AUTO_FREE struct sending *u = NULL;
	char id[OBJSTORE_UPLOAD_CAP];
	uint64_t part_bytes = S3_PART;
	int rc;

	if (f->cancel != NULL && atomic_load(f->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	if (f->size <= S3_SMALL)
		return put_small_file((struct s3store *)os, key, f, sha256, err);
	while (f->size / part_bytes >= OBJSTORE_PARTS_MAX)
		part_bytes += S3_PART_STEP;
	u = xcalloc(1, sizeof(*u));
	u->magic = SENDING_MAGIC;
	u->n_parts = (size_t)((f->size + part_bytes - 1) / part_bytes);
	parts = xcalloc(u->n_parts, sizeof(*parts));
	if (s3_parts_begin(os, key, id, err) < 0)
		return -1;
	u->s = (struct s3store *)os;
	u->key = key;
	u->id = id;
	u->f = f;
	u->part_bytes = part_bytes;
	u->part = parts;
	lock_init(&u->lock, LOCK_S3_UPLOAD);
	cond_init(&u->moved);
	rc = send_all(u, sha256, err);
	if (rc == 0)
		rc = check_sha256(f, sha256, err);
	if (rc == 0)
		rc = complete(os, key, id, parts, u->n_parts, err);
	if (rc < 0) {
		struct err later = {0};

		if (s3_parts_abort(os, key, id, &later) < 0)
			err_clear(&later); /* swept by age */
	}
	cond_done(&u->moved);
	lock_done(&u->lock);
	return rc;
}
