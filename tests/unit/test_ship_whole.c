/* test_ship_whole.c - complete means whole: writers, torn files, last files, revisions, copies,
 * hostile folders. */
#include "ship_fixture.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define NOBODY 65534

/* ---- writers -----------------------------------------------------------------------------------
 */

/* Whoever has it open for writing, by whatever name, or mapped though closed. */
static int open_by_name(struct place *p, void **map UNUSED)
{
	return open(in(p, "checkpoint-1/a.raw"), O_WRONLY | O_CLOEXEC);
}

static int open_by_link(struct place *p, void **map UNUSED)
{
	char *other = arena_printf(p->a, "%s/other", p->dir);

	assert_int_equal(link(in(p, "checkpoint-1/a.raw"), other), 0);
	return open(other, O_WRONLY | O_CLOEXEC);
}

static int open_by_map(struct place *p, void **map)
{
	int fd = open(in(p, "checkpoint-1/a.raw"), O_RDWR | O_CLOEXEC);

	*map = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(*map, MAP_FAILED);
	assert_int_equal(close(fd), 0);
	return -1;
}

static void writer_holds_it_up(struct place *p, int (*open_it)(struct place *p, void **map))
{
	struct ckpt c;
	void *map = NULL;
	int fd;

	put(p, "checkpoint-1/a.raw", "half");
	fd = open_it(p, &map);
	p->o.settle_ms = 1; /* no time is enough */
	start(p);
	wait_reason(p, "a.raw");
	wait_walks(p, 10);
	assert_false(said(p, "COMPLETE"));
	if (fd >= 0) {
		assert_int_equal(pwrite(fd, "full", 4, 0), 4);
		assert_int_equal(close(fd), 0);
	} else {
		memcpy(map, "full", 4);
		assert_int_equal(munmap(map, 4), 0);
	}
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_string_equal(object(p, "checkpoint-1/a.raw"), "full");
}

static void a_writer_holds_it_up(void **state)
{
	writer_holds_it_up(*state, open_by_name);
}

static void so_does_one_through_a_link(void **state)
{
	writer_holds_it_up(*state, open_by_link);
}

static void so_does_a_mapping(void **state)
{
	writer_holds_it_up(*state, open_by_map);
}

/* Without leases descriptors and mappings of processes are looked at. */
static void without_leases(void **state)
{
	static int (*const ways[])(struct place *, void **) = {open_by_name, open_by_link,
	                                                       open_by_map};
	struct place *p = *state;

	for (size_t i = 0; i < COUNT(ways); i++) {
		struct ship s = {.no_lease = true, .spool_fd = -1};
		struct ship_entry *e = NULL;
		void *map = NULL;
		struct stat st;
		int fd;

		drop(p, "checkpoint-1");
		drop(p, "../other");
		put(p, "checkpoint-1/a.raw", "half");
		fd = ways[i](p, &map);
		lock_init(&s.lock, LOCK_SHIP);
		s.journal_fd = -1;
		s.entries = map_new();
		s.groups = map_new();
		s.inodes = map_new();
		s.stored = map_new();
		s.folders = map_new();
		s.siblings = map_new();
		s.odd = map_new();
		TAILQ_INIT(&s.all);
		TAILQ_INIT(&s.list);
		assert_int_equal(stat(in(p, "checkpoint-1/a.raw"), &st), 0);
		e = ship_entry_of(&s, STR_LIT("checkpoint-1/a.raw"));
		e->fact = ship_fact_of(&st);
		ship_probe(&s);
		assert_true(e->writer);
		if (map != NULL)
			(void)munmap(map, 4);
		else
			(void)close(fd);
		e->probe_ms = 0;
		ship_probe(&s);
		assert_false(e->writer);
		assert_true(e->closed);
		ship_tables_free(&s);
		lock_done(&s.lock);
	}
}

/* ---- content -----------------------------------------------------------------------------------
 */

/* Cut by a byte: never whole, until its writer mends it. */
static void a_torn_file_is_waited_for(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 1;
	put_tensors(p, "checkpoint-1/model.safetensors", 'a', 1000, 1);
	start(p);
	wait_reason(p, "model.safetensors");
	wait_walks(p, 10);
	assert_false(said(p, "COMPLETE"));
	assert_null(object(p, "checkpoint-1/model.safetensors"));
	put_tensors(p, "checkpoint-1/model.safetensors", 'a', 1000, 0);
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_string_equal(c.about[0].format, "safetensors");
	assert_true(c.about[0].whole);
	assert_true(c.about[0].checked_ms > 0);
}

static void a_torn_file_is_kept_apart(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 1;
	put_tensors(p, "checkpoint-1/model.safetensors", 'a', 1000, 1);
	start(p);
	assert_true(ship_finish(p->ship, true)); /* a good end makes nothing whole */
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.rule, 2);
	assert_non_null(strstr(c.reason, "model.safetensors"));
	assert_false(c.about[0].whole);
	assert_non_null(c.about[0].note);
}

/* Never before the trainer's last file, and after it without waiting for the settle time. */
static void the_last_file_decides(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 1;
	start(p);
	put(p, "checkpoint-3/config.json", "{}");
	put_tensors(p, "checkpoint-3/model.safetensors", 'a', 10, 0);
	put(p, "checkpoint-3/training_args.bin", "\x80\x02N."); /* a pickle of None */
	put_tensors(p, "checkpoint-3/optimizer.safetensors", 'a', 10, 0);
	wait_reason(p, "trainer_state.json");
	wait_walks(p, 10);
	assert_false(said(p, "COMPLETE"));
	settle_in(p, NEVER_MS);
	put_state(p, "checkpoint-3/trainer_state.json", 3);
	wait_said(p, "[checkpoint-3 COMPLETE 5]");
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.rule, 4);
	assert_string_equal(c.trainer, "transformers Trainer");
}

/* The job names it itself. */
static void a_marker_of_the_job(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 1;
	p->o.marker = "DONE";
	start(p);
	put(p, "checkpoint-3/a.raw", "x");
	wait_reason(p, "DONE");
	wait_walks(p, 10);
	assert_false(said(p, "COMPLETE"));
	put(p, "checkpoint-3/DONE", "ok");
	wait_said(p, "[checkpoint-3 COMPLETE 2]");
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.rule, 4);
	put_tensors(p, "checkpoint-4/model.safetensors", 'a', 10, 1); /* never over a torn file */
	put(p, "checkpoint-4/DONE", "ok");
	wait_reason(p, "model.safetensors");
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-4", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
}

/* A folder that got its name when all of it was there. */
static void published_by_a_rename(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	start(p);
	put_tensors(p, "making-9/model.safetensors", 'a', 10, 0);
	wait_closed(p, "making-9/model.safetensors");
	assert_int_equal(rename(in(p, "making-9"), in(p, "step-9")), 0);
	wait_said(p, "[step-9 COMPLETE 1]");
	assert_true(manifest(p, "step-9", &c));
	assert_int_equal(c.rule, 5);
}

/* The one before shows what belongs to it. */
static void siblings_tell_what_is_missing(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 0;
	start(p);
	for (int i = 1; i <= 2; i++) {
		put_tensors(p, arena_printf(p->a, "checkpoint-%d/model.safetensors", i), 'a', 10,
		            0);
		put_tensors(p, arena_printf(p->a, "checkpoint-%d/more.safetensors", i), 'a', 10, 0);
		if (i == 1) {
			settle_in(p, 1);
			wait_said(p, "[checkpoint-1 COMPLETE 2]");
			settle_in(p, 0);
		}
	}
	wait_said(p, "[checkpoint-2 COMPLETE 2]");
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_non_null(strstr(c.reason, "checkpoint-1"));
	put_tensors(p, "checkpoint-3/model.safetensors", 'a', 10, 0);
	wait_closed(p, "checkpoint-3/model.safetensors");
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
}

/* ---- revisions ---------------------------------------------------------------------------------
 */

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

/* Its size is right from its header on; all four numbers are 0 or not. */
static void put_npy(struct place *p, const char *path)
{
	char b[128 + 16] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': "
			   "False, 'shape': (4,), }";
	size_t n = 10 + strlen(b + 10);
	FILE *f = fopen(in(p, path), "we");

	assert_non_null(f);
	memset(b + n, ' ', 127 - n);
	b[127] = '\n';
	assert_int_equal(fwrite(b, 1, sizeof(b), f), sizeof(b));
	assert_int_equal(fclose(f), 0);
}

static int hold(struct place *p, const char *path)
{
	int fd = open(in(p, path), O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "x", 1, 140), 1);
	return fd;
}

/* A trainer without a marker has begun the next save: the one before it is whole, and stays so when
 * the trainer is killed a moment later. */
static void a_newer_one_has_begun(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = NEVER_MS;
	start(p);
	put(p, "step-10/config.json", "{}");
	put_tensors(p, "step-10/model.safetensors", 'a', 100, 0);
	wait_reason(p, "waiting for");
	put(p, "step-20/config.json", "{}");
	wait_said(p, "[step-10 COMPLETE 2]");
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "step-10", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_non_null(strstr(c.reason, "a newer one has begun"));
}

/* We hear of a death after the kernel has closed the files: that nobody writes them then proves
 * nothing. */
static void found_closed_after_the_death(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 1500;
	put(p, "step-1/w", "whole");
	start(p);
	wait_said(p, "[step-1 COMPLETE 1]");
	put(p, "step-2/w", "half");
	wait_walks(p, 2); /* sampled, less than a second before the end */
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "step-2", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_non_null(strstr(c.reason, "or just after"));
	assert_true(manifest(p, "step-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

/* The length that a header promises says nothing of the bytes. */
static void killed_while_an_array_was_open(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	int fd;

	p->o.settle_ms = 100;
	put(p, "step-1/config.json", "{}");
	put_npy(p, "step-1/emb.npy");
	start(p);
	wait_said(p, "[step-1 COMPLETE 2]");
	put(p, "step-2/config.json", "{}");
	put_npy(p, "step-2/emb.npy");
	fd = hold(p, "step-2/emb.npy");
	wait_reason(p, "open for writing");
	(void)close(fd); /* as the kernel does for a killed process */
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "step-2", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.rule, 9);
}

/* The commands have ended with 0, and something that they left behind still writes. */
static void left_open_at_a_good_end(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	int fd;

	start(p);
	put_tensors(p, "whole/model.safetensors", 'a', 100, 0);
	put_tensors(p, "half/model.safetensors", 'a', 100, 0);
	fd = hold(p, "half/model.safetensors");
	ship_last_look(p->ship, WAIT_MS);
	(void)close(fd);
	wait_walks(p, 3); /* a later look finds no writer, and proves nothing */
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "half", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.rule, 3);
	assert_true(manifest(p, "whole", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
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

/* ---- in place ----------------------------------------------------------------------------------
 */

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

/* ---- logs and pointers -------------------------------------------------------------------------
 */

static void logs_are_no_checkpoint(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "runs/events.out.tfevents.1", "x");
	put(p, "latest", "global_step5");
	wait_walks(p, 3);
	assert_false(said(p, "COMPLETE"));
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "runs", &c));
	assert_int_equal(c.kind, CKPT_LOGS);
	assert_true(manifest(p, ".", &c));
	assert_int_equal(c.kind, CKPT_LOGS);
}

/* ---- hostile -----------------------------------------------------------------------------------
 */

struct exchange {
	struct place *p;
	atomic_bool over;
};

static void *exchange(void *arg)
{
	struct exchange *x = arg;
	char *a = in(x->p, "checkpoint-1/a"), *b = in(x->p, "checkpoint-1/fifo");

	while (!x->over)
		(void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
	return NULL;
}

/* A pipe in a file's place at any moment: nobody waits for its other end. */
static void exchanged_with_a_pipe(void **state)
{
	struct place *p = *state;
	struct exchange x = {.p = p};
	pthread_t t;

	p->o.settle_ms = 1;
	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/b", "x");
	assert_int_equal(mkfifo(in(p, "checkpoint-1/fifo"), 0600), 0);
	assert_int_equal(pthread_create(&t, NULL, exchange, &x), 0);
	start(p);
	wait_walks(p, 20);
	(void)ship_finish(p->ship, true); /* it ends, whatever it found */
	x.over = true;
	(void)pthread_join(t, NULL);
	assert_true(said(p, "[checkpoint-1 "));
}

/* It says that it has 10 TB, and has none: nobody's disk is taken for it. */
static void a_hole_takes_no_disk(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	struct stat st;

	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/huge", "x");
	assert_int_equal(truncate(in(p, "checkpoint-1/huge"), (off_t)10 << 40), 0);
	put(p, "checkpoint-2/sparse", "x");
	assert_int_equal(truncate(in(p, "checkpoint-2/sparse"), (off_t)48 << 20), 0);
	start(p);
	assert_false(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.files.n, 1);
	assert_non_null(strstr(c.reason, "huge"));
	assert_non_null(strstr(c.reason, "TB"));
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.files.file[0].size, (uint64_t)48 << 20);
	assert_int_equal(stat(arena_printf(p->a, "%s/objects/%s", p->dir,
	                                   ckpt_object_key(p->a, PREFIX, 0, "checkpoint-2/sparse")),
	                      &st),
	                 0);
	assert_true(st.st_blocks < 2048);
}

/* What cannot be read is not left out without a word. As an ordinary user, whom modes hold off. */
static void unreadable(void **state)
{
	struct place *p = *state;
	struct ckpt c;
	int status = 0;
	pid_t pid;

	put(p, "checkpoint-1/a", "x");
	put(p, "checkpoint-1/deep/b", "x");
	put(p, "checkpoint-2/a", "x");
	put(p, "checkpoint-3/a", "x");
	put(p, "checkpoint-4/a", "x");
	assert_int_equal(chmod(in(p, "checkpoint-1/deep"), 0), 0);
	assert_int_equal(chmod(in(p, "checkpoint-2/a"), 0), 0);
	assert_int_equal(chmod(in(p, "checkpoint-3"), 0), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		bool all = false;

		if (geteuid() == 0 &&
		    (chown(p->o.spool, NOBODY, NOBODY) < 0 || chmod(p->dir, 0755) < 0 ||
		     chown(arena_printf(p->a, "%s/objects", p->dir), NOBODY, NOBODY) < 0 ||
		     chown(arena_printf(p->a, "%s/objects/.tmp", p->dir), NOBODY, NOBODY) < 0 ||
		     setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
			_exit(9);
		start(p);
		all = ship_finish(p->ship, true);
		stop(p);
		_exit(all ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chmod(in(p, "checkpoint-1/deep"), 0755), 0);
	assert_int_equal(chmod(in(p, "checkpoint-3"), 0755), 0);
	assert_int_equal(status, 0);
	for (int i = 1; i <= 3; i++) {
		assert_true(manifest(p, arena_printf(p->a, "checkpoint-%d", i), &c));
		assert_int_equal(c.state, CKPT_INCOMPLETE);
		assert_non_null(strstr(c.reason, "mode 0000"));
	}
	assert_true(manifest(p, "checkpoint-4", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

static const struct CMUnitTest tests[] = {
	T(a_writer_holds_it_up),
	T(so_does_one_through_a_link),
	T(so_does_a_mapping),
	T(without_leases),
	T(a_torn_file_is_waited_for),
	T(a_torn_file_is_kept_apart),
	T(the_last_file_decides),
	T(a_marker_of_the_job),
	T(published_by_a_rename),
	T(siblings_tell_what_is_missing),
	T(saved_over),
	T(each_save_has_its_time),
	T(a_save_replaces_an_incomplete_one_too),
	T(saved_over_and_killed),
	T(a_newer_one_has_begun),
	T(found_closed_after_the_death),
	T(killed_while_an_array_was_open),
	T(left_open_at_a_good_end),
	T(a_copy_grows_behind_its_last_file),
	T(saved_over_before_it_was_complete),
	T(another_attempt_spoils_nothing),
	T(a_revision_survives_its_shipper),
	T(more_files_and_fewer),
	T(the_upload_is_never_a_mix),
	T(logs_are_no_checkpoint),
	T(exchanged_with_a_pipe),
	T(a_hole_takes_no_disk),
	T(unreadable),
};
UNIT_MAIN(tests)
