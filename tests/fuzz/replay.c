/* replay.c - runs a fuzz target over every file below the folders named, where libFuzzer is not
 * linked. */
#include "base/fs.h"

#include <dirent.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static unsigned count;

static void replay(const char *path)
{
	AUTO_BUF struct buf body = BUF_INIT((size_t)64 << 20);
	struct err err = {0};
	struct stat st;

	if (stat(path, &st) < 0)
		abort();
	if (S_ISDIR(st.st_mode)) {
		DIR *d = opendir(path);

		if (d == NULL)
			abort();
		for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
			AUTO_FREE char *sub = NULL;

			if (e->d_name[0] == '.')
				continue;
			sub = xasprintf("%s/%s", path, e->d_name);
			replay(sub);
		}
		(void)closedir(d);
		return;
	}
	if (fs_read(AT_FDCWD, path, &body, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	(void)LLVMFuzzerTestOneInput((const uint8_t *)buf_cstr(&body), body.n);
	count++;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	(void)printf("%u inputs replayed\n", count);
	return count > 0 ? 0 : 1; /* an empty corpus is a check that cannot fail */
}
