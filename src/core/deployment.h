/*
 * deployment.h - a deployment: jobs that serve one checkpoint under one name. How many of them
 * there should be, which of them go, and what people see of it, by facts alone. Pure;
 * server/control/deployments.h takes the steps.
 */
#ifndef DEPLOYMENT_H
#define DEPLOYMENT_H

#include "base/base.h"
#include "base/buf.h"

#define DEPLOYMENT_REPLICAS_MAX 64
#define DEPLOYMENT_IDLE_MAX_S (30 * 86400)
#define DEPLOYMENT_PARTS_MAX 16 /* checkpoints of one server: adapters of one base model */

enum deployment_wanted {
	DEPLOYMENT_RUN,
	DEPLOYMENT_STOP,  /* until a person starts it */
	DEPLOYMENT_SLEEP, /* until a request comes */
	DEPLOYMENT_WANTED_COUNT,
};
extern const char *const deployment_wanted_word[DEPLOYMENT_WANTED_COUNT]; /* as it is stored */
bool deployment_wanted_parse(struct str word, enum deployment_wanted *out);

/* A revision is what one `deploy` asks for: its jobs are alike. */
struct deployment_facts {
	/* what people want */
	enum deployment_wanted wanted;
	uint32_t replicas;
	bool replace; /* the jobs of an older revision go before those of this one are ready */
	int64_t idle_most_ms; /* 0: it never goes to sleep */
	size_t failed; /* of this revision, since it was last started: they ended by themselves */
	/* jobs that go on, where requests can reach them; ready: they take some */
	size_t current, current_placed, current_ready;
	/* in_place: it is ready, has been, or the server has started and not heard of it yet */
	size_t old, old_ready, old_in_place;
	size_t unheard; /* of both: they run, and the server has started and not heard of them */
	size_t in_flight;
	int64_t idle_ms; /* since the last request, or since the first job was ready */
};
/* The jobs, from what is known of each; the rest is set. */
struct model_replica;
void deployment_count(struct deployment_facts *f, uint32_t revision, const struct model_replica *r,
                      size_t n);

struct deployment_step {
	size_t start;                   /* jobs of this revision */
	size_t stop;                    /* the same: those that do not serve first */
	bool stop_old, stop_old_absent; /* all of them; those that are not in place */
	bool sleep;
};
struct deployment_step deployment_step(const struct deployment_facts *f);

enum deployment_fate {
	DEPLOYMENT_STAYS,  /* or ends anyway */
	DEPLOYMENT_UNDONE, /* there are more than there should be */
	DEPLOYMENT_ROLLED, /* it is of an older revision */
	DEPLOYMENT_REMOTE, /* no request reaches the machine where it runs */
};
/* What becomes of each of these, the newest first. */
void deployment_choose(const struct deployment_step *s, uint32_t revision,
                       const struct model_replica *r, size_t n, enum deployment_fate *out);

enum deployment_state {
	DEPLOYMENT_CREATED,  /* its jobs wait for room */
	DEPLOYMENT_STARTING, /* they start, and take no requests yet */
	DEPLOYMENT_READY,    /* one at least takes requests, perhaps of the revision before */
	DEPLOYMENT_FAILED,
	DEPLOYMENT_STOPPED,
	DEPLOYMENT_SCALED_TO_ZERO,
	DEPLOYMENT_STATES,
};
extern const char *const deployment_state_word[DEPLOYMENT_STATES];
enum deployment_state deployment_state(const struct deployment_facts *f);

#endif
