/* objstore.c - see objstore.h: the list of drivers, and what is checked for all of them. */
#include "store/objects/objstore_impl.h"

#include "base/clock.h"
#include "base/log.h"

/* clang-format off */
static const struct objstore_ops *const drivers[] = {
	&objstore_dir,
	&objstore_s3,
	&objstore_signed,
	&objstore_passed,
	&objstore_mem,
	&objstore_fault,
};
/* clang-format on */

int objstore_open(struct objstore **out, const char *url, const struct objstore_env *env,
                  struct err *err)
{
	static const struct objstore_env none;

	for (size_t i = 0; i < COUNT(drivers); i++) {
		size_t n = drivers[i] != NULL ? strlen(drivers[i]->scheme) : 0;
		struct objstore *os = NULL;

		if (n == 0 || strncmp(url, drivers[i]->scheme, n) != 0 || url[n] != ':')
			continue;
		if (drivers[i]->open(&os, url + n + 1, env == NULL ? &none : env, err) < 0)
			return err_wrap(err, "object store %s", url);
		assert(os != NULL && err->code == ERR_NONE);
		os->ops = drivers[i];
		os->url = xstrdup(url);
		lock_init(&os->lock, LOCK_OBJSTORE);
		*out = os;
		return 0;
	}
	return err_set(err, ERR_INVALID,
	               "\"%s\" is not an object store: write dir:/path or s3:https://host/bucket",
	               url);
}

void objstore_close(struct objstore *os)
{
	if (os == NULL)
		return;
	free(os->url);
	os->url = NULL;
	lock_done(&os->lock);
	os->ops->close(os);
}

int objstore_check_key(struct str key, struct err *err)
{
	if (key.n == 0 || key.n > OBJSTORE_KEY_MAX)
		return err_set(err, ERR_INVALID, "a key must have 1 to %d bytes, not %zu",
		               OBJSTORE_KEY_MAX, key.n);
	for (size_t i = 0; i < key.n; i++)
		if ((unsigned char)key.p[i] < 0x20 || key.p[i] == 0x7f)
			return err_set(err, ERR_INVALID,
			               "a key must not contain control characters");
	if (!fs_path_is_plain(key))
		return err_set(err, ERR_INVALID,
		               "\"%.*s\" is not a valid key: its parts between '/' must not be "
		               "empty, \".\" or "
		               "\"..\"",
		               STR_ARG(key));
	return 0;
}

/* Is it the store that failed, and not the request? */
static bool is_trouble(const struct err *err)
{
	static const enum err_code codes[] = {ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_NO_SPACE,
	                                      ERR_DENIED,      ERR_AUTH,    ERR_BUSY};

	for (size_t i = 0; i < COUNT(codes); i++)
		if (err->code == codes[i])
			return true;
	return false;
}

/* For people. One whose requests somebody else signs does not know where it is; the URL of each
 * request says it. */
static const char *place_of(const struct objstore *os)
{
	return os->ops == &objstore_signed ? "the object store" : os->url;
}

static const char *state_of(const struct err *err)
{
	static const struct {
		enum err_code id; /* or its class */
		const char *words;
	} rows[] = {
		{ERR_NO_SPACE, "is full"},
		{ERR_CLOCK_DIFFERS, "says that the server's clock is wrong"},
		{ERR_DENIED, "refuses the server's keys"},
		{ERR_AUTH, "refuses the server's keys"},
		{ERR_HOST_UNREACHABLE, "cannot be reached"},
		{ERR_HOST_UNKNOWN, "cannot be reached"},
		{ERR_TIMEOUT, "does not answer"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		if (err->id == rows[i].id || err->code == rows[i].id)
			return rows[i].words;
	return strstr(err->msg, "NoSuchBucket") != NULL ? "has no such bucket" : "fails";
}

/* For people: where it is, what it says, and what helps. */
static void set_why(struct objstore *os, const struct err *err)
{
	bool keys = err->code == ERR_DENIED && err->id != ERR_CLOCK_DIFFERS;
	AUTO_FREE char *why =
		xasprintf("%s: %s%s", place_of(os), err->msg,
	                  keys ? ". The keys need to read, write, list and delete there" : "");

	copy_cut(os->why, sizeof(os->why), why);
	os->state = state_of(err);
}

/* A success costs one load. */
static void note(struct objstore *os, int rc, const struct err *err)
{
	bool away = rc < 0 && is_trouble(err);

	if (os->ops->fd != NULL || away == atomic_load(&os->away) ||
	    (rc < 0 && !away && err->code != ERR_NOT_FOUND))
		return;
	lock_take(&os->lock);
	atomic_store(&os->away, away);
	if (away)
		set_why(os, err);
	if (outage_note(&os->outage, away, clock_wall_ms())) {
		if (away)
			log_warn("the object store fails; what needs it waits: %s", os->why);
		else
			log_info("the object store is back: away_ms=%" PRId64, os->outage.last_ms);
	}
	lock_give(&os->lock);
}

void objstore_outage(struct objstore *os, struct outage *out, char why[OBJSTORE_WHY_MAX])
{
	lock_take(&os->lock);
	*out = os->outage;
	copy_cut(why, OBJSTORE_WHY_MAX, out->since_ms != 0 ? os->why : "");
	lock_give(&os->lock);
}

const char *objstore_state(struct objstore *os)
{
	const char *state;

	lock_take(&os->lock);
	state = os->outage.since_ms != 0 ? os->state : NULL;
	lock_give(&os->lock);
	return state;
}

/* The contract of every driver, and the store and key in front of every error. */
static int finish_here(struct objstore *os, int rc, const char *verb, const char *key,
                       struct err *err)
{
	assert(rc == 0 || rc == -1);
	assert((rc == 0) == (err->code == ERR_NONE));
	if (rc == 0)
		return 0;
	atomic_fetch_add(&os->n_errors, 1);
	return err_wrap(err, "%s %s in %s", verb, key, place_of(os));
}

/* Whoever asked us did nothing wrong: neither was he slow, nor are they his keys. */
static void name_trouble(const struct objstore *os, struct err *err)
{
	if (os->ops->fd != NULL)
		return;
	if (err->code == ERR_TIMEOUT || err->code == ERR_BUSY || err->id == ERR_HOST_UNREACHABLE ||
	    err->id == ERR_HOST_UNKNOWN)
		err_become(err, ERR_OBJECTS_UNAVAILABLE);
	if (err->code == ERR_AUTH)
		err_become(err, ERR_OBJECTS_DENIED);
	err_refine(err, ERR_OBJECTS_UNAVAILABLE);
	err_refine(err, ERR_OBJECTS_DENIED);
}

/* Of a call that the store has answered, or should have. */
static int finish(struct objstore *os, int rc, const char *verb, const char *key, struct err *err)
{
	note(os, rc, err);
	if (rc < 0)
		name_trouble(os, err);
	return finish_here(os, rc, verb, key, err);
}

/* A reader or a sink of the caller's: what it fails with is no news of the store. */
struct others {
	unsigned magic;
#define OTHERS_MAGIC 0x534f5448U
	objstore_read_fn *read;
	objstore_sink_fn *sink;
	void *arg;
	bool failed; /* by its last call */
	struct err err;
};

static int others_end(struct others *o, int rc, const struct err *err)
{
	o->failed = rc < 0;
	if (o->failed)
		o->err = *err;
	return rc;
}

static int others_read(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	struct others *o = FROM_VOID(struct others, arg, OTHERS_MAGIC);

	return others_end(o, o->read(o->arg, p, cap, n, err), err);
}

static int others_sink(void *arg, const void *p, size_t n, struct err *err)
{
	struct others *o = FROM_VOID(struct others, arg, OTHERS_MAGIC);

	return others_end(o, o->sink(o->arg, p, n, err), err);
}

static int finish_with(struct objstore *os, const struct others *o, int rc, const char *verb,
                       const char *key, struct err *err)
{
	if (rc == 0 || !o->failed)
		return finish(os, rc, verb, key, err);
	*err = o->err; /* without what a driver did with it */
	return finish_here(os, rc, verb, key, err);
}

static int begin(struct objstore *os, const char *verb, const char *key, struct err *err)
{
	assert(err->code == ERR_NONE);
	atomic_fetch_add(&os->n_calls, 1);
	if (objstore_check_key(str_of(key), err) < 0)
		return finish(os, -1, verb, key, err);
	return 0;
}

int objstore_get(struct objstore *os, const char *key, struct buf *out, struct err *err)
{
	if (begin(os, "get", key, err) < 0)
		return -1;
	return finish(os, os->ops->get(os, key, out, err), "get", key, err);
}

int objstore_put(struct objstore *os, const char *key, struct str body, struct err *err)
{
	int rc;

	if (begin(os, "put", key, err) < 0)
		return -1;
	if (body.n > OBJSTORE_BODY_MAX)
		rc = err_set(err, ERR_TOO_BIG, "%zu bytes in one write; the limit is %zu", body.n,
		             OBJSTORE_BODY_MAX);
	else
		rc = os->ops->put(os, key, body, err);
	return finish(os, rc, "put", key, err);
}

int objstore_put_file(struct objstore *os, const char *key, int fd, uint64_t size,
                      const struct digest *sha256, struct digest *sha256_out,
                      void (*progress)(void *arg, uint64_t bytes), void *arg,
                      const atomic_bool *cancel, struct err *err)
{
	struct objstore_file f = {
		.fd = fd,
		.size = size,
		.want_sha256 = sha256 != NULL || sha256_out != NULL,
		.expect = sha256,
		.progress = progress,
		.arg = arg,
		.cancel = cancel,
	};
	struct digest got = {0};
	int rc;

	assert(fd >= 0 && size <= INT64_MAX);
	if (begin(os, "put", key, err) < 0)
		return -1;
	rc = os->ops->put_file(os, key, &f, &got, err);
	assert(rc < 0 || sha256 == NULL || digest_same(sha256, &got));
	if (rc == 0 && sha256_out != NULL)
		*sha256_out = got;
	return finish(os, rc, "put", key, err);
}

int objstore_put_stream(struct objstore *os, const char *key, uint64_t size, objstore_read_fn *read,
                        void *arg, struct objstore_info *info, struct err *err)
{
	struct others o = {.magic = OTHERS_MAGIC, .read = read, .arg = arg};
	struct objstore_info got = {0};
	int rc;

	if (begin(os, "put", key, err) < 0)
		return -1;
	rc = os->ops->put_stream(os, key, size, others_read, &o, &got, err);
	assert(rc < 0 || size == UINT64_MAX || got.size == size);
	if (rc == 0 && info != NULL)
		*info = got;
	return finish_with(os, &o, rc, "put", key, err);
}

int objstore_copy(struct objstore *os, const char *from, const char *to, struct err *err)
{
	if (begin(os, "copy", from, err) < 0 || begin(os, "copy to", to, err) < 0)
		return -1;
	if (strcmp(from, to) == 0)
		return 0;
	return finish(os, os->ops->copy(os, from, to, err), "copy", from, err);
}

int objstore_copy_all(struct objstore *os, const struct objstore_pair *pair, size_t n,
                      struct err *err)
{
	size_t at = 0;
	int rc;

	for (; os->ops->copy_all == NULL && at < n; at++)
		if (objstore_copy(os, pair[at].from, pair[at].to, err) < 0)
			return -1;
	if (at == n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		assert(strcmp(pair[i].from, pair[i].to) != 0);
		if (begin(os, "copy", pair[i].from, err) < 0 ||
		    begin(os, "copy to", pair[i].to, err) < 0)
			return -1;
	}
	rc = os->ops->copy_all(os, pair, n, &at, err);
	return finish(os, rc, "copy", pair[MIN(at, n - 1)].from, err);
}

int objstore_stat(struct objstore *os, const char *key, struct objstore_info *out, struct err *err)
{
	struct objstore_info got = {0};
	int rc;

	if (begin(os, "stat", key, err) < 0)
		return -1;
	rc = os->ops->stat(os, key, &got, err);
	if (rc == 0)
		*out = got;
	return finish(os, rc, "stat", key, err);
}

int objstore_read_same(struct objstore *os, const char *key, const char *etag, uint64_t first,
                       uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                       struct err *err)
{
	struct others o = {.magic = OTHERS_MAGIC, .sink = sink, .arg = arg};
	int rc;

	if (begin(os, "read", key, err) < 0)
		return -1;
	rc = os->ops->read(os, key, etag, first, count, others_sink, &o, cancel, err);
	return finish_with(os, &o, rc, "read", key, err);
}

int objstore_read(struct objstore *os, const char *key, uint64_t first, uint64_t count,
                  objstore_sink_fn *sink, void *arg, const atomic_bool *cancel, struct err *err)
{
	return objstore_read_same(os, key, NULL, first, count, sink, arg, cancel, err);
}

int objstore_check_etag(const char *wanted, const char *is, struct err *err)
{
	if (wanted == NULL || strcmp(wanted, is) == 0)
		return 0;
	return err_set(err, ERR_CONFLICT, "it was replaced while it was read");
}

int objstore_fd(struct objstore *os, const char *key, int *fd, struct objstore_info *info,
                struct err *err)
{
	struct objstore_info got = {0};
	int got_fd = -1, rc;

	if (begin(os, "open", key, err) < 0)
		return -1;
	if (os->ops->fd == NULL)
		rc = err_set(err, ERR_UNSUPPORTED, "this store has no local files");
	else
		rc = os->ops->fd(os, key, &got_fd, &got, err);
	if (rc == 0) {
		*fd = got_fd;
		*info = got;
	}
	return finish(os, rc, "open", key, err);
}

int objstore_link(struct objstore *os, const char *key, int dirfd, const char *name,
                  struct err *err)
{
	int rc;

	assert(name[0] != '\0' && strchr(name, '/') == NULL);
	if (begin(os, "link", key, err) < 0)
		return -1;
	rc = os->ops->link == NULL ? err_set(err, ERR_UNSUPPORTED, "this store has no local files")
	                           : os->ops->link(os, key, dirfd, name, err);
	return finish_here(os, rc, "link", key, err);
}

int objstore_adopt(struct objstore *os, const char *key, int dirfd, const char *path,
                   struct err *err)
{
	int rc;

	if (begin(os, "put", key, err) < 0)
		return -1;
	rc = os->ops->adopt == NULL ? err_set(err, ERR_UNSUPPORTED, "this store has no local files")
	                            : os->ops->adopt(os, key, dirfd, path, err);
	return finish_here(os, rc, "put", key, err);
}

int objstore_blank(struct objstore *os, char name[OBJSTORE_BLANK_CAP], int *fd, struct err *err)
{
	int rc, got = -1;

	assert(err->code == ERR_NONE);
	atomic_fetch_add(&os->n_calls, 1);
	rc = os->ops->blank == NULL ? err_set(err, ERR_UNSUPPORTED, "this store has no local files")
	                            : os->ops->blank(os, name, &got, err);
	if (rc == 0)
		*fd = got;
	return finish_here(os, rc, "write", "a file", err);
}

int objstore_publish(struct objstore *os, const char *name, int fd, const char *key,
                     const char *etag, struct objstore_info *info, struct err *err)
{
	assert(os->ops->publish != NULL);
	if (begin(os, "put", key, err) < 0)
		return -1;
	return finish(os, os->ops->publish(os, name, fd, key, etag, info, err), "put", key, err);
}

void objstore_discard(struct objstore *os, const char *name)
{
	assert(os->ops->discard != NULL || name == NULL);
	if (os->ops->discard != NULL)
		os->ops->discard(os, name);
}

int objstore_presign(struct objstore *os, struct arena *a, const struct objstore_request *rq,
                     struct objstore_signed *out, struct err *err)
{
	struct objstore_signed got = {0};
	int rc;

	assert(rq->expires_s > 0 && rq->expires_s <= SIGV4_PRESIGN_MAX_S);
	if (begin(os, "sign", rq->key, err) < 0)
		return -1;
	if (os->ops->presign == NULL)
		rc = err_set(err, ERR_UNSUPPORTED, "this store is not spoken to by HTTP");
	else if (rq->copy_from != NULL && objstore_check_key(str_of(rq->copy_from), err) < 0)
		rc = -1;
	else
		rc = os->ops->presign(os, a, rq, &got, err);
	if (rc == 0)
		*out = got;
	return finish_here(os, rc, "sign", rq->key, err);
}

int objstore_sign_put(struct objstore *os, struct arena *a, const char *key, const char *sha256,
                      struct objstore_put *out, struct err *err)
{
	struct objstore_put got = {0};
	int rc;

	assert(strlen(sha256) == HASH_HEX_CAP - 1);
	if (begin(os, "sign", key, err) < 0)
		return -1;
	rc = os->ops->sign_put == NULL
	             ? err_set(err, ERR_UNSUPPORTED, "this store is not spoken to by HTTP")
	             : os->ops->sign_put(os, a, key, sha256, &got, err);
	if (rc == 0)
		*out = got;
	return finish_here(os, rc, "sign", key, err);
}

struct ordered { /* keys come in order, start with the prefix, after `after`: checked for all */
	unsigned magic;
#define ORDERED_MAGIC 0x534f5244U
	objstore_each_fn *each;
	void *arg;
	const char *prefix;
	char last[OBJSTORE_KEY_MAX + 1];
	size_t n;
};

static void check_order(void *arg, const char *key, const struct objstore_info *info)
{
	struct ordered *o = FROM_VOID(struct ordered, arg, ORDERED_MAGIC);

	assert(str_starts(str_of(key), o->prefix) && strcmp(o->last, key) < 0);
	copy_cut(o->last, sizeof(o->last), key);
	o->n++;
	o->each(o->arg, key, info);
}

/* Could a key start so? The part behind the last slash may be anything. */
static bool may_begin_key(const char *prefix)
{
	const char *slash = strrchr(prefix, '/');

	return slash == NULL || fs_path_is_plain(str_n(prefix, (size_t)(slash - prefix)));
}

int objstore_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                  objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	struct ordered o = {.magic = ORDERED_MAGIC, .each = each, .arg = arg, .prefix = prefix};
	bool got = false;
	int rc;

	assert(max <= 1000 && err->code == ERR_NONE);
	atomic_fetch_add(&os->n_calls, 1);
	if (strlen(prefix) > OBJSTORE_KEY_MAX ||
	    (after != NULL && strlen(after) > OBJSTORE_KEY_MAX)) {
		rc = err_set(err, ERR_INVALID, "a prefix has at most %d bytes", OBJSTORE_KEY_MAX);
	} else if (max == 0 || !may_begin_key(prefix)) {
		*more = false;
		return 0; /* without the store */
	} else {
		copy_cut(o.last, sizeof(o.last), after == NULL ? "" : after);
		rc = os->ops->list == NULL
		             ? err_set(err, ERR_UNSUPPORTED, "this store cannot list")
		             : os->ops->list(os, prefix, after, max, check_order, &o, &got, err);
		assert(rc < 0 || o.n <= max);
	}
	if (rc == 0)
		*more = got;
	return finish(os, rc, "list", prefix, err);
}

int objstore_del(struct objstore *os, const char *key, struct err *err)
{
	if (begin(os, "delete", key, err) < 0)
		return -1;
	return finish(os, os->ops->del(os, key, err), "delete", key, err);
}

int objstore_del_all(struct objstore *os, const char *const *key, size_t n, size_t *at,
                     struct err *err)
{
	size_t own = 0, good = 0, *i = at != NULL ? at : &own;
	struct err bad = {0};

	for (*i = 0; os->ops->del_all == NULL && *i < n; (*i)++)
		if (objstore_del(os, key[*i], err) < 0)
			return -1;
	if (*i == n)
		return 0;
	while (good < n && begin(os, "delete", key[good], &bad) == 0)
		good++;
	if (good > 0 && os->ops->del_all(os, key, good, i, err) < 0) {
		assert(*i < good);
		return finish(os, -1, "delete", key[*i], err);
	}
	*i = good;
	if (good > 0)
		note(os, 0, err);
	if (good == n)
		return 0;
	*err = bad;
	return -1;
}

/* ---- parts ------------------------------------------------------------------------------- */

static int check_id(const struct objstore *os, const char *id, struct err *err)
{
	size_t n = strlen(id);

	if (os->ops->parts_begin == NULL || n == 0 || n >= OBJSTORE_UPLOAD_CAP)
		return err_set(err, ERR_NOT_FOUND, "no such upload");
	return 0;
}

int objstore_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                         struct err *err)
{
	int rc;

	if (begin(os, "upload", key, err) < 0)
		return -1;
	rc = os->ops->parts_begin == NULL
	             ? err_set(err, ERR_UNSUPPORTED, "this store has no uploads in parts")
	             : os->ops->parts_begin(os, key, id, err);
	return finish(os, rc, "upload", key, err);
}

int objstore_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                       uint64_t size, objstore_read_fn *read, void *arg, char etag[80],
                       struct err *err)
{
	struct others o = {.magic = OTHERS_MAGIC, .read = read, .arg = arg};
	int rc;

	if (begin(os, "upload", key, err) < 0)
		return -1;
	if (number < 1 || number > OBJSTORE_PARTS_MAX)
		rc = err_set(err, ERR_INVALID, "a part's number must be from 1 to %d",
		             OBJSTORE_PARTS_MAX);
	else if (check_id(os, id, err) < 0)
		rc = -1;
	else
		rc = os->ops->parts_put(os, key, id, number, size, others_read, &o, etag, err);
	return finish_with(os, &o, rc, "upload", key, err);
}

int objstore_parts_end(struct objstore *os, const char *key, const char *id,
                       const struct objstore_part *parts, size_t n, struct objstore_info *info,
                       struct err *err)
{
	struct objstore_info got = {0};
	int rc = 0;

	if (begin(os, "complete", key, err) < 0)
		return -1;
	if (n == 0 || n > OBJSTORE_PARTS_MAX)
		rc = err_set(err, ERR_INVALID, "InvalidPart: an object must have 1 to %d parts",
		             OBJSTORE_PARTS_MAX);
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (parts[i].number < 1 || parts[i].number > OBJSTORE_PARTS_MAX)
			rc = err_set(err, ERR_INVALID, "InvalidPart: no part %" PRIu32,
			             parts[i].number);
		else if (i > 0 && parts[i].number <= parts[i - 1].number)
			rc = err_set(err, ERR_INVALID,
			             "InvalidPartOrder: part %" PRIu32 " follows part %" PRIu32,
			             parts[i].number, parts[i - 1].number);
	}
	if (rc == 0)
		rc = check_id(os, id, err);
	if (rc == 0)
		rc = os->ops->parts_end(os, key, id, parts, n, &got, err);
	if (rc == 0 && info != NULL)
		*info = got;
	return finish(os, rc, "complete", key, err);
}

int objstore_parts_abort(struct objstore *os, const char *key, const char *id, struct err *err)
{
	int rc;

	if (begin(os, "abort", key, err) < 0)
		return -1;
	rc = check_id(os, id, err) < 0 ? -1 : os->ops->parts_abort(os, key, id, err);
	return finish(os, rc, "abort", key, err);
}

int objstore_sweep(struct objstore *os, int64_t max_age_s, bool dry_run, struct objstore_swept *out,
                   struct err *err)
{
	struct objstore_swept n = {0};
	int rc;

	assert(max_age_s >= 0 && err->code == ERR_NONE);
	rc = os->ops->sweep == NULL ? err_set(err, ERR_UNSUPPORTED, "this store cannot list")
	                            : os->ops->sweep(os, max_age_s, dry_run, &n, err);
	if (rc == 0)
		*out = n;
	return finish(os, rc, "sweep", "uploads", err);
}

void objstore_etag_begin(struct objstore_etag *e)
{
	e->md5 = hash_new(HASH_MD5);
	e->n = 0;
}

int objstore_etag_add(struct objstore_etag *e, const char *etag, struct err *err)
{
	uint8_t md5[16];
	struct err bad = {0};

	if (hex_decode(str_of(etag), md5, sizeof(md5), &bad) < 0)
		return err_set(err, ERR_INVALID,
		               "InvalidPart: \"%.40s\" is not an uploaded part's ETag", etag);
	hash_add(e->md5, md5, sizeof(md5));
	e->n++;
	return 0;
}

void objstore_etag_end(struct objstore_etag *e, char out[80])
{
	uint8_t md5[HASH_SHA256_LEN];
	char hex[33];

	(void)hash_end(e->md5, md5);
	hash_free(TAKE(e->md5));
	hex_encode(md5, 16, hex);
	fmt_fixed(out, 80, "%s-%zu", hex, e->n);
}

int objstore_counted_read(struct objstore_counted *c, void *p, size_t cap, size_t *n,
                          struct err *err)
{
	if (c->read(c->arg, p, cap, n, err) < 0)
		return -1;
	assert(*n <= cap);
	c->seen += *n;
	if (c->size == UINT64_MAX)
		return 0;
	if (c->seen > c->size || (*n == 0 && c->seen < c->size))
		return err_set(err, ERR_INVALID,
		               "IncompleteBody: %" PRIu64 " bytes were declared, %s%" PRIu64
		               " came",
		               c->size, c->seen > c->size ? "at least " : "", c->seen);
	return 0;
}

#define KEYS_A_PAGE 1000

struct page {
	unsigned magic;
#define PAGE_MAGIC 0x53504147U
	struct arena *a;
	const char *key[KEYS_A_PAGE];
	size_t n;
};

static void take_key(void *arg, const char *key, const struct objstore_info *info UNUSED)
{
	struct page *p = FROM_VOID(struct page, arg, PAGE_MAGIC);

	if (p->n < COUNT(p->key))
		p->key[p->n++] = arena_cstr(p->a, key);
}

int objstore_del_below(struct objstore *os, const char *prefix, const char *but,
                       const atomic_bool *cancel, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct page *p = ARENA_NEW(a, struct page);
	const char *after = NULL;

	p->magic = PAGE_MAGIC;
	p->a = a;
	for (bool more = true; more; more = more && p->n > 0) {
		size_t n = 0;

		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		p->n = 0;
		if (objstore_list(os, prefix, after, KEYS_A_PAGE, take_key, p, &more, err) < 0)
			return -1;
		for (size_t i = 0; i < p->n; i++) {
			after = p->key[i];
			if (but == NULL || !str_starts(str_of(after), but))
				p->key[n++] = after;
		}
		if (objstore_del_all(os, p->key, n, NULL, err) < 0)
			return -1;
	}
	return 0;
}
