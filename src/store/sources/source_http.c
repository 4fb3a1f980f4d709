/*
 * source_http.c - one HTTP exchange of a source: redirects by hand, ranges and entity tags checked
 * before the first byte is written, and errors that say what to do.
 */
#include "store/sources/source_impl.h"

#include "base/clock.h"

#define SKEW_MAX_MS (5 * 60000)

struct str source_etag(struct str header, bool *weak)
{
	struct str tag = str_trim(header);
	bool w = str_starts(tag, "W/");

	if (w)
		tag = str_skip(tag, 2);
	if (tag.n >= 2 && tag.p[0] == '"' && tag.p[tag.n - 1] == '"')
		tag = str_n(tag.p + 1, tag.n - 2);
	if (weak != NULL)
		*weak = w;
	return tag;
}

/* --- URLs ------------------------------------------------------------------------------------ */

int source_url_join(struct arena *a, const char *base, struct str location, char **out,
                    struct err *err)
{
	struct url b, check;
	struct str dir;
	char *joined, *origin;

	if (url_parse(a, str_of(base), &b, err) < 0)
		return -1;
	origin = url_origin(a, b.scheme, b.host, b.port);
	dir = str_of(b.path);
	while (dir.n > 0 && dir.p[dir.n - 1] != '/')
		dir.n--;
	if (str_starts(location, "//"))
		joined = arena_printf(a, "%s:%.*s", b.scheme, STR_ARG(location));
	else if (str_starts(location, "/"))
		joined = arena_printf(a, "%s%.*s", origin, STR_ARG(location));
	else if (str_starts(location, "http://") || str_starts(location, "https://"))
		joined = arena_strz(a, location);
	else
		joined = arena_printf(a, "%s%.*s%.*s", origin, STR_ARG(dir), STR_ARG(location));
	joined[strcspn(joined, "#")] = '\0';
	if (url_parse(a, str_of(joined), &check, err) < 0)
		return err_wrap(err, "a redirect from %s://%s", b.scheme, b.host);
	*out = joined;
	return 0;
}

/* --- what an answer may look like ------------------------------------------------------------ */

/* "bytes 0-99/1234": false when it is something else; *total UINT64_MAX for '*'. */
static bool parse_content_range(struct str h, uint64_t *first, uint64_t *last, uint64_t *total)
{
	struct err err = {0};
	struct str a, b;

	h = str_trim(h);
	if (!str_starts(h, "bytes "))
		return false;
	h = str_skip(h, 6);
	if (!str_cut(&h, '-', &a) || !str_cut(&h, '/', &b) ||
	    str_u64(a, 0, INT64_MAX, first, &err) < 0 ||
	    str_u64(b, *first, INT64_MAX, last, &err) < 0)
		return false;
	*total = UINT64_MAX;
	return str_eq(h, "*") || str_u64(h, 0, INT64_MAX, total, &err) == 0;
}

static int check_size(const struct source_rq *rq, uint64_t total, struct err *err)
{
	if (total == UINT64_MAX || total == rq->file->size)
		return 0;
	return err_set(err, ERR_CONFLICT,
	               "wrong length: %" PRIu64 " bytes were listed, now it has %" PRIu64
	               "; if it was changed on purpose, start the job again",
	               rq->file->size, total);
}

/* The ETag of the listing; where there was none, the date behind "W/" stands in for it. */
static int check_same(const struct source_rq *rq, const struct http_reply *reply, struct err *err)
{
	const struct source_file *f = rq->file;
	const char *name = rq->pin_header != NULL ? rq->pin_header : "ETag";
	struct str have = source_etag(http_header_of(reply, name), NULL), want;
	bool weak = false;

	if (f->etag == NULL)
		return 0;
	want = source_etag(str_of(f->etag), &weak);
	if (have.n == 0 && weak)
		have = http_header_of(reply, "Last-Modified");
	if (have.n == 0 || str_same(have, want))
		return 0;
	return err_set(
		err, ERR_CONFLICT,
		"it was changed while it was being fetched (its %s %.*s was %s): start the job "
		"again",
		name, (int)MIN(have.n, (size_t)80), have.p, f->etag);
}

/* Called before the first byte of a 2xx body. */
static int check_head(void *arg, const struct http_reply *reply, struct err *err)
{
	const struct source_rq *rq = FROM_VOID(struct source_rq, arg, SOURCE_RQ_MAGIC);
	struct str coding = str_trim(http_header_of(reply, "Content-Encoding"));
	uint64_t first, last, total;
	bool part;

	if (rq->file == NULL)
		return rq->head(rq->arg, reply, err);
	if (coding.n > 0 && !str_ieq(coding, "identity"))
		return err_set(
			err, ERR_CORRUPT,
			"it was sent with Content-Encoding %.*s although identity was requested. "
			"The server, or a proxy in front of it, must not compress files",
			(int)MIN(coding.n, (size_t)40), coding.p);
	if (rq->pin_etag && check_same(rq, reply, err) < 0)
		return -1;
	/* Some servers (rclone's, older gofakes3) send a part with status 200: Content-Range says
	 * what it is, as long as it does not contradict the length. */
	part = parse_content_range(http_header_of(reply, "Content-Range"), &first, &last, &total);
	if (reply->status == 206 && !part)
		return err_set(err, ERR_CORRUPT, "206 without a usable Content-Range");
	if (part && reply->length >= 0 && (uint64_t)reply->length != last - first + 1)
		return err_set(err, ERR_CORRUPT,
		               "Content-Range has %" PRIu64 " bytes, Content-Length %" PRId64,
		               last - first + 1, reply->length);
	if (reply->status == 206 || (reply->status == 200 && part)) {
		if (check_size(rq, total, err) < 0)
			return -1;
		if (first != rq->first || last - first >= rq->count)
			return err_set(err, ERR_CORRUPT,
			               "bytes %" PRIu64 "-%" PRIu64 " were requested, %" PRIu64
			               "-%" PRIu64 " sent",
			               rq->first, rq->first + rq->count - 1, first, last);
		return 0;
	}
	if (reply->status != 200)
		return err_set(err, ERR_CORRUPT, "status %d instead of the file", reply->status);
	if (check_size(rq, reply->length < 0 ? UINT64_MAX : (uint64_t)reply->length, err) < 0)
		return -1;
	if (rq->first > 0 || rq->count < rq->file->size)
		return err_set(err, ERR_UNSUPPORTED, "the server ignores Range");
	return 0;
}

static int pass_on(void *arg, const void *p, size_t n, struct err *err)
{
	const struct http_sink *to = FROM_VOID(struct source_rq, arg, SOURCE_RQ_MAGIC)->to;

	return to->put(to->arg, p, n, err);
}

static int pass_pipe(void *arg, int from, size_t n, struct err *err)
{
	const struct http_sink *to = FROM_VOID(struct source_rq, arg, SOURCE_RQ_MAGIC)->to;

	return to->drain(to->arg, from, n, err);
}

/* --- failures -------------------------------------------------------------------------------- */

static enum err_code code_of_status(int status)
{
	static const struct {
		int status;
		enum err_code code;
	} known[] = {
		{400, ERR_INVALID},     {401, ERR_AUTH},        {403, ERR_DENIED},
		{404, ERR_NOT_FOUND},   {408, ERR_TIMEOUT},     {409, ERR_DENIED},
		{410, ERR_NOT_FOUND},   {412, ERR_CONFLICT},    {416, ERR_RANGE},
		{425, ERR_BUSY},        {429, ERR_BUSY},        {500, ERR_UNAVAILABLE},
		{502, ERR_UNAVAILABLE}, {503, ERR_UNAVAILABLE}, {504, ERR_TIMEOUT},
	};

	for (size_t i = 0; i < COUNT(known); i++) {
		if (known[i].status == status)
			return known[i].code;
	}
	return status >= 500 ? ERR_UNAVAILABLE : ERR_INVALID;
}

int source_bearer(struct source *s, char **out, struct err *err)
{
	*out = NULL;
	if (s->secret[0] == '\0')
		return 0;
	for (const char *p = s->secret; *p != '\0'; p++) {
		if (*p <= ' ' || *p == '"' || *p == 127)
			return err_set(err, ERR_SOURCE_SECRET_INVALID,
			               "the secret is no token: store one alone, as it was given "
			               "out, such as hf_...%s",
			               s->secret[0] == '{' ? "; this one has JSON" : "");
	}
	*out = xasprintf("Bearer %s", s->secret);
	s->auth_advice = SOURCE_TOKEN_ADVICE;
	return 0;
}

/* A signature has a time in it, and stores take it for minutes only: whose clock is wrong shows in
 * the Date of the refusal. */
static void tell_skew(const struct http_reply *reply, struct err *err)
{
	int64_t theirs_ms, skew_ms;
	struct err ignored = {0};

	if (clock_parse(http_header_of(reply, "Date"), &theirs_ms, &ignored) < 0)
		return;
	skew_ms = clock_wall_ms() - theirs_ms;
	if (skew_ms >= -SKEW_MAX_MS && skew_ms <= SKEW_MAX_MS)
		return;
	(void)err_wrap(err, "this server's clock is %" PRId64 " minutes %s the source's: set it",
	               (skew_ms < 0 ? -skew_ms : skew_ms) / 60000,
	               skew_ms < 0 ? "behind" : "ahead of");
}

/* Adds advice. The source explains a reason that the Hub gives. */
static int advise(const struct source *s, const struct http_reply *reply, enum err_code code,
                  struct err *err)
{
	if (code == ERR_AUTH || code == ERR_DENIED)
		err_become(err, s->secret[0] == '\0' ? ERR_SOURCE_UNAUTHORIZED : ERR_SOURCE_DENIED);
	if ((code == ERR_AUTH || code == ERR_DENIED) && s->secret[0] != '\0')
		tell_skew(reply, err);
	if (code == ERR_CONFLICT)
		return err_wrap(err,
		                "it was changed while it was being fetched: start the job again");
	if (code == ERR_UNAVAILABLE || code == ERR_TIMEOUT || code == ERR_BUSY)
		return err_wrap(err, "the source has a problem; try again later");
	if (http_header_of(reply, "X-Error-Code").n > 0)
		return -1;
	if (code == ERR_AUTH || code == ERR_DENIED)
		return err_wrap(err, "%s",
		                s->auth_advice != NULL ? s->auth_advice : s->ops->auth_advice);
	if (code == ERR_NOT_FOUND)
		return err_wrap(err, "not found at the source; check its URL (%s)", s->ops->form);
	return -1;
}

static bool is_redirect(int status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static int fail_status(struct source *s, const struct http_call *call,
                       const struct http_reply *reply, struct err *err)
{
	enum err_code code = code_of_status(reply->status);
	struct err words = {0};

	if (http_expect(call, reply, &words) == 0)
		(void)err_set(&words, ERR_CORRUPT, "%s: unexpected status %d",
		              http_method_name[call->method], reply->status);
	err->retry_after_s = reply->retry_after_s;
	(void)err_set(err, code, "%s", words.msg);
	if (is_redirect(reply->status))
		err_become(err, ERR_SOURCE_REDIRECT_DENIED);
	if (code == ERR_BUSY && reply->retry_after_s > 0)
		return err_wrap(err, "the source asks to retry in %d s", reply->retry_after_s);
	return advise(s, reply, code, err);
}

static void copy_header(char *out, size_t cap, const struct http_reply *reply, const char *name)
{
	struct str h = http_header_of(reply, name);

	if (h.n > 0 && h.n < cap)
		(void)snprintf(out, cap, "%.*s", STR_ARG(h));
}

/* --- the exchange ---------------------------------------------------------------------------- */

static void add_header(struct http_header *h, size_t *n, const char *name, const char *value)
{
	assert(*n < HTTP_HEADERS_MAX);
	h[(*n)++] = (struct http_header){name, value};
}

static int too_late(struct err *err)
{
	return err_set(err, ERR_TIMEOUT, "the source takes too long to say what it has");
}

/* One hop. `auth` NULL: this host is not told who we are. */
static int one_hop(struct source *s, struct arena *a, struct source_rq *rq, const char *url,
                   const char *auth, struct http_reply *reply, struct http_call *call,
                   struct http_header *h, struct err *err)
{
	bool whole = rq->file == NULL || (rq->first == 0 && rq->count == rq->file->size);
	int64_t left_ms = rq->until_ms > 0 ? rq->until_ms - clock_mono_ms() : 0;
	char range[64], match[200];
	size_t n = 0;

	if (rq->until_ms > 0 && left_ms <= 0)
		return too_late(err);

	add_header(h, &n, "Accept-Encoding", "identity");
	for (size_t i = 0; i < rq->n_headers; i++)
		add_header(h, &n, rq->header[i].name, rq->header[i].value);
	if (auth != NULL)
		add_header(h, &n, "Authorization", auth);
	if (!whole) {
		FMT(range, "bytes=%" PRIu64 "-%" PRIu64, rq->first, rq->first + rq->count - 1);
		add_header(h, &n, "Range", range);
	}
	if (rq->pin_etag && rq->pin_header == NULL && rq->file != NULL && rq->file->etag != NULL &&
	    strlen(rq->file->etag) < sizeof(match) - 3 && strncmp(rq->file->etag, "W/", 2) != 0) {
		FMT(match, "\"%s\"", rq->file->etag);
		add_header(h, &n, "If-Match", match);
	}
	*call = (struct http_call){.method = rq->method,
	                           .url = url,
	                           .headers = h,
	                           .n_headers = n,
	                           .total_ms = left_ms,
	                           .stall_ms = s->stall_ms,
	                           .body_max = SOURCE_PAGE_MAX,
	                           .cancel = rq->cancel,
	                           .head = rq->file != NULL || rq->head != NULL ? check_head : NULL,
	                           .sink = rq->file != NULL ? pass_on : NULL,
	                           .drain = rq->file != NULL && rq->to->drain != NULL ? pass_pipe
	                                                                              : NULL,
	                           .arg = rq};
	if (rq->sign != NULL && rq->sign(s, a, call, h, &call->n_headers, err) < 0)
		return -1;
	if (http_do(s->client, call, reply, err) == 0)
		return 0;
	if (err->id == ERR_CERTIFICATE_UNTRUSTED)
		return err_wrap(err, "the server's machine does not trust the source: add the "
		                     "authority of its certificate there (update-ca-certificates)");
	if (err->id == ERR_ADDRESS_DENIED)
		return err_wrap(err, "a source on an internal address requires the server's "
		                     "setting --allow-source-network");
	return -1;
}

int source_http(struct source *s, struct source_rq *rq, struct http_reply *reply, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct http_header h[HTTP_HEADERS_MAX];
	const char *auth = rq->auth;
	char *url = arena_cstr(a, rq->url);
	struct http_call call;
	struct url from, to;

	assert(rq->sign == NULL || rq->no_redirect);

	for (int hop = 0;; hop++) {
		http_reply_done(reply);
		*reply = (struct http_reply){0};
		if (one_hop(s, a, rq, url, auth, reply, &call, h, err) < 0)
			return -1;
		copy_header(rq->linked_etag, sizeof(rq->linked_etag), reply, "X-Linked-Etag");
		copy_header(rq->linked_size, sizeof(rq->linked_size), reply, "X-Linked-Size");
		if (reply->status >= 200 && reply->status < 300)
			return 0;
		if (!is_redirect(reply->status) || rq->no_redirect ||
		    http_header_of(reply, "Location").n == 0)
			return fail_status(s, &call, reply, err);
		if (url_parse(a, str_of(url), &from, err) < 0)
			return -1;
		if (hop == HTTP_REDIRECTS_MAX)
			return err_set(err, ERR_SOURCE_REDIRECT_DENIED,
			               "redirect loop: after %d redirects, %s://%s redirects again",
			               hop, from.scheme, from.host);
		if (source_url_join(a, url, http_header_of(reply, "Location"), &url, err) < 0 ||
		    url_parse(a, str_of(url), &to, err) < 0)
			return -1;
		if (strcmp(from.scheme, "https") == 0 && strcmp(to.scheme, "https") != 0)
			return err_set(err, ERR_SOURCE_REDIRECT_DENIED,
			               "https://%s redirects to plain http: refused", from.host);
		if (!url_same_origin(&from, &to))
			auth = NULL;
	}
}

int source_http_retry(struct source *s, struct source_rq *rq, struct http_reply *reply,
                      struct err *err)
{
	struct retry r = RETRY_INIT(SOURCE_TRIES);

	r.cancel = rq->cancel = s->cancel;
	rq->until_ms = s->ask_until_ms;
	while (source_http(s, rq, reply, err) < 0) {
		bool late = rq->until_ms > 0 && clock_mono_ms() >= rq->until_ms;

		if (late && err->code == ERR_TIMEOUT) { /* whatever it waited for last */
			err_clear(err);
			return too_late(err);
		}
		if (!late && err->retry_after_s <= s->retry_after_max_s && retry_again(&r, err))
			continue;
		if (s->cancel != NULL && atomic_load(s->cancel) && err->code != ERR_CANCELED) {
			err_clear(err);
			(void)err_set(err, ERR_CANCELED, "canceled");
		}
		return -1;
	}
	return 0;
}
