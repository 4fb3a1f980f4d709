/*
 * xfer.h - a file in parallel ranges: few big parts written at their offset, hashed in order behind
 * the write front by a thread of its own, finished parts journalled so that a killed fetch resumes.
 * Memory is bounded by streams x 1 MiB.
 */
#ifndef XFER_H
#define XFER_H

#include "base/hash.h"
#include "io/client.h"

#define XFER_STREAMS_MAX 16
#define XFER_PART_MIN ((uint64_t)8 << 20)
#define XFER_PART_MAX ((uint64_t)64 << 20)

struct xfer_job {
	/* Reads `count` bytes from `first` into the sink, exactly; retryable errors are tried
	 * again. */
	int (*read)(void *of, uint64_t first, uint64_t count, const struct http_sink *to,
	            const atomic_bool *cancel, struct err *err);
	void *of;
	uint64_t size;
	/* etag, digest or revision: a journal with another one is not resumed */
	const char *identity;
	int fd;                /* target, read-write; space is allocated ahead */
	uint8_t *mem;          /* not NULL: the target instead of fd, `size` bytes, one stream */
	const char *journal;   /* path, or NULL: not resumable */
	enum hash_kind kind;   /* of the content id that the source promises */
	const uint8_t *expect; /* its bytes, or NULL: unknown */
	struct str prefix;     /* hashed before the content (git's "blob N\0"); may be empty */
	unsigned streams;      /* to start with; 0 = 2 */
	unsigned streams_max;  /* more are tried while they make it faster; 0 = XFER_STREAMS_MAX */
	void (*progress)(void *arg, uint64_t done); /* from one thread at a time */
	/* May be NULL. So many bytes from the beginning are written, for who follows; from one
	 * thread. It may go back, when a source without ranges is read again. */
	void (*front)(void *arg, uint64_t bytes);
	void *arg;
	const atomic_bool *cancel;
};

struct xfer_result {
	struct digest sha256; /* of the content, always */
	uint64_t fetched;     /* bytes that travelled; less than size when resumed */
};

/* ERR_CORRUPT when the content is not what was promised; the journal is dropped then. */
int xfer_fetch(const struct xfer_job *job, struct xfer_result *out, struct err *err) MUST_CHECK;

#endif
