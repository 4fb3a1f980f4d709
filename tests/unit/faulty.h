/* faulty.h - starts tests/mock/faulty.py over a folder, for tests of what talks to sources. */
#ifndef FAULTY_H
#define FAULTY_H

#include "unit.h"

#include "base/fs.h"
#include "base/json.h"
#include "io/client.h"
#include "io/proc.h"

#include <signal.h>

struct faulty {
	char root[64]; /* the folder that it serves */
	char base[64]; /* "http://127.0.0.1:PORT" */
	struct proc proc;
	int keep; /* it lives as long as this is open */
	struct http_client *client;
};

static inline void faulty_write(const struct faulty *f, const char *path, const void *p, size_t n)
{
	struct err err = {0};
	AUTO_FD int dir = fs_open_dir(f->root, &err);
	AUTO_FD int fd = -1;
	const char *slash = strrchr(path, '/');

	assert_true(dir >= 0);
	if (slash != NULL) {
		AUTO_FREE char *folder = xstrndup(path, (size_t)(slash - path));

		assert_ok(fs_mkdirs(dir, folder, 0755, &err), &err);
	}
	(void)unlinkat(dir, path, 0); /* another inode, another time: as a sync tool would do it */
	fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_ok(fs_write_all(fd, p, n, &err), &err);
}

/* Content that follows from size and seed. */
static inline uint8_t faulty_byte(uint64_t at, uint8_t seed)
{
	return (uint8_t)((at * 2654435761U >> 13) + at / 11 + seed);
}

static inline void faulty_fill(const struct faulty *f, const char *path, size_t size, uint8_t seed)
{
	AUTO_FREE uint8_t *p = xmalloc(size + 1);

	for (size_t i = 0; i < size; i++)
		p[i] = faulty_byte(i, seed);
	faulty_write(f, path, p, size);
}

static inline void faulty_folder(struct faulty *f)
{
	FMT(f->root, "/tmp/test-faulty-XXXXXX");
	assert_non_null(mkdtemp(f->root));
	assert_int_equal(chmod(f->root, 0755), 0);
}

/* Serves f->root, which faulty_folder() has made. */
static inline void faulty_start(struct faulty *f)
{
	const char *source = getenv("SOURCE_DIR");
	AUTO_FREE char *script =
		xasprintf("%s/tests/mock/faulty.py", source != NULL ? source : ".");
	const char *argv[] = {"python3", script, "--root", f->root, NULL};
	struct http_policy policy = {0};
	int in[2], out[2];
	struct proc_spec spec = {
		.argv = argv, .n_fds = 3, .die_with_parent = true, .umask_bits = -1};
	struct err err = {0};
	char line[80];
	size_t n = 0;
	unsigned port = 0;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	spec.fds = (struct proc_fd[]){{in[0], 0}, {out[1], 1}, {2, 2}};
	assert_ok(proc_spawn(&spec, &f->proc, &err), &err);
	(void)close(in[0]);
	(void)close(out[1]);
	while (n + 1 < sizeof(line) && read(out[0], line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = '\0';
	(void)close(out[0]);
	f->keep = in[1];
	if (sscanf(line, "port=%u ", &port) != 1)
		fail_msg("faulty.py did not start: \"%s\"", line);
	FMT(f->base, "http://127.0.0.1:%u", port);
	f->client = http_client_new(&policy);
}

static inline void faulty_stop(struct faulty *f)
{
	struct err err = {0};
	int status;

	http_client_free(f->client);
	(void)close(f->keep);
	(void)kill(f->proc.pid, SIGKILL);
	assert_ok(proc_wait(&f->proc, 10000, &status, &err), &err);
	(void)close(f->proc.pidfd);
	assert_ok(fs_remove_tree(AT_FDCWD, f->root, &err), &err);
}

/* A number of /stats; all of them start anew. */
static inline uint64_t faulty_stat(struct faulty *f, const char *name)
{
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	AUTO_ARENA struct arena *a = arena_new();
	char *url = arena_printf(a, "%s/stats?clear", f->base);
	struct http_call call = {.method = HTTP_GET, .url = url};
	const struct doc *d = NULL;
	struct err err = {0};

	assert_ok(http_do(f->client, &call, &reply, &err), &err);
	assert_ok(js_parse(a, buf_view(&reply.body), &d, &err), &err);
	return (uint64_t)doc_int(doc_get(d, name), 0);
}

#endif
