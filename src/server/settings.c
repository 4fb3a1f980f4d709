/* settings.c - the settings of `stoker server`, a row each; help and docs are printed from it. */
#include "server/settings.h"
#include "core/spec.h"
#include "io/url.h"
#include "meta/db_url.h"

#include <arpa/inet.h>

#define SQLITE "sqlite:"
#define DIR_ "dir:"
#define S3 "s3://"
#define OBJECTS_URL_MAX 8000
#define MEMORY_MIN ((uint64_t)64 << 20) /* less runs no job: another unit was meant */
#define NODE_LOST_MIN_S 10
#define ARTIFACT_BYTES_MIN ((uint64_t)64 << 10)
#define NODE_URLS_MAX 8
#define HF_ENDPOINT "https://huggingface.co"
#define AT(member) offsetof(struct settings, member)
/* clang-format off */
static const struct conf_row rows[] = {
	{"data", CONF_TEXT, AT(data), NULL, "DIR", "Basics",
	 "Folder of the database, the mirror, checkpoints, caches and logs, on a local disk. "
	 "Unset: $XDG_DATA_HOME/stoker, ~/.local/share/stoker"},
	{"database", CONF_TEXT, AT(database), NULL, "URL", "Basics",
	 "sqlite:FILE, or postgresql://[USER@]HOST[:PORT]/NAME[?OPTION=VALUE...] with libpq's options, variables and "
	 "password file. Unset: stoker.db in the data folder"},
	{"objects", CONF_TEXT, AT(objects), NULL, "URL", "Basics",
	 "Where code, checkpoints, logs and mirrored weights are kept: dir:DIR, or s3://BUCKET[/PREFIX], from which runners "
	 "and clients get them directly. Unset: objects in the data folder"},
	{"objects-endpoint", CONF_TEXT, AT(objects_endpoint), NULL, "URL", "Basics",
	 "The store of --objects s3://..., which runners and clients can reach too. Unset: AWS"},
	{"objects-credentials", CONF_TEXT, AT(objects_credentials), NULL, "FILE", "Basics",
	 "Its keys: the JSON of an S3 secret (aws_access_key_id, aws_secret_access_key, aws_session_token, aws_region), which "
	 "only this user can read. Unset: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION"},
	{"config", CONF_TEXT, AT(config), NULL, "FILE", "Basics", "YAML file with settings"},
	{"listen", CONF_TEXT, AT(listen), "127.0.0.1:8000", "ADDRESS:PORT", "Basics",
	 "Address to listen on; port 0 picks a free port"},
	{"base-url", CONF_TEXT, AT(base_url), NULL, "URL", "Basics",
	 "Public URL of the server. Unset: the address that the client used"},
	{"node-url", CONF_LIST, AT(node_url), NULL, "URL", "Basics",
	 "Where the runners of this server's jobs find the one that leads, in order, when this one is gone: its own URL and those of "
	 "the standbys. Unset: they wait for this one"},
	{"trusted-proxy", CONF_LIST, AT(trusted_proxy), NULL, "CIDR", "Basics",
	 "Reverse proxies whose X-Forwarded-Host and X-Forwarded-Proto are trusted. Unset: "
	 "those on "
	 "this machine"},
	{"tls-cert", CONF_TEXT, AT(tls_cert), NULL, "FILE", "Safety",
	 "Certificate chain (PEM): serve HTTPS"},
	{"tls-key", CONF_TEXT, AT(tls_key), NULL, "FILE", "Safety", "Its private key (PEM)"},
	{"insecure", CONF_BOOL, AT(insecure), "false", NULL, "Safety",
	 "Allow plain HTTP on an address that other machines can reach; tokens are sent "
	 "unencrypted"},
	{"allow-file-root", CONF_LIST, AT(allow_file_root), NULL, "DIR", "Sources",
	 "Folder that file:// weights may come from. Unset: none"},
	{"allow-source-network", CONF_LIST, AT(allow_source_network), NULL, "CIDR", "Sources",
	 "Private or loopback network that sources and webhooks may use. Unset: none"},
	{"hf-endpoint", CONF_TEXT, AT(hf_endpoint), NULL, "URL|off", "Sources",
	 "Hub for hf:// weights. Unset: " HF_ENDPOINT ", or none with --hub-upstream off. off: none, only this server's own repositories"},
	{"hub-upstream", CONF_TEXT, AT(hub_upstream), NULL, "URL|off", "Sources",
	 "Hub that this server mirrors for its clients (HF_ENDPOINT). Unset: that of --hf-endpoint. off: none"},
	{"hub-ttl", CONF_SECONDS, AT(hub_ttl), "60s", "TIME", "Sources",
	 "How long a branch of that Hub is taken for what it was before it is asked for again. A commit never changes"},
	{"hub-regular-bytes", CONF_BYTES, AT(hub_regular), "32MiB", "BYTES", "Sources",
	 "Largest file that clients of this server's own repositories send inside of a commit. Larger ones are uploaded on their own"},
	{"s3-endpoint", CONF_TEXT, AT(s3_endpoint), NULL, "URL", "Sources",
	 "Object store for s3:// weights. Unset: AWS"},
	{"allow-endpoint", CONF_LIST, AT(allow_endpoint), NULL, "HOST[:PORT]", "Sources",
	 "Host that jobs may use as `endpoint:` of a source, over HTTPS. http://HOST[:PORT] "
	 "allows plain HTTP; credentials are then sent unencrypted"},
	{"oidc-issuer", CONF_TEXT, AT(oidc_issuer), NULL, "URL", "Sources",
	 "What tokens of web identity (AWS_OIDC, GCP_OIDC) call their issuer. AWS gets URL/.well-known/openid-configuration and what "
	 "that names: from this server, or from copies. Unset: --base-url, or the address to listen on"},
	{"cpus", CONF_INT, AT(cpus), NULL, "N", "Machine",
	 "Total CPU cores for jobs. Unset: all"},
	{"memory", CONF_BYTES, AT(memory), NULL, "BYTES", "Machine",
	 "Total memory for jobs, such as 64G. Unset: all"},
	{"gpus", CONF_TEXT, AT(gpus), NULL, "TYPE:N", "Machine",
	 "GPUs of this machine, such as H100:2. Unset: detected through NVML"},
	{"images", CONF_CHOICE, AT(images), "auto", "auto|podman|host", "Jobs",
	 "auto or podman: jobs with a base_image run in podman, and are refused if podman is "
	 "missing. host: every job runs on the host's root file system, and its log says so"},
	{"sandbox", CONF_CHOICE, AT(sandbox), "auto", "auto|bwrap|podman|plain", "Jobs",
	 "Sandbox for jobs. auto picks the strongest that works when the server starts. If it "
	 "fails "
	 "for a job, that job does not run"},
	{"job-ids", CONF_TEXT, AT(job_ids), NULL, "FIRST-LAST", "Jobs",
	 "User and group IDs that jobs of a root server run as, a range of its own for each "
	 "job. No "
	 "account of this machine may use them. Unset: 1879048192-2147418111"},
	{"share", CONF_LIST, AT(share), NULL, "DIR", "Jobs",
	 "Host folder that jobs see read-only, under the same path"},
	{"backfill", CONF_BOOL, AT(backfill), "true", NULL, "Jobs",
	 "Start a job before one ahead of it in the queue if that does not delay the one ahead, "
	 "based on limits.max_duration. false: keep nodes free for the job ahead"},
	{"backfill-wait", CONF_SECONDS, AT(backfill_wait), "1h", "TIME", "Jobs",
	 "How long jobs without limits.max_duration may pass a job whose start time is unknown "
	 "because it waits for jobs without limits.max_duration"},
	{"max-priority", CONF_INT, AT(max_priority), "1000", "N", "Jobs",
	 "Highest priority that members may give a job. Administrators may use any"},
	{"max-waiting-jobs", CONF_INT, AT(max_waiting_jobs), "2000", "N", "Jobs",
	 "Number of jobs that a team may have waiting. Administrators may push more. 0: no limit"},
	{"scratch-size", CONF_BYTES, AT(scratch_bytes), "0", "BYTES", "Jobs",
	 "Bytes that a job may have on each node in its scratch, workspace and temporary folders "
	 "and in what it changes of the host's root or of its image. A job that has more is ended. 0: no limit"},
	{"scratch-files", CONF_INT, AT(scratch_files), "0", "N", "Jobs",
	 "Number of files and folders that a job may have there. 0: no limit, except that the job "
	 "that holds most inodes is ended when few are left"},
	{"node-lost", CONF_SECONDS, AT(node_lost), "90s", "TIME", "Jobs",
	 "After a takeover: a job whose runner is on another server's machine and was not heard of for so long is lost "
	 "(retry: node_fail). At least 10s"},
	{"grace", CONF_SECONDS, AT(grace), "30s", "TIME", "Jobs",
	 "Time for open requests to finish at shutdown; jobs keep running without the server"},
	{"mirror-bytes", CONF_BYTES, AT(mirror_bytes), NULL, "BYTES", "Storage",
	 "Size limit of the mirror, which keeps the weights of all jobs. Sources that no job needs "
	 "are evicted, least recently used first. A file counts once, although the node cache "
	 "links to it. Unset: 80 % of the disk"},
	{"node-cache-bytes", CONF_BYTES, AT(node_cache_bytes), "200G", "BYTES", "Storage",
	 "Size limit of the node cache, which holds the weights and Python environments of jobs"},
	{"cache-quota", CONF_BYTES, AT(cache_quota), "1TB", "BYTES", "Storage",
	 "Cache quota of a new project"},
	{"repo-quota", CONF_BYTES, AT(repo_quota), "1TB", "BYTES", "Storage",
	 "Quota of the repositories of a team, with all of their commits"},
	{"artifact-bytes", CONF_BYTES, AT(artifact_bytes), "20GiB", "BYTES", "Storage",
	 "Size limit of the artifacts that ccache, sccache and Bazel keep here. Where there are more, the namespace that has "
	 "most loses what it has not used for longest"},
	{"workers", CONF_INT, AT(workers), "16", "N", "Server", "Threads that answer requests"},
	{"connections-per-address", CONF_INT, AT(connections_per_address), "512", "N", "Server",
	 "Limit of connections per client address (per /64 network with IPv6), out of 4096 in all. "
	 "Loopback is exempt. 0: no limit, for a proxy on another machine"},
	{"log-level", CONF_CHOICE, AT(log_level), "info", "debug|info|warn|error", "Server",
	 "Minimum level written to stderr"},
	{"log-json", CONF_BOOL, AT(log_json), "false", NULL, "Server", "Log as JSON, one object per line"},
	{"standby", CONF_BOOL, AT(standby), "false", NULL, "Server",
	 "Wait until the server that uses the same --database is gone, then take over. Needs postgresql: and its master.key"},
	{"check", CONF_BOOL, AT(check), "false", NULL, "Server",
	 "Compare the database with the files, print what is wrong, and exit"},
	{"move-database", CONF_PAIR, AT(move_database), NULL, "FROM TO", "Server",
	 "Copy all rows from one database to another that is new (URLs as of --database), compare them, and exit. No server "
	 "may use either. When it is interrupted, the next call goes on"},
};
/* clang-format on */
#undef AT

static const char usage[] =
	"usage: stoker server [--setting VALUE]...\n"
	"\n"
	"Runs the server in the foreground. Each setting is a flag\n"
	"--some-name, a variable STOKER_SOME_NAME and a key some_name in --config FILE (YAML);\n"
	"flags override variables, variables override the file. To give a list, repeat the flag;\n"
	"in a variable, separate items with commas.\n"
	"\n";

void settings_help(struct buf *out)
{
	buf_puts(out, usage);
	conf_help(rows, COUNT(rows), out);
}

void settings_reference(struct buf *out)
{
	buf_puts(out,
	         "# Settings of `stoker server`\n\n"
	         "Each is a flag `--some-name`, a variable `STOKER_SOME_NAME` and a key\n"
	         "`some_name` in the YAML file that `--config` names. To give a list, repeat the\n"
	         "flag, separate items with commas in a variable, or use a YAML list in the "
	         "file.\n\n");
	conf_reference(rows, COUNT(rows), out);
}

static bool is_loopback(const char *host)
{
	struct in6_addr six;
	struct in_addr four;

	if (strcmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &four) == 1)
		return (ntohl(four.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

int settings_address(struct arena *a, const char *listen, const char **host, uint16_t *port,
                     bool *loopback, struct err *err)
{
	const char *colon = strrchr(listen, ':');
	struct str h;
	uint64_t n = 0;

	if (colon == NULL)
		return err_set(err, ERR_INVALID,
		               "--listen \"%s\": ADDRESS:PORT is expected, such as"
		               " 127.0.0.1:8000",
		               listen);
	h = str_n(listen, (size_t)(colon - listen));
	if (h.n >= 2 && h.p[0] == '[' && h.p[h.n - 1] == ']')
		h = str_n(h.p + 1, h.n - 2);
	if (h.n == 0)
		return err_set(err, ERR_INVALID, "--listen \"%s\": the address is missing", listen);
	if (str_u64(str_of(colon + 1), 0, 65535, &n, err) < 0)
		return err_wrap(err, "--listen \"%s\": port", listen);
	*host = arena_strz(a, h);
	*port = (uint16_t)n;
	*loopback = is_loopback(*host);
	return 0;
}

int settings_exposure(struct arena *a, const struct settings *s, struct err *err)
{
	const char *host = NULL;
	uint16_t port = 0;
	bool loopback = false;

	if (settings_address(a, s->listen, &host, &port, &loopback, err) < 0)
		return -1;
	if (loopback || s->tls_cert != NULL || s->insecure)
		return 0;
	return err_set(err, ERR_INVALID,
	               "--listen %s is open to other machines, and without TLS tokens are sent"
	               " unencrypted: give --tls-cert and --tls-key, listen on 127.0.0.1"
	               " behind a proxy, or pass --insecure",
	               s->listen);
}

static const char *default_data(struct arena *a)
{
	const char *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (xdg != NULL && xdg[0] == '/')
		return arena_printf(a, "%s/stoker", xdg);
	return home != NULL && home[0] == '/' ? arena_printf(a, "%s/.local/share/stoker", home)
	                                      : NULL;
}

static int check_url(struct arena *a, const char *flag, const char *text, struct err *err)
{
	struct url u;

	if (text != NULL && url_parse(a, str_of(text), &u, err) < 0)
		return err_wrap(err, "--%s \"%s\"", flag, text);
	return 0;
}

/* Paths are put behind it. */
static int check_issuer(struct arena *a, const char *text, struct err *err)
{
	struct url u;

	if (text == NULL)
		return 0;
	if (url_parse(a, str_of(text), &u, err) < 0)
		return err_wrap(err, "--oidc-issuer \"%s\"", text);
	if (u.user == NULL && u.query == NULL)
		return 0;
	return err_set(err, ERR_INVALID,
	               "--oidc-issuer should be https://HOST[/PATH] without a user and a query");
}

bool settings_is_off(const char *hub)
{
	return strcmp(hub, "off") == 0;
}

static int check_hub(struct arena *a, const char *flag, const char *text, struct err *err)
{
	return settings_is_off(text) ? 0 : check_url(a, flag, text, err);
}

int settings_endpoint(struct arena *a, const char *text, struct url *out, struct err *err)
{
	const char *url = strstr(text, "://") != NULL ? text : arena_printf(a, "https://%s", text);

	if (url_parse(a, str_of(url), out, err) < 0)
		return -1;
	if (out->user != NULL || out->query != NULL || strcmp(out->path, "/") != 0)
		return err_set(err, ERR_INVALID, "should be HOST or HOST:PORT");
	return 0;
}

static int check_folders(const char *flag, const struct conf_list *l, struct err *err)
{
	for (size_t i = 0; i < l->n; i++) {
		struct stat st;

		if (l->item[i][0] != '/')
			return err_set(err, ERR_INVALID,
			               "--%s \"%s\": an absolute path is expected", flag,
			               l->item[i]);
		if (stat(l->item[i], &st) < 0)
			return err_errno(err, errno, "--%s %s: must be a folder of this machine",
			                 flag, l->item[i]);
		if (!S_ISDIR(st.st_mode))
			return err_set(err, ERR_INVALID, "--%s %s: not a folder", flag, l->item[i]);
	}
	return 0;
}

const char *settings_sqlite_file(const char *url)
{
	return strncmp(url, SQLITE, strlen(SQLITE)) == 0 ? url + strlen(SQLITE) : NULL;
}

static int check_database(const char *flag, const char *url, struct err *err)
{
	static const char *const schemes[] = {SQLITE, "postgresql://", "postgres://"};

	for (size_t i = 0; i < COUNT(schemes); i++)
		if (url == NULL || strncmp(url, schemes[i], strlen(schemes[i])) == 0)
			return url != NULL && db_url_check(url, err) < 0
			               ? err_wrap(err, "--%s", flag)
			               : 0;
	/* what was given may have a password */
	return err_set(err, ERR_INVALID,
	               "--%s should be sqlite:FILE or postgresql://[USER@]HOST[:PORT]/NAME", flag);
}

static int check_objects(struct arena *a, const struct settings *s, struct err *err)
{
	const char *url = s->objects;
	bool s3 = url != NULL && strncmp(url, S3, strlen(S3)) == 0;
	struct str rest = {0}, bucket = {0};
	struct url u;

	if (!s3 && (s->objects_endpoint != NULL || s->objects_credentials != NULL))
		return err_set(err, ERR_INVALID,
		               "--objects-endpoint and --objects-credentials belong to --objects "
		               "s3://BUCKET[/PREFIX]");
	if (url == NULL || (strncmp(url, DIR_, strlen(DIR_)) == 0 && url[strlen(DIR_)] == '/'))
		return 0;
	if (!s3)
		return err_set(err, ERR_INVALID,
		               "--objects \"%s\" should be dir:/DIR or s3://BUCKET[/PREFIX]", url);
	rest = str_of(url + strlen(S3));
	if (!str_cut(&rest, '/', &bucket) || !spec_bucket_ok(bucket))
		return err_set(err, ERR_INVALID,
		               "--objects \"%s\": a bucket's name has 3 to 63 letters, digits, "
		               "'.', '_' and '-'",
		               url);
	if (s->objects_endpoint != NULL && settings_endpoint(a, s->objects_endpoint, &u, err) < 0)
		return err_wrap(err, "--objects-endpoint \"%s\"", s->objects_endpoint);
	return 0;
}

const char *settings_objects_url(struct arena *a, const struct settings *s, const char *region)
{
	AUTO_BUF struct buf place = BUF_INIT(OBJECTS_URL_MAX);
	struct err no = {0};
	struct url u;

	if (s->objects == NULL || strncmp(s->objects, S3, strlen(S3)) != 0)
		return s->objects;
	if (s->objects_endpoint == NULL)
		buf_printf(&place, "s3:https://s3.%s.amazonaws.com/", region);
	else if (settings_endpoint(a, s->objects_endpoint, &u, &no) == 0)
		buf_printf(&place, "s3:%s/", url_origin(a, u.scheme, u.host, u.port));
	url_encode(str_of(s->objects + strlen(S3)), true, &place);
	return arena_strz(a, buf_view(&place));
}

static int check_move(const struct conf_list *ends, struct err *err)
{
	if (ends->n != 0 && ends->n != 2)
		return err_set(err, ERR_INVALID, "--move-database wants two URLs: FROM TO");
	for (size_t i = 0; i < ends->n; i++)
		if (check_database("move-database", ends->item[i], err) < 0)
			return -1;
	if (ends->n == 2 && strcmp(ends->item[0], ends->item[1]) == 0)
		return err_set(err, ERR_INVALID, "--move-database names the same database twice");
	return 0;
}

/* URL[,URL]: as in a variable, for a flag too. */
static void split_commas(struct arena *a, struct conf_list *l)
{
	const char **all = ARENA_ARRAY(a, const char *, NODE_URLS_MAX + 1);
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		struct str rest = str_of(l->item[i]), one = {0};

		while (n <= NODE_URLS_MAX && str_cut(&rest, ',', &one))
			all[n++] = arena_strz(a, str_trim(one));
	}
	*l = (struct conf_list){all, n};
}

static int check_node_urls(struct arena *a, const struct settings *s, struct err *err)
{
	if (s->node_url.n > NODE_URLS_MAX)
		return err_set(err, ERR_INVALID, "--node-url: at most %d addresses", NODE_URLS_MAX);
	for (size_t i = 0; i < s->node_url.n; i++) {
		struct url u;

		if (url_parse(a, str_of(s->node_url.item[i]), &u, err) < 0)
			return err_wrap(err, "--node-url \"%s\"", s->node_url.item[i]);
		if (u.user != NULL || u.query != NULL)
			return err_set(err, ERR_INVALID,
			               "--node-url should be http(s)://HOST[:PORT] without a user "
			               "and a query");
		if (strcmp(u.scheme, "http") == 0 && !is_loopback(u.host) && !s->insecure)
			return err_set(
				err, ERR_INVALID,
				"--node-url %s: tokens of runners would be sent unencrypted: "
				"use https://, or pass --insecure",
				s->node_url.item[i]);
	}
	return 0;
}

static int check_standby(const struct settings *s, struct err *err)
{
	if (!s->standby)
		return 0;
	if (s->database == NULL || settings_sqlite_file(s->database) != NULL)
		return err_set(
			err, ERR_INVALID,
			"--standby needs --database postgresql://..., which two machines can "
			"reach; SQLite is a file of one");
	if (s->objects == NULL)
		return err_set(
			err, ERR_INVALID,
			"--standby needs the leader's --objects: s3://..., or dir:DIR on a file "
			"system that both machines mount");
	if (s->check || s->move_database.n > 0)
		return err_set(err, ERR_INVALID,
		               "--standby does not go with --check and --move-database");
	return 0;
}

/* Checks values whose mistakes would otherwise show in the first job that needs them. */
static int check_values(struct arena *a, const struct settings *s, struct err *err)
{
	if (s->cpus < 0 || s->workers < 1 || s->workers > 256)
		return err_set(err, ERR_INVALID,
		               "--cpus must be 0 or more, --workers from 1 to 256");
	if (s->scratch_files < 0)
		return err_set(err, ERR_INVALID, "--scratch-files must be 0 or more");
	if (s->max_waiting_jobs < 0)
		return err_set(err, ERR_INVALID, "--max-waiting-jobs must be 0 or more");
	if (s->node_lost < NODE_LOST_MIN_S)
		return err_set(err, ERR_INVALID,
		               "--node-lost must be %ds or more: runners report every 2 s, and "
		               "look for a new server for longer",
		               NODE_LOST_MIN_S);
	if (s->memory > 0 && s->memory < MEMORY_MIN)
		return err_set(err, ERR_UNIT_MISSING,
		               "--memory %" PRIu64 " is %" PRIu64
		               " bytes: write the unit, as in %" PRIu64 "G",
		               s->memory, s->memory, s->memory);
	if (s->connections_per_address < 0 || s->connections_per_address > 4096)
		return err_set(err, ERR_INVALID,
		               "--connections-per-address must be from 0 to 4096");
	if (s->repo_quota == 0)
		return err_set(err, ERR_INVALID,
		               "--repo-quota: 0 bytes are no quota; say how much a team may have");
	if (s->artifact_bytes < ARTIFACT_BYTES_MIN)
		return err_set(
			err, ERR_INVALID,
			"--artifact-bytes: less than 64 KiB keep nothing; was a unit forgotten?");
	if (check_database("database", s->database, err) < 0 || check_objects(a, s, err) < 0 ||
	    check_move(&s->move_database, err) < 0 || check_standby(s, err) < 0 ||
	    check_node_urls(a, s, err) < 0 || check_url(a, "base-url", s->base_url, err) < 0 ||
	    check_issuer(a, s->oidc_issuer, err) < 0 ||
	    check_hub(a, "hf-endpoint", s->hf_endpoint, err) < 0 ||
	    check_hub(a, "hub-upstream", s->hub_upstream, err) < 0 ||
	    check_url(a, "s3-endpoint", s->s3_endpoint, err) < 0)
		return -1;
	for (size_t i = 0; i < s->allow_endpoint.n; i++) {
		struct url u;

		if (settings_endpoint(a, s->allow_endpoint.item[i], &u, err) < 0)
			return err_wrap(err, "--allow-endpoint \"%s\"", s->allow_endpoint.item[i]);
	}
	if (check_folders("allow-file-root", &s->allow_file_root, err) < 0 ||
	    check_folders("share", &s->share, err) < 0)
		return -1;
	return 0;
}

int settings_load(struct arena *a, int argc, char **argv, struct settings *out, struct err *err)
{
	struct settings s = {0};

	if (conf_load(a, rows, COUNT(rows), argc, argv, &s, err) < 0)
		return -1;
	if (s.data == NULL)
		s.data = default_data(a);
	if (s.data == NULL)
		return err_set(err, ERR_INVALID, "--data DIR is missing, and HOME is not set");
	if ((s.tls_cert == NULL) != (s.tls_key == NULL))
		return err_set(err, ERR_INVALID, "--tls-cert and --tls-key must be given together");
	if (settings_exposure(a, &s, err) < 0)
		return -1;
	split_commas(a, &s.node_url);
	if (s.hf_endpoint == NULL)
		s.hf_endpoint = s.hub_upstream != NULL && settings_is_off(s.hub_upstream)
		                        ? "off"
		                        : HF_ENDPOINT;
	if (s.hub_upstream == NULL)
		s.hub_upstream = s.hf_endpoint;
	if (check_values(a, &s, err) < 0)
		return -1;
	*out = s;
	return 0;
}
