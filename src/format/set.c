/* set.c - the verdict on a set of files, and its words; see set.h. */
#include "format/set.h"

#include "format/set_work.h"

const char *set_state_word(enum set_state s)
{
	static const char *const words[] = {
		[SET_UNFINISHED] = "unfinished",
		[SET_TORN] = "torn",
		[SET_HOLE] = "hole",
		[SET_WAITING] = "waiting",
		[SET_PLAUSIBLE] = "plausible",
		[SET_PROVEN] = "proven",
	};

	assert(s < COUNT(words));
	return words[s];
}

const char *set_fault_word(enum set_fault f)
{
	static const char *const words[] = {
		[SET_FAULT_TORN] = "torn",
		[SET_FAULT_MISSING] = "missing",
		[SET_FAULT_SIZE] = "size",
		[SET_FAULT_CONTENT] = "content",
	};

	assert(f < COUNT(words));
	return words[f];
}

/* ---- what layouts and rules look things up with ---- */

struct member *work_find(const struct work *w, struct str folder, const char *name)
{
	char path[FORMAT_PATH_MAX * 2];
	int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)folder.n,
	                 folder.n == 0 ? "" : folder.p, folder.n == 0 ? "" : "/", name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return NULL;
	return map_get(w->by_path, str_n(path, (size_t)n));
}

bool work_has_folder(const struct work *w, struct str path)
{
	return map_get(w->folders, path) != NULL;
}

bool work_any(const struct work *w, const char *pattern)
{
	if (strpbrk(pattern, "*#?") == NULL && map_get(w->by_path, str_of(pattern)) != NULL)
		return true;
	for (size_t i = 0; i < w->n; i++)
		if (name_match(pattern, w->m[i].path, NULL))
			return true;
	return false;
}

char *work_join(struct work *w, struct str folder, const char *name)
{
	return folder.n == 0 ? arena_cstr(w->a, name)
	                     : arena_printf(w->a, "%.*s/%s", STR_ARG(folder), name);
}

void work_problem(struct work *w, enum set_fault fault, const char *path, const char *fmt, ...)
{
	struct set_result *out = w->out;
	char why[FORMAT_REASON_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	if (out->n_problems < SET_SHOWN_MAX)
		out->problem[out->n_problems] =
			(struct set_problem){fault, arena_cstr(w->a, path), arena_cstr(w->a, why)};
	out->n_problems++;
}

void work_missing(struct work *w, const char *path)
{
	if (!w->q->part)
		work_problem(w, SET_FAULT_MISSING, path, "is missing");
}

/* ---- the members ---- */

static int by_path(const void *a, const void *b)
{
	const struct member *x = a, *y = b;
	int c = strcmp(x->file->path, y->file->path);

	return c != 0 ? c : (x->file->node > y->file->node) - (x->file->node < y->file->node);
}

/* The same path on two nodes must be the same file. */
static void hold_together(struct work *w, const struct member *a, const struct member *b)
{
	const struct set_file *x = a->file, *y = b->file;

	if (x->size != y->size ||
	    (x->sha256 != NULL && y->sha256 != NULL && !digest_same(x->sha256, y->sha256)))
		work_problem(w, SET_FAULT_CONTENT, x->path,
		             "is not the same on node %" PRIu32 " and node %" PRIu32, x->node,
		             y->node);
}

static void add_folders(struct work *w, struct str folder)
{
	while (folder.n > 0 && map_get(w->folders, folder) == NULL) {
		(void)map_set(w->folders, folder, w);
		folder = name_folder(folder);
	}
}

static void gather(struct work *w)
{
	static const struct format_result unchecked = {.format = ""};
	size_t kept = 0;

	w->m = ARENA_ARRAY(w->a, struct member, w->q->n + 1);
	for (size_t i = 0; i < w->q->n; i++) {
		const struct set_file *f = &w->q->file[i];
		struct str path = str_of(f->path);

		if (format_name(path) == FORMAT_NAME_PLAIN)
			w->m[w->n++] = (struct member){
				.path = path,
				.folder = name_folder(path),
				.name = name_base(path),
				.file = f,
				.check = f->check == NULL ? &unchecked : f->check,
			};
	}
	if (w->n > 0)
		qsort(w->m, w->n, sizeof(w->m[0]), by_path);
	for (size_t i = 0; i < w->n; i++) {
		if (kept > 0 && str_same(w->m[kept - 1].path, w->m[i].path)) {
			hold_together(w, &w->m[kept - 1], &w->m[i]);
			continue;
		}
		w->m[kept] = w->m[i];
		(void)map_set(w->by_path, w->m[kept].path, &w->m[kept]);
		add_folders(w, w->m[kept].folder);
		w->out->checked += w->m[kept].check->verdict == FORMAT_WHOLE;
		if (w->out->hole == NULL && w->m[kept].check->hole)
			w->out->hole = w->m[kept].file->path;
		kept++;
	}
	w->n = w->out->files = kept;
}

/* ---- the sibling ---- */

/* The name with each number that is in the checkpoint's own name replaced: what two checkpoints
 * have in common. */
static struct str common(struct str path, struct str own, struct buf *out)
{
	buf_clear(out);
	for (size_t i = 0; i < path.n;) {
		size_t n = 0;
		bool mine = false;

		while (i + n < path.n && path.p[i + n] >= '0' && path.p[i + n] <= '9')
			n++;
		for (size_t k = 0; n > 0 && k + n <= own.n && !mine; k++)
			mine = memcmp(own.p + k, path.p + i, n) == 0 &&
			       (k == 0 || own.p[k - 1] < '0' || own.p[k - 1] > '9') &&
			       (k + n == own.n || own.p[k + n] < '0' || own.p[k + n] > '9');
		if (mine)
			buf_putc(out, '\1');
		else
			buf_add(out, path.p + i, MAX(n, 1));
		i += MAX(n, 1);
	}
	return buf_view(out);
}

static void compare_sibling(struct work *w)
{
	AUTO_BUF struct buf text = BUF_INIT((size_t)16 << 10);
	AUTO_MAP struct map *mine = map_new();
	struct str own = str_of(w->q->name), other;
	size_t there = 0, missing = 0;

	if (w->q->sibling == NULL)
		return;
	other = str_of(w->q->sibling);
	for (size_t i = 0; i < w->n; i++)
		(void)map_set(mine, common(w->m[i].path, own, &text), w);
	for (size_t i = 0; i < w->q->n_sibling; i++) {
		struct str path = str_of(w->q->sibling_file[i]);

		if (format_name(path) != FORMAT_NAME_PLAIN)
			continue;
		if (map_get(mine, common(path, other, &text)) != NULL) {
			there++;
		} else {
			missing++;
			if (w->out->lacks == NULL || strcmp(path.p, w->out->lacks) < 0)
				w->out->lacks = path.p;
		}
	}
	w->out->fewer_names = missing > 0;
	w->out->same_names = missing == 0 && there == w->n && w->n > 0;
}

/* ---- the verdict ---- */

static enum set_state state_of(const struct work *w)
{
	const struct set_result *out = w->out;
	bool torn = false;

	if (out->unfinished != NULL)
		return SET_UNFINISHED;
	for (size_t i = 0; i < MIN(out->n_problems, (size_t)SET_SHOWN_MAX); i++)
		torn = torn || out->problem[i].fault == SET_FAULT_TORN;
	if (out->n_problems > 0)
		return torn ? SET_TORN : SET_HOLE;
	if (out->last != NULL && !out->last_there && !w->q->part)
		return SET_WAITING;
	if (w->n == 0)
		return SET_PLAUSIBLE;
	if (out->layout->one_file && w->m[0].check->verdict == FORMAT_WHOLE)
		return SET_PROVEN;
	if (out->same_names || (out->proof[0] != '\0' && !w->open_end && !out->fewer_names))
		return SET_PROVEN;
	return SET_PLAUSIBLE;
}

static void say_proof(struct work *w)
{
	char *p = w->out->proof;

	if (w->out->n_problems > 0)
		return;
	if (w->hashes > 0 && w->hashes == w->hashes_right)
		(void)snprintf(p, SET_WORDS_MAX, "integrity.json, %zu hashes match", w->hashes);
	else if (w->dcp)
		(void)snprintf(p, SET_WORDS_MAX,
		               ".metadata lists %zu shards of %zu, all sizes right", w->shards,
		               w->shards);
	else if (w->indexes > 0)
		(void)snprintf(p, SET_WORDS_MAX, "all shards of the index present");
	else if (w->splits > 0)
		(void)snprintf(p, SET_WORDS_MAX, "all %zu parts present", w->splits);
	else if (w->out->ranks > 0)
		(void)snprintf(p, SET_WORDS_MAX, "all %" PRIu32 " ranks present", w->out->ranks);
}

static void count_files(char *out, size_t cap, size_t n)
{
	(void)snprintf(out, cap, "%zu %s checked", n, n == 1 ? "file" : "files");
}

/* Some last files cannot be checked: a YAML, or one that is beside the folder. */
static bool last_is_whole(const struct work *w)
{
	const struct member *m = map_get(w->by_path, str_of(w->out->last));

	return m != NULL && m->check->verdict == FORMAT_WHOLE;
}

static void say_whole(const struct work *w)
{
	struct set_result *out = w->out;
	char files[40];

	count_files(files, sizeof(files), out->checked);
	if (out->fewer_names)
		(void)snprintf(out->words, SET_WORDS_MAX, "%s, but %.120s of %.100s has no match",
		               files, out->lacks, w->q->sibling);
	else if (out->proof[0] != '\0' && (w->dcp || w->hashes > 0))
		(void)snprintf(out->words, SET_WORDS_MAX, "%s", out->proof);
	else if (out->last != NULL && out->last_there && !last_is_whole(w))
		(void)snprintf(out->words, SET_WORDS_MAX, "%.200s is there, %s", out->last, files);
	else if (out->last != NULL && out->last_there)
		(void)snprintf(out->words, SET_WORDS_MAX, "%.200s and %zu files checked", out->last,
		               out->checked - MIN(out->checked, (size_t)1));
	else if (out->proof[0] != '\0')
		(void)snprintf(out->words, SET_WORDS_MAX, "%s, %.200s", files, out->proof);
	else if (out->same_names)
		(void)snprintf(out->words, SET_WORDS_MAX, "%s, same names as %.200s", files,
		               w->q->sibling);
	else if (out->checked > 0)
		(void)snprintf(out->words, SET_WORDS_MAX, "%s", files);
	else
		(void)snprintf(out->words, SET_WORDS_MAX, "format not known");
}

static void say(struct work *w)
{
	struct set_result *out = w->out;
	const struct set_problem *p = &out->problem[0];
	char more[40] = "";

	switch (out->state) {
	case SET_UNFINISHED:
		(void)snprintf(out->words, SET_WORDS_MAX, "%.200s says that it is not finished",
		               out->unfinished);
		break;
	case SET_TORN:
	case SET_HOLE:
		if (out->n_problems > 1)
			FMT(more, "; and %zu more", out->n_problems - 1);
		(void)snprintf(out->words, SET_WORDS_MAX, "%.150s %s%s", p->path, p->why, more);
		break;
	case SET_WAITING:
		(void)snprintf(out->words, SET_WORDS_MAX, "waiting for %.200s", out->last);
		break;
	case SET_PLAUSIBLE:
	case SET_PROVEN:
		say_whole(w);
		break;
	}
}

void set_check(struct arena *a, const struct set_query *q, struct set_result *out)
{
	struct work w = {.magic = WORK_MAGIC, .a = a, .q = q, .out = out};

	memset(out, 0, sizeof(*out));
	w.by_path = map_new();
	w.folders = map_new();
	gather(&w);
	out->layout = layout_find(&w);
	layout_last(&w);
	rules_run(&w);
	compare_sibling(&w);
	say_proof(&w);
	out->state = state_of(&w);
	say(&w);
	map_free(w.by_path);
	map_free(w.folders);
}
