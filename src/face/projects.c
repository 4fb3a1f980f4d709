/* projects.c - projects: listed, made by name, shown, removed. */
#include "face/handlers.h"
#include "face/show.h"

static int show_with_latest(struct request *rq, struct js *js, const struct model_project *p,
                            struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_job latest = {0};
	bool has = p->latest_job_id != NULL;

	if (has && ctx->ops->jobs->get(face_ask(rq), p->id, p->latest_job_id, &latest, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err); /* deleted since */
		has = false;
	}
	show_project(js, rq->arena, p, has ? &latest : NULL);
	return 0;
}

static int send_project(struct request *rq, const struct model_project *p, struct err *err)
{
	AUTO_ANSWER struct answer an = {0};

	answer_open(&an);
	js_key(&an.js, "training_project");
	if (show_with_latest(rq, &an.js, p, err) < 0)
		return -1;
	return answer_send(rq, &an, 200, err);
}

int projects_list(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	AUTO_ANSWER struct answer an = {0};
	struct model_project *p;
	size_t n;

	if (ctx->ops->projects->list(face_ask(rq), &p, &n, err) < 0)
		return -1;
	answer_open(&an);
	js_key(&an.js, "training_projects");
	js_list(&an.js);
	for (size_t i = 0; i < n; i++)
		if (show_with_latest(rq, &an.js, &p[i], err) < 0)
			return -1;
	js_end(&an.js);
	return answer_send(rq, &an, 200, err);
}

/* The name of a team to its id; the default of the caller when there is no name. */
static int team_by_name(struct request *rq, const char *name, const char **id, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_team *t;
	size_t n;

	*id = NULL;
	if (name == NULL)
		return 0;
	if (ctx->ops->teams->list(face_ask(rq), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(t[i].name, name) == 0) {
			*id = t[i].id;
			return 0;
		}
	}
	return err_set(err, ERR_TEAM_NOT_FOUND, "no team \"%.60s\"", name);
}

static int is_team(struct request *rq, const char *id, struct str name, bool *yes, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_team *t;
	size_t n;

	*yes = false;
	if (ctx->ops->teams->list(face_ask(rq), &t, &n, err) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		*yes = *yes || (strcmp(t[i].id, id) == 0 && str_eq(name, t[i].name));
	return 0;
}

/* Among what "a/b" may mean for this team: the project that has this very name since it was
 * allowed, else project b if the team is a. */
static int name_in_team(struct request *rq, const struct model_project *p, size_t n,
                        const char *team_id, const char **name, struct err *err)
{
	struct str rest = str_of(*name), team;
	bool same;

	for (size_t i = 0; i < n; i++)
		if (strcmp(p[i].team_id, team_id) == 0 && strcmp(p[i].name, *name) == 0)
			return 0;
	(void)str_cut(&rest, '/', &team);
	if (is_team(rq, team_id, team, &same, err) < 0)
		return -1;
	if (same)
		*name = arena_strz(rq->arena, rest);
	return 0;
}

/* TEAM/PROJECT, as -p of the command line takes it: a project that there is, else a new one of that
 * team. */
static int split_name(struct request *rq, const char **name, const char **team_id, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct str rest = str_of(*name), team;
	struct model_project *p = NULL;
	size_t n = 0;

	if (strchr(*name, '/') == NULL || (*name)[0] == '/')
		return 0;
	(void)str_cut(&rest, '/', &team);
	if (ctx->ops->resolve->project(face_ask(rq), *name, &p, &n, err) < 0) {
		if (err->id != ERR_PROJECT_NOT_FOUND)
			return -1;
		err_clear(err);
		n = 0;
	}
	if (*team_id != NULL)
		return name_in_team(rq, p, n, *team_id, name, err);
	if (n > 1)
		return err_set(
			err, ERR_NAME_AMBIGUOUS,
			"project \"%.60s\" is ambiguous: %s of team %.60s, %s of team %.60s; "
			"name the team, or use an id",
			*name, p[0].id, p[0].team_name, p[1].id, p[1].team_name);
	if (n == 1) {
		*name = p->name;
		*team_id = p->team_id;
		return 0;
	}
	*name = arena_strz(rq->arena, rest);
	return team_by_name(rq, arena_strz(rq->arena, team), team_id, err);
}

int handler_project_named(struct request *rq, const struct doc *body, const char **name,
                          const char **team_id, struct err *err)
{
	const struct doc *d = doc_get(body, "training_project");
	const char *team_name = NULL;

	if (!doc_is(d, DOC_MAP))
		return err_set(err, ERR_INVALID, "training_project: expected an object");
	if (body_text(d, "name", true, name, err) < 0 ||
	    body_text(d, "team_name", false, &team_name, err) < 0)
		return -1;
	if (!spec_name_ok(str_of(*name)))
		return err_set(err, ERR_INVALID,
		               "training_project.name: \"%.60s\" is not a name: " SPEC_NAME_RULE,
		               *name);
	if (*team_id == NULL && team_by_name(rq, team_name, team_id, err) < 0)
		return -1;
	return split_name(rq, name, team_id, err);
}

static int put(struct request *rq, const char *team_id, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *name = NULL;
	const struct doc *body;
	struct model_project p = {0};

	if (body_read(rq, false, &body, err) < 0 ||
	    handler_project_named(rq, body, &name, &team_id, err) < 0)
		return -1;
	if (ctx->ops->projects->upsert(face_ask(rq), team_id, name, &p, err) < 0)
		return -1;
	return send_project(rq, &p, err);
}

int project_put(struct request *rq, struct err *err)
{
	return put(rq, NULL, err);
}

int project_put_in_team(struct request *rq, struct err *err)
{
	return put(rq, arg_text(rq, 0), err);
}

int project_show(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	struct model_project p = {0};

	if (ctx->ops->projects->get(face_ask(rq), arg_text(rq, 0), &p, err) < 0)
		return -1;
	return send_project(rq, &p, err);
}

int project_remove(struct request *rq, struct err *err)
{
	const struct face_ctx *ctx = face_ctx(rq);
	const char *id = arg_text(rq, 0);

	if (ctx->ops->projects->remove(face_ask(rq), id, err) < 0)
		return -1;
	return answer_deleted(rq, "id", id, err);
}
