/*
 * source_file.c - file:///path: a file or a folder below one of the roots that the administrator
 * allows. Links inside are followed as long as they stay below the root. A file promises no digest:
 * its size and time of change must be the same before and after it was read.
 */
#include "store/sources/source_impl.h"

#include "base/fs.h"

#include <dirent.h>

#define DEPTH_MAX 64
#define LOOK_MAX 1000 /* folders in which a push looks for a file */
#define READ_MAX ((size_t)1 << 20)

struct file_source {
	struct source base;
	int root;         /* descriptor of the allowed folder */
	const char *path; /* below it; "" = the root itself */
	bool single;      /* path is a file, known after listing */
};

/* The file system refused: says on which machine, which a user takes for the own one, and what
 * mends it. */
static int refused(struct err *err)
{
	static const struct {
		enum err_code code;
		const char *words;
	} rows[] = {
		{ERR_NOT_FOUND, "not found on the server's machine, where file:// sources are "
	                        "read. Put it there, or correct the URL"},
		{ERR_DENIED,
	         "not readable on the server's machine, where file:// sources are read: let the "
	         "server's user read it; links may not lead out of the allowed folder"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		if (err->code == rows[i].code)
			return err_wrap(err, "%s", rows[i].words);
	return -1;
}

/* --- open ------------------------------------------------------------------------------------ */

/* The part of `path` below `root`, without a leading '/'; p is NULL when it is not below. */
static struct str below(struct str root, struct str path)
{
	while (root.n > 0 && root.p[root.n - 1] == '/')
		root.n--;
	if (path.n < root.n || memcmp(path.p, root.p, root.n) != 0 ||
	    (path.n > root.n && path.p[root.n] != '/'))
		return (struct str){0};
	return path.n > root.n ? str_skip(path, root.n + 1) : STR_LIT("");
}

static int parse(struct file_source *f, struct str rest, const struct source_options *o,
                 struct err *err)
{
	struct str path, rel = {0};

	if (url_decode(f->base.arena, rest, &path, err) < 0)
		return -1;
	while (path.n > 1 && path.p[path.n - 1] == '/')
		path.n--;
	if (!str_starts(path, "/") || (path.n > 1 && !fs_path_is_plain(str_skip(path, 1))))
		return err_set(err, ERR_INVALID,
		               "use an absolute path without . and .. parts: "
		               "file:///folder/file");
	for (size_t i = 0; i < o->n_file_roots; i++) {
		rel = below(str_of(o->file_roots[i]), path);
		if (rel.p == NULL)
			continue;
		f->root = fs_open_dir(o->file_roots[i], err);
		f->path = arena_strz(f->base.arena, rel);
		return f->root < 0 ? refused(err) : 0;
	}
	return err_set(err, ERR_SOURCE_ROOT_DENIED,
	               "this server does not allow that folder; an administrator can allow it with "
	               "--allow-file-root");
}

static int file_open(struct source **out, struct str rest, const struct source_options *o,
                     struct err *err)
{
	struct file_source *f = source_new(o, sizeof(*f));

	f->base.ops = &source_file_ops;
	f->root = -1;
	if (parse(f, rest, o, err) < 0) {
		source_close(&f->base);
		return -1;
	}
	*out = &f->base;
	return 0;
}

static void file_done(struct source *s)
{
	struct file_source *f = (struct file_source *)s;

	if (f->root >= 0)
		(void)close(f->root);
}

/* --- listing --------------------------------------------------------------------------------- */

static void format_etag(const struct stat *st, char out[48])
{
	fmt_fixed(out, 48, "%lld.%09ld", (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

static int open_below(const struct file_source *f, const char *path, struct err *err)
{
	/* Not blocking: what turns out to be a pipe would wait for its writer. */
	return fs_open_beneath(f->root, path[0] != '\0' ? path : ".", O_RDONLY | O_NOCTTY, 0, err);
}

static int found(const struct stat *st, struct str rel, struct source_found *to, struct err *err)
{
	char etag[48];

	format_etag(st, etag);
	return source_found(to, rel, (uint64_t)st->st_size, HASH_SHA256, NULL, str_of(etag), err);
}

/* A link: what it leads to must be a file below the root. */
static int found_link(const struct file_source *f, struct str rel, struct source_found *to,
                      struct err *err)
{
	AUTO_BUF struct buf path = BUF_INIT(FS_PATH_MAX);
	AUTO_FD int fd = -1;
	struct stat st;

	buf_printf(&path, "%s%s%.*s", f->path, f->path[0] != '\0' ? "/" : "", STR_ARG(rel));
	if (buf_check(&path, "the path", err) < 0)
		return -1;
	fd = open_below(f, buf_cstr(&path), err);
	if (fd < 0)
		return err_wrap(err,
		                "the link \"%.*s\" cannot be followed below the allowed folder",
		                STR_ARG(rel));
	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "%.*s", STR_ARG(rel));
	if (!S_ISREG(st.st_mode))
		return err_set(
			err, ERR_INVALID,
			"\"%.*s\" is a link to something that is not a file: exclude it with "
			"ignore_patterns, or name its target as a source of its own",
			STR_ARG(rel));
	return found(&st, rel, to, err);
}

static int walk(const struct file_source *f, int dirfd, struct buf *rel, int depth,
                struct source_found *to, struct err *err);

static int visit(const struct file_source *f, int dirfd, const char *name, struct buf *rel,
                 int depth, struct source_found *to, struct err *err)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", buf_cstr(rel));
	if (S_ISDIR(st.st_mode)) {
		AUTO_FD int fd =
			openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return err_errno(err, errno, "%s", buf_cstr(rel));
		return walk(f, fd, rel, depth + 1, to, err);
	}
	if (!source_wanted(to, buf_view(rel)))
		return source_found(to, buf_view(rel), 0, HASH_SHA256, NULL, (struct str){0}, err);
	if (S_ISLNK(st.st_mode))
		return found_link(f, buf_view(rel), to, err);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID,
		               "\"%s\" is not a file: exclude it with ignore_patterns",
		               buf_cstr(rel));
	return found(&st, buf_view(rel), to, err);
}

static int walk(const struct file_source *f, int dirfd, struct buf *rel, int depth,
                struct source_found *to, struct err *err)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an offset of its own */
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	size_t at = rel->n;
	int r = 0;

	if (dir == NULL) {
		(void)err_errno(err, errno, "%s", buf_cstr(rel));
		if (fd >= 0)
			(void)close(fd);
		return -1;
	}
	if (depth > DEPTH_MAX)
		r = err_set(err, ERR_TOO_BIG, "\"%s\": folders deeper than %d", buf_cstr(rel),
		            DEPTH_MAX);
	while (r == 0) {
		const struct dirent *e;

		errno = 0;
		e = readdir(dir);
		if (e == NULL && errno != 0)
			r = err_errno(err, errno, "%s", buf_cstr(rel));
		if (e == NULL)
			break;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		buf_printf(rel, "%s%s", at > 0 ? "/" : "", e->d_name);
		r = buf_check(rel, "build the path of a file", err);
		if (r == 0)
			r = visit(f, dirfd, e->d_name, rel, depth, to, err);
		rel->n = at;
		if (rel->p != NULL)
			rel->p[at] = '\0';
	}
	(void)closedir(dir);
	return r;
}

/* The file or the folder that the URL names. fd or -1. */
static int open_named(const struct file_source *f, struct stat *st, struct err *err)
{
	AUTO_FD int fd = f->path[0] != '\0'
	                         ? open_below(f, f->path, err)
	                         : openat(f->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int given;

	if (fd < 0)
		return err->code == ERR_NONE ? err_errno(err, errno, "its folder") : -1;
	if (fstat(fd, st) < 0)
		return err_errno(err, errno, "fstat");
	if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
		return err_set(err, ERR_INVALID,
		               "neither a file nor a folder on the server's machine: name one of "
		               "them in the URL");
	given = fd;
	fd = -1;
	return given;
}

static int list(struct file_source *f, struct source_found *to, struct err *err)
{
	AUTO_BUF struct buf rel = BUF_INIT(FS_PATH_MAX);
	const char *slash = strrchr(f->path, '/');
	struct stat st;
	AUTO_FD int fd = open_named(f, &st, err);

	if (fd < 0)
		return -1;
	f->single = !S_ISDIR(st.st_mode);
	if (!f->single)
		return walk(f, fd, &rel, 0, to, err);
	return found(&st, str_of(slash != NULL ? slash + 1 : f->path), to, err);
}

/* Is there anything but folders? Ends at the first file, and after LOOK_MAX folders; what cannot be
 * looked at is for a listing to refuse. */
static bool holds_file(int dirfd, int depth, int *left)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an offset of its own */
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool is = false;

	if (dir == NULL || depth > DEPTH_MAX || --*left <= 0) {
		if (dir != NULL)
			(void)closedir(dir);
		else if (fd >= 0)
			(void)close(fd);
		return true;
	}
	while (!is && (e = readdir(dir)) != NULL) {
		AUTO_FD int sub = -1;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		is = fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		     !S_ISDIR(st.st_mode);
		if (is)
			break;
		sub = openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		is = sub < 0 || holds_file(sub, depth + 1, left);
	}
	(void)closedir(dir);
	return is;
}

static int file_check(struct source *s, struct err *err)
{
	struct stat st;
	AUTO_FD int fd = open_named((const struct file_source *)s, &st, err);
	int left = LOOK_MAX;

	if (fd < 0)
		return refused(err);
	return S_ISDIR(st.st_mode) && !holds_file(fd, 0, &left) ? source_no_files(s, err) : 0;
}

static int file_list(struct source *s, struct arena *a UNUSED, const char *resolved UNUSED,
                     struct source_found *to, const char **revision UNUSED, struct err *err)
{
	return list((struct file_source *)s, to, err) < 0 ? refused(err) : 0;
}

/* --- reading --------------------------------------------------------------------------------- */

static int check_same(int fd, const struct source_file *f, struct err *err)
{
	char etag[48];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "fstat");
	format_etag(&st, etag);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->size || f->etag == NULL ||
	    strcmp(etag, f->etag) != 0)
		return err_set(err, ERR_CONFLICT,
		               "it changed while it was being read. Push the job again when it no "
		               "longer changes");
	return 0;
}

static int file_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                     const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	const struct file_source *fs = (const struct file_source *)s;
	AUTO_BUF struct buf path = BUF_INIT(FS_PATH_MAX);
	AUTO_FREE uint8_t *chunk = NULL;
	AUTO_FD int fd = -1;
	uint64_t end = first + count;

	buf_printf(&path, "%s%s%s", fs->path, fs->single || fs->path[0] == '\0' ? "" : "/",
	           fs->single ? "" : f->path);
	if (buf_check(&path, "the path", err) < 0)
		return -1;
	fd = open_below(fs, buf_cstr(&path), err);
	if (fd < 0)
		return refused(err);
	if (check_same(fd, f, err) < 0)
		return -1;
	chunk = xmalloc((size_t)MIN(count, (uint64_t)READ_MAX));
	while (first < end) {
		ssize_t n = pread(fd, chunk, (size_t)MIN(end - first, (uint64_t)READ_MAX),
		                  (off_t)first);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, errno, "read");
		if (n == 0)
			break;
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (to->put(to->arg, chunk, (size_t)n, err) < 0)
			return -1;
		first += (uint64_t)n;
	}
	return check_same(fd, f, err);
}

const struct source_ops source_file_ops = {
	.scheme = "file",
	.form = "file:///folder or file:///folder/file",
	.auth_advice = "the server's user must be allowed to read it",
	.open = file_open,
	.check = file_check,
	.list = file_list,
	.read = file_read,
	.done = file_done,
};
