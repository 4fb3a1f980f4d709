/*
 * s3_auth.c - who may do what at the S3 face:
 *
 *   credentials of an upload      write its one key, until they expire
 *   a URL that this server signed  read exactly what it was signed for
 *   a token (Bearer, Api-Key)      read and list the projects of its team
 *
 * At the artifacts' (artifact_s3.c) a token is all of it: as Bearer, or as the secret key that
 * signs and as the session token, which says whose it is. No key is made or kept for that.
 */
#include "face/s3_impl.h"

#include "base/clock.h"
#include "base/seal.h"
#include "io/sigv4.h"

#define S3_HEADERS_MAX 200 /* more than the listener lets through */
#define S3_PROJECTS "training_projects/"

struct headers {
	unsigned magic;
#define HEADERS_MAGIC 0x46484541U
	struct request *rq;
	struct http_header *header;
	size_t n;
};

static void add_header(struct str name, struct str value, void *arg)
{
	struct headers *h = FROM_VOID(struct headers, arg, HEADERS_MAGIC);

	if (str_ieq(name, "host"))
		value = face_host(h->rq); /* a proxy may have put its own there */
	if (h->n < S3_HEADERS_MAX)
		h->header[h->n++] = (struct http_header){
			arena_strz(h->rq->arena, name),
			arena_strz(h->rq->arena, value),
		};
}

static struct sigv4_request signed_part(struct request *rq)
{
	struct headers h = {.magic = HEADERS_MAGIC, .rq = rq};

	h.header = ARENA_ARRAY(rq->arena, struct http_header, S3_HEADERS_MAX);
	request_each_header(rq, add_header, &h);
	return (struct sigv4_request){
		.method = rq->method,
		.path = rq->path,
		.query = rq->query,
		.headers = h.header,
		.n_headers = h.n,
	};
}

/* A URL of ours. It was signed for GET; HEAD of the same is as good. */
static int check_url(struct request *rq, struct sigv4_request *sig, const struct sigv4_key *key,
                     enum s3_need need, struct err *err)
{
	if (need != S3_READ)
		return err_set(err, ERR_DENIED, "AccessDenied: this URL is for downloading only");
	sig->method = HTTP_GET;
	return sigv4_verify(rq->arena, key, sig, clock_wall_ms(), err);
}

/* The credentials of an upload, by their access key. */
static int find_upload(struct request *rq, struct str access, struct model_upload *u,
                       struct sigv4_key *pair, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);

	if (ctx->ops->uploads->find(ctx->app, rq->arena, access, u, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_DENIED,
		               "InvalidAccessKeyId: the access key is unknown or has expired; "
		               "request new credentials");
	}
	*pair = (struct sigv4_key){u->access_key, u->secret_key, u->session_token, NULL, "s3"};
	return 0;
}

static int check_upload(struct request *rq, const struct sigv4_request *sig, struct str access,
                        enum s3_need need, const char *key, struct err *err)
{
	struct model_upload u = {0};
	struct sigv4_key pair;

	if (find_upload(rq, access, &u, &pair, err) < 0 ||
	    sigv4_verify(rq->arena, &pair, sig, clock_wall_ms(), err) < 0)
		return -1;
	if (u.expires_ms != 0 && u.expires_ms <= clock_wall_ms())
		return err_set(
			err, ERR_DENIED,
			"ExpiredToken: these upload credentials have expired; request new ones");
	if (need == S3_BUCKET)
		return 0;
	if (need != S3_WRITE || strcmp(u.key, key) != 0)
		return err_set(err, ERR_DENIED,
		               "AccessDenied: these credentials are for uploading %s only", u.key);
	return 0;
}

/* "Bearer X", "Api-Key X"; empty when the header is another one. */
static struct str token_of(const struct request *rq)
{
	static const char *const schemes[] = {"Bearer ", "Api-Key "};
	struct str header = request_header(rq, "authorization");

	for (size_t i = 0; i < COUNT(schemes); i++) {
		size_t n = strlen(schemes[i]);

		if (header.n > n && str_ieq(str_n(header.p, n), schemes[i]))
			return str_trim(str_skip(header, n));
	}
	return (struct str){0};
}

static int check_token(struct request *rq, struct str token, enum s3_need need, const char *key,
                       struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str rest = str_of(key), project;
	struct model_project row = {0};
	struct principal *principal = NULL;

	if (ctx->ops->tokens->authenticate(ctx->app, rq->arena, token, rq->local, &principal, err) <
	    0)
		return -1;
	rq->principal = principal;
	if (principal->role < ROLE_MEMBER)
		return err_set(err, ERR_DENIED,
		               "AccessDenied: this requires a token with the role member");
	if (need == S3_BUCKET)
		return 0;
	if (need == S3_WRITE)
		return err_set(err, ERR_DENIED,
		               "AccessDenied: a token cannot write here; request upload "
		               "credentials (GET /v1/blobs/credentials/train)");
	if (!str_starts(rest, S3_PROJECTS))
		return err_set(err, ERR_DENIED,
		               "AccessDenied: a token can only read below " S3_PROJECTS
		               "<project>/");
	rest = str_skip(rest, strlen(S3_PROJECTS));
	project = rest;
	if (memchr(rest.p, '/', rest.n) == NULL || !str_cut(&rest, '/', &project) || project.n == 0)
		return err_set(err, ERR_DENIED,
		               "AccessDenied: name the project: " S3_PROJECTS "<project>/");
	if (ctx->ops->projects->get(face_ask(rq), arena_strz(rq->arena, project), &row, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_NOT_FOUND, "NoSuchKey: no object %s", key);
	}
	return 0;
}

int s3_authorize(struct request *rq, enum s3_need need, const char *key, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str token = token_of(rq), access;
	const struct sigv4_key ours = {.access_key = ctx->url_access_key,
	                               .secret_key = ctx->url_secret_key,
	                               .service = "s3"};
	struct sigv4_request sig;

	if (token.n > 0)
		return check_token(rq, token, need, key, err);
	sig = signed_part(rq);
	access = sigv4_access_key(rq->arena, &sig);
	if (access.n == 0)
		return err_set(err, ERR_DENIED,
		               "AccessDenied: sign the request, use a signed URL, or send a token");
	if (str_eq(access, ours.access_key))
		return check_url(rq, &sig, &ours, need, err);
	return check_upload(rq, &sig, access, need, key, err);
}

/* In a header only. The session token of a signed URL is no secret to those who sign it and hand
 * the URL on; this one is. */
static int token_pair(struct request *rq, const struct sigv4_request *sig, struct sigv4_key *pair,
                      struct err *err)
{
	struct str token = request_header(rq, "x-amz-security-token");
	struct str access = sigv4_access_key(rq->arena, sig);
	const char *secret;

	if (token.n == 0 || access.n == 0)
		return err_set(
			err, ERR_DENIED,
			"AccessDenied: sign the request with a token of this server as the secret "
			"access key, and give it as the session token, too; in headers, for a URL "
			"would tell the token to all who see it");
	secret = arena_strz(rq->arena, token);
	*pair = (struct sigv4_key){arena_strz(rq->arena, access), secret, secret, NULL, "s3"};
	return 0;
}

int s3_authenticate(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str token = token_of(rq);
	struct principal *principal = NULL;
	struct sigv4_request sig;
	struct sigv4_key pair;

	if (token.n == 0) {
		sig = signed_part(rq);
		if (token_pair(rq, &sig, &pair, err) < 0 ||
		    sigv4_verify(rq->arena, &pair, &sig, clock_wall_ms(), err) < 0)
			return -1;
		token = str_of(pair.secret_key);
	}
	if (ctx->ops->tokens->authenticate_any(ctx->app, rq->arena, token, rq->local, &principal,
	                                       err) < 0)
		return -1;
	face_caller(rq, principal);
	return 0;
}

int s3_chunk_seed(struct request *rq, struct sigv4_chunks *out, struct err *err)
{
	struct sigv4_request sig = signed_part(rq);
	struct model_upload u = {0};
	struct sigv4_key pair;

	if (rq->face == &face_artifact_s3) {
		if (token_pair(rq, &sig, &pair, err) < 0)
			return -1;
	} else if (find_upload(rq, sigv4_access_key(rq->arena, &sig), &u, &pair, err) < 0) {
		return -1;
	}
	return sigv4_chunks_begin(rq->arena, &pair, &sig, out, err);
}
