/* ckpt_rule.c - the rows of ckpt_rule.h, each a function that fits or does not, and its words. */
#include "core/ckpt_rule.h"

#define QUIET_LAST_MS 2000 /* after the last file: callbacks add theirs */
#define QUIET_ONE_MS 2000  /* one file: a last.pt that is rewritten every 20 s must get there */
#define QUIET_SAME_MS 5000 /* all names of the sibling are there */
#define QUIET_MS 30000     /* nothing but time tells */
#define QUIET_LEARNT_MAX_MS ((int64_t)15 * 60000)
#define QUIET_REMOTE_MIN_MS 60000
#define REMOTE_FACTOR 4
#define PAUSE_FACTOR 3
#define PAUSE_SHARE 4 /* of the pause between two saves */

static const char *const fronts[] = {
	[CKPT_SYNCING] = "syncing",
	[CKPT_COMPLETE] = "complete",
	[CKPT_INCOMPLETE] = "incomplete",
};

PRINTF(3, 4)
static bool say(struct ckpt_verdict *v, enum ckpt_state state, const char *fmt, ...)
{
	char text[CKPT_REASON_MAX - 16];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt,
	                ap); /* cut when names are long: it is shown only */
	va_end(ap);
	v->state = state;
	FMT(v->reason, "%s: %s", fronts[state], text);
	return true;
}

static const char *word(const char *s)
{
	return s == NULL ? "" : s;
}

/* A checkpoint that was not finished when the trainer went on to the next one is abandoned. */
static bool is_left_behind(const struct ckpt_facts *f)
{
	return f->gone != CKPT_THERE || (f->newer_complete && f->writer == NULL);
}

/* SYNCING, or INCOMPLETE when nothing can come any more. */
PRINTF(4, 5)
static bool lacks(const struct ckpt_facts *f, struct ckpt_verdict *v, bool over, const char *fmt,
                  ...)
{
	char text[CKPT_REASON_MAX - 100];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f->end == CKPT_RUNNING && !over)
		return say(v, CKPT_SYNCING, "%s", text);
	if (f->end == CKPT_RUNNING && f->gone != CKPT_THERE)
		return say(v, CKPT_INCOMPLETE, "removed by the trainer before it was whole (%s)",
		           text);
	return say(v, CKPT_INCOMPLETE, "%s", text);
}

/* COMPLETE after so much quiet, and at once when the processes are gone. */
static bool after(const struct ckpt_facts *f, struct ckpt_verdict *v, int64_t quiet_ms)
{
	if (f->remote && quiet_ms > 0)
		quiet_ms = MAX(quiet_ms * REMOTE_FACTOR, (int64_t)QUIET_REMOTE_MIN_MS);
	if (f->end != CKPT_RUNNING || f->quiet_ms >= quiet_ms)
		return true;
	v->wait_ms = quiet_ms - f->quiet_ms;
	if (f->remote)
		v->row = 11;
	say(v, CKPT_SYNCING, "nothing is missing, waiting for %" PRId64 " s without a change",
	    (quiet_ms + 999) / 1000);
	return false;
}

static bool row_unfinished(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	if (f->unfinished == NULL)
		return false;
	return lacks(f, v, is_left_behind(f), "unfinished: %s", f->unfinished);
}

static bool row_torn(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	const char *why = f->torn_why != NULL ? f->torn_why : "is damaged";
	bool over = is_left_behind(f);

	if (f->torn != NULL && f->cut != NULL && strcmp(f->torn, f->cut) == 0)
		return lacks(f, v, over, "the job ended while %s was written (%s)", f->torn, why);
	if (f->torn != NULL)
		return lacks(f, v, over, "%s %s", f->torn, why);
	if (f->n_missing > 1)
		return lacks(f, v, over, "%s and %zu more are missing", word(f->missing),
		             f->n_missing - 1);
	if (f->n_missing == 1 || f->missing != NULL)
		return lacks(f, v, over, "%s is missing", word(f->missing));
	return false;
}

/* After a violent end a descriptor tells nothing: the kernel closed all of them. */
static bool row_writer(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	if (f->end == CKPT_ENDED_OK && f->cut != NULL)
		return say(v, CKPT_INCOMPLETE,
		           "the commands ended while another process of the job was writing %s",
		           f->cut);
	if (f->writer == NULL || f->end == CKPT_ENDED_BADLY)
		return false;
	return say(v, CKPT_SYNCING, "%s is open for writing", f->writer);
}

/* "7 files checked", "5 files checked, 2 of a format not known" */
static void say_files(const struct ckpt_facts *f, size_t checked, char *out, size_t cap)
{
	if (f->n_checked < f->n_files)
		(void)snprintf(out, cap, "%zu file%s checked, %zu of a format not known", checked,
		               checked == 1 ? "" : "s", f->n_files - f->n_checked);
	else
		(void)snprintf(out, cap, "%zu file%s checked", checked, checked == 1 ? "" : "s");
}

static bool row_last(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	char files[100];

	if (f->last != CKPT_LAST_NEWEST)
		return false;
	if (!after(f, v, f->gone != CKPT_THERE ? 0 : QUIET_LAST_MS))
		return true;
	if (f->proof != NULL)
		return say(v, CKPT_COMPLETE, "%s", f->proof);
	say_files(f, f->n_checked - (f->n_checked > 0), files, sizeof(files));
	return say(v, CKPT_COMPLETE, "%s and %s", word(f->last_name), files);
}

static bool row_published(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	char files[100];

	if (!f->published)
		return false;
	say_files(f, f->n_checked, files, sizeof(files));
	if (f->last == CKPT_LAST_ABSENT || f->last == CKPT_LAST_OLD)
		return false;
	return say(v, CKPT_COMPLETE, "published by rename, %s%s%s", word(f->proof),
	           f->proof != NULL ? ", " : "", files);
}

static bool names_same(const struct ckpt_facts *f)
{
	return f->names == CKPT_NAMES_SAME;
}

/* The evidence from time or names, where there is no last file. */
static void say_how(const struct ckpt_facts *f, char *out, size_t cap)
{
	if (f->end == CKPT_ENDED_OK)
		(void)snprintf(out, cap, "the job ended normally");
	else if (names_same(f) && f->sibling != NULL)
		(void)snprintf(out, cap, "same names as %s", f->sibling);
	else if (f->gone != CKPT_THERE)
		(void)snprintf(out, cap, "at rest until the trainer removed it");
	else if (f->newer_begun)
		(void)snprintf(out, cap, "a newer one has begun");
	else
		(void)snprintf(out, cap, "quiet for %" PRId64 " s", f->quiet_ms / 1000);
}

static bool row_copied(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	const char *what = f->model_only ? "weights without an optimizer" : "copied in";
	size_t others = f->n_files - (f->n_files > 0);
	int64_t quiet_ms = f->settle_ms > 0 ? f->settle_ms : QUIET_MS;
	char files[100], how[CKPT_REASON_MAX];

	if (f->last != CKPT_LAST_COPIED)
		return false;
	if (f->end == CKPT_ENDED_BADLY && !f->proven && !names_same(f)) {
		v->doubt = true;
		return say(v, CKPT_INCOMPLETE,
		           "%s, and the job did not end normally: nothing proves that %s "
		           "and %zu "
		           "other file%s are all",
		           what, word(f->last_name), others, others == 1 ? "" : "s");
	}
	if (!after(f, v, f->gone != CKPT_THERE ? 0 : quiet_ms))
		return true;
	say_files(f, f->n_checked, files, sizeof(files));
	say_how(f, how, sizeof(how));
	return say(v, CKPT_COMPLETE, "%s, %s, %s%s%s", what, how, files,
	           f->proof != NULL ? ", " : "", word(f->proof));
}

static bool row_saved_over(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	if (f->last != CKPT_LAST_OLD)
		return false;
	if (f->end != CKPT_RUNNING || f->gone != CKPT_THERE)
		return say(v, CKPT_INCOMPLETE,
		           "it was being saved over: %s is still the one of before",
		           word(f->last_name));
	return f->shown != NULL
	               ? say(v, CKPT_SYNCING, "being saved over, showing the one of %s", f->shown)
	               : say(v, CKPT_SYNCING, "being saved over");
}

static bool row_no_last(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	if (f->last != CKPT_LAST_ABSENT)
		return false;
	if (f->end == CKPT_RUNNING && !is_left_behind(f))
		return say(v, CKPT_SYNCING, "waiting for %s", word(f->last_name));
	return lacks(f, v, true, "%s never came", word(f->last_name));
}

static bool early(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	if (f->gone != CKPT_GONE_EARLY || f->end != CKPT_RUNNING || f->single)
		return false;
	return say(v, CKPT_INCOMPLETE, "removed by the trainer before it was whole");
}

static bool row_markerless(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	int64_t quiet_ms = QUIET_MS;
	char files[100], how[CKPT_REASON_MAX];

	if (!f->known)
		return false;
	if (early(f, v))
		return true;
	if (f->end == CKPT_ENDED_BADLY && f->cut != NULL)
		return say(v, CKPT_INCOMPLETE, "the job ended while %s was written, or just after",
		           f->cut);
	/* Not even a list of shards: a merge in place has all of them from its first moment. */
	if (f->end == CKPT_ENDED_BADLY && !names_same(f) && !f->single) {
		v->doubt = true;
		return say(
			v, CKPT_INCOMPLETE,
			"the job did not end normally, and nothing proves that %s %zu file%s all "
			"(this trainer writes no marker)",
			f->n_files == 1 ? "this" : "these", f->n_files,
			f->n_files == 1 ? " is" : "s are");
	}
	if (f->settle_ms > 0)
		quiet_ms = f->settle_ms;
	else if (f->single)
		quiet_ms = QUIET_ONE_MS;
	else if (names_same(f))
		quiet_ms = QUIET_SAME_MS;
	if (f->newer_begun || f->gone != CKPT_THERE)
		quiet_ms = 0;
	if (!after(f, v, quiet_ms))
		return true;
	say_files(f, f->n_checked, files, sizeof(files));
	say_how(f, how, sizeof(how));
	return say(v, CKPT_COMPLETE, "%s, %s (this trainer writes no marker)", files,
	           f->proof != NULL ? f->proof : how);
}

static int64_t unknown_quiet_ms(const struct ckpt_facts *f)
{
	int64_t learnt = MIN(f->pause_ms * PAUSE_FACTOR, QUIET_LEARNT_MAX_MS);

	if (f->gone != CKPT_THERE)
		return 0;
	return f->settle_ms > 0 ? f->settle_ms : MAX((int64_t)QUIET_MS, learnt);
}

static bool row_unknown(const struct ckpt_facts *f, struct ckpt_verdict *v)
{
	bool fewer = f->names == CKPT_NAMES_FEWER && f->settle_ms == 0;
	char how[CKPT_REASON_MAX];

	if (early(f, v))
		return true;
	if (f->end == CKPT_ENDED_BADLY && f->cut != NULL)
		return say(v, CKPT_INCOMPLETE,
		           "the job ended while %s was written, or just after, format not "
		           "known",
		           f->cut);
	if (f->end == CKPT_ENDED_BADLY && !names_same(f)) {
		v->doubt = true;
		return say(v, CKPT_INCOMPLETE,
		           "format not known, and the job did not end normally: nothing proves "
		           "that it "
		           "is whole");
	}
	if (f->end == CKPT_RUNNING && fewer && !f->newer_begun && f->gone == CKPT_THERE)
		return say(v, CKPT_SYNCING, "fewer files than %s had", word(f->sibling));
	if (!after(f, v, unknown_quiet_ms(f)))
		return true;
	say_how(f, how, sizeof(how));
	return say(v, CKPT_COMPLETE, "format not known, %s", how);
}

void ckpt_judge(const struct ckpt_facts *f, struct ckpt_verdict *out)
{
	static const struct {
		int row;
		bool (*fits)(const struct ckpt_facts *f, struct ckpt_verdict *v);
	} rows[] = {
		{1, row_unfinished}, {2, row_torn},     {3, row_writer},     {4, row_last},
		{5, row_published},  {6, row_copied},   {7, row_saved_over}, {8, row_no_last},
		{9, row_markerless}, {10, row_unknown},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		*out = (struct ckpt_verdict){.row = rows[i].row};
		if (rows[i].fits(f, out))
			return;
	}
	assert(false && "row 10 fits always");
}

/* The first part of which `is` is true; -1: none. */
static int find_part(const struct ckpt_union *u,
                     bool (*is)(const struct ckpt_union *u, const struct ckpt_part *p))
{
	for (size_t i = 0; i < u->n_parts; i++)
		if (is(u, &u->part[i]))
			return (int)i;
	return -1;
}

/* The lists of another part may prove what this part alone cannot. */
static bool is_bad(const struct ckpt_union *u, const struct ckpt_part *p)
{
	return p->there && p->state == CKPT_INCOMPLETE && !(p->doubt && u->proven);
}

static bool is_coming(const struct ckpt_union *u UNUSED, const struct ckpt_part *p)
{
	return p->there && p->state == CKPT_SYNCING;
}

static bool is_running(const struct ckpt_union *u UNUSED, const struct ckpt_part *p)
{
	return p->end == CKPT_RUNNING;
}

static bool say_of(struct ckpt_verdict *v, enum ckpt_state state, const struct ckpt_union *u, int i)
{
	const char *reason = u->part[i].reason, *colon = strstr(word(reason), ": ");

	return say(v, state, "node %d: %s", i, colon != NULL ? colon + 2 : word(reason));
}

static bool say_missing(struct ckpt_verdict *v, enum ckpt_state state, const struct ckpt_union *u)
{
	if (u->n_missing > 1)
		return say(v, state, "%s and %zu more are missing on all nodes", word(u->missing),
		           u->n_missing - 1);
	return say(v, state, "%s is missing on all nodes", word(u->missing));
}

/* Nodes without files of it: COMPLETE waits for those that owe some. */
static bool is_owed(const struct ckpt_union *u, size_t i)
{
	const struct ckpt_part *p = &u->part[i];

	if (p->there || u->proven)
		return false;
	if (u->sibling)
		return p->was;
	return true; /* the first one: until the next begins, or the job has ended */
}

static bool judge_absent(const struct ckpt_union *u, struct ckpt_verdict *v)
{
	for (size_t i = 0; i < u->n_parts; i++) {
		const struct ckpt_part *p = &u->part[i];

		if (!is_owed(u, i))
			continue;
		if (p->end == CKPT_ENDED_BADLY || (p->end == CKPT_ENDED_OK && p->was))
			return say(v, CKPT_INCOMPLETE, "node %zu ended without its part", i);
		if (p->end == CKPT_ENDED_OK || (!u->sibling && u->newer_begun))
			continue;
		if (u->newer_complete)
			return say(v, CKPT_INCOMPLETE, "node %zu went on without its part", i);
		return say(v, CKPT_SYNCING, "waiting for node %zu", i);
	}
	return false;
}

/* Before this a part was written for a save that another one has replaced. */
static int64_t oldest_of_one_save(const struct ckpt_union *u)
{
	int64_t oldest = 0;

	for (size_t i = 0; i < u->n_parts; i++) {
		const struct ckpt_part *p = &u->part[i];
		int64_t slack = MAX((p->began_ms - p->before_ms) / PAUSE_SHARE, CKPT_CLOCKS_MS);

		if (p->there && p->before_ms != 0)
			oldest = MAX(oldest, p->began_ms - slack);
	}
	return oldest;
}

static bool judge_saves(const struct ckpt_union *u, struct ckpt_verdict *v)
{
	int64_t oldest = oldest_of_one_save(u);

	for (size_t i = 0; i < u->n_parts; i++) {
		const struct ckpt_part *p = &u->part[i];
		bool once = p->before_ms == 0 && p->end == CKPT_ENDED_OK;

		if (!p->there || p->ended_ms == 0 || p->ended_ms >= oldest || once)
			continue;
		v->row = 7;
		if (p->end == CKPT_RUNNING && !u->newer_complete)
			return say(v, CKPT_SYNCING, "being saved over, waiting for node %zu", i);
		return say(v, CKPT_INCOMPLETE,
		           "it was being saved over: node %zu %s with the one of before", i,
		           p->end == CKPT_RUNNING ? "went on" : "ended");
	}
	return false;
}

void ckpt_judge_union(const struct ckpt_union *u, struct ckpt_verdict *out)
{
	bool live = find_part(u, is_running) >= 0;
	bool over = !live || u->newer_complete;
	int i;

	*out = (struct ckpt_verdict){.row = 2};
	i = find_part(u, is_bad);
	if (i < 0 && judge_saves(u, out)) /* files of two saves differ, which says nothing */
		return;
	if (u->torn != NULL) {
		say(out, CKPT_INCOMPLETE, "%s %s", u->torn, word(u->torn_why));
		return;
	}
	if (i >= 0) {
		out->row = u->part[i].row;
		say_of(out, CKPT_INCOMPLETE, u, i);
		return;
	}
	i = find_part(u, is_coming);
	if (i >= 0) {
		out->row = u->part[i].row;
		say_of(out, u->part[i].end == CKPT_RUNNING ? CKPT_SYNCING : CKPT_INCOMPLETE, u, i);
		return;
	}
	if (judge_absent(u, out))
		return;
	if (u->n_missing > 0) {
		say_missing(out, over ? CKPT_INCOMPLETE : CKPT_SYNCING, u);
		return;
	}
	out->row = 8;
	if (u->last_name != NULL && !u->last_there) {
		if (over)
			say(out, CKPT_INCOMPLETE, "%s never came", u->last_name);
		else
			say(out, CKPT_SYNCING, "waiting for %s", u->last_name);
		return;
	}
	/* The rows of the parts decided; the weakest of them is named. */
	out->row = 0;
	for (size_t k = 0; k < u->n_parts; k++)
		if (u->part[k].there)
			out->row = MAX(out->row, u->part[k].row);
	if (u->proof != NULL)
		say(out, CKPT_COMPLETE, "%zu files of %zu nodes, %s", u->n_files, u->n_parts,
		    u->proof);
	else
		say(out, CKPT_COMPLETE, "%zu files of %zu nodes checked%s%s", u->n_files,
		    u->n_parts, u->last_name != NULL ? ", with " : "", word(u->last_name));
}

void ckpt_overrule(const char *principal, struct ckpt_verdict *out)
{
	*out = (struct ckpt_verdict){.row = 0};
	say(out, CKPT_COMPLETE, "marked by %s", principal);
}
