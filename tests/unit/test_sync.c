/* test_sync.c - locks know their owner and their order; deadlines are kept. */
#include "base/clock.h"
#include "base/sync.h"
#include "unit.h"

struct pair {
	struct lock outer, inner;
	struct cond c;
	bool said;
};

static void set_up(struct pair *p)
{
	lock_init(&p->outer, LOCK_QUEUE_PASS);
	lock_init(&p->inner, LOCK_WORKERS);
	cond_init(&p->c);
	p->said = false;
}

static void in_order(struct pair *p)
{
	lock_take(&p->outer);
	lock_take(&p->inner);
	assert_true(lock_is_mine(&p->outer) && lock_is_mine(&p->inner));
	lock_give(&p->outer); /* in any order */
	lock_give(&p->inner);
	assert_false(lock_is_mine(&p->outer));
}

static void out_of_order(struct pair *p)
{
	lock_take(&p->inner);
	lock_take(&p->outer);
}

static void twice(struct pair *p)
{
	lock_take(&p->outer);
	lock_take(&p->outer);
}

static void two_of_a_name(struct pair *p)
{
	struct lock other;

	lock_init(&other, LOCK_QUEUE_PASS);
	lock_take(&p->outer);
	lock_take(&other);
}

static void not_mine(struct pair *p)
{
	lock_give(&p->outer);
}

static void *take(void *arg)
{
	lock_take(&((struct pair *)arg)->outer);
	return NULL;
}

static void anothers(struct pair *p)
{
	pthread_t t;

	if (pthread_create(&t, NULL, take, p) == 0)
		(void)pthread_join(t, NULL);
	lock_give(&p->outer);
}

static void destroyed_while_held(struct pair *p)
{
	lock_take(&p->outer);
	lock_done(&p->outer);
}

static void waited_without(struct pair *p)
{
	cond_wait(&p->c, &p->outer);
}

static void waited_with_the_outer(struct pair *p)
{
	lock_take(&p->outer);
	lock_take(&p->inner);
	cond_wait(&p->c, &p->outer);
}

static const struct {
	const char *name;
	void (*run)(struct pair *p);
	bool fine;
} rows[] = {
	{"in order", in_order, true},
	{"out of order", out_of_order, false},
	{"twice", twice, false},
	{"two of a name", two_of_a_name, false},
	{"given, never taken", not_mine, false},
	{"given by another", anothers, false},
	{"destroyed while held", destroyed_while_held, false},
	{"waited with, not taken", waited_without, false},
	{"waited with the outer one", waited_with_the_outer, false},
};

static void run_row(void *arg)
{
	struct pair p;

	set_up(&p);
	rows[*(size_t *)arg].run(&p);
}

static void sync_rules(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++)
		assert_row(asserts(run_row, &i) != rows[i].fine, rows[i].name);
}

static void *say(void *arg)
{
	struct pair *p = arg;

	lock_take(&p->outer);
	p->said = true;
	cond_broadcast(&p->c);
	lock_give(&p->outer);
	return NULL;
}

static void sync_deadlines(void **state UNUSED)
{
	int64_t until = sync_deadline(30);
	struct pair p;
	pthread_t t;

	set_up(&p);
	lock_take(&p.outer);
	while (cond_wait_until(&p.c, &p.outer, until))
		;
	assert_true(sync_deadline(0) >= until);
	assert_false(cond_wait_until(&p.c, &p.outer, sync_deadline(-1000)));
	assert_int_equal(pthread_create(&t, NULL, say, &p), 0);
	until = sync_deadline(60000);
	while (!p.said && cond_wait_until(&p.c, &p.outer, until))
		;
	assert_true(p.said && lock_is_mine(&p.outer));
	lock_give(&p.outer);
	(void)pthread_join(t, NULL);
	cond_done(&p.c);
	lock_done(&p.outer);
	lock_done(&p.inner);
}

static void sync_names(void **state UNUSED)
{
	for (enum lock_id i = 0; i < LOCK_COUNT; i++) {
		for (enum lock_id k = 0; k < i; k++)
			assert_string_not_equal(lock_row(i)->name, lock_row(k)->name);
		assert_true(lock_row(i)->what[0] != '\0');
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(sync_rules),
	cmocka_unit_test(sync_deadlines),
	cmocka_unit_test(sync_names),
};
UNIT_MAIN(tests)
