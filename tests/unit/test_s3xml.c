/* test_s3xml.c - S3's documents as servers and clients write them, and as nobody should. */
#include "unit.h"

#include "store/objects/s3xml.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define NS " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

static void s3xml_refuses(void **state UNUSED)
{
	static const struct {
		const char *name, *xml, *words;
	} rows[] = {
		{"empty", "", "MalformedXML"},
		{"no xml", "hello", "MalformedXML"},
		{"cut", "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>",
	         "MalformedXML"},
		{"other root", "<Other/>", "not <CompleteMultipartUpload>"},
		{"like the root", "<CompleteMultipartUploads/>", "not <CompleteMultipartUpload>"},
		{"no parts", "<CompleteMultipartUpload/>", "is empty"},
		{"no etag",
	         "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part>"
	         "</CompleteMultipartUpload>",
	         "without PartNumber or ETag"},
		{"no number",
	         "<CompleteMultipartUpload><Part><ETag>a</ETag></Part></CompleteMultipartUpload>",
	         "without PartNumber or ETag"},
		{"number 0",
	         "<CompleteMultipartUpload><Part><PartNumber>0</PartNumber></Part>"
	         "</CompleteMultipartUpload>",
	         "InvalidPart"},
		{"number 10001",
	         "<CompleteMultipartUpload><Part><PartNumber>10001</PartNumber></Part>"
	         "</CompleteMultipartUpload>",
	         "InvalidPart"},
		{"doctype",
	         "<!DOCTYPE a [<!ENTITY b \"c\">]><CompleteMultipartUpload>&b;"
	         "</CompleteMultipartUpload>",
	         "DOCTYPE"},
		{"entity", "<CompleteMultipartUpload>&nbsp;</CompleteMultipartUpload>",
	         "MalformedXML"},
		{"deep", "<a><a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a></a>", ""},
		{"two roots", "<CompleteMultipartUpload/><CompleteMultipartUpload/>",
	         "MalformedXML"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct objstore_part *parts = NULL;
		struct err err = {0};
		size_t n = 99;

		assert_row(s3xml_parts(a, str_of(rows[i].xml), &parts, &n, &err) < 0, rows[i].name);
		assert_row(err.code == ERR_INVALID, rows[i].name);
		assert_row(strstr(err.msg, rows[i].words) != NULL, rows[i].name);
		assert_row(parts == NULL && n == 99, rows[i].name);
	}
}

static void s3xml_reads_parts(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf many = BUF_INIT(S3XML_MAX);
	struct objstore_part *parts;
	struct err err = {0};
	size_t n;

	assert_ok(
		s3xml_parts(a,
	                    STR_LIT("<CompleteMultipartUpload" NS "><Part><ETag>\"abc\"</ETag>"
	                            "<ChecksumCRC32>AAAA</ChecksumCRC32><PartNumber>1</PartNumber>"
	                            "</Part>\n <Part><PartNumber> 12 </PartNumber><ETag>&quot;def"
	                            "&quot;</ETag></Part></CompleteMultipartUpload>"),
	                    &parts, &n, &err),
		&err);
	assert_int_equal(n, 2);
	assert_int_equal(parts[0].number, 1);
	assert_string_equal(parts[0].etag, "abc");
	assert_int_equal(parts[1].number, 12);
	assert_string_equal(parts[1].etag, "def");

	buf_puts(&many, "<CompleteMultipartUpload>");
	for (int i = 1; i <= OBJSTORE_PARTS_MAX; i++)
		buf_printf(&many, "<Part><PartNumber>%d</PartNumber><ETag>e%d</ETag></Part>", i, i);
	assert_ok(buf_check(&many, "parts", &err), &err);
	{
		size_t at = many.n;

		buf_puts(&many, "</CompleteMultipartUpload>");
		assert_ok(s3xml_parts(a, buf_view(&many), &parts, &n, &err), &err);
		assert_int_equal(n, OBJSTORE_PARTS_MAX);
		assert_string_equal(parts[n - 1].etag, "e10000");
		many.n = at;
	}
	buf_puts(&many, "<Part><PartNumber>1</PartNumber><ETag>e</ETag></Part>"
	                "</CompleteMultipartUpload>");
	assert_err(s3xml_parts(a, buf_view(&many), &parts, &n, &err), &err, ERR_INVALID,
	           "more than");
}

static void s3xml_reads_listings(void **state UNUSED)
{
	static const char page[] = HEAD
		"<ListBucketResult" NS "><Name>b</Name><Prefix>p/</Prefix><KeyCount>2</KeyCount>"
		"<IsTruncated>true</IsTruncated><NextContinuationToken>1/x+=</"
		"NextContinuationToken>"
		"<Contents><Key>p/a &amp; b</Key><LastModified>2026-11-21T10:00:00.000Z"
		"</LastModified><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag>"
		"<Size>12</Size><Owner><ID>x</ID></Owner></Contents>"
		"<Contents><Key>p/\xc3\xa9</Key><Size>0</Size></Contents></ListBucketResult>";
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_listing l;
	struct err err = {0};

	assert_ok(s3xml_listing(a, STR_LIT(page), &l, &err), &err);
	assert_int_equal(l.n, 2);
	assert_true(l.truncated);
	assert_string_equal(l.next, "1/x+=");
	assert_string_equal(l.entry[0].key, "p/a & b");
	assert_int_equal(l.entry[0].info.size, 12);
	assert_int_equal(l.entry[0].info.modified_ms, 1795255200000);
	assert_string_equal(l.entry[0].info.etag, "d41d8cd98f00b204e9800998ecf8427e");
	assert_string_equal(l.entry[1].key, "p/\xc3\xa9");

	assert_ok(
		s3xml_listing(a,
	                      STR_LIT("<ListBucketResult><EncodingType>url</EncodingType><Contents>"
	                              "<Key>a+b%2Bc%0A</Key></Contents></ListBucketResult>"),
	                      &l, &err),
		&err);
	assert_string_equal(l.entry[0].key, "a b+c\n");
	assert_ok(s3xml_listing(a,
	                        STR_LIT("<ListBucketResult><Contents><Key> a </Key><Size> 1 "
	                                "</Size></Contents></ListBucketResult>"),
	                        &l, &err),
	          &err);
	assert_string_equal(l.entry[0].key, " a ");
	assert_ok(s3xml_listing(a, STR_LIT("<ListBucketResult/>"), &l, &err), &err);
	assert_true(l.n == 0 && !l.truncated && l.next == NULL);
	assert_err(s3xml_listing(a,
	                         STR_LIT("<ListBucketResult><IsTruncated>true</IsTruncated>"
	                                 "</ListBucketResult>"),
	                         &l, &err),
	           &err, ERR_INVALID, "continuation token");
	assert_err(s3xml_listing(a,
	                         STR_LIT("<ListBucketResult><Contents><Size>-1</Size></Contents>"
	                                 "</ListBucketResult>"),
	                         &l, &err),
	           &err, ERR_INVALID, "");
}

static void s3xml_reads_credentials(void **state UNUSED)
{
	static const char good[] =
		"<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
		"<AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials>"
		"<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s/+=</SecretAccessKey>"
		"<Expiration>2026-11-21T10:00:00Z</Expiration><SessionToken>t//==</SessionToken>"
		"</Credentials></AssumeRoleResult></AssumeRoleResponse>";
	static const char *const bad[] = {
		"<AssumeRoleResponse/>",
		"<R><R1Result><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b"
		"</SecretAccessKey></Credentials></R1Result></R>",
		"<R><R1Result><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b"
		"</SecretAccessKey><SessionToken>a&#10;b</SessionToken></Credentials></R1Result></"
		"R>",
		"<R><R1Result><Credentials><Expiration>soon</Expiration></Credentials></R1Result></"
		"R>",
	};
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_credentials c;
	struct err err = {0};

	assert_ok(s3xml_credentials(a, STR_LIT(good), &c, &err), &err);
	assert_string_equal(c.access_key, "ASIA1");
	assert_string_equal(c.secret_key, "s/+=");
	assert_string_equal(c.session_token, "t//==");
	assert_int_equal(c.expires_ms, 1795255200000);
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_row(s3xml_credentials(a, str_of(bad[i]), &c, &err) < 0, bad[i]);
		assert_int_equal(err.code, ERR_INVALID);
		err_clear(&err);
	}
}

static void s3xml_reads_blobs(void **state UNUSED)
{
	/* as Azure writes it, with a mark of its order of bytes */
	static const char page[] =
		"\xef\xbb\xbf" HEAD
		"<EnumerationResults ServiceEndpoint=\"https://a.blob.core.windows.net/\" "
		"ContainerName=\"data\"><Prefix>p/</Prefix><MaxResults>5000</MaxResults><Blobs>"
		"<Blob><Name>p/sub</Name><Properties><Content-Length>0</Content-Length>"
		"<ResourceType>directory</ResourceType></Properties></Blob>"
		"<Blob><Name>p/old</Name><Properties><Content-Length>0</Content-Length></"
		"Properties>"
		"<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>"
		"<Blob><Name> a &amp; b </Name><Properties><Last-Modified>Thu, 26 Nov 2026 "
		"18:46:04 "
		"GMT</Last-Modified><Etag>0x24EA2FBE250D000</Etag><Content-Length>12"
		"</Content-Length><Content-Encoding>gzip</Content-Encoding><Content-MD5>"
		"M2MRoBYYQybdvdYe3U7rUg==</Content-MD5><BlobType>BlockBlob</BlobType></Properties>"
		"</Blob></Blobs><NextMarker>2!76!x--</NextMarker></EnumerationResults>";
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_blobs l;
	struct err err = {0};

	assert_ok(s3xml_blobs(a, STR_LIT(page), &l, &err), &err);
	assert_int_equal(l.n, 3);
	assert_string_equal(l.next, "2!76!x--");
	assert_true(l.blob[0].folder && l.blob[1].folder && !l.blob[2].folder);
	assert_string_equal(l.blob[0].etag, "");
	assert_string_equal(l.blob[2].name, " a & b ");
	assert_int_equal(l.blob[2].size, 12);
	assert_string_equal(l.blob[2].etag, "0x24EA2FBE250D000");
	assert_string_equal(l.blob[2].md5, "M2MRoBYYQybdvdYe3U7rUg==");
	assert_string_equal(l.blob[2].coding, "gzip");

	assert_ok(s3xml_blobs(a,
	                      STR_LIT("<EnumerationResults><Blobs/><NextMarker/>"
	                              "</EnumerationResults>"),
	                      &l, &err),
	          &err);
	assert_true(l.n == 0 && l.next == NULL);
	assert_err(s3xml_blobs(a, STR_LIT("<ListBucketResult/>"), &l, &err), &err, ERR_INVALID,
	           "no <EnumerationResults>");
	err_clear(&err);
	assert_err(s3xml_blobs(a,
	                       STR_LIT("<EnumerationResults><Blobs><Blob><Properties>"
	                               "<Content-Length>-1</Content-Length></Properties></Blob>"
	                               "</Blobs></EnumerationResults>"),
	                       &l, &err),
	           &err, ERR_INVALID, "");
}

static void s3xml_reads_small_replies(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *code, *message, *id;
	struct err err = {0};

	s3xml_error(a,
	            STR_LIT(HEAD "<Error><Code>NoSuchKey</Code><Message>The key &lt;x&gt; is not "
	                         "there.</Message><Resource>/b/x</Resource></Error>"),
	            &code, &message);
	assert_string_equal(code, "NoSuchKey");
	assert_string_equal(message, "The key <x> is not there.");
	s3xml_error(a, STR_LIT("<Error><Code>Cut</Code><Mess"), &code, &message);
	assert_string_equal(code, "Cut");
	assert_string_equal(message, "");
	s3xml_error(a, STR_LIT("<html><p>Bad gateway"), &code, &message);
	assert_string_equal(code, "");
	s3xml_error(a, STR_LIT(""), &code, &message);
	assert_string_equal(message, "");

	assert_ok(s3xml_upload_id(
			  a,
			  STR_LIT("<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
	                          "<UploadId>Up/1=</UploadId></InitiateMultipartUploadResult>"),
			  &id, &err),
	          &err);
	assert_string_equal(id, "Up/1=");
	assert_ok(s3xml_upload_id(a,
	                          STR_LIT("<CompleteMultipartUploadResult><ETag>\"e-3\"</ETag>"
	                                  "</CompleteMultipartUploadResult>"),
	                          &id, &err),
	          &err);
	assert_string_equal(id, "e-3");
	assert_err(
		s3xml_upload_id(a, STR_LIT("<Error><Code>InternalError</Code></Error>"), &id, &err),
		&err, ERR_INVALID, "UploadId");
}

static void s3xml_reads_what_was_not_deleted(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct s3xml_failed *failed = NULL;
	struct err err = {0};
	size_t n = 9;

	assert_ok(s3xml_deleted(a,
	                        STR_LIT(HEAD "<DeleteResult" NS "><Deleted><Key>x</Key></Deleted>"
	                                     "<Error><Key> a&amp;b</Key><Code>AccessDenied</Code>"
	                                     "<Message>no</Message></Error><Error><Code>SlowDown"
	                                     "</Code></Error></DeleteResult>"),
	                        &failed, &n, &err),
	          &err);
	assert_int_equal(n, 2);
	assert_string_equal(failed[0].key, " a&b");
	assert_string_equal(failed[0].code, "AccessDenied");
	assert_string_equal(failed[0].message, "no");
	assert_string_equal(failed[1].key, "");
	assert_string_equal(failed[1].code, "SlowDown");
	assert_ok(s3xml_deleted(a, STR_LIT("<DeleteResult/>"), &failed, &n, &err), &err);
	assert_int_equal(n, 0);
	assert_err(s3xml_deleted(a, STR_LIT(""), &failed, &n, &err), &err, ERR_INVALID, "");
	assert_err(s3xml_deleted(a, STR_LIT("<DeleteResult><Error>"), &failed, &n, &err), &err,
	           ERR_INVALID, "");
	assert_err(s3xml_deleted(a, STR_LIT("<DeleteResults/>"), &failed, &n, &err), &err,
	           ERR_INVALID, "<DeleteResults>");
}

static void s3xml_knows_what_it_can_say(void **state UNUSED)
{
	assert_true(s3xml_can_say(STR_LIT("")));
	assert_true(s3xml_can_say(STR_LIT(" a<&\"'\xc3\xa9\xef\xbf\xbd")));
	assert_false(s3xml_can_say(STR_LIT("a\x01")));
	assert_false(s3xml_can_say(STR_LIT("\xff")));
	assert_false(s3xml_can_say(STR_LIT("a\xc3")));
	assert_false(s3xml_can_say(STR_LIT("\xed\xa0\x80"))); /* half of a pair */
	assert_false(s3xml_can_say(STR_LIT("\xef\xbf\xbe")));
}

static void s3xml_writes_text(void **state UNUSED)
{
	AUTO_BUF struct buf b = BUF_INIT(200);

	s3xml_text(&b, STR_LIT("a<b>&\"c'\n\x01\xc3\xa9"));
	assert_string_equal(buf_cstr(&b), "a&lt;b&gt;&amp;&quot;c'&#10;\xef\xbf\xbd\xc3\xa9");
	/* a document with one of these in it cannot be read at all */
	buf_clear(&b);
	s3xml_text(&b, STR_LIT("\xff\xc0z\xef\xbf\xbf\xef\xbf\xbe\xef\xbf\xbc"));
	assert_string_equal(buf_cstr(&b), "\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd"
	                                  "\xef\xbf\xbd\xef\xbf\xbc");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(s3xml_refuses),
	cmocka_unit_test(s3xml_reads_parts),
	cmocka_unit_test(s3xml_reads_listings),
	cmocka_unit_test(s3xml_reads_blobs),
	cmocka_unit_test(s3xml_reads_credentials),
	cmocka_unit_test(s3xml_reads_small_replies),
	cmocka_unit_test(s3xml_writes_text),
	cmocka_unit_test(s3xml_reads_what_was_not_deleted),
	cmocka_unit_test(s3xml_knows_what_it_can_say),
};
UNIT_MAIN(tests)
