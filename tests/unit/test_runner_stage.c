/* test_runner_stage.c - what a job finds before its first command: code, weights, checkpoints. */
#include "runner_fixture.h"

#include "io/tar.h"
#include "run/report.h"
#include "store/blobs/blob_objects.h"
#include "store/blobs/tree.h"

static void put_archive(struct place *p, bool hostile)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)1 << 20);
	const char *make[] = {"tar", "-C", below(p, "code"), "-czf", below(p, "a.tgz"), ".", NULL};
	const char *evil[] = {"tar",         "-P",
	                      "-C",          below(p, "code"),
	                      "-czf",        below(p, "a.tgz"),
	                      "--transform", "s,run.sh,../../evil.sh,",
	                      "run.sh",      NULL};
	char hex[HASH_HEX_CAP];
	struct digest digest;
	struct err err = {0};
	int code = 0;

	assert_ok(fs_mkdirs(AT_FDCWD, below(p, "code/sub"), 0755, &err), &err);
	assert_ok(fs_write_atomic(AT_FDCWD, below(p, "code/run.sh"),
	                          STR_LIT("#!/bin/sh\necho from code; cat sub/x\n"), 0755, &err),
	          &err);
	assert_ok(fs_write_atomic(AT_FDCWD, below(p, "code/sub/x"), STR_LIT("data\n"), 0644, &err),
	          &err);
	assert_ok(proc_run(hostile ? evil : make, (struct str){0}, WAIT_MS, &out, &code, &err),
	          &err);
	assert_int_equal(code, 0);
	buf_clear(&out);
	assert_ok(fs_read(AT_FDCWD, below(p, "a.tgz"), &out, &err), &err);
	assert_ok(objstore_put(p->objects, "uploads/a.tgz", buf_view(&out), &err), &err);
	p->launch.code = ARENA_NEW(p->a, struct wire_code);
	digest = hash_sha256(out.p, out.n);
	digest_hex(&digest, hex);
	p->launch.code[0] = (struct wire_code){"uploads/a.tgz", out.n, arena_cstr(p->a, hex)};
	p->launch.n_code = 1;
}

static void unpacks_code(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_archive(p, false);
	spec(p, "\"./run.sh; echo $BT_WORKING_DIR\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o from code\no data\no /b10/workspace\n", true);
}

static void refuses_code_that_was_not_pushed(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf archive = BUF_INIT((size_t)1 << 20);
	struct err err = {0};
	struct wire_exit x;

	put_archive(p, false);
	assert_ok(objstore_get(p->objects, "uploads/a.tgz", &archive, &err), &err);
	archive.p[archive.n / 2] ^= 1;
	assert_ok(objstore_put(p->objects, "uploads/a.tgz", buf_view(&archive), &err), &err);
	spec(p, "\"echo ran\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "code");
	assert_non_null(strstr(x.detail, "is not the code that was pushed"));
	assert_log(p, "o ran", false);
}

static void code_without_workspace(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_archive(p, false);
	spec(p, "\"pwd; ./run.sh; echo [$BT_WORKING_DIR]\"", "", "");
	p->launch.spec_json = arena_printf(p->a, "%.*sfalse}",
	                                   (int)(strlen(p->launch.spec_json) - strlen("true}")),
	                                   p->launch.spec_json);
	x = run_whole(p);
	assert_log(p, "o /\no from code\no data\no []\n", true);
	assert_int_equal(x.code, 0);
}

static void refuses_hostile_code(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_archive(p, true);
	spec(p, "\"echo ran\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "code");
	assert_non_null(strstr(x.detail, "evil.sh"));
	assert_false(x.user_code_ran);
	assert_log(p, "o ran", false);
}

static void mounts_weights(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_weights(p, false);
	spec(p,
	     "\"cat /models/b/sub/model.bin\","
	     "\"echo x >/models/b/sub/model.bin || echo read-only\",\"rm -f "
	     "/models/b/sub/model.bin || "
	     "echo kept\"",
	     "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o weights!\n", true);
	assert_log(p, "o read-only\n", true);
	assert_log(p, "o kept\n", true);
}

/* A machine that has none of the server's folders: what the store holds is all there is. */
static void weights_come_from_the_object_store(void **state)
{
	struct place *p = *state;
	AUTO_BLOBS struct blobs *b = NULL;
	AUTO_BLOB_PINS struct blob_pins *pins = NULL;
	struct blob_objects_put put = {.to = p->objects};
	struct digest name;
	struct wire_exit x;
	struct err err = {0};

	put_weights(p, false);
	assert_ok(blobs_open(&b, below(p, "store"), &err), &err);
	assert_ok(digest_parse(str_of(p->launch.weights[0].manifest), &name, &err), &err);
	put.from = b;
	put.pins = pins = blob_pins_new(b);
	put.manifest = &name;
	assert_ok(blob_objects_put(&put, &err), &err);
	assert_ok(fs_remove_tree(AT_FDCWD, below(p, "store"), &err), &err);
	p->launch.mirror = NULL;
	spec(p, "\"cat /models/b/sub/model.bin\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o weights!\n", true);
	assert_log(p, "fetched from the object store", true);
}

/* Another job holds a tree that leaves no room for ours. */
static void hold_tree(struct place *p, struct node_lease *lease)
{
	AUTO_NODE_CACHE struct node_cache *c = NULL;
	AUTO_BLOBS struct blobs *b = NULL;
	struct digest d, name;
	struct manifest m;
	struct err err = {0};

	assert_ok(blobs_open(&b, below(p, "store"), &err), &err);
	assert_ok(node_cache_open(&c, p->launch.node_dir, p->launch.node_budget_bytes, &err), &err);
	manifest_init(&m, p->a);
	assert_ok(blobs_put(b, STR_LIT("another\n"), &d, &err), &err);
	assert_ok(manifest_add(&m, STR_LIT("a"), 8, &d, &err), &err);
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(b, NULL, &m, &name, &err), &err);
	assert_ok(node_cache_tree(c, &(struct tree_from){.blobs = b}, &name, NULL, NULL, NULL,
	                          lease, &err),
	          &err);
}

/* It waits as long as there is hope, and no longer. */
static void waits_for_room_in_the_node_cache(void **state)
{
	struct place *p = *state;
	struct node_lease lease;

	put_weights(p, false);
	p->launch.node_budget_bytes = 12;
	hold_tree(p, &lease);
	spec(p, "\"cat /models/b/sub/model.bin\"", "", "");
	launch(p, NULL);
	wait_log(p, "node cache");
	assert_log(p, "o weights!\n", false);
	(void)close(lease.fd);
	assert_int_equal(join(p), 0);
	assert_int_equal(exit_of(p).code, 0);
	assert_log(p, "o weights!\n", true);
}

static void a_stop_ends_the_wait_for_room(void **state)
{
	struct place *p = *state;
	struct node_lease lease;
	struct wire_exit x;

	put_weights(p, false);
	p->launch.node_budget_bytes = 12;
	hold_tree(p, &lease);
	spec(p, "\"echo ran\"", "", "");
	launch(p, NULL);
	wait_log(p, "node cache");
	stop_job(p, true);
	assert_int_equal(join(p), 0);
	x = exit_of(p);
	assert_int_equal(x.end, JOB_END_STOPPED);
	assert_false(x.user_code_ran);
	(void)close(lease.fd);
}

static void more_than_the_node_cache_holds_is_not_waited_for(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_weights(p, false);
	p->launch.node_budget_bytes = 5;
	spec(p, "\"echo ran\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "weights");
}

/* One file, below so many folders; its text is what it is named. */
static void put_compile(struct place *p, size_t folders)
{
	AUTO_BUF struct buf path = BUF_INIT(1000);
	AUTO_BLOBS struct blobs *blobs = NULL;
	struct manifest m;
	struct digest d, name;
	struct err err = {0};
	char hex[HASH_HEX_CAP];

	buf_puts(&path, "cuda/");
	for (size_t i = 0; i < folders; i++)
		buf_puts(&path, "d/");
	buf_puts(&path, "found");
	assert_ok(blobs_open(&blobs, below(p, "store"), &err), &err);
	manifest_init(&m, p->a);
	assert_ok(blobs_put(blobs, STR_LIT("found\n"), &d, &err), &err);
	assert_ok(manifest_add(&m, buf_view(&path), 6, &d, &err), &err);
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(blobs, NULL, &m, &name, &err), &err);
	digest_hex(&name, hex);
	p->launch.has_compile = true;
	p->launch.compile = (struct wire_compile){.repo = "red/cache",
	                                          .commit = "c0ffee",
	                                          .device = "cpu",
	                                          .manifest = arena_cstr(p->a, hex),
	                                          .bytes = 6,
	                                          .files = 1};
}

static const char finds[] =
	"\"ls $CUDA_CACHE_PATH; find $CUDA_CACHE_PATH -name found -exec cat {} +\"";

static void fills_the_caches_of_compilers(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_compile(p, 105); /* as deep as a repository's may be, and more */
	spec(p, finds, "", "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "o d\no found\n", true);
}

/* What cannot be had is compiled again. */
static void a_cache_that_cannot_be_copied(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_compile(p, 120);
	spec(p, finds, "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_int_equal(x.code, 0);
	assert_log(p, "compile cache red/cache: not filled: ", true);
	assert_log(p, "o d\n", false);
}

static void a_cache_of_more_files_than_a_job_may_have(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_compile(p, 1);
	p->launch.scratch_files = 1;
	spec(p, finds, "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_EXIT);
	assert_log(p, "compile cache red/cache: not filled: it has 1 file", true);
}

static void missing_weights_fail_before_user_code(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	put_weights(p, true);
	spec(p, "\"echo ran\"", "", "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "weights");
	assert_non_null(strstr(x.detail, "hf://a/b@main"));
	assert_log(p, "o ran", false);
}

static void get_manifest(struct place *p, const char *name, struct ckpt *c)
{
	struct buf *body = ARENA_NEW(p->a, struct buf);
	struct err err = {0};
	char *key = ckpt_manifest_key(p->a, p->launch.ckpt_prefix, 0, name);

	body->max = (size_t)1 << 20;
	assert_ok(objstore_get(p->objects, key, body, &err), &err);
	assert_ok(ckpt_parse(c, p->a, buf_view(body), &err), &err);
	buf_done(body);
}

/* A whole safetensors file without tensors: the length of its header, and that. */
#define NO_TENSORS "printf '\\\\010\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0{}      '"

static void ships_checkpoints(void **state)
{
	struct place *p = *state;
	AUTO_BUF struct buf body = BUF_INIT(1000);
	struct wire_exit x;
	struct ckpt c;
	struct err err = {0};

	spec(p,
	     "\"cd $BT_CHECKPOINT_DIR; mkdir -p checkpoint-1/deep; echo "
	     "'{\\\"r\\\":8,\\\"base_model_name_or_path\\\":\\\"org/base\\\"}' "
	     ">checkpoint-1/adapter_config.json; " NO_TENSORS
	     " >checkpoint-1/adapter_model.safetensors\","
	     "\"echo o >checkpoint-1/deep/opt.bin; echo loose >notes.txt\"",
	     CKPT, "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_true(x.synced);
	get_manifest(p, "checkpoint-1", &c);
	assert_int_equal(c.state, CKPT_COMPLETE);
	assert_int_equal(c.kind, CKPT_LORA);
	assert_int_equal(c.lora_r, 8);
	assert_string_equal(c.base_model, "org/base");
	assert_int_equal(c.files.n, 3);
	get_manifest(p, ".", &c);
	assert_int_equal(c.files.n, 1);
	assert_ok(objstore_get(p->objects,
	                       "training_projects/proj1/jobs/job1/rank-0/checkpoint-1/deep/opt.bin",
	                       &body, &err),
	          &err);
	assert_string_equal(buf_cstr(&body), "o\n");
	assert_non_null(strstr(p->checkpoints, "checkpoint-1 COMPLETE lora 3\n"));
	assert_log(p, "s Job has exited. Syncing checkpoints...\n", true);
}

/* What was still being written when the trainer died is kept, and said to be incomplete; what was
 * published by a rename is complete, however soon the trainer died. */
static void marks_the_incomplete(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	struct ckpt c;

	spec(p,
	     "\"cd $BT_CHECKPOINT_DIR; mkdir tmp-1 checkpoint-2; " NO_TENSORS
	     " >tmp-1/model.safetensors; mv tmp-1 checkpoint-1\",\"echo half "
	     ">checkpoint-2/model.safetensors; kill -9 $$\"",
	     CKPT, "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_SIGNAL);
	assert_int_equal(x.code, SIGKILL);
	assert_true(x.synced);
	get_manifest(p, "checkpoint-1", &c);
	assert_int_equal(c.state, CKPT_COMPLETE);
	get_manifest(p, "checkpoint-2", &c);
	assert_int_equal(c.state, CKPT_INCOMPLETE);
	assert_int_equal(c.files.n, 1);
}

static void loads_checkpoints(void **state)
{
	struct place *p = *state;
	struct wire_exit x;

	ships_checkpoints(state);
	p->launch.load = ARENA_NEW(p->a, struct wire_load);
	p->launch.load[0] = (struct wire_load){.name = "checkpoint-1",
	                                       .job_id = "job1",
	                                       .prefix = p->launch.ckpt_prefix,
	                                       .dir = "rank-0"};
	p->launch.n_load = 1;
	p->nonce[0] = '\0';
	p->go = p->ended = false;
	p->launch.attempt_id = "att2";
	spec(p, "\"cat $BT_LOAD_CHECKPOINT_DIR/rank-0/checkpoint-1/deep/opt.bin\"",
	     "\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":[{\"typ\":"
	     "\"baseten_latest_checkpoint\",\"job_id\":\"job1\"}]}",
	     "");
	x = run_whole(p);
	assert_int_equal(x.code, 0);
	assert_log(p, "verified", true);
}

static void refuses_damaged_checkpoints(void **state)
{
	struct place *p = *state;
	struct wire_exit x;
	struct err err = {0};

	ships_checkpoints(state);
	assert_ok(objstore_put(p->objects,
	                       "training_projects/proj1/jobs/job1/rank-0/checkpoint-1/deep/opt.bin",
	                       STR_LIT("x\n"), &err),
	          &err);
	p->launch.load = ARENA_NEW(p->a, struct wire_load);
	p->launch.load[0] = (struct wire_load){.name = "checkpoint-1",
	                                       .job_id = "job1",
	                                       .prefix = p->launch.ckpt_prefix,
	                                       .dir = "rank-0"};
	p->launch.n_load = 1;
	p->nonce[0] = '\0';
	p->go = p->ended = false;
	spec(p, "\"echo ran\"",
	     "\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":[{\"typ\":"
	     "\"baseten_latest_checkpoint\",\"job_id\":\"job1\"}]}",
	     "");
	x = run_whole(p);
	assert_int_equal(x.end, JOB_END_DEPLOY_FAILED);
	assert_string_equal(x.stage, "checkpoints");
}

/* ---- signatures ------------------------------------------------------------------------------ */

#define ASKERS 24
#define ASKS 5 /* of each */
#define ASK_MS 20

static struct signing {
	bool alone;       /* as an older server, which knows the form for one only */
	atomic_uint fail; /* so many questions, first */
	atomic_uint questions, requests, most;
	struct report *report;
} signing;

static int op_sign(const struct ask *ask, const struct wire_sign *said, size_t n,
                   struct sign_answer *out, struct err *err)
{
	if (signing.alone && n > 1)
		return err_set(err, ERR_NOT_FOUND, "no such route");
	if (atomic_load(&signing.fail) > 0) {
		atomic_fetch_sub(&signing.fail, 1);
		return err_set(err, ERR_UNAVAILABLE, "the database is away");
	}
	atomic_fetch_add(&signing.questions, 1);
	atomic_fetch_add(&signing.requests, (unsigned)n);
	atomic_store(&signing.most, MAX(atomic_load(&signing.most), (unsigned)n));
	clock_sleep_ms(ASK_MS);
	for (size_t i = 0; i < n; i++) {
		if (str_ends(str_of(said[i].key), "/not-ours")) {
			struct err *why = ARENA_NEW(ask->a, struct err);

			(void)err_set(why, ERR_DENIED, "%s: not yours", said[i].key);
			out[i].err = why;
			continue;
		}
		out[i].signed_.url = arena_printf(ask->a, "%s %s?%s", said[i].method, said[i].key,
		                                  said[i].query != NULL ? said[i].query : "");
		out[i].signed_.copy_source = said[i].copy_from;
	}
	return 0;
}

struct asker {
	pthread_t thread;
	size_t number;
	char wrong[300]; /* cmocka's checks are for its own thread */
};

static void ask_for(struct asker *me, size_t i)
{
	AUTO_ARENA struct arena *a = arena_new();
	bool ours = (me->number + i) % 7 != 0;
	const struct objstore_request rq = {
		.method = i % 2 == 0 ? HTTP_PUT : HTTP_GET,
		.key = arena_printf(a, "%zu/%zu/%s", me->number, i, ours ? "ours" : "not-ours"),
		.query = i == 2 ? "partNumber=1" : NULL,
		.copy_from = i == 4 ? arena_printf(a, "from/%zu", me->number) : NULL,
	};
	const char *url = arena_printf(a, "%s %s?%s", http_method_name[rq.method], rq.key,
	                               rq.query != NULL ? rq.query : "");
	struct objstore_signed got = {0};
	struct err err = {0};
	int rc = report_sign(signing.report, a, &rq, &got, &err);
	bool right =
		ours ? rc == 0 && strcmp(got.url, url) == 0 &&
				(rq.copy_from == NULL
	                                 ? got.copy_source == NULL
	                                 : got.copy_source != NULL &&
	                                           strcmp(got.copy_source, rq.copy_from) == 0)
		     : rc < 0 && err.code == ERR_DENIED &&
				strstr(err.msg, arena_printf(a, "%s: not yours", rq.key)) != NULL;

	if (!right)
		FMT(me->wrong, "%.100s: %.150s", rq.key, rc < 0 ? err.msg : got.url);
}

static void *asks(void *arg)
{
	for (size_t i = 0; i < ASKS; i++)
		ask_for(arg, i);
	return NULL;
}

static void ask_at_once(struct place *p)
{
	struct wire_start start = {.server = p->url, .token = TOKEN, .attempt_id = "att1"};
	const struct object_ops objects = {.sign = op_sign};
	struct face_ops ops = place_ops;
	struct asker asker[ASKERS] = {0};
	struct err err = {0};

	ops.objects = &objects;
	p->ctx.ops = &ops;
	assert_ok(report_open(&signing.report, &start, p->attempt, &err), &err);
	for (size_t i = 0; i < ASKERS; i++) {
		asker[i].number = i;
		assert_int_equal(pthread_create(&asker[i].thread, NULL, asks, &asker[i]), 0);
	}
	for (size_t i = 0; i < ASKERS; i++)
		(void)pthread_join(asker[i].thread, NULL);
	report_close(signing.report);
	server_stop(p);
	for (size_t i = 0; i < ASKERS; i++)
		assert_string_equal(asker[i].wrong, "");
	assert_int_equal(atomic_load(&signing.requests), ASKERS * ASKS);
}

static void signatures_are_asked_for_together(void **state)
{
	signing = (struct signing){0};
	ask_at_once(*state);
	assert_in_range(atomic_load(&signing.questions), 2, ASKERS * ASKS / 4);
	assert_in_range(atomic_load(&signing.most), 2, WIRE_SIGN_MAX);
}

static void an_older_server_signs_one_at_a_time(void **state)
{
	signing = (struct signing){.alone = true};
	ask_at_once(*state);
	assert_int_equal(atomic_load(&signing.most), 1);
}

static void signatures_wait_for_a_server_that_is_away(void **state)
{
	signing = (struct signing){.fail = 3};
	ask_at_once(*state);
}

/* SIGTERM reaches the command, not only the shell; its own cleaning up counts. */
static void as_an_ordinary_user(void **state UNUSED)
{
	static const char *const names[] = {"mounts_weights", "ships_checkpoints"};

	again_as_user(names, COUNT(names));
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)
static const struct CMUnitTest tests[] = {
	T(unpacks_code),
	T(refuses_code_that_was_not_pushed),
	T(code_without_workspace),
	T(refuses_hostile_code),
	T(mounts_weights),
	T(weights_come_from_the_object_store),
	T(waits_for_room_in_the_node_cache),
	T(a_stop_ends_the_wait_for_room),
	T(more_than_the_node_cache_holds_is_not_waited_for),
	T(missing_weights_fail_before_user_code),
	T(fills_the_caches_of_compilers),
	T(a_cache_that_cannot_be_copied),
	T(a_cache_of_more_files_than_a_job_may_have),
	T(ships_checkpoints),
	T(marks_the_incomplete),
	T(loads_checkpoints),
	T(refuses_damaged_checkpoints),
	T(signatures_are_asked_for_together),
	T(an_older_server_signs_one_at_a_time),
	T(signatures_wait_for_a_server_that_is_away),
	cmocka_unit_test(as_an_ordinary_user),
};
RUNNER_MAIN(tests)
