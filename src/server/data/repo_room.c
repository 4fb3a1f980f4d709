/* repo_room.c - see repo_room.h. */
#include "server/data/repo_room.h"

#include "base/units.h"
#include "server/data/mirror_room.h"

#define LUMP ((uint64_t)256 << 20) /* to look for room takes a walk through the store */

/* The next lump, for `bytes` at least. What was held is stored by now, and counted as that. */
static int take_lump(struct repo_room *r, uint64_t bytes, struct err *err)
{
	struct app *app = r->app;
	const struct mirror_want want = {.bytes = MAX(bytes, MIN(LUMP, r->rest))};

	mirror_room_give(app, r->hold);
	r->hold = NULL;
	r->held = 0;
	if (mirror_room_take(app, "the upload", want.bytes, &want, &app->stopping, &r->hold, err) <
	    0)
		return -1;
	r->held = want.bytes;
	r->rest -= MIN(want.bytes, r->rest);
	return 0;
}

int repo_room_open(struct app *app, uint64_t bytes, struct repo_room *out, struct err *err)
{
	char much[UNITS_CAP], most[UNITS_CAP];
	uint64_t avail = 0, disk = 0;

	*out = (struct repo_room){.app = app, .rest = bytes};
	if (bytes > app->set.repo_quota)
		return err_set(err, ERR_REPO_QUOTA_EXCEEDED,
		               "%s are more than the quota of a team's repositories, %s",
		               units_show_bytes(bytes, much),
		               units_show_bytes(app->set.repo_quota, most));
	if (fs_free_bytes(app->data, &avail, &disk, err) < 0)
		return -1;
	if (bytes > disk)
		return err_set(err, ERR_NO_SPACE, "%s are more than the disk has, %s",
		               units_show_bytes(bytes, much), units_show_bytes(disk, most));
	return bytes > 0 ? take_lump(out, 1, err) : 0;
}

int repo_room_need(struct repo_room *r, uint64_t bytes, struct err *err)
{
	if (bytes > r->held) {
		if (bytes - r->held > r->rest)
			return err_set(err, ERR_TOO_BIG,
			               "more bytes came than were announced, or than a body may "
			               "have that announces none");
		r->rest += r->held;
		if (take_lump(r, bytes, err) < 0)
			return -1;
	}
	r->held -= bytes;
	mirror_room_stored(r->app, r->hold, bytes);
	return 0;
}

void repo_room_close(struct repo_room *r)
{
	if (r->app == NULL)
		return;
	mirror_room_give(r->app, r->hold);
	*r = (struct repo_room){0};
}
