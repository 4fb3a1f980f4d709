/* cmd_check.c - checkpoints check: are files on this machine a whole checkpoint? No server is
 * asked.
 */
#include "cli/cli.h"

#include "base/fs.h"
#include "base/map.h"
#include "base/units.h"
#include "core/ckpt.h"
#include "format/set.h"

#include <dirent.h>

#define DEPTH_MAX 32
#define SHOWN_MAX ((size_t)256 << 20) /* of JSON about all files */

struct found {
	const char *path;  /* below the folder */
	const char *group; /* the checkpoint it belongs to, "" = the folder itself */
	uint64_t size;
	struct format_result check;
};

struct walk {
	unsigned magic;
#define WALK_MAGIC 0x4c57414cU
	struct cli *c;
	struct found *file;
	size_t n, cap;
	bool all; /* several checkpoints */
};

static int pread_fd(void *arg, uint64_t at, void *p, size_t n, struct err *err)
{
	const int *fd = arg;

	return fs_pread_all(*fd, p, n, at, err);
}

static const char *group_of(struct walk *w, const char *path)
{
	char name[CKPT_NAME_MAX];

	if (!w->all)
		return "";
	ckpt_name_of(str_of(path), name);
	return arena_cstr(w->c->arena, strcmp(name, ".") == 0 ? "" : name);
}

/* 0: none is known of. */
static uint64_t first_hole(int fd)
{
	off_t at = lseek(fd, 0, SEEK_HOLE);

	return at < 0 ? 0 : (uint64_t)at;
}

static int check_file(struct walk *w, int dirfd, const char *name, const char *path,
                      struct err *err)
{
	struct found *f = NULL;
	AUTO_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct format_source src = {.name = path, .read = pread_fd, .arg = &fd};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (w->n == CKPT_FILES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d files", CKPT_FILES_MAX);
	if (w->n == w->cap) {
		w->cap = MAX(w->cap * 2, 64);
		w->file = xrealloc(w->file, w->cap * sizeof(*w->file));
	}
	f = &w->file[w->n];
	*f = (struct found){.path = path, .group = group_of(w, path)};
	f->size = src.size = (uint64_t)st.st_size;
	src.hole_at = first_hole(fd);
	if (format_check(&src, &f->check, err) < 0)
		return err_wrap(err, "%s", path);
	w->n++;
	return 0;
}

static int walk_dir(struct walk *w, int dirfd, const char *path, int depth, struct err *err);

static int walk_one(struct walk *w, int dirfd, const char *name, const char *path, int depth,
                    struct err *err)
{
	struct stat st;
	int fd;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(err, errno, "%s", path);
	if (!S_ISDIR(st.st_mode)) /* a link to a file is as good as the file */
		return S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)
		               ? check_file(w, dirfd, name, path, err)
		               : 0;
	if (depth == DEPTH_MAX)
		return err_set(err, ERR_TOO_BIG, "%s: folders nested deeper than %d", path,
		               DEPTH_MAX);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, errno, "%s", path);
	return walk_dir(w, fd, path, depth + 1, err);
}

static int walk_dir(struct walk *w, int dirfd, const char *path, int depth, struct err *err)
{
	DIR *d = fdopendir(dirfd);
	int r = 0;

	if (d == NULL) {
		(void)close(dirfd);
		return err_errno(err, errno, "%s", path);
	}
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (interrupted)
			r = err_set(err, ERR_CANCELED, "interrupted");
		else
			r = walk_one(w, dirfd, e->d_name,
			             path[0] == '\0'
			                     ? arena_cstr(w->c->arena, e->d_name)
			                     : arena_printf(w->c->arena, "%s/%s", path, e->d_name),
			             depth, err);
	}
	(void)closedir(d);
	return r;
}

/* The folder's files, or the one file. */
static int gather(struct walk *w, const char *what, struct err *err)
{
	struct stat st;
	int fd;

	if (stat(what, &st) < 0)
		return err_errno(err, errno, "%s", what);
	if (!S_ISDIR(st.st_mode))
		return check_file(w, AT_FDCWD, what,
		                  strrchr(what, '/') == NULL ? what : strrchr(what, '/') + 1, err);
	fd = fs_open_dir(what, err);
	return fd < 0 ? -1 : walk_dir(w, fd, "", 0, err);
}

static void walk_done(struct walk *w)
{
	for (size_t i = 0; i < w->n; i++)
		format_result_done(&w->file[i].check);
	free(w->file);
}

static int by_group(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	int c = strverscmp(x->group, y->group);

	return c != 0 ? c : strverscmp(x->path, y->path);
}

/* ---- one checkpoint ---- */

struct checkpoint {
	const char *name;
	struct found *file;
	size_t n;
	struct set_result set;
};

/* Its own name, of "out/checkpoint-500/", and what stands beside it. */
static char *base_of(struct cli *c, const char *path)
{
	AUTO_FREE char *real = realpath(path, NULL);
	const char *p = real == NULL ? path : real, *slash = strrchr(p, '/');

	return arena_cstr(c->arena, slash == NULL ? p : slash + 1);
}

static int add_beside(void *arg, int dirfd, const char *name, struct err *err)
{
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);
	struct stat st;

	if (fstatat(dirfd, name, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
	    (format_name(str_of(name)) != FORMAT_NAME_POINTER &&
	     !str_ends(str_of(name), "-unfinished")))
		return 0;
	return check_file(w, dirfd, name, arena_cstr(w->c->arena, name), err);
}

/* Signs and pointers in the folder above; one that cannot be read has none. */
static void look_beside(struct walk *w, const char *what)
{
	char *up = arena_printf(w->c->arena, "%s/..", what);
	struct err err = {0};
	int fd = fs_open_dir(up, &err);

	if (fd >= 0 && fs_each_name(fd, up, add_beside, w, &err) < 0)
		return; /* nothing beside, then */
}

static struct set_file *set_files(struct arena *a, const struct found *f, size_t n, size_t skip)
{
	struct set_file *out = ARENA_ARRAY(a, struct set_file, n + 1);

	for (size_t i = 0; i < n; i++)
		out[i] = (struct set_file){
			.path = f[i].path + skip, .size = f[i].size, .check = &f[i].check};
	return out;
}

/* The names of --like. */
static int like(struct cli *c, struct set_query *q, struct err *err)
{
	struct walk w = {.magic = WALK_MAGIC, .c = c};
	const char *dir = opt_text(c, "like", NULL);
	const char **names = NULL;
	int r = 0;

	if (dir == NULL)
		return 0;
	r = gather(&w, dir, err);
	names = ARENA_ARRAY(c->arena, const char *, w.n + 1);
	for (size_t i = 0; i < w.n; i++)
		names[i] = w.file[i].path;
	q->sibling = base_of(c, dir);
	q->sibling_file = names;
	q->n_sibling = w.n;
	walk_done(&w);
	return r;
}

static void write_files(struct js *js, const struct checkpoint *k, size_t skip)
{
	js_key(js, "files");
	js_list(js);
	for (size_t i = 0; i < k->n; i++) {
		const struct found *f = &k->file[i];

		js_open(js);
		js_kv(js, "path", f->path + skip);
		js_kv_u64(js, "size_bytes", f->size);
		js_kv(js, "format", f->check.format[0] == '\0' ? NULL : f->check.format);
		js_kv(js, "verdict", format_verdict_word(f->check.verdict));
		js_kv(js, "reason", f->check.reason[0] == '\0' ? NULL : f->check.reason);
		js_kv_u64(js, "bytes_read", f->check.bytes_read);
		js_close(js);
	}
	js_end(js);
}

static bool is_whole(const struct checkpoint *k)
{
	return k->set.state >= SET_PLAUSIBLE && !k->set.fewer_names;
}

static void write_one(struct js *js, const struct checkpoint *k, size_t skip)
{
	const struct set_result *s = &k->set;

	js_open(js);
	js_kv(js, "checkpoint", k->name);
	js_kv_bool(js, "whole", is_whole(k));
	js_kv(js, "state", set_state_word(s->state));
	js_kv(js, "layout", s->layout->id);
	js_kv(js, "reason", s->words);
	js_kv(js, "proof", s->proof[0] == '\0' ? NULL : s->proof);
	js_kv(js, "last_file", s->last);
	js_kv(js, "hole", s->hole);
	js_key(js, "problems");
	js_list(js);
	for (size_t i = 0; i < MIN(s->n_problems, (size_t)SET_SHOWN_MAX); i++) {
		js_open(js);
		js_kv(js, "path", s->problem[i].path);
		js_kv(js, "fault", set_fault_word(s->problem[i].fault));
		js_kv(js, "reason", s->problem[i].why);
		js_close(js);
	}
	js_end(js);
	js_kv_u64(js, "problem_count", s->n_problems);
	js_key(js, "leftovers");
	js_list(js);
	for (size_t i = 0; i < MIN(s->n_leftovers, (size_t)SET_SHOWN_MAX); i++)
		js_cstr(js, s->leftover[i]);
	js_end(js);
	write_files(js, k, skip);
	js_close(js);
}

static const struct out_col file_cols[] = {
	{"FILE", false, cell_name, "path"},     {"SIZE", true, cell_bytes, "size_bytes"},
	{"FORMAT", false, cell_text, "format"}, {"VERDICT", false, cell_text, "verdict"},
	{"REASON", false, cell_text, "reason"},
};

static int print_one(struct cli *c, const struct doc *d, const struct checkpoint *k,
                     struct err *err)
{
	(void)printf("checkpoint %s (%s)\n",
	             k->name[0] == '\0' ? "." : out_name(c->arena, str_of(k->name)),
	             k->set.layout->title);
	if (out_list(c, doc_get(d, "files"), file_cols, COUNT(file_cols), "no files", err) < 0)
		return -1;
	for (size_t i = 0; i < MIN(k->set.n_leftovers, (size_t)SET_SHOWN_MAX); i++)
		(void)printf("left over: %s\n", out_name(c->arena, str_of(k->set.leftover[i])));
	if (k->set.hole != NULL)
		(void)printf("%s has a hole: its bytes may never have been written\n",
		             out_name(c->arena, str_of(k->set.hole)));
	(void)printf("%s: %s\n", is_whole(k) ? "whole" : "not whole",
	             out_plain(c->arena, str_of(k->set.words)));
	return 0;
}

static int judge(struct cli *c, struct checkpoint *k, const struct walk *beside, struct err *err)
{
	size_t skip = k->file[0].group[0] == '\0' ? 0 : strlen(k->file[0].group) + 1;
	struct set_query q = {.name = k->name,
	                      .file = set_files(c->arena, k->file, k->n, skip),
	                      .n = k->n,
	                      .beside = set_files(c->arena, beside->file, beside->n, 0),
	                      .n_beside = beside->n,
	                      .world = (uint32_t)opt_int(c, "world-size", 0)};

	if (like(c, &q, err) < 0)
		return -1;
	set_check(c->arena, &q, &k->set);
	return 0;
}

/* Every checkpoint that was found, one after the other. */
static int report(struct cli *c, struct walk *w, const char *what, const struct walk *beside,
                  bool *whole, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SHOWN_MAX);
	const struct doc *d = NULL;
	enum out_form form;
	struct js js;

	if (out_form_one(c, &form, err) < 0)
		return -1;
	js_init(&js, &text);
	if (w->all)
		js_list(&js);
	for (size_t at = 0, n; at < w->n; at += n) {
		struct checkpoint k = {.file = w->file + at};

		for (n = 1; at + n < w->n && strcmp(k.file[0].group, k.file[n].group) == 0; n++)
			;
		k.n = n;
		k.name = k.file[0].group[0] != '\0' ? k.file[0].group : base_of(c, what);
		if (judge(c, &k, beside, err) < 0)
			return -1;
		*whole = *whole && is_whole(&k);
		if (form == OUT_TABLE) {
			buf_clear(&text);
			js_init(&js, &text);
		}
		write_one(&js, &k, k.file[0].group[0] == '\0' ? 0 : strlen(k.file[0].group) + 1);
		if (form == OUT_TABLE && (buf_check(&text, "list of files", err) < 0 ||
		                          js_parse(c->arena, buf_view(&text), &d, err) < 0 ||
		                          print_one(c, d, &k, err) < 0))
			return -1;
	}
	if (form == OUT_TABLE)
		return 0;
	if (w->all)
		js_end(&js);
	if (buf_check(&text, "list of files", err) < 0 ||
	    js_parse(c->arena, buf_view(&text), &d, err) < 0)
		return -1;
	out_one(form, d);
	return 0;
}

int cmd_checkpoints_check(struct cli *c, struct err *err)
{
	struct walk w = {.magic = WALK_MAGIC, .c = c, .all = opt_flag(c, "all")},
		    beside = {.magic = WALK_MAGIC, .c = c};
	const char *what = c->n_arg > 0 ? c->arg[0] : ".";
	bool whole = true;
	int r;

	catch_interrupt();
	if (opt_flag(c, "all") && opt_flag(c, "like"))
		return err_set(err, ERR_USAGE, "--like compares one checkpoint: remove --all");
	r = gather(&w, what, err);
	if (r == 0 && w.n == 0)
		r = err_set(err, ERR_NOT_FOUND, "%s: contains no files", what);
	if (r == 0) {
		qsort(w.file, w.n, sizeof(w.file[0]), by_group);
		if (!w.all)
			look_beside(&beside, what);
		r = report(c, &w, what, &beside, &whole, err);
	}
	walk_done(&w);
	walk_done(&beside);
	if (r < 0)
		return -1;
	return whole ? 0 : 1;
}
