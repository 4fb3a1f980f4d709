/* server.h - `stoker server`: the control plane and every HTTP face. */
#ifndef SERVER_H
#define SERVER_H

#include "base/err.h"
#include "base/buf.h"

int server_main(int argc, char **argv, struct err *err);
void server_settings_reference(struct buf *out); /* Markdown, for docs/settings.md */
void server_api_reference(struct buf *out);      /* Markdown, for docs/api.md */

#endif
