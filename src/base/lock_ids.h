/*
 * lock_ids.h - every lock of the program, outermost first: a thread takes them downwards in this
 * list, never upwards, and two of one name never at once. sync.c asserts it. docs/locks.md is
 * printed from here.
 */
#ifndef LOCK_IDS_H
#define LOCK_IDS_H

/* clang-format off */
/*    constant            name                where                    what it guards */
#define LOCK_IDS(X) \
	X(GC_TRASH,       "gc.trash",         "server/maintenance/maintenance_gc.c", "emptying the trash: held while files are removed") \
	X(QUEUE_PASS,     "queue.pass",       "server/control/queue.c",        "one pass of the queue: held across the database's I/O") \
	X(CKPTS,          "ckpts",            "server/app.h, by job",  "a checkpoint's row and its objects: held across their I/O") \
	X(STEPS,          "steps",            "server/app.h, by job",  "a line in a job's log and the step that it announces: held across their I/O") \
	X(MAINTENANCE,         "maintenance",           "server/maintenance/maintenance.c",       "the task that an administrator asked for") \
	X(INPUTS,         "inputs",           "server/control/inputs.c",       "jobs whose weights are fetched while they wait") \
	X(FETCHES,        "fetches",          "server/data/fetch.c",        "the list of fetches, and what each shows of itself") \
	X(REPO_COMMIT,    "repo.commit",      "server/data/hub_impl.h, by repository", "a branch that a commit moves: held across the database's and the store's I/O") \
	X(REPO_UPLOAD,    "repo.upload",      "server/data/repo_upload.c", "files that are uploaded in parts: held while one is opened") \
	X(HUB,            "hub",              "server/data/hub_impl.h",  "what is known of another Hub's repositories, and files on their way") \
	X(ARTIFACTS_EVICT, "artifacts.evict", "server/data/artifact_room.c", "who makes room for artifacts: held across the database's I/O") \
	X(ARTIFACTS_COLLECT, "artifacts.collect", "server/data/artifact_room.c", "who removes blobs of artifacts that went: held across the store's I/O") \
	X(ARTIFACTS,      "artifacts",        "server/data/artifact_room.c", "how much artifacts take, and blobs that none names any more") \
	X(ARTIFACTS_USED, "artifacts.used",   "server/data/artifact_room.c", "in stripes: when artifacts were used, until it is written") \
	X(MIRROR_ROOM,    "mirror.room",      "server/data/mirror_room.c",  "what fetches have reserved of the mirror") \
	X(WEIGHTS,        "weights",          "server/data/weights.c",      "the digests that manifests name, for runners that ask") \
	X(KEYED,          "keyed",            "server/control/keyed_executor.c",        "the keys that have a task") \
	X(SPECS,          "specs",            "server/control/specs.c",        "the specifications that were read") \
	X(LIVE,           "live",             "server/control/live.c",         "heartbeats, progress and what jobs wait for") \
	X(DEPLOYMENTS,    "deployments",      "server/control/deployments.c",  "deployments whose next job could not be pushed") \
	X(SERVING,        "serving",          "server/control/serving.c",      "the servers that jobs run, and their requests") \
	X(CACHE_WATCH,    "cache.watch",      "server/data/cache.c",        "how full the caches of running jobs were last seen") \
	X(EXEC,           "exec",             "server/api/exec.c",         "sessions of `stoker exec`") \
	X(LISTENER,       "listener",         "server/start/listener.c",     "the connection to the process that keeps the port") \
	X(STANDBY,        "standby",          "server/start/standby.c",      "what a standby says of itself") \
	X(KNOWN_TOKENS,   "known.tokens",     "server/api/auth.h",         "tokens that were good the last time") \
	X(IDENTITY,       "identity",         "server/api/identity.c", "the key of web identity: held while it is read or made") \
	X(PASSES,         "passes",           "server/api/object_rights.c", "tokens of runners that were good a moment ago") \
	X(LOOP,           "loop",             "server/app.c",          "a loop's wake-up") \
	X(DB_WRITE,       "db.write",         "meta/db.c",             "the writing connection: held by the open transaction") \
	X(DB_READ,        "db.read",          "meta/db.c",             "the list of idle reading connections") \
	X(DB_BEAT,        "db.beat",          "meta/db.c",             "the thread that says that this server still leads") \
	X(DB_VFS,         "db.vfs",           "meta/db_sqlite.c",      "SQLite's file methods") \
	X(ENGINE_SCOPE,   "engine.scope",     "engine/scope.c",        "what is known of the service manager") \
	X(REPORT_SAMPLE,  "report.sample",    "run/report_inner.h",    "who measures the job: held while it does") \
	X(REPORT,         "report",           "run/report_inner.h",    "what the server last said, and what is to be sent to it") \
	X(SAMPLER,        "sampler",          "run/sampler.c",         "the last sample") \
	X(SHIP,           "ship",             "run/ship.c",            "the table of checkpoint files") \
	X(SERVE,          "serve",            "run/serve.c",           "when the job's own server is asked again") \
	X(HARVEST,        "harvest",          "run/harvest.c",         "when the caches of compilers are to be looked at") \
	X(RUN_LOGS,       "run.logs",         "run/logs.c",            "a runner's log file") \
	X(JOBLOGS_STORE,  "joblogs.store",    "store/logs/joblog_store.h",  "by job, its log as objects: held across their I/O") \
	X(JOBLOGS_SAMPLES,"joblogs.samples",  "store/logs/joblog_impl.h",   "files of metrics: held across their I/O") \
	X(JOBLOGS,        "joblogs",          "store/logs/joblog_impl.h",   "the open logs of jobs") \
	X(JOBLOG,         "joblog",           "store/logs/joblog_impl.h",   "one log: held across its I/O") \
	X(JOBLOGS_DUE,    "joblogs.due",      "store/logs/joblog_store.h",  "which logs wait to be stored") \
	X(BUILT_LIST,     "built.list",       "store/blobs/built_list.c",    "what was built by content") \
	X(BUILT,          "built",            "store/blobs/built_list.c",    "one that is being built") \
	X(USAGE,          "usage",            "store/common/usage.c",         "the folders that a walk has still to read") \
	X(CREW,           "crew",             "store/common/crew.c",          "threads that take items, and their first error") \
	X(MIRROR,         "mirror",           "store/sources/mirror.c",        "tickets, order and the first error of a fetch") \
	X(UNDER_WAY,      "under.way",        "store/sources/bring.c",         "large files that are being fetched, for who wants the same") \
	X(BLOB_FOLDER,    "blob.folder",      "store/blobs/blob_held.c",     "by first byte, what blobs take: held while one is renamed, or a folder of them is measured") \
	X(BLOB_PINS,      "blob.pins",        "store/blobs/blob_pins.c",     "what fetches rely on: held while a collector renames one file") \
	X(BLOB_BATCH,     "blob.batch",       "store/blobs/blob_batch.c",    "small blobs that wait for their sync") \
	X(OBJSTORE,       "objstore",         "store/objects/objstore_impl.h", "since when a store has been away") \
	X(PASSING,        "passing",          "store/objects/passing.c", "the connections of processes that ask for files") \
	X(PASSED,         "passed",           "store/objects/objstore_passed.c", "idle connections to the process that has the files") \
	X(S3_UPLOAD,      "s3.upload",        "store/objects/objstore_s3_upload.c", "the parts of an upload") \
	X(XFER_WRITE,     "xfer.write",       "store/sources/xfer.c",          "the journal of a transfer: held while 20 bytes are written") \
	X(XFER,           "xfer",             "store/sources/xfer.c",          "the parts of a transfer") \
	X(COPY,           "copy",             "store/common/copy.c",          "the blocks between reader and hasher") \
	X(SOURCE_HF,      "source.hf",        "store/sources/source_hf.c",     "signed addresses") \
	X(CREDENTIAL,      "credential",       "store/sources/credential.c",    "what gives access for a while: held while a new one is fetched") \
	X(OBJSTORE_MEM,   "objstore.mem",     "tests/drivers/objstore_test.c", "the objects of a store in memory") \
	X(HTTPD_PARK,     "httpd.park",       "io/httpd_impl.h",       "who follows which channel") \
	X(EXCHANGE,       "exchange",         "io/httpd_impl.h",       "one request and its answer") \
	X(RELAY,          "relay",            "io/relay.c",            "requests that the relay's thread has not begun") \
	X(HTTPD_CONNS,    "httpd.conns",      "io/httpd_impl.h",       "the list of connections") \
	X(HTTPD,          "httpd",            "io/httpd_impl.h",       "the list of live exchanges") \
	X(CLIENT,         "client",           "io/client.c",           "idle connections of an HTTP client") \
	X(WORKERS,        "workers",          "io/workers.c",          "the queue of a pool of threads") \
	X(RESERVE,        "reserve",          "base/reserve.c",        "the file that is kept back for a full disk")
/* clang-format on */

#endif
