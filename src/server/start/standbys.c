/* standbys.c - see standbys.h. */
#include "server/start/standbys.h"

#define KEPT "standby" /* "<wall ms> <host>" */

static int read_last(struct app *app, struct arena *a, struct standbys *out, struct err *err)
{
	struct str kept = {0}, when = {0};
	struct err bad = {0};
	uint64_t ms = 0;

	if (meta_kv_get(app->meta, a, KEPT, &kept, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	if (!str_cut(&kept, ' ', &when) || str_u64(when, 0, INT64_MAX, &ms, &bad) < 0 ||
	    clock_wall_ms() - (int64_t)ms > STANDBYS_KNOWN_MS)
		return 0;
	out->last = arena_strz(a, kept);
	out->last_ms = (int64_t)ms;
	return 0;
}

int standbys_look(struct app *app, struct arena *a, struct standbys *out, struct err *err)
{
	*out = (struct standbys){0};
	if (!meta_is_shared(app->meta))
		return 0;
	if (meta_standbys(app->meta, out->waiting, &out->n, err) < 0)
		return -1;
	return out->n > 0 ? 0 : read_last(app, a, out, err);
}

void standbys_note(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct standbys s;
	struct err err = {0};

	if (standbys_look(app, a, &s, &err) < 0 ||
	    (s.n > 0 && meta_kv_put(app->meta, KEPT,
	                            str_of(arena_printf(a, "%" PRId64 " %s", clock_wall_ms(),
	                                                s.waiting[0].host)),
	                            &err) < 0))
		log_debug("standbys: %s", err.msg); /* asked again in a minute */
}
