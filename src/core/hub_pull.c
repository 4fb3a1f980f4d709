/* hub_pull.c - see hub_pull.h. */
#include "core/hub_pull.h"

static const char *const words[] = {[PULL_DRAFT] = "draft",
                                    [PULL_OPEN] = "open",
                                    [PULL_CLOSED] = "closed",
                                    [PULL_MERGED] = "merged"};

const char *hub_pull_word(enum model_pull_status s)
{
	return words[s];
}

bool hub_pull_status(const char *word, enum model_pull_status *out)
{
	for (unsigned i = 0; i < COUNT(words); i++)
		if (strcmp(words[i], word) == 0) {
			*out = (enum model_pull_status)i;
			return true;
		}
	return false;
}

bool hub_file_same(const struct hub_file *x, const struct hub_file *y)
{
	if (x == NULL || y == NULL)
		return x == y;
	return x->lfs == y->lfs && memcmp(x->oid, y->oid, HUB_OID_LEN) == 0;
}

/* The first path that any of n listings has next; NULL: they are at their ends. */
static const char *next_path(const struct hub_listing *const *l, const size_t *at, size_t n)
{
	const char *first = NULL;

	for (size_t i = 0; i < n; i++)
		if (at[i] < l[i]->n && (first == NULL || strcmp(l[i]->file[at[i]].path, first) < 0))
			first = l[i]->file[at[i]].path;
	return first;
}

static const struct hub_file *take(const struct hub_listing *l, size_t *at, const char *path)
{
	if (*at >= l->n || strcmp(l->file[*at].path, path) != 0)
		return NULL;
	return &l->file[(*at)++];
}

static bool has_file(const struct hub_merge *m, const char *path, size_t len)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const char *p = m->file[mid].f->path;
		int order = strncmp(p, path, len);

		if (order == 0 && p[len] == '\0')
			return true;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

/* A file of one side may be a folder of the other. */
static void folder_conflicts(struct hub_merge *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const char *path = m->file[i].f->path, *slash = strchr(path, '/');

		while (slash != NULL && !has_file(m, path, (size_t)(slash - path)))
			slash = strchr(slash + 1, '/');
		if (slash != NULL)
			m->conflict[m->n_conflicts++] = path;
	}
}

static int by_text(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

void hub_merge(struct arena *a, const struct hub_listing *base, const struct hub_listing *ours,
               const struct hub_listing *theirs, struct hub_merge *out)
{
	const struct hub_listing *const l[] = {base, ours, theirs};
	size_t at[COUNT(l)] = {0}, most = base->n + ours->n + theirs->n;
	const char *path;

	*out = (struct hub_merge){.file = ARENA_ARRAY(a, struct hub_merged, most + 1),
	                          .conflict = ARENA_ARRAY(a, const char *, 2 * most + 1)};
	while ((path = next_path(l, at, COUNT(l))) != NULL) {
		const struct hub_file *was = take(base, &at[0], path);
		const struct hub_file *x = take(ours, &at[1], path);
		const struct hub_file *y = take(theirs, &at[2], path);
		bool same = hub_file_same(x, y), kept = hub_file_same(x, was);

		if (!same && !kept && !hub_file_same(y, was))
			out->conflict[out->n_conflicts++] = path;
		else if (!same && kept && y != NULL)
			out->file[out->n++] = (struct hub_merged){y, true};
		else if ((same || !kept) && x != NULL)
			out->file[out->n++] = (struct hub_merged){x, false};
	}
	folder_conflicts(out);
	if (out->n_conflicts > 0)
		qsort(out->conflict, out->n_conflicts, sizeof(*out->conflict), by_text);
}

void hub_changes(struct arena *a, const struct hub_listing *before, const struct hub_listing *after,
                 size_t max, struct hub_change **out, size_t *n)
{
	const struct hub_listing *const l[] = {before, after};
	size_t at[COUNT(l)] = {0};
	const char *path;

	*out = ARENA_ARRAY(a, struct hub_change, MIN(max, before->n + after->n) + 1);
	*n = 0;
	while (*n < max && (path = next_path(l, at, COUNT(l))) != NULL) {
		struct hub_change c = {0};

		c.before = take(before, &at[0], path);
		c.after = take(after, &at[1], path);
		if (!hub_file_same(c.before, c.after))
			(*out)[(*n)++] = c;
	}
}
