/* fuzz_ckpt.c - manifests of checkpoints and of their parts from any bytes, and names from any
 * path.
 */
#include "core/ckpt_whole.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void of_all_nodes(struct arena *a, struct str text)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 20);
	struct ckpt_whole w, again;
	struct err err = {0};

	if (ckpt_whole_parse(&w, a, text, &err) < 0)
		return;
	ckpt_whole_write(&w, &out);
	if (!out.full &&
	    (ckpt_whole_parse(&again, a, buf_view(&out), &err) < 0 || again.n_parts != w.n_parts))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT((size_t)64 << 20);
	struct str text = str_n((const char *)data, n);
	char name[CKPT_NAME_MAX];
	struct ckpt c, again;
	struct err err = {0};

	ckpt_name_of(text, name);
	if (name[0] == '\0')
		abort();
	(void)ckpt_path_fault(text);
	assert(ckpt_name_cmp(name, name) == 0);
	of_all_nodes(a, text);
	if (ckpt_parse(&c, a, text, &err) < 0)
		return 0;
	ckpt_classify(&c, a, NULL);
	ckpt_write(&c, &out);
	if (!out.full && ckpt_parse(&again, a, buf_view(&out), &err) < 0)
		abort();
	return 0;
}
