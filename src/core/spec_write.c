/* spec_write.c - a specification as the JSON that the API takes, and one value set in a tree. */
#include "core/notify.h"
#include "core/spec_table.h"

#include "base/yaml.h"

#define SET_STEPS_MAX 16  /* of a path of --set */
#define SET_INDEX_MAX 999 /* of one [n] */

/* The largest unit that says it exactly. */
static void write_bytes(struct js *js, const char *key, uint64_t bytes)
{
	static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti"};
	size_t u = 0;

	while (bytes > 0 && bytes % 1024 == 0 && u + 1 < COUNT(units)) {
		bytes /= 1024;
		u++;
	}
	js_key(js, key);
	js_fmt(js, "%" PRIu64 "%s", bytes, units[u]);
}

static void write_texts(struct js *js, const char *key, const char *const *text, size_t n)
{
	js_key(js, key);
	js_list(js);
	for (size_t i = 0; i < n; i++)
		js_cstr(js, text[i]);
	js_end(js);
}

static void write_secret(struct js *js, const char *key, const char *name)
{
	js_key(js, key);
	js_open(js);
	js_kv(js, "name", name);
	js_close(js);
}

static void write_image(const struct job_spec *s, struct js *js)
{
	js_key(js, "image");
	js_open(js);
	js_kv(js, "base_image", s->base_image);
	js_key(js, "docker_auth");
	if (s->registry_auth == SPEC_AUTH_NONE) {
		js_null(js);
		js_close(js);
		return;
	}
	js_open(js);
	js_kv(js, "registry", s->registry);
	switch (s->registry_auth) {
	case SPEC_AUTH_REGISTRY_SECRET:
		js_kv(js, "auth_method", "REGISTRY_SECRET");
		js_key(js, "registry_secret_docker_auth");
		js_open(js);
		write_secret(js, "secret_ref", s->registry_secret);
		js_close(js);
		break;
	case SPEC_AUTH_AWS_IAM:
		js_kv(js, "auth_method", "AWS_IAM");
		js_key(js, "aws_iam_docker_auth");
		js_open(js);
		write_secret(js, "access_key_secret_ref", s->registry_secret);
		write_secret(js, "secret_access_key_secret_ref", s->registry_secret2);
		js_close(js);
		break;
	case SPEC_AUTH_GCP_JSON:
		js_kv(js, "auth_method", "GCP_SERVICE_ACCOUNT_JSON");
		js_key(js, "gcp_service_account_json_docker_auth");
		js_open(js);
		write_secret(js, "service_account_json_secret_ref", s->registry_secret);
		js_close(js);
		break;
	case SPEC_AUTH_NONE:
		break;
	}
	js_close(js);
	js_close(js);
}

static void write_compute(const struct job_spec *s, struct js *js)
{
	js_key(js, "compute");
	js_open(js);
	js_kv_u64(js, "node_count", s->node_count);
	if (s->cpu_count == (double)(uint32_t)s->cpu_count)
		js_kv_u64(js, "cpu_count", (uint32_t)s->cpu_count);
	else
		js_kv_real(js, "cpu_count", s->cpu_count);
	write_bytes(js, "memory", s->memory_bytes);
	js_key(js, "accelerator");
	if (s->gpu_type != NULL) {
		js_open(js);
		js_kv(js, "accelerator", s->gpu_type);
		js_kv_u64(js, "count", s->gpu_count);
		js_close(js);
	} else {
		js_null(js);
	}
	js_kv(js, "availability_model", s->spot ? "spot" : "dedicated");
	js_close(js);
}

static void write_env(const struct job_spec *s, struct js *js)
{
	js_key(js, "environment_variables");
	js_open(js);
	for (size_t i = 0; i < s->n_env; i++) {
		if (s->env[i].secret != NULL)
			write_secret(js, s->env[i].name, s->env[i].secret);
		else
			js_kv(js, s->env[i].name, s->env[i].value);
	}
	js_close(js);
}

static void write_load(const struct job_spec *s, struct js *js)
{
	js_key(js, "load_checkpoint_config");
	js_open(js);
	js_kv_bool(js, "enabled", s->load.enabled);
	js_key(js, "checkpoints");
	js_list(js);
	for (size_t i = 0; i < s->load.n_refs; i++) {
		const struct spec_load *l = &s->load.refs[i];

		js_open(js);
		js_kv(js, "typ",
		      l->latest ? "baseten_latest_checkpoint" : "baseten_named_checkpoint");
		if (!l->latest)
			js_kv(js, "checkpoint_name", l->name);
		js_kv(js, "job_id", l->job);
		js_kv(js, "project_name", l->project);
		js_close(js);
	}
	js_end(js);
	js_kv(js, "download_folder", s->load.folder);
	js_kv_bool(js, "required", s->load.required);
	js_close(js);
}

static void write_ckpt(const struct job_spec *s, struct js *js)
{
	js_key(js, "checkpointing_config");
	js_open(js);
	js_kv_bool(js, "enabled", s->ckpt.enabled);
	js_kv(js, "checkpoint_path", s->ckpt.path);
	if (s->ckpt.volume_bytes > 0)
		js_kv_u64(js, "volume_size_gib", s->ckpt.volume_bytes >> 30);
	else
		js_kv_null(js, "volume_size_gib");
	js_kv_u64(js, "keep_last", s->ckpt.keep_last);
	if (s->ckpt.settle_s > 0)
		js_kv_u64(js, "settle", s->ckpt.settle_s);
	if (s->ckpt.marker != NULL)
		js_kv(js, "marker", s->ckpt.marker);
	js_close(js);
}

static void write_runtime(const struct job_spec *s, struct js *js)
{
	js_key(js, "runtime");
	js_open(js);
	write_texts(js, "start_commands", s->commands, s->n_commands);
	write_env(s, js);
	spec_write_python(s, js);
	js_key(js, "cache_config");
	js_open(js);
	js_kv_bool(js, "enabled", s->cache.enabled);
	js_kv_bool(js, "enable_legacy_hf_mount", s->cache.legacy_hf_mount);
	js_kv_bool(js, "require_cache_affinity", s->cache.require_affinity);
	js_kv(js, "mount_base_path", s->cache.base_path);
	js_close(js);
	write_ckpt(s, js);
	write_load(s, js);
	js_key(js, "artifacts");
	js_list(js);
	for (size_t i = 0; i < s->n_artifacts; i++) {
		js_open(js);
		js_kv(js, "s3_bucket", s->artifacts[i].bucket);
		js_kv(js, "s3_key", s->artifacts[i].key);
		js_close(js);
	}
	js_end(js);
	js_close(js);
}

static void write_weights(const struct job_spec *s, struct js *js)
{
	js_key(js, "weights");
	js_list(js);
	for (size_t i = 0; i < s->n_weights; i++) {
		const struct spec_weights *w = &s->weights[i];

		js_open(js);
		js_kv(js, "source", w->source);
		if (w->endpoint != NULL)
			js_kv(js, "endpoint", w->endpoint);
		js_kv(js, "mount_location", w->mount_location);
		js_kv(js, "auth_secret_name", w->secret);
		write_texts(js, "allow_patterns", w->allow, w->n_allow);
		write_texts(js, "ignore_patterns", w->ignore, w->n_ignore);
		js_close(js);
	}
	js_end(js);
}

static void write_git(const struct job_spec *s, struct js *js)
{
	js_key(js, "git");
	js_open(js);
	js_kv(js, "commit", s->git.commit);
	if (s->git.branch != NULL)
		js_kv(js, "branch", s->git.branch);
	if (s->git.remote != NULL)
		js_kv(js, "remote", s->git.remote);
	js_kv_bool(js, "dirty", s->git.dirty);
	js_close(js);
}

static void write_retry(const struct spec_retry *retry, struct js *js)
{
	js_key(js, "retry");
	if (!retry->on_lost && !retry->on_failure && retry->n_exit_codes == 0) {
		js_null(js);
		return;
	}
	js_open(js);
	js_key(js, "on");
	js_list(js);
	if (retry->on_lost)
		js_cstr(js, "node_fail");
	if (retry->on_failure)
		js_cstr(js, "failure");
	for (size_t i = 0; i < retry->n_exit_codes; i++)
		js_fmt(js, "exit:%d", retry->exit_codes[i]);
	js_end(js);
	js_kv_u64(js, "max_attempts", retry->max_attempts);
	js_close(js);
}

static void write_notify(const struct job_spec *s, struct js *js)
{
	js_key(js, "notify");
	js_list(js);
	for (size_t i = 0; i < s->n_notify; i++) {
		js_open(js);
		js_kv(js, "webhook", s->notify[i].webhook);
		js_key(js, "on");
		js_list(js);
		for (enum notify_on on = 0; on < NOTIFY_COUNT; on++) {
			if ((s->notify[i].on & 1U << on) != 0)
				js_cstr(js, notify_words[on]);
		}
		js_end(js);
		js_close(js);
	}
	js_end(js);
}

void spec_write(const struct job_spec *s, struct js *js)
{
	js_open(js);
	js_kv(js, "name", s->name);
	js_kv_int(js, "priority", s->priority);
	write_image(s, js);
	write_compute(s, js);
	write_runtime(s, js);
	write_weights(s, js);
	js_kv_bool(js, "enable_baseten_workdir", s->workdir);
	if (s->session_on_demand) {
		js_key(js, "interactive_session");
		js_open(js);
		js_kv(js, "trigger", "on_demand");
		js_close(js);
	}
	write_retry(&s->retry, js);
	if (s->n_notify > 0)
		write_notify(s, js);
	if (s->git.commit != NULL)
		write_git(s, js);
	js_key(js, "limits");
	js_open(js);
	js_kv_u64(js, "max_duration", s->max_duration_s);
	js_kv_u64(js, "stop_grace", s->grace_s);
	js_kv_u64(js, "idle_gpu", s->idle_gpu_s);
	js_close(js);
	js_close(js);
}

/* --- spec_set --- */

/* Line and column of a value from the command line would be taken for those of the file. */
static struct doc *without_positions(struct arena *a, const struct doc *d)
{
	struct doc *copy = ARENA_NEW(a, struct doc);
	struct doc **tail = &copy->first;

	*copy = *d;
	copy->line = copy->col = copy->key_line = copy->key_col = 0;
	copy->next = NULL;
	*tail = NULL;
	DOC_EACH (child, d) {
		*tail = without_positions(a, child);
		tail = &(*tail)->next;
	}
	return copy;
}

/* The next step of a path: a key up to '.' or '[', or "[n]". */
static int next_step(struct str *path, struct str *key, size_t *index, struct err *err)
{
	size_t n = 0;
	uint64_t i;

	if (path->n > 0 && path->p[0] == '[') {
		const char *close = memchr(path->p, ']', path->n);
		struct err bad = {0};

		if (close == NULL || str_u64(str_n(path->p + 1, (size_t)(close - path->p) - 1), 0,
		                             SET_INDEX_MAX, &i, &bad) < 0)
			return err_set(err, ERR_INVALID, "\"%.*s\" should be like [0], up to [%d]",
			               (int)MIN(path->n, (size_t)40), path->p, SET_INDEX_MAX);
		*index = (size_t)i;
		*key = (struct str){0};
		*path = str_skip(*path, (size_t)(close - path->p) + 1);
	} else {
		while (n < path->n && path->p[n] != '.' && path->p[n] != '[')
			n++;
		if (n == 0)
			return err_set(err, ERR_INVALID, "the path contains an empty part");
		*key = str_n(path->p, n);
		*path = str_skip(*path, n);
	}
	if (path->n > 0 && path->p[0] == '.') {
		*path = str_skip(*path, 1);
		if (path->n == 0)
			return err_set(err, ERR_INVALID, "the path ends with a dot");
	}
	return 0;
}

static bool is_step(const struct doc *child, struct str key, size_t at, size_t index)
{
	return key.n > 0 ? str_same(child->key, key) : at == index;
}

/* A copy of `old` (NULL: nothing there) in which what `path` names is `value`. Only the nodes on
 * the way are new. */
static int set_at(struct arena *a, const struct doc *old, struct str path, const struct doc *value,
                  unsigned depth, const struct doc **out, struct err *err)
{
	enum doc_kind want;
	struct doc *copy, **tail;
	struct str key;
	size_t index = 0, at = 0;
	bool found = false;

	if (path.n == 0) {
		*out = value;
		return 0;
	}
	if (depth == SET_STEPS_MAX)
		return err_set(err, ERR_INVALID, "the path has more than %d parts", SET_STEPS_MAX);
	if (next_step(&path, &key, &index, err) < 0)
		return -1;
	want = key.n > 0 ? DOC_MAP : DOC_LIST;
	if (old != NULL && old->kind != DOC_NULL && old->kind != want)
		return err_set(err, ERR_INVALID, "the path leads through %s, where %s is expected",
		               doc_kind_name(old->kind), doc_kind_name(want));
	copy = ARENA_NEW(a, struct doc);
	if (old != NULL)
		*copy = *old;
	copy->kind = want;
	copy->first = copy->next = NULL;
	copy->count = 0;
	tail = &copy->first;
	for (const struct doc *child = old != NULL && old->kind == want ? old->first : NULL;
	     child != NULL || !found; child = child != NULL ? child->next : NULL) {
		bool here = child != NULL && is_step(child, key, at, index);
		const struct doc *node = child;

		if (child == NULL && key.n == 0 && index != at)
			return err_set(err, ERR_INVALID, "[%zu] is past the end of a list of %zu",
			               index, at);
		if (here || child == NULL) {
			found = true;
			if (set_at(a, child, path, value, depth + 1, &node, err) < 0)
				return -1;
		}
		*tail = ARENA_NEW(a, struct doc);
		**tail = *node;
		(*tail)->next = NULL;
		if (here || child == NULL)
			(*tail)->key = child != NULL ? child->key : arena_str(a, key);
		tail = &(*tail)->next;
		copy->count++;
		at++;
	}
	*out = copy;
	return 0;
}

int spec_set(struct arena *a, const struct doc **root, struct str path, struct str value,
             struct err *err)
{
	const struct doc *parsed, *set;

	if (path.n == 0)
		return err_set(err, ERR_INVALID, "the path of a value to set is empty");
	if (yml_parse(a, value, &parsed, err) < 0)
		return err_wrap(err, "the value of %.*s", (int)MIN(path.n, (size_t)SPEC_PATH_CAP),
		                path.p);
	if (set_at(a, *root, path, without_positions(a, parsed), 0, &set, err) < 0)
		return err_wrap(err, "%.*s", (int)MIN(path.n, (size_t)SPEC_PATH_CAP), path.p);
	*root = set;
	return 0;
}
