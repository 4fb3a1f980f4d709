/* ids.c - the pool of ids, who has which range of it, and files that become a job's; see ids.h. */
#include "run/ids.h"

#include "base/fs.h"
#include "base/seal.h"
#include "run/userns.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/mount.h>

#define TEXT_MAX ((size_t)16 << 20)
#define CLAIM_MAX ((size_t)8 << 10)
#define SPANS_MIN 8 /* ranges that a pool must have room for; a smaller one gives single ids */

/* Where only some ids are ours to give (an unprivileged container): those that no convention of
 * Linux distributions uses. */
#define SMALL_FIRST 60578
#define SMALL_LAST 61183

/* Does this line own an id of first..last? `at`: the field of its first id; n_at: the field of
 * their number, or -1. */
static bool line_meets(struct str line, int at, int n_at, const struct ids_pool *p,
                       struct str *principal)
{
	struct str field;
	uint64_t first = 0, n = 1;
	struct err no = {0};

	for (int i = 0; str_cut(&line, ':', &field); i++) {
		if (i == 0)
			*principal = field;
		if (i == at && str_u64(field, 0, UINT32_MAX, &first, &no) < 0)
			return false;
		if (i == n_at && str_u64(field, 0, UINT64_MAX / 2, &n, &no) < 0)
			return false;
	}
	return n > 0 && first <= p->last && first + n - 1 >= p->first;
}

static int check_text(struct str text, const char *file, int at, int n_at, const struct ids_pool *p,
                      struct err *err)
{
	struct str line, principal = {0};

	while (str_cut(&text, '\n', &line)) {
		if (line_meets(line, at, n_at, p, &principal))
			return err_set(err, ERR_JOB_IDS_TAKEN,
			               "--job-ids: part of %" PRIu32 "-%" PRIu32
			               " belongs to %.*s (%s). Choose a range that nobody "
			               "uses",
			               p->first, p->last, (int)MIN(principal.n, 100U), principal.p,
			               file);
	}
	return 0;
}

/* Does this process's user namespace know all of them? */
static bool is_mapped(struct str uid_map, const struct ids_pool *p)
{
	struct str line, word;
	struct err no = {0};

	while (str_cut(&uid_map, '\n', &line)) {
		uint64_t v[3] = {0};

		for (size_t i = 0; i < COUNT(v); i++) {
			line = str_trim(line);
			if (!str_cut(&line, ' ', &word) ||
			    str_u64(word, 0, UINT32_MAX, &v[i], &no) < 0)
				break;
		}
		if (v[2] > 0 && v[0] <= p->first && p->last - v[0] < v[2])
			return true;
	}
	return false;
}

static bool is_default(const char *setting)
{
	return setting == NULL || setting[0] == '\0';
}

static int parse(const char *setting, const struct ids_texts *t, struct ids_pool *p,
                 struct err *err)
{
	struct str last = str_of(setting), first;
	uint64_t a = 0, b = 0;

	if (is_default(setting)) {
		*p = (struct ids_pool){.first = IDS_FIRST, .last = IDS_LAST};
		if (!is_mapped(t->uid_map, p))
			*p = (struct ids_pool){.first = SMALL_FIRST, .last = SMALL_LAST};
		return 0;
	}
	if (!str_cut(&last, '-', &first) || str_u64(first, 1, UINT32_MAX - 1, &a, err) < 0 ||
	    str_u64(last, 1, UINT32_MAX - 1, &b, err) < 0 || b < a || b - a < 3) {
		err_clear(err);
		return err_set(err, ERR_INVALID,
		               "--job-ids \"%.60s\": FIRST-LAST is expected, such as %u-%u",
		               setting, (unsigned)IDS_FIRST, (unsigned)IDS_LAST);
	}
	*p = (struct ids_pool){.first = (uint32_t)a, .last = (uint32_t)b};
	return 0;
}

int ids_pool_check(const char *setting, const struct ids_texts *t, struct ids_pool *out,
                   struct err *err)
{
	struct ids_pool p = {0};

	if (parse(setting, t, &p, err) < 0)
		return -1;
	*out = (struct ids_pool){0};
	p.span = (p.last - p.first) / IDS_SPAN >= SPANS_MIN ? IDS_SPAN : 1;
	if (!is_mapped(t->uid_map, &p))
		return is_default(setting)
		               ? 0
		               : err_set(err, ERR_JOB_IDS_TAKEN,
		                         "--job-ids: %" PRIu32 "-%" PRIu32
		                         " do not exist in this container: choose a range that "
		                         "/proc/self/uid_map lists",
		                         p.first, p.last);
	if (check_text(t->passwd, "/etc/passwd", 2, -1, &p, err) < 0 ||
	    check_text(t->group, "/etc/group", 2, -1, &p, err) < 0 ||
	    check_text(t->subuid, "/etc/subuid", 1, 2, &p, err) < 0 ||
	    check_text(t->subgid, "/etc/subgid", 1, 2, &p, err) < 0)
		return -1;
	*out = p;
	return 0;
}

int ids_pool_read(const char *setting, struct ids_pool *out, struct err *err)
{
	static const char *const files[] = {"/etc/passwd", "/etc/group", "/etc/subuid",
	                                    "/etc/subgid", "/proc/self/uid_map"};
	AUTO_ARENA struct arena *a = arena_new();
	struct str text[COUNT(files)] = {{0}};

	for (size_t i = 0; i < COUNT(files); i++) {
		AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
		struct err gone = {0};

		if (fs_read(AT_FDCWD, files[i], &body, &gone) == 0)
			text[i] = arena_str(a, buf_view(&body));
		else if (gone.code != ERR_NOT_FOUND)
			return err_set(err, gone.id, "%s", gone.msg);
	}
	return ids_pool_check(setting,
	                      &(struct ids_texts){text[0], text[1], text[2], text[3], text[4]}, out,
	                      err);
}

bool ids_can_map(const char *dir)
{
	struct userns_map map = {.uid = 1, .gid = 1, .host = 2, .n = 1};
	AUTO_FD int tree = open_tree(AT_FDCWD, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	AUTO_FD int ns = -1;
	struct err no = {0};

	if (tree < 0)
		return false;
	ns = userns_make(&map, &no);
	return ns >= 0 && userns_map_mount(tree, ns, false) == 0;
}

/* Has any process of this machine one of the ids? */
static bool are_used(uint32_t first, uint32_t span)
{
	DIR *d = opendir("/proc");
	bool used = d == NULL;

	for (struct dirent *e = d == NULL ? NULL : readdir(d); e != NULL && !used; e = readdir(d)) {
		AUTO_BUF struct buf body = BUF_INIT((size_t)64 << 10);
		char path[300];
		unsigned uid[4] = {0};
		const char *at = NULL;
		struct err gone = {0};

		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		FMT(path, "/proc/%s/status", e->d_name);
		if (fs_read(AT_FDCWD, path, &body, &gone) == 0)
			at = strstr(buf_cstr(&body), "\nUid:");
		if (at == NULL ||
		    sscanf(at, "\nUid: %u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) != 4)
			continue;
		for (size_t i = 0; i < COUNT(uid); i++)
			used = used || uid[i] - first < span;
	}
	if (d != NULL)
		(void)closedir(d);
	return used;
}

/* The attempt that holds it, "" = none. */
static void claimed_by(int claims, const char *name, char owner[FS_PATH_MAX])
{
	AUTO_BUF struct buf body = BUF_INIT(CLAIM_MAX);
	struct err gone = {0};
	struct str text;

	owner[0] = '\0';
	if (fs_read(claims, name, &body, &gone) < 0)
		return;
	text = str_trim(buf_view(&body));
	fmt_fixed(owner, FS_PATH_MAX, "%.*s", (int)MIN(text.n, (size_t)FS_PATH_MAX - 1), text.p);
}

static bool is_free(int claims, const char *name, uint32_t first, uint32_t span)
{
	char owner[FS_PATH_MAX];

	claimed_by(claims, name, owner);
	if (owner[0] == '\0')
		return faccessat(claims, name, F_OK, 0) < 0 || !are_used(first, span);
	return access(owner, F_OK) < 0 && errno == ENOENT && !are_used(first, span);
}

static int open_claims(struct err *err)
{
	int fd;

	if (fs_mkdirs(AT_FDCWD, IDS_CLAIMS, 0755, err) < 0)
		return -1;
	if (chmod(IDS_RUN, 0711) < 0) /* jobs pass it on their way to IDS_STAGE */
		return err_errno(err, errno, IDS_RUN);
	fd = fs_open_dir(IDS_CLAIMS, err);
	if (fd >= 0 && fchmod(fd, 0700) < 0) {
		(void)close(fd);
		return err_errno(err, errno, IDS_CLAIMS);
	}
	return fd;
}

/* Held while one is chosen. */
static int lock_claims(int claims, struct err *err)
{
	AUTO_FD int fd = openat(claims, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, IDS_CLAIMS "/lock");
	while (flock(fd, LOCK_EX) < 0) {
		if (errno != EINTR)
			return err_errno(err, errno, IDS_CLAIMS "/lock");
	}
	return TAKE_FD(fd);
}

/* Ranges that no job gets: the owner on disk, and beside it who owns nothing. */
static uint32_t reserved(const struct ids_pool *p)
{
	return p->span == 1 ? 2 : 1;
}

static int claim(int claims, uint32_t first, const char *owner, struct err *err)
{
	char name[16];

	FMT(name, "%" PRIu32, first);
	return fs_write_atomic(claims, name, str_of(owner), 0600, err);
}

/* From a place by chance on, so that one that was just given back rests for long. */
static int choose(const struct ids_pool *p, int claims, const char *owner, uint32_t *first,
                  struct err *err)
{
	uint32_t n = (uint32_t)(((uint64_t)p->last - p->first + 1) / p->span) - reserved(p);
	uint32_t from = 0;

	seal_random(&from, sizeof(from));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = reserved(p) + (from % n + i) % n;
		char name[16];

		*first = p->first + slot * p->span;
		FMT(name, "%" PRIu32, *first);
		if (is_free(claims, name, *first, p->span))
			return claim(claims, *first, owner, err);
	}
	return err_set(err, ERR_JOB_IDS_TAKEN,
	               "--job-ids: all %" PRIu32 " ranges are in use: choose a wider range", n);
}

/* The one that the team has, kept beside the claims' life: its files have that owner. */
static bool teams_own(const struct ids_pool *p, const char *team_file, uint32_t *first)
{
	AUTO_BUF struct buf body = BUF_INIT(CLAIM_MAX);
	struct err gone = {0};
	uint64_t n = 0;

	if (fs_read(AT_FDCWD, team_file, &body, &gone) < 0 ||
	    str_u64(str_trim(buf_view(&body)), p->first, p->last, &n, &gone) < 0)
		return false;
	*first = (uint32_t)n;
	return true;
}

static int take_first(const struct ids_pool *p, int claims, const char *dir, const char *team_file,
                      uint32_t *first, struct err *err)
{
	char text[16];

	if (team_file == NULL)
		return choose(p, claims, dir, first, err);
	if (teams_own(p, team_file, first)) /* after a boot the claim is gone, the files are not */
		return claim(claims, *first, team_file, err);
	if (choose(p, claims, team_file, first, err) < 0)
		return -1;
	FMT(text, "%" PRIu32, *first);
	return fs_write_atomic(AT_FDCWD, team_file, str_of(text), 0600, err);
}

int ids_take(struct ids *out, const struct ids_pool *p, bool idmap, const char *dir,
             const char *team_file, struct err *err)
{
	AUTO_FD int claims = open_claims(err), lock = -1;
	uint32_t first = 0;

	assert(idmap == (team_file == NULL));
	if (claims < 0)
		return -1;
	lock = lock_claims(claims, err);
	if (lock < 0 || take_first(p, claims, dir, team_file, &first, err) < 0)
		return -1;
	*out = (struct ids){.on = true,
	                    .idmap = idmap,
	                    .span = p->span,
	                    .job = first,
	                    .disk = idmap ? p->first : first,
	                    .nobody = p->first + 1};
	return 0;
}

static int release_one(void *arg, int claims, const char *name, struct err *err UNUSED)
{
	char owner[FS_PATH_MAX];

	claimed_by(claims, name, owner);
	if (strcmp(owner, arg) == 0)
		(void)unlinkat(claims, name, 0);
	return 0;
}

/* By the claims alone: what is in the folder, its runner may have written. */
void ids_release(const char *dir)
{
	AUTO_FREE char *owner = xstrdup(dir);
	struct err no = {0};
	AUTO_FD int claims = open_claims(&no);
	AUTO_FD int lock = claims < 0 ? -1 : lock_claims(claims, &no);
	int names;

	if (lock < 0)
		return; /* its folder goes, and with it the claim */
	names = openat(claims, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (names >= 0 && fs_each_name(names, IDS_CLAIMS, release_one, owner, &no) < 0)
		err_clear(&no);
}

/* Sets the ids that this thread's file access is checked against; leaving 0 drops the file
 * capabilities, returning to 0 restores them. */
static void set_fs(uint32_t id)
{
	(void)setfsgid(id);
	(void)setfsuid(id);
	assert((uint32_t)setfsuid((uid_t)-1) == id);
}

void ids_begin(const struct ids *ids)
{
	if (ids->on)
		set_fs(ids->disk);
}

void ids_end(const struct ids *ids)
{
	if (ids->on)
		set_fs(0);
}

int ids_own(const struct ids *ids, int fd, const char *what, struct err *err)
{
	if (ids->on && fchownat(fd, "", ids->disk, ids->disk, AT_EMPTY_PATH) < 0)
		return err_errno(err, errno, "%s: its owner", what);
	return 0;
}
