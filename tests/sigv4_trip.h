/* sigv4_trip.h - for the tests of signatures: a request as it travels, and AWS's example key. */
#ifndef SIGV4_TRIP_H
#define SIGV4_TRIP_H

#include "unit.h"

#include "io/sigv4.h"

#define ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define HOST "examplebucket.s3.amazonaws.com"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define WHEN INT64_C(1369353600000) /* 2013-05-24T00:00:00Z */
#define MINUTE INT64_C(60000)
#define N_MAX 40

static const struct sigv4_key aws = {ACCESS, SECRET, NULL, "us-east-1", "s3"};

#define PRESIGNED_QUERY                                                                            \
	"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" ACCESS                                \
	"%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"                  \
	"&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="                           \
	"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"

/* A request as it travels. */
struct trip {
	struct arena *a;
	struct http_header h[N_MAX];
	struct sigv4_request rq;
};

static UNUSED void send_url(struct trip *t, const char *url)
{
	struct err err = {0};
	struct url u;

	assert_ok(url_parse(t->a, str_of(url), &u, &err), &err);
	t->rq.path = str_of(u.path);
	t->rq.query = str_of(u.query);
}

static UNUSED void add(struct trip *t, const char *name, const char *value)
{
	assert_true(t->rq.n_headers < N_MAX);
	t->h[t->rq.n_headers++] = (struct http_header){name, value};
}

static UNUSED struct http_header *find(struct trip *t, const char *name)
{
	for (size_t i = 0; i < t->rq.n_headers; i++) {
		if (strcasecmp(t->h[i].name, name) == 0)
			return &t->h[i];
	}
	fail_msg("no header %s", name);
	return NULL;
}

static UNUSED void drop(struct trip *t, const char *name)
{
	struct http_header *h = find(t, name);

	*h = t->h[--t->rq.n_headers];
}

/* http://h:8000/s3/b/k, signed at WHEN with two headers of the caller's. */
static UNUSED void trip_make(struct trip *t, struct arena *a, const struct sigv4_key *key,
                             const char *url)
{
	static const struct http_header own[] = {{"x-amz-meta-a", "  two   words "},
	                                         {"Content-Type", "text/plain"}};
	struct http_header out[4];
	struct err err = {0};
	size_t n;

	*t = (struct trip){.a = a, .rq = {.method = HTTP_PUT}};
	t->rq.headers = t->h;
	send_url(t, url);
	assert_ok(sigv4_sign(a, key, HTTP_PUT, url, own, COUNT(own), SIGV4_UNSIGNED, WHEN, out, &n,
	                     &err),
	          &err);
	add(t, "Host", "h:8000");
	add(t, own[0].name, own[0].value);
	add(t, own[1].name, own[1].value);
	for (size_t i = 0; i < n; i++)
		add(t, out[i].name, out[i].value);
}

static UNUSED void rename_value(struct trip *t, const char *header, const char *from,
                                const char *to)
{
	struct http_header *h = find(t, header);
	const char *at = strstr(h->value, from);

	assert_non_null(at);
	h->value = arena_printf(t->a, "%.*s%s%s", (int)(at - h->value), h->value, to,
	                        at + strlen(from));
}

#endif
