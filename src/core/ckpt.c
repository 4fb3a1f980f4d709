/* ckpt.c - which file belongs to which checkpoint, when it is ready, what kind it is; its manifest.
 */
#include "core/ckpt.h"

#include "base/fs.h"
#include "base/record.h"

#define CKPT_FORMAT 1               /* "version" of the manifest object */
#define CKPT_FLAT_MAX ((size_t)200) /* of a manifest's own name; a file's may have 255 bytes */
#define CKPT_RESERVED ".stoker"     /* manifests' place in a rank's folder */
#define CKPT_REVISIONS CKPT_RESERVED "/rev/"
#define CKPT_KEPT CKPT_RESERVED "/kept/"
#define CKPT_MS_MAX ((int64_t)1 << 53)
#define CKPT_SHORT 16 /* hex digits of a digest that stands for a name */

/* Words that frameworks put before a number: checkpoint-500 (Trainer), global_step10 (DeepSpeed),
 * iter_0000100 (Megatron), epoch=2-step=300 (Lightning), step-3 (torchtitan). */
static const char *const counted[] = {
	"checkpoint", "ckpt", "global_step", "global-step", "step", "epoch", "iteration", "iter",
};

static size_t digits(struct str s)
{
	size_t n = 0;

	while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
		n++;
	return n;
}

/* Cuts "<word>[-_=]<digits>" off the front. */
static bool cut_counted(struct str *s)
{
	for (size_t i = 0; i < COUNT(counted); i++) {
		struct str rest = *s;
		size_t n = 0;

		if (!str_starts(rest, counted[i]))
			continue;
		rest = str_skip(rest, strlen(counted[i]));
		if (rest.n > 0 && strchr("-_=", rest.p[0]) != NULL)
			rest = str_skip(rest, 1);
		n = digits(rest);
		if (n == 0)
			continue;
		*s = str_skip(rest, n);
		return true;
	}
	return false;
}

/* ".*checkpoint-\d+(-\d+)?$", as the stock client tells them. */
static bool ends_as_checkpoint(struct str name)
{
	static const char word[] = "checkpoint-";
	const size_t len = sizeof(word) - 1;

	for (size_t at = 0; at + len < name.n; at++) {
		struct str rest = str_skip(name, at);
		size_t n = 0;

		if (!str_starts(rest, word))
			continue;
		rest = str_skip(rest, len);
		n = digits(rest);
		rest = str_skip(rest, n);
		if (n > 0 && rest.n > 1 && rest.p[0] == '-' && digits(str_skip(rest, 1)) > 0)
			rest = str_skip(rest, 1 + digits(str_skip(rest, 1)));
		if (n > 0 && rest.n == 0)
			return true;
	}
	return false;
}

/* "-v1" (Lightning, when the name is taken) or "-val_loss=0.23": no count, but no other name. */
static bool cut_value(struct str *s)
{
	const char *eq = memchr(s->p, '=', s->n);
	size_t n = eq == NULL ? 0 : (size_t)(eq - s->p) + 1;

	if (eq == NULL && s->n > 1 && s->p[0] == 'v' && digits(str_skip(*s, 1)) == s->n - 1)
		n = s->n;
	while (eq != NULL && n < s->n && strchr("-/", s->p[n]) == NULL)
		n++;
	*s = str_skip(*s, n);
	return n > 0;
}

static bool is_counted(struct str rest, bool values)
{
	if (!cut_counted(&rest))
		return false;
	while (rest.n > 1 && strchr("-_", rest.p[0]) != NULL) {
		rest = str_skip(rest, 1);
		if (!cut_counted(&rest) && (!values || !cut_value(&rest)))
			return false;
	}
	return rest.n == 0;
}

/* "llama-300", "model.12", but no part of a set: "model-00001-of-00003". */
static bool ends_in_count(struct str stem)
{
	size_t n = 0;

	while (n < stem.n && stem.p[stem.n - n - 1] >= '0' && stem.p[stem.n - n - 1] <= '9')
		n++;
	stem.n -= n;
	return n > 0 && stem.n > 1 && strchr("-_.=", stem.p[stem.n - 1]) != NULL &&
	       !str_ends(stem, "-of-") && !str_ends(stem, "_of_");
}

/* A checkpoint that is one file (or, sharded, a folder of its name): epoch=1-step=300.ckpt
 * (Lightning), checkpoint-5.pth.tar (timm), model-3.keras, checkpoint_7 (Flax). Files of torch.save
 * are left together: one may be the optimizer of another. */
static bool looks_like_file(struct str name)
{
	static const char *const ends[] = {".ckpt", ".pth.tar", ".keras", ".weights.h5", ".gguf"};

	for (size_t i = 0; i < COUNT(ends); i++) {
		struct str stem = str_n(name.p, name.n - MIN(name.n, strlen(ends[i])));

		if (str_ends(name, ends[i]) && (is_counted(stem, true) || ends_in_count(stem)))
			return true;
	}
	return is_counted(name, false);
}

static bool looks_like_one(struct str name)
{
	return ends_as_checkpoint(name) || is_counted(name, false) || looks_like_file(name);
}

/* A number and nothing else is a step of Orbax: RUN/300, or RUN/checkpoints/300. Deeper down it is
 * a chunk of an array. */
static bool is_step(struct str part, struct str parent, size_t depth)
{
	return part.n > 0 && digits(part) == part.n &&
	       (depth == 1 || str_eq(parent, "checkpoints") || str_eq(parent, "ckpts"));
}

void ckpt_name_of(struct str path, char out[CKPT_NAME_MAX])
{
	struct str rest = path, part, found = {0}, parent = {0};
	size_t depth = 0;

	for (struct str left = rest; str_cut(&left, '/', &part);) {
		size_t upto = (size_t)(part.p - path.p) + part.n;
		bool folder = left.n > 0;

		if (found.n == 0 && folder)
			found = part; /* the top folder, unless a better one follows */
		if (upto >= CKPT_NAME_MAX)
			break;
		if (folder ? looks_like_one(part) || is_step(part, parent, depth)
		           : looks_like_file(part)) {
			found = str_n(path.p, upto);
			break;
		}
		parent = part;
		depth++;
	}
	if (found.n == 0 || found.n >= CKPT_NAME_MAX || memchr(found.p, 0, found.n) != NULL)
		found = STR_LIT(".");
	memcpy(out, found.p, found.n);
	out[found.n] = '\0';
}

int ckpt_name_cmp(const char *a, const char *b)
{
	const char *x = a, *y = b;

	while (*x != '\0' && *y != '\0') {
		size_t n = digits(str_of(x)), m = digits(str_of(y));
		int c;

		if (n == 0 || m == 0) {
			if (*x != *y)
				return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
			x++;
			y++;
			continue;
		}
		for (; n > 1 && *x == '0'; n--)
			x++;
		for (; m > 1 && *y == '0'; m--)
			y++;
		c = n != m ? (n < m ? -1 : 1) : memcmp(x, y, n);
		if (c != 0)
			return c;
		x += n;
		y += m;
	}
	if (*x != *y)
		return *x == '\0' ? -1 : 1;
	return strcmp(a, b); /* "step-07" and "step-7" */
}

void ckpt_lineage(const char *name, char out[CKPT_NAME_MAX])
{
	size_t n = 0;

	for (const char *p = name; *p != '\0' && n < CKPT_NAME_MAX - 1; p++) {
		bool digit = *p >= '0' && *p <= '9';

		if (!digit)
			out[n++] = *p;
		else if (n == 0 || out[n - 1] != '#')
			out[n++] = '#';
	}
	out[n] = '\0';
}

const char *ckpt_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

bool ckpt_is_marker(const char *inner, const char *marker)
{
	return strcmp(inner, marker) == 0 || strcmp(ckpt_base_name(inner), marker) == 0;
}

const char *ckpt_inner(const char *name, const char *path)
{
	size_t n = strlen(name);

	if (strcmp(name, ".") == 0)
		return path;
	if (strncmp(path, name, n) == 0 && path[n] == '/')
		return path + n + 1;
	return ckpt_base_name(path); /* a checkpoint of one file */
}

int ckpt_order(int64_t a_ms, const char *a, int64_t b_ms, const char *b)
{
	if (a_ms != b_ms)
		return a_ms < b_ms ? -1 : 1;
	return ckpt_name_cmp(a, b);
}

/* C0, DEL and, as two bytes of UTF-8, C1: a terminal obeys them. */
static bool has_controls(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c < ' ' || c == 0x7f)
			return true;
		if (c == 0xc2 && i + 1 < s.n && (unsigned char)s.p[i + 1] < 0xa0)
			return true;
	}
	return false;
}

const char *ckpt_path_fault(struct str path)
{
	if (path.n > CKPT_PATH_MAX)
		return "its path is too long";
	if (has_controls(path))
		return "its name contains control characters";
	if (!str_is_utf8(path))
		return "its name is not UTF-8";
	if (!fs_path_is_plain(path))
		return "its path is not plain";
	if (str_eq(path, CKPT_RESERVED) || str_starts(path, CKPT_RESERVED "/"))
		return "a reserved name";
	return NULL;
}

static const char *const states[] = {
	[CKPT_SYNCING] = "SYNCING",
	[CKPT_COMPLETE] = "COMPLETE",
	[CKPT_INCOMPLETE] = "INCOMPLETE",
};

static const char *const kinds[] = {
	[CKPT_OTHER] = "other",         [CKPT_FULL] = "full", [CKPT_LORA] = "lora",
	[CKPT_WHISPER] = "whisper",     [CKPT_GGUF] = "gguf", [CKPT_DCP] = "dcp",
	[CKPT_DEEPSPEED] = "deepspeed", [CKPT_LOGS] = "logs",
};

const struct words ckpt_states = WORDS("a checkpoint state", states[0], states);
static const struct words kind_words = WORDS("a kind of checkpoint", kinds[0], kinds);

const char *ckpt_state_word(enum ckpt_state s)
{
	return words_at(&ckpt_states, s);
}

int ckpt_state_parse(struct str word, enum ckpt_state *out, struct err *err)
{
	int i = words_parse(&ckpt_states, word, ERR_INVALID, err);

	*out = (enum ckpt_state)MAX(i, 0);
	return MIN(i, 0);
}

const char *ckpt_kind_word(enum ckpt_kind k)
{
	return words_at(&kind_words, k);
}

/* First row that some file matches wins: an adapter beside a full model is an adapter. */
static const struct sign {
	const char *start, *end; /* of the file's own name; "" = any */
	enum ckpt_kind kind;
} signs[] = {
	{"adapter_config.json", "", CKPT_LORA},
	{"adapter_model.", "", CKPT_LORA},
	{"model", ".safetensors", CKPT_FULL},
	{"model", ".safetensors.index.json", CKPT_FULL},
	{"pytorch_model", ".bin", CKPT_FULL},
	{"consolidated", ".safetensors", CKPT_FULL},
	{"", ".gguf", CKPT_GGUF},
	{"", ".distcp", CKPT_DCP},
	{"mp_rank_", "_model_states.pt", CKPT_DEEPSPEED},
	{"zero_pp_rank_", ".pt", CKPT_DEEPSPEED},
	{"bf16_zero_pp_rank_", ".pt", CKPT_DEEPSPEED},
};

void ckpt_classify(struct ckpt *c, struct arena *a, const struct doc *config)
{
	struct str model = {0};

	c->kind = CKPT_OTHER;
	for (size_t i = 0; i < COUNT(signs) && c->kind == CKPT_OTHER; i++) {
		for (size_t f = 0; f < c->files.n && c->kind == CKPT_OTHER; f++) {
			struct str name = str_of(ckpt_base_name(c->files.file[f].path));

			if (str_starts(name, signs[i].start) && str_ends(name, signs[i].end))
				c->kind = signs[i].kind;
		}
	}
	if (config == NULL)
		return;
	if (c->kind == CKPT_LORA) {
		model = doc_text(doc_get(config, "base_model_name_or_path"));
		c->lora_r = MAX(doc_int(doc_get(config, "r"), 0), 0);
	} else {
		model = doc_text(doc_get(config, "_name_or_path"));
		if (c->kind == CKPT_FULL &&
		    str_eq(doc_text(doc_get(config, "model_type")), "whisper"))
			c->kind = CKPT_WHISPER;
	}
	if (model.n > 0)
		c->base_model = arena_strz(a, model);
}

/* Absent fields are left out: a checkpoint may have 200,000 files. */
static void write_about(struct js *js, const struct ckpt_file *f, bool details)
{
	if (f->at != NULL)
		js_kv(js, "at", f->at);
	if (!details)
		return;
	if (f->format != NULL)
		js_kv(js, "format", f->format);
	if (f->checked_ms != 0) {
		js_kv_bool(js, "whole", f->whole);
		js_kv_int(js, "checked_ms", f->checked_ms);
	}
	if (f->note != NULL)
		js_kv(js, "note", f->note);
}

/* clang-format off */
static SHOWN(ckpt_times, "saved", ckpt,
	ROW_AS(ckpt, R_I64 | R_MAY, "ended_ms", saved.ended_ms),
	ROW_AS(ckpt, R_I64 | R_MAY, "began_ms", saved.began_ms),
	ROW_AS(ckpt, R_I64 | R_MAY, "before_ms", saved.before_ms),
	ROW_AS(ckpt, R_I64 | R_MAY, "written_ms", saved.written_ms));

static RECORD(ckpt, NULL,
	ROW(ckpt, R_TEXT, name), ROW(ckpt, R_TEXT | R_MAY, job_id), ROW(ckpt, R_U32, rank),
	ROW_WORD(ckpt, R_WORD, state, ckpt_states), ROW(ckpt, R_INT | R_MAY, rule),
	ROW(ckpt, R_TEXT | R_MAY, reason), ROW(ckpt, R_TEXT | R_MAY, trainer),
	ROW(ckpt, R_TEXT | R_MAY, marked_by), ROW(ckpt, R_U32 | R_MAY, revision),
	ROW(ckpt, R_U32 | R_MAY | R_SPARSE, since), ROW(ckpt, R_U32 | R_MAY | R_SPARSE, world),
	ROW(ckpt, R_BOOL | R_MAY | R_SPARSE, doubt),
	ROW_PART(R_MAY | R_SPARSE, "saved", ckpt_times), ROW_WORD(ckpt, R_WORD, kind, kind_words),
	ROW(ckpt, R_TEXT | R_MAY, base_model), ROW(ckpt, R_I64 | R_MAY, lora_r),
	ROW(ckpt, R_I64 | R_MAY, created_ms));
/* clang-format on */

void ckpt_write(const struct ckpt *c, struct buf *out)
{
	struct js js;

	js_init(&js, out);
	js_open(&js);
	js_kv_int(&js, "version", CKPT_FORMAT);
	record_write_members(&ckpt_record, c, &js);
	js_kv_u64(&js, "bytes", c->files.bytes);
	js_key(&js, "files");
	js_list(&js);
	for (size_t i = 0; i < c->files.n; i++) {
		char hex[HASH_HEX_CAP];

		digest_hex(&c->files.file[i].sha256, hex);
		js_open(&js);
		js_kv(&js, "path", c->files.file[i].path);
		js_kv_u64(&js, "size", c->files.file[i].size);
		js_kv(&js, "sha256", hex);
		if (c->about != NULL)
			write_about(&js, &c->about[i], c->files.n <= CKPT_DETAILS_MAX);
		js_close(&js);
	}
	js_end(&js);
	js_close(&js);
}

static const char *text_of(struct arena *a, const struct doc *d, const char *key)
{
	struct str s = doc_text(doc_get(d, key));

	return s.n > 0 ? arena_strz(a, s) : NULL;
}

static bool is_place(struct str at)
{
	return (str_starts(at, CKPT_REVISIONS) || str_starts(at, CKPT_KEPT)) &&
	       manifest_path_ok(at);
}

/* Objects of a revision lie in its own folder and nowhere else. */
static int parse_about(struct ckpt *out, struct arena *a, const struct doc *d, struct err *err)
{
	out->about = ARENA_ARRAY(a, struct ckpt_file, out->files.n + 1);
	DOC_EACH (f, d) {
		const struct manifest_file *m =
			manifest_find(&out->files, doc_text(doc_get(f, "path")));
		struct ckpt_file *about = &out->about[m - out->files.file];

		*about = (struct ckpt_file){
			.format = text_of(a, f, "format"),
			.whole = doc_bool(doc_get(f, "whole"), false),
			.note = text_of(a, f, "note"),
			.checked_ms = doc_int(doc_get(f, "checked_ms"), 0),
			.at = text_of(a, f, "at"),
		};
		if (about->at != NULL && !is_place(str_of(about->at)))
			return err_set(err, ERR_INVALID, "files: at: not a place of revisions");
	}
	return 0;
}

static int parse_files(struct ckpt *out, struct arena *a, const struct doc *d, struct err *err)
{
	if (!doc_is(d, DOC_LIST))
		return err_set(err, ERR_INVALID, "files: a list is expected");
	if (d->count > CKPT_FILES_MAX)
		return err_set(err, ERR_TOO_BIG, "files: %zu, at most %d", d->count,
		               CKPT_FILES_MAX);
	manifest_init(&out->files, a);
	DOC_EACH (f, d) {
		const struct doc *size = doc_get(f, "size");
		struct digest sha;

		if (!doc_is(size, DOC_INT) || size->num < 0)
			return err_set(err, ERR_INVALID, "files: size: a number is expected");
		if (digest_parse(doc_text(doc_get(f, "sha256")), &sha, err) < 0)
			return err_wrap(err, "files: sha256");
		if (manifest_add(&out->files, doc_text(doc_get(f, "path")), (uint64_t)size->num,
		                 &sha, err) < 0)
			return err_wrap(err, "files");
	}
	if (manifest_finish(&out->files, err) < 0)
		return -1;
	return parse_about(out, a, d, err);
}

/* Bounded, so that whoever compares them need not fear an overflow. */
static void bound(int64_t *ms)
{
	*ms = MIN(MAX(*ms, (int64_t)0), CKPT_MS_MAX);
}

static int parse_head(struct ckpt *out, struct arena *a, const struct doc *d, struct err *err)
{
	const char *fault;

	if (doc_int(doc_get(d, "version"), 0) != CKPT_FORMAT)
		return err_set(err, ERR_UNSUPPORTED, "version: %d is expected", CKPT_FORMAT);
	if (record_read_doc(&ckpt_record, a, d, out, err) < 0)
		return -1;
	if (out->name[0] == '\0' || strlen(out->name) >= CKPT_NAME_MAX)
		return err_set(err, ERR_INVALID, "name: missing or too long");
	fault = strcmp(out->name, ".") == 0 ? NULL : ckpt_path_fault(str_of(out->name));
	if (fault != NULL)
		return err_set(err, ERR_INVALID, "name: %s", fault);
	if (out->job_id == NULL)
		out->job_id = "";
	out->revision = MAX(out->revision, 1U);
	bound(&out->saved.began_ms);
	bound(&out->saved.ended_ms);
	bound(&out->saved.before_ms);
	bound(&out->saved.written_ms);
	return 0;
}

int ckpt_parse(struct ckpt *out, struct arena *a, struct str json, struct err *err)
{
	const struct doc *d = NULL;

	memset(out, 0, sizeof(*out));
	if (js_parse(a, json, &d, err) < 0 || parse_head(out, a, d, err) < 0 ||
	    parse_files(out, a, doc_get(d, "files"), err) < 0)
		return err_wrap(err, "checkpoint manifest");
	return 0;
}

char *ckpt_prefix(struct arena *a, const char *project_id, const char *job_id)
{
	return arena_printf(a, "training_projects/%s/jobs/%s", project_id, job_id);
}

char *ckpt_object_key(struct arena *a, const char *prefix, uint32_t rank, const char *path)
{
	return arena_printf(a, "%s/rank-%" PRIu32 "/%s", prefix, rank, path);
}

char *ckpt_file_key(struct arena *a, const char *prefix, const struct ckpt *c, size_t i)
{
	const char *at = c->about != NULL ? c->about[i].at : NULL;

	return ckpt_object_key(a, prefix, c->rank, at != NULL ? at : c->files.file[i].path);
}

static void digest_of(const char *text, char out[CKPT_SHORT + 1])
{
	struct digest d = hash_sha256(text, strlen(text));
	char hex[HASH_HEX_CAP];

	digest_hex(&d, hex);
	fmt_fixed(out, CKPT_SHORT + 1, "%.*s", CKPT_SHORT, hex);
}

char *ckpt_revision_folder(struct arena *a, const char *name)
{
	char of[CKPT_SHORT + 1];

	digest_of(name, of);
	return arena_printf(a, CKPT_REVISIONS "%s/", of);
}

char *ckpt_revision_path(struct arena *a, const char *name, uint32_t revision, const char *path)
{
	char of[CKPT_SHORT + 1];

	digest_of(path, of);
	return arena_printf(a, "%s%" PRIu32 "/%s", ckpt_revision_folder(a, name), revision, of);
}

char *ckpt_kept_folder(struct arena *a, const char *name)
{
	char of[CKPT_SHORT + 1];

	digest_of(name, of);
	return arena_printf(a, CKPT_KEPT "%s/", of);
}

char *ckpt_kept_path(struct arena *a, const char *name, const struct digest *set, const char *path)
{
	char hex[HASH_HEX_CAP], of[CKPT_SHORT + 1];

	digest_hex(set, hex);
	if (path == NULL)
		return arena_printf(a, "%s%s/manifest.json", ckpt_kept_folder(a, name), hex);
	digest_of(path, of);
	return arena_printf(a, "%s%s/%s", ckpt_kept_folder(a, name), hex, of);
}

/* A directory store has a file of this name. */
static void flatten(const char *name, struct buf *flat)
{
	char of[CKPT_SHORT + 1];

	for (const char *p = name; *p != '\0'; p++) {
		if (*p == '/')
			buf_puts(flat, "%2F");
		else if (*p == '%')
			buf_puts(flat, "%25");
		else
			buf_putc(flat, *p);
	}
	if (flat->n <= CKPT_FLAT_MAX)
		return;
	digest_of(name, of);
	flat->n = CKPT_FLAT_MAX - CKPT_SHORT - 1;
	while (flat->n > 0 && ((unsigned char)flat->p[flat->n] & 0xc0) == 0x80)
		flat->n--; /* not within a character */
	buf_printf(flat, "~%s", of);
}

char *ckpt_manifest_key(struct arena *a, const char *prefix, uint32_t rank, const char *name)
{
	AUTO_BUF struct buf flat = BUF_INIT((size_t)4 * CKPT_NAME_MAX);

	flatten(name, &flat);
	return arena_printf(a, "%s/rank-%" PRIu32 "/" CKPT_RESERVED "/%s.json", prefix, rank,
	                    buf_cstr(&flat));
}

char *ckpt_whole_key(struct arena *a, const char *prefix, const char *name)
{
	AUTO_BUF struct buf flat = BUF_INIT((size_t)4 * CKPT_NAME_MAX);

	flatten(name, &flat);
	return arena_printf(a, "%s/" CKPT_RESERVED "/%s.json", prefix, buf_cstr(&flat));
}

struct digest ckpt_digest(const struct ckpt *c)
{
	AUTO_BUF struct buf lines = BUF_INIT(MANIFEST_BYTES_MAX);
	struct digest name;

	manifest_write(&c->files, &lines, &name);
	return name;
}
