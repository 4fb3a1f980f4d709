/* test_ship_table.c - the states of a file that is shipped: who may follow whom, and its queue. */
#include "run/ship_table.h"
#include "base/map.h"
#include "unit.h"

static void tables_open(struct ship *s)
{
	*s = (struct ship){.magic = SHIP_MAGIC};
	ship_tables_open(s);
}

struct step {
	enum ship_state from, to;
};

static void take_step(void *arg)
{
	const struct step *step = arg;
	struct ship_entry *e = NULL;
	struct ship s;

	tables_open(&s);
	e = ship_entry_of(&s, STR_LIT("checkpoint-1/model.safetensors"));
	e->stored = true;
	e->state = step->from;
	if (step->from == SHIP_QUEUED)
		TAILQ_INSERT_TAIL(&s.queued_large, e, queue);
	ship_entry_to(&s, e, step->to);
}

static void ship_states_follow(void **state UNUSED)
{
	static const char legal[SHIP_STATE_COUNT][SHIP_STATE_COUNT + 1] = {
		/* to: WAIT, QUEUED, SENDING, SENT, LOST */
		[SHIP_WAIT] = "xx.x.", [SHIP_QUEUED] = "x.x..", [SHIP_SENDING] = "x..xx",
		[SHIP_SENT] = "xx.x.", [SHIP_LOST] = "x....",
	};

	for (unsigned i = 0; i < SHIP_STATE_COUNT * SHIP_STATE_COUNT; i++) {
		struct step s = {(enum ship_state)(i / SHIP_STATE_COUNT),
		                 (enum ship_state)(i % SHIP_STATE_COUNT)};

		if (asserts(take_step, &s) != (legal[s.from][s.to] == '.'))
			fail_msg("from %u to %u", s.from, s.to);
	}
}

/* An entry is in a queue exactly while it is QUEUED, however large it has become meanwhile. */
static void ship_queues_agree(void **state UNUSED)
{
	struct ship_entry *e = NULL;
	struct ship s;

	tables_open(&s);
	e = ship_entry_of(&s, STR_LIT("checkpoint-1/model.safetensors"));
	ship_entry_to(&s, e, SHIP_QUEUED);
	assert_ptr_equal(TAILQ_FIRST(&s.queued_small), e);
	e->fact.size = UINT64_MAX;
	ship_entry_to(&s, e, SHIP_WAIT);
	assert_true(TAILQ_EMPTY(&s.queued_small) && TAILQ_EMPTY(&s.queued_large));
	ship_entry_to(&s, e, SHIP_QUEUED);
	assert_ptr_equal(TAILQ_FIRST(&s.queued_large), e);
	assert_true(ship_entry_drop(&s, e));
	assert_true(TAILQ_EMPTY(&s.queued_large) && TAILQ_EMPTY(&s.all));
	ship_tables_free(&s);
}

/* A file that takes another one's place under its name: once the entry is gone, none of the inodes
 * that it had leads to it. */
static void ship_inodes_are_forgotten(void **state UNUSED)
{
	struct ship_fact is[3] = {0};
	struct ship_entry *e = NULL;
	struct ship s;

	tables_open(&s);
	e = ship_entry_of(&s, STR_LIT("checkpoint-1/model.safetensors"));
	for (size_t i = 0; i < COUNT(is); i++) {
		is[i].dev = 1;
		is[i].ino = 100 + i;
		ship_entry_seen(&s, e, &is[i]);
		(void)map_set(s.inodes, ship_inode(&e->fact), e);
		ship_entry_sent(&s, e, &is[i]);
		(void)map_set(s.stored, ship_inode(&e->sent), e);
	}
	assert_ptr_equal(map_get(s.inodes, ship_inode(&is[2])), e);
	assert_ptr_equal(map_get(s.stored, ship_inode(&is[2])), e);
	assert_true(ship_entry_drop(&s, e));
	for (size_t i = 0; i < COUNT(is); i++) {
		assert_null(map_get(s.inodes, ship_inode(&is[i])));
		assert_null(map_get(s.stored, ship_inode(&is[i])));
	}
	ship_tables_free(&s);
}

enum broken { WHOLE, STRANGE, SENT_UNSTORED, DIRTY_AT_REST, PROGRESS_AT_REST, HELD_UNSTORED };

static void check_broken(void *arg)
{
	struct ship_entry *e = NULL;
	struct ship s;

	tables_open(&s);
	e = ship_entry_of(&s, STR_LIT("a"));
	switch (*(enum broken *)arg) {
	case WHOLE:
		break;
	case STRANGE:
		e->magic = 0;
		break;
	case SENT_UNSTORED:
		e->state = SHIP_SENT;
		break;
	case DIRTY_AT_REST:
		e->dirty = true;
		break;
	case PROGRESS_AT_REST:
		e->progress = 1;
		break;
	case HELD_UNSTORED:
		e->quarantine = true;
		break;
	}
	ship_entry_check(e);
}

static void ship_entries_are_checked(void **state UNUSED)
{
	for (enum broken b = WHOLE; b <= HELD_UNSTORED; b++) {
		if (asserts(check_broken, &b) != (b != WHOLE))
			fail_msg("broken in way %u", b);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ship_states_follow),
	cmocka_unit_test(ship_queues_agree),
	cmocka_unit_test(ship_inodes_are_forgotten),
	cmocka_unit_test(ship_entries_are_checked),
};

UNIT_MAIN(tests)
