/* pickle_ops.c - the opcodes of pickles, and the texts that are told apart; see pickle_ops.h. */
#include "format/pickle_ops.h"

/* clang-format off */
const struct pickle_op pickle_ops[256] = {
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

enum pickle_word pickle_word(struct str text)
{
	for (size_t i = 0; i < COUNT(words); i++)
		if (str_eq(text, words[i].text))
			return words[i].word;
	return PICKLE_OTHER;
}
