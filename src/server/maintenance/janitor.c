/* janitor.c - garbage, expired rows, figures that are expensive to measure. */
#include "server/maintenance/janitor.h"
#include "base/reserve.h"
#include "engine/engine.h"
#include "server/api/exec.h"
#include "server/start/listener.h"
#include "server/start/standbys.h"
#include "server/maintenance/maintenance.h"

/* So old may a measurement of the mirror be: what came and went since is counted. */
#define MEASURED_MS (600 * 1000)

static void sweep_keys(struct app *app)
{
	struct err err = {0};

	if (meta_idempotency_sweep(app->meta, clock_wall_ms() - JANITOR_IDEMPOTENCY_MS, &err) < 0)
		log_warn("janitor: %s", err.msg);
}

static void sweep_uploads(struct app *app)
{
	int64_t now = clock_wall_ms();
	uint64_t uploads = 0, xorbs = 0;
	struct err err = {0};

	if (meta_repo_uploads_sweep(app->meta, now - JANITOR_UPLOADS_MS, &uploads, &err) < 0 ||
	    meta_repo_xorbs_sweep(app->meta, now - JANITOR_XORBS_MS, &xorbs, &err) < 0)
		log_warn("janitor: %s", err.msg);
	if (uploads + xorbs > 0)
		log_info("uploads that no commit has named: forgotten=%" PRIu64 " xorbs=%" PRIu64,
		         uploads, xorbs);
}

static void measure(struct app *app)
{
	uint64_t bytes = 0, trees = 0, leased = 0;
	struct blobs_held held;
	struct err err = {0};

	if (blobs_held(app->blobs, MEASURED_MS, &held, &err) == 0)
		atomic_store(&app->mirror_bytes, held.bytes + held.partial);
	err_clear(&err);
	if (node_cache_usage(app->node, &trees, &bytes, &leased, &err) == 0)
		atomic_store(&app->node_bytes, bytes);
}

/* The folder of an attempt goes when its processes have. */
static bool attempt_is_over(void *arg, const char *name)
{
	struct app *app = FROM_VOID(struct app, arg, APP_MAGIC);
	AUTO_ARENA struct arena *a = arena_new();
	struct stat st;

	return lstat(app_path(app, a, arena_printf(a, ENGINE_DIRS "/%s", name)), &st) < 0 &&
	       errno == ENOENT;
}

/* What is not counted: a runner was killed while it filled it. */
static void sweep_node(struct app *app)
{
	struct err err = {0};

	if (node_cache_sweep_making(app->node, attempt_is_over, app, &err) < 0)
		log_warn("node cache: %s", err.msg);
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
	{exec_sweep,         60 * 1000},
	{measure,            60 * 1000},
	{sweep_node,         60 * 1000},
	{listener_keep,      10 * 1000},
	{standbys_note,      60 * 1000},
	{sweep_keys,         10 * 60 * 1000},
	{sweep_uploads,      10 * 60 * 1000},
	{maintenance_gc_due, 0}, /* each kind in its own time */
	{refill,             0}, /* behind what makes room */
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
