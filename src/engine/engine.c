/* engine.c - the table of engines, and the calls that go through it. */
#include "engine/engine.h"

extern const struct engine_ops engine_local;

static const struct engine_ops *const engines[] = {
	&engine_local, /* this machine */
};

int engine_open(struct engine **out, const char *name, const char *options, struct err *err)
{
	for (size_t i = 0; i < COUNT(engines); i++) {
		if (strcmp(engines[i]->name, name) == 0)
			return engines[i]->open(out, options, err);
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
	assert(l->attempt_id != NULL && l->dir != NULL && l->program != NULL);
	if (e->ops->launch(e, l, a, ref, err) < 0)
		return err_wrap(err, "launching attempt %s, node %" PRIu32 " by engine %s",
		                l->attempt_id, l->node_rank, e->ops->name);
	assert(*ref != NULL);
	return 0;
}

int engine_probe(struct engine *e, const char *ref, const char *dir, enum engine_status *out,
                 struct err *err)
{
	assert(dir != NULL);
	return e->ops->probe(e, ref, dir, out, err);
}

int engine_kill(struct engine *e, const char *ref, const char *dir, const atomic_bool *cancel,
                struct err *err)
{
	assert(dir != NULL && cancel != NULL);
	return e->ops->kill(e, ref, dir, cancel, err);
}
