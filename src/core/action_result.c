/*
 * action_result.c - see action_result.h. Field numbers are those of
 * build/bazel/remote/execution/v2/remote_execution.proto. Unknown fields are skipped, as every
 * reader of protocol buffers does, for the API grows by them.
 */
#include "core/action_result.h"

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define VARINT_BYTES_MAX 10
#define NO_FIELD "its fields are cut short, or of another kind"
#define FIELD_MAX ((UINT64_C(1) << 29) - 1)

struct field {
	uint64_t number;
	enum wire wire;
	uint64_t value;   /* WIRE_VARINT */
	struct str bytes; /* WIRE_BYTES */
};

struct reader {
	struct arena *a;
	struct action_result *out;
	size_t cap, cap_trees;
	const char *message; /* for errors */
	struct err *err;
};

static int bad(struct reader *r, const char *what)
{
	return err_set(r->err, ERR_INVALID, "this is no %s of Bazel's remote cache: %s", r->message,
	               what);
}

static bool take_varint(struct str *s, uint64_t *out)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_BYTES_MAX && i < s->n; i++) {
		uint8_t b = (uint8_t)s->p[i];

		if (i == VARINT_BYTES_MAX - 1 && b > 1)
			return false; /* more than 64 bits */
		v |= (uint64_t)(b & 0x7f) << (7 * i);
		if ((b & 0x80) != 0)
			continue;
		*s = str_skip(*s, i + 1);
		*out = v;
		return true;
	}
	return false;
}

static bool take_bytes(struct str *s, uint64_t n, struct str *out)
{
	if (n > s->n)
		return false;
	*out = str_n(s->p, (size_t)n);
	*s = str_skip(*s, (size_t)n);
	return true;
}

/* False: it is not of this format. */
static bool take_field(struct str *s, struct field *f)
{
	uint64_t tag = 0, n = 0;

	if (!take_varint(s, &tag))
		return false;
	*f = (struct field){.number = tag >> 3, .wire = (enum wire)(tag & 7)};
	if (f->number == 0 || f->number > FIELD_MAX)
		return false;
	switch (f->wire) {
	case WIRE_VARINT:
		return take_varint(s, &f->value);
	case WIRE_FIXED64:
		return take_bytes(s, 8, &f->bytes);
	case WIRE_BYTES:
		return take_varint(s, &n) && take_bytes(s, n, &f->bytes);
	case WIRE_FIXED32:
		return take_bytes(s, 4, &f->bytes);
	}
	return false;
}

static void add(struct reader *r, struct action_content **list, size_t *n, size_t *cap,
                const struct action_content *c)
{
	if (*n == *cap) {
		struct action_content *more;

		*cap = MAX(*cap * 2, (size_t)16);
		more = ARENA_ARRAY(r->a, struct action_content, *cap);
		if (*n > 0)
			memcpy(more, *list, *n * sizeof(*more));
		*list = more;
	}
	(*list)[(*n)++] = *c;
}

/* Digest: hash = 1, size_bytes = 2. */
static int read_digest(struct reader *r, struct str s, struct action_content *out)
{
	struct err no = {0};
	struct field f;
	bool has = false;

	*out = (struct action_content){0};
	while (s.n > 0) {
		if (!take_field(&s, &f))
			return bad(r, "a digest is none");
		if (f.number == 1) {
			has = f.wire == WIRE_BYTES && digest_parse(f.bytes, &out->sha256, &no) == 0;
			if (!has)
				return bad(r, "the hash of a digest is no SHA-256");
		} else if (f.number == 2) {
			if (f.wire != WIRE_VARINT || f.value > INT64_MAX)
				return bad(r, "the size of a digest is none");
			out->bytes = f.value;
		}
	}
	return has ? 0 : bad(r, "a digest is none");
}

static int add_digest(struct reader *r, const struct field *f, bool tree)
{
	const struct digest nothing = hash_sha256("", 0);
	struct action_result *out = r->out;
	struct action_content c;

	if (f->wire != WIRE_BYTES)
		return bad(r, "a digest is none");
	if (read_digest(r, f->bytes, &c) < 0)
		return -1;
	if (digest_same(&c.sha256, &nothing))
		return 0; /* by the hash: who gets the action asks for that, whatever the size says
		           */
	add(r, &out->content, &out->n, &r->cap, &c);
	if (tree)
		add(r, &out->tree, &out->n_trees, &r->cap_trees, &c);
	return 0;
}

/* A message whose field `number` is a digest; `carried` is one that has the bytes instead. */
static int read_holder(struct reader *r, const struct field *m, uint64_t number, uint64_t carried,
                       bool tree)
{
	struct field f, digest = {0};
	struct str s = m->bytes;
	bool has = false, carries = false;

	if (m->wire != WIRE_BYTES)
		return bad(r, NO_FIELD);
	while (s.n > 0) {
		if (!take_field(&s, &f))
			return bad(r, NO_FIELD);
		if (f.number == number) {
			has = true;
			digest = f;
		} else if (carried != 0 && f.number == carried && f.wire == WIRE_BYTES) {
			carries = f.bytes.n > 0;
		}
	}
	if (carries)
		return 0;
	return has ? add_digest(r, &digest, tree) : bad(r, "an output has no digest");
}

int action_result_read(struct arena *a, struct str bytes, struct action_result *out,
                       struct err *err)
{
	struct reader r = {.a = a, .out = out, .message = "ActionResult", .err = err};
	struct field f;

	*out = (struct action_result){0};
	if (bytes.n == 0) /* what every action leaves is at least who has run it */
		return bad(&r, "it is empty");
	while (bytes.n > 0) {
		if (!take_field(&bytes, &f))
			return bad(&r, NO_FIELD);
		switch (f.number) {
		case 2: /* output_files: digest = 2, contents = 5 */
			if (read_holder(&r, &f, 2, 5, false) < 0)
				return -1;
			break;
		case 3: /* output_directories: tree_digest = 3 */
			if (read_holder(&r, &f, 3, 0, true) < 0)
				return -1;
			break;
		case 4: /* exit_code */
			if (f.wire != WIRE_VARINT)
				return bad(&r, "exit_code is no number");
			break;
		case 6: /* stdout_digest */
		case 8: /* stderr_digest */
			if (add_digest(&r, &f, false) < 0)
				return -1;
			break;
		default:
			break;
		}
	}
	return 0;
}

/* Directory: files = 1, of which digest = 2. */
static int read_directory(struct reader *r, const struct field *m)
{
	struct str s = m->bytes;
	struct field f;

	if (m->wire != WIRE_BYTES)
		return bad(r, NO_FIELD);
	while (s.n > 0) {
		if (!take_field(&s, &f))
			return bad(r, NO_FIELD);
		if (f.number == 1 && read_holder(r, &f, 2, 0, false) < 0)
			return -1;
	}
	return 0;
}

/* Tree: root = 1, children = 2. */
int action_tree_read(struct arena *a, struct str bytes, struct action_result *out, struct err *err)
{
	struct reader r = {.a = a, .out = out, .message = "Tree", .err = err};
	struct field f;

	*out = (struct action_result){0};
	while (bytes.n > 0) {
		if (!take_field(&bytes, &f))
			return bad(&r, NO_FIELD);
		if ((f.number == 1 || f.number == 2) && read_directory(&r, &f) < 0)
			return -1;
	}
	return 0;
}
