/* test_checkpoints.c - checkpoints, their files by pages, signed URLs, uploads' credentials. */
#include "fake_ops.h"

/* What hashes to zeros is there. */
static int fake_upload_create(const struct ask *ask, const char *team_id, const char *sha256,
                              struct model_upload *out, struct err *err)
{
	*out = (struct model_upload){.access_key = "AK",
	                             .secret_key = "SK",
	                             .session_token = "ST",
	                             .key = "uploads/u1.tgz",
	                             .team_id = "team001",
	                             .created_ms = T0,
	                             .expires_ms = T0 + 1000,
	                             .there = sha256 != NULL && strspn(sha256, "0") == 64};
	return 0;
}

/* A server whose objects are elsewhere has a digest of nines. */
static int fake_upload_sign(const struct ask *ask, const char *team_id, const char *sha256,
                            const char *content, struct model_upload *out, struct objstore_put *put,
                            struct err *err)
{
	if (strspn(content, "9") != 64)
		return err_set(err, ERR_UNSUPPORTED, "by credentials");
	*put = (struct objstore_put){"http://store/k", {{"Authorization", "A"}, {"x-b", "B"}}, 2};
	return fake_upload_create(ask, team_id, sha256, out, err);
}

static const struct upload_ops fake_upload_ops = {
	.create = fake_upload_create,
	.sign = fake_upload_sign,
};

static const struct face_ops ops = {FAKE_OPS, .uploads = &fake_upload_ops};

#define J "/v1/training_projects/proj001/jobs/job0001"

/* A manifest of n files in the store, and its row. */
static void make(struct app *f, const char *name, uint32_t rank, size_t n, enum ckpt_state state)
{
	AUTO_BUF struct buf json = BUF_INIT((size_t)1 << 20);
	char *key = ckpt_manifest_key(f->a, ckpt_prefix(f->a, "proj001", "job0001"), rank, name);
	struct ckpt c = {.name = name,
	                 .job_id = "job0001",
	                 .rank = rank,
	                 .state = state,
	                 .kind = CKPT_LORA,
	                 .created_ms = T0};

	manifest_init(&c.files, f->a);
	for (size_t i = 0; i < n; i++) {
		struct digest d = hash_sha256(&i, sizeof(i));

		assert_ok(manifest_add(&c.files,
		                       str_of(arena_printf(f->a, "%s/file %zu.bin", name, i)),
		                       i + 1, &d, &f->err),
		          &f->err);
	}
	assert_ok(manifest_finish(&c.files, &f->err), &f->err);
	ckpt_write(&c, &json);
	assert_ok(objstore_put(f->ctx.objects, key, buf_view(&json), &f->err), &f->err);
	f->ckpt[f->n_ckpts++] = (struct model_checkpoint){.job_id = "job0001",
	                                                  .project_id = "proj001",
	                                                  .name = name,
	                                                  .rank = rank,
	                                                  .state = state,
	                                                  .kind = "lora",
	                                                  .base_model = "Qwen/Qwen3-0.6B",
	                                                  .lora_r = 16,
	                                                  .created_ms = T0,
	                                                  .bytes = 10,
	                                                  .files = n,
	                                                  .manifest_key = key};
}

static void test_list(void **state)
{
	struct app f;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, J "/checkpoints", "");
	assert_int_equal(at(d, "checkpoints")->count, 0);
	make(&f, "checkpoint-1", 0, 2, CKPT_COMPLETE);
	make(&f, "checkpoint-2", 0, 2, CKPT_INCOMPLETE);
	f.ckpt[1].kind = NULL;
	f.ckpt[1].created_ms = 0;
	f.ckpt[1].lora_r = 0;
	d = fake_ok(&f, HTTP_GET, J "/checkpoints", "");
	assert_int_equal(at(d, "checkpoints")->count, 1);
	assert_text(d, "checkpoints.0.checkpoint_id", "checkpoint-1");
	assert_text(d, "checkpoints.0.checkpoint_type", "lora");
	assert_text(d, "checkpoints.0.sync_status", "COMPLETE");
	assert_text(d, "checkpoints.0.training_job_id", "job0001");
	assert_int_equal(doc_int(at(d, "checkpoints.0.lora_adapter_config.r"), 0), 16);
	assert_true(doc_is(at(d, "checkpoints.0.size_bytes"), DOC_INT));
	d = fake_ok(&f, HTTP_GET, J "/checkpoints?all=true", "");
	assert_int_equal(at(d, "checkpoints")->count, 2);
	assert_text(d, "checkpoints.1.sync_status", "SYNCING");
	assert_text(d, "checkpoints.1.state", "INCOMPLETE");
	assert_true(doc_text(at(d, "checkpoints.1.created_at")).n >
	            0); /* "" would crash the client */
	assert_true(doc_text(at(d, "checkpoints.1.checkpoint_type")).n > 0);
	assert_true(doc_is(at(d, "checkpoints.1.lora_adapter_config"), DOC_NULL));
	d = fake_ok(&f, HTTP_DELETE, J "/checkpoints/run%2F1/checkpoint-1", "");
	assert_text(d, "checkpoint_id", "run/1/checkpoint-1");
	fake_refused(&f, HTTP_DELETE, J "/checkpoints/busy", "", 409, "in use");
	fake_stop(&f);
}

static struct sigv4_request as_sent(struct app *f, const char *url)
{
	struct sigv4_request rq = {.method = HTTP_GET, .query = str_of(strchr(url, '?') + 1)};

	rq.path = str_n(url + strlen(f->base), (size_t)(strchr(url, '?') - url) - strlen(f->base));
	rq.headers = arena_alloc(f->a, sizeof(struct http_header));
	((struct http_header *)(uintptr_t)rq.headers)[0] =
		(struct http_header){"host", f->base + strlen("http://")};
	rq.n_headers = 1;
	return rq;
}

static void test_files(void **state)
{
	static const struct sigv4_key key = {.access_key = "URLKEY",
	                                     .secret_key = "urlsecret",
	                                     .region = "us-east-1",
	                                     .service = "s3"};
	struct app f;
	const struct doc *d;
	size_t total = 0;
	int64_t token = 0;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, J "/checkpoint_files", "");
	assert_int_equal(at(d, "presigned_urls")->count, 0);
	assert_true(doc_is(at(d, "next_page_token"), DOC_NULL));
	make(&f, "checkpoint-1", 0, 5, CKPT_COMPLETE);
	make(&f, "checkpoint-1", 1, 3, CKPT_COMPLETE);
	make(&f, "checkpoint-2", 0, 4, CKPT_COMPLETE);
	for (int pages = 0; pages < 10; pages++) {
		d = fake_ok(&f, HTTP_GET,
		            arena_printf(f.a, J "/checkpoint_files?page_size=5&page_token=%" PRId64,
		                         token),
		            "");
		total += at(d, "presigned_urls")->count;
		assert_int_equal(doc_int(at(d, "total_count"), 0), 12);
		if (doc_is(at(d, "next_page_token"), DOC_NULL))
			break;
		token = doc_int(at(d, "next_page_token"), 0);
		assert_true(token > 0); /* 0 is the end to the client */
	}
	assert_int_equal(total, 12);
	d = fake_ok(&f, HTTP_GET, J "/checkpoint_files?checkpoint=checkpoint-2&page_size=1000", "");
	assert_int_equal(at(d, "presigned_urls")->count, 4);
	assert_text(d, "presigned_urls.0.relative_file_name", "checkpoint-2/file 0.bin");
	assert_int_equal(doc_text(at(d, "presigned_urls.0.sha256")).n, 64);
	{
		const char *url = doc_cstr(at(d, "presigned_urls.0.url"), "");
		struct sigv4_request rq = as_sent(&f, url);

		assert_non_null(strstr(url, "/s3/stoker/training_projects/proj001/jobs/job0001/"
		                            "rank-0/checkpoint-2/file%200.bin?"));
		assert_non_null(strstr(url, "X-Amz-Expires=604800"));
		assert_ok(sigv4_verify(f.a, &key, &rq, clock_wall_ms(), &f.err), &f.err);
		assert_err(sigv4_verify(f.a, &key, &rq, clock_wall_ms() + (int64_t)604801 * 1000,
		                        &f.err),
		           &f.err, ERR_DENIED, "");
	}
	fake_stop(&f);
}

#define EIGHTS "8888888888888888888888888888888888888888888888888888888888888888"
#define NINES "9999999999999999999999999999999999999999999999999999999999999999"

static void test_code(void **state)
{
	struct app f;
	struct got g;
	const struct doc *d;

	(void)state;
	fake_start(&f, &ops);
	d = fake_ok(&f, HTTP_GET, J "/download", "");
	assert_int_equal(at(d, "artifact_presigned_urls")->count, 1);
	assert_non_null(strstr(doc_cstr(at(d, "artifact_presigned_urls.0"), ""),
	                       "/s3/stoker/uploads/a%20b.tgz?"));
	d = fake_ok(&f, HTTP_GET, "/v1/blobs/credentials/train", "");
	assert_text(d, "s3_bucket", "stoker");
	assert_text(d, "s3_key", "uploads/u1.tgz");
	assert_text(d, "creds.endpoint_url", arena_printf(f.a, "%s/s3", f.base));
	assert_int_equal(at(d, "creds")->count, 5); /* keyword arguments of boto3: not one more */
	assert_false(doc_is(at(d, "put"), DOC_MAP));
	d = fake_ok(&f, HTTP_GET, "/v1/blobs/credentials/train?direct=" NINES, "");
	assert_text(d, "put.url", "http://store/k");
	assert_text(d, "put.headers.1.name", "x-b");
	assert_text(d, "put.headers.1.value", "B");
	assert_int_equal(at(d, "put.headers")->count, 2);
	assert_false(doc_is(at(d, "creds"), DOC_MAP));
	d = fake_ok(&f, HTTP_GET, "/v1/blobs/credentials/train?direct=" EIGHTS, "");
	assert_text(d, "creds.aws_access_key_id", "AK");
	assert_false(doc_is(at(d, "put"), DOC_MAP));
	g = fake_call(&f, HTTP_GET, "/v1/blobs/credentials/train?direct=99", "");
	assert_int_equal(g.status, 400);
	f.token = "viewer";
	g = fake_call(&f, HTTP_GET, "/v1/blobs/credentials/train?direct=" NINES, "");
	assert_int_equal(g.status, 403);
	g = fake_call(&f, HTTP_GET, "/v1/blobs/credentials/train", "");
	assert_int_equal(g.status, 403);
	fake_stop(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_list),
	cmocka_unit_test(test_files),
	cmocka_unit_test(test_code),
};

UNIT_MAIN(tests)
