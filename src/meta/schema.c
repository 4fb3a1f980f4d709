/*
 * schema.c - the tables, as migrations that are only ever added to. STRICT: a column holds the type
 * it says. Times are wall milliseconds with 0 for never; states are the stored words of core/. They
 * are in SQLite's words; other drivers translate these (db.h).
 */
#include "meta/schema.h"

static const char version_1[] =
	/* the server's own small values, sealed where they are secret */
	"CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;"

	"CREATE TABLE clusters ("
	" name TEXT PRIMARY KEY, engine TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT;"

	"CREATE TABLE teams ("
	" id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, is_default INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL) STRICT;"
	"CREATE UNIQUE INDEX teams_default ON teams(is_default) WHERE is_default = 1;"

	"CREATE TABLE tokens ("
	" id TEXT PRIMARY KEY, name TEXT NOT NULL, team_id TEXT REFERENCES teams(id) ON DELETE "
	"CASCADE,"
	" hash TEXT NOT NULL UNIQUE, role INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
	" expires_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL) STRICT;"

	/* name_key: the name with every non-alphanumeric as '-': those are equal in names of
           secrets */
	"CREATE TABLE secrets ("
	" id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id) ON DELETE CASCADE,"
	" name TEXT NOT NULL, name_key TEXT NOT NULL, version TEXT NOT NULL, sealed BLOB NOT NULL,"
	" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
	" UNIQUE (team_id, name_key)) STRICT;"

	"CREATE TABLE projects ("
	" id TEXT PRIMARY KEY, name TEXT NOT NULL, team_id TEXT NOT NULL REFERENCES teams(id),"
	" pinned_cluster TEXT, cache_quota INTEGER NOT NULL, job_count INTEGER NOT NULL DEFAULT 0,"
	" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, UNIQUE (team_id, name)) STRICT;"

	"CREATE TABLE jobs ("
	" id TEXT PRIMARY KEY, name TEXT NOT NULL,"
	" project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE, team_id TEXT NOT "
	"NULL,"
	" state TEXT NOT NULL, attempt INTEGER NOT NULL, attempt_max INTEGER NOT NULL,"
	" changed_ms INTEGER NOT NULL, priority INTEGER NOT NULL,"
	" spec_json TEXT NOT NULL, document_json TEXT NOT NULL, frozen_json TEXT,"
	" reason TEXT, error_message TEXT, \"end\" TEXT NOT NULL DEFAULT 'none',"
	" end_code INTEGER NOT NULL DEFAULT 0, attempt_id TEXT, \"user\" TEXT NOT NULL,"
	" recreated_from TEXT, sync_status TEXT, stop_now INTEGER NOT NULL DEFAULT 0,"
	" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,"
	" started_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0,"
	" node_count INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, gpu_count INTEGER NOT NULL,"
	" memory_bytes INTEGER NOT NULL, gpu_type TEXT,"
	" stage TEXT, progress TEXT, progress_done INTEGER NOT NULL DEFAULT 0,"
	" progress_total INTEGER NOT NULL DEFAULT 0, progress_rate REAL NOT NULL DEFAULT 0,"
	" heartbeat_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
	"CREATE INDEX jobs_project ON jobs(project_id, created_ms);"
	"CREATE INDEX jobs_state ON jobs(state, created_ms);"
	"CREATE INDEX jobs_created ON jobs(created_ms);"

	"CREATE TABLE idempotency ("
	" project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE, key TEXT NOT NULL,"
	" job_id TEXT NOT NULL, created_ms INTEGER NOT NULL,"
	" PRIMARY KEY (project_id, key)) STRICT;"

	"CREATE TABLE events ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" job_id TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, ms INTEGER NOT NULL,"
	" kind TEXT NOT NULL, from_state TEXT, to_state TEXT, actor TEXT NOT NULL,"
	" message TEXT NOT NULL) STRICT;"
	"CREATE INDEX events_job ON events(job_id, seq);"

	/* A row is one node's part of one attempt; done_ms: its folder is gone, nothing is left of
           it. */
	"CREATE TABLE attempts ("
	" id TEXT NOT NULL, job_id TEXT NOT NULL, number INTEGER NOT NULL,"
	" node_rank INTEGER NOT NULL, node TEXT NOT NULL, cluster TEXT NOT NULL, gpus INTEGER NOT "
	"NULL,"
	" token_hash TEXT UNIQUE, claim TEXT, dir TEXT NOT NULL, engine_ref TEXT,"
	" ready INTEGER NOT NULL DEFAULT 0, exit_json TEXT, launched_ms INTEGER NOT NULL DEFAULT 0,"
	" claimed_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER NOT NULL DEFAULT 0,"
	" heartbeat_ms INTEGER NOT NULL DEFAULT 0, done_ms INTEGER NOT NULL DEFAULT 0,"
	" PRIMARY KEY (id, node_rank)) STRICT;"
	"CREATE INDEX attempts_job ON attempts(job_id, number, node_rank);"
	"CREATE INDEX attempts_open ON attempts(done_ms) WHERE done_ms = 0;"

	"CREATE TABLE checkpoints ("
	" job_id TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	" rank INTEGER NOT NULL, state TEXT NOT NULL, kind TEXT NOT NULL, base_model TEXT,"
	" lora_r INTEGER NOT NULL, created_ms INTEGER NOT NULL, synced_ms INTEGER NOT NULL,"
	" bytes INTEGER NOT NULL, bytes_sent INTEGER NOT NULL, files INTEGER NOT NULL,"
	" manifest_key TEXT, PRIMARY KEY (job_id, name, rank)) STRICT;"

	"CREATE TABLE mirrors ("
	" id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id) ON DELETE CASCADE,"
	" source TEXT NOT NULL, revision TEXT NOT NULL, filter_json TEXT NOT NULL, manifest TEXT,"
	" state TEXT NOT NULL, error TEXT, bytes_total INTEGER NOT NULL, bytes_done INTEGER NOT "
	"NULL,"
	" files_total INTEGER NOT NULL, files_done INTEGER NOT NULL, rate REAL NOT NULL,"
	" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
	" UNIQUE (team_id, source, revision, filter_json)) STRICT;"

	/* job_code: which jobs were pushed with an upload; none and old: the janitor takes the
           object */
	"CREATE TABLE uploads ("
	" access_key TEXT PRIMARY KEY, sealed BLOB NOT NULL, key TEXT NOT NULL UNIQUE,"
	" team_id TEXT NOT NULL, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL) STRICT;"
	"CREATE TABLE job_code ("
	" job_id TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, key TEXT NOT NULL,"
	" PRIMARY KEY (job_id, key)) STRICT;"
	"CREATE INDEX job_code_key ON job_code(key);"

	"CREATE TABLE snapshots ("
	" scope TEXT NOT NULL, scope_id TEXT NOT NULL, ms INTEGER NOT NULL, bytes INTEGER NOT NULL,"
	" files INTEGER NOT NULL, summary_file TEXT NOT NULL, PRIMARY KEY (scope, scope_id)) "
	"STRICT;"

	"CREATE TABLE capacity ("
	" team_id TEXT NOT NULL REFERENCES teams(id) ON DELETE CASCADE, gpu_type TEXT NOT NULL,"
	" max_gpus INTEGER NOT NULL, PRIMARY KEY (team_id, gpu_type)) STRICT;"

	/* what a deleted row has left on disk; emptied after the commit, and again after a crash */
	"CREATE TABLE trash ("
	" id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, what TEXT NOT NULL) STRICT;";

/* Fields that lists show are columns: a list does not read specifications. */
static const char version_2[] = "ALTER TABLE jobs ADD COLUMN spot INTEGER NOT NULL DEFAULT 0;";
static const char fill_2[] =
	"UPDATE jobs SET spot = 1"
	" WHERE json_extract(spec_json, '$.compute.availability_model') = 'spot';";

/* Checkpoints that a person keeps regardless of the job's keep_last. */
static const char version_3[] =
	"ALTER TABLE checkpoints ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;";

/* Deliveries that webhooks still wait for. They outlive their job: an event is delivered even if
 * the job was deleted right afterwards. */
static const char version_4[] =
	"CREATE TABLE notices ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, job_id TEXT NOT NULL,"
	" team_id TEXT NOT NULL, webhook TEXT NOT NULL, moment TEXT NOT NULL, body TEXT NOT NULL,"
	" created_ms INTEGER NOT NULL, tries INTEGER NOT NULL DEFAULT 0,"
	" due_ms INTEGER NOT NULL) STRICT;"
	"CREATE INDEX notices_due ON notices(due_ms);"
	"CREATE INDEX notices_webhook ON notices(team_id, webhook, due_ms);";

/* A runner's report on limits.idle_gpu; the job ends when all of its nodes are idle. */
static const char version_5[] = "ALTER TABLE attempts ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;";

/* The stable id of error_message (base/err_ids.h): nobody has to match its words. */
static const char version_6[] = "ALTER TABLE jobs ADD COLUMN error_id TEXT;";

/* Fields of a specification that the queue needs are columns, so that a pass reads no
 * specification. cache: 1 = enabled, 2 = only where the project's cache is. A row with a damaged
 * specification keeps zeros. */
static const char version_7[] =
	"ALTER TABLE jobs ADD COLUMN cache INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE jobs ADD COLUMN max_duration_s INTEGER NOT NULL DEFAULT 0;"
	"CREATE INDEX jobs_line ON jobs(state, priority DESC, created_ms, id);";
static const char fill_7[] =
	"UPDATE jobs SET"
	" cache = CASE WHEN json_extract(spec_json, '$.runtime.cache_config.enabled') = 1 THEN 1 +"
	"  (json_extract(spec_json, '$.runtime.cache_config.require_cache_affinity') = 1) ELSE 0 "
	"END,"
	" max_duration_s ="
	"  coalesce(CAST(json_extract(spec_json, '$.limits.max_duration') AS INTEGER), 0)"
	" WHERE json_valid(spec_json);";

/* Why a checkpoint has its state (core/ckpt_rule.h). */
static const char version_8[] =
	"ALTER TABLE checkpoints ADD COLUMN rule INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE checkpoints ADD COLUMN reason TEXT;"
	"ALTER TABLE checkpoints ADD COLUMN trainer TEXT;"
	"ALTER TABLE checkpoints ADD COLUMN updating TEXT;"
	"ALTER TABLE checkpoints ADD COLUMN marked_by TEXT;"
	"ALTER TABLE checkpoints ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;";

/* People ask by name, and for what is theirs. */
static const char version_9[] =
	"CREATE INDEX jobs_name ON jobs(name);"
	"CREATE INDEX jobs_user ON jobs(\"user\", created_ms);"
	"CREATE INDEX jobs_user_state ON jobs(\"user\", state, created_ms);";

/* Code that was sent before is not sent again. */
static const char version_10[] = "ALTER TABLE uploads ADD COLUMN sha256 TEXT;"
				 "CREATE INDEX uploads_sha256 ON uploads(team_id, sha256);";

/* Which manifests a job that is not over has frozen: they are kept. */
static const char version_11[] =
	"CREATE TABLE job_weights ("
	" job_id TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, manifest TEXT NOT NULL,"
	" PRIMARY KEY (job_id, manifest)) STRICT, WITHOUT ROWID;"
	"CREATE INDEX job_weights_manifest ON job_weights(manifest);";
static const char fill_11[] =
	"INSERT OR IGNORE INTO job_weights (job_id, manifest)"
	" SELECT j.id, json_extract(w.value, '$.manifest') FROM jobs j,"
	"  json_each(CASE WHEN json_valid(j.frozen_json) THEN j.frozen_json ELSE '{}' END,"
	"  '$.weights') w"
	" WHERE json_extract(w.value, '$.manifest') IS NOT NULL AND j.state NOT IN"
	"  ('completed', 'deploy-failed', 'failed', 'stopped');";

/* Jobs are placed when their weights are here. Those that wait already fetch as they did before. */
static const char version_12[] =
	"ALTER TABLE jobs ADD COLUMN inputs_missing INTEGER NOT NULL DEFAULT 0;";

/* A checkpoint of several nodes has one state; what each node says of its part stands beside. */
static const char version_13[] =
	"ALTER TABLE checkpoints ADD COLUMN part_state TEXT;"
	"ALTER TABLE checkpoints ADD COLUMN part_rule INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE checkpoints ADD COLUMN part_reason TEXT;";

/* The space that weights take in the node cache is looked up by manifest. */
static const char version_14[] = "CREATE INDEX mirrors_manifest ON mirrors(manifest);";

/* Queries for a team's or a project's jobs do not slow down with finished jobs, or with those of
 * other teams. */
static const char version_15[] =
	"CREATE INDEX jobs_team ON jobs(team_id, created_ms);"
	"CREATE INDEX jobs_team_state ON jobs(team_id, state, created_ms);"
	"CREATE INDEX jobs_project_state ON jobs(project_id, state, created_ms);";

/* What this database is to another one, while its rows are moved and afterwards (move.h). */
static const char version_16[] =
	"CREATE TABLE moves ("
	" role TEXT PRIMARY KEY, id TEXT NOT NULL, place TEXT NOT NULL) STRICT;";

/* In which data folder an attempt's runner was started: only its server knows of that runner. */
static const char version_17[] = "ALTER TABLE attempts ADD COLUMN node_id TEXT;";

/* What is kept by content is named here and nowhere else (meta_refs.c); weights move onto it. A
 * team of "" is everybody's. */
static const char version_18[] =
	"CREATE TABLE refs ("
	" team_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, manifest TEXT NOT NULL,"
	" bytes INTEGER NOT NULL, files INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
	" used_ms INTEGER NOT NULL, PRIMARY KEY (team_id, kind, name)) STRICT;"
	"CREATE INDEX refs_manifest ON refs(manifest);"
	"INSERT INTO refs (team_id, kind, name, manifest, bytes, files, created_ms, used_ms)"
	" SELECT team_id, 'weights', id, manifest, bytes_total, files_total, created_ms, used_ms"
	" FROM mirrors WHERE manifest IS NOT NULL;"
	"DROP INDEX mirrors_manifest;"
	"ALTER TABLE mirrors DROP COLUMN manifest;"
	"ALTER TABLE mirrors DROP COLUMN used_ms;"
	/* Which commit a branch or a tag of another Hub was, and when it was last asked for. */
	"CREATE TABLE hub_revs ("
	" team_id TEXT NOT NULL, repo TEXT NOT NULL, rev TEXT NOT NULL, \"commit\" TEXT NOT NULL,"
	" checked_ms INTEGER NOT NULL, PRIMARY KEY (team_id, repo, rev)) STRICT;";

/* Repositories that people write to. A commit's files are named by a ref of kind "repo". The key is
 * models/owner/name in lower case; repo_moves has those that a repository had before. */
static const char version_19[] =
	"CREATE TABLE repos ("
	" id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id), key TEXT NOT NULL "
	"UNIQUE,"
	" owner_key TEXT NOT NULL, type TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL,"
	" of_user INTEGER NOT NULL, is_private INTEGER NOT NULL, bytes INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL) STRICT;"
	"CREATE INDEX repos_team ON repos(team_id);"
	"CREATE INDEX repos_owner ON repos(owner_key);"
	"CREATE TABLE repo_refs ("
	" repo_id TEXT NOT NULL REFERENCES repos(id) ON DELETE CASCADE, kind TEXT NOT NULL,"
	" name TEXT NOT NULL, \"commit\" TEXT NOT NULL, PRIMARY KEY (repo_id, kind, name)) STRICT;"
	"CREATE TABLE repo_commits ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" repo_id TEXT NOT NULL REFERENCES repos(id) ON DELETE CASCADE,"
	" \"commit\" TEXT NOT NULL, parent TEXT, title TEXT NOT NULL, message TEXT NOT NULL,"
	" author TEXT NOT NULL, ms INTEGER NOT NULL, UNIQUE (repo_id, \"commit\")) STRICT;"
	"CREATE TABLE repo_pulls ("
	" repo_id TEXT NOT NULL REFERENCES repos(id) ON DELETE CASCADE, num INTEGER NOT NULL,"
	" status TEXT NOT NULL, title TEXT NOT NULL, author TEXT NOT NULL, target TEXT NOT NULL,"
	" base TEXT NOT NULL, merged TEXT, created_ms INTEGER NOT NULL,"
	" PRIMARY KEY (repo_id, num)) STRICT;"
	"CREATE TABLE repo_events ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" repo_id TEXT NOT NULL REFERENCES repos(id) ON DELETE CASCADE, num INTEGER NOT NULL,"
	" kind TEXT NOT NULL, author TEXT NOT NULL, earlier TEXT NOT NULL, body TEXT NOT NULL,"
	" ms INTEGER NOT NULL) STRICT;"
	"CREATE INDEX repo_events_pull ON repo_events(repo_id, num);"
	"CREATE TABLE repo_moves ("
	" key TEXT PRIMARY KEY,"
	" repo_id TEXT NOT NULL REFERENCES repos(id) ON DELETE CASCADE) STRICT;";

/* What compilers and build tools keep under keys of their own (meta_artifacts.c). One that is not
 * in_row names a blob, and is a root of it as a ref is one of a manifest. owner "": the team's. */
static const char version_20[] =
	"CREATE TABLE artifacts ("
	" seq INTEGER PRIMARY KEY AUTOINCREMENT,"
	" team_id TEXT NOT NULL REFERENCES teams(id) ON DELETE CASCADE, owner TEXT NOT NULL,"
	" name TEXT NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL, in_row INTEGER NOT NULL,"
	" body BLOB NOT NULL, UNIQUE (team_id, owner, name)) STRICT;"
	"CREATE INDEX artifacts_used ON artifacts(team_id, owner, used_ms, bytes);"
	"CREATE INDEX artifacts_files ON artifacts(digest) WHERE in_row = 0;";

/* An artifact is code: who has stored it, and the job that did. Of those from before nobody knows.
 */
static const char version_21[] =
	"ALTER TABLE artifacts ADD COLUMN stored_by TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE artifacts ADD COLUMN job_id TEXT;"
	"CREATE INDEX artifacts_stored ON artifacts(team_id, owner, created_ms);";

/* Jobs that serve one checkpoint under one name: what people want of them (core/deployment.h), and
 * the job that one of them is. A job of no deployment has none. */
static const char version_22[] =
	"CREATE TABLE deployments ("
	" id TEXT PRIMARY KEY, team_id TEXT NOT NULL REFERENCES teams(id) ON DELETE CASCADE,"
	" project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE, name TEXT NOT NULL,"
	" wanted TEXT NOT NULL, revision INTEGER NOT NULL, replicas INTEGER NOT NULL,"
	" idle_s INTEGER NOT NULL, replaces INTEGER NOT NULL, checkpoint TEXT NOT NULL,"
	" document_json TEXT NOT NULL, \"user\" TEXT NOT NULL, created_ms INTEGER NOT NULL,"
	" updated_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, UNIQUE (team_id, name)) STRICT;"
	"CREATE INDEX deployments_project ON deployments(project_id);"
	"ALTER TABLE jobs ADD COLUMN deployment_id TEXT;"
	"ALTER TABLE jobs ADD COLUMN deployment_revision INTEGER NOT NULL DEFAULT 0;"
	"CREATE INDEX jobs_deployment ON jobs(deployment_id, state) WHERE deployment_id IS NOT "
	"NULL;";

/* Every list says how many jobs there are in all; this says it without a look at each of them. */
static const char version_23[] =
	"CREATE TABLE job_counts ("
	" team_id TEXT NOT NULL,"
	" project_id TEXT NOT NULL REFERENCES projects(id) ON DELETE CASCADE,"
	" \"user\" TEXT NOT NULL, state TEXT NOT NULL, n INTEGER NOT NULL,"
	" PRIMARY KEY (project_id, team_id, \"user\", state)) STRICT, WITHOUT ROWID;"
	"INSERT INTO job_counts (team_id, project_id, \"user\", state, n)"
	" SELECT team_id, project_id, \"user\", state, count(*) FROM jobs"
	" GROUP BY team_id, project_id, \"user\", state;";

/* fill: for the rows of an older SQLite database, in its own words. Other drivers are younger than
 * these: their tables are empty then. */
static const struct migration {
	const char *tables, *fill;
} migrations[SCHEMA_VERSION] = {
	{version_1, NULL},  {version_2, fill_2}, {version_3, NULL},     {version_4, NULL},
	{version_5, NULL},  {version_6, NULL},   {version_7, fill_7},   {version_8, NULL},
	{version_9, NULL},  {version_10, NULL},  {version_11, fill_11}, {version_12, NULL},
	{version_13, NULL}, {version_14, NULL},  {version_15, NULL},    {version_16, NULL},
	{version_17, NULL}, {version_18, NULL},  {version_19, NULL},    {version_20, NULL},
	{version_21, NULL}, {version_22, NULL},  {version_23, NULL}};

int schema_known(int64_t version, struct err *err)
{
	if (version <= SCHEMA_VERSION)
		return 0;
	return err_set(err, ERR_DATABASE_NEWER,
	               "the database is of a newer Stoker (schema %lld, this program knows %d):"
	               " start that version, or restore a backup",
	               (long long)version, SCHEMA_VERSION);
}

static int apply(struct db *db, bool *more, struct err *err)
{
	AUTO_DB_TX struct db_tx tx = {0};
	const struct migration *step;
	int64_t at = 0;

	if (db_begin(db, DB_WRITE, &tx, err) < 0 || db_version(&tx, &at, err) < 0)
		return -1;
	if (schema_known(at, err) < 0)
		return -1;
	*more = at < SCHEMA_VERSION;
	if (!*more)
		return 0;
	step = &migrations[at];
	if (db_script(&tx, step->tables, err) < 0 ||
	    (step->fill != NULL && db_is_sqlite(db) && db_script(&tx, step->fill, err) < 0))
		return err_wrap(err, "schema %lld", (long long)at + 1);
	if (db_set_version(&tx, at + 1, err) < 0)
		return -1;
	return db_commit(&tx, err);
}

int schema_migrate(struct db *db, struct err *err)
{
	bool more = true;

	while (more) {
		if (DB_AGAIN(apply(db, &more, err), err) < 0)
			return -1;
	}
	return 0;
}
