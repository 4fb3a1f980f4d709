/* artifacts.c - see artifacts.h: whose a namespace is, and content that is read and stored. */
#include "server/data/artifacts.h"

#include "base/units.h"
#include "core/action_result.h"
#include "core/hub.h"
#include "server/api/ctx.h"
#include "server/data/weights.h"
#include "store/blobs/blob_objects.h"
#include "store/objects/objstore_fetch.h"

#define MEMORY_MAX ((size_t)256 << 10) /* what comes is not larger: it needs no temporary file */
#define COPY_MAX ((size_t)64 << 10)    /* what goes out is read whole, else sent from its file */
#define PIECE ((size_t)1 << 20)
#define TREE_COST ((uint64_t)4 << 10) /* what a small tree counts: to ask for it takes as long */
#define TMP_CAP 80

/* ---- whose namespace it is ----------------------------------------------------------------- */

static int no_namespace(const char *ns, struct err *err)
{
	return err_set(err, ERR_ARTIFACT_NOT_FOUND,
	               "there is no namespace %.100s: name your team, or your own token; in a job, "
	               "its team",
	               ns);
}

/* Whose name it is, in any case: the caller's own, or for who has all of them the one that is
 * written so. *taken: it is a team's, perhaps another one's. */
static const char *team_of(const struct principal *who, const struct model_team *team, size_t n,
                           const char *ns, bool *taken)
{
	const struct model_team *found = NULL;

	*taken = false;
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(team[i].name, ns) != 0)
			continue;
		*taken = true;
		if (who->team_id != NULL && strcmp(who->team_id, team[i].id) != 0)
			continue;
		if (found == NULL || strcmp(team[i].name, ns) == 0)
			found = &team[i];
	}
	return found != NULL ? found->id : NULL;
}

/* A job that keeps what it compiles says so in its file: who pushed it has given it that. */
static int may_at_all(const struct ask *ask, bool write, struct err *err)
{
	const struct job_rights *job = ask->principal->job;

	if (job == NULL)
		return ctx_need(ask, write ? ROLE_MEMBER : ROLE_VIEWER, err);
	if (!write || job->keeps)
		return 0;
	return err_set(err, ERR_ROLE_REQUIRED,
	               "job %s may read artifacts, not store them: its file needs "
	               "runtime.compile_cache, enabled, with a repository of its user or its team",
	               job->job_id);
}

/* May the caller do this there? All that decides it is here. */
static int space_of(const struct ask *ask, const char *ns, bool write, struct meta_artifact_at *out,
                    struct err *err)
{
	const struct principal *who = ask->principal;
	struct model_team *team = NULL;
	size_t n = 0;
	char *owner;
	bool taken;

	if (may_at_all(ask, write, err) < 0 ||
	    meta_teams(ask->app->meta, ask->a, &team, &n, err) < 0)
		return -1;
	*out = (struct meta_artifact_at){.owner = ""};
	out->team_id = team_of(who, team, n, ns, &taken);
	if (out->team_id != NULL)
		return 0;
	/* a token may have the name of a team: that is the team's; what is a user's is no job's */
	if (taken || who->job != NULL || strcasecmp(ns, who->name) != 0 ||
	    !hub_part_ok(str_of(who->name)))
		return no_namespace(ns, err);
	owner = arena_cstr(ask->a, who->name);
	str_lower(owner);
	out->owner = owner;
	return ctx_team(ask, NULL, &out->team_id, err);
}

/* A tool that waits builds slower than one that misses. */
static int database_answers(struct app *app, struct err *err)
{
	struct outage away;

	meta_outage(app->meta, false, &away);
	if (away.since_ms == 0)
		return 0;
	return err_set(err, ERR_DATABASE_UNAVAILABLE,
	               "the database does not answer: artifacts are there again when it does");
}

/* The same of the bucket: who has to wait for each of its timeouts builds slower still. */
static int bucket_answers(struct app *app, struct err *err)
{
	char why[OBJSTORE_WHY_MAX];
	struct outage away;

	if (!weights_in_objects(app))
		return 0;
	objstore_outage(app->objects, &away, why);
	if (away.since_ms == 0)
		return 0;
	return err_set(err, ERR_OBJECTS_UNAVAILABLE, "the object store does not answer: %s", why);
}

static int open_space(const struct ask *ask, const char *ns, const struct artifact_name *name,
                      bool write, struct meta_artifact_at *out, struct err *err)
{
	if (database_answers(ask->app, err) < 0 || space_of(ask, ns, write, out, err) < 0)
		return -1;
	out->name = name != NULL ? name->text : NULL;
	return 0;
}

/* ---- read ---------------------------------------------------------------------------------- */

static int missing(const char *name, struct err *err)
{
	return err_set(err, ERR_ARTIFACT_NOT_FOUND, "there is no artifact %.200s", name);
}

static int64_t takes(const struct model_artifact *x)
{
	return x->digest != NULL ? (int64_t)x->bytes + ARTIFACT_ROW : 0;
}

/* Its content is of no use any more: the row goes, and it is a miss. */
static int forget(const struct ask *ask, const struct meta_artifact_at *at,
                  const struct model_artifact *x, const char *why, struct err *err)
{
	struct app *app = ask->app;
	bool gone = false;

	if (meta_artifact_del(app->meta, x, &gone, err) < 0)
		return -1;
	if (gone) {
		log_debug("artifact forgotten: name=%s digest=%s: %s", at->name, x->digest, why);
		if (!x->has_body)
			artifact_dropped(app, x->digest);
		if (artifact_added(app, -takes(x), err) < 0)
			return -1;
	}
	return missing(at->name, err);
}

/* From the object store into the folder. */
static int bring(struct app *app, const struct digest *d, uint64_t size, struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(app->blobs);
	AUTO_ARENA struct arena *a = arena_new();
	char tmp[TMP_CAP], journal[FS_PATH_MAX], key[BLOB_KEY_CAP];
	struct objstore_fetch f = {.key = key, .size = size, .sha256 = d, .cancel = &app->stopping};
	struct err ignored = {0};
	AUTO_FD int fd = -1;
	int rc;

	blob_object_key(d, key);
	FMT(tmp, "artifact-%s", app_id(a, MODEL_ID_LEN));
	blob_pins_add(pins, d);
	blob_pins_add_tmp(pins, tmp);
	if (bucket_answers(app, err) < 0 || artifact_room_take(app, size, err) < 0 ||
	    blobs_tmp(app->blobs, tmp, &fd, journal, err) < 0)
		return -1;
	f.fd = fd;
	rc = objstore_fetch(app->objects, &f, err);
	if (rc == 0)
		rc = blobs_commit(app->blobs, tmp, fd, d, err);
	if (rc < 0 && blobs_drop_tmp(app->blobs, tmp, &ignored) < 0)
		log_warn("artifacts: %s: %s", tmp, ignored.msg);
	return rc;
}

enum content { CONTENT_WHOLE, CONTENT_GONE, CONTENT_DAMAGED };

/* Its file, of which only the size was looked at. */
static int open_blob(struct app *app, const struct digest *d, uint64_t size, int *fd,
                     enum content *found, struct err *err)
{
	AUTO_FD int file = -1;
	uint64_t is = 0;

	*found = CONTENT_GONE;
	if (blobs_fd(app->blobs, d, &file, &is, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		if (!weights_in_objects(app))
			return 0;
		if (bring(app, d, size, err) < 0) {
			if (err->code != ERR_NOT_FOUND && err->code != ERR_CORRUPT)
				return -1;
			err_clear(err);
			return 0;
		}
		if (blobs_fd(app->blobs, d, &file, &is, err) < 0)
			return -1;
	}
	*found = is == size ? CONTENT_WHOLE : CONTENT_DAMAGED;
	if (is == size)
		*fd = TAKE_FD(file);
	return 0;
}

/* All of it in the arena; or, above `most`, an open file. */
static int look_at(const struct ask *ask, const struct model_artifact *x, const struct digest *want,
                   uint64_t most, struct str *body, int *fd, enum content *found, struct err *err)
{
	AUTO_FD int file = -1;
	uint64_t size = x->bytes;
	struct digest is;

	if (x->has_body) {
		*body = x->body;
		is = hash_sha256(body->p, body->n);
	} else if (open_blob(ask->app, want, size, &file, found, err) < 0) {
		return -1;
	} else if (file < 0) {
		return 0;
	} else if (size <= most) {
		char *p = arena_alloc(ask->a, (size_t)size + 1);

		if (fs_pread_all(file, p, (size_t)size, 0, err) < 0)
			return -1;
		*body = str_n(p, (size_t)size);
		is = hash_sha256(p, (size_t)size);
	} else {
		if (hash_fd(file, &is, &size, err) < 0)
			return -1;
		*fd = TAKE_FD(file);
	}
	*found = digest_same(&is, want) ? CONTENT_WHOLE : CONTENT_DAMAGED;
	return 0;
}

/* The same, verified. What is damaged leaves the folder, and may be in the object store; what is
 * nowhere any more is forgotten. */
static int open_content(const struct ask *ask, const struct meta_artifact_at *at,
                        const struct model_artifact *x, uint64_t most, struct str *body, int *fd,
                        struct err *err)
{
	enum content found = CONTENT_DAMAGED;
	struct app *app = ask->app;
	struct digest want;

	*fd = -1;
	if (digest_parse(str_of(x->digest), &want, err) < 0)
		return -1;
	for (int tries = 0; tries < 2 && found == CONTENT_DAMAGED; tries++) {
		if (look_at(ask, x, &want, most, body, fd, &found, err) < 0)
			return -1;
		if (found == CONTENT_WHOLE)
			return 0;
		if (*fd >= 0)
			(void)close(*fd);
		*fd = -1;
		if (found == CONTENT_GONE)
			break;
		log_error("artifact damaged: name=%s digest=%s", at->name, x->digest);
		if (x->has_body)
			break;
		if (blobs_quarantine(app->blobs, &want, err) < 0)
			return -1;
	}
	return forget(ask, at, x, "its content is damaged or gone", err);
}

/* Whole, whatever its size. */
static int read_content(const struct ask *ask, const struct meta_artifact_at *at,
                        const struct model_artifact *x, struct str *body, struct err *err)
{
	int fd;

	return open_content(ask, at, x, UINT64_MAX, body, &fd, err);
}

/* ---- what an action names ------------------------------------------------------------------ */

/* *all: it is all there. It was used, then, too. */
static int have_content(const struct ask *ask, const struct meta_artifact_at *at,
                        const struct action_content *c, size_t n, bool *all, struct err *err)
{
	struct app *app = ask->app;

	*all = true;
	for (size_t i = 0, some; i < n && *all; i += some) {
		AUTO_ARENA struct arena *a = arena_new();
		AUTO_MAP struct map *found = map_new();
		const char *name[META_ARTIFACTS_MAX];
		struct model_artifact *x = NULL;
		size_t n_found = 0;

		some = MIN(n - i, (size_t)META_ARTIFACTS_MAX);
		for (size_t k = 0; k < some; k++) {
			struct artifact_name at_name;

			artifact_content_name(&c[i + k].sha256, &at_name);
			name[k] = arena_cstr(a, at_name.text);
		}
		if (meta_artifacts_of(app->meta, a, at, name, some, &x, &n_found, err) < 0)
			return -1;
		for (size_t k = 0; k < n_found; k++) {
			struct digest d;

			if (digest_parse(str_of(x[k].digest), &d, err) < 0)
				return -1;
			if (!x[k].has_body && !weights_in_objects(app) &&
			    !blobs_has(app->blobs, &d, x[k].bytes))
				continue;
			artifact_used(app, x[k].seq);
			(void)map_set(found, digest_key(&d), app);
		}
		for (size_t k = 0; k < some && *all; k++)
			*all = map_get(found, digest_key(&c[i + k].sha256)) != NULL;
	}
	return 0;
}

/* The files of a tree. One that cannot be read is as good as none, and so is one with more bytes
 * than are *left to all trees of the action: whoever has stored them says how many there are. */
static int have_tree(const struct ask *ask, const struct meta_artifact_at *at,
                     const struct action_content *tree, uint64_t *left, bool *all, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct ask here = {ask->app, ask->principal, a};
	struct meta_artifact_at tree_at = *at;
	struct artifact_name name;
	struct action_result files;
	struct model_artifact x;
	struct str body = {0};

	*all = false;
	artifact_content_name(&tree->sha256, &name);
	tree_at.name = name.text;
	if (meta_artifact(ask->app->meta, a, &tree_at, &x, err) < 0)
		return err->code == ERR_NOT_FOUND ? (err_clear(err), 0) : -1;
	if (MAX(x.bytes, TREE_COST) > *left)
		return 0;
	*left -= MAX(x.bytes, TREE_COST);
	if (read_content(&here, &tree_at, &x, &body, err) < 0)
		return err->code == ERR_NOT_FOUND ? (err_clear(err), 0) : -1;
	if (action_tree_read(a, body, &files, err) < 0) {
		err_clear(err);
		return 0;
	}
	return have_content(&here, at, files.content, files.n, all, err);
}

/* An action whose content is not all there is none: who gets it would fail later, where nothing
 * can be done about it. */
static int check_action(const struct ask *ask, const struct meta_artifact_at *at,
                        const struct model_artifact *x, struct str body, struct err *err)
{
	uint64_t left = ACTION_TREE_MAX;
	struct action_result r;
	bool all = false;

	if (action_result_read(ask->a, body, &r, err) < 0) {
		err_clear(err); /* it was checked when it came, by an older Stoker */
		return forget(ask, at, x, "it is no result of an action", err);
	}
	if (have_content(ask, at, r.content, r.n, &all, err) < 0)
		return -1;
	for (size_t i = 0; i < r.n_trees && all; i++)
		if (have_tree(ask, at, &r.tree[i], &left, &all, err) < 0)
			return -1;
	return all ? 0 : forget(ask, at, x, "what it names is not all there", err);
}

/* ---- operations ---------------------------------------------------------------------------- */

/* Content of nothing is always there: Bazel does not send it, and asks for it. */
static bool is_empty(const struct artifact_name *name)
{
	struct digest none = hash_sha256("", 0);

	return name->kind == ARTIFACT_CONTENT && digest_same(&name->sha256, &none);
}

static int find(const struct ask *ask, const struct meta_artifact_at *at,
                const struct artifact_name *name, bool bytes, struct artifact_found *out,
                struct err *err)
{
	struct model_artifact x;
	uint64_t most = name->kind == ARTIFACT_ACTION ? UINT64_MAX : COPY_MAX;

	if (is_empty(name)) {
		digest_hex(&name->sha256, out->sha256);
		return 0;
	}
	if (meta_artifact(ask->app->meta, ask->a, at, &x, err) < 0)
		return err->code == ERR_NOT_FOUND ? (err_clear(err), missing(at->name, err)) : -1;
	if ((bytes || name->kind == ARTIFACT_ACTION) &&
	    open_content(ask, at, &x, most, &out->body, &out->fd, err) < 0)
		return -1;
	if (name->kind == ARTIFACT_ACTION && check_action(ask, at, &x, out->body, err) < 0)
		return -1;
	artifact_used(ask->app, x.seq);
	out->bytes = x.bytes;
	FMT(out->sha256, "%s", x.digest);
	out->created_ms = x.created_ms;
	return 0;
}

static int artifact_get(const struct ask *ask, const char *ns, const struct artifact_name *name,
                        bool bytes, struct artifact_found *out, struct err *err)
{
	struct meta_artifact_at at;
	int rc;

	*out = (struct artifact_found){.fd = -1};
	if (open_space(ask, ns, name, false, &at, err) < 0)
		return -1;
	rc = find(ask, &at, name, bytes, out, err);
	if (bytes && (rc == 0 || err->code == ERR_NOT_FOUND))
		artifact_count(ask->app, name->kind, rc == 0, out->bytes);
	return rc;
}

static int artifact_may(const struct ask *ask, const char *ns, bool write, struct err *err)
{
	struct meta_artifact_at at;

	return open_space(ask, ns, NULL, write, &at, err);
}

static int artifact_remove(const struct ask *ask, const char *ns, const struct artifact_name *name,
                           struct err *err)
{
	struct meta_artifact_at at;
	struct model_artifact x;
	bool gone = false;

	if (open_space(ask, ns, name, true, &at, err) < 0)
		return -1;
	if (meta_artifact(ask->app->meta, ask->a, &at, &x, err) < 0)
		return err->code == ERR_NOT_FOUND ? (err_clear(err), missing(at.name, err)) : -1;
	if (meta_artifact_del(ask->app->meta, &x, &gone, err) < 0)
		return -1;
	if (gone && !x.has_body)
		artifact_dropped(ask->app, x.digest);
	return gone ? artifact_added(ask->app, -takes(&x), err) : 0;
}

/* ---- stored -------------------------------------------------------------------------------- */

struct incoming {
	struct digest sha256;
	struct str body; /* of one that is in memory */
	char tmp[TMP_CAP];
	int fd; /* of one that is not */
	struct blob_pins *pins;
};

static int cut_short(uint64_t got, uint64_t size, struct err *err)
{
	return err_set(err, ERR_INVALID, "%" PRIu64 " of %" PRIu64 " bytes came", got, size);
}

static int to_memory(const struct ask *ask, uint64_t size, const struct repo_bytes *from,
                     struct incoming *in, struct err *err)
{
	char *p = arena_alloc(ask->a, (size_t)size + 1);
	size_t got = 0, some;

	do { /* one byte more than there may be, for the end to be seen */
		if (from->read(from->arg, p + got, (size_t)size + 1 - got, &some, err) < 0)
			return -1;
		got += some;
	} while (some > 0 && got <= size);
	if (got != size)
		return cut_short(got, size, err);
	in->body = str_n(p, got);
	in->sha256 = hash_sha256(p, got);
	return 0;
}

static int to_file(const struct ask *ask, uint64_t size, const struct repo_bytes *from,
                   struct incoming *in, struct err *err)
{
	AUTO_HASH struct hash *h = hash_new(HASH_SHA256);
	AUTO_FREE char *piece = xmalloc(PIECE);
	struct app *app = ask->app;
	char journal[FS_PATH_MAX];
	uint64_t got = 0;
	size_t some;

	FMT(in->tmp, "artifact-%s", app_id(ask->a, MODEL_ID_LEN));
	blob_pins_add_tmp(in->pins, in->tmp);
	if (blobs_tmp(app->blobs, in->tmp, &in->fd, journal, err) < 0)
		return -1;
	for (;;) {
		if (from->read(from->arg, piece, PIECE, &some, err) < 0)
			return -1;
		if (some == 0)
			break;
		if (some > size - got)
			return cut_short(got + some, size, err);
		/* as the bytes come: to say a length costs nothing */
		if (artifact_room_take(app, some, err) < 0)
			return -1;
		hash_add(h, piece, some);
		if (app_pwrite(in->fd, piece, some, got, err) < 0)
			return -1;
		got += some;
	}
	if (got < size)
		return cut_short(got, size, err);
	(void)hash_end(h, in->sha256.b);
	return 0;
}

/* Is it what it says that it is? */
static int check_incoming(const struct ask *ask, const struct artifact_name *name,
                          const struct incoming *in, struct err *err)
{
	char is[HASH_HEX_CAP], want[HASH_HEX_CAP];
	struct action_result r;

	if (name->kind == ARTIFACT_ACTION)
		return action_result_read(ask->a, in->body, &r, err);
	if (name->kind != ARTIFACT_CONTENT || digest_same(&in->sha256, &name->sha256))
		return 0;
	digest_hex(&in->sha256, is);
	digest_hex(&name->sha256, want);
	return err_set(err, ERR_ARTIFACT_DIGEST, "the SHA-256 of the bytes that came is %s, not %s",
	               is, want);
}

/* As a blob, and with --objects in the bucket; pinned. */
static int put_blob(const struct ask *ask, struct incoming *in, uint64_t size, struct err *err)
{
	struct app *app = ask->app;
	struct digest d = in->sha256;

	blob_pins_add(in->pins, &d);
	if (in->fd >= 0) {
		if (blobs_commit(app->blobs, in->tmp, in->fd, &d, err) < 0)
			return -1;
		in->tmp[0] = '\0';
	} else if (!blobs_has(app->blobs, &d, size)) {
		if (artifact_room_take(app, size, err) < 0 ||
		    blobs_put(app->blobs, in->body, &d, err) < 0)
			return -1;
	}
	app_crash_at("artifact:blob");
	if (!weights_in_objects(app))
		return 0;
	return blob_objects_put_blob(app->objects, app->blobs, in->pins, &d, size, &app->stopping,
	                             err);
}

/* The same bytes under the same name, several compilers at once: only its use is noted. */
static int is_known(const struct ask *ask, const struct meta_artifact_at *at,
                    const struct incoming *in, bool *known, struct err *err)
{
	struct model_artifact x;
	char hex[HASH_HEX_CAP];

	*known = false;
	digest_hex(&in->sha256, hex);
	if (meta_artifact(ask->app->meta, ask->a, at, &x, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		err_clear(err);
		return 0;
	}
	if (strcmp(x.digest, hex) != 0 ||
	    (!x.has_body && !blobs_has(ask->app->blobs, &in->sha256, x.bytes)))
		return 0;
	artifact_used(ask->app, x.seq);
	*known = true;
	return 0;
}

static int keep(const struct ask *ask, const struct meta_artifact_at *at, struct incoming *in,
                uint64_t size, bool *fresh, struct err *err)
{
	struct app *app = ask->app;
	const struct principal *who = ask->principal;
	struct model_artifact x = {.bytes = size,
	                           .created_ms = clock_wall_ms(),
	                           .stored_by = who->name,
	                           .job_id = who->job != NULL ? who->job->job_id : NULL};
	struct model_artifact was = {0};
	char hex[HASH_HEX_CAP];
	bool known;

	if (is_known(ask, at, in, &known, err) < 0)
		return -1;
	if (known)
		return 0;
	digest_hex(&in->sha256, hex);
	x.digest = hex;
	x.used_ms = x.created_ms;
	x.has_body = size <= META_ARTIFACT_BODY_MAX;
	if (x.has_body)
		x.body = in->body;
	if ((!x.has_body && put_blob(ask, in, size, err) < 0) ||
	    meta_artifact_put(app->meta, ask->a, at, &x, &was, err) < 0) {
		if (!x.has_body) /* it may be in the folder, and no limit counts it */
			artifact_dropped(app, hex);
		return -1;
	}
	app_crash_at("artifact:row");
	*fresh = was.digest == NULL;
	if (was.digest != NULL && !was.has_body)
		artifact_dropped(app, was.digest);
	return artifact_added(app, takes(&x) - takes(&was), err);
}

/* The most that may come under this name. */
static int check_size(struct app *app, const struct artifact_name *name, uint64_t size,
                      struct err *err)
{
	uint64_t most = name->kind == ARTIFACT_ACTION ? ACTION_RESULT_MAX : ARTIFACT_MAX;
	uint64_t fits = artifact_bytes_most(app) - ARTIFACT_ROW;
	char much[UNITS_CAP], limit[UNITS_CAP];

	if (size > most)
		return err_set(err, ERR_TOO_BIG, "%s are too much: %s may have %s",
		               units_show_bytes(size, much),
		               name->kind == ARTIFACT_ACTION ? "the result of an action"
		                                             : "an artifact",
		               units_show_bytes(most, limit));
	if (size > fits)
		return err_set(err, ERR_ARTIFACT_TOO_LARGE,
		               "%s never fit: --artifact-bytes lets one artifact have %s",
		               units_show_bytes(size, much), units_show_bytes(fits, limit));
	return 0;
}

static int artifact_put(const struct ask *ask, const char *ns, const struct artifact_name *name,
                        uint64_t size, const struct repo_bytes *from, bool *fresh, struct err *err)
{
	AUTO_BLOB_PINS struct blob_pins *pins = blob_pins_new(ask->app->blobs);
	struct incoming in = {.fd = -1, .pins = pins};
	struct meta_artifact_at at;
	struct err ignored = {0};
	int rc;

	*fresh = false;
	if (open_space(ask, ns, name, true, &at, err) < 0 ||
	    check_size(ask->app, name, size, err) < 0 || app_has_room(ask->app, err) < 0 ||
	    (size > META_ARTIFACT_BODY_MAX && bucket_answers(ask->app, err) < 0))
		return -1;
	if (size <= MEMORY_MAX || name->kind == ARTIFACT_ACTION)
		rc = to_memory(ask, size, from, &in, err);
	else
		rc = to_file(ask, size, from, &in, err);
	if (rc == 0)
		rc = check_incoming(ask, name, &in, err);
	if (rc == 0)
		rc = keep(ask, &at, &in, size, fresh, err);
	if (in.tmp[0] != '\0' && blobs_drop_tmp(ask->app->blobs, in.tmp, &ignored) < 0)
		log_warn("artifacts: %s: %s", in.tmp, ignored.msg);
	if (in.fd >= 0)
		(void)close(in.fd);
	if (rc == 0)
		artifact_count_stored(ask->app, name->kind, size);
	return rc;
}

static int artifact_list(const struct ask *ask, const struct artifact_query *q,
                         struct model_artifact **out, size_t *n, struct err *err)
{
	struct meta_artifact_at at = {.owner = ""};
	struct meta_artifact_query m = {.stored_by = q->by,
	                                .job_id = q->job_id,
	                                .limit = q->limit,
	                                .after_ms = q->after_ms,
	                                .after_seq = q->after_seq};

	if (q->namespace_ != NULL ? open_space(ask, q->namespace_, NULL, false, &at, err) < 0
	                          : ctx_team(ask, NULL, &at.team_id, err) < 0)
		return -1;
	m.team_id = at.team_id;
	m.owner = at.owner;
	return meta_artifacts_stored(ask->app->meta, ask->a, &m, out, n, err);
}

const struct artifact_ops artifact_ops = {
	.may = artifact_may,
	.get = artifact_get,
	.put = artifact_put,
	.remove = artifact_remove,
	.list = artifact_list,
};
