/* upload.h - archives on their way to the server's object store. */
#ifndef UPLOAD_H
#define UPLOAD_H

#include "cli/cli.h"
#include "core/spec.h"

struct upload {
	int fd;
	uint64_t bytes;
	const char *sha256;  /* hex */
	const char *team_id; /* NULL: the caller's */
	bool afresh;         /* also when the server holds the same bytes */
};

/* Sends the file, unless the server holds its bytes already (*sent is false then). *out is where
 * they are. */
int upload_file(struct cli *c, const struct upload *u, struct spec_artifact *out, bool *sent,
                struct err *err) MUST_CHECK;

#endif
