/* spec.c - reading a specification as a whole, its problems, and the small words in it. */
#include "core/spec.h"

#include "core/ckpt.h"

#include "core/spec_table.h"

#include "base/conf.h"
#include "base/fs.h"

#define PROBLEMS_TEXT_MAX 1900

/* Sorted by bytes. What truss knows, and what people have at home and in their racks. */
const char *const spec_gpu_types[] = {
	"A10",       "A100",      "A100_40GB",    "A10G",     "A2",       "A30",       "A40",
	"B10",       "B200",      "B300",         "GB200",    "GB300",    "GH200",     "H100",
	"H100_40GB", "H20",       "H200",         "INF2",     "L4",       "L40",       "L40S",
	"MI210",     "MI250X",    "MI300X",       "MI325X",   "MI355X",   "P100",      "P40",
	"RTX_2080",  "RTX_3060",  "RTX_3070",     "RTX_3080", "RTX_3090", "RTX_4070",  "RTX_4080",
	"RTX_4090",  "RTX_5070",  "RTX_5080",     "RTX_5090", "RTX_6000", "RTX_A2000", "RTX_A4000",
	"RTX_A5000", "RTX_A6000", "RTX_PRO_6000", "T4",       "TRN1",     "TRN2",      "V100",
	NULL,
};

PRINTF(5, 0)
static void add(struct spec_problems *p, enum err_code id, const struct doc *at, const char *path,
                const char *fmt, va_list ap)
{
	struct spec_problem *one;

	if (p->n == SPEC_PROBLEMS_MAX) {
		p->dropped++;
		return;
	}
	one = &p->item[p->n++];
	*one = (struct spec_problem){
		.id = id,
		.line = at != NULL ? at->line : 0,
		.col = at != NULL ? at->col : 0,
	};
	copy_cut(one->path, sizeof(one->path), path);
	(void)vsnprintf(one->text, sizeof(one->text), fmt, ap); /* shown only: cut to fit */
}

void spec_problem_add(struct spec_problems *p, const struct doc *at, const char *path,
                      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(p, ERR_SPEC_INVALID, at, path, fmt, ap);
	va_end(ap);
}

void spec_problem_add_id(struct spec_problems *p, enum err_code id, const struct doc *at,
                         const char *path, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(p, id, at, path, fmt, ap);
	va_end(ap);
}

void spec_problem_text(const struct spec_problem *one, const char *file, struct buf *out)
{
	if (file != NULL && one->line > 0)
		buf_printf(out, "%.200s:%u:%u: ", file, one->line, one->col);
	else if (file != NULL)
		buf_printf(out, "%.200s: ", file);
	buf_printf(out, "%s%s%s", one->path, one->path[0] != '\0' ? ": " : "", one->text);
}

static enum err_code shared_id(const struct spec_problems *p)
{
	for (size_t i = 1; i < p->n; i++) {
		if (p->item[i].id != p->item[0].id)
			return ERR_SPEC_INVALID;
	}
	return p->item[0].id;
}

void spec_problems_text(const struct spec_problems *p, const char *file, struct err *err)
{
	AUTO_BUF struct buf text = BUF_INIT(ERR_MSG_MAX);
	size_t shown = 0;

	assert(p->n > 0);
	for (; shown < p->n; shown++) {
		const struct spec_problem *one = &p->item[shown];
		AUTO_BUF struct buf line = BUF_INIT(PROBLEMS_TEXT_MAX);

		spec_problem_text(one, file, &line);
		if (text.n + line.n + 1 > PROBLEMS_TEXT_MAX - 40)
			break; /* the rest is counted */
		buf_printf(&text, "%s%s", shown > 0 ? "\n" : "", buf_cstr(&line));
	}
	if (p->n + p->dropped > shown)
		buf_printf(&text, "\n... and %zu more", p->n + p->dropped - shown);
	err_set(err, shared_id(p), "%s", buf_cstr(&text));
}

void spec_problems_json(const struct spec_problems *p, struct js *js)
{
	js_list(js);
	for (size_t i = 0; i < p->n; i++) {
		const struct spec_problem *one = &p->item[i];

		js_open(js);
		js_kv(js, "path", one->path);
		js_kv(js, "message", one->text);
		if (one->line > 0) {
			js_kv_u64(js, "line", one->line);
			js_kv_u64(js, "column", one->col);
		}
		js_close(js);
	}
	js_end(js);
}

/* Names are for people: any text of one line that shows where it starts and ends. Ids, not names,
 * go into paths and keys, so a slash is as good as any ("demo/qwen3-0.6b"). */
const char *spec_own_hub(const struct job_spec *s)
{
	static const char *const names[] = {"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};

	for (size_t i = 0; i < s->n_env; i++)
		for (size_t k = 0; k < COUNT(names); k++)
			if (strcmp(s->env[i].name, names[k]) == 0)
				return names[k];
	return NULL;
}

bool spec_name_ok(struct str name)
{
	if (name.n == 0 || name.n > SPEC_NAME_MAX || str_trim(name).n != name.n ||
	    !str_is_utf8(name))
		return false;
	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (c < ' ' || c == 127)
			return false;
	}
	return true;
}

static const char *gpu_type(struct str word)
{
	for (size_t i = 0; spec_gpu_types[i] != NULL; i++) {
		if (str_ieq(word, spec_gpu_types[i]))
			return spec_gpu_types[i];
	}
	return NULL;
}

int spec_accelerator(struct arena *a, struct str text, const char **type, uint32_t *count,
                     struct err *err)
{
	const char *colon = text.n > 0 ? memchr(text.p, ':', text.n) : NULL;
	struct str word = colon != NULL ? str_n(text.p, (size_t)(colon - text.p)) : text;
	const char *known = gpu_type(word), *near;
	struct err bad = {0};
	uint64_t n = 1;

	(void)a; /* types are constants */
	if (known == NULL) {
		near = conf_nearest(word, spec_gpu_types, COUNT(spec_gpu_types) - 1);
		return err_set(
			err, ERR_INVALID,
			"there is no GPU type \"%.*s\"%s%s%s; known are A10G A100 A100_40GB "
			"B200 B300 GB300 H100 H100_40GB H200 L4 L40S RTX_4090 RTX_PRO_6000 T4 "
			"V100 and %zu more",
			(int)MIN(word.n, (size_t)40), word.p,
			near != NULL ? ": did you mean \"" : "", near != NULL ? near : "",
			near != NULL ? "\"?" : "", COUNT(spec_gpu_types) - 1 - 15);
	}
	if (colon != NULL && str_u64(str_skip(text, word.n + 1), 1, SPEC_GPUS_MAX, &n, &bad) < 0)
		return err_set(err, ERR_INVALID,
		               "\"%.*s\": the count should be from 1 to %d, as in "
		               "\"%s:8\"",
		               (int)MIN(text.n, (size_t)60), text.p, SPEC_GPUS_MAX, known);
	*type = known;
	*count = (uint32_t)n;
	return 0;
}

/* --- sources of weights --- */

static bool all_of(struct str s, const char *extra)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		      (c != '\0' && strchr(extra, c) != NULL)))
			return false;
	}
	return s.n > 0;
}

/* Splits at the first `sep`: returns the text before it; *s is the text after it, p NULL if there
 * is no `sep`. */
static struct str split(struct str *s, char sep)
{
	const char *at = s->n > 0 ? memchr(s->p, sep, s->n) : NULL;
	struct str head = *s;

	if (at == NULL) {
		*s = (struct str){0};
		return head;
	}
	head.n = (size_t)(at - s->p);
	*s = str_skip(*s, head.n + 1);
	return head;
}

/* owner/repo, or of a type: datasets/owner/repo; then @revision. */
static bool hf_ok(struct str rest)
{
	static const char *const types[] = {"datasets/", "models/", "spaces/"};
	struct str id = split(&rest, '@'), owner;
	bool typed = false;

	if (rest.p != NULL && !all_of(rest, "._-/%"))
		return false;
	for (size_t i = 0; i < COUNT(types) && !typed; i++) {
		typed = str_starts(id, types[i]);
		if (typed)
			id = str_skip(id, strlen(types[i]));
	}
	owner = split(&id, '/');
	return all_of(owner, "._-") && all_of(id, "._-") && owner.p[0] != '.' && id.p[0] != '.';
}

bool spec_bucket_ok(struct str name)
{
	if (!all_of(name, "._-") || name.n < 3 || name.n > 63 || name.p[0] == '.' ||
	    name.p[0] == '-')
		return false;
	for (size_t i = 1; i < name.n; i++) {
		if (name.p[i] == '.' && name.p[i - 1] == '.')
			return false;
	}
	return true;
}

bool spec_region_ok(struct str name)
{
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
			return false;
	}
	return name.n > 0 && name.n <= SPEC_REGION_MAX;
}

/* cloud.google.com/storage/docs/buckets: one with dots may have 222 characters. */
bool spec_gs_bucket_ok(struct str name)
{
	return all_of(name, "._-") && name.n >= 3 &&
	       name.n <= (memchr(name.p, '.', name.n) != NULL ? 222 : 63) && name.p[0] != '.' &&
	       name.p[0] != '-';
}

/* learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules; $root and $web
 * are containers, too. */
bool spec_azure_ok(struct str account, struct str container)
{
	return all_of(account, "") && account.n >= 3 && account.n <= 24 &&
	       (str_eq(container, "$root") || str_eq(container, "$web") ||
	        (all_of(container, "-") && container.n >= 3 && container.n <= 63 &&
	         container.p[0] != '-'));
}

static bool gs_ok(struct str rest)
{
	struct str bucket = split(&rest, '/');

	return spec_gs_bucket_ok(bucket) && (rest.n == 0 || rest.p[0] != '/');
}

static bool azure_ok(struct str rest)
{
	struct str account = split(&rest, '/'), container = split(&rest, '/');

	return spec_azure_ok(account, container) && (rest.n == 0 || rest.p[0] != '/');
}

static bool s3_ok(struct str rest)
{
	struct str bucket;

	if (rest.n == 0)
		return false;
	bucket = split(&rest, '/');
	return spec_bucket_ok(bucket) && (rest.n == 0 || rest.p[0] != '/');
}

static bool r2_ok(struct str rest)
{
	struct str account = split(&rest, '.');

	return all_of(account, "-") && account.n <= 63 && s3_ok(rest);
}

#define BT "bt://"
#define HELD "sha256:"
#define BT_FORM                                                                                    \
	"bt://project[@job][/checkpoint], or bt://sha256:DIGITS with 12 to 64 digits of a "        \
	"manifest in `stoker weights ls`"

/* project[@job][/checkpoint]; *job is empty for "latest", too. */
static bool bt_split(struct str rest, struct str *project, struct str *job, struct str *name)
{
	bool named = rest.n > 0 && memchr(rest.p, '/', rest.n) != NULL, from;

	*project = split(&rest, '/');
	*name = rest;
	rest = *project;
	from = rest.n > 0 && memchr(rest.p, '@', rest.n) != NULL;
	*project = split(&rest, '@');
	*job = rest;
	if (project->n == 0 || (named && name->n == 0) || (from && !all_of(*job, "")))
		return false;
	if (str_eq(*job, "latest"))
		*job = (struct str){0};
	return memchr(project->p, ':', project->n) == NULL;
}

/* sha256: and the digits of a manifest, or the first of them. */
static bool held_split(struct str rest, struct str *digits)
{
	if (!str_starts(rest, HELD))
		return false;
	*digits = str_skip(rest, sizeof(HELD) - 1);
	for (size_t i = 0; i < digits->n; i++) {
		if (hex_digit(digits->p[i]) < 0 || (digits->p[i] >= 'A' && digits->p[i] <= 'F'))
			return false;
	}
	return digits->n >= SPEC_HELD_MIN && digits->n < HASH_HEX_CAP;
}

bool spec_held_source(struct str source, struct str *digits)
{
	return str_starts(source, BT) && held_split(str_skip(source, sizeof(BT) - 1), digits);
}

static bool bt_ok(struct str rest)
{
	struct str project, job, name, digits;

	if (str_starts(rest, HELD))
		return held_split(rest, &digits);
	return bt_split(rest, &project, &job, &name) &&
	       (name.n == 0 || ckpt_path_fault(name) == NULL);
}

int spec_ckpt_source(struct arena *a, struct str source, struct spec_load *out, struct err *err)
{
	struct str project, job, name;

	if (!str_starts(source, BT) ||
	    !bt_split(str_skip(source, sizeof(BT) - 1), &project, &job, &name))
		return err_set(err, ERR_SOURCE_INVALID, "should have the form " BT_FORM);
	*out = (struct spec_load){
		.project = arena_strz(a, project),
		.job = job.n > 0 ? arena_strz(a, job) : NULL,
		.name = name.n > 0 ? arena_strz(a, name) : NULL,
		.latest = name.n == 0,
	};
	return 0;
}

static bool https_ok(struct str rest)
{
	struct str host = split(&rest, '/');

	return all_of(host, "._-:[]") && rest.n > 0;
}

static bool file_ok(struct str rest)
{
	struct str plain = str_skip(rest, 1);

	while (plain.n > 0 && plain.p[plain.n - 1] == '/')
		plain.n--;
	return rest.n > 0 && rest.p[0] == '/' && fs_path_is_plain(plain);
}

int spec_endpoint_check(struct str source, struct str endpoint, struct err *err)
{
	struct str host = endpoint;

	if (str_starts(source, "https://") || str_starts(source, "file://") ||
	    str_starts(source, BT))
		return err_set(err, ERR_SOURCE_INVALID,
		               "is for sources in a store or on a Hub, not for https://, file:// "
		               "and bt://");
	if (str_starts(endpoint, "https://"))
		host = str_skip(endpoint, sizeof("https://") - 1);
	else if (str_starts(endpoint, "http://"))
		host = str_skip(endpoint, sizeof("http://") - 1);
	if (host.p == endpoint.p || !all_of(host, "._-:[]/"))
		return err_set(err, ERR_SOURCE_INVALID,
		               "should be a URL such as https://minio.example.org:9000");
	return 0;
}

/* clang-format off */
static const struct {
	const char *scheme, *form;
	bool (*ok)(struct str rest); /* NULL: not offered, `form` is what to do instead */
	bool store; /* of keys, which have no revisions */
} schemes[] = {
	{"hf://",    "hf://owner/repo or hf://owner/repo@revision", hf_ok, false},
	{"s3://",    "s3://bucket/path, the bucket of 3 to 63 characters", s3_ok, true},
	{"gs://",    "gs://bucket/path",                            gs_ok, true},
	{"azure://", "azure://account/container/path",              azure_ok, true},
	{"r2://",    "r2://account_id.bucket/path",                 r2_ok, true},
	{"cw://",    "cw://bucket/path",                            s3_ok, true},
	{"https://", "https://host/path",                           https_ok, false},
	{"file://",  "file:///absolute/path",                       file_ok, false},
	{BT,         BT_FORM,                                       bt_ok, false},
	{"http://",  "use https://", NULL, false},
};
/* clang-format on */

#define SCHEMES_SHOWN "azure://, bt://, cw://, file://, gs://, hf://, https://, r2://, s3://"

int spec_source_check(struct str source, struct err *err)
{
	for (size_t i = 0; i < COUNT(schemes); i++) {
		struct str rest;

		if (!str_starts(source, schemes[i].scheme))
			continue;
		if (schemes[i].ok == NULL)
			return err_set(err, ERR_SOURCE_INVALID,
			               "%s is not offered by this server yet: %s",
			               schemes[i].scheme, schemes[i].form);
		rest = str_skip(source, strlen(schemes[i].scheme));
		for (size_t k = 0; k < rest.n; k++) {
			if ((unsigned char)rest.p[k] <= ' ' || rest.p[k] == 127)
				return err_set(err, ERR_SOURCE_INVALID,
				               "contains a blank or a control character");
		}
		if (schemes[i].store && memchr(rest.p, '@', rest.n) != NULL)
			return err_set(err, ERR_SOURCE_INVALID,
			               "%s sources have no revisions: remove \"@\" and what "
			               "follows it",
			               schemes[i].scheme);
		if (!schemes[i].ok(rest))
			return err_set(err, ERR_SOURCE_INVALID, "should have the form %s",
			               schemes[i].form);
		return 0;
	}
	return err_set(err, ERR_SOURCE_INVALID,
	               "\"%.*s\" does not start with one of " SCHEMES_SHOWN,
	               (int)MIN(source.n, (size_t)60), source.p);
}

/* --- the whole --- */

#define EMPTY_FILE                                                                                 \
	"the file is empty. The smallest job file:\n\n"                                            \
	"    project: hello\n"                                                                     \
	"    job:\n"                                                                               \
	"      runtime:\n"                                                                         \
	"        start_commands: [\"python3 train.py\"]\n\n"                                       \
	"`stoker init` writes one to start from"

int spec_read(struct arena *a, const struct doc *d, enum spec_form form, struct job_spec *out,
              struct spec_problems *problems)
{
	struct spec_reader r = {.a = a, .form = form, .problems = problems};
	bool file = form == SPEC_FILE;
	size_t before = problems->n + problems->dropped;

	*out = (struct job_spec){0};
	if (!spec_given(d)) {
		spec_problem_add_id(problems, ERR_JOB_FILE_EMPTY, d, file ? "" : "training_job",
		                    file ? EMPTY_FILE : "is empty");
		return -1;
	}
	if (!file)
		(void)spec_push(&r, "training_job");
	spec_read_block(&r, file ? &spec_file_block : &spec_job_block, d, out);
	if (file)
		(void)spec_push(&r, "job");
	spec_rules(&r, file ? doc_get(d, "job") : d, out);
	return problems->n + problems->dropped > before ? -1 : 0;
}

int spec_read_stored(struct arena *a, const char *json, struct job_spec *out, struct err *err)
{
	struct spec_problems *problems = ARENA_NEW(a, struct spec_problems);
	struct err cause = {0};
	const struct doc *d = NULL;

	if (js_parse(a, str_of(json), &d, &cause) == 0) {
		if (spec_read(a, d, SPEC_STORED, out, problems) == 0)
			return 0;
		spec_problems_text(problems, NULL, &cause);
	}
	return err_set(err, ERR_STORED_SPEC,
	               "the job's stored specification cannot be read: %s. Push the job again",
	               cause.msg);
}

void spec_reference(struct buf *out)
{
	buf_puts(out, "Paths are those of a file. In a request the value of `training_job` has the "
	              "fields of `job`.\n");
	spec_reference_block(&spec_file_block, out, 0);
}
