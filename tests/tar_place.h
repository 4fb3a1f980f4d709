/*
 * tar_place.h - for the tests of tar.c: archives written header by header, as a hostile client
 * would, and a folder for each test whose surroundings are looked at afterwards.
 */
#ifndef TAR_PLACE_H
#define TAR_PLACE_H

#include "unit.h"

#include "base/fs.h"
#include "io/proc.h"
#include "io/tar.h"

#include <sys/mman.h>

#define BLOCK 512
#define TEXT_MAX ((size_t)256 << 20)

/* ---- writing archives ---- */

static UNUSED void pad(struct buf *b)
{
	while (b->n % BLOCK != 0)
		buf_putc(b, '\0');
}

static UNUSED void add_header(struct buf *b, const char *name, char type, const char *link,
                              uint64_t size, unsigned mode)
{
	char h[BLOCK] = {0};
	unsigned sum = 0;

	memcpy(h, name, MIN(strlen(name), (size_t)100));
	(void)snprintf(h + 100, 8, "%07o", mode & 07777777U);
	(void)snprintf(h + 108, 8, "%07o", 1000U);
	(void)snprintf(h + 116, 8, "%07o", 1000U);
	(void)snprintf(h + 124, 12, "%011" PRIo64, size);
	(void)snprintf(h + 136, 12, "%011o", 981173106U);
	h[156] = type;
	memcpy(h + 157, link, MIN(strlen(link), (size_t)100));
	memcpy(h + 257, "ustar\00000", 8);
	(void)snprintf(h + 265, 32, "somebody");
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += (unsigned char)h[i];
	(void)snprintf(h + 148, 8, "%06o", sum & 0777777U);
	buf_add(b, h, BLOCK);
}

static UNUSED void add_bytes(struct buf *b, const char *name, struct str body)
{
	add_header(b, name, '0', "", body.n, 0644);
	buf_str(b, body);
	pad(b);
}

static UNUSED void add_file(struct buf *b, const char *name, const char *text)
{
	add_bytes(b, name, str_of(text));
}

static UNUSED void add_link(struct buf *b, const char *name, char type, const char *to)
{
	add_header(b, name, type, to, 0, 0777);
}

/* A pax record counts its own length in. */
static UNUSED void add_record(struct buf *b, const char *key, struct str value)
{
	size_t rest = strlen(key) + value.n + 3, n = rest + 1;
	char digits[24];

	while (n != rest + (size_t)snprintf(digits, sizeof(digits), "%zu", n))
		n++;
	buf_printf(b, "%zu %s=", n, key);
	buf_str(b, value);
	buf_putc(b, '\n');
}

static UNUSED void add_pax(struct buf *b, const char *key, struct str value)
{
	AUTO_BUF struct buf r = BUF_INIT(TEXT_MAX);

	add_record(&r, key, value);
	add_header(b, "PaxHeaders/x", 'x', "", r.n, 0644);
	buf_str(b, buf_view(&r));
	pad(b);
}

static UNUSED void add_end(struct buf *b)
{
	char zero[2 * BLOCK] = {0};

	buf_add(b, zero, sizeof(zero));
}

/* ---- a place for each test ---- */

struct place {
	char path[40]; /* holds "in" and "out", and "secret" beside them */
	int dir, in, out;
};

static UNUSED int place_make(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	struct err err = {0};

	(void)umask(022); /* modes are compared */
	FMT(p->path, "/tmp/test_tar.XXXXXX");
	if (mkdtemp(p->path) == NULL)
		return -1;
	p->dir = fs_open_dir(p->path, &err);
	if (mkdirat(p->dir, "in", 0755) < 0 || mkdirat(p->dir, "out", 0755) < 0 ||
	    fs_write_atomic(p->dir, "secret", STR_LIT("untouched"), 0600, &err) < 0)
		return -1;
	p->in = openat(p->dir, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	p->out = openat(p->dir, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = p;
	return 0;
}

static UNUSED size_t count_names(const struct place *p)
{
	AUTO_FREE char *script = xasprintf("ls -A %s | wc -l", p->path);
	const char *argv[] = {"sh", "-c", script, NULL};
	AUTO_BUF struct buf out = BUF_INIT(100);
	struct err err = {0};
	uint64_t n = 0;
	int code;

	assert_ok(proc_run(argv, str_of(NULL), 60000, &out, &code, &err), &err);
	assert_ok(str_u64(str_trim(buf_view(&out)), 0, 1000, &n, &err), &err);
	return (size_t)n;
}

/* Whatever the test did: beside the folder to unpack into, nothing was changed or made. */
static UNUSED int place_drop(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf secret = BUF_INIT(100);
	struct err err = {0};

	assert_ok(fs_read(p->dir, "secret", &secret, &err), &err);
	assert_string_equal(buf_cstr(&secret), "untouched");
	assert_int_equal(count_names(p), 3);
	(void)close(p->in);
	(void)close(p->out);
	(void)close(p->dir);
	assert_ok(fs_remove_tree(AT_FDCWD, p->path, &err), &err);
	free(p);
	return 0;
}

/* A file in memory, at its start. */
static UNUSED int fd_of(struct str bytes)
{
	int fd = memfd_create("archive", MFD_CLOEXEC);
	struct err err = {0};

	assert_true(fd >= 0);
	assert_ok(fs_write_all(fd, bytes.p, bytes.n, &err), &err);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static UNUSED int unpack(const struct place *p, struct str bytes, const struct tar_limits *limits,
                         struct tar_report *report, struct err *err)
{
	AUTO_FD int fd = fd_of(bytes);

	return tar_unpack(fd, p->out, limits, report, err);
}

static UNUSED void unpack_ok(const struct place *p, struct buf *b)
{
	struct err err = {0};

	add_end(b);
	assert_ok(unpack(p, buf_view(b), NULL, NULL, &err), &err);
}

static UNUSED void assert_text(const struct place *p, const char *path, const char *want)
{
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	struct err err = {0};

	assert_ok(fs_read(p->out, path, &b, &err), &err);
	assert_string_equal(buf_cstr(&b), want);
}

static UNUSED struct stat stat_of(const struct place *p, const char *path)
{
	struct stat st;

	if (fstatat(p->out, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("%s is not there", path);
	return st;
}

/* A filter program over bytes. */
static UNUSED void filter(const char *const *argv, struct str in, struct buf *out)
{
	struct err err = {0};
	int code = -1;

	assert_ok(proc_run(argv, in, 60000, out, &code, &err), &err);
	assert_int_equal(code, 0);
	assert_false(out->full);
}

/* Each test in a place of its own. */
#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_drop)

#endif
