/* push_python.h - `stoker push`: the requirements of a job, read before anything is sent. */
#ifndef PUSH_PYTHON_H
#define PUSH_PYTHON_H

#include "cli/pack.h"
#include "core/spec.h"

/* The runner reads the same files again, from the code that was pushed.
 * ERR_PYTHON_REQUIREMENTS_INVALID names file and line. `code`, when it is packed already, says
 * which files are not sent. */
int push_python_check(const struct job_spec *spec, const char *root, const struct pack *code,
                      struct err *err) MUST_CHECK;

#endif
