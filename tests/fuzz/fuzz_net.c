/* fuzz_net.c - networks as an operator writes them: what is taken has its own address in it. */
#include "io/url.h"

#include <netinet/in.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	struct err err = {0};
	struct url_net net;

	if (url_net_parse(str_n((const char *)data, n), &net, &err) < 0) {
		assert(err.code != ERR_NONE);
		return 0;
	}
	memcpy(&in.sin_addr, net.addr, 4);
	memcpy(&in6.sin6_addr, net.addr, 16);
	if (net.family == AF_INET) {
		assert(net.bits <= 32);
		assert(url_net_has(&net, (struct sockaddr *)&in));
		(void)url_addr_is_internal((struct sockaddr *)&in);
	} else {
		assert(net.family == AF_INET6 && net.bits <= 128);
		/* a v4-mapped address is looked at as v4, so a v6 network never has it */
		assert(url_net_has(&net, (struct sockaddr *)&in6) ||
		       IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr));
		(void)url_addr_is_internal((struct sockaddr *)&in6);
	}
	return 0;
}
