/* s3_error.c - errors and documents of the S3 face as XML. */
#include "face/s3_impl.h"

#include "store/objects/s3xml.h"

#define S3_XML_MAX ((size_t)8 << 20)

struct code {
	const char *name;
	int status;
};

/* The codes of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html that we use. */
/* clang-format off */
static const struct code codes[] = {
	{ "AccessDenied",                      403 },
	{ "AuthorizationHeaderMalformed",      400 },
	{ "AuthorizationQueryParametersError", 400 },
	{ "BadDigest",                         400 },
	{ "EntityTooLarge",                    400 },
	{ "EntityTooSmall",                    400 },
	{ "ExpiredToken",                      400 },
	{ "IncompleteBody",                    400 },
	{ "InternalError",                     500 },
	{ "InvalidAccessKeyId",                403 },
	{ "InvalidArgument",                   400 },
	{ "InvalidDigest",                     400 },
	{ "InvalidPartOrder",                  400 },
	{ "InvalidPart",                       400 },
	{ "InvalidRange",                      416 },
	{ "InvalidRequest",                    400 },
	{ "InvalidToken",                      400 },
	{ "KeyTooLongError",                   400 },
	{ "MalformedXML",                      400 },
	{ "MethodNotAllowed",                  405 },
	{ "MissingContentLength",              411 },
	{ "NoSuchBucket",                      404 },
	{ "NoSuchKey",                         404 },
	{ "NoSuchUpload",                      404 },
	{ "NotImplemented",                    501 },
	{ "OperationAborted",                  409 },
	{ "PreconditionFailed",                412 },
	{ "RequestTimeTooSkewed",              403 },
	{ "RequestTimeout",                    400 },
	{ "ServiceUnavailable",                503 },
	{ "SignatureDoesNotMatch",             403 },
	{ "SlowDown",                          503 },
	{ "StorageFull",                       507 },
	{ "XAmzContentSHA256Mismatch",         400 },
};

/* The S3 code for errors whose text names none. */
static const char *const by_kind[ERR_COUNT] = {
	[ERR_INVALID]     = "InvalidRequest",
	[ERR_AUTH]        = "AccessDenied",
	[ERR_DENIED]      = "AccessDenied",
	[ERR_NOT_FOUND]   = "NoSuchKey",
	[ERR_CONFLICT]    = "OperationAborted",
	[ERR_TOO_BIG]     = "EntityTooLarge",
	[ERR_RANGE]       = "InvalidRange",
	[ERR_QUOTA]       = "AccessDenied",
	[ERR_BUSY]        = "SlowDown",
	[ERR_CORRUPT]     = "InternalError",
	[ERR_IO]          = "InternalError",
	[ERR_UNSUPPORTED] = "NotImplemented",
	[ERR_UNAVAILABLE] = "ServiceUnavailable",
	[ERR_TIMEOUT]     = "RequestTimeout",
	[ERR_NO_SPACE]    = "StorageFull",
	[ERR_CANCELED]    = "ServiceUnavailable",
};
/* clang-format on */

static const struct code *named(const char *name)
{
	for (size_t i = 0; i < COUNT(codes); i++)
		if (strcmp(codes[i].name, name) == 0)
			return &codes[i];
	assert(false && "a code of by_kind that is not in the table");
	return NULL;
}

/* "put k in dir:/...: InvalidPart: part 3 ..." -> the row, and *text at "part 3 ...". */
static const struct code *find(const struct err *err, const char **text)
{
	for (const char *p = err->msg; p != NULL; p = strstr(p, ": ")) {
		p += p == err->msg ? 0 : 2;
		for (size_t i = 0; i < COUNT(codes); i++) {
			size_t n = strlen(codes[i].name);

			if (strncmp(p, codes[i].name, n) == 0 && p[n] == ':' && p[n + 1] == ' ') {
				*text = p + n + 2;
				return &codes[i];
			}
		}
	}
	return NULL;
}

void s3_xml_element(struct buf *out, const char *name, struct str text)
{
	buf_printf(out, "<%s>", name);
	s3xml_text(out, text);
	buf_printf(out, "</%s>", name);
}

int s3_reply_xml(struct request *rq, int status, const struct buf *xml, struct err *err)
{
	if (buf_check(xml, "the reply", err) < 0)
		return -1;
	return reply_bytes(rq, status, "application/xml", buf_view(xml));
}

void s3_error_reply(struct request *rq, const struct err *err)
{
	AUTO_BUF struct buf xml = BUF_INIT(S3_XML_MAX);
	const char *text = err->msg;
	const struct code *c = find(err, &text);
	const char *const kind = by_kind[err->code];

	assert(kind != NULL);
	if (err->id == ERR_OBJECTS_UNAVAILABLE || err->id == ERR_OBJECTS_DENIED) {
		/* the store's own code would be about the client */
		c = named("ServiceUnavailable");
		text = err->msg;
	} else if (err->code == ERR_NO_SPACE) { /* whatever the store calls it */
		c = named("StorageFull");
		text = err->msg;
	}
	if (rq->route == NULL && c == NULL) /* the path is ours, the method is not */
		c = named(err->code == ERR_NOT_FOUND ? "NoSuchKey" : "MethodNotAllowed");
	else if (c == NULL)
		c = named(kind);
	buf_puts(&xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
	s3_xml_element(&xml, "Code", str_of(c->name));
	s3_xml_element(&xml, "Message", str_of(text));
	s3_xml_element(&xml, "Resource", str_n(rq->path.p, MIN(rq->path.n, (size_t)2000)));
	s3_xml_element(&xml, "RequestId", str_of(rq->id));
	buf_puts(&xml, "</Error>");
	(void)reply_bytes(rq, c->status, "application/xml", buf_view(&xml));
}
