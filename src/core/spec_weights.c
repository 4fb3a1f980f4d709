/* spec_weights.c - what a job names as weights: where each source is, how it is read, and as whom.
 */
#include "core/spec_table.h"

#include "core/glob.h"

#include <ctype.h>

/* --- auth --- */

#define ASSUME_ROLE "AWS_ASSUME_ROLE"
#define AWS_OIDC "AWS_OIDC"
#define GCP_OIDC "GCP_OIDC"
#define PROVIDER_MAX 1000

/* The fields that name whom a source is read as, and where that is had: a pair for each method. */
struct weights_auth {
	const char *method, *secret;
	struct {
		const char *role, *at;
	} as[SPEC_WEIGHTS_AUTHS];
};
#define AS(method, member) offsetof(struct weights_auth, as[SPEC_WEIGHTS_##method].member)

/* clang-format off */
static const struct spec_field auth_fields[] = {
	{.name = "auth_method", .kind = SPEC_TEXT, .max = 40,
	 .at = offsetof(struct weights_auth, method),
	 .help = "CUSTOM_SECRET. Or, for `s3://`, a role whose keys are had again and again while files are fetched: "
	         "AWS_ASSUME_ROLE, for the keys in a secret; AWS_OIDC, without a secret, because the role trusts "
	         "this server. For `gs://`, GCP_OIDC: a service account, without a secret, in the same way"},
	{.name = "auth_secret_name", .kind = SPEC_NAME, .at = offsetof(struct weights_auth, secret),
	 .help = "the secret that holds the credentials of the source. Not for AWS_OIDC and GCP_OIDC"},
	{.name = "aws_oidc_role_arn", .kind = SPEC_TEXT, .max = 2048, .at = AS(AWS_OIDC, role),
	 .help = "the role: `arn:aws:iam::123456789012:role/reader`"},
	{.name = "aws_oidc_region", .kind = SPEC_TEXT, .max = SPEC_REGION_MAX, .at = AS(AWS_OIDC, at),
	 .help = "the region whose service gives out its keys"},
	{.name = "aws_assume_role_arn", .kind = SPEC_TEXT, .max = 2048, .at = AS(ASSUME_ROLE, role),
	 .help = "the role: `arn:aws:iam::123456789012:role/reader`"},
	{.name = "aws_assume_role_region", .kind = SPEC_TEXT, .max = SPEC_REGION_MAX, .at = AS(ASSUME_ROLE, at),
	 .help = "the region whose service gives out its keys, if not that of the secret's"},
	{.name = "gcp_oidc_service_account", .kind = SPEC_TEXT, .max = 320, .at = AS(GCP_OIDC, role),
	 .help = "the service account: `reader@my-project.iam.gserviceaccount.com`"},
	{.name = "gcp_oidc_workload_id_provider", .kind = SPEC_TEXT, .max = PROVIDER_MAX, .at = AS(GCP_OIDC, at),
	 .help = "the provider that trusts this server: "
	         "`projects/123456789/locations/global/workloadIdentityPools/my-pool/providers/stoker`"},
};
/* clang-format on */
#undef AS
static const struct spec_block auth_block =
	SPEC_MAP("job.weights[].auth", "How to read a private source.", auth_fields);

/* arn:PARTITION:iam::ACCOUNT:role/NAME; MinIO's have a region, perhaps, and no account. */
static bool is_role(const char *arn)
{
	struct str rest = str_of(arn), part, partition, region, account;
	bool aws;

	if (!str_cut(&rest, ':', &part) || !str_eq(part, "arn") ||
	    !str_cut(&rest, ':', &partition) || !str_cut(&rest, ':', &part) ||
	    !str_eq(part, "iam") || !str_cut(&rest, ':', &region) || !str_cut(&rest, ':', &account))
		return false;
	aws = str_starts(partition, "aws");
	return partition.n > 0 && (!aws || (region.n == 0 && account.n > 0)) &&
	       str_starts(rest, "role/") && rest.n > sizeof("role/") - 1;
}

/* NAME@HOST, of letters that need no encoding anywhere. */
static bool is_account(const char *email)
{
	const char *at = strchr(email, '@');

	return at != NULL && at != email && at[1] != '\0' && strchr(at + 1, '@') == NULL &&
	       strspn(email,
	              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@") ==
	               strlen(email);
}

/* What Google calls it, behind one of the hosts that it puts in front. */
static const char *provider_name(const char *text)
{
	static const char *const hosts[] = {"https://iam.googleapis.com/", "//iam.googleapis.com/"};

	for (size_t i = 0; i < COUNT(hosts); i++)
		if (str_starts(str_of(text), hosts[i]))
			return text + strlen(hosts[i]);
	return text;
}

static bool is_provider(const char *name)
{
	static const char *const words[] = {
		"projects", NULL,        "locations", NULL, "workloadIdentityPools",
		NULL,       "providers", NULL};
	struct str rest = str_of(name), part;

	for (size_t i = 0; i < COUNT(words); i++) {
		if (!str_cut(&rest, '/', &part) || part.n == 0 ||
		    (words[i] != NULL && !str_eq(part, words[i])))
			return false;
		for (size_t k = 0; k < part.n; k++)
			if (!isalnum((unsigned char)part.p[k]) && strchr("-_.:", part.p[k]) == NULL)
				return false;
	}
	return rest.n == 0;
}

/* A row a method. */
static const struct {
	const char *name, *scheme; /* scheme NULL: any */
	const char *role, *at;     /* its fields, NULL: it has none */
	bool at_optional, secret;
} weights_methods[SPEC_WEIGHTS_AUTHS] = {
	[SPEC_WEIGHTS_SECRET] = {.name = "CUSTOM_SECRET", .secret = true},
	[SPEC_WEIGHTS_ASSUME_ROLE] = {ASSUME_ROLE, "s3://", "aws_assume_role_arn",
                                      "aws_assume_role_region", true, true},
	[SPEC_WEIGHTS_AWS_OIDC] = {AWS_OIDC, "s3://", "aws_oidc_role_arn", "aws_oidc_region", false,
                                   false},
	[SPEC_WEIGHTS_GCP_OIDC] = {GCP_OIDC, "gs://", "gcp_oidc_service_account",
                                   "gcp_oidc_workload_id_provider", false, false},
};

bool spec_weights_by_identity(const struct spec_weights *w)
{
	return !weights_methods[w->auth].secret;
}

/* False: there is no such method. */
static bool find_method(const char *name, enum spec_weights_auth *out)
{
	for (enum spec_weights_auth i = 0; i < SPEC_WEIGHTS_AUTHS; i++) {
		if (str_ieq(str_of(name), weights_methods[i].name)) {
			*out = i;
			return true;
		}
	}
	return false;
}

static void need_as(struct spec_reader *r, const struct doc *d, const char *field,
                    const char *value, const char *method)
{
	if (value == NULL && !spec_given(doc_get(d, field)))
		spec_fault_at(r, d, field, "must be provided when auth_method is %s", method);
}

/* The two fields of the method: there, and what they should be. */
static void check_as(struct spec_reader *r, const struct doc *d, enum spec_weights_auth auth,
                     const char *role, const char *at)
{
	const char *role_name = weights_methods[auth].role, *at_name = weights_methods[auth].at;
	bool google = auth == SPEC_WEIGHTS_GCP_OIDC;

	if (role_name == NULL)
		return;
	need_as(r, d, role_name, role, weights_methods[auth].name);
	if (!weights_methods[auth].at_optional)
		need_as(r, d, at_name, at, weights_methods[auth].name);
	if (role != NULL && google && !is_account(role))
		spec_fault_at(r, doc_get(d, role_name), role_name,
		              "should be a service account: NAME@PROJECT.iam.gserviceaccount.com");
	if (role != NULL && !google && !is_role(role))
		spec_fault_at(r, doc_get(d, role_name), role_name,
		              "should be a role: arn:aws:iam::123456789012:role/NAME");
	if (at != NULL && google && !is_provider(at))
		spec_fault_at(r, doc_get(d, at_name), at_name,
		              "should be projects/NUMBER/locations/global/workloadIdentityPools/"
		              "POOL/providers/PROVIDER");
	if (at != NULL && !google && !spec_region_ok(str_of(at)))
		spec_fault_at(r, doc_get(d, at_name), at_name, "should be a region: eu-west-1");
}

/* Fields of other methods. */
static void check_others(struct spec_reader *r, const struct doc *d, enum spec_weights_auth auth)
{
	for (enum spec_weights_auth i = 0; i < SPEC_WEIGHTS_AUTHS; i++) {
		const char *names[] = {weights_methods[i].role, weights_methods[i].at};

		for (size_t k = 0; i != auth && k < COUNT(names); k++)
			if (names[k] != NULL && spec_given(doc_get(d, names[k])))
				spec_fault_at(r, doc_get(d, names[k]), names[k],
				              "is for auth_method: %s", weights_methods[i].name);
	}
}

/* Beside auth_secret_name, which is written on its own. */
static void write_weights_auth(struct js *js, const void *base)
{
	const struct spec_weights *w = base;

	js_open(js);
	js_kv(js, "auth_method", weights_methods[w->auth].name);
	js_kv(js, weights_methods[w->auth].role, w->role);
	if (w->role_at != NULL)
		js_kv(js, weights_methods[w->auth].at, w->role_at);
	js_close(js);
}

static void read_secret_name(struct spec_reader *r, const struct doc *d,
                             enum spec_weights_auth auth, const char *secret,
                             struct spec_weights *w)
{
	const char *method = weights_methods[auth].name;

	if (!weights_methods[auth].secret && (secret != NULL || w->secret != NULL))
		spec_fault_at(r, d, "auth_secret_name",
		              "cannot be specified when auth_method is %s", method);
	else if (secret != NULL && w->secret != NULL)
		spec_fault_at(r, d, "auth_secret_name",
		              "is given here and next to \"auth\": remove one");
	else if (auth == SPEC_WEIGHTS_ASSUME_ROLE && secret == NULL && w->secret == NULL &&
	         !spec_given(doc_get(d, "auth_secret_name")))
		spec_fault_at(r, d, "auth_secret_name",
		              "is missing: " ASSUME_ROLE
		              " needs the keys that may assume the role");
	else if (auth == SPEC_WEIGHTS_SECRET && secret == NULL &&
	         !spec_given(doc_get(d, "auth_secret_name")))
		spec_fault_at(r, d, "auth_secret_name", "is missing: CUSTOM_SECRET needs it");
	else if (secret != NULL)
		w->secret = secret;
}

static void read_weights_auth(struct spec_reader *r, const struct doc *d, void *base)
{
	const struct doc *method = doc_get(d, "auth_method");
	struct weights_auth got = {0};
	struct spec_weights *w = base;

	spec_read_block(r, &auth_block, d, &got);
	if (d->kind != DOC_MAP)
		return;
	if (got.method != NULL && !find_method(got.method, &w->auth)) {
		spec_fault_at(r, method, "auth_method",
		              "should be CUSTOM_SECRET, " ASSUME_ROLE ", " AWS_OIDC
		              " or " GCP_OIDC);
		return;
	}
	if (got.as[SPEC_WEIGHTS_GCP_OIDC].at != NULL)
		got.as[SPEC_WEIGHTS_GCP_OIDC].at = provider_name(got.as[SPEC_WEIGHTS_GCP_OIDC].at);
	w->role = got.as[w->auth].role;
	w->role_at = got.as[w->auth].at;
	check_as(r, d, w->auth, w->role, w->role_at);
	check_others(r, d, w->auth);
	read_secret_name(r, d, w->auth, got.secret, w);
}

/* --- one source --- */

static void read_layout(struct spec_reader *r, const struct doc *d, void *base)
{
	struct spec_weights *w = base;

	w->hub = str_eq(doc_text(d), "hub");
	if (!w->hub && !str_eq(doc_text(d), "files"))
		spec_fault(r, d, "should be \"files\" or \"hub\"");
}

static void write_layout(struct js *js, const void *base)
{
	js_cstr(js, ((const struct spec_weights *)base)->hub ? "hub" : "files");
}

/* clang-format off */
#define WEIGHTS(member) offsetof(struct spec_weights, member)
static const struct spec_field weights_fields[] = {
	{.name = "source", .kind = SPEC_TEXT, .flags = SPEC_REQUIRED, .max = 4000,
	 .at = WEIGHTS(source),
	 .help = "`hf://owner/repo@revision`, `s3://bucket/path`, `gs://bucket/path`, "
	         "`azure://account/container/path`, `r2://account_id.bucket/path`, "
	         "`cw://bucket/path`, `https://host/path` or `file:///path`; "
	         "`bt://project[@job][/checkpoint]` or `bt://sha256:MANIFEST` of this server"},
	{.name = "endpoint", .kind = SPEC_TEXT, .flags = SPEC_SPARSE, .max = 1000,
	 .at = WEIGHTS(endpoint),
	 .help = "URL of the store or Hub, if it is not the server's default: "
	         "`https://minio.example.org:9000`. The server must allow it (--allow-endpoint). "
	         "Not for `https://`, `file://` and `bt://`"},
	{.name = "mount_location", .kind = SPEC_PATH, .at = WEIGHTS(mount_location),
	 .help = "absolute path in the job, read-only. Required, but for `layout: hub`, whose "
	         "default is `" SPEC_HUB_PLACE "`"},
	{.name = "layout", .kind = SPEC_CUSTOM, .flags = SPEC_SPARSE, .read = read_layout,
	 .write = write_layout, .there = WEIGHTS(hub), .there_kind = R_BOOL, .dflt = "files",
	 .type = "files, hub",
	 .help = "files: the files are at mount_location. hub: mount_location is a cache of "
	         "huggingface_hub, and HF_HUB_CACHE names it, so "
	         "`from_pretrained(\"owner/repo\")` finds an `hf://` source there, also with "
	         "HF_HUB_OFFLINE=1; all of a job's share one (Stoker only)"},
	/* Before auth: a secret named in both places is found there. */
	{.name = "auth_secret_name", .kind = SPEC_NAME, .at = WEIGHTS(secret),
	 .help = "short for `auth: { auth_secret_name: ... }`"},
	{.name = "auth", .kind = SPEC_CUSTOM, .flags = SPEC_SPARSE, .read = read_weights_auth,
	 .write = write_weights_auth, .there = WEIGHTS(auth), .there_kind = R_WORD,
	 .block = &auth_block,
	 .type = "map", .help = "credentials of a private source"},
	{.name = "allow_patterns", .kind = SPEC_TEXTS, .max = SPEC_PATTERNS_MAX,
	 .at = WEIGHTS(allow), .at_n = WEIGHTS(n_allow),
	 .help = "only files that match one of these; `*` stops at `/`, `**` crosses it"},
	{.name = "ignore_patterns", .kind = SPEC_TEXTS, .max = SPEC_PATTERNS_MAX,
	 .at = WEIGHTS(ignore), .at_n = WEIGHTS(n_ignore),
	 .help = "no files that match one of these; overrides allow_patterns"},
};
#undef WEIGHTS
/* clang-format on */

static void check_patterns(struct spec_reader *r, const struct doc *weights, const char *name)
{
	size_t list = spec_push(r, name), i = 0;

	DOC_EACH (item, doc_get(weights, name)) {
		size_t mark = spec_push_index(r, i++);
		struct err err = {0};

		if (doc_text(item).n > 0 && glob_check(doc_text(item), &err) < 0)
			spec_fault(r, item, "%.250s", err.msg);
		spec_pop(r, mark);
	}
	spec_pop(r, list);
}

/* With the id that a fetch would end with. */
static void check_source(struct spec_reader *r, const struct doc *at, const char *source)
{
	struct err err = {0};
	size_t mark;

	if (!spec_judges(r) || spec_source_check(str_of(source), &err) == 0)
		return;
	mark = spec_push(r, "source");
	spec_problem_add_id(r->problems, err.id, at, r->path, "%.250s", err.msg);
	spec_pop(r, mark);
}

static void read_weights(struct spec_reader *r, const struct doc *d, void *item, size_t i UNUSED)
{
	struct spec_weights *w = item;
	struct err err = {0};

	spec_read_item(r, &spec_weights_block, d, w);
	if (w->source != NULL)
		check_source(r, doc_get(d, "source"), w->source);
	if (w->hub && w->source != NULL && !str_starts(str_of(w->source), "hf://"))
		spec_fault_at(r, doc_get(d, "layout"), "layout",
		              "is \"hub\", which is for sources that begin with hf://");
	if (w->hub && !spec_given(doc_get(d, "mount_location")))
		w->mount_location = SPEC_HUB_PLACE;
	else if (w->mount_location == NULL && !spec_given(doc_get(d, "mount_location")))
		spec_missing(r, d, "mount_location", "absolute path in the job, read-only");
	if (w->source != NULL && w->endpoint != NULL &&
	    spec_endpoint_check(str_of(w->source), str_of(w->endpoint), &err) < 0)
		spec_fault_at(r, doc_get(d, "endpoint"), "endpoint", "%.250s", err.msg);
	if (w->source != NULL && weights_methods[w->auth].scheme != NULL &&
	    !str_starts(str_of(w->source), weights_methods[w->auth].scheme))
		spec_fault_at(r, doc_get(d, "auth"), "auth", "%s is for %s sources",
		              weights_methods[w->auth].name, weights_methods[w->auth].scheme);
	if (w->source != NULL && w->secret != NULL && str_starts(str_of(w->source), "bt://"))
		spec_fault(r, d, "bt:// sources need no credentials: remove auth_secret_name");
	check_patterns(r, d, "allow_patterns");
	check_patterns(r, d, "ignore_patterns");
}

const struct spec_block spec_weights_block = SPEC_ITEM(
	"job.weights[]", "Models and data that are on local disk before user code starts.",
	weights_fields, struct spec_weights, .read = read_weights);
