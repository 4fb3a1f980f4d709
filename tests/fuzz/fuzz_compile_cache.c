/* fuzz_compile_cache.c - first line: a kind and a path; then the content of a file, or, of lines
 * that begin with a blank, the names of a cache. Nothing is taken that the sift has no reason to
 * take. */
#include "core/compile_cache.h"

#define FILES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Two cuts of the same files are marked alike, whatever their order. */
static void sift(struct arena *a, enum compile_kind kind, struct str text)
{
	struct compile_file file[FILES_MAX], back[FILES_MAX];
	struct str line, path;
	size_t n = 0;

	while (n < FILES_MAX && str_cut(&text, '\n', &line)) {
		if (!str_cut(&line, '\t', &path) || path.n == 0)
			continue;
		file[n++] = (struct compile_file){.path = arena_strz(a, path),
		                                  .changed_ms = (int64_t)(path.n % 16) * 1000,
		                                  .text = line};
	}
	for (size_t i = 0; i < n; i++)
		back[n - 1 - i] = file[i];
	compile_cache_sift(kind, file, n, 12000);
	compile_cache_sift(kind, back, n, 12000);
	for (size_t i = 0; i < n; i++) {
		assert(file[i].take == (file[i].left == COMPILE_TAKEN));
		assert(file[i].left == back[n - 1 - i].left);
		assert(!file[i].take || !str_ends(str_of(file[i].path), ".lock"));
	}
}

/* No file is older than the record's earliest. */
static void built(struct arena *a, struct str text, const char *name)
{
	struct compile_built b;
	int64_t ns;

	if (!compile_cache_built(a, "x/.ninja_log", text, &b))
		return;
	assert(b.n > 0 && b.first_ns > 0);
	assert(compile_cache_built_ns(&b, arena_printf(a, "x/%s", name), &ns) && ns >= b.first_ns);
	for (size_t i = 0; i < b.n; i++) {
		const char *path = arena_printf(a, "x/%s", arena_strz(a, b.output[i].name));

		assert(compile_cache_built_ns(&b, path, &ns) && ns >= b.first_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_BUF struct buf moved = BUF_INIT((size_t)64 << 20);
	AUTO_ARENA struct arena *a = arena_new();
	struct str text = str_n((const char *)data, n), path;
	struct compile_place p;
	const char *name, *entry;
	enum compile_kind kind;

	if (!str_cut(&text, '\n', &path) || path.n < 2)
		return 0;
	kind = (enum compile_kind)((uint8_t)path.p[0] % COMPILE_KIND_COUNT);
	name = arena_strz(a, str_skip(path, 1));
	entry = compile_cache_entry(a, kind, name);
	assert(entry == NULL || str_starts(str_of(name), entry));
	if (compile_cache_place(a, name, &p))
		assert(strcmp(compile_cache_repo_path(a, p.kind, p.device, p.path), name) == 0);
	(void)compile_cache_is_whole(kind, name, text);
	if (compile_cache_move(kind, name, text, "/place", &moved))
		assert(compile_cache_wants_text(kind, name) &&
		       compile_cache_is_whole(COMPILE_TRITON, "k.json", buf_view(&moved)));
	built(a, text, name);
	sift(a, kind, text);
	return 0;
}
