/*
 * wire.c - the messages as tables: one row a field, and one writer and one reader for all of them.
 *
 * A reader takes what it does not know for granted (a newer peer), but not what is missing or has
 * the wrong kind: a runner that guesses is worse than one that stops.
 */
#include "core/wire.h"

#define WIRE_LIST_MAX 100000 /* entries of one list: more is not a message but an attack */

enum kind {
	TEXT,  /* const char *, must be there */
	TEXT0, /* const char *, may be absent or null */
	U32,
	U64,
	INT,
	I64,
	REAL,
	BOOL,
	FLAG, /* a BOOL that older ones do not say: false then */
	STAGE,
	END,
	TEXTS,  /* const char ** and its count */
	TEXTS0, /* the same; absent is none, for what older programs do not say */
	LIST,   /* array of structs and its count */
	FIXED,  /* array inside the struct and its count */
	ONE,    /* struct inside the struct; `count` is its bool has_... */
};

struct shape;

struct field {
	const char *name;
	enum kind kind;
	size_t at, count; /* offsets in the struct; count: of size_t (lists) or bool (ONE) */
	const struct shape *of;
};

struct shape {
	const char *what; /* for messages */
	size_t size;      /* of the struct */
	size_t n, cap;    /* fields; entries, when it is the element of a FIXED */
	const struct field *field;
};

/* clang-format off */
#define ROW(s, kind, f)            {#f, kind, offsetof(struct s, f), 0, NULL}
#define ROWS(s, kind, f, n)        {#f, kind, offsetof(struct s, f), offsetof(struct s, n), NULL}
#define ROWOF(s, kind, f, n, sub)  {#f, kind, offsetof(struct s, f), offsetof(struct s, n), sub}
#define SHAPE(s, rows, cap)        {#s, sizeof(struct s), COUNT(rows), cap, rows}

static const struct field start_rows[] = {
	ROW(wire_start, TEXT,  server),
	ROW(wire_start, TEXT0, ca_file),
	ROW(wire_start, TEXT0, socket),
	ROW(wire_start, TEXT0, lock),
	ROW(wire_start, TEXT,  token),
	ROW(wire_start, TEXT,  attempt_id),
	ROW(wire_start, U32,   node_rank),
	ROWS(wire_start, TEXTS0, others, n_others),
};
static const struct shape start_shape = SHAPE(wire_start, start_rows, 0);

static const struct field env_rows[] = {
	ROW(wire_env, TEXT, name),
	ROW(wire_env, TEXT, value),
	ROW(wire_env, BOOL, secret),
};
static const struct shape env_shape = SHAPE(wire_env, env_rows, 0);

static const struct field weights_rows[] = {
	ROW(wire_weights, TEXT, source),
	ROW(wire_weights, TEXT, revision),
	ROW(wire_weights, TEXT, mount_location),
	ROW(wire_weights, TEXT, manifest),
	ROW(wire_weights, U64,  bytes),
	ROW(wire_weights, U64,  files),
};
static const struct shape weights_shape = SHAPE(wire_weights, weights_rows, 0);

static const struct field load_rows[] = {
	ROW(wire_load, TEXT, name),
	ROW(wire_load, TEXT, job_id),
	ROW(wire_load, TEXT, prefix),
	ROW(wire_load, U32,  rank_from),
	ROW(wire_load, TEXT0, files_sha256),
	ROW(wire_load, TEXT, dir),
	ROW(wire_load, FLAG, resume),
};
static const struct shape load_shape = SHAPE(wire_load, load_rows, 0);

static const struct field code_rows[] = {
	ROW(wire_code, TEXT, key),
	ROW(wire_code, U64,  bytes),
};
static const struct shape code_shape = SHAPE(wire_code, code_rows, 0);

static const struct field gpu_rows[] = {
	ROW(wire_gpu, U32,  index),
	ROW(wire_gpu, TEXT, uuid),
};
static const struct shape gpu_shape = SHAPE(wire_gpu, gpu_rows, 0);

static const struct field image_rows[] = {
	ROW(wire_image, TEXT,  id),
	ROW(wire_image, TEXT0, reference),
};
static const struct shape image_shape = SHAPE(wire_image, image_rows, 0);

static const struct field sign_rows[] = {
	ROW(wire_sign, TEXT,  method),
	ROW(wire_sign, TEXT,  key),
	ROW(wire_sign, TEXT0, query),
	ROW(wire_sign, TEXT0, copy_from),
};
static const struct shape sign_shape = SHAPE(wire_sign, sign_rows, 0);

static const struct field signed_rows[] = {
	ROW(wire_signed, TEXT,  url),
	ROW(wire_signed, TEXT0, copy_source),
	ROW(wire_signed, TEXT0, no_copy),
};
static const struct shape signed_shape = SHAPE(wire_signed, signed_rows, 0);

static const struct field sign_all_rows[] = {
	ROWOF(wire_sign_all, LIST, request, n_request, &sign_shape),
};
static const struct shape sign_all_shape = SHAPE(wire_sign_all, sign_all_rows, 0);

static const struct field answer_rows[] = {
	ROW(wire_signed, TEXT0, url),
	ROW(wire_signed, TEXT0, copy_source),
	ROW(wire_signed, TEXT0, no_copy),
	ROW(wire_signed, INT,   status),
	ROW(wire_signed, TEXT0, error),
	ROW(wire_signed, TEXT0, message),
};
static const struct shape answer_shape = SHAPE(wire_signed, answer_rows, 0);

static const struct field signed_all_rows[] = {
	ROWOF(wire_signed_all, LIST, answer, n_answer, &answer_shape),
};
static const struct shape signed_all_shape = SHAPE(wire_signed_all, signed_all_rows, 0);

static const struct field launch_rows[] = {
	ROW(wire_launch, TEXT,  attempt_id),
	ROW(wire_launch, TEXT,  job_id),
	ROW(wire_launch, TEXT,  job_name),
	ROW(wire_launch, TEXT,  project_id),
	ROW(wire_launch, TEXT,  project_name),
	ROW(wire_launch, TEXT,  team_id),
	ROW(wire_launch, U32,   node_rank),
	ROW(wire_launch, U32,   node_count),
	ROW(wire_launch, U32,   retry_count),
	ROW(wire_launch, TEXT,  leader_addr),
	ROW(wire_launch, TEXT,  spec_json),
	ROWOF(wire_launch, LIST, code, n_code, &code_shape),
	ROWOF(wire_launch, LIST, weights, n_weights, &weights_shape),
	ROWOF(wire_launch, LIST, load, n_load, &load_shape),
	ROWOF(wire_launch, LIST, env, n_env, &env_shape),
	ROW(wire_launch, TEXT0, registry_secret),
	ROW(wire_launch, TEXT0, registry_secret2),
	ROWOF(wire_launch, LIST, gpus, n_gpus, &gpu_shape),
	ROWOF(wire_launch, ONE, image, has_image, &image_shape),
	ROW(wire_launch, TEXT0, store_dir),
	ROW(wire_launch, TEXT,  node_dir),
	ROW(wire_launch, U64,   node_budget_bytes),
	ROW(wire_launch, TEXT,  objstore),
	ROW(wire_launch, TEXT0, cache_project_dir),
	ROW(wire_launch, TEXT0, cache_team_dir),
	ROW(wire_launch, U64,   cache_quota_bytes),
	ROW(wire_launch, U64,   scratch_bytes),
	ROW(wire_launch, U64,   scratch_files),
	ROW(wire_launch, TEXT0, ckpt_prefix),
	ROW(wire_launch, TEXT,  images),
	ROW(wire_launch, TEXT,  sandbox),
	ROW(wire_launch, TEXT0, ids_mode),
	ROW(wire_launch, TEXT0, ids_pool),
	ROW(wire_launch, TEXT0, ids_dir),
	ROWS(wire_launch, TEXTS, share, n_share),
	ROWS(wire_launch, TEXTS, hide, n_hide),
};
static const struct shape launch_shape = SHAPE(wire_launch, launch_rows, 0);

static const struct field gpu_sample_rows[] = {
	ROW(wire_gpu_sample, U32,  index),
	ROW(wire_gpu_sample, REAL, utilization),
	ROW(wire_gpu_sample, U64,  memory_bytes),
};
static const struct shape gpu_sample_shape =
	SHAPE(wire_gpu_sample, gpu_sample_rows, COUNT(((struct wire_sample *)0)->gpu));

static const struct field sample_rows[] = {
	ROW(wire_sample, I64,  wall_ms),
	ROW(wire_sample, REAL, cpu_cores),
	ROW(wire_sample, U64,  memory_bytes),
	ROW(wire_sample, U64,  memory_limit),
	ROW(wire_sample, U64,  scratch_bytes),
	ROW(wire_sample, U64,  scratch_total),
	ROW(wire_sample, U64,  cache_bytes),
	ROW(wire_sample, U64,  cache_quota),
	ROW(wire_sample, U64,  ckpt_bytes),
	ROWOF(wire_sample, FIXED, gpu, n_gpus, &gpu_sample_shape),
};
static const struct shape sample_shape = SHAPE(wire_sample, sample_rows, 0);

static const struct field heartbeat_rows[] = {
	ROW(wire_heartbeat, U64,   seq),
	ROW(wire_heartbeat, STAGE, stage),
	ROW(wire_heartbeat, TEXT0, note),
	ROW(wire_heartbeat, U64,   done_bytes),
	ROW(wire_heartbeat, U64,   total_bytes),
	ROW(wire_heartbeat, REAL,  rate_bytes_s),
	ROW(wire_heartbeat, FLAG,  idle),
	ROWOF(wire_heartbeat, ONE, sample, has_sample, &sample_shape),
};
static const struct shape heartbeat_shape = SHAPE(wire_heartbeat, heartbeat_rows, 0);

static const struct field exec_rows[] = {
	ROW(wire_exec, TEXT, id),
	ROWS(wire_exec, TEXTS, argv, n_argv),
	ROW(wire_exec, BOOL,  input),
	ROW(wire_exec, BOOL,  tty),
	ROW(wire_exec, U32,   rows),
	ROW(wire_exec, U32,   columns),
	ROW(wire_exec, TEXT0, term),
};
static const struct shape exec_shape = SHAPE(wire_exec, exec_rows, 0);

static const struct field desired_rows[] = {
	ROW(wire_desired, BOOL, go),
	ROW(wire_desired, BOOL, stop),
	ROW(wire_desired, BOOL, now),
	ROW(wire_desired, FLAG, idle),
	ROW(wire_desired, U64,  seq),
	ROWOF(wire_desired, LIST, exec, n_exec, &exec_shape),
};
static const struct shape desired_shape = SHAPE(wire_desired, desired_rows, 0);

static const struct field exit_rows[] = {
	ROW(wire_exit, END,   end),
	ROW(wire_exit, INT,   code),
	ROW(wire_exit, TEXT0, detail),
	ROW(wire_exit, TEXT0, stage),
	ROW(wire_exit, TEXT0, error_id),
	ROW(wire_exit, BOOL,  user_code_ran),
	ROW(wire_exit, BOOL,  synced),
	ROW(wire_exit, I64,   started_ms),
	ROW(wire_exit, I64,   ended_ms),
	ROW(wire_exit, U64,   peak_memory_bytes),
};
static const struct shape exit_shape = SHAPE(wire_exit, exit_rows, 0);

static const char *const stages[STAGE_COUNT] = {
	[STAGE_CLAIM] = "claim",
	[STAGE_CODE] = "code",
	[STAGE_PYTHON] = "python",
	[STAGE_WEIGHTS] = "weights",
	[STAGE_CHECKPOINTS] = "checkpoints",
	[STAGE_SANDBOX] = "sandbox",
	[STAGE_READY] = "ready",
	[STAGE_RUNNING] = "running",
	[STAGE_SYNC] = "sync",
	[STAGE_DONE] = "done",
};
/* clang-format on */

const char *wire_stage_word(enum wire_stage s)
{
	assert(s < STAGE_COUNT);
	return stages[s];
}

static const char *const exec_states[EXEC_STATE_COUNT] = {
	[EXEC_LIVE] = "live", [EXEC_HUNG] = "hung", [EXEC_LEFT] = "left", [EXEC_OVER] = "over"};

const char *wire_exec_word(enum wire_exec_state s)
{
	assert(s < EXEC_STATE_COUNT);
	return exec_states[s];
}

bool wire_exec_state_of(struct str word, enum wire_exec_state *out)
{
	for (enum wire_exec_state s = 0; s < EXEC_STATE_COUNT; s++) {
		if (str_eq(word, exec_states[s])) {
			*out = s;
			return true;
		}
	}
	return false;
}

/* Typed reads and writes at an offset, by memcpy: no aliasing, no alignment to think of. */
#define GET(type, base, off)                                                                       \
	(__extension__({                                                                           \
		type v_;                                                                           \
		memcpy(&v_, (const char *)(base) + (off), sizeof(v_));                             \
		v_;                                                                                \
	}))
#define PUT(type, base, off, value)                                                                \
	do {                                                                                       \
		type v_ = (value);                                                                 \
		memcpy((char *)(base) + (off), &v_, sizeof(v_));                                   \
	} while (0)

/* JSON readers hold 63 bits: what is larger is said as the largest. */
static uint64_t clamp(uint64_t n)
{
	return MIN(n, (uint64_t)INT64_MAX);
}

static void write_shape(const struct shape *sh, const void *m, struct js *js);

static bool is_texts(const struct field *f)
{
	return f->kind == TEXTS || f->kind == TEXTS0;
}

static void write_list(const struct field *f, const void *m, struct js *js)
{
	size_t n = GET(size_t, m, f->count);
	const char *base = (const char *)m + f->at;

	if (f->kind != FIXED)
		base = GET(const char *, m, f->at);
	js_list(js);
	for (size_t i = 0; i < n; i++) {
		if (is_texts(f))
			js_cstr(js, GET(const char *, base, i * sizeof(char *)));
		else
			write_shape(f->of, base + i * f->of->size, js);
	}
	js_end(js);
}

static void write_field(const struct field *f, const void *m, struct js *js)
{
	switch (f->kind) {
	case TEXT:
	case TEXT0:
		js_cstr(js, GET(const char *, m, f->at));
		break;
	case U32:
		js_u64(js, GET(uint32_t, m, f->at));
		break;
	case U64:
		js_u64(js, clamp(GET(uint64_t, m, f->at)));
		break;
	case INT:
		js_int(js, GET(int, m, f->at));
		break;
	case I64:
		js_int(js, GET(int64_t, m, f->at));
		break;
	case REAL:
		js_real(js, GET(double, m, f->at));
		break;
	case BOOL:
	case FLAG:
		js_bool(js, GET(bool, m, f->at));
		break;
	case STAGE:
		js_cstr(js, wire_stage_word(GET(enum wire_stage, m, f->at)));
		break;
	case END:
		js_cstr(js, job_end_word(GET(enum job_end, m, f->at)));
		break;
	case TEXTS:
	case TEXTS0:
	case LIST:
	case FIXED:
		write_list(f, m, js);
		break;
	case ONE:
		if (GET(bool, m, f->count))
			write_shape(f->of, (const char *)m + f->at, js);
		else
			js_null(js);
		break;
	}
}

static void write_shape(const struct shape *sh, const void *m, struct js *js)
{
	js_open(js);
	for (size_t i = 0; i < sh->n; i++) {
		js_key(js, sh->field[i].name);
		write_field(&sh->field[i], m, js);
	}
	js_close(js);
}

static int read_shape(const struct shape *sh, struct arena *a, const struct doc *d, void *m,
                      struct err *err);

static int wrong(const struct field *f, const struct doc *d, const char *want, struct err *err)
{
	if (d == NULL)
		return err_set(err, ERR_INVALID, "%s: missing, %s is expected", f->name, want);
	return err_set(err, ERR_INVALID, "%s: %s, not %s", f->name, want, doc_kind_name(d->kind));
}

static int read_text(const struct field *f, struct arena *a, const struct doc *d, const char **out,
                     struct err *err)
{
	if (f->kind == TEXT0 && (d == NULL || d->kind == DOC_NULL)) {
		*out = NULL;
		return 0;
	}
	if (!doc_is(d, DOC_TEXT))
		return wrong(f, d, "a text", err);
	if (d->text.n > 0 && memchr(d->text.p, 0, d->text.n) != NULL)
		return err_set(err, ERR_INVALID, "%s: holds a NUL", f->name);
	*out = arena_strz(a, d->text);
	return 0;
}

static int read_int(const struct field *f, const struct doc *d, int64_t min, int64_t max,
                    int64_t *out, struct err *err)
{
	if (!doc_is(d, DOC_INT))
		return wrong(f, d, "a whole number", err);
	if (d->num < min || d->num > max)
		return err_set(err, ERR_INVALID, "%s: %" PRId64 " is out of range", f->name,
		               d->num);
	*out = d->num;
	return 0;
}

static int read_list(const struct field *f, struct arena *a, const struct doc *d, void *m,
                     struct err *err)
{
	size_t max = f->kind == FIXED ? f->of->cap : WIRE_LIST_MAX;
	size_t each = is_texts(f) ? sizeof(char *) : f->of->size;
	char *base = (char *)m + f->at;
	size_t i = 0;

	if (!doc_is(d, DOC_LIST))
		return wrong(f, d, "a list", err);
	if (d->count > max)
		return err_set(err, ERR_TOO_BIG, "%s: %zu entries, at most %zu", f->name, d->count,
		               max);
	if (f->kind != FIXED) {
		base = d->count > 0 ? arena_array(a, d->count, each) : NULL;
		PUT(char *, m, f->at, base);
	}
	DOC_EACH (child, d) {
		struct field one = {.name = f->name, .kind = TEXT};
		const char *text = NULL;

		if (is_texts(f)) {
			if (read_text(&one, a, child, &text, err) < 0)
				return -1;
			PUT(const char *, base, i *each, text);
		} else if (read_shape(f->of, a, child, base + i * each, err) < 0) {
			return err_wrap(err, "%s[%zu]", f->name, i);
		}
		i++;
	}
	PUT(size_t, m, f->count, i);
	return 0;
}

static int read_word(const struct field *f, const struct doc *d, void *m, struct err *err)
{
	struct str word = doc_text(d);
	enum job_end end = JOB_END_NONE;

	if (!doc_is(d, DOC_TEXT))
		return wrong(f, d, "a word", err);
	if (f->kind == END) {
		if (job_end_parse(word, &end, err) < 0)
			return err_wrap(err, "%s", f->name);
		PUT(enum job_end, m, f->at, end);
		return 0;
	}
	for (enum wire_stage s = 0; s < STAGE_COUNT; s++) {
		if (str_eq(word, stages[s])) {
			PUT(enum wire_stage, m, f->at, s);
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "%s: \"%.*s\" is not a stage", f->name,
	               (int)MIN(word.n, 40), word.p == NULL ? "" : word.p);
}

static int read_number(const struct field *f, const struct doc *d, void *m, struct err *err)
{
	int64_t n = 0;

	if (f->kind == REAL) {
		if (!doc_is(d, DOC_REAL) && !doc_is(d, DOC_INT))
			return wrong(f, d, "a number", err);
		PUT(double, m, f->at, doc_real(d, 0));
		return 0;
	}
	if (f->kind == U32) {
		if (read_int(f, d, 0, UINT32_MAX, &n, err) < 0)
			return -1;
		PUT(uint32_t, m, f->at, (uint32_t)n);
		return 0;
	}
	if (f->kind == INT) {
		if (read_int(f, d, INT_MIN, INT_MAX, &n, err) < 0)
			return -1;
		PUT(int, m, f->at, (int)n);
		return 0;
	}
	if (read_int(f, d, f->kind == U64 ? 0 : INT64_MIN, INT64_MAX, &n, err) < 0)
		return -1;
	PUT(int64_t, m, f->at, n); /* same bytes as uint64_t: not negative there */
	return 0;
}

static int read_field(const struct field *f, struct arena *a, const struct doc *d, void *m,
                      struct err *err)
{
	const char *text = NULL;

	switch (f->kind) {
	case TEXT:
	case TEXT0:
		if (read_text(f, a, d, &text, err) < 0)
			return -1;
		PUT(const char *, m, f->at, text);
		return 0;
	case U32:
	case U64:
	case INT:
	case I64:
	case REAL:
		return read_number(f, d, m, err);
	case BOOL:
	case FLAG:
		if (f->kind == FLAG && d == NULL) {
			PUT(bool, m, f->at, false);
			return 0;
		}
		if (!doc_is(d, DOC_BOOL))
			return wrong(f, d, "true or false", err);
		PUT(bool, m, f->at, d->flag);
		return 0;
	case STAGE:
	case END:
		return read_word(f, d, m, err);
	case TEXTS:
	case TEXTS0:
	case LIST:
	case FIXED:
		if (f->kind == TEXTS0 && d == NULL) {
			PUT(size_t, m, f->count, 0);
			return 0;
		}
		return read_list(f, a, d, m, err);
	case ONE:
		PUT(bool, m, f->count, doc_is(d, DOC_MAP));
		if (!doc_is(d, DOC_MAP))
			return 0;
		return read_shape(f->of, a, d, (char *)m + f->at, err);
	}
	abort(); /* a kind without a reader */
	return -1;
}

static int read_shape(const struct shape *sh, struct arena *a, const struct doc *d, void *m,
                      struct err *err)
{
	if (!doc_is(d, DOC_MAP))
		return err_set(err, ERR_INVALID, "%s: a JSON object is expected", sh->what);
	for (size_t i = 0; i < sh->n; i++) {
		const struct field *f = &sh->field[i];

		if (read_field(f, a, doc_get(d, f->name), m, err) < 0)
			return err_wrap(err, "%s", sh->what);
	}
	return 0;
}

static void write_message(const struct shape *sh, const void *m, struct buf *out)
{
	struct js js;

	js_init(&js, out);
	write_shape(sh, m, &js);
}

static int read_message(const struct shape *sh, struct arena *a, struct str json, void *m,
                        struct err *err)
{
	const struct doc *d = NULL;

	memset(m, 0, sh->size);
	if (js_parse(a, json, &d, err) < 0)
		return err_wrap(err, "%s", sh->what);
	return read_shape(sh, a, d, m, err);
}

void wire_start_write(const struct wire_start *m, struct buf *out)
{
	write_message(&start_shape, m, out);
}

int wire_start_parse(struct wire_start *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&start_shape, a, json, m, err);
}

void wire_launch_write(const struct wire_launch *m, struct buf *out)
{
	write_message(&launch_shape, m, out);
}

int wire_launch_parse(struct wire_launch *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&launch_shape, a, json, m, err);
}

void wire_image_write(const struct wire_image *m, struct buf *out)
{
	write_message(&image_shape, m, out);
}

int wire_image_parse(struct wire_image *m, struct arena *a, struct str json, struct err *err)
{
	static const char mark[] = "@sha256:";
	struct digest d;
	const char *at;

	if (read_message(&image_shape, a, json, m, err) < 0 ||
	    digest_parse(str_of(m->id), &d, err) < 0)
		return -1;
	if (m->reference == NULL)
		return 0;
	at = strstr(m->reference, mark);
	if (at == NULL || at == m->reference || strlen(m->reference) > WIRE_REFERENCE_MAX)
		return err_set(err, ERR_INVALID,
		               "wire_image: reference: REPOSITORY@sha256:DIGEST is expected");
	return digest_parse(str_of(at + strlen(mark)), &d, err);
}

void wire_sign_write(const struct wire_sign *m, struct buf *out)
{
	write_message(&sign_shape, m, out);
}

int wire_sign_parse(struct wire_sign *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&sign_shape, a, json, m, err);
}

void wire_signed_write(const struct wire_signed *m, struct buf *out)
{
	write_message(&signed_shape, m, out);
}

int wire_signed_parse(struct wire_signed *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&signed_shape, a, json, m, err);
}

void wire_sign_all_write(const struct wire_sign_all *m, struct buf *out)
{
	write_message(&sign_all_shape, m, out);
}

int wire_sign_all_parse(struct wire_sign_all *m, struct arena *a, struct str json, struct err *err)
{
	if (read_message(&sign_all_shape, a, json, m, err) < 0)
		return -1;
	return m->n_request <= WIRE_SIGN_MAX
	               ? 0
	               : err_set(err, ERR_INVALID,
	                         "request: %zu entries; at most %d are signed at once",
	                         m->n_request, WIRE_SIGN_MAX);
}

void wire_signed_all_write(const struct wire_signed_all *m, struct buf *out)
{
	write_message(&signed_all_shape, m, out);
}

/* Each has a URL, or says why it has none. */
int wire_signed_all_parse(struct wire_signed_all *m, struct arena *a, struct str json,
                          struct err *err)
{
	if (read_message(&signed_all_shape, a, json, m, err) < 0)
		return -1;
	for (size_t i = 0; i < m->n_answer; i++) {
		if (m->answer[i].status == 0 ? m->answer[i].url == NULL
		                             : m->answer[i].message == NULL)
			return err_set(err, ERR_INVALID,
			               "answer: entry %zu says neither URL nor error", i);
	}
	return 0;
}

void wire_heartbeat_write(const struct wire_heartbeat *m, struct buf *out)
{
	write_message(&heartbeat_shape, m, out);
}

int wire_heartbeat_parse(struct wire_heartbeat *m, struct arena *a, struct str json,
                         struct err *err)
{
	return read_message(&heartbeat_shape, a, json, m, err);
}

void wire_sample_write(const struct wire_sample *m, struct js *js)
{
	write_shape(&sample_shape, m, js);
}

int wire_sample_parse(struct wire_sample *m, const struct doc *d, struct err *err)
{
	memset(m, 0, sizeof(*m));
	return read_shape(&sample_shape, NULL, d, m, err); /* it has no text: no arena is used */
}

void wire_desired_write(const struct wire_desired *m, struct buf *out)
{
	write_message(&desired_shape, m, out);
}

int wire_desired_parse(struct wire_desired *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&desired_shape, a, json, m, err);
}

void wire_exit_write(const struct wire_exit *m, struct buf *out)
{
	write_message(&exit_shape, m, out);
}

int wire_exit_parse(struct wire_exit *m, struct arena *a, struct str json, struct err *err)
{
	return read_message(&exit_shape, a, json, m, err);
}
