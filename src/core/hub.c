/* hub.c - see hub.h. */
#include "core/hub.h"

#include "base/json.h"
#include "base/record.h"
#include "core/manifest.h"

#define OID_HEX_CAP (2 * HUB_OID_LEN + 1)

static const struct {
	const char *word, *prefix;
} types[] = {
	[HUB_MODELS] = {"models", ""},
	[HUB_DATASETS] = {"datasets", "datasets/"},
	[HUB_SPACES] = {"spaces", "spaces/"},
};

/* ---- names --------------------------------------------------------------------------------- */

const char *hub_type_word(enum hub_type t)
{
	assert(t < COUNT(types));
	return types[t].word;
}

const char *hub_type_prefix(enum hub_type t)
{
	assert(t < COUNT(types));
	return types[t].prefix;
}

bool hub_type_parse(struct str word, enum hub_type *out)
{
	for (size_t i = 0; i < COUNT(types); i++) {
		if (!str_eq(word, types[i].word))
			continue;
		*out = (enum hub_type)i;
		return true;
	}
	return false;
}

bool hub_part_ok(struct str p)
{
	if (p.n == 0 || p.n > HUB_PART_MAX || p.p[0] == '-' || p.p[0] == '.' ||
	    p.p[p.n - 1] == '-' || p.p[p.n - 1] == '.')
		return false;
	for (size_t i = 0; i < p.n; i++) {
		char c = p.p[i];
		bool twice = i > 0 && c == p.p[i - 1];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || ((c == '-' || c == '.') && !twice)))
			return false;
	}
	return true;
}

bool hub_owner_is_type(struct str owner)
{
	static const char *const words[] = {"models",  "datasets", "spaces",
	                                    "kernels", "buckets",  "deployments"};

	for (size_t i = 0; i < COUNT(words); i++)
		if (str_ieq(owner, words[i]))
			return true;
	return false;
}

bool hub_id_ok(struct str id)
{
	struct str name = id, owner;

	if (str_ends(id, ".git"))
		return false;
	if (id.n == 0 || memchr(id.p, '/', id.n) == NULL)
		return hub_part_ok(id);
	return str_cut(&name, '/', &owner) && hub_part_ok(owner) && hub_part_ok(name);
}

bool hub_typed_id(struct str text, enum hub_type *type, struct str *id)
{
	struct str rest = text, word;

	*type = HUB_MODELS;
	*id = text;
	if (str_cut(&rest, '/', &word) && rest.n > 0 && hub_type_parse(word, type))
		*id = rest;
	return hub_id_ok(*id);
}

bool hub_rev_ok(struct str rev)
{
	if (rev.n == 0 || rev.n > HUB_REV_MAX)
		return false;
	for (size_t i = 0; i < rev.n; i++)
		if ((unsigned char)rev.p[i] < 0x20 || rev.p[i] == 0x7f)
			return false;
	return true;
}

bool hub_commit_ok(struct str rev)
{
	uint8_t raw[HUB_OID_LEN];
	struct err ignored = {0};

	return rev.n == HUB_COMMIT_HEX && hex_decode(rev, raw, sizeof(raw), &ignored) == 0;
}

const char *hub_lower(struct arena *a, const char *name)
{
	char *lower = arena_cstr(a, name);

	str_lower(lower);
	return lower;
}

/* ---- git's ids ----------------------------------------------------------------------------- */

/* The id of an object that a caller adds the content of. */
static void object_begin(struct hash *h, const char *kind, uint64_t size)
{
	char head[40];

	FMT(head, "%s %" PRIu64, kind, size);
	hash_add(h, head, strlen(head) + 1); /* its NUL belongs to it */
}

static void object_end(struct hash *h, uint8_t oid[HUB_OID_LEN])
{
	uint8_t whole[HASH_SHA256_LEN];
	size_t n = hash_end(h, whole);

	assert(n == HUB_OID_LEN);
	memcpy(oid, whole, HUB_OID_LEN);
}

size_t hub_pointer(const struct hub_file *f, char out[HUB_POINTER_CAP])
{
	char hex[HASH_HEX_CAP];

	assert(f->lfs);
	digest_hex(&f->sha256, hex);
	fmt_fixed(out, HUB_POINTER_CAP,
	          "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n",
	          hex, f->size);
	return strlen(out);
}

static void pointer_id(struct hub_file *f)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA1);
	char text[HUB_POINTER_CAP];
	size_t n = hub_pointer(f, text);

	object_begin(h, "blob", n);
	hash_add(h, text, n);
	object_end(h, f->oid);
}

struct hash *hub_blob_begin(uint64_t size)
{
	struct hash *h = hash_new(HASH_SHA1);

	object_begin(h, "blob", size);
	return h;
}

void hub_blob_end(struct hash *h, uint8_t oid[HUB_OID_LEN])
{
	object_end(h, oid);
}

void hub_blob_id(struct str bytes, uint8_t oid[HUB_OID_LEN])
{
	AUTO_HASH struct hash *h = hub_blob_begin(bytes.n);

	hash_add(h, bytes.p, bytes.n);
	hub_blob_end(h, oid);
}

/* "author NAME <> SECONDS +0000" */
static void signed_by(struct buf *out, const char *who, const struct hub_commit *c)
{
	buf_printf(out, "%s ", who);
	for (const char *p = c->author; *p != '\0'; p++)
		buf_putc(out, (unsigned char)*p < ' ' || *p == '<' || *p == '>' ? '_' : *p);
	buf_printf(out, " <> %" PRId64 " +0000\n", c->ms / 1000);
}

void hub_commit_id(const struct hub_listing *l, const struct hub_commit *c,
                   char out[HUB_COMMIT_HEX + 1])
{
	AUTO_BUF struct buf text = BUF_INIT(HUB_LISTING_MAX);
	AUTO_HASH struct hash *h = hash_new(HASH_SHA1);
	uint8_t oid[HUB_OID_LEN];

	hex_encode(l->root, HUB_OID_LEN, out);
	buf_printf(&text, "tree %s\n", out);
	if (c->parent != NULL)
		buf_printf(&text, "parent %s\n", c->parent);
	signed_by(&text, "author", c);
	signed_by(&text, "committer", c);
	buf_printf(&text, "\n%s\n", c->title);
	if (c->message[0] != '\0')
		buf_printf(&text, "\n%s\n", c->message);
	object_begin(h, "commit", text.n);
	hash_add(h, text.p, text.n);
	object_end(h, oid);
	hex_encode(oid, HUB_OID_LEN, out);
}

/* ---- folders ------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
	const struct hub_file *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static int folder_by_path(const void *a, const void *b)
{
	const struct hub_folder *x = a, *y = b;

	return strcmp(x->path, y->path);
}

struct grow {
	struct hub_listing *l;
	struct arena *a;
	size_t cap;
};

static struct hub_folder *folder_add(struct grow *g, struct str path)
{
	struct hub_listing *l = g->l;

	if (l->n_folders == g->cap) {
		struct hub_folder *more;

		g->cap = MAX((size_t)16, g->cap * 2);
		more = ARENA_ARRAY(g->a, struct hub_folder, g->cap);
		if (l->n_folders > 0)
			memcpy(more, l->folder, l->n_folders * sizeof(*more));
		l->folder = more;
	}
	l->folder[l->n_folders].path = arena_strz(g->a, path);
	return &l->folder[l->n_folders++];
}

static void tree_entry(struct buf *tree, const char *mode, struct str name,
                       const uint8_t oid[HUB_OID_LEN])
{
	buf_puts(tree, mode);
	buf_putc(tree, ' ');
	buf_str(tree, name);
	buf_putc(tree, '\0');
	buf_add(tree, oid, HUB_OID_LEN);
}

/*
 * The tree of the files [*i, ...) whose paths begin with the first `under` bytes of the first one;
 * *i is left behind them. Paths in the order of their bytes are in git's order, too, for it puts a
 * folder where its name with a slash would be.
 */
static int tree_of(struct grow *g, size_t *i, size_t under, unsigned depth,
                   uint8_t oid[HUB_OID_LEN], struct err *err)
{
	AUTO_BUF struct buf tree = BUF_INIT(HUB_LISTING_MAX);
	AUTO_HASH struct hash *h = hash_new(HASH_SHA1);
	struct hub_listing *l = g->l;
	const char *first = *i < l->n ? l->file[*i].path : "";

	if (depth > HUB_DEPTH_MAX)
		return err_set(err, ERR_INVALID, "\"%s\" is more than %d folders deep", first,
		               HUB_DEPTH_MAX);
	while (*i < l->n && strncmp(l->file[*i].path, first, under) == 0) {
		const struct hub_file *f = &l->file[*i];
		const char *name = f->path + under, *slash = strchr(name, '/');
		uint8_t sub[HUB_OID_LEN];
		struct str path;

		if (slash == NULL) {
			tree_entry(&tree, "100644", str_of(name), f->oid);
			++*i;
			continue;
		}
		path = str_n(f->path, (size_t)(slash - f->path));
		if (hub_listing_file(l, path) != NULL)
			return err_set(err, ERR_INVALID, "\"%.*s\" is a file and a folder",
			               STR_ARG(path));
		if (tree_of(g, i, path.n + 1, depth + 1, sub, err) < 0)
			return -1;
		memcpy(folder_add(g, path)->oid, sub, HUB_OID_LEN);
		tree_entry(&tree, "40000", str_n(name, (size_t)(slash - name)), sub);
	}
	if (buf_check(&tree, "a folder", err) < 0)
		return -1;
	object_begin(h, "tree", tree.n);
	hash_add(h, tree.p, tree.n);
	object_end(h, oid);
	return 0;
}

int hub_listing_finish(struct hub_listing *l, struct arena *a, struct err *err)
{
	struct grow g = {l, a, 0};
	size_t i = 0;

	l->folder = NULL;
	l->n_folders = 0;
	l->bytes = 0;
	if (l->n > 0)
		qsort(l->file, l->n, sizeof(*l->file), by_path);
	for (size_t k = 0; k < l->n; k++) {
		struct hub_file *f = &l->file[k];

		if (!manifest_path_ok(str_of(f->path)))
			return err_set(err, ERR_INVALID, "\"%s\" is no plain path", f->path);
		if (k > 0 && strcmp(f->path, l->file[k - 1].path) == 0)
			return err_set(err, ERR_INVALID, "\"%s\" is listed twice", f->path);
		if (__builtin_add_overflow(l->bytes, f->size, &l->bytes))
			return err_set(err, ERR_INVALID, "\"%s\" has an impossible size", f->path);
		if (f->lfs)
			pointer_id(f);
	}
	if (tree_of(&g, &i, 0, 0, l->root, err) < 0)
		return -1;
	if (l->n_folders > 0)
		qsort(l->folder, l->n_folders, sizeof(*l->folder), folder_by_path);
	return 0;
}

/* As strcmp(), of a text without a NUL at its end. */
static int order(struct str key, const char *path)
{
	size_t n = strlen(path);
	int c = memcmp(key.p, path, MIN(key.n, n)); /* the key may have NULs */

	return c != 0 ? c : key.n < n ? -1 : key.n > n;
}

static int file_at(const void *key, const void *item)
{
	return order(*(const struct str *)key, ((const struct hub_file *)item)->path);
}

static int folder_at(const void *key, const void *item)
{
	return order(*(const struct str *)key, ((const struct hub_folder *)item)->path);
}

const struct hub_file *hub_listing_file(const struct hub_listing *l, struct str path)
{
	return l->n == 0 ? NULL : bsearch(&path, l->file, l->n, sizeof(*l->file), file_at);
}

const struct hub_folder *hub_listing_folder(const struct hub_listing *l, struct str path)
{
	return l->n_folders == 0
	               ? NULL
	               : bsearch(&path, l->folder, l->n_folders, sizeof(*l->folder), folder_at);
}

void hub_listing_copy(const struct hub_listing *l, struct arena *a, struct hub_listing *out)
{
	*out = *l;
	out->id = arena_cstr(a, l->id);
	out->commit = arena_cstr(a, l->commit);
	out->about = arena_cstr(a, l->about);
	out->file = ARENA_ARRAY(a, struct hub_file, l->n + 1);
	out->folder = ARENA_ARRAY(a, struct hub_folder, l->n_folders + 1);
	for (size_t i = 0; i < l->n; i++) {
		out->file[i] = l->file[i];
		out->file[i].path = arena_cstr(a, l->file[i].path);
	}
	for (size_t i = 0; i < l->n_folders; i++) {
		out->folder[i] = l->folder[i];
		out->folder[i].path = arena_cstr(a, l->folder[i].path);
	}
}

/* ---- as JSON ------------------------------------------------------------------------------- */

struct stored_file {
	const char *path, *oid; /* oid: of a regular file; NULL: it is an LFS file */
	uint64_t size;
	const char *sha256; /* of an LFS file */
};

struct stored {
	const char *type, *id, *commit, *about;
	struct stored_file *files;
	size_t n_files;
};

/* clang-format off */
static RECORD(stored_file, NULL,
	ROW(stored_file, R_TEXT,         path),
	ROW(stored_file, R_U64,          size),
	ROW(stored_file, R_TEXT | R_MAY, oid),
	ROW(stored_file, R_TEXT | R_MAY, sha256));

static RECORD(stored, NULL,
	ROW(stored,    R_TEXT, type),
	ROW(stored,    R_TEXT, id),
	ROW(stored,    R_TEXT, commit),
	ROW(stored,    R_TEXT, about),
	ROW_OF(stored, R_LIST, files, n_files, stored_file));
/* clang-format on */

void hub_listing_write(const struct hub_listing *l, struct buf *out)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct stored s = {.type = hub_type_word(l->type),
	                   .id = l->id,
	                   .commit = l->commit,
	                   .about = l->about,
	                   .files = ARENA_ARRAY(a, struct stored_file, l->n + 1),
	                   .n_files = l->n};

	for (size_t i = 0; i < l->n; i++) {
		const struct hub_file *f = &l->file[i];
		char hex[HASH_HEX_CAP];

		if (f->lfs)
			digest_hex(&f->sha256, hex);
		else
			hex_encode(f->oid, HUB_OID_LEN, hex);
		s.files[i] = (struct stored_file){.path = f->path,
		                                  .size = f->size,
		                                  .oid = f->lfs ? NULL : arena_cstr(a, hex),
		                                  .sha256 = f->lfs ? arena_cstr(a, hex) : NULL};
	}
	record_write(&stored_record, &s, out);
}

int hub_listing_read(struct arena *a, struct str json, struct hub_listing *out, struct err *err)
{
	/* What is read takes several times what is kept of it. */
	AUTO_ARENA struct arena *tmp = arena_new();
	struct hub_listing l = {0};
	struct stored s;

	if (record_read(&stored_record, tmp, json, &s, err) < 0)
		return -1;
	if (!hub_type_parse(str_of(s.type), &l.type) || !hub_id_ok(str_of(s.id)) ||
	    !hub_commit_ok(str_of(s.commit)))
		return err_set(err, ERR_CORRUPT, "this is no list of a repository's files");
	l.id = arena_cstr(a, s.id);
	l.commit = arena_cstr(a, s.commit);
	l.about = arena_cstr(a, s.about);
	l.n = s.n_files;
	l.file = ARENA_ARRAY(a, struct hub_file, l.n + 1);
	for (size_t i = 0; i < l.n; i++) {
		const struct stored_file *x = &s.files[i];
		struct hub_file *f = &l.file[i];

		*f = (struct hub_file){
			.path = arena_cstr(a, x->path), .size = x->size, .lfs = x->oid == NULL};
		if (f->lfs ? digest_parse(str_of(x->sha256), &f->sha256, err) < 0
		           : hex_decode(str_of(x->oid), f->oid, HUB_OID_LEN, err) < 0)
			return err_wrap(err, "%s", x->path);
	}
	if (hub_listing_finish(&l, a, err) < 0)
		return -1;
	*out = l;
	return 0;
}
