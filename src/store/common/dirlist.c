/*
 * dirlist.c - see dirlist.h. A folder's name counts with a slash behind it, which makes the order
 * of a depth-first walk the order of full paths. A folder is read as often as needed, each time
 * keeping only its smallest names that are still wanted, so a page costs one pass over the folders
 * it touches.
 */
#include "store/common/dirlist.h"

#include <dirent.h>

#define DIRLIST_DEPTH_MAX 1024 /* a path has at most so many parts */

struct names { /* the smallest `max` names seen, a max-heap; folders end in '/' */
	char **name;
	size_t n, max;
	bool cut; /* there were more */
};

struct page {
	int root;
	const char *prefix, *after, *skip;
	size_t left; /* 0: only to find out whether there is more */
	bool more;
	void (*each)(void *arg, const char *path);
	void *arg;
};

static void names_done(struct names *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->name[i]);
	free(h->name);
}

static void swap(char **a, char **b)
{
	char *t = *a;

	*a = *b;
	*b = t;
}

static void sift_up(struct names *h, size_t i)
{
	for (; i > 0 && strcmp(h->name[i], h->name[(i - 1) / 2]) > 0; i = (i - 1) / 2)
		swap(&h->name[i], &h->name[(i - 1) / 2]);
}

static void sift_down(struct names *h)
{
	size_t i = 0;

	for (;;) {
		size_t big = i, l = 2 * i + 1, r = l + 1;

		if (l < h->n && strcmp(h->name[l], h->name[big]) > 0)
			big = l;
		if (r < h->n && strcmp(h->name[r], h->name[big]) > 0)
			big = r;
		if (big == i)
			return;
		swap(&h->name[i], &h->name[big]);
		i = big;
	}
}

static void names_add(struct names *h, const char *name)
{
	if (h->n < h->max) {
		if ((h->n & (h->n + 1)) == 0) /* 0, 1, 3, 7...: room doubles there */
			h->name = xrealloc(h->name, (2 * h->n + 1) * sizeof(*h->name));
		h->name[h->n] = xstrdup(name);
		sift_up(h, h->n++);
		return;
	}
	h->cut = true;
	if (strcmp(name, h->name[0]) >= 0)
		return;
	free(h->name[0]);
	h->name[0] = xstrdup(name);
	sift_down(h);
}

static int ascending(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Can anything at or below this path (a folder's ends in '/') be on the page? */
static bool wanted(const struct page *p, const char *path)
{
	size_t n = strlen(path), pre = strlen(p->prefix);
	bool folder = path[n - 1] == '/';

	if (strncmp(path, p->prefix, MIN(n, pre)) != 0 || (n < pre && !folder))
		return false;
	if (p->after == NULL)
		return true;
	if (strcmp(path, p->after) > 0)
		return true;
	return folder && strncmp(p->after, path, n) == 0; /* the last page ended inside it */
}

static bool is_folder(int fd, const struct dirent *e, bool *file)
{
	struct stat st;

	*file = e->d_type == DT_REG;
	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*file = S_ISREG(st.st_mode);
	return S_ISDIR(st.st_mode);
}

/* The next names of folder `dir` ("" or ending in '/') that come after `from` (NULL: all). */
static int read_names(const struct page *p, const char *dir, const char *from, struct names *h,
                      struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(p->root, dir[0] == '\0' ? "." : dir,
	                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, err);
	char path[FS_PATH_MAX];
	size_t n = strlen(dir);
	DIR *d = NULL;

	if (fd < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* it was removed meanwhile */
		return 0;
	}
	d = fdopendir(fd);
	if (d == NULL)
		return err_errno(err, errno, "folder %s", dir);
	fd = -1; /* d's */
	memcpy(path, dir, n);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		size_t len = strlen(e->d_name);
		bool file, folder;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    (n == 0 && p->skip != NULL && strcmp(e->d_name, p->skip) == 0) ||
		    n + len + 2 > sizeof(path))
			continue;
		folder = is_folder(dirfd(d), e, &file);
		if (!folder && !file)
			continue;
		memcpy(path + n, e->d_name, len + 1);
		if (folder)
			memcpy(path + n + len, "/", 2);
		if (wanted(p, path) && (from == NULL || strcmp(path + n, from) > 0))
			names_add(h, path + n);
	}
	(void)closedir(d);
	return 0;
}

static int list_folder(struct page *p, const char *dir, unsigned depth, struct err *err)
{
	AUTO_FREE char *from = NULL; /* the last name that is done with */

	if (depth > DIRLIST_DEPTH_MAX)
		return err_set(err, ERR_TOO_BIG, "folders are nested deeper than %d",
		               DIRLIST_DEPTH_MAX);
	for (bool again = true; again && !p->more;) {
		struct names h = {.max = p->left + 1};
		int rc = read_names(p, dir, from, &h, err);

		again = h.cut; /* empty folders may have used up what was kept */
		if (h.n > 1)
			qsort(h.name, h.n, sizeof(*h.name), ascending);
		for (size_t i = 0; i < h.n && rc == 0 && !p->more; i++) {
			AUTO_FREE char *path = xasprintf("%s%s", dir, h.name[i]);

			if (path[strlen(path) - 1] == '/') {
				rc = list_folder(p, path, depth + 1, err);
			} else if (p->left == 0) {
				p->more = true;
			} else {
				p->left--;
				p->each(p->arg, path);
			}
		}
		if (h.n > 0) {
			free(from);
			from = xstrdup(h.name[h.n - 1]);
		}
		names_done(&h);
		if (rc < 0)
			return -1;
	}
	return 0;
}

int dirlist(int root, const char *prefix, const char *after, size_t max, const char *skip,
            void (*each)(void *arg, const char *path), void *arg, bool *more, struct err *err)
{
	struct page p = {
		.root = root,
		.prefix = prefix,
		.after = after,
		.skip = skip,
		.left = max,
		.each = each,
		.arg = arg,
	};
	AUTO_FREE char *top = xstrdup(prefix);
	char *slash = strrchr(top, '/');

	/* what cannot be a path has nothing below it */
	*more = false;
	if (slash == NULL) {
		top[0] = '\0';
	} else {
		*slash = '\0';
		if (!fs_path_is_plain(str_of(top)))
			return 0;
		*slash = '/';
		slash[1] = '\0';
	}
	if (list_folder(&p, top, 0, err) < 0)
		return -1;
	*more = p.more;
	return 0;
}
