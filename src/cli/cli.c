/* cli.c - from argv to a command: words, options, arguments; errors to people. */
#include "cli/cli.h"

#include "base/conf.h"
#include "cli/cmd.h"

#include <signal.h>

#define WORDS_MAX 3

bool opt_flag(const struct cli *c, const char *name)
{
	return opt_text(c, name, NULL) != NULL;
}

const char *opt_text(const struct cli *c, const char *name, const char *dflt)
{
	const char *found = dflt;

	for (size_t i = 0; i < c->n_given; i++)
		if (strcmp(c->given[i].opt->name, name) == 0)
			found = c->given[i].value;
	return found;
}

int64_t opt_int(const struct cli *c, const char *name, int64_t dflt)
{
	const char *text = opt_text(c, name, NULL);
	struct err ignored = {0};
	int64_t n = dflt;

	if (text != NULL)
		(void)!str_i64(str_of(text), INT64_MIN + 1, INT64_MAX, &n,
		               &ignored); /* was checked */
	return n;
}

size_t opt_list(const struct cli *c, const char *name, const char **out, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n_given && n < cap; i++)
		if (strcmp(c->given[i].opt->name, name) == 0)
			out[n++] = c->given[i].value;
	return n;
}

/* How many words of argv the command's name takes; 0 = it is another command. */
static int words_match(const char *words, int argc, char **argv)
{
	struct str rest = str_of(words), word;
	int used = 0;

	while (str_cut(&rest, ' ', &word)) {
		if (used >= argc || !str_eq(word, argv[used]))
			return 0;
		used++;
	}
	return used;
}

static const struct command *find_command(int argc, char **argv, int *used)
{
	const struct command *best = NULL;

	*used = 0;
	for (size_t i = 0; i < n_commands; i++) {
		int n = words_match(commands[i].words, argc, argv);

		if (n > *used) {
			*used = n;
			best = &commands[i];
		}
	}
	return best;
}

static const struct opt common[] = {
	{"help", 'h', OPT_FLAG, NULL, "show this help"},
	{"quiet", 'q', OPT_FLAG, NULL, "no progress and no hints"},
};
static const struct opt output[] = {
	{"output", 'o', OPT_TEXT, "FORM", "table, json, jsonl or csv [table]"},
};

static const struct opt *find_opt(const struct command *cmd, struct str name, char letter)
{
	const struct {
		const struct opt *opts;
		size_t n;
	} sets[] = {{cmd->opts, cmd->n_opts},
	            {common, COUNT(common)},
	            {output, cmd->lists ? COUNT(output) : 0}};

	for (size_t s = 0; s < COUNT(sets); s++)
		for (size_t i = 0; i < sets[s].n; i++)
			if (letter != 0 ? sets[s].opts[i].letter == letter
			                : str_eq(name, sets[s].opts[i].name))
				return &sets[s].opts[i];
	return NULL;
}

static int no_such_opt(const struct command *cmd, bool is_long, struct str name, struct err *err)
{
	const char *names[64];
	size_t n = 0;
	const char *near;

	for (size_t i = 0; i < cmd->n_opts && n < COUNT(names); i++)
		names[n++] = cmd->opts[i].name;
	near = is_long ? conf_nearest(name, names, n) : NULL;
	return err_set(err, ERR_USAGE, "%s: unknown option %s%.*s%s%s%s; see `stoker %s --help`",
	               cmd->words, is_long ? "--" : "-", STR_ARG(name),
	               near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
	               near != NULL ? "?" : "", cmd->words);
}

static int take(struct cli *c, const struct opt *o, const char *value, struct err *err)
{
	struct err why = {0};
	int64_t n;

	if (c->n_given >= CLI_ARGS_MAX)
		return err_set(err, ERR_USAGE, "too many options");
	if ((o->kind == OPT_INT || o->kind == OPT_COUNT) &&
	    str_i64(str_of(value), o->kind == OPT_COUNT ? 0 : INT64_MIN + 1, INT64_MAX, &n, &why) <
	            0)
		return err_set(err, ERR_USAGE, "--%s: \"%.60s\" is not a whole number%s", o->name,
		               value, o->kind == OPT_COUNT ? " from 0 on" : "");
	c->given[c->n_given].opt = o;
	c->given[c->n_given++].value = value;
	return 0;
}

/* One word that starts with a dash; *i moves when the value stands apart. */
static int take_option(struct cli *c, int argc, char **argv, int *i, struct err *err)
{
	struct str word = str_of(argv[*i]), name;
	bool is_long = str_starts(word, "--");
	bool has_value = is_long && memchr(word.p, '=', word.n) != NULL;
	const struct opt *o;
	const char *value = "";

	word = str_skip(word, is_long ? 2 : 1);
	(void)str_cut(&word, is_long ? '=' : '\0', &name);
	if (!is_long && name.n > 1) { /* -n100: the value is joined; -it: two flags */
		word = str_skip(name, 1);
		name.n = 1;
		has_value = true;
	}
	o = find_opt(c->command, name, is_long ? 0 : name.p[0]);
	while (o != NULL && o->kind == OPT_FLAG && !is_long && has_value) {
		if (take(c, o, "", err) < 0)
			return -1;
		name = str_n(word.p, 1);
		word = str_skip(word, 1);
		has_value = word.n > 0;
		o = find_opt(c->command, name, name.p[0]);
	}
	if (o == NULL)
		return no_such_opt(c->command, is_long, name, err);
	if (o->kind == OPT_FLAG && has_value)
		return err_set(err, ERR_USAGE, "--%s takes no value", o->name);
	if (o->kind != OPT_FLAG) {
		if (has_value)
			value = arena_strz(c->arena, word);
		else if (*i + 1 < argc)
			value = argv[++*i];
		else
			return err_set(err, ERR_USAGE, "--%s needs a value: %s", o->name, o->arg);
	}
	return take(c, o, value, err);
}

/* exec: what stands behind "--" is a command. Elsewhere these are arguments, dashes or not. */
static bool runs_the_rest(const struct command *cmd)
{
	return strstr(cmd->args, "[--") != NULL;
}

/* Goes on after a mistake, of which the first is told: -o says in which form. */
static int parse(struct cli *c, int argc, char **argv, struct err *err)
{
	struct err later = {0};
	bool only_words = false;
	int r = 0;

	for (int i = 0; i < argc; i++) {
		if (!only_words && strcmp(argv[i], "--") == 0 && !runs_the_rest(c->command)) {
			only_words = true;
		} else if (!only_words && strcmp(argv[i], "--") == 0) {
			c->rest = ARENA_ARRAY(c->arena, const char *, (size_t)(argc - i));
			while (++i < argc)
				c->rest[c->n_rest++] = argv[i];
			break;
		} else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0') {
			if (take_option(c, argc, argv, &i, r < 0 ? &later : err) < 0)
				r = -1;
			err_clear(&later);
		} else if (c->n_arg < CLI_ARGS_MAX) {
			c->arg[c->n_arg++] = argv[i];
		} else if (r == 0) {
			r = err_set(err, ERR_USAGE, "too many arguments: at most %d", CLI_ARGS_MAX);
		}
	}
	return r;
}

static int check_count(const struct cli *c, struct err *err)
{
	const struct command *cmd = c->command;
	char what[60] = "an argument is missing";

	if (c->n_arg >= cmd->least && c->n_arg <= cmd->most)
		return 0;
	if (c->n_arg > cmd->most && cmd->most > 1)
		FMT(what, "too many arguments: at most %u", cmd->most);
	else if (c->n_arg > cmd->most)
		FMT(what, "too many arguments");
	return err_set(err, ERR_USAGE, "%s; usage: stoker %s%s%s", what, cmd->words,
	               cmd->args[0] != '\0' ? " " : "", cmd->args);
}

static int unknown_command(int argc, char **argv, struct err *err)
{
	const char *names[128];
	size_t n = 0;
	const char *near;
	AUTO_BUF struct buf group = BUF_INIT(2000);

	for (size_t i = 0; i < n_commands && n < COUNT(names); i++)
		names[n++] = commands[i].words;
	for (size_t i = 0; i < n_commands; i++) { /* "stoker cache" alone names its verbs */
		size_t len = strlen(argv[0]);

		if (strncmp(commands[i].words, argv[0], len) == 0 && commands[i].words[len] == ' ')
			buf_printf(&group, "%s%s", group.n > 0 ? ", " : "",
			           commands[i].words + len + 1);
	}
	if (group.n > 0)
		return err_set(err, ERR_USAGE, "%s: %s%s%suse one of %s", argv[0],
		               argc > 1 ? "unknown command \"" : "", argc > 1 ? argv[1] : "",
		               argc > 1 ? "\"; " : "", buf_cstr(&group));
	for (size_t i = 0; i < n_aliases; i++)
		if (strcmp(aliases[i].word, argv[0]) == 0)
			return err_set(err, ERR_COMMAND_UNKNOWN, "unknown command \"%s\": use `%s`",
			               argv[0], aliases[i].instead);
	if (argv[0][0] == '-')
		return err_set(err, ERR_USAGE,
		               "unknown option %s: options stand behind the command, as in "
		               "`stoker ps -o json`",
		               argv[0]);
	near = conf_nearest(str_of(argv[0]), names, n);
	return err_set(err, ERR_COMMAND_UNKNOWN,
	               "unknown command \"%s\"%s%s%s; see `stoker --help`", argv[0],
	               near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
	               near != NULL ? "\"?" : "");
}

static bool asks_for_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* "stoker help push", "stoker help cache" */
static int help_with(struct cli *c, int argc, char **argv, struct err *err)
{
	int used;

	c->command = find_command(argc, argv, &used);
	if (c->command != NULL)
		usage_command(c->command, stdout);
	else if (argc > 1 || !usage_group(argv[0], stdout))
		return unknown_command(argc, argv, err);
	return 0;
}

static int run_command(struct cli *c, int argc, char **argv, struct err *err)
{
	int used;

	if (strcmp(argv[0], "help") == 0 && argc > 1)
		return help_with(c, argc - 1, argv + 1, err);
	c->command = find_command(argc, argv, &used);
	if (c->command == NULL && argc == 2 && asks_for_help(argv[1]))
		return help_with(c, 1, argv, err);
	if (c->command == NULL)
		return unknown_command(argc, argv, err);
	if (parse(c, argc - used, argv + used, err) < 0)
		return -1;
	c->argv = NULL;
	if (opt_flag(c, "help")) {
		usage_command(c->command, stdout);
		return 0;
	}
	c->quiet = opt_flag(c, "quiet");
	if (check_count(c, err) < 0)
		return -1;
	return c->command->run(c, err);
}

/* Scripts ask for errors that they can read by -o json or, for every command, STOKER_ERRORS=json.
 */
static bool always_json(void)
{
	const char *always = getenv("STOKER_ERRORS");

	return always != NULL && strcmp(always, "json") == 0;
}

static bool is_json(const char *form)
{
	return form != NULL && (strcmp(form, "json") == 0 || strcmp(form, "jsonl") == 0);
}

/* -o json in a command line that has no meaning otherwise: of no command, or of one without -o. */
static bool asks_for_json(char **argv)
{
	for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++) {
		if (strcmp(*argv, "-o") == 0 || strcmp(*argv, "--output") == 0) {
			if (is_json(argv[1]))
				return true;
		} else if (strncmp(*argv, "-o", 2) == 0) {
			if (is_json(*argv + 2))
				return true;
		} else if (strncmp(*argv, "--output=", 9) == 0 && is_json(*argv + 9)) {
			return true;
		}
	}
	return false;
}

bool cli_wants_json(const struct cli *c)
{
	return always_json() || is_json(opt_text(c, "output", NULL)) ||
	       (c->argv != NULL && asks_for_json(c->argv));
}

static void show_json(const struct err *err, const char *problems)
{
	AUTO_BUF struct buf line = BUF_INIT(CLI_PROBLEMS_MAX + (size_t)ERR_MSG_MAX * 8);
	struct js js;

	js_init(&js, &line);
	js.shown = true;
	js_open(&js);
	js_kv_err(&js, "error", err);
	if (problems != NULL) {
		js_key(&js, "problems");
		js_raw(&js, str_of(problems));
	}
	js_close(&js);
	(void)fprintf(stderr, "%s\n", buf_cstr(&line));
}

static void show_error(const struct cli *c, const struct err *err)
{
	if (cli_wants_json(c))
		show_json(err, c->problems);
	else
		out_error("stoker: %s", err->msg);
}

static int run_role(const struct cli_role *role, int argc, char **argv)
{
	struct err err = {0};
	int r = role->run(argc, argv, &err);

	if (r >= 0)
		return r;
	if (always_json() || asks_for_json(argv))
		show_json(&err, NULL);
	else
		out_error("stoker %s: %s", role->name, err.msg);
	return err_info(&err)->exit;
}

int cli_main(int argc, char **argv, const struct cli_role *roles, size_t n_roles)
{
	static char version[] = "version";
	struct cli c = {.magic = CLI_MAGIC};
	struct err err = {0};
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    (strcmp(argv[1], "help") == 0 && argc == 2)) {
		usage_all(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
	    strcmp(argv[1], "-v") == 0)
		argv[1] = version;
	for (size_t i = 0; i < n_roles; i++)
		if (strcmp(argv[1], roles[i].name) == 0)
			return run_role(&roles[i], argc - 2, argv + 2);
	c.arena = arena_new();
	c.argv = argv + 1;
	c.tty_out = isatty(1) == 1;
	c.tty_err = isatty(2) == 1;
	c.colour = c.tty_out && getenv("NO_COLOR") == NULL;
	r = run_command(&c, argc - 1, argv + 1, &err);
	/* a reader that has seen enough (`| head`) is no error */
	if (fflush(stdout) == EOF && errno != EPIPE && r >= 0)
		r = err_errno(&err, errno, "writing the output");
	if (r < 0) {
		show_error(&c, &err);
		r = err_info(&err)->exit;
	}
	http_client_free(c.http);
	arena_free(c.arena);
	return r;
}
