/* secrets.c - opening and checking secrets; and the operations on them. */
#include "server/api/secrets.h"

#include "server/data/hub.h"
#include "server/api/ctx.h"
#include "server/control/webhook.h"

#include <ctype.h>

#define SECRET_NAME_MAX 200

char *secret_key(struct arena *a, const char *name)
{
	char *key = arena_cstr(a, name);

	for (char *p = key; *p != '\0'; p++) {
		if (!isalnum((unsigned char)*p))
			*p = '-';
	}
	return key;
}

/* Binds the encrypted bytes to their row: a copy in another row cannot be decrypted. */
static struct str about(struct arena *a, const char *team_id, const char *key, const char *version)
{
	return str_of(arena_printf(a, "%s/%s/%s", team_id, key, version));
}

static int open_value(struct app *app, const char *team_id, const char *name, struct buf *out,
                      struct meta_secret *s, struct arena *a, struct err *err)
{
	const char *key = secret_key(a, name);

	if (meta_secret(app->meta, a, team_id, key, s, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return err_set(err, ERR_SECRET_NOT_FOUND,
		               "secret \"%s\" is not set: `stoker secrets set %s`", name, name);
	}
	if (seal_open(&app->master, about(a, team_id, key, s->version), s->sealed, out, err) < 0)
		return err_wrap(err, "secret \"%s\"", name);
	return 0;
}

int secret_open(struct app *app, const char *team_id, const char *name, struct buf *out,
                struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct meta_secret s = {0};
	struct err ignored = {0};

	if (open_value(app, team_id, name, out, &s, a, err) < 0)
		return -1;
	/* Only shown to people: failing to note it is no reason to fail. */
	if (meta_secret_used(app->meta, s.row.id, clock_wall_ms(), &ignored) < 0)
		log_warn("secret: %s", ignored.msg);
	return 0;
}

/* Every secret that a specification names; NULL where it names none. */
static int each_name(const struct job_spec *spec,
                     int (*fn)(void *arg, const char *name, struct err *err), void *arg,
                     struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < spec->n_env; i++)
		r = fn(arg, spec->env[i].secret, err);
	for (size_t i = 0; r == 0 && i < spec->n_weights; i++)
		r = fn(arg, spec->weights[i].secret, err);
	for (size_t i = 0; r == 0 && i < spec->n_notify; i++)
		r = fn(arg, spec->notify[i].webhook, err);
	if (r == 0)
		r = fn(arg, spec->registry_secret, err);
	if (r == 0)
		r = fn(arg, spec->registry_secret2, err);
	return r;
}

struct missing {
	unsigned magic;
#define MISSING_MAGIC 0x564d4953U
	struct app *app;
	const char *team_id;
	struct arena *a;
	struct map *seen;
	struct buf list;
	size_t n;
};

static int look(void *arg, const char *name, struct err *err)
{
	struct missing *m = FROM_VOID(struct missing, arg, MISSING_MAGIC);
	struct meta_secret s = {0};
	char *key;

	if (name == NULL)
		return 0;
	key = secret_key(m->a, name);
	if (map_set(m->seen, str_of(key), key) != NULL)
		return 0;
	if (meta_secret(m->app->meta, m->a, m->team_id, key, &s, err) == 0)
		return 0;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	err_clear(err);
	buf_printf(&m->list, "%s%s", m->n++ > 0 ? ", " : "", name);
	return 0;
}

static int check_webhooks(struct app *app, struct arena *a, const char *team_id,
                          const struct job_spec *spec, struct err *err)
{
	for (size_t i = 0; i < spec->n_notify; i++) {
		struct webhook w;
		int r = webhook_open(app, a, team_id, spec->notify[i].webhook, &w, err);

		webhook_done(&w);
		if (r < 0)
			return err_wrap(err, "notify[%zu].webhook", i);
	}
	return 0;
}

int secrets_check(struct app *app, const char *team_id, const struct job_spec *spec,
                  struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	AUTO_MAP struct map *seen = map_new();
	struct missing m = {MISSING_MAGIC, app, team_id, a, seen, BUF_INIT(1000), 0};
	int r = each_name(spec, look, &m, err);

	if (r == 0 && m.n > 0)
		r = err_set(err, ERR_SECRET_NOT_SET,
		            "the team has no secret%s %s%s: `stoker secrets set NAME` creates one",
		            m.n == 1 ? "" : "s", buf_cstr(&m.list), m.list.full ? ", ..." : "");
	buf_done(&m.list);
	return r < 0 ? -1 : check_webhooks(app, a, team_id, spec, err);
}

struct values {
	unsigned magic;
#define VALUES_MAGIC 0x5656414cU
	struct app *app;
	const char *team_id;
	struct redact *r;
};

static int add_value(void *arg, const char *name, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct buf value = BUF_INIT(SEAL_VALUE_MAX);
	struct values *v = FROM_VOID(struct values, arg, VALUES_MAGIC);
	struct meta_secret s = {0};
	int r = 0;

	if (name == NULL)
		return 0;
	r = open_value(v->app, v->team_id, name, &value, &s, a, err);
	if (r < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		r = 0; /* removed since: there is no value to look for */
	} else if (r == 0) {
		r = redact_add(v->r, buf_view(&value), err);
	}
	seal_wipe_buf(&value);
	return r;
}

int secrets_redact(struct app *app, const char *team_id, const struct job_spec *spec,
                   struct redact *r, struct err *err)
{
	struct values v = {VALUES_MAGIC, app, team_id, r};

	return each_name(spec, add_value, &v, err);
}

static int list_secrets(const struct ask *ask, const char *team_id, struct model_secret **out,
                        size_t *n, struct err *err)
{
	const char *team = NULL;

	if (ctx_team(ask, team_id, &team, err) < 0)
		return -1;
	return meta_secrets(ask->app->meta, ask->a, team, out, n, err);
}

static void tell_users(const struct ask *ask, const char *team, const char *name)
{
	if (strcmp(secret_key(ask->a, name), secret_key(ask->a, HUB_SECRET)) == 0)
		hub_secret_changed(ask->app, team);
}

static int set_secret(const struct ask *ask, const char *team_id, const char *name,
                      struct str value, struct model_secret *out, struct err *err)
{
	struct app *app = ask->app;
	AUTO_BUF struct buf sealed = BUF_INIT(SEAL_VALUE_MAX + 4096);
	int64_t now = clock_wall_ms();
	struct meta_secret s = {0};
	const char *team = NULL;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_team(ask, team_id, &team, err) < 0)
		return -1;
	if (name == NULL || strlen(name) > SECRET_NAME_MAX || !spec_name_ok(str_of(name)))
		return err_set(err, ERR_INVALID, "\"%.60s\" is not a valid secret name",
		               name != NULL ? name : "");
	if (value.n == 0)
		return err_set(err, ERR_INVALID, "secret \"%s\": the value is empty", name);
	if (value.n > SEAL_VALUE_MAX)
		return err_set(err, ERR_TOO_BIG, "secret \"%s\": longer than 1 MiB", name);
	s.row = (struct model_secret){.id = app_id(ask->a, MODEL_ID_LEN),
	                              .name = name,
	                              .team_id = team,
	                              .created_ms = now,
	                              .updated_ms = now};
	s.key = secret_key(ask->a, name);
	s.version = app_id(ask->a, 16);
	seal_close(&app->master, about(ask->a, team, s.key, s.version), value, &sealed);
	if (buf_check(&sealed, "sealed secret", err) < 0)
		return -1;
	s.sealed = buf_view(&sealed);
	if (meta_secret_put(app->meta, ask->a, &s, out, err) < 0)
		return -1;
	tell_users(ask, team, name);
	log_info("secret set: name=%s team=%s by=%s", name, team, ask->principal->name);
	return 0;
}

static int remove_secret(const struct ask *ask, const char *team_id, const char *name,
                         struct err *err)
{
	const char *team = NULL;

	if (ctx_need(ask, ROLE_MEMBER, err) < 0 || ctx_team(ask, team_id, &team, err) < 0)
		return -1;
	if (meta_secret_del(ask->app->meta, team, secret_key(ask->a, name), err) < 0)
		return -1;
	log_info("secret deleted: name=%s team=%s by=%s", name, team, ask->principal->name);
	tell_users(ask, team, name);
	return 0;
}

const struct secret_ops secret_ops = {
	.list = list_secrets,
	.set = set_secret,
	.remove = remove_secret,
};
