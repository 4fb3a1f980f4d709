/* load.c - see load.h. A crew takes the files, the largest first. */
#include "run/load.h"

#include "store/common/crew.h"
#include "store/objects/objstore_fetch.h"

struct wanted {
	size_t i;
	uint64_t size;
};

struct loading {
	unsigned magic;
#define LOADING_MAGIC 0x524c4f41U
	const struct load_job *job;
	struct wanted *order;
	_Atomic uint64_t done; /* bytes of all files */
};

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

static int load_one(void *arg, size_t k, const atomic_bool *stop, struct err *err)
{
	struct loading *l = FROM_VOID(struct loading, arg, LOADING_MAGIC);
	size_t i = l->order[k].i;
	const struct manifest_file *file = &l->job->ckpt->files.file[i];
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int fd = make_file(l->job, a, file->path, err);
	struct crew_share share = {.magic = CREW_SHARE_MAGIC, .all = &l->done};
	const struct objstore_fetch f = {
		.key = ckpt_file_key(a, l->job->prefix, l->job->ckpt, i),
		.size = file->size,
		.sha256 = &file->sha256,
		.fd = fd,
		.streams_max = LOAD_STREAMS,
		.progress = crew_share_at,
		.arg = &share,
		.cancel = stop,
	};

	if (fd < 0 || objstore_fetch(l->job->objects, &f, err) < 0)
		return -1;
	crew_share_at(&share, file->size);
	return 0;
}

static void tell(void *arg)
{
	struct loading *l = FROM_VOID(struct loading, arg, LOADING_MAGIC);

	if (l->job->progress != NULL)
		l->job->progress(l->job->arg, atomic_load(&l->done));
}

static int larger(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
	                          : (x->i > y->i) - (x->i < y->i);
}

int load_files(const struct load_job *job, struct err *err)
{
	size_t n = job->ckpt->files.n;
	AUTO_FREE struct wanted *order = xcalloc(n + 1, sizeof(*order));
	struct loading l = {.magic = LOADING_MAGIC, .job = job, .order = order};
	const struct crew_job crew = {
		.n = n,
		.threads = LOAD_FILES_AT_ONCE,
		.run = load_one,
		.tick = tell,
		.arg = &l,
		.cancel = job->cancel,
	};

	for (size_t i = 0; i < n; i++)
		order[i] = (struct wanted){i, job->ckpt->files.file[i].size};
	qsort(order, n, sizeof(*order), larger);
	return crew_run(&crew, err);
}
