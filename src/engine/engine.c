/* engine.c - the table of engines, and the calls that go through it. */
#include "engine/engine.h"

extern const struct engine_ops engine_local;

static const struct engine_ops *const engines[] = {
	&engine_local, /* this machine */
};

char *engine_dir(struct arena *a, const char *attempt_id, uint32_t node_rank)
{
	return arena_printf(a, ENGINE_DIRS "/%s-%" PRIu32, attempt_id, node_rank);
}

const char *engine_dir_attempt(struct arena *a, const char *dir)
{
	const char *name = strrchr(dir, '/'), *rank = strrchr(dir, '-');

	if (name == NULL || rank == NULL || rank < name)
		return dir;
	return arena_strz(a, str_n(name + 1, (size_t)(rank - name - 1)));
}

/* It is somebody's row: nothing but a folder of runners is opened or removed by it. */
static int check_dir(const char *dir, struct err *err)
{
	struct str name = str_of(dir), first = {0};

	if (!str_cut(&name, '/', &first) || !str_eq(first, ENGINE_DIRS) || name.n == 0 ||
	    name.p[0] == '.' || memchr(name.p, '/', name.n) != NULL)
		return err_set(err, ERR_CORRUPT, "\"%s\" is no folder of a runner", dir);
	return 0;
}

int engine_open(struct engine **out, const char *name, const char *home, struct err *err)
{
	assert(home[0] == '/');
	for (size_t i = 0; i < COUNT(engines); i++) {
		if (strcmp(engines[i]->name, name) == 0)
			return engines[i]->open(out, home, err);
	}
	return err_set(err, ERR_INVALID, "unknown engine \"%s\"; only \"local\" is supported",
	               name);
}

void engine_close(struct engine *e)
{
	if (e != NULL)
		e->ops->close(e);
}

int engine_launch(struct engine *e, const struct engine_launch *l, struct arena *a, char **ref,
                  struct err *err)
{
	assert(l->attempt_id != NULL && l->program != NULL && l->start.n > 0);
	if (check_dir(l->dir, err) < 0 || e->ops->launch(e, l, a, ref, err) < 0)
		return err_wrap(err, "launching attempt %s, node %" PRIu32 " by engine %s",
		                l->attempt_id, l->node_rank, e->ops->name);
	assert(*ref != NULL);
	return 0;
}

int engine_probe(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
                 struct err *err)
{
	*out = ENGINE_UNKNOWN;
	return check_dir(dir, err) < 0 ? -1 : e->ops->probe(e, ref, dir, out, err);
}

int engine_kill(struct engine *e, const char *ref, const char *dir, struct engine_end *end,
                struct err *err)
{
	assert(end->program != NULL && end->cancel != NULL && !(end->past && end->last));
	end->words[0] = '\0';
	return check_dir(dir, err) < 0 ? -1 : e->ops->kill(e, ref, dir, end, err);
}

int engine_address(struct engine *e, const char *dir, const char *url, struct err *err)
{
	assert(url != NULL);
	return check_dir(dir, err) < 0 ? -1 : e->ops->address(e, dir, url, err);
}

int engine_release(struct engine *e, const char *dir, struct err *err)
{
	return check_dir(dir, err) < 0 ? -1 : e->ops->release(e, dir, err);
}

int engine_each(struct engine *e, void (*found)(void *arg, const char *dir), void *arg,
                struct err *err)
{
	return e->ops->each(e, found, arg, err);
}
