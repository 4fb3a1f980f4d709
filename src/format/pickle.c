/* pickle.c - the opcodes of pickles, walked as data; see pickle.h. */
#include "format/pickle.h"

#define DICTS 64 /* state dicts that may be open at once, one inside the other */

enum arg {
	ARG_NONE,
	ARG_1,
	ARG_2,
	ARG_4,
	ARG_8,
	ARG_LINE,
	ARG_LINES, /* two of them */
	ARG_N1,    /* a length of one byte, and as many bytes */
	ARG_N4,
	ARG_N8,
};

enum effect {
	DO_PUSH = 1, /* pops `pop`, pushes a value that means nothing to us */
	DO_DROP,     /* pops `pop` */
	DO_MARKED,   /* pops down to the mark, the mark, and `pop` below it; pushes such a value */
	DO_DROP_MARKED, /* the same without a value */
	DO_STOP,
	DO_MARK,
	DO_DUP,
	DO_POP,
	DO_NOTE, /* nothing: PROTO, FRAME, READONLY_BUFFER */
	DO_TEXT,
	DO_NUMBER,
	DO_NAME,
	DO_STACK_NAME,
	DO_PUT,
	DO_GET,
	DO_MEMOIZE,
	DO_TUPLE,
	DO_EMPTY_DICT,
	DO_SET_ITEM,
	DO_SET_ITEMS,
	DO_BUILD,
	DO_PERSISTENT,
};

struct op {
	uint8_t arg, effect, pop;
};

/* clang-format off */
static const struct op ops[256] = {
	['('] = {ARG_NONE, DO_MARK, 0},       ['.'] = {ARG_NONE, DO_STOP, 0},
	['0'] = {ARG_NONE, DO_POP, 0},        ['1'] = {ARG_NONE, DO_DROP_MARKED, 0},
	['2'] = {ARG_NONE, DO_DUP, 0},        ['F'] = {ARG_LINE, DO_PUSH, 0},
	['I'] = {ARG_LINE, DO_NUMBER, 0},     ['J'] = {ARG_4, DO_NUMBER, 0},
	['K'] = {ARG_1, DO_NUMBER, 0},        ['L'] = {ARG_LINE, DO_NUMBER, 0},
	['M'] = {ARG_2, DO_NUMBER, 0},        ['N'] = {ARG_NONE, DO_PUSH, 0},
	['P'] = {ARG_LINE, DO_PUSH, 0},       ['Q'] = {ARG_NONE, DO_PERSISTENT, 1},
	['R'] = {ARG_NONE, DO_PUSH, 2},       ['S'] = {ARG_LINE, DO_TEXT, 0},
	['T'] = {ARG_N4, DO_TEXT, 0},         ['U'] = {ARG_N1, DO_TEXT, 0},
	['V'] = {ARG_LINE, DO_TEXT, 0},       ['X'] = {ARG_N4, DO_TEXT, 0},
	['a'] = {ARG_NONE, DO_DROP, 1},       ['b'] = {ARG_NONE, DO_BUILD, 1},
	['c'] = {ARG_LINES, DO_NAME, 0},      ['d'] = {ARG_NONE, DO_MARKED, 0},
	['}'] = {ARG_NONE, DO_EMPTY_DICT, 0}, ['e'] = {ARG_NONE, DO_DROP_MARKED, 0},
	['g'] = {ARG_LINE, DO_GET, 0},        ['h'] = {ARG_1, DO_GET, 0},
	['i'] = {ARG_LINES, DO_MARKED, 0},    ['j'] = {ARG_4, DO_GET, 0},
	['l'] = {ARG_NONE, DO_MARKED, 0},     [']'] = {ARG_NONE, DO_PUSH, 0},
	['o'] = {ARG_NONE, DO_MARKED, 0},     ['p'] = {ARG_LINE, DO_PUT, 0},
	['q'] = {ARG_1, DO_PUT, 0},           ['r'] = {ARG_4, DO_PUT, 0},
	['s'] = {ARG_NONE, DO_SET_ITEM, 0},   ['t'] = {ARG_NONE, DO_TUPLE, 0},
	[')'] = {ARG_NONE, DO_PUSH, 0},       ['u'] = {ARG_NONE, DO_SET_ITEMS, 0},
	['G'] = {ARG_8, DO_PUSH, 0},
	/* protocol 2 */
	[0x80] = {ARG_1, DO_NOTE, 0},         [0x81] = {ARG_NONE, DO_PUSH, 2},
	[0x82] = {ARG_1, DO_PUSH, 0},         [0x83] = {ARG_2, DO_PUSH, 0},
	[0x84] = {ARG_4, DO_PUSH, 0},         [0x85] = {ARG_NONE, DO_PUSH, 1},
	[0x86] = {ARG_NONE, DO_PUSH, 2},      [0x87] = {ARG_NONE, DO_PUSH, 3},
	[0x88] = {ARG_NONE, DO_PUSH, 0},      [0x89] = {ARG_NONE, DO_PUSH, 0},
	[0x8a] = {ARG_N1, DO_NUMBER, 0},      [0x8b] = {ARG_N4, DO_PUSH, 0},
	/* protocol 3 */
	['B'] = {ARG_N4, DO_PUSH, 0},         ['C'] = {ARG_N1, DO_PUSH, 0},
	/* protocol 4 */
	[0x8c] = {ARG_N1, DO_TEXT, 0},        [0x8d] = {ARG_N8, DO_TEXT, 0},
	[0x8e] = {ARG_N8, DO_PUSH, 0},        [0x8f] = {ARG_NONE, DO_PUSH, 0},
	[0x90] = {ARG_NONE, DO_DROP_MARKED, 0}, [0x91] = {ARG_NONE, DO_MARKED, 0},
	[0x92] = {ARG_NONE, DO_PUSH, 3},      [0x93] = {ARG_NONE, DO_STACK_NAME, 2},
	[0x94] = {ARG_NONE, DO_MEMOIZE, 0},   [0x95] = {ARG_8, DO_NOTE, 0},
	/* protocol 5 */
	[0x96] = {ARG_N8, DO_PUSH, 0},        [0x97] = {ARG_NONE, DO_PUSH, 0},
	[0x98] = {ARG_NONE, DO_NOTE, 0},
};

static const struct {
	const char *text;
	enum pickle_word word;
} words[] = {
	{"storage", PICKLE_STORAGE},
	{"relative_path", PICKLE_RELATIVE_PATH},
	{"offset", PICKLE_OFFSET},
	{"length", PICKLE_LENGTH},
	/* classes of torch and torch.storage; the name is all that protocol 4 gives as a text */
	{"ByteStorage", PICKLE_BYTES_1},        {"CharStorage", PICKLE_BYTES_1},
	{"BoolStorage", PICKLE_BYTES_1},        {"QInt8Storage", PICKLE_BYTES_1},
	{"QUInt8Storage", PICKLE_BYTES_1},      {"QUInt4x2Storage", PICKLE_BYTES_1},
	{"QUInt2x4Storage", PICKLE_BYTES_1},    {"UntypedStorage", PICKLE_BYTES_1},
	{"_UntypedStorage", PICKLE_BYTES_1},    {"HalfStorage", PICKLE_BYTES_2},
	{"BFloat16Storage", PICKLE_BYTES_2},    {"ShortStorage", PICKLE_BYTES_2},
	{"FloatStorage", PICKLE_BYTES_4},       {"IntStorage", PICKLE_BYTES_4},
	{"QInt32Storage", PICKLE_BYTES_4},      {"DoubleStorage", PICKLE_BYTES_8},
	{"LongStorage", PICKLE_BYTES_8},        {"ComplexFloatStorage", PICKLE_BYTES_8},
	{"ComplexDoubleStorage", PICKLE_BYTES_16},
};
/* clang-format on */

#define WORD_MAX 20 /* the longest of them */

/* What a dict says of a stored item; the ring forgets the oldest. */
struct entry {
	uint64_t serial;
	struct pickle_value path;
	uint64_t offset, length;
	bool has_path, has_offset, has_length;
};

struct walk {
	struct look *l;
	uint64_t at; /* of the opcode */
	const struct pickle_sink *sink;
	struct pickle_value *stack;
	size_t n, cap;
	size_t *marks;
	size_t n_marks, cap_marks;
	struct pickle_value *memo;
	size_t n_memo, cap_memo;
	/* the last tuple that may be a persistent id, and its number */
	struct pickle_value item[PICKLE_ITEMS];
	size_t n_items;
	uint64_t tuples, dicts;
	struct entry entry[DICTS];
	enum pickle_end end;
	bool done;
};

static void stop(struct walk *w, enum pickle_end how)
{
	if (!w->done)
		w->end = how;
	w->done = true;
}

static void push(struct walk *w, struct pickle_value v)
{
	if (w->n == w->cap) {
		if (w->n >= PICKLE_STACK_MAX) {
			stop(w, PICKLE_LIMIT);
			return;
		}
		w->cap *= 2;
		w->stack = xrealloc(w->stack, w->cap * sizeof(*w->stack));
	}
	w->stack[w->n++] = v;
}

/* Values above the last mark. */
static size_t above(const struct walk *w)
{
	return w->n - (w->n_marks > 0 ? w->marks[w->n_marks - 1] : 0);
}

static bool drop(struct walk *w, size_t n)
{
	if (above(w) < n) {
		stop(w, PICKLE_BAD);
		return false;
	}
	w->n -= n;
	return true;
}

static bool drop_marked(struct walk *w)
{
	if (w->n_marks == 0) {
		stop(w, PICKLE_BAD);
		return false;
	}
	w->n = w->marks[--w->n_marks];
	return true;
}

static void mark(struct walk *w)
{
	if (w->n_marks == w->cap_marks) {
		if (w->n_marks >= PICKLE_STACK_MAX) {
			stop(w, PICKLE_LIMIT);
			return;
		}
		w->cap_marks = MAX(w->cap_marks * 2, 64);
		w->marks = xrealloc(w->marks, w->cap_marks * sizeof(*w->marks));
	}
	w->marks[w->n_marks++] = w->n;
}

static void put(struct walk *w, uint64_t i)
{
	if (above(w) == 0) {
		stop(w, PICKLE_BAD);
		return;
	}
	if (i >= PICKLE_MEMO_MAX) {
		stop(w, PICKLE_LIMIT);
		return;
	}
	if (i >= w->cap_memo) {
		size_t cap = MAX(w->cap_memo, 256);

		while (cap <= i)
			cap *= 2;
		w->memo = xrealloc(w->memo, cap * sizeof(*w->memo));
		memset(w->memo + w->cap_memo, 0, (cap - w->cap_memo) * sizeof(*w->memo));
		w->cap_memo = cap;
	}
	w->memo[i] = w->stack[w->n - 1];
	w->n_memo = MAX(w->n_memo, (size_t)i + 1);
}

static void get(struct walk *w, uint64_t i)
{
	if (i >= w->n_memo)
		stop(w, PICKLE_BAD);
	else
		push(w, w->memo[i]);
}

static uint8_t word_of(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < COUNT(words); i++)
		if (str_eq(str_n((const char *)p, n), words[i].text))
			return (uint8_t)words[i].word;
	return PICKLE_OTHER;
}

/* The text of n bytes at `at`, or of as many as a pickled text may have. */
static void text(struct walk *w, uint64_t at, uint64_t n)
{
	struct pickle_value v = {.kind = PICKLE_TEXT, .at = at, .n = (uint32_t)MIN(n, UINT32_MAX)};

	if (n <= WORD_MAX) {
		const uint8_t *p = look_at(w->l, at, (size_t)n);

		if (p == NULL) {
			stop(w, PICKLE_GONE);
			return;
		}
		v.word = word_of(p, (size_t)n);
	}
	push(w, v);
	if (w->sink->text != NULL && !w->sink->text(w->sink->arg, &v))
		stop(w, PICKLE_ENDED);
}

static void number(struct walk *w, bool known, int64_t v)
{
	push(w, (struct pickle_value){.kind = known ? PICKLE_NUMBER : PICKLE_NOTHING,
	                              .at = (uint64_t)v});
}

/* Of LONG1: two's complement, little endian. */
static int64_t wide(const uint8_t *p, size_t n)
{
	uint64_t v = n > 0 && (p[n - 1] & 0x80) ? UINT64_MAX : 0;

	for (size_t i = n; i-- > 0;)
		v = v << 8 | p[i];
	return (int64_t)v;
}

/* "12", "12L": what a line of INT, LONG, GET and PUT holds. */
static bool line_number(struct str s, uint64_t *v)
{
	*v = 0;
	s = str_trim(s);
	if (s.n > 0 && s.p[s.n - 1] == 'L')
		s.n--;
	if (s.n == 0 || s.n > 18)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		*v = *v * 10 + (uint64_t)(s.p[i] - '0');
	}
	return true;
}

static void tuple(struct walk *w)
{
	size_t n = above(w), at = w->n - n;
	const struct pickle_value *v = w->stack + at;

	if (n < 2 || v->kind != PICKLE_TEXT || v->word != PICKLE_STORAGE) {
		if (drop_marked(w))
			push(w, (struct pickle_value){0});
		return;
	}
	memset(w->item, 0, sizeof(w->item));
	w->n_items = n;
	memcpy(w->item, v, MIN(n, PICKLE_ITEMS) * sizeof(*v));
	if (drop_marked(w))
		push(w, (struct pickle_value){.kind = PICKLE_TUPLE, .at = ++w->tuples});
}

static void persistent(struct walk *w)
{
	struct pickle_value v;

	if (above(w) == 0) {
		stop(w, PICKLE_BAD);
		return;
	}
	v = w->stack[w->n - 1];
	if (v.kind == PICKLE_TUPLE && w->sink->persistent != NULL) {
		if (v.at != w->tuples)
			stop(w, PICKLE_LIMIT); /* nobody keeps one for later */
		else if (!w->sink->persistent(w->sink->arg, w->item, w->n_items))
			stop(w, PICKLE_ENDED);
	}
	w->stack[w->n - 1] = (struct pickle_value){0};
}

static struct entry *entry_of(struct walk *w, struct pickle_value *dict)
{
	struct entry *e = NULL;

	if (dict->at == 0) {
		dict->at = ++w->dicts;
		e = &w->entry[dict->at % DICTS];
		*e = (struct entry){.serial = dict->at};
		return e;
	}
	e = &w->entry[dict->at % DICTS];
	return e->serial == dict->at ? e : NULL;
}

static void set_item(struct walk *w, struct pickle_value *dict, const struct pickle_value *key,
                     const struct pickle_value *v)
{
	struct entry *e = NULL;

	if (key->kind != PICKLE_TEXT || key->word < PICKLE_RELATIVE_PATH ||
	    key->word > PICKLE_LENGTH)
		return;
	e = entry_of(w, dict);
	if (e == NULL)
		return;
	if (key->word == PICKLE_RELATIVE_PATH && v->kind == PICKLE_TEXT) {
		e->path = *v;
		e->has_path = true;
	} else if (key->word == PICKLE_OFFSET && v->kind == PICKLE_NUMBER) {
		e->offset = v->at;
		e->has_offset = true;
	} else if (key->word == PICKLE_LENGTH && v->kind == PICKLE_NUMBER) {
		e->length = v->at;
		e->has_length = true;
	}
}

/* n values at the top go into the dict below them. */
static void set_items(struct walk *w, size_t n, bool marked)
{
	struct pickle_value *top = w->stack + (w->n - n), *dict = NULL;

	if (n % 2 != 0 || (marked ? w->n_marks == 0 : above(w) < n + 1)) {
		stop(w, PICKLE_BAD);
		return;
	}
	if (marked) {
		w->n_marks--;
		if (above(w) < n + 1) {
			stop(w, PICKLE_BAD);
			return;
		}
	}
	dict = top - 1;
	if (dict->kind == PICKLE_DICT)
		for (size_t i = 0; i < n; i += 2)
			set_item(w, dict, &top[i], &top[i + 1]);
	w->n -= n;
}

static void build(struct walk *w)
{
	const struct pickle_value *state = NULL;
	const struct entry *e = NULL;

	if (above(w) < 2) {
		stop(w, PICKLE_BAD);
		return;
	}
	state = &w->stack[w->n - 1];
	if (state->kind == PICKLE_DICT && state->at != 0 && w->sink->stored != NULL) {
		e = &w->entry[state->at % DICTS];
		if (e->serial == state->at && e->has_path && e->has_offset && e->has_length &&
		    !w->sink->stored(w->sink->arg, &e->path, e->offset, e->length))
			stop(w, PICKLE_ENDED);
	}
	w->n--;
}

/* An opcode's argument: where it is, how long, the number it holds, and where the next opcode is.
 */
struct operand {
	uint64_t at, n, value, next;
	bool known; /* value is the number of a line */
};

static bool read_line(struct walk *w, uint64_t at, struct operand *o)
{
	size_t n = (size_t)MIN(w->l->size - at, (uint64_t)PICKLE_LINE_MAX);
	const uint8_t *p = look_at(w->l, at, n), *end = NULL;

	if (p == NULL) {
		stop(w, PICKLE_GONE);
		return false;
	}
	end = memchr(p, '\n', n);
	if (end == NULL) {
		stop(w, n < PICKLE_LINE_MAX ? PICKLE_CUT : PICKLE_BAD);
		return false;
	}
	o->at = at;
	o->n = (uint64_t)(end - p);
	o->known = line_number(str_n((const char *)p, (size_t)o->n), &o->value);
	o->next = at + o->n + 1;
	return true;
}

static bool read_operand(struct walk *w, enum arg kind, struct operand *o)
{
	static const uint8_t fixed[] = {
		[ARG_NONE] = 0, [ARG_1] = 1,     [ARG_2] = 2,  [ARG_4] = 4,  [ARG_8] = 8,
		[ARG_LINE] = 0, [ARG_LINES] = 0, [ARG_N1] = 1, [ARG_N4] = 4, [ARG_N8] = 8,
	};
	uint64_t at = w->at + 1;
	size_t n = fixed[kind];
	const uint8_t *p = NULL;

	*o = (struct operand){.at = at, .n = n, .next = at + n};
	if (kind == ARG_LINE || kind == ARG_LINES) {
		if (!read_line(w, at, o))
			return false;
		return kind == ARG_LINE || read_line(w, o->next, o);
	}
	if (n == 0)
		return true;
	if (!look_has(w->l, at, n)) {
		stop(w, PICKLE_CUT);
		return false;
	}
	p = look_at(w->l, at, n);
	if (p == NULL) {
		stop(w, PICKLE_GONE);
		return false;
	}
	o->value = n == 1 ? p[0] : n == 2 ? le16(p) : n == 4 ? le32(p) : le64(p);
	o->known = true;
	if (kind < ARG_N1)
		return true;
	o->at = at + n;
	o->n = o->value;
	if (!look_has(w->l, o->at, o->n)) {
		stop(w, PICKLE_CUT);
		return false;
	}
	o->next = o->at + o->n;
	return true;
}

/* BININT is signed; LONG1 has bytes of its own. */
static void push_number(struct walk *w, uint8_t op, const struct operand *o)
{
	const uint8_t *p = NULL;

	if (op == 'J') {
		number(w, true, (int32_t)(uint32_t)o->value);
	} else if (op != 0x8a) {
		number(w, o->known, (int64_t)o->value);
	} else if (o->n > 8) {
		number(w, false, 0);
	} else {
		p = look_at(w->l, o->at, (size_t)o->n);
		if (p == NULL)
			stop(w, PICKLE_GONE);
		else
			number(w, true, wide(p, (size_t)o->n));
	}
}

static void push_name(struct walk *w, const struct operand *o)
{
	struct pickle_value v = {.kind = PICKLE_NAME};

	if (o->n <= WORD_MAX) {
		const uint8_t *p = look_at(w->l, o->at, (size_t)o->n);

		if (p == NULL) {
			stop(w, PICKLE_GONE);
			return;
		}
		v.word = word_of(p, (size_t)o->n);
	}
	push(w, v);
}

static void stack_name(struct walk *w)
{
	uint8_t word;

	if (above(w) < 2) {
		stop(w, PICKLE_BAD);
		return;
	}
	word = w->stack[w->n - 1].kind == PICKLE_TEXT ? w->stack[w->n - 1].word : PICKLE_OTHER;
	w->n -= 2;
	push(w, (struct pickle_value){.kind = PICKLE_NAME, .word = word});
}

static void act(struct walk *w, uint8_t code, const struct operand *o)
{
	const struct op *op = &ops[code];

	switch ((enum effect)op->effect) {
	case DO_PUSH:
		if (drop(w, op->pop))
			push(w, (struct pickle_value){0});
		break;
	case DO_DROP:
		(void)drop(w, op->pop);
		break;
	case DO_MARKED:
		if (drop_marked(w))
			push(w, (struct pickle_value){0});
		break;
	case DO_DROP_MARKED:
		(void)drop_marked(w);
		break;
	case DO_STOP:
		if (above(w) == 0 || w->n_marks > 0)
			stop(w, PICKLE_BAD);
		else
			stop(w, PICKLE_STOP);
		break;
	case DO_MARK:
		mark(w);
		break;
	case DO_DUP:
		if (above(w) == 0)
			stop(w, PICKLE_BAD);
		else
			push(w, w->stack[w->n - 1]);
		break;
	case DO_POP: /* a mark counts as a value here */
		if (above(w) > 0)
			w->n--;
		else
			(void)drop_marked(w);
		break;
	case DO_NOTE:
		break;
	case DO_TEXT:
		text(w, o->at, o->n);
		break;
	case DO_NUMBER:
		push_number(w, code, o);
		break;
	case DO_NAME:
		push_name(w, o);
		break;
	case DO_STACK_NAME:
		stack_name(w);
		break;
	case DO_PUT:
		if (o->known)
			put(w, o->value);
		else
			stop(w, PICKLE_BAD);
		break;
	case DO_GET:
		if (o->known)
			get(w, o->value);
		else
			stop(w, PICKLE_BAD);
		break;
	case DO_MEMOIZE:
		put(w, w->n_memo);
		break;
	case DO_TUPLE:
		if (w->n_marks == 0)
			stop(w, PICKLE_BAD);
		else
			tuple(w);
		break;
	case DO_EMPTY_DICT:
		push(w, (struct pickle_value){.kind = PICKLE_DICT});
		break;
	case DO_SET_ITEM:
		if (above(w) < 3)
			stop(w, PICKLE_BAD);
		else
			set_items(w, 2, false);
		break;
	case DO_SET_ITEMS:
		if (w->n_marks == 0)
			stop(w, PICKLE_BAD);
		else
			set_items(w, above(w), true);
		break;
	case DO_BUILD:
		build(w);
		break;
	case DO_PERSISTENT:
		persistent(w);
		break;
	}
}

static void step(struct walk *w)
{
	const uint8_t *p = NULL;
	struct operand o;
	uint8_t code;

	if (!look_has(w->l, w->at, 1)) {
		stop(w, PICKLE_CUT);
		return;
	}
	p = look_at(w->l, w->at, 1);
	if (p == NULL) {
		stop(w, PICKLE_GONE);
		return;
	}
	code = *p;
	if (ops[code].effect == 0) {
		stop(w, code == 0 ? PICKLE_ZERO : PICKLE_BAD);
		return;
	}
	if (!read_operand(w, ops[code].arg, &o))
		return;
	act(w, code, &o);
	w->at = o.next;
}

enum pickle_end pickle_walk(struct look *l, uint64_t *at, const struct pickle_sink *sink)
{
	struct walk *w = xcalloc(1, sizeof(*w));
	enum pickle_end end;

	w->l = l;
	w->at = *at;
	w->sink = sink;
	w->cap = 256;
	w->stack = xmalloc(w->cap * sizeof(*w->stack));
	for (uint64_t n = 0; !w->done; n++) {
		if (n >= PICKLE_OPS_MAX)
			stop(w, PICKLE_LIMIT);
		else
			step(w);
	}
	end = l->failed || l->over ? PICKLE_GONE : w->end;
	if (end == PICKLE_STOP)
		*at = w->at;
	free(w->stack);
	free(w->marks);
	free(w->memo);
	free(w);
	return end;
}

unsigned pickle_item_bytes(const struct pickle_value *class)
{
	static const uint8_t bytes[] = {[PICKLE_BYTES_1] = 1,
	                                [PICKLE_BYTES_2] = 2,
	                                [PICKLE_BYTES_4] = 4,
	                                [PICKLE_BYTES_8] = 8,
	                                [PICKLE_BYTES_16] = 16};

	if (class->kind != PICKLE_NAME || class->word >= COUNT(bytes))
		return 0;
	return bytes[class->word];
}

struct str pickle_text(struct look *l, const struct pickle_value *v)
{
	const uint8_t *p = NULL;

	if (v->kind != PICKLE_TEXT || v->n > LOOK_WINDOW)
		return str_n(NULL, 0);
	p = look_at(l, v->at, v->n);
	return p == NULL ? str_n(NULL, 0) : str_n((const char *)p, v->n);
}

void pickle_verdict(struct look *l, enum pickle_end e)
{
	if (e == PICKLE_CUT)
		look_torn(l, "ends in the middle");
	else if (e == PICKLE_ZERO)
		look_torn(l, "has zeros where it should go on");
	else if (e == PICKLE_BAD)
		look_unknown(l, "is not a pickle");
	else if (e == PICKLE_LIMIT)
		look_unknown(l, "is too large a pickle to be checked");
}
