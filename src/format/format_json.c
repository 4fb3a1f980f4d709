/* format_json.c - JSON files, what indexes and states among them say of the rest, JSON lines. */
#include "base/map.h"
#include "format/jscan.h"
#include "format/parsers.h"

#define TAIL_MAX ((size_t)32768) /* of JSON lines: the last line, when it is no longer */

/* The files that one names, each once. */
struct needs {
	struct format_need *at;
	size_t n, cap;
	struct map *by_path; /* number + 1 */
	struct format_facts *facts;
	bool full;
};

static struct format_need *need(struct needs *ns, struct str path)
{
	size_t i = (size_t)(uintptr_t)map_get(ns->by_path, path);

	if (i > 0)
		return &ns->at[i - 1];
	if (ns->n >= FORMAT_NEEDS_MAX || path.n == 0 || path.n >= FORMAT_PATH_MAX ||
	    memchr(path.p, 0, path.n) != NULL) {
		ns->full = true;
		return NULL;
	}
	if (ns->n == ns->cap) {
		ns->cap = MAX(ns->cap * 2, 16);
		ns->at = xrealloc(ns->at, ns->cap * sizeof(*ns->at));
	}
	memset(&ns->at[ns->n], 0, sizeof(ns->at[0]));
	ns->at[ns->n].path = arena_strz(ns->facts->own, path);
	(void)map_set(ns->by_path, path, (void *)(uintptr_t)(ns->n + 1));
	return &ns->at[ns->n++];
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct format_need *)a)->path, ((const struct format_need *)b)->path);
}

static void needs_keep(struct needs *ns)
{
	if (ns->n > 0) {
		struct format_need *all = ARENA_ARRAY(ns->facts->own, struct format_need, ns->n);

		qsort(ns->at, ns->n, sizeof(ns->at[0]), by_path);
		memcpy(all, ns->at, ns->n * sizeof(ns->at[0]));
		ns->facts->need = all;
		ns->facts->n_need = ns->n;
	}
	free(ns->at);
	map_free(ns->by_path);
}

/* {"weight_map": {tensor: file}}; Keras: {layer: [file...]}. */
static enum jscan_token read_weight_map(struct jscan *s, struct needs *ns)
{
	enum jscan_token t = jscan_next(s);

	if (t != JSCAN_MAP)
		return jscan_skip(s, t);
	for (t = jscan_next(s); t == JSCAN_KEY; t = jscan_next(s)) {
		unsigned depth = s->depth;

		do {
			t = jscan_next(s);
			if (t == JSCAN_TEXT) {
				struct format_need *n = need(ns, jscan_text(s));

				if (n != NULL)
					n->tensors++;
			}
		} while (!jscan_failed(t) && s->depth > depth);
		if (jscan_failed(t))
			break;
	}
	return t;
}

/* {"algorithm": "sha256", "files": {name: hex}}, Megatron's. */
static enum jscan_token read_hashes(struct jscan *s, struct needs *ns)
{
	enum jscan_token t = jscan_next(s);

	if (t != JSCAN_MAP)
		return jscan_skip(s, t);
	for (t = jscan_next(s); t == JSCAN_KEY; t = jscan_next(s)) {
		struct format_need *n = need(ns, jscan_text(s));
		struct err err = {0};

		t = jscan_skip(s, jscan_next(s));
		if (jscan_failed(t))
			break;
		if (n != NULL && t == JSCAN_TEXT)
			n->hashed = digest_parse(jscan_text(s), &n->sha256, &err) == 0;
	}
	return t;
}

/* {"unet": ["diffusers", "UNet2DConditionModel"], "_class_name": ..., "safety_checker": [null,
 * null]}: a component is a list of two texts. */
static enum jscan_token read_component(struct jscan *s, struct needs *ns, struct str name)
{
	char folder[JSCAN_TEXT_MAX + 2];
	enum jscan_token t = jscan_next(s);
	size_t texts = 0, others = 0;

	(void)snprintf(folder, sizeof(folder), "%.*s/", (int)name.n, name.n == 0 ? "" : name.p);
	if (t != JSCAN_LIST)
		return jscan_skip(s, t);
	for (t = jscan_next(s); !jscan_failed(t) && t != JSCAN_LIST_END; t = jscan_next(s)) {
		t = jscan_skip(s, t);
		texts += t == JSCAN_TEXT;
		others += t != JSCAN_TEXT;
		if (jscan_failed(t))
			break;
	}
	if (t == JSCAN_LIST_END && texts == 2 && others == 0 && folder[0] != '_')
		(void)need(ns, str_of(folder));
	return t;
}

static enum jscan_token read_step(struct jscan *s, struct needs *ns)
{
	enum jscan_token t = jscan_skip(s, jscan_next(s));
	uint64_t v;

	if (t == JSCAN_NUMBER && jscan_u64(s, &v))
		ns->facts->step = (int64_t)v;
	return t;
}

static enum jscan_token read_commit(struct jscan *s, struct needs *ns)
{
	enum jscan_token t = jscan_skip(s, jscan_next(s));
	uint64_t v;

	if (t == JSCAN_NUMBER && jscan_u64(s, &v))
		ns->facts->committed = v > 0;
	return t;
}

static enum jscan_token read_text(struct jscan *s, struct needs *ns)
{
	enum jscan_token t = jscan_skip(s, jscan_next(s));

	if (t == JSCAN_TEXT)
		ns->facts->text = arena_strz(ns->facts->own, jscan_text(s));
	return t;
}

/* Files that tell of others, by name. key NULL: every member goes to read_component. */
static const struct teller {
	const char *front, *end; /* of the file's name */
	enum format_role role;
	const char *key;
	enum jscan_token (*read)(struct jscan *s, struct needs *ns);
} tellers[] = {
	{"", ".index.json", FORMAT_INDEX, "weight_map", read_weight_map},
	{"", ".weights.json", FORMAT_INDEX, "weight_map", read_weight_map},
	{"integrity.json", "", FORMAT_INTEGRITY, "files", read_hashes},
	{"model_index.json", "", FORMAT_PIPELINE, NULL, NULL},
	{"trainer_state.json", "", FORMAT_STATE, "global_step", read_step},
	{"_CHECKPOINT_METADATA", "", FORMAT_COMMIT, "commit_timestamp_nsecs", read_commit},
	{"metadata.json", "", FORMAT_PLAIN, "sharded_backend", read_text},
};

static const struct teller *teller_of(struct str name)
{
	for (size_t i = 0; i < COUNT(tellers); i++)
		if (str_starts(name, tellers[i].front) && str_ends(name, tellers[i].end) &&
		    (tellers[i].end[0] != '\0' || name.n == strlen(tellers[i].front)))
			return &tellers[i];
	return NULL;
}

enum format_role json_role(struct str name)
{
	const struct teller *as = teller_of(name);

	return as == NULL ? FORMAT_PLAIN : as->role;
}

/* The members of the outermost map. */
static enum jscan_token tell(struct jscan *s, const struct teller *as, struct needs *ns)
{
	enum jscan_token t = jscan_next(s);

	if (t != JSCAN_MAP)
		return jscan_skip(s, t);
	for (t = jscan_next(s); t == JSCAN_KEY; t = jscan_next(s)) {
		char key[JSCAN_TEXT_MAX + 1];

		memcpy(key, s->text, s->len + 1);
		if (as->key == NULL)
			t = read_component(s, ns, str_of(key));
		else if (strcmp(as->key, key) == 0)
			t = as->read(s, ns);
		else
			t = jscan_skip(s, jscan_next(s));
		if (jscan_failed(t))
			break;
	}
	return t;
}

static enum jscan_token whole_value(struct jscan *s, const struct teller *as)
{
	struct needs ns = {0};
	enum jscan_token t;

	if (as == NULL)
		return jscan_skip(s, jscan_next(s));
	ns.facts = look_facts(s->l, as->role);
	ns.by_path = map_new();
	t = tell(s, as, &ns);
	needs_keep(&ns);
	return ns.full ? JSCAN_BAD : t;
}

void check_json(struct look *l)
{
	struct jscan *s = xcalloc(1, sizeof(*s));
	enum jscan_token t;
	size_t docs = 0;

	jscan_start(s, l, 0);
	t = whole_value(s, teller_of(l->name));
	while (!jscan_failed(t)) {
		docs++;
		if (!jscan_rest(s))
			break;
		jscan_start(s, l, s->at); /* lines of JSON under the name of JSON */
		t = jscan_skip(s, jscan_next(s));
	}
	if (jscan_failed(t))
		jscan_verdict(s, t);
	else if (docs == 1 && t == JSCAN_NUMBER)
		look_unknown(l, "is a number that may have had more digits");
	else
		look_whole(l);
	free(s);
}

/* They are appended to: only the end is looked at. */
void check_json_lines(struct look *l)
{
	size_t n = (size_t)MIN(l->size, (uint64_t)TAIL_MAX), line;
	const uint8_t *p = look_at(l, l->size - n, n);
	struct jscan *s = NULL;
	enum jscan_token t;

	if (p == NULL)
		return;
	if (p[n - 1] != '\n') {
		look_torn(l, "its last line has no end");
		return;
	}
	for (line = n - 1; line > 0 && p[line - 1] != '\n'; line--)
		;
	if (line == 0 && l->size > n) {
		look_unknown(l, "its last line is very long");
		return;
	}
	s = xcalloc(1, sizeof(*s));
	jscan_start(s, l, l->size - n + line);
	t = jscan_skip(s, jscan_next(s));
	if (jscan_failed(t) && line + 1 < n)
		jscan_verdict(s, t);
	else
		look_whole(l);
	free(s);
}
