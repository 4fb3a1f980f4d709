/*
 * maintenance_gc.c - `stoker cache gc`: what the janitor removes in its own time, now and by name;
 * and caches whose project is gone, which it leaves alone. Looking and removing go the same way, so
 * that what is shown is what goes.
 */
#include "server/api/ctx.h"
#include "server/maintenance/janitor.h"
#include "server/maintenance/maintenance.h"
#include "server/data/mirror_room.h"
#include "server/data/weights.h"

#include <dirent.h>

#define TRASH_PASSES_MAX 50 /* of a thousand rows each */
#define KEYS_A_PAGE 1000
#define WORDS_MAX 600

struct gc {
	struct app *app;
	struct maintenance_task *t;
	bool dry_run;
	int64_t min_age_s;
	uint64_t collected; /* bytes of blobs that nothing names */
	bool in_objects;    /* what is found is in the object store */
};

/* ---- what deleted rows left ---------------------------------------------------------------- */

struct sum {
	struct arena *a;
	const char *last;
	uint64_t bytes;
};

static void add_object(void *arg, const char *key, const struct objstore_info *info)
{
	struct sum *s = arg;

	s->bytes += info->size;
	s->last = arena_cstr(s->a, key);
}

static uint64_t bytes_of_objects(struct gc *g, struct arena *a, const char *prefix)
{
	struct sum s = {.a = a};
	struct err ignored = {0};
	bool more = true;

	while (more && !maintenance_is_over(g->t))
		if (objstore_list(g->app->objects, prefix, s.last, KEYS_A_PAGE, add_object, &s,
		                  &more, &ignored) < 0)
			break; /* a size is a convenience */
	return s.bytes;
}

static uint64_t bytes_of_object(struct gc *g, struct arena *a UNUSED, const char *key)
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

static uint64_t bytes_of_cache(struct gc *g, struct arena *a, const char *what)
{
	return bytes_below(g, a, "cache", what);
}

static uint64_t bytes_of_log(struct gc *g, struct arena *a, const char *what)
{
	return bytes_below(g, a, "logs", what);
}

static uint64_t bytes_of_summary(struct gc *g, struct arena *a, const char *what)
{
	return bytes_below(g, a, "cache-summaries", what);
}

static const struct {
	const char *trash; /* meta_trash.kind */
	const char *kind;
	uint64_t (*bytes)(struct gc *g, struct arena *a, const char *what);
} deleted[] = {
	{"objects", "deleted objects", bytes_of_objects},
	{"object", "deleted object", bytes_of_object},
	{"log", "deleted log", bytes_of_log},
	{"cache", "deleted cache", bytes_of_cache},
	{"summary", "deleted summary", bytes_of_summary},
};

static bool still_there(const struct meta_trash *t, size_t n, int64_t id)
{
	for (size_t i = 0; i < n; i++)
		if (t[i].id == id)
			return true;
	return false;
}

static void measure(struct gc *g, struct arena *a, const struct meta_trash *t, size_t n,
                    struct maintenance_item *x)
{
	for (size_t i = 0; i < n; i++) {
		x[i] = (struct maintenance_item){.kind = t[i].kind, .name = t[i].what};
		for (size_t k = 0; k < COUNT(deleted); k++) {
			if (strcmp(deleted[k].trash, t[i].kind) != 0)
				continue;
			x[i].kind = deleted[k].kind;
			x[i].bytes = deleted[k].bytes(g, a, t[i].what);
		}
	}
}

/* Rows come a thousand at a time; what could not be removed stays and ends it. */
static int take_trash(struct gc *g, struct err *err)
{
	for (int pass = 0; pass < TRASH_PASSES_MAX; pass++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct meta_trash *t = NULL, *left = NULL;
		struct maintenance_item *x;
		size_t n = 0, n_left = 0, gone = 0;

		if (maintenance_go_on(g->t, err) < 0 ||
		    meta_trash(g->app->meta, a, &t, &n, err) < 0)
			return -1;
		x = ARENA_ARRAY(a, struct maintenance_item, n + 1);
		measure(g, a, t, n, x);
		if (!g->dry_run) {
			janitor_trash(g->app);
			if (meta_trash(g->app->meta, a, &left, &n_left, err) < 0)
				return -1;
		}
		for (size_t i = 0; i < n; i++) {
			if (still_there(left, n_left, t[i].id))
				continue;
			maintenance_found(g->t, &x[i]);
			gone++;
		}
		if (g->dry_run || gone == 0 || n_left == 0)
			return 0;
	}
	return 0;
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
	*used = t->used_ms > clock_wall_ms() - g->min_age_s * 1000;
	return 0;
}

static int drop_tree(void *arg, const struct node_tree *t, struct err *err)
{
	struct gc *g = arg;
	char hex[HASH_HEX_CAP];
	bool used = true;

	digest_hex(&t->manifest, hex);
	if (maintenance_go_on(g->t, err) < 0 || tree_used(g, t, hex, &used, err) < 0)
		return -1;
	if (used)
		return 0;
	if (!g->dry_run && node_cache_drop(g->app->node, &t->manifest, err) < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err); /* asked for just now */
		return 0;
	}
	maintenance_found(g->t,
	                  &(struct maintenance_item){
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
	struct gc *g = arg;
	char more[WORDS_MAX];

	if (x->largest != NULL)
		FMT(more, "with %.*s; %s", WORDS_MAX / 2, x->largest, words[x->kind].words);
	else
		FMT(more, "%s", words[x->kind].words);
	if (g->in_objects)
		(void)snprintf(more + strlen(more), sizeof(more) - strlen(more),
		               "; in the object store");
	maintenance_found(g->t, &(struct maintenance_item){
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
	/* No age: what is used is named by a row, or pinned by a fetch. */
	const struct mirror_ages age = {0, g->min_age_s};
	struct blobs_collected out;
	int r;

	if (mirror_collect(g->app, NULL, &age, &way, &out, err) < 0)
		return -1;
	g->collected = out.bytes;
	g->in_objects = true;
	r = mirror_collect_objects(g->app, NULL, &age, &way, &out, err);
	g->in_objects = false;
	return r;
}

static void found_evicted(void *arg, const struct blobs_item *x)
{
	struct gc *g = arg;
	char words[WORDS_MAX];

	FMT(words, "with %.*s; least recently used, and the mirror is over its limit",
	    WORDS_MAX / 2, x->largest != NULL ? x->largest : "no files");
	maintenance_found(g->t, &(struct maintenance_item){
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
	if (!g->dry_run)
		mirror_room_changed(g->app);
	return 0;
}

/* ---- uploads ------------------------------------------------------------------------------- */

static int drop_uploads(struct gc *g, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	int64_t before_ms = clock_wall_ms() - g->min_age_s * 1000;
	struct model_upload *u = NULL;
	uint64_t swept = 0;
	size_t n = 0;

	if (meta_uploads_unused(g->app->meta, a, before_ms, &u, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		maintenance_found(g->t, &(struct maintenance_item){
						.kind = "upload",
						.name = u[i].key,
						.words = "no job refers to it",
						.bytes = bytes_of_object(g, a, u[i].key),
						.used_ms = u[i].created_ms,
					});
	if (g->dry_run || n == 0)
		return 0;
	if (meta_uploads_sweep(g->app->meta, before_ms, &swept, err) < 0)
		return -1;
	app_crash_at("gc:uploads");
	janitor_trash(g->app);
	return 0;
}

static int drop_parts(struct gc *g, struct err *err)
{
	struct objstore_swept s;
	char name[60];

	if (objstore_sweep(g->app->objects, MAX(g->min_age_s, (int64_t)JANITOR_PARTS_S), g->dry_run,
	                   &s, err) < 0)
		return -1;
	(void)snprintf(name, sizeof(name), "%" PRIu64 " in parts", s.uploads);
	if (s.uploads > 0)
		maintenance_found(g->t, &(struct maintenance_item){.kind = "unfinished uploads",
		                                                   .name = name,
		                                                   .words = "never continued",
		                                                   .bytes = s.bytes});
	return 0;
}

/* ---- caches without an owner --------------------------------------------------------------- */

struct newest {
	int64_t ns[USAGE_THREADS_MAX];
};

static void note_time(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct newest *n = arg;

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
	struct newest times = {0};
	struct usage_total total = {0};
	struct stat st;
	int64_t used_ms = 0;

	if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
		return 0;
	if (usage_walk(dir, 1, note_time, &times, &g->app->stopping, &total, err) < 0)
		return -1;
	used_ms = MAX(st.st_mtim.tv_sec * 1000, times.ns[0] / 1000000);
	if (used_ms > clock_wall_ms() - g->min_age_s * 1000)
		return 0;
	if (!g->dry_run && fs_remove_tree(AT_FDCWD, dir, err) < 0)
		return -1;
	maintenance_found(g->t, &(struct maintenance_item){
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
		r = maintenance_go_on(g->t, err);
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

int maintenance_gc(struct app *app, struct maintenance_task *t, struct err *err)
{
	static const struct {
		const char *doing;
		int (*run)(struct gc *g, struct err *err);
	} steps[] = {
		{"deleted data", take_trash}, /* before what adds to it */
		{"weights and environments on the node", drop_trees},
		{"weights without references", collect_weights},
		{"weights over the mirror's limit", trim_weights},
		{"uploads", drop_uploads},
		{"unfinished uploads", drop_parts},
		{"caches without an owner", drop_caches},
	};
	const struct maintenance_want *want = maintenance_want_of(t);
	struct gc g = {.app = app, .t = t, .dry_run = want->dry_run, .min_age_s = want->min_age_s};

	for (size_t i = 0; i < COUNT(steps); i++) {
		maintenance_doing(t, "%s", steps[i].doing);
		if (maintenance_go_on(t, err) < 0 || steps[i].run(&g, err) < 0)
			return err_wrap(err, "%s", steps[i].doing);
	}
	return 0;
}
