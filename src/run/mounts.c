/* mounts.c - the list of mounts; see mounts.h. */
#include "run/mounts.h"

#include "run/confine.h"
#include "run/hub_cache.h"

#include "base/fs.h"

#include <dirent.h>

/* What belongs to the runner is the job's where it is seen; what jobs have made is theirs already.
 */
static const char *seen_from(const struct mounts *m, const char *from)
{
	struct stat st;

	if (m->ids != NULL && m->ids->on && stat(from, &st) == 0 && st.st_uid == m->ids->job)
		return from;
	return confined_path(m->confined, m->a, from);
}

int mounts_add(struct mounts *m, enum mount_kind kind, const char *from, const char *at,
               struct err *err)
{
	struct stat st;
	struct mount *one = &m->item[m->n];

	assert(at[0] == '/');
	if (kind == MOUNT_RO)
		from = seen_from(m, from);
	if (m->n == MOUNTS_MAX)
		return err_set(err, ERR_TOO_BIG, "more than %d mounts", MOUNTS_MAX);
	*one = (struct mount){.kind = kind, .is_file = kind == MOUNT_NULL, .at = at, .from = from};
	if (kind == MOUNT_RO || kind == MOUNT_RW) {
		if (stat(from, &st) < 0)
			return err_errno(err, errno, "%s, for the mount at %s", from, at);
		one->is_file = !S_ISDIR(st.st_mode);
	}
	m->n++;
	return 0;
}

/* Stable. */
void mounts_sort(struct mounts *m, size_t first)
{
	for (size_t i = first + 1; i < m->n; i++) {
		struct mount one = m->item[i];
		size_t at = i;

		while (at > first && strlen(m->item[at - 1].at) > strlen(one.at)) {
			m->item[at] = m->item[at - 1];
			at--;
		}
		m->item[at] = one;
	}
}

const char *mounts_resolve(struct arena *a, const char *path)
{
	char *cut = arena_cstr(a, path);
	const char *rest = "";

	for (;;) {
		AUTO_FREE char *real = realpath(cut, NULL);
		char *slash = NULL;

		if (real != NULL)
			return arena_printf(a, "%s%s%s", strcmp(real, "/") == 0 ? "" : real,
			                    rest[0] == '\0' && strcmp(real, "/") != 0 ? "" : "/",
			                    rest);
		slash = strrchr(cut, '/');
		if (slash == NULL || slash == cut)
			return path;
		rest = path + (slash - cut) + 1;
		*slash = '\0';
	}
}

bool mounts_is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int add_cache(struct mounts *m, const struct wire_launch *l, const char *base,
                     struct err *err)
{
	struct arena *a = m->a;

	if (l->cache_project_dir != NULL &&
	    mounts_add(m, MOUNT_RW, l->cache_project_dir,
	               arena_printf(a, "%s/user_artifacts", base), err) < 0)
		return -1;
	if (l->cache_team_dir != NULL)
		return mounts_add(m, MOUNT_RW, l->cache_team_dir,
		                  arena_printf(a, "%s/team_artifacts", base), err);
	return 0;
}

/* Code without a workspace lies in the working directory itself, entry by entry. */
static int add_code_entries(struct mounts *m, const char *code, const char *at, bool on_host,
                            struct err *err)
{
	DIR *d = opendir(code);
	int r = 0;

	if (d == NULL)
		return err_errno(err, errno, "%s", code);
	for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
		char *to = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		to = arena_printf(m->a, "%s/%s", strcmp(at, "/") == 0 ? "" : at, e->d_name);
		if (on_host && access(to, F_OK) == 0)
			r = err_set(err, ERR_INVALID,
			            "the job's \"%s\" would cover the system's %s: set "
			            "enable_baseten_workdir: true",
			            e->d_name, to);
		else if (e->d_type != DT_LNK) /* a link cannot be mounted */
			r = mounts_add(m, MOUNT_RW, arena_printf(m->a, "%s/%s", code, e->d_name),
			               to, err);
	}
	(void)closedir(d);
	return r;
}

/* By the rules of a job file again: the host's links lead to where a mount really is, and a job may
 * have been stored before there was a rule. */
static int check_place(const struct mounts *m, size_t first, const struct wire_launch *l,
                       const struct mount *one, const char *named, struct err *err)
{
	if (spec_place_system(one->at) != NULL)
		return err_set(err, ERR_PLACE_SYSTEM,
		               "%s is %s on this machine, which belongs to the system", named,
		               one->at);
	for (size_t i = first; i < m->n; i++) {
		const struct mount *cache = &m->item[i];
		bool shared =
			cache->from == l->cache_project_dir || cache->from == l->cache_team_dir;

		if (shared && cache != one && mounts_is_below(one->at, cache->at))
			return err_set(err, ERR_PLACE_SHARED, "%s is in the cache, %s", named,
			               cache->at);
	}
	return 0;
}

static int check_mount_points(struct mounts *m, size_t first, const struct wire_launch *l,
                              bool on_host, struct err *err)
{
	const char **named = ARENA_ARRAY(m->a, const char *, m->n + 1);

	for (size_t i = first; i < m->n; i++) {
		named[i] = m->item[i].at;
		if (on_host)
			m->item[i].at = mounts_resolve(m->a, named[i]);
	}
	for (size_t i = first; i < m->n; i++) {
		if (check_place(m, first, l, &m->item[i], named[i], err) < 0)
			return -1;
	}
	return 0;
}

/* A place inside another writable folder of this attempt: its mount point is made in that folder
 * before any command of the job runs, and through no link that lies there. */
static int make_point(struct mounts *m, size_t first, const struct mount *one, struct err *err)
{
	const struct mount *around = NULL;
	AUTO_FD int outer = -1, point = -1;

	for (size_t i = first; i < m->n; i++) {
		const struct mount *other = &m->item[i];

		if (other != one && other->kind == MOUNT_RW && !other->is_file &&
		    mounts_is_below(one->at, other->at) &&
		    (around == NULL || strlen(other->at) > strlen(around->at)))
			around = other;
	}
	if (around == NULL || one->is_file)
		return 0;
	outer = fs_open_dir(around->from, err);
	if (outer < 0)
		return -1;
	if (m->ids != NULL)
		ids_begin(m->ids);
	point = fs_make_beneath(outer, one->at + strlen(around->at) + 1, 0755, err);
	if (m->ids != NULL)
		ids_end(m->ids);
	return point < 0 ? err_wrap(err, "the place %s", one->at) : 0;
}

void mounts_move(struct mounts *m, size_t first, const char *below)
{
	for (size_t i = first; i < m->n; i++)
		m->item[i].at = arena_printf(m->a, "%s%s", below, m->item[i].at);
}

int mounts_job(struct mounts *m, const struct wire_launch *l, const struct job_spec *spec,
               const char *dir, const char *const *trees, const char *code_at, bool on_host,
               struct err *err)
{
	struct arena *a = m->a;
	size_t first = m->n;
	const char *code = arena_printf(a, "%s/" ATTEMPT_CODE, dir);

	if (mounts_add(m, MOUNT_RW, arena_printf(a, "%s/" ATTEMPT_SCRATCH, dir), MOUNT_BT_SCRATCH,
	               err) < 0)
		return -1;
	if (spec->ckpt.enabled && mounts_add(m, MOUNT_RW, arena_printf(a, "%s/" ATTEMPT_CKPT, dir),
	                                     spec->ckpt.path, err) < 0)
		return -1;
	if (spec->load.enabled && mounts_add(m, MOUNT_RW, arena_printf(a, "%s/" ATTEMPT_LOAD, dir),
	                                     spec->load.folder, err) < 0)
		return -1;
	if (spec->cache.enabled && add_cache(m, l, spec->cache.base_path, err) < 0)
		return -1;
	if (hub_cache_of(l) != NULL &&
	    mounts_add(m, MOUNT_RW, arena_printf(a, "%s/" ATTEMPT_HUB, dir), hub_cache_of(l), err) <
	            0)
		return -1;
	for (size_t i = 0; i < l->n_weights; i++) {
		const char *at = l->weights[i].mount_location, *below = NULL;

		if (l->weights[i].hub) {
			if (hub_cache_place(a, l, i, &below, err) < 0)
				return -1;
			at = arena_printf(a, "%s/%s", at, below);
		}
		if (mounts_add(m, MOUNT_RO, trees[i], at, err) < 0)
			return err_wrap(err, "weights %s", l->weights[i].source);
	}
	if (l->has_compile && mounts_add(m, MOUNT_RW, arena_printf(a, "%s/" ATTEMPT_COMPILE, dir),
	                                 SPEC_COMPILE_PLACE, err) < 0)
		return -1;
	if (access(arena_printf(a, "%s/" ATTEMPT_CA, dir), F_OK) == 0 &&
	    mounts_add(m, MOUNT_RO, arena_printf(a, "%s/" ATTEMPT_CA, dir), MOUNT_CA, err) < 0)
		return -1;
	if (spec->workdir) {
		if (mounts_add(m, MOUNT_RW, code, MOUNT_WORKSPACE, err) < 0)
			return -1;
	} else if (l->n_code > 0 && add_code_entries(m, code, code_at, on_host, err) < 0) {
		return -1;
	}
	if (check_mount_points(m, first, l, on_host, err) < 0)
		return -1;
	mounts_sort(m, first);
	for (size_t i = first; i < m->n; i++) {
		if (make_point(m, first, &m->item[i], err) < 0)
			return -1;
	}
	return 0;
}
