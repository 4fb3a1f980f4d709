/* status.c - how the server is. */
#include "server/api/ctx.h"
#include "server/control/queue.h"
#include "server/data/artifacts.h"
#include "server/data/mirror_room.h"
#include "server/start/standbys.h"

static int node_row(struct app *app, struct arena *a, struct server_status *out, struct err *err)
{
	struct sched_node node;

	if (queue_node(app, a, &node, err) < 0)
		return -1;
	out->nodes = ARENA_NEW(a, struct node_row);
	out->n_nodes = 1;
	*out->nodes = (struct node_row){
		.name = node.name,
		.cluster = node.cluster,
		.gpu_type = node.gpu_types == NULL ? node.gpu_type : NULL,
		.cpu_milli = node.cpu_milli,
		.cpu_milli_used = node.cpu_milli_used,
		.gpus = node.gpus,
		.memory_bytes = node.memory_bytes,
		.memory_used = node.memory_used,
		.gpus_used = node.gpus_used,
		.declared = app->inv.declared,
	};
	out->nodes->n_kinds = sched_gpu_kinds(&node, out->nodes->kinds);
	for (size_t i = 0; node.gpu_types != NULL && i < out->nodes->n_kinds; i++)
		out->nodes->gpu_type = i == 0 ? out->nodes->kinds[0].type
		                              : arena_printf(a, "%s, %s", out->nodes->gpu_type,
		                                             out->nodes->kinds[i].type);
	return 0;
}

static bool is_database_away(struct app *app)
{
	struct outage outage;

	meta_outage(app->meta, false, &outage);
	return outage.since_ms != 0 || meta_unheard(app->meta);
}

static int status_standbys(struct app *app, struct arena *a, struct server_status *out,
                           struct err *err)
{
	struct standbys s;

	if (standbys_look(app, a, &s, err) < 0)
		return -1;
	out->standbys = ARENA_ARRAY(a, struct standby_row, s.n + 1);
	for (size_t i = 0; i < s.n; i++)
		out->standbys[i] = (struct standby_row){arena_cstr(a, s.waiting[i].host),
		                                        s.waiting[i].seen_ms};
	out->n_standbys = s.n;
	out->standby_gone = s.last;
	out->standby_gone_ms = s.last_ms;
	return 0;
}

/* What the database knows: jobs, and what they hold of the node; and who waits to lead. */
static int status_rows(struct app *app, struct arena *a, struct server_status *out, struct err *err)
{
	struct meta_counts counts = {0};

	if (meta_counts(app->meta, &counts, err) < 0 || status_standbys(app, a, out, err) < 0)
		return -1;
	out->jobs_pending = counts.by_state[JOB_PENDING];
	for (unsigned s = 0; s < JOB_STATE_COUNT; s++) {
		if (job_state_is_placed((enum job_state)s))
			out->jobs_active += counts.by_state[s];
	}
	return node_row(app, a, out, err);
}

static int status(const struct ask *ask, struct server_status *out, struct err *err)
{
	struct app *app = ask->app;
	struct mirror_room_view room;
	struct outage outage;

	if (ctx_need(ask, ROLE_VIEWER, err) < 0 || mirror_room_view(app, &room, err) < 0)
		return -1;
	*out = (struct server_status){
		.version = STOKER_VERSION,
		.data_dir = app->data,
		.base_url = app->base_url,
		.sandbox = app->sandbox,
		.python = app->python,
		.started_ms = app->started_ms,
		.mirror_bytes = atomic_load(&app->mirror_bytes),
		.mirror_budget = room.limit,
		.mirror_reserved = room.reserved,
		.mirror_evicted = room.evicted,
		.mirror_evicted_bytes = room.evicted_bytes,
		.node_cache_bytes = atomic_load(&app->node_bytes),
		.node_cache_budget = app->set.node_cache_bytes,
	};
	artifact_counts(app, &out->artifacts);
	if (fs_free_bytes(app->data, &out->disk_free, &out->disk_total, err) < 0)
		return -1;
	/* while the database is away, the rest is still said */
	meta_outage(app->meta, false, &outage);
	if (outage.since_ms == 0 && status_rows(app, ask->a, out, err) < 0) {
		if (err->id != ERR_DATABASE_UNAVAILABLE)
			return -1;
		err_clear(err);
		meta_outage(app->meta, false, &outage);
	}
	out->database = outage;
	return 0;
}

const struct server_ops server_ops = {
	.status = status,
	.is_database_away = is_database_away,
};
