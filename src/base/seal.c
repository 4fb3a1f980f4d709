/* seal.c - random tokens and sealed secrets, over libsodium. */
#include "base/seal.h"

#include "base/fs.h"

#include <pthread.h>
#include <sodium.h>
#include <sys/mman.h>

#define SEAL_VERSION 1
#define NONCE crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG crypto_aead_xchacha20poly1305_ietf_ABYTES
#define WRAPPED (SEAL_KEY_LEN + TAG)
#define HEAD (1 + NONCE + WRAPPED + NONCE) /* version, nonce, wrapped key, nonce */

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init(void)
{
	if (sodium_init() < 0)
		abort();
}

void seal_random(void *p, size_t n)
{
	(void)pthread_once(&once, init);
	randombytes_buf(p, n);
}

void seal_wipe(void *p, size_t n)
{
	sodium_memzero(p, n);
}

void seal_wipe_buf(struct buf *b)
{
	if (b->p != NULL)
		sodium_memzero(b->p, b->cap);
	buf_done(b);
}

bool seal_same(const void *a, const void *b, size_t n)
{
	return sodium_memcmp(a, b, n) == 0;
}

void seal_id(char *out, size_t n)
{
	static const char set[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* 32: no 0 o 1 l */

	seal_random(out, n); /* at once: each call asks the kernel */
	for (size_t i = 0; i < n; i++)
		out[i] = set[(uint8_t)out[i] & 31];
	out[n] = '\0';
}

void seal_token(const char *prefix, struct buf *out)
{
	uint8_t raw[32];

	seal_random(raw, sizeof(raw));
	buf_puts(out, prefix);
	buf_putc(out, '_');
	base64_encode(raw, sizeof(raw), true, out);
	seal_wipe(raw, sizeof(raw));
}

static int make_key(const char *path, struct seal_key *out, struct err *err)
{
	struct buf text = BUF_INIT(100);
	int r;

	seal_random(out->b, sizeof(out->b));
	base64_encode(out->b, sizeof(out->b), false, &text);
	buf_putc(&text, '\n');
	r = fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err);
	seal_wipe_buf(&text);
	return r;
}

/* Neither on the swap disk nor in a core dump. Without the right to lock: in no dump at least. */
static void guard(struct seal_key *key)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)key & ~(page - 1);
	uintptr_t to = ((uintptr_t)(key + 1) + page - 1) & ~(page - 1);

	(void)mlock((void *)from, to - from);
	(void)madvise((void *)from, to - from, MADV_DONTDUMP);
}

int seal_load_key(const char *path, bool create, struct seal_key *out, struct err *err)
{
	struct buf text = BUF_INIT(100), key = BUF_INIT(100);
	struct stat st;
	int r = -1;

	(void)pthread_once(&once, init);
	guard(out);
	if (stat(path, &st) < 0) {
		if (errno == ENOENT && create)
			return make_key(path, out, err);
		if (errno == ENOENT)
			return err_set(err, ERR_NOT_FOUND,
			               "master key %s is not there, and the database is sealed "
			               "with it",
			               path);
		return err_errno(err, errno, "master key %s", path);
	}
	if ((st.st_mode & 077) != 0)
		return err_set(err, ERR_DENIED,
		               "master key %s can be read by others (mode %03o): chmod 600 it",
		               path, st.st_mode & 0777U);
	if (fs_read(AT_FDCWD, path, &text, err) < 0)
		goto out;
	if (base64_decode(str_trim(buf_view(&text)), false, &key, err) < 0 ||
	    key.n != SEAL_KEY_LEN) {
		err_clear(err);
		(void)err_set(
			err, ERR_CORRUPT,
			"master key %s is not 32 bytes in base64: restore it from a backup, sealed "
			"secrets cannot be read without it",
			path);
		goto out;
	}
	memcpy(out->b, key.p, SEAL_KEY_LEN);
	r = 0;
out:
	seal_wipe_buf(&text);
	seal_wipe_buf(&key);
	return r;
}

void seal_close(const struct seal_key *master, struct str about, struct str value, struct buf *out)
{
	uint8_t head[HEAD];
	uint8_t *nonce1 = head + 1, *wrapped = nonce1 + NONCE, *nonce2 = wrapped + WRAPPED;
	struct seal_key own;
	char *room;

	(void)pthread_once(&once, init);
	assert(value.n <= SEAL_VALUE_MAX);
	head[0] = SEAL_VERSION;
	seal_random(own.b, sizeof(own.b));
	seal_random(nonce1, NONCE);
	seal_random(nonce2, NONCE);
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(wrapped, NULL, own.b, sizeof(own.b),
	                                                 (const uint8_t *)about.p, about.n, NULL,
	                                                 nonce1, master->b);
	buf_add(out, head, sizeof(head));
	room = buf_room(out, value.n + TAG);
	if (room != NULL) {
		(void)crypto_aead_xchacha20poly1305_ietf_encrypt(
			(uint8_t *)room, NULL, (const uint8_t *)value.p, value.n,
			(const uint8_t *)about.p, about.n, NULL, nonce2, own.b);
		out->n += value.n + TAG;
	}
	seal_wipe(&own, sizeof(own));
}

int seal_open(const struct seal_key *master, struct str about, struct str sealed, struct buf *out,
              struct err *err)
{
	const uint8_t *head = (const uint8_t *)sealed.p;
	const uint8_t *nonce1 = head + 1, *wrapped = nonce1 + NONCE, *nonce2 = wrapped + WRAPPED;
	struct seal_key own;
	size_t body;
	char *room;
	int r = 0;

	(void)pthread_once(&once, init);
	if (sealed.n < HEAD + TAG || head[0] != SEAL_VERSION ||
	    crypto_aead_xchacha20poly1305_ietf_decrypt(own.b, NULL, NULL, wrapped, WRAPPED,
	                                               (const uint8_t *)about.p, about.n, nonce1,
	                                               master->b) != 0)
		return err_set(err, ERR_CORRUPT,
		               "%.*s cannot be decrypted: it was changed, or encrypted with "
		               "another master key",
		               STR_ARG(about));
	body = sealed.n - HEAD - TAG;
	room = buf_room(out, body);
	if (room == NULL)
		r = err_set(err, ERR_TOO_BIG, "%.*s is larger than %zu bytes", STR_ARG(about),
		            out->max);
	else if (crypto_aead_xchacha20poly1305_ietf_decrypt(
			 (uint8_t *)room, NULL, NULL, (const uint8_t *)sealed.p + HEAD,
			 sealed.n - HEAD, (const uint8_t *)about.p, about.n, nonce2, own.b) != 0)
		r = err_set(err, ERR_CORRUPT, "%.*s was modified in the database", STR_ARG(about));
	else
		out->n += body;
	seal_wipe(&own, sizeof(own));
	return r;
}
