/* tar_pack.c - packing of archives: what libarchive writes is read by us, in the order of names. */
#include "io/tar_impl.h"

#include "base/fs.h"
#include "base/units.h"
#include "io/beneath.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>

#define TAR_READ ((size_t)64 << 10)
#define TAR_DEPTH_MAX 200 /* folders; each holds a descriptor while it is packed */
#define TAR_SEGMENTS_MAX 4096

static void write_free_p(struct archive **a)
{
	(void)archive_write_free(*a); /* closed before when all went well */
}

static void entry_free_p(struct archive_entry **e)
{
	archive_entry_free(*e);
}

struct packer {
	unsigned magic;
#define PACKER_MAGIC 0x49504143U
	struct tar_pick pick;
	int fd;
	struct archive *a; /* NULL: only looking, how much there is */
	struct archive_entry *e;
	struct tar_report report;
	char path[BENEATH_PATH_MAX + 1]; /* of the entry at hand */
	struct tar_large largest[TAR_LARGEST];
	uint64_t bytes_max;
	struct err *err;
};

static void packer_free(struct packer *p)
{
	free(p);
}
DEFINE_CLEANUP(struct packer, packer_free)

struct names {
	char **v;
	size_t n, cap;
};

static void names_done(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void dir_close_p(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}

static int read_names(struct packer *p, int dirfd, struct names *out)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d CLEANUP(dir_close_p) = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (d == NULL) {
		int errnum = errno;

		close_fd_p(&fd);
		return err_errno(p->err, errnum, "read folder %s", p->path);
	}
	for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (out->n == TAR_ENTRIES_MAX)
			return err_set(p->err, ERR_TOO_BIG, "folder %s has over %d entries",
			               p->path, TAR_ENTRIES_MAX);
		if (out->n == out->cap) {
			out->cap = MAX(64, 2 * out->cap);
			out->v = xrealloc(out->v, out->cap * sizeof(*out->v));
		}
		out->v[out->n++] = xstrdup(e->d_name);
	}
	if (errno != 0)
		return err_errno(p->err, errno, "read folder %s", p->path);
	if (out->n > 0)
		qsort(out->v, out->n, sizeof(*out->v), by_name);
	return 0;
}

static int pack_fail(struct packer *p)
{
	const char *why = archive_error_string(p->a);

	if (p->err->code != ERR_NONE)
		return -1;
	return err_set(p->err, ERR_IO, "pack %s: %s", p->path, why != NULL ? why : "failed");
}

static la_ssize_t pack_write(struct archive *a, void *arg, const void *bytes, size_t n)
{
	struct packer *p = FROM_VOID(struct packer, arg, PACKER_MAGIC);

	if (p->err->code == ERR_NONE && fs_write_all(p->fd, bytes, n, p->err) == 0)
		return (la_ssize_t)n;
	archive_set_error(a, EIO, "write");
	return -1;
}

/* Where the data is, so that a hole stays one. A file in too many pieces goes as a dense one. */
static void note_holes(struct packer *p, int fd, off_t size)
{
	off_t data = lseek(fd, 0, SEEK_DATA), hole;
	int n = 0;

	if (data < 0 && errno == ENXIO && size > 0) {
		archive_entry_sparse_add_entry(p->e, 0, 0); /* nothing but a hole */
		return;
	}
	while (data >= 0 && data < size && n < TAR_SEGMENTS_MAX) {
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0)
			break;
		hole = MIN(hole, size);
		archive_entry_sparse_add_entry(p->e, data, hole - data);
		n++;
		data = lseek(fd, hole, SEEK_DATA);
	}
	if (n == TAR_SEGMENTS_MAX)
		archive_entry_sparse_clear(p->e);
}

static int copy_in(struct packer *p, int fd, uint64_t size)
{
	AUTO_FREE char *block = xmalloc(TAR_READ);

	for (uint64_t at = 0; at < size;) {
		size_t want = (size_t)MIN(TAR_READ, size - at);
		ssize_t n = pread(fd, block, want, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(p->err, errno, "read %s", p->path);
		if (n == 0)
			return err_set(p->err, ERR_CONFLICT,
			               "%s shrank while it was being packed; try again", p->path);
		if (archive_write_data(p->a, block, (size_t)n) != n)
			return pack_fail(p);
		at += (uint64_t)n;
	}
	return 0;
}

static int pack_header(struct packer *p)
{
	int r = archive_write_header(p->a, p->e);

	/* A warning: the name is no UTF-8; it is stored as it is, and marked so. */
	return r == ARCHIVE_OK || r == ARCHIVE_WARN ? 0 : pack_fail(p);
}

static int pack_file(struct packer *p, int dirfd, const char *name)
{
	AUTO_FD int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(p->err, errno, "open %s", p->path);
	if (!S_ISREG(st.st_mode))
		return err_set(p->err, ERR_CONFLICT,
		               "%s changed while it was being packed; try again", p->path);
	if ((uint64_t)st.st_size > p->bytes_max - p->report.bytes)
		return err_set(p->err, ERR_TOO_BIG,
		               "%s grew past the limit while it was being packed", p->path);
	archive_entry_set_size(p->e, st.st_size);
	note_holes(p, fd, st.st_size);
	if (pack_header(p) < 0)
		return -1;
	p->report.bytes += (uint64_t)st.st_size;
	return copy_in(p, fd, (uint64_t)st.st_size);
}

static int pack_entry(struct packer *p, int dirfd, const char *name, const struct stat *st)
{
	char to[BENEATH_PATH_MAX + 1];
	ssize_t n;

	archive_entry_clear(p->e);
	archive_entry_copy_pathname(p->e, p->path);
	archive_entry_set_filetype(p->e, st->st_mode & S_IFMT);
	archive_entry_set_perm(p->e, st->st_mode & 07777);
	archive_entry_set_mtime(p->e, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	archive_entry_set_uid(p->e, 0);
	archive_entry_set_gid(p->e, 0);
	archive_entry_set_size(p->e, 0);
	p->report.entries++;
	if (S_ISREG(st->st_mode))
		return pack_file(p, dirfd, name);
	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(dirfd, name, to, sizeof(to) - 1);
		if (n < 0)
			return err_errno(p->err, errno, "read link %s", p->path);
		to[n] = '\0';
		archive_entry_copy_symlink(p->e, to);
	}
	return pack_header(p);
}

/* The look before: sums up, and remembers the largest. */
static void weigh(struct packer *p, uint64_t bytes)
{
	p->report.bytes += bytes;
	p->report.entries++;
	for (size_t i = 0; i < TAR_LARGEST && bytes > 0; i++) {
		if (bytes <= p->largest[i].bytes)
			continue;
		memmove(&p->largest[i + 1], &p->largest[i],
		        (TAR_LARGEST - 1 - i) * sizeof(p->largest[0]));
		p->largest[i].bytes = bytes;
		copy_cut(p->largest[i].path, sizeof(p->largest[i].path), p->path);
		return;
	}
}

/* A link that nobody would unpack is left out here. */
static int leads_out(struct packer *p, int dirfd, const char *name, bool *out)
{
	char to[BENEATH_PATH_MAX + 1];
	struct err why = {0};
	ssize_t n = readlinkat(dirfd, name, to, sizeof(to) - 1);

	*out = true;
	if (n < 0)
		return errno == ENOENT ? 0 : err_errno(p->err, errno, "read link %s", p->path);
	to[n] = '\0';
	*out = beneath_check_link(p->path, to, &why) < 0;
	if (*out && p->a == NULL && p->pick.link != NULL)
		p->pick.link(p->path, to, p->pick.arg);
	p->report.links += *out;
	return 0;
}

/* Nobody would unpack a pipe, a socket or a device. */
static void leave_special(struct packer *p)
{
	if (p->a != NULL || p->pick.special == NULL ||
	    (p->pick.skip != NULL && p->pick.skip(p->path, false, p->pick.arg)))
		return;
	p->pick.special(p->path, p->pick.arg);
	p->report.specials++;
}

static int too_big(struct packer *p)
{
	AUTO_BUF struct buf list = BUF_INIT(ERR_MSG_MAX);
	char have[UNITS_CAP], max[UNITS_CAP], name[BENEATH_SHOWN_CAP];

	for (size_t i = 0; i < TAR_LARGEST && p->largest[i].path[0] != '\0'; i++)
		buf_printf(&list, "%s%s (%s)", i == 0 ? "" : ", ",
		           beneath_shown(p->largest[i].path, name),
		           units_show_bytes(p->largest[i].bytes, have));
	return err_set(p->err, ERR_TOO_BIG,
	               "the folder holds %s, more than the %s of an archive; the largest files: %s",
	               units_show_bytes(p->report.bytes, have), units_show_bytes(p->bytes_max, max),
	               buf_cstr(&list));
}

static int walk(struct packer *p, int dirfd, int depth);

static int visit(struct packer *p, int dirfd, const char *name, int depth)
{
	AUTO_FD int sub = -1;
	struct stat st;
	bool is_dir, out = false;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) /* gone since the folder was read */
		return errno == ENOENT ? 0 : err_errno(p->err, errno, "look at %s", p->path);
	is_dir = S_ISDIR(st.st_mode);
	if (!is_dir && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
		leave_special(p);
		return 0;
	}
	if (p->pick.skip != NULL && p->pick.skip(p->path, is_dir, p->pick.arg)) {
		p->report.skipped++;
		return 0;
	}
	if (p->report.entries == TAR_ENTRIES_MAX)
		return err_set(p->err, ERR_TOO_BIG, "the folder has over %d entries",
		               TAR_ENTRIES_MAX);
	if (S_ISLNK(st.st_mode) && leads_out(p, dirfd, name, &out) < 0)
		return -1;
	if (out)
		return 0;
	p->report.files += !is_dir;
	if (p->a == NULL)
		weigh(p, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
	else if (pack_entry(p, dirfd, name, &st) < 0)
		return -1;
	if (!is_dir)
		return 0;
	sub = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return err_errno(p->err, errno, "open folder %s", p->path);
	return walk(p, sub, depth + 1);
}

static int walk(struct packer *p, int dirfd, int depth)
{
	struct names names CLEANUP(names_done) = {0};
	size_t n = strlen(p->path);
	int r = 0;

	if (depth > TAR_DEPTH_MAX)
		return err_set(p->err, ERR_TOO_BIG, "%s: over %d folders deep", p->path,
		               TAR_DEPTH_MAX);
	if (read_names(p, dirfd, &names) < 0)
		return -1;
	for (size_t i = 0; r == 0 && i < names.n; i++) {
		size_t slash = n > 0 ? 1 : 0, len = strlen(names.v[i]);

		if (n + slash + len > BENEATH_PATH_MAX)
			return err_set(p->err, ERR_TOO_BIG, "%s/%s: a path over %d bytes", p->path,
			               names.v[i], BENEATH_PATH_MAX);
		if (n > 0)
			p->path[n] = '/';
		memcpy(p->path + n + slash, names.v[i], len + 1);
		r = visit(p, dirfd, names.v[i], depth);
		p->path[n] = '\0';
	}
	return r;
}

static int pack_open(struct packer *p)
{
	bool ok = archive_write_set_format_pax(p->a) == ARCHIVE_OK &&
	          archive_write_add_filter_zstd(p->a) == ARCHIVE_OK &&
	          archive_write_set_bytes_in_last_block(p->a, 1) == ARCHIVE_OK &&
	          archive_write_open(p->a, p, NULL, pack_write, NULL) == ARCHIVE_OK;

	return ok ? 0 : pack_fail(p);
}

static int pack_all(struct packer *p, int root_dirfd)
{
	if (pack_open(p) < 0)
		return -1;
	if (walk(p, root_dirfd, 0) < 0) {
		(void)archive_write_fail(p->a); /* so that freeing it does not write a proper end */
		return -1;
	}
	return archive_write_close(p->a) == ARCHIVE_OK ? 0 : pack_fail(p);
}

static struct packer *packer_new(const struct tar_pick *pick, uint64_t bytes_max, struct err *err)
{
	struct packer *p = xcalloc(1, sizeof(*p));

	p->magic = PACKER_MAGIC;
	if (pick != NULL)
		p->pick = *pick;
	p->bytes_max = bytes_max > 0 ? bytes_max : TAR_BYTES_MAX;
	p->err = err;
	return p;
}

static int look(struct packer *p, int root_dirfd)
{
	if (walk(p, root_dirfd, 0) < 0)
		return -1;
	return p->report.bytes > p->bytes_max ? too_big(p) : 0;
}

int tar_look(int root_dirfd, const struct tar_pick *pick, uint64_t bytes_max,
             struct tar_report *report, struct tar_large largest[TAR_LARGEST], struct err *err)
{
	struct packer *p CLEANUP(packer_free_p) = packer_new(pick, bytes_max, err);

	if (look(p, root_dirfd) < 0)
		return -1;
	*report = p->report;
	if (largest != NULL)
		memcpy(largest, p->largest, sizeof(p->largest));
	return 0;
}

int tar_pack(int root_dirfd, const struct tar_pick *pick, int fd, uint64_t bytes_max,
             struct tar_report *report, struct err *err)
{
	struct charset charset UNUSED CLEANUP(charset_done) = charset_set("C.UTF-8");
	struct packer *p CLEANUP(packer_free_p) = packer_new(pick, bytes_max, err);
	struct archive *a CLEANUP(write_free_p) = archive_write_new();
	struct archive_entry *e CLEANUP(entry_free_p) = archive_entry_new();

	assert(a != NULL && e != NULL);
	p->fd = fd;
	p->e = e;
	if (!p->pick.looked && look(p, root_dirfd) < 0)
		return -1;
	p->report = (struct tar_report){0};
	p->a = a;
	if (pack_all(p, root_dirfd) < 0)
		return -1;
	if (report != NULL)
		*report = p->report;
	return 0;
}
