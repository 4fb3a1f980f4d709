/*
 * s3_body.c - bodies on their way into the store. A client may say what its body hashes to in five
 * places: x-amz-content-sha256, Content-MD5, x-amz-checksum-* in the head or behind the last chunk.
 * All that are there are computed while the bytes pass and compared before the store sees the end.
 * Where the chunks have signatures of their own, those are checked, too.
 */
#include "face/awschunked.h"
#include "face/s3_chunks.h"
#include "face/s3_impl.h"

#include "base/hash.h"
#include "io/sigv4.h"

#include <pthread.h>

#define S3_RAW ((size_t)64 << 10) /* encoded bytes that are read at once */
#define S3_STREAM_PLAIN "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
#define S3_DIGEST_MAX 32

enum checksum { SUM_CRC32, SUM_CRC32C, SUM_CRC64NVME, SUM_SHA1, SUM_SHA256, SUM_COUNT };

/* clang-format off */
static const struct {
	const char *header;
	size_t bytes;
} checksums[SUM_COUNT] = {
	[SUM_CRC32]     = { "x-amz-checksum-crc32",     4 },
	[SUM_CRC32C]    = { "x-amz-checksum-crc32c",    4 },
	[SUM_CRC64NVME] = { "x-amz-checksum-crc64nvme", 8 },
	[SUM_SHA1]      = { "x-amz-checksum-sha1",      20 },
	[SUM_SHA256]    = { "x-amz-checksum-sha256",    32 },
};
/* clang-format on */

struct expected {
	bool wanted, known; /* to be computed; the value has come */
	uint8_t want[S3_DIGEST_MAX];
};

struct s3_body {
	unsigned magic;
#define S3_BODY_MAGIC 0x46533342U
	struct request *rq;
	bool chunked, ended;
	struct awschunked decoder;
	struct s3_chunks *chunks; /* NULL: their signatures are none */
	char *raw;                /* encoded bytes, `left` of them to be decoded */
	struct str left;
	uint64_t crc32c, crc64;
	uint32_t crc32;
	struct hash *sha256, *sha1, *md5;
	struct expected sum[SUM_COUNT], content_sha256, content_md5;
};

/* ---- checksums that base/ has no use for --------------------------------------------- */

/* Bit-reflected CRC, a byte at a time: 0x82f63b78 is Castagnoli's, the other one NVMe's. */
#define CRC32C_POLY 0x82f63b78U
#define CRC64NVME_POLY 0x9a6c9329ac4bc9b5U

static uint64_t crc_byte(uint64_t crc, uint64_t poly)
{
	for (int bit = 0; bit < 8; bit++)
		crc = (crc >> 1) ^ (poly & (0 - (crc & 1)));
	return crc;
}

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static uint64_t table32c[256], table64[256];

static void fill_tables(void)
{
	for (uint64_t i = 0; i < 256; i++) {
		table32c[i] = crc_byte(i, CRC32C_POLY);
		table64[i] = crc_byte(i, CRC64NVME_POLY);
	}
}

static uint64_t crc_add(const uint64_t table[256], uint64_t crc, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		crc = table[(crc ^ p[i]) & 0xff] ^ (crc >> 8);
	return crc;
}

/* ---- what the client said ------------------------------------------------------------ */

static int decode_sum(struct str text, size_t bytes, struct expected *e, const char *name,
                      struct err *err)
{
	AUTO_BUF struct buf raw = BUF_INIT(S3_DIGEST_MAX + 2);
	struct err ignored = {0};

	if (base64_decode(text, false, &raw, &ignored) < 0 || raw.n != bytes)
		return err_set(err, ERR_INVALID, "InvalidDigest: %s is not the base64 of %zu bytes",
		               name, bytes);
	memcpy(e->want, raw.p, bytes);
	e->wanted = e->known = true;
	return 0;
}

static int on_trailer(void *arg, struct str name, struct str value, struct err *err)
{
	struct s3_body *b = FROM_VOID(struct s3_body, arg, S3_BODY_MAGIC);

	if (b->chunks != NULL && s3_chunks_trailer(b->chunks, name, value, err) < 0)
		return -1;
	for (size_t i = 0; i < SUM_COUNT; i++)
		if (str_ieq(name, checksums[i].header) && b->sum[i].wanted)
			return decode_sum(value, checksums[i].bytes, &b->sum[i],
			                  checksums[i].header, err);
	return 0;
}

static int on_chunk(void *arg, uint64_t size, struct str extension, struct err *err)
{
	struct s3_body *b = FROM_VOID(struct s3_body, arg, S3_BODY_MAGIC);

	return s3_chunks_line(b->chunks, size, extension, err);
}

static void on_data(void *arg, const void *p, size_t n)
{
	struct s3_body *b = FROM_VOID(struct s3_body, arg, S3_BODY_MAGIC);

	s3_chunks_data(b->chunks, p, n);
}

static bool chunks_signed(struct str sha256)
{
	return str_eq(sha256, SIGV4_STREAM) || str_eq(sha256, SIGV4_STREAM_TRAILER);
}

/* The decoder of a chunked body, and what checks its signatures. */
static int begin_chunks(struct s3_body *b, struct str sha256, struct err *err)
{
	struct sigv4_chunks seed;

	b->raw = xmalloc(S3_RAW);
	b->decoder.arg = b;
	b->decoder.trailer = on_trailer;
	if (!chunks_signed(sha256))
		return 0;
	if (s3_chunk_seed(b->rq, &seed, err) < 0)
		return -1;
	b->chunks = s3_chunks_new(&seed, str_eq(sha256, SIGV4_STREAM_TRAILER));
	b->decoder.chunk = on_chunk;
	b->decoder.data = on_data;
	return 0;
}

static int read_expected(struct s3_body *b, struct str sha256, struct err *err)
{
	struct str header = request_header(b->rq, "content-md5"), name;

	if (header.n > 0 && decode_sum(header, 16, &b->content_md5, "Content-MD5", err) < 0)
		return -1;
	for (size_t i = 0; i < SUM_COUNT; i++) {
		header = request_header(b->rq, checksums[i].header);
		if (header.n > 0 && decode_sum(header, checksums[i].bytes, &b->sum[i],
		                               checksums[i].header, err) < 0)
			return -1;
	}
	header = request_header(b->rq, "x-amz-trailer");
	while (b->chunked && str_cut(&header, ',', &name))
		for (size_t i = 0; i < SUM_COUNT; i++)
			if (str_ieq(str_trim(name), checksums[i].header))
				b->sum[i].wanted = true;
	if (sha256.n == 0 || str_eq(sha256, SIGV4_UNSIGNED) || str_eq(sha256, S3_STREAM_PLAIN) ||
	    chunks_signed(sha256))
		return 0;
	if (hex_decode(sha256, b->content_sha256.want, 32, err) < 0) {
		err_clear(err);
		return err_set(err, ERR_INVALID,
		               "InvalidArgument: x-amz-content-sha256 must be a SHA-256 in "
		               "hex, " SIGV4_UNSIGNED " or " S3_STREAM_PLAIN);
	}
	b->content_sha256.wanted = b->content_sha256.known = true;
	return 0;
}

static bool is_chunked(const struct request *rq)
{
	struct str list = request_header(rq, "content-encoding"), item;

	while (str_cut(&list, ',', &item))
		if (str_ieq(str_trim(item), "aws-chunked"))
			return true;
	return false;
}

static int find_size(struct s3_body *b, uint64_t *size, struct err *err)
{
	struct str decoded = request_header(b->rq, "x-amz-decoded-content-length");

	if (b->chunked && decoded.n > 0) {
		if (str_u64(decoded, 0, INT64_MAX, size, err) < 0)
			return err_wrap(err, "InvalidArgument: x-amz-decoded-content-length");
	} else if (!b->chunked && b->rq->body_len >= 0) {
		*size = (uint64_t)b->rq->body_len;
	} else {
		return err_set(err, ERR_INVALID,
		               "MissingContentLength: send the length of the body in %s",
		               b->chunked ? "x-amz-decoded-content-length" : "Content-Length");
	}
	if (*size > S3_OBJECT_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "EntityTooLarge: %" PRIu64 " bytes, more than the %" PRIu64
		               " of one request",
		               *size, S3_OBJECT_MAX);
	return 0;
}

int s3_body_new(struct request *rq, struct s3_body **out, uint64_t *size, struct err *err)
{
	struct str sha256 = request_header(rq, "x-amz-content-sha256");
	CLEANUP(s3_body_free_p) struct s3_body *b = xcalloc(1, sizeof(*b));

	b->magic = S3_BODY_MAGIC;
	b->rq = rq;
	b->chunked = is_chunked(rq) || str_starts(sha256, "STREAMING-");
	if (str_starts(sha256, "STREAMING-") && !str_eq(sha256, S3_STREAM_PLAIN) &&
	    !chunks_signed(sha256))
		return err_set(err, ERR_UNSUPPORTED,
		               "NotImplemented: x-amz-content-sha256 %.*s: send the body's "
		               "SHA-256, " SIGV4_UNSIGNED ", " S3_STREAM_PLAIN ", " SIGV4_STREAM
		               " or " SIGV4_STREAM_TRAILER,
		               (int)MIN(sha256.n, (size_t)60), sha256.p);
	if (find_size(b, size, err) < 0 || read_expected(b, sha256, err) < 0 ||
	    (b->chunked && begin_chunks(b, sha256, err) < 0))
		return -1;
	(void)pthread_once(&tables_once, fill_tables);
	b->crc32c = UINT32_MAX;
	b->crc64 = UINT64_MAX;
	if (b->content_sha256.wanted || b->sum[SUM_SHA256].wanted)
		b->sha256 = hash_new(HASH_SHA256);
	if (b->sum[SUM_SHA1].wanted)
		b->sha1 = hash_new(HASH_SHA1);
	if (b->content_md5.wanted)
		b->md5 = hash_new(HASH_MD5);
	*out = TAKE(b);
	return 0;
}

bool s3_body_sha256(const struct s3_body *b, char hex[65])
{
	if (!b->ended || !b->content_sha256.known)
		return false;
	hex_encode(b->content_sha256.want, 32, hex);
	return true;
}

void s3_body_free(struct s3_body *b)
{
	if (b == NULL)
		return;
	hash_free(b->sha256);
	hash_free(b->sha1);
	hash_free(b->md5);
	s3_chunks_free(b->chunks);
	free(b->raw);
	free(b);
}

/* ---- the bytes ----------------------------------------------------------------------- */

static void add(struct s3_body *b, const void *p, size_t n)
{
	if (b->sha256 != NULL)
		hash_add(b->sha256, p, n);
	if (b->sha1 != NULL)
		hash_add(b->sha1, p, n);
	if (b->md5 != NULL)
		hash_add(b->md5, p, n);
	if (b->sum[SUM_CRC32].wanted)
		b->crc32 = hash_crc32(b->crc32, p, n);
	if (b->sum[SUM_CRC32C].wanted)
		b->crc32c = crc_add(table32c, b->crc32c, p, n);
	if (b->sum[SUM_CRC64NVME].wanted)
		b->crc64 = crc_add(table64, b->crc64, p, n);
}

static void big_endian(uint64_t v, size_t n, uint8_t *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
}

static int compare(const struct expected *e, const uint8_t *got, size_t n, const char *code,
                   const char *name, struct err *err)
{
	if (!e->wanted)
		return 0;
	if (!e->known)
		return err_set(err, ERR_INVALID,
		               "IncompleteBody: the trailer %s was declared but not sent", name);
	if (memcmp(e->want, got, n) == 0)
		return 0;
	return err_set(err, ERR_INVALID, "%s: the body does not match %s", code, name);
}

/* At the end of the body: is it what was announced? */
static int verify(struct s3_body *b, struct err *err)
{
	uint8_t got[SUM_COUNT][S3_DIGEST_MAX] = {{0}}, md5[HASH_SHA256_LEN];

	big_endian(b->crc32, 4, got[SUM_CRC32]);
	big_endian(~b->crc32c & UINT32_MAX, 4, got[SUM_CRC32C]);
	big_endian(~b->crc64, 8, got[SUM_CRC64NVME]);
	if (b->sha1 != NULL)
		(void)hash_end(b->sha1, got[SUM_SHA1]);
	if (b->sha256 != NULL)
		(void)hash_end(b->sha256, got[SUM_SHA256]);
	if (b->md5 != NULL)
		(void)hash_end(b->md5, md5);
	if (compare(&b->content_sha256, got[SUM_SHA256], 32, "XAmzContentSHA256Mismatch",
	            "x-amz-content-sha256", err) < 0 ||
	    compare(&b->content_md5, md5, 16, "BadDigest", "Content-MD5", err) < 0)
		return -1;
	for (size_t i = 0; i < SUM_COUNT; i++)
		if (compare(&b->sum[i], got[i], checksums[i].bytes, "BadDigest",
		            checksums[i].header, err) < 0)
			return -1;
	return 0;
}

static int read_raw(struct s3_body *b, void *p, size_t cap, size_t *n, struct err *err)
{
	if (request_read(b->rq, p, cap, n, err) == 0)
		return 0;
	if (err->code == ERR_INVALID)
		return err_wrap(err, "IncompleteBody");
	return -1;
}

static int read_chunked(struct s3_body *b, void *p, size_t cap, size_t *n, struct err *err)
{
	for (*n = 0; *n == 0;) {
		size_t got = 0;

		if (b->left.n == 0) {
			if (read_raw(b, b->raw, S3_RAW, &got, err) < 0)
				return -1;
			if (got == 0 && awschunked_done(&b->decoder))
				return b->chunks != NULL ? s3_chunks_end(b->chunks, err) : 0;
			if (got == 0)
				return err_set(err, ERR_INVALID,
				               "IncompleteBody: the last chunk is missing");
			b->left = str_n(b->raw, got);
		}
		if (awschunked_feed(&b->decoder, &b->left, p, cap, n, err) < 0)
			return -1;
	}
	return 0;
}

int s3_body_read(void *body, void *p, size_t cap, size_t *n, struct err *err)
{
	struct s3_body *b = FROM_VOID(struct s3_body, body, S3_BODY_MAGIC);

	*n = 0;
	if (b->ended)
		return 0;
	if ((b->chunked ? read_chunked : read_raw)(b, p, cap, n, err) < 0)
		return -1;
	if (*n > 0) {
		add(b, p, *n);
		return 0;
	}
	b->ended = true;
	return verify(b, err);
}
