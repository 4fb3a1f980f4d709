/*
 * head.c - is the head of a request clear? Two readers who understand it in different ways, a proxy
 * and this server, are how requests are smuggled: what is not as RFC 9112 writes it is refused, not
 * guessed.
 *
 * libmicrohttpd (0.9) takes bare LF, NUL, blanks before a colon and folded lines. It parses in
 * place and hands out pointers into what came, so the head can be checked without a second parser:
 * each piece must begin where the one before it and a single CRLF end, up to the last byte. Its
 * version 1.0 has settings for that.
 */
#include "io/httpd_impl.h"

/* Headers that say one thing: which of two would count is anybody's guess. */
static const char *const once[] = {
	"authorization",
	"content-length",
	"content-type",
	"expect",
	"host",
	"if-range",
	"range",
	"transfer-encoding",
	"x-amz-content-sha256",
	"x-amz-date",
	"x-amz-decoded-content-length",
	"x-amz-security-token",
	"x-forwarded-host",
	"x-forwarded-proto",
};

bool head_is_token(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		      (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL)))
			return false;
	}
	return s.n > 0;
}

static bool is_text(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c < ' ' && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

void head_begin(struct head *h, const char *uri)
{
	h->uri = uri;
	h->uri_end = uri + strlen(uri);
	h->torn = strchr(uri, ' ') != NULL;
}

void head_line(struct head *h, const char *method, const char *version)
{
	h->start = method;
	h->torn = h->torn || method + strlen(method) + 1 != h->uri || h->uri_end + 1 != version;
	h->next = version + strlen(version) + 2;
}

void head_field(struct head *h, const char *name, const char *value)
{
	h->torn = h->torn || name != h->next || value <= name;
	h->next = value + strlen(value) + 2;
}

bool head_is_whole(const struct head *h, size_t bytes)
{
	return !h->torn && h->next + 2 == h->start + bytes;
}

bool head_lists(struct str list, struct str word)
{
	struct str one;

	while (str_cut(&list, ',', &one)) {
		one = str_trim(one);
		if (one.n == word.n && strncasecmp(one.p, word.p, word.n) == 0)
			return true;
	}
	return false;
}

const char *head_fault(const struct exchange *x, bool needs_host)
{
	unsigned seen[COUNT(once)] = {0}, hosts = 0;

	for (const struct header *h = x->headers; h != NULL; h = h->next) {
		if (!head_is_token(h->name))
			return "a header's name contains an invalid character";
		if (!is_text(h->value))
			return "a header contains a control character";
		hosts += str_ieq(h->name, "host");
		for (size_t i = 0; i < COUNT(once); i++) {
			if (str_ieq(h->name, once[i]) && seen[i]++ > 0)
				return "a header that may occur once was sent twice";
		}
	}
	return needs_host && hosts == 0 ? "the Host header is missing" : NULL;
}

bool head_framing(struct exchange *x)
{
	struct str length = request_header(&x->rq, "content-length");
	struct str coding = request_header(&x->rq, "transfer-encoding");
	bool has_length = false, has_coding = false;
	struct err err = {0};

	for (const struct header *h = x->headers; h != NULL; h = h->next) {
		has_length = has_length || str_ieq(h->name, "content-length");
		has_coding = has_coding || str_ieq(h->name, "transfer-encoding");
	}
	if (has_length && has_coding)
		return false;
	if (has_length && str_i64(length, 0, INT64_MAX, &x->rq.body_len, &err) < 0)
		return false;
	if (has_coding) {
		if (!str_ieq(coding, "chunked"))
			return false;
		x->rq.body_len = -1;
	}
	if (x->rq.body_len != 0)
		exchange_body_to(x, BODY_WAITING);
	x->expects = str_ieq(request_header(&x->rq, "expect"), "100-continue");
	return true;
}
