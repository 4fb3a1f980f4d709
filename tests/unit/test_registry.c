/* Credentials of a registry: names, and the auth file that podman reads. */
#include "run/image.h"
#include "run/registry.h"

#include "base/json.h"
#include "unit.h"

static void knows_hosts(void **state UNUSED)
{
	static const struct {
		const char *given, *host;
	} rows[] = {
		{"registry.example", "registry.example"},
		{"127.0.0.1:5000", "127.0.0.1:5000"},
		{" https://ghcr.io/ ", "ghcr.io"},
		{"http://r.example:5000/v2/", "r.example:5000"},
		{"https://index.docker.io/v1/", "docker.io"},
		{"registry-1.docker.io", "docker.io"},
		{"ghcr.io/team", "ghcr.io/team"},
		{"", ""},
	};
	AUTO_ARENA struct arena *a = arena_new();

	for (size_t i = 0; i < COUNT(rows); i++)
		assert_string_equal(registry_host(a, rows[i].given), rows[i].host);
}

static void knows_whose_an_image_is(void **state UNUSED)
{
	static const struct {
		const char *host, *image;
		bool has;
	} rows[] = {
		{"r.example", "r.example/a/b:1", true},
		{"r.example", "r.example.org/a/b:1", false},
		{"r.example", "a/b:1", false},
		{"r.example/team", "r.example/team/b", true},
		{"docker.io", "docker.io/library/python:3", true},
		{"docker.io", "python:3", true},
		{"docker.io", "pytorch/pytorch:2", true},
		{"docker.io", "ghcr.io/a/b", false},
		{"docker.io", "localhost/a", false},
		{"docker.io", "host:5000/a", false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		if (registry_has(rows[i].host, rows[i].image) != rows[i].has)
			fail_msg("%s %s", rows[i].host, rows[i].image);
	}
}

static void writes_the_auth_file(void **state UNUSED)
{
	static const struct {
		enum spec_registry_auth auth;
		const char *secret, *text;
	} rows[] = {
		{SPEC_AUTH_REGISTRY_SECRET, "alice:right",
	         "{\"auths\":{\"r.example\":{\"auth\":\"YWxpY2U6cmlnaHQ=\"}}}"},
		{SPEC_AUTH_REGISTRY_SECRET, " alice:right\n",
	         "{\"auths\":{\"r.example\":{\"auth\":\"YWxpY2U6cmlnaHQ=\"}}}"},
		{SPEC_AUTH_GCP_JSON, "{\"type\":1}",
	         "{\"auths\":{\"r.example\":{\"auth\":\"X2pzb25fa2V5OnsidHlwZSI6MX0=\"}}}"},
	};
	struct err err = {0};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct job_spec s = {.registry = "https://r.example/",
		                     .registry_auth = rows[i].auth,
		                     .registry_secret = "key"};
		AUTO_BUF struct buf out = BUF_INIT(1000);
		atomic_bool cancel = false;

		assert_ok(registry_auth(&s, rows[i].secret, NULL, &cancel, &out, &err), &err);
		assert_string_equal(buf_cstr(&out), rows[i].text);
	}
}

static void refuses_what_is_no_credential(void **state UNUSED)
{
	static const struct {
		enum spec_registry_auth auth;
		const char *secret, *secret2;
		enum err_code id;
	} rows[] = {
		{SPEC_AUTH_REGISTRY_SECRET, "s3cret-word", NULL, ERR_REGISTRY_SECRET_INVALID},
		{SPEC_AUTH_REGISTRY_SECRET, NULL, NULL, ERR_UNSUPPORTED},
		{SPEC_AUTH_AWS_IAM, "s3cret-word", NULL, ERR_UNSUPPORTED},
		{SPEC_AUTH_AWS_IAM, "AKIA", "s3cret-word", ERR_INVALID},
	};
	static const char *const hosts[] = {
		"r.example", "1.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
		"1.dkr.ecr.x/y?.amazonaws.com", "1.dkr.ecr..amazonaws.com"};

	(void)unsetenv("AWS_ENDPOINT_URL_ECR");
	for (size_t i = 0; i < COUNT(rows) * COUNT(hosts); i++) {
		size_t row = i / COUNT(hosts);
		struct job_spec s = {.registry = hosts[i % COUNT(hosts)],
		                     .registry_auth = rows[row].auth,
		                     .registry_secret = "key",
		                     .registry_secret2 = "key2"};
		AUTO_BUF struct buf out = BUF_INIT(1000);
		atomic_bool cancel = false;
		struct err err = {0};

		assert_err(
			registry_auth(&s, rows[row].secret, rows[row].secret2, &cancel, &out, &err),
			&err, rows[row].id, "");
		assert_null(strstr(err.msg, "s3cret-word"));
		assert_int_equal(out.n, 0);
		err_clear(&err);
	}
}

static void knows_an_image_by_its_digests(void **state UNUSED)
{
	static const struct {
		const char *name, *references, *digest, *is;
	} rows[] = {
		{"r.example/a/b:1", "r.example/a/b@sha256:1 r.example/a/b@sha256:2 ", "sha256:2",
	         "r.example/a/b@sha256:2"},
		{"r.example/a/b:1", "r.example/a/b@sha256:1 r.example/a/b@sha256:2 ", "sha256:3",
	         "r.example/a/b@sha256:1"},
		{"r.example:5000/b", "r.example:5000/c@sha256:1 r.example:5000/b@sha256:1 ", "",
	         "r.example:5000/b@sha256:1"},
		{"docker://r.example/b", "r.example/b@sha256:1 ", "", "r.example/b@sha256:1"},
		{"r.example/b@sha256:2", "r.example/b@sha256:1 r.example/b@sha256:2 ", "@sha256:2",
	         "r.example/b@sha256:2"},
		{"python:3.12", "docker.io/library/python@sha256:1 ", "",
	         "docker.io/library/python@sha256:1"},
		{"thon:3.12", "docker.io/library/python@sha256:1 ", "", NULL},
		{"localhost/b:1", "localhost/b@sha256:1 ", "", NULL},
		{"b:1", "localhost/b@sha256:1 ", "", NULL},
		{"r.example/b:1", "", "", NULL},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		const char *is = image_reference(a, rows[i].name, str_of(rows[i].references),
		                                 rows[i].digest);

		assert_row((is == NULL) == (rows[i].is == NULL), rows[i].name);
		if (is != NULL)
			assert_string_equal(is, rows[i].is);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(knows_an_image_by_its_digests), cmocka_unit_test(knows_hosts),
	cmocka_unit_test(knows_whose_an_image_is),       cmocka_unit_test(writes_the_auth_file),
	cmocka_unit_test(refuses_what_is_no_credential),
};
UNIT_MAIN(tests)
