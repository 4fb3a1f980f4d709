/* job.c - the job's states: one table of words, one table of transitions, one function that steps.
 */
#include "core/job.h"

#include "base/units.h"

#define STATUS "TRAINING_JOB_" /* before what clients see */

/* clang-format off */
static const struct {
	const char *name; /* what clients see */
	const char *word; /* what is stored */
	bool placed;      /* holds CPUs, memory, GPUs */
	bool final;
} states[JOB_STATE_COUNT] = {
	[JOB_PENDING]            = {STATUS "PENDING",       "pending",            false, false},
	[JOB_CREATED]            = {STATUS "CREATED",       "created",            true,  false},
	[JOB_DEPLOYING]          = {STATUS "DEPLOYING",     "deploying",          true,  false},
	[JOB_RUNNING]            = {STATUS "RUNNING",       "running",            true,  false},
	[JOB_STOPPING_DEPLOYING] = {STATUS "DEPLOYING",     "stopping-deploying", true,  false},
	[JOB_STOPPING]           = {STATUS "RUNNING",       "stopping",           true,  false},
	[JOB_COMPLETED]          = {STATUS "COMPLETED",     "completed",          false, true},
	[JOB_DEPLOY_FAILED]      = {STATUS "DEPLOY_FAILED", "deploy-failed",      false, true},
	[JOB_FAILED]             = {STATUS "FAILED",        "failed",             false, true},
	[JOB_STOPPED]            = {STATUS "STOPPED",       "stopped",            false, true},
};

static const struct {
	const char *name;
	const char *done; /* "a job that is ... cannot be ..." */
} events[JOB_EVENT_COUNT] = {
	[JOB_EV_PLACE]    = {"place",    "placed"},
	[JOB_EV_RESOLVE]   = {"freeze",   "frozen"},
	[JOB_EV_READY]    = {"ready",    "started"},
	[JOB_EV_EXIT_OK]  = {"exit-ok",  "completed"},
	[JOB_EV_EXIT_BAD] = {"exit-bad", "failed"},
	[JOB_EV_RETRY]    = {"retry",    "tried again"},
	[JOB_EV_STOP]     = {"stop",     "stopped"},
	[JOB_EV_UNPLACE]  = {"unplace",  "given another place"},
	[JOB_EV_LOST]     = {"lost",     "lost"},
};

static const struct {
	const char *word;
	const char *text; /* without code and detail */
} ends[JOB_END_COUNT] = {
	[JOB_END_NONE]          = {"none",          "has not ended"},
	[JOB_END_EXIT]          = {"exit",          "exit code"},
	[JOB_END_SIGNAL]        = {"signal",        "killed by"},
	[JOB_END_OOM]           = {"oom",           "out of memory"},
	[JOB_END_OOM_CUDA]      = {"oom-cuda",      "out of GPU memory"},
	[JOB_END_TIMEOUT]       = {"timeout",       "ran longer than limits.max_duration"},
	[JOB_END_IDLE]          = {"idle",          "idle GPUs for"},
	[JOB_END_DISK]          = {"disk",          "over a limit of the disk"},
	[JOB_END_STOPPED]       = {"stopped",       "stopped"},
	[JOB_END_DEPLOY_FAILED] = {"deploy-failed", "failed before user code ran"},
	[JOB_END_LOST]          = {"lost",          "the runner or its machine was lost"},
	[JOB_END_RUNNER]        = {"runner",        "a platform fault, not the job's"},
};

/* Next state + 1; 0 is "not legal here". Every transition of the product is on this page.
 *
 * A pending job fails when it could never be placed. A placed job may lose its node while it is
 * still mirroring. A stopping gang may still report ready: the stop overtook it. */
#define TO(s) ((s) + 1)
static const uint8_t next[JOB_STATE_COUNT][JOB_EVENT_COUNT] = {
	[JOB_PENDING] = {
		[JOB_EV_PLACE]    = TO(JOB_CREATED),
		[JOB_EV_EXIT_BAD] = TO(JOB_DEPLOY_FAILED),
		[JOB_EV_STOP]     = TO(JOB_STOPPED),
	},
	[JOB_CREATED] = {
		[JOB_EV_RESOLVE]   = TO(JOB_DEPLOYING),
		[JOB_EV_EXIT_BAD] = TO(JOB_DEPLOY_FAILED),
		[JOB_EV_STOP]     = TO(JOB_STOPPED),
		[JOB_EV_UNPLACE]  = TO(JOB_PENDING),
		[JOB_EV_LOST]     = TO(JOB_PENDING),
	},
	[JOB_DEPLOYING] = {
		[JOB_EV_READY]    = TO(JOB_RUNNING),
		[JOB_EV_EXIT_BAD] = TO(JOB_DEPLOY_FAILED),
		[JOB_EV_RETRY]    = TO(JOB_PENDING),
		[JOB_EV_STOP]     = TO(JOB_STOPPING_DEPLOYING),
		[JOB_EV_UNPLACE]  = TO(JOB_PENDING),
		[JOB_EV_LOST]     = TO(JOB_PENDING),
	},
	[JOB_RUNNING] = {
		[JOB_EV_EXIT_OK]  = TO(JOB_COMPLETED),
		[JOB_EV_EXIT_BAD] = TO(JOB_FAILED),
		[JOB_EV_RETRY]    = TO(JOB_PENDING),
		[JOB_EV_STOP]     = TO(JOB_STOPPING),
		[JOB_EV_LOST]     = TO(JOB_PENDING),
	},
	[JOB_STOPPING_DEPLOYING] = {
		[JOB_EV_READY]    = TO(JOB_STOPPING_DEPLOYING),
		[JOB_EV_EXIT_OK]  = TO(JOB_STOPPED),
		[JOB_EV_EXIT_BAD] = TO(JOB_STOPPED),
		[JOB_EV_RETRY]    = TO(JOB_STOPPED),
		[JOB_EV_STOP]     = TO(JOB_STOPPING_DEPLOYING),
		[JOB_EV_LOST]     = TO(JOB_STOPPED),
	},
	[JOB_STOPPING] = {
		[JOB_EV_EXIT_OK]  = TO(JOB_STOPPED),
		[JOB_EV_EXIT_BAD] = TO(JOB_STOPPED),
		[JOB_EV_RETRY]    = TO(JOB_STOPPED),
		[JOB_EV_STOP]     = TO(JOB_STOPPING),
		[JOB_EV_LOST]     = TO(JOB_STOPPED),
	},
};
/* clang-format on */

const struct words job_statuses = WORDS("a status of a job", states[0].name, states);
static const struct words state_words = WORDS("a state of a job", states[0].word, states);
const struct words job_ends = WORDS("an end of an attempt", ends[0].word, ends);

/* Statuses that clients know and no state of ours has. */
static const char *const foreign[] = {STATUS "QUEUED", STATUS "PREEMPTED"};

const char *job_state_name(enum job_state s)
{
	assert(s < JOB_STATE_COUNT);
	return states[s].name;
}

const char *job_state_word(enum job_state s)
{
	return words_at(&state_words, s);
}

int job_state_parse(struct str word, enum job_state *out, struct err *err)
{
	int i = words_parse(&state_words, word, ERR_CORRUPT, err);

	*out = (enum job_state)MAX(i, 0);
	return MIN(i, 0);
}

/* "running" and "TRAINING_JOB_RUNNING" both name the status. */
static bool is_status(struct str status, const char *name)
{
	return str_ieq(status, name) || str_ieq(status, name + sizeof(STATUS) - 1);
}

uint32_t job_states_of_status(struct str status, bool *known)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if (is_status(status, states[s].name))
			set |= UINT32_C(1) << s;
	}
	*known = set != 0;
	for (size_t i = 0; i < COUNT(foreign); i++)
		*known = *known || is_status(status, foreign[i]);
	return set;
}

bool job_state_is_final(enum job_state s)
{
	assert(s < JOB_STATE_COUNT);
	return states[s].final;
}

bool job_state_is_placed(enum job_state s)
{
	assert(s < JOB_STATE_COUNT);
	return states[s].placed;
}

bool job_state_is_stopping(enum job_state s)
{
	assert(s < JOB_STATE_COUNT);
	return s == JOB_STOPPING || s == JOB_STOPPING_DEPLOYING;
}

uint32_t job_states_placed(void)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if (states[s].placed)
			set |= UINT32_C(1) << s;
	}
	return set;
}

uint32_t job_states_active(void)
{
	uint32_t set = 0;

	for (unsigned s = 0; s < JOB_STATE_COUNT; s++)
		set |= job_state_is_final((enum job_state)s) ? 0 : UINT32_C(1) << s;
	return set;
}

const char *job_event_name(enum job_event e)
{
	assert(e < JOB_EVENT_COUNT);
	return events[e].name;
}

const char *job_end_word(enum job_end e)
{
	return words_at(&job_ends, e);
}

int job_end_parse(struct str word, enum job_end *out, struct err *err)
{
	int i = words_parse(&job_ends, word, ERR_CORRUPT, err);

	*out = (enum job_end)MAX(i, 0);
	return MIN(i, 0);
}

void job_end_describe(enum job_end end, int code, const char *detail, char *out, size_t cap)
{
	bool more = detail != NULL && detail[0] != '\0';
	const char *signal_name = end == JOB_END_SIGNAL ? sigabbrev_np(code) : NULL;
	char what[100], span[UNITS_CAP];

	assert(end < JOB_END_COUNT);
	if (end == JOB_END_EXIT)
		FMT(what, "%s %d", ends[end].text, code);
	else if (end == JOB_END_IDLE)
		FMT(what, "%s %s", ends[end].text,
		    units_show_seconds((uint64_t)MAX(code, 0), span));
	else if (signal_name != NULL)
		FMT(what, "%s SIG%s", ends[end].text, signal_name);
	else if (end == JOB_END_SIGNAL)
		FMT(what, "%s signal %d", ends[end].text, code);
	else
		FMT(what, "%s", ends[end].text);
	/* Shown to people only: what does not fit is cut. */
	(void)snprintf(out, cap, "%s%s%s", what, more ? ": " : "", more ? detail : "");
}

void job_check(const struct job_core *j)
{
	assert(j->state < JOB_STATE_COUNT);
	assert(j->attempt_max > 0);
	assert(j->attempt <= j->attempt_max);
	if (states[j->state].placed)
		assert(j->attempt > 0);
	if (j->state == JOB_PENDING)
		assert(j->attempt < j->attempt_max);
}

int job_step(struct job_core *j, enum job_event ev, int64_t now_ms, struct err *err)
{
	enum job_state to;

	job_check(j);
	assert(ev < JOB_EVENT_COUNT);

	if (next[j->state][ev] == 0)
		return err_set(err, ERR_CONFLICT, "a job that is %s cannot be %s",
		               states[j->state].word, events[ev].done);
	to = (enum job_state)(next[j->state][ev] - 1);
	j->attempt -= ev == JOB_EV_UNPLACE;
	if (to == JOB_PENDING && j->attempt == j->attempt_max) /* no attempt left */
		to = j->state == JOB_RUNNING ? JOB_FAILED : JOB_DEPLOY_FAILED;

	j->attempt += ev == JOB_EV_PLACE;
	if (to != j->state)
		j->changed_ms = now_ms;
	j->state = to;
	job_check(j);
	return 0;
}
