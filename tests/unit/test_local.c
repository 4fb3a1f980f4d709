/* test_local.c - sockets of this machine: long paths, other users, descriptors that travel. */
#include "base/fs.h"
#include "io/local.h"
#include "unit.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[200];

static int setup(void **state UNUSED)
{
	struct err err = {0};

	/* longer than a socket's address may be */
	FMT(folder, "/tmp/test-local-XXXXXX");
	assert_non_null(mkdtemp(folder));
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(folder);

		(void)snprintf(folder + n, sizeof(folder) - n,
		               "/a-folder-with-a-long-name-of-some-length");
	}
	assert_ok(fs_mkdirs(AT_FDCWD, folder, 0700, &err), &err);
	return 0;
}

static int teardown(void **state UNUSED)
{
	struct err err = {0};

	folder[strlen("/tmp/test-local-XXXXXX")] = '\0';
	assert_ok(fs_remove_tree(AT_FDCWD, folder, &err), &err);
	return 0;
}

static char *path_of(const char *name)
{
	return xasprintf("%s/%s", folder, name);
}

static void local_passes_descriptors(void **state UNUSED)
{
	AUTO_FREE char *path = path_of("s");
	AUTO_FD int at = -1, ours = -1, theirs = -1, file = -1, got = -1;
	struct err err = {0};
	struct stat st, sent;
	uid_t uid = 12345;
	char word = 0;

	assert_err(local_connect(path, SOCK_SEQPACKET, &ours, &err), &err, ERR_NOT_FOUND, "");
	assert_ok(local_listen(path, SOCK_SEQPACKET, &at, &err), &err);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_ok(local_connect(path, SOCK_SEQPACKET, &ours, &err), &err);
	theirs = accept4(at, NULL, NULL, SOCK_CLOEXEC);
	assert_true(theirs >= 0 && local_is(theirs) && local_is(ours));
	assert_ok(local_peer(theirs, &uid, &err), &err);
	assert_int_equal(uid, geteuid());
	assert_ok(local_peer(ours, &uid, &err), &err);
	assert_int_equal(uid, geteuid());

	file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_ok(local_send(ours, 'A', -1, &err), &err);
	assert_ok(local_send(ours, 'B', file, &err), &err);
	assert_ok(local_receive(theirs, 1000, &word, &got, &err), &err);
	assert_true(word == 'A' && got == -1);
	assert_ok(local_receive(theirs, 1000, &word, &got, &err), &err);
	assert_true(word == 'B' && got >= 0 && got != file);
	assert_int_equal(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fstat(file, &sent), 0);
	assert_int_equal(fstat(got, &st), 0);
	assert_true(st.st_ino == sent.st_ino);
	(void)close(got);
	assert_err(local_receive(theirs, 0, &word, &got, &err), &err, ERR_TIMEOUT, "");
	(void)close(ours);
	ours = -1;
	assert_err(local_receive(theirs, 1000, &word, &got, &err), &err, ERR_UNAVAILABLE, "");
}

/* Left behind by a process that was killed: its name is there, and nobody listens. */
static void local_replaces_what_was_left(void **state UNUSED)
{
	AUTO_FREE char *path = path_of("left");
	AUTO_FD int again = -1, client = -1;
	struct err err = {0};
	int at = -1;

	assert_ok(local_listen(path, SOCK_STREAM, &at, &err), &err);
	(void)close(at);
	assert_err(local_connect(path, SOCK_STREAM, &client, &err), &err, ERR_UNAVAILABLE, "");
	assert_ok(local_listen(path, SOCK_STREAM, &again, &err), &err);
	assert_ok(local_connect(path, SOCK_STREAM, &client, &err), &err);
	assert_false(local_is(STDIN_FILENO));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(local_passes_descriptors),
	cmocka_unit_test(local_replaces_what_was_left),
};

int main(void)
{
	return cmocka_run_group_tests(tests, setup, teardown);
}
