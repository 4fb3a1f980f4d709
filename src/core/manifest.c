/* manifest.c - sorted lines of files; the same files give the same bytes. */
#include "core/manifest.h"

#include "base/fs.h"

#define HEADER "stoker-manifest 1\n"
#define HEX_LEN (2 * (size_t)HASH_SHA256_LEN)
#define FIRST_CAP 16
#define SHOW_PATH(s) (int)MIN((s).n, (size_t)200), (s).p

void manifest_init(struct manifest *m, struct arena *a)
{
	*m = (struct manifest){.arena = a};
}

bool manifest_path_ok(struct str path)
{
	for (size_t i = 0; i < path.n; i++) {
		if ((unsigned char)path.p[i] < ' ' || path.p[i] == 127)
			return false;
	}
	return fs_path_is_plain(path);
}

int manifest_add(struct manifest *m, struct str path, uint64_t size, const struct digest *sha256,
                 struct err *err)
{
	if (!manifest_path_ok(path))
		return err_set(
			err, ERR_INVALID,
			"\"%.*s\" is not a plain relative path: no empty, \".\" or \"..\" parts, "
			"no control characters",
			SHOW_PATH(path));
	if (m->n >= MANIFEST_FILES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d files in one set",
		               MANIFEST_FILES_MAX);
	if (size > INT64_MAX - m->bytes)
		return err_set(err, ERR_TOO_BIG, "\"%.*s\": the sizes of the files overflow",
		               SHOW_PATH(path));
	if (m->n == m->cap) {
		size_t cap = m->cap == 0 ? FIRST_CAP : 2 * m->cap;
		struct manifest_file *file = ARENA_ARRAY(m->arena, struct manifest_file, cap);

		if (m->n > 0)
			memcpy(file, m->file, m->n * sizeof(*file));
		m->file = file;
		m->cap = cap;
	}
	m->file[m->n++] = (struct manifest_file){
		.path = arena_strz(m->arena, path),
		.size = size,
		.sha256 = *sha256,
	};
	m->bytes += size;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct manifest_file *)a)->path,
	              ((const struct manifest_file *)b)->path);
}

const struct manifest_file *manifest_find(const struct manifest *m, struct str path)
{
	size_t lo = 0, hi = m->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const char *p = m->file[mid].path;
		int order = strncmp(path.p, p, path.n);

		if (order == 0 && p[path.n] == '\0')
			return &m->file[mid];
		if (order > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

/* No path twice, and none that needs another file to be a folder. Parents that a path shares with
 * the one before it were looked up then: "a" and "a/b" need not be neighbours ("a-b" is between).
 */
static int check_sorted(const struct manifest *m, struct err *err)
{
	for (size_t i = 0; i < m->n; i++) {
		const char *path = m->file[i].path;
		const char *before = i > 0 ? m->file[i - 1].path : "";
		size_t shared = 0;

		while (path[shared] != '\0' && path[shared] == before[shared])
			shared++;
		if (i > 0 && path[shared] == '\0' && before[shared] == '\0')
			return err_set(err, ERR_INVALID, "\"%.200s\" is listed twice", path);
		for (const char *p = strchr(path + shared, '/'); p != NULL;
		     p = strchr(p + 1, '/')) {
			if (manifest_find(m, str_n(path, (size_t)(p - path))) != NULL)
				return err_set(err, ERR_INVALID,
				               "\"%.*s\" is a file, and the folder of \"%.200s\"",
				               (int)MIN(p - path, (ptrdiff_t)200), path, path);
		}
	}
	return 0;
}

int manifest_finish(struct manifest *m, struct err *err)
{
	if (m->n > 1)
		qsort(m->file, m->n, sizeof(m->file[0]), by_path);
	return check_sorted(m, err);
}

void manifest_write(const struct manifest *m, struct buf *out, struct digest *name)
{
	size_t start = out->n;

	buf_puts(out, HEADER);
	for (size_t i = 0; i < m->n; i++) {
		const struct manifest_file *f = &m->file[i];
		char hex[HASH_HEX_CAP];

		assert(i == 0 || by_path(f - 1, f) < 0); /* manifest_finish was called */
		digest_hex(&f->sha256, hex);
		buf_printf(out, "%s %" PRIu64 " %s\n", hex, f->size, f->path);
	}
	if (name != NULL)
		*name = hash_sha256(out->n > start ? out->p + start : "", out->n - start);
}

/* Only the one way of writing is read, so that equal sets have equal names. */
static int parse_line(struct manifest *m, struct str line, struct err *err)
{
	struct digest sha256;
	struct str size = {0};
	uint64_t bytes;

	if (line.n <= HEX_LEN || line.p[HEX_LEN] != ' ')
		return err_set(err, ERR_CORRUPT, "not \"<digest> <size> <path>\"");
	for (size_t i = 0; i < HEX_LEN; i++) {
		if (line.p[i] >= 'A' && line.p[i] <= 'F')
			return err_set(err, ERR_CORRUPT, "the digest is not lowercase");
	}
	if (digest_parse(str_n(line.p, HEX_LEN), &sha256, err) < 0)
		return -1;
	line = str_skip(line, HEX_LEN + 1);
	if (!str_cut(&line, ' ', &size) || size.n == 0 || size.p[0] < '0' || size.p[0] > '9' ||
	    (size.p[0] == '0' && size.n > 1))
		return err_set(err, ERR_CORRUPT, "the size is not a plain number");
	if (str_u64(size, 0, INT64_MAX, &bytes, err) < 0)
		return -1;
	if (manifest_add(m, line, bytes, &sha256, err) < 0)
		return -1;
	if (m->n > 1 && by_path(&m->file[m->n - 2], &m->file[m->n - 1]) >= 0)
		return err_set(err, ERR_CORRUPT, "\"%.200s\" is out of order",
		               m->file[m->n - 1].path);
	return 0;
}

int manifest_parse(struct manifest *m, struct arena *a, struct str bytes, struct err *err)
{
	struct manifest got;
	size_t number = 1;

	if (bytes.n > MANIFEST_BYTES_MAX)
		return err_set(err, ERR_TOO_BIG, "a manifest of %zu bytes; the limit is %zu",
		               bytes.n, MANIFEST_BYTES_MAX);
	if (!str_starts(bytes, HEADER))
		return err_set(err, ERR_CORRUPT, "not a manifest: it does not start with \"%.*s\"",
		               (int)sizeof(HEADER) - 2, HEADER);
	if (bytes.p[bytes.n - 1] != '\n')
		return err_set(err, ERR_CORRUPT,
		               "the manifest is truncated: its last line has no end");
	manifest_init(&got, a);
	bytes = str_skip(bytes, sizeof(HEADER) - 1);
	while (bytes.n > 0) {
		struct str line;

		(void)str_cut(&bytes, '\n', &line); /* there is one: the last byte is a newline */
		number++;
		if (parse_line(&got, line, err) < 0)
			return err_wrap(err, "manifest, line %zu", number);
	}
	if (check_sorted(&got, err) < 0)
		return err_wrap(err, "manifest");
	*m = got;
	return 0;
}
