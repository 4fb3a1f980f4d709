/* built_list.c - sealing, listing and comparing a built tree; see built_list.h. */
#include "store/blobs/built_list.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/common/copy.h"

#include <dirent.h>
#include "base/sync.h"

#define THREADS_MAX 8
#define LOOK_BATCH 512 /* entries that a thread takes at once */
#define LINE_HEAD_MAX 200

struct entry {
	char kind; /* d, f, l */
	mode_t mode;
	uint64_t size;
	int64_t mtime_ns, ctime_ns;
	struct digest sha256;
	struct str path; /* "." for the top */
};

static int64_t ns_of(const struct timespec *t)
{
	return clock_ns_of(t->tv_sec, t->tv_nsec);
}

static char kind_of(mode_t mode)
{
	return S_ISDIR(mode) ? 'd' : S_ISREG(mode) ? 'f' : S_ISLNK(mode) ? 'l' : '?';
}

static void fill(struct entry *e, const struct stat *st)
{
	e->kind = kind_of(st->st_mode);
	e->mode = st->st_mode & 07777;
	e->size = e->kind == 'd' ? 0 : (uint64_t)st->st_size;
	e->mtime_ns = ns_of(&st->st_mtim);
	e->ctime_ns = ns_of(&st->st_ctim);
}

/* ---- making ------------------------------------------------------------------------------ */

struct making {
	unsigned magic;
#define MAKING_MAGIC 0x534d414bU
	struct arena *a;
	struct entry *entry;
	size_t n, cap;
	int root;
	const atomic_bool *cancel;
	atomic_size_t next; /* of the hashers */
	struct lock lock;
	struct err err; /* of a hasher, the first */
	atomic_bool failed;
};

static struct entry *add(struct making *m)
{
	if (m->n == m->cap) {
		m->cap = MAX(m->cap * 2, (size_t)1024);
		m->entry = xrealloc(m->entry, m->cap * sizeof(*m->entry));
	}
	m->entry[m->n] = (struct entry){0};
	return &m->entry[m->n++];
}

/* Read-only, without setuid and its kin, and owned by us, whoever made it. */
static int seal(int fd, const struct stat *st, const char *path, struct err *err)
{
	mode_t mode = S_ISDIR(st->st_mode) || (st->st_mode & 0111) != 0 ? 0555 : 0444;

	if ((st->st_uid != geteuid() || st->st_gid != getegid()) &&
	    fchown(fd, geteuid(), getegid()) < 0)
		return err_errno(err, errno, "%s", path);
	if ((st->st_mode & 07777) != mode && fchmod(fd, mode) < 0)
		return err_errno(err, errno, "%s", path);
	return 0;
}

static int take_link(struct making *m, int dirfd, const char *name, const char *path,
                     struct err *err)
{
	char target[FS_PATH_MAX];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target));
	struct entry *e;
	struct stat st;

	if (n < 0 || (size_t)n == sizeof(target))
		return err_errno(err, n < 0 ? errno : ENAMETOOLONG, "%s", path);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", path);
	if ((st.st_uid != geteuid() || st.st_gid != getegid()) &&
	    (fchownat(dirfd, name, geteuid(), getegid(), AT_SYMLINK_NOFOLLOW) < 0 ||
	     fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0))
		return err_errno(err, errno, "%s", path);
	e = add(m);
	fill(e, &st);
	e->path = str_of(path);
	e->sha256 = hash_sha256(target, (size_t)n);
	return e->kind == 'l' ? 0 : err_set(err, ERR_CONFLICT, "%s is being changed", path);
}

/* A build may leave entries that their owner cannot read: they become readable first. */
static int open_entry(int dirfd, const char *name, const struct stat *st, struct err *err)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC |
	            (S_ISDIR(st->st_mode) ? O_DIRECTORY : 0);
	int fd = openat(dirfd, name, flags);

	if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, 0) == 0)
		fd = openat(dirfd, name, flags);
	return fd < 0 ? err_errno(err, errno, "%s", name) : fd;
}

static int take_folder(struct making *m, int fd, const char *path, unsigned depth, struct err *err);

static int take_entry(struct making *m, int dirfd, const char *dir, const char *name,
                      unsigned depth, struct err *err)
{
	const char *path = strcmp(dir, ".") == 0 ? arena_cstr(m->a, name)
	                                         : arena_printf(m->a, "%s/%s", dir, name);
	AUTO_FD int fd = -1;
	struct entry *e;
	struct stat st;

	if (strlen(path) >= FS_PATH_MAX || strchr(path, '\n') != NULL)
		return err_set(err, ERR_INVALID, "a file's name is too long or has a line break");
	if (m->n >= BUILT_ENTRIES_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d files", BUILT_ENTRIES_MAX);
	if (m->cancel != NULL && atomic_load(m->cancel))
		return err_set(err, ERR_CANCELED, "canceled");
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(err, errno, "%s", path);
	if (S_ISLNK(st.st_mode))
		return take_link(m, dirfd, name, path, err);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "%s is neither a file, a folder nor a link", path);
	fd = open_entry(dirfd, name, &st, err);
	if (fd < 0)
		return -1;
	if (S_ISDIR(st.st_mode))
		return take_folder(m, TAKE_FD(fd), path, depth + 1, err);
	if (seal(fd, &st, path, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, ERR_CONFLICT, "%s is being changed", path);
	e = add(m);
	fill(e, &st);
	e->path = str_of(path);
	return 0;
}

/* `fd` becomes ours. Its own line stands behind those of its entries: sealing it is the last. */
static int take_folder(struct making *m, int fd, const char *path, unsigned depth, struct err *err)
{
	DIR *d = fdopendir(fd);
	struct entry *e;
	struct stat st;
	int rc = 0;

	if (d == NULL) {
		(void)close(fd);
		return err_errno(err, errno, "%s", path);
	}
	if (depth > BUILT_DEPTH_MAX)
		rc = err_set(err, ERR_TOO_BIG, "folders nested deeper than %d", BUILT_DEPTH_MAX);
	for (struct dirent *x = readdir(d); rc == 0 && x != NULL; x = readdir(d)) {
		if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0)
			rc = take_entry(m, dirfd(d), path, x->d_name, depth, err);
	}
	if (rc == 0 && fstat(dirfd(d), &st) < 0)
		rc = err_errno(err, errno, "%s", path);
	if (rc == 0)
		rc = seal(dirfd(d), &st, path, err);
	if (rc == 0 && fstat(dirfd(d), &st) < 0)
		rc = err_errno(err, errno, "%s", path);
	(void)closedir(d);
	if (rc < 0)
		return -1;
	e = add(m);
	fill(e, &st);
	e->path = str_of(path);
	return 0;
}

static int canceled(void *arg, size_t bytes UNUSED, struct err *err)
{
	struct making *m = FROM_VOID(struct making, arg, MAKING_MAGIC);

	if (atomic_load(&m->failed) || (m->cancel != NULL && atomic_load(m->cancel)))
		return err_set(err, ERR_CANCELED, "canceled");
	return 0;
}

static int hash_entry(struct making *m, struct entry *e, struct err *err)
{
	AUTO_FD int fd = fs_open_beneath(m->root, e->path.p, O_RDONLY | O_NOFOLLOW, 0, err);
	uint64_t bytes = 0;

	if (fd < 0 || hash_fd_steps(fd, canceled, m, &e->sha256, &bytes, err) < 0)
		return -1;
	return bytes == e->size ? 0 : err_set(err, ERR_CONFLICT, "%s is being changed", e->path.p);
}

static void *hasher(void *arg)
{
	struct making *m = FROM_VOID(struct making, arg, MAKING_MAGIC);
	struct err err = {0};

	for (size_t i; (i = atomic_fetch_add(&m->next, 1)) < m->n;) {
		if (m->entry[i].kind != 'f' || hash_entry(m, &m->entry[i], &err) == 0)
			continue;
		lock_take(&m->lock);
		if (!atomic_exchange(&m->failed, true))
			m->err = err;
		lock_give(&m->lock);
		break;
	}
	return NULL;
}

/* Runs `fn` in a few threads, this one among them. */
static void together(void *(*fn)(void *arg), void *arg)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread[THREADS_MAX];
	size_t n = 0, want = (size_t)MIN(MAX(cores, 1), THREADS_MAX) - 1;

	while (n < want && pthread_create(&thread[n], NULL, fn, arg) == 0)
		n++; /* fewer will do */
	(void)fn(arg);
	while (n > 0)
		(void)pthread_join(thread[--n], NULL);
}

static void write_list(const struct making *m, struct buf *out, struct built_sum *sum)
{
	char hex[HASH_HEX_CAP];
	struct digest d;

	*sum = (struct built_sum){0};
	for (size_t i = 0; i < m->n; i++) {
		sum->files += m->entry[i].kind != 'd';
		sum->bytes += m->entry[i].size;
	}
	buf_printf(out, "stoker-built 1 %" PRIu64 " %" PRIu64 "\n", sum->files, sum->bytes);
	for (size_t i = 0; i < m->n; i++) {
		const struct entry *e = &m->entry[i];

		digest_hex(&e->sha256, hex);
		buf_printf(out, "%c %o %" PRIu64 " %" PRId64 " %" PRId64 " %s %.*s\n", e->kind,
		           (unsigned)e->mode, e->size, e->mtime_ns, e->ctime_ns,
		           e->kind == 'd' ? "-" : hex, STR_ARG(e->path));
	}
	d = hash_sha256(out->p, out->n);
	digest_hex(&d, hex);
	buf_printf(out, "end %s\n", hex);
}

static int make(struct making *m, struct err *err)
{
	int top = openat(m->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		return err_errno(err, errno, "open the tree's folder");
	if (take_folder(m, top, ".", 0, err) < 0)
		return -1;
	together(hasher, m);
	if (!atomic_load(&m->failed))
		return 0;
	*err = m->err;
	return -1;
}

int built_list_make(int root, const atomic_bool *cancel, struct buf *out, struct built_sum *sum,
                    struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct making m = {.magic = MAKING_MAGIC,
	                   .a = a,
	                   .root = root,
	                   .cancel = cancel,
	                   .lock = LOCK_INIT(LOCK_BUILT_LIST)};
	int rc = make(&m, err);

	if (rc == 0) {
		write_list(&m, out, sum);
		rc = buf_check(out, "read the list of files", err);
	}
	free(m.entry);
	return rc;
}

/* ---- comparing --------------------------------------------------------------------------- */

static int torn(struct err *err)
{
	return err_set(err, ERR_CORRUPT, "the list of its files is damaged");
}

/* The lines between the first and the last. */
static int open_list(struct str list, struct str *lines, struct built_sum *sum, struct err *err)
{
	static const char head[] = "stoker-built 1 ";
	const size_t end_n = strlen("end ") + 64 + 1;
	struct digest said, is;
	struct str first, word;
	struct err bad = {0};

	if (list.n < end_n || !str_starts(str_skip(list, list.n - end_n), "end ") ||
	    digest_parse(str_n(list.p + list.n - 65, 64), &said, &bad) < 0)
		return torn(err);
	list.n -= end_n;
	is = hash_sha256(list.p, list.n);
	if (!digest_same(&is, &said) || !str_cut(&list, '\n', &first) || !str_starts(first, head))
		return torn(err);
	first = str_skip(first, sizeof(head) - 1);
	if (!str_cut(&first, ' ', &word) || str_u64(word, 0, INT64_MAX, &sum->files, &bad) < 0 ||
	    str_u64(first, 0, INT64_MAX, &sum->bytes, &bad) < 0)
		return torn(err);
	*lines = list;
	return 0;
}

int built_list_read(struct str list, struct built_sum *sum, struct err *err)
{
	struct built_sum got = {0};
	struct str lines;

	if (open_list(list, &lines, &got, err) < 0)
		return -1;
	*sum = got;
	return 0;
}

/* path: a copy with NUL in `room`. */
static bool parse(struct str line, struct entry *e, char room[FS_PATH_MAX])
{
	struct str word[6];
	uint64_t size = 0;
	char number[LINE_HEAD_MAX];
	struct err bad = {0};

	for (size_t i = 0; i < COUNT(word); i++) {
		if (!str_cut(&line, ' ', &word[i]))
			return false;
	}
	if (word[0].n != 1 || word[1].n >= sizeof(number) || line.n == 0 || line.n >= FS_PATH_MAX ||
	    str_u64(word[2], 0, INT64_MAX, &size, &bad) < 0 ||
	    str_i64(word[3], INT64_MIN, INT64_MAX, &e->mtime_ns, &bad) < 0 ||
	    str_i64(word[4], INT64_MIN, INT64_MAX, &e->ctime_ns, &bad) < 0 ||
	    (word[0].p[0] != 'd' && digest_parse(word[5], &e->sha256, &bad) < 0))
		return false;
	FMT(number, "%.*s", STR_ARG(word[1]));
	e->kind = word[0].p[0];
	e->mode = (mode_t)strtoul(number, NULL, 8);
	e->size = size;
	memcpy(room, line.p, line.n);
	room[line.n] = '\0';
	e->path = str_n(room, line.n);
	return true;
}

static int compare(int root, const struct entry *e, struct err *err)
{
	struct entry is = {0};
	struct stat st;

	if (fstatat(root, e->path.p, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return err_set(err, ERR_CORRUPT, "%s is missing", e->path.p);
		return err_errno(err, errno, "%s", e->path.p);
	}
	fill(&is, &st);
	if (is.kind == e->kind && is.mode == e->mode && is.size == e->size &&
	    is.mtime_ns == e->mtime_ns && is.ctime_ns == e->ctime_ns)
		return 0;
	return err_set(err, ERR_CORRUPT, "%s was changed after it was built", e->path.p);
}

struct looking {
	unsigned magic;
#define LOOKING_MAGIC 0x534c4f4bU
	int root;
	struct lock lock; /* of all below */
	struct str lines; /* not yet taken */
	bool failed;
	struct err err;
};

static void look_failed(struct looking *l, const struct err *err)
{
	lock_take(&l->lock);
	if (!l->failed)
		l->err = *err;
	l->failed = true;
	lock_give(&l->lock);
}

/* The next few lines; none: all are taken, or something was wrong. */
static struct str next_lines(struct looking *l)
{
	struct str got = {0}, line;

	lock_take(&l->lock);
	got.p = l->lines.p;
	for (int i = 0; i < LOOK_BATCH && !l->failed && str_cut(&l->lines, '\n', &line); i++)
		got.n = (size_t)(line.p + line.n - got.p) + 1;
	lock_give(&l->lock);
	return got;
}

static void *looker(void *arg)
{
	struct looking *l = FROM_VOID(struct looking, arg, LOOKING_MAGIC);
	char room[FS_PATH_MAX];
	struct str some, line;
	struct err err = {0};

	while ((some = next_lines(l)).n > 0) {
		while (str_cut(&some, '\n', &line) && line.n > 0) {
			struct entry e = {0};

			if (!parse(line, &e, room))
				(void)torn(&err);
			else if (compare(l->root, &e, &err) == 0)
				continue;
			look_failed(l, &err);
			return NULL;
		}
	}
	return NULL;
}

int built_list_look(int root, struct str list, struct err *err)
{
	struct looking l = {.magic = LOOKING_MAGIC, .root = root, .lock = LOCK_INIT(LOCK_BUILT)};
	struct built_sum sum = {0};

	if (open_list(list, &l.lines, &sum, err) < 0)
		return -1;
	together(looker, &l);
	if (!l.failed)
		return 0;
	*err = l.err;
	return -1;
}

int built_list_verify(int root, struct str list,
                      int (*step)(void *arg, size_t bytes, struct err *err), void *arg,
                      struct err *err)
{
	char room[FS_PATH_MAX];
	struct built_sum sum = {0};
	struct str lines, line;

	if (open_list(list, &lines, &sum, err) < 0)
		return -1;
	while (str_cut(&lines, '\n', &line) && line.n > 0) {
		struct entry e = {0};
		struct digest got;
		AUTO_FD int fd = -1;

		if (!parse(line, &e, room))
			return torn(err);
		if (compare(root, &e, err) < 0)
			return -1;
		if (e.kind != 'f')
			continue;
		fd = fs_open_beneath(root, e.path.p, O_RDONLY | O_NOFOLLOW, 0, err);
		if (fd < 0)
			return -1;
		copy_drop(fd); /* what the disk holds is asked, not what memory remembers */
		if (hash_fd_steps(fd, step, arg, &got, NULL, err) < 0)
			return err_wrap(err, "%s", e.path.p);
		copy_drop(fd);
		if (!digest_same(&got, &e.sha256))
			return err_set(err, ERR_CORRUPT, "%s differs from what was built",
			               e.path.p);
	}
	return 0;
}
