/* spec_write.c - a specification as the JSON that the API takes, and one value set in a tree. */
#include "core/spec_table.h"

#include "base/yaml.h"

#define SET_STEPS_MAX 16  /* of a path of --set */
#define SET_INDEX_MAX 999 /* of one [n] */

/* The largest unit that says it exactly. */
static void write_bytes(struct js *js, uint64_t bytes)
{
	static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti"};
	size_t u = 0;

	while (bytes > 0 && bytes % 1024 == 0 && u + 1 < COUNT(units)) {
		bytes /= 1024;
		u++;
	}
	js_fmt(js, "%" PRIu64 "%s", bytes, units[u]);
}

static void write_real(struct js *js, double n)
{
	if (n == (double)(uint32_t)n)
		js_u64(js, (uint32_t)n);
	else
		js_real(js, n);
}

void spec_write_secret(struct js *js, const char *name)
{
	js_open(js);
	js_kv(js, "name", name);
	js_close(js);
}

static void write_maps(struct js *js, const struct spec_block *b, const char *item, size_t n)
{
	js_list(js);
	for (; n > 0; n--, item += b->size) {
		if (b->write != NULL)
			b->write(js, item);
		else
			spec_write_block(js, b, item);
	}
	js_end(js);
}

/* How base/record.h writes those that it knows. */
static const unsigned kinds[SPEC_IGNORED + 1] = {
	[SPEC_TEXT] = R_TEXT,   [SPEC_NAME] = R_TEXT,     [SPEC_PATH] = R_TEXT,
	[SPEC_BOOL] = R_BOOL,   [SPEC_I64] = R_I64,       [SPEC_U32] = R_U32,
	[SPEC_SECONDS] = R_U64, [SPEC_SECONDS32] = R_U32, [SPEC_TEXTS] = R_TEXTS,
	[SPEC_MAPS] = R_LIST,
};

static struct record_field row_of(const struct spec_field *f)
{
	return (struct record_field){.kind = kinds[f->kind], .at = f->at, .count = f->at_n};
}

static void write_value(struct js *js, const struct spec_field *f, const void *base)
{
	const void *at = (const char *)base + f->at;
	struct record_field row;

	switch (f->kind) {
	case SPEC_SECRET:
		spec_write_secret(js, *(const char *const *)at);
		break;
	case SPEC_REAL:
		write_real(js, *(const double *)at);
		break;
	case SPEC_BYTES:
		write_bytes(js, *(const uint64_t *)at);
		break;
	case SPEC_GIB:
		js_u64(js, *(const uint64_t *)at >> 30);
		break;
	case SPEC_MAPS:
		write_maps(js, f->block, *(const char *const *)at,
		           *(const size_t *)(const void *)((const char *)base + f->at_n));
		break;
	case SPEC_BLOCK:
		spec_write_block(js, f->block, base);
		break;
	case SPEC_TEXT:
	case SPEC_NAME:
	case SPEC_PATH:
	case SPEC_BOOL:
	case SPEC_I64:
	case SPEC_U32:
	case SPEC_SECONDS:
	case SPEC_SECONDS32:
	case SPEC_TEXTS:
	case SPEC_CUSTOM:
	case SPEC_REFUSED:
	case SPEC_IGNORED:
		row = row_of(f);
		record_write_value(&row, base, js);
		break;
	}
}

static bool is_there(const struct spec_field *f, const void *base)
{
	struct record_field row = row_of(f);

	if (f->there > 0)
		row = (struct record_field){.kind = f->there_kind, .at = f->there};
	else if ((f->flags & SPEC_SPARSE) == 0)
		return true;
	return !record_is_nothing(&row, base);
}

static bool is_written(const struct spec_field *f)
{
	return f->write != NULL || (f->kind != SPEC_CUSTOM && f->kind != SPEC_REFUSED &&
	                            f->kind != SPEC_IGNORED && (f->flags & SPEC_INPUT) == 0);
}

void spec_write_block(struct js *js, const struct spec_block *b, const void *base)
{
	js_open(js);
	for (const struct spec_field *f = b->field; f < b->field + b->n; f++) {
		bool there = is_there(f, base);

		if (!is_written(f) || (!there && (f->flags & SPEC_SPARSE) != 0))
			continue;
		js_key(js, f->name);
		if (!there)
			js_null(js);
		else if (f->write != NULL)
			f->write(js, base);
		else
			write_value(js, f, base);
	}
	js_close(js);
}

void spec_write(const struct job_spec *s, struct js *js)
{
	spec_write_block(js, &spec_job_block, s);
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
