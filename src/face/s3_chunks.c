/* s3_chunks.c - see s3_chunks.h. */
#include "face/s3_chunks.h"

#include "base/hash.h"

#define SIGNATURE "chunk-signature="
#define TRAILER_SIGNATURE "x-amz-trailer-signature"

struct s3_chunks {
	struct sigv4_chunks sign;
	struct hash *body;          /* of the chunk that is coming */
	char claimed[HASH_HEX_CAP]; /* its signature; "" = no chunk is open */
	size_t number;              /* counts from 1 */
	bool signed_trailer;        /* a signature of the trailers must come */
	bool ended;                 /* it came, or the last chunk where there is none */
	struct buf trailers;        /* "name:value\n" each */
};

struct s3_chunks *s3_chunks_new(const struct sigv4_chunks *seed, bool trailer)
{
	struct s3_chunks *c = xcalloc(1, sizeof(*c));

	c->sign = *seed;
	c->body = hash_new(HASH_SHA256);
	c->signed_trailer = trailer;
	c->trailers = (struct buf)BUF_INIT(S3_CHUNK_TRAILERS_MAX);
	return c;
}

void s3_chunks_free(struct s3_chunks *c)
{
	if (c == NULL)
		return;
	hash_free(c->body);
	buf_done(&c->trailers);
	free(c);
}

static int refuse(const struct s3_chunks *c, struct err *err)
{
	return err_set(err, ERR_DENIED,
	               "SignatureDoesNotMatch: the signature of chunk %zu is not the one this "
	               "server calculates",
	               c->number);
}

/* The chunk whose bytes have all come. */
static int close_chunk(struct s3_chunks *c, struct err *err)
{
	struct digest d;

	if (c->claimed[0] == '\0')
		return 0;
	(void)hash_end(c->body, d.b);
	if (!sigv4_chunk_ok(&c->sign, &d, str_of(c->claimed)))
		return refuse(c, err);
	c->claimed[0] = '\0';
	return 0;
}

int s3_chunks_line(struct s3_chunks *c, uint64_t size, struct str extension, struct err *err)
{
	struct str one, signature = {0};
	struct err ignored = {0};

	if (close_chunk(c, err) < 0)
		return -1;
	c->number++;
	while (str_cut(&extension, ';', &one)) {
		one = str_trim(one);
		if (str_starts(one, SIGNATURE))
			signature = str_skip(one, strlen(SIGNATURE));
	}
	if (signature.n != HASH_HEX_CAP - 1 ||
	    str_copy(signature, c->claimed, sizeof(c->claimed), "a signature", &ignored) < 0)
		return refuse(c, err);
	if (size > 0)
		return 0;
	c->ended = !c->signed_trailer;
	return close_chunk(c, err); /* of no bytes: it is whole */
}

void s3_chunks_data(struct s3_chunks *c, const void *p, size_t n)
{
	hash_add(c->body, p, n);
}

int s3_chunks_trailer(struct s3_chunks *c, struct str name, struct str value, struct err *err)
{
	struct digest d;

	if (!c->signed_trailer)
		return err_set(err, ERR_DENIED, "SignatureDoesNotMatch: an unsigned trailer: %.*s",
		               (int)MIN(name.n, (size_t)100), name.p);
	if (!str_ieq(name, TRAILER_SIGNATURE)) {
		buf_printf(&c->trailers, "%.*s:%.*s\n", STR_ARG(name), STR_ARG(value));
		if (c->ended)
			return err_set(err, ERR_DENIED,
			               "SignatureDoesNotMatch: a trailer after the signature of "
			               "the trailers");
		return buf_check(&c->trailers, "the trailers", err);
	}
	d = hash_sha256(c->trailers.p, c->trailers.n);
	if (c->ended || !sigv4_trailer_ok(&c->sign, &d, value))
		return err_set(err, ERR_DENIED,
		               "SignatureDoesNotMatch: the signature of the trailers is not the "
		               "one this server calculates");
	c->ended = true;
	return 0;
}

int s3_chunks_end(struct s3_chunks *c, struct err *err)
{
	if (c->ended)
		return 0;
	return err_set(err, ERR_DENIED,
	               "SignatureDoesNotMatch: the signature of the trailers is missing");
}
