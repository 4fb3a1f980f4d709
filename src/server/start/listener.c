/* listener.c - the server's side of listener.h. */
#include "server/start/listener.h"
#include "base/fs.h"
#include "io/listen.h"
#include "io/local.h"
#include "io/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */

struct listener {
	struct lock lock; /* the janitor calls, too */
	int keeper_fd;    /* our connection to the keeper, -1 = none */
	int port_fd;      /* a copy of the socket, for a new keeper; -1 = not kept, or draining */
	bool kept;
};

bool listener_runners(const char *lock_path)
{
	AUTO_FD int fd = open(lock_path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* Made where it is not there yet. operation: of flock(); 0: none. */
static int open_runners(struct app *app, int operation, int *out, struct err *err)
{
	AUTO_FREE char *path = xasprintf("%s/" APP_RUNNERS, app->data);
	AUTO_FD int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || (operation != 0 && flock(fd, operation) < 0))
		return err_errno(err, errno, "%s", path);
	*out = TAKE_FD(fd);
	return 0;
}

/* Opened for each runner: a lock of flock belongs to what was opened, and to all copies of that. */
int listener_runner_lock(struct app *app, int *out, struct err *err)
{
	return open_runners(app, LOCK_SH, out, err);
}

/* "127.0.0.1:8000" of a socket that listens; ERR_INVALID when it is none. */
static int address_of(struct arena *a, int fd, const char **out, struct err *err)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct sockaddr_storage at;
	socklen_t n = sizeof(at), size = sizeof(int);
	int listens = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || listens == 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &n) < 0 ||
	    (at.ss_family != AF_INET && at.ss_family != AF_INET6) ||
	    getnameinfo((const struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
	                NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return err_set(err, ERR_INVALID, "not a listening TCP socket");
	*out = arena_printf(a, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

/* --- systemd --- */

static int from_systemd(struct app *app, int *out, bool *given, struct err *err)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS"), *address;
	struct err ignored = {0};
	uint64_t n = 0;

	*given = pid != NULL && fds != NULL &&
	         str_u64(str_of(pid), 1, INT32_MAX, &n, &ignored) == 0 && (pid_t)n == getpid();
	if (!*given)
		return 0;
	if (str_u64(str_of(fds), 0, 100, &n, &ignored) < 0 || n != 1)
		return err_set(err, ERR_INVALID,
		               "systemd gave %s sockets: one ListenStream= is expected in the unit",
		               fds);
	/* for this process, not for its children */
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	if (fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0 || fcntl(FIRST_FD, F_SETFL, O_NONBLOCK) < 0)
		return err_errno(err, errno, "use the socket from systemd");
	if (address_of(app->arena, FIRST_FD, &address, err) < 0)
		return err_wrap(err, "use the socket from systemd");
	app->set.listen = address;
	if (settings_exposure(app->arena, &app->set, err) < 0)
		return err_wrap(err, "use the socket from systemd");
	*out = FIRST_FD;
	return 0;
}

/* --- the keeper --- */

static char *keeper_path(struct app *app, struct arena *a)
{
	return app_path(app, a, "keeper.sock");
}

static int ask(int sock, char word, int fd, char *answer, int *got, struct err *err)
{
	if (local_send(sock, word, fd, err) < 0)
		return -1;
	return local_receive(sock, KEEPER_WAIT_MS, answer, got, err);
}

/* Is this the address that we are to listen at? Port 0, any: then the kept one is as good as a new
 * one. */
static bool fits(struct arena *a, const char *wanted, const char *kept)
{
	const char *want_host, *kept_host;
	uint16_t want_port, kept_port;
	struct err ignored = {0};
	bool loopback;

	if (settings_address(a, wanted, &want_host, &want_port, &loopback, &ignored) < 0 ||
	    settings_address(a, kept, &kept_host, &kept_port, &loopback, &ignored) < 0)
		return false;
	if (strcmp(want_host, "localhost") == 0)
		want_host = "127.0.0.1";
	return strcmp(want_host, kept_host) == 0 && (want_port == 0 || want_port == kept_port);
}

/* -1 = none there, or of another address. The connection stays, it says that a server lives. */
static int from_keeper(struct app *app, struct listener *l)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_FD int sock = -1, fd = -1;
	struct err err = {0};
	const char *kept;
	char answer = 0;
	uid_t uid;

	if (local_connect(keeper_path(app, a), SOCK_SEQPACKET, &sock, &err) < 0 ||
	    local_peer(sock, &uid, &err) < 0 || uid != geteuid() ||
	    ask(sock, 'T', -1, &answer, &fd, &err) < 0)
		return -1;
	l->keeper_fd = TAKE_FD(sock);
	if (answer != 'F' || fd < 0 || address_of(a, fd, &kept, &err) < 0 ||
	    !fits(a, app->set.listen, kept))
		return -1;
	log_info("listening on %s, kept open since the last server", kept);
	return TAKE_FD(fd);
}

static int spawn_keeper(struct app *app, int *out, struct err *err)
{
	const char *argv[] = {app->program, "keep-port", app->data, NULL};
	/* keys and passwords of the database and the store may be in ours, which it outlives */
	const char *const none[] = {NULL};
	struct proc_spec spec = {.argv = argv,
	                         .envp = none,
	                         .cwd = "/",
	                         .new_session = true,
	                         .detach = true,
	                         .umask_bits = 077};
	struct proc_fd fds[1];
	struct proc p;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_errno(err, errno, "a socket pair");
	fds[0] = (struct proc_fd){pair[1], FIRST_FD};
	spec.fds = fds;
	spec.n_fds = 1;
	r = proc_spawn(&spec, &p, err);
	(void)close(pair[1]);
	if (r < 0) {
		(void)close(pair[0]);
		return -1;
	}
	(void)close(p.pidfd);
	*out = pair[0];
	return 0;
}

static int keep(struct app *app, struct listener *l, struct err *err)
{
	bool tls = app->set.tls_cert != NULL;
	char answer = 0;
	int none = -1;

	if (l->keeper_fd < 0 && spawn_keeper(app, &l->keeper_fd, err) < 0)
		return -1;
	if (ask(l->keeper_fd, tls ? 'S' : 'K', l->port_fd, &answer, &none, err) < 0)
		return -1;
	return answer == 'O' ? 0 : err_set(err, ERR_IO, "it answered '%c'", answer);
}

static void hang_up(struct listener *l)
{
	if (l->keeper_fd >= 0)
		(void)close(l->keeper_fd);
	l->keeper_fd = -1;
}

static bool keeper_is_gone(const struct listener *l)
{
	char byte;

	return l->keeper_fd >= 0 && recv(l->keeper_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void keep_locked(struct app *app, struct listener *l)
{
	struct err err = {0};

	if (l->port_fd < 0 || (l->kept && !keeper_is_gone(l)))
		return;
	if (l->kept)
		hang_up(l);
	l->kept = keep(app, l, &err) == 0;
	if (!l->kept) {
		log_warn("the port is not kept open while the server restarts: %s", err.msg);
		hang_up(l);
	}
}

void listener_keep(struct app *app)
{
	struct listener *l = app->listener;

	if (l == NULL)
		return;
	lock_take(&l->lock);
	keep_locked(app, l);
	lock_give(&l->lock);
}

/* The data folder of a keeper, when this process is one of ours. */
static const char *kept_by(struct arena *a, const char *pid)
{
	AUTO_BUF struct buf words = BUF_INIT(2 * PATH_MAX);
	struct err gone = {0};
	struct str rest, word = {0};
	struct stat st;
	char path[40];

	FMT(path, "/proc/%.20s/cmdline", pid);
	if (!isdigit((unsigned char)*pid) || stat(path, &st) < 0 || st.st_uid != geteuid() ||
	    fs_read(AT_FDCWD, path, &words, &gone) < 0)
		return NULL;
	rest = buf_view(&words);
	(void)str_cut(&rest, '\0', &word);
	return str_cut(&rest, '\0', &word) && str_eq(word, "keep-port") &&
	                       str_cut(&rest, '\0', &word)
	               ? arena_strz(a, word)
	               : NULL;
}

static bool has_server(struct arena *a, const char *data)
{
	AUTO_FD int fd = open(arena_printf(a, "%s/lock", data), O_RDONLY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
}

/* Who has the port may be no server, but what a dead one has left behind. */
static int in_use(struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *text = arena_cstr(a, err->msg);
	DIR *d = opendir("/proc");

	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		const char *data = kept_by(a, e->d_name);

		if (data != NULL && !has_server(a, data))
			text = arena_printf(a,
			                    "%s; process %s keeps a port for the jobs of %s, where "
			                    "no server runs: `stoker server --data %s` takes it, "
			                    "`kill %s` frees it",
			                    text, e->d_name, data, data, e->d_name);
	}
	if (d != NULL)
		(void)closedir(d);
	err_clear(err);
	return err_set(err, ERR_ADDRESS_IN_USE, "%s", text);
}

int listener_open(struct app *app, int *out, struct err *err)
{
	AUTO_FD int runners = -1;
	struct listener *l = ARENA_NEW(app->arena, struct listener);
	struct err ignored = {0};
	bool given = false;
	uint16_t port;
	int port_fd = -1;

	app->listener = l;
	l->keeper_fd = l->port_fd = -1;
	lock_init(&l->lock, LOCK_LISTENER);
	if (open_runners(app, 0, &runners, err) < 0 || from_systemd(app, &port_fd, &given, err) < 0)
		return -1;
	if (given) {
		if (from_keeper(app, l) >= 0 || l->keeper_fd >= 0) /* of a time without systemd */
			(void)!local_send(l->keeper_fd, 'Q', -1, &ignored);
		hang_up(l);
		*out = port_fd;
		return 0;
	}
	port_fd = from_keeper(app, l);
	if (port_fd < 0 && listen_open(app->set.listen, &port_fd, &port, err) < 0) {
		hang_up(l);
		return err->id == ERR_ADDRESS_IN_USE ? in_use(err) : -1;
	}
	l->port_fd = fcntl(port_fd, F_DUPFD_CLOEXEC, FIRST_FD);
	*out = port_fd;
	return 0;
}

void listener_drain(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	bool runners = listener_runners(app_path(app, a, APP_RUNNERS));
	struct listener *l = app->listener;
	struct err ignored = {0};

	lock_take(&l->lock);
	if (l->keeper_fd >= 0)
		(void)!local_send(l->keeper_fd, runners ? 'D' : 'Q', -1, &ignored);
	if (l->port_fd >= 0)
		(void)close(l->port_fd);
	l->port_fd = -1;
	lock_give(&l->lock);
}

void listener_abandon(struct app *app)
{
	struct listener *l = app->listener;
	struct err ignored = {0};

	if (l == NULL)
		return;
	lock_take(&l->lock);
	if (l->keeper_fd >= 0)
		(void)!local_send(l->keeper_fd, 'Q', -1, &ignored);
	lock_give(&l->lock);
}

void listener_close(struct app *app)
{
	struct listener *l = app->listener;

	if (l == NULL)
		return;
	hang_up(l);
	if (l->port_fd >= 0)
		(void)close(l->port_fd);
	lock_done(&l->lock);
	app->listener = NULL;
}
