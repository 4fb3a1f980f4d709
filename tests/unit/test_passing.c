/*
 * test_passing.c - files of a folder that another process opens for us: what may be asked, by whom,
 * and what is left when either end goes away. The driver's own suite is in test_objstore.c.
 */
#include "unit.h"

#include "base/clock.h"
#include "core/wire.h"
#include "io/local.h"
#include "store/blobs/blob_objects.h"
#include "store/objects/objstore_impl.h"
#include "store/objects/passing.h"

#include <dirent.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct place {
	char dir[64];
	char *socket, *url;
	struct objstore *objects; /* the owner's */
	struct blobs *blobs;
	struct passing *passing;
};

#define STORE_OWNER 54321 /* where we may give files away */

/* "mine" may read r/ and w/ and what is kept by content, and write w/. */
static int may(void *arg UNUSED, struct str token, enum passing_right right, const char *key,
               struct err *err)
{
	bool reads = right == PASSING_READ;

	if (!str_eq(token, "mine"))
		return err_set(err, ERR_TOKEN_INVALID, "another token");
	if (str_starts(str_of(key), "w/") ||
	    (reads && (str_starts(str_of(key), "r/") || str_starts(str_of(key), "blobs/"))))
		return 0;
	return err_set(err, ERR_DENIED, "%s: not yours", key);
}

static void start(struct place *p)
{
	const struct passing_options o = {.path = p->socket,
	                                  .objects = p->objects,
	                                  .blobs = p->blobs,
	                                  .owner = geteuid() == 0 ? STORE_OWNER : 0,
	                                  .may = may};
	struct err err = {0};

	assert_ok(passing_start(&p->passing, &o, &err), &err);
}

static void stop(struct place *p)
{
	passing_stop(p->passing);
	p->passing = NULL;
}

static int set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	AUTO_FREE char *objects = NULL, *blobs = NULL;
	struct err err = {0};

	FMT(p->dir, "/tmp/test-passing-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	objects = xasprintf("dir:%s/objects", p->dir);
	blobs = xasprintf("%s/store", p->dir);
	p->socket = xasprintf("%s/s", p->dir);
	p->url = xasprintf("passed:%s", p->socket);
	assert_ok(objstore_open(&p->objects, objects, NULL, &err), &err);
	assert_ok(blobs_open(&p->blobs, blobs, &err), &err);
	assert_ok(objstore_put(p->objects, "r/a", STR_LIT("readable"), &err), &err);
	assert_ok(objstore_put(p->objects, "r/folder/b", STR_LIT("b"), &err), &err);
	assert_ok(objstore_put(p->objects, "x/a", STR_LIT("another's"), &err), &err);
	start(p);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	stop(p);
	objstore_close(p->objects);
	blobs_close(p->blobs);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	free(p->socket);
	free(p->url);
	free(p);
	return 0;
}

static struct objstore *open_as(struct place *p, const char *token)
{
	const struct objstore_env env = {.token = token};
	struct objstore *os = NULL;
	struct err err = {0};

	assert_ok(objstore_open(&os, p->url, &env, &err), &err);
	return os;
}

static size_t names_in(struct place *p, const char *folder)
{
	AUTO_FREE char *path = xasprintf("%s/%s", p->dir, folder);

	return dir_names(path);
}

static void wait_none(struct place *p, const char *folder)
{
	for (int64_t until = clock_mono_ms() + 30000; names_in(p, folder) > 0;) {
		assert_true(clock_mono_ms() < until);
		clock_sleep_ms(10);
	}
}

/* A child that may allocate: it is made while this process has one thread, for another one might
 * hold the allocator's lock, and runs when a byte is written to *tell. */
static pid_t child_to_tell(struct place *p, int (*run)(struct place *), int *tell)
{
	int ends[2];
	char go;
	pid_t pid;

	stop(p);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)close(ends[1]);
		_exit(read(ends[0], &go, 1) == 1 ? run(p) : 99);
	}
	(void)close(ends[0]);
	*tell = ends[1];
	start(p);
	return pid;
}

static void tell_child(int tell)
{
	assert_int_equal(write(tell, "g", 1), 1);
	(void)close(tell);
}

/* --- by hand, as one who does not use our driver --- */

static int dial(struct place *p)
{
	struct err err = {0};
	int fd = -1;

	assert_ok(local_connect(p->socket, SOCK_SEQPACKET, &fd, &err), &err);
	return fd;
}

/* The status of the answer; -1: it hung up. */
static int ask(int sock, struct wire_pass m, int send_fd, int *fd)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(LOCAL_MESSAGE_MAX), in = BUF_INIT(LOCAL_MESSAGE_MAX);
	struct wire_passed got = {0};
	struct err err = {0};
	int none = -1;

	if (m.token == NULL)
		m.token = "mine";
	wire_pass_write(&m, &out);
	if (local_send_message(sock, buf_view(&out), send_fd, &err) < 0 ||
	    local_receive_message(sock, 30000, &in, fd == NULL ? &none : fd, &err) < 0)
		return -1;
	close_fd_p(&none);
	assert_ok(wire_passed_parse(&got, a, buf_view(&in), &err), &err);
	return got.status;
}

#define ASK(sock, ...) ask(sock, (struct wire_pass){__VA_ARGS__}, -1, NULL)

static void passing_refuses(void **state)
{
	struct place *p = *state;
	static const struct {
		struct wire_pass m;
		int status;
	} cases[] = {
		{{.token = "another", .verb = "open", .key = "r/a"}, 401},
		{{.token = "", .verb = "open", .key = "r/a"}, 401},
		{{.verb = "open", .key = "x/a"}, 403},
		{{.verb = "open", .key = "r/none"}, 404},
		{{.verb = "open", .key = "r/../x/a"}, 400},
		{{.verb = "open", .key = "/etc/passwd"}, 400},
		{{.verb = "open", .key = ""}, 400},
		{{.verb = "open", .key = "blobs/sha256/../../../objects/x/a"}, 400},
		{{.verb = "open", .key = "blobs/sha256/aa"}, 404},
		{{.verb = "open", .key = "r/folder"}, 404},
		{{.verb = "unlink", .key = "w/a"}, 400},
		{{.verb = "", .key = "w/a"}, 400},
		{{.verb = "create", .key = "r/a"}, 403},
		{{.verb = "create", .key = "blobs/sha256/aa/b"}, 403},
		{{.verb = "commit", .key = "w/a"}, 409},
		{{.verb = "delete", .key = "r/a"}, 403},
		{{.verb = "copy", .key = "r/a", .to = "r/b"}, 403},
		{{.verb = "copy", .key = "x/a", .to = "w/b"}, 403},
		{{.verb = "copy", .key = "r/a", .to = "w/../x/a"}, 400},
		{{.verb = "copy", .key = "r/a"}, 400},
		{{.verb = "link", .key = "r/a"}, 400},
		{{.verb = "link", .key = "r/a", .to = "name"}, 400}, /* no folder */
		{{.verb = "link", .key = "r/a", .to = ".."}, 400},
		{{.verb = "link", .key = "r/a", .to = "a/b"}, 400},
	};
	AUTO_FD int sock = dial(p);

	for (size_t i = 0; i < COUNT(cases); i++) {
		int status = ask(sock, cases[i].m, -1, NULL);

		if (status != cases[i].status)
			fail_msg("%s %s: %d, not %d", cases[i].m.verb, cases[i].m.key, status,
			         cases[i].status);
	}
	assert_int_equal(ASK(sock, .verb = "open", .key = "r/a"), 0);
	assert_int_equal(names_in(p, "objects/.tmp"), 0);
}

static void passing_reads(void **state)
{
	struct place *p = *state;
	AUTO_FD int sock = dial(p), fd = -1;
	char text[20] = "";

	assert_int_equal(ask(sock, (struct wire_pass){.verb = "open", .key = "r/a"}, -1, &fd), 0);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 8);
	assert_string_equal(text, "readable");
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}

/* What is published is what it will be: nobody can write to it any more. */
static void passing_commits_what_nobody_writes(void **state)
{
	struct place *p = *state;
	AUTO_FD int sock = dial(p);
	AUTO_BUF struct buf got = BUF_INIT(100);
	struct objstore_info info;
	struct err err = {0};
	int fd = -1;
	void *map;

	assert_int_equal(ask(sock, (struct wire_pass){.verb = "create", .key = "w/a"}, -1, &fd), 0);
	assert_int_equal(write(fd, "text", 4), 4);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "w/a", .etag = ""), 429);
	assert_err(objstore_stat(p->objects, "w/a", &info, &err), &err, ERR_NOT_FOUND, "");
	err_clear(&err);
	(void)close(fd);

	assert_int_equal(ask(sock, (struct wire_pass){.verb = "create", .key = "w/a"}, -1, &fd), 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	(void)close(fd);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "w/a", .etag = ""), 429);
	assert_int_equal(names_in(p, "objects/.tmp"), 1); /* the one before was given up */
	assert_int_equal(munmap(map, 4096), 0);

	assert_int_equal(ask(sock, (struct wire_pass){.verb = "create", .key = "w/a"}, -1, &fd), 0);
	assert_int_equal(write(fd, "text", 4), 4);
	(void)close(fd);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "w/a", .etag = "not hex"), 400);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "x/a", .etag = ""), 403);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "w/a", .etag = ""), 0);
	assert_int_equal(ASK(sock, .verb = "commit", .key = "w/b", .etag = ""), 409);
	assert_ok(objstore_get(p->objects, "w/a", &got, &err), &err);
	assert_true(str_eq(buf_view(&got), "text"));
	assert_int_equal(names_in(p, "objects/.tmp"), 0);
}

static const struct objstore_ops *real;
static bool was_busy;

static int publish_at_last(struct objstore *os, const char *name, int fd, const char *key,
                           const char *etag, struct objstore_info *info, struct err *err)
{
	if (was_busy)
		return real->publish(os, name, fd, key, etag, info, err);
	was_busy = true;
	return err_set(err, ERR_BUSY, "its folder keeps being removed");
}

/* Whatever is busy, the file stays for the next try: none of its bytes is written again. */
static void passing_keeps_what_cannot_be_stored_yet(void **state)
{
	struct place *p = *state;
	AUTO_OBJSTORE struct objstore *os = open_as(p, "mine");
	AUTO_BUF struct buf got = BUF_INIT(100);
	struct objstore_ops busy = *p->objects->ops;
	struct err err = {0};

	real = p->objects->ops;
	was_busy = false;
	busy.publish = publish_at_last;
	p->objects->ops = &busy;
	assert_ok(objstore_put(os, "w/a", STR_LIT("text"), &err), &err);
	p->objects->ops = real;
	assert_true(was_busy);
	assert_ok(objstore_get(p->objects, "w/a", &got, &err), &err);
	assert_true(str_eq(buf_view(&got), "text"));
}

static void passing_forgets_who_leaves(void **state)
{
	struct place *p = *state;
	int sock = dial(p), fd = -1;

	assert_int_equal(ask(sock, (struct wire_pass){.verb = "create", .key = "w/a"}, -1, &fd), 0);
	(void)close(fd);
	assert_int_equal(names_in(p, "objects/.tmp"), 1);
	(void)close(sock);
	wait_none(p, "objects/.tmp");
}

static void passing_hangs_up(void **state)
{
	struct place *p = *state;
	static char large[LOCAL_MESSAGE_MAX + 1];
	AUTO_FD int sock = dial(p), next = -1;
	char byte = 'x';
	struct iovec part = {.iov_base = large, .iov_len = sizeof(large)};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	union {
		char room[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct cmsghdr *c = &control.align;
	const int two[] = {0, 0};

	memset(large, ' ', sizeof(large));
	assert_int_equal(sendmsg(sock, &m, 0), sizeof(large));
	assert_int_equal(recv(sock, &byte, 1, 0), 0);

	next = dial(p);
	part = (struct iovec){.iov_base = &byte, .iov_len = 1};
	m.msg_control = control.room;
	m.msg_controllen = sizeof(control.room);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(two));
	memcpy(CMSG_DATA(c), two, sizeof(two));
	assert_int_equal(sendmsg(next, &m, 0), 1);
	assert_int_equal(recv(next, &byte, 1, 0), 0);
}

static size_t open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	(void)closedir(d);
	return n;
}

/* A message may be empty and bring a descriptor all the same. */
static void passing_keeps_no_descriptor(void **state)
{
	struct place *p = *state;
	size_t before = open_files();

	for (int i = 0; i < 50; i++) {
		AUTO_FD int sock = dial(p);
		char byte = 0;
		struct iovec part = {.iov_base = &byte, .iov_len = 0};
		struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
		union {
			char room[CMSG_SPACE(sizeof(int))];
			struct cmsghdr align;
		} control;
		struct cmsghdr *c = &control.align;
		const int one = 0;

		m.msg_control = control.room;
		m.msg_controllen = sizeof(control.room);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(one));
		memcpy(CMSG_DATA(c), &one, sizeof(one));
		assert_int_equal(sendmsg(sock, &m, 0), 0);
		assert_int_equal(recv(sock, &byte, 1, 0), 0);
	}
	assert_true(open_files() <= before + 2);
}

static void *fork_all_the_time(void *arg)
{
	while (!atomic_load((atomic_bool *)arg)) {
		pid_t pid = fork();

		if (pid == 0) {
			clock_sleep_ms(3);
			_exit(0);
		}
		(void)waitpid(pid, NULL, 0);
	}
	return NULL;
}

/* A child has what its parent has open, until its exec: that refuses nothing. */
static void passing_stores_beside_forks(void **state)
{
	struct place *p = *state;
	AUTO_OBJSTORE struct objstore *os = open_as(p, "mine");
	atomic_bool done = false;
	struct err err = {0};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, fork_all_the_time, &done), 0);
	for (int i = 0; i < 300; i++)
		assert_ok(objstore_put(os, "w/a", STR_LIT("small"), &err), &err);
	atomic_store(&done, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static int64_t cpu_ms(void)
{
	struct rusage r;

	assert_int_equal(getrusage(RUSAGE_SELF, &r), 0);
	return (r.ru_stime.tv_sec + r.ru_utime.tv_sec) * 1000 +
	       (r.ru_stime.tv_usec + r.ru_utime.tv_usec) / 1000;
}

static int ask_for_one(struct place *p)
{
	return ASK(dial(p), .verb = "open", .key = "r/a") == 0 ? 0 : 1;
}

/* Without a descriptor for who connects it waits, and goes on when there is one. */
static void passing_bears_a_full_table(void **state)
{
	struct place *p = *state;
	AUTO_OBJSTORE struct objstore *os = open_as(p, "mine");
	struct rlimit was, few;
	struct objstore_info info;
	struct err err = {0};
	int fds[64], n = 0;
	int64_t before;
	int tell;
	pid_t pid = child_to_tell(p, ask_for_one, &tell);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = open_files() + 20;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 64 && (fds[n] = dup(STDERR_FILENO)) >= 0)
		n++;
	assert_int_equal(write(tell, "g", 1), 1); /* kept open: what it frees would be taken */
	before = cpu_ms();
	clock_sleep_ms(2000);
	before = cpu_ms() - before;
	while (n > 0)
		(void)close(fds[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	(void)close(tell);
	assert_true(before < 1000);
	assert_int_equal(waitpid(pid, &n, 0), pid);
	assert_int_equal(n, 0);
	assert_ok(objstore_stat(os, "r/a", &info, &err), &err);
}

static void passing_answers_garbage(void **state)
{
	static const char *const texts[] = {
		"x",        "{}",
		"[]",       "{\"token\":\"mine\"}",
		"\xff\xfe", "{\"token\":\"mine\",\"verb\":1,\"key\":\"r/a\"}"};
	struct place *p = *state;
	AUTO_FD int sock = dial(p);

	for (size_t i = 0; i < COUNT(texts); i++) {
		AUTO_BUF struct buf in = BUF_INIT(LOCAL_MESSAGE_MAX);
		struct err err = {0};
		int fd = -1;

		assert_ok(local_send_message(sock, str_of(texts[i]), -1, &err), &err);
		assert_ok(local_receive_message(sock, 30000, &in, &fd, &err), &err);
		assert_non_null(strstr(buf_cstr(&in), "\"message\""));
		assert_int_equal(fd, -1);
	}
	assert_int_equal(ASK(sock, .verb = "open", .key = "r/a"), 0);
}

static void passing_bounds_connections(void **state)
{
	struct place *p = *state;
	int sock[PASSING_CONNS_OF_ONE + 1];

	for (size_t i = 0; i < PASSING_CONNS_OF_ONE; i++) {
		sock[i] = dial(p);
		assert_int_equal(ASK(sock[i], .verb = "open", .key = "r/a"), 0);
	}
	sock[PASSING_CONNS_OF_ONE] = dial(p);
	/* whose it is is known by its first question */
	assert_int_equal(ASK(sock[PASSING_CONNS_OF_ONE], .verb = "open", .key = "r/a"), 0);
	assert_int_equal(ASK(sock[PASSING_CONNS_OF_ONE], .verb = "open", .key = "r/a"), -1);
	(void)close(sock[0]);
	for (int status = -1; status != 0;) { /* the thread sees it go */
		(void)close(sock[PASSING_CONNS_OF_ONE]);
		sock[PASSING_CONNS_OF_ONE] = dial(p);
		status = ASK(sock[PASSING_CONNS_OF_ONE], .verb = "open", .key = "r/a");
		if (status == 0)
			status = ASK(sock[PASSING_CONNS_OF_ONE], .verb = "open", .key = "r/a");
	}
	for (size_t i = 1; i < COUNT(sock); i++)
		(void)close(sock[i]);
}

/* Strangers go soon, those who ask nothing later, and who writes a file has all the time it takes.
 */
static void passing_waits_for_a_writer(void **state)
{
	struct place *p = *state;
	const struct passing_options o = {.path = p->socket,
	                                  .objects = p->objects,
	                                  .may = may,
	                                  .idle_ms = 1500,
	                                  .stranger_ms = 100};
	int stranger, known, writer, fd = -1;
	struct err err = {0};
	char byte;

	stop(p);
	assert_ok(passing_start(&p->passing, &o, &err), &err);
	stranger = dial(p);
	known = dial(p);
	writer = dial(p);
	assert_int_equal(ASK(known, .verb = "open", .key = "r/a"), 0);
	assert_int_equal(ask(writer, (struct wire_pass){.verb = "create", .key = "w/a"}, -1, &fd),
	                 0);
	assert_int_equal(recv(stranger, &byte, 1, 0), 0);
	assert_int_equal(ASK(known, .verb = "open", .key = "r/a"), 0);
	assert_int_equal(recv(known, &byte, 1, 0), 0);
	clock_sleep_ms(2500);
	(void)close(fd);
	assert_int_equal(ASK(writer, .verb = "commit", .key = "w/a", .etag = ""), 0);
	(void)close(stranger);
	(void)close(known);
	(void)close(writer);
}

/* --- links --- */

static void put_blob(struct place *p, struct str body, char key[BLOB_KEY_CAP])
{
	struct err err = {0};
	struct digest d;

	assert_ok(blobs_put(p->blobs, body, &d, &err), &err);
	blob_object_key(&d, key);
}

static void passing_links(void **state)
{
	struct place *p = *state;
	AUTO_OBJSTORE struct objstore *os = open_as(p, "mine");
	AUTO_FREE char *mine = xasprintf("%s/mine", p->dir);
	AUTO_FD int folder = -1, shm = -1;
	char key[BLOB_KEY_CAP];
	struct err err = {0};
	struct stat st;

	put_blob(p, STR_LIT("weights"), key);
	assert_int_equal(mkdir(mine, 0755), 0);
	folder = fs_open_dir(mine, &err);
	assert_true(folder >= 0);
	assert_ok(objstore_link(os, key, folder, "model.bin", &err), &err);
	assert_int_equal(fstatat(folder, "model.bin", &st, 0), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_uid, geteuid() == 0 ? STORE_OWNER : geteuid());
	assert_err(objstore_link(os, key, folder, "model.bin", &err), &err, ERR_CONFLICT, "");
	err_clear(&err);
	assert_ok(objstore_link(os, "r/a", folder, "object", &err), &err);
	assert_int_equal(fstatat(folder, "object", &st, 0), 0);
	assert_int_equal(st.st_uid, geteuid() == 0 ? STORE_OWNER : geteuid());
	assert_err(objstore_link(os, "r/none", folder, "none", &err), &err, ERR_NOT_FOUND, "");
	err_clear(&err);
	assert_err(objstore_link(os, "x/a", folder, "none", &err), &err, ERR_DENIED, "not yours");
	err_clear(&err);
	shm = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (shm < 0 || fstat(shm, &st) < 0 || st.st_uid != geteuid())
		return;
	assert_err(objstore_link(os, key, shm, "test-passing", &err), &err, ERR_UNSUPPORTED, "");
}

/* As a user whom the owner could do more for than it may: 0, or the step that went wrong. */
static int as_nobody(struct place *p)
{
	int sock = -1, ours = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int folder = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct wire_pass m = {.verb = "link", .key = "r/a", .to = "planted"};
	struct err err = {0};

	if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
	    setresuid(65534, 65534, 65534) < 0)
		return 1;
	if (local_connect(p->socket, SOCK_SEQPACKET, &sock, &err) < 0)
		return 2;
	if (ask(sock, m, folder, NULL) != 403) /* root's */
		return 3;
	if (ask(sock, m, ours, NULL) != 403) /* one that all may write to is root's, too */
		return 4;
	return 0;
}

static void passing_links_into_the_callers_folders_only(void **state)
{
	struct place *p = *state;
	int status = 0, tell;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	pid = child_to_tell(p, as_nobody, &tell);
	assert_int_equal(chmod(p->dir, 0755), 0);
	assert_int_equal(chmod(p->socket, 0666), 0);
	tell_child(tell);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access("/tmp/planted", F_OK), -1);
}

/* --- an owner that comes and goes --- */

static void passing_survives_its_owner(void **state)
{
	struct place *p = *state;
	AUTO_OBJSTORE struct objstore *os = open_as(p, "mine");
	AUTO_BUF struct buf got = BUF_INIT(100);
	struct objstore_info info;
	struct err err = {0};

	assert_ok(objstore_put(os, "w/a", STR_LIT("one"), &err), &err);
	stop(p);
	assert_err(objstore_stat(os, "w/a", &info, &err), &err, ERR_UNAVAILABLE,
	           "the server on this machine does not answer");
	err_clear(&err);
	start(p);
	assert_ok(objstore_stat(os, "w/a", &info, &err), &err);
	stop(p);
	start(p); /* the idle connection is of the one before */
	assert_ok(objstore_put(os, "w/a", STR_LIT("two"), &err), &err);
	assert_ok(objstore_get(os, "w/a", &got, &err), &err);
	assert_true(str_eq(buf_view(&got), "two"));
	assert_int_equal(unlink(p->socket), 0);
	assert_ok(objstore_stat(os, "w/a", &info, &err), &err); /* connected already */
}

static void touch(struct place *p, const char *name)
{
	AUTO_FREE char *path = xasprintf("%s/objects/.tmp/%s", p->dir, name);
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
}

/* Killed, it leaves the files that it had handed out, and nothing else knows them. */
static void passing_removes_what_a_killed_one_left(void **state)
{
	struct place *p = *state;

	stop(p);
	touch(p, "b-aaaaaaaaaaaaaaaaaaaa");
	touch(p, "o-aaaaaaaaaaaaaaaaaaaa"); /* somebody writes it in this process */
	start(p);
	assert_int_equal(names_in(p, "objects/.tmp"), 1);
}

static char large[(size_t)8 << 20];

static int write_for_ever(struct place *p)
{
	struct objstore *os = open_as(p, "mine");
	struct err err = {0};

	while (objstore_put(os, "w/a", str_n(large, sizeof(large)), &err) == 0)
		;
	return 1;
}

/* Killed while it writes, at any time: the object is the old one or the new one, and nothing is
 * left. */
static void passing_survives_a_killed_writer(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	memset(large, 'n', sizeof(large));
	assert_ok(objstore_put(p->objects, "w/a", STR_LIT("old"), &err), &err);
	for (int i = 0; i < 20; i++) {
		struct objstore_info info;
		int tell;
		pid_t pid = child_to_tell(p, write_for_ever, &tell);

		tell_child(tell);
		clock_sleep_ms(2 + i * 3);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		wait_none(p, "objects/.tmp");
		assert_ok(objstore_stat(p->objects, "w/a", &info, &err), &err);
		assert_true(info.size == 3 || info.size == sizeof(large));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(passing_refuses, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_reads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_commits_what_nobody_writes, set_up,
	                                        tear_down),
		cmocka_unit_test_setup_teardown(passing_keeps_what_cannot_be_stored_yet, set_up,
	                                        tear_down),
		cmocka_unit_test_setup_teardown(passing_forgets_who_leaves, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_hangs_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_keeps_no_descriptor, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_stores_beside_forks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_bears_a_full_table, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_answers_garbage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_bounds_connections, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_waits_for_a_writer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_links, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_links_into_the_callers_folders_only, set_up,
	                                        tear_down),
		cmocka_unit_test_setup_teardown(passing_survives_its_owner, set_up, tear_down),
		cmocka_unit_test_setup_teardown(passing_removes_what_a_killed_one_left, set_up,
	                                        tear_down),
		cmocka_unit_test_setup_teardown(passing_survives_a_killed_writer, set_up,
	                                        tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
