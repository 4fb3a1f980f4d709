/* pickle.c - the opcodes of pickles, walked as data; see pickle.h. */
#include "format/pickle.h"

#include "format/pickle_ops.h"

#define DICTS 64 /* state dicts that may be open at once, one inside the other */

/* The key and value of an item stored in a dict; the ring forgets the oldest. */
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
	/* The memo: nearly all of it is values that mean nothing to us, 0; else the number of one
	 * in `kept` + 1. */
	uint32_t *memo;
	size_t n_memo, cap_memo;
	struct pickle_value *kept;
	size_t n_kept, cap_kept;
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

/* The value's number in `kept` + 1; 0 = it means nothing, or there is no room. */
static uint32_t keep(struct walk *w, const struct pickle_value *v)
{
	if (v->kind == PICKLE_NOTHING)
		return 0;
	if (w->n_kept == w->cap_kept) {
		if (w->n_kept >= PICKLE_KEPT_MAX) {
			stop(w, PICKLE_LIMIT);
			return 0;
		}
		w->cap_kept = MAX(w->cap_kept * 2, 256);
		w->kept = xrealloc(w->kept, w->cap_kept * sizeof(*w->kept));
	}
	w->kept[w->n_kept++] = *v;
	return (uint32_t)w->n_kept;
}

static void put(struct walk *w, uint64_t i)
{
	if (above(w) == 0) {
		stop(w, PICKLE_BAD);
		return;
	}
	/* picklers count up: a far number only makes us clear memory */
	if (i >= PICKLE_MEMO_MAX || i > w->n_memo + PICKLE_MEMO_GAP) {
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
	w->memo[i] = keep(w, &w->stack[w->n - 1]);
	w->n_memo = MAX(w->n_memo, (size_t)i + 1);
}

static void get(struct walk *w, uint64_t i)
{
	if (i >= w->n_memo)
		stop(w, PICKLE_BAD);
	else if (w->memo[i] == 0)
		push(w, (struct pickle_value){0});
	else
		push(w, w->kept[w->memo[i] - 1]);
}

/* The text of n bytes at `at`, or of as many as a pickled text may have. */
static void text(struct walk *w, uint64_t at, uint64_t n)
{
	struct pickle_value v = {.kind = PICKLE_TEXT, .at = at, .n = (uint32_t)MIN(n, UINT32_MAX)};

	if (n <= PICKLE_WORD_MAX) {
		const uint8_t *p = look_at(w->l, at, (size_t)n);

		if (p == NULL) {
			stop(w, PICKLE_GONE);
			return;
		}
		v.word = (uint8_t)pickle_word(str_n((const char *)p, (size_t)n));
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

/* The value of a LONG1: two's complement, little endian. */
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

static bool read_operand(struct walk *w, enum pickle_arg kind, struct operand *o)
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

	if (o->n <= PICKLE_WORD_MAX) {
		const uint8_t *p = look_at(w->l, o->at, (size_t)o->n);

		if (p == NULL) {
			stop(w, PICKLE_GONE);
			return;
		}
		v.word = (uint8_t)pickle_word(str_n((const char *)p, (size_t)o->n));
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

/* ---- what the opcodes do: one function each, by pickle_effect ---- */

struct opcode {
	uint8_t code, pop;
	struct operand o;
};

static void do_push(struct walk *w, const struct opcode *op)
{
	if (drop(w, op->pop))
		push(w, (struct pickle_value){0});
}

static void do_drop(struct walk *w, const struct opcode *op)
{
	(void)drop(w, op->pop);
}

static void do_marked(struct walk *w, const struct opcode *op UNUSED)
{
	if (drop_marked(w))
		push(w, (struct pickle_value){0});
}

static void do_drop_marked(struct walk *w, const struct opcode *op UNUSED)
{
	(void)drop_marked(w);
}

static void do_stop(struct walk *w, const struct opcode *op UNUSED)
{
	stop(w, above(w) == 0 || w->n_marks > 0 ? PICKLE_BAD : PICKLE_STOP);
}

static void do_mark(struct walk *w, const struct opcode *op UNUSED)
{
	mark(w);
}

static void do_dup(struct walk *w, const struct opcode *op UNUSED)
{
	if (above(w) == 0)
		stop(w, PICKLE_BAD);
	else
		push(w, w->stack[w->n - 1]);
}

static void do_pop(struct walk *w, const struct opcode *op UNUSED)
{
	if (above(w) > 0)
		w->n--;
	else
		(void)drop_marked(w); /* a mark counts as a value here */
}

static void do_note(struct walk *w UNUSED, const struct opcode *op UNUSED)
{
}

static void do_text(struct walk *w, const struct opcode *op)
{
	text(w, op->o.at, op->o.n);
}

static void do_number(struct walk *w, const struct opcode *op)
{
	push_number(w, op->code, &op->o);
}

static void do_name(struct walk *w, const struct opcode *op)
{
	push_name(w, &op->o);
}

static void do_stack_name(struct walk *w, const struct opcode *op UNUSED)
{
	stack_name(w);
}

static void do_put(struct walk *w, const struct opcode *op)
{
	if (op->o.known)
		put(w, op->o.value);
	else
		stop(w, PICKLE_BAD);
}

static void do_get(struct walk *w, const struct opcode *op)
{
	if (op->o.known)
		get(w, op->o.value);
	else
		stop(w, PICKLE_BAD);
}

static void do_memoize(struct walk *w, const struct opcode *op UNUSED)
{
	put(w, w->n_memo);
}

static void do_tuple(struct walk *w, const struct opcode *op UNUSED)
{
	if (w->n_marks == 0)
		stop(w, PICKLE_BAD);
	else
		tuple(w);
}

static void do_empty_dict(struct walk *w, const struct opcode *op UNUSED)
{
	push(w, (struct pickle_value){.kind = PICKLE_DICT});
}

static void do_set_item(struct walk *w, const struct opcode *op UNUSED)
{
	if (above(w) < 3)
		stop(w, PICKLE_BAD);
	else
		set_items(w, 2, false);
}

static void do_set_items(struct walk *w, const struct opcode *op UNUSED)
{
	if (w->n_marks == 0)
		stop(w, PICKLE_BAD);
	else
		set_items(w, above(w), true);
}

static void do_build(struct walk *w, const struct opcode *op UNUSED)
{
	build(w);
}

static void do_persistent(struct walk *w, const struct opcode *op UNUSED)
{
	persistent(w);
}

static void (*const effects[PICKLE_EFFECTS])(struct walk *w, const struct opcode *op) = {
	[DO_PUSH] = do_push,
	[DO_DROP] = do_drop,
	[DO_MARKED] = do_marked,
	[DO_DROP_MARKED] = do_drop_marked,
	[DO_STOP] = do_stop,
	[DO_MARK] = do_mark,
	[DO_DUP] = do_dup,
	[DO_POP] = do_pop,
	[DO_NOTE] = do_note,
	[DO_TEXT] = do_text,
	[DO_NUMBER] = do_number,
	[DO_NAME] = do_name,
	[DO_STACK_NAME] = do_stack_name,
	[DO_PUT] = do_put,
	[DO_GET] = do_get,
	[DO_MEMOIZE] = do_memoize,
	[DO_TUPLE] = do_tuple,
	[DO_EMPTY_DICT] = do_empty_dict,
	[DO_SET_ITEM] = do_set_item,
	[DO_SET_ITEMS] = do_set_items,
	[DO_BUILD] = do_build,
	[DO_PERSISTENT] = do_persistent,
};

static void step(struct walk *w)
{
	const uint8_t *p = NULL;
	const struct pickle_op *row = NULL;
	struct opcode op;

	if (!look_has(w->l, w->at, 1)) {
		stop(w, PICKLE_CUT);
		return;
	}
	p = look_at(w->l, w->at, 1);
	if (p == NULL) {
		stop(w, PICKLE_GONE);
		return;
	}
	op.code = *p;
	row = &pickle_ops[op.code];
	op.pop = row->pop;
	if (row->effect == DO_NOTHING_KNOWN) {
		stop(w, op.code == 0 ? PICKLE_ZERO : PICKLE_BAD);
		return;
	}
	if (!read_operand(w, row->arg, &op.o))
		return;
	effects[row->effect](w, &op);
	w->at = op.o.next;
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
	free(w->kept);
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
