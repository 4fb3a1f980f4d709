/* objects.c - opens the object store, and makes sure that it belongs to this database. */
#include "server/start/objects.h"
#include "base/json.h"
#include "store/common/s3_keys.h"

#include <signal.h>

#define CREDENTIALS_MAX ((size_t)64 << 10)
#define MARK_MAX ((size_t)64 << 10)
#define KEPT "objects" /* in the table of single values: "ID URL" */
#define NEW "new:"     /* before an id whose mark may not be stored yet */
#define IN_DATA "-"    /* for the URL: in the data folder */
#define ELSEWHERE "s3:"

/* ---- keys ---------------------------------------------------------------------------- */

/* What is wrong with it is said without quoting it. */
static int read_file(struct app *app, struct arena *a, struct sigv4_key *out, struct err *err)
{
	const char *path = app->set.objects_credentials;
	AUTO_BUF struct buf text = BUF_INIT(CREDENTIALS_MAX);
	struct stat st;
	bool json;
	int r = 0;

	if (stat(path, &st) < 0)
		return err_errno(err, errno, "--objects-credentials %s", path);
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0 ||
	    (st.st_uid != 0 && st.st_uid != geteuid()))
		return err_set(err, ERR_DENIED,
		               "--objects-credentials %s: other users can read it, or it is no "
		               "file: it should belong to the user of the server; `chmod 600` it",
		               path);
	if (fs_read(AT_FDCWD, path, &text, err) < 0)
		return err_wrap(err, "--objects-credentials");
	json = s3_keys_read(a, arena_str(a, buf_view(&text)), out);
	if (out->access_key == NULL || out->secret_key == NULL)
		r = err_set(err, ERR_INVALID,
		            "--objects-credentials %s: expected a JSON object with "
		            "aws_access_key_id and aws_secret_access_key%s",
		            path, json ? "" : "; the file is not JSON");
	seal_wipe_buf(&text);
	return r;
}

/* Taken out of the environment, which the server's children inherit. */
static const char *take(struct arena *a, const char *name)
{
	char *value = getenv(name);
	const char *kept = value != NULL && value[0] != '\0' ? arena_cstr(a, value) : NULL;

	if (kept != NULL)
		seal_wipe(value, strlen(value));
	(void)unsetenv(name);
	return kept;
}

static int read_keys(struct app *app, struct arena *a, struct sigv4_key *out, struct err *err)
{
	struct sigv4_key env = {.access_key = take(a, "AWS_ACCESS_KEY_ID"),
	                        .secret_key = take(a, "AWS_SECRET_ACCESS_KEY"),
	                        .session_token = take(a, "AWS_SESSION_TOKEN"),
	                        .region = take(a, "AWS_REGION")};

	if (env.region == NULL)
		env.region = take(a, "AWS_DEFAULT_REGION");
	*out = env;
	if (app->set.objects_credentials != NULL && read_file(app, a, out, err) < 0)
		return -1;
	if (out->access_key == NULL || out->secret_key == NULL)
		return err_set(err, ERR_INVALID,
		               "--objects %s needs keys: --objects-credentials FILE, or "
		               "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		               app->set.objects);
	if (out->region == NULL)
		out->region = env.region != NULL ? env.region : S3_REGION_DEFAULT;
	out->service = "s3";
	return 0;
}

/* ---- whose they are ------------------------------------------------------------------ */

/* An error of the store itself, in the words of a setting. */
static int blame(const struct app *app, struct err *err)
{
	const char *advice = "";
	AUTO_FREE char *said = NULL;
	enum err_code id;

	if (strstr(err->msg, "NoSuchBucket") != NULL) {
		err_become(err, ERR_OBJECTS_MISSING);
		advice = ": make this bucket, or name another one";
	} else if (err->id != ERR_CLOCK_DIFFERS &&
	           (err->code == ERR_DENIED || err->code == ERR_AUTH)) {
		err_become(err, ERR_OBJECTS_DENIED);
		advice = ": the keys have to be right, and may read, write, list and delete there";
	}
	id = err->id;
	said = xasprintf("%s: %s%s", app->set.objects != NULL ? "--objects" : "objects", err->msg,
	                 advice);
	err_clear(err);
	return err_set(err, id, "%s", said);
}

/* The id in the mark, NULL: there is none. */
static int read_mark(struct app *app, struct arena *a, const char **id, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MARK_MAX);
	const struct doc *d = NULL;

	*id = NULL;
	if (objstore_get(app->objects, OBJECTS_MARK, &body, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	if (js_parse(a, arena_str(a, buf_view(&body)), &d, err) < 0)
		return err_wrap(err, OBJECTS_MARK);
	*id = doc_cstr(doc_get(d, "id"), "");
	return 0;
}

/* Also when it is there: so a store that cannot be written to is found at the start. */
static int write_mark(struct app *app, const char *id, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(MARK_MAX);
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "id", id);
	js_kv(&js, "what", "The objects of a Stoker server. Its database has the same id.");
	js_close(&js);
	return objstore_put(app->objects, OBJECTS_MARK, buf_view(&body), err);
}

static int foreign(const struct app *app, struct err *err)
{
	return err_set(err, ERR_OBJECTS_FOREIGN,
	               "%s belongs to another Stoker: the id in its " OBJECTS_MARK
	               " is not of this database: name a prefix of its own, or the --database "
	               "that it belongs to",
	               app->objects_url);
}

/* A database that knows no id is new, or older than marks: then its objects are in its folder. */
static int first_time(struct app *app, struct arena *a, const char *mark, struct err *err)
{
	struct model_project *all = NULL;
	size_t n = 0;

	if (mark != NULL)
		return foreign(app, err);
	if (app->set.objects == NULL)
		return 0;
	if (meta_projects(app->meta, a, NULL, &all, &n, err) < 0)
		return -1;
	return n == 0 ? 0
	              : err_set(err, ERR_OBJECTS_ELSEWHERE,
	                        "the objects of this database are in %s/objects: start once "
	                        "without --objects, then copy them to %s, " OBJECTS_MARK
	                        " included",
	                        app->data, app->set.objects);
}

/* What the database says of its objects. */
struct known {
	const char *id, *url; /* NULL: nothing */
	bool sure;            /* the mark was stored */
};

static int read_known(struct meta *meta, struct arena *a, struct known *out, struct err *err)
{
	struct str kept = {0}, id = {0};

	*out = (struct known){0};
	if (meta_kv_get(meta, a, KEPT, &kept, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	(void)str_cut(&kept, ' ', &id);
	out->sure = !str_starts(id, NEW);
	out->id = arena_strz(a, out->sure ? id : str_skip(id, strlen(NEW)));
	out->url = arena_strz(a, kept);
	return 0;
}

static const char *place(const struct app *app)
{
	return app->set.objects != NULL ? app->set.objects : IN_DATA;
}

static int keep(struct app *app, struct arena *a, const char *state, const char *id,
                struct err *err)
{
	return meta_kv_put(app->meta, KEPT,
	                   str_of(arena_printf(a, "%s%s %s", state, id, place(app))), err);
}

/* The database first, as not sure yet: a crash between leaves an id whose mark may be made. */
static int agree(struct app *app, struct arena *a, const struct known *k, struct err *err)
{
	const char *id = k->id;

	if (id == NULL) {
		id = app_id(a, (size_t)MODEL_ID_LEN * 2);
		if (keep(app, a, NEW, id, err) < 0)
			return -1;
	}
	if (write_mark(app, id, err) < 0)
		return blame(app, err);
	return k->sure && strcmp(k->url, place(app)) == 0 ? 0 : keep(app, a, "", id, err);
}

/* Is this the store that the database means? */
static int compare(const struct app *app, const struct known *k, const char *mark, struct err *err)
{
	if (mark != NULL && strcmp(k->id, mark) != 0)
		return foreign(app, err);
	if (mark != NULL || !k->sure)
		return 0;
	if (app->set.objects == NULL && strcmp(k->url, IN_DATA) == 0) {
		log_warn("%s has lost its " OBJECTS_MARK ": are the other objects there? `stoker "
		         "server --check` compares them with the database",
		         app->objects_url);
		return 0;
	}
	return err_set(err, ERR_OBJECTS_ELSEWHERE,
	               "%s has no " OBJECTS_MARK ", and the objects of this database were last in "
	               "%s: start with --objects as it was, or copy all objects, " OBJECTS_MARK
	               " included",
	               app->objects_url,
	               strcmp(k->url, IN_DATA) == 0 ? "the server's data folder" : k->url);
}

/* read_mark(), or *away: a store that this database knows is let be. */
static int ask_mark(struct app *app, struct arena *a, const struct known *k, const char **mark,
                    bool *away, struct err *err)
{
	*away = false;
	if (read_mark(app, a, mark, err) == 0)
		return 0;
	if (!k->sure || strcmp(k->url, place(app)) != 0 || !err_is_away(err))
		return blame(app, err);
	err_clear(err); /* it has said so itself, once */
	*away = true;
	return 0;
}

int objects_confirm(struct app *app, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *mark = NULL;
	struct known k;
	bool away;

	if (app->objects_sure)
		return 0;
	if (read_known(app->meta, a, &k, err) < 0 || ask_mark(app, a, &k, &mark, &away, err) < 0)
		return -1;
	if (away)
		return 0;
	if ((k.id == NULL ? first_time(app, a, mark, err) : compare(app, &k, mark, err)) < 0 ||
	    agree(app, a, &k, err) < 0)
		return -1;
	app->objects_sure = true;
	return 0;
}

/* ---- open and close ------------------------------------------------------------------ */

bool objects_elsewhere(const struct app *app)
{
	return strncmp(app->objects_url, ELSEWHERE, strlen(ELSEWHERE)) == 0;
}

const char *objects_of_runners(struct app *app, struct arena *a)
{
	return objects_elsewhere(app) ? "signed:" : objects_passed(app, a);
}

const char *objects_passed(struct app *app, struct arena *a)
{
	return arena_printf(a, "passed:%s", app_path(app, a, APP_SOCKETS "/" OBJECTS_SOCKET));
}

const char *objects_folder(const struct app *app)
{
	return objects_elsewhere(app) ? NULL : app->objects_url + strlen("dir:");
}

static int make_folder(const char *folder, struct err *err)
{
	if (fs_mkdirs(AT_FDCWD, folder, 0700, err) < 0)
		return err_wrap(err, "--objects");
	return 0;
}

static int open_store(struct app *app, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new(); /* of keys, which the store copies */
	struct objstore_env env = {.cancel = &app->stopping};

	app->objects_url = app->set.objects;
	if (app->set.objects == NULL) {
		app->objects_url = arena_printf(app->arena, "dir:%s/objects", app->data);
	} else if (strncmp(app->set.objects, ELSEWHERE, strlen(ELSEWHERE)) == 0) {
		if (read_keys(app, a, &env.key, err) < 0)
			return -1;
		app->objects_url = settings_objects_url(app->arena, &app->set, env.key.region);
		app->stores = http_client_new(&(struct http_policy){0});
		env.client = app->stores;
	} else if (make_folder(objects_folder(app), err) < 0) {
		return -1;
	}
	return objstore_open(&app->objects, app->objects_url, &env, err);
}

int objects_open(struct app *app, struct err *err)
{
	if (app->objects == NULL && open_store(app, err) < 0)
		return -1;
	return objects_confirm(app, err);
}

int objects_fit(struct app *app, struct meta *meta, bool *known, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const char *mark = NULL;
	struct known k;
	bool away;

	*known = false;
	if ((app->objects == NULL && open_store(app, err) < 0) || read_known(meta, a, &k, err) < 0)
		return -1;
	if (!k.sure)
		return 0; /* its leader is just about to say */
	if (ask_mark(app, a, &k, &mark, &away, err) < 0)
		return -1;
	*known = true;
	if (away)
		return 0;
	if (compare(app, &k, mark, err) < 0)
		return -1;
	return write_mark(app, k.id, err) < 0 ? blame(app, err) : 0;
}

void objects_close(struct app *app)
{
	objstore_close(app->objects);
	http_client_free(app->stores);
}

void objects_pass(struct app *app)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct objstore_info info;
	struct outage outage;
	struct err err = {0};
	struct known k;
	char why[OBJSTORE_WHY_MAX];

	if (!objects_elsewhere(app))
		return;
	if (!app->objects_sure) {
		if (objects_confirm(app, &err) < 0 &&
		    (err.id == ERR_OBJECTS_FOREIGN || err.id == ERR_OBJECTS_ELSEWHERE)) {
			log_error("%s", err.msg);
			(void)kill(getpid(), SIGTERM);
		}
		return;
	}
	objstore_outage(app->objects, &outage, why);
	if (outage.since_ms == 0)
		(void)(objstore_stat(app->objects, OBJECTS_MARK, &info, &err) < 0);
	else if (read_known(app->meta, a, &k, &err) == 0 && k.id != NULL)
		(void)(write_mark(app, k.id, &err) < 0); /* what it showed is noted */
	err_clear(&err);
}
