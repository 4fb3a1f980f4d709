/*
 * hub.c - the Hub face: what clients of a Hub of models and data sets ask of the server that
 * HF_ENDPOINT names, to read. Here are its routes, how a path names a repository, and how a request
 * waits until something of it is known.
 */
#include "face/hub_impl.h"

#include "base/clock.h"
#include "base/hash.h"

#define PATHS_BODY_MAX ((size_t)4 << 20)
#define FILES_BODY_MAX ((size_t)32 << 20) /* with the first bytes of each file */
#define SMALL_BODY_MAX ((size_t)1 << 20)
#define SHARD_BODY_MAX ((size_t)64 << 20)
#define WHOAMI_MAX ((size_t)4 << 20)
#define MAIN "main"

/* ---- names --------------------------------------------------------------------------------- */

struct str hub_arg(const struct request *rq, const char *name)
{
	struct str left = str_of(rq->route->pattern), part;
	size_t n = strlen(name), i = 0;

	while (str_cut(&left, '/', &part)) {
		if (!str_starts(part, "{"))
			continue;
		part = str_skip(part, 1);
		assert(i < rq->n_arg);
		if (str_starts(part, name) && (part.p[n] == '}' || part.p[n] == '.'))
			return rq->arg[i];
		i++;
	}
	return (struct str){0};
}

bool hub_is_true(struct str word)
{
	return str_ieq(word, "true") || str_eq(word, "1");
}

bool hub_flag(struct request *rq, const char *name)
{
	struct str word;

	return request_query(rq, name, &word) && hub_is_true(word);
}

/* False: of a kind that is not here. */
static bool type_of(const struct request *rq, enum hub_type *out)
{
	static const enum hub_type with_prefix[] = {HUB_DATASETS, HUB_SPACES};

	if (hub_arg(rq, "type").n > 0)
		return hub_type_parse(hub_arg(rq, "type"), out);
	*out = HUB_MODELS;
	for (size_t i = 0; i < COUNT(with_prefix); i++)
		if (str_starts(str_of(rq->route->pattern + 1), hub_type_prefix(with_prefix[i])))
			*out = with_prefix[i];
	return true;
}

static int no_route(const struct request *rq, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "this server has no %.*s", (int)MIN(rq->path.n, 500),
	               rq->path.p);
}

int hub_name_of(struct request *rq, struct hub_name *out, struct err *err)
{
	struct str owner = hub_arg(rq, "owner"), id = hub_arg(rq, "name");
	struct str rev = hub_arg(rq, "rev");
	struct hub_name name = {0};

	if (!type_of(rq, &name.type))
		return no_route(rq, err);
	if (owner.n > 0)
		id = str_of(arena_printf(rq->arena, "%.*s/%.*s", STR_ARG(owner), STR_ARG(id)));
	if (!hub_id_ok(id))
		return err_set(err, ERR_HUB_REPO_NOT_FOUND,
		               "\"%.*s\" cannot be the name of a repository", STR_ARG(id));
	if (rev.n > 0 && !hub_rev_ok(rev))
		return err_set(err, ERR_HUB_REVISION_NOT_FOUND,
		               "the revision is longer than %d bytes, or contains a control "
		               "character",
		               HUB_REV_MAX);
	name.id = arena_strz(rq->arena, id);
	name.rev = rev.n > 0 && !str_eq(rev, "HEAD") ? arena_strz(rq->arena, rev) : MAIN;
	*out = name;
	return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

uint64_t hub_channel(const struct hub_name *name)
{
	AUTO_FREE char *id = xstrdup(name->id), *text = NULL;

	str_lower(id); /* in any case it is the same repository */
	text = xasprintf("%s/%s%s%s", hub_type_word(name->type), id, name->rev != NULL ? "@" : "",
	                 name->rev != NULL ? name->rev : "");
	return httpd_channel("hub", str_of(text));
}

uint64_t hub_bytes_channel(const struct hub_file *f)
{
	char id[HUB_ETAG_CAP];

	hub_etag(f, id);
	return httpd_channel("hub-bytes", str_of(id));
}

uint64_t hub_places_channel(void)
{
	return httpd_channel("hub-places", str_of(""));
}

int hub_ops_of(const struct request *rq, const struct hub_ops **out, struct err *err)
{
	*out = face_ctx(rq)->ops->hub;
	if (*out == NULL)
		return err_set(err, ERR_UNSUPPORTED, "this server mirrors no Hub");
	return 0;
}

int hub_repos_of(const struct request *rq, const struct repo_ops **out, struct err *err)
{
	*out = face_ctx(rq)->ops->repos;
	if (*out == NULL)
		return err_set(err, ERR_UNSUPPORTED, "this server has no repositories of its own");
	return 0;
}

int hub_wait(struct request *rq, uint64_t channel, uint64_t seq, struct err *err)
{
	int64_t wait_ms = rq->method == HTTP_HEAD ? HUB_WAIT_HEAD_MS : HUB_WAIT_MS;

	if (rq->timed_out) {
		err->retry_after_s = HUB_RETRY_S;
		return err_set(err, ERR_SOURCE_TIMEOUT,
		               "the Hub that this server mirrors has not answered yet");
	}
	return reply_wait(rq, channel, seq,
	                  rq->wakes > 0 ? rq->wait_until_ms : clock_mono_ms() + wait_ms);
}

int hub_with(struct request *rq, hub_handler *fn, struct err *err)
{
	const struct ask *ask = face_ask(rq);
	const struct hub_listing *l = NULL;
	const struct hub_ops *ops = NULL;
	const char *moved = NULL;
	struct hub_name name = {0};
	uint64_t channel, seq;
	int r;

	if (hub_name_of(rq, &name, err) < 0 || hub_ops_of(rq, &ops, err) < 0)
		return -1;
	channel = hub_channel(&name);
	seq = httpd_channel_seq(request_httpd(rq), channel); /* before the look */
	if (ops->open(ask, &name, rq->wakes > 0, &l, &moved, err) < 0)
		return hub_failed(err);
	if (moved != NULL)
		return hub_moved(rq, &name, moved, err);
	if (l == NULL)
		return hub_wait(rq, channel, seq, err);
	reply_header(rq, "X-Repo-Commit", l->commit); /* with an error, too: clients keep that */
	r = fn(rq, l, err);
	ops->close(ask->app, l);
	return r;
}

int hub_no_entry(const struct hub_listing *l, struct str path, struct err *err)
{
	return err_set(err, ERR_HUB_ENTRY_NOT_FOUND, "\"%.*s\" is not in %s%s at %s",
	               (int)MIN(path.n, 500), path.n > 0 ? path.p : "", hub_type_prefix(l->type),
	               l->id, l->commit);
}

/* ---- the smaller routes -------------------------------------------------------------------- */

static int may_read(struct request *rq, const struct hub_listing *l UNUSED, struct err *err UNUSED)
{
	return reply_bytes(rq, 200, "application/json", STR_LIT("{}"));
}

static int auth_check(struct request *rq, struct err *err)
{
	return hub_with(rq, may_read, err);
}

static int no_xet(struct request *rq UNUSED, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND,
	               "this server does not speak Xet: set HF_HUB_DISABLE_XET=1 in the client's "
	               "environment");
}

static int write_teams(struct request *rq, struct js *js, struct err *err)
{
	const struct principal *who = face_principal(rq);
	struct model_team *team = NULL;
	size_t n = 0;

	if (face_ctx(rq)->ops->teams->list(face_ask(rq), &team, &n, err) < 0)
		return -1;
	js_key(js, "orgs");
	js_list(js);
	for (size_t i = 0; i < n; i++) {
		if (who->team_id != NULL && strcmp(who->team_id, team[i].id) != 0)
			continue;
		js_open(js);
		js_kv(js, "type", "org");
		js_kv(js, "name", team[i].name);
		js_kv(js, "fullname", team[i].name);
		js_close(js);
	}
	js_end(js);
	return 0;
}

static int whoami(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(WHOAMI_MAX);
	const struct principal *who = face_principal(rq);
	struct js js;

	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "type", "user");
	js_kv(&js, "name", who->name);
	js_kv(&js, "fullname", who->name);
	if (write_teams(rq, &js, err) < 0)
		return -1;
	js_key(&js, "auth");
	js_open(&js);
	js_kv(&js, "type", "access_token");
	js_key(&js, "accessToken");
	js_open(&js);
	js_kv(&js, "displayName", who->name);
	js_kv(&js, "role", who->role == ROLE_VIEWER ? "read" : "write");
	js_close(&js);
	js_close(&js);
	js_close(&js);
	if (buf_check(&out, "the answer", err) < 0)
		return -1;
	return reply_json(rq, 200, &out);
}

/* A client remembers this for a day, and asks again in every process when it is refused. */
static int harnesses(struct request *rq, struct err *err UNUSED)
{
	return reply_bytes(rq, 200, "application/json",
	                   STR_LIT("{\"standardEnvVars\":[],\"harnesses\":{}}"));
}

/* What clients ask for beside, and do without when they are told so at once. */
static int nothing(struct request *rq, struct err *err)
{
	return no_route(rq, err);
}

#define FILE_OF "/resolve/{rev}/{path...}"
#define RAW_OF "/raw/{rev}/{path...}"
#define LFS "/info/lfs/objects/batch" /* below name.git */
#define OLD "/api/{type}/{name}"      /* names of old have no owner */
#define REPO "/api/{type}/{owner}/{name}"

/* The order decides what a path means that fits two: "/api/models/a/refs" are the refs of "a", not
 * a repository "refs"; else an owner and a name come first. */
/* clang-format off */
static const struct route routes[] = {
	{ HTTP_GET,  SCOPE_READ, 0, "/datasets/{owner}/{name}" FILE_OF, hub_get_file, "A file of a data set; ranges" },
	{ HTTP_GET,  SCOPE_READ, 0, "/datasets/{name}" FILE_OF,         hub_get_file, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, "/spaces/{owner}/{name}" FILE_OF,   hub_get_file, "A file of a space; ranges" },
	{ HTTP_GET,  SCOPE_READ, 0, "/spaces/{name}" FILE_OF,           hub_get_file, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, "/{owner}/{name}" FILE_OF,          hub_get_file, "A file of a model; ranges" },
	{ HTTP_GET,  SCOPE_READ, 0, "/{name}" FILE_OF,                  hub_get_file, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, "/datasets/{owner}/{name}" RAW_OF,  hub_get_raw, "A file of a data set as git has it: of a large one the pointer" },
	{ HTTP_GET,  SCOPE_READ, 0, "/datasets/{name}" RAW_OF,          hub_get_raw, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, "/spaces/{owner}/{name}" RAW_OF,    hub_get_raw, "The same of a space" },
	{ HTTP_GET,  SCOPE_READ, 0, "/spaces/{name}" RAW_OF,            hub_get_raw, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, "/{owner}/{name}" RAW_OF,           hub_get_raw, "The same of a model" },
	{ HTTP_GET,  SCOPE_READ, 0, "/{name}" RAW_OF,                   hub_get_raw, "The same" },
	{ HTTP_POST, SCOPE_PUSH, FILES_BODY_MAX, "/datasets/{owner}/{name}" LFS, hub_post_lfs_batch, "Where to send large files of a data set" },
	{ HTTP_POST, SCOPE_PUSH, FILES_BODY_MAX, "/spaces/{owner}/{name}" LFS,   hub_post_lfs_batch, "The same of a space" },
	{ HTTP_POST, SCOPE_PUSH, FILES_BODY_MAX, "/{owner}/{name}" LFS,          hub_post_lfs_batch, "The same of a model" },
	{ HTTP_PUT,  SCOPE_OPEN,   ROUTE_BODY_STREAM, "/api/lfs/{repo}/{oid}",     hub_put_lfs,      "A large file, to an address that was signed" },
	{ HTTP_PUT,  SCOPE_OPEN,   ROUTE_BODY_STREAM, "/api/lfs/{repo}/{oid}/part", hub_put_lfs_part, "A part of one" },
	{ HTTP_POST, SCOPE_OPEN,   SMALL_BODY_MAX, "/api/lfs/{repo}/{oid}/join",   hub_post_lfs_join, "All parts of one have come" },
	{ HTTP_POST, SCOPE_OPEN, ROUTE_BODY_STREAM, "/xet/{repo}/{epoch}/v1/xorbs/default/{hash}", hub_post_xorb, "A xorb: packed chunks of files" },
	{ HTTP_POST, SCOPE_OPEN, SHARD_BODY_MAX, "/xet/{repo}/{epoch}/v1/shards", hub_post_shard, "Which chunks are a file" },
	{ HTTP_POST, SCOPE_OPEN, SHARD_BODY_MAX, "/xet/{repo}/{epoch}/v2/shards", hub_post_shard, "The same, answered by lines of JSON" },
	{ HTTP_POST, SCOPE_OPEN, SHARD_BODY_MAX, "/xet/{repo}/{epoch}/shards", hub_post_shard, "The same of older clients" },
	{ HTTP_GET,  SCOPE_OPEN, 0, "/xet/{repo}/{epoch}/v1/chunks/default/{hash}", hub_get_no_chunk, "404: no chunk of another repository is known" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, "/api/repos/create",   hub_post_create, "Creates a repository; name, organization, type, visibility" },
	{ HTTP_DELETE, SCOPE_MEMBER, SMALL_BODY_MAX, "/api/repos/delete", hub_delete_repo, "Deletes a repository, with all commits; name, organization, type" },
	{ HTTP_POST, SCOPE_MEMBER, SMALL_BODY_MAX, "/api/repos/move",     hub_post_move, "Renames a repository; the old name leads to the new one; fromRepo, toRepo, type" },
	{ HTTP_POST, SCOPE_OPEN, PATHS_BODY_MAX, "/api/validate-yaml",    hub_post_yaml, "Is the metadata of a card YAML? Clients send no token" },
	{ HTTP_GET,  SCOPE_READ, 0, "/api/whoami-v2",                   whoami,       "The owner of the token" },
	{ HTTP_GET,  SCOPE_OPEN,   0, "/api/agent-harnesses",             harnesses,    "Always empty" },
	{ HTTP_GET,  SCOPE_READ, 0, "/api/settings/repositories",       hub_get_space, "The caller's own repositories, and what each takes" },
	{ HTTP_GET,  SCOPE_READ, 0, "/api/organizations/{owner}/settings/repositories", hub_get_space, "The same of a team, or of another user: those that the caller may read" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/revision/{rev}",             hub_get_info, "A repository and its files at a revision" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/tree/{rev}",                 hub_get_tree, "Files and folders, in pages; recursive, expand, limit, cursor" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/tree/{rev}/{path...}",       hub_get_tree, "The same below a folder" },
	{ HTTP_POST, SCOPE_READ, PATHS_BODY_MAX, REPO "/paths-info/{rev}", hub_post_paths, "What is at some paths" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/commits/{rev}",              hub_get_commits, "The commit of a revision" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/xet-read-token/{rev}",       no_xet,       "Refused: there is no Xet" },
	{ HTTP_GET,  SCOPE_PUSH, 0, REPO "/xet-write-token/{rev}",      hub_get_xet_token, "Where clients that speak Xet send large files" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/refs",                       hub_get_refs, "Branches and tags; include_prs" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/auth-check",                 auth_check,   "May the caller read it?" },
	{ HTTP_GET,  SCOPE_PUSH, 0, REPO "/auth-check/write",           hub_write_check, "May the caller write to it?" },
	{ HTTP_POST, SCOPE_MEMBER, SMALL_BODY_MAX, REPO "/duplicate",     hub_post_duplicate, "Another repository with its commits, branches and tags; repository, visibility" },
	{ HTTP_PUT,  SCOPE_MEMBER, SMALL_BODY_MAX, REPO "/settings",      hub_put_settings, "Makes it private or public; private, visibility" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/branch/{rev}",  hub_post_branch, "Creates a branch; startingPoint" },
	{ HTTP_DELETE, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/branch/{rev}", hub_delete_branch, "Deletes a branch" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/tag/{rev}",     hub_post_tag, "Tags a revision; tag" },
	{ HTTP_DELETE, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/tag/{rev}",   hub_delete_tag, "Deletes a tag" },
	{ HTTP_POST, SCOPE_PUSH, FILES_BODY_MAX, REPO "/preupload/{rev}", hub_post_preupload, "How to send files, and which are known" },
	{ HTTP_POST, SCOPE_PUSH, ROUTE_BODY_STREAM, REPO "/commit/{rev}", hub_post_commit, "A commit, as lines of JSON; 412 when the branch has moved" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/discussions",                hub_get_pulls, "Its pull requests, in pages; author, status, type, p" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/discussions",   hub_post_pull, "Opens a pull request against main; title, description, pullRequest" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO "/discussions/{num}",          hub_get_pull, "A pull request: what was said and committed, conflicts, what has changed" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/discussions/{num}/comment", hub_post_pull_comment, "A comment" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/discussions/{num}/status", hub_post_pull_status, "Closes it or opens it again; status, comment" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/discussions/{num}/title", hub_post_pull_title, "Another title" },
	{ HTTP_POST, SCOPE_PUSH, SMALL_BODY_MAX, REPO "/discussions/{num}/merge", hub_post_pull_merge, "Merges it; 409 when both sides have changed a file; comment" },
	{ HTTP_POST, SCOPE_MEMBER, SMALL_BODY_MAX, REPO "/super-squash/{rev}", hub_post_squash, "A branch's history becomes one commit; message" },
	{ HTTP_GET,  SCOPE_MEMBER, 0, REPO "/lfs-files",                  hub_get_large, "The large files that were uploaded to it, in pages" },
	{ HTTP_POST, SCOPE_MEMBER, SMALL_BODY_MAX, REPO "/lfs-files/batch", hub_post_large, "Deletes large files, and with rewriteHistory from all commits; deletions" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/revision/{rev}",              hub_get_info, "The same of a repository without an owner" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/tree/{rev}",                  hub_get_tree, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/tree/{rev}/{path...}",        hub_get_tree, "The same" },
	{ HTTP_POST, SCOPE_READ, PATHS_BODY_MAX, OLD "/paths-info/{rev}", hub_post_paths, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/commits/{rev}",               hub_get_commits, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/xet-read-token/{rev}",        no_xet,       "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/xet-write-token/{rev}",       no_xet,       "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/refs",                        hub_get_refs, "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD "/auth-check",                  auth_check,   "The same" },
	{ HTTP_GET,  SCOPE_READ, 0, REPO,                               hub_get_info, "A repository and its files at main" },
	{ HTTP_GET,  SCOPE_READ, 0, OLD,                                hub_get_info, "The same of a repository without an owner" },
	{ HTTP_GET,  SCOPE_READ, 0, "/api/{type}",                      hub_get_list, "This server's own repositories; author, search, limit" },
	{ HTTP_GET,  SCOPE_READ, 0, "/api/{rest...}",                   nothing,      "404: what a Hub has, and this server has not" },
};
/* clang-format on */

const struct face face_hub = {"hub", routes, COUNT(routes), hub_error_reply};
