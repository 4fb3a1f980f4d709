/* topology.c - see topology.h. */
#include "run/topology.h"

#include "base/fs.h"
#include "run/gpu.h"


/* "3" or "0-3" */
static bool parse_range(struct str text, uint64_t *from, uint64_t *to)
{
	struct err no = {0};
	struct str low;

	text = str_trim(text);
	(void)str_cut(&text, '-', &low);
	if (str_u64(low, 0, CPU_SETSIZE - 1, from, &no) < 0)
		return false;
	*to = *from;
	return text.n == 0 || str_u64(text, *from, CPU_SETSIZE - 1, to, &no) == 0;
}

void topology_count(struct str list, unsigned count[CPU_SETSIZE])
{
	struct str one;

	while (str_cut(&list, ',', &one)) {
		uint64_t from, to;

		if (!parse_range(one, &from, &to))
			continue;
		for (uint64_t i = from; i <= to; i++)
			count[i]++;
	}
}

static bool read_list(const char *path, unsigned count[CPU_SETSIZE])
{
	AUTO_BUF struct buf text = BUF_INIT(TOPOLOGY_LIST_MAX);
	struct err no = {0};

	memset(count, 0, CPU_SETSIZE * sizeof(*count));
	if (fs_read(AT_FDCWD, path, &text, &no) < 0)
		return false;
	topology_count(buf_view(&text), count);
	return true;
}

static void read_nodes(struct topology *t, const char *root)
{
	unsigned in[CPU_SETSIZE];

	for (unsigned node = 0; node < TOPOLOGY_NODES_MAX; node++) {
		AUTO_FREE char *path =
			xasprintf("%s/sys/devices/system/node/node%u/cpulist", root, node);

		if (!read_list(path, in))
			continue; /* their numbers have gaps */
		for (unsigned i = 0; i < CPU_SETSIZE; i++) {
			if (in[i] > 0)
				t->node[i] = (uint8_t)node;
		}
	}
}

static void read_threads(struct topology *t, const char *root)
{
	AUTO_FREE char *all = xasprintf("%s/sys/devices/system/cpu/online", root);
	unsigned online[CPU_SETSIZE], of[CPU_SETSIZE];

	(void)read_list(all, online);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		AUTO_FREE char *path = xasprintf(
			"%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", root, i);

		t->first[i] = (uint16_t)i;
		if (online[i] == 0 || !read_list(path, of))
			continue;
		for (unsigned k = 0; k < i; k++) {
			if (of[k] > 0) {
				t->first[i] = (uint16_t)k;
				break;
			}
		}
	}
}

static void read_gpus(struct topology *t, const char *root, const char *const *uuid, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		AUTO_BUF struct buf number = BUF_INIT(64);
		AUTO_FREE char *where = NULL;
		struct gpu_place place;
		struct err no = {0};
		uint64_t node = 0;

		if (!gpu_find(root, uuid[i], &place))
			continue;
		where = xasprintf("%s/sys/bus/pci/devices/%s/numa_node", root, place.bus);
		if (fs_read(AT_FDCWD, where, &number, &no) < 0 ||
		    str_u64(str_trim(buf_view(&number)), 0, TOPOLOGY_NODES_MAX - 1, &node, &no) < 0)
			continue; /* -1: the firmware does not say */
		t->gpus[node]++;
		t->n_gpus++;
	}
}

void topology_read(struct topology *out, const char *root, const char *const *uuid, size_t n)
{
	*out = (struct topology){0};
	read_nodes(out, root);
	read_threads(out, root);
	read_gpus(out, root, uuid, n);
}

/* ---- choosing ----------------------------------------------------------------------------------
 */

struct choice {
	const struct topology *t;
	const unsigned *taken;
	unsigned sharing[CPU_SETSIZE];     /* jobs on a physical core, by its first thread */
	unsigned idle[TOPOLOGY_NODES_MAX]; /* cores that nobody has */
	unsigned got[TOPOLOGY_NODES_MAX];  /* by this job */
};

/* <0: this node is to be preferred. */
static int by_gpus(const struct choice *c, unsigned a, unsigned b)
{
	unsigned a_gpus = c->t->gpus[a], b_gpus = c->t->gpus[b];

	if ((a_gpus > 0) != (b_gpus > 0))
		return a_gpus > 0 ? -1 : 1;
	/* cores for each GPU, as fractions */
	return a_gpus > 0 ? (int)(c->got[a] * b_gpus) - (int)(c->got[b] * a_gpus) : 0;
}

static int by_room(const struct choice *c, unsigned a, unsigned b)
{
	if (c->got[a] != c->got[b])
		return c->got[a] > c->got[b] ? -1 : 1;
	return c->idle[a] == c->idle[b] ? 0 : c->idle[a] > c->idle[b] ? -1 : 1;
}

static bool is_better(const struct choice *c, unsigned a, unsigned b)
{
	unsigned node_a = c->t->node[a], node_b = c->t->node[b];
	int node = 0;

	if (c->taken[a] != c->taken[b])
		return c->taken[a] < c->taken[b];
	if (node_a != node_b)
		node = c->t->n_gpus > 0 ? by_gpus(c, node_a, node_b) : by_room(c, node_a, node_b);
	if (node != 0)
		return node < 0;
	return c->sharing[c->t->first[a]] < c->sharing[c->t->first[b]];
}

void topology_choose(const struct topology *t, const cpu_set_t *may, unsigned n,
                     const unsigned taken[CPU_SETSIZE], cpu_set_t *out)
{
	struct choice c = {.t = t, .taken = taken};

	CPU_ZERO(out);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		c.sharing[t->first[i]] += taken[i];
		if (CPU_ISSET(i, may) && taken[i] == 0)
			c.idle[t->node[i]]++;
	}
	while (n-- > 0) {
		unsigned best = CPU_SETSIZE;

		for (unsigned i = 0; i < CPU_SETSIZE; i++) {
			if (CPU_ISSET(i, may) && !CPU_ISSET(i, out) &&
			    (best == CPU_SETSIZE || is_better(&c, i, best)))
				best = i;
		}
		assert(best < CPU_SETSIZE);
		CPU_SET(best, out);
		c.got[t->node[best]]++;
		c.sharing[t->first[best]]++;
	}
}
