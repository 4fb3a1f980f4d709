/*
 * prjquota_keeper.h - for a runner that gave up root (confine.h), whose job's checkpoint folder is
 * held to its size by the file system.
 *
 * The runner sets the limit while it is root, and the sweep lifts it (run_end.c). What is left to
 * do meanwhile is to take files that wait in the spool out of the limit (prjquota_forget()), and
 * nobody in a user namespace may do that. So the runner starts a keeper (keeper.h), a process that
 * stays in the machine's own one, as the runner's user, with one capability (CAP_FOWNER) and an
 * empty root folder. It opens nothing, and looks no name up.
 *
 * It believes nothing of what it hears: it takes a plain file with one name out of the limit of its
 * own job's folder, and changes nothing else. It gives no file another project, and no limit.
 *
 * The protocol is one byte with a descriptor of the file; the answer is one byte: was it done?
 */
#ifndef PRJQUOTA_KEEPER_H
#define PRJQUOTA_KEEPER_H

#include "run/ids.h"

struct prjquota_keeper;

/* Of the folder `dir`, which has this project id. The caller is root, has one thread, and is about
 * to give root up; ids as ids_take() gave them. */
int prjquota_keeper_start(struct prjquota_keeper **out, const char *dir, uint32_t project,
                          const struct ids *ids, struct err *err) MUST_CHECK;
/* prjquota_forget(). False, too, when the keeper has ended. By one thread at a time. */
bool prjquota_keeper_forget(struct prjquota_keeper *k, int fd);
void prjquota_keeper_close(struct prjquota_keeper *k); /* NULL is fine */

#endif
