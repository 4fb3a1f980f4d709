/* test_ckpt_rule.c - every row of the decision table in its three columns, and the bullet rules. */
#include "core/ckpt_rule.h"
#include "unit.h"

#define RUN CKPT_RUNNING
#define OK CKPT_ENDED_OK
#define BAD CKPT_ENDED_BADLY
#define SYN CKPT_SYNCING
#define COM CKPT_COMPLETE
#define INC CKPT_INCOMPLETE
#define KNOWN .known = true, .n_files = 3, .n_checked = 3
#define LAST(how) KNOWN, .last = CKPT_LAST_##how, .last_name = "trainer_state.json"
#define UNKNOWN .n_files = 3

/* clang-format off */
static const struct row {
	const char *name;
	struct ckpt_facts f;
	enum ckpt_state state;
	int row;
	int64_t wait_ms;
} rows[] = {
	/* 1 */
	{"temporary, running", {.unfinished = "x.tmp", LAST(NEWEST), .quiet_ms = 99999}, SYN, 1, 0},
	{"temporary, ended 0", {.end = OK, .unfinished = "x.tmp", LAST(NEWEST)}, INC, 1, 0},
	{"temporary, killed", {.end = BAD, .unfinished = "x.tmp", LAST(NEWEST)}, INC, 1, 0},
	{"temporary, left behind", {.unfinished = "x", KNOWN, .newer_complete = true}, INC, 1, 0},
	{"temporary, left behind, written", {.unfinished = "x", KNOWN, .newer_complete = true, .writer = "x"}, SYN, 1, 0},
	/* 2 */
	{"torn, running", {.torn = "a.pt", .torn_why = "is cut", LAST(NEWEST), .quiet_ms = 99999}, SYN, 2, 0},
	{"torn, ended 0", {.end = OK, .torn = "a.pt", LAST(NEWEST)}, INC, 2, 0},
	{"torn, killed", {.end = BAD, .torn = "a.pt", LAST(NEWEST)}, INC, 2, 0},
	{"torn, newer complete", {.torn = "a.pt", LAST(NEWEST), .newer_complete = true}, INC, 2, 0},
	{"torn, newer complete, writer", {.torn = "a.pt", LAST(NEWEST), .newer_complete = true, .writer = "a.pt"}, SYN, 2, 0},
	{"torn, newer only begun", {.torn = "a.pt", LAST(NEWEST), .newer_begun = true}, SYN, 2, 0},
	{"hole, running", {.missing = "b", .n_missing = 1, KNOWN, .quiet_ms = 9999999}, SYN, 2, 0},
	{"hole, ended 0", {.end = OK, .missing = "b", .n_missing = 2, KNOWN}, INC, 2, 0},
	{"hole, killed", {.end = BAD, .missing = "b", .n_missing = 2, KNOWN}, INC, 2, 0},
	{"hole, published", {.missing = "b", .n_missing = 1, KNOWN, .published = true}, SYN, 2, 0},
	{"torn, settle time", {.torn = "a", UNKNOWN, .settle_ms = 1000, .quiet_ms = 99999}, SYN, 2, 0},
	{"hole, removed", {.missing = "b", .n_missing = 1, KNOWN, .gone = CKPT_GONE_AT_REST}, INC, 2, 0},
	/* 3 */
	{"writer, running", {.writer = "a", LAST(NEWEST), .quiet_ms = 99999}, SYN, 3, 0},
	{"writer, ended 0", {.end = OK, .writer = "a", LAST(NEWEST)}, SYN, 3, 0},
	{"open when the commands ended", {.end = OK, .cut = "a", LAST(NEWEST)}, INC, 3, 0},
	{"writer, killed", {.end = BAD, .writer = "a", LAST(NEWEST)}, COM, 4, 0},
	{"writer, published", {.writer = "a", KNOWN, .published = true}, SYN, 3, 0},
	{"writer, settled", {.writer = "a", UNKNOWN, .settle_ms = 1000, .quiet_ms = 99999}, SYN, 3, 0},
	/* 4 */
	{"last, running, at once", {LAST(NEWEST)}, SYN, 4, 2000},
	{"last, running, 1.9 s", {LAST(NEWEST), .quiet_ms = 1900}, SYN, 4, 100},
	{"last, running, quiet", {LAST(NEWEST), .quiet_ms = 2000}, COM, 4, 0},
	{"last, ended 0", {.end = OK, LAST(NEWEST)}, COM, 4, 0},
	{"last, killed a second later", {.end = BAD, LAST(NEWEST)}, COM, 4, 0},
	{"last, removed at once", {LAST(NEWEST), .gone = CKPT_GONE_EARLY}, COM, 4, 0},
	{"last, fewer names", {LAST(NEWEST), .quiet_ms = 2000, .names = CKPT_NAMES_FEWER}, COM, 4, 0},
	{"last, killed, cut elsewhere", {.end = BAD, LAST(NEWEST), .cut = "x"}, COM, 4, 0},
	{"marker of an unknown format", {.last = CKPT_LAST_NEWEST, .last_name = "DONE", UNKNOWN, .quiet_ms = 2000}, COM, 4, 0},
	/* 5 */
	{"published, running", {KNOWN, .published = true}, COM, 5, 0},
	{"published, ended 0", {.end = OK, KNOWN, .published = true}, COM, 5, 0},
	{"published, killed", {.end = BAD, KNOWN, .published = true}, COM, 5, 0},
	{"published, format not known", {UNKNOWN, .published = true}, COM, 5, 0},
	{"published after a copy", {LAST(COPIED), .published = true}, COM, 5, 0},
	{"published without its last file", {LAST(ABSENT), .published = true}, SYN, 8, 0},
	/* 6 */
	{"copy, running", {LAST(COPIED), .quiet_ms = 29000}, SYN, 6, 1000},
	{"copy, quiet", {LAST(COPIED), .quiet_ms = 30000}, COM, 6, 0},
	{"copy, ended 0", {.end = OK, LAST(COPIED)}, COM, 6, 0},
	{"copy, killed", {.end = BAD, LAST(COPIED), .quiet_ms = 29000}, INC, 6, 0},
	{"copy, killed, proven", {.end = BAD, LAST(COPIED), .proven = true}, COM, 6, 0},
	{"copy, killed, same names", {.end = BAD, LAST(COPIED), .names = CKPT_NAMES_SAME}, COM, 6, 0},
	{"copy, killed, fewer names", {.end = BAD, LAST(COPIED), .names = CKPT_NAMES_FEWER}, INC, 6, 0},
	{"copy, settle time", {LAST(COPIED), .settle_ms = 1000, .quiet_ms = 1000}, COM, 6, 0},
	/* 7 */
	{"saved over, running", {LAST(OLD), .quiet_ms = 9999999, .shown = "14:02"}, SYN, 7, 0},
	{"saved over, ended 0", {.end = OK, LAST(OLD)}, INC, 7, 0},
	{"saved over, killed", {.end = BAD, LAST(OLD)}, INC, 7, 0},
	/* 8 */
	{"no last, running", {LAST(ABSENT), .quiet_ms = 9999999, .settle_ms = 1000}, SYN, 8, 0},
	{"no last, newer begun", {LAST(ABSENT), .newer_begun = true}, SYN, 8, 0},
	{"no last, newer complete", {LAST(ABSENT), .newer_complete = true}, INC, 8, 0},
	{"no last, ended 0", {.end = OK, LAST(ABSENT)}, INC, 8, 0},
	{"no last, killed", {.end = BAD, LAST(ABSENT)}, INC, 8, 0},
	{"no last, removed", {LAST(ABSENT), .gone = CKPT_GONE_AT_REST}, INC, 8, 0},
	{"no marker of an unknown format", {.last = CKPT_LAST_ABSENT, .last_name = "DONE", UNKNOWN, .quiet_ms = 9999999}, SYN, 8, 0},
	/* 9 */
	{"no marker, running", {KNOWN, .quiet_ms = 29000}, SYN, 9, 1000},
	{"no marker, quiet", {KNOWN, .quiet_ms = 30000}, COM, 9, 0},
	{"no marker, newer begun", {KNOWN, .newer_begun = true}, COM, 9, 0},
	{"no marker, same names", {KNOWN, .names = CKPT_NAMES_SAME, .quiet_ms = 4000}, SYN, 9, 1000},
	{"no marker, same names, 5 s", {KNOWN, .names = CKPT_NAMES_SAME, .quiet_ms = 5000}, COM, 9, 0},
	{"one file", {KNOWN, .single = true, .quiet_ms = 1000}, SYN, 9, 1000},
	{"one file, 2 s", {KNOWN, .single = true, .quiet_ms = 2000}, COM, 9, 0},
	{"no marker, ended 0", {.end = OK, KNOWN}, COM, 9, 0},
	{"no marker, killed", {.end = BAD, KNOWN, .quiet_ms = 29000}, INC, 9, 0},
	{"no marker, killed, long quiet", {.end = BAD, KNOWN, .quiet_ms = 9999999}, INC, 9, 0},
	{"no marker, killed, same names", {.end = BAD, KNOWN, .names = CKPT_NAMES_SAME}, COM, 9, 0},
	{"no marker, killed, other names", {.end = BAD, KNOWN, .names = CKPT_NAMES_OTHER}, INC, 9, 0},
	{"no marker, killed, listed", {.end = BAD, KNOWN, .proven = true}, INC, 9, 0},
	{"one file, killed while written", {.end = BAD, KNOWN, .single = true, .cut = "a"}, INC, 9, 0},
	{"no marker, killed while written", {.end = BAD, KNOWN, .names = CKPT_NAMES_SAME, .cut = "a"}, INC, 9, 0},
	{"one file, killed", {.end = BAD, KNOWN, .single = true}, COM, 9, 0},
	{"no marker, settle time", {KNOWN, .settle_ms = 1000, .quiet_ms = 1000}, COM, 9, 0},
	{"no marker, long settle time", {KNOWN, .settle_ms = 60000, .names = CKPT_NAMES_SAME, .quiet_ms = 30000}, SYN, 9, 30000},
	{"no marker, removed early", {KNOWN, .gone = CKPT_GONE_EARLY}, INC, 9, 0},
	{"no marker, removed at rest", {KNOWN, .gone = CKPT_GONE_AT_REST}, COM, 9, 0},
	{"one file, removed early", {KNOWN, .single = true, .gone = CKPT_GONE_EARLY}, COM, 9, 0},
	/* 10 */
	{"unknown, running", {UNKNOWN, .quiet_ms = 29999}, SYN, 10, 1},
	{"unknown, quiet", {UNKNOWN, .quiet_ms = 30000}, COM, 10, 0},
	{"unknown, same names, 5 s", {UNKNOWN, .names = CKPT_NAMES_SAME, .quiet_ms = 5000}, SYN, 10, 25000},
	{"unknown, learnt pause", {UNKNOWN, .pause_ms = 20000, .quiet_ms = 30000}, SYN, 10, 30000},
	{"unknown, learnt too long", {UNKNOWN, .pause_ms = 3600000, .quiet_ms = 15 * 60000}, COM, 10, 0},
	{"unknown, fewer", {UNKNOWN, .names = CKPT_NAMES_FEWER, .quiet_ms = 9999999}, SYN, 10, 0},
	{"unknown, fewer, newer begun, not quiet", {UNKNOWN, .names = CKPT_NAMES_FEWER, .newer_begun = true, .quiet_ms = 1000}, SYN, 10, 29000},
	{"unknown, fewer, newer begun", {UNKNOWN, .names = CKPT_NAMES_FEWER, .newer_begun = true, .quiet_ms = 30000}, COM, 10, 0},
	{"unknown, settle time", {UNKNOWN, .settle_ms = 1000, .quiet_ms = 1000}, COM, 10, 0},
	{"unknown, ended 0", {.end = OK, UNKNOWN}, COM, 10, 0},
	{"unknown, killed", {.end = BAD, UNKNOWN, .quiet_ms = 9999999}, INC, 10, 0},
	{"unknown, killed, same names", {.end = BAD, UNKNOWN, .names = CKPT_NAMES_SAME}, COM, 10, 0},
	{"unknown, killed while written", {.end = BAD, UNKNOWN, .names = CKPT_NAMES_SAME, .cut = "a"}, INC, 10, 0},
	{"unknown, removed early", {UNKNOWN, .gone = CKPT_GONE_EARLY}, INC, 10, 0},
	{"unknown, removed at rest", {UNKNOWN, .gone = CKPT_GONE_AT_REST}, COM, 10, 0},
	/* 11 */
	{"remote, last file", {.remote = true, LAST(NEWEST), .quiet_ms = 59000}, SYN, 11, 1000},
	{"remote, last file, quiet", {.remote = true, LAST(NEWEST), .quiet_ms = 60000}, COM, 4, 0},
	{"remote, no marker", {.remote = true, KNOWN, .quiet_ms = 119000}, SYN, 11, 1000},
	{"remote, no marker, quiet", {.remote = true, KNOWN, .quiet_ms = 120000}, COM, 9, 0},
	{"remote, killed", {.remote = true, .end = BAD, LAST(NEWEST)}, COM, 4, 0},
	{"remote, published", {.remote = true, KNOWN, .published = true}, COM, 5, 0},
};
/* clang-format on */

static void each_row(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct row *r = &rows[i];
		struct ckpt_verdict v;

		ckpt_judge(&r->f, &v);
		if (v.state != r->state || v.row != r->row || v.wait_ms != r->wait_ms)
			fail_msg("%s: row %d, wait %" PRId64 ", %s", r->name, v.row, v.wait_ms,
			         v.reason);
		assert_true(strlen(v.reason) > 12);
		if (v.state != SYN)
			assert_int_equal(v.wait_ms, 0);
	}
}

/* The reason names what a person has to look at. */
static void names_what_matters(void **state UNUSED)
{
	static const struct {
		struct ckpt_facts f;
		const char *names[3];
	} of[] = {
		{{.torn = "optimizer.pt",
	          .torn_why = "has 1.2 GB of 3.1 GB",
	          .end = BAD,
	          .cut = "optimizer.pt"},
	         {"optimizer.pt", "1.2 GB of 3.1 GB"}},
		{{.missing = "model-00003-of-00004.safetensors", .n_missing = 2},
	         {"model-00003", "1 more"}},
		{{.writer = "optimizer.pt"}, {"optimizer.pt"}},
		{{LAST(ABSENT)}, {"trainer_state.json"}},
		{{LAST(OLD), .shown = "14:02"}, {"14:02"}},
		{{LAST(NEWEST), .quiet_ms = 2000, .proof = ".metadata lists 64 shards"},
	         {"64 shards"}},
		{{KNOWN, .names = CKPT_NAMES_SAME, .sibling = "checkpoint-200", .quiet_ms = 5000},
	         {"checkpoint-200", "3 files"}},
		{{.n_files = 3, .n_checked = 1, .known = true, .quiet_ms = 30000},
	         {"1 file ", "2 of a format"}},
		{{.n_files = 1, .n_checked = 1, .known = true, .end = BAD}, {"this 1 file is"}},
		{{.n_files = 2, .known = true, .end = BAD}, {"these 2 files are"}},
		{{.n_files = 2,
	          .known = true,
	          .end = BAD,
	          .last = CKPT_LAST_COPIED,
	          .last_name = "last"},
	         {"copied in", "last and 1 other file are"}},
		{{.n_files = 2,
	          .known = true,
	          .end = BAD,
	          .last = CKPT_LAST_COPIED,
	          .model_only = true,
	          .last_name = "last"},
	         {"weights without", "last and 1 other file are"}},
	};

	for (size_t i = 0; i < COUNT(of); i++) {
		struct ckpt_verdict v;

		ckpt_judge(&of[i].f, &v);
		for (size_t k = 0; k < COUNT(of[i].names) && of[i].names[k] != NULL; k++)
			if (strstr(v.reason, of[i].names[k]) == NULL)
				fail_msg("\"%s\" does not name %s", v.reason, of[i].names[k]);
	}
}

static void long_names_are_cut(void **state UNUSED)
{
	char name[2000];
	struct ckpt_facts f = {.torn = name, .torn_why = name, .missing = name};
	struct ckpt_verdict v;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	ckpt_judge(&f, &v);
	assert_true(strlen(v.reason) < CKPT_REASON_MAX);
	f = (struct ckpt_facts){
		.known = true, .names = CKPT_NAMES_SAME, .sibling = name, .quiet_ms = 5000};
	ckpt_judge(&f, &v);
	assert_int_equal(v.state, COM);
}

/* clang-format off */
#define PART(st, rw)                                                                               \
	{                                                                                          \
		.there = true, .state = st, .row = rw, .reason = "complete: x"                     \
	}

#define SAVED(e, began_s, ended_s, before_s)                                                       \
	{                                                                                          \
		.there = true, .end = e, .state = COM, .row = 4, .began_ms = began_s * 1000,       \
		.ended_ms = ended_s * 1000, .before_ms = before_s * 1000                           \
	}

static const struct {
	const char *name;
	struct ckpt_part part[3];
	struct ckpt_union u;
	enum ckpt_state state;
	int row;
} unions[] = {
	{"both whole", {PART(COM, 4), PART(COM, 9)}, {.n_parts = 2, .last_name = "t", .last_there = true}, COM, 9},
	{"one comes", {PART(COM, 4), PART(SYN, 3)}, {.n_parts = 2}, SYN, 3},
	{"one torn", {PART(COM, 4), PART(INC, 2)}, {.n_parts = 2}, INC, 2},
	{"torn beside coming", {PART(SYN, 4), PART(INC, 2)}, {.n_parts = 2}, INC, 2},
	{"a shard is missing", {PART(COM, 4), PART(COM, 9)}, {.n_parts = 2, .missing = "__1_0.distcp", .n_missing = 1}, SYN, 2},
	{"a shard is missing, ended", {{.end = OK, .there = true, .state = COM, .row = 4}, {.end = OK, .there = true, .state = COM, .row = 9}}, {.n_parts = 2, .missing = "__1_0.distcp", .n_missing = 1}, INC, 2},
	{"a shard is missing, newer complete", {PART(COM, 4), PART(COM, 9)}, {.n_parts = 2, .missing = "x", .n_missing = 1, .newer_complete = true}, INC, 2},
	{"another content", {PART(COM, 4), PART(COM, 4)}, {.n_parts = 2, .torn = "config.json"}, INC, 2},
	{"no last anywhere", {PART(COM, 9), PART(COM, 9)}, {.n_parts = 2, .last_name = "t"}, SYN, 8},
	{"no last anywhere, newer complete", {PART(COM, 9), PART(COM, 9)}, {.n_parts = 2, .last_name = "t", .newer_complete = true}, INC, 8},
	/* a node without files of it */
	{"first one: waits", {PART(COM, 4), {0}}, {.n_parts = 2}, SYN, 2},
	{"first one: the next has begun", {PART(COM, 4), {0}}, {.n_parts = 2, .newer_begun = true}, COM, 4},
	{"first one: ended well", {PART(COM, 4), {.end = OK}}, {.n_parts = 2}, COM, 4},
	{"first one: ended badly", {PART(COM, 4), {.end = BAD}}, {.n_parts = 2}, INC, 2},
	{"proven without it", {PART(COM, 4), {.end = BAD}}, {.n_parts = 2, .proven = true}, COM, 4},
	{"it never had one", {PART(COM, 4), {0}}, {.n_parts = 2, .sibling = true}, COM, 4},
	{"it had one before", {PART(COM, 4), {.was = true}}, {.n_parts = 2, .sibling = true}, SYN, 2},
	{"it had one before, newer complete", {PART(COM, 4), {.was = true}}, {.n_parts = 2, .sibling = true, .newer_complete = true}, INC, 2},
	{"it had one before, ended", {PART(COM, 4), {.was = true, .end = OK}}, {.n_parts = 2, .sibling = true}, INC, 2},
	/* saves of one name, in seconds: node 0 has saved it over */
	{"of one save", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 601, 640, 330)}, {.n_parts = 2}, COM, 4},
	{"one is late", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 660, 661, 330)}, {.n_parts = 2}, COM, 4},
	{"one is a save behind", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 301, 330, 30)}, {.n_parts = 2}, SYN, 7},
	{"the other one is", {SAVED(RUN, 301, 330, 30), SAVED(RUN, 600, 620, 320)}, {.n_parts = 2}, SYN, 7},
	{"behind, its first save", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 301, 330, 0)}, {.n_parts = 2}, SYN, 7},
	{"behind, with two saves missed", {SAVED(RUN, 900, 920, 20), SAVED(RUN, 601, 630, 330)}, {.n_parts = 2}, SYN, 7},
	{"behind, newer complete", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 301, 330, 30)}, {.n_parts = 2, .newer_complete = true}, INC, 7},
	{"behind, ended", {SAVED(RUN, 600, 620, 320), SAVED(OK, 301, 330, 30)}, {.n_parts = 2}, INC, 7},
	{"saved only once, ended", {SAVED(RUN, 600, 620, 320), SAVED(OK, 301, 330, 0)}, {.n_parts = 2}, COM, 4},
	{"saved only once, died", {SAVED(RUN, 600, 620, 320), SAVED(BAD, 301, 330, 0)}, {.n_parts = 2}, INC, 7},
	{"times not known", {SAVED(RUN, 600, 620, 320), PART(COM, 4)}, {.n_parts = 2}, COM, 4},
	{"nobody has saved over", {SAVED(RUN, 600, 620, 0), SAVED(RUN, 301, 330, 0)}, {.n_parts = 2}, COM, 4},
	{"closer than clocks", {SAVED(RUN, 600, 600, 598), SAVED(RUN, 598, 598, 596)}, {.n_parts = 2}, COM, 4},
	{"of two saves, and differs", {SAVED(RUN, 600, 620, 320), SAVED(RUN, 301, 330, 30)}, {.n_parts = 2, .torn = "config.json"}, SYN, 7},
	{"behind, and torn", {SAVED(RUN, 600, 620, 320), {.there = true, .state = INC, .row = 2, .began_ms = 301000, .ended_ms = 330000}}, {.n_parts = 2}, INC, 2},
	{"three nodes", {PART(COM, 4), PART(COM, 9), {.was = true}}, {.n_parts = 3, .sibling = true}, SYN, 2},
};
/* clang-format on */

static void each_union(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(unions); i++) {
		struct ckpt_union u = unions[i].u;
		struct ckpt_verdict v;

		u.part = unions[i].part;
		ckpt_judge_union(&u, &v);
		if (v.state != unions[i].state || v.row != unions[i].row)
			fail_msg("%s: row %d, %s", unions[i].name, v.row, v.reason);
	}
}

static void a_person_overrules(void **state UNUSED)
{
	struct ckpt_verdict v;

	ckpt_overrule("ada", &v);
	assert_int_equal(v.state, COM);
	assert_int_equal(v.row, 0);
	assert_non_null(strstr(v.reason, "ada"));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(each_row),           cmocka_unit_test(names_what_matters),
	cmocka_unit_test(long_names_are_cut), cmocka_unit_test(each_union),
	cmocka_unit_test(a_person_overrules),
};
UNIT_MAIN(tests)
