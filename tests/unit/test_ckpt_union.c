/* test_ckpt_union.c - a checkpoint of two nodes: the test is both runners, which store their parts
 * and report them. */
#include "server_fixture.h"

#include "core/ckpt_whole.h"
#include "server/data/ckpts.h"

#define NAME "checkpoint-1"

struct gang {
	struct fixture *f;
	struct model_job job;
	struct principal *node[2];
};

static void start(struct fixture *f, struct gang *g)
{
	static const char json[] =
		"{\"compute\":{\"cpu_count\":1,\"memory\":\"1Gi\",\"node_count\":2},"
		"\"runtime\":{\"start_commands\":[\"true\"],"
		"\"checkpointing_config\":{\"enabled\":true,\"keep_last\":1}}}";
	const struct doc *d = NULL;

	*g = (struct gang){.f = f};
	assert_ok(js_parse(f->a, str_of(json), &d, &f->err), &f->err);
	assert_ok(fixture_push_doc(f, d, NULL, &g->job), &f->err);
	fixture_await(f, g->job.id, JOB_DEPLOYING);
	for (uint32_t i = 0; i < 2; i++) {
		g->node[i] = fixture_runner(f, g->job.id, i);
		(void)fixture_claim(f, g->node[i], i == 0 ? "a" : "b");
	}
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(runner_ops.ready(AS(f, g->node[i]), &f->err), &f->err);
	fixture_await(f, g->job.id, JOB_RUNNING);
	g->job = fixture_job(f, g->job.id);
}

/* One node's part: its files as "name=content", its manifest, and the report of it. */
struct part {
	const char *name;
	uint32_t node;
	enum ckpt_state state;
	int rule;
	bool doubt;
	uint32_t revision, since, world;
	struct ckpt_times saved;
	const char *file[80];
};

static void store(struct gang *g, const struct part *p, const char *manifest)
{
	struct fixture *f = g->f;
	AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
	const char *prefix = ckpt_prefix(f->a, g->job.project_id, g->job.id);
	struct ckpt c = {.name = p->name,
	                 .job_id = g->job.id,
	                 .rank = p->node,
	                 .state = p->state,
	                 .rule = p->rule,
	                 .doubt = p->doubt,
	                 .revision = p->revision,
	                 .since = p->since,
	                 .saved = p->saved,
	                 .world = p->world};

	manifest_init(&c.files, f->a);
	for (size_t i = 0; i < COUNT(p->file) && p->file[i] != NULL; i++) {
		const char *equals = strchr(p->file[i], '=');
		const char *path = arena_printf(f->a, "%s/%.*s", p->name,
		                                (int)(equals - p->file[i]), p->file[i]);
		struct digest d = hash_sha256(equals + 1, strlen(equals + 1));

		assert_ok(manifest_add(&c.files, str_of(path), strlen(equals + 1), &d, &f->err),
		          &f->err);
		assert_ok(objstore_put(f->app->objects,
		                       ckpt_object_key(f->a, prefix, p->node, path),
		                       str_of(equals + 1), &f->err),
		          &f->err);
	}
	assert_ok(manifest_finish(&c.files, &f->err), &f->err);
	c.about = ARENA_ARRAY(f->a, struct ckpt_file, c.files.n + 1);
	for (size_t i = 0; i < c.files.n; i++)
		c.about[i] = (struct ckpt_file){.format = "json", .whole = true, .checked_ms = 1};
	ckpt_write(&c, &json);
	assert_ok(objstore_put(f->app->objects, manifest, buf_view(&json), &f->err), &f->err);
}

static enum ckpt_state report(struct gang *g, struct part p)
{
	struct fixture *f = g->f;
	const char *prefix = ckpt_prefix(f->a, g->job.project_id, g->job.id);
	const char *name = p.name != NULL ? p.name : NAME;
	struct model_checkpoint c = {.name = name,
	                             .shown = name,
	                             .state = p.state,
	                             .rule = p.rule != 0 ? p.rule : 9,
	                             .reason = "incomplete: x",
	                             .kind = "other",
	                             .created_ms = 10,
	                             .bytes = 5,
	                             .files = 1},
				*rows = NULL;
	size_t n = 0;

	p.name = name;
	if (p.state != CKPT_SYNCING) {
		c.manifest_key = ckpt_manifest_key(f->a, prefix, p.node, name);
		c.revision = p.revision;
		store(g, &p, c.manifest_key);
	}
	assert_ok(runner_ops.checkpoint(AS(f, g->node[p.node]), &c, &f->err), &f->err);
	assert_ok(checkpoint_ops.list(ADMIN(f), g->job.id, true, &rows, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, name) == 0)
			c.state = rows[i].state;
	return c.state;
}

/* Its state, the same on all nodes. */
static enum ckpt_state state_of(struct gang *g, const char *name, const char *says)
{
	struct fixture *f = g->f;
	struct model_checkpoint *rows = NULL;
	enum ckpt_state state = CKPT_SYNCING;
	size_t n = 0, seen = 0;

	assert_ok(meta_checkpoints(f->app->meta, f->a, g->job.id, &rows, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].name, name) != 0)
			continue;
		if (seen++ > 0)
			assert_int_equal(rows[i].state, state);
		state = rows[i].state;
		if (says != NULL && strstr(rows[i].reason, says) == NULL)
			fail_msg("\"%s\" does not say %s", rows[i].reason, says);
	}
	assert_true(seen > 0);
	return state;
}

static bool whole(struct gang *g, struct ckpt_whole *out)
{
	struct fixture *f = g->f;
	AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
	const char *key =
		ckpt_whole_key(f->a, ckpt_prefix(f->a, g->job.project_id, g->job.id), NAME);
	struct err err = {0};

	if (objstore_get(f->app->objects, key, &body, &err) < 0)
		return false;
	assert_ok(ckpt_whole_parse(out, f->a, arena_str(f->a, buf_view(&body)), &f->err), &f->err);
	return true;
}

static void both_or_none(void **state)
{
	struct fixture *f = *state;
	struct ckpt_whole w = {0};
	struct gang g;

	start(f, &g);
	assert_int_equal(report(&g, (struct part){.state = CKPT_COMPLETE, .file = {"a=1"}}),
	                 CKPT_SYNCING);
	assert_string_equal(fixture_job(f, g.job.id).sync_status, "SYNCING");
	assert_int_equal(report(&g, (struct part){.node = 1}), CKPT_SYNCING);
	assert_false(whole(&g, &w));
	assert_int_equal(
		report(&g, (struct part){.node = 1, .state = CKPT_COMPLETE, .file = {"b=2"}}),
		CKPT_COMPLETE);
	assert_string_equal(fixture_job(f, g.job.id).sync_status, "COMPLETED");
	assert_true(whole(&g, &w));
	assert_int_equal(w.n_parts, 2);
	assert_string_equal(w.name, NAME);
	/* what is still to come of it takes nothing back */
	assert_int_equal(report(&g, (struct part){.node = 1}), CKPT_COMPLETE);
	assert_ok(checkpoint_ops.remove(ADMIN(f), g.job.id, NAME, &f->err), &f->err);
	assert_false(whole(&g, &w));
}

/* A list on one node names files of another one; the same path must be the same file. */
static void lists_are_held_against_all_nodes(void **state)
{
	static const struct {
		const char *list, *other, *says;
		enum ckpt_state state;
	} cases[] = {
		{"model.safetensors.index.json={\"weight_map\":{\"w\":\"m.bin\"}}", "n.bin=1",
	         "m.bin", CKPT_SYNCING},
		{"model.safetensors.index.json={\"weight_map\":{\"w\":\"m.bin\"}}", "m.bin=1", NULL,
	         CKPT_COMPLETE},
		{"model.weights.json={\"weight_map\":{\"layer\":[\"m.h5\"]}}", "n.h5=1", "m.h5",
	         CKPT_SYNCING},
		{"model.weights.json={\"weight_map\":{\"layer\":[\"m.h5\"]}}", "m.h5=1", NULL,
	         CKPT_COMPLETE},
		{"same=1", "same=1", NULL, CKPT_COMPLETE},
		{"same=1", "same=2", "same", CKPT_INCOMPLETE},
		{"train.log=1", "train.log=2", NULL, CKPT_COMPLETE}, /* no part of any verdict */
		{"rng_state_0.pth=1", "rng_state_1.pth=1", NULL, CKPT_COMPLETE},
		{"config.json={}", "vocab.json={}", "model.safetensors", CKPT_SYNCING},
	};
	struct fixture *f = *state;
	struct gang g;

	start(f, &g);
	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *name = arena_printf(f->a, "folder-%c", (char)('a' + i));

		(void)report(&g, (struct part){.name = name,
		                               .state = CKPT_COMPLETE,
		                               .file = {cases[i].list, "trainer_state.json={}"}});
		(void)report(&g, (struct part){.name = name,
		                               .node = 1,
		                               .state = CKPT_COMPLETE,
		                               .file = {cases[i].other}});
		if (strncmp(cases[i].list, "config", 6) != 0 && cases[i].state != CKPT_COMPLETE)
			assert_int_equal(state_of(&g, name, cases[i].says), cases[i].state);
	}
}

/* Names are the job's: what is called a list does not make the server read without end. One that
 * is beyond the bound is a file like any other. */
static void lists_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct gang g;

	start(f, &g);
	for (int gap = 0; gap < 2; gap++) {
		const char *name = arena_printf(f->a, "folder-%c", 'a' + gap);
		struct part first = {.name = name, .state = CKPT_COMPLETE};

		for (int i = 0; i < 70; i++)
			first.file[i] = arena_printf(
				f->a, "%03d.index.json={\"weight_map\":{\"w\":\"%s\"}}", i,
				i == (gap == 0 ? 69 : 0) ? "gone.bin" : "here.bin");
		first.file[70] = "here.bin=1";
		(void)report(&g, first);
		assert_int_equal(report(&g, (struct part){.name = name,
		                                          .node = 1,
		                                          .state = CKPT_COMPLETE,
		                                          .file = {"z=1"}}),
		                 gap == 0 ? CKPT_COMPLETE : CKPT_SYNCING);
	}
}

static void a_node_that_ends_without_its_part(void **state)
{
	struct fixture *f = *state;
	struct ckpt_whole w;
	struct gang g;

	start(f, &g);
	assert_int_equal(report(&g, (struct part){.state = CKPT_COMPLETE, .file = {"a=1"}}),
	                 CKPT_SYNCING);
	fixture_exit(f, g.node[1], JOB_END_EXIT, 9);
	assert_int_equal(fixture_job(f, g.job.id).core.state, JOB_RUNNING);
	assert_int_equal(state_of(&g, NAME, "node 1"), CKPT_INCOMPLETE); /* at once */
	assert_int_equal(report(&g, (struct part){.state = CKPT_COMPLETE, .file = {"a=1"}}),
	                 CKPT_INCOMPLETE);
	fixture_exit(f, g.node[0], JOB_END_STOPPED, 0);
	assert_int_equal(state_of(&g, NAME, "node 1"), CKPT_INCOMPLETE);
	assert_false(whole(&g, &w));
}

static void the_end_of_all_decides(void **state)
{
	struct fixture *f = *state;
	struct ckpt_whole w;
	struct gang g;

	start(f, &g);
	(void)report(&g, (struct part){.state = CKPT_COMPLETE, .file = {"a=1"}});
	fixture_exit(f, g.node[0], JOB_END_EXIT, 0);
	assert_int_equal(state_of(&g, NAME, "node 1"), CKPT_SYNCING);
	fixture_exit(f, g.node[1], JOB_END_EXIT, 0); /* it never had one */
	assert_int_equal(fixture_job(f, g.job.id).core.state, JOB_COMPLETED);
	assert_int_equal(state_of(&g, NAME, NULL), CKPT_COMPLETE);
	assert_true(whole(&g, &w));
	assert_int_equal(w.n_parts, 1);
}

/* What a node alone cannot prove is proven by another one's list; what is torn never is. */
static void doubt_is_cleared_by_proof(void **state)
{
	static const struct {
		int rule;
		bool doubt;
		const char *list;
		enum ckpt_state state;
	} cases[] = {
		{9, true, "data-00001-of-00002.json={}", CKPT_COMPLETE},
		{9, true, "a.json={}", CKPT_INCOMPLETE},
		{9, false, "data-00001-of-00002.json={}", CKPT_INCOMPLETE},
		{2, false, "data-00001-of-00002.json={}", CKPT_INCOMPLETE},
	};
	struct fixture *f = *state;
	struct gang g;

	start(f, &g);
	for (size_t i = 0; i < COUNT(cases); i++) {
		const char *name = arena_printf(f->a, "folder-%c", (char)('a' + i));

		(void)report(&g, (struct part){.name = name,
		                               .state = CKPT_COMPLETE,
		                               .rule = 4,
		                               .file = {cases[i].list}});
		(void)report(&g, (struct part){.name = name,
		                               .node = 1,
		                               .state = CKPT_INCOMPLETE,
		                               .rule = cases[i].rule,
		                               .doubt = cases[i].doubt,
		                               .file = {"data-00002-of-00002.json={}"}});
		if (state_of(&g, name, NULL) != cases[i].state)
			fail_msg("case %zu", i);
	}
}

/* What a pull of the node's part gets, file by file, each as its manifest says: "a=1 b=2 ". */
static const char *pulled(struct gang *g, uint32_t node)
{
	struct fixture *f = g->f;
	const char *prefix = ckpt_prefix(f->a, g->job.project_id, g->job.id), *all = "";
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	assert_ok(meta_checkpoints(f->app->meta, f->a, g->job.id, &rows, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++) {
		AUTO_BUF struct buf json = BUF_INIT(APP_JSON_MAX);
		struct ckpt c = {0};

		if (strcmp(rows[i].name, NAME) != 0 || rows[i].rank != node)
			continue;
		assert_ok(objstore_get(f->app->objects, rows[i].manifest_key, &json, &f->err),
		          &f->err);
		assert_ok(ckpt_parse(&c, f->a, arena_str(f->a, buf_view(&json)), &f->err), &f->err);
		assert_int_equal(rows[i].files, c.files.n);
		assert_int_equal(rows[i].bytes, c.files.bytes);
		assert_int_equal(rows[i].revision, c.revision);
		for (size_t k = 0; k < c.files.n; k++) {
			AUTO_BUF struct buf body = BUF_INIT(APP_JSON_MAX);
			struct digest is;

			assert_ok(objstore_get(f->app->objects, ckpt_file_key(f->a, prefix, &c, k),
			                       &body, &f->err),
			          &f->err);
			is = hash_sha256(body.p, body.n);
			assert_true(digest_same(&is, &c.files.file[k].sha256));
			all = arena_printf(f->a, "%s%s=%.*s ", all,
			                   ckpt_inner(NAME, c.files.file[k].path), (int)body.n,
			                   body.p);
		}
	}
	return all;
}

/* What is still to come of it, as the node's row says; NULL: nothing. */
static const char *updating(struct gang *g, uint32_t node)
{
	struct fixture *f = g->f;
	struct model_checkpoint *rows = NULL;
	size_t n = 0;

	assert_ok(meta_checkpoints(f->app->meta, f->a, g->job.id, &rows, &n, &f->err), &f->err);
	for (size_t i = 0; i < n; i++)
		if (strcmp(rows[i].name, NAME) == 0 && rows[i].rank == node)
			return rows[i].updating;
	fail();
	return NULL;
}

static void count_key(void *arg, const char *key, const struct objstore_info *info UNUSED)
{
	size_t *n = arg;

	*n += strstr(key, "/.stoker/kept/") != NULL;
}

/* Objects that the server keeps of all nodes. */
static size_t n_kept(struct gang *g)
{
	struct fixture *f = g->f;
	size_t n = 0;
	bool more = false;

	assert_ok(objstore_list(f->app->objects,
	                        arena_printf(f->a, "%s/",
	                                     ckpt_prefix(f->a, g->job.project_id, g->job.id)),
	                        NULL, 1000, count_key, &n, &more, &f->err),
	          &f->err);
	return n;
}

static const struct part first_save[2] = {
	{.state = CKPT_COMPLETE, .revision = 1, .since = 1, .file = {"a=1"}},
	{.node = 1, .state = CKPT_COMPLETE, .revision = 1, .since = 1, .file = {"b=1"}},
};

/* The old parts count until the new ones of all nodes do: then all change at once. */
static void saved_over_by_all_of_them(void **state)
{
	struct fixture *f = *state;
	struct ckpt_whole w = {0};
	struct part first = first_save[0], second = first_save[1];
	struct gang g;

	start(f, &g);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	/* a callback adds a file */
	first.revision = 2;
	first.file[1] = "c=1";
	assert_int_equal(report(&g, first), CKPT_COMPLETE);
	assert_true(whole(&g, &w));
	assert_int_equal(w.part[0].revision, 2);
	assert_string_equal(pulled(&g, 0), "a=1 c=1 ");
	/* parts of two saves are no checkpoint */
	first.revision = first.since = 3;
	first.file[0] = "a=2";
	assert_int_equal(report(&g, first), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 0), "node 1"));
	assert_null(updating(&g, 1));
	assert_true(whole(&g, &w));
	assert_int_equal(w.part[0].revision, 2);
	assert_string_equal(pulled(&g, 0), "a=1 c=1 ");
	assert_string_equal(pulled(&g, 1), "b=1 ");
	/* a node that is two saves ahead: nothing says which saves of two nodes belong together */
	first.revision = first.since = 4;
	first.file[0] = "a=3";
	assert_int_equal(report(&g, first), CKPT_COMPLETE);
	assert_string_equal(pulled(&g, 0), "a=1 c=1 ");
	second.revision = second.since = 2;
	second.file[0] = "b=2";
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_true(whole(&g, &w));
	assert_int_equal(w.part[1].revision, 2);
	assert_string_equal(pulled(&g, 0), "a=3 c=1 ");
	assert_string_equal(pulled(&g, 1), "b=2 ");
	assert_null(updating(&g, 0));
	assert_int_equal(n_kept(&g), 5); /* files and manifests of what counts, and of no other */
	/* ... nor if the second one never comes */
	first.revision = first.since = 5;
	first.file[0] = "a=4";
	assert_int_equal(report(&g, first), CKPT_COMPLETE);
	fixture_exit(f, g.node[1], JOB_END_EXIT, 9);
	assert_non_null(strstr(updating(&g, 0), "incomplete: "));
	fixture_exit(f, g.node[0], JOB_END_EXIT, 0);
	assert_int_equal(state_of(&g, NAME, "complete: "), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 0), "node 1"));
	assert_string_equal(pulled(&g, 0), "a=3 c=1 ");
	assert_string_equal(pulled(&g, 1), "b=2 ");
	assert_ok(checkpoint_ops.remove(ADMIN(f), g.job.id, NAME, &f->err), &f->err);
	assert_int_equal(n_kept(&g), 0);
}

/* Saved so many seconds ago, and the one before it; by the node's own clock. */
static struct ckpt_times ago(uint32_t node, int ended_s, int before_s)
{
	int64_t now_ms = node == 0 ? 1000000000 : 7000000000;

	return (struct ckpt_times){.began_ms = now_ms - (ended_s + 1) * 1000,
	                           .ended_ms = now_ms - ended_s * 1000,
	                           .before_ms = before_s > 0 ? now_ms - before_s * 1000 : 0,
	                           .written_ms = now_ms};
}

static void parts_of_two_saves(void **state)
{
	struct fixture *f = *state;
	struct part first = first_save[0], second = first_save[1];
	struct gang g;

	start(f, &g);
	first.saved = ago(0, 500, 0);
	second.saved = ago(1, 500, 0);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	first.revision = first.since = 3;
	first.file[0] = "a=3";
	first.saved = ago(0, 100, 300);
	(void)report(&g, first);
	/* the second save of node 1 comes when node 0 has saved for the third time */
	second.revision = second.since = 2;
	second.file[0] = "b=2";
	second.saved = ago(1, 300, 500);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 0), "node 1"));
	assert_non_null(strstr(updating(&g, 1), "node 1"));
	assert_string_equal(pulled(&g, 0), "a=1 ");
	assert_string_equal(pulled(&g, 1), "b=1 ");
	second.revision = second.since = 3;
	second.file[0] = "b=3";
	second.saved = ago(1, 99, 300);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_string_equal(pulled(&g, 0), "a=3 ");
	assert_string_equal(pulled(&g, 1), "b=3 ");
	assert_null(updating(&g, 0));
	/* node 1 saves once more what it has saved already */
	first.revision = first.since = 4;
	first.file[0] = "a=4";
	first.saved = ago(0, 10, 100);
	(void)report(&g, first);
	assert_non_null(strstr(updating(&g, 0), "node 1"));
	assert_string_equal(pulled(&g, 0), "a=3 ");
	second.revision = 4;
	second.saved = ago(1, 11, 99);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_string_equal(pulled(&g, 0), "a=4 ");
	assert_string_equal(pulled(&g, 1), "b=3 ");
	assert_null(updating(&g, 0));
	/* ... and ends well without the next one */
	first.revision = first.since = 5;
	first.file[0] = "a=5";
	first.saved = ago(0, 0, 10);
	second.saved = ago(1, 11, 99);
	(void)report(&g, first);
	fixture_exit(f, g.node[1], JOB_END_EXIT, 0);
	fixture_exit(f, g.node[0], JOB_END_EXIT, 0);
	assert_int_equal(state_of(&g, NAME, "complete: "), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 0), "incomplete: "));
	assert_string_equal(pulled(&g, 0), "a=4 ");
}

/* Neither has been complete before. */
static void first_parts_of_two_saves(void **state)
{
	struct fixture *f = *state;
	struct part first = first_save[0], second = first_save[1];
	struct gang g;

	start(f, &g);
	first.revision = first.since = 2;
	first.saved = ago(0, 100, 300);
	second.saved = ago(1, 300, 0);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_SYNCING);
	assert_int_equal(state_of(&g, NAME, "waiting for node 1"), CKPT_SYNCING);
	second.saved.written_ms = 0; /* without times, as a runner of before tells it */
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
}

/* New parts of all nodes that make no checkpoint together: the old one stays. */
static void saved_over_with_a_hole(void **state)
{
	struct fixture *f = *state;
	struct part first = first_save[0], second = first_save[1];
	struct gang g;

	start(f, &g);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	first.revision = first.since = second.revision = second.since = 2;
	first.file[0] = "same=1";
	second.file[0] = "same=2";
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 1), "same"));
	assert_string_equal(pulled(&g, 0), "a=1 ");
	assert_string_equal(pulled(&g, 0), "a=1 ");
	assert_string_equal(pulled(&g, 1), "b=1 ");
	/* a runner that is looked after keeps its hands off what is kept */
	assert_ok(ckpts_adopt(f->app, f->a, &g.job, 0, &f->err), &f->err);
	assert_string_equal(pulled(&g, 0), "a=1 ");
}

/* ... nor what the store does not hold. */
static void saved_over_and_lost(void **state)
{
	struct fixture *f = *state;
	struct part first = first_save[0], second = first_save[1];
	const char *prefix;
	struct gang g;

	start(f, &g);
	prefix = ckpt_prefix(f->a, g.job.project_id, g.job.id);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	first.revision = first.since = second.revision = second.since = 2;
	first.file[0] = "c=2";
	second.file[0] = "b=2";
	(void)report(&g, first);
	assert_ok(
		objstore_del(f->app->objects, ckpt_object_key(f->a, prefix, 0, NAME "/c"), &f->err),
		&f->err);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_non_null(strstr(updating(&g, 1), "node 0"));
	assert_string_equal(pulled(&g, 0), "a=1 ");
	assert_string_equal(pulled(&g, 1), "b=1 ");
}

/* The server died when the manifest of all nodes was new and the rows were not. */
static void rows_follow_the_manifest_of_all(void **state)
{
	struct fixture *f = *state;
	struct model_checkpoint *rows = NULL;
	struct part first = first_save[0], second = first_save[1];
	struct gang g;
	size_t n = 0;

	start(f, &g);
	(void)report(&g, first);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_ok(meta_checkpoints(f->app->meta, f->a, g.job.id, &rows, &n, &f->err), &f->err);
	first.revision = first.since = second.revision = second.since = 2;
	first.file[0] = "a=2";
	second.file[0] = "b=2";
	(void)report(&g, first);
	(void)report(&g, second);
	for (size_t i = 0; i < n; i++)
		rows[i].updating = "syncing: x";
	assert_ok(meta_checkpoints_put(f->app->meta, rows, n, &f->err), &f->err);
	assert_int_equal(report(&g, second), CKPT_COMPLETE);
	assert_string_equal(pulled(&g, 0), "a=2 ");
	assert_string_equal(pulled(&g, 1), "b=2 ");
	assert_null(updating(&g, 0));
}

static void both_parts_load(void **state)
{
	struct fixture *f = *state;
	struct model_job k = {0};
	struct ckpt_whole w = {0};
	const struct objstore_env env = {0};
	AUTO_OBJSTORE struct objstore *away = NULL;
	struct objstore *store;
	struct wire_launch l;
	struct gang g;
	char hex[HASH_HEX_CAP];
	bool done = false;

	start(f, &g);
	(void)report(&g, (struct part){.state = CKPT_COMPLETE, .file = {"a=1"}});
	(void)report(&g, (struct part){.node = 1, .state = CKPT_COMPLETE, .file = {"b=1"}});
	fixture_exit(f, g.node[0], JOB_END_EXIT, 0);
	fixture_exit(f, g.node[1], JOB_END_EXIT, 0);
	assert_true(whole(&g, &w));
	assert_ok(
		fixture_push(f,
	                     ",\"load_checkpoint_config\":{\"enabled\":true,\"checkpoints\":["
	                     "{\"typ\":\"baseten_latest_checkpoint\",\"project_name\":\"demo\"}]}",
	                     "", &k),
		&f->err);
	fixture_await(f, k.id, JOB_DEPLOYING);
	l = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_int_equal(l.n_load, 1);
	digest_hex(&w.part[0].sha256, hex);
	assert_string_equal(l.load[0].files_sha256, hex);
	/* a store that is away ends no job: the runner asks again */
	assert_ok(objstore_open(&away, arena_printf(f->a, "fault:1:dir:%s/objects", f->app->data),
	                        &env, &f->err),
	          &f->err);
	store = f->app->objects;
	f->app->objects = away;
	assert_err(runner_ops.claim(AS(f, fixture_runner(f, k.id, 0)), "a", &l, &f->err), &f->err,
	           ERR_UNAVAILABLE, "");
	f->app->objects = store;
	assert_int_equal(fixture_job(f, k.id).core.state, JOB_DEPLOYING);
	/* without the manifest of all nodes it is not loaded */
	assert_ok(objstore_del(
			  f->app->objects,
			  ckpt_whole_key(f->a, ckpt_prefix(f->a, g.job.project_id, g.job.id), NAME),
			  &f->err),
	          &f->err);
	l = fixture_claim(f, fixture_runner(f, k.id, 0), "a");
	assert_string_equal(l.load[0].files_sha256, WIRE_NO_PART);
	/* a damaged part: it is complete on no node any more */
	assert_ok(ckpts_set_damaged(
			  f->app,
			  &(struct model_checkpoint){.job_id = g.job.id, .name = NAME, .rank = 1},
			  "b", &done, &f->err),
	          &f->err);
	assert_true(done);
	assert_int_equal(state_of(&g, NAME, NULL), CKPT_INCOMPLETE);
}

/* What a person has said stays, until the runner finds a newer revision complete. */
static void a_mark_stays(void **state)
{
	struct fixture *f = *state;
	struct model_job j = {0};
	struct principal *w =
		fixture_running(f, ",\"checkpointing_config\":{\"enabled\":true}", "", &j);
	struct model_checkpoint c = {.name = NAME,
	                             .shown = NAME,
	                             .state = CKPT_INCOMPLETE,
	                             .kind = "other",
	                             .reason = "incomplete: x",
	                             .revision = 1},
				*rows = NULL;
	size_t n = 0;

	fixture_ship(f, &j, NAME);
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_err(checkpoint_ops.complete(ADMIN(f), j.id, NAME, &f->err), &f->err, ERR_CONFLICT,
	           "");
	fixture_exit(f, w, JOB_END_EXIT, 1);
	assert_err(checkpoint_ops.complete(ADMIN(f), j.id, "none", &f->err), &f->err,
	           ERR_CHECKPOINT_NOT_FOUND, "");
	assert_err(checkpoint_ops.complete(ADMIN(f), j.id, NAME, &f->err), &f->err,
	           ERR_CHECKPOINT_NOT_STORED, ""); /* no manifest was told of */
	c.manifest_key = ckpt_manifest_key(f->a, ckpt_prefix(f->a, j.project_id, j.id), 0, NAME);
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_ok(checkpoint_ops.complete(ADMIN(f), j.id, NAME, &f->err), &f->err);
	assert_ok(checkpoint_ops.complete(ADMIN(f), j.id, NAME, &f->err), &f->err);
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err); /* a late one */
	assert_ok(meta_checkpoints(f->app->meta, f->a, j.id, &rows, &n, &f->err), &f->err);
	assert_int_equal(rows[0].state, CKPT_COMPLETE);
	assert_string_equal(rows[0].marked_by, f->admin->name);
	c.state = CKPT_COMPLETE;
	c.reason = "complete: x";
	c.revision = 2;
	assert_ok(runner_ops.checkpoint(AS(f, w), &c, &f->err), &f->err);
	assert_ok(meta_checkpoints(f->app->meta, f->a, j.id, &rows, &n, &f->err), &f->err);
	assert_int_equal(rows[0].state, CKPT_COMPLETE);
	assert_null(rows[0].marked_by);
}

static const struct CMUnitTest tests[] = {
	FIXTURE_TEST(both_or_none),
	FIXTURE_TEST(lists_are_held_against_all_nodes),
	FIXTURE_TEST(lists_are_bounded),
	FIXTURE_TEST(a_node_that_ends_without_its_part),
	FIXTURE_TEST(the_end_of_all_decides),
	FIXTURE_TEST(doubt_is_cleared_by_proof),
	FIXTURE_TEST(saved_over_by_all_of_them),
	FIXTURE_TEST(parts_of_two_saves),
	FIXTURE_TEST(first_parts_of_two_saves),
	FIXTURE_TEST(saved_over_with_a_hole),
	FIXTURE_TEST(saved_over_and_lost),
	FIXTURE_TEST(rows_follow_the_manifest_of_all),
	FIXTURE_TEST(both_parts_load),
	FIXTURE_TEST(a_mark_stays),
};

UNIT_MAIN(tests)
