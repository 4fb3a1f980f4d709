/*
 * maintenance_gc.c - collecting garbage: one table of what is garbage, for `stoker cache gc`, which
 * takes all of it and names each thing, and for the janitor, which takes most of it in its own time
 * and counts. Looking and removing go the same way, so that what is shown is what goes.
 */
#include "base/units.h"
#include "server/api/ctx.h"
#include "server/maintenance/maintenance.h"
#include "server/data/mirror_room.h"
#include "server/data/weights.h"
#include "server/start/objects.h"

#include <dirent.h>

#define HOUR_S 3600LL
#define DAY_S (24 * HOUR_S)
#define PARTS_S DAY_S       /* an upload in parts that may still go on is left alone by all */
#define TRASH_PASSES_MAX 50 /* of a thousand rows each */
#define KEYS_A_PAGE 1000
#define WORDS_MAX 600
#define OBJECT "object" /* kind of trash: the key of one */

struct gc {
	unsigned magic;
#define GC_MAGIC 0x5647435fU
	struct app *app;
	struct maintenance_task *t; /* NULL: the janitor */
	bool dry_run;
	bool quiet;         /* what is removed was told of before, as something else */
	int64_t age_s;      /* of what may go, but for what its rows alone decide about */
	uint64_t collected; /* bytes of blobs that nothing names */
	bool in_objects;    /* what is found is in the object store */
	uint64_t found, bytes;
};

static bool is_over(const struct gc *g)
{
	return g->t != NULL ? maintenance_is_over(g->t) : atomic_load(&g->app->stopping);
}

static int go_on(const struct gc *g, struct err *err)
{
	return is_over(g) ? err_set(err, ERR_CANCELED, "stopped") : 0;
}

static void found(struct gc *g, const struct maintenance_item *x)
{
	g->found++;
	g->bytes += x->bytes;
	if (g->t != NULL && !g->quiet)
		maintenance_found(g->t, x);
}

/* ---- what deleted rows left ---------------------------------------------------------------- */

struct sum {
	unsigned magic;
#define SUM_MAGIC 0x5653554dU
	struct arena *a;
	const char *last;
	uint64_t bytes;
};

static void add_object(void *arg, const char *key, const struct objstore_info *info)
{
	struct sum *s = FROM_VOID(struct sum, arg, SUM_MAGIC);

	s->bytes += info->size;
	s->last = arena_cstr(s->a, key);
}

static uint64_t bytes_of_objects(struct gc *g, struct arena *a, const char *folder UNUSED,
                                 const char *prefix)
{
	struct sum s = {.magic = SUM_MAGIC, .a = a};
	struct err ignored = {0};
	bool more = true;

	while (more && !is_over(g))
		if (objstore_list(g->app->objects, prefix, s.last, KEYS_A_PAGE, add_object, &s,
		                  &more, &ignored) < 0)
			break; /* a size is a convenience */
	return s.bytes;
}

static int remove_objects(struct gc *g, struct arena *a UNUSED, const char *folder UNUSED,
                          const char *prefix, struct err *err)
{
	return objstore_del_below(g->app->objects, prefix, NULL, &g->app->stopping, err);
}

static uint64_t bytes_of_object(struct gc *g, struct arena *a UNUSED, const char *folder UNUSED,
                                const char *key)
{
	struct objstore_info info = {0};
	struct err ignored = {0};

	return objstore_stat(g->app->objects, key, &info, &ignored) == 0 ? info.size : 0;
}

static uint64_t bytes_below(struct gc *g, struct arena *a, const char *folder, const char *what)
{
	const char *path = app_path(g->app, a, arena_printf(a, "%s/%s", folder, what));
	struct usage_total total = {0};
	struct err ignored = {0};
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return (uint64_t)st.st_size;
	return usage_walk(path, 1, NULL, NULL, NULL, &total, &ignored) == 0 ? total.bytes : 0;
}

static int remove_below(struct gc *g, struct arena *a, const char *folder, const char *what,
                        struct err *err)
{
	return fs_remove_tree(AT_FDCWD, app_path(g->app, a, arena_printf(a, "%s/%s", folder, what)),
	                      err);
}

static int remove_log(struct gc *g, struct arena *a UNUSED, const char *folder UNUSED,
                      const char *what, struct err *err)
{
	return joblogs_delete(g->app->logs, what, err);
}

static const struct deleted {
	const char *trash;  /* meta_trash.kind */
	const char *kind;   /* for people */
	const char *folder; /* of the data folder; NULL: it is in the object store */
	uint64_t (*bytes)(struct gc *g, struct arena *a, const char *folder, const char *what);
	int (*remove)(struct gc *g, struct arena *a, const char *folder, const char *what,
	              struct err *err);
} deleted[] = {
	{"objects", "deleted objects", NULL, bytes_of_objects, remove_objects},
	{OBJECT, "deleted object", NULL, bytes_of_object, NULL}, /* empty_objects */
	{"log", "deleted log", "logs", bytes_below, remove_log},
	{"cache", "deleted cache", "cache", bytes_below, remove_below},
	{"summary", "deleted summary", "cache-summaries", bytes_below, remove_below},
};

static const struct deleted *deleted_of(const struct meta_trash *t)
{
	for (size_t i = 0; i < COUNT(deleted); i++)
		if (strcmp(deleted[i].trash, t->kind) == 0)
			return &deleted[i];
	return NULL; /* of another version of the server: that one knows how */
}

static struct maintenance_item item_of(struct gc *g, struct arena *a, const struct deleted *d,
                                       const struct meta_trash *t)
{
	struct maintenance_item x = {.kind = d->kind, .name = t->what};

	if (g->t != NULL && !g->quiet) /* who only counts does not pay for sizes */
		x.bytes = d->bytes(g, a, d->folder, t->what);
	return x;
}

/* It was removed, or would be; or it was not (r < 0): then it stays in the trash. */
static void settle(struct gc *g, const struct meta_trash *t, const struct maintenance_item *x,
                   int r, struct err *err)
{
	if (r < 0 || (!g->dry_run && meta_trash_done(g->app->meta, t->id, err) < 0)) {
		if (err->code != ERR_CANCELED) /* the next server goes on with it */
			log_warn("trash: %s %s: %s", t->kind, t->what, err->msg);
	} else {
		found(g, x);
	}
}

/* A thing that cannot be removed holds up no other. */
static void empty_one(struct gc *g, struct arena *a, const struct meta_trash *t)
{
	const struct deleted *d = deleted_of(t);
	struct maintenance_item x;
	struct err err = {0};
	int r = 0;

	if (d == NULL)
		return;
	x = item_of(g, a, d, t);
	if (!g->dry_run)
		r = d->remove(g, a, d->folder, t->what, &err);
	settle(g, t, &x, r, &err);
}

static bool is_object(const struct meta_trash *t)
{
	return strcmp(t->kind, OBJECT) == 0;
}

/* The same of objects in a row, which go together. */
static void empty_objects(struct gc *g, struct arena *a, const struct meta_trash *t, size_t n)
{
	struct maintenance_item *x = ARENA_ARRAY(a, struct maintenance_item, n);
	const char **key = ARENA_ARRAY(a, const char *, n);

	for (size_t i = 0; i < n; i++) {
		x[i] = item_of(g, a, deleted_of(&t[i]), &t[i]);
		key[i] = t[i].what;
	}
	for (size_t at = 0, end; at < n; at = end) {
		struct err failed = {0};
		size_t gone = 0;

		end = n;
		if (objstore_del_all(g->app->objects, key + at, n - at, &gone, &failed) < 0)
			end = at + gone + 1;
		for (size_t i = at; i < end; i++) {
			struct err err = {0};
			bool is_last = failed.code != ERR_NONE && i == end - 1;

			settle(g, &t[i], &x[i], is_last ? -1 : 0, is_last ? &failed : &err);
		}
		if (err_is_away(&failed))
			return;
	}
}

/* Rows come a thousand at a time; when none of them could be removed it ends. */
static int empty_trash(struct gc *g, struct err *err)
{
	uint64_t before = g->found;

	for (int pass = 0; pass < TRASH_PASSES_MAX; pass++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct meta_trash *t = NULL;
		size_t n = 0;

		if (meta_trash(g->app->meta, a, &t, &n, err) < 0)
			return -1;
		for (size_t i = 0, end; i < n; i = end) {
			if (go_on(g, err) < 0)
				return -1;
			for (end = i; !g->dry_run && end < n && is_object(&t[end]); end++)
				;
			if (end > i)
				empty_objects(g, a, &t[i], end - i);
			else
				empty_one(g, a, &t[end++]);
		}
		if (g->dry_run || g->found == before)
			return 0;
		before = g->found;
	}
	return 0;
}

static int take_trash(struct gc *g, struct err *err)
{
	static struct lock one = LOCK_INIT(LOCK_GC_TRASH); /* who removes is alone */
	int r;

	if (g->dry_run)
		return empty_trash(g, err);
	lock_take(&one);
	r = empty_trash(g, err);
	lock_give(&one);
	return r;
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Weights are named by rows. An environment is named by nobody: its age decides. */
static int tree_used(struct gc *g, const struct node_tree *t, const char *hex, bool *used,
                     struct err *err)
{
	*used = t->held;
	if (t->held)
		return 0;
	if (!t->built)
		return meta_manifest_used(g->app->meta, hex, used, err);
	*used = t->used_ms > clock_wall_ms() - g->age_s * 1000;
	return 0;
}

static int drop_tree(void *arg, const struct node_tree *t, struct err *err)
{
	struct gc *g = FROM_VOID(struct gc, arg, GC_MAGIC);
	char hex[HASH_HEX_CAP];
	bool used = true;

	digest_hex(&t->manifest, hex);
	if (go_on(g, err) < 0 || tree_used(g, t, hex, &used, err) < 0)
		return -1;
	if (used)
		return 0;
	if (!g->dry_run && node_cache_drop(g->app->node, &t->manifest, err) < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err); /* asked for just now */
		return 0;
	}
	found(g, &(struct maintenance_item){
			 .kind = t->built ? "Python environment" : "node copy",
			 .name = hex,
			 .words = t->built ? "not used recently"
	                                   : "no mirror or job refers to these weights",
			 .bytes = t->alone,
			 .used_ms = t->used_ms,
		 });
	return 0;
}

static int drop_trees(struct gc *g, struct err *err)
{
	const struct tree_from from = weights_from(g->app);

	return node_cache_each(g->app->node, &from, drop_tree, g, err);
}

static void found_blob(void *arg, const struct blobs_item *x)
{
	static const struct {
		const char *kind, *words;
	} words[] = {
		[BLOBS_MANIFEST] = {"weights", "no mirror or job refers to them"},
		[BLOBS_BLOB] = {"weights blob", "no weights contain it"},
		[BLOBS_PARTIAL] = {"partial fetch", "never resumed"},
		[BLOBS_DAMAGED] = {"damaged blob", "quarantined by verify"},
	};
	struct gc *g = FROM_VOID(struct gc, arg, GC_MAGIC);
	char more[WORDS_MAX];

	if (x->largest != NULL)
		FMT(more, "with %.*s; %s", WORDS_MAX / 2, x->largest, words[x->kind].words);
	else
		FMT(more, "%s", words[x->kind].words);
	if (g->in_objects)
		(void)snprintf(more + strlen(more), sizeof(more) - strlen(more),
		               "; in the object store");
	found(g, &(struct maintenance_item){
			 .kind = words[x->kind].kind,
			 .name = x->name,
			 .words = more,
			 .bytes = x->bytes,
			 .used_ms = x->ms,
		 });
}

static int collect_weights(struct gc *g, struct err *err)
{
	struct blobs_way way = {g->dry_run, found_blob, g};
	/* What is used is named by a row, or pinned by a fetch. The janitor leaves the others some
	 * time all the same: they may be asked for again. */
	const struct mirror_ages age = {g->t != NULL ? 0 : HOUR_S, g->age_s};
	struct blobs_collected out;
	int r;

	if (mirror_collect(g->app, NULL, &age, &way, &out, err) < 0)
		return -1;
	g->collected = out.bytes;
	if (!g->dry_run && out.files > 0)
		mirror_room_changed(g->app);
	g->in_objects = true;
	r = mirror_collect_objects(g->app, NULL, &age, &way, &out, err);
	g->in_objects = false;
	return r;
}

static void found_evicted(void *arg, const struct blobs_item *x)
{
	struct gc *g = FROM_VOID(struct gc, arg, GC_MAGIC);
	char words[WORDS_MAX];

	FMT(words, "with %.*s; least recently used, and the mirror is over its limit",
	    WORDS_MAX / 2, x->largest != NULL ? x->largest : "no files");
	found(g, &(struct maintenance_item){
			 .kind = "weights over the limit",
			 .name = x->name,
			 .words = words,
			 .bytes = x->bytes,
			 .used_ms = x->ms,
		 });
}

static int trim_weights(struct gc *g, struct err *err)
{
	struct blobs_way way = {g->dry_run, found_evicted, g};
	struct blobs_collected out;

	if (mirror_room_trim(g->app, g->dry_run ? g->collected : 0, &way, &out, err) < 0)
		return -1;
	if (!g->dry_run && out.files > 0)
		mirror_room_changed(g->app);
	return 0;
}

/* ---- uploads ------------------------------------------------------------------------------- */

/* Their keys go by the trash, so that none is lost. */
static int drop_uploads(struct gc *g, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	/* what clients send to a store themselves may still be on its way, and nobody is asked */
	int64_t age_s = objects_elsewhere(g->app) ? MAX(g->age_s, PARTS_S) : g->age_s;
	int64_t before_ms = clock_wall_ms() - age_s * 1000;
	struct model_upload *u = NULL;
	struct gc trash = *g;
	uint64_t swept = 0;
	size_t n = 0;

	if (meta_uploads_unused(g->app->meta, a, before_ms, &u, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		found(g, &(struct maintenance_item){
				 .kind = "upload",
				 .name = u[i].key,
				 .words = "no job refers to it",
				 .bytes = bytes_of_object(g, a, NULL, u[i].key),
				 .used_ms = u[i].created_ms,
			 });
	if (g->dry_run || n == 0)
		return 0;
	if (meta_uploads_sweep(g->app->meta, before_ms, &swept, err) < 0)
		return -1;
	app_crash_at("gc:uploads");
	trash.quiet = true;
	return take_trash(&trash, err);
}

static int drop_parts(struct gc *g, struct err *err)
{
	struct objstore_swept s;
	char name[60];

	if (objstore_sweep(g->app->objects, MAX(g->age_s, PARTS_S), g->dry_run, &s, err) < 0)
		return -1;
	(void)snprintf(name, sizeof(name), "%" PRIu64 " in parts", s.uploads);
	if (s.uploads > 0)
		found(g, &(struct maintenance_item){.kind = "unfinished uploads",
		                                    .name = name,
		                                    .words = "never continued",
		                                    .bytes = s.bytes});
	return 0;
}

/* ---- caches without an owner --------------------------------------------------------------- */

struct newest {
	unsigned magic;
#define NEWEST_MAGIC 0x564e4557U
	int64_t ns[USAGE_THREADS_MAX];
};

static void note_time(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct newest *n = FROM_VOID(struct newest, arg, NEWEST_MAGIC);

	n->ns[slot] = MAX(n->ns[slot], e->mtime_ns);
}

/* A row that says it is there, or gone: a team that cannot be asked about keeps its cache. */
static int has_owner(struct gc *g, struct arena *a, bool project, const char *id, bool *owned,
                     struct err *err)
{
	struct model_project p;
	struct model_team team;
	int r = project ? meta_project(g->app->meta, a, id, &p, err)
	                : meta_team(g->app->meta, a, id, &team, err);

	*owned = r == 0;
	if (r == 0 || err->code != ERR_NOT_FOUND)
		return r;
	err_clear(err);
	return 0;
}

static bool in_trash(const struct meta_trash *t, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(t[i].kind, "cache") == 0 && strcmp(t[i].what, what) == 0)
			return true;
	return false;
}

/* what: "projects/<id>" or "teams/<id>" */
static int drop_cache(struct gc *g, struct arena *a, const char *what, struct err *err)
{
	const char *dir = app_path(g->app, a, arena_printf(a, "cache/%s", what));
	struct newest times = {.magic = NEWEST_MAGIC};
	struct usage_total total = {0};
	struct stat st;
	int64_t used_ms = 0;

	if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	if (usage_walk(dir, 1, note_time, &times, &g->app->stopping, &total, err) < 0)
		return -1;
	used_ms = MAX(st.st_mtim.tv_sec * 1000, times.ns[0] / 1000000);
	if (used_ms > clock_wall_ms() - g->age_s * 1000)
		return 0;
	if (!g->dry_run && fs_remove_tree(AT_FDCWD, dir, err) < 0)
		return -1;
	found(g, &(struct maintenance_item){
			 .kind = "orphaned cache",
			 .name = what,
			 .words = "its project or team was deleted",
			 .bytes = total.bytes,
			 .used_ms = used_ms,
		 });
	return 0;
}

/* A disk that is mounted there has folders of its own: lost+found. */
static bool is_id(const char *name)
{
	size_t n = strlen(name);

	return n == MODEL_ID_LEN && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == n;
}

static int drop_caches_of(struct gc *g, bool project, struct err *err)
{
	const char *scope = project ? "projects" : "teams";
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_trash *t = NULL;
	DIR *d = opendir(app_path(g->app, a, arena_printf(a, "cache/%s", scope)));
	size_t n = 0;
	int r;

	if (d == NULL)
		return errno == ENOENT ? 0 : err_errno(err, errno, "cache/%s", scope);
	r = meta_trash(g->app->meta, a, &t, &n, err);
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
		const char *what = arena_printf(a, "%s/%s", scope, e->d_name);
		bool owned = true;

		if (!is_id(e->d_name) || in_trash(t, n, what))
			continue;
		r = go_on(g, err);
		if (r == 0)
			r = has_owner(g, a, project, e->d_name, &owned, err);
		if (r == 0 && !owned)
			r = drop_cache(g, a, what, err);
	}
	(void)closedir(d);
	return r;
}

static int drop_caches(struct gc *g, struct err *err)
{
	return drop_caches_of(g, true, err) < 0 || drop_caches_of(g, false, err) < 0 ? -1 : 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* clang-format off */
static const struct garbage {
	const char *name;
	int (*take)(struct gc *g, struct err *err);
	int64_t every_ms, age_s; /* of the janitor; every_ms < 0: only by hand */
} garbage[] = {
	{"deleted data",                         take_trash,       0,             0}, /* before what adds to it */
	{"weights and environments on the node", drop_trees,      -1,             0},
	{"weights without references",           collect_weights,  HOUR_S * 1000, 7 * DAY_S},
	{"weights over the mirror's limit",      trim_weights,     HOUR_S * 1000, 0},
	{"uploads",                              drop_uploads,     600 * 1000,    DAY_S},
	{"unfinished uploads",                   drop_parts,       HOUR_S * 1000, PARTS_S},
	{"caches without an owner",              drop_caches,     -1,             0},
};
/* clang-format on */

int maintenance_gc(struct app *app, struct maintenance_task *t, struct err *err)
{
	const struct maintenance_want *want = maintenance_want_of(t);
	struct gc g = {.magic = GC_MAGIC,
	               .app = app,
	               .t = t,
	               .dry_run = want->dry_run,
	               .age_s = want->min_age_s};

	for (size_t i = 0; i < COUNT(garbage); i++) {
		maintenance_doing(t, "%s", garbage[i].name);
		if (go_on(&g, err) < 0 || garbage[i].take(&g, err) < 0)
			return err_wrap(err, "%s", garbage[i].name);
	}
	return 0;
}

void maintenance_gc_due(struct app *app)
{
	static int64_t due[COUNT(garbage)]; /* the janitor is one thread */
	int64_t now = clock_mono_ms();

	for (size_t i = 0; i < COUNT(garbage); i++) {
		struct gc g = {.magic = GC_MAGIC, .app = app, .age_s = garbage[i].age_s};
		char bytes[UNITS_CAP];
		struct err err = {0};

		if (garbage[i].every_ms < 0 || now < due[i] || is_over(&g))
			continue;
		due[i] = now + garbage[i].every_ms;
		if (garbage[i].take(&g, &err) < 0 && !is_over(&g))
			log_warn("janitor: %s: %s", garbage[i].name, err.msg);
		if (g.found > 0)
			log_info("janitor: removed %s: things=%" PRIu64 "%s%s", garbage[i].name,
			         g.found, g.bytes > 0 ? " size=" : "",
			         g.bytes > 0 ? units_show_bytes(g.bytes, bytes) : "");
	}
}
