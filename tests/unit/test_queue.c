/* test_queue.c - the line of waiting jobs over the real control plane: however long it is, whatever
 * is in it. */
#include "server_fixture.h"
#include "server/control/node_room.h"
#include "server/control/resolved.h"
#include "store/blobs/built.h"

/* n more rows like this job's, each a little younger, with the ids w000001... */
static void copies(struct fixture *f, const char *id, int n)
{
	fixture_alter(
		f,
		arena_printf(f->a,
	                     "CREATE TEMP TABLE many AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL"
	                     " SELECT i + 1 FROM c WHERE i < %d)"
	                     " SELECT j.* FROM jobs j, c WHERE j.id = '%s';"
	                     "UPDATE many SET id = printf('w%%06d', rowid),"
	                     " created_ms = created_ms + rowid;"
	                     "INSERT INTO jobs SELECT * FROM many; DROP TABLE many;",
	                     n, id));
}

static void push(struct fixture *f, int cpus, int priority, struct model_job *out)
{
	const struct doc *d = NULL;

	assert_ok(js_parse(f->a,
	                   str_of(arena_printf(
				   f->a,
				   "{\"compute\":{\"cpu_count\":%d,\"memory\":\"1Gi\"},"
				   "\"priority\":%d,\"runtime\":{\"start_commands\":[\"true\"]}}",
				   cpus, priority)),
	                   &d, &f->err),
	          &f->err);
	assert_ok(fixture_push_doc(f, d, NULL, out), &f->err);
}

static void end_job(struct fixture *f, const struct model_job *j)
{
	struct principal *w;

	fixture_await(f, j->id, JOB_DEPLOYING);
	w = fixture_runner(f, j->id, 0);
	(void)fixture_claim(f, w, "n");
	assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
	fixture_exit(f, w, JOB_END_EXIT, 0);
	queue_pass(f->app);
}

static void any_number_of_jobs_waits(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, second = {0}, urgent = {0};

	push(f, 4, 0, &first);
	push(f, 4, 0, &second);
	copies(f, second.id, 1100);
	push(f, 4, 50, &urgent);
	end_job(f, &first);
	fixture_await(f, urgent.id, JOB_DEPLOYING);
	end_job(f, &urgent);
	fixture_await(f, second.id, JOB_DEPLOYING); /* the oldest of the others */
}

/* A specification that this version would refuse, or cannot even read, is its own job's matter. */
static void a_bad_row_holds_nobody(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, strict = {0}, broken = {0}, torn = {0}, last = {0};

	push(f, 4, 0, &first);
	push(f, 1, 9, &strict);
	push(f, 1, 9, &broken);
	push(f, 1, 9, &torn);
	push(f, 1, 0, &last);
	fixture_alter(f,
	              arena_printf(f->a,
	                           "UPDATE jobs SET spec_json = json_set(spec_json, '$.no_more', 1,"
	                           " '$.limits.stop_grace', 999999999) WHERE id = '%s';"
	                           "UPDATE jobs SET spec_json = json_set(spec_json, '$.runtime', 7)"
	                           " WHERE id = '%s';"
	                           "UPDATE jobs SET spec_json = '{\"name' WHERE id = '%s';",
	                           strict.id, broken.id, torn.id));
	fixture_restart(f);
	end_job(f, &first);
	fixture_await(f, strict.id, JOB_DEPLOYING);
	fixture_await(f, last.id, JOB_DEPLOYING);
	fixture_await(f, broken.id, JOB_DEPLOY_FAILED);
	fixture_await(f, torn.id, JOB_DEPLOY_FAILED);
	assert_string_equal(fixture_job(f, broken.id).error_id, "stored_spec_unreadable");
	assert_string_equal(fixture_job(f, torn.id).error_id, "stored_spec_unreadable");
}

/* How often the database was committed to, by anybody else than who asks. */
static int64_t commits(struct db *db)
{
	AUTO_DB_TX struct db_tx tx = {0};
	struct err err = {0};
	int64_t n = 0;

	assert_ok(db_begin(db, DB_READ, &tx, &err), &err);
	assert_ok(db_number(&tx, "PRAGMA data_version", DB_NONE, 0, &n, &err), &err);
	assert_ok(db_commit(&tx, &err), &err);
	return n;
}

static void heartbeat(struct fixture *f, const struct principal *w, enum wire_stage stage,
                      const char *note)
{
	struct wire_heartbeat hb = {
		.stage = stage, .note = note, .done_bytes = 5, .total_bytes = 9};

	assert_ok(runner_ops.heartbeat(AS(f, w), &hb, &f->err), &f->err);
}

/* Liveness is kept in memory, seen at once, and stored now and then. */
static void a_heartbeat_commits_nothing(void **state)
{
	struct fixture *f = *state;
	AUTO_DB struct db *db = NULL;
	struct model_job j = {0}, row;
	struct model_attempt *t = NULL;
	struct job_query q = {0};
	struct model_job *list = NULL;
	struct principal *w = fixture_running(f, "", "", &j);
	uint64_t total = 0;
	size_t n = 0;
	int64_t before;
	char note[40];

	assert_ok(db_open(&db, arena_printf(f->a, "sqlite:%s/stoker.db", f->dir), &f->err),
	          &f->err);
	before = commits(db);
	for (int i = 0; i < 100; i++) {
		FMT(note, "step %d", i);
		heartbeat(f, w, STAGE_RUNNING, note);
	}
	assert_int_equal(commits(db), before);
	assert_ok(job_ops.get(ADMIN(f), NULL, j.id, &j, &f->err), &f->err);
	assert_string_equal(j.progress, "step 99");
	assert_true(j.progress_done == 5 && j.heartbeat_ms > 0);
	assert_ok(job_ops.search(ADMIN(f), &q, &list, &n, &total, &f->err), &f->err);
	assert_string_equal(list[0].progress, "step 99");
	assert_ok(job_ops.attempts(ADMIN(f), j.id, &t, &n, &f->err), &f->err);
	assert_true(t[0].heartbeat_ms > 0);
	row = fixture_job(f, j.id);
	assert_null(row.progress);
	live_pass(f->app); /* a new stage is stored by the next pass, progress after a while */
	row = fixture_job(f, j.id);
	assert_string_equal(row.progress, "step 99");
	heartbeat(f, w, STAGE_RUNNING, "later");
	live_pass(f->app);
	assert_string_equal(fixture_job(f, j.id).progress, "step 99");
	clock_fake(clock_wall_ms(), clock_mono_ms() + LIVE_STORE_MS);
	live_pass(f->app);
	clock_fake(-1, -1);
	assert_string_equal(fixture_job(f, j.id).progress, "later");
	heartbeat(f, w, STAGE_RUNNING, "last");
	fixture_restart(f); /* an orderly end keeps all of it */
	assert_string_equal(fixture_job(f, j.id).progress, "last");
	fixture_exit(f, w, JOB_END_EXIT, 0);
	heartbeat(f, w, STAGE_RUNNING, "too late");
	assert_ok(job_ops.get(ADMIN(f), NULL, j.id, &j, &f->err), &f->err);
	assert_null(j.progress);
}

/* As it was written before it had a table: what is not there is left out. */
static void reads_the_frozen_record_of_before(void **state UNUSED)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct resolved r;
	struct err err = {0};

	assert_ok(resolved_read(a, "{\"weights\":[],\"load\":[],\"code\":[]}", &r, &err), &err);
	assert_true(!r.has_resume && !r.has_image && resolved_load(&r, 0) == NULL);
	assert_ok(
		resolved_read(
			a,
			"{\"weights\":[{\"source\":\"hf://a\",\"revision\":\"c0\","
			"\"mount_location\":\"/m\",\"manifest\":\"00ff\",\"bytes\":5,\"files\":2}],"
			"\"load\":[{\"name\":\"step-1\",\"job_id\":\"j\",\"project_id\":\"p\","
			"\"latest\":true,\"ranks\":[0,2]}],"
			"\"resume\":{\"name\":\"step-2\",\"job_id\":\"k\",\"project_id\":\"p\","
			"\"latest\":false,\"ranks\":[1]},"
			"\"code\":[{\"key\":\"c\",\"bytes\":1}],"
			"\"image\":{\"id\":\"1f\",\"reference\":null}}",
			&r, &err),
		&err);
	resolved_write(&r, &out);
	assert_ok(resolved_read(a, buf_cstr(&out), &r, &err), &err);
	assert_string_equal(r.weights[0].manifest, "00ff");
	assert_int_equal(r.weights[0].files, 2);
	assert_string_equal(resolved_load(&r, 0)->name, "step-2");
	assert_string_equal(resolved_load(&r, 1)->name, "step-1");
	assert_true(r.load[0].latest && r.load[0].n_ranks == 2 && r.load[0].ranks[1] == 2);
	assert_string_equal(r.code[0].key, "c");
	assert_true(r.has_image && r.image.reference == NULL);
}

/* Nobody makes one here: no push waits for it. */
static void a_push_makes_no_pass(void **state)
{
	struct fixture *f = *state;
	const struct doc *d = NULL;
	struct model_job j = {0};
	struct model_attempt *t = NULL;
	size_t n = 0;

	assert_ok(js_parse(f->a, STR_LIT("{\"runtime\":{\"start_commands\":[\"true\"]}}"), &d,
	                   &f->err),
	          &f->err);
	assert_ok(push_ops.push(ADMIN(f), f->project.id, d, NULL, &j, &f->err), &f->err);
	assert_ok(job_ops.attempts(ADMIN(f), j.id, &t, &n, &f->err), &f->err);
	assert_int_equal(n, 0);
	queue_pass(f->app);
	fixture_await(f, j.id, JOB_DEPLOYING);
}

/* A loop whose runs read a number and then stand at a gate. */
static atomic_int number, seen, inside;
static atomic_bool gate;

static void read_slowly(struct app *app UNUSED)
{
	int n = atomic_load(&number);

	(void)atomic_fetch_add(&inside, 1);
	while (!atomic_load(&gate))
		clock_sleep_ms(1);
	atomic_store(&seen, n);
}

/* What was seen when the wait was over; -1: nobody looked. */
static void *wait_for_run(void *loop)
{
	return (void *)(intptr_t)(loop_kick_wait(loop, FIXTURE_WAIT_MS) ? atomic_load(&seen) : -1);
}

static void *stop_loop(void *loop)
{
	loop_stop(loop);
	return NULL;
}

static struct loop *slow_loop(struct fixture *f)
{
	struct loop *l = loop_new(f->app, read_slowly, (int64_t)3600 * 1000);

	atomic_store(&number, 1);
	atomic_store(&seen, 0);
	atomic_store(&inside, 0);
	atomic_store(&gate, false);
	loop_run(l);
	while (atomic_load(&inside) == 0)
		clock_sleep_ms(1);
	return l;
}

static void a_wait_ends_with_a_later_run(void **state)
{
	struct loop *l = slow_loop(*state);
	pthread_t waiter[4];
	void *got = NULL;

	atomic_store(&number, 2); /* the run that is under way has read 1 */
	assert_false(loop_kick_wait(l, 1));
	for (size_t i = 0; i < COUNT(waiter); i++)
		assert_int_equal(pthread_create(&waiter[i], NULL, wait_for_run, l), 0);
	atomic_store(&gate, true);
	for (size_t i = 0; i < COUNT(waiter); i++) {
		assert_int_equal(pthread_join(waiter[i], &got), 0);
		assert_int_equal((intptr_t)got, 2);
	}
	loop_stop(l);
	assert_false(loop_kick_wait(l, FIXTURE_WAIT_MS));
	loop_free(l);
	assert_false(loop_kick_wait(NULL, FIXTURE_WAIT_MS));
}

static void a_wait_ends_when_its_loop_is_stopped(void **state)
{
	struct loop *l = slow_loop(*state);
	pthread_t waiter, stopper;
	void *got = NULL;

	assert_int_equal(pthread_create(&waiter, NULL, wait_for_run, l), 0);
	assert_int_equal(pthread_create(&stopper, NULL, stop_loop, l), 0);
	assert_int_equal(pthread_join(waiter, &got), 0);
	assert_int_equal((intptr_t)got, -1);
	atomic_store(&gate, true);
	assert_int_equal(pthread_join(stopper, NULL), 0);
	loop_free(l);
}

/* A pass that began before the push says nothing about it, so a reply under load may come without
 * the queue's word: one of them has it. */
static void a_push_says_what_the_queue_says(void **state)
{
	struct fixture *f = *state;
	int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;
	const struct doc *d = NULL;
	struct model_job j = {0}, again = {0};

	queue_run(f->app);
	assert_ok(js_parse(f->a,
	                   STR_LIT("{\"compute\":{\"cpu_count\":3,\"memory\":\"1Gi\"},"
	                           "\"runtime\":{\"start_commands\":[\"true\"]}}"),
	                   &d, &f->err),
	          &f->err);
	assert_ok(push_ops.push(ADMIN(f), f->project.id, d, NULL, &j, &f->err), &f->err);
	fixture_await(f, j.id, JOB_DEPLOYING); /* it has 3 of 4 CPUs */
	do {
		assert_ok(push_ops.push(ADMIN(f), f->project.id, d, "key", &j, &f->err), &f->err);
		assert_int_equal(j.core.state, JOB_PENDING);
	} while (j.reason == NULL && clock_mono_ms() < until);
	assert_non_null(j.reason);
	assert_int_equal(j.place, 1);
	do {
		assert_ok(push_ops.again(ADMIN(f), j.id, false, &again, &f->err), &f->err);
	} while (again.reason == NULL && clock_mono_ms() < until);
	assert_non_null(again.reason);
}

/* The queue's thread stands still in the step of a job ahead: a push answers, and its job goes on
 * as soon as the queue does. */
static void a_pass_that_stalls_stalls_no_push(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, second = {0}, third = {0};
	const struct doc *d = NULL;
	struct lock *step;

	push(f, 4, 0, &first);
	push(f, 1, 9, &second);
	fixture_await(f, first.id, JOB_DEPLOYING);
	{
		struct principal *w = fixture_runner(f, first.id, 0);

		(void)fixture_claim(f, w, "n");
		assert_ok(runner_ops.ready(AS(f, w), &f->err), &f->err);
		fixture_exit(f, w, JOB_END_EXIT, 0);
	}
	step = app_stripe(f->app->steps, second.id);
	lock_take(step);
	queue_run(f->app);
	assert_ok(js_parse(f->a, STR_LIT("{\"runtime\":{\"start_commands\":[\"true\"]}}"), &d,
	                   &f->err),
	          &f->err);
	assert_ok(push_ops.push(ADMIN(f), f->project.id, d, NULL, &third, &f->err), &f->err);
	assert_int_equal(third.core.state, JOB_PENDING);
	lock_give(step);
	fixture_await(f, second.id, JOB_DEPLOYING);
	fixture_await(f, third.id, JOB_DEPLOYING);
}

/* The place in line is a number, and follows what happens ahead. */
static void a_place_in_line_is_shown(void **state)
{
	struct fixture *f = *state;
	struct model_job first = {0}, second = {0}, third = {0};

	push(f, 4, 0, &first);
	push(f, 4, 0, &second);
	push(f, 4, 0, &third);
	assert_true(second.place == 1 && third.place == 2 && third.reason != NULL);
	assert_ok(job_ops.stop(ADMIN(f), second.id, false, &second, &f->err), &f->err);
	assert_int_equal(second.place, 0);
	queue_pass(f->app);
	assert_ok(job_ops.get(ADMIN(f), NULL, third.id, &third, &f->err), &f->err);
	assert_int_equal(third.place, 1);
	live_pass(f->app);
	assert_non_null(fixture_job(f, third.id).reason); /* its first one is stored */
}

static void push_weights(struct fixture *f, const char *source, struct model_job *out)
{
	const struct doc *d = NULL;

	assert_ok(js_parse(f->a,
	                   str_of(arena_printf(
				   f->a,
				   "{\"compute\":{\"cpu_count\":4},\"priority\":50,"
				   "\"runtime\":{\"start_commands\":[\"true\"]},\"weights\":["
				   "{\"source\":\"%s\",\"mount_location\":\"/m\"}]}",
				   source)),
	                   &d, &f->err),
	          &f->err);
	assert_ok(fixture_push_doc(f, d, NULL, out), &f->err);
}

/* Passes of both loops until the job has left the line, or fetches nothing any more. */
static void assert_waits_for_weights(struct fixture *f, const char *id)
{
	struct model_job j;

	inputs_pass(f->app);
	queue_pass(f->app);
	j = fixture_job(f, id);
	assert_int_equal(j.core.state, JOB_PENDING);
	assert_int_equal(j.core.attempt, 0);
	assert_null(j.resolved_json);
}

/* A fetch of what make_source made begins and gets no further than its large file: here is who
 * "fetches" that already, until the descriptor is closed. */
static int hold_fetch(struct fixture *f)
{
	const char *dir = arena_printf(f->a, "%s/sources/model", f->dir);
	char hex[HASH_HEX_CAP], journal[FS_PATH_MAX];
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	const char *source = arena_printf(f->a, "file://%s", dir);
	struct digest d;
	int fd = -1;

	make_source(f);
	assert_int_equal(truncate(arena_printf(f->a, "%s/weights.bin", dir), 2000000), 0);
	hash_add(h, source, strlen(source) + 1);
	hash_add(h, "weights.bin", sizeof("weights.bin"));
	hash_add(h, "2000000", strlen("2000000"));
	(void)hash_end(h, d.b);
	digest_hex(&d, hex);
	assert_ok(
		blobs_tmp(f->app->blobs, arena_printf(f->a, "file-%s", hex), &fd, journal, &f->err),
		&f->err);
	return fd;
}

/* Whoever waits for a download holds no CPU, and nobody waits behind it. */
static void no_compute_while_weights_are_fetched(void **state)
{
	struct fixture *f = *state;
	struct model_job slow = {0}, ready = {0};
	int held = hold_fetch(f);

	push_weights(f, arena_printf(f->a, "file://%s/sources/model", f->dir), &slow);
	assert_waits_for_weights(f, slow.id);
	push(f, 4, 0, &ready);
	fixture_await(f, ready.id, JOB_DEPLOYING);
	assert_waits_for_weights(f, slow.id);
	(void)close(held);
	for (int i = 0; i < 1000 && fixture_job(f, slow.id).resolved_json == NULL; i++) {
		inputs_pass(f->app);
		clock_sleep_ms(20);
	}
	assert_non_null(fixture_job(f, slow.id).resolved_json); /* while it waits */
	assert_int_equal(fixture_job(f, slow.id).core.state, JOB_PENDING);
	end_job(f, &ready);
	fixture_await(f, slow.id, JOB_DEPLOYING);
	assert_int_equal(fixture_claim(f, fixture_runner(f, slow.id, 0), "n").weights[0].files, 2);
}

/* It goes on after a restart, ends with the source's error, and leaves the line when it is stopped.
 */
static void weights_of_the_line_come_and_go(void **state)
{
	struct fixture *f = *state;
	struct model_job again = {0}, stopped = {0}, bad = {0};
	const char *source = arena_printf(f->a, "file://%s/sources/model", f->dir);
	int held = hold_fetch(f);

	push_weights(f, source, &again);
	push_weights(f, source, &stopped);
	assert_waits_for_weights(f, again.id);
	assert_waits_for_weights(f, stopped.id);
	assert_ok(job_ops.stop(ADMIN(f), stopped.id, false, &stopped, &f->err), &f->err);
	assert_int_equal(stopped.core.state, JOB_STOPPED);
	inputs_pass(f->app);
	(void)close(held);
	fixture_restart(f);
	fixture_await(f, again.id, JOB_DEPLOYING);
	push_weights(f, "https://localhost:1/x", &bad);
	fixture_await(f, bad.id, JOB_DEPLOY_FAILED);
	bad = fixture_job(f, bad.id);
	assert_int_equal(bad.core.attempt, 0); /* though all CPUs are taken */
	assert_string_equal(bad.error_id, "address_denied");
}

/* A source of one file of so many bytes, and a job with 1 CPU that loads it. */
static void push_sized(struct fixture *f, const char *name, uint64_t bytes, struct model_job *out)
{
	const char *dir = arena_printf(f->a, "%s/sources/%s", f->dir, name);
	char *text = arena_alloc(f->a, bytes);

	memset(text, name[0], bytes);
	assert_ok(fs_mkdirs(AT_FDCWD, dir, 0755, &f->err), &f->err);
	assert_ok(fs_write_atomic(AT_FDCWD, arena_printf(f->a, "%s/w.bin", dir),
	                          (struct str){text, bytes}, 0644, &f->err),
	          &f->err);
	assert_ok(fixture_push(f, "",
	                       arena_printf(f->a,
	                                    "\"weights\":[{\"source\":\"file://%s\","
	                                    "\"mount_location\":\"/m\"}]",
	                                    dir),
	                       out),
	          &f->err);
}

/* What a job has of weights is known once they are here. */
static bool has_weights(struct fixture *f, const char *id)
{
	struct meta_tree *row = NULL;
	size_t n = 0;

	assert_ok(meta_trees(f->app->meta, f->a, &row, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(row[i].job_id, id) == 0)
			return true;
	}
	return false;
}

/* Its weights are here, and it has no place. */
static void await_room(struct fixture *f, const char *id)
{
	int64_t until = clock_mono_ms() + FIXTURE_WAIT_MS;
	struct model_attempt *t = NULL;
	struct model_job j = {0};
	size_t n = 0;

	while (!has_weights(f, id) && clock_mono_ms() < until) {
		queue_pass(f->app); /* wants them */
		inputs_pass(f->app);
		clock_sleep_ms(20);
	}
	assert_true(has_weights(f, id));
	queue_pass(f->app);
	assert_ok(job_ops.get(ADMIN(f), NULL, id, &j, &f->err), &f->err);
	assert_int_equal(j.core.state, JOB_PENDING);
	assert_non_null(j.reason);
	assert_ok(job_ops.attempts(ADMIN(f), id, &t, &n, &f->err), &f->err);
	assert_int_equal(n, 0);
}

/* Who waits for space in the node cache holds no CPU. Nobody who comes later takes that space, but
 * who needs none of it goes on. */
static void no_compute_while_the_node_cache_is_full(void **state)
{
	struct fixture *f = *state;
	struct model_job a = {0}, b = {0}, c = {0}, small = {0}, same = {0}, none = {0}, big = {0};

	f->app->set.node_cache_bytes = 25;
	push_sized(f, "a", 12, &a);
	push_sized(f, "b", 12, &b);
	fixture_await(f, a.id, JOB_DEPLOYING);
	fixture_await(f, b.id, JOB_DEPLOYING);
	push_sized(f, "c", 12, &c);
	await_room(f, c.id);
	push_sized(f, "small", 1, &small);
	await_room(f, small.id);
	push_sized(f, "a", 12, &same);
	fixture_await(f, same.id, JOB_DEPLOYING);
	push(f, 1, 0, &none);
	fixture_await(f, none.id, JOB_DEPLOYING);
	end_job(f, &a);
	await_room(f, c.id); /* `same` has them mounted */
	end_job(f, &b);
	fixture_await(f, c.id, JOB_DEPLOYING);
	fixture_await(f, small.id, JOB_DEPLOYING);
	end_job(f, &c);
	push_sized(f, "too-big", 26, &big);
	fixture_await(f, big.id, JOB_DEPLOYING); /* no waiting helps: its runner says why */
}

static bool has_room(struct fixture *f, const char *id)
{
	struct node_room *room = NULL;
	char reason[SCHED_REASON];

	assert_ok(node_room_read(f->app, f->a, &room, &f->err), &f->err);
	return node_room_let(room, id, reason);
}

static int make_environment(void *arg UNUSED, struct built *b, const char *dir, struct err *err)
{
	AUTO_FREE char *path = xasprintf("%s/x", dir);

	if (fs_write_atomic(AT_FDCWD, path, STR_LIT("twelve bytes"), 0644, err) < 0)
		return -1;
	return built_grow(b, err);
}

/* No job names them, and a runner that finds no room beside them waits with its place. */
static void environments_in_use_take_room(void **state)
{
	static const struct built_maker by = {.make = make_environment};
	static struct node_lease lease; /* leases are large */
	struct digest key = hash_sha256("key", 3);
	struct fixture *f = *state;
	struct model_job a = {0}, b = {0};

	f->app->set.node_cache_bytes = 25;
	assert_ok(node_cache_built(f->app->node, &key, &by, NULL, &lease, &f->err), &f->err);
	push_sized(f, "b", 12, &b);
	fixture_await(f, b.id, JOB_DEPLOYING);
	push_sized(f, "a", 12, &a);
	for (size_t n = 0; n < 2; clock_sleep_ms(20)) {
		struct meta_tree *row = NULL;

		inputs_pass(f->app);
		assert_ok(meta_trees(f->app->meta, f->a, &row, &n, &f->err), &f->err);
	}
	assert_false(has_room(f, a.id));
	(void)close(lease.fd);
	assert_true(has_room(f, a.id));
	fixture_await(f, a.id, JOB_DEPLOYING);
}

/* One member cannot put a thousand jobs in front of everybody; an administrator may. */
static void members_have_limits(void **state)
{
	struct fixture *f = *state;
	struct principal member = *f->admin;
	struct model_job out = {0};
	struct model_change up = {.priority = &(int64_t){7}};
	const struct doc *d = NULL, *high = NULL;

	member.role = ROLE_MEMBER;
	f->app->set.max_priority = 5;
	f->app->set.max_waiting_jobs = 3;
	assert_ok(js_parse(f->a,
	                   STR_LIT("{\"compute\":{\"cpu_count\":4,\"memory\":\"1Gi\"},"
	                           "\"priority\":5,\"runtime\":{\"start_commands\":[\"true\"]}}"),
	                   &d, &f->err),
	          &f->err);
	assert_ok(js_parse(f->a,
	                   STR_LIT("{\"priority\":6,\"runtime\":{\"start_commands\":[\"true\"]}}"),
	                   &high, &f->err),
	          &f->err);
	push(f, 4, 0, &out); /* runs; the others wait */
	assert_err(push_ops.push(AS(f, &member), f->project.id, high, NULL, &out, &f->err), &f->err,
	           ERR_PRIORITY_TOO_HIGH, "");
	assert_err(push_ops.check(AS(f, &member), f->project.team_id, f->project.name, high, false,
	                          &out, &f->err),
	           &f->err, ERR_PRIORITY_TOO_HIGH, "");
	for (int i = 0; i < 3; i++)
		assert_ok(push_ops.push(AS(f, &member), f->project.id, d, NULL, &out, &f->err),
		          &f->err);
	queue_pass(f->app);
	assert_err(job_ops.change(AS(f, &member), out.id, &up, &out, &f->err), &f->err,
	           ERR_PRIORITY_TOO_HIGH, "");
	assert_err(push_ops.push(AS(f, &member), f->project.id, d, NULL, &out, &f->err), &f->err,
	           ERR_TOO_MANY_WAITING, "");
	assert_err(push_ops.again(AS(f, &member), out.id, false, &out, &f->err), &f->err,
	           ERR_TOO_MANY_WAITING, "");
	assert_ok(fixture_push_doc(f, high, NULL, &out), &f->err);
	assert_ok(job_ops.change(ADMIN(f), out.id, &up, &out, &f->err), &f->err);
	assert_int_equal(out.priority, 7);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(any_number_of_jobs_waits),
	FIXTURE_TEST(a_bad_row_holds_nobody),
	FIXTURE_TEST(a_heartbeat_commits_nothing),
	cmocka_unit_test(reads_the_frozen_record_of_before),
	FIXTURE_TEST(a_push_makes_no_pass),
	FIXTURE_TEST(a_wait_ends_with_a_later_run),
	FIXTURE_TEST(a_wait_ends_when_its_loop_is_stopped),
	FIXTURE_TEST(a_push_says_what_the_queue_says),
	FIXTURE_TEST(a_pass_that_stalls_stalls_no_push),
	FIXTURE_TEST(a_place_in_line_is_shown),
	FIXTURE_TEST(no_compute_while_weights_are_fetched),
	FIXTURE_TEST(weights_of_the_line_come_and_go),
	FIXTURE_TEST(no_compute_while_the_node_cache_is_full),
	FIXTURE_TEST(environments_in_use_take_room),
	FIXTURE_TEST(members_have_limits),
};
UNIT_MAIN(tests)
