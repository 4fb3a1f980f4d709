/*
 * bench_store.c - the store layer and the machine's limits, one process a measurement, so that
 * bench.py can compare wall time, CPU and memory with other programs. Prints one line of JSON.
 *
 *   fetch SOURCE DIR    a source into blobs and a manifest: listed, fetched, verified
 *   put STORE KEY FILE  one file into an object store, hashed on its way
 *   walk DIR            what a tree holds
 *   puts STORE COUNT    so many objects of 4 KiB, 16 at once
 *
 * and the limits, in the folder where it runs:
 *
 *   drain URL STREAMS   of a fetch: an object over raw sockets, thrown away by the kernel
 *   memory MIB          of the machine: copying, hashing, fresh pages of a file
 *   files COUNT BYTES   of small files: one written under a new name, one looked at
 *   spawn COUNT         of a start: fork and exec of a program that does nothing
 *
 * Keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY. Endpoints: BENCH_S3, BENCH_HF; BENCH_ENDPOINT and
 * BENCH_SECRET of any other source. BENCH_CA: a file of certificates to trust.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/json.h"
#include "io/sigv4.h"
#include "store/sources/mirror.h"
#include "store/objects/objstore_fetch.h"
#include "store/common/crew.h"
#include "store/common/usage.h"

#include <netdb.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define DRAIN_MAX 16
#define THREADS_MAX 64
#define ARG_FILES "/"

static double seconds(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(struct js *js, struct buf *out)
{
	js_close(js);
	printf("%s\n", buf_cstr(out));
}

static struct sigv4_key keys(void)
{
	return (struct sigv4_key){.access_key = getenv("AWS_ACCESS_KEY_ID"),
	                          .secret_key = getenv("AWS_SECRET_ACCESS_KEY"),
	                          .region = "us-east-1",
	                          .service = "s3"};
}

/* --- the store layer ------------------------------------------------------------------------- */

static int fetch(char **arg, struct err *err)
{
	struct http_policy open_policy = {.ca_file = getenv("BENCH_CA")};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BLOBS struct blobs *blobs = NULL;
	AUTO_SOURCE struct source *source = NULL;
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	const char *const roots[] = {ARG_FILES};
	struct sigv4_key key = keys();
	struct source_options o = {.client = client,
	                           .endpoint = getenv("BENCH_ENDPOINT"),
	                           .hf_endpoint = getenv("BENCH_HF"),
	                           .s3_endpoint = getenv("BENCH_S3"),
	                           .file_roots = roots,
	                           .n_file_roots = COUNT(roots)};
	const char *secret = getenv("BENCH_SECRET");
	struct source_listing listing;
	struct mirror_progress done;
	struct digest manifest;
	char hex[HASH_HEX_CAP];
	struct js js;

	if (secret != NULL)
		o.secret = str_of(secret);
	else if (str_starts(str_of(arg[0]), "s3:"))
		o.secret = str_of(arena_printf(
			a, "{\"aws_access_key_id\":\"%s\",\"aws_secret_access_key\":\"%s\"}",
			key.access_key, key.secret_key));
	if (source_open(&source, arg[0], &o, err) < 0 ||
	    source_list(source, a, NULL, NULL, &listing, err) < 0 ||
	    blobs_open(&blobs, arg[1], err) < 0)
		return -1;
	{
		AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(blobs);
		struct mirror_job job = {
			.blobs = blobs, .pins = pins, .source = source, .listing = &listing};

		if (mirror_fetch(&job, &manifest, &done, err) < 0)
			return -1;
	}
	digest_hex(&manifest, hex);
	js_init(&js, &out);
	js_open(&js);
	js_kv_u64(&js, "files", done.files_done);
	js_kv_u64(&js, "bytes", done.bytes_done);
	js_kv_u64(&js, "fetched", done.fetched);
	js_kv(&js, "manifest", hex);
	say(&js, &out);
	return 0;
}

static int put(char **arg, struct err *err)
{
	struct http_policy open_policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	struct objstore_env env = {.client = client, .key = keys()};
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	AUTO_FD int fd = open(arg[2], O_RDONLY | O_CLOEXEC);
	char hex[HASH_HEX_CAP];
	struct digest sha256;
	struct stat st;
	struct js js;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", arg[2]);
	if (objstore_open(&os, arg[0], &env, err) < 0 ||
	    objstore_put_file(os, arg[1], fd, (uint64_t)st.st_size, NULL, &sha256, NULL, NULL, NULL,
	                      err) < 0)
		return -1;
	digest_hex(&sha256, hex);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "sha256", hex);
	js_kv_u64(&js, "bytes", (uint64_t)st.st_size);
	say(&js, &out);
	return 0;
}

#define PUT_BYTES 4096
#define PUTS_AT_ONCE 16

static int put_small(void *arg, size_t i, const atomic_bool *stop UNUSED, struct err *err)
{
	char key[40], body[PUT_BYTES];

	memset(body, (int)(i & 0xff), sizeof(body));
	FMT(key, "puts/%zu", i);
	return objstore_put(arg, key, str_n(body, sizeof(body)), err);
}

/* What a store takes of small objects, from one who has its keys and nothing else to do. */
static int puts_many(char **arg, struct err *err)
{
	struct http_policy open_policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	struct objstore_env env = {.client = client, .key = keys()};
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	struct crew_job all = {
		.n = strtoul(arg[1], NULL, 10), .threads = PUTS_AT_ONCE, .run = put_small};
	double since = seconds();
	struct js js;

	if (objstore_open(&os, arg[0], &env, err) < 0)
		return -1;
	all.arg = os;
	if (crew_run(&all, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv_real(&js, "seconds", seconds() - since);
	say(&js, &out);
	return 0;
}

/* An object into a file, verified: `arg` is store, key, digest, file. */
static int open_load(char **arg, struct http_client *client, struct objstore **os,
                     struct objstore_info *info, struct digest *want, int *fd, struct err *err)
{
	struct objstore_env env = {.client = client, .key = keys()};

	*fd = open(arg[3], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (*fd < 0)
		return err_errno(err, errno, "%s", arg[3]);
	return objstore_open(os, arg[0], &env, err) < 0 ||
	                       objstore_stat(*os, arg[1], info, err) < 0 ||
	                       digest_parse(str_of(arg[2]), want, err) < 0
	               ? -1
	               : 0;
}

static void say_loaded(const struct objstore_info *info)
{
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv_u64(&js, "bytes", info->size);
	say(&js, &out);
}

static int load(char **arg, struct err *err)
{
	struct http_policy open_policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_FD int fd = -1;
	struct objstore_info info;
	struct digest want;
	struct objstore_fetch f = {.key = arg[1], .sha256 = &want};

	if (open_load(arg, client, &os, &info, &want, &fd, err) < 0)
		return -1;
	f.size = info.size;
	f.fd = fd;
	if (objstore_fetch(os, &f, err) < 0)
		return -1;
	say_loaded(&info);
	return 0;
}

struct one_stream {
	struct hash *hash;
	int fd;
};

static int hash_and_write(void *arg, const void *p, size_t n, struct err *err)
{
	struct one_stream *o = arg;

	hash_add(o->hash, p, n);
	return fs_write_all(o->fd, p, n, err);
}

/* As it was done before: each piece is read, hashed and written by one thread. */
static int load_one_stream(char **arg, struct err *err)
{
	struct http_policy open_policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	AUTO_OBJSTORE struct objstore *os = NULL;
	AUTO_HASH struct hash *hash = hash_new(HASH_SHA256);
	AUTO_FD int fd = -1;
	struct objstore_info info;
	struct digest want, got;
	struct one_stream o = {.hash = hash};

	if (open_load(arg, client, &os, &info, &want, &fd, err) < 0)
		return -1;
	o.fd = fd;
	if (objstore_read(os, arg[1], 0, info.size, hash_and_write, &o, NULL, err) < 0)
		return -1;
	(void)hash_end(hash, got.b);
	if (!digest_same(&got, &want))
		return err_set(err, ERR_CORRUPT, "another digest");
	say_loaded(&info);
	return 0;
}

static int walk(char **arg, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	struct usage_total total;
	struct js js;

	if (usage_walk(arg[0], 0, NULL, NULL, NULL, &total, err) < 0)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv_u64(&js, "files", total.files);
	js_kv_u64(&js, "folders", total.folders);
	js_kv_u64(&js, "bytes", total.bytes);
	js_kv_u64(&js, "disk_bytes", total.disk_bytes);
	say(&js, &out);
	return 0;
}

/* --- limits: the wire ------------------------------------------------------------------------ */

struct drain {
	const struct url *url;
	const char *target; /* path and query, as sent */
	uint64_t first, size, got;
	pthread_t thread;
	struct err err;
};

static int dial(const struct url *u, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char port[8];
	int fd = -1;

	FMT(port, "%u", (unsigned)u->port);
	if (getaddrinfo(u->host, port, &hints, &list) != 0)
		return err_set(err, ERR_UNAVAILABLE, "%s has no address", u->host);
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) < 0) {
		(void)close(fd);
		fd = -1;
	}
	freeaddrinfo(list);
	return fd >= 0 ? fd : err_errno(err, errno, "%s:%s", u->host, port);
}

/* The head of the answer; bytes of the body that came with it are counted. */
static int drain_head(struct drain *d, int fd, struct err *err)
{
	char head[8192 + 1];
	size_t n = 0;
	ssize_t got;
	char *end;

	do {
		got = recv(fd, head + n, sizeof(head) - 1 - n, 0);
		if (got <= 0)
			return err_set(err, ERR_UNAVAILABLE, "no head of an answer");
		n += (size_t)got;
		head[n] = '\0';
		end = strstr(head, "\r\n\r\n");
	} while (end == NULL && n < sizeof(head) - 1);
	if (end == NULL || strncmp(head, "HTTP/1.1 206", 12) != 0)
		return err_set(err, ERR_UNAVAILABLE, "%.40s", head);
	d->got = n - (size_t)(end + 4 - head);
	return 0;
}

static void *drain_main(void *arg)
{
	struct drain *d = arg;
	AUTO_FREE char *rq = xasprintf(
		"GET %s HTTP/1.1\r\nHost: %s:%u\r\nRange: bytes=%" PRIu64 "-%" PRIu64 "\r\n\r\n",
		d->target, d->url->host, (unsigned)d->url->port, d->first, d->first + d->size - 1);
	AUTO_FD int fd = dial(d->url, &d->err);

	if (fd < 0 || fs_write_all(fd, rq, strlen(rq), &d->err) < 0 ||
	    drain_head(d, fd, &d->err) < 0)
		return NULL;
	while (d->got < d->size) {
		ssize_t n = recv(fd, NULL, (size_t)MIN(d->size - d->got, (uint64_t)MIB), MSG_TRUNC);

		if (n <= 0) {
			(void)err_errno(&d->err, n < 0 ? errno : ECONNRESET, "after %" PRIu64,
			                d->got);
			return NULL;
		}
		d->got += (uint64_t)n;
	}
	return NULL;
}

static int object_size(const char *link, uint64_t *size, struct err *err)
{
	struct http_policy open_policy = {0};
	AUTO_HTTP_CLIENT struct http_client *client = http_client_new(&open_policy);
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct http_header one = {"Range", "bytes=0-0"};
	struct http_call call = {.method = HTTP_GET, .url = link, .headers = &one, .n_headers = 1};
	struct str range, all = {0};

	if (http_do(client, &call, &reply, err) < 0 || http_expect(&call, &reply, err) < 0)
		return -1;
	range = http_header_of(&reply, "Content-Range");
	if (!str_cut(&range, '/', &all) || range.n == 0)
		return err_set(err, ERR_UNSUPPORTED, "%s: no ranges", link);
	*size = strtoull(range.p, NULL, 10); /* headers are NUL-terminated */
	return 0;
}

static int drain(char **arg, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	AUTO_FREE struct drain *d = xcalloc(DRAIN_MAX, sizeof(*d));
	struct sigv4_key key = keys();
	char *link = arg[0];
	unsigned long streams = strtoul(arg[1], NULL, 10);
	uint64_t size = 0, got = 0;
	double since;
	struct url u;
	struct js js;

	streams = MAX(1UL, MIN(streams, (unsigned long)DRAIN_MAX));
	if (key.access_key != NULL &&
	    sigv4_presign(a, &key, HTTP_GET, link, NULL, 0, 3600, clock_wall_ms(), &link, err) < 0)
		return -1;
	if (object_size(link, &size, err) < 0 || url_parse(a, str_of(link), &u, err) < 0)
		return -1;
	since = seconds();
	for (unsigned long i = 0; i < streams; i++) {
		uint64_t part = (size + streams - 1) / streams;

		d[i].url = &u;
		d[i].target = strchr(strstr(link, "://") + 3, '/');
		d[i].first = i * part;
		d[i].size = MIN(part, size - i * part);
		if (pthread_create(&d[i].thread, NULL, drain_main, &d[i]) != 0)
			return err_errno(err, errno, "a thread");
	}
	for (unsigned long i = 0; i < streams; i++) {
		(void)pthread_join(d[i].thread, NULL);
		got += d[i].got;
		if (d[i].err.code != ERR_NONE && err->code == ERR_NONE)
			*err = d[i].err;
	}
	if (err->code != ERR_NONE)
		return -1;
	js_init(&js, &out);
	js_open(&js);
	js_kv_u64(&js, "bytes", got);
	js_kv_real(&js, "seconds", seconds() - since);
	say(&js, &out);
	return 0;
}

/* --- limits: the machine --------------------------------------------------------------------- */

struct hashing {
	const uint8_t *p;
	size_t n;
	pthread_t thread;
};

static void *hash_main(void *arg)
{
	struct hashing *h = arg;

	(void)hash_sha256(h->p, h->n);
	return NULL;
}

static double hash_rate(const uint8_t *p, size_t n, unsigned threads)
{
	struct hashing h[THREADS_MAX];
	double since = seconds();
	unsigned started = 0;

	assert(threads <= THREADS_MAX);
	for (; started < threads; started++) {
		h[started] = (struct hashing){.p = p, .n = n};
		if (pthread_create(&h[started].thread, NULL, hash_main, &h[started]) != 0)
			break;
	}
	for (unsigned i = 0; i < started; i++)
		(void)pthread_join(h[i].thread, NULL);
	return (double)n * started / (seconds() - since) / 1e9;
}

static int memory(char **arg, struct err *err)
{
	size_t n = (size_t)strtoul(arg[0], NULL, 10) * MIB;
	AUTO_FREE uint8_t *from = xmalloc(n + 1), *to = xmalloc(n + 1);
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	AUTO_FD int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	double since;
	struct js js;

	if (fd < 0)
		return err_errno(err, errno, "a temporary file");
	memset(from, 1, n);
	memset(to, 2, n);
	js_init(&js, &out);
	js_open(&js);
	since = seconds();
	memcpy(to, from, n);
	js_kv_real(&js, "memcpy_gb_s", (double)n / (seconds() - since) / 1e9);
	js_kv_real(&js, "sha256_gb_s", hash_rate(to, n, 1));
	js_kv_real(&js, "sha256_all_cores_gb_s",
	           hash_rate(to, n, (unsigned)MAX(1L, MIN(cores, (long)THREADS_MAX))));
	since = seconds();
	for (size_t at = 0; at + MIB <= n; at += MIB)
		if (fs_pwrite_all(fd, to + at, MIB, at, err) < 0)
			return -1;
	js_kv_real(&js, "fresh_pages_gb_s", (double)n / (seconds() - since) / 1e9);
	say(&js, &out);
	return 0;
}

static int files(char **arg, struct err *err)
{
	unsigned long count = MAX(1UL, MIN(strtoul(arg[0], NULL, 10), 100000UL));
	size_t n = MIN((size_t)strtoul(arg[1], NULL, 10), 16 * MIB);
	AUTO_FREE uint8_t *body = xcalloc(n + 1, 1);
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	double since = seconds();
	char name[32];
	struct stat st;
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	for (unsigned long i = 0; i < count; i++) {
		AUTO_FD int fd = open("limit", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

		FMT(name, "limit-%lu", i);
		if (fd < 0 || fs_write_all(fd, body, n, err) < 0 || rename("limit", name) < 0)
			return err->code != ERR_NONE ? -1 : err_errno(err, errno, "%s", name);
	}
	js_kv_real(&js, "file_s", (seconds() - since) / (double)count);
	since = seconds();
	for (unsigned long i = 0; i < count; i++) {
		FMT(name, "limit-%lu", i);
		if (fstatat(AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_errno(err, errno, "%s", name);
	}
	js_kv_real(&js, "stat_s", (seconds() - since) / (double)count);
	say(&js, &out);
	return 0;
}

static int spawn(char **arg, struct err *err)
{
	unsigned long count = MAX(1UL, MIN(strtoul(arg[0], NULL, 10), 10000UL));
	char name[] = "true", *const argv[] = {name, NULL}, *const envp[] = {NULL};
	AUTO_BUF struct buf out = BUF_INIT(MIB);
	double since = seconds();
	struct js js;

	for (unsigned long i = 0; i < count; i++) {
		int status, e;
		pid_t pid;

		e = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp);
		if (e != 0)
			return err_errno(err, e, "/bin/true");
		if (waitpid(pid, &status, 0) != pid || status != 0)
			return err_set(err, ERR_IO, "/bin/true failed");
	}
	js_init(&js, &out);
	js_open(&js);
	js_kv_real(&js, "seconds_each", (seconds() - since) / (double)count);
	say(&js, &out);
	return 0;
}

static const struct {
	const char *name;
	int args;
	int (*run)(char **arg, struct err *err);
} command[] = {
	{"fetch", 2, fetch},   {"put", 3, put},
	{"load", 4, load},     {"load-1", 4, load_one_stream},
	{"walk", 1, walk},     {"drain", 2, drain},
	{"memory", 1, memory}, {"files", 2, files},
	{"spawn", 1, spawn},   {"puts", 2, puts_many},
};

int main(int argc, char **argv)
{
	struct err err = {0};

	for (size_t i = 0; argc > 1 && i < COUNT(command); i++) {
		if (strcmp(argv[1], command[i].name) != 0 || argc - 2 != command[i].args)
			continue;
		if (command[i].run(argv + 2, &err) == 0)
			return 0;
		fprintf(stderr, "bench_store %s: %s\n", argv[1], err.msg);
		return 1;
	}
	fprintf(stderr, "usage: bench_store "
	                "fetch|put|puts|load|load-1|walk|drain|memory|files|spawn ...\n");
	return 2;
}
