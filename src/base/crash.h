/* crash.h - steps at which a process ends as kill -9 would end it, for tests: STOKER_CRASH_AT says
 * at which one. */
#ifndef CRASH_H
#define CRASH_H

#include "base/base.h"

/* Ends the process with `status` if this is the step. The environment is read once. */
void crash_at(const char *label, int status);

/* Instead of what the environment says; `label` stays the caller's. */
void crash_set(const char *label);

#endif
