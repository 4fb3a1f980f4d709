/* scope.c - whether systemd gives runners scopes of their own, and the words that ask it to. */
#include "engine/scope.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/proc.h"

#include "base/sync.h"
#include <pwd.h>

#define POLL_MS 100
#define TEXT_MAX ((size_t)64 << 10)
#define FRONT_MAX 12

enum scope_kind scope_choose(const struct scope_facts *f)
{
	if (!f->systemd)
		return SCOPE_NONE;
	if (f->root)
		return SCOPE_SYSTEM;
	return f->lingers || f->inside ? SCOPE_USER : SCOPE_NONE;
}

static bool user_lingers(struct arena *a)
{
	struct passwd pw, *found = NULL;
	char room[4096];

	if (getpwuid_r(getuid(), &pw, room, sizeof(room), &found) != 0 || found == NULL)
		return false;
	return access(arena_printf(a, "/var/lib/systemd/linger/%s", pw.pw_name), F_OK) == 0;
}

static bool inside_manager(struct arena *a)
{
	AUTO_BUF struct buf self = BUF_INIT(TEXT_MAX);
	struct err err = {0};
	char *unit = arena_printf(a, "/user@%d.service/", (int)getuid());

	return fs_read(AT_FDCWD, "/proc/self/cgroup", &self, &err) == 0 &&
	       strstr(buf_cstr(&self), unit) != NULL;
}

static void look_around(struct arena *a, struct scope_facts *f)
{
	const char *set = getenv("XDG_RUNTIME_DIR");
	char where[4096];

	memset(f, 0, sizeof(*f));
	f->systemd = access("/run/systemd/system", F_OK) == 0 &&
	             access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 &&
	             proc_find("systemd-run", where) != NULL;
	f->root = geteuid() == 0;
	f->lingers = user_lingers(a);
	f->inside = inside_manager(a);
	f->runtime_dir = set != NULL && set[0] != '\0'
	                         ? set
	                         : arena_printf(a, "/run/user/%d", (int)getuid());
}

/* A service has no XDG_RUNTIME_DIR, and systemd-run finds the user's manager by nothing else. */
static size_t front_of(struct arena *a, const struct scope_facts *f, const char **out)
{
	static const char *const words[] = {"--scope", "--quiet",      "--collect",
	                                    "-p",      "Delegate=yes", "--"};
	size_t n = 0;

	if (!f->root) {
		out[n++] = "env";
		out[n++] = arena_printf(a, "XDG_RUNTIME_DIR=%s", f->runtime_dir);
	}
	out[n++] = "systemd-run";
	if (!f->root)
		out[n++] = "--user";
	for (size_t i = 0; i < COUNT(words); i++)
		out[n++] = words[i];
	assert(n < FRONT_MAX);
	return n;
}

static const char *const *wrap(struct arena *a, const struct scope_facts *f,
                               const char *const *argv)
{
	const char **out = NULL;
	size_t n = 0, front = 0;

	while (argv[n] != NULL)
		n++;
	out = ARENA_ARRAY(a, const char *, FRONT_MAX + n + 1);
	front = front_of(a, f, out);
	memcpy(out + front, argv, (n + 1) * sizeof(*argv));
	return out;
}

static bool try_one(struct arena *a, const struct scope_facts *f)
{
	static const char *const nothing[] = {"true", NULL};
	AUTO_BUF struct buf out = BUF_INIT(TEXT_MAX);
	char *manager = arena_printf(a, "%s/systemd/private", f->runtime_dir);
	struct err err = {0};
	int code = 0;

	/* a machine that starts may start us first */
	for (int64_t until = clock_mono_ms() + SCOPE_WAIT_MS;
	     !f->root && access(manager, F_OK) < 0 && clock_mono_ms() < until;)
		clock_sleep_ms(POLL_MS);
	if (proc_run(wrap(a, f, nothing), (struct str){0}, SCOPE_TRY_MS, &out, &code, &err) == 0 &&
	    code == 0)
		return true;
	log_warn("systemd cannot start a scope for runners, so their jobs may have no limits: "
	         "systemd-run: exit code %d: %s%.*s",
	         code, err.msg, (int)MIN(out.n, 300U), buf_cstr(&out));
	return false;
}

const char *const *scope_wrap(struct arena *a, const char *const *argv)
{
	static struct lock lock = LOCK_INIT(LOCK_ENGINE_SCOPE);
	static bool works;
	static int64_t again_ms;
	struct scope_facts f;
	bool use = false;

	look_around(a, &f);
	if (scope_choose(&f) == SCOPE_NONE)
		return argv;
	lock_take(&lock);
	if (!works && clock_mono_ms() >= again_ms) {
		works = try_one(a, &f);
		again_ms = clock_mono_ms() + SCOPE_AGAIN_MS;
	}
	use = works;
	lock_give(&lock);
	return use ? wrap(a, &f, argv) : argv;
}
