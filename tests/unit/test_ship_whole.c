/* test_ship_whole.c - complete means whole: writers, torn files, last files, siblings, and what a
 * death or a good end leaves open. */
#include "ship_fixture.h"

#include <sys/mman.h>

/* ---- writers ---------------------------------------------------------------------- */

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

/* ---- content ---------------------------------------------------------------------- */

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

/* ---- ends ------------------------------------------------------------------------- */

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
	T(a_newer_one_has_begun),
	T(logs_are_no_checkpoint),
	T(found_closed_after_the_death),
	T(killed_while_an_array_was_open),
	T(left_open_at_a_good_end),
};
UNIT_MAIN(tests)
