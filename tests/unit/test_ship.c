/* test_ship.c - real files in a real store: rotation, overwriting, kills, deaths, outages. */
#include "ship_fixture.h"

static void ships_while_it_runs(void **state)
{
	struct place *p = *state;
	struct ship_totals t;
	struct ckpt c;

	start(p);
	put_tensors(p, "checkpoint-1/model.safetensors", 'w', 7, 0);
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
	put(p, "checkpoint-1/model.raw", "weights");
	put(p, "checkpoint-1/more.raw", "{}");
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
	wait_walks(p, 3); /* at rest */
}

/* A host or a store that takes its time does not keep the walker from looking. */
static void rotation_goes_on_while_the_host_is_slow(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	p->o.settle_ms = 100;
	p->hold = true;
	put(p, "checkpoint-1/model.raw", "weights");
	start(p);
	for (int64_t until = clock_mono_ms() + WAIT_MS; !p->held; clock_sleep_ms(10))
		assert_true(clock_mono_ms() < until);
	for (int i = 2; i < 5; i++) {
		char *name = arena_printf(p->a, "checkpoint-%d", i);
		char *file = arena_printf(p->a, "%s/model.raw", name);

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
	put(p, "checkpoint-1/model.raw", "weights");
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
	put(p, "tmp-checkpoint-7/model.raw", "weights");
	wait_walks(p, 1);
	assert_int_equal(rename(in(p, "tmp-checkpoint-7"), in(p, "checkpoint-7")), 0);
	wait_said(p, "[checkpoint-7 COMPLETE 1]");
	assert_true(ship_finish(p->ship, true));
	assert_false(manifest(p, "tmp-checkpoint-7", &c));
	assert_null(object(p, "tmp-checkpoint-7/model.raw"));
}

/* A time that its nanoseconds in 64 bits do not reach. */
static void a_time_in_the_year_2400(void **state)
{
	const struct timespec both[] = {{.tv_sec = 13569465600}, {.tv_sec = 13569465600}};
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "tmp-checkpoint-7/model.raw", "weights");
	assert_int_equal(utimensat(AT_FDCWD, in(p, "tmp-checkpoint-7/model.raw"), both, 0), 0);
	assert_int_equal(rename(in(p, "tmp-checkpoint-7"), in(p, "checkpoint-7")), 0);
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-7", &c));
	assert_true(c.created_ms > clock_wall_ms());
}

static void overwriting_ships_again(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "last/model.raw", "one");
	wait_said(p, "[last COMPLETE 1]");
	forget(p);
	put(p, "last/model.raw", "second");
	wait_said(p, "[last COMPLETE 1]");
	assert_true(ship_finish(p->ship, true)); /* and it is at its path */
	assert_true(manifest(p, "last", &c));
	assert_string_equal(object(p, "last/model.raw"), "second");
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
	settle_in(p, NEVER_MS);
	put(p, "checkpoint-2/a", "linked only");
	wait_said(p, "[checkpoint-2 SYNCING 1]");
	wait_closed(p, "checkpoint-2/a");
	stop(p);
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
	assert_string_equal(object(p, "checkpoint-2/a"), "linked only");
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
		lock_take(&l->p->ship->lock);
		if (l->p->ship->walked_final && !passed) {
			l->e->state = SHIP_WAIT;
			passed = true;
		}
		lock_give(&l->p->ship->lock);
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
	lock_take(&p->ship->lock);
	l.e = map_get(p->ship->entries, STR_LIT("checkpoint-2/b"));
	l.e->fact.mtime_ns = 0; /* nothing is known of it */
	l.e->state = SHIP_SENDING;
	drop(p, "checkpoint-2");
	lock_give(&p->ship->lock);
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
	put(p, "checkpoint-1/model.raw", "half");
	put(p, "tmp-checkpoint-2/model.raw", "less");
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
	struct ckpt c;

	put_tensors(p, "checkpoint-1/model-00001-of-00002.safetensors", 'a', 9, 0);
	put_tensors(p, "checkpoint-1/model-00002-of-00002.safetensors", 'b', 9, 0);
	start(p);
	wait_said(p, "[checkpoint-1 COMPLETE 2]");
	settle_in(p, NEVER_MS);
	put_tensors(p, "checkpoint-2/model-00001-of-00002.safetensors", 'a', 9, 0);
	put(p, "checkpoint-3/x.raw", "of no known format, and like nothing before");
	wait_said(p, "[checkpoint-2 SYNCING 1]");
	wait_said(p, "[checkpoint-3 SYNCING 1]");
	stop(p);
	p->o.dead = true;
	start(p);
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_true(manifest(p, "checkpoint-3", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

/* Everything was there, and its trainer's last file too: no time is needed to know it. */
static void a_whole_one_survives_its_shipper(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	start(p);
	put_tensors(p, "checkpoint-5/model.safetensors", 'a', 9, 0);
	put(p, "checkpoint-5/config.json", "{}");
	put_tensors(p, "checkpoint-5/optimizer.safetensors", 'o', 9, 0);
	put_state(p, "checkpoint-5/trainer_state.json", 5);
	wait_said(p, "[checkpoint-5 SYNCING 4]");
	wait_closed(p, "checkpoint-5/trainer_state.json");
	stop(p);
	drop(p, "checkpoint-5"); /* the spool has it */
	p->o.dead = true;
	start(p);
	assert_true(ship_finish(p->ship, false));
	assert_true(manifest(p, "checkpoint-5", &c));
	if (c.state != CKPT_COMPLETE)
		fail_msg("%s", c.reason);
}

static void what_was_whole_stays_whole(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/model.raw", "whole");
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
	put(p, "final/model.raw", "whole");
	assert_true(ship_finish(p->ship, true));
	assert_true(manifest(p, "final", &c));
	assert_int_equal(c.state, CKPT_COMPLETE);
}

static void one_inode_is_sent_once(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/model.raw", "weights");
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
	assert_int_equal(mkdir(in(p, "best"), 0755), 0);
	assert_int_equal(link(in(p, "checkpoint-1/model.raw"), in(p, "best/model.raw")), 0);
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
	put(p, "checkpoint-1/model.raw", "weights");
	wait_said(p, "it is tried again");
	assert_true(ship_finish(p->ship, true));
	assert_string_equal(object(p, "checkpoint-1/model.raw"), "weights");
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

/* What holds nothing is left out; what cannot be kept is missed. */
static void odd_ones_are_left_alone(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	start(p);
	put(p, "checkpoint-1/a", "x");
	assert_int_equal(symlink("/etc/passwd", in(p, "checkpoint-1/link")), 0);
	assert_int_equal(mkfifo(in(p, "checkpoint-1/fifo"), 0600), 0);
	put(p, "checkpoint-2/a", "x");
	put(p, "checkpoint-2/new\nline", "x");
	put(p, "ck\033[31m/a", "no name for a checkpoint");
	assert_false(ship_finish(p->ship, true));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.files.n, 1);
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_true(manifest(p, "checkpoint-2", &c));
	assert_int_equal(c.files.n, 1);
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_true(said(p, "checkpoint-1/link"));
	assert_true(said(p, "checkpoint-1/fifo"));
	assert_true(said(p, "checkpoint-2/new?line"));
	assert_true(said(p, "ck?[31m"));
}

/* Long names do not keep the others from being said. What holds no file at all has a time. */
static void long_names_are_cut(void **state)
{
	struct place *p = *state;
	char name[256];

	start(p);
	for (char c = 1; c < 20; c++) {
		memset(name, c, sizeof(name) - 1);
		name[sizeof(name) - 1] = '\0';
		put(p, arena_printf(p->a, "%s/a", name), "x");
	}
	assert_int_equal(mkdir(in(p, "checkpoint-1"), 0700), 0);
	put(p, "checkpoint-1/new\nline", "x");
	assert_false(ship_finish(p->ship, true));
	assert_true(said(p, "????... ("));
	assert_true(said(p, "checkpoint-1/new?line ("));
	assert_true(p->created_ms > clock_wall_ms() - WAIT_MS);
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
	assert_true(said(p, "cannot be uploaded"));
	assert_true(manifest(p, "checkpoint-1", &c));
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.files.n, 1);
}

/* ---- what happens between two looks ------------------------------------------------------------
 */

/* Does this as soon as `path` is in the spool, and within that look: the next one sees what is
 * left. all: once every file of its checkpoint is in the store. */
static void right_after(struct place *p, const char *path, bool all,
                        void (*act)(struct place *p, const char *path))
{
	for (int64_t until = clock_mono_ms() + WAIT_MS;; clock_sleep_ms(2)) {
		const struct ship_entry *e = NULL, *o = NULL;
		bool there;

		lock_take(&p->ship->lock);
		e = map_get(p->ship->entries, str_of(path));
		there = e != NULL && e->id > 0 && (all || e->changed_walk == p->ship->walk);
		if (there && all) {
			TAILQ_FOREACH(o, &e->group->entries, peer)
			there = there && o->state == SHIP_SENT;
		}
		if (there)
			act(p, path);
		lock_give(&p->ship->lock);
		if (there)
			return;
		if (clock_mono_ms() > until)
			fail_msg("%s did not get there: %s %s", path, p->news, p->reason);
	}
}

/* The shipper has forgotten the file. */
static void wait_dropped(struct place *p, const char *path)
{
	bool there = true;

	for (int64_t until = clock_mono_ms() + WAIT_MS; there; clock_sleep_ms(10)) {
		lock_take(&p->ship->lock);
		there = map_get(p->ship->entries, str_of(path)) != NULL;
		lock_give(&p->ship->lock);
		if (clock_mono_ms() > until)
			fail_msg("%s is still known", path);
	}
}

static void write_on(struct place *p, const char *path)
{
	FILE *f = fopen(in(p, path), "ae");

	assert_non_null(f);
	assert_true(fputs(" and more", f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void write_on_and_drop_all(struct place *p, const char *path)
{
	char *folder = arena_cstr(p->a, path);

	write_on(p, path);
	*strchr(folder, '/') = '\0';
	drop(p, folder);
}

static void rename_in_place(struct place *p, const char *path)
{
	assert_int_equal(rename(in(p, path), in(p, "checkpoint-1/model.raw")), 0);
}

/* It still grew when it was removed: nobody has seen it at rest. */
static void written_on_and_removed_is_not_whole(void **state)
{
	struct place *p = *state;

	settle_in(p, NEVER_MS);
	start(p);
	put(p, "checkpoint-1/more.raw", "{}");
	put(p, "checkpoint-1/model.raw", "half");
	right_after(p, "checkpoint-1/model.raw", false, write_on_and_drop_all);
	wait_said(p, "[checkpoint-1 INCOMPLETE 2]");
	assert_string_equal(p->reason, "incomplete: removed by the trainer before it was whole");
	assert_string_equal(object(p, "checkpoint-1/model.raw"), "half and more");
}

/* Nor when the half of it is in the store. */
static void written_on_after_it_was_sent(void **state)
{
	struct place *p = *state;

	settle_in(p, NEVER_MS);
	start(p);
	p->ship->no_clone = true; /* a link, no copy: what is written into it is seen */
	put(p, "checkpoint-1/more.raw", "{}");
	put(p, "checkpoint-1/model.raw", "half");
	right_after(p, "checkpoint-1/model.raw", true, write_on_and_drop_all);
	wait_said(p, "[checkpoint-1 INCOMPLETE 2]");
	assert_string_equal(p->reason, "incomplete: removed by the trainer before it was whole");
	assert_string_equal(object(p, "checkpoint-1/model.raw"), "half and more");
}

/* A trainer's scratch file went early; the checkpoint itself went when it had been at rest. */
static void an_early_scratch_file_is_not_the_checkpoint(void **state)
{
	struct place *p = *state;

	settle_in(p, NEVER_MS);
	put(p, "checkpoint-1/model.raw", "weights");
	put(p, "checkpoint-1/more.raw", "{}");
	put(p, "checkpoint-1/scratchpad", "x");
	start(p);
	right_after(p, "checkpoint-1/scratchpad", false, drop);
	wait_dropped(p, "checkpoint-1/scratchpad");
	wait_walks(p, 3);
	drop(p, "checkpoint-1");
	wait_said(p, "[checkpoint-1 COMPLETE 2]");
}

/* Behind the walker's back: the folder of folders was read before. */
static void make_and_rename(struct place *p, const char *path)
{
	char *name = arena_printf(p->a, "new-%.*s", (int)strcspn(path, "/"), path);

	put(p, arena_printf(p->a, "tmp-%s/model.raw", name), "weights");
	assert_int_equal(rename(in(p, arena_printf(p->a, "tmp-%s", name)), in(p, name)), 0);
}

/* What is made and renamed while the walker looks elsewhere is whole, though the job fails. */
static void a_rename_during_a_look(void **state)
{
	struct place *p = *state;
	struct ckpt c;

	settle_in(p, NEVER_MS);
	start(p);
	for (int i = 1; i < 9; i++) {
		char *path = arena_printf(p->a, "checkpoint-%d/model.raw", i);

		put(p, path, "weights");
		right_after(p, path, false, make_and_rename);
	}
	assert_true(ship_finish(p->ship, false));
	for (int i = 1; i < 9; i++) {
		assert_true(manifest(p, arena_printf(p->a, "new-checkpoint-%d", i), &c));
		assert_int_equal(c.state, CKPT_COMPLETE);
	}
}

static void an_early_rename_is_no_removal(void **state)
{
	struct place *p = *state;

	settle_in(p, NEVER_MS);
	put(p, "checkpoint-1/more.raw", "{}");
	put(p, "checkpoint-1/written.raw", "weights");
	start(p);
	right_after(p, "checkpoint-1/written.raw", false, rename_in_place);
	wait_closed(p, "checkpoint-1/model.raw");
	wait_walks(p, 3);
	drop(p, "checkpoint-1");
	wait_said(p, "[checkpoint-1 COMPLETE 2]");
}

/* Puts a file in the spool's place: no link can be made. Back: the spool's descriptor. */
static int break_spool(struct place *p)
{
	int keep = fcntl(p->ship->spool_fd, F_DUPFD_CLOEXEC, 0);
	int file = open(in(p, "../none"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(keep >= 0 && file >= 0);
	assert_true(dup3(file, p->ship->spool_fd, O_CLOEXEC) >= 0);
	(void)close(file);
	return keep;
}

static void mend_spool(struct place *p, int keep)
{
	assert_true(dup3(keep, p->ship->spool_fd, O_CLOEXEC) >= 0);
	(void)close(keep);
}

static void wait_link_fault(struct place *p, const char *path)
{
	int fault = 0;

	for (int64_t until = clock_mono_ms() + WAIT_MS; fault == 0; clock_sleep_ms(10)) {
		const struct ship_entry *e = NULL;

		lock_take(&p->ship->lock);
		e = map_get(p->ship->entries, str_of(path));
		fault = e != NULL ? e->link_fault : 0;
		lock_give(&p->ship->lock);
		if (clock_mono_ms() > until)
			fail_msg("%s was linked", path);
	}
	assert_int_equal(fault, ENOTDIR);
}

/* A disk that was full for a moment: the file is linked at the next look, and may go. */
static void a_link_that_fails_is_tried_again(void **state)
{
	struct place *p = *state;
	int keep;

	settle_in(p, NEVER_MS);
	start(p);
	keep = break_spool(p);
	put(p, "checkpoint-1/model.raw", "weights");
	wait_link_fault(p, "checkpoint-1/model.raw");
	mend_spool(p, keep);
	wait_linked(p, "checkpoint-1/model.raw");
	drop(p, "checkpoint-1");
	wait_said(p, "[checkpoint-1 COMPLETE 1]");
}

/* What could not be kept, and was removed unsent, is missed. */
static void what_could_not_be_kept_is_missed(void **state)
{
	struct place *p = *state;
	int keep;

	settle_in(p, NEVER_MS);
	start(p);
	keep = break_spool(p);
	put(p, "checkpoint-1/model.raw", "weights");
	wait_link_fault(p, "checkpoint-1/model.raw");
	drop(p, "checkpoint-1");
	wait_said(p, "[checkpoint-1 INCOMPLETE 0]");
	assert_non_null(strstr(p->reason, "model.raw was removed before it was uploaded, and could "
	                                  "not be kept for the upload: Not a directory"));
	mend_spool(p, keep);
}

static const struct CMUnitTest tests[] = {
	T(ships_while_it_runs),
	T(rotation_takes_nothing_away),
	T(own_temporaries_are_left_out),
	T(a_rename_is_one_checkpoint),
	T(a_time_in_the_year_2400),
	T(overwriting_ships_again),
	T(resumes_after_a_kill),
	T(death_leaves_it_incomplete),
	T(what_the_last_look_passed_over_is_sent_once),
	T(what_was_whole_stays_whole),
	T(a_good_end_needs_no_settling),
	T(one_inode_is_sent_once),
	T(an_outage_pauses),
	T(gives_up_when_told),
	T(warns_of_a_full_volume),
	T(odd_ones_are_left_alone),
	T(long_names_are_cut),
	T(a_refused_name_ends_too),
	T(rotation_goes_on_while_the_host_is_slow),
	T(death_with_the_shipper_leaves_it_incomplete),
	T(a_whole_one_survives_its_shipper),
	T(written_on_and_removed_is_not_whole),
	T(written_on_after_it_was_sent),
	T(an_early_scratch_file_is_not_the_checkpoint),
	T(an_early_rename_is_no_removal),
	T(a_rename_during_a_look),
	T(a_link_that_fails_is_tried_again),
	T(what_could_not_be_kept_is_missed),
};
UNIT_MAIN(tests)
