/* quota.c - see quota.h. */
#include "run/quota.h"

#include "base/clock.h"
#include "base/units.h"
#include "run/nameless.h"
#include "run/prjquota.h"
#include "run/ranks.h"
#include "store/common/usage.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/statvfs.h>

#define LOOK_SHARE 20  /* counting takes at most this part of the time */
#define NEAR_MS 20     /* between looks at a volume that may be full soon */
#define AGAIN_MS 30000 /* inodes are few for another reason: how long before the next count */
#define FREEZE_MS 500  /* until the kernel has frozen all */
#define DISKS_MAX 2    /* that of the attempts, and that of containers */
#define OWN_MAX 4
#define PIDS_MAX ((size_t)CGROUP_PIDS_MAX * sizeof(pid_t))
#define MARGIN_SHARE 8 /* of a limit, see struct tally */
#define FULL_SHARE 64  /* of a limited volume: full when less than this part of it is left, */
#define FULL_BYTES ((uint64_t)64 << 20) /* and no more than so much: what one write may ask for */
#define NAMELESS_MS 10000               /* between two looks for nameless files, without a reason */
#define NAMELESS_FILES 1000 /* that the file system has beyond those that have been counted */

/* Where a nameless file was. The spool is in the attempt's folder: who walks that has its files. */
enum place { IN_SCRATCH, IN_VOLUME, IN_CACHE, IN_SPOOL, PLACES };
#define ANYWHERE (1U << IN_SCRATCH | 1U << IN_VOLUME | 1U << IN_CACHE)

/* One limit: what is counted, and when next. */
struct look {
	int64_t due_ms;
	uint64_t last_bytes; /* as counted the last time */
	int64_t last_ms;
	int64_t nameless_due_ms; /* when nameless files are looked for, whatever else is known */
};

/* A file system that the job writes to, by a folder of it. */
struct disk {
	const char *dir, *own[OWN_MAX]; /* folders of it that are the job's */
	dev_t dev;
	uint64_t files_before, bytes_before; /* used by all when the job began */
	struct look look;                    /* at its inodes */
	uint64_t left;                       /* when they were counted last */
};

static_assert(DISKS_MAX * PLACES <= NAMELESS_KINDS, "each place on each disk is a kind");

/* What a count is about. */
struct tally {
	struct look *look; /* NULL: without nameless files */
	const char *const *dirs;
	size_t n;
	uint64_t closed;              /* folders that nobody could read before the job began */
	unsigned places;              /* of nameless files: set of 1 << enum place */
	const struct disk *disk;      /* of them; NULL: any */
	uint64_t margin;              /* so many bytes that nobody knows call for a look at them */
	struct usage_total furnished; /* to subtract */
};

struct quota {
	unsigned magic;
#define QUOTA_MAGIC 0x5251554fU
	struct quota_options o;
	struct look volume, scratch;
	struct disk disk[DISKS_MAX];
	size_t n_disks;
	struct usage_total furniture; /* the scratch as the job finds it, without its code */
	bool frozen;
	int stop_fd, crossed_fd;
	atomic_bool cancel;    /* ends a count */
	atomic_bool crossed;   /* `why` is whole */
	_Atomic uint64_t most; /* that a volume with a project took, as the file system counts */
	struct err why;
	pthread_t thread;
	bool running;
};

static bool is_low(uint64_t total, uint64_t left)
{
	uint64_t few = MIN(total / 4, (uint64_t)QUOTA_LOW_FILES);

	return left < MAX(total / QUOTA_LOW_SHARE, few);
}

bool quota_inodes_over(uint64_t total, uint64_t left, uint64_t own)
{
	return is_low(total, left) && own >= QUOTA_SMALL_FILES && own / QUOTA_HOLDS > left;
}

bool quota_inodes_low(const char *dir)
{
	uint64_t total, left;

	return fs_inodes(dir, &total, &left) && is_low(total, left);
}

/* The use of the whole file system, by anybody. */
static void used_by_all(const char *dir, uint64_t *files, uint64_t *bytes)
{
	struct statvfs fs;

	*files = *bytes = 0;
	if (statvfs(dir, &fs) < 0)
		return;
	*files = fs.f_files - MIN(fs.f_files, fs.f_ffree);
	*bytes = (uint64_t)(fs.f_blocks - MIN(fs.f_blocks, fs.f_bfree)) * fs.f_frsize;
}

/* What all file systems have got since the job began. */
static void grown(const struct quota *q, uint64_t *more_files, uint64_t *more_bytes)
{
	*more_files = *more_bytes = 0;
	for (size_t i = 0; i < q->n_disks; i++) {
		const struct disk *d = &q->disk[i];
		uint64_t files, bytes;

		used_by_all(d->dir, &files, &bytes);
		*more_files += files - MIN(files, d->files_before);
		*more_bytes += bytes - MIN(bytes, d->bytes_before);
	}
}

/* A job may hide files: in folders too deep to be named, too many to be listed, or that only it may
 * enter, or behind too many descriptors. Then all growth counts as its own. */
static void add_hidden(const struct quota *q, struct usage_total *sum)
{
	uint64_t more_files, more_bytes;

	grown(q, &more_files, &more_bytes);
	sum->files = MAX(sum->files, more_files);
	sum->disk_bytes = MAX(sum->disk_bytes, more_bytes);
}

static bool is_in(const char *path, const char *dir)
{
	size_t n = dir == NULL ? 0 : strlen(dir);

	return n > 0 && strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Overlays are in the scratch, or a container's root. What is elsewhere is memory, or not of this
 * node. */
static int kind_of(void *arg, const struct nameless *f)
{
	const struct quota *q = FROM_VOID(struct quota, arg, QUOTA_MAGIC);
	const struct quota_options *o = &q->o;
	enum place place = IN_SCRATCH;
	size_t disk = 0;

	while (disk < q->n_disks && q->disk[disk].dev != f->dev)
		disk++;
	if (disk == q->n_disks && !f->overlay)
		return -1;
	if (disk == q->n_disks)
		disk = q->n_disks - 1;
	if (f->spooled)
		place = IN_SPOOL;
	else if (is_in(f->path, o->volume) || is_in(f->path, o->volume_at))
		place = IN_VOLUME;
	else if (is_in(f->path, o->cache[0]) || is_in(f->path, o->cache[1]) ||
	         is_in(f->path, o->cache_at))
		place = IN_CACHE;
	return (int)(disk * PLACES + place);
}

/* Looking at all descriptors takes longer than at the names. So it is done when there is a reason,
 * and now and then: somebody else may have deleted as much as this job has written. */
static bool may_have_nameless(const struct quota *q, const struct tally *t,
                              const struct usage_total *sum)
{
	uint64_t files, bytes;
	int64_t now = clock_mono_ms();

	grown(q, &files, &bytes);
	if (!q->frozen && now < t->look->nameless_due_ms &&
	    files + t->furnished.files <= sum->files + NAMELESS_FILES &&
	    bytes + t->furnished.disk_bytes <= sum->disk_bytes + t->margin)
		return false;
	t->look->nameless_due_ms = now + NAMELESS_MS;
	return true;
}

/* False: there are too many to look at. */
static bool add_nameless(struct quota *q, const struct tally *t, struct usage_total *sum)
{
	AUTO_BUF struct buf pids = BUF_INIT(PIDS_MAX);
	struct nameless_total kinds[NAMELESS_KINDS] = {0};
	struct nameless_search all = {
		.spool = q->o.spool, .kind_of = kind_of, .arg = q, .cancel = &q->cancel};

	if (q->o.group != NULL)
		cgroup_pids(q->o.group, &pids);
	else
		ranks_pids(q->o.init, &pids);
	all.pids = (const pid_t *)(void *)pids.p;
	all.n = pids.n / sizeof(pid_t);
	if (!nameless_count(&all, kinds))
		return false;
	for (size_t i = 0; i < q->n_disks * PLACES; i++) {
		if ((t->places & 1U << i % PLACES) == 0 ||
		    (t->disk != NULL && t->disk != &q->disk[i / PLACES]))
			continue;
		sum->files += kinds[i].files;
		sum->disk_bytes += kinds[i].disk_bytes;
	}
	return true;
}

/* False: the job is over. */
static bool count(struct quota *q, const struct tally *t, struct usage_total *sum)
{
	bool hidden = false;

	*sum = (struct usage_total){0};
	for (size_t i = 0; i < t->n; i++) {
		struct usage_total one = {0};
		struct err err = {0};

		if (t->dirs[i] == NULL || access(t->dirs[i], F_OK) < 0)
			continue;
		if (usage_walk(t->dirs[i], 1, NULL, NULL, &q->cancel, &one, &err) < 0)
			hidden = true;
		sum->files += one.files + one.folders + one.links + one.others;
		sum->disk_bytes += one.disk_bytes;
		sum->unreadable += one.unreadable;
	}
	if (t->look != NULL && may_have_nameless(q, t, sum) && !add_nameless(q, t, sum))
		hidden = true;
	if (hidden || sum->unreadable > t->closed)
		add_hidden(q, sum);
	sum->files -= MIN(sum->files, t->furnished.files);
	sum->disk_bytes -= MIN(sum->disk_bytes, t->furnished.disk_bytes);
	return !atomic_load(&q->cancel);
}

static void freeze(struct quota *q)
{
	if (q->o.group != NULL)
		cgroup_freeze(q->o.group, FREEZE_MS);
	q->frozen = true;
}

static void thaw(struct quota *q)
{
	if (q->o.group != NULL)
		cgroup_thaw(q->o.group);
	q->frozen = false;
}

/* The next look at what took that long. */
static void put_off(struct look *l, int64_t begun_ms, int64_t least_ms)
{
	int64_t now = clock_mono_ms();

	l->due_ms = now + MAX(least_ms, LOOK_SHARE * (now - begun_ms));
	l->last_ms = now;
}

static bool is_due(const struct look *l)
{
	return clock_mono_ms() >= l->due_ms;
}

/* Is a limit crossed? Of one that seems to be, the second count, with the job frozen, decides. When
 * it does not, the job goes on. */
static bool is_over(struct quota *q, bool (*over)(struct quota *, struct usage_total *),
                    struct usage_total *sum)
{
	if (!over(q, sum))
		return false;
	freeze(q);
	if (over(q, sum))
		return true;
	thaw(q);
	return false;
}

static uint64_t margin(uint64_t limit)
{
	return MIN(limit / FULL_SHARE, FULL_BYTES);
}

static bool volume_over(struct quota *q, struct usage_total *sum)
{
	/* A file system may go over its own limit by the blocks that say where a file's blocks are.
	 */
	uint64_t slack = q->o.project != 0 ? margin(q->o.volume_bytes) : 0;
	const struct tally t = {.look = &q->volume,
	                        .dirs = &q->o.volume,
	                        .n = 1,
	                        .places = 1U << IN_VOLUME | 1U << IN_SPOOL,
	                        .margin = q->o.volume_bytes / MARGIN_SHARE};

	return count(q, &t, sum) && sum->disk_bytes > q->o.volume_bytes + slack;
}

/* One question to the file system, however many files there are. */
static void look_at_project(struct quota *q)
{
	uint64_t bytes = 0;

	if (q->o.project != 0 && prjquota_used(q->o.volume, q->o.volume_bytes, &bytes) &&
	    bytes > atomic_load(&q->most))
		atomic_store(&q->most, bytes);
}

bool quota_volume_full(const struct quota *q)
{
	return q != NULL && q->o.project != 0 &&
	       atomic_load(&q->most) + margin(q->o.volume_bytes) >= q->o.volume_bytes;
}

bool quota_volume_near(const struct quota *q)
{
	return q != NULL && q->o.project != 0 && atomic_load(&q->most) >= q->o.volume_bytes / 4 * 3;
}

/* Often when it may be full soon: what is written between two looks is over the limit. */
static void look_at_volume(struct quota *q)
{
	int64_t begun = clock_mono_ms(), since = MAX(begun - q->volume.last_ms, INT64_C(1));
	struct usage_total sum = {0};
	uint64_t bytes, grown = 0;
	char has[UNITS_CAP], may[UNITS_CAP];

	if (q->o.volume == NULL || q->o.volume_bytes == 0 || !is_due(&q->volume))
		return;
	if (is_over(q, volume_over, &sum)) {
		(void)err_set(&q->why, ERR_VOLUME_FULL,
		              "the checkpoint folder holds %s, and its volume has "
		              "%s: raise volume_size_gib, or keep fewer checkpoints",
		              units_show_bytes(sum.disk_bytes, has),
		              units_show_bytes(q->o.volume_bytes, may));
		return;
	}
	bytes = sum.disk_bytes;
	if (bytes > q->volume.last_bytes)
		grown = (bytes - q->volume.last_bytes) * QUOTA_LOOK_MS * 4 / (uint64_t)since;
	q->volume.last_bytes = bytes;
	put_off(&q->volume, begun,
	        bytes + grown > q->o.volume_bytes / 4 * 3 ? NEAR_MS : QUOTA_LOOK_MS * 2);
}

static bool scratch_over(struct quota *q, struct usage_total *sum)
{
	const struct quota_options *o = &q->o;

	const struct tally t = {
		.look = &q->scratch,
		.dirs = o->scratch,
		.n = COUNT(o->scratch),
		.closed = q->furniture.unreadable,
		.places = 1U << IN_SCRATCH,
		.margin = o->scratch_bytes > 0 ? o->scratch_bytes / MARGIN_SHARE : UINT64_MAX / 2,
		.furnished = q->furniture,
	};

	if (!count(q, &t, sum))
		return false;
	return ((o->scratch_bytes > 0 && sum->disk_bytes > o->scratch_bytes) ||
	        (o->scratch_files > 0 && sum->files > o->scratch_files));
}

static void scratch_full(const struct quota *q, const struct usage_total *sum, struct err *why)
{
	const struct quota_options *o = &q->o;
	char has[UNITS_CAP], may[UNITS_CAP];

	if (o->scratch_bytes > 0 && sum->disk_bytes > o->scratch_bytes)
		(void)err_set(why, ERR_SCRATCH_QUOTA_EXCEEDED,
		              "the job has %s in its scratch, workspace and temporary folders; "
		              "this server allows %s (--scratch-size)",
		              units_show_bytes(sum->disk_bytes, has),
		              units_show_bytes(o->scratch_bytes, may));
	else
		(void)err_set(why, ERR_SCRATCH_QUOTA_EXCEEDED,
		              "the job has %" PRIu64 " files in its scratch, workspace and "
		              "temporary folders; this server allows %" PRIu64 " (--scratch-files)",
		              sum->files, o->scratch_files);
}

static void look_at_scratch(struct quota *q)
{
	const struct quota_options *o = &q->o;
	int64_t begun = clock_mono_ms();
	struct usage_total sum;
	bool over;

	if ((o->scratch_bytes == 0 && o->scratch_files == 0) || !is_due(&q->scratch))
		return;
	over = is_over(q, scratch_over, &sum);
	put_off(&q->scratch, begun, (int64_t)QUOTA_LOOK_MS * 2);
	if (over)
		scratch_full(q, &sum, &q->why);
}

/* All that the job can make files in. */
static bool count_own(struct quota *q, struct disk *d, uint64_t *own)
{
	const struct tally t = {.look = &d->look,
	                        .dirs = d->own,
	                        .n = COUNT(d->own),
	                        .closed = q->furniture.unreadable,
	                        .places = ANYWHERE,
	                        .disk = d};
	struct usage_total sum;
	bool known = count(q, &t, &sum);

	*own = sum.files;
	return known;
}

/* Counted when they have become few, and again when half of those are gone or time has passed. */
static void look_at_inodes(struct quota *q, struct disk *d)
{
	int64_t begun = clock_mono_ms();
	uint64_t total, left, own = 0;

	if (!fs_inodes(d->dir, &total, &left))
		return;
	if (!is_low(total, left)) {
		d->look = (struct look){0};
		return;
	}
	if (!is_due(&d->look) && left > d->left / 2)
		return;
	freeze(q);
	if (count_own(q, d, &own) && fs_inodes(d->dir, &total, &left) &&
	    quota_inodes_over(total, left, own)) {
		(void)err_set(&q->why, ERR_INODES_EXHAUSTED,
		              "the disk of this node has %" PRIu64 " of %" PRIu64
		              " inodes left, and this job holds %" PRIu64
		              " files and folders: write fewer, larger files",
		              left, total, own);
		return;
	}
	thaw(q);
	d->left = left;
	put_off(&d->look, begun, own > left / 2 ? (int64_t)QUOTA_LOOK_MS * 2 : AGAIN_MS);
}

static void *watch(void *arg)
{
	struct quota *q = FROM_VOID(struct quota, arg, QUOTA_MAGIC);
	struct pollfd p = {.fd = q->stop_fd, .events = POLLIN};

	for (;;) {
		int wait =
			q->volume.last_bytes > q->o.volume_bytes / 4 * 3 ? NEAR_MS : QUOTA_LOOK_MS;

		if (poll(&p, 1, wait) > 0)
			return NULL;
		look_at_project(q);
		look_at_volume(q);
		if (q->why.code == ERR_NONE)
			look_at_scratch(q);
		for (size_t i = 0; i < q->n_disks && q->why.code == ERR_NONE; i++)
			look_at_inodes(q, &q->disk[i]);
		if (q->why.code == ERR_NONE)
			continue;
		atomic_store(&q->crossed, true);
		(void)eventfd_write(q->crossed_fd, 1); /* of an empty counter: it fits */
		return NULL;
	}
}

/* A container's root may be on the disk of the attempts, or not. */
static void find_disks(struct quota *q)
{
	const struct quota_options *o = &q->o;
	struct stat dir = {0}, root = {0};
	bool known = stat(o->dir, &dir) == 0;
	bool apart =
		known && o->root != NULL && stat(o->root, &root) == 0 && dir.st_dev != root.st_dev;

	q->disk[0] = (struct disk){
		.dir = o->dir, .own = {o->dir, o->cache[0], o->cache[1], apart ? NULL : o->root}};
	q->disk[1] = (struct disk){.dir = o->root, .own = {o->root}};
	q->n_disks = apart ? 2 : 1;
	q->disk[0].dev = dir.st_dev;
	q->disk[1].dev = root.st_dev;
	for (size_t i = 0; i < q->n_disks; i++)
		used_by_all(q->disk[i].dir, &q->disk[i].files_before, &q->disk[i].bytes_before);
}

/* The scratch as the job finds it. Its code counts as files of its own, which may be too much
 * already; but what nobody can read in there was closed by nobody to hide something. */
static int furnish(struct quota *q, struct err *err)
{
	const struct quota_options *o = &q->o;
	struct tally all = {.dirs = o->scratch, .n = COUNT(o->scratch), .closed = UINT64_MAX};
	struct tally code = {.dirs = &o->code, .n = 1, .closed = UINT64_MAX};
	struct usage_total own, over;

	/* overlays have folders that an ordinary user cannot read */
	if (o->scratch_bytes == 0 && o->scratch_files == 0 && geteuid() == 0)
		return 0;
	(void)count(q, &all, &q->furniture);
	(void)count(q, &code, &own);
	q->furniture.files -= MIN(q->furniture.files, own.files);
	q->furniture.disk_bytes -= MIN(q->furniture.disk_bytes, own.disk_bytes);
	if (!scratch_over(q, &over))
		return 0;
	scratch_full(q, &over, err);
	return err_wrap(err, "with nothing in them but its code");
}

int quota_start(struct quota **out, const struct quota_options *o, struct err *err)
{
	struct quota *q = xcalloc(1, sizeof(*q));
	int rc;

	q->magic = QUOTA_MAGIC;
	q->o = *o;
	find_disks(q);
	q->stop_fd = q->crossed_fd = -1;
	if (furnish(q, err) < 0) {
		quota_stop(q);
		return -1;
	}
	q->stop_fd = eventfd(0, EFD_CLOEXEC);
	q->crossed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->stop_fd < 0 || q->crossed_fd < 0) {
		rc = errno;
		quota_stop(q);
		return err_errno(err, rc, "eventfd");
	}
	rc = pthread_create(&q->thread, NULL, watch, q);
	if (rc != 0) {
		quota_stop(q);
		return err_errno(err, rc, "thread that watches the disk");
	}
	q->running = true;
	*out = q;
	return 0;
}

int quota_fd(const struct quota *q)
{
	return q->crossed_fd;
}

bool quota_crossed(const struct quota *q, struct err *why)
{
	if (q == NULL || !atomic_load(&q->crossed))
		return false;
	*why = q->why;
	return true;
}

static void end_thread(struct quota *q)
{
	if (!q->running)
		return;
	atomic_store(&q->cancel, true);
	(void)eventfd_write(q->stop_fd, 1);
	(void)pthread_join(q->thread, NULL);
	q->running = false;
	if (!atomic_load(&q->crossed))
		thaw(q); /* it may have been told to stop while it counted */
}

void quota_finish(struct quota *q, struct err *why)
{
	if (q == NULL)
		return;
	end_thread(q);
	atomic_store(&q->cancel, false);
	look_at_project(q);
	q->volume = q->scratch = (struct look){0};
	if (q->why.code == ERR_NONE)
		look_at_volume(q);
	if (q->why.code == ERR_NONE)
		look_at_scratch(q);
	if (q->why.code != ERR_NONE)
		*why = q->why;
}

void quota_stop(struct quota *q)
{
	if (q == NULL)
		return;
	end_thread(q);
	if (q->stop_fd >= 0)
		(void)close(q->stop_fd);
	if (q->crossed_fd >= 0)
		(void)close(q->crossed_fd);
	free(q);
}
