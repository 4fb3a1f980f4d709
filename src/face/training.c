/* training.c - the training API's routes; the handlers are beside it, by noun. */
#include "face/handlers.h"

#define SMALL ((size_t)64 << 10)
#define LARGE ((size_t)8 << 20) /* a specification with long commands and many variables */
#define PROJECT "/v1/training_projects/{project_id}"
#define JOB PROJECT "/jobs/{job_id}"
#define TEAM "/v1/teams/{team_id}"

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/training_projects",            projects_list,           "List projects, most recently used first" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/training_projects",            project_put,             "Create a project, or return the one with this name" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, TEAM "/training_projects",          project_put_in_team,     "Create a project in a team, or return the one with this name" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT,                            project_show,            "Get a project" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, PROJECT,                            project_remove,          "Delete a project with its jobs, checkpoints and cache" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT "/jobs",                    jobs_of_project,         "List the jobs of a project, newest first" },
	{ HTTP_POST,   SCOPE_MEMBER, LARGE, PROJECT "/jobs",                    job_push,                "Push a job" },
	{ HTTP_POST,   SCOPE_MEMBER, LARGE, "/v1/training_jobs/check",          job_dry_run,             "Validate a job without storing anything; with forecast, reason says what it would wait for" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, "/v1/training_jobs/search",         jobs_search,             "Search jobs" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/resolve",                      resolve_word,            "Resolve an id, an id prefix, a name, or @ (the caller's newest); 409 with the candidates if ambiguous; several=active or newest takes the only active job of a name, or else its newest" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB,                                job_show,                "Get a job with its specification" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB,                                job_change,              "Change the priority or availability model of a pending job" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, JOB,                                job_remove,              "Delete a finished job" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/stop",                        job_stop,                "Stop a job" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/recreate",                    job_recreate,            "Push the same job again; with resume, from its newest complete checkpoint" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/events",                      job_events,              "List the events of a job" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/attempts",                    job_attempts,            "List the attempts of a job" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, JOB "/logs",                        logs_post,               "Get log lines of a job by time" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/logs",                        logs_get,                "Get log lines of a job by time" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/logs/raw",                    logs_raw,                "Get log records of one node from an offset; long-polls for more" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, JOB "/metrics",                     metrics_post,            "Get resource metrics of a job as time series" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/metrics",                     metrics_get,             "Get resource metrics of a job as time series" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/checkpoints",                 checkpoints_list,        "List the checkpoints of a job" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/checkpoint_files",            checkpoint_files,        "List checkpoint files with signed URLs: of the object store, or, with by_server, always of this server" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/checkpoints/{checkpoint...}", checkpoint_change,       "Pin or unpin a checkpoint, or mark it as complete" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, JOB "/checkpoints/{checkpoint...}", checkpoint_remove,       "Delete a checkpoint" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/checkpoints",                 checkpoint_change,       "The same; `checkpoint` names it, which may be ." },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, JOB "/checkpoints",                 checkpoint_remove,       "The same; `checkpoint` names it, which may be ." },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/download",                    job_download,            "Get a signed URL of the pushed code" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/auth_codes",                  job_auth_codes,          "Always empty: there are no interactive sessions" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/interactive_session",         job_no_session,          "Refused: there are no sessions; use exec" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/interactive_sessions/{session_id}", job_no_session,    "Refused: there are no sessions; use exec" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/ssh/sign",                    job_no_session,          "Refused: there is no ssh; use exec" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/exec",                        job_exec,                "Run a command in a job" },
	{ HTTP_GET,    SCOPE_MEMBER, 0,     JOB "/exec/{exec_id}",              job_exec_join,           "Connect to an exec command: Upgrade to stoker-exec" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT "/cache/summary",           cache_project_summary,   "Get the latest summary of a project's cache" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, PROJECT "/cache/summarize",         cache_project_summarize, "Summarize a project's cache now" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, PROJECT "/cache/files",             cache_project_remove,    "Delete a file or folder in a project's cache" },
	{ HTTP_PATCH,  SCOPE_ADMIN,  SMALL, PROJECT "/cache",                   cache_project_quota,     "Set the quota of a project's cache" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     TEAM "/cache/summary",              cache_team_summary,      "Get the latest summary of a team's cache" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, TEAM "/cache/summarize",            cache_team_summarize,    "Summarize a team's cache now" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, TEAM "/cache/files",                cache_team_remove,       "Delete a file or folder in a team's cache" },
	{ HTTP_POST,   SCOPE_ADMIN,  SMALL, "/v1/maintenance",                       maintenance_post,             "Start garbage collection or verification; one runs at a time" },
	{ HTTP_GET,    SCOPE_ADMIN,  0,     "/v1/maintenance",                       maintenance_get,              "Get its progress or result" },
	{ HTTP_DELETE, SCOPE_ADMIN,  SMALL, "/v1/maintenance/{maintenance_id}",           maintenance_delete,           "Cancel it; finished work is kept" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/weights",                      weights_list,            "List mirrored weights" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/weights",                      weights_prefetch,        "Fetch weights ahead of a job" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, "/v1/weights/{weights_id}",         weights_remove,          "Delete mirrored weights" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/repositories",                 repositories_list,              "List this server's own repositories; type, owner, search" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/repositories",                 repository_make,               "Create a repository" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/repositories/{type}/{owner}/{name}", repository_show,         "Show a repository: its size, branches, tags and newest commits" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, "/v1/repositories/{type}/{owner}/{name}", repository_delete,       "Delete a repository, with all of its commits" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/deployments",                  deployments_list,        "List deployments, and the jobs that serve without one" },
	{ HTTP_POST,   SCOPE_MEMBER, LARGE, "/v1/deployments",                  deployments_create,      "Deploy a checkpoint under a name, or roll it in where another one is" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/deployments/{name}",           deployment_show,         "Show a deployment and its jobs" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, "/v1/deployments/{name}",           deployment_change,       "Change how many jobs a deployment has, and when it sleeps" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/deployments/{name}/stop",      deployment_stop,         "Stop a deployment: its jobs end, its name stays" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/deployments/{name}/start",     deployment_start,        "Start a deployment that was stopped, sleeps or has failed" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, "/v1/deployments/{name}",           deployment_remove,       "Delete a deployment; its jobs are stopped" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/artifacts",                    artifacts_list,          "List a namespace's artifacts, the last stored first; namespace, by, job, limit, cursor" },
	{ HTTP_GET,    SCOPE_MEMBER, 0,     "/v1/blobs/credentials/train",      upload_credentials,      "Get credentials to upload one code archive; `exists` if the server already holds it; with direct, the archive's SHA-256, `put` is a request to the object store instead, where clients can be sent there" },
};
/* clang-format on */

const struct face face_training = {"training", routes, COUNT(routes), NULL};
