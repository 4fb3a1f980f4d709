/* git.c - what git knows about a folder; see git.h. */
#include "cli/git.h"

#include "base/fs.h"
#include "io/proc.h"

#define GIT_MS 10000
#define GIT_OUT ((size_t)4 << 20)
#define GIT_ARGS 16

/* Runs git in the folder. NULL: it failed, took too long, or said more than fits. */
static const char *ask(struct arena *a, const char *folder, const char *const *args,
                       struct str *out)
{
	/* what a repository configures is not run, and nothing is written */
	static const char *const head[] = {
		"git", "--no-optional-locks",      "-c", "core.fsmonitor=false",
		"-c",  "core.hooksPath=/dev/null", "-C"};
	const char *argv[GIT_ARGS + COUNT(head) + 2];
	AUTO_BUF struct buf text = BUF_INIT(GIT_OUT);
	struct err ignored = {0};
	size_t n = 0;
	int code = 0;

	for (size_t i = 0; i < COUNT(head); i++)
		argv[n++] = head[i];
	argv[n++] = folder;
	for (size_t i = 0; args[i] != NULL; i++) {
		assert(i < GIT_ARGS);
		argv[n++] = args[i];
	}
	argv[n] = NULL;
	if (proc_run(argv, (struct str){0}, GIT_MS, &text, &code, &ignored) < 0 || code != 0 ||
	    text.full)
		return NULL;
	*out = arena_str(a, buf_view(&text));
	return arena_strz(a, str_trim(*out));
}

#define ASK(a, folder, out, ...) ask((a), (folder), (const char *const[]){__VA_ARGS__, NULL}, (out))

const char *git_plain_url(struct arena *a, const char *url)
{
	const char *rest = strstr(url, "://"), *at, *slash;
	size_t head;

	if (rest == NULL)
		return url; /* a path, or host:path, which has no password */
	head = (size_t)(rest - url) + 3;
	rest += 3;
	slash = strchrnul(rest, '/');
	at = memrchr(rest, '@', (size_t)(slash - rest));
	if (at != NULL)
		rest = at + 1;
	return arena_printf(a, "%.*s%.*s", (int)head, url, (int)strcspn(rest, "?#"), rest);
}

/* The folder that holds .git, at or above `folder`. */
static void find_top(struct arena *a, const char *folder, struct git *out)
{
	char real[PATH_MAX];
	const char *full = realpath(folder, real) != NULL ? arena_cstr(a, real) : NULL;

	for (char *top = full != NULL ? arena_cstr(a, full) : NULL; top != NULL;) {
		char *slash = strrchr(top, '/');
		struct stat st;

		if (lstat(arena_printf(a, "%s/.git", top), &st) == 0) {
			size_t n = strlen(top);

			out->top = top[0] != '\0' ? top : "/";
			out->prefix = full[n] == '\0' ? "" : arena_printf(a, "%s/", full + n + 1);
			return;
		}
		if (slash == NULL)
			return;
		*slash = '\0';
	}
}

/* "a/b/c" and the folders a and a/b. */
static void add_tracked(struct map *m, struct str path)
{
	(void)map_set(m, path, m);
	for (size_t i = path.n; i-- > 0;) {
		if (path.p[i] == '/')
			(void)map_set(m, str_n(path.p, i), m);
	}
}

void git_look(struct arena *a, const char *folder, struct git *out)
{
	struct str text, path;
	const char *said;

	*out = (struct git){.tracked = map_new(), .prefix = ""};
	find_top(a, folder, out);
	if (out->top == NULL)
		return;
	out->commit = ASK(a, folder, &text, "rev-parse", "--verify", "--quiet", "HEAD");
	if (out->commit != NULL) {
		out->branch = ASK(a, folder, &text, "symbolic-ref", "--quiet", "--short", "HEAD");
		said = ASK(a, folder, &text, "status", "--porcelain", "--", ".");
		out->dirty = said == NULL || said[0] != '\0'; /* more than fits is a lot */
		said = ASK(a, folder, &text, "config", "--get", "remote.origin.url");
		if (said != NULL)
			out->remote = git_plain_url(a, said);
	}
	if (ASK(a, folder, &text, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard",
	        "--", ".") == NULL)
		return;
	while (str_cut(&text, '\0', &path))
		add_tracked(out->tracked, path);
}

void git_done(struct git *g)
{
	map_free(g->tracked);
	g->tracked = NULL;
}
