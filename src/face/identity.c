/*
 * identity.c - what clouds ask of an issuer before they believe its tokens: OpenID Connect
 * Discovery 1.0 section 4, and the public key (RFC 7517). Neither is a secret, so neither wants a
 * token; both may be copied to another place, and be served there.
 */
#include "base/json.h"
#include "face/answer.h"
#include "face/face.h"

#define KEYS_PATH "/.well-known/jwks.json"
#define FRESH "public, max-age=300" /* a key that changes is seen so soon */

static void list_of_one(struct js *js, const char *name, const char *value)
{
	js_key(js, name);
	js_list(js);
	js_cstr(js, value);
	js_end(js);
}

static int configuration(struct request *rq, struct err *err)
{
	static const char *const claims[] = {"iss", "sub", "aud", "iat", "nbf", "exp", "jti"};
	const struct face_ctx *ctx = face_ctx(rq);
	const char *issuer = ctx->ops->identity->issuer(ctx->app, rq->arena);
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_kv(&an.js, "issuer", issuer);
	js_key(&an.js, "jwks_uri");
	js_fmt(&an.js, "%s" KEYS_PATH, issuer);
	list_of_one(&an.js, "response_types_supported", "id_token");
	list_of_one(&an.js, "subject_types_supported", "public");
	list_of_one(&an.js, "id_token_signing_alg_values_supported", "RS256");
	js_key(&an.js, "claims_supported");
	js_list(&an.js);
	for (size_t i = 0; i < COUNT(claims); i++)
		js_cstr(&an.js, claims[i]);
	js_end(&an.js);
	reply_header(rq, "Cache-Control", FRESH);
	return answer_send(rq, &an, 200, err);
}

static int keys(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct jwt_public k;

	if (ctx->ops->identity->key(ctx->app, rq->arena, &k, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "keys");
	js_list(&an.js);
	js_open(&an.js);
	js_kv(&an.js, "kty", "RSA");
	js_kv(&an.js, "use", "sig");
	js_kv(&an.js, "alg", "RS256");
	js_kv(&an.js, "kid", k.id);
	js_kv(&an.js, "n", k.n);
	js_kv(&an.js, "e", k.e);
	js_close(&an.js);
	js_end(&an.js);
	reply_header(rq, "Cache-Control", FRESH);
	return answer_send(rq, &an, 200, err);
}

/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET, SCOPE_OPEN, 0, "/.well-known/openid-configuration", configuration, "Web identity: this server as an issuer" },
	{ HTTP_GET, SCOPE_OPEN, 0, KEYS_PATH,                           keys,          "Web identity: the key that verifies its tokens" },
};
/* clang-format on */

const struct face face_identity = {"identity", routes, COUNT(routes), NULL};
