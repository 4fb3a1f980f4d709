/*
 * fuzz_set.c - any names as a checkpoint: a line each, the first one its own name, then paths; what
 * a line begins with says how the file is. The verdict does not depend on the order.
 */
#include "base/arena.h"
#include "format/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define FILES_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct format_result kinds[] = {
		{.verdict = FORMAT_WHOLE, .format = "torch zip"},
		{.verdict = FORMAT_TORN, .format = "torch zip", .reason = "lacks 2 of 3 tensors"},
		{.verdict = FORMAT_UNKNOWN, .format = ""},
		{.verdict = FORMAT_WHOLE, .format = "gguf", .splits = 3},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct set_file file[FILES_MAX], back[FILES_MAX];
	struct set_query q = {.name = "", .file = file};
	struct set_result one, two;
	struct str rest = str_n((const char *)data, n), line;

	if (n == 0 || memchr(data, 0, n) != NULL)
		return 0;
	q.world = data[0] % 5;
	if (str_cut(&rest, '\n', &line))
		q.name = arena_strz(a, line);
	while (q.n < FILES_MAX && str_cut(&rest, '\n', &line)) {
		unsigned kind = line.n == 0 ? 0 : (uint8_t)line.p[0];
		char *path = arena_strz(a, str_skip(line, 1));
		bool again = false;

		for (size_t i = 0; i < q.n; i++)
			again = again || strcmp(file[i].path, path) == 0;
		if (path[0] != '\0' && !again)
			file[q.n++] = (struct set_file){
				.path = path, .size = kind, .check = &kinds[kind % COUNT(kinds)]};
	}
	set_check(a, &q, &one);
	for (size_t i = 0; i < q.n; i++)
		back[i] = file[q.n - 1 - i];
	q.file = back;
	set_check(a, &q, &two);
	if (one.state != two.state || one.layout != two.layout || strcmp(one.words, two.words) != 0)
		abort();
	if (one.words[0] == '\0' || (one.n_problems > 0 && one.state >= SET_WAITING))
		abort();
	return 0;
}
