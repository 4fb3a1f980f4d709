/* fuzz_proof.c - what answers a challenge may say anything: it is never taken for a proof, and its
 * reply is not read beyond what it announces. */
#include "io/proof.h"

#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct proof p = {.host = "x", .target = PROOF_PATH, .token = STR_LIT("stoker_token")};
	struct err err = {0};
	int pair[2], size = 1 << 20;
	ssize_t sent;

	if (n > (64 << 10) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	sent = send(pair[1], data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)shutdown(pair[1], SHUT_WR);
	assert(sent < 0 || proof_ask(&p, pair[0], &err) < 0);
	assert(sent < 0 || err.code != ERR_NONE);
	(void)close(pair[0]);
	(void)close(pair[1]);
	return 0;
}
