/* cache.c - folders, quota and snapshots of training caches. */
#include "server/data/cache.h"
#include "base/units.h"
#include "server/api/ctx.h"

#include <fcntl.h>

#define WALK_THREADS 2
#define WALK_QUEUE 256
#define RECENT_MAX 20 /* jobs that are looked at for one that ended since the last snapshot */

struct watch {
	struct lock lock;
	struct map *level; /* job -> a mark of marks[] */
	struct workers *walks;
};

static const struct {
	uint64_t percent;
	const char *words;
} marks[] = {
	{80, "80 % full"},
	{90, "90 % full"},
	{100, "full: it has reached its quota"},
};

char *cache_dir(struct app *app, struct arena *a, const char *scope, const char *id)
{
	return arena_printf(a, "%s/cache/%ss/%s", app->data, scope, id);
}

/* Has a job that may have written here ended since then? */
static int is_stale(struct app *app, struct arena *a, const char *scope, const char *id,
                    int64_t since_ms, bool *stale, struct err *err)
{
	bool project = strcmp(scope, "project") == 0;
	struct meta_query q = {
		.project_id = project ? id : NULL,
		.team_id = project ? NULL : id,
		.limit = RECENT_MAX,
	};
	struct model_job *jobs = NULL;
	size_t n = 0;

	if (meta_jobs(app->meta, a, &q, &jobs, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n && !*stale; i++) {
		*stale = jobs[i].cache && job_state_is_final(jobs[i].core.state) &&
		         jobs[i].core.changed_ms >= since_ms;
	}
	return 0;
}

int cache_ready(struct app *app, const struct model_job *job, const struct job_spec *spec,
                struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_project p = {0};
	struct model_cache_snapshot s = {0};
	char used[UNITS_CAP], quota[UNITS_CAP];
	bool stale = false;

	if (!spec->cache.enabled)
		return 0;
	if (fs_mkdirs(AT_FDCWD, cache_dir(app, a, "project", job->project_id), 0755, err) < 0 ||
	    fs_mkdirs(AT_FDCWD, cache_dir(app, a, "team", job->team_id), 0755, err) < 0 ||
	    meta_project(app->meta, a, job->project_id, &p, err) < 0)
		return -1;
	if (meta_snapshot(app->meta, a, "project", p.id, &s, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* never counted: its first job may have ended just now */
	}
	if (is_stale(app, a, "project", p.id, s.ms, &stale, err) < 0 ||
	    (stale && cache_snapshot_now(app, a, "project", p.id, &s, err) < 0))
		return -1;
	if (s.bytes < p.cache_quota_bytes)
		return 0;
	return err_set(err, ERR_CACHE_QUOTA_EXCEEDED,
	               "the cache of project %s holds %s, its quota is %s: `stoker cache rm` frees"
	               " space, an administrator can raise the quota",
	               p.name, units_show_bytes(s.bytes, used),
	               units_show_bytes(p.cache_quota_bytes, quota));
}

void cache_watch(struct app *app, const char *job_id, uint64_t bytes, uint64_t quota)
{
	struct watch *w = app->watch;
	char used[UNITS_CAP], limit[UNITS_CAP];
	size_t reached = 0;
	uintptr_t before;

	if (quota == 0)
		return;
	while (reached < COUNT(marks) && bytes / marks[reached].percent >= quota / 100)
		reached++;
	lock_take(&w->lock);
	before = (uintptr_t)map_get(w->level, str_of(job_id));
	if (reached > before)
		(void)map_set(w->level, str_of(job_id), (void *)(uintptr_t)reached);
	lock_give(&w->lock);
	if (reached <= before)
		return;
	app_event(app, job_id, "cache", "server", "the training cache is %s (%s of %s)",
	          marks[reached - 1].words, units_show_bytes(bytes, used),
	          units_show_bytes(quota, limit));
	app_log(app, job_id, "warning: the training cache is %s (%s of %s)",
	        marks[reached - 1].words, used, limit);
}

/* The entries that a walk names, a list per thread of the walk. */
struct gather {
	unsigned magic;
#define GATHER_MAGIC 0x56474154U
	struct {
		struct arena *a;
		struct usage_entry *e;
		size_t n, cap;
	} slot[USAGE_THREADS_MAX];
	atomic_size_t kept;
};

static void gather_entry(void *arg, unsigned slot, const struct usage_entry *e)
{
	struct gather *g = FROM_VOID(struct gather, arg, GATHER_MAGIC);
	size_t n = g->slot[slot].n, cap = g->slot[slot].cap;

	if (atomic_fetch_add(&g->kept, 1) >= CACHE_LIST_MAX)
		return;
	if (g->slot[slot].a == NULL)
		g->slot[slot].a = arena_new();
	if (n == cap) {
		cap = MAX(cap * 2, (size_t)256);
		g->slot[slot].e = xrealloc(g->slot[slot].e, cap * sizeof(*e));
		g->slot[slot].cap = cap;
	}
	g->slot[slot].e[n] = *e;
	g->slot[slot].e[n].path = arena_cstr(g->slot[slot].a, e->path);
	g->slot[slot].n = n + 1;
}

static int by_path(const void *a, const void *b)
{
	const struct usage_entry *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static const char *type_word(mode_t mode)
{
	if (S_ISDIR(mode))
		return "directory";
	return S_ISLNK(mode) ? "symlink" : "file";
}

static void permissions(mode_t mode, char out[11])
{
	static const char bits[] = "rwxrwxrwx";

	out[0] = S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : '-';
	for (int i = 0; i < 9; i++)
		out[1 + i] = (mode & (1U << (8 - i))) != 0 ? bits[i] : '-';
	out[10] = '\0';
}

static void entry_line(struct buf *out, const struct usage_entry *e)
{
	char when[CLOCK_ISO_CAP], perm[11];
	struct js js;

	clock_iso(e->mtime_ns / 1000000, when);
	permissions(e->mode, perm);
	js_init(&js, out);
	js_open(&js);
	js_kv(&js, "path", e->path);
	js_kv_u64(&js, "size_bytes", S_ISDIR(e->mode) ? 0 : e->size);
	js_kv(&js, "modified", when);
	js_kv(&js, "file_type", type_word(e->mode));
	js_kv(&js, "permissions", perm);
	js_close(&js);
	buf_putc(out, '\n');
}

/* The list as JSON lines; a last line {"omitted": n} when it was too long. */
static int write_list(struct app *app, struct gather *g, const char *file, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)512 << 20);
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FREE struct usage_entry *all = NULL;
	size_t n = 0, total = atomic_load(&g->kept);

	for (size_t s = 0; s < USAGE_THREADS_MAX; s++)
		n += g->slot[s].n;
	all = xcalloc(n + 1, sizeof(*all));
	n = 0;
	for (size_t s = 0; s < USAGE_THREADS_MAX; s++) {
		if (g->slot[s].n > 0)
			memcpy(all + n, g->slot[s].e, g->slot[s].n * sizeof(*all));
		n += g->slot[s].n;
	}
	qsort(all, n, sizeof(*all), by_path);
	for (size_t i = 0; i < n; i++)
		entry_line(&out, &all[i]);
	if (total > n)
		buf_printf(&out, "{\"omitted\":%zu}\n", total - n);
	if (buf_check(&out, "read the summary of a cache", err) < 0)
		return -1;
	return fs_write_atomic(AT_FDCWD, app_path(app, a, file), buf_view(&out), 0600, err);
}

int cache_snapshot_now(struct app *app, struct arena *a, const char *scope, const char *id,
                       struct model_cache_snapshot *out, struct err *err)
{
	const char *dir = cache_dir(app, a, scope, id);
	struct gather *g = xcalloc(1, sizeof(*g));
	struct usage_total total = {0};
	int r = 0;

	g->magic = GATHER_MAGIC;
	*out = (struct model_cache_snapshot){
		.scope = scope,
		.scope_id = id,
		.ms = clock_wall_ms(),
		.summary_file = arena_printf(a, "cache-summaries/%s-%s.jsonl", scope, id),
	};
	if (access(dir, F_OK) == 0)
		r = usage_walk(dir, 0, gather_entry, g, &app->stopping, &total, err);
	if (r == 0)
		r = write_list(app, g, out->summary_file, err);
	for (size_t s = 0; s < USAGE_THREADS_MAX; s++) {
		arena_free(g->slot[s].a);
		free(g->slot[s].e);
	}
	free(g);
	if (r < 0)
		return -1;
	out->bytes = total.bytes;
	out->files = total.files;
	return meta_snapshot_put(app->meta, out, err);
}

struct walk {
	unsigned magic;
#define WALK_MAGIC 0x5657414cU
	struct app *app;
	const char *scope;
	char id[MODEL_ID_CAP * 2];
	char job_id[MODEL_ID_CAP * 2]; /* the job that ended; "" = its marks are another walk's */
};

/* Growth after the last sample counts too, however short the job was. */
static void watch_last(struct app *app, struct arena *a, const char *job_id, uint64_t bytes)
{
	struct model_job job = {0};
	struct model_project p = {0};
	struct err err = {0};

	if (meta_job(app->meta, a, job_id, &job, &err) == 0 &&
	    meta_project(app->meta, a, job.project_id, &p, &err) == 0)
		cache_watch(app, job_id, bytes, p.cache_quota_bytes);
	else if (err.code != ERR_NOT_FOUND) /* deleted meanwhile: nobody is left to be told */
		log_warn("quota of a cache: job=%s %s", job_id, err.msg);
}

static void walk_end(struct walk *w)
{
	lock_take(&w->app->watch->lock);
	(void)map_del(w->app->watch->level, str_of(w->job_id));
	lock_give(&w->app->watch->lock);
	free(w);
}

static void walk_run(void *arg)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);
	struct model_cache_snapshot s;
	struct err err = {0};

	if (atomic_load(&w->app->stopping)) {
		walk_end(w);
		return;
	}
	if (cache_snapshot_now(w->app, a, w->scope, w->id, &s, &err) < 0)
		log_warn("summary of a cache: %s %s: %s", w->scope, w->id, err.msg);
	else if (w->job_id[0] != '\0')
		watch_last(w->app, a, w->job_id, s.bytes);
	walk_end(w);
}

static void walk_later(struct app *app, const char *scope, const char *id, const char *job_id)
{
	struct walk *w = xcalloc(1, sizeof(*w));
	struct err err = {0};

	w->magic = WALK_MAGIC;
	w->app = app;
	w->scope = scope;
	copy_cut(w->id, sizeof(w->id), id);
	copy_cut(w->job_id, sizeof(w->job_id), job_id);
	if (atomic_load(&app->stopping) || workers_submit(app->watch->walks, walk_run, w, &err) < 0)
		walk_end(w); /* the next job's end, or a person, asks again */
}

void cache_job_over(struct app *app, const struct model_job *job)
{
	if (!job->cache)
		return;
	walk_later(app, "project", job->project_id, job->id);
	walk_later(app, "team", job->team_id, "");
}

void cache_start(struct app *app)
{
	app->watch = xcalloc(1, sizeof(*app->watch));
	lock_init(&app->watch->lock, LOCK_CACHE_WATCH);
	app->watch->level = map_new();
	app->watch->walks = workers_new(WALK_THREADS, WALK_QUEUE, "walk");
}

void cache_stop(struct app *app)
{
	assert(atomic_load(&app->stopping));
	workers_stop(app->watch->walks);
	app->watch->walks = NULL;
}

void cache_free(struct app *app)
{
	if (app->watch == NULL)
		return;
	workers_stop(app->watch->walks);
	map_free(app->watch->level);
	lock_done(&app->watch->lock);
	free(app->watch);
	app->watch = NULL;
}

/* The scope's row is there and the caller's to see. */
static int check_scope(const struct ask *ask, const char *scope, const char *id, struct err *err)
{
	struct model_project p = {0};
	const char *team = NULL;

	if (strcmp(scope, "project") == 0)
		return ctx_project(ask, id, &p, err);
	if (strcmp(scope, "team") == 0)
		return ctx_team(ask, id, &team, err);
	return err_set(err, ERR_INVALID, "scope \"%.40s\": project or team", scope);
}

/* The walk after a job starts once its runner is gone; who asks before that gets it done now. */
static int look_at_cache(const struct ask *ask, const char *scope, const char *id,
                         struct model_cache_snapshot *out, struct err *err)
{
	struct app *app = ask->app;
	bool stale = false, none;

	if (check_scope(ask, scope, id, err) < 0)
		return -1;
	none = meta_snapshot(app->meta, ask->a, scope, id, out, err) < 0;
	if (none && err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	if (is_stale(app, ask->a, scope, id, none ? 0 : out->ms, &stale, err) < 0)
		return -1;
	if (stale)
		return cache_snapshot_now(app, ask->a, scope, id, out, err);
	return none ? err_set(err, ERR_NOT_FOUND, "the cache of this %s has never been used", scope)
	            : 0;
}

static int summarize_cache(const struct ask *ask, const char *scope, const char *id,
                           struct model_cache_snapshot *out, struct err *err)
{
	if (check_scope(ask, scope, id, err) < 0)
		return -1;
	return cache_snapshot_now(ask->app, ask->a, scope, id, out, err);
}

/* Nothing is taken away under a job that has it mounted. */
static int check_unused(struct app *app, struct arena *a, const char *scope, const char *id,
                        struct err *err)
{
	bool project = strcmp(scope, "project") == 0;
	struct meta_query q = {.project_id = project ? id : NULL,
	                       .team_id = project ? NULL : id,
	                       .states = job_states_placed()};
	struct model_job *jobs = NULL;
	size_t n = 0;

	if (meta_jobs(app->meta, a, &q, &jobs, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (jobs[i].cache)
			return err_set(err, ERR_CONFLICT, "job %s (%s) is using this cache",
			               jobs[i].id, jobs[i].name);
	}
	return 0;
}

static int remove_below(const char *dir, const char *path, uint64_t *bytes, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	AUTO_FD int root = fs_open_dir(dir, err), parent = -1;
	struct usage_total total = {0};
	struct stat st;

	if (root < 0)
		return -1;
	parent = slash == NULL
	                 ? dup(root)
	                 : fs_open_beneath(root, arena_strz(a, str_n(path, (size_t)(slash - path))),
	                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, err);
	if (parent < 0)
		return err->code != ERR_NONE ? -1 : err_errno(err, errno, "%s", dir);
	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", path);
	if (S_ISDIR(st.st_mode)) {
		if (usage_walk(arena_printf(a, "%s/%s", dir, path), 0, NULL, NULL, NULL, &total,
		               err) < 0)
			return -1;
		*bytes = total.bytes;
	} else {
		*bytes = st.st_size > 0 ? (uint64_t)st.st_size : 0;
	}
	return fs_remove_tree(parent, name, err);
}

static int remove_from_cache(const struct ask *ask, const char *scope, const char *id,
                             struct str path, uint64_t *bytes, struct err *err)
{
	struct app *app = ask->app;
	struct model_cache_snapshot s;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || check_scope(ask, scope, id, err) < 0 ||
	    check_unused(app, ask->a, scope, id, err) < 0)
		return -1;
	while (path.n > 0 && path.p[path.n - 1] == '/')
		path.n--;
	if (!fs_path_is_plain(path))
		return err_set(err, ERR_INVALID, "\"%.*s\" is not a path below the cache",
		               (int)MIN(path.n, (size_t)200), path.p);
	if (remove_below(cache_dir(app, ask->a, scope, id), arena_strz(ask->a, path), bytes, err) <
	    0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_CACHE_PATH_NOT_FOUND,
		               "the cache has no file or folder %.*s",
		               (int)MIN(path.n, (size_t)200), path.p);
	}
	log_info("cache: removed scope=%s id=%s path=%.*s by=%s", scope, id, STR_ARG(path),
	         ask->principal->name);
	return cache_snapshot_now(app, ask->a, scope, id, &s, err);
}

static int set_quota(const struct ask *ask, const char *project_id, uint64_t bytes, struct err *err)
{
	struct model_project p = {0};

	if (ctx_need(ask, ROLE_ADMIN, err) < 0 || ctx_project(ask, project_id, &p, err) < 0)
		return -1;
	if (bytes == 0 || bytes > INT64_MAX)
		return err_set(err, ERR_INVALID, "a quota is a number of bytes above 0");
	return meta_project_quota(ask->app->meta, project_id, bytes, err);
}

const struct cache_ops cache_ops = {
	.snapshot = look_at_cache,
	.summarize = summarize_cache,
	.remove = remove_from_cache,
	.quota = set_quota,
};
