/* commands.c - the table of commands. Usage, man page, completion and reference are printed from
 * it. */
#include "cli/cli.h"

/* clang-format off */
static const struct opt o_init[] = {
	{"example", 'e', OPT_TEXT, "NAME", "start from this example [hello]"},
	{"list-examples", 0, OPT_FLAG, NULL, "list the examples, in the form of -o"},
	{"force", 'f', OPT_FLAG, NULL, "replace files that are there"},
};
static const struct opt o_push[] = {
	{"follow", 'f', OPT_FLAG, NULL, "follow the log to the end; the exit code is the job's outcome"},
	{"dry-run", 0, OPT_FLAG, NULL, "check and pack everything, push nothing"},
	{"no-gitignore", 0, OPT_FLAG, NULL, "send files that .gitignore names as well"},
	{"yes", 'y', OPT_FLAG, NULL, "for scripts: nothing is asked as it is"},
	{"name", 'n', OPT_TEXT, "NAME", "name of the job"},
	{"priority", 0, OPT_INT, "N", "place in the queue: higher first"},
	{"set", 's', OPT_LIST, "PATH=VALUE", "change a field, as in job.compute.node_count=2"},
	{"env", 'e', OPT_LIST, "NAME=VALUE", "set an environment variable"},
	{"expand-env", 0, OPT_FLAG, NULL, "replace ${NAME} in the file's texts by the variable NAME of here; $${ stays ${"},
	{"idempotency-key", 0, OPT_TEXT, "KEY", "the same key gives the same job"},
};
static const struct opt o_ps[] = {
	{"watch", 'w', OPT_FLAG, NULL, "again every two seconds, until Ctrl-C"},
	{"all", 'a', OPT_FLAG, NULL, "include jobs that have ended"},
	{"project", 'p', OPT_TEXT, "PROJECT", "only jobs of this project"},
	{"user", 'u', OPT_TEXT, "NAME", "only jobs that NAME pushed"},
	{"everyone", 'e', OPT_FLAG, NULL, "jobs of everyone, not only yours"},
	{"status", 's', OPT_LIST, "STATUS", "only jobs in this status: pending, running, failed, ..."},
	{"limit", 'n', OPT_INT, "N", "show at most N jobs [1000]"},
};
static const struct opt o_logs[] = {
	{"follow", 'f', OPT_FLAG, NULL, "go on until the job ends; Ctrl-C detaches"},
	{"tail", 'n', OPT_INT, "LINES", "only the last lines"},
	{"since", 0, OPT_TEXT, "TIME", "only what is newer than 10m, 2h, ..."},
	{"node", 0, OPT_INT, "RANK", "only this node's"},
	{"attempt", 0, OPT_INT, "N", "only this attempt's: 0 is the first"},
	{"system", 0, OPT_FLAG, NULL, "only the platform's own lines"},
	{"timestamps", 't', OPT_FLAG, NULL, "the time in front of each line"},
	{"raw", 0, OPT_FLAG, NULL, "do not fold carriage returns"},
};
static const struct opt o_stop[] = {
	{"now", 0, OPT_FLAG, NULL, "without the grace time"},
	{"all", 'a', OPT_FLAG, NULL, "all your active jobs"},
	{"everyone", 0, OPT_FLAG, NULL, "with --all: the jobs of everyone"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask"},
};
static const struct opt o_recreate[] = {
	{"follow", 'f', OPT_FLAG, NULL, "follow the new job's log"},
	{"resume", 0, OPT_FLAG, NULL, "start from the old job's newest complete checkpoint"},
};
static const struct opt o_update[] = {{"priority", 0, OPT_INT, "N", "place in the queue: higher first"}};
static const struct opt o_exec[] = {
	{"stdin", 'i', OPT_FLAG, NULL, "give it what is typed; what is piped in it gets anyway"},
	{"tty", 't', OPT_FLAG, NULL, "on a terminal of its own"},
	{"node", 0, OPT_INT, "RANK", "on this node [0]"},
};
static const struct opt o_ck_ls[] = {
	{"all", 'a', OPT_FLAG, NULL, "also incomplete ones"},
	{"project", 'p', OPT_TEXT, "PROJECT", "of all jobs of this project"},
};
static const struct opt o_watch[] = {{"watch", 'w', OPT_FLAG, NULL, "again every two seconds, until Ctrl-C"}};
static const struct opt o_ck_show[] = {{"job", 'j', OPT_TEXT, "JOB", "of this job [@]"}};
static const struct opt o_ck_pull[] = {
	{"job", 'j', OPT_TEXT, "JOB", "of this job [@]"},
	{"include", 0, OPT_TEXT, "GLOB", "only files whose path in the checkpoint matches; ** crosses /"},
	{"incomplete", 0, OPT_FLAG, NULL, "also when it is not complete"},
};
static const struct opt o_ck_check[] = {
	{"all", 'a', OPT_FLAG, NULL, "PATH holds several checkpoints: check each"},
	{"world-size", 'w', OPT_INT, "N", "how many ranks wrote it"},
	{"like", 0, OPT_TEXT, "DIR", "a whole checkpoint of the same job: the same names are expected"},
};
static const struct opt o_ck_rm[] = {
	{"job", 'j', OPT_TEXT, "JOB", "of this job [@]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask"},
};
static const struct opt o_summarize[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "this project's cache [@]"},
	{"team", 0, OPT_TEXT, "TEAM", "this team's cache"},
	{"sort", 0, OPT_TEXT, "BY", "filepath, size, modified, type or permissions [filepath]"},
	{"order", 0, OPT_TEXT, "ORDER", "asc or desc [asc]"},
	{"last", 0, OPT_FLAG, NULL, "the last snapshot, without walking again"},
};
static const struct opt o_du[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "this project's cache [@]"},
	{"team", 0, OPT_TEXT, "TEAM", "this team's cache"},
	{"depth", 'd', OPT_INT, "N", "sum by this many folders; 0: the total alone [1]"},
};
static const struct opt o_cache_rm[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "in the cache of this project"},
	{"team", 0, OPT_TEXT, "TEAM", "in the cache of this team"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask"},
};
static const struct opt o_cache_quota[] = {{"project", 'p', OPT_TEXT, "PROJECT", "the cache of this project (required)"}};
static const struct opt o_gc[] = {
	{"dry-run", 0, OPT_FLAG, NULL, "only list what would go"},
	{"older-than", 0, OPT_TEXT, "TIME", "leave Python environments, partial fetches, uploads and ownerless caches that were used since [24h]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask"},
};
static const struct opt o_prefetch[] = {
	{"allow", 0, OPT_LIST, "GLOB", "only these files"},
	{"ignore", 0, OPT_LIST, "GLOB", "not these files"},
	{"secret", 0, OPT_TEXT, "NAME", "secret to authenticate with"},
	{"endpoint", 0, OPT_TEXT, "URL", "the store or Hub, if not the one that the server is set to"},
};
static const struct opt o_yes[] = {{"yes", 'y', OPT_FLAG, NULL, "do not ask"}};
static const struct opt o_team[] = {{"team", 0, OPT_TEXT, "TEAM", "of this team [the default one]"}};
static const struct opt o_team_yes[] = {
	{"team", 0, OPT_TEXT, "TEAM", "of this team [the default one]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask"},
};
static const struct opt o_confirm[] = {{"confirm", 0, OPT_TEXT, "NAME", "the project's name, instead of typing it"}};
static const struct opt o_token[] = {
	{"role", 0, OPT_TEXT, "ROLE", "viewer, member or admin [member]"},
	{"team", 0, OPT_TEXT, "TEAM", "only for this team"},
	{"expires-days", 0, OPT_INT, "N", "valid for so many days [for ever]"},
};
static const struct opt o_login[] = {
	{"url", 0, OPT_TEXT, "URL", "the server [STOKER_URL]"},
	{"print-trussrc", 0, OPT_FLAG, NULL, "print the section for ~/.trussrc instead"},
};

#define OPTS(o) (o), COUNT(o)
#define NO_OPTS NULL, 0

const struct command commands[] = {
	/* words, args, help, more, options, least, most, lists, run */
	{"init", "[DIR]", "write a job file to start from",
	 "Writes train.yaml, run.sh and .stokerignore (or an example's files) into DIR, this folder by default.",
	 OPTS(o_init), 0, 1, true, cmd_init},
	{"push", "[FILE]", "push a job: train.yaml and the folder it is in",
	 "Reads FILE (train.yaml), uploads its folder without what .stokerignore names, and creates a job. "
	 "Prints the job's id. With -f it follows the log and exits 0 when the job completed, 10 when it failed, "
	 "11 when it was stopped; Ctrl-C detaches and the job goes on.",
	 OPTS(o_push), 0, 1, true, cmd_push},
	{"ps", "", "list jobs", "Lists your active jobs, the newest first. REASON says why a job waits or how it ended.", OPTS(o_ps), 0, 0, true, cmd_ps},
	{"view", "[JOB]", "one page about a job: state, inputs, checkpoints, events", NULL, NO_OPTS, 0, 1, true, cmd_view},
	{"logs", "[JOB]", "what a job printed", NULL, OPTS(o_logs), 0, 1, false, cmd_logs},
	{"stop", "[JOB]...", "stop jobs", "SIGTERM, the grace time, then the whole process tree. Checkpoints that "
	 "are complete are still shipped.", OPTS(o_stop), 0, CLI_ARGS_MAX, false, cmd_stop},
	{"recreate", "JOB", "run a job again as it was: same code, same revisions", NULL, OPTS(o_recreate), 1, 1, true, cmd_recreate},
	{"update", "JOB", "change a waiting job", NULL, OPTS(o_update), 1, 1, false, cmd_update},
	{"events", "[JOB]", "what happened to a job, and who asked", NULL, NO_OPTS, 0, 1, true, cmd_events},
	{"exec", "JOB [-- COMMAND...]", "run a command or a shell inside a running job",
	 "Without COMMAND it is a shell: $SHELL of the job, else bash or sh. Its exit code is the exit code; stdout and "
	 "stderr stay apart, but values of the job's secrets are shown as [redacted]. "
	 "Input that is not a terminal is passed on to its end: in a loop that reads a file, say </dev/null. "
	 "A shell, or a command with -t, has a terminal: it follows the size of yours, Ctrl-C goes to it, and ~. at the "
	 "beginning of a line hangs up. Without a terminal Ctrl-C leaves the command running in the job, or ends it when it was "
	 "given input. A command whose caller is not heard of for 20 seconds gets SIGHUP, and SIGKILL 5 seconds later; "
	 "so it does when the server is started again.",
	 OPTS(o_exec), 1, 1, false, cmd_exec},
	{"metrics", "[JOB]", "CPU, memory, GPU, scratch and cache use of a job", NULL, OPTS(o_watch), 0, 1, true, cmd_metrics},

	{"checkpoints ls", "[JOB]", "list a job's checkpoints", NULL, OPTS(o_ck_ls), 0, 1, true, cmd_checkpoints_ls},
	{"checkpoints show", "CHECKPOINT", "one checkpoint and its files",
	 "CHECKPOINT is JOB/NAME, or NAME with --job; NAME latest is the newest complete one.",
	 OPTS(o_ck_show), 1, 1, true, cmd_checkpoints_show},
	{"checkpoints pull", "CHECKPOINT [DIR]", "download a checkpoint, verified",
	 "Files arrive as DIR/rank-N/PATH; each is hashed and compared with what was stored. DIR is checkpoints/ by default, "
	 "which a push leaves out.",
	 OPTS(o_ck_pull), 1, 2, false, cmd_checkpoints_pull},
	{"checkpoints pin", "CHECKPOINT", "keep a checkpoint whatever keep_last says", NULL, OPTS(o_ck_show), 1, 1, false, cmd_checkpoints_pin},
	{"checkpoints unpin", "CHECKPOINT", "take the pin away", NULL, OPTS(o_ck_show), 1, 1, false, cmd_checkpoints_unpin},
	{"checkpoints rm", "CHECKPOINT", "delete a checkpoint for good", NULL, OPTS(o_ck_rm), 1, 1, false, cmd_checkpoints_rm},
	{"checkpoints check", "[PATH]", "check whether a folder or file on this machine is a whole checkpoint",
	 "Reads the structure of each file (headers and directories, nothing is unpickled), recognises the trainer, and names what is torn or "
	 "missing. Exits 0 when the checkpoint is whole as far as its files can tell, 1 when it is not. Needs no server. "
	 "Examples: `stoker checkpoints check out/checkpoint-500`, `stoker checkpoints check --all out -o json`.",
	 OPTS(o_ck_check), 0, 1, true, cmd_checkpoints_check},
	{"cache summarize", "[PROJECT]", "list what is in the training cache", NULL, OPTS(o_summarize), 0, 1, true, cmd_cache_summarize},
	{"cache ls", "[PROJECT]", "the same", NULL, OPTS(o_summarize), 0, 1, true, cmd_cache_summarize},
	{"cache du", "[PROJECT]", "what takes the space in the training cache", NULL, OPTS(o_du), 0, 1, true, cmd_cache_du},
	{"cache quota", "SIZE", "how much the training cache of a project may hold", "As in 500GB or 2Ti. A job that finds it full does not start.",
	 OPTS(o_cache_quota), 1, 1, false, cmd_cache_quota},
	{"cache rm", "PATH", "delete a file or folder from the training cache", NULL, OPTS(o_cache_rm), 1, 1, false, cmd_cache_rm},
	{"cache gc", "", "remove from the server's disks what nothing uses",
	 "Weights that no mirror and no job names and copies of them, what is left of fetches and uploads, caches of deleted projects. "
	 "Nothing that a running or waiting job uses, and nothing in a project's own cache. On a terminal it shows what would go and asks. "
	 "For administrators; the server does most of this by itself in time. Ctrl-C stops it.",
	 OPTS(o_gc), 0, 0, true, cmd_cache_gc},
	{"cache verify", "", "read again all that is stored and compare it with its checksum",
	 "Mirrored weights, copies of them on the node, and checkpoints of jobs that have ended. What is damaged is named and set aside: "
	 "no job is given it; weights are fetched again by the next job that asks, a checkpoint counts as incomplete. Exits 1 when something "
	 "is damaged. Runs in the server behind everybody else's disk accesses; Ctrl-C stops it. For administrators.",
	 NO_OPTS, 0, 0, true, cmd_cache_verify},
	{"weights ls", "", "list mirrored sources", NULL, NO_OPTS, 0, 0, true, cmd_weights_ls},
	{"weights prefetch", "SOURCE", "mirror a source before a job asks for it", NULL, OPTS(o_prefetch), 1, 1, false, cmd_weights_prefetch},
	{"weights rm", "ID", "remove a mirrored source", NULL, OPTS(o_yes), 1, 1, false, cmd_weights_rm},

	{"secrets ls", "", "list the names of secrets", NULL, OPTS(o_team), 0, 0, true, cmd_secrets_ls},
	{"secrets set", "NAME", "set a secret from the terminal or stdin", "The value is never shown again, by nobody.",
	 OPTS(o_team), 1, 1, false, cmd_secrets_set},
	{"secrets rm", "NAME", "delete a secret", NULL, OPTS(o_team_yes), 1, 1, false, cmd_secrets_rm},
	{"projects ls", "", "list projects", NULL, NO_OPTS, 0, 0, true, cmd_projects_ls},
	{"projects rm", "PROJECT", "delete a project, its jobs, checkpoints and cache", NULL, OPTS(o_confirm), 1, 1, false, cmd_projects_rm},
	{"teams ls", "", "list teams", NULL, NO_OPTS, 0, 0, true, cmd_teams_ls},
	{"teams create", "NAME", "make a team", NULL, NO_OPTS, 1, 1, false, cmd_teams_create},
	{"teams rm", "TEAM", "delete an empty team", NULL, OPTS(o_yes), 1, 1, false, cmd_teams_rm},
	{"tokens ls", "", "list tokens", NULL, NO_OPTS, 0, 0, true, cmd_tokens_ls},
	{"tokens create", "NAME", "make a token; it is shown once", NULL, OPTS(o_token), 1, 1, true, cmd_tokens_create},
	{"tokens rm", "ID", "revoke a token", NULL, OPTS(o_yes), 1, 1, false, cmd_tokens_rm},

	{"login", "", "save the server and token for this user", "The token is read from the terminal or stdin.",
	 OPTS(o_login), 0, 0, false, cmd_login},
	{"doctor", "", "check login, server, sandbox, clocks, disk and an upload", NULL, NO_OPTS, 0, 0, true, cmd_doctor},
	{"completion", "bash", "print the bash completion", NULL, NO_OPTS, 0, 1, false, cmd_completion},
	{"man", "", "print the man page", "stoker man | man -l -", NO_OPTS, 0, 0, false, cmd_man},
	{"print-cli", "", NULL, NULL, NO_OPTS, 0, 0, false, cmd_print_cli},
	{"print-errors", "", NULL, NULL, NO_OPTS, 0, 0, false, cmd_print_errors},
	{"print-locks", "", NULL, NULL, NO_OPTS, 0, 0, false, cmd_print_locks},
	{"print-job-file", "", NULL, NULL, NO_OPTS, 0, 0, false, cmd_print_job_file},
	{"version", "", "print the version", NULL, NO_OPTS, 0, 0, false, cmd_version},
};
/* clang-format on */

const size_t n_commands = COUNT(commands);
