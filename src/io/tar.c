/*
 * tar.c - unpacking of archives. libarchive only reads the format: every file is made by us, part
 * by part from the root's handle without following a link, so an error in its own checks lets
 * nothing out.
 */
#include "io/tar_impl.h"

#include "base/fs.h"
#include "io/beneath.h"
#include "io/gunzip.h"

#include <archive.h>
#include <archive_entry.h>

#define TAR_READ ((size_t)64 << 10)
#define TAR_SLICE ((size_t)512) /* of compressed input at a time: see struct source */
#define TAR_HEADER_MAX ((int64_t)8 << 20)
#define TAR_RATIO_FROM ((int64_t)64 << 20)
#define TAR_TRAIL_MAX ((uint64_t)64 << 20)

struct charset charset_set(const char *name)
{
	struct charset c = {.made = newlocale(LC_CTYPE_MASK, name, (locale_t)0)};

	if (c.made != (locale_t)0)
		c.before = uselocale(c.made);
	return c;
}

void charset_done(struct charset *c)
{
	if (c->made == (locale_t)0)
		return;
	(void)uselocale(c->before);
	freelocale(c->made);
}

static void read_free_p(struct archive **a)
{
	(void)archive_read_free(*a);
}

/* ---- reading ---- */

/* The input of libarchive. Compressed input is passed in small slices, and the output is measured
 * after each: libarchive may unpack any amount while it parses headers and sparse maps or skips
 * data, but only from one slice. */
struct source {
	unsigned magic;
#define SOURCE_MAGIC 0x49534f55U
	int fd;
	struct archive *a;
	bool open, plain, begun;
	char *block; /* 2 x TAR_READ: what was read, and what gzip made of it */
	size_t at, have;
	struct gunzip *gz;
	uint64_t packed;   /* handed over so far */
	int64_t header_to; /* while a header is read: the output position where it must have ended
	                    */
	struct err *err;
};

/* The first failure is in *err: of a callback, of ours, else of libarchive. */
static int source_fail(struct source *s)
{
	char text[BENEATH_SHOWN_CAP];
	const char *why = archive_error_string(s->a);

	if (s->err->code != ERR_NONE)
		return -1;
	return err_set(s->err, ERR_INVALID, "archive: %s",
	               beneath_shown(why != NULL ? why : "not a tar archive", text));
}

static int source_check(struct source *s)
{
	int64_t unpacked;

	if (!s->open || s->err->code != ERR_NONE)
		return s->err->code != ERR_NONE ? -1 : 0;
	unpacked = archive_filter_bytes(s->a, 0);
	if (unpacked > TAR_RATIO_FROM && (uint64_t)unpacked / TAR_RATIO_MAX > s->packed)
		return err_set(s->err, ERR_TOO_BIG,
		               "archive: unpacks to more than %d times its size; refused as a "
		               "decompression bomb",
		               TAR_RATIO_MAX);
	if (s->header_to > 0 && unpacked > s->header_to)
		return err_set(s->err, ERR_TOO_BIG,
		               "archive: the headers of one entry are over %d MiB",
		               (int)(TAR_HEADER_MAX >> 20));
	return 0;
}

static int source_fill(struct source *s)
{
	ssize_t r;

	if (s->at < s->have)
		return 0;
	do
		r = read(s->fd, s->block, TAR_READ);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_errno(s->err, errno, "read the archive");
	s->at = 0;
	s->have = (size_t)r;
	return 0;
}

/* The next bytes that gzip unpacks; *n is 0 at the end. */
static int source_unzip(struct source *s, size_t *n)
{
	*n = 0;
	while (*n == 0) {
		struct str in;

		if (source_fill(s) < 0)
			return -1;
		if (s->have == 0)
			return gunzip_end(s->gz, s->err) < 0 ? err_wrap(s->err, "archive") : 0;
		in = str_n(s->block + s->at, s->have - s->at);
		if (gunzip_step(s->gz, &in, s->block + TAR_READ, TAR_READ, n, s->err) < 0)
			return err_wrap(s->err, "archive");
		s->packed += s->have - s->at - in.n;
		s->at = s->have - in.n;
	}
	return 0;
}

static la_ssize_t source_read(struct archive *a, void *arg, const void **out)
{
	struct source *s = FROM_VOID(struct source, arg, SOURCE_MAGIC);
	size_t n;

	if (source_check(s) < 0 || (s->gz == NULL ? source_fill(s) : source_unzip(s, &n)) < 0) {
		archive_set_error(a, EINVAL, "refused");
		return -1;
	}
	if (s->gz != NULL) {
		*out = s->block + TAR_READ;
		return (la_ssize_t)n;
	}
	n = s->have - s->at;
	if (!s->plain)
		n = MIN(n, TAR_SLICE);
	*out = s->block + s->at;
	s->at += n;
	s->packed += n;
	return (la_ssize_t)n;
}

/* A tar ends before its gzip does: what is left holds the digest of all that was unpacked. */
static int source_end(struct source *s)
{
	size_t n = 1;

	for (uint64_t more = 0; s->gz != NULL && n > 0; more += n) {
		if (more > TAR_TRAIL_MAX)
			return err_set(s->err, ERR_TOO_BIG,
			               "archive: more than %d MiB follow its end",
			               (int)(TAR_TRAIL_MAX >> 20));
		if (source_unzip(s, &n) < 0)
			return -1;
	}
	return 0;
}

static int source_open(struct source *s)
{
	struct archive *a = s->a;
	/* gzip: only to see it inside of another one */
	bool ok = archive_read_support_format_tar(a) >= ARCHIVE_WARN &&
	          archive_read_support_filter_gzip(a) >= ARCHIVE_WARN &&
	          archive_read_support_filter_zstd(a) >= ARCHIVE_WARN &&
	          archive_read_support_filter_xz(a) >= ARCHIVE_WARN &&
	          archive_read_support_filter_bzip2(a) >= ARCHIVE_WARN;

	if (source_fill(s) < 0)
		return -1;
	if (gunzip_begins(str_n(s->block, s->have)))
		s->gz = gunzip_new();
	if (!ok || archive_read_open(a, s, NULL, source_read, NULL) != ARCHIVE_OK)
		return source_fail(s);
	if (archive_filter_count(a) > (s->gz != NULL ? 1 : 2)) /* the last is the plain stream */
		return err_set(s->err, ERR_INVALID, "archive: compressed more than once");
	s->open = true;
	s->plain = archive_filter_count(a) == 1;
	return 0;
}

/* 1 = *e is the next entry, 0 = the end. */
static int source_next(struct source *s, struct archive_entry **e)
{
	int r;

	/* Skip the rest of the last entry: a hard link with a body, a link with a size. */
	if (s->begun && (archive_read_data_skip(s->a) < ARCHIVE_WARN || source_check(s) < 0))
		return source_fail(s);
	s->begun = true;
	s->header_to = archive_filter_bytes(s->a, 0) + TAR_HEADER_MAX;
	r = archive_read_next_header(s->a, e);
	if (source_check(s) < 0)
		return -1;
	s->header_to = 0;
	if (r == ARCHIVE_EOF)
		return source_end(s);
	/* A warning is about a charset, or an attribute that is not used here. */
	if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
		return source_fail(s);
	return 1;
}

/* ---- unpacking ---- */

struct unpacker {
	struct source s;
	struct beneath *to;
	uint64_t entries_max, bytes_max;
	struct tar_report report;
	struct err *err;
};

static struct timespec mtime_of(struct archive_entry *e)
{
	long ns = archive_entry_mtime_nsec(e);

	if (!archive_entry_mtime_is_set(e) || ns < 0 || ns >= 1000000000)
		return (struct timespec){.tv_nsec = UTIME_OMIT};
	return (struct timespec){.tv_sec = archive_entry_mtime(e), .tv_nsec = ns};
}

/* Blocks come in order, with holes between them where the file is sparse. */
static int copy_out(struct unpacker *u, int fd, uint64_t size)
{
	uint64_t end = 0;

	for (;;) {
		const void *p;
		size_t n;
		la_int64_t at;
		int r = archive_read_data_block(u->s.a, &p, &n, &at);

		if (source_check(&u->s) < 0)
			return -1;
		if (r == ARCHIVE_EOF)
			break;
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return source_fail(&u->s);
		if (at < 0 || (uint64_t)at < end || (uint64_t)at > size || n > size - (uint64_t)at)
			return err_set(u->err, ERR_INVALID, "its data is misplaced");
		if (fs_pwrite_all(fd, p, n, (uint64_t)at, u->err) < 0)
			return -1;
		end = (uint64_t)at + n;
	}
	if (end < size && ftruncate(fd, (off_t)size) < 0)
		return err_errno(u->err, errno, "set its length");
	return 0;
}

static int unpack_file(struct unpacker *u, struct archive_entry *e, const char *path)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, mtime_of(e)};
	int64_t size = archive_entry_size(e);
	AUTO_FD int fd = -1;

	if (size < 0)
		return err_set(u->err, ERR_INVALID, "no size");
	if ((uint64_t)size > u->bytes_max - u->report.bytes)
		return err_set(u->err, ERR_TOO_BIG,
		               "with it the archive unpacks to more than %" PRIu64 " bytes",
		               u->bytes_max);
	fd = beneath_file(u->to, path, u->err);
	if (fd < 0 || copy_out(u, fd, (uint64_t)size) < 0)
		return -1;
	if (fchmod(fd, archive_entry_perm(e) & 0777) < 0 || futimens(fd, times) < 0)
		return err_errno(u->err, errno, "set the file's mode and time");
	u->report.bytes += (uint64_t)size;
	u->report.lowered += (archive_entry_perm(e) & 07000) != 0;
	return 0;
}

static int unpack_entry(struct unpacker *u, struct archive_entry *e)
{
	const char *hard = archive_entry_hardlink(e), *link = archive_entry_symlink(e);
	mode_t type = archive_entry_filetype(e);
	char path[BENEATH_PATH_MAX + 1];

	if (beneath_clean(archive_entry_pathname(e), path, u->err) < 0)
		return -1;
	if (path[0] == '\0' && hard == NULL && type == AE_IFDIR)
		return 0; /* "./": the root has the mode its owner gave it */
	if (path[0] == '\0')
		return err_set(u->err, ERR_INVALID, "an empty name");
	if (hard != NULL)
		return beneath_hard_link(u->to, path, hard, u->err);
	if (type == AE_IFLNK)
		return beneath_symlink(u->to, path, link != NULL ? link : "", mtime_of(e), u->err);
	if (type == AE_IFDIR)
		return beneath_dir(u->to, path, archive_entry_perm(e), u->err);
	if (type == AE_IFREG)
		return unpack_file(u, e, path);
	return err_set(u->err, ERR_INVALID, "a device, fifo or socket");
}

static int unpack_all(struct unpacker *u)
{
	struct archive_entry *e = NULL;
	char name[BENEATH_SHOWN_CAP];
	int more;

	while ((more = source_next(&u->s, &e)) == 1) {
		const char *path = archive_entry_pathname(e);

		if (u->report.entries == u->entries_max)
			return err_set(u->err, ERR_TOO_BIG,
			               "archive: more than %" PRIu64 " entries", u->entries_max);
		if (unpack_entry(u, e) < 0)
			return err_wrap(u->err, "archive entry %s",
			                beneath_shown(path != NULL ? path : "?", name));
		u->report.entries++;
	}
	return more;
}

int tar_unpack(int fd, int root_dirfd, const struct tar_limits *limits, struct tar_report *report,
               struct err *err)
{
	static const struct tar_limits dflt = {TAR_ENTRIES_MAX, TAR_UNPACK_MAX};
	const struct tar_limits *l = limits != NULL ? limits : &dflt;
	struct charset charset UNUSED CLEANUP(charset_done) = charset_set("C");
	AUTO_BENEATH struct beneath *to = beneath_new(root_dirfd);
	AUTO_FREE char *block = xmalloc(2 * TAR_READ);
	struct archive *a CLEANUP(read_free_p) = archive_read_new();
	struct unpacker u = {
		.s = {.magic = SOURCE_MAGIC, .fd = fd, .a = a, .block = block, .err = err},
		.to = to,
		.err = err};
	int r;

	assert(a != NULL);
	u.entries_max = l->entries_max > 0 ? l->entries_max : dflt.entries_max;
	u.bytes_max = l->bytes_max > 0 ? l->bytes_max : dflt.bytes_max;
	r = source_open(&u.s) < 0 ? -1 : unpack_all(&u);
	gunzip_free(u.s.gz);
	if (r == 0 && report != NULL)
		*report = u.report;
	return r;
}
