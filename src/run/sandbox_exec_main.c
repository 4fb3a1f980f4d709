/* sandbox_exec_main.c - the program sandbox-exec; see sandbox_exec.h. */
#include "run/sandbox_exec.h"

#include <sys/prctl.h>

int main(int argc, char **argv)
{
	struct err err = {0};

	(void)prctl(PR_SET_NAME, "sandbox-exec"); /* it is run from a descriptor */
	return sandbox_exec_run(argc - 1, argv + 1, &err);
}
