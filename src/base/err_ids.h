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
	X(REQUEST_MALFORMED,    INVALID,     "request_malformed",      "The headers of the HTTP request are ambiguous, so it is refused. The client or a proxy is broken.") \
	X(CONFIRMATION_REQUIRED, INVALID,    "confirmation_required",  "The command asks before it deletes something, and stdin is not a terminal. Pass --yes.") \
	X(COMMAND_UNKNOWN,      INVALID,     "command_unknown",        "stoker has no such command. The message suggests the one that does this, if any.") \
	X(JOB_FILE_EMPTY,       INVALID,     "job_file_empty",         "The job file is empty. The message shows the smallest one; `stoker init` writes one.") \
	X(UNIT_MISSING,         INVALID,     "unit_missing",           "The size has no unit and would be a few bytes. Write the unit: 512Mi, 64Gi.") \
	X(SECRET_NAME_INVALID,  INVALID,     "secret_name_invalid",    "Secret names have no blanks and no `=`. The value is read from the terminal or stdin, never from the command line.") \
	X(URL_INVALID,          INVALID,     "url_invalid",            "The server's URL is not complete. It starts with http:// or https://.") \
	X(SPEC_INVALID,         INVALID,     "spec_invalid",           "The job file or request has mistakes; each is listed with its path.") \
	X(PYTHON_REQUIREMENTS_INVALID, INVALID, "python_requirements_invalid", "A requirements file is missing, or one of its lines cannot be part of a shared environment. docs/python.md lists what is supported.") \
	X(SOURCE_EMPTY,         INVALID,     "source_empty",           "allow_patterns and ignore_patterns leave none of the source's files. Patterns without ** stop at a slash.") \
	X(SOURCE_SECRET_INVALID, INVALID,    "source_secret_invalid",  "The secret is not in the form that this kind of source expects. The message names it.") \
	X(REGISTRY_SECRET_INVALID, INVALID,  "registry_secret_invalid", "The secret of image.docker_auth is not in the form username:password. The message names it.") \
	X(SECRET_NOT_SET,       INVALID,     "secret_not_set",         "The job names secrets that its team does not have. `stoker secrets set NAME` creates them.") \
	X(SOURCE_INVALID,       INVALID,     "source_invalid",         "The source's URL, or a file name in it, cannot be used. The message says what is expected.") \
	X(ISSUER_NOT_PUBLIC,    INVALID,     "issuer_not_public",      "Web identity needs an issuer that AWS and Google trust: an https URL. An administrator sets --oidc-issuer, or --base-url.") \
	X(PLACE_SYSTEM,         INVALID,     "place_system",           "The job file mounts something on a system folder. Choose another folder.") \
	X(PLACE_SHARED,         INVALID,     "place_shared",           "The job file mounts something inside a cache. Choose a folder outside it.") \
	X(PYTHON_REQUIREMENTS_FAILED, INVALID,   "python_requirements_failed", "The Python environment could not be built. The message ends with the last lines of pip or uv; the job's log has all of them.") \
	X(TOKEN_INVALID,        AUTH,        "token_invalid",          "The token is missing, unknown, revoked or expired. Run `stoker login`.") \
	X(ADDRESS_DENIED,       DENIED,      "address_denied",         "A source, a webhook or a redirect leads to an internal address. An administrator can allow the network with --allow-source-network.") \
	X(ROLE_REQUIRED,        DENIED,      "role_required",          "The token's role or team does not allow this. The message names the role, or asks for a token for all teams.") \
	X(SERVER_UNPROVEN,      DENIED,      "server_unproven",        "The program that answers at the server's address did not prove that it is the server of this login, so the token was not sent. Check that the server is running and that the URL is right.") \
	X(SOURCE_DENIED,        DENIED,      "source_denied",          "The source refuses access. The secret, or the server's user for file://, must be allowed to list and read there.") \
	X(SOURCE_ENDPOINT_DENIED, DENIED,    "source_endpoint_denied", "This server does not allow the endpoint, or asks no other Hub. An administrator can allow its host with --allow-endpoint, or name a Hub with --hf-endpoint.") \
	X(SOURCE_REDIRECT_DENIED, DENIED,    "source_redirect_denied", "The source redirects in a loop, or from https to http. Use the file's final URL.") \
	X(SOURCE_ROOT_DENIED,   DENIED,      "source_root_denied",     "The file:// path is not in an allowed folder. An administrator can allow it with --allow-file-root.") \
	X(SOURCE_UNAUTHORIZED,  DENIED,      "source_unauthorized",    "The source requires credentials. Name a secret that holds them in auth_secret_name.") \
	X(IMAGE_DENIED,         DENIED,      "image_denied",           "The registry denies access to the image with these credentials, or without any. Check image.docker_auth and its secret.") \
	X(HUB_GATED,            DENIED,      "hub_gated",              "The repository is gated: its terms must be accepted at its Hub. Then set the secret hf_access_token of the team to a token of the account that did.") \
	X(MOUNT_REFUSED,        DENIED,      "mount_refused",          "A link or a file is where the job needs a folder to mount on. Rename it, or choose another folder in the job file.") \
	X(JOB_NOT_FOUND,        NOT_FOUND,   "job_not_found",          "No job that you can see has this id, prefix or name. `stoker ps -a` lists jobs.") \
	X(PROJECT_NOT_FOUND,    NOT_FOUND,   "project_not_found",      "No project that you can see has this id or name. `stoker projects ls` lists projects.") \
	X(DEPLOYMENT_NOT_FOUND, NOT_FOUND,   "deployment_not_found",   "No deployment that you can see has this name. `stoker deployments ls` lists them.") \
	X(TEAM_NOT_FOUND,       NOT_FOUND,   "team_not_found",         "No team has this id or name. `stoker teams ls` lists teams.") \
	X(SECRET_NOT_FOUND,     NOT_FOUND,   "secret_not_found",       "The team has no secret of this name. `stoker secrets set NAME` creates it.") \
	X(CHECKPOINT_NOT_FOUND, NOT_FOUND,   "checkpoint_not_found",   "The job has no checkpoint of this name. `stoker checkpoints ls JOB` lists them.") \
	X(TOKEN_NOT_FOUND,      NOT_FOUND,   "token_not_found",        "There is no API token with this id. `stoker tokens ls` lists them.") \
	X(WEIGHTS_NOT_FOUND,    NOT_FOUND,   "weights_not_found",      "No mirrored source has this id. `stoker weights ls` lists them.") \
	X(UPLOAD_NOT_FOUND,     NOT_FOUND,   "upload_not_found",       "The upload was never started, has expired, or was aborted. Push again.") \
	X(ATTEMPT_NOT_FOUND,    NOT_FOUND,   "attempt_not_found",      "The runner's attempt no longer exists: its job was deleted.") \
	X(SUMMARY_NOT_FOUND,    NOT_FOUND,   "summary_not_found",      "The cache was never summarized. Run `stoker cache summarize`.") \
	X(CACHE_PATH_NOT_FOUND, NOT_FOUND,   "cache_path_not_found",   "The cache has no file or folder of this path. `stoker cache ls` lists them.") \
	X(SOURCE_NOT_FOUND,     NOT_FOUND,   "source_not_found",       "The source does not exist, has no files, or has no such revision. Check its URL.") \
	X(HUB_REPO_NOT_FOUND,   NOT_FOUND,   "hub_repo_not_found",     "The Hub has no such repository, or it is private. For a private one, set the secret hf_access_token of the team to a token that may read it.") \
	X(HUB_REVISION_NOT_FOUND, NOT_FOUND, "hub_revision_not_found", "The repository has no such branch, tag or commit.") \
	X(HUB_ENTRY_NOT_FOUND,  NOT_FOUND,   "hub_entry_not_found",    "The repository has no such file or folder at this revision.") \
	X(HUB_OBJECT_NOT_FOUND, NOT_FOUND,   "hub_object_not_found",   "The commit names a large file that was not uploaded to this repository, or longer ago than a week. Upload it again.") \
	X(ARTIFACT_NOT_FOUND,   NOT_FOUND,   "artifact_not_found",     "The artifact store has nothing under this key, or you may not see the namespace: a namespace is the name of your team, or that of your token. For a tool it is a miss.") \
	X(IMAGE_NOT_FOUND,      NOT_FOUND,   "image_not_found",        "The image is not on the machine, and its registry does not have it. Check its name and tag.") \
	X(CHECKPOINT_INCOMPLETE, NOT_FOUND,  "checkpoint_incomplete",  "The checkpoint is there but not complete, so it is not loaded. `stoker checkpoints ls JOB --all` says why.") \
	X(PYTHON_NOT_FOUND,     NOT_FOUND,   "python_not_found",       "The machine, or the image, has no Python of the version that the job names. The message lists what was found.") \
	X(CHECKPOINT_NOT_STORED, CONFLICT,   "checkpoint_not_stored",  "Files of the checkpoint are not in the store: its upload did not finish, or they were deleted. It cannot be marked as complete.") \
	X(RUNNER_VERSION,       CONFLICT,    "runner_version",         "The job's runner is a program of another version of Stoker than the server, and the two do not understand each other. User code did not run. Install the server's version on the node, or restart the server after an upgrade.") \
	X(JOB_ENDED,            CONFLICT,    "job_ended",              "The job has already ended. `stoker recreate JOB` runs it again.") \
	X(JOB_OF_DEPLOYMENT,    CONFLICT,    "job_of_deployment",      "A deployment has started the job, and starts others as they are needed: one beside them would serve under the same name. The message says what helps.") \
	X(JOB_NOT_RUNNING,      CONFLICT,    "job_not_running",        "A command can only be run in a running job. `stoker view JOB` shows its state.") \
	X(JOB_NOT_PENDING,      CONFLICT,    "job_not_pending",        "Only a job that waits in the queue can be changed.") \
	X(CHECKPOINT_PINNED,    CONFLICT,    "checkpoint_pinned",      "The checkpoint is pinned. `stoker checkpoints unpin` removes the pin.") \
	X(HUB_REPO_EXISTS,      CONFLICT,    "hub_repo_exists",        "There is a repository of this name already.") \
	X(HUB_REF_EXISTS,       CONFLICT,    "hub_ref_exists",         "The repository has a branch or a tag of this name already.") \
	X(HUB_STALE,            CONFLICT,    "hub_stale",              "The branch has moved since the commit that the client names as its parent. Look at what it is now, and commit again.") \
	X(HUB_MERGE_CONFLICT,   CONFLICT,    "hub_merge_conflict",     "The pull request and its branch have both changed a file since it was opened. Commit what it is to be to the branch, and close the pull request, or open another one.") \
	X(HUB_PULL_ENDED,       CONFLICT,    "hub_pull_ended",         "The pull request is closed or merged. A closed one can be opened again; for what comes after a merge, open another one.") \
	X(HUB_FILE_IN_USE,      CONFLICT,    "hub_file_in_use",        "A commit names the large file that is to be deleted. Ask for the history to be rewritten, too, and the commits are made again without it.") \
	X(HUB_NAMESPACE_TAKEN,  CONFLICT,    "hub_namespace_taken",    "The namespace belongs to another team: a token of that name has made repositories there. Use another token name, or the name of your team.") \
	X(NAME_AMBIGUOUS,       CONFLICT,    "name_ambiguous",         "Several things match this name or prefix. Use one of the ids in the message.") \
	X(ADDRESS_IN_USE,       CONFLICT,    "address_in_use",         "Another process already listens on this address and port. `ss -ltnp` shows which. Stop it, or use another port.") \
	X(DATA_FOLDER_IN_USE,   CONFLICT,    "data_folder_in_use",     "Another server uses this data folder. The message names its process. Stop it, or use another folder.") \
	X(SOURCE_CHANGED,       CONFLICT,    "source_changed",         "The source has changed since it was resolved. Push the job again to use what is there now.") \
	X(PYTHON_BUILDER_MISSING, UNSUPPORTED, "python_builder_missing", "Nothing on the machine, or in the image, can build a Python environment. Install python3-venv, or uv.") \
	X(PRIORITY_TOO_HIGH,    DENIED,      "priority_too_high",      "The priority is above --max-priority. Use a lower one, or ask an administrator to raise the job.") \
	X(JOB_NEVER_FITS,       QUOTA,       "job_never_fits",         "No machine of this server could ever run the job. Ask for less, or add a machine.") \
	X(TOO_MANY_WAITING,     QUOTA,       "too_many_waiting",       "The team has as many waiting jobs as --max-waiting-jobs allows. Push again later, or stop some.") \
	X(CACHE_QUOTA_EXCEEDED, QUOTA,       "cache_quota_exceeded",   "The project's cache is over its quota. Remove files with `stoker cache rm`, or raise it with `stoker cache quota`.") \
	X(REPO_QUOTA_EXCEEDED,  QUOTA,       "repo_quota_exceeded",    "The team's repositories would be larger than --repo-quota allows. Delete some, or ask the administrator to raise it.") \
	X(SCRATCH_QUOTA_EXCEEDED, QUOTA,     "scratch_quota_exceeded", "The job wrote more bytes or files to its scratch, workspace and temporary folders than --scratch-size or --scratch-files allows, and was ended. If its code alone is too much, it was not started.") \
	X(VOLUME_FULL,          QUOTA,       "volume_full",            "The checkpoint folder grew larger than volume_size_gib, and the job was ended; or the job failed when the folder was full. Its complete checkpoints are kept. Raise the size, or keep fewer checkpoints.") \
	X(INODES_EXHAUSTED,     QUOTA,       "inodes_exhausted",       "The disk of the node was running out of inodes, and this job held most of them. It was ended. Write fewer, larger files.") \
	X(KEEPER_LOST,          IO,          "keeper_lost",            "A process that did what the job's runner may not do itself, as root had started it, was ended: by the machine, if it had no memory left, or by somebody. User code did not run. The job is retried if its retry rule names node_fail.") \
	X(STORED_SPEC,          CORRUPT,     "stored_spec_unreadable", "The database's copy of the job's specification is damaged. Push the job again.") \
	X(ARTIFACT_TOO_LARGE,   NO_SPACE,    "artifact_too_large",     "The artifact is larger than the whole artifact store may be. The administrator may raise --artifact-bytes.") \
	X(MIRROR_FULL,          NO_SPACE,    "mirror_full",            "Jobs and fetches under way need everything in the mirror, and the source does not fit in what is left. A job waits, a client may try again; a larger --mirror-bytes helps.") \
	X(MIRROR_TOO_SMALL,     NO_SPACE,    "mirror_too_small",       "The job's sources, or a file of a Hub, are larger than the whole mirror may be. Raise --mirror-bytes, or select fewer files with allow_patterns.") \
	X(NODE_CACHE_FULL,       NO_SPACE,    "node_cache_full",        "Running jobs are using the node cache, and this job's weights or Python environment do not fit in what is left. The job waits; a larger --node-cache-bytes helps.") \
	X(ARTIFACT_KEY,         INVALID,     "artifact_key_refused",   "The path does not end in a key of this protocol. The message says what the tool is expected to ask for; check its URL and its layout.") \
	X(ARTIFACT_DIGEST,      INVALID,     "artifact_digest_differs", "The bytes that came do not have the SHA-256 that they were sent under. Nothing was stored.") \
	X(LENGTH_REQUIRED,      INVALID,     "length_required",        "The request has no Content-Length (HTTP status 411). Send the body with its length, not in chunks.") \
	X(SOURCE_BUSY,          BUSY,        "source_busy",            "The source limits the rate of requests. Try again later; a secret often raises the limit.") \
	X(DIGEST_MISMATCH,      CORRUPT,     "digest_mismatch",        "The source sent data that does not match the digest it announced. The data is not used.") \
	X(SOURCE_BROKEN,        CORRUPT,     "source_broken",          "The source, or a proxy in front of it, violates its protocol. Check the endpoint.") \
	X(FILE_NAME_REFUSED,    CORRUPT,     "file_name_refused",      "The server lists a file under a name that is no plain path, commands a terminal, or is there twice, or turns the text of every name around. Nothing was written. `--include` pulls the others.") \
	X(SOURCE_UNSUPPORTED,   UNSUPPORTED, "source_unsupported",     "The source lacks a required feature, such as the length of a file.") \
	X(NOT_LOGGED_IN,        AUTH,        "not_logged_in",          "This user has no saved login, and STOKER_URL and STOKER_TOKEN are not set. Run `stoker login --url URL`.") \
	X(CA_FILE_UNREADABLE,   INVALID,     "ca_file_unreadable",     "STOKER_CA_FILE does not name a readable file of PEM certificates.") \
	X(HOST_UNKNOWN,         UNAVAILABLE, "host_unknown",           "The host name of the URL cannot be resolved. Check the name.") \
	X(HOST_UNREACHABLE,     UNAVAILABLE, "host_unreachable",       "Nothing answers at this address and port. Check that the server is running.") \
	X(TLS_EXPECTED,         UNAVAILABLE, "tls_expected",           "One side speaks TLS and the other does not. Use https:// for a server with TLS, http:// for one without.") \
	X(NOT_STOKER,           UNAVAILABLE, "not_stoker",             "Something answers at this URL, but it is not a Stoker server. Check the URL.") \
	X(CERTIFICATE_UNTRUSTED, UNAVAILABLE, "certificate_untrusted", "The certificate has expired, is for another name, or is not signed by a trusted authority. Install the authority's certificate with update-ca-certificates.") \
	X(SOURCE_UNREACHABLE,   UNAVAILABLE, "source_unreachable",     "The source cannot be reached or is failing. Try again later.") \
	X(REGISTRY_UNREACHABLE, UNAVAILABLE, "registry_unreachable",   "The image's registry cannot be reached from the machine, or does not use TLS. Check the image's name and the network.") \
	X(IMAGE_PULL_FAILED,    UNAVAILABLE, "image_pull_failed",      "podman could not pull the image, or was killed meanwhile; the message has its words. Try again.") \
	X(SOURCE_TIMEOUT,       TIMEOUT,     "source_timeout",         "The source sent nothing for too long. Try again later.") \
	X(PODMAN_MISSING,       UNSUPPORTED, "podman_missing",         "The job names an image, and the server's machine has no podman. Install it and start the server again.") \
	X(SANDBOX_CANNOT_MOUNT, UNSUPPORTED, "sandbox_cannot_mount",   "The server runs jobs in the plain sandbox, which cannot mount weights at their mount_location. Install bubblewrap on its machine and restart it.") \
	X(JOB_IDS_TAKEN,        CONFLICT,    "job_ids_taken",          "Some ids of the range set by --job-ids belong to other users of this machine, or all are in use. The message says whose they are.") \
	X(SANDBOX_UNAVAILABLE,  UNSUPPORTED, "sandbox_unavailable",    "The sandbox that --sandbox names does not work on this machine, or cannot run jobs without an image. The message says why.") \
	X(SANDBOX_FAILED,       UNAVAILABLE, "sandbox_failed",         "The sandbox of the job could not be started; the message says why. A weaker one is never used instead.") \
	X(STANDBY,              UNAVAILABLE, "standby",                "This server is a standby: another one leads, and the message names its address if it is known. Ask that one. A standby leads by itself within seconds when the leader is gone.") \
	X(DATABASE_UNAVAILABLE, UNAVAILABLE, "database_unavailable",   "The database cannot be reached, is restarting or is read-only, and nothing was changed. Jobs go on running; try again later.") \
	X(DATABASE_UNCERTAIN,   UNAVAILABLE, "database_uncertain",     "The database was lost while it stored a change, and could not be asked since. Look whether the change was made before you repeat it.") \
	X(DATABASE_CONFLICT,    BUSY,        "database_conflict",      "Another session changed the same rows at the same time, and nothing was changed. Try again.") \
	X(DATABASE_NEWER,       CONFLICT,    "database_newer",         "A newer Stoker has migrated the database. Start that version, or restore a backup.") \
	X(MASTER_KEY_MISSING,   NOT_FOUND,   "master_key_missing",     "The database has rows, and the data folder has no master key. Copy master.key from the data folder of its server; a new key could open none of its secrets.") \
	X(MASTER_KEY_WRONG,     INVALID,     "master_key_wrong",       "The master key in the data folder does not belong to the database. Copy the one of its server.") \
	X(DATABASE_IN_USE,      CONFLICT,    "database_in_use",        "Another Stoker server uses the database. One server at a time may: stop the other one, or give this one a database of its own.") \
	X(OBJECTS_FOREIGN,      CONFLICT,    "objects_foreign",        "The object store has the mark (stoker.json) of another Stoker's database. Give this server a bucket or a prefix of its own.") \
	X(OBJECTS_ELSEWHERE,    CONFLICT,    "objects_elsewhere",      "This database's objects are in another store. Start the server with that one, or copy all of them here first, stoker.json included, with any S3 tool.") \
	X(OBJECTS_MISSING,      NOT_FOUND,   "objects_missing",        "The bucket of --objects does not exist. Create it; the server makes none.") \
	X(CLOCK_DIFFERS,        DENIED,      "clock_differs",          "The clock of this machine differs by minutes from that of the object store, which refuses what is signed with a wrong time. Set both by NTP; what waits then goes on.") \
	X(OBJECTS_UNAVAILABLE,  UNAVAILABLE, "objects_unavailable",    "The object store does not answer, or not in time. Nothing is lost and jobs go on running; try again later.") \
	X(OBJECTS_DENIED,       DENIED,      "objects_denied",         "The object store refuses the server's keys. They need to read, write, list and delete objects of the bucket, at least below the prefix.") \
	X(DATABASE_MOVED,       CONFLICT,    "database_moved",         "The rows of this database were moved to another one. Start the server with that one as --database.") \
	X(DATABASE_INCOMPLETE,  CONFLICT,    "database_incomplete",    "A move into this database was interrupted. Run stoker server --move-database FROM TO again; it goes on where it stopped.") \
	X(DATABASE_NOT_EMPTY,   CONFLICT,    "database_not_empty",     "Rows can only be moved into a database, a schema or a file that is new. This one has rows of its own.") \
	X(DATABASE_DIFFERS,     CORRUPT,     "database_differs",       "A move has copied all rows, and one of them is not the same in both databases. The first one is whole and stays in use; the message names the row. Move again, into a database that is new.") \
	/* the end; every row above continues the line */
/* clang-format on */

#endif
