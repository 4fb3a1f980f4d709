/* test_workers.c - the bounded pool: refuses when full, runs all it took, in order for one thread.
 */
#include "base/clock.h"
#include "io/workers.h"
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

struct gate {
	atomic_uint in, out;
	atomic_bool open;
};

static void pass_gate(void *arg)
{
	struct gate *g = arg;

	atomic_fetch_add(&g->in, 1);
	while (!atomic_load(&g->open))
		clock_sleep_ms(1);
	atomic_fetch_add(&g->out, 1);
}

static void workers_refuse_when_full(void **state UNUSED)
{
	struct gate g = {0};
	struct workers *w = workers_new(2, 3, "test");
	struct err err = {0};

	for (unsigned i = 0; i < 2; i++) {
		assert_ok(workers_submit(w, pass_gate, &g, &err), &err);
		while (atomic_load(&g.in) < i + 1)
			clock_sleep_ms(1);
	}
	for (int i = 0; i < 3; i++)
		assert_ok(workers_submit(w, pass_gate, &g, &err), &err);
	assert_int_equal(workers_queued(w), 3);
	assert_err(workers_submit(w, pass_gate, &g, &err), &err, ERR_BUSY, "busy");
	atomic_store(&g.open, true);
	workers_stop(w); /* what was taken is done */
	assert_int_equal(g.out, 5);
}

/* Each thread is woken, though one at a time. */
static void workers_run_at_once(void **state UNUSED)
{
	struct workers *w = workers_new(16, 64, "test");
	struct err err = {0};

	for (int round = 0; round < 20; round++) {
		struct gate g = {0};

		for (int i = 0; i < 16; i++)
			assert_ok(workers_submit(w, pass_gate, &g, &err), &err);
		while (atomic_load(&g.in) < 16) /* or the test hangs */
			clock_sleep_ms(1);
		atomic_store(&g.open, true);
		while (atomic_load(&g.out) < 16)
			clock_sleep_ms(1);
	}
	workers_stop(w);
}

struct order {
	unsigned next, bad;
	struct place {
		struct order *o;
		unsigned i;
	} place[1000];
};

static void in_order(void *arg)
{
	struct place *p = arg;

	p->o->bad += p->o->next != p->i;
	p->o->next = p->i + 1;
}

static void workers_keep_order(void **state UNUSED)
{
	static struct order o;
	struct workers *w = workers_new(1, 1000, "test");
	struct err err = {0};

	for (unsigned i = 0; i < COUNT(o.place); i++) {
		o.place[i] = (struct place){&o, i};
		assert_ok(workers_submit(w, in_order, &o.place[i], &err), &err);
	}
	workers_stop(w);
	assert_int_equal(o.bad, 0);
	assert_int_equal(o.next, COUNT(o.place));
}

struct share {
	struct workers_owner owner;
	unsigned given, run;
};

#define SHARES 5

/* Of tasks that do not end, so many run. */
static void assert_shares(struct workers *w, const struct share rows[SHARES])
{
	struct gate g[SHARES] = {0};
	struct err err = {0};
	unsigned sum = 0, given = 0;

	for (size_t i = 0; i < SHARES; i++) {
		given += rows[i].given;
		for (unsigned k = 0; k < rows[i].given; k++)
			assert_ok(workers_submit_for(w, rows[i].owner, pass_gate, &g[i], &err),
			          &err);
		while (atomic_load(&g[i].in) < rows[i].run)
			clock_sleep_ms(1);
		clock_sleep_ms(20);
		assert_int_equal(g[i].in, rows[i].run);
	}
	for (size_t i = 0; i < SHARES; i++)
		atomic_store(&g[i].open, true);
	workers_stop(w);
	for (size_t i = 0; i < SHARES; i++)
		sum += g[i].out;
	assert_int_equal(sum, given);
}

/* One owner's tasks leave threads for the next owner, and for nobody's. */
static void workers_are_shared_out(void **state UNUSED)
{
	static const struct share rows[SHARES] = {
		{{1, 0}, 20, 4}, {{2, 0}, 20, 2}, {{3, 0}, 9, 1}, {{0, 0}, 1, 1}, {{4, 0}, 1, 0}};

	assert_shares(workers_new(8, 100, "test"), rows);
}

/* One part of an owner leaves threads for its others, and they all for the next owner. */
static void workers_are_shared_within(void **state UNUSED)
{
	static const struct share rows[SHARES] = {
		{{1, 1}, 20, 3}, {{1, 2}, 20, 1}, {{1, 3}, 9, 0}, {{2, 1}, 9, 2}, {{3, 1}, 1, 1}};

	assert_shares(workers_new(8, 100, "test"), rows);
}

struct own {
	struct gate gate;
	struct workers *w;
	bool may;
};

static void own_one(void *arg)
{
	struct own *o = arg;

	o->may = workers_own(o->w, (struct workers_owner){.id = 1});
	pass_gate(&o->gate);
}

/* Who learns later whose task it is asks then. */
static void workers_are_owned_later(void **state UNUSED)
{
	struct own own[3] = {0};
	struct workers *w = workers_new(4, 10, "test");
	struct err err = {0};

	for (unsigned i = 0; i < COUNT(own); i++) {
		own[i].w = w;
		assert_ok(workers_submit(w, own_one, &own[i], &err), &err);
		while (atomic_load(&own[i].gate.in) == 0)
			clock_sleep_ms(1);
		assert_int_equal(own[i].may, i < 2);
	}
	for (unsigned i = 0; i < COUNT(own); i++)
		atomic_store(&own[i].gate.open, true);
	workers_stop(w);
}

/* However many owners there are, some are nobody's; and two of them leave one to the third. */
static void workers_spare_some(void **state UNUSED)
{
	static const struct share rows[SHARES] = {
		{{1, 0}, 20, 4}, {{2, 0}, 20, 1}, {{3, 0}, 9, 1}, {{0, 0}, 2, 2}, {{4, 0}, 1, 0}};
	static const struct share one[SHARES] = {
		{{0}, 0, 0}, {{1, 0}, 2, 1}, {{0}, 0, 0}, {{2, 0}, 1, 0}, {{0}, 0, 0}};
	struct workers *w = workers_new(8, 100, "test");

	workers_spare(w, 2);
	assert_shares(w, rows);
	w = workers_new(1, 100, "test");
	workers_spare(w, 5);
	assert_shares(w, one);
}

struct feed {
	struct workers *w;
	atomic_uint *ran;
	unsigned taken, refused;
};

static void tick(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

static void *feed_thread(void *arg)
{
	struct feed *f = arg;

	for (int i = 0; i < 2000; i++) {
		struct err err = {0};

		if (workers_submit(f->w, tick, f->ran, &err) == 0)
			f->taken++;
		else
			f->refused++;
	}
	return NULL;
}

static void workers_lose_nothing(void **state UNUSED)
{
	struct workers *w = workers_new(4, 16, "test");
	struct feed feeds[4];
	pthread_t threads[4];
	atomic_uint ran = 0;
	unsigned taken = 0;

	for (size_t i = 0; i < COUNT(threads); i++) {
		feeds[i] = (struct feed){w, &ran, 0, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, feed_thread, &feeds[i]), 0);
	}
	for (size_t i = 0; i < COUNT(threads); i++) {
		(void)pthread_join(threads[i], NULL);
		taken += feeds[i].taken;
		assert_int_equal(feeds[i].taken + feeds[i].refused, 2000);
	}
	workers_stop(w);
	assert_int_equal(ran, taken);
	workers_stop(NULL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(workers_refuse_when_full),  cmocka_unit_test(workers_keep_order),
	cmocka_unit_test(workers_run_at_once),       cmocka_unit_test(workers_are_shared_out),
	cmocka_unit_test(workers_are_shared_within), cmocka_unit_test(workers_are_owned_later),
	cmocka_unit_test(workers_spare_some),        cmocka_unit_test(workers_lose_nothing),
};
UNIT_MAIN(tests)
