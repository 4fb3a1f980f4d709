/*
 * cli.h - what the verbs share: the parsed command line, the server behind it, and output.
 *
 * A command is a row of the table in commands.c: its words, arguments, options and help. Usage, man
 * page and bash completion are printed from the same rows. A verb returns an exit code, or -1 with
 * *err set, whose code chooses the exit status.
 */
#ifndef CLI_H
#define CLI_H

#include "base/json.h"
#include "base/log.h"
#include "io/client.h"

#define CLI_ARGS_MAX 256
#define CLI_PROBLEMS_MAX ((size_t)1 << 20) /* SPEC_PROBLEMS_MAX of them, every byte escaped */
#define CLI_EXIT_FAILED 10                 /* the job failed */
#define CLI_EXIT_STOPPED 11                /* the job was stopped */
#define CLI_EXIT_TIMEOUT 124  /* a limit of the job's own time: max_duration, idle_gpu */
#define CLI_EXIT_DETACHED 130 /* Ctrl-C while following: what was followed goes on */

enum opt_kind { OPT_FLAG, OPT_TEXT, OPT_INT, OPT_COUNT, OPT_LIST }; /* a count is 0 or more */

struct opt {
	const char *name; /* without dashes */
	char letter;      /* short form, 0 = none */
	enum opt_kind kind;
	const char *arg; /* what stands after it in help */
	const char *help;
};

struct cli;

struct command {
	const char *words;    /* "push", "cache du" */
	const char *args;     /* "JOB [DIR]" */
	const char *help;     /* one line */
	const char *more;     /* a paragraph, or NULL */
	const char *examples; /* command lines, one a line, with a comment or without; NULL: none */
	const struct opt *opts;
	size_t n_opts;
	unsigned least, most; /* positional arguments */
	bool lists;           /* takes -o table|json|jsonl|csv */
	int (*run)(struct cli *c, struct err *err);
};

extern const struct command commands[];
extern const size_t n_commands;

/* Words of other tools, and the command here that does the same. */
struct alias {
	const char *word, *instead;
};
extern const struct alias aliases[];
extern const size_t n_aliases;

struct cli {
	unsigned magic;
#define CLI_MAGIC 0x4c434c49U
	struct arena *arena;
	const struct command *command;
	const char *arg[CLI_ARGS_MAX];
	unsigned n_arg;
	const char **rest; /* what follows "--" */
	size_t n_rest;
	struct {
		const struct opt *opt;
		const char *value;
	} given[CLI_ARGS_MAX];
	size_t n_given;
	bool tty_out, tty_err, colour, quiet;
	bool named_job;       /* which of several jobs was taken is said, once */
	char **argv;          /* the command line, until it is understood; then NULL */
	const char *problems; /* JSON: the mistakes of a job file, beside its error */
	/* the server; see remote.c */
	struct http_client *http;
	const char *url, *token;
	const char *host, *proof; /* for io/proof.h: Host header and path; set for http:// URLs */
	atomic_uint port;         /* that the server says it is at; 0 = not known yet */
	bool around;              /* the object store cannot be reached from here, which was said */
};

/* Are errors to be one line of JSON? By -o json or STOKER_ERRORS=json. */
bool cli_wants_json(const struct cli *c);

bool opt_flag(const struct cli *c, const char *name);
const char *opt_text(const struct cli *c, const char *name, const char *dflt);
int64_t opt_int(const struct cli *c, const char *name, int64_t dflt); /* checked while parsing */
size_t opt_list(const struct cli *c, const char *name, const char **out, size_t cap);

/* usage.c */
void usage_all(FILE *to);
void usage_command(const struct command *cmd, FILE *to);
bool usage_group(const char *word,
                 FILE *to); /* "cache": its verbs; false = there is no such group */
void usage_man(struct buf *out);
void usage_completion(struct buf *out);
void usage_reference(struct buf *out); /* Markdown */
void usage_errors(struct buf *out);    /* Markdown */

/* out.c: data to stdout, everything else to stderr. */
enum out_form { OUT_TABLE, OUT_JSON, OUT_JSONL, OUT_CSV };
int out_form(const struct cli *c, enum out_form *form, struct err *err) MUST_CHECK;

struct out_col {
	const char *title;
	bool right; /* numbers */
	void (*cell)(const struct doc *d, struct buf *out);
	const char *key; /* the member that cell is given; NULL: it is given the whole row */
};
void out_cell(const struct out_col *col, const struct doc *row, struct buf *out);
/* A JSON array of the API, in the form asked for with -o. */
int out_list(const struct cli *c, const struct doc *list, const struct out_col *cols, size_t n,
             const char *empty, struct err *err) MUST_CHECK;
/* A list by a member of its rows, a number or a text: the same children, linked anew. */
const struct doc *out_sorted(struct cli *c, const struct doc *list, const char *key, bool down);
/* The same for what is no list: csv is refused. */
int out_form_one(const struct cli *c, enum out_form *form, struct err *err) MUST_CHECK;
void out_one(enum out_form form, const struct doc *d); /* OUT_JSON or OUT_JSONL */
void out_json(const struct doc *d);                    /* indented, to stdout */
void out_message(const struct cli *c, const char *fmt, ...)
	PRINTF(2, 3); /* a line to stderr unless quiet */
void out_next(const struct cli *c, const char *const *lines, size_t n);    /* what to type next */
void out_progress(const struct cli *c, const char *fmt, ...) PRINTF(2, 3); /* replaced in place */
void out_progress_end(const struct cli *c);
/* The same where lines cannot be replaced: one after the other. */
void out_waiting(const struct cli *c, const char *fmt, ...) PRINTF(2, 3);
int out_confirm(const struct cli *c, const char *question, const char *must_type,
                struct err *err) MUST_CHECK;
/* All of these, and out_line(), escape what people cannot see: most words are of others. A newline
 * is one. */
void out_put(const char *fmt, ...) PRINTF(1, 2);   /* to stdout, as it is */
void out_error(const char *fmt, ...) PRINTF(1, 2); /* a line to stderr, also when quiet */
const char *out_status(const struct cli *c, const char *status); /* short and coloured, in arena */
/* The same of a job, with why it failed or what it waits for, where that is known. */
const char *out_job_status(const struct cli *c, const struct doc *job);
/* Ready-made cells */
void cell_age(const struct doc *iso, struct buf *out);
void cell_in(const struct doc *iso, struct buf *out); /* time left: "6d", "never", "expired" */
void cell_bytes(const struct doc *n, struct buf *out);
void cell_text(const struct doc *d, struct buf *out); /* "-" for null */
void cell_name(const struct doc *d, struct buf *out); /* the same as out_name() has it */
/* Cells of a job's row. */
void cell_run(const struct doc *job, struct buf *out); /* how long its commands ran */
void cell_sync(const struct doc *job, struct buf *out);
const char *out_cell_of(struct cli *c, void (*cell)(const struct doc *, struct buf *),
                        const struct doc *d);                        /* in arena */
void out_line(const char *label, const char *fmt, ...) PRINTF(2, 3); /* of a page of one thing */
const char *out_number(struct cli *c, uint64_t n);                   /* "1,011" */
const char *out_count(struct cli *c, uint64_t n, const char *thing); /* "1 job", "1,011 jobs" */
/* Somebody else's words on one line: blanks for white space, and base/shown.h for the rest. */
const char *out_plain(struct arena *a, struct str s);
/* A name: white space that is no blank is escaped too. */
const char *out_name(struct arena *a, struct str s);
int columns_of_terminal(void);
/* Writes out what stdout holds. *unread: its reader is gone (`| head`), which is no error. */
int out_flush(bool *unread, struct err *err) MUST_CHECK;

/* joblist.c. The items of a page behind those of the pages before. */
void list_append(struct cli *c, struct doc *list, struct doc **last, const struct doc *more);

/* remote.c */
int remote_login(struct cli *c,
                 struct err *err) MUST_CHECK; /* STOKER_URL, STOKER_TOKEN, login.json */
int remote_save_login(struct cli *c, const char *url, const char *token,
                      struct err *err) MUST_CHECK;
const char *remote_login_path(struct arena *a);
/* Body and reply are JSON; body NULL = none. Path is printf-like; encode parts with remote_part. */
int remote_call(struct cli *c, enum http_method method, const char *path, const struct buf *body,
                const struct doc **out, struct err *err) MUST_CHECK;
int remote_get(struct cli *c, const struct doc **out, struct err *err, const char *fmt,
               ...) MUST_CHECK PRINTF(4, 5);
/* http_expect() for people: what the server said is enough, its status is in err's code. */
int remote_expect(const struct http_call *call, const struct http_reply *reply,
                  struct err *err) MUST_CHECK;
/* Rewrites the error of a failed exchange for people: who cannot be reached, why, and what helps.
 * The server's own message stays. Returns -1. */
int remote_explain(const struct cli *c, struct err *err);
/* retry_again() that says at once what is wrong, and that it goes on: `tries` is what r began with.
 */
bool remote_again(struct cli *c, struct retry *r, int tries, struct err *err);
/* May bytes go between here and this URL of the object store, as far as is known? Not in the clear
 * where the server is spoken to by TLS. */
bool remote_may_go(const struct cli *c, const char *url);
/* From now on they go by the server; said once, with the error that is the cause, which is cleared.
 */
void remote_go_around(struct cli *c, struct err *err);
/* Another try would go where this one went. */
bool remote_is_unreachable(const struct err *err);
#define REMOTE_CONNECT_MS 3000                            /* to the store: there is another way */
const char *remote_part(struct cli *c, const char *text); /* percent-encoded, in arena */
/* Again and again until Ctrl-C; each time with an arena of its own. */
int watch(struct cli *c, int (*once)(struct cli *c, struct err *err), struct err *err) MUST_CHECK;
extern atomic_bool interrupted; /* Ctrl-C: calls end with ERR_CANCELED */
void catch_interrupt(void);

/* resolve.c: names as people type them, resolved by the server: an exact id, else an exact name,
 * else the start of an id. ERR_NAME_AMBIGUOUS names the candidates. */
enum several {                 /* of several jobs of one name */
	       SEVERAL_REFUSE, /* what changes or destroys something does not guess */
	       SEVERAL_ACTIVE, /* the only active one; this and the next say on stderr which */
	       SEVERAL_NEWEST, /* that, else the newest */
};
/* "@": the newest job that this user pushed. The job object. */
int resolve_job(struct cli *c, const char *word, enum several several, const struct doc **job,
                struct err *err) MUST_CHECK;
/* Also TEAM/PROJECT; "@": that of the newest job. */
int resolve_project(struct cli *c, const char *word, const struct doc **project,
                    struct err *err) MUST_CHECK;
int resolve_team(struct cli *c, const char *word, const struct doc **team,
                 struct err *err) MUST_CHECK;
/* "JOB/NAME", or NAME of job_word (NULL: "@"); NAME "latest" is the newest complete one. */
int resolve_checkpoint(struct cli *c, const char *word, const char *job_word, enum several several,
                       const struct doc **job, const struct doc **checkpoint,
                       struct err *err) MUST_CHECK;
const char *project_title(struct cli *c, const struct doc *project); /* "TEAM/PROJECT" */
const char *job_path(struct cli *c, const struct doc *job,
                     const char *tail); /* "/v1/training_projects/.../jobs/...<tail>" */

/* Verbs */
int cmd_init(struct cli *c, struct err *err);
int cmd_push(struct cli *c, struct err *err);
int cmd_ps(struct cli *c, struct err *err);
int cmd_view(struct cli *c, struct err *err);
int cmd_logs(struct cli *c, struct err *err);
int cmd_stop(struct cli *c, struct err *err);
int cmd_recreate(struct cli *c, struct err *err);
int cmd_update(struct cli *c, struct err *err);
int cmd_events(struct cli *c, struct err *err);
int cmd_exec(struct cli *c, struct err *err);
int cmd_metrics(struct cli *c, struct err *err);
int cmd_checkpoints_check(struct cli *c, struct err *err);
int cmd_checkpoints_ls(struct cli *c, struct err *err);
int cmd_checkpoints_show(struct cli *c, struct err *err);
int cmd_checkpoints_pull(struct cli *c, struct err *err);
int cmd_checkpoints_pin(struct cli *c, struct err *err);
int cmd_checkpoints_unpin(struct cli *c, struct err *err);
int cmd_checkpoints_complete(struct cli *c, struct err *err);
int cmd_checkpoints_rm(struct cli *c, struct err *err);
int cmd_cache_summarize(struct cli *c, struct err *err);
int cmd_cache_du(struct cli *c, struct err *err);
int cmd_cache_quota(struct cli *c, struct err *err);
int cmd_cache_rm(struct cli *c, struct err *err);
int cmd_cache_gc(struct cli *c, struct err *err);
int cmd_cache_verify(struct cli *c, struct err *err);
int cmd_weights_ls(struct cli *c, struct err *err);
int cmd_weights_prefetch(struct cli *c, struct err *err);
int cmd_weights_rm(struct cli *c, struct err *err);
int cmd_deploy(struct cli *c, struct err *err);
int cmd_deployments_ls(struct cli *c, struct err *err);
int cmd_deployments_view(struct cli *c, struct err *err);
int cmd_deployments_logs(struct cli *c, struct err *err);
int cmd_deployments_stop(struct cli *c, struct err *err);
int cmd_deployments_start(struct cli *c, struct err *err);
int cmd_deployments_scale(struct cli *c, struct err *err);
int cmd_deployments_rm(struct cli *c, struct err *err);
int cmd_repos_ls(struct cli *c, struct err *err);
int cmd_repos_du(struct cli *c, struct err *err);
int cmd_repos_show(struct cli *c, struct err *err);
int cmd_repos_create(struct cli *c, struct err *err);
int cmd_repos_rm(struct cli *c, struct err *err);
int cmd_compile_cache_ls(struct cli *c, struct err *err);
int cmd_compile_cache_artifacts(struct cli *c, struct err *err);
int cmd_compile_cache_du(struct cli *c, struct err *err);
int cmd_compile_cache_push(struct cli *c, struct err *err);
int cmd_compile_cache_pull(struct cli *c, struct err *err);
int cmd_compile_cache_set(struct cli *c, struct err *err);
int cmd_compile_cache_rm(struct cli *c, struct err *err);
int cmd_compile_cache_why(struct cli *c, struct err *err);
int cmd_secrets_ls(struct cli *c, struct err *err);
int cmd_secrets_set(struct cli *c, struct err *err);
int cmd_secrets_rm(struct cli *c, struct err *err);
int cmd_projects_ls(struct cli *c, struct err *err);
int cmd_projects_rm(struct cli *c, struct err *err);
int cmd_teams_ls(struct cli *c, struct err *err);
int cmd_teams_create(struct cli *c, struct err *err);
int cmd_teams_rm(struct cli *c, struct err *err);
int cmd_tokens_ls(struct cli *c, struct err *err);
int cmd_tokens_create(struct cli *c, struct err *err);
int cmd_tokens_rm(struct cli *c, struct err *err);
int cmd_login(struct cli *c, struct err *err);
int cmd_doctor(struct cli *c, struct err *err);
int cmd_version(struct cli *c, struct err *err);
int cmd_completion(struct cli *c, struct err *err);
int cmd_man(struct cli *c, struct err *err);
int cmd_print_cli(struct cli *c, struct err *err);
int cmd_print_errors(struct cli *c, struct err *err);
int cmd_print_locks(struct cli *c, struct err *err);
int cmd_print_job_file(struct cli *c, struct err *err);

/* Shared between verbs */
/* Follows a job's log to its end. Returns the exit code of its outcome; CLI_EXIT_DETACHED after
 * Ctrl-C, or when nobody reads the log any more. */
int follow_job(struct cli *c, const struct doc *job, struct err *err) MUST_CHECK;
/* Replaces ${NAME} in all texts of a job file. */
int expand_env(struct cli *c, const struct doc **d, struct err *err) MUST_CHECK;

#endif
