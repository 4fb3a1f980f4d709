/* look.c - a counted, bounded window over a file, and the verdict of a parser; see look.h. */
#include "format/look.h"

void look_start(struct look *l, const struct format_source *src, struct format_result *out,
                struct err *err)
{
	const char *slash = strrchr(src->name, '/');

	memset(l, 0, sizeof(*l));
	memset(out, 0, sizeof(*out));
	out->format = "";
	l->src = src;
	l->out = out;
	l->err = err;
	l->name = str_of(slash == NULL ? src->name : slash + 1);
	l->size = src->size;
	for (size_t i = 0; i < LOOK_WINDOWS; i++)
		l->window[i].p = xmalloc(LOOK_WINDOW);
}

int look_end(struct look *l)
{
	for (size_t i = 0; i < LOOK_WINDOWS; i++)
		free(TAKE(l->window[i].p));
	if (l->failed) {
		format_result_done(l->out);
		return -1;
	}
	if (l->over)
		look_unknown(l, "takes too much reading to be checked");
	return 0;
}

bool look_has(const struct look *l, uint64_t at, uint64_t n)
{
	return at <= l->size && n <= l->size - at;
}

/* Does reading at `at` go on where the window is? */
static bool goes_on(const struct look_window *w, uint64_t at)
{
	return w->n > 0 && at >= w->at && at <= w->at + w->n;
}

/* The window to read into: one that goes on there, else the one that was not used for longest. */
static struct look_window *choose(struct look *l, uint64_t at)
{
	struct look_window *oldest = &l->window[0];

	for (size_t i = 0; i < LOOK_WINDOWS; i++) {
		if (goes_on(&l->window[i], at))
			return &l->window[i];
		if (l->window[i].used < oldest->used)
			oldest = &l->window[i];
	}
	return oldest;
}

/* Makes a window begin at `at` and hold n bytes, and more of what probably comes next. */
static struct look_window *fill(struct look *l, uint64_t at, size_t n)
{
	struct look_window *w = choose(l, at);
	uint64_t end = l->src->size;
	size_t want;

	w->step = goes_on(w, at) ? MIN(w->step * 2, LOOK_WINDOW) : LOOK_PROBE;
	want = MAX(n, w->step);
	if (want > end - at)
		want = (size_t)(end - at);
	if (l->out->bytes_read + want > FORMAT_READ_MAX || l->reads >= FORMAT_READS_MAX) {
		l->over = true;
		return NULL;
	}
	w->n = 0;
	if (l->src->read(l->src->arg, at, w->p, want, l->err) < 0) {
		l->failed = true;
		return NULL;
	}
	w->at = at;
	w->n = want;
	l->reads++;
	l->out->bytes_read += want;
	return w;
}

const uint8_t *look_at(struct look *l, uint64_t at, size_t n)
{
	struct look_window *w = NULL;

	assert(look_has(l, at, n) && n <= LOOK_WINDOW);
	at += l->base;
	if (l->failed || l->over)
		return NULL;
	for (size_t i = 0; i < LOOK_WINDOWS && w == NULL; i++)
		if (goes_on(&l->window[i], at) &&
		    n <= l->window[i].n - (size_t)(at - l->window[i].at))
			w = &l->window[i];
	if (w == NULL)
		w = fill(l, at, n);
	if (w == NULL)
		return NULL;
	w->used = ++l->calls;
	return w->p + (at - w->at);
}

bool look_u64(struct look *l, uint64_t at, uint64_t *v)
{
	const uint8_t *p = look_at(l, at, 8);

	if (p == NULL)
		return false;
	*v = le64(p);
	return true;
}

bool look_zeros(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != 0)
			return false;
	return true;
}

struct look_place look_part(struct look *l, uint64_t at, uint64_t n, struct str name)
{
	struct look_place was = {l->base, l->size, l->name};

	assert(look_has(l, at, n));
	l->base += at;
	l->size = n;
	l->name = name;
	return was;
}

void look_back(struct look *l, struct look_place to)
{
	l->base = to.base;
	l->size = to.size;
	l->name = to.name;
}

PRINTF(3, 0)
static void say(struct look *l, enum format_verdict v, const char *fmt, va_list ap)
{
	l->out->verdict = v;
	(void)vsnprintf(l->out->reason, sizeof(l->out->reason), fmt, ap);
}

void look_whole(struct look *l)
{
	l->out->verdict = FORMAT_WHOLE;
	l->out->reason[0] = '\0';
}

void look_torn(struct look *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(l, FORMAT_TORN, fmt, ap);
	va_end(ap);
}

void look_unknown(struct look *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(l, FORMAT_UNKNOWN, fmt, ap);
	va_end(ap);
}

void look_short(struct look *l, uint64_t has, uint64_t of)
{
	static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
	double unit = 1000;
	size_t i = 0;
	char a[32], b[32];

	assert(has < of);
	while (i + 1 < COUNT(units) && (double)of >= unit * 1000) {
		unit *= 1000;
		i++;
	}
	FMT(a, "%.1f", (double)has / unit);
	FMT(b, "%.1f", (double)of / unit);
	if (of < 10000 || strcmp(a, b) == 0)
		look_torn(l, "has %" PRIu64 " of %" PRIu64 " bytes", has, of);
	else
		look_torn(l, "has %s of %s %s", a, b, units[i]);
}

bool look_is(const struct look *l, enum format_verdict v)
{
	return !l->failed && !l->over && l->out->verdict == v;
}

void look_wrap(struct look *l, struct str what)
{
	char was[FORMAT_REASON_MAX];

	memcpy(was, l->out->reason, sizeof(was));
	(void)snprintf(l->out->reason, sizeof(l->out->reason), "%.*s: %.60s", (int)MIN(what.n, 60),
	               what.n == 0 ? "" : what.p, was);
}

struct format_facts *look_facts(struct look *l, enum format_role role)
{
	struct format_facts *f = l->out->facts;

	if (f == NULL) {
		f = l->out->facts = xcalloc(1, sizeof(*f));
		f->own = arena_new();
		f->step = -1;
	}
	f->role = role;
	return f;
}

void format_result_done(struct format_result *r)
{
	if (r->facts != NULL)
		arena_free(r->facts->own);
	free(r->facts);
	memset(r, 0, sizeof(*r));
	r->format = "";
}
