/* fuzz_url.c - URLs, escapes and queries from anywhere: no crash, and what is taken can be said
 * again. */
#include "io/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What was parsed, written down and parsed again, is the same: else the guard and the wire differ.
 */
static void again(struct arena *a, const struct url *u)
{
	struct err err = {0};
	struct url v;
	const char *text =
		arena_printf(a, "%s://%s:%u%s%s%s", u->scheme, u->host, u->port, u->path,
	                     u->query == NULL ? "" : "?", u->query == NULL ? "" : u->query);

	if (strlen(text) > URL_MAX)
		return;
	if (url_parse(a, str_of(text), &v, &err) < 0)
		abort();
	assert(url_same_origin(u, &v));
	assert(strcmp(u->path, v.path) == 0);
	assert((u->query == NULL) == (v.query == NULL));
	assert(u->query == NULL || strcmp(u->query, v.query) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf coded = BUF_INIT(3 * n + 1);
	struct str text = str_n((const char *)data, n), query = text, name, value, out;
	struct err err = {0};
	struct url u;

	if (url_parse(a, text, &u, &err) == 0)
		again(a, &u);
	else
		err_clear(&err);
	while (url_query_next(&query, &name, &value))
		assert(name.n + value.n <= n);
	(void)url_query(a, text, "prefix", &out);
	if (url_decode(a, text, &out, &err) < 0)
		err_clear(&err);
	if (memchr(data, '\0', n) != NULL)
		return 0;
	url_encode(text, n % 2 == 0, &coded);
	if (url_decode(a, buf_view(&coded), &out, &err) < 0 || !str_same(out, text))
		abort();
	return 0;
}
