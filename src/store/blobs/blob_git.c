/* blob_git.c - see blob_git.h. */
#include "store/blobs/blob_git.h"

#include "base/clock.h"
#include "store/blobs/blob_impl.h"

#include <dirent.h>

#define GIT_PATH_CAP 64
#define GIT_HEX_CAP (2 * BLOB_GIT_LEN + 1)
#define GIT_TEXT_LEN 43 /* of 32 bytes */

static void path_of(const uint8_t oid[BLOB_GIT_LEN], char out[GIT_PATH_CAP])
{
	char hex[GIT_HEX_CAP];

	hex_encode(oid, BLOB_GIT_LEN, hex);
	fmt_fixed(out, GIT_PATH_CAP, "git/%.2s/%s", hex, hex);
}

static bool read_link(int dir, const char *path, struct digest *out)
{
	AUTO_BUF struct buf bytes = BUF_INIT(HASH_SHA256_LEN + 3);
	char text[HASH_HEX_CAP];
	struct err ignored = {0};
	ssize_t n = readlinkat(dir, path, text, sizeof(text));

	if (n == HASH_HEX_CAP - 1)
		return digest_parse(str_n(text, (size_t)n), out, &ignored) == 0;
	if (n != GIT_TEXT_LEN ||
	    base64_decode(str_n(text, GIT_TEXT_LEN), true, &bytes, &ignored) < 0 ||
	    bytes.n != HASH_SHA256_LEN)
		return false;
	memcpy(out->b, bytes.p, HASH_SHA256_LEN);
	return true;
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

/* Most are new, in a folder that is there. */
void blob_git_note(struct blobs *b, const uint8_t oid[BLOB_GIT_LEN], const struct digest *d)
{
	AUTO_BUF struct buf text = BUF_INIT(GIT_TEXT_LEN);
	char path[GIT_PATH_CAP], folder[GIT_PATH_CAP];
	struct err ignored = {0};
	struct digest known;

	path_of(oid, path);
	base64_encode(d->b, HASH_SHA256_LEN, true, &text);
	if (symlinkat(buf_cstr(&text), b->fd, path) == 0)
		return;
	if (errno == ENOENT) {
		FMT(folder, "%.6s", path);
		if (fs_mkdirs(b->fd, folder, 0755, &ignored) < 0 ||
		    symlinkat(buf_cstr(&text), b->fd, path) == 0)
			return;
	}
	if (errno != EEXIST || (read_link(b->fd, path, &known) && digest_same(&known, d)))
		return;
	/* Another text was wrong or is damaged: the same id is the same content. */
	if (unlinkat(b->fd, path, 0) == 0 && symlinkat(buf_cstr(&text), b->fd, path) < 0)
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
