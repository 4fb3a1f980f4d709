/* fuzz_manifest.c - what is read as a manifest is written the same, byte for byte. */
#include "core/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(MANIFEST_BYTES_MAX);
	struct str text = str_n((const char *)data, n);
	struct manifest m;
	struct digest name, want = hash_sha256(data, n);
	struct err err = {0};

	if (manifest_parse(&m, a, text, &err) < 0)
		return 0;
	manifest_write(&m, &out, &name);
	assert(str_same(buf_view(&out), text));
	assert(digest_same(&name, &want));
	for (size_t i = 0; i < m.n; i++)
		assert(manifest_find(&m, str_of(m.file[i].path)) == &m.file[i]);
	return 0;
}
