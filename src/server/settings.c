/* settings.c - the settings of `stoker server`, a row each; help and docs are printed from it. */
#include "server/settings.h"
#include "io/url.h"

#include <arpa/inet.h>

#define AT(member) offsetof(struct settings, member)
/* clang-format off */
static const struct conf_row rows[] = {
	{"data", CONF_TEXT, AT(data), NULL, "DIR", "Basics",
	 "Folder of the database, the mirror, checkpoints, caches and logs, on a local disk. "
	 "Unset: $XDG_DATA_HOME/stoker, ~/.local/share/stoker"},
	{"config", CONF_TEXT, AT(config), NULL, "FILE", "Basics", "Settings as a YAML map"},
	{"listen", CONF_TEXT, AT(listen), "127.0.0.1:8000", "ADDRESS:PORT", "Basics",
	 "Where to listen; port 0 takes any free one"},
	{"base-url", CONF_TEXT, AT(base_url), NULL, "URL", "Basics",
	 "What clients are told to come back to, behind a proxy. Unset: the listen address"},
	{"tls-cert", CONF_TEXT, AT(tls_cert), NULL, "FILE", "Safety",
	 "Certificate chain (PEM): serve HTTPS"},
	{"tls-key", CONF_TEXT, AT(tls_key), NULL, "FILE", "Safety", "Its private key (PEM)"},
	{"insecure", CONF_BOOL, AT(insecure), "false", NULL, "Safety",
	 "Serve plain HTTP on an address that other machines reach: tokens travel readable"},
	{"allow-file-root", CONF_LIST, AT(allow_file_root), NULL, "DIR", "Sources",
	 "Folder that file:// weights may be read from; none unless given"},
	{"allow-source-network", CONF_LIST, AT(allow_source_network), NULL, "CIDR", "Sources",
	 "Private addresses that sources may live on; loopback and private ones are refused "
	 "otherwise"},
	{"hf-endpoint", CONF_TEXT, AT(hf_endpoint), "https://huggingface.co", "URL", "Sources",
	 "Hub that hf:// weights come from"},
	{"s3-endpoint", CONF_TEXT, AT(s3_endpoint), NULL, "URL", "Sources",
	 "Store that s3:// weights come from. Unset: AWS"},
	{"allow-endpoint", CONF_LIST, AT(allow_endpoint), NULL, "HOST[:PORT]", "Sources",
	 "Host that jobs may name in `endpoint:` of a source, over https. http://HOST[:PORT] "
	 "allows plain HTTP to it: then tokens travel readable"},
	{"cpus", CONF_INT, AT(cpus), NULL, "N", "Machine",
	 "CPU cores that jobs may use together. Unset: all"},
	{"memory", CONF_BYTES, AT(memory), NULL, "BYTES", "Machine",
	 "Memory that jobs may use together. Unset: all"},
	{"gpus", CONF_TEXT, AT(gpus), NULL, "TYPE:N", "Machine",
	 "Declared GPUs, in place of what NVML finds, such as H100:2"},
	{"images", CONF_CHOICE, AT(images), "auto", "auto|podman|host", "Jobs",
	 "auto: a job that names a base_image runs it under podman, and is refused where "
	 "that is missing; host: every job runs on this machine's root, its log says so"},
	{"sandbox", CONF_CHOICE, AT(sandbox), "auto", "auto|bwrap|podman|plain", "Jobs",
	 "How jobs are kept apart; auto takes the best that works when the server starts. A job "
	 "for which it fails does not run"},
	{"share", CONF_LIST, AT(share), NULL, "DIR", "Jobs",
	 "Folder of this machine that jobs see read-only at its own place"},
	{"backfill", CONF_BOOL, AT(backfill), "true", NULL, "Jobs",
	 "Let a job start before one ahead of it in line when that does not delay the one ahead, "
	 "judged by limits.max_duration. false: no job starts on a node that one ahead waits for"},
	{"backfill-wait", CONF_SECONDS, AT(backfill_wait), "1h", "TIME", "Jobs",
	 "How long jobs without limits.max_duration may overtake a job whose start cannot be told, "
	 "because it waits for jobs without limits.max_duration"},
	{"grace", CONF_SECONDS, AT(grace), "30s", "TIME", "Jobs",
	 "At shutdown, how long open requests may take; jobs go on without the server"},
	{"node-cache-bytes", CONF_BYTES, AT(node_cache_bytes), "200G", "BYTES", "Storage",
	 "Budget of the node cache: weights laid out for jobs, hard links to the mirror "
	 "where they can be"},
	{"cache-quota", CONF_BYTES, AT(cache_quota), "1TB", "BYTES", "Storage",
	 "Training cache of a new project"},
	{"workers", CONF_INT, AT(workers), "16", "N", "Server", "Threads that answer requests"},
	{"connections-per-address", CONF_INT, AT(connections_per_address), "512", "N", "Server",
	 "Most connections of one client address (of one /64 network with IPv6), so that one "
	 "machine cannot take all 4096. Loopback is not counted. 0: no limit, for a proxy on "
	 "another machine"},
	{"log-level", CONF_CHOICE, AT(log_level), "info", "debug|info|warn|error", "Server",
	 "Least level written to stderr"},
	{"log-json", CONF_BOOL, AT(log_json), "false", NULL, "Server", "Log JSON objects, one a line"},
	{"check", CONF_BOOL, AT(check), "false", NULL, "Server",
	 "Compare database, manifests and blobs, print what is wrong, and end"},
};
/* clang-format on */
#undef AT

static const char usage[] =
	"usage: stoker server [--setting VALUE]...\n"
	"\n"
	"Runs the control plane and every HTTP face in the foreground. Each setting is a flag\n"
	"--some-name, a variable STOKER_SOME_NAME and a key some_name in --config FILE (YAML);\n"
	"flags win over variables, variables over the file. Lists repeat the flag; in a\n"
	"variable, commas part them.\n"
	"\n";

void settings_help(struct buf *out)
{
	buf_puts(out, usage);
	conf_help(rows, COUNT(rows), out);
}

void settings_reference(struct buf *out)
{
	buf_puts(out, "# Settings of `stoker server`\n\n"
	              "Each is a flag `--some-name`, a variable `STOKER_SOME_NAME` and a key\n"
	              "`some_name` in the YAML file that `--config` names. Lists repeat the flag;\n"
	              "in a variable, commas part them; in the file they are YAML lists.\n\n");
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

int settings_endpoint(struct arena *a, const char *text, struct url *out, struct err *err)
{
	const char *url = strstr(text, "://") != NULL ? text : arena_printf(a, "https://%s", text);

	if (url_parse(a, str_of(url), out, err) < 0)
		return -1;
	if (out->user != NULL || out->query != NULL || strcmp(out->path, "/") != 0)
		return err_set(err, ERR_INVALID, "should be a host, with a port if need be");
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
			return err_errno(err, errno,
			                 "--%s %s: a folder of this machine is expected", flag,
			                 l->item[i]);
		if (!S_ISDIR(st.st_mode))
			return err_set(err, ERR_INVALID, "--%s %s is no folder", flag, l->item[i]);
	}
	return 0;
}

/* What would else come to light in the first job that needs it. */
static int check_values(struct arena *a, const struct settings *s, struct err *err)
{
	if (s->cpus < 0 || s->workers < 1 || s->workers > 256)
		return err_set(err, ERR_INVALID, "--cpus from 0, --workers from 1 to 256");
	if (s->connections_per_address < 0 || s->connections_per_address > 4096)
		return err_set(err, ERR_INVALID, "--connections-per-address from 0 to 4096");
	if (check_url(a, "base-url", s->base_url, err) < 0 ||
	    check_url(a, "hf-endpoint", s->hf_endpoint, err) < 0 ||
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
	const char *host = NULL;
	uint16_t port = 0;
	bool loopback = false;

	if (conf_load(a, rows, COUNT(rows), argc, argv, &s, err) < 0)
		return -1;
	if (s.data == NULL)
		s.data = default_data(a);
	if (s.data == NULL)
		return err_set(err, ERR_INVALID, "--data DIR is missing, and HOME is not set");
	if (settings_address(a, s.listen, &host, &port, &loopback, err) < 0)
		return -1;
	if ((s.tls_cert == NULL) != (s.tls_key == NULL))
		return err_set(err, ERR_INVALID, "--tls-cert and --tls-key belong together");
	if (!loopback && s.tls_cert == NULL && !s.insecure)
		return err_set(
			err, ERR_INVALID,
			"--listen %s is reached by other machines, and without TLS every token"
			" travels readable: give --tls-cert and --tls-key, listen on 127.0.0.1"
			" behind a proxy, or insist with --insecure",
			s.listen);
	if (check_values(a, &s, err) < 0)
		return -1;
	*out = s;
	return 0;
}
