/* usage.c - help, man page, bash completion and reference, all printed from the table of commands.
 */
#include "cli/cli.h"

#include <ctype.h>

static const char intro[] =
	"Stoker runs training jobs on your own machines: inputs on local disk before the first "
	"line\n"
	"runs, caches that survive jobs, checkpoints shipped while you train.\n";

static const struct {
	const char *title, *first; /* the first command of the group */
} groups[] = {
	{"Every day", "init"},
	{"Data", "checkpoints ls"},
	{"Administration", "secrets ls"},
	{"This machine", "login"},
};

static const char *group_at(const char *words)
{
	for (size_t i = 0; i < COUNT(groups); i++)
		if (strcmp(groups[i].first, words) == 0)
			return groups[i].title;
	return NULL;
}

void usage_all(FILE *to)
{
	(void)fprintf(to, "usage: stoker COMMAND [ARGUMENT]...\n\n%s", intro);
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *cmd = &commands[i];
		char left[80];

		if (cmd->help == NULL)
			continue;
		if (group_at(cmd->words) != NULL)
			(void)fprintf(to, "\n%s\n", group_at(cmd->words));
		(void)snprintf(left, sizeof(left), "%s %s", cmd->words, cmd->args);
		(void)fprintf(to, "  %-36s %s\n", left, cmd->help);
	}
	(void)fprintf(to, "  %-36s %s\n", "server [--setting VALUE]...",
	              "run the control plane (stoker server --help)");
	(void)fprintf(to, "\nJOB is an id, the start of one, a name, or @ for your newest job.\n"
	                  "More: stoker COMMAND --help\n");
}

#define HELP_COLUMNS 80 /* what a new terminal has */
#define OPTION_TEXT 31  /* column of what an option does */

/* A paragraph for a terminal. Its first line begins at column `indent`, where the cursor is. */
static void wrapped(const char *text, size_t indent, FILE *to)
{
	struct str rest = str_of(text), word;
	size_t col = indent;

	while (str_cut(&rest, ' ', &word)) {
		bool first = col == indent;

		if (!first && col + 1 + word.n > HELP_COLUMNS) {
			(void)fprintf(to, "\n%*s", (int)indent, "");
			col = indent;
			first = true;
		}
		(void)fprintf(to, "%s%.*s", first ? "" : " ", STR_ARG(word));
		col += word.n + !first;
	}
	(void)fputc('\n', to);
}

static void one_option(const struct opt *o, FILE *to)
{
	char left[64], help[400];

	(void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter != 0 ? "-" : " ",
	               o->letter != 0 ? o->letter : ' ', o->letter != 0 ? ", " : "  ", o->name,
	               o->kind == OPT_FLAG ? "" : " ", o->kind == OPT_FLAG ? "" : o->arg);
	(void)snprintf(help, sizeof(help), "%s%s", o->help,
	               o->kind == OPT_LIST ? " (repeat for several)" : "");
	(void)fprintf(to, "  %-28s ", left);
	wrapped(help, OPTION_TEXT, to);
}

void usage_command(const struct command *cmd, FILE *to)
{
	(void)fprintf(to, "usage: stoker %s%s%s%s\n\n%c%s.\n", cmd->words,
	              cmd->n_opts > 0 ? " [OPTION]..." : "", cmd->args[0] != '\0' ? " " : "",
	              cmd->args, toupper((unsigned char)cmd->help[0]), cmd->help + 1);
	if (cmd->more != NULL) {
		(void)fputc('\n', to);
		wrapped(cmd->more, 0, to);
	}
	(void)fprintf(to, "\noptions:\n");
	for (size_t i = 0; i < cmd->n_opts; i++)
		one_option(&cmd->opts[i], to);
	if (cmd->lists)
		(void)fprintf(to,
		              "  -o, --output FORM            table, json, jsonl or csv [table]\n");
	(void)fprintf(to, "  -q, --quiet                  no progress and no hints\n"
	                  "  -h, --help                   show this help\n");
	if (cmd->examples != NULL)
		(void)fprintf(to, "\nexamples:\n");
	for (struct str rest = str_of(cmd->examples), line; str_cut(&rest, '\n', &line);)
		(void)fprintf(to, "  %.*s\n", STR_ARG(line));
}

bool usage_group(const char *word, FILE *to)
{
	size_t len = strlen(word);
	bool any = false;

	for (size_t i = 0; i < n_commands; i++) {
		const struct command *cmd = &commands[i];
		char left[80];

		if (strncmp(cmd->words, word, len) != 0 || cmd->words[len] != ' ')
			continue;
		if (!any)
			(void)fprintf(to, "usage: stoker %s COMMAND [ARGUMENT]...\n\n", word);
		any = true;
		(void)snprintf(left, sizeof(left), "%s %s", cmd->words, cmd->args);
		(void)fprintf(to, "  %-36s %s\n", left, cmd->help);
	}
	if (any)
		(void)fprintf(to, "\nMore: stoker %s COMMAND --help\n", word);
	return any;
}

/* Text with roff's special characters made plain. */
static void roff(struct buf *out, const char *s)
{
	bool start = true;

	for (; *s != '\0'; s++) {
		if (start && (*s == '.' || *s == '\''))
			buf_puts(out, "\\&");
		start = *s == '\n';
		if (*s == '-' || *s == '\\')
			buf_putc(out, '\\');
		buf_putc(out, *s);
	}
}

void usage_man(struct buf *out)
{
	buf_puts(out,
	         ".TH STOKER 1 \"\" \"stoker " STOKER_VERSION "\" \"User commands\"\n"
	         ".SH NAME\nstoker \\- training jobs on your own machines\n"
	         ".SH SYNOPSIS\n.B stoker\n.I COMMAND\n[\\fIARGUMENT\\fR]...\n.SH DESCRIPTION\n");
	roff(out, intro);
	buf_puts(out, ".SH COMMANDS\n");
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *cmd = &commands[i];

		if (cmd->help == NULL)
			continue;
		buf_puts(out, ".TP\n.B stoker ");
		roff(out, cmd->words);
		buf_putc(out, ' ');
		roff(out, cmd->args);
		buf_putc(out, '\n');
		roff(out, cmd->help);
		buf_puts(out, ".\n");
		if (cmd->more != NULL) {
			buf_puts(out, ".br\n");
			roff(out, cmd->more);
			buf_putc(out, '\n');
		}
		if (cmd->examples != NULL) {
			buf_puts(out, ".nf\n");
			roff(out, cmd->examples);
			buf_puts(out, "\n.fi\n");
		}
		for (size_t k = 0; k < cmd->n_opts; k++) {
			buf_puts(out, ".br\n\\fB");
			buf_printf(out, "\\-\\-");
			roff(out, cmd->opts[k].name);
			buf_puts(out, "\\fR ");
			roff(out, cmd->opts[k].kind == OPT_FLAG ? "" : cmd->opts[k].arg);
			buf_puts(out, ": ");
			roff(out, cmd->opts[k].help);
			buf_putc(out, '\n');
		}
	}
	buf_puts(
		out,
		".SH EXIT STATUS\n0 success; 1 error; 2 wrong usage; 3 not found; 4 not allowed; "
		"5 conflict or limit; 10 the job failed; 11 the job was stopped; 124 timeout, also "
		"of a job by its limits; 130 Ctrl-C, or the answer was no.\n"
		".SH ENVIRONMENT\n.TP\n.B STOKER_URL, STOKER_TOKEN\nthe server and the token; "
		"else the "
		"saved login is used.\n.TP\n.B STOKER_ERRORS=json\nerrors as one line of JSON on "
		"stderr, with a stable id, as with -o json.\n.TP\n.B NO_COLOR\nno colours.\n"
		".SH FILES\n.TP\n.I ~/.config/stoker/login.json\nthe saved login.\n");
}

void usage_completion(struct buf *out)
{
	buf_puts(out,
	         "# bash completion of stoker: source <(stoker completion bash)\n_stoker()\n{\n"
	         "\tlocal cur=${COMP_WORDS[COMP_CWORD]} line=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\" "
	         "words=\n"
	         "\tcase \"$line \" in\n");
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *cmd = &commands[i];

		if (cmd->help == NULL)
			continue;
		buf_printf(out, "\t\"%s \"*) words='", cmd->words);
		for (size_t k = 0; k < cmd->n_opts; k++)
			buf_printf(out, "--%s ", cmd->opts[k].name);
		buf_printf(out, "%s--quiet --help';;\n", cmd->lists ? "--output " : "");
	}
	for (size_t i = 0; i < n_commands; i++) { /* "stoker cache <TAB>": once a group */
		const char *space = strchr(commands[i].words, ' ');
		size_t len = space != NULL ? (size_t)(space - commands[i].words) : 0;

		if (len == 0 ||
		    (i > 0 && strncmp(commands[i - 1].words, commands[i].words, len + 1) == 0))
			continue;
		buf_printf(out, "\t\"%.*s \") words='", (int)len, commands[i].words);
		for (size_t k = i;
		     k < n_commands && strncmp(commands[k].words, commands[i].words, len + 1) == 0;
		     k++)
			buf_printf(out, "%s ", commands[k].words + len + 1);
		buf_puts(out, "';;\n");
	}
	/* the settings' table is not this layer's: the server prints it */
	buf_puts(out, "\t\"server \"*) words=$(\"${COMP_WORDS[0]}\" server --help 2>/dev/null "
	              "| grep -o -e '--[a-z0-9-]*');;\n");
	buf_puts(out, "\t\" \"|\"help \") words='server help ");
	for (size_t i = 0; i < n_commands; i++) {
		size_t len = strcspn(commands[i].words, " ");

		if (commands[i].help == NULL ||
		    (i > 0 && strncmp(commands[i - 1].words, commands[i].words, len) == 0))
			continue;
		buf_printf(out, "%.*s ", (int)len, commands[i].words);
	}
	buf_puts(out, "';;\n\tesac\n\tcase ${COMP_WORDS[COMP_CWORD-1]} in -o|--output) "
	              "words='table json jsonl csv';; esac\n\tCOMPREPLY=($(compgen -W \"$words\" "
	              "-- \"$cur\"))\n"
	              "\t[[ ${#COMPREPLY[@]} -gt 0 || $cur == -* ]] || COMPREPLY=($(compgen -f -- "
	              "\"$cur\"))\n}\n"
	              "complete -F _stoker stoker\n");
}

void usage_reference(struct buf *out)
{
	buf_puts(out, "# The command line\n\nPrinted by `make docs` from the table of commands.\n");
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *cmd = &commands[i];

		if (cmd->help == NULL)
			continue;
		if (group_at(cmd->words) != NULL)
			buf_printf(out, "\n## %s\n", group_at(cmd->words));
		buf_printf(out, "\n### `stoker %s%s%s`\n\n%s.\n", cmd->words,
		           cmd->args[0] != '\0' ? " " : "", cmd->args, cmd->help);
		if (cmd->more != NULL)
			buf_printf(out, "\n%s\n", cmd->more);
		if (cmd->examples != NULL)
			buf_printf(out, "\n```sh\n%s\n```\n", cmd->examples);
		if (cmd->n_opts > 0)
			buf_puts(out, "\n| option | what it does |\n|---|---|\n");
		for (size_t k = 0; k < cmd->n_opts; k++) {
			const struct opt *o = &cmd->opts[k];

			buf_puts(out, "| `");
			if (o->letter != 0)
				buf_printf(out, "-%c, ", o->letter);
			buf_printf(out, "--%s%s%s` | %s |\n", o->name,
			           o->kind == OPT_FLAG ? "" : " ",
			           o->kind == OPT_FLAG ? "" : o->arg, o->help);
		}
	}
	buf_puts(
		out,
		"\nLists also take `-o table|json|jsonl|csv`.\n\n## Exit status\n\n"
		"| code | meaning |\n|---|---|\n| 0 | success |\n| 1 | error |\n| 2 | wrong "
		"usage or input |\n"
		"| 3 | not found |\n| 4 | not allowed |\n| 5 | conflict or limit |\n| 10 | "
		"the job failed |\n"
		"| 11 | the job was stopped |\n| 124 | timeout; also a job's, "
		"by `limits.max_duration` or `limits.idle_gpu` |\n"
		"| 130 | Ctrl-C, or the answer was no |\n\n"
		"With `-o json` (or, for every command, with the variable `STOKER_ERRORS=json`) an "
		"error is one line of JSON on stderr: `{\"error\": {\"id\": \"job_not_found\", "
		"\"message\": \"...\"}}`. [errors.md](errors.md) lists the ids. Mistakes of a job "
		"file "
		"are also listed in `problems`, each with `path`, `message`, `line` and "
		"`column`.\n");
}

void usage_errors(struct buf *out)
{
	struct err_row row;

	buf_puts(out, "# Errors\n\nPrinted by `make docs` from the table of errors. An id is never "
	              "renamed; the "
	              "message beside it may be reworded. Over HTTP: `{\"error\": {\"id\", "
	              "\"message\"}}`; "
	              "of a job: `error_id` beside `error_message`.\n\n"
	              "| id | HTTP | exit code | worth another try | when, and what helps "
	              "|\n|---|---|---|---|---|\n");
	for (size_t i = 0; err_row(i, &row); i++)
		buf_printf(out, "| `%s` | %d | %d | %s | %s |\n", row.id, row.info->http,
		           row.info->exit, row.info->retry ? "yes" : "no",
		           row.help != NULL ? row.help : "any other error of this class");
}
