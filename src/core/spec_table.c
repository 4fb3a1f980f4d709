/* spec_table.c - reads a map by a table of fields, and prints the table. spec_write.c writes it. */
#include "core/spec_table.h"

#include "base/conf.h"
#include "base/fs.h"
#include "base/units.h"
#include "base/yaml.h"

#define FIELDS_MAX 32 /* of one block */
#define FIELDS_SHOWN_MAX 200
#define UNITLESS_MAX ((uint64_t)1 << 20) /* bytes: who asks for fewer meant another unit */

size_t spec_push(struct spec_reader *r, const char *name)
{
	size_t mark = r->path_n;
	size_t room = sizeof(r->path) - mark;
	int n = snprintf(r->path + mark, room, "%s%s", mark > 0 ? "." : "", name);

	r->path_n = MIN(mark + (size_t)MAX(n, 0), sizeof(r->path) - 1); /* long keys are cut */
	return mark;
}

size_t spec_push_index(struct spec_reader *r, size_t i)
{
	size_t mark = r->path_n;
	int n = snprintf(r->path + mark, sizeof(r->path) - mark, "[%zu]", i);

	r->path_n = MIN(mark + (size_t)MAX(n, 0), sizeof(r->path) - 1);
	return mark;
}

void spec_pop(struct spec_reader *r, size_t mark)
{
	r->path_n = mark;
	r->path[mark] = '\0';
}

static void fault(struct spec_reader *r, const struct doc *at, const char *fmt, va_list ap)
	PRINTF(3, 0);

static void fault(struct spec_reader *r, const struct doc *at, const char *fmt, va_list ap)
{
	AUTO_BUF struct buf text = BUF_INIT(sizeof(r->problems->item[0].text) - 1);

	buf_vprintf(&text, fmt, ap);
	spec_problem_add(r->problems, at, r->path, "%s",
	                 text.full ? "is invalid" : buf_cstr(&text));
}

bool spec_judges(const struct spec_reader *r)
{
	return r->form != SPEC_STORED;
}

void spec_unreadable(struct spec_reader *r, const struct doc *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fault(r, at, fmt, ap);
	va_end(ap);
}

void spec_fault(struct spec_reader *r, const struct doc *at, const char *fmt, ...)
{
	va_list ap;

	if (!spec_judges(r))
		return;
	va_start(ap, fmt);
	fault(r, at, fmt, ap);
	va_end(ap);
}

void spec_fault_at(struct spec_reader *r, const struct doc *at, const char *name, const char *fmt,
                   ...)
{
	size_t mark;
	va_list ap;

	if (!spec_judges(r))
		return;
	mark = spec_push(r, name);
	va_start(ap, fmt);
	fault(r, at, fmt, ap);
	va_end(ap);
	spec_pop(r, mark);
}

bool spec_given(const struct doc *d)
{
	return d != NULL && d->kind != DOC_NULL;
}

bool spec_path_ok(const char *path)
{
	return path[0] == '/' && (path[1] == '\0' || fs_path_is_plain(str_of(path + 1)));
}

const char *spec_read_text(struct spec_reader *r, const struct doc *d, size_t max)
{
	bool judges = spec_judges(r);

	if (d->kind != DOC_TEXT)
		spec_unreadable(r, d, "should be text, not %s%s", doc_kind_name(d->kind),
		                d->kind == DOC_LIST  ? ""
		                : d->kind == DOC_MAP ? ": text with \": \" needs quotes"
		                                     : ": put it in quotes");
	else if (judges && d->text.n == 0)
		spec_fault(r, d, "is empty");
	else if (judges && d->text.n > max)
		spec_fault(r, d, "is %zu bytes long; the limit is %zu", d->text.n, max);
	else if (judges && memchr(d->text.p, '\0', d->text.n) != NULL)
		spec_fault(r, d, "contains a NUL byte");
	else
		return arena_strz(r->a, d->text);
	return NULL;
}

/* Can stand between double quotes as it is. */
static bool is_one_line(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if ((unsigned char)s.p[i] < ' ' || s.p[i] == '"' || s.p[i] == '\\')
			return false;
	}
	return true;
}

const struct doc *spec_read_list(struct spec_reader *r, const struct doc *d, size_t max)
{
	if (!spec_given(d))
		return NULL;
	if (d->kind == DOC_TEXT && d->text.n < 80 && is_one_line(d->text))
		spec_unreadable(r, d, "should be a list, not text: write [\"%.*s\"]",
		                STR_ARG(d->text));
	else if (d->kind != DOC_LIST)
		spec_unreadable(r, d, "should be a list, not %s", doc_kind_name(d->kind));
	else if (d->count > max) /* arrays elsewhere are as long as the limit */
		spec_unreadable(r, d, "has %zu items; the limit is %zu", d->count, max);
	else
		return d;
	return NULL;
}

static const char *read_name(struct spec_reader *r, const struct doc *d)
{
	const char *text = spec_read_text(r, d, SPEC_NAME_MAX);

	if (text != NULL && spec_judges(r) && !spec_name_ok(str_of(text))) {
		spec_fault(r, d, "is not a name: " SPEC_NAME_RULE);
		return NULL;
	}
	return text;
}

static const char *read_path(struct spec_reader *r, const struct doc *d)
{
	const char *text = spec_read_text(r, d, FS_PATH_MAX - 1);
	struct str path = str_of(text);

	if (text == NULL)
		return NULL;
	while (path.n > 1 && path.p[path.n - 1] == '/')
		path.n--;
	text = arena_strz(r->a, path);
	if (!spec_judges(r) || spec_path_ok(text))
		return text;
	spec_fault(r, d, "should be an absolute path without \".\", \"..\" or empty parts");
	return NULL;
}

const char *spec_read_secret(struct spec_reader *r, const struct doc *d)
{
	const struct doc *name = doc_get(d, "name");

	if (name == NULL)
		name = doc_get(d, "secret");
	if (d->kind != DOC_MAP || name == NULL || d->count != 1) {
		spec_unreadable(r, d,
		                "should refer to a secret: { secret: NAME } or { name: NAME }");
		return NULL;
	}
	return read_name(r, name);
}

static bool read_int(struct spec_reader *r, const struct doc *d, int64_t min, int64_t max,
                     int64_t *out)
{
	if (!spec_judges(r)) { /* whatever the variable can hold */
		min = MIN(min, (int64_t)0);
		max = MAX(max, (int64_t)INT32_MAX);
	}
	if (d->kind != DOC_INT)
		spec_unreadable(r, d, "should be a whole number, not %s", doc_kind_name(d->kind));
	else if (d->num < min || d->num > max)
		spec_fault(r, d, "is %" PRId64 "; it should be from %" PRId64 " to %" PRId64,
		           d->num, min, max);
	else {
		*out = d->num;
		return true;
	}
	return false;
}

/* A number alone, also in quotes. */
static bool is_bare(const struct doc *d)
{
	return d->kind == DOC_INT ||
	       (d->text.n > 0 && strchr("0123456789", d->text.p[d->text.n - 1]) != NULL);
}

/* "64Gi" or "90s": text by the unit's own parser, or a plain number. */
static bool read_units(struct spec_reader *r, const struct doc *d, const struct spec_field *f,
                       uint64_t *out)
{
	bool bytes = f->kind == SPEC_BYTES;
	struct err err = {0};
	uint64_t v;

	if (d->kind == DOC_INT && d->num >= 0) {
		v = (uint64_t)d->num;
	} else if (d->kind != DOC_TEXT) {
		spec_unreadable(r, d, "should be %s, not %s",
		                bytes ? "a size like \"64Gi\""
		                      : "a duration like \"90s\" or \"24h\"",
		                doc_kind_name(d->kind));
		return false;
	} else if ((bytes ? units_bytes(d->text, &v, &err) : units_seconds(d->text, &v, &err)) <
	           0) {
		spec_unreadable(r, d, "%.200s", err.msg);
		return false;
	}
	if (f->kind == SPEC_SECONDS32 && v > UINT32_MAX)
		v = UINT32_MAX;
	if (bytes && spec_judges(r) && is_bare(d) && v < MIN((uint64_t)f->min, UNITLESS_MAX)) {
		spec_problem_add_id(r->problems, ERR_UNIT_MISSING, d, r->path,
		                    "is %" PRIu64 " bytes: write the unit, as in %" PRIu64 "%s", v,
		                    v, v < 64 ? "Gi" : "Mi");
		return false;
	}
	if (spec_judges(r) && (v < (uint64_t)f->min || v > (uint64_t)f->max)) {
		char least[UNITS_CAP], most[UNITS_CAP];

		if (bytes)
			spec_fault(r, d, "should be from %s to %s",
			           units_show_bytes((uint64_t)f->min, least),
			           units_show_bytes((uint64_t)f->max, most));
		else
			spec_fault(r, d, "should be from %s to %s",
			           units_show_seconds((uint64_t)f->min, least),
			           units_show_seconds((uint64_t)f->max, most));
		return false;
	}
	*out = v;
	return true;
}

static void read_texts(struct spec_reader *r, const struct spec_field *f, const struct doc *d,
                       const char ***out, size_t *n)
{
	const struct doc *list = spec_read_list(r, d, (size_t)f->max);
	size_t i = 0;

	if (list == NULL)
		return;
	*out = ARENA_ARRAY(r->a, const char *, list->count);
	*n = 0;
	DOC_EACH (item, list) {
		size_t mark = spec_push_index(r, i++);
		const char *text = spec_read_text(r, item, SPEC_COMMAND_MAX);

		if (text != NULL)
			(*out)[(*n)++] = text;
		spec_pop(r, mark);
	}
}

void spec_read_item(struct spec_reader *r, const struct spec_block *b, const struct doc *d,
                    void *item)
{
	if (d->kind == DOC_NULL)
		spec_unreadable(r, d, "should be a map, not null");
	spec_read_block(r, b, d, item);
}

static void read_maps(struct spec_reader *r, const struct spec_field *f, const struct doc *d,
                      char **out, size_t *n)
{
	const struct doc *list = spec_read_list(r, d, (size_t)f->max);
	const struct spec_block *b = f->block;

	if (list == NULL)
		return;
	*out = arena_array(r->a, list->count, b->size);
	*n = 0;
	DOC_EACH (child, list) {
		size_t mark = spec_push_index(r, *n), i = (*n)++;

		if (b->read != NULL)
			b->read(r, child, *out + i * b->size, i);
		else
			spec_read_item(r, b, child, *out + i * b->size);
		spec_pop(r, mark);
	}
}

static void read_real(struct spec_reader *r, const struct spec_field *f, const struct doc *d,
                      double *out)
{
	double v = doc_real(d, 0);

	if (d->kind != DOC_INT && d->kind != DOC_REAL)
		spec_unreadable(r, d, "should be a number, not %s", doc_kind_name(d->kind));
	else if (!(v > (double)f->min && v <= (double)f->max)) /* also not a number */
		spec_fault(r, d, "should be greater than %" PRId64 " and at most %" PRId64, f->min,
		           f->max);
	else
		*out = v;
}

/* Absent, null, false, or empty: nothing was asked for. */
static bool asks_nothing(const struct doc *d)
{
	return !spec_given(d) || (d->kind == DOC_BOOL && !d->flag) ||
	       ((d->kind == DOC_LIST || d->kind == DOC_MAP) && d->count == 0) ||
	       (doc_get(d, "enabled") != NULL && !doc_bool(doc_get(d, "enabled"), true));
}

static void read_value(struct spec_reader *r, const struct spec_field *f, const struct doc *d,
                       void *base)
{
	void *at = (char *)base + f->at;
	const char *text = NULL;
	uint64_t u = 0;
	int64_t i = 0;

	if (f->read != NULL) {
		f->read(r, d, base);
		return;
	}
	switch (f->kind) {
	case SPEC_TEXT:
		text = spec_read_text(r, d, (size_t)f->max);
		break;
	case SPEC_NAME:
		text = read_name(r, d);
		break;
	case SPEC_PATH:
		text = read_path(r, d);
		break;
	case SPEC_SECRET:
		text = spec_read_secret(r, d);
		break;
	case SPEC_BOOL:
		if (d->kind == DOC_BOOL)
			*(bool *)at = d->flag;
		else
			spec_unreadable(r, d, "should be true or false, not %s",
			                doc_kind_name(d->kind));
		break;
	case SPEC_I64:
		if (read_int(r, d, INT64_MIN, INT64_MAX, &i))
			*(int64_t *)at = i;
		break;
	case SPEC_U32:
		if (read_int(r, d, f->min, f->max, &i))
			*(uint32_t *)at = (uint32_t)i;
		break;
	case SPEC_GIB:
		if (read_int(r, d, f->min, f->max, &i))
			*(uint64_t *)at = (uint64_t)i << 30;
		break;
	case SPEC_REAL:
		read_real(r, f, d, at);
		break;
	case SPEC_BYTES:
	case SPEC_SECONDS:
		if (read_units(r, d, f, &u))
			*(uint64_t *)at = u;
		break;
	case SPEC_SECONDS32:
		if (read_units(r, d, f, &u))
			*(uint32_t *)at = (uint32_t)u;
		break;
	case SPEC_TEXTS:
		read_texts(r, f, d, at, (size_t *)(void *)((char *)base + f->at_n));
		break;
	case SPEC_MAPS:
		read_maps(r, f, d, at, (size_t *)(void *)((char *)base + f->at_n));
		break;
	case SPEC_BLOCK:
		spec_read_block(r, f->block, d, base);
		break;
	case SPEC_REFUSED:
		if (!asks_nothing(d))
			spec_fault(r, d, "is not offered by this server: %s", f->help);
		break;
	case SPEC_CUSTOM:
	case SPEC_IGNORED:
		break;
	}
	if (text != NULL)
		*(const char **)at = text;
}

void spec_missing(struct spec_reader *r, const struct doc *map, const char *name, const char *help)
{
	const struct doc *d = doc_get(map, name);
	size_t mark = spec_push(r, name);

	spec_unreadable(r, d != NULL ? d : map, "is missing: %s", help);
	spec_pop(r, mark);
}

static void read_field(struct spec_reader *r, const struct spec_field *f, const struct doc *map,
                       void *base)
{
	const struct doc *d = doc_get(map, f->name);
	unsigned must = SPEC_REQUIRED | (r->form == SPEC_FILE ? SPEC_REQUIRED_FILE : 0U);
	size_t mark;

	if (!spec_given(d) && spec_given(map) && (f->flags & must) != 0) {
		spec_missing(r, map, f->name, f->help);
		return;
	}
	mark = spec_push(r, f->name);
	if (spec_given(d) && (f->flags & SPEC_CLIENT) != 0 && r->form == SPEC_FILE)
		spec_fault(r, d, "cannot be set in a job file: %s", f->help);
	else if (spec_given(d))
		read_value(r, f, d, base);
	else if (f->kind == SPEC_BLOCK)
		spec_read_block(r, f->block, NULL, base);
	spec_pop(r, mark);
}

/* The defaults go through the same reader as what people write. */
static void set_default(struct spec_reader *r, const struct spec_field *f, void *base)
{
	struct err err = {0};
	const struct doc *d = NULL;

	if (f->dflt == NULL)
		return;
	if (yml_parse(r->a, str_of(f->dflt), &d, &err) < 0)
		abort(); /* the table is wrong: found by the first test that reads anything */
	read_value(r, f, d, base);
}

static const struct spec_field *field_of(const struct spec_block *b, struct str name)
{
	for (size_t i = 0; i < b->n; i++) {
		if (str_eq(name, b->field[i].name))
			return &b->field[i];
	}
	return NULL;
}

/* Where a key that was put into the wrong block belongs: its path into out. */
static bool find_home(const struct spec_block *b, struct str key, const char *path, char *out,
                      size_t cap)
{
	for (size_t i = 0; i < b->n; i++) {
		const struct spec_field *f = &b->field[i];
		char sub[SPEC_PATH_CAP];
		int n = snprintf(sub, sizeof(sub), "%s%s%s", path, path[0] != '\0' ? "." : "",
		                 f->name);

		if (n < 0 || (size_t)n >= sizeof(sub))
			continue;
		if (str_eq(key, f->name)) {
			copy_cut(out, cap, sub);
			return true;
		}
		if (f->kind == SPEC_BLOCK && find_home(f->block, key, sub, out, cap))
			return true;
	}
	return false;
}

/* Words of other tools for fields of ours: the field, and how it is written when that differs. */
/* clang-format off */
static const struct {
	const char *words, *home, *form;
} peers[] = {
	{" cpu cpus vcpus num_cpus cpu_limit cpu_request ",             "compute.cpu_count",   "cpu_count: 4"},
	{" gpu gpus num_gpus gpu_count gpu_type accelerators ",         "compute.accelerator", "accelerator: H100:8"},
	{" mem ram memory_gb memory_limit ",                            "compute.memory",      "memory: 64Gi"},
	{" nodes num_nodes nnodes replicas instance_count ",            "compute.node_count",  "node_count: 2"},
	{" resources resource instance_type ",                          "compute",             "compute: { cpu_count: 4, memory: 64Gi }"},
	{" env envs environment env_vars environment_vars variables ",  "runtime.environment_variables", "environment_variables: { NAME: value }"},
	{" secrets ",                                                   "runtime.environment_variables", "environment_variables: { NAME: { secret: NAME } }"},
	{" command commands cmd run entrypoint script start_command ",  "runtime.start_commands", "start_commands: [\"python3 train.py\"]"},
	{" setup install pip requirements dependencies packages ",      "runtime.python",      "python: { requirements: requirements.txt }"},
	{" docker container docker_image container_image ",             "image.base_image",    "base_image: NAME:TAG"},
	{" volumes mounts file_mounts data dataset datasets models inputs ", "weights",        "weights: [{ source: s3://bucket/path, mount_location: /data }]"},
	{" checkpoints checkpoint checkpoint_dir output_dir outputs ",  "runtime.checkpointing_config", "checkpointing_config: { enabled: true }"},
	{" resume resume_from load_checkpoint ",                        "runtime.load_checkpoint_config", "load_checkpoint_config: { enabled: true }"},
	{" cache ",                                                     "runtime.cache_config", "cache_config: { enabled: true }"},
	{" timeout time_limit walltime max_runtime ",                   "limits.max_duration", "max_duration: 24h"},
	{" retries max_retries restarts max_restarts ",                 "retry",               "retry: { on: [failure], max_attempts: 3 }"},
	{" webhook webhooks notifications callbacks ",                  "notify",              NULL},
	{" job_name display_name title ",                               "name",                NULL},
};
/* clang-format on */

/* NULL: no tool's word that we know. */
static const char *peer_of(struct arena *a, struct str key, const char *root)
{
	char *word = arena_printf(a, " %.*s ", (int)MIN(key.n, (size_t)60), key.p);

	for (size_t i = 0; i < COUNT(peers); i++) {
		if (strstr(peers[i].words, word) == NULL)
			continue;
		return arena_printf(a, "%s.%s%s%s", root, peers[i].home,
		                    peers[i].form != NULL ? ", as in " : "",
		                    peers[i].form != NULL ? peers[i].form : "");
	}
	return NULL;
}

/* "; fields: a, b, c", or nothing where that would be a page. */
static const char *fields_text(struct arena *a, const char *const *names, size_t n)
{
	AUTO_BUF struct buf out = BUF_INIT(FIELDS_SHOWN_MAX);

	for (size_t i = 0; i < n; i++)
		buf_printf(&out, "%s%s", i == 0 ? "; fields: " : ", ", names[i]);
	return out.full ? "" : arena_strz(a, buf_view(&out));
}

static void unknown_key(struct spec_reader *r, const struct spec_block *b, const struct doc *child)
{
	struct doc at = {.line = child->key_line, .col = child->key_col};
	bool file = r->form == SPEC_FILE;
	const char *words[FIELDS_MAX], *near, *peer;
	char home[SPEC_PATH_CAP];
	char *name = arena_printf(r->a, "%.*s", (int)MIN(child->key.n, (size_t)60), child->key.p);
	size_t n = 0;

	assert(b->n <= FIELDS_MAX);
	for (size_t i = 0; i < b->n; i++) {
		if (!file || (b->field[i].flags & SPEC_CLIENT) == 0)
			words[n++] = b->field[i].name;
	}
	peer = peer_of(r->a, child->key, file ? "job" : "training_job");
	near = conf_nearest(child->key, words, n);
	if (peer != NULL)
		spec_fault_at(r, &at, name, "is unknown: use %s", peer);
	else if (near != NULL)
		spec_fault_at(r, &at, name, "is unknown: did you mean \"%s\"?", near);
	else if (find_home(file ? &spec_file_block : &spec_job_block, child->key,
	                   file ? "" : "training_job", home, sizeof(home)))
		spec_fault_at(r, &at, name, "is unknown here: did you mean %s?", home);
	else
		spec_fault_at(r, &at, name, "is unknown%s", fields_text(r->a, words, n));
}

void spec_read_block(struct spec_reader *r, const struct spec_block *b, const struct doc *d,
                     void *base)
{
	for (size_t i = 0; i < b->n; i++)
		set_default(r, &b->field[i], base);
	if (spec_given(d) && !doc_is(d, DOC_MAP)) {
		spec_unreadable(r, d, "should be a map, not %s: { %s: ... }",
		                doc_kind_name(d->kind), b->field[0].name);
		return;
	}
	DOC_EACH (child, d) {
		if (field_of(b, child->key) == NULL)
			unknown_key(r, b, child);
	}
	for (size_t i = 0; i < b->n; i++)
		read_field(r, &b->field[i], d, base);
}

static const char *type_word(const struct spec_field *f)
{
	switch (f->kind) {
	case SPEC_TEXT:
		return "text";
	case SPEC_NAME:
		return "name";
	case SPEC_PATH:
		return "path";
	case SPEC_SECRET:
		return "secret reference";
	case SPEC_BOOL:
		return "true, false";
	case SPEC_I64:
	case SPEC_U32:
	case SPEC_GIB:
		return "whole number";
	case SPEC_REAL:
		return "number";
	case SPEC_BYTES:
		return "size";
	case SPEC_SECONDS:
	case SPEC_SECONDS32:
		return "duration";
	case SPEC_TEXTS:
		return "list of text";
	case SPEC_MAPS:
		return "list of maps";
	case SPEC_BLOCK:
		return "map";
	case SPEC_CUSTOM:
		return f->type;
	case SPEC_REFUSED:
		return "not offered";
	case SPEC_IGNORED:
		return "ignored";
	}
	return "";
}

void spec_reference_block(const struct spec_block *b, struct buf *out, unsigned depth)
{
	assert(depth < 8);
	buf_printf(out, "\n### `%s`\n\n%s\n\n| field | type | default | |\n|---|---|---|---|\n",
	           b->title, b->help);
	for (size_t i = 0; i < b->n; i++) {
		const struct spec_field *f = &b->field[i];
		bool must = (f->flags & (SPEC_REQUIRED | SPEC_REQUIRED_FILE)) != 0;

		buf_printf(out, "| `%s` | %s | %s%s%s | %s%s |\n", f->name, type_word(f),
		           f->dflt != NULL ? "`" : "",
		           must              ? "required"
		           : f->dflt != NULL ? f->dflt
		                             : "",
		           f->dflt != NULL ? "`" : "",
		           (f->flags & SPEC_CLIENT) != 0 ? "Sent by clients only: " : "", f->help);
	}
	for (size_t i = 0; i < b->n; i++) {
		if (b->field[i].block != NULL)
			spec_reference_block(b->field[i].block, out, depth + 1);
	}
}
