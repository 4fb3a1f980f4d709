/*
 * sched_line.c - the order of the line: priority, then fair share, then age. Of equal priority the
 * team that has used least has its turn, in it the user that has used least, of theirs the oldest
 * job. What is in line already counts as if it ran: so teams take turns, however many jobs each of
 * them has pushed.
 */
#include "core/sched_impl.h"

#include "base/map.h"

struct account { /* of a team, or of a user in a team */
	double share_ms;
	struct account *team; /* of a user; NULL: it is a team */
	size_t next, end;     /* of a user: its jobs of this priority, in the order of their age */
	bool listed;          /* it is in team[] or user[] of this priority */
	size_t oldest;        /* rank by age of its next job: who used alike goes by it */
};

struct whole { /* of all nodes */
	double cpu, memory, gpus;
};

struct line {
	struct arena *a;
	const struct sched_facts *f;
	struct whole whole;
	const struct sched_job *job;
	struct map *accounts;  /* "team" and "team\nuser" */
	struct account **of;   /* of each job, that of its user */
	size_t *sorted, *rank; /* by priority, age, id; and where each job is there */
	struct account **team, **user;
	size_t n_teams, n_users;
};

static double part(double asked, double all)
{
	return all > 0 ? asked / all : 0;
}

static struct whole whole_of(const struct sched_facts *f)
{
	struct whole w = {0};

	for (size_t i = 0; i < f->n_nodes; i++) {
		w.cpu += f->nodes[i].cpu_milli;
		w.memory += (double)f->nodes[i].memory_bytes;
		w.gpus += f->nodes[i].gpus;
	}
	return w;
}

static double share_of(const struct whole *w, uint32_t cpu_milli, uint64_t memory_bytes,
                       uint32_t gpus)
{
	return MAX(MAX(part(cpu_milli, w->cpu), part((double)memory_bytes, w->memory)),
	           part(gpus, w->gpus));
}

double sched_share_of(const struct sched_facts *f, uint32_t cpu_milli, uint64_t memory_bytes,
                      uint32_t gpus)
{
	struct whole w = whole_of(f);

	return share_of(&w, cpu_milli, memory_bytes, gpus);
}

static struct account *account_at(struct line *l, const char *key, struct account *team)
{
	struct account *acc = map_get(l->accounts, str_of(key));

	if (acc == NULL) {
		acc = ARENA_NEW(l->a, struct account);
		acc->team = team;
		(void)map_set(l->accounts, str_of(key), acc);
	}
	return acc;
}

static struct account *account(struct line *l, const char *team, const char *user)
{
	const char *t = team != NULL ? team : "", *u = user != NULL ? user : "";

	return account_at(l, arena_printf(l->a, "%s\n%s", t, u), account_at(l, t, NULL));
}

static void charge(struct account *user, double share_ms)
{
	user->share_ms += share_ms;
	user->team->share_ms += share_ms;
}

static double cost(const struct line *l, const struct sched_job *j)
{
	double ms = j->duration_ms > 0 ? (double)j->duration_ms : (double)SCHED_COST_MS;

	return ms * share_of(&l->whole, j->cpu_milli, j->memory_bytes, j->gpus) * j->nodes;
}

/* Charges past use and running jobs, as if these were to run for their declared or usual time. */
static void charge_past(struct line *l)
{
	for (size_t i = 0; i < l->f->n_used; i++)
		charge(account(l, l->f->used[i].team, l->f->used[i].user), l->f->used[i].share_ms);
	for (size_t i = 0; i < l->f->n_held; i++) {
		const struct sched_held *h = &l->f->held[i];
		double left = (double)SCHED_COST_MS;

		if (h->end_ms != 0)
			left = (double)MAX(h->end_ms - l->f->now_ms, (int64_t)0);
		charge(account(l, h->team, h->user),
		       left * share_of(&l->whole, h->cpu_milli, h->memory_bytes,
		                       sched_bits(h->gpus)));
	}
}

/* qsort has no argument to hand on. */
struct key {
	const struct sched_job *job;
	size_t i;
};

static int by_age(const void *a, const void *b)
{
	const struct sched_job *x = ((const struct key *)a)->job;
	const struct sched_job *y = ((const struct key *)b)->job;

	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

static void sort(struct line *l, size_t n)
{
	struct key *k = ARENA_ARRAY(l->a, struct key, n);

	for (size_t i = 0; i < n; i++)
		k[i] = (struct key){&l->job[i], i};
	if (n > 1)
		qsort(k, n, sizeof(*k), by_age);
	for (size_t i = 0; i < n; i++) {
		l->sorted[i] = k[i].i;
		l->rank[k[i].i] = i;
	}
}

/* The users and teams among the jobs [first, end) of one priority, and the jobs of each user as a
 * chain through next_of[]. */
static void open_class(struct line *l, size_t first, size_t end, size_t *next_of)
{
	l->n_teams = l->n_users = 0;
	for (size_t i = first; i < end; i++) /* forget the class before */
		l->of[l->sorted[i]]->listed = l->of[l->sorted[i]]->team->listed = false;
	for (size_t i = first; i < end; i++) {
		size_t job = l->sorted[i];
		struct account *user = l->of[job];

		next_of[job] = SIZE_MAX;
		if (!user->team->listed)
			l->team[l->n_teams++] = user->team;
		if (!user->listed) {
			l->user[l->n_users++] = user;
			user->next = job;
		} else {
			next_of[user->end] = job;
		}
		user->end = job;
		user->listed = user->team->listed = true;
	}
}

static bool is_next(const struct account *a, const struct account *best)
{
	return best == NULL || a->share_ms < best->share_ms ||
	       (!(a->share_ms > best->share_ms) && a->oldest < best->oldest);
}

/* In the team with the least use, the user with the least use, among those with a job left. */
static struct account *next_user(const struct line *l)
{
	const struct account *team = NULL;
	struct account *user = NULL;

	for (size_t i = 0; i < l->n_teams; i++)
		l->team[i]->oldest = SIZE_MAX;
	for (size_t i = 0; i < l->n_users; i++) {
		struct account *u = l->user[i];

		u->oldest = u->next != SIZE_MAX ? l->rank[u->next] : SIZE_MAX;
		u->team->oldest = MIN(u->team->oldest, u->oldest);
	}
	for (size_t i = 0; i < l->n_teams; i++) {
		if (l->team[i]->oldest != SIZE_MAX && is_next(l->team[i], team))
			team = l->team[i];
	}
	for (size_t i = 0; i < l->n_users; i++) {
		if (l->user[i]->team == team && l->user[i]->oldest != SIZE_MAX &&
		    is_next(l->user[i], user))
			user = l->user[i];
	}
	assert(user != NULL);
	return user;
}

void sched_line(struct arena *a, const struct sched_facts *f, const struct sched_job *jobs,
                size_t n_jobs, size_t *line)
{
	AUTO_MAP struct map *accounts = map_new();
	struct line l = {
		.a = a,
		.f = f,
		.whole = whole_of(f),
		.job = jobs,
		.accounts = accounts,
		.of = ARENA_ARRAY(a, struct account *, n_jobs),
		.sorted = ARENA_ARRAY(a, size_t, n_jobs),
		.rank = ARENA_ARRAY(a, size_t, n_jobs),
		.team = ARENA_ARRAY(a, struct account *, n_jobs),
		.user = ARENA_ARRAY(a, struct account *, n_jobs),
	};
	size_t *next_of = ARENA_ARRAY(a, size_t, n_jobs), at = 0, end;

	charge_past(&l);
	for (size_t i = 0; i < n_jobs; i++)
		l.of[i] = account(&l, jobs[i].team, jobs[i].user);
	sort(&l, n_jobs);
	for (size_t first = 0; first < n_jobs; first = end) {
		end = first;
		while (end < n_jobs &&
		       jobs[l.sorted[end]].priority == jobs[l.sorted[first]].priority)
			end++;
		open_class(&l, first, end, next_of);
		for (size_t i = first; i < end; i++) {
			struct account *user = next_user(&l);
			size_t job = user->next;

			line[at++] = job;
			user->next = next_of[job];
			charge(user, cost(&l, &jobs[job]));
		}
	}
	assert(at == n_jobs);
}
