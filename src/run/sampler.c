/* sampler.c - see sampler.h. What cannot be measured here is 0. */
#include "run/sampler.h"

#include "base/clock.h"
#include "io/nvml.h"
#include "store/common/usage.h"

#include "base/sync.h"
#include <sys/resource.h>

#define SUM_SHARE 20  /* summing takes at most this part of the time */
#define TREE_MAX 4096 /* processes that are summed where there is no cgroup */
#define TREE_DEEP 64
#define TEXT_MAX ((size_t)1 << 20)

struct sampler {
	unsigned magic;
#define SAMPLER_MAGIC 0x5253414dU
	struct sampler_options o;
	struct nvml *nvml;
	struct lock lock; /* of all below */
	struct cond changed;
	const struct cgroup *group;
	pid_t init;
	struct ship *ship;
	uint64_t cache_bytes, own_bytes, last_cpu_ns;
	int64_t last_ms, due_ms;
	bool sampled, done;
	atomic_bool cancel;
	pthread_t thread; /* sums folders */
	bool summing;
};

static void wait_ms(struct sampler *s, int64_t ms)
{
	(void)cond_wait_until(&s->changed, &s->lock, sync_deadline(ms));
}

/* The sum of some folders, a missing one is 0; false when one could not be summed. `due_ms` becomes
 * the time of the next sum. */
static bool sum(struct sampler *s, const char *const *dirs, size_t n, int64_t every_ms,
                int64_t *due_ms, uint64_t *bytes)
{
	int64_t begun = clock_mono_ms();
	bool ok = true;

	*bytes = 0;
	for (size_t i = 0; i < n; i++) {
		struct usage_total total = {0};
		struct err err = {0};

		if (dirs[i] == NULL || access(dirs[i], F_OK) < 0)
			continue;
		ok = usage_walk(dirs[i], 1, NULL, NULL, &s->cancel, &total, &err) == 0 && ok;
		*bytes += total.bytes;
	}
	*due_ms = clock_mono_ms() + MAX(every_ms, SUM_SHARE * (clock_mono_ms() - begun));
	return ok;
}

static void *sum_folders(void *arg)
{
	struct sampler *s = FROM_VOID(struct sampler, arg, SAMPLER_MAGIC);
	int64_t cache_due = s->o.cache_dir == NULL ? INT64_MAX : 0, own_due = 0;

	lock_take(&s->lock);
	while (!s->done) {
		int64_t now = clock_mono_ms();
		uint64_t cache = 0, own = 0;
		bool cache_ok = false, own_ok = false;

		lock_give(&s->lock);
		if (now >= cache_due)
			cache_ok = sum(s, &s->o.cache_dir, 1, SAMPLER_CACHE_MS, &cache_due, &cache);
		if (now >= own_due)
			own_ok = sum(s, s->o.written, COUNT(s->o.written), SAMPLER_EVERY_MS,
			             &own_due, &own);
		lock_take(&s->lock);
		if (cache_ok)
			s->cache_bytes = cache;
		if (own_ok)
			s->own_bytes = own;
		while (!s->done && clock_mono_ms() < MIN(cache_due, own_due))
			wait_ms(s, MIN(cache_due, own_due) - clock_mono_ms() + 1000);
	}
	lock_give(&s->lock);
	return NULL;
}

int sampler_start(struct sampler **out, const struct sampler_options *o, struct err *err)
{
	struct sampler *s = xcalloc(1, sizeof(*s));
	struct err none = {0};
	int rc;

	s->magic = SAMPLER_MAGIC;
	s->o = *o;
	lock_init(&s->lock, LOCK_SAMPLER);
	cond_init(&s->changed);
	if (o->n_gpus > 0 && nvml_open(&s->nvml, &none) < 0)
		s->nvml = NULL; /* declared ones */
	rc = pthread_create(&s->thread, NULL, sum_folders, s);
	if (rc != 0) {
		sampler_stop(s);
		return err_errno(err, rc, "start the folder size thread");
	}
	s->summing = true;
	*out = s;
	return 0;
}

void sampler_watch(struct sampler *s, const struct cgroup *g, pid_t init, struct ship *ship)
{
	lock_take(&s->lock);
	s->group = g;
	s->init = init;
	s->ship = ship;
	s->last_ms = clock_mono_ms();
	s->due_ms = s->last_ms + SAMPLER_FIRST_MS;
	s->last_cpu_ns = 0;
	lock_give(&s->lock);
}

/* utime + stime and resident pages of one process: fields 14, 15 and 24 of its stat. */
static void add_process(pid_t pid, uint64_t *cpu_ns, uint64_t *memory)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	char path[64];
	const char *at = NULL;
	unsigned long long utime = 0, stime = 0;
	long long rss = 0;
	struct err err = {0};

	FMT(path, "/proc/%d/stat", (int)pid);
	if (fs_read(AT_FDCWD, path, &body, &err) < 0)
		return;
	at = memrchr(buf_cstr(&body), ')', body.n);
	if (at == NULL || sscanf(at + 1,
	                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d "
	                         "%*d %*d %*d %*d %*u %*u %lld",
	                         &utime, &stime, &rss) != 3)
		return;
	*cpu_ns += (utime + stime) * (1000000000ULL / (unsigned long long)sysconf(_SC_CLK_TCK));
	*memory += (uint64_t)MAX(rss, 0LL) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add_tree(pid_t pid, int depth, int *left, uint64_t *cpu_ns, uint64_t *memory)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	char path[64];
	struct str rest, word;
	struct err err = {0};

	if (depth > TREE_DEEP || (*left)-- <= 0)
		return;
	add_process(pid, cpu_ns, memory);
	FMT(path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (fs_read(AT_FDCWD, path, &body, &err) < 0)
		return;
	rest = str_trim(buf_view(&body));
	while (str_cut(&rest, ' ', &word)) {
		uint64_t child = 0;

		if (str_u64(word, 1, INT_MAX, &child, &err) == 0)
			add_tree((pid_t)child, depth + 1, left, cpu_ns, memory);
		err_clear(&err);
	}
}

static void read_gpus(struct sampler *s, struct wire_sample *out)
{
	for (size_t i = 0; i < s->o.n_gpus && i < COUNT(out->gpu); i++) {
		struct nvml_usage u = {0};
		struct err err = {0};

		if (s->nvml != NULL && nvml_read(s->nvml, s->o.gpus[i].uuid, &u, &err) < 0)
			continue;
		out->gpu[out->n_gpus].index = s->o.gpus[i].index;
		out->gpu[out->n_gpus].utilization = u.utilization;
		out->gpu[out->n_gpus].memory_bytes = u.memory_bytes;
		out->n_gpus++;
	}
}

bool sampler_gpu_use(const struct sampler *s, double *most)
{
	*most = 0;
	if (s->nvml == NULL)
		return false;
	for (size_t i = 0; i < s->o.n_gpus; i++) {
		struct nvml_usage u = {0};
		struct err err = {0};

		if (nvml_read(s->nvml, s->o.gpus[i].uuid, &u, &err) < 0 || !u.has_utilization)
			return false;
		*most = MAX(*most, u.utilization);
	}
	return s->o.n_gpus > 0;
}

/* The processes of an ended job without a group: what the kernel kept of them. */
static void read_children(uint64_t *cpu_ns, uint64_t *memory)
{
	struct rusage u = {0};

	(void)getrusage(RUSAGE_CHILDREN, &u);
	*cpu_ns = ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000 +
	          ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
	*memory = (uint64_t)u.ru_maxrss * 1024;
}

static uint64_t read_use(const struct sampler *s, bool last, uint64_t *memory)
{
	uint64_t cpu_ns = 0;
	int left = TREE_MAX;

	if (s->group != NULL && cgroup_usage(s->group, memory, &cpu_ns)) {
		if (last && !s->sampled)
			*memory = MAX(*memory, cgroup_peak(s->group));
		return cpu_ns;
	}
	if (last)
		read_children(&cpu_ns, memory);
	else
		add_tree(s->init, 0, &left, &cpu_ns, memory);
	return cpu_ns;
}

static bool read_now(struct sampler *s, bool last, struct wire_sample *out)
{
	int64_t now = clock_mono_ms();
	uint64_t cpu_ns = 0, free_bytes = 0, total = 0;
	struct err err = {0};

	lock_take(&s->lock);
	if (s->init == 0 || (!last && now < s->due_ms)) {
		lock_give(&s->lock);
		return false;
	}
	memset(out, 0, sizeof(*out));
	s->due_ms = now + SAMPLER_EVERY_MS;
	out->wall_ms = clock_wall_ms();
	cpu_ns = read_use(s, last, &out->memory_bytes);
	if (now > s->last_ms && cpu_ns > s->last_cpu_ns)
		out->cpu_cores =
			(double)(cpu_ns - s->last_cpu_ns) / 1e6 / (double)(now - s->last_ms);
	s->last_ms = now;
	s->last_cpu_ns = cpu_ns;
	s->sampled = true;
	out->memory_limit = s->o.memory_limit;
	out->cache_bytes = s->cache_bytes;
	out->scratch_bytes = s->own_bytes;
	out->cache_quota = s->o.cache_dir == NULL ? 0 : s->o.cache_quota;
	if (s->ship != NULL) {
		struct ship_totals t;

		ship_totals(s->ship, &t);
		out->ckpt_bytes = t.bytes;
	}
	read_gpus(s, out);
	lock_give(&s->lock);
	if (fs_free_bytes(s->o.written[0], &free_bytes, &total, &err) == 0)
		out->scratch_total = out->scratch_bytes + free_bytes;
	return true;
}

bool sampler_read(void *sampler, struct wire_sample *out)
{
	return read_now(sampler, false, out);
}

bool sampler_last(struct sampler *s, struct wire_sample *out)
{
	return read_now(s, true, out);
}

void sampler_stop(struct sampler *s)
{
	if (s == NULL)
		return;
	s->cancel = true;
	lock_take(&s->lock);
	s->done = true;
	cond_broadcast(&s->changed);
	lock_give(&s->lock);
	if (s->summing)
		(void)pthread_join(s->thread, NULL);
	nvml_close(s->nvml);
	cond_done(&s->changed);
	lock_done(&s->lock);
	free(s);
}
