/*
 * test_s3_elsewhere.c - the S3 face before a store that has no descriptors, a real MinIO: objects
 * are sent while they are read, nothing is staged on a disk, and a store that dies or changes the
 * object in the middle ends the reply short.
 */
#include "unit.h"

#include "base/clock.h"
#include "face/face.h"
#include "io/proc.h"
#include "io/sigv4.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#define OBJECT "training_projects/abc1234/jobs/j/rank-0/ckpt/f.bin"
#define TOKEN "stoker_member"
#define SIZE ((size_t)40 << 20) /* more than a reply and its sockets hold */
#define WAIT_MS 120000
#define ACCESS "minio-user"
#define SECRET "minio-secret-key"

static char folder[64], store[64];
static struct proc minio;
static struct httpd *server;
static struct http_client *client;
static struct objstore *objects;
static uint8_t *content;

static int authenticate(struct app *app UNUSED, struct arena *a, struct str token,
                        bool local UNUSED, struct principal **out, struct err *err)
{
	if (!str_eq(token, TOKEN))
		return err_set(err, ERR_AUTH, "this token is not known");
	*out = ARENA_NEW(a, struct principal);
	(*out)->magic = PRINCIPAL_MAGIC;
	(*out)->role = ROLE_MEMBER;
	return 0;
}

static int project_get(const struct ask *ask UNUSED, const char *id UNUSED,
                       struct model_project *out UNUSED, struct err *err UNUSED)
{
	return 0;
}

static const struct token_ops token_ops = {.authenticate = authenticate};
static const struct project_ops project_ops = {.get = project_get};
static const struct face_ops ops = {.tokens = &token_ops, .projects = &project_ops};
static struct face_ctx ctx = {.magic = FACE_CTX_MAGIC, .ops = &ops, .bucket = "stoker"};

/* ---- a store ------------------------------------------------------------------------------ */

static uint16_t free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t n = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
	return ntohs(at.sin_port);
}

static char *minio_path(void)
{
	const char *parts = getenv("STOKER_PARTS"), *home = getenv("HOME");

	return parts != NULL ? xasprintf("%s/bin/minio", parts)
	                     : xasprintf("%s/.cache/stoker-parts/bin/minio", home);
}

static bool store_call(enum http_method method, const char *path)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct sigv4_key key = {
		.access_key = ACCESS, .secret_key = SECRET, .region = "us-east-1", .service = "s3"};
	struct http_header all[8];
	struct http_call call = {.method = method, .headers = all};
	struct digest d = hash_sha256("", 0);
	char hex[HASH_HEX_CAP];
	struct err err = {0};

	digest_hex(&d, hex);
	call.url = arena_printf(a, "%s%s", store, path);
	assert_ok(sigv4_sign(a, &key, method, call.url, NULL, 0, hex, clock_wall_ms(), all,
	                     &call.n_headers, &err),
	          &err);
	return http_do(client, &call, &reply, &err) == 0 && reply.status == 200;
}

static void start_store(const char *program)
{
	AUTO_FREE char *data = xasprintf("%s/minio", folder);
	uint16_t port = free_port();
	AUTO_FREE char *address = xasprintf("127.0.0.1:%u", port);
	const char *const argv[] = {program, "server", data, "--address", address, NULL};
	const char *const envp[] = {"MINIO_ROOT_USER=" ACCESS, "MINIO_ROOT_PASSWORD=" SECRET,
	                            "MINIO_BROWSER=off",       "MINIO_UPDATE=off",
	                            "HOME=/nonexistent",       NULL};
	struct proc_spec spec = {
		.argv = argv, .envp = envp, .die_with_parent = true, .umask_bits = -1};
	int64_t until = clock_mono_ms() + WAIT_MS;
	struct err err = {0};

	assert_ok(proc_spawn(&spec, &minio, &err), &err);
	FMT(store, "http://127.0.0.1:%u", port);
	while (!store_call(HTTP_PUT, "/data")) {
		if (clock_mono_ms() > until)
			fail_msg("MinIO does not answer");
		clock_sleep_ms(50);
	}
}

static void stop_store(void)
{
	struct err err = {0};
	int status;

	(void)kill(minio.pid, SIGKILL);
	assert_ok(proc_wait(&minio, WAIT_MS, &status, &err), &err);
	(void)close(minio.pidfd);
	minio.pid = 0;
}

static void put_object(uint8_t seed)
{
	struct err err = {0};

	for (size_t i = 0; i < SIZE; i++)
		content[i] = (uint8_t)((i * 2654435761U >> 13) + i / 11 + seed);
	assert_ok(objstore_put(objects, OBJECT, str_n((const char *)content, SIZE), &err), &err);
}

/* ---- a client that reads as slowly as a test wants ------------------------------------------ */

static int ask(const char *range, struct buf *head)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(httpd_port(server))};
	struct timeval patience = {.tv_sec = 60};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 16384;
	AUTO_FREE char *text = xasprintf("GET /s3/stoker/" OBJECT " HTTP/1.1\r\nHost: x\r\n"
	                                 "Authorization: Bearer " TOKEN "\r\n%s"
	                                 "Connection: close\r\n\r\n",
	                                 range);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	while (head->n < 4 || strstr(buf_cstr(head), "\r\n\r\n") == NULL) {
		char c;

		assert_int_equal(recv(fd, &c, 1, 0), 1);
		buf_putc(head, c);
	}
	return fd;
}

/* What comes, up to `most`, is the object's from `at` on. */
static size_t take(int fd, size_t at, size_t most)
{
	AUTO_FREE uint8_t *got = xmalloc(65536);
	size_t n = 0;

	while (n < most) {
		ssize_t r = recv(fd, got, MIN(most - n, (size_t)65536), 0);

		if (r <= 0)
			break;
		assert_true(at + n + (size_t)r <= SIZE);
		assert_memory_equal(got, content + at + n, (size_t)r);
		n += (size_t)r;
	}
	return n;
}

/* Files without a name that this process has open. */
static unsigned staged(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		char to[512];
		ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);

		if (len <= 0)
			continue;
		to[len] = '\0';
		n += strstr(to, "(deleted)") != NULL;
	}
	(void)closedir(d);
	return n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void elsewhere_is_streamed(void **state UNUSED)
{
	static const struct {
		const char *range;
		size_t first, count;
		const char *want;
	} rows[] = {
		{"", 0, SIZE, "HTTP/1.1 200"},
		{"Range: bytes=3-30000000\r\n", 3, 30000000 - 2,
	         "Content-Range: bytes 3-30000000/"},
		{"Range: bytes=-5\r\n", SIZE - 5, 5, "HTTP/1.1 206"},
	};
	unsigned before;

	put_object(1);
	before = staged();
	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf head = BUF_INIT(65536);
		AUTO_FD int fd = ask(rows[i].range, &head);
		size_t some = MIN(rows[i].count, (size_t)3 << 20);

		assert_non_null(strstr(buf_cstr(&head), rows[i].want));
		assert_int_equal(take(fd, rows[i].first, some), some);
		assert_int_equal(staged(), before);
		assert_int_equal(take(fd, rows[i].first + some, SIZE), rows[i].count - some);
	}
}

/* Never the begin of one and the end of another. */
static void elsewhere_one_version(void **state UNUSED)
{
	AUTO_BUF struct buf head = BUF_INIT(65536);
	AUTO_FREE uint8_t *old = xmalloc(SIZE);
	AUTO_FD int fd = -1;
	size_t n;

	put_object(2);
	fd = ask("", &head);
	memcpy(old, content, SIZE);
	put_object(3);
	memcpy(content, old, SIZE); /* what take() compares with */
	n = take(fd, 0, SIZE);
	assert_true(n < SIZE);
	assert_int_equal(n % ((size_t)1 << 20), 0); /* whole pieces */
}

static void elsewhere_dies(void **state UNUSED)
{
	AUTO_BUF struct buf head = BUF_INIT(65536), later = BUF_INIT(65536);
	AUTO_FD int fd = -1, other = -1;
	size_t n;

	put_object(4);
	fd = ask("", &head);
	stop_store();
	n = take(fd, 0, SIZE);
	assert_true(n < SIZE);
	other = ask("", &later); /* and from the start it is an error */
	assert_null(strstr(buf_cstr(&later), "HTTP/1.1 2"));
}

static int set_up(void **state UNUSED)
{
	static const struct face *const faces[] = {&face_s3};
	struct http_policy policy = {0};
	struct httpd_options o = {
		.address = "127.0.0.1:0", .faces = faces, .n_faces = 1, .ctx = &ctx};
	AUTO_FREE char *program = minio_path(), *url = NULL;
	struct objstore_env env = {.key = {.access_key = ACCESS, .secret_key = SECRET}};
	struct err err = {0};

	if (access(program, X_OK) != 0) {
		print_message("# skipped: needs %s, install it with tools/parts.sh minio\n",
		              program);
		exit(0);
	}
	FMT(folder, "/tmp/stoker-elsewhere-XXXXXX");
	if (mkdtemp(folder) == NULL)
		return -1;
	content = xmalloc(SIZE);
	client = env.client = http_client_new(&policy);
	start_store(program);
	url = xasprintf("s3:%s/data", store);
	assert_ok(objstore_open(&objects, url, &env, &err), &err);
	ctx.objects = objects;
	assert_ok(httpd_start(&o, &server, &err), &err);
	return 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	httpd_stop(server);
	objstore_close(objects);
	http_client_free(client);
	if (minio.pid != 0)
		stop_store();
	free(content);
	return fs_remove_tree(AT_FDCWD, folder, &err);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(elsewhere_is_streamed),
	cmocka_unit_test(elsewhere_one_version),
	cmocka_unit_test(elsewhere_dies),
};

int main(void)
{
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
