/* fuzz_artifact.c - whatever a path is, its name is plain, and says of which kind it is. */
#include "core/artifact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void look(const struct artifact_name *name, const char *prefix)
{
	struct str part, rest = str_of(name->text);

	assert(str_starts(rest, prefix) && str_is_utf8(rest));
	while (str_cut(&rest, '/', &part))
		assert(part.n > 0 && !str_eq(part, ".") && !str_eq(part, ".."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_FREE char *copy = xmalloc(n + 1);
	struct artifact_name name;
	struct err err = {0};

	if (n > 0)
		memcpy(copy, data, n);
	if (artifact_ccache_name(str_n(copy, n), &name, &err) == 0) {
		look(&name, "ccache/");
		assert(strlen(name.text) == strlen("ccache/") + 40);
	}
	err_clear(&err);
	if (artifact_bazel_name(str_n(copy, n), &name, &err) == 0)
		look(&name, name.kind == ARTIFACT_CONTENT ? "cas/" : "ac/");
	err_clear(&err);
	if (artifact_file_name(str_n(copy, n), &name, &err) == 0)
		look(&name, "file/");
	return 0;
}
