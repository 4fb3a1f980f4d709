/*
 * err_ids.h - the short, stable names of errors. Scripts and tests lean on them: an id is never
 * renamed or reused, its message may be reworded at any time. docs/errors.md is printed from here.
 *
 * An error that nobody tells apart from others of its class needs no row: its id is the word of
 * its class (not_found, conflict...). Rows are sorted by class, then by id.
 */
#ifndef ERR_IDS_H
#define ERR_IDS_H

/* clang-format off */
/*    constant              class        id                        when, and what helps */
#define ERR_IDS(X) \
	X(USAGE,                INVALID,     "usage",                  "The command line is wrong. `stoker COMMAND --help` shows how it is used.") \
	X(SPEC_INVALID,         INVALID,     "spec_invalid",           "The job file or request has mistakes; each is listed with its path.") \
	X(PYTHON_REQUIREMENTS_INVALID, INVALID, "python_requirements_invalid", "A requirements file is missing, or one of its lines cannot be part of a shared environment. docs/python.md says which lines are taken.") \
	X(TOKEN_INVALID,        AUTH,        "token_invalid",          "The token is missing, unknown, revoked or expired. Run `stoker login`.") \
	X(ROLE_REQUIRED,        DENIED,      "role_required",          "The token's role does not allow this. Ask an administrator for a token with the role named in the message.") \
	X(JOB_NOT_FOUND,        NOT_FOUND,   "job_not_found",          "No job that you can see has this id, prefix or name. `stoker ps -a` lists jobs.") \
	X(PROJECT_NOT_FOUND,    NOT_FOUND,   "project_not_found",      "No project that you can see has this id or name. `stoker projects ls` lists projects.") \
	X(TEAM_NOT_FOUND,       NOT_FOUND,   "team_not_found",         "No team has this id or name. `stoker teams ls` lists teams.") \
	X(SECRET_NOT_FOUND,     NOT_FOUND,   "secret_not_found",       "The team has no secret of this name. `stoker secrets set NAME` creates it.") \
	X(CHECKPOINT_NOT_FOUND, NOT_FOUND,   "checkpoint_not_found",   "The job has no checkpoint of this name. `stoker checkpoints ls JOB` lists them.") \
	X(TOKEN_NOT_FOUND,      NOT_FOUND,   "token_not_found",        "There is no API token with this id. `stoker tokens ls` lists them.") \
	X(WEIGHTS_NOT_FOUND,    NOT_FOUND,   "weights_not_found",      "Nothing is mirrored under this id. `stoker weights ls` lists what is.") \
	X(UPLOAD_NOT_FOUND,     NOT_FOUND,   "upload_not_found",       "The upload was never begun, has expired, or was aborted. Push again.") \
	X(ATTEMPT_NOT_FOUND,    NOT_FOUND,   "attempt_not_found",      "The runner's attempt is not known any more: its job was deleted.") \
	X(SUMMARY_NOT_FOUND,    NOT_FOUND,   "summary_not_found",      "The cache was never summarized. Run `stoker cache summarize`.") \
	X(CHECKPOINT_INCOMPLETE, NOT_FOUND,  "checkpoint_incomplete",  "The checkpoint is there but not complete, so it is not loaded. `stoker checkpoints ls JOB --all` says why.") \
	X(NAME_AMBIGUOUS,       CONFLICT,    "name_ambiguous",         "Several things match this name or prefix. Use one of the ids in the message.") \
	X(JOB_NEVER_FITS,       QUOTA,       "job_never_fits",         "No machine of this server could ever run the job. Ask for less, or add a machine.") \
	X(CACHE_QUOTA_EXCEEDED, QUOTA,       "cache_quota_exceeded",   "The project's cache is over its quota. Remove files with `stoker cache rm`, or raise it with `stoker cache quota`.") \
	X(STORED_SPEC,          CORRUPT,     "stored_spec_unreadable", "The database's copy of the job's specification is damaged. Push the job again.")
/* clang-format on */

#endif
