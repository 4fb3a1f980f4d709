/* move.c - see move.h; meta/move.h does the work. */
#include "server/maintenance/move.h"
#include "server/start/start.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/units.h"
#include "meta/db_url.h"
#include "meta/move.h"

#include <libgen.h>

#define SHOW_MS 1000       /* between two lines on a terminal, which are one */
#define SHOW_FILE_MS 10000 /* elsewhere */

struct shown {
	unsigned magic;
#define SHOWN_MAGIC 0x5653484fU
	bool terminal;
	int64_t due_ms, since_ms;
	uint64_t first; /* rows that were there when this phase began */
	enum move_phase phase;
};

static void show(void *arg, enum move_phase phase, uint64_t rows, uint64_t total)
{
	static const char *const words[] = {[MOVE_COPY] = "copied", [MOVE_COMPARE] = "compared"};
	struct shown *s = FROM_VOID(struct shown, arg, SHOWN_MAGIC);
	int64_t now = clock_mono_ms();
	char done[UNITS_CAP], all[UNITS_CAP], rate[UNITS_CAP], left[UNITS_CAP];
	double per_s;

	if (s->since_ms == 0 || phase != s->phase)
		*s = (struct shown){SHOWN_MAGIC, s->terminal, now, now, rows, phase};
	if (now < s->due_ms && rows < total)
		return;
	s->due_ms = now + (s->terminal ? SHOW_MS : SHOW_FILE_MS);
	per_s = (double)(rows - s->first) * 1000 / (double)MAX(now - s->since_ms, INT64_C(1));
	(void)fprintf(stderr, "%s%s %s of %s rows (%u %%)", s->terminal ? "\r\033[K" : "",
	              words[phase], units_show_count(rows, done), units_show_count(total, all),
	              total > 0 ? (unsigned)(rows * 100 / total) : 100);
	if (per_s >= 1 && rows < total)
		(void)fprintf(stderr, ", %s rows/s, %s left",
		              units_show_count((uint64_t)per_s, rate),
		              units_show_seconds((uint64_t)((double)(total - rows) / per_s), left));
	if (!s->terminal || rows >= total)
		(void)fputc('\n', stderr);
}

/* A server holds the lock of its file. An older one holds that of its data folder only, where the
 * file usually is. */
static int hold(struct arena *a, const char *url, int fd[2], struct err *err)
{
	const char *file = settings_sqlite_file(url), *lock;

	if (file == NULL)
		return 0;
	if (start_hold(file, file, &fd[0], err) < 0)
		return -1;
	lock = arena_printf(a, "%s/lock", dirname(arena_cstr(a, file)));
	return access(lock, F_OK) == 0 ? start_hold(lock, file, &fd[1], err) : 0;
}

static int check_ends(struct arena *a, const char *from, const char *to, struct err *err)
{
	const char *file = settings_sqlite_file(from);

	if (file != NULL && access(file, F_OK) != 0)
		return err_set(err, ERR_NOT_FOUND, "%s: no such database", file);
	for (int i = 0; i < 2; i++)
		if (db_url_has_password(i == 0 ? from : to))
			(void)fprintf(stderr,
			              "warning: the URL of %s names a password, which every user "
			              "of this machine can read in the list of processes\n",
			              db_url_place(a, i == 0 ? from : to));
	return 0;
}

int server_move(struct arena *a, const struct settings *set, struct err *err)
{
	const struct conf_list *ends = &set->move_database;
	struct shown shown = {.magic = SHOWN_MAGIC, .terminal = isatty(2) == 1};
	struct move_options o = {.progress = show, .arg = &shown};
	char count[UNITS_CAP];
	uint64_t rows = 0;
	int fd[4] = {-1, -1, -1, -1}; /* held until this process ends */

	o.from = ends->item[0];
	o.to = ends->item[1];
	(void)umask(077);
	if (check_ends(a, o.from, o.to, err) < 0 || hold(a, o.from, &fd[0], err) < 0 ||
	    hold(a, o.to, &fd[2], err) < 0 || move_database(&o, &rows, err) < 0)
		return err_wrap(err, "move database");
	(void)printf("moved %s rows to %s\n"
	             "Next: stoker server --data DIR --database %s, with the data folder (and its "
	             "master.key) as before\n",
	             units_show_count(rows, count), db_url_place(a, o.to),
	             settings_sqlite_file(o.to) != NULL ? o.to : "URL");
	return 0;
}
