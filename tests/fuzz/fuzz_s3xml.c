/* fuzz_s3xml.c - every reader of S3's XML over one input; what is written reads back. */
#include "store/objects/s3xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	struct str xml = str_n((const char *)data, n);
	struct s3xml_listing listing;
	struct s3xml_blobs blobs;
	struct s3xml_credentials credentials;
	struct s3xml_failed *failed;
	struct objstore_part *parts;
	const char *code, *message, *id;
	struct err err = {0};
	size_t count;

	if (n > 4096)
		return 0;
	if (s3xml_listing(a, xml, &listing, &err) < 0)
		err_clear(&err);
	if (s3xml_blobs(a, xml, &blobs, &err) < 0)
		err_clear(&err);
	if (s3xml_credentials(a, xml, &credentials, &err) < 0)
		err_clear(&err);
	if (s3xml_parts(a, xml, &parts, &count, &err) < 0)
		err_clear(&err);
	if (s3xml_deleted(a, xml, &failed, &count, &err) < 0)
		err_clear(&err);
	if (s3xml_upload_id(a, xml, &id, &err) < 0)
		err_clear(&err);
	s3xml_error(a, xml, &code, &message);
	buf_puts(&out, "<Error><Code>");
	s3xml_text(&out, str_of(code));
	buf_puts(&out, "</Code></Error>");
	s3xml_error(a, buf_view(&out), &id, &message);
	if (strpbrk(code, "\x7f") == NULL &&
	    strcmp(id, str_trim(str_of(code)).n == 0 ? "" : code) != 0)
		abort();
	return 0;
}
