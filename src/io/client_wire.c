/* client_wire.c - see client_impl.h. */
#include "io/client_impl.h"
#include "base/clock.h"

#include <poll.h>

#define PIPE_BYTES (1 << 20) /* what an ordinary user may ask for; less does, too */

struct watch {
	const struct http_call *call;
	int64_t since_ms, shown_ms; /* the window of the stall, and when progress was told */
	uint64_t since_bytes;
	int64_t until_ms;
};

/* Looked at between two pieces: is it still worth going on? */
static int look(struct watch *w, uint64_t received, struct err *err)
{
	const struct http_call *call = w->call;
	int64_t stall_ms = call->stall_ms > 0 ? call->stall_ms : STALL_MS, now = clock_mono_ms();

	if (call->cancel != NULL && atomic_load(call->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	if (w->until_ms > 0 && now >= w->until_ms)
		return err_set(err, ERR_TIMEOUT, "no answer within %" PRId64 " ms", call->total_ms);
	if (now - w->since_ms >= stall_ms) {
		if ((received - w->since_bytes) * 1000 <
		    (uint64_t)STALL_BYTES_S * (uint64_t)stall_ms)
			return err_set(err, ERR_TIMEOUT,
			               "less than %d bytes a second came for %" PRId64 " s",
			               STALL_BYTES_S, (stall_ms + 999) / 1000);
		w->since_ms = now;
		w->since_bytes = received;
	}
	if (call->progress != NULL && now - w->shown_ms >= PROGRESS_MS) {
		w->shown_ms = now;
		call->progress(call->arg, 0, received);
	}
	return 0;
}

static int move(struct watch *w, int sock, const int pipe_fd[2], uint64_t left, uint64_t *received,
                struct err *err)
{
	while (left > 0) {
		size_t most = (size_t)MIN(left, (uint64_t)PIPE_BYTES);
		ssize_t n = splice(sock, NULL, pipe_fd[1], NULL, most,
		                   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (n == 0)
			return err_set(err, ERR_UNAVAILABLE,
			               "the body was cut short: %" PRIu64 " of %" PRIu64
			               " bytes came",
			               *received, *received + left);
		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = sock, .events = POLLIN};

			(void)poll(&p, 1, PROGRESS_MS); /* splice() says what there is */
		} else if (n < 0 && errno != EINTR) {
			return err_set(err, ERR_UNAVAILABLE, "the body: %s", strerror(errno));
		} else if (n > 0) {
			*received += (uint64_t)n;
			left -= (uint64_t)n;
			if (w->call->drain(w->call->arg, pipe_fd[0], (size_t)n, err) < 0)
				return -1;
		}
		if (look(w, *received, err) < 0)
			return -1;
	}
	return 0;
}

int wire_drain(const struct http_call *call, int sock, uint64_t left, int64_t until_ms,
               uint64_t *received, struct err *err)
{
	int64_t now = clock_mono_ms();
	struct watch w = {.call = call,
	                  .since_ms = now,
	                  .shown_ms = now,
	                  .since_bytes = *received,
	                  .until_ms = until_ms};
	int pipe_fd[2], r;

	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return err_errno(err, errno, "a pipe");
	(void)fcntl(pipe_fd[1], F_SETPIPE_SZ, PIPE_BYTES); /* a smaller one is only slower */
	r = move(&w, sock, pipe_fd, left, received, err);
	(void)close(pipe_fd[0]);
	(void)close(pipe_fd[1]);
	return r;
}
