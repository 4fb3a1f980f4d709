/*
 * runner_fixture.h - a server for one runner, from the real listener and the real face of runners
 * over operations that only remember; and an attempt's folder to start the real runner in.
 */
#ifndef RUNNER_FIXTURE_H
#define RUNNER_FIXTURE_H

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/resumable.h"
#include "face/face.h"
#include "io/proc.h"
#include "run/ids.h"
#include "run/runner.h"
#include "store/objects/passing.h"
#include "unit.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define TOKEN "stoker_the-token-of-this-attempt"
#define WAIT_MS 120000

struct place {
	char dir[64];
	char *attempt; /* folder of it */
	struct arena *a;
	struct objstore *objects;
	struct blobs *blobs;
	struct passing *passing; /* of both, to the runner */
	char *passed;            /* its address */
	struct joblogs *logs;
	struct httpd *httpd;
	struct face_ctx ctx;
	struct principal principal;
	char address[32], url[64];
	struct proc runner;

	/* what the server answers */
	struct wire_launch launch;
	bool refuse_claim, hold_go;
	atomic_bool others_work; /* other nodes of the gang: idle_gpu ends nothing yet */
	atomic_bool token_gone;
	atomic_bool refuses_exit;
	atomic_int away; /* so many exit records and checkpoints are not taken */

	pthread_mutex_t lock; /* of what follows */
	char nonce[64];
	bool go, stop, now, idle;
	uint64_t seq;
	struct wire_exec exec;
	size_t n_exec;
	bool ready, ended;
	char exit_json[4096], image[HASH_HEX_CAP]; /* of the first node that said it */
	unsigned heartbeats, samples;
	char events[8192], checkpoints[16384], exec_output[65536];
	int exec_code; /* -1 = not done */
	struct str exec_input;
	bool exec_hang_up, exec_done; /* who started it hangs up; the runner needs us no more */
	struct upgraded *exec_line;
	pthread_t exec_thread;
};

static struct place *of_place(struct app *app)
{
	return (struct place *)app;
}

static int op_claim(const struct ask *ask, const char *nonce, struct wire_launch *out,
                    struct err *err)
{
	struct place *p = of_place(ask->app);
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	if (p->refuse_claim || (p->nonce[0] != '\0' && strcmp(p->nonce, nonce) != 0))
		r = err_set(err, ERR_CONFLICT, "another runner owns this attempt");
	copy_cut(p->nonce, sizeof(p->nonce), nonce);
	*out = p->launch;
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int op_heartbeat(const struct ask *ask, const struct wire_heartbeat *hb,
                        struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);

	(void)pthread_mutex_lock(&p->lock);
	p->heartbeats++;
	p->samples += hb->has_sample;
	p->idle = hb->idle;
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int op_desired(const struct ask *ask, struct wire_desired *out, struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);

	(void)pthread_mutex_lock(&p->lock);
	*out = (struct wire_desired){.go = p->go, .stop = p->stop, .now = p->now, .seq = p->seq};
	out->idle = p->idle && !p->others_work;
	if (p->n_exec > 0) {
		out->exec = ARENA_NEW(ask->a, struct wire_exec);
		*out->exec = p->exec;
		out->n_exec = 1;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static void change_desired(struct place *p)
{
	p->seq++;
	(void)pthread_mutex_unlock(&p->lock);
	if (p->httpd != NULL)
		httpd_notify(p->httpd, httpd_channel(CHANNEL_DESIRED, STR_LIT("att1")));
}

static int op_ready(const struct ask *ask, struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);

	(void)pthread_mutex_lock(&p->lock);
	p->ready = true;
	p->go = !p->hold_go;
	change_desired(p);
	return 0;
}

static int op_event(const struct ask *ask, const char *kind, const char *message,
                    struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);
	size_t n;

	(void)pthread_mutex_lock(&p->lock);
	n = strlen(p->events);
	(void)snprintf(p->events + n, sizeof(p->events) - n, "%s: %s\n", kind, message);
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static bool is_away(struct place *p)
{
	return atomic_load(&p->away) > 0 && atomic_fetch_sub(&p->away, 1) > 0;
}

static int op_checkpoint(const struct ask *ask, const struct model_checkpoint *row, struct err *err)
{
	struct place *p = of_place(ask->app);
	size_t n;

	if (is_away(p))
		return err_set(err, ERR_UNAVAILABLE, "the database is away");
	(void)pthread_mutex_lock(&p->lock);
	n = strlen(p->checkpoints);
	(void)snprintf(p->checkpoints + n, sizeof(p->checkpoints) - n, "%s %s %s %" PRIu64 "\n",
	               row->name, ckpt_state_word(row->state), row->kind, row->files);
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int op_exit(const struct ask *ask, const struct wire_exit *x, struct err *err)
{
	struct place *p = of_place(ask->app);
	AUTO_BUF struct buf out = BUF_INIT(4000);

	if (is_away(p))
		return err_set(err, ERR_UNAVAILABLE, "the database is away");
	if (atomic_load(&p->refuses_exit))
		return err_set(err, ERR_TOO_BIG, "words of a refusal");
	wire_exit_write(x, &out);
	(void)pthread_mutex_lock(&p->lock);
	copy_cut(p->exit_json, sizeof(p->exit_json), buf_cstr(&out));
	p->ended = true;
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int op_exec_may_join(const struct ask *ask, const char *job_id UNUSED,
                            const char *exec_id UNUSED, struct err *err)
{
	struct place *p = of_place(ask->app);
	bool over;

	(void)pthread_mutex_lock(&p->lock);
	over = p->exec_done || p->exec_line != NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return over ? err_set(err, ERR_CONFLICT, "it is over") : 0;
}

/* What the command printed, with the lock. */
static void exec_hear(struct place *p, struct resumable *r)
{
	enum frame_kind kind;
	struct str bytes;
	size_t n;

	while (resumable_next(r, &kind, &bytes)) {
		n = strlen(p->exec_output);
		if (kind == FRAME_EXIT)
			p->exec_code = (uint8_t)bytes.p[0];
		else
			(void)snprintf(p->exec_output + n, sizeof(p->exec_output) - n, "%.*s",
			               STR_ARG(bytes));
		resumable_use(r, bytes.n);
	}
}

/* The other end of the command, as the server would bring it: who started it. */
static void *exec_talk(void *arg)
{
	struct resumable r CLEANUP(resumable_done) = RESUMABLE_INIT;
	struct place *p = arg;
	bool given = false, hung = false;
	ssize_t n = 1;

	resumable_begin(&r);
	while (n != 0) {
		struct pollfd f = {.fd = upgraded_fd(p->exec_line), .events = POLLIN};
		struct err err = {0};
		static char bytes[UPGRADED_READ_MIN];

		(void)poll(&f, 1, 10);
		n = upgraded_read(p->exec_line, bytes, sizeof(bytes));
		if (n > 0)
			assert_ok(resumable_feed(&r, str_n(bytes, (size_t)n), &err), &err);
		(void)pthread_mutex_lock(&p->lock);
		exec_hear(p, &r);
		if (!given && p->exec_input.n > 0)
			resumable_put(&r, FRAME_IN, p->exec_input);
		given = given || p->exec_input.n > 0;
		if (p->exec_hang_up && !hung)
			resumable_say(&r, FRAME_HANG_UP, (struct str){0});
		hung = p->exec_hang_up;
		(void)pthread_mutex_unlock(&p->lock);
		for (struct str w = resumable_wire(&r); w.n > 0; w = resumable_wire(&r)) {
			ssize_t sent = upgraded_write(p->exec_line, w.p, w.n);

			if (sent <= 0)
				break;
			resumable_wrote(&r, (size_t)sent);
		}
	}
	upgraded_close(p->exec_line);
	return NULL;
}

static void op_exec_join(struct app *app, const char *exec_id UNUSED, enum exec_end which,
                         struct upgraded *u)
{
	struct place *p = of_place(app);

	assert_int_equal(which, EXEC_RUNNER);
	p->exec_line = u;
	assert_int_equal(pthread_create(&p->exec_thread, NULL, exec_talk, p), 0);
}

static int op_exec_done(const struct ask *ask, const char *id UNUSED, struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);

	(void)pthread_mutex_lock(&p->lock);
	p->exec_done = true;
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int op_job(const struct ask *ask UNUSED, struct model_job *out, struct err *err UNUSED)
{
	*out = (struct model_job){.id = "job1",
	                          .name = "job-1",
	                          .project_id = "proj1",
	                          .project_name = "quick",
	                          .team_id = "team1"};
	return 0;
}

static int op_image(const struct ask *ask, const struct wire_image *said, struct wire_image *out,
                    struct err *err UNUSED)
{
	struct place *p = of_place(ask->app);

	(void)pthread_mutex_lock(&p->lock);
	if (p->image[0] == '\0')
		FMT(p->image, "%s", said->id);
	*out = (struct wire_image){.id = p->image};
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int op_speaks(const struct ask *ask UNUSED, int64_t version, struct err *err UNUSED)
{
	assert_int_equal(version, WIRE_VERSION);
	return 0;
}

static const struct exec_ops place_exec_ops = {
	.may_join = op_exec_may_join,
	.join = op_exec_join,
	.done = op_exec_done,
};

static const struct runner_ops place_runner_ops = {
	.speaks = op_speaks,
	.claim = op_claim,
	.heartbeat = op_heartbeat,
	.desired = op_desired,
	.image = op_image,
	.ready = op_ready,
	.event = op_event,
	.checkpoint = op_checkpoint,
	.exit = op_exit,
	.job = op_job,
};

static const struct face_ops place_ops = {
	.execs = &place_exec_ops,
	.runners = &place_runner_ops,
};

static int authorize(struct request *rq, enum scope scope, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct place *p = of_place(ctx->app);

	if (scope != SCOPE_RUNNER || p->token_gone ||
	    !str_eq(request_header(rq, "Authorization"), "Bearer " TOKEN))
		return err_set(err, ERR_AUTH, "bad token");
	rq->principal = &p->principal;
	return 0;
}

/* What the test has written the server may read, and the other way round. */
static void meet(struct place *p)
{
	(void)pthread_mutex_lock(&p->lock);
	(void)pthread_mutex_unlock(&p->lock);
}

/* Until a flag or number that the server sets is there. */
#define WAIT_UNTIL(p, condition)                                                                   \
	do {                                                                                       \
		int64_t until_ = clock_mono_ms() + WAIT_MS;                                        \
		bool there_ = false;                                                               \
                                                                                                   \
		while (!there_) {                                                                  \
			if (clock_mono_ms() > until_)                                              \
				fail_msg("never: %s\n%s", #condition, own_log(p));                 \
			clock_sleep_ms(10);                                                        \
			(void)pthread_mutex_lock(&(p)->lock);                                      \
			there_ = (condition);                                                      \
			(void)pthread_mutex_unlock(&(p)->lock);                                    \
		}                                                                                  \
	} while (0)

static char *below(struct place *p, const char *name)
{
	return arena_printf(p->a, "%s/%s", p->dir, name);
}

/* What may be read and written is the server's to say: tests/e2e/test_passing.py. */
static int may_pass(void *arg UNUSED, struct str token, enum passing_right right UNUSED,
                    const char *key UNUSED, struct err *err)
{
	return str_eq(token, TOKEN) ? 0 : err_set(err, ERR_AUTH, "not the token of this attempt");
}

static void pass_files(struct place *p)
{
	const struct passing_options o = {.path = below(p, "objects.sock"),
	                                  .objects = p->objects,
	                                  .blobs = p->blobs,
	                                  .may = may_pass,
	                                  .arg = p};
	struct err err = {0};

	assert_ok(passing_start(&p->passing, &o, &err), &err);
}

static void server_start(struct place *p)
{
	static const struct face *const faces[] = {&face_runner};
	struct httpd_options o = {.address = p->address,
	                          .faces = faces,
	                          .n_faces = 1,
	                          .ctx = &p->ctx,
	                          .authorize = authorize};
	struct err err = {0};

	assert_ok(httpd_start(&o, &p->httpd, &err), &err);
	FMT(p->address, "127.0.0.1:%u", httpd_port(p->httpd));
	FMT(p->url, "http://127.0.0.1:%u", httpd_port(p->httpd));
	pass_files(p);
}

static void server_stop(struct place *p)
{
	httpd_drain(p->httpd, 0);
	httpd_stop(p->httpd);
	if (p->exec_line != NULL)
		(void)pthread_join(p->exec_thread, NULL);
	p->httpd = NULL;
	passing_stop(p->passing);
	p->passing = NULL;
}

static int place_set_up(void **state)
{
	struct place *p = xcalloc(1, sizeof(*p));
	const char *tmp = getenv("TMPDIR");
	struct err err = {0};

	FMT(p->dir, "%.40s/test_run.XXXXXX", tmp == NULL ? "/tmp" : tmp);
	assert_non_null(mkdtemp(p->dir));
	p->a = arena_new();
	(void)pthread_mutex_init(&p->lock, NULL);
	p->exec_code = -1;
	p->attempt = below(p, "runs/att1-0");
	assert_ok(fs_mkdirs(AT_FDCWD, p->attempt, 0700, &err), &err);
	assert_ok(fs_mkdirs(AT_FDCWD, below(p, "objects"), 0700, &err), &err);
	assert_ok(objstore_open(&p->objects, arena_printf(p->a, "dir:%s", below(p, "objects")),
	                        &(struct objstore_env){0}, &err),
	          &err);
	assert_ok(joblogs_open(&p->logs, below(p, "logs"), &err), &err);
	p->ctx = (struct face_ctx){.magic = FACE_CTX_MAGIC,
	                           .ops = &place_ops,
	                           .app = (struct app *)p,
	                           .objects = p->objects,
	                           .logs = p->logs,
	                           .bucket = "stoker"};
	p->principal = (struct principal){
		.magic = PRINCIPAL_MAGIC, .token_id = "t", .name = "runner", .attempt_id = "att1"};
	FMT(p->address, "127.0.0.1:0");
	p->passed = arena_printf(p->a, "passed:%s", below(p, "objects.sock"));
	assert_ok(blobs_open(&p->blobs, below(p, "store"), &err), &err);
	server_start(p);
	p->launch = (struct wire_launch){.attempt_id = "att1",
	                                 .job_id = "job1",
	                                 .job_name = "job-1",
	                                 .project_id = "proj1",
	                                 .project_name = "quick",
	                                 .team_id = "team1",
	                                 .node_count = 1,
	                                 .leader_addr = "127.0.0.1",
	                                 .mirror = p->passed,
	                                 .node_dir = below(p, "node"),
	                                 .node_budget_bytes = (uint64_t)1 << 30,
	                                 .objstore = p->passed,
	                                 .images = "auto",
	                                 .sandbox = "bwrap-overlay",
	                                 .ids_mode = geteuid() == 0 ? WIRE_IDS_IDMAP : NULL,
	                                 .ckpt_prefix = "training_projects/proj1/jobs/job1"};
	p->launch.hide = ARENA_ARRAY(p->a, const char *, 1);
	p->launch.hide[0] = p->dir;
	p->launch.n_hide = 1;
	*state = p;
	return 0;
}

static int place_tear_down(void **state)
{
	struct place *p = *state;
	struct err err = {0};

	if (p->httpd != NULL)
		server_stop(p);
	joblogs_close(p->logs);
	objstore_close(p->objects);
	blobs_close(p->blobs);
	assert_ok(fs_remove_tree(AT_FDCWD, p->dir, &err), &err);
	(void)pthread_mutex_destroy(&p->lock);
	arena_free(p->a);
	free(p);
	return 0;
}

/* The job's specification: `runtime` and `more` are JSON members. */
UNUSED static void spec(struct place *p, const char *commands, const char *runtime,
                        const char *more)
{
	p->launch.spec_json = arena_printf(
		p->a,
		"{\"image\":{},\"compute\":{\"cpu_count\":1,\"memory\":\"512Mi\"},\"runtime\":{"
		"\"start_commands\":[%s]%s%s},\"enable_baseten_workdir\":true%s%s}",
		commands, runtime[0] != '\0' ? "," : "", runtime, more[0] != '\0' ? "," : "", more);
}

static void launch(struct place *p, const char *crash_at)
{
	AUTO_BUF struct buf out = BUF_INIT(10000);
	struct wire_start start = {.server = p->url, .token = TOKEN, .attempt_id = "att1"};
	AUTO_FREE char *self = realpath("/proc/self/exe", NULL);
	const char *argv[] = {self, "runner", p->attempt, NULL};
	AUTO_FD int log_fd = open(below(p, "runs/att1-0/runner.log"),
	                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct proc_fd fds[] = {{log_fd, 1}, {log_fd, 2}};
	struct proc_spec s = {
		.argv = argv, .fds = fds, .n_fds = 2, .new_session = true, .umask_bits = 077};
	struct err err = {0};

	if (crash_at != NULL)
		assert_int_equal(setenv("STOKER_CRASH_AT", crash_at, 1), 0);
	wire_start_write(&start, &out);
	assert_ok(fs_write_atomic(AT_FDCWD, below(p, "runs/att1-0/launch.json"), buf_view(&out),
	                          0600, &err),
	          &err);
	meet(p);
	assert_ok(proc_spawn(&s, &p->runner, &err), &err);
	(void)unsetenv("STOKER_CRASH_AT");
}

/* What the runner itself said. */
static char *own_log(struct place *p)
{
	AUTO_BUF struct buf log = BUF_INIT(1 << 20);
	struct err err = {0};

	if (fs_read(AT_FDCWD, below(p, "runs/att1-0/runner.log"), &log, &err) < 0)
		return arena_cstr(p->a, err.msg);
	return arena_cstr(p->a, buf_cstr(&log));
}

/* The runner's own exit code, or 128 + signal. */
static int join(struct place *p)
{
	struct err err = {0};
	int status = 0;

	if (proc_wait(&p->runner, WAIT_MS, &status, &err) != 0) {
		(void)kill(p->runner.pid, SIGKILL);
		fail_msg("the runner does not end: %s", own_log(p));
	}
	(void)close(p->runner.pidfd);
	meet(p);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* All lines of the job's log as the server has them, each "o text\n". */
static char *log_text(struct place *p)
{
	AUTO_BUF struct buf out = BUF_INIT((size_t)16 << 20);
	struct joblog_line *line = NULL;
	struct err err = {0};
	size_t n = 0;

	assert_ok(joblogs_range(p->logs, p->a, "job1", -1, 0, 0, 100000, false, &line, &n, &err),
	          &err);
	for (size_t i = 0; i < n; i++)
		buf_printf(&out, "%c %s\n", line[i].stream, line[i].text);
	return arena_cstr(p->a, buf_cstr(&out));
}

static void assert_log(struct place *p, const char *words, bool there)
{
	char *text = log_text(p);

	if ((strstr(text, words) != NULL) != there) {
		fail_msg("\"%s\" is %s the log:\n%s\nrunner.log:\n%s", words,
		         there ? "not in" : "in", text, own_log(p));
	}
}

UNUSED static void wait_log(struct place *p, const char *words)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; strstr(log_text(p), words) == NULL;) {
		if (clock_mono_ms() > until)
			assert_log(p, words, true);
		clock_sleep_ms(30);
	}
}

static struct wire_exit exit_of(struct place *p)
{
	struct wire_exit x;
	struct err err = {0};

	assert_true(p->ended);
	assert_ok(wire_exit_parse(&x, p->a, str_of(p->exit_json), &err), &err);
	return x;
}

/* A whole job; its exit record. */
static struct wire_exit run_whole(struct place *p)
{
	int code = 0;

	launch(p, NULL);
	code = join(p);
	if (code != 0 || !p->ended)
		assert_log(p, "(the end was not reported)", true);
	return exit_of(p);
}

#define SECRET "s3cret-value-0123"
#define CKPT "\"checkpointing_config\":{\"enabled\":true}"

UNUSED static void put_env(struct place *p, const char *name, const char *value, bool secret)
{
	struct wire_env *env = ARENA_ARRAY(p->a, struct wire_env, p->launch.n_env + 1);

	if (p->launch.n_env > 0)
		memcpy(env, p->launch.env, p->launch.n_env * sizeof(*env));
	env[p->launch.n_env++] = (struct wire_env){name, value, secret};
	p->launch.env = env;
}

UNUSED static void stop_job(struct place *p, bool now)
{
	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	p->now = now;
	change_desired(p);
}

/* Is there a process whose command line holds these words? */
UNUSED static bool process_with(const char *words)
{
	DIR *d = opendir("/proc");
	bool found = false;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL && !found; e = readdir(d)) {
		AUTO_BUF struct buf body = BUF_INIT((size_t)1 << 20);
		char path[300];
		struct err err = {0};

		FMT(path, "/proc/%s/cmdline", e->d_name);
		if (e->d_name[0] < '0' || e->d_name[0] > '9' ||
		    fs_read(AT_FDCWD, path, &body, &err) < 0)
			continue;
		found = body.n > 0 && memmem(body.p, body.n, words, strlen(words)) != NULL;
	}
	(void)closedir(d);
	return found;
}

UNUSED static void wait_gone(const char *words)
{
	for (int64_t until = clock_mono_ms() + WAIT_MS; process_with(words);) {
		if (clock_mono_ms() > until)
			fail_msg("a process with %s in its arguments is still there", words);
		clock_sleep_ms(20);
	}
}

UNUSED static void put_weights(struct place *p, bool damaged)
{
	struct blobs *blobs = NULL;
	struct manifest m;
	struct digest d, name;
	struct err err = {0};
	char hex[HASH_HEX_CAP];

	assert_ok(blobs_open(&blobs, below(p, "store"), &err), &err);
	manifest_init(&m, p->a);
	assert_ok(blobs_put(blobs, STR_LIT("weights!\n"), &d, &err), &err);
	assert_ok(manifest_add(&m, STR_LIT("sub/model.bin"), 9, &d, &err), &err);
	if (damaged) {
	}
	assert_ok(manifest_finish(&m, &err), &err);
	assert_ok(blobs_put_manifest(blobs, NULL, &m, &name, &err), &err);
	if (damaged)
		assert_int_equal(unlink(blobs_path(blobs, &d, p->a)), 0);
	blobs_close(blobs);
	digest_hex(&name, hex);
	p->launch.weights = ARENA_NEW(p->a, struct wire_weights);
	p->launch.weights[0] = (struct wire_weights){.source = "hf://a/b@main",
	                                             .revision = "c0ffee",
	                                             .mount_location = "/models/b",
	                                             .manifest = arena_cstr(p->a, hex),
	                                             .bytes = 9,
	                                             .files = 1};
	p->launch.n_weights = 1;
}

/* One of these tests in a process of its own, as nobody; what it says goes to <dir>/<name>.out. */
UNUSED static void start_as_user(const char *dir, const char *name, struct proc *out)
{
	char tmp[64], copy[64], said[128];
	const char *argv[] = {"setpriv",
	                      "--reuid=65534",
	                      "--regid=65534",
	                      "--clear-groups",
	                      "env",
	                      tmp,
	                      copy,
	                      name,
	                      NULL};
	struct proc_fd fds[2];
	struct proc_spec s = {.argv = argv, .fds = fds, .n_fds = 2, .umask_bits = -1};
	struct err err = {0};
	AUTO_FD int fd = -1;

	FMT(tmp, "TMPDIR=%s", dir);
	FMT(copy, "%s/test", dir);
	FMT(said, "%s/%s.out", dir, name);
	fd = open(said, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	fds[0] = (struct proc_fd){fd, 1};
	fds[1] = (struct proc_fd){fd, 2};
	assert_ok(proc_spawn(&s, out, &err), &err);
}

UNUSED static void join_as_user(const char *dir, const char *name, struct proc *of)
{
	AUTO_BUF struct buf said = BUF_INIT((size_t)1 << 20);
	char path[128];
	struct err err = {0};
	int status = -1;
	bool over = proc_wait(of, 2 * WAIT_MS, &status, &err) == 0;

	(void)close(of->pidfd);
	FMT(path, "%s/%s.out", dir, name);
	assert_ok(fs_read(AT_FDCWD, path, &said, &err), &err);
	if (!over || status != 0)
		fail_msg("%s: %s, status %d\n%s", name, over ? "over" : "not over", status,
		         buf_cstr(&said));
}

#define AS_USER_MAX 16

/* The same jobs again, by a user without any rights: the namespaces must do. All at once, for
 * mostly they wait. */
UNUSED static void again_as_user(const char *const *names, size_t n)
{
	AUTO_FREE char *self = realpath("/proc/self/exe", NULL);
	char dir[] = "/tmp/test_user.XXXXXX", copy[64];
	const char *cp[] = {"cp", self, copy, NULL};
	AUTO_BUF struct buf words = BUF_INIT((size_t)1 << 20);
	struct proc running[AS_USER_MAX];
	struct err err = {0};
	int copied = 1;

	assert_true(n <= AS_USER_MAX);
	if (geteuid() != 0)
		return; /* all of this was it */
	assert_non_null(mkdtemp(dir));
	FMT(copy, "%s/test", dir); /* the checkout may lie in a home that is closed to others */
	assert_ok(proc_run(cp, (struct str){0}, WAIT_MS, &words, &copied, &err), &err);
	assert_int_equal(copied, 0);
	assert_int_equal(chmod(copy, 0755), 0); /* whatever our umask */
	assert_int_equal(chown(dir, 65534, 65534), 0);
	for (size_t i = 0; i < n; i++)
		start_as_user(dir, names[i], &running[i]);
	for (size_t i = 0; i < n; i++)
		join_as_user(dir, names[i], &running[i]);
	assert_ok(fs_remove_tree(AT_FDCWD, dir, &err), &err);
}

/* cmocka's, and the runner itself when it is started again by name. */
#define RUNNER_MAIN(tests)                                                                         \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		struct err err = {0};                                                              \
                                                                                                   \
		if (argc > 1 && strcmp(argv[1], "runner") == 0) {                                  \
			int r = runner_main(argc - 1, argv + 1, &err);                             \
                                                                                                   \
			if (r < 0)                                                                 \
				(void)fprintf(stderr, "error: %s\n", err.msg);                     \
			return r < 0 ? 1 : r;                                                      \
		}                                                                                  \
		(void)signal(SIGPIPE, SIG_IGN);                                                    \
		if (argc > 1)                                                                      \
			cmocka_set_test_filter(argv[1]);                                           \
		return cmocka_run_group_tests(tests, NULL, NULL);                                  \
	}

#endif
