/* sched_words.c - what a job waits for, and why it could never run, in words. */
#include "core/sched_impl.h"

#define GIB ((double)(UINT64_C(1) << 30))
#define SHOW_CAP 32
#define TYPES_MAX 100 /* bytes of a list of GPU types in a reason */
#define NAME_ARG(s) ((s) != NULL ? (s) : "?")

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

static const char *plural(uint32_t n, uint32_t one)
{
	return n == one ? "" : "s";
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
			const char *type = sched_gpu_type(&nodes[i], g);

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

/* The most that a single node offers of each resource, among nodes that the job may use. */
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
		if (j->gpus > 0 && sched_gpus_of(&nodes[i], j) == 0)
			continue;
		most.type = true;
		most.gpus = MAX(most.gpus, sched_bits(sched_gpus_of(&nodes[i], j)));
		most.cpu_milli = MAX(most.cpu_milli, nodes[i].cpu_milli);
		most.memory_bytes = MAX(most.memory_bytes, nodes[i].memory_bytes);
	}
	return most;
}

void sched_say_never(const struct sched_node *nodes, size_t n, const struct sched_job *j,
                     char reason[SCHED_REASON])
{
	const char *type = NAME_ARG(j->gpu_type);
	struct sched_job free_job = *j;
	struct largest most;
	uint32_t ranks;
	char types[TYPES_MAX], a[SHOW_CAP], b[SHOW_CAP];

	/* The cache is the cause only where another cluster could hold the job. */
	free_job.cache = false;
	ranks = sched_ranks_ever(nodes, n, &free_job);
	if (ranks >= j->nodes) {
		say_affinity(nodes, n, j, reason);
		return;
	}
	most = find_largest(nodes, n, &free_job);
	if (!most.type) {
		list_types(nodes, n, NULL, types);
		say(reason, "asks for %u x %.30s%s; %s %s", j->gpus, type,
		    n == 1 ? "" : " per node", n == 1 ? "this machine has" : "there are", types);
	} else if (most.gpus < j->gpus) {
		say(reason, "asks for %u x %.30s per node; the largest node has %u", j->gpus, type,
		    most.gpus);
	} else if (most.cpu_milli < j->cpu_milli) {
		say(reason, "asks for %s CPU%s per node; the largest node has %s",
		    show_cpus(j->cpu_milli, a), plural(j->cpu_milli, 1000),
		    show_cpus(most.cpu_milli, b));
	} else if (most.memory_bytes < j->memory_bytes) {
		say(reason, "asks for %s GiB of memory per node; the largest node has %s GiB",
		    show_gib(j->memory_bytes, a), show_gib(most.memory_bytes, b));
	} else if (ranks == 0) {
		say(reason,
		    "asks for %s CPU%s, %s GiB of memory and %u GPU%s on one node; no node has "
		    "all of it",
		    show_cpus(j->cpu_milli, a), plural(j->cpu_milli, 1000),
		    show_gib(j->memory_bytes, b), j->gpus, plural(j->gpus, 1));
	} else {
		say(reason, "asks for %u nodes; %s for %u", j->nodes,
		    j->many_per_node ? "there is room" : "the largest cluster is large enough",
		    ranks);
	}
}

/* --- waiting --- */

/* The free amount of each resource, on the nodes that could hold a rank of the job. */
struct room {
	uint32_t nodes_up, nodes_free, ranks, gpus, gpus_free, most_gpus_free;
	uint32_t cpu_milli, most_cpu_free;
	uint64_t memory_bytes, most_memory_free;
	const char *down; /* one that is */
};

static void add_room(struct room *r, const struct plan_node *n, const struct sched_job *j)
{
	const struct plan_use *use = plan_now(n);
	uint32_t gpus = sched_bits(sched_gpus_of(n->is, j) & ~use->gpus);
	uint32_t cpu = n->is->cpu_milli - MIN(n->is->cpu_milli, use->cpu_milli);
	uint64_t memory = n->is->memory_bytes - MIN(n->is->memory_bytes, use->memory_bytes);

	r->nodes_up++;
	r->gpus += sched_bits(sched_gpus_of(n->is, j));
	r->gpus_free += gpus;
	r->most_gpus_free = MAX(r->most_gpus_free, gpus);
	if (cpu >= r->most_cpu_free) {
		r->most_cpu_free = cpu;
		r->cpu_milli = n->is->cpu_milli;
	}
	if (memory >= r->most_memory_free) {
		r->most_memory_free = memory;
		r->memory_bytes = n->is->memory_bytes;
	}
	r->nodes_free += gpus >= j->gpus && cpu >= j->cpu_milli && memory >= j->memory_bytes;
	r->ranks += plan_ranks(n, j, use, j->nodes);
}

static struct room find_room(const struct plan *p, const struct sched_job *j)
{
	struct room r = {0};

	for (size_t i = 0; i < p->n; i++) {
		const struct plan_node *n = &p->node[i];

		if (!sched_fits_idle(n->is, j) || !sched_may_use(j, n->is->cluster))
			continue;
		if (n->is->down)
			r.down = n->is->name;
		else
			add_room(&r, n, j);
	}
	return r;
}

static const char *ordinal(size_t n)
{
	if (n % 100 >= 11 && n % 100 <= 13)
		return "th";
	return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

void sched_say_waits(const struct plan *p, const struct sched_job *j, size_t at,
                     char reason[SCHED_REASON])
{
	struct room r = find_room(p, j);
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
		(void)snprintf(what, sizeof(what), "%s CPU%s (%s free of %s)",
		               show_cpus(j->cpu_milli, a), plural(j->cpu_milli, 1000),
		               show_cpus(r.most_cpu_free, b), show_cpus(r.cpu_milli, c));
	else if (r.most_memory_free < j->memory_bytes)
		(void)snprintf(what, sizeof(what), "%s GiB of memory (%s GiB free of %s GiB)",
		               show_gib(j->memory_bytes, a), show_gib(r.most_memory_free, b),
		               show_gib(r.memory_bytes, c));
	else if (j->many_per_node && r.ranks < j->nodes)
		(void)snprintf(what, sizeof(what), "room for all %u ranks at once (%u now)",
		               j->nodes, r.ranks);
	else
		(void)snprintf(what, sizeof(what), "the jobs ahead of it");
	say(reason, "waits for %s, %zu%s in line", what, at, ordinal(at));
}
