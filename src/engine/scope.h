/*
 * scope.h - runners in systemd scopes of their own. Under systemd a runner must not stay in the
 * group of the service that started it: the unit's next start is refused (status 219/CGROUP) while
 * groups with limits are below it, and stopping the unit may take the runner along. A delegated
 * scope is the runner's alone, so it can give its job limits, as an ordinary user too.
 *
 * systemd-run registers its own process and becomes the command: pid and start time stay.
 */
#ifndef SCOPE_H
#define SCOPE_H

#include "base/arena.h"

/* The facts that the decision depends on. */
struct scope_facts {
	bool systemd; /* it manages this machine, with cgroup version 2 */
	bool root;
	bool lingers;            /* the user's manager stays when the last login ends */
	bool inside;             /* we are below the user's manager already: it outlives us */
	const char *runtime_dir; /* of the user */
};

enum scope_kind {
	SCOPE_NONE,   /* as a child, as anywhere else */
	SCOPE_SYSTEM, /* by the machine's manager */
	SCOPE_USER,   /* by the user's */
};

/* Pure. A user who does not linger loses the manager, and all in it, with the last login: such a
 * runner stays where it is. */
enum scope_kind scope_choose(const struct scope_facts *f);

/* argv, NULL-terminated, with what puts it into a scope before it; argv itself where there is
 * none. Any thread. The first call of a process tries whether scopes work, and may wait for the
 * user's manager while the machine starts: SCOPE_WAIT_MS and SCOPE_TRY_MS at most; a failure is
 * logged and tried again after SCOPE_AGAIN_MS. */
const char *const *scope_wrap(struct arena *a, const char *const *argv);
#define SCOPE_WAIT_MS 10000
#define SCOPE_TRY_MS 10000
#define SCOPE_AGAIN_MS 60000

#endif
