/* blob_objects.c - see blob_objects.h. */
#include "store/blobs/blob_objects.h"

#include "store/blobs/blob_impl.h"
#include "store/common/crew.h"

#define PAGE 1000     /* of a listing */
#define PUT_THREADS 8 /* blobs at once; large ones go in parallel parts besides */

static_assert(BLOB_KEY_CAP >= BLOB_PATH_CAP, "a key is the path of a blob store");

void blob_object_key(const struct digest *d, char out[BLOB_KEY_CAP])
{
	blob_path(d, out);
}

void blob_objects_manifest_key(const struct digest *name, char out[BLOB_KEY_CAP])
{
	blob_manifest_path(name, out);
}

static int into_buf(void *arg, const void *p, size_t n, struct err *err UNUSED)
{
	buf_add(arg, p, n);
	return 0;
}

int blob_objects_manifest(struct objstore *os, struct arena *a, const struct digest *name,
                          struct manifest *m, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
	struct objstore_info info;
	char key[BLOB_KEY_CAP];
	struct digest d;

	blob_objects_manifest_key(name, key);
	if (objstore_stat(os, key, &info, err) < 0)
		return -1;
	if (info.size > MANIFEST_BYTES_MAX)
		return err_set(err, ERR_CORRUPT, "%s is larger than any manifest", key);
	if (info.size > 0 && objstore_read(os, key, 0, info.size, into_buf, &text, NULL, err) < 0)
		return -1;
	d = hash_sha256(text.p, text.n);
	if (!digest_same(&d, name))
		return err_set(err, ERR_CORRUPT,
		               "the content of %s in the object store does not match its digest",
		               key);
	return manifest_parse(m, a, buf_view(&text), err) < 0 ? err_wrap(err, "%s", key) : 0;
}

int blob_objects_has(struct objstore *os, const char *key, uint64_t size, bool *has,
                     struct err *err)
{
	struct objstore_info info;

	*has = false;
	if (objstore_stat(os, key, &info, err) == 0) {
		*has = info.size == size;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

/* --- listing --------------------------------------------------------------------------------- */

struct page {
	unsigned magic;
#define PAGE_MAGIC 0x53504145U
	struct blob_entry x[PAGE];
	size_t n;
	char last[OBJSTORE_KEY_MAX + 1];
};

/* Other keys are not ours. */
static void add_to_page(void *arg, const char *key, const struct objstore_info *info)
{
	struct page *p = FROM_VOID(struct page, arg, PAGE_MAGIC);
	const char *name = strrchr(key, '/');
	struct err no = {0};

	copy_cut(p->last, sizeof(p->last), key);
	assert(p->n < PAGE);
	if (name != NULL && digest_parse(str_of(name + 1), &p->x[p->n].d, &no) == 0) {
		p->x[p->n].size = p->x[p->n].taken = info->size;
		p->x[p->n++].ms = info->modified_ms;
	}
}

int blob_objects_each(struct objstore *os, enum blobs_kind kind,
                      int (*fn)(void *arg, const struct blob_entry *x, struct err *err), void *arg,
                      struct err *err)
{
	const char *prefix = kind == BLOBS_MANIFEST ? "manifests/" : "blobs/sha256/";
	AUTO_FREE struct page *p = xcalloc(1, sizeof(*p));
	bool more = true;

	p->magic = PAGE_MAGIC;
	while (more) {
		p->n = 0;
		if (objstore_list(os, prefix, p->last[0] != '\0' ? p->last : NULL, PAGE,
		                  add_to_page, p, &more, err) < 0)
			return -1;
		for (size_t i = 0; i < p->n; i++)
			if (fn(arg, &p->x[i], err) < 0)
				return -1;
	}
	return 0;
}

/* --- putting --------------------------------------------------------------------------------- */

struct putting {
	unsigned magic;
#define PUTTING_MAGIC 0x53505554U
	const struct blob_objects_put *put;
	struct manifest_file *file; /* one of each content, the largest first */
	_Atomic uint64_t had, sent; /* bytes that were there before; that were not */
	uint64_t total;
};

/* *sent: false, it was there before, or is linked. */
static int put_blob(const struct blob_objects_put *put, const struct digest *d, uint64_t size,
                    void (*progress)(void *arg, uint64_t bytes), void *arg, const atomic_bool *stop,
                    bool *sent, struct err *err)
{
	char key[BLOB_KEY_CAP];
	AUTO_FD int fd = -1;
	uint64_t is;
	bool has;

	*sent = false;
	blob_object_key(d, key);
	blob_pins_add(put->pins, d);
	blob_pins_settle(put->from, d);
	if (blob_objects_has(put->to, key, size, &has, err) < 0)
		return -1;
	if (has)
		return 0;
	/* one machine keeps one copy: what was verified when it became a blob is linked */
	if (objstore_adopt(put->to, key, blobs_dirfd(put->from), key, err) == 0)
		return 0;
	if (err->code != ERR_UNSUPPORTED)
		return -1;
	err_clear(err);
	if (blobs_fd(put->from, d, &fd, &is, err) < 0 ||
	    objstore_put_file(put->to, key, fd, size, d, NULL, progress, arg, stop, err) < 0)
		return -1;
	*sent = true;
	return 0;
}

int blob_objects_put_blob(struct objstore *os, struct blobs *from, struct blob_pins *pins,
                          const struct digest *d, uint64_t size, const atomic_bool *cancel,
                          struct err *err)
{
	const struct blob_objects_put put = {.from = from, .to = os, .pins = pins};
	bool sent;

	if (put_blob(&put, d, size, NULL, NULL, cancel, &sent, err) == 0)
		return 0;
	return err_wrap(err, "a blob, to the object store");
}

int blob_objects_mend(struct objstore *os, struct blobs *from, const char *key,
                      const struct digest *d, const atomic_bool *cancel, bool *mended,
                      struct err *err)
{
	AUTO_FD int fd = openat(blobs_dirfd(from), key, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct digest is = {0};
	struct err ignored = {0};
	uint64_t size = 0;

	*mended = false;
	/* what cannot be read here is found by itself */
	if (fd < 0 || hash_fd(fd, &is, &size, &ignored) < 0 || !digest_same(&is, d))
		return 0;
	if (objstore_put_file(os, key, fd, size, d, NULL, NULL, NULL, cancel, err) < 0)
		return -1;
	*mended = true;
	return 0;
}

static int put_one(void *arg, size_t i, const atomic_bool *stop, struct err *err)
{
	struct putting *p = FROM_VOID(struct putting, arg, PUTTING_MAGIC);
	const struct manifest_file *f = &p->file[i];
	struct crew_share share = {.magic = CREW_SHARE_MAGIC, .all = &p->sent};
	bool sent;

	if (put_blob(p->put, &f->sha256, f->size, crew_share_at, &share, stop, &sent, err) < 0)
		return err_wrap(err, "%s, to the object store", f->path);
	if (sent)
		crew_share_at(&share, f->size);
	else
		atomic_fetch_add(&p->had, f->size);
	return 0;
}

static void tell(void *arg)
{
	struct putting *p = FROM_VOID(struct putting, arg, PUTTING_MAGIC);
	const struct blob_objects_put *put = p->put;
	uint64_t sent = atomic_load(&p->sent);

	if (put->progress != NULL)
		put->progress(put->arg, MIN(atomic_load(&p->had) + sent, p->total), p->total, sent);
}

static int put_manifest(const struct blob_objects_put *put, struct err *err)
{
	char key[BLOB_KEY_CAP];
	AUTO_FD int fd = -1;
	struct stat st;
	bool has;

	blob_objects_manifest_key(put->manifest, key); /* the path in the store, too */
	blob_pins_add(put->pins, put->manifest);
	blob_pins_settle(put->from, put->manifest);
	fd = openat(blobs_dirfd(put->from), key, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", key);
	if (blob_objects_has(put->to, key, (uint64_t)st.st_size, &has, err) < 0)
		return -1;
	if (has)
		return 0;
	return objstore_put_file(put->to, key, fd, (uint64_t)st.st_size, put->manifest, NULL, NULL,
	                         NULL, put->cancel, err);
}

static int by_digest(const void *a, const void *b)
{
	const struct manifest_file *x = a, *y = b;

	return memcmp(x->sha256.b, y->sha256.b, sizeof(x->sha256.b));
}

static int larger(const void *a, const void *b)
{
	const struct manifest_file *x = a, *y = b;

	return x->size != y->size ? (x->size < y->size) - (x->size > y->size) : by_digest(a, b);
}

/* One of each content, the largest first. Returns how many. */
static size_t distinct(struct manifest_file *f, size_t n)
{
	size_t kept = 0;

	if (n == 0)
		return 0;
	qsort(f, n, sizeof(*f), by_digest);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || !digest_same(&f[kept - 1].sha256, &f[i].sha256))
			f[kept++] = f[i];
	qsort(f, kept, sizeof(*f), larger);
	return kept;
}

int blob_objects_put(const struct blob_objects_put *put, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct putting p = {.magic = PUTTING_MAGIC, .put = put};
	struct crew_job crew = {.threads = PUT_THREADS,
	                        .run = put_one,
	                        .tick = tell,
	                        .arg = &p,
	                        .cancel = put->cancel};
	struct manifest m;

	if (put->fresh != NULL) {
		m = *put->fresh;
		m.file = ARENA_ARRAY(a, struct manifest_file, m.n + 1);
		memcpy(m.file, put->fresh->file, m.n * sizeof(*m.file));
	} else if (blobs_get_manifest(put->from, a, put->manifest, &m, err) < 0) {
		return -1;
	}
	p.file = m.file;
	crew.n = distinct(m.file, m.n);
	for (size_t i = 0; i < crew.n; i++)
		p.total += m.file[i].size;
	return crew_run(&crew, err) < 0 ? -1 : put_manifest(put, err);
}
