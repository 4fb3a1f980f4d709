/* digest_cache.c - see digest_cache.h. */
#include "store/common/digest_cache.h"

#include "store/blobs/blob_git.h"

#define HEAD "stoker-known 1\n\n"
#define HEAD_N (sizeof(HEAD) - 1)
#define ENTRIES_MAX ((size_t)2 * SOURCE_FILES_MAX) /* of a source whose filters vary */

struct entry {
	struct digest key, sha256;
};
static_assert(sizeof(struct entry) == 64, "a file's content");

struct digest_cache {
	struct blobs *b;
	char *name;
	struct entry *entry; /* [0, sorted) in the order of keys; what was added, each once, comes
	                        behind */
	size_t n, sorted, cap;
	bool changed;
};

static void path_of(const struct digest_cache *k, char out[80])
{
	struct digest d = hash_sha256(k->name, strlen(k->name));
	char hex[HASH_HEX_CAP];

	digest_hex(&d, hex);
	fmt_fixed(out, 80, "known/%s", hex);
}

static struct digest key_of(const struct source_file *f)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	char line[64];
	struct digest d = {0};

	hash_add(h, f->path, strlen(f->path) + 1);
	FMT(line, "%" PRIu64 " %d", f->size, f->has_id ? (int)f->kind : -1);
	hash_add(h, line, strlen(line) + 1);
	if (f->has_id)
		hash_add(h, f->id, sizeof(f->id));
	else
		hash_add(h, f->etag, strlen(f->etag));
	(void)hash_end(h, d.b);
	return d;
}

bool digest_cache_applies(const struct source_file *f)
{
	return f->has_id || (f->etag != NULL && strncmp(f->etag, "W/", 2) != 0);
}

struct digest_cache *digest_cache_load(struct blobs *b, const char *source_name)
{
	AUTO_BUF struct buf text = BUF_INIT(HEAD_N + ENTRIES_MAX * sizeof(struct entry));
	struct digest_cache *k = xcalloc(1, sizeof(*k));
	struct err none = {0};
	char path[80];

	k->b = b;
	k->name = xstrdup(source_name);
	path_of(k, path);
	if (fs_read(blobs_dirfd(b), path, &text, &none) < 0 || !str_starts(buf_view(&text), HEAD) ||
	    (text.n - HEAD_N) % sizeof(struct entry) != 0)
		return k;
	k->n = k->sorted = k->cap = (text.n - HEAD_N) / sizeof(struct entry);
	k->entry = xcalloc(k->n + 1, sizeof(*k->entry));
	memcpy(k->entry, text.p + HEAD_N, k->n * sizeof(*k->entry));
	return k;
}

void digest_cache_free(struct digest_cache *k)
{
	if (k == NULL)
		return;
	free(k->entry);
	free(k->name);
	free(k);
}

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct digest));
}

static struct entry *find(const struct digest_cache *k, const struct digest *key)
{
	struct entry want = {.key = *key};

	return k->sorted == 0 ? NULL : bsearch(&want, k->entry, k->sorted, sizeof(want), by_key);
}

static bool is_git(const struct source_file *f)
{
	return f->has_id && f->kind == HASH_SHA1;
}

bool digest_cache_find(const struct digest_cache *k, const struct source_file *f,
                       struct digest *sha256)
{
	const struct entry *e;
	struct digest key;

	if (!digest_cache_applies(f))
		return false;
	if (is_git(f) && blob_git_look(k->b, f->id, sha256))
		return true;
	key = key_of(f);
	e = find(k, &key);
	if (e != NULL)
		*sha256 = e->sha256;
	return e != NULL;
}

void digest_cache_add(struct digest_cache *k, const struct source_file *f,
                      const struct digest *sha256)
{
	struct entry *e;
	struct digest key;

	if (!digest_cache_applies(f))
		return;
	if (is_git(f)) {
		blob_git_note(k->b, f->id, sha256);
		return;
	}
	key = key_of(f);
	k->changed = true;
	e = find(k, &key);
	if (e != NULL) {
		e->sha256 = *sha256;
		return;
	}
	if (k->n >= k->cap) {
		k->cap = MAX((size_t)64, k->cap * 2);
		k->entry = xrealloc(k->entry, k->cap * sizeof(*k->entry));
	}
	k->entry[k->n++] = (struct entry){key, *sha256};
}

int digest_cache_save(struct digest_cache *k, struct blobs *b, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(HEAD_N + ENTRIES_MAX * sizeof(struct entry));
	char path[80];

	if (!k->changed)
		return 0;
	/* One too large forgets the past: it could not be read again. */
	if (k->n > ENTRIES_MAX) {
		k->n = MIN(k->n - k->sorted, ENTRIES_MAX);
		memmove(k->entry, k->entry + k->sorted, k->n * sizeof(*k->entry));
	}
	qsort(k->entry, k->n, sizeof(*k->entry), by_key);
	k->sorted = k->n;
	buf_puts(&text, HEAD);
	buf_add(&text, k->entry, k->n * sizeof(*k->entry));
	path_of(k, path);
	if (buf_check(&text, path, err) < 0 || fs_mkdirs(blobs_dirfd(b), "known", 0755, err) < 0)
		return -1;
	return fs_write_atomic(blobs_dirfd(b), path, buf_view(&text), 0644, err);
}
