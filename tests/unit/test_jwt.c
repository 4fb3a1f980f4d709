/* test_jwt.c - signed tokens, which OpenSSL's own program verifies; keys that are none. */
#include "base/jwt.h"
#include "base/fs.h"
#include "base/hash.h"

#include "unit.h"

#include <sys/wait.h>

static char dir[] = "/tmp/test-jwt-XXXXXX";

static void run(const char *command)
{
	AUTO_FREE char *line = xasprintf("cd %s && { %s; } >out 2>&1", dir, command);
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execl("/bin/sh", "sh", "-c", line, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("%s: %d", command, status);
}

static int set_up(void **state UNUSED)
{
	assert_non_null(mkdtemp(dir));
	run("openssl genrsa -out rsa.pem 2048 && openssl rsa -in rsa.pem -pubout -out public.pem "
	    "&& "
	    "openssl rsa -in rsa.pem -traditional -out old.pem && "
	    "openssl pkcs8 -topk8 -in rsa.pem -passout pass:x -out locked.pem && "
	    "openssl ecparam -name prime256v1 -genkey -noout -out ec.pem");
	return 0;
}

static int tear_down(void **state UNUSED)
{
	struct err err = {0};

	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
	return 0;
}

static void read_pem(const char *name, struct buf *out)
{
	AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
	struct err err = {0};

	assert_ok(fs_read(AT_FDCWD, path, out, &err), &err);
}

static void write_file(const char *name, struct str text)
{
	AUTO_FREE char *path = xasprintf("%s/%s", dir, name);
	AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, text.p, text.n), text.n);
}

static void decode(struct str part, const char *want)
{
	AUTO_BUF struct buf text = BUF_INIT(1000);
	struct err err = {0};

	assert_ok(base64_decode(part, true, &text, &err), &err);
	assert_string_equal(buf_cstr(&text), want);
}

static void jwt_is_signed(void **state UNUSED)
{
	static const struct {
		const char *file, *key_id, *header;
	} rows[] = {
		{"rsa.pem", NULL, "{\"alg\":\"RS256\",\"typ\":\"JWT\"}"},
		{"old.pem", "key-1", "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"key-1\"}"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_BUF struct buf pem = BUF_INIT(10000), token = BUF_INIT(10000),
				    signature = BUF_INIT(1000);
		struct str rest, header, claims;
		struct err err = {0};

		read_pem(rows[i].file, &pem);
		assert_ok(jwt_sign_rs256(buf_view(&pem), rows[i].key_id, STR_LIT("{\"iss\":\"a\"}"),
		                         &token, &err),
		          &err);
		rest = buf_view(&token);
		assert_true(str_cut(&rest, '.', &header) && str_cut(&rest, '.', &claims));
		decode(header, rows[i].header);
		decode(claims, "{\"iss\":\"a\"}");
		write_file("signed", str_n(token.p, header.n + 1 + claims.n));
		assert_ok(base64_decode(rest, true, &signature, &err), &err);
		write_file("signature", buf_view(&signature));
		run("openssl dgst -sha256 -verify public.pem -signature signature signed");
	}
}

static void jwt_refuses_keys(void **state UNUSED)
{
	static const char *const texts[] = {
		"", "junk", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"};
	static const char *const files[] = {"ec.pem", "locked.pem", "public.pem"};
	AUTO_BUF struct buf token = BUF_INIT(10000), small = BUF_INIT(100), good = BUF_INIT(10000);
	struct err err = {0};

	for (size_t i = 0; i < COUNT(texts) + COUNT(files); i++) {
		AUTO_BUF struct buf pem = BUF_INIT(10000);

		if (i < COUNT(texts))
			buf_puts(&pem, texts[i]);
		else
			read_pem(files[i - COUNT(texts)], &pem);
		assert_err(jwt_sign_rs256(buf_view(&pem), NULL, STR_LIT("{}"), &token, &err), &err,
		           ERR_INVALID, "not an RSA private key in PEM");
		assert_int_equal(token.n, 0);
		err_clear(&err);
	}
	read_pem("rsa.pem", &good);
	assert_err(jwt_sign_rs256(buf_view(&good), NULL, STR_LIT("{}"), &small, &err), &err,
	           ERR_TOO_BIG, "the token");
}

/* What a key says of itself is what OpenSSL's program reads out of it, and its name the digest of
 * that; two keys are two. */
static void jwt_keys_are_made(void **state UNUSED)
{
	AUTO_BUF struct buf pem = BUF_INIT(10000), other = BUF_INIT(10000), n = BUF_INIT(1000),
			    said = BUF_INIT(1000);
	AUTO_ARENA struct arena *a = arena_new();
	struct jwt_public public_, again;
	struct err err = {0};
	char hex[2 * 256 + 1];
	AUTO_FREE char *text = NULL, *command = NULL;

	jwt_new_key(&pem);
	write_file("new.pem", buf_view(&pem));
	assert_ok(jwt_public_key(a, buf_view(&pem), &public_, &err), &err);
	assert_string_equal(public_.e, "AQAB");
	assert_ok(base64_decode(str_of(public_.n), true, &n, &err), &err);
	assert_int_equal(n.n, 256);
	hex_encode((const uint8_t *)n.p, n.n, hex);
	run("openssl rsa -in new.pem -noout -modulus | tr A-F a-f");
	read_pem("out", &said);
	assert_true(str_same(str_trim(str_skip(buf_view(&said), strlen("modulus="))), str_of(hex)));

	text = xasprintf("{\"e\":\"AQAB\",\"kty\":\"RSA\",\"n\":\"%s\"}", public_.n);
	write_file("thumb", str_of(text));
	command =
		xasprintf("openssl dgst -sha256 -binary thumb | base64 | tr '+/' '-_' | tr -d '=' "
	                  "| grep -qxe '%s'",
	                  public_.id);
	run(command);

	assert_ok(jwt_public_key(a, buf_view(&pem), &again, &err), &err);
	assert_string_equal(again.id, public_.id);
	jwt_new_key(&other);
	assert_ok(jwt_public_key(a, buf_view(&other), &again, &err), &err);
	assert_string_not_equal(again.id, public_.id);
	assert_err(jwt_public_key(a, STR_LIT("junk"), &again, &err), &err, ERR_INVALID,
	           "not an RSA private key in PEM");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jwt_is_signed),
		cmocka_unit_test(jwt_refuses_keys),
		cmocka_unit_test(jwt_keys_are_made),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
