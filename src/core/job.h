/*
 * job.h - what a job is and which changes of state are legal. Pure: no I/O, no clock, no threads;
 * server/ stores the outcome by compare-and-set, the runner and the engine report the events.
 *
 *   PENDING -> CREATED -> DEPLOYING -> RUNNING -> COMPLETED
 *
 * CREATED is mirroring: nothing is launched, so a stop ends it at once, as in PENDING. Once runners
 * exist a stop is STOPPING (shown as the state before), and whatever end they or the engine report
 * is STOPPED. A bad end before user code ran is DEPLOY_FAILED, after it FAILED. A lost attempt (the
 * engine's own evidence, never a missed heartbeat) or an exit that the job's retry rule names is
 * PENDING again until the attempts are used up.
 */
#ifndef JOB_H
#define JOB_H

#include "base/words.h"

enum job_state {
	JOB_PENDING,
	JOB_CREATED,
	JOB_DEPLOYING,
	JOB_RUNNING,
	JOB_STOPPING_DEPLOYING, /* a stop was asked while DEPLOYING */
	JOB_STOPPING,           /* a stop was asked while RUNNING */
	JOB_COMPLETED,
	JOB_DEPLOY_FAILED,
	JOB_FAILED,
	JOB_STOPPED,
	JOB_STATE_COUNT,
};

enum job_event {
	JOB_EV_PLACE,    /* the whole gang has its place */
	JOB_EV_RESOLVE,  /* every source resolved and mirrored, manifests frozen */
	JOB_EV_READY,    /* every runner staged and passed its preflight: user code may start */
	JOB_EV_EXIT_OK,  /* exit record says 0 and the last checkpoint is verified in the store */
	JOB_EV_EXIT_BAD, /* a bad end of any kind */
	JOB_EV_RETRY,    /* a bad end that the job's retry rule names */
	JOB_EV_STOP,     /* a person asked */
	JOB_EV_UNPLACE,  /* its node is gone before anything was launched there: no attempt was made
	                  */
	JOB_EV_LOST,     /* the engine's evidence: the runner is gone and left no exit record */
	JOB_EVENT_COUNT,
};

/* Why an attempt ended: an enum, not an int; platform faults never pass as the user's. */
enum job_end {
	JOB_END_NONE,
	JOB_END_EXIT,     /* code */
	JOB_END_SIGNAL,   /* code = signal */
	JOB_END_OOM,      /* the memory limit of the job */
	JOB_END_OOM_CUDA, /* said by the framework, not the kernel */
	JOB_END_TIMEOUT,  /* limits.max_duration */
	JOB_END_IDLE,     /* limits.idle_gpu; code = its seconds */
	JOB_END_DISK,     /* more of the disk than it may have */
	JOB_END_STOPPED,
	JOB_END_DEPLOY_FAILED, /* before user code: stage in the message */
	JOB_END_LOST,          /* runner or machine gone */
	JOB_END_RUNNER,        /* fault of the platform itself */
	JOB_END_COUNT,
};

/* The part of a job's row that the state machine owns. */
struct job_core {
	enum job_state state;
	uint32_t attempt, attempt_max; /* attempts made so far (1 with the first place), allowed */
	int64_t changed_ms;
};

const char *job_state_name(enum job_state s); /* what clients see: TRAINING_JOB_RUNNING */
const char *
job_state_word(enum job_state s); /* what is stored: "running", "stopping", ... unique */
int job_state_parse(struct str word, enum job_state *out,
                    struct err *err) MUST_CHECK; /* stored word */
/* The states that a client's status word stands for, as a bit set; 0 = no such status. Also takes
 * TRAINING_JOB_QUEUED and TRAINING_JOB_PREEMPTED (no state of ours: an empty but known set). */
uint32_t job_states_of_status(struct str status, bool *known);
bool job_state_is_final(enum job_state s);
bool job_state_is_placed(enum job_state s);   /* holds CPUs, memory, GPUs */
bool job_state_is_stopping(enum job_state s); /* a stop was asked, and it has not ended */
uint32_t job_states_placed(void);             /* bit set of those */
uint32_t job_states_active(void);             /* of those that are not final */
const char *job_event_name(enum job_event e);
extern const struct words job_statuses; /* by state; what clients see: some are one */
extern const struct words job_ends;
const char *job_end_word(enum job_end e); /* "exit", "signal", "oom", ... */
int job_end_parse(struct str word, enum job_end *out, struct err *err) MUST_CHECK;
/* "exit code 3", "killed by SIGSEGV", "out of memory: 64.0 of 64.0 GiB" ... into out. */
void job_end_describe(enum job_end end, int code, const char *detail, char *out, size_t cap);

void job_check(const struct job_core *j);
/* ERR_CONFLICT where the event is not legal; *j is untouched then. */
int job_step(struct job_core *j, enum job_event ev, int64_t now_ms, struct err *err) MUST_CHECK;

#endif
