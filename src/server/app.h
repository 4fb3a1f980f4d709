/*
 * app.h - the server's parts as one struct, and the few words that all of them use.
 *
 * Threads: httpd's workers run the operations of api/; one queue thread places jobs; prepare and
 * fetch pools mirror sources and launch; one reconcile thread compares rows with evidence, and the
 * sweep pool does what takes long of that; one deployments thread starts and stops the jobs of
 * deployments; one janitor thread does all periodic work, one maintenance thread what an
 * administrator asked for; one notify thread and its pool tell webhooks. They meet in the database,
 * never in each other's data.
 *
 * Locks: docs/locks.md lists them in their order. Those of a pass of the queue, a checkpoint and a
 * step order whole pieces of work and are held across the database's I/O; the others guard lists in
 * memory only. None is held over the network: what a fetch relies on is pinned (blob_pins.h).
 */
#ifndef APP_H
#define APP_H

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/seal.h"
#include "engine/engine.h"
#include "face/face.h"
#include "io/workers.h"
#include "meta/meta.h"
#include "server/settings.h"
#include "store/sources/mirror.h"
#include "store/blobs/tree.h"
#include "store/common/usage.h"

#include "base/sync.h"
#include <stdatomic.h>

#define APP_CLUSTER "local"
#define APP_BUCKET "stoker"
#define APP_JSON_MAX ((size_t)64 << 20)
#define APP_STRIPES 64    /* locks that jobs share */
#define APP_LINE_MAX 2000 /* bytes of one line of the server in a job's log */
#define APP_TOKEN "stoker"
#define APP_RUN_TOKEN "stokerrun" /* of a runner: good at any server that leads (--node-url) */
#define APP_LOCAL_TOKEN                                                                            \
	"stokerlocal" /* of a runner on this machine: good at the Unix socket only */
#define APP_JOB_TOKEN                                                                              \
	"stokerjob" /* of a job's commands: good at the Hub and for artifacts, while it runs */
#define APP_SOCKET "server.sock"
/* What of this folder a runner is shown that has given up root: the sockets, under second names. */
#define APP_SOCKETS "sockets"
#define APP_RUNNERS "runners.lock" /* each runner holds a shared lock on it */
#define APP_UPLOAD_S (12 * 3600)

struct queue;
struct keyed_executor;
struct fetches;
struct execs;
struct watch;
struct loop;
struct maintenance;
struct live;
struct specs;
struct listener;
struct passing;
struct passes;
struct inputs;
struct mirror_room;
struct log_store;
struct weights;
struct hub;
struct artifacts;
struct known_tokens;
struct identities;
struct deployments;

struct app {
	unsigned magic;
#define APP_MAGIC 0x53415050U
	struct arena *arena; /* of what lives as long as the server; filled at start only */
	struct settings set;
	const char *data;                 /* absolute */
	int lock_fd, database_fd;         /* of the data folder; of a SQLite file */
	const char *program;              /* this binary, for the engine */
	const char *base_url, *local_url; /* for clients, for runners of this machine */
	const char *node_name;
	const char *node_id;      /* of the data folder: see app_is_here */
	const char *sandbox;      /* what probing found, in words */
	const char *python;       /* what builds Python environments, in words; NULL: nothing */
	const char *sandbox_kind; /* how every job is run, chosen at start: see run/sandbox.h */
	const char *ids_mode;     /* and with whose ids: WIRE_IDS_...; NULL: our own */
	/* The pool of these ids, in ranges; the last of each is its runner's own. span 0: none */
	uint32_t ids_first, ids_last, ids_span;
	bool podman; /* there is one */
	int64_t started_ms;
	struct seal_key master;
	const char *url_access_key, *url_secret_key;

	struct meta *meta;
	struct objstore *objects;
	const char *objects_url; /* as objstore_open took it */
	struct passing *passing; /* to runners of this machine: see object_rights.h */
	struct passes *passes;
	bool objects_sure; /* they are this database's: see objects.h */
	atomic_int direct; /* see direct.h */
	struct blobs *blobs;
	struct node_cache *node;
	struct joblogs *logs;
	struct log_store *log_store; /* see log_store.h; NULL: the logs are nowhere else */
	struct url_net *allow, *proxies;
	size_t n_proxies;
	struct http_client *upstream; /* guarded: to sources, and webhooks by https */
	struct http_client *stores;   /* to the object store, which the administrator chose */
	struct http_client *inside;   /* to no address but those that sources may live on */
	struct engine *engine;
	struct inventory inv;                      /* with the settings applied */
	const char *gpu_types[INVENTORY_GPUS_MAX]; /* of each of inv */

	struct listener *listener;   /* the port, see listener.h */
	int listen_fd;               /* of a standby that leads now; -1: not open yet */
	struct httpd *_Atomic httpd; /* NULL before it listens and while it is being stopped */
	struct face_ctx face;
	atomic_bool stopping;
	struct lock ckpts[APP_STRIPES], steps[APP_STRIPES];
	struct queue *queue;
	struct keyed_executor *prepare; /* jobs, see prepare.h */
	struct keyed_executor *sweeps;  /* folders, see reconcile.h */
	struct mirror_room *room;       /* see mirror_room.h */
	struct weights *weights;        /* see weights.h */
	struct fetches *fetches;
	struct hub *hub;             /* see hub.h */
	struct artifacts *artifacts; /* see artifacts.h */
	struct execs *execs;
	struct watch *watch;
	struct maintenance *maintenance;
	struct live *live;                 /* see live.h */
	struct known_tokens *known;        /* see auth.h */
	struct serving *serving;           /* see serving.h */
	struct deployments *deployments;   /* see deployments.h */
	struct relay *relay;               /* of requests to the servers that jobs run */
	struct identities *identities;     /* see identity.h */
	struct specs *specs;               /* see specs.h */
	struct inputs *inputs;             /* see inputs.h */
	struct keyed_executor *deliveries; /* webhooks, see notify.h */
	struct loop *reconcile, *janitor, *notify, *objects_watch;
	uint64_t outages_told_ms[2];  /* see outage.h; of the thread of reconcile */
	struct map *outage_jobs[2];   /* the same: ids; NULL: there is no outage */
	uint64_t outages_heard;       /* the same */
	int64_t passed_ms;            /* the same: its last pass; monotonic */
	_Atomic int64_t listening_ms; /* since when a runner that lives was heard; monotonic */

	atomic_uint_least64_t mirror_bytes, node_bytes; /* as last measured by the janitor */
};

extern const struct face_ops ctx_ops; /* of = the app */

/* A line of the platform in the job's log. A log that cannot be written stops nothing: it is said
 * in the server's own log. */
void app_log(struct app *app, const char *job_id, const char *fmt, ...) PRINTF(3, 4);
/* The lock for this job in an array of locks. */
struct lock *app_stripe(struct lock locks[APP_STRIPES], const char *job_id);
void app_notify(struct app *app, const char *kind, const char *id);
void app_event(struct app *app, const char *job_id, const char *kind, const char *actor,
               const char *fmt, ...) PRINTF(5, 6);
/* Ends the process where STOKER_CRASH_AT says so, as kill -9 would: for the crash tests. */
void app_crash_at(const char *label);
char *app_path(struct app *app, struct arena *a, const char *below);
int app_show_socket(struct app *app, const char *name, struct err *err) MUST_CHECK;
bool app_is_runner(const struct app *app, uid_t uid);
bool app_runners_give_up_root(const struct app *app); /* run/confine.h */
uid_t app_store_owner(const struct app *app);         /* ids_store() of run/ids.h; 0: root */
/* A server that is cut off from the database may be followed by another one, whose jobs may use
 * what was nobody's a moment ago. ERR_DATABASE_UNAVAILABLE: nothing is removed now. */
int app_may_remove(const struct app *app, struct err *err) MUST_CHECK;
/* "inodes" or "space", when there is too little even for the start of a job that was begun before:
 * tens of small files. NULL: there is enough. */
#define APP_INODES 500
#define APP_BYTES ((uint64_t)1100 << 10) /* what the first stage of a retry waits for, and more */
const char *app_lacks(const struct app *app);
/* ERR_NO_SPACE while the disk is so full that nothing new should be begun. */
int app_has_room(struct app *app, struct err *err) MUST_CHECK;
/* Of what a client sends, to a file in the data folder: a full disk is said as above. */
int app_pwrite(int fd, const void *p, size_t n, uint64_t at, struct err *err) MUST_CHECK;
/* An id of `n` characters in the arena. */
char *app_id(struct arena *a, size_t n);
bool app_same(const char *a, const char *b); /* both may be NULL */
/* Was it this server that started it, or its predecessor on this data folder? Only then engine and
 * folder say anything about it. */
bool app_is_here(const struct app *app, const char *node_id, const char *node);

/* Empty, in `a`, which it keeps. */
struct app *app_new(struct arena *a) MUST_CHECK;

/* A thread that runs fn every period, and at once when kicked. It may be kicked before it runs and
 * after it was stopped: nothing happens then. All but loop_new accept NULL. */
struct loop *loop_new(struct app *app, void (*fn)(struct app *app), int64_t period_ms) MUST_CHECK;
void loop_run(struct loop *l);
void loop_kick(struct loop *l);
/* The same, and waits until a run that began after this call has ended, at most max_ms. Callers
 * that wait at once share that run. False when there was none in time, or the loop does not run. */
bool loop_kick_wait(struct loop *l, int64_t max_ms);
void loop_stop(struct loop *l); /* joins */
void loop_free(struct loop *l); /* stops it first */

#endif
