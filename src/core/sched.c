/* sched.c - the queue against the nodes: who starts where, who waits for what, who never will. */
#include "core/sched.h"

#define GIB ((double)(UINT64_C(1) << 30))
#define SHOW_CAP 32
#define TYPES_MAX 100 /* bytes of a list of GPU types in a reason */
#define NAME_ARG(s) ((s) != NULL ? (s) : "?")

/* The working copy of a run. */
struct node {
	const struct sched_node *is;
	size_t cluster; /* index of the first node of the same cluster: its number */
	uint32_t cpu_milli_used;
	uint64_t memory_used, gpus_used;
	bool reserved; /* for a job ahead in the line */
};

struct world {
	struct arena *a;
	struct node *node;
	size_t n;
};

static const char *type_of(const struct sched_node *n, uint32_t gpu)
{
	return n->gpu_types != NULL ? n->gpu_types[gpu] : n->gpu_type;
}

size_t sched_gpu_kinds(const struct sched_node *n, struct sched_gpus out[SCHED_KINDS_MAX])
{
	size_t kinds = 0;

	for (uint32_t i = 0; i < n->gpus; i++) {
		const char *type = type_of(n, i);
		size_t k = 0;

		if (type == NULL || type[0] == '\0')
			continue;
		while (k < kinds && strcmp(out[k].type, type) != 0)
			k++;
		if (k == SCHED_KINDS_MAX)
			continue;
		if (k == kinds)
			out[kinds++] = (struct sched_gpus){type, 0};
		out[k].count++;
	}
	return kinds;
}

/* Bit set of the GPUs that are what the job asks for. */
static uint64_t gpus_of(const struct sched_node *n, const struct sched_job *j)
{
	uint64_t set = 0;

	for (uint32_t i = 0; i < n->gpus; i++) {
		const char *type = type_of(n, i);

		if (j->gpus == 0 || j->gpu_type == NULL ||
		    (type != NULL && strcmp(type, j->gpu_type) == 0))
			set |= UINT64_C(1) << i;
	}
	return set;
}

static uint32_t count_bits(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

static uint64_t gpus_free(const struct node *n, const struct sched_job *j)
{
	return gpus_of(n->is, j) & ~n->gpus_used;
}

static uint32_t cpu_free(const struct node *n)
{
	return n->is->cpu_milli - MIN(n->is->cpu_milli, n->cpu_milli_used);
}

static uint64_t memory_free(const struct node *n)
{
	return n->is->memory_bytes - MIN(n->is->memory_bytes, n->memory_used);
}

static bool has_type(const struct sched_node *n, const struct sched_job *j)
{
	return j->gpus == 0 || j->gpu_type == NULL || gpus_of(n, j) != 0;
}

/* One rank, on the node when nothing else runs there. */
static bool fits_idle(const struct sched_node *n, const struct sched_job *j)
{
	return count_bits(gpus_of(n, j)) >= j->gpus && n->cpu_milli >= j->cpu_milli &&
	       n->memory_bytes >= j->memory_bytes;
}

static bool fits_now(const struct node *n, const struct sched_job *j)
{
	return !n->is->down && !n->reserved && count_bits(gpus_free(n, j)) >= j->gpus &&
	       cpu_free(n) >= j->cpu_milli && memory_free(n) >= j->memory_bytes;
}

/* May the job use this cluster at all? */
static bool may_use(const struct sched_job *j, const char *cluster)
{
	return !j->cache || j->pinned_cluster == NULL || !j->require_affinity ||
	       strcmp(j->pinned_cluster, cluster) == 0;
}

static struct world world_new(struct arena *a, const struct sched_node *nodes, size_t n)
{
	struct world w = {.a = a, .node = ARENA_ARRAY(a, struct node, n), .n = n};

	assert(n <= SCHED_NODES_MAX);
	for (size_t i = 0; i < n; i++) {
		assert(nodes[i].gpus <= SCHED_GPUS_MAX);
		w.node[i] = (struct node){
			.is = &nodes[i],
			.cpu_milli_used = nodes[i].cpu_milli_used,
			.memory_used = nodes[i].memory_used,
			.gpus_used = nodes[i].gpus_used,
		};
		while (strcmp(nodes[w.node[i].cluster].cluster, nodes[i].cluster) != 0)
			w.node[i].cluster++;
	}
	return w;
}

/* --- capacity --- */

/* How many ranks of an idle cluster: as many as would fit, at most j->nodes. */
static uint32_t ranks_idle(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                           const char *cluster)
{
	uint64_t ranks = 0;

	for (size_t i = 0; i < n && ranks < j->nodes; i++) {
		uint64_t room = 1;

		if (strcmp(nodes[i].cluster, cluster) != 0 || !fits_idle(&nodes[i], j))
			continue;
		if (j->many_per_node) {
			room = j->nodes;
			if (j->gpus > 0)
				room = MIN(room, count_bits(gpus_of(&nodes[i], j)) / j->gpus);
			if (j->cpu_milli > 0)
				room = MIN(room, nodes[i].cpu_milli / j->cpu_milli);
			if (j->memory_bytes > 0)
				room = MIN(room, nodes[i].memory_bytes / j->memory_bytes);
		}
		ranks += room;
	}
	return (uint32_t)MIN(ranks, j->nodes);
}

/* The most ranks that any one cluster that the job may use could hold. */
static uint32_t ranks_ever(const struct sched_node *nodes, size_t n, const struct sched_job *j)
{
	uint32_t most = 0;

	for (size_t i = 0; i < n; i++) {
		if (most < j->nodes && may_use(j, nodes[i].cluster))
			most = MAX(most, ranks_idle(nodes, n, j, nodes[i].cluster));
	}
	return most;
}

/* --- words --- */

static void say(char reason[SCHED_REASON], const char *fmt, ...) PRINTF(2, 3);

/* Shown to people: what does not fit is cut. */
static void say(char reason[SCHED_REASON], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(reason, SCHED_REASON, fmt, ap);
	va_end(ap);
}

/* "64", "23.4" */
static const char *show(double v, char out[SHOW_CAP])
{
	double tenths = v * 10;

	if (tenths >= 0 && tenths < 1e15 && (uint64_t)(tenths + 0.5) % 10 != 0)
		(void)snprintf(out, SHOW_CAP, "%.1f", v);
	else
		(void)snprintf(out, SHOW_CAP, "%.0f", v);
	return out;
}

static const char *show_gib(uint64_t bytes, char out[SHOW_CAP])
{
	return show((double)bytes / GIB, out);
}

static const char *show_cpus(uint32_t milli, char out[SHOW_CAP])
{
	return show(milli / 1000.0, out);
}

/* Is this one of the words of "H100, L4"? */
static bool is_listed(const char *list, size_t n, const char *type)
{
	struct str rest = str_n(list, n), word;

	while (str_cut(&rest, ',', &word)) {
		if (str_eq(str_trim(word), type))
			return true;
	}
	return false;
}

/* "H100, L4", of one cluster or (NULL) of all. */
static void list_types(const struct sched_node *nodes, size_t n, const char *cluster,
                       char out[TYPES_MAX])
{
	size_t at = 0;
	int wrote;

	(void)snprintf(out, TYPES_MAX, "no GPUs");
	for (size_t i = 0; i < n; i++) {
		if (cluster != NULL && strcmp(nodes[i].cluster, cluster) != 0)
			continue;
		for (uint32_t g = 0; g < nodes[i].gpus; g++) {
			const char *type = type_of(&nodes[i], g);

			if (type == NULL || type[0] == '\0' || is_listed(out, at, type))
				continue;
			wrote = snprintf(out + at, TYPES_MAX - at, "%s%s", at > 0 ? ", " : "",
			                 type);
			at = MIN(at + (size_t)MAX(wrote, 0), (size_t)TYPES_MAX - 1);
		}
	}
}

/* The pinned cluster cannot hold the job: what it is, what it has, what was asked. */
static void say_affinity(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                         char reason[SCHED_REASON])
{
	char types[TYPES_MAX], asked[SHOW_CAP + TYPES_MAX];

	list_types(nodes, n, j->pinned_cluster, types);
	if (j->gpus > 0)
		(void)snprintf(asked, sizeof(asked), "%u x %s", j->gpus, NAME_ARG(j->gpu_type));
	else
		(void)snprintf(asked, sizeof(asked), "no GPU");
	say(reason,
	    "the cache of project \"%.40s\" is on cluster \"%.30s\" (%.40s), which cannot hold "
	    "this "
	    "job (%.40s): set require_cache_affinity: false",
	    NAME_ARG(j->project), j->pinned_cluster, types, asked);
}

/* What the largest node that the job may use has of each. */
struct largest {
	uint32_t cpu_milli, gpus;
	uint64_t memory_bytes;
	bool type;
};

static struct largest find_largest(const struct sched_node *nodes, size_t n,
                                   const struct sched_job *j)
{
	struct largest most = {0};

	for (size_t i = 0; i < n; i++) {
		if (!has_type(&nodes[i], j) || !may_use(j, nodes[i].cluster))
			continue;
		most.type = true;
		most.gpus = MAX(most.gpus, count_bits(gpus_of(&nodes[i], j)));
		most.cpu_milli = MAX(most.cpu_milli, nodes[i].cpu_milli);
		most.memory_bytes = MAX(most.memory_bytes, nodes[i].memory_bytes);
	}
	return most;
}

static void say_never(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                      char reason[SCHED_REASON])
{
	struct largest most = find_largest(nodes, n, j);
	const char *type = NAME_ARG(j->gpu_type);
	uint32_t ranks = ranks_ever(nodes, n, j);
	char types[TYPES_MAX], a[SHOW_CAP], b[SHOW_CAP];

	if (j->cache && j->require_affinity && j->pinned_cluster != NULL) {
		struct sched_job free_job = *j;

		free_job.cache = false;
		if (ranks_ever(nodes, n, &free_job) >= j->nodes || !most.type) {
			say_affinity(nodes, n, j, reason);
			return;
		}
	}
	if (!most.type) {
		list_types(nodes, n, NULL, types);
		say(reason, "asks for %u x %.30s per node; there are %s", j->gpus, type, types);
	} else if (most.gpus < j->gpus) {
		say(reason, "asks for %u x %.30s per node; the largest node has %u", j->gpus, type,
		    most.gpus);
	} else if (most.cpu_milli < j->cpu_milli) {
		say(reason, "asks for %s CPUs per node; the largest node has %s",
		    show_cpus(j->cpu_milli, a), show_cpus(most.cpu_milli, b));
	} else if (most.memory_bytes < j->memory_bytes) {
		say(reason, "asks for %s GiB of memory per node; the largest node has %s GiB",
		    show_gib(j->memory_bytes, a), show_gib(most.memory_bytes, b));
	} else if (ranks == 0) {
		say(reason,
		    "asks for %s CPUs, %s GiB of memory and %u GPUs on one node; no node has all "
		    "of it",
		    show_cpus(j->cpu_milli, a), show_gib(j->memory_bytes, b), j->gpus);
	} else {
		say(reason, "asks for %u nodes; %s for %u", j->nodes,
		    j->many_per_node ? "there is room" : "the largest cluster is large enough",
		    ranks);
	}
}

enum sched_verdict sched_fits(const struct sched_node *nodes, size_t n_nodes,
                              const struct sched_job *job, char reason[SCHED_REASON])
{
	assert(job->nodes > 0);
	reason[0] = '\0';
	if (n_nodes == 0) { /* they may come: nothing is known yet that forbids it */
		say(reason, "waits for a node: there is none");
		return SCHED_WAITS;
	}
	if (ranks_ever(nodes, n_nodes, job) >= job->nodes)
		return SCHED_PLACED;
	say_never(nodes, n_nodes, job, reason);
	return SCHED_NEVER;
}

/* --- placing --- */

/* Jobs without GPUs keep off the nodes that have some; GPUs are taken where fewest are left. */
static bool is_better(const struct node *a, const struct node *b, const struct sched_job *j)
{
	uint32_t fa = count_bits(gpus_free(a, j)), fb = count_bits(gpus_free(b, j));

	if (j->gpus == 0 && (a->is->gpus == 0) != (b->is->gpus == 0))
		return a->is->gpus == 0;
	if (fa != fb)
		return fa < fb;
	return cpu_free(a) < cpu_free(b);
}

static uint64_t lowest_bits(uint64_t set, uint32_t n)
{
	uint64_t got = 0;

	for (; n > 0; n--) {
		uint64_t bit = set & -set;

		assert(bit != 0);
		got |= bit;
		set &= ~bit;
	}
	return got;
}

static void take(struct node *n, const struct sched_job *j, struct sched_share *share)
{
	share->gpus = lowest_bits(gpus_free(n, j), j->gpus);
	n->gpus_used |= share->gpus;
	n->cpu_milli_used += j->cpu_milli;
	n->memory_used += j->memory_bytes;
}

static void give_back(struct node *n, const struct sched_job *j, const struct sched_share *share)
{
	n->gpus_used &= ~share->gpus;
	n->cpu_milli_used -= j->cpu_milli;
	n->memory_used -= j->memory_bytes;
}

/* The whole gang in one cluster, or nothing. Ranks are alike, so taking them one by one is exact.
 */
static bool place_in(struct world *w, const struct sched_job *j, size_t cluster,
                     struct sched_share *share)
{
	bool *taken = ARENA_ARRAY(w->a, bool, w->n);
	uint32_t rank;

	for (rank = 0; rank < j->nodes; rank++) {
		struct node *best = NULL;

		for (size_t i = 0; i < w->n; i++) {
			struct node *n = &w->node[i];

			if (n->cluster == cluster && (j->many_per_node || !taken[i]) &&
			    fits_now(n, j) && (best == NULL || is_better(n, best, j)))
				best = n;
		}
		if (best == NULL)
			break;
		share[rank].node = (size_t)(best - w->node);
		taken[share[rank].node] = true;
		take(best, j, &share[rank]);
	}
	if (rank == j->nodes)
		return true;
	while (rank-- > 0)
		give_back(&w->node[share[rank].node], j, &share[rank]);
	return false;
}

/* The pinned cluster first, then the others in the order of their nodes. */
static bool place(struct world *w, const struct sched_job *j, struct sched_answer *out)
{
	struct sched_share *share = ARENA_ARRAY(w->a, struct sched_share, j->nodes);
	const char *pinned = j->cache ? j->pinned_cluster : NULL;

	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < w->n; i++) {
			const char *name = w->node[i].is->cluster;
			bool home = pinned != NULL && strcmp(pinned, name) == 0;

			if (w->node[i].cluster != i || home != (pass == 0) || !may_use(j, name))
				continue;
			if (!place_in(w, j, i, share))
				continue;
			out->verdict = SCHED_PLACED;
			out->shares = share;
			out->cold_cache = pinned != NULL && !home;
			return true;
		}
	}
	return false;
}

/* --- waiting --- */

/* What there is of each, on the nodes that could hold a rank of the job. */
struct room {
	uint32_t nodes, nodes_up, nodes_free, gpus, gpus_free, most_gpus_free;
	uint32_t cpu_milli, most_cpu_free;
	uint64_t memory_bytes, most_memory_free;
	const char *down; /* one that is */
	bool reserved;    /* some of it is kept for a job ahead */
};

static struct room find_room(const struct world *w, const struct sched_job *j)
{
	struct room r = {0};

	for (size_t i = 0; i < w->n; i++) {
		const struct node *n = &w->node[i];
		uint32_t free_gpus = count_bits(gpus_free(n, j));

		if (!fits_idle(n->is, j) || !may_use(j, n->is->cluster))
			continue;
		r.nodes++;
		if (n->is->down) {
			r.down = n->is->name;
			continue;
		}
		r.nodes_up++;
		r.reserved = r.reserved || n->reserved;
		r.gpus += count_bits(gpus_of(n->is, j));
		r.gpus_free += free_gpus;
		r.most_gpus_free = MAX(r.most_gpus_free, free_gpus);
		if (cpu_free(n) >= r.most_cpu_free) {
			r.most_cpu_free = cpu_free(n);
			r.cpu_milli = n->is->cpu_milli;
		}
		if (memory_free(n) >= r.most_memory_free) {
			r.most_memory_free = memory_free(n);
			r.memory_bytes = n->is->memory_bytes;
		}
		r.nodes_free += free_gpus >= j->gpus && cpu_free(n) >= j->cpu_milli &&
		                memory_free(n) >= j->memory_bytes;
	}
	return r;
}

static const char *ordinal(size_t n)
{
	if (n % 100 >= 11 && n % 100 <= 13)
		return "th";
	return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

static void say_waits(const struct world *w, const struct sched_job *j, size_t at,
                      char reason[SCHED_REASON])
{
	struct room r = find_room(w, j);
	bool gang = j->nodes > 1 && !j->many_per_node;
	char a[SHOW_CAP], b[SHOW_CAP], c[SHOW_CAP], each[SHOW_CAP + 30] = "",
								    what[SCHED_REASON - 40];

	if (j->gpus > 0)
		(void)snprintf(each, sizeof(each), " of %u x %.30s", j->gpus,
		               NAME_ARG(j->gpu_type));
	if (r.nodes_up < (gang ? j->nodes : 1) && r.down != NULL)
		(void)snprintf(what, sizeof(what), "node \"%.60s\", which is down", r.down);
	else if (gang && r.nodes_free < j->nodes)
		(void)snprintf(what, sizeof(what), "%u nodes%s (%u free of %u)", j->nodes, each,
		               r.nodes_free, r.nodes_up);
	else if (r.most_gpus_free < j->gpus)
		(void)snprintf(what, sizeof(what), "%u x %.30s (%u free of %u%s)", j->gpus,
		               NAME_ARG(j->gpu_type), r.gpus_free, r.gpus,
		               r.gpus_free >= j->gpus ? ", not on one node" : "");
	else if (r.most_cpu_free < j->cpu_milli)
		(void)snprintf(what, sizeof(what), "%s CPUs (%s free of %s)",
		               show_cpus(j->cpu_milli, a), show_cpus(r.most_cpu_free, b),
		               show_cpus(r.cpu_milli, c));
	else if (r.most_memory_free < j->memory_bytes)
		(void)snprintf(what, sizeof(what), "%s GiB of memory (%s GiB free of %s GiB)",
		               show_gib(j->memory_bytes, a), show_gib(r.most_memory_free, b),
		               show_gib(r.memory_bytes, c));
	else if (r.reserved)
		(void)snprintf(what, sizeof(what), "the jobs ahead of it");
	else
		(void)snprintf(what, sizeof(what), "room for all %u ranks at once", j->nodes);
	say(reason, "waits for %s, %zu%s in line", what, at, ordinal(at));
}

/* A waiting job keeps the nodes that it could use from all behind it. */
static void reserve(struct world *w, const struct sched_job *j)
{
	for (size_t i = 0; i < w->n; i++) {
		if (fits_idle(w->node[i].is, j) && may_use(j, w->node[i].is->cluster))
			w->node[i].reserved = true;
	}
}

/* --- the run --- */

static int by_turn(const void *a, const void *b)
{
	const struct sched_job *x = *(const struct sched_job *const *)a;
	const struct sched_job *y = *(const struct sched_job *const *)b;

	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	if (x->created_ms != y->created_ms)
		return x->created_ms < y->created_ms ? -1 : 1;
	return strcmp(x->id, y->id);
}

void sched_run(struct arena *a, const struct sched_node *nodes, size_t n_nodes,
               const struct sched_job *jobs, size_t n_jobs, bool backfill,
               struct sched_answer *answers)
{
	struct world w = world_new(a, nodes, n_nodes);
	const struct sched_job **line = ARENA_ARRAY(a, const struct sched_job *, n_jobs);
	size_t waiting = 0;

	for (size_t i = 0; i < n_jobs; i++)
		line[i] = &jobs[i];
	if (n_jobs > 1)
		qsort(line, n_jobs, sizeof(const struct sched_job *), by_turn);
	for (size_t i = 0; i < n_jobs; i++) {
		const struct sched_job *j = line[i];
		struct sched_answer *out = &answers[j - jobs];

		*out = (struct sched_answer){.verdict = SCHED_WAITS};
		if (sched_fits(nodes, n_nodes, j, out->reason) == SCHED_NEVER) {
			out->verdict = SCHED_NEVER;
			continue;
		}
		if (place(&w, j, out))
			continue;
		out->place = ++waiting;
		if (n_nodes > 0)
			say_waits(&w, j, out->place, out->reason);
		if (!backfill)
			reserve(&w, j);
	}
}
