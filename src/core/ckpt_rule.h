/* clang-format off */
/*
 * ckpt_rule.h - is a checkpoint whole? One decision table over facts that others gather: the
 * shipper (run/ship*) about files, writers and time; the formats' parsers about content.
 *
 * The rows, first one that fits. "Quiet" is the time since the last change that was seen.
 *
 *  row  facts                                 running           ended 0     ended otherwise
 *   1   a temporary name, an unfinished sign  SYNCING (a)       INCOMPLETE  INCOMPLETE
 *   2   a file is torn, the set has a hole    SYNCING (a)       INCOMPLETE  INCOMPLETE
 *   3   a file has a writer                   SYNCING           SYNCING     -
 *   4   last file present and newest          COMPLETE (2 s)    COMPLETE    COMPLETE
 *   5   published by a rename                 COMPLETE          COMPLETE    COMPLETE
 *   6   last file older than others: a copy   COMPLETE (30 s)   COMPLETE    COMPLETE if proven (b)
 *   7   last file is the old one: saved over  SYNCING           INCOMPLETE  INCOMPLETE
 *   8   the trainer's last file is absent     SYNCING (a)       INCOMPLETE  INCOMPLETE
 *   9   a format without a last file          COMPLETE (30 s c) COMPLETE    COMPLETE if same names (e)
 *  10   format not known                      COMPLETE (30 s d) COMPLETE    COMPLETE if same names (f)
 *  11   neither leases nor inotify: as 4 to 10, with four times the quiet, at least 60 s
 *
 * (a) INCOMPLETE once a newer sibling is COMPLETE and nobody writes.
 * (b) By an index, by .metadata, by the names of the last complete sibling.
 * (c) At once when a newer sibling has begun; 5 s when the names are the last sibling's; 2 s for one
 *     file of a format that can be checked.
 * (d) Three times the longest pause seen in this job when that is more, at most 15 min; with fewer
 *     names than the last complete sibling only when a newer one has begun.
 * (e) As the last complete sibling's; or when it is one file. (f) As the last complete sibling's.
 *     Both only if no file had a writer in the last sample before the end.
 *
 * Of several nodes, row 7 also fits parts of two saves: ckpt_judge_union.
 *
 * A settle time that the job names takes the place of the 30 s of rows 6, 9 and 10; a marker that
 * it names is the last file of rows 4 to 8. Neither helps a torn file.
 */
/* clang-format on */
#ifndef CKPT_RULE_H
#define CKPT_RULE_H

#include "core/ckpt.h"

enum ckpt_end { CKPT_RUNNING, CKPT_ENDED_OK, CKPT_ENDED_BADLY }; /* out of touch is RUNNING */

enum ckpt_last {
	CKPT_LAST_NONE,   /* this format has none */
	CKPT_LAST_ABSENT, /* it has not come yet */
	CKPT_LAST_NEWEST, /* it came after all that it must come after */
	CKPT_LAST_COPIED, /* others are newer, and all were first seen together; or model_only */
	CKPT_LAST_OLD,    /* unchanged since the complete revision, while others changed */
};

/* Its files' names against those of the last complete sibling. ALONE: there is none. */
enum ckpt_names { CKPT_NAMES_ALONE, CKPT_NAMES_SAME, CKPT_NAMES_FEWER, CKPT_NAMES_OTHER };

/* The trainer has removed the folder, and all of it is in the spool. At rest: nothing had changed
 * for two looks when it went. */
enum ckpt_gone { CKPT_THERE, CKPT_GONE_AT_REST, CKPT_GONE_EARLY };

/* Names are relative to the checkpoint, as people know them; NULL: there is none. */
struct ckpt_facts {
	enum ckpt_end end;
	const char *unfinished; /* row 1: the file or the sign */
	const char *torn;       /* row 2: a file that is damaged, cannot be read or not be stored */
	const char *torn_why;   /* "has 1.2 GB of 3.1 GB", "lacks 28 of 60 tensors" */
	const char *missing;    /* row 2: the first name that the set lacks ... */
	size_t n_missing;       /* ... of so many */
	const char *writer;     /* row 3: a file that somebody has open for writing */
	enum ckpt_last last;
	const char *last_name;
	bool model_only;   /* weights without an optimizer: on purpose, or half a copy */
	bool known;        /* the format is (rows 4 to 9) */
	bool single;       /* one file of a format that can be checked */
	bool proven;       /* index, .metadata... list the whole set, and it is there */
	const char *proof; /* in words: ".metadata lists 64 shards of 64, all sizes right" */
	size_t n_files;    /* that count */
	size_t n_checked;  /* of them, of a known format, and whole */
	bool published;    /* row 5 */
	const char *cut;   /* ended: a file that had a writer in the last sample, and, if it ended
	                    * badly, whose format does not prove its end */
	int64_t quiet_ms;
	int64_t pause_ms; /* longest pause within a checkpoint of this job; row 10 */
	bool newer_begun, newer_complete;
	enum ckpt_names names;
	const char *sibling; /* the last complete one */
	enum ckpt_gone gone;
	bool remote;       /* row 11 */
	int64_t settle_ms; /* that the job asks for; 0 = the rows' own */
	const char *shown; /* a complete revision is: when it was made, "14:02" */
};

#define CKPT_REASON_MAX 400

struct ckpt_verdict {
	enum ckpt_state state;
	int row;
	int64_t wait_ms; /* SYNCING: time alone may change it after so long; 0 = only a new fact */
	bool doubt;      /* INCOMPLETE for lack of a proof alone: other nodes' files may be one */
	char reason[CKPT_REASON_MAX]; /* "complete: trainer_state.json and 7 files checked" */
};

void ckpt_judge(const struct ckpt_facts *f, struct ckpt_verdict *out);

/* One node's part of a checkpoint of several. */
struct ckpt_part {
	enum ckpt_end end;     /* of the job's processes on that node */
	bool there;            /* it has files of this checkpoint */
	bool was;              /* ... or had some of the last complete sibling */
	enum ckpt_state state; /* by ckpt_judge over its own files: COMPLETE = whole and sent */
	int row;
	bool doubt;         /* INCOMPLETE for lack of a proof alone */
	const char *reason; /* of that; "" = none */
	/* struct ckpt_times, by one clock for all parts */
	int64_t began_ms, ended_ms, before_ms;
};

/* Facts about the union of all parts' files. */
struct ckpt_union {
	const struct ckpt_part *part;
	size_t n_parts;       /* one for each node of the job, by rank */
	const char *torn;     /* a path that two nodes have with different content ... */
	const char *torn_why; /* ... which */
	const char *missing;  /* a name that one part lists and none has */
	size_t n_missing;
	const char *last_name; /* the trainer's last file, NULL = it has none ... */
	bool last_there;       /* ... and some node has it */
	bool proven;           /* lists that name the whole set: a node without a part owes none */
	const char *proof;     /* in words, as in struct ckpt_facts; NULL */
	bool sibling;          /* there is a complete one before it */
	bool newer_begun, newer_complete;
	size_t n_files;
};

/* The parts' rows hold for the union, every node is accounted for, and all parts are of one save.
 *
 * The last is row 7, by the times of the parts. The nodes of a job save together, and train between
 * two saves. So a part is of an earlier save than another one if it had been written long before
 * that one began: more than a quarter of the pause between that one and the save which it replaces.
 * A quarter and not half, because a runner may miss a save or two, and then the pause that it knows
 * is of two or three. Parts that are closer than CKPT_CLOCKS_MS, parts without times, and parts of
 * which none replaces another one are not told apart. A node that has saved once and ended well
 * owes no other part. */
#define CKPT_CLOCKS_MS 2000 /* the times of two nodes may be off by so much */
void ckpt_judge_union(const struct ckpt_union *u, struct ckpt_verdict *out);

/* A person said so. */
void ckpt_overrule(const char *principal, struct ckpt_verdict *out);

#endif
