/*
 * load.c - see load.h. A few threads take files, the largest first; the caller's thread waits for
 * them, tells about progress and passes a cancel on.
 */
#include "run/load.h"

#include "base/sync.h"
#include "store/objstore_fetch.h"

#define TICK_MS 100

struct wanted {
	size_t i;
	uint64_t size;
};

struct loading {
	const struct load_job *job;
	struct wanted *order;
	size_t n;
	atomic_size_t next;
	_Atomic uint64_t done; /* bytes of all files */
	atomic_bool stop;

	struct lock lock;
	struct cond ended; /* a thread */
	unsigned running;
	bool failed;
	struct err err; /* the first */
};

struct one {
	struct loading *l;
	uint64_t told;
};

static void on_progress(void *arg, uint64_t done)
{
	struct one *o = arg;

	/* A range that begins anew takes back what was told; the sum wraps around and is right. */
	atomic_fetch_add(&o->l->done, done - o->told);
	o->told = done;
}

/* Made with the job's rights; the store is read with ours. */
static int make_file(const struct load_job *job, struct arena *a, const char *path, struct err *err)
{
	char *below = arena_printf(a, "%s/%s", job->dir, path), *slash = strrchr(below, '/');
	int fd = -1;

	ids_begin(job->ids);
	*slash = '\0';
	if (fs_mkdirs(job->root, below, 0755, err) == 0) {
		*slash = '/';
		fd = fs_open_beneath(job->root, below, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644,
		                     err);
	}
	ids_end(job->ids);
	return fd;
}

static int load_one(struct loading *l, size_t i, struct err *err)
{
	const struct manifest_file *file = &l->job->ckpt->files.file[i];
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int fd = make_file(l->job, a, file->path, err);
	struct one o = {.l = l};
	const struct objstore_fetch f = {
		.key = ckpt_file_key(a, l->job->prefix, l->job->ckpt, i),
		.size = file->size,
		.sha256 = &file->sha256,
		.fd = fd,
		.streams_max = LOAD_STREAMS,
		.progress = on_progress,
		.arg = &o,
		.cancel = &l->stop,
	};

	if (fd < 0 || objstore_fetch(l->job->objects, &f, err) < 0)
		return -1;
	on_progress(&o, file->size);
	return 0;
}

static void fail(struct loading *l, const struct err *err)
{
	lock_take(&l->lock);
	if (!l->failed)
		l->err = *err;
	l->failed = true;
	lock_give(&l->lock);
	atomic_store(&l->stop, true);
}

static void *thread_main(void *arg)
{
	struct loading *l = arg;
	size_t k;

	while (!atomic_load(&l->stop) && (k = atomic_fetch_add(&l->next, 1)) < l->n) {
		struct err err = {0};

		if (load_one(l, l->order[k].i, &err) < 0)
			fail(l, &err);
	}
	lock_take(&l->lock);
	l->running--;
	cond_signal(&l->ended);
	lock_give(&l->lock);
	return NULL;
}

static void oversee(struct loading *l)
{
	const struct load_job *job = l->job;
	struct err err = {0};

	lock_take(&l->lock);
	while (l->running > 0) {
		(void)cond_wait_until(&l->ended, &l->lock, sync_deadline(TICK_MS));
		lock_give(&l->lock);
		if (job->cancel != NULL && atomic_load(job->cancel) && !atomic_load(&l->stop)) {
			(void)err_set(&err, ERR_CANCELED, "canceled");
			fail(l, &err);
		}
		if (job->progress != NULL)
			job->progress(job->arg, atomic_load(&l->done));
		lock_take(&l->lock);
	}
	lock_give(&l->lock);
}

static int run_threads(struct loading *l, struct err *err)
{
	unsigned wanted = (unsigned)MIN((size_t)LOAD_FILES_AT_ONCE, l->n), n = 0;
	pthread_t thread[LOAD_FILES_AT_ONCE];
	int e = 0;

	lock_take(&l->lock);
	for (; n < wanted; n++) {
		e = pthread_create(&thread[n], NULL, thread_main, l);
		if (e != 0)
			break; /* goes on with those that there are */
		l->running++;
	}
	lock_give(&l->lock);
	if (n == 0 && wanted > 0)
		return err_errno(err, e, "a thread to load with");
	oversee(l);
	for (unsigned i = 0; i < n; i++)
		(void)pthread_join(thread[i], NULL);
	if (!l->failed)
		return 0;
	*err = l->err;
	return -1;
}

static int larger(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
	                          : (x->i > y->i) - (x->i < y->i);
}

int load_files(const struct load_job *job, struct err *err)
{
	struct loading l = {.job = job, .n = job->ckpt->files.n};
	int r;

	l.order = xcalloc(l.n + 1, sizeof(*l.order));
	for (size_t i = 0; i < l.n; i++)
		l.order[i] = (struct wanted){i, job->ckpt->files.file[i].size};
	qsort(l.order, l.n, sizeof(*l.order), larger);
	lock_init(&l.lock, LOCK_LOAD);
	cond_init(&l.ended);
	r = run_threads(&l, err);
	cond_done(&l.ended);
	lock_done(&l.lock);
	free(l.order);
	return r;
}
