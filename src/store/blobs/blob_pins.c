/*
 * blob_pins.c - see blob_pins.h. One table for a store: how many hold a digest, and, when nobody
 * does any more, which collections may still have to leave it alone.
 */
#include "store/blobs/blob_impl.h"

#include "base/map.h"

#define PINS_FIRST 64

struct blob_pins {
	struct blobs *b;
	struct digest *d; /* under the lock of the table */
	size_t n, cap;
};

struct pin {
	unsigned magic;
#define PIN_MAGIC 0x5350494eU
	uint64_t holders;
	uint64_t last_scan; /* the newest collection that had begun when the last holder left */
};

struct blob_pin_table {
	struct lock lock;
	struct map *pins;
	struct map *going;   /* objects that are being removed; values mean nothing */
	struct cond settled; /* one of them is */
	LIST_HEAD(, blob_scan) scans;
	uint64_t n_scans; /* ever begun: a collection's number */
	size_t n_idle;    /* pins without a holder */
};

/* What is true whenever the lock is free. */
static void table_check(const struct blob_pin_table *t)
{
	assert(lock_is_mine(&t->lock));
	assert(t->n_idle <= map_count(t->pins));
	/* Only a collection keeps a pin that nobody holds. */
	assert(!LIST_EMPTY(&t->scans) || t->n_idle == 0);
	assert(LIST_EMPTY(&t->scans) || LIST_FIRST(&t->scans)->number <= t->n_scans);
}

struct blob_pin_table *blob_pin_table_new(void)
{
	struct blob_pin_table *t = xcalloc(1, sizeof(*t));

	lock_init(&t->lock, LOCK_BLOB_PINS);
	LIST_INIT(&t->scans);
	t->pins = map_new();
	t->going = map_new();
	cond_init(&t->settled);
	return t;
}

static void free_pin(struct str key UNUSED, void *value, void *arg UNUSED)
{
	free(FROM_VOID(struct pin, value, PIN_MAGIC));
}

void blob_pin_table_free(struct blob_pin_table *t)
{
	assert(LIST_EMPTY(&t->scans) && t->n_idle == 0 && map_count(t->going) == 0);
	map_each(t->pins, free_pin, NULL);
	map_free(t->pins);
	map_free(t->going);
	cond_done(&t->settled);
	lock_done(&t->lock);
	free(t);
}

/* Temporary files share the table; their names are no digests. */
static struct digest tmp_id(const char *of, const char *name)
{
	AUTO_FREE char *text = xasprintf("%s/%s", of, name);

	return hash_sha256(text, strlen(text));
}

struct blob_pins *blob_pins_new(struct blobs *b)
{
	struct blob_pins *p = xcalloc(1, sizeof(*p));

	p->b = b;
	return p;
}

void blob_pins_add(struct blob_pins *p, const struct digest *d)
{
	struct blob_pin_table *t = p->b->pins;
	struct pin *pin;

	lock_take(&t->lock);
	table_check(t);
	assert(p->n <= p->cap);
	if (p->n == p->cap) {
		p->cap = MAX(p->cap * 2, (size_t)PINS_FIRST);
		p->d = xrealloc(p->d, p->cap * sizeof(*p->d));
	}
	p->d[p->n++] = *d;
	pin = map_get(t->pins, digest_key(d));
	if (pin == NULL) {
		pin = xcalloc(1, sizeof(*pin));
		pin->magic = PIN_MAGIC;
		(void)map_set(t->pins, digest_key(d), pin);
	} else if (pin->holders == 0) {
		assert(t->n_idle > 0);
		t->n_idle--;
	}
	pin->holders++;
	table_check(t);
	lock_give(&t->lock);
}

void blob_pins_settle(struct blobs *b, const struct digest *d)
{
	struct blob_pin_table *t = b->pins;

	lock_take(&t->lock);
	while (map_get(t->going, digest_key(d)) != NULL)
		cond_wait(&t->settled, &t->lock);
	lock_give(&t->lock);
}

void blob_pins_add_tmp(struct blob_pins *p, const char *name)
{
	struct digest d = tmp_id("tmp", name);

	blob_pins_add(p, &d);
}

void blob_pins_add_reserved(struct blob_pins *p, const char *name)
{
	struct digest d = tmp_id("reserved", name);

	blob_pins_add_tmp(p, name);
	blob_pins_add(p, &d);
}

/* With the lock. */
static void give_back(struct blob_pin_table *t, const struct digest *d)
{
	struct pin *pin = map_get(t->pins, digest_key(d));

	assert(pin != NULL && pin->holders > 0);
	if (--pin->holders > 0)
		return;
	if (LIST_EMPTY(&t->scans)) {
		(void)map_del(t->pins, digest_key(d));
		free(pin);
		return;
	}
	pin->last_scan = t->n_scans;
	t->n_idle++;
}

void blob_pins_free(struct blob_pins *p)
{
	struct blob_pin_table *t;

	if (p == NULL)
		return;
	t = p->b->pins;
	lock_take(&t->lock);
	table_check(t);
	for (size_t i = 0; i < p->n; i++)
		give_back(t, &p->d[i]);
	table_check(t);
	lock_give(&t->lock);
	free(p->d);
	free(p);
}

/* ---- collectors -------------------------------------------------------------------------- */

void blob_scan_begin(struct blobs *b, struct blob_scan *s)
{
	struct blob_pin_table *t = b->pins;

	lock_take(&t->lock);
	table_check(t);
	s->number = ++t->n_scans;
	LIST_INSERT_HEAD(&t->scans, s, in);
	table_check(t);
	lock_give(&t->lock);
}

struct forget {
	unsigned magic;
#define FORGET_MAGIC 0x53464f47U
	struct blob_pin_table *t;
	uint64_t oldest; /* collection that still runs */
};

static void forget_pin(struct str key, void *value, void *arg)
{
	const struct forget *f = FROM_VOID(struct forget, arg, FORGET_MAGIC);
	struct pin *pin = FROM_VOID(struct pin, value, PIN_MAGIC);

	if (pin->holders > 0 || pin->last_scan >= f->oldest)
		return;
	assert(f->t->n_idle > 0);
	(void)map_del(f->t->pins, key);
	free(pin);
	f->t->n_idle--;
}

void blob_scan_end(struct blobs *b, struct blob_scan *s)
{
	struct blob_pin_table *t = b->pins;
	struct forget f = {FORGET_MAGIC, t, UINT64_MAX};
	const struct blob_scan *other;

	lock_take(&t->lock);
	table_check(t);
	assert(s->number > 0 && s->number <= t->n_scans);
	LIST_REMOVE(s, in);
	LIST_FOREACH(other, &t->scans, in)
	f.oldest = MIN(f.oldest, other->number);
	if (t->n_idle > 0)
		map_each(t->pins, forget_pin, &f);
	table_check(t);
	lock_give(&t->lock);
}

static bool is_pinned(struct blobs *b, const struct digest *d)
{
	bool pinned;

	lock_take(&b->pins->lock);
	pinned = map_get(b->pins->pins, digest_key(d)) != NULL;
	lock_give(&b->pins->lock);
	return pinned;
}

bool blobs_pinned(struct blobs *b, const struct digest *d)
{
	return is_pinned(b, d);
}

bool blob_going_begin(struct blobs *b, const struct digest *d)
{
	struct blob_pin_table *t = b->pins;
	bool mine;

	lock_take(&t->lock);
	mine = map_get(t->pins, digest_key(d)) == NULL && map_get(t->going, digest_key(d)) == NULL;
	if (mine)
		(void)map_set(t->going, digest_key(d), t);
	lock_give(&t->lock);
	return mine;
}

void blob_going_end(struct blobs *b, const struct digest *d)
{
	struct blob_pin_table *t = b->pins;
	const void *was;

	lock_take(&t->lock);
	table_check(t);
	was = map_del(t->going, digest_key(d));
	assert(was == t); /* who ends it has begun it */
	cond_broadcast(&t->settled);
	lock_give(&t->lock);
}

bool blob_tmp_pinned(struct blobs *b, const char *name)
{
	struct digest d = tmp_id("tmp", name);

	return is_pinned(b, &d);
}

bool blob_tmp_reserved(struct blobs *b, const char *name)
{
	struct digest d = tmp_id("reserved", name);

	return is_pinned(b, &d);
}

int blob_take_away(struct blobs *b, const struct digest *d, const char *path, bool *gone,
                   struct err *err)
{
	struct blob_pin_table *t = b->pins;
	bool counts = str_starts(str_of(path), "blobs/");
	char aside[BLOB_PATH_CAP];
	struct stat st = {0};
	int e = 0;

	FMT(aside, "tmp/" BLOB_GONE "%s", strrchr(path, '/') + 1);
	*gone = false;
	if (counts)
		blob_turn_take(b, d);
	lock_take(&t->lock);
	if (map_get(t->pins, digest_key(d)) == NULL) {
		*gone = renameat(b->fd, path, b->fd, aside) == 0;
		e = *gone ? 0 : errno;
	}
	lock_give(&t->lock);
	if (counts) {
		counts = *gone && fstatat(b->fd, aside, &st, AT_SYMLINK_NOFOLLOW) == 0;
		blob_turn_give(b, d, counts ? -1 : 0, counts ? -(int64_t)blob_taken(&st) : 0);
	}
	if (e != 0 && e != ENOENT)
		return err_errno(err, e, "remove %s", path);
	if (*gone && unlinkat(b->fd, aside, 0) < 0 && errno != ENOENT)
		return err_errno(err, errno, "remove %s", aside);
	return 0;
}
