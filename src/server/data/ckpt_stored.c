/*
 * ckpt_stored.c - does the store hold what the manifest of a checkpoint promises? A store that is
 * elsewhere is asked for its list first, a thousand names a round trip, and then for each file that
 * the list did not show as promised: the runner waits for this, and not for as many round trips as
 * there are files.
 */
#include "base/map.h"
#include "server/data/ckpts.h"
#include "server/start/objects.h"
#include "store/common/crew.h"

#define LIST_FROM 16 /* files: for fewer the list saves nothing */
#define LIST_PAGE 1000

struct looking {
	unsigned magic;
#define LOOKING_MAGIC 0x564c4f4fU
	struct app *app;
	const char **key;                  /* of each file */
	const struct manifest_file **file; /* that is still to be looked at, first `n` of `key` */
	size_t n;
};

struct listed {
	unsigned magic;
#define LISTED_MAGIC 0x564c4953U
	struct map *wanted; /* key -> its file; without those that were seen as promised */
	char last[OBJSTORE_KEY_MAX + 1];
};

static int look_at(void *arg, size_t i, const atomic_bool *stop UNUSED, struct err *err)
{
	const struct looking *l = FROM_VOID(struct looking, arg, LOOKING_MAGIC);
	struct objstore_info info = {0};

	if (objstore_stat(l->app->objects, l->key[i], &info, err) < 0)
		return -1;
	return info.size == l->file[i]->size
	               ? 0
	               : err_set(err, ERR_NOT_FOUND, "%s: of another size", l->file[i]->path);
}

static void see(void *arg, const char *key, const struct objstore_info *info)
{
	struct listed *l = FROM_VOID(struct listed, arg, LISTED_MAGIC);
	const struct manifest_file *f = map_get(l->wanted, str_of(key));

	if (f != NULL && f->size == info->size)
		(void)map_del(l->wanted, str_of(key));
	FMT(l->last, "%s", key);
}

/* Where both are: "a/b/" of "a/b/c" and "a/b/d/e". */
static const char *folder_of_both(struct arena *a, const char *one, const char *other)
{
	size_t n = 0, end = 0;

	for (; one[n] != '\0' && one[n] == other[n]; n++)
		end = one[n] == '/' ? n + 1 : end;
	return arena_printf(a, "%.*s", (int)end, one);
}

/* No more pages than twice what the files fill: what else lies there is not of this checkpoint. A
 * list that cannot be had leaves all to be looked at. */
static void list(struct looking *l, struct arena *a)
{
	AUTO_MAP struct map *wanted = map_new();
	struct listed *seen = ARENA_NEW(a, struct listed);
	const char *folder = folder_of_both(a, l->key[0], l->key[l->n - 1]);
	size_t pages = 2 * (l->n / LIST_PAGE + 1), left = 0;
	struct err err = {0};

	seen->magic = LISTED_MAGIC;
	seen->wanted = wanted;
	for (size_t i = 0; i < l->n; i++)
		(void)map_set(wanted, str_of(l->key[i]), (void *)(uintptr_t)l->file[i]);
	for (bool more = true; more && pages > 0 && map_count(wanted) > 0; pages--) {
		if (objstore_list(l->app->objects, folder,
		                  seen->last[0] != '\0' ? seen->last : NULL, LIST_PAGE, see, seen,
		                  &more, &err) < 0)
			break;
	}
	err_clear(&err);
	for (size_t i = 0; i < l->n; i++) {
		if (map_get(wanted, str_of(l->key[i])) == NULL)
			continue;
		l->key[left] = l->key[i];
		l->file[left++] = l->file[i];
	}
	l->n = left;
}

static int look_at_all(struct app *app, struct arena *a, const char *prefix, const struct ckpt *c,
                       struct err *err)
{
	struct looking l = {.magic = LOOKING_MAGIC, .app = app, .n = c->files.n};
	bool far = objects_elsewhere(app);
	struct crew_job all = {.threads = far ? CKPTS_AT_ONCE : 1,
	                       .run = look_at,
	                       .arg = &l,
	                       .cancel = &app->stopping};

	l.key = ARENA_ARRAY(a, const char *, l.n + 1);
	l.file = ARENA_ARRAY(a, const struct manifest_file *, l.n + 1);
	for (size_t i = 0; i < l.n; i++) {
		l.key[i] = ckpt_file_key(a, prefix, c, i);
		l.file[i] = &c->files.file[i];
	}
	if (far && l.n >= LIST_FROM)
		list(&l, a);
	all.n = l.n;
	return crew_run(&all, err);
}

/* A part that was deleted here is no longer what its runner believes: it sends again only what
 * changed. */
int ckpts_is_stored(struct app *app, struct arena *a, const struct model_checkpoint *c,
                    bool *stored, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(a, c->project_id, c->job_id), *key;
	struct ckpt parsed = {0};

	key = c->manifest_key != NULL ? c->manifest_key
	                              : ckpt_manifest_key(a, prefix, c->rank, c->name);
	*stored = objstore_get(app->objects, key, &body, err) == 0;
	if (*stored && ckpt_parse(&parsed, a, buf_view(&body), err) < 0)
		return -1;
	*stored = *stored && look_at_all(app, a, prefix, &parsed, err) == 0;
	if (err->code != ERR_NONE && err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}
