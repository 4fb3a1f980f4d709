/* resolve.c - GET /v1/resolve: the thing that a person's word means. */
#include "face/handlers.h"
#include "face/show.h"

#define SHOWN_MAX 5  /* candidates in the message; the reply lists all */
#define SPLITS_MAX 8 /* slashes of "JOB/CHECKPOINT" that may divide the two */

/* One of the things that an ambiguous word could mean. */
struct candidate {
	const char *id, *name;
	const char *project, *team, *user, *status; /* NULL: it has none */
	int64_t created_ms;
};

static SHOWN(candidate, NULL, candidate, ROW(candidate, R_TEXT, id), ROW(candidate, R_TEXT, name),
             ROW(candidate, R_TEXT | R_SPARSE, project), ROW(candidate, R_TEXT | R_SPARSE, team),
             ROW(candidate, R_TEXT | R_SPARSE, user),
             ROW_AS(candidate, R_TEXT | R_SPARSE, "current_status", status),
             ROW_AS(candidate, R_TIME | R_NULL, "created_at", created_ms));

/* 409 with the message that people read, and the candidates for programs. */
static int send_ambiguous(struct request *rq, const char *what, const char *word,
                          const struct candidate *c, size_t n, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	AUTO_BUF struct buf list = BUF_INIT(ERR_MSG_MAX / 2);
	struct err why = {0};

	for (size_t i = 0; i < MIN(n, (size_t)SHOWN_MAX); i++) {
		buf_printf(&list, "%s%s (%.60s%s%.60s", i > 0 ? ", " : "", c[i].id,
		           c[i].team != NULL ? c[i].team : "", c[i].team != NULL ? "/" : "",
		           c[i].project != NULL ? c[i].project : c[i].name);
		if (c[i].status != NULL)
			buf_printf(&list, ", %s", c[i].status + sizeof("TRAINING_JOB_") - 1);
		buf_putc(&list, ')');
	}
	err_set(&why, ERR_NAME_AMBIGUOUS, "%s \"%.100s\" is ambiguous: %s%s. Use %s", what, word,
	        buf_cstr(&list), n > SHOWN_MAX ? ", ..." : "",
	        strcmp(what, "project") == 0 ? "TEAM/PROJECT or an id" : "an id");
	answer_open(&an);
	js_kv(&an.js, "message", why.msg);
	js_kv_err(&an.js, "error", &why);
	js_key(&an.js, "candidates");
	record_write_list(&candidate_record, c, n, &an.js);
	return answer_send(rq, &an, 409, err);
}

static int send_jobs(struct request *rq, const char *word, const struct model_job *j, size_t n,
                     struct err *err)
{
	struct candidate *c = ARENA_ARRAY(rq->arena, struct candidate, n);

	for (size_t i = 0; i < n; i++)
		c[i] = (struct candidate){.id = j[i].id,
		                          .name = j[i].name,
		                          .project = j[i].project_name,
		                          .team = j[i].team_name,
		                          .user = j[i].user,
		                          .status = job_state_name(j[i].core.state),
		                          .created_ms = j[i].created_ms};
	return send_ambiguous(rq, "job", word, c, n, err);
}

/* The jobs that a word means. Of several that carry it as their name, one is taken if the caller
 * wants that: then n is 1 and `of` is how many there are. The start of an id is never guessed. */
struct meant {
	struct model_job *job;
	size_t n;
	uint64_t of; /* 0: none was taken */
	bool newest; /* it was taken as the newest, not as the only active one */
};

static int find_jobs(struct request *rq, const char *word, struct meant *m, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *several = query_text(rq, "several");
	bool newest = several != NULL && strcmp(several, "newest") == 0;
	struct model_job *one = NULL;
	uint64_t of = 0;

	*m = (struct meant){0};
	if (several != NULL && !newest && strcmp(several, "active") != 0)
		return err_set(err, ERR_INVALID,
		               "parameter several: \"%.40s\" is not active or newest", several);
	if (ctx->ops->resolve->job(face_ask(rq), word, &m->job, &m->n, err) < 0)
		return -1;
	if (m->n < 2 || several == NULL || strcmp(m->job->name, word) != 0)
		return 0;
	if (ctx->ops->resolve->pick(face_ask(rq), word, &newest, &one, &of, err) < 0)
		return -1;
	if (one != NULL)
		*m = (struct meant){one, 1, of, newest};
	return 0;
}

static void show_meant(struct js *js, struct arena *a, const struct meant *m)
{
	js_key(js, "training_job");
	show_job(js, a, m->job, false);
	if (m->of == 0)
		return;
	js_key(js, "taken");
	js_open(js);
	js_kv_u64(js, "jobs", m->of);
	js_kv(js, "as", m->newest ? "newest" : "active");
	js_close(js);
}

static int resolve_job(struct request *rq, const char *word, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};
	struct meant m;

	if (find_jobs(rq, word, &m, err) < 0)
		return -1;
	if (m.n > 1)
		return send_jobs(rq, word, m.job, m.n, err);
	answer_open(&an);
	show_meant(&an.js, rq->arena, &m);
	return answer_send(rq, &an, 200, err);
}

static int resolve_project(struct request *rq, const char *word, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_project *p = NULL;
	struct candidate *c;
	size_t n = 0;

	if (ctx->ops->resolve->project(face_ask(rq), word, &p, &n, err) < 0)
		return -1;
	if (n > 1) {
		c = ARENA_ARRAY(rq->arena, struct candidate, n);
		for (size_t i = 0; i < n; i++)
			c[i] = (struct candidate){.id = p[i].id,
			                          .name = p[i].name,
			                          .team = p[i].team_name,
			                          .created_ms = p[i].created_ms};
		return send_ambiguous(rq, "project", word, c, n, err);
	}
	answer_open(&an);
	js_key(&an.js, "training_project");
	show_project(&an.js, rq->arena, p, NULL);
	return answer_send(rq, &an, 200, err);
}

static int resolve_team(struct request *rq, const char *word, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_team *t = NULL;
	struct candidate *c;
	size_t n = 0;

	if (ctx->ops->resolve->team(face_ask(rq), word, &t, &n, err) < 0)
		return -1;
	if (n > 1) {
		c = ARENA_ARRAY(rq->arena, struct candidate, n);
		for (size_t i = 0; i < n; i++)
			c[i] = (struct candidate){
				.id = t[i].id, .name = t[i].name, .created_ms = t[i].created_ms};
		return send_ambiguous(rq, "team", word, c, n, err);
	}
	return answer_one(rq, "team", &team_record, t, err);
}

/* The checkpoint of this name; "latest" is the newest that is complete. NULL: there is none. */
static int checkpoint_of(struct request *rq, const struct model_job *j, const char *name,
                         const struct model_checkpoint **out, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	bool latest = strcmp(name, "latest") == 0, all = !latest;
	struct model_checkpoint *c = NULL;
	size_t n = 0;

	*out = NULL;
	if (ctx->ops->checkpoints->list(face_ask(rq), j->id, all, &c, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) { /* by creation: the last one counts */
		if (latest ? c[i].state == CKPT_COMPLETE : strcmp(c[i].name, name) == 0)
			*out = &c[i];
	}
	return 0;
}

struct ck_words {
	const char *job, *name;
};

/* Names of jobs and of checkpoints may hold slashes: "a/b/c" is b/c of job a or c of job a/b. */
static size_t split(struct request *rq, const char *word, struct ck_words out[SPLITS_MAX])
{
	const char *job = query_text(rq, "job"), *slash = strchr(word, '/');
	size_t n = 0;

	if (job != NULL || slash == NULL) {
		out[0] = (struct ck_words){job != NULL ? job : "@", word};
		return 1;
	}
	for (; slash != NULL && n < SPLITS_MAX; slash = strchr(slash + 1, '/'))
		out[n++] = (struct ck_words){
			arena_strz(rq->arena, str_n(word, (size_t)(slash - word))), slash + 1};
	return n;
}

static int send_checkpoint(struct request *rq, const struct meant *m,
                           const struct model_checkpoint *c, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, "checkpoint");
	show_checkpoint(&an.js, rq->arena, c);
	show_meant(&an.js, rq->arena, m);
	return answer_send(rq, &an, 200, err);
}

static int resolve_checkpoint(struct request *rq, const char *word, struct err *err)
{
	struct ck_words w[SPLITS_MAX];
	const struct model_job *seen = NULL; /* the job that was there, without the checkpoint */
	const char *name = NULL;
	size_t n = split(rq, word, w);

	for (size_t i = 0; i < n; i++) {
		const struct model_checkpoint *c = NULL;
		struct meant m;

		err_clear(err);
		if (find_jobs(rq, w[i].job, &m, err) < 0) {
			if (err->code != ERR_NOT_FOUND)
				return -1;
			continue;
		}
		if (m.n > 1)
			return send_jobs(rq, w[i].job, m.job, m.n, err);
		if (checkpoint_of(rq, m.job, w[i].name, &c, err) < 0)
			return -1;
		if (c != NULL)
			return send_checkpoint(rq, &m, c, err);
		seen = m.job;
		name = w[i].name;
	}
	if (seen == NULL)
		return -1; /* there is no such job */
	err_clear(err);
	if (strcmp(name, "latest") == 0)
		return err_set(
			err, ERR_CHECKPOINT_NOT_FOUND,
			"job %s has no complete checkpoint: `stoker checkpoints ls %s --all` "
			"lists incomplete ones",
			seen->id, seen->id);
	return err_set(err, ERR_CHECKPOINT_NOT_FOUND,
	               "job %s has no checkpoint \"%.100s\": `stoker checkpoints ls %s --all` "
	               "lists its checkpoints",
	               seen->id, name, seen->id);
}

int resolve_word(struct request *rq, struct err *err)
{
	static const struct {
		const char *what;
		int (*fn)(struct request *rq, const char *word, struct err *err);
	} kinds[] = {{"job", resolve_job},
	             {"project", resolve_project},
	             {"team", resolve_team},
	             {"checkpoint", resolve_checkpoint}};
	const char *what = query_text(rq, "what"), *word = query_text(rq, "word");

	if (what == NULL || word == NULL || word[0] == '\0')
		return err_set(err, ERR_INVALID, "parameters what and word are required");
	for (size_t i = 0; i < COUNT(kinds); i++) {
		if (strcmp(kinds[i].what, what) == 0)
			return kinds[i].fn(rq, word, err);
	}
	return err_set(err, ERR_INVALID,
	               "parameter what: \"%.40s\" is not job, project, team or checkpoint", what);
}
