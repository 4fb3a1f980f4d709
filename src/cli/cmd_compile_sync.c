/* cmd_compile_sync.c - compile caches of this machine: what is new goes to a repository, or comes
 * from one. Nothing that is there is replaced, here nor there. */
#include "cli/caches.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/units.h"
#include "core/hub_commit.h"
#include "core/manifest.h"
#include "core/spec.h"

#include <dirent.h>

#define COMMIT_FILES 1000
#define COMMIT_BYTES ((uint64_t)256 << 20)
#define FILE_MAX ((size_t)2 << 30)
#define FILES_MAX 2000000
#define DEPTH_MAX 32
#define ROWS_MAX ((size_t)1 << 20)

/* ---- what both say -------------------------------------------------------------------------- */

struct tally { /* of one kind, in files */
	struct caches_place place;
	const char *device; /* "" where the kind knows none */
	size_t fresh, there, torn, young, other;
	uint64_t bytes; /* of the fresh ones */
};

static void ta_left(const struct doc *d, struct buf *b)
{
	static const char *const words[] = {"torn", "young", "other"};
	size_t before = b->n;

	for (size_t i = 0; i < COUNT(words); i++) {
		int64_t n = doc_int(doc_get(d, words[i]), 0);

		if (n > 0)
			buf_printf(b, "%s%" PRId64 " %s", b->n > before ? ", " : "", n, words[i]);
	}
	if (b->n == before)
		buf_putc(b, '-');
}

static int show(struct cli *c, const struct tally *t, size_t n, const char *none, struct err *err)
{
	static const struct out_col cols[] = {
		{"KIND", false, cell_text, "kind"},   {"DEVICE", false, cell_name, "device"},
		{"NEW", true, cell_text, "new"},      {"SIZE", true, cell_bytes, "bytes"},
		{"THERE", true, cell_text, "there"},  {"LEFT OUT", false, ta_left, NULL},
		{"FOLDER", false, cell_name, "local"}};
	AUTO_BUF struct buf text = BUF_INIT(ROWS_MAX);
	const struct doc *list;
	struct js js;

	js_init(&js, &text);
	js_list(&js);
	for (size_t i = 0; i < n; i++) {
		if (t[i].fresh + t[i].there + t[i].torn + t[i].young + t[i].other == 0)
			continue;
		js_open(&js);
		js_kv(&js, "kind", compile_cache_kinds[t[i].place.kind].name);
		js_kv(&js, "device", t[i].device[0] != '\0' ? t[i].device : NULL);
		js_kv_u64(&js, "new", t[i].fresh);
		js_kv_u64(&js, "bytes", t[i].bytes);
		js_kv_u64(&js, "there", t[i].there);
		js_kv_u64(&js, "torn", t[i].torn);
		js_kv_u64(&js, "young", t[i].young);
		js_kv_u64(&js, "other", t[i].other);
		js_kv(&js, "local", t[i].place.dir);
		js_close(&js);
	}
	js_end(&js);
	if (buf_check(&text, "the list", err) < 0 ||
	    js_parse(c->arena, buf_view(&text), &list, err) < 0)
		return -1;
	return out_list(c, list, cols, COUNT(cols), none, err);
}

static bool is_elsewhere(const char *dir)
{
	return strstr(dir, "://") != NULL;
}

/* ---- push: what is here --------------------------------------------------------------------- */

struct found {
	struct cli *c;
	const char *dir;
	struct compile_file *file;
	size_t n, cap, links;
};

static void note_file(struct found *f, const char *path, const struct stat *st)
{
	if (f->n == f->cap) {
		struct compile_file *more;

		f->cap = MAX((size_t)256, f->cap * 2);
		more = ARENA_ARRAY(f->c->arena, struct compile_file, f->cap);
		if (f->n > 0)
			memcpy(more, f->file, f->n * sizeof(*more));
		f->file = more;
	}
	f->file[f->n++] = (struct compile_file){
		.path = path,
		.size = (uint64_t)st->st_size,
		.changed_ms = clock_ns_of(st->st_mtim.tv_sec, st->st_mtim.tv_nsec) / 1000000};
}

static void dir_close_p(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}

static void say_left(const struct found *f, const char *path, const char *why)
{
	out_message(f->c, "left out: %s/%s: %s", f->dir, out_name(f->c->arena, str_of(path)), why);
}

/* Compilers come and go meanwhile: what is gone again is none of ours. Links are not followed. */
static int walk(struct found *f, int fd, const char *at, unsigned depth, struct err *err)
{
	DIR *d CLEANUP(dir_close_p) = fdopendir(fd);
	const struct dirent *e;

	if (d == NULL) {
		close_fd_p(&fd);
		return err_errno(err, errno, "reading %s", at);
	}
	while ((e = readdir(d)) != NULL) {
		const char *path;
		struct stat st;
		int below;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (interrupted)
			return err_set(err, ERR_CANCELED, "canceled");
		path = arena_printf(f->c->arena, "%s%s%s", at, at[0] != '\0' ? "/" : "", e->d_name);
		if (f->n >= FILES_MAX)
			return err_set(err, ERR_TOO_BIG, "more than %d files", FILES_MAX);
		if (S_ISREG(st.st_mode) && (uint64_t)st.st_size <= FILE_MAX &&
		    hub_commit_path_ok(str_of(path)))
			note_file(f, path, &st);
		else if (!S_ISDIR(st.st_mode))
			f->links++;
		if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > FILE_MAX)
			say_left(f, path, "it has more than 2 GiB");
		if (S_ISDIR(st.st_mode) && depth >= DEPTH_MAX)
			say_left(f, path, "too many folders in each other");
		if (!S_ISDIR(st.st_mode) || depth >= DEPTH_MAX)
			continue;
		below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0 && walk(f, below, path, depth + 1, err) < 0)
			return -1;
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct compile_file *)a)->path,
	              ((const struct compile_file *)b)->path);
}

static int load(int root, const struct compile_file *f, struct buf *out, struct err *err)
{
	buf_clear(out);
	return fs_read_strange(root, f->path, out, err);
}

static void read_texts(struct cli *c, enum compile_kind kind, int root, struct found *f)
{
	AUTO_BUF struct buf text = BUF_INIT(COMPILE_TEXT_MAX);
	size_t room = COMPILE_TEXTS_MAX;

	for (size_t i = 0; i < f->n; i++) {
		struct err ignored = {0};

		if (!compile_cache_takes_text(kind, f->file[i].path, f->file[i].size, &room) ||
		    load(root, &f->file[i], &text, &ignored) < 0)
			continue;
		f->file[i].text = arena_str(c->arena, buf_view(&text));
	}
}

/* ---- push: what goes ------------------------------------------------------------------------ */

struct push {
	struct cli *c;
	const char *id, *device;
	struct hubrepo_tree tree;
	struct hubrepo_commit commit;
	bool open; /* a commit is being filled */
	size_t commits;
};

static int send_commit(struct push *p, struct err *err)
{
	if (!p->open)
		return 0;
	p->open = false;
	p->commits++;
	return hubrepo_commit_send(&p->commit, p->id, err);
}

static int add(struct push *p, const char *path, struct str content, struct err *err)
{
	char host[256] = "";

	if (!p->open) {
		(void)gethostname(host, sizeof(host) - 1);
		if (hubrepo_commit_begin(&p->commit, p->c,
		                         arena_printf(p->c->arena, "compile caches of %s", host),
		                         arena_printf(p->c->arena, "device=%s", p->device), true,
		                         err) < 0)
			return -1;
		p->open = true;
	}
	return hubrepo_commit_add(&p->commit, path, content, err);
}

static const char *repo_path(const struct push *p, const struct tally *t, const char *path)
{
	return compile_cache_repo_path(p->c->arena, t->place.kind, t->device, path);
}

static bool is_whole(const struct tally *t, int root, const struct compile_file *f, struct buf *b)
{
	struct err ignored = {0};

	return load(root, f, b, &ignored) == 0 &&
	       compile_cache_is_whole(t->place.kind, f->path, buf_view(b));
}

/* A file that names others by their places goes with the places that they have in jobs. */
static int add_file(struct push *p, const struct tally *t, const struct compile_file *f,
                    struct str content, struct err *err)
{
	AUTO_BUF struct buf there = BUF_INIT(COMPILE_TEXT_MAX);
	const char *place = arena_printf(p->c->arena, SPEC_COMPILE_PLACE "/%s",
	                                 compile_cache_kinds[t->place.kind].name);

	if (compile_cache_move(t->place.kind, f->path, content, place, &there) && !there.full)
		content = buf_view(&there);
	return add(p, repo_path(p, t, f->path), content, err);
}

/* Files of one compilation, which go together or not at all. */
static int add_unit(struct push *p, struct tally *t, int root, const struct compile_file *f,
                    size_t n, struct err *err)
{
	AUTO_BUF struct buf b = BUF_INIT(FILE_MAX);

	for (size_t i = 0; i < n; i++) {
		if (is_whole(t, root, &f[i], &b))
			continue;
		t->torn += n;
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (n > 1 && !is_whole(t, root, &f[i], &b))
			return err_set(err, ERR_CONFLICT, "%s/%s changed while it was read",
			               t->place.dir, f[i].path);
		if (add_file(p, t, &f[i], buf_view(&b), err) < 0)
			return -1;
		t->fresh++;
		t->bytes += f[i].size;
	}
	out_progress(p->c, "reading %s: %s", compile_cache_kinds[t->place.kind].name,
	             out_count(p->c, t->fresh, "new file"));
	return p->commit.files >= COMMIT_FILES || p->commit.bytes >= COMMIT_BYTES
	               ? send_commit(p, err)
	               : 0;
}

static int by_unit(const void *a, const void *b)
{
	const struct compile_file *x = a, *y = b;

	return x->unit != y->unit ? (x->unit < y->unit ? -1 : 1) : strcmp(x->path, y->path);
}

/* Counts what is not to go, and leaves the others at the front. */
static size_t weed(struct push *p, struct tally *t, struct compile_file *f, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		switch (f[i].left) {
		case COMPILE_NO_ENTRY:
			t->other++;
			continue;
		case COMPILE_TORN:
			t->torn++;
			continue;
		case COMPILE_YOUNG:
			t->young++;
			continue;
		case COMPILE_TAKEN:
			break;
		}
		if (hubrepo_find(&p->tree, repo_path(p, t, f[i].path)) != NULL)
			t->there++;
		else
			f[kept++] = f[i];
	}
	return kept;
}

/* A folder in /tmp may be anybody's; what is named is meant. */
static bool is_ours(const struct caches_place *place, int fd)
{
	struct stat st;

	return place->named || (fstat(fd, &st) == 0 && st.st_uid == geteuid());
}

static int push_place(struct push *p, struct tally *t, struct err *err)
{
	struct found f = {.c = p->c, .dir = t->place.dir};
	struct err ignored = {0};
	AUTO_FD int root = -1;
	size_t n, end;
	int fd;

	if (t->place.dir == NULL || is_elsewhere(t->place.dir))
		return 0;
	root = t->place.named && opt_text(p->c, "from", NULL) == NULL
	               ? fs_open_dir(t->place.dir, err)
	               : fs_open_dir(t->place.dir, &ignored);
	if (root < 0)
		return err->code != ERR_NONE ? -1 : 0; /* this compiler has not been here */
	if (!is_ours(&t->place, root)) {
		out_message(p->c,
		            "%s belongs to somebody else, and is left out; --kind %s=%s takes it",
		            t->place.dir, compile_cache_kinds[t->place.kind].name, t->place.dir);
		return 0;
	}
	fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "reading %s", t->place.dir);
	if (walk(&f, fd, "", 0, err) < 0)
		return err_wrap(err, "%s", t->place.dir);
	t->other += f.links;
	if (f.n > 0)
		qsort(f.file, f.n, sizeof(*f.file), by_path);
	read_texts(p->c, t->place.kind, root, &f);
	compile_cache_sift(t->place.kind, f.file, f.n, clock_wall_ms());
	n = weed(p, t, f.file, f.n);
	if (n > 0)
		qsort(f.file, n, sizeof(*f.file), by_unit);
	for (size_t i = 0; i < n; i = end) {
		for (end = i + 1; end < n && f.file[end].unit == f.file[i].unit;)
			end++;
		if (add_unit(p, t, root, f.file + i, end - i, err) < 0)
			return -1;
	}
	return 0;
}

/* Its tree; a repository that is not there is made. It is this server's, whatever the Hub that is
 * mirrored has, which may be out of reach. */
static int open_repo(struct push *p, struct err *err)
{
	const char *slash = strchr(p->id, '/');
	const struct doc *reply;

	if (remote_get(p->c, &reply, err, "/v1/repositories/models/%s/%s",
	               remote_part(p->c,
	                           arena_strz(p->c->arena, str_n(p->id, (size_t)(slash - p->id)))),
	               remote_part(p->c, slash + 1)) < 0) {
		if (!hubrepo_is_missing(err))
			return -1;
		err_clear(err);
		if (hubrepo_create(p->c, p->id, err) < 0)
			return -1;
		out_message(p->c, "made the private repository %s", p->id);
	}
	return hubrepo_tree(p->c, p->id, "main", true, &p->tree, err);
}

static int needs_device(struct cli *c, const struct tally *t, size_t n, const char **device,
                        struct err *err)
{
	*device = "";
	for (size_t i = 0; i < n; i++)
		if (compile_cache_kinds[t[i].place.kind].by_device)
			return caches_device(c, device, err);
	return 0;
}

static int tallies(struct cli *c, const char *option, struct tally t[COMPILE_KIND_COUNT], size_t *n,
                   const char **device, struct err *err)
{
	struct caches_place place[COMPILE_KIND_COUNT];

	if (caches_places(c, option, place, n, err) < 0)
		return -1;
	for (size_t i = 0; i < *n; i++)
		t[i] = (struct tally){.place = place[i], .device = ""};
	if (needs_device(c, t, *n, device, err) < 0)
		return -1;
	for (size_t i = 0; i < *n; i++)
		if (compile_cache_kinds[t[i].place.kind].by_device)
			t[i].device = *device;
	return 0;
}

static size_t sum(const struct tally *t, size_t n, uint64_t *bytes)
{
	size_t files = 0;

	*bytes = 0;
	for (size_t i = 0; i < n; i++) {
		files += t[i].fresh;
		*bytes += t[i].bytes;
	}
	return files;
}

int cmd_compile_cache_push(struct cli *c, struct err *err)
{
	struct push p = {.c = c, .commit = HUBREPO_COMMIT_INIT};
	struct tally t[COMPILE_KIND_COUNT];
	char size[UNITS_CAP];
	enum out_form form;
	const char *next;
	uint64_t bytes;
	size_t n, files, young = 0;
	int rc = 0;

	catch_interrupt();
	if (out_form(c, &form, err) < 0 || tallies(c, "from", t, &n, &p.device, err) < 0 ||
	    caches_repo(c, c->n_arg > 0 ? c->arg[0] : NULL, &p.id, err) < 0 ||
	    open_repo(&p, err) < 0)
		return -1;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = push_place(&p, &t[i], err);
	if (rc == 0)
		rc = send_commit(&p, err);
	hubrepo_commit_done(&p.commit);
	out_progress_end(c);
	if (rc < 0 || show(c, t, n, "there are no compile caches on this machine", err) < 0)
		return -1;
	files = sum(t, n, &bytes);
	for (size_t i = 0; i < n; i++)
		young += t[i].young;
	if (files == 0 && young > 0)
		out_message(c,
		            "nothing was sent, as %s may still be written to: push again in a "
		            "few seconds",
		            out_count(c, young, "young file"));
	else if (files == 0)
		out_message(c, "%s has all of it", p.id);
	if (files == 0)
		return 0;
	next = arena_printf(c->arena, "stoker compile-cache ls %s", p.id);
	out_message(c, "%s, %s, new in %s", out_count(c, files, "file"),
	            units_show_bytes(bytes, size), p.id);
	out_next(c, &next, 1);
	return 0;
}

/* ---- pull ----------------------------------------------------------------------------------- */

struct pull {
	unsigned magic;
#define PULL_MAGIC 0x4c504c4cU
	struct cli *c;
	const char *id, *temp;
	struct hubrepo_tree tree;
	const char *commit;
	uint64_t done;
};

static void moved(void *arg, size_t n)
{
	struct pull *p = FROM_VOID(struct pull, arg, PULL_MAGIC);
	char size[UNITS_CAP];

	p->done += n;
	out_progress(p->c, "pulling, %s", units_show_bytes(p->done, size));
}

/* A file that names others by their places gets the places here. */
static int settle(const struct tally *t, const char *root_path, int root, const char *temp,
                  const char *path, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(COMPILE_TEXT_MAX), here = BUF_INIT(COMPILE_TEXT_MAX);

	if (!compile_cache_wants_text(t->place.kind, path))
		return 0;
	if (fs_read(root, temp, &text, err) < 0)
		return -1;
	if (!compile_cache_move(t->place.kind, path, buf_view(&text), root_path, &here))
		return 0;
	if (buf_check(&here, path, err) < 0)
		return -1;
	return fs_write_atomic(root, temp, buf_view(&here), 0644, err);
}

static int pull_file(struct pull *p, struct tally *t, const char *root_path, int root,
                     const char *path, const struct hubrepo_item *f, struct err *err)
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	AUTO_FD int fd = -1, dir = -1;

	if (faccessat(root, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		t->there++;
		return 0;
	}
	dir = slash != NULL
	              ? fs_make_beneath(
				root, arena_strz(p->c->arena, str_n(path, (size_t)(slash - path))),
				0755, err)
	              : openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err->code != ERR_NONE ? -1 : err_errno(err, errno, "%s", t->place.dir);
	fd = fs_open_beneath(root, p->temp, O_RDWR | O_CREAT | O_TRUNC, 0644, err);
	if (fd < 0 || hubrepo_fetch(p->c, p->id, p->commit, f, fd, moved, p, err) < 0 ||
	    settle(t, root_path, root, p->temp, path, err) < 0)
		return -1;
	if (renameat2(root, p->temp, dir, name, RENAME_NOREPLACE) == 0) {
		t->fresh++;
		t->bytes += f->size;
		return 0;
	}
	if (errno != EEXIST)
		return err_errno(err, errno, "%s/%s", t->place.dir, path);
	t->there++; /* a compiler was faster */
	return 0;
}

/* The files of a kind that are whole, as far as their names tell: what a harvest that was cut short
 * has left is not for others. */
static size_t whole_files(struct pull *p, struct tally *t, struct compile_file **out,
                          const struct hubrepo_item ***item)
{
	struct compile_file *f = ARENA_ARRAY(p->c->arena, struct compile_file, p->tree.n + 1);
	size_t n = 0, kept = 0;

	*item = ARENA_ARRAY(p->c->arena, const struct hubrepo_item *, p->tree.n + 1);
	for (size_t i = 0; i < p->tree.n; i++) {
		struct compile_place at;

		if (p->tree.item[i].folder ||
		    !compile_cache_place(p->c->arena, p->tree.item[i].path, &at) ||
		    at.kind != t->place.kind || strcmp(at.device, t->device) != 0 ||
		    !manifest_path_ok(str_of(at.path)))
			continue;
		(*item)[n] = &p->tree.item[i];
		f[n++] = (struct compile_file){.path = at.path, .size = p->tree.item[i].size};
	}
	compile_cache_sift(t->place.kind, f, n, 0);
	for (size_t i = 0; i < n; i++) {
		if (!f[i].take) {
			t->torn += f[i].left == COMPILE_TORN;
			t->other += f[i].left != COMPILE_TORN;
			continue;
		}
		(*item)[kept] = (*item)[i];
		f[kept++] = f[i];
	}
	*out = f;
	return kept;
}

/* What was pulled beside a record of what was built gets the times that it says. */
static int set_times(int root, const struct compile_file *f, size_t n, const bool *fresh,
                     const char *record, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(COMPILE_TEXT_MAX);
	AUTO_ARENA struct arena *a = arena_new();
	struct compile_built built;
	struct err no = {0};
	int64_t ns;

	if (fs_read_strange(root, record, &text, &no) < 0 ||
	    !compile_cache_built(a, record, buf_view(&text), &built))
		return 0; /* it is built again */
	for (size_t i = 0; i < n; i++) {
		if (fresh[i] && compile_cache_built_ns(&built, f[i].path, &ns) &&
		    fs_set_time(root, f[i].path, ns, err) < 0)
			return -1;
	}
	return 0;
}

static int pull_files(struct pull *p, struct tally *t, const char *real, int root,
                      const struct compile_file *f, const struct hubrepo_item **item, size_t n,
                      struct err *err)
{
	bool *fresh = ARENA_ARRAY(p->c->arena, bool, n);

	for (size_t k = 0; k < 2 * n; k++) { /* what says that the others are there, last */
		size_t i = k % n, before = t->fresh;

		if (compile_cache_is_sign(f[i].path) != (k >= n))
			continue;
		if (pull_file(p, t, real, root, f[i].path, item[i], err) < 0)
			return -1;
		fresh[i] = t->fresh > before;
	}
	for (size_t i = 0; i < n && t->place.kind == COMPILE_TORCH_EXTENSIONS; i++) {
		if (fresh[i] && compile_cache_is_built(f[i].path) &&
		    set_times(root, f, n, fresh, f[i].path, err) < 0)
			return -1;
	}
	return 0;
}

static int pull_place(struct pull *p, struct tally *t, struct err *err)
{
	const struct hubrepo_item **item;
	struct compile_file *f;
	size_t n = whole_files(p, t, &f, &item);
	AUTO_FREE char *real = NULL;
	AUTO_FD int root = -1;
	int rc = 0;

	if (n == 0)
		return 0;
	if (t->place.dir == NULL || is_elsewhere(t->place.dir)) {
		out_message(p->c, "%s of %s stay where they are: --kind %s=DIR says where they go",
		            out_count(p->c, n, "file"), compile_cache_kinds[t->place.kind].name,
		            compile_cache_kinds[t->place.kind].name);
		return 0;
	}
	if (fs_mkdirs(AT_FDCWD, t->place.dir, 0755, err) < 0 ||
	    (root = fs_open_dir(t->place.dir, err)) < 0)
		return -1;
	real = realpath(t->place.dir, NULL);
	if (real == NULL || !is_ours(&t->place, root))
		return err_set(err, ERR_DENIED,
		               "%s belongs to somebody else: --kind %s=DIR takes another folder",
		               t->place.dir, compile_cache_kinds[t->place.kind].name);
	rc = pull_files(p, t, real, root, f, item, n, err);
	(void)unlinkat(root, p->temp, 0);
	if (rc == 0 && syncfs(root) < 0)
		return err_errno(err, errno, "writing %s", t->place.dir);
	return rc;
}

int cmd_compile_cache_pull(struct cli *c, struct err *err)
{
	struct pull p = {.magic = PULL_MAGIC, .c = c};
	struct tally t[COMPILE_KIND_COUNT];
	struct hubrepo_commit_info *commit;
	const char *device;
	char size[UNITS_CAP];
	enum out_form form;
	uint64_t bytes;
	size_t n, n_commits, files;
	int rc = 0;

	catch_interrupt();
	if (out_form(c, &form, err) < 0 || tallies(c, "to", t, &n, &device, err) < 0 ||
	    caches_repo(c, c->n_arg > 0 ? c->arg[0] : NULL, &p.id, err) < 0)
		return -1;
	if (hubrepo_commits(c, p.id, &commit, &n_commits, err) < 0)
		return caches_missing(c, p.id, err);
	p.temp = arena_printf(c->arena, ".stoker-pull-%d.part", (int)getpid());
	p.commit = n_commits > 0 ? commit[0].id : "main"; /* all of one moment */
	if (hubrepo_tree(c, p.id, p.commit, true, &p.tree, err) < 0)
		return -1;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = pull_place(&p, &t[i], err);
	out_progress_end(c);
	if (rc < 0 ||
	    show(c, t, n,
	         device[0] != '\0'
	                 ? arena_printf(c->arena,
	                                "%s has nothing for %s; `stoker compile-cache ls %s` "
	                                "shows what it has",
	                                p.id, device, p.id)
	                 : arena_printf(c->arena, "%s has nothing of that", p.id),
	         err) < 0)
		return -1;
	files = sum(t, n, &bytes);
	out_message(c, "pulled %s, %s, verified", out_count(c, files, "file"),
	            units_show_bytes(bytes, size));
	return 0;
}
