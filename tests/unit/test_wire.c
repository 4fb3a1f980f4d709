/* test_wire.c - what is written is read back the same; what is wrong is refused by name. */
#include "core/model.h"
#include "core/wire.h"
#include "unit.h"

static const struct {
	const char *name, *json, *words;
} bad_exits[] = {
	{"not JSON", "{", ""},
	{"not an object", "[]", "object"},
	{"missing", "{}", "end: missing"},
	{"unknown end", "{\"end\":\"tired\"}", "end"},
	{"wrong kind", "{\"end\":\"exit\",\"code\":\"3\"}", "code: a whole number, not"},
	{"too large", "{\"end\":\"exit\",\"code\":3000000000}", "out of range"},
	{"not a bool",
         "{\"end\":\"exit\",\"code\":3,\"detail\":null,\"stage\":null,\"user_code_ran\":1}",
         "user_code_ran: true or false"},
	{"NUL", "{\"end\":\"exit\",\"code\":3,\"detail\":\"a\\u0000b\"}", ""},
};

static void refuses(void **state UNUSED)
{
	for (size_t i = 0; i < COUNT(bad_exits); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct wire_exit x;
		struct err err = {0};
		int r = wire_exit_parse(&x, a, str_of(bad_exits[i].json), &err);

		assert_row(r < 0, bad_exits[i].name);
		assert_row(strstr(err.msg, bad_exits[i].words) != NULL, bad_exits[i].name);
	}
}

static void keeps_start(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct wire_start back;
	const char *others[] = {"https://a", "https://b:8000"};
	struct wire_start m = {.server = "http://127.0.0.1:8000",
	                       .others = others,
	                       .n_others = 2,
	                       .token = "stoker_x",
	                       .attempt_id = "abcdefg",
	                       .node_rank = 3,
	                       .inherits_lock = true};
	struct err err = {0};

	wire_start_write(&m, &out);
	assert_ok(wire_start_parse(&back, a, buf_view(&out), &err), &err);
	assert_string_equal(back.server, m.server);
	assert_null(back.ca_file);
	assert_string_equal(back.token, m.token);
	assert_int_equal(back.node_rank, 3);
	assert_true(back.inherits_lock);
	assert_int_equal(back.n_others, 2);
	assert_string_equal(back.others[1], others[1]);
	assert_ok(wire_start_parse(
			  &back, a,
			  STR_LIT("{\"server\":\"http://a\",\"token\":\"t\",\"attempt_id\":\"x\","
	                          "\"node_rank\":0}"),
			  &err),
	          &err); /* of an older server */
	assert_int_equal(back.n_others, 0);
	assert_false(back.inherits_lock);
}

static void keeps_launch(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(100000), again = BUF_INIT(100000);
	const char *share[] = {"/root/venv", "/opt/x y"};
	struct wire_env env[] = {{"A", "1", false}, {"TOKEN", "s3cr\"et\n", true}};
	struct wire_weights w[] = {
		{"hf://a/b", "c0ffee", "/models/b", "00ff", 5000000000U, 7, true}};
	struct wire_code code[] = {{"uploads/x.tgz", 12, "ab12"}};
	struct wire_gpu gpus[] = {{0, "GPU-1"}, {3, "GPU-2"}};
	struct wire_load load[] = {
		{"checkpoint-1", "j1", "training_projects/p/jobs/j1", 0, "ab12", "rank-0", true}};
	struct wire_launch m = {.attempt_id = "a",
	                        .job_id = "j",
	                        .job_name = "job-1",
	                        .project_id = "p",
	                        .project_name = "proj",
	                        .team_id = "t",
	                        .node_rank = 1,
	                        .node_count = 2,
	                        .retry_count = 4,
	                        .leader_addr = "10.0.0.1",
	                        .spec_json = "{\"image\":null}",
	                        .code = code,
	                        .n_code = 1,
	                        .weights = w,
	                        .n_weights = 1,
	                        .load = load,
	                        .n_load = 1,
	                        .env = env,
	                        .n_env = 2,
	                        .registry_secret = "name:pass",
	                        .hub_url = "http://127.0.0.1:8000",
	                        .hub_token = "stokerjob_x_y",
	                        .gpus = gpus,
	                        .n_gpus = 2,
	                        .has_image = true,
	                        .image = {"1f", "r.example/a@sha256:2f"},
	                        .mirror = "passed:/d/objects.sock",
	                        .node_dir = "/d/node",
	                        .node_budget_bytes = 1U << 30,
	                        .objstore = "passed:/d/objects.sock",
	                        .cache_quota_bytes = 9,
	                        .ckpt_prefix = "x/y",
	                        .images = "auto",
	                        .sandbox = "bwrap",
	                        .share = share,
	                        .n_share = 2};
	struct wire_launch back;
	struct err err = {0};

	wire_launch_write(&m, &out);
	assert_ok(wire_launch_parse(&back, a, buf_view(&out), &err), &err);
	wire_launch_write(&back, &again);
	assert_string_equal(buf_cstr(&again), buf_cstr(&out));
	assert_int_equal(back.n_env, 2);
	assert_string_equal(back.env[1].value, "s3cr\"et\n");
	assert_true(back.env[1].secret);
	assert_true(back.weights[0].bytes == 5000000000U);
	assert_true(back.weights[0].hub);
	assert_string_equal(back.hub_url, "http://127.0.0.1:8000");
	assert_string_equal(back.hub_token, "stokerjob_x_y");
	assert_string_equal(back.share[1], "/opt/x y");
	assert_null(back.cache_team_dir);
	assert_string_equal(back.registry_secret, "name:pass");
	assert_null(back.registry_secret2);
	assert_int_equal(back.n_hide, 0);
	assert_int_equal(back.gpus[1].index, 3);
	assert_true(back.has_image);
	assert_string_equal(back.image.reference, "r.example/a@sha256:2f");
}

static void signs_a_bounded_number(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_sign request[WIRE_SIGN_MAX + 1];
	const struct wire_signed answer[] = {
		{.url = "http://s/k", .copy_source = "/b/from"},
		{.status = 403, .error = "denied", .message = "not yours"},
	};
	AUTO_BUF struct buf out = BUF_INIT(100000);
	struct wire_sign_all said;
	struct wire_signed_all got;
	struct err err = {0};

	for (size_t i = 0; i < COUNT(request); i++)
		request[i] = (struct wire_sign){"PUT", "k", i == 0 ? "uploads=" : NULL, NULL};
	wire_sign_all_write(&(struct wire_sign_all){request, WIRE_SIGN_MAX}, &out);
	assert_ok(wire_sign_all_parse(&said, a, buf_view(&out), &err), &err);
	assert_int_equal(said.n_request, WIRE_SIGN_MAX);
	assert_string_equal(said.request[0].query, "uploads=");
	assert_null(said.request[1].query);
	buf_clear(&out);
	wire_sign_all_write(&(struct wire_sign_all){request, WIRE_SIGN_MAX + 1}, &out);
	assert_err(wire_sign_all_parse(&said, a, buf_view(&out), &err), &err, ERR_INVALID,
	           "33 entries");
	buf_clear(&out);
	wire_signed_all_write(&(struct wire_signed_all){answer, COUNT(answer)}, &out);
	assert_ok(wire_signed_all_parse(&got, a, buf_view(&out), &err), &err);
	assert_string_equal(got.answer[0].copy_source, "/b/from");
	assert_null(got.answer[1].url);
	assert_int_equal(got.answer[1].status, 403);
	assert_string_equal(got.answer[1].message, "not yours");
	assert_err(wire_signed_all_parse(&got, a, STR_LIT("{\"answer\":[{\"status\":0}]}"), &err),
	           &err, ERR_INVALID, "entry 0");
}

static void refuses_what_names_no_image(void **state UNUSED)
{
#define ID "\"id\":\"1111111111111111111111111111111111111111111111111111111111111111\""
#define SUM "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	static const struct {
		const char *json;
		bool fine;
	} rows[] = {
		{"{" ID ",\"reference\":\"r.example/a@" SUM "\"}", true},
		{"{" ID ",\"reference\":null}", true},
		{"{" ID "}", true},
		{"{" ID ",\"reference\":\"r.example/a:1\"}", false},
		{"{" ID ",\"reference\":\"@" SUM "\"}", false},
		{"{" ID ",\"reference\":\"r.example/a@" SUM "2\"}", false},
		{"{\"id\":\"11\"}", false},
		{"{\"id\":null}", false},
		{"{}", false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		AUTO_ARENA struct arena *a = arena_new();
		struct wire_image m;
		struct err err = {0};

		assert_row((wire_image_parse(&m, a, str_of(rows[i].json), &err) == 0) ==
		                   rows[i].fine,
		           rows[i].json);
	}
}

/* What the release before this one does not say. */
static void reads_what_is_older(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct wire_heartbeat hb;
	struct wire_desired o;
	struct err err = {0};

	assert_ok(wire_heartbeat_parse(
			  &hb, a,
			  STR_LIT("{\"seq\":1,\"stage\":\"running\",\"note\":null,\"done_bytes\":0,"
	                          "\"total_bytes\":0,\"rate_bytes_s\":0,\"sample\":null}"),
			  &err),
	          &err);
	assert_false(hb.idle);
	assert_ok(wire_desired_parse(&o, a,
	                             STR_LIT("{\"go\":true,\"stop\":false,\"now\":false,\"seq\":1,"
	                                     "\"exec\":[]}"),
	                             &err),
	          &err);
	assert_true(o.go && !o.idle);
	assert_err(wire_desired_parse(&o, a,
	                              STR_LIT("{\"go\":true,\"stop\":false,\"now\":false,"
	                                      "\"idle\":1,\"seq\":1,\"exec\":[]}"),
	                              &err),
	           &err, ERR_INVALID, "idle");
}

/* As they were written before these had tables: by hand, and by runners that said less. */
static void reads_what_was_written_by_hand(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct model_checkpoint c;
	struct wire_logged logged;
	struct wire_event event;
	struct wire_process process;
	struct wire_ship ship;
	struct err err = {0};

	assert_ok(wire_checkpoint_parse(
			  &c, a, STR_LIT("{\"name\":\"step-1\",\"state\":\"SYNCING\"}"), &err),
	          &err);
	assert_true(c.kind == NULL && c.shown == NULL && c.bytes == 0 && c.revision == 0);
	assert_ok(
		wire_checkpoint_parse(
			&c, a,
			STR_LIT("{\"name\":\"step-1\",\"state\":\"COMPLETE\",\"kind\":\"lora\","
	                        "\"base_model\":null,\"lora_r\":8,\"created_ms\":5,\"bytes\":7,"
	                        "\"bytes_sent\":6,\"files\":2,\"manifest_key\":\"a/b\",\"rule\":3,"
	                        "\"reason\":\"r\",\"trainer\":null,\"updating\":null,"
	                        "\"revision\":4,\"shown\":\"step-*\"}"),
			&err),
		&err);
	assert_true(c.state == CKPT_COMPLETE && c.lora_r == 8 && c.files == 2 && c.revision == 4);
	assert_string_equal(c.shown, "step-*");
	assert_err(wire_checkpoint_parse(
			   &c, a, STR_LIT("{\"name\":\"step-1\",\"state\":\"WHOLE\"}"), &err),
	           &err, ERR_INVALID, "\"WHOLE\" is not a checkpoint state");
	assert_ok(wire_logged_parse(&logged, a, STR_LIT("{\"next\":12}"), &err), &err);
	assert_true(logged.next == 12 && logged.message == NULL);
	assert_err(wire_logged_parse(&logged, a, STR_LIT("{\"message\":\"a gap\"}"), &err), &err,
	           ERR_INVALID, "next: missing");
	assert_ok(wire_event_parse(&event, a, STR_LIT("{\"kind\":\"cache\",\"message\":\"m\"}"),
	                           &err),
	          &err);
	assert_string_equal(event.kind, "cache");
	assert_ok(wire_process_parse(&process, a,
	                             STR_LIT("{\"pid\":9,\"start\":77,\"boot\":\"b-1\"}"), &err),
	          &err);
	assert_true(process.pid == 9 && process.start == 77 && process.program == NULL);
	assert_ok(wire_ship_parse(
			  &ship, a,
			  STR_LIT("{\"objstore\":\"signed:\",\"prefix\":\"p\",\"job_id\":\"j\","
	                          "\"rank\":1,\"settle_s\":30,\"marker\":null}"),
			  &err),
	          &err);
	assert_true(ship.rank == 1 && ship.nodes == 0 && ship.marker == NULL);
}

static void keeps_heartbeat(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct wire_heartbeat back, m = {.seq = 12,
	                                 .stage = STAGE_WEIGHTS,
	                                 .note = "1 of 2",
	                                 .done_bytes = UINT64_MAX,
	                                 .rate_bytes_s = 2.5,
	                                 .idle = true};
	struct err err = {0};

	wire_heartbeat_write(&m, &out);
	assert_ok(wire_heartbeat_parse(&back, a, buf_view(&out), &err), &err);
	assert_false(back.has_sample);
	assert_true(back.done_bytes == (uint64_t)INT64_MAX); /* as much as JSON readers hold */
	m.has_sample = true;
	m.sample.n_gpus = 16;
	m.sample.gpu[15].utilization = 0.5;
	m.sample.memory_bytes = 77;
	buf_clear(&out);
	wire_heartbeat_write(&m, &out);
	assert_ok(wire_heartbeat_parse(&back, a, buf_view(&out), &err), &err);
	assert_true(back.has_sample && back.sample.gpu[15].utilization > 0.49);
	assert_int_equal(back.sample.memory_bytes, 77);
	assert_int_equal(back.stage, STAGE_WEIGHTS);
	assert_true(back.idle);
}

/* Whatever status a peer sends, it is an error; an id that is not known leaves its class. */
static void tells_a_peers_error(void **state UNUSED)
{
	static const struct {
		int status;
		const char *id, *message;
		enum err_code code, want;
	} rows[] = {
		{404, "job_not_found", "no such job", ERR_NOT_FOUND, ERR_JOB_NOT_FOUND},
		{404, NULL, "gone", ERR_NOT_FOUND, ERR_NOT_FOUND},
		{404, "of_a_newer_server", "gone", ERR_NOT_FOUND, ERR_NOT_FOUND},
		{503, "job_not_found", "of another class", ERR_UNAVAILABLE, ERR_UNAVAILABLE},
		{409, NULL, NULL, ERR_CONFLICT, ERR_CONFLICT},
	};
	struct err err = {0};

	for (size_t i = 0; i < COUNT(rows); i++) {
		assert_int_equal(wire_told_error(rows[i].status, rows[i].id, rows[i].message, &err),
		                 -1);
		assert_int_equal(err.code, rows[i].code);
		assert_int_equal(err.id, rows[i].want);
		assert_string_equal(err.msg, rows[i].message == NULL ? "" : rows[i].message);
		err_clear(&err);
	}
	for (int status = -1; status < 1000; status++) {
		assert_int_equal(wire_told_error(status, NULL, "words", &err), -1);
		assert_int_not_equal(err.code, ERR_NONE);
		err_clear(&err);
	}
}

/* A runner goes forward only; the end is always next but for one that is there. */
static void stages_follow(void **state UNUSED)
{
	static const enum wire_stage way[] = {STAGE_CLAIM,       STAGE_CODE,    STAGE_CODE,
	                                      STAGE_SANDBOX,     STAGE_PYTHON,  STAGE_WEIGHTS,
	                                      STAGE_CHECKPOINTS, STAGE_SANDBOX, STAGE_READY,
	                                      STAGE_RUNNING,     STAGE_SYNC,    STAGE_DONE};

	for (size_t i = 1; i < COUNT(way); i++)
		assert_true(wire_stage_follows(way[i - 1], way[i]));
	for (unsigned s = 0; s < STAGE_COUNT; s++) {
		enum wire_stage at = (enum wire_stage)s;

		assert_true(wire_stage_follows(at, STAGE_DONE) == (at != STAGE_DONE));
		assert_false(wire_stage_follows(at, STAGE_CLAIM));
		assert_false(wire_stage_follows(STAGE_DONE, at));
		assert_true(at == STAGE_READY || !wire_stage_follows(at, STAGE_RUNNING));
	}
}

static void bounds_fixed_lists(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000);
	const struct doc *d = NULL;
	struct wire_sample m;
	struct err err = {0};

	buf_puts(&out, "{\"wall_ms\":1,\"cpu_cores\":1,\"memory_bytes\":1,\"memory_limit\":1,"
	               "\"scratch_bytes\":1,\"scratch_total\":1,\"cache_bytes\":1,"
	               "\"cache_quota\":1,\"ckpt_bytes\":1,\"gpu\":[");
	for (int i = 0; i < 17; i++)
		buf_printf(&out, "%s{\"index\":%d,\"utilization\":0,\"memory_bytes\":0}",
		           i > 0 ? "," : "", i);
	buf_puts(&out, "]}");
	assert_ok(js_parse(a, buf_view(&out), &d, &err), &err);
	assert_err(wire_sample_parse(&m, d, &err), &err, ERR_TOO_BIG,
	           "gpu: 17 entries, at most 16");
}

static void keeps_desired(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000);
	const char *argv[] = {"sh", "-c", ""};
	struct wire_exec exec[] = {{.id = "e1", .argv = argv, .n_argv = 3},
	                           {.id = "e2", .tty = true, .rows = 24, .term = "xterm"}};
	struct wire_desired back, m = {.go = true, .seq = 5, .exec = exec, .n_exec = 2};
	struct err err = {0};

	wire_desired_write(&m, &out);
	assert_ok(wire_desired_parse(&back, a, buf_view(&out), &err), &err);
	assert_true(back.go && !back.stop && !back.now);
	assert_int_equal(back.n_exec, 2);
	assert_string_equal(back.exec[0].argv[2], "");
	assert_true(back.exec[0].term == NULL && !back.exec[0].tty);
	assert_int_equal(back.exec[1].n_argv, 0);
	assert_true(back.exec[1].tty && back.exec[1].rows == 24);
	assert_string_equal(back.exec[1].term, "xterm");
}

static void keeps_exit(void **state UNUSED)
{
	for (int e = JOB_END_NONE; e < JOB_END_COUNT; e++) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_BUF struct buf out = BUF_INIT(10000);
		struct wire_exit back, m = {.end = (enum job_end)e,
		                            .code = -1,
		                            .detail = "d",
		                            .synced = true,
		                            .started_ms = 5};
		struct err err = {0};

		wire_exit_write(&m, &out);
		assert_ok(wire_exit_parse(&back, a, buf_view(&out), &err), &err);
		assert_int_equal(back.end, e);
		assert_int_equal(back.code, -1);
		assert_null(back.stage);
		assert_true(back.synced && !back.user_code_ran && back.started_ms == 5);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(refuses),
	cmocka_unit_test(keeps_start),
	cmocka_unit_test(keeps_launch),
	cmocka_unit_test(signs_a_bounded_number),
	cmocka_unit_test(refuses_what_names_no_image),
	cmocka_unit_test(tells_a_peers_error),
	cmocka_unit_test(stages_follow),
	cmocka_unit_test(keeps_heartbeat),
	cmocka_unit_test(reads_what_is_older),
	cmocka_unit_test(reads_what_was_written_by_hand),
	cmocka_unit_test(bounds_fixed_lists),
	cmocka_unit_test(keeps_desired),
	cmocka_unit_test(keeps_exit),
};
UNIT_MAIN(tests)
