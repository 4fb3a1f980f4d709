/* cores.c - see cores.h. */
#include "run/cores.h"

#include "base/fs.h"
#include "base/log.h"

#include <dirent.h>
#include <libgen.h>
#include <sched.h>
#include <sys/file.h>

#define PLACE_MAX 4096 /* attempts that are looked at */

/* Adds one to each core of a list. */
static void add_list(struct str list, unsigned taken[CPU_SETSIZE])
{
	struct str one;

	while (str_cut(&list, ',', &one)) {
		struct err no = {0};
		uint64_t core = 0;

		if (str_u64(str_trim(one), 0, CPU_SETSIZE - 1, &core, &no) == 0)
			taken[core]++;
	}
}

/* What other attempts have. */
static void count_taken(const char *runs, const char *own, unsigned taken[CPU_SETSIZE])
{
	DIR *d = opendir(runs);
	size_t left = PLACE_MAX;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL && left > 0;
	     e = readdir(d)) {
		AUTO_BUF struct buf body = BUF_INIT(CORES_TEXT_MAX);
		AUTO_FREE char *path = xasprintf("%s/%s/" CORES_FILE, runs, e->d_name);
		struct err no = {0};

		if (e->d_name[0] == '.' || strcmp(e->d_name, own) == 0)
			continue;
		left--;
		if (fs_read(AT_FDCWD, path, &body, &no) == 0)
			add_list(buf_view(&body), taken);
	}
	if (d != NULL)
		(void)closedir(d);
}

/* The core that the fewest have; CPU_SETSIZE: there is none left. */
static unsigned least(const cpu_set_t *may, const unsigned taken[CPU_SETSIZE])
{
	unsigned best = CPU_SETSIZE;

	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, may) && (best == CPU_SETSIZE || taken[i] < taken[best]))
			best = i;
	}
	return best;
}

static void choose(struct cores *out, cpu_set_t *may, unsigned n, const unsigned taken[CPU_SETSIZE])
{
	cpu_set_t chosen;
	size_t at = 0;

	CPU_ZERO(&chosen);
	for (unsigned i = 0; i < n; i++) {
		unsigned core = least(may, taken);

		CPU_CLR(core, may);
		CPU_SET(core, &chosen);
	}
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &chosen)) {
			(void)snprintf(out->list + at, sizeof(out->list) - at, "%s%u",
			               at == 0 ? "" : ",", i);
			at += strlen(out->list + at);
		}
	}
	out->n = n;
}

void cores_take(struct cores *out, const char *dir, uint32_t cpu_milli)
{
	AUTO_FREE char *copy = xstrdup(dir), *name = xstrdup(dir),
		       *file = xasprintf("%s/" CORES_FILE, dir);
	const char *runs = dirname(copy);
	unsigned n = cpu_milli / 1000 + (cpu_milli % 1000 > 0), taken[CPU_SETSIZE] = {0};
	AUTO_FD int fd = -1;
	struct err err = {0};
	cpu_set_t may;

	*out = (struct cores){0};
	if (n == 0 || sched_getaffinity(0, sizeof(may), &may) < 0 || n >= (unsigned)CPU_COUNT(&may))
		return;               /* as many as there are, or more than a set can name */
	fd = fs_open_dir(runs, &err); /* its lock, so that two do not choose the same */
	if (fd < 0 || flock(fd, LOCK_EX) < 0) {
		log_warn("cores of the job: %s: no lock", runs);
		return;
	}
	count_taken(runs, basename(name), taken);
	choose(out, &may, n, taken);
	if (fs_write_atomic(AT_FDCWD, file, str_of(out->list), 0600, &err) < 0)
		log_warn("cores of the job: %s", err.msg); /* others may choose the same */
}

void cores_release(const char *dir)
{
	AUTO_FREE char *file = xasprintf("%s/" CORES_FILE, dir);

	(void)unlink(file); /* there is none, or it goes with the folder */
}
