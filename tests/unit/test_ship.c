/* test_ship.c - real files in a real store: settling, rotation, overwriting, kills, deaths. */
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

struct place {
	char dir[64];
	struct arena *a;
	struct objstore *objects;
	struct ship *ship;
	struct ship_options o;
	pthread_mutex_t lock;
	char news[65536], events[8192];
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

	FMT(p->dir, "/tmp/test_ship.XXXXXX");
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

static void settle_in(struct place *p, int64_t ms)
{
	p->o.settle_ms = ms;
	if (p->ship == NULL)
		return;
	(void)pthread_mutex_lock(&p->ship->lock);
	p->ship->o.settle_ms = ms;
	(void)pthread_mutex_unlock(&p->ship->lock);
}

/* As a trainer writes: in place, no rename. Half of it never settles, however long it takes. */
static void put(struct place *p, const char *name, const char *text)
{
	int64_t settle_ms = p->o.settle_ms;
	char *path = in(p, name), *slash = strrchr(path, '/');
	FILE *f = NULL;
	struct err err = {0};

	settle_in(p, NEVER_MS);
	*slash = '\0';
	assert_ok(fs_mkdirs(AT_FDCWD, path, 0755, &err), &err);
	*slash = '/';
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fputs(text, f);
	assert_int_equal(fclose(f), 0);
	settle_in(p, settle_ms);
}

static void drop(struct place *p, const char *name)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, in(p, name), &err), &err);
}

static void forget(struct place *p)
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

static void wait_said(struct place *p, const char *words)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; !said(p, words);) {
		if (clock_mono_ms() > until)
			fail_msg("never said %s: %s %s", words, p->news, p->events);
		clock_sleep_ms(10);
	}
}

/* The shipper has looked at the folder this often since. */
static void wait_walks(struct place *p, uint64_t n)
{
	uint64_t first = 0, now = 0;

	for (int64_t until = clock_mono_ms() + WAIT_MS; now < first + n || first == 0;) {
		(void)pthread_mutex_lock(&p->ship->lock);
		now = p->ship->walk;
		(void)pthread_mutex_unlock(&p->ship->lock);
		if (first == 0)
			first = now + 1; /* one that is under way may have passed already */
		if (clock_mono_ms() > until)
			fail_msg("it looked %" PRIu64 " times, not %" PRIu64, now, first + n);
		clock_sleep_ms(10);
	}
}

static char *object(struct place *p, const char *path)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	struct err err = {0};

	if (objstore_get(p->objects, ckpt_object_key(p->a, PREFIX, 0, path), &body, &err) < 0)
		return NULL;
	return arena_cstr(p->a, buf_cstr(&body));
}

static bool manifest(struct place *p, const char *name, struct ckpt *c)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
	struct err err = {0};

	if (objstore_get(p->objects, ckpt_manifest_key(p->a, PREFIX, 0, name), &body, &err) < 0)
		return false;
	assert_ok(ckpt_parse(c, p->a, arena_str(p->a, buf_view(&body)), &err), &err);
	for (size_t i = 0; i < c->files.n; i++) { /* what it says is what is there */
		const struct manifest_file *f = &c->files.file[i];
		char *text = object(p, f->path);
		struct digest d;

		assert_non_null(text);
		assert_int_equal(strlen(text), f->size);
		d = hash_sha256(text, strlen(text));
		assert_true(digest_same(&d, &f->sha256));
	}
	return true;
}

static void ships_while_it_runs(void **state)
{
	struct place *p = *state;
	struct ship_totals t;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/model.safetensors", "weights");
	put(p, "checkpoint-1/deep/er/x", "more");
	put(p, "readme", "root");
	wait_said(p, "[checkpoint-1 COMPLETE 2]");
	wait_said(p, "[. COMPLETE 1]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.kind, CKPT_FULL);
	assert_true(ship_finish(p->ship, true));
	ship_totals(p->ship, &t);
	assert_int_equal(t.files, 3);
	assert_int_equal(t.bytes_sent, t.bytes);
	assert_int_equal(t.complete, 2);
}

static void rotation_takes_nothing_away(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	put(p, "checkpoint-1/model.safetensors", "weights");
	put(p, "checkpoint-1/trainer_state.json", "{}");
	start(p); /* both are there at the first look, however slow the machine is */
	wait_said(p, "[checkpoint-1 SYNCING 2]");
	wait_walks(p, 2); /* looked at, and found to be at rest */
	drop(p, "checkpoint-1");
	wait_said(p, "[checkpoint-1 COMPLETE 2]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.files.n, 2);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-1", &c)); /* local removal removes nothing there */
}

/* Files at `path` are held by a second link, so they may go. */
static void wait_linked(struct place *p, const char *path)
{
	struct stat st = {0};

	for (int64_t until = clock_mono_ms() + WAIT_MS; st.st_nlink < 2;) {
		assert_int_equal(stat(in(p, path), &st), 0);
		if (clock_mono_ms() > until)
			fail_msg("%s is not linked into the spool", path);
		clock_sleep_ms(10);
	}
}

/* A host or a store that takes its time does not keep the walker from looking. */
static void rotation_goes_on_while_the_host_is_slow(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 100;
	p->hold = true;
	put(p, "checkpoint-1/model.safetensors", "weights");
	start(p);
	for (int64_t until = clock_mono_ms() + WAIT_MS; !p->held; clock_sleep_ms(10))
		assert_true(clock_mono_ms() < until);
	for (int i = 2; i < 5; i++) {
		char *name = arena_printf(p->a, "checkpoint-%d", i);
		char *file = arena_printf(p->a, "%s/model.safetensors", name);

		put(p, file, "more weights");
		wait_linked(p, file);
		drop(p, name);
	}
	p->hold = false;
	assert_true(ship_finish(p->ship, true));
	for (int i = 2; i < 5; i++) {
		assert_true(manifest(p, arena_printf(p->a, "checkpoint-%d", i), &c));
		assert_int_equal(c.files.n, 1);
	}
}

static void own_temporaries_are_left_out(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	put(p, "checkpoint-1/model.safetensors", "weights");
	put(p, "checkpoint-1/scratchpad", "x");
	start(p);
	wait_said(p, "[checkpoint-1 SYNCING");
	drop(p, "checkpoint-1/scratchpad");
	wait_walks(p, 1);
	settle_in(p, 0);
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.files.n, 1);
}

static void a_rename_is_one_checkpoint(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "tmp-checkpoint-7/model.safetensors", "weights");
	wait_walks(p, 1);
	assert_int_equal(rename(in(p, "tmp-checkpoint-7"), in(p, "checkpoint-7")), 0);
	wait_said(p, "[checkpoint-7 COMPLETE 1]");
	assert_true(ship_finish(p->ship, true));
	assert_false(manifest(p, "tmp-checkpoint-7", &c));
	assert_null(object(p, "tmp-checkpoint-7/model.safetensors"));
}

static void overwriting_ships_again(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "last/model.bin", "one");
	wait_said(p, "[last COMPLETE 1]");
	forget(p);
	put(p, "last/model.bin", "second");
	wait_said(p, "[last COMPLETE 1]");
	assert_true(manifest(p, "last", &c));
	assert_string_equal(object(p, "last/model.bin"), "second");
}

/* Until it is whole again, the old manifest must not speak for it. */
static void a_changed_checkpoint_is_withdrawn(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "last/model.bin", "one");
	wait_said(p, "[last COMPLETE 1]");
	forget(p);
	settle_in(p, NEVER_MS);
	put(p, "last/model.bin", "three");
	wait_said(p, "[last SYNCING 1]");
	assert_false(manifest(p, "last", &c));
	settle_in(p, 0);
	wait_said(p, "[last COMPLETE 1]");
}

static void resumes_after_a_kill(void **state)
{
	struct place *p = *state;
	struct objstore_info before, after;
	struct ckpt c;
	struct err err = {0};
	char *key = ckpt_object_key(p->a, PREFIX, 0, "checkpoint-1/a");

	start(p);
	put(p, "checkpoint-1/a", "sent before");
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	put(p, "checkpoint-2/b", "linked only");
	wait_said(p, "[checkpoint-2 SYNCING 1]");
	ship_close(p->ship); /* as if killed: nothing is finished, the host may not have heard */
	p->ship = NULL;
	drop(p, "checkpoint-2"); /* and the trainer went on */
	assert_ok(objstore_stat(p->objects, key, &before, &err), &err);
	clock_sleep_ms(20);
	forget(p);
	start(p);
	assert_true(ship_finish(p->ship, true));
	assert_ok(objstore_stat(p->objects, key, &after, &err), &err);
	assert_true(before.modified_ms == after.modified_ms); /* not sent twice */
	assert_true(said(p, "[checkpoint-1 COMPLETE 1]"));    /* but told again */
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_string_equal(object(p, "checkpoint-2/b"), "linked only");
}

struct late {
	struct place *p;
	struct ship_entry *e;
	atomic_bool over, cancel;
};

/* Its sending ends when the last look at the folder is over. */
static void *send_after_the_last_look(void *arg)
{
	struct late *l = arg;
	bool passed = false;

	for (int64_t until = clock_mono_ms() + WAIT_MS; !l->over && clock_mono_ms() < until;) {
		(void)pthread_mutex_lock(&l->p->ship->lock);
		if (l->p->ship->walked_final && !passed) {
			l->e->state = SHIP_WAIT;
			passed = true;
		}
		(void)pthread_mutex_unlock(&l->p->ship->lock);
		clock_sleep_ms(10);
	}
	l->cancel = true;
	return NULL;
}

/* On a slow disk, of a file that is in the journal only: sent without end. */
static void what_the_last_look_passed_over_is_sent_once(void **state)
{
	struct place *p = *state;
	struct late l = {.p = p};
	pthread_t t;

	p->o.cancel = &l.cancel;
	settle_in(p, NEVER_MS);
	start(p);
	put(p, "checkpoint-2/b", "linked only");
	wait_said(p, "[checkpoint-2 SYNCING 1]");
	(void)pthread_mutex_lock(&p->ship->lock);
	l.e = map_get(p->ship->entries, STR_LIT("checkpoint-2/b"));
	l.e->fact.mtime_ns = 0; /* nothing is known of it */
	l.e->state = SHIP_SENDING;
	drop(p, "checkpoint-2");
	(void)pthread_mutex_unlock(&p->ship->lock);
	assert_int_equal(pthread_create(&t, NULL, send_after_the_last_look, &l), 0);
	assert_true(ship_finish(p->ship, true));
	l.over = true;
	(void)pthread_join(t, NULL);
	assert_string_equal(object(p, "checkpoint-2/b"), "linked only");
}

static void death_leaves_it_incomplete(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	start(p);
	put(p, "checkpoint-1/model.safetensors", "half");
	put(p, "tmp-checkpoint-2/model.safetensors", "less");
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_true(manifest(p, "tmp-checkpoint-2", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
}

/* The trainer was killed with its shipper, and the next shipper comes late: what was in the making
 * has long come to rest, and is no more whole for that. */
static void death_with_the_shipper_leaves_it_incomplete(void **state)
{
	struct place *p = *state;
	const struct timespec then[2] = {{.tv_sec = time(NULL) - 3600},
	                                 {.tv_sec = time(NULL) - 3600}};
	struct ckpt c;

	put(p, "checkpoint-1/model.safetensors", "whole");
	start(p);
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	ship_close(p->ship);
	p->o.settle_ms = 600000;
	start(p);
	put(p, "checkpoint-2/model-00001-of-00002.safetensors", "half of it");
	wait_said(p, "[checkpoint-2 SYNCING 1]");
	ship_close(p->ship);
	p->ship = NULL;
	/* an hour goes by */
	assert_int_equal(utimensat(AT_FDCWD, arena_printf(p->a, "%s/spool/alive", p->dir), then, 0),
	                 0);
	assert_int_equal(utimensat(AT_FDCWD, in(p, "checkpoint-2/model-00001-of-00002.safetensors"),
	                           then, 0),
	                 0);
	p->o.dead = true;
	start(p);
	assert_true(ship_finish(p->ship, false));
	wait_said(p, "[checkpoint-2 INCOMPLETE 1]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

static void what_was_whole_stays_whole(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/model.safetensors", "whole");
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	put(p, "checkpoint-1/next.tmp", "began something");
	wait_walks(p, 1);
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.n, 1);
}

static void a_good_end_needs_no_settling(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	start(p);
	put(p, "final/model.safetensors", "whole");
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "final", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

static void one_inode_is_sent_once(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/model.safetensors", "weights");
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	assert_int_equal(mkdir(in(p, "best"), 0755), 0);
	assert_int_equal(
		link(in(p, "checkpoint-1/model.safetensors"), in(p, "best/model.safetensors")), 0);
	wait_said(p, "[best COMPLETE 1]");
	assert_true(manifest(p, "best", &c));
}

/* The store refuses at first: nothing is lost, it is said once, and tried again. */
static void an_outage_pauses(void **state)
{
	struct place *p = *state;
	struct objstore *faulty = NULL;
	struct err err = {0};

	assert_ok(objstore_open(&faulty, arena_printf(p->a, "fault:1:dir:%s/objects", p->dir),
	                        &(struct objstore_env){0}, &err),
	          &err);
	p->o.objects = faulty;
	start(p);
	put(p, "checkpoint-1/model.safetensors", "weights");
	wait_said(p, "it is tried again");
	assert_true(ship_finish(p->ship, true));
	assert_string_equal(object(p, "checkpoint-1/model.safetensors"), "weights");
	ship_close(p->ship);
	p->ship = NULL;
	objstore_close(faulty);
}

static void gives_up_when_told(void **state)
{
	struct place *p = *state;
	atomic_bool cancel = true;

	p->o.cancel = &cancel;
	settle_in(p, NEVER_MS);
	start(p);
	put(p, "checkpoint-1/a", "x");
	(void)ship_finish(p->ship, false); /* it may just have made it */
}

static void warns_of_a_full_volume(void **state)
{
	struct place *p = *state;

	p->o.volume_bytes = 1000;
	start(p);
	put(p, "checkpoint-1/a", arena_printf(p->a, "%0850d", 0));
	wait_said(p, "warning: the checkpoint folder's volume is 85% full");
	assert_true(ship_finish(p->ship, true));
}

static void odd_names_are_left_alone(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/new\nline", "x");
	assert_int_equal(symlink("/etc/passwd", in(p, "checkpoint-1/link")), 0);
	assert_int_equal(mkfifo(in(p, "checkpoint-1/fifo"), 0600), 0);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.files.n, 1);
	assert_true(said(p, "checkpoint-1/link (a symbolic link)"));
	assert_true(said(p, "checkpoint-1/fifo (a pipe, a socket or a device)"));
	assert_true(said(p, "checkpoint-1/new?line (control characters in its name)"));
}

/* A name that the store refuses does not hold up the end; its checkpoint says that it lacks
 * something. */
static void a_refused_name_ends_too(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	struct err err = {0};

	assert_ok(objstore_put(p->objects, PREFIX "/rank-0/checkpoint-1/a/b", STR_LIT("x"), &err),
	          &err);
	start(p);
	put(p, "checkpoint-1/a", "a folder there");
	put(p, "checkpoint-1/c", "fine");
	assert_false(ship_finish(p->ship, true));
	assert_true(said(p, "cannot be stored"));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.files.n, 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
static const struct CMUnitTest tests[] = {
	T(ships_while_it_runs),
	T(rotation_takes_nothing_away),
	T(own_temporaries_are_left_out),
	T(a_rename_is_one_checkpoint),
	T(overwriting_ships_again),
	T(a_changed_checkpoint_is_withdrawn),
	T(resumes_after_a_kill),
	T(death_leaves_it_incomplete),
	T(what_the_last_look_passed_over_is_sent_once),
	T(what_was_whole_stays_whole),
	T(a_good_end_needs_no_settling),
	T(one_inode_is_sent_once),
	T(an_outage_pauses),
	T(gives_up_when_told),
	T(warns_of_a_full_volume),
	T(odd_names_are_left_alone),
	T(a_refused_name_ends_too),
	T(rotation_goes_on_while_the_host_is_slow),
	T(death_with_the_shipper_leaves_it_incomplete),
};
UNIT_MAIN(tests)
