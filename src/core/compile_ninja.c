/* compile_ninja.c - when ninja, by its own record, has built what lies beside that record. */
#include "core/compile_cache.h"

#include <stdlib.h>
#include <string.h>

#define RECORD ".ninja_log"
#define OUTPUTS_MAX ((size_t)100000)
#define NS_MIN ((int64_t)1000000000000000) /* versions of ninja before 1.9 counted seconds */

static int compare(struct str a, struct str b)
{
	int rc = memcmp(a.p, b.p, MIN(a.n, b.n));

	return rc != 0 ? rc : (a.n > b.n) - (a.n < b.n);
}

static int by_name(const void *a, const void *b)
{
	const struct compile_output *x = a, *y = b;
	int rc = compare(x->name, y->name);

	/* of the same name, the one that came last first */
	return rc != 0 ? rc : x->line < y->line ? 1 : -1;
}

/* START \t END \t MTIME \t OUTPUT \t HASH */
static bool read_line(struct str line, struct compile_output *out)
{
	struct str field[5];
	struct err bad = {0};

	for (size_t i = 0; i < COUNT(field); i++) {
		if (!str_cut(&line, '\t', &field[i]))
			return false;
	}
	out->name = field[3];
	return out->name.n > 0 && str_i64(field[2], NS_MIN, INT64_MAX, &out->ns, &bad) == 0;
}

bool compile_cache_is_built(const char *path)
{
	return str_ends(str_of(path), "/" RECORD);
}

bool compile_cache_built(struct arena *a, const char *path, struct str log,
                         struct compile_built *out)
{
	struct str line;
	size_t lines = 1;

	assert(compile_cache_is_built(path));
	*out = (struct compile_built){.folder = str_n(path, strlen(path) - strlen(RECORD))};
	if (log.n > COMPILE_TEXT_MAX || !str_starts(log, "# ninja log v"))
		return false;
	for (size_t i = 0; i < log.n; i++)
		lines += log.p[i] == '\n';
	if (lines > OUTPUTS_MAX)
		return false;
	out->output = ARENA_ARRAY(a, struct compile_output, lines);
	(void)str_cut(&log, '\n', &line);
	while (str_cut(&log, '\n', &line)) {
		struct compile_output *o = &out->output[out->n];

		o->line = out->n;
		if (read_line(line, o))
			out->n++;
	}
	if (out->n == 0)
		return false;
	qsort(out->output, out->n, sizeof(*out->output), by_name);
	out->first_ns = out->output[0].ns;
	for (size_t i = 1; i < out->n; i++)
		out->first_ns = MIN(out->first_ns, out->output[i].ns);
	return true;
}

bool compile_cache_built_ns(const struct compile_built *built, const char *path, int64_t *ns)
{
	size_t low = 0, high = built->n;
	struct str name = str_of(path);

	if (name.n < built->folder.n || memcmp(name.p, built->folder.p, built->folder.n) != 0)
		return false;
	name = str_skip(name, built->folder.n);
	while (low < high) { /* the first of its name */
		size_t mid = low + (high - low) / 2;

		if (compare(built->output[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ns = low < built->n && str_same(built->output[low].name, name) ? built->output[low].ns
	                                                                : built->first_ns;
	return true;
}
