/*
 * blob_objects_fixture.h - a folder with blobs and object stores, what fills and counts them, and a
 * store that is elsewhere.
 */
#ifndef BLOB_OBJECTS_FIXTURE_H
#define BLOB_OBJECTS_FIXTURE_H

#include "base/clock.h"
#include "store/blobs/blob_objects.h"
#include "store/common/usage.h"
#include "store/objects/objstore_impl.h"
#define UNIT_FOLDER "/tmp/stoker-blob-objects"
#include "unit_folder.h"

#define FILES 9
#define LARGE ((size_t)3 << 20) /* above what is fetched in memory */

static struct blobs *open_blobs(const char *name)
{
	AUTO_FREE char *dir = xasprintf("%s/%s", folder, name);
	struct blobs *b = NULL;
	struct err err = {0};

	assert_ok(blobs_open(&b, dir, &err), &err);
	return b;
}

static struct objstore *open_store(const char *url)
{
	struct objstore *os = NULL;
	struct err err = {0};

	assert_ok(objstore_open(&os, url, &(struct objstore_env){0}, &err), &err);
	return os;
}

/* FILES files in folders, two of them the same, one empty, one large. */
static struct digest make_manifest(struct blobs *b, unsigned seed)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE char *body = xmalloc(LARGE);
	struct manifest m;
	struct digest d;
	struct err err = {0};

	manifest_init(&m, a);
	for (unsigned i = 0; i < FILES; i++) {
		size_t size = i == 0 ? LARGE : i == 1 ? 0 : 1000 + i / 2 * 2;
		char path[64];

		memset(body, (int)(seed * 16 + i / 2), size);
		assert_ok(blobs_put(b, str_n(body, size), &d, &err), &err);
		FMT(path, i % 3 == 0 ? "f%u" : i % 3 == 1 ? "one/f%u" : "one/two/f%u", i);
		assert_ok(manifest_add(&m, str_of(path), size, &d, &err), &err);
	}
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &d, &err), &err);
	return d;
}

struct shown {
	uint64_t done, total, sent;
};

static void on_put(void *arg, uint64_t done, uint64_t total, uint64_t sent)
{
	*(struct shown *)arg = (struct shown){done, total, sent};
}

static int put(struct blobs *b, struct objstore *os, const struct digest *m, struct shown *shown,
               struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(b);
	const struct blob_objects_put job = {
		.from = b, .to = os, .pins = pins, .manifest = m, .progress = on_put, .arg = shown};

	return blob_objects_put(&job, err);
}

/* A store with the manifests of seeds 1 to n; their names in m. */
static UNUSED void fill(struct objstore *os, const char *name, unsigned n, struct digest *m)
{
	AUTO_BLOBS struct blobs *b = open_blobs(name);
	struct shown shown = {0};
	struct err err = {0};

	for (unsigned i = 0; i < n; i++) {
		m[i] = make_manifest(b, i + 1);
		assert_ok(put(b, os, &m[i], &shown, &err), &err);
	}
}

static void count_file(void *arg, unsigned slot UNUSED, const struct usage_entry *e)
{
	*(unsigned *)arg += S_ISREG(e->mode);
}

/* Files below a folder of the test's, each name. */
static UNUSED unsigned count_files(const char *what)
{
	AUTO_FREE char *path = xasprintf("%s/%s", folder, what);
	struct usage_total total;
	struct err err = {0};
	unsigned n = 0;

	assert_ok(usage_walk(path, 1, count_file, &n, NULL, &total, &err), &err);
	return n;
}

/* A store that is elsewhere: it has no files to link or copy, counts what is read, and never ends
 * to give one object. */
struct remote {
	struct objstore base;
	struct objstore *under;
	const char *stuck; /* a key; NULL: none */
	_Atomic uint64_t bytes;
};

static int remote_stat(struct objstore *os, const char *key, struct objstore_info *out,
                       struct err *err)
{
	return objstore_stat(((struct remote *)os)->under, key, out, err);
}

static int remote_read(struct objstore *os, const char *key, const char *etag, uint64_t first,
                       uint64_t count, objstore_sink_fn *sink, void *arg, const atomic_bool *cancel,
                       struct err *err)
{
	struct remote *r = (struct remote *)os;

	while (r->stuck != NULL && strcmp(key, r->stuck) == 0) {
		if (cancel != NULL && atomic_load(cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		clock_sleep_ms(5);
	}
	atomic_fetch_add(&r->bytes, str_starts(str_of(key), "blobs/") ? count : 0);
	return etag != NULL ? objstore_read_same(r->under, key, etag, first, count, sink, arg,
	                                         cancel, err)
	                    : objstore_read(r->under, key, first, count, sink, arg, cancel, err);
}

static int remote_list(struct objstore *os, const char *prefix, const char *after, size_t max,
                       objstore_each_fn *each, void *arg, bool *more, struct err *err)
{
	return objstore_list(((struct remote *)os)->under, prefix, after, max, each, arg, more,
	                     err);
}

static int remote_put_file(struct objstore *os, const char *key, const struct objstore_file *f,
                           struct digest *sha256, struct err *err)
{
	return objstore_put_file(((struct remote *)os)->under, key, f->fd, f->size, f->expect,
	                         sha256, f->progress, f->arg, f->cancel, err);
}

/* As a request that travels. */
static int remote_del(struct objstore *os, const char *key, struct err *err)
{
	clock_sleep_ms(3);
	return objstore_del(((struct remote *)os)->under, key, err);
}

static const struct objstore_ops remote_ops = {
	.scheme = "remote",
	.stat = remote_stat,
	.read = remote_read,
	.list = remote_list,
	.put_file = remote_put_file,
	.del = remote_del,
};

static UNUSED struct remote remote_of(struct objstore *under)
{
	static char url[] = "remote:";

	return (struct remote){.base = {.ops = &remote_ops, .url = url}, .under = under};
}

#endif
