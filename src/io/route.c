/*
 * route.c - from a request target to a route: targets as sent, patterns, methods.
 *
 * Routes are tried in the order of the faces and of their tables, and the first that fits is taken:
 * a table lists "/v1/jobs/search" before "/v1/jobs/{job}". A pattern's segment is a word or {name};
 * {name...} at the end takes all that follows, slashes included, and at least one character.
 * Repeated slashes in the path count as one, and one at the end of it is ignored.
 */
#include "io/httpd_impl.h"

static bool is_dots(struct str segment)
{
	return str_eq(segment, ".") || str_eq(segment, "..");
}

/* "." and ".." are refused however they are written: `%2e%2e`, `a%2f..%2fb`. */
static int check_segments(struct request *rq, struct err *err)
{
	struct str rest, segment;

	if (url_decode(rq->arena, rq->path, &rest, err) < 0)
		return err_wrap(err, "path");
	while (str_cut(&rest, '/', &segment)) {
		if (is_dots(segment))
			return err_set(err, ERR_INVALID, "path: . and .. segments are not allowed");
	}
	return 0;
}

static struct str without_origin(struct str sent)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < COUNT(schemes); i++) {
		size_t n = strlen(schemes[i]);

		if (sent.n < n || !str_ieq(str_n(sent.p, n), schemes[i]))
			continue;
		sent = str_skip(sent, n);
		while (sent.n > 0 && *sent.p != '/' && *sent.p != '?')
			sent = str_skip(sent, 1);
		return sent;
	}
	return sent;
}

int route_target(struct request *rq, struct str sent, struct err *err)
{
	struct str target = without_origin(sent);

	/* "http://host" and "http://host?query" have the path "/" */
	if (target.n != sent.n && (target.n == 0 || *target.p == '?'))
		target = str_of(arena_printf(rq->arena, "/%.*s", STR_ARG(target)));
	else
		target = arena_str(rq->arena, target);
	rq->by_proxy = target.n != sent.n;
	rq->target = target;
	rq->query = target;
	(void)str_cut(&rq->query, '?', &rq->path);
	if (rq->path.n == 0 || *rq->path.p != '/')
		return err_set(err, ERR_INVALID, "the request target is not a path");
	return check_segments(rq, err);
}

bool route_method(const char *text, enum http_method *out)
{
	for (enum http_method m = 0; m < HTTP_METHODS; m++) {
		if (strcmp(text, http_method_name[m]) == 0) {
			*out = m;
			return true;
		}
	}
	return false;
}

static struct str cut_segment(struct str *path)
{
	struct str segment;
	const char *end;

	while (path->n > 0 && *path->p == '/')
		*path = str_skip(*path, 1);
	end = path->n > 0 ? memchr(path->p, '/', path->n) : NULL;
	segment = str_n(path->p, end != NULL ? (size_t)(end - path->p) : path->n);
	*path = str_skip(*path, segment.n);
	return segment;
}

/* Raw captures into arg; false when the path is not of this pattern. */
static bool match(const char *pattern, struct str path, struct str *arg, size_t *n_arg)
{
	struct str left = str_of(pattern);

	for (*n_arg = 0;;) {
		struct str want = cut_segment(&left), have;

		if (str_ends(want, "...}")) {
			while (path.n > 0 && *path.p == '/')
				path = str_skip(path, 1);
			assert(*n_arg < ROUTE_ARGS_MAX && left.n == 0);
			arg[(*n_arg)++] = path;
			return path.n > 0;
		}
		have = cut_segment(&path);
		if (want.n == 0 || have.n == 0)
			return want.n == have.n;
		if (*want.p == '{') {
			assert(*n_arg < ROUTE_ARGS_MAX);
			arg[(*n_arg)++] = have;
		} else if (!str_same(want, have)) {
			return false;
		}
	}
}

static int take(struct request *rq, const struct face *f, const struct route *r,
                const struct str *arg, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (url_decode(rq->arena, arg[i], &rq->arg[i], err) < 0)
			return -1;
	}
	rq->n_arg = n;
	rq->route = r;
	rq->face = f;
	return 0;
}

static void note_allowed(struct buf *allow, enum http_method m)
{
	buf_printf(allow, "%s%s", allow->n > 0 ? ", " : "", http_method_name[m]);
	if (m == HTTP_GET)
		buf_puts(allow, ", HEAD");
}

int route_find(struct request *rq, const char *method, const struct face *const *faces, size_t n,
               struct buf *allow, struct err *err)
{
	struct str arg[ROUTE_ARGS_MAX];
	bool known = route_method(method, &rq->method), seen[HTTP_METHODS] = {false};
	enum http_method want = rq->method == HTTP_HEAD ? HTTP_GET : rq->method;
	size_t n_arg;

	for (size_t i = 0; i < n; i++) {
		const struct face *f = faces[i];

		for (size_t j = 0; j < f->n_routes; j++) {
			const struct route *r = &f->routes[j];

			if (!match(r->pattern, rq->path, arg, &n_arg))
				continue;
			if (known && (r->method == want || r->method == rq->method))
				return take(rq, f, r, arg, n_arg, err);
			if (rq->face == NULL)
				rq->face = f; /* so that the refusal is in this protocol's words */
			if (!seen[r->method])
				note_allowed(allow, r->method);
			seen[r->method] = true;
		}
	}
	if (allow->n > 0)
		return err_set(err, ERR_INVALID, "%s is not allowed here: %s", method,
		               buf_cstr(allow));
	return err_set(err, ERR_NOT_FOUND, "no such route: %.*s", (int)MIN(rq->path.n, 500),
	               rq->path.p);
}

void httpd_each_route(const struct face *const *faces, size_t n,
                      void (*fn)(const struct face *f, const struct route *r, void *arg), void *arg)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < faces[i]->n_routes; j++)
			fn(faces[i], &faces[i]->routes[j], arg);
	}
}
