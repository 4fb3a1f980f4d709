/*
 * objstore_dir_parts.c - uploads in parts, for the directory driver.
 *
 *   u-<id>/key        the object's key
 *   u-<id>/base       a part size: the first that was seen
 *   u-<id>/data       parts no larger than that, each at (number - 1) * base
 *   u-<id>/p-<id>     a part of another size, or one that was sent again
 *   u-<id>/<number>   "<etag> <size> <file> <boot>": the part is whole and in that file
 *
 * When all parts are in `data` without a hole, which is how clients cut files, completing is a sync
 * and a rename; otherwise the parts are copied together. A part in `data` is written under a lock
 * on its range and only while it has no record, so what was acknowledged is never written again;
 * completing locks all of `data`. Parts are not synced one by one: a record counts only in the boot
 * in which it was written, and completing syncs the whole.
 */
#include "store/objects/objstore_dir.h"

#include "base/clock.h"
#include "base/seal.h"
#include "store/common/copy.h"

#define PARTS_TEXT_CAP 256
#define PARTS_NAME_CAP 40
#define PARTS_LOCK_MS (10 * 1000) /* completing while a part is still being written */
#define PARTS_LOCK_STEP 20
#define PARTS_BOOT "/proc/sys/kernel/random/boot_id"

struct record {
	char etag[33], file[PARTS_NAME_CAP];
	uint64_t size;
};

struct upload {
	int fd; /* of its folder */
	char boot[64];
};

static int gone(struct err *err)
{
	return err_set(err, ERR_NOT_FOUND,
	               "NoSuchUpload: it was completed, aborted or never started");
}

/* A small file of the upload as text; "" when it is not there. */
static void small_read(int dirfd, const char *name, char *out, size_t cap)
{
	AUTO_FD int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);

	out[n < 0 ? 0 : n] = '\0';
}

static int small_write(int dirfd, const char *name, const char *text, struct err *err)
{
	AUTO_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno == ENOENT ? gone(err) : err_errno(err, errno, "%s", name);
	return fs_write_all(fd, text, strlen(text), err);
}

static void temp_name(const char *prefix, char out[PARTS_NAME_CAP])
{
	char id[DIR_ID_LEN + 1];

	seal_id(id, DIR_ID_LEN);
	fmt_fixed(out, PARTS_NAME_CAP, "%s-%s", prefix, id);
}

static int upload_name(const char *id, char out[DIR_TMP_CAP], struct err *err)
{
	if (strlen(id) != DIR_ID_LEN ||
	    strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != DIR_ID_LEN)
		return gone(err);
	fmt_fixed(out, DIR_TMP_CAP, "u-%s", id);
	return 0;
}

static int upload_open(struct dirstore *d, const char *key, const char *id, struct upload *up,
                       struct err *err)
{
	char name[DIR_TMP_CAP], of[OBJSTORE_KEY_MAX + 1];
	AUTO_FD int fd = -1;

	if (upload_name(id, name, err) < 0)
		return -1;
	fd = openat(d->tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? gone(err) : err_errno(err, errno, "%s", name);
	small_read(fd, "key", of, sizeof(of));
	if (strcmp(of, key) != 0)
		return gone(err);
	small_read(AT_FDCWD, PARTS_BOOT, up->boot, sizeof(up->boot));
	up->boot[strcspn(up->boot, "\n")] = '\0';
	up->fd = TAKE_FD(fd);
	return 0;
}

static bool record_read(const struct upload *up, uint32_t number, struct record *out)
{
	char name[PARTS_NAME_CAP], text[PARTS_TEXT_CAP], boot[64], end;

	FMT(name, "%" PRIu32, number);
	small_read(up->fd, name, text, sizeof(text));
	return sscanf(text, "%32[0-9a-f] %" SCNu64 " %39[a-z0-9-] %63s%c", out->etag, &out->size,
	              out->file, boot, &end) == 5 &&
	       end == '\n' && strcmp(boot, up->boot) == 0;
}

/* The record takes the place of an older one, whose file is not needed any more. */
static int record_write(const struct upload *up, uint32_t number, const struct record *r,
                        struct err *err)
{
	char name[PARTS_NAME_CAP], temp[PARTS_NAME_CAP], text[PARTS_TEXT_CAP];
	struct record old;
	bool replaces = record_read(up, number, &old);

	FMT(name, "%" PRIu32, number);
	temp_name("r", temp);
	FMT(text, "%s %" PRIu64 " %s %s\n", r->etag, r->size, r->file, up->boot);
	if (small_write(up->fd, temp, text, err) < 0)
		return -1;
	if (renameat(up->fd, temp, up->fd, name) < 0)
		return errno == ENOENT ? gone(err) : err_errno(err, errno, "part %s", name);
	if (replaces && strcmp(old.file, "data") != 0)
		(void)unlinkat(up->fd, old.file, 0); /* else it goes with the upload */
	return 0;
}

/* ---- where a part is written ------------------------------------------------------------- */

static int range_lock(int fd, uint64_t from, uint64_t n)
{
	struct flock l = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)from,
		.l_len = (off_t)n, /* 0: to the end of all files */
	};

	return fcntl(fd, F_OFD_SETLK, &l);
}

/* The upload's part size, 0 = none yet. The first large part sets it. */
static uint64_t base_of(const struct upload *up, uint64_t size)
{
	char text[PARTS_TEXT_CAP], temp[PARTS_NAME_CAP];
	struct err err = {0};
	uint64_t base;

	small_read(up->fd, "base", text, sizeof(text));
	if (text[0] == '\0' && size >= OBJSTORE_PART_MIN) {
		AUTO_FD int fd = openat(up->fd, "data", O_RDWR | O_CREAT | O_CLOEXEC, 0644);

		temp_name("b", temp);
		FMT(text, "%" PRIu64, size);
		if (fd < 0 || small_write(up->fd, temp, text, &err) < 0)
			return 0;
		/* somebody else's is as good; without any it stays unknown */
		if (linkat(up->fd, temp, up->fd, "base", 0) < 0 && errno != EEXIST)
			text[0] = '\0';
		(void)unlinkat(up->fd, temp, 0);
		small_read(up->fd, "base", text, sizeof(text));
	}
	return str_u64(str_of(text), OBJSTORE_PART_MIN, INT64_MAX / OBJSTORE_PARTS_MAX, &base,
	               &err) < 0
	               ? 0
	               : base;
}

/* `data`, with the part's range locked; -1 when the part has to be in a file of its own. */
static int slot_open(const struct upload *up, uint32_t number, uint64_t size, uint64_t *at)
{
	AUTO_FD int fd = -1;
	struct stat held, named;
	struct record r;
	uint64_t base;

	if (size == UINT64_MAX || size == 0)
		return -1;
	base = base_of(up, size);
	if (base == 0 || size > base)
		return -1;
	*at = (number - 1) * base;
	fd = openat(up->fd, "data", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	/* once it is locked: not written already, and not made an object by one who completed */
	if (fd < 0 || range_lock(fd, *at, size) < 0 || record_read(up, number, &r) ||
	    fstat(fd, &held) < 0 || fstatat(up->fd, "data", &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    held.st_ino != named.st_ino)
		return -1;
	return TAKE_FD(fd);
}

int dir_parts_begin(struct objstore *os, const char *key, char id[OBJSTORE_UPLOAD_CAP],
                    struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	char name[DIR_TMP_CAP];
	AUTO_FD int fd = -1;

	if (dir_check_key(key, err) < 0)
		return -1;
	seal_id(id, DIR_ID_LEN);
	FMT(name, "u-%s", id);
	if (mkdirat(d->tmp, name, 0700) < 0)
		return err_errno(err, errno, "%s/%s", DIR_TMP, name);
	fd = openat(d->tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "%s/%s", DIR_TMP, name);
	return fs_write_atomic(fd, "key", str_of(key), 0600, err);
}

int dir_parts_put(struct objstore *os, const char *key, const char *id, uint32_t number,
                  uint64_t size, objstore_read_fn *read, void *arg, char etag[80], struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	struct upload up = {.fd = -1};
	AUTO_FD int folder = -1, fd = -1;
	struct record r = {.file = "data"};
	uint64_t at = 0;
	char md5[80];
	int rc;

	if (upload_open(d, key, id, &up, err) < 0)
		return -1;
	folder = up.fd;
	fd = slot_open(&up, number, size, &at);
	if (fd < 0) {
		at = 0;
		temp_name("p", r.file);
		fd = openat(up.fd, r.file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			return errno == ENOENT ? gone(err) : err_errno(err, errno, "%s", r.file);
	}
	rc = dir_receive(fd, at, size, read, arg, &r.size, md5, err);
	if (rc == 0) {
		FMT(r.etag, "%s", md5);
		rc = record_write(&up, number, &r, err);
	}
	if (rc < 0 && strcmp(r.file, "data") != 0)
		(void)unlinkat(up.fd, r.file, 0); /* else it goes with the upload */
	if (rc == 0)
		fmt_fixed(etag, 80, "%s", md5);
	return rc;
}

/* ---- completing -------------------------------------------------------------------------- */

/* All parts, checked, and the object's ETag. *whole: they lie in `data` as they should. */
static int gather(const struct upload *up, const struct objstore_part *parts, size_t n,
                  struct record *out, uint64_t *total, bool *whole, char etag[80], struct err *err)
{
	uint64_t base = base_of(up, 0);
	struct objstore_etag e;
	int rc = 0;

	objstore_etag_begin(&e);
	*total = 0;
	*whole = base > 0;
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (!record_read(up, parts[i].number, &out[i]) ||
		    strcmp(out[i].etag, parts[i].etag) != 0) {
			rc = err_set(err, ERR_INVALID,
			             "InvalidPart: part %" PRIu32
			             " was not uploaded with ETag %.40s",
			             parts[i].number, parts[i].etag);
			break;
		}
		if (strcmp(out[i].file, "data") != 0 || parts[i].number != i + 1 ||
		    (i + 1 < n && out[i].size != base))
			*whole = false;
		if (out[i].size > (uint64_t)INT64_MAX - *total)
			rc = err_set(err, ERR_TOO_BIG,
			             "EntityTooLarge: the parts are too large together");
		else
			*total += out[i].size;
		if (rc == 0)
			rc = objstore_etag_add(&e, out[i].etag, err);
	}
	objstore_etag_end(&e, etag);
	return rc;
}

/* `data` is the object: nobody writes to it any more. */
static int end_whole(struct dirstore *d, const struct upload *up, const char *id, const char *key,
                     uint64_t total, const char *etag, struct objstore_info *info, struct err *err)
{
	AUTO_FD int fd = openat(up->fd, "data", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	int64_t until = clock_mono_ms() + PARTS_LOCK_MS;
	char name[DIR_TMP_CAP];

	if (fd < 0)
		return errno == ENOENT ? gone(err) : err_errno(err, errno, "data");
	while (range_lock(fd, 0, 0) < 0) {
		if (clock_mono_ms() > until)
			return err_set(err, ERR_BUSY, "a part is still being written");
		clock_sleep_ms(PARTS_LOCK_STEP);
	}
	if (ftruncate(fd, (off_t)total) < 0) /* behind it: parts that are not wanted */
		return err_errno(err, errno, "data");
	FMT(name, "u-%s/data", id);
	if (dir_publish(d, fd, name, key, etag, info, err) < 0)
		return -1;
	copy_drop(fd);
	return 0;
}

static int end_copied(struct dirstore *d, const struct upload *up, const char *key,
                      const struct objstore_part *parts, const struct record *r, size_t n,
                      const char *etag, struct objstore_info *info, struct err *err)
{
	uint64_t base = base_of(up, 0), at = 0;
	char name[DIR_TMP_CAP];
	AUTO_FD int to = dir_tmp(d, DIR_OBJECT, name, err);
	int rc = to < 0 ? -1 : 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		AUTO_FD int from = openat(up->fd, r[i].file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		bool shared = strcmp(r[i].file, "data") == 0;
		struct copy_job job = {
			.from = from,
			.from_at = shared ? (parts[i].number - 1) * base : 0,
			.to = to,
			.to_at = at,
			.size = r[i].size,
			.drop_from = true,
		};

		rc = from < 0 ? gone(err) : copy_run(&job, err);
		at += r[i].size;
	}
	if (rc == 0)
		rc = dir_publish(d, to, name, key, etag, info, err);
	if (rc == 0)
		copy_drop(to);
	else if (to >= 0)
		(void)unlinkat(d->tmp, name, 0); /* else swept by age */
	return rc;
}

int dir_parts_end(struct objstore *os, const char *key, const char *id,
                  const struct objstore_part *parts, size_t n, struct objstore_info *info,
                  struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	struct upload up = {.fd = -1};
	AUTO_FD int folder = -1;
	AUTO_FREE struct record *r = NULL;
	char etag[80], name[DIR_TMP_CAP];
	struct err later = {0};
	uint64_t total;
	bool whole;
	int rc;

	if (upload_open(d, key, id, &up, err) < 0)
		return -1;
	folder = up.fd;
	r = xcalloc(n, sizeof(*r));
	if (gather(&up, parts, n, r, &total, &whole, etag, err) < 0)
		return -1;
	rc = whole ? end_whole(d, &up, id, key, total, etag, info, err)
	           : end_copied(d, &up, key, parts, r, n, etag, info, err);
	if (rc < 0)
		return -1;
	FMT(name, "u-%s", id);
	if (fs_remove_tree(d->tmp, name, &later) < 0)
		err_clear(&later); /* the object is there; the rest is swept by age */
	return 0;
}

int dir_parts_abort(struct objstore *os, const char *key, const char *id, struct err *err)
{
	struct dirstore *d = (struct dirstore *)os;
	struct upload up = {.fd = -1};
	AUTO_FD int folder = -1;
	char name[DIR_TMP_CAP];

	if (upload_open(d, key, id, &up, err) < 0 || upload_name(id, name, err) < 0)
		return -1;
	folder = up.fd;
	return fs_remove_tree(d->tmp, name, err);
}
