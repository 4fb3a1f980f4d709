/* fuzz_source.c - source URLs and secrets from anywhere: no crash, no secret in what is said. */
#include "store/sources/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The first line is the URL, the rest the secret. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const roots[] = {"/nowhere", "/"};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&(struct http_policy){0});
	AUTO_SOURCE struct source *s = NULL;
	struct str rest = str_n((const char *)data, n), line = {0};
	AUTO_FREE char *url = NULL;
	struct err err = {0};
	struct source_options o = {.client = client, .file_roots = roots, .n_file_roots = n % 3};

	(void)str_cut(&rest, '\n', &line);
	o.secret = rest;
	o.n_file_roots = MIN(o.n_file_roots, COUNT(roots));
	url = str_dup(line);
	if (source_open(&s, url, &o, &err) < 0) {
		assert(err.code != ERR_NONE);
		rest = str_trim(rest);
		/* words of a few letters are in every message */
		assert(rest.n < 16 || memchr(rest.p, '\0', rest.n) != NULL ||
		       memmem(url, strlen(url), rest.p, rest.n) != NULL ||
		       memmem(err.msg, strlen(err.msg), rest.p, rest.n) == NULL);
		return 0;
	}
	assert(strchr(source_name(s), '?') == NULL);
	return 0;
}
