/* push_python.h - `stoker push`: the requirements of a job, read before anything is sent. */
#ifndef PUSH_PYTHON_H
#define PUSH_PYTHON_H

#include "core/spec.h"

/* The runner reads the same files again, from the code that was pushed.
 * ERR_PYTHON_REQUIREMENTS_INVALID names file and line. */
int push_python_check(const struct job_spec *spec, const char *root, struct err *err) MUST_CHECK;

#endif
