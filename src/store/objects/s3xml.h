/*
 * s3xml.h - the dozen S3 XML documents that we read and write, over expat; shared with face/s3.c.
 * Bounded in depth, text and count; DTDs and entities are refused.
 */
#ifndef S3XML_H
#define S3XML_H

#include "store/objects/objstore.h"

#define S3XML_MAX ((size_t)8 << 20)

struct s3xml_entry {
	const char *key;
	struct objstore_info info;
};
struct s3xml_listing {
	struct s3xml_entry *entry;
	size_t n;
	bool truncated;
	const char *next; /* continuation token, NULL = none */
};
/* ListObjectsV2 reply. */
int s3xml_listing(struct arena *a, struct str xml, struct s3xml_listing *out,
                  struct err *err) MUST_CHECK;
/* List Blobs of Azure, learn.microsoft.com/rest/api/storageservices/list-blobs: no S3, but the same
 * kind of document. */
struct s3xml_blob {
	const char *name, *etag, *md5, *coding; /* md5 in base64; "" when absent */
	uint64_t size;
	bool folder;
};
struct s3xml_blobs {
	struct s3xml_blob *blob;
	size_t n;
	const char *next; /* marker, NULL = this is the last page */
};
int s3xml_blobs(struct arena *a, struct str xml, struct s3xml_blobs *out,
                struct err *err) MUST_CHECK;
struct s3xml_upload {
	const char *key, *id;
	int64_t begun_ms;
};
struct s3xml_uploads {
	struct s3xml_upload *upload;
	size_t n;
	bool truncated;
	const char *next_key, *next_id; /* where the next page starts, NULL = not told */
};
/* ListMultipartUploads reply. */
int s3xml_uploads(struct arena *a, struct str xml, struct s3xml_uploads *out,
                  struct err *err) MUST_CHECK;
/* <Error>: code and message, "" when absent. Never fails on junk: both are then "". */
void s3xml_error(struct arena *a, struct str xml, const char **code, const char **message);
/* InitiateMultipartUploadResult's UploadId; CompleteMultipartUploadResult's ETag. */
int s3xml_upload_id(struct arena *a, struct str xml, const char **id, struct err *err) MUST_CHECK;
/* What STS answers to AssumeRole and its kin. All but the time are there. */
struct s3xml_credentials {
	const char *access_key, *secret_key, *session_token;
	int64_t expires_ms;
};
int s3xml_credentials(struct arena *a, struct str xml, struct s3xml_credentials *out,
                      struct err *err) MUST_CHECK;
/* DeleteResult: what was not deleted. */
struct s3xml_failed {
	const char *key, *code, *message; /* "" when absent */
};
int s3xml_deleted(struct arena *a, struct str xml, struct s3xml_failed **failed, size_t *n,
                  struct err *err) MUST_CHECK;
/* CompleteMultipartUpload as a client sends it. */
int s3xml_parts(struct arena *a, struct str xml, struct objstore_part **parts, size_t *n,
                struct err *err) MUST_CHECK;
/* Text with &, <, >, quotes and control characters escaped. */
void s3xml_text(struct buf *out, struct str s);
/* Does it read back as it is? XML has no words for some bytes. */
bool s3xml_can_say(struct str s);

#endif
