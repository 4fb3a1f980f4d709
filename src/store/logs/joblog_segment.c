/* joblog_segment.c - segments of logs: their names, what they make together, their bytes. */
#include "store/logs/joblog_segment.h"

#define HEAD "stoker-log-segment 1 "
#define HEAD_MAX (SEGMENT_STATE_MAX + sizeof(HEAD) + HASH_HEX_CAP + 2)
#define CHUNK ((size_t)256 << 10)
#define SEGMENTS_MAX ((size_t)1 << 20) /* of one job */
#define SMALL ((uint64_t)256 << 10)    /* always worth merging */

char *segment_prefix(struct arena *a, const char *job_id, const char *file)
{
	return file == NULL ? arena_printf(a, SEGMENT_ROOT "%s/", job_id)
	                    : arena_printf(a, SEGMENT_ROOT "%s/%s/", job_id, file);
}

char *segment_key(struct arena *a, const char *job_id, const struct segment *s)
{
	return arena_printf(
		a, SEGMENT_ROOT "%s/%s/%010" PRIu32 "-%06" PRIu32 "-%020" PRIu64 "-%020" PRIu64,
		job_id, s->file, s->epoch, s->era, s->from, s->to);
}

struct listing {
	unsigned magic;
#define LISTING_MAGIC 0x534c4949U
	struct segment *s;
	size_t n, cap, skip; /* skip: of each key, "logs/<job>/" */
	char last[OBJSTORE_KEY_MAX + 1];
};

/* A name that is none of ours is passed over: somebody else may use the bucket. */
static bool parse(struct str name, struct segment *out)
{
	struct err no = {0};
	struct str file, part[3];
	uint64_t n[4];

	if (!str_cut(&name, '/', &file) ||
	    str_copy(file, out->file, sizeof(out->file), "file", &no) < 0)
		return false;
	for (size_t i = 0; i < COUNT(part); i++)
		if (!str_cut(&name, '-', &part[i]))
			return false;
	if (str_u64(part[0], 0, UINT32_MAX, &n[0], &no) < 0 ||
	    str_u64(part[1], 0, UINT32_MAX, &n[1], &no) < 0 ||
	    str_u64(part[2], 0, INT64_MAX, &n[2], &no) < 0 ||
	    str_u64(name, 0, INT64_MAX, &n[3], &no) < 0 || n[2] > n[3])
		return false;
	out->epoch = (uint32_t)n[0];
	out->era = (uint32_t)n[1];
	out->from = n[2];
	out->to = n[3];
	return true;
}

static void take_key(void *arg, const char *key, const struct objstore_info *info)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	struct segment s = {.bytes = info->size};

	copy_cut(l->last, sizeof(l->last), key);
	if (l->n == SEGMENTS_MAX || !parse(str_of(key + l->skip), &s))
		return;
	if (l->n == l->cap) {
		l->cap = MAX(l->cap * 2, (size_t)64);
		l->s = xrealloc(l->s, l->cap * sizeof(*l->s));
	}
	l->s[l->n++] = s;
}

int segment_list(struct objstore *os, struct arena *a, const char *job_id, const char *file,
                 struct segment **out, size_t *n, struct err *err)
{
	struct listing l = {.magic = LISTING_MAGIC,
	                    .skip = strlen(SEGMENT_ROOT) + strlen(job_id) + 1};
	const char *prefix = segment_prefix(a, job_id, file);
	bool more = true;
	int r = 0;

	while (r == 0 && more)
		r = objstore_list(os, prefix, l.last[0] != '\0' ? l.last : NULL, 1000, take_key, &l,
		                  &more, err);
	if (r == 0) {
		*out = ARENA_ARRAY(a, struct segment, l.n + 1);
		if (l.n > 0)
			memcpy(*out, l.s, l.n * sizeof(*l.s));
		*n = l.n;
	}
	free(l.s);
	return r;
}

size_t segment_run(const struct segment *s, size_t n)
{
	size_t i = 0;

	while (i < n && strcmp(s[i].file, s[0].file) == 0)
		i++;
	return i;
}

static bool same_writer(const struct segment *a, const struct segment *b)
{
	return a->epoch == b->epoch && a->era == b->era;
}

/* The writer whose segments count at `at`, as [*first, *end); *limit: where the next one's begin.
 */
static bool writer_at(const struct segment *s, size_t n, uint64_t at, size_t *first, size_t *end,
                      uint64_t *limit)
{
	bool found = false;

	*limit = UINT64_MAX;
	for (size_t i = 0, next; i < n; i = next) {
		for (next = i + 1; next < n && same_writer(&s[next], &s[i]); next++)
			;
		if (s[i].from <= at) { /* its first one: they are in order */
			*first = i;
			*end = next;
			*limit = UINT64_MAX;
			found = true;
		} else {
			*limit = MIN(*limit, s[i].from);
		}
	}
	return found;
}

size_t segment_pieces(const struct segment *s, size_t n, struct segment_piece *out)
{
	uint64_t at = 0, limit;
	size_t count = 0, first, end;

	while (writer_at(s, n, at, &first, &end, &limit)) {
		size_t best = end;

		for (size_t i = first; i < end; i++)
			if (s[i].from <= at && s[i].to > at &&
			    (best == end || s[i].to > s[best].to))
				best = i;
		if (best == end)
			break;
		assert(count < n); /* each one serves once: a later one reaches further */
		out[count] = (struct segment_piece){best, at, MIN(s[best].to, limit)};
		at = out[count++].to;
	}
	return count;
}

uint64_t segment_reach(const struct segment_piece *p, size_t n, uint64_t from, uint64_t to,
                       bool all)
{
	while (n > 0 && p[n - 1].to > from)
		n--;
	while (n > 0 && p[n - 1].to == from) {
		uint64_t size = p[n - 1].to - p[n - 1].from;

		if (size >= SEGMENT_WHOLE || (!all && size > MAX(2 * (to - from), SMALL)))
			break;
		from = p[--n].from;
	}
	return from;
}

struct body {
	unsigned magic;
#define BODY_MAGIC 0x53424f44U
	struct str head;
	int fd;
	uint64_t at, to;
};

static int read_body(void *arg, void *p, size_t cap, size_t *n, struct err *err)
{
	struct body *b = FROM_VOID(struct body, arg, BODY_MAGIC);

	*n = MIN(cap, b->head.n);
	if (*n > 0) {
		memcpy(p, b->head.p, *n);
		b->head = str_skip(b->head, *n);
		return 0;
	}
	*n = (size_t)MIN((uint64_t)cap, b->to - b->at);
	if (*n > 0 && fs_pread_all(b->fd, p, *n, b->at, err) < 0)
		return -1;
	b->at += *n;
	return 0;
}

static int digest_of(int fd, uint64_t from, uint64_t to, struct digest *out, struct err *err)
{
	AUTO_FREE char *chunk = xmalloc(CHUNK);
	struct hash *h = hash_new(HASH_SHA256);
	struct body b = {.magic = BODY_MAGIC, .fd = fd, .at = from, .to = to};
	size_t n = 1;
	int r = 0;

	while (r == 0 && n > 0) {
		r = read_body(&b, chunk, CHUNK, &n, err);
		if (r == 0)
			hash_add(h, chunk, n);
	}
	(void)hash_end(h, out->b);
	hash_free(h);
	return r;
}

int segment_put(struct objstore *os, const char *key, int fd, uint64_t from, uint64_t to,
                struct str state, struct err *err)
{
	AUTO_BUF struct buf head = BUF_INIT(HEAD_MAX);
	struct body b = {.magic = BODY_MAGIC, .fd = fd, .at = from, .to = to};
	char hex[HASH_HEX_CAP];
	struct digest d;

	if (digest_of(fd, from, to, &d, err) < 0)
		return -1;
	digest_hex(&d, hex);
	buf_printf(&head, HEAD "%s\n", hex);
	buf_str(&head, state);
	buf_putc(&head, '\n');
	if (buf_check(&head, "the state of a log", err) < 0)
		return -1;
	b.head = buf_view(&head);
	return objstore_put_stream(os, key, head.n + (to - from), read_body, &b, NULL, err);
}

struct taking {
	unsigned magic;
#define TAKING_MAGIC 0x5354414bU
	struct buf *head;
	bool in_body;
	struct hash *hash;
	const struct segment_piece *piece;
	int fd;
	uint64_t at; /* place in the file of the next byte */
};

static int take_body(struct taking *t, const char *p, size_t n, struct err *err)
{
	uint64_t first = MAX(t->at, t->piece->from), end = MIN(t->at + n, t->piece->to);

	hash_add(t->hash, p, n);
	if (first < end &&
	    fs_pwrite_all(t->fd, p + (first - t->at), (size_t)(end - first), first, err) < 0)
		return -1;
	t->at += n;
	return 0;
}

static int take_bytes(void *arg, const void *p, size_t n, struct err *err)
{
	struct taking *t = FROM_VOID(struct taking, arg, TAKING_MAGIC);
	size_t before = t->head->n, used;
	const char *end;

	if (t->in_body)
		return take_body(t, p, n, err);
	used = MIN(n, HEAD_MAX - before);
	buf_add(t->head, p, used);
	end = memmem(t->head->p, t->head->n, "\n\n", 2);
	if (end == NULL)
		return used == n ? 0
		                 : err_set(err, ERR_CORRUPT, "it does not begin as a segment does");
	t->head->n = (size_t)(end + 2 - t->head->p);
	t->in_body = true;
	used = t->head->n - before;
	return take_body(t, (const char *)p + used, n - used, err);
}

int segment_get(struct objstore *os, const char *key, const struct segment *s,
                const struct segment_piece *p, int fd, struct buf *state, struct err *err)
{
	AUTO_BUF struct buf head = BUF_INIT(HEAD_MAX);
	struct taking t = {
		.magic = TAKING_MAGIC, .head = &head, .piece = p, .fd = fd, .at = s->from};
	struct digest said, is;
	struct str rest, line;
	int r;

	t.hash = hash_new(HASH_SHA256);
	r = objstore_read(os, key, 0, s->bytes, take_bytes, &t, NULL, err);
	(void)hash_end(t.hash, is.b);
	hash_free(t.hash);
	if (r < 0)
		return -1;
	rest = buf_view(&head);
	if (!t.in_body || t.at != s->to || !str_cut(&rest, '\n', &line) ||
	    !str_starts(line, HEAD) || digest_parse(str_skip(line, strlen(HEAD)), &said, err) < 0 ||
	    !digest_same(&said, &is)) {
		err_clear(err);
		return err_set(err, ERR_CORRUPT, "%s: not the bytes that were stored", key);
	}
	buf_clear(state);
	buf_str(state, str_n(rest.p, rest.n - 1)); /* without the empty line */
	return buf_check(state, "the state of a log", err);
}

static int check_file(struct objstore *os, struct arena *a, const char *job_id,
                      const struct segment *s, size_t n, int fd, struct err *err)
{
	struct segment_piece *p = ARENA_ARRAY(a, struct segment_piece, n);
	size_t n_p = segment_pieces(s, n, p);
	uint64_t end = n_p > 0 ? p[n_p - 1].to : 0;

	for (size_t i = 0; i < n_p; i++) {
		AUTO_BUF struct buf state = BUF_INIT(SEGMENT_STATE_MAX);
		const struct segment *of = &s[p[i].i];

		if (segment_get(os, segment_key(a, job_id, of), of, &p[i], fd, &state, err) < 0)
			return -1;
	}
	return s[n - 1].from <= end
	               ? 0
	               : err_set(err, ERR_CORRUPT, "%s: no segment begins at byte %" PRIu64,
	                         s->file, end);
}

int segment_check(struct objstore *os, const char *job_id, size_t *n, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct segment *s;
	size_t all;

	if (fd < 0)
		return err_errno(err, errno, "/dev/null");
	if (segment_list(os, a, job_id, NULL, &s, &all, err) < 0)
		return -1;
	*n = all;
	for (size_t run; all > 0; s += run, all -= run) {
		run = segment_run(s, all);
		if (check_file(os, a, job_id, s, run, fd, err) < 0)
			return -1;
	}
	return 0;
}
