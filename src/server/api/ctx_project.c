/* ctx_project.c - operations on projects and uploads. */
#include "server/api/ctx.h"
#include "server/control/queue.h"

int ctx_projects(void *of, const struct principal *principal, struct arena *a,
                 struct model_project **out, size_t *n, struct err *err)
{
	struct app *app = of;

	return meta_projects(app->meta, a, principal->team_id, out, n, err);
}

int ctx_project_get(void *of, const struct principal *principal, struct arena *a, const char *id,
                    struct model_project *out, struct err *err)
{
	return ctx_project(of, principal, a, id, out, err);
}

int ctx_project_name(struct app *app, struct arena *a, const char *team_id, const char *name,
                     struct err *err)
{
	const char *slash = name != NULL ? strchr(name, '/') : NULL;
	struct model_project old = {0};

	if (name == NULL || !spec_name_ok(str_of(name)))
		return err_set(err, ERR_INVALID,
		               "\"%.60s\" is not a valid project name: " SPEC_NAME_RULE,
		               name != NULL ? name : "");
	if (slash == NULL || meta_project_by_name(app->meta, a, team_id, name, &old, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return err_set(
		err, ERR_INVALID,
		"\"%.60s\": a project's name has no /, which stands between a team and its "
		"project. To name the team, set `team` in the job file or `team_name` in the "
		"API",
		name);
}

int ctx_project_upsert(void *of, const struct principal *principal, struct arena *a,
                       const char *team_id, const char *name, struct model_project *out,
                       struct err *err)
{
	struct app *app = of;
	int64_t now = clock_wall_ms();
	struct model_project p = {.name = name,
	                          .created_ms = now,
	                          .updated_ms = now,
	                          .cache_quota_bytes = app->set.cache_quota};

	if (ctx_need(principal, ROLE_MEMBER, err) < 0 ||
	    ctx_team(app, principal, a, team_id, &p.team_id, err) < 0 ||
	    ctx_project_name(app, a, p.team_id, name, err) < 0)
		return -1;
	p.id = app_id(a, MODEL_ID_LEN);
	return meta_project_upsert(app->meta, a, &p, out, err);
}

int ctx_project_delete(void *of, const struct principal *principal, const char *id, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct app *app = of;
	struct model_project p = {0};

	if (ctx_need(principal, ROLE_MEMBER, err) < 0 ||
	    ctx_project(app, principal, a, id, &p, err) < 0 ||
	    meta_project_del(app->meta, id, err) < 0)
		return -1;
	log_info("deleted: project=%s name=%s by=%s", id, p.name, principal->name);
	loop_kick(app->janitor);
	loop_kick(app->reconcile);
	return 0;
}

static struct str about_upload(struct arena *a, const char *access_key)
{
	return str_of(arena_printf(a, "upload/%s", access_key));
}

static char *random_hex(struct arena *a, size_t bytes)
{
	uint8_t raw[64];
	char *hex = arena_alloc(a, bytes * 2 + 1);

	assert(bytes <= sizeof(raw));
	seal_random(raw, bytes);
	hex_encode(raw, bytes, hex);
	return hex;
}

/* An upload of the team whose object is this content, and will stay it: its credentials are over,
 * and a job of the team names it. */
static int same_upload(struct app *app, struct arena *a, const char *team_id, const char *sha256,
                       struct model_upload *out, struct err *err)
{
	struct objstore_info info = {0};

	if (sha256 == NULL)
		return 0;
	/* Held before it is looked at: the job that names it may be deleted before the next one is
	 * pushed. */
	if (meta_upload_same(app->meta, a, team_id, sha256, clock_wall_ms(), out, err) == 0 &&
	    meta_upload_reused(app->meta, out->key, clock_wall_ms(), err) == 0 &&
	    objstore_stat(app->objects, out->key, &info, err) == 0) {
		out->there = true;
		return 0;
	}
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	return 0;
}

int ctx_upload_stored(void *of, const char *key, const char *sha256, struct err *err)
{
	struct app *app = of;

	return meta_upload_stored(app->meta, key, sha256, err);
}

int ctx_upload_create(void *of, const struct principal *principal, struct arena *a,
                      const char *team_id, const char *sha256, struct model_upload *out,
                      struct err *err)
{
	AUTO_BUF struct buf sealed = BUF_INIT(4096);
	struct app *app = of;
	int64_t now = clock_wall_ms();
	struct model_upload u = {.created_ms = now, .expires_ms = now + APP_UPLOAD_S * 1000LL};

	if (ctx_need(principal, ROLE_MEMBER, err) < 0 || app_has_room(app, err) < 0 ||
	    ctx_team(app, principal, a, team_id, &u.team_id, err) < 0 ||
	    same_upload(app, a, u.team_id, sha256, out, err) < 0)
		return -1;
	if (out->there)
		return 0;
	u.access_key = arena_printf(a, "STKU%s", random_hex(a, 8));
	u.secret_key = random_hex(a, 20);
	u.session_token = random_hex(a, 32);
	u.key = arena_printf(a, "uploads/%s.tgz", app_id(a, 20));
	seal_close(&app->master, about_upload(a, u.access_key),
	           str_of(arena_printf(a, "%s\n%s", u.secret_key, u.session_token)), &sealed);
	if (meta_upload_add(app->meta, &u, buf_view(&sealed), err) < 0)
		return -1;
	*out = u;
	return 0;
}

int ctx_upload_find(void *of, struct arena *a, struct str access_key, struct model_upload *out,
                    struct err *err)
{
	AUTO_BUF struct buf plain = BUF_INIT(4096);
	struct app *app = of;
	const char *key = arena_strz(a, access_key);
	struct str sealed = {0}, rest, secret;

	if (meta_upload(app->meta, a, key, out, &sealed, err) < 0 ||
	    seal_open(&app->master, about_upload(a, key), sealed, &plain, err) < 0)
		return -1;
	rest = buf_view(&plain);
	(void)str_cut(&rest, '\n', &secret); /* both halves were written by us */
	out->secret_key = arena_strz(a, secret);
	out->session_token = arena_strz(a, rest);
	return 0;
}

int ctx_url_key(void *of, struct arena *a UNUSED, const char **access_key, const char **secret_key,
                struct err *err UNUSED)
{
	struct app *app = of;

	*access_key = app->url_access_key;
	*secret_key = app->url_secret_key;
	return 0;
}
