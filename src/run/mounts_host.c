/* mounts_host.c - what of the host a job must not see, and what the administrator shows it; see
 * mounts.h. */
#include "run/mounts.h"

#include "run/confine.h"

#include "base/fs.h"
#include "base/log.h"
#include "run/mountinfo.h"

#define PERSON_UID_MIN 1000
#define PERSON_UID_MAX 60000
#define TEXT_MAX ((size_t)16 << 20)

/* Secrets of the host that root could read. */
static const char *const secret_files[] = {
	"/etc/shadow",
	"/etc/shadow-",
	"/etc/gshadow",
	"/etc/gshadow-",
	"/etc/ssh/ssh_host_rsa_key",
	"/etc/ssh/ssh_host_ecdsa_key",
	"/etc/ssh/ssh_host_ed25519_key",
	"/etc/krb5.keytab",
};

/* Folders that a passwd entry may name as home although they are the system's. */
static const char *const not_homes[] = {"/",        "/bin", "/dev", "/etc", "/usr", "/var",
                                        "/var/lib", "/srv", "/opt", "/tmp", "/run", "/nonexistent"};

/* Where people's own folders are, and where everybody's are: fresh and empty in each sandbox. */
static const char *const people[] = {"/home", "/root"};
static const char *const temporary[] = {"/tmp", "/var/tmp"};

struct hiding {
	struct mounts *m;
	const struct mounts_machine *on;
};

static int hide_one(struct hiding *h, const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return 0; /* nothing to hide */
	for (size_t i = 0; i < h->m->n; i++) {
		if (h->m->item[i].from == NULL && strcmp(h->m->item[i].at, path) == 0)
			return 0;
	}
	return mounts_add(h->m, S_ISDIR(st.st_mode) ? MOUNT_EMPTY : MOUNT_NULL, NULL, path, err);
}

/* Where its file system is mounted a second time. */
static int hide_elsewhere(struct hiding *h, const char *real, struct err *err)
{
	const char *name[MOUNTINFO_NAMES_MAX];
	size_t n = mountinfo_names(h->m->a, h->on->mountinfo, real, name);

	for (size_t i = 0; i < n; i++) {
		if (hide_one(h, name[i], err) < 0)
			return -1;
	}
	return 0;
}

static int hide(struct hiding *h, const char *path, struct err *err)
{
	AUTO_FREE char *real = realpath(path, NULL);

	if (real == NULL)
		return 0;
	return hide_one(h, arena_cstr(h->m->a, real), err) < 0 ? -1 : hide_elsewhere(h, real, err);
}

static bool is_home(const char *home)
{
	for (size_t i = 0; i < COUNT(not_homes); i++) {
		if (strcmp(home, not_homes[i]) == 0)
			return false;
	}
	return home[0] == '/';
}

static bool is_below_one(const char *path, const char *const *tops, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (mounts_is_below(path, tops[i]))
			return true;
	}
	return false;
}

/* A home may be a link to where there is room, and so may /home: what it leads to is hidden. The
 * others are not looked at, for automounters would mount them. */
static int hide_home(struct hiding *h, const char *home, struct err *err)
{
	AUTO_FREE char *real = NULL;
	struct stat st;

	if (is_below_one(home, people, COUNT(people)) &&
	    (lstat(home, &st) < 0 || !S_ISLNK(st.st_mode)))
		return 0;
	real = realpath(home, NULL);
	return real != NULL && is_home(real) && !is_below_one(real, people, COUNT(people))
	               ? hide(h, real, err)
	               : 0;
}

static bool has_home(const struct mounts_machine *on, struct str uid_text)
{
	uint64_t uid = 0;
	struct err no = {0};

	if (str_u64(uid_text, 0, UINT32_MAX, &uid, &no) < 0)
		return false;
	return uid == on->uid || (uid >= PERSON_UID_MIN && uid <= PERSON_UID_MAX);
}

/* Homes of people, and of the server's own user, that lie elsewhere. */
static int hide_homes(struct hiding *h, struct err *err)
{
	struct str passwd = h->on->passwd, line;

	for (size_t i = 0; i < COUNT(people); i++) {
		if (hide_home(h, people[i], err) < 0 || hide_elsewhere(h, people[i], err) < 0)
			return -1;
	}
	if (h->on->home != NULL && hide_home(h, h->on->home, err) < 0)
		return -1;
	while (str_cut(&passwd, '\n', &line)) {
		struct str field[6] = {{0}};
		size_t n = 0;

		while (n < COUNT(field) && str_cut(&line, ':', &field[n]))
			n++;
		if (n == COUNT(field) && has_home(h->on, field[2]) &&
		    hide_home(h, arena_strz(h->m->a, field[5]), err) < 0)
			return -1;
	}
	return 0;
}

static int share(struct mounts *m, const struct wire_launch *l, size_t i, struct err *err)
{
	const char *folder = l->share[i], *real = confined_share(m->confined, i);
	const char *path = real != NULL ? real : mounts_resolve(m->a, folder);

	if (mounts_add(m, MOUNT_RO, path, path, err) < 0)
		return -1;
	m->item[m->n - 1].share = true;
	/* by the name that was given too, where the links in it are not to be seen */
	if (strcmp(path, folder) == 0 || (!is_below_one(folder, people, COUNT(people)) &&
	                                  !is_below_one(folder, temporary, COUNT(temporary))))
		return 0;
	if (mounts_add(m, MOUNT_RO, path, folder, err) < 0)
		return -1;
	m->item[m->n - 1].share = true;
	return 0;
}

static struct str read_text(struct arena *a, const char *path)
{
	AUTO_BUF struct buf body = BUF_INIT(TEXT_MAX);
	struct err why = {0};

	if (fs_read(AT_FDCWD, path, &body, &why) < 0)
		log_warn("folders that %s names are not hidden: %s", path, why.msg);
	return arena_str(a, buf_view(&body));
}

void mounts_machine(struct arena *a, struct mounts_machine *out)
{
	*out = (struct mounts_machine){.passwd = read_text(a, "/etc/passwd"),
	                               .mountinfo = read_text(a, "/proc/self/mountinfo"),
	                               .home = getenv("HOME"),
	                               .uid = geteuid()};
}

int mounts_host(struct mounts *m, const struct wire_launch *l, const struct mounts_machine *on,
                struct err *err)
{
	struct hiding h = {m, on};
	size_t first = m->n;

	for (size_t i = 0; i < l->n_share; i++) {
		if (share(m, l, i, err) < 0)
			return err_wrap(err, "shared folder");
	}
	for (size_t i = 0; i < l->n_hide; i++) {
		if (hide(&h, l->hide[i], err) < 0)
			return -1;
	}
	if (hide_homes(&h, err) < 0)
		return -1;
	for (size_t i = 0; on->uid == 0 && i < COUNT(secret_files); i++) {
		if (hide(&h, secret_files[i], err) < 0)
			return -1;
	}
	mounts_sort(m, first);
	return 0;
}
