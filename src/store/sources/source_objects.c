/*
 * source_objects.c - files that lie in an object store of ours, as a source: the caller says which,
 * with their digests, and what revision that is. Where the store is a folder beside ours, they are
 * linked: one machine keeps one copy.
 */
#include "store/sources/source_impl.h"

#include "base/map.h"

struct objects {
	struct source base;
	struct objstore *store;
	const struct source_object *object; /* in the arena */
	size_t n;
	const char *revision;
	struct map *by_path;
};

int source_open_objects(struct source **out, const char *url, const struct source_objects *from,
                        const struct source_options *o, struct err *err)
{
	struct objects *s = source_new(o, sizeof(*s));
	struct arena *a = s->base.arena;
	struct source_object *copy = ARENA_ARRAY(a, struct source_object, from->n + 1);

	s->base.ops = &source_objects_ops;
	s->base.name = xstrdup(url);
	s->store = from->store;
	s->n = from->n;
	s->object = copy;
	s->revision = arena_cstr(a, from->revision);
	s->by_path = map_new();
	for (size_t i = 0; i < from->n; i++) {
		copy[i] = from->object[i];
		copy[i].path = arena_cstr(a, from->object[i].path);
		copy[i].key = arena_cstr(a, from->object[i].key);
		if (map_set(s->by_path, str_of(copy[i].path), &copy[i]) != NULL) {
			source_close(&s->base);
			return err_set(err, ERR_CORRUPT, "%s: two files are called \"%s\"", url,
			               from->object[i].path);
		}
	}
	*out = &s->base;
	return 0;
}

static void objects_done(struct source *s)
{
	map_free(((struct objects *)s)->by_path);
}

static int objects_list(struct source *s, struct arena *a, const char *resolved UNUSED,
                        struct source_found *to, const char **revision, struct err *err)
{
	const struct objects *o = (const struct objects *)s;

	for (size_t i = 0; i < o->n; i++) {
		if (source_found(to, str_of(o->object[i].path), o->object[i].size, HASH_SHA256,
		                 o->object[i].sha256.b, (struct str){0}, err) < 0)
			return -1;
	}
	*revision = arena_cstr(a, o->revision);
	return 0;
}

/* After a failure: is it that the file is not there any more? */
static int gone(struct err *err)
{
	if (err->code != ERR_NOT_FOUND && err->code != ERR_RANGE)
		return -1;
	err_clear(err);
	return err_set(err, ERR_CONFLICT, "it was deleted or replaced while it was being fetched");
}

static int objects_read(struct source *s, const struct source_file *f, uint64_t first,
                        uint64_t count, const struct http_sink *to, const atomic_bool *cancel,
                        struct err *err)
{
	const struct objects *o = (const struct objects *)s;
	const struct source_object *x = map_get(o->by_path, str_of(f->path));

	assert(x != NULL);
	if (objstore_read(o->store, x->key, first, count, to->put, to->arg, cancel, err) == 0)
		return 0;
	return gone(err);
}

static int objects_link(struct source *s, const struct source_file *f, int dirfd, const char *name,
                        struct err *err)
{
	const struct objects *o = (const struct objects *)s;
	const struct source_object *x = map_get(o->by_path, str_of(f->path));

	assert(x != NULL);
	return objstore_link(o->store, x->key, dirfd, name, err) == 0 ? 0 : gone(err);
}

const struct source_ops source_objects_ops = {
	.scheme = "bt",
	.form = "bt://project[@job][/checkpoint]",
	.list = objects_list,
	.read = objects_read,
	.link = objects_link,
	.done = objects_done,
};
