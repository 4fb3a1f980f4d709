/*
 * client_impl.h - what the files of client.h share: the meaning of a reply's headers, and a long
 * body from a plain socket into a pipe and on, all in the kernel: libcurl has sent the request and
 * read the head, the rest of the body is fetched here. Half the CPU of reading it, and libcurl's
 * connection is spent afterwards.
 */
#ifndef CLIENT_IMPL_H
#define CLIENT_IMPL_H

#include "io/client.h"

#include <signal.h>

/* Before the first use of libcurl, by whoever comes first. */
void http_client_init(void);

/* For calls of libcurl that may write to a connection whose other end has gone. */
struct sigpipe {
	sigset_t old;
	bool was_pending;
};
void sigpipe_hold(struct sigpipe *s);
void sigpipe_release(const struct sigpipe *s);

/* Connects as for this call, by the client's policy, and sends nothing. *handle is libcurl's, for
 * curl_easy_send() and curl_easy_recv(), and the caller's to clean up; *reply is empty. */
int client_connect(struct http_client *c, const struct http_call *call, struct http_reply *reply,
                   void **handle, struct err *err) MUST_CHECK;
/* A line of a reply's head, trimmed and not empty. */
void reply_take_line(struct http_reply *r, struct str line);

/* Seconds, of Retry-After (a number or a date) or of RateLimit: "api";r=0;t=55 as Hugging Face says
 * it; 0 = none. */
int reply_retry_after(const struct http_reply *r);

/* A call that moves less than so much for so long has stalled, whoever moves its body. */
#define STALL_BYTES_S 1024
#define STALL_MS 30000 /* where the call says nothing */
#define PROGRESS_MS 500

#define WIRE_MIN ((uint64_t)1 << 20) /* shorter bodies are not worth their connection */

/* The next `left` bytes of sock (non-blocking) to call->drain; *received grows with them. until_ms:
 * the end of the call (clock_mono_ms), 0 = none. Errors as of http_do(). */
int wire_drain(const struct http_call *call, int sock, uint64_t left, int64_t until_ms,
               uint64_t *received, struct err *err) MUST_CHECK;

#endif
