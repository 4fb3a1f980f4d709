/* ignores.h - the ignore files of a folder that is pushed, and which of them leaves a path out. */
#ifndef IGNORES_H
#define IGNORES_H

#include "cli/git.h"
#include "core/ignore.h"

struct ignores;

/* The ignore files of the folder `root`. git: which gitignore files count besides those below the
 * folder; NULL: none. */
int ignores_open(struct arena *a, int root, const struct git *git, struct ignores **out,
                 struct err *err) MUST_CHECK;
void ignores_close(struct ignores *ig); /* NULL is fine */
DEFINE_CLEANUP(struct ignores, ignores_close)
#define AUTO_IGNORES CLEANUP(ignores_close_p)
/* The name of the file that leaves the path out, "default", or NULL. To be asked of a folder before
 * what is in it, and not of what is in a folder that is left out. */
const char *ignores_by(struct ignores *ig, const char *path, bool is_dir);

#endif
