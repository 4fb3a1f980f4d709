/* main.c - dispatch to the roles; the only file above the layers. */
#include "cli/cmd.h"
#include "run/env.h"
#include "run/runner.h"
#include "server/start/listener.h"
#include "server/server.h"

#include <malloc.h>

#define LARGE (1 << 20)

static int print_settings(int argc UNUSED, char **argv UNUSED, struct err *err UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);

	server_settings_reference(&out);
	return fputs(buf_cstr(&out), stdout) < 0 ? 1 : 0;
}

static int print_api(int argc UNUSED, char **argv UNUSED, struct err *err UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)4 << 20);

	server_api_reference(&out);
	return fputs(buf_cstr(&out), stdout) < 0 ? 1 : 0;
}

static int print_environment(int argc UNUSED, char **argv UNUSED, struct err *err UNUSED)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);

	env_reference(&out);
	return fputs(buf_cstr(&out), stdout) < 0 ? 1 : 0;
}

static const struct cli_role roles[] = {
	{"server", server_main, "[--setting VALUE]...",
         "run the control plane and every HTTP face"},
	{"runner", runner_main, "DIR", NULL},
	{"keep-port", keeper_main, "DIR", NULL},
	{"print-settings", print_settings, "",
         NULL}, /* the reference docs are printed from the tables */
	{"print-api", print_api, "", NULL},
	{"print-environment", print_environment, "", NULL},
};

/* What is large is the kernel's again once it is freed. By itself glibc learns to keep it, in each
 * thread's arena: a server whose clients had sent through it kept all that they had sent at once.
 */
static void give_memory_back(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, LARGE);
}

int main(int argc, char **argv)
{
	give_memory_back();
	return cli_main(argc, argv, roles, COUNT(roles));
}
