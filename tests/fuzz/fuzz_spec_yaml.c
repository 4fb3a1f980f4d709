/* fuzz_spec_yaml.c - a specification from a file; the last line, "path=value", is set in it. */
#include "fuzz/fuzz_spec.h"

#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = str_n((const char *)data, n), set, path;
	const char *last = n > 0 ? memrchr(data, '\n', n) : NULL;
	const struct doc *d;
	struct err err = {0};

	if (yml_parse(a, text, &d, &err) < 0)
		return 0;
	fuzz_spec(a, d, SPEC_FILE);
	set = last != NULL ? str_skip(text, (size_t)(last - text.p) + 1) : text;
	if (str_cut(&set, '=', &path) && spec_set(a, &d, path, set, &err) == 0)
		fuzz_spec(a, d, SPEC_FILE);
	return 0;
}
