/* blob_git.c - see blob_git.h. */
#include "store/blobs/blob_git.h"

#include "base/clock.h"
#include "store/blobs/blob_impl.h"

#include <dirent.h>

#define GIT_PATH_CAP 64
#define GIT_HEX_CAP (2 * BLOB_GIT_LEN + 1)

static void path_of(const uint8_t oid[BLOB_GIT_LEN], char out[GIT_PATH_CAP])
{
	char hex[GIT_HEX_CAP];

	hex_encode(oid, BLOB_GIT_LEN, hex);
	fmt_fixed(out, GIT_PATH_CAP, "git/%.2s/%s", hex, hex);
}

static bool read_link(int dir, const char *path, struct digest *out)
{
	char hex[HASH_HEX_CAP];
	struct err ignored = {0};
	ssize_t n = readlinkat(dir, path, hex, sizeof(hex));

	return n == HASH_HEX_CAP - 1 && digest_parse(str_n(hex, (size_t)n), out, &ignored) == 0;
}

bool blob_git_look(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], struct digest *out)
{
	char path[GIT_PATH_CAP];

	path_of(oid, path);
	return read_link(b->fd, path, out);
}

bool blob_git_find(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], uint64_t size,
                   struct digest *out)
{
	return blob_git_look(b, oid, out) && blobs_has(b, out, size);
}

void blob_git_note(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], const struct digest *d)
{
	char path[GIT_PATH_CAP], folder[GIT_PATH_CAP], hex[HASH_HEX_CAP];
	struct err ignored = {0};
	struct digest known;

	path_of(oid, path);
	if (read_link(b->fd, path, &known) && digest_same(&known, d))
		return;
	digest_hex(d, hex);
	FMT(folder, "%.6s", path);
	if (fs_mkdirs(b->fd, folder, 0755, &ignored) < 0)
		return;
	if (symlinkat(hex, b->fd, path) == 0 || errno != EEXIST)
		return;
	/* Another text was wrong or is damaged: the same id is the same content. */
	if (unlinkat(b->fd, path, 0) == 0 && symlinkat(hex, b->fd, path) < 0)
		return; /* it is learned again */
}

/* One folder of links. */
static int sweep_folder(struct blobs *b, const char *path, int64_t before_ms, struct err *err)
{
	int fd = openat(b->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (d == NULL) {
		int errnum = errno;

		if (fd >= 0)
			(void)close(fd);
		return err_errno(err, errnum, "%s/%s", b->dir, path);
	}
	while ((e = readdir(d)) != NULL) {
		struct digest to;
		struct stat st;
		char blob[BLOB_PATH_CAP];

		if (e->d_name[0] == '.' ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    (int64_t)st.st_mtim.tv_sec * 1000 > before_ms)
			continue;
		if (read_link(dirfd(d), e->d_name, &to)) {
			blob_path(&to, blob);
			if (faccessat(b->fd, blob, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
				continue;
		}
		(void)unlinkat(dirfd(d), e->d_name, 0); /* the next sweep tries again */
	}
	(void)closedir(d);
	return 0;
}

int blob_git_sweep(struct blobs *b, int64_t min_age_s, struct err *err)
{
	int64_t before_ms = clock_wall_ms() - min_age_s * 1000;
	char path[GIT_PATH_CAP];

	for (unsigned i = 0; i < 256; i++) {
		FMT(path, "git/%02x", i);
		if (faccessat(b->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
		    sweep_folder(b, path, before_ms, err) < 0)
			return -1;
	}
	return 0;
}
