/* teams.c - operations on teams. */
#include "server/api/auth.h"
#include "server/api/ctx.h"

#define TEAMS_MAX 1000

static int list_teams(const struct ask *ask, struct model_team **out, size_t *n, struct err *err)
{
	struct app *app = ask->app;

	if (ask->principal->team_id == NULL)
		return meta_teams(app->meta, ask->a, out, n, err);
	*out = ARENA_NEW(ask->a, struct model_team);
	*n = 1;
	return meta_team(app->meta, ask->a, ask->principal->team_id, *out, err);
}

static int create_team(const struct ask *ask, const char *name, struct model_team *out,
                       struct err *err)
{
	struct app *app = ask->app;
	struct model_team *all = NULL;
	size_t n = 0;

	if (ctx_need_all(ask, err) < 0 || meta_teams(app->meta, ask->a, &all, &n, err) < 0)
		return -1;
	if (name == NULL || !spec_name_ok(str_of(name)))
		return err_set(err, ERR_INVALID,
		               "\"%.60s\" is not a valid team name: " SPEC_NAME_RULE,
		               name ? name : "");
	if (strchr(name, '/') != NULL)
		return err_set(err, ERR_INVALID,
		               "\"%.60s\": a team's name has no /, which stands between a team and "
		               "its project",
		               name);
	if (n >= TEAMS_MAX)
		return err_set(err, ERR_QUOTA, "there are %d teams already, which is the limit",
		               TEAMS_MAX);
	*out = (struct model_team){
		.id = app_id(ask->a, MODEL_ID_LEN), .name = name, .created_ms = clock_wall_ms()};
	return meta_team_add(app->meta, out, err);
}

static int remove_team(const struct ask *ask, const char *id, struct err *err)
{
	struct app *app = ask->app;

	if (ctx_need_all(ask, err) < 0 || meta_team_del(app->meta, id, err) < 0)
		return -1;
	auth_forget(app);
	log_info("deleted: team=%s by=%s", id, ask->principal->name);
	loop_kick(app->janitor);
	return 0;
}

const struct team_ops team_ops = {
	.list = list_teams,
	.create = create_team,
	.remove = remove_team,
};
