/* training.c - the training API's routes; the handlers are beside it, by noun. */
#include "face/handlers.h"

#define SMALL ((size_t)64 << 10)
#define EXEC_INPUT ((size_t)96 << 10) /* FLOW_CHUNK_MAX as base64, and its numbers */
#define LARGE ((size_t)8 << 20)       /* a specification with long commands and many variables */
#define PROJECT "/v1/training_projects/{project_id}"
#define JOB PROJECT "/jobs/{job_id}"
#define TEAM "/v1/teams/{team_id}"

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/training_projects",            projects_list,           "Projects, the last used first" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/training_projects",            project_put,             "Make a project, or find it by its name" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, TEAM "/training_projects",          project_put_in_team,     "The same, in a team" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT,                            project_show,            "One project" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, PROJECT,                            project_remove,          "Remove a project with its jobs, checkpoints and cache" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT "/jobs",                    jobs_of_project,         "Jobs of a project, the newest first" },
	{ HTTP_POST,   SCOPE_MEMBER, LARGE, PROJECT "/jobs",                    job_push,                "Push a job" },
	{ HTTP_POST,   SCOPE_MEMBER, LARGE, "/v1/training_jobs/check",          job_dry_run,             "Check a job for a project by name; nothing is stored" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, "/v1/training_jobs/search",         jobs_search,             "Find jobs" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/resolve",                      resolve_word,            "What a word means: an id, a name, the start of an id, or @ for the caller's newest; 409 with the candidates when it is ambiguous" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB,                                job_show,                "One job, with its specification" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB,                                job_change,              "Change priority or availability of a pending job" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, JOB,                                job_remove,              "Remove a job that has ended" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/stop",                        job_stop,                "Stop a job" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/recreate",                    job_recreate,            "Push the same job again; resume: from its newest complete checkpoint" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/events",                      job_events,              "What happened to a job" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/attempts",                    job_attempts,            "Where a job ran" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, JOB "/logs",                        logs_post,               "Lines of a job by time" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/logs",                        logs_get,                "Lines of a job by time" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/logs/raw",                    logs_raw,                "Log records of one node from an offset; waits for more" },
	{ HTTP_POST,   SCOPE_VIEWER, SMALL, JOB "/metrics",                     metrics_post,            "What a job used, as series" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/metrics",                     metrics_get,             "What a job used, as series" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/checkpoints",                 checkpoints_list,        "Checkpoints of a job" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/checkpoint_files",            checkpoint_files,        "Files of checkpoints, with signed URLs" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/checkpoints/{checkpoint...}", checkpoint_change,       "Pin or unpin a checkpoint" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, JOB "/checkpoints/{checkpoint...}", checkpoint_remove,       "Remove a checkpoint" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/download",                    job_download,            "Signed URL of the code that was pushed" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     JOB "/auth_codes",                  job_auth_codes,          "Interactive sessions of a job: there are none" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/interactive_session",         job_no_session,          "Refused: there are no sessions; use exec" },
	{ HTTP_PATCH,  SCOPE_MEMBER, SMALL, JOB "/interactive_sessions/{session_id}", job_no_session,    "Refused: there are no sessions; use exec" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/ssh/sign",                    job_no_session,          "Refused: there is no ssh; use exec" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, JOB "/exec",                        job_exec,                "Run a command inside a job" },
	{ HTTP_GET,    SCOPE_MEMBER, 0,     JOB "/exec/{exec_id}",              job_exec_poll,           "Output of such a command; waits for more" },
	{ HTTP_POST,   SCOPE_MEMBER, EXEC_INPUT, JOB "/exec/{exec_id}",         job_exec_input,          "Input of such a command, the size of its terminal; waits for room" },
	{ HTTP_DELETE, SCOPE_MEMBER, 0,     JOB "/exec/{exec_id}",              job_exec_end,            "Hang up such a command, or leave it to itself" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     PROJECT "/cache/summary",           cache_project_summary,   "The last snapshot of a project's cache" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, PROJECT "/cache/summarize",         cache_project_summarize, "Take a snapshot of a project's cache now" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, PROJECT "/cache/files",             cache_project_remove,    "Remove a file or folder of a project's cache" },
	{ HTTP_PATCH,  SCOPE_ADMIN,  SMALL, PROJECT "/cache",                   cache_project_quota,     "Set the quota of a project's cache" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     TEAM "/cache/summary",              cache_team_summary,      "The last snapshot of a team's cache" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, TEAM "/cache/summarize",            cache_team_summarize,    "Take a snapshot of a team's cache now" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, TEAM "/cache/files",                cache_team_remove,       "Remove a file or folder of a team's cache" },
	{ HTTP_POST,   SCOPE_ADMIN,  SMALL, "/v1/upkeep",                       upkeep_post,             "Collect what nothing uses, or read again what is stored; one at a time" },
	{ HTTP_GET,    SCOPE_ADMIN,  0,     "/v1/upkeep",                       upkeep_get,              "How far that is, or what it found" },
	{ HTTP_DELETE, SCOPE_ADMIN,  SMALL, "/v1/upkeep/{upkeep_id}",           upkeep_delete,           "Stop it; what it did stays done" },
	{ HTTP_GET,    SCOPE_VIEWER, 0,     "/v1/weights",                      weights_list,            "Mirrored weights" },
	{ HTTP_POST,   SCOPE_MEMBER, SMALL, "/v1/weights",                      weights_prefetch,        "Fetch weights ahead of a job" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL, "/v1/weights/{weights_id}",         weights_remove,          "Remove mirrored weights" },
	{ HTTP_GET,    SCOPE_MEMBER, 0,     "/v1/blobs/credentials/train",      upload_credentials,      "Credentials to upload one archive of code" },
};
/* clang-format on */

const struct face face_training = {"training", routes, COUNT(routes), NULL};
