/* cmd.h - the verbs of the command line. */
#ifndef CMD_H
#define CMD_H

#include "base/buf.h"

/* Roles that main.c adds to the table because the CLI layer cannot reach them. */
struct cli_role {
	const char *name;
	int (*run)(int argc, char **argv, struct err *err);
	const char *args, *help; /* help NULL: internal, not listed */
};

/* Dispatches argv by the table of commands and the roles; prints errors; returns the exit code. */
int cli_main(int argc, char **argv, const struct cli_role *roles, size_t n_roles);

#endif
