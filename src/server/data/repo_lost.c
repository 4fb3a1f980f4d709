/*
 * repo_lost.c - bytes of repositories that are gone: nobody else has them, so whoever brings them
 * again has to be asked for them. What a folder lacks its file system says. What an object store
 * lacks is remembered when a reader or `stoker cache verify` has found out: to ask the store for
 * each file that a client names would cost more than the files.
 */
#include "server/data/repos.h"

#include "base/map.h"
#include "server/data/weights.h"

#define LOST_MAX 100000 /* more are known by the next `cache verify` */

bool repo_bytes_kept(struct app *app, const struct digest *d, uint64_t size)
{
	struct hub *h = app->hub;
	bool lost;

	if (!weights_in_objects(app))
		return blobs_has(app->blobs, d, size);
	lock_take(&h->lock);
	lost = map_get(h->lost, digest_key(d)) != NULL;
	lock_give(&h->lock);
	return !lost;
}

void repo_bytes_lost(struct app *app, const struct digest *d)
{
	struct hub *h = app->hub;

	if (!weights_in_objects(app))
		return;
	lock_take(&h->lock);
	if (map_count(h->lost) < LOST_MAX)
		(void)map_set(h->lost, digest_key(d), h);
	lock_give(&h->lock);
}

void repo_bytes_stored(struct app *app, const struct manifest *m)
{
	struct hub *h = app->hub;

	lock_take(&h->lock);
	for (size_t i = 0; i < m->n && map_count(h->lost) > 0; i++)
		(void)map_del(h->lost, digest_key(&m->file[i].sha256));
	lock_give(&h->lock);
}
