/* instances.c - the sizes of machine that the nodes can give. */
#include "face/instances.h"

#define GIB ((uint64_t)1 << 30)

static bool same(const struct instance *a, const struct instance *b)
{
	bool a_gpu = a->gpu_type != NULL, b_gpu = b->gpu_type != NULL;

	return a_gpu == b_gpu && (!a_gpu || strcmp(a->gpu_type, b->gpu_type) == 0) &&
	       a->gpu_count == b->gpu_count && a->cpu_milli == b->cpu_milli &&
	       a->memory_bytes == b->memory_bytes;
}

static void add(struct instance out[INSTANCES_MAX], size_t *n, struct instance in)
{
	for (size_t i = 0; i < *n; i++)
		if (same(&out[i], &in))
			return;
	if (*n < INSTANCES_MAX)
		out[(*n)++] = in;
}

/* With these GPUs' share of the node. */
static struct instance with_gpus(const struct node_row *node, const char *type, uint32_t gpus)
{
	return (struct instance){type, gpus, node->cpu_milli / node->gpus * gpus,
	                         node->memory_bytes / node->gpus * gpus};
}

static int by_size(const void *a, const void *b)
{
	const struct instance *x = a, *y = b;

	if (x->gpu_count != y->gpu_count)
		return x->gpu_count < y->gpu_count ? -1 : 1;
	if (x->cpu_milli != y->cpu_milli)
		return x->cpu_milli < y->cpu_milli ? -1 : 1;
	return (x->memory_bytes > y->memory_bytes) - (x->memory_bytes < y->memory_bytes);
}

size_t instances_of(const struct node_row *nodes, size_t n, struct instance out[INSTANCES_MAX])
{
	static const struct {
		uint32_t cores;
		uint64_t gib;
	} plain[] = {{1, 2}, {1, 4}, {2, 8}, {4, 16}, {8, 32}, {16, 64}};
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		const struct node_row *node = &nodes[i];

		for (size_t k = 0; k < COUNT(plain); k++)
			if (plain[k].cores * 1000 <= node->cpu_milli &&
			    plain[k].gib * GIB <= node->memory_bytes)
				add(out, &count,
				    (struct instance){NULL, 0, plain[k].cores * 1000,
				                      plain[k].gib * GIB});
		for (size_t k = 0; k < node->n_kinds; k++) {
			const struct sched_gpus *kind = &node->kinds[k];

			for (uint32_t gpus = 1; gpus < kind->count; gpus *= 2)
				add(out, &count, with_gpus(node, kind->type, gpus));
			add(out, &count, with_gpus(node, kind->type, kind->count));
		}
	}
	qsort(out, count, sizeof(out[0]), by_size);
	return count;
}
