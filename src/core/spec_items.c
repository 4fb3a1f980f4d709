/* spec_items.c - the parts of a specification that are more than a value in a place: credentials,
 * accelerators, variables, and the lists of maps. */
#include "core/spec_table.h"

#define ENV_VALUE_MAX SPEC_COMMAND_MAX
#define EXIT_PREFIX "exit:"

/* --- image.docker_auth --- */

struct docker_auth {
	const char *method, *registry;
	const char *secret[SPEC_AUTH_COUNT][2]; /* as many as the method has */
};

#define AUTH(member) offsetof(struct docker_auth, member)
#define AUTH_IF(method) .there = AUTH(secret[SPEC_AUTH_##method]), .there_kind = R_TEXT
#define NOT_HERE "use REGISTRY_SECRET with a user name and password"

/* clang-format off */
static const struct spec_field aws_iam_fields[] = {
	{.name = "access_key_secret_ref", .kind = SPEC_SECRET, .flags = SPEC_REQUIRED,
	 .at = AUTH(secret[SPEC_AUTH_AWS_IAM][0]),
	 .help = "the secret that holds the access key id"},
	{.name = "secret_access_key_secret_ref", .kind = SPEC_SECRET, .flags = SPEC_REQUIRED,
	 .at = AUTH(secret[SPEC_AUTH_AWS_IAM][1]),
	 .help = "the secret that holds the secret access key"},
};
static const struct spec_block aws_iam_block =
	SPEC_MAP("job.image.docker_auth.aws_iam_docker_auth", "For `AWS_IAM`.", aws_iam_fields);

static const struct spec_field gcp_json_fields[] = {
	{.name = "service_account_json_secret_ref", .kind = SPEC_SECRET, .flags = SPEC_REQUIRED,
	 .at = AUTH(secret[SPEC_AUTH_GCP_JSON][0]),
	 .help = "the secret that holds the JSON file"},
};
static const struct spec_block gcp_json_block =
	SPEC_MAP("job.image.docker_auth.gcp_service_account_json_docker_auth",
	      "For `GCP_SERVICE_ACCOUNT_JSON`.", gcp_json_fields);

static const struct spec_field registry_secret_fields[] = {
	{.name = "secret_ref", .kind = SPEC_SECRET, .flags = SPEC_REQUIRED,
	 .at = AUTH(secret[SPEC_AUTH_REGISTRY_SECRET][0]),
	 .help = "the secret that holds `username:password`, not base64-encoded"},
};
static const struct spec_block registry_secret_block =
	SPEC_MAP("job.image.docker_auth.registry_secret_docker_auth", "For `REGISTRY_SECRET`.",
	      registry_secret_fields);

static const struct spec_field docker_auth_fields[] = {
	{.name = "auth_method", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 40,
	 .at = AUTH(method),
	 .help = "REGISTRY_SECRET, AWS_IAM or GCP_SERVICE_ACCOUNT_JSON"},
	{.name = "registry", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 300,
	 .at = AUTH(registry), .help = "host name of the registry"},
	{.name = "registry_secret_docker_auth", .kind = SPEC_BLOCK, .flags = SPEC_SPARSE,
	 AUTH_IF(REGISTRY_SECRET), .block = &registry_secret_block, .help = "with REGISTRY_SECRET"},
	{.name = "aws_iam_docker_auth", .kind = SPEC_BLOCK, .flags = SPEC_SPARSE,
	 AUTH_IF(AWS_IAM), .block = &aws_iam_block, .help = "with AWS_IAM"},
	{.name = "gcp_service_account_json_docker_auth", .kind = SPEC_BLOCK,
	 .flags = SPEC_SPARSE, AUTH_IF(GCP_JSON), .block = &gcp_json_block,
	 .help = "with GCP_SERVICE_ACCOUNT_JSON"},
	{.name = "aws_oidc_docker_auth", .kind = SPEC_REFUSED, .help = NOT_HERE},
	{.name = "aws_assume_role_docker_auth", .kind = SPEC_REFUSED, .help = NOT_HERE},
	{.name = "gcp_oidc_docker_auth", .kind = SPEC_REFUSED, .help = NOT_HERE},
};
const struct spec_block spec_docker_auth_block =
	SPEC_MAP("job.image.docker_auth", "Credentials of a private registry.", docker_auth_fields);

/* The one object that goes with each method. */
static const struct {
	const char *method, *part;
} docker_methods[SPEC_AUTH_COUNT] = {
	[SPEC_AUTH_REGISTRY_SECRET] = {"REGISTRY_SECRET", "registry_secret_docker_auth"},
	[SPEC_AUTH_AWS_IAM] = {"AWS_IAM", "aws_iam_docker_auth"},
	[SPEC_AUTH_GCP_JSON] = {"GCP_SERVICE_ACCOUNT_JSON", "gcp_service_account_json_docker_auth"},
};
/* clang-format on */

static const char *const oidc_methods[] = {"AWS_OIDC", "GCP_OIDC", "AWS_ASSUME_ROLE", NULL};

static bool is_oidc(const char *method)
{
	for (size_t i = 0; oidc_methods[i] != NULL; i++) {
		if (str_ieq(str_of(method), oidc_methods[i]))
			return true;
	}
	return false;
}

void spec_read_docker_auth(struct spec_reader *r, const struct doc *d, void *base)
{
	struct docker_auth got = {0};
	struct job_spec *s = base;

	spec_read_block(r, &spec_docker_auth_block, d, &got);
	if (got.method == NULL)
		return;
	for (enum spec_registry_auth i = SPEC_AUTH_NONE + 1; i < SPEC_AUTH_COUNT; i++) {
		const struct doc *part = doc_get(d, docker_methods[i].part);

		if (!str_ieq(str_of(got.method), docker_methods[i].method)) {
			if (spec_given(part))
				spec_fault_at(r, part, docker_methods[i].part,
				              "cannot be used with auth_method %.40s", got.method);
			continue;
		}
		s->registry_auth = i;
		if (!spec_given(part))
			spec_fault_at(r, d, docker_methods[i].part,
			              "is missing: auth_method %s needs it",
			              docker_methods[i].method);
	}
	s->registry = got.registry;
	s->registry_secret = got.secret[s->registry_auth][0];
	s->registry_secret2 = got.secret[s->registry_auth][1];
	if (s->registry_auth == SPEC_AUTH_NONE && is_oidc(got.method))
		spec_fault_at(r, doc_get(d, "auth_method"), "auth_method",
		              "%.40s is not offered by this server: " NOT_HERE, got.method);
	else if (s->registry_auth == SPEC_AUTH_NONE)
		spec_fault_at(r, doc_get(d, "auth_method"), "auth_method",
		              "should be REGISTRY_SECRET, AWS_IAM or GCP_SERVICE_ACCOUNT_JSON");
}

void spec_write_docker_auth(struct js *js, const void *base)
{
	const struct job_spec *s = base;
	struct docker_auth auth = {.method = docker_methods[s->registry_auth].method,
	                           .registry = s->registry};

	auth.secret[s->registry_auth][0] = s->registry_secret;
	auth.secret[s->registry_auth][1] = s->registry_secret2;
	spec_write_block(js, &spec_docker_auth_block, &auth);
}

/* --- compute --- */

/* False after a fault. A stored type is what it is, known to this version or not. */
static bool read_gpus(struct spec_reader *r, struct str text, struct job_spec *s, struct err *err)
{
	if (spec_accelerator(r->a, text, &s->gpu_type, &s->gpu_count, err) == 0)
		return true;
	if (spec_judges(r))
		return false;
	s->gpu_type = arena_strz(r->a, text);
	s->gpu_count = 1;
	return true;
}

void spec_read_accelerator(struct spec_reader *r, const struct doc *d, void *base)
{
	const struct doc *type = doc_get(d, "accelerator"), *count = doc_get(d, "count");
	struct job_spec *s = base;
	struct err err = {0};

	if (d->kind == DOC_TEXT) {
		if (!read_gpus(r, d->text, s, &err))
			spec_fault(r, d, "%.250s", err.msg);
		return;
	}
	if (d->kind != DOC_MAP) {
		spec_unreadable(r, d, "should be text like \"H200:8\", not %s",
		                doc_kind_name(d->kind));
		return;
	}
	DOC_EACH (child, d) {
		if (!str_eq(child->key, "accelerator") && !str_eq(child->key, "count"))
			spec_fault(
				r, child,
				"takes only the keys \"accelerator\" and \"count\", not \"%.*s\"",
				(int)MIN(child->key.n, (size_t)60), child->key.p);
	}
	if (!spec_given(type))
		return; /* none: what clients send for "no GPU" */
	if (type->kind != DOC_TEXT) {
		spec_fault_at(r, type, "accelerator", "should be text, not %s",
		              doc_kind_name(type->kind));
		return;
	}
	if (memchr(type->text.p, ':', type->text.n) != NULL && spec_given(count)) {
		spec_fault_at(r, type, "accelerator",
		              "contains a count, but \"count\" is given too");
		return;
	}
	if (!read_gpus(r, type->text, s, &err)) {
		spec_fault_at(r, type, "accelerator", "%.250s", err.msg);
		return;
	}
	if (!spec_given(count))
		return;
	if (count->kind != DOC_INT || count->num < 1 || count->num > SPEC_GPUS_MAX) /* bits */
		spec_fault_at(r, count, "count", "should be a whole number from 1 to %d",
		              SPEC_GPUS_MAX);
	else
		s->gpu_count = (uint32_t)count->num;
}

void spec_write_accelerator(struct js *js, const void *base)
{
	const struct job_spec *s = base;

	js_open(js);
	js_kv(js, "accelerator", s->gpu_type);
	js_kv_u64(js, "count", s->gpu_count);
	js_close(js);
}

void spec_read_availability(struct spec_reader *r, const struct doc *d, void *base)
{
	struct job_spec *s = base;

	if (str_ieq(doc_text(d), "spot"))
		s->spot = true;
	else if (!str_ieq(doc_text(d), "dedicated"))
		spec_fault(r, d, "should be \"dedicated\" or \"spot\"");
}

void spec_write_availability(struct js *js, const void *base)
{
	js_cstr(js, ((const struct job_spec *)base)->spot ? "spot" : "dedicated");
}

/* --- runtime --- */

static bool env_name_ok(struct str name)
{
	if (name.n == 0 || name.n > SPEC_NAME_MAX || (name.p[0] >= '0' && name.p[0] <= '9'))
		return false;
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		      c == '_' || c == '-' || c == '.'))
			return false;
	}
	return true;
}

/* A variable may be empty, which no other text may. */
static void read_variable(struct spec_reader *r, const struct doc *d, struct spec_env *out)
{
	out->name = arena_strz(r->a, d->key);
	if (d->kind == DOC_MAP)
		out->secret = spec_read_secret(r, d);
	else if (d->kind == DOC_TEXT && d->text.n == 0)
		out->value = "";
	else if (d->kind == DOC_TEXT)
		out->value = spec_read_text(r, d, ENV_VALUE_MAX);
	else
		spec_unreadable(r, d, "should be text or { secret: NAME }, not %s%s",
		                doc_kind_name(d->kind),
		                d->kind == DOC_LIST ? "" : ": put it in quotes");
}

void spec_read_env(struct spec_reader *r, const struct doc *d, void *base)
{
	struct job_spec *s = base;

	if (d->kind != DOC_MAP) {
		spec_unreadable(r, d, "should be a map of names to values, not %s",
		                doc_kind_name(d->kind));
		return;
	}
	if (spec_judges(r) && d->count > SPEC_ENV_MAX) {
		spec_fault(r, d, "has %zu variables; the limit is %d", d->count, SPEC_ENV_MAX);
		return;
	}
	s->env = ARENA_ARRAY(r->a, struct spec_env, d->count);
	DOC_EACH (child, d) {
		struct spec_env *e = &s->env[s->n_env];
		struct doc at = {.line = child->key_line, .col = child->key_col};
		char *name = arena_printf(r->a, "%.*s", (int)MIN(child->key.n, (size_t)80),
		                          child->key.p);
		size_t mark = spec_push(r, name);

		if (spec_judges(r) && !env_name_ok(child->key))
			spec_fault(r, &at,
			           "is not a valid variable name: use letters, digits, _ . - "
			           "and do not start with a digit");
		else
			read_variable(r, child, e);
		if (e->value != NULL || e->secret != NULL)
			s->n_env++;
		spec_pop(r, mark);
	}
}

void spec_write_env(struct js *js, const void *base)
{
	const struct job_spec *s = base;

	js_open(js);
	for (size_t i = 0; i < s->n_env; i++) {
		js_key(js, s->env[i].name);
		if (s->env[i].secret != NULL)
			spec_write_secret(js, s->env[i].secret);
		else
			js_cstr(js, s->env[i].value);
	}
	js_close(js);
}

/* Deprecated: alone it stands for a cache_config, beside one it is a mistake. The rules see to
 * that, when both have been read. */
void spec_read_enable_cache(struct spec_reader *r, const struct doc *d, void *base)
{
	(void)base;
	if (d->kind != DOC_BOOL)
		spec_unreadable(r, d, "should be true or false, not %s", doc_kind_name(d->kind));
}

/* clang-format off */
static const struct spec_field artifact_fields[] = {
	{.name = "s3_bucket", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 255,
	 .at = offsetof(struct spec_artifact, bucket), .help = "bucket that holds the code"},
	{.name = "s3_key", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 1024,
	 .at = offsetof(struct spec_artifact, key), .help = "key of the code in the bucket"},
};
/* clang-format on */
const struct spec_block spec_artifact_block =
	SPEC_ITEM("job.runtime.artifacts[]", "Code uploaded by the client.", artifact_fields,
                  struct spec_artifact);

/* --- runtime.load_checkpoint_config.checkpoints --- */

#define TYP_LATEST "baseten_latest_checkpoint"
#define TYP_NAMED "baseten_named_checkpoint"

static void write_typ(struct js *js, const void *base)
{
	js_cstr(js, ((const struct spec_load *)base)->latest ? TYP_LATEST : TYP_NAMED);
}

/* clang-format off */
#define LOAD(member) offsetof(struct spec_load, member)
static const struct spec_field latest_fields[] = {
	{.name = "project", .kind = SPEC_NAME, .at = LOAD(project),
	 .help = "newest job of this project"},
	{.name = "job", .kind = SPEC_NAME, .at = LOAD(job), .help = "this job, by its id"},
};
static const struct spec_field named_fields[] = {
	{.name = "job", .kind = SPEC_NAME, .flags = SPEC_REQUIRED, .at = LOAD(job),
	 .help = "id of the job"},
	{.name = "name", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 500, .at = LOAD(name),
	 .help = "name of the checkpoint: checkpoint-100"},
	{.name = "project", .kind = SPEC_NAME, .at = LOAD(project),
	 .help = "the project of the job"},
};
static const struct spec_field latest_typ_fields[] = {
	{.name = "typ", .kind = SPEC_IGNORED, .write = write_typ, .help = TYP_LATEST},
	{.name = "project_name", .kind = SPEC_NAME, .at = LOAD(project),
	 .help = "newest job of this project"},
	{.name = "job_id", .kind = SPEC_NAME, .at = LOAD(job), .help = "this job"},
};
static const struct spec_field named_typ_fields[] = {
	{.name = "typ", .kind = SPEC_IGNORED, .write = write_typ, .help = TYP_NAMED},
	{.name = "job_id", .kind = SPEC_NAME, .flags = SPEC_REQUIRED, .at = LOAD(job),
	 .help = "id of the job"},
	{.name = "checkpoint_name", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 500,
	 .at = LOAD(name), .help = "name of the checkpoint"},
	{.name = "project_name", .kind = SPEC_NAME, .at = LOAD(project),
	 .help = "the project of the job"},
};
#undef LOAD
static const struct spec_block latest_block =
	SPEC_MAP("job.runtime.load_checkpoint_config.checkpoints[].latest",
	         "The newest complete checkpoint.", latest_fields);
static const struct spec_block named_block =
	SPEC_MAP("job.runtime.load_checkpoint_config.checkpoints[].named",
	         "One checkpoint of a job.", named_fields);
static const struct spec_block latest_typ_block =
	SPEC_MAP(TYP_LATEST, "As clients write it.", latest_typ_fields);
static const struct spec_block named_typ_block =
	SPEC_MAP(TYP_NAMED, "As clients write it.", named_typ_fields);

static const struct spec_field ref_fields[] = {
	{.name = "latest", .kind = SPEC_BLOCK, .block = &latest_block,
	 .help = "`{ latest: { project, job } }`: the newest complete checkpoint; if empty, "
	         "of this project"},
	{.name = "named", .kind = SPEC_BLOCK, .block = &named_block,
	 .help = "`{ named: { job, name } }`: one checkpoint of a job"},
	{.name = "typ", .kind = SPEC_IGNORED,
	 .help = "the form that clients send: `baseten_latest_checkpoint` with project_name and job_id, "
	         "`baseten_named_checkpoint` with job_id and checkpoint_name"},
};
/* clang-format on */

static void read_ref(struct spec_reader *r, const struct doc *d, void *item, size_t i UNUSED)
{
	const struct doc *typ = doc_get(d, "typ"), *latest = doc_get(d, "latest");
	const struct doc *named = doc_get(d, "named");
	struct spec_load *out = item;

	if (spec_given(typ) && str_eq(doc_text(typ), TYP_LATEST)) {
		out->latest = true;
		spec_read_block(r, &latest_typ_block, d, out);
	} else if (spec_given(typ) && str_eq(doc_text(typ), TYP_NAMED)) {
		spec_read_block(r, &named_typ_block, d, out);
	} else if (spec_given(typ) && str_eq(doc_text(typ), "loops_checkpoint")) {
		spec_unreadable(r, d,
		                "loops_checkpoint is not offered by this server: load from a job, "
		                "by baseten_latest_checkpoint or baseten_named_checkpoint");
	} else if (spec_given(typ)) {
		size_t mark = spec_push(r, "typ");

		spec_unreadable(r, typ, "should be " TYP_LATEST " or " TYP_NAMED);
		spec_pop(r, mark);
	} else if (d->kind == DOC_MAP && d->count == 1 && (latest != NULL || named != NULL)) {
		size_t mark = spec_push(r, latest != NULL ? "latest" : "named");

		out->latest = latest != NULL;
		if (latest == NULL && !spec_given(named))
			spec_unreadable(r, named, "should be { job: ID, name: CHECKPOINT }");
		else
			spec_read_block(r, latest != NULL ? &latest_block : &named_block,
			                latest != NULL ? latest : named, out);
		spec_pop(r, mark);
	} else {
		spec_unreadable(r, d,
		                "should be { latest: { project: NAME } } or "
		                "{ named: { job: ID, name: CHECKPOINT } }");
	}
}

/* As clients write it. */
static void write_ref(struct js *js, const void *item)
{
	const struct spec_load *ref = item;

	spec_write_block(js, ref->latest ? &latest_typ_block : &named_typ_block, ref);
}

const struct spec_block spec_ref_block =
	SPEC_ITEM("job.runtime.load_checkpoint_config.checkpoints[]",
                  "What is fetched before user code starts; one of:", ref_fields, struct spec_load,
                  .read = read_ref, .write = write_ref);

/* --- truss_user_env --- */

/* The client's description of itself is accepted as it is: nothing depends on it. */
void spec_read_user_env(struct spec_reader *r, const struct doc *d, void *base)
{
	const struct doc *info = doc_get(d, "git_info"), *sha = doc_get(info, "latest_commit_sha");
	struct job_spec *s = base;

	if (s->git.commit != NULL || !doc_is(sha, DOC_TEXT) || sha->text.n == 0 ||
	    sha->text.n > 100 || memchr(sha->text.p, '\0', sha->text.n) != NULL)
		return;
	s->git.commit = arena_strz(r->a, sha->text);
	s->git.dirty = doc_bool(doc_get(info, "has_uncommitted_changes"), false);
}

/* --- interactive_session --- */

#define SESSION_DEMAND "on_demand"

struct session {
	const char *trigger;
};

/* clang-format off */
static const struct spec_field session_fields[] = {
	{.name = "trigger", .kind = SPEC_TEXT, .max = 40, .at = offsetof(struct session, trigger),
	 .dflt = SESSION_DEMAND, .help = "on_demand: open a session with `stoker exec` while the job runs"},
	{.name = "timeout_minutes", .kind = SPEC_IGNORED, .help = "a session ends when its job ends"},
	{.name = "session_provider", .kind = SPEC_IGNORED, .help = "`stoker exec` is the only provider"},
	{.name = "auth_provider", .kind = SPEC_IGNORED, .help = "the caller's token is used"},
};
/* clang-format on */
const struct spec_block spec_session_block =
	SPEC_MAP("job.interactive_session",
                 "A shell in the running job; `stoker push` prints the command.", session_fields);

void spec_read_session(struct spec_reader *r, const struct doc *d, void *base)
{
	struct job_spec *s = base;
	struct session got = {0};

	spec_read_block(r, &spec_session_block, d, &got);
	if (got.trigger == NULL)
		return;
	if (strcmp(got.trigger, SESSION_DEMAND) == 0)
		s->session_on_demand = true;
	else
		spec_fault(r, d,
		           "with trigger %.40s is not offered by this server: use `stoker exec` to "
		           "get a shell in a running job",
		           got.trigger);
}

void spec_write_session(struct js *js, const void *base UNUSED)
{
	spec_write_block(js, &spec_session_block, &(struct session){SESSION_DEMAND});
}

/* --- retry --- */

void spec_read_retry_on(struct spec_reader *r, const struct doc *d, void *base)
{
	struct spec_retry *retry = &((struct job_spec *)base)->retry;
	const struct doc *list = spec_read_list(r, d, 2 * COUNT(retry->exit_codes));
	size_t i = 0;

	if (list != NULL && list->count == 0)
		spec_fault(r, list, "is empty: remove \"retry\"");
	DOC_EACH (item, list) {
		size_t mark = spec_push_index(r, i++);
		struct str word = doc_text(item);
		struct err err = {0};
		uint64_t code = 0;

		if (str_eq(word, "node_fail")) {
			retry->on_lost = true;
		} else if (str_eq(word, "failure")) {
			retry->on_failure = true;
		} else if (str_eq(word, "preempted")) {
			/* Nothing is preempted here: true of every job that there is. */
		} else if (!str_starts(word, EXIT_PREFIX) ||
		           str_u64(str_skip(word, sizeof(EXIT_PREFIX) - 1), 1, 255, &code, &err) <
		                   0) {
			spec_fault(r, item,
			           "should be node_fail, failure, preempted or \"exit:N\" with N "
			           "from 1 to 255");
		} else if (retry->n_exit_codes == COUNT(retry->exit_codes)) {
			spec_fault(r, item, "is one exit code too many; the limit is %zu",
			           COUNT(retry->exit_codes));
		} else {
			retry->exit_codes[retry->n_exit_codes++] = (int)code;
		}
		spec_pop(r, mark);
	}
	retry->wanted = retry->on_lost || retry->on_failure || retry->n_exit_codes > 0;
}

void spec_write_retry_on(struct js *js, const void *base)
{
	const struct spec_retry *retry = &((const struct job_spec *)base)->retry;

	js_list(js);
	if (retry->on_lost)
		js_cstr(js, "node_fail");
	if (retry->on_failure)
		js_cstr(js, "failure");
	for (size_t i = 0; i < retry->n_exit_codes; i++)
		js_fmt(js, EXIT_PREFIX "%d", retry->exit_codes[i]);
	js_end(js);
}
