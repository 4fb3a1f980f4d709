/*
 * log.h - the program's own log: one line an event to stderr, logfmt or JSON. Only server/, run/
 * and cli/ log above debug. Nothing is redacted here: callers never log a secret.
 */
#ifndef LOG_H
#define LOG_H

#include "base/buf.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_init(enum log_level least, bool json);
int log_level_parse(struct str word, enum log_level *out, struct err *err) MUST_CHECK;
/* A printf-like message; put ids in it as key=value. Thread-safe, one write a line. */
void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
