/* outcome.c - what a reply means: its error in words, and whether and when to try again; see
 * client.h. */
#include "base/clock.h"
#include "base/json.h"
#include "base/seal.h"
#include "io/client_impl.h"

#define RETRY_WAIT_MAX_MS 20000
#define RETRY_ASKED_MAX_S 300 /* a server may ask for more, and gets this */

const char *const http_method_name[HTTP_METHODS] = {
	[HTTP_GET] = "GET",         [HTTP_HEAD] = "HEAD",         [HTTP_PUT] = "PUT",
	[HTTP_POST] = "POST",       [HTTP_PATCH] = "PATCH",       [HTTP_DELETE] = "DELETE",
	[HTTP_OPTIONS] = "OPTIONS", [HTTP_PROPFIND] = "PROPFIND", [HTTP_MKCOL] = "MKCOL",
};

/* "GET https://host/path", without what may be secret. */
void http_call_name(const struct http_call *call, char out[HTTP_NAME_CAP])
{
	const char *url = call->url;
	size_t n = strcspn(url, "?#"), start = strcspn(url, ":"), at;
	const char *slash;

	start = MIN(n, start + 3);
	slash = memchr(url + start, '/', n - start);
	at = slash == NULL ? n : (size_t)(slash - url);
	while (at > start && url[at - 1] != '@')
		at--;
	(void)snprintf(out, HTTP_NAME_CAP, "%s %.*s%.*s", http_method_name[call->method],
	               (int)start, url, (int)MIN(n - at, 512), url + at);
}

struct str http_header_of(const struct http_reply *reply, const char *name)
{
	for (size_t i = 0; i < reply->n_headers; i++) {
		if (str_ieq(str_of(reply->headers[i].name), name))
			return str_of(reply->headers[i].value);
	}
	return (struct str){0};
}

static struct str between(struct str s, const char *open, const char *close)
{
	const char *from = memmem(s.p, s.n, open, strlen(open)), *to;

	if (from == NULL)
		return (struct str){0};
	from += strlen(open);
	to = memmem(from, s.n - (size_t)(from - s.p), close, strlen(close));
	return to == NULL ? (struct str){0} : str_n(from, (size_t)(to - from));
}

/* Azure puts an id and a time on lines of their own. */
static struct str in_a_line(struct arena *a, struct str text)
{
	char *line = arena_strz(a, text);

	for (char *p = line; *p != '\0'; p++)
		*p = (unsigned char)*p < ' ' ? ' ' : *p;
	return str_of(line);
}

/* The message in an error's body, in the format of its protocol. */
static struct str words_of(struct arena *a, const struct http_reply *r)
{
	struct str body = str_trim(buf_view(&r->body)), text;
	const struct doc *d = NULL;
	struct err err = {0};

	if (http_header_of(r, "x-error-message").n > 0)
		return http_header_of(r, "x-error-message");
	if (body.n == 0)
		return (struct str){0};
	if (body.p[0] == '{' && js_parse(a, body, &d, &err) == 0) {
		text = doc_text(doc_get(d, "message"));
		if (text.n == 0)
			text = doc_text(doc_get(d, "error"));
		if (text.n == 0)
			text = doc_text(doc_path(d, "error", "message", NULL));
		if (text.n == 0)
			text = doc_text(doc_get(d, "detail"));
		return text;
	}
	if (body.p[0] != '<')
		return str_n(body.p, MIN(body.n, 200));
	text = between(body, "<Message>", "</Message>");
	if (text.n > 0 && between(body, "<Code>", "</Code>").n > 0)
		text = str_of(arena_printf(a, "%.*s: %.*s",
		                           STR_ARG(between(body, "<Code>", "</Code>")),
		                           STR_ARG(text)));
	return in_a_line(a, text);
}

int http_expect(const struct http_call *call, const struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = NULL;
	struct str words;
	char name[HTTP_NAME_CAP];

	if (reply->status / 100 == 2)
		return 0;
	a = arena_new();
	words = words_of(a, reply);
	http_call_name(call, name);
	(void)err_set(err, err_from_http(reply->status), "%s: %d%s%.*s", name, reply->status,
	              words.n > 0 ? " " : "", (int)MIN(words.n, 1000), words.n > 0 ? words.p : "");
	err->retry_after_s = reply->retry_after_s;
	return -1;
}

int reply_retry_after(const struct http_reply *r)
{
	struct str after = http_header_of(r, "retry-after"), part;
	struct err err = {0};
	uint64_t n = 0;
	int64_t when;

	if (after.n > 0) {
		if (str_u64(after, 0, INT32_MAX, &n, &err) == 0)
			return (int)n;
		err_clear(&err);
		if (clock_parse(after, &when, &err) < 0)
			return 0;
		return (int)MIN(MAX((when - clock_wall_ms() + 999) / 1000, 0), INT32_MAX);
	}
	after = http_header_of(r, "ratelimit");
	while (r->status == 429 && str_cut(&after, ';', &part)) {
		part = str_trim(part);
		if (str_starts(part, "t=") &&
		    str_u64(str_skip(part, 2), 0, INT32_MAX, &n, &err) == 0)
			return (int)n;
		err_clear(&err);
	}
	return 0;
}

bool retry_again(struct retry *r, struct err *err)
{
	int64_t wait, until;
	uint64_t dice;

	if (err->code == ERR_NONE || !err_info(err)->retry || --r->left <= 0)
		return false;
	seal_random(&dice, sizeof(dice));
	wait = err->retry_after_s > 0 ? MIN(err->retry_after_s, RETRY_ASKED_MAX_S) * INT64_C(1000)
	                              : (int64_t)(dice % (uint64_t)(r->wait_ms + 1));
	r->wait_ms = MIN(r->wait_ms * 2, RETRY_WAIT_MAX_MS);
	until = clock_mono_ms() + wait;
	while (wait > 0) {
		if (r->cancel != NULL && atomic_load(r->cancel))
			return false;
		clock_sleep_ms(MIN(wait, 100));
		wait = until - clock_mono_ms();
	}
	err_clear(err);
	return true;
}
