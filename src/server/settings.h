/* settings.h - the table of the server's settings, and what follows from them. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "base/conf.h"
#include "io/url.h"

struct settings {
	const char *data, *database, *config, *listen, *base_url, *oidc_issuer;
	const char *objects, *objects_endpoint, *objects_credentials;
	struct conf_list allow_file_root, allow_source_network, allow_endpoint, share,
		trusted_proxy, move_database, node_url;
	const char *hf_endpoint, *hub_upstream, *s3_endpoint;
	uint64_t hub_ttl, hub_regular, repo_quota, artifact_bytes;
	int64_t cpus;
	uint64_t memory;
	const char *gpus, *images, *sandbox, *job_ids;
	const char *tls_cert, *tls_key;
	bool insecure, log_json, backfill, check, standby;
	const char *log_level;
	uint64_t mirror_bytes, node_cache_bytes, cache_quota, grace, backfill_wait, scratch_bytes,
		node_lost;
	int64_t workers, connections_per_address, max_priority, max_waiting_jobs, scratch_files;
};

/* argv without the program's and the role's name. Checks what can be checked without touching
 * anything: address, TLS pair, networks. */
int settings_load(struct arena *a, int argc, char **argv, struct settings *out,
                  struct err *err) MUST_CHECK;
void settings_help(struct buf *out);
void settings_reference(struct buf *out);

/* ERR_INVALID when tokens would travel readable to other machines, and nobody said --insecure. */
int settings_exposure(struct arena *a, const struct settings *s, struct err *err) MUST_CHECK;
/* "127.0.0.1:8000", "[::1]:0", "localhost:8000": host without brackets, and whether only this
 * machine reaches it. */
int settings_address(struct arena *a, const char *listen, const char **host, uint16_t *port,
                     bool *loopback, struct err *err) MUST_CHECK;

/* The file of --database sqlite:FILE; NULL: another URL. */
const char *settings_sqlite_file(const char *url);
/* "dir:" or "s3:" and where, as objstore_open wants it; region NULL: that of the endpoint. */
const char *settings_objects_url(struct arena *a, const struct settings *s, const char *region);

/* Of hf_endpoint and hub_upstream: no other Hub. */
bool settings_is_off(const char *hub);
/* An item of allow_endpoint as a URL. */
int settings_endpoint(struct arena *a, const char *text, struct url *out,
                      struct err *err) MUST_CHECK;

#endif
