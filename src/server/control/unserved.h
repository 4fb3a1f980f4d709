/*
 * unserved.h - engines that never come up. One that has taken requests is started again as long as
 * its job has attempts; one that ends each time in the same way before it has taken any would do so
 * each time to come.
 */
#ifndef UNSERVED_H
#define UNSERVED_H

#include "server/app.h"

#define UNSERVED_MAX 5 /* so often: within two minutes, what holds it up for a moment is over */

/* Is the job, whose attempt has just ended as x says, not to be started again? Then in words, which
 * end with the last line that it has printed; NULL: it may be. */
const char *unserved_gives_up(struct app *app, struct arena *a, const struct model_job *job,
                              const struct wire_exit *x);

#endif
