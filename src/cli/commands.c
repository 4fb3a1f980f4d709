/* commands.c - the table of commands. Usage, man page, completion and reference are printed from
 * it. */
#include "cli/cli.h"

#include "core/deployment.h"

/* clang-format off */
static const struct opt o_init[] = {
	{"example", 'e', OPT_TEXT, "NAME", "start from this example [hello]"},
	{"list-examples", 0, OPT_FLAG, NULL, "list the examples, in the form of -o"},
	{"force", 'f', OPT_FLAG, NULL, "overwrite existing files"},
};
static const struct opt o_push[] = {
	{"follow", 'f', OPT_FLAG, NULL, "follow the log to the end; the exit code is the job's outcome"},
	{"dry-run", 0, OPT_FLAG, NULL, "check and pack everything, push nothing"},
	{"no-gitignore", 0, OPT_FLAG, NULL, "also send files that .gitignore excludes"},
	{"yes", 'y', OPT_FLAG, NULL, "accepted for scripts; push asks no questions"},
	{"name", 'n', OPT_TEXT, "NAME", "name of the job"},
	{"priority", 0, OPT_INT, "N", "jobs with a higher priority start first [0]"},
	{"set", 's', OPT_LIST, "PATH=VALUE", "set a field of the job file, such as job.compute.node_count=2"},
	{"env", 'e', OPT_LIST, "NAME=VALUE", "set an environment variable of the job"},
	{"expand-env", 0, OPT_FLAG, NULL, "replace ${NAME} in the job file with the value of NAME in this shell; $${ stays ${"},
	{"idempotency-key", 0, OPT_TEXT, "KEY", "pushing again with the same key returns the same job"},
};
static const struct opt o_deploy[] = {
	{"name", 'n', OPT_TEXT, "NAME", "what it is served as: /deployments/NAME [the job's name]"},
	{"engine", 0, OPT_TEXT, "ENGINE", "vllm, sglang, llama.cpp or transformers [by the checkpoint's files]"},
	{"command", 0, OPT_TEXT, "COMMAND", "start this instead; the checkpoint is at /models/NAME"},
	{"image", 0, OPT_TEXT, "IMAGE", "container image that has the engine [the machine itself]"},
	{"base-model", 0, OPT_TEXT, "OWNER/NAME", "repository of the base model [what the checkpoint says]"},
	{"secret", 0, OPT_TEXT, "NAME", "secret with a token for a private base model [hf_access_token, if there is one]"},
	{"accelerator", 0, OPT_TEXT, "TYPE:N", "GPUs [as the training job]"},
	{"cpus", 0, OPT_COUNT, "N", "cores [as the training job]"},
	{"memory", 0, OPT_TEXT, "SIZE", "memory [as the training job]"},
	{"env", 'e', OPT_LIST, "NAME=VALUE", "set an environment variable"},
	{"replicas", 0, OPT_COUNT, "N", "jobs that share the requests [as before, or 1]"},
	{"scale-to-zero", 0, OPT_TEXT, "AFTER", "stop the jobs after 15m, 2h, ... without a request; the next one starts them: it waits. never [as before, or never]"},
	{"replace", 0, OPT_FLAG, NULL, "stop the jobs of the revision before first: where there is no room for both"},
};
static const struct opt o_scale[] = {
	{"replicas", 0, OPT_COUNT, "N", "jobs that share the requests"},
	{"scale-to-zero", 0, OPT_TEXT, "AFTER", "stop them after 15m, 2h, ... without a request, or never"},
};
static const struct opt o_ps[] = {
	{"watch", 'w', OPT_FLAG, NULL, "refresh every two seconds until Ctrl-C"},
	{"all", 'a', OPT_FLAG, NULL, "include finished jobs"},
	{"project", 'p', OPT_TEXT, "PROJECT", "only jobs of this project: NAME, TEAM/NAME or id"},
	{"user", 'u', OPT_TEXT, "NAME", "only jobs that NAME pushed"},
	{"everyone", 'e', OPT_FLAG, NULL, "jobs of all users, not only yours"},
	{"status", 's', OPT_LIST, "STATUS", "only jobs in this status: pending, running, failed (and deploy_failed), ..."},
	{"limit", 'n', OPT_COUNT, "N", "show at most N jobs [1000]"},
};
static const struct opt o_logs[] = {
	{"follow", 'f', OPT_FLAG, NULL, "keep printing until the job ends; Ctrl-C detaches"},
	{"tail", 'n', OPT_COUNT, "LINES", "only the last LINES lines"},
	{"since", 0, OPT_TEXT, "TIME", "only lines newer than 10m, 2h, ..."},
	{"node", 0, OPT_COUNT, "RANK", "only lines of this node"},
	{"attempt", 0, OPT_COUNT, "N", "only lines of this attempt; 0 is the first"},
	{"system", 0, OPT_FLAG, NULL, "only lines that Stoker wrote, not the job"},
	{"timestamps", 't', OPT_FLAG, NULL, "prefix each line with its time"},
	{"raw", 0, OPT_FLAG, NULL, "do not fold carriage returns (progress bars)"},
};
static const struct opt o_stop[] = {
	{"now", 0, OPT_FLAG, NULL, "kill at once, without the grace time"},
	{"all", 'a', OPT_FLAG, NULL, "all your active jobs"},
	{"everyone", 0, OPT_FLAG, NULL, "with --all: the active jobs of all users"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_recreate[] = {
	{"follow", 'f', OPT_FLAG, NULL, "follow the log of the new job"},
	{"resume", 0, OPT_FLAG, NULL, "start from the newest complete checkpoint of the old job"},
};
static const struct opt o_update[] = {{"priority", 0, OPT_INT, "N", "jobs with a higher priority start first"}};
static const struct opt o_exec[] = {
	{"stdin", 'i', OPT_FLAG, NULL, "pass on what you type; piped input is always passed on"},
	{"tty", 't', OPT_FLAG, NULL, "give the command a terminal"},
	{"node", 0, OPT_COUNT, "RANK", "run on this node [0]"},
};
static const struct opt o_ck_ls[] = {
	{"all", 'a', OPT_FLAG, NULL, "include incomplete checkpoints"},
	{"project", 'p', OPT_TEXT, "PROJECT", "checkpoints of all jobs of this project"},
};
static const struct opt o_watch[] = {{"watch", 'w', OPT_FLAG, NULL, "refresh every two seconds until Ctrl-C"}};
static const struct opt o_ck_show[] = {{"job", 'j', OPT_TEXT, "JOB", "the job that wrote it [@]"}};
static const struct opt o_ck_pull[] = {
	{"job", 'j', OPT_TEXT, "JOB", "the job that wrote it [@]"},
	{"include", 0, OPT_TEXT, "GLOB", "only files whose path in the checkpoint matches; ** crosses /"},
	{"incomplete", 0, OPT_FLAG, NULL, "allow an incomplete checkpoint"},
};
static const struct opt o_ck_check[] = {
	{"all", 'a', OPT_FLAG, NULL, "PATH holds several checkpoints: check each"},
	{"world-size", 'w', OPT_COUNT, "N", "number of ranks that wrote it"},
	{"like", 0, OPT_TEXT, "DIR", "a whole checkpoint of the same job: expect the same file names"},
};
static const struct opt o_ck_rm[] = {
	{"job", 'j', OPT_TEXT, "JOB", "the job that wrote it [@]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_summarize[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "this project's cache [@]"},
	{"team", 0, OPT_TEXT, "TEAM", "this team's cache"},
	{"sort", 0, OPT_TEXT, "BY", "filepath, size, modified, type or permissions [filepath]"},
	{"order", 0, OPT_TEXT, "ORDER", "asc or desc [asc]"},
	{"last", 0, OPT_FLAG, NULL, "show the last summary instead of taking a new one"},
};
static const struct opt o_du[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "this project's cache [@]"},
	{"team", 0, OPT_TEXT, "TEAM", "this team's cache"},
	{"depth", 'd', OPT_COUNT, "N", "folder levels to show; 0 shows only the total [1]"},
};
static const struct opt o_cache_rm[] = {
	{"project", 'p', OPT_TEXT, "PROJECT", "in the cache of this project"},
	{"team", 0, OPT_TEXT, "TEAM", "in the cache of this team"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_cache_quota[] = {{"project", 'p', OPT_TEXT, "PROJECT", "the cache of this project (required)"}};
static const struct opt o_gc[] = {
	{"dry-run", 0, OPT_FLAG, NULL, "only list what would be removed"},
	{"older-than", 0, OPT_TEXT, "TIME", "keep Python environments, partial downloads, uploads and orphaned caches that were used within TIME [24h]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_prefetch[] = {
	{"allow", 0, OPT_LIST, "GLOB", "only files that match"},
	{"ignore", 0, OPT_LIST, "GLOB", "no files that match"},
	{"secret", 0, OPT_TEXT, "NAME", "secret that holds the credentials"},
	{"endpoint", 0, OPT_TEXT, "URL", "URL of the store or Hub, if it is not the server's default"},
};
static const struct opt o_repos[] = {
	{"type", 0, OPT_TEXT, "TYPE", "only models, datasets or spaces"},
	{"owner", 0, OPT_TEXT, "OWNER", "only those of a user or a team"},
	{"search", 0, OPT_TEXT, "TEXT", "only those whose name contains it"},
};
static const struct opt o_cc_artifacts[] = {
	{"by", 0, OPT_TEXT, "NAME", "only those that a token of this name, or a job that it pushed, has stored"},
	{"job", 0, OPT_TEXT, "ID", "only those that a job has stored"},
	{"limit", 'n', OPT_COUNT, "N", "show at most N [100]"},
};
static const struct opt o_repo_create[] = {
	{"type", 0, OPT_TEXT, "TYPE", "models, datasets or spaces [models]"},
	{"private", 0, OPT_FLAG, NULL, "for you, or for your team, alone"},
};
static const struct opt o_yes[] = {{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"}};
static const struct opt o_team[] = {{"team", 0, OPT_TEXT, "TEAM", "the team [the default team]"}};
static const struct opt o_team_yes[] = {
	{"team", 0, OPT_TEXT, "TEAM", "the team [the default team]"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_confirm[] = {{"confirm", 0, OPT_TEXT, "NAME", "the project's name, instead of typing it"}};
static const struct opt o_token[] = {
	{"role", 0, OPT_TEXT, "ROLE", "viewer, member or admin [member]"},
	{"team", 0, OPT_TEXT, "TEAM", "only for this team"},
	{"expires-days", 0, OPT_COUNT, "N", "expires after N days [never]"},
};
static const struct opt o_login[] = {
	{"url", 0, OPT_TEXT, "URL", "URL of the server [$STOKER_URL]"},
	{"print-trussrc", 0, OPT_FLAG, NULL, "print the section for ~/.trussrc instead"},
};

static const struct opt o_cc_push[] = {
	{"from", 0, OPT_TEXT, "DIR", "the folder that has one of each kind, DIR/inductor and so on"},
	{"kind", 'k', OPT_LIST, "KIND[=DIR]", "only this kind: neuron, inductor, triton, jax, vllm, torch_extensions, cuda, ccache; and where it is"},
	{"device", 'd', OPT_TEXT, "DEVICE", "what it was compiled for [GPU and CPU of this machine]"},
};
static const struct opt o_cc_pull[] = {
	{"to", 0, OPT_TEXT, "DIR", "the folder that gets one of each kind, DIR/inductor and so on"},
	{"kind", 'k', OPT_LIST, "KIND[=DIR]", "only this kind, and where it goes"},
	{"device", 'd', OPT_TEXT, "DEVICE", "what it was compiled for [GPU and CPU of this machine]"},
};
static const struct opt o_cc_rm[] = {
	{"kind", 'k', OPT_LIST, "KIND", "only this kind"},
	{"device", 'd', OPT_TEXT, "DEVICE", "only for this device, as ls shows it"},
	{"older-than", 0, OPT_TEXT, "AGE", "only what has been there for so long: 30d"},
	{"yes", 'y', OPT_FLAG, NULL, "do not ask for confirmation"},
};
static const struct opt o_cc_why[] = {{"repo", 0, OPT_TEXT, "REPOSITORY", "where its caches are [that of the job]"}};

#define OPTS(o) (o), COUNT(o)
#define NO_OPTS NULL, 0
#define NO_EXAMPLES NULL

const struct command commands[] = {
	/* words, args, help, more, examples, options, least, most, lists, run */
	{"init", "[DIR]", "write a job file to start from",
	 "Writes train.yaml, run.sh and .stokerignore, or the files of an example, into DIR (default: this folder).",
	 "stoker init                       # train.yaml and run.sh here\n"
	 "stoker init -e quickstart first   # an example, into the folder first",
	 OPTS(o_init), 0, 1, true, cmd_init},
	{"push", "[FILE|DIR]", "push a job: a job file and the folder it is in",
	 "Reads FILE (default: train.yaml), uploads its folder, and creates a job. Files that .gitignore or .stokerignore "
	 "exclude are not sent, nor are .ssh, .aws and the like. Prints the id of the job. With -f, follows the log and exits with 0 if the job completed, "
	 "10 if it failed, 11 if it was stopped; Ctrl-C detaches and the job keeps running.",
	 "stoker push -f                    # push ./train.yaml and follow its log\n"
	 "stoker push lora.yaml --dry-run   # check it, show its size and what it would wait for\n"
	 "stoker push -e LR=3e-4 -s job.compute.accelerator=H100:2",
	 OPTS(o_push), 0, 1, true, cmd_push},
	{"ps", "", "list jobs", "Lists your active jobs, newest first. REASON says why a job waits, what holds it up, or how it ended.",
	 "stoker ps                         # your active jobs\n"
	 "stoker ps -a --everyone -s failed # all failed jobs of all users",
	 OPTS(o_ps), 0, 0, true, cmd_ps},
	{"view", "[JOB]", "show a job: status, inputs, commands, newest checkpoints and events",
	 "Of several jobs of one name, commands that only read take the active one if there is just one, else the newest, and say\n"
	 "which. Commands that change or delete something refuse the name and list the jobs.",
	 "stoker view                       # your newest job\n"
	 "stoker view dgiwbss -o json       # everything, for scripts",
	 NO_OPTS, 0, 1, true, cmd_view},
	{"logs", "[JOB]", "print the log of a job", NULL,
	 "stoker logs -f                    # follow your newest job\n"
	 "stoker logs dgiwbss -n 100 -t     # the last 100 lines, with times",
	 OPTS(o_logs), 0, 1, false, cmd_logs},
	{"stop", "[JOB]...", "stop jobs",
	 "Sends SIGTERM, waits for the grace time, then kills all processes of the job. Complete checkpoints are still uploaded.",
	 "stoker stop dgiwbss               # SIGTERM, SIGKILL after the grace time\n"
	 "stoker stop -a                    # all your active jobs",
	 OPTS(o_stop), 0, CLI_ARGS_MAX, false, cmd_stop},
	{"recreate", "JOB", "run a job again, with the same code and the same revisions of its inputs", NULL,
	 "stoker recreate dgiwbss -f        # from the start\n"
	 "stoker recreate @ --resume        # your newest job, from its newest complete checkpoint",
	 OPTS(o_recreate), 1, 1, true, cmd_recreate},
	{"update", "JOB", "change a pending job", NULL,
	 "stoker update dgiwbss --priority 10   # start before others\n"
	 "stoker update @ --priority -5         # let others go first",
	 OPTS(o_update), 1, 1, false, cmd_update},
	{"events", "[JOB]", "list the events of a job, and who caused them", NULL,
	 "stoker events                     # of your newest job\n"
	 "stoker events dgiwbss -o jsonl    # one JSON object per event",
	 NO_OPTS, 0, 1, true, cmd_events},
	{"exec", "JOB [-- COMMAND...]", "run a command or a shell inside a running job",
	 "Without COMMAND, starts a shell: the job's $SHELL, or bash, or sh. Exits with the command's exit code. stdout and "
	 "stderr stay separate; values of the job's secrets are shown as [redacted]. "
	 "If stdin is not a terminal, all of it is passed on: in a loop that reads a file, add </dev/null. "
	 "A shell, or a command with -t, gets a terminal: it follows the size of yours, Ctrl-C goes to the command, and ~. at "
	 "the start of a line hangs up. Without a terminal, Ctrl-C leaves the command running in the job, or ends it if it was "
	 "given input. If the connection is lost for 20 seconds, or the server restarts, the command gets SIGHUP, and SIGKILL "
	 "5 seconds later.",
	 "stoker exec @                     # a shell in your newest job\n"
	 "stoker exec dgiwbss -- nvidia-smi # one command",
	 OPTS(o_exec), 1, 1, false, cmd_exec},
	{"metrics", "[JOB]", "show CPU, memory, GPU, scratch and cache use of a job", NULL,
	 "stoker metrics -w                 # watch your newest job\n"
	 "stoker metrics dgiwbss -o json    # for scripts",
	 OPTS(o_watch), 0, 1, true, cmd_metrics},

	{"checkpoints ls", "[JOB]", "list the checkpoints of a job", NULL,
	 "stoker checkpoints ls             # complete ones of your newest job\n"
	 "stoker checkpoints ls dgiwbss -a  # incomplete ones too, with the reason",
	 OPTS(o_ck_ls), 0, 1, true, cmd_checkpoints_ls},
	{"checkpoints show", "CHECKPOINT", "show a checkpoint and its files",
	 "CHECKPOINT is JOB/NAME, or NAME with --job. The name `latest` stands for the newest complete one.",
	 "stoker checkpoints show latest                  # newest complete one of your newest job\n"
	 "stoker checkpoints show dgiwbss/checkpoint-500",
	 OPTS(o_ck_show), 1, 1, true, cmd_checkpoints_show},
	{"checkpoints pull", "CHECKPOINT [DIR]", "download a checkpoint and verify it",
	 "Writes DIR/rank-N/PATH and compares each file's checksum with the stored one. DIR is checkpoints/ by default; "
	 "push does not send that folder.",
	 "stoker checkpoints pull dgiwbss/checkpoint-500 out\n"
	 "stoker checkpoints pull latest --include '*.safetensors'",
	 OPTS(o_ck_pull), 1, 2, false, cmd_checkpoints_pull},
	{"checkpoints pin", "CHECKPOINT", "keep a checkpoint regardless of keep_last", NULL,
	 "stoker checkpoints pin latest\n"
	 "stoker checkpoints pin dgiwbss/checkpoint-500",
	 OPTS(o_ck_show), 1, 1, false, cmd_checkpoints_pin},
	{"checkpoints unpin", "CHECKPOINT", "remove the pin of a checkpoint", NULL,
	 "stoker checkpoints unpin latest\n"
	 "stoker checkpoints unpin dgiwbss/checkpoint-500",
	 OPTS(o_ck_show), 1, 1, false, cmd_checkpoints_unpin},
	{"checkpoints complete", "CHECKPOINT", "mark an incomplete checkpoint as complete",
	 "For a checkpoint whose format is not known, or that the rules doubt: `checkpoints show` says why. From then on `latest` and "
	 "resume take it, torn files or not. The job must have ended and all files must be in the store. Who marked it is recorded.",
	 "stoker checkpoints complete dgiwbss/checkpoint-500\n"
	 "stoker checkpoints complete checkpoint-500 -j dgiwbss --yes -o json",
	 OPTS(o_ck_rm), 1, 1, true, cmd_checkpoints_complete},
	{"checkpoints rm", "CHECKPOINT", "delete a checkpoint permanently", NULL,
	 "stoker checkpoints rm dgiwbss/checkpoint-100\n"
	 "stoker checkpoints rm checkpoint-100 -j dgiwbss --yes",
	 OPTS(o_ck_rm), 1, 1, false, cmd_checkpoints_rm},
	{"checkpoints check", "[PATH]", "check whether a folder or file on this machine is a whole checkpoint",
	 "Reads the structure of each file (headers and directories; nothing is unpickled), recognizes the trainer, and names "
	 "torn and missing files. Exits with 0 if the checkpoint is whole as far as its files can tell, 1 if not. "
	 "Needs no server.",
	 "stoker checkpoints check out/checkpoint-500\n"
	 "stoker checkpoints check --all out -o json",
	 OPTS(o_ck_check), 0, 1, true, cmd_checkpoints_check},
	{"cache summarize", "[PROJECT]", "list the files in the training cache", NULL,
	 "stoker cache summarize            # project of your newest job\n"
	 "stoker cache summarize demo --sort size --order desc",
	 OPTS(o_summarize), 0, 1, true, cmd_cache_summarize},
	{"cache ls", "[PROJECT]", "same as cache summarize", NULL,
	 "stoker cache ls\n"
	 "stoker cache ls --team vision",
	 OPTS(o_summarize), 0, 1, true, cmd_cache_summarize},
	{"cache du", "[PROJECT]", "show what takes up space in the training cache", NULL,
	 "stoker cache du                   # by top-level folder\n"
	 "stoker cache du demo -d 2         # two levels",
	 OPTS(o_du), 0, 1, true, cmd_cache_du},
	{"cache quota", "SIZE", "limit the size of a project's training cache", "A job whose cache is over its quota does not start.",
	 "stoker cache quota 500GB -p demo\n"
	 "stoker cache quota 2Ti -p vision/demo",
	 OPTS(o_cache_quota), 1, 1, false, cmd_cache_quota},
	{"cache rm", "PATH", "delete a file or folder from the training cache", NULL,
	 "stoker cache rm tokenized/v1 -p demo\n"
	 "stoker cache rm hub --team vision --yes",
	 OPTS(o_cache_rm), 1, 1, false, cmd_cache_rm},
	{"cache gc", "", "delete unused data from the server's disks",
	 "Removes unreferenced weights and their copies, leftovers of downloads and uploads, and caches of deleted projects. "
	 "Keeps everything that a running or waiting job uses, and all project caches. On a terminal it lists what it would "
	 "delete and asks. Administrators only. The server also collects garbage on its own. Ctrl-C stops it.",
	 "stoker cache gc --dry-run         # list only\n"
	 "stoker cache gc --older-than 7d --yes",
	 OPTS(o_gc), 0, 0, true, cmd_cache_gc},
	{"cache verify", "", "read all stored data and compare it with its checksums",
	 "Reads mirrored weights, their copies on the node, and checkpoints of finished jobs. Damaged data is reported and "
	 "quarantined: no job gets it; the next job that needs the weights fetches them again; the checkpoint counts as "
	 "incomplete. With --objects, weights in the object store are read, too: damaged ones are removed, and whatever is missing "
	 "there is put there by the next job. Exits with 1 if anything is damaged. Runs in the server at low disk priority; Ctrl-C stops it. "
	 "Administrators only.",
	 "stoker cache verify\n"
	 "stoker cache verify -o json       # for a nightly timer",
	 NO_OPTS, 0, 0, true, cmd_cache_verify},
	{"weights ls", "", "list mirrored sources, and repositories of the Hub",
	 "Sources that jobs have named, and what clients of the Hub have fetched through this server: each repository at each commit.",
	 "stoker weights ls\n"
	 "stoker weights ls -o csv",
	 NO_OPTS, 0, 0, true, cmd_weights_ls},
	{"weights prefetch", "SOURCE", "mirror a source before a job needs it", NULL,
	 "stoker weights prefetch hf://Qwen/Qwen3-0.6B@main\n"
	 "stoker weights prefetch s3://bucket/data --secret aws --ignore '*.bin'",
	 OPTS(o_prefetch), 1, 1, false, cmd_weights_prefetch},
	{"weights rm", "ID", "delete a mirrored source, or what is kept of a repository", NULL,
	 "stoker weights rm 4kq8w2n         # an id from `stoker weights ls`\n"
	 "stoker weights rm 4kq8w2n --yes",
	 OPTS(o_yes), 1, 1, false, cmd_weights_rm},

	{"deploy", "JOB[/CHECKPOINT]... [-- OPTION OF THE ENGINE...]", "serve a checkpoint under a name, or roll it in where another one is served",
	 "Without CHECKPOINT it is the newest complete one. Its files say which engine can load it: a GGUF file is for llama.cpp, a model or "
	 "an adapter for vllm. The base model of an adapter is mirrored from the Hub; several adapters of one base model share a server. `--engine transformers` runs a whole model on any "
	 "machine, slowly. The jobs that serve have the resources that the training job had for a node, unless options say otherwise. Under "
	 "a name that is deployed already, the new jobs take over when they are ready, and no request is lost. What follows `--` is for the engine; see docs/serving.md.",
	 "stoker deploy dgiwbss --name mine --image vllm/vllm-openai:latest\n"
	 "stoker deploy dgiwbss/checkpoint-500 --engine sglang --accelerator H100:2\n"
	 "stoker deploy dgiwbss/checkpoint-500 r8rtrxq/checkpoint-900 --name adapters  # LoRA: clients name a checkpoint\n"
	 "stoker deploy @ --name mine --engine transformers\n"
	 "stoker deploy @ --name mine -- --max-model-len 8192  # more words for the engine\n"
	 "stoker deploy @ --name mine --scale-to-zero 15m --replicas 2\n"
	 "stoker deploy @ --name mine --command 'python3 /models/mine/serve.py'",
	 OPTS(o_deploy), 1, DEPLOYMENT_PARTS_MAX, true, cmd_deploy},
	{"deployments ls", "", "list deployments, and the jobs that serve without one",
	 "A job serves without a deployment when its file has `runtime.serve`: see docs/serving.md. `stoker stop JOB` ends such a job.",
	 "stoker deployments ls\n"
	 "stoker deployments ls -o json",
	 NO_OPTS, 0, 0, true, cmd_deployments_ls},
	{"deployments view", "NAME", "show a deployment: its state, why, its jobs and where to ask it", NULL,
	 "stoker deployments view mine",
	 NO_OPTS, 1, 1, true, cmd_deployments_view},
	{"deployments logs", "NAME", "print the log of the newest job of a deployment", NULL,
	 "stoker deployments logs mine -f\n"
	 "stoker deployments logs mine --tail 100",
	 OPTS(o_logs), 1, 1, false, cmd_deployments_logs},
	{"deployments stop", "NAME", "end the jobs of a deployment; its name stays, and answers 503",
	 "Jobs answer what they have begun, within limits.stop_grace.",
	 "stoker deployments stop mine",
	 NO_OPTS, 1, 1, false, cmd_deployments_stop},
	{"deployments start", "NAME", "start a deployment that was stopped, sleeps or has failed", NULL,
	 "stoker deployments start mine",
	 NO_OPTS, 1, 1, false, cmd_deployments_start},
	{"deployments scale", "NAME", "change how many jobs a deployment has, and when it sleeps", NULL,
	 "stoker deployments scale mine --replicas 3\n"
	 "stoker deployments scale mine --scale-to-zero 30m",
	 OPTS(o_scale), 1, 1, false, cmd_deployments_scale},
	{"deployments rm", "NAME", "delete a deployment and stop its jobs; the checkpoint stays", NULL,
	 "stoker deployments rm mine --yes",
	 OPTS(o_yes), 1, 1, false, cmd_deployments_rm},

	{"repos ls", "", "list the repositories that this server holds",
	 "Models, data sets and spaces that people have created here: those of your team and of yourself, and public ones of others. "
	 "What the server mirrors of another Hub is listed by `stoker weights ls`.",
	 "stoker repos ls\n"
	 "stoker repos ls --type datasets --owner vision",
	 OPTS(o_repos), 0, 0, true, cmd_repos_ls},
	{"repos create", "[OWNER/]NAME", "create a repository",
	 "OWNER is the name of your token, which is the default, or of your team. `hf upload` and everything else that speaks to a "
	 "Hub fills it.",
	 "stoker repos create my-model --private\n"
	 "stoker repos create vision/faces --type datasets",
	 OPTS(o_repo_create), 1, 1, false, cmd_repos_create},
	{"repos show", "REPOSITORY", "show a repository: its size, branches, tags and newest commits", NULL,
	 "stoker repos show vision/my-model\n"
	 "stoker repos show datasets/vision/faces -o json",
	 NO_OPTS, 1, 1, true, cmd_repos_show},
	{"repos du", "", "show what repositories take of your team's quota, the largest first", NULL,
	 "stoker repos du\n"
	 "stoker repos du --owner vision",
	 OPTS(o_repos), 0, 0, true, cmd_repos_du},
	{"repos rm", "REPOSITORY", "delete a repository, with all of its commits",
	 "Its files are removed from the disk soon after, if nothing else holds them.",
	 "stoker repos rm vision/my-model\n"
	 "stoker repos rm datasets/vision/faces --yes",
	 OPTS(o_yes), 1, 1, false, cmd_repos_rm},

	{"compile-cache ls", "[REPOSITORY]", "list what a repository holds of compilers' caches, by kind and device",
	 "Without REPOSITORY, commands for compile caches take the one that `stoker compile-cache set` has noted, else TEAM/compile-cache.",
	 "stoker compile-cache ls\n"
	 "stoker compile-cache ls vision/compile-cache -o json",
	 NO_OPTS, 0, 1, true, cmd_compile_cache_ls},
	{"compile-cache du", "", "show which repositories hold compile caches, the largest first", NULL,
	 "stoker compile-cache du\n"
	 "stoker compile-cache du -o csv",
	 NO_OPTS, 0, 0, true, cmd_compile_cache_du},
	{"compile-cache artifacts", "[NAMESPACE]", "list what ccache, sccache and Bazel have stored, and who did",
	 "The last stored first. NAMESPACE is a team, which is the default, or your own token. An artifact is code: who has stored it "
	 "decides what others run.",
	 "stoker compile-cache artifacts\n"
	 "stoker compile-cache artifacts vision --job dgiwbss -o json",
	 OPTS(o_cc_artifacts), 0, 1, true, cmd_compile_cache_artifacts},
	{"compile-cache push", "[REPOSITORY]", "send compile caches of this machine to a repository",
	 "Takes the caches where the compilers keep them: by their variables (TORCHINDUCTOR_CACHE_DIR and so on), else their defaults. "
	 "Only whole entries go, and what is there is never replaced. A repository that is not there is made, private.",
	 "stoker compile-cache push\n"
	 "stoker compile-cache push vision/compile-cache --kind jax=/tmp/jax --kind triton",
	 OPTS(o_cc_push), 0, 1, true, cmd_compile_cache_push},
	{"compile-cache pull", "[REPOSITORY]", "fill the compile caches of this machine from a repository",
	 "Files are verified by their digests. A file that is there is never replaced. A repository of compile caches is code: pull "
	 "only from people whom you would let run a program here.",
	 "stoker compile-cache pull\n"
	 "stoker compile-cache pull vision/compile-cache --to /opt/caches --device nvidia-h100-80gb-hbm3-x86-64-v4-3fa9",
	 OPTS(o_cc_pull), 0, 1, true, cmd_compile_cache_pull},
	{"compile-cache set", "REPOSITORY", "choose the repository that compile caches are kept in",
	 "For ls, push and pull here, and for optimum-neuron, which reads $HF_HOME/optimum_neuron_custom_cache.",
	 "stoker compile-cache set vision/compile-cache",
	 NO_OPTS, 1, 1, false, cmd_compile_cache_set},
	{"compile-cache rm", "REPOSITORY", "delete compile caches from a repository", NULL,
	 "stoker compile-cache rm vision/compile-cache --kind inductor --device nvidia-h100-80gb-hbm3-x86-64-v4-3fa9\n"
	 "stoker compile-cache rm vision/compile-cache --older-than 30d --yes",
	 OPTS(o_cc_rm), 1, 1, false, cmd_compile_cache_rm},
	{"compile-cache why", "[JOB]", "show why a job compiled what it compiled",
	 "For each entry that the job had to compile: the compiler's version, flags, the device, shapes or code, a path, or that nothing "
	 "of this kind was stored. What differs is found by what was stored when the job began.",
	 "stoker compile-cache why           # of your newest job\n"
	 "stoker compile-cache why dgiwbss -o json",
	 OPTS(o_cc_why), 0, 1, true, cmd_compile_cache_why},

	{"secrets ls", "", "list the names of secrets", NULL,
	 "stoker secrets ls\n"
	 "stoker secrets ls --team vision",
	 OPTS(o_team), 0, 0, true, cmd_secrets_ls},
	{"secrets set", "NAME", "set a secret; the value is read from the terminal or stdin",
	 "The value cannot be shown again.",
	 "stoker secrets set hf_access_token            # asks for the value\n"
	 "stoker secrets set aws --team vision < keys.json",
	 OPTS(o_team), 1, 1, false, cmd_secrets_set},
	{"secrets rm", "NAME", "delete a secret", NULL,
	 "stoker secrets rm hf_access_token\n"
	 "stoker secrets rm aws --team vision --yes",
	 OPTS(o_team_yes), 1, 1, false, cmd_secrets_rm},
	{"projects ls", "", "list projects", NULL,
	 "stoker projects ls\n"
	 "stoker projects ls -o json",
	 NO_OPTS, 0, 0, true, cmd_projects_ls},
	{"projects rm", "PROJECT", "delete a project with its jobs, checkpoints and cache", NULL,
	 "stoker projects rm demo\n"
	 "stoker projects rm vision/demo --confirm demo",
	 OPTS(o_confirm), 1, 1, false, cmd_projects_rm},
	{"teams ls", "", "list teams", NULL,
	 "stoker teams ls\n"
	 "stoker teams ls -o json",
	 NO_OPTS, 0, 0, true, cmd_teams_ls},
	{"teams create", "NAME", "create a team", NULL,
	 "stoker teams create vision\n"
	 "stoker tokens create ann --team vision   # then let people in",
	 NO_OPTS, 1, 1, false, cmd_teams_create},
	{"teams rm", "TEAM", "delete an empty team", NULL,
	 "stoker teams rm vision\n"
	 "stoker teams rm vision --yes",
	 OPTS(o_yes), 1, 1, false, cmd_teams_rm},
	{"tokens ls", "", "list tokens", NULL,
	 "stoker tokens ls\n"
	 "stoker tokens ls -o csv",
	 NO_OPTS, 0, 0, true, cmd_tokens_ls},
	{"tokens create", "NAME", "create a token; it is shown only once", NULL,
	 "stoker tokens create ann --expires-days 90\n"
	 "stoker tokens create ci --role viewer --team vision -q",
	 OPTS(o_token), 1, 1, true, cmd_tokens_create},
	{"tokens rm", "ID", "revoke a token", NULL,
	 "stoker tokens rm br2pjxk          # an id from `stoker tokens ls`\n"
	 "stoker tokens rm br2pjxk --yes",
	 OPTS(o_yes), 1, 1, false, cmd_tokens_rm},

	{"login", "", "save the server and token for this user", "Reads the token from the terminal or stdin.",
	 "stoker login --url https://stoker.example.org\n"
	 "stoker login --url http://127.0.0.1:8000 < token",
	 OPTS(o_login), 0, 0, false, cmd_login},
	{"doctor", "", "check login, server, sandbox, clocks, disk and an upload", NULL,
	 "stoker doctor\n"
	 "stoker doctor -o json             # for monitoring",
	 NO_OPTS, 0, 0, true, cmd_doctor},
	{"completion", "bash", "print the bash completion", NULL,
	 "source <(stoker completion bash)",
	 NO_OPTS, 0, 1, false, cmd_completion},
	{"man", "", "print the man page", NULL,
	 "stoker man | man -l -",
	 NO_OPTS, 0, 0, false, cmd_man},
	{"print-cli", "", NULL, NULL, NO_EXAMPLES, NO_OPTS, 0, 0, false, cmd_print_cli},
	{"print-errors", "", NULL, NULL, NO_EXAMPLES, NO_OPTS, 0, 0, false, cmd_print_errors},
	{"print-locks", "", NULL, NULL, NO_EXAMPLES, NO_OPTS, 0, 0, false, cmd_print_locks},
	{"print-job-file", "", NULL, NULL, NO_EXAMPLES, NO_OPTS, 0, 0, false, cmd_print_job_file},
	{"version", "", "print the version", NULL, NO_EXAMPLES, NO_OPTS, 0, 0, false, cmd_version},
};

const struct alias aliases[] = {
	{"top", "stoker metrics --watch"}, {"stats", "stoker metrics"},
	{"list", "stoker ps"}, {"ls", "stoker ps"}, {"jobs", "stoker ps"}, {"queue", "stoker ps"}, {"squeue", "stoker ps"},
	{"run", "stoker push -f"}, {"submit", "stoker push"}, {"start", "stoker push"}, {"launch", "stoker push"},
	{"create", "stoker push"}, {"train", "stoker push"}, {"deploy", "stoker push"}, {"sbatch", "stoker push"},
	{"status", "stoker view"}, {"show", "stoker view"}, {"describe", "stoker view"}, {"get", "stoker view"},
	{"info", "stoker view"}, {"inspect", "stoker view"},
	{"cancel", "stoker stop"}, {"kill", "stoker stop --now"}, {"down", "stoker stop"}, {"scancel", "stoker stop"},
	{"delete", "stoker stop"}, {"rm", "stoker stop"},
	{"log", "stoker logs"}, {"tail", "stoker logs -f"}, {"follow", "stoker logs -f"}, {"attach", "stoker logs -f"},
	{"ssh", "stoker exec JOB"}, {"shell", "stoker exec JOB"}, {"sh", "stoker exec JOB"}, {"bash", "stoker exec JOB"},
	{"restart", "stoker recreate"}, {"rerun", "stoker recreate"}, {"retry", "stoker recreate"}, {"resume", "stoker recreate --resume"},
	{"pull", "stoker checkpoints pull"}, {"download", "stoker checkpoints pull"}, {"checkpoint", "stoker checkpoints ls"},
	{"scp", "stoker checkpoints pull"}, {"cp", "stoker checkpoints pull"},
	{"whoami", "stoker doctor"}, {"nodes", "stoker doctor"}, {"gpus", "stoker doctor"}, {"sinfo", "stoker doctor"}, {"logout", "rm ~/.config/stoker/login.json"}, {"config", "stoker login"},
	{"upload", "stoker push"}, {"secret", "stoker secrets set NAME"}, {"project", "stoker projects ls"},
	{"job", "stoker ps"}, {"ckpt", "stoker checkpoints ls"}, {"ckpts", "stoker checkpoints ls"}, {"token", "stoker tokens ls"},
	{"team", "stoker teams ls"}, {"weight", "stoker weights ls"}, {"repo", "stoker repos ls"}, {"repositories", "stoker repos ls"},
	{"gc", "stoker cache gc"}, {"prune", "stoker cache gc"}, {"serve", "stoker server"}, {"up", "stoker server"},
};
/* clang-format on */

const size_t n_commands = COUNT(commands);
const size_t n_aliases = COUNT(aliases);
