/*
 * uploads.c - where clients put code: credentials of the S3 face for one new key, or a signed
 * request by which one archive goes straight to the object store.
 */
#include "server/api/ctx.h"
#include "server/api/direct.h"

#define WITH_CREDENTIALS "STKU" /* how access keys begin */
#define SIGNED "STKD"

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

static int upload_stored(struct app *app, const char *key, const char *sha256, struct err *err)
{
	return meta_upload_stored(app->meta, key, sha256, err);
}

static int begin(const struct ask *ask, const char *team_id, const char *sha256, const char **team,
                 struct model_upload *out, struct err *err)
{
	struct app *app = ask->app;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || app_has_room(app, err) < 0 ||
	    ctx_team(ask, team_id, team, err) < 0)
		return -1;
	return same_upload(app, ask->a, *team, sha256, out, err);
}

/* A new key of this team, which can be written to for so long. */
static int add(struct app *app, struct arena *a, const char *kind, const char *team, int64_t span_s,
               struct model_upload *out, struct err *err)
{
	AUTO_BUF struct buf sealed = BUF_INIT(4096);
	int64_t now = clock_wall_ms();
	struct model_upload u = {
		.team_id = team, .created_ms = now, .expires_ms = now + span_s * 1000};

	u.access_key = arena_printf(a, "%s%s", kind, random_hex(a, 8));
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

static int create_upload(const struct ask *ask, const char *team_id, const char *sha256,
                         struct model_upload *out, struct err *err)
{
	const char *team = NULL;

	if (begin(ask, team_id, sha256, &team, out, err) < 0)
		return -1;
	return out->there ? 0
	                  : add(ask->app, ask->a, WITH_CREDENTIALS, team, APP_UPLOAD_S, out, err);
}

/* Nobody has the credentials of such a key, so it gets no other bytes than those that are signed:
 * what it hashes to is known before they are there, and stays so while the signature is good. */
static int sign_upload(const struct ask *ask, const char *team_id, const char *sha256,
                       const char *content, struct model_upload *out, struct objstore_put *put,
                       struct err *err)
{
	struct app *app = ask->app;
	const char *team = NULL;

	if (begin(ask, team_id, sha256, &team, out, err) < 0)
		return -1;
	if (out->there)
		return 0;
	if (direct_may(app, err) < 0 || add(app, ask->a, SIGNED, team, DIRECT_S, out, err) < 0 ||
	    objstore_sign_put(app->objects, ask->a, out->key, content, put, err) < 0)
		return -1;
	return meta_upload_stored(app->meta, out->key, content, err);
}

static int find_upload(struct app *app, struct arena *a, struct str access_key,
                       struct model_upload *out, struct err *err)
{
	AUTO_BUF struct buf plain = BUF_INIT(4096);
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

const struct upload_ops upload_ops = {
	.create = create_upload,
	.sign = sign_upload,
	.stored = upload_stored,
	.find = find_upload,
};
