/* fuzz_yaml.c - any bytes as YAML: an error with words, or a tree within its limits. */
#include "base/json.h"
#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct doc *d, unsigned depth)
{
	size_t count = 0;

	if (depth > YML_DEPTH_MAX)
		abort();
	DOC_EACH (c, d) {
		if (d->kind == DOC_MAP && (c->key.n == 0 || doc_get(d, c->key.p) != c))
			abort();
		check(c, depth + 1);
		count++;
	}
	if (count != d->count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT((size_t)16 << 20);
	const struct doc *d = NULL;
	struct err err = {0};
	struct js js;

	if (yml_parse(a, str_n((const char *)data, n), &d, &err) < 0) {
		if (err.code == ERR_NONE || err.msg[0] == '\0' || d != NULL)
			abort();
		return 0;
	}
	check(d, 0);
	js_init(&js, &out);
	js_doc(&js, d);
	return 0;
}
