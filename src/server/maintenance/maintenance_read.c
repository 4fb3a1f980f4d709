/* maintenance_read.c - reading an object to its end, however often its store goes away meanwhile.
 */
#include "server/maintenance/maintenance.h"
#include "store/common/copy.h"

#define FAILS_MAX 3 /* without a byte of it, by a store that answers */

struct reading {
	unsigned magic;
#define READING_MAGIC 0x56524541U
	const struct maintenance_read *rd;
	struct hash *hash;
	uint64_t n;
	struct objstore_info info;
	bool known; /* info */
};

static int sink(void *arg, const void *p, size_t n, struct err *err)
{
	struct reading *r = FROM_VOID(struct reading, arg, READING_MAGIC);

	hash_add(r->hash, p, n);
	r->n += n;
	return maintenance_step(r->rd->t, n, err);
}

/* From where it was cut, in the same version. */
static int read_on(struct reading *r, struct err *err)
{
	const struct maintenance_read *rd = r->rd;
	struct objstore *os = rd->app->objects;
	const char *etag;

	if (!r->known && objstore_stat(os, rd->key, &r->info, err) < 0)
		return -1;
	r->known = true;
	etag = r->info.etag[0] != '\0' ? r->info.etag : NULL;
	if (r->info.size != rd->size || r->n == rd->size)
		return 0;
	return objstore_read_same(os, rd->key, etag, r->n, rd->size - r->n, sink, r, rd->stop, err);
}

static void begin_again(struct reading *r)
{
	hash_free(r->hash);
	r->hash = hash_new(HASH_SHA256);
	r->n = 0;
	r->known = false;
}

static bool answers(const struct maintenance_read *rd)
{
	struct objstore_info info;
	struct err err = {0};

	return objstore_stat(rd->app->objects, rd->key, &info, &err) == 0 ||
	       err.code == ERR_NOT_FOUND;
}

/* A store that has no descriptors. One that answers, but not with this object, is not away. */
static int read_through(struct reading *r, struct err *err)
{
	const struct maintenance_read *rd = r->rd;
	unsigned fails = 0;

	for (;;) {
		uint64_t before = r->n;

		if (read_on(r, err) == 0)
			return 0;
		fails = r->n > before ? 0 : fails + 1;
		if (err->code == ERR_CONFLICT && fails < FAILS_MAX) { /* somebody replaced it */
			err_clear(err);
			begin_again(r);
			continue;
		}
		if (err_info(err)->retry && fails >= FAILS_MAX && answers(rd)) {
			err_become(err, ERR_IO);
			return -1;
		}
		if (maintenance_wait(rd->t, rd->stop, err) < 0)
			return -1;
	}
}

int maintenance_read_object(const struct maintenance_read *rd, struct digest *got, uint64_t *n,
                            struct objstore_info *seen, struct err *err)
{
	struct reading r = {.magic = READING_MAGIC, .rd = rd};
	struct objstore_info info;
	AUTO_FD int fd = -1;
	int rc;

	if (objstore_fd(rd->app->objects, rd->key, &fd, &info, err) < 0) {
		if (err->code != ERR_UNSUPPORTED)
			return -1;
		err_clear(err);
		begin_again(&r);
		rc = read_through(&r, err);
		if (rc == 0)
			(void)hash_end(r.hash, got->b);
		*n = r.info.size;
		if (seen != NULL)
			*seen = r.info;
		hash_free(r.hash);
		return rc;
	}
	if (seen != NULL)
		*seen = info;
	copy_drop(fd); /* what the disk holds is asked */
	if (hash_fd_steps(fd, maintenance_step, rd->t, got, n, err) < 0)
		return -1;
	copy_drop(fd);
	return 0;
}
