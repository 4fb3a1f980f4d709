/* janitor.h - all periodic work that nothing waits for. */
#ifndef JANITOR_H
#define JANITOR_H

#include "server/app.h"

#define JANITOR_PERIOD_MS 60000
#define JANITOR_IDEMPOTENCY_MS (7LL * 24 * 3600 * 1000)
#define JANITOR_UPLOADS_MS ((int64_t)7 * 24 * 3600 * 1000) /* of files that no commit names */
#define JANITOR_XORBS_MS ((int64_t)48 * 3600 * 1000)       /* see repo_xet.c */

void janitor_pass(struct app *app);

#endif
