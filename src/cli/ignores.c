/* ignores.c - the ignore files of a folder that is pushed; see ignores.h and pack.h. */
#include "cli/ignores.h"

#include "base/fs.h"

#define IGNORE_MAX ((size_t)1 << 20) /* of one such file */
#define FILES_MAX 10000              /* .gitignore files that are read */
#define ABOVE_MAX 64                 /* folders between the job's and the root of the work tree */
#define BY_DEFAULT "default"

struct above { /* a file that counts for the whole folder, by paths from where it is */
	const struct ignore *rules;
	const char *prefix, *name;
};

struct ignores {
	struct arena *a;
	int root;
	const struct git *git; /* NULL: gitignore files do not count */
	const struct ignore *own;
	const char *own_name;
	const struct ignore *always, *dflt; /* dflt NULL: .stokerignore says it all */
	struct map *dirs;                   /* a folder's path to its .gitignore, or to `none` */
	struct map *entered; /* folders that are left out but for what git tracks in them */
	size_t n_files;
	struct above above[ABOVE_MAX];
	size_t n_above;
};

static const char none[] = "";

/* NULL: there is no such file, or not one that can be read. */
static const struct ignore *read_rules(struct ignores *ig, int dir, const char *path)
{
	AUTO_BUF struct buf text = BUF_INIT(IGNORE_MAX);
	struct err ignored = {0};

	if (ig->n_files >= FILES_MAX || fs_read(dir, path, &text, &ignored) < 0)
		return NULL;
	ig->n_files++;
	return ignore_parse(ig->a, arena_str(ig->a, buf_view(&text)));
}

static void add_above(struct ignores *ig, const char *file, const char *prefix, const char *name)
{
	const struct ignore *rules = read_rules(ig, AT_FDCWD, file);

	if (rules != NULL && ig->n_above < ABOVE_MAX)
		ig->above[ig->n_above++] = (struct above){rules, prefix, name};
}

/* From the folder's parent to the root of the work tree, then the repository's own list. */
static void read_above(struct ignores *ig)
{
	const char *prefix = ig->git->prefix, *top = ig->git->top;
	size_t n = strlen(prefix);

	while (n > 0) { /* "a/b/": first what is in a, by paths from there */
		const char *from = prefix + n - 1;

		while (from > prefix && from[-1] != '/')
			from--;
		n = (size_t)(from - prefix);
		add_above(ig, arena_printf(ig->a, "%s/%.*s.gitignore", top, (int)n, prefix), from,
		          ".gitignore");
	}
	add_above(ig, arena_printf(ig->a, "%s/.git/info/exclude", top), prefix,
	          ".git/info/exclude");
}

int ignores_open(struct arena *a, int root, const struct git *git, struct ignores **out,
                 struct err *err)
{
	static const char *const names[] = {".stokerignore", ".truss_ignore"};
	AUTO_IGNORES struct ignores *ig = xcalloc(1, sizeof(*ig));

	ig->a = a;
	ig->root = root;
	ig->git = git;
	ig->dirs = map_new();
	ig->entered = map_new();
	ig->always = ignore_parse(a, str_of(ignore_always));
	for (size_t i = 0; i < COUNT(names) && ig->own == NULL; i++) {
		AUTO_BUF struct buf text = BUF_INIT(IGNORE_MAX);

		if (faccessat(root, names[i], R_OK, 0) < 0)
			continue;
		if (fs_read(root, names[i], &text, err) < 0)
			return -1;
		ig->own = ignore_parse(a, arena_str(a, buf_view(&text)));
		ig->own_name = names[i];
	}
	if (ig->own == NULL)
		ig->dflt = ignore_parse(a, str_of(ignore_builtin));
	if (git != NULL && git->top != NULL)
		read_above(ig);
	*out = TAKE(ig);
	return 0;
}

void ignores_close(struct ignores *ig)
{
	if (ig == NULL)
		return;
	map_free(ig->dirs);
	map_free(ig->entered);
	free(ig);
}

static const struct ignore *rules_of(struct ignores *ig, struct str dir)
{
	void *found = map_get(ig->dirs, dir);
	const struct ignore *rules;
	union { /* the map keeps what it is given, and changes nothing */
		const void *in;
		void *kept;
	} as;

	if (found != NULL)
		return found == (const void *)none ? NULL : found;
	rules = read_rules(
		ig, ig->root,
		arena_printf(ig->a, "%.*s%s.gitignore", STR_ARG(dir), dir.n > 0 ? "/" : ""));
	as.in = rules != NULL ? (const void *)rules : (const void *)none;
	(void)map_set(ig->dirs, dir, as.kept);
	return rules;
}

/* The nearest file counts most. *by: which one spoke. */
static enum ignore_word git_says(struct ignores *ig, const char *path, bool is_dir, const char **by)
{
	struct str dir = str_of(path);
	enum ignore_word word;

	*by = ".gitignore";
	while (dir.n > 0) {
		const struct ignore *rules;

		while (dir.n > 0 && dir.p[dir.n - 1] != '/')
			dir.n--;
		rules = rules_of(ig, str_n(dir.p, dir.n > 0 ? dir.n - 1 : 0));
		word = rules != NULL ? ignore_says(rules, path + dir.n, is_dir) : IGNORE_SILENT;
		if (word != IGNORE_SILENT)
			return word;
		dir.n -= dir.n > 0;
	}
	for (size_t i = 0; i < ig->n_above; i++) {
		char full[2 * PATH_MAX];

		if (snprintf(full, sizeof(full), "%s%s", ig->above[i].prefix, path) >=
		    (int)sizeof(full))
			continue;
		word = ignore_says(ig->above[i].rules, full, is_dir);
		*by = ig->above[i].name;
		if (word != IGNORE_SILENT)
			return word;
	}
	return IGNORE_SILENT;
}

static struct str parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return str_n(path, slash != NULL ? (size_t)(slash - path) : 0);
}

static const char *by_git(struct ignores *ig, const char *path, bool is_dir, bool *decided)
{
	struct str parent = parent_of(path);
	const char *by = ".gitignore";
	bool inside = parent.n > 0 && map_get(ig->entered, parent) != NULL;
	enum ignore_word word = inside ? IGNORE_OUT : git_says(ig, path, is_dir, &by);

	*decided = word != IGNORE_SILENT;
	if (word != IGNORE_OUT)
		return NULL;
	if (map_get(ig->git->tracked, str_of(path)) == NULL)
		return by;
	if (is_dir)
		(void)map_set(ig->entered, str_of(path), ig);
	return NULL;
}

const char *ignores_by(struct ignores *ig, const char *path, bool is_dir)
{
	bool decided = false;
	const char *by;

	if (ig->own != NULL) {
		enum ignore_word word = ignore_says(ig->own, path, is_dir);

		if (word != IGNORE_SILENT)
			return word == IGNORE_OUT ? ig->own_name : NULL;
	}
	if (ig->git != NULL) {
		by = by_git(ig, path, is_dir, &decided);
		if (decided)
			return by;
	}
	if (ignore_says(ig->always, path, is_dir) == IGNORE_OUT ||
	    (ig->dflt != NULL && ignore_says(ig->dflt, path, is_dir) == IGNORE_OUT))
		return BY_DEFAULT;
	return NULL;
}
