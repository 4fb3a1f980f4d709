/* jwt.c - see jwt.h. */
#include "base/jwt.h"

#include "base/hash.h"
#include "base/json.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#define JWT_KEY_MAX ((size_t)64 << 10)
#define JWT_SIGNATURE_MAX 2048 /* bytes: a key of 16384 bits */
#define JWT_NEW_BITS 2048U

/* A password that nobody types: a locked key is refused, OpenSSL asks no terminal. */
static int no_password(char *out UNUSED, int cap UNUSED, int writing UNUSED, void *arg UNUSED)
{
	return -1;
}

static EVP_PKEY *read_key(struct str pem)
{
	BIO *bio = pem.n > 0 && pem.n <= JWT_KEY_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
	EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;

	BIO_free(bio);
	ERR_clear_error(); /* nobody else should find what went wrong here */
	if (key != NULL && (EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA ||
	                    EVP_PKEY_get_size(key) > JWT_SIGNATURE_MAX)) {
		EVP_PKEY_free(key);
		return NULL;
	}
	return key;
}

int jwt_sign_rs256(struct str pem, const char *key_id, struct str claims, struct buf *out,
                   struct err *err)
{
	AUTO_BUF struct buf header = BUF_INIT(4096), text = BUF_INIT(JWT_KEY_MAX);
	uint8_t signature[JWT_SIGNATURE_MAX];
	size_t n = sizeof(signature);
	EVP_PKEY *key = read_key(pem);
	EVP_MD_CTX *c;
	struct js js;
	bool ok;

	if (key == NULL)
		return err_set(err, ERR_INVALID, "not an RSA private key in PEM");
	js_init(&js, &header);
	js_open(&js);
	js_kv(&js, "alg", "RS256");
	js_kv(&js, "typ", "JWT");
	if (key_id != NULL)
		js_kv(&js, "kid", key_id);
	js_close(&js);
	base64_encode(header.p, header.n, true, &text);
	buf_putc(&text, '.');
	base64_encode(claims.p, claims.n, true, &text);

	c = EVP_MD_CTX_new();
	assert(c != NULL); /* small; memory is gone otherwise */
	ok = !header.full && !text.full &&
	     EVP_DigestSignInit(c, NULL, EVP_sha256(), NULL, key) == 1 &&
	     EVP_DigestSign(c, signature, &n, (const unsigned char *)text.p, text.n) == 1;
	EVP_MD_CTX_free(c);
	EVP_PKEY_free(key);
	if (!ok)
		return err_set(err, ERR_INVALID, "this RSA key cannot sign");
	buf_str(out, buf_view(&text));
	buf_putc(out, '.');
	base64_encode(signature, n, true, out);
	return buf_check(out, "the token", err);
}

void jwt_new_key(struct buf *pem)
{
	EVP_PKEY *key = EVP_RSA_gen(JWT_NEW_BITS);
	BIO *bio = BIO_new(BIO_s_secmem());
	char *text = NULL;
	long n;
	int ok;

	/* Only without memory or random numbers does any of this fail. */
	assert(key != NULL && bio != NULL);
	ok = PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, no_password, NULL);
	n = BIO_get_mem_data(bio, &text);
	assert(ok == 1 && n > 0);
	buf_add(pem, text, (size_t)n);
	BIO_free(bio); /* wipes */
	EVP_PKEY_free(key);
}

/* As RFC 7518 section 6.3.1 has it: big-endian, without zeros in front. */
static char *number(struct arena *a, const EVP_PKEY *key, const char *name)
{
	AUTO_BUF struct buf text = BUF_INIT(JWT_KEY_MAX);
	uint8_t raw[JWT_SIGNATURE_MAX];
	BIGNUM *value = NULL;
	int n = -1;

	if (EVP_PKEY_get_bn_param(key, name, &value) == 1 &&
	    BN_num_bytes(value) <= (int)sizeof(raw))
		n = BN_bn2bin(value, raw);
	BN_free(value);
	if (n <= 0)
		return NULL;
	base64_encode(raw, (size_t)n, true, &text);
	return arena_strz(a, buf_view(&text));
}

int jwt_public_key(struct arena *a, struct str pem, struct jwt_public *out, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(JWT_KEY_MAX), id = BUF_INIT(JWT_KEY_MAX);
	EVP_PKEY *key = read_key(pem);
	struct digest d;

	if (key == NULL)
		return err_set(err, ERR_INVALID, "not an RSA private key in PEM");
	out->n = number(a, key, OSSL_PKEY_PARAM_RSA_N);
	out->e = number(a, key, OSSL_PKEY_PARAM_RSA_E);
	EVP_PKEY_free(key);
	assert(out->n != NULL && out->e != NULL); /* every RSA key has both */
	/* RFC 7638 section 3: these members, in this order, without blanks. */
	buf_printf(&text, "{\"e\":\"%s\",\"kty\":\"RSA\",\"n\":\"%s\"}", out->e, out->n);
	d = hash_sha256(text.p, text.n);
	base64_encode(d.b, sizeof(d.b), true, &id);
	out->id = arena_strz(a, buf_view(&id));
	return 0;
}
