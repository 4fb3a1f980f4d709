/*
 * start.c - the data folder: locked, made when missing, opened. The first start makes the master
 * key, the database and the first token, and leaves this user's CLI logged in.
 */
#include "server/start/start.h"
#include "base/reserve.h"
#include "meta/db_url.h"
#include "server/api/auth.h"
#include "server/api/ctx.h"
#include "server/start/listener.h"
#include "server/start/objects.h"
#include "server/data/weights.h"

#include <signal.h>
#include <sys/file.h>

#define LOCK_WAIT_MS 10000 /* for the lock of a server that is no more */
#define OWNER_WAIT_MS 1000 /* of one that is there: it may be dying */
#define LOCK_PAUSE_MS 50
#define SMALL_FILE ((size_t)64 << 10)
#define URL_KEY "url-key"
#define KEY_FILE "master.key"
#define NODE_ID_LEN 20

static const char *const folders[] = {
	"objects",        "store",       "node", APP_SOCKETS,
	"cache/projects", "cache/teams", "logs", "cache-summaries",
};

/* The nearest folder on the way to `path` that exists: what kind of file system will it be on? */
static const char *existing(struct arena *a, const char *path)
{
	char *at = arena_cstr(a, path);

	while (at[0] != '\0' && access(at, F_OK) != 0) {
		char *slash = strrchr(at, '/');

		if (slash == NULL)
			return ".";
		*slash = '\0';
	}
	return at[0] != '\0' ? at : "/";
}

/* Before anything is made in or beside it. */
static int may_write(const char *path, struct err *err)
{
	if (access(path, W_OK) == 0)
		return 0;
	if (errno == ENOENT)
		return err_set(err, ERR_NOT_FOUND, "%s does not exist: create it first", path);
	if (errno == EROFS)
		return err_set(
			err, ERR_DENIED,
			"%s is on a file system that is read-only. Look with `dmesg` whether "
			"its disk has failed, and mount it to be written: `mount -o "
			"remount,rw`",
			path);
	return err_errno(err, errno,
	                 "%s is not writable by this user. If another user restored a "
	                 "backup, chown the whole folder",
	                 path);
}

static int make_folder(struct app *app, struct err *err)
{
	struct arena *a = app->arena;
	uint64_t free_bytes = 0, total = 0;
	char real[PATH_MAX];

	if (fs_is_network(existing(a, app->set.data)))
		return err_set(err, ERR_UNSUPPORTED,
		               "--data %s is on a network file system, where SQLite and file locks "
		               "are unreliable. Choose a folder on a local disk",
		               app->set.data);
	if (fs_mkdirs(AT_FDCWD, app->set.data, 0700, err) < 0)
		return err_wrap(err, "--data");
	if (realpath(app->set.data, real) == NULL)
		return err_errno(err, errno, "--data %s", app->set.data);
	app->data = arena_cstr(a, real);
	if (may_write(app->data, err) < 0)
		return err_wrap(err, "--data");
	if (chmod(app->data, 0700) < 0) /* secrets and everybody's code lie here */
		return err_errno(err, errno, "--data %s: chmod 0700", app->data);
	if (fs_free_bytes(app->data, &free_bytes, &total, err) < 0)
		return -1;
	if (free_bytes < START_FREE_MIN && access(app_path(app, a, "stoker.db"), F_OK) != 0)
		return err_set(
			err, ERR_NO_SPACE,
			"--data %s: %llu MiB free, the server needs at least %llu MiB to start",
			app->data, (unsigned long long)(free_bytes >> 20),
			(unsigned long long)(START_FREE_MIN >> 20));
	return 0;
}

/* The pid in the lock file; 0 = no live process. */
static pid_t owner_of(const char *path, struct buf *principal, struct str *address)
{
	struct err ignored = {0};
	struct str rest, pid = {0};
	uint64_t n = 0;

	buf_clear(principal);
	(void)(fs_read(AT_FDCWD, path, principal, &ignored) < 0); /* empty then */
	rest = str_trim(buf_view(principal));
	(void)str_cut(&rest, ' ', &pid);
	*address = rest;
	err_clear(&ignored);
	if (str_u64(pid, 1, INT32_MAX, &n, &ignored) < 0 ||
	    (kill((pid_t)n, 0) < 0 && errno == ESRCH))
		return 0;
	return (pid_t)n;
}

/* A server that was killed holds its lock until the kernel has taken it apart, and one killed
 * between fork and exec of a child leaves it to that child for a moment: so the lock is waited for,
 * the longer when the owner named in the file is gone. */
static int take_lock(struct app *app, struct err *err)
{
	AUTO_BUF struct buf principal = BUF_INIT(SMALL_FILE);
	const char *path = app_path(app, app->arena, "lock");
	int64_t since = clock_mono_ms();
	struct str address = {0};
	pid_t owner = 0;

	while ((app->lock_fd = fs_lock(path, err)) < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err);
		owner = owner_of(path, &principal, &address);
		if (clock_mono_ms() - since > (owner != 0 ? OWNER_WAIT_MS : LOCK_WAIT_MS))
			return err_set(
				err, ERR_DATA_FOLDER_IN_USE,
				"another server uses the data folder %s (pid %d, %.*s): stop it, "
				"or start this one with another --data",
				app->data, (int)owner,
				STR_ARG(address.n > 0 ? address : STR_LIT("address unknown")));
		clock_sleep_ms(LOCK_PAUSE_MS);
	}
	return 0;
}

static int make_default_team(struct app *app, struct err *err)
{
	struct model_team t = {0};

	if (meta_team(app->meta, app->arena, NULL, &t, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	t = (struct model_team){.id = app_id(app->arena, MODEL_ID_LEN),
	                        .name = "Default",
	                        .is_default = true,
	                        .created_ms = clock_wall_ms()};
	return meta_team_add(app->meta, &t, err);
}

/* File first, row second: a crash between leaves a file whose token gets its row at the next start.
 */
static int make_admin(struct app *app, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SMALL_FILE);
	const char *path = app_path(app, app->arena, "admin-token");
	struct model_token *all = NULL, t = {.name = "admin", .role = ROLE_ADMIN};
	char *hash = NULL;
	struct digest d;
	struct str token;
	size_t n = 0;

	if (meta_tokens(app->meta, app->arena, NULL, &all, &n, err) < 0)
		return -1;
	if (n > 0)
		return 0;
	if (fs_read(AT_FDCWD, path, &text, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		buf_puts(&text, auth_new_token(app->arena, APP_TOKEN, &hash));
		buf_putc(&text, '\n');
		if (fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err) < 0)
			return -1;
	}
	token = str_trim(buf_view(&text));
	d = hash_sha256(token.p, token.n);
	hash = arena_alloc(app->arena, HASH_HEX_CAP);
	digest_hex(&d, hash);
	t.id = app_id(app->arena, MODEL_ID_LEN);
	t.hash = hash;
	t.created_ms = clock_wall_ms();
	return meta_token_add(app->meta, &t, err);
}

/* The key pair that signs download URLs, "access\nsecret": the master key opens it, or is wrong.
 * ERR_NOT_FOUND: there is none yet. */
static int open_url_key(struct app *app, struct meta *meta, struct buf *plain, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str stored = {0};

	if (meta_kv_get(meta, a, URL_KEY, &stored, err) < 0)
		return -1;
	if (seal_open(&app->master, str_of(URL_KEY), stored, plain, err) == 0)
		return 0;
	err_clear(err);
	return err_set(err, ERR_MASTER_KEY_WRONG,
	               "the master key %s does not belong to this database: copy the one of the "
	               "server that used it, or let --database or --data name another",
	               app_path(app, a, KEY_FILE));
}

static int make_url_key(struct app *app, struct err *err)
{
	AUTO_BUF struct buf plain = BUF_INIT(SMALL_FILE), sealed = BUF_INIT(SMALL_FILE);
	struct str rest, access;
	uint8_t raw[32];
	char hex[65];

	if (open_url_key(app, app->meta, &plain, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		seal_random(raw, sizeof(raw));
		hex_encode(raw, sizeof(raw), hex);
		buf_printf(&plain, "STKR%.16s\n%s", hex, hex + 16);
		seal_close(&app->master, str_of(URL_KEY), buf_view(&plain), &sealed);
		if (meta_kv_put(app->meta, URL_KEY, buf_view(&sealed), err) < 0)
			return -1;
	}
	rest = buf_view(&plain);
	(void)str_cut(&rest, '\n', &access);
	app->url_access_key = arena_strz(app->arena, access);
	app->url_secret_key = arena_strz(app->arena, rest);
	return 0;
}

/* A new key beside an old database would open none of its secrets. */
static int load_key(struct app *app, bool first, struct err *err)
{
	const char *key = app_path(app, app->arena, KEY_FILE), *url = app->set.database;
	bool beside = url == NULL || settings_sqlite_file(url) != NULL;

	if (seal_load_key(key, first, &app->master, err) == 0)
		return 0;
	if (!first && err->code == ERR_NOT_FOUND) {
		err_become(err, ERR_MASTER_KEY_MISSING);
		return err_wrap(err, "%s",
		                beside ? "put master.key back from a backup, or move the data "
		                         "folder away to begin with an empty one"
		                       : "copy master.key from the data folder of the server that "
		                         "used this database");
	}
	return err_wrap(err, first ? "master key" : "master key of an existing database");
}

int start_key(struct app *app, struct err *err)
{
	return load_key(app, false, err);
}

int start_key_fits(struct app *app, struct meta *meta, struct err *err)
{
	AUTO_BUF struct buf plain = BUF_INIT(SMALL_FILE);
	int r = open_url_key(app, meta, &plain, err);

	seal_wipe_buf(&plain);
	if (r == 0 || err->code != ERR_NOT_FOUND)
		return r;
	err_clear(err);
	return 0;
}

int start_hold(const char *lock, const char *database, int *fd, struct err *err)
{
	int64_t until_ms = clock_mono_ms() + OWNER_WAIT_MS;

	while ((*fd = fs_lock(lock, err)) < 0) {
		if (err->code != ERR_BUSY)
			return -1;
		err_clear(err);
		if (clock_mono_ms() >= until_ms)
			return err_set(err, ERR_DATABASE_IN_USE,
			               "another Stoker server uses the database %s: stop it, or "
			               "give this one a database of its own",
			               database);
		clock_sleep_ms(LOCK_PAUSE_MS);
	}
	return 0;
}

/* The key first: a database without one has nothing that it could not open. */
static int open_file(struct app *app, const char *file, struct err *err)
{
	bool first = access(file, F_OK) != 0;
	char *folder = arena_cstr(app->arena, file), *slash = strrchr(folder, '/');

	if (slash != NULL && slash != folder)
		*slash = '\0';
	if ((!first && may_write(file, err) < 0) || may_write(slash == NULL     ? "."
	                                                      : slash == folder ? "/"
	                                                                        : folder,
	                                                      err) < 0)
		return -1; /* its log is written beside it */
	if (load_key(app, first, err) < 0 || start_hold(file, file, &app->database_fd, err) < 0)
		return -1;
	return meta_open(&app->meta, arena_printf(app->arena, "sqlite:%s", file), err);
}

/* One that is elsewhere says itself whether it is new: the first key goes where the rows will go.
 */
static int open_database(struct app *app, struct err *err)
{
	const char *url = app->set.database;
	struct model_team t = {0};

	if (url == NULL)
		return open_file(app, app_path(app, app->arena, "stoker.db"), err);
	if (settings_sqlite_file(url) != NULL)
		return open_file(app, settings_sqlite_file(url), err);
	if (db_url_has_password(url))
		log_warn("--database names a password, which every user of this machine can read "
		         "in the list of processes: put it into PGPASSFILE or PGPASSWORD");
	if (app->meta == NULL && meta_open(&app->meta, url, err) < 0)
		return err_wrap(err, "--database");
	if (meta_team(app->meta, app->arena, NULL, &t, err) == 0)
		return load_key(app, false, err);
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return load_key(app, true, err);
}

static int open_meta(struct app *app, struct err *err)
{
	if (open_database(app, err) < 0 ||
	    meta_cluster_put(app->meta, APP_CLUSTER, "local", clock_wall_ms(), err) < 0 ||
	    make_default_team(app, err) < 0 || make_admin(app, err) < 0)
		return -1;
	return make_url_key(app, err);
}

static int open_stores(struct app *app, struct err *err)
{
	struct arena *a = app->arena;

	if (objects_open(app, err) < 0 ||
	    blobs_open(&app->blobs, app_path(app, a, "store"), err) < 0 ||
	    node_cache_open_strange(&app->node, app_path(app, a, "node"), app->set.node_cache_bytes,
	                            err) < 0)
		return -1;
	weights_open(app);
	return joblogs_open(&app->logs, app_path(app, a, "logs"), err);
}

static int parse_nets(struct app *app, const char *flag, const struct conf_list *l,
                      struct url_net **out, struct err *err)
{
	*out = ARENA_ARRAY(app->arena, struct url_net, l->n + 1);
	for (size_t i = 0; i < l->n; i++) {
		if (url_net_parse(str_of(l->item[i]), &(*out)[i], err) < 0)
			return err_wrap(err, "%s", flag);
	}
	return 0;
}

static int read_proxies(struct app *app, struct err *err)
{
	static const char *loopback[] = {"127.0.0.0/8", "::1"};
	const struct conf_list *l = &app->set.trusted_proxy;
	const struct conf_list these = {loopback, COUNT(loopback)};

	app->n_proxies = l->n > 0 ? l->n : these.n;
	return parse_nets(app, "--trusted-proxy", l->n > 0 ? l : &these, &app->proxies, err);
}

static int open_upstream(struct app *app, struct err *err)
{
	const struct conf_list *l = &app->set.allow_source_network;
	struct http_policy policy = {.guard = true, .n_allow = l->n};

	if (parse_nets(app, "--allow-source-network", l, &app->allow, err) < 0 ||
	    read_proxies(app, err) < 0)
		return -1;
	policy.allow = app->allow;
	app->upstream = http_client_new(&policy);
	policy.only_allowed = true;
	app->inside = http_client_new(&policy);
	return 0;
}

/* Evidence about runners is in the data folder, so that is who we are: it stays the same when the
 * machine gets another name, and goes along when the folder is moved. */
static int make_node_id(struct app *app, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(SMALL_FILE);
	const char *path = app_path(app, app->arena, "node-id");

	if (fs_read(AT_FDCWD, path, &text, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		buf_printf(&text, "%s\n", app_id(app->arena, NODE_ID_LEN));
		if (fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err) < 0)
			return -1;
	}
	app->node_id = arena_strz(app->arena, str_trim(buf_view(&text)));
	if (app->node_id[0] == '\0')
		return err_set(err, ERR_CORRUPT, "%s is empty: remove it", path);
	return 0;
}

static int find_program(struct app *app, struct err *err)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return err_errno(err, errno, "/proc/self/exe");
	self[n] = '\0';
	app->program = arena_cstr(app->arena, self);
	return 0;
}

static int open_engine(struct app *app, struct err *err)
{
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) < 0)
		return err_errno(err, errno, "hostname");
	app->node_name = arena_cstr(app->arena, host[0] != '\0' ? host : "localhost");
	if (engine_open(&app->engine, "local", app->data, err) < 0 ||
	    inventory_read(&app->inv, app->set.gpus, err) < 0)
		return -1;
	for (size_t i = 0; i < app->inv.n_gpus; i++)
		app->gpu_types[i] = app->inv.gpu[i].type;
	if (app->set.cpus > 0)
		app->inv.cpu_milli = (uint32_t)MIN(app->set.cpus, 1000000) * 1000;
	if (app->set.memory > 0)
		app->inv.memory_bytes = app->set.memory;
	return 0;
}

/* Runners live in another folder: they get the path whole. */
static int whole_path(struct app *app, const char **path, const char *flag, struct err *err)
{
	char real[PATH_MAX];

	if (*path == NULL)
		return 0;
	if (realpath(*path, real) == NULL)
		return err_errno(err, errno, "%s %s", flag, *path);
	*path = arena_cstr(app->arena, real);
	return 0;
}

int start_folder(struct app *app, struct err *err)
{
	app->lock_fd = app->database_fd = -1;
	app->known = ARENA_NEW(app->arena, struct known_tokens);
	lock_init(&app->known->lock, LOCK_KNOWN_TOKENS);
	for (size_t i = 0; i < APP_STRIPES; i++) {
		lock_init(&app->ckpts[i], LOCK_CKPTS);
		lock_init(&app->steps[i], LOCK_STEPS);
	}
	if (whole_path(app, &app->set.tls_cert, "--tls-cert", err) < 0 ||
	    whole_path(app, &app->set.tls_key, "--tls-key", err) < 0 ||
	    find_program(app, err) < 0 || make_folder(app, err) < 0 || take_lock(app, err) < 0 ||
	    make_node_id(app, err) < 0)
		return -1;
	for (size_t i = 0; i < COUNT(folders); i++) {
		if (fs_mkdirs(AT_FDCWD, app_path(app, app->arena, folders[i]), 0700, err) < 0)
			return -1;
	}
	return open_upstream(app, err) < 0 ? -1 : open_engine(app, err);
}

int start_open(struct app *app, struct err *err)
{
	if (app->known == NULL && start_folder(app, err) < 0)
		return -1;
	app->started_ms = clock_wall_ms();
	if (reserve_open(app_path(app, app->arena, "reserve"), err) < 0 || open_meta(app, err) < 0)
		return -1;
	return open_stores(app, err);
}

void start_close(struct app *app)
{
	if (app->listen_fd >= 0) /* a standby that failed to lead */
		(void)close(app->listen_fd);
	listener_close(app);
	engine_close(app->engine);
	http_client_free(app->upstream);
	http_client_free(app->inside);
	joblogs_close(app->logs);
	node_cache_close(app->node);
	weights_close(app);
	blobs_close(app->blobs);
	objects_close(app);
	meta_close(app->meta);
	if (app->database_fd >= 0)
		(void)close(app->database_fd);
	reserve_close();
	seal_wipe(&app->master, sizeof(app->master));
	if (app->lock_fd >= 0)
		(void)close(app->lock_fd);
	lock_done(&app->known->lock);
	for (size_t i = 0; i < APP_STRIPES; i++) {
		lock_done(&app->ckpts[i]);
		lock_done(&app->steps[i]);
	}
}

static const char *login_path(struct arena *a, const char **folder)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config != NULL && config[0] == '/')
		*folder = arena_printf(a, "%s/stoker", config);
	else if (home != NULL && home[0] == '/')
		*folder = arena_printf(a, "%s/.config/stoker", home);
	else
		return NULL;
	return arena_printf(a, "%s/login.json", *folder);
}

/* A login that is kept is of somebody who lives: another address, or a token that we know. At our
 * own address nobody else answers, so a token of an older data folder is good for nothing. */
static bool is_kept(struct app *app, struct arena *a, const struct doc *login)
{
	struct err no = {0};
	struct principal *w = NULL;

	return !str_eq(doc_text(doc_get(login, "url")), app->base_url) ||
	       token_ops.authenticate(app, a, doc_text(doc_get(login, "token")), false, &w, &no) ==
	               0;
}

/* Absent, or of this data folder (the same token): written with the address of now. A login to
 * another server is left alone. */
static int write_login(struct app *app, uint16_t port, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf old = BUF_INIT(SMALL_FILE), out = BUF_INIT(SMALL_FILE),
			    token = BUF_INIT(SMALL_FILE);
	const char *folder = NULL, *path = login_path(a, &folder);
	const struct doc *d = NULL;
	struct str mine;
	struct js js;

	if (path == NULL || fs_read(AT_FDCWD, app_path(app, a, "admin-token"), &token, err) < 0) {
		err_clear(err); /* no home, or the token was taken elsewhere */
		return 0;
	}
	mine = str_trim(buf_view(&token));
	if (fs_read(AT_FDCWD, path, &old, err) == 0) {
		if (js_parse(a, buf_view(&old), &d, err) < 0) {
			err_clear(err);
			return 0; /* not ours to repair */
		}
		if (!str_same(doc_text(doc_get(d, "token")), mine) && is_kept(app, a, d)) {
			log_info("the CLI of this user stays logged in to %s; to switch: `stoker "
			         "login --url %s <%s`",
			         doc_cstr(doc_get(d, "url"), "another server"), app->base_url,
			         app_path(app, a, "admin-token"));
			return 0;
		}
	}
	err_clear(err);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "url", app->base_url);
	js_kv_str(&js, "token", mine);
	js_kv_int(&js, "port", port);
	js_close(&js);
	if (fs_mkdirs(AT_FDCWD, folder, 0700, err) < 0)
		return -1;
	return fs_write_atomic(AT_FDCWD, path, buf_view(&out), 0600, err);
}

void start_urls(struct app *app, const char *host, uint16_t port)
{
	const char *scheme = app->set.tls_cert != NULL ? "https" : "http";
	bool six = strchr(host, ':') != NULL;
	bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
	const char *local = any ? (six ? "::1" : "127.0.0.1") : host;

	app->local_url = url_origin(app->arena, scheme, local, port);
	app->base_url = app->set.base_url != NULL ? app->set.base_url : app->local_url;
	/* A certificate is for a name: runners come by the one that clients use. */
	if (app->set.tls_cert != NULL)
		app->local_url = app->base_url;
}

int start_announce(struct app *app, const char *host, uint16_t port, struct err *err)
{
	char line[300];

	(void)snprintf(line, sizeof(line), "%d %s:%u\n", (int)getpid(), host, port);
	if (ftruncate(app->lock_fd, 0) < 0)
		return err_errno(err, errno, "lock file");
	if (fs_pwrite_all(app->lock_fd, line, strlen(line), 0, err) < 0)
		return -1;
	if (write_login(app, port, err) < 0) { /* a convenience: the server works without it */
		log_warn("cannot save this user's login: %s", err->msg);
		err_clear(err);
	}
	return 0;
}
