/* ship_fixture.h - a checkpoint folder, a spool and a real store for one shipper, and a trainer's
 * ways of writing. */
#ifndef SHIP_FIXTURE_H
#define SHIP_FIXTURE_H

#include "run/ship_table.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/map.h"
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#define WAIT_MS 120000
#define NEVER_MS 600000 /* to settle: longer than any test */
#define PREFIX "training_projects/p/jobs/j"
#define BODY_MAX ((size_t)64 << 20)

struct place {
	char dir[64];
	struct arena *a;
	struct objstore *objects;
	struct ship *ship;
	struct ship_options o;
	pthread_mutex_t lock;
	char news[65536], events[16384];
	char reason[CKPT_REASON_MAX], updating[CKPT_REASON_MAX]; /* of the last news */
	int64_t created_ms;
	atomic_bool hold, held; /* the host keeps the next news waiting; it does */
};

static void on_checkpoint(void *arg, const struct model_checkpoint *row)
{
	struct place *p = arg;
	size_t n;

	while (p->hold) {
		p->held = true;
		clock_sleep_ms(10);
	}
	(void)pthread_mutex_lock(&p->lock);
	n = strlen(p->news);
	(void)snprintf(p->news + n, sizeof(p->news) - n, "[%s %s %" PRIu64 "]", row->name,
	               ckpt_state_word(row->state), row->files);
	p->created_ms = row->created_ms;
	copy_cut(p->reason, sizeof(p->reason), row->reason == NULL ? "" : row->reason);
	copy_cut(p->updating, sizeof(p->updating), row->updating == NULL ? "" : row->updating);
	(void)pthread_mutex_unlock(&p->lock);
}

static void on_event(void *arg, const char *kind, const char *text)
{
	struct place *p = arg;
	size_t n;

	(void)pthread_mutex_lock(&p->lock);
	n = strlen(p->events);
	(void)snprintf(p->events + n, sizeof(p->events) - n, "%s: %s\n", kind, text);
	(void)pthread_mutex_unlock(&p->lock);
}

static char *in(struct place *p, const char *name)
{
	return arena_printf(p->a, "%s/ckpt/%s", p->dir, name);
}

static int set_up(void **state)
{
	static const char *const folders[] = {"ckpt", "spool", "objects"};
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};

	FMT(p->dir, "/var/tmp/test_ship.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->a = arena_new();
	(void)pthread_mutex_init(&p->lock, NULL);
	for (size_t i = 0; i < COUNT(folders); i++)
		assert_ok(fs_mkdirs(AT_FDCWD, arena_printf(p->a, "%s/%s", p->dir, folders[i]), 0755,
		                    &err),
		          &err);
	assert_ok(objstore_open(&p->objects, arena_printf(p->a, "dir:%s/objects", p->dir),
	                        &(struct objstore_env){0}, &err),
	          &err);
	p->o = (struct ship_options){.dir = arena_printf(p->a, "%s/ckpt", p->dir),
	                             .spool = arena_printf(p->a, "%s/spool", p->dir),
	                             .objects = p->objects,
	                             .prefix = PREFIX,
	                             .job_id = "j",
	                             .settle_ms = 400,
	                             .checkpoint = on_checkpoint,
	                             .event = on_event,
	                             .arg = p};
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	ship_close(p->ship);
	objstore_close(p->objects);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	(void)pthread_mutex_destroy(&p->lock);
	arena_free(p->a);
	free(p);
	return 0;
}

static void start(struct place *p)
{
	struct err err = {0};

	assert_ok(ship_start(&p->ship, &p->o, &err), &err);
}

/* As if killed: nothing is finished, the host may not have heard. */
static UNUSED void stop(struct place *p)
{
	ship_close(p->ship);
	p->ship = NULL;
}

static UNUSED void settle_in(struct place *p, int64_t ms)
{
	struct ship_group *g = NULL;

	p->o.settle_ms = ms;
	if (p->ship == NULL)
		return;
	lock_take(&p->ship->lock);
	p->ship->o.settle_ms = ms;
	TAILQ_FOREACH(g, &p->ship->list, link)
	g->news = true;
	lock_give(&p->ship->lock);
}

static char *folder_of(struct place *p, const char *name)
{
	char *path = in(p, name), *slash = strrchr(path, '/');
	struct err err = {0};

	*slash = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, path, 0755, &err), &err);
	*slash = '/';
	return path;
}

/* As a trainer writes: in place, no rename. */
static void put_bytes(struct place *p, const char *name, const void *bytes, size_t n)
{
	FILE *f = fopen(folder_of(p, name), "we");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

static UNUSED void put(struct place *p, const char *name, const char *text)
{
	put_bytes(p, name, text, strlen(text));
}

/* A safetensors file of one tensor; what it holds is told by `fill`. cut: so many bytes short. */
static UNUSED void put_tensors(struct place *p, const char *name, char fill, size_t n, size_t cut)
{
	AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
	char head[200];
	uint64_t len;

	FMT(head, "{\"t\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", n, n);
	len = strlen(head);
	buf_add(&b, &len, sizeof(len));
	buf_puts(&b, head);
	for (size_t i = 0; i < n; i++)
		buf_putc(&b, fill);
	put_bytes(p, name, b.p, b.n - cut);
}

static UNUSED void put_state(struct place *p, const char *name, int step)
{
	put(p, name, arena_printf(p->a, "{\"global_step\": %d}\n", step));
}

static UNUSED void drop(struct place *p, const char *name)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, in(p, name), &err), &err);
}

static UNUSED void forget(struct place *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->news[0] = '\0';
	(void)pthread_mutex_unlock(&p->lock);
}

static bool said(struct place *p, const char *words)
{
	bool found;

	(void)pthread_mutex_lock(&p->lock);
	found = strstr(p->news, words) != NULL || strstr(p->events, words) != NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return found;
}

static UNUSED void wait_said(struct place *p, const char *words)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; !said(p, words);) {
		if (clock_mono_ms() > until)
			fail_msg("never said %s: %s %s %s", words, p->news, p->events, p->reason);
		clock_sleep_ms(10);
	}
}

/* The last reason, or what is still to come of a complete one, names this. */
static UNUSED void wait_reason(struct place *p, const char *word)
{
	bool found = false;

	for (int64_t until = clock_mono_ms() + WAIT_MS; !found;) {
		(void)pthread_mutex_lock(&p->lock);
		found = strstr(p->reason, word) != NULL || strstr(p->updating, word) != NULL;
		(void)pthread_mutex_unlock(&p->lock);
		if (clock_mono_ms() > until)
			fail_msg("never named %s: %s %s %s", word, p->reason, p->updating, p->news);
		clock_sleep_ms(10);
	}
}

/* The shipper has looked at the folder this often since. */
static UNUSED void wait_walks(struct place *p, uint64_t n)
{
	uint64_t first = 0, now = 0;

	for (int64_t until = clock_mono_ms() + WAIT_MS; now < first + n || first == 0;) {
		lock_take(&p->ship->lock);
		now = p->ship->walk;
		p->ship->woken = true; /* it need not wait for its time */
		cond_broadcast(&p->ship->changed);
		lock_give(&p->ship->lock);
		if (first == 0)
			first = now + 1; /* one that is under way may have passed already */
		if (clock_mono_ms() > until)
			fail_msg("it looked %" PRIu64 " times, not %" PRIu64, now, first + n);
		clock_sleep_ms(10);
	}
}

/* It knows of this file, has it in the spool, and nobody writes it any more. */
static UNUSED void wait_closed(struct place *p, const char *path)
{
	bool there = false;

	for (int64_t until = clock_mono_ms() + WAIT_MS; !there;) {
		const struct ship_entry *e = NULL;

		lock_take(&p->ship->lock);
		e = map_get(p->ship->entries, str_of(path));
		there = e != NULL && e->closed && (e->id > 0 || e->stored);
		lock_give(&p->ship->lock);
		if (clock_mono_ms() > until)
			fail_msg("%s was never seen closed: %s", path, p->news);
		clock_sleep_ms(10);
	}
}

static bool object_bytes(struct place *p, const char *path, struct buf *out)
{
	struct err err = {0};

	return objstore_get(p->objects, ckpt_object_key(p->a, PREFIX, 0, path), out, &err) == 0;
}

static UNUSED char *object(struct place *p, const char *path)
{
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);

	return object_bytes(p, path, &body) ? arena_cstr(p->a, buf_cstr(&body)) : NULL;
}

/* What it says is what is there. */
static UNUSED bool manifest(struct place *p, const char *name, struct ckpt *c)
{
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	struct err err = {0};

	if (objstore_get(p->objects, ckpt_manifest_key(p->a, PREFIX, 0, name), &body, &err) < 0)
		return false;
	assert_ok(ckpt_parse(c, p->a, arena_str(p->a, buf_view(&body)), &err), &err);
	for (size_t i = 0; i < c->files.n; i++) {
		const struct manifest_file *f = &c->files.file[i];
		AUTO_BUF struct buf bytes = BUF_INIT(BODY_MAX);
		struct digest d;

		assert_ok(objstore_get(p->objects, ckpt_file_key(p->a, PREFIX, c, i), &bytes, &err),
		          &err);
		assert_int_equal(bytes.n, f->size);
		d = hash_sha256(bytes.p, bytes.n);
		assert_true(digest_same(&d, &f->sha256));
	}
	return true;
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
