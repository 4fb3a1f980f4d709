/* hub_commit.c - see hub_commit.h. */
#include "core/hub_commit.h"

#include "base/base64.h"
#include "base/json_pull.h"
#include "base/shown.h"
#include "core/manifest.h"

#define PIECE_BYTES ((size_t)48 << 10) /* of a content: what 64 KiB of base64 stand for */
#define SHOW_MAX 200                   /* bytes of a foreign text in a message */

static_assert(PIECE_BYTES % BASE64_GROUP == 0, "a piece is whole groups");

/* What a line and its value may say; anything else is skipped. */
enum member {
	M_NONE,
	M_KEY,
	M_VALUE,
	M_CONTENT,
	M_ENCODING,
	M_PATH,
	M_ALGO,
	M_OID,
	M_SIZE,
	M_SUMMARY,
	M_DESCRIPTION,
	M_PARENT,
	M_ADD_ONLY,
	M_COUNT,
};

struct hub_commit_reader {
	struct hub_commit_sink sink;
	struct js_pull json;
	uint64_t line;    /* from 1, empty ones too */
	unsigned n_lines; /* that were not empty */
	bool over;        /* it failed, or the end was told */

	/* of the line */
	bool begun; /* a token of it came */
	bool has[M_COUNT];
	bool in_value;      /* inside of the object "value" */
	bool naming;        /* the text being read is a key */
	enum member member; /* whose value is being read */
	struct buf text;    /* the key, text or number being read */
	struct buf path, summary, description;
	char parent[HUB_COMMIT_HEX + 1];
	struct hub_line said;
	struct base64 base64;
	size_t n_piece;
	uint8_t piece[PIECE_BYTES];
};

static const char *const kinds[] = {
	[HUB_LINE_HEADER] = "header",
	[HUB_LINE_FILE] = "file",
	[HUB_LINE_LFS_FILE] = "lfsFile",
	[HUB_LINE_DELETED_FILE] = "deletedFile",
	[HUB_LINE_DELETED_FOLDER] = "deletedFolder",
};

static void check(const struct hub_commit_reader *r)
{
	assert(!r->over);
	assert(r->member < M_COUNT && r->said.kind < COUNT(kinds));
	assert(r->n_piece < PIECE_BYTES);
	assert(!r->in_value || (r->has[M_VALUE] && r->json.depth >= 2));
	assert(r->n_piece == 0 || r->has[M_CONTENT]);
	assert(!r->begun || (r->n_lines > 0 && !js_pull_is_new(&r->json)));
	for (size_t i = 0; i < M_COUNT; i++)
		assert(!r->has[i] || r->begun);
}

/* A foreign text, in a message. */
static const char *show(struct str s, char out[SHOW_MAX + 1])
{
	return shown_cut(s, out, SHOW_MAX + 1);
}

/* ---- contents ------------------------------------------------------------------------------ */

/* Called once it is known what the line is, and that it has a content, in any order. */
static int check_content(const struct hub_commit_reader *r, struct err *err)
{
	if (!r->has[M_KEY] || !r->has[M_CONTENT] || r->said.kind == HUB_LINE_FILE)
		return 0;
	return err_set(err, ERR_INVALID, "\"content\" belongs to a file, not to \"%s\"",
	               kinds[r->said.kind]);
}

static int content_begins(struct hub_commit_reader *r, struct err *err)
{
	if (check_content(r, err) < 0)
		return -1;
	r->base64 = (struct base64){0};
	r->n_piece = 0;
	return r->sink.content(r->sink.arg, NULL, 0, err);
}

static int content_flush(struct hub_commit_reader *r, struct err *err)
{
	size_t n = r->n_piece;

	r->n_piece = 0;
	return n == 0 ? 0 : r->sink.content(r->sink.arg, r->piece, n, err);
}

/* Pieces are full, so the same for every way of cutting what is fed. */
static int content_add(struct hub_commit_reader *r, struct str text, struct err *err)
{
	while (text.n > 0) {
		size_t n;

		if (base64_feed(&r->base64, &text, r->piece + r->n_piece, PIECE_BYTES - r->n_piece,
		                &n, err) < 0)
			return err_wrap(err, "\"content\"");
		r->n_piece += n;
		assert(r->n_piece <= PIECE_BYTES);
		if (PIECE_BYTES - r->n_piece < BASE64_GROUP && content_flush(r, err) < 0)
			return -1;
	}
	return 0;
}

static int content_ends(struct hub_commit_reader *r, struct err *err)
{
	if (base64_end(&r->base64, err) < 0)
		return err_wrap(err, "\"content\"");
	return content_flush(r, err);
}

/* ---- members: each is given its text when it is complete ----------------------------------- */

static int set_key(struct hub_commit_reader *r, struct str s, struct err *err)
{
	char shown[SHOW_MAX + 1];
	size_t kind = 0;

	while (kind < COUNT(kinds) && !str_eq(s, kinds[kind]))
		kind++;
	if (kind == COUNT(kinds))
		return err_set(err, ERR_INVALID, "\"key\" is \"%s\", which is not known",
		               show(s, shown));
	if ((kind == HUB_LINE_HEADER) != (r->n_lines == 1))
		return err_set(err, ERR_INVALID, "%s",
		               r->n_lines == 1 ? "the header has to come first"
		                               : "there is a second header");
	r->said.kind = (enum hub_line_kind)kind;
	return check_content(r, err);
}

static int set_encoding(struct hub_commit_reader *r UNUSED, struct str s, struct err *err)
{
	char shown[SHOW_MAX + 1];

	if (str_eq(s, "base64"))
		return 0;
	return err_set(err, ERR_INVALID, "\"encoding\" is \"%s\": only base64 is taken",
	               show(s, shown));
}

static int set_algo(struct hub_commit_reader *r UNUSED, struct str s, struct err *err)
{
	char shown[SHOW_MAX + 1];

	if (str_eq(s, "sha256"))
		return 0;
	return err_set(err, ERR_INVALID, "\"algo\" is \"%s\": only sha256 is taken",
	               show(s, shown));
}

static int set_oid(struct hub_commit_reader *r, struct str s, struct err *err)
{
	return digest_parse(s, &r->said.oid, err) < 0 ? err_wrap(err, "\"oid\"") : 0;
}

static int set_size(struct hub_commit_reader *r, struct str s, struct err *err)
{
	char shown[SHOW_MAX + 1];
	struct err cause = {0};

	if (str_u64(s, 0, INT64_MAX, &r->said.size, &cause) < 0)
		return err_set(err, ERR_INVALID,
		               "\"size\" is %s, not a whole number from 0 to %" PRId64,
		               show(s, shown), INT64_MAX);
	r->said.has_size = true;
	return 0;
}

static int set_parent(struct hub_commit_reader *r, struct str s, struct err *err)
{
	uint8_t raw[HUB_OID_LEN];

	if (hex_decode(s, raw, sizeof(raw), err) < 0)
		return err_wrap(err, "\"parentCommit\"");
	hex_encode(raw, sizeof(raw), r->parent);
	return 0;
}

static int set_path(struct hub_commit_reader *r, struct str s, struct err *err UNUSED)
{
	buf_str(&r->path, s);
	return 0;
}

static int set_summary(struct hub_commit_reader *r, struct str s, struct err *err UNUSED)
{
	buf_str(&r->summary, s);
	return 0;
}

static int set_description(struct hub_commit_reader *r, struct str s, struct err *err UNUSED)
{
	buf_str(&r->description, s);
	return 0;
}

static const struct {
	const char *name;
	bool of_line; /* else of its value */
	bool may_be_null;
	enum js_token token; /* how its value begins */
	int (*set)(struct hub_commit_reader *r, struct str text, struct err *err);
} members[M_COUNT] = {
	[M_KEY] = {"key", true, false, JS_TEXT, set_key},
	[M_VALUE] = {"value", true, false, JS_MAP, NULL},
	[M_CONTENT] = {"content", false, false, JS_TEXT, NULL},
	[M_ENCODING] = {"encoding", false, false, JS_TEXT, set_encoding},
	[M_PATH] = {"path", false, false, JS_TEXT, set_path},
	[M_ALGO] = {"algo", false, false, JS_TEXT, set_algo},
	[M_OID] = {"oid", false, false, JS_TEXT, set_oid},
	[M_SIZE] = {"size", false, false, JS_NUMBER, set_size},
	[M_SUMMARY] = {"summary", false, false, JS_TEXT, set_summary},
	[M_DESCRIPTION] = {"description", false, false, JS_TEXT, set_description},
	[M_PARENT] = {"parentCommit", false, true, JS_TEXT, set_parent},
	[M_ADD_ONLY] = {"addOnly", false, false, JS_TRUE, NULL},
};

static const char *kind_of_value(enum js_token t)
{
	static const char *const names[JS_TOKEN_COUNT] = {
		[JS_MAP] = "an object",   [JS_LIST] = "a list",    [JS_TEXT] = "a text",
		[JS_NUMBER] = "a number", [JS_TRUE] = "a boolean", [JS_FALSE] = "a boolean",
		[JS_NULL] = "null",
	};

	assert(names[t] != NULL);
	return names[t];
}

/* A key is complete: whose value comes next? */
static int named(struct hub_commit_reader *r, struct err *err)
{
	bool of_line = r->json.depth == 1, of_value = r->json.depth == 2 && r->in_value;

	assert(r->member == M_NONE);
	if (!of_line && !of_value)
		return 0;
	for (enum member m = M_NONE + 1; m < M_COUNT; m++) {
		if (members[m].of_line != of_line || !str_eq(buf_view(&r->text), members[m].name))
			continue;
		if (r->has[m])
			return err_set(err, ERR_INVALID, "\"%s\" is there twice", members[m].name);
		r->member = m;
	}
	return 0;
}

/* A value begins, or is there already: null, true, false. */
static int value_begins(struct hub_commit_reader *r, enum js_token t, struct err *err)
{
	enum member m = r->member;

	assert(r->begun && !r->naming);
	if (m == M_NONE)
		return 0;
	r->has[m] = true;
	if (t == JS_NULL && members[m].may_be_null) {
		r->member = M_NONE;
		return 0;
	}
	if (m == M_ADD_ONLY && (t == JS_TRUE || t == JS_FALSE)) {
		r->said.add_only = t == JS_TRUE;
		r->member = M_NONE;
		return 0;
	}
	if (t != members[m].token)
		return err_set(err, ERR_INVALID, "\"%s\" has to be %s, not %s", members[m].name,
		               kind_of_value(members[m].token), kind_of_value(t));
	if (m == M_VALUE) {
		r->in_value = true;
		r->member = M_NONE;
	}
	return m == M_CONTENT ? content_begins(r, err) : 0;
}

/* A key, text or number is complete. */
static int text_ends(struct hub_commit_reader *r, struct err *err)
{
	enum member m = r->member;

	if (r->naming) {
		r->naming = false;
		return named(r, err);
	}
	r->member = M_NONE;
	if (m == M_NONE)
		return 0;
	return m == M_CONTENT ? content_ends(r, err) : members[m].set(r, buf_view(&r->text), err);
}

static int text_add(struct hub_commit_reader *r, struct str piece, struct err *err)
{
	if (!r->naming && r->member == M_CONTENT)
		return content_add(r, piece, err);
	buf_str(&r->text, piece);
	return buf_check(&r->text, "a text", err);
}

/* ---- lines --------------------------------------------------------------------------------- */

static int line_begins(struct hub_commit_reader *r, enum js_token t, struct err *err)
{
	if (r->n_lines == 1 + HUB_COMMIT_LINES_MAX)
		return err_set(err, ERR_TOO_BIG,
		               "a commit has at most %d lines behind its header, one for each "
		               "file: send several commits",
		               HUB_COMMIT_LINES_MAX);
	r->n_lines++;
	r->begun = true;
	if (t != JS_MAP)
		return err_set(err, ERR_INVALID, "a line has to be an object, not %s",
		               kind_of_value(t));
	return 0;
}

static int token(struct hub_commit_reader *r, const struct js_event *e, struct err *err)
{
	switch (e->token) {
	case JS_KEY:
		r->naming = true;
		buf_clear(&r->text);
		return 0;
	case JS_TEXT:
	case JS_NUMBER:
		buf_clear(&r->text);
		return value_begins(r, e->token, err);
	case JS_MAP:
	case JS_LIST:
	case JS_TRUE:
	case JS_FALSE:
	case JS_NULL:
		return value_begins(r, e->token, err);
	case JS_PIECE:
		return text_add(r, e->piece, err);
	case JS_END:
		return text_ends(r, err);
	case JS_MAP_END:
	case JS_LIST_END:
		r->in_value = r->in_value && r->json.depth >= 2;
		return 0;
	case JS_MORE:
	case JS_TOKEN_COUNT:
		break;
	}
	abort(); /* the caller has dealt with it */
}

/* Bytes of the line, without its newline. */
static int line_feed(struct hub_commit_reader *r, struct str in, struct err *err)
{
	for (;;) {
		struct js_event e;

		if (js_pull_next(&r->json, &in, &e, err) < 0)
			return -1;
		if (e.token == JS_MORE)
			return 0;
		if (!r->begun && line_begins(r, e.token, err) < 0)
			return -1;
		if (token(r, &e, err) < 0)
			return -1;
	}
}

/* ".git" in any case is git's own, in every folder. */
static bool is_gits_own(struct str path)
{
	struct str part;

	while (str_cut(&path, '/', &part))
		if (str_ieq(part, ".git"))
			return true;
	return false;
}

/* With every \\ taken for a /, as clients on Windows have it, it has to stay below its folder, too.
 */
static bool is_plain(struct str path)
{
	AUTO_FREE char *other = str_dup(path);

	for (char *c = other; *c != '\0'; c++)
		*c = *c == '\\' ? '/' : *c;
	return manifest_path_ok(path) && manifest_path_ok(str_of(other));
}

bool hub_commit_path_ok(struct str path)
{
	size_t folders = 0;

	for (size_t i = 0; i < path.n; i++)
		folders += path.p[i] == '/';
	return folders <= HUB_DEPTH_MAX && is_plain(path) && !is_gits_own(path) &&
	       str_is_utf8(path);
}

static int finish_path(struct hub_commit_reader *r, struct err *err)
{
	char shown[SHOW_MAX + 1];
	struct str path = buf_view(&r->path);

	if (r->said.kind == HUB_LINE_DELETED_FOLDER && str_ends(path, "/")) {
		r->path.p[--r->path.n] = '\0';
		path.n--;
	}
	if (!is_plain(path))
		return err_set(err, ERR_INVALID, "\"path\" is \"%s\", which is no plain path",
		               show(path, shown));
	if (is_gits_own(path))
		return err_set(err, ERR_INVALID, "\"path\" is \"%s\": .git belongs to git",
		               show(path, shown));
	r->said.path = buf_cstr(&r->path);
	return 0;
}

static int need(const struct hub_commit_reader *r, enum member m, struct err *err)
{
	return r->has[m] ? 0 : err_set(err, ERR_INVALID, "\"%s\" is missing", members[m].name);
}

/* What the line says, as a whole. */
static int finish(struct hub_commit_reader *r, struct err *err)
{
	if (need(r, M_KEY, err) < 0 || need(r, M_VALUE, err) < 0)
		return -1;
	if (r->said.kind == HUB_LINE_HEADER) {
		r->said.summary = buf_cstr(&r->summary);
		r->said.description = buf_cstr(&r->description);
		r->said.parent = r->parent;
		return 0;
	}
	if (need(r, M_PATH, err) < 0 || finish_path(r, err) < 0)
		return -1;
	if (r->said.kind == HUB_LINE_FILE)
		return need(r, M_CONTENT, err);
	return r->said.kind == HUB_LINE_LFS_FILE ? need(r, M_OID, err) : 0;
}

static void line_clear(struct hub_commit_reader *r)
{
	js_pull_init(&r->json);
	memset(r->has, 0, sizeof(r->has));
	r->begun = r->in_value = r->naming = false;
	r->member = M_NONE;
	buf_clear(&r->path);
	buf_clear(&r->summary);
	buf_clear(&r->description);
	r->parent[0] = '\0';
	r->said = (struct hub_line){0};
}

static int line_ends(struct hub_commit_reader *r, struct err *err)
{
	if (js_pull_is_new(&r->json))
		return 0;
	if (!js_pull_is_done(&r->json))
		return err_set(err, ERR_INVALID, "it ends inside of its JSON");
	assert(r->json.depth == 0 && !r->in_value && !r->naming && r->n_piece == 0);
	if (finish(r, err) < 0)
		return -1;
	if (r->sink.line(r->sink.arg, &r->said, r->has[M_CONTENT], err) < 0)
		return -1;
	line_clear(r);
	return 0;
}

/* ---- the reader ---------------------------------------------------------------------------- */

struct hub_commit_reader *hub_commit_reader_new(const struct hub_commit_sink *sink)
{
	struct hub_commit_reader *r = xcalloc(1, sizeof(*r));

	assert(sink->content != NULL && sink->line != NULL);
	r->sink = *sink;
	r->line = 1;
	r->text = r->path = r->summary = r->description = (struct buf)BUF_INIT(HUB_COMMIT_TEXT_MAX);
	line_clear(r);
	return r;
}

void hub_commit_reader_free(struct hub_commit_reader *r)
{
	if (r == NULL)
		return;
	buf_done(&r->text);
	buf_done(&r->path);
	buf_done(&r->summary);
	buf_done(&r->description);
	free(r);
}

static int failed(struct hub_commit_reader *r, struct err *err)
{
	assert(err->code != ERR_NONE);
	r->over = true;
	return err_wrap(err, "line %" PRIu64, r->line);
}

int hub_commit_feed(struct hub_commit_reader *r, const void *p, size_t n, struct err *err)
{
	struct str in = {p, n};

	check(r);
	while (in.n > 0) {
		/* No token has a newline inside: a text would have it escaped. */
		const char *end = memchr(in.p, '\n', in.n);
		struct str here = str_n(in.p, end == NULL ? in.n : (size_t)(end - in.p));

		if (line_feed(r, here, err) < 0)
			return failed(r, err);
		in = str_skip(in, here.n);
		if (end == NULL)
			break;
		if (line_ends(r, err) < 0)
			return failed(r, err);
		in = str_skip(in, 1);
		r->line++;
	}
	check(r);
	return 0;
}

int hub_commit_end(struct hub_commit_reader *r, struct err *err)
{
	check(r);
	if (line_ends(r, err) < 0)
		return failed(r, err);
	r->over = true;
	return r->n_lines > 0 ? 0 : err_set(err, ERR_INVALID, "there is no header");
}
