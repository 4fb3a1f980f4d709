/* pack.c - the folder of a job file as archives; see pack.h. */
#include "cli/pack.h"

#include "base/fs.h"
#include "base/units.h"
#include "cli/ignores.h"

#include <dirent.h>

#define LEFT_MAX 10000                      /* that are measured and named */
#define LEFT_SHOWN 5                        /* in a line */
#define MEASURED_MAX 50000                  /* entries of what is left out that are looked at */
#define MEASURED_DEPTH 100                  /* folders */
#define APART_FILE ((uint64_t)1 << 20)      /* from here on a file is large, */
#define APART_ALL ((uint64_t)8 << 20)       /* and so many bytes of them are worth the trouble */
#define PARTS (PACK_ARCHIVES_MAX - 2)       /* archives of large files */
#define LARGE_ALL ((uint64_t)100 * 1000000) /* from here on a push had better not send it, */
#define LARGE_FILE ((uint64_t)10 * 1000000) /* and these files are why */
#define SMALL_FILES (-1)
#define ALL_FILES (-2)

/* Files that mark a folder as the data folder of a server. */
static const char *const server_files[] = {"master.key", "stoker.db"};

struct packing {
	unsigned magic;
#define PACKING_MAGIC 0x4c504143U
	struct cli *c;
	struct ignores *ignores;
	struct pack *out;
	int root;
	bool looking; /* what is left out is noted once */
	size_t measured;
	size_t cap_left;
	uint64_t apart; /* bytes of large files, */
	uint32_t parts; /* and the parts that they are in: a bit each */
	int part;       /* of large files, SMALL_FILES, ALL_FILES */
};

/* A server's data folder holds the master key: it is never sent anywhere. */
static bool is_data_folder(int root, const char *path)
{
	char name[PATH_MAX];

	for (size_t i = 0; i < COUNT(server_files); i++) {
		if (snprintf(name, sizeof(name), "%s/%s", path, server_files[i]) >=
		            (int)sizeof(name) ||
		    faccessat(root, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return false;
	}
	return true;
}

/* Which part a file belongs to. By its path alone: others that come and go do not move it. */
static int part_of(const char *path, uint64_t bytes)
{
	uint32_t crc;

	if (bytes < APART_FILE)
		return SMALL_FILES;
	crc = hash_crc32(0, path, strlen(path));
	return (int)(crc % PARTS);
}

static void dir_close_p(DIR **d)
{
	if (*d != NULL)
		(void)closedir(*d);
}

/* Bytes of files below `name`; false: that was not all, it takes too long to count. */
static bool measure(struct packing *p, int dirfd, const char *name, unsigned depth, uint64_t *bytes)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d CLEANUP(dir_close_p) = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *e;
	bool all = true;

	if (d == NULL) {
		close_fd_p(&fd);
		return false;
	}
	while (all && (e = readdir(d)) != NULL) {
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (p->measured++ >= MEASURED_MAX || depth >= MEASURED_DEPTH)
			return false;
		if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode))
			*bytes += (uint64_t)st.st_size;
		else if (S_ISDIR(st.st_mode))
			all = measure(p, fd, e->d_name, depth + 1, bytes);
	}
	return all;
}

static void note_left(struct packing *p, const char *path, bool is_dir, const char *by)
{
	struct pack *out = p->out;
	struct pack_left *l;
	struct stat st;

	if (out->n_left == LEFT_MAX)
		return;
	if (out->n_left == p->cap_left) {
		p->cap_left = MAX(p->cap_left * 2, (size_t)16);
		l = ARENA_ARRAY(p->c->arena, struct pack_left, p->cap_left);
		if (out->n_left > 0)
			memcpy(l, out->left, out->n_left * sizeof(*l));
		out->left = l;
	}
	l = &out->left[out->n_left++];
	*l = (struct pack_left){.path = arena_cstr(p->c->arena, path), .by = by, .is_dir = is_dir};
	if (is_dir)
		l->more = !measure(p, p->root, path, 0, &l->bytes);
	else if (fstatat(p->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
		l->bytes = (uint64_t)st.st_size;
}

static bool skip(const char *path, bool is_dir, void *arg)
{
	struct packing *p = FROM_VOID(struct packing, arg, PACKING_MAGIC);
	const char *by = ignores_by(p->ignores, path, is_dir);
	struct stat st;
	int part;

	if (by == NULL && is_dir && is_data_folder(p->root, path))
		by = "data folder of a server";
	if (by != NULL && p->looking)
		note_left(p, path, is_dir, by);
	if (by != NULL || is_dir || (!p->looking && p->part == ALL_FILES))
		return by != NULL;
	if (fstatat(p->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	part = part_of(path, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
	if (p->looking) {
		const char *slash = strrchr(path, '/');

		if (strcmp(slash != NULL ? slash + 1 : path, ".env") == 0 && p->out->dotenv == NULL)
			p->out->dotenv = arena_strz(p->c->arena, str_of(path));
		if (part != SMALL_FILES) {
			p->apart += (uint64_t)st.st_size;
			p->parts |= 1U << part;
		}
		return false;
	}
	return part != p->part;
}

static void note_link(const char *path, const char *target, void *arg)
{
	struct packing *p = FROM_VOID(struct packing, arg, PACKING_MAGIC);
	size_t n = 0;

	while (n < PACK_LINKS_SHOWN && p->out->link[n] != NULL)
		n++;
	if (n == PACK_LINKS_SHOWN)
		return;
	p->out->link[n] = arena_cstr(p->c->arena, path);
	p->out->target[n] = arena_cstr(p->c->arena, target);
}

static void note_special(const char *path, void *arg)
{
	struct packing *p = FROM_VOID(struct packing, arg, PACKING_MAGIC);
	size_t n = 0;

	while (n < PACK_SPECIALS_SHOWN && p->out->special[n] != NULL)
		n++;
	if (n < PACK_SPECIALS_SHOWN)
		p->out->special[n] = arena_cstr(p->c->arena, path);
}

static int by_bytes(const void *a, const void *b)
{
	const struct pack_left *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return strcmp(x->path, y->path);
}

/* One archive of those files that `part` names; none when there are none. */
static int pack_part(struct packing *p, int part, struct err *err)
{
	struct tar_pick pick = {.skip = skip, .arg = p, .looked = true};
	struct pack_archive *at = &p->out->archive[p->out->n_archives];
	const char *asked = getenv("TMPDIR"),
		   *tmp = asked != NULL && asked[0] != '\0' ? asked : "/tmp";
	struct tar_report report = {0};
	struct digest sha256;
	AUTO_FD int fd = open(tmp, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "temporary file in %s", tmp);
	p->part = part;
	if (tar_pack(p->root, &pick, fd, 0, &report, err) < 0) {
		if (err->code != ERR_NO_SPACE)
			return -1;
		return err_wrap(err, "temporary file in %s (TMPDIR names another folder)", tmp);
	}
	if (lseek(fd, 0, SEEK_SET) < 0 || hash_fd(fd, &sha256, &at->bytes, err) < 0)
		return -1;
	digest_hex(&sha256, at->sha256);
	at->fd = TAKE_FD(fd);
	p->out->packed += at->bytes;
	p->out->n_archives++;
	return 0;
}

static int pack_all(struct packing *p, struct err *err)
{
	struct tar_pick pick = {.skip = skip, .link = note_link, .special = note_special, .arg = p};

	p->looking = true;
	if (tar_look(p->root, &pick, 0, &p->out->report, p->out->largest, err) < 0)
		return -1;
	p->looking = false;
	if (p->out->n_left > 0)
		qsort(p->out->left, p->out->n_left, sizeof(*p->out->left), by_bytes);
	if (p->apart < APART_ALL)
		return pack_part(p, ALL_FILES, err);
	if (pack_part(p, SMALL_FILES, err) < 0)
		return -1;
	for (int part = 0; part < PARTS; part++) {
		if ((p->parts >> part & 1) != 0 && pack_part(p, part, err) < 0)
			return -1;
	}
	return 0;
}

int pack_folder(struct cli *c, const char *root, const struct git *git, bool use_gitignore,
                struct pack *out, struct err *err)
{
	AUTO_FD int dir = fs_open_dir(root, err);
	AUTO_IGNORES struct ignores *ignores = NULL;
	struct packing p = {.magic = PACKING_MAGIC, .c = c, .out = out, .root = dir};

	*out = (struct pack){.largest = ARENA_ARRAY(c->arena, struct tar_large, TAR_LARGEST)};
	if (dir < 0)
		return -1;
	if (is_data_folder(dir, "."))
		return err_set(err, ERR_INVALID,
		               "%s is the data folder of a Stoker server; put the job's code in "
		               "another folder",
		               root);
	if (ignores_open(c->arena, dir, use_gitignore ? git : NULL, &ignores, err) < 0)
		return -1;
	p.ignores = ignores;
	if (pack_all(&p, err) < 0) {
		pack_done(out);
		return err_wrap(err, "packing %s", root);
	}
	return 0;
}

void pack_done(struct pack *p)
{
	for (size_t i = 0; i < p->n_archives; i++)
		close_fd_p(&p->archive[i].fd);
	p->n_archives = 0;
}

static void say_left(struct cli *c, const struct pack *p)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)64 << 10);
	char size[UNITS_CAP];

	for (size_t i = 0; i < MIN(p->n_left, (size_t)LEFT_SHOWN); i++) {
		const struct pack_left *l = &p->left[i];

		buf_printf(&b, "%s%s%s (%s%s, %s)", i > 0 ? ", " : "",
		           out_name(c->arena, str_of(l->path)), l->is_dir ? "/" : "",
		           l->more ? "over " : "", units_show_bytes(l->bytes, size), l->by);
	}
	if (p->n_left > LEFT_SHOWN)
		buf_printf(&b, " and %s more", out_number(c, p->n_left - LEFT_SHOWN));
	if (p->n_left > 0)
		out_message(c, "left out: %s", buf_cstr(&b));
}

static void say_links(struct cli *c, const struct pack *p)
{
	for (size_t i = 0; i < PACK_LINKS_SHOWN && p->link[i] != NULL; i++)
		out_message(c, "warning: skipped %s -> %s: the link points outside the folder",
		            out_name(c->arena, str_of(p->link[i])),
		            out_name(c->arena, str_of(p->target[i])));
	if (p->report.links > PACK_LINKS_SHOWN)
		out_message(c, "warning: skipped %s more",
		            out_count(c, p->report.links - PACK_LINKS_SHOWN, "link"));
}

static void say_specials(struct cli *c, const struct pack *p)
{
	for (size_t i = 0; i < PACK_SPECIALS_SHOWN && p->special[i] != NULL; i++)
		out_message(c, "warning: skipped %s: it is a pipe, a socket or a device",
		            out_name(c->arena, str_of(p->special[i])));
	if (p->report.specials > PACK_SPECIALS_SHOWN)
		out_message(c, "warning: skipped %s more pipes, sockets and devices",
		            out_number(c, p->report.specials - PACK_SPECIALS_SHOWN));
}

static void say_dotenv(struct cli *c, const struct pack *p)
{
	if (p->dotenv != NULL)
		out_message(c,
		            "warning: %s is sent too. If it holds secrets, exclude it in "
		            ".stokerignore and use `stoker secrets set`",
		            out_name(c->arena, str_of(p->dotenv)));
}

static void say_large(struct cli *c, const struct pack *p)
{
	AUTO_BUF struct buf b = BUF_INIT((size_t)64 << 10);
	char size[UNITS_CAP];

	if (p->report.bytes < LARGE_ALL)
		return;
	for (size_t i = 0; i < TAR_LARGEST && p->largest[i].bytes >= LARGE_FILE; i++)
		buf_printf(&b, "%s%s (%s)", i > 0 ? ", " : "",
		           out_name(c->arena, str_of(p->largest[i].path)),
		           units_show_bytes(p->largest[i].bytes, size));
	out_message(
		c,
		"hint: this is a lot of code%s%s. List data under `weights:` to fetch it once and "
		"cache it, or exclude it in .stokerignore",
		b.n > 0 ? "; the largest files: " : "", buf_cstr(&b));
}

void pack_say(struct cli *c, const struct pack *p)
{
	char size[UNITS_CAP];

	out_message(c, "code: %s, %s", out_count(c, p->report.files, "file"),
	            units_show_bytes(p->report.bytes, size));
	say_left(c, p);
	say_links(c, p);
	say_specials(c, p);
	say_dotenv(c, p);
	say_large(c, p);
}
