/* janitor.h - all periodic work that nothing waits for. */
#ifndef JANITOR_H
#define JANITOR_H

#include "server/app.h"

#define JANITOR_PERIOD_MS 60000
#define JANITOR_UPLOAD_MS (24LL * 3600 * 1000) /* an upload that no job names */
#define JANITOR_IDEMPOTENCY_MS (7LL * 24 * 3600 * 1000)
#define JANITOR_PARTS_S (24 * 3600)   /* an upload in parts that nobody finished */
#define JANITOR_MANIFEST_S 3600       /* a manifest that nothing names */
#define JANITOR_TMP_S (7 * 24 * 3600) /* a partial fetch that nobody resumed */

void janitor_pass(struct app *app);
/* Removes what deleted rows left behind; not while another thread does. */
void janitor_trash(struct app *app);

#endif
