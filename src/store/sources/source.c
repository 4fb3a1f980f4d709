/* source.c - the table of source drivers, and what holds for all of them: filter, order, revision.
 */
#include "store/sources/source_impl.h"

#include "core/manifest.h"
#include "base/fs.h"

#define GROW_MIN 64

static const struct source_ops *const drivers[] = {
	&source_azure_ops, &source_cw_ops,    &source_file_ops, &source_gs_ops, &source_hf_ops,
	&source_http_ops,  &source_https_ops, &source_r2_ops,   &source_s3_ops,
};

/* An error of a source has an id of its own, so that nobody takes it for one of this server. What
 * the driver knew better stays, and so does what a sink of ours said (a full disk). */
static int fail(struct err *err)
{
	static const enum err_code ids[] = {
		ERR_SOURCE_INVALID,     ERR_SOURCE_DENIED,      ERR_SOURCE_NOT_FOUND,
		ERR_SOURCE_CHANGED,     ERR_SOURCE_BUSY,        ERR_SOURCE_BROKEN,
		ERR_SOURCE_UNSUPPORTED, ERR_SOURCE_UNREACHABLE, ERR_SOURCE_TIMEOUT,
	};

	for (size_t i = 0; i < COUNT(ids); i++)
		err_refine(err, ids[i]);
	return -1;
}

/* --- open and close -------------------------------------------------------------------------- */

void *source_new(const struct source_options *o, size_t size)
{
	struct source *s = xcalloc(1, size);

	assert(size >= sizeof(*s));
	s->client = o->client;
	s->arena = arena_new();
	s->secret = str_dup(str_trim(o->secret));
	s->stall_ms = o->stall_ms;
	s->cancel = o->cancel;
	s->ask_until_ms = o->ask_until_ms;
	s->retry_after_max_s =
		o->retry_after_max_s > 0 ? o->retry_after_max_s : SOURCE_RETRY_AFTER_MAX;
	s->wants_about = o->about;
	s->may_be_empty = o->may_be_empty;
	return s;
}

const char *source_endpoint(struct arena *a, const char *url)
{
	struct str ep = str_of(url);

	while (ep.n > 0 && ep.p[ep.n - 1] == '/')
		ep.n--;
	return arena_strz(a, ep);
}

void source_close(struct source *s)
{
	if (s == NULL)
		return;
	if (s->ops->done != NULL)
		s->ops->done(s);
	explicit_bzero(s->secret, strlen(s->secret));
	free(s->secret);
	free(s->name);
	arena_free(s->arena);
	free(s);
}

static int unknown_scheme(struct str url, struct err *err)
{
	AUTO_BUF struct buf list = BUF_INIT(256);

	for (size_t i = 0; i < COUNT(drivers); i++)
		buf_printf(&list, "%s%s://", i > 0 ? ", " : "", drivers[i]->scheme);
	return err_set(err, ERR_SOURCE_INVALID, "source \"%.*s\": its scheme must be one of %s",
	               (int)MIN(url.n, (size_t)200), url.p, buf_cstr(&list));
}

/* The URL as it may be shown: without query, fragment and what stands before '@' in the host. */
static char *display_name(struct str url, size_t scheme_n)
{
	struct str shown = url;
	size_t host = scheme_n + 3, at = 0;

	for (size_t i = host; i < url.n; i++) {
		if (url.p[i] == '?' || url.p[i] == '#') {
			shown.n = i;
			break;
		}
	}
	if (scheme_n < 4 || memcmp(url.p, "http", 4) != 0)
		return str_dup(shown);
	for (size_t i = host; i < shown.n && shown.p[i] != '/'; i++)
		at = shown.p[i] == '@' ? i + 1 : at;
	if (at == 0)
		return str_dup(shown);
	return xasprintf("%.*s%.*s", (int)host, shown.p, (int)(shown.n - at), shown.p + at);
}

int source_open(struct source **out, const char *url, const struct source_options *o,
                struct err *err)
{
	const char *sep = strstr(url, "://");
	struct str text = str_of(url);

	if (text.n > URL_MAX)
		return err_set(err, ERR_SOURCE_INVALID, "a source URL of %zu bytes: at most %d",
		               text.n, URL_MAX);
	for (size_t i = 0; sep != NULL && i < COUNT(drivers); i++) {
		struct str scheme = str_n(url, (size_t)(sep - url));
		struct source *s = NULL;
		char *name;

		if (!str_eq(scheme, drivers[i]->scheme))
			continue;
		name = display_name(text, scheme.n);
		if (drivers[i]->open(&s, str_skip(text, scheme.n + 3), o, err) < 0) {
			(void)err_wrap(err, "%s", name);
			free(name);
			return fail(err);
		}
		assert(s->ops != NULL);
		s->name = name;
		*out = s;
		return 0;
	}
	return unknown_scheme(text, err);
}

const char *source_name(const struct source *s)
{
	return s->name;
}

/* --- listing --------------------------------------------------------------------------------- */

struct source_found {
	struct arena *arena;
	const struct glob_filter *filter;
	struct source_file *file;
	size_t n, cap, seen;
	uint64_t bytes;
};

bool source_wanted(const struct source_found *to, struct str path)
{
	return to->filter == NULL || glob_wanted(to->filter, path);
}

/* A source may give its files any name: control characters are not shown. */
static int refuse_path(struct str path, struct err *err)
{
	char shown[300];
	size_t n = MIN(path.n, sizeof(shown));

	for (size_t i = 0; i < n; i++)
		shown[i] = (unsigned char)path.p[i] < ' ' || path.p[i] == 127 ? '?' : path.p[i];
	return err_set(err, ERR_INVALID,
	               "\"%.*s\" cannot be a file's path: exclude it with ignore_patterns", (int)n,
	               shown);
}

int source_found(struct source_found *to, struct str path, uint64_t size, enum hash_kind kind,
                 const uint8_t *id, struct str etag, struct err *err)
{
	static const size_t id_bytes[] = {[HASH_SHA256] = 32, [HASH_SHA1] = 20, [HASH_MD5] = 16};
	struct source_file *f;

	to->seen++;
	if (!source_wanted(to, path))
		return 0;
	if (!manifest_path_ok(path))
		return refuse_path(path, err);
	if (to->n == SOURCE_FILES_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "more than %d files: select fewer with allow_patterns",
		               SOURCE_FILES_MAX);
	if (size > INT64_MAX || __builtin_add_overflow(to->bytes, size, &to->bytes))
		return err_set(err, ERR_CORRUPT, "the size of \"%.*s\" is impossible",
		               STR_ARG(path));
	if (to->n == to->cap) {
		to->cap = MAX((size_t)GROW_MIN, to->cap * 2);
		to->file = xrealloc(to->file, to->cap * sizeof(*to->file));
	}
	f = &to->file[to->n++];
	*f = (struct source_file){.path = arena_strz(to->arena, path), .size = size, .kind = kind};
	if (id != NULL) {
		memcpy(f->id, id, id_bytes[kind]);
		f->has_id = true;
	}
	if (etag.n > 0)
		f->etag = arena_strz(to->arena, etag);
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct source_file *)a)->path, ((const struct source_file *)b)->path);
}

static const char *digest_revision(struct arena *a, const struct source_found *f)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	struct digest d;
	char line[64], hex[HASH_HEX_CAP];

	for (size_t i = 0; i < f->n; i++) {
		const struct source_file *file = &f->file[i];
		const char *etag = file->etag != NULL ? file->etag : "";

		hash_add(h, file->path, strlen(file->path) + 1);
		FMT(line, "%" PRIu64, file->size);
		hash_add(h, line, strlen(line) + 1);
		hash_add(h, etag, strlen(etag) + 1);
		if (file->has_id)
			hash_add(h, file->id, sizeof(file->id));
	}
	(void)hash_end(h, d.b);
	digest_hex(&d, hex);
	return arena_cstr(a, hex);
}

int source_no_files(const struct source *s, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "there are no files: check the URL (%s)", s->ops->form);
}

/* Filtered, sorted, without doubles; the revision is the one that was asked for. */
static int finish_listing(struct source *s, struct arena *a, struct source_found *f,
                          const char *resolved, const char *revision, struct source_listing *out,
                          struct err *err)
{
	struct source_listing l = {
		.n = f->n, .bytes = f->bytes, .revision = revision, .about = s->about};

	if (f->seen == 0 && !s->may_be_empty)
		return source_no_files(s, err);
	if (f->n == 0 && f->seen > 0)
		return err_set(err, ERR_SOURCE_EMPTY,
		               "allow_patterns and ignore_patterns leave none of its %zu files",
		               f->seen);
	if (f->n > 0)
		qsort(f->file, f->n, sizeof(*f->file), by_path);
	for (size_t i = 1; i < f->n; i++) {
		if (strcmp(f->file[i - 1].path, f->file[i].path) == 0)
			return err_set(err, ERR_CORRUPT, "\"%s\" was listed twice",
			               f->file[i].path);
	}
	if (l.revision == NULL)
		l.revision = digest_revision(a, f);
	if (resolved != NULL && strcmp(resolved, l.revision) != 0)
		return err_set(err, ERR_CONFLICT,
		               "it has changed since its revision was resolved. Push a new job to "
		               "use its current content");
	l.file = ARENA_ARRAY(a, struct source_file, f->n + 1);
	if (f->n > 0)
		memcpy(l.file, f->file, f->n * sizeof(*f->file));
	*out = l;
	return 0;
}

int source_check(struct source *s, struct err *err)
{
	if (s->ops->check == NULL || s->ops->check(s, err) == 0)
		return 0;
	(void)err_wrap(err, "%s", s->name);
	return fail(err);
}

int source_list(struct source *s, struct arena *a, const struct glob_filter *filter,
                const char *revision, struct source_listing *out, struct err *err)
{
	struct source_found found = {.arena = a, .filter = filter};
	const char *resolved = NULL;
	int r;

	s->about = NULL;
	atomic_store(&s->refusal, SOURCE_NOT_REFUSED);
	r = s->ops->list(s, a, revision, &found, &resolved, err);
	if (r == 0)
		r = finish_listing(s, a, &found, revision, resolved, out, err);
	free(found.file);
	if (r == 0)
		return 0;
	(void)err_wrap(err, "%s", s->name);
	return fail(err);
}

int source_resolve(struct source *s, struct arena *a, struct source_head *out, struct err *err)
{
	if (s->ops->resolve == NULL)
		return err_set(err, ERR_UNSUPPORTED, "%s has no revisions", s->name);
	s->about = NULL;
	atomic_store(&s->refusal, SOURCE_NOT_REFUSED);
	if (s->ops->resolve(s, a, &out->revision, err) == 0) {
		out->about = s->about;
		return 0;
	}
	(void)err_wrap(err, "%s", s->name);
	return fail(err);
}

int source_admits(struct source *s, const char *path, struct err *err)
{
	if (s->ops->admits == NULL)
		return err_set(err, ERR_UNSUPPORTED, "%s has no gates", s->name);
	atomic_store(&s->refusal, SOURCE_NOT_REFUSED);
	if (s->ops->admits(s, path, err) == 0)
		return 0;
	(void)err_wrap(err, "%s", s->name);
	return fail(err);
}

enum source_refusal source_refusal(const struct source *s)
{
	return atomic_load(&s->refusal);
}

int source_refs(struct source *s, struct arena *a, const struct doc **out, struct err *err)
{
	if (s->ops->refs == NULL)
		return err_set(err, ERR_UNSUPPORTED, "%s has no branches", s->name);
	atomic_store(&s->refusal, SOURCE_NOT_REFUSED);
	if (s->ops->refs(s, a, out, err) == 0)
		return 0;
	(void)err_wrap(err, "%s", s->name);
	return fail(err);
}

/* --- reading --------------------------------------------------------------------------------- */

struct counted {
	unsigned magic;
#define COUNTED_MAGIC 0x53434f55U
	const struct http_sink *to;
	uint64_t left;
};

static int count_down(struct counted *c, size_t n, struct err *err)
{
	if (n > c->left)
		return err_set(err, ERR_CORRUPT, "it sent more bytes than were requested");
	c->left -= n;
	return 0;
}

static int counting_put(void *arg, const void *p, size_t n, struct err *err)
{
	struct counted *c = FROM_VOID(struct counted, arg, COUNTED_MAGIC);

	return count_down(c, n, err) < 0 ? -1 : c->to->put(c->to->arg, p, n, err);
}

static int counting_drain(void *arg, int from, size_t n, struct err *err)
{
	struct counted *c = FROM_VOID(struct counted, arg, COUNTED_MAGIC);

	return count_down(c, n, err) < 0 ? -1 : c->to->drain(c->to->arg, from, n, err);
}

int source_read(struct source *s, const struct source_file *f, uint64_t first, uint64_t count,
                const struct http_sink *to, const atomic_bool *cancel, struct err *err)
{
	struct counted c = {COUNTED_MAGIC, to, count};
	struct http_sink counting = {
		.put = counting_put, .drain = to->drain != NULL ? counting_drain : NULL, .arg = &c};
	int r;

	assert(first <= f->size && count <= f->size - first);
	if (count == 0)
		return 0;
	/* Nothing would tell that two ranges are of the same file. */
	if (count < f->size && f->etag == NULL && !f->has_id)
		return err_set(err, ERR_UNSUPPORTED, "%s: %s: neither an ETag nor a digest",
		               s->name, f->path);
	r = s->ops->read(s, f, first, count, &counting, cancel, err);
	assert((r == 0) == (err->code == ERR_NONE)); /* the contract of every driver */
	if (r == 0 && c.left > 0)
		r = err_set(err, ERR_UNAVAILABLE, "it ended %" PRIu64 " bytes early", c.left);
	if (r == 0)
		return 0;
	(void)err_wrap(err, "%s: %s", s->name, f->path);
	return fail(err);
}

bool source_links(const struct source *s)
{
	return s->ops->link != NULL;
}

int source_link(struct source *s, const struct source_file *f, int dirfd, const char *name,
                struct err *err)
{
	assert(source_links(s));
	return s->ops->link(s, f, dirfd, name, err);
}
