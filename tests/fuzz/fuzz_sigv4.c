/*
 * fuzz_sigv4.c - any bytes as a request: first line "METHOD path?query", then "name: value" lines.
 * Verifying it by the server's key must fail with a reason, or the claim names that very key.
 */
#include "io/sigv4.h"

#define NOW INT64_C(1369353600000) /* 2013-05-24T00:00:00Z, as in AWS's examples */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static enum http_method method_of(struct str name)
{
	for (enum http_method m = HTTP_GET; m < HTTP_METHODS; m++) {
		if (str_eq(name, http_method_name[m]))
			return m;
	}
	return HTTP_GET;
}

/* Without NULs, as any HTTP parser would hand it over. */
static char *text_of(struct arena *a, struct str s)
{
	char *out = arena_strz(a, s);

	for (size_t i = 0; i < s.n; i++) {
		if (out[i] == '\0')
			out[i] = ' ';
	}
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct sigv4_key keys[] = {
		{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL,
	         "us-east-1", "s3"},
		{"AKIAIOSFODNN7EXAMPLE", "secret", "token", NULL, NULL},
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header headers[64];
	struct sigv4_request rq = {.headers = headers};
	struct str rest = str_n((const char *)data, n), line, word, name;

	if (!str_cut(&rest, '\n', &line))
		return 0;
	if (str_cut(&line, ' ', &word))
		rq.method = method_of(word);
	if (str_cut(&line, '?', &word))
		rq.path = str_of(text_of(a, word));
	rq.query = str_of(text_of(a, line));
	while (rq.n_headers < COUNT(headers) && str_cut(&rest, '\n', &line)) {
		if (!str_cut(&line, ':', &name))
			continue;
		headers[rq.n_headers++] = (struct http_header){text_of(a, name), text_of(a, line)};
	}
	for (size_t i = 0; i < COUNT(keys); i++) {
		struct str access = sigv4_access_key(a, &rq);
		struct err err = {0};

		if (sigv4_verify(a, &keys[i], &rq, NOW, &err) == 0) {
			if (!str_eq(access, keys[i].access_key))
				abort();
		} else if (err.code == ERR_NONE || strchr(err.msg, ':') == NULL) {
			abort();
		}
	}
	return 0;
}
