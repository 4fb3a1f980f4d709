/* cores.c - see cores.h. */
#include "run/cores.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "run/topology.h"

#include <dirent.h>
#include <libgen.h>
#include <sched.h>
#include <sys/file.h>

#define PLACE_MAX 4096 /* attempts that are looked at */
#define LOCK_MS 5000
#define LOCK_STEP_MS 5

/* Counts the cores of other attempts. */
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
		if (fs_read_strange(AT_FDCWD, path, &body, &no) == 0)
			topology_count(buf_view(&body), taken);
	}
	if (d != NULL)
		(void)closedir(d);
}

/* Another runner of this server may be choosing at the same moment. */
static bool lock(int fd)
{
	int64_t until = clock_mono_ms() + LOCK_MS;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || clock_mono_ms() > until)
			return false;
		clock_sleep_ms(LOCK_STEP_MS);
	}
	return true;
}

static void put_list(struct cores *out, const cpu_set_t *chosen)
{
	size_t at = 0;

	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, chosen))
			continue;
		(void)snprintf(out->list + at, sizeof(out->list) - at, "%s%u", at == 0 ? "" : ",",
		               i);
		at += strlen(out->list + at);
	}
}

void cores_take(struct cores *out, const char *dir, uint32_t cpu_milli, const char *const *gpu_uuid,
                size_t n_gpus)
{
	AUTO_FREE char *copy = xstrdup(dir), *name = xstrdup(dir),
		       *file = xasprintf("%s/" CORES_FILE, dir);
	const char *runs = dirname(copy);
	unsigned n = cpu_milli / 1000 + (cpu_milli % 1000 > 0), taken[CPU_SETSIZE] = {0};
	AUTO_FD int fd = -1;
	struct err err = {0};
	cpu_set_t may, chosen;
	struct topology t;

	*out = (struct cores){0};
	if (n == 0 || sched_getaffinity(0, sizeof(may), &may) < 0 || n >= (unsigned)CPU_COUNT(&may))
		return;               /* as many as there are, or more than a set can name */
	fd = fs_open_dir(runs, &err); /* its lock, so that two do not choose the same */
	if (fd < 0 || !lock(fd)) {
		log_warn("cores of the job: %s: no lock", runs);
		return;
	}
	count_taken(runs, basename(name), taken);
	topology_read(&t, "", gpu_uuid, n_gpus);
	topology_choose(&t, &may, n, taken, &chosen);
	put_list(out, &chosen);
	out->n = n;
	if (fs_write_atomic(AT_FDCWD, file, str_of(out->list), 0600, &err) < 0)
		log_warn("cores of the job: %s", err.msg); /* others may choose the same */
}

void cores_release(const char *dir)
{
	AUTO_FREE char *file = xasprintf("%s/" CORES_FILE, dir);

	(void)unlink(file); /* there is none, or it goes with the folder */
}
