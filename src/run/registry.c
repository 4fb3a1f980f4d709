/* registry.c - from docker_auth to podman's auth file; see registry.h. */
#include "run/registry.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/seal.h"
#include "io/sigv4.h"

#define ECR_MS 30000 /* for the answer of the registry's own API */
#define ECR_REPLY_MAX ((size_t)64 << 10)
#define ECR_REGION_MAX 40
#define PASSWORD_MAX ((size_t)2 << 20)

char *registry_host(struct arena *a, const char *registry)
{
	static const char *const schemes[] = {"https://", "http://"};
	static const char *const versions[] = {"/v1", "/v2"};
	static const char *const hub[] = {"index.docker.io", "registry-1.docker.io"};
	struct str s = str_trim(str_of(registry));

	for (size_t i = 0; i < COUNT(schemes); i++) {
		if (str_starts(s, schemes[i])) {
			s.p += strlen(schemes[i]);
			s.n -= strlen(schemes[i]);
		}
	}
	while (str_ends(s, "/"))
		s.n--;
	for (size_t i = 0; i < COUNT(versions); i++) {
		if (str_ends(s, versions[i]))
			s.n -= strlen(versions[i]);
	}
	for (size_t i = 0; i < COUNT(hub); i++) {
		if (str_ieq(s, hub[i]))
			return arena_cstr(a, "docker.io");
	}
	return arena_strz(a, s);
}

bool registry_has(const char *host, const char *image)
{
	size_t n = strlen(host);
	struct str rest = str_of(image), first = {0};

	if (strncmp(image, host, n) == 0 && image[n] == '/')
		return true;
	/* A name whose first part is no host is Docker Hub's. */
	return strcmp(host, "docker.io") == 0 &&
	       (!str_cut(&rest, '/', &first) || rest.n == 0 ||
	        (memchr(first.p, '.', first.n) == NULL && memchr(first.p, ':', first.n) == NULL &&
	         !str_eq(first, "localhost")));
}

/* "eu-west-1" of "123.dkr.ecr.eu-west-1.amazonaws.com": only what such a name may hold, as it
 * becomes a part of the host that is asked. */
static int ecr_region(struct arena *a, const char *host, char **region, const char **tail,
                      struct err *err)
{
	static const char mark[] = ".dkr.ecr.";
	const char *at = strstr(host, mark), *end = NULL;
	size_t n = 0;

	if (at != NULL) {
		at += strlen(mark);
		n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-");
		end = at + n;
	}
	if (end == NULL || n == 0 || n > ECR_REGION_MAX ||
	    (strcmp(end, ".amazonaws.com") != 0 && strcmp(end, ".amazonaws.com.cn") != 0))
		return err_set(err, ERR_INVALID,
		               "AWS_IAM is for registries of AWS, such as "
		               "123456789012.dkr.ecr.eu-west-1.amazonaws.com; for %.100s use "
		               "REGISTRY_SECRET with a user name and password",
		               host);
	*region = arena_strz(a, (struct str){at, n});
	*tail = end;
	return 0;
}

/* The reply's token is "AWS:password" in base64: what the auth file wants.
 * https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html */
static int ecr_token(struct arena *a, struct str body, struct str *token, struct err *err)
{
	const struct doc *d = NULL, *list;

	if (js_parse(a, body, &d, err) < 0)
		return -1;
	list = doc_get(d, "authorizationData");
	*token = doc_text(doc_get(doc_first(list), "authorizationToken"));
	if (token->n == 0)
		return err_set(err, ERR_CORRUPT, "the reply has no authorizationToken");
	return 0;
}

static int ecr_ask(struct arena *a, const char *host, const char *key_id, const char *key,
                   const atomic_bool *cancel, struct str *token, struct err *err)
{
	AUTO_HTTP_CLIENT struct http_client *client = NULL;
	AUTO_HTTP_REPLY struct http_reply reply = {0};
	struct sigv4_key sign = {
		.access_key = key_id, .secret_key = key, .region = "us-east-1", .service = "ecr"};
	struct http_header headers[2 + 4] = {
		{"Content-Type", "application/x-amz-json-1.1"},
		{"X-Amz-Target", "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"}};
	const char *url = getenv("AWS_ENDPOINT_URL_ECR"), *tail = NULL;
	struct str body = STR_LIT("{}");
	struct http_call call = {.method = HTTP_POST,
	                         .headers = headers,
	                         .n_headers = 2,
	                         .body = body,
	                         .total_ms = ECR_MS,
	                         .body_max = ECR_REPLY_MAX,
	                         .cancel = cancel};
	struct digest sum = hash_sha256(body.p, body.n);
	char hex[HASH_HEX_CAP], *region = NULL;
	size_t n = 0;

	if (url == NULL) {
		if (ecr_region(a, host, &region, &tail, err) < 0)
			return -1;
		sign.region = region;
		url = arena_printf(a, "https://api.ecr.%s%s/", region, tail);
	}
	digest_hex(&sum, hex);
	if (sigv4_sign(a, &sign, HTTP_POST, url, headers, 2, hex, clock_wall_ms(), headers + 2, &n,
	               err) < 0)
		return -1;
	call.url = url;
	call.n_headers += n;
	client = http_client_new(&(struct http_policy){0});
	if (http_do(client, &call, &reply, err) < 0 || http_expect(&call, &reply, err) < 0)
		return -1;
	return ecr_token(a, buf_view(&reply.body), token, err);
}

/* "name:password" as the job's method has it, in base64. */
static int basic(struct arena *a, const struct job_spec *s, const char *host, const char *secret,
                 const char *secret2, const atomic_bool *cancel, struct buf *out, struct err *err)
{
	struct buf plain = BUF_INIT(PASSWORD_MAX);
	struct str value = str_trim(str_of(secret)), token = {0};
	int rc = 0;

	switch (s->registry_auth) {
	case SPEC_AUTH_REGISTRY_SECRET:
		if (memchr(value.p, ':', value.n) == NULL)
			return err_set(
				err, ERR_REGISTRY_SECRET_INVALID,
				"secret \"%s\" is not in the form username:password: update it "
				"with `stoker secrets set %s`",
				s->registry_secret, s->registry_secret);
		buf_add(&plain, value.p, value.n);
		break;
	case SPEC_AUTH_GCP_JSON:
		/* https://cloud.google.com/artifact-registry/docs/docker/authentication#json-key */
		buf_puts(&plain, "_json_key:");
		buf_add(&plain, value.p, value.n);
		break;
	case SPEC_AUTH_AWS_IAM:
		if (ecr_ask(a, host, arena_strz(a, value), arena_strz(a, str_trim(str_of(secret2))),
		            cancel, &token, err) < 0)
			return err_wrap(err, "secrets \"%s\" and \"%s\"", s->registry_secret,
			                s->registry_secret2);
		buf_add(out, token.p, token.n);
		return 0;
	case SPEC_AUTH_NONE:
		break;
	}
	rc = buf_check(&plain, "the registry's password", err);
	if (rc == 0)
		base64_encode(plain.p, plain.n, false, out);
	seal_wipe_buf(&plain);
	return rc;
}

int registry_auth(const struct job_spec *spec, const char *secret, const char *secret2,
                  const atomic_bool *cancel, struct buf *out, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *host = registry_host(a, spec->registry);
	struct buf auth = BUF_INIT(2 * PASSWORD_MAX);
	struct js js;
	int rc = 0;

	if (secret == NULL || (secret2 == NULL && spec->registry_auth == SPEC_AUTH_AWS_IAM))
		return err_set(
			err, ERR_UNSUPPORTED,
			"the server did not send credentials for %s: is it an older version?",
			host);
	rc = basic(a, spec, host, secret, secret2, cancel, &auth, err);
	if (rc == 0) {
		js_init(&js, out);
		js_open(&js);
		js_key(&js, "auths");
		js_open(&js);
		js_key(&js, host);
		js_open(&js);
		js_kv_str(&js, "auth", buf_view(&auth));
		js_close(&js);
		js_close(&js);
		js_close(&js);
		rc = buf_check(out, "the registry's auth file", err);
	}
	seal_wipe_buf(&auth);
	return rc;
}
