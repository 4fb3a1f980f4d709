/* janitor.c - trash, expired rows, forgotten uploads, figures that are expensive to measure. */
#include "server/maintenance/janitor.h"
#include "base/reserve.h"
#include "server/api/exec.h"
#include "server/data/fetch.h"
#include "server/start/listener.h"
#include "server/data/mirror_room.h"

static int empty_objects(struct app *app, struct arena *a UNUSED, const char *prefix,
                         struct err *err)
{
	return objstore_del_below(app->objects, prefix, NULL, &app->stopping, err);
}

static int empty_cache(struct app *app, struct arena *a, const char *what, struct err *err)
{
	return fs_remove_tree(AT_FDCWD, app_path(app, a, arena_printf(a, "cache/%s", what)), err);
}

static int empty_summary(struct app *app, struct arena *a, const char *what, struct err *err)
{
	return fs_remove_tree(AT_FDCWD,
	                      app_path(app, a, arena_printf(a, "cache-summaries/%s", what)), err);
}

static int empty_log(struct app *app, struct arena *a UNUSED, const char *what, struct err *err)
{
	return joblogs_delete(app->logs, what, err);
}

static int empty_object(struct app *app, struct arena *a UNUSED, const char *what, struct err *err)
{
	return objstore_del(app->objects, what, err);
}

static const struct {
	const char *kind;
	int (*empty)(struct app *app, struct arena *a, const char *what, struct err *err);
} kinds[] = {
	{"objects", empty_objects}, {"object", empty_object},   {"log", empty_log},
	{"cache", empty_cache},     {"summary", empty_summary},
};

static void empty_trash(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_trash *t = NULL;
	struct err err = {0};
	size_t n = 0;

	if (meta_trash(app->meta, a, &t, &n, &err) < 0) {
		log_error("trash: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n && !atomic_load(&app->stopping); i++) {
		for (size_t k = 0; k < COUNT(kinds); k++) {
			if (strcmp(kinds[k].kind, t[i].kind) != 0)
				continue;
			err_clear(&err);
			if (kinds[k].empty(app, a, t[i].what, &err) < 0 ||
			    meta_trash_done(app->meta, t[i].id, &err) < 0)
				log_warn("trash: %s %s: %s", t[i].kind, t[i].what, err.msg);
		}
	}
}

void janitor_trash(struct app *app)
{
	static struct lock one = LOCK_INIT(LOCK_JANITOR_TRASH);

	lock_take(&one);
	empty_trash(app);
	lock_give(&one);
}

static void sweep_rows(struct app *app)
{
	int64_t now = clock_wall_ms();
	struct err err = {0};
	uint64_t n = 0;

	if (meta_uploads_sweep(app->meta, now - JANITOR_UPLOAD_MS, &n, &err) < 0 ||
	    meta_idempotency_sweep(app->meta, now - JANITOR_IDEMPOTENCY_MS, &err) < 0)
		log_warn("janitor: %s", err.msg);
	if (n > 0)
		log_info("removed uploads of no job: %llu", (unsigned long long)n);
}

static void sweep_bytes(struct app *app)
{
	const struct mirror_ages age = {JANITOR_MANIFEST_S, JANITOR_TMP_S};
	struct blobs_collected gone = {0}, over = {0}, kept = {0};
	struct blobs_way way = {0};
	struct objstore_swept parts;
	struct err err = {0};

	if (objstore_sweep(app->objects, JANITOR_PARTS_S, false, &parts, &err) < 0) {
		log_warn("janitor: %s", err.msg);
		err_clear(&err);
	}
	if (mirror_collect(app, NULL, &age, &way, &gone, &err) < 0 ||
	    mirror_room_trim(app, 0, &way, &over, &err) < 0)
		log_warn("janitor: %s", err.msg);
	err_clear(&err);
	if (mirror_collect_objects(app, NULL, &age, &way, &kept, &err) < 0)
		log_warn("janitor: %s", err.msg);
	if (kept.files > 0)
		log_info("removed unreferenced weights from the object store: files=%" PRIu64
		         " bytes=%" PRIu64,
		         kept.files, kept.bytes);
	if (gone.files + over.files > 0)
		mirror_room_changed(app);
	if (gone.files > 0)
		log_info("removed unreferenced blobs: files=%" PRIu64 " bytes=%" PRIu64, gone.files,
		         gone.bytes);
}

static void measure(struct app *app)
{
	uint64_t bytes = 0, trees = 0, leased = 0;
	struct blobs_held held;
	struct err err = {0};

	if (blobs_held(app->blobs, &held, &err) == 0)
		atomic_store(&app->mirror_bytes, held.bytes + held.partial);
	err_clear(&err);
	if (node_cache_usage(app->node, &trees, &bytes, &leased, &err) == 0)
		atomic_store(&app->node_bytes, bytes);
}

static void refill(struct app *app UNUSED)
{
	(void)reserve_whole(); /* what it answers matters to those who begin something */
}

/* clang-format off */
/* fn of each row, once its period has passed; the first pass runs all of them. */
static const struct {
	void (*fn)(struct app *app);
	int64_t every_ms;
} chores[] = {
	{exec_sweep,  60 * 1000},
	{measure,     60 * 1000},
	{listener_keep, 10 * 1000},
	{sweep_rows,  10 * 60 * 1000},
	{janitor_trash, 0}, /* behind what fills it */
	{refill,      0}, /* behind what makes room */
	{sweep_bytes, 60 * 60 * 1000},
};
/* clang-format on */

void janitor_pass(struct app *app)
{
	static int64_t due[COUNT(chores)]; /* the janitor is one thread */
	int64_t now = clock_mono_ms();

	for (size_t i = 0; i < COUNT(chores) && !atomic_load(&app->stopping); i++) {
		if (now < due[i])
			continue;
		due[i] = now + chores[i].every_ms;
		chores[i].fn(app);
	}
}
