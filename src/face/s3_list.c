/* s3_list.c - ListObjectsV2, and ListObjects as older tools ask: prefix, delimiter, pages. */
#include "face/s3_impl.h"

#include "base/clock.h"
#include "base/hash.h"
#include "io/url.h"

#define LIST_PAGE 1000
#define LIST_XML_MAX ((size_t)8 << 20)
#define LIST_JUMPS 1000 /* calls of the store for one page: one for each common prefix */
#define LIST_MARK_CAP (OBJSTORE_KEY_MAX + 2)

struct listing {
	unsigned magic;
#define LISTING_MAGIC 0x464c4953U
	struct buf xml, prefixes;
	struct str prefix, delimiter;
	bool encode; /* encoding-type=url */
	bool first;  /* the first version: marker instead of continuation-token */
	struct str marker;
	size_t n, max;
	char mark[LIST_MARK_CAP]; /* the last key, or what is behind the last common prefix */
	bool jumped;              /* a common prefix was met: go on behind it */
	bool full;                /* there was one more than fits */
};

static void add_name(const struct listing *l, struct buf *to, const char *element, struct str name)
{
	if (!l->encode) {
		s3_xml_element(to, element, name);
		return;
	}
	buf_printf(to, "<%s>", element);
	url_encode(name, true, to);
	buf_printf(to, "</%s>", element);
}

/* Where the delimiter ends in the part behind the prefix; 0 = it is not there. */
static size_t cut_at(const struct listing *l, struct str key)
{
	if (l->delimiter.n == 0)
		return 0;
	for (size_t i = l->prefix.n; i + l->delimiter.n <= key.n; i++)
		if (memcmp(key.p + i, l->delimiter.p, l->delimiter.n) == 0)
			return i + l->delimiter.n;
	return 0;
}

static void each(void *arg, const char *key, const struct objstore_info *info)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	struct str name = str_of(key);
	size_t cut = cut_at(l, name);
	char when[CLOCK_ISO_CAP];

	if (l->jumped || l->full)
		return;
	if (l->n == l->max) {
		l->full = true;
		return;
	}
	l->n++;
	if (cut > 0) {
		buf_puts(&l->prefixes, "<CommonPrefixes>");
		add_name(l, &l->prefixes, "Prefix", str_n(key, cut));
		buf_puts(&l->prefixes, "</CommonPrefixes>");
		/* no key has this byte: what follows is behind all that start so */
		FMT(l->mark, "%.*s\xff", (int)MIN(cut, (size_t)OBJSTORE_KEY_MAX - 1), key);
		l->jumped = true;
		return;
	}
	clock_iso(info->modified_ms, when);
	buf_puts(&l->xml, "<Contents>");
	add_name(l, &l->xml, "Key", name);
	s3_xml_element(&l->xml, "LastModified", str_of(when));
	buf_printf(&l->xml, "<ETag>&quot;%s&quot;</ETag><Size>%" PRIu64 "</Size>", info->etag,
	           info->size);
	buf_puts(&l->xml, "<StorageClass>STANDARD</StorageClass></Contents>");
	FMT(l->mark, "%s", key);
}

/* As many calls of the store as it takes: behind a common prefix a new one starts. */
static int gather(struct objstore *os, struct listing *l, struct err *err)
{
	char *prefix = xstrndup(l->prefix.p == NULL ? "" : l->prefix.p, l->prefix.n);
	bool more = true;
	int rc = 0;

	for (size_t i = 0; i <= LIST_JUMPS && more && !l->full && rc == 0; i++) {
		char after[LIST_MARK_CAP];

		l->jumped = false;
		FMT(after, "%s", l->mark);
		rc = objstore_list(os, prefix, after[0] == '\0' ? NULL : after, LIST_PAGE, each, l,
		                   &more, err);
		more = more || l->jumped;
		if (l->n == l->max && more && !l->full) { /* is there really another one? */
			bool another = false;

			FMT(after, "%s", l->mark);
			l->jumped = false;
			if (rc == 0)
				rc = objstore_list(os, prefix, after[0] == '\0' ? NULL : after, 1,
				                   each, l, &another, err);
			break;
		}
	}
	free(prefix);
	return rc;
}

static int read_mark(struct request *rq, struct listing *l, struct err *err)
{
	AUTO_BUF struct buf raw = BUF_INIT(LIST_MARK_CAP - 1);
	struct err ignored = {0};
	struct str text;

	if (l->first) {
		if (!request_query(rq, "marker", &l->marker))
			return 0;
		if (str_copy(l->marker, l->mark, OBJSTORE_KEY_MAX, "marker", err) < 0)
			return err_wrap(err, "InvalidArgument");
		/* a common prefix that was listed last: behind all that it stands for */
		if (l->marker.n > l->prefix.n && cut_at(l, l->marker) == l->marker.n)
			FMT(l->mark, "%.*s\xff", STR_ARG(l->marker));
		return 0;
	}
	if (request_query(rq, "continuation-token", &text) && text.n > 0) {
		if (base64_decode(text, true, &raw, &ignored) < 0 ||
		    memchr(buf_cstr(&raw), '\0', raw.n) != NULL)
			return err_set(err, ERR_INVALID,
			               "InvalidArgument: the continuation token was not issued by "
			               "this server");
		FMT(l->mark, "%s", buf_cstr(&raw));
		return 0;
	}
	if (request_query(rq, "start-after", &text))
		return str_copy(text, l->mark, OBJSTORE_KEY_MAX, "start-after", err);
	return 0;
}

static int read_query(struct request *rq, struct listing *l, struct err *err)
{
	struct str text;
	int64_t max;

	l->first = !request_query(rq, "list-type", &text);
	if (!l->first && !str_eq(text, "2"))
		return err_set(err, ERR_INVALID, "InvalidArgument: list-type must be 2 or absent");
	if (request_query(rq, "prefix", &text))
		l->prefix = text;
	if (l->prefix.n > OBJSTORE_KEY_MAX)
		return err_set(err, ERR_INVALID, "KeyTooLongError: the prefix is too long");
	if (request_query(rq, "delimiter", &text))
		l->delimiter = text;
	if (request_query(rq, "encoding-type", &text) && text.n > 0) {
		if (!str_eq(text, "url"))
			return err_set(err, ERR_INVALID,
			               "InvalidArgument: encoding-type must be url");
		l->encode = true;
	}
	max = request_query_int(rq, "max-keys", LIST_PAGE, err);
	if (err->code != ERR_NONE)
		return err_wrap(err, "InvalidArgument: max-keys");
	if (max < 0)
		return err_set(err, ERR_INVALID, "InvalidArgument: max-keys is negative");
	l->max = (size_t)MIN(max, LIST_PAGE);
	return read_mark(rq, l, err);
}

static void write_head(struct request *rq, const struct listing *l, struct buf *out)
{
	buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
	              "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
	s3_xml_element(out, "Name", rq->arg[0]);
	s3_xml_element(out, "Prefix", l->prefix);
	if (l->delimiter.n > 0)
		s3_xml_element(out, "Delimiter", l->delimiter);
	if (l->encode)
		s3_xml_element(out, "EncodingType", STR_LIT("url"));
	buf_printf(out, "<MaxKeys>%zu</MaxKeys>", l->max);
	if (!l->first)
		buf_printf(out, "<KeyCount>%zu</KeyCount>", l->n);
	buf_printf(out, "<IsTruncated>%s</IsTruncated>", l->full ? "true" : "false");
	if (l->first) {
		add_name(l, out, "Marker", l->marker);
		if (l->full) /* without the byte that says "behind all that start so" */
			add_name(l, out, "NextMarker", str_n(l->mark, strcspn(l->mark, "\xff")));
		return;
	}
	if (l->full) {
		buf_puts(out, "<NextContinuationToken>");
		base64_encode(l->mark, strlen(l->mark), true, out);
		buf_puts(out, "</NextContinuationToken>");
	}
}

int s3_list(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(2 * LIST_XML_MAX);
	struct listing l = {
		.magic = LISTING_MAGIC,
		.xml = BUF_INIT(LIST_XML_MAX),
		.prefixes = BUF_INIT(LIST_XML_MAX),
	};
	int rc = read_query(rq, &l, err);

	if (rc == 0)
		rc = s3_authorize(rq, S3_LIST, arena_strz(rq->arena, l.prefix), err);
	if (rc == 0 && l.max > 0)
		rc = gather(face_ctx(rq)->objects, &l, err);
	if (rc == 0)
		rc = buf_check(&l.xml, "the listing", err);
	if (rc == 0)
		rc = buf_check(&l.prefixes, "the listing", err);
	if (rc == 0) {
		write_head(rq, &l, &out);
		buf_str(&out, buf_view(&l.xml));
		buf_str(&out, buf_view(&l.prefixes));
		buf_puts(&out, "</ListBucketResult>");
		rc = s3_reply_xml(rq, 200, &out, err);
	}
	buf_done(&l.xml);
	buf_done(&l.prefixes);
	return rc;
}
