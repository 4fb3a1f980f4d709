/* sandbox_args.c - the arguments of sandbox-exec (sandbox_exec.h), which every driver has in front
 * of its own. */
#include "run/sandbox.h"

#include "run/sandbox_exec_image.h"

#define FIXED 46 /* of all that is not a mount */
#define DATA_MORE ((uint64_t)1 << 30)

void sandbox_args_put(struct sandbox_args *a, const char *word)
{
	assert(a->n + 1 < a->cap);
	a->v[a->n++] = word;
}

void sandbox_args_put2(struct sandbox_args *a, const char *x, const char *y)
{
	sandbox_args_put(a, x);
	sandbox_args_put(a, y);
}

void sandbox_args_put3(struct sandbox_args *a, const char *x, const char *y, const char *z)
{
	sandbox_args_put2(a, x, y);
	sandbox_args_put(a, z);
}

void sandbox_args_more(struct arena *arena, struct sandbox_args *a, size_t more)
{
	const char **wider = ARENA_ARRAY(arena, const char *, a->n + more);

	if (a->n > 0)
		memcpy(wider, a->v, a->n * sizeof(*wider));
	a->v = wider;
	a->cap = a->n + more;
}

uint64_t sandbox_data_limit(const struct sandbox *s)
{
	uint64_t bytes = s->spec->limits.memory_bytes;

	if (s->ops->remote || s->cgroup.memory || bytes == 0 || bytes > UINT64_MAX / 4)
		return 0;
	return 2 * bytes + DATA_MORE;
}

/* An id that others have too would count theirs. */
uint64_t sandbox_process_limit(const struct sandbox *s)
{
	return s->ops->remote || s->cgroup.pids || !s->spec->ids.on ? 0 : CGROUP_PIDS_MAX;
}

void sandbox_args_begin(const struct sandbox *s, struct arena *a, struct sandbox_args *out)
{
	const struct sandbox_spec *spec = s->spec;
	const struct ids *ids = &spec->ids;

	*out = (struct sandbox_args){.cap = FIXED + 2 * (size_t)CGROUP_PARTS + 3 * spec->mounts->n};
	out->v = ARENA_ARRAY(a, const char *, out->cap);
	if (sandbox_exec_path() != NULL)
		sandbox_args_put(out, sandbox_exec_path());
	else
		sandbox_args_put3(out, spec->program, "runner", "--sandbox-exec");
	if (s->made != NULL && s->made->n_procs > 0)
		sandbox_args_put2(out, "--cgroup-fds", arena_printf(a, "%zu", s->made->n_procs));
	for (int p = 0; p < CGROUP_PARTS && !s->ops->remote && s->made == NULL;
	     p++) { /* a container has its own */
		if (s->cgroup.dir[p][0] != '\0')
			sandbox_args_put2(out, "--cgroup", s->cgroup.dir[p]);
	}
	if (spec->cores != NULL && spec->cores[0] != '\0')
		sandbox_args_put2(out, "--cores", spec->cores);
	if (sandbox_data_limit(s) > 0)
		sandbox_args_put2(out, "--data-limit",
		                  arena_printf(a, "%" PRIu64, sandbox_data_limit(s)));
	if (sandbox_process_limit(s) > 0)
		sandbox_args_put2(out, "--process-limit",
		                  arena_printf(a, "%" PRIu64, sandbox_process_limit(s)));
	if (ids->on)
		sandbox_args_put2(out, "--ids",
		                  arena_printf(a, "%" PRIu32 ":%" PRIu32 ":%" PRIu32, ids->job,
		                               ids->span, ids->nobody));
	if (ids->on && ids->idmap)
		sandbox_args_put(out, "--idmap");
}

const char *sandbox_args_kind(const struct mount *m)
{
	if (m->kind == MOUNT_RW)
		return "--rw";
	return m->share ? "--share" : "--ro";
}

void sandbox_args_mounts(struct sandbox_args *a, const struct mounts *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct mount *one = &m->item[i];

		switch (one->kind) {
		case MOUNT_RO:
		case MOUNT_RW:
			sandbox_args_put3(a, sandbox_args_kind(one), one->from, one->at);
			break;
		case MOUNT_EMPTY:
			sandbox_args_put2(a, "--empty", one->at);
			break;
		case MOUNT_NULL:
			sandbox_args_put2(a, "--null", one->at);
			break;
		}
	}
}

const char **sandbox_args_end(struct sandbox_args *a, size_t *n)
{
	assert(a->n < a->cap);
	a->v[a->n] = NULL;
	if (n != NULL)
		*n = a->n;
	return a->v;
}

const char **sandbox_args_enter(struct sandbox *s, struct arena *a, const char *tty)
{
	struct sandbox_args args;

	sandbox_args_begin(s, a, &args);
	sandbox_args_put2(&args, "--clear-env", "--filter");
	if (s->ops->has_mount_points || s->spec->ids.on) /* it has namespaces of its own */
		sandbox_args_put(&args, "--enter");
	if (!s->ops->has_mount_points && s->spec->ids.on)
		sandbox_args_put(&args, "--become");
	if (tty != NULL)
		sandbox_args_put2(&args, "--tty", tty);
	sandbox_args_put(&args, "--");
	return sandbox_args_end(&args, NULL);
}
