/*
 * s3xml.c - see s3xml.h; the only user of expat. One walk for all documents: for each element that
 * ends, its path ("ListBucketResult/Contents/Key") and its text go to the reader of that document.
 */
#include "store/objects/s3xml.h"

#include "base/clock.h"
#include "io/url.h"

#include <expat.h>

#define S3XML_DEPTH_MAX 8
#define S3XML_PATH_CAP 256
#define S3XML_TEXT_MAX ((size_t)8 << 10) /* a key of 1024 bytes, each escaped */
#define S3XML_ENTRIES_MAX 10000
#define S3XML_ERROR_MAX 500 /* of an error's words */

struct walk {
	unsigned magic;
#define WALK_MAGIC 0x5357414cU
	XML_Parser parser;
	unsigned depth;
	char path[S3XML_PATH_CAP];
	struct buf text;
	int (*begin)(void *arg, const char *path, struct err *err); /* may be NULL */
	int (*end)(void *arg, const char *path, struct str text, struct err *err);
	void *arg;
	struct err *err;
};

static void stop(struct walk *w)
{
	assert(w->err->code != ERR_NONE);
	(void)XML_StopParser(w->parser, XML_FALSE);
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attrs UNUSED)
{
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);
	const char *colon = strrchr(name, ':'); /* some servers write a prefix */
	size_t n = strlen(w->path);

	if (w->err->code != ERR_NONE)
		return;
	if (colon != NULL)
		name = colon + 1;
	if (w->depth >= S3XML_DEPTH_MAX || n + strlen(name) + 2 > sizeof(w->path)) {
		(void)err_set(w->err, ERR_INVALID, "MalformedXML: nested too deep");
		stop(w);
		return;
	}
	fmt_fixed(w->path + n, sizeof(w->path) - n, w->depth == 0 ? "%s" : "/%s", name);
	w->depth++;
	buf_clear(&w->text);
	if (w->begin != NULL && w->begin(w->arg, w->path, w->err) < 0)
		stop(w);
}

/* A key may begin or end with a space. */
static struct str text_of(const struct walk *w, const char *slash)
{
	struct str text = buf_view(&w->text);

	bool name = slash != NULL && (strcmp(slash, "/Key") == 0 || strcmp(slash, "/Name") == 0);

	return name ? text : str_trim(text);
}

static void XMLCALL on_end(void *arg, const XML_Char *name UNUSED)
{
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);
	char *slash;

	if (w->err->code != ERR_NONE)
		return;
	slash = strrchr(w->path, '/');
	if (w->end(w->arg, w->path, text_of(w, slash), w->err) < 0) {
		stop(w);
		return;
	}
	buf_clear(&w->text);
	*(slash == NULL ? w->path : slash) = '\0';
	w->depth--;
}

static void XMLCALL on_text(void *arg, const XML_Char *p, int n)
{
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);

	if (w->err->code != ERR_NONE)
		return;
	buf_add(&w->text, p, (size_t)n);
	if (w->text.full) {
		(void)err_set(w->err, ERR_INVALID, "MalformedXML: %s is too long", w->path);
		stop(w);
	}
}

/* No document of S3 has one, and they are where entities come from. */
static void XMLCALL on_doctype(void *arg, const XML_Char *name UNUSED, const XML_Char *sys UNUSED,
                               const XML_Char *pub UNUSED, int internal UNUSED)
{
	struct walk *w = FROM_VOID(struct walk, arg, WALK_MAGIC);

	if (w->err->code == ERR_NONE)
		(void)err_set(w->err, ERR_INVALID, "MalformedXML: a DOCTYPE is not allowed");
	stop(w);
}

static int walk(struct walk *w, struct str xml, struct err *err)
{
	XML_Parser p;

	if (xml.n > S3XML_MAX)
		return err_set(err, ERR_TOO_BIG, "MalformedXML: %zu bytes of XML", xml.n);
	p = XML_ParserCreate("UTF-8");
	assert(p != NULL); /* small; memory is gone otherwise */
	w->parser = p;
	w->text = (struct buf)BUF_INIT(S3XML_TEXT_MAX);
	w->err = err;
	XML_SetUserData(p, w);
	XML_SetElementHandler(p, on_start, on_end);
	XML_SetCharacterDataHandler(p, on_text);
	XML_SetStartDoctypeDeclHandler(p, on_doctype);
	if (XML_Parse(p, xml.p == NULL ? "" : xml.p, (int)xml.n, 1) != XML_STATUS_OK &&
	    err->code == ERR_NONE)
		(void)err_set(err, ERR_INVALID, "MalformedXML: line %lu: %s",
		              (unsigned long)XML_GetCurrentLineNumber(p),
		              XML_ErrorString(XML_GetErrorCode(p)));
	XML_ParserFree(p);
	buf_done(&w->text);
	return err->code == ERR_NONE ? 0 : -1;
}

/* ETags come with quotes, bare, or with the quotes escaped twice. */
static void copy_etag(char out[80], struct str s)
{
	while (s.n > 0 && s.p[0] == '"')
		s = str_skip(s, 1);
	while (s.n > 0 && s.p[s.n - 1] == '"')
		s.n--;
	fmt_fixed(out, 80, "%.*s", (int)MIN(s.n, (size_t)79), s.n == 0 ? "" : s.p);
}

/* Shortens a server's text for a message, between two characters. */
static struct str cut(struct str s)
{
	size_t n = MIN(s.n, (size_t)S3XML_ERROR_MAX);

	while (n < s.n && n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
		n--;
	return str_trim(str_n(s.p, n));
}

/* ---- ListObjectsV2 ------------------------------------------------------------------ */

struct listing {
	unsigned magic;
#define LISTING_MAGIC 0x534c4954U
	struct arena *a;
	struct s3xml_listing *out;
	size_t cap;
	bool encoded;
};

static int listing_begin(void *arg, const char *path, struct err *err)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);

	if (strcmp(path, "ListBucketResult/Contents") != 0)
		return 0;
	if (l->out->n >= S3XML_ENTRIES_MAX)
		return err_set(err, ERR_INVALID, "a listing of more than %d keys",
		               S3XML_ENTRIES_MAX);
	if (l->out->n == l->cap) {
		size_t cap = l->cap == 0 ? 64 : l->cap * 4;
		struct s3xml_entry *more;

		more = ARENA_ARRAY(l->a, struct s3xml_entry, cap);
		if (l->out->n > 0)
			memcpy(more, l->out->entry, l->out->n * sizeof(*more));
		l->out->entry = more;
		l->cap = cap;
	}
	l->out->entry[l->out->n++] = (struct s3xml_entry){.key = ""};
	return 0;
}

static int listing_end(void *arg, const char *path, struct str text, struct err *err)
{
	struct listing *l = FROM_VOID(struct listing, arg, LISTING_MAGIC);
	struct s3xml_entry *e;

	if (strcmp(path, "ListBucketResult/IsTruncated") == 0)
		l->out->truncated = str_ieq(text, "true");
	else if (strcmp(path, "ListBucketResult/NextContinuationToken") == 0)
		l->out->next = arena_strz(l->a, text);
	else if (strcmp(path, "ListBucketResult/EncodingType") == 0)
		l->encoded = str_ieq(text, "url");
	if (strncmp(path, "ListBucketResult/Contents/", 26) != 0)
		return 0;
	e = &l->out->entry[l->out->n - 1];
	path += 26;
	if (strcmp(path, "Key") == 0)
		e->key = arena_strz(l->a, text);
	else if (strcmp(path, "Size") == 0)
		return str_u64(text, 0, INT64_MAX, &e->info.size, err);
	else if (strcmp(path, "LastModified") == 0)
		return clock_parse(text, &e->info.modified_ms, err);
	else if (strcmp(path, "ETag") == 0)
		copy_etag(e->info.etag, text);
	return 0;
}

/* encoding-type=url: '+' is a space there. */
static int decode_keys(struct listing *l, struct err *err)
{
	for (size_t i = 0; i < l->out->n; i++) {
		char *raw = arena_cstr(l->a, l->out->entry[i].key);
		struct str key;

		for (char *p = strchr(raw, '+'); p != NULL; p = strchr(p, '+'))
			*p = ' ';
		if (url_decode(l->a, str_of(raw), &key, err) < 0)
			return -1;
		l->out->entry[i].key = arena_strz(l->a, key);
	}
	return 0;
}

int s3xml_listing(struct arena *a, struct str xml, struct s3xml_listing *out, struct err *err)
{
	struct s3xml_listing got = {0};
	struct listing l = {.magic = LISTING_MAGIC, .a = a, .out = &got};
	struct walk w = {
		.magic = WALK_MAGIC, .begin = listing_begin, .end = listing_end, .arg = &l};

	if (walk(&w, xml, err) < 0 || (l.encoded && decode_keys(&l, err) < 0))
		return err_wrap(err, "listing");
	if (got.truncated && got.next == NULL)
		return err_set(err, ERR_INVALID,
		               "a truncated listing without a continuation token");
	*out = got;
	return 0;
}

/* ---- List Blobs ----------------------------------------------------------------------- */

#define BLOBS "EnumerationResults/"
#define BLOB BLOBS "Blobs/Blob"

struct blobs {
	unsigned magic;
#define BLOBS_MAGIC 0x53424c4fU
	struct arena *a;
	struct s3xml_blobs *out;
	size_t cap;
	bool begun;
};

static int blobs_begin(void *arg, const char *path, struct err *err)
{
	struct blobs *f = FROM_VOID(struct blobs, arg, BLOBS_MAGIC);

	f->begun = f->begun || strcmp(path, "EnumerationResults") == 0;
	if (strcmp(path, BLOB) != 0)
		return 0;
	if (f->out->n >= S3XML_ENTRIES_MAX)
		return err_set(err, ERR_INVALID, "more than %d blobs", S3XML_ENTRIES_MAX);
	if (f->out->n == f->cap) {
		size_t cap = f->cap == 0 ? 64 : f->cap * 4;
		struct s3xml_blob *more = ARENA_ARRAY(f->a, struct s3xml_blob, cap);

		if (f->out->n > 0)
			memcpy(more, f->out->blob, f->out->n * sizeof(*more));
		f->out->blob = more;
		f->cap = cap;
	}
	f->out->blob[f->out->n++] =
		(struct s3xml_blob){.name = "", .etag = "", .md5 = "", .coding = ""};
	return 0;
}

static int blobs_end(void *arg, const char *path, struct str text, struct err *err)
{
	struct blobs *f = FROM_VOID(struct blobs, arg, BLOBS_MAGIC);
	struct s3xml_blob *b = f->out->n == 0 ? NULL : &f->out->blob[f->out->n - 1];
	char etag[80];

	if (strcmp(path, BLOBS "NextMarker") == 0)
		f->out->next = text.n > 0 ? arena_strz(f->a, text) : NULL;
	else if (strcmp(path, BLOB "/Name") == 0)
		b->name = arena_strz(f->a, text);
	else if (strcmp(path, BLOB "/Properties/Content-Length") == 0)
		return str_u64(text, 0, INT64_MAX, &b->size, err);
	else if (strcmp(path, BLOB "/Properties/Etag") == 0) {
		copy_etag(etag, text);
		b->etag = arena_cstr(f->a, etag);
	} else if (strcmp(path, BLOB "/Properties/Content-MD5") == 0)
		b->md5 = arena_strz(f->a, text);
	else if (strcmp(path, BLOB "/Properties/Content-Encoding") == 0)
		b->coding = arena_strz(f->a, text);
	else if (strcmp(path, BLOB "/Properties/ResourceType") == 0)
		b->folder = str_eq(text, "directory");
	else if (strcmp(path, BLOB "/Metadata/hdi_isfolder") == 0)
		b->folder = b->folder || str_ieq(text, "true");
	return 0;
}

int s3xml_blobs(struct arena *a, struct str xml, struct s3xml_blobs *out, struct err *err)
{
	struct s3xml_blobs got = {0};
	struct blobs f = {.magic = BLOBS_MAGIC, .a = a, .out = &got};
	struct walk w = {.magic = WALK_MAGIC, .begin = blobs_begin, .end = blobs_end, .arg = &f};

	if (walk(&w, xml, err) < 0)
		return err_wrap(err, "listing");
	if (!f.begun)
		return err_set(err, ERR_INVALID, "listing: no <EnumerationResults>");
	*out = got;
	return 0;
}

/* ---- ListMultipartUploads ----------------------------------------------------------- */

#define UPLOADS "ListMultipartUploadsResult/"

struct uploads {
	unsigned magic;
#define UPLOADS_MAGIC 0x5355504cU
	struct arena *a;
	struct s3xml_uploads *out;
	size_t cap;
};

static int uploads_begin(void *arg, const char *path, struct err *err)
{
	struct uploads *f = FROM_VOID(struct uploads, arg, UPLOADS_MAGIC);

	if (strcmp(path, UPLOADS "Upload") != 0)
		return 0;
	if (f->out->n >= S3XML_ENTRIES_MAX)
		return err_set(err, ERR_INVALID, "more than %d uploads", S3XML_ENTRIES_MAX);
	if (f->out->n == f->cap) {
		size_t cap = f->cap == 0 ? 64 : f->cap * 4;
		struct s3xml_upload *more = ARENA_ARRAY(f->a, struct s3xml_upload, cap);

		if (f->out->n > 0)
			memcpy(more, f->out->upload, f->out->n * sizeof(*more));
		f->out->upload = more;
		f->cap = cap;
	}
	f->out->upload[f->out->n++] = (struct s3xml_upload){.key = "", .id = ""};
	return 0;
}

static int uploads_end(void *arg, const char *path, struct str text, struct err *err)
{
	struct uploads *f = FROM_VOID(struct uploads, arg, UPLOADS_MAGIC);
	struct s3xml_upload *u = f->out->n == 0 ? NULL : &f->out->upload[f->out->n - 1];

	if (strcmp(path, UPLOADS "IsTruncated") == 0)
		f->out->truncated = str_ieq(text, "true");
	else if (strcmp(path, UPLOADS "NextKeyMarker") == 0)
		f->out->next_key = arena_strz(f->a, text);
	else if (strcmp(path, UPLOADS "NextUploadIdMarker") == 0)
		f->out->next_id = arena_strz(f->a, text);
	else if (strcmp(path, UPLOADS "Upload/Key") == 0)
		u->key = arena_strz(f->a, text);
	else if (strcmp(path, UPLOADS "Upload/UploadId") == 0)
		u->id = arena_strz(f->a, text);
	else if (strcmp(path, UPLOADS "Upload/Initiated") == 0)
		return clock_parse(text, &u->begun_ms, err);
	return 0;
}

int s3xml_uploads(struct arena *a, struct str xml, struct s3xml_uploads *out, struct err *err)
{
	struct s3xml_uploads got = {0};
	struct uploads f = {.magic = UPLOADS_MAGIC, .a = a, .out = &got};
	struct walk w = {
		.magic = WALK_MAGIC, .begin = uploads_begin, .end = uploads_end, .arg = &f};

	if (walk(&w, xml, err) < 0)
		return err_wrap(err, "uploads");
	*out = got;
	return 0;
}

/* ---- AssumeRole ----------------------------------------------------------------------- */

struct credentials {
	unsigned magic;
#define CREDENTIALS_MAGIC 0x53435245U
	struct arena *a;
	struct s3xml_credentials *out;
};

static int credentials_end(void *arg, const char *path, struct str text, struct err *err)
{
	struct credentials *f = FROM_VOID(struct credentials, arg, CREDENTIALS_MAGIC);
	const char *in = strstr(path, "Result/Credentials/");

	if (in == NULL)
		return 0;
	in += sizeof("Result/Credentials/") - 1;
	if (strcmp(in, "AccessKeyId") == 0)
		f->out->access_key = arena_strz(f->a, text);
	else if (strcmp(in, "SecretAccessKey") == 0)
		f->out->secret_key = arena_strz(f->a, text);
	else if (strcmp(in, "SessionToken") == 0)
		f->out->session_token = arena_strz(f->a, text);
	else if (strcmp(in, "Expiration") == 0)
		return clock_parse(text, &f->out->expires_ms, err);
	return 0;
}

/* It becomes a header. */
static bool is_word(const char *s)
{
	if (s == NULL || s[0] == '\0')
		return false;
	for (; *s != '\0'; s++) {
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 127)
			return false;
	}
	return true;
}

int s3xml_credentials(struct arena *a, struct str xml, struct s3xml_credentials *out,
                      struct err *err)
{
	struct s3xml_credentials got = {0};
	struct credentials f = {.magic = CREDENTIALS_MAGIC, .a = a, .out = &got};
	struct walk w = {.magic = WALK_MAGIC, .end = credentials_end, .arg = &f};

	if (walk(&w, xml, err) < 0)
		return -1;
	if (!is_word(got.access_key) || !is_word(got.secret_key) || !is_word(got.session_token))
		return err_set(err, ERR_INVALID, "no usable credentials");
	*out = got;
	return 0;
}

/* ---- DeleteObjects ------------------------------------------------------------------- */

#define DELETED "DeleteResult"

struct deleted {
	unsigned magic;
#define DELETED_MAGIC 0x5344454cU
	struct arena *a;
	struct s3xml_failed *failed;
	size_t n, cap;
};

static int deleted_begin(void *arg, const char *path, struct err *err)
{
	struct deleted *d = FROM_VOID(struct deleted, arg, DELETED_MAGIC);

	if (strchr(path, '/') == NULL && strcmp(path, DELETED) != 0)
		return err_set(err, ERR_INVALID, "<%s>, not <" DELETED ">", path);
	if (strcmp(path, DELETED "/Error") != 0)
		return 0;
	if (d->n >= S3XML_ENTRIES_MAX)
		return err_set(err, ERR_INVALID, "more than %d errors", S3XML_ENTRIES_MAX);
	if (d->n == d->cap) {
		size_t cap = d->cap == 0 ? 16 : d->cap * 4;
		struct s3xml_failed *more = ARENA_ARRAY(d->a, struct s3xml_failed, cap);

		if (d->n > 0)
			memcpy(more, d->failed, d->n * sizeof(*more));
		d->failed = more;
		d->cap = cap;
	}
	d->failed[d->n++] = (struct s3xml_failed){"", "", ""};
	return 0;
}

static int deleted_end(void *arg, const char *path, struct str text, struct err *err UNUSED)
{
	struct deleted *d = FROM_VOID(struct deleted, arg, DELETED_MAGIC);
	struct s3xml_failed *x = d->n == 0 ? NULL : &d->failed[d->n - 1];

	if (strcmp(path, DELETED "/Error/Key") == 0)
		x->key = arena_strz(d->a, text);
	else if (strcmp(path, DELETED "/Error/Code") == 0)
		x->code = arena_strz(d->a, cut(text));
	else if (strcmp(path, DELETED "/Error/Message") == 0)
		x->message = arena_strz(d->a, cut(text));
	return 0;
}

int s3xml_deleted(struct arena *a, struct str xml, struct s3xml_failed **failed, size_t *n,
                  struct err *err)
{
	struct deleted d = {.magic = DELETED_MAGIC, .a = a};
	struct walk w = {
		.magic = WALK_MAGIC, .begin = deleted_begin, .end = deleted_end, .arg = &d};

	if (walk(&w, xml, err) < 0)
		return err_wrap(err, "deleting");
	*failed = d.failed;
	*n = d.n;
	return 0;
}

/* ---- small replies ------------------------------------------------------------------ */

struct wanted { /* the text of two elements, wherever they are below the root */
	unsigned magic;
#define WANTED_MAGIC 0x5357414eU
	struct arena *a;
	const char *name[2];
	const char *text[2];
};

static int wanted_end(void *arg, const char *path, struct str text, struct err *err UNUSED)
{
	struct wanted *f = FROM_VOID(struct wanted, arg, WANTED_MAGIC);
	const char *slash = strchr(path, '/');

	for (size_t i = 0; i < COUNT(f->name) && slash != NULL; i++)
		if (f->name[i] != NULL && f->text[i] == NULL && strcmp(slash + 1, f->name[i]) == 0)
			f->text[i] = arena_strz(f->a, cut(text));
	return 0;
}

void s3xml_error(struct arena *a, struct str xml, const char **code, const char **message)
{
	struct wanted f = {.magic = WANTED_MAGIC, .a = a, .name = {"Code", "Message"}};
	struct walk w = {.magic = WALK_MAGIC, .end = wanted_end, .arg = &f};
	struct err junk = {0};

	if (walk(&w, xml, &junk) < 0)
		err_clear(&junk); /* what was read before is still of use */
	*code = f.text[0] == NULL ? "" : f.text[0];
	*message = f.text[1] == NULL ? "" : f.text[1];
}

int s3xml_upload_id(struct arena *a, struct str xml, const char **id, struct err *err)
{
	struct wanted f = {.magic = WANTED_MAGIC, .a = a, .name = {"UploadId", "ETag"}};
	struct walk w = {.magic = WALK_MAGIC, .end = wanted_end, .arg = &f};
	const char *got;

	if (walk(&w, xml, err) < 0)
		return -1;
	got = f.text[0] != NULL ? f.text[0] : f.text[1];
	if (got == NULL || got[0] == '\0')
		return err_set(err, ERR_INVALID, "neither UploadId nor ETag in the reply");
	if (f.text[0] == NULL) {
		char etag[80];

		copy_etag(etag, str_of(got));
		got = arena_cstr(a, etag);
	}
	*id = got;
	return 0;
}

/* ---- CompleteMultipartUpload -------------------------------------------------------- */

#define PART_PATH "CompleteMultipartUpload/Part"

struct parts {
	unsigned magic;
#define PARTS_MAGIC 0x53504152U
	struct arena *a;
	struct objstore_part *part;
	size_t n, cap;
};

static int parts_begin(void *arg, const char *path, struct err *err)
{
	struct parts *f = FROM_VOID(struct parts, arg, PARTS_MAGIC);

	if (strncmp(path, "CompleteMultipartUpload", 23) != 0 ||
	    (path[23] != '\0' && path[23] != '/'))
		return err_set(err, ERR_INVALID,
		               "MalformedXML: <%s>, not <CompleteMultipartUpload>", path);
	if (strcmp(path, PART_PATH) != 0)
		return 0;
	if (f->n >= OBJSTORE_PARTS_MAX)
		return err_set(err, ERR_INVALID, "MalformedXML: more than %d parts",
		               OBJSTORE_PARTS_MAX);
	if (f->n == f->cap) {
		size_t cap = f->cap == 0 ? 64 : f->cap * 4;
		struct objstore_part *more;

		more = ARENA_ARRAY(f->a, struct objstore_part, cap);
		if (f->n > 0)
			memcpy(more, f->part, f->n * sizeof(*more));
		f->part = more;
		f->cap = cap;
	}
	f->part[f->n++] = (struct objstore_part){0};
	return 0;
}

static int parts_end(void *arg, const char *path, struct str text, struct err *err)
{
	struct parts *f = FROM_VOID(struct parts, arg, PARTS_MAGIC);
	struct err bad = {0};
	uint64_t number;

	if (strcmp(path, PART_PATH "/PartNumber") == 0) {
		if (str_u64(text, 1, OBJSTORE_PARTS_MAX, &number, &bad) < 0)
			return err_set(err, ERR_INVALID,
			               "InvalidPart: \"%.20s\" is not a part number",
			               text.n == 0 ? "" : text.p);
		f->part[f->n - 1].number = (uint32_t)number;
	} else if (strcmp(path, PART_PATH "/ETag") == 0) {
		copy_etag(f->part[f->n - 1].etag, text);
	} else if (strcmp(path, PART_PATH) == 0) {
		const struct objstore_part *p = &f->part[f->n - 1];

		if (p->number == 0 || p->etag[0] == '\0')
			return err_set(err, ERR_INVALID,
			               "MalformedXML: a part without PartNumber or ETag");
	}
	return 0;
}

int s3xml_parts(struct arena *a, struct str xml, struct objstore_part **parts, size_t *n,
                struct err *err)
{
	struct parts f = {.magic = PARTS_MAGIC, .a = a};
	struct walk w = {.magic = WALK_MAGIC, .begin = parts_begin, .end = parts_end, .arg = &f};

	if (walk(&w, xml, err) < 0)
		return -1;
	if (f.n == 0)
		return err_set(err, ERR_INVALID, "MalformedXML: the list of parts is empty");
	*parts = f.part;
	*n = f.n;
	return 0;
}

/* XML 1.0 has no way to say these. */
static bool is_no_xml(struct str text)
{
	unsigned char c = (unsigned char)*text.p;

	return c < 0x20 || c == 0x7f || str_eq(text, "\xef\xbf\xbe") ||
	       str_eq(text, "\xef\xbf\xbf");
}

void s3xml_text(struct buf *out, struct str s)
{
	while (s.n > 0) {
		struct str text;
		size_t n = str_utf8_mend(s, &text);
		char c = *text.p;

		if (c == '&')
			buf_puts(out, "&amp;");
		else if (c == '<')
			buf_puts(out, "&lt;");
		else if (c == '>')
			buf_puts(out, "&gt;");
		else if (c == '"')
			buf_puts(out, "&quot;");
		else if (c == '\t' || c == '\n' || c == '\r')
			buf_printf(out, "&#%d;", c);
		else
			buf_str(out, is_no_xml(text) ? UTF8_MARK : text);
		s = str_skip(s, n);
	}
}

bool s3xml_can_say(struct str s)
{
	while (s.n > 0) {
		struct str text;
		size_t n = str_utf8_mend(s, &text);

		if (text.n != n || memcmp(text.p, s.p, n) != 0 || is_no_xml(text))
			return false;
		s = str_skip(s, n);
	}
	return true;
}
