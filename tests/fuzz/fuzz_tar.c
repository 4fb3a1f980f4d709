/*
 * fuzz_tar.c - any bytes as an archive. Whatever happens, nothing appears beside the folder that it
 * is unpacked into, and no link in there leads out.
 */
#include "base/fs.h"
#include "io/tar.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define BLOCK 512
#define DEPTH_MAX 4000 /* a name has 4096 bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char place[] = "/tmp/fuzz_tar.XXXXXX";
static int dir = -1;

static void clean_up(void)
{
	struct err err = {0};

	if (fs_remove_tree(AT_FDCWD, place, &err) < 0)
		(void)fprintf(stderr, "%s\n", err.msg);
}

/* The kernel's own opinion: does this name, followed through all links, stay beneath root? */
static void check_stays(int root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd >= 0)
		(void)close((int)fd);
	else if (errno == EXDEV)
		abort();
}

static size_t check_dir(int root, const char *path, int depth)
{
	int fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	size_t count = 0;

	if (d == NULL || depth > DEPTH_MAX)
		abort();
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		AUTO_FREE char *sub = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		count++;
		sub = xasprintf("%s/%s", path, e->d_name);
		if (strlen(sub) >= 4096)
			continue; /* deeper than one call can name */
		if (e->d_type == DT_LNK)
			check_stays(root, sub);
		else if (e->d_type == DT_DIR)
			(void)check_dir(root, sub, depth + 1);
		else if (e->d_type != DT_REG)
			abort();
	}
	(void)closedir(d);
	return count;
}

/* Headers of a plain archive get the sum they should have: past that check is where it matters. */
static void mend_sums(uint8_t *bytes, size_t n)
{
	for (uint8_t *h = bytes; n >= BLOCK; h += BLOCK, n -= BLOCK) {
		unsigned sum = 0;

		if (memcmp(h + 257, "ustar", 5) != 0)
			continue;
		memset(h + 148, ' ', 8);
		for (size_t i = 0; i < BLOCK; i++)
			sum += h[i];
		for (size_t i = 6; i-- > 0; sum >>= 3)
			h[148 + i] = (uint8_t)('0' + (sum & 7));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_FREE uint8_t *mended = xmalloc(n + 1);
	static const struct tar_limits limits = {.entries_max = 64, .bytes_max = 1 << 20};
	AUTO_FD int fd = memfd_create("archive", MFD_CLOEXEC);
	AUTO_FD int out = -1;
	struct tar_report report;
	struct err err = {0};

	if (dir < 0) {
		if (mkdtemp(place) == NULL)
			abort();
		dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		(void)atexit(clean_up);
	}
	if (n > 0)
		memcpy(mended, data, n);
	mend_sums(mended, n);
	if (fs_write_all(fd, mended, n, &err) < 0 || lseek(fd, 0, SEEK_SET) != 0 ||
	    mkdirat(dir, "out", 0700) < 0)
		abort();
	out = openat(dir, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tar_unpack(fd, out, &limits, &report, &err) == 0) {
		if (report.entries > limits.entries_max || report.bytes > limits.bytes_max)
			abort();
	} else if (err.code == ERR_NONE || err.msg[0] == '\0') {
		abort();
	}
	(void)check_dir(out, ".", 0);
	if (check_dir(dir, ".", 0) != 1)
		abort();
	err_clear(&err);
	if (fs_remove_tree(dir, "out", &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	return 0;
}
