/* test_ship_over.c - saved over: revisions, their times, what survives a kill or another attempt,
 * and uploads that are never a mix. */
#include "ship_fixture.h"

static bool holds(struct place *p, const char *path, char fill)
{
	AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);

	return object_bytes(p, path, &b) && b.n > 0 && b.p[b.n - 1] == fill;
}

static void save(struct place *p, char fill, int step)
{
	put_tensors(p, "last/model.safetensors", fill, 100, 0);
	put_tensors(p, "last/optimizer.safetensors", fill, 100, 0);
	put_state(p, "last/trainer_state.json", step);
}

static size_t waiting(struct place *p)
{
	const char *of = ckpt_object_key(p->a, PREFIX, 0, ".stoker/rev");
	char *path = arena_printf(p->a, "%s/objects/%s", p->dir, of);
	struct stat st;

	return stat(path, &st) == 0;
}

/* Nobody can tell a new one that is not there from an old one: the old one stays, with all its
 * objects, until the new one is whole. */
static void saved_over(void **state)
{
	struct place *p = *state;
	struct ckpt c, old;

	start(p);
	save(p, 'a', 1);
	wait_said(p, "[last COMPLETE 3]");
	assert_true(manifest(p, "last", &old));
	forget(p);
	put_tensors(p, "last/model.safetensors", 'b', 100, 0);
	wait_reason(p, "saved over");
	wait_walks(p, 10);
	assert_false(said(p, "SYNCING"));
	assert_true(said(p, "[last COMPLETE 3]"));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.revision, old.revision);
	assert_true(holds(p, "last/model.safetensors", 'a'));
	save(p, 'b', 2);
	for (int64_t until = clock_mono_ms() + WAIT_MS;
	     !manifest(p, "last", &c) || c.revision == old.revision || waiting(p);) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(20);
	}
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.n, 3);
	assert_true(holds(p, "last/model.safetensors", 'b'));
	assert_true(holds(p, "last/optimizer.safetensors", 'b'));
}

static void wait_saved_after(struct place *p, struct ckpt *c, int64_t ended_ms)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS;
	     !manifest(p, "last", c) || c->saved.ended_ms <= ended_ms || waiting(p);) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(20);
	}
}

/* The server compares when nodes saved: each tells it of its own part. */
static void each_save_has_its_time(void **state)
{
	struct place *p = *state;
	int64_t begun_ms = clock_wall_ms() - 1000; /* files have the kernel's coarse time */
	struct ckpt a, b, c, d;

	p->o.nodes = 2;
	start(p);
	save(p, 'a', 1);
	wait_saved_after(p, &a, 0);
	assert_true(begun_ms <= a.saved.began_ms && a.saved.began_ms <= a.saved.ended_ms);
	assert_true(a.saved.ended_ms <= a.saved.written_ms);
	assert_int_equal(a.saved.before_ms, 0);
	save(p, 'b', 2);
	wait_saved_after(p, &b, a.saved.ended_ms);
	assert_int_equal(b.saved.before_ms, a.saved.ended_ms);
	assert_true(b.saved.before_ms < b.saved.began_ms && b.saved.began_ms <= b.saved.ended_ms);
	assert_true(b.since > a.since);
	/* the same once more is a save, too */
	save(p, 'b', 2);
	wait_saved_after(p, &c, b.saved.ended_ms);
	assert_int_equal(c.saved.before_ms, b.saved.ended_ms);
	assert_true(c.saved.began_ms > b.saved.ended_ms);
	assert_int_equal(c.since, b.since);
	/* an afterthought is none, and neither is a shipper that looks at it all anew */
	put_state(p, "last/trainer_state.json", 3);
	wait_saved_after(p, &d, c.saved.ended_ms);
	assert_int_equal(d.saved.began_ms, c.saved.began_ms);
	assert_int_equal(d.saved.before_ms, c.saved.before_ms);
	assert_true(d.since > c.since);
	stop(p);
	start(p);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.saved.ended_ms, d.saved.ended_ms);
	assert_int_equal(c.saved.began_ms, d.saved.began_ms);
}

/* Without that, it would go together with any old part of another node. */
static void a_save_replaces_an_incomplete_one_too(void **state)
{
	struct place *p = *state;
	struct ckpt a, b;

	p->o.nodes = 2;
	start(p);
	put_tensors(p, "last/model.safetensors", 'a', 100, 0);
	put_tensors(p, "last/optimizer.safetensors", 'a', 100, 0);
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "last", &a));
	assert_int_equal(a.state, CKPT_INCOMPLETE);
	assert_true(a.saved.ended_ms > 0);
	stop(p);
	start(p);
	clock_sleep_ms(20); /* files have the kernel's coarse time */
	save(p, 'b', 2);
	wait_saved_after(p, &b, a.saved.ended_ms);
	assert_int_equal(b.state, CKPT_COMPLETE);
	assert_int_equal(b.saved.before_ms, a.saved.ended_ms);
	assert_true(b.saved.began_ms > a.saved.ended_ms);
}

static void saved_over_and_killed(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	save(p, 'a', 1);
	wait_said(p, "[last COMPLETE 3]");
	put_tensors(p, "last/model.safetensors", 'b', 100, 0);
	wait_reason(p, "saved over");
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_true(holds(p, "last/model.safetensors", 'a'));
	assert_true(holds(p, "last/optimizer.safetensors", 'a'));
	assert_false(waiting(p));
}

static void put_trainer(struct place *p, size_t cut)
{
	put(p, "checkpoint-3/config.json", "{}");
	put_state(p, "checkpoint-3/trainer_state.json", 3);
	put(p, "checkpoint-3/training_args.bin", "\x80\x02N.");
	put_tensors(p, "checkpoint-3/optimizer.safetensors", 'a', 10, 0);
	put_tensors(p, "checkpoint-3/model.safetensors", 'a', 100, cut);
}

/* A file that is copied in after the last one grows under its name: that is no second save. */
static void a_copy_grows_behind_its_last_file(void **state)
{
	struct place *p = *state;
	char rest[50];
	struct ckpt c;
	FILE *f;

	put_trainer(p, sizeof(rest));
	start(p);
	wait_walks(p, 3);
	memset(rest, 'a', sizeof(rest));
	f = fopen(in(p, "checkpoint-3/model.safetensors"), "ae");
	assert_non_null(f);
	assert_int_equal(fwrite(rest, 1, sizeof(rest), f), sizeof(rest));
	assert_int_equal(fclose(f), 0);
	wait_walks(p, 3);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.rule, 6);
}

/* One that is written once more, before the first save was complete, is. */
static void saved_over_before_it_was_complete(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = NEVER_MS;
	put_trainer(p, 1);
	start(p);
	wait_walks(p, 3);
	put_tensors(p, "checkpoint-3/model.safetensors", 'b', 100, 1);
	wait_walks(p, 3);
	put_tensors(p, "checkpoint-3/model.safetensors", 'b', 100, 0);
	wait_walks(p, 3);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.rule, 7);
}

/* Another attempt of the job, on a disk of its own, knows nothing of the first one. */
static void another_attempt_spoils_nothing(void **state)
{
	struct place *p = *state;
	struct err err = {0};
	struct ckpt c;

	start(p);
	save(p, 'a', 1);
	wait_said(p, "[last COMPLETE 3]");
	stop(p);
	drop(p, "last");
	assert_ok(fs_remove_tree(AT_FDCWD, p->o.spool, &err), &err);
	assert_ok(fs_mkdirs(AT_FDCWD, p->o.spool, 0755, &err), &err);
	start(p);
	put_tensors(p, "last/model.safetensors", 'b', 100, 0);
	wait_reason(p, "trainer_state.json");
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.n, 3);
	assert_true(holds(p, "last/model.safetensors", 'a'));
}

/* Killed between the manifest that counts and the move of its files. */
static void a_revision_survives_its_shipper(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	save(p, 'a', 1);
	wait_said(p, "[last COMPLETE 3]");
	forget(p);
	p->hold = true; /* the host does not answer: nothing moves until it has heard */
	save(p, 'b', 2);
	for (int64_t until = clock_mono_ms() + WAIT_MS;
	     !manifest(p, "last", &c) || c.revision == 1;) {
		assert_true(clock_mono_ms() < until);
		p->hold = !p->held || p->hold; /* news of progress may pass */
		clock_sleep_ms(20);
		if (p->held && c.revision == 1) {
			p->hold = false;
			p->held = false;
			clock_sleep_ms(20);
			p->hold = true;
		}
	}
	p->hold = false;
	stop(p);
	assert_true(manifest(p, "last", &c));
	start(p);
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	for (size_t i = 0; i < c.files.n; i++)
		assert_null(c.about[i].at);
	assert_true(holds(p, "last/model.safetensors", 'b'));
	assert_false(waiting(p));
}

/* What comes after the last file makes a new revision; what vanishes takes nothing away. */
static void more_files_and_fewer(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	save(p, 'a', 1);
	wait_said(p, "[last COMPLETE 3]");
	put(p, "last/by-a-callback.raw", "more");
	wait_said(p, "[last COMPLETE 4]");
	assert_true(manifest(p, "last", &c));
	drop(p, "last/optimizer.safetensors");
	wait_walks(p, 3);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "last", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.n, 4);
}

/* ---- in place --------------------------------------------------------------------- */

struct rewriting {
	struct place *p;
	atomic_bool over;
	size_t n;
};

/* A file of 8 MB that is written over again and again; each time it is one thing. */
static void *rewrite(void *arg)
{
	struct rewriting *r = arg;

	for (char fill = 'a'; !r->over; fill = fill == 'z' ? 'a' : (char)(fill + 1)) {
		put_tensors(r->p, "ckpt.raw", fill, r->n, 0);
		clock_sleep_ms(300);
	}
	return NULL;
}

static bool is_a_mix(const struct buf *b)
{
	for (size_t i = 200; i < b->n; i++)
		if (b->p[i] != b->p[b->n - 1])
			return true;
	return false;
}

static void the_upload_is_never_a_mix(void **state)
{
	struct place *p = *state;
	struct rewriting r = {.p = p, .n = (size_t)8 << 20};
	pthread_t t;
	size_t seen = 0;

	p->o.settle_ms = 1;
	put_tensors(p, "ckpt.raw", 'a', r.n, 0);
	start(p);
	assert_int_equal(pthread_create(&t, NULL, rewrite, &r), 0);
	for (int64_t until = clock_mono_ms() + 8000; clock_mono_ms() < until;) {
		struct ckpt c;

		seen += manifest(p, ".", &c); /* checks the digests */
		clock_sleep_ms(50);
	}
	r.over = true;
	(void)pthread_join(t, NULL);
	assert_true(ship_finish(p->ship, true));
	{
		AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);

		assert_true(object_bytes(p, "ckpt.raw", &b));
		assert_false(is_a_mix(&b));
	}
	print_message("# %zu manifests seen\n", seen);
}

static const struct CMUnitTest tests[] = {
	T(saved_over),
	T(each_save_has_its_time),
	T(a_save_replaces_an_incomplete_one_too),
	T(saved_over_and_killed),
	T(a_copy_grows_behind_its_last_file),
	T(saved_over_before_it_was_complete),
	T(another_attempt_spoils_nothing),
	T(a_revision_survives_its_shipper),
	T(more_files_and_fewer),
	T(the_upload_is_never_a_mix),
};
UNIT_MAIN(tests)
