/* deployment.c - see deployment.h. */
#include "core/deployment.h"

#include "core/model.h"

const char *const deployment_wanted_word[DEPLOYMENT_WANTED_COUNT] = {
	[DEPLOYMENT_RUN] = "run",
	[DEPLOYMENT_STOP] = "stop",
	[DEPLOYMENT_SLEEP] = "sleep",
};

const char *const deployment_state_word[DEPLOYMENT_STATES] = {
	[DEPLOYMENT_CREATED] = "CREATED", [DEPLOYMENT_STARTING] = "STARTING",
	[DEPLOYMENT_READY] = "READY",     [DEPLOYMENT_FAILED] = "FAILED",
	[DEPLOYMENT_STOPPED] = "STOPPED", [DEPLOYMENT_SCALED_TO_ZERO] = "SCALED_TO_ZERO",
};

bool deployment_wanted_parse(struct str word, enum deployment_wanted *out)
{
	for (int i = 0; i < DEPLOYMENT_WANTED_COUNT; i++) {
		if (!str_eq(word, deployment_wanted_word[i]))
			continue;
		*out = (enum deployment_wanted)i;
		return true;
	}
	return false;
}

static void facts_check(const struct deployment_facts *f)
{
	assert(f->replicas >= 1 && f->replicas <= DEPLOYMENT_REPLICAS_MAX);
	assert(f->current_ready <= f->current_placed && f->current_placed <= f->current);
	assert(f->old_ready <= f->old_in_place && f->old_in_place <= f->old);
	assert(f->unheard <= f->current_placed + f->old_in_place);
	(void)f;
}

/* A port of another machine: after a takeover. */
static bool is_remote(const struct model_replica *r)
{
	return job_state_is_placed(r->state) && !r->here;
}

static bool goes_on(const struct model_replica *r)
{
	return !job_state_is_stopping(r->state) && !is_remote(r);
}

static bool is_unheard(const struct model_replica *r)
{
	return r->state == JOB_RUNNING && !r->heard;
}

static bool is_in_place(const struct model_replica *r)
{
	return r->state == JOB_RUNNING && (!r->heard || r->served);
}

void deployment_count(struct deployment_facts *f, uint32_t revision, const struct model_replica *r,
                      size_t n)
{
	f->idle_ms = INT64_MAX;
	for (size_t i = 0; i < n; i++) {
		size_t ready = r[i].serves ? 1 : 0, placed = job_state_is_placed(r[i].state);

		if (!goes_on(&r[i]))
			continue;
		if (r[i].revision == revision) {
			f->current++;
			f->current_placed += placed;
			f->current_ready += ready;
		} else {
			f->old++;
			f->old_ready += ready;
			f->old_in_place += is_in_place(&r[i]) ? 1 : 0;
		}
		f->unheard += is_unheard(&r[i]) ? 1 : 0;
		f->in_flight += r[i].in_flight;
		if (r[i].serves)
			f->idle_ms = MIN(f->idle_ms, r[i].idle_ms);
	}
	facts_check(f);
}

struct deployment_step deployment_step(const struct deployment_facts *f)
{
	struct deployment_step s = {0};
	size_t wanted = f->replicas - MIN(f->failed, (size_t)f->replicas);

	facts_check(f);
	if (f->wanted != DEPLOYMENT_RUN) {
		s.stop = f->current;
		s.stop_old = f->old > 0;
		return s;
	}
	/* one that has failed for good is not replaced: its own retries have been taken */
	s.start = wanted - MIN(wanted, f->current);
	s.stop = f->current - MIN(f->current, (size_t)f->replicas);
	/* a revision that fails altogether leaves the one before in its place */
	s.stop_old =
		f->old > 0 && (f->replace || (f->current_ready > 0 && f->current_ready >= wanted));
	s.stop_old_absent = f->old > f->old_in_place && wanted > 0;
	s.sleep = f->idle_most_ms > 0 && f->old == 0 && f->current_ready > 0 && f->in_flight == 0 &&
	          f->idle_ms >= f->idle_most_ms;
	return s;
}

/* Of those that there are too many of, the newest go first, and those that serve last. */
static void undo(uint32_t revision, const struct model_replica *r, size_t n, size_t most,
                 enum deployment_fate *out)
{
	for (int serving = 0; serving < 2; serving++) {
		for (size_t i = 0; i < n && most > 0; i++) {
			if (!goes_on(&r[i]) || r[i].revision != revision ||
			    r[i].serves != (serving == 1))
				continue;
			out[i] = DEPLOYMENT_UNDONE;
			most--;
		}
	}
}

void deployment_choose(const struct deployment_step *s, uint32_t revision,
                       const struct model_replica *r, size_t n, enum deployment_fate *out)
{
	for (size_t i = 0; i < n; i++) {
		bool old = r[i].revision != revision;

		out[i] = DEPLOYMENT_STAYS;
		if (job_state_is_stopping(r[i].state))
			continue;
		if (is_remote(&r[i]))
			out[i] = DEPLOYMENT_REMOTE;
		else if (old && (s->stop_old || (s->stop_old_absent && !is_in_place(&r[i]))))
			out[i] = DEPLOYMENT_ROLLED;
	}
	undo(revision, r, n, s->stop, out);
}

enum deployment_state deployment_state(const struct deployment_facts *f)
{
	facts_check(f);
	if (f->wanted == DEPLOYMENT_STOP)
		return DEPLOYMENT_STOPPED;
	if (f->wanted == DEPLOYMENT_SLEEP)
		return DEPLOYMENT_SCALED_TO_ZERO;
	if (f->current_ready + f->old_ready > 0)
		return DEPLOYMENT_READY;
	if (f->current + f->old == 0 && f->failed > 0)
		return DEPLOYMENT_FAILED;
	return f->current_placed + f->old_in_place > 0 ? DEPLOYMENT_STARTING : DEPLOYMENT_CREATED;
}
