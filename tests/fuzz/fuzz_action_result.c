/* fuzz_action_result.c - what is read as the result of an action, or as a tree, keeps the promises
 * of its structs, and names no more than it is long. */
#include "core/action_result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define SMALLEST 64 /* bytes that name a content: its hash in hex */

static void look(const struct action_result *r, size_t n)
{
	assert(r->n <= n / SMALLEST && r->n_trees <= r->n);
	for (size_t i = 0; i < r->n; i++)
		assert(r->content[i].bytes > 0);
	for (size_t i = 0; i < r->n_trees; i++)
		assert(r->tree[i].bytes > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *copy = xmalloc(n + 1);
	struct action_result r;
	struct err err = {0};

	if (n > 0)
		memcpy(copy, data, n);
	if (action_result_read(a, str_n(copy, n), &r, &err) == 0)
		look(&r, n);
	err_clear(&err);
	if (action_tree_read(a, str_n(copy, n), &r, &err) == 0) {
		look(&r, n);
		assert(r.n_trees == 0);
	}
	return 0;
}
