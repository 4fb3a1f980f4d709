/*
 * serve.h - the HTTP server that a job runs (runtime.serve): a port for it, and a thread that asks
 * it how it is. What it says is logged and told to the server, which passes requests on.
 */
#ifndef SERVE_H
#define SERVE_H

#include "run/logs.h"
#include "run/report.h"

struct serve_options { /* kept as long as it runs */
	const char *name, *health, *key;
	uint32_t port;
	struct report *report;
	struct logs *logs;
};

/* A port of loopback that was free a moment ago. */
int serve_free_port(uint32_t *out, struct err *err) MUST_CHECK;
struct serve;
void serve_start(struct serve **out, const struct serve_options *o);
/* It has been told to end: it answers what it has, and gets no more. NULL is fine. */
void serve_drain(struct serve *s);
bool serve_stop(struct serve *s); /* joins. Did it take requests, at some time? NULL is fine */

#endif
