/* parts.c - see parts.h. */
#include "server/start/parts.h"
#include "server/api/exec.h"
#include "server/api/identity.h"
#include "server/control/inputs.h"
#include "server/control/keyed_executor.h"
#include "server/control/live.h"
#include "server/control/notify.h"
#include "server/control/outage.h"
#include "server/control/prepare.h"
#include "server/control/queue.h"
#include "server/control/reconcile.h"
#include "server/control/deployments.h"
#include "server/control/serving.h"
#include "server/control/specs.h"
#include "server/data/artifacts.h"
#include "server/data/cache.h"
#include "server/data/fetch.h"
#include "server/data/hub.h"
#include "server/data/mirror_room.h"
#include "server/maintenance/janitor.h"
#include "server/maintenance/maintenance.h"
#include "server/start/objects.h"

void parts_start(struct app *app)
{
	live_start(app);
	specs_start(app);
	exec_start(app);
	serving_start(app);
	deployments_start(app);
	identity_start(app);
	cache_start(app);
	maintenance_start(app);
	mirror_room_start(app);
	fetch_start(app);
	hub_start(app);
	artifacts_start(app);
	inputs_start(app);
	prepare_start(app);
	app->sweeps = keyed_executor_new(app, SWEEP_THREADS, SWEEP_QUEUE_MAX, "sweep");
	app->deliveries = keyed_executor_new(app, NOTIFY_THREADS, NOTIFY_WEBHOOKS_MAX, "notify");
	queue_start(app);
	app->reconcile = loop_new(app, reconcile_pass, RECONCILE_PERIOD_MS);
	app->janitor = loop_new(app, janitor_pass, JANITOR_PERIOD_MS);
	app->notify = loop_new(app, notify_pass, NOTIFY_PERIOD_MS);
	app->objects_watch = loop_new(app, objects_pass, OBJECTS_PERIOD_MS);
}

void parts_stop(struct app *app)
{
	loop_stop(app->reconcile);
	loop_stop(app->janitor);
	loop_stop(app->notify);
	loop_stop(app->objects_watch);
	live_stop(app);
	keyed_executor_stop(app->sweeps);
	keyed_executor_stop(app->deliveries);
	deployments_stop(app);
	queue_stop(app);
	inputs_stop(app);
	fetch_stop(app);
	hub_stop(app);
	artifacts_stop(app);
	keyed_executor_stop(app->prepare);
	cache_stop(app);
	maintenance_stop(app);
}

void parts_free(struct app *app)
{
	loop_free(app->reconcile);
	loop_free(app->janitor);
	loop_free(app->notify);
	loop_free(app->objects_watch);
	deployments_free(app);
	queue_free(app);
	keyed_executor_free(app->sweeps);
	keyed_executor_free(app->deliveries);
	keyed_executor_free(app->prepare);
	inputs_free(app);
	hub_free(app);
	artifacts_free(app);
	fetch_free(app);
	identity_free(app);
	mirror_room_free(app);
	cache_free(app);
	maintenance_free(app);
	exec_stop(app);
	serving_stop(app);
	outage_free(app);
	live_free(app);
	specs_free(app);
}
