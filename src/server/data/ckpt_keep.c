/* ckpt_keep.c - parts of complete checkpoints of several nodes, kept; see ckpt_keep.h. */
#include "server/data/ckpt_keep.h"

#include "server/data/ckpts.h"
#include "server/start/objects.h"
#include "store/common/crew.h"

char *ckpt_keep_key(struct arena *a, const char *prefix, const struct ckpt *c)
{
	struct digest set = ckpt_digest(c);

	return ckpt_object_key(a, prefix, c->rank, ckpt_kept_path(a, c->name, &set, NULL));
}

/* The node's manifest after its files were copied: no object changes that it names, so the copies
 * are what it says if it is still the same. */
static int is_same(struct app *app, struct arena *a, const char *prefix, const struct ckpt *c,
                   struct str manifest, bool *same, struct err *err)
{
	AUTO_BUF struct buf now = BUF_INIT(APP_JSON_MAX);

	*same = objstore_get(app->objects, ckpt_manifest_key(a, prefix, c->rank, c->name), &now,
	                     err) == 0;
	if (!*same && err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	*same = *same && now.n == manifest.n && memcmp(now.p, manifest.p, now.n) == 0;
	return 0;
}

struct copying {
	unsigned magic;
#define COPYING_MAGIC 0x56434f50U
	struct app *app;
	const struct objstore_pair *pair;
};

static int copy_one(void *arg, size_t i, const atomic_bool *stop UNUSED, struct err *err)
{
	const struct copying *c = FROM_VOID(struct copying, arg, COPYING_MAGIC);

	return objstore_copy(c->app->objects, c->pair[i].from, c->pair[i].to, err);
}

/* A folder copies many for less than one by one; a store that is elsewhere takes its round trips
 * for each, so it gets several at once. */
static int copy_all(struct app *app, const struct objstore_pair *pair, size_t n, struct err *err)
{
	struct copying c = {COPYING_MAGIC, app, pair};
	const struct crew_job all = {.n = n,
	                             .threads = CKPTS_AT_ONCE,
	                             .run = copy_one,
	                             .arg = &c,
	                             .cancel = &app->stopping};

	return objects_elsewhere(app) ? crew_run(&all, err)
	                              : objstore_copy_all(app->objects, pair, n, err);
}

/* All are durable before the manifest that names them is stored. */
static int copy_files(struct app *app, struct arena *a, const char *prefix, const struct ckpt *c,
                      const struct ckpt *kept, bool *gone, struct err *err)
{
	struct objstore_pair *pair = ARENA_ARRAY(a, struct objstore_pair, c->files.n + 1);

	for (size_t i = 0; i < c->files.n; i++)
		pair[i] = (struct objstore_pair){ckpt_file_key(a, prefix, c, i),
		                                 ckpt_file_key(a, prefix, kept, i)};
	if (copy_all(app, pair, c->files.n, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	*gone = true;
	return 0;
}

static int put_manifest(struct app *app, struct arena *a, const char *prefix,
                        const struct ckpt *kept, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);

	ckpt_write(kept, &body);
	if (buf_check(&body, "its list of files", err) < 0)
		return -1;
	return objstore_put(app->objects, ckpt_keep_key(a, prefix, kept), buf_view(&body), err);
}

int ckpt_keep(struct app *app, struct arena *a, const char *prefix, const struct ckpt *c,
              struct str manifest, bool have, enum ckpt_keep *out, struct err *err)
{
	struct digest set = ckpt_digest(c);
	struct ckpt kept = *c;
	bool gone = false, same = true;

	kept.about = ARENA_ARRAY(a, struct ckpt_file, c->files.n + 1);
	for (size_t i = 0; i < c->files.n; i++) {
		kept.about[i] = c->about[i];
		kept.about[i].at = ckpt_kept_path(a, c->name, &set, c->files.file[i].path);
	}
	if (!have && (copy_files(app, a, prefix, c, &kept, &gone, err) < 0 ||
	              is_same(app, a, prefix, c, manifest, &same, err) < 0))
		return -1;
	*out = !same ? KEEP_MOVED : gone ? KEEP_GONE : KEEP_DONE;
	return *out == KEEP_DONE ? put_manifest(app, a, prefix, &kept, err) : 0;
}

int ckpt_keep_drop(struct app *app, struct arena *a, const char *prefix, uint32_t rank,
                   const char *name, const struct digest *but, struct err *err)
{
	const char *folder = ckpt_object_key(a, prefix, rank, ckpt_kept_folder(a, name));
	const char *stays = NULL;
	char hex[HASH_HEX_CAP];

	if (but != NULL) {
		digest_hex(but, hex);
		stays = arena_printf(a, "%s%s/", folder, hex);
	}
	return objstore_del_below(app->objects, folder, stays, NULL, err);
}
